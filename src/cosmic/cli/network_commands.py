"""The commands of networks: bound, synthesize, check and convert collectives on any network; provision its bandwidth.

Arguments are read as values (`read_request`), schedules as files.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cosmic.base.errors import SpecError, UnknownName, require
from cosmic.base.files import DASH, check_folder, check_writable, make_folder, write_text
from cosmic.cli import value_completion
from cosmic.cli.console import Json, Settings, emit_commands, emit_json, emit_table, new_app, print_sentences
from cosmic.cli.evaluate_command import format_seconds
from cosmic.cli.exit_codes import FAILED
from cosmic.cli.output_streams import StatusLine, complain, doing, emit
from cosmic.cli.value_completion import complete_one_of

if TYPE_CHECKING:
    from cosmic.network.link_graph import LinkGraph
    from cosmic.network.schedules.baseline_algorithms import Baseline
    from cosmic.network.schedules.collective_schedule import Kind, Schedule
    from cosmic.network.schedules.schedule_checking import ScheduleVerdict
    from cosmic.network.schedules.schedule_formats import Stated
    from cosmic.network.synthesis.lower_bounds import Bounds
    from cosmic.search.provision.bandwidth_problem import Binding, Price, Provisioned, WholePorts


# --------------------------------------------------------------------------------------
# What `cosmic collective` reads and writes: arguments as values, schedules as files
# --------------------------------------------------------------------------------------

COLLECTIVES = ("all-gather", "reduce-scatter", "all-reduce", "all-to-all", "broadcast", "reduce")
TARGETS = ("msccl", "chakra", "perfetto", "svg", "csv")
RANK_RANGE = ("msccl", "chakra")
"""Formats that somebody will run."""
AUTO = "auto"
MOST_CHUNKS, MOST_IN_ALL = 2**16, 2**22
"""Chunks that may be asked for: of one NPU, and of all."""
_RANKS = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?")
MEANINGS = {
    "not_causal": "leave a node before their chunk is there",
    "overlapping": "begin while another is on their link",
    "too_short": "take less than latency + bytes / bandwidth",
    "duplicate": "bring what is there already, or go no further",
    "missing": "deliveries that never happen",
}


@dataclass(frozen=True)
class CollectiveRequest:
    """A collective on a network, as the arguments of a command state it."""

    graph: LinkGraph
    kind: Kind
    size_bytes: float
    chunks: int | None
    groups: tuple[tuple[int, ...], ...]
    stated_groups: tuple[tuple[int, ...], ...] | None
    """None where all NPUs are one group."""
    root: int

    @property
    def in_words(self) -> str:
        """What is asked for, for a person to read."""
        members = sum(map(len, self.groups))
        among = f"{members:,} NPUs" if members == self.graph.npus else f"{members:,} of {self.graph.npus:,} NPUs"
        several = f" in {len(self.groups):,} groups" if len(self.groups) > 1 else ""
        return f"{self.kind.replace('_', '-')} of {bytes_in_words(self.size_bytes)} among {among}{several}"

    def as_json(self) -> dict[str, Any]:
        """Return what is asked for, for programs."""
        return {
            "collective": self.kind,
            "size_bytes": self.size_bytes,
            "npus": self.graph.npus,
            "switches": self.graph.switches,
            "links": self.graph.links,
            "groups": len(self.groups),
        }


def complete_networks(incomplete: str) -> list[str]:
    """Return the systems of the catalog, for a shell."""
    from cosmic.design.catalog_entries import entry_names  # noqa: PLC0415  only where a network is completed

    return [name for name in entry_names("systems") if name.startswith(incomplete)]


def read_request(  # noqa: PLR0913, PLR0917  the arguments of a command
    network: str, collective: str, size: str, chunks: str, groups: list[str], root: int, fail: list[str]
) -> CollectiveRequest:
    """Return what the arguments of a command ask for; the NPUs that take part must reach each other."""
    from cosmic.network.link_graph import require_connected  # noqa: PLC0415  heavy
    from cosmic.network.network_graphs import load_network  # noqa: PLC0415  heavy
    from cosmic.network.schedules.collective_schedule import (  # noqa: PLC0415  heavy
        check_groups,
        chunk_count,
    )

    kind, number, amount = kind_of(collective), chunks_of(chunks), size_of(size)
    doing("reading the network")
    graph = load_network(network, fail)
    stated_groups = groups_of(groups, graph.npus)
    members = stated_groups or (tuple(range(graph.npus)),)
    check_groups(graph, members, root, "--group")
    require_connected(graph, members)
    total = sum(chunk_count(kind, len(group), number or 1) for group in members)
    rule = f"makes {total:,} chunks, more than the {MOST_IN_ALL:,} that are told apart"
    require(number is None or total <= MOST_IN_ALL, "--chunks", chunks, rule)
    return CollectiveRequest(graph, kind, amount, number, members, stated_groups, root)


def read_stated_request(  # noqa: PLR0913, PLR0917  the arguments of a command
    network: str, collective: str, size: str, chunks: str, groups: list[str], root: int, fail: list[str]
) -> Stated:
    """Return what the arguments of a command say about a schedule."""
    from cosmic.network.network_graphs import load_network  # noqa: PLC0415  heavy
    from cosmic.network.schedules.schedule_formats import Stated  # noqa: PLC0415  heavy

    kind = kind_of(collective) if collective else None
    number, amount = chunks_of(chunks), size_of(size)
    graph = load_network(network, fail) if network else None
    if graph is None:
        for option, given in (("--group", groups), ("--fail", fail)):
            require(not given, option, given, "needs --network, too")
        return Stated(None, kind, amount, number, None, root)
    return Stated(graph, kind, amount, number, groups_of(groups, graph.npus), root)


def read_schedule_file(path: str, about: Stated) -> Schedule:
    """Return the schedule in a file."""
    from cosmic.network.schedules.schedule_formats import read_schedule  # noqa: PLC0415  heavy

    return read_schedule(path, about)


def kind_of(text: str) -> Kind:
    """Return the collective that *text* names, however its words are joined.

    >>> kind_of("All-Gather"), kind_of("reduce_scatter"), kind_of("allreduce")
    ('all_gather', 'reduce_scatter', 'all_reduce')
    """
    from cosmic.network.schedules.collective_schedule import KINDS  # noqa: PLC0415  heavy

    plain = re.sub(r"[-_ ]", "", text.lower())
    for kind in KINDS:
        if kind.replace("_", "") == plain:
            return kind
    raise UnknownName.among("--collective", text, "collective", COLLECTIVES)


def chunks_of(text: str) -> int | None:
    """Return a number of chunks, None for ``auto``."""
    if text.strip().lower() == AUTO:
        return None
    rule = f"must be auto, or a whole number from 1 to {MOST_CHUNKS:,}"
    require(bool(re.fullmatch(r"[0-9]{1,9}", text.strip(), re.ASCII)), "--chunks", text, rule)
    require(1 <= int(text) <= MOST_CHUNKS, "--chunks", text, rule)
    return int(text)


def size_of(text: str) -> float:
    """Return a size in bytes."""
    from cosmic.base.units import (  # noqa: PLC0415  heavy
        BYTES,
        read_quantity,
    )

    try:
        size = read_quantity(text, BYTES)
    except SpecError as error:
        raise SpecError("--size", error.value, error.rule) from None
    require(size > 0, "--size", text, "must be positive")
    return size


def groups_of(texts: list[str], npus: int) -> tuple[tuple[int, ...], ...] | None:
    """Return groups of ranks; None if none is stated.

    >>> groups_of(["0-2,7", "4,3"], 8)
    ((0, 1, 2, 7), (4, 3))
    """
    if not texts:
        return None
    return tuple(
        tuple(rank for part in text.split(",") for rank in _parse_ranks(part.strip(), text, npus)) for text in texts
    )


def _parse_ranks(part: str, text: str, npus: int) -> range:
    match = _RANKS.fullmatch(part)
    require(match is not None, "--group", text, "name ranks and ranges of ranks, such as 0-3,8")
    first, last = match.groups() if match else ("0", None)
    begin, end = int(first), int(last if last is not None else first)
    require(begin <= end, "--group", text, "a range goes from the lower to the higher rank")
    require(end < npus, "--group", text, f"has {end}, and there are {npus:,} NPUs, from 0")
    return range(begin, end + 1)


# ------------------------------------------------------------------------------------------------------------ writing


def target_format(to: str, out: str) -> str:
    """Return the format to write, empty for none; refuse what cannot be written before work begins."""
    name = to.strip().lower()
    if not name:
        require(not out, "--out", out, f"says where, and --to in which format: {', '.join(TARGETS)}")
        return ""
    if name not in TARGETS:
        raise UnknownName.among("--to", to, "format", TARGETS)
    require(bool(out), "--to", to, "needs --out, the file to write")
    require(out != DASH, "--out", out, "is no file; give one")
    if name == "chakra":
        from pathlib import Path  # noqa: PLC0415  rarely needed

        require(bool(Path(out).name) and not out.endswith("/"), "--out", out, "give a prefix of files, such as runs/ag")
        check_folder(Path(out).parent, "--out")
    else:
        check_writable(out, "--out")
    return name


MOST_STEPS = 256
"""Steps of a thread block that MSCCL's runtime takes (MSCCL_MAX_NUM_STEPS)."""


