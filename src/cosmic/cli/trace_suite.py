"""`cosmic trace suite`: benchmark traces, simulated and compared with what they should take."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cosmic.cli.console import Json, complain, doing, emit, emit_json, emit_table
from cosmic.cli.exit_codes import FAILED
from cosmic.files import check_folder

if TYPE_CHECKING:
    from cosmic.launching.launch import Launch
    from cosmic.synthetic.suite import Case


def suite(
    out: Annotated[
        str, typer.Option("--out", metavar="FOLDER", help="Also write each case's files for ASTRA-sim to FOLDER/CASE.")
    ] = "",
    only: Annotated[str, typer.Option("--only", metavar="NAME", help="Run this case alone.")] = "",
    json: Json = False,
) -> None:
    """Simulate the benchmark traces, and compare their cycles with what is expected; exit with 1 if any differs."""
    from cosmic.launching.launch import write  # noqa: PLC0415  heavy
    from cosmic.synthetic.suite import cases, run_case  # noqa: PLC0415  heavy

    if out:
        check_folder(out, "--out")
    found = []
    for case in cases(only or None):
        doing(f"simulating {case.name}")
        found.append(run_case(case, _launch))
        if out:
            doing(f"writing {case.name}")
            write(_launch(case), Path(out) / case.name)
    if json:
        emit_json([asdict(each) for each in found])
    else:
        rows = [
            [each.name, each.ranks, each.nodes, each.cycles, each.expected, "yes" if each.ok else "no", each.seconds]
            for each in found
        ]
        emit_table("", ["name", "ranks", "nodes", "cycles", "expected", "ok", "seconds"], rows)
        if out:
            emit([f"files: {Path(out) / 'CASE'}, {len(found)} cases"])
    if wrong := [each.name for each in found if not each.ok]:
        complain([f"cosmic trace: cycles differ from what is expected: {', '.join(wrong)}"])
        raise typer.Exit(FAILED)


def _launch(case: Case) -> Launch:
    """Return a case's inputs for ASTRA-sim."""
    from cosmic.launching.astra_sim import astra_sim  # noqa: PLC0415  heavy
    from cosmic.loading.designs import parse_overrides  # noqa: PLC0415  heavy
    from cosmic.mapping.completing import load_design  # noqa: PLC0415  heavy

    return astra_sim(load_design(case.design, parse_overrides(list(case.settings))))
