// The neighbourhood of a node, laid out in layers from left to right. Pure: no canvas, no DOM.

import { type Lists, linksOf, type Nodes } from "./nodes";

export interface Edge {
  from: number;
  to: number;
  ctrl: boolean;
}

export interface Placed {
  node: number;
  layer: number;
  /** Its place in the layer, from the top, and how many the layer has. */
  row: number;
  of: number;
  /** Dependencies and dependents that are not drawn. */
  more: { before: number; after: number };
}

export interface Neighbourhood {
  centre: number;
  placed: Placed[];
  edges: Edge[];
  layers: number;
  rows: number;
}

/** Nodes that one step in one direction adds at most, and all together. */
const MOST_STEP = 24;
const MOST = 120;

/** Returns the nodes within some steps of a node in both directions, laid out; where they are many, the nearest. */
export function neighbourhood(nodes: Nodes, centre: number, hops: number): Neighbourhood {
  const members = membersOf(nodes, centre, hops);
  const edges: Edge[] = [];
  for (const to of members)
    for (const { node, ctrl } of linksOf(nodes.before, to)) if (members.has(node) && node !== to) edges.push({ from: node, to, ctrl });
  const layer = layersOf([...members], edges);
  const columns = ordered(layer, edges, nodes);
  const into = new Map<number, number>();
  const out = new Map<number, number>();
  for (const { from, to } of edges) {
    into.set(to, (into.get(to) ?? 0) + 1);
    out.set(from, (out.get(from) ?? 0) + 1);
  }
  const others = (lists: Lists, node: number): number => linksOf(lists, node).filter((each) => each.node !== node).length;
  const placed = columns.flatMap((column, place) =>
    column.map((node, row) => ({
      node, row,
      layer: place,
      of: column.length,
      more: { before: others(nodes.before, node) - (into.get(node) ?? 0), after: others(nodes.after, node) - (out.get(node) ?? 0) },
    })),
  );
  return { centre, placed, edges, layers: columns.length, rows: Math.max(...columns.map((column) => column.length)) };
}

function membersOf(nodes: Nodes, centre: number, hops: number): Set<number> {
  const members = new Set([centre]);
  // Of a node's dependencies those that are deepest hold it up; of its dependents those that are shallowest come next.
  for (const [lists, sign] of [[nodes.before, -1], [nodes.after, 1]] as const) {
    let edge = [centre];
    for (let hop = 0; hop < hops && edge.length; hop++) {
      const next = new Set<number>();
      for (const node of edge) for (const link of linksOf(lists, node)) if (!members.has(link.node)) next.add(link.node);
      edge = [...next].sort((a, b) => nodes.critical[b] - nodes.critical[a] || sign * (nodes.depth[a] - nodes.depth[b]) || a - b);
      edge = edge.slice(0, Math.max(0, Math.min(MOST_STEP, MOST - members.size)));
      for (const node of edge) members.add(node);
    }
  }
  return members;
}

/** Returns the layer of each node: after all that it depends on, and as near as that allows to what depends on it. */
export function layersOf(members: number[], edges: Edge[]): Map<number, number> {
  const waiting = new Map(members.map((node) => [node, 0]));
  const after = new Map<number, number[]>(members.map((node) => [node, []]));
  for (const { from, to } of edges) {
    waiting.set(to, waiting.get(to)! + 1);
    after.get(from)!.push(to);
  }
  const layer = new Map(members.map((node) => [node, 0]));
  const left = new Set(members);
  const order: number[] = [];
  while (left.size) {
    // In a cycle nobody is ready: the one with the smallest number goes first.
    const ready = [...left].filter((node) => !waiting.get(node));
    for (const node of ready.length ? ready : [Math.min(...left)]) {
      left.delete(node);
      order.push(node);
      for (const next of after.get(node)!)
        if (left.has(next)) {
          waiting.set(next, waiting.get(next)! - 1);
          layer.set(next, Math.max(layer.get(next)!, layer.get(node)! + 1));
        }
    }
  }
  for (const node of order.reverse()) {
    const next = after.get(node)!.map((each) => layer.get(each)!).filter((each) => each > layer.get(node)!);
    if (next.length) layer.set(node, Math.min(...next) - 1);
  }
  const used = [...new Set(layer.values())].sort((a, b) => a - b);
  return new Map([...layer].map(([node, each]) => [node, used.indexOf(each)]));
}

/** Returns the nodes of each layer from top to bottom, so that few edges cross. */
function ordered(layer: Map<number, number>, edges: Edge[], nodes: Nodes): number[][] {
  const columns: number[][] = [];
  for (const [node, place] of layer) (columns[place] ??= []).push(node);
  for (const column of columns) column.sort((a, b) => nodes.critical[b] - nodes.critical[a] || a - b);
  const beside = new Map<number, number[]>();
  for (const { from, to } of edges) {
    for (const [one, other] of [[from, to], [to, from]]) {
      if (!beside.has(one)) beside.set(one, []);
      beside.get(one)!.push(other);
    }
  }
  const at = new Map<number, number>();
  const note = (column: number[]): void => column.forEach((node, row) => at.set(node, row - (column.length - 1) / 2));
  columns.forEach(note);
  for (let sweep = 0; sweep < 4; sweep++)
    for (const column of sweep % 2 ? columns.toReversed() : columns) {
      const middle = new Map(column.map((node) => {
        const near = beside.get(node) ?? [];
        return [node, near.length ? near.reduce((sum, each) => sum + at.get(each)!, 0) / near.length : at.get(node)!];
      }));
      column.sort((a, b) => middle.get(a)! - middle.get(b)! || a - b);
      note(column);
    }
  return columns;
}

/** Nodes by depth: how many there are of each kind, and one to open. */
export interface Depths {
  most: number;
  /** By kind, by bin. */
  counts: Float64Array[];
  bins: number;
  /** By depth, the node to open: one of the critical path, or the longest. */
  open: Int32Array;
}

export function depthsOf({ count, depth, kind, critical, start, end }: Nodes, kinds: number, mostBins: number): Depths {
  let deepest = 0;
  for (let node = 0; node < count; node++) deepest = Math.max(deepest, depth[node]);
  const bins = Math.min(mostBins, deepest + 1);
  const counts = Array.from({ length: kinds }, () => new Float64Array(bins));
  const open = new Int32Array(deepest + 1).fill(-1);
  for (let node = 0; node < count; node++) {
    const place = depth[node];
    counts[kind[node]][Math.floor((place * bins) / (deepest + 1))]++;
    const before = open[place];
    if (before < 0 || critical[node] > critical[before] || (critical[node] === critical[before] && end[node] - start[node] > end[before] - start[before]))
      open[place] = node;
  }
  return { most: deepest, counts, bins, open };
}
