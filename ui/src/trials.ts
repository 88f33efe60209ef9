// Trials as columns of typed arrays, which every view draws from. No object per trial.

import { type Numbers, unpack } from "./container";
import type { Value } from "./aliases";
import type { Block, Column } from "./document";

export interface TrialColumn {
  spec: Column;
  /** For choices: which of `choices` each trial has. */
  codes: Uint8Array | Uint16Array | null;
  choices: Value[];
  labels: string[];
  /** The value of each trial as a number: NaN where there is none; for choices that are no numbers, their code. */
  values: Float64Array;
  low: number;
  high: number;
}

export interface Trials {
  /** The number of the first trial. */
  first: number;
  count: number;
  columns: TrialColumn[];
  /** 0 where a trial runs, else the index of its reason in `reasons`. */
  outcomes: Uint8Array | Uint16Array;
  reasons: string[];
  /** In a study of serving, 1 where pools of its own prefill; null otherwise. */
  pools: Uint8Array | null;
}

export function decode(block: Block, binary: Uint8Array): Trials {
  const columns: TrialColumn[] = [];
  for (const spec of block.columns) columns.push(decodeColumn(spec, columns, block.count, binary));
  const outcomes = unpack(block.outcomes, binary) as Uint8Array | Uint16Array;
  const pools = SERVING && block.pools ? (unpack(block.pools, binary) as Uint8Array) : null;
  return { first: block.first, count: block.count, columns, outcomes, reasons: block.reasons, pools };
}

/** A column whose numbers are computed on first use: most columns of a study are never drawn. */
class LazyColumn implements TrialColumn {
  readonly choices: Value[];
  readonly labels: string[];
  private known: Float64Array | null = null;
  private bounds: [number, number] | null = null;

  constructor(
    readonly spec: Column,
    readonly codes: Uint8Array | Uint16Array | null,
    private readonly work: () => Float64Array,
  ) {
    const { coding } = spec;
    [this.choices, this.labels] = coding.kind === "choices" ? [coding.values, coding.labels] : [[], []];
  }

  get values(): Float64Array {
    return (this.known ??= this.work());
  }

  get low(): number {
    return (this.bounds ??= boundsOf(this.values))[0];
  }

  get high(): number {
    return (this.bounds ??= boundsOf(this.values))[1];
  }
}

function decodeColumn(spec: Column, before: TrialColumn[], count: number, binary: Uint8Array): TrialColumn {
  const { coding } = spec;
  switch (coding.kind) {
    case "choices": {
      const packed = unpack(coding.codes, binary) as Uint8Array | Uint16Array;
      const codes = coding.of ? partCodes(packed, coding.of, coding.values.length) : packed;
      return new LazyColumn(spec, codes, () => worths(coding.values, codes));
    }
    case "numbers":
      return new LazyColumn(spec, null, () => Float64Array.from(unpack(coding.numbers, binary)));
    case "scaled":
      return new LazyColumn(spec, null, () => unscaled(unpack(coding.codes, binary), coding));
    case "from":
      return new LazyColumn(spec, null, () => following(before[coding.column].values, coding.rule, coding.by, count));
  }
}

/** Returns which value of its own each trial has of one entry of a tuple. */
function partCodes(packed: ArrayLike<number>, of: number[], values: number): Uint8Array | Uint16Array {
  const codes = values < 256 ? new Uint8Array(packed.length) : new Uint16Array(packed.length);
  for (let place = 0; place < packed.length; place++) codes[place] = of[packed[place]];
  return codes;
}

function worths(choices: Value[], codes: ArrayLike<number>): Float64Array {
  const numeric = choices.every((value) => typeof value === "number");
  const worth = choices.map((value, code) => (numeric ? (value as number) : code));
  const values = new Float64Array(codes.length);
  for (let place = 0; place < codes.length; place++) values[place] = worth[codes[place]];
  return values;
}

function following(source: Float64Array, rule: "times" | "over" | "plus", by: number, count: number): Float64Array {
  const values = new Float64Array(count);
  for (let place = 0; place < count; place++) {
    const value = source[place];
    values[place] = rule === "times" ? by * value : rule === "over" ? by / value : by + value;
  }
  return values;
}

const STEPS = 65_534;

function unscaled(codes: Numbers, coding: { low: number; high: number; log: boolean }): Float64Array {
  const { low, high, log } = coding;
  const [a, b] = log ? [Math.log(low), Math.log(high)] : [low, high];
  const values = new Float64Array(codes.length);
  for (let place = 0; place < codes.length; place++) {
    const code = codes[place];
    const value = a + ((code - 1) / STEPS) * (b - a);
    values[place] = code === 0 ? NaN : log ? Math.exp(value) : value;
  }
  return values;
}

function boundsOf(values: Float64Array): [number, number] {
  let [low, high] = [Infinity, -Infinity];
  for (let place = 0; place < values.length; place++) {
    const value = values[place];
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return [low, high];
}

/** Returns trials followed by those of another block, of a study that grew. */
export function joined(one: Trials, other: Trials): Trials {
  const count = one.count + other.count;
  const columns = one.columns.map((column, place) => {
    const next = other.columns[place];
    const values = new Float64Array(count);
    values.set(column.values);
    values.set(next.values, one.count);
    return { ...rejoined(column, next, count), values, low: Math.min(column.low, next.low), high: Math.max(column.high, next.high) };
  });
  const reasons = [...new Set([...one.reasons, ...other.reasons])];
  const outcomes = new Uint16Array(count);
  outcomes.set(one.outcomes);
  const places = other.reasons.map((reason) => reasons.indexOf(reason));
  for (let place = 0; place < other.count; place++) outcomes[one.count + place] = places[other.outcomes[place]];
  return { first: one.first, count, columns, outcomes, reasons, pools: joinedPools(one, other, count) };
}

function joinedPools(one: Trials, other: Trials, count: number): Uint8Array | null {
  if (!one.pools || !other.pools) return null;
  const pools = new Uint8Array(count);
  pools.set(one.pools);
  pools.set(other.pools, one.count);
  return pools;
}

function rejoined(column: TrialColumn, next: TrialColumn, count: number): Omit<TrialColumn, "values" | "low" | "high"> {
  if (!column.codes || !next.codes) return { spec: column.spec, codes: null, choices: [], labels: [] };
  const choices = [...column.choices];
  const labels = [...column.labels];
  const places = next.choices.map((choice, code) => {
    const place = choices.indexOf(choice);
    if (place >= 0) return place;
    labels.push(next.labels[code]);
    return choices.push(choice) - 1;
  });
  const codes = new Uint16Array(count);
  codes.set(column.codes);
  for (let place = 0; place < next.codes.length; place++) codes[column.codes.length + place] = places[next.codes[place]];
  return { spec: column.spec, codes, choices, labels };
}
