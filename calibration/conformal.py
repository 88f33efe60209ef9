"""Ranges of predictions and of their ratios, by conformal prediction with whole sources left out.

A residual is e = log(predicted / measured) of a run, by constants that were fitted without the run's source. With x the
features of its design, counted beside the runs of other sources (`accuracy` of the catalog),

    scale      σ(x) = exp(a · x), where a minimises  Σ w (log σ + |e| / σ)  +  ½ Σ ((a - mean) / spread)²
    score      |e| / σ(x), with the scale learned from other sources than the run's
    quantile   the least score above which at most a share 1 - level of the weight lies, where the next run, which has
               a score that nobody knows, counts among the weights: the least q with  Σ w[score ≤ q] / (1 + Σ w) ≥ level

The first is a Laplace distribution's likelihood, convex in a, with priors. Runs of a source err alike: of n runs, each
has the weight

    w = 1 / (1 + (n - 1) ρ)

with ρ the correlation of scores within a source, so that n runs are worth n w independent ones, at most 1 / ρ. Errors
of ratios are over pairs of runs of one source (`pair_accuracy` of the catalog).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import log
from typing import Any

import numpy as np
import numpy.typing as npt

from cosmic.accuracy.validating import MeasuredStep, left_out_errors, measured_steps
from cosmic.design.design_batch import batch_of
from cosmic.design.prediction_accuracy import (
    FEATURES,
    PAIR_LEVELS,
    RELATIONS,
    WIDEST,
    KnownRuns,
    LearnedErrors,
    Traits,
    classify_pair,
    facets_of,
    features_of,
    traits_of,
)
from cosmic.evaluation import evaluate_batch
from cosmic.simulate.step_evaluation import waiting_share

# --------------------------------------------------------------------------------------
# Ranges of predictions by conformal prediction, with whole sources left out
# --------------------------------------------------------------------------------------

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
PRIORS: dict[str, tuple[float, float]] = {
    "constant": (float(np.log(0.06)), 1.0),
    "mixture": (0.4, 0.4),
    "eight_bits": (0.2, 0.3),
    "four_bits": (0.2, 0.3),
    "one_accelerator": (-0.5, 0.4),
    "several_nodes": (0.0, 0.3),
    "waiting": (0.3, 0.3),
    "estimated": (0.4, 0.3),
    "unlike_accelerator": (0.25, 0.12),
    "unlike_model": (0.15, 0.1),
    "beyond": (0.2, 0.1),
}
"""Mean and spread of each coefficient before any run is known: an error of 6 %, wider for what is harder or unlike."""
WIDENING = ("waiting", "estimated", "unlike_accelerator", "unlike_model", "beyond", "four_bits")
"""Features that never make a range narrower."""
LEAST_CORRELATION = 0.2
"""ρ is at least this: few sources cannot show that they do not err alike."""
ROUNDS = 12
RANGE_LEVELS = (0.5, 0.9)


@dataclass(frozen=True, slots=True)
class Residual:
    """The error of a run, predicted without its source."""

    source: str
    error: float
    """Log of predicted over measured time."""
    traits: Traits
    waiting: float = 0.0


def known_runs(residuals: Iterable[Residual]) -> tuple[KnownRuns, ...]:
    """Return what is known of measured runs, by source and traits."""
    table: dict[tuple[str, ...], list[Residual]] = {}
    for residual in residuals:
        table.setdefault((residual.source, *residual.traits.kind, residual.traits.accelerator), []).append(residual)
    found = []
    for key, runs in sorted(table.items()):
        error = float(np.mean([abs(np.expm1(run.error)) for run in runs]))
        source, task, reach, model, number_format, accelerator = key
        most = max(run.traits.npus for run in runs)
        found.append(KnownRuns(source, task, reach, model, number_format, accelerator, most, len(runs), error))
    return tuple(found)


class SourceResiduals:
    """Residuals of several sources, from which scales and quantiles are learned."""

    def __init__(self, residuals: Sequence[Residual]) -> None:
        self.each = tuple(residuals)
        self.error = np.array([residual.error for residual in residuals])
        self.source = np.array([residual.source for residual in residuals])
        self.sources = sorted(set(self.source.tolist()))
        self._waiting = np.array([residual.waiting for residual in residuals])
        self._kinds = list(dict.fromkeys((residual.source, residual.traits) for residual in residuals))
        """Each source with each of its traits: their runs have the same features, but for waiting."""
        places = {kind: index for index, kind in enumerate(self._kinds)}
        self._kind = np.array([places[residual.source, residual.traits] for residual in residuals], dtype=np.intp)
        self._features: dict[frozenset[str], Floats] = {}

    @cached_property
    def known(self) -> tuple[KnownRuns, ...]:
        """What is known of the runs."""
        return known_runs(self.each)

    def features(self, without: Collection[str] = ()) -> Floats:
        """Return the features of each run, beside the runs of sources other than its own and those in *without*."""
        left = frozenset(without)
        if left not in self._features:
            beside = {
                source: [each for each in self.known if each.source != source and each.source not in left]
                for source in self.sources
            }
            kinds = np.array([features_of(traits, beside[source]) for source, traits in self._kinds])
            found = kinds[self._kind]
            found[:, FEATURES.index("waiting")] = self._waiting
            self._features[left] = found
        return self._features[left]

    def weights(self, correlation: float, without: Collection[str] = ()) -> Floats:
        """Return the weight of each run; 0 of those in *without*."""
        _, place, sizes = np.unique(self.source, return_inverse=True, return_counts=True)
        left = np.isin(self.source, list(without))
        return np.where(left, 0.0, 1 / (1 + (sizes[place] - 1) * correlation))

    def scores(self, correlation: float, without: Collection[str] = ()) -> Floats:
        """Return the score of each run, its scale learned without its source and those in *without*.

        These have no score: NaN.
        """
        found = np.full(len(self.each), np.nan)
        for source in self.sources:
            if source in without:
                continue
            out = {*without, source}
            features = self.features(out)
            here = self.source == source
            scale = np.exp(features[here] @ fit_coefficients(features, self.error, self.weights(correlation, out)))
            found[here] = np.abs(self.error[here]) / scale
        return found


def fit_coefficients(features: Floats, error: Floats, weight: Floats) -> Floats:
    """Return the coefficients of the scale of errors."""
    mean, spread = (np.array([PRIORS[name][place] for name in FEATURES]) for place in (0, 1))
    size, found = np.abs(error), mean.copy()
    widening = np.isin(FEATURES, WIDENING)
    for _ in range(ROUNDS):
        share = size / np.exp(features @ found)
        slope = features.T @ (weight * (1 - share)) + (found - mean) / spread**2
        curve = (features.T * (weight * share)) @ features + np.diag(spread**-2.0)
        found = found - np.clip(np.linalg.solve(curve, slope), -0.5, 0.5)
        found = np.where(widening, np.maximum(found, 0.0), found)
    return found


def quantile(scores: Floats, weight: Floats, level: float) -> float:
    """Return the weighted conformal quantile: the next run, of weight 1, may have any score.

    Where so few are known that the quantile would be that of the next run itself, it is the largest known.

    >>> quantile(np.array([1.0, 2.0, 3.0, 4.0]), np.ones(4), 0.6), quantile(np.array([1.0, 2.0]), np.ones(2), 0.9)
    (3.0, 2.0)
    """
    order = np.argsort(scores)
    share = np.cumsum(weight[order]) / (1 + weight.sum())
    place = int(np.searchsorted(share, level - 1e-12))
    return float(scores[order[min(place, len(order) - 1)]])


def correlation_within(values: Floats, source: npt.NDArray[Any]) -> float:
    """Return the share of the variance of *values* that is between sources: by an analysis of variance, one way.

    >>> round(correlation_within(np.array([1.0, 1.1, -1.0, -1.1]), np.array(["a", "a", "b", "b"])), 2)
    1.0
    """
    names, place, sizes = np.unique(source, return_inverse=True, return_counts=True)
    groups, count = len(names), len(values)
    if groups < 2 or count == groups:
        return 1.0
    means = np.bincount(place, values) / sizes
    inside = float(((values - means[place]) ** 2).sum()) / (count - groups)
    between = float((sizes * (means - values.mean()) ** 2).sum()) / (groups - 1)
    usual = (count - float((sizes**2).sum()) / count) / (groups - 1)
    shared = max(0.0, (between - inside) / usual)
    return shared / (shared + inside) if shared + inside > 0 else 0.0


def correlation(residuals: SourceResiduals) -> float:
    """Return ρ, the correlation of errors of a source, relative to their scales."""
    features = residuals.features()
    found = fit_coefficients(features, residuals.error, residuals.weights(LEAST_CORRELATION))
    within = correlation_within(residuals.error / np.exp(features @ found), residuals.source)
    return max(LEAST_CORRELATION, within)


def learn_scale(residuals: SourceResiduals) -> LearnedErrors:
    """Return the scale of errors, and the quantiles of scores."""
    shared = correlation(residuals)
    weight, scores = residuals.weights(shared), residuals.scores(shared)
    found = fit_coefficients(residuals.features(), residuals.error, weight)
    half, nine_tenths = (quantile(scores, weight, level) for level in RANGE_LEVELS)
    mean = float(np.average(scores, weights=weight))
    return LearnedErrors(dict(zip(FEATURES, found.tolist(), strict=True)), mean, half, nine_tenths, residuals.known)


@dataclass(frozen=True, slots=True)
class Covered:
    """How many runs of a source are within their ranges, which were learned from other sources."""

    source: str
    runs: int
    half: float
    """Share of the runs in the range that half should be in."""
    nine_tenths: float
    """Share of the runs in the range that nine in ten should be in."""
    width: float
    """Mean half-width of the latter, as a share: 0.2 for ±20 %."""


def measure_coverage(residuals: SourceResiduals) -> list[Covered]:
    """Return the coverage of every source, left out of all that its ranges were learned from."""
    shared = correlation(residuals)
    found = []
    for source in residuals.sources:
        here, out = residuals.source == source, [source]
        weight = residuals.weights(shared, out)
        scores = residuals.scores(shared, out)[~here]
        features = residuals.features(out)
        scale = np.exp(features[here] @ fit_coefficients(features, residuals.error, weight))
        limits = [np.minimum(WIDEST, quantile(scores, weight[~here], level) * scale) for level in RANGE_LEVELS]
        inside = [float(np.mean(np.abs(residuals.error[here]) <= limit)) for limit in limits]
        found.append(Covered(source, int(here.sum()), inside[0], inside[1], float(np.expm1(limits[1]).mean())))
    return found


# --------------------------------------------------------------------------------------
# Errors of measured steps, each predicted by constants that were fitted without its source
# --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PredictedStep:
    """A measured step, and the error of its prediction."""

    step: MeasuredStep
    residual: Residual


def measured_residuals() -> list[PredictedStep]:
    """Return every measured step of the package with its error.

    What no fit to runs changes, steps of one accelerator, is as predicted now.
    """
    known = left_out_errors()
    found = []
    for step in measured_steps():
        columns = {name: float(column[0]) for name, column in evaluate_batch(batch_of(step.point)).columns.items()}
        error = known.get((step.source, step.id), log(columns["step_s"] / step.measured_s))
        residual = Residual(step.source, error, traits_of(step.point), waiting_share(columns))
        found.append(PredictedStep(step, residual))
    return found


# --------------------------------------------------------------------------------------
# How far off ratios of two predictions are: over pairs of runs of one source (`cosmic.design.prediction_accuracy`)
# --------------------------------------------------------------------------------------


def learn_pairs(found: Iterable[PredictedStep], scale: LearnedErrors) -> dict[str, dict[str, Any]]:
    """Return the sizes of errors of ratios over their *scale*, by relation, as the catalog has them.

    Each source counts as in `cosmic.accuracy.conformal`: many pairs of a few runs are worth few. A relation without
    pairs takes those of the nearest that has some.
    """
    groups: dict[tuple[str, ...], list[PredictedStep]] = {}
    for each in found:
        groups.setdefault((each.step.source, *each.step.group), []).append(each)
    table: dict[str, dict[str, list[float]]] = {name: {} for name in RELATIONS}
    for (source, *_), runs in groups.items():
        sides = [(facets_of(run.step.point), run.residual.error, scale.scale(run.residual.traits)) for run in runs]
        for (one, error, usual), (other, another, common) in combinations(sides, 2):
            size = 2 * abs(error - another) / (usual + common)
            table[classify_pair(one, other)].setdefault(source, []).append(size)
    entries: dict[str, dict[str, Any]] = {}
    for name in RELATIONS:
        sizes = (
            _sizes(table[name])
            if table[name]
            else next((entry["sizes"] for entry in entries.values()), [1.0] * len(PAIR_LEVELS))
        )
        pairs = sum(map(len, table[name].values()))
        entries[name] = {"pairs": pairs, "sources": len(table[name]), "sizes": sizes}
    return entries


def _sizes(by_source: dict[str, list[float]]) -> list[float]:
    """Return the sizes of errors at each of `PAIR_LEVELS`, with sources weighted."""
    weights = [np.full(len(part), 1 / (1 + (len(part) - 1) * LEAST_CORRELATION)) for part in by_source.values()]
    values, weight = np.concatenate([np.array(part) for part in by_source.values()]), np.concatenate(weights)
    return [round(quantile(values, weight, level), 4) for level in PAIR_LEVELS]
