"""Studies that learn, after CubicML: a surrogate against chance, what transfers, and what few measurements correct."""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from common import Effort, listing, percent, write_page
from cubicml_searches import CASES, NEAR, SEEDS, SOURCE_TRIALS, TRIALS, Result, keep, ranked, read_kept, result_of

from cosmic.design import assign_fields, get_field
from cosmic.pages import Axis, Figure, Heading, Items, Part, Series, Table, Text, lines
from cosmic.plugins import Floats
from cosmic.space import Indices, ParameterSet, make_problem
from cosmic.study import identify_sources, kendall_tau, read_lessons

FEWER = 10
"""How many times fewer evaluations than at random are asked for."""
TAU = 0.8
"""The least Kendall's tau that is asked for."""
LEARNT = (60, 120, 240, 480)
"""Trials from which the judged models learn."""


def make(effort: Effort, found: list[Result] | None = None) -> list[Part]:
    """Return the page, every search of it run; what they found is added to *found*."""
    seeds = SEEDS[: effort.seeds(len(SEEDS))]
    with tempfile.TemporaryDirectory() as folder:
        results = [result_of(case, Path(folder), seeds) for case in CASES]
    if found is not None:
        found += results
    return _page(results)


def from_kept() -> list[Part]:
    """Return the page, with the searches of one seed run again and those of the others as they were kept."""
    kept = read_kept()
    with tempfile.TemporaryDirectory() as folder:
        return _page([result_of(case, Path(folder), SEEDS[:1], kept[case.short]) for case in CASES])


def _page(results: Sequence[Result]) -> list[Part]:
    models = [(each, ranked(each, LEARNT)) for each in results]
    return [
        *_answer(results),
        *_curves(results),
        *_models(models),
        *_transfer(results),
        *measured(),
        *_learned(results, models),
    ]


# ---------------------------------------------------------------------------------------------------- the page


def _answer(results: Sequence[Result]) -> list[Part]:
    seeds = len(results[0].courses["scratch"])
    said = f"""
    CubicML (Wen et al., arXiv 2409.04585) lets a model learn from finished training jobs, and launches those that it
    ranks best; it was used for a recommender of 73B parameters and for language models of up to 405B. Its features, its
    predictor and its gains could not be read, so that no number of it stands here. The question is whether studies that
    learn do what it claims, where the optimum is known: every design of both spaces was evaluated by the closed form,
    which proves the optimum. A search sees only what it evaluates, and ends within {NEAR:.0%} of the optimum or after
    {TRIALS} evaluations, the default of a search that learns. Asked were {FEWER} times fewer evaluations than at random.
    """
    fair = """
    The closed form stands in for an evaluation that is expensive: a simulation, or a run. What fits into memory is known
    before any run, so the surrogate proposes only designs that fit. A comparison with random search of all designs would
    count that as learning: it is compared with random search of the designs that fit.
    """
    columns = [
        "Case",
        "Designs",
        "fit",
        f"within {NEAR:.0%}",
        "Random, all designs",
        "Random, those that fit",
        "Surrogate",
        "Fewer by",
        "Seeds that came there",
    ]
    rows = [
        [
            each.case.name,
            f"{each.designs:,}",
            f"{each.runs:,}",
            f"{each.good:,}",
            f"{each.blind:,}",
            f"{each.chance:,}",
            _count(each.median("scratch")),
            _fewer(each),
            f"{each.reached('scratch')} of {seeds}",
        ]
        for each in results
    ]
    note = (
        f"Evaluations to within {NEAR:.0%}: medians, of random search exactly (designs are drawn without repetition), of"
        f" `surrogate` over {seeds} seeds, {SEEDS[0]} to {SEEDS[-1]}, where a search that did not come there counts as"
        " more than any other. How it works was chosen with other seeds, 100 to 109."
    )
    return [Text(said), Text(fair), Table(columns, rows, note)]


def _count(value: float | None) -> str:
    return f"over {TRIALS}" if value is None else f"{value:,.0f}"


def _fewer(each: Result) -> str:
    own = each.median("scratch")
    return f"at most {each.chance / TRIALS:.0f}×" if own is None else f"{each.chance / own:.0f}×"


def _curves(results: Sequence[Result]) -> list[Part]:
    parts: list[Part] = [Heading("Regret")]
    for each in results:
        counts = list(range(5, TRIALS + 1, 5))
        series = []
        for how, name in each.kinds.items():
            table = np.array([[course.at(count) for count in counts] for course in each.courses[how]])
            middle = (100 * np.median(table, axis=0)).tolist()
            dots = [(at, value) for at, value in zip(counts, middle, strict=True) if value < 300]
            series.append(Series(name, dots, steps=True))
        chart = lines(series, x=Axis("evaluations"), y=Axis("regret", "%"), title=f"{each.case.name}: regret")
        said = f"Median regret against the optimum of all designs; a search ends within {NEAR:.0%} of it."
        parts.append(Figure(chart, f"regret-{each.case.short}", said))
    return parts


