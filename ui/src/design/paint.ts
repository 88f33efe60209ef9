// Draws the rows of a timeline: spans, counters, the critical path.

import { FONT, type Frame } from "../base/canvas";
import { show } from "../base/format";
import { linearTicks } from "../base/scale";
import { type Palette, palette } from "../base/theme";
import { type Look, lookOf, textureOf } from "./looks";
import { type Lane, processText, type Row, rowOf } from "./rows";
import { eachBlock, firstAt } from "./spans";
import { tickText, type View } from "./view";

/** A span of one of the lanes. */
export interface Pick {
  lane: number;
  span: number;
}

export interface Scene {
  lanes: Lane[];
  rows: Row[];
  view: View;
  /** How far the rows are scrolled, in pixels. */
  scroll: number;
  /** Pixels at the left for the names of rows, and at the top for times. */
  gutter: number;
  head: number;
  criticalOnly: boolean;
  /** By lane, which names match the search; null without a search. */
  wanted: (Uint8Array | null)[];
  /** Whether times are steps, not seconds. */
  inSteps?: boolean;
}

const DIM = 0.16;
export const SMALL = "11px system-ui, -apple-system, 'Segoe UI', sans-serif";

/** Returns where a time lies. */
export function xOf(scene: Scene, time: number, width: number): number {
  const { view, gutter } = scene;
  return gutter + ((time - view.from) / (view.to - view.from)) * (width - gutter);
}

export function timeAt(scene: Scene, x: number, width: number): number {
  const { view, gutter } = scene;
  return view.from + ((x - gutter) / (width - gutter)) * (view.to - view.from);
}

export function drawScene(scene: Scene, frame: Frame): void {
  const { context, width, height } = frame;
  const colours = palette();
  drawGrid(scene, frame, colours);
  context.save();
  context.beginPath();
  context.rect(0, scene.head, width, height - scene.head);
  context.clip();
  for (const row of scene.rows) {
    const y = row.top - scene.scroll + scene.head;
    if (y + row.height < scene.head || y > height) continue;
    if (row.kind === "design") {
      context.fillStyle = colours.raised;
      context.fillRect(0, y, width, row.height);
    } else if (row.kind === "track") for (const track of [...row.extra, row.place]) drawTrack(scene, row, track, y, frame);
    else if (row.kind === "counter") drawCounter(scene, row, y, frame, colours);
  }
  drawCriticalWay(scene, frame, colours);
  scene.lanes.forEach((lane, place) => drawEnd(scene, lane, place, frame, colours));
  for (const row of scene.rows) {
    const y = row.top - scene.scroll + scene.head;
    if (y + row.height >= scene.head && y <= height) drawName(scene, row, y, frame, colours);
  }
  context.restore();
}

function drawGrid(scene: Scene, { context, width, height }: Frame, colours: Palette): void {
  const { view, gutter, head } = scene;
  const ticks = linearTicks(view.from, view.to, Math.max(2, (width - gutter) / (width < 600 ? 75 : 110)));
  const text = tickText(ticks[1] - ticks[0] || view.to - view.from, view.to, !scene.inSteps);
  context.font = SMALL;
  context.fillStyle = colours.faint;
  context.strokeStyle = colours.line;
  context.lineWidth = 1;
  context.beginPath();
  for (const tick of ticks) {
    const x = Math.round(xOf(scene, tick, width)) + 0.5;
    if (x < gutter) continue;
    context.moveTo(x, head - 5);
    context.lineTo(x, height);
    const label = text(tick);
    const wide = context.measureText(label).width;
    if (x + 3 + wide < width) context.fillText(label, x + 3, head - 8);
  }
  context.moveTo(0, head - 0.5);
  context.lineTo(width, head - 0.5);
  context.stroke();
  context.font = FONT;
}

/** A name as it is written, and its width. */
interface Wording {
  full: number;
  brief: string;
  briefly: number;
}

const wordings = new Map<string, Wording>();

