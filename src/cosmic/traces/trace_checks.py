"""Check that traces can run: nodes are complete, dependencies acyclic, messages match, ranks agree on collectives.

With other traces a simulator stops without a reason, or deadlocks. Each rank is checked by itself (once for all
ranks that share a template). Then ranks are checked against each other: sends and receives match (`messages_of`,
`unmatched_messages`), groups exist, and the members of a group run the same collectives in the same order
(`collective_disagreements`).

A `TraceFinding` is a kind of mistake: how many there are, and a sentence for each, made on demand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cosmic.base.errors import SpecError, shorten
from cosmic.traces.dependencies import Dependencies, dependencies_of, find_cycle, topological_order
from cosmic.traces.trace import (
    ABSENT,
    ALL_RANKS,
    CollectiveType,
    Ints,
    NodeType,
    Template,
    TraceSet,
    known_groups,
    ranks_by_template,
)
from cosmic.traces.trace_views import enum_name


@dataclass(frozen=True, slots=True)
class TraceFinding:
    """One kind of mistake: a trace of a million nodes may hold a million."""

    count: int
    at: Callable[[int], SpecError]
    """Returns one of them, by index."""


def make_finding(mistakes: Sequence[Any] | Ints, error: Callable[[Any], SpecError]) -> TraceFinding:
    """Return a finding; *error* makes the sentence of each of *mistakes*."""
    return TraceFinding(len(mistakes), lambda index: error(mistakes[index]))


def node_text(template: Template, row: int) -> str:
    """Return a node's id and name, for sentences.

    >>> from cosmic.traces.trace import template_of
    >>> node_text(template_of([{"id": 4, "name": "matmul"}]), 0)
    "node 4 'matmul'"
    """
    name = template.names[row]
    return f"node {template.id[row]}" + (f" {shorten(name)}" if name else "")


def rank_text(where: str, ranks: Sequence[int]) -> str:
    """Return the ranks of a sentence: the first, and the number of others.

    >>> rank_text("gpt", [4, 5, 6])
    'gpt: rank 4 and 2 more'
    """
    return f"{where}: rank {ranks[0]}" + (f" and {len(ranks) - 1:,} more" if len(ranks) > 1 else "")


def size_text(size: int) -> str:
    """Return a size, for sentences.

    >>> size_text(4096), size_text(ABSENT)
    ('4,096 bytes', 'unknown size')
    """
    return "unknown size" if size == ABSENT else f"{size:,} bytes"


Groups = Mapping[str, Sequence[int]]
MOST_RANKS = 2**31
"""Of a job of which only some ranks are known."""


def collective_disagreements(
    traces: TraceSet, groups: Groups | None, *, replayed: bool = False
) -> Iterator[TraceFinding]:
    """Yield every disagreement of the collectives of *traces* with each other or with *groups*.

    Traces that are *replayed* as they were recorded may be those of some ranks only, and all-to-alls may be uneven. A
    collective that another rank has not recorded takes as long as it did.
    """
    try:
        members = known_groups(traces, groups)
    except SpecError as error:  # metadata nodes contradict each other, or are malformed
        yield make_finding([error], lambda mistake: mistake)
        return
    yield from _malformed_groups(traces, members, replayed)
    collectives = RankCollectives(traces, members)
    # Without a file of groups all undefined ones are one mistake: the file is missing.
    are_given = groups is not None
    names = [name for name in collectives.users if name not in members]
    more = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
    rule = "no such group" if are_given else f"no ranks are given for this group{more}"
    yield make_finding(
        names if are_given else names[:1],
        lambda name: SpecError(collectives.first_text(name, min(collectives.users[name])), name, rule),
    )
    strangers = [
        (name, rank)
        for name, users in collectives.users.items()
        for rank in sorted(users.keys() - set(members.get(name, users)))
    ]
    yield make_finding(
        strangers,
        lambda stranger: SpecError(collectives.first_text(*stranger), stranger[0], "the rank is not in this group"),
    )
    differences = list(_differences(traces, collectives, members, replayed))
    yield make_finding(differences, lambda difference: _difference_error(traces, collectives, difference))


class RankCollectives:
    """The collectives of each rank in each group."""

    def __init__(self, traces: TraceSet, members: Groups) -> None:
        self.users: dict[str, dict[int, tuple[int, ...]]] = {}
        """Indices into `RankTrace.groups`, mostly one, by the name of a group and a rank."""
        self._traces = traces
        self._rows = {id(template): _rows_by_group(template) for template in traces.templates()}
        alias = {name: ALL_RANKS[0] for name in ALL_RANKS if members[name] == members[ALL_RANKS[0]]}
        for number, rank in enumerate(traces.ranks):
            for group in self._rows[id(rank.template)]:
                name = rank.groups[group] if group != ABSENT else ALL_RANKS[0]
                ranks = self.users.setdefault(alias.get(name, name), {})
                ranks[number] = (*ranks.get(number, ()), group)

    def collective_class(self, name: str, rank: int) -> tuple[int, ...]:
        """Return a key that is equal for ranks that run the same collectives in a group because of one template."""
        groups = self.users[name].get(rank, ())
        return (id(self._traces.ranks[rank].template), *groups) if groups else ()

    def rows(self, name: str, rank: int) -> Ints:
        """Return the rows of a rank's collectives in a group, in ascending order of their ids."""
        rows_of_groups = self._rows[id(self._traces.ranks[rank].template)]
        groups = self.users[name].get(rank, ())
        if len(groups) == 1:
            return rows_of_groups[groups[0]]
        return np.sort(np.concatenate([np.empty(0, np.int64), *(rows_of_groups[group] for group in groups)]))

    def types_and_sizes(self, name: str, rank: int) -> Ints:
        """Return the types and the sizes of a rank's collectives in a group, as two rows."""
        template, rows = self._traces.ranks[rank].template, self.rows(name, rank)
        return np.array([template.comm_type[rows], template.comm_size[rows]])

    def is_tagged(self, name: str, rank: int) -> bool:
        """Return whether tags say which collectives of a rank in a group are the same as others'."""
        return bool((self._traces.ranks[rank].template.comm_tag[self.rows(name, rank)] != ABSENT).any())

    def text(self, name: str, rank: int, index: int = 0) -> str:
        """Return the text of the first, or *index*-th, node with which a rank uses a group."""
        return node_text(self._traces.ranks[rank].template, int(self.rows(name, rank)[index]))

    def first_text(self, name: str, rank: int) -> str:
        """Return the location for an error: the first node with which a rank uses a group."""
        return f"{self._traces.where}: rank {rank}: {self.text(name, rank)}: group"


