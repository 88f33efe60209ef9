"""Chunks that visit dimensions in orders of their own: by hand, and against schedules one by one."""

from __future__ import annotations

from itertools import combinations_with_replacement, permutations

import numpy as np
import pytest

from cosmic.network.collective_costs import NetworkDimension, collective_seconds, subgroups
from cosmic.network.mesh_spans import Span
from cosmic.network.themis_chunks import (
    Lane,
    ThemisInput,
    lane_sets,
    level_s,
    levelled_seconds,
    levelled_shares,
    themis_loads,
)

near = pytest.approx


def lanes_of(members: list[int], rates: list[float], size: float, chunks: int, latency: float = 0.0) -> list[Lane]:
    """Return dimensions whose first chunk goes from the inside out."""
    inside, found = 1, []
    for p, rate in zip(members, rates, strict=True):
        first = latency + size / chunks * (1 - 1 / p) / inside / rate
        found.append(Lane(float(p), rate, first, latency))
        inside *= p
    return found


def test_two_dimensions_by_hand() -> None:
    """4 and 4 at 200 and 100 bytes/s, 256 bytes in 4 chunks of 64.

    The first chunk sends 48 bytes inside and 12 outside. The others send 60 bytes each in whatever dimension, at least
    12 in either: inside alone 48 + 36 = 84 bytes, 0.42 s; outside alone 12 + 36 = 48 bytes, 0.48 s; together 240 bytes
    at 300 bytes/s, 0.8 s. The first chunk takes 0.24 and 0.12 s: 0.12 s more than the level.
    """
    lanes = lanes_of([4, 4], [200.0, 100.0], 256.0, 4)
    assert level_s(lanes, 256.0, 4) == near(0.8)
    assert levelled_seconds(lanes, 256.0, 4) == near(0.92)
    assert levelled_shares(lanes, 256.0, 4) == near([160 / 192, 80 / 192])


def test_a_slow_dimension_by_itself_is_the_level() -> None:
    """2 and 8 at 100 and 1: what must cross the outer one is 7/16 of the data, at 1 byte/s."""
    lanes = lanes_of([2, 8], [100.0, 1.0], 16.0, 2)
    assert level_s(lanes, 16.0, 2) == near(7.0)
    assert levelled_seconds(lanes, 16.0, 2) == near(7.0 + 0.04)


def test_every_chunk_takes_the_latency_of_the_dimensions_it_visits() -> None:
    """Two dimensions of 2 at 10 bytes/s, 4 bytes in 2 chunks of 1 s: 2 s, half of 3 bytes, the first one's way."""
    lanes = lanes_of([2, 2], [10.0, 10.0], 4.0, 2, latency=1.0)
    assert [each.first_s for each in lanes] == near([1.1, 1.05])
    assert levelled_seconds(lanes, 4.0, 2) == near(2 + 0.15 + 1.05)


def test_no_bytes_take_latency_alone() -> None:
    lanes = lanes_of([2, 4], [10.0, 10.0], 0.0, 3, latency=0.5)
    assert levelled_seconds(lanes, 0.0, 3) == near(1.5 + 0.5)


def test_one_chunk_goes_from_the_inside_out() -> None:
    lanes = lanes_of([4, 2, 8], [3.0, 2.0, 1.0], 64.0, 1, latency=0.25)
    assert levelled_seconds(lanes, 64.0, 1) == near(sum(each.first_s for each in lanes))


def test_one_dimension_takes_its_chunks_one_by_one() -> None:
    (lane,) = lanes_of([8], [10.0], 80.0, 5, latency=0.1)
    assert levelled_seconds([lane], 80.0, 5) == near(5 * lane.first_s)


def test_a_dimension_of_one_member_changes_nothing() -> None:
    lanes = lanes_of([4, 2], [3.0, 2.0], 64.0, 4, latency=0.1)
    alone = Lane(1.0, 0.0, 0.0, 0.0)
    wanted = levelled_seconds(lanes, 64.0, 4)
    assert [levelled_seconds(each, 64.0, 4) for each in ([alone, *lanes], [lanes[0], alone, lanes[1], alone])] == [
        wanted,
        wanted,
    ]


