// One deployment as its load grows: what each accelerator makes against what each user gets.

import type { Frame } from "../base/canvas";
import { digits } from "../base/format";
import { type Scale, scale } from "../base/scale";
import { palette } from "../base/theme";
import type { Curves } from "../document";
import { diamond, haloed } from "../explore/marks";

const HEIGHT = 260;
const MARGIN = { left: 62, right: 14, top: 28, bottom: 42 };
const ROOM = 0.06;

interface Axes {
  x: Scale;
  y: Scale;
}

/** Returns the places of loads that have both rates. */
function placesOf({ loads, tokens_per_s_per_npu: npu, tokens_per_s_per_user: user }: Curves): number[] {
  return loads.map((_, place) => place).filter((place) => npu[place] !== null && user[place] !== null);
}

function axesOf(curves: Curves, width: number): Axes {
  const of = (values: (number | null)[]): [number, number] => {
    const known = values.filter((each): each is number => each !== null);
    const [low, high] = [Math.min(...known), Math.max(...known)];
    const room = ROOM * (high - low || high);
    return [Math.max(0, low - room), high + room];
  };
  return {
    x: scale(...of(curves.tokens_per_s_per_user), MARGIN.left, Math.max(MARGIN.left + 10, width - MARGIN.right)),
    y: scale(...of(curves.tokens_per_s_per_npu), HEIGHT - MARGIN.bottom, MARGIN.top),
  };
}

/** Returns which load lies nearest to a place on the picture. */
export function tradeOffLoad(curves: Curves, width: number, at: { x: number; y: number }): number {
  const { x, y } = axesOf(curves, width);
  const far = (place: number): number => Math.hypot(x.at(curves.tokens_per_s_per_user[place]!) - at.x, y.at(curves.tokens_per_s_per_npu[place]!) - at.y);
  return placesOf(curves).reduce((best, place) => (far(place) < far(best) ? place : best));
}

/** Paints the curve, or only a cursor at one of its loads. */
export function paintTradeOff({ context, width }: Frame, curves: Curves, cursor: number | null, loadText: (curves: Curves, load: number) => string): void {
  const axes = axesOf(curves, width);
  const { x, y } = axes;
  const { classes, focus, ink, paper, accent } = palette();
  const point = (place: number): [number, number] => [x.at(curves.tokens_per_s_per_user[place]!), y.at(curves.tokens_per_s_per_npu[place]!)];
  const places = placesOf(curves);
  if (cursor !== null) {
    if (!places.includes(cursor)) return;
    context.beginPath();
    context.arc(...point(cursor), 5, 0, 2 * Math.PI);
    context.fillStyle = accent;
    context.fill();
    context.strokeStyle = paper;
    context.stroke();
    return;
  }
  paintAxes(context, width, axes);
  context.strokeStyle = classes.compute;
  context.lineWidth = 2;
  context.lineJoin = "round";
  context.beginPath();
  for (const place of places) context.lineTo(...point(place));
  context.stroke();
  context.fillStyle = classes.compute;
  for (const place of places) {
    context.beginPath();
    context.arc(...point(place), 2, 0, 2 * Math.PI);
    context.fill();
  }
  const own = places.find((place) => Math.abs(curves.loads[place] / curves.at - 1) < 1e-3);
  if (own === undefined) return;
  const [px, py] = point(own);
  diamond(context, px, py, 6, focus, paper);
  const text = loadText(curves, curves.at);
  // The curve falls to the right: there is room above it on the right, and below it on the left.
  const left = px + 10 + context.measureText(text).width > width;
  context.textAlign = left ? "right" : "left";
  context.textBaseline = "alphabetic";
  haloed(context, text, left ? px - 10 : px + 10, left ? py + 16 : py - 6, ink, paper);
  context.textAlign = "left";
}

function paintAxes(context: CanvasRenderingContext2D, width: number, { x, y }: Axes): void {
  const { faint, ink, line } = palette();
  context.lineWidth = 1;
  context.strokeStyle = line;
  context.fillStyle = faint;
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (const tick of y.ticks(5)) {
    const at = Math.round(y.at(tick)) + 0.5;
    context.beginPath();
    context.moveTo(MARGIN.left, at);
    context.lineTo(width - MARGIN.right, at);
    context.stroke();
    context.fillText(digits(tick), MARGIN.left - 8, at);
  }
  context.textAlign = "center";
  context.textBaseline = "top";
  for (const tick of x.ticks(Math.max(2, Math.floor(width / 90)))) context.fillText(digits(tick), x.at(tick), HEIGHT - MARGIN.bottom + 6);
  context.textAlign = "right";
  context.fillText("tokens/s for a user", width - MARGIN.right, HEIGHT - 15);
  context.textAlign = "left";
  context.fillStyle = ink;
  context.fillText("tokens/s of an accelerator", 4, 4);
}
