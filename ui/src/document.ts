// The document that Python writes and the pages show: the contract between `cosmic.report` and the front end.
// Names are snake_case and in SI units, as in every JSON of COSMIC. Python's side: cosmic/report/document_types.py.

/** Numbers in the binary part of a container (see container.ts), byte planes one after another. */
export interface Packed {
  /** Bytes from the beginning of the binary part. */
  offset: number;
  count: number;
  type: "u8" | "u16" | "u32" | "f32" | "f64";
}

// ------------------------------------------------------------------------------------------------ trials

export type Value = string | number | boolean;

export type Coding =
  /** One of a few values; for a metric, a code beyond the last one means no value. With `of`, the packed codes are those
   * of a tuple of values, and `of` says which of `values` each tuple has: the parts of a tuple share their codes. */
  | { kind: "choices"; values: Value[]; labels: string[]; codes: Packed; of?: number[] }
  /** Plain numbers; NaN for no value. */
  | { kind: "numbers"; numbers: Packed }
  /** Numbers between two bounds in 65,534 equal steps, of the logarithm if `log`; code 0 for no value. */
  | { kind: "scaled"; codes: Packed; low: number; high: number; log: boolean }
  /** Numbers computed from another column: `by` times, `by` over, or `by` plus its numbers. */
  | { kind: "from"; column: number; rule: "times" | "over" | "plus"; by: number };

export interface Column {
  /** The path of a parameter ("workload.tp") or the name of a metric ("step_s"). */
  name: string;
  /** As it is shown: "tp", "bandwidth of dimension 1", "step". */
  label: string;
  role: "parameter" | "metric";
  /** The layer that a parameter belongs to; empty for metrics. */
  stack: string;
  /** "", "s", "B", "B/s", "USD", "J", "share" (0.4 is shown as 40 %), "1/s" … */
  unit: string;
  /** Which way a metric is better; empty for parameters. */
  better: "" | "less" | "more";
  /** Whether the search optimised it; the first objective decides which design is best. */
  objective: boolean;
  coding: Coding;
  /** Which entry it is of a parameter that sets several fields at once: "workload.{dp,tp}". */
  part?: { of: string; place: number };
}

/** Trials by column; a study that grows is sent as several blocks, each continuing the last. */
export interface Block {
  /** The number of the first trial. */
  first: number;
  count: number;
  columns: Column[];
  /** Why each trial cannot run: a code into `reasons`; the first reason is empty, for trials that run. */
  reasons: string[];
  outcomes: Packed;
  /** In a study of serving, for each trial 1 where pools of its own prefill (disaggregated), else 0 (aggregated). */
  pools?: Packed;
}

// ----------------------------------------------------------------------------------------------- sections

export interface Fact {
  label: string;
  /** As it is shown: "11.2 ms". */
  text: string;
  /** The exact value in SI units, for copying; null where there is no number. */
  value: number | null;
  note: string;
}

export interface Gain {
  /** "the base design", "the best of workload alone". */
  over: string;
  /** How many times better the best is by the first objective; null where the other cannot run. */
  times: number | null;
}

/** How many designs are as good as the best, by the first objective. */
export interface Plateau {
  /** Within which share of the best: 0.01. */
  share: number;
  count: number;
  /** The mean relative error of the model and how many designs lie within it; null where it is not known. */
  error: number | null;
  within_error: number | null;
  sentence: string;
}

/** How a framework launches a design. */
export interface Launch {
  /** "Megatron-LM"; empty where none can. */
  target: string;
  /** "cosmic design export best.yaml --to megatron". */
  export: string;
  /** The lines of shell that it prints. */
  script: string;
  /** Which frameworks can, or why none can. */
  note: string;
}

export interface Verdict {
  /** "llama3-70b on 512 × h100-sxm-80gb: 1,016 tokens/s/GPU"; empty where there is no single best design. */
  headline: string;
  /** "4.10× over the base design; GEMMs bound it (80 % of the step)". */
  sentence: string;
  /** The best design in a few words: "dp 128 · tp 2 · microbatch 1 · zero1 · recompute none, on ring 4 × switch 64". */
  design: string;
  objective: string;
  gains: Gain[];
  /** What bounds the best design. */
  bound: string;
  facts: Fact[];
  /** measured, calibrated or estimate; empty where nothing runs. */
  provenance: string;
  /** Mean relative error to expect of the step; null where nothing runs. */
  expected_error: number | null;
  expected_on: string;
  /** The shell command and the Python lines that search this again. */
  command: string;
  python: string;
  /** What a reader should know first: interrupted, no feasible design, no searches of single layers. */
  caveats: string[];
  /** null where nothing runs. */
  plateau: Plateau | null;
  /** What the best system does with each of several workloads, each in its own words; left out where there is one. */
  workloads?: WorkloadVerdict[];
}

export interface WorkloadVerdict {
  /** "chat". */
  name: string;
  /** "weight 3". */
  note: string;
  /** "llama3-8b on 16 × h100-sxm-80gb: 1,016 tokens/s/GPU". */
  headline: string;
  /** How it is mapped, in words. */
  design: string;
  facts: Fact[];
}