def write_schedule(schedule: Schedule, name: str, out: str) -> list[str]:
    """Write a schedule in a format; return the files, of Chakra their common pattern."""
    doing(f"writing {out}")
    if name == "chakra":
        return [_write_traces(schedule, out)]
    text = _text_of_schedule(schedule, name)
    write_text(out, text, "--out")
    if name == "msccl" and (steps := max(each.count("<step ") for each in text.split("<tb "))) > MOST_STEPS:
        rule = f"MSCCL's runtime takes {MOST_STEPS} at most, others fewer: use fewer --chunks"
        complain([f"note: a thread block of {out} has {steps:,} steps; {rule}"])
    return [out]


def _text_of_schedule(schedule: Schedule, name: str) -> str:
    if name == "msccl":
        from cosmic.network.schedules.msccl_xml import msccl_text  # noqa: PLC0415  heavy

        return msccl_text(schedule)
    if name == "perfetto":
        from cosmic.network.schedules.schedule_formats import perfetto_text  # noqa: PLC0415  heavy

        return perfetto_text(schedule)
    if name == "svg":
        from cosmic.report.charts.schedule_chart import schedule_svg  # noqa: PLC0415  heavy

        return schedule_svg(schedule)
    from cosmic.network.schedules.schedule_tables import schedule_csv  # noqa: PLC0415  heavy

    return schedule_csv(schedule)


