"""`cosmic report`: a study as one page."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cosmic.base.files import Unwritable, check_writable
from cosmic.cli.console import Json, emit_json, print_sentences
from cosmic.cli.output_streams import StatusLine, emit
from cosmic.cli.search_output import write_best

if TYPE_CHECKING:
    from cosmic.cli.answers.study_answers import ReportAnswer
    from cosmic.report.study_report import Report


PAGE = "report.html"


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
    from cosmic.report.study_report import found_in_study  # noqa: PLC0415  heavy
    from cosmic.report.study_report import report as run  # noqa: PLC0415  heavy
    from cosmic.search.study.study import open_study  # noqa: PLC0415  heavy

    opened, target = open_study(study), out or study / PAGE
    check_writable(target, "--out")  # before any search runs
    with suppress(Unwritable):  # the study may be read-only
        write_best(found_in_study(opened))
    with StatusLine() as line:
        study_report = run(opened, isolated=isolated, say=line.show)
        line.show("writing the page")
        path = study_report.write(target)
    if json:
        emit_json(report_facts(study_report, path))
    else:
        print_sentences([study_report.verdict, *study_report.contents.verdict.caveats])
        emit([f"report: {path}"])


def report_facts(study_report: Report, path: Path) -> ReportAnswer:
    """Return what was written, as JSON holds it."""
    verdict = study_report.contents.verdict
    return {
        "report": str(path),
        "bytes": path.stat().st_size,
        "trials": study_report.contents.trials.count,
        "verdict": verdict.sentence,
        "gains": verdict.gains,
        "bound": verdict.bound,
        "caveats": verdict.caveats,
    }
