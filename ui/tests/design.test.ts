import assert from "node:assert/strict";
import { test } from "node:test";
import { cellsPath } from "../src/design/cluster";
import { boundsOf, clamped, overlap, placeNames, roofBoxes } from "../src/design/roof";
import { tierBar } from "../src/design/tiers";
import type { Design } from "../src/document";
import { bestFirst } from "../src/verdict/costs";

const point = (intensity: number, seconds: number, flop_per_s = 1e12) => ({ name: "", intensity, flop_per_s, seconds, bound: "memory" as const });

test("a strip has as many cells as the dimension has members", () => {
  const cells = (path: string): number => path.split("M").length - 1;
  assert.equal(cells(cellsPath(64, () => true)), 64);
  assert.equal(cells(cellsPath(8, (cell) => cell % 4 === 0)), 2);
  assert.equal(cellsPath(512, (cell) => cell < 256), "M0 0.6h2560v8.8h-2560z");
  assert.equal(cells(cellsPath(512, (cell) => cell % 8 === 0)), 64);
  assert.equal(cellsPath(0, () => true), "");
});

test("an operator that takes no time does not squeeze the roofline", () => {
  const [peak, bandwidth] = [1e15, 1e12];
  const main = [point(800, 1, 8e14), point(100, 0.5, 9e13)];
  const wanted = boundsOf(main, peak, bandwidth);
  assert.deepEqual(boundsOf([...main, point(1e-6, 1e-4, 1e3)], peak, bandwidth), wanted);
  assert.deepEqual(boundsOf([...main, point(1e9, 1e-4, 1e3)], peak, bandwidth), wanted);
  assert.ok(wanted.x[0] < 100 && wanted.x[1] > 800 * 1.5);
});

test("bounds reach a few orders at most, and what lies beyond is at the edge", () => {
  const { x, y } = boundsOf([point(1e-7, 9, 1), point(500, 1, 9e14)], 1e15, 1e12);
  assert.ok(x[1] / x[0] < 1e5 && y[1] / y[0] < 1e8);
  assert.equal(clamped(1e-7, x), x[0]);
  assert.equal(clamped(500, x), 500);
  assert.equal(boundsOf([], 1e15, 1e12).x.every(Number.isFinite), true);
});

test("names of operators lie on no mark, on no other name and not on the roof", () => {
  const marks = [{ x: 300, y: 100, r: 16 }, { x: 312, y: 110, r: 10 }, { x: 200, y: 180, r: 8 }];
  const boxes = [...roofBoxes([70, 300], [280, 80], 540), ...marks.map(({ x, y, r }) => ({ x0: x - r, x1: x + r, y0: y - r, y1: y + r }))];
  const names = marks.map((each, place) => ({ ...each, text: `layer ffn gate, backward and ${place} more` }));
  const frame = { x0: 70, x1: 544, y0: 82, y1: 296 };
  const placed = placeNames(names, boxes, frame).flatMap((at, place) => (at ? [{ x0: at.x, x1: at.x + names[place].text.length * 5.9, y0: at.y - 10, y1: at.y + 3 }] : []));
  assert.ok(placed.length >= 2);
  placed.forEach((one, place) => {
    assert.ok(one.x0 >= frame.x0 && one.x1 <= frame.x1 && one.y1 <= frame.y1);
    for (const other of [...boxes, ...placed.slice(place + 1)]) assert.ok(!overlap(one, other));
  });
});

test("a table of designs begins with the best", () => {
  const [base, alone, best] = ["base", "workload alone", "best"].map((label) => ({ label }) as Design);
  assert.deepEqual(bestFirst([base, alone, best], best), [best, base, alone]);
  assert.deepEqual(bestFirst([base], best), [base]);
  assert.deepEqual(bestFirst([base], null), [base]);
});

test("a tier of memory is a bar of shares of its own capacity, largest part first", () => {
  const parts = [{ name: "weights", label: "weights", bytes: 25 }, { name: "optimizer", label: "optimizer states", bytes: 50 }];
  const bar = tierBar({ name: "host", capacity_bytes: 100, used_bytes: 75, traffic_bytes: 300, parts });
  assert.deepEqual(bar.segments.map((each) => [each.label, each.amount]), [["optimizer states", 0.5], ["weights", 0.25]]);
  assert.equal(bar.total, "75 B of 100 B");
});
