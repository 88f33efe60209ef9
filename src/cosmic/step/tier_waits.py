"""What transfers with outer tiers of memory have beside them: the block before, and blocks that move nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from cosmic.design.batch import Batch
from cosmic.numeric import Numeric, larger, sum_of
from cosmic.step.tier_traffic import TierTraffic

Numbers = Mapping[str, Numeric]
"""Of each block: how many there are, or the seconds of one."""


def time_before(turn: Sequence[str], counts: Numbers, own: Numbers) -> dict[str, Numeric]:
    """Return what the block before the first of each kind takes, in turn; before the very first comes the last."""
    found: dict[str, Numeric] = {}
    latest: Numeric = 0.0
    for name in (*turn, *turn):
        found[name] = latest
        latest = np.where(np.asanyarray(counts[name]) > 0, own[name], latest)
    return found


def drained_s(
    batch: Batch, traffic: TierTraffic, counts: Numbers, phase: str, own: Numbers, before: Numbers
) -> Numeric:
    """Return what layers that only store do not wait for: blocks that move nothing let all buffers drain.

    min(r t, O) - min(t, b)        r  buffers     O  all blocks that move nothing     b  the one before
    """
    idle = sum_of((n * np.where(traffic.block_s(name, phase) > 0, 0.0, own[name]) for name, n in counts.items()), 0.0)
    found: Numeric = 0.0
    for name, n in counts.items():
        t = np.where(traffic.load_s(name, phase) > 0, 0.0, traffic.store_s(name, phase))
        drained = np.minimum(np.minimum(batch["memory.resident_layers"], n) * t, idle) - np.minimum(t, before[name])
        found = larger(found, np.minimum(drained, n * np.maximum(0.0, t - own[name])))
    return found
