"""Plans: which collectives, and what they cost."""

from __future__ import annotations

from itertools import product

import pytest

from cosmic.workload.sharding.resharding import COLLECTIVES, _plan_all_reduce, _search_shortest, reshard, wire_share
from cosmic.workload.sharding.tensor_sharding import REPLICATED, Sharding
from tests.batches import check_all

SIZES = {"a": 64, "b": 64, "x": 4, "y": 2}
DIMS = ("a", "b")
FULL = 64 * 64


def of(text: str) -> Sharding:
    """Read ``a:xy b:z +w``."""
    words = text.split()
    dims = {word[0]: tuple(word[2:]) for word in words if word[0] != "+"}
    return Sharding.of(dims, [axis for word in words if word[0] == "+" for axis in word[1:]])


@pytest.mark.parametrize(
    ("source", "target", "kinds", "wire"),
    [
        ("a:x", "a:x", [], 0),
        ("", "a:x", ["slice"], 0),
        ("a:x", "", ["all_gather"], FULL * 3 / 4),
        ("a:xy", "", ["all_gather"], FULL * 7 / 8),
        ("a:xy", "a:x", ["all_gather"], FULL / 4 / 2),
        ("a:x", "b:x", ["all_to_all"], FULL / 4 * 3 / 4),
        ("a:xy", "b:xy", ["all_to_all"], FULL / 8 * 7 / 8),
        ("a:xy", "a:yx", ["collective_permute"], FULL / 8),
        ("+x", "", ["all_reduce"], FULL * 3 / 2),
        ("+x", "a:x", ["reduce_scatter"], FULL * 3 / 4),
        ("+xy", "", ["all_reduce"], FULL * 7 / 4),
        ("+xy", "a:x", ["reduce_scatter", "all_reduce"], FULL * 3 / 4 + FULL / 4),
        ("+x", "b:y", ["slice", "all_reduce"], FULL / 2 * 3 / 2),
        ("", "+x", ["mask"], 0),
        ("a:x", "+x", ["mask"], 0),
        ("a:xy", "a:y", ["collective_permute", "all_gather"], FULL / 8 + FULL / 2 * 3 / 4),
    ],
)
def test_plans_are_the_known_ones(source: str, target: str, kinds: list[str], wire: float) -> None:
    steps, cost = reshard(DIMS, of(source), of(target), SIZES)
    assert [step.kind for step in steps] == kinds
    assert cost == wire


def test_what_stays_is_left_alone() -> None:
    (step,), _ = reshard(DIMS, of("a:zx b:w"), of("a:z b:w"), SIZES | {"z": 2, "w": 2})
    assert (step.kind, step.axes) == ("all_gather", ("x",))
    assert (step.before, step.after) == (of("a:zx b:w"), of("a:z b:w"))


def test_groups_of_one_send_nothing() -> None:
    assert all(wire_share(kind, 1) == 0 for kind in COLLECTIVES if kind != "collective_permute")


@check_all("a, b, x, y, z", list(product((1, 3, 64), (0.25, 100), (1, 4), (2, 8), (1, 2))))
def test_one_all_reduce_is_the_shortest_path_of_a_sum_that_all_want(a: float, b: float, x: int, y: int, z: int) -> None:
    """At these sizes shares of the wire are exact numbers, so that the search decides ties as it should."""
    known = (("a", a), ("b", b), ("x", x), ("y", y), ("z", z))
    for sums in ("+x", "+yz", "+xyz"):
        asked = (DIMS, of(sums), REPLICATED, known)
        assert _plan_all_reduce(*asked) == _search_shortest(*asked)


def test_rounding_does_not_break_an_all_reduce_up() -> None:
    """Steps over 3 and over 2 devices add up to a little less than one over 6: 106.66666666666666 of 64 elements."""
    steps, wire = reshard(DIMS, of("+xy"), REPLICATED, {"a": 8, "b": 8, "x": 3, "y": 2})
    assert [step.kind for step in steps] == ["all_reduce"]
    assert wire == pytest.approx(64 * 2 * 5 / 6)
