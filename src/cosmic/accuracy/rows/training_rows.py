"""Published training runs: the design of each row, with its predicted and measured step.

A row states sizes, a machine and a mapping. What it does not state is

    of the software    the practice of its framework at its date, or words of its notes (`training_software`)
    of the mapping     searched, or read anew where it does not fit (`training_mappings`)
    of the model       that of the catalog with the row's name (`models_of_rows`)
    of the network     the rate of the accelerator's usual system

and the verdict notes it. The measured step is ``iter_time_s``; if empty, it follows from a rate, by the convention in
which operations are counted. What the column flops_kind says of that, in any words:

    model, hardware       hardware counts what is recomputed, too: a forward pass (full), or attention's (selective)
    causal, non-causal    pairs of query and key under the mask, or all of them
    6N, 8N                parameters alone, without attention, the latter with everything recomputed

    f  = g + a            operations of a token: GEMMs g, and attention a, which doubles where all pairs count
    t  = f T / (R n)      T tokens of the step, n accelerators, R operations a second of each: MFU × peak, or stated

Where it says nothing of attention, the framework's own counter does.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from cosmic.accuracy.measured_rows import GIB, Fields, Row, Verdict, compare_row
from cosmic.accuracy.rows.models_of_rows import model_of_row, sequence_of, shared_out
from cosmic.accuracy.rows.training_mappings import mesh_of, settle_choices, stated_of
from cosmic.accuracy.rows.training_software import (
    Software,
    last_stage,
    recipe_of,
    recompute_of,
    settings_of,
    software_of,
)
from cosmic.base.errors import SpecError
from cosmic.design.compute_layer import Compute
from cosmic.design.design_batch import Batch, batch_of
from cosmic.design.design_point import DesignPoint
from cosmic.design.measured_hardware import MeasuredMachine, build_machine, find_accelerator, find_fabric, host_memory
from cosmic.design.model_layer import Transformer, count_active_parameters
from cosmic.design.workload_layer import Workload
from cosmic.evaluation import evaluate_batch
from cosmic.search.mapping.suggested_mapping import shared_batch
from cosmic.simulate.step_evaluation import expected_step_error
from cosmic.step.device_memory import footprint
from cosmic.step.operator_work import model_flop_per_token
from cosmic.workload.mapping_rules import invalid_reasons

# --------------------------------------------------------------------------------------
# How long a measured step took: as stated, or from a rate, by the convention in which operations are counted
# --------------------------------------------------------------------------------------

TERA = 1e12
PERCENT = 100.0
FORWARD = 1 / 3
"""Share of the operations of a training step that a forward pass has."""
RATES = {"fp8": "fp8_flop_per_s", "fp4": "fp4_flop_per_s", "fp32": "fp32_flop_per_s"}
"""The peak that utilisation refers to, where it is not that of 16 bits."""


@dataclass(frozen=True, slots=True)
class Convention:
    """How operations are counted."""

    hardware: bool = False
    """Whether what is recomputed counts."""
    attention: str = "full"
    """Pairs that count: causal, full (all) or none."""


def convention_of(text: str, usual: str = "full", *, hardware: bool = False) -> Convention:
    """Return the convention that *text* describes; of attention, the *usual* one where it does not say.

    >>> convention_of("model (6N*T+12*L*d*T^2, non-causal attention)")
    Convention(hardware=False, attention='full')
    >>> convention_of("hardware incl. full recompute: 96BslH^2(1+s/6h+V/16lh)")
    Convention(hardware=True, attention='full')
    >>> [convention_of(each, "causal").attention for each in ("6ND", "MFU, full attention", "model")]
    ['none', 'full', 'causal']
    """
    plain = text.lower().replace(" ", "")
    counted = hardware or bool(re.search(r"hardware|hfu|(?<!\d)8nd?(?![a-z])|(?<!\d)96b", plain))
    if re.search(r"non-?causal|fullattention|12\*?l|12l|(72|96)b\*?s|s/6h|quadratic", plain):
        return Convention(counted, "full")
    if "causal" in plain:
        return Convention(counted, "causal")
    only = re.search(r"(?<!\d)[68]\*?[np](d|\*|t|$|[^a-z+])?", plain) and not re.search(r"attention|att|\+", plain)
    return Convention(counted, "none" if only or "withoutattention" in plain else usual)


def flop_per_token(point: DesignPoint, convention: Convention) -> float:
    """Return the operations of a token by a convention."""
    model, workload = point.model, point.workload
    causal = float(model_flop_per_token(model, workload.sequence, training=True, decoding=False))
    gemms = float(model_flop_per_token(model, 1, training=True, decoding=False))
    attention = {"causal": 1.0, "full": 2.0, "none": 0.0}[convention.attention] * (causal - gemms)
    total = (6.0 * count_active_parameters(model) if convention.attention == "none" else gemms) + attention
    if not convention.hardware:
        return total
    recomputed_flop = {"full": total, "alternate": total / 2, "selective": attention}.get(workload.recompute, 0.0)
    return total + FORWARD * recomputed_flop


def measured_s(fields: Fields, point: DesignPoint, usual: str = "full") -> float:
    """Return the seconds of a row's step; *usual* is how its framework counts attention."""
    if (seconds := fields.number("iter_time_s")) is not None:
        return seconds
    count, tokens = point.network.npus, point.workload.global_batch * point.workload.sequence
    if (rate := fields.number("tokens_per_s_per_accel")) is not None:
        fields.assumed.append("measured_s: from tokens_per_s_per_accel")
        return tokens / (rate * count)
    column, achieved = _achieved_rate(fields, point)
    convention = convention_of(fields.text("flops_kind"), usual, hardware=column == "hfu")
    convention_text = f"{'hardware' if convention.hardware else 'model'} operations, {convention.attention} attention"
    fields.assumed.append(f"measured_s: from {column}, {convention_text}")
    return flop_per_token(point, convention) * tokens / (achieved * count)


