"""Every metamorphic relation by its name."""

from __future__ import annotations

from tests.relations import hardware_relations, invariance_relations, memory_relations, work_relations
from tests.relations.metamorphic import Relation

RELATIONS: dict[str, Relation] = {
    relation.name: relation
    for relation in (
        *work_relations.ANSWER_RELATIONS,
        *hardware_relations.HARDWARE_RELATIONS,
        *hardware_relations.NETWORK_RELATIONS,
        *work_relations.WORK_RELATIONS,
        *memory_relations.MEMORY_RELATIONS,
        *invariance_relations.INVARIANCE_RELATIONS,
    )
}
"""Every relation by its name."""
