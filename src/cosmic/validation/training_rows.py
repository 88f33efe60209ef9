"""Published training runs: the design of each row, with its predicted and measured step.

A row states sizes, a machine and a mapping. What it does not state is

    of the software    the practice of its framework at its date (`cosmic.validation.software`), or words of its notes
    of the mapping     searched, or read anew where it does not fit (`cosmic.validation.open_choices`)
    of the model       that of the catalog with the row's name (`cosmic.validation.models`)
    of the network     the rate of the accelerator's usual system (`cosmic.validation.hardware`)

and the verdict notes it. The measured step is ``iter_time_s``; if empty, it follows from a rate
(`cosmic.validation.conventions`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from cosmic.design.batch import Batch, batch_of
from cosmic.design.model import Transformer, active_parameters
from cosmic.design.point import DesignPoint
from cosmic.design.workload import Workload
from cosmic.errors import SpecError
from cosmic.evaluation import evaluate_batch, expectation
from cosmic.mapping.suggesting import shared_batch
from cosmic.step.memory import footprint
from cosmic.validation.accelerators import accelerator_named
from cosmic.validation.conventions import measured_s
from cosmic.validation.hardware import Machine, fabric_in, host_memory, machine
from cosmic.validation.models import model_of, sequence_of, shared_out
from cosmic.validation.open_choices import settle
from cosmic.validation.recipes import last_stage, recipe_of
from cosmic.validation.row_mappings import mesh_of, stated_of
from cosmic.validation.row_settings import recompute_of, settings_of
from cosmic.validation.rows import GIB, Fields, Row, Verdict, judged
from cosmic.validation.software import Software, software_of
from cosmic.workload.checks import invalid_reasons

TOKENS_PER_STEP = 2**22
"""In a global batch that a row does not give: about what large language models are trained with."""
GROUP = ("set", "source", "model", "accel", "n_accel", "seq_len", "gbs", "precision")
"""Columns of rows that do the same work on the same machine with the same software."""


def judge(rows: Sequence[Row]) -> list[Verdict]:
    """Return the verdict on each published run."""
    return [judged(row, row.get("id", ""), row.get("set") or "training", _judge) for row in rows]


def _judge(fields: Fields) -> Verdict:
    run = read_run(fields)
    require_fit(run.point)
    batch = run.batch or batch_of(run.point)
    found = evaluate_batch(batch).columns
    predicted = float(found["step_s"][0])
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
        flop=6 * active_parameters(run.point.model) * _tokens(run.point) / run.point.network.npus,
        group=tuple(fields.text(name) for name in GROUP),
        design=repr(run.point.workload),
        expected=expectation(run.point, found),
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
    most: float = 1.0
    """The step of the slowest of all choices as likely as the design's, relative to the design's."""
    batch: Batch | None = None
    """The design as a batch, if something of it was found already."""


def read_run(fields: Fields) -> Run:
    """Return the run of a row."""
    software = software_of(fields, accelerator_named(fields.text("accel")).like)
    count = fields.whole("n_accel")
    mesh = mesh_of(fields, software, count)
    model = model_of(fields, mesh.get("tp", 1), next_tokens=software.next_tokens)
    model = shared_out(model, mesh.get("pp", 1), int(fields.number("vpp") or 1))
    workload, stated, recompute = _workload(fields, software, mesh, model)
    point = _hardware(fields, count, workload).design(model, workload)
    chosen = settle(fields, point, stated, recompute_stated=bool(recompute), offloads=software.offloads)
    return Run(chosen.point, measured_s(fields, chosen.point, software.counts), chosen.most, chosen.batch)


def _hardware(fields: Fields, count: int, workload: Workload) -> Machine:
    found = machine(
        fields.text("accel"),
        count,
        fields.whole("accel_per_node", 8, "as usual") if fields.text("accel_per_node") else None,
        fields.number("inter_node_gbps_per_accel"),
        fabric_in(fields.text("notes")),
    )
    fields.assumed.extend(found.assumed)
    if not workload.offload:
        return found
    return replace(found, memory=replace(found.memory, tiers=(host_memory(found.compute.accelerator),)))


def _workload(
    fields: Fields, software: Software, mesh: dict[str, int], model: Transformer
) -> tuple[Workload, Any, dict[str, Any]]:
    """Return the workload with all that a row states, its mapping, and what it says of recomputation."""
    sequence = sequence_of(fields)
    batch = _global_batch(fields, sequence, mesh)
    stated = stated_of(fields, software, model, mesh, batch)
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
        **stated.held,
    }
    if model.experts is None:
        settings.pop("etp", None)
    settings["tp_overlap"] &= settings["sequence_parallel"]  # frameworks overlap gathers and scatters alone
    return Workload(**settings), stated, recompute


def _global_batch(fields: Fields, sequence: int, mesh: dict[str, int]) -> int:
    """Return the sequences of a step: as given, as time and rate tell, or a usual number of tokens."""
    if fields.text("gbs"):
        return fields.whole("gbs")
    count, replicas = fields.whole("n_accel"), mesh.get("dp", 1) * int(fields.number("mbs") or 1)
    rate, seconds = fields.number("tokens_per_s_per_accel"), fields.number("iter_time_s")
    if rate and seconds:
        batch = max(1, round(rate * seconds * count / sequence))
        return int(fields.assume("gbs", batch, "as time and rate tell"))
    wanted = max(1, TOKENS_PER_STEP // sequence // replicas) * replicas
    return int(fields.assume("gbs", wanted if mesh else shared_batch(wanted, count), "as usual"))


def _tokens(point: DesignPoint) -> int:
    return point.workload.global_batch * point.workload.sequence
