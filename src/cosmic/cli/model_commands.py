"""Programs as models: `cosmic program`, what one has; `cosmic shard`, its best sharding over a mesh."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cosmic.cli import value_completion
from cosmic.cli.console import Json, emit_commands, emit_json, emit_table, new_app, print_sentences
from cosmic.cli.evaluate_command import format_seconds
from cosmic.cli.exit_codes import FAILED
from cosmic.cli.output_streams import emit

if TYPE_CHECKING:
    from cosmic.search.sharding.sharding_result import ShardingResult, TensorCollective
    from cosmic.workload.user_programs.program_graph import Program


# --------------------------------------------------------------------------------------
# `cosmic program`: what a program has, and the model that it is
# --------------------------------------------------------------------------------------

program_app = new_app()
Listed = list[str]


@program_app.command()
def program(  # noqa: PLR0913, PLR0917  as many as it has options
    source: Annotated[str, typer.Argument(metavar="PROGRAM", help="A YAML file, FILE.py:function or FILE.py:Module.")],
    shapes: Annotated[
        Listed, typer.Option("--shape", help="An argument of a function: 8x1024, 'int32 8x1024', '{w: 64x64}'.")
    ] = [],  # noqa: B006  typer copies it
    dims: Annotated[Listed, typer.Option("--dim", help="Name a dimension: batch=0:0 is the first of argument 0.")] = [],  # noqa: B006
    annotate: Annotated[
        Listed, typer.Option("--annotate", help="Split a tensor over axes of the mesh: 'w1: [_, tp]'.")
    ] = [],  # noqa: B006
    out: Annotated[
        Path | None, typer.Option("--out", help="Write it as the file of a model, for other commands.")
    ] = None,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON Schema of programs in YAML.")] = False,
    json: Json = False,
) -> None:
    """Show the operators of a program, with their flop, or write it as a model that other commands take."""
    from cosmic.base.files import write_text  # noqa: PLC0415  heavy
    from cosmic.design import schema as fields  # noqa: PLC0415  heavy
    from cosmic.design.plain_data import dump_yaml  # noqa: PLC0415  heavy
    from cosmic.workload.user_programs.program_graph import (  # noqa: PLC0415  heavy
        parse_annotations,
        read_annotations,
    )
    from cosmic.workload.user_programs.program_models import (  # noqa: PLC0415  heavy
        load_program,
        model_of,
        parse_dims,
    )
    from cosmic.workload.user_programs.program_yaml import json_schema  # noqa: PLC0415  heavy

    if schema:
        emit_json(json_schema())
        return
    found = read_annotations(load_program(source, shapes=shapes, dims=parse_dims(dims)), parse_annotations(annotate))
    model = model_of(found)
    if out is not None:
        write_text(out, dump_yaml({"model": fields.write_value(model, brief=True)}), "--out")
    rows, totals = describe_operators(found)
    totals["parameters"] = model.parameters
    if json:
        emit_json({"name": found.name, **totals, "dims": dict(found.sizes), "operators": rows})
        return
    columns = ["part", "operator", "kind", "reads", "makes", "work_flop"]
    emit_table(
        f"{found.name}: operators",
        columns,
        [[row[key] for key in ("part", "name", "kind", "reads", "makes", "flop")] for row in rows],
    )
    emit([""])
    emit_table("dimensions", ["dimension", "size"], [[dim, size] for dim, size in found.sizes.items()])
    emit(["", f"{model.parameters:,} parameters · {totals['flop']:.4g} flop forward · {model.layers} layers"])
    if out is not None:
        print_sentences([f"wrote {out}: 'cosmic evaluate {out}@dgx-h100:8'"])


def describe_operators(found: Program) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return every operator with its flop, in its part, and the flop of all of them."""
    from cosmic.workload.attended_keys import causal_share  # noqa: PLC0415  heavy
    from cosmic.workload.operator_kinds import flop, unsharded  # noqa: PLC0415  heavy

    sizes: dict[str, Any] = {**found.sizes, "visible": float(causal_share(found.sizes.get("sequence", 1)))}
    part_of = {name: part for part in found.parts for name in part.operators}
    rows, total = [], 0.0
    for operator in found.graph.operators:
        part = part_of.get(operator.name)
        work = float(flop(operator, unsharded(sizes), sizes))
        total += work * (part.repeat if part else 1)
        rows.append(
            {
                "part": "" if part is None else part.name if part.repeat == 1 else f"{part.name} × {part.repeat}",
                "name": operator.name,
                "kind": operator.kind,
                "reads": ", ".join(f"{input_.name}[{' '.join(input_.stored_dims)}]" for input_ in operator.inputs),
                "makes": " ".join(operator.outputs[0].dims),
                "flop": work,
            }
        )
    return rows, {"flop": total}


