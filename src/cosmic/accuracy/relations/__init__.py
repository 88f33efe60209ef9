"""Metamorphic relations: what must hold between the answers for related designs, whatever the right answer is.

    from random import Random
    from cosmic.accuracy.relations.all_relations import RELATIONS
    from cosmic.accuracy.relations.random_designs import random_design

    rng = Random(7)
    for violation in RELATIONS["network bandwidth"].violations(random_design(rng), rng):
        ...

`benchmarks/metamorphic.py` checks them on thousands of designs, `tests/accuracy/relations` on a few.
"""