/** Returns a name if it fits, else a short form; empty where that does not fit either. */
function fitting(context: CanvasRenderingContext2D, name: string, room: number): string {
  if (room < 9) return "";
  let known = wordings.get(name);
  if (!known) {
    const brief = shortName(name);
    known = { full: context.measureText(name).width, brief, briefly: context.measureText(brief).width };
    wordings.set(name, known);
  }
  if (known.full <= room) return name;
  return known.briefly <= room ? known.brief : "";
}

/** "forward 12" is F12, "mb3.layer0.attention.backward" is B3; other names have no short form. */
export function shortName(name: string): string {
  const number = /\d+/.exec(name)?.[0];
  if (number === undefined) return "";
  if (/back|bwd/i.test(name)) return `B${number}`;
  return /forw|fwd/i.test(name) ? `F${number}` : "";
}

function drawTrack(scene: Scene, row: Row, track: number, y: number, frame: Frame): void {
  const { context, width, ratio } = frame;
  const { gutter, view } = scene;
  const { spans } = scene.lanes[row.lane];
  const looks = spans.paints.map(lookOf);
  const textures = spans.paints.map((paint, place) => textureOf(context, paint.class, looks[place].text, ratio));
  const [top, high] = [y + 2, row.height - 3];
  const wanted = scene.wanted[row.lane];
  const marks: number[] = [];
  const text: { look: Look; label: string; x: number }[] = [];
  context.save();
  context.beginPath();
  context.rect(gutter, y, width - gutter, row.height);
  context.clip();
  let [alpha, fill] = [1, ""];
  eachBlock(spans, track, view.from, view.to, width - gutter, (x0, x1, paint, span, busy, critical) => {
    if (row.folded && spans.paints[paint].class === "hidden") return;
    const alone = span >= 0;
    const dim = (scene.criticalOnly && !critical) || (wanted !== null && (!alone || !wanted[spans.name[span]]));
    const strength = dim ? DIM : alone ? 1 : 0.3 + 0.7 * busy;
    if (strength !== alpha) context.globalAlpha = alpha = strength;
    const look = looks[paint];
    if (look.fill !== fill) context.fillStyle = fill = look.fill;
    const left = gutter + Math.max(x0, -2);
    const right = gutter + Math.min(x1, width - gutter + 2);
    const wide = right - left;
    context.fillRect(left, top, wide > 3 ? wide - 1 : wide, high);
    if (critical && !dim) marks.push(left, wide > 3 ? wide - 1 : wide);
    if (!alone || wide < 9) return;
    const pattern = textures[paint];
    if (pattern) {
      context.fillStyle = pattern;
      context.fillRect(left, top, wide - 1, high);
      fill = "";
    }
    if (dim || high < 11) return;
    const [seenFrom, seenTo] = [Math.max(left, gutter), Math.min(right, width)];
    const label = fitting(context, spans.timeline.names[spans.name[span]], seenTo - seenFrom - 7);
    if (label) text.push({ look, label, x: (seenFrom + seenTo - 1) / 2 });
  });
  context.globalAlpha = 1;
  context.textBaseline = "middle";
  context.textAlign = "center";
  for (const { look, label, x } of text) {
    if (look.text !== fill) context.fillStyle = fill = look.text;
    context.fillText(label, x, top + high / 2 + 0.5);
  }
  context.textBaseline = "alphabetic";
  context.textAlign = "left";
  context.fillStyle = palette().ink;
  for (let mark = 0; mark < marks.length; mark += 2) {
    const wide = Math.max(1, marks[mark + 1]);
    context.fillRect(marks[mark], top - 1, wide, 2);
    context.fillRect(marks[mark], top + high - 1, wide, 2);
  }
  context.restore();
}

