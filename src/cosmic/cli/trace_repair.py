"""`cosmic trace repair`: mend traces that others wrote, and say what was done."""

from __future__ import annotations

import re
import shlex
import time
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cosmic.cli.console import Json, complain, doing, emit, emit_commands, emit_json
from cosmic.cli.exit_codes import BAD_INPUT
from cosmic.cli.trace_files import check_prefix, headline, make_room, require_space
from cosmic.errors import require
from cosmic.files import is_file, write_all

if TYPE_CHECKING:
    from cosmic.traces.repairing import Repaired
    from cosmic.traces.trace import TraceSet

MOST_RANKS = 2**17
"""Ranks that one trace is copied to, each of which is a file."""


def repair(
    source: Annotated[
        str, typer.Argument(metavar="PREFIX|FILE", help="Traces PREFIX.<rank>.et (or .et.gz), or the file of one rank.")
    ],
    out: Annotated[str, typer.Option("--out", metavar="PREFIX", help="Write PREFIX.<rank>.et and PREFIX.json.")],
    groups: Annotated[
        str, typer.Option("--groups", metavar="FILE", help='Communicator groups: {"1": [0, 1], …}.')
    ] = "",
    ranks: Annotated[
        int | None, typer.Option("--ranks", min=1, max=MOST_RANKS, help="Let so many ranks run the nodes of the one.")
    ] = None,
    drop_unmatched: Annotated[
        bool, typer.Option("--drop-unmatched", help="Also drop sends and receives without a counterpart.")
    ] = False,
    json: Json = False,
) -> None:
    """Repair Chakra traces that cannot run, and say what was done; exit with 2 if something is left."""
    from cosmic.traces.groups import groups_text, read_groups  # noqa: PLC0415  heavy
    from cosmic.traces.repairing import repaired  # noqa: PLC0415  heavy
    from cosmic.traces.writing import trace_files  # noqa: PLC0415  heavy

    check_prefix(out)
    known = read_groups(groups) if groups else None
    started = time.perf_counter()
    doing("reading traces")
    read = _read(source, out)
    job = _on_ranks(read, ranks)
    doing(f"repairing {job.nodes:,} nodes")
    made = repaired(job, known, drop_unmatched=drop_unmatched)
    traces, told = made.traces, made.groups or {}
    doing(f"writing {len(traces.ranks):,} traces")
    make_room(out, len(traces.ranks))
    require_space(Path(out).parent, traces.nodes)
    size = write_all(chain([(f"{out}.json", groups_text(told))], trace_files(traces, out)), "--out")
    took, copied = time.perf_counter() - started, len(job.ranks) - len(read.ranks)
    if json:
        emit_json(_data(made, out, copied) | {"bytes": size, "seconds": took})
    else:
        _print(made, copied)
        files = f"{len(traces.ranks) + 1:,} files, {size:,} bytes, {took:.2f} s"
        emit([f"{headline(traces)}, {len(told):,} groups: {files}"])
        if len(traces.ranks) == 1:
            emit(["a simulation needs at least two ranks: --ranks 2 lets two run these nodes"])
    if made.left:
        complain(f"cosmic trace: {sentence}" for sentence in ([] if json else made.left))
        raise typer.Exit(BAD_INPUT)
    if not json and len(traces.ranks) > 1:
        prefix, file = shlex.quote(out), shlex.quote(f"{out}.json")
        words = f"--workload {prefix} --comm-groups {file} --on SYSTEM"
        emit_commands({f"cosmic simulate {words}": "simulate them"})


def _read(source: str, out: str) -> TraceSet:
    """Return the traces at a prefix, or of one file; refuse to write over them."""
    from cosmic.traces.reading import read_trace, read_traces, trace_paths  # noqa: PLC0415  heavy
    from cosmic.traces.trace import TraceSet  # noqa: PLC0415  heavy

    paths = [Path(source)] if is_file(source) else trace_paths(source)
    own = re.compile(rf"{re.escape(Path(out).name)}\.[0-9]+\.et(\.gz)?")
    folder = Path(out).parent.resolve()
    over = any(own.fullmatch(path.name) and path.parent.resolve() == folder for path in paths)
    require(not over, "--out", out, "its files are those to repair: give another prefix")
    if is_file(source):
        return TraceSet((read_trace(source, distinct_ids=False),), Path(source).name)
    return read_traces(source, distinct_ids=False)


def _on_ranks(read: TraceSet, ranks: int | None) -> TraceSet:
    """Return the job, on as many ranks as asked for."""
    from cosmic.traces.repair_ranks import on_ranks  # noqa: PLC0415  heavy

    count = len(read.ranks)
    if ranks is None or ranks == count:
        return read
    require(
        count == 1, "--ranks", ranks, f"the job has traces of {count:,} ranks; only a single one is copied to others"
    )
    return on_ranks(read.ranks[0], ranks, read.where)


def _data(made: Repaired, out: str, copied: int) -> dict[str, object]:
    traces = made.traces
    return {
        "prefix": out,
        "groups_file": f"{out}.json",
        "ranks": len(traces.ranks),
        "copied_ranks": copied,
        "nodes": traces.nodes,
        "templates": len(traces.templates()),
        "groups": len(made.groups or {}),
        "repairs": [asdict(each) for each in made.done],
        "problems": list(made.left),
        "files": len(traces.ranks) + 1,
    }


def _print(made: Repaired, copied: int) -> None:
    if copied:
        emit([f"all {copied + 1:,} ranks run the nodes of the one that was read"])
    if not made.done:
        emit(["nothing to repair" if not made.left else "nothing that could be repaired"])
    for each in made.done:
        emit([f"{each.count:,} {each.what}", f"  {each.example}"])
