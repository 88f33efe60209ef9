"""`cosmic trace show`, `check`, `generate` and `convert`: Chakra execution traces, read, checked and made."""

from __future__ import annotations

import json as json_module
import shlex
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cosmic.base.errors import SpecError, one_line, require
from cosmic.base.files import check_writable, exists, is_file, replace_file, write_all
from cosmic.cli.console import MORE, Design, Json, Settings, emit_commands, emit_json, emit_table, format_seconds
from cosmic.cli.output_streams import complain, doing, emit, emit_data, emit_json_text
from cosmic.cli.trace_files import (
    Groups,
    Prefix,
    check_trace_prefix,
    count_traces,
    make_trace_folder,
    print_trace_problems,
    read_job,
    require_disk_space,
    trace_headline,
)
from cosmic.traces.chakra.trace_reader import read_trace, read_traces
from cosmic.traces.trace import RankTrace, TraceSet

if TYPE_CHECKING:
    from cosmic.cli.answers.trace_answers import TraceCheckAnswer, TraceConvertAnswer, TraceGenerateAnswer
    from cosmic.traces.profiles.profile_conversion import ConvertedProfiles
    from cosmic.traces.trace import TraceSet


BAD_TRACES = 2
SHOWN_DEPENDENCIES, SHOWN_CHARACTERS = 6, 60


def show(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="The trace of one rank, such as gpt.0.et; for --html also a prefix.")
    ],
    limit: Annotated[int, typer.Option("--limit", min=0, max=10**9, help="Nodes to show.")] = 50,
    html: Annotated[
        str, typer.Option("--html", metavar="FILE", help="Write a page with the timeline and the graph.")
    ] = "",
    graphml: Annotated[str, typer.Option("--graphml", metavar="FILE", help="Write the graph as GraphML.")] = "",
    dot: Annotated[bool, typer.Option("--dot", help="Print the graph for Graphviz.")] = False,
    out: Annotated[str, typer.Option("--out", metavar="FILE", help="Write the graph of --dot here.")] = "",
    json: Json = False,
) -> None:
    """Print the nodes of one rank: a table, all of them as JSON, or a graph; or write a page of one or all ranks."""
    from cosmic.traces import trace_views  # noqa: PLC0415  heavy
    from cosmic.traces.trace_views import graphml_lines as graph_of  # noqa: PLC0415  heavy

    check_trace_formats(json, dot, out, {"--html": html, "--graphml": graphml})
    traces = read_shown_traces(file)
    if html:
        write_shown_page(traces, html)
        return
    trace = require_one_rank(traces)
    if graphml:
        write_shown_lines(graph_of(trace), graphml, "--graphml", traces)
    elif out:
        write_shown_lines(trace_views.graphviz_lines(trace), out, "--out", traces)
    elif dot:
        emit_data(trace_views.graphviz_lines(trace))
    elif json:
        emit_json_text(_json_lines(trace_views.node_records(trace)))
    else:
        rows = [
            [str(each["id"]), each["type"], _node_name(each), _node_dependencies(each), trace_views.node_summary(each)]
            for each in islice(trace_views.node_records(trace), limit)
        ]
        emit_table("", ["id", "type", "name", "depends on", "what"], rows)
        if (unshown := trace.template.nodes - len(rows)) > 0:
            emit([f"… and {unshown:,} more: --limit {trace.template.nodes} shows them all"])


