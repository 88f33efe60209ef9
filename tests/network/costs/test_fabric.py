"""Collectives on networks of several dimensions: by hand, and by laws."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosmic.design.collective_layer import CollectiveKind, algorithms
from cosmic.design.design_batch import Names
from cosmic.design.network_layer import topologies
from cosmic.network.collective_costs import (
    NetworkDimension,
    barrier_seconds,
    broadcast_seconds,
    send_seconds,
    subgroups,
)
from cosmic.network.collective_costs import collective_seconds as seconds_of
from cosmic.network.mesh_spans import Span

KINDS: tuple[CollectiveKind, ...] = get_args(CollectiveKind)


def dimension(
    topology: str = "switch", npus: int = 8, bandwidth: float = 100e9, latency: float = 0.0, algorithm: str = "ring"
) -> NetworkDimension:
    return NetworkDimension(topology, npus, bandwidth, latency, algorithm)


def collective_seconds(
    network: list[NetworkDimension], parts: list[Span], kind: CollectiveKind, size: float, chunks: Any, mode: Any
) -> Any:
    return seconds_of(subgroups(network, parts), kind, size, chunks, mode)


def whole(*dims: NetworkDimension) -> list[Span]:
    return [Span(float(each.npus), 1.0) for each in dims]


def test_a_ring_all_reduce_on_a_ring_takes_what_the_formula_says() -> None:
    """2 (p - 1) steps of latency and 2 (p - 1) / p of the data at the injection bandwidth."""
    one = dimension("ring", 4, 100e9, 1e-6, "ring")
    expected = 2 * 3 * 1e-6 + 1.5 * 1e9 / 100e9
    assert collective_seconds([one], whole(one), "all_reduce", 1e9, 1, "blueconnect") == pytest.approx(expected)


def test_blueconnect_gives_each_dimension_its_share() -> None:
    inner, outer = dimension(npus=4, bandwidth=200e9), dimension(npus=8, bandwidth=100e9)
    size = 1e9
    first, second = 2 * 3 / 4 * size / 200e9, 2 * 7 / 8 * size / 4 / 100e9
    alone = collective_seconds([inner, outer], whole(inner, outer), "all_reduce", size, 1, "blueconnect")
    assert alone == pytest.approx(first + second)
    many = collective_seconds([inner, outer], whole(inner, outer), "all_reduce", size, 1000, "blueconnect")
    assert many == pytest.approx(max(first, second), rel=0.01)  # chunks keep the slower dimension busy


def test_plain_all_reduces_move_everything_in_every_dimension() -> None:
    inner, outer = dimension(npus=4), dimension(npus=4)
    size = 1e9
    found = collective_seconds([inner, outer], whole(inner, outer), "all_reduce", size, 1, "baseline")
    assert found == pytest.approx(2 * 2 * 3 / 4 * size / 100e9)


def test_an_algorithm_that_does_not_suit_a_topology_pays_for_it() -> None:
    size = 1e9

    def seconds(topology: str, algorithm: str) -> float:
        one = dimension(topology, 8, 100e9, 0.0, algorithm)
        return float(collective_seconds([one], whole(one), "all_reduce", size, 1, "blueconnect"))

    assert seconds("ring", "ring") < seconds("ring", "halving_doubling")
    assert seconds("ring", "ring") < seconds("ring", "direct")
    assert seconds("fully_connected", "direct") < seconds("fully_connected", "ring")
    assert seconds("fully_connected", "ring") == pytest.approx(seconds("fully_connected", "direct") * 7 / 2)
    assert seconds("switch", "ring") == pytest.approx(seconds("switch", "direct"))


def test_a_switch_that_reduces_halves_an_all_reduce() -> None:
    usual, inside = dimension(algorithm="halving_doubling", npus=64), dimension(algorithm="in_network", npus=64)
    ratio = collective_seconds([usual], whole(usual), "all_reduce", 1e9, 1, "blueconnect") / collective_seconds(
        [inside], whole(inside), "all_reduce", 1e9, 1, "blueconnect"
    )
    assert ratio == pytest.approx(2 * 63 / 64)


def test_part_of_a_fully_connected_dimension_has_part_of_its_links() -> None:
    one = dimension("fully_connected", 8, 70e9, 0.0, "direct")
    pair = collective_seconds([one], [Span(2.0, 1.0)], "all_gather", 1e9, 1, "blueconnect")
    assert pair == pytest.approx(0.5 * 1e9 / 10e9)  # one link of seven


def test_sending_pays_for_the_outermost_dimension_crossed() -> None:
    inner, outer = dimension("ring", 4, 100e9, 1e-6), dimension("switch", 4, 10e9, 2e-6)
    near = send_seconds(subgroups([inner, outer], [Span(2.0, 1.0), Span(1.0, 1.0)]), 1e6)
    far = send_seconds(subgroups([inner, outer], [Span(2.0, 1.0), Span(2.0, 1.0)]), 1e6)
    assert near < far == pytest.approx(2 * 2e-6 + 1e6 / 10e9)


def test_a_broadcast_reaches_everybody_and_a_barrier_carries_nothing() -> None:
    group = subgroups([dimension("switch", 8, 100e9, 1e-6, "halving_doubling")], [Span(8.0, 1.0)])
    assert broadcast_seconds(group, 1e9) == pytest.approx(3 * 2e-6 + 1e9 / 100e9)
    assert barrier_seconds(group) == pytest.approx(6 * 2e-6)


dimensions = st.builds(
    NetworkDimension,
    st.sampled_from(sorted(topologies)),
    st.sampled_from([2, 4, 8, 16, 64]),
    st.floats(1e9, 1e12),
    st.floats(0, 1e-4),
    st.sampled_from(
        [name for name in sorted(algorithms) if name != "synthesized"]
    ),  # has tests of its own: it takes longer
)
kinds = st.sampled_from(KINDS)
modes = st.sampled_from(["baseline", "blueconnect", "themis"])


@given(st.lists(dimensions, min_size=1, max_size=3), kinds, st.floats(1, 1e10), st.sampled_from([1, 4, 16]), modes)
def test_more_bytes_never_take_less_time(
    network: list[NetworkDimension], kind: CollectiveKind, size: float, chunks: int, mode: str
) -> None:
    parts = whole(*network)
    small = collective_seconds(network, parts, kind, size, chunks, mode)
    assert collective_seconds(network, parts, kind, 2 * size, chunks, mode) >= small > 0


@given(st.lists(dimensions, min_size=1, max_size=3), kinds, st.floats(1, 1e10), st.sampled_from([1, 4, 16]), modes)
def test_nothing_beats_the_bandwidth_bound(
    network: list[NetworkDimension], kind: CollectiveKind, size: float, chunks: int, mode: str
) -> None:
    """All but one's own part must leave every NPU, through all its dimensions together."""
    members = float(np.prod([float(each.npus) for each in network]))
    bound = size * (members - 1) / members / sum(each.bandwidth_bytes_per_s for each in network)
    assert collective_seconds(network, whole(*network), kind, size, chunks, mode) >= bound * (1 - 1e-9)


