"""The commands of studies: show one, report on it, tell it measured runs, compare several, importance, replay, doctor.

`cosmic study tournament` compares agents on one space; `cosmic study leaderboard` keeps a board of agents and designs,
every entry of which is evaluated again before it counts.
"""

from __future__ import annotations

import shlex
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from cosmic.base.errors import require
from cosmic.base.files import Unwritable, check_writable, is_file, is_folder, write_text
from cosmic.cli import value_completion
from cosmic.cli.console import (
    MORE,
    Json,
    Limits,
    Stacks,
    emit_commands,
    emit_json,
    emit_table,
    format_brief,
    format_seconds,
    plot_columns,
    print_sentences,
)
from cosmic.cli.output_streams import StatusLine, doing, emit, emit_data, speaks_unicode
from cosmic.cli.search_output import MOST_SHOWN, format_metric, named_metric, split_values, write_best
from cosmic.cli.value_completion import complete_metrics

if TYPE_CHECKING:
    from cosmic.cli.answers.design_answers import StudyExportAnswer
    from cosmic.cli.answers.study_answers import (
        CompareAnswer,
        ComparedStudyRow,
        ReportAnswer,
        StudyShowAnswer,
        StudyTellAnswer,
        TournamentAgentRow,
        TournamentAnswer,
        TournamentSearchRow,
    )
    from cosmic.report.study_report import Report
    from cosmic.search.importance import Factor, Importance
    from cosmic.search.leaderboard import TournamentEntry
    from cosmic.search.study.doctor import Diagnosis
    from cosmic.search.study.measured_runs import BesidePrediction, Evidence
    from cosmic.search.study.study import Study
    from cosmic.search.study.study_comparison import Comparison, ReplayedStudy


# ---- `cosmic study compare`: several studies compared


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
    rows = cast("list[ComparedStudyRow]", comparison.rows())
    if plot is not None:
        from cosmic.report.search_charts import convergence_chart  # noqa: PLC0415  heavy

        write_text(plot, convergence_chart(comparison), "--plot")
    if json:
        answer: CompareAnswer = {
            "objective": comparison.objective,
            "studies": rows,
            "curves": _curves(comparison),
        }
        emit_json(answer)
        return
    names = ["study", "agent", "seed", "trials", "feasible", comparison.objective.replace("_", " "), "behind", "to 5 %"]
    emit_table("", names, [_compare_line(comparison.objective, row) for row in rows])
    if equal := [row["study"] for row in rows if row["told_apart"] is False]:
        emit([f"cannot be told apart from the best, by the errors of such predictions: {', '.join(equal)}"])
    from cosmic.report.search_charts import convergence_plot  # noqa: PLC0415  heavy

    emit(["", *convergence_plot(comparison, plot_columns(), braille=speaks_unicode())])


def _compare_line(objective: str, row: ComparedStudyRow) -> list[Any]:
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


def _curves(comparison: Comparison) -> dict[str, list[tuple[float, float]]]:
    from cosmic.search.study.study_comparison import metric_of_loss  # noqa: PLC0415  heavy

    return {
        course.name: [
            (int(count), metric_of_loss(comparison.objective, float(least)) or 0.0)
            for count, least in zip(course.evaluations, course.losses, strict=True)
        ]
        for course in comparison.courses
    }


# ---- `cosmic study doctor`: a study checked and repaired

NOT_WHOLE = 1


def doctor(
    study: Annotated[Path, typer.Argument(metavar="DIR", help="Directory of a study.")],
    check: Annotated[bool, typer.Option("--check", help="Only check; change nothing.")] = False,
    json: Json = False,
) -> None:
    """Check a study and repair a damaged one from what can be read; exit with 1 if it stays damaged."""
    from cosmic.search.study.doctor import StudyRepair, examine_study, repair_study  # noqa: PLC0415  heavy

    doing("checking every trial")
    if check:
        diagnosis = examine_study(study)
        repaired = StudyRepair(diagnosis, diagnosis)
    else:
        repaired = repair_study(study)
    before, after = repaired.before, repaired.after
    if json:
        from cosmic.cli.answers.study_answers import StudyDoctorAnswer  # noqa: PLC0415  heavy

        emit_json(StudyDoctorAnswer(study, repaired))
    else:
        print_sentences([*before.findings, *repaired.done])
        if repaired.kept is not None:
            emit([f"the damaged trials are kept as {repaired.kept.name}"])
        emit(_verdict(study, after, changed=bool(repaired.done)))
        if after.whole and repaired.done:
            emit_commands({f"cosmic search --resume --out {shlex.quote(str(study))}": "continue"})
    if not after.whole:
        raise typer.Exit(NOT_WHOLE)


