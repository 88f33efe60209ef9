"""`cosmic importance`: which parameters of a study matter."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cosmic.cli.candidates import metrics
from cosmic.cli.console import Json, doing, emit, emit_json, emit_table, new_app, say

if TYPE_CHECKING:
    from cosmic.exploration.importance import Factor, Importance

app = new_app()


@app.command()
def importance(
    study: Annotated[Path, typer.Argument(help="The directory of a study.")],
    objective: Annotated[
        str,
        typer.Option(
            metavar="METRIC", help="The metric that matters; by default the study's objective.", autocompletion=metrics
        ),
    ] = "",
    json: Json = False,
) -> None:
    """Print which parameters of a study matter: the share of the variance of its objective that each explains."""
    from dataclasses import asdict  # noqa: PLC0415  rarely needed

    from cosmic.exploration.studies.study import open_study  # noqa: PLC0415  heavy

    doing("reading the study")
    opened = open_study(study)
    found = opened.importance(objective)
    if json:
        emit_json({"study": str(study), "agent": opened.inputs.agent, **asdict(found)})
        return
    what = f"the logarithm of {found.objective}" if found.logarithm else found.objective
    emit_table(
        f"share of the variance of {what}, {found.trials:,} trials that can run",
        ["parameter", "values", "alone", "total"],
        [_line(factor) for factor in found.factors],
    )
    emit([""])
    say(_notes(found, opened.inputs.agent))


def _line(factor: Factor) -> list[object]:
    name = factor.name if factor.of is None else f"  {factor.name}"
    return [name, factor.values, _percent(factor.alone), _percent(factor.total)]


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


def _notes(found: Importance, agent: str) -> list[str]:
    """Return what the shares mean, and how far to trust them."""
    from cosmic.exploration.extras import how_to_install  # noqa: PLC0415  heavy
    from cosmic.exploration.importance import TRUSTED  # noqa: PLC0415  heavy

    notes = ["alone: what its value explains by itself; total: what is lost if it is drawn anew, all else kept."]
    if found.fit is None and found.deviation:
        notes.append(f"The total needs scikit-learn; {how_to_install('search', 'scikit-learn')}.")
    elif found.fit is not None:
        trust = "; that is too little to trust the totals" if found.fit < TRUSTED else ""
        notes.append(f"Totals are those of a forest that predicts {max(0.0, found.fit):.0%} of the variance{trust}.")
    if agent not in ("random", "exhaustive"):
        notes.append(f"The agent '{agent}' chose the trials: what it has settled appears to matter less.")
    return notes
