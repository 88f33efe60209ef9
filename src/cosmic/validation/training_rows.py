"""Published training runs: the design that each row describes, its step predicted beside its step measured.

What a row leaves open takes a default, and its verdict says so:

    tp, pp, cp       1 in one node, as far as the model's data parallelism goes; elsewhere the row is skipped
    ep               1; and where it is more than dp × cp, what the two share: Megatron-LM spreads experts over tp too
    vpp              1; and where pp × vpp is more than the layers there are, the largest that is not: Megatron-LM
                     counts embedding and head as layers of such pipelines
    mbs              a pipeline is passed as many microbatches as it has stages
    recompute        none
    zero_stage       1 where there is data parallelism; 3 where weights and states do not fit otherwise
    seq_par          with tensor parallelism, yes
    precision        bf16
    rate of network  that of the accelerator's usual system

The measured step is ``iter_time_s``; where it is empty, sequences × tokens / (tokens a second per accelerator ×
accelerators); where that is empty too, what the model needs of operations over those done in a second.

What is known of a source beyond its columns is in `PRACTICE` and `KERNELS`.
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
from cosmic.step.compute import model_flop_per_token
from cosmic.step.memory import footprint
from cosmic.validation.hardware import fabric_in, machine, with_attention
from cosmic.validation.models import model_of
from cosmic.validation.rows import GIB, Fields, Row, Verdict, judged
from cosmic.workload.checks import unfit

MEGATRON_2021: dict[str, Any] = {"attention": "unfused", "dropout": True, "recompute_to_end": True}
MEGATRON: dict[str, Any] = {"tp_overlap": True}
PRACTICE: dict[str, dict[str, Any]] = {
    "korthikanti": MEGATRON_2021,
    "sc21": MEGATRON_2021,
    "vtrain": MEGATRON_2021,
    "mosaic": {"execution": "eager"},
    "mbridge": MEGATRON,
    "nemo": MEGATRON,
    "mlperf": MEGATRON,
}
"""What sources are known to do that no column says, by how the names of their sets begin: Megatron-LM before flash
attention wrote scores out, trained with dropout, and repeated layers to their end; LLM Foundry did not compile models;
the recipes of Megatron-Bridge, NeMo and MLPerf send what tensor parallelism needs beside the products."""
FUSED_SINKS = 26.06
"""The release of Megatron-Bridge that fused what earlier ones did in turn."""
KERNELS = {"mosaic": "flash1", "torchtitan": "flash2"}
"""Generations of attention kernels that sources ran, where they are not the accelerator's best."""
SHARDING = {"0": "none", "1": "zero1", "2": "zero2", "3": "zero3"}
RECOMPUTES = ("none", "selective", "alternate", "full")
SCHEDULES = (("dual", "dualpipe"), ("zero", "zero_bubble"), ("zb", "zero_bubble"), ("gpipe", "gpipe"))
"""How the names of rarer schedules begin."""
GROUP = ("set", "source", "model", "accel", "n_accel", "seq_len", "gbs", "precision")
"""Rows that agree in these do the same work on the same machine with the same software."""


def judge(rows: Sequence[Row]) -> list[Verdict]:
    """Return a verdict on each published run."""
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
    """Raise a `SpecError` with the reasons where a design does not fit together."""
    if reasons := unfit(point):
        w = point.workload
        raise SpecError("mapping", f"dp {w.dp} × tp {w.tp} × cp {w.cp} × pp {w.pp}", "; ".join(reasons))


@dataclass(frozen=True, slots=True)
class Run:
    """A published run: the design, and how long its step took."""

    point: DesignPoint
    measured_s: float


def read_run(fields: Fields) -> Run:
    """Return the run that a row describes."""
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
    point = _as_it_must_be(fields, hardware.design(model, _workload(fields, mesh, model)))
    return Run(point, _measured(fields, point))