def _verdict(study: Path, diagnosis: Diagnosis, *, changed: bool) -> list[str]:
    if not diagnosis.whole:
        if not diagnosis.repairable or not diagnosis.usable:
            return [f"{study} cannot be used as it is"]
        return [
            f"{study} is damaged" + ("" if changed else f": 'cosmic study doctor {shlex.quote(str(study))}' repairs it")
        ]
    sentence = (
        f"{study} is intact{' again' if changed else ''}: {diagnosis.trials:,} trials in {diagnosis.batches:,} batches"
    )
    return [sentence]


# ---- `cosmic study importance`: which parameters of a study matter


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
    from cosmic.search.study.study import open_study  # noqa: PLC0415  heavy

    doing("reading the study")
    opened = open_study(study)
    ranking = opened.importance(objective)
    if json:
        from cosmic.cli.answers.study_answers import ImportanceAnswer  # noqa: PLC0415  heavy

        emit_json(ImportanceAnswer(study, opened.inputs.agent, ranking))
        return
    what = f"the logarithm of {ranking.objective}" if ranking.logarithm else ranking.objective
    emit_table(
        f"share of the variance of {what}, {ranking.trials:,} trials that can run",
        ["parameter", "values", "alone", "total"],
        [_importance_line(factor) for factor in ranking.factors],
    )
    emit([""])
    print_sentences(_notes(ranking, opened.inputs.agent))


def _importance_line(factor: Factor) -> list[object]:
    name = factor.name if factor.of is None else f"  {factor.name}"
    return [name, factor.values, _percent(factor.alone), _percent(factor.total)]


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


def _notes(ranking: Importance, agent: str) -> list[str]:
    """Return what the shares mean, and how far to trust them."""
    from cosmic.search.importance import MIN_FIT  # noqa: PLC0415  heavy
    from cosmic.search.optional_libraries import how_to_install  # noqa: PLC0415  heavy

    notes = ["alone: what its value explains by itself; total: what is lost if it is drawn anew, all else kept."]
    if ranking.fit is None and ranking.deviation:
        notes.append(f"The total needs scikit-learn; {how_to_install('search', 'scikit-learn')}.")
    elif ranking.fit is not None:
        trust = "; that is too little to trust the totals" if ranking.fit < MIN_FIT else ""
        notes.append(f"Totals are those of a forest that predicts {max(0.0, ranking.fit):.0%} of the variance{trust}.")
    if agent not in ("random", "exhaustive"):
        notes.append(f"The agent '{agent}' chose the trials: what it has settled appears to matter less.")
    return notes


# ---- `cosmic study replay`: a study run again and compared

DIFFERS = 1


def replay(
    study: Annotated[Path, typer.Argument(metavar="DIR", help="Directory of a study.")],
    check: Annotated[bool, typer.Option("--check", help="Exit with 1 if anything differs.")] = False,
    workers: Annotated[int, typer.Option(min=1, help="Worker processes.")] = 1,
    json: Json = False,
) -> None:
    """Run a study again from its inputs and compare every trial, bit for bit."""
    from cosmic.search.search_loop import PoolOptions  # noqa: PLC0415  heavy
    from cosmic.search.study.study_comparison import replay_study as run  # noqa: PLC0415  heavy

    doing("searching again, to compare every trial")
    replayed = run(study, PoolOptions(workers))
    if json:
        from cosmic.cli.answers.study_answers import ReplayAnswer  # noqa: PLC0415  heavy

        emit_json(ReplayAnswer(study, replayed))
    else:
        _print(study, replayed)
    if check and not replayed.same:
        raise typer.Exit(DIFFERS)


