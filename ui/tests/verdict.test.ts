import assert from "node:assert/strict";
import { test } from "node:test";
import { times } from "../src/base/format";
import type { Convergence, Design, ReportDocument, Trust } from "../src/document";
import { keyNames } from "../src/frame";
import { factorBounds, factorPlace } from "../src/verdict/bars";
import { bestAfter } from "../src/verdict/convergence";
import {
  breakdownReading,
  classTotals,
  convergenceReading,
  expectedReading,
  failuresReading,
  memoryReading,
  nothingReading,
  ratio,
} from "../src/verdict/readings";
import { whole } from "../src/verdict/trust";
import { largestParts, partsTable, stepBar } from "../src/verdict/why";

const GIB = 2 ** 30;

function design(label: string, over: Partial<Design> = {}): Design {
  return {
    label,
    role: "other",
    trial: null,
    identity: "",
    yaml: "",
    command: "",
    feasible: true,
    reasons: [],
    step_s: 1,
    step_s_range: null,
    facts: [],
    parts: [
      { name: "a", label: "all-reduce", class: "exposed", seconds: 0.3 },
      { name: "m", label: "matrix products", class: "compute", seconds: 0.5 },
      { name: "n", label: "attention", class: "compute", seconds: 0.2 },
    ],
    memory: [
      { name: "w", label: "weights", bytes: 10 * GIB },
      { name: "o", label: "optimizer states", bytes: 30 * GIB },
    ],
    capacity_bytes: 80 * GIB,
    bound: "",
    cluster: null,
    timeline: null,
    roofline: null,
    launch: null,
    ...over,
  };
}

function convergence(better: "less" | "more", ...series: Convergence["series"]): Convergence {
  return { objective: "step_s", label: "step", unit: "s", better, series };
}

const trust = { failures: [], evaluated: 0, feasible: 0 } as unknown as Trust;

test("factors lie on a logarithmic scale that holds 1", () => {
  assert.deepEqual(factorBounds([2, 8, null]), [1, 8]);
  assert.deepEqual(factorBounds([0.5, 2]), [0.5, 2]);
  assert.deepEqual(factorBounds([]), [1, 2]);
  assert.ok(Math.abs(factorPlace(2, [1, 8]) - 1 / 3) < 1e-12);
  assert.equal(factorPlace(1, [0.5, 2]), 0.5);
  assert.equal(factorPlace(100, [1, 8]), 1);
});

test("factors are said with three digits, as in the verdict", () => {
  assert.equal(times(4.0995), "4.10×");
  assert.equal(times(0.928), "0.928×");
  assert.equal(times(12345), "12,300×");
  assert.equal(times(null), "–");
});

test("classes of a step add up their parts, and bars keep them side by side", () => {
  const one = design("best");
  assert.deepEqual(classTotals(one), [["compute", 0.7], ["exposed", 0.3]]);
  assert.deepEqual(stepBar(one, one).segments.map((each) => each.label), ["matrix products", "attention", "all-reduce"]);
  assert.equal(stepBar(one, one).strong, true);
});

test("a design that cannot run says why instead of a bar", () => {
  const bar = stepBar(design("base", { parts: [], feasible: false, reasons: ["needs 90 GiB of 80 GiB"] }), null);
  assert.equal(bar.problem, "cannot run: needs 90 GiB of 80 GiB");
});

test("the breakdown's sentence names what takes most, and what shrank most", () => {
  const best = design("best", { parts: [{ name: "m", label: "m", class: "compute", seconds: 0.5 }] });
  assert.equal(
    breakdownReading(design("base"), best),
    "Compute takes 100 % of the best design's step; exposed communication shrank most against the base, by 300 ms.",
  );
  assert.equal(breakdownReading(null, best), "Compute takes 100 % of the best design's step.");
  assert.match(breakdownReading(best, design("best")), /no class of time is shorter/);
  assert.equal(breakdownReading(null, null), "");
});

test("memory is set against the capacity of an accelerator", () => {
  const expected = "The best design needs 40 GiB of 80 GiB (50 %) on its fullest accelerator; the largest component is optimizer states.";
  assert.equal(memoryReading(design("best")), expected);
  assert.equal(memoryReading(null), "");
});