def _json_lines(records: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Yield a JSON list, one element a line, so that a trace of a million nodes is printed as it is read."""
    line = "["
    for index, record in enumerate(records):
        if index:
            yield f"{line},"
        line = ("[" if not index else " ") + json_module.dumps(record, ensure_ascii=False)
    yield f"{line}]"


def _node_name(record: dict[str, Any]) -> str:
    """Return a node's name, cut: names of kernels can be very long."""
    name = one_line(record["name"])
    return name if len(name) <= SHOWN_CHARACTERS else f"{name[: SHOWN_CHARACTERS - 1]}…"


def _node_dependencies(record: dict[str, Any]) -> str:
    """Return the ids of the nodes that a node depends on; control dependencies are marked."""
    ids = [*map(str, record["data"]), *(f"{each} (ctrl)" for each in record["ctrl"])]
    more = [f"… {len(ids) - SHOWN_DEPENDENCIES:,} more"] if len(ids) > SHOWN_DEPENDENCIES else []
    return ", ".join(ids[:SHOWN_DEPENDENCIES] + more)


def check(prefix: Prefix, groups: Groups = "", json: Json = False) -> None:
    """Check that the traces of a job can run: dependencies, messages, groups; exit with 2 if not."""
    from cosmic.traces.trace_checks import is_replayed, list_problems  # noqa: PLC0415  heavy

    traces, groups_of_job = read_job(prefix, groups)
    doing(f"checking {traces.nodes:,} nodes")
    problems = list_problems(traces, groups_of_job, replayed=is_replayed(traces))
    if json:
        answer: TraceCheckAnswer = {**count_traces(traces), "problems": problems}
        emit_json(answer)
    elif not problems:
        emit([f"{trace_headline(traces)}: no problem found"])
    if problems:
        print_trace_problems([] if json else problems)
        raise typer.Exit(BAD_TRACES)


def generate(
    design: Design,
    out: Annotated[str, typer.Option("--out", metavar="PREFIX", help="Write PREFIX.<rank>.et and PREFIX.json.")],
    settings: Settings = [],  # noqa: B006  typer copies it
    json: Json = False,
) -> None:
    """Write the traces of one training step of a design, and their communicator groups."""
    from cosmic.design.loading import parse_overrides  # noqa: PLC0415  heavy
    from cosmic.evaluation import step_of  # noqa: PLC0415  heavy
    from cosmic.search.mapping.design_completion import load_design  # noqa: PLC0415  heavy
    from cosmic.simulate.trace_generation import generate_traces as run  # noqa: PLC0415  heavy
    from cosmic.traces.chakra.trace_writer import trace_files  # noqa: PLC0415  heavy
    from cosmic.traces.trace import groups_text  # noqa: PLC0415  heavy

    check_trace_prefix(out)
    point = step_of(load_design(design, parse_overrides(settings)))
    started = time.perf_counter()
    doing("generating the step")
    generated = run(point)
    doing(f"writing {len(generated.traces.ranks):,} traces")
    make_trace_folder(out, len(generated.traces.ranks))
    require_disk_space(Path(out).parent, generated.traces.nodes)
    groups = f"{out}.json"
    size = write_all(chain([(groups, groups_text(generated.groups))], trace_files(generated.traces, out)), "--out")
    took, files = time.perf_counter() - started, len(generated.traces.ranks) + 1
    if json:
        answer: TraceGenerateAnswer = {
            "identity": point.identity,
            "prefix": out,
            **count_traces(generated.traces),
            "groups": len(generated.groups),
            "files": files,
            "bytes": size,
            "seconds": took,
        }
        emit_json(answer)
        return
    emit(
        [
            f"{trace_headline(generated.traces)}, {len(generated.groups):,} groups: {files:,} files, {size:,} bytes, {took:.2f} s"
        ]
    )
    prefix, groups = (shlex.quote(each) for each in (out, groups))
    emit_commands({f"cosmic simulate --workload {prefix} --comm-groups {groups} --on SYSTEM": "simulate them"})


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


# ---- `cosmic trace convert`: profiles of PyTorch, and workloads of other tools, as Chakra traces


MOST_NPUS = 2**17
"""Ranks of a text workload, each of which is a file."""
OF_TEXT = ("--npus", "--network", "--communicator", "--system-out", "--passes")
OF_PROFILES = ("--step", "--accelerator")


def convert(  # noqa: PLR0913, PLR0917  one option each
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help="Profiles of PyTorch: of each rank its execution trace, its Kineto trace, or both. Or one text"
            " workload of ASTRA-sim 1.0, or JSON graphs of Chakra, one for each rank.",
        ),
    ],
    out: Annotated[str, typer.Option("--out", metavar="PREFIX", help="Write PREFIX.<rank>.et and PREFIX.json.")],
    step: Annotated[
        int | None, typer.Option(min=0, max=10**9, help="Of several recorded steps, this one: N of ProfilerStep#N.")
    ] = None,
    accelerator: Annotated[
        str, typer.Option(help="Without a Kineto trace, kernels take what they are predicted to take on this one.")
    ] = "",
    npus: Annotated[
        int | None, typer.Option(min=1, max=MOST_NPUS, help="Ranks of a text workload; with --network, all of it.")
    ] = None,
    network: Annotated[
        str, typer.Option(metavar="FILE", help="A text workload's network: LIBRA's YAML or ASTRA-sim's.")
    ] = "",
    communicator: Annotated[
        str, typer.Option(metavar="FILE", help="LIBRA's YAML: the groups of each pass.", rich_help_panel=MORE)
    ] = "",
    groups_out: Annotated[
        str, typer.Option(metavar="FILE", help="Write the groups here, not to PREFIX.json.", rich_help_panel=MORE)
    ] = "",
    system_out: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="Also write a system JSON for ASTRA-sim, with 1 TFLOP/s and rings.",
            rich_help_panel=MORE,
        ),
    ] = "",
    passes: Annotated[
        int, typer.Option(min=1, max=10_000, help="Training passes of a text workload.", rich_help_panel=MORE)
    ] = 1,
    json: Json = False,
) -> None:
    """Write profiles of PyTorch, or workloads of other tools, as Chakra traces, with communicator groups."""
    from cosmic.traces.profiles.profile_conversion import InputKind, sort_inputs  # noqa: PLC0415  heavy

    check_trace_prefix(out)
    for option, path in {"--groups-out": groups_out, "--system-out": system_out}.items():
        if path:
            check_writable(path, option)
    kind, profiles = sort_inputs(files)
    text_options = {"--npus": npus, "--network": network, "--communicator": communicator, "--system-out": system_out}
    text_options |= {"--passes": passes if passes > 1 else None, "--step": step, "--accelerator": accelerator}
    if kind is InputKind.TEXT:
        _refuse_options(text_options, OF_PROFILES, "is for profiles of PyTorch, and this is a text workload")
        _convert_text(
            files[0], _ConvertOutputs(out, groups_out, system_out, json), (npus, network, communicator), passes
        )
        return
    _refuse_options(text_options, OF_TEXT, "is for text workloads of ASTRA-sim 1.0")
    outputs = _ConvertOutputs(out, groups_out, "", json)
    if kind is InputKind.GRAPH:
        _refuse_options(text_options, OF_PROFILES, "is for profiles of PyTorch, and these are graphs of Chakra in JSON")
        _convert_graphs(files, outputs)
        return
    from cosmic.traces.profiles.profile_conversion import convert_profiles as run  # noqa: PLC0415  heavy

    started = time.perf_counter()
    doing("reading and linking profiles")
    converted = run(profiles, step=step, accelerator=accelerator or None, where=out)
    outputs.write(converted.traces, converted.groups, converted.metadata)
    _print_profiles(converted, outputs, time.perf_counter() - started)