def _rows_by_group(template: Template) -> dict[int, Ints]:
    """Return the rows of collectives by the index of their group."""
    rows = np.flatnonzero(template.type == NodeType.COMM_COLL)
    if not len(rows):
        return {}
    groups = template.group[rows]
    order = np.argsort(groups, kind="stable")
    distinct, starts = np.unique(groups[order], return_index=True)
    return dict(zip(distinct.tolist(), np.split(rows[order], starts[1:]), strict=True))


def _malformed_groups(traces: TraceSet, members: Groups, replayed: bool) -> Iterator[TraceFinding]:
    """Yield malformed groups: empty, or with a rank that is listed twice or not in the job."""
    count = len(traces.ranks)
    most = MOST_RANKS if replayed else count
    where = f"{traces.where}: group"
    yield make_finding(
        [name for name in members if not members[name]], lambda name: SpecError(where, name, "has no ranks")
    )
    yield make_finding(
        [(name, _first_repeated_rank(ranks)) for name, ranks in members.items() if len(set(ranks)) < len(ranks)],
        lambda mistake: SpecError(f"{where} {mistake[0]}", mistake[1], "the rank is listed twice"),
    )
    outside = [name for name, ranks in members.items() if ranks and not (min(ranks) >= 0 and max(ranks) < most)]
    yield make_finding(
        [(name, rank) for name in outside for rank in members[name] if not 0 <= rank < most],
        lambda mistake: SpecError(f"{where} {mistake[0]}", mistake[1], f"the job has ranks 0 to {most - 1:,}"),
    )


def _first_repeated_rank(ranks: Sequence[int]) -> int:
    """Return the first repeated rank."""
    seen: set[int] = set()
    for rank in ranks:
        if rank in seen:
            break
        seen.add(rank)
    return rank


class _Difference(NamedTuple):
    """Members of a group whose collectives differ from those of its first member."""

    name: str
    first: int
    """The first member."""
    ranks: list[int]
    """The others, which share a template."""
    place: int
    """Index of the first collective that differs."""


