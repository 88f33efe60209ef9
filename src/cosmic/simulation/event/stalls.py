"""Why a simulation stands still: which ranks wait for each other, and in which nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cosmic.errors import SpecError
from cosmic.simulation.event.ranks import NEVER, Action, Rank
from cosmic.traces.checks import check
from cosmic.traces.findings import node_text
from cosmic.traces.trace import TraceSet

SHOWN = 4
"""Ranks of a chain that are named."""


def explain(
    traces: TraceSet, groups: Mapping[str, Sequence[int]], ranks: Sequence[Rank], entity_of: Sequence[int]
) -> None:
    """Raise an error that says what is wrong with traces that stand still, if they do.

    Traces that cannot be right (a circle, a message without a receiver) are told as such. What is left are orders of
    nodes that make ranks wait for each other. *entity_of* says which of *ranks* was simulated for each.
    """
    standing = [stands(rank) for rank in ranks]
    stuck = [rank for rank, entity in enumerate(entity_of) if standing[entity]]
    if not stuck:
        return
    check(traces, groups)
    chain: list[str] = []
    seen: list[int] = []
    at: int | None = stuck[0]
    while at is not None and standing[entity_of[at]] and at not in seen and len(chain) < SHOWN:
        text, at, following = _waiting(at, ranks[entity_of[at]], traces, ranks)
        seen.append(at)
        chain.append(text)
        at = following
    end = f", and so on back to rank {at}" if at in seen and len(seen) > 1 else ""
    count = "1 rank stands still" if len(stuck) == 1 else f"{len(stuck):,} ranks stand still"
    raise SpecError(traces.where, count, "; ".join(chain) + end)


def stands(rank: Rank) -> bool:
    """Return whether a rank has something left to do."""
    return any(ended == NEVER for ended in rank.ended_ns)


def _waiting(at: int, player: Rank, traces: TraceSet, ranks: Sequence[Rank]) -> tuple[str, int, int | None]:
    """Return what a rank waits for, whose wait that is, and for which other rank: *player* was simulated for it."""
    trace = traces.ranks[at]
    begun, ended = player.begun_ns, player.ended_ns
    row = next((row for row, time in enumerate(begun) if time != NEVER and ended[row] == NEVER), None)
    if row is None:
        return f"rank {at} has nodes that nothing starts", at, None
    node, action = node_text(trace.template, row), player.work.action[row]
    if action in (Action.SEND, Action.RECEIVE):
        peer = trace.peers[int(trace.template.peer[row])]
        does = "receive from it" if action == Action.SEND else "send to it"
        return f"rank {at} {node} waits for rank {peer} to {does}", at, peer
    at = player.rank  # who is absent is known to the rank that was simulated
    if action == Action.COLLECTIVE:
        absent = _absent(player, row, ranks)
        if absent is not None:
            return f"rank {at} {node} waits for rank {absent} to join", at, absent
        return f"rank {at} {node} was joined by all members, in different orders", at, None
    return f"rank {at} {node} never ends", at, None


def _absent(rank: Rank, row: int, ranks: Sequence[Rank]) -> int | None:
    """Return a member that has begun fewer collectives of this group."""
    _, where = rank.wheres[row]
    begun = rank.unit.streams_of(where.slot)
    for level in where.levels:
        for member, entity, slot in zip(level.ring.ranks, level.ring.entities, level.ring.slots, strict=True):
            if ranks[entity].unit.streams_of(slot) < begun:
                return member
    return None