def _refuse_options(given: Mapping[str, object], options: Iterable[str], rule: str) -> None:
    for option in options:
        require(not given[option] and given[option] != 0, option, given[option], rule)


class _ConvertOutputs:
    """What is written, and where."""

    def __init__(self, prefix: str, groups: str, system: str, json: bool) -> None:
        self.prefix, self.system, self.json = prefix, system, json
        self.groups, self.groups_option = groups or f"{prefix}.json", "--groups-out" if groups else "--out"
        self.bytes = self.files = 0

    def write(
        self,
        traces: TraceSet,
        groups: Mapping[str, Sequence[int]],
        metadata: Sequence[Mapping[str, str]] = (),
        system: str = "",
    ) -> None:
        """Write all files, or none."""
        from cosmic.traces.chakra.trace_writer import trace_files  # noqa: PLC0415  heavy
        from cosmic.traces.trace import groups_text  # noqa: PLC0415  heavy

        doing(f"writing {len(traces.ranks):,} traces")
        make_trace_folder(self.prefix, len(traces.ranks))
        require_disk_space(Path(self.prefix).parent, traces.nodes)
        texts: dict[str, list[tuple[str, str]]] = {"--system-out": [], "--groups-out": [], "--out": []}
        texts[self.groups_option].append((self.groups, groups_text(groups)))
        if self.system:
            texts["--system-out"].append((self.system, system))
        files = {"--out": trace_files(traces, self.prefix, metadata)}
        self.bytes = sum(write_all(chain(text, files.get(option, ())), option) for option, text in texts.items())
        self.files = len(traces.ranks) + sum(map(len, texts.values()))

    def data(self, traces: TraceSet, groups: int, took: float) -> TraceConvertAnswer:
        """Return what --json prints, without what only some sources have."""
        return {
            "prefix": self.prefix,
            "groups_file": self.groups,
            "system_file": self.system or None,
            "layers": None,
            "kernels": None,
            "described_kernels": None,
            "step_s": None,
            "device": None,
            "notes": [],
            **count_traces(traces),
            "groups": groups,
            "files": self.files,
            "bytes": self.bytes,
            "seconds": took,
        }

    def say(self, traces: TraceSet, groups: int, took: float) -> None:
        """Print what was written."""
        emit([f"{trace_headline(traces)}, {groups:,} groups: {self.files:,} files, {self.bytes:,} bytes, {took:.2f} s"])


