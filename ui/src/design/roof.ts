// The bounds of a roofline: those of the operators that take its time, so that none of the others squeezes them.

import type { Roofline } from "../document";

type Point = Roofline["points"][number];

/** The share of the time whose operators lie within the bounds; the others may lie at their edge. */
const SHARE = 0.99;
/** How far the bounds reach at most: times below the ridge, and above it. */
const BELOW = 1000;
const ABOVE = 60;
const ROOM = 1.6;

export interface Bounds {
  x: [number, number];
  y: [number, number];
}

/** Returns the bounds of intensity and of FLOP/s; `points` are sorted, longest first. */
export function boundsOf(points: Point[], peak: number, bandwidth: number): Bounds {
  const ridge = peak / bandwidth;
  const whole = points.reduce((sum, each) => sum + each.seconds, 0);
  let seen = 0;
  const main = points.filter((each) => {
    const counts = seen < SHARE * whole;
    seen += each.seconds;
    return counts;
  });
  const far = main.map((each) => each.intensity);
  const low = Math.max(ridge / BELOW, Math.min(ridge / 8, ...far));
  const high = Math.min(ridge * ABOVE, Math.max(ridge * 8, ...far));
  const rates = main.filter((each) => each.intensity >= low).map((each) => each.flop_per_s);
  // An operator may be slower than its roof by any factor: one by a thousand lies at the edge.
  const least = Math.max((bandwidth * low) / 100, Math.min(peak / 100, ...rates));
  const most = Math.max(peak * 4, Math.min(peak * 100, Math.max(0, ...rates) * ROOM));
  return { x: [low / ROOM, high * ROOM], y: [least / ROOM, most] };
}

/** Returns where a value is drawn: at the edge where it lies beyond the bounds. */
export function clamped(value: number, [low, high]: [number, number]): number {
  return Math.min(high, Math.max(low, value));
}

export interface Box {
  x0: number;
  y0: number;
  x1: number;
  y1: number;
}

/** Returns whether two boxes share a point. */
export function overlap(one: Box, other: Box): boolean {
  return one.x0 < other.x1 && other.x0 < one.x1 && one.y0 < other.y1 && other.y0 < one.y1;
}

/** Returns boxes along a roof, from the foot of its slope over the ridge to its end: no name is written there. */
export function roofBoxes([x0, y0]: [number, number], [x1, y1]: [number, number], end: number): Box[] {
  const steps = 24;
  const slope = Array.from({ length: steps }, (_, step): Box => {
    const [from, to] = [step / steps, (step + 1) / steps];
    return { x0: x0 + from * (x1 - x0), x1: x0 + to * (x1 - x0), y0: y0 + to * (y1 - y0) - 2, y1: y0 + from * (y1 - y0) + 2 };
  });
  return [...slope, { x0: x1, x1: end, y0: y1 - 2, y1: y1 + 2 }];
}

const HIGH = 13;
const LETTER = 5.9;

/** Returns where names of marks are written so that none is on a mark, on another name or outside; null where there is no room. */
export function placeNames(names: { text: string; x: number; y: number; r: number }[], taken: Box[], frame: Box): ({ x: number; y: number } | null)[] {
  const used = [...taken];
  return names.map(({ text, x, y, r }) => {
    const wide = text.length * LETTER;
    const corners: [number, number][] = [];
    for (const down of [4, r + 12, r + 26, r + 40, r + 54, -r - 4, -r - 18])
      for (const left of [x + r + 5, x - wide / 2, x + r - wide, x - r - 5 - wide]) corners.push([left, y + down]);
    for (const [left, base] of corners) {
      const box = { x0: left - 1, x1: left + wide + 1, y0: base - HIGH + 3, y1: base + 3 };
      const inside = box.x0 >= frame.x0 && box.x1 <= frame.x1 && box.y0 >= frame.y0 && box.y1 <= frame.y1;
      if (!inside || used.some((each) => overlap(each, box))) continue;
      used.push(box);
      return { x: left, y: base };
    }
    return null;
  });
}
