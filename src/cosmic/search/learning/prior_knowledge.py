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
from cosmic.search.learning.design_features import (
    Encoding,
    Features,
    arithmetic_features,
    derived_features,
    encoding_of,
    join_features,
    memory_features,
)
from cosmic.search.learning.known_points import make_targets
from cosmic.search.learning.residuals import Residuals, fit_residuals
from cosmic.search.learning.surrogate_models import Ensemble
from cosmic.search.objectives import losses
from cosmic.search.problem import Problem
from cosmic.search.space.diagram import Indices
from cosmic.search.study.measured_runs import (
    MeasuredDesign,
    correction_text,
    describe_points,
    differing_paths,
    learn_correction,
    read_designs,
    read_run_rows,
    shared_names,
)
from cosmic.search.trials import Trials

if TYPE_CHECKING:
    from cosmic.search.study.study import Study


OF_STEP = (
    *("step_s", "ttft_s", "tpot_s", "tokens_per_s", "mfu", "hfu", "cost_usd_per_token", "energy_j"),
    *("samples_per_s", "cost_usd_per_sample"),
    *("effective_tokens_per_s", "train_days", "train_usd", "train_energy_j", "train_co2_kg"),
    *("perf_per_bandwidth", "perf_per_network_cost"),
)
"""Metrics whose loss is in proportion to the time of a step."""
MOST_SOURCES = 20
MOST_TRIALS = 4000
"""Trials of each study that are learned from, at even distances."""
MEMBERS = 5
UNLIKELY = 3.0
"""What a design that surely cannot run has added to its rank, in standard deviations of ranks."""
MOST_STARTS = 100
"""Best designs of a study by closed forms that are candidates of a search by another engine."""
SHOWN = 6


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
    """The best designs of earlier studies of the same set, a rung below; None where there are none."""

    def measured(self, prior: Callable[[Indices], Floats]) -> Callable[[Indices], Floats]:
        """Return a *prior* in logarithms of seconds as it is expected to be measured."""
        factor = self.factor
        return prior if factor is None else lambda rows: prior(rows) + factor(rows)

    def corrected(self, problem: Problem, outcomes: Outcomes) -> Outcomes:
        """Return *outcomes* with the losses that are expected if the designs are measured."""
        if self.factor is None or not len(outcomes):
            return outcomes
        times = np.exp(self.factor(outcomes.rows))[:, None]
        known = OF_STEP if problem.of_designs else problem.objectives[:1]
        scaled = np.array([name in known for name in problem.objectives])
        return replace(outcomes, losses=np.where(scaled, outcomes.losses * times, outcomes.losses))

    def expected(self, problem: Problem, trials: Trials) -> tuple[int, float] | None:
        """Return the trial that is expected to be the best if it is measured, and by which factor it is corrected."""
        if self.factor is None or not trials.feasible:
            return None
        rows = np.flatnonzero(trials.results.feasible)
        some = trials.take(rows)
        found = self.corrected(problem, problem.outcomes(some.rows, some.results))
        best = int(np.nanargmin(found.losses[:, 0]))
        return int(rows[best]), float(np.exp(self.factor(some.rows[best : best + 1]))[0])


# ---------------------------------------------------------------------------------------------------- sources


def identify_sources(paths: Iterable[str | Path]) -> tuple[Source, ...]:
    """Return the sources at *paths*, with the digests of what they hold now."""
    found = [Source(str(Path(path).absolute()), _digest(Path(path))) for path in paths]
    require(len(found) <= MOST_SOURCES, "learn", len(found), f"give at most {MOST_SOURCES} studies and files")
    twice = [each.path for index, each in enumerate(found) if each.path in [one.path for one in found[:index]]]
    require(not twice, "learn", ", ".join(twice), "is given twice")
    return tuple(found)


def _digest(path: Path) -> str:
    """Return the digest of what a study or a file holds."""
    if is_folder(path):
        return _digest_of(_open_source(path))
    return digest(read_run_rows(path, "learn")[1])


def _open_source(path: Path) -> Study:
    from cosmic.search.study.study import open_study  # noqa: PLC0415  it imports this module's user

    return open_study(path)


