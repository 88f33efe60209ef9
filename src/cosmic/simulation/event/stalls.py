"""Why a simulation stands still: which ranks wait for each other, and in which nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cosmic.errors import SpecError
from cosmic.simulation.event.ranks import NEVER, Action, Rank
from cosmic.traces.checks import check
from cosmic.traces.findings import node_text
from cosmic.traces.trace import Template, TraceSet

SHOWN = 4
"""Ranks of a chain that are named."""


def explain(traces: TraceSet, groups: Mapping[str, Sequence[int]], ranks: Sequence[Rank]) -> None:
    """Raise an error that says what is wrong with traces that stand still, if they do.

    Traces that cannot be right (a circle, a message without a receiver) are told as such. What is left are orders of
    nodes that make ranks wait for each other.
    """
    stuck = {rank.rank: rank for rank in ranks if _stands(rank)}
    if not stuck:
        return
    check(traces, groups)
    chain: list[str] = []
    seen: list[int] = []
    at = min(stuck)
    while at in stuck and at not in seen and len(chain) < SHOWN:
        seen.append(at)
        text, following = _waiting(stuck[at], traces.ranks[at].template, ranks)
        chain.append(text)
        if following is None:
            break
        at = following
    end = f", and so on back to rank {at}" if at in seen and len(seen) > 1 else ""
    raise SpecError(traces.where, f"{len(stuck)} ranks stand still", "; ".join(chain) + end)


def _stands(rank: Rank) -> bool:
    """Return whether a rank has something left to do."""
    return any(ended == NEVER for ended in rank.ended_ns)


def _waiting(rank: Rank, template: Template, ranks: Sequence[Rank]) -> tuple[str, int | None]:
    """Return what a rank waits for, and for which other rank."""
    row = next((row for row, begun in enumerate(rank.begun_ns) if begun != NEVER and rank.ended_ns[row] == NEVER), None)
    if row is None:
        return f"rank {rank.rank} has nodes that nothing starts", None
    what = f"rank {rank.rank} {node_text(template, row)}"
    action = rank.work.action[row]
    if action in (Action.SEND, Action.RECEIVE):
        peer, _ = rank.channels[row]
        does = "receive from it" if action == Action.SEND else "send to it"
        return f"{what} waits for rank {peer} to {does}", peer
    if action == Action.COLLECTIVE:
        absent = _absent(rank, row, ranks)
        if absent is not None:
            return f"{what} waits for rank {absent} to join", absent
        return f"{what} was joined by all members, in different orders", None
    return f"{what} never ends", None


def _absent(rank: Rank, row: int, ranks: Sequence[Rank]) -> int | None:
    """Return a member that has begun fewer collectives of this group."""
    _, where = rank.wheres[row]
    begun = rank.unit.streams_of(where.slot)
    for level in where.levels:
        for member, entity, slot in zip(level.ring.ranks, level.ring.entities, level.ring.slots, strict=True):
            if ranks[entity].unit.streams_of(slot) < begun:
                return member
    return None
