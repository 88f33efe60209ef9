"""`cosmic export`: a study as a table, or a design as the launch arguments of another program."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cosmic.cli.candidates import designs, one_of
from cosmic.cli.console import Json, Settings, complain, doing, emit, emit_commands, emit_data, emit_json, new_app, say
from cosmic.errors import require
from cosmic.files import check_folder, check_writable, is_file, is_folder

if TYPE_CHECKING:
    from cosmic.design.point import DesignPoint
    from cosmic.launching.launch import Launch

app = new_app()
STANDARD_OUTPUT = "-"
TABLES = (".csv", ".jsonl", ".parquet")
NO_FEASIBLE_DESIGN = 1


@app.command()
def export(
    source: Annotated[
        str,
        typer.Argument(
            metavar="DIR|DESIGN", help="Directory of a study; MODEL@SYSTEM or a YAML file.", autocompletion=designs
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
            autocompletion=one_of(
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
    from cosmic.exploration.studies import export as exporting  # noqa: PLC0415  heavy
    from cosmic.launching.launch import targets  # noqa: PLC0415  heavy

    if to == STANDARD_OUTPUT:
        require(not json, "--json", json, "cannot share standard output with the trials")
        emit_data(exporting.study_lines(exporting.Source.at(study, parts=parts)))
        return
    require(to not in targets, "--to", to, "is for designs; a study is written to FILE.csv, .jsonl or .parquet")
    check_writable(to, "--to")
    doing(f"writing {to}")
    trials, columns = exporting.export(study, to, parts=parts)
    if json:
        emit_json({"study": study, "file": to, "trials": trials, "columns": columns})
    else:
        emit([f"{trials:,} trials with {columns} columns: {to}"])


# ------------------------------------------------------------------------------------------------------- designs


def _export_design(source: str, to: str, settings: list[str], out: str, json: bool) -> None:
    from cosmic.catalog.systems import names_both  # noqa: PLC0415  heavy
    from cosmic.evaluation import Infeasible, evaluate  # noqa: PLC0415  heavy
    from cosmic.launching import launch as launching  # noqa: PLC0415  heavy
    from cosmic.launching.served import check_kind  # noqa: PLC0415  heavy
    from cosmic.loading.designs import parse_overrides  # noqa: PLC0415  heavy
    from cosmic.mapping.completing import load_design  # noqa: PLC0415  heavy

    table = to == STANDARD_OUTPUT or Path(to).suffix in TABLES
    require(not table, "--to", to, f"is for studies; a design goes to one of {', '.join(launching.targets)}")
    launching.targets.check(to, "--to")
    if out:
        check_folder(out, "--out")
    overrides = parse_overrides(settings)
    assumed: tuple[str, ...] = ()
    if to in launching.ENGINES and names_both(source) and not _is_stated(overrides):
        point, assumed = _deployed(source, overrides, to)
    else:
        point = load_design(source, overrides)
    check_kind(point, to)  # whether or not the design could run
    outcome = evaluate(point)
    if isinstance(outcome, Infeasible):
        if json:
            emit_json({"feasible": False, "reasons": list(outcome.reasons), "identity": point.identity})
        else:
            say([f"cannot run: {reason}" for reason in outcome.reasons])
        raise typer.Exit(NO_FEASIBLE_DESIGN)
    doing(f"writing for {to}")
    launch = launching.targets[to](point)
    launch = replace(launch, warnings=(*(f"assumed: {each}" for each in assumed), *launch.warnings))
    whole = launch.traces is None or bool(out)
    require(whole, "--out", out, f"{to} reads files, traces among them: name a folder for them")
    written = launching.write(launch, out) if out else []
    if json:
        emit_json(_as_json(to, launch, launching.script(launch)))
    elif out:
        complain(f"cosmic export: {warning}" for warning in launch.warnings)
        emit([f"{launch.about}: {len(written):,} files in {out}"])
        if to == "astra-sim":
            emit_commands({_simulation(out): "simulate it"})
    else:
        emit_data(launching.script(launch).removesuffix("\n").split("\n"))


def _is_stated(overrides: dict[str, Any]) -> bool:
    """Return whether overrides ask for a single step, or have a whole load: then nothing of it is to be assumed."""
    from cosmic.design.paths import full_path  # noqa: PLC0415  heavy

    stated = {full_path(path) for path in overrides}
    many = {"serving.load.rate", "serving.load.concurrency"} & stated
    return "workload.task" in stated or (bool(many) and {"serving.load.isl", "serving.load.osl"} <= stated)


def _deployed(source: str, overrides: dict[str, Any], to: str) -> tuple[DesignPoint, tuple[str, ...]]:
    """Return what `cosmic serve` says of MODEL@SYSTEM: its best deployment for a usual load, and what it assumed."""
    from cosmic.advice.serving import answer  # noqa: PLC0415  heavy
    from cosmic.loading.services import Asked, read_service  # noqa: PLC0415  heavy

    doing("looking for a mapping")
    engine = "" if {"engine", "serving.engine"} & overrides.keys() else "vllm" if to == "dynamo" else to
    service = read_service(source, overrides, Asked(engine=engine))
    stated = f"the load is a usual one: state yours with 'cosmic serve {source} … --save FILE', and export FILE"
    return answer(service, []).design, (*service.assumed, stated)


def _as_json(to: str, launch: Launch, script: str) -> dict[str, object]:
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


def _simulation(folder: str) -> str:
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
