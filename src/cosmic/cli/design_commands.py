"""The commands of one design: show it, list its work, its experts, import and export launch files.

`cosmic design show` prints a design, complete. `cosmic design workload` lists the operators, collectives and memory of one rank.
`cosmic design experts` says what uneven routing does to a mixture of experts. `cosmic design import` reads a launch script or
configuration as a design. `cosmic design export` writes a design as the launch arguments of another program, or a study as a
table.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from cosmic.base.errors import require
from cosmic.base.files import check_folder, check_writable, is_folder, write_text
from cosmic.cli.console import (
    Design,
    Json,
    Settings,
    emit_commands,
    emit_json,
    emit_table,
    format_seconds,
    print_sentences,
)
from cosmic.cli.output_streams import FAILED, complain, doing, emit, emit_data
from cosmic.cli.value_completion import complete_one_of

if TYPE_CHECKING:
    from cosmic.cli.answers.common_keys import InfeasibleDesignAnswer
    from cosmic.cli.answers.design_answers import (
        CollectiveTotals,
        DesignExportAnswer,
        DesignImportAnswer,
        DesignShowAnswer,
        ExplainedCollective,
        ImportedDesign,
        OperatorTotals,
        ResolvedDesign,
        WorkloadAnswer,
    )
    from cosmic.design.design_point import DesignPoint
    from cosmic.frameworks.launch import Launch
    from cosmic.search.mapping.launch_import import Imported
    from cosmic.simulate.metrics import Infeasible, Metrics
    from cosmic.step.communication import CollectiveUse
    from cosmic.step.operator_work import OperatorUse


NOTES = [
    "skew: the i-th most popular expert is picked in proportion to 1 / i^skew; 0 is balanced.",
    "load: of the fullest rank of ep, over an even one: it decides what experts and all-to-alls take.",
    "hits: experts in use that a cache holds (LFU with decay), and in brackets those of the most popular ones.",
]


def experts(
    design: Design,
    skew: Annotated[list[float], typer.Option(help="A Zipf exponent of routing; several if repeated.")] = [],  # noqa: B006
    copies: Annotated[list[int], typer.Option(metavar="N", help="Redundant experts of a layer.")] = [],  # noqa: B006
    capacity: Annotated[list[float], typer.Option(metavar="FACTOR", help="A capacity factor of experts.")] = [],  # noqa: B006
    cache: Annotated[list[float], typer.Option(metavar="SHARE", help="A share of the experts in a cache.")] = [],  # noqa: B006
    settings: Settings = [],  # noqa: B006  typer copies it
    json: Json = False,
) -> None:
    """Print what skewed routing does to a design's experts: the fullest rank, dropped tokens, hits of a cache."""
    from cosmic.design.loading import parse_overrides  # noqa: PLC0415  heavy
    from cosmic.search.design_answers import show_experts  # noqa: PLC0415  heavy
    from cosmic.workload.expert_loads import CACHED, CAPACITIES, SKEWS  # noqa: PLC0415  heavy

    loads = show_experts(
        design,
        skew=skew or SKEWS,
        copies=copies,
        capacity=capacity or CAPACITIES,
        cache=cache or CACHED,
        settings=parse_overrides(settings),
    )
    if json:
        emit_json(loads)
        return
    first = loads.rows[0]
    title = f"{loads.experts} experts, {loads.active} for each token, on {loads.ep} ranks"
    emit_table(
        f"{title}: load of the fullest rank, over an even one",
        ["skew", "by number", *(f"{each.redundant} copies" for each in first.packed)],
        [[row.skew, f"{row.load:.2f}", *(f"{each.load:.2f}" for each in row.packed)] for row in loads.rows],
    )
    emit([""])
    emit_table(
        "the same with a capacity factor, and the picks that are dropped",
        ["skew", *(f"{each.factor:g}" for each in first.capped)],
        [[row.skew, *(f"{each.load:.2f}, {each.dropped:.1%}" for each in row.capped)] for row in loads.rows],
    )
    emit([""])
    emit_table(
        f"hits of a cache of experts, in steps of {loads.tokens:,.0f} tokens",
        ["skew", *(f"{hit.cached:.0%}" for hit in first.hits)],
        [[row.skew, *(f"{hit.rate:.1%} ({hit.most:.1%})" for hit in row.hits)] for row in loads.rows],
    )
    emit([""])
    print_sentences(NOTES)