test("six parts of memory have a colour, the largest first", () => {
  const memory = [..."abcdefgh"].map((label, place) => ({ name: label, label, bytes: place }));
  assert.deepEqual(largestParts([design("best", { memory })]), ["h", "g", "f", "e", "d", "c"]);
});

test("a table has every part of every design", () => {
  const table = partsTable([design("base"), design("best", { parts: [] })], (each) => each.parts.map((part) => [part.label, part.seconds]), "seconds");
  assert.deepEqual(table.columns, ["component", "base, seconds", "best, seconds"]);
  assert.deepEqual(table.rows[0], ["all-reduce", 0.3, 0]);
  assert.equal(table.rows.length, 3);
});

test("convergence is read off the search that ended best", () => {
  const one = { name: "genetic", points: [[1, 4], [10, 2.05], [100, 2]] as [number, number][] };
  const other = { name: "network alone", points: [[1, 3]] as [number, number][] };
  assert.match(convergenceReading(convergence("less", other, one)), /genetic, reached 2 s after 100 designs, and came within 5 % of that after 10\./);
  assert.match(convergenceReading(convergence("more", other, one)), /network alone, reached 3 s/);
  assert.equal(convergenceReading(convergence("less", { name: "none", points: [] })), "");
  assert.equal(convergenceReading(convergence("less", other)), "The search reached 3 s after its first design.");
  assert.match(convergenceReading(convergence("less", one)), /^The search reached 2 s after 100 designs, /);
  assert.equal(bestAfter(one.points, 50), 2.05);
  assert.equal(bestAfter(one.points, 0), null);
});

test("failures and empty studies are said in words", () => {
  assert.equal(failuresReading(trust), "No design has been evaluated yet.");
  assert.equal(failuresReading({ ...trust, evaluated: 5 }), "All 5 evaluated designs can run.");
  const failures = [{ reason: "memory", label: "memory: too little", count: 1200 }];
  assert.equal(failuresReading({ ...trust, failures }), "1,200 designs cannot run; the most frequent reason is memory: too little.");
  const nothing = (over: Partial<Trust>): string => nothingReading({ trust: { ...trust, ...over } } as ReportDocument);
  assert.match(nothing({ feasible: 3 }), /several workloads/);
  assert.match(nothing({ evaluated: 3, failures }), /nothing to explain. The reasons are counted under Trust\./);
  assert.match(nothing({}), /yet/);
});

test("keys are named as keyboards print them", () => {
  assert.deepEqual(keyNames(["w", "W"]), ["w"]);
  assert.deepEqual(keyNames(["ArrowLeft", "Escape", "?"]), ["←", "Esc", "?"]);
});

test("a step has an error bar where it has a range", () => {
  assert.equal(stepBar(design("a"), null).range, undefined);
  const range = stepBar(design("a", { step_s_range: [0.9, 1.2] }), null).range!;
  assert.deepEqual([range.low, range.high], [0.9, 1.2]);
  assert.equal(range.label, "nine measurements in ten are expected from 900 ms to 1.2 s");
  assert.equal(stepBar(design("a", { step_s_range: [0.9, 1.2], parts: [] }), null).range, undefined);
});

test("the error to expect says what it was found on", () => {
  const verdict = { expected_error: 0.2082, expected_on: "on 122 runs" };
  assert.equal(expectedReading({ verdict } as ReportDocument), "The step time is expected to be off by 21 % on average (on 122 runs).");
  const unknown = { ...verdict, expected_error: null, provenance: "estimate" };
  assert.match(expectedReading({ verdict: unknown } as ReportDocument), /^No measured runs of this kind/);
  assert.equal(expectedReading({ verdict: { ...unknown, provenance: "" } } as ReportDocument), "");
});

test("numbers are exact where people can read them, short where not", () => {
  assert.equal(whole(51_234_567_890), "51,234,567,890");
  assert.equal(whole(161_243_136_000_000), "1.61e14");
  assert.equal(ratio(4, 1), "0.250×");
  assert.equal(ratio(0, 1), "–");
});
