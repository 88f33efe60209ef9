"""Published training runs: the design of each row, with its predicted and measured step.

Empty cells take a default, which the verdict notes:

    tp, pp, cp       1 within one node; with several nodes the row is skipped
    ep               1; where tp × cp × dp does not divide by it, their greatest common divisor
    etp              what the source's recipes set; otherwise as much of tp as ep leaves
    vpp              1; where pp × vpp exceeds the layers with embedding and head, the largest that does not
    mbs              such that there are as many microbatches as stages
    recompute        none
    zero_stage       1 where there is data parallelism; 3 where weights and states do not fit otherwise
    seq_par          yes with tensor parallelism
    precision        bf16
    network rate     that of the accelerator's usual system

The measured step is ``iter_time_s``; if empty, it follows from tokens per second and accelerator; if that is empty
too, from the model's operations and the published TFLOP/s.

`PRACTICE` and `KERNELS` hold what is known of a source beyond its columns.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd
from typing import Any, get_args

from cosmic.design.batch import batch_of
from cosmic.design.model import Transformer, active_parameters
from cosmic.design.point import DesignPoint
from cosmic.design.workload import Precision, Workload
from cosmic.errors import SpecError, require
from cosmic.evaluation import evaluate_batch
from cosmic.mapping.suggesting import suggest_virtual_stages
from cosmic.step.compute import model_flop_per_token
from cosmic.step.memory import footprint
from cosmic.validation.hardware import fabric_in, host_memory, machine, with_attention
from cosmic.validation.models import model_of
from cosmic.validation.recipes import megatron_bridge
from cosmic.validation.rows import GIB, Fields, Row, Verdict, judged
from cosmic.workload.checks import invalid_reasons

MEGATRON_2021: dict[str, Any] = {"attention": "unfused", "dropout": True, "recompute_to_end": True}
MEGATRON: dict[str, Any] = {"tp_overlap": True}
BRIDGE: dict[str, Any] = MEGATRON | {"etp": 1}
PRACTICE: dict[str, dict[str, Any]] = {
    "korthikanti": MEGATRON_2021,
    "sc21": MEGATRON_2021,
    "vtrain": MEGATRON_2021,
    "mosaic": {"execution": "eager"},
    "mbridge": BRIDGE,
    "nemo": MEGATRON,
    "mlperf": MEGATRON,
}
"""What is known of a source beyond its columns, by the start of its set's name. Megatron-LM of 2021 had unfused
attention and dropout, and recomputed layers to their end; LLM Foundry did not compile models; the recipes of
Megatron-Bridge, NeMo and MLPerf overlap tensor-parallel communication with GEMMs; those of Megatron-Bridge do not split
experts (etp is 1 in its scripts/performance/configs)."""
OVERLAPPED_EXPERTS = 26.06
"""The release of Megatron-Bridge that overlapped expert parallelism, and fused attention with sinks."""
UNFUSED_SINKS = {"attention": "unfused", "recompute": "selective", "recompute_modules": ("core_attn",)}
KERNELS = {"mosaic": "flash1", "torchtitan": "flash2"}
"""Generation of attention kernels of a source, where it is not the accelerator's best."""
SHARDING = {"0": "none", "1": "zero1", "2": "zero2", "3": "zero3"}
RECOMPUTES = ("none", "selective", "alternate", "full")
SCHEDULES = (("dual", "dualpipe"), ("zero", "zero_bubble"), ("zb", "zero_bubble"), ("gpipe", "gpipe"))
"""Schedules by the start of their names in rows."""
GROUP = ("set", "source", "model", "accel", "n_accel", "seq_len", "gbs", "precision")
"""Columns of rows that do the same work on the same machine with the same software."""


def judge(rows: Sequence[Row]) -> list[Verdict]:
    """Return the verdict on each published run."""
    return [judged(row, row.get("id", ""), row.get("set") or "training", _judge) for row in rows]


def _judge(fields: Fields) -> Verdict:
    require("lora" not in fields.text("set"), "set", fields.text("set"), "training of adapters is not modelled")
    run = read_run(fields)
    require_fit(run.point)
    batch = batch_of(run.point)
    found = evaluate_batch(batch).columns
    needed, there = float(found["memory_bytes"][0]), run.point.memory.capacity_bytes
    assumed = list(fields.assumed)
    if needed > there:
        assumed.append(f"memory: needs {needed / GIB:.4g} of {there / GIB:.4g} GiB")
    peak = fields.number("peak_mem_gib")
    return Verdict(
        row=fields.row,
        measured_s=run.measured_s,
        predicted_s=float(found["step_s"][0]),
        assumed=tuple(assumed),
        peak_bytes_measured=peak * GIB if peak else None,
        peak_bytes_predicted=float(footprint(batch).peak) if peak else None,
        flop=6 * active_parameters(run.point.model) * _tokens(run.point) / run.point.network.npus,
        group=tuple(fields.text(name) for name in GROUP),
        design=repr(run.point.workload),
    )


