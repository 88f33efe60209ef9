"""Proves which design of a parameter set is best, with a certificate that others can check. Read `certifying` first.

    space ──skeletons──▶ skeletons × choices × ranges ──monotonicity──▶ may corners speak for boxes?
                                   │                                        │ yes                │ no
                                   ▼                                        ▼                    ▼
                              branch_and_bound, by bounds of boxes                  every design, evaluated
                                                          └──────────▶ certificate ◀─────────────┘
                                                                            │
                                                       certificate_checker, which shares none of this

A *skeleton* is all of a design but the topology, algorithm, bandwidth and latency of the network's dimensions. The
network enters a step through the seconds of collectives alone, so that the fastest corner of a box of bandwidths bounds
the step of every design inside it (`monotonicity` shows this for each skeleton, from the recorded program).
"""