def _as_it_must_be(fields: Fields, point: DesignPoint) -> DesignPoint:
    """Return *point* with sharded weights where whole ones cannot be: what stays from step to step does not fit.

    Some sources do not tell fully sharded runs from those that shard the optimizer's states alone.
    """
    workload = point.workload
    if workload.pp > 1 or workload.dp == 1 or workload.weight_sharding == "zero3" or unfit(point):
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
    """Return the degrees of parallelism; a mapping that is not published is data parallelism if one node is used."""
    count = fields.whole("n_accel")
    stated = bool(fields.text("tp") and fields.text("pp"))
    one_node = count <= fields.whole("accel_per_node", 8, "as usual")
    require(stated or one_node, "tp", fields.text("tp"), "the mapping is not published")
    tp, pp, cp = (fields.whole(name, 1) for name in ("tp", "pp", "cp"))
    ways = tp * pp * cp
    require(count % ways == 0, "n_accel", count, f"does not divide by tp × pp × cp = {ways}")
    dp = fields.whole("dp", count // ways, "what the other axes leave")
    return {"tp": tp, "pp": pp, "cp": cp, "dp": dp, "ep": _expert_spread(fields, dp * cp)}


def _expert_spread(fields: Fields, ranks: int) -> int:
    """Return over how many ranks experts are spread: Megatron-LM also counts those of tp, which split experts here."""
    given = fields.whole("ep", 1)
    if ranks % given == 0:
        return given
    nearest = gcd(given, ranks)
    fields.assumed.append(f"ep: {nearest} for {given}, as it spreads over dp × cp = {ranks} only")
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
    """Return whether gradients are reduced while others are still computed: unless the row says no."""
    return not fields.text("overlap").lower().startswith("none")


def tensors_overlap(fields: Fields) -> bool:
    """Return whether tensor parallelism communicates beside its own products: only if the notes say so."""
    return "async" in fields.text("notes").lower()


def _practice(fields: Fields) -> dict[str, Any]:
    """Return what is known of the row's source.

    TorchTitan gathers keys and values in context parallelism, and kept every copy of the logits in its runs of 2024.
    That ranks took one piece of the sequence each is told by their times: they grow as the last one's work does.
    """
    if _is_titan(fields):
        return {
            "loss": "retained" if "202412" in fields.text("source_loc") else "eager",
            "execution": "compiled" if "compile" in fields.text("notes") else "eager",
            "tp_overlap": tensors_overlap(fields),
            "cp_comm_type": "all_gather",
            "cp_balanced": False,
        }
    name = fields.text("set")
    known = next((known for start, known in PRACTICE.items() if name.startswith(start)), {})
    return known | (_of_release(fields) if name.startswith("mbridge") else {})


def _of_release(fields: Fields) -> dict[str, Any]:
    """Return what a release of Megatron-Bridge does.

    From 26.06 on tokens travel to experts beside computation, and attention with sinks, of which GPT-OSS is made, is
    fused, except where a row notes that it was not.
    """
    found = re.search(r"summary (\d+\.\d+)", fields.text("source"))
    recent = found is not None and float(found[1]) >= FUSED_SINKS
    sinks = "gpt oss" in fields.text("model").lower() and (not recent or "regression" in fields.text("notes"))
    return {"ep_overlap": recent} | ({"attention": "unfused"} if sinks else {})


def _is_titan(fields: Fields) -> bool:
    return fields.text("set").startswith("torchtitan")


def _virtual_stages(fields: Fields, pp: int, layers: int) -> int:
    if pp == 1:
        return 1
    given = fields.whole("vpp", 1)
    most = max(1, layers // pp)
    if given > most:
        fields.assumed.append(f"vpp: {most} for {given}, as embedding and head take places too")
    return min(given, most)


def _schedule(fields: Fields, virtual: int) -> str:
    name = fields.text("schedule").lower()
    for start, schedule in SCHEDULES:
        if name.startswith(start):
            return schedule
    return "interleaved" if virtual > 1 else "1f1b"


def _precision(fields: Fields) -> str:
    """Return the number format of matrix products; of two that are named, the narrower."""
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
    """Return how states are sharded; with pipeline stages TorchTitan keeps gathered weights until the step ends."""
    stage = fields.text("zero_stage").removesuffix(".0") or str(fields.assume("zero_stage", int(mesh["dp"] > 1)))
    require(stage in SHARDING, "zero_stage", stage, "must be 0, 1, 2 or 3")
    return SHARDING["1" if stage == "3" and mesh["pp"] > 1 and _is_titan(fields) else stage]


def _sequence_parallel(fields: Fields, tp: int) -> bool:
    text = fields.text("seq_par")
    if text:
        return text.lower() in ("1", "1.0", "true", "yes")
    return bool(fields.assume("seq_par", tp > 1)) if tp > 1 else False


def _recompute(fields: Fields) -> str:
    """Return what is recomputed; TorchTitan's selection keeps every other matrix product."""
    name = fields.text("recompute").lower() or str(fields.assume("recompute", "none"))
    require(name in RECOMPUTES, "recompute", name, f"must be one of {', '.join(RECOMPUTES)}")
    return "alternate" if name == "selective" and _is_titan(fields) else name
