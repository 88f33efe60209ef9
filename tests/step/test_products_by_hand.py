"""The GEMMs that operators are, by hand."""

from __future__ import annotations

from math import prod
from types import SimpleNamespace
from typing import cast

import pytest

from cosmic.step.gemm import Gemm
from cosmic.step.operator_work import convolution_gemm, einsum_gemm
from cosmic.workload.operator_graph import Sizes
from cosmic.workload.precision import is_adapter
from cosmic.workload.sharding.graph_partition import PartitionedOperator

Dims = tuple[str, ...]


def operator(read: Dims, weight: Dims, made: Dims, name: str = "w") -> PartitionedOperator:
    """Return an operator on one device that has all of it."""
    tensors = [SimpleNamespace(name=each, dims=dims) for each, dims in (("x", read), (name, weight), ("y", made))]
    whole = SimpleNamespace(inputs=tuple(tensors[:2]), outputs=(tensors[2],))
    elements = lambda dims, sizes: prod(sizes[dim] for dim in dims)  # noqa: E731
    return cast(PartitionedOperator, SimpleNamespace(operator=whole, elements=elements))


def sized(**sizes: float) -> Sizes:
    return cast(Sizes, sizes)


PROJECTION: tuple[Dims, Dims, Dims] = (("tokens", "hidden"), ("hidden", "ffn"), ("tokens", "ffn"))
EXPERTS: tuple[Dims, Dims, Dims] = (
    ("experts", "share", "tokens", "hidden"),
    ("experts", "hidden", "ffn"),
    ("experts", "share", "tokens", "ffn"),
)


def test_a_projection_has_tokens_by_outputs_by_inputs() -> None:
    assert einsum_gemm(operator(*PROJECTION), sized(tokens=12, hidden=8, ffn=16)) == Gemm(1, 12, 16, 8)
    heads = operator(("heads", "tokens", "dim"), ("heads", "dim", "out"), ("heads", "tokens", "out"))
    assert einsum_gemm(heads, sized(heads=2, tokens=12, dim=4, out=6)) == Gemm(2, 12, 6, 4)


def test_every_adapter_has_a_product_of_its_own() -> None:
    """Three adapters share 12 tokens. Other weights have one product."""
    name = "w_lora_a"
    assert is_adapter(name)
    given = sized(tokens=12, hidden=8, ffn=16, adapters=3)
    assert einsum_gemm(operator(*PROJECTION, name=name), given) == Gemm(3, 4, 16, 8)
    assert einsum_gemm(operator(*PROJECTION), given) == Gemm(1, 12, 16, 8)


def test_experts_that_no_token_picks_have_no_product() -> None:
    """Eight tokens, each at one of four: 2 for an expert, more for those of which there is one: 1 - (3/4)⁸."""
    found = einsum_gemm(operator(*EXPERTS), sized(experts=4, share=0.25, tokens=8, hidden=8, ffn=16))
    busy = 1 - 0.75**8
    assert [found.count, found.m] == pytest.approx([4 * busy, 2 / busy])
    assert (found.n, found.k) == (16, 8)


def test_experts_that_get_all_tokens_several_times_are_all_busy() -> None:
    """Tokens padded to one and a half of an even share: all four experts have a product of 12 rows."""
    found = einsum_gemm(operator(*EXPERTS), sized(experts=4, share=1.5, tokens=8, hidden=8, ffn=16))
    assert (found.count, found.m) == (4, 12)


def test_a_served_model_has_popular_experts() -> None:
    """Four tokens of one in four: none picks an expert with 3/4 / (1 + 3 · 1/4 / (3/4)) = 3/8, so that 2.5 are busy."""
    given = sized(experts=4, share=0.25, tokens=4, hidden=8, ffn=16, popularity=1.0)
    assert einsum_gemm(operator(*EXPERTS), given).count == pytest.approx(2.5)


def test_a_convolution_has_pixels_by_filters_by_a_window() -> None:
    """2 images of 9 pixels, 5 filters in each of 3 groups, windows of 4 by 7 channels."""
    part = operator(
        ("images", "pixels", "groups", "channels"),
        ("groups", "filters", "channels", "window"),
        ("images", "pixels", "groups", "filters"),
    )
    sizes = sized(images=2, pixels=9, groups=3, channels=7, filters=5, window=4)
    assert convolution_gemm(part, sizes) == Gemm(count=3, m=18, n=5, k=28)


def test_a_convolution_with_strides_makes_fewer_pixels_than_it_reads() -> None:
    """2 images of 36 pixels, of which every fourth is made, by 5 filters of a window of 4 by 7 channels."""
    part = operator(("images", "pixels", "channels"), ("filters", "channels", "window"), ("images", "fewer", "filters"))
    sizes = sized(images=2, pixels=36, fewer=9, channels=7, filters=5, window=4)
    assert convolution_gemm(part, sizes) == Gemm(count=1, m=18, n=5, k=28)
