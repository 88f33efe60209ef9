import assert from "node:assert/strict";
import { test } from "node:test";
import { aimsOf, axisOf, choiceAt, effect, firstAxes, naturalOrder, NONE, stretches, termBetween, ticksOf, varying } from "../src/explore/axes";
import { addLines, pairs, PAIRS } from "../src/explore/density";
import type { Value } from "../src/aliases";
import type { Column } from "../src/document";
import { asPython } from "../src/explore/commands";
import { parseChips, termText } from "../src/explore/filter";
import { placesOf } from "../src/explore/mask";
import { lead } from "../src/explore/rows";
import { orderBy, orderOf, ordered } from "../src/explore/sorting";
import { decode, joined, type Trials } from "../src/trials";
import { Binary, choices, numbers, sharedOf, study } from "./study";

test("numbers without a code of their own are none", () => {
  const binary = new Binary();
  const columns = [choices(binary, "memory_bytes", [10, 20], [0, 2, 1], { role: "metric" })];
  const trials = decode({ first: 0, count: 3, columns, reasons: [""], outcomes: binary.add([0, 0, 0], "u8") }, binary.whole);
  assert.deepEqual([...trials.columns[0].values], [10, NaN, 20]);
});

/** Four trials of a parameter that sets two fields at once, as Python packs it: its parts share their codes. */
function tupled(): Trials {
  const binary = new Binary();
  const codes = binary.add([2, 0, 1, 2], "u8");
  const part = (name: string, values: Value[], of: number[], place: number): Column => ({
    name, label: name.split(".")[1], role: "parameter", stack: "workload", unit: "", better: "", objective: false,
    coding: { kind: "choices", values, labels: values.map(String), codes, of }, part: { of: "workload.{dp,schedule}", place },
  });
  const columns = [part("workload.dp", [32, 8], [0, 1, 1], 0), part("workload.schedule", ["1f1b", "interleaved"], [0, 0, 1], 1)];
  columns.push(numbers(binary, "step_s", [1, 2, 3, 4], { objective: true }));
  return decode({ first: 0, count: 4, columns, reasons: [""], outcomes: binary.add([0, 0, 0, 0], "u8") }, binary.whole);
}

test("each entry of a tuple is a column with an axis of its own", () => {
  const trials = tupled();
  assert.deepEqual([...trials.columns[0].values], [8, 32, 8, 8]);
  assert.deepEqual([...trials.columns[1].codes!], [1, 0, 0, 1]);
  assert.deepEqual(axisOf(trials, 0, false).order, [1, 0]);
  assert.deepEqual(firstAxes(trials), [0, 1, 2]);
  const twice = joined(trials, tupled());
  assert.deepEqual([...twice.columns[0].values], [8, 32, 8, 8, 8, 32, 8, 8]);
});

test("a filter on an entry of a tuple finds it in the exported table, where the tuple is one text", () => {
  const trials = tupled();
  const chips = parseChips(trials, "dp >= 16");
  const said = asPython(sharedOf(trials), { trials, chips, selected: new Uint8Array(4), count: 1, best: -1 });
  assert.match(said, /^import json$/m);
  assert.match(said, /\(trials\["workload\.\{dp,schedule\}"\]\.map\(json\.loads\)\.str\[0\] >= 16\)/);
});

test("a study that grows keeps its values", () => {
  const whole = joined(study(), study(6));
  assert.equal(whole.count, 12);
  assert.deepEqual([...whole.columns[0].values], [1, 2, 4, 8, 8, 4, 1, 2, 4, 8, 8, 4]);
  assert.equal(whole.outcomes[10], 1);
});

test("choices lie in the order of their numbers", () => {
  const trials = study();
  assert.deepEqual(naturalOrder(trials.columns[0]), [1, 2, 3, 0]);
  assert.deepEqual(naturalOrder(trials.columns[1]), [0, 1, 2]);
  assert.deepEqual([...orderBy(trials, trials.columns[0], false)], [0, 1, 2, 5, 3, 4]);
  assert.deepEqual([...orderBy(trials, trials.columns[0], true)], [3, 4, 2, 5, 1, 0]);
});

test("the order is exact, keeps equals as they come, and has what is none last", () => {
  const values = [3, NaN, -1, 1 + 1e-12, 1, -0.5, NaN, 3, 0, -Infinity];
  assert.deepEqual([...orderOf(values, false)], [9, 2, 5, 8, 4, 3, 0, 7, 1, 6]);
  assert.deepEqual([...orderOf(values, true)], [0, 7, 3, 4, 8, 5, 2, 9, 1, 6]);
  const random = Float64Array.from({ length: 5000 }, () => (Math.random() - 0.5) * 10 ** (Math.random() * 40 - 20));
  const places = orderOf(random, false);
  for (let at = 1; at < places.length; at++) assert.ok(random[places[at - 1]] <= random[places[at]]);
});

