import assert from "node:assert/strict";
import { test } from "node:test";
import { tickText } from "../src/design/view";
import type { Kind } from "../src/aliases";
import type { NodeAttribute, Packed, SignedNumbers, TraceDocument, TraceRank, TraceView } from "../src/document";
import { depthsOf, layersOf, neighbourhood } from "../src/trace/graph";
import { fitted, placeOf, under } from "../src/trace/graph_paint";
import { briefName, decodeNodes, foundNodes, linksOf, type Nodes, openingNode, statedBy } from "../src/trace/nodes";
import { sameAs } from "../src/trace/page";
import { laidOut, traceHeat, untilOf } from "../src/trace/spans";
import { timeText } from "../src/trace/state";

const KINDS: Kind[] = ["compute", "communication", "memory", "cpu", "other"];

interface Row {
  id: number;
  name?: string;
  track?: number;
  kind?: Kind;
  start?: number;
  duration?: number;
  critical?: boolean;
  data?: number[];
  ctrl?: number[];
}

/** Packs nodes as Python does, in ascending order of their ids. */
function packed(rows: Row[], more: Partial<TraceView> = {}, attributes: (pack: (values: number[]) => Packed) => NodeAttribute[] = () => []): [TraceView, Uint8Array] {
  const parts: number[] = [];
  const pack = (values: number[]): Packed => {
    const offset = parts.length;
    for (const shift of [0, 8, 16, 24]) for (const value of values) parts.push((value >>> shift) & 255);
    return { offset, count: values.length, type: "u32" };
  };
  const zigzag = (values: number[]): Packed => pack(values.map((value) => (value < 0 ? -2 * value - 1 : 2 * value)));
  const running = (values: number[]): SignedNumbers => ({ numbers: zigzag(values.map((value, place) => value - (values[place - 1] ?? 0))), running: true });
  const place = (id: number): number => rows.findIndex((each) => each.id === id);
  const names = [...new Set(rows.map((each) => each.name ?? ""))];
  const edges = (kind: "data" | "ctrl") => ({
    counts: pack(rows.map((each) => (each[kind] ?? []).length)),
    back: { numbers: zigzag(rows.flatMap((each, at) => (each[kind] ?? []).map((id) => at - place(id)))), running: false },
  });
  const depth: number[] = [];
  for (const each of rows) depth.push(Math.max(-1, ...[...(each.data ?? []), ...(each.ctrl ?? [])].map((id) => depth[place(id)] ?? -1)) + 1);
  const view: TraceView = {
    facts: [], reading: "", problems: [], recorded: true, tick: 1, unit: "s", duration: Math.max(0, ...rows.map((each) => (each.start ?? 0) + (each.duration ?? 1))),
    processes: ["one"],
    tracks: Array.from({ length: Math.max(1, ...rows.map((each) => (each.track ?? 0) + 1)) }, (_, track) => ({ process: 0, name: `track ${track}` })),
    types: ["COMP"], names, operators: [], operators_note: "", kernels: [],
    nodes: {
      count: rows.length,
      id: running(rows.map((each) => each.id)),
      type: pack(rows.map(() => 0)),
      name: pack(rows.map((each) => names.indexOf(each.name ?? ""))),
      track: pack(rows.map((each) => each.track ?? 0)),
      kind: pack(rows.map((each) => KINDS.indexOf(each.kind ?? "compute"))),
      start: running(rows.map((each) => each.start ?? 0)),
      duration: pack(rows.map((each) => each.duration ?? 1)),
      depth: pack(depth),
      critical: { ...pack([]), offset: parts.push(...rows.map((each) => Number(each.critical ?? false))) - rows.length, count: rows.length, type: "u8" },
      data: edges("data"),
      ctrl: edges("ctrl"),
      absent: { node: pack([0]), id: pack([99]) },
      attributes: attributes(pack),
    },
    ...more,
  };
  return [view, Uint8Array.from(parts)];
}

function nodesOf(rows: Row[], more: Partial<TraceView> = {}): Nodes {
  return decodeNodes(...packed(rows, more));
}