def _models(models: Sequence[tuple[Result, list[tuple[int, float, float]]]]) -> list[Part]:
    said = """
    The surrogate's model, fitted to random designs that can run, ranks a thousand others that it has not seen. Kendall's
    τ compares all pairs; recall is the share of the ten best that are among the ten predicted best.
    """
    rows = [
        [each.case.name, count, f"{tau:.2f}", percent(recall, 0)]
        for each, found in models
        for count, tau, recall in found
    ]
    columns = ["Case", "Trials it learned from", "Kendall τ, held out", "Recall of the best 10"]
    asked = [
        f"{each.case.name}: τ is above {TAU} from {enough[0]} trials on."
        if (enough := [count for count, tau, _ in found if tau > TAU])
        else f"{each.case.name}: τ is not above {TAU}, which was asked for."
        for each, found in models
    ]
    return [Heading("How good the surrogates are"), Text(said), Table(columns, rows), Items(asked)]


def _transfer(results: Sequence[Result]) -> list[Part]:
    said = f"""
    The same searches with the same seeds, taught by a study of {SOURCE_TRIALS} trials of another model on another cluster
    (`--learn`). A third of the first designs is what it ranks best of those that fit here, the others are random. All of
    them are held out: the source was made before them, and if it ranks them badly it is dropped. After that it is a trend
    whose residual the model learns, for as long as held-out trials are ranked better with it than without. A source that is
    called reversed ranks designs the other way round: none is worse.
    """
    rows = []
    for each in results:
        for how, name in each.kinds.items():
            courses = each.courses[how]
            early = float(np.median([course.at(each.first) for course in courses]))
            dropped = "–" if how == "scratch" else f"{sum(course.dropped for course in courses)} of {len(courses)}"
            end = float(np.median([course.regrets[-1] for course in courses]))
            reached = f"{each.reached(how)} of {len(courses)}"
            rows.append(
                [each.case.name, name, percent(early), _count(each.median(how)), reached, percent(end, 2), dropped]
            )
    columns = [
        "Case",
        "Taught by",
        "Regret after the first batch",
        f"Evaluations to {NEAR:.0%}",
        "Came there",
        "Regret at the end",
        "Dropped",
    ]
    return [Heading("What transfers to another model and cluster"), Text(said), Table(columns, rows)]


# ------------------------------------------------------------------------------------ a machine that differs


BROKEN = {"network.dims.1.bandwidth": 0.6, "collective.overlap_efficiency": 0.5, "compute.time_factor": 1.08}
"""How the machine that is measured differs from the catalog's: factors of fields."""
NOISE = 0.01
JUDGED = 3000
SAME = 0.001
DRAWS, STEP = 4, 100
"""So many times other runs are measured: those that come so many designs later."""


def measured() -> list[Part]:
    """Return what few measurements of a machine that differs from the catalog's correct."""
    target = CASES[1].target()
    problem = make_problem(target)
    rows = target.sample(JUDGED, np.random.default_rng(3))
    rows = rows[problem.evaluate(rows).feasible]
    truth = _taken(target, rows)
    closed = problem.evaluate(rows).columns["step_s"]
    found = []
    for count in (0, 5, 10, 20, 40):
        draws = [
            _predicted(target, np.roll(rows, by, axis=0), np.roll(truth, by), np.roll(closed, by), count)
            for by in range(0, STEP * (DRAWS if count else 1), STEP)
        ]
        off, tau, chosen, before = (np.array([draw[place] for draw in draws]) for place in range(4))
        found.append(
            [
                count,
                percent(float(np.median(off))),
                f"{np.median(tau):.3f}",
                f"{tau.min():.3f}",
                percent(float(np.median(chosen)), 2),
                percent(float(chosen.max()), 2),
                int((tau < before - SAME).sum()),
            ]
        )
    said = f"""
    A machine whose rails give 60 % of their bandwidth, whose gradient reductions are overlapped by half, and whose
    kernels take 8 % longer stands in for one that was measured, with noise of {NOISE:.0%}: the model knows nothing of
    it. Runs of {len(rows):,} random designs that can run are predicted by the catalog's closed form, corrected by what
    a few of them taught (`cosmic search --learn runs.csv`), in {DRAWS} draws of these few. A correction is taken only if
    it predicts runs that are left out better, and ranks them no worse, than a simpler one.
    """
    columns = [
        "Measured runs",
        "Off by (root mean square), others",
        "Kendall τ, others",
        "the least",
        "Regret of the chosen design",
        "the largest",
        "Draws that are ranked worse",
    ]
    worse, tried = sum(int(str(row[-1])) for row in found), DRAWS * (len(found) - 1)
    note = (
        f"Medians of {DRAWS} draws. {found[-1][0]} runs reduce the error from {found[0][1]} to {found[-1][1]}. In {worse} of"
        f" {tried} draws other designs are ranked worse than the closed form ranks them (Kendall τ, by more than {SAME})."
    )
    return [Heading("What few measurements correct"), Text(said), Table(columns, found), Text(note)]


