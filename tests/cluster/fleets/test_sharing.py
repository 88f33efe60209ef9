"""Sharing in time: shares that are measured turn by turn, Pathways' utilisation, memory."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosmic.cluster.fleet_jobs import SharingRules
from cosmic.cluster.fleet_sharing import Tenant, device_shares, run_in_turns, simulate_turns, turn_steps
from tests.cluster.fleets.made import cluster, request

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
