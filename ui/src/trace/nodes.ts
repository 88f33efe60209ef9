// The nodes of a trace as typed arrays. No object per node.

import { type Numbers, unpack } from "../container";
import { wantedNames } from "../design/spans";
import type { DependencyColumns, NodeAttribute, SignedNumbers, TraceRank, TraceView } from "../document";

/** Lists of nodes, one for each node: those of node n are `to[first[n]]` up to `to[first[n + 1]]`. */
export interface Lists {
  first: Uint32Array;
  to: Uint32Array;
  /** 1 for control dependencies. */
  ctrl: Uint8Array;
}

export interface Nodes {
  view: TraceView;
  count: number;
  id: Float64Array;
  type: Numbers;
  name: Numbers;
  track: Numbers;
  kind: Numbers;
  /** In seconds, or in steps. */
  start: Float64Array;
  end: Float64Array;
  depth: Numbers;
  critical: Uint8Array;
  /** What each node depends on, and what depends on it. */
  before: Lists;
  after: Lists;
  /** Ids that a node depends on and that no node has. */
  absent: Map<number, number[]>;
  attributes: { spec: NodeAttribute; codes: Numbers }[];
}

export function decodeNodes(view: TraceView, binary: Uint8Array): Nodes {
  const { nodes, tick } = view;
  const { count } = nodes;
  const start = signed(nodes.start, binary);
  const duration = unpack(nodes.duration, binary);
  const end = new Float64Array(count);
  for (let node = 0; node < count; node++) {
    end[node] = (start[node] + duration[node]) * tick;
    start[node] *= tick;
  }
  const before = joinedLists(count, nodes.data, nodes.ctrl, binary);
  return {
    view, count, start, end, before,
    id: signed(nodes.id, binary),
    type: unpack(nodes.type, binary),
    name: unpack(nodes.name, binary),
    track: unpack(nodes.track, binary),
    kind: unpack(nodes.kind, binary),
    depth: unpack(nodes.depth, binary),
    critical: unpack(nodes.critical, binary) as Uint8Array,
    after: reversed(before, count),
    absent: absentOf(unpack(nodes.absent.node, binary), unpack(nodes.absent.id, binary)),
    attributes: nodes.attributes.map((spec) => ({ spec, codes: unpack((spec.codes ?? spec.numbers)!, binary) })),
  };
}

export function signed({ numbers, running }: SignedNumbers, binary: Uint8Array): Float64Array {
  const written = unpack(numbers, binary);
  const values = new Float64Array(written.length);
  for (let place = 0, last = 0; place < written.length; place++) {
    const number = written[place];
    const value = number % 2 ? -(number + 1) / 2 : number / 2;
    values[place] = last = running ? last + value : value;
  }
  return values;
}

function joinedLists(count: number, data: DependencyColumns, ctrl: DependencyColumns, binary: Uint8Array): Lists {
  const kinds = [data, ctrl].map((each) => ({ counts: unpack(each.counts, binary), back: signed(each.back, binary), at: 0 }));
  const total = kinds.reduce((sum, { back }) => sum + back.length, 0);
  const [first, to, marks] = [new Uint32Array(count + 1), new Uint32Array(total), new Uint8Array(total)];
  let place = 0;
  for (let node = 0; node < count; node++) {
    first[node] = place;
    kinds.forEach((each, kind) => {
      for (let left = each.counts[node]; left > 0; left--, place++) {
        to[place] = node - each.back[each.at++];
        marks[place] = kind;
      }
    });
  }
  first[count] = place;
  return { first, to, ctrl: marks };
}

/** Returns, for each node, the nodes whose lists hold it. */
export function reversed({ first, to, ctrl }: Lists, count: number): Lists {
  const back: Lists = { first: new Uint32Array(count + 1), to: new Uint32Array(to.length), ctrl: new Uint8Array(to.length) };
  for (let place = 0; place < to.length; place++) back.first[to[place] + 1]++;
  for (let node = 0; node < count; node++) back.first[node + 1] += back.first[node];
  const next = back.first.slice();
  for (let node = 0; node < count; node++)
    for (let place = first[node]; place < first[node + 1]; place++) {
      const at = next[to[place]]++;
      back.to[at] = node;
      back.ctrl[at] = ctrl[place];
    }
  return back;
}