STANDARD_OUTPUT = "-"
TABLES = (".csv", ".jsonl", ".parquet")


def export(
    design: Design,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="TARGET",
            help="megatron, torchtitan or deepspeed train it, vllm, sglang, trtllm or dynamo serve it; "
            "nccl or astra-sim.",
            autocompletion=complete_one_of(
                "astra-sim", "deepspeed", "dynamo", "megatron", "nccl", "sglang", "torchtitan", "trtllm", "vllm"
            ),
        ),
    ],
    settings: Settings = [],  # noqa: B006  typer copies it
    out: Annotated[str, typer.Option("--out", metavar="DIR", help="Write the launch files to this folder.")] = "",
    json: Json = False,
) -> None:
    """Write a design as another program's arguments, environment and files."""
    from cosmic.design.loading import parse_overrides  # noqa: PLC0415  heavy
    from cosmic.evaluation import evaluate  # noqa: PLC0415  heavy
    from cosmic.frameworks import launch as launching  # noqa: PLC0415  heavy
    from cosmic.frameworks.served_launch import check_served_kind  # noqa: PLC0415  heavy
    from cosmic.search.design_answers import choose_exported  # noqa: PLC0415  heavy
    from cosmic.simulate.metrics import Infeasible  # noqa: PLC0415  heavy

    require(not is_folder(design), "design", design, "is the folder of a study: 'cosmic study export' writes it")
    table = to == STANDARD_OUTPUT or Path(to).suffix in TABLES
    rule = f"is for 'cosmic study export'; a design goes to one of {', '.join(launching.targets)}"
    require(not table, "--to", to, rule)
    launching.targets.check(to, "--to")
    if out:
        check_folder(out, "--out")
    overrides = parse_overrides(settings)
    doing("looking for a mapping")
    point, assumed = choose_exported(design, to, overrides)
    check_served_kind(point, to)  # whether or not the design could run
    outcome = evaluate(point)
    if isinstance(outcome, Infeasible):
        if json:
            answer: InfeasibleDesignAnswer = {
                "feasible": False,
                "reasons": outcome.reasons,
                "identity": point.identity,
            }
            emit_json(answer)
        else:
            print_sentences([f"cannot run: {reason}" for reason in outcome.reasons])
        raise typer.Exit(FAILED)
    doing(f"writing for {to}")
    launch = launching.targets[to](point)
    launch = replace(launch, warnings=(*(f"assumed: {each}" for each in assumed), *launch.warnings))
    has_folder = launch.traces is None or bool(out)
    require(has_folder, "--out", out, f"{to} reads files, traces among them: name a folder for them")
    written = launching.write_launch(launch, out) if out else []
    if json:
        emit_json(_export_data(to, launch, launching.render_script(launch)))
    elif out:
        complain(f"cosmic design export: {warning}" for warning in launch.warnings)
        emit([f"{launch.about}: {len(written):,} files in {out}"])
        if to == "astra-sim":
            emit_commands({_simulate_command(out): "simulate it"})
    else:
        emit_data(launching.render_script(launch).removesuffix("\n").split("\n"))


def _export_data(to: str, launch: Launch, script: str) -> DesignExportAnswer:
    answer: DesignExportAnswer = {
        "to": to,
        "command": list(launch.command),
        "arguments": dict(launch.arguments),
        "environment": dict(launch.environment),
        "files": dict(launch.files),
        "warnings": list(launch.warnings),
    }
    if launch.pools:
        answer["pools"] = {name: dict(arguments) for name, arguments in launch.pools.items()}
        answer["script"] = script
    if launch.traces is not None:
        answer["traces"] = len(launch.traces.ranks)
    return answer


