"""The commands of studies: show one, tell it measured runs, compare several, importance, replay, doctor."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cosmic.base.files import check_writable, write_text
from cosmic.cli.console import (
    Json,
    emit_commands,
    emit_json,
    emit_table,
    format_brief,
    new_app,
    plot_columns,
    print_sentences,
)
from cosmic.cli.output_streams import doing, emit, speaks_unicode
from cosmic.cli.search_output import MOST_SHOWN, format_metric, named_metric
from cosmic.cli.value_completion import complete_metrics

if TYPE_CHECKING:
    from cosmic.search.importance import Factor, Importance
    from cosmic.search.study.doctor import Diagnosis
    from cosmic.search.study.measured_runs import Evidence, MeasuredPrediction
    from cosmic.search.study.study import Study
    from cosmic.search.study.study_comparison import Comparison
    from cosmic.search.study.study_replay import ReplayedStudy


# --------------------------------------------------------------------------------------
# `cosmic compare`: several studies compared
# --------------------------------------------------------------------------------------

compare_app = new_app()


@compare_app.command()
def compare(
    studies: Annotated[list[Path], typer.Argument(help="Directories of studies.")],
    plot: Annotated[Path | None, typer.Option(help="Write the convergence as SVG to this file.")] = None,
    json: Json = False,
) -> None:
    """Print the best design of several studies, how far each is behind the best, and how they converged."""
    from cosmic.search.study.study import open_study  # noqa: PLC0415  heavy
    from cosmic.search.study.study_comparison import compare_studies as run  # noqa: PLC0415  heavy

    if plot is not None:
        check_writable(plot, "--plot")
    doing("reading studies")
    comparison = run([open_study(path) for path in studies])
    rows = comparison.rows()
    if plot is not None:
        from cosmic.report.search_charts import convergence_chart  # noqa: PLC0415  heavy

        write_text(plot, convergence_chart(comparison), "--plot")
    if json:
        emit_json({"objective": comparison.objective, "studies": rows, "curves": _curves(comparison)})
        return
    names = ["study", "agent", "seed", "trials", "feasible", comparison.objective.replace("_", " "), "behind", "to 5 %"]
    emit_table("", names, [_compare_line(comparison.objective, row) for row in rows])
    if equal := [row["study"] for row in rows if row["told_apart"] is False]:
        emit([f"cannot be told apart from the best, by the errors of such predictions: {', '.join(equal)}"])
    from cosmic.report.search_charts import convergence_plot  # noqa: PLC0415  heavy

    emit(["", *convergence_plot(comparison, plot_columns(), braille=speaks_unicode())])


def _compare_line(objective: str, row: dict[str, Any]) -> list[Any]:
    behind = row["behind"]
    return [
        row["study"],
        row["agent"],
        row["seed"],
        row["trials"],
        f"{100 * row['feasible'] / max(1, row['trials']):.0f} %",
        format_metric(objective, row["best"]),
        "-" if behind is None else f"{100 * behind:.2f} %",
        row["trials_to_5_percent"],
    ]


def _curves(comparison: Comparison) -> dict[str, list[list[float]]]:
    from cosmic.search.study.study_comparison import metric_of_loss  # noqa: PLC0415  heavy

    return {
        course.name: [
            [int(count), metric_of_loss(comparison.objective, float(least)) or 0.0]
            for count, least in zip(course.evaluations, course.losses, strict=True)
        ]
        for course in comparison.courses
    }


# --------------------------------------------------------------------------------------
# `cosmic doctor`: a study checked and repaired
# --------------------------------------------------------------------------------------

doctor_app = new_app()
NOT_WHOLE = 1


@doctor_app.command()
def doctor(
    study: Annotated[Path, typer.Argument(metavar="DIR", help="Directory of a study.")],
    check: Annotated[bool, typer.Option("--check", help="Only check; change nothing.")] = False,
    json: Json = False,
) -> None:
    """Check a study and repair a damaged one from what can be read; exit with 1 if it stays damaged."""
    from cosmic.search.study.doctor import StudyRepair, examine_study, repair_study  # noqa: PLC0415  heavy

    doing("checking every trial")
    if check:
        found = examine_study(study)
        repaired = StudyRepair(found, found)
    else:
        repaired = repair_study(study)
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
        print_sentences([*before.findings, *repaired.done])
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


# --------------------------------------------------------------------------------------
# `cosmic importance`: which parameters of a study matter
# --------------------------------------------------------------------------------------

importance_app = new_app()


@importance_app.command()
def importance(
    study: Annotated[Path, typer.Argument(help="The directory of a study.")],
    objective: Annotated[
        str,
        typer.Option(
            metavar="METRIC",
            help="The metric that matters; by default the study's objective.",
            autocompletion=complete_metrics,
        ),
    ] = "",
    json: Json = False,
) -> None:
    """Print which parameters of a study matter: the share of the variance of its objective that each explains."""
    from dataclasses import asdict  # noqa: PLC0415  rarely needed

    from cosmic.search.study.study import open_study  # noqa: PLC0415  heavy

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
        [_importance_line(factor) for factor in found.factors],
    )
    emit([""])
    print_sentences(_notes(found, opened.inputs.agent))


def _importance_line(factor: Factor) -> list[object]:
    name = factor.name if factor.of is None else f"  {factor.name}"
    return [name, factor.values, _percent(factor.alone), _percent(factor.total)]


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


def _notes(found: Importance, agent: str) -> list[str]:
    """Return what the shares mean, and how far to trust them."""
    from cosmic.search.importance import MIN_FIT  # noqa: PLC0415  heavy
    from cosmic.search.optional_libraries import how_to_install  # noqa: PLC0415  heavy

    notes = ["alone: what its value explains by itself; total: what is lost if it is drawn anew, all else kept."]
    if found.fit is None and found.deviation:
        notes.append(f"The total needs scikit-learn; {how_to_install('search', 'scikit-learn')}.")
    elif found.fit is not None:
        trust = "; that is too little to trust the totals" if found.fit < MIN_FIT else ""
        notes.append(f"Totals are those of a forest that predicts {max(0.0, found.fit):.0%} of the variance{trust}.")
    if agent not in ("random", "exhaustive"):
        notes.append(f"The agent '{agent}' chose the trials: what it has settled appears to matter less.")
    return notes


# --------------------------------------------------------------------------------------
# `cosmic replay`: a study run again and compared
# --------------------------------------------------------------------------------------

replay_app = new_app()
DIFFERS = 1


@replay_app.command()
def replay(
    study: Annotated[Path, typer.Argument(metavar="DIR", help="Directory of a study.")],
    check: Annotated[bool, typer.Option("--check", help="Exit with 1 if anything differs.")] = False,
    workers: Annotated[int, typer.Option(min=1, help="Worker processes.")] = 1,
    json: Json = False,
) -> None:
    """Run a study again from its inputs and compare every trial, bit for bit."""
    from cosmic.search.search_loop import PoolOptions  # noqa: PLC0415  heavy
    from cosmic.search.study.study_replay import replay_study as run  # noqa: PLC0415  heavy

    doing("searching again, to compare every trial")
    found = run(study, PoolOptions(workers))
    if json:
        largest = {name: None if value == float("inf") else value for name, value in found.largest.items()}
        emit_json({"study": str(study), "same": found.same, **asdict(found), "largest": largest})
    else:
        _print(study, found)
    if check and not found.same:
        raise typer.Exit(DIFFERS)


def _print(study: Path, found: ReplayedStudy) -> None:
    if found.same:
        print_sentences([f"{study}: all {found.trials:,} trials are the same, bit for bit"])
        return
    what = "the agent proposes other points from there on" if found.other_points else "its results differ"
    print_sentences(
        [f"{study}: {found.differing:,} of {found.trials:,} trials differ, first trial {found.first:,}: {what}"]
    )
    if found.largest:
        rows = [[name, f"{value:.3g}"] for name, value in found.largest.items()]
        emit_table("", ["metric", "largest relative difference"], rows)
    versions = [[name, found.written_by.get(name, "-"), version] for name, version in found.running.items()]
    emit_table("", ["", "written by", "runs now"], versions)


# --------------------------------------------------------------------------------------
# `cosmic study`: a study shown, and measured runs put into it
# --------------------------------------------------------------------------------------

study_app = new_app("A study: what it is, what was learned, and what was measured beside what is predicted.")
Folder = Annotated[Path, typer.Argument(metavar="STUDY", help="The directory of a study.")]


@study_app.command()
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
    from cosmic.search.study.study import open_study  # noqa: PLC0415  heavy
    from cosmic.search.study.study import tell_runs as put  # noqa: PLC0415  heavy

    doing("putting in what was measured")
    new, whole = put(study, rows)
    opened = open_study(study)
    if json:
        emit_json({"study": str(study), "new": new, "runs": whole, "measured": _measured_facts(opened)})
        return
    known = "" if new else " (they were there already)"
    emit([f"{study}: {new:,} measured run{'' if new == 1 else 's'} put in{known}; it has {whole:,} now", ""])
    _print_measured(opened)
    folder = shlex.quote(str(study))
    emit([""])
    emit_commands({f"cosmic search SPACE --learn {folder}": "search again, with what was measured"})


@study_app.command()
def show(study: Folder, json: Json = False) -> None:
    """Show a study: what was searched, what its model learned, what was measured beside what is predicted."""
    from cosmic.search.study.study import open_study  # noqa: PLC0415  heavy

    doing("reading every trial")
    opened = open_study(study)
    if json:
        emit_json(_study_data(opened))
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
        emit([f"best predicted (trial {best:,}): {named_metric(name, trials.results.figures(best)[name])}"])
    print_sentences([f"learned from {path} (sha256 {digest[:12]})" for path, digest in inputs.learn])
    print_sentences([] if opened.learned is None else opened.learned.sentences())
    if opened.runs:
        emit([""])
        _print_measured(opened)


def _study_data(study: Study) -> dict[str, Any]:
    """Return a study as JSON holds it."""
    from cosmic.search.learning.prediction_quality import dump_learned  # noqa: PLC0415  heavy

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
        "learned": None if learned is None else dump_learned(learned),
        "measured": _measured_facts(study),
    }


def _print_measured(study: Study) -> None:
    """Print measured designs beside predictions, the best measured first."""
    from cosmic.search.study.measured_runs import summarize_evidence  # noqa: PLC0415  heavy

    found = study.evidence
    if found is None:
        emit(["no time was measured, and not the study's objective either"])
        return
    rows = [_measured_line(found, row) for row in found.rows[:MOST_SHOWN]]
    more = f", the first {MOST_SHOWN} of {len(found.rows):,}" if len(found.rows) > MOST_SHOWN else ""
    title = f"measured beside predicted, {found.metric}{more}"
    emit_table(title, ["trial", "runs", "measured", "predicted", "ratio"], rows)
    emit([""])
    print_sentences(summarize_evidence(found))


def _measured_line(found: Evidence, each: MeasuredPrediction) -> list[Any]:
    ratio = "cannot run by the model" if each.ratio is None else f"{each.ratio:.3f}"
    trial = "not tried" if each.trial is None else format_brief(each.trial)
    return [
        trial,
        each.runs,
        format_metric(found.metric, each.measured),
        format_metric(found.metric, each.predicted),
        ratio,
    ]


def _measured_facts(study: Study) -> dict[str, Any] | None:
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
                "trial": row.trial,
                "point": space.labels(array(row.point)),
                "runs": row.runs,
                "measured": row.measured,
                "predicted": row.predicted,
                "ratio": row.ratio,
                "sources": list(row.sources),
            }
            for row in found.rows
        ],
    }
