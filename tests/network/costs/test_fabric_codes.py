"""Topologies and algorithms of somebody else: however many there are, and whatever they return."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cosmic.base.errors import BackendError
from cosmic.design.design_batch import CODE_LIMIT, Names, _row_codes
from cosmic.design.network_layer import topologies
from cosmic.network.collective_costs import collective_terms
from cosmic.network.collective_rounds import usable_share
from cosmic.simulate.recording.recorded_program import LookupTable, hash_key


def test_many_topologies_and_algorithms_do_not_share_codes() -> None:
    names = tuple(f"plugin-{place}" for place in range(300))
    first, second = (each.reshape(-1) for each in np.meshgrid(np.arange(300), np.arange(300)))
    sizes = np.full(len(first), float(CODE_LIMIT - 1))
    columns: list[Any] = [Names(names, first), Names(names, second), sizes, sizes, sizes]
    assert len(np.unique(_row_codes(columns, len(first)))) == 300 * 300


@pytest.mark.parametrize("odd", [-1.0, 0.5, float(CODE_LIMIT), float("inf"), -float("inf")])
def test_numbers_that_are_no_sizes_share_no_codes(odd: float) -> None:
    columns: list[Any] = [np.array([1.0, 0.0, 1.0]), np.array([odd, CODE_LIMIT - 1.0, 0.0])]
    assert len(np.unique(_row_codes(columns, 3))) == 3


def test_recorded_tables_tell_many_names_apart() -> None:
    """Rows of a table are the codes themselves: nothing is packed."""
    names = tuple(f"plugin-{place}" for place in range(300))
    table = LookupTable((names, names, None))
    rows = [(first, second, 8.0) for first in (0, 127, 128, 255, 256, 299) for second in range(300)]
    found = table.places_of(np.array(rows, dtype=float))
    assert len(set(found.tolist())) == len(rows)
    assert table.arguments(table.rows[found[-1]].tolist()) == ["plugin-299", "plugin-299", 8.0]
    assert len({hash_key(row) for row in rows}) == len(rows)


@pytest.mark.parametrize(
    ("method", "given", "said"),
    [
        ("share", -1.0, "share gave -1; it must be finite"),
        ("share", 1e9, "share gave 1e[+]09; it is a share"),
        ("share", "much", "share failed: ValueError"),
        ("hops", float("inf"), "hops gave inf"),
        ("hops", None, "hops failed: TypeError"),
    ],
)
def test_a_topology_that_gives_no_possible_number_is_named(
    monkeypatch: pytest.MonkeyPatch, method: str, given: Any, said: str
) -> None:
    switch: Any = topologies["switch"]
    odd = type("Odd", (switch,), {method: staticmethod(lambda *_: given)})
    monkeypatch.setitem(topologies._variants, "odd", odd)
    usable_share.cache_clear()
    with pytest.raises(BackendError, match=f"Odd.{said}"):
        collective_terms.__wrapped__("all_reduce", "odd", "ring", 8, 8, 1)
