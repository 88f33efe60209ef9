"""Files of traces that commands read and write: checked before the work, counted after it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from shutil import disk_usage
from typing import TYPE_CHECKING, Annotated

import typer

from cosmic.base.errors import require
from cosmic.base.files import DASH, check_folder, check_writable, exists, is_folder, make_folder
from cosmic.cli.output_streams import complain, doing

if TYPE_CHECKING:
    from cosmic.cli.answers.trace_answers import TraceCounts
    from cosmic.traces.trace import TraceSet


NODE_BYTES = 100
"""About what a node takes in a file."""
Prefix = Annotated[str, typer.Argument(metavar="PREFIX", help="Prefix of the traces: PREFIX.<rank>.et.")]
Groups = Annotated[
    str,
    typer.Option(
        "--groups", metavar="FILE", help='Communicator groups: {"1": [0, 1], …}; of recorded traces PREFIX.json.'
    ),
]


def read_job(prefix: str, groups: str) -> tuple[TraceSet, dict[str, tuple[int, ...]] | None]:
    """Return the traces of a job and its groups, if a file has them: the given one, or that of recorded traces."""
    from cosmic.traces.trace_jobs import read_job as read  # noqa: PLC0415  heavy

    doing("reading traces")
    return read(prefix, groups)


def print_trace_problems(sentences: Iterable[str]) -> None:
    """Print sentences about traces."""
    complain(f"cosmic trace: {sentence}" for sentence in sentences)


def count_traces(traces: TraceSet) -> TraceCounts:
    """Return how many ranks, nodes and templates there are."""
    return {"ranks": len(traces.ranks), "nodes": traces.nodes, "templates": len(traces.templates())}


def trace_headline(traces: TraceSet) -> str:
    """Return the same as text."""
    counts = (("ranks", len(traces.ranks)), ("nodes", traces.nodes), ("templates", len(traces.templates())))
    return ", ".join(f"{count:,} {what if count != 1 else what[:-1]}" for what, count in counts)


def require_disk_space(folder: Path, nodes: int) -> None:
    """Refuse to write more than the disk has room for."""
    needed, free = nodes * NODE_BYTES, disk_usage(folder).free
    rule = f"{nodes:,} nodes take about {needed / 1e9:,.3g} GB, and its disk has {free / 1e9:,.3g} GB left"
    require(needed <= free, "--out", str(folder), rule)


def check_trace_prefix(prefix: str) -> None:
    """Refuse a prefix whose files cannot be written, before they are generated."""
    path = Path(prefix)
    names_folder = prefix.endswith("/") or not path.name or is_folder(path)
    require(prefix != DASH, "--out", prefix, "is no prefix of files; give one, such as runs/gpt")
    require(not names_folder, "--out", prefix, "is a folder; give a prefix of files, such as runs/gpt")
    check_folder(path.parent, "--out")
    if is_folder(path.parent):
        check_writable(f"{prefix}.json", "--out")


def make_trace_folder(prefix: str, ranks: int) -> None:
    """Make the folder for the traces; refuse a prefix whose files belong to another job."""
    make_folder(Path(prefix).parent, "--out")
    stale = Path(f"{prefix}.{ranks}.et")
    require(not exists(stale), "--out", prefix, f"{stale.name} is of a job with more ranks: remove it first")
