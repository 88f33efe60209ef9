"""What export writes, import reads: every field that a target expresses comes back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from math import gcd
from pathlib import Path
from random import Random
from typing import Any

import pytest

from cosmic.design.design_point import DesignPoint
from cosmic.design.model_layer import Transformer, is_moe
from cosmic.design.workload_layer import Workload
from cosmic.frameworks.launch import render_script, targets
from cosmic.frameworks.launch_readers import find_stage_ends
from cosmic.frameworks.megatron_model import express_model
from cosmic.search.mapping.launch_import import import_launch
from cosmic.step.cuts.balanced import state_end_layers
from cosmic.workload.pipeline_cut import layers_per_part
from cosmic.workload.precision import RECIPES
from tests.relations.random_designs import random_design

FAMILIES = ("dense", "window", "moe", "mla")
PLACES = {"megatron": (("tp", "cp", "dp", "pp"), ("tp", "cp", "pp", "dp"))}
REFUSED = ("divides by", "over dp and cp only", "of the design")
"""Signs of warnings about designs that a framework does not run at all."""
NARROWED = {"fp4": "bf16", "int4": "bf16", "fp8": "bf16", "bf16_pure": "bf16"}


def common(point: DesignPoint) -> dict[str, Any]:
    """Return the changes without which no framework expresses a design: what has no effect is at its default."""
    w = point.workload
    usual = Workload(sequence=1, global_batch=1)
    changes: dict[str, Any] = {"placement": usual.placement, "cp_balanced": True, "strategies": ()}
    changes |= {"kv_repeated": False, "fp8_recipe": "auto"}
    apart = ("runtime", "npus_per_host", "sync_period", "sync_compression")
    changes |= {name: getattr(usual, name) for name in apart}
    ranks = w.tp * w.cp * w.dp
    if not is_moe(point.model):
        changes |= {"ep": 1, "etp": None, "grouped_gemm": True, "ep_overlap": False}
    elif w.etp == gcd(w.tp, ranks // w.ep):
        changes["etp"] = None
    changes |= {"ep_overlap": False} if w.ep == 1 else {}
    changes |= {"cp_comm_type": "ring"} if w.cp == 1 else {}
    changes |= {"sequence_parallel": True, "tp_overlap": False} if w.tp == 1 else {}
    changes |= {"dp_overlap": True} if w.dp * w.cp == 1 else {}
    if w.schedule != "interleaved" or w.pp == 1:
        changes["virtual_stages"] = 1
    if w.pp == 1:
        changes["schedule"] = "1f1b"
    if w.recompute != "selective":
        changes["recompute_modules"] = usual.recompute_modules
    if w.recompute == "none":
        changes["recompute_num_layers"] = None
    if "activations" not in w.offload:
        changes["offload_num_layers"] = None
    changes["reduce_every"] = "step"
    changes |= {"first_stage_layers": None, "last_stage_layers": None}
    if w.schedule not in ("zero_bubble", "dualpipe") and w.pp > 1 and isinstance(point.model, Transformer):
        virtual = w.virtual_stages if w.schedule == "interleaved" else 1
        parts = layers_per_part(point.model.layers, w.pp, virtual, w.first_stage_layers, w.last_stage_layers)
        changes |= find_stage_ends(parts, w.pp, virtual) or {}
    return changes


def wide(w: Workload, precision: str) -> bool:
    """Return whether gradients are in fp32."""
    stated = w.grad_reduce_in_fp32
    return RECIPES[w.precision].gradient == 4 if stated is None or not RECIPES[w.precision].master else stated


def reduction(w: Workload, precision: str) -> bool | None:
    """Return grad_reduce_in_fp32 as it is stated for *precision*: only where it differs from the usual."""
    if precision == "fp32":
        return None
    return None if wide(w, precision) == (RECIPES[precision].gradient == 4) else wide(w, precision)


def by_megatron(point: DesignPoint) -> Workload:
    """Return the workload that Megatron-LM's arguments express."""
    w = point.workload
    changes = common(point) | {"recompute_to_end": w.recompute == "full", "execution": "fused"}
    split = [axis for axis in w.placement if getattr(w, axis) > 1]
    first = [axis for axis in PLACES["megatron"][0] if axis in split]
    second = [axis for axis in PLACES["megatron"][1] if axis in split]
    if split != first and split == second:
        changes["placement"] = PLACES["megatron"][1]
    if w.schedule != "interleaved" or w.virtual_stages == 1:
        changes["schedule"] = "1f1b"
    if w.recompute == "alternate":
        changes |= {"recompute": "selective", "recompute_modules": ("core_attn", "mlp")}
    if w.recompute != "full":
        changes["recompute_num_layers"] = None
    precision = {"int4": "bf16", "bf16_pure": "bf16"}.get(w.precision, w.precision)
    changes |= {"precision": precision, "grad_reduce_in_fp32": reduction(w, precision)}
    changes["loss"] = "fused" if w.loss in ("fused", "chunked") else "auto"
    changes["tp_overlap"] = w.tp_overlap and w.sequence_parallel and w.tp > 1
    offloaded = [each for each in ("optimizer", "activations") if each in w.offload]
    changes["offload"] = tuple(offloaded)
    most = max(1, point.model.layers - 1) if isinstance(point.model, Transformer) else 1
    if "activations" in offloaded and (w.offload_num_layers or most) >= most:
        changes["offload_num_layers"] = None
    if w.precision in ("fp16", "fp32") and is_moe(point.model):
        changes["grouped_gemm"] = False
    return replace(w, **changes, **dispatched(w))


