"""Continuous batching by hand: steps of known length, and what clients see of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp, sqrt
from typing import Any

import numpy as np
import pytest

from cosmic.design.serving_engine import Engine
from cosmic.serving.continuous_batching import (
    ClientTimes,
    RankLoad,
    estimate_closed_loop,
    estimate_open_loop,
    group_prompts_at_once,
    price_load_steps,
    rank_capacity,
)

LOAD = RankLoad(clients=8.0, isl=np.array([1000.0]), osl=np.array([100.0]), max_tokens=1003.5)


@dataclass
class Plain:
    """A price of plain numbers: a decode step takes 10 ms, each prompt of 1000 tokens 40 ms on top."""

    engine: Engine
    draft_tokens: int = 0
    held: float = 1000.0
    step_s: float = 0.010
    token_s: float = 40e-6

    def decode_s(self, requests: Any, context: Any) -> Any:
        """Return a decode step."""
        return self.step_s * np.ones(1)

    def mixed_s(self, tokens: Any, requests: Any, context: Any, cached: Any = 0, prompts: Any = 1) -> Any:
        """Return a step with prompts."""
        beside = np.where(np.asarray(requests) > 0, self.step_s, 0.0)
        return beside + self.token_s * np.asarray(tokens) * np.asarray(prompts) * np.ones(1)

    prefill_factor = 1.0

    def chunk_attention(self, tokens: Any, prompts: Any, cached: Any) -> Any:
        """Return attention, which takes no time."""
        return np.zeros(1)

    def held_requests(self, context: Any) -> Any:
        """Return what the cache holds."""
        return self.held * np.ones(1)


def seen(engine: Engine | None = None, **changes: Any) -> ClientTimes:
    values = {name: getattr(LOAD, name) for name in RankLoad.__slots__} | changes
    price = changes.pop("price", None)
    values.pop("price", None)
    given = price or Plain(engine or Engine(taken_steps=1.0))
    return estimate_closed_loop(given, RankLoad(**values))  # type: ignore[arg-type]  # it is asked for no more


# ---- steady


def test_others_prompts_are_met_on_the_way() -> None:
    found = seen()
    per_step = 8 / 100
    together = per_step / (1 - exp(-per_step))
    assert together < 1.05
    added = 0.040  # one prompt fits into a step: no more than one is in it
    assert found.tpot_s == pytest.approx(0.010 + 7 / 8 * per_step * added)
    assert found.step_s == pytest.approx(0.010 + per_step * added)
    assert found.prefill_share == pytest.approx(per_step * added / found.step_s)


def test_one_client_waits_for_nobody() -> None:
    found = seen(clients=1.0, osl=np.array([1e6]))
    assert found.tpot_s == pytest.approx(0.010)
    assert found.mean_ttft_s == pytest.approx(0.040, rel=1e-5)
    fronted = seen(Engine(frontend_s=0.1), clients=1.0, osl=np.array([1e6]))
    assert fronted.mean_ttft_s == pytest.approx(0.140, rel=1e-5)


def test_a_request_waits_for_a_step_before_its_own() -> None:
    per_step = 8 / 100
    share = per_step  # of steps with a prompt
    mean = 0.010 + share * 0.040
    others = 7 / 8 * per_step
    crowded = others**2 / (2 * (1 - others)) * 0.050
    assert seen().mean_ttft_s == pytest.approx(mean + 0.050 + crowded)
    later = seen(Engine(taken_steps=3.0)).mean_ttft_s - seen().mean_ttft_s
    assert later == pytest.approx(2 * mean)
    polled = seen(polled_steps=5.0).mean_ttft_s - seen().mean_ttft_s
    assert polled == pytest.approx(4 * mean)  # and is taken in at once


def test_prompts_that_are_held_back_wait_for_others() -> None:
    plain, held = seen(osl=np.array([1e4])), seen(osl=np.array([1e4]), hold_steps=500.0)
    others = 8 / 1e4 * 500
    steps = 500 * (1 + others / 2) / (1 + others)
    assert held.waits_s[0] == pytest.approx(steps / 1 * plain.waits_s[0], rel=0.01)


def test_prefills_that_go_first_stop_the_decoding() -> None:
    first = seen(Engine(prefill_first=True), osl_cv=0.1, max_tokens=1000.0)
    assert first.tpot_s == pytest.approx(0.010 + 7 / 8 * 8 / 100 * 0.040)
    assert first.own_s == pytest.approx(0.040)


def test_tokens_that_are_accepted_make_steps_count_more() -> None:
    found = seen(tokens_per_step=2.0)
    assert found.tpot_s == pytest.approx((0.010 + 7 / 8 * 8 / (1 + 99 / 2) * 0.040) / 2)


def test_a_cached_prefix_is_not_prefilled() -> None:
    assert seen(prefix_hit=0.75, max_tokens=253.5).own_s == pytest.approx(0.010 + 0.010)


def test_requests_queue_for_the_kv_cache_and_for_seats() -> None:
    for found in (seen(price=Plain(Engine(), held=4.0)), seen(seats=4.0)):
        assert found.running == 4
        assert found.queueing_s + found.waits_s[0] == pytest.approx(found.stay_s * (8 - 4) / 4)
        assert found.stay_s == pytest.approx(99 * found.tpot_s + found.own_s)
    assert seen().queueing_s == 0


def test_a_prompt_longer_than_a_step_takes_several() -> None:
    load = RankLoad(clients=1.0, isl=np.array([1000.0]), osl=np.array([1e6]), max_tokens=300.0)
    steps = price_load_steps(Plain(Engine()), load, np.ones(1))  # type: ignore[arg-type]
    assert steps.chunks == 4
    assert steps.first_s == pytest.approx(0.010)
    whole = price_load_steps(Plain(Engine(chunked_prefill=False)), load, np.ones(1))  # type: ignore[arg-type]
    assert whole.chunks == 1


def test_prompts_share_a_step_that_has_room() -> None:
    load = RankLoad(clients=64.0, isl=np.array([1000.0]), osl=np.array([100.0]), max_tokens=2531.5)
    steps = price_load_steps(Plain(Engine()), load, np.array([64.0]))  # type: ignore[arg-type]
    assert steps.room == pytest.approx(2.5)
    assert steps.with_prompts(2) == pytest.approx(0.090)
    assert steps.with_prompts(9) == pytest.approx(0.110)
    assert group_prompts_at_once(64 / 100, load, steps).group_size == pytest.approx(0.64 / (1 - exp(-0.64)))
    rarely = RankLoad(clients=64.0, isl=1000.0, osl=100.0, poll_steps=10.0)
    assert group_prompts_at_once(64 / 100, rarely, steps).group_size == 2.5
    four = RankLoad(clients=64.0, isl=1000.0, osl=100.0, ranks=4.0)
    several = replace(steps, ranks=4.0)
    assert group_prompts_at_once(64 / 100, four, several).group_size == pytest.approx(
        2.56 / (1 - exp(-2.56))
    )  # on all ranks
    assert group_prompts_at_once(1e-6, four, several).group_size == pytest.approx(1, rel=1e-5)
    blunt = price_load_steps(Plain(Engine(chunked_prefill=False)), load, np.array([64.0]))  # type: ignore[arg-type]
    assert blunt.room == 2


# ---- rounds


def test_a_run_begins_with_a_burst() -> None:
    found = seen(rounds=10)
    first = found.own_s + found.waits_s[0]
    assert first == pytest.approx(0.050 + 7 / 2 * 0.050)  # of eight, half of the others go first
    assert len(found.waits_s) == 10
    assert found.mean_ttft_s == pytest.approx(np.mean([found.own_s + each for each in found.waits_s]))


def test_lengths_that_differ_pull_a_burst_apart() -> None:
    even, drawn = seen(rounds=4, max_tokens=8000.0), seen(rounds=4, max_tokens=8000.0, osl_cv=0.1)
    assert drawn.mean_ttft_s < even.mean_ttft_s
    window = sqrt(8**2 / 8**2 + 12 * 1 * (0.1 * 100) ** 2)
    per_step = 8 / window
    together = per_step / (1 - exp(-per_step))
    mean = 0.010 + per_step / together * 0.040 * together
    second = drawn.own_s + drawn.waits_s[1]
    assert second == pytest.approx(mean + 0.010 + 0.040 * together)


def test_prefills_that_go_first_keep_equal_answers_in_step() -> None:
    first = Engine(prefill_first=True, taken_steps=0.0)
    burst = [0.040 + 7 / 2 * 0.040] * 3
    together = seen(first, rounds=3, max_tokens=1000.0)
    assert [together.own_s + each for each in together.waits_s] == pytest.approx(burst)
    apart = seen(first, rounds=3, in_step=False, max_tokens=1000.0)
    assert apart.own_s + apart.waits_s[2] < burst[2]
    assert together.tpot_s == pytest.approx(0.010 + 0.5 * 7 / 8 * 8 / 100 * 0.040)  # only prompts behind are met


def test_a_front_end_makes_a_burst_longer() -> None:
    slow = seen(Engine(burst_prompts=0.25), rounds=2, osl_cv=1e-6, max_tokens=8000.0)
    per_step = 8 / (8 / 0.25)
    assert slow.own_s + slow.waits_s[1] == pytest.approx(
        (0.010 + per_step * 0.040) + 0.010 + 0.040 * per_step / (1 - exp(-per_step)), rel=1e-3
    )


# ---- open loops


def rated(rate: float, **changes: Any) -> ClientTimes:
    given = Plain(Engine(), held=changes.pop("held", 16.0))
    load = RankLoad(isl=np.array([1000.0]), osl=np.array([100.0]), max_tokens=1003.5)
    return estimate_open_loop(given, load, rate, **changes)  # type: ignore[arg-type]


def test_as_many_run_as_come_in_the_time_that_one_stays() -> None:
    """Little's law."""
    for rate in (0.01, 2.0, 5.0):
        found = rated(rate)
        assert found.running == pytest.approx(rate * found.stay_s, rel=0.05)