# --------------------------------------------------------------------------------------
# `cosmic shard`: the best sharding of a program over a mesh of devices
# --------------------------------------------------------------------------------------

shard_app = new_app()
SHOWN = 24
"""Collectives of the table; JSON has all."""
MOST_WARNINGS = 8
PROVEN = 1e-9
"""A gap that is rounding alone."""


@shard_app.command()
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
        ),
    ] = "best",
    forward: Annotated[bool, typer.Option("--forward", help="The forward pass alone; else a training step.")] = False,
    free: Annotated[bool, typer.Option("--free", help="Leave out the annotations of the program's file.")] = False,
    batch: Annotated[int | None, typer.Option(metavar="N", help="Sequences or samples of a step.")] = None,
    sequence: Annotated[int | None, typer.Option(metavar="N", help="Tokens of a sequence.")] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a strategy, for workload.strategies of a design.")
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Show every tensor, not only weights and streams.")] = False,
    json: Json = False,
) -> None:
    """Print the annotations that make a program's step shortest on a mesh, why, and how far from the best they are."""
    from cosmic.search.sharding.automatic_sharding import shard as run  # noqa: PLC0415  heavy
    from cosmic.search.sharding.sharded_programs import read_program  # noqa: PLC0415  heavy

    found = run(
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
    written = [] if out is None else _write_strategies(found, out)
    if json:
        emit_json(_sharding_data(found, written))
    else:
        _print_sharding(found, full)
        if out is not None:
            _print_written(out, written)
    if not found.fits:
        raise typer.Exit(FAILED)


def _write_strategies(found: ShardingResult, out: Path) -> list[str]:
    """Write the strategies that say what was found, and a design that has them; return the files."""
    from cosmic.base.files import check_writable, make_folder, write_text  # noqa: PLC0415
    from cosmic.design.plain_data import dump_yaml  # noqa: PLC0415
    from cosmic.search.sharding.sharded_programs import design_with_strategies, strategy_tables  # noqa: PLC0415

    tables = strategy_tables(found, out.stem)
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
    write_text(design, dump_yaml(design_with_strategies(found, list(tables))), "--out")
    return [*files, str(design)]


def _sharding_data(found: ShardingResult, written: list[str]) -> dict[str, Any]:
    return {
        "program": found.program,
        "mesh": found.mesh.sizes,
        "objective": found.objective,
        "mode": found.mode,
        "unit": found.unit,
        "value": found.value,
        "searched_value": found.searched_value,
        "bound": found.bound,
        "gap": found.gap,
        "exact": found.exact,
        "fits": found.fits,
        "limit_bytes": found.limit_bytes,
        "memory_bytes": found.memory_bytes,
        "compute": found.compute,
        "update": found.update,
        "exposed": found.exposed,
        "overlapped": found.hidden,
        "wire_bytes": found.wire_bytes,
        "operators": found.operators,
        "annotations": [
            {
                "part": annotation.part,
                "tensor": annotation.tensor,
                "role": annotation.role,
                "dims": list(annotation.dims),
                "axes": annotation.entries,
                "partial": list(annotation.sharding.partial),
                "given": annotation.given,
                "reason": annotation.reason,
            }
            for annotation in found.annotations
        ],
        "uses": [{**vars(use), "sharding": str(use.sharding)} for use in found.uses],
        "collectives": [asdict(collective) for collective in found.collectives],
        "warnings": list(found.warnings),
        "written": written,
    }


def _cost_data(found: ShardingResult, value: float) -> str:
    from cosmic.search.sharding.automatic_sharding import format_bytes  # noqa: PLC0415

    return format_seconds(value) if found.unit == "seconds" else format_bytes(value)


def _print_sharding(found: ShardingResult, full: bool) -> None:
    from cosmic.search.sharding.automatic_sharding import COLLECTIVE_WORDS, format_bytes  # noqa: PLC0415

    shown = [
        annotation
        for annotation in found.annotations
        if full or annotation.given or _main_annotations(annotation.role, annotation.tensor)
    ]
    emit_table(
        f"{found.program} on {found.mesh}",
        ["part", "tensor", "annotation", "why"],
        [
            [each.part, each.tensor, f"[{', '.join(each.entries)}]" + (" *" if each.given else ""), each.reason]
            for each in shown
        ],
    )
    emit([""])
    sent = sorted(found.collectives, key=lambda each: -each.cost)
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
                _cost_data(found, each.cost),
            ]
            for each in sent[:SHOWN]
        ],
    )
    emit([""])
    if len(sent) > SHOWN:
        print_sentences([f"and {len(sent) - SHOWN} smaller ones; --json has all"])
    print_sentences(_summarize_sharding(found, sent))
    print_sentences(
        [f"{use.operator} reads {use.tensor} as [{use.sharding}]: state it there" for use in found.uses[:SHOWN]]
    )
    print_sentences([f"warning: {warning}" for warning in found.warnings[:MOST_WARNINGS]])


