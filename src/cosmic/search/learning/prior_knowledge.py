"""What a search knows before its first trial: earlier studies, and measured runs of this or of other spaces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cosmic.base.caching import digest
from cosmic.base.errors import require
from cosmic.base.files import exists, is_folder
from cosmic.design.design_batch import Batch
from cosmic.design.model_layer import Recommender
from cosmic.search.agent import Flags, Floats, Outcomes
from cosmic.search.learning.agent_memory import make_targets
from cosmic.search.learning.design_features import (
    Encoding,
    Features,
    arithmetic_features,
    derived_features,
    encoding_of,
    join_features,
    memory_features,
)
from cosmic.search.learning.prediction_quality import Residuals, fit_residuals
from cosmic.search.learning.surrogate_models import Ensemble
from cosmic.search.objectives import losses
from cosmic.search.problem import Problem
from cosmic.search.space.diagram import Indices
from cosmic.search.study.measured_runs import (
    MeasuredDesign,
    correction_text,
    describe_points,
    learn_correction,
    read_designs,
    read_run_rows,
    shared_features,
    varied_paths,
)
from cosmic.search.trials import Trials

if TYPE_CHECKING:
    from cosmic.search.study.study import Study


STEP_LOSS_METRICS = (
    *("step_s", "ttft_s", "tpot_s", "tokens_per_s", "mfu", "hfu", "cost_usd_per_token", "energy_j"),
    *("samples_per_s", "cost_usd_per_sample"),
    *("effective_tokens_per_s", "train_days", "train_usd", "train_energy_j", "train_co2_kg"),
    *("perf_per_bandwidth", "perf_per_network_cost"),
)
"""Metrics whose loss is in proportion to the time of a step."""
MAX_SOURCES = 20
MAX_STUDY_TRIALS = 4000
"""Trials of each study that are learned from, at even distances."""
ENSEMBLE_MEMBERS = 5
INFEASIBLE_PENALTY = 3.0
"""What a design that surely cannot run has added to its rank, in standard deviations of ranks."""
MAX_STARTS = 100
"""Best designs of a study by closed forms that are candidates of a search by another engine."""
MAX_SHOWN = 6


@dataclass(frozen=True)
class Source:
    """A study or a file that a search learns from."""

    path: str
    digest: str


@dataclass(frozen=True)
class Lessons:
    """What all sources together teach of the designs of one problem."""

    notes: tuple[str, ...] = ()
    prior: Callable[[Indices], Floats] | None = None
    """What designs are expected to be, less being better; None where no study teaches it."""
    factor: Callable[[Indices], Floats] | None = None
    """The logarithm of measured over predicted time; None where no measured run teaches it."""
    starts: Indices | None = None
    """The best designs by closed forms of earlier studies of the same set, for a search that simulates; else None."""

    def measured(self, prior: Callable[[Indices], Floats]) -> Callable[[Indices], Floats]:
        """Return a *prior* in logarithms of seconds as it is expected to be measured."""
        factor = self.factor
        return prior if factor is None else lambda rows: prior(rows) + factor(rows)

    def corrected(self, problem: Problem, outcomes: Outcomes) -> Outcomes:
        """Return *outcomes* with the losses that are expected if the designs are measured."""
        if self.factor is None or not len(outcomes):
            return outcomes
        times = np.exp(self.factor(outcomes.rows))[:, None]
        scaled_metrics = STEP_LOSS_METRICS if problem.of_designs else problem.objectives[:1]
        scaled = np.array([name in scaled_metrics for name in problem.objectives])
        return replace(outcomes, losses=np.where(scaled, outcomes.losses * times, outcomes.losses))

    def expected(self, problem: Problem, trials: Trials) -> tuple[int, float] | None:
        """Return the trial that is expected to be the best if it is measured, and by which factor it is corrected."""
        if self.factor is None or not trials.feasible:
            return None
        rows = np.flatnonzero(trials.results.feasible)
        feasible_trials = trials.select(rows)
        outcomes = self.corrected(problem, problem.outcomes(feasible_trials.rows, feasible_trials.results))
        best = int(np.nanargmin(outcomes.losses[:, 0]))
        return int(rows[best]), float(np.exp(self.factor(feasible_trials.rows[best : best + 1]))[0])


# ---- sources


def identify_sources(paths: Iterable[str | Path]) -> tuple[Source, ...]:
    """Return the sources at *paths*, with the digests of what they hold now."""
    sources = [Source(str(Path(path).absolute()), _digest_path(Path(path))) for path in paths]
    require(len(sources) <= MAX_SOURCES, "learn", len(sources), f"give at most {MAX_SOURCES} studies and files")
    twice = [
        source.path
        for index, source in enumerate(sources)
        if source.path in [earlier.path for earlier in sources[:index]]
    ]
    require(not twice, "learn", ", ".join(twice), "is given twice")
    return tuple(sources)


def _digest_path(path: Path) -> str:
    """Return the digest of what a study or a file holds."""
    if is_folder(path):
        return _digest_study(_open_source(path))
    return digest(read_run_rows(path, "learn")[1])


def _open_source(path: Path) -> Study:
    from cosmic.search.study.study import open_study  # noqa: PLC0415  it imports this module's user

    return open_study(path)


def _digest_study(study: Study) -> str:
    """Return the digest of a study's set, trials and measured runs: not of when and by whom it was written."""
    from cosmic.search.study.measured_runs import dump_runs  # noqa: PLC0415

    inputs, results = study.inputs, study.trials.results
    columns = (study.trials.points, results.excess, *(results.columns[name] for name in study.problem.metrics))
    search_text = f"{inputs.identity} {inputs.engine} {inputs.objectives}"
    return digest(search_text, *(column.tobytes() for column in columns), dump_runs(study.runs))


