"""`cosmic calibrate run`, `probe` and `validate`: what a user's own measurements say.

`calibrate` makes a system whose parameters the measurements have set. `probe` measures this machine. `validate`
compares predictions with measurements.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cosmic.cli.console import Json, emit_json, emit_table, print_sentences
from cosmic.cli.output_streams import StatusLine, doing, emit, emit_data
from cosmic.cli.value_completion import complete_designs, complete_one_of
from cosmic.design.prediction_accuracy import count_sources

if TYPE_CHECKING:
    from cosmic.accuracy.calibrate.calibration import Calibration
    from cosmic.accuracy.calibrate.probing import Probed
    from cosmic.accuracy.validating import Summary, Validation
    from cosmic.cli.answers.cluster_answers import ProbeAnswer


# ---- `cosmic calibrate run`: a system whose parameters a user's own measurements have set

MOST_SAID = 5
"""Rows that are named one by one."""


def run(
    data: Annotated[
        list[Path],
        typer.Argument(help="Files of measurements: CSV of steps or kernels, output of nccl-tests, a Kineto trace."),
    ],
    system: Annotated[str, typer.Option(help="The system that was measured: a name, or its YAML file.")] = "",
    on: Annotated[
        str,
        typer.Option("--on", metavar="DESIGN", help="The design that was measured.", autocompletion=complete_designs),
    ] = "",
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE.yaml", help="Write the calibrated system here.")
    ] = None,
    json: Json = False,
) -> None:
    """Fit a system's physical parameters to your own measurements: the result is a system for every command."""
    from cosmic.accuracy.calibrate.calibration import calibrate, system_text  # noqa: PLC0415  heavy
    from cosmic.base.errors import require  # noqa: PLC0415
    from cosmic.base.files import check_writable, write_text  # noqa: PLC0415

    if out is not None:
        require(out.suffix in (".yaml", ".yml"), "--out", str(out), "must name a YAML file, ending in .yaml")
        check_writable(out, "--out")
    doing("predicting measurements")
    calibration = calibrate(list(data), system, on)
    if out is not None:
        write_text(out, system_text(calibration), "--out")
    if json:
        emit_json(calibration)
    else:
        _print_calibration(calibration, out)


def _print_calibration(calibration: Calibration, out: Path | None) -> None:
    errors = [
        (
            error.kind,
            error.rows,
            _percent(error.before),
            _percent(error.after),
            _percent(error.left_out),
        )
        for error in calibration.errors
    ]
    emit_table(
        f"{calibration.target.name or 'the design'}: mean errors",
        ("measured", "rows", "before", "after", "left out"),
        errors,
    )
    emit([""])
    if calibration.learned:
        rows = [
            (
                each.title,
                f"× {each.factor:.3f}",
                f"± {100 * each.prior_sd:.0f} %",
                f"± {100 * each.posterior_sd:.1f} %",
                ", ".join(each.by),
            )
            for each in calibration.learned
        ]
        emit_table("Learned", ("parameter", "of usual", "before", "now", "mostly by"), rows)
        emit([""])
    if calibration.prior_scale > 1:
        print_sentences(
            [
                f"the measurements are far off: {calibration.prior_scale:g} times the usual spread of parameters was assumed"
            ]
        )
    by_reason: dict[str, list[str]] = {}
    for each in calibration.unmoved:
        by_reason.setdefault(each.why, []).append(each.title)
    print_sentences(f"not learned ({why}): {'; '.join(titles)}" for why, titles in by_reason.items())
    used = "" if calibration.factor == 1 else f"× {calibration.factor:.3f}; "
    print_sentences([f"a factor for all times: {used}{calibration.factor_why}"])
    if calibration.residual_sd is not None:
        print_sentences(
            [
                f"steps like these are now expected to be off by {100 * calibration.residual_sd:.1f} % (one standard deviation)"
            ]
        )
    for row in calibration.far_off[:MOST_SAID]:
        times = f"{row.measured_s:.4g} s measured, {row.after_s:.4g} s predicted"
        print_sentences([f"far off: {row.name}, {times}: is it of this design, and in this unit?"])
    print_sentences(f"left out: {each}" for each in calibration.skipped[:MOST_SAID])
    if len(calibration.skipped) > MOST_SAID:
        print_sentences([f"… and {len(calibration.skipped) - MOST_SAID} more rows are left out: see --json"])
    if out is not None:
        emit(["", f"wrote {out}: use it as MODEL@{out}:SIZE in every command"])


# ---- `cosmic calibrate probe`: the machine that it runs on, measured

MOST_MINUTES = 60


def probe(
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE.csv", help="Write the measurements here, not to the screen.")
    ] = None,
    minutes: Annotated[float, typer.Option(help="Stop after about so many minutes.")] = 5.0,
    device: Annotated[
        str, typer.Option(help="cuda, or cpu to try it out.", autocompletion=complete_one_of("cuda", "cpu"))
    ] = "cuda",
    json: Json = False,
) -> None:
    """Measure this machine with PyTorch: GEMMs, attention, memory, launches, steps; under torchrun, collectives."""
    from cosmic.accuracy.calibrate.probing import as_csv  # noqa: PLC0415  imported where they are used
    from cosmic.accuracy.calibrate.probing import probe as measure  # noqa: PLC0415
    from cosmic.accuracy.calibrate.torch_device import torch_device  # noqa: PLC0415
    from cosmic.base.errors import require  # noqa: PLC0415
    from cosmic.base.files import check_writable, write_text  # noqa: PLC0415

    require(0 < minutes <= MOST_MINUTES, "--minutes", minutes, f"must be above 0, and at most {MOST_MINUTES}")
    require(device in ("cuda", "cpu"), "--device", device, "must be cuda or cpu")
    if out is not None:
        require(out.suffix == ".csv", "--out", str(out), "must name a CSV file, ending in .csv")
        check_writable(out, "--out")
    measured = torch_device(device)
    with StatusLine() as line:
        probe_result = measure(measured, minutes, line.show)
    measured.close()
    if not measured.first:
        return
    text = as_csv(probe_result.rows)
    if out is not None:
        write_text(out, text, "--out")
    if json:
        answer: ProbeAnswer = {
            "device": measured.name,
            "rows": probe_result.rows,
            "left": probe_result.left,
            "failed": probe_result.failed,
        }
        emit_json(answer)
    elif out is None:
        emit_data(text.removesuffix("\n").split("\n"))
    else:
        _print_probe(probe_result, measured.name, out)


