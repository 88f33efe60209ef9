// The spans of a step as typed arrays, which the timeline draws, searches and sums. No object per span.

import { type Numbers, unpack } from "../container";
import type { Class } from "../aliases";
import type { Timeline } from "../document";

/** The look of a span: its class, and a second shade for the backward pass. */
export interface Paint {
  class: Class;
  back: boolean;
}

export interface Counter {
  process: number;
  name: string;
  unit: string;
  most: number | null;
  high: number;
  times: Float64Array;
  values: Float64Array;
}

export interface Spans {
  timeline: Timeline;
  count: number;
  start: Float64Array;
  end: Float64Array;
  name: Numbers;
  track: Numbers;
  paint: Uint8Array;
  critical: Uint8Array;
  /** Those of track t are from `first[t]` up to `first[t + 1]`. */
  first: Uint32Array;
  /** The latest end on its track so far: what lets a search by time find spans that overlap. */
  reach: Float64Array;
  paints: Paint[];
  /** By paint: its seconds in all spans before (a prefix sum). */
  sums: Float64Array[];
  /** How many spans before lie on the critical path. */
  criticals: Uint32Array;
  from: Numbers;
  to: Numbers;
  counters: Counter[];
}

const known = new WeakMap<Timeline, Spans>();

/** Returns the spans of a timeline, cached. */
export function spansOf(timeline: Timeline, binary: Uint8Array): Spans {
  const before = known.get(timeline);
  if (before) return before;
  const made = decodeSpans(timeline, binary);
  known.set(timeline, made);
  return made;
}

/** Names of backward work: "B12", "W3", "mb0.layer1.attention.backward". */
const BACK = /back|bwd|^[BW]\d/i;

export function decodeSpans(timeline: Timeline, binary: Uint8Array): Spans {
  const { count, ...packed } = timeline.spans;
  const [track, name, kind] = [unpack(packed.track, binary), unpack(packed.name, binary), unpack(packed.class, binary)];
  const [gap, duration] = [unpack(packed.gap, binary), unpack(packed.duration, binary)];
  const critical = unpack(packed.critical, binary) as Uint8Array;
  const { seconds, classes } = timeline;
  const [start, end, reach] = [new Float64Array(count), new Float64Array(count), new Float64Array(count)];
  const first = new Uint32Array(timeline.tracks.length + 1);
  const criticals = new Uint32Array(count + 1);
  const paint = new Uint8Array(count);
  const paints: Paint[] = [];
  const places = new Map<number, number>();
  const back = Uint8Array.from(timeline.names, (each) => (BACK.test(each) ? 1 : 0));

  for (let span = 0, last = -1, until = 0, far = 0; span < count; span++) {
    if (track[span] !== last) {
      for (let each = last + 1; each <= track[span]; each++) first[each] = span;
      last = track[span];
      until = far = 0;
    }
    start[span] = until + seconds[gap[span]];
    until = end[span] = start[span] + seconds[duration[span]];
    reach[span] = far = Math.max(far, until);
    criticals[span + 1] = criticals[span] + critical[span];
    const second = classes[kind[span]] === "compute" ? back[name[span]] : 0;
    const look = 2 * kind[span] + second;
    let place = places.get(look);
    if (place === undefined) {
      place = paints.push({ class: classes[kind[span]], back: second === 1 }) - 1;
      places.set(look, place);
    }
    paint[span] = place;
    if (span === count - 1) for (let each = last + 1; each < first.length; each++) first[each] = count;
  }
  return {
    timeline, count, start, end, name, track, paint, critical, first, reach, paints,
    sums: paints.map((_, place) => summed(place, paint, start, end)),
    criticals,
    from: unpack(timeline.flows.from, binary),
    to: unpack(timeline.flows.to, binary),
    counters: timeline.counters.map((each) => decodeCounter(each, seconds, binary)),
  };
}

