"""Repair dependencies of a template: absent nodes, nodes that wait for themselves, repetitions, cycles, dropped nodes.

All but the search for cycles are array operations; that search looks only at nodes between cycles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, overload

import numpy as np
import numpy.typing as npt

from cosmic.errors import require
from cosmic.traces.findings import node_text
from cosmic.traces.order import Dependencies, dependencies_of
from cosmic.traces.repair_cycles import closing_a_cycle
from cosmic.traces.repair_log import Place, Repair
from cosmic.traces.trace import COLUMNS, Ints, Template

Mask = npt.NDArray[np.bool_]
Kind = Literal["data", "ctrl"]
KINDS: dict[Kind, str] = {"data": "data", "ctrl": "control"}
"""Kinds of dependencies, as columns and sentences call them."""
MOST_DEPENDENCIES = 2**27
"""The most dependencies that a template may have once nodes are dropped."""


def dependencies_of_kind(template: Template, kind: Kind) -> Dependencies:
    """Return the dependencies of one kind, those on absent nodes included, in the order of the template."""
    start, ids = (template.data_start, template.data_id) if kind == "data" else (template.ctrl_start, template.ctrl_id)
    none = np.zeros(template.nodes + 1, np.int64)
    return dependencies_of(replace(template, data_start=start, data_id=ids, ctrl_start=none, ctrl_id=none[:0]))


def with_dependencies(template: Template, kind: Kind, dependent: Ints, wanted: Ints) -> Template:
    """Return the template with other dependencies of a kind: *dependent* rows, ascending, and the ids they wait for."""
    start = np.concatenate([[0], np.cumsum(np.bincount(dependent, minlength=template.nodes))])
    if kind == "data":
        return replace(template, data_start=start, data_id=wanted)
    return replace(template, ctrl_start=start, ctrl_id=wanted)


def with_satisfiable_dependencies(template: Template, place: Place) -> tuple[Template, list[Repair]]:
    """Return the template without dependencies on absent nodes, on the node itself, and repeated ones.

    >>> from cosmic.traces.trace import template_of
    >>> nodes = [{"id": 4}, {"id": 7, "data": [4, 5, 4, 7]}]
    >>> made, done = with_satisfiable_dependencies(template_of(nodes), Place("job", [0]))
    >>> made.data_id.tolist(), [each.count for each in done]
    ([4], [1, 1, 1])
    """
    done: list[Repair] = []
    for kind, called in KINDS.items():
        found = dependencies_of_kind(template, kind)
        itself = ~found.absent & (found.row == found.dependent)
        wrong = {
            "dependencies on absent nodes dropped": found.absent,
            "self dependencies dropped": itself,
            "repeated dependencies dropped": _repeated(found, ~found.absent & ~itself),
        }
        dropped = np.zeros(len(found.wanted), bool)
        for what, each in wrong.items():
            dropped |= each
            done += _dropped(template, found, each, place, f"{called} {what}")
        if dropped.any():
            template = with_dependencies(template, kind, found.dependent[~dropped], found.wanted[~dropped])
    return template, done


def _repeated(found: Dependencies, among: Mask) -> Mask:
    """Return which dependencies, of those *among*, repeat an earlier one."""
    repeated = np.zeros(len(found.wanted), bool)
    places = np.flatnonzero(among)
    pairs = found.dependent[places] * found.nodes + found.row[places]
    ordered = np.sort(pairs)
    if (ordered[1:] != ordered[:-1]).all():
        return repeated
    repeated[places] = True
    repeated[places[np.unique(pairs, return_index=True)[1]]] = False
    return repeated


def _dropped(template: Template, found: Dependencies, which: Mask, place: Place, what: str) -> list[Repair]:
    """Return the repair that *which* dependencies were dropped."""
    if not which.any():
        return []
    first = int(np.argmax(which))
    node = node_text(template, int(found.dependent[first]))
    return place.repair(what, int(which.sum()), f"{node} waited for node {found.wanted[first]}")


# ------------------------------------------------------------------------------------------------------- cycles


def without_cycles(template: Template, place: Place) -> tuple[Template, list[Repair]]:
    """Return the template without cycles: of each, the least credible dependency is dropped.

    Control dependencies are less credible than data, and those on nodes that started later, or have a higher id where
    no start is recorded, less than others.
    """
    both = dependencies_of(template)
    kinds = {kind: dependencies_of_kind(template, kind) for kind in KINDS}
    closing = closing_a_cycle(both, list(kinds.values()), _time_order(template))
    done: list[Repair] = []
    for (kind, found), wrong, unsure in zip(kinds.items(), closing.certain, closing.unsure, strict=True):
        done += _dropped(template, found, wrong, place, f"{KINDS[kind]} dependencies that closed a cycle dropped")
        done += _dropped(template, found, unsure, place, f"{KINDS[kind]} dependencies that may close a cycle dropped")
        kept = ~(wrong | unsure)
        if not kept.all():
            template = with_dependencies(template, kind, found.dependent[kept], found.wanted[kept])
    return template, done


def _time_order(template: Template) -> Ints:
    """Return the place of each row in the order of recorded starts, then of ids; a row without a start follows its id.

    >>> from cosmic.traces.trace import template_of
    >>> _time_order(template_of([{"id": 4, "start_ns": 9}, {"id": 5}, {"id": 7, "start_ns": 3}])).tolist()
    [1, 2, 0]
    """
    starts = template.start_ns
    recorded = starts >= 0
    if not recorded.any():
        return np.arange(template.nodes)
    last = np.maximum.accumulate(np.where(recorded, np.arange(template.nodes), -1))
    order = np.argsort(np.where(last >= 0, starts[last], -1), kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return place


# ------------------------------------------------------------------------------------------------ dropped nodes


class ChosenNames(Sequence[str]):
    """Some of the names of nodes, looked up on access.

    >>> names = ChosenNames(["add", "mul", "sub"], np.array([2, 0]))
    >>> len(names), names[0], list(names[1:])
    (2, 'sub', ['add'])
    """

    def __init__(self, names: Sequence[str], rows: Ints) -> None:
        self._names = names
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> ChosenNames: ...
    def __getitem__(self, place: int | slice) -> str | ChosenNames:
        if isinstance(place, slice):
            return ChosenNames(self._names, self._rows[place])
        return self._names[int(self._rows[place])]


def of_rows(template: Template, rows: Ints) -> Template:
    """Return the template of some *rows*, in this order; its dependencies stay ids."""
    chosen: dict[str, Ints] = {name: getattr(template, name)[rows] for name in COLUMNS}
    for kind in KINDS:
        start, ids = getattr(template, f"{kind}_start"), getattr(template, f"{kind}_id")
        counts = np.diff(start)[rows]
        ends = np.cumsum(counts)
        chosen[f"{kind}_start"] = np.concatenate([[0], ends])
        chosen[f"{kind}_id"] = ids[np.arange(counts.sum()) + np.repeat(start[rows] - ends + counts, counts)]
    texts = template.process_groups
    return Template(
        **chosen,
        names=ChosenNames(template.names, rows),
        kernels=template.kernels,
        process_groups={at: texts[row] for at, row in enumerate(rows.tolist()) if row in texts} if texts else {},
    )


def without_nodes(template: Template, dropped: Mask, where: str) -> Template:
    """Return the template without some nodes: what waited for one waits for what it waited for.

    Dependencies must be satisfiable and without cycles.

    >>> from cosmic.traces.trace import template_of
    >>> nodes = [{"id": 4}, {"id": 5, "ctrl": [4]}, {"id": 6, "data": [5]}, {"id": 9, "data": [6]}]
    >>> made = without_nodes(template_of(nodes), np.array([False, True, True, False]), "job")
    >>> made.id.tolist(), made.data_id.tolist(), made.ctrl_id.tolist()
    ([4, 9], [], [4])
    """
    edges = _Edges.of(template)
    while dropped[edges.row].any():  # chains of dropped nodes shorten to half in each round
        edges = edges.past(dropped, where)
    for kind, chosen in zip(KINDS, (~edges.ctrl, edges.ctrl), strict=True):
        template = with_dependencies(template, kind, edges.dependent[chosen], template.id[edges.row[chosen]])
    return of_rows(template, np.flatnonzero(~dropped))


@dataclass(frozen=True, slots=True, eq=False)
class _Edges:
    """Dependencies between rows, in ascending order of the dependent ones."""

    dependent: Ints
    row: Ints
    ctrl: Mask

    @classmethod
    def of(cls, template: Template) -> _Edges:
        data, ctrl = (dependencies_of_kind(template, kind) for kind in KINDS)
        is_ctrl = np.repeat([False, True], [len(data.row), len(ctrl.row)])
        return cls(
            np.concatenate([data.dependent, ctrl.dependent]), np.concatenate([data.row, ctrl.row]), is_ctrl
        )._sorted()

    def _sorted(self) -> _Edges:
        order = np.argsort(self.dependent, kind="stable")
        return _Edges(self.dependent[order], self.row[order], self.ctrl[order])

    def past(self, dropped: Mask, where: str) -> _Edges:
        """Return the edges with each that leads to a dropped row replaced by the edges of that row.

        The way through a dropped row is of data only if both of its parts are.
        """
        nodes = len(dropped)
        start = np.searchsorted(self.dependent, np.arange(nodes + 1))
        through = dropped[self.row]
        counts = np.where(through, np.diff(start)[self.row], 1)
        total = int(counts.sum())
        rule = f"their dependents would wait for {total:,} nodes, more than the {MOST_DEPENDENCIES:,} that can be held"
        require(total <= MOST_DEPENDENCIES, f"{where}: nodes to drop", int(dropped.sum()), rule)
        ends = np.cumsum(counts)
        offset = np.arange(total) - np.repeat(ends - counts, counts)
        source = np.repeat(np.arange(len(self.row)), counts)
        onward = np.where(through[source], start[self.row[source]] + offset, source)
        ctrl = self.ctrl[onward] | self.ctrl[source]
        # Many ways lead to the same row: one is kept of each kind.
        keys = (self.dependent[source] * nodes + self.row[onward]) * 2 + ctrl
        first = np.sort(np.unique(keys, return_index=True)[1])
        return _Edges(self.dependent[source][first], self.row[onward][first], ctrl[first])
