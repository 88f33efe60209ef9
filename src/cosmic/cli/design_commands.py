"""The commands of one design: show it, list its work, its experts, import and export launch files.

`cosmic show` prints a design, complete. `cosmic workload` lists the operators, collectives and memory of one rank.
`cosmic experts` says what uneven routing does to a mixture of experts. `cosmic import` reads a launch script or
configuration as a design. `cosmic export` writes a design as the launch arguments of another program, or a study as a
table.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cosmic.base.errors import require
from cosmic.base.files import check_folder, check_writable, is_file, is_folder, write_text
from cosmic.cli.console import Design, Json, Settings, emit_commands, emit_json, emit_table, new_app, print_sentences
from cosmic.cli.evaluate_command import format_seconds
from cosmic.cli.output_streams import complain, doing, emit, emit_data
from cosmic.cli.value_completion import complete_designs, complete_one_of

if TYPE_CHECKING:
    from cosmic.design.design_point import DesignPoint
    from cosmic.frameworks.launch import Launch
    from cosmic.search.mapping.launch_import import Imported
    from cosmic.simulate.metrics import Infeasible, Metrics
    from cosmic.step.communication import CollectiveUse
    from cosmic.step.operator_work import OperatorUse


# --------------------------------------------------------------------------------------
# `cosmic experts`: what uneven routing does to a mixture of experts
# --------------------------------------------------------------------------------------

experts_app = new_app()
NOTES = [
    "skew: the i-th most popular expert is picked in proportion to 1 / i^skew; 0 is balanced.",
    "load: of the fullest rank of ep, over an even one: it decides what experts and all-to-alls take.",
    "hits: experts in use that a cache holds (LFU with decay), and in brackets those of the most popular ones.",
]


@experts_app.command()
def experts(  # noqa: PLR0913, PLR0917  one option each
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
    from cosmic.search.mapping.design_completion import load_design  # noqa: PLC0415  heavy
    from cosmic.workload.expert_loads import CACHED, CAPACITIES, SKEWS, expert_loads  # noqa: PLC0415  heavy

    point = load_design(design, parse_overrides(settings))
    found = expert_loads(point, skew or SKEWS, copies, capacity or CAPACITIES, cache or CACHED)
    if json:
        emit_json(asdict(found))
        return
    first = found.rows[0]
    said = f"{found.experts} experts, {found.active} for each token, on {found.ep} ranks"
    emit_table(
        f"{said}: load of the fullest rank, over an even one",
        ["skew", "by number", *(f"{each.redundant} copies" for each in first.packed)],
        [[row.skew, f"{row.load:.2f}", *(f"{each.load:.2f}" for each in row.packed)] for row in found.rows],
    )
    emit([""])
    emit_table(
        "the same with a capacity factor, and the picks that are dropped",
        ["skew", *(f"{each.factor:g}" for each in first.capped)],
        [[row.skew, *(f"{each.load:.2f}, {each.dropped:.1%}" for each in row.capped)] for row in found.rows],
    )
    emit([""])
    emit_table(
        f"hits of a cache of experts, in steps of {found.tokens:,.0f} tokens",
        ["skew", *(f"{hit.cached:.0%}" for hit in first.hits)],
        [[row.skew, *(f"{hit.rate:.1%} ({hit.most:.1%})" for hit in row.hits)] for row in found.rows],
    )
    emit([""])
    print_sentences(NOTES)


# --------------------------------------------------------------------------------------
# `cosmic export`: a study as a table, or a design as the launch arguments of another program
# --------------------------------------------------------------------------------------

export_app = new_app()
STANDARD_OUTPUT = "-"
TABLES = (".csv", ".jsonl", ".parquet")
NO_FEASIBLE_DESIGN = 1


@export_app.command()
def export(
    source: Annotated[
        str,
        typer.Argument(
            metavar="DIR|DESIGN",
            help="Directory of a study; MODEL@SYSTEM or a YAML file.",
            autocompletion=complete_designs,
        ),
    ],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="FILE|TARGET",
            help="Of a study: FILE.csv, FILE.jsonl or FILE.parquet; '-' prints CSV. "
            "Of a design: megatron, torchtitan or deepspeed train it, vllm, sglang, trtllm or dynamo serve it; "
            "nccl or astra-sim.",
            autocompletion=complete_one_of(
                "astra-sim", "deepspeed", "dynamo", "megatron", "nccl", "sglang", "torchtitan", "trtllm", "vllm"
            ),
        ),
    ],
    settings: Settings = [],  # noqa: B006  typer copies it
    out: Annotated[
        str, typer.Option("--out", metavar="DIR", help="Write a design's launch files to this folder.")
    ] = "",
    no_parts: Annotated[
        bool, typer.Option("--no-parts", help="Leave out what the step and the memory of each trial are made of.")
    ] = False,
    json: Json = False,
) -> None:
    """Write every trial of a study as a table, or a design as another program's arguments, environment and files."""
    if _is_design(source):
        require(not no_parts, "--no-parts", no_parts, "is for studies")
        _export_design(source, to, settings, out, json)
        return
    require(not settings, "--set", settings, "changes a design; a study is written as it is")
    require(not out, "--out", out, "is for designs; --to names the file that a study is written to")
    _export_study(source, to, json, parts=not no_parts)


