// A column as an axis: positions of values, bins of trials, and the first choice of axes.

import { show } from "../base/format";
import { type Scale, scale, ticksIn, wantsLog } from "../base/scale";
import type { TrialColumn, Trials } from "../trials";
import { isChoice, isNumeric, type Term } from "./filter";

import { holding } from "./mask";
import { rounded } from "./units";

export const BINS = 96;
export const NONE = 255;

export interface Axis {
  place: number;
  column: TrialColumn;
  /** How many bins there are, and in which each trial is; NONE where it has no value. */
  bins: number;
  binned: Uint8Array;
  /** Where the middle of each bin lies, from 0 to 1. */
  at: Float32Array;
  /** Codes of choices in their order along the axis; null for numbers. */
  order: number[] | null;
  /** Numbers on 0 to 1; null for choices. */
  scale: Scale | null;
  /** What no trial that runs exceeds: drawn on the axis. */
  limit: number | null;
}

/** Returns whether a column is drawn by its logarithm, unless the reader says otherwise. */
export function logByDefault(column: TrialColumn): boolean {
  return !isChoice(column) && wantsLog(column.low, column.high);
}

export function axisOf(trials: Trials, place: number, log: boolean, limit: number | null = null): Axis {
  const column = trials.columns[place];
  return isChoice(column) ? ordinalAxis(trials, place, column) : numericAxis(trials, place, column, log, limit);
}

/** Returns codes in order: by number where the choices are numbers, else as given. */
export function naturalOrder(column: TrialColumn): number[] {
  const codes = column.choices.map((_, code) => code);
  const numbers = column.choices.map((value, code) => (typeof value === "number" ? value : leading(column.labels[code])));
  if (numbers.some((number) => Number.isNaN(number))) return codes;
  return codes.sort((a, b) => numbers[a] - numbers[b] || a - b);
}

function leading(label: string): number {
  return /^-?\d/.test(label) ? parseFloat(label) : NaN;
}

/** Choices without trials take no room; the others are evenly spaced. */
function ordinalAxis(trials: Trials, place: number, column: TrialColumn): Axis {
  const codes = column.codes!;
  const used = new Uint8Array(column.choices.length);
  for (let trial = 0; trial < trials.count; trial++) used[codes[trial]] = 1;
  const order = naturalOrder(column).filter((code) => used[code]);
  const bins = Math.max(1, Math.min(order.length, BINS));
  const bin = new Uint8Array(column.choices.length).fill(NONE);
  order.forEach((code, rank) => (bin[code] = Math.floor((rank * bins) / order.length)));
  const binned = new Uint8Array(trials.count);
  for (let trial = 0; trial < trials.count; trial++) binned[trial] = bin[codes[trial]];
  const at = Float32Array.from({ length: bins }, (_, each) => (bins === 1 ? 0.5 : 0.02 + (0.96 * each) / (bins - 1)));
  return { place, column, bins, binned, at, order, scale: null, limit: null };
}

function numericAxis(trials: Trials, place: number, column: TrialColumn, log: boolean, limit: number | null): Axis {
  const some = column.low <= column.high;
  const high = some ? Math.max(column.high, limit ?? -Infinity) : 1;
  const lying = scale(some ? column.low : 0, high, 0.02, 0.98, log);
  const binned = new Uint8Array(trials.count);
  const { values } = column;
  for (let trial = 0; trial < trials.count; trial++) {
    const at = lying.at(values[trial]);
    binned[trial] = at >= 0 && at <= 1 ? Math.min(BINS - 1, (at * BINS) | 0) : NONE;
  }
  const at = Float32Array.from({ length: BINS }, (_, each) => (each + 0.5) / BINS);
  return { place, column, bins: BINS, binned, at, order: null, scale: lying, limit };
}

