"""What one rank's profile does not say of a communication, and another's does: which is the same, sizes, and who sent.

Collectives of a group are the same on all ranks where their sequence numbers are. Where these are not stated, the n-th
is the same if all ranks recorded equally many. If not, recording began or ended at different moments: they are counted
from the end or from the start, whichever fits what they are and when they ran; otherwise nobody knows, and they do not
meet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from cosmic.profiles.collectives import Communication
from cosmic.profiles.grouping import Grouping
from cosmic.traces.trace import CollectiveType, NodeType

Place = tuple[int, int]
"""A rank, and the place of one of its communications."""
Same = dict[Place, tuple[int, int, int]]
"""What is equal for communications that are the same collective: the group, a number, and a second one."""
Numbers = dict[int, list[tuple[int, int]]]
"""By rank, numbers of its collectives in a group, which two have in common if they are the same."""
EVEN = (CollectiveType.ALL_REDUCE, CollectiveType.BROADCAST)
"""Collectives of which all ranks state one size."""
SHOWN = 4
ROOTED = (CollectiveType.SCATTER, CollectiveType.GATHER)


def settled(calls: Sequence[Sequence[Communication]]) -> list[list[Communication]]:
    """Return the communications of all ranks, with messages as exchanges whose other side is part of an exchange.

    A kernel that states nothing and moves one message is a send or a receive; one that moves several is an exchange.
    """
    balance: Counter[tuple[int, int, int]] = Counter()
    for rank, each in enumerate(calls):
        for call in each:
            if (route := _route(rank, call)) is not None:
                balance[route] += 1 if call.node_type == NodeType.COMM_SEND else -1
    found = []
    for rank, each in enumerate(calls):
        lone = (call.is_exchange and balance[_route(rank, call) or (-1, -1, -1)] != 0 for call in each)
        found.append([_exchange(call) if alone else call for call, alone in zip(each, lone, strict=True)])
    return found


def _route(rank: int, call: Communication) -> tuple[int, int, int] | None:
    """Return the source, the destination and the size of a message between ranks of the job; None for others."""
    if call.kind is not None or call.peer is None or not call.is_global:
        return None
    ends = (rank, call.peer) if call.node_type == NodeType.COMM_SEND else (call.peer, rank)
    return (*ends, call.size)


def _exchange(call: Communication) -> Communication:
    peers = None if call.peer is None else (call.peer,)
    return replace(call, node_type=NodeType.COMM_COLL, kind=CollectiveType.ALL_TO_ALL, peers=peers, peer=None)


# ------------------------------------------------------------------------------------------------------ which is which


def same_collectives(
    calls: Sequence[Sequence[Communication]], grouping: Grouping, clocks: Sequence[int]
) -> tuple[Same, list[str]]:
    """Return which collectives are the same, and notes where that is a guess; *clocks* say when each rank began."""
    by_group: dict[int, dict[int, list[int]]] = {}
    for rank, each in enumerate(calls):
        for at, call in enumerate(each):
            group = grouping.group_of(rank, at)
            if call.kind is not None and group >= 0:
                by_group.setdefault(group, {}).setdefault(rank, []).append(at)
    found: Same = {}
    notes = []
    for group, places in by_group.items():
        listed = {rank: [calls[rank][at] for at in each] for rank, each in places.items()}
        numbers, how = _numbered(listed, clocks)
        if how:
            counts = sorted({len(each) for each in listed.values()})
            of = f"of ranks {_listed(sorted(places))}"
            text = f"collectives of one group {of} = from {counts[0]} to {counts[-1]}"
            notes.append(f"{text}: {how}, as no sequence numbers are recorded")
        for rank, pairs in numbers.items():
            found |= {(rank, at): (group, *pair) for at, pair in zip(places[rank], pairs, strict=True)}
    return found, notes


def _listed(ranks: Sequence[int]) -> str:
    """Return a few ranks as text.

    >>> _listed([0, 2]), _listed(range(9))
    ('0, 2', '0, 1, 2, ..., 8')
    """
    few = list(map(str, ranks))
    return ", ".join(few if len(few) <= SHOWN else [*few[: SHOWN - 1], "...", few[-1]])


def _numbered(calls: Mapping[int, Sequence[Communication]], clocks: Sequence[int]) -> tuple[Numbers, str]:
    """Return numbers of a group's collectives by which they are the same, and how they were found if it is a guess."""
    most = max(map(len, calls.values()))
    equal = all(len(each) == most for each in calls.values())
    nth: Numbers = {rank: [(at, 0) for at in range(len(each))] for rank, each in calls.items()}
    if all(call.sequence >= 0 for each in calls.values() for call in each):
        stated = {rank: _sequences(each) for rank, each in calls.items()}
        if not equal or _fits(calls, stated) or not _fits(calls, nth):
            return stated, ""
    if equal:
        return nth, ""
    last = {rank: [(at + most - len(each), 0) for at in range(len(each))] for rank, each in calls.items()}
    guesses = [(last, "counted from the end"), (nth, "counted from the start")]
    guesses = [(numbers, how) for numbers, how in guesses if _fits(calls, numbers)]
    unknown: tuple[Numbers, str] = {}, "they take what they took, whoever is late"
    return max(guesses, key=lambda guess: _overlapping(calls, guess[0], clocks), default=unknown)


