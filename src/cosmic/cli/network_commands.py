"""The commands of networks: bound, synthesize, check and convert collectives on any network; provision its bandwidth.

Arguments are read as values (`read_request`), schedules as files.
"""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from cosmic.base.errors import UnknownName, require
from cosmic.base.files import DASH, check_folder, check_writable, write_text
from cosmic.cli import value_completion
from cosmic.cli.console import (
    MORE,
    Json,
    Settings,
    emit_commands,
    emit_json,
    emit_table,
    format_seconds,
    print_sentences,
)
from cosmic.cli.output_streams import FAILED, StatusLine, complain, doing, emit
from cosmic.cli.value_completion import complete_one_of

if TYPE_CHECKING:
    from cosmic.network.collective_requests import SynthesizedSchedule
    from cosmic.network.schedules.collective_schedule import Schedule
    from cosmic.network.schedules.schedule_checking import ScheduleVerdict
    from cosmic.search.provision.bandwidth_problem import Binding, Price, Provisioned, WholePorts


# ---- What `cosmic network` reads and writes: arguments as values, schedules as files

COLLECTIVES = ("all-gather", "reduce-scatter", "all-reduce", "all-to-all", "broadcast", "reduce")
TARGETS = ("msccl", "chakra", "perfetto", "svg", "csv")
RANK_RANGE = ("msccl", "chakra")
"""Formats that somebody will run."""
MEANINGS = {
    "not_causal": "leave a node before their chunk is there",
    "overlapping": "begin while another is on their link",
    "too_short": "take less than latency + bytes / bandwidth",
    "duplicate": "bring what is there already, or go no further",
    "operation": "add up what is whole, or copy what is a part of a sum",
    "missing": "deliveries that never happen",
}


def complete_networks(incomplete: str) -> list[str]:
    """Return the systems of the catalog, for a shell."""
    from cosmic.design.catalog_entries import entry_names  # noqa: PLC0415  only where a network is completed

    return [name for name in entry_names("systems") if name.startswith(incomplete)]


# ---- writing


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


def write_files(schedule: Schedule, name: str, out: str) -> list[str]:
    """Write a schedule in a format; return the files, of Chakra their common pattern."""
    from cosmic.report.schedule_files import write_schedule  # noqa: PLC0415  heavy

    doing(f"writing {out}")
    return write_schedule(schedule, name, out, lambda note: complain([note]))


# ---- `cosmic network`: collectives on any network: bound, synthesize, check, convert

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
    typer.Option(
        "--group",
        metavar="RANKS",
        help="Ranks that take part, such as 0-3,8; once for each group.",
        rich_help_panel=MORE,
    ),
]
Root = Annotated[int, typer.Option("--root", min=0, help="Position of the root in its group.", rich_help_panel=MORE)]
Failures = Annotated[
    list[str], typer.Option("--fail", metavar="A-B", help="Leave out a link: A-B, A>B; or slow it: A-B*0.25.")
]
To = Annotated[str, typer.Option("--to", help=f"{', '.join(TARGETS)}.", autocompletion=complete_one_of(*TARGETS))]
Out = Annotated[str, typer.Option("--out", metavar="PATH", help="File to write; of chakra, the prefix of its files.")]