test("nodes are decoded with their dependencies in both directions", () => {
  const nodes = nodesOf([{ id: 3, start: 5, duration: 2 }, { id: 4, start: 1, data: [3] }, { id: 9, data: [3, 4], ctrl: [3] }]);
  assert.deepEqual([...nodes.id], [3, 4, 9]);
  assert.deepEqual([...nodes.start], [5, 1, 0]);
  assert.deepEqual([...nodes.end], [7, 2, 1]);
  assert.deepEqual(linksOf(nodes.before, 2), [{ node: 0, ctrl: false }, { node: 1, ctrl: false }]); // each node once
  assert.deepEqual(linksOf(nodes.after, 0).map(({ node }) => node), [1, 2]);
  assert.deepEqual(nodes.absent.get(0), [99]);
});

test("a node on a later one, as in a cycle, is decoded, too", () => {
  const nodes = nodesOf([{ id: 1, data: [2] }, { id: 2, ctrl: [1] }]);
  assert.deepEqual(linksOf(nodes.before, 0), [{ node: 1, ctrl: false }]);
  assert.deepEqual(linksOf(nodes.before, 1), [{ node: 0, ctrl: true }]);
});

test("what a node states is that of the rank", () => {
  const [view, binary] = packed([{ id: 1 }, { id: 2 }], {}, (pack) => [
    { name: "group", label: "group", unit: "", values: [null, 0], codes: pack([0, 1]) },
    { name: "peer", label: "peer", unit: "", values: [null, 1], codes: pack([0, 1]) },
    { name: "delay_ns", label: "delay", unit: "s", numbers: pack([0, 8]), worth: 0.5 },
  ]);
  const nodes = decodeNodes(view, binary);
  const rank: TraceRank = { rank: 0, view: 0, groups: ["dp"], peers: [4, 6] };
  assert.deepEqual(statedBy(nodes, 0, rank), []);
  assert.deepEqual(statedBy(nodes, 1, rank), [["group", "dp", ""], ["peer", "rank 6", ""], ["delay", 3.5, "s"]]);
});

test("spans are sorted by track and start, and lead back to their nodes", () => {
  const nodes = nodesOf([{ id: 1, track: 1, start: 4 }, { id: 2, start: 9 }, { id: 3, start: 2 }, { id: 4, track: 1, start: 0, duration: 20 }]);
  const { spans, nodeOf, spanOf } = laidOut(nodes, KINDS);
  assert.deepEqual([...nodeOf], [2, 1, 3, 0]);
  assert.deepEqual([...spanOf], [3, 1, 0, 2]);
  assert.deepEqual([...spans.first], [0, 2, 4]);
  assert.deepEqual([...spans.reach], [3, 10, 20, 20]);
});

test("a trace without any time is still as long as a tick", () => {
  assert.equal(untilOf({ duration: 0, tick: 1e-9 }), 1e-9);
  const { spans } = laidOut(nodesOf([{ id: 1, duration: 0 }]), KINDS);
  assert.ok(spans.sums[0][1] > 0); // it is drawn
});

test("the strip counts compute, and communication that nothing hides", () => {
  const { spans } = laidOut(
    nodesOf([{ id: 1, start: 0, duration: 4 }, { id: 2, kind: "communication", start: 2, duration: 6 }, { id: 3, kind: "cpu", start: 0, duration: 8 }]),
    KINDS,
  );
  const { busy, exposed } = traceHeat(spans, 8, 4);
  assert.deepEqual([...busy], [1, 1, 0, 0]); // without the CPU: an accelerator computes
  assert.deepEqual([...exposed], [0, 0, 1, 1]);
});

test("names of kernels are shortened to their function", () => {
  assert.equal(briefName("void at::native::vectorized_elementwise_kernel<4, at::native::Functor<float> >(int, char*)"), "vectorized_elementwise_kernel");
  assert.equal(briefName("void cutlass::Kernel<cutlass_80_tensorop_bf16>(Params)"), "cutlass_80_tensorop_bf16");
  assert.equal(briefName("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<A<int> >(B)"), "multi_tensor_apply_kernel");
  assert.equal(briefName("mb0.layer12.attention.weight_gradient"), "mb0.layer12.attention.weight_gradient");
  assert.equal(briefName("aten::linear"), "aten::linear");
  assert.equal(briefName(""), "");
});

test("nodes are found by name and by id, in order of their start", () => {
  const nodes = nodesOf([{ id: 7, name: "GEMM", start: 5 }, { id: 8, name: "norm" }, { id: 9, name: "gemm 7", start: 1 }]);
  assert.deepEqual([...foundNodes(nodes, "gemm")], [2, 0]);
  assert.deepEqual([...foundNodes(nodes, "7")], [2, 0]);
  assert.deepEqual([...foundNodes(nodes, " ")], []);
  assert.deepEqual([...foundNodes(nodes, "none")], []);
});

