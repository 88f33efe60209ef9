"""Programs as models: `cosmic model show`, what one has; `cosmic model shard`, its best sharding over a mesh."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from cosmic.base.errors import require
from cosmic.cli import value_completion
from cosmic.cli.console import MORE, Json, emit_commands, emit_json, emit_table, format_seconds, print_sentences
from cosmic.cli.output_streams import FAILED, emit

if TYPE_CHECKING:
    from cosmic.cli.answers.design_answers import (
        CatalogModelAnswer,
        ModelProgramAnswer,
        ProgramOperatorRow,
    )
    from cosmic.search.sharding.sharding_result import Sent, Sharded


# ---- `cosmic model show`: a model of the catalog; or what a program has, and the model that it is

Listed = list[str]


def show(
    source: Annotated[
        str,
        typer.Argument(
            metavar="MODEL|PROGRAM",
            help="A model of the catalog; or a program: a YAML file, FILE.py:function or FILE.py:Module.",
            autocompletion=value_completion.complete_models,
        ),
    ],
    shapes: Annotated[
        Listed, typer.Option("--shape", help="An argument of a function: 8x1024, 'int32 8x1024', '{w: 64x64}'.")
    ] = [],  # noqa: B006  typer copies it
    dims: Annotated[Listed, typer.Option("--dim", help="Name a dimension: batch=0:0 is the first of argument 0.")] = [],  # noqa: B006
    annotate: Annotated[
        Listed, typer.Option("--annotate", help="Split a tensor over axes of the mesh: 'w1: [_, tp]'.")
    ] = [],  # noqa: B006
    out: Annotated[
        Path | None, typer.Option("--out", help="Write a program as the file of a model, for other commands.")
    ] = None,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON Schema of programs in YAML.")] = False,
    json: Json = False,
) -> None:
    """Show a model of the catalog, or the operators of a program with their flop; or write a program as a model."""
    from cosmic.workload.user_programs.program_models import names_program  # noqa: PLC0415  heavy

    if schema:
        from cosmic.workload.user_programs.program_yaml import json_schema  # noqa: PLC0415  heavy

        emit_json(json_schema())
    elif names_program(source):
        _show_program(source, shapes, dims, annotate, out, json)
    else:
        options = {"--shape": shapes, "--dim": dims, "--annotate": annotate, "--out": out}
        for option, value in options.items():
            require(not value, option, value, f"is for programs; {source} is no YAML file or FILE.py:function")
        _show_catalog_model(source, json)


def _show_catalog_model(name: str, json: bool) -> None:
    from cosmic.base.units import BYTES, format_quantity  # noqa: PLC0415  heavy
    from cosmic.workload.user_programs.program_models import show_catalog_model  # noqa: PLC0415  heavy

    shown = show_catalog_model(name)
    if json:
        answer = cast("CatalogModelAnswer", shown)
        emit_json(answer)
        return
    parameters, active, sequence = shown["parameters"], shown["active_parameters"], shown["sequence"]
    emit_table(shown["name"], ["field", "value"], [[key, _shape_cell(value)] for key, value in shown["shape"].items()])
    used = "" if active == parameters else f", {active:,} of them for one token"
    weights = format_quantity(float(f"{shown['bf16_bytes']:.4g}"), BYTES)
    emit(["", f"{parameters:,} parameters{used} · {weights} of weights in bf16"])
    print_sentences([] if sequence is None else [f"usual sequence: {sequence:,} tokens"])
    print_sentences([f"source: {shown['source']}"] if shown["source"] else [])


def _shape_cell(value: Any) -> Any:
    """Return a field of a model for a table: keys and values of a nested one in a line."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {each}" for key, each in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else value


