import assert from "node:assert/strict";
import { test } from "node:test";
import type { Curve, Curves, Latency, Slo, Spent } from "../src/document";
import { holding, isTradeOff, kindCounts, serving } from "../src/explore/deployments";
import { scale } from "../src/base/scale";
import { ceiling, loadTicks, nearestLoad, sentenceAt } from "../src/serving/curves";
import { holds } from "../src/serving/latencies";
import { requests } from "../src/serving/pools";
import { spentBar, spentReading, usedClasses } from "../src/serving/spent";
import { tradeOffLoad } from "../src/serving/trade_off";
import { decode, joined, type Trials } from "../src/trials";
import { Binary, numbers, places } from "./study";

const SLOS: Slo[] = [
  { metric: "ttft_p95_s", statistic: "p95", limit_s: 1, text: "TTFT p95 ≤ 1 s" },
  { metric: "tpot_p95_s", statistic: "p95", limit_s: 0.03, text: "TPOT p95 ≤ 30 ms" },
];

/** Five deployments, of which the last cannot run. */
function deployments(pools = [0, 0, 1, 1, 1]): Trials {
  const binary = new Binary();
  const columns = [
    numbers(binary, "tokens_per_s_per_user", [40, 60, 30, 50, NaN], { better: "more" }),
    numbers(binary, "tokens_per_s_per_npu", [100, 50, 200, 90, NaN], { better: "more", objective: true }),
    numbers(binary, "ttft_p95_s", [0.5, 1, 0.9, 1.1, NaN]),
    numbers(binary, "tpot_p95_s", [0.02, 0.03, 0.031, 0.02, NaN]),
  ];
  const outcomes = binary.add([0, 0, 0, 0, 1], "u8");
  return decode({ first: 0, count: 5, columns, reasons: ["", "memory"], outcomes, pools: binary.add(pools, "u8") }, binary.whole);
}

test("a deployment holds its limits where each latency is at most its limit", () => {
  const trials = deployments();
  assert.deepEqual(places(holding(trials, SLOS)), [0, 1]);
  assert.deepEqual(places(holding(trials, SLOS.slice(0, 1))), [0, 1, 2]);
  assert.deepEqual(places(holding(trials, [])), [0, 1, 2, 3]);
});

test("deployments are counted by where they prefill, those that cannot run apart", () => {
  const trials = deployments();
  assert.deepEqual(kindCounts(trials, new Uint8Array(5).fill(1), serving(trials, SLOS)), [2, 2]);
  const limited = { ...trials, reasons: ["", "ttft_p95_s <= 1 s, tpot_p95_s <= 30 ms"] };
  assert.deepEqual(kindCounts(limited, new Uint8Array(5).fill(1), serving(limited, SLOS)), [2, 3]);
  assert.deepEqual(kindCounts(limited, new Uint8Array(5).fill(1), serving(limited, [])), [2, 2]);
  assert.deepEqual(kindCounts(trials, new Uint8Array(5).fill(1), holding(trials, SLOS)), [2, 0]);
  assert.deepEqual([...joined(trials, deployments([1, 1, 1, 0, 0])).pools!], [0, 0, 1, 1, 1, 1, 1, 1, 0, 0]);
});

test("only these two axes are the trade-off of serving", () => {
  const study = { user: "u", npu: "n", slos: [] };
  assert.ok(isTradeOff(study, "u", "n"));
  assert.ok(!isTradeOff(study, "n", "u"));
  assert.ok(!isTradeOff(undefined, "u", "n"));
});

const curve = (label: string, tail: (number | null)[], slo: Slo | null): Curve => ({ label, p50_s: tail.map((each) => each && each / 2), p95_s: tail, slo });

function curves(): Curves {
  return {
    label: "requests per second", unit: "1/s", at: 2, loads: [0.5, 1, 2, 4, 8],
    ttft: curve("TTFT", [0.2, 0.3, 0.8, 90, null], SLOS[0]), tpot: curve("TPOT", [0.01, 0.02, 0.025, 0.04, null], SLOS[1]),
    tokens_per_s_per_npu: [10, 20, 40, 80, null], tokens_per_s_per_user: [100, 50, 40, 25, null], saturated: 8, holds: 2, reading: "",
  };
}

test("a queue without end does not flatten the rest of a curve", () => {
  const found = curves();
  assert.equal(ceiling(found.ttft, found), 6); // six times the limit, not 90 s
  assert.equal(ceiling(found.tpot, found), 0.04);
  assert.equal(ceiling({ ...found.ttft, slo: null }, found), 6 * 0.8);
});

test("loads are found by their logarithm, and ticks are powers of two", () => {
  const { loads } = curves();
  assert.equal(nearestLoad(loads, 2.7), 2);
  assert.equal(nearestLoad(loads, 3), 3);
  assert.equal(nearestLoad(loads, 1000), 4);
  assert.deepEqual(loadTicks(scale(4, 128, 0, 600, true), 600), [4, 8, 16, 32, 64, 128]);
  assert.deepEqual(loadTicks(scale(4, 128, 0, 270, true), 270), [4, 16, 64]);
  assert.deepEqual(loadTicks(scale(0.5, 8, 0, 600, true), 600), [0.5, 1, 2, 5]);
});

test("a load is said with its latencies and whether they hold", () => {
  const found = curves();
  assert.equal(
    sentenceAt(found, 2),
    "With 2 requests per second: TTFT p50 400 ms, p95 800 ms, within its SLO; TPOT p50 12.5 ms, p95 25 ms, within its SLO; 40 tokens/s for each accelerator.",
  );
  assert.match(sentenceAt(found, 3), /TTFT p50 45 s, p95 90 s, beyond its SLO/);
  assert.equal(sentenceAt(found, 4), "With 8 requests per second: more than it can serve.");
});

test("the pointer finds the nearest load of the trade-off", () => {
  assert.equal(tradeOffLoad(curves(), 600, { x: 590, y: 250 }), 0);
  assert.equal(tradeOffLoad(curves(), 600, { x: 0, y: 0 }), 3);
});

test("a latency holds its limit by the statistic that the limit is on", () => {
  const latency = (slo: Slo | null): Latency => ({ name: "ttft", label: "TTFT", mean_s: 0.5, p50_s: 0.4, p95_s: 1.2, p99_s: 2, slo });
  assert.equal(holds(latency(null)), null);
  assert.equal(holds(latency(SLOS[0])), false);
  assert.equal(holds(latency({ ...SLOS[0], statistic: "mean" })), true);
});

test("means of requests are whole where they are large", () => {
  assert.deepEqual([0, 0.04, 1.234, 9.99, 256.4, 12345.6].map(requests), ["0", "0", "1.2", "10", "256", "12,300"]);
  assert.equal(requests(null), "–");
});

test("parts of a time are grouped by class, and the largest is said", () => {
  const spent: Spent = {
    name: "decode", label: "decode step", seconds: 0.01,
    parts: [
      { name: "tp", label: "communication", class: "exposed", seconds: 0.001 },
      { name: "gemm", label: "GEMMs", class: "compute", seconds: 0.007 },
      { name: "engine", label: "engine", class: "other", seconds: 0.002 },
    ],
  };
  assert.deepEqual(spentBar("best", spent, true, "").segments.map((each) => each.label), ["GEMMs", "communication", "engine"]);
  assert.deepEqual(usedClasses([spent, undefined]), ["compute", "exposed", "other"]);
  assert.equal(spentReading([spent]), "70 % of a decode step is GEMMs.");
  assert.equal(spentBar("base", undefined, false, "cannot run: memory").problem, "cannot run: memory");
});