function decodeCounter(counter: Timeline["counters"][number], seconds: number[], binary: Uint8Array): Counter {
  const times = Float64Array.from(unpack(counter.times, binary));
  const values = Float64Array.from(unpack(counter.values, binary));
  const { levels, process, name, unit, most } = counter;
  if (levels) {
    let time = 0;
    times.forEach((code, place) => (times[place] = time += seconds[code]));
    values.forEach((code, place) => (values[place] = levels[code]));
  }
  const high = values.reduce((top, value) => Math.max(top, value), most ?? 0);
  return { process, name, unit, most, high, times, values };
}

function summed(place: number, paint: Uint8Array, start: Float64Array, end: Float64Array): Float64Array {
  const sums = new Float64Array(paint.length + 1);
  for (let span = 0; span < paint.length; span++)
    sums[span + 1] = sums[span] + (paint[span] === place ? end[span] - start[span] : 0);
  return sums;
}

/** Returns the first place from `low` up to `high` where sorted values reach `least`; above it too if `above`. */
export function firstAt(values: Float64Array, least: number, low: number, high: number, above = false): number {
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (above ? values[middle] > least : values[middle] >= least) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** As `firstAt`, fast where the answer is near `low`. */
function firstNear(values: Float64Array, least: number, low: number, high: number): number {
  let step = 1;
  while (low + step < high && values[low + step] < least) step *= 2;
  return firstAt(values, least, low + (step >> 1), Math.min(high, low + step));
}

/** Something to draw on a track: one span, or all those of some pixels (then `span` is -1). */
export type Put = (x0: number, x1: number, paint: number, span: number, busy: number, critical: boolean) => void;

const ALONE = 1.5;

/** Calls `put` for all that a track shows from one time to another on `width` pixels: at most two calls a pixel.
 *
 * Spans narrower than 1.5 pixels are merged with all others that begin in the same pixel; the class with the most time
 * decides the look, and neighbours with the same look become one. */
export function eachBlock(spans: Spans, track: number, from: number, to: number, width: number, put: Put): void {
  const { start, end, paint, critical, criticals, sums } = spans;
  const last = spans.first[track + 1];
  const per = width / (to - from);
  let [x0, x1, look, share, marked] = [0, -1, -1, 0, false];
  const flush = (): void => {
    if (look >= 0) put(x0, x1, look, -1, share, marked);
    look = -1;
  };
  let span = firstAt(spans.reach, from, spans.first[track], last, true);
  while (span < last && start[span] < to) {
    const left = (start[span] - from) * per;
    const right = (end[span] - from) * per;
    if (right - left >= ALONE) {
      flush();
      if (right > 0) put(left, right, paint[span], span, 1, critical[span] === 1);
      span++;
      continue;
    }
    const pixel = Math.floor(left);
    let next = firstNear(start, from + (pixel + 1) / per, span + 1, last);
    // A long one that begins in this pixel is drawn as itself.
    if (next > span + 1 && (end[next - 1] - start[next - 1]) * per >= ALONE) next--;
    let [most, total, best] = [0, 0, paint[span]];
    for (let each = 0; each < sums.length; each++) {
      const time = sums[each][next] - sums[each][span];
      total += time;
      if (time > most) [most, best] = [time, each];
    }
    const busy = Math.min(1, Math.ceil(4 * total * per) / 4) || 0.25;
    const mark = criticals[next] > criticals[span];
    if (look !== best || share !== busy || marked !== mark || pixel > x1) {
      flush();
      [x0, look, share, marked] = [pixel, best, busy, mark];
    }
    x1 = pixel + 1;
    span = next;
  }
  flush();
}

/** Returns the span of a track at a time, or the nearest one within `near` seconds; -1 for none. */
export function spanAt(spans: Spans, track: number, time: number, near: number): number {
  const [low, high] = [spans.first[track], spans.first[track + 1]];
  const after = firstAt(spans.start, time, low, high, true);
  for (let span = after - 1; span >= low && span > after - 64 && spans.reach[span] >= time; span--)
    if (spans.end[span] >= time) return span;
  const gaps: [number, number][] = [];
  if (after > low) gaps.push([time - spans.end[after - 1], after - 1]);
  if (after < high) gaps.push([spans.start[after] - time, after]);
  const best = gaps.sort((a, b) => a[0] - b[0])[0];
  return best && best[0] <= near ? best[1] : -1;
}

/** Returns the seconds of each class from one time to another, by process: those of a mean rank of it. */
export function classSeconds(spans: Spans, from: number, to: number): Record<Class, number>[] {
  const { timeline, start, end, paint, paints } = spans;
  const all = timeline.processes.map(() => ({ compute: 0, exposed: 0, hidden: 0, idle: 0, memory: 0, optimizer: 0, other: 0 }));
  timeline.tracks.forEach(({ process }, track) => {
    const last = spans.first[track + 1];
    const sums = new Float64Array(paints.length);
    for (let span = firstAt(spans.reach, from, spans.first[track], last, true); span < last && start[span] < to; span++) {
      const time = Math.min(end[span], to) - Math.max(start[span], from);
      if (time > 0) sums[paint[span]] += time;
    }
    paints.forEach((each, place) => (all[process][each.class] += sums[place]));
  });
  return all;
}

/** Returns the mean over all ranks of what `classSeconds` says by process. */
export function meanSeconds(timeline: Timeline, by: Record<Class, number>[]): Record<Class, number> {
  const ranks = timeline.processes.reduce((sum, each) => sum + each.ranks, 0) || 1;
  const mean = { compute: 0, exposed: 0, hidden: 0, idle: 0, memory: 0, optimizer: 0, other: 0 };
  by.forEach((each, process) => {
    for (const name of Object.keys(mean) as Class[]) mean[name] += (each[name] * timeline.processes[process].ranks) / ranks;
  });
  return mean;
}

/** Returns the spans whose name holds some text, by start. */
export function found(spans: Spans, text: string): Uint32Array {
  const fits = wantedNames(spans.timeline.names, text);
  if (!fits) return new Uint32Array(0);
  const places: number[] = [];
  for (let span = 0; span < spans.count; span++) if (fits[spans.name[span]]) places.push(span);
  return Uint32Array.from(places).sort((a, b) => spans.start[a] - spans.start[b] || a - b);
}

/** Returns which names hold some text; null without text. */
export function wantedNames(names: string[], text: string): Uint8Array | null {
  const wanted = text.trim().toLowerCase();
  return wanted ? Uint8Array.from(names, (name) => (name.toLowerCase().includes(wanted) ? 1 : 0)) : null;
}

/** Returns the spans that a span depends on (`before`) and those that depend on it (`after`). */
export function neighbours(spans: Spans, span: number): { before: number[]; after: number[] } {
  const [before, after]: [number[], number[]] = [[], []];
  for (let flow = 0; flow < spans.from.length; flow++) {
    if (spans.to[flow] === span) before.push(spans.from[flow]);
    if (spans.from[flow] === span) after.push(spans.to[flow]);
  }
  return { before, after };
}

/** Returns, for each of `bins` equal intervals, the mean share of time in compute and in exposed communication. */
export function heat(spans: Spans, until: number, bins: number): { busy: Float64Array; exposed: Float64Array } {
  const { timeline, start, end, paint, paints } = spans;
  const ranks = timeline.processes.reduce((sum, each) => sum + each.ranks, 0) || 1;
  const [busy, exposed] = [new Float64Array(bins), new Float64Array(bins)];
  const per = bins / until;
  for (let span = 0; span < spans.count; span++) {
    const { class: kind } = paints[paint[span]];
    if (kind === "hidden" || kind === "idle") continue;
    const into = kind === "exposed" ? exposed : busy;
    const weight = timeline.processes[timeline.tracks[spans.track[span]].process].ranks / ranks;
    const [low, high] = [start[span] * per, end[span] * per];
    for (let bin = Math.floor(low); bin < high && bin < bins; bin++)
      into[bin] += weight * (Math.min(high, bin + 1) - Math.max(low, bin));
  }
  return { busy, exposed };
}