def _print(study: Path, replayed: ReplayedStudy) -> None:
    if replayed.same:
        print_sentences([f"{study}: all {replayed.trials:,} trials are the same, bit for bit"])
        return
    what = "the agent proposes other points from there on" if replayed.other_points else "its results differ"
    print_sentences(
        [
            f"{study}: {replayed.differing:,} of {replayed.trials:,} trials differ, first trial {replayed.first:,}: {what}"
        ]
    )
    if replayed.largest:
        rows = [[name, f"{value:.3g}"] for name, value in replayed.largest.items()]
        emit_table("", ["metric", "largest relative difference"], rows)
    versions = [[name, replayed.written_by.get(name, "-"), version] for name, version in replayed.running.items()]
    emit_table("", ["", "written by", "runs now"], versions)


# ---- `cosmic study`: a study shown, and measured runs put into it

Folder = Annotated[Path, typer.Argument(metavar="STUDY", help="The directory of a study.")]


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
    new, total = put(study, rows)
    opened = open_study(study)
    if json:
        answer: StudyTellAnswer = {
            "study": str(study),
            "new": new,
            "runs": total,
            "measured": opened.evidence,
        }
        emit_json(answer)
        return
    repeated_note = "" if new else " (they were there already)"
    emit([f"{study}: {new:,} measured run{'' if new == 1 else 's'} put in{repeated_note}; it has {total:,} now", ""])
    _print_measured(opened)
    folder = shlex.quote(str(study))
    emit([""])
    emit_commands({f"cosmic search SPACE --learn {folder}": "search again, with what was measured"})


def show(study: Folder, json: Json = False) -> None:
    """Show a study: what was searched, what its model learned, what was measured beside what is predicted."""
    from cosmic.search.study.study import open_study  # noqa: PLC0415  heavy
    from cosmic.search.study.study_answers import show_study  # noqa: PLC0415  heavy

    doing("reading every trial")
    opened = open_study(study)
    if json:
        shown = cast("StudyShowAnswer", show_study(opened))
        emit_json(shown)
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


def _print_measured(study: Study) -> None:
    """Print measured designs beside predictions, the best measured first."""
    from cosmic.search.study.measured_runs import summarize_evidence  # noqa: PLC0415  heavy

    evidence = study.evidence
    if evidence is None:
        emit(["no time was measured, and not the study's objective either"])
        return
    rows = [_measured_line(evidence, row) for row in evidence.rows[:MOST_SHOWN]]
    more = f", the first {MOST_SHOWN} of {len(evidence.rows):,}" if len(evidence.rows) > MOST_SHOWN else ""
    title = f"measured beside predicted, {evidence.metric}{more}"
    emit_table(title, ["trial", "runs", "measured", "predicted", "ratio"], rows)
    emit([""])
    print_sentences(summarize_evidence(evidence))


def _measured_line(evidence: Evidence, each: BesidePrediction) -> list[Any]:
    ratio = "cannot run by the model" if each.ratio is None else f"{each.ratio:.3f}"
    trial = "not tried" if each.trial is None else format_brief(each.trial)
    return [
        trial,
        each.runs,
        format_metric(evidence.metric, each.measured),
        format_metric(evidence.metric, each.predicted),
        ratio,
    ]


# ---- `cosmic study export`: every trial as a table

STANDARD_OUTPUT = "-"


def export(
    study: Annotated[str, typer.Argument(metavar="STUDY", help="The directory of a study.")],
    to: Annotated[
        str,
        typer.Option("--to", metavar="FILE", help="FILE.csv, FILE.jsonl or FILE.parquet; '-' prints CSV."),
    ],
    no_parts: Annotated[
        bool, typer.Option("--no-parts", help="Leave out what the step and the memory of each trial are made of.")
    ] = False,
    json: Json = False,
) -> None:
    """Write every trial of a study as a table."""
    from cosmic.frameworks.launch import targets  # noqa: PLC0415  heavy
    from cosmic.search.study import study as exporting  # noqa: PLC0415  heavy

    is_design = not is_folder(study) and ("@" in study or Path(study).suffix in (".yaml", ".yml") or is_file(study))
    require(not is_design, "study", study, "is a design: 'cosmic design export' writes it")
    if to == STANDARD_OUTPUT:
        require(not json, "--json", json, "cannot share standard output with the trials")
        emit_data(exporting.study_lines(exporting.ExportedStudy.open(study, parts=not no_parts)))
        return
    require(
        to not in targets,
        "--to",
        to,
        "is for 'cosmic design export'; a study is written to FILE.csv, .jsonl or .parquet",
    )
    check_writable(to, "--to")
    doing(f"writing {to}")
    trials, columns = exporting.export_trials(study, to, parts=not no_parts)
    if json:
        answer: StudyExportAnswer = {"study": study, "file": to, "trials": trials, "columns": columns}
        emit_json(answer)
    else:
        emit([f"{trials:,} trials with {columns} columns: {to}"])


