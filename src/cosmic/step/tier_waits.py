"""What a pass takes whose blocks share a ring of buffers with outer tiers of memory.

Of the blocks that move anything, each takes the buffer of the one r before it. What that one left is stored, and its
own state fetched, one transfer after the other; blocks that move nothing need no buffer:

    x_i = max(x_i-1, c_i-r) + t_i        x, c  when a block's transfer and its compute end      r  buffers
    c_i = max(c_i-1, x_i)   + T_i        t, T  seconds of both

A pass has runs of equal blocks. What a run of n makes of the times before it is the longest path through these sums,
which only needs the paths that turn at the ends of the run:

    c_n = max(c + n T,  X + n T,  X + (n - 1) t + T,  m + (n - r + 1) t + T,
              c + 2 T + (n - r) t,  c + (n - r + 1) T + t)

with c and x before it, X = max(x, h) + t the end of its first transfer, m and h the ends of the last block that moved
something and of the one r - 1 before that. One buffer is serial: c_n = max(c, X) + T + (n - 1) (t + T).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cosmic.numeric import Condition, Numeric, sum_of
from cosmic.step.tier_traffic import TierTraffic

Numbers = Mapping[str, Numeric]
"""Of each block: how many there are, or the seconds of one."""
FILLED, TURNS = 2, 2
"""Passes after which what they take repeats itself, and those over which it is measured."""


@dataclass(frozen=True, slots=True)
class Ring:
    """How far compute and transfers have come, in seconds."""

    computed: Numeric = 0.0
    linked: Numeric = 0.0
    """When the latest transfer ends."""
    moved: Numeric = 0.0
    """When the last block that moves something has computed."""
    oldest: Numeric = 0.0
    """When the one r - 1 before it had: the next block takes its buffer."""

    def after(self, n: Numeric, own: Numeric, took: Numeric, buffers: Numeric) -> Ring:
        """Return the ring after a run of *n* blocks of *own* seconds whose transfers *took* so long.

        A part of a block is a block that has so much less to do.
        """
        whole, share = np.maximum(n, 1.0), np.minimum(n, 1.0)
        own, took = share * own, share * took
        moves = np.asanyarray(took) > 0
        computed = np.where(moves, self._computed(whole, own, took, buffers), self.computed + whole * own)
        linked = np.where(moves, self._linked(whole, own, took, buffers), self.linked)
        moved = np.where(moves, computed, self.moved)
        inside = self._computed(np.maximum(whole - buffers + 1, 1.0), own, took, buffers)
        oldest = np.where(whole >= buffers, inside, self._ended(buffers - 1 - whole, buffers))
        oldest = np.where(moves, oldest, self.oldest)
        return Ring(computed, linked, moved, oldest)

    def _ended(self, back: Numeric, buffers: Numeric) -> Numeric:
        """Return when the block so many *back* had computed: evenly between those that are known."""
        share = np.clip(back, 0.0, None) / np.maximum(buffers - 1, 1.0)
        return self.moved + share * (self.oldest - self.moved)

    def _computed(self, n: Numeric, own: Numeric, took: Numeric, buffers: Numeric) -> Numeric:
        first = np.maximum(self.linked, self.oldest) + took
        beyond = np.maximum(n - buffers, 0.0)
        found = np.maximum(np.maximum(self.computed, first) + n * own, first + (n - 1) * took + own)
        freed = self._ended(buffers - n, buffers)
        found = np.maximum(found, freed + (beyond + 1) * took + own)
        later = self.computed + np.maximum(2 * own + beyond * took, (beyond + 1) * own + took)
        found = np.where(beyond > 0, np.maximum(found, later), found)
        serial = np.maximum(self.computed, first) + own + (n - 1) * (took + own)
        return np.where(np.asanyarray(buffers) == 1, serial, found)

    def _linked(self, n: Numeric, own: Numeric, took: Numeric, buffers: Numeric) -> Numeric:
        beyond = np.maximum(n - buffers, 0.0)
        found = np.maximum(self.linked, self.oldest) + n * took
        found = np.maximum(found, self._ended(buffers - n, buffers) + (beyond + 1) * took)
        last = self._computed(np.maximum(beyond, 1.0), own, took, buffers) + took
        last = np.maximum(last, self.computed + own + beyond * took)
        return np.where(beyond > 0, np.maximum(found, last), found)


def filled_pass_s(turn: Sequence[str], counts: Numbers, own: Numbers, took: Numbers, buffers: Numeric) -> Numeric:
    """Return the seconds of a pass of a stage that has waited for its input, with all its buffers filled.

    Of three layers that take 2 s, two are there; the third comes when the first has left its buffer.

    >>> given = ["layer"], {"layer": 3}, {"layer": 2.0}, {"layer": 5.0}, 2
    >>> float(filled_pass_s(*given)), float(pass_s(*given))
    (9.0, 15.0)
    """
    long_ago = -sum_of((counts[name] * (own[name] + took[name]) for name in turn), 0.0)
    ring = Ring(0.0, long_ago, long_ago, long_ago)
    for name in turn:
        ring = ring.after(counts[name], own[name], took[name], buffers)
    return ring.computed


def pass_s(turn: Sequence[str], counts: Numbers, own: Numbers, took: Numbers, buffers: Numeric) -> Numeric:
    """Return the seconds of a pass that follows others like it; of each block its *own* seconds, and its transfers'.

    Three layers whose stores take 5 s keep a link busy for 15 s. With two buffers 10 s of compute hide in them.

    >>> own, took = {"layer": 2.0, "head": 4.0}, {"layer": 5.0, "head": 0.0}
    >>> float(pass_s(["layer", "head"], {"layer": 3, "head": 1}, own, took, 2))
    15.0
    >>> float(pass_s(["layer", "head"], {"layer": 3, "head": 1}, own, took, 1))
    21.0
    """
    ring, start = Ring(), Ring()
    for turns in range(FILLED + TURNS):
        start = ring if turns == FILLED else start
        for name in turn:
            ring = ring.after(counts[name], own[name], took[name], buffers)
    seconds: Numeric = (ring.computed - start.computed) / TURNS
    return seconds


def first_wait_s(
    turn: Sequence[str], counts: Numbers, own: Numbers, loads: Numbers, took: Numbers, alone: Condition
) -> Numeric:
    """Return what the first pass of a step waits for longer than those after it: no other came before.

    The first block that moves something is fetched beside those before it. In later passes the last that moves
    something runs beside it too, if it has a buffer of its own, and all after that.
    """
    load: Numeric = 0.0
    before: Numeric = 0.0
    ahead: Numeric = 0.0
    after: Numeric = 0.0
    found: Condition = False
    for name in turn:
        moves = (np.asanyarray(took[name]) > 0) & (np.asanyarray(counts[name]) > 0)
        begins = moves & np.logical_not(found)
        load, before = np.where(begins, loads[name], load), np.where(begins, ahead, before)
        found = found | moves
        ahead = ahead + counts[name] * own[name]
        after = np.where(moves, np.where(alone, 0.0, own[name]), after + counts[name] * own[name])
    wait: Numeric = np.minimum(load, before + after) - np.minimum(load, before)
    return wait


def late_gradients_s(
    traffic: TierTraffic, turn: Sequence[str], counts: Numbers, own: Numbers, slack: Numeric
) -> Numeric:
    """Return what a last backward pass with *slack* does not hide of gradients that go to the host's processor.

    Those of the first block come when it has run, and nothing hides those of the last.
    """
    first_s: Numeric = 0.0
    last: Numeric = 0.0
    for before, after in zip(reversed(turn), turn, strict=True):
        first_s = np.where(np.asanyarray(counts[before]) > 0, own[before], first_s)
        last = np.where(np.asanyarray(counts[after]) > 0, traffic.updated(after), last)
    whole = sum_of((count * traffic.updated(name) for name, count in counts.items()), 0.0)
    sent, beside = traffic.gradients_out_s, np.maximum(0.0, slack - first_s)
    found: Numeric = np.maximum(sent - beside, sent * np.minimum(1.0, last / np.maximum(whole, 1.0)))
    return found