/** The colour class of a component of a step, or of a span; "hidden" is overlapped communication. */
export type Class = "compute" | "exposed" | "hidden" | "idle" | "memory" | "optimizer" | "other";

export interface Part {
  name: string;
  label: string;
  class: Class;
  seconds: number;
}

export interface MemoryPart {
  name: string;
  label: string;
  bytes: number;
}

/** What one tier of memory (HBM, host, CXL, pool, drive) has for each accelerator, and what it holds. */
export interface Tier {
  name: string;
  capacity_bytes: number;
  used_bytes: number;
  /** Bytes that cross its link in a step, both ways together; 0 of HBM, and of tiers that kernels read in place. */
  traffic_bytes: number;
  /** What it holds. */
  parts: MemoryPart[];
}

/** Memory by tier, and what transfers between tiers cost. */
export interface Tiers {
  sentence: string;
  /** Seconds of the step in which compute waits for transfers. */
  exposed_s: number;
  rows: Tier[];
}

export interface Change {
  /** What changes together: "mapping", "network bandwidth". */
  label: string;
  fields: { path: string; from: string; to: string }[];
  /** Its factor of the gain; the factors of all changes multiply to the gain. */
  worth: number | null;
  /** The gain when the base takes only this change; null where that is an invalid mapping. */
  alone: number | null;
}

export interface Why {
  /** One sentence on what the changes add up to. */
  sentence: string;
  /** The changes that matter most, at most five, largest worth first; then `rest` for all others together. */
  changes: Change[];
  rest: number | null;
  /** "exact", "sampled", "one_at_a_time" or "none". */
  method: string;
  /** Indices into `designs`: the base, the best of each layer alone, the best. */
  compared: number[];
}

/** The best so far of each search over its evaluations. */
export interface Convergence {
  objective: string;
  label: string;
  unit: string;
  better: "less" | "more";
  series: { name: string; points: [number, number][] }[];
}

export interface Trust {
  /** Names and values: space, agent, seed, objectives, constraints, engine, identity, when it was written … */
  inputs: [string, string][];
  versions: [string, string][];
  /** What the model leaves out, each a sentence. */
  limits: string[];
  /** Designs that cannot run, by reason, most first; `label` is a sentence. */
  failures: { reason: string; label: string; count: number }[];
  raw: number;
  valid: number;
  evaluated: number;
  feasible: number;
  /** A sentence: the share of the valid designs that was tried. */
  coverage: string;
  commands: { label: string; command: string }[];
}

// ------------------------------------------------------------------------------------------------- designs

export interface Design {
  /** "base", "best", "workload alone", "trial 412". */
  label: string;
  role: "base" | "isolated" | "best" | "front" | "other";
  /** Its number in the study; null for one that is not in it. */
  trial: number | null;
  identity: string;
  /** The whole design, ready for `cosmic evaluate`. */
  yaml: string;
  /** A command that evaluates it again. */
  command: string;
  feasible: boolean;
  reasons: string[];
  step_s: number | null;
  /** P5 and P95 of what the step is expected to take when measured; null where it cannot run. */
  step_s_range: [number, number] | null;
  facts: Fact[];
  parts: Part[];
  memory: MemoryPart[];
  capacity_bytes: number;
  /** Of a design whose state is in several tiers of memory; left out where all of it is in HBM. */
  tiers?: Tiers;
  bound: string;
  cluster: Cluster | null;
  timeline: Timeline | null;
  roofline: Roofline | null;
  /** Of the best design of a report, and of every design that a page asked for. */
  launch: Launch | null;
  /** Of a design with a load of requests; left out where a design is a single step. Its `step_s`, `parts`, cluster,
   * roofline and timeline are then those of one decode step with the requests that run under the load. */
  serving?: Serving;
}

// ------------------------------------------------------------------------------------------------- serving

/** What a design does under its load of requests. */
export interface Serving {
  kind: "aggregated" | "disaggregated";
  /** "vllm". */
  engine: string;
  /** "64 requests in flight, 4,000 tokens in and 500 out". */
  load: string;
  /** "2 replicas × tp 8". */
  mapping: string;
  /** "at most 256 requests and 8,192 tokens a step, KV cache in fp8". */
  limits: string;
  latencies: Latency[];
  pools: Pool[];
  /** Where the mean time to first token, the mean time per output token and a mean decode step go. */
  spent: Spent[];
  /** Latency over load; null where none could be computed. */
  curves: Curves | null;
  /** What the numbers say, in a sentence: whether the SLOs hold, and what waits for what. */
  reading: string;
}

export interface Latency {
  name: "ttft" | "tpot" | "e2e";
  label: string;
  mean_s: number;
  p50_s: number;
  p95_s: number;
  p99_s: number;
  /** The limit that it is to hold; null where there is none. */
  slo: Slo | null;
}

/** A limit on a latency. */
export interface Slo {
  /** The metric that it limits, as a column of the trials is called: "ttft_p95_s". */
  metric: string;
  /** Which value of the latency: "mean", "p50", "p95" or "p99". */
  statistic: string;
  limit_s: number;
  /** "TTFT p95 ≤ 1 s". */
  text: string;
}

