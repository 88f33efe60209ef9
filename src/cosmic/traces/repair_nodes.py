"""Repair nodes of a template one by one: repeated ids, types, attributes that communication needs."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from cosmic.traces.checks import LAST_TYPE
from cosmic.traces.findings import node_text
from cosmic.traces.repair_dependencies import KINDS, of_rows, without_nodes
from cosmic.traces.repair_log import Place, Repair
from cosmic.traces.trace import ABSENT, COLUMNS, CollectiveType, Ints, NodeType, Template
from cosmic.traces.views import enum_name
from cosmic.traces.wire import INTEGER_LIMIT

Mask = npt.NDArray[np.bool_]

# ---------------------------------------------------------------------------------------------------------- ids


def with_distinct_ids(template: Template, place: Place) -> tuple[Template, list[Repair]]:
    """Return the template with an id for each node: copies of a node are dropped, others get the next free id.

    What waits for the id waits for the first node that had it.

    >>> from cosmic.traces.trace import template_of
    >>> nodes = [{"id": 4, "type": 4}, {"id": 4, "type": 4}, {"id": 4, "type": 2}, {"id": 5, "type": 4}]
    >>> made, done = with_distinct_ids(template_of(nodes), Place("job", [0]))
    >>> made.id.tolist(), made.type.tolist(), [each.count for each in done]
    ([4, 5, 6], [4, 4, 2], [1, 1])
    """
    again = np.concatenate([[False], template.id[1:] == template.id[:-1]])[: template.nodes]
    if not again.any():
        return template, []
    copies = _copies(template, again)
    done = place.repair("copies of nodes dropped", int(copies.sum()), _first(template, copies, "was there before"))
    moved = np.flatnonzero(again & ~copies)
    ids = template.id.copy()
    ids[moved] = _free_ids(template.id, moved)
    if len(moved):
        example = f"{node_text(template, int(moved[0]))} is node {ids[moved[0]]} now: an earlier node has its id"
        done += place.repair("nodes with the id of another node renumbered", len(moved), example)
    kept = np.flatnonzero(~copies)
    return of_rows(replace(template, id=ids), kept[np.argsort(ids[kept], kind="stable")]), done


def _first(template: Template, which: Mask, text: str) -> str:
    """Return a sentence about the first of some nodes."""
    return f"{node_text(template, int(np.argmax(which)))} {text}" if which.any() else ""


def _copies(template: Template, again: Mask) -> Mask:
    """Return which of the nodes that have an earlier node's id are equal to one of these in everything."""
    copies = np.zeros(template.nodes, bool)
    seen: dict[tuple[object, ...], int] = {}
    columns = [getattr(template, name) for name in COLUMNS]
    shared = again | np.concatenate([again[1:], [False]])
    for row in np.flatnonzero(shared).tolist():
        lists = (
            getattr(template, f"{kind}_id")[slice(*getattr(template, f"{kind}_start")[row : row + 2])].tobytes()
            for kind in KINDS
        )
        numbers = tuple(int(column[row]) for column in columns)
        key = (*numbers, template.names[row], *lists, template.process_groups.get(row))
        copies[row] = seen.setdefault(key, row) != row
    return copies


def _free_ids(ids: Ints, rows: Ints) -> list[int]:
    """Return the next ids that no node has, for each of *rows*; after the last id come the first ones."""
    used, free, found = set(ids.tolist()), -1, []
    for wanted in ids[rows].tolist():
        free = max(free + 1, wanted)
        while free in used or free >= INTEGER_LIMIT:
            free = free + 1 if free < INTEGER_LIMIT else 0
        used.add(free)
        found.append(free)
    return found


# -------------------------------------------------------------------------------------------------------- types


def with_types(template: Template, place: Place) -> tuple[Template, list[Repair]]:
    """Return the template with a type for each node that has none, where its attributes say one."""
    unknown = (template.type <= NodeType.INVALID) | (template.type > LAST_TYPE)
    if not unknown.any():
        return template, []
    collective = unknown & (template.comm_type != ABSENT)
    stated = (template.num_ops != ABSENT) | (template.tensor_size != ABSENT) | (template.kernel != ABSENT)
    compute = unknown & ~collective & (stated | (template.duration_us > 0) | (template.duration_ns > 0))
    kind, done = template.type.copy(), list[Repair]()
    for what, rows in ((NodeType.COMM_COLL, collective), (NodeType.COMP, compute)):
        kind[rows] = what
        example = _first(template, rows, "states what such a node does")
        done += place.repair(f"nodes without a type made {what.name}", int(rows.sum()), example)
    return replace(template, type=kind), done