def _simulate_command(folder: str) -> str:
    """Return the command that simulates the files."""
    path_of = Path(folder)
    files = {
        "--workload": path_of / "trace",
        "--comm-groups": path_of / "comm_groups.json",
        "--system": path_of / "system.json",
        "--network": path_of / "network.yml",
        "--remote-memory": path_of / "memory.json",
    }
    return "cosmic simulate " + " ".join(f"{name} {shlex.quote(str(path))}" for name, path in files.items())


def import_(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Script or configuration. Nothing in it is run.")],
    origin: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="FORMAT",
            help="megatron (script, arguments, YAML), nemo (YAML), torchtitan (TOML) or deepspeed (JSON).",
            autocompletion=complete_one_of("deepspeed", "megatron", "nemo", "torchtitan"),
        ),
    ],
    system: Annotated[
        str, typer.Option(metavar="SYSTEM", help="What it runs on, as in dgx-h100:64; the size may be the file's.")
    ] = "",
    model: Annotated[str, typer.Option(metavar="MODEL", help="The model, where the file does not describe it.")] = "",
    settings: Settings = [],  # noqa: B006  typer copies it
    define: Annotated[
        list[str], typer.Option("--define", metavar="NAME=VALUE", help="A variable of a script. Repeatable.")
    ] = [],  # noqa: B006  typer copies it
    out: Annotated[str, typer.Option("--out", metavar="FILE", help="Write the design to this YAML file.")] = "",
    json: Json = False,
) -> None:
    """Read a launch script or configuration as a design, and print it with the step time that it achieves."""
    from cosmic.design.loading import parse_overrides  # noqa: PLC0415  heavy
    from cosmic.evaluation import evaluate  # noqa: PLC0415  heavy
    from cosmic.frameworks.launch_readers import parse_defines  # noqa: PLC0415  heavy
    from cosmic.search.mapping.launch_import import import_launch  # noqa: PLC0415  heavy

    if out:
        check_writable(out, "--out")
    imported = import_launch(
        file,
        origin,
        system=system,
        model=model,
        overrides=parse_overrides(settings),
        defines=parse_defines(define),
    )
    outcome = evaluate(imported.point)
    if out:
        write_text(out, imported.text, "--out")
    if json:
        emit_json(_import_data(imported, outcome, out))
    elif out:
        emit([*_import_notes(imported), "", *_import_verdict(imported, outcome), "", "next:"])
        emit_commands(_next_import_commands(out, imported))
    else:
        lines = [
            *_import_notes(imported),
            *_import_verdict(imported, outcome),
            "next: add --out design.yaml, then cosmic evaluate design.yaml",
        ]
        emit_data([*(f"# {line}" for line in lines), *imported.text.rstrip("\n").split("\n")])


def _import_notes(imported: Imported) -> list[str]:
    """Return what was read: the design, what was assumed, what is not modelled."""
    from cosmic.search.design_wording import design_in_words  # noqa: PLC0415  heavy

    lines = [design_in_words(imported.point)]
    if imported.said:
        lines.append(f"accelerators: {imported.said}")
    lines += [f"assumed: {each}" for each in imported.assumed]
    return lines + [f"not modelled: {each.argument} ({each.why})" for each in imported.not_modelled]


def _import_verdict(imported: Imported, outcome: Metrics | Infeasible) -> list[str]:
    """Return what `cosmic evaluate` says, in two lines."""
    from cosmic.simulate.metrics import Infeasible  # noqa: PLC0415  heavy
    from cosmic.simulate.step_evaluation import expected_in_words  # noqa: PLC0415  heavy

    if isinstance(outcome, Infeasible):
        return [f"cannot run: {reason}" for reason in outcome.reasons]
    used, capacity = outcome.memory_used_bytes / 2**30, imported.point.memory.left_bytes / 2**30
    return [
        f"{format_seconds(outcome.step_s)} per step · {outcome.throughput_per_s:,.0f} {outcome.counted}/s"
        f" · {100 * outcome.mfu:.1f} % MFU · fits: {used:.1f} of {capacity:.4g} GiB",
        expected_in_words(outcome),
    ]


