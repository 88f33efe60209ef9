"""`cosmic validate`: predictions compared with measurements."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cosmic.catalog.accuracy import counted
from cosmic.cli.candidates import one_of
from cosmic.cli.console import Json, StatusLine, emit, emit_json, emit_table, new_app

if TYPE_CHECKING:
    from cosmic.validation.statistics import Summary
    from cosmic.validation.validating import Validation

app = new_app()
MOST_REASONS = 20
MORE = ("left out", "in P5–P95", "τ")
LEGEND = (
    "left out: mean error by constants that were fitted without the source; in P5–P95: measured times in the range of "
    "their prediction, by that error where there is one; τ: over pairs that differ by more than 5 %"
)


def _columns_of_rows(incomplete: str) -> list[str]:
    from cosmic.validation.rows import KINDS  # noqa: PLC0415  only where a column is completed

    return one_of(*sorted({"set", *(column for kind in KINDS for column in kind.columns)}))(incomplete)


@app.command()
def validate(
    data: Annotated[
        list[Path] | None,
        typer.Argument(help="CSV files of measured rows; without any, those of the package."),
    ] = None,
    by: Annotated[
        str, typer.Option("--by", help="The column by which errors are averaged.", autocompletion=_columns_of_rows)
    ] = "set",
    page: Annotated[
        Path | None, typer.Option("--page", metavar="FILE.md", help="Write a page of tables and plots.")
    ] = None,
    json: Json = False,
) -> None:
    """Predict measured rows and print the errors by source: of time, and of memory where it was measured."""
    from cosmic.errors import require  # noqa: PLC0415  heavy imports stay in functions
    from cosmic.validation.validating import validate as run  # noqa: PLC0415

    require(page is None or page.suffix == ".md", "--page", str(page), "must name a Markdown file, ending in .md")
    if page is not None:
        _check_page(page)
    with StatusLine() as line:
        found = run(data or None, by, line.show)
    if page is not None:
        _write_page(found, page)
    if json:
        emit_json(found.to_dict())
    else:
        _show(found)


def _check_page(path: Path) -> None:
    """Refuse a page that cannot be written, before any row is predicted; its folder is made where it is missing."""
    from cosmic.files import check_folder, check_writable, is_folder  # noqa: PLC0415
    from cosmic.reporting.page import Page  # noqa: PLC0415

    check_folder(path.parent, "--page")
    if is_folder(path.parent):
        check_writable(path, "--page")
    Page(path.stem, [], path.stem)  # has rules for its name


def _write_page(found: Validation, path: Path) -> None:
    from cosmic.reporting.page import to_markdown  # noqa: PLC0415
    from cosmic.validation.accuracy_page import accuracy_page  # noqa: PLC0415

    to_markdown(accuracy_page(found, path.stem), path.parent, "--page")


def _show(found: Validation) -> None:
    emit_table("Time", _columns(found.by, *MORE), [[*_row(each), *_more(each)] for each in found.summary])
    emit([LEGEND, *_covered(found)])
    if found.memory_summary:
        emit([""])
        emit_table("Peak memory", _columns(found.by), [_row(each) for each in found.memory_summary])
    reasons = [(count, each.name, why) for each in found.summary for why, count in each.skipped.items()]
    if reasons:
        reasons.sort(key=lambda item: -item[0])
        emit([""])
        emit_table("Skipped", ("rows", found.by, "reason"), reasons[:MOST_REASONS])
        if (left := len(reasons) - MOST_REASONS) > 0:
            emit([f"… and {left} more reasons: see --json"])


def _covered(found: Validation) -> list[str]:
    """Return how many measured times are in the range of their prediction, in a sentence."""
    known = found.coverage
    if known is None:
        return []
    return [
        f"P5–P95 holds {100 * known.of_rows:.1f} % of {known.rows:,} rows, {100 * known.of_sources:.1f} % on average "
        f"of {counted(known.sources)}; P95 is {100 * known.width:.0f} % above the prediction on average"
    ]


def _columns(by: str, *more: str) -> list[str]:
    return [by, "rows", "coverage", "mean", "median", "worst", "bias", *more]


def _row(each: Summary) -> list[Any]:
    errors = [_percent(value) for value in (each.coverage, each.mean, each.median, each.worst)]
    return [each.name, each.rows, *errors, _percent(each.bias, "+")]


def _more(each: Summary) -> list[Any]:
    """Return the error without the source, the share of rows in their ranges, and τ."""
    tau = None if each.clear_tau is None else f"{each.clear_tau:.2f}"
    return [_percent(each.left_out_mean), _percent(each.in_range), tau]


def _percent(share: float | None, sign: str = "") -> str | None:
    return None if share is None else f"{100 * share:{sign}.1f} %"
