"""The mapping that a design gets when it states none: it can run, it fits, and it keeps what is stated."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosmic.design import catalog_entries
from cosmic.design.design_batch import batch_of
from cosmic.design.design_point import DesignPoint
from cosmic.design.loading import design_tree
from cosmic.evaluation import evaluate
from cosmic.search.mapping.design_completion import complete_design, load_design, shared_batch
from cosmic.search.space.space_files import load_space, mapping_space
from cosmic.simulate.metrics import Metrics
from cosmic.step.device_memory import footprint
from cosmic.workload.mapping_rules import invalid_reasons
from tests.batches import check_all

LATER = ("tpu-v3",)
"""Systems that came later: the others keep the models that they are tried with."""
SYSTEMS = (*(name for name in catalog_entries.entry_names("systems") if name not in LATER), *LATER)
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


BARE = {"memory.context": "0 B", "memory.usable": 1.0}
"""Memory of tensors alone, so that what decides these tests is how mappings are chosen, not what processes hold."""


def full(point: DesignPoint) -> float:
    """Return the share of the memory that a design fills."""
    return float(footprint(batch_of(point)).total / point.memory.capacity_bytes)


@pytest.mark.long
@check_all("system", SYSTEMS, tests=4)
def test_a_model_on_a_system_runs_and_fits(system: str) -> None:
    place = 2 * SYSTEMS.index(system)
    models = (MODELS[place % len(MODELS)], MODELS[(place + 1) % len(MODELS)])
    points = {model: load_design(f"{model}@{system}") for model in models}
    assert {model: invalid_reasons(point) for model, point in points.items() if invalid_reasons(point)} == {}
    assert {model for model, point in points.items() if full(point) > 1} == set()


def test_if_nothing_fits_the_mapping_needs_least_memory() -> None:
    """16 bytes of 671 B parameters are 19.5 GiB for each of 512 devices."""
    point = load_design("deepseek-v3@cosmic-512", {"memory.capacity": "18 GiB"})
    assert invalid_reasons(point) == ()
    assert 1 < full(point) < 1.5


def test_what_fits_fits_as_it_is_suggested() -> None:
    """One replica shares its weights with nobody: a mapping that fits only with zero3 is not told as zero1."""
    point = load_design("llama3-70b@mi300x:8", BARE)
    assert isinstance(evaluate(point), Metrics)
    assert (point.workload.dp * point.workload.cp, point.workload.weight_sharding) == (1, "zero1")


def test_experts_of_one_replica_need_least_memory_when_they_are_spread() -> None:
    point = load_design("gpt-oss-120b@mi300x:8")
    assert (point.workload.ep, point.workload.dp) == (8, 1)
    assert 1 < full(point) < 1.3


def test_the_mapping_that_a_system_prefers_is_taken_where_it_fits() -> None:
    workload = load_design("gpt3-175b@cosmic-1024").workload
    assert (workload.dp, workload.tp, workload.cp, workload.pp) == (8, 4, 8, 4)
    assert (workload.weight_sharding, workload.recompute, workload.global_batch) == ("zero3", "none", 2048)


def test_a_small_model_is_replicated_and_a_large_one_is_split() -> None:
    small = load_design("gpt3-125m@dgx-h100:64").workload
    assert (small.dp, small.tp, small.pp, small.recompute) == (64, 1, 1, "none")
    large = load_design("gpt3-175b@dgx-h100:512").workload
    assert large.tp * large.pp > 8


def test_experts_are_spread() -> None:
    assert load_design("deepseek-v3@dgx-h100").workload.ep >= 8


def test_whoever_states_the_mesh_gets_the_best_switches_for_it() -> None:
    stated = {"workload.tp": 8, "workload.pp": 8, "workload.cp": 1}
    chosen, plain = (load_design("gpt3-175b@dgx-h100:512", stated, plain=plain) for plain in (False, True))
    assert [(w.dp, w.tp, w.cp, w.pp) for w in (chosen.workload, plain.workload)] == [(8, 8, 1, 8)] * 2
    workload = plain.workload
    assert (workload.schedule, workload.weight_sharding, workload.recompute) == ("1f1b", "none", "none")
    found, other = (
        evaluate(chosen),
        evaluate(load_design("gpt3-175b@dgx-h100:512", {**stated, "weight_sharding": "zero1"}, plain=True)),
    )
    assert isinstance(found, Metrics)
    assert isinstance(other, Metrics)
    assert found.step_s < 0.97 * other.step_s


SLOWEST = {
    "llama3-70b@dgx-h100:512": 8.131,
    "qwen3-32b@dgx-h100:256": 7.090,
    "mixtral-8x7b@dgx-h100:64": 13.42,
    "llama3-405b@dgx-h100:1024": 79.44,
}
"""The shortest step of all mappings whose tensors fit, each of them evaluated (`benchmarks/defaults.py`)."""


@pytest.mark.parametrize("design", SLOWEST)
def test_the_default_is_about_as_good_as_the_best_of_all_mappings(design: str) -> None:
    found = evaluate(load_design(design, BARE))
    assert isinstance(found, Metrics)
    assert SLOWEST[design] * 0.999 <= found.step_s <= 1.05 * SLOWEST[design]


@pytest.mark.parametrize(
    ("design", "task"),
    [
        ("llama3-8b@dgx-h100:8", "training"),
        ("qwen3-30b-a3b@dgx-h100:16", "training"),
        ("qwen3-30b-a3b@dgx-h100:16", "decode"),
        ("bert-base@gb200-nvl72:72", "training"),
        ("mixtral-8x7b@tpu-v4:16", "prefill"),
    ],
)
def test_a_default_is_one_of_all_mappings(design: str, task: str) -> None:
    space = mapping_space(design, {"task": task})
    assert space.row_of(space.base) is not None


def test_what_was_suggested_is_told() -> None:
    loaded = complete_design("llama3-8b@dgx-h100:8", {"tp": 2, "recompute": "none"})
    assert {"dp", "pp", "schedule", "micro_batch"} <= set(loaded.suggested)
    assert not {"tp", "recompute"} & set(loaded.suggested)
    assert loaded.searched > 50
    assert "cosmic search X" in loaded.mapping_in_words("cosmic search X")[0]
    again = complete_design(design_tree(loaded.point))
    assert (again.point, again.suggested, again.mapping_in_words("")) == (loaded.point, (), [])


def test_a_fixed_workload_changes_in_one_place() -> None:
    base = load_design("llama3-8b@dgx-h100:8").workload
    changed = load_design("llama3-8b@dgx-h100:8", {"tp": 2}, fix=["workload"]).workload
    assert changed == replace(base, tp=2, dp=8 // (2 * base.cp * base.pp))
    held = load_design("llama3-8b@dgx-h100:8", {"tp": 8, "micro_batch": 1}, fix=["workload.cp_comm_type", "network"])
    assert (held.workload.tp, held.workload.cp_comm_type) == (8, base.cp_comm_type)


def test_a_parameter_set_varies_a_mapping_around_plain_switches() -> None:
    space = load_space({"base": "llama3-8b@dgx-h100:8", "parameters": {"tp": [1, 2, 4], "pp": [1, 2]}})
    workload = space.base.workload
    assert (workload.schedule, workload.virtual_stages, workload.cp, workload.tp_overlap) == ("1f1b", 1, 1, False)


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


@pytest.mark.long
@given(st.sampled_from(["gpt3-13b", "mixtral-8x7b", "dlrm-criteo"]), st.sampled_from(SYSTEMS), STATED)
@settings(max_examples=25)
def test_what_is_stated_is_kept(model: str, system: str, stated: dict[str, Any]) -> None:
    npus = catalog_entries.read_entry("systems", system)["npus"]
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
    assert (point.workload.dp, point.workload.tp * point.workload.cp * point.workload.pp) == (4, 128)


def test_serving_shards_no_states_and_recomputes_nothing() -> None:
    workload = load_design("llama3-70b@dgx-h100:8", {"workload.task": "decode", "workload.global_batch": 8}).workload
    assert (workload.weight_sharding, workload.recompute) == ("none", "none")
    assert workload.tp > 1  # 141 GB of weights do not fit on one


def decoding(system: str, model: str = "llama3-70b", **stated: Any) -> DesignPoint:
    return load_design(f"{model}@{system}", {"task": "decode", **stated})


def test_a_replica_decodes_its_batch_in_one_pass() -> None:
    """As many microbatches as stages, so that each stage always has one: 64 sequences are 4 microbatches of 16."""
    fixed: dict[str, Any] = {"global_batch": 64, "sequence": 4096, "cp": 1}
    assert decoding("dgx-h200:8", tp=8, pp=1, **fixed).workload.micro_batch == 64
    assert decoding("dgx-h200:8", tp=2, pp=4, **fixed).workload.micro_batch == 16
    assert decoding("dgx-h200:8", tp=4, pp=1, **fixed).workload.micro_batch == 32  # of each of 2 replicas
    assert decoding("dgx-h200:8", tp=4, pp=2, global_batch=15, sequence=4096, cp=1).workload.micro_batch == 5
    assert decoding("dgx-h200:8", tp=4, pp=2, global_batch=1, sequence=4096, cp=1).workload.micro_batch == 1


def test_decoding_takes_the_fastest_mapping_of_the_batch() -> None:
    """Eight H200 read 18 GB of weights each, and 11 GB of KV cache: 6 ms at least; no mapping may be faster."""
    point = decoding("dgx-h200:8", global_batch=64, sequence=4096)
    found = evaluate(point)
    assert isinstance(found, Metrics)
    assert found.step_s == pytest.approx(14.8e-3, rel=0.1)
    for tp, pp in ((2, 1), (4, 1), (2, 4), (4, 2), (1, 8)):
        other = evaluate(decoding("dgx-h200:8", global_batch=64, sequence=4096, tp=tp, cp=1, pp=pp))
        assert not isinstance(other, Metrics) or other.step_s >= found.step_s


def test_without_a_batch_64_sequences_are_decoded_for_each_replica_of_the_smallest_mapping() -> None:
    """Qwen3-32B is 61 GiB in bf16, its KV cache 1 GiB for 4,096 tokens: one H200 of 141 GiB holds 64 sequences."""
    workload = decoding("dgx-h200:8", "qwen3-32b", sequence=4096, **BARE).workload
    assert workload.global_batch == 8 * 64
    smaller = {**BARE, "memory.capacity": "100 GiB"}
    longer = decoding("dgx-h200:8", "qwen3-32b", sequence=4096, tp=1, pp=1, cp=1, **smaller)
    assert longer.workload.global_batch == 8 * 32  # 95 GiB hold 61 and 32, not 64


def test_a_stated_microbatch_is_what_the_batch_is_a_multiple_of() -> None:
    workload = decoding("dgx-h200:8", sequence=4096, micro_batch=24, tp=8, pp=1, cp=1).workload
    assert (workload.micro_batch, workload.global_batch) == (24, 48)


@pytest.mark.parametrize(("sequence", "batch", "micro"), [(8192, 16, 1), (2048, 16, 2), (1000, 48, 6), (32768, 8, 1)])
def test_prompts_pass_8192_tokens_at_a_time(sequence: int, batch: int, micro: int) -> None:
    """8,192 // 1,000 = 8 prompts, of the 6 that each of 8 replicas has; 4 of 2,048 tokens, but there are 2."""
    stated = {"task": "prefill", "tp": 1, "cp": 1, "pp": 1, "sequence": sequence, "global_batch": batch}
    assert load_design("llama3-8b@dgx-h100:8", stated).workload.micro_batch == micro


