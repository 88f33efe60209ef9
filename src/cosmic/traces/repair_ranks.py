"""Repair what needs all ranks of a job: groups, and what the other members of a group say about a collective."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from cosmic.errors import SpecError, shorten
from cosmic.traces.agreement import Collectives
from cosmic.traces.findings import node_text, rank_text, size_text
from cosmic.traces.groups import ALL_RANKS, GROUP_ID, known_groups, ranks_by_template
from cosmic.traces.messages import messages_of, unmatched
from cosmic.traces.repair_dependencies import without_nodes
from cosmic.traces.repair_log import Repair
from cosmic.traces.trace import ABSENT, CollectiveType, Ints, NodeType, RankTrace, Template, TraceSet
from cosmic.traces.views import enum_name

Groups = Mapping[str, Sequence[int]]
Mask = npt.NDArray[np.bool_]


def with_changes(
    traces: TraceSet, changes: Mapping[int, Ints], change: Callable[[Template, Ints], Template]
) -> TraceSet:
    """Return traces in which some ranks have a changed template; those with equal changes share it again."""
    if not changes:
        return traces
    made: dict[tuple[int, bytes], Template] = {}
    ranks = list(traces.ranks)
    for rank, what in changes.items():
        template = ranks[rank].template
        key = id(template), what.tobytes()
        if key not in made:
            made[key] = change(template, what)
        ranks[rank] = replace(ranks[rank], template=made[key])
    return TraceSet(tuple(ranks), traces.where)


# ------------------------------------------------------------------------------------------------------- groups


def with_groups(traces: TraceSet, groups: Groups | None) -> tuple[TraceSet, Groups | None, list[Repair]]:
    """Return traces whose collectives name known groups, those groups, and what was done."""
    try:
        known = known_groups(traces, groups)
    except SpecError:  # metadata nodes contradict each other: which is right cannot be known
        return traces, groups, []
    users, done = Collectives(traces, known).users, list[Repair]()
    undefined = {name: tuple(sorted(users[name])) for name in users if name not in known}
    names = _numbered(undefined, [*known, *(name for rank in traces.ranks for name in rank.groups)])
    renamed = {old: new for old, new in names.items() if old != new}
    if renamed:
        traces = _with_names(traces, renamed)
        old, new = next(iter(renamed.items()))
        what = "groups that are not named by a number renamed"
        done.append(Repair(what, len(renamed), f"{traces.where}: group {shorten(old)} is {new} now"))
    if undefined:
        name, ranks = next(iter(undefined.items()))
        example = f"{traces.where}: group {names[name]} has {_ranks_text(ranks)}"
        done.append(Repair("groups without ranks given the ranks that use them", len(undefined), example))
        groups = {**(groups or {}), **{names[name]: ranks for name, ranks in undefined.items()}}
    traces, more = _with_group_of_users(traces, known_groups(traces, groups))
    return traces, groups, [*done, *more]


def _ranks_text(ranks: Sequence[int]) -> str:
    """Return ranks in words.

    >>> _ranks_text([3]), _ranks_text([0, 1, 2, 5]), _ranks_text(range(20))
    ('rank 3', 'ranks 0, 1, 2, 5', '20 ranks, 0 to 19')
    """
    if len(ranks) > 8:
        return f"{len(ranks):,} ranks, {min(ranks)} to {max(ranks)}"
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def _numbered(names: Mapping[str, Sequence[int]], taken: Sequence[str]) -> dict[str, str]:
    """Return a whole number from 1 on for each name, its own where it is one; simulators know no other names."""
    used, free, found = set(taken), 1, {}
    for name in names:
        if GROUP_ID.fullmatch(name):
            found[name] = name
            continue
        while str(free) in used:
            free += 1
        used.add(str(free))
        found[name] = str(free)
    return found


def _with_names(traces: TraceSet, renamed: Mapping[str, str]) -> TraceSet:
    ranks = (replace(each, groups=tuple(renamed.get(name, name) for name in each.groups)) for each in traces.ranks)
    return TraceSet(tuple(ranks), traces.where)


def _with_group_of_users(traces: TraceSet, known: Groups) -> tuple[TraceSet, list[Repair]]:
    """Give collectives without a group one, if not all ranks run such, and exactly one group has those that do."""
    users = {rank for template, ranks in ranks_by_template(traces) if _without_group(template).any() for rank in ranks}
    fitting = [name for name, ranks in known.items() if name not in ALL_RANKS and set(ranks) == users]
    if len(users) in (0, len(traces.ranks)) or len(fitting) != 1:
        return traces, []
    changes = {rank: np.array([len(traces.ranks[rank].groups)]) for rank in sorted(users)}
    made = with_changes(
        traces,
        changes,
        lambda template, place: replace(template, group=np.where(_without_group(template), place[0], template.group)),
    )
    ranks = list(made.ranks)
    for rank in users:
        ranks[rank] = replace(ranks[rank], groups=(*ranks[rank].groups, fitting[0]))
    count = sum(int(_without_group(traces.ranks[rank].template).sum()) for rank in users)
    first = min(users)
    template = traces.ranks[first].template
    node = node_text(template, int(np.argmax(_without_group(template))))
    example = f"{traces.where}: rank {first}: {node} runs in group {fitting[0]}, whose members alone run such"
    return TraceSet(tuple(ranks), traces.where), [Repair("collectives without a group given one", count, example)]


def _without_group(template: Template) -> Mask:
    found: Mask = (template.type == NodeType.COMM_COLL) & (template.group == ABSENT)
    return found


# -------------------------------------------------------------------------------------------------- collectives


def with_sizes_of_others(traces: TraceSet, groups: Groups | None) -> tuple[TraceSet, list[Repair]]:
    """Return traces in which collectives without type or size have those of the other members of their group.

    The n-th collective of a group is the same for all members, if they run equally many, of equal types where stated.
    """
    if not any(len(_lacking(template)) for template in traces.templates()):
        return traces, []
    try:
        known = known_groups(traces, groups)
    except SpecError:
        return traces, []
    collectives, stated = Collectives(traces, known), dict[int, Ints]()
    for name, users in collectives.users.items():
        for rank, filled in _filled(collectives, name, [each for each in known.get(name, ()) if each in users]).items():
            template, rows = traces.ranks[rank].template, collectives.rows(name, rank)
            whole = stated.setdefault(rank, np.array([template.comm_type, template.comm_size]))
            whole[:, rows] = filled
    changes = {rank: whole for rank, whole in stated.items() if _changed(traces.ranks[rank].template, whole).any()}
    done = [
        each
        for column, what in enumerate(("types", "sizes"))
        for each in _told(traces, changes, column, f"{what} of collectives taken from other ranks")
    ]
    made = with_changes(
        traces, changes, lambda template, whole: replace(template, comm_type=whole[0], comm_size=whole[1])
    )
    return made, done


def _changed(template: Template, whole: Ints) -> Mask:
    """Return which types and sizes differ from those of the template."""
    found: Mask = whole != np.array([template.comm_type, template.comm_size])
    return found


def _lacking(template: Template) -> Ints:
    """Return the collectives that lack a type or a size."""
    lacks = (template.comm_type == ABSENT) | (template.comm_size == ABSENT)
    return np.flatnonzero((template.type == NodeType.COMM_COLL) & lacks)


def _filled(collectives: Collectives, name: str, members: Sequence[int]) -> dict[int, Ints]:
    """Return types and sizes of the collectives of members that lack some, as far as the other members state them."""
    classes: dict[tuple[int, ...], list[int]] = {}
    for rank in members:
        classes.setdefault(collectives.class_of(name, rank), []).append(rank)
    if len(classes) < 2:
        return {}
    stated = [collectives.stated(name, ranks[0]) for ranks in classes.values()]
    found: dict[int, Ints] = {}
    for ranks, mine in zip(classes.values(), stated, strict=True):
        if (mine == ABSENT).any():
            others = [each for each in stated if each.shape == mine.shape and _agree(each[0], mine[0])]
            most, least = np.max(others, axis=0), _least(np.array(others))
            filled = np.where((mine == ABSENT) & (most == least), most, mine)
            found.update(dict.fromkeys(ranks, filled))
    return found


def _agree(mine: Ints, theirs: Ints) -> bool:
    """Return whether two lists are equal where both state a value."""
    return bool(((mine == theirs) | (mine == ABSENT) | (theirs == ABSENT)).all())


def _least(values: Ints) -> Ints:
    """Return the least stated values; `ABSENT` where none is stated."""
    largest = np.iinfo(np.int64).max
    least = np.where(values == ABSENT, largest, values).min(axis=0)
    found: Ints = np.where(least == largest, ABSENT, least)
    return found


def _told(traces: TraceSet, changes: Mapping[int, Ints], column: int, what: str) -> list[Repair]:
    """Return the repair of one column of some ranks."""
    counts = {rank: _changed(traces.ranks[rank].template, whole)[column] for rank, whole in changes.items()}
    ranks = [rank for rank, changed in counts.items() if changed.any()]
    if not ranks:
        return []
    template, row = traces.ranks[ranks[0]].template, int(np.argmax(counts[ranks[0]]))
    value = int(changes[ranks[0]][column, row])
    said = size_text(value) if column else enum_name(CollectiveType, value)
    example = f"{rank_text(traces.where, ranks[:1])}: {node_text(template, row)} has {said}, as other ranks say"
    return [Repair(what, sum(int(each.sum()) for each in counts.values()), example)]


# ----------------------------------------------------------------------------------------------------- messages


def without_unmatched(traces: TraceSet) -> tuple[TraceSet, list[Repair]]:
    """Return traces without sends and receives that no other rank matches; what waited for one waits for the rest."""
    messages, count = messages_of(traces), len(traces.ranks)
    outside = (messages.peer < 0) | (messages.peer >= count)
    lone = unmatched(messages.only(~outside), count)
    dropped: dict[int, list[Ints]] = {}
    for part in (messages.only(outside), lone):
        for rank in np.unique(part.rank).tolist():
            dropped.setdefault(rank, []).append(part.row[part.rank == rank])
    for template, ranks in ranks_by_template(traces):
        if len(rows := _without_peer(template)):
            for rank in ranks:
                dropped.setdefault(rank, []).append(rows)
    changes = {rank: np.sort(np.concatenate(rows)) for rank, rows in sorted(dropped.items())}
    if not changes:
        return traces, []
    rank, rows = next(iter(changes.items()))
    node = node_text(traces.ranks[rank].template, int(rows[0]))
    example = f"{traces.where}: rank {rank}: {node} matches nothing"
    made = with_changes(traces, changes, lambda template, rows: _without_rows(template, rows, traces.where))
    total = sum(map(len, changes.values()))
    return made, [Repair("unmatched sends and receives dropped", total, example)]


def _without_peer(template: Template) -> Ints:
    exchanges = (template.type == NodeType.COMM_SEND) | (template.type == NodeType.COMM_RECV)
    return np.flatnonzero(exchanges & (template.peer == ABSENT))


def _without_rows(template: Template, rows: Ints, where: str) -> Template:
    dropped = np.zeros(template.nodes, bool)
    dropped[rows] = True
    return without_nodes(template, dropped, where)


def on_ranks(trace: RankTrace, ranks: int, where: str) -> TraceSet:
    """Return a job in which every rank runs the nodes of one *trace*; peers stay as far away as they were.

    >>> from cosmic.traces.trace import template_of
    >>> [each.peers for each in on_ranks(RankTrace(template_of([]), (), (1, 3), 0), 4, "job").ranks]
    [(1, 3), (2, 0), (3, 1), (0, 2)]
    """
    own = trace.own_rank or 0
    made = (
        replace(trace, peers=tuple((peer - own + rank) % ranks for peer in trace.peers), own_rank=None)
        for rank in range(ranks)
    )
    return TraceSet(tuple(made), where)
