import assert from "node:assert/strict";
import { test } from "node:test";
import type { Class } from "../src/aliases";
import type { Packed, Timeline } from "../src/document";
import { openingView } from "../src/design/opening";
import { shortName } from "../src/design/paint";
import { traceText } from "../src/design/perfetto";
import { firstFolds, foldKey, layRows, rowAt, rowOf, totalHeight } from "../src/design/rows";
import { classSeconds, decodeSpans, eachBlock, found, heat, meanSeconds, neighbours, type Spans, spanAt } from "../src/design/spans";
import { sumsOfPart } from "../src/design/summary";
import { around, tickText, viewOf, viewText, within, zoomed } from "../src/design/view";

const CLASSES: Class[] = ["compute", "exposed", "hidden", "idle", "memory", "optimizer", "other"];

interface Drawn {
  track: number;
  name: string;
  kind: Class;
  start: number;
  end: number;
  critical?: boolean;
}

/** Packs spans as Python does: codes of gaps and durations, byte planes. */
function packed(drawn: Drawn[], processes: { name: string; ranks: number }[], tracks: { process: number; name: string }[]): Spans {
  const parts: number[] = [];
  const bytes = (values: number[]): Packed => {
    const offset = parts.length;
    for (const shift of [0, 8, 16, 24]) for (const value of values) parts.push((value >>> shift) & 255);
    return { offset, count: values.length, type: "u32" };
  };
  const names = [...new Set(drawn.map((each) => each.name))];
  const seconds: number[] = [];
  const codes = new Map<number, number>();
  const code = (value: number): number => {
    if (!codes.has(value)) codes.set(value, seconds.push(value) - 1);
    return codes.get(value)!;
  };
  const gaps = drawn.map((each, place) => {
    const before = drawn[place - 1];
    return code(each.start - (before?.track === each.track ? before.end : 0));
  });
  const critical: Packed = { offset: parts.length, count: drawn.length, type: "u8" };
  parts.push(...drawn.map((each) => (each.critical ? 1 : 0)));
  const duration = Math.max(...drawn.map((each) => each.end));
  const timeline: Timeline = {
    engine: "analytic",
    duration_s: duration,
    processes,
    tracks,
    names,
    classes: CLASSES,
    spans: {
      count: drawn.length,
      track: bytes(drawn.map((each) => each.track)),
      name: bytes(drawn.map((each) => names.indexOf(each.name))),
      class: bytes(drawn.map((each) => CLASSES.indexOf(each.kind))),
      gap: bytes(gaps),
      duration: bytes(drawn.map((each) => code(each.end - each.start))),
      critical,
    },
    seconds,
    flows: { count: 1, from: bytes([0]), to: bytes([2]) },
    counters: [{ process: 0, name: "memory", unit: "B", most: 90, times: bytes([code(0), code(1), code(2)]), values: bytes([0, 1, 0]), levels: [10, 80] }],
    totals: { compute_s: 0, exposed_s: 0, hidden_s: 0, idle_s: 0 },
    reading: "",
  };
  return decodeSpans(timeline, Uint8Array.from(parts));
}

const SMALL = (): Spans =>
  packed(
    [
      { track: 0, name: "F0", kind: "compute", start: 0, end: 1, critical: true },
      { track: 0, name: "B0", kind: "compute", start: 1.5, end: 3 },
      { track: 2, name: "gradients", kind: "exposed", start: 3, end: 4, critical: true },
      { track: 2, name: "updated weights", kind: "hidden", start: 4, end: 5 },
    ],
    [{ name: "stage 0", ranks: 3 }, { name: "stage 1", ranks: 1 }],
    [{ process: 0, name: "compute" }, { process: 0, name: "tp" }, { process: 1, name: "dp" }],
  );

/** Many short spans of two kinds, a quarter of the time empty. */
function many(count: number): Spans {
  const drawn = Array.from({ length: count }, (_, place): Drawn => {
    const kind = place % 2 ? "exposed" : "compute";
    return { track: 0, name: kind, kind, start: place, end: place + (place % 2 ? 0.5 : 1), critical: place === 7 };
  });
  return packed(drawn, [{ name: "rank 0", ranks: 1 }], [{ process: 0, name: "all" }]);
}

test("spans have the times that gaps and durations add up to, and tracks know theirs", () => {
  const spans = SMALL();
  assert.deepEqual([...spans.start], [0, 1.5, 3, 4]);
  assert.deepEqual([...spans.end], [1, 3, 4, 5]);
  assert.deepEqual([...spans.first], [0, 2, 2, 4]);
  assert.deepEqual(spans.paints.map((each) => [each.class, each.back]), [["compute", false], ["compute", true], ["exposed", false], ["hidden", false]]);
  assert.deepEqual([...spans.counters[0].times], [0, 1, 3]);
  assert.deepEqual([...spans.counters[0].values], [10, 80, 10]);
  assert.equal(spans.counters[0].high, 90);
});

