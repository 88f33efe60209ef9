"""Tiers that kernels read in place (CXL): the bandwidth that they see.

State that is placed alike is one pool of pages, and a kernel that moves some of it finds as much of it outside as there
is of all. Optimizer states that are placed apart from weights are another pool, which the update alone reads.
"""

from __future__ import annotations

from collections.abc import Sequence

from cosmic.design.batch import Batch
from cosmic.design.model import is_moe
from cosmic.numeric import Numeric, larger, sum_of
from cosmic.step.block_states import is_placed, tiers_of
from cosmic.step.memory import Footprint, memory_of

OPTIMIZER = ("optimizer", "expert_optimizer")
UPDATED = (*OPTIMIZER, "weights", "experts", "gradients", "expert_gradients")
"""Classes of state that the update reads or writes."""


def bandwidth_bytes_per_s(batch: Batch, *, update: bool = False) -> Numeric:
    """Return the bandwidth that the kernels of layers, or of the *update*, see: of HBM and of load/store tiers."""
    own: Numeric = batch["memory.bandwidth"]
    tiers = batch.base.memory.tiers
    direct = [place for place, each in enumerate(tiers) if each.access == "load_store"]
    if not direct or not is_placed(batch.base):
        return own
    memory = memory_of(batch)
    there, near = _bytes(batch, memory, [tiers[place].name for place in direct], update)
    whole = near + sum_of(there)
    return expanded_bytes_per_s(
        own,
        [(each / whole, batch[f"memory.tiers.{place}.bandwidth"]) for place, each in zip(direct, there, strict=True)],
        parallel=batch.base.memory.expansion == "parallel",
    )


def _bytes(batch: Batch, memory: Footprint, names: Sequence[str], update: bool) -> tuple[list[Numeric], Numeric]:
    """Return the bytes that may be read, in each of the tiers *names* and in HBM."""
    placed, parts = memory.placed, memory.parts
    assert placed is not None  # noqa: S101  state is placed
    there = [placed.used[name] for name in names]
    near = memory.total - parts["allowance"]
    states = OPTIMIZER if is_moe(batch.base.model) else OPTIMIZER[:1]
    if all(tiers_of(batch.base, each) == tiers_of(batch.base, "weights") for each in states):
        return there, near
    if update:
        found = [sum_of((placed.homes.get((name, each), 0.0) for each in UPDATED), 0.0) for name in names]
        return found, parts["weights"] + parts["gradients"] + parts["optimizer"]
    apart = [sum_of((placed.homes.get((name, each), 0.0) for each in OPTIMIZER), 0.0) for name in names]
    return [size - less for size, less in zip(there, apart, strict=True)], near - parts["optimizer"]


def expanded_bytes_per_s(own: Numeric, shares: Sequence[tuple[Numeric, Numeric]], *, parallel: bool = False) -> Numeric:
    """Return the bandwidth of memory with *shares* of its bytes in tiers of other bandwidths.

    COMET's expansion: half of all bytes at a quarter of the bandwidth take 2.5 times as long, or twice as long where
    both memories are read at the same time.

    >>> expanded_bytes_per_s(100.0, [(0.5, 25.0)]), expanded_bytes_per_s(100.0, [(0.5, 25.0)], parallel=True)
    (40.0, 50.0)
    """
    near = (1 - sum_of((share for share, _ in shares), 0.0)) / own
    if not parallel:
        return 1 / sum_of((share / rate for share, rate in shares), near)
    slowest = near
    for share, rate in shares:
        slowest = larger(slowest, share / rate)
    return 1 / slowest
