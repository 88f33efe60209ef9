"""Memory against measurement: one GPU to the last per cent, published clusters within a tenth."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import pytest

from cosmic.accuracy.measured_rows import Fields, carried_files, read_rows
from cosmic.accuracy.rows.single_gpu_rows import training_design
from cosmic.accuracy.rows.training_rows import read_run
from cosmic.base.errors import SpecError
from cosmic.design.design_batch import Batch, batch_of
from cosmic.design.design_point import DesignPoint
from cosmic.design.model_layer import count_parameters
from cosmic.search.mapping.design_completion import load_design
from cosmic.search.space.space_files import load_space
from cosmic.step.device_memory import COMPONENTS, Footprint, footprint

GOLDEN = Path(__file__).parents[1] / "golden"
GIB = 2**30


def rows(name: str) -> list[dict[str, str]]:
    with (GOLDEN / name).open() as file:
        return list(csv.DictReader(file))


def needs(design: str, **workload: Any) -> Footprint:
    return footprint(
        batch_of(load_design(design, {f"workload.{key}": value for key, value in workload.items()}, plain=True))
    )


# ---- one H200


STEPS = read_rows(next(path for path in carried_files() if path.name == "h200_training.csv"))[1]


def keeping(point: DesignPoint, **given: Any) -> DesignPoint:
    """Return a design that keeps the memory of its gradients, as the measured steps do (zero_grad's set_to_none)."""
    return replace(point, workload=replace(point.workload, set_to_none=False, **given))


MEASURED = [(keeping(training_design(Fields(row))), row) for row in STEPS]


def relative(found: float, measured: str) -> float:
    return found / float(measured) - 1


def test_language_models_on_the_h200_have_the_parameters_that_were_measured() -> None:
    for point, row in MEASURED:
        if row["style"] != "vit":
            assert count_parameters(point.model) == int(row["params"])


def test_peak_memory_on_the_h200_is_within_five_per_cent_on_average_and_ten_at_worst() -> None:
    errors = [abs(relative(float(footprint(batch_of(point)).peak), row["peak_bytes"])) for point, row in MEASURED]
    assert len(errors) == 53
    assert mean(errors) < 0.005  # asked: 0.05
    assert max(errors) < 0.015  # asked: 0.10


def test_static_memory_on_the_h200_is_within_one_per_cent() -> None:
    """On average 0.25 %; the smallest models are off by up to 3 %: tens of megabytes beside a few hundred."""
    errors = [abs(relative(float(footprint(batch_of(point)).static), row["static_bytes"])) for point, row in MEASURED]
    assert mean(errors) < 0.005
    assert sum(error < 0.01 for error in errors) >= 49
    assert max(errors) < 0.035


def test_eager_and_compiled_steps_on_the_h200_are_within_one_per_cent_on_average() -> None:
    """A compiler keeps no opened gate and one copy of the logits, but all gradients of a pass until it ends."""
    errors: dict[str, list[float]] = {}
    for row in rows("h200_compiled_memory.csv"):
        point = training_design(Fields(row))
        how: dict[str, Any] = {"execution": row["execution"], "loss": row["loss"]}
        peak = float(footprint(batch_of(keeping(point, **how))).peak)
        errors.setdefault(row["execution"], []).append(abs(relative(peak, row["peak_bytes"])))
    assert {name: len(found) for name, found in errors.items()} == {"eager": 13, "compiled": 13}
    assert all(mean(found) < 0.005 and max(found) < 0.02 for found in errors.values())


# ---- published runs

MODELS: dict[str, dict[str, Any]] = {
    "LLAMA3_8B": {"base": "llama3-8b"},
    "LLAMA3_70B": {"base": "llama3-70b"},
    "LLAMA3.1_405B": {"base": "llama3-405b"},
    "LLAMA3_70B-12layer": {"base": "llama3-70b", "layers": 12},
    "LLAMA3.1_405B-4layer": {"base": "llama3-405b", "layers": 4},
    "DeepSeekV2-4layer": {"base": "deepseek-v2", "layers": 4, "experts": {"dense_first": 1}},
}


def published(row: dict[str, str]) -> DesignPoint:
    """Return the design of a published run.

    TorchTitan's rows of December 2024 keep every copy of the logits, those of 2025 free them. Its selective
    recomputation keeps attention's output and every other matrix product's. With pipeline stages it leaves
    gathered weights whole until the step ends, so that only the optimizer's states are sharded, and it passes as
    many microbatches as there are stages unless told otherwise.
    """
    titan, stages = row["set"] == "torchtitan", int(row["pp"])
    interleaved = "Interleaved" in row["schedule"]
    per_replica = int(row["gbs"]) // int(row["dp"])
    micro_batch = int(row["mbs"] or max(1, per_replica // stages))
    workload = {
        "sequence": int(row["seq_len"]),
        "global_batch": int(row["gbs"]),
        "micro_batch": micro_batch,
        "dp": int(row["dp"]),
        "tp": int(row["tp"]),
        "pp": stages,
        "cp": int(row["cp"]),
        "ep": int(row["ep"]),
        "weight_sharding": "zero3" if row["zero_stage"] == "3" and stages == 1 else "zero1",
        "sequence_parallel": row["seq_par"] == "1",
        "recompute": "alternate" if row["recompute"] == "selective" else row["recompute"],
        "schedule": "interleaved" if interleaved else "1f1b",
        "virtual_stages": int(row["vpp"]) if interleaved else 1,
        "loss": "retained" if titan and "h200" not in row["id"] else "eager",
        "execution": "compiled" if titan else "fused",
    }
    system = f"{'dgx-h200' if titan else 'dgx-b200'}:{row['n_accel']}"
    return load_design({"model": MODELS[row["model"]], "system": system, "workload": workload}, plain=True)


def test_published_peak_memory_is_within_five_per_cent_on_average() -> None:
    errors: dict[str, list[float]] = {}
    for row in rows("published_training_memory.csv"):
        peak = float(footprint(batch_of(published(row))).peak) / GIB
        errors.setdefault(row["set"], []).append(abs(relative(peak, row["peak_mem_gib"])))
    assert {name: len(found) for name, found in errors.items()} == {"torchtitan": 13, "simumax-b200": 26}
    assert mean(error for found in errors.values() for error in found) < 0.05  # asked: 0.05
    assert mean(errors["simumax-b200"]) < 0.03
    assert mean(errors["torchtitan"]) < 0.10


@pytest.mark.long
def test_published_runs_fit_as_they_did() -> None:
    """Of Megatron-Bridge, whose recipes are known; rows of its tables that differ from these are read as what fits."""
    path = next(path for path in carried_files() if path.name == "training_published.csv")
    over, count = [], 0
    for row in read_rows(path)[1]:
        if row["set"].startswith("mbridge") and "lora" not in row["set"]:
            try:
                point = read_run(Fields(row)).point
            except SpecError:
                continue  # a model that the catalog lacks
            count += 1
            if float(footprint(batch_of(point)).must_fit) > point.memory.left_bytes:
                over.append(row["id"])
    assert (count, over) == (170, [])


# ---- formulas, and sense


def layer_activations(**workload: Any) -> float:
    """Return the bytes that one layer of GPT-3 keeps for a microbatch of one, by the difference of two depths."""
    found = []
    for layers in (1, 2):
        overrides = {
            "model.layers": layers,
            "model.name": "",
            **{f"workload.{key}": value for key, value in workload.items()},
        }
        point = load_design(
            "gpt3-175b@dgx-h100:8", {"workload.dp": 1, "workload.pp": 1, "workload.cp": 1, **overrides}, plain=True
        )
        found.append(float(footprint(batch_of(point)).parts["activations"]))
    return found[1] - found[0]


@pytest.mark.parametrize(
    ("switches", "formula"),
    [
        ({"attention": "unfused"}, lambda s, h, a, t: s * h * (10 + 24 / t + 5 * a * s / (h * t))),
        ({"attention": "unfused", "recompute": "selective"}, lambda s, h, a, t: s * h * (10 + 24 / t)),
        ({"attention": "unfused", "sequence_parallel": True}, lambda s, h, a, t: s * h / t * (34 + 5 * a * s / h)),
        ({"recompute": "full"}, lambda s, h, a, t: s * h * 2),
        ({"recompute": "full", "sequence_parallel": True}, lambda s, h, a, t: s * h * 2 / t),
    ],
)
def test_activations_follow_korthikanti_where_the_formula_applies(switches: dict[str, Any], formula: Any) -> None:
    """Equations 1 to 4 of arXiv 2205.05198, table 2: s tokens, h hidden, a heads, t tensor-parallel, with dropout."""
    found = layer_activations(tp=8, dropout=True, **{"sequence_parallel": False, **switches})
    assert found == pytest.approx(formula(2048, 12288, 96, 8), rel=0.002)  # rows of statistics are not in it


def test_sharding_states_saves_what_it_says() -> None:
    """7.5 billion parameters over 64 replicas: 18 bytes each, of which ZeRO splits 12, then 16, then all."""
    fixed = {"dp": 64, "tp": 1, "pp": 1, "cp": 1, "recompute": "full"}
    found = {
        sharding: needs("megatron-7.5b@dgx-a100:64", weight_sharding=sharding, reduce_every="microbatch", **fixed)
        for sharding in ("none", "zero1", "zero2", "zero3")
    }
    count = count_parameters(load_design("megatron-7.5b@dgx-a100:64").model)
    states = {
        name: sum(each.parts[part] for part in ("weights", "gradients", "optimizer")) for name, each in found.items()
    }
    assert states["none"] == 18 * count
    assert states["zero1"] == pytest.approx((6 + 12 / 64) * count)
    assert states["zero2"] == pytest.approx((2 + 16 / 64) * count)
    assert states["zero3"] == pytest.approx(16 / 64 * count)


def test_the_first_stage_keeps_as_many_microbatches_as_there_are_stages() -> None:
    shallow = needs("gpt3-175b@dgx-h100:512", tp=8, pp=4, cp=1, micro_batch=1, global_batch=512)
    deep = needs("gpt3-175b@dgx-h100:512", tp=8, pp=8, cp=1, micro_batch=1, global_batch=512)
    assert deep.parts["activations"] == pytest.approx(
        shallow.parts["activations"], rel=0.01
    )  # half the layers, twice in flight
    assert deep.parts["weights"] < 0.6 * shallow.parts["weights"]


def test_a_long_context_split_over_ranks_needs_what_a_short_one_does() -> None:
    short = needs("llama3-8b@dgx-h100:8", cp=1, tp=1, dp=8, sequence=8192, weight_sharding="zero1", recompute="full")
    split = needs("llama3-8b@dgx-h100:8", cp=8, tp=1, dp=1, sequence=65536, weight_sharding="zero1", recompute="full")
    assert split.parts["activations"] == pytest.approx(short.parts["activations"], rel=0.01)


def test_the_cache_of_keys_and_values_is_what_papers_say() -> None:
    """LLaMA-3 70B: 80 layers × 2 × 8 heads × 128 × 2 bytes = 327,680 a token; DeepSeek-V3: 61 × 576 × 2 = 70,272."""
    common = {"task": "decode", "sequence": 1000, "global_batch": 1, "dp": 1, "tp": 1, "pp": 1, "cp": 1}
    llama = needs("llama3-70b@dgx-h100:1", **common)
    assert llama.parts["kv_cache"] == 327_680 * 1000
    deepseek = needs("deepseek-v3@dgx-h100:1", **common)
    assert deepseek.parts["kv_cache"] == 70_272 * 1000


def test_offloading_moves_bytes_and_makes_traffic() -> None:
    mesh = {"dp": 4, "tp": 2, "cp": 1, "pp": 1, "weight_sharding": "zero1"}
    host = [{"name": "host", "capacity": "1 TB", "bandwidth": "50 GB/s"}]
    here = needs("llama3-8b@dgx-h100:8", **mesh)
    changes = {f"workload.{key}": value for key, value in {**mesh, "offload": ["optimizer"]}.items()}
    away = footprint(batch_of(load_design("llama3-8b@dgx-h100:8", {**changes, "memory.tiers": host}, plain=True)))
    assert away.parts["optimizer"] == 0
    assert away.offloaded["optimizer"] == here.parts["optimizer"]
    assert away.offload_traffic == 2 * here.parts["optimizer"]


def test_a_batch_gives_what_its_points_give() -> None:
    space = load_space("cosmic-1024-full-stack")
    drawn = space.sample(40, np.random.default_rng(0))
    together = footprint(Batch(space.base, space.columns(drawn)))
    for place, row in enumerate(drawn):
        alone = footprint(batch_of(space.point(row)))
        for name in COMPONENTS:
            assert np.asarray(together.parts[name])[place] == pytest.approx(alone.parts[name], rel=1e-12), name