def test_each_replica_prefills_one_prompt_where_no_batch_is_given() -> None:
    workload = load_design("llama3-8b@dgx-h100:8", {"task": "prefill"}).workload
    assert (workload.dp, workload.global_batch, workload.micro_batch) == (8, 8, 1)


def test_what_systems_and_models_prefer_is_of_training() -> None:
    workload = decoding("cosmic-1024", "gpt3-175b").workload
    assert workload.weight_sharding == "none"
    assert workload.cp == 1


def test_a_batch_that_no_replicas_divide_is_refused_by_the_rule_about_it() -> None:
    (reason,) = invalid_reasons(decoding("dgx-h200:8", global_batch=5, sequence=4096, tp=4, pp=1, cp=1))
    assert "global_batch 5 does not divide by dp 2 × micro_batch 1" in reason


@pytest.mark.parametrize("task", ["decode", "prefill"])
@pytest.mark.parametrize("system", ["dgx-h100:16", "tpu-v5p:16"])
def test_served_models_run_and_fit(task: str, system: str) -> None:
    encoders = ("bert-large", "vit-huge", "dlrm-criteo") if task == "prefill" else ()
    for model in ("llama3-8b", "qwen3-30b-a3b", "mistral-7b", "t5-11b", *encoders):
        point = load_design(f"{model}@{system}", {"task": task})
        assert invalid_reasons(point) == ()
        assert full(point) <= 1


