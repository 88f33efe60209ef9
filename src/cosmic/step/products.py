"""The GEMMs that einsums and convolutions are, on one device: see `cosmic.step.compute` for their letters."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from cosmic.numeric import Numeric
from cosmic.step.experts import picked_share
from cosmic.workload.graph import Sizes
from cosmic.workload.precision import is_adapter
from cosmic.workload.sharding import PartitionedOperator


@dataclass(frozen=True, slots=True)
class Gemm:
    """GEMMs of one shape."""

    count: Numeric
    m: Numeric
    n: Numeric
    k: Numeric

    def backward(self) -> tuple[Gemm, Gemm]:
        """Return the GEMMs for the gradients of the activation and of the weight.

        >>> Gemm(1, 4096, 8192, 2048).backward()
        (Gemm(count=1, m=4096, n=2048, k=8192), Gemm(count=1, m=2048, n=8192, k=4096))
        """
        return Gemm(self.count, self.m, self.k, self.n), Gemm(self.count, self.k, self.n, self.m)


def gemm_of(part: PartitionedOperator, sizes: Sizes) -> Gemm:
    """Return the GEMM that an einsum is, on one device.

    Only experts that get a token count (`picked_share`): some weights stay unread when few tokens are decoded. Tokens
    of each adapter of a served model have a product of their own.
    """
    read, weight = part.operator.inputs[:2]
    made = set(part.operator.outputs[0].dims)

    def size(dims: Iterable[str]) -> Numeric:
        return part.elements(tuple(dims), sizes)

    shared = [dim for dim in read.dims if dim in weight.dims]
    count = size(dim for dim in shared if dim in made)
    m = size(dim for dim in read.dims if dim not in weight.dims)
    if "share" in read.dims and "experts" in shared:
        tokens = size(dim for dim in read.dims if dim not in weight.dims and dim != "share")
        busy = picked_share(np.minimum(sizes["share"], 1.0), tokens, even="popularity" not in sizes)
        count, m = count * busy, m / busy
    if "adapters" in sizes and is_adapter(weight.name):
        count, m = count * sizes["adapters"], m / sizes["adapters"]
    n = size(dim for dim in weight.dims if dim not in read.dims)
    return Gemm(count, m, n, size(dim for dim in shared if dim not in made))


def convolution_of(part: PartitionedOperator, sizes: Sizes) -> Gemm:
    """Return the implicit GEMM that a convolution is, on one device: m pixels, n filters, k of a window's elements.

    What weight and output share beside the filters are groups of channels, each a GEMM of its own.
    """
    read, weight = part.operator.inputs[:2]
    made = part.operator.outputs[0].dims

    def size(dims: Iterable[str]) -> Numeric:
        return part.elements(tuple(dims), sizes)

    return Gemm(
        count=size(dim for dim in made if dim in weight.dims and dim in read.dims),
        m=size(dim for dim in made if dim not in weight.dims),
        n=size(dim for dim in made if dim in weight.dims and dim not in read.dims),
        k=size(dim for dim in weight.dims if dim not in made),
    )
