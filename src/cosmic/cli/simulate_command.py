"""`cosmic simulate`: execution traces on a simulated cluster, from ASTRA-sim's own files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cosmic.base.errors import require
from cosmic.base.files import check_writable
from cosmic.cli.console import MORE, Json, draw_bar, emit_json, emit_table, format_seconds
from cosmic.cli.output_streams import complain, doing, emit
from cosmic.cli.value_completion import complete_one_of

if TYPE_CHECKING:
    from cosmic.simulate.events.simulation_result import SimulationResult
    from cosmic.traces.trace import TraceSet


Failures = Annotated[
    list[str],
    typer.Option("--fail", metavar="A-B", help="Of a file of links, leave one out: A-B, A>B; or slow it: A-B*0.25."),
]
SHOWN = 12
"""Rows of a table; JSON has all."""


def simulate(  # noqa: PLR0913, PLR0917  ASTRA-sim's inputs, by name
    workload: Annotated[str, typer.Option(help="Prefix of the traces: PREFIX.0.et, PREFIX.1.et ...")],
    system: Annotated[Path | None, typer.Option(help="ASTRA-sim's system JSON; recorded traces need none.")] = None,
    network: Annotated[
        Path | None,
        typer.Option(help="ASTRA-sim's network YAML, or a file of links; without it, a recorded trace is replayed."),
    ] = None,
    on: Annotated[
        str, typer.Option(metavar="DESIGN", help="Put the traces on the machine of this design or system.")
    ] = "",
    comm_groups: Annotated[Path | None, typer.Option(help="Communicator groups, JSON.")] = None,
    remote_memory: Annotated[Path | None, typer.Option(help="Remote memory, JSON.", rich_help_panel=MORE)] = None,
    fail: Failures = [],  # noqa: B006  typer copies it
    backend: Annotated[
        str | None,
        typer.Option(
            help="unaware (the default, but for a file of links): messages do not contend; aware: they queue at links.",
            autocompletion=complete_one_of("unaware", "aware"),
            rich_help_panel=MORE,
        ),
    ] = None,
    queues_per_dim: Annotated[
        int, typer.Option(help="Queues of chunks in each network dimension.", rich_help_panel=MORE)
    ] = 1,
    injection_scale: Annotated[float, typer.Option(help="Multiplies the endpoint delay.", rich_help_panel=MORE)] = 1.0,
    rendezvous: Annotated[
        bool, typer.Option("--rendezvous", help="A message waits until its receive is posted.", rich_help_panel=MORE)
    ] = False,
    compat: Annotated[
        bool,
        typer.Option(help="ASTRA-sim's own rules, or an NPU's bandwidth shared by its messages.", rich_help_panel=MORE),
    ] = True,
    track_local_mem: Annotated[
        bool,
        typer.Option(
            "--track-local-mem", help="Show the memory of the tensors that nodes read and write.", rich_help_panel=MORE
        ),
    ] = False,
    timeline: Annotated[
        Path | None, typer.Option(help="Write the timeline to this file, for Perfetto or Chrome.")
    ] = None,
    json: Json = False,
) -> None:
    """Simulate execution traces on a cluster: when each rank ends, and its compute and communication time."""
    from cosmic.simulate.events.trace_simulation import simulate as run  # noqa: PLC0415  heavy

    if timeline is not None:
        check_writable(timeline, "--timeline")
    doing("simulating the traces")
    if on:
        others = {"--system": system, "--network": network, "--remote-memory": remote_memory, "--fail": fail or None}
        for option, value in (others | {"--backend": backend}).items():
            require(value is None, option, str(value), "is not for --on, which brings a machine along")
        _report_result(_put_on_machine(workload, on, comm_groups, track_local_mem), timeline, json)
        return
    result = run(
        workload=workload,
        system=system,
        network=network,
        comm_groups=comm_groups,
        remote_memory=remote_memory,
        fail=fail,
        backend=backend,
        queues_per_dim=queues_per_dim,
        injection_scale=injection_scale,
        rendezvous=rendezvous,
        compat=compat,
        track_local_mem=track_local_mem,
    )
    _report_result(result, timeline, json)


def _put_on_machine(workload: str, on: str, comm_groups: Path | None, tracked: bool) -> SimulationResult:
    """Return the replay of a recorded trace on another machine, or the simulation of one that was not recorded."""
    from cosmic.cli.trace_files import read_job  # noqa: PLC0415  heavy
    from cosmic.simulate.events.simulation_result import result_of_recorded  # noqa: PLC0415  heavy
    from cosmic.traces.chakra.trace_reader import read_metadata  # noqa: PLC0415  heavy
    from cosmic.traces.profiles.trace_projection import WhatIf, project_traces  # noqa: PLC0415  heavy
    from cosmic.traces.trace import known_groups  # noqa: PLC0415  heavy

    traces, groups = read_job(workload, "" if comm_groups is None else str(comm_groups))
    if not any(rank.template.is_recorded for rank in traces.ranks):
        return _simulated_on(workload, on, comm_groups, traces, tracked)
    require(not tracked, "--track-local-mem", True, "is not for recorded traces with --on, which state no tensors")
    device = read_metadata(workload).get("device", "")
    projected = project_traces(traces, known_groups(traces, groups), device, WhatIf(machine=on))
    notes = list(projected.notes)
    if (npus := projected.npus) > projected.ranks > 0 and ":" in on:
        notes.append(
            f"{on} has {npus:,} accelerators, and the traces {projected.ranks:,} ranks: cosmic trace project --dp N"
        )
    return replace(result_of_recorded(projected.traces), warnings=tuple(notes))


def _simulated_on(
    workload: str, on: str, comm_groups: Path | None, traces: TraceSet, tracked: bool
) -> SimulationResult:
    """Return the simulation of a trace on the machine of a design or system, with one NPU a rank."""
    from tempfile import TemporaryDirectory  # noqa: PLC0415  rarely needed

    from cosmic.frameworks.targets.astra_sim import MEMORY, NETWORK, SYSTEM, machine_files  # noqa: PLC0415  heavy
    from cosmic.simulate.events.trace_simulation import simulate as run  # noqa: PLC0415  heavy
    from cosmic.traces.profiles.trace_projection import machine_named  # noqa: PLC0415  heavy

    point = machine_named(on, len(traces.ranks), where="--on").point
    timed = any((rank.template.duration_us > 0).any() for rank in traces.ranks)
    files, notes = machine_files(point, roofline=not timed)
    with TemporaryDirectory(prefix="cosmic-") as folder:
        for name, text in files.items():
            (Path(folder) / name).write_text(text)
        projected = run(
            workload=workload,
            system=Path(folder) / SYSTEM,
            network=Path(folder) / NETWORK,
            remote_memory=Path(folder) / MEMORY,
            comm_groups=comm_groups,
            track_local_mem=tracked,
        )
    return replace(projected, warnings=(*projected.warnings, *notes))


def _report_result(result: SimulationResult, timeline: Path | None, json: bool) -> None:
    complain(f"cosmic simulate: {warning}" for warning in result.warnings)
    if timeline is not None:
        from cosmic.simulate.events.simulation_timeline import timeline_of_result  # noqa: PLC0415  rarely needed
        from cosmic.simulate.step_timeline import write_timeline  # noqa: PLC0415  rarely needed

        doing("writing the timeline")
        write_timeline(timeline_of_result(result), timeline, "--timeline")
    if json:
        emit_json(result)
    else:
        _print_result(result)


def _print_result(result: SimulationResult) -> None:

    slowest = max(result.per_npu, key=lambda npu: npu.cycles)
    ranks, simulated = len(result.per_npu), result.simulated_ranks
    emit(
        [
            f"{result.cycles:,} cycles (ns) = {format_seconds(result.cycles / 1e9)}; rank {slowest.npu} of {ranks:,} is last",
            f"{_count_simulated(simulated, ranks)} · {result.events:,} events · {result.cpu_s:.2f} s",
            "",
        ]
    )
    total = max(1, slowest.cycles)
    times = {
        "compute": slowest.compute_cycles,
        "communication": slowest.communication_cycles,
        "overlapped by compute": slowest.hidden_cycles,
        "exposed (not computing)": slowest.exposed_cycles,
        "idle": slowest.idle_cycles,
    }
    rows = [
        [name, format_seconds(cycles / 1e9), f"{100 * cycles / total:.1f} %", draw_bar(cycles / total)]
        for name, cycles in times.items()
    ]
    emit_table("", [f"rank {slowest.npu}", "time", "share", ""], rows)
    emit([""])
    uses: list[list[object]] = [
        [
            dimension.dimension,
            dimension.topology,
            dimension.npus,
            f"{100 * dimension.mean_utilization:.1f} %",
            f"{100 * dimension.max_utilization:.1f} %",
        ]
        for dimension in result.dimensions
    ]
    if uses:
        emit_table("", ["network dimension", "topology", "NPUs", "mean utilization", "busiest NPU"], uses)
        emit([""])
    if result.links:
        rows = [
            [link.link, f"{100 * link.utilization:.1f} %", draw_bar(link.utilization)] for link in result.links[:SHOWN]
        ]
        emit_table("", ["busiest links", "utilization", ""], rows)
        emit([""])
    if result.local_memory:
        _print_memory(result)
    if result.operators:
        rows = [
            [
                operator.name or f"node {operator.node}",
                format_seconds(operator.cycles / 1e9),
                operator.bound,
                f"{operator.operational_intensity:.4g}",
            ]
            for operator in result.operators[:5]
        ]
        emit_table("", [f"longest operators of rank {slowest.npu}", "time", "bound by", "flop per byte"], rows)
    emit([""])
    _print_ranks(result)


def _print_memory(result: SimulationResult) -> None:
    """Print the local memory of the fullest ranks, over time for the first of them, and what is in it at the peak."""
    from cosmic.search.design_wording import bytes_text  # noqa: PLC0415

    ordered = sorted(result.local_memory, key=lambda each: (-each.peak_bytes, each.npu))
    rows: list[list[object]] = [
        [
            each.npu,
            bytes_text(each.peak_bytes),
            format_seconds(each.peak_ns / 1e9),
            bytes_text(each.start_bytes),
            bytes_text(each.end_bytes),
            ", ".join(f"{held.tensor} {bytes_text(held.bytes)}" for held in each.largest[:3]),
        ]
        for each in ordered[:SHOWN]
    ]
    emit_table("", ["rank", "peak of local memory", "at", "at the start", "at the end", "largest at the peak"], rows)
    emit([""])


def _count_simulated(simulated: int, ranks: int) -> str:
    """Return how many ranks were simulated.

    >>> _count_simulated(8, 8), _count_simulated(1, 8)
    ('all 8 ranks simulated', '1 of 8 ranks simulated, the others are identical')
    """
    if simulated == ranks:
        return f"all {ranks:,} ranks simulated"
    return f"{simulated:,} of {ranks:,} ranks simulated, the others are identical"


def _print_ranks(result: SimulationResult) -> None:
    """Print a row for all ranks that compute and end alike."""
    ranks_by_times: dict[tuple[int, int], list[int]] = {}
    for npu in result.per_npu:
        ranks_by_times.setdefault((npu.cycles, npu.compute_cycles), []).append(npu.npu)
    ordered = sorted(ranks_by_times.items(), reverse=True)
    rows = [[_ranks_in_words(ranks), cycles, compute, cycles - compute] for (cycles, compute), ranks in ordered[:SHOWN]]
    emit_table("", ["ranks", "cycles", "compute", "exposed"], rows)
    if len(ordered) > SHOWN:
        emit([f"... and {len(ordered) - SHOWN} more groups of ranks: --json has them all"])


def _ranks_in_words(ranks: list[int]) -> str:
    """Return the first and the last of some ranks, and how many there are.

    >>> _ranks_in_words([0, 1, 2, 7]), _ranks_in_words([4])
    ('0 ... 7 (4)', '4')
    """
    return f"{ranks[0]} ... {ranks[-1]} ({len(ranks)})" if len(ranks) > 1 else str(ranks[0])
