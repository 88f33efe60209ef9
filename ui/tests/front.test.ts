import assert from "node:assert/strict";
import { test } from "node:test";
import { bestOf, bestShare, frontOf, plateauOf } from "../src/explore/front";
import { decode, type TrialColumn, type Trials } from "../src/trials";
import { Binary, numbers, places, study } from "./study";

function two(x: number[], y: number[], outcomes: number[] = x.map(() => 0), better: "less" | "more" = "less"): Trials {
  const binary = new Binary();
  const columns = [numbers(binary, "x", x), numbers(binary, "y", y, { better })];
  return decode({ first: 0, count: x.length, columns, reasons: ["", "memory"], outcomes: binary.add(outcomes, "u8") }, binary.whole);
}

function slowFront(trials: Trials, x: TrialColumn, y: TrialColumn): number[] {
  const all = Array.from({ length: trials.count }, (_, place) => place).filter((place) => trials.outcomes[place] === 0 && !Number.isNaN(x.values[place] + y.values[place]));
  const sy = y.spec.better === "more" ? -1 : 1;
  return all.filter((a) => !all.some((b) => {
    const [dx, dy] = [x.values[b] - x.values[a], sy * (y.values[b] - y.values[a])];
    return (dx <= 0 && dy <= 0 && (dx < 0 || dy < 0)) || (dx === 0 && dy === 0 && b < a);
  }));
}

for (const better of ["less", "more"] as const)
  test(`the front is what no other beats, where ${better} is better`, () => {
    for (let round = 0; round < 20; round++) {
      const count = 300;
      const random = (): number => (round % 3 ? Math.random() : Math.floor(8 * Math.random())) * 10 ** (round % 5);
      const x = Array.from({ length: count }, () => (Math.random() < 0.05 ? NaN : random()));
      const trials = two(x, Array.from({ length: count }, random), x.map(() => (Math.random() < 0.1 ? 1 : 0)), better);
      const [a, b] = trials.columns;
      const found = frontOf(trials, a, b, new Uint8Array(count).fill(1));
      assert.deepEqual([...found].sort((one, other) => one - other), slowFront(trials, a, b));
      for (let at = 1; at < found.length; at++) assert.ok(a.values[found[at - 1]] < a.values[found[at]]);
    }
  });

test("the front of none, of one and of equals", () => {
  const none = two([NaN], [1]);
  assert.deepEqual(frontOf(none, none.columns[0], none.columns[1], Uint8Array.of(1)), []);
  const same = two([2, 2, 2], [3, 3, 3]);
  assert.deepEqual(frontOf(same, same.columns[0], same.columns[1], Uint8Array.of(0, 1, 1)), [1]);
});

test("the best is the first of the best that run, among what is kept", () => {
  const trials = study();
  assert.equal(bestOf(trials, trials.columns[4], new Uint8Array(6).fill(1)), 3);
  assert.equal(bestOf(trials, trials.columns[4], Uint8Array.of(1, 1, 0, 0, 1, 0)), 1);
  assert.equal(bestOf(trials, trials.columns[4], Uint8Array.of(0, 0, 0, 0, 1, 0)), -1);
  assert.equal(bestOf(trials, undefined, new Uint8Array(6)), -1);
});

test("the best share takes what equals its last", () => {
  const trials = two([1, 1, 1, 2, 3, 4, 5, 6, 7, 8], Array(10).fill(0));
  const all = new Uint8Array(10).fill(1);
  assert.deepEqual(places(bestShare(trials, trials.columns[0], 0.1, all)), [0, 1, 2]);
  assert.deepEqual(places(bestShare(trials, trials.columns[0], 0.4, all)), [0, 1, 2, 3]);
  assert.deepEqual(places(bestShare(trials, trials.columns[0], 0.05, Uint8Array.of(0, 0, 0, 0, 1, 1, 1, 1, 1, 1))), [4]);
});

test("the plateau is all that run and are within a share of the best, whichever way is better", () => {
  const less = two([0, 0, 0, 0, 0], [100, 101, 101.1, 100.5, 100], [0, 0, 0, 1, 0]);
  const among = Uint8Array.from([1, 1, 1, 1, 1]);
  assert.deepEqual(places(plateauOf(less, less.columns[1], 0, 0.01, among)), [0, 1, 4]);
  assert.deepEqual(places(plateauOf(less, less.columns[1], 0, 0.01, Uint8Array.from([1, 0, 1, 1, 0]))), [0]);
  const more = two([0, 0, 0], [100, 99.1, 98], undefined, "more");
  assert.deepEqual(places(plateauOf(more, more.columns[1], 0, 0.01, among)), [0, 1]);
  assert.deepEqual(places(plateauOf(more, more.columns[1], -1, 0.01, among)), []);
});