@given(st.lists(dimensions, min_size=1, max_size=3), kinds, st.floats(1, 1e10), modes)
def test_a_group_of_one_costs_nothing(
    network: list[NetworkDimension], kind: CollectiveKind, size: float, mode: str
) -> None:
    alone = [Span(1.0, 1.0) for _ in network]
    assert collective_seconds(network, alone, kind, size, 4, mode) == 0


@given(dimensions, kinds, st.floats(1, 1e10), modes)
def test_equal_dimensions_commute(one: NetworkDimension, kind: CollectiveKind, size: float, mode: str) -> None:
    one_way = [Span(float(one.npus), 1.0), Span(1.0, 1.0)]
    seconds = [collective_seconds([one, one], parts, kind, size, 4, mode) for parts in (one_way, one_way[::-1])]
    assert seconds[0] == pytest.approx(seconds[1])


@given(st.lists(dimensions, min_size=2, max_size=2), kinds, st.floats(1, 1e10))
def test_arrays_of_names_and_numbers_give_what_single_designs_give(
    network: list[NetworkDimension], kind: CollectiveKind, size: float
) -> None:
    def column(name: str) -> Any:
        values = [getattr(each, name) for each in network]
        return Names(values, np.arange(2)) if isinstance(values[0], str) else np.array(values)

    names = ("topology", "npus", "bandwidth_bytes_per_s", "latency_s", "algorithm")
    together = NetworkDimension(*(column(name) for name in names))
    parts = Span(column("npus").astype(float), np.ones(2))
    modes = Names(("baseline", "blueconnect"), np.array([0, 1]))
    found = collective_seconds([together], [parts], kind, size, 4, modes)
    for place, each in enumerate(network):
        mode = ("baseline", "blueconnect")[place]
        assert found[place] == pytest.approx(collective_seconds([each], whole(each), kind, size, 4, mode))