def _write_traces(schedule: Schedule, prefix: str) -> str:
    from pathlib import Path  # noqa: PLC0415  heavy

    from cosmic.traces.chakra.schedule_traces import traces_of_schedule  # noqa: PLC0415  heavy
    from cosmic.traces.chakra.trace_writer import write_traces  # noqa: PLC0415  heavy

    traces = traces_of_schedule(schedule)
    make_folder(Path(prefix).parent, "--out")
    write_traces(traces, prefix, "--out")
    return f"{prefix}.<rank>.et"


def format_time(seconds: float) -> str:
    """Return a time for a person to read.

    >>> format_time(0.00750150), format_time(0.0)
    ('7.502 ms', '0 s')
    """
    for unit, worth in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9)):
        if seconds >= worth:
            return f"{seconds / worth:.4g} {unit}"
    return "0 s"


def bytes_in_words(size: float) -> str:
    """Return a size for a person to read.

    >>> bytes_in_words(2.0**30), bytes_in_words(1e9), bytes_in_words(1073741820.0)
    ('1 GiB', '1 GB', '1,073,741,820 bytes')
    """
    from cosmic.base.units import BYTES, format_quantity  # noqa: PLC0415  heavy

    text = format_quantity(size, BYTES)
    return text if len(text) <= 10 else f"{size:,.10g} bytes"


# --------------------------------------------------------------------------------------
# `cosmic collective`: collectives on any network: bound, synthesize, check, convert
# --------------------------------------------------------------------------------------

network_app = new_app(
    "Collectives on any network: how fast they can be, schedules made to measure, and checks of schedules."
)
BOUNDS = ("node_s", "cut_s", "ingress_s", "distance_s", "in_turn_s")
CHECKED = 3_000_000
"""Transfers up to which every synthesized schedule is also checked."""

