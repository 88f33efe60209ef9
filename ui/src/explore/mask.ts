// Which trials pass a filter: a byte for each trial; each term is one pass over one column.

import type { TrialColumn, Trials } from "../trials";
import { type Chip, NUMBER, OUTCOME, RUNS, type Term } from "./filter";

export type Mask = Uint8Array;

/** Returns 1 for each trial for which a term holds. */
export function maskOf(trials: Trials, term: Term, mask: Mask = new Uint8Array(trials.count)): Mask {
  if (term.column === OUTCOME) {
    const labels = trials.reasons.map((reason, code) => (code === 0 ? RUNS : reason));
    byCode(trials.outcomes, labels.map((label) => holdsFor(term, label, NaN)), mask);
  } else if (term.column === NUMBER) byNumber(trials, term, mask);
  else {
    const column = trials.columns[term.column];
    if (column.codes) byCode(column.codes, holding(column, term), mask);
    else if (term.kind === "range") byValue(column.values, term, mask);
    else mask.fill(0);
  }
  return mask;
}

function holdsFor(term: Term, label: string, value: number): boolean {
  if (term.kind === "among") return term.labels.includes(label) !== term.not;
  return (term.openLow ? value > term.low : value >= term.low) && (term.openHigh ? value < term.high : value <= term.high);
}

/** Returns for each code of a column whether a term holds for its value; nothing holds for a code without value. */
export function holding(column: TrialColumn, term: Term): boolean[] {
  return column.choices.map((value, code) => holdsFor(term, column.labels[code], typeof value === "number" ? value : NaN));
}

function byCode(codes: ArrayLike<number>, holds: boolean[], mask: Mask): void {
  const known = Uint8Array.from(holds, Number);
  const past = known.length;
  for (let place = 0; place < mask.length; place++) {
    const code = codes[place];
    mask[place] = code < past ? known[code] : 0;
  }
}

function byValue(values: Float64Array, term: Term & { kind: "range" }, mask: Mask): void {
  const { low, high, openLow, openHigh } = term;
  if (low === high) {
    const near = Math.abs(low) * 1e-4; // equal to the digits that are printed
    for (let place = 0; place < mask.length; place++) mask[place] = Math.abs(values[place] - low) <= near ? 1 : 0;
  } else if (!openLow && !openHigh) {
    for (let place = 0; place < mask.length; place++) mask[place] = values[place] >= low && values[place] <= high ? 1 : 0;
  } else {
    for (let place = 0; place < mask.length; place++) mask[place] = holdsFor(term, "", values[place]) ? 1 : 0;
  }
}

function byNumber(trials: Trials, term: Term, mask: Mask): void {
  const named = term.kind === "among" ? new Set(term.labels.map(Number)) : null;
  for (let place = 0; place < mask.length; place++) {
    const trial = trials.first + place;
    const holds = named ? named.has(trial) !== (term as { not: boolean }).not : holdsFor(term, "", trial);
    mask[place] = holds ? 1 : 0;
  }
}

/** Removes from `into` all trials that are not in `other`. */
export function meet(into: Mask, other: Mask): void {
  for (let place = 0; place < into.length; place++) into[place] &= other[place];
}

/** Returns the trials that pass every chip. */
export function keptBy(trials: Trials, chips: Chip[]): Mask {
  const kept = new Uint8Array(trials.count).fill(1);
  const scratch = new Uint8Array(trials.count);
  for (const chip of chips) {
    const all = new Uint8Array(trials.count).fill(1);
    for (const term of chip.terms) meet(all, maskOf(trials, term, scratch));
    if (chip.not) for (let place = 0; place < all.length; place++) all[place] ^= 1;
    meet(kept, all);
  }
  return kept;
}

export function counted(mask: Mask): number {
  let found = 0;
  for (let place = 0; place < mask.length; place++) found += mask[place];
  return found;
}

/** Returns how many trials of a mask have each outcome. */
export function outcomesOf(trials: Trials, mask: Mask): number[] {
  const found = new Array<number>(trials.reasons.length).fill(0);
  for (let place = 0; place < mask.length; place++) found[trials.outcomes[place]] += mask[place];
  return found;
}

/** Writes the places in a mask into a buffer of its length; branch-free, as branches would be mispredicted. */
export function placesOf(mask: Mask, into: Uint32Array): Uint32Array {
  let found = 0;
  for (let place = 0; place < mask.length; place++) {
    into[found] = place;
    found += mask[place];
  }
  return into.subarray(0, found);
}
