"""Check that traces can run: nodes are complete, dependencies acyclic, messages match, groups agree.

With other traces a simulator stops without a reason, or deadlocks. This module checks each rank by itself (once for all
ranks that share a template); `messages` and `agreement` check ranks against each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np

from cosmic.errors import SpecError
from cosmic.traces.agreement import agreement
from cosmic.traces.findings import Finding, finding, node_text, rank_text
from cosmic.traces.groups import ranks_by_template
from cosmic.traces.messages import message_findings
from cosmic.traces.order import Dependencies, cycle, dependencies_of, topological_order
from cosmic.traces.trace import ABSENT, CollectiveType, NodeType, Template, TraceSet

SHOWN = 20
SHOWN_OF_A_KIND = 5
"""Many mistakes of one kind must not crowd out another kind."""
SHOWN_OF_A_CYCLE = 6

LAST_TYPE, LAST_COLLECTIVE = max(NodeType), max(CollectiveType)
NEEDED = {
    NodeType.COMM_COLL: {"comm_type": "comm_type", "comm_size": "comm_size"},
    NodeType.COMM_SEND: {"peer": "comm_dst", "comm_tag": "comm_tag", "comm_size": "comm_size"},
    NodeType.COMM_RECV: {"peer": "comm_src", "comm_tag": "comm_tag", "comm_size": "comm_size"},
}
"""Columns that nodes of a type need, and their attributes in the file."""


def check(traces: TraceSet, groups: Mapping[str, Sequence[int]] | None = None) -> None:
    """Raise the first problem found."""
    for found in _findings(traces, groups):
        if found.count:
            raise found.at(0)


def problems(
    traces: TraceSet, groups: Mapping[str, Sequence[int]] | None = None, shown: int = SHOWN, *, replayed: bool = False
) -> list[str]:
    """Return a sentence for each problem: a few of each kind, at most *shown*, and then their number.

    Of traces that are *replayed* as they were recorded, ranks may be missing.

    >>> from cosmic.traces.trace import RankTrace, template_of
    >>> nodes = [{"id": 4, "type": 4, "name": "matmul", "data": [7]}, {"id": 7, "type": 4, "data": [4]}]
    >>> problems(TraceSet((RankTrace(template_of(nodes)),)))
    ["trace: rank 0: nodes in a cycle = 2: each waits for the next: node 4 'matmul' -> node 7 -> node 4"]
    """
    sentences: list[str] = []
    count = 0
    for found in _findings(traces, groups, replayed):
        count += found.count
        listed = min(found.count, SHOWN_OF_A_KIND, shown - len(sentences))
        sentences += [str(found.at(place)) for place in range(listed)]
    return [*sentences, f"{traces.where}: {count:,} problems in all"] if count > len(sentences) else sentences


def _findings(
    traces: TraceSet, groups: Mapping[str, Sequence[int]] | None, replayed: bool = False
) -> Iterator[Finding]:
    for template, ranks in ranks_by_template(traces):
        yield from _within(template, rank_text(traces.where, ranks))
    yield finding(
        [rank for rank, each in enumerate(traces.ranks) if each.own_rank not in (None, rank)],
        lambda rank: SpecError(
            f"{traces.where}: rank {rank}: its own rank",
            traces.ranks[rank].own_rank,
            "the trace belongs to another rank",
        ),
    )
    yield from message_findings(traces, replayed=replayed)
    yield from agreement(traces, groups, replayed=replayed)


def is_replayed(traces: TraceSet) -> bool:
    """Return whether all ranks recorded when their nodes ran, so that they are replayed rather than simulated."""
    return bool(traces.ranks) and all(each.is_recorded or not each.nodes for each in traces.templates())


def _within(template: Template, where: str) -> Iterator[Finding]:
    """Yield the mistakes in the nodes of one template."""
    twice = np.flatnonzero(np.diff(template.id) <= 0) + 1
    yield finding(twice, lambda row: SpecError(f"{where}: node", int(template.id[row]), "two nodes have this id"))
    if not len(twice):  # else a dependency could mean either node
        yield from _dependency_findings(template, where)
    yield from _attribute_findings(template, where)


def _dependency_findings(template: Template, where: str) -> Iterator[Finding]:
    """Yield dependencies that can never be satisfied."""
    dependencies = dependencies_of(template)
    itself = ~dependencies.absent & (dependencies.row == dependencies.dependent)
    for wrong, rule in ((dependencies.absent, "no node has this id"), (itself, "a node cannot wait for itself")):
        yield finding(np.flatnonzero(wrong), partial(_dependency_error, template, dependencies, where, rule))
    yield from _cycles(template, dependencies.within(), where)


def _dependency_error(template: Template, dependencies: Dependencies, where: str, rule: str, place: int) -> SpecError:
    node = node_text(template, int(dependencies.dependent[place]))
    return SpecError(f"{where}: {node}: depends on", int(dependencies.wanted[place]), rule)


def _cycles(template: Template, dependencies: Dependencies, where: str) -> Iterator[Finding]:
    """Yield one cycle, if there is any: fixing it often fixes others."""
    rows = cycle(dependencies, topological_order(dependencies))
    if rows:
        yield finding(
            [rows],
            lambda each: SpecError(
                f"{where}: nodes in a cycle", len(each), f"each waits for the next: {_cycle_text(template, each)}"
            ),
        )


def _cycle_text(template: Template, rows: Sequence[int]) -> str:
    shown = [node_text(template, row) for row in rows[:SHOWN_OF_A_CYCLE]]
    if len(rows) > SHOWN_OF_A_CYCLE:
        shown.append(f"({len(rows) - SHOWN_OF_A_CYCLE:,} more)")
    return " -> ".join([*shown, f"node {template.id[rows[0]]}"])


def _attribute_findings(template: Template, where: str) -> Iterator[Finding]:
    """Yield nodes of unknown type, and nodes that lack an attribute that their type needs."""
    kind = template.type
    yield finding(
        np.flatnonzero((kind <= NodeType.INVALID) | (kind > LAST_TYPE)),
        lambda row: SpecError(f"{where}: {node_text(template, row)}: type", int(kind[row]), "no such type of node"),
    )
    collective = template.comm_type
    yield finding(
        np.flatnonzero((kind == NodeType.COMM_COLL) & (collective > LAST_COLLECTIVE)),
        lambda row: SpecError(
            f"{where}: {node_text(template, row)}: comm_type", int(collective[row]), "no such collective"
        ),
    )
    for node_type, columns in NEEDED.items():
        rows = np.flatnonzero(kind == node_type)
        for column, attribute in columns.items() if len(rows) else ():
            lacking = rows[getattr(template, column)[rows] == ABSENT]
            if column == "comm_size":  # a barrier moves nothing
                lacking = lacking[collective[lacking] != CollectiveType.BARRIER]
            yield finding(lacking, partial(_attribute_error, template, where, attribute))


def _attribute_error(template: Template, where: str, attribute: str, row: int) -> SpecError:
    kind = NodeType(template.type[row]).name
    return SpecError(f"{where}: {node_text(template, row)}: {attribute}", None, f"a {kind} node needs it")