def _is_design(source: str) -> bool:
    """Return whether *source* names a design: MODEL@SYSTEM or a file. Everything else is a study."""
    return not is_folder(source) and ("@" in source or Path(source).suffix in (".yaml", ".yml") or is_file(source))


# ------------------------------------------------------------------------------------------------------- studies


def _export_study(study: str, to: str, json: bool, *, parts: bool) -> None:
    from cosmic.frameworks.launch import targets  # noqa: PLC0415  heavy
    from cosmic.search.study import export as exporting  # noqa: PLC0415  heavy

    if to == STANDARD_OUTPUT:
        require(not json, "--json", json, "cannot share standard output with the trials")
        emit_data(exporting.study_lines(exporting.ExportedStudy.open(study, parts=parts)))
        return
    require(to not in targets, "--to", to, "is for designs; a study is written to FILE.csv, .jsonl or .parquet")
    check_writable(to, "--to")
    doing(f"writing {to}")
    trials, columns = exporting.export_trials(study, to, parts=parts)
    if json:
        emit_json({"study": study, "file": to, "trials": trials, "columns": columns})
    else:
        emit([f"{trials:,} trials with {columns} columns: {to}"])


# ------------------------------------------------------------------------------------------------------- designs


def _export_design(source: str, to: str, settings: list[str], out: str, json: bool) -> None:
    from cosmic.design.loading import parse_overrides  # noqa: PLC0415  heavy
    from cosmic.design.systems import is_model_at_system  # noqa: PLC0415  heavy
    from cosmic.evaluation import evaluate  # noqa: PLC0415  heavy
    from cosmic.frameworks import launch as launching  # noqa: PLC0415  heavy
    from cosmic.frameworks.served_launch import check_served_kind  # noqa: PLC0415  heavy
    from cosmic.search.mapping.design_completion import load_design  # noqa: PLC0415  heavy
    from cosmic.simulate.metrics import Infeasible  # noqa: PLC0415  heavy

    table = to == STANDARD_OUTPUT or Path(to).suffix in TABLES
    require(not table, "--to", to, f"is for studies; a design goes to one of {', '.join(launching.targets)}")
    launching.targets.check(to, "--to")
    if out:
        check_folder(out, "--out")
    overrides = parse_overrides(settings)
    assumed: tuple[str, ...] = ()
    if to in launching.ENGINES and is_model_at_system(source) and not _is_stated(overrides):
        point, assumed = _best_deployment(source, overrides, to)
    else:
        point = load_design(source, overrides)
    check_served_kind(point, to)  # whether or not the design could run
    outcome = evaluate(point)
    if isinstance(outcome, Infeasible):
        if json:
            emit_json({"feasible": False, "reasons": list(outcome.reasons), "identity": point.identity})
        else:
            print_sentences([f"cannot run: {reason}" for reason in outcome.reasons])
        raise typer.Exit(NO_FEASIBLE_DESIGN)
    doing(f"writing for {to}")
    launch = launching.targets[to](point)
    launch = replace(launch, warnings=(*(f"assumed: {each}" for each in assumed), *launch.warnings))
    whole = launch.traces is None or bool(out)
    require(whole, "--out", out, f"{to} reads files, traces among them: name a folder for them")
    written = launching.write_launch(launch, out) if out else []
    if json:
        emit_json(_export_data(to, launch, launching.render_script(launch)))
    elif out:
        complain(f"cosmic export: {warning}" for warning in launch.warnings)
        emit([f"{launch.about}: {len(written):,} files in {out}"])
        if to == "astra-sim":
            emit_commands({_simulate_command(out): "simulate it"})
    else:
        emit_data(launching.render_script(launch).removesuffix("\n").split("\n"))


