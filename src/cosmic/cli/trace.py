"""`cosmic trace`: Chakra execution traces."""

from __future__ import annotations

import json as json_module
import shlex
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import chain, islice
from pathlib import Path
from shutil import disk_usage
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cosmic.cli.console import (
    Design,
    Json,
    Settings,
    complain,
    doing,
    emit,
    emit_commands,
    emit_data,
    emit_json,
    emit_json_text,
    emit_table,
    new_app,
)
from cosmic.errors import one_line, require
from cosmic.files import DASH, check_folder, check_writable, exists, is_folder, make_folder, write_all

if TYPE_CHECKING:
    from cosmic.traces.statistics import Chain, Statistics
    from cosmic.traces.trace import TraceSet

app = new_app("Chakra execution traces: show and check them, generate them from designs, convert text workloads.")
BAD_TRACES = 2
MOST_NPUS = 2**17
"""Ranks of a text workload, each of which is a file."""
NODE_BYTES = 100
"""About what a node takes in a file."""
SHOWN_DEPENDENCIES, SHOWN_CHARACTERS = 6, 60
Prefix = Annotated[str, typer.Argument(metavar="PREFIX", help="Prefix of the traces: PREFIX.<rank>.et.")]
Groups = Annotated[str, typer.Option("--groups", metavar="FILE", help='Communicator groups: {"1": [0, 1], …}.')]


@app.command()
def show(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The trace of one rank, such as gpt.0.et.")],
    limit: Annotated[int, typer.Option("--limit", min=0, max=10**9, help="Nodes to show.")] = 50,
    dot: Annotated[bool, typer.Option("--dot", help="Print the graph for Graphviz.")] = False,
    json: Json = False,
) -> None:
    """Print the nodes of one rank: a table, all of them as JSON, or a graph."""
    from cosmic.traces import views  # noqa: PLC0415
    from cosmic.traces.reading import read_trace  # noqa: PLC0415

    require(not (dot and json), "--dot", dot, "excludes --json: a trace is printed in one format")
    doing("reading the trace")
    trace = read_trace(file)
    if dot:
        emit_data(views.dot(trace))
    elif json:
        emit_json_text(_json_lines(views.records(trace)))
    else:
        rows = [
            [str(each["id"]), each["type"], _name(each), _dependencies(each), views.summary(each)]
            for each in islice(views.records(trace), limit)
        ]
        emit_table("", ["id", "type", "name", "depends on", "what"], rows)
        if (left := trace.template.nodes - len(rows)) > 0:
            emit([f"… and {left:,} more: --limit {trace.template.nodes} shows them all"])


