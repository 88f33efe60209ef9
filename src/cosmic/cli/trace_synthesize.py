"""`cosmic trace synthesize`: new traces from a model fitted on given ones."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Iterable
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cosmic.cli.console import Json, doing, emit, emit_commands, emit_json, emit_table
from cosmic.cli.trace_files import check_prefix, make_room, require_space
from cosmic.errors import require
from cosmic.files import write_all

if TYPE_CHECKING:
    from cosmic.synthetic.model import Length, Model, Synthetic
    from cosmic.synthetic.plans import Plan
    from cosmic.synthetic.reporting import Report

Prefixes = Annotated[
    list[str], typer.Argument(metavar="PREFIX", help="Prefixes of the traces to fit: PREFIX.<rank>.et.")
]
BLOCKS = re.compile(r"(?:([0-9]{1,9})(?:x([0-9]{1,9}))?:)?([0-9]{1,9})", re.ASCII)


def synthesize(  # noqa: PLR0913, PLR0917  one option each
    prefixes: Prefixes,
    out: Annotated[str, typer.Option("--out", metavar="PREFIX", help="Write PREFIX.<rank>.et and PREFIX.json.")],
    groups: Annotated[
        list[str], typer.Option("--groups", metavar="FILE", help="Communicator groups of each PREFIX, in their order.")
    ] = [],  # noqa: B006  typer copies it
    ranks: Annotated[int | None, typer.Option("--ranks", help="Ranks; as many as in the traces if not given.")] = None,
    blocks: Annotated[
        str,
        typer.Option(
            "--blocks", metavar="N|K:N|KxW:N", help="Copies of the main block, or of that with K copies (of W nodes)."
        ),
    ] = "",
    scale: Annotated[float | None, typer.Option("--scale", help="Length: times the nodes of the traces.")] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, max=2**63 - 1, help="Seed of the random numbers.")] = 0,
    report: Annotated[bool, typer.Option("--report", help="Also compare the model with a baseline.")] = False,
    json: Json = False,
) -> None:
    """Fit a model on traces, and write new ones of any length and number of ranks, with their groups."""
    from cosmic.synthetic.model import synthesize as make  # noqa: PLC0415  heavy
    from cosmic.synthetic.reporting import report as compare  # noqa: PLC0415  heavy
    from cosmic.traces.groups import groups_text  # noqa: PLC0415  heavy
    from cosmic.traces.writing import trace_files  # noqa: PLC0415  heavy

    check_prefix(out)
    length = _length(blocks, scale)
    model = _fitted(prefixes, groups)
    started = time.perf_counter()
    doing("making traces")
    made = make(model, length, ranks=ranks, seed=seed)
    doing(f"writing {len(made.traces.ranks):,} traces")
    make_room(out, len(made.traces.ranks))
    require_space(Path(out).parent, made.traces.nodes)
    files = f"{out}.json"
    size = write_all(chain([(files, groups_text(made.groups))], trace_files(made.traces, out)), "--out")
    took = time.perf_counter() - started
    found = None
    if report:
        doing("comparing")
        found = compare(model, seed)
    if json:
        emit_json(_data(made, model, {"prefix": out, "seed": seed, "bytes": size, "seconds": took}, found))
        return
    _print(made, model, size, took)
    if found is not None:
        _print_report(found)
    named = f"--workload {shlex.quote(out)} --comm-groups {shlex.quote(files)}"
    emit_commands({f"cosmic simulate {named} --on SYSTEM": "simulate them"})


def _length(blocks: str, scale: float | None) -> Length:
    from cosmic.synthetic.model import Length  # noqa: PLC0415  heavy

    match = BLOCKS.fullmatch(blocks)
    rule = "must be a number of copies, such as 24, or 12:24 or 12x40:24 for the block with 12 copies of 40 nodes"
    require(match is not None or not blocks, "--blocks", blocks, rule)
    of, width, copies = (None if each is None else int(each) for each in (match.groups() if match else (None,) * 3))
    return Length(scale=scale, blocks=copies, of=of, width=width)


def _fitted(prefixes: list[str], groups: list[str]) -> Model:
    from cosmic.synthetic.model import fit  # noqa: PLC0415  heavy
    from cosmic.traces.groups import read_groups  # noqa: PLC0415  heavy
    from cosmic.traces.reading import read_traces  # noqa: PLC0415  heavy

    rule = f"give one for each of {len(prefixes)} prefixes, or none"
    require(len(groups) in (0, len(prefixes)), "--groups", len(groups), rule)
    known: list[dict[str, tuple[int, ...]] | None] = [read_groups(each) for each in groups] or [None] * len(prefixes)
    doing("reading traces")
    traces = [read_traces(prefix) for prefix in prefixes]
    doing(f"fitting a model of {sum(each.nodes for each in traces):,} nodes")
    return fit(list(zip(traces, known, strict=True)))


def _data(made: Synthetic, model: Model, about: dict[str, Any], found: Report | None) -> dict[str, Any]:
    """Return what `--json` prints."""
    source = model.jobs[made.job].source
    return {
        **about,
        "ranks": len(made.traces.ranks),
        "nodes": made.traces.nodes,
        "templates": len(made.traces.templates()),
        "groups": len(made.groups),
        "scale": _scale(made, model),
        "source": {
            "prefix": source.traces.where,
            "ranks": len(source.traces.ranks),
            "nodes": source.traces.nodes,
            "roles": len(source.roles),
            "mesh": list(made.mesh_before),
        },
        "mesh": list(made.mesh),
        "block": {"kind": made.block or None, "nodes": made.width, "copies": made.copies, "before": made.copies_before},
        "blocks": [
            {
                "kind": plan.name,
                "copies": plan.copies,
                "nodes": plan.width,
                "share": min(1.0, plan.covered / source.traces.nodes),
            }
            for plan in model.jobs[made.job].plans
        ],
        "rules": model.rules,
        "rules_for": model.nodes,
        "notes": list(model.notes),
        "report": None if found is None else asdict(found),
    }


def _print(made: Synthetic, model: Model, size: int, took: float) -> None:
    source = model.jobs[made.job].source
    emit([*model.notes, f"fitted: roles {len(source.roles):,}, nodes {model.nodes:,}, rules {model.rules:,}"])
    rows = [
        [plan.name, plan.copies, plan.width, f"{min(1.0, plan.covered / source.traces.nodes):.0%}"]
        for plan in _distinct(model.jobs[made.job].plans)
    ]
    emit_table("", ["found", "copies", "nodes of a copy", "of all nodes"], rows)
    if made.block:
        grown = f"{made.block}: {made.copies_before:,} become {made.copies:,} of {made.width:,} nodes"
        emit([f"{grown}, {_scale(made, model):.3g} times the length"])
    if made.mesh != made.mesh_before:
        emit([f"mesh: {_mesh(made.mesh_before)} becomes {_mesh(made.mesh)}"])
    counts = f"{len(made.traces.ranks):,} ranks, {made.traces.nodes:,} nodes, {len(made.groups):,} groups"
    emit([f"{counts}: {len(made.traces.ranks) + 1:,} files, {size:,} bytes, {took:.2f} s"])


def _scale(made: Synthetic, model: Model) -> float:
    """Return the nodes of a rank over those of the source."""
    source = model.jobs[made.job].source.traces
    return (made.traces.nodes / len(made.traces.ranks)) / (source.nodes / len(source.ranks))


def _distinct(plans: Iterable[Plan]) -> list[Plan]:
    """Return plans that look different: the first of those whose largest block is the same."""
    found: dict[tuple[int, int], Plan] = {}
    for plan in plans:
        found.setdefault((plan.copies, plan.width), plan)
    return list(found.values())


def _mesh(sizes: tuple[int, ...]) -> str:
    return " × ".join(map(str, sizes)) or "1"


def _print_report(found: Report) -> None:
    from cosmic.synthetic.reporting import rows  # noqa: PLC0415  heavy

    emit(["", "distance from the traces it was fitted on, at their length and ranks:"])
    cells = [
        [name, *("cannot run" if value is None else f"{value:.4f}" for value in values)]
        for name, *values in rows(found)
    ]
    emit_table("", ["", "model", "baseline"], cells)