/** Returns where a trial lies on an axis, from 0 to 1; NaN where it has no value. */
export function placeOn(axis: Axis, trial: number): number {
  if (axis.scale) return axis.scale.at(axis.column.values[trial]);
  const bin = axis.binned[trial];
  return bin === NONE ? NaN : axis.at[bin];
}

export interface Tick {
  at: number;
  text: string;
}

const PER_TICK = 15;

export function ticksOf(axis: Axis, height: number): Tick[] {
  const most = Math.max(2, Math.floor(height / PER_TICK));
  if (axis.scale) {
    const ticks = ticksIn(axis.scale, Math.min(6, most), axis.column.spec.unit).map(({ value, text }) => ({ at: axis.scale!.at(value), text }));
    return ticks.length > 1 ? ticks : [axis.column.low, axis.column.high].map((value) => ({ at: axis.scale!.at(value), text: show(value, axis.column.spec.unit) }));
  }
  const order = axis.order!;
  const every = Math.ceil(order.length / most);
  const shown = order.map((code, rank) => ({ at: axis.at[Math.floor((rank * axis.bins) / order.length)], text: axis.column.labels[code], rank }));
  return shown.filter(({ rank }) => rank % every === 0);
}

/** Returns what a brush from one place of an axis to another selects; null where it selects nothing. */
export function termBetween(axis: Axis, from: number, to: number): Term | null {
  const [low, high] = from < to ? [from, to] : [to, from];
  const { column, place } = axis;
  if (axis.scale) {
    const { unit } = column.spec;
    return { kind: "range", column: place, low: rounded(axis.scale.of(low), unit), high: rounded(axis.scale.of(high), unit), openLow: false, openHigh: false };
  }
  const order = axis.order!;
  const at = (rank: number): number => axis.at[Math.floor((rank * axis.bins) / order.length)];
  const reach = axis.bins > 1 ? 0 : 1;
  const codes = order.filter((_, rank) => at(rank) >= low - reach && at(rank) <= high + reach);
  return codes.length ? termOfCodes(axis, codes) : null;
}

/** Returns the term for neighbouring choices of an axis: a range of numbers, or names. */
export function termOfCodes(axis: Axis, codes: number[]): Term {
  const { column, place } = axis;
  if (isNumeric(column) && codes.length > 2) {
    const numbers = codes.map((code) => column.choices[code] as number);
    return { kind: "range", column: place, low: Math.min(...numbers), high: Math.max(...numbers), openLow: false, openHigh: false };
  }
  return { kind: "among", column: place, labels: codes.map((code) => column.labels[code]), not: false };
}

/** Returns the choice of an axis that lies nearest to a place; -1 on an axis of numbers. */
export function choiceAt(axis: Axis, at: number, reach: number): number {
  if (!axis.order || !axis.order.length) return -1;
  const far = (rank: number): number => Math.abs(axis.at[Math.floor((rank * axis.bins) / axis.order!.length)] - at);
  let best = 0;
  for (let rank = 1; rank < axis.order.length; rank++) if (far(rank) < far(best)) best = rank;
  return far(best) <= reach ? axis.order[best] : -1;
}

/** Returns the intervals of an axis, from 0 to 1, that a term covers, to draw a brush. */
export function stretches(axis: Axis, term: Term): [number, number][] {
  if (axis.scale) {
    if (term.kind !== "range") return [];
    const clamp = (at: number): number => Math.min(1, Math.max(0, at));
    const low = term.low === -Infinity || (axis.scale.log && term.low <= 0) ? 0 : clamp(axis.scale.at(term.low));
    const high = term.high === Infinity ? 1 : clamp(axis.scale.at(term.high));
    return [[low, high]];
  }
  const order = axis.order!;
  const holds = holding(axis.column, term);
  const half = axis.bins > 1 ? Math.min(0.03, 0.48 / axis.bins) : 0.03;
  const found: [number, number][] = [];
  order.forEach((code, rank) => {
    if (!holds[code]) return;
    const at = axis.at[Math.floor((rank * axis.bins) / order.length)];
    found.push([at - half, at + half]);
  });
  return found;
}

