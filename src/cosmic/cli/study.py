"""`cosmic study`: a study shown, and measured runs put into it."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cosmic.cli.console import Json, brief, doing, emit, emit_commands, emit_json, emit_table, new_app, say
from cosmic.cli.studies import MOST_SHOWN, figure, worth

if TYPE_CHECKING:
    from cosmic.exploration.studies.runs import Beside, Evidence
    from cosmic.exploration.studies.study import Study

app = new_app("A study: what it is, what was learned, and what was measured beside what is predicted.")
Folder = Annotated[Path, typer.Argument(metavar="STUDY", help="The directory of a study.")]


@app.command()
def tell(
    study: Folder,
    rows: Annotated[
        Path,
        typer.Argument(
            metavar="ROWS.CSV",
            help="Measured runs: a column trial, or one for each searched field, and step_s or other metrics.",
        ),
    ],
    json: Json = False,
) -> None:
    """Put measured runs into a study: all rows of the file, or none if one is no design of the study."""
    from cosmic.exploration.studies.study import open_study  # noqa: PLC0415  heavy
    from cosmic.exploration.studies.study import tell as put  # noqa: PLC0415  heavy

    doing("putting in what was measured")
    new, whole = put(study, rows)
    opened = open_study(study)
    if json:
        emit_json({"study": str(study), "new": new, "runs": whole, "measured": _facts(opened)})
        return
    known = "" if new else " (they were there already)"
    emit([f"{study}: {new:,} measured run{'' if new == 1 else 's'} put in{known}; it has {whole:,} now", ""])
    _show_measured(opened)
    folder = shlex.quote(str(study))
    emit([""])
    emit_commands({f"cosmic search SPACE --learn {folder}": "search again, with what was measured"})


@app.command()
def show(study: Folder, json: Json = False) -> None:
    """Show a study: what was searched, what its model learned, what was measured beside what is predicted."""
    from cosmic.exploration.studies.study import open_study  # noqa: PLC0415  heavy

    doing("reading every trial")
    opened = open_study(study)
    if json:
        emit_json(_shown(opened))
        return
    inputs, trials = opened.inputs, opened.trials
    best, name = trials.best(opened.problem), inputs.objectives[0]
    settings = ", ".join(f"{name} {value}" for name, value in inputs.settings.items())
    emit(
        [
            f"{opened.problem.space.name} · {inputs.agent}{f' ({settings})' if settings else ''} ·"
            f" for {' and '.join(inputs.objectives)} · seed {inputs.seed} · engine {inputs.engine}",
            f"{trials.evaluated:,} designs evaluated, {trials.feasible:,} can run; ended: {opened.stopped}",
        ]
    )
    if best is not None:
        emit([f"best predicted (trial {best:,}): {figure(name, trials.results.figures(best)[name])}"])
    say([f"learned from {path} (sha256 {digest[:12]})" for path, digest in inputs.learn])
    say([] if opened.learned is None else opened.learned.sentences())
    if opened.runs:
        emit([""])
        _show_measured(opened)


def _shown(study: Study) -> dict[str, Any]:
    """Return a study as JSON holds it."""
    from cosmic.exploration.learning.quality import as_plain  # noqa: PLC0415  heavy

    inputs, trials, learned = study.inputs, study.trials, study.learned
    best = trials.best(study.problem)
    return {
        "study": str(study.path),
        "space": study.problem.space.name,
        "agent": inputs.agent,
        "settings": dict(inputs.settings),
        "seed": inputs.seed,
        "engine": inputs.engine,
        "objectives": list(inputs.objectives),
        "trials": trials.evaluated,
        "feasible": trials.feasible,
        "stopped": study.stopped,
        "best": None if best is None else trials.describe(study.problem, best),
        "learn": [{"path": path, "sha256": digest} for path, digest in inputs.learn],
        "learned": None if learned is None else as_plain(learned),
        "measured": _facts(study),
    }


def _show_measured(study: Study) -> None:
    """Print measured designs beside predictions, the best measured first."""
    from cosmic.exploration.studies.runs import summary_of  # noqa: PLC0415  heavy

    found = study.evidence
    if found is None:
        emit(["no time was measured, and not the study's objective either"])
        return
    rows = [_line(found, each) for each in found.rows[:MOST_SHOWN]]
    more = f", the first {MOST_SHOWN} of {len(found.rows):,}" if len(found.rows) > MOST_SHOWN else ""
    title = f"measured beside predicted, {found.metric}{more}"
    emit_table(title, ["trial", "runs", "measured", "predicted", "ratio"], rows)
    emit([""])
    say(summary_of(found))


def _line(found: Evidence, each: Beside) -> list[Any]:
    ratio = "cannot run by the model" if each.ratio is None else f"{each.ratio:.3f}"
    trial = "not tried" if each.trial is None else brief(each.trial)
    return [trial, each.runs, worth(found.metric, each.measured), worth(found.metric, each.predicted), ratio]


def _facts(study: Study) -> dict[str, Any] | None:
    """Return what was measured as JSON holds it; None where nothing was."""
    from numpy import array  # noqa: PLC0415  heavy

    found = study.evidence
    if found is None:
        return None
    ranked, space = found.quality, study.problem.space
    return {
        "metric": found.metric,
        "tau": None if ranked is None else ranked.tau,
        "designs": [
            {
                "trial": each.trial,
                "point": space.labels(array(each.point)),
                "runs": each.runs,
                "measured": each.measured,
                "predicted": each.predicted,
                "ratio": each.ratio,
                "sources": list(each.sources),
            }
            for each in found.rows
        ],
    }