def _print_probe(probe_result: Probed, name: str, out: Path) -> None:
    kinds: dict[str, int] = {}
    for row in probe_result.rows:
        kinds[row["kind"]] = kinds.get(row["kind"], 0) + 1
    emit(
        [
            f"{name}: {len(probe_result.rows)} measurements ({', '.join(f'{count} {kind}' for kind, count in kinds.items())})"
        ]
    )
    print_sentences(f"refused: {each}" for each in probe_result.failed)
    if probe_result.left:
        print_sentences([f"there was no time for {probe_result.left} more: see --minutes"])
    emit([f"wrote {out}: cosmic calibrate run {out} --out my-system.yaml"])


# ---- `cosmic calibrate validate`: predictions compared with measurements

MOST_REASONS = 20
IN_RANGE = "in P5–P95"
MORE = ("left out", IN_RANGE, "τ")
LEGEND = (
    "left out: mean error by constants that were fitted without the source; in P5–P95: measured times in the range of "
    "their prediction, by that error where there is one; τ: over pairs that differ by more than 5 %"
)


def _columns_of_rows(incomplete: str) -> list[str]:
    from cosmic.accuracy.measured_rows import KINDS  # noqa: PLC0415  only where a column is completed

    return complete_one_of(*sorted({"set", *(column for kind in KINDS for column in kind.columns)}))(incomplete)


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
    from cosmic.accuracy.validating import validate as predict_rows  # noqa: PLC0415
    from cosmic.base.errors import require  # noqa: PLC0415  heavy imports stay in functions

    require(page is None or page.suffix == ".md", "--page", str(page), "must name a Markdown file, ending in .md")
    if page is not None:
        _check_page(page)
    with StatusLine() as line:
        validation = predict_rows(data or None, by, line.show)
    if page is not None:
        _write_page(validation, page)
    if json:
        emit_json(validation.to_dict())
    else:
        _print_validation(validation)


def _check_page(path: Path) -> None:
    """Refuse a page that cannot be written, before any row is predicted; its folder is made where it is missing."""
    from cosmic.base.files import check_folder, check_writable, is_folder  # noqa: PLC0415
    from cosmic.report.page import Page  # noqa: PLC0415

    check_folder(path.parent, "--page")
    if is_folder(path.parent):
        check_writable(path, "--page")
    Page(path.stem, [], path.stem)  # has rules for its name


def _write_page(validation: Validation, path: Path) -> None:
    from cosmic.report.accuracy_page import accuracy_page  # noqa: PLC0415
    from cosmic.report.page import to_markdown  # noqa: PLC0415

    to_markdown(accuracy_page(validation, path.stem), path.parent, "--page")


def _print_validation(validation: Validation) -> None:
    emit_table(
        "Time",
        _validation_columns(validation.by, *MORE),
        [[*_validation_row(each), *_more_columns(each)] for each in validation.summary],
    )
    emit([LEGEND, *_coverage_in_words(validation)])
    if validation.memory_summary:
        emit([""])
        emit_table(
            "Peak memory",
            _validation_columns(validation.by, IN_RANGE),
            [[*_validation_row(each), _percent(each.in_range)] for each in validation.memory_summary],
        )
    if (fits := validation.fits) is not None:
        emit([fits.sentence])
    if reasons := validation.skipped:
        emit([""])
        emit_table("Skipped", ("rows", validation.by, "reason"), reasons[:MOST_REASONS])
        if (unshown := len(reasons) - MOST_REASONS) > 0:
            emit([f"… and {unshown} more reasons: see --json"])


def _coverage_in_words(validation: Validation) -> list[str]:
    """Return how many measured times are in the range of their prediction, in a sentence."""
    coverage = validation.coverage
    if coverage is None:
        return []
    return [
        f"P5–P95 holds {100 * coverage.of_rows:.1f} % of {coverage.rows:,} rows, {100 * coverage.of_sources:.1f} % on average "
        f"of {count_sources(coverage.sources)}; P95 is {100 * coverage.width:.0f} % above the prediction on average"
    ]


def _validation_columns(by: str, *more: str) -> list[str]:
    return [by, "rows", "coverage", "mean", "median", "worst", "bias", *more]


def _validation_row(each: Summary) -> list[Any]:
    errors = [_percent(value) for value in (each.coverage, each.mean, each.median, each.worst)]
    return [each.name, each.rows, *errors, _percent(each.bias, "+")]


def _more_columns(each: Summary) -> list[Any]:
    """Return the error without the source, the share of rows in their ranges, and τ."""
    tau = None if each.clear_tau is None else f"{each.clear_tau:.2f}"
    return [_percent(each.left_out_mean), _percent(each.in_range), tau]


def _percent(share: float | None, sign: str = "") -> str | None:
    return None if share is None else f"{100 * share:{sign}.1f} %"