def _next_import_commands(design: str, imported: Imported) -> dict[str, str]:
    """Return what to do next, each with its purpose."""
    name = shlex.quote(design)
    target = "megatron" if imported.origin == "nemo" else imported.origin
    recompute = "full" if imported.point.workload.recompute == "none" else "none"
    return {
        f"cosmic evaluate {name}": "what bounds it, and what would help most",
        f"cosmic design sweep {name} --vary tp=1,2,4,8": "one field at a time",
        f"cosmic design diff {name} {name} --set-b recompute={recompute}": "what a change is worth",
        f"cosmic design export {name} --to {target}": "back to launch arguments",
    }


def _import_data(imported: Imported, outcome: Metrics | Infeasible, out: str) -> DesignImportAnswer:
    from cosmic.simulate.metrics import Infeasible  # noqa: PLC0415  heavy

    metrics = None if isinstance(outcome, Infeasible) else outcome
    return {
        "from": imported.origin,
        "file": imported.file,
        "identity": imported.point.identity,
        "design": cast("ImportedDesign", imported.tree),
        "accelerators": imported.point.network.npus,
        "said": imported.said,
        "assumed": list(imported.assumed),
        "not_modelled": imported.not_modelled,
        "feasible": metrics is not None,
        "reasons": list(outcome.reasons) if isinstance(outcome, Infeasible) else [],
        "step_s": None if metrics is None else metrics.step_s,
        "tokens_per_s": None if metrics is None else metrics.tokens_per_s,
        "mfu": None if metrics is None else metrics.mfu,
        "memory_bytes": None if metrics is None else metrics.memory_bytes,
        "out": out or None,
    }


def show(
    design: Design,
    settings: Settings = [],  # noqa: B006  typer copies it
    json: Json = False,
) -> None:
    """Print one design as YAML, with every name resolved and every default filled in."""
    from cosmic.cli.evaluate_command import assumed_in_words  # noqa: PLC0415  heavy
    from cosmic.design.loading import design_tree, dump_design, model_assumptions, parse_overrides  # noqa: PLC0415  heavy
    from cosmic.report.network_description import network_in_words  # noqa: PLC0415  heavy
    from cosmic.search.design_wording import design_in_words  # noqa: PLC0415  heavy
    from cosmic.search.mapping.design_completion import load_design  # noqa: PLC0415  heavy

    overrides = parse_overrides(settings)
    point = load_design(design, overrides)
    assumed = model_assumptions(design, overrides)
    if json:
        answer: DesignShowAnswer = {
            "identity": point.identity,
            "invalid": why_invalid(point),
            "design": cast("ResolvedDesign", design_tree(point)),
        }
        if assumed:
            answer["assumed"] = assumed
        emit_json(answer)
        return
    reasons = [f"# cannot run: {reason}" for reason in why_invalid(point)]
    reasons += [f"# {line}" for line in (*assumed_in_words(assumed), *network_in_words(point.network))]
    emit([f"# {point.identity}", f"# {design_in_words(point)}", *reasons, *dump_design(point).rstrip().split("\n")])


def why_invalid(point: DesignPoint) -> list[str]:
    """Return which rules a design breaks: those of its step or, where it serves a load, those of deployments."""
    from cosmic.evaluation import evaluate  # noqa: PLC0415  heavy
    from cosmic.simulate.metrics import Infeasible  # noqa: PLC0415  heavy
    from cosmic.workload.mapping_rules import invalid_reasons  # noqa: PLC0415  heavy

    if point.serving is None:
        return list(invalid_reasons(point))
    outcome = evaluate(point)
    return list(outcome.reasons) if isinstance(outcome, Infeasible) else []


