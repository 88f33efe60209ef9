"""One design as the page shows it: metrics, breakdown of time and memory, cluster, roofline, timeline."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from cosmic.advice import bound_of
from cosmic.design.batch import batch_of
from cosmic.design.point import DesignPoint
from cosmic.evaluation import Infeasible, Metrics, Outcome, evaluate, expected_in_words
from cosmic.exploration.objectives import Limit
from cosmic.loading.designs import dump_design
from cosmic.metrics import OF_TOKENS
from cosmic.publishing import serving_view
from cosmic.publishing.cluster import cluster_of
from cosmic.publishing.container import Binary
from cosmic.publishing.contract import Class, Design, Fact, MemoryPart, Part, Role
from cosmic.publishing.launch import is_gpu, launch_of
from cosmic.publishing.memory_tiers import part_of, tiers_of
from cosmic.publishing.roofline import roofline_of
from cosmic.publishing.timelines import packed_timeline
from cosmic.reporting.words import figure, metric_label, size
from cosmic.simulation.analytic import bounding_profile
from cosmic.simulation.schedule_timeline import timeline_of as scheduled_timeline
from cosmic.simulation.timeline import Timeline
from cosmic.step.bound import PARTS

CLASSES: dict[str, Class] = {
    "gemm": "compute",
    "attention": "compute",
    "other": "compute",
    "recompute": "compute",
    "compute": "compute",
    "launch": "idle",
    "bubble": "idle",
    "idle": "idle",
    "optimizer": "optimizer",
    "offload": "memory",
    "engine": "other",
}
"""The colour class of a component of a step; components that are not listed are exposed communication."""
FACTS = (
    "step_s",
    "ttft_s",
    "tpot_s",
    "tokens_per_s",
    "samples_per_s",
    "mfu",
    "hfu",
    "cost_usd",
    "network_usd",
    "power_w",
    "energy_j",
    "goodput",
    "effective_tokens_per_s",
    "train_days",
    "train_usd",
    "train_energy_j",
    "train_co2_kg",
    "perf_per_bandwidth",
    "perf_per_network_cost",
)


@dataclass(frozen=True, slots=True)
class Named:
    """A design with its label and role in a report."""

    label: str
    role: Role
    point: DesignPoint
    trial: int | None = None
    file: str = ""
    """Its YAML file, if there is one."""


def design_of(named: Named, engine: str, binary: Binary, limits: Sequence[Limit] = ()) -> Design:
    """Return a design for a page, evaluated by *engine*, with its cluster, roofline and timeline."""
    found = undrawn(named, engine, limits)
    if found["feasible"]:
        found["launch"] = launch_of(named.point, file_of(named))
        found["timeline"] = packed_timeline(timeline_of(named.point, engine), binary)
    return found


def undrawn(named: Named, engine: str, limits: Sequence[Limit] = ()) -> Design:
    """Return a design for a page without a timeline, which takes most of the bytes.

    *limits* are those of the search: a design that serves requests says whether it holds those on latencies.
    """
    point = named.point
    outcome: Outcome = evaluate(point, engine)
    if isinstance(outcome, Infeasible):
        return _infeasible(named, engine, outcome)
    step = step_of(point)
    profile = bounding_profile(batch_of(step))
    found: Design = {
        "label": named.label,
        "role": named.role,
        "trial": named.trial,
        "identity": point.identity,
        "yaml": dump_design(point),
        "command": evaluation_command(named, engine),
        "feasible": True,
        "reasons": [],
        "step_s": outcome.step_s,
        "step_s_range": (outcome.step_s_range.p05, outcome.step_s_range.p95),
        "facts": facts_of(point, outcome, limits, engine),
        "parts": parts_of(outcome),
        "memory": memory_of(outcome),
        "capacity_bytes": point.memory.capacity_bytes,
        "bound": bound_of(point, outcome),
        "cluster": cluster_of(profile, outcome.step_s),
        "timeline": None,
        "roofline": roofline_of(profile),
        "launch": launch_of(point, file_of(named)) if named.role == "best" else None,
    }
    if (tiers := tiers_of(outcome)) is not None:
        found["tiers"] = tiers
    if point.serving is not None:
        found["serving"] = serving_view.serving_part(point, limits, engine)
    return found


def _infeasible(named: Named, engine: str, outcome: Infeasible) -> Design:
    """Return a design that cannot run: its file, and why."""
    point = named.point
    return {
        "label": named.label,
        "role": named.role,
        "trial": named.trial,
        "identity": point.identity,
        "yaml": dump_design(point),
        "command": evaluation_command(named, engine),
        "feasible": False,
        "reasons": list(outcome.reasons),
        "step_s": None,
        "step_s_range": None,
        "facts": [],
        "parts": [],
        "memory": [],
        "capacity_bytes": point.memory.capacity_bytes,
        "bound": "",
        "cluster": None,
        "timeline": None,
        "roofline": None,
        "launch": None,
    }


def step_of(point: DesignPoint) -> DesignPoint:
    """Return the step that a design is shown by: itself, or a decode step under its load."""
    return point if point.serving is None else serving_view.decode_point(point)


def evaluation_command(named: Named, engine: str) -> str:
    """Return a command that evaluates a design from its YAML file."""
    return f"cosmic evaluate {shlex.quote(file_of(named))}{'' if engine == 'analytic' else f' --engine {engine}'}"


def file_of(named: Named) -> str:
    """Return the YAML file of a design, or the name under which to save it."""
    return named.file or re.sub(r"[^a-z0-9]+", "-", named.label.lower()).strip("-") + ".yaml"


def facts_of(
    point: DesignPoint, metrics: Metrics, limits: Sequence[Limit] = (), engine: str = "analytic"
) -> list[Fact]:
    """Return the metrics of a design as facts; of one that serves requests, in words of serving."""
    if point.serving is not None:
        return serving_view.facts_of(point, metrics, limits, engine)
    off = expected_in_words(metrics)
    notes = {"step_s": off, "cost_usd": "to buy", "power_w": "at the meter, all busy", "energy_j": "by use"}
    found: list[Fact] = []
    absent = OF_TOKENS if metrics.counted == "samples" else ()
    for name in FACTS:
        value, unknown = getattr(metrics, name), metrics.unknown.get(name)
        if value is not None or (unknown and name not in absent):
            text, note = ("unknown", unknown) if unknown else (figure(name, value), notes.get(name, ""))
            found.append({"label": metric_label(name), "text": text, "value": value, "note": note})
        if name == "samples_per_s":  # after tokens, or in their place
            found.append(per_accelerator(point, metrics))
    capacity = point.memory.capacity_bytes
    of = f"of {size(capacity)} on each accelerator"
    found.append({"label": "memory", "text": size(metrics.memory_bytes), "value": metrics.memory_bytes, "note": of})
    found.append(_per_million_tokens(metrics))
    return found


def per_accelerator(point: DesignPoint, metrics: Metrics) -> Fact:
    """Return the throughput of each accelerator: what machines of different sizes are compared by."""
    label = f"{metrics.counted}/s/{'GPU' if is_gpu(point) else 'NPU'}"
    value = metrics.throughput_per_s / point.network.npus
    return {"label": label, "text": f"{value:,.0f}" if value >= 100 else f"{value:.3g}", "value": value, "note": ""}


def _per_million_tokens(metrics: Metrics) -> Fact:
    """Return the cost of a million tokens or samples, or that it is unknown and why."""
    name = f"cost_usd_per_{metrics.counted.removesuffix('s')}"
    label, each = f"cost per million {metrics.counted}", getattr(metrics, name)
    if each is None:
        return {"label": label, "text": "unknown", "value": None, "note": metrics.unknown[name]}
    return {"label": label, "text": f"{1e6 * each:.3g} USD", "value": 1e6 * each, "note": "to own and run"}


def parts_of(metrics: Metrics) -> list[Part]:
    """Return the components of a step with their seconds, which add up to the step."""
    return [
        {"name": name, "label": PARTS.get(name, name), "class": CLASSES.get(name, "exposed"), "seconds": seconds}
        for name, seconds in metrics.breakdown.items()
        if seconds > 0
    ]


def memory_of(metrics: Metrics) -> list[MemoryPart]:
    """Return the components of the peak memory of the accelerator that needs most."""
    return [part_of(name, held) for name, held in metrics.memory.items() if held > 0]


def timeline_of(point: DesignPoint, engine: str) -> Timeline:
    """Return the timeline of a step of a feasible design: scheduled in closed form, or simulated."""
    if engine == "analytic" or point.serving is not None:
        return scheduled_timeline(step_of(point))
    from cosmic.simulation.event.from_design import simulate_design  # noqa: PLC0415  only this engine needs it
    from cosmic.simulation.event.timeline import timeline_of_result  # noqa: PLC0415

    return timeline_of_result(simulate_design(point))
