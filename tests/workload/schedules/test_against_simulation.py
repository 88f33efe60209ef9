"""The closed forms equal a simulation of the orders, for any times."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosmic.accuracy.suites import PipelineSizes, simulate_schedule_s
from cosmic.workload.pipeline_schedule import PipelineSchedule, schedules

from .simulator import simulate

NAMES = ("1f1b", "dualpipe", "gpipe", "interleaved", "zero_bubble")
Times = tuple[Fraction, Fraction, Fraction]
"""F, B and W."""
ORDERS = [(1, 1, 1), (3, 4, 2), (3, 2, 4), (5, 1, 9), (2, 7, 3), (7, 3, 2), (1, 9, 8)]
TIMES: list[Times] = [(Fraction(f), Fraction(b), Fraction(w)) for f, b, w in ORDERS]
"""Every order of size."""
seconds = st.fractions(min_value=Fraction(1, 100), max_value=100, max_denominator=100)
times: st.SearchStrategy[Times] = st.tuples(seconds, seconds, seconds)


def valid_sizes(schedule: PipelineSchedule, most_stages: int, most_microbatches: int) -> list[tuple[int, int, int]]:
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
@settings(max_examples=30, deadline=None)
def test_they_are_for_any_times(name: str, data: st.DataObject, fbw: Times) -> None:
    sizes = data.draw(st.sampled_from(valid_sizes(schedules[name], most_stages=8, most_microbatches=24)))
    assert_agrees(name, sizes, fbw)


@pytest.mark.parametrize("name", NAMES)
def test_orders_of_many_stages_agree_too(name: str) -> None:
    for sizes in [(16, 64, 1), (16, 32, 1), (10, 20, 1)]:
        assert_agrees(name, sizes, TIMES[1])


@given(fbw=times, pairs=st.integers(1, 4))
@settings(max_examples=50, deadline=None)
def test_how_far_the_published_form_of_dualpipe_is_off(fbw: Times, pairs: int) -> None:
    """At most F too large; n (F - B) too small where B is shorter than F, and n (W - B) more where it is than W."""
    forward, backward, weight = fbw
    stages, n = 2 * pairs, pairs - 1
    published = n * (forward + 2 * backward - weight)
    dualpipe: Any = schedules["dualpipe"]  # closed forms take fractions as well
    excess = dualpipe.bubble(stages, 2 * stages, *fbw) - published
    expected = max(n * (forward - backward), -forward) + n * max(Fraction(0), weight - backward)
    assert excess == (expected if n else 0)


# ---- transfers


def waited(name: str, sizes: PipelineSizes, times_s: tuple[float, float, float], transfer_s: float = 1 / 64) -> float:
    """Return how many transfers there and back a simulated step waits for."""
    schedule: PipelineSchedule = schedules[name]
    longer = simulate_schedule_s(schedule, sizes, transfer_s, times_s) - simulate_schedule_s(
        schedule, sizes, 0.0, times_s
    )
    return longer / (2 * transfer_s)


def stated(name: str, sizes: PipelineSizes) -> float:
    schedule: PipelineSchedule = schedules[name]
    return float(sum(schedule.transfers(*sizes)))


@pytest.mark.parametrize("name", ["1f1b", "gpipe", "interleaved"])
def test_transfers_are_those_of_the_simulation(name: str) -> None:
    grid = valid_sizes(schedules[name], most_stages=6, most_microbatches=14)
    for place, sizes in enumerate(grid):
        forward, backward, weight = (float(each) for each in TIMES[place % len(TIMES)])
        assert waited(name, PipelineSizes(*sizes), (forward, backward, weight)) == pytest.approx(
            stated(name, PipelineSizes(*sizes))
        )


@pytest.mark.parametrize(("times_s"), [(1.0, 1.0, 1.0), (3.0, 4.0, 2.0), (4.0, 3.0, 2.0)])
def test_transfers_of_a_zero_bubble_are_those_of_the_simulation_where_weight_gradients_are_shortest(
    times_s: tuple[float, float, float],
) -> None:
    for sizes in valid_sizes(schedules["zero_bubble"], most_stages=6, most_microbatches=14):
        assert waited("zero_bubble", PipelineSizes(*sizes), times_s) == pytest.approx(
            stated("zero_bubble", PipelineSizes(*sizes))
        )


@pytest.mark.parametrize("times_s", [(1.0, 2.0, 3.0), (2.0, 1.0, 3.0), (3.0, 1.0, 2.0)])
def test_longer_weight_gradients_hide_more_transfers(times_s: tuple[float, float, float]) -> None:
    for sizes in valid_sizes(schedules["zero_bubble"], most_stages=6, most_microbatches=14):
        more = stated("zero_bubble", PipelineSizes(*sizes)) - waited("zero_bubble", PipelineSizes(*sizes), times_s)
        assert -1e-9 <= more <= sizes[0] - 1 + 1e-9


@pytest.mark.parametrize(
    ("times_s", "more"),
    [
        ((1.0, 1.0, 1.0), 0.0),
        ((2.0, 2.0, 1.0), 0.0),
        ((3.0, 2.0, 1.0), 0.0),
        ((1.0, 2.0, 1.0), 0.5),
        ((1.0, 1.0, 2.0), -0.5),
    ],
)
def test_transfers_of_both_directions_depend_on_what_takes_longest(
    times_s: tuple[float, float, float], more: float
) -> None:
    """With n = p / 2 - 1, n / 2 more where B > F, n / 2 less where W > B; within a quarter of a transfer and back."""
    for stages, microbatches, virtual in valid_sizes(schedules["dualpipe"], most_stages=8, most_microbatches=24):
        sizes, n = PipelineSizes(stages, microbatches, virtual), max(0, stages // 2 - 1)
        found = waited("dualpipe", sizes, times_s) - stated("dualpipe", sizes)
        assert found == pytest.approx(n * more, abs=0.25)


def test_a_slow_network_holds_up_every_round_of_1f1b() -> None:
    """However long transfers take."""
    for transfer_s in (0.5, 1.0, 4.0):
        assert waited("1f1b", PipelineSizes(4, 16, 1), (1.0, 1.0, 1.0), transfer_s) == pytest.approx(3 + 11)