def _differences(
    traces: TraceSet, collectives: RankCollectives, members: Groups, replayed: bool
) -> Iterator[_Difference]:
    """Yield members of a group whose collectives differ from its first member's: type, size, number or order."""
    for name in collectives.users:
        classes: dict[tuple[int, ...], list[int]] = {}
        for rank in members.get(name, ()):
            if 0 <= rank < len(traces.ranks):
                classes.setdefault(collectives.collective_class(name, rank), []).append(rank)
        if len(classes) > 1:
            (first, *_), *others = classes.values()
            wanted = collectives.types_and_sizes(name, first)
            differs = _recorded_difference if replayed else _first_difference
            for ranks in others:
                if replayed and any(collectives.is_tagged(name, rank) for rank in (first, ranks[0])):
                    continue
                index = differs(wanted, collectives.types_and_sizes(name, ranks[0]))
                if index is not None:
                    yield _Difference(name, first, ranks, index)


def _first_difference(mine: Ints, theirs: Ints) -> int | None:
    """Return the first collective of two ranks whose type or size differs, or that one lacks."""
    shared = min(mine.shape[1], theirs.shape[1])
    differs = (mine[:, :shared] != theirs[:, :shared]).any(axis=0)
    if differs.any():
        return int(np.argmax(differs))
    return shared if mine.shape != theirs.shape else None


def _recorded_difference(mine: Ints, theirs: Ints) -> int | None:
    """Return the first collective of two ranks that cannot be the same one, though their order says so.

    >>> two = np.array([[0, 2], [8, 16]])
    >>> _recorded_difference(two, two[:, :1]), _recorded_difference(two, two + np.array([[0], [1]]))
    (None, 0)
    """
    shared = min(mine.shape[1], theirs.shape[1])
    kind, size = mine[:, :shared] != theirs[:, :shared]
    differs = kind | (size & (mine[0, :shared] != CollectiveType.ALL_TO_ALL))
    return int(np.argmax(differs)) if differs.any() else None


def _difference_error(traces: TraceSet, collectives: RankCollectives, difference: _Difference) -> SpecError:
    group = f"group {difference.name}" if difference.name else "all ranks"
    mine, theirs = (_collective_text(collectives, difference, rank) for rank in (difference.ranks[0], difference.first))
    where = f"{rank_text(traces.where, difference.ranks)}: collective {difference.place + 1:,} of {group}"
    return SpecError(where, mine, f"rank {difference.first} has {theirs} there")


def _collective_text(collectives: RankCollectives, difference: _Difference, rank: int) -> str:
    stated_pairs = collectives.types_and_sizes(difference.name, rank)
    if difference.place == stated_pairs.shape[1]:
        return "none"
    kind, size = stated_pairs[:, difference.place].tolist()
    return f"{enum_name(CollectiveType, kind)} of {size_text(size)}, {collectives.text(difference.name, rank, difference.place)}"


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


def check_traces(traces: TraceSet, groups: Mapping[str, Sequence[int]] | None = None) -> None:
    """Raise the first problem found."""
    for finding in _findings(traces, groups):
        if finding.count:
            raise finding.at(0)


def list_problems(
    traces: TraceSet, groups: Mapping[str, Sequence[int]] | None = None, shown: int = SHOWN, *, replayed: bool = False
) -> list[str]:
    """Return a sentence for each problem: a few of each kind, at most *shown*, and then their number.

    Of traces that are *replayed* as they were recorded, ranks may be missing.

    >>> from cosmic.traces.trace import RankTrace, template_of
    >>> nodes = [{"id": 4, "type": 4, "name": "matmul", "data": [7]}, {"id": 7, "type": 4, "data": [4]}]
    >>> list_problems(TraceSet((RankTrace(template_of(nodes)),)))
    ["trace: rank 0: nodes in a cycle = 2: each waits for the next: node 4 'matmul' -> node 7 -> node 4"]
    """
    sentences: list[str] = []
    count = 0
    for finding in _findings(traces, groups, replayed):
        count += finding.count
        listed = min(finding.count, SHOWN_OF_A_KIND, shown - len(sentences))
        sentences += [str(finding.at(index)) for index in range(listed)]
    return [*sentences, f"{traces.where}: {count:,} problems in all"] if count > len(sentences) else sentences


