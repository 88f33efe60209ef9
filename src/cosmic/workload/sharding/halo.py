"""Boundary rows: what a window reads of its neighbours' shards where a dimension that it slides along is split.

A window of k rows in steps of s, with p rows of padding before the first, makes row o from rows o s - p to
o s - p + (k - 1) d, with a dilation d. A device that makes n rows and has the n s rows below them lacks

    before = p        after = (k - 1) d - (s - 1) - p

rows, at most. Each is one collective-permute: every device sends its boundary rows to one neighbour.
"""

from __future__ import annotations

from dataclasses import replace

from cosmic.workload.graph import Operator, Sizes
from cosmic.workload.sharding.partitioned import Transfer
from cosmic.workload.sharding.resharding import Step, payload_elements


def halo_rows(window: int, stride: int = 1, padding: int = 0, dilation: int = 1) -> tuple[int, int]:
    """Return the rows that a shard lacks before and after it.

    >>> halo_rows(3, 1, 1), halo_rows(3, 2, 1), halo_rows(7, 2, 3), halo_rows(2, 2), halo_rows(1)
    ((1, 1), (1, 0), (3, 2), (0, 0), (0, 0))
    """
    return padding, max(0, (window - 1) * dilation - (stride - 1) - padding)


def _is_summed(transfer: Transfer, operator: Operator, dim: str) -> bool:
    """Return whether a gradient is summed over *dim* into that of a weight: windows slide over the other input."""
    there = {dim, *(each for pair in operator.same if dim in pair for each in pair)}
    made = {each for tensor in operator.outputs for each in tensor.dims}
    return transfer.tensor.role == "gradient" and not there & made


def with_halo(transfer: Transfer, operator: Operator, sizes: Sizes) -> Transfer:
    """Return the fetching of an input of *operator* with the rows that its windows read of neighbours."""
    steps, wire = transfer.steps, transfer.wire
    for dim, *rows in operator.halo:
        axes = transfer.target.axes(dim)
        if dim not in transfer.tensor.dims or not axes or _is_summed(transfer, operator, dim):
            continue
        for count in rows:
            if count:
                steps += (Step("collective_permute", axes, transfer.target, transfer.target, (dim, count)),)
                wire += float(payload_elements(transfer.target, transfer.tensor.dims, (dim, count), sizes))
    return replace(transfer, steps=steps, wire=wire) if steps != transfer.steps else transfer
