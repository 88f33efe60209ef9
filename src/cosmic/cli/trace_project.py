"""`cosmic trace project`: a recorded trace on another machine, old and new side by side."""

from __future__ import annotations

from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cosmic.cli.console import Json, Settings, doing, emit, emit_json, emit_table
from cosmic.cli.trace_files import Groups, Prefix, check_prefix, complain_of, make_room, read_job, require_space
from cosmic.files import write_all

if TYPE_CHECKING:
    from cosmic.profiles.questions import Projected
    from cosmic.traces.recorded_statistics import Recorded

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
    scale_layers: Annotated[float, typer.Option(help="Factor of the number of layers.")] = 1.0,
    host: Annotated[float, typer.Option(help="Factor of the host's time; 0 as if captured in CUDA graphs.")] = 1.0,
    from_shapes: Annotated[
        bool, typer.Option("--from-shapes", help="Kernels take predicted times, not recorded ones times a ratio.")
    ] = False,
    settings: Settings = [],  # noqa: B006  typer copies it
    groups: Groups = "",
    out: Annotated[str, typer.Option("--out", metavar="PREFIX", help="Write the projected traces, too.")] = "",
    json: Json = False,
) -> None:
    """Put a recorded trace on another accelerator, network, width of data parallelism, batch or number of layers."""
    from cosmic.loading.designs import parse_overrides  # noqa: PLC0415  heavy
    from cosmic.profiles.projecting import project as run  # noqa: PLC0415  heavy
    from cosmic.profiles.questions import WhatIf  # noqa: PLC0415  heavy
    from cosmic.traces.groups import known_groups  # noqa: PLC0415  heavy
    from cosmic.traces.reading import read_metadata  # noqa: PLC0415  heavy

    if out:
        check_prefix(out)
    traces, known = read_job(prefix, groups)
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
    made = run(traces, known_groups(traces, known), metadata.get("device", ""), asked)
    if out:
        _write(made, out)
    complain_of(made.notes)
    if json:
        emit_json(_data(made, prefix, out))
        return
    _print(made)
    if out:
        emit(["", f"written: {out}.<rank>.et"])


def _write(made: Projected, out: str) -> None:
    from cosmic.traces.groups import groups_text  # noqa: PLC0415  heavy
    from cosmic.traces.writing import trace_files  # noqa: PLC0415  heavy

    job = made.job()
    make_room(out, len(job.ranks))
    require_space(Path(out).parent, job.nodes)
    said = [{"recorded_with": "projection", "device": made.device}] * len(job.ranks)
    named = {name: ranks for name, ranks in made.groups.items() if name not in ("", "0")}
    write_all(chain([(f"{out}.json", groups_text(named))], trace_files(job, out, said)), "--out")


def _data(made: Projected, prefix: str, out: str) -> dict[str, Any]:
    """Return what --json prints."""
    return {
        "prefix": prefix,
        "out": out or None,
        "old_machine": made.old_machine,
        "new_machine": made.new_machine,
        "ranks": made.ranks,
        "speedup": made.speedup,
        "throughput": made.throughput,
        "without_host_s": made.without_host_s,
        "described_share": made.priced_share,
        "old": asdict(made.old),
        "new": asdict(made.new),
        "notes": list(made.notes),
    }


def _print(made: Projected) -> None:
    from cosmic.cli.evaluate import seconds  # noqa: PLC0415  heavy

    old, new = made.old, made.new
    emit([f"{seconds(old.span_s)} on {made.old_machine} -> {seconds(new.span_s)} on {made.new_machine}", ""])
    rows: list[list[object]] = []
    for name, before, after in _parts(old, new):
        change = f"{100 * (after / before - 1):+.1f} %" if before else ""
        rows.append([name, seconds(before), seconds(after), change])
    emit_table("", ["", "recorded", "projected", "change"], rows)
    known = f"the work of {100 * made.priced_share:.0f} % of kernel time is known"
    emit(["", f"a step is {made.speedup:.2f}x as fast{_throughput(made)}; {known}"])
    if made.without_host_s is not None:
        bound = f"{100 * new.launch_bound_s / new.span_s:.0f} % of it the device waits for launches of a profiled host"
        emit([f"{bound}: without them (--host 0) it takes {seconds(made.without_host_s)}"])


def _throughput(made: Projected) -> str:
    """Return how many more tokens a second that is, where there are more ranks or tokens."""
    if made.throughput == made.speedup:
        return ""
    return f", on {made.ranks:,} ranks {made.throughput:,.3g}x the tokens a second"


def _parts(old: Recorded, new: Recorded) -> list[tuple[str, float, float]]:
    """Return what the spans consist of, before and after."""
    before, after = ({each.name: each.seconds for each in found.classes} for found in (old, new))
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