@pytest.mark.parametrize(
    ("wanted", "npus", "batch"), [(100, 6, 96), (512, 64, 512), (15360, 2048, 15360), (512, 576, 576), (4, 1024, 128)]
)
def test_a_batch_is_one_that_accelerators_can_share_out(wanted: int, npus: int, batch: int) -> None:
    """Six is 3 × 2: 3 × 32 is nearest to 100. 576 is 9 × 64: so is 9 × 32 × 2 to 512."""
    assert shared_batch(wanted, npus) == batch


def test_a_batch_does_not_follow_the_mapping() -> None:
    batches = {load_design("llama3-8b@dgx-h100:16", {"tp": tp}).workload.global_batch for tp in (1, 2, 8)}
    assert batches == {512}
    assert load_design("gpt3-125m@dgx-h100:8", {"dp": 4, "tp": 2, "micro_batch": 3}).workload.global_batch % 12 == 0


def test_short_samples_are_trained_together() -> None:
    """Pictures of 197 tokens: kernels of one of them take less time than their launch."""
    workload = load_design("vit-base@dgx-a100:8").workload
    assert workload.sequence == 197
    assert workload.micro_batch >= 16
    assert load_design("vit-base@dgx-a100:8", {"workload.micro_batch": 4}).workload.micro_batch == 4