function drawCounter(scene: Scene, row: Row, y: number, frame: Frame, colours: Palette): void {
  const { context, width } = frame;
  const { view, gutter } = scene;
  const { spans } = scene.lanes[row.lane];
  const counter = spans.counters[row.place];
  const { height } = row;
  const last = Math.min(width, xOf(scene, spans.timeline.duration_s, width));
  const [base, high] = [y + height - 3, height - 8];
  const ceiling = (counter.high || 1) * 1.04;
  const level = (value: number): number => base - (value / ceiling) * high;
  const { times, values } = counter;
  const first = Math.max(0, firstAt(times, view.from, 0, times.length, true) - 1);
  context.save();
  context.beginPath();
  context.rect(gutter, y, width - gutter, height);
  context.clip();
  const colour = counter.unit === "B" ? colours.classes.memory : colours.classes.hidden;
  const edge = new Path2D();
  let before = times.length ? xOf(scene, times[first], width) : gutter;
  let held = level(values[first] ?? 0);
  edge.moveTo(before, held);
  // Values that fall on one pixel are drawn as their highest.
  for (let place = first; place < times.length && times[place] <= view.to; ) {
    const x = xOf(scene, times[place], width);
    let value = values[place++];
    while (place < times.length && xOf(scene, times[place], width) < x + 1) value = Math.max(value, values[place++]);
    edge.lineTo(x, held);
    edge.lineTo(x, level(value));
    edge.lineTo(x, (held = level(values[place - 1])));
    edge.lineTo((before = place < times.length ? xOf(scene, times[place], width) : last), held);
  }
  const area = new Path2D(edge);
  area.lineTo(before, base);
  area.lineTo(xOf(scene, times[first] ?? 0, width), base);
  context.fillStyle = context.strokeStyle = colour;
  context.globalAlpha = 0.18;
  context.fill(area);
  context.globalAlpha = 1;
  context.lineWidth = 1.25;
  context.stroke(edge);
  if (counter.most !== null) {
    const limit = Math.round(level(counter.most)) + 0.5;
    context.setLineDash([4, 3]);
    context.strokeStyle = colours.failure;
    context.beginPath();
    context.moveTo(gutter, limit);
    context.lineTo(last, limit);
    context.stroke();
    context.setLineDash([]);
  }
  context.restore();
}

/** Draws the arrows of the critical path where it changes tracks. */
function drawCriticalWay(scene: Scene, frame: Frame, colours: Palette): void {
  if (scene.lanes.some(({ spans }) => spans.from.length > 20_000) && !scene.criticalOnly) return;
  scene.lanes.forEach(({ spans }, lane) => {
    let left = 300;
    for (let flow = 0; flow < spans.from.length && left > 0; flow++) {
      const [from, to] = [spans.from[flow], spans.to[flow]];
      if (!spans.critical[from] || !spans.critical[to] || spans.track[from] === spans.track[to]) continue;
      if (spans.end[from] < scene.view.from || spans.start[to] > scene.view.to) continue;
      if (arrow(scene, frame, { lane, span: from }, { lane, span: to }, colours.ink, 1)) left--;
    }
  });
}

/** Draws an arrow from the end of a span to the start of another; returns whether both are visible. */
export function arrow(scene: Scene, frame: Frame, from: Pick, to: Pick, colour: string, thick: number): boolean {
  const { context, width } = frame;
  const { spans } = scene.lanes[from.lane];
  const [one, other] = [from, to].map(({ lane, span }) => rowOf(scene.rows, lane, spans.track[span]));
  if (!one || !other) return false;
  const middle = (row: Row): number => row.top - scene.scroll + scene.head + row.height / 2;
  const [x0, x1] = [xOf(scene, spans.end[from.span], width), xOf(scene, spans.start[to.span], width)];
  const [y0, y1] = [middle(one), middle(other)];
  const bend = Math.max(8, Math.min(40, Math.abs(x1 - x0) / 2));
  context.save();
  context.beginPath();
  context.rect(scene.gutter, scene.head, width - scene.gutter, frame.height - scene.head);
  context.clip();
  context.strokeStyle = context.fillStyle = colour;
  context.lineWidth = thick;
  context.beginPath();
  context.moveTo(x0, y0);
  context.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1, y1);
  context.stroke();
  context.beginPath();
  context.moveTo(x1 + 1, y1);
  context.lineTo(x1 - 5, y1 - 3.5);
  context.lineTo(x1 - 5, y1 + 3.5);
  context.fill();
  context.restore();
  return true;
}

