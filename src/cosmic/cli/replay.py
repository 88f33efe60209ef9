"""`cosmic replay`: a study run again and compared."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cosmic.cli.console import Json, doing, emit_json, emit_table, new_app, say

if TYPE_CHECKING:
    from cosmic.exploration.studies.replay import Replayed

app = new_app()
DIFFERS = 1


@app.command()
def replay(
    study: Annotated[Path, typer.Argument(metavar="DIR", help="Directory of a study.")],
    check: Annotated[bool, typer.Option("--check", help="Exit with 1 if anything differs.")] = False,
    workers: Annotated[int, typer.Option(min=1, help="Worker processes.")] = 1,
    json: Json = False,
) -> None:
    """Run a study again from its inputs and compare every trial, bit for bit."""
    from cosmic.exploration.searching import PoolOptions  # noqa: PLC0415  heavy
    from cosmic.exploration.studies.replay import replay as run  # noqa: PLC0415  heavy

    doing("searching again, to compare every trial")
    found = run(study, PoolOptions(workers))
    if json:
        largest = {name: None if value == float("inf") else value for name, value in found.largest.items()}
        emit_json({"study": str(study), "same": found.same, **asdict(found), "largest": largest})
    else:
        _print(study, found)
    if check and not found.same:
        raise typer.Exit(DIFFERS)


def _print(study: Path, found: Replayed) -> None:
    if found.same:
        say([f"{study}: all {found.trials:,} trials are the same, bit for bit"])
        return
    what = "the agent proposes other points from there on" if found.other_points else "its results differ"
    say([f"{study}: {found.differing:,} of {found.trials:,} trials differ, first trial {found.first:,}: {what}"])
    if found.largest:
        rows = [[name, f"{value:.3g}"] for name, value in found.largest.items()]
        emit_table("", ["metric", "largest relative difference"], rows)
    versions = [[name, found.written_by.get(name, "-"), version] for name, version in found.running.items()]
    emit_table("", ["", "written by", "runs now"], versions)