def _digest_of(study: Study) -> str:
    """Return the digest of a study's set, trials and measured runs: not of when and by whom it was written."""
    from cosmic.search.study.measured_runs import dump_runs  # noqa: PLC0415

    inputs, results = study.inputs, study.trials.results
    columns = (study.trials.points, results.excess, *(results.columns[name] for name in study.problem.metrics))
    asked = f"{inputs.identity} {inputs.engine} {inputs.objectives}"
    return digest(asked, *(column.tobytes() for column in columns), dump_runs(study.runs))


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
            _require_same(source, _digest_of(study))
            studies.append(study)
            measured += _measured_in_study(problem, study)
        else:
            rows, data = read_run_rows(path, "learn")
            _require_same(source, digest(data))
            measured += read_designs(problem, rows, path.name)
    prior, said = _build_prior(problem, studies)
    notes += said
    starts, said = _best_starts(problem, studies)
    notes += said
    factor, said = learn_correction(problem, measured)
    notes += said
    found = Lessons(tuple(notes), prior, factor, starts)
    logarithmic = prior is not None and problem.engine == "event" and set(problem.objectives[:1]) <= set(OF_STEP)
    return replace(found, prior=found.measured(prior)) if prior is not None and logarithmic else found


def _require_same(source: Source, held: str) -> None:
    rule = "has changed since the study began, which learned from what it was: begin another study"
    require(held == source.digest, "learn", source.path, rule)


def _measured_in_study(problem: Problem, study: Study) -> list[MeasuredDesign]:
    """Return the measured runs of a study whose points are what the problem's are: designs, or fields of one kind."""
    space = study.problem.space
    same = space.of_designs if problem.space.of_designs else isinstance(space.base, type(problem.space.base))
    return [MeasuredDesign(space.point(np.array(run.point)), run.metrics) for run in study.runs if same]


# ------------------------------------------------------------------------------------------ from other studies


def _build_prior(problem: Problem, studies: Sequence[Study]) -> tuple[Callable[[Indices], Floats] | None, list[str]]:
    """Return what the trials of *studies* say of designs, and what was matched and left."""
    objective, simulated = problem.objectives[0], problem.engine == "event"
    parts, values, runs, notes = [], [], [], []
    for study in studies:
        trials, other = study.trials, study.problem
        name = study.path.name
        if simulated and other.engine == "analytic":
            continue  # `_starts`: a simulation starts from closed forms anyway
        if why := _why_silent(problem, study):
            notes.append(f"{name} teaches nothing: {why}.")
            continue
        known = trials.results.feasible & np.isfinite(trials.results.columns[objective])
        keep = trials.results.counted & (known if simulated else (known | ~trials.results.feasible))
        places = np.flatnonzero(keep)
        some = trials.take(places[np.linspace(0, len(places) - 1, min(len(places), MOST_TRIALS)).astype(np.intp)])
        found = losses([objective], some.results.columns)[:, 0]
        ran = some.results.feasible
        features = describe_points(other, some.rows, closed=simulated)
        worth = np.zeros(len(some))
        if simulated:
            closed = replace(other, engine="analytic", limits=()).evaluate(some.rows).columns
            worth[ran] = np.log(found / losses([objective], closed)[:, 0])[ran]
        else:
            worth[ran] = make_targets(found[ran][:, None], np.random.default_rng(0))
        parts.append(features)
        values.append(worth)
        runs.append(ran)
        notes.append(_match_parameters(problem, study, features))
    if not parts:
        return None, notes
    seen, value, ran = join_features(parts), np.concatenate(values), np.concatenate(runs)
    own = describe_points(problem, problem.space.sample(1, np.random.default_rng(0)), closed=simulated)
    encode = encoding_of(seen, shared_names(seen, own))
    if not simulated:
        return _prior_of_ranks(problem, encode, seen, value, ran), notes
    predicted = np.concatenate([np.asarray(part.columns["closed form"]) for part in parts])
    model = fit_residuals(encode(seen), value, predicted, encode.parts)
    return _prior_of_simulations(problem, encode, model), [
        *notes,
        correction_text(len(value), "simulated design", model),
    ]


def _why_silent(problem: Problem, study: Study) -> str:
    """Return why the trials of a study teach nothing of a problem; empty where they do."""
    other, results, objective = study.problem, study.trials.results, problem.objectives[0]
    if other.space.workloads:
        return "it has several workloads"
    if objective not in other.metrics:
        return f"its engine, {other.engine}, gives no {objective}"
    if problem.space.of_designs != other.space.of_designs:
        return "its points are no designs" if problem.space.of_designs else f"its points are no {problem.engine}"
    if not problem.space.of_designs and not set(differing_paths(problem)) & set(differing_paths(other)):
        return "it has no field of this set"
    known = results.feasible & np.isfinite(results.columns[objective])
    return f"it has fewer than 10 trials with {objective}" if known.sum() < 10 else ""


