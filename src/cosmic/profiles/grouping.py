"""Process groups of a job: who is in them, and in which each collective runs.

NCCL's events name the group. Names are a rank's own: ranks 0 and 1 may call their group "1", and ranks 2 and 3 theirs.
So a group is known by its name and its ranks. Gloo's events name none: a rank in one group uses that; for the others,
each group has two threads of its own, which were started one after the other and in the order of the groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cosmic.errors import require
from cosmic.profiles.collectives import Communication
from cosmic.profiles.kineto import Kineto

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
        self.world_size = _world_size(traces, calls)
        everyone = tuple(range(self.world_size))
        self._own = traces[0].rank or 0 if len(traces) == 1 else 0  # a rank alone is rank 0, and the other way round
        self._members = [_members(trace, each, everyone) for trace, each in zip(traces, calls, strict=True)]
        names = [_names_of_calls(trace, each) for trace, each in zip(traces, calls, strict=True)]
        self._keys = [
            [self._key(rank, call, name) for call, name in zip(calls[rank], each, strict=True)]
            for rank, each in enumerate(names)
        ]
        for trace, keys, each in zip(traces, self._keys, calls, strict=True):
            unknown = sum(key is None and call.kind is not None for key, call in zip(keys, each, strict=True))
            if unknown:
                text = f"the groups of {unknown} of {len(each)} communications are not recorded"
                self.notes.append(f"{trace.where}: {text}: they take what they took, whoever is late")
        found = {(name, tuple(sorted(ranks))) for each in self._members for name, ranks in each.items()}
        found |= {key for keys in self._keys for key in keys if key is not None}
        if self.world_size == len(traces):
            found.discard((DEFAULT, everyone))  # which files do not name
        ordered = sorted(found, key=lambda key: (not key[0].isdecimal(), len(key[0]), key))
        self._number = {key: str(at + 1) for at, key in enumerate(ordered)}
        code = {key: at for at, key in enumerate([*ordered, (DEFAULT, everyone)])}
        self._codes = [[-1 if key is None else code[key] for key in keys] for keys in self._keys]
        self.groups = {
            number: tuple(sorted(self._renumbered(rank) for rank in key[1])) for key, number in self._number.items()
        }

    def _renumbered(self, rank: int) -> int:
        return {0: self._own, self._own: 0}.get(rank, rank)

    def _key(self, rank: int, call: Communication, name: str) -> Key | None:
        """Return the group of a communication; None if it is not known."""
        own = self._renumbered(rank)
        members = call.ranks or self._members[rank].get(name) or self._elsewhere(own, name)
        if call.is_exchange and call.kind is not None:
            placed = () if call.is_global else members or ()
            peers = [_placed(peer, placed) for peer in call.peers or ()]
            return (EXCHANGE, tuple(sorted({own, *peers}))) if peers else None
        return (name, tuple(sorted(members))) if members else None

    def _elsewhere(self, own: int, name: str) -> tuple[int, ...]:
        """Return the ranks of a group that only other ranks list."""
        listed = {each[name] for each in self._members if name in each and own in each[name]}
        return next(iter(listed)) if len(listed) == 1 else ()

    def group_of(self, rank: int, call: int) -> int:
        """Return the group of a rank's communication as a number; -1 if it is not known."""
        return self._codes[rank][call]

    def name_of(self, rank: int, call: int) -> str:
        """Return the group of a rank's communication as files name it; empty for all ranks, and if it is not known."""
        key = self._keys[rank][call]
        return "" if key is None else self._number.get(key, "")

    def global_rank(self, rank: int, call: int, peer: int | None) -> int | None:
        """Return the rank of a peer, which gloo's events state by its place in the group."""
        if peer is None:
            return None
        each, key = self._calls[rank][call], self._keys[rank][call]
        if each.is_global or key is None:
            return self._renumbered(peer)
        return self._renumbered(_placed(peer, each.ranks or self._members[rank].get(key[0], key[1])))


def _placed(peer: int, members: Sequence[int]) -> int:
    return members[peer] if 0 <= peer < len(members) else peer


def _world_size(traces: Sequence[Kineto], calls: Sequence[Sequence[Communication]]) -> int:
    """Return how many ranks the job has, as far as anybody names them."""
    stated = [size for trace in traces if (size := trace.world_size) is not None]
    listed = [rank + 1 for trace in traces for ranks in trace.groups.values() for rank in ranks]
    lowest = listed[:]
    own = [trace.rank + 1 for trace in traces if trace.rank is not None]
    groups = {(call.ranks, call.group_size) for each in calls for call in each}
    lowest += [min(ranks) + 1 for ranks, _ in groups if ranks]
    listed += [max(max(ranks, default=-1) + 1, size) for ranks, size in groups]
    found = max([len(traces), *stated, *listed, *own])
    rule = f"a job may have up to {MOST_RANKS:,} ranks, from 0 on"
    require(min([*lowest, *own], default=1) > 0 and found <= MOST_RANKS, "ranks", found, rule)
    return found


def _members(trace: Kineto, calls: Sequence[Communication], everyone: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """Return the ranks of the groups of one rank, by PyTorch's names."""
    found = {name: ranks for name, ranks in trace.groups.items() if ranks}
    for call in calls:
        if call.group and call.ranks:
            found.setdefault(call.group, call.ranks)
    return {DEFAULT: everyone} | found


def _names_of_calls(trace: Kineto, calls: Sequence[Communication]) -> list[str]:
    """Return what PyTorch calls the group of each communication; empty where it is not known."""
    groups = list(trace.groups) or [DEFAULT]
    by_thread = _groups_of_threads(trace, calls, groups) if len(groups) > 1 else {}
    found = []
    for call in calls:
        name = call.group
        if not name and len(groups) == 1:
            name = groups[0]
        if not name and call.annotations:
            name = by_thread.get(int(trace.host.thread[call.annotations[0]]), "")
        found.append(name)
    return found


def _groups_of_threads(trace: Kineto, calls: Sequence[Communication], groups: Sequence[str]) -> Mapping[int, str]:
    """Return the group of each thread of gloo; none if that is not clear, as where a group is not used.

    A group that was used once shows one of its threads.
    """
    used: dict[int, str] = {}
    for call in calls:
        for entry in call.annotations if call.kind is not None else ():
            thread = int(trace.host.thread[entry])
            used[thread] = call.group or used.get(thread, "")
    threads = sorted(used, key=lambda thread: _tid(trace.threads[thread]))
    if len(threads) == THREADS_OF_A_GROUP * len(groups):
        pairs = [threads[at : at + THREADS_OF_A_GROUP] for at in range(0, len(threads), THREADS_OF_A_GROUP)]
    else:
        pairs = []
        for thread in threads:
            last = pairs[-1] if pairs else []
            apart = _tid(trace.threads[thread])[0] - _tid(trace.threads[last[-1]])[0] if last else 0
            if len(last) == 1 and apart <= MOST_APART:
                last.append(thread)
            else:
                pairs.append([thread])
    if len(pairs) != len(groups):
        return {}
    found = {thread: name for name, pair in zip(groups, pairs, strict=True) for thread in pair}
    return found if all(name in ("", found[thread]) for thread, name in used.items()) else {}


def _tid(thread: tuple[str, str]) -> tuple[int, str]:
    number = thread[1]
    return (int(number), "") if number.lstrip("-").isdecimal() else (0, number)