# ---- profiles


def _print_profiles(converted: ConvertedProfiles, outputs: _ConvertOutputs, took: float) -> None:

    first_rank = converted.metadata[0]
    steps = [int(each) / 1e9 for each in first_rank.get("step_ns", "").split(",") if each]
    complain(f"cosmic trace convert: {note}" for note in converted.notes)
    if outputs.json:
        answer = outputs.data(converted.traces, len(converted.groups), took)
        answer["kernels"], answer["described_kernels"], answer["step_s"] = (
            converted.kernels,
            converted.described,
            steps or None,
        )
        answer["device"], answer["notes"] = first_rank.get("device"), converted.notes
        emit_json(answer)
        return
    outputs.say(converted.traces, len(converted.groups), took)
    on = f" on {first_rank['device']}" if "device" in first_rank else ""
    priced_text = (
        f", the work of {100 * converted.described / converted.kernels:.0f} % is known" if converted.kernels else ""
    )
    emit([f"{converted.kernels:,} kernels{on}{priced_text}"])
    if steps:
        how = "predicted" if first_rank["recorded_with"] == "prediction" else "recorded"
        emit([f"{how} step{'s' if len(steps) > 1 else ''} of rank 0: {', '.join(map(format_seconds, steps[:8]))}"])
    prefix = shlex.quote(outputs.prefix)
    emit_commands(
        {
            f"cosmic simulate --workload {prefix}": "replay it",
            f"cosmic trace stats {prefix}": "where its time goes",
            f"cosmic trace project {prefix} --accelerator b200": "on another machine",
            f"cosmic trace show {prefix}.0.et --html trace.html": "see it",
        }
    )


# ---- others


def _convert_graphs(files: Sequence[str], outputs: _ConvertOutputs) -> None:
    from cosmic.traces.chakra.workload_files import read_workload_graph  # noqa: PLC0415  heavy
    from cosmic.traces.trace import TraceSet  # noqa: PLC0415  heavy

    started = time.perf_counter()
    doing("reading graphs")
    read = [read_workload_graph(file) for file in files]
    notes = [note for _, each in read for note in each]
    traces = TraceSet(tuple(trace for trace, _ in read), outputs.prefix)
    outputs.write(traces, {})
    took = time.perf_counter() - started
    complain(f"cosmic trace convert: {note}" for note in notes)
    if outputs.json:
        answer = outputs.data(traces, 0, took)
        answer["notes"] = notes
        emit_json(answer)
        return
    outputs.say(traces, 0, took)
    emit_commands({f"cosmic trace check {shlex.quote(outputs.prefix)}": "check them"})


def _convert_text(file: str, outputs: _ConvertOutputs, where: tuple[int | None, str, str], passes: int) -> None:
    from cosmic.search.trace_conversion import read_text_workload_inputs  # noqa: PLC0415  heavy
    from cosmic.traces.chakra.workload_files import system_text, traces_of_layers  # noqa: PLC0415  heavy

    npus, network, communicator = where
    inputs = read_text_workload_inputs(file, npus, network, communicator)
    started = time.perf_counter()
    doing("converting the workload")
    traces_made = traces_of_layers(inputs.layers, inputs.npus, inputs.communicator, passes=passes)
    outputs.write(traces_made.traces, traces_made.groups, system=system_text(len(inputs.npus)))
    took = time.perf_counter() - started
    if outputs.json:
        answer = outputs.data(traces_made.traces, len(traces_made.groups), took)
        answer["layers"] = len(inputs.layers)
        emit_json(answer)
        return
    outputs.say(traces_made.traces, len(traces_made.groups), took)
    prefix, groups, system = (
        shlex.quote(each) for each in (outputs.prefix, outputs.groups, outputs.system or "SYSTEM.json")
    )
    words = f"--workload {prefix} --comm-groups {groups} --system {system}"
    emit_commands(
        {f"cosmic simulate {words} --network {shlex.quote(inputs.network or 'NETWORK.yml')}": "simulate them"}
    )
    if not outputs.system:
        emit(["computes take their nanoseconds in a system with 1 TFLOP/s: --system-out FILE.json writes one"])