def workload(
    design: Design,
    settings: Settings = [],  # noqa: B006  typer copies it
    why: Annotated[bool, typer.Option("--why", help="List every collective with its reason, instead of sums.")] = False,
    json: Json = False,
) -> None:
    """Print the operators, collectives and memory of one step, on the busiest rank of a design."""
    from cosmic.design.design_batch import batch_of  # noqa: PLC0415  heavy
    from cosmic.design.loading import parse_overrides  # noqa: PLC0415  heavy
    from cosmic.search.design_answers import list_work  # noqa: PLC0415  heavy
    from cosmic.workload.mesh_sizes import sizes_of  # noqa: PLC0415  heavy

    step = list_work(design, settings=parse_overrides(settings))
    point = step.point
    degrees = {axis: int(sizes_of(batch_of(point))[axis]) for axis in ("dp", "tp", "cp", "pp", "ep", "etp", "edp")}
    degrees["oep"] = degrees["ep"]
    work = summarize_operators(step.operators)
    sent = explain_collectives(step.collectives, degrees) if why else summarize_collectives(step.collectives, degrees)
    memory = step.memory
    if json:
        answer: WorkloadAnswer = {
            "identity": point.identity,
            "invalid": list(step.invalid),
            "operators": work,
            "collectives": sent,
            "memory": {
                **cast("dict[str, float]", memory.parts),
                "total": cast("float", memory.total),
                "capacity": point.memory.capacity_bytes,
            },
            "offloaded": cast("dict[str, float]", memory.offloaded),
            "offload_traffic_bytes": cast("float", memory.offload_traffic),
        }
        emit_json(answer)
        return
    print_sentences([f"cannot run: {reason}" for reason in step.invalid])
    columns = ["phase", "kind", "runs", "work_flop", "moved_bytes"]
    emit_table("operators of a step", columns, rows_of(work))
    emit([""])
    columns = ["phase", "collective", "axes", "group size", "times", "payload_bytes", "total_bytes", "overlaps"]
    if why:
        columns = ["block", "phase", "collective", "axes", "tensor", "payload_bytes", "why"]
    emit_table("collectives of a step", columns, rows_of(sent))
    emit([""])
    parts = [[name, size] for name, size in memory.parts.items() if size]
    rows: list[list[Any]] = [*parts, ["total", memory.total], ["capacity", point.memory.left_bytes]]
    emit_table("peak memory", ["component", "size_bytes"], rows)


def rows_of(mappings: Iterable[Mapping[str, Any]]) -> list[list[Any]]:
    """Return the values of each row of a table."""
    return [list(row.values()) for row in mappings]


def summarize_operators(uses: Iterable[OperatorUse]) -> list[OperatorTotals]:
    """Return the operators of a step by phase and kind, the heaviest first."""
    table: dict[tuple[str, str], list[float]] = {}
    for use in uses:
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


def explain_collectives(uses: Iterable[CollectiveUse], degrees: Mapping[str, int]) -> list[ExplainedCollective]:
    """Return every collective of a group of more than one rank, with its reason."""
    return [
        {
            "block": use.block,
            "phase": use.phase,
            "kind": use.kind,
            "axes": _axes_of_group(use, degrees),
            "tensor": use.tensor,
            "payload_bytes": float(use.bytes),
            "why": use.why,
        }
        for use in uses
        if float(use.group) > 1 and float(use.calls) > 0
    ]


PARTS = {"oep": "ep", "idp": "dp", "odp": "dp", "iedp": "edp", "oedp": "edp"}
"""Parts of axes, and which one they are of."""


def _axes_of_group(use: CollectiveUse, degrees: Mapping[str, int]) -> str:
    """Return the axes along which there is more than one rank."""
    return " · ".join(PARTS.get(axis, axis) for axis in use.axes if degrees.get(axis, use.group) > 1)


def summarize_collectives(uses: Iterable[CollectiveUse], degrees: Mapping[str, int]) -> list[CollectiveTotals]:
    """Return the collectives of groups of more than one rank, alike ones together, the most bytes first."""
    table: dict[tuple[Any, ...], float] = {}
    for use in uses:
        if float(use.group) > 1 and float(use.calls) > 0:
            key = (use.phase, use.kind, _axes_of_group(use, degrees), int(use.group), float(use.bytes), use.overlaps)
            table[key] = table.get(key, 0.0) + float(use.calls)
    rows: list[CollectiveTotals] = [
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
