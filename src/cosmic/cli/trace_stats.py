"""`cosmic trace stats`: what there is in traces and, of recorded ones, where the time went."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from cosmic.cli.console import Json, doing, emit, emit_json, emit_table
from cosmic.cli.trace_files import Groups, Prefix, complain_of, headline, read_job
from cosmic.errors import one_line

if TYPE_CHECKING:
    from cosmic.traces.recorded_statistics import ClassTime, KernelTime, Recorded
    from cosmic.traces.statistics import Chain, Statistics

SHOWN_KERNELS, SHOWN_CHARACTERS = 10, 60


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
    from cosmic.traces.checks import is_replayed, problems  # noqa: PLC0415  heavy
    from cosmic.traces.recorded_statistics import recorded_statistics  # noqa: PLC0415  heavy
    from cosmic.traces.statistics import statistics  # noqa: PLC0415  heavy
    from cosmic.units import BYTES_PER_S, FLOP_PER_S, read  # noqa: PLC0415  heavy

    rates = (read(peak, FLOP_PER_S) if peak else None, read(bandwidth, BYTES_PER_S) if bandwidth else None)
    traces, known = read_job(prefix, groups)
    doing(f"adding up {traces.nodes:,} nodes")
    found = statistics(traces, known, *rates)
    times = [recorded_statistics(trace, rank) for rank, trace in enumerate(traces.ranks)]
    if json:
        emit_json({**asdict(found), "recorded": [asdict(each) for each in times if each is not None]})
    else:
        emit([headline(traces), ""])
        if recorded := [each for each in times if each is not None]:
            _print_recorded(max(recorded, key=lambda each: each.span_s), len(recorded))
        _print(found)
    complain_of(f"warning: {sentence}" for sentence in problems(traces, known, replayed=is_replayed(traces)))


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


def _print_recorded(found: Recorded, ranks: int) -> None:
    """Print where the time of the longest rank went."""
    from cosmic.cli.evaluate import bar, seconds  # noqa: PLC0415  heavy

    whose = f"rank {found.rank}, the longest of {ranks:,}" if ranks > 1 else f"rank {found.rank}"
    emit([f"{whose}: {seconds(found.span_s)}; {found.kernels:,} kernels on {found.streams} streams", ""])
    shares = {
        "device busy": found.busy_s,
        "idle: next kernel not launched": found.launch_bound_s,
        "idle: gaps between kernels": found.gaps_s,
        "communication": found.communication_s,
        "overlapped by compute": found.overlapped_s,
        "exposed": found.exposed_s,
        "host busy": found.host_s,
    }
    total = found.span_s or 1.0
    rows = [[name, seconds(each), f"{100 * each / total:.1f} %", bar(each / total)] for name, each in shares.items()]
    emit_table("", ["", "time", "share", ""], rows)
    emit([""])
    times = [
        [each.name, each.kernels, seconds(each.seconds), f"{100 * each.seconds / total:.1f} %", *_rates(each)]
        for each in found.classes
    ]
    emit_table("", ["class of kernels", "kernels", "time", "of the span", "reached", "moved"], times)
    emit([""])
    top = [[_short(each.name), each.runs, seconds(each.seconds), *_rates(each)] for each in found.top[:SHOWN_KERNELS]]
    emit_table("", ["longest kernels", "runs", "time", "reached", "moved"], top)
    emit([""])


def _rates(each: ClassTime | KernelTime) -> list[str]:
    """Return FLOP/s and bytes/s for a person to read."""
    from cosmic.traces.views import amount  # noqa: PLC0415  heavy
    from cosmic.units import BYTES_PER_S, FLOP_PER_S  # noqa: PLC0415  heavy

    return [
        amount(each.flop_per_s, FLOP_PER_S) if each.flop_per_s else "",
        amount(each.bytes_per_s, BYTES_PER_S) if each.bytes_per_s else "",
    ]


def _short(name: str) -> str:
    """Return a kernel's name without its arguments, cut: templates can be very long.

    >>> _short("void at::native::vectorized_elementwise_kernel<8, Functor<float> >(int, Functor<float>)")
    'vectorized_elementwise_kernel'
    """
    plain = one_line(name).removeprefix("void ").split("<")[0].split("(")[0].rpartition("::")[2] or one_line(name)
    return plain if len(plain) <= SHOWN_CHARACTERS else f"{plain[: SHOWN_CHARACTERS - 1]}…"