def bound(
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
    from cosmic.network.collective_requests import bound as run  # noqa: PLC0415  heavy
    from cosmic.network.collective_requests import format_time  # noqa: PLC0415  heavy

    doing("bounding")
    found = run(network, collective=collective, size=size, chunks=chunks, groups=groups, root=root, fail=fail)
    doing("simulating textbook algorithms")
    others = found.algorithms
    if json:
        emit_json(found)
        return
    emit([f"{found.request.in_words}: no schedule takes less than {format_time(found.seconds)}", ""])
    rows = [["node", found.node_s, "what an NPU must send or receive, over its links"]]
    rows += [["cut", found.cut_s, _cut_words(found.cut_names)]]
    rows += [["ingress", found.ingress_s, "whole chunks into an NPU"]] if found.request.chunks else []
    rows += [["distance", found.distance_s, "the farthest NPU"]]
    rows += [["in turn", found.in_turn_s, "a reduce-scatter, then an all-gather"]] if found.in_turn_s else []
    emit_table("", ["bound", "time_s", "by"], rows)
    emit([""])
    shares = [[other.algorithm.replace("_", "-"), other.time_s, other.over_bound, other.reason] for other in others]
    emit_table("", ["textbook", "time_s", "over bound", ""], shares)


def _cut_words(names: list[str]) -> str:
    """Return the side of the cut that binds."""
    if not names:
        return "no cut binds"
    shown = ", ".join(names[:12]) + (f" and {len(names) - 12:,} more" if len(names) > 12 else "")
    return f"the links between {shown} and all others"


def synthesize(  # noqa: PLR0913, PLR0917  each parameter is an option
    network: Network,
    collective: Collective = "all-gather",
    size: Size = "1 GiB",
    chunks: Chunks = "auto",
    groups: Groups = [],  # noqa: B006  typer copies it
    root: Root = 0,
    seed: Annotated[
        int, typer.Option("--seed", min=0, max=2**63 - 1, help="Seed of ties that are drawn.", rich_help_panel=MORE)
    ] = 0,
    fail: Failures = [],  # noqa: B006  typer copies it
    algorithm: Annotated[
        str,
        typer.Option(
            "--algorithm", help="Write down this textbook algorithm instead, such as ring or halving_doubling."
        ),
    ] = "",
    schedule: Annotated[
        str, typer.Option("--schedule", metavar="FILE.csv", help="Write source,target,chunk,start_s,end_s,operation.")
    ] = "",
    to: To = "",
    out: Out = "",
    json: Json = False,
) -> None:
    """Make a schedule for one network and collective that comes near its bound; check it, write it."""
    from cosmic.network.collective_requests import synthesize as run  # noqa: PLC0415  heavy

    target = target_format(to, out)
    if schedule:
        check_writable(schedule, "--schedule")
    with StatusLine() as line:
        made = run(
            network,
            collective=collective,
            size=size,
            chunks=chunks,
            groups=groups,
            root=root,
            seed=seed,
            fail=fail,
            algorithm=algorithm,
            progress=lambda share: line.show(f"cosmic network synthesize: synthesizing · {share:.0%}"),
        )
    doing("checking")
    if schedule:
        from cosmic.network.schedules.schedule_tables import schedule_csv  # noqa: PLC0415  heavy

        write_text(schedule, schedule_csv(made), "--schedule")
    written = write_files(made, target, out) if target else []
    made = replace(made, files=(*([schedule] if schedule else []), *written))
    if json:
        emit_json(made)
    else:
        _print_schedule(made)
    if made.checked is not None and not made.checked.valid:
        complain(
            [
                "cosmic network synthesize: the schedule is not valid, which is a mistake of ours",
                *_violations_in_words(made.checked),
            ]
        )
        raise typer.Exit(FAILED)


def _print_schedule(made: SynthesizedSchedule) -> None:
    from cosmic.network.collective_requests import CHECKED, format_time  # noqa: PLC0415  heavy

    limit, in_turn, over, rate = made.limits.seconds, made.limits.in_turn_s, made.over_bound, made.algbw_bytes_per_s
    chunks = f"{made.chunks_per_npu:,} chunk{'s' if made.chunks_per_npu > 1 else ''} for each NPU"
    emit([f"{made.request.in_words}: {format_time(made.time_s)}"])
    if over is not None and rate is not None:
        emit([f"{over:.3f}× the bound of {format_time(limit)} · algbw {rate / 1e9:,.4g} GB/s"])
    if in_turn > limit and made.time_s:
        shown = f"{made.time_s / in_turn:.3f}× the bound of a reduce-scatter and an all-gather in turn"
        emit([f"{shown}, {format_time(in_turn)}"])
    unchecked = f"not checked: more than {CHECKED:,}"
    emit([f"{chunks} · {made.transfers:,} transfers ({'checked' if made.checked else unchecked})"])
    emit(f"wrote {path}" for path in made.files)


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
    from cosmic.network.collective_requests import bytes_in_words, read_stated_request  # noqa: PLC0415  heavy
    from cosmic.network.schedules.schedule_checking import check_schedule as judge  # noqa: PLC0415  heavy
    from cosmic.network.schedules.schedule_formats import read_schedule  # noqa: PLC0415  heavy

    doing("reading the schedule")
    stated = read_stated_request(network, collective, size, chunks, groups, root, fail)
    read = read_schedule(schedule, stated)
    doing(f"checking {read.transfers:,} transfers")
    verdict = judge(read)
    if json:
        emit_json(verdict)
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
    from cosmic.network.collective_requests import bytes_in_words, format_time  # noqa: PLC0415  heavy

    kind = read.kind.replace("_", "-")
    return f"{kind} of {bytes_in_words(read.size_bytes)}, {read.transfers:,} transfers, {format_time(read.time_s)}"


def _violations_in_words(verdict: ScheduleVerdict) -> list[str]:
    """Return the first violations of each kind in words."""
    return [
        f"{kind.replace('_', ' ')}: {words}" for kind, violations in verdict.examples.items() for words in violations
    ]


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
    from cosmic.network.collective_requests import read_stated_request  # noqa: PLC0415  heavy
    from cosmic.network.schedules.schedule_checking import check_schedule as judge  # noqa: PLC0415  heavy
    from cosmic.network.schedules.schedule_formats import read_schedule  # noqa: PLC0415  heavy

    target = target_format(to, out)
    require(bool(target), "--to", to, f"choose from {', '.join(TARGETS)}")
    doing("reading the schedule")
    stated = read_stated_request(network, collective, size, chunks, groups, root, fail)
    read = read_schedule(schedule, stated)
    if target in RANK_RANGE:
        verdict = judge(read)
        if not verdict.valid:
            complain(
                [
                    f"cosmic network convert: {schedule} is not valid, and nothing is written",
                    *_violations_in_words(verdict),
                ]
            )
            raise typer.Exit(FAILED)
    files = write_files(read, target, out)
    if json:
        from cosmic.report.schedule_files import ConvertedSchedule  # noqa: PLC0415  heavy

        emit_json(ConvertedSchedule(read, tuple(files)))
    else:
        emit([_schedule_in_words(read), *(f"wrote {path}" for path in files)])


# ---- `cosmic network provision`: bandwidth that is made to measure

GIGA = 1e9
LEAST_SHOWN_S = 1e-11
"""Less than this, for a GB/s, is nothing but rounding."""


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
        list[str],
        typer.Option(metavar="FILE", help="With LIBRA's files: the groups of each pass.", rich_help_panel=MORE),
    ] = [],  # noqa: B006
    cost: Annotated[
        str | None, typer.Option(metavar="FILE", help="With LIBRA's files: prices of each tier.", rich_help_panel=MORE)
    ] = None,
    loop: Annotated[
        str,
        typer.Option(
            help="With LIBRA's files: no_overlap, or tp_dp_overlap, which hides gradients behind the backward pass.",
            autocompletion=value_completion.complete_one_of("no_overlap", "tp_dp_overlap"),
            rich_help_panel=MORE,
        ),
    ] = "no_overlap",
    in_network_reduction: Annotated[
        bool, typer.Option("--in-network-reduction", help="With LIBRA's files: switches reduce.", rich_help_panel=MORE)
    ] = False,
    ports: Annotated[
        str | None,
        typer.Option(metavar="'50 GB/s'", help="Also the best in whole ports of this bandwidth.", rich_help_panel=MORE),
    ] = None,
    radix: Annotated[
        int | None, typer.Option(help="With --ports: the ports of a switch.", rich_help_panel=MORE)
    ] = None,
    settings: Settings = [],  # noqa: B006
    json: Json = False,
) -> None:
    """Print the best bandwidth of every network dimension under a budget, why, and what more of it is worth."""
    from cosmic.design.loading import parse_overrides  # noqa: PLC0415  heavy
    from cosmic.search.provision.provisioning import names_space  # noqa: PLC0415  heavy
    from cosmic.search.provision.provisioning import provision as run  # noqa: PLC0415  heavy

    provisioned = run(
        source,
        budget=budget,
        objective=objective,  # type: ignore[arg-type]  # checked there
        limits=limit,
        workloads=workload,
        communicators=communicator,
        cost=cost,
        loop=loop,  # type: ignore[arg-type]
        in_network_reduction=in_network_reduction,
        ports=ports,
        radix=radix,
        settings=parse_overrides(settings),
    )
    if json:
        emit_json(replace(provisioned, source=source))
    elif names_space(source):
        print_sentences(
            [f"the base design of {source}; the key provision has a search do this for each of its designs"]
        )
        _print("", [], provisioned)
    else:
        _print(source, settings, provisioned)