def _sequences(calls: Sequence[Communication]) -> list[tuple[int, int]]:
    """Return the sequence numbers, and the places among equal ones: those of collectives that were issued together."""
    counts: Counter[int] = Counter()
    found = []
    for call in calls:
        found.append((call.sequence, counts[call.sequence]))
        counts[call.sequence] += 1
    return found


def _fits(calls: Mapping[int, Sequence[Communication]], numbers: Numbers) -> bool:
    """Return whether collectives of one number are of one kind and size."""
    known: dict[tuple[int, int], tuple[CollectiveType | None, int]] = {}
    for rank, each in calls.items():
        for call, number in zip(each, numbers[rank], strict=True):
            size = call.size if call.kind in EVEN else 0
            if known.setdefault(number, (call.kind, size)) != (call.kind, size):
                return False
    return True


def _overlapping(calls: Mapping[int, Sequence[Communication]], numbers: Numbers, clocks: Sequence[int]) -> int:
    """Return how many collectives no rank left before another entered, by the ranks' clocks."""
    entered: dict[tuple[int, int], int] = {}
    left: dict[tuple[int, int], int] = {}
    for rank, each in calls.items():
        for call, number in zip(each, numbers[rank], strict=True):
            entered[number] = max(entered.get(number, -(2**64)), clocks[rank] + call.start)
            left[number] = min(left.get(number, 2**64), clocks[rank] + call.end)
    counts = Counter(number for each in numbers.values() for number in each)
    return sum(entered[number] <= left[number] for number in entered if counts[number] > 1)


# ------------------------------------------------------------------------------------------------------ what is missing


def completed(calls: Sequence[Sequence[Communication]], same: Same, grouping: Grouping) -> list[list[Communication]]:
    """Return the communications of all ranks, their peers as ranks in the files.

    Where a rank does not state the size of a collective, that of another counts; so it does for a collective with a
    root, which alone has the whole. A receive from anybody takes the first send that nobody receives.
    """
    found = [list(each) for each in calls]
    for places in _together(same):
        members = [found[rank][at] for rank, at in places]
        if len({call.kind for call in members}) == 1:
            largest = max(call.size for call in members)
            for rank, at in places:
                call = found[rank][at]
                least = largest if call.kind in ROOTED else 0 if call.kind == CollectiveType.ALL_TO_ALL else 1
                if call.size < least:  # a rank may send nothing to the others
                    found[rank][at] = replace(call, size=largest)
    for rank, each in enumerate(found):
        for at, call in enumerate(each):
            if call.peer is not None:
                each[at] = replace(call, peer=grouping.global_rank(rank, at, call.peer))
    _find_senders(found)
    return found


def _together(same: Same) -> Iterator[list[Place]]:
    """Yield the places of each collective."""
    found: dict[tuple[int, int, int], list[Place]] = {}
    for place, number in same.items():
        found.setdefault(number, []).append(place)
    yield from found.values()


def _find_senders(calls: list[list[Communication]]) -> None:
    """Set the sources of receives that state none."""
    exchanged: dict[NodeType, Counter[tuple[int, ...]]] = {NodeType.COMM_SEND: Counter(), NodeType.COMM_RECV: Counter()}
    for rank, each in enumerate(calls):
        for call in each:
            if call.node_type in exchanged and call.peer is not None:
                route = (rank, call.peer) if call.node_type == NodeType.COMM_SEND else (call.peer, rank)
                exchanged[call.node_type][(*route, call.tag, call.size)] += 1
    sent, received = exchanged[NodeType.COMM_SEND], exchanged[NodeType.COMM_RECV]
    for rank, each in enumerate(calls):
        for at, call in enumerate(each):
            if call.node_type != NodeType.COMM_RECV or call.peer is not None:
                continue
            for source in range(len(calls)):
                message = (source, rank, call.tag, call.size)
                if source != rank and sent[message] > received[message]:
                    each[at] = replace(call, peer=source)
                    received[message] += 1
                    break