Network = Annotated[
    str,
    typer.Argument(
        metavar="NETWORK",
        help="A file of links, a design, MODEL@SYSTEM:N or SYSTEM:N.",
        autocompletion=complete_networks,
    ),
]
OnNetwork = Annotated[
    str,
    typer.Option(
        "--network", metavar="NETWORK", help="The network that the schedule is for.", autocompletion=complete_networks
    ),
]
File = Annotated[str, typer.Argument(metavar="SCHEDULE", help="CSV, a log of TACOS, or MSCCL-XML.")]
Collective = Annotated[
    str, typer.Option("--collective", help=f"{', '.join(COLLECTIVES)}.", autocompletion=complete_one_of(*COLLECTIVES))
]
Size = Annotated[str, typer.Option("--size", help="Buffer of one NPU, such as '1 GiB': output of an all-gather.")]
Chunks = Annotated[str, typer.Option("--chunks", metavar="N|auto", help="Chunks for each NPU.")]
Groups = Annotated[
    list[str],
    typer.Option("--group", metavar="RANKS", help="Ranks that take part, such as 0-3,8; once for each group."),
]
Root = Annotated[int, typer.Option("--root", min=0, help="Position of the root in its group.")]
Failures = Annotated[
    list[str], typer.Option("--fail", metavar="A-B", help="Leave out a link: A-B, A>B; or slow it: A-B*0.25.")
]
To = Annotated[str, typer.Option("--to", help=f"{', '.join(TARGETS)}.", autocompletion=complete_one_of(*TARGETS))]
Out = Annotated[str, typer.Option("--out", metavar="PATH", help="File to write; of chakra, the prefix of its files.")]


@network_app.command()
def bound(  # noqa: PLR0913, PLR0917  each parameter is an option
    network: Network,
    collective: Collective = "all-gather",
    size: Size = "1 GiB",
    chunks: Chunks = "auto",
    groups: Groups = [],  # noqa: B006  typer copies it
    root: Root = 0,
    fail: Failures = [],  # noqa: B006  typer copies it
    json: Json = False,
) -> None:
    """Print what no schedule can beat, the cut that binds, and how far textbook algorithms are from it."""
    from cosmic.network.schedules.baseline_algorithms import make_baselines  # noqa: PLC0415  heavy
    from cosmic.network.synthesis.lower_bounds import collective_bounds  # noqa: PLC0415  heavy

    asked = read_request(network, collective, size, chunks, groups, root, fail)
    doing("bounding")
    found = collective_bounds(
        asked.graph, asked.kind, asked.size_bytes, chunks=asked.chunks, groups=asked.stated_groups, root=root
    )
    doing("simulating textbook algorithms")
    others = make_baselines(asked.graph, asked.kind, asked.size_bytes, asked.groups, root)
    if json:
        emit_json(_bound_json(asked, found, others))
        return
    emit([f"{asked.in_words}: no schedule takes less than {format_time(found.seconds)}", ""])
    rows = [["node", found.node_s, "what an NPU must send or receive, over its links"]]
    rows += [["cut", found.cut_s, _cut_words(asked, found)]]
    rows += [["ingress", found.ingress_s, "whole chunks into an NPU"]] if asked.chunks else []
    rows += [["distance", found.distance_s, "the farthest NPU"]]
    rows += [["in turn", found.in_turn_s, "a reduce-scatter, then an all-gather"]] if found.in_turn_s else []
    emit_table("", ["bound", "time_s", "by"], rows)
    emit([""])
    shares = [
        [other.algorithm.replace("_", "-"), other.time_s, _times_over_bound(other, found), other.reason]
        for other in others
    ]
    emit_table("", ["textbook", "time_s", "over bound", ""], shares)


def _cut_words(asked: CollectiveRequest, found: Bounds) -> str:
    """Return the side of the cut that binds."""
    if not found.cut:
        return "no cut binds"
    names = [asked.graph.name(node) for node in found.cut]
    shown = ", ".join(names[:12]) + (f" and {len(names) - 12:,} more" if len(names) > 12 else "")
    return f"the links between {shown} and all others"


def _times_over_bound(each: Baseline, found: Bounds) -> float | None:
    return each.time_s / found.seconds if each.time_s is not None and found.seconds else None


def _bound_json(asked: CollectiveRequest, found: Bounds, others: list[Baseline]) -> dict[str, Any]:
    return {
        **asked.as_json(),
        "chunks_per_npu": asked.chunks,
        "bound_s": found.seconds,
        "bounds": {name: getattr(found, name) for name in BOUNDS},
        "cut": [asked.graph.name(node) for node in found.cut],
        "algorithms": [{**asdict(other), "over_bound": _times_over_bound(other, found)} for other in others],
    }