def _print(source: str, settings: list[str], provisioned: Provisioned) -> None:
    print_sentences([provisioned.headline])
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
            for index, dim in enumerate(provisioned.dims)
        ],
    )
    emit([""])
    names = [
        f"{load.name}: {format_seconds(load.base_time_s)} → {format_seconds(load.time_s)}" for load in provisioned.loads
    ]
    print_sentences(
        [*names, f"network, priced by bandwidth: {provisioned.base_cost_usd:,.0f} → {provisioned.cost_usd:,.0f} USD"]
    )
    sentences_of_limits = [
        _binding_limits(binding, several=len(provisioned.loads) > 1) for binding in provisioned.bindings if binding.dims
    ]
    print_sentences(dict.fromkeys(sentences_of_limits))
    print_sentences(
        [_limit_price_in_words(price, provisioned.objective) for price in provisioned.prices if price.binds]
    )
    if provisioned.duality_gap is not None:
        print_sentences(
            [f"proven: no bandwidth within the limits is better by more than {max(provisioned.duality_gap, 1e-12):.1g}"]
        )
    if provisioned.ports is not None:
        _print_ports(provisioned.ports)
    if provisioned.bound is None and source:
        rates = [
            f"network.dims.{index}.bandwidth={dim.bandwidth_bytes_per_s / GIGA!r} GB/s"
            for index, dim in enumerate(provisioned.dims)
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


def _print_ports(in_ports: WholePorts) -> None:
    rates = " / ".join(f"{rate / GIGA:.4g}" for rate in in_ports.bandwidth_bytes_per_s)
    counts = " / ".join(map(str, in_ports.ports))
    print_sentences(
        [
            f"in whole ports of {in_ports.port}: {counts}, that is {rates} GB/s, {format_seconds(in_ports.time_s)}, "
            f"{in_ports.cost_usd:,.0f} USD: {100 * in_ports.gap:.2g} % above the best bandwidth"
        ]
    )
