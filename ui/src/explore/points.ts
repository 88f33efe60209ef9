// Trials in the plane of two metrics: pixels, density, the nearest trial.

import { type Scale, scale } from "../base/scale";
import type { TrialColumn, Trials } from "../trials";
import type { Layer } from "./density";
import type { Mask } from "./mask";

export interface Plane {
  x: Scale;
  y: Scale;
  /** Of the part where trials lie, in pixels of the page. */
  left: number;
  top: number;
  width: number;
  height: number;
  /** In which cell each trial is; -1 where it has no place. */
  cells: Int32Array;
  columns: number;
  rows: number;
  /** A trial of each cell; -1 where there is none. */
  held: Int32Array;
  /** Trials that are kept but have no place. */
  without: number;
}

/** Pixels of a cell of the density, each way. */
export const CELL = 2;
const ROOM = 0.04;

export interface Area {
  /** Where it begins, so that the numbers of its vertical scale have room. */
  left: (vertical: Scale) => number;
  right: number;
  top: number;
  height: number;
}

export function planeOf(trials: Trials, columns: [TrialColumn, TrialColumn], logs: [boolean, boolean], kept: Mask, area: Area, limits: [number | null, number | null] = [null, null]): Plane {
  const { top, height } = area;
  const [horizontal, vertical] = columns;
  const y = roomy(reaching(extent(vertical, horizontal, kept), limits[1]), top + height, top, logs[1]);
  const left = area.left(y);
  const width = Math.max(40, area.right - left);
  const x = roomy(reaching(extent(horizontal, vertical, kept), limits[0]), left, left + width, logs[0]);
  const [wide, high] = [Math.max(1, Math.ceil(width / CELL)), Math.max(1, Math.ceil(height / CELL))];
  const cells = new Int32Array(trials.count);
  const held = new Int32Array(wide * high).fill(-1);
  let without = 0;
  for (let place = 0; place < trials.count; place++) {
    const column = Math.floor((x.at(horizontal.values[place]) - left) / CELL);
    const row = Math.floor((y.at(vertical.values[place]) - top) / CELL);
    const inside = column >= 0 && column < wide && row >= 0 && row < high;
    cells[place] = inside ? row * wide + column : -1;
    if (!kept[place]) continue;
    if (inside) held[cells[place]] = place;
    else without++;
  }
  return { x, y, left, top, width, height, cells, columns: wide, rows: high, held, without };
}

/** Returns the bounds of a column among kept trials that have a value in both. */
function extent(column: TrialColumn, other: TrialColumn, kept: Mask): [number, number] {
  let [low, high] = [Infinity, -Infinity];
  for (let place = 0; place < kept.length; place++) {
    const value = column.values[place];
    if (!kept[place] || !Number.isFinite(value) || !Number.isFinite(other.values[place])) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return low <= high ? [low, high] : [0, 1];
}

/** Returns bounds that hold a limit too. */
function reaching([low, high]: [number, number], limit: number | null): [number, number] {
  return [low, limit === null ? high : Math.max(high, limit)];
}

function roomy([low, high]: [number, number], from: number, to: number, log: boolean): Scale {
  const room = ROOM * (to - from);
  const inner = scale(low, high, from + room, to - room, log);
  return scale(inner.of(from), inner.of(to), from, to, inner.log);
}

/** Counts some trials in the cells of a layer. */
export function splat({ cells, columns, rows }: Plane, places: Uint32Array, layer: Layer): void {
  const { counts } = layer.clear(columns, rows);
  for (let at = 0; at < places.length; at++) {
    const cell = cells[places[at]];
    if (cell >= 0) counts[cell]++;
  }
}

const REACH = 12;

/** Returns the trial nearest to a pixel, those in `first` before others; -1 where none is near. */
export function nearest(plane: Plane, columns: [TrialColumn, TrialColumn], first: number[], at: { x: number; y: number }): number {
  let [best, least] = [-1, REACH * REACH];
  const look = (place: number): void => {
    const dx = plane.x.at(columns[0].values[place]) - at.x;
    const dy = plane.y.at(columns[1].values[place]) - at.y;
    if (dx * dx + dy * dy < least) [best, least] = [place, dx * dx + dy * dy];
  };
  for (const place of first) look(place);
  if (best >= 0) return best;
  const [column, row] = [Math.floor((at.x - plane.left) / CELL), Math.floor((at.y - plane.top) / CELL)];
  const reach = Math.ceil(REACH / CELL);
  for (let r = Math.max(0, row - reach); r <= Math.min(plane.rows - 1, row + reach); r++)
    for (let c = Math.max(0, column - reach); c <= Math.min(plane.columns - 1, column + reach); c++) {
      const place = plane.held[r * plane.columns + c];
      if (place >= 0) look(place);
    }
  return best;
}