def test_sets_of_up_to_four_dimensions_are_all_there_are() -> None:
    assert [len(set(lane_sets(count))) for count in range(1, 7)] == [1, 3, 7, 15, 5 + 10 + 5 + 1, 6 + 15 + 6 + 1]
    assert (0, 2) in set(lane_sets(3))


@pytest.mark.parametrize("members", [[2, 4], [4, 2], [2, 3, 4], [4, 2, 2]])
def test_no_schedule_is_faster_and_fine_chunks_come_near(members: list[int]) -> None:
    """The least over all schedules of a few chunks; of many chunks, Themis' own."""
    rng = np.random.default_rng(3)
    for _ in range(10):
        rates = [float(each) for each in rng.uniform(1, 10, len(members))]
        level = float(level_s(lanes_of(members, rates, 1.0, 3), 1.0, 3))
        assert level <= best_of_all(members, rates, 3) * (1 + 1e-9)
        many = float(level_s(lanes_of(members, rates, 1.0, 64), 1.0, 64))
        themis = ThemisInput(npus=tuple(members), bandwidths=tuple(rates), size_bytes=2**40, splits=64)
        assert many <= max(themis_loads("reduce_scatter", themis)) / 2**20 / rates[0] * (1 + 1e-6)
        assert many >= 0.85 * max(themis_loads("reduce_scatter", themis)) / 2**20 / rates[0]


def best_of_all(members: list[int], rates: list[float], chunks: int) -> float:
    """Return the least load over all orders of all chunks but the first."""

    def load(order: tuple[int, ...]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        left, found = 1 / chunks, np.zeros(len(members))
        for place in order:
            found[place] = left * (1 - 1 / members[place]) / rates[place]
            left /= members[place]
        return found

    orders = [load(order) for order in permutations(range(len(members)))]
    return min(
        float((orders[0] + np.sum(others, axis=0)).max())
        for others in combinations_with_replacement(orders, chunks - 1)
    )


@pytest.mark.parametrize("seed", range(20))
def test_shares_send_everything_and_keep_every_dimension_below_the_level(seed: int) -> None:
    rng = np.random.default_rng(seed)
    members = [int(each) for each in rng.choice([2, 3, 4, 8], rng.integers(1, 5))]
    rates = [float(each) for each in rng.uniform(1, 10, len(members))]
    size, chunks, latency = 100.0, int(rng.choice([1, 2, 4, 16])), float(rng.choice([0.0, 0.3]))
    lanes = lanes_of(members, rates, size, chunks, latency)
    shares = levelled_shares(lanes, size, chunks)
    sent = [share * (1 - 1 / p) for share, p in zip(shares, members, strict=True)]
    assert sum(sent) == near(1 - 1 / np.prod(members))
    busy = [chunks * latency + each * size / rate for each, rate in zip(sent, rates, strict=True)]
    assert max(busy) == near(float(level_s(lanes, size, chunks)))
    assert min(shares) >= 0


def test_themis_never_takes_longer_than_the_usual_order_nor_less_than_all_links_together() -> None:
    dims = [NetworkDimension("switch", 8, rate, 1e-6, "ring") for rate in (400e9, 50e9, 25e9)]
    group = subgroups(dims, [Span(8.0, 1.0), Span(4.0, 1.0), Span(8.0, 1.0)])
    for chunks in (1, 2, 7, 32):
        usual, levelled = (
            float(collective_seconds(group, "reduce_scatter", 1e9, chunks, mode)) for mode in ("blueconnect", "themis")
        )
        assert 1e9 * 255 / 256 / 475e9 <= levelled <= usual * (1 + 1e-12)
        assert (levelled == near(usual)) == (chunks == 1)
