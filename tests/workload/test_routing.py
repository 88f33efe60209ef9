"""Loads of ranks under skewed routing, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cosmic.base.errors import SpecError
from cosmic.design.model_layer import Experts
from cosmic.evaluation import evaluate
from cosmic.search.mapping.design_completion import load_design
from cosmic.simulate.metrics import Infeasible, Metrics
from cosmic.workload.expert_loads import expert_loads
from cosmic.workload.expert_routing import _packed_load, fullest_rank, popularity, routing_key
from cosmic.workload.mapping_rules import invalid_reasons

FOUR = Experts(count=4, active=1, ffn=1)
PLAIN, PACKED, PADDED = routing_key(FOUR), routing_key(FOUR, packs=True), routing_key(FOUR, pads=True)


def test_shares_of_experts_follow_zipf_and_no_token_picks_one_twice() -> None:
    assert popularity(4, 1, 1.0) == pytest.approx([12 / 25, 6 / 25, 4 / 25, 3 / 25])
    assert popularity(3, 2, 2.0) == pytest.approx([1.0, 9 / 13, 4 / 13])  # 2 times 36/49 would be above 1
    assert popularity(8, 3, 30.0).sum() == pytest.approx(3)


def test_balanced_routing_loads_all_ranks_alike() -> None:
    assert fullest_rank(PLAIN, 2, 0.0, 0.0, 0) == (1.0, 0.0)
    assert fullest_rank(PACKED, 4, 0.0, 0.0, 4) == (1.0, 0.0)


def test_a_rank_for_each_expert_is_as_full_as_the_most_popular() -> None:
    assert list(fullest_rank(PLAIN, 4, 1.0, 0.0, 0)) == pytest.approx([4 * 12 / 25, 0.0])


def test_two_ranks_by_number_have_the_mean_over_the_three_pairings() -> None:
    means = [(12 + other) / 25 for other in (6, 4, 3)]  # the fullest rank has the first expert, and one of three others
    assert fullest_rank(PLAIN, 2, 1.0, 0.0, 0)[0] == pytest.approx(2 * np.mean(means), rel=0.02)


def test_packed_ranks_pair_the_heaviest_with_the_lightest() -> None:
    assert fullest_rank(PACKED, 2, 1.0, 0.0, 0)[0] == pytest.approx(2 * 15 / 25)  # 12 + 3 beside 6 + 4


def test_two_copies_of_popular_experts_even_ranks_out() -> None:
    # 12, 6, 4, 3 of 25 become 6, 6, 3, 3, 4, 3 on two ranks of three: 6 + 4 + 3 beside 6 + 3 + 3
    assert fullest_rank(PACKED, 2, 1.0, 0.0, 2)[0] == pytest.approx(2 * 13 / 25)


def test_capacity_drops_what_is_beyond() -> None:
    assert list(fullest_rank(PLAIN, 4, 1.0, 1.0, 0)) == pytest.approx([1.0, 12 / 25 - 1 / 4])
    assert fullest_rank(PLAIN, 4, 1.0, 100.0, 0) == fullest_rank(PLAIN, 4, 1.0, 0.0, 0)
    assert fullest_rank(PLAIN, 1, 0.7, 100.0, 0) == (1.0, 0.0)  # to the last bit: tiles of a GEMM are whole
    assert fullest_rank(PADDED, 4, 1.0, 1.5, 0)[0] == 1.5
    assert list(fullest_rank(PLAIN, 2, 0.0, 0.5, 0)) == pytest.approx([0.5, 0.5])


def design(**changes: Any) -> Any:
    mesh = {"tp": 1, "cp": 1, "pp": 1, "dp": 8, "ep": 8, "global_batch": 8, "micro_batch": 1, "sequence": 1024}
    return load_design("mixtral-8x7b@dgx-h200:8", {"task": "prefill", **mesh, **changes}, plain=True)


def seconds(**changes: Any) -> float:
    found = evaluate(design(**changes))
    assert isinstance(found, Metrics)
    return found.step_s


def test_more_skew_is_never_faster_and_copies_never_slower() -> None:
    skewed = {"moe_routing_skew": 1.0}
    assert seconds() < seconds(moe_routing_skew=0.5) < seconds(**skewed)
    packed = seconds(**skewed, enable_eplb=True, num_redundant_experts=8)
    assert packed < seconds(**skewed, enable_eplb=True) <= seconds(**skewed)


def test_both_engines_see_the_fullest_rank() -> None:
    point = design(moe_routing_skew=1.0, moe_expert_capacity_factor=1.5)
    closed, events = evaluate(point), evaluate(point, engine="event")
    assert isinstance(closed, Metrics)
    assert isinstance(events, Metrics)
    assert events.step_s == pytest.approx(closed.step_s, rel=0.02)


def test_a_capacity_without_end_changes_no_bit() -> None:
    skewed = {"moe_routing_skew": 0.7}
    assert seconds(**skewed, moe_expert_capacity_factor=1e6) == seconds(**skewed)


def test_copies_of_experts_take_memory() -> None:
    plain, more = (evaluate(design(enable_eplb=True, num_redundant_experts=each)) for each in (0, 8))
    assert isinstance(plain, Metrics)
    assert isinstance(more, Metrics)
    one = 32 * 3 * 4096 * 14336 * 2  # an expert of every layer, in 16 bits
    assert more.memory["weights"] - plain.memory["weights"] == pytest.approx(one)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"enable_eplb": True, "task": "training"}, "leave it out"),
        ({"enable_eplb": True, "num_redundant_experts": 3}, "does not divide the 8 experts and 3 redundant ones"),
        ({"enable_eplb": True, "num_redundant_experts": 1, "ep": 1}, "one rank has all experts"),
        ({"moe_pad_expert_input_to_capacity": True}, "without moe_expert_capacity_factor"),
        ({"num_redundant_experts": 8}, "without enable_eplb"),
    ],
)
def test_what_does_not_go_together_is_said(changes: dict[str, Any], words: str) -> None:
    assert any(words in reason for reason in invalid_reasons(design(**changes)))


def test_dense_models_have_no_routing() -> None:
    point = load_design("llama3-8b@dgx-h100:8", {"tp": 8}, plain=True).changed({"workload.moe_routing_skew": 1.0})
    found = evaluate(point)
    assert isinstance(found, Infeasible)
    assert "without experts" in found.reasons[0]


@pytest.mark.parametrize(
    "changes",
    [
        {"moe_routing_skew": -1.0},
        {"moe_expert_capacity_factor": 0.0},
        {"num_redundant_experts": -1},
    ],
)
def test_bad_numbers_are_one_sentence(changes: dict[str, Any]) -> None:
    with pytest.raises(SpecError):
        design(**changes)


def test_loads_of_a_million_experts_are_counted_and_more_are_refused() -> None:
    # Of one of 2^20 experts a token, in even parts of 4 ranks: the fullest has the most popular ones, and little else
    load, dropped = fullest_rank(routing_key(Experts(count=2**20, active=1, ffn=1)), 4, 1.0, 0.0, 0)
    assert 1 < load < 2
    assert dropped == 0
    with pytest.raises(SpecError, match="at most 1,048,576 experts"):
        Experts(count=2**20 + 1, active=1, ffn=1)


def test_copies_that_make_experts_fit_leave_ranks_uneven() -> None:
    """3 experts and a copy on 2 ranks, shares 6, 3, 2 of 11: 3 + 3 on one rank, 3 + 2 on the other, 5.5 if even."""
    load, _ = fullest_rank(routing_key(Experts(count=3, active=1, ffn=1), packs=True), 2, 1.0, 0.0, 1)
    assert load == pytest.approx(12 / 11)


def test_more_copies_are_never_slower_where_packing_them_would_be() -> None:
    key = routing_key(Experts(count=64, active=2, ffn=1), packs=True)
    loads = [fullest_rank(key, 32, 0.1, 0.0, copies)[0] for copies in (0, 32, 64, 128)]
    assert loads == sorted(loads, reverse=True)
    assert _packed_load(popularity(64, 2, 0.1), 32, 64) > _packed_load(
        popularity(64, 2, 0.1), 32, 32
    )  # or nothing would be tested


@pytest.mark.parametrize("asked", [{"skews": [17.0]}, {"skews": [float("inf")]}, {"copies": [80_000]}])
def test_what_no_workload_can_have_is_refused(asked: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match="must be"):
        expert_loads(load_design("mixtral-8x7b@dgx-h100:8", {"ep": 8}), **asked)