def _prior_of_ranks(
    problem: Problem, encode: Encoding, seen: Features, value: Floats, ran: Flags
) -> Callable[[Indices], Floats]:
    """Return the prior of designs by the ranks of other studies' trials.

    What could not run there is less likely to run here. Where memory says what fits it is not asked: the best designs
    often are those that just fit, and others' trials say less of these than memory does.
    """
    model = Ensemble("surrogate", MEMBERS, np.random.default_rng(0))
    model.learn(encode(seen), value, ran)
    unlikely = UNLIKELY if fits_of(problem) is None else 0.0

    def prior(rows: Indices) -> Floats:
        coded = encode(describe_points(problem, rows, closed=False))
        found = model.predict(coded)[0]
        return np.asarray(found + unlikely * (1 - model.feasibility(coded)) if unlikely else found)

    return prior


def _prior_of_simulations(problem: Problem, encode: Encoding, model: Residuals) -> Callable[[Indices], Floats]:
    """Return the prior of simulated designs: the closed form, corrected by what simulations of others taught."""

    def prior(rows: Indices) -> Floats:
        return problem.closed_losses(rows) + model.at(encode(describe_points(problem, rows, closed=True)))

    return prior


def _best_starts(problem: Problem, studies: Sequence[Study]) -> tuple[Indices | None, list[str]]:
    """Return the best designs of studies by closed forms, for a search by another engine, and what to say of them."""
    found, notes = [], []
    for study in studies:
        if problem.engine != "event" or study.problem.engine != "analytic":
            continue
        trials, name = study.trials, study.path.name
        if study.problem.space.identity != problem.space.identity:
            notes.append(f"{name} has closed forms alone, of another set: simulations start from those of this one.")
            continue
        value = losses(problem.objectives[:1], trials.results.columns)[:, 0]
        places = np.flatnonzero(trials.results.feasible & np.isfinite(value))
        best = places[np.argsort(value[places], kind="stable")][:MOST_STARTS]
        found.append(trials.rows[best])
        notes.append(f"{name} (the same set) has closed forms: its {len(best):,} best designs come first.")
    return np.concatenate(found) if found else None, notes


def _match_parameters(problem: Problem, study: Study, features: Features) -> str:
    """Return which parameters of a study the problem has too, and which it has not."""
    ours, theirs = set(differing_paths(problem)), set(differing_paths(study.problem))
    both = [path for path in differing_paths(problem) if path in theirs]
    left = [
        *(path for path in differing_paths(study.problem) if path not in ours),
        *(path for path in ours if path not in theirs),
    ]
    same = "the same set" if study.problem.space.identity == problem.space.identity else "another set"
    said = f"{study.path.name} ({same}) teaches by {features.rows:,} trials: matched {_listed(both)}"
    return f"{said}; left {_listed(sorted(left))}." if left else f"{said}."


def _listed(paths: Sequence[str]) -> str:
    names = [path.removeprefix("workload.") for path in paths]
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more if names else "no field"


# --------------------------------------------------------------------------------------------------- features


def arithmetic_of(problem: Problem, *, with_memory: bool = False) -> Callable[[Indices], Floats] | None:
    """Return what follows from the fields of designs by arithmetic, a column each; None where nothing is known to."""
    space = problem.space
    if not _has_steps(problem) or isinstance(space.base.model, Recommender):
        return None
    known = derived_features if with_memory else arithmetic_features

    def columns(rows: Indices) -> Floats:
        found = known(Batch(space.base, space.columns(rows))).columns
        return np.stack([np.asarray(column) for column in found.values()], axis=1)

    return columns


def fits_of(problem: Problem) -> Callable[[Indices], Flags] | None:
    """Return which designs fit into memory, as both of our engines judge it; None where that is not known before."""
    if not _has_steps(problem) or problem.brought is not None:
        return None

    def fits(rows: Indices) -> Flags:
        return ~(
            memory_features(Batch(problem.space.base, problem.space.columns(rows))) > 1
        )  # what is not known may fit

    return fits


def _has_steps(problem: Problem) -> bool:
    space = problem.space
    return space.of_designs and not space.workloads and space.base.serving is None
