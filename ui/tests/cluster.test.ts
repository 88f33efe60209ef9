import assert from "node:assert/strict";
import { test } from "node:test";
import { axisSentence, dimensionSentence } from "../src/design/cluster";
import { evenSplit, inGroup, layOut, strides } from "../src/design/layout";
import type { NetworkDimension } from "../src/document";

const ring = (count: number): [number, number][] => Array.from({ length: count }, (_, member) => [member, (member + 1) % count]);

const NAMES = [
  "ring", "switch", "fully_connected", "mesh_2d", "mesh_3d", "torus_2d", "torus_3d", "hypercube", "fat_tree", "dragonfly",
  "line", "hybrid_cube_mesh", "one of a user's own",
];

test("sides of a grid are as even as they can be", () => {
  assert.deepEqual(evenSplit(12, 2), [3, 4]);
  assert.deepEqual(evenSplit(12, 3), [2, 2, 3]);
  assert.deepEqual(evenSplit(7, 2), [1, 7]);
});

for (const name of NAMES)
  test(`no two members of a ${name} share a place, and all lie in the picture`, () => {
    for (const npus of [2, 8, 12, 16, 64, 512]) {
      const layout = layOut(name, npus, npus > 64 ? [] : ring(npus));
      assert.equal(layout.symbolic, npus > 64);
      if (!layout.symbolic) assert.equal(layout.npus, npus);
      const seen = new Set(layout.places.map(([x, y]) => `${x.toFixed(3)} ${y.toFixed(3)}`));
      assert.equal(seen.size, layout.places.length, `${name} of ${npus}`);
      for (const [x, y] of layout.places) assert.ok(x >= -1e-9 && x <= 1 + 1e-9 && y >= -1e-9 && y <= 1 + 1e-9);
      for (const { from, to } of layout.wires) assert.ok(from < layout.places.length && to < layout.places.length);
    }
  });

test("wires are the connections that were given", () => {
  const links: [number, number][] = [[0, 4], [1, 4], [2, 4], [3, 4]];
  const layout = layOut("switch", 4, links);
  assert.deepEqual(layout.wires.map(({ from, to }) => [from, to]), links);
  assert.equal(layout.places.length, 5);
});

test("a torus goes round the edge in a bend", () => {
  const row: [number, number][] = [[0, 1], [1, 2], [2, 3], [0, 3], [0, 4], [4, 8], [8, 12], [0, 12]];
  const bent = layOut("torus_2d", 16, row).wires.filter((wire) => wire.bend).map(({ from, to }) => [from, to]);
  assert.deepEqual(bent, [[0, 3], [0, 12]]);
});

test("groups of an axis lie as far apart as the axes inside it reach", () => {
  const [tp, dp] = strides([{ name: "tp", ranks: 4 }, { name: "dp", ranks: 2 }]);
  assert.deepEqual([0, 1, 2, 3, 4, 5, 6, 7].filter((member) => inGroup(member, tp)), [0, 1, 2, 3]);
  assert.deepEqual([0, 1, 2, 3, 4, 5, 6, 7].filter((member) => inGroup(member, dp)), [0, 4]);
  const experts = strides([{ name: "tp", ranks: 2 }, { name: "dp", ranks: 4 }, { name: "ep", ranks: 2 }])[2];
  assert.deepEqual([0, 1, 2, 3, 4, 5, 6, 7].filter((member) => inGroup(member, experts)), [0, 2]);
});

test("an axis and a dimension are told in a sentence", () => {
  const dim: NetworkDimension = {
    topology: "ring", label: "ring of 8", npus: 8, bandwidth_bytes_per_s: 4e11, latency_s: 1e-6, algorithm: "halving_doubling",
    axes: [{ name: "tp", ranks: 4 }], load: [{ axis: "tp", label: "tensor parallel", bytes: 2 ** 30, seconds: 0.002 }], utilization: 0.25, links: [],
  };
  const cluster = { npus: 8, accelerator: "h100", axes: [], dims: [dim], reading: "" };
  assert.equal(
    axisSentence(cluster, { name: "tp", label: "tensor parallel", size: 4 }),
    "tp, tensor parallel: 4 ranks over 4 of the 8 members of dimension 1. Each accelerator sends 1 GiB per step, in 2 ms of communication.",
  );
  assert.equal(dimensionSentence(dim, 0), "Dimension 1: ring of 8, 400 GB/s, 1 µs, halving doubling, holds tp 4, 25 % used");
});