# ---- `cosmic study leaderboard`: a kept board of agents and designs, whose entries are evaluated again before they count

Board = Annotated[Path, typer.Argument(help="Folder of the board.")]


def new_board(
    board: Board,
    space: Annotated[
        str,
        typer.Argument(help="A space of the catalog or a YAML file.", autocompletion=value_completion.complete_spaces),
    ],
    objective: Annotated[
        str, typer.Option(help="The metric that counts.", autocompletion=value_completion.complete_metrics)
    ] = "",
    constraint: Limits = [],  # noqa: B006  typer copies it
    trials: Annotated[int, typer.Option("-n", "--trials", min=1, help="Designs that each search may evaluate.")] = 1000,
    seeds: Annotated[int, typer.Option(min=1, help="Searches of each agent.")] = 5,
    json: Json = False,
) -> None:
    """Make a board for one space, objective and budget."""
    from cosmic.search.leaderboard import make_board  # noqa: PLC0415  heavy

    rules = make_board(board, space, objective=objective, constraints=tuple(constraint), trials=trials, seeds=seeds)
    if json:
        from cosmic.cli.answers.study_answers import LeaderboardRules  # noqa: PLC0415  heavy

        emit_json(LeaderboardRules(board, rules))
    else:
        emit([f"{board}: {rules.objective} of {space}, {trials:,} trials for each of {seeds} seeds"])


def enter_board(
    board: Board,
    design: Annotated[Path | None, typer.Option(help="A design to enter, as YAML: a best.yaml of a study.")] = None,
    agent: Annotated[
        str,
        typer.Option(
            help="An agent to run and enter, with settings if it has some.",
            autocompletion=value_completion.complete_agents,
        ),
    ] = "",
    name: Annotated[str, typer.Option(help="What the entry is called on the board.")] = "",
    json: Json = False,
) -> None:
    """Evaluate a design, or run an agent, and enter it."""
    from cosmic.search.leaderboard import enter_agent, enter_design  # noqa: PLC0415  heavy

    both = f"--design {design} --agent {agent}" if design and agent else "neither"
    require(bool(design) != bool(agent), "cosmic study leaderboard enter", both, "give a --design or an --agent")
    if design is not None:
        enter_design(board, name or design.stem, design)
    else:
        with StatusLine() as line:
            enter_agent(board, agent, name, lambda who, seed: line.show(f"{who}, seed {seed}"))
    _print_board(board, json)


def show_board(
    board: Board,
    rerun: Annotated[bool, typer.Option("--rerun", help="Run agents again, too: what they find now counts.")] = False,
    json: Json = False,
) -> None:
    """Evaluate every entry again, and rank them."""
    _print_board(board, json, rerun)


def _print_board(board: Path, json: bool, rerun: bool = False) -> None:
    from cosmic.search.leaderboard import open_board, show_board  # noqa: PLC0415  heavy

    with StatusLine() as status:
        lines = show_board(board, rerun=rerun, watch=lambda who, seed: status.show(f"{who}, seed {seed}"))
    rules, _ = open_board(board)
    if json:
        from cosmic.cli.answers.study_answers import LeaderboardAnswer  # noqa: PLC0415  heavy

        emit_json(LeaderboardAnswer(board, rules, lines))
        return
    emit([f"{rules.space}: {rules.objective}, {rules.trials:,} trials for each of {rules.seeds} seeds", ""])
    rows = [
        [
            index,
            line.name,
            line.kind,
            "-" if line.value is None else format_metric(rules.objective, line.value),
            "-" if line.best is None else format_metric(rules.objective, line.best),
            "-" if line.value is None else f"{100 * line.regret:.2f} %",
            line.confirmed,
        ]
        for index, line in enumerate(lines, 1)
    ]
    emit_table("", ["place", "name", "kind", "median", "best", "regret", "confirmed"], rows)


# ---- `cosmic study tournament`: agents compared on one space

AGAINST = {
    "exhaustive": "the exhaustive optimum",
    "proven": "the proven optimum",
    "found": "the best that any agent found",
}
NATIVE = "random,genetic,ant_colony,annealing,policy"