test("what is wide is drawn as it is", () => {
  const put: number[][] = [];
  eachBlock(SMALL(), 0, 0.5, 2.5, 200, (x0, x1, paint, span) => put.push([x0, x1, paint, span]));
  assert.deepEqual(put, [[-50, 50, 0, 0], [100, 250, 1, 1]]);
});

test("what is narrower than a pixel is merged, with no more calls than pixels, and none is lost", () => {
  const spans = many(20_000);
  const covered = new Uint8Array(100);
  let [calls, marks] = [0, 0];
  eachBlock(spans, 0, 0, 20_000, 100, (x0, x1, paint, span, busy, critical) => {
    calls++;
    if (critical) marks++;
    assert.equal(span, -1);
    assert.equal(spans.paints[paint].class, "compute");
    assert.ok(busy > 0.5 && busy <= 1);
    for (let x = Math.floor(x0); x < x1; x++) covered[x]++;
  });
  assert.ok(calls <= 100, `${calls} calls`);
  assert.equal(marks, 1);
  assert.ok(covered.every((each) => each === 1));
});

test("a long span that begins among short ones in a pixel is not swallowed", () => {
  const spans = packed(
    [
      { track: 0, name: "a", kind: "compute", start: 0, end: 0.001 },
      { track: 0, name: "b", kind: "compute", start: 0.002, end: 0.003 },
      { track: 0, name: "long", kind: "exposed", start: 0.004, end: 10 },
    ],
    [{ name: "rank 0", ranks: 1 }],
    [{ process: 0, name: "all" }],
  );
  const drawn: number[] = [];
  eachBlock(spans, 0, 0, 10, 100, (_x0, _x1, _paint, span) => drawn.push(span));
  assert.deepEqual(drawn, [-1, 2]);
});

test("a pointer finds the span below it, or one that is near", () => {
  const spans = SMALL();
  assert.equal(spanAt(spans, 0, 0.5, 0), 0);
  assert.equal(spanAt(spans, 0, 1.2, 0), -1);
  assert.equal(spanAt(spans, 0, 1.2, 0.25), 0);
  assert.equal(spanAt(spans, 0, 1.4, 0.25), 1);
  assert.equal(spanAt(spans, 1, 1, 9), -1);
});

test("totals of a part count what lies in it, by process and over ranks", () => {
  const spans = SMALL();
  const by = classSeconds(spans, 0.5, 4.5);
  assert.equal(by[0].compute, 2);
  assert.equal(by[1].exposed, 1);
  assert.equal(by[1].hidden, 0.5);
  assert.equal(meanSeconds(spans.timeline, by).compute, 1.5);
  assert.deepEqual(sumsOfPart(spans, 0.5, 4.5), { compute: 1.5, exposed: 0.25, hidden: 0.125, idle: 2.25 });
});

test("the strip of the whole step says how busy ranks are", () => {
  const { busy, exposed } = heat(SMALL(), 5, 5);
  assert.deepEqual([...busy], [0.75, 0.375, 0.75, 0, 0]);
  assert.deepEqual([...exposed], [0, 0, 0, 0.25, 0]);
});

test("search goes by name and by time; arrows go both ways", () => {
  const spans = SMALL();
  assert.deepEqual([...found(spans, "GRAD")], [2]);
  assert.deepEqual([...found(spans, "0")], [0, 1]);
  assert.deepEqual([...found(spans, "  ")], []);
  assert.deepEqual(neighbours(spans, 0), { before: [], after: [2] });
  assert.deepEqual(neighbours(spans, 2), { before: [0], after: [] });
});

test("rows leave out empty tracks, and a folded process is one row", () => {
  const lanes = [{ label: "best", spans: SMALL() }];
  const rows = layRows(lanes, new Set());
  assert.deepEqual(rows.map((row) => row.kind), ["process", "track", "counter", "process", "track"]);
  assert.equal(totalHeight(rows), rows.reduce((sum, row) => sum + row.height, 0));
  assert.equal(rowAt(rows, rows[1].top + 1), rows[1]);
  assert.equal(rowAt(rows, totalHeight(rows)), null);
  const folded = layRows(lanes, new Set([foldKey(0, 0)]));
  assert.deepEqual(folded.map((row) => [row.kind, row.folded]), [["track", true], ["process", false], ["track", false]]);
  assert.equal(rowOf(rows, 0, 2), rows[4]);
  assert.equal(firstFolds(lanes).size, 0);
  const both = layRows([...lanes, ...lanes], new Set());
  assert.equal(both.filter((row) => row.kind === "design").length, 2);
});