def read_lessons(problem: Problem, sources: Sequence[Source]) -> Lessons:
    """Return what *sources* teach of *problem*; one that is gone, or that has changed since, is refused."""
    if not sources:
        return Lessons()
    require(not problem.space.workloads, "learn", sources[0].path, "a set with several workloads learns from none yet")
    studies, measured, notes = [], [], []
    for source in sources:
        path = Path(source.path)
        require(exists(path), "learn", source.path, "is gone: the search learns from it, so put it back")
        if is_folder(path):
            study = _open_source(path)
            _require_same(source, _digest_study(study))
            studies.append(study)
            measured += _measured_in_study(problem, study)
        else:
            rows, data = read_run_rows(path, "learn")
            _require_same(source, digest(data))
            measured += read_designs(problem, rows, path.name)
    prior, new_notes = _build_prior(problem, studies)
    notes += new_notes
    starts, new_notes = _best_starts(problem, studies)
    notes += new_notes
    factor, new_notes = learn_correction(problem, measured)
    notes += new_notes
    lessons = Lessons(tuple(notes), prior, factor, starts)
    logarithmic = (
        prior is not None and problem.engine == "event" and set(problem.objectives[:1]) <= set(STEP_LOSS_METRICS)
    )
    return replace(lessons, prior=lessons.measured(prior)) if prior is not None and logarithmic else lessons


def _require_same(source: Source, current_digest: str) -> None:
    rule = "has changed since the study began, which learned from what it was: begin another study"
    require(current_digest == source.digest, "learn", source.path, rule)


def _measured_in_study(problem: Problem, study: Study) -> list[MeasuredDesign]:
    """Return the measured runs of a study whose points are what the problem's are: designs, or fields of one kind."""
    space = study.problem.space
    same = space.of_designs if problem.space.of_designs else isinstance(space.base, type(problem.space.base))
    return [MeasuredDesign(space.point(np.array(run.point)), run.metrics) for run in study.runs if same]


# ---- from other studies


def _build_prior(problem: Problem, studies: Sequence[Study]) -> tuple[Callable[[Indices], Floats] | None, list[str]]:
    """Return what the trials of *studies* say of designs, and what was matched and left."""
    objective, simulated = problem.objectives[0], problem.engine == "event"
    parts, values, runs, notes = [], [], [], []
    for study in studies:
        trials, study_problem = study.trials, study.problem
        name = study.path.name
        if simulated and study_problem.engine == "analytic":
            continue  # the prior of simulated designs has the closed form itself; `_best_starts` takes the best designs
        if why := _why_silent(problem, study):
            notes.append(f"{name} teaches nothing: {why}.")
            continue
        usable = trials.results.feasible & np.isfinite(trials.results.columns[objective])
        keep = trials.results.counted & (usable if simulated else (usable | ~trials.results.feasible))
        indices = np.flatnonzero(keep)
        sampled = trials.select(
            indices[np.linspace(0, len(indices) - 1, min(len(indices), MAX_STUDY_TRIALS)).astype(np.intp)]
        )
        trial_losses = losses([objective], sampled.results.columns)[:, 0]
        ran = sampled.results.feasible
        features = describe_points(study_problem, sampled.rows, closed=simulated)
        worth = np.zeros(len(sampled))
        if simulated:
            closed = replace(study_problem, engine="analytic", limits=()).evaluate(sampled.rows).columns
            worth[ran] = np.log(trial_losses / losses([objective], closed)[:, 0])[ran]
        else:
            worth[ran] = make_targets(trial_losses[ran][:, None], np.random.default_rng(0))
        parts.append(features)
        values.append(worth)
        runs.append(ran)
        notes.append(_match_parameters(problem, study, features))
    if not parts:
        return None, notes
    known_features, value, ran = join_features(parts), np.concatenate(values), np.concatenate(runs)
    described = describe_points(problem, problem.space.sample(1, np.random.default_rng(0)), closed=simulated)
    encode = encoding_of(known_features, shared_features(known_features, described))
    if not simulated:
        return _prior_of_ranks(problem, encode, known_features, value, ran), notes
    predicted = np.concatenate([np.asarray(part.columns["closed form"]) for part in parts])
    model = fit_residuals(encode(known_features), value, predicted, encode.parts)
    return _prior_of_simulations(problem, encode, model), [
        *notes,
        correction_text(len(value), "simulated design", model),
    ]


