"""Sharding: from annotations on a few tensors to the collectives of a whole graph.

    graph ──propagate──▶ a sharding for every tensor ──partition──▶ local operators and collectives

For a training step, `differentiate` adds the backward operators first.
"""
