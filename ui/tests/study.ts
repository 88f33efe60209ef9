// A small study for tests: packed as Python packs it, so that tests go the whole way.

import type { Value } from "../src/aliases";
import type { Block, Column, Packed, ReportDocument } from "../src/document";
import { Signal } from "../src/base/signal";
import type { Shared } from "../src/state";
import { decode, type Trials } from "../src/trials";

export class Binary {
  private bytes: number[] = [];

  add(numbers: number[], type: Packed["type"]): Packed {
    const offset = this.bytes.length;
    const array = { u8: Uint8Array, u16: Uint16Array, u32: Uint32Array, f32: Float32Array, f64: Float64Array }[type].from(numbers);
    const plain = new Uint8Array(array.buffer);
    const width = array.BYTES_PER_ELEMENT;
    for (let plane = 0; plane < width; plane++)
      for (let place = 0; place < numbers.length; place++) this.bytes.push(plain[place * width + plane]);
    return { offset, count: numbers.length, type };
  }

  get whole(): Uint8Array {
    return Uint8Array.from(this.bytes);
  }
}

const named = { stack: "", unit: "", better: "" as const, objective: false };

export function choices(binary: Binary, name: string, values: Value[], codes: number[], more: Partial<Column> & { labels?: string[] } = {}): Column {
  const { labels = values.map(String), ...rest } = more;
  const coding = { kind: "choices" as const, values, labels, codes: binary.add(codes, "u8") };
  return { ...named, name, label: name.split(".").pop()!, role: "parameter", stack: name.split(".")[0], coding, ...rest };
}

export function numbers(binary: Binary, name: string, values: number[], more: Partial<Column> = {}): Column {
  return { ...named, name, label: name, role: "metric", better: "less", coding: { kind: "numbers", numbers: binary.add(values, "f64") }, ...more };
}

export const STEPS = [0.08, 0.04, 0.02, 0.01, NaN, 0.03];
export const COSTS = [10, 20, 30, 40, NaN, 25];

/** Six trials, the fifth of which cannot run; numbered from `first`. */
export function study(first = 0): Trials {
  const binary = new Binary();
  const columns = [
    choices(binary, "workload.tp", [8, 1, 2, 4], [1, 2, 3, 0, 0, 3]),
    choices(binary, "network.dims.0.topology", ["ring", "switch", "a | b & \"c\""], [0, 1, 1, 2, 0, 0], { label: "topology of dimension 1" }),
    choices(binary, "network.dims.0.bandwidth", [50e9, 100e9], [0, 1, 0, 1, 0, 1], { labels: ["50 GB/s", "100 GB/s"], unit: "B/s", label: "bandwidth of dimension 1" }),
    choices(binary, "network.dims.1.bandwidth", [50e9, 100e9], [0, 0, 1, 1, 0, 1], { labels: ["50 GB/s", "100 GB/s"], unit: "B/s", label: "bandwidth of dimension 2" }),
    numbers(binary, "step_s", STEPS, { label: "step", unit: "s", objective: true }),
    numbers(binary, "cost_usd", COSTS, { label: "cost", unit: "USD" }),
  ];
  const block: Block = { first, count: 6, columns, reasons: ["", "memory"], outcomes: binary.add([0, 0, 0, 0, 1, 0], "u8") };
  return decode(block, binary.whole);
}

/** What pages share of such a study. */
export function sharedOf(trials: Trials): Shared {
  const document = {
    study: "runs/a study", designs: [{ trial: null, command: "cosmic evaluate base.yaml", role: "base", facts: [] }], base: 0, best: null,
    verdict: { command: "cosmic search small -n 10 --out runs/x" }, trust: { failures: [] },
  } as unknown as ReportDocument;
  const source = { document, binary: new Uint8Array(0), trials: new Signal(trials), front: new Signal([3]), open: async () => null };
  return { source, hovered: new Signal<number | null>(null), opened: new Signal(null) } as Shared;
}

export function places(mask: ArrayLike<number>): number[] {
  return Array.from(mask).flatMap((each, place) => (each ? [place] : []));
}
