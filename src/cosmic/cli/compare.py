"""`cosmic compare`: several studies compared."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cosmic.cli.console import Json, doing, emit, emit_json, emit_table, new_app, plot_columns, speaks_unicode
from cosmic.cli.studies import worth
from cosmic.files import check_writable, write_text

if TYPE_CHECKING:
    from cosmic.exploration.comparison import Comparison

app = new_app()


@app.command()
def compare(
    studies: Annotated[list[Path], typer.Argument(help="Directories of studies.")],
    plot: Annotated[Path | None, typer.Option(help="Write the convergence as SVG to this file.")] = None,
    json: Json = False,
) -> None:
    """Print the best design of several studies, how far each is behind the best, and how they converged."""
    from cosmic.exploration.comparison import compare as run  # noqa: PLC0415  heavy
    from cosmic.exploration.studies.study import open_study  # noqa: PLC0415  heavy

    if plot is not None:
        check_writable(plot, "--plot")
    doing("reading studies")
    comparison = run([open_study(path) for path in studies])
    rows = comparison.rows()
    if plot is not None:
        from cosmic.exploration.pages import convergence_chart  # noqa: PLC0415  heavy

        write_text(plot, convergence_chart(comparison), "--plot")
    if json:
        emit_json({"objective": comparison.objective, "studies": rows, "curves": _curves(comparison)})
        return
    names = ["study", "agent", "seed", "trials", "feasible", comparison.objective.replace("_", " "), "behind", "to 5 %"]
    emit_table("", names, [_line(comparison.objective, row) for row in rows])
    if equal := [row["study"] for row in rows if row["told_apart"] is False]:
        emit([f"cannot be told apart from the best, by the errors of such predictions: {', '.join(equal)}"])
    from cosmic.exploration.pages import convergence_plot  # noqa: PLC0415  heavy

    emit(["", *convergence_plot(comparison, plot_columns(), braille=speaks_unicode())])


def _line(objective: str, row: dict[str, Any]) -> list[Any]:
    behind = row["behind"]
    return [
        row["study"],
        row["agent"],
        row["seed"],
        row["trials"],
        f"{100 * row['feasible'] / max(1, row['trials']):.0f} %",
        worth(objective, row["best"]),
        "-" if behind is None else f"{100 * behind:.2f} %",
        row["trials_to_5_percent"],
    ]


def _curves(comparison: Comparison) -> dict[str, list[list[float]]]:
    from cosmic.exploration.comparison import value_of  # noqa: PLC0415  heavy

    return {
        course.name: [
            [int(count), value_of(comparison.objective, float(least)) or 0.0]
            for count, least in zip(course.evaluations, course.losses, strict=True)
        ]
        for course in comparison.courses
    }
