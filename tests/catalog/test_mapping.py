"""The first mapping: every model on every system gets one that runs, and what is stated is kept."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosmic import catalog
from cosmic.catalog.designs import load_design
from cosmic.catalog.mapping import MAPPING, Situation, estimated_bytes, suggest_batch
from cosmic.design import schema
from cosmic.design.memory import Memory
from cosmic.design.model import Experts, Recommender, Transformer
from cosmic.design.network import Network
from cosmic.design.point import DesignPoint, misfits
from cosmic.design.workload import Workload

MODELS, SYSTEMS = catalog.names("models"), catalog.names("systems")
TOO_LARGE = {("megatron-1008b", "cosmic-512"), ("transformer-1t", "cosmic-512")}
"""16 TB of states on 512 NPUs of 24 GB: there is no mapping."""


def mapping(point: DesignPoint) -> dict[str, Any]:
    """Return the workload of *point* by key."""
    return {key: getattr(point.workload, key) for key in schema.slots(Workload)}


def share(point: DesignPoint) -> float:
    """Return how much of the memory the estimate fills."""
    situation = Situation(point.model, point.network, point.memory)
    return estimated_bytes(situation, mapping(point)) / point.memory.capacity_bytes


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_model_runs_on_every_system_it_fits(system: str) -> None:
    points = {model: load_design(f"{model}@{system}") for model in MODELS}
    assert {model: misfits(point) for model, point in points.items() if misfits(point)} == {}
    assert {(model, system) for model, point in points.items() if share(point) > 1} == {
        pair for pair in TOO_LARGE if pair[1] == system
    }


STATED = st.fixed_dictionaries(
    {},
    optional={
        **{key: st.sampled_from([1, 2, 3, 4, 8, 64, 1000]) for key in ("dp", "tp", "sp", "pp", "ep", "micro_batch")},
        "global_batch": st.integers(1, 5000),
        "sequence": st.integers(1, 5000),
        "task": st.sampled_from(["training", "prefill", "decode"]),
        "weight_sharding": st.sampled_from(["none", "zero1", "zero2", "zero3"]),
        "recompute": st.sampled_from(["none", "selective", "full"]),
    },
)


@given(st.sampled_from(["gpt3-13b", "mixtral-8x7b", "dlrm-criteo"]), st.sampled_from(SYSTEMS), STATED)
@settings(max_examples=150)
def test_what_is_stated_is_kept(model: str, system: str, stated: dict[str, Any]) -> None:
    npus = catalog.entry("systems", system)["npus"]
    rest = stated.get("tp", 1) * stated.get("sp", 1) * stated.get("pp", 1)
    if npus % rest:
        stated = {**stated, "dp": stated.get("dp", 1)}  # without it, it would have to be asked for
    chosen = mapping(load_design({"model": model, "system": system, "workload": stated}))
    assert {key: chosen[key] for key in stated} == stated


@given(
    st.sampled_from(MODELS), st.sampled_from(["dgx-h100:64", "dgx-a100:512", "tpu-v4:64"]), st.sampled_from([1, 2, 4])
)
@settings(max_examples=60)
def test_one_stated_axis_leaves_a_mapping_that_uses_every_npu(model: str, system: str, degree: int) -> None:
    for axis in ("tp", "sp", "pp"):
        assert misfits(load_design(f"{model}@{system}", {f"workload.{axis}": degree})) == ()


def test_a_stated_data_parallelism_leaves_the_rest_to_the_other_axes() -> None:
    point = load_design("llama3-8b@dgx-h100:512", {"workload.dp": 4})
    assert misfits(point) == ()
    assert (point.workload.tp, point.workload.pp) == (8, 16)


def test_a_small_model_is_replicated_and_a_large_one_is_split() -> None:
    small, large = load_design("gpt3-125m@dgx-h100:64").workload, load_design("gpt3-175b@dgx-h100:64").workload
    assert (small.dp, small.tp, small.pp) == (64, 1, 1)
    assert large.tp * large.pp > 1 or large.weight_sharding == "zero3"


def test_tensor_parallelism_stays_inside_the_innermost_dimension() -> None:
    for model in MODELS:
        assert load_design(f"{model}@dgx-h100").workload.tp <= 8


def test_inference_keeps_no_states_of_training() -> None:
    workload = load_design("llama3-70b@dgx-h100:8", {"workload.task": "decode"}).workload
    assert (workload.weight_sharding, workload.recompute) == ("none", "none")
    assert workload.tp * workload.pp >= 2  # 141 GB of weights in parts of at most 60 GiB


@pytest.mark.parametrize(
    ("workload", "batch"),
    [
        ({"dp": 8, "sequence": 2048}, 2048),
        ({"dp": 3, "sequence": 2048}, 2049),
        ({"dp": 8, "micro_batch": 3, "sequence": 2048}, 2064),
        ({"dp": 8, "sequence": 2048, "global_batch": 1536}, 1536),
        ({"dp": 1000, "sequence": 2048, "global_batch": 1536}, 2000),
        ({"dp": 1, "sequence": 2**23}, 1),
    ],
)
def test_a_batch_is_of_the_usual_size_and_divides_among_replicas(workload: dict[str, int], batch: int) -> None:
    assert suggest_batch(workload) == batch


# ---------------------------------------------------------------------------------------- the estimate

BARE = Transformer(layers=1, hidden=4, heads=2, ffn=16, vocab=10, norm="rmsnorm")
"""284 parameters: see the tests of models."""
WORKLOAD: dict[str, Any] = {"sequence": 2, "dp": 1, "tp": 1, "sp": 1, "pp": 1, "ep": 1}


def estimate(model: Any, **workload: Any) -> float:
    """Return the bytes that *model* needs on one NPU of a mesh."""
    situation = Situation(model, Network(dims=()), Memory(capacity_bytes=1e9, bandwidth_bytes_per_s=1e9))
    return estimated_bytes(situation, {**WORKLOAD, "weight_sharding": "none", "recompute": "none", **workload})


def test_weights_alone_are_kept_for_inference() -> None:
    assert estimate(BARE, task="decode") == 2 * 284
    assert estimate(BARE, task="prefill", tp=2, pp=2) == 2 * 284 / 4


def test_training_keeps_states_and_activations() -> None:
    states, activations = 16 * 284, 2 * (18 * 4 + 2 * 2 * 16 + 6 * 10)
    assert estimate(BARE) == states + activations


def test_sharding_spreads_states_over_replicas() -> None:
    activations = 2 * (18 * 4 + 2 * 2 * 16 + 6 * 10)
    assert estimate(BARE, dp=4, weight_sharding="zero1") == 4 * 284 + 12 * 284 / 4 + activations
    assert estimate(BARE, dp=4, weight_sharding="zero3") == 16 * 284 / 4 + activations


def test_recomputing_keeps_the_inputs_of_layers_and_one_layer() -> None:
    deep = Transformer(layers=3, hidden=4, heads=2, ffn=16, vocab=10, norm="rmsnorm")
    layer = 18 * 4 + 2 * 2 * 16
    assert estimate(deep) - estimate(deep, recompute="full") == 2 * (3 * layer - (2 * 4 * 3 + layer))


def test_expert_parallelism_spreads_the_routed_experts_alone() -> None:
    mixture = Transformer(
        layers=1, hidden=4, heads=2, ffn=16, vocab=10, norm="rmsnorm", experts=Experts(count=8, active=2, ffn=16)
    )
    routed = 8 * 2 * 4 * 16
    assert estimate(mixture, task="decode") - estimate(mixture, task="decode", ep=4) == 2 * routed * 3 / 4


def test_the_tables_of_a_recommender_are_spread_over_replicas() -> None:
    model = Recommender(dense_features=3, tables=(10, 20), embedding=2, bottom=(5, 2), top=(6, 1))
    assert estimate(model, task="decode", dp=2) == estimate(model, task="decode") / 2


def test_the_keys_of_a_mapping_are_fields_of_the_workload() -> None:
    assert set(MAPPING) <= set(schema.slots(Workload))