def test_experts_take_the_fastest_mapping_that_fits() -> None:
    chosen = load_design("qwen3-30b-a3b@dgx-h100:64")
    steps = [
        evaluate(load_design("qwen3-30b-a3b@dgx-h100:64", {"workload.ep": ep, "workload.tp": 1})) for ep in (8, 64)
    ]
    best = evaluate(chosen)
    assert isinstance(best, Metrics)
    assert all(best.step_s <= each.step_s * (1 + 1e-9) for each in steps if isinstance(each, Metrics))


@pytest.mark.long
def test_a_mapping_with_placed_state_is_the_fastest_that_fits_not_the_smallest() -> None:
    tier = {"name": "host", "capacity": "256 GB", "bandwidth": "55 GB/s", "processor_bandwidth": "70 GB/s"}
    held = {"sequence": 4096, "global_batch": 64, "micro_batch": 1, "memory.tiers": [tier], "optimizer_device": "cpu"}
    for tiers in (["host"], ["hbm", "host"]):  # HBM has room, or is filled to the last byte
        placed = {**held, "memory.placement.optimizer": tiers}
        found = evaluate(load_design("llama3-70b@dgx-h100:8", placed))
        smallest = evaluate(load_design("llama3-70b@dgx-h100:8", {**placed, "tp": 8, "recompute": "full"}))
        assert isinstance(found, Metrics)
        assert isinstance(smallest, Metrics)
        assert found.step_s < 0.9 * smallest.step_s
