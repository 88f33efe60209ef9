// Painting of parallel coordinates: kept trials in grey, selected ones in the accent, the focus in its colour.

import type { Frame } from "../base/canvas";
import { writer } from "../base/format";
import { palette } from "../base/theme";
import { type Axis, placeOn, stretches, ticksOf } from "./axes";
import { addLines, type Colour, colourOf, Layer, PAIRS, pairs, type Tone } from "./density";
import { fitting, haloed } from "./marks";
import { placesOf } from "./mask";
import type { Explorer } from "./model";

export const TOP = 30;
export const BOTTOM = 14;
const FEW_LINES = 150;
/** Pixels between two numbers on an axis. */
const HEADROOM = 13;

export interface Lane {
  axis: Axis;
  flip: boolean;
  /** Pixels from the left of the canvas; may lie outside. */
  x: number;
}

export interface Lanes {
  lanes: Lane[];
  spacing: number;
  height: number;
  /** What stays the same while only the brush moves. */
  key: string;
}

/** Densities, one over the other. */
export class Layers {
  readonly kept = new Layer();
  readonly selected = new Layer();
  readonly focus = new Layer();
}

/** Returns where on the canvas a place of an axis (0 to 1) is. */
export function yOf({ flip }: Lane, at: number, height: number): number {
  const room = height - TOP - BOTTOM;
  return TOP + room * (flip ? at : 1 - at);
}

export function atY({ flip }: Lane, y: number, height: number): number {
  const at = Math.min(1, Math.max(0, (y - TOP) / (height - TOP - BOTTOM)));
  return flip ? at : 1 - at;
}

/** Places of the trials in focus that are selected, if they are few enough to be lines of their own. */
export function focusLines(model: Explorer): number[] {
  if (model.focusCount > FEW_LINES) return [];
  return [...model.places.filter((place) => model.focus[place])];
}

export function paintLanes(frame: Frame, model: Explorer, lanes: Lanes, layers: Layers): void {
  const { context, width } = frame;
  const colours = palette();
  const brushed = model.brush.length > 0;
  const tones = { grey: colourOf(colours.faint), blue: colourOf(colours.accent), hot: colourOf(colours.focus) };
  const key = `${lanes.key} ${width} ${tones.grey.join()}`;
  if (layers.kept.key !== key) density(layers.kept, lanes, placesOf(model.kept, new Uint32Array(model.kept.length)), width, { colour: tones.grey, least: 0.16, most: 0.8 });
  layers.kept.key = key;
  context.globalAlpha = brushed ? 0.4 : 1;
  layers.kept.draw(context, 0, 0, width, lanes.height);
  context.globalAlpha = 1;
  if (brushed) {
    density(layers.selected, lanes, model.places, width, { colour: tones.blue, least: 0.3, most: 0.85 });
    layers.selected.draw(context, 0, 0, width, lanes.height);
  }
  paintFocus(context, model, lanes, width, tones.hot, layers);
  paintAxes(context, model, lanes, width);
}

function inSight({ lanes, spacing }: Lanes, width: number): Lane[] {
  return lanes.filter(({ x }) => x > -spacing && x < width + spacing);
}

const scratch = new Uint32Array(PAIRS);

function density(layer: Layer, all: Lanes, places: Uint32Array, width: number, tone: Tone): void {
  const seen = inSight(all, width);
  const grid = layer.clear(width, all.height);
  for (let each = 0; each + 1 < seen.length; each++) {
    const [left, right] = [seen[each], seen[each + 1]];
    pairs(left.axis.binned, right.axis.binned, places, scratch);
    addLines(grid, scratch, { from: left.x, to: right.x, left: heights(left, all.height), right: heights(right, all.height) });
  }
  layer.colour(tone, true);
}

function heights(lane: Lane, height: number): Float32Array {
  return lane.axis.at.map((at) => yOf(lane, at, height));
}

function paintFocus(context: CanvasRenderingContext2D, model: Explorer, lanes: Lanes, width: number, colour: Colour, layers: Layers): void {
  if (!model.focusCount) return;
  if (model.focusCount > FEW_LINES) {
    const places = model.places.filter((place) => model.focus[place]);
    density(layers.focus, lanes, places, width, { colour, least: 0.35, most: 0.95 });
    layers.focus.draw(context, 0, 0, width, lanes.height);
    return;
  }
  const lines = focusLines(model);
  context.strokeStyle = palette().focus;
  context.lineWidth = lines.length > 20 ? 1 : 2;
  context.globalAlpha = lines.length > 20 ? 0.6 : 0.9;
  for (const place of lines) strokeTrial(context, lanes, place);
  context.globalAlpha = 1;
}

