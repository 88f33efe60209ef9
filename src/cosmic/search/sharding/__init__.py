"""Automatic sharding: the annotations of a program's tensors that make its step shortest on a mesh of devices.

    program ──sharding_costs──▶ variables and costs ──elimination──▶ a sharding for every tensor, and a bound
                                                      │
                              the planner (`plan_part`) prices it again

Read `automatic_sharding` first.
"""