def _why_silent(problem: Problem, study: Study) -> str:
    """Return why the trials of a study teach nothing of a problem; empty where they do."""
    study_problem, results, objective = study.problem, study.trials.results, problem.objectives[0]
    if study_problem.space.workloads:
        return "it has several workloads"
    if objective not in study_problem.metrics:
        return f"its engine, {study_problem.engine}, gives no {objective}"
    if problem.space.of_designs != study_problem.space.of_designs:
        return "its points are no designs" if problem.space.of_designs else f"its points are no {problem.engine}"
    if not problem.space.of_designs and not set(varied_paths(problem)) & set(varied_paths(study_problem)):
        return "it has no field of this set"
    usable = results.feasible & np.isfinite(results.columns[objective])
    return f"it has fewer than 10 trials with {objective}" if usable.sum() < 10 else ""


def _prior_of_ranks(
    problem: Problem, encode: Encoding, known_features: Features, value: Floats, ran: Flags
) -> Callable[[Indices], Floats]:
    """Return the prior of designs by the ranks of other studies' trials.

    What could not run there is less likely to run here. Where memory says what fits it is not asked: the best designs
    often are those that just fit, and others' trials say less of these than memory does.
    """
    model = Ensemble("surrogate", ENSEMBLE_MEMBERS, np.random.default_rng(0))
    model.learn(encode(known_features), value, ran)
    unlikely = INFEASIBLE_PENALTY if memory_filter(problem) is None else 0.0

    def prior(rows: Indices) -> Floats:
        coded = encode(describe_points(problem, rows, closed=False))
        predicted = model.predict(coded)[0]
        return np.asarray(predicted + unlikely * (1 - model.feasibility(coded)) if unlikely else predicted)

    return prior


def _prior_of_simulations(problem: Problem, encode: Encoding, model: Residuals) -> Callable[[Indices], Floats]:
    """Return the prior of simulated designs: the closed form, corrected by what simulations of others taught."""

    def prior(rows: Indices) -> Floats:
        return problem.closed_losses(rows) + model.predict(encode(describe_points(problem, rows, closed=True)))

    return prior


def _best_starts(problem: Problem, studies: Sequence[Study]) -> tuple[Indices | None, list[str]]:
    """Return the best designs of studies by closed forms, for a search by another engine, and what to say of them."""
    starts, notes = [], []
    for study in studies:
        if problem.engine != "event" or study.problem.engine != "analytic":
            continue
        trials, name = study.trials, study.path.name
        if study.problem.space.identity != problem.space.identity:
            notes.append(f"{name} has closed forms alone, of another set: simulations start from those of this one.")
            continue
        value = losses(problem.objectives[:1], trials.results.columns)[:, 0]
        indices = np.flatnonzero(trials.results.feasible & np.isfinite(value))
        best = indices[np.argsort(value[indices], kind="stable")][:MAX_STARTS]
        starts.append(trials.rows[best])
        notes.append(f"{name} (the same set) has closed forms: its {len(best):,} best designs come first.")
    return np.concatenate(starts) if starts else None, notes


def _match_parameters(problem: Problem, study: Study, features: Features) -> str:
    """Return which parameters of a study the problem has too, and which it has not."""
    ours, theirs = set(varied_paths(problem)), set(varied_paths(study.problem))
    common = [path for path in varied_paths(problem) if path in theirs]
    unmatched = [
        *(path for path in varied_paths(study.problem) if path not in ours),
        *(path for path in ours if path not in theirs),
    ]
    same = "the same set" if study.problem.space.identity == problem.space.identity else "another set"
    sentence = f"{study.path.name} ({same}) teaches by {features.rows:,} trials: matched {_paths_text(common)}"
    return f"{sentence}; left {_paths_text(sorted(unmatched))}." if unmatched else f"{sentence}."


def _paths_text(paths: Sequence[str]) -> str:
    names = [path.removeprefix("workload.") for path in paths]
    remainder = f" and {len(names) - MAX_SHOWN} more" if len(names) > MAX_SHOWN else ""
    return ", ".join(names[:MAX_SHOWN]) + remainder if names else "no field"


# ---- features


def arithmetic_of(problem: Problem, *, with_memory: bool = False) -> Callable[[Indices], Floats] | None:
    """Return what follows from the fields of designs by arithmetic, a column each; None where nothing is known to."""
    space = problem.space
    if not _has_steps(problem) or isinstance(space.base.model, Recommender):
        return None
    compute_features = derived_features if with_memory else arithmetic_features

    def columns(rows: Indices) -> Floats:
        features = compute_features(Batch(space.base, space.columns(rows))).columns
        return np.stack([np.asarray(column) for column in features.values()], axis=1)

    return columns


def memory_filter(problem: Problem) -> Callable[[Indices], Flags] | None:
    """Return which designs fit into memory, as both of our engines judge it; None where that is not known before."""
    if not _has_steps(problem) or problem.user_engine is not None:
        return None

    def fits(rows: Indices) -> Flags:
        return ~(
            memory_features(Batch(problem.space.base, problem.space.columns(rows))) > 1
        )  # what is not known may fit

    return fits


def _has_steps(problem: Problem) -> bool:
    space = problem.space
    return space.of_designs and not space.workloads and space.base.serving is None