def require_fit(point: DesignPoint) -> None:
    """Raise a `SpecError` with the reasons if a design's mapping is invalid."""
    if reasons := invalid_reasons(point):
        w = point.workload
        raise SpecError("mapping", f"dp {w.dp} × tp {w.tp} × cp {w.cp} × pp {w.pp}", "; ".join(reasons))


@dataclass(frozen=True, slots=True)
class Run:
    """A published run: its design and its measured step."""

    point: DesignPoint
    measured_s: float


def read_run(fields: Fields) -> Run:
    """Return the run of a row."""
    mesh = _mesh(fields)
    model = model_of(fields, mesh["tp"])
    hardware = machine(
        fields.text("accel"),
        fields.whole("n_accel"),
        fields.whole("accel_per_node", 8, "as usual"),
        fields.number("inter_node_gbps_per_accel"),
        fabric_in(fields.text("notes")),
    )
    fields.assumed.extend(hardware.assumed)
    generation = KERNELS.get(fields.text("set"), "")
    hardware = replace(hardware, compute=with_attention(hardware.compute, generation))
    workload = _workload(fields, mesh, model)
    if workload.offload:
        hardware = replace(
            hardware, memory=replace(hardware.memory, tiers=(host_memory(hardware.compute.accelerator),))
        )
    point = _sharded_if_needed(fields, hardware.design(model, workload))
    return Run(point, _measured(fields, point))


def _sharded_if_needed(fields: Fields, point: DesignPoint) -> DesignPoint:
    """Return *point*, with zero3 if its weights and states do not fit in memory otherwise.

    Some sources do not distinguish fully sharded runs from those that shard optimizer states only.
    """
    workload = point.workload
    if workload.pp > 1 or workload.dp == 1 or workload.weight_sharding == "zero3" or invalid_reasons(point):
        return point
    if footprint(batch_of(point)).static <= point.memory.capacity_bytes:
        return point
    fields.assume("zero_stage", 3, "as whole weights do not fit")
    return replace(point, workload=replace(workload, weight_sharding="zero3"))


def _measured(fields: Fields, point: DesignPoint) -> float:
    if (seconds := fields.number("iter_time_s")) is not None:
        return seconds
    tokens, count = _tokens(point), point.network.npus
    if (rate := fields.number("tokens_per_s_per_accel")) is not None:
        fields.assumed.append("measured_s: from tokens_per_s_per_accel")
        return tokens / (rate * count)
    tera = fields.number("tflops_per_accel")
    if tera is None:
        raise SpecError("iter_time_s", "", "neither a time nor a rate is given")
    fields.assumed.append("measured_s: from tflops_per_accel")
    flop = model_flop_per_token(point.model, point.workload.sequence, training=True, decoding=False)
    return float(flop * tokens / (tera * 1e12 * count))


def _tokens(point: DesignPoint) -> int:
    return point.workload.global_batch * point.workload.sequence


# ---------------------------------------------------------------------------------------------- the workload