def without_untyped(template: Template, place: Place) -> tuple[Template, list[Repair]]:
    """Return the template without nodes of no type; what waited for one waits for what it waited for.

    Dependencies must be satisfiable and without cycles.
    """
    unknown = (template.type <= NodeType.INVALID) | (template.type > LAST_TYPE)
    if not unknown.any():
        return template, []
    example = _first(template, unknown, "does nothing; what waited for it waits for what it waited for")
    made = without_nodes(template, unknown, place.where)
    return made, place.repair("nodes without a type dropped", int(unknown.sum()), example)


# ------------------------------------------------------------------------------------------------ communication

NAMED = {
    "reducescatter": CollectiveType.REDUCE_SCATTER,
    "allreduce": CollectiveType.ALL_REDUCE,
    "allgather": CollectiveType.ALL_GATHER,
    "alltoall": CollectiveType.ALL_TO_ALL,
    "broadcast": CollectiveType.BROADCAST,
    "barrier": CollectiveType.BARRIER,
    "reduce": CollectiveType.REDUCE,
    "scatter": CollectiveType.SCATTER,
    "gather": CollectiveType.GATHER,
}
"""What names of collectives hold, the longer words first."""


def collective_named(name: str) -> int:
    """Return the type of collective that a node's name says; `ABSENT` if it says none.

    >>> CollectiveType(collective_named("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL")).name
    'REDUCE_SCATTER'
    >>> collective_named("nccl:_all_gather_base") == CollectiveType.ALL_GATHER, collective_named("step")
    (True, -1)
    """
    letters = re.sub(r"[^a-z]", "", name.lower())
    return next((int(kind) for word, kind in NAMED.items() if word in letters), ABSENT)


def with_communication(template: Template, place: Place) -> tuple[Template, list[Repair]]:
    """Return the template whose communication runs on the accelerator, and has types and tags where these are known."""
    template, done = _without_launches(template, place)
    for step in (_on_accelerator, _with_named_types, _with_tags):
        template, more = step(template, place)
        done += more
    return template, done


def _without_launches(template: Template, place: Place) -> tuple[Template, list[Repair]]:
    """Make operators that launch a collective, and are marked as one, the compute on the CPU that they are."""
    lacking = (template.comm_type == ABSENT) & (template.comm_size == ABSENT)
    launches = (template.type == NodeType.COMM_COLL) & (template.on_cpu != 0) & lacking
    if not launches.any():
        return template, []
    what = "collectives on the CPU without type and size made COMP"
    done = place.repair(what, int(launches.sum()), _first(template, launches, "only launches a collective"))
    return replace(template, type=np.where(launches, int(NodeType.COMP), template.type)), done


def _on_accelerator(template: Template, place: Place) -> tuple[Template, list[Repair]]:
    wrong = (template.type >= NodeType.COMM_SEND) & (template.type <= NodeType.COMM_COLL) & (template.on_cpu != 0)
    if not wrong.any():
        return template, []
    what = "communication nodes moved from the CPU to the accelerator"
    done = place.repair(what, int(wrong.sum()), _first(template, wrong, "had is_cpu_op"))
    return replace(template, on_cpu=np.where(wrong, 0, template.on_cpu)), done


def _with_named_types(template: Template, place: Place) -> tuple[Template, list[Repair]]:
    lacking = np.flatnonzero((template.type == NodeType.COMM_COLL) & (template.comm_type == ABSENT))
    kind = template.comm_type.copy()
    kind[lacking] = [collective_named(template.names[row]) for row in lacking.tolist()]
    named = kind != template.comm_type
    if not named.any():
        return template, []
    text = f"is an {enum_name(CollectiveType, int(kind[np.argmax(named)]))} by its name"
    done = place.repair("types of collectives taken from names", int(named.sum()), _first(template, named, text))
    return replace(template, comm_type=kind), done


def _with_tags(template: Template, place: Place) -> tuple[Template, list[Repair]]:
    exchanges = (template.type == NodeType.COMM_SEND) | (template.type == NodeType.COMM_RECV)
    lacking = exchanges & (template.comm_tag == ABSENT)
    if not lacking.any():
        return template, []
    what = "sends and receives without a tag given tag 0"
    done = place.repair(what, int(lacking.sum()), _first(template, lacking, "stated none"))
    return replace(template, comm_tag=np.where(lacking, 0, template.comm_tag)), done
