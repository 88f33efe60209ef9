"""Whether ranks agree on collectives: groups exist, and the members of each run the same ones in the same order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from cosmic.errors import SpecError
from cosmic.traces.findings import Finding, finding, node_text, rank_text, size_text
from cosmic.traces.groups import EVERYONE, known_groups
from cosmic.traces.trace import ABSENT, CollectiveType, Ints, NodeType, Template, TraceSet
from cosmic.traces.views import enum_name

Groups = Mapping[str, Sequence[int]]


def agreement(traces: TraceSet, groups: Groups | None) -> Iterator[Finding]:
    """Yield everything in which the collectives of *traces* do not agree with each other or with *groups*."""
    try:
        known = known_groups(traces, groups)
    except SpecError as error:  # metadata nodes contradict each other, or cannot be read
        yield finding([error], lambda each: each)
        return
    yield from _malformed(traces, known)
    collectives = _Collectives(traces, known)
    yield _undefined(collectives, known, groups is not None)
    yield _intruders(collectives, known)
    differences = list(_differences(traces, collectives, known))
    yield finding(differences, lambda each: _difference_error(traces, collectives, each))


class _Collectives:
    """Who runs which collectives: ranks by group, and what each does there."""

    def __init__(self, traces: TraceSet, known: Groups) -> None:
        self.users: dict[str, dict[int, tuple[int, ...]]] = {}
        """By the name of a group and a rank: places in `RankTrace.groups`, mostly one."""
        self._traces = traces
        self._rows = {id(template): _rows_by_place(template) for template in traces.templates()}
        alias = {name: EVERYONE[0] for name in EVERYONE if known[name] == known[EVERYONE[0]]}
        for number, rank in enumerate(traces.ranks):
            for place in self._rows[id(rank.template)]:
                name = rank.groups[place] if place != ABSENT else EVERYONE[0]
                ranks = self.users.setdefault(alias.get(name, name), {})
                ranks[number] = (*ranks.get(number, ()), place)

    def alike(self, name: str, rank: int) -> tuple[int, ...]:
        """Return what is equal for ranks that share a template and so do the same in a group."""
        places = self.users[name].get(rank, ())
        return (id(self._traces.ranks[rank].template), *places) if places else ()

    def rows(self, name: str, rank: int) -> Ints:
        """Return the rows of the collectives that a rank runs in a group, in ascending order of their ids."""
        found = self._rows[id(self._traces.ranks[rank].template)]
        places = self.users[name].get(rank, ())
        if len(places) == 1:
            return found[places[0]]
        return np.sort(np.concatenate([np.empty(0, np.int64), *(found[place] for place in places)]))

    def stated(self, name: str, rank: int) -> Ints:
        """Return those collectives in two rows: types and sizes."""
        template, rows = self._traces.ranks[rank].template, self.rows(name, rank)
        return np.array([template.comm_type[rows], template.comm_size[rows]])

    def text(self, name: str, rank: int, place: int = 0) -> str:
        """Return one of the nodes with which a rank uses a group: the first, or that at *place*."""
        return node_text(self._traces.ranks[rank].template, int(self.rows(name, rank)[place]))

    def first_text(self, name: str, rank: int) -> str:
        """Return where a rank uses a group first."""
        return f"{self._traces.where}: rank {rank}: {self.text(name, rank)}: group"


def _rows_by_place(template: Template) -> dict[int, Ints]:
    """Return the rows of collectives by the place of their group."""
    rows = np.flatnonzero(template.type == NodeType.COMM_COLL)
    if not len(rows):
        return {}
    places = template.group[rows]
    order = np.argsort(places, kind="stable")
    found, starts = np.unique(places[order], return_index=True)
    return dict(zip(found.tolist(), np.split(rows[order], starts[1:]), strict=True))


def _malformed(traces: TraceSet, known: Groups) -> Iterator[Finding]:
    """Yield groups that cannot be: empty, or with a rank that is there twice or not in the job."""
    count = len(traces.ranks)
    where = f"{traces.where}: group"
    yield finding([name for name in known if not known[name]], lambda name: SpecError(where, name, "has no ranks"))
    yield finding(
        [(name, _repeated(ranks)) for name, ranks in known.items() if len(set(ranks)) < len(ranks)],
        lambda each: SpecError(f"{where} {each[0]}", each[1], "the rank is there twice"),
    )
    outside = [name for name, ranks in known.items() if ranks and not (min(ranks) >= 0 and max(ranks) < count)]
    yield finding(
        [(name, rank) for name in outside for rank in known[name] if not 0 <= rank < count],
        lambda each: SpecError(f"{where} {each[0]}", each[1], f"the job has ranks 0 to {count - 1:,}"),
    )


def _repeated(ranks: Sequence[int]) -> int:
    """Return the first rank that was there before."""
    seen: set[int] = set()
    for rank in ranks:
        if rank in seen:
            break
        seen.add(rank)
    return rank


def _undefined(collectives: _Collectives, known: Groups, given: bool) -> Finding:
    """Return groups that nodes name and nobody defines; all as one where no groups are given."""
    names = [name for name in collectives.users if name not in known]
    more = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
    rule = "no such group" if given else f"nothing says which ranks are in this group{more}"
    return finding(
        names if given else names[:1],
        lambda name: SpecError(collectives.first_text(name, min(collectives.users[name])), name, rule),
    )


def _intruders(collectives: _Collectives, known: Groups) -> Finding:
    """Return ranks that use a group without being in it."""
    found = [
        (name, rank)
        for name, users in collectives.users.items()
        for rank in sorted(users.keys() - set(known.get(name, users)))
    ]
    return finding(
        found, lambda each: SpecError(collectives.first_text(*each), each[0], "the rank is not in this group")
    )


class _Difference(NamedTuple):
    """Where members of a group part: at a place in the order of its collectives."""

    name: str
    first: int
    """The first member."""
    ranks: list[int]
    """Others, which share a template."""
    place: int


def _differences(traces: TraceSet, collectives: _Collectives, known: Groups) -> Iterator[_Difference]:
    """Yield members of a group that do not run the collectives of its first one: type, size, number and order."""
    for name in collectives.users:
        alike: dict[tuple[int, ...], list[int]] = {}
        for rank in known.get(name, ()):
            if 0 <= rank < len(traces.ranks):
                alike.setdefault(collectives.alike(name, rank), []).append(rank)
        if len(alike) > 1:
            (first, *_), *others = alike.values()
            wanted = collectives.stated(name, first)
            for ranks in others:
                place = _parting(wanted, collectives.stated(name, ranks[0]))
                if place is not None:
                    yield _Difference(name, first, ranks, place)


def _parting(mine: Ints, theirs: Ints) -> int | None:
    """Return the first column in which two tables differ."""
    shared = min(mine.shape[1], theirs.shape[1])
    differs = (mine[:, :shared] != theirs[:, :shared]).any(axis=0)
    if differs.any():
        return int(np.argmax(differs))
    return shared if mine.shape != theirs.shape else None


def _difference_error(traces: TraceSet, collectives: _Collectives, found: _Difference) -> SpecError:
    group = f"group {found.name}" if found.name else "all ranks"
    mine, theirs = (_collective_text(collectives, found, rank) for rank in (found.ranks[0], found.first))
    where = f"{rank_text(traces.where, found.ranks)}: collective {found.place + 1:,} of {group}"
    return SpecError(where, mine, f"rank {found.first} has {theirs} there")


def _collective_text(collectives: _Collectives, found: _Difference, rank: int) -> str:
    stated = collectives.stated(found.name, rank)
    if found.place == stated.shape[1]:
        return "none"
    kind, size = stated[:, found.place].tolist()
    return f"{enum_name(CollectiveType, kind)} of {size_text(size)}, {collectives.text(found.name, rank, found.place)}"
