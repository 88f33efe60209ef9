"""The closed forms equal a simulation of the orders, for any times."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosmic.workload.schedule import Schedule, schedules

from .simulator import simulate

NAMES = ("1f1b", "dualpipe", "gpipe", "interleaved", "zero_bubble")
Times = tuple[Fraction, Fraction, Fraction]
"""F, B and W."""
ORDERS = [(1, 1, 1), (3, 4, 2), (3, 2, 4), (5, 1, 9), (2, 7, 3), (7, 3, 2), (1, 9, 8)]
TIMES: list[Times] = [(Fraction(f), Fraction(b), Fraction(w)) for f, b, w in ORDERS]
"""Every order of size."""
seconds = st.fractions(min_value=Fraction(1, 100), max_value=100, max_denominator=100)
times: st.SearchStrategy[Times] = st.tuples(seconds, seconds, seconds)


def valid_sizes(schedule: Schedule, most_stages: int, most_microbatches: int) -> list[tuple[int, int, int]]:
    grid = [
        (stages, microbatches, virtual)
        for stages in range(1, most_stages + 1)
        for microbatches in range(1, most_microbatches + 1)
        for virtual in (1, 2, 3)
    ]
    return [sizes for sizes in grid if schedule.invalid_reason(*sizes) is None]


def assert_agrees(name: str, sizes: tuple[int, int, int], fbw: Times) -> None:
    """Simulated idle time and peak of every stage are those of the closed forms: in fractions, so exactly."""
    schedule: Any = schedules[name]  # closed forms take fractions as well
    stages, microbatches, virtual = sizes
    simulated = simulate(schedule, *sizes, fbw)
    assert set(simulated.idle) == {schedule.bubble(stages, microbatches, *fbw, Fraction(virtual))}
    for stage in range(stages):
        assert simulated.peak[stage] == schedule.in_flight(stage, stages, microbatches, Fraction(virtual))


def test_all_schedules_are_here() -> None:
    assert tuple(schedules) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_bubble_and_activations_are_those_of_the_simulation(name: str) -> None:
    grid = valid_sizes(schedules[name], most_stages=8, most_microbatches=24)
    for place, sizes in enumerate(grid):
        assert_agrees(name, sizes, TIMES[place % len(TIMES)])


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data(), fbw=times)
@settings(max_examples=60, deadline=None)
def test_they_are_for_any_times(name: str, data: st.DataObject, fbw: Times) -> None:
    sizes = data.draw(st.sampled_from(valid_sizes(schedules[name], most_stages=8, most_microbatches=24)))
    assert_agrees(name, sizes, fbw)


@pytest.mark.parametrize("name", NAMES)
def test_orders_of_many_stages_agree_too(name: str) -> None:
    for sizes in [(16, 64, 1), (16, 32, 1), (10, 20, 1)]:
        assert_agrees(name, sizes, TIMES[1])


@given(fbw=times, pairs=st.integers(1, 4))
@settings(max_examples=100, deadline=None)
def test_how_far_the_published_form_of_dualpipe_is_off(fbw: Times, pairs: int) -> None:
    """At most F too large; n (F - B) too small where B is shorter than F, and n (W - B) more where it is than W."""
    forward, backward, weight = fbw
    stages, n = 2 * pairs, pairs - 1
    published = n * (forward + 2 * backward - weight)
    dualpipe: Any = schedules["dualpipe"]  # closed forms take fractions as well
    excess = dualpipe.bubble(stages, 2 * stages, *fbw) - published
    expected = max(n * (forward - backward), -forward) + n * max(Fraction(0), weight - backward)
    assert excess == (expected if n else 0)
