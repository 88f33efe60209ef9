"""The simulation against a slow one, and what must hold of both."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from cosmic.design.serving_layer import Load
from cosmic.serving.engine_scheduling import StepLimits
from cosmic.serving.event_loop import EventLoop, PoolModel
from cosmic.serving.serving_requests import Requests, draw_requests
from tests.serving.reference import serve


class Plain:
    """Steps whose time is a formula, with kinks in the context as a table has them."""

    def decode(self, requests: int, held: float) -> tuple[float, float, float]:
        """Return seconds, slope and how long it holds."""
        context = held / requests
        piece = int(context // 128)
        slope = (1 + piece % 3) * 1e-6 * requests
        start = sum((1 + each % 3) * 1e-6 * requests * 128 for each in range(piece))
        return 0.008 + 2e-5 * requests + start + slope * (context - 128 * piece), slope, 128 * (piece + 1) - context

    def mixed(
        self, tokens: int, chunks: list[tuple[int, int]], requests: int, held: float, mean: int | None = None
    ) -> float:
        """Return seconds."""
        attended = sum(chunk * (past + chunk / 2) for past, chunk in chunks)
        beside = self.decode(requests, held)[0] if requests else 0.006
        return beside + 5e-6 * tokens + 5e-6 * (tokens + requests if mean is None else mean) + 1e-9 * attended


POLICIES: dict[str, dict[str, Any]] = {
    "mixed": {},
    "small steps": {"tokens": 300},
    "prefill first": {"prefill_first": True, "reserve": 0.125},
    "whole prompts": {"chunked": False, "reserve": 1.0},
    "drafts": {"tokens_per_step": 1.75, "draft_tokens": 2},
}


def limits(**changes: Any) -> StepLimits:
    return StepLimits(**{"requests": 16, "tokens": 1000, "kv_tokens": 1700.0, "page_tokens": 4, **changes})


def load(seed: int) -> Load:
    rng = np.random.default_rng(seed)
    usual: dict[str, Any] = {
        "isl": int(rng.integers(50, 300)),
        "osl": int(rng.integers(1, 80)),
        "isl_cv": 0.4,
        "osl_cv": 0.6,
    }
    if seed % 2:
        return Load(**usual, concurrency=int(rng.integers(1, 40)), prefix_hit=0.25 * (seed % 3))
    return Load(**usual, rate=float(rng.uniform(5, 60)), arrival_cv=float(seed % 4))


def run(requests: Requests, *pools: PoolModel, front_s: float = 0.0, **options: Any) -> EventLoop:
    loop = EventLoop(
        requests, list(pools), options.get("router", "least_loaded"), lambda _: front_s, lambda _: 2e-3, True
    )
    loop.run(0, steady=False)
    return loop


def usable(requests: Requests) -> Requests:
    """Return the requests with lengths that the KV cache holds, and an even front end."""
    return replace(
        requests,
        haste=None,
        input_tokens=np.minimum(requests.input_tokens, 1000),
        cached_tokens=np.minimum(requests.cached_tokens, np.minimum(requests.input_tokens, 1000) - 1),
        output_tokens=np.minimum(requests.output_tokens, 300),
    )


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(6))
def test_skipping_ahead_is_going_step_by_step(policy: str, seed: int) -> None:
    requests = usable(draw_requests(load(seed), 60, seed=seed))
    pool = PoolModel(instances=1 + seed % 3, ranks=1 + seed % 2, limits=limits(**POLICIES[policy]), steps=Plain())
    front_s = 0.003 * (seed % 2)
    found, slow = run(requests, pool, front_s=front_s).book, serve(requests, pool, front_s)
    assert np.array_equal(found.preempted, slow["preempted"])
    for name in ("first", "done"):
        np.testing.assert_allclose(getattr(found, name), slow[name], rtol=1e-9)


def test_random_loads_preempt_where_the_engine_may() -> None:
    preempted = {}
    for policy, changes in POLICIES.items():
        pool = PoolModel(instances=1, ranks=1, limits=limits(**changes), steps=Plain())
        requests = usable(draw_requests(load(2), 60, seed=2))
        preempted[policy] = sum(run(requests, pool).book.preempted)
    assert preempted["whole prompts"] == 0
    assert preempted["mixed"] > 0
    assert preempted["prefill first"] > 0


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("policy", POLICIES)
def test_every_request_completes_once_and_the_cache_holds_all(policy: str, seed: int) -> None:
    requests = usable(draw_requests(load(seed), 200, seed=seed))
    pool = PoolModel(instances=2, ranks=2, limits=limits(**POLICIES[policy]), steps=Plain())
    pools = [replace(pool, limits=replace(pool.limits, reserve=0.0)), pool] if seed % 2 else [pool]
    loop = run(requests, *pools)
    first, done, sent = (np.array(each) for each in (loop.book.first, loop.book.done, loop.sent))
    assert loop.served == requests.count
    assert loop.flying == 0
    assert np.isfinite(done).all()
    assert (sent < first).all()
    assert (first <= done).all()
    for state in loop.pools:
        assert not any(state.loads)
        assert state.tally.most_held <= state.model.limits.kv_tokens
        for instance in state.instances:
            for rank in instance.ranks:
                assert (rank.running, rank.decoding, rank.cached_tokens, len(rank.waiting)) == (0, 0, 0, 0)


def test_tokens_of_all_steps_are_those_of_the_requests() -> None:
    requests = usable(draw_requests(load(1), 100, seed=1))
    loop = run(requests, PoolModel(instances=2, ranks=1, limits=limits(kv_tokens=1e6), steps=Plain()))
    spans = [each for instance in loop.pools[0].instances for each in instance.spans or []]
    assert sum(each.tokens for each in spans) == (requests.input_tokens - requests.cached_tokens).sum()
    assert sum(each.decodes * each.steps for each in spans) == (requests.output_tokens - 1).sum()
    assert all(before.end_s <= after.start_s for before, after in pairwise(spans) if after.start_s)


def test_two_replicas_with_twice_the_clients_are_two_of_one() -> None:
    one = PoolModel(instances=1, ranks=1, limits=limits(kv_tokens=1e6), steps=Plain())
    single, double = (
        run(
            usable(draw_requests(Load(isl=200, osl=50, concurrency=8 * count), 400 * count)),
            replace(one, instances=count),
        )
        for count in (1, 2)
    )
    assert max(double.book.done) == max(single.book.done)
    assert double.book.done[::2] == double.book.done[1::2] == single.book.done


def test_a_request_alone_has_its_first_token_after_its_prefill() -> None:
    requests = usable(draw_requests(Load(isl=777, osl=20, concurrency=1, rounds=3)))
    pool = PoolModel(instances=1, ranks=1, limits=limits(), steps=Plain())
    loop = run(requests, pool, front_s=0.25)
    ttft = np.array(loop.book.first) - np.array(loop.sent)
    assert ttft == pytest.approx(0.25 + Plain().mixed(777, [(0, 777)], 0, 0))


def test_a_prefilled_request_moves_to_the_other_pool() -> None:
    requests = draw_requests(Load(isl=500, osl=20, concurrency=1, rounds=2))
    pool = PoolModel(instances=1, ranks=1, limits=limits(), steps=Plain())
    loop = run(requests, pool, pool)
    ttft = np.array(loop.book.first) - np.array(loop.sent)
    assert ttft == pytest.approx(Plain().mixed(500, [(0, 500)], 0, 0) + 2e-3 + Plain().decode(1, 500)[0])
    took = sum(Plain().decode(1, 501 + step)[0] for step in range(19))
    assert np.array(loop.book.done) - np.array(loop.book.first) == pytest.approx(took)


def test_the_same_seed_gives_the_same_bits() -> None:
    pool = PoolModel(instances=3, ranks=1, limits=limits(), steps=Plain())
    first, second = (run(usable(draw_requests(load(2), 300, seed=7)), pool).book for _ in range(2))
    assert first.done == second.done
    assert run(usable(draw_requests(load(2), 300, seed=8)), pool).book.done != first.done


def test_an_engine_that_decides_early_lets_requests_wait() -> None:
    requests = usable(draw_requests(Load(isl=200, osl=100, rate=2, arrival_cv=0), 40))
    usual = PoolModel(instances=1, ranks=1, limits=limits(kv_tokens=1e6), steps=Plain())
    soon, late = (run(requests, replace(usual, late_steps=steps)) for steps in (0.0, 1.0))
    waits = [np.array(each.book.admitted) - np.array(each.sent) for each in (soon, late)]
    assert waits[1][0] == waits[0][0] == 0
    assert 0.005 < np.mean(waits[1][1:] - waits[0][1:]) < 0.02
    assert late.served == 40
