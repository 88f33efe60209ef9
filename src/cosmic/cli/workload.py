"""`cosmic workload`: the operators, collectives and memory of one rank."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cosmic.cli.console import Design, Json, Settings, emit_json, emit_table, new_app, say
from cosmic.cli.output import emit

if TYPE_CHECKING:
    from cosmic.step.communication import CollectiveUse
    from cosmic.step.compute import OperatorUse

app = new_app()


@app.command()
def workload(
    design: Design,
    settings: Settings = [],  # noqa: B006  typer copies it
    why: Annotated[bool, typer.Option("--why", help="List every collective with its reason, instead of sums.")] = False,
    json: Json = False,
) -> None:
    """Print the operators, collectives and memory of one step, on the busiest rank of a design."""
    from cosmic.design.batch import batch_of  # noqa: PLC0415  heavy
    from cosmic.evaluation import step_of  # noqa: PLC0415  heavy
    from cosmic.loading.designs import parse_overrides  # noqa: PLC0415  heavy
    from cosmic.mapping.completing import load_design  # noqa: PLC0415  heavy
    from cosmic.simulation.analytic import bounding_profile  # noqa: PLC0415  heavy
    from cosmic.workload.checks import invalid_reasons  # noqa: PLC0415  heavy
    from cosmic.workload.sizes import sizes_of  # noqa: PLC0415  heavy

    point = step_of(load_design(design, parse_overrides(settings)))
    step = bounding_profile(batch_of(point))
    degrees = {axis: int(sizes_of(batch_of(point))[axis]) for axis in ("dp", "tp", "cp", "pp", "ep", "etp", "edp")}
    degrees["oep"] = degrees["ep"]
    work = summarize_operators(replace(each.use, runs=each.runs) for each in step.operators if each.runs)
    sent = explain(step.collectives, degrees) if why else summarize_collectives(step.collectives, degrees)
    memory = step.memory
    if json:
        emit_json(
            {
                "identity": point.identity,
                "invalid": list(invalid_reasons(point)),
                "operators": work,
                "collectives": sent,
                "memory": {**memory.parts, "total": memory.total, "capacity": point.memory.capacity_bytes},
                "offloaded": memory.offloaded,
                "offload_traffic_bytes": memory.offload_traffic,
            }
        )
        return
    say([f"cannot run: {reason}" for reason in invalid_reasons(point)])
    columns = ["phase", "kind", "runs", "work_flop", "moved_bytes"]
    emit_table("operators of a step", columns, rows_of(work))
    emit([""])
    columns = ["phase", "collective", "axes", "group size", "times", "payload_bytes", "total_bytes", "overlaps"]
    if why:
        columns = ["block", "phase", "collective", "axes", "tensor", "payload_bytes", "why"]
    emit_table("collectives of a step", columns, rows_of(sent))
    emit([""])
    parts = [[name, size] for name, size in memory.parts.items() if size]
    rows: list[list[Any]] = [*parts, ["total", memory.total], ["capacity", point.memory.capacity_bytes]]
    emit_table("peak memory", ["component", "size_bytes"], rows)


def rows_of(found: Iterable[Mapping[str, Any]]) -> list[list[Any]]:
    """Return the values of each row of a table."""
    return [list(row.values()) for row in found]


def summarize_operators(found: Iterable[OperatorUse]) -> list[dict[str, Any]]:
    """Return the operators of a step by phase and kind, the heaviest first."""
    table: dict[tuple[str, str], list[float]] = {}
    for use in found:
        entry = table.setdefault((use.phase, use.kind), [0.0, 0.0, 0.0])
        entry[0] += float(use.runs)
        entry[1] += float(use.flop * use.runs)
        entry[2] += float(use.bytes * use.runs)
    rows = sorted(table.items(), key=lambda item: (-item[1][1], -item[1][2]))
    return [
        {"phase": phase, "kind": kind, "runs": int(runs), "flop": flop, "moved_bytes": moved}
        for (phase, kind), (runs, flop, moved) in rows
        if moved
    ]


def explain(found: Iterable[CollectiveUse], degrees: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return every collective of a group of more than one rank, with its reason."""
    return [
        {
            "block": use.block,
            "phase": use.phase,
            "kind": use.kind,
            "axes": _axes(use, degrees),
            "tensor": use.tensor,
            "payload_bytes": float(use.bytes),
            "why": use.why,
        }
        for use in found
        if float(use.group) > 1 and float(use.calls) > 0
    ]


PARTS = {"oep": "ep", "idp": "dp", "odp": "dp", "iedp": "edp", "oedp": "edp"}
"""Parts of axes, and which one they are of."""


def _axes(use: CollectiveUse, degrees: Mapping[str, int]) -> str:
    """Return the axes along which there is more than one rank."""
    return " · ".join(PARTS.get(axis, axis) for axis in use.axes if degrees.get(axis, use.group) > 1)


def summarize_collectives(found: Iterable[CollectiveUse], degrees: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return the collectives of groups of more than one rank, alike ones together, the most bytes first."""
    table: dict[tuple[Any, ...], float] = {}
    for use in found:
        if float(use.group) > 1 and float(use.calls) > 0:
            key = (use.phase, use.kind, _axes(use, degrees), int(use.group), float(use.bytes), use.overlaps)
            table[key] = table.get(key, 0.0) + float(use.calls)
    rows = [
        {
            "phase": phase,
            "kind": kind,
            "axes": axes,
            "ranks": group,
            "times": int(times),
            "payload_bytes": payload,
            "bytes": payload * times,
            "hides": hides,
        }
        for (phase, kind, axes, group, payload, hides), times in table.items()
    ]
    return sorted(rows, key=lambda row: -row["bytes"])
