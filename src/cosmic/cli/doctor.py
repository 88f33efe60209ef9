"""`cosmic doctor`: a study checked and repaired."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cosmic.cli.console import Json, doing, emit, emit_commands, emit_json, new_app, say

if TYPE_CHECKING:
    from cosmic.exploration.studies.doctor import Diagnosis

app = new_app()
NOT_WHOLE = 1


@app.command()
def doctor(
    study: Annotated[Path, typer.Argument(metavar="DIR", help="Directory of a study.")],
    check: Annotated[bool, typer.Option("--check", help="Only check; change nothing.")] = False,
    json: Json = False,
) -> None:
    """Check a study and repair a damaged one from what can be read; exit with 1 if it stays damaged."""
    from cosmic.exploration.studies.doctor import Repair, examine, repair  # noqa: PLC0415  heavy

    doing("checking every trial")
    if check:
        found = examine(study)
        repaired = Repair(found, found)
    else:
        repaired = repair(study)
    before, after = repaired.before, repaired.after
    if json:
        emit_json(
            {
                "study": str(study),
                "whole": after.whole,
                "findings": list(before.findings),
                "done": list(repaired.done),
                **_counts(after),
                "damaged": None if repaired.kept is None else str(repaired.kept),
            }
        )
    else:
        say([*before.findings, *repaired.done])
        if repaired.kept is not None:
            emit([f"the damaged trials are kept as {repaired.kept.name}"])
        emit(_verdict(study, after, changed=bool(repaired.done)))
        if after.whole and repaired.done:
            emit_commands({f"cosmic search --resume --out {shlex.quote(str(study))}": "continue"})
    if not after.whole:
        raise typer.Exit(NOT_WHOLE)


def _counts(found: Diagnosis) -> dict[str, Any]:
    return {"trials": found.trials, "batches": found.batches, "salvaged": found.salvaged}


def _verdict(study: Path, found: Diagnosis, *, changed: bool) -> list[str]:
    if not found.whole:
        if not found.repairable or not found.usable:
            return [f"{study} cannot be used as it is"]
        return [f"{study} is damaged" + ("" if changed else f": 'cosmic doctor {shlex.quote(str(study))}' repairs it")]
    said = f"{study} is intact{' again' if changed else ''}: {found.trials:,} trials in {found.batches:,} batches"
    return [said]