def _show_program(
    source: str, shapes: list[str], dims: list[str], annotate: list[str], out: Path | None, json: bool
) -> None:
    from cosmic.base.files import write_text  # noqa: PLC0415  heavy
    from cosmic.design import schema as fields  # noqa: PLC0415  heavy
    from cosmic.design.plain_data import dump_yaml  # noqa: PLC0415  heavy
    from cosmic.workload.user_programs.program_graph import (  # noqa: PLC0415  heavy
        parse_annotations,
        read_annotations,
    )
    from cosmic.workload.user_programs.program_models import (  # noqa: PLC0415  heavy
        describe_operators,
        load_program,
        model_of,
        parse_dims,
    )

    program = read_annotations(load_program(source, shapes=shapes, dims=parse_dims(dims)), parse_annotations(annotate))
    model = model_of(program)
    if out is not None:
        write_text(out, dump_yaml({"model": fields.write_value(model, brief=True)}), "--out")
    rows, flop = describe_operators(program)
    if json:
        answer: ModelProgramAnswer = {
            "name": program.name,
            "flop": flop,
            "parameters": model.parameters,
            "dims": program.sizes,
            "operators": cast("list[ProgramOperatorRow]", rows),
        }
        emit_json(answer)
        return
    columns = ["part", "operator", "kind", "reads", "makes", "work_flop"]
    emit_table(
        f"{program.name}: operators",
        columns,
        [[row["part"], row["name"], row["kind"], row["reads"], row["makes"], row["flop"]] for row in rows],
    )
    emit([""])
    emit_table("dimensions", ["dimension", "size"], [[dim, size] for dim, size in program.sizes.items()])
    emit(["", f"{model.parameters:,} parameters · {flop:.4g} flop forward · {model.layers} layers"])
    if out is not None:
        print_sentences([f"wrote {out}: 'cosmic evaluate {out}@dgx-h100:8'"])


# ---- `cosmic model shard`: the best sharding of a program over a mesh of devices

SHOWN = 24
"""Collectives of the table; JSON has all."""
MOST_WARNINGS = 8


def shard(  # noqa: PLR0913, PLR0917  one option each
    program: Annotated[
        str,
        typer.Argument(
            metavar="PROGRAM",
            help="A model of the catalog, or a program: my.yaml, FILE.py:function.",
            autocompletion=value_completion.complete_models,
        ),
    ],
    mesh: Annotated[str, typer.Option(metavar="x=8,y=16", help="Axes and devices along each, the last one innermost.")],
    annotate: Annotated[
        list[str],
        typer.Option(
            metavar="'w1: [x, _]'", help="Fix a tensor: an axis, x+y, _ for none or ? for any, for each dimension."
        ),
    ] = [],  # noqa: B006  typer copies it
    system: Annotated[
        str | None,
        typer.Option(
            metavar="SYSTEM",
            help="Price seconds on it; without, bytes on the wire.",
            autocompletion=value_completion.complete_systems,
        ),
    ] = None,
    memory: Annotated[str | None, typer.Option(metavar="'80 GB'", help="Most memory of a device.")] = None,
    objective: Annotated[
        str,
        typer.Option(
            help="step (default), bytes or memory.",
            autocompletion=value_completion.complete_one_of("step", "bytes", "memory"),
        ),
    ] = "step",
    mode: Annotated[
        str,
        typer.Option(
            help="best, or as-compiled: no search, the rules of XLA.",
            autocompletion=value_completion.complete_one_of("best", "as-compiled"),
            rich_help_panel=MORE,
        ),
    ] = "best",
    forward: Annotated[
        bool, typer.Option("--forward", help="The forward pass alone; else a training step.", rich_help_panel=MORE)
    ] = False,
    free: Annotated[
        bool, typer.Option("--free", help="Leave out the annotations of the program's file.", rich_help_panel=MORE)
    ] = False,
    batch: Annotated[int | None, typer.Option(metavar="N", help="Sequences or samples of a step.")] = None,
    sequence: Annotated[
        int | None, typer.Option(metavar="N", help="Tokens of a sequence.", rich_help_panel=MORE)
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a strategy, for workload.strategies of a design.")
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Show every tensor, not only weights and streams.", rich_help_panel=MORE)
    ] = False,
    json: Json = False,
) -> None:
    """Print the annotations that make a program's step shortest on a mesh, why, and how far from the best they are."""
    from cosmic.search.sharding.automatic_sharding import shard as run  # noqa: PLC0415  heavy
    from cosmic.search.sharding.program_parts import read_program  # noqa: PLC0415  heavy

    sharded = run(
        read_program(program),
        mesh,
        annotate=annotate,
        system=system,
        memory=memory,
        objective=objective,  # type: ignore[arg-type]  # checked there
        mode=mode.replace("-", "_"),  # type: ignore[arg-type]
        training=not forward,
        batch=batch,
        sequence=sequence,
        free=free,
    )
    if out is not None:
        sharded = replace(sharded, written=_write_strategies(sharded, out))
    if json:
        emit_json(sharded)
    else:
        _print_sharding(sharded, full)
        if out is not None:
            _print_written(out, sharded.written)
    if not sharded.fits:
        raise typer.Exit(FAILED)