// ------------------------------------------------------------------------------------------------- first choice

const FIRST_AXES = 9;

/** Returns which parameters vary among the trials. */
export function varying(trials: Trials): number[] {
  return trials.columns.map((_, place) => place).filter((place) => {
    const column = trials.columns[place];
    return column.spec.role === "parameter" && column.high > column.low;
  });
}

/** Returns the first axes: the parameters that the objective depends on most, in order, then the objectives. */
export function firstAxes(trials: Trials): number[] {
  const objectives = trials.columns.map((_, place) => place).filter((place) => trials.columns[place].spec.objective);
  const aim = trials.columns[objectives[0]];
  const parameters = varying(trials);
  if (parameters.length > FIRST_AXES && aim) {
    const aims = aimsOf(trials, aim);
    const worth = new Map(parameters.map((place) => [place, effect(trials.columns[place], aims)]));
    parameters.sort((a, b) => worth.get(b)! - worth.get(a)!).length = FIRST_AXES;
  }
  const stacks = trials.columns.map(({ spec }) => spec.stack);
  const stack = (place: number): number => stacks.indexOf(stacks[place]);
  parameters.sort((a, b) => stack(a) - stack(b) || a - b);
  const more = objectives.length === 1 ? companions(trials).slice(0, 1) : [];
  return [...parameters, ...more, ...objectives.reverse()];
}

/** Returns the metrics to plot against a single objective, most useful first. */
export function companions(trials: Trials): number[] {
  const wanted = ["network_usd", "cost_usd", "memory_bytes", "step_s", "mfu", "energy_j"];
  const places = wanted.map((name) => trials.columns.findIndex(({ spec }) => spec.name === name && !spec.objective));
  return places.filter((place) => place >= 0 && trials.columns[place].high > trials.columns[place].low);
}

/** Returns the objective of every trial, as its logarithm where the range is wide; NaN for trials that cannot run. */
export function aimsOf(trials: Trials, aim: TrialColumn): Float64Array {
  const log = wantsLog(aim.low, aim.high);
  return aim.values.map((raw, place) => (trials.outcomes[place] !== 0 ? NaN : log ? Math.log(raw) : raw));
}

/** Returns the share of an objective's variance that a parameter explains: 0 to 1. */
export function effect({ codes, choices }: TrialColumn, aims: Float64Array): number {
  if (!codes) return 0;
  const [sums, counts] = [new Float64Array(choices.length), new Float64Array(choices.length)];
  let [sum, squares, count] = [0, 0, 0];
  for (let trial = 0; trial < aims.length; trial++) {
    const value = aims[trial];
    if (!Number.isFinite(value)) continue;
    const code = codes[trial];
    sums[code] += value;
    counts[code] += 1;
    sum += value;
    squares += value * value;
    count += 1;
  }
  const mean = sum / count;
  const whole = squares - sum * mean;
  let between = 0;
  sums.forEach((each, code) => (between += counts[code] ? each * (each / counts[code] - mean) : 0));
  return count && whole > 0 ? between / whole : 0;
}

/** Returns the first metrics of the scatter plot: two objectives, or a cost and the objective. */
export function firstMetrics(trials: Trials): [string, string] {
  const metrics = trials.columns.map((_, place) => place).filter((place) => trials.columns[place].spec.role === "metric");
  const objectives = metrics.filter((place) => trials.columns[place].spec.objective);
  const others = [...companions(trials), ...metrics.filter((place) => !objectives.includes(place))];
  const [y, x] = objectives.length > 1 ? [objectives[1], objectives[0]] : [objectives[0] ?? others[1], others[0] ?? objectives[0]];
  const name = (place: number | undefined): string => (place === undefined ? "" : trials.columns[place].spec.name);
  return [name(x), name(y)];
}
