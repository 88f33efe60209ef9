"""`cosmic export`: the trials of a study for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cosmic.cli.console import Json, emit, emit_json, new_app
from cosmic.errors import require

app = new_app()
STANDARD_OUTPUT = "-"


@app.command()
def export(
    study: Annotated[Path, typer.Argument(metavar="DIR", help="Directory of a study.")],
    to: Annotated[str, typer.Option("--to", metavar="FILE", help="FILE.csv or FILE.parquet; '-' prints CSV.")],
    json: Json = False,
) -> None:
    """Write every trial of a study: its point, whether and why not it can run, and its metrics."""
    from cosmic.exploration.studies import export as exporting  # noqa: PLC0415  heavy

    if to == STANDARD_OUTPUT:
        require(not json, "--json", json, "cannot be printed where the trials are")
        emit(exporting.csv_lines(exporting.table(study)))
        return
    trials, columns = exporting.export(study, to)
    if json:
        emit_json({"study": str(study), "file": to, "trials": trials, "columns": columns})
    else:
        emit([f"{trials:,} trials with {columns} columns: {to}"])