def _main_annotations(role: str, tensor: str) -> bool:
    return role in ("weight", "input", "index") or tensor in ("x", "y", "attended")


def _summarize_sharding(found: ShardingResult, sent: list[TensorCollective]) -> list[str]:
    from cosmic.search.sharding.automatic_sharding import format_bytes  # noqa: PLC0415

    words = []
    if found.unit == "seconds":
        hidden = f"{format_seconds(found.hidden)} of collectives of weights beside it"
        words.append(
            f"step {format_seconds(found.step)}: {format_seconds(found.compute)} of compute, {format_seconds(found.update)} of the "
            f"optimizer, {format_seconds(found.exposed)} of exposed collectives, {hidden}"
        )
    calls = sum(each.calls for each in sent)
    words.append(f"{format_bytes(found.wire_bytes)} sent by each device, in {calls:,} call{'' if calls == 1 else 's'}")
    limit = f" of {format_bytes(found.limit_bytes)}" if found.limit_bytes is not None else ""
    words.append(f"memory {format_bytes(found.memory_bytes)}{limit} per device")
    if not found.fits:
        words.append("no sharding fits into that memory: this one needs least, or nearly")
    if found.mode == "best" and found.fits:
        how = (
            "proven: no annotations are better"
            if found.gap <= PROVEN
            else f"at most {100 * found.gap:.2g} % above the best"
        )
        words.append(f"{how} (bound {_bound_in_words(found)})")
    return words


def _bound_in_words(found: ShardingResult) -> str:
    from cosmic.search.sharding.automatic_sharding import format_bytes  # noqa: PLC0415

    return (
        format_seconds(found.bound)
        if found.unit == "seconds" and found.objective != "memory"
        else format_bytes(found.bound)
    )


def _print_written(out: Path, written: list[str]) -> None:
    emit([""])
    print_sentences([f"wrote {', '.join(written)}"])
    folder = out.parent.parent if out.parent.name == "strategies" else out.parent
    emit_commands({f"COSMIC_PATH={folder} cosmic evaluate {written[-1]}": "the whole step with these strategies"})