function absentOf(nodes: Numbers, ids: Numbers): Map<number, number[]> {
  const found = new Map<number, number[]>();
  for (let place = 0; place < nodes.length; place++) {
    const list = found.get(nodes[place]);
    if (list) list.push(ids[place]);
    else found.set(nodes[place], [ids[place]]);
  }
  return found;
}

export interface Link {
  node: number;
  ctrl: boolean;
}

/** Returns the distinct nodes of a list, data dependencies first. */
export function linksOf({ first, to, ctrl }: Lists, node: number): Link[] {
  const found = new Map<number, boolean>();
  for (const kind of [0, 1])
    for (let place = first[node]; place < first[node + 1]; place++)
      if (ctrl[place] === kind && !found.has(to[place])) found.set(to[place], kind === 1);
  return [...found].map(([each, control]) => ({ node: each, ctrl: control }));
}

/** Returns what a node states: label, value, unit. Groups and peers are those of a rank. */
export function statedBy(nodes: Nodes, node: number, rank: TraceRank): [string, string | number, string][] {
  const found: [string, string | number, string][] = [];
  for (const { spec, codes } of nodes.attributes) {
    const { values, worth = 1, name, label, unit } = spec;
    const value = values ? values[codes[node]] : codes[node] ? (codes[node] - 1) * worth : null;
    if (value === null || value === undefined) continue;
    if (name === "group") found.push([label, rank.groups[value as number] ?? value, unit]);
    else if (name === "peer") found.push([label, `rank ${rank.peers[value as number] ?? value}`, unit]);
    else found.push([label, value, unit]);
  }
  return found;
}

const TEMPLATE = /<[^<>]*>/g;

/** Returns a name short enough for a box: a C++ function without what it returns and takes, its templates and namespaces. */
export function briefName(name: string): string {
  if (!/^void |[<(]/.test(name) || name.length < 24) return name;
  let text = name.replace(/^void /, "").replaceAll("(anonymous namespace)", "");
  for (let before = ""; before !== text; ) [before, text] = [text, text.replace(TEMPLATE, "")];
  const open = text.search(/[(<{]/);
  const head = (open > 0 ? text.slice(0, open) : text).trim();
  const last = head.split("::").filter(Boolean).at(-1)?.trim() || name;
  // The kernels of CUTLASS are all of one name, and differ in its argument.
  const argument = /^kernel\d*$/i.test(last) ? /<\s*([\w:]+)/.exec(name)?.[1] : undefined;
  return argument ?? last;
}

/** Returns the node to open the page on: the longest of the critical path, else the longest of all; null for none. */
export function openingNode({ count, critical, start, end }: Nodes): number | null {
  let best: number | null = null;
  const better = (one: number, other: number): boolean =>
    critical[one] !== critical[other] ? critical[one] > critical[other] : end[one] - start[one] > end[other] - start[other];
  for (let node = 0; node < count; node++) if (best === null || better(node, best)) best = node;
  return best;
}

/** Returns the nodes whose name or id holds some text, in order of their start. */
export function foundNodes(nodes: Nodes, text: string): Uint32Array {
  const wanted = text.trim().toLowerCase();
  const fits = wantedNames(nodes.view.names, text);
  if (!fits) return new Uint32Array(0);
  const id = /^#?\d+$/.test(wanted) ? Number(wanted.replace("#", "")) : NaN;
  const places: number[] = [];
  for (let node = 0; node < nodes.count; node++) if (fits[nodes.name[node]] || nodes.id[node] === id) places.push(node);
  return Uint32Array.from(places).sort((a, b) => nodes.start[a] - nodes.start[b] || a - b);
}
