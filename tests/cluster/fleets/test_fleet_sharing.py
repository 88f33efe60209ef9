"""How jobs share a cluster: in space, schedules worked out by hand; in time, shares that are measured turn by turn."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosmic.cluster.fleet_jobs import Placement, Policy, SharingRules
from cosmic.cluster.fleet_sharing import (
    Tenant,
    device_shares,
    run_in_turns,
    run_partitioned,
    simulate_turns,
    turn_steps,
)
from cosmic.cluster.job_requests import JobRequest, UplinkTraffic
from tests.cluster.fleets.made import cluster, request

THREE = [request("a", 6, 10), request("b", 8, 5, 1.0), request("c", 2, 4, 2.0)]
"""On 8 accelerators: a leaves 2 free, b needs all 8, c needs just those 2."""


def times(requests: list[JobRequest], npus: int = 8, **rules: object) -> list[tuple[float, float]]:
    """Return when each job begins and ends."""
    runs = run_partitioned(requests, cluster(npus), SharingRules(**rules))  # type: ignore[arg-type]
    return [(run.start_s, run.end_s) for run in runs]


def test_fifo_lets_nobody_pass() -> None:
    # a 0-10; b waits for all 8: 10-15; c, though 2 are free from 2 on, waits behind b: 15-19
    assert times(THREE) == [(0, 10), (10, 15), (15, 19)]


def test_backfill_lets_a_short_job_pass_that_delays_nobody() -> None:
    # c takes the 2 that a leaves, 2-6, and is gone when b can begin at 10
    assert times(THREE, policy="backfill") == [(0, 10), (10, 15), (2, 6)]


def test_backfill_holds_back_a_job_that_would_delay_the_first() -> None:
    # c would end at 2 + 9 = 11, after b could begin at 10, and b needs every accelerator
    long = [*THREE[:2], request("c", 2, 9, 2.0)]
    assert times(long, policy="backfill") == [(0, 10), (10, 15), (15, 24)]


def test_backfill_lets_a_long_job_pass_that_is_not_in_the_way() -> None:
    # b needs only 6, which a gives back at 10; c has the 2 others for as long as it likes
    beside = [THREE[0], request("b", 6, 5, 1.0), request("c", 2, 100, 2.0)]
    assert times(beside, policy="backfill") == [(0, 10), (10, 15), (2, 102)]


def test_priority_goes_before_arrival() -> None:
    jobs = [request("a", 8, 10), request("b", 8, 1, 1.0), request("c", 8, 1, 2.0, priority=1)]
    # a holds all until 10; c outranks b, though it came later
    assert times(jobs, policy="priority") == [(0, 10), (11, 12), (10, 11)]
    assert times(jobs) == [(0, 10), (10, 11), (11, 12)]


def test_a_job_with_a_choice_takes_as_many_as_are_free() -> None:
    # b may have 2, 4 or 8: of 8, a leaves 4, on which its 8 steps on 2 are 4
    jobs = [request("a", 4, 10), request("b", (2, 4, 8), 8, 1.0)]
    assert times(jobs) == [(0, 10), (1, 5)]
    assert times([jobs[1]]) == [(1, 3)]


def test_fragments_make_a_contiguous_job_wait_and_not_a_scattered_one() -> None:
    # a, b, c, d have 2 each; b and d end at 1: 4 are free, in two pieces. e needs 4
    small = [request("a", 2, 9), request("b", 2, 1), request("c", 2, 5), request("d", 2, 1)]
    jobs = [*small, request("e", 4, 1, 2.0)]
    assert times(jobs)[4] == (5, 6)  # until c has ended, between the two
    assert times(jobs, placement="scattered")[4] == (2, 3)


def test_what_a_job_waited_for_is_said() -> None:
    runs = run_partitioned(THREE, cluster(8), SharingRules())
    assert [run.waited_for for run in runs] == ["", "accelerators", "accelerators"]
    runs = run_partitioned([*THREE, request("d", 1, 1, 3.0)], cluster(8), SharingRules())
    assert runs[3].waited_for == "jobs before it"  # c went first, and left it room


RING = (UplinkTraffic(100.0, 2),)
"""Two nodes that send 100 bytes to each other in a second: at full rate, all of the step."""


def pair(leaf: int, oversubscription: float, placement: Placement) -> list[float]:
    """Return how long two jobs of two nodes of one accelerator take, on two leaves of two, and each alone."""
    jobs = [request("a", 2, 10, traffic=RING), request("b", 2, 10, traffic=RING)]
    tier = cluster(4, leaf=leaf, oversubscription=oversubscription)
    runs = run_partitioned(jobs, tier, SharingRules(placement=placement))
    return [run.end_s - run.start_s for run in runs]


def test_full_bisection_slows_nobody_wherever_jobs_lie() -> None:
    assert pair(2, 1.0, "packed") == pair(2, 1.0, "scattered") == [10.0, 10.0]


def test_oversubscription_slows_scattered_jobs_and_not_packed_ones() -> None:
    assert pair(2, 4.0, "packed") == [10.0, 10.0]
    # scattered: a leaf of 2 sends up 2 * 100 / 4 = 50 bytes/s; a job wants 100, and the other one sends 100 on average:
    # its traffic is (100 + 100) / 50 = 4 times slower, and its step, made so, 2.5 times
    assert pair(2, 4.0, "scattered") == [25.0, 25.0]


def test_a_job_goes_on_faster_when_the_other_has_ended() -> None:
    jobs = [request("a", 2, 10, traffic=RING), request("b", 2, 2, traffic=RING)]
    tier = cluster(4, leaf=2, oversubscription=4.0)
    runs = run_partitioned(jobs, tier, SharingRules(placement="scattered"))
    # both at 2.5 s a step: b ends at 5. a has done 2 steps; alone its factor is 100 / 50 = 2, and a step takes
    # 1 + 1.5 / 3 = 1.5 s: the other 8 take 12 s
    assert [run.end_s for run in runs] == pytest.approx([17.0, 5.0], rel=1e-12)


jobs_of_any_kind = st.lists(
    st.tuples(st.sampled_from([1, 2, 4, 8, 16, 24, 32]), st.integers(1, 20), st.integers(0, 30), st.integers(0, 3)),
    min_size=1,
    max_size=25,
)


@settings(max_examples=30, deadline=None)
@given(
    jobs_of_any_kind,
    st.sampled_from(["fifo", "priority", "backfill"]),
    st.sampled_from(["packed", "first_fit", "scattered"]),
)
def test_no_accelerator_ever_runs_two_jobs(
    rows: list[tuple[int, int, int, int]], policy: Policy, placement: Placement
) -> None:
    tier = cluster(32, node=8, leaf=16, oversubscription=4.0)
    ring = (UplinkTraffic(50.0, 2),)
    jobs = [
        request(f"{place}", npus, steps, float(arrival), priority=priority, traffic=ring if npus > 8 else ())
        for place, (npus, steps, arrival, priority) in enumerate(rows)
    ]
    rules = SharingRules(policy=policy, placement=placement)
    runs = run_partitioned(jobs, tier, rules)
    assert runs == run_partitioned(jobs, tier, rules)
    used: dict[int, list[tuple[float, float]]] = {}
    for job, run in zip(jobs, runs, strict=True):
        numbers = [each for first, end in run.ranges for each in range(first, end)]
        assert len(set(numbers)) == len(numbers) == job.options[0].demand.held
        assert 0 <= min(numbers) <= max(numbers) < tier.npus
        assert run.start_s >= job.arrival_s
        assert run.end_s - run.start_s >= job.options[0].steps * (1 - 1e-12)
        if len(numbers) <= 8:
            assert numbers[0] // 8 == numbers[-1] // 8  # inside a node
        for each in numbers:
            used.setdefault(each, []).append((run.start_s, run.end_s))
    for spans in used.values():
        ordered = sorted(spans)
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(ordered))


@settings(max_examples=40, deadline=None)
@given(jobs_of_any_kind)
def test_fifo_begins_jobs_in_the_order_of_their_arrival(rows: list[tuple[int, int, int, int]]) -> None:
    jobs = [request(f"{place}", npus, steps, float(at)) for place, (npus, steps, at, _) in enumerate(rows)]
    runs = run_partitioned(jobs, cluster(32, node=8), SharingRules())
    order = sorted(range(len(jobs)), key=lambda place: (jobs[place].arrival_s, place))
    starts = [runs[place].start_s for place in order]
    assert starts == sorted(starts)


def test_thousands_of_jobs_all_run() -> None:
    sizes = (8, 16, 64, 4, 32)
    jobs = [request(f"{place}", sizes[place % 5], 50 + place % 7, place * 1.5) for place in range(1000)]
    for policy in ("fifo", "backfill"):
        runs = run_partitioned(jobs, cluster(256, node=8, leaf=64), SharingRules(policy=policy))
        assert len(runs) == len(jobs)


MS = 1e-3


@pytest.mark.parametrize("shares", [(1, 1, 1, 1), (1, 2, 4, 8)])
@pytest.mark.parametrize("steps_s", [(1.0, 1.0, 1.0, 1.0), (0.33, 1.7, 0.05, 2.9)])
@pytest.mark.parametrize("switch_s", [0.0, 0.1])
def test_measured_shares_are_within_a_percent_of_what_was_asked(
    shares: tuple[int, ...], steps_s: tuple[float, ...], switch_s: float
) -> None:
    tenants = [
        Tenant(step_s=step_s, share=float(share), switch_s=switch_s)
        for step_s, share in zip(steps_s, shares, strict=True)
    ]
    asked = [share / sum(shares) for share in shares]
    assert simulate_turns(tenants, 0.5, turns=8000).measured() == pytest.approx(asked, rel=0.01)
    closed = device_shares(tenants, 0.5)
    assert [each / sum(closed) for each in closed] == pytest.approx(asked, rel=1e-12)


@pytest.mark.parametrize("clients", [1, 2, 3, 4, 8])
def test_utilisation_is_that_of_pathways(clients: int) -> None:
    # programs of 0.33 ms with a host that takes 0.99 ms between two: one client uses a quarter, four all of the device
    tenant = Tenant(step_s=0.33 * MS, gap_s=0.99 * MS)
    expected = min(1.0, clients * 0.33 / (0.33 + 0.99))
    assert sum(device_shares([tenant] * clients)) == pytest.approx(expected, rel=1e-12)
    assert simulate_turns([tenant] * clients, turns=4000).utilization == pytest.approx(expected, rel=2e-3)


def test_what_one_job_cannot_use_others_get_by_their_shares() -> None:
    # the first could have 4/7, and can use 1 / (1 + 4) = 1/5; of the other 4/5 the shares 1 and 2 are 4/15 and 8/15
    tenants = [Tenant(step_s=1.0, gap_s=4.0, share=4.0), Tenant(step_s=1.0), Tenant(step_s=1.0, share=2.0)]
    assert device_shares(tenants) == pytest.approx([1 / 5, 4 / 15, 8 / 15], rel=1e-12)


def test_switching_takes_its_part() -> None:
    # two turns of 4 s and two switches of 1 s: 4 of 10 s each; one job alone never switches
    pair = [Tenant(step_s=1.0, switch_s=1.0)] * 2
    assert turn_steps(pair, 4.0) == [4, 4]
    assert device_shares(pair, 4.0) == pytest.approx([0.4, 0.4], rel=1e-12)
    assert simulate_turns(pair, 4.0, turns=2000).utilization == pytest.approx(0.8, rel=1e-3)
    assert device_shares(pair[:1], 4.0) == [1.0]


tenants_of_any_kind = st.lists(
    st.builds(
        Tenant,
        step_s=st.floats(0.01, 10.0),
        share=st.floats(0.1, 10.0),
        gap_s=st.floats(0.0, 10.0),
        switch_s=st.floats(0.0, 1.0),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=50, deadline=None)
@given(tenants_of_any_kind, st.floats(0.0, 5.0))
def test_no_more_than_all_of_the_device_is_given_out(tenants: list[Tenant], quantum_s: float) -> None:
    found = device_shares(tenants, quantum_s)
    assert 0 < sum(found) <= 1 + 1e-12
    assert all(0 < got <= tenant.most * (1 + 1e-12) for got, tenant in zip(found, tenants, strict=True))


# ---- gangs over time


def test_two_equal_jobs_take_turns_until_one_ends() -> None:
    # both at half speed: a's 10 steps end at 20; b has done 10 of its 30, and goes on alone: 20 + 20
    runs, moments = run_in_turns([request("a", 4, 10), request("b", 4, 30)], cluster(4), SharingRules(sharing="time"))
    assert [(run.start_s, run.end_s) for run in runs] == [(0.0, 20.0), (0.0, 40.0)]
    assert [run.device_s for run in runs] == pytest.approx([10.0, 30.0], rel=1e-12)
    assert len(moments[0].tenants) == 2


def test_shares_of_one_two_four_eight_hold_until_the_first_ends() -> None:
    # 15 shares: steps 1, 2, 4, 8 in proportion all end at the same time, 150
    jobs = [request(f"{share}", 4, 10.0 * share, share=float(share)) for share in (1, 2, 4, 8)]
    runs, _ = run_in_turns(jobs, cluster(4), SharingRules(sharing="time"))
    assert [run.end_s for run in runs] == pytest.approx([150.0] * 4, rel=1e-9)


def test_jobs_join_the_gang_with_the_least_share() -> None:
    jobs = [request("a", 4, 10, share=3.0), request("b", 4, 10), request("c", 4, 10)]
    runs, _ = run_in_turns(jobs, cluster(8), SharingRules(sharing="time"))
    assert [run.ranges for run in runs] == [((0, 4),), ((4, 8),), ((4, 8),)]


def test_jobs_whose_memory_does_not_fit_together_wait() -> None:
    jobs = [request("a", 4, 10, memory_bytes=60.0), request("b", 4, 10, memory_bytes=60.0)]  # of 100
    runs, _ = run_in_turns(jobs, cluster(4), SharingRules(sharing="time"))
    assert [(run.start_s, run.end_s, run.waited_for) for run in runs] == [(0.0, 10.0, ""), (10.0, 20.0, "memory")]


def test_with_swap_they_take_turns_and_pay_for_it() -> None:
    jobs = [request(name, 4, 10, memory_bytes=60.0) for name in "ab"]
    runs, _ = run_in_turns(jobs, cluster(4), SharingRules(sharing="time", quantum_s=8.0, swap_bytes_per_s=60.0))
    # at each switch 60 bytes go out and 60 come in: 2 s for each turn of 8 s; 20 steps take 20 * 10 / 8 = 25 s
    assert [run.end_s for run in runs] == pytest.approx([25.0, 25.0], rel=1e-12)


def test_no_more_than_the_most_tenants_share_a_gang() -> None:
    jobs = [request(name, 4, 10) for name in "abc"]
    runs, _ = run_in_turns(jobs, cluster(4), SharingRules(sharing="time", tenants=2))
    # a and b end at 20; c begins there
    assert [(run.start_s, run.end_s, run.waited_for) for run in runs][2] == (20.0, 30.0, "a turn")
