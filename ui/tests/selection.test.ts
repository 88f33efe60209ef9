import assert from "node:assert/strict";
import { test } from "node:test";
import { chipsText, chipText, FilterError, namesOf, parseChip, parseChips } from "../src/explore/filter";
import { counted, keptBy, outcomesOf } from "../src/explore/mask";
import { read, rounded, written } from "../src/explore/units";
import { places, study } from "./study";

const trials = study();
const kept = (text: string): number[] => places(keptBy(trials, parseChips(trials, text)));

test("a name is the shortest end of its path that no other has", () => {
  assert.deepEqual(namesOf(trials.columns), ["tp", "topology", "dims.0.bandwidth", "dims.1.bandwidth", "step_s", "cost_usd"]);
});

const FILTERS: [string, number[], string?][] = [
  ["tp >= 4", [2, 3, 4, 5]],
  ["tp > 4", [3, 4]],
  ["tp = 4|8", [2, 3, 4, 5]],
  ["tp != 4", [0, 1, 3, 4]],
  ["workload.tp < 2", [0], "tp < 2"],
  ["topology = switch", [1, 2]],
  ["\"topology of dimension 1\" = Ring", [0, 4, 5], "topology = ring"],
  ["topology = \"a | b & \\\"c\\\"\"", [3]],
  ["dims.0.bandwidth = 100 GB/s", [1, 3, 5]],
  ["dims.0.bandwidth > 60 GB/s", [1, 3, 5]],
  ["step_s < 35 ms", [2, 3, 5]],
  ["20 ms <= step_s <= 40 ms", [1, 2, 5]],
  ["20 ms < step_s < 40 ms", [5]],
  ["step_s = 10 ms", [3]],
  ["tp >= 4 & cost_usd < 30", [5]],
  ["tp >= 4; cost_usd < 30", [5]],
  ["tp >= 4 and cost_usd < 30", [5], "tp >= 4 & cost_usd < 30"],
  ["not (tp >= 4 & cost_usd < 30)", [0, 1, 2, 3, 4]],
  ["outcome = runs", [0, 1, 2, 3, 5]],
  ["outcome != runs", [4]],
  ["outcome = memory", [4]],
  ["trial = 1|4", [1, 4]],
  ["trial >= 4", [4, 5]],
];

for (const [text, found, again] of FILTERS)
  test(`${text} lets through what it says, and is written as it is read`, () => {
    assert.deepEqual(kept(text), found);
    assert.equal(chipsText(trials, parseChips(trials, text)), again ?? text);
  });

test("trials are called by their numbers, wherever they begin", () => {
  const later = study(100);
  assert.deepEqual(places(keptBy(later, parseChips(later, "trial = 101"))), [1]);
});

const WRONG: [string, RegExp][] = [
  ["tpp >= 8", /tpp: no parameter or metric of this study; the nearest is tp/],
  ["bandwidth = 50 GB/s", /could be network\.dims\.0\.bandwidth or network\.dims\.1\.bandwidth/],
  ["topology >= ring", /topology: has no order/],
  ["topology = star", /topology = star: is one of ring, switch/],
  ["step_s < soon", /step_s: soon is no number of s/],
  ["step_s < 3 apples", /step_s: 3 apples is no number of s/],
  ["tp", /not a comparison/],
  ["  ", /a filter is a comparison/],
];

for (const [text, why] of WRONG)
  test(`"${text}" is refused with a reason`, () => {
    assert.throws(() => parseChip(trials, text), (error: unknown) => error instanceof FilterError && why.test(error.message));
  });

test("what is printed means the same", () => {
  for (const unit of ["", "s", "B", "B/s", "USD", "share", "J"])
    for (const value of [1.2345678, 123456789, 0.0001234567, 42, 0, -3.5]) {
      const once = rounded(value, unit);
      assert.ok(Math.abs(once - value) <= Math.abs(value) * 1e-3, `${value} ${unit} became ${once}`);
      assert.equal(rounded(once, unit), once, `${value} ${unit}`);
    }
  assert.equal(written(0.0123, "s"), "12.3 ms");
  assert.equal(written(0.4, "share"), "40 %");
  assert.equal(read("80 GB", "B"), 80e9);
  assert.equal(read("80 GiB", "B"), 80 * 2 ** 30);
  assert.equal(read("1.5k", "USD"), 1500);
  assert.equal(read("30 USD", "USD"), 30);
  assert.equal(read("ring", ""), null);
});

test("a trial without a value is in no range of it, nor outside one that is turned round", () => {
  assert.deepEqual(kept("step_s > 0"), [0, 1, 2, 3, 5]);
  assert.deepEqual(kept("not (step_s > 0)"), [4]);
});

test("outcomes are counted among what is kept", () => {
  const mask = keptBy(trials, [parseChip(trials, "tp >= 4")]);
  assert.equal(counted(mask), 4);
  assert.deepEqual(outcomesOf(trials, mask), [3, 1]);
});

test("a chip of several terms is one line", () => {
  const chip = parseChip(trials, "not(tp=4 & step_s<=1s)");
  assert.equal(chipText(trials, chip), "not (tp = 4 & step_s <= 1 s)");
});
