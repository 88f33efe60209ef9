import assert from "node:assert/strict";
import { test } from "node:test";
import { digits, show, times, writer } from "../src/base/format";
import { scale, ticksIn } from "../src/base/scale";
import { axisOf, ticksOf } from "../src/explore/axes";
import { axisName } from "../src/explore/names";
import { planeOf } from "../src/explore/points";
import { decode } from "../src/trials";
import { Binary, numbers } from "./study";

const GIB = 2 ** 30;

test("an axis of memory has one unit, and round numbers of it", () => {
  const texts = (low: number, high: number, log = false): string[] => ticksIn(scale(low, high, 0, 1, log), 5, "B").map(({ text }) => text);
  assert.deepEqual(texts(0, 80 * GIB), ["0 GiB", "20 GiB", "40 GiB", "60 GiB", "80 GiB"]);
  assert.deepEqual(texts(0.4 * GIB, 1.6 * GIB), ["0.5 GiB", "1 GiB", "1.5 GiB"]);
  assert.deepEqual(texts(0.2 * GIB, 20 * GIB, true), ["0.2 GiB", "0.5 GiB", "1 GiB", "2 GiB", "5 GiB", "10 GiB", "20 GiB"]);
});

test("an axis of times over many orders changes its unit, as zeros cannot be read", () => {
  assert.deepEqual(ticksIn(scale(1e-6, 1, 0, 1, true), 7, "s").map(({ text }) => text).slice(0, 2), ["1 µs", "10 µs"]);
  assert.deepEqual(ticksIn(scale(0.2, 2, 0, 1), 4, "s").map(({ text }) => text), ["0.5 s", "1 s", "1.5 s", "2 s"]);
});

test("the limit of memory lies on its axes", () => {
  const binary = new Binary();
  const columns = [numbers(binary, "memory_bytes", [10 * GIB, 40 * GIB], { unit: "B" }), numbers(binary, "step_s", [1, 2], { unit: "s" })];
  const trials = decode({ first: 0, count: 2, columns, reasons: [""], outcomes: binary.add([0, 0], "u8") }, binary.whole);
  const axis = axisOf(trials, 0, false, 80 * GIB);
  assert.ok(axis.scale!.at(80 * GIB) <= 1 && axis.scale!.at(40 * GIB) < 0.6);
  assert.ok(ticksOf(axis, 300).every(({ text }) => text.endsWith(" GiB")));
  const area = { left: () => 0, right: 100, top: 0, height: 100 };
  const [memory, step] = trials.columns;
  const plane = planeOf(trials, [step, memory], [false, false], new Uint8Array([1, 1]), area, [null, 80 * GIB]);
  assert.ok(plane.y.high >= 80 * GIB && plane.x.high < 3);
});

test("the name of an axis of money has the currency", () => {
  const named = (label: string, unit: string): string => {
    const binary = new Binary();
    const columns = [numbers(binary, "x", [1], { label, unit })];
    return axisName(decode({ first: 0, count: 1, columns, reasons: [""], outcomes: binary.add([0], "u8") }, binary.whole).columns[0]);
  };
  assert.deepEqual([named("network cost", "USD"), named("cost", "USD"), named("step", "s")], ["network USD", "cost USD", "step"]);
});

test("numbers have their unit, and as many digits as they need", () => {
  assert.equal(show(520_388, "1/s"), "520,000/s");
  assert.equal(digits(1e-14), "1e-14");
  assert.equal(digits(1.0871e-14), "1.09e-14");
  assert.equal(times(1.0046), "1.005×");
  assert.equal(times(1), "1.00×");
  assert.equal(times(1.013), "1.01×");
  assert.equal(writer("B", 80 * GIB).text(GIB / 16), "0.0625 GiB");
});
