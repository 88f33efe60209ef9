"""`cosmic calibrate`: a system whose parameters a user's own measurements have set."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cosmic.cli.candidates import designs
from cosmic.cli.console import Json, doing, emit, emit_json, emit_table, new_app, say

if TYPE_CHECKING:
    from cosmic.calibrating.calibrating import Calibration

app = new_app()
MOST_SAID = 5
"""Rows that are named one by one."""


@app.command()
def calibrate(
    data: Annotated[
        list[Path],
        typer.Argument(help="Files of measurements: CSV of steps or kernels, output of nccl-tests, a Kineto trace."),
    ],
    system: Annotated[str, typer.Option(help="The system that was measured: a name, or its YAML file.")] = "",
    on: Annotated[
        str, typer.Option("--on", metavar="DESIGN", help="The design that was measured.", autocompletion=designs)
    ] = "",
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE.yaml", help="Write the calibrated system here.")
    ] = None,
    json: Json = False,
) -> None:
    """Fit a system's physical parameters to your own measurements: the result is a system for every command."""
    from cosmic.calibrating.calibrating import calibrate as run  # noqa: PLC0415  heavy imports stay in functions
    from cosmic.calibrating.system_file import system_text  # noqa: PLC0415
    from cosmic.errors import require  # noqa: PLC0415
    from cosmic.files import check_writable, write_text  # noqa: PLC0415

    if out is not None:
        require(out.suffix in (".yaml", ".yml"), "--out", str(out), "must name a YAML file, ending in .yaml")
        check_writable(out, "--out")
    doing("predicting measurements")
    found = run(list(data), system, on)
    if out is not None:
        write_text(out, system_text(found), "--out")
    if json:
        emit_json(_as_data(found))
    else:
        _show(found, out)


def _show(found: Calibration, out: Path | None) -> None:
    errors = [
        (each.kind, each.rows, _percent(each.before), _percent(each.after), _percent(each.left_out))
        for each in found.errors()
    ]
    emit_table(
        f"{found.target.name or 'the design'}: mean errors", ("measured", "rows", "before", "after", "left out"), errors
    )
    emit([""])
    if found.learned:
        rows = [
            (
                each.title,
                f"× {each.factor:.3f}",
                f"± {100 * each.prior_sd:.0f} %",
                f"± {100 * each.posterior_sd:.1f} %",
                ", ".join(each.by),
            )
            for each in found.learned
        ]
        emit_table("Learned", ("parameter", "of usual", "before", "now", "mostly by"), rows)
        emit([""])
    if found.prior_scale > 1:
        say([f"the measurements are far off: {found.prior_scale:g} times the usual spread of parameters was assumed"])
    by_reason: dict[str, list[str]] = {}
    for title, why in found.unmoved:
        by_reason.setdefault(why, []).append(title)
    say(f"not learned ({why}): {'; '.join(titles)}" for why, titles in by_reason.items())
    used = "" if found.factor == 1 else f"× {found.factor:.3f}; "
    say([f"a factor for all times: {used}{found.factor_why}"])
    if found.residual_sd is not None:
        say(
            [f"steps like these are now expected to be off by {100 * found.residual_sd:.1f} % (one standard deviation)"]
        )
    for row in found.far_off[:MOST_SAID]:
        times = f"{row.measured_s:.4g} s measured, {row.after_s:.4g} s predicted"
        say([f"far off: {row.name}, {times}: is it of this design, and in this unit?"])
    say(f"left out: {each}" for each in found.skipped[:MOST_SAID])
    if len(found.skipped) > MOST_SAID:
        say([f"… and {len(found.skipped) - MOST_SAID} more rows are left out: see --json"])
    if out is not None:
        emit(["", f"wrote {out}: use it as MODEL@{out}:SIZE in every command"])


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{100 * share:.1f} %"


def _as_data(found: Calibration) -> dict[str, Any]:
    return {
        "system": found.target.name,
        "files": list(found.files),
        "rows": [
            {
                "name": row.name,
                "kind": row.kind,
                "measured_s": row.measured_s,
                "before_s": row.before_s,
                "after_s": row.after_s,
                "left_out_s": row.left_out_s,
                "assumed": list(row.assumed),
            }
            for row in found.rows
        ],
        "errors": [
            {"kind": e.kind, "rows": e.rows, "before": e.before, "after": e.after, "left_out": e.left_out}
            for e in found.errors()
        ],
        "prior_scale": found.prior_scale,
        "learned": [
            {
                "name": each.name,
                "title": each.title,
                "factor": each.factor,
                "prior_sd": each.prior_sd,
                "posterior_sd": each.posterior_sd,
                "by": list(each.by),
                "fields": {path: {"before": old, "after": new} for path, (old, new) in each.fields.items()},
            }
            for each in found.learned
        ],
        "not_learned": [{"title": title, "why": why} for title, why in found.unmoved],
        "time_factor": found.factor,
        "time_factor_why": found.factor_why,
        "residual_log_sd": found.residual_sd,
        "steps": found.steps,
        "skipped": list(found.skipped),
    }
