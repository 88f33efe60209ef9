"""`cosmic trace stats`, `diff` and `project`: what recorded traces say, and would say of another machine.

`stats` says what there is in traces and, of recorded ones, where the time went. `diff` says what differs between two
traces, operator by operator. `project` puts a recorded trace on another machine, old and new side by side.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from cosmic.base.errors import one_line, require
from cosmic.base.files import write_all
from cosmic.cli.console import MORE, Json, Settings, draw_bar, emit_json, emit_table, format_seconds, print_sentences
from cosmic.cli.output_streams import doing, emit
from cosmic.cli.trace_files import (
    Groups,
    Prefix,
    check_trace_prefix,
    make_trace_folder,
    print_trace_problems,
    read_job,
    require_disk_space,
    trace_headline,
)

if TYPE_CHECKING:
    from cosmic.traces.profiles.trace_contrast import ContrastBy, ContrastRow, TraceContrast, TraceSide
    from cosmic.traces.profiles.trace_projection import ProjectedTraces
    from cosmic.traces.trace_statistics import ClassTime, KernelTime, NodeChain, Recorded, TraceStatistics


MOST_PARTS = 6
"""Parts of a difference that the headline names."""
SMALL = 0.005
"""Share of the difference below which the headline leaves a part out."""
TRACE_DIFF_SHOWN_CHARACTERS = 56
_TEMPLATE = re.compile(r"<[^<>]*>|\([^()]*\)")
_SCOPE = re.compile(r"(?:\w+::)+")
_FUNCTOR = re.compile(r"(\w+(?:Functor\w*|KernelImpl|Op)\b|CUDAFunctor_\w+|func_wrapper\w*)")
Side = Annotated[
    str, typer.Argument(help="Prefix of traces (PREFIX.<rank>.et), or a design: MODEL@SYSTEM:GPUS or a YAML file.")
]


def diff(
    a: Side,
    b: Side,
    groups_a: Annotated[
        str, typer.Option("--groups-a", metavar="FILE", help='Communicator groups of A: {"1": [0, 1], …}.')
    ] = "",
    groups_b: Annotated[str, typer.Option("--groups-b", metavar="FILE", help="The same of B.")] = "",
    by: Annotated[
        str,
        typer.Option("--by", metavar="name|kernel|type|class", help="What a row is; chosen by the sides if not given."),
    ] = "",
    limit: Annotated[int, typer.Option("--limit", min=0, max=10**9, help="Rows to show.")] = 20,
    json: Json = False,
) -> None:
    """Print what differs between two traces, or a trace and a design: the time of operators, overlap and idle time."""
    from cosmic.search.compare.predicted_step_trace import compare_traces  # noqa: PLC0415  heavy
    from cosmic.traces.profiles.trace_contrast import BYS  # noqa: PLC0415  heavy

    require(not by or by in BYS, "--by", by, f"must be one of {', '.join(BYS)}")
    doing("reading and comparing traces")
    contrast = compare_traces(a, b, groups_a, groups_b, cast("ContrastBy", by) if by else None)
    if json:
        from cosmic.cli.answers.trace_answers import TraceDiffAnswer  # noqa: PLC0415  heavy

        emit_json(TraceDiffAnswer(difference_headline(contrast), contrast))
        return
    print_sentences([difference_headline(contrast)])
    if not contrast.identical:
        _print_trace_diff(contrast, limit)


# ---- text


def difference_headline(contrast: TraceContrast) -> str:
    """Return the difference in one sentence: how much, and which parts explain it."""
    if contrast.identical:
        return "no difference"
    a, b = contrast.totals
    if not a and not b:
        return "no node says how long it takes: operators are compared by number and bytes"
    unit, worth = _unit([a, b])
    what = "takes" if contrast.spans is not None else "has operators that take"
    change = b - a
    if abs(change) < 1e-9 * max(a, b):
        lead = f"B {what} as long as A, {_number(a / worth)} {unit}"
    else:
        share = f" ({100 * change / a:+.1f} %)" if a else ""
        more = "more than the" if change > 0 else "less of"
        lead = f"B {what} {_number(abs(change) / worth)} {unit} {more} {_number(a / worth)} {unit}{share}"
    changes = sorted(((b - a, name) for name, (a, b) in contrast.parts.items()), key=lambda each: -abs(each[0]))
    notable = [(each, name) for each, name in changes if abs(each) > SMALL * max(abs(change), abs(changes[0][0]))]
    rest = sum(each for each, _ in changes) - sum(each for each, _ in notable[:MOST_PARTS])
    texts = [f"{name} {_signed(each / worth)}" for each, name in notable[:MOST_PARTS]]
    if texts and abs(rest) > SMALL * max(abs(change), abs(changes[0][0])):
        texts.append(f"others {_signed(rest / worth)}")
    return f"{lead}: {', '.join(texts)}" if texts else lead


def _unit(values: Sequence[float]) -> tuple[str, float]:
    from cosmic.base.units import SECONDS, readable_unit  # noqa: PLC0415  heavy

    return readable_unit(values, SECONDS)


def _number(value: float) -> str:
    return f"{value:,.3g}" if abs(value) < 100 else f"{value:,.1f}"


def _signed(value: float) -> str:
    """Return a change with its sign.

    >>> _signed(-3.14159), _signed(12.0), _signed(0.0)
    ('-3.14', '+12', '0')
    """
    return f"{'+' if value > 0 else ''}{_number(value)}"


def _print_trace_diff(contrast: TraceContrast, limit: int) -> None:
    emit(["", f"A  {_side_text(contrast.a)}", f"B  {_side_text(contrast.b)}", ""])
    _, worth = _unit(contrast.totals)
    unit = _unit(contrast.totals)[0]
    emit_table("", [f"time, {unit}", "A", "B", "B - A"], list(_totals(contrast, worth)))
    rows = [row for row in contrast.rows if row.differs]
    if limit and rows:
        emit([""])
        scale = _unit([each for row in rows[:limit] for each in (row.a.seconds, row.b.seconds)])
        emit_table("", _heads(contrast, scale[0]), [_cells(contrast, row, scale[1]) for row in rows[:limit]])
    if unshown := len(rows) - limit:
        emit([f"… and {unshown:,} more: --limit {len(rows)} shows them all"] if unshown > 0 else [])
    emit([""])
    print_sentences(_sentences(contrast))


def _side_text(side: TraceSide) -> str:
    words = {"recorded": "recorded", "generated": "not recorded", "design": "predicted"}[side.kind]
    structure = side.structure
    if structure is None:
        return f"{side.name} ({words})"
    waits = structure.data_dependencies + structure.control_dependencies
    ranks = f"{structure.ranks:,} rank{'s' if structure.ranks != 1 else ''}"
    return f"{side.name} ({words}): {ranks}, {structure.nodes:,} nodes, {waits:,} dependencies"


def _totals(contrast: TraceContrast, worth: float) -> Iterator[list[Any]]:
    """Yield the rows of the first table: kernels, communication, overlap and idle time add up to the span."""
    a, b = contrast.a, contrast.b
    rows = [
        ("kernels", a.sum_s(communicated=False), b.sum_s(communicated=False)),
        ("communication", a.sum_s(communicated=True), b.sum_s(communicated=True)),
    ]
    rows += [(name, *pair) for name, pair in contrast.parts.items() if name == "overlap" or name.startswith("idle: ")]
    if contrast.spans is not None:
        rows.append(("span", *contrast.spans))
    for name, one, other in rows:
        if one or other or name == "span":
            yield [name, *(f"{each / worth:,.3f}" for each in (one, other)), f"{(other - one) / worth:+,.3f}"]


def _heads(contrast: TraceContrast, unit: str) -> list[str]:
    first = {"name": ["operator", "class", "work"], "kernel": ["kernel", "class"], "type": ["type"], "class": ["class"]}
    times = [f"A, {unit}", f"B, {unit}", f"B - A, {unit}"]
    return [*first[contrast.by], "count A", "count B", *times, "FLOP/s A", "FLOP/s B", "bytes/s A", "bytes/s B"]


def _cells(contrast: TraceContrast, row: ContrastRow, worth: float) -> list[Any]:
    name = short_kernel_name(row.name)
    first: list[Any] = {
        "name": [name, row.of, row.work],
        "kernel": [row.work or name or row.of, row.of],
        "type": [row.name],
        "class": [row.of],
    }[contrast.by]
    rates = [_rate(each.flop_per_s) for each in (row.a, row.b)] + [_rate(each.bytes_per_s) for each in (row.a, row.b)]
    counts = [round(each.count, 2) for each in (row.a, row.b)]
    times = [f"{each.seconds / worth:,.3f}" for each in (row.a, row.b)]
    return [*first, *counts, *times, f"{row.difference_s / worth:+,.3f}", *rates]


def _rate(value: float | None) -> str:
    """Return a rate for a person to read.

    >>> _rate(7.41e14), _rate(4.2e12), _rate(None)
    ('741 T', '4.2 T', '-')
    """
    if value is None:
        return "-"
    for prefix, worth in (("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if value >= worth:
            return f"{value / worth:.3g} {prefix}"
    return f"{value:.3g}"


def short_kernel_name(name: str) -> str:
    """Return the name of a kernel without namespaces, templates and parameters, with the functor that it runs.

    >>> short_kernel_name("void at::native::elementwise_kernel<8, at::native::GeluCUDAKernelImpl(x)::{lambda()#1}>(int)")
    'elementwise_kernel GeluCUDAKernelImpl'
    >>> short_kernel_name("nvjet_sm90_tst_256x128")
    'nvjet_sm90_tst_256x128'
    """
    plain = one_line(name).removeprefix("void ").replace("(anonymous namespace)::", "")
    functor = _FUNCTOR.search(plain)
    while plain != (shorter := _TEMPLATE.sub("", plain)):
        plain = shorter
    plain = _SCOPE.sub("", plain).split("<")[0].strip() or one_line(name)
    short_name = f"{plain} {functor[1]}" if functor is not None and functor[1] not in plain else plain
    return (
        short_name
        if len(short_name) <= TRACE_DIFF_SHOWN_CHARACTERS
        else f"{short_name[: TRACE_DIFF_SHOWN_CHARACTERS - 1]}…"
    )


def _sentences(contrast: TraceContrast) -> Iterator[str]:
    """Yield what else is to be said: what is on one side only, the order, critical paths, and notes."""
    unit, worth = _unit(contrast.totals)
    if not any(row.differs for row in contrast.rows):
        yield "all operators are the same: the graphs differ in ids, dependencies, starts, or nodes of the host"
    if contrast.spans is not None:
        change = contrast.spans[1] - contrast.spans[0]
        beside = contrast.beside_operators_s
        total, own, rest = (_signed(each / worth) for each in (change, change - beside, beside))
        yield f"of the difference of {total} {unit}, operators explain {own} and overlap and idle time {rest}"
    for side, name in (("a", "A"), ("b", "B")):
        only = contrast.only_in(cast(Literal["a", "b"], side))
        if only:
            took = sum(getattr(row, side).seconds for row in only)
            count = sum(getattr(row, side).count for row in only)
            yield f"only in {name}: {count:,.0f} nodes of {len(only):,} kinds, {_number(took / worth)} {unit}"
    if contrast.order is not None and (contrast.order.a or contrast.order.b):
        order = contrast.order
        yield f"in the same order: {order.same:,} of {order.a:,} operators of A and {order.b:,} of B (rank 0)"
    for name, side_ in (("A", contrast.a), ("B", contrast.b)):
        if (path := side_.path) is not None:
            parts = {"compute": path.compute_s, "communication": path.communication_s, "host": path.host_s}
            parts["delays"] = path.delay_s
            parts_text = ", ".join(f"{what} {_number(part / worth)}" for what, part in parts.items() if part)
            yield (
                f"critical path of {name}: {path.nodes:,} nodes, {parts_text} {unit}"
                if parts_text
                else f"critical path of {name}: none"
            )
    if {contrast.a.kind, contrast.b.kind} == {"design", "recorded"}:
        yield "a profiler slows the host down: a run without it is less idle than the recorded one"
    if "generated" in (contrast.a.kind, contrast.b.kind) and contrast.by == "class":
        yield "generated nodes hold several operators: name the design itself to compare operators"
    yield from (*contrast.a.notes, *contrast.b.notes)


Machine = Annotated[
    str, typer.Option(metavar="NAME", help="An accelerator or system of the catalog, such as b200 or dgx-h100.")
]


def project(  # noqa: PLR0913, PLR0917  one option each
    prefix: Prefix,
    accelerator: Machine = "",
    network: Annotated[
        str, typer.Option(metavar="SYSTEM", help="Take the network of this system, not the accelerator's usual.")
    ] = "",
    dp: Annotated[int | None, typer.Option(min=1, max=2**20, help="Ranks of a data-parallel group.")] = None,
    batch: Annotated[float, typer.Option(help="Factor of the tokens of a step.")] = 1.0,
    scale_layers: Annotated[float, typer.Option(help="Factor of the number of layers.", rich_help_panel=MORE)] = 1.0,
    host: Annotated[
        float, typer.Option(help="Factor of the host's time; 0 as if captured in CUDA graphs.", rich_help_panel=MORE)
    ] = 1.0,
    from_shapes: Annotated[
        bool,
        typer.Option(
            "--from-shapes", help="Kernels take predicted times, not recorded ones times a ratio.", rich_help_panel=MORE
        ),
    ] = False,
    settings: Settings = [],  # noqa: B006  typer copies it
    groups: Groups = "",
    out: Annotated[str, typer.Option("--out", metavar="PREFIX", help="Write the projected traces, too.")] = "",
    json: Json = False,
) -> None:
    """Put a recorded trace on another accelerator, network, width of data parallelism, batch or number of layers."""
    from cosmic.design.loading import parse_overrides  # noqa: PLC0415  heavy
    from cosmic.traces.chakra.trace_reader import read_metadata  # noqa: PLC0415  heavy
    from cosmic.traces.profiles.trace_projection import WhatIf  # noqa: PLC0415  heavy
    from cosmic.traces.profiles.trace_projection import project_traces as run  # noqa: PLC0415  heavy
    from cosmic.traces.trace import known_groups  # noqa: PLC0415  heavy

    if out:
        check_trace_prefix(out)
    traces, groups_of_job = read_job(prefix, groups)
    metadata = read_metadata(prefix)
    asked = WhatIf(
        machine=accelerator,
        network=network,
        settings=parse_overrides(settings),
        dp=dp,
        batch=batch,
        layers=scale_layers,
        host=host,
        from_shapes=from_shapes,
    )
    doing(f"projecting {traces.nodes:,} nodes")
    projected = run(traces, known_groups(traces, groups_of_job), metadata.get("device", ""), asked)
    if out:
        _write(projected, out)
    print_trace_problems(projected.notes)
    if json:
        from cosmic.cli.answers.trace_answers import TraceProjectAnswer  # noqa: PLC0415  heavy

        emit_json(TraceProjectAnswer(prefix, out or None, projected))
        return
    _print_trace_project(projected)
    if out:
        emit(["", f"written: {out}.<rank>.et"])


def _write(projected: ProjectedTraces, out: str) -> None:
    from cosmic.traces.chakra.trace_writer import trace_files  # noqa: PLC0415  heavy
    from cosmic.traces.trace import groups_text  # noqa: PLC0415  heavy

    job = projected.job()
    make_trace_folder(out, len(job.ranks))
    require_disk_space(Path(out).parent, job.nodes)
    metadata_of_ranks = [{"recorded_with": "projection", "device": projected.device}] * len(job.ranks)
    named = {name: ranks for name, ranks in projected.groups.items() if name not in ("", "0")}
    write_all(chain([(f"{out}.json", groups_text(named))], trace_files(job, out, metadata_of_ranks)), "--out")


def _print_trace_project(projected: ProjectedTraces) -> None:

    old, new = projected.old, projected.new
    emit(
        [
            f"{format_seconds(old.span_s)} on {projected.old_machine} -> {format_seconds(new.span_s)} on {projected.new_machine}",
            "",
        ]
    )
    rows: list[list[object]] = []
    for name, before, after in _parts(old, new):
        change = f"{100 * (after / before - 1):+.1f} %" if before else ""
        rows.append([name, format_seconds(before), format_seconds(after), change])
    emit_table("", ["", "recorded", "projected", "change"], rows)
    priced_text = f"the work of {100 * projected.priced_share:.0f} % of kernel time is known"
    emit(["", f"a step is {projected.speedup:.2f}x as fast{_throughput(projected)}; {priced_text}"])
    if projected.without_host_s is not None:
        bound = f"{100 * new.launch_bound_s / new.span_s:.0f} % of it the device waits for launches of a profiled host"
        emit([f"{bound}: without them (--host 0) it takes {format_seconds(projected.without_host_s)}"])


def _throughput(projected: ProjectedTraces) -> str:
    """Return how many more tokens a second that is, where there are more ranks or tokens."""
    if projected.throughput == projected.speedup:
        return ""
    return f", on {projected.ranks:,} ranks {projected.throughput:,.3g}x the tokens a second"


def _parts(old: Recorded, new: Recorded) -> list[tuple[str, float, float]]:
    """Return what the spans consist of, before and after."""
    before, after = ({class_.name: class_.seconds for class_ in found.classes} for found in (old, new))
    whole = [
        ("step", old.span_s, new.span_s),
        ("device busy", old.busy_s, new.busy_s),
        ("idle: next kernel not launched", old.launch_bound_s, new.launch_bound_s),
        ("idle: gaps between kernels", old.gaps_s, new.gaps_s),
        ("communication", old.communication_s, new.communication_s),
        ("  exposed", old.exposed_s, new.exposed_s),
    ]
    names = list(dict.fromkeys([*before, *after]))
    return whole + [(name, before.get(name, 0.0), after.get(name, 0.0)) for name in names]


SHOWN_KERNELS, TRACE_STATS_SHOWN_CHARACTERS = 10, 60


def stats(
    prefix: Prefix,
    groups: Groups = "",
    peak: Annotated[str, typer.Option("--peak", help="Peak of an accelerator, such as '900 TFLOP/s'.")] = "",
    bandwidth: Annotated[str, typer.Option("--bandwidth", help="Bandwidth of its memory, such as '3.35 TB/s'.")] = "",
    json: Json = False,
) -> None:
    """Print statistics of a job's traces and, of recorded ones, where the time went: kernels, gaps, overlap, rates.

    With --peak and --bandwidth, compute nodes take their roofline time.
    """
    from cosmic.base.units import BYTES_PER_S, FLOP_PER_S, read_quantity  # noqa: PLC0415  heavy
    from cosmic.traces.trace_checks import is_replayed, list_problems  # noqa: PLC0415  heavy
    from cosmic.traces.trace_statistics import recorded_statistics, summarize_traces  # noqa: PLC0415  heavy

    rates = (
        read_quantity(peak, FLOP_PER_S) if peak else None,
        read_quantity(bandwidth, BYTES_PER_S) if bandwidth else None,
    )
    traces, groups_of_job = read_job(prefix, groups)
    doing(f"adding up {traces.nodes:,} nodes")
    statistics = summarize_traces(traces, groups_of_job, *rates)
    times = [recorded_statistics(trace, rank) for rank, trace in enumerate(traces.ranks)]
    if json:
        from cosmic.cli.answers.trace_answers import TraceStatsAnswer  # noqa: PLC0415  heavy

        emit_json(TraceStatsAnswer(statistics, [time for time in times if time is not None]))
    else:
        emit([trace_headline(traces), ""])
        if recorded := [time for time in times if time is not None]:
            _print_recorded(max(recorded, key=lambda each: each.span_s), len(recorded))
        _print_trace_stats(statistics)
    print_trace_problems(
        f"warning: {sentence}" for sentence in list_problems(traces, groups_of_job, replayed=is_replayed(traces))
    )


def _print_trace_stats(statistics: TraceStatistics) -> None:
    emit_table("", ["type", "nodes"], [list(item) for item in statistics.nodes_by_type.items()])
    if statistics.collectives:
        emit([""])
        rows = [
            [collective.collective, collective.group_size, collective.nodes, collective.bytes]
            for collective in statistics.collectives
        ]
        emit_table("", ["collective", "group size", "nodes", "total_bytes"], rows)
    if amounts := list(_amounts(statistics)):
        emit([""])
        emit_table("", ["", "total", "least of a rank", "most of a rank"], amounts)
    emit(["", f"longest chain: {_chain_text(statistics.longest_chain)}"])
    if statistics.critical_path and not statistics.critical_path.seconds:
        emit(["critical path: no node states a duration; --peak and --bandwidth give compute nodes one"])
    else:
        emit([f"critical path: {_chain_text(statistics.critical_path)}"])


def _amounts(statistics: TraceStatistics) -> Iterator[list[str]]:
    """Yield a row for each amount that is not zero."""
    from cosmic.base.units import split_name  # noqa: PLC0415  heavy
    from cosmic.traces.trace_views import readable_amount  # noqa: PLC0415  heavy

    for name, spread in statistics.by_rank.items():
        key, dimension = split_name(name)
        if dimension is not None and spread.most:
            yield [
                key,
                *(
                    readable_amount(value, dimension)
                    for value in (getattr(statistics, name), spread.least, spread.most)
                ),
            ]


def _chain_text(chain: NodeChain | None) -> str:
    from cosmic.base.units import SECONDS  # noqa: PLC0415  heavy
    from cosmic.traces.trace_views import readable_amount  # noqa: PLC0415  heavy

    if chain is None:
        return "none: the dependencies have a cycle"
    types = ", ".join(f"{count:,} {name}" for name, count in chain.nodes_by_type.items())
    return f"{chain.nodes:,} nodes ({types}) of rank {chain.rank}, {readable_amount(chain.seconds, SECONDS)}"


def _print_recorded(recorded: Recorded, ranks: int) -> None:
    """Print where the time of the longest rank went."""
    whose = f"rank {recorded.rank}, the longest of {ranks:,}" if ranks > 1 else f"rank {recorded.rank}"
    emit(
        [f"{whose}: {format_seconds(recorded.span_s)}; {recorded.kernels:,} kernels on {recorded.streams} streams", ""]
    )
    shares = {
        "device busy": recorded.busy_s,
        "idle: next kernel not launched": recorded.launch_bound_s,
        "idle: gaps between kernels": recorded.gaps_s,
        "communication": recorded.communication_s,
        "overlapped by compute": recorded.overlapped_s,
        "exposed": recorded.exposed_s,
        "host busy": recorded.host_s,
    }
    total = recorded.span_s or 1.0
    rows = [
        [name, format_seconds(share), f"{100 * share / total:.1f} %", draw_bar(share / total)]
        for name, share in shares.items()
    ]
    emit_table("", ["", "time", "share", ""], rows)
    emit([""])
    times = [
        [
            class_.name,
            class_.kernels,
            format_seconds(class_.seconds),
            f"{100 * class_.seconds / total:.1f} %",
            *_rates(class_),
        ]
        for class_ in recorded.classes
    ]
    emit_table("", ["class of kernels", "kernels", "time", "of the span", "reached", "moved"], times)
    emit([""])
    top = [
        [_short(each.name), each.runs, format_seconds(each.seconds), *_rates(each)]
        for each in recorded.top[:SHOWN_KERNELS]
    ]
    emit_table("", ["longest kernels", "runs", "time", "reached", "moved"], top)
    emit([""])


def _rates(each: ClassTime | KernelTime) -> list[str]:
    """Return FLOP/s and bytes/s for a person to read."""
    from cosmic.base.units import BYTES_PER_S, FLOP_PER_S  # noqa: PLC0415  heavy
    from cosmic.traces.trace_views import readable_amount  # noqa: PLC0415  heavy

    return [
        readable_amount(each.flop_per_s, FLOP_PER_S) if each.flop_per_s else "",
        readable_amount(each.bytes_per_s, BYTES_PER_S) if each.bytes_per_s else "",
    ]


def _short(name: str) -> str:
    """Return a kernel's name without its arguments, cut: templates can be very long.

    >>> _short("void at::native::vectorized_elementwise_kernel<8, Functor<float> >(int, Functor<float>)")
    'vectorized_elementwise_kernel'
    """
    plain = one_line(name).removeprefix("void ").split("<")[0].split("(")[0].rpartition("::")[2] or one_line(name)
    return plain if len(plain) <= TRACE_STATS_SHOWN_CHARACTERS else f"{plain[: TRACE_STATS_SHOWN_CHARACTERS - 1]}…"