def _findings(
    traces: TraceSet, groups: Mapping[str, Sequence[int]] | None, replayed: bool = False
) -> Iterator[TraceFinding]:
    for template, ranks in ranks_by_template(traces):
        yield from _template_findings(template, rank_text(traces.where, ranks))
    yield make_finding(
        [rank for rank, trace in enumerate(traces.ranks) if trace.own_rank not in (None, rank)],
        lambda rank: SpecError(
            f"{traces.where}: rank {rank}: its own rank",
            traces.ranks[rank].own_rank,
            "the trace belongs to another rank",
        ),
    )
    yield from message_findings(traces, replayed=replayed)
    yield from collective_disagreements(traces, groups, replayed=replayed)


def is_replayed(traces: TraceSet) -> bool:
    """Return whether all ranks recorded when their nodes ran, so that they are replayed rather than simulated."""
    return bool(traces.ranks) and all(template.is_recorded or not template.nodes for template in traces.templates())


def _template_findings(template: Template, where: str) -> Iterator[TraceFinding]:
    """Yield the mistakes in the nodes of one template."""
    twice = np.flatnonzero(np.diff(template.id) <= 0) + 1
    yield make_finding(twice, lambda row: SpecError(f"{where}: node", int(template.id[row]), "two nodes have this id"))
    if not len(twice):  # else a dependency could mean either node
        # A dependency on an absent node, or on the node itself, is never satisfied.
        dependencies = dependencies_of(template)
        itself = ~dependencies.absent & (dependencies.row == dependencies.dependent)
        for wrong, rule in ((dependencies.absent, "no node has this id"), (itself, "a node cannot wait for itself")):
            yield make_finding(np.flatnonzero(wrong), partial(_dependency_error, template, dependencies, where, rule))
        # One cycle is enough: to break it often breaks others.
        satisfiable = dependencies.within()
        rows = find_cycle(satisfiable, topological_order(satisfiable))
        if rows:
            yield make_finding(
                [rows],
                lambda cycle: SpecError(
                    f"{where}: nodes in a cycle", len(cycle), f"each waits for the next: {_cycle_text(template, cycle)}"
                ),
            )
    yield from _attribute_findings(template, where)


def _dependency_error(template: Template, dependencies: Dependencies, where: str, rule: str, index: int) -> SpecError:
    node = node_text(template, int(dependencies.dependent[index]))
    return SpecError(f"{where}: {node}: depends on", int(dependencies.wanted[index]), rule)


def _cycle_text(template: Template, rows: Sequence[int]) -> str:
    shown = [node_text(template, row) for row in rows[:SHOWN_OF_A_CYCLE]]
    if len(rows) > SHOWN_OF_A_CYCLE:
        shown.append(f"({len(rows) - SHOWN_OF_A_CYCLE:,} more)")
    return " -> ".join([*shown, f"node {template.id[rows[0]]}"])


