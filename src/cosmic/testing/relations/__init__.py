"""Metamorphic relations: what must hold between the answers for related designs, whatever the right answer is.

    from random import Random
    from cosmic.testing.designs import random_design
    from cosmic.testing.relations import RELATIONS

    rng = Random(7)
    for violation in RELATIONS["network bandwidth"].violations(random_design(rng), rng):
        ...

`benchmarks/metamorphic.py` checks them on thousands of designs, `tests/physics` on a few.
"""

from cosmic.testing.relations import answers, hardware, invariance, memory, network, work
from cosmic.testing.relations.relation import Relation, Violation

RELATIONS: dict[str, Relation] = {
    relation.name: relation
    for relation in (
        *answers.RELATIONS,
        *hardware.RELATIONS,
        *network.RELATIONS,
        *work.RELATIONS,
        *memory.RELATIONS,
        *invariance.RELATIONS,
    )
}
"""Every relation by its name."""

__all__ = ["RELATIONS", "Relation", "Violation"]