def test_requests_that_come_seldom_wait_for_nobody() -> None:
    found = rated(1e-6)
    assert found.mean_ttft_s == pytest.approx(0.040 + Engine().front_s(0), rel=1e-3)


def test_a_queue_grows_up_to_the_capacity_and_no_further() -> None:
    load = RankLoad(isl=np.array([1000.0]), osl=np.array([100.0]), max_tokens=1000.0)
    most = float(rank_capacity(Plain(Engine(), held=16.0), load)[0])  # type: ignore[arg-type]
    waits = [float(rated(share * most).queueing_s[0]) for share in (0.5, 0.9, 0.99)]
    assert waits == sorted(waits)
    used = 0.9
    assert waits[1] == pytest.approx(
        float(rated(0.9 * most).stay_s[0]) / 16 * used ** (sqrt(2 * 17) - 1) / (1 - used) / 2, rel=0.02
    )
    assert np.isnan(rated(1.01 * most).queueing_s)
    even = rated(0.9 * most, arrival_cv=0.0)
    assert even.queueing_s == 0


@pytest.mark.parametrize("most", [1000.0, 1010.0])
def test_prompts_that_come_at_random_queue_as_in_m_d_1(most: float) -> None:
    """Whether a prompt of 40 ms is cut in two or not, the next one waits for all of it."""
    price = Plain(Engine(taken_steps=0.0), step_s=1e-6)
    load = RankLoad(isl=LOAD.isl, osl=np.array([2.0]), max_tokens=most, seats=16.0)
    for rate, wait in ((2.0, 0.00174), (10.0, 0.01333), (20.0, 0.080)):  # ρ / (2 (1 - ρ)) of 40 ms; ρ = 0.08, 0.4, 0.8
        found = estimate_open_loop(price, load, rate)  # type: ignore[arg-type]  # it is asked for no more
        assert found.waits_s[0] == pytest.approx(wait, rel=0.04)
