"""Two pools: what clients see, against values worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cosmic.design.serving_engine import Engine
from cosmic.search.mapping.design_completion import load_design
from cosmic.serving.disaggregated_serving import (
    DecodeStepTable,
    Handover,
    PoolPair,
    PrefillTimes,
    handover_of,
    price_only_prefilling,
    solve_pools_closed_loop,
    solve_pools_open_loop,
    wait_for_prefill,
)
from cosmic.serving.step_price import StepPrice

PREFILL = PrefillTimes(step_s=0.2, prompt_s=0.2, alone_s=0.1)
OSL = 100


def pools(step_s: float = 0.01, **others: Any) -> PoolPair:
    return PoolPair(
        **{"prefill": PREFILL, "handover_s": 0.05, "step_s": lambda n: step_s + 0 * np.asarray(n), **others}
    )


def test_one_client_waits_for_nobody() -> None:
    seen = solve_pools_closed_loop(pools(), 1, OSL, rounds=1)
    assert float(seen.ttft_s) == pytest.approx(0.1 + 0.05 + 0.01)  # it finds no step of others
    assert float(seen.tpot_s) == pytest.approx(0.01)
    assert float(seen.rate) == pytest.approx(1 / (0.16 + 1.0))


def test_twice_the_pools_and_clients_give_twice_the_tokens() -> None:
    one = solve_pools_closed_loop(pools(slots=64.0), 4, OSL)
    two = solve_pools_closed_loop(pools(prefill=replace(PREFILL, instances=2), slots=128.0), 8, OSL)
    assert float(two.rate) == pytest.approx(2 * float(one.rate), rel=0.05)
    assert float(two.tpot_s) == pytest.approx(float(one.tpot_s))


def test_a_wait_is_that_of_a_queue_with_constant_service() -> None:
    assert float(wait_for_prefill(4.0, 0.2, np.inf)) == pytest.approx(4 * 0.2**2 / (2 * (1 - 0.8)))
    assert float(wait_for_prefill(5.0, 0.2, np.inf)) == np.inf
    assert float(wait_for_prefill(4.0, 0.2, 11)) == pytest.approx(4 * 0.04 * (10 / 11 - 0.5) / (1 - 0.8 * 10 / 11))


def test_requests_pile_up_where_prefill_is_the_bottleneck() -> None:
    """A prompt each 0.2 s leaves the pool, a decode takes 1 s: about five decode, the others of 100 wait."""
    seen = solve_pools_closed_loop(pools(), 100, OSL)
    assert float(seen.decoding) == pytest.approx(5.0, rel=1e-3)
    assert float(seen.ttft_s) == pytest.approx(100 * 0.2 - 1.0, rel=1e-3)
    assert float(seen.prefill_use) == pytest.approx(1.0, rel=0.02)


def test_requests_wait_for_slots() -> None:
    """16 slots for 24 clients: a cycle takes 24/16 of a decode of 1 s, of which 1 s is the decode."""
    fast = replace(PREFILL, step_s=1e-4, prompt_s=1e-4, alone_s=1e-4)
    seen = solve_pools_closed_loop(pools(prefill=fast, handover_s=0.0, slots=16.0), 24, OSL)
    assert float(seen.decoding) == pytest.approx(16.0)
    assert float(seen.ttft_s) == pytest.approx(0.5, rel=1e-3)
    first = solve_pools_closed_loop(pools(prefill=fast, handover_s=0.0, slots=16.0), 24, OSL, rounds=1)
    assert float(first.ttft_s) == pytest.approx(8 / 24 * 1.0 + 1e-4 + 0.015, rel=1e-3)  # a third waits for a decode


def test_all_clients_send_their_first_request_at_once() -> None:
    """Of eight prompts of 0.2 s each, half of the others come first."""
    seen = solve_pools_closed_loop(pools(step_s=1.0), 8, OSL, rounds=1)
    assert float(seen.ttft_s) == pytest.approx(0.2 + 3.5 * 0.2 + 0.05 + 1.5 * 1.0)


def test_ranks_that_step_together_wait_for_the_fullest() -> None:
    """At one prompt a rank and step on the average, the fullest of eight has 1 + 1.36 of them."""
    one = PrefillTimes(step_s=0.5, prompt_s=0.0, alone_s=0.5, room=8.0, ranks=8.0)
    assert float(one.taken_s(16.0)) == pytest.approx(0.5 * 1.5, rel=1e-3)  # a step takes the same, however full
    growing = replace(one, prompt_s=0.05)
    step = (float(growing.taken_s(16.0))) / 1.5
    found = 2.0 * step
    assert step == pytest.approx(0.5 + 0.05 * (found + 1.358 * found**0.5 - 1), rel=1e-2)


def test_a_full_step_spaces_prompts() -> None:
    pool = PrefillTimes(step_s=0.4, prompt_s=0.1, alone_s=0.3, room=4.0, instances=2.0, ranks=8.0)
    assert pool.spacing_s == pytest.approx((0.4 + 3 * 0.1) / (4 * 2 * 8))


def test_drafted_tokens_make_a_decode_shorter() -> None:
    plain = solve_pools_closed_loop(pools(), 4, OSL)
    drafted = solve_pools_closed_loop(pools(), 4, OSL, 2.0)
    assert float(drafted.tpot_s) == pytest.approx(float(plain.tpot_s) / 2)


def test_arrays_are_rows() -> None:
    both = solve_pools_closed_loop(pools(), np.array([1.0, 8.0]), OSL)
    each = [solve_pools_closed_loop(pools(), count, OSL) for count in (1, 8)]
    assert both.ttft_s == pytest.approx([float(one.ttft_s) for one in each])


@pytest.mark.parametrize("engine", ["trtllm", "vllm", "sglang"])
def test_the_catalog_knows_the_handover_of_each_engine(engine: str) -> None:
    found = handover_of(engine)
    assert found.handover_s > 0
    assert 0 < found.factor < 2


def test_an_open_loop_waits_as_a_closed_one_at_its_rate() -> None:
    """With many clients, what a closed loop gives out is a rate at which an open loop waits as long."""
    given = pools(prefill=replace(PREFILL, instances=8))
    closed = solve_pools_closed_loop(given, 30.0, OSL)
    opened = solve_pools_open_loop(given, closed.rate, OSL)
    assert float(opened.tpot_s) == pytest.approx(float(closed.tpot_s))
    assert float(opened.decoding) == pytest.approx(float(closed.decoding), rel=1e-6)
    assert float(opened.ttft_s) == pytest.approx(float(closed.ttft_s), rel=0.05)


def test_a_rate_above_either_pool_cannot_be_served() -> None:
    assert np.isnan(float(solve_pools_open_loop(pools(), 5.1, OSL).ttft_s))  # prefill: a prompt each 0.2 s
    fast = replace(PREFILL, step_s=1e-3, prompt_s=1e-3, alone_s=1e-3)
    slots = pools(prefill=fast, slots=16.0)
    assert np.isnan(float(solve_pools_open_loop(slots, 16.1, OSL).ttft_s))  # decode: 16 slots of 1 s each
    assert float(solve_pools_open_loop(slots, 15.0, OSL).ttft_s) < 0.5


def test_a_table_is_exact_where_it_is_priced_and_linear_between() -> None:
    table = DecodeStepTable.tabulate(lambda n: 1 + 2 * np.asarray(n), np.array([1.0, 2.0]), np.array([16.0, 64.0]))
    assert table(np.array([5.3, 33.0])) == pytest.approx([11.6, 67.0])
    assert table(np.array([0.1, 99.0])) == pytest.approx([3.0, 129.0])


def test_a_pool_that_only_prefills_paces_the_kernels_of_experts_alone() -> None:
    handover = Handover(narrow_s=0.1, wide_s=0.3, factor=0.5, wide_fp8_factor=2.0)
    base = PrefillTimes(step_s=0.4, prompt_s=0.2, alone_s=0.3)
    dense, sparse = base.run_by(handover), replace(base, experts=True).run_by(handover)
    assert (float(dense.step_s), float(dense.prompt_s), float(dense.alone_s)) == pytest.approx((0.5, 0.2, 0.4))
    assert (float(sparse.step_s), float(sparse.prompt_s), float(sparse.alone_s)) == pytest.approx((0.3, 0.1, 0.25))
    wide = replace(base, experts=True, ranks=8.0)
    assert float(wide.run_by(handover).step_s) == pytest.approx(0.5 * 0.4 + 0.3)
    assert float(replace(wide, eight_bits=True).run_by(handover).step_s) == pytest.approx(2 * 0.4 + 0.3)


@pytest.mark.parametrize(("model", "same"), [("llama3-8b", True), ("mixtral-8x7b", False)])
def test_the_price_of_a_pool_that_only_prefills_is_the_engines_without_experts(model: str, *, same: bool) -> None:
    design = load_design(f"{model}@dgx-h200:8", {"task": "decode", "tp": 8, "global_batch": 8, "micro_batch": 8})
    price = StepPrice.for_design(design, replace(Engine(), prefill_factor=1.5))
    found = price_only_prefilling(price)
    assert (found is price) == same
    if not same:
        assert float(np.ravel(found.prefill_s(8192))[0]) < float(np.ravel(price.prefill_s(8192))[0])