def _achieved_rate(fields: Fields, point: DesignPoint) -> tuple[str, float]:
    """Return the column that gives a rate, and operations a second of an accelerator."""
    if (tera := fields.number("tflops_per_accel")) is not None:
        return "tflops_per_accel", tera * TERA
    for column in ("mfu", "hfu"):
        if (share := fields.number(column)) is not None:
            peak = _peak_of_row(fields) or peak_of(point.compute, point.workload.precision)
            return column, (share / PERCENT if share > 1 else share) * peak
    raise SpecError("iter_time_s", "", "neither a time nor a rate is given")


def _peak_of_row(fields: Fields) -> float | None:
    """Return the peak that a row's utilisation refers to, if its flops_kind says: "MFU of 989 TFLOP/s"."""
    match = re.search(r"(?:of|peak)\s+(\d+(?:\.\d+)?)\s*TFLOP", fields.text("flops_kind"), re.IGNORECASE)
    return float(match[1]) * TERA if match else None


def peak_of(compute: Compute, precision: str) -> float:
    """Return the peak that utilisation refers to: of the format of GEMMs, where the accelerator has it."""
    rate = getattr(compute, RATES[precision]) if precision in RATES else None
    return float(rate or compute.bf16_flop_per_s)


# --------------------------------------------------------------------------------------
# Published training runs: the design of each row, with its predicted and measured step
# --------------------------------------------------------------------------------------

TOKENS_PER_STEP = 2**22
"""In a global batch that a row does not give: about what large language models are trained with."""
GROUP = ("set", "source", "model", "accel", "n_accel", "seq_len", "gbs", "precision")
"""Columns of rows that do the same work on the same machine with the same software."""


def compare_rows(rows: Sequence[Row]) -> list[Verdict]:
    """Return the verdict on each published run."""
    return [compare_row(row, row.get("id", ""), row.get("set") or "training", _compare_fields) for row in rows]


def _compare_fields(fields: Fields) -> Verdict:
    run = read_run(fields)
    require_fit(run.point)
    batch = run.batch or batch_of(run.point)
    columns = evaluate_batch(batch).columns
    predicted = float(columns["step_s"][0])
    peak = fields.number("peak_mem_gib")
    return Verdict(
        row=fields.row,
        measured_s=run.measured_s,
        predicted_s=predicted,
        low_s=predicted if run.most > 1 else None,
        high_s=predicted * run.most if run.most > 1 else None,
        assumed=tuple(fields.assumed),
        peak_bytes_measured=peak * GIB if peak else None,
        peak_bytes_predicted=float(footprint(batch).peak) if peak else None,
        flop=6 * count_active_parameters(run.point.model) * _tokens(run.point) / run.point.network.npus,
        group=tuple(fields.text(name) for name in GROUP),
        design=repr(run.point.workload),
        expected=expected_step_error(run.point, columns),
    )


