"""What a sharding is, and what may be said about a tensor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cosmic.base.errors import SpecError
from cosmic.workload.sharding.tensor_sharding import REPLICATED, Sharding, annotate

TWO = Sharding.of({"hidden": ("tp", "ep"), "batch": "dp"}, partial=("cp",))


def test_an_axis_may_be_used_once_only() -> None:
    with pytest.raises(SpecError, match="dp may be used once only"):
        Sharding.of({"batch": "dp", "hidden": ("tp", "dp")})
    with pytest.raises(SpecError, match="dp may be used once only"):
        Sharding.of({"batch": "dp"}, partial=("dp",))


def test_shardings_that_say_the_same_are_equal() -> None:
    assert Sharding.of({"a": "x", "b": "y"}) == Sharding.of({"b": ("y",), "a": ["x"], "c": ()})
    assert Sharding.of({"a": ("x", "y")}) != Sharding.of({"a": ("y", "x")})
    assert Sharding.of({}) == REPLICATED


def test_axes_are_found_by_dimension_and_dimensions_by_axis() -> None:
    assert TWO.axes("hidden") == ("tp", "ep")
    assert TWO.axes("sequence") == ()
    assert TWO.holds("ep") == "hidden"
    assert TWO.holds("cp") is None
    assert TWO.used == ("dp", "tp", "ep", "cp")


def test_a_dimension_can_be_split_anew() -> None:
    assert TWO.split("batch", ()).split("hidden", ("dp",)) == Sharding.of({"hidden": "dp"}, partial=("cp",))
    assert TWO.pending(()).partial == ()


def test_local_sizes_are_rounded_up_for_numbers_and_arrays() -> None:
    sizes: dict[str, Any] = {"hidden": 100, "batch": 8, "tp": np.array([1, 4, 3]), "ep": 2, "dp": 2}
    assert np.asarray(TWO.local("hidden", sizes)).tolist() == [50, 13, 17]
    assert np.asarray(TWO.elements(("batch", "hidden"), sizes)).tolist() == [200, 52, 68]
    assert REPLICATED.local("hidden", sizes) == 100


def test_a_sharding_reads_as_a_table() -> None:
    assert str(TWO) == "batch: dp, hidden: tp ep, partial: cp"
    assert str(REPLICATED) == "replicated"


def test_dimensions_can_have_priorities_of_their_own() -> None:
    weight = annotate({"ffn": "tp", "hidden": "dp"}, priority={"hidden": 2})
    assert weight.first == 0
    assert weight.until(1) == Sharding.of({"ffn": "tp"})
    assert weight.until(2) == weight.sharding
