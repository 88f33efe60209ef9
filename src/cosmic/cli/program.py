"""`cosmic program`: what a program has, and the model that it is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cosmic.cli.console import Json, emit_json, emit_table, new_app, say
from cosmic.cli.output import emit

if TYPE_CHECKING:
    from cosmic.programs.program import Program

app = new_app()
Listed = list[str]


@app.command()
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
    from cosmic.catalog.yaml_files import dump_yaml  # noqa: PLC0415  heavy
    from cosmic.design import schema as fields  # noqa: PLC0415  heavy
    from cosmic.files import write_text  # noqa: PLC0415  heavy
    from cosmic.programs import load, model_of, read_annotations  # noqa: PLC0415  heavy
    from cosmic.programs.annotating import parse_annotations  # noqa: PLC0415  heavy
    from cosmic.programs.format import json_schema  # noqa: PLC0415  heavy
    from cosmic.programs.sources import parse_dims  # noqa: PLC0415  heavy

    if schema:
        emit_json(json_schema())
        return
    found = read_annotations(load(source, shapes=shapes, dims=parse_dims(dims)), parse_annotations(annotate))
    model = model_of(found)
    if out is not None:
        write_text(out, dump_yaml({"model": fields.write(model, brief=True)}), "--out")
    rows, totals = describe(found)
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
        say([f"wrote {out}: 'cosmic evaluate {out}@dgx-h100:8'"])


def describe(found: Program) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return every operator with its flop, in its part, and the flop of all of them."""
    from cosmic.workload.attended import causal_share  # noqa: PLC0415  heavy
    from cosmic.workload.operators import flop, unsharded  # noqa: PLC0415  heavy

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
                "reads": ", ".join(f"{each.name}[{' '.join(each.stored_dims)}]" for each in operator.inputs),
                "makes": " ".join(operator.outputs[0].dims),
                "flop": work,
            }
        )
    return rows, {"flop": total}
