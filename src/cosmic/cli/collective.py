"""`cosmic collective`: collectives on any network: bound, synthesize, check, convert."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cosmic.cli import collective_inputs as inputs
from cosmic.cli.candidates import one_of
from cosmic.cli.collective_inputs import COLLECTIVES, TARGETS, Asked
from cosmic.cli.console import Json, StatusLine, complain, doing, emit, emit_json, emit_table, new_app, say
from cosmic.cli.exit_codes import FAILED
from cosmic.errors import require
from cosmic.files import check_writable, write_text

if TYPE_CHECKING:
    from cosmic.graphs.schedule import Schedule
    from cosmic.schedules.checking import Verdict
    from cosmic.schedules.textbook import Baseline
    from cosmic.synthesis.bounds import Bounds

app = new_app("Collectives on any network: how fast they can be, schedules made to measure, and checks of schedules.")
BOUNDS = ("node_s", "cut_s", "ingress_s", "distance_s", "in_turn_s")
CHECKED = 3_000_000
"""Transfers up to which every synthesized schedule is also checked."""

Network = Annotated[
    str,
    typer.Argument(
        metavar="NETWORK",
        help="A file of links, a design, MODEL@SYSTEM:N or SYSTEM:N.",
        autocompletion=inputs.networks,
    ),
]
OnNetwork = Annotated[
    str,
    typer.Option(
        "--network", metavar="NETWORK", help="The network that the schedule is for.", autocompletion=inputs.networks
    ),
]
File = Annotated[str, typer.Argument(metavar="SCHEDULE", help="CSV, a log of TACOS, or MSCCL-XML.")]
Collective = Annotated[
    str, typer.Option("--collective", help=f"{', '.join(COLLECTIVES)}.", autocompletion=one_of(*COLLECTIVES))
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
To = Annotated[str, typer.Option("--to", help=f"{', '.join(TARGETS)}.", autocompletion=one_of(*TARGETS))]
Out = Annotated[str, typer.Option("--out", metavar="PATH", help="File to write; of chakra, the prefix of its files.")]


@app.command()
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
    from cosmic.schedules.textbook import baselines  # noqa: PLC0415  heavy
    from cosmic.synthesis.bounds import bounds  # noqa: PLC0415  heavy

    asked = inputs.asked(network, collective, size, chunks, groups, root, fail)
    doing("bounding")
    found = bounds(
        asked.graph, asked.kind, asked.size_bytes, chunks=asked.chunks, groups=asked.stated_groups, root=root
    )
    doing("simulating textbook algorithms")
    others = baselines(asked.graph, asked.kind, asked.size_bytes, asked.groups, root)
    if json:
        emit_json(_bound_json(asked, found, others))
        return
    emit([f"{asked.in_words}: no schedule takes less than {inputs.time(found.seconds)}", ""])
    rows = [["node", found.node_s, "what an NPU must send or receive, over its links"]]
    rows += [["cut", found.cut_s, _cut_words(asked, found)]]
    rows += [["ingress", found.ingress_s, "whole chunks into an NPU"]] if asked.chunks else []
    rows += [["distance", found.distance_s, "the farthest NPU"]]
    rows += [["in turn", found.in_turn_s, "a reduce-scatter, then an all-gather"]] if found.in_turn_s else []
    emit_table("", ["bound", "time_s", "by"], rows)
    emit([""])
    shares = [[each.algorithm.replace("_", "-"), each.time_s, _over(each, found), each.reason] for each in others]
    emit_table("", ["textbook", "time_s", "over bound", ""], shares)


def _cut_words(asked: Asked, found: Bounds) -> str:
    """Return the side of the cut that binds."""
    if not found.cut:
        return "no cut binds"
    names = [asked.graph.name(node) for node in found.cut]
    shown = ", ".join(names[:12]) + (f" and {len(names) - 12:,} more" if len(names) > 12 else "")
    return f"the links between {shown} and all others"


def _over(each: Baseline, found: Bounds) -> float | None:
    return each.time_s / found.seconds if each.time_s is not None and found.seconds else None


def _bound_json(asked: Asked, found: Bounds, others: list[Baseline]) -> dict[str, Any]:
    return {
        **asked.as_json(),
        "chunks_per_npu": asked.chunks,
        "bound_s": found.seconds,
        "bounds": {name: getattr(found, name) for name in BOUNDS},
        "cut": [asked.graph.name(node) for node in found.cut],
        "algorithms": [{**asdict(each), "over_bound": _over(each, found)} for each in others],
    }


@app.command()
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
    from cosmic.synthesis.bounds import bounds  # noqa: PLC0415  heavy
    from cosmic.synthesis.synthesizing import synthesize as run  # noqa: PLC0415  heavy

    target = inputs.target(to, out)
    if schedule:
        check_writable(schedule, "--schedule")
    asked = inputs.asked(network, collective, size, chunks, groups, root, fail)
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
    limit = bounds(
        asked.graph, asked.kind, asked.size_bytes, chunks=asked.chunks, groups=asked.stated_groups, root=root
    )
    verdict = _checked(made)
    if schedule:
        from cosmic.schedules.tables import csv_text  # noqa: PLC0415  heavy

        write_text(schedule, csv_text(made), "--schedule")
    written = inputs.convert(made, target, out) if target else []
    files = ([schedule] if schedule else []) + written
    _report(asked, made, limit, verdict, files, json)


def _report(
    asked: Asked, made: Schedule, limits: Bounds, verdict: Verdict | None, files: list[str], json: bool
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
        emit([f"{asked.in_words}: {inputs.time(made.time_s)}"])
        if over is not None and rate is not None:
            emit([f"{over:.3f}× the bound of {inputs.time(limit)} · algbw {rate / 1e9:,.4g} GB/s"])
        if in_turn > limit and made.time_s:
            shown = f"{made.time_s / in_turn:.3f}× the bound of a reduce-scatter and an all-gather in turn"
            emit([f"{shown}, {inputs.time(in_turn)}"])
        unchecked = f"not checked: more than {CHECKED:,}"
        emit([f"{chunks} · {made.transfers:,} transfers ({'checked' if verdict else unchecked})"])
        emit(f"wrote {path}" for path in files)
    if verdict is not None and not verdict.valid:
        complain(["cosmic collective: the schedule is not valid, which is a mistake of ours", *_sentences(verdict)])
        raise typer.Exit(FAILED)


def _checked(made: Schedule) -> Verdict | None:
    from cosmic.schedules.checking import check as judge  # noqa: PLC0415  heavy

    if made.transfers > CHECKED:
        return None
    doing("checking")
    return judge(made)


@app.command()
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
    from cosmic.schedules.checking import check as judge  # noqa: PLC0415  heavy

    doing("reading the schedule")
    read = inputs.read(schedule, inputs.stated(network, collective, size, chunks, groups, root, fail))
    doing(f"checking {read.transfers:,} transfers")
    verdict = judge(read)
    if json:
        emit_json({**_read_json(read), "valid": verdict.valid, "violations": _violations(verdict)})
    else:
        words = "valid" if verdict.valid else "not valid"
        emit([f"{_read_words(read)}: {words}", ""])
        rows = [[kind.replace("_", " "), count, inputs.MEANINGS[kind]] for kind, count in verdict.counts.items()]
        emit_table("", ["violation", "transfers", "meaning"], rows)
        if not verdict.valid:
            emit([""])
            say(_sentences(verdict))
            if not collective:
                what = f"{read.kind.replace('_', '-')} of {inputs.bytes_in_words(read.size_bytes)}"
                emit([f"It was checked as an {what}: --collective and --size say what it is for."])
    if not verdict.valid:
        raise typer.Exit(FAILED)


def _read_words(read: Schedule) -> str:
    kind = read.kind.replace("_", "-")
    return (
        f"{kind} of {inputs.bytes_in_words(read.size_bytes)}, {read.transfers:,} transfers, {inputs.time(read.time_s)}"
    )


def _read_json(read: Schedule) -> dict[str, Any]:
    return {
        "collective": read.kind,
        "size_bytes": read.size_bytes,
        "npus": read.graph.npus,
        "chunks_per_npu": read.chunks_per_npu,
        "transfers": read.transfers,
        "time_s": read.time_s,
    }


def _violations(verdict: Verdict) -> dict[str, dict[str, Any]]:
    return {kind: {"count": count, "examples": list(verdict.examples[kind])} for kind, count in verdict.counts.items()}


def _sentences(verdict: Verdict) -> list[str]:
    """Return the first violations of each kind in words."""
    return [f"{kind.replace('_', ' ')}: {words}" for kind, found in verdict.examples.items() for words in found]


@app.command()
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
    from cosmic.schedules.checking import check as judge  # noqa: PLC0415  heavy

    target = inputs.target(to, out)
    require(bool(target), "--to", to, f"choose from {', '.join(TARGETS)}")
    doing("reading the schedule")
    read = inputs.read(schedule, inputs.stated(network, collective, size, chunks, groups, root, fail))
    if target in inputs.RUN:
        verdict = judge(read)
        if not verdict.valid:
            complain([f"cosmic collective: {schedule} is not valid, and nothing is written", *_sentences(verdict)])
            raise typer.Exit(FAILED)
    files = inputs.convert(read, target, out)
    if json:
        emit_json({**_read_json(read), "files": files})
    else:
        emit([_read_words(read), *(f"wrote {path}" for path in files)])
