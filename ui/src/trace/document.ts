// The document of traces: the contract between `cosmic.report.trace_page` and their page.
// Python's side: cosmic/report/document_types.py.

import type { Fact, Packed } from "../document";

/** Whole numbers of either sign: 2 n for n, -2 n - 1 for negative ones; if `running`, differences from one to the next. */
export interface Signed {
  numbers: Packed;
  running: boolean;
}

/** Dependencies of one kind: how many each node has, and by how many places back each is. */
export interface Edges {
  counts: Packed;
  back: Signed;
}

export interface Attribute {
  /** The column of Chakra: "comm_size". For "group" and "peer" a value is a place in those of the rank. */
  name: string;
  label: string;
  /** "", "s", "B", "FLOP". */
  unit: string;
  /** Codes into values, null for nodes that state none; or numbers plus one, 0 for none, each worth `worth`. */
  values?: (string | number | null)[];
  codes?: Packed;
  numbers?: Packed;
  worth?: number;
}

/** Nodes of one name and kind, or of one class of kernels. */
export interface Operator {
  name: string;
  kind: Kind;
  count: number;
  /** Seconds, or steps: see `View.unit`. */
  total: number;
  share: number;
}

export type Kind = "compute" | "communication" | "memory" | "cpu" | "other";

/** The nodes of ranks that run the same. */
export interface TraceView {
  facts: Fact[];
  /** Where the times come from. */
  reading: string;
  /** What is wrong with the dependencies: cycles, absent nodes. */
  problems: string[];
  recorded: boolean;
  /** What a unit of `start` and `duration` is worth: seconds, or steps. */
  tick: number;
  unit: "s" | "steps";
  /** When the last node ends. */
  duration: number;
  processes: string[];
  tracks: { process: number; name: string }[];
  types: string[];
  names: string[];
  /** Those that take the most time, and what is to be said of them. */
  operators: Operator[];
  operators_note: string;
  kernels: Operator[];
  /** Columns of all nodes, in ascending order of their ids. */
  nodes: {
    count: number;
    id: Signed;
    /** Codes into `types`, `names`, `tracks` and the document's `kinds`. */
    type: Packed;
    name: Packed;
    track: Packed;
    kind: Packed;
    start: Signed;
    duration: Packed;
    /** The most nodes that must run before it, one after the other. */
    depth: Packed;
    /** 1 on the critical path. */
    critical: Packed;
    data: Edges;
    ctrl: Edges;
    /** Dependencies on ids that no node has. */
    absent: { node: Packed; id: Packed };
    attributes: Attribute[];
  };
}

export interface TraceRank {
  rank: number;
  /** Its place in `views`. */
  view: number;
  groups: string[];
  peers: number[];
}

export interface TraceDocument {
  format: 1;
  title: string;
  /** Of all ranks together; none of a single one. */
  facts: Fact[];
  kinds: Kind[];
  ranks: TraceRank[];
  views: TraceView[];
}