def _json_lines(records: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Yield a JSON list, one element a line, so that a trace of a million nodes is printed as it is read."""
    line = "["
    for place, each in enumerate(records):
        if place:
            yield f"{line},"
        line = ("[" if not place else " ") + json_module.dumps(each, ensure_ascii=False)
    yield f"{line}]"


def _name(record: dict[str, Any]) -> str:
    """Return a node's name, cut: names of kernels can be very long."""
    name = one_line(record["name"])
    return name if len(name) <= SHOWN_CHARACTERS else f"{name[: SHOWN_CHARACTERS - 1]}…"


def _dependencies(record: dict[str, Any]) -> str:
    """Return the ids of the nodes that a node depends on; control dependencies are marked."""
    ids = [*map(str, record["data"]), *(f"{each} (ctrl)" for each in record["ctrl"])]
    more = [f"… {len(ids) - SHOWN_DEPENDENCIES:,} more"] if len(ids) > SHOWN_DEPENDENCIES else []
    return ", ".join(ids[:SHOWN_DEPENDENCIES] + more)


def _read(prefix: str, groups: str) -> tuple[TraceSet, dict[str, tuple[int, ...]] | None]:
    from cosmic.traces.groups import read_groups  # noqa: PLC0415  heavy
    from cosmic.traces.reading import read_traces  # noqa: PLC0415  heavy

    known = read_groups(groups) if groups else None  # first, as it is small: a mistake shows at once
    doing("reading traces")
    return read_traces(prefix), known


@app.command()
def check(prefix: Prefix, groups: Groups = "", json: Json = False) -> None:
    """Check that the traces of a job can run: dependencies, messages, groups; exit with 2 if not."""
    from cosmic.traces.checks import problems  # noqa: PLC0415  heavy

    traces, known = _read(prefix, groups)
    doing(f"checking {traces.nodes:,} nodes")
    found = problems(traces, known)
    if json:
        emit_json({**_counts(traces), "problems": found})
    elif not found:
        emit([f"{_headline(traces)}: no problem found"])
    if found:
        _complain([] if json else found)
        raise typer.Exit(BAD_TRACES)


def _counts(traces: TraceSet) -> dict[str, int]:
    return {"ranks": len(traces.ranks), "nodes": traces.nodes, "templates": len(traces.templates())}


def _headline(traces: TraceSet) -> str:
    return ", ".join(f"{count:,} {what if count != 1 else what[:-1]}" for what, count in _counts(traces).items())


def _complain(sentences: Iterable[str]) -> None:
    complain(f"cosmic trace: {sentence}" for sentence in sentences)


@app.command()
def stats(
    prefix: Prefix,
    groups: Groups = "",
    peak: Annotated[str, typer.Option("--peak", help="Peak of an accelerator, such as '900 TFLOP/s'.")] = "",
    bandwidth: Annotated[str, typer.Option("--bandwidth", help="Bandwidth of its memory, such as '3.35 TB/s'.")] = "",
    json: Json = False,
) -> None:
    """Print statistics of a job's traces; with --peak and --bandwidth, compute nodes take their roofline time."""
    from cosmic.traces.checks import problems  # noqa: PLC0415  heavy
    from cosmic.traces.statistics import statistics  # noqa: PLC0415  heavy
    from cosmic.units import BYTES_PER_S, FLOP_PER_S, read  # noqa: PLC0415  heavy

    rates = (read(peak, FLOP_PER_S) if peak else None, read(bandwidth, BYTES_PER_S) if bandwidth else None)
    traces, known = _read(prefix, groups)
    doing(f"adding up {traces.nodes:,} nodes")
    found = statistics(traces, known, *rates)
    if json:
        emit_json(asdict(found))
    else:
        emit([_headline(traces), ""])
        _print(found)
    _complain(f"warning: {sentence}" for sentence in problems(traces, known))


def _print(found: Statistics) -> None:
    emit_table("", ["type", "nodes"], [list(item) for item in found.nodes_by_type.items()])
    if found.collectives:
        emit([""])
        rows = [[each.collective, each.group_size, each.nodes, each.bytes] for each in found.collectives]
        emit_table("", ["collective", "group size", "nodes", "total_bytes"], rows)
    if amounts := list(_amounts(found)):
        emit([""])
        emit_table("", ["", "total", "least of a rank", "most of a rank"], amounts)
    emit(["", f"longest chain: {_chain_text(found.longest_chain)}"])
    if found.critical_path and not found.critical_path.seconds:
        emit(["critical path: no node states a duration; --peak and --bandwidth give compute nodes one"])
    else:
        emit([f"critical path: {_chain_text(found.critical_path)}"])


def _amounts(found: Statistics) -> Iterator[list[str]]:
    """Yield a row for each amount that is not zero."""
    from cosmic.traces.views import amount  # noqa: PLC0415  heavy
    from cosmic.units import split_name  # noqa: PLC0415  heavy

    for name, spread in found.by_rank.items():
        key, dimension = split_name(name)
        if dimension is not None and spread.most:
            yield [key, *(amount(value, dimension) for value in (getattr(found, name), spread.least, spread.most))]


def _chain_text(chain: Chain | None) -> str:
    from cosmic.traces.views import amount  # noqa: PLC0415  heavy
    from cosmic.units import SECONDS  # noqa: PLC0415  heavy

    if chain is None:
        return "none: the dependencies have a cycle"
    types = ", ".join(f"{count:,} {name}" for name, count in chain.nodes_by_type.items())
    return f"{chain.nodes:,} nodes ({types}) of rank {chain.rank}, {amount(chain.seconds, SECONDS)}"


@app.command()
def generate(
    design: Design,
    out: Annotated[str, typer.Option("--out", metavar="PREFIX", help="Write PREFIX.<rank>.et and PREFIX.json.")],
    settings: Settings = [],  # noqa: B006  typer copies it
    json: Json = False,
) -> None:
    """Write the traces of one training step of a design, and their communicator groups."""
    from cosmic.evaluation import step_of  # noqa: PLC0415  heavy
    from cosmic.loading.designs import load_design, parse_overrides  # noqa: PLC0415  heavy
    from cosmic.traces.generation import generate as run  # noqa: PLC0415  heavy
    from cosmic.traces.groups import groups_text  # noqa: PLC0415  heavy
    from cosmic.traces.writing import trace_files  # noqa: PLC0415  heavy

    _check_prefix(out)
    point = step_of(load_design(design, parse_overrides(settings)))
    started = time.perf_counter()
    doing("generating the step")
    made = run(point)
    doing(f"writing {len(made.traces.ranks):,} traces")
    _make_room(out, len(made.traces.ranks))
    _require_space(Path(out).parent, made.traces.nodes)
    groups = f"{out}.json"
    size = write_all(chain([(groups, groups_text(made.groups))], trace_files(made.traces, out)), "--out")
    took, files = time.perf_counter() - started, len(made.traces.ranks) + 1
    if json:
        counts = {**_counts(made.traces), "groups": len(made.groups), "files": files}
        emit_json({"identity": point.identity, "prefix": out, **counts, "bytes": size, "seconds": took})
        return
    emit([f"{_headline(made.traces)}, {len(made.groups):,} groups: {files:,} files, {size:,} bytes, {took:.2f} s"])
    prefix, groups = (shlex.quote(each) for each in (out, groups))
    files_of_astra = "--system SYSTEM.json --network NETWORK.yml"
    emit_commands({f"cosmic simulate --workload {prefix} --comm-groups {groups} {files_of_astra}": "simulate them"})


@app.command()
def convert(  # noqa: PLR0913, PLR0917  one option each
    file: Annotated[str, typer.Argument(metavar="FILE", help="A text workload of ASTRA-sim 1.0.")],
    out: Annotated[str, typer.Option("--out", metavar="PREFIX", help="Write PREFIX.<rank>.et and PREFIX.json.")],
    npus: Annotated[int | None, typer.Option(min=1, max=MOST_NPUS, help="Ranks; with --network, all of it.")] = None,
    network: Annotated[
        str, typer.Option(metavar="FILE", help="The network's dimensions: LIBRA's YAML or ASTRA-sim's.")
    ] = "",
    communicator: Annotated[str, typer.Option(metavar="FILE", help="LIBRA's YAML: the groups of each pass.")] = "",
    groups_out: Annotated[str, typer.Option(metavar="FILE", help="Write the groups here, not to PREFIX.json.")] = "",
    system_out: Annotated[
        str, typer.Option(metavar="FILE", help="Also write a system JSON for ASTRA-sim, with 1 TFLOP/s and rings.")
    ] = "",
    passes: Annotated[int, typer.Option(min=1, max=10_000, help="Training passes, one after the other.")] = 1,
    json: Json = False,
) -> None:
    """Write a text workload of ASTRA-sim 1.0 as traces, with communicator groups."""
    from cosmic.cli.text_workloads import inputs  # noqa: PLC0415  heavy
    from cosmic.traces.groups import groups_text  # noqa: PLC0415  heavy
    from cosmic.traces.text_workloads import system_text, traces_of_layers  # noqa: PLC0415  heavy
    from cosmic.traces.writing import trace_files  # noqa: PLC0415  heavy

    _check_prefix(out)
    for option, path in {"--groups-out": groups_out, "--system-out": system_out}.items():
        if path:
            check_writable(path, option)
    given = inputs(file, npus, network, communicator)
    started = time.perf_counter()
    doing("converting the workload")
    made = traces_of_layers(given.layers, given.npus, given.communicator, passes=passes)
    doing(f"writing {len(made.traces.ranks):,} traces")
    _make_room(out, len(made.traces.ranks))
    _require_space(Path(out).parent, made.traces.nodes)
    groups = groups_out or f"{out}.json"
    outputs: dict[str, list[tuple[str, str]]] = {"--system-out": [], "--groups-out": [], "--out": []}
    outputs["--groups-out" if groups_out else "--out"] = [(groups, groups_text(made.groups))]
    if system_out:
        outputs["--system-out"] = [(system_out, system_text(len(given.npus)))]
    traces = {"--out": trace_files(made.traces, out)}
    size = sum(write_all(chain(texts, traces.get(option, ())), option) for option, texts in outputs.items())
    files = len(made.traces.ranks) + sum(map(len, outputs.values()))
    took = time.perf_counter() - started
    if json:
        counts = {**_counts(made.traces), "groups": len(made.groups), "files": files}
        named = {"prefix": out, "groups_file": groups, "system_file": system_out or None}
        emit_json({**named, "layers": len(given.layers), **counts, "bytes": size, "seconds": took})
        return
    emit([f"{_headline(made.traces)}, {len(made.groups):,} groups: {files:,} files, {size:,} bytes, {took:.2f} s"])
    prefix, groups, system = (shlex.quote(each) for each in (out, groups, system_out or "SYSTEM.json"))
    words = f"--workload {prefix} --comm-groups {groups} --system {system}"
    emit_commands({f"cosmic simulate {words} --network {shlex.quote(given.network or 'NETWORK.yml')}": "simulate them"})
    if not system_out:
        emit(["computes take their nanoseconds in a system with 1 TFLOP/s: --system-out FILE.json writes one"])


def _require_space(folder: Path, nodes: int) -> None:
    """Refuse to write more than the disk has room for."""
    needed, free = nodes * NODE_BYTES, disk_usage(folder).free
    rule = f"{nodes:,} nodes take about {needed / 1e9:,.3g} GB, and its disk has {free / 1e9:,.3g} GB left"
    require(needed <= free, "--out", str(folder), rule)


def _check_prefix(prefix: str) -> None:
    """Refuse a prefix whose files cannot be written, before they are generated."""
    path = Path(prefix)
    names_folder = prefix.endswith("/") or not path.name or is_folder(path)
    require(prefix != DASH, "--out", prefix, "is no prefix of files; give one, such as runs/gpt")
    require(not names_folder, "--out", prefix, "is a folder; give a prefix of files, such as runs/gpt")
    check_folder(path.parent, "--out")
    if is_folder(path.parent):
        check_writable(f"{prefix}.json", "--out")


def _make_room(prefix: str, ranks: int) -> None:
    """Make the folder for the traces; refuse a prefix whose files belong to another job."""
    make_folder(Path(prefix).parent, "--out")
    stale = Path(f"{prefix}.{ranks}.et")
    require(not exists(stale), "--out", prefix, f"{stale.name} is of a job with more ranks: remove it first")