def require_fit(point: DesignPoint) -> None:
    """Raise a `SpecError` with the reasons if a design's mapping is invalid."""
    if reasons := invalid_reasons(point):
        w = point.workload
        raise SpecError("mapping", f"dp {w.dp} × tp {w.tp} × cp {w.cp} × pp {w.pp}", "; ".join(reasons))


@dataclass(frozen=True, slots=True)
class PublishedRun:
    """A published run: its design and its measured step."""

    point: DesignPoint
    measured_s: float
    most: float = 1.0
    """The step of the slowest of all choices as likely as the design's, relative to the design's."""
    batch: Batch | None = None
    """The design as a batch, if something of it was found already."""


def read_run(fields: Fields) -> PublishedRun:
    """Return the run of a row."""
    software = software_of(fields, find_accelerator(fields.text("accel")).like)
    count = fields.whole("n_accel")
    mesh = mesh_of(fields, software, count)
    model = model_of_row(fields, mesh.get("tp", 1), next_tokens=software.next_tokens)
    model = shared_out(model, mesh.get("pp", 1), int(fields.number("vpp") or 1))
    workload, mapping, recompute = _workload(fields, software, mesh, model)
    point = _hardware(fields, count, workload).design(model, workload)
    chosen = settle_choices(fields, point, mapping, recompute_stated=bool(recompute), offloads=software.offloads)
    return PublishedRun(chosen.point, measured_s(fields, chosen.point, software.counts), chosen.most, chosen.batch)


def _hardware(fields: Fields, count: int, workload: Workload) -> MeasuredMachine:
    machine = build_machine(
        fields.text("accel"),
        count,
        fields.whole("accel_per_node", 8, "as usual") if fields.text("accel_per_node") else None,
        fields.number("inter_node_gbps_per_accel"),
        find_fabric(fields.text("notes")),
    )
    fields.assumed.extend(machine.assumed)
    if not workload.offload:
        return machine
    return replace(machine, memory=replace(machine.memory, tiers=(host_memory(machine.compute.accelerator),)))


def _workload(
    fields: Fields, software: Software, mesh: dict[str, int], model: Transformer
) -> tuple[Workload, Any, dict[str, Any]]:
    """Return the workload with all that a row states, its mapping, and what it says of recomputation."""
    sequence = sequence_of(fields)
    batch = _global_batch(fields, sequence, mesh)
    mapping = stated_of(fields, software, model, mesh, batch)
    recompute = recompute_of(fields, software)
    stages = mesh.get("pp", 1)
    recipe = recipe_of(software.recipe, fields, stages, software.date)
    recipe |= last_stage(model, stages) if software.recipe else {}
    if recompute:
        recipe.pop("recompute", None)
    settings: dict[str, Any] = {
        "sequence": sequence,
        "global_batch": batch,
        **settings_of(fields, software),
        **recipe,
        **recompute,
        **mapping.held,
    }
    if model.experts is None:
        settings.pop("etp", None)
    settings["tp_overlap"] &= settings["sequence_parallel"]  # frameworks overlap gathers and scatters alone
    return Workload(**settings), mapping, recompute


def _global_batch(fields: Fields, sequence: int, mesh: dict[str, int]) -> int:
    """Return the sequences of a step: as given, as time and rate tell, or a usual number of tokens."""
    if fields.text("gbs"):
        return fields.whole("gbs")
    count, replicas = fields.whole("n_accel"), mesh.get("dp", 1) * int(fields.number("mbs") or 1)
    rate, seconds = fields.number("tokens_per_s_per_accel"), fields.number("iter_time_s")
    if rate and seconds:
        batch = max(1, round(rate * seconds * count / sequence))
        return int(fields.assume("gbs", batch, "as time and rate tell"))
    batch_size = max(1, TOKENS_PER_STEP // sequence // replicas) * replicas
    return int(fields.assume("gbs", batch_size if mesh else shared_batch(batch_size, count), "as usual"))


def _tokens(point: DesignPoint) -> int:
    return point.workload.global_batch * point.workload.sequence