export function strokeTrial(context: CanvasRenderingContext2D, { lanes, height }: Lanes, place: number): void {
  context.beginPath();
  let joined = false;
  for (const lane of lanes) {
    const at = placeOn(lane.axis, place);
    if (Number.isNaN(at)) {
      joined = false;
      continue;
    }
    if (joined) context.lineTo(lane.x, yOf(lane, at, height));
    else context.moveTo(lane.x, yOf(lane, at, height));
    joined = true;
  }
  context.stroke();
}

function paintAxes(context: CanvasRenderingContext2D, model: Explorer, all: Lanes, width: number): void {
  const { ink, faint, paper, accent, failure } = palette();
  const { spacing, height } = all;
  context.font = "11px system-ui, -apple-system, 'Segoe UI', sans-serif";
  context.textBaseline = "middle";
  for (const lane of inSight(all, width)) {
    const { axis, x } = lane;
    context.lineWidth = 1;
    context.strokeStyle = ink;
    context.beginPath();
    context.moveTo(Math.round(x) + 0.5, TOP - 4);
    context.lineTo(Math.round(x) + 0.5, height - BOTTOM + 4);
    context.stroke();
    const term = model.brushed(axis.place);
    for (const [low, high] of term ? stretches(axis, term) : []) {
      const [top, bottom] = [yOf(lane, low, height), yOf(lane, high, height)].sort((a, b) => a - b);
      context.fillStyle = accent;
      context.globalAlpha = 0.25;
      context.fillRect(x - 7, top, 14, bottom - top);
      context.globalAlpha = 1;
      context.strokeStyle = accent;
      context.lineWidth = 1.5;
      context.strokeRect(x - 7, top, 14, bottom - top);
    }
    paintLimit(context, lane, all, failure, paper);
    const limit = axis.scale && axis.limit !== null ? yOf(lane, axis.scale.at(axis.limit), height) : -HEADROOM;
    for (const tick of ticksOf(axis, height - TOP - BOTTOM)) {
      const y = yOf(lane, tick.at, height);
      if (Math.abs(y - limit) < HEADROOM) continue; // the limit is written there
      context.fillStyle = ink;
      context.fillRect(x - 2, y - 0.5, 5, 1);
      haloed(context, shortened(context, tick.text, spacing - 12), x + 6, y, ink, paper);
    }
  }
  paintStacks(context, all, faint);
}

/** Returns a number without its unit where both have no room: the name of the axis has it. */
function shortened(context: CanvasRenderingContext2D, text: string, width: number): string {
  const bare = context.measureText(text).width <= width ? text : text.replace(/ USD$/, "");
  return fitting(context, bare, width);
}

/** Draws what no trial on an axis exceeds. */
function paintLimit(context: CanvasRenderingContext2D, lane: Lane, { spacing, height }: Lanes, colour: string, paper: string): void {
  const { scale, limit, column } = lane.axis;
  if (!scale || limit === null) return;
  const y = Math.round(yOf(lane, scale.at(limit), height)) + 0.5;
  context.strokeStyle = colour;
  context.lineWidth = 2;
  context.beginPath();
  context.moveTo(lane.x - 9, y);
  context.lineTo(lane.x + 9, y);
  context.stroke();
  haloed(context, fitting(context, `≤ ${writer(column.spec.unit, limit).text(limit)}`, spacing - 14), lane.x + 12, y, colour, paper);
}

/** Names the layer that neighbouring axes belong to, over them. */
function paintStacks(context: CanvasRenderingContext2D, { lanes, spacing }: Lanes, colour: string): void {
  context.fillStyle = colour;
  context.strokeStyle = colour;
  context.textBaseline = "alphabetic";
  context.lineWidth = 1;
  for (let from = 0; from < lanes.length; ) {
    const name = stackOf(lanes[from]);
    let to = from;
    while (to + 1 < lanes.length && stackOf(lanes[to + 1]) === name) to++;
    const [left, right] = [Math.max(2, lanes[from].x - 5), lanes[to].x + spacing - 16];
    from = to + 1;
    if (right < left) continue;
    context.fillText(fitting(context, name, right - left), left, 10);
    context.beginPath();
    context.moveTo(left, 15.5);
    context.lineTo(right, 15.5);
    context.stroke();
  }
}

export function stackOf({ axis }: Lane): string {
  const { role, stack } = axis.column.spec;
  return role === "metric" ? "metrics" : stack || "parameters";
}
