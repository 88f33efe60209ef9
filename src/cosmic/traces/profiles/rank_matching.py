"""Match the profiles of a job's ranks: process groups, collectives that are the same, and clocks.

**Groups** (`Grouping`). NCCL's events name the group. Names are a rank's own: ranks 0 and 1 may call their group
"1", and ranks 2 and 3 theirs. So a group is known by its name and its ranks. Gloo's events name none: a rank in one
group uses that; for the others, each group has two threads of its own, which were started one after the other and in
the order of the groups.

**Collectives.** Collectives of a group are the same on all ranks where their sequence numbers are. Where these are
not stated, the n-th is the same if all ranks recorded equally many. If not, recording began or ended at different
moments: they are counted from the end or from the start, whichever fits what they are and when they ran; otherwise
nobody knows, and they do not meet. What one rank's profile does not say of a communication (its size, who sent) is
taken from another rank's.

**Clocks.** By how much each rank's clock is ahead is found from collectives, which end together.

**Tags.** A replay takes the n-th collective of a group to be the same on all ranks. That is wrong where ranks
recorded different ones, or where it is not recorded in which group a collective ran. Then `tag_collectives` sets
tags: those of a group with equal tags meet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from itertools import pairwise
from statistics import median
from typing import Protocol

from cosmic.base.errors import require
from cosmic.traces.profiles.event_linking import LinkedEvents
from cosmic.traces.profiles.kineto import Kineto
from cosmic.traces.profiles.profiled_collectives import Communication
from cosmic.traces.replay import issue_order
from cosmic.traces.trace import ABSENT, CollectiveType, NodeType, RankTrace

DEFAULT = "0"
"""What PyTorch calls the group of all ranks."""
EXCHANGE = "exchange"
"""What the ranks are called here that send to each other in one kernel."""
THREADS_OF_A_GROUP = 2
MOST_APART = 2
"""Threads of a group are numbered this far apart at most, where another process starts some at the same time."""
MOST_RANKS = 2**20
Key = tuple[str, tuple[int, ...]]
"""A group: what PyTorch calls it, and its ranks."""


class Grouping:
    """The groups of a job."""

    def __init__(self, traces: Sequence[Kineto], calls: Sequence[Sequence[Communication]]) -> None:
        self._calls = calls
        self.notes: list[str] = []
        # The job has as many ranks as any file states or names.
        world_sizes = [size for trace in traces if (size := trace.world_size) is not None]
        listed = [rank + 1 for trace in traces for ranks in trace.groups.values() for rank in ranks]
        lowest = listed[:]
        own = [trace.rank + 1 for trace in traces if trace.rank is not None]
        groups = {(call.ranks, call.group_size) for rank_calls in calls for call in rank_calls}
        lowest += [min(ranks) + 1 for ranks, _ in groups if ranks]
        listed += [max(max(ranks, default=-1) + 1, size) for ranks, size in groups]
        world = max([len(traces), *world_sizes, *listed, *own])
        rule = f"a job may have up to {MOST_RANKS:,} ranks, from 0 on"
        require(min([*lowest, *own], default=1) > 0 and world <= MOST_RANKS, "ranks", world, rule)
        self.world_size = world
        everyone = tuple(range(self.world_size))
        self._own = traces[0].rank or 0 if len(traces) == 1 else 0  # a rank alone is rank 0, and the other way round
        self._members = [_members(trace, rank_calls, everyone) for trace, rank_calls in zip(traces, calls, strict=True)]
        names = [_names_of_calls(trace, rank_calls) for trace, rank_calls in zip(traces, calls, strict=True)]
        self._keys = [
            [self._key(rank, call, name) for call, name in zip(calls[rank], rank_names, strict=True)]
            for rank, rank_names in enumerate(names)
        ]
        for trace, keys, rank_calls in zip(traces, self._keys, calls, strict=True):
            unknown = sum(key is None and call.kind is not None for key, call in zip(keys, rank_calls, strict=True))
            if unknown:
                text = f"the groups of {unknown} of {len(rank_calls)} communications are not recorded"
                self.notes.append(f"{trace.where}: {text}: they take what they took, whoever is late")
        distinct_groups = {(name, tuple(sorted(ranks))) for member in self._members for name, ranks in member.items()}
        distinct_groups |= {key for keys in self._keys for key in keys if key is not None}
        if self.world_size == len(traces):
            distinct_groups.discard((DEFAULT, everyone))  # which files do not name
        ordered = sorted(distinct_groups, key=lambda key: (not key[0].isdecimal(), len(key[0]), key))
        self._number = {key: str(index + 1) for index, key in enumerate(ordered)}
        code = {key: index for index, key in enumerate([*ordered, (DEFAULT, everyone)])}
        self._codes = [[-1 if key is None else code[key] for key in keys] for keys in self._keys]
        self.groups = {
            number: tuple(sorted(self._rank_in_job(rank) for rank in key[1])) for key, number in self._number.items()
        }

    def _rank_in_job(self, rank: int) -> int:
        return {0: self._own, self._own: 0}.get(rank, rank)

    def _key(self, rank: int, call: Communication, name: str) -> Key | None:
        """Return the group of a communication; None if it is not known."""
        own = self._rank_in_job(rank)
        members = call.ranks or self._members[rank].get(name) or self._listed_elsewhere(own, name)
        if call.is_exchange and call.kind is not None:
            placed = () if call.is_global else members or ()
            peers = [_rank_in_group(peer, placed) for peer in call.peers or ()]
            return (EXCHANGE, tuple(sorted({own, *peers}))) if peers else None
        return (name, tuple(sorted(members))) if members else None

    def _listed_elsewhere(self, own: int, name: str) -> tuple[int, ...]:
        """Return the ranks of a group that only other ranks list."""
        listed = {member[name] for member in self._members if name in member and own in member[name]}
        return next(iter(listed)) if len(listed) == 1 else ()

    def group_of(self, rank: int, call: int) -> int:
        """Return the group of a rank's communication as a number; -1 if it is not known."""
        return self._codes[rank][call]

    def name_of(self, rank: int, call: int) -> str:
        """Return the group of a rank's communication as files name it; empty for all ranks, and if it is not known."""
        key = self._keys[rank][call]
        return "" if key is None else self._number.get(key, "")

    def global_rank(self, rank: int, call: int, peer: int | None) -> int | None:
        """Return the rank of a peer in the job; gloo's events state its rank in the group."""
        if peer is None:
            return None
        communication, key = self._calls[rank][call], self._keys[rank][call]
        if communication.is_global or key is None:
            return self._rank_in_job(peer)
        return self._rank_in_job(_rank_in_group(peer, communication.ranks or self._members[rank].get(key[0], key[1])))