@network_app.command()
def synthesize(  # noqa: PLR0913, PLR0917  each parameter is an option
    network: Network,
    collective: Collective = "all-gather",
    size: Size = "1 GiB",
    chunks: Chunks = "auto",
    groups: Groups = [],  # noqa: B006  typer copies it
    root: Root = 0,
    seed: Annotated[int, typer.Option("--seed", min=0, max=2**63 - 1, help="Seed of ties that are drawn.")] = 0,
    fail: Failures = [],  # noqa: B006  typer copies it
    schedule: Annotated[
        str, typer.Option("--schedule", metavar="FILE.csv", help="Write source,target,chunk,start_s,end_s.")
    ] = "",
    to: To = "",
    out: Out = "",
    json: Json = False,
) -> None:
    """Make a schedule for one network and collective that comes near its bound; check it, write it."""
    from cosmic.network.synthesis.lower_bounds import collective_bounds  # noqa: PLC0415  heavy
    from cosmic.network.synthesis.schedule_synthesis import synthesize as run  # noqa: PLC0415  heavy

    target = target_format(to, out)
    if schedule:
        check_writable(schedule, "--schedule")
    asked = read_request(network, collective, size, chunks, groups, root, fail)
    with StatusLine() as line:
        made = run(
            asked.graph,
            asked.kind,
            asked.size_bytes,
            chunks=asked.chunks,
            groups=asked.stated_groups,
            root=root,
            seed=seed,
            progress=lambda share: line.show(f"cosmic collective: synthesizing · {share:.0%}"),
        )
    doing("bounding")
    limit = collective_bounds(
        asked.graph, asked.kind, asked.size_bytes, chunks=asked.chunks, groups=asked.stated_groups, root=root
    )
    verdict = _check_schedule(made)
    if schedule:
        from cosmic.network.schedules.schedule_tables import schedule_csv  # noqa: PLC0415  heavy

        write_text(schedule, schedule_csv(made), "--schedule")
    written = write_schedule(made, target, out) if target else []
    files = ([schedule] if schedule else []) + written
    _report_schedule(asked, made, limit, verdict, files, json)


def _report_schedule(
    asked: CollectiveRequest,
    made: Schedule,
    limits: Bounds,
    verdict: ScheduleVerdict | None,
    files: list[str],
    json: bool,
) -> None:
    limit, in_turn = limits.seconds, limits.in_turn_s
    over = made.time_s / limit if limit else None
    rate = asked.size_bytes / made.time_s if made.time_s else None
    if json:
        emit_json(
            {
                **asked.as_json(),
                "time_s": made.time_s,
                "bound_s": limit,
                "over_bound": over,
                "in_turn_bound_s": in_turn or None,
                "algbw_bytes_per_s": rate,
                "chunks_per_npu": made.chunks_per_npu,
                "transfers": made.transfers,
                "valid": None if verdict is None else verdict.valid,
                "files": files,
            }
        )
    else:
        chunks = f"{made.chunks_per_npu:,} chunk{'s' if made.chunks_per_npu > 1 else ''} for each NPU"
        emit([f"{asked.in_words}: {format_time(made.time_s)}"])
        if over is not None and rate is not None:
            emit([f"{over:.3f}× the bound of {format_time(limit)} · algbw {rate / 1e9:,.4g} GB/s"])
        if in_turn > limit and made.time_s:
            shown = f"{made.time_s / in_turn:.3f}× the bound of a reduce-scatter and an all-gather in turn"
            emit([f"{shown}, {format_time(in_turn)}"])
        unchecked = f"not checked: more than {CHECKED:,}"
        emit([f"{chunks} · {made.transfers:,} transfers ({'checked' if verdict else unchecked})"])
        emit(f"wrote {path}" for path in files)
    if verdict is not None and not verdict.valid:
        complain(
            ["cosmic collective: the schedule is not valid, which is a mistake of ours", *_violations_in_words(verdict)]
        )
        raise typer.Exit(FAILED)


def _check_schedule(made: Schedule) -> ScheduleVerdict | None:
    from cosmic.network.schedules.schedule_checking import check_schedule as judge  # noqa: PLC0415  heavy

    if made.transfers > CHECKED:
        return None
    doing("checking")
    return judge(made)