def _write_strategies(sharded: Sharded, out: Path) -> tuple[str, ...]:
    """Write the strategies that say what was found, and a design that has them; return the files."""
    from cosmic.base.files import check_writable, make_folder, write_text  # noqa: PLC0415
    from cosmic.design.plain_data import dump_yaml  # noqa: PLC0415
    from cosmic.search.sharding.program_parts import design_with, strategy_tables  # noqa: PLC0415

    tables = strategy_tables(sharded, out.stem)
    if out.parent.name == "strategies":
        make_folder(out.parent, "--out")
    check_writable(out, "--out")
    files = []
    for name, table in tables.items():
        path = out.with_name(f"{name}{out.suffix or '.yaml'}")
        write_text(path, dump_yaml(table), "--out")
        files.append(str(path))
    design = out.with_name(f"{out.stem}.design{out.suffix or '.yaml'}")
    if out.parent.name == "strategies":
        design = out.parent.parent / design.name
    write_text(design, dump_yaml(design_with(sharded, list(tables))), "--out")
    return (*files, str(design))


def _cost_data(sharded: Sharded, value: float) -> str:
    from cosmic.search.sharding.automatic_sharding import format_bytes  # noqa: PLC0415

    return format_seconds(value) if sharded.unit == "seconds" else format_bytes(value)


def _print_sharding(sharded: Sharded, full: bool) -> None:
    from cosmic.search.sharding.automatic_sharding import COLLECTIVE_WORDS, format_bytes  # noqa: PLC0415

    shown = [
        annotation
        for annotation in sharded.annotations
        if full
        or annotation.given
        or annotation.role in ("weight", "input", "index")
        or annotation.tensor in ("x", "y", "attended")
    ]
    emit_table(
        f"{sharded.program} on {sharded.mesh}",
        ["part", "tensor", "annotation", "why"],
        [
            [each.part, each.tensor, f"[{', '.join(each.entries)}]" + (" *" if each.given else ""), each.reason]
            for each in shown
        ],
    )
    emit([""])
    sent = sorted(sharded.collectives, key=lambda each: -each.cost)
    emit_table(
        "collectives",
        ["part", "collective", "over", "of", "pass", "calls", "bytes", "cost"],
        [
            [
                each.part,
                COLLECTIVE_WORDS[each.kind],
                " ".join(each.axes),
                each.tensor,
                each.phase,
                each.calls,
                format_bytes(each.bytes),
                _cost_data(sharded, each.cost),
            ]
            for each in sent[:SHOWN]
        ],
    )
    emit([""])
    if len(sent) > SHOWN:
        print_sentences([f"and {len(sent) - SHOWN} smaller ones; --json has all"])
    print_sentences(_summarize_sharding(sharded, sent))
    print_sentences(
        [f"{use.operator} reads {use.tensor} as [{use.sharding}]: state it there" for use in sharded.uses[:SHOWN]]
    )
    print_sentences([f"warning: {warning}" for warning in sharded.warnings[:MOST_WARNINGS]])


def _summarize_sharding(sharded: Sharded, sent: list[Sent]) -> list[str]:
    from cosmic.search.sharding.automatic_sharding import format_bytes  # noqa: PLC0415

    words = []
    if sharded.unit == "seconds":
        hidden = f"{format_seconds(sharded.hidden)} of collectives of weights beside it"
        words.append(
            f"step {format_seconds(sharded.step)}: {format_seconds(sharded.compute)} of compute, {format_seconds(sharded.update)} of the "
            f"optimizer, {format_seconds(sharded.exposed)} of exposed collectives, {hidden}"
        )
    calls = sum(each.calls for each in sent)
    words.append(
        f"{format_bytes(sharded.wire_bytes)} sent by each device, in {calls:,} call{'' if calls == 1 else 's'}"
    )
    limit = f" of {format_bytes(sharded.limit_bytes)}" if sharded.limit_bytes is not None else ""
    words.append(f"memory {format_bytes(sharded.memory_bytes)}{limit} per device")
    words += sharded.answer.reasons
    if sharded.proof:
        words.append(f"{sharded.proof} (bound {_bound_in_words(sharded)})")
    return words


def _bound_in_words(sharded: Sharded) -> str:
    from cosmic.search.sharding.automatic_sharding import format_bytes  # noqa: PLC0415

    return (
        format_seconds(sharded.bound)
        if sharded.unit == "seconds" and sharded.objective != "memory"
        else format_bytes(sharded.bound)
    )


def _print_written(out: Path, written: tuple[str, ...]) -> None:
    emit([""])
    print_sentences([f"wrote {', '.join(written)}"])
    folder = out.parent.parent if out.parent.name == "strategies" else out.parent
    emit_commands({f"COSMIC_PATH={folder} cosmic evaluate {written[-1]}": "the whole step with these strategies"})
