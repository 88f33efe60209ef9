"""What `cosmic trace show` writes to files: pages and graphs."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from cosmic.base.errors import SpecError, require
from cosmic.base.files import check_writable, exists, is_file, replace_file
from cosmic.cli.output_streams import doing, emit
from cosmic.traces.chakra.trace_reader import read_trace, read_traces
from cosmic.traces.trace import RankTrace, TraceSet

ENDINGS = (".et", ".et.gz")


def check_trace_formats(json: bool, dot: bool, out: str, files: dict[str, str]) -> None:
    """Refuse options that exclude each other, and files that cannot be written."""
    chosen = [
        *(["--json"] if json else []),
        *(["--dot"] if dot else []),
        *(name for name, path in files.items() if path),
    ]
    if len(chosen) > 1:
        raise SpecError(
            chosen[1], files.get(chosen[1]) or True, f"excludes {chosen[0]}: a trace is printed in one format"
        )
    require(dot or not out, "--out", out, "is for --dot; --html and --graphml name their own files")
    for option, path in ({"--out": out} | files).items():
        if path:
            check_writable(path, option)


def read_shown_traces(file: str) -> TraceSet:
    """Return the trace in a file, or all those whose files begin with a prefix."""
    doing("reading the trace")
    if not is_file(file) and any(exists(f"{file}.0{ending}") for ending in ENDINGS):
        return read_traces(file)
    return TraceSet((read_trace(file),), file)


def require_one_rank(traces: TraceSet) -> RankTrace:
    """Return the only trace; refuse several."""
    ranks = len(traces.ranks)
    rule = f"is the prefix of {ranks:,} ranks, and one is shown at a time: give {traces.where}.0.et, or --html"
    require(ranks == 1, "file", traces.where, rule)
    return traces.ranks[0]


def write_shown_page(traces: TraceSet, path: str) -> None:
    """Write the page of traces, and say so."""
    from cosmic.report.trace_page import write_trace_page  # noqa: PLC0415  heavy

    _require_other_file(traces, path, "--html")
    started = time.perf_counter()
    doing(f"laying out {traces.nodes:,} nodes")
    size = write_trace_page(traces, Path(traces.where).name, path)
    ranks, nodes = len(traces.ranks), traces.nodes
    counts = f"{ranks:,} rank{'' if ranks == 1 else 's'}, {nodes:,} node{'' if nodes == 1 else 's'}"
    _report_written(path, f"{counts}, {size:,} bytes, {time.perf_counter() - started:.2f} s")


def write_shown_lines(lines: Iterable[str], path: str, option: str, traces: TraceSet) -> None:
    """Write lines to a file as they are made, and say so."""
    _require_other_file(traces, path, option)
    doing(f"writing {traces.nodes:,} nodes")
    with (
        replace_file(path, option) as beside,
        beside.open("w", encoding="utf-8", errors="replace", newline="\n") as file,
    ):
        file.writelines(f"{line}\n" for line in lines)
    _report_written(path, f"{traces.nodes:,} node{'' if traces.nodes == 1 else 's'}")


def _report_written(path: str, text: str) -> None:
    """Say what was written, unless it was written to where this would be said."""
    if path != "/dev/stdout":
        emit([f"{path}: {text}"])


def _require_other_file(traces: TraceSet, path: str, option: str) -> None:
    """Refuse to write over the traces that are shown."""
    ranks = range(len(traces.ranks))
    own = [traces.where, *(f"{traces.where}.{rank}{ending}" for rank in ranks for ending in ENDINGS)]
    target = Path(path).resolve()
    require(all(target != Path(each).resolve() for each in own), option, path, "is the trace itself")