def _rank_in_group(peer: int, members: Sequence[int]) -> int:
    return members[peer] if 0 <= peer < len(members) else peer


def _members(trace: Kineto, calls: Sequence[Communication], everyone: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """Return the ranks of the groups of one rank, by PyTorch's names."""
    members = {name: ranks for name, ranks in trace.groups.items() if ranks}
    for call in calls:
        if call.group and call.ranks:
            members.setdefault(call.group, call.ranks)
    return {DEFAULT: everyone} | members


def _names_of_calls(trace: Kineto, calls: Sequence[Communication]) -> list[str]:
    """Return PyTorch's name of the group of each communication; empty where it is not known."""
    groups = list(trace.groups) or [DEFAULT]
    by_thread = _groups_of_threads(trace, calls, groups) if len(groups) > 1 else {}
    names = []
    for call in calls:
        name = call.group
        if not name and len(groups) == 1:
            name = groups[0]
        if not name and call.annotations:
            name = by_thread.get(int(trace.host.thread[call.annotations[0]]), "")
        names.append(name)
    return names


def _groups_of_threads(trace: Kineto, calls: Sequence[Communication], groups: Sequence[str]) -> Mapping[int, str]:
    """Return the group of each thread of gloo; none if that is not clear, as where a group is not used.

    A group that was used once shows one of its threads.
    """
    used: dict[int, str] = {}
    for call in calls:
        for entry in call.annotations if call.kind is not None else ():
            thread = int(trace.host.thread[entry])
            used[thread] = call.group or used.get(thread, "")
    threads = sorted(used, key=lambda thread: _thread_id(trace.threads[thread]))
    if len(threads) == THREADS_OF_A_GROUP * len(groups):
        pairs = [threads[first : first + THREADS_OF_A_GROUP] for first in range(0, len(threads), THREADS_OF_A_GROUP)]
    else:
        pairs = []
        for thread in threads:
            last = pairs[-1] if pairs else []
            apart = _thread_id(trace.threads[thread])[0] - _thread_id(trace.threads[last[-1]])[0] if last else 0
            if len(last) == 1 and apart <= MOST_APART:
                last.append(thread)
            else:
                pairs.append([thread])
    if len(pairs) != len(groups):
        return {}
    group_of = {thread: name for name, pair in zip(groups, pairs, strict=True) for thread in pair}
    return group_of if all(name in ("", group_of[thread]) for thread, name in used.items()) else {}


def _thread_id(thread: tuple[str, str]) -> tuple[int, str]:
    number = thread[1]
    return (int(number), "") if number.lstrip("-").isdecimal() else (0, number)


CallKey = tuple[int, int]
"""A rank, and the place of one of its communications."""
CollectiveNumbers = dict[CallKey, tuple[int, int, int]]
"""What is equal for communications that are the same collective: the group, a number, and a second one."""
Numbers = dict[int, list[tuple[int, int]]]
"""By rank, numbers of its collectives in a group, which two have in common if they are the same."""
EVEN = (CollectiveType.ALL_REDUCE, CollectiveType.BROADCAST)
"""Collectives of which all ranks state one size."""
SHOWN = 4
ROOTED = (CollectiveType.SCATTER, CollectiveType.GATHER)


def settle_messages(calls: Sequence[Sequence[Communication]]) -> list[list[Communication]]:
    """Return the communications of all ranks, with messages as exchanges whose other side is part of an exchange.

    A kernel that states nothing and moves one message is a send or a receive; one that moves several is an exchange.
    """
    balance: Counter[tuple[int, int, int]] = Counter()
    for rank, rank_calls in enumerate(calls):
        for call in rank_calls:
            if (route := _route(rank, call)) is not None:
                balance[route] += 1 if call.node_type == NodeType.COMM_SEND else -1
    settled = []
    for rank, rank_calls in enumerate(calls):
        unmatched = (call.is_exchange and balance[_route(rank, call) or (-1, -1, -1)] != 0 for call in rank_calls)
        settled.append([_exchange(call) if alone else call for call, alone in zip(rank_calls, unmatched, strict=True)])
    return settled


def _route(rank: int, call: Communication) -> tuple[int, int, int] | None:
    """Return the source, the destination and the size of a message between ranks of the job; None for others."""
    if call.kind is not None or call.peer is None or not call.is_global:
        return None
    ends = (rank, call.peer) if call.node_type == NodeType.COMM_SEND else (call.peer, rank)
    return (*ends, call.size)


def _exchange(call: Communication) -> Communication:
    peers = None if call.peer is None else (call.peer,)
    return replace(call, node_type=NodeType.COMM_COLL, kind=CollectiveType.ALL_TO_ALL, peers=peers, peer=None)


# ---- which is which


def same_collectives(
    calls: Sequence[Sequence[Communication]], grouping: Grouping, clocks: Sequence[int]
) -> tuple[CollectiveNumbers, list[str]]:
    """Return which collectives are the same, and notes where that is a guess; *clocks* say when each rank began."""
    by_group: dict[int, dict[int, list[int]]] = {}
    for rank, rank_calls in enumerate(calls):
        for index, call in enumerate(rank_calls):
            group = grouping.group_of(rank, index)
            if call.kind is not None and group >= 0:
                by_group.setdefault(group, {}).setdefault(rank, []).append(index)
    same_numbers: CollectiveNumbers = {}
    notes = []
    for group, indices in by_group.items():
        listed = {rank: [calls[rank][index] for index in rank_indices] for rank, rank_indices in indices.items()}
        numbers, how = _number_collectives(listed, clocks)
        if how:
            counts = sorted({len(listed_calls) for listed_calls in listed.values()})
            whose = f"of ranks {_list_ranks(sorted(indices))}"
            text = f"collectives of one group {whose} = from {counts[0]} to {counts[-1]}"
            notes.append(f"{text}: {how}, as no sequence numbers are recorded")
        for rank, pairs in numbers.items():
            same_numbers |= {(rank, index): (group, *pair) for index, pair in zip(indices[rank], pairs, strict=True)}
    return same_numbers, notes


def _list_ranks(ranks: Sequence[int]) -> str:
    """Return a few ranks as text.

    >>> _list_ranks([0, 2]), _list_ranks(range(9))
    ('0, 2', '0, 1, 2, ..., 8')
    """
    few = list(map(str, ranks))
    return ", ".join(few if len(few) <= SHOWN else [*few[: SHOWN - 1], "...", few[-1]])


def _number_collectives(calls: Mapping[int, Sequence[Communication]], clocks: Sequence[int]) -> tuple[Numbers, str]:
    """Return numbers of a group's collectives by which they are the same, and how they were found if it is a guess."""
    most = max(map(len, calls.values()))
    equal = all(len(rank_calls) == most for rank_calls in calls.values())
    nth: Numbers = {rank: [(index, 0) for index in range(len(rank_calls))] for rank, rank_calls in calls.items()}
    if all(call.sequence >= 0 for rank_calls in calls.values() for call in rank_calls):
        recorded = {rank: _sequence_numbers(rank_calls) for rank, rank_calls in calls.items()}
        if not equal or _is_consistent(calls, recorded) or not _is_consistent(calls, nth):
            return recorded, ""
    if equal:
        return nth, ""
    last = {
        rank: [(index + most - len(rank_calls), 0) for index in range(len(rank_calls))]
        for rank, rank_calls in calls.items()
    }
    guesses = [(last, "counted from the end"), (nth, "counted from the start")]
    guesses = [(numbers, how) for numbers, how in guesses if _is_consistent(calls, numbers)]
    unknown: tuple[Numbers, str] = {}, "they take what they took, whoever is late"
    return max(guesses, key=lambda guess: _overlapping(calls, guess[0], clocks), default=unknown)


def _sequence_numbers(calls: Sequence[Communication]) -> list[tuple[int, int]]:
    """Return the sequence numbers, each with its index among equal ones (collectives issued together)."""
    counts: Counter[int] = Counter()
    sequences = []
    for call in calls:
        sequences.append((call.sequence, counts[call.sequence]))
        counts[call.sequence] += 1
    return sequences


def _is_consistent(calls: Mapping[int, Sequence[Communication]], numbers: Numbers) -> bool:
    """Return whether collectives of one number are of one kind and size."""
    seen: dict[tuple[int, int], tuple[CollectiveType | None, int]] = {}
    for rank, rank_calls in calls.items():
        for call, number in zip(rank_calls, numbers[rank], strict=True):
            size = call.size if call.kind in EVEN else 0
            if seen.setdefault(number, (call.kind, size)) != (call.kind, size):
                return False
    return True


def _overlapping(calls: Mapping[int, Sequence[Communication]], numbers: Numbers, clocks: Sequence[int]) -> int:
    """Return how many collectives no rank left before another entered, by the ranks' clocks."""
    entered: dict[tuple[int, int], int] = {}
    first_end: dict[tuple[int, int], int] = {}
    for rank, rank_calls in calls.items():
        for call, number in zip(rank_calls, numbers[rank], strict=True):
            entered[number] = max(entered.get(number, -(2**64)), clocks[rank] + call.start)
            first_end[number] = min(first_end.get(number, 2**64), clocks[rank] + call.end)
    counts = Counter(number for rank_numbers in numbers.values() for number in rank_numbers)
    return sum(entered[number] <= first_end[number] for number in entered if counts[number] > 1)


# ---- what is missing


def complete_communications(
    calls: Sequence[Sequence[Communication]], same: CollectiveNumbers, grouping: Grouping
) -> list[list[Communication]]:
    """Return the communications of all ranks, their peers as ranks in the files.

    Where a rank does not state the size of a collective, that of another counts; so it does for a collective with a
    root, which alone has the whole. A receive from anybody takes the first send that nobody receives.
    """
    completed = [list(rank_calls) for rank_calls in calls]
    for meeting in _meeting_places(same):
        members = [completed[rank][index] for rank, index in meeting]
        if len({call.kind for call in members}) == 1:
            largest = max(call.size for call in members)
            for rank, index in meeting:
                call = completed[rank][index]
                least = largest if call.kind in ROOTED else 0 if call.kind == CollectiveType.ALL_TO_ALL else 1
                if call.size < least:  # a rank may send nothing to the others
                    completed[rank][index] = replace(call, size=largest)
    for rank, rank_calls in enumerate(completed):
        for index, call in enumerate(rank_calls):
            if call.peer is not None:
                rank_calls[index] = replace(call, peer=grouping.global_rank(rank, index, call.peer))
    _find_senders(completed)
    return completed


def _meeting_places(same: CollectiveNumbers) -> Iterator[list[CallKey]]:
    """Yield the calls that are one collective, by rank and index."""
    meetings: dict[tuple[int, int, int], list[CallKey]] = {}
    for call, number in same.items():
        meetings.setdefault(number, []).append(call)
    yield from meetings.values()


def _find_senders(calls: list[list[Communication]]) -> None:
    """Set the sources of receives that state none."""
    exchanged: dict[NodeType, Counter[tuple[int, ...]]] = {NodeType.COMM_SEND: Counter(), NodeType.COMM_RECV: Counter()}
    for rank, rank_calls in enumerate(calls):
        for call in rank_calls:
            if call.node_type in exchanged and call.peer is not None:
                route = (rank, call.peer) if call.node_type == NodeType.COMM_SEND else (call.peer, rank)
                exchanged[call.node_type][(*route, call.tag, call.size)] += 1
    sent, received = exchanged[NodeType.COMM_SEND], exchanged[NodeType.COMM_RECV]
    for rank, rank_calls in enumerate(calls):
        for index, call in enumerate(rank_calls):
            if call.node_type != NodeType.COMM_RECV or call.peer is not None:
                continue
            for source in range(len(calls)):
                message = (source, rank, call.tag, call.size)
                if source != rank and sent[message] > received[message]:
                    rank_calls[index] = replace(call, peer=source)
                    received[message] += 1
                    break


MOST_NS = 10**12
"""Clocks further apart than this (17 minutes) are not of one run."""
TOGETHER = (
    CollectiveType.ALL_REDUCE,
    CollectiveType.ALL_GATHER,
    CollectiveType.ALL_TO_ALL,
    CollectiveType.REDUCE_SCATTER,
)
"""Collectives that nobody can leave before all have entered."""
Spans = list[tuple[int, int, int]]
"""The members of a collective: their ranks, and when they entered and left."""
Span = tuple[int, int]
Pairs = dict[tuple[int, int], list[tuple[Span, Span]]]
"""By two ranks, when both entered and left each collective that they share."""


class RankRecording(Protocol):
    """What is needed of a rank."""

    kineto: Kineto
    linked: LinkedEvents
    communications: list[Communication]


def clock_offsets(ranks: Sequence[RankRecording], same: CollectiveNumbers) -> list[int]:
    """Return the offsets that bring the ranks' clocks together, so that the first rank begins at 0.

    Where ranks ran on one host their clocks agree, and are kept. They disagree where a rank seems to leave a collective
    before another enters it; then the ends of the collectives that the two share are laid together. *same* says which
    collectives are.
    """
    first = [int(rank.linked.start.min()) if len(rank.linked.start) else 0 for rank in ranks]
    clocks = [rank.kineto.base_ns - ranks[0].kineto.base_ns for rank in ranks]
    if max(clocks) - min(clocks) > MOST_NS:
        clocks = [first[0] - begin for begin in first]
    # Collectives that several ranks recorded and that nobody leaves early
    spans_of_collectives: dict[tuple[object, ...], Spans] = {}
    for (owner, index), number in same.items():
        call = ranks[owner].communications[index]
        if call.kind in TOGETHER and not call.is_exchange:
            spans_of_collectives.setdefault((*number, call.kind), []).append((owner, call.start, call.end))
    shared = [member_spans for member_spans in spans_of_collectives.values() if len(member_spans) > 1]
    offsets = clocks
    if not _clocks_agree(shared, offsets):
        # What two ranks share: each of a group with the first of it, and with the next
        pairs: Pairs = {}
        for meeting_spans in shared:
            listed = sorted(meeting_spans)
            for earlier, later in {*pairwise(listed), *((listed[0], span) for span in listed[1:])}:
                pairs.setdefault((earlier[0], later[0]), []).append((earlier[1:], later[1:]))
        shifts = {two: _clock_shift(spans) for two, spans in pairs.items()}
        consistent = {
            (first_rank, two)
            for (first_rank, two), spans in pairs.items()
            if _overlap(spans, clocks[two] - clocks[first_rank])
        }
        offsets = _spread_offsets(clocks, shifts, consistent)
        if not _clocks_agree(shared, offsets):
            offsets = _spread_offsets(clocks, shifts, set())
    least = min(begin + offset for begin, offset in zip(first, offsets, strict=True))
    return [offset - least for offset in offsets]


def _clocks_agree(shared: Sequence[Spans], offsets: Sequence[int]) -> bool:
    """Return whether no rank leaves a collective before another enters it."""
    return all(
        max(start + offsets[rank] for rank, start, _ in spans) <= min(end + offsets[rank] for rank, _, end in spans)
        for spans in shared
    )


def _overlap(spans: Sequence[tuple[Span, Span]], apart: int) -> bool:
    """Return whether all collectives of two ranks overlap if *apart* is added to the times of the second.

    >>> _overlap([((0, 10), (4, 6))], 6), _overlap([((0, 10), (4, 6))], 7)
    (True, False)
    """
    return all(max(first[0], second[0] + apart) <= min(first[1], second[1] + apart) for first, second in spans)


def _clock_shift(spans: Sequence[tuple[Span, Span]]) -> int:
    """Return the offset of the second rank's times with which collectives end together.

    >>> _clock_shift([((0, 10), (0, 4)), ((20, 30), (0, 23)), ((40, 50), (41, 45))])
    6
    """
    return round(median(first[1] - second[1] for first, second in spans))


def _spread_offsets(
    clocks: Sequence[int], shifts: Mapping[tuple[int, int], int], consistent: set[tuple[int, int]]
) -> list[int]:
    """Return offsets along the collectives that ranks share, from rank 0 on; the clocks of pairs in *consistent* stay.

    >>> _spread_offsets([0, 7, 100, 0], {(0, 1): 2, (1, 2): 30}, {(0, 1)})
    [0, 7, 37, 0]
    """
    near: list[list[tuple[int, int, bool]]] = [[] for _ in clocks]
    for (first, second), shift in shifts.items():
        stays = (first, second) in consistent
        apart = clocks[second] - clocks[first] if stays else shift
        near[first].append((second, apart, stays))
        near[second].append((first, -apart, stays))
    offsets: dict[int, int] = {}
    for root, clock in enumerate(clocks):
        waiting = [(False, root, clock)]
        while waiting:  # pairs whose clocks stay come first
            _, rank, offset = heappop(waiting)
            if rank not in offsets:
                offsets[rank] = offset
                for neighbour, apart, stays in near[rank]:
                    heappush(waiting, (not stays, neighbour, offset + apart))
    return [offsets[rank] for rank in range(len(clocks))]


def tag_collectives(ranks: Sequence[RankTrace], same: CollectiveNumbers) -> None:
    """Set the tags of collectives, which hold the index of each among the communications of its rank until then."""
    groups: dict[str, dict[int, list[tuple[int, object]]]] = {}
    for number, rank in enumerate(ranks):
        template = rank.template
        for row in issue_order(template):
            group = int(template.group[row])
            name = "" if group == ABSENT else rank.groups[group]
            key = number, int(template.comm_tag[row])
            groups.setdefault(name, {}).setdefault(number, []).append((row, same.get(key, key)))
    for users in groups.values():
        orders = [[collective_number for _, collective_number in listed] for listed in users.values()]
        unknown = any(
            isinstance(collective_number, tuple) and len(collective_number) == 2
            for order in orders
            for collective_number in order
        )
        in_order = len(orders) == 1 or (not unknown and all(order == orders[0] for order in orders))
        numbers = {
            fromkey: key
            for key, fromkey in enumerate(
                dict.fromkeys(collective_number for order in orders for collective_number in order)
            )
        }
        for number, listed in users.items():
            for row, collective_number in listed:
                ranks[number].template.comm_tag[row] = ABSENT if in_order else numbers[collective_number]
