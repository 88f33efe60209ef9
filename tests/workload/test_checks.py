"""Designs that cannot run say why, and what to change."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cosmic.base.errors import SpecError
from cosmic.design.design_batch import Batch, batch_of, batch_of_changes
from cosmic.search.mapping.design_completion import load_design
from cosmic.search.space.space_files import load_space
from cosmic.workload.mapping_rules import RULES, evaluate_rules, invalid_reasons, rules_met_by_design

PIPELINE = {"dp": 1, "tp": 1, "cp": 1, "pp": 8}


def reasons(design: str, **workload: Any) -> tuple[str, ...]:
    changes = {key if "." in key else f"workload.{key}": value for key, value in workload.items()}
    return invalid_reasons(load_design(design, changes, plain=True))


@pytest.mark.parametrize(
    ("design", "workload", "sentence"),
    [
        (
            "gpt3-175b@dgx-h100:1024",
            {"tp": 64, "pp": 1, "cp": 1},
            "tp 64 does not divide the 96 heads: choose a divisor, or set uneven_tp to pad",
        ),
        (
            "gpt3-175b@dgx-h100:8",
            {"ep": 2, "dp": 8, "tp": 1, "pp": 1},
            "ep 2 without experts: the model has none, set ep to 1",
        ),
        (
            "mixtral-8x7b@dgx-h100:16",
            {"ep": 16, "dp": 16, "tp": 1, "pp": 1},
            "ep 16 does not divide the 8 experts: choose a divisor",
        ),
        (
            "mixtral-8x7b@dgx-h100:8",
            {"ep": 8, "dp": 4, "tp": 1, "pp": 2},
            "ep 8 does not divide tp × cp × dp = 4: choose a divisor",
        ),
        (
            "mixtral-8x7b@dgx-h100:8",
            {"etp": 2, "ep": 8, "dp": 4, "tp": 2, "pp": 1},
            "etp 2 × ep 8 does not divide tp × cp × dp = 8: choose a divisor",
        ),
        (
            "mixtral-8x7b@dgx-h100:8",
            {"etp": 4, "tp": 2, "dp": 4, "pp": 1},
            "etp 4 does not divide tp 2: choose a divisor",
        ),
        (
            "mixtral-8x7b@dgx-h100:8",
            {"tp": 8, "dp": 1, "pp": 1, "cp": 1, "ep": 1, "model.experts.ffn": 14340},
            "etp 8, which is tp where ep leaves it, does not divide the experts' width 14340: "
            "choose a divisor as etp, or set uneven_tp to pad",
        ),
        (
            "mixtral-8x7b@dgx-h100:8",
            {"etp": 8, "tp": 8, "dp": 1, "pp": 1, "model.experts.ffn": 14340},
            "etp 8 does not divide the experts' width 14340: choose a divisor as etp, or set uneven_tp to pad",
        ),
        (
            "gpt3-175b@dgx-h100:8",
            {"etp": 2, "dp": 4, "tp": 2, "pp": 1},
            "etp 2 without experts: the model has none, leave etp out",
        ),
        (
            "mixtral-8x7b@dgx-h100:8",
            {"etp": 1, "ep": 2, "tp": 8, "dp": 1, "pp": 1, "sequence_parallel": False},
            "etp 1 × ep 2 does not divide by tp 8, so that ranks would do the same work: set sequence_parallel, "
            "or leave etp out",
        ),
        (
            "mixtral-8x7b@dgx-h100:8",
            {"etp": 1, "ep": 2, "tp": 8, "dp": 1, "pp": 1, "task": "decode"},
            "etp 1 × ep 2 does not divide by tp 8, so that ranks would do the same work: leave etp out",
        ),
        (
            "gpt3-125m@dgx-h100:64",
            {"pp": 16, "tp": 1, "dp": 4},
            "pp 16 × virtual_stages 1 is more than the 12 layers there are: lower it",
        ),
        (
            "gpt3-175b@dgx-h100:512",
            {"global_batch": 100, "dp": 8, "tp": 8, "pp": 8},
            "global_batch 100 does not divide by dp 8 × micro_batch 1: choose a multiple of 8",
        ),
        (
            "gpt3-175b@dgx-h100:8",
            {"dp": 4, "tp": 8, "pp": 1},
            "dp 4 × tp 8 × cp 1 × pp 1 = 32 ranks on 8 NPUs: make them equal",
        ),
        (
            "llama3-8b@dgx-h100:8",
            {"cp": 8, "tp": 1, "dp": 1, "pp": 1, "sequence": 1001},
            "sequence 1001 does not divide by cp 8 × tp 1: lower them, or choose another sequence",
        ),
        (
            "gpt3-175b@dgx-h100:512",
            {"dp": 8, "tp": 8, "pp": 8, "schedule": "1f1b", "virtual_stages": 2},
            "virtual_stages = 2: only the interleaved schedule divides a stage; set it to 1",
        ),
        (
            "llama3-8b@tpu-v6e:8",
            {"offload": ["optimizer"]},
            "offload optimizer without outer tiers: give memory.tiers, or empty offload",
        ),
        ("dlrm-criteo@dgx-h100:8", {"dp": 4, "tp": 2}, "a recommender is spread over dp alone: set tp, cp and pp to 1"),
    ],
)
def test_what_does_not_fit_says_what_to_change(design: str, workload: dict[str, Any], sentence: str) -> None:
    assert sentence in reasons(design, **workload)


def test_designs_of_the_catalog_fit() -> None:
    for design in (
        "gpt3-175b@cosmic-1024",
        "llama3-70b@dgx-h100:512",
        "deepseek-v3@dgx-h100:512",
        "dlrm-criteo@dgx-a100:64",
    ):
        assert reasons(design) == ()


def test_a_batch_is_judged_as_its_points_are() -> None:
    space = load_space("cosmic-1024-full-stack")
    rows = space.sample(100, np.random.default_rng(1))
    met = rules_met_by_design(Batch(space.base, space.columns(rows)))
    together = np.logical_and.reduce(list(met.values()))
    assert set(met) == set(RULES)
    assert 0 < together.sum() < 100
    for place, row in enumerate(rows):
        assert together[place] == (not invalid_reasons(space.point(row)))


def test_a_step_is_not_trained_in_a_format_that_the_accelerator_lacks() -> None:
    told = {"workload.precision": "fp8"}
    assert invalid_reasons(load_design("llama3-8b@dgx-a100:8", told, plain=True)) == (
        "a100-sxm-80gb multiplies no fp8: choose bf16",
    )
    assert invalid_reasons(load_design("llama3-8b@dgx-h100:8", told, plain=True)) == ()
    assert (
        invalid_reasons(load_design("llama3-8b@dgx-a100:8", {**told, "workload.task": "decode"}, plain=True)) == ()
    )  # weights are widened
    base = load_design("llama3-8b@dgx-h100:8", told, plain=True)
    rates = np.array([None, 1e15], dtype=object)
    assert np.asarray(evaluate_rules(Batch(base, {"compute.fp8": rates}))["precision"]).tolist() == [False, True]


@pytest.mark.parametrize(
    "workload",
    [
        {"ep": 8, "tp": 1, "cp": 8, "dp": 1},
        {"ep": 8, "tp": 8, "dp": 1},
        {"ep": 8, "tp": 8, "dp": 1, "task": "decode"},
        {"ep": 2, "etp": 1, "tp": 8, "dp": 1},  # replicated, as asked
        {"ep": 2, "etp": 4, "tp": 4, "dp": 2, "task": "prefill"},
        {"etp": 1, "tp": 1, "dp": 8},
    ],
)
def test_experts_fold_over_tp_cp_and_dp(workload: dict[str, Any]) -> None:
    assert reasons("mixtral-8x7b@dgx-h100:8", **{"cp": 1, "pp": 1, **workload}) == ()


def test_a_dense_model_may_say_that_experts_are_whole() -> None:
    assert reasons("gpt3-13b@dgx-h100:8", etp=1, tp=2, dp=4, pp=1, cp=1) == ()


def test_the_rules_of_experts_hold_for_each_design_of_a_batch() -> None:
    point = load_design("mixtral-8x7b@dgx-h100:8", {"tp": 4, "dp": 2, "pp": 1, "cp": 1}, plain=True)
    changes = [{"workload.etp": etp, "workload.ep": ep} for etp, ep in ((None, 2), (2, 4), (2, 8), (3, 1), (1, 8))]
    met = rules_met_by_design(batch_of_changes(point, changes))
    assert met["expert_shards"].tolist() == [True, True, True, False, True]
    assert met["expert_ranks"].tolist() == [True, True, False, False, True]


def test_served_formats_do_not_train() -> None:
    (reason,) = reasons("llama3-8b@dgx-h100:8", precision="int4")
    assert reason == "int4 is a format of served weights: train in bf16 or fp8"
    assert reasons("llama3-8b@dgx-h100:8", precision="int4", task="decode") == ()


# ---- layers of stages


@pytest.mark.parametrize(
    ("workload", "sentence"),
    [
        (
            {"pp": 1, "tp": 8, "first_stage_layers": 32},
            "first_stage_layers 32 with pp 1: one stage has all layers, leave it out",
        ),
        (
            {"schedule": "dualpipe", "last_stage_layers": 2},
            "last_stage_layers 2 with dualpipe: its stages have layers of both ends, leave it out or choose another "
            "schedule",
        ),
        (
            {"schedule": "interleaved", "virtual_stages": 2, "first_stage_layers": 4, "last_stage_layers": 3},
            "last_stage_layers 3 does not divide by virtual_stages 2: choose a multiple",
        ),
        (
            {"first_stage_layers": 20, "last_stage_layers": 13},
            "first_stage_layers 20 + last_stage_layers 13 is more than the 32 layers there are: lower it",
        ),
        ({"last_stage_layers": 32}, "last_stage_layers 32 leaves 0 of 32 layers for the other 7 stages: lower it"),
        (
            {"first_stage_layers": 13, "last_stage_layers": 14},
            "first_stage_layers 13 + last_stage_layers 14 leaves 5 of 32 layers for the other 6 stages: lower it",
        ),
        (
            {"pp": 2, "tp": 4, "first_stage_layers": 13, "last_stage_layers": 14},
            "first_stage_layers 13 + last_stage_layers 14 is not the 32 layers of pp 2: make them equal, or leave one "
            "of them out",
        ),
        (
            {"schedule": "interleaved", "virtual_stages": 4, "last_stage_layers": 8},
            "last_stage_layers 8 leaves 24 of 32 layers for the other 7 stages × virtual_stages 4: lower it",
        ),
    ],
)
def test_stated_layers_must_leave_some_for_the_other_stages(workload: dict[str, Any], sentence: str) -> None:
    assert reasons("llama3-8b@dgx-h100:8", **{**PIPELINE, **workload}) == (sentence,)


@pytest.mark.parametrize(
    "workload",
    [
        {"first_stage_layers": 0, "last_stage_layers": 2},
        {"first_stage_layers": 25},
        {"pp": 2, "tp": 4, "first_stage_layers": 13, "last_stage_layers": 19},
        {"pp": 2, "tp": 4, "first_stage_layers": 32, "last_stage_layers": 0},
        {"schedule": "interleaved", "virtual_stages": 2, "first_stage_layers": 4, "last_stage_layers": 2},
        {"schedule": "interleaved", "virtual_stages": 4, "last_stage_layers": 4},  # 28 virtual stages, 28 layers
        {"schedule": "interleaved", "virtual_stages": 4, "last_stage_layers": 4, "model.layers": 31},
        {"pp": 4, "tp": 2, "model.layers": 3, "first_stage_layers": 0},
        {"task": "prefill", "last_stage_layers": 2},
    ],
)
def test_stated_layers_may_leave_embedding_or_head_alone(workload: dict[str, Any]) -> None:
    assert reasons("llama3-8b@dgx-h100:8", **{**PIPELINE, **workload}) == ()


def test_negative_layers_are_malformed() -> None:
    with pytest.raises(SpecError, match=r"first_stage_layers = -1: must not be negative"):
        reasons("llama3-8b@dgx-h100:8", **PIPELINE, first_stage_layers=-1)


def test_a_batch_is_judged_as_each_of_its_designs() -> None:
    """Numbers, and gaps between them."""
    point = load_design("llama3-8b@dgx-h100:8", {**PIPELINE, "schedule": "interleaved", "virtual_stages": 1})
    chosen = [None, 0, 2, 3, 4, 8, 25, 26, 32, 40]
    changes = [
        {
            "workload.pp": pp,
            "workload.virtual_stages": virtual,
            "workload.first_stage_layers": first,
            "workload.last_stage_layers": last,
        }
        for pp in (1, 2, 8)
        for virtual in (1, 2)
        for first in chosen
        for last in chosen
    ]
    found = rules_met_by_design(batch_of_changes(point, changes))
    for row, change in enumerate(changes):
        alone = {name: bool(holds) for name, holds in evaluate_rules(batch_of(point.changed(change))).items()}
        assert {name: bool(found[name][row]) for name in ("stages", "stage_layers")} == {
            name: alone[name] for name in ("stages", "stage_layers")
        }