def dispatched(w: Workload) -> dict[str, Any]:
    """Return how tokens are dispatched as it is stated: only where there is expert parallelism."""
    return {} if w.ep > 1 else {"moe_token_dispatcher_type": "flex"}


def by_torchtitan(point: DesignPoint) -> Workload:
    """Return the workload that TorchTitan's keys express."""
    w = point.workload
    changes = common(point) | {
        "sequence_parallel": True,
        "recompute_to_end": False,
        "recompute_modules": ("core_attn",),
    }
    changes |= {"recompute_num_layers": None, "dropout": False, "attention": "fused", "loss": "auto", "moments": "fp32"}
    changes |= {"dp_overlap": True, "ep_overlap": False, "grouped_gemm": True, "offload_num_layers": None}
    changes["recompute"] = w.recompute if w.recompute in ("full", "alternate") else "none"
    changes["execution"] = "eager" if w.execution == "eager" else "compiled"
    changes["cp_comm_type"] = "ring" if w.cp == 1 or w.cp_comm_type != "all_gather" else "all_gather"
    states = "weights" in w.offload or "optimizer" in w.offload
    changes["offload"] = ("weights", "optimizer") if states else ()
    shards = {"none": "zero2" if w.cp > 1 and w.pp > 1 else "zero3" if w.cp > 1 else "none", "zero1": "zero2"}
    changes["weight_sharding"] = shards.get(w.weight_sharding, w.weight_sharding)
    if w.weight_sharding == "none" and w.dp > 1:
        changes["weight_sharding"] = "none"
    precision = "fp8" if w.precision == "fp8" else "bf16"
    changes |= {"precision": precision, "grad_reduce_in_fp32": reduction(w, precision)}
    if is_moe(point.model):
        changes["etp"] = None if w.tp == gcd(w.tp, w.tp * w.cp * w.dp // w.ep) else w.tp
    return replace(w, **changes, **dispatched(w))


def by_deepspeed(point: DesignPoint) -> Workload:
    """Return the workload that DeepSpeed's keys express; what the user's script does is set besides."""
    w = point.workload
    changes = common(point) | {"execution": "eager", "grouped_gemm": not is_moe(point.model), "loss": "auto"}
    changes |= {"first_stage_layers": None, "last_stage_layers": None}
    changes["cp_comm_type"] = "ulysses" if w.cp > 1 else "ring"
    changes |= {"recompute_to_end": False, "recompute_modules": ("core_attn",), "recompute_num_layers": None}
    changes |= {"dropout": False, "attention": "fused", "moments": "fp32", "tp_overlap": False, "ep_overlap": False}
    changes |= {"schedule": "1f1b", "virtual_stages": 1, "offload_num_layers": None, "grad_reduce_in_fp32": None}
    changes |= {"ep": 1, "etp": None, "moe_token_dispatcher_type": "flex"}
    changes["recompute"] = "none" if w.recompute == "none" else "full"
    changes["precision"] = NARROWED.get(w.precision, w.precision)
    changes["dp_overlap"] = w.dp_overlap or w.weight_sharding == "none"
    changes["reduce_every"] = "microbatch" if w.weight_sharding == "zero2" else "step"
    if w.tp > 1:
        changes["sequence_parallel"] = w.sequence_parallel and w.recompute != "none"
    kept = {"weights": w.weight_sharding == "zero3", "optimizer": w.weight_sharding != "none"}
    kept["activations"] = w.recompute != "none"
    order = ("weights", "optimizer", "activations")
    changes["offload"] = tuple(each for each in order if each in w.offload and kept[each])
    return replace(w, **changes)


EXPRESSED: dict[str, Callable[[DesignPoint], Workload]] = {
    "megatron": by_megatron,
    "torchtitan": by_torchtitan,
    "deepspeed": by_deepspeed,
}


def differences(first: Workload, second: Workload) -> dict[str, tuple[Any, Any]]:
    """Return the fields in which two workloads differ."""
    pairs = {field.name: (getattr(first, field.name), getattr(second, field.name)) for field in fields(Workload)}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def cut(point: DesignPoint) -> list[int]:
    """Return the layers of each stage."""
    w = point.workload
    assert isinstance(point.model, Transformer)
    return layers_per_part(point.model.layers, w.pp, w.virtual_stages, w.first_stage_layers, w.last_stage_layers)


def designs(count: int, seed: int) -> list[DesignPoint]:
    rng = Random(seed)
    return [random_design(rng, family=rng.choice(FAMILIES), task="training") for _ in range(count)]


def system_of(point: DesignPoint) -> str:
    """Return a system on which the design has as many accelerators; what they are does not matter here."""
    return f"tpu-v5p:{point.network.npus}"


@pytest.mark.parametrize("target", EXPRESSED)
@pytest.mark.parametrize("seed", range(1))
def test_what_is_exported_is_read_back(target: str, seed: int, tmp_path: Path) -> None:
    for turn, point in enumerate(map(state_end_layers, designs(24, seed))):
        launch = targets[target](point)
        w = point.workload
        if any(sign in warning for warning in launch.warnings for sign in REFUSED):
            continue  # the framework would not run it
        path = tmp_path / f"{turn}.sh"
        path.write_text(render_script(launch))
        assert isinstance(point.model, Transformer)
        name = "" if target == "megatron" else point.model.name
        changes: dict[str, Any] = {} if target == "megatron" else {"model.layers": point.model.layers}
        if target == "deepspeed":
            changes |= {"sequence": w.sequence, "cp": w.cp, "pp": w.pp}
        found = import_launch(path, target, system=system_of(point), model=name, overrides=changes)
        differing = differences(EXPRESSED[target](point), found.point.workload)
        if cut(point) == cut(found.point):  # a stage's layers may be stated, or be what the others leave
            differing = {name: pair for name, pair in differing.items() if not name.endswith("_stage_layers")}
        assert differing == {}, (point.model.name, launch.warnings)
        assert isinstance(found.point.model, Transformer)
        learned = max(w.sequence, point.model.positions) if point.model.positions and target == "megatron" else None
        model = point.model if learned is None else replace(point.model, positions=learned)
        assert express_model(found.point.model) == express_model(model)
        assert found.not_modelled == ()