test("only what is selected is listed", () => {
  const order = Uint32Array.from([2, 0, 1]);
  assert.deepEqual([...ordered(order, Uint8Array.from([1, 0, 1]), new Uint32Array(3))], [2, 0]);
});

test("the design that the page is about is led to the front of its list", () => {
  const list = Uint32Array.from([4, 2, 7, 1]);
  lead(list, 7);
  assert.deepEqual([...list], [7, 4, 2, 1]);
  lead(list, 9);
  lead(list, -1);
  lead(list, 7);
  assert.deepEqual([...list], [7, 4, 2, 1]);
});

test("a brush along an axis becomes the text that selects the same", () => {
  const trials = study();
  const tp = axisOf(trials, 0, false);
  assert.equal(termText(trials, termBetween(tp, 0, 1)!), "1 <= tp <= 8");
  assert.equal(termText(trials, termBetween(tp, 0.6, 0.7)!), "tp = 4");
  assert.equal(termBetween(tp, 0.4, 0.5), null);
  const topology = axisOf(trials, 1, false);
  assert.equal(termText(trials, termBetween(topology, 0, 0.6)!), "topology = ring|switch");
  const step = axisOf(trials, 4, false);
  const term = termBetween(step, step.scale!.at(0.02), step.scale!.at(0.04))!;
  assert.equal(termText(trials, term), "20 ms <= step_s <= 40 ms");
  const [[low, high]] = stretches(step, term);
  assert.ok(Math.abs(step.scale!.of(low) - 0.02) < 1e-6 && Math.abs(step.scale!.of(high) - 0.04) < 1e-6);
});

test("a click finds the value that it is on", () => {
  const axis = axisOf(study(), 1, false);
  assert.equal(choiceAt(axis, 0.5, 0.05), 1);
  assert.equal(choiceAt(axis, 0.25, 0.05), -1);
});

test("a trial without a value is in no bin", () => {
  const axis = axisOf(study(), 4, true);
  assert.equal(axis.binned[4], NONE);
  assert.ok([...axis.binned].every((bin, place) => place === 4 || bin < axis.bins));
});

test("500 choices share 96 bins, and few of them are named", () => {
  const binary = new Binary();
  const values = Array.from({ length: 250 }, (_, each) => `v${each}`);
  const columns = [choices(binary, "workload.name", values, values.map((_, code) => code))];
  const trials = decode({ first: 0, count: 250, columns, reasons: [""], outcomes: binary.add(values.map(() => 0), "u8") }, binary.whole);
  const axis = axisOf(trials, 0, false);
  assert.equal(axis.bins, 96);
  assert.equal(Math.max(...axis.binned), 95);
  assert.ok(ticksOf(axis, 300).length <= 20);
});

test("the axes to begin with are those that matter, by layer, objectives last", () => {
  const binary = new Binary();
  const count = 64;
  const code = (shift: number): number[] => Array.from({ length: count }, (_, trial) => (trial >> (shift % 6)) & 1);
  const columns = Array.from({ length: 14 }, (_, each) => choices(binary, `${each % 2 ? "network" : "workload"}.p${each}`, [1, 2], each < 12 ? code(each) : Array(count).fill(0)));
  columns.push(numbers(binary, "step_s", code(3).map((bit, trial) => 1 + bit + 0.001 * trial), { objective: true }));
  const trials = decode({ first: 0, count, columns, reasons: [""], outcomes: binary.add(Array(count).fill(0), "u8") }, binary.whole);
  assert.equal(varying(trials).length, 12);
  assert.ok(effect(trials.columns[3], aimsOf(trials, trials.columns[14])) > 0.99);
  assert.ok(effect(trials.columns[0], aimsOf(trials, trials.columns[14])) < 0.01);
  const axes = firstAxes(trials);
  assert.equal(axes.length, 10);
  assert.ok(axes.includes(3) && axes.includes(9));
  assert.equal(axes.at(-1), 14);
  const stacks = axes.slice(0, -1).map((place) => trials.columns[place].spec.stack);
  assert.deepEqual(stacks, [...stacks].sort().reverse());
});

test("lines carry the weight of the trials that run along them", () => {
  const counts = new Uint32Array(PAIRS);
  pairs(Uint8Array.from([0, 0, 1, NONE]), Uint8Array.from([0, 0, 1, 1]), placesOf(Uint8Array.from([1, 1, 1, 1]), new Uint32Array(4)), counts);
  assert.equal(counts[0], 2);
  assert.equal(counts[(1 << 8) | 1], 1);
  const grid = { width: 11, height: 20, counts: new Float32Array(220) };
  addLines(grid, counts, { from: 0, to: 10, left: Float32Array.from([5.5, 15.5]), right: Float32Array.from([5.5, 15.5]) });
  const column = Array.from(grid.counts.subarray(5 * 20, 6 * 20));
  assert.equal(column.reduce((sum, each) => sum + each, 0), 3);
  assert.equal(column[5], 2);
  assert.equal(column[15], 1);
});
