"""`cosmic shard`: the best sharding of a program over a mesh of devices."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cosmic.cli import candidates
from cosmic.cli.console import Json, emit, emit_commands, emit_json, emit_table, new_app, say
from cosmic.cli.evaluate import seconds
from cosmic.cli.exit_codes import FAILED

if TYPE_CHECKING:
    from cosmic.autosharding.result import Sent, Sharded

app = new_app()
SHOWN = 24
"""Collectives of the table; JSON has all."""
MOST_WARNINGS = 8
PROVEN = 1e-9
"""A gap that is rounding alone."""


@app.command()
def shard(  # noqa: PLR0913, PLR0917  one option each
    program: Annotated[
        str,
        typer.Argument(
            metavar="PROGRAM",
            help="A model of the catalog, or a program: my.yaml, FILE.py:function.",
            autocompletion=candidates.models,
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
            metavar="SYSTEM", help="Price seconds on it; without, bytes on the wire.", autocompletion=candidates.systems
        ),
    ] = None,
    memory: Annotated[str | None, typer.Option(metavar="'80 GB'", help="Most memory of a device.")] = None,
    objective: Annotated[
        str,
        typer.Option(
            help="step (default), bytes or memory.", autocompletion=candidates.one_of("step", "bytes", "memory")
        ),
    ] = "step",
    mode: Annotated[
        str,
        typer.Option(
            help="best, or as-compiled: no search, the rules of XLA.",
            autocompletion=candidates.one_of("best", "as-compiled"),
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
    from cosmic.autosharding.reading import read_program  # noqa: PLC0415  heavy
    from cosmic.autosharding.sharding import shard as run  # noqa: PLC0415  heavy

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
    written = [] if out is None else _write(found, out)
    if json:
        emit_json(_data(found, written))
    else:
        _print(found, full)
        if out is not None:
            _print_written(out, written)
    if not found.fits:
        raise typer.Exit(FAILED)


def _write(found: Sharded, out: Path) -> list[str]:
    """Write the strategies that say what was found, and a design that has them; return the files."""
    from cosmic.autosharding.exporting import design_with, strategies  # noqa: PLC0415
    from cosmic.catalog.yaml_files import dump_yaml  # noqa: PLC0415
    from cosmic.files import check_writable, make_folder, write_text  # noqa: PLC0415

    tables = strategies(found, out.stem)
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
    write_text(design, dump_yaml(design_with(found, list(tables))), "--out")
    return [*files, str(design)]


def _data(found: Sharded, written: list[str]) -> dict[str, Any]:
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
                "part": each.part,
                "tensor": each.tensor,
                "role": each.role,
                "dims": list(each.dims),
                "axes": each.entries,
                "partial": list(each.sharding.partial),
                "given": each.given,
                "reason": each.reason,
            }
            for each in found.annotations
        ],
        "uses": [{**vars(each), "sharding": str(each.sharding)} for each in found.uses],
        "collectives": [asdict(each) for each in found.collectives],
        "warnings": list(found.warnings),
        "written": written,
    }


def _cost(found: Sharded, value: float) -> str:
    from cosmic.autosharding.explaining import in_bytes  # noqa: PLC0415

    return seconds(value) if found.unit == "seconds" else in_bytes(value)


def _print(found: Sharded, full: bool) -> None:
    from cosmic.autosharding.explaining import WORDS, in_bytes  # noqa: PLC0415

    shown = [each for each in found.annotations if full or each.given or _main(each.role, each.tensor)]
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
                WORDS[each.kind],
                " ".join(each.axes),
                each.tensor,
                each.phase,
                each.calls,
                in_bytes(each.bytes),
                _cost(found, each.cost),
            ]
            for each in sent[:SHOWN]
        ],
    )
    emit([""])
    if len(sent) > SHOWN:
        say([f"and {len(sent) - SHOWN} smaller ones; --json has all"])
    say(_summary(found, sent))
    say([f"{each.operator} reads {each.tensor} as [{each.sharding}]: state it there" for each in found.uses[:SHOWN]])
    say([f"warning: {each}" for each in found.warnings[:MOST_WARNINGS]])


def _main(role: str, tensor: str) -> bool:
    return role in ("weight", "input", "index") or tensor in ("x", "y", "attended")


def _summary(found: Sharded, sent: list[Sent]) -> list[str]:
    from cosmic.autosharding.explaining import in_bytes  # noqa: PLC0415

    words = []
    if found.unit == "seconds":
        hidden = f"{seconds(found.hidden)} of collectives of weights beside it"
        words.append(
            f"step {seconds(found.step)}: {seconds(found.compute)} of compute, {seconds(found.update)} of the "
            f"optimizer, {seconds(found.exposed)} of exposed collectives, {hidden}"
        )
    calls = sum(each.calls for each in sent)
    words.append(f"{in_bytes(found.wire_bytes)} sent by each device, in {calls:,} call{'' if calls == 1 else 's'}")
    limit = f" of {in_bytes(found.limit_bytes)}" if found.limit_bytes is not None else ""
    words.append(f"memory {in_bytes(found.memory_bytes)}{limit} per device")
    if not found.fits:
        words.append("no sharding fits into that memory: this one needs least, or nearly")
    if found.mode == "best" and found.fits:
        how = (
            "proven: no annotations are better"
            if found.gap <= PROVEN
            else f"at most {100 * found.gap:.2g} % above the best"
        )
        words.append(f"{how} (bound {_bound(found)})")
    return words


def _bound(found: Sharded) -> str:
    from cosmic.autosharding.explaining import in_bytes  # noqa: PLC0415

    return seconds(found.bound) if found.unit == "seconds" and found.objective != "memory" else in_bytes(found.bound)


def _print_written(out: Path, written: list[str]) -> None:
    emit([""])
    say([f"wrote {', '.join(written)}"])
    folder = out.parent.parent if out.parent.name == "strategies" else out.parent
    emit_commands({f"COSMIC_PATH={folder} cosmic evaluate {written[-1]}": "the whole step with these strategies"})
