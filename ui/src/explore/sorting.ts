// Trials in the order of a column, as their places: numbers by radix, choices by their natural order.

import type { TrialColumn, Trials } from "../trials";
import { naturalOrder } from "./axes";
import { isChoice } from "./filter";

export function orderBy(trials: Trials, column: TrialColumn, down: boolean): Uint32Array {
  if (!isChoice(column)) return orderOf(column.values, down);
  const rank = new Float64Array(column.choices.length);
  naturalOrder(column).forEach((code, place) => (rank[code] = place));
  const ranks = new Float64Array(trials.count);
  for (let place = 0; place < trials.count; place++) ranks[place] = rank[column.codes![place]];
  return orderOf(ranks, down);
}

/** Returns the order of some numbers, from the least or from the largest: exact, equal ones as they come, NaN last. */
export function orderOf(values: ArrayLike<number>, down: boolean): Uint32Array {
  const sign = down ? -1 : 1;
  const count = values.length;
  const keys = new Uint32Array(count);
  const bits = new Uint32Array(1);
  const float = new Float32Array(bits.buffer);
  let places = new Uint32Array(count);
  let known = 0;
  for (let place = 0; place < count; place++) {
    if (Number.isNaN(values[place])) continue;
    float[0] = sign * values[place];
    // Bits of floats sort as whole numbers do once the sign is turned round, and all bits of negative ones.
    keys[place] = bits[0] & 0x80000000 ? ~bits[0] : bits[0] | 0x80000000;
    places[known++] = place;
  }
  let spare = new Uint32Array(count);
  for (const shift of [0, 16]) {
    const starts = new Uint32Array(65_537);
    for (let place = 0; place < known; place++) starts[((keys[places[place]] >>> shift) & 0xffff) + 1]++;
    for (let each = 0; each < 65_536; each++) starts[each + 1] += starts[each];
    for (let place = 0; place < known; place++) spare[starts[(keys[places[place]] >>> shift) & 0xffff]++] = places[place];
    [places, spare] = [spare, places];
  }
  settle(places, known, values, sign);
  let end = known;
  for (let place = 0; place < count; place++) if (Number.isNaN(values[place])) places[end++] = place;
  return places;
}

/** Sorts values that are equal in 32 bits: neighbours, so that it takes one pass. */
function settle(places: Uint32Array, known: number, values: ArrayLike<number>, sign: number): void {
  for (let at = 1; at < known; at++) {
    const place = places[at];
    let to = at;
    for (; to > 0 && sign * values[places[to - 1]] > sign * values[place]; to--) places[to] = places[to - 1];
    places[to] = place;
  }
}

/** Returns the places of a mask in an order, into a buffer. */
export function ordered(order: Uint32Array, mask: Uint8Array, into: Uint32Array): Uint32Array {
  let found = 0;
  for (let at = 0; at < order.length; at++) {
    into[found] = order[at];
    found += mask[order[at]];
  }
  return into.subarray(0, found);
}
