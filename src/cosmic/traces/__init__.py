"""Traces: what ran on each rank of a job, or is to run, as columns with one row per node.

Read `trace` first: it holds `TraceSet`, `RankTrace` and `Template`. `chakra` reads and writes files, `profiles`
converts PyTorch's profiles, projects them onto other machines and compares them, `synthesis` makes new traces.
`trace_checks` says what is wrong with traces, `repaired_traces` mends it, `replay` runs recorded ones again, and
`anonymization` hides names and numbers. Simulation on a network is in `cosmic.simulate`.

README.md beside this file lists every module, and which of them other rooms may import.
"""
