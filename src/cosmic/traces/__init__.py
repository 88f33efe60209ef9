"""Traces: what ran on each rank of a job, or is to run, as columns with one row per node.

This room answers: what does a trace hold, can it run, and how long would it take with other durations or on
another machine?

- `trace` holds `TraceSet`, `RankTrace` and `Template`; read it first. `dependencies`, `comm_groups`, `messages` and
  `kernel_work` read parts of them. `trace_checks` says what is wrong with traces, `repaired_traces` mends it.
- `chakra` reads and writes files: Chakra traces (protobuf and JSON) and ASTRA-sim's text workloads.
- `replay` runs recorded traces again with their own durations or with others.
- `trace_statistics` and `recorded_statistics` summarize, `trace_views` prints, `anonymization` hides names and numbers.
- `profiles` converts PyTorch's profiles to traces, projects them onto other machines and compares them.
- `synthesis` fits a model on traces and makes new ones of other lengths and numbers of ranks.

Simulation of traces on a network is in `cosmic.simulate`; this room knows no queues and no networks' state.
"""
