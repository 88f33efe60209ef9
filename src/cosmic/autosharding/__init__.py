"""Automatic sharding: the annotations of a program's tensors that make its step shortest on a mesh of devices.

    program ──candidates──▶ variables and costs ──elimination──▶ a sharding for every tensor, and a bound
                                                      │
                              the planner (`cosmic.workload.sharding.partition`) prices it again

Read `sharding` first.
"""