/** Equal engine instances. */
export interface Pool {
  /** "all", "prefill" or "decode". */
  name: string;
  /** "prefill and decode". */
  label: string;
  instances: number;
  npus: number;
  accelerator: string;
  /** An instance: "tp 8 · attention dp 2 · ep 16". */
  mapping: string;
  /** Share of time in which its accelerators run steps; null where it is not known. */
  utilization: number | null;
  /** Share of the KV cache that running requests fill. */
  kv_use: number | null;
  /** Mean requests that run and that wait, in all instances. */
  running: number | null;
  waiting: number | null;
}

/** A time taken apart. */
export interface Spent {
  name: "ttft" | "tpot" | "decode";
  label: string;
  /** What the parts add up to. */
  seconds: number;
  parts: Part[];
}

/** Latency over load, in closed form. */
export interface Curves {
  /** "requests in flight" or "requests per second". */
  label: string;
  unit: "" | "1/s";
  /** The design's own load. */
  at: number;
  loads: number[];
  /** By load; null where the load is more than the deployment can serve. */
  ttft: Curve;
  tpot: Curve;
  tokens_per_s_per_npu: (number | null)[];
  tokens_per_s_per_user: (number | null)[];
  /** The first load, on this grid, that is more than it can serve; null where there is none. */
  saturated: number | null;
  /** The largest load, on this grid, that holds every SLO; null where there is none, or no SLO. */
  holds: number | null;
  reading: string;
}

export interface Curve {
  label: string;
  p50_s: (number | null)[];
  p95_s: (number | null)[];
  slo: Slo | null;
}

/** What a study of serving is about. */
export interface ServingStudy {
  /** The metrics of the trade-off, by the names of their columns. */
  user: string;
  npu: string;
  slos: Slo[];
}

/** A parallel axis, innermost first. */
export interface ParallelAxis {
  /** dp, tp, cp, pp, ep … */
  name: string;
  label: string;
  size: number;
}

export interface NetworkDimension {
  topology: string;
  label: string;
  npus: number;
  bandwidth_bytes_per_s: number;
  latency_s: number;
  algorithm: string;
  /** The axes whose groups span this dimension, innermost first, and how many ranks of each it holds. */
  axes: { name: string; ranks: number }[];
  /** What an accelerator sends into it in a step, by axis. */
  load: { axis: string; label: string; bytes: number; seconds: number }[];
  /** Share of its bandwidth that is used over the step: 0 to 1. */
  utilization: number;
  /** Links of one instance of the dimension, as pairs of its members; members from `npus` on are switches. */
  links: [number, number][];
}

export interface Cluster {
  npus: number;
  accelerator: string;
  axes: ParallelAxis[];
  /** Innermost first. */
  dims: NetworkDimension[];
  /** One sentence on how to read the picture: "tp 8 in network dimension 1 …". */
  reading: string;
}

export interface Timeline {
  engine: "analytic" | "event";
  duration_s: number;
  /** A rank or stage, and how many ranks are identical to it. */
  processes: { name: string; ranks: number }[];
  tracks: { process: number; name: string }[];
  /** Names of spans, by code. */
  names: string[];
  classes: Class[];
  /** Spans sorted by track and start. Times are codes into `seconds`: the gap since the end of the span before on the
   * same track (since 0 for the first; negative where they overlap), and the duration. */
  spans: {
    count: number;
    track: Packed;
    name: Packed;
    class: Packed;
    gap: Packed;
    duration: Packed;
    /** 1 where a span lies on the critical path. */
    critical: Packed;
  };
  seconds: number[];
  /** Arrows between spans, by index. */
  flows: { count: number; from: Packed; to: Packed };
  /** A value is valid from its time until the next. With `levels`, times are codes into `seconds` of the time since the
   * sample before (since 0 for the first), and values are codes into `levels`; without, both are plain numbers. */
  counters: {
    process: number;
    name: string;
    unit: string;
    most: number | null;
    times: Packed;
    values: Packed;
    levels?: number[];
  }[];
  totals: { compute_s: number; exposed_s: number; hidden_s: number; idle_s: number };
  /** One sentence: what is drawn and what is left out. */
  reading: string;
}

export interface Roofline {
  precision: string;
  peak_flop_per_s: number;
  bandwidth_bytes_per_s: number;
  points: { name: string; intensity: number; flop_per_s: number; seconds: number; bound: "compute" | "memory" }[];
  reading: string;
}

// ------------------------------------------------------------------------------------------------ documents

export interface ReportDocument {
  format: 1;
  title: string;
  /** The directory of the study, as it was given. */
  study: string;
  verdict: Verdict;
  why: Why;
  trials: Block;
  /** Numbers of the trials on the Pareto front. */
  front: number[];
  convergence: Convergence;
  designs: Design[];
  /** Indices into `designs`; null where no design is feasible. */
  best: number | null;
  base: number | null;
  trust: Trust;
  /** Of a study of serving; left out otherwise. */
  serving?: ServingStudy;
}