def _attribute_findings(template: Template, where: str) -> Iterator[TraceFinding]:
    """Yield nodes of unknown type, and nodes that lack an attribute that their type needs."""
    kind = template.type
    yield make_finding(
        np.flatnonzero((kind <= NodeType.INVALID) | (kind > LAST_TYPE)),
        lambda row: SpecError(f"{where}: {node_text(template, row)}: type", int(kind[row]), "no such type of node"),
    )
    collective = template.comm_type
    yield make_finding(
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
            yield make_finding(lacking, partial(_attribute_error, template, where, attribute))


def _attribute_error(template: Template, where: str, attribute: str, row: int) -> SpecError:
    kind = NodeType(template.type[row]).name
    return SpecError(f"{where}: {node_text(template, row)}: {attribute}", None, f"a {kind} node needs it")


# ---- Sends and receives of all ranks, and whether they match

SEND, RECEIVE = 0, 1


@dataclass(frozen=True, slots=True, eq=False)
class PointToPointMessages:
    """Sends and receives, one entry each; within a rank in the order of nodes."""

    side: Ints
    """`SEND` or `RECEIVE`."""
    rank: Ints
    row: Ints
    peer: Ints
    tag: Ints
    size: Ints

    def select(self, selected: Ints | npt.NDArray[np.bool_]) -> PointToPointMessages:
        """Return the messages at some indices, or where a mask is true."""
        return PointToPointMessages(
            self.side[selected],
            self.rank[selected],
            self.row[selected],
            self.peer[selected],
            self.tag[selected],
            self.size[selected],
        )


def messages_of(traces: TraceSet) -> PointToPointMessages:
    """Return the sends and receives that state a peer."""
    columns_of_templates = [np.empty((6, 0), np.int64)]
    for template, ranks in ranks_by_template(traces):
        exchanges = (template.type == NodeType.COMM_SEND) | (template.type == NodeType.COMM_RECV)
        rows = np.flatnonzero(exchanges & (template.peer != ABSENT))
        if len(rows):
            side = np.where(template.type[rows] == NodeType.COMM_SEND, SEND, RECEIVE)
            peers = np.array([traces.ranks[rank].peers for rank in ranks], np.int64)[:, template.peer[rows]]
            every = (len(ranks), len(rows))
            columns = (side, np.array(ranks)[:, None], rows, peers, template.comm_tag[rows], template.comm_size[rows])
            columns_of_templates.append(np.stack([np.broadcast_to(column, every).ravel() for column in columns]))
    return PointToPointMessages(*np.concatenate(columns_of_templates, axis=1))


def message_findings(traces: TraceSet, *, replayed: bool = False) -> Iterator[TraceFinding]:
    """Yield messages to or from ranks that are not in the job, and unmatched sends and receives.

    Where traces are *replayed*, a message whose other side is not recorded takes as long as it did.
    """
    messages, ranks = messages_of(traces), len(traces.ranks)
    outside = (messages.peer < 0) | (messages.peer >= ranks)
    strangers = messages.select((messages.peer < 0) if replayed else outside)
    yield make_finding(
        range(len(strangers.rank)),
        lambda index: SpecError(
            f"{_message_text(traces, strangers, index)} rank",
            int(strangers.peer[index]),
            f"the job has ranks 0 to {ranks - 1:,}",
        ),
    )
    unmatched = unmatched_messages(messages.select(np.zeros(0, np.int64) if replayed else ~outside), ranks)
    yield make_finding(range(len(unmatched.rank)), lambda index: _unmatched_error(traces, unmatched, index))


def unmatched_messages(messages: PointToPointMessages, ranks: int) -> PointToPointMessages:
    """Return sends without a receive, and receives without a send.

    The n-th send from a source to a destination with a tag and a size matches the n-th such receive there.
    """
    sends = messages.side == SEND
    source = np.where(sends, messages.rank, messages.peer)
    route = source * ranks + np.where(sends, messages.peer, messages.rank)
    order = np.lexsort((messages.side, messages.size, messages.tag, route))
    if not len(order):
        return messages
    keys = np.stack([route, messages.tag, messages.size])[:, order]
    starts = np.flatnonzero(np.concatenate([[True], (keys[:, 1:] != keys[:, :-1]).any(axis=0)]))
    entries = np.diff(np.append(starts, len(order)))
    sent = np.add.reduceat(sends[order], starts, dtype=np.int64)
    # Entries with equal keys are sends, then receives; the last of the more numerous are unmatched.
    first, sent, received = (np.repeat(counts, entries) for counts in (starts, sent, entries - sent))
    nth = np.arange(len(order)) - first
    unmatched = np.where(sends[order], nth >= received, nth >= 2 * sent)
    return messages.select(np.sort(order[unmatched]))


def _unmatched_error(traces: TraceSet, unmatched: PointToPointMessages, index: int) -> SpecError:
    tag, size = int(unmatched.tag[index]), int(unmatched.size[index])
    verb = "receive" if unmatched.side[index] == SEND else "send"
    rule = f"has no {verb} of {size_text(size)} with tag {tag}"
    # An unmatched message of the other side was often meant: the same tag with another size.
    meant = (
        (unmatched.side != unmatched.side[index])
        & (unmatched.rank == unmatched.peer[index])
        & (unmatched.peer == unmatched.rank[index])
    )
    if meant.any():
        near = int(np.argmax(meant * (1 + (unmatched.tag == tag))))
        candidate = f"{size_text(int(unmatched.size[near]))} with tag {unmatched.tag[near]}"
        rule += f", but {_node_text(traces, unmatched, near)} there {verb}s {candidate}"
    return SpecError(f"{_message_text(traces, unmatched, index)} rank", int(unmatched.peer[index]), rule)


def _message_text(traces: TraceSet, messages: PointToPointMessages, index: int) -> str:
    verb = "sends to" if messages.side[index] == SEND else "receives from"
    return f"{traces.where}: rank {messages.rank[index]}: {_node_text(traces, messages, index)} {verb}"


def _node_text(traces: TraceSet, messages: PointToPointMessages, index: int) -> str:
    return node_text(traces.ranks[messages.rank[index]].template, int(messages.row[index]))
