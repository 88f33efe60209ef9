"""Proves which design of a parameter set is best, and says so in a certificate that others can check.

    space ──skeletons──▶ skeletons × choices × ranges ──monotone──▶ may corners speak for boxes?
                                   │                                      │ yes                │ no
                                   ▼                                      ▼                    ▼
                              dominance ──▶ branching (bounding: boxes of bandwidth)      enumerating
                                                        └──────────▶ certificate ◀─────────────┘
                                                                          │
                                                                       checking, which shares none of this

A *skeleton* is all of a design but the topology, algorithm, bandwidth and latency of the network's dimensions. The
network enters a step through the seconds of collectives alone, so that the fastest corner of a box of bandwidths bounds
the step of every design inside it (`monotone` shows this for each skeleton, from the recorded program).
"""