def _mesh(fields: Fields) -> dict[str, int]:
    """Return the degrees of parallelism; within one node, a mapping that is not published is data parallelism."""
    count = fields.whole("n_accel")
    stated = bool(fields.text("tp") and fields.text("pp"))
    one_node = count <= fields.whole("accel_per_node", 8, "as usual")
    require(stated or one_node, "tp", fields.text("tp"), "the mapping is not published")
    tp, pp, cp = (fields.whole(name, 1) for name in ("tp", "pp", "cp"))
    ways = tp * pp * cp
    require(count % ways == 0, "n_accel", count, f"does not divide by tp × pp × cp = {ways}")
    dp = fields.whole("dp", count // ways, "what the other axes leave")
    experts = {"etp": fields.whole("etp")} if fields.text("etp") else {}
    return {"tp": tp, "pp": pp, "cp": cp, "dp": dp, "ep": _expert_spread(fields, tp * cp * dp), **experts}


def _expert_spread(fields: Fields, ranks: int) -> int:
    """Return the expert parallelism; a row that states more than there are ranks of a stage is mistaken."""
    given = fields.whole("ep", 1)
    nearest = gcd(given, ranks)
    if nearest != given:
        fields.assumed.append(f"ep: {nearest} for {given}, as tp × cp × dp = {ranks}")
    return nearest


def _workload(fields: Fields, mesh: dict[str, int], model: Transformer) -> Workload:
    pp, dp, batch = mesh["pp"], mesh["dp"], fields.whole("gbs")
    virtual = _virtual_stages(fields, pp, model.layers)
    settings: dict[str, Any] = {
        "sequence": fields.whole("seq_len"),
        "global_batch": batch,
        "micro_batch": fields.whole("mbs", max(1, batch // dp // pp), "as many microbatches as stages"),
        "virtual_stages": virtual,
        "schedule": _schedule(fields, virtual),
        "precision": _precision(fields),
        "weight_sharding": _sharding(fields, mesh),
        "sequence_parallel": _sequence_parallel(fields, mesh["tp"]),
        "recompute": _recompute(fields),
        "dp_overlap": overlaps(fields),
        **_practice(fields),
    }
    return Workload(**(settings | mesh))


def overlaps(fields: Fields) -> bool:
    """Return whether gradient reduction overlaps the backward pass: unless the row says no."""
    return not fields.text("overlap").lower().startswith("none")


def tensors_overlap(fields: Fields) -> bool:
    """Return whether tensor-parallel communication overlaps GEMMs: only if the notes say so."""
    return "async" in fields.text("notes").lower()


def _practice(fields: Fields) -> dict[str, Any]:
    """Return the settings that are known of the row's source.

    TorchTitan reduces gradients in fp32, all-gathers keys and values in context parallelism, and retained every copy of
    the logits in its runs of 2024. Its step times grow like the work of the last cp rank, so that ranks took one chunk
    of the sequence each.
    """
    if _is_titan(fields):
        return {
            "loss": "retained" if "202412" in fields.text("source_loc") else "eager",
            "execution": "compiled" if "compile" in fields.text("notes") else "eager",
            "tp_overlap": tensors_overlap(fields),
            "grad_reduce_in_fp32": True,
            "cp_comm_type": "all_gather",
            "cp_balanced": False,
        }
    name = fields.text("set")
    known = next((known for start, known in PRACTICE.items() if name.startswith(start)), {})
    if not name.startswith("mbridge"):
        return known
    model, accelerator, precision, mbs = (fields.text(name) for name in ("model", "accel", "precision", "mbs"))
    recipe = megatron_bridge(model, accelerator, precision, mbs, fields.whole("pp", 1))
    if fields.text("recompute"):
        recipe.pop("recompute", None)
    return known | recipe | _of_release(fields)


def _of_release(fields: Fields) -> dict[str, Any]:
    """Return the settings of a release of Megatron-Bridge.

    From 26.06 on, expert parallelism overlaps compute, and attention with sinks (GPT-OSS) is fused, unless a row notes
    a regression. Before, its scores were written to memory, which has no room for them but one layer at a time.
    """
    found = re.search(r"summary (\d+\.\d+)", fields.text("source"))
    recent = found is not None and float(found[1]) >= OVERLAPPED_EXPERTS
    sinks = "gpt oss" in fields.text("model").lower() and (not recent or "regression" in fields.text("notes"))
    return {"ep_overlap": recent} | (UNFUSED_SINKS if sinks else {})


def _is_titan(fields: Fields) -> bool:
    return fields.text("set").startswith("torchtitan")


def _virtual_stages(fields: Fields, pp: int, layers: int) -> int:
    if pp == 1:
        return 1
    interleaved = pp > 1 and "interleaved" in fields.text("schedule").lower()
    given = fields.whole("vpp", suggest_virtual_stages(layers, pp) if interleaved else 1)
    most = max(1, (layers + 2) // pp)
    if given > most:
        fields.assumed.append(f"vpp: {most} for {given}, as there are no more layers")
    return min(given, most)


def _schedule(fields: Fields, virtual: int) -> str:
    name = fields.text("schedule").lower()
    for start, schedule in SCHEDULES:
        if name.startswith(start):
            return schedule
    return "interleaved" if virtual > 1 else "1f1b"


def _precision(fields: Fields) -> str:
    """Return the number format of GEMMs; of two that are named, the narrower."""
    name = fields.text("precision").lower()
    if not name:
        usual = "fp8" if fields.text("set").startswith("mlperf") else "bf16"
        return str(fields.assume("precision", usual))
    if "fp4" in name:
        if "fp8" in name:
            fields.assume("precision", "fp4", f"of {name}")
        require("fp4" in get_args(Precision), "precision", fields.text("precision"), "training in fp4 is not modelled")
        return "fp4"
    if "fp8" in name or "float8" in name:
        return "fp8"
    if "bf16" in name:
        return "bf16_pure" if "PURE" in fields.text("notes") else "bf16"
    require(name in get_args(Precision), "precision", fields.text("precision"), "no such precision")
    return name


def _sharding(fields: Fields, mesh: dict[str, int]) -> str:
    """Return the sharding; with pipeline stages, TorchTitan keeps gathered weights until the step ends."""
    stage = fields.text("zero_stage").removesuffix(".0") or str(fields.assume("zero_stage", int(mesh["dp"] > 1)))
    require(stage in SHARDING, "zero_stage", stage, "must be 0, 1, 2 or 3")
    return SHARDING["1" if stage == "3" and mesh["pp"] > 1 and _is_titan(fields) else stage]


def _sequence_parallel(fields: Fields, tp: int) -> bool:
    text = fields.text("seq_par")
    if text:
        return text.lower() in ("1", "1.0", "true", "yes")
    return bool(fields.assume("seq_par", tp > 1)) if tp > 1 else False


def _recompute(fields: Fields) -> str:
    """Return the recomputation; TorchTitan's selective one keeps every other GEMM."""
    name = fields.text("recompute").lower() or str(fields.assume("recompute", "none"))
    require(name in RECOMPUTES, "recompute", name, f"must be one of {', '.join(RECOMPUTES)}")
    return "alternate" if name == "selective" and _is_titan(fields) else name
