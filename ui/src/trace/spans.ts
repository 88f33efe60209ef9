// The nodes of a trace as the spans that the timeline of the report draws.

import type { Paint, Spans } from "../design/spans";
import type { Class, Kind } from "../aliases";
import type { Timeline } from "../document";
import { briefName, type Nodes } from "./nodes";

/** The look of each kind of node. */
export const LOOKS: Record<Kind, Class> = { compute: "compute", communication: "exposed", memory: "memory", cpu: "optimizer", other: "other" };
export const KIND_WORDS: Record<Kind, string> = {
  compute: "compute",
  communication: "communication",
  memory: "memory",
  cpu: "on the CPU",
  other: "other",
};
const BACK = /back|bwd/i;

export interface Laid {
  spans: Spans;
  /** The node of each span, and the span of each node. */
  nodeOf: Uint32Array;
  spanOf: Uint32Array;
}

/** Returns the nodes as spans, sorted by track and start. */
export function laidOut(nodes: Nodes, kinds: Kind[]): Laid {
  const { count, view } = nodes;
  const first = new Uint32Array(view.tracks.length + 1);
  const nodeOf = byTrackAndStart(nodes, first);
  const spanOf = new Uint32Array(count);
  const [start, end, reach] = [new Float64Array(count), new Float64Array(count), new Float64Array(count)];
  const [name, track] = [new Uint32Array(count), new Uint32Array(count)];
  const [paint, critical, criticals] = [new Uint8Array(count), new Uint8Array(count), new Uint32Array(count + 1)];
  const back = Uint8Array.from(view.names, (each) => (BACK.test(each) ? 1 : 0));
  const paints: Paint[] = kinds.flatMap((kind) => [false, true].map((second) => ({ class: LOOKS[kind], back: second })));
  for (let span = 0, last = -1, far = 0; span < count; span++) {
    const node = nodeOf[span];
    spanOf[node] = span;
    start[span] = nodes.start[node];
    end[span] = nodes.end[node];
    track[span] = nodes.track[node];
    name[span] = nodes.name[node];
    far = track[span] === last ? Math.max(far, end[span]) : end[span];
    last = track[span];
    reach[span] = far;
    critical[span] = nodes.critical[node];
    criticals[span + 1] = criticals[span] + critical[span];
    const kind = nodes.kind[node];
    paint[span] = 2 * kind + (kinds[kind] === "compute" ? back[name[span]] : 0);
  }
  const flows = flowsOf(nodes, spanOf);
  const spans: Spans = {
    timeline: timelineOf(nodes, kinds),
    count, start, end, name, track, paint, critical, first, reach, paints, criticals,
    sums: paints.map((_, place) => summed(place, paint, start, end, untilOf(view) / 1000)),
    ...flows,
    counters: [],
  };
  return { spans, nodeOf, spanOf };
}

function byTrackAndStart(nodes: Nodes, first: Uint32Array): Uint32Array {
  const { count, track, start } = nodes;
  for (let node = 0; node < count; node++) first[track[node] + 1]++;
  for (let each = 1; each < first.length; each++) first[each] += first[each - 1];
  const next = first.slice();
  const order = new Uint32Array(count);
  for (let node = 0; node < count; node++) order[next[track[node]]++] = node;
  for (let each = 0; each + 1 < first.length; each++) {
    const part = order.subarray(first[each], first[each + 1]);
    let sorted = true;
    for (let place = 1; place < part.length && sorted; place++) sorted = start[part[place]] >= start[part[place - 1]];
    if (!sorted) part.sort((a, b) => start[a] - start[b] || a - b);
  }
  return order;
}

function flowsOf({ before, count }: Nodes, spanOf: Uint32Array): { from: Uint32Array; to: Uint32Array } {
  const [from, to] = [new Uint32Array(before.to.length), new Uint32Array(before.to.length)];
  for (let node = 0; node < count; node++)
    for (let place = before.first[node]; place < before.first[node + 1]; place++) {
      from[place] = spanOf[before.to[place]];
      to[place] = spanOf[node];
    }
  return { from, to };
}

/** Returns sums of the time of a paint, for the look of what is narrower than a pixel; nodes that take no time count as `none`. */
function summed(place: number, paint: Uint8Array, start: Float64Array, end: Float64Array, none: number): Float64Array {
  const sums = new Float64Array(paint.length + 1);
  for (let span = 0; span < paint.length; span++) sums[span + 1] = sums[span] + (paint[span] === place ? end[span] - start[span] || none : 0);
  return sums;
}

/** Returns the head of a timeline, as the drawing of spans reads it. */
function timelineOf({ view }: Nodes, kinds: Kind[]): Timeline {
  const none = { offset: 0, count: 0, type: "u8" } as const;
  return {
    engine: "event",
    duration_s: untilOf(view),
    processes: view.processes.map((name) => ({ name, ranks: 1 })),
    tracks: view.tracks,
    names: view.names.map(briefName),
    classes: kinds.map((kind) => LOOKS[kind]),
    spans: { count: 0, track: none, name: none, class: none, gap: none, duration: none, critical: none },
    seconds: [],
    flows: { count: 0, from: none, to: none },
    counters: [],
    totals: { compute_s: 0, exposed_s: 0, hidden_s: 0, idle_s: 0 },
    reading: view.reading,
  };
}

/** Returns how long the timeline is: something, even where no node takes any time. */
export function untilOf({ duration, tick }: { duration: number; tick: number }): number {
  return duration || tick;
}

/** Returns, for each of `bins` equal intervals, the share of time in compute, and in communication alone.
 *
 * Nodes on the CPU count as compute where nothing computes on an accelerator. */
export function traceHeat(spans: Spans, until: number, bins: number): { busy: Float64Array; exposed: Float64Array } {
  const [busy, exposed] = [new Float64Array(bins), new Float64Array(bins)];
  const per = bins / until;
  const classes = new Set(Array.from(new Set(spans.paint), (paint) => spans.paints[paint].class));
  const counted: Class[] = classes.has("compute") || classes.has("memory") ? ["compute", "memory", "exposed"] : ["optimizer", "other", "exposed"];
  const into = spans.paints.map((paint) => (counted.includes(paint.class) ? (paint.class === "exposed" ? exposed : busy) : null));
  for (let span = 0; span < spans.count; span++) {
    const sums = into[spans.paint[span]];
    if (!sums) continue;
    const [low, high] = [spans.start[span] * per, spans.end[span] * per];
    for (let bin = Math.floor(low); bin < high && bin < bins; bin++) sums[bin] += Math.min(high, bin + 1) - Math.max(low, bin);
  }
  for (let bin = 0; bin < bins; bin++) {
    busy[bin] = Math.min(1, busy[bin]);
    exposed[bin] = Math.min(1 - busy[bin], exposed[bin]);
  }
  return { busy, exposed };
}
