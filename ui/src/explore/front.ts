// The Pareto front of two metrics, and the best by the first objective.

import type { TrialColumn, Trials } from "../trials";
import type { Mask } from "./mask";

const BINS = 4096;

/** Returns 1 where less is better, -1 where more is: multiplied by it, less is always better. */
export function sense(column: TrialColumn): number {
  return column.spec.better === "more" ? -1 : 1;
}

/**
 * Returns the places of the trials on the Pareto front of two metrics, sorted by the first.
 *
 * One pass finds the best of each of many narrow strips, a second drops what an earlier strip dominates: of 100,000
 * trials a few hundred remain to be sorted.
 */
export function frontOf(trials: Trials, x: TrialColumn, y: TrialColumn, among: Mask): number[] {
  const [sx, sy] = [sense(x), sense(y)];
  let [low, high] = [Infinity, -Infinity];
  const { outcomes, count } = trials;
  const counts = (place: number): boolean =>
    among[place] === 1 && outcomes[place] === 0 && Number.isFinite(x.values[place]) && Number.isFinite(y.values[place]);
  for (let place = 0; place < count; place++) {
    if (!counts(place)) continue;
    const value = sx * x.values[place];
    if (value < low) low = value;
    if (value > high) high = value;
  }
  if (low > high) return [];
  const per = high > low ? (BINS - 1) / (high - low) : 0;
  const least = new Float64Array(BINS).fill(Infinity);
  for (let place = 0; place < count; place++) {
    if (!counts(place)) continue;
    const bin = ((sx * x.values[place] - low) * per) | 0;
    const value = sy * y.values[place];
    if (value < least[bin]) least[bin] = value;
  }
  for (let bin = 1; bin < BINS; bin++) least[bin] = Math.min(least[bin], least[bin - 1]);
  const left: number[] = [];
  for (let place = 0; place < count; place++) {
    if (!counts(place)) continue;
    const bin = ((sx * x.values[place] - low) * per) | 0;
    if (bin === 0 || sy * y.values[place] < least[bin - 1]) left.push(place);
  }
  left.sort((a, b) => sx * (x.values[a] - x.values[b]) || sy * (y.values[a] - y.values[b]) || a - b);
  const front: number[] = [];
  let best = Infinity;
  for (const place of left) {
    const value = sy * y.values[place];
    if (value >= best) continue;
    best = value;
    front.push(place);
  }
  return front;
}

/** Returns the place of the best trial of some by a metric; -1 where none runs. */
export function bestOf(trials: Trials, column: TrialColumn | undefined, among: Mask): number {
  if (!column) return -1;
  const by = sense(column);
  let [found, best] = [-1, Infinity];
  for (let place = 0; place < trials.count; place++) {
    if (!among[place] || trials.outcomes[place] !== 0) continue;
    const value = by * column.values[place];
    if (value < best) [found, best] = [place, value];
  }
  return found;
}

/** Returns the trials whose metric is within a share of the best of some that run: they are as good as the best. */
export function plateauOf(trials: Trials, column: TrialColumn | undefined, best: number, share: number, among: Mask): Mask {
  const mask = new Uint8Array(trials.count);
  if (!column || best < 0) return mask;
  const most = column.values[best] * (column.spec.better === "more" ? 1 / (1 + share) : 1 + share);
  const by = sense(column);
  for (let place = 0; place < trials.count; place++)
    mask[place] = among[place] && trials.outcomes[place] === 0 && by * column.values[place] <= by * most ? 1 : 0;
  return mask;
}

/** Returns the trials that are the best share, by a metric, of some that run; and those that equal the last of them. */
export function bestShare(trials: Trials, column: TrialColumn | undefined, share: number, among: Mask): Mask {
  const mask = new Uint8Array(trials.count);
  if (!column) return mask;
  const by = sense(column);
  const sorted: Float64Array = new Float64Array(trials.count);
  let found = 0;
  for (let place = 0; place < trials.count; place++) {
    const value = by * column.values[place];
    if (among[place] && trials.outcomes[place] === 0 && Number.isFinite(value)) sorted[found++] = value;
  }
  if (!found) return mask;
  const limit = sorted.subarray(0, found).sort()[Math.min(found - 1, Math.ceil(found * share) - 1)];
  for (let place = 0; place < trials.count; place++)
    mask[place] = among[place] && trials.outcomes[place] === 0 && by * column.values[place] <= limit ? 1 : 0;
  return mask;
}