def _predicted(
    space: ParameterSet, rows: Indices, truth: Floats, closed: Floats, count: int
) -> tuple[float, float, float, float]:
    """Return of others after *count* runs how far predictions are off, Kendall's tau, regret, and tau without any run."""
    logs = _taught_by(space, rows, truth, count) if count else np.zeros(len(rows))
    seen = np.arange(len(rows)) >= count
    expected = closed * np.exp(logs)
    off = float(np.sqrt(np.mean(np.log(truth / expected)[seen] ** 2)))
    regret = float(truth[np.argmin(expected)] / truth.min() - 1)
    return off, kendall_tau(expected[seen], truth[seen]), regret, kendall_tau(closed[seen], truth[seen])


def _taken(space: ParameterSet, rows: Indices) -> Floats:
    """Return the steps of designs on the machine that differs, without noise."""
    changes = {path: get_field(space.base, path) * factor for path, factor in BROKEN.items()}
    other = replace(space, base=assign_fields(space.base, changes))
    return np.asarray(make_problem(other).evaluate(rows).columns["step_s"])


def _taught_by(space: ParameterSet, rows: Indices, truth: Floats, count: int) -> Floats:
    """Return the logarithm of the correction of all *rows* that the first *count* runs teach."""
    noise = np.exp(NOISE * np.random.default_rng(5).standard_normal(count))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "runs.csv"
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            paths = list(space.columns(rows[:1]))
            writer.writerow([*paths, "step_s"])
            for row, took in zip(rows[:count], (truth[:count] * noise).tolist(), strict=True):
                held = space.changes(row)
                writer.writerow([*(_cell(held[each]) for each in paths), took])
        lessons = read_lessons(make_problem(space), identify_sources([path]))
    return np.zeros(len(rows)) if lessons.factor is None else lessons.factor(rows)


def _cell(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _learned(results: Sequence[Result], models: Sequence[tuple[Result, list[tuple[int, float, float]]]]) -> list[Part]:
    items = []
    for each in results:
        own = each.median("scratch")
        if own is None:
            items.append(
                f"{each.case.name}: missed. Half of the searches did not come within {NEAR:.0%} of the optimum."
            )
            continue
        met = "as asked" if each.chance >= FEWER * own else f"but {FEWER} were asked"
        items.append(
            f"{each.case.name}: {each.chance / own:.0f} times fewer evaluations than at random to come within {NEAR:.0%} of the optimum, {met}."
        )
    for each in results:
        for how, name in list(each.kinds.items())[1:]:
            items.append(_effect(each, how, name))
    missed = [each.case.name for each, found in models if max(tau for _, tau, _ in found) <= TAU]
    if missed:
        items.append(f"The order of designs is not learned as well as asked (τ above {TAU}) for {listing(missed)}.")
    items.append(
        "Where the closed form is the evaluator a proof is as near: all designs of either space take seconds. Surrogates pay where an evaluation is a simulation or a run."
    )
    return [Heading("What was learned"), Items(items)]


def _effect(each: Result, how: str, name: str) -> str:
    """Return what a source changed, in a sentence."""
    before, after = (each.median(kind) or np.inf for kind in ("scratch", how))
    early = [float(np.median([course.at(each.first) for course in each.courses[kind]])) for kind in ("scratch", how)]
    verb = "saves" if after < before else "does not save"
    soon = "lower" if early[1] < early[0] else "no lower"
    dropped = sum(course.dropped for course in each.courses[how])
    said = (
        f" It was dropped by {dropped} of {len(each.courses[how])} searches." if dropped else " No search dropped it."
    )
    return (
        f"{each.case.name}: {name} {verb} evaluations ({_count(each.median('scratch'))} from scratch, {_count(each.median(how))} taught;"
        f" {each.reached('scratch')} and {each.reached(how)} searches came there), and the regret after the first batch is {soon}"
        f" ({percent(early[0])}, {percent(early[1])}).{said}"
    )


if __name__ == "__main__":
    done: list[Result] = []
    write_page("Studies that learn", "cubicml", lambda effort: make(effort, done), kept=from_kept)
    if len(done[0].courses["scratch"]) == len(SEEDS):  # a check has ended before
        keep(done)