@network_app.command()
def check(  # noqa: PLR0913, PLR0917  each parameter is an option
    schedule: File,
    network: OnNetwork = "",
    collective: Collective = "",
    size: Size = "1 GiB",
    chunks: Chunks = "auto",
    groups: Groups = [],  # noqa: B006  typer copies it
    root: Root = 0,
    fail: Failures = [],  # noqa: B006  typer copies it
    json: Json = False,
) -> None:
    """Check whether a schedule can run as it is and does what it is for; exit with 1 if not."""
    from cosmic.network.schedules.schedule_checking import check_schedule as judge  # noqa: PLC0415  heavy

    doing("reading the schedule")
    read = read_schedule_file(schedule, read_stated_request(network, collective, size, chunks, groups, root, fail))
    doing(f"checking {read.transfers:,} transfers")
    verdict = judge(read)
    if json:
        emit_json({**_schedule_data(read), "valid": verdict.valid, "violations": _violations(verdict)})
    else:
        words = "valid" if verdict.valid else "not valid"
        emit([f"{_schedule_in_words(read)}: {words}", ""])
        rows = [[kind.replace("_", " "), count, MEANINGS[kind]] for kind, count in verdict.counts.items()]
        emit_table("", ["violation", "transfers", "meaning"], rows)
        if not verdict.valid:
            emit([""])
            print_sentences(_violations_in_words(verdict))
            if not collective:
                what = f"{read.kind.replace('_', '-')} of {bytes_in_words(read.size_bytes)}"
                emit([f"It was checked as an {what}: --collective and --size say what it is for."])
    if not verdict.valid:
        raise typer.Exit(FAILED)


def _schedule_in_words(read: Schedule) -> str:
    kind = read.kind.replace("_", "-")
    return f"{kind} of {bytes_in_words(read.size_bytes)}, {read.transfers:,} transfers, {format_time(read.time_s)}"


def _schedule_data(read: Schedule) -> dict[str, Any]:
    return {
        "collective": read.kind,
        "size_bytes": read.size_bytes,
        "npus": read.graph.npus,
        "chunks_per_npu": read.chunks_per_npu,
        "transfers": read.transfers,
        "time_s": read.time_s,
    }


def _violations(verdict: ScheduleVerdict) -> dict[str, dict[str, Any]]:
    return {kind: {"count": count, "examples": list(verdict.examples[kind])} for kind, count in verdict.counts.items()}


def _violations_in_words(verdict: ScheduleVerdict) -> list[str]:
    """Return the first violations of each kind in words."""
    return [f"{kind.replace('_', ' ')}: {words}" for kind, found in verdict.examples.items() for words in found]


@network_app.command()
def convert(  # noqa: PLR0913, PLR0917  each parameter is an option
    schedule: File,
    to: To,
    out: Out,
    network: OnNetwork = "",
    collective: Collective = "",
    size: Size = "1 GiB",
    chunks: Chunks = "auto",
    groups: Groups = [],  # noqa: B006  typer copies it
    root: Root = 0,
    fail: Failures = [],  # noqa: B006  typer copies it
    json: Json = False,
) -> None:
    """Write a schedule in another format; one that is not valid only as CSV, Perfetto or SVG."""
    from cosmic.network.schedules.schedule_checking import check_schedule as judge  # noqa: PLC0415  heavy

    target = target_format(to, out)
    require(bool(target), "--to", to, f"choose from {', '.join(TARGETS)}")
    doing("reading the schedule")
    read = read_schedule_file(schedule, read_stated_request(network, collective, size, chunks, groups, root, fail))
    if target in RANK_RANGE:
        verdict = judge(read)
        if not verdict.valid:
            complain(
                [f"cosmic collective: {schedule} is not valid, and nothing is written", *_violations_in_words(verdict)]
            )
            raise typer.Exit(FAILED)
    files = write_schedule(read, target, out)
    if json:
        emit_json({**_schedule_data(read), "files": files})
    else:
        emit([_schedule_in_words(read), *(f"wrote {path}" for path in files)])


# --------------------------------------------------------------------------------------
# `cosmic provision`: bandwidth that is made to measure
# --------------------------------------------------------------------------------------

provision_app = new_app()
GIGA = 1e9
LEAST_SHOWN_S = 1e-11
"""Less than this, for a GB/s, is nothing but rounding."""


