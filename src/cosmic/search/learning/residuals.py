"""What measurements add to a prediction: log(measured / predicted), learned from few of them.

The predictions are physics already, so their error is small and smooth. Four models of it compete, from none to many
degrees of freedom, and each run is predicted from the others:

    none      predictions as they are
    factor    one factor for all, which leaves the order of designs as it is
    parts     a factor for each part of the step (GEMMs, collectives of tp, bubble …), shrunk toward one for all
    trend     a ridge regression on all features, from as many runs as there are features on

A model with more freedom is taken only if left-out runs are predicted better by more than their spread explains, and
are ranked no worse than by a simpler one. So few runs correct a factor, more of them correct parts, noise
corrects nothing, and no correction turns an order that the runs do not contradict.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from cosmic.search.agent import Floats
from cosmic.search.learning.prediction_quality import kendall_tau

PART_PENALTIES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
"""Ridge penalties that are tried on parts, which are shares of a step."""
TREND_PENALTIES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
"""The same on features of a standard deviation of one, for each run."""
MIN_PART_RUNS, MIN_TREND_RUNS = 4, 5
"""Runs from which on parts are told apart, and a trend is tried."""
ERROR_MARGIN = 0.9
"""A model with more freedom must have at most this share of the error of a simpler one."""


@dataclass(frozen=True)
class Residuals:
    """A learned correction: the logarithm of the factor between prediction and measurement."""

    kind: str
    """Which model won: ``none``, ``factor``, ``parts`` or ``trend``."""
    error: float
    """Root mean square of log(measured / corrected), each run predicted by the others."""
    before: float
    """The same of the predictions as they are."""
    level: float
    least: float
    """The correction stays between the least and the largest that was measured: it ends where the runs do."""
    most: float
    middle: Floats
    spread: Floats
    slopes: Floats

    def predict(self, coded: Floats) -> Floats:
        """Return the logarithm of the factor of each design."""
        if not self.slopes.any():
            return np.full(len(coded), self.level)
        correction = (coded - self.middle) / self.spread @ self.slopes + self.level
        return np.asarray(np.clip(correction, self.least, self.most))


def fit_residuals(coded: Floats, logs: Floats, predicted: Floats | None = None, parts: Sequence[int] = ()) -> Residuals:
    r"""Return the correction for designs with the features *coded*, of which *logs* are log(measured / predicted).

    *predicted* is the logarithm of each prediction, by which runs are ranked; *parts* are the columns of *coded* that
    are shares of the step.

        error of run i if it is left out  =  (y_i - ŷ_i) / (1 - h_ii)      ŷ = H y      (Allen's PRESS)

    of one factor, h = 1/n:

    >>> found = fit_residuals(np.zeros((4, 1)), np.log([1.1, 1.1, 1.2, 1.2]))
    >>> found.kind, round(float(np.exp(found.level)), 4), round(found.error, 4)  # (ln 1.2/1.1) / 2 · 4/3
    ('factor', 1.1489, 0.058)
    """
    count, width = coded.shape
    before, flat, unit = _rms(logs), np.zeros(width), np.ones(width)
    ends = (float(logs.min(initial=0.0)), float(logs.max(initial=0.0)))
    best, best_errors = Residuals("none", before, before, 0.0, *ends, flat, unit, flat), logs
    if count < 2:
        return best
    level = float(logs.mean())
    held_out_errors = (logs - level) * count / (count - 1)
    if _rms(held_out_errors) < ERROR_MARGIN * best.error:
        best, best_errors = (
            Residuals("factor", _rms(held_out_errors), before, level, *ends, flat, unit, flat),
            held_out_errors,
        )
    log_predictions = np.zeros(count) if predicted is None else predicted
    middle, spread = coded.mean(axis=0), coded.std(axis=0)
    shares = np.isin(np.arange(width), list(parts))
    tried = (
        ("parts", np.where(shares, 1.0, np.inf), PART_PENALTIES, MIN_PART_RUNS),
        (
            "trend",
            np.where(spread > 1e-12, spread, np.inf),
            [count * penalty for penalty in TREND_PENALTIES],
            max(MIN_TREND_RUNS, width),
        ),
    )
    for kind, scale, penalties, least in tried:
        scaled = (coded - middle) / scale
        if count < least or not scaled.any():
            continue
        held_out_errors, slopes = _fit_ridge(scaled, logs - level, penalties)
        if _is_better(held_out_errors, best_errors) and _rank_of(log_predictions + logs, held_out_errors) >= _rank_of(
            log_predictions + logs, best_errors
        ):
            best, best_errors = (
                Residuals(kind, _rms(held_out_errors), before, level, *ends, middle, scale, slopes),
                held_out_errors,
            )
    return best


def _fit_ridge(scaled: Floats, targets: Floats, penalties: Iterable[float]) -> tuple[Floats, Floats]:
    """Return the errors of runs that are left out, and the slopes, with the penalty that makes these errors least.

    The mean counts as fitted.
    """
    count, width = scaled.shape
    fits: list[tuple[Floats, Floats]] = []
    for penalty in penalties:
        # LAPACK rounds differently on each kind of processor; a correction is learned from noise far above that.
        solved = np.linalg.solve(scaled.T @ scaled + penalty * np.eye(width), scaled.T)
        slopes = solved @ targets
        leverage = np.einsum("ij,ji->i", scaled, solved) + 1 / count
        fits.append(((targets - scaled @ slopes) / np.maximum(1 - leverage, 1e-9), slopes))
    return min(fits, key=lambda fit: _rms(fit[0]))


def _is_better(errors: Floats, before_errors: Floats) -> bool:
    """Return whether the errors *errors* are less than those before, by a margin and by more than one standard error."""
    gain = before_errors**2 - errors**2
    doubt = float(gain.std(ddof=1)) / np.sqrt(len(gain))
    return _rms(errors) < ERROR_MARGIN * _rms(before_errors) and float(gain.mean()) > doubt


def _rank_of(measured: Floats, errors: Floats) -> float:
    """Return how well left-out runs are ranked by predictions that have the errors *errors*."""
    return kendall_tau(measured - errors, measured)


def _rms(values: Floats) -> float:
    return float(np.sqrt(np.mean(np.square(values)))) if len(values) else 0.0