def tournament(  # noqa: PLR0913, PLR0917  one option each
    space: Annotated[
        str,
        typer.Argument(help="A space of the catalog or a YAML file.", autocompletion=value_completion.complete_spaces),
    ],
    agents: Annotated[
        str,
        typer.Option(
            help="The agents, separated by commas; with settings as in genetic(population=64).",
            autocompletion=value_completion.complete_several(value_completion.complete_agents),
        ),
    ] = NATIVE,
    trials: Annotated[int, typer.Option("-n", "--trials", min=1, help="Designs that each search may evaluate.")] = 1000,
    seeds: Annotated[int, typer.Option(min=1, help="Searches of each agent: seeds 0, 1, …")] = 5,
    objective: Annotated[
        list[str],
        typer.Option(
            help="A metric to optimise.", autocompletion=value_completion.complete_metrics, rich_help_panel=MORE
        ),
    ] = [],  # noqa: B006  typer copies it
    constraint: Limits = [],  # noqa: B006
    stacks: Stacks = "",
    engine: Annotated[
        str,
        typer.Option(
            help="analytic or event.",
            autocompletion=value_completion.complete_one_of("analytic", "event"),
            rich_help_panel=MORE,
        ),
    ] = "analytic",
    prove: Annotated[
        bool,
        typer.Option(
            "--prove", help="Prove the optimum of a large space, and state regret against it.", rich_help_panel=MORE
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Let agents search the same space with the same budget, and rank them by regret."""
    from cosmic.search.agent import separate_agents  # noqa: PLC0415  heavy
    from cosmic.search.leaderboard import hold_tournament  # noqa: PLC0415  heavy
    from cosmic.search.search_inputs import Options  # noqa: PLC0415  heavy
    from cosmic.search.space.space_files import load_space  # noqa: PLC0415  heavy

    options = Options(
        trials=trials, objectives=objective, constraints=constraint, stacks=split_values(stacks), engine=engine
    )
    rivals = separate_agents(agents)
    with StatusLine() as line:

        def announce(agent: str, seed: int) -> None:
            done = seed * len(rivals) + rivals.index(agent)
            line.show(f"search {done + 1:,} of {seeds * len(rivals):,}: {agent}, seed {seed}")

        board = hold_tournament(
            load_space(space),
            rivals,
            seeds=seeds,
            options=options,
            watch=announce,
            prove=_proven_best if prove else None,
        )
    rows = cast("list[TournamentAgentRow]", board.rows())
    if json:
        answer: TournamentAnswer = {
            "space": space,
            "objective": board.objective,
            "trials": trials,
            "optimum": board.optimum,
            "leaderboard": rows,
            "entries": [
                _agent_data(standing.agent, entry) for standing in board.standings for entry in standing.entries
            ],
        }
        emit_json(answer)
        return
    against = AGAINST[board.optimum]
    print_sentences(
        [f"{space}: {trials:,} trials for each of {seeds} seeds, {board.objective}; regret is against {against}", ""]
    )
    names = ["agent", "median", "regret", "worst", "within 2 %", "trials to 5 %", "time", "winners checked"]
    emit_table("", names, [_agent_line(board.objective, row) for row in rows])


def _proven_best(problem: Any) -> float | None:
    from cosmic.search.certify.certifying import proven_loss  # noqa: PLC0415  heavy

    return proven_loss(problem)


def _agent_line(objective: str, row: TournamentAgentRow) -> list[Any]:
    near = row["trials_to_5_percent"]
    return [
        row["agent"],
        format_metric(objective, row["median"]),
        f"{100 * row['regret_mean']:.2f} %",
        f"{100 * row['regret_worst']:.2f} %",
        f"{row['within_2_percent']} of {row['seeds']}",
        "-" if near is None else f"{near:,.0f}",
        format_seconds(row["elapsed_s"]),
        row["checked"],
    ]


def _agent_data(agent: str, entry: TournamentEntry) -> TournamentSearchRow:
    course = entry.course
    return {
        "agent": agent,
        "seed": course.seed,
        "loss": course.best,
        "point": entry.point,
        "checked": entry.checked,
        "elapsed_s": entry.elapsed_s,
    }


# ---- `cosmic report`: a study as one page


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
