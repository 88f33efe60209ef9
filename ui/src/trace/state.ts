// The state that the views of a trace share.

import { Signal } from "../base/signal";
import { show } from "../base/format";
import type { Kind } from "../aliases";
import type { TraceDocument, TraceRank, TraceView } from "../document";
import { decodeNodes, type Nodes } from "./nodes";
import { type Laid, laidOut } from "./spans";

export interface TraceState extends Laid {
  kinds: Kind[];
  nodes: Nodes;
  /** The node that all views show; null for none. */
  selected: Signal<number | null>;
}

/** The state, and the rank that is looked at: ranks that run the same nodes share the state. */
export interface Looking {
  state: TraceState;
  rank: TraceRank;
}

/** Returns what gives the state of a view, each decoded once. */
export function opener(document: TraceDocument, binary: Uint8Array): (view: number) => TraceState {
  const known = new Map<number, TraceState>();
  return (view) => {
    const before = known.get(view);
    if (before) return before;
    const nodes = decodeNodes(document.views[view], binary);
    const state = { kinds: document.kinds, nodes, ...laidOut(nodes, document.kinds), selected: new Signal<number | null>(null) };
    known.set(view, state);
    return state;
  };
}

/** Returns a time as it is shown: seconds, or steps. */
export function timeText(value: number, { unit }: TraceView): string {
  if (unit === "s") return show(value, "s");
  return `${Number(value.toFixed(1))} ${value === 1 ? "step" : "steps"}`;
}

/** "#12 matmul". */
export function nodeText({ nodes }: TraceState, node: number): string {
  const name = nodes.view.names[nodes.name[node]];
  return name ? `#${nodes.id[node]} ${name}` : `#${nodes.id[node]}`;
}