@provision_app.command()
def provision(  # noqa: PLR0913, PLR0917  one option each
    source: Annotated[
        str,
        typer.Argument(
            metavar="DESIGN|SPACE|NETWORK",
            help="MODEL@SYSTEM:GPUS, a design file, a parameter set, or a network file of LIBRA.",
            autocompletion=value_completion.complete_designs,
        ),
    ],
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="'500 GB/s'", help="What to spend: bandwidth of an NPU, or '10 M USD'; '<= …' for at most."
        ),
    ] = None,
    objective: Annotated[
        str | None,
        typer.Option(
            help="time (default), or time_per_dollar: time multiplied by the network's cost.",
            autocompletion=value_completion.complete_one_of("time", "time_per_dollar"),
        ),
    ] = None,
    limit: Annotated[
        list[str],
        typer.Option(metavar="'B0 >= B1'", help="A limit, such as 'network.dims.0.bandwidth >= 100 GB/s'."),
    ] = [],  # noqa: B006  typer copies it
    workload: Annotated[
        list[str],
        typer.Option(
            metavar="WORKLOAD[=WEIGHT]", help="Another design on this network, or a text workload of ASTRA-sim 1.0."
        ),
    ] = [],  # noqa: B006
    communicator: Annotated[
        list[str], typer.Option(metavar="FILE", help="With LIBRA's files: the groups of each pass.")
    ] = [],  # noqa: B006
    cost: Annotated[str | None, typer.Option(metavar="FILE", help="With LIBRA's files: prices of each tier.")] = None,
    loop: Annotated[
        str,
        typer.Option(
            help="With LIBRA's files: no_overlap, or tp_dp_overlap, which hides gradients behind the backward pass.",
            autocompletion=value_completion.complete_one_of("no_overlap", "tp_dp_overlap"),
        ),
    ] = "no_overlap",
    in_network_reduction: Annotated[
        bool, typer.Option("--in-network-reduction", help="With LIBRA's files: switches reduce.")
    ] = False,
    ports: Annotated[
        str | None, typer.Option(metavar="'50 GB/s'", help="Also the best in whole ports of this bandwidth.")
    ] = None,
    radix: Annotated[int | None, typer.Option(help="With --ports: the ports of a switch.")] = None,
    settings: Settings = [],  # noqa: B006
    json: Json = False,
) -> None:
    """Print the best bandwidth of every network dimension under a budget, why, and what more of it is worth."""
    from cosmic.design.loading import parse_overrides  # noqa: PLC0415  heavy
    from cosmic.search.provision.provisioning import names_space, provision_base  # noqa: PLC0415  heavy
    from cosmic.search.provision.provisioning import provision as run  # noqa: PLC0415  heavy

    if names_space(source):
        _refuse_options_of_designs(settings, workload, communicator, cost, loop, in_network_reduction)
        base = provision_base(
            source,
            budget=budget,
            objective=objective,  # type: ignore[arg-type]  # checked there
            limits=limit,
            ports=ports,
            radix=radix,
        )
        if json:
            emit_json(_data(source, base))
        else:
            print_sentences(
                [f"the base design of {source}; the key provision has a search do this for each of its designs"]
            )
            _print("", [], base)
        return
    found = run(
        source,
        budget=budget,
        objective=objective or "time",  # type: ignore[arg-type]  # checked there
        limits=limit,
        workloads=workload,
        communicators=communicator,
        cost=cost,
        loop=loop,  # type: ignore[arg-type]
        in_network_reduction=in_network_reduction,
        ports=ports,
        radix=radix,
        overrides=parse_overrides(settings),
    )
    if json:
        emit_json(_data(source, found))
    else:
        _print(source, settings, found)


def _refuse_options_of_designs(
    settings: list[str], workload: list[str], communicator: list[str], cost: str | None, loop: str, reducing: bool
) -> None:
    """Refuse what goes with designs and LIBRA's files, and not with parameter sets."""
    from cosmic.base.errors import SpecError  # noqa: PLC0415

    for option, given in {
        "--set": ", ".join(settings),
        "--workload": ", ".join(workload),
        "--communicator": ", ".join(communicator),
        "--cost": cost or "",
        "--loop": "" if loop == "no_overlap" else loop,
        "--in-network-reduction": "yes" if reducing else "",
    }.items():
        if given:
            raise SpecError(option, given, "goes with a design, not with a parameter set: state it there")


