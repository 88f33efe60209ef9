"""Which kernels an operator runs on one device, and of what shape: what it takes depends on that, not on flop alone.

A matrix product is ``y[m, n] = x[m, k] w[k, n]``; its backward pass is two more,

    dx[m, k] = dy[m, n] w'[n, k]        dw[k, n] = x'[k, m] dy[m, n]

and *count* of them, alike but of other numbers, run as one grouped kernel (the experts of a mixture). Dimensions are
told by where they occur: in both inputs and the output (count), in what is read and the output (m), in the weight and
the output (n), in both inputs only (k).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cosmic.cost.attention import Attention
from cosmic.workload.graph import Sizes
from cosmic.workload.sharding import PartitionedOperator


@dataclass(frozen=True, slots=True)
class Product:
    """Matrix products of one shape; sizes are numbers, or arrays over a batch."""

    count: Any
    m: Any
    n: Any
    k: Any

    def backward(self) -> tuple[Product, Product]:
        """Return the products for the gradients of what is read and of the weight.

        >>> Product(1, 4096, 8192, 2048).backward()
        (Product(count=1, m=4096, n=2048, k=8192), Product(count=1, m=2048, n=8192, k=4096))
        """
        return Product(self.count, self.m, self.k, self.n), Product(self.count, self.k, self.n, self.m)


def product_of(part: PartitionedOperator, sizes: Sizes) -> Product:
    """Return the matrix product that an einsum is, on one device.

    Of experts, only those count that get a token: of T tokens that pick k of E each, an expert is picked by none
    with probability (1 - k/E)^T, which leaves weights unread when few tokens are decoded.
    """
    read, weight = part.operator.inputs[:2]
    made = set(part.operator.outputs[0].dims)

    def size(dims: Iterable[str]) -> Any:
        return part.elements(tuple(dims), sizes)

    shared = [dim for dim in read.dims if dim in weight.dims]
    count = size(dim for dim in shared if dim in made)
    m = size(dim for dim in read.dims if dim not in weight.dims)
    if "share" in read.dims and "experts" in shared:
        tokens = size(dim for dim in read.dims if dim not in weight.dims and dim != "share")
        busy = 1 - (1 - np.minimum(sizes["share"], 1.0)) ** np.maximum(tokens, 1)
        count, m = count * busy, m / busy
    n = size(dim for dim in weight.dims if dim not in read.dims)
    return Product(count, m, n, size(dim for dim in shared if dim not in made))


def attention_of(part: PartitionedOperator, sizes: Sizes, decoding: bool = False) -> Attention:
    """Return the shape of attention on one device.

    Where keys and values are made of small vectors (latent attention), decoding reads these, once for all heads.
    """
    queries, keys, values = part.operator.inputs[:3]

    def size(dim: str) -> Any:
        return part.elements((dim,), sizes)

    batch, sequence, heads, width = queries.dims
    found = Attention(
        batch=size(batch),
        heads=size(heads),
        kv_heads=size(keys.dims[2]),
        queries=size(sequence),
        keys=sizes[keys.dims[1]],
        width=size(width),
        value_width=size(values.dims[3]),
        visible=sizes["visible"],
    )
    if width == "qk_dim" and decoding:
        rank = sizes["kv_lora_rank"]
        return replace(found, kv_heads=1, width=rank + sizes["qk_rope_head_dim"], value_width=rank, mla=True)
    return found


@dataclass(frozen=True, slots=True)
class Kernel:
    """What the time of an operator depends on besides flop and bytes: of one run forward, on one device."""

    shape: Product | Attention | None = None
    """Of a matrix product or of attention."""
    gathered: Any = 1
    """Ranks among which what a product reads was split before it was gathered."""
    elements: Any = 0
    """Of the largest tensor that any other operator reads or makes, weights aside."""
    weight: str = ""
    """Name of the weight that a product reads."""
    beside: Any = 0
    """Columns of the products before it that read the same: engines that serve make one product of them."""

    @property
    def joins(self) -> bool:
        """Whether another product read before what this one reads: backward, its gradient is added to theirs."""
        return bool(np.any(self.beside))


def kernel_of(part: PartitionedOperator, sizes: Sizes, decoding: bool) -> Kernel:
    """Return what the time of a forward operator depends on; what stands beside it, its block must say."""
    operator = part.operator
    if operator.kind == "einsum":
        weight = operator.inputs[1].name
        return Kernel(product_of(part, sizes), gathered=_gathered_from(part, sizes), weight=weight)
    if operator.kind == "attention":
        return Kernel(attention_of(part, sizes, decoding))
    return Kernel(elements=_largest(part, sizes))


def _largest(part: PartitionedOperator, sizes: Sizes) -> Any:
    found: Any = 0
    for dims in dict.fromkeys(tensor.stored_dims for tensor in part.operator.tensors if tensor.role != "weight"):
        found = np.maximum(found, part.elements(dims, sizes))
    return found


def _gathered_from(part: PartitionedOperator, sizes: Sizes) -> Any:
    ranks: Any = 1
    for step in part.inputs[0].steps if part.inputs else ():
        if step.kind == "all_gather":
            for axis in step.axes:
                ranks = ranks * sizes[axis]
    return ranks
