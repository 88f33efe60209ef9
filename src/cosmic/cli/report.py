"""`cosmic report`: a study as one page."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cosmic.cli.console import Json, StatusLine, emit, emit_json, new_app, say
from cosmic.cli.studies import write_best
from cosmic.files import Unwritable, check_writable

if TYPE_CHECKING:
    from cosmic.publishing.report import Report

app = new_app()
PAGE = "report.html"


@app.command()
def report(
    study: Annotated[Path, typer.Argument(help="The directory of a study.")],
    out: Annotated[Path | None, typer.Option(help="The file to write; by default report.html in the study.")] = None,
    isolated: Annotated[
        int,
        typer.Option(
            min=0, max=10**6, help="Designs to evaluate in a search of each layer alone, to compare; 0: none."
        ),
    ] = 1_000,
    json: Json = False,
) -> None:
    """Write a study as one HTML file: verdict, why, every trial, the designs, expected errors."""
    from cosmic.exploration.studies.study import open_study  # noqa: PLC0415  heavy
    from cosmic.publishing.document import found_in  # noqa: PLC0415  heavy
    from cosmic.publishing.report import report as run  # noqa: PLC0415  heavy

    opened, target = open_study(study), out or study / PAGE
    check_writable(target, "--out")  # before any search runs
    with suppress(Unwritable):  # the study may be read-only
        write_best(found_in(opened))
    with StatusLine() as line:
        made = run(opened, isolated=isolated, say=line.show)
        line.show("writing the page")
        path = made.write(target)
    if json:
        emit_json(facts(made, path))
    else:
        say([made.verdict, *made.document["verdict"]["caveats"]])
        emit([f"report: {path}"])


def facts(made: Report, path: Path) -> dict[str, object]:
    """Return what was written, as JSON holds it."""
    verdict = made.document["verdict"]
    return {
        "report": str(path),
        "bytes": path.stat().st_size,
        "trials": made.document["trials"]["count"],
        "verdict": verdict["sentence"],
        "gains": verdict["gains"],
        "bound": verdict["bound"],
        "caveats": verdict["caveats"],
    }
