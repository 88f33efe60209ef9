"""`cosmic trace convert`: profiles of PyTorch, and workloads of other tools, as Chakra traces."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cosmic.base.errors import require
from cosmic.base.files import check_writable, write_all
from cosmic.cli.console import MORE, Json, emit_commands, emit_json, format_seconds
from cosmic.cli.output_streams import complain, doing, emit
from cosmic.cli.trace_files import (
    check_trace_prefix,
    count_traces,
    make_trace_folder,
    require_disk_space,
    trace_headline,
)

if TYPE_CHECKING:
    from cosmic.cli.answers.trace_answers import TraceConvertAnswer
    from cosmic.traces.profiles.profile_conversion import ConvertedProfiles
    from cosmic.traces.trace import TraceSet


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