def _data(source: str, found: Provisioned) -> dict[str, Any]:
    return {
        "source": source,
        "objective": found.objective,
        "headline": found.headline(),
        "time_s": found.time_s,
        "base_time_s": found.base_time_s,
        "cost_usd": found.cost_usd,
        "base_cost_usd": found.base_cost_usd,
        "value": found.value,
        "gain": found.gain,
        "bound": found.bound,
        "duality_gap": found.duality_gap,
        "bandwidth_bytes_per_s": [dim.bandwidth_bytes_per_s for dim in found.dims],
        "dims": [asdict(dim) for dim in found.dims],
        "workloads": [asdict(load) for load in found.loads],
        "shadow_prices": [
            {
                "limit": price.limit.text,
                "sense": price.limit.sense,
                "value": price.limit.value,
                "binds": price.binds,
                "worth_per_unit": price.per_unit,
            }
            for price in found.prices
        ],
        "bindings": [
            {
                "workload": binding.load,
                "collective": binding.traffic,
                "time_s": binding.seconds,
                "dims": list(binding.dims),
                "shares": list(binding.shares),
            }
            for binding in found.bindings
        ],
        "ports": None if found.ports is None else asdict(found.ports),
    }


def _print(source: str, settings: list[str], found: Provisioned) -> None:
    print_sentences([found.headline()])
    emit_table(
        "",
        ["dimension", "topology", "NPUs", "before, GB/s", "GB/s", "USD", "busiest with", "another GB/s saves"],
        [
            [
                str(index),
                dim.topology,
                str(dim.npus),
                f"{dim.base_bytes_per_s / GIGA:.4g}",
                f"{dim.bandwidth_bytes_per_s / GIGA:.4g}",
                f"{dim.cost_usd:,.0f}",
                dim.busiest or "nothing",
                _savings_in_words(dim.worth_s_per_bytes_per_s * GIGA),
            ]
            for index, dim in enumerate(found.dims)
        ],
    )
    emit([""])
    names = [f"{load.name}: {format_seconds(load.base_time_s)} → {format_seconds(load.time_s)}" for load in found.loads]
    print_sentences([*names, f"network, priced by bandwidth: {found.base_cost_usd:,.0f} → {found.cost_usd:,.0f} USD"])
    said = [_binding_limits(binding, several=len(found.loads) > 1) for binding in found.bindings if binding.dims]
    print_sentences(dict.fromkeys(said))
    print_sentences([_limit_price_in_words(price, found.objective) for price in found.prices if price.binds])
    if found.duality_gap is not None:
        print_sentences(
            [f"proven: no bandwidth within the limits is better by more than {max(found.duality_gap, 1e-12):.1g}"]
        )
    if found.ports is not None:
        _print_ports(found.ports)
    if found.bound is None and source:
        rates = [
            f"network.dims.{index}.bandwidth={dim.bandwidth_bytes_per_s / GIGA!r} GB/s"
            for index, dim in enumerate(found.dims)
        ]
        words = [word for each in (*settings, *rates) for word in ("--set", each)]
        emit([""])
        emit_commands({f"cosmic evaluate {shlex.join([source, *words])}": "what it achieves, and what would help next"})


def _savings_in_words(worth_s: float) -> str:
    return format_seconds(worth_s) if worth_s > LEAST_SHOWN_S else "nothing"


def _binding_limits(each: Binding, *, several: bool) -> str:
    names = ", ".join(map(str, each.dims))
    which = f"dimension {names} binds" if len(each.dims) == 1 else f"dimensions {names} bind"
    return f"{which} {each.traffic}" + (f" of {each.load}" if several else "")


def _limit_price_in_words(price: Price, objective: str) -> str:
    """Return what a limit costs in words: for a GB/s, or for a thousand dollars."""
    dollars = "USD" in price.limit.text
    unit, size = ("1,000 USD", 1e3) if dollars else ("GB/s", GIGA)
    worth = price.per_unit * size
    moved = f"{unit} less" if price.limit.sense == ">=" else f"another {unit}"
    amount = format_seconds(abs(worth)) if objective == "time" else f"{abs(worth):.3g} s·USD"
    if abs(worth) < LEAST_SHOWN_S:
        return f"{price.limit.text}: {moved} is worth nothing"
    return f"{price.limit.text}: {moved} {'saves' if worth > 0 else 'costs'} {amount}"


def _print_ports(whole: WholePorts) -> None:
    rates = " / ".join(f"{rate / GIGA:.4g}" for rate in whole.bandwidth_bytes_per_s)
    counts = " / ".join(map(str, whole.ports))
    print_sentences(
        [
            f"in whole ports of {whole.port}: {counts}, that is {rates} GB/s, {format_seconds(whole.time_s)}, "
            f"{whole.cost_usd:,.0f} USD: {100 * whole.gap:.2g} % above the best bandwidth"
        ]
    )
