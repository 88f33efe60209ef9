"""The mapping that a design gets when it states none: it can run, it fits, and it keeps what is stated."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosmic import catalog
from cosmic.design.batch import batch_of
from cosmic.design.point import DesignPoint
from cosmic.loading.designs import load_design
from cosmic.loading.mapping import suggest_batch
from cosmic.step.memory import footprint
from cosmic.workload.checks import invalid_reasons

SYSTEMS = catalog.names("systems")
MODELS = (
    "bert-large",
    "deepseek-v3",
    "dlrm-criteo",
    "gpt3-125m",
    "gpt3-175b",
    "llama3-405b",
    "llama3-8b",
    "mixtral-8x7b",
    "qwen3-235b-a22b",
    "t5-11b",
    "vit-huge",
)


def full(point: DesignPoint) -> float:
    """Return the share of the memory that a design fills."""
    return float(footprint(batch_of(point)).total / point.memory.capacity_bytes)


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_model_on_a_system_runs_and_fits(system: str) -> None:
    points = {model: load_design(f"{model}@{system}") for model in MODELS}
    assert {model: invalid_reasons(point) for model, point in points.items() if invalid_reasons(point)} == {}
    assert {model: full(point) for model, point in points.items() if full(point) > 1} == {}


def test_the_mapping_that_a_system_prefers_is_taken_where_it_fits() -> None:
    workload = load_design("gpt3-175b@cosmic-1024").workload
    assert (workload.dp, workload.tp, workload.cp, workload.pp) == (8, 4, 8, 4)
    assert (workload.weight_sharding, workload.recompute, workload.global_batch) == ("zero3", "none", 2048)


def test_a_small_model_is_replicated_and_a_large_one_is_split() -> None:
    small = load_design("gpt3-125m@dgx-h100:64").workload
    assert (small.dp, small.tp, small.pp, small.recompute) == (64, 1, 1, "none")
    large = load_design("gpt3-175b@dgx-h100:512").workload
    assert large.tp == 8  # as wide as a node, before stages
    assert large.pp > 1


def test_experts_are_spread() -> None:
    assert load_design("deepseek-v3@dgx-h100").workload.ep >= 8


def test_whoever_states_the_mesh_gets_the_rest_plain() -> None:
    stated = {"workload.tp": 8, "workload.pp": 8, "workload.cp": 1}
    workload = load_design("gpt3-175b@dgx-h100:512", stated).workload
    assert (workload.dp, workload.ep, workload.weight_sharding, workload.recompute) == (8, 1, "none", "none")


STATED = st.fixed_dictionaries(
    {},
    optional={
        **{key: st.sampled_from([1, 2, 3, 4, 8, 64, 1000]) for key in ("dp", "tp", "cp", "pp", "ep", "micro_batch")},
        "global_batch": st.integers(1, 5000),
        "sequence": st.integers(1, 5000),
        "task": st.sampled_from(["training", "prefill", "decode"]),
        "weight_sharding": st.sampled_from(["none", "zero1", "zero2", "zero3"]),
        "recompute": st.sampled_from(["none", "selective", "full"]),
    },
)


@given(st.sampled_from(["gpt3-13b", "mixtral-8x7b", "dlrm-criteo"]), st.sampled_from(SYSTEMS), STATED)
@settings(max_examples=60)
def test_what_is_stated_is_kept(model: str, system: str, stated: dict[str, Any]) -> None:
    npus = catalog.entry("systems", system)["npus"]
    rest = stated.get("tp", 1) * stated.get("cp", 1) * stated.get("pp", 1)
    if npus % rest:
        stated = {**stated, "dp": stated.get("dp", 1)}  # without it, it would have to be asked for
    workload = load_design({"model": model, "system": system, "workload": stated}).workload
    assert {key: getattr(workload, key) for key in stated} == stated


@pytest.mark.parametrize("axis", ["tp", "pp"])
@pytest.mark.parametrize("system", ["dgx-h100:64", "tpu-v4:64"])
def test_one_stated_axis_leaves_a_mapping_that_runs(axis: str, system: str) -> None:
    for model in ("llama3-8b", "mixtral-8x7b"):
        assert invalid_reasons(load_design(f"{model}@{system}", {f"workload.{axis}": 4})) == ()


def test_a_stated_data_parallelism_leaves_the_rest_to_the_other_axes() -> None:
    point = load_design("llama3-8b@dgx-h100:512", {"workload.dp": 4})
    assert invalid_reasons(point) == ()
    assert (point.workload.tp, point.workload.pp) == (8, 16)


def test_serving_shards_no_states_and_recomputes_nothing() -> None:
    workload = load_design("llama3-70b@dgx-h100:8", {"workload.task": "decode", "workload.global_batch": 8}).workload
    assert (workload.weight_sharding, workload.recompute) == ("none", "none")
    assert workload.tp > 1  # 141 GB of weights do not fit on one


@pytest.mark.parametrize(
    ("workload", "batch"),
    [
        ({"dp": 3, "global_batch": 100, "sequence": 1}, 102),
        ({"dp": 4, "micro_batch": 8, "global_batch": 64, "sequence": 1}, 64),
        ({"dp": 2, "sequence": 2**20}, 4),  # four million tokens
    ],
)
def test_a_batch_is_rounded_up_to_equal_parts(workload: dict[str, int], batch: int) -> None:
    assert suggest_batch(workload) == batch
