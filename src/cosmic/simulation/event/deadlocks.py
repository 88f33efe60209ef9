"""Why a simulation deadlocks: which ranks wait for each other, and in which nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cosmic.errors import SpecError
from cosmic.simulation.event.outcome import Simulated
from cosmic.simulation.event.ranks import NEVER, Action
from cosmic.traces.checks import check
from cosmic.traces.findings import node_text
from cosmic.traces.trace import TraceSet

SHOWN = 4
"""Ranks of a chain that the error names."""


def raise_if_deadlocked(
    traces: TraceSet, groups: Mapping[str, Sequence[int]], ranks: Sequence[Simulated], entity_of: Sequence[int]
) -> None:
    """Raise an error that says which ranks wait for each other, if any did not finish.

    Malformed traces (a cycle, a message without a receiver) get the error of `check`. *entity_of* gives, for each rank,
    the index in *ranks* of the one simulated for it.
    """
    unfinished = [is_stuck(rank) for rank in ranks]
    stuck = [rank for rank, entity in enumerate(entity_of) if unfinished[entity]]
    if not stuck:
        return
    check(traces, groups)
    chain: list[str] = []
    seen: list[int] = []
    at: int | None = stuck[0]
    while at is not None and unfinished[entity_of[at]] and at not in seen and len(chain) < SHOWN:
        text, at, following = _waiting(at, ranks[entity_of[at]], traces, ranks)
        seen.append(at)
        chain.append(text)
        at = following
    end = f", and so on back to rank {at}" if at in seen and len(seen) > 1 else ""
    count = "1 rank deadlocks" if len(stuck) == 1 else f"{len(stuck):,} ranks deadlock"
    raise SpecError(traces.where, count, "; ".join(chain) + end)


def is_stuck(rank: Simulated) -> bool:
    """Return whether a rank has nodes that did not finish."""
    return NEVER in rank.ended_ns


def _waiting(
    at: int, simulated: Simulated, traces: TraceSet, ranks: Sequence[Simulated]
) -> tuple[str, int, int | None]:
    """Return a sentence about what rank *at* waits for, the rank that it names, and the rank it waits for.

    *simulated* is the rank that was simulated for *at*.
    """
    trace = traces.ranks[at]
    begun, ended = simulated.begun_ns, simulated.ended_ns
    row = next((row for row, time in enumerate(begun) if time != NEVER and ended[row] == NEVER), None)
    if row is None:
        return f"rank {at} has nodes that nothing starts", at, None
    node, action = node_text(trace.template, row), simulated.action_of(row)
    if action in (Action.SEND, Action.RECEIVE):
        peer = trace.peers[int(trace.template.peer[row])]
        does = "receive from it" if action == Action.SEND else "send to it"
        return f"rank {at} {node} waits for rank {peer} to {does}", at, peer
    at = simulated.rank  # only the simulated rank's rings say which member is absent
    if action == Action.COLLECTIVE:
        absent = _absent(simulated, row, ranks)
        if absent is not None:
            return f"rank {at} {node} waits for rank {absent} to join", at, absent
        return f"rank {at} {node} was joined by all members, in different orders", at, None
    return f"rank {at} {node} never ends", at, None


def _absent(rank: Simulated, row: int, ranks: Sequence[Simulated]) -> int | None:
    """Return a member that has begun fewer collectives of this group."""
    placement = rank.placement_of(row)
    begun = rank.streams_of(placement.slot)
    for level in placement.levels:
        for member, entity, slot in zip(level.ring.ranks, level.ring.entities, level.ring.slots, strict=True):
            if ranks[entity].streams_of(slot) < begun:
                return member
    return None