def _is_stated(overrides: dict[str, Any]) -> bool:
    """Return whether overrides ask for a single step, or have a whole load: then nothing of it is to be assumed."""
    from cosmic.design.field_paths import full_path  # noqa: PLC0415  heavy

    stated = {full_path(path) for path in overrides}
    many = {"serving.load.rate", "serving.load.concurrency"} & stated
    return "workload.task" in stated or (bool(many) and {"serving.load.isl", "serving.load.osl"} <= stated)


def _best_deployment(source: str, overrides: dict[str, Any], to: str) -> tuple[DesignPoint, tuple[str, ...]]:
    """Return what `cosmic serve` says of MODEL@SYSTEM: its best deployment for a usual load, and what it assumed."""
    from cosmic.search.advice.service_question import Asked, read_service  # noqa: PLC0415  heavy
    from cosmic.search.advice.serving_answers import answer_service  # noqa: PLC0415  heavy

    doing("looking for a mapping")
    engine = "" if {"engine", "serving.engine"} & overrides.keys() else "vllm" if to == "dynamo" else to
    service = read_service(source, overrides, Asked(engine=engine))
    stated = f"the load is a usual one: state yours with 'cosmic serve {source} … --save FILE', and export FILE"
    return answer_service(service, []).design, (*service.assumed, stated)


def _export_data(to: str, launch: Launch, script: str) -> dict[str, object]:
    found: dict[str, object] = {
        "to": to,
        "command": list(launch.command),
        "arguments": dict(launch.arguments),
        "environment": dict(launch.environment),
        "files": dict(launch.files),
        "warnings": list(launch.warnings),
    }
    if launch.pools:
        found |= {"pools": {name: dict(given) for name, given in launch.pools.items()}, "script": script}
    return found if launch.traces is None else {**found, "traces": len(launch.traces.ranks)}


def _simulate_command(folder: str) -> str:
    """Return the command that simulates the files."""
    place = Path(folder)
    files = {
        "--workload": place / "trace",
        "--comm-groups": place / "comm_groups.json",
        "--system": place / "system.json",
        "--network": place / "network.yml",
        "--remote-memory": place / "memory.json",
    }
    return "cosmic simulate " + " ".join(f"{name} {shlex.quote(str(path))}" for name, path in files.items())


# --------------------------------------------------------------------------------------
# `cosmic import`: a launch script or configuration as a design, and what it achieves
# --------------------------------------------------------------------------------------

import_app = new_app()