test("zooming keeps the time under the pointer where it is, and no view leaves the step", () => {
  const view = zoomed({ from: 0, to: 10 }, 2.5, 0.5, 10, 1e-6);
  assert.deepEqual(view, { from: 1.25, to: 6.25 });
  assert.deepEqual(zoomed(view, 6, 100, 10, 1e-6), { from: 0, to: 10 });
  assert.deepEqual(within({ from: -3, to: 1 }, 10, 1), { from: 0, to: 4 });
  assert.deepEqual(within({ from: 9.9, to: 9.95 }, 10, 1), { from: 9, to: 10 });
  assert.deepEqual(around(4, 6, 0.5, 10, 1), { from: 3, to: 7 });
});

test("a view survives the way through the address; nonsense there is no view", () => {
  const opening = { from: 1, to: 2 };
  assert.equal(viewText({ ...opening }, opening), "");
  assert.equal(viewText({ from: 0, to: 10 }, opening), "0_10");
  assert.deepEqual(viewOf(viewText({ from: 1.25, to: 2.5 }, opening), 10, 1e-6), { from: 1.25, to: 2.5 });
  for (const text of ["", "3", "b_a", "3_2", "-1_2", "NaN_NaN"]) assert.equal(viewOf(text, 10, 1e-6), null);
});

test("a timeline opens where something happens: on all of it where that can be read, never on a bubble", () => {
  assert.deepEqual(openingView([{ label: "", spans: SMALL() }], 5), { from: 0, to: 5 });
  const drawn: Drawn[] = [{ track: 0, name: "bubble", kind: "idle", start: 0, end: 400 }];
  for (let place = 0; place < 200; place++) drawn.push({ track: 0, name: "F", kind: "compute", start: 400 + place, end: 400 + place + 0.9 });
  drawn.push({ track: 0, name: "bubble", kind: "idle", start: 600, end: 1000 });
  const spans = packed(drawn, [{ name: "rank 0", ranks: 1 }], [{ process: 0, name: "all" }]);
  const { from, to } = openingView([{ label: "", spans }], 1000);
  assert.ok(from > 350 && to < 650, `${from} to ${to}`);
  assert.ok(to - from < 300);
  const few = openingView([{ label: "", spans }], 1000, 0.4);
  assert.ok(few.to - few.from < to - from);
});

test("of parts with as much compute, the one with communication is shown", () => {
  const drawn: Drawn[] = [];
  for (let place = 0; place < 300; place++) drawn.push({ track: 0, name: "F", kind: "compute", start: place, end: place + 0.5 });
  for (let place = 200; place < 240; place++) drawn.push({ track: 1, name: "all-reduce", kind: "exposed", start: place + 0.5, end: place + 1 });
  const spans = packed(drawn, [{ name: "rank 0", ranks: 1 }], [{ process: 0, name: "compute" }, { process: 0, name: "dp" }]);
  const { from, to } = openingView([{ label: "", spans }], 300);
  assert.ok(from >= 195 && to <= 245, `${from} to ${to}`);
});

test("times on the axis have the digits that tell them apart", () => {
  assert.equal(tickText(0.02, 0.1)(0.04), "40 ms");
  assert.equal(tickText(0.0005, 0.1)(0.0405), "40.5 ms");
  assert.equal(tickText(50, 400)(350), "350 s");
});

test("short names keep what tells tasks apart", () => {
  assert.deepEqual(["mb3.layer0.attention.backward", "forward 12", "F12", "waits", "tp, backward"].map(shortName), ["B3", "F12", "", "", ""]);
});

test("a trace for Perfetto holds every span, arrow and sample, in microseconds", () => {
  const { traceEvents } = JSON.parse(traceText(SMALL())) as { traceEvents: Record<string, unknown>[] };
  const of = (phase: string): Record<string, unknown>[] => traceEvents.filter((each) => each.ph === phase);
  assert.deepEqual(of("X").map((each) => [each.name, each.ts, each.dur]), [["F0", 0, 1e6], ["B0", 1.5e6, 1.5e6], ["gradients", 3e6, 1e6], ["updated weights", 4e6, 1e6]]);
  assert.deepEqual(of("X").map((each) => [each.pid, each.tid, each.cat]), [[0, 1, "compute"], [0, 1, "compute"], [1, 3, "exposed"], [1, 3, "hidden"]]);
  assert.deepEqual([of("s").length, of("f").length, of("C").length], [1, 1, 3]);
  assert.deepEqual(of("M").filter((each) => each.name === "process_name").map((each) => each.args), [{ name: "stage 0 ×3" }, { name: "stage 1" }]);
});