/** Draws the end of a step, if another visible step is longer. */
function drawEnd(scene: Scene, lane: Lane, place: number, { context, width }: Frame, colours: Palette): void {
  if (scene.lanes.length < 2) return;
  const rows = scene.rows.filter((row) => row.lane === place);
  const x = Math.round(xOf(scene, lane.spans.timeline.duration_s, width));
  if (x < scene.gutter || x > width || !rows.length) return;
  const [top, last] = [rows[0].top, rows[rows.length - 1]];
  context.fillStyle = colours.ink;
  context.fillRect(x - 1, top - scene.scroll + scene.head + 2, 2, last.top + last.height - top - 4);
  const label = `ends at ${show(lane.spans.timeline.duration_s, "s")}`;
  const wide = context.measureText(label).width;
  context.font = SMALL;
  const right = x + 6 + wide < width;
  context.fillText(label, right ? x + 5 : x - 5 - wide, top - scene.scroll + scene.head + 16);
  context.font = FONT;
}

function drawName(scene: Scene, row: Row, y: number, { context, width }: Frame, colours: Palette): void {
  const { gutter } = scene;
  const { spans, label } = scene.lanes[row.lane];
  const { folded } = row;
  context.save();
  if (row.kind === "design") {
    write(context, label, 4, y + 16, width - 120, colours.ink, "600 12px system-ui, sans-serif");
    context.restore();
    return;
  }
  context.fillStyle = colours.paper;
  context.fillRect(0, y, gutter, row.height);
  if (row.kind === "process" || folded) {
    context.fillStyle = colours.line;
    context.fillRect(0, Math.round(y), width, 1);
    const baseline = y + (folded ? 12 : 15);
    const [left, size] = gutter < 120 ? [13, 10] : [16, 11];
    fold(context, 7, baseline - 4, folded, colours.faint);
    const room = folded ? gutter - left - 3 : width - 20;
    write(context, processText(spans, row.process), left, baseline, room, colours.ink, `600 ${size}px system-ui, sans-serif`);
  } else {
    const counter = row.kind === "counter" ? spans.counters[row.place] : null;
    const name = counter ? counter.name : spans.timeline.tracks[row.place].name;
    write(context, name, 16, y + (counter ? 14 : 15), gutter - 20, colours.faint, SMALL);
    if (counter) {
      const unit = counter.unit;
      const most = counter.most === null ? `up to ${show(counter.high, unit)}` : `limit ${show(counter.most, unit)}`;
      write(context, most, 16, y + 27, gutter - 20, colours.faint, "10px system-ui, sans-serif");
    }
  }
  context.fillStyle = colours.line;
  context.fillRect(gutter - 1, y, 1, row.height);
  context.restore();
}

function fold(context: CanvasRenderingContext2D, x: number, y: number, closed: boolean, colour: string): void {
  context.fillStyle = colour;
  context.beginPath();
  if (closed) for (const [a, b] of [[-2, -4], [3, 0], [-2, 4]]) context.lineTo(x + a, y + b);
  else for (const [a, b] of [[-4, -2], [4, -2], [0, 3]]) context.lineTo(x + a, y + b);
  context.fill();
}

/** Returns text, cut with an ellipsis where it is wider than `room`. */
export function cutTo(context: CanvasRenderingContext2D, text: string, room: number): string {
  let cut = text.length > room ? `${text.slice(0, room)}…` : text; // no letter is narrower than a pixel
  while (cut.length > 1 && context.measureText(cut).width > room) cut = `${cut.slice(0, -2).trimEnd()}…`;
  return cut;
}

/** Writes text, cut with an ellipsis where it has too little room. */
export function write(context: CanvasRenderingContext2D, text: string, x: number, y: number, room: number, colour: string, font: string): void {
  context.font = font;
  context.fillStyle = colour;
  context.fillText(cutTo(context, text, room), x, y);
}