@import_app.command()
def import_(  # noqa: PLR0913, PLR0917  its options
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
    found = import_launch(
        file,
        origin,
        system=system,
        model=model,
        overrides=parse_overrides(settings),
        defines=parse_defines(define),
    )
    outcome = evaluate(found.point)
    if out:
        write_text(out, found.text, "--out")
    if json:
        emit_json(_import_data(found, outcome, out))
    elif out:
        emit([*_import_notes(found), "", *_import_verdict(found, outcome), "", "next:"])
        emit_commands(_next_import_commands(out, found))
    else:
        lines = [
            *_import_notes(found),
            *_import_verdict(found, outcome),
            "next: add --out design.yaml, then cosmic evaluate design.yaml",
        ]
        emit_data([*(f"# {line}" for line in lines), *found.text.rstrip("\n").split("\n")])


def _import_notes(found: Imported) -> list[str]:
    """Return what was read: the design, what was assumed, what is not modelled."""
    from cosmic.search.design_wording import design_in_words  # noqa: PLC0415  heavy

    lines = [design_in_words(found.point)]
    if found.said:
        lines.append(f"accelerators: {found.said}")
    lines += [f"assumed: {each}" for each in found.assumed]
    return lines + [f"not modelled: {each.argument} ({each.why})" for each in found.not_modelled]


def _import_verdict(found: Imported, outcome: Metrics | Infeasible) -> list[str]:
    """Return what `cosmic evaluate` says, in two lines."""
    from cosmic.simulate.metrics import Infeasible  # noqa: PLC0415  heavy
    from cosmic.simulate.step_evaluation import expected_in_words  # noqa: PLC0415  heavy

    if isinstance(outcome, Infeasible):
        return [f"cannot run: {reason}" for reason in outcome.reasons]
    used, there = outcome.memory_bytes / 2**30, found.point.memory.capacity_bytes / 2**30
    return [
        f"{format_seconds(outcome.step_s)} per step · {outcome.throughput_per_s:,.0f} {outcome.counted}/s"
        f" · {100 * outcome.mfu:.1f} % MFU · fits: {used:.1f} of {there:.4g} GiB",
        expected_in_words(outcome),
    ]


def _next_import_commands(design: str, found: Imported) -> dict[str, str]:
    """Return what to do next, each with its purpose."""
    name = shlex.quote(design)
    target = "megatron" if found.origin == "nemo" else found.origin
    other = "full" if found.point.workload.recompute == "none" else "none"
    return {
        f"cosmic evaluate {name}": "what bounds it, and what would help most",
        f"cosmic sweep {name} --vary tp=1,2,4,8": "one field at a time",
        f"cosmic diff {name} {name} --set-b recompute={other}": "what a change is worth",
        f"cosmic export {name} --to {target}": "back to launch arguments",
    }


def _import_data(found: Imported, outcome: Metrics | Infeasible, out: str) -> dict[str, object]:
    from cosmic.simulate.metrics import Infeasible  # noqa: PLC0415  heavy

    failed = isinstance(outcome, Infeasible)
    numbers = ("step_s", "tokens_per_s", "mfu", "memory_bytes")
    return {
        "from": found.origin,
        "file": found.file,
        "identity": found.point.identity,
        "design": found.tree,
        "accelerators": found.point.network.npus,
        "said": found.said,
        "assumed": list(found.assumed),
        "not_modelled": [{"argument": each.argument, "why": each.why} for each in found.not_modelled],
        "feasible": not failed,
        "reasons": list(outcome.reasons) if isinstance(outcome, Infeasible) else [],
        **{name: None if failed else getattr(outcome, name) for name in numbers},
        "out": out or None,
    }


# --------------------------------------------------------------------------------------
# `cosmic show`: one design, complete
# --------------------------------------------------------------------------------------

show_app = new_app()


@show_app.command()
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
        found = {"identity": point.identity, "invalid": why_invalid(point), "design": design_tree(point)}
        emit_json(found | ({"assumed": list(assumed)} if assumed else {}))
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


# --------------------------------------------------------------------------------------
# `cosmic workload`: the operators, collectives and memory of one rank
# --------------------------------------------------------------------------------------

workload_app = new_app()


@workload_app.command()
def workload(
    design: Design,
    settings: Settings = [],  # noqa: B006  typer copies it
    why: Annotated[bool, typer.Option("--why", help="List every collective with its reason, instead of sums.")] = False,
    json: Json = False,
) -> None:
    """Print the operators, collectives and memory of one step, on the busiest rank of a design."""
    from cosmic.design.design_batch import batch_of  # noqa: PLC0415  heavy
    from cosmic.design.loading import parse_overrides  # noqa: PLC0415  heavy
    from cosmic.evaluation import step_of  # noqa: PLC0415  heavy
    from cosmic.search.mapping.design_completion import load_design  # noqa: PLC0415  heavy
    from cosmic.simulate.analytic_step import bounding_profile  # noqa: PLC0415  heavy
    from cosmic.workload.mapping_rules import invalid_reasons  # noqa: PLC0415  heavy
    from cosmic.workload.mesh_sizes import sizes_of  # noqa: PLC0415  heavy

    point = step_of(load_design(design, parse_overrides(settings)))
    step = bounding_profile(batch_of(point))
    degrees = {axis: int(sizes_of(batch_of(point))[axis]) for axis in ("dp", "tp", "cp", "pp", "ep", "etp", "edp")}
    degrees["oep"] = degrees["ep"]
    work = summarize_operators(
        replace(operator.use, runs=operator.runs) for operator in step.operators if operator.runs
    )
    sent = explain_collectives(step.collectives, degrees) if why else summarize_collectives(step.collectives, degrees)
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
    print_sentences([f"cannot run: {reason}" for reason in invalid_reasons(point)])
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


def explain_collectives(found: Iterable[CollectiveUse], degrees: Mapping[str, int]) -> list[dict[str, Any]]:
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
        for use in found
        if float(use.group) > 1 and float(use.calls) > 0
    ]


PARTS = {"oep": "ep", "idp": "dp", "odp": "dp", "iedp": "edp", "oedp": "edp"}
"""Parts of axes, and which one they are of."""


def _axes_of_group(use: CollectiveUse, degrees: Mapping[str, int]) -> str:
    """Return the axes along which there is more than one rank."""
    return " · ".join(PARTS.get(axis, axis) for axis in use.axes if degrees.get(axis, use.group) > 1)


def summarize_collectives(found: Iterable[CollectiveUse], degrees: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return the collectives of groups of more than one rank, alike ones together, the most bytes first."""
    table: dict[tuple[Any, ...], float] = {}
    for use in found:
        if float(use.group) > 1 and float(use.calls) > 0:
            key = (use.phase, use.kind, _axes_of_group(use, degrees), int(use.group), float(use.bytes), use.overlaps)
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