test("the page opens on the longest node of the critical path", () => {
  assert.equal(openingNode(nodesOf([{ id: 1, duration: 9 }, { id: 2, duration: 3, critical: true }, { id: 3, duration: 4, critical: true }])), 2);
  assert.equal(openingNode(nodesOf([])), null);
});

test("layers go from left to right, and a node stands next to what needs it", () => {
  const layers = layersOf([1, 2, 3, 4], [{ from: 1, to: 2, ctrl: false }, { from: 2, to: 3, ctrl: false }, { from: 4, to: 3, ctrl: false }]);
  assert.deepEqual([...layers].sort(), [[1, 0], [2, 1], [3, 2], [4, 1]]);
});

test("layers of a cycle end", () => {
  const layers = layersOf([1, 2], [{ from: 1, to: 2, ctrl: false }, { from: 2, to: 1, ctrl: false }]);
  assert.deepEqual([...layers], [[1, 0], [2, 1]]);
});

test("a neighbourhood holds what is within some steps, and counts the rest", () => {
  const chain = nodesOf(Array.from({ length: 9 }, (_, place) => ({ id: place, ...(place ? { data: [place - 1] } : {}) })));
  const around = neighbourhood(chain, 4, 2);
  assert.deepEqual(around.placed.map(({ node, layer }) => [node, layer]), [[2, 0], [3, 1], [4, 2], [5, 3], [6, 4]]);
  assert.deepEqual(around.placed[0].more, { before: 1, after: 0 });
  assert.deepEqual(around.placed[4].more, { before: 0, after: 1 });
  assert.equal(around.edges.length, 4);
});

test("a neighbourhood of thousands of dependents stays small, without the node itself", () => {
  const fan = nodesOf([{ id: 0 }, ...Array.from({ length: 3000 }, (_, place) => ({ id: place + 1, data: [0] }))]);
  const around = neighbourhood(fan, 0, 4);
  assert.equal(around.placed.length, 25);
  assert.equal(around.placed.find(({ node }) => node === 0)!.more.after, 3000 - 24);
  const own = neighbourhood(nodesOf([{ id: 5, data: [5] }]), 0, 2);
  assert.deepEqual([own.placed.length, own.edges.length, own.placed[0].more], [1, 0, { before: 0, after: 0 }]);
});

test("a click finds the node that is drawn there", () => {
  const around = neighbourhood(nodesOf([{ id: 0 }, { id: 1, data: [0] }, { id: 2, data: [0] }]), 0, 2);
  const camera = fitted(around, 800, 400);
  for (const placed of around.placed) {
    const { x, y } = placeOf(placed, around.layers);
    assert.equal(under(around, camera, { x: camera.x + x * camera.scale, y: camera.y + y * camera.scale }), placed);
  }
  assert.equal(under(around, camera, { x: 0, y: 0 }), null);
});

test("nodes are counted by depth, and each depth opens its critical or longest node", () => {
  const nodes = nodesOf([{ id: 0, duration: 1, critical: true }, { id: 1, duration: 5 }, { id: 2, data: [0], kind: "communication" }, { id: 3, data: [1], duration: 4 }]);
  const depths = depthsOf(nodes, KINDS.length, 600);
  assert.deepEqual([depths.most, depths.bins], [1, 2]);
  assert.deepEqual(depths.counts.slice(0, 2).map((each) => [...each]), [[2, 1], [0, 1]]);
  assert.deepEqual([...depths.open], [0, 3]);
});

test("times are written in seconds or in steps", () => {
  assert.equal(timeText(0.0012, { unit: "s" } as TraceView), "1.2 ms");
  assert.equal(timeText(1, { unit: "steps" } as TraceView), "1 step");
  assert.equal(tickText(20, 100, false)(40), "40");
  assert.equal(tickText(0.5, 2, false)(1.5), "1.5");
});

test("a rank says how many others run the same", () => {
  const ranks = [0, 0, 1].map((view, rank) => ({ rank, view, groups: [], peers: [] }));
  assert.equal(sameAs({ ranks } as unknown as TraceDocument, 0), "runs the same nodes as one other rank");
  assert.equal(sameAs({ ranks } as unknown as TraceDocument, 2), "no other rank runs the same nodes");
});
