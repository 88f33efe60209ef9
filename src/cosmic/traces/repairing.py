"""Repair traces that others wrote, so that they can be simulated, and say what was done.

What is wrong is mended in this order. Within a rank, once for all that share a template: repeated ids, dependencies
that cannot be satisfied, types and attributes of nodes, cycles, nodes without a type. Between ranks: groups, types and
sizes of collectives, and on request unmatched messages. What is right stays: a valid trace is returned itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cosmic.traces.checks import problems
from cosmic.traces.groups import ranks_by_template
from cosmic.traces.repair_dependencies import with_satisfiable_dependencies, without_cycles
from cosmic.traces.repair_log import Place, Repair, merged
from cosmic.traces.repair_nodes import with_communication, with_distinct_ids, with_types, without_untyped
from cosmic.traces.repair_ranks import with_groups, with_sizes_of_others, without_unmatched
from cosmic.traces.trace import Template, TraceSet

Groups = Mapping[str, Sequence[int]]
STEPS = (
    with_distinct_ids,
    with_satisfiable_dependencies,
    with_types,
    with_communication,
    without_cycles,
    without_untyped,
)
"""Repairs within a rank, in order: later ones need what earlier ones mend."""


@dataclass(frozen=True, slots=True)
class Repaired:
    """Repaired traces."""

    traces: TraceSet
    groups: Groups | None
    """The groups given, and those that were missing; None if there are neither."""
    done: tuple[Repair, ...]
    left: tuple[str, ...]
    """What could not be mended, as `cosmic.traces.checks.problems` says it."""


def repaired(traces: TraceSet, groups: Groups | None = None, *, drop_unmatched: bool = False) -> Repaired:
    """Return *traces* repaired, with what was done and what is left.

    >>> from cosmic.traces.trace import RankTrace, template_of
    >>> nodes = [{"id": 4, "type": 4, "data": [3]}, {"id": 7, "type": 4, "ctrl": [7], "data": [4]}]
    >>> result = repaired(TraceSet((RankTrace(template_of(nodes)),)))
    >>> [(each.count, each.what) for each in result.done], result.left
    ([(1, 'data dependencies on absent nodes dropped'), (1, 'control self dependencies dropped')], ())
    """
    traces, done = _within(traces)
    traces, groups, more = with_groups(traces, groups)
    done += more
    traces, more = with_sizes_of_others(traces, groups)
    done += more
    if drop_unmatched:
        traces, more = without_unmatched(traces)
        done += more
    return Repaired(traces, groups, merged(done), tuple(problems(traces, groups)))


def _within(traces: TraceSet) -> tuple[TraceSet, list[Repair]]:
    """Return traces with every template repaired."""
    done: list[Repair] = []
    made: dict[int, Template] = {}
    for template, ranks in ranks_by_template(traces):
        place, mended = Place(traces.where, ranks), template
        for step in STEPS:
            mended, more = step(mended, place)
            done += more
        if mended is not template:
            made[id(template)] = mended
    if not made:
        return traces, done
    ranks_made = (replace(each, template=made.get(id(each.template), each.template)) for each in traces.ranks)
    return TraceSet(tuple(ranks_made), traces.where), done
