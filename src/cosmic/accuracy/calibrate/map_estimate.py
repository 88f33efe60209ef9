"""The most likely parameters, given measurements and what was believed before: a MAP estimate in log space.

    minimise over θ:   Σ_i (y_i - f_i(θ))² / s_i²  +  Σ_j θ_j² / σ_j²

    y_i  log of the measured seconds       f_i  log of the predicted seconds       s_i  noise of a measurement
    θ_j  log of a parameter over its usual value                                   σ_j  its prior spread

For one parameter and one row with f(θ) = f(0) + J θ the minimum is θ = σ² J r / (J² σ² + s²), r = y - f(0). In general
f is linearised at the last estimate and the step is halved while it does not improve (Gauss-Newton); parameters stay
within their bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Model = Callable[[Array], tuple[Array, Array]]
"""From parameters to the logs of the predictions, and their derivatives: a row each, a column for each parameter."""
MOST_STEPS = 12
MOST_HALVINGS = 8
TAIL = 4
SCALES = (1.0, 1.5, 2.0, 3.0, 4.0)
RARITY = 2.0
SETTLED = 1e-4
"""A step below this, in logs, ends the search."""


@dataclass(frozen=True, slots=True)
class Prior:
    """What is believed before anything is measured: spreads, and bounds that no value may leave."""

    spread: Array
    lowest: Array
    highest: Array


@dataclass(frozen=True, slots=True)
class Estimate:
    """The most likely parameters, and how certain they are."""

    theta: Array
    predicted: Array
    """Logs of the predictions at them."""
    slopes: Array
    """Their derivatives there."""
    covariance: Array
    """Of the parameters, given the measurements."""

    @property
    def at_zero(self) -> Array:
        """Logs of what the predictions would be at usual parameters, were they linear."""
        return self.predicted - self.slopes @ self.theta

    @property
    def spread(self) -> Array:
        """Standard deviation of each parameter, given the measurements."""
        return np.sqrt(np.diag(self.covariance))


def estimate_parameters(
    model: Model, measured: Array, noise: Array, prior: Prior, start: Array | None = None
) -> Estimate:
    """Return the most likely parameters; *measured* are logs, *noise* the standard deviations of their errors.

    The search begins at *start*, by default at the usual values.
    """
    theta = np.clip(np.zeros(len(prior.spread)) if start is None else start, prior.lowest, prior.highest)
    predicted, slopes = model(theta)
    best = _misfit(theta, predicted, measured, noise, prior)
    for _ in range(MOST_STEPS):
        target = solve_linear(predicted - slopes @ theta, slopes, measured, noise, prior)
        share = 1.0
        for _ in range(MOST_HALVINGS):
            tried = theta + share * (target - theta)
            predicted_there, steeper = model(tried)
            misfit = _misfit(tried, predicted_there, measured, noise, prior)
            if misfit <= best:
                break
            share /= 2
        else:
            break
        moved = float(np.max(np.abs(tried - theta), initial=0.0))
        theta, predicted, slopes, best = tried, predicted_there, steeper, misfit
        if moved < SETTLED:
            break
    return Estimate(theta, predicted, slopes, covariance(slopes, noise, prior))


def prior_scale(off: Array, slopes: Array, noise: Array, spread: Array) -> float:
    """Return how many times wider than usual the priors must be for measurements that are *off* so far, in logs.

    It maximises the likelihood of all measurements together, in which a scale of 2 counts a quarter of one of 1: a
    system that is much unlike what is usual is so in several ways.

    >>> one, usual = np.ones((1, 1)), np.array([0.06])
    >>> [prior_scale(np.array([r]), one, np.array([0.03]), usual) for r in (0.05, 0.2, 0.3)]
    [1.0, 2.0, 3.0]
    """
    shared = (slopes * spread**2) @ slopes.T
    best, best_scale = np.inf, SCALES[0]
    for scale in SCALES:
        sign, size = np.linalg.slogdet(covariance := scale**2 * shared + np.diag(noise**2))
        cost = 0.5 * (size + off @ np.linalg.solve(covariance, off)) + RARITY * np.log(scale)
        if sign > 0 and cost < best:
            best, best_scale = float(cost), scale
    return best_scale


def tame_outliers(measured: Array, predicted: Array, noise: Array) -> Array:
    """Return the noise of rows, larger for those that are far from most: an outlier should move nothing far.

    It is what errors of Student's t distribution with `TAIL` degrees of freedom amount to.

    >>> tame_outliers(np.array([0.0, 0.0, 0.3]), np.zeros(3), np.full(3, 0.1)).round(3).tolist()
    [0.1, 0.1, 0.161]
    """
    shift = measured - predicted
    off = ((shift - np.median(shift)) / noise) ** 2
    return noise * np.sqrt(np.maximum(1.0, (TAIL + off) / (TAIL + 1)))


def solve_linear(at_zero: Array, slopes: Array, measured: Array, noise: Array, prior: Prior) -> Array:
    """Return the most likely parameters of a linear model; one that would leave its bounds stays on them.

    >>> one = Prior(np.array([0.06]), np.array([-1.0]), np.array([1.0]))
    >>> float(solve_linear(np.zeros(1), np.ones((1, 1)), np.array([0.1]), np.array([0.03]), one)[0])  # 0.1 × 36 / (36 + 9)
    0.08
    """
    theta = np.zeros(len(prior.spread))
    free = np.ones(len(prior.spread), dtype=bool)
    weights = 1 / noise**2
    while free.any():
        used = slopes[:, free]
        residual = measured - at_zero - slopes[:, ~free] @ theta[~free]
        normal = (used.T * weights) @ used + np.diag(1 / prior.spread[free] ** 2)
        theta[free] = np.linalg.solve(normal, (used.T * weights) @ residual)
        beyond_bounds = free & ((theta < prior.lowest) | (theta > prior.highest))
        if not beyond_bounds.any():
            break
        theta[beyond_bounds] = np.clip(theta[beyond_bounds], prior.lowest[beyond_bounds], prior.highest[beyond_bounds])
        free &= ~beyond_bounds
    return theta


def covariance(slopes: Array, noise: Array, prior: Prior) -> Array:
    """Return the covariance of the parameters, given measurements with these *slopes* and *noise*."""
    return np.asarray(np.linalg.inv((slopes.T / noise**2) @ slopes + np.diag(1 / prior.spread**2)), dtype=np.float64)


def leave_one_out_estimates(estimate: Estimate, measured: Array, noise: Array, prior: Prior) -> Array:
    """Return the parameters that all rows but one set, for each row: linear around the estimate."""
    at_zero = estimate.at_zero
    rows = np.arange(len(measured))
    row_sets = [rows != row for row in rows]
    return np.array(
        [
            solve_linear(
                at_zero[other_rows], estimate.slopes[other_rows], measured[other_rows], noise[other_rows], prior
            )
            for other_rows in row_sets
        ]
    )


def shrunk_mean(residuals: Array, noise: Array, spread: float) -> float:
    """Return the most likely common shift of *residuals*, of which *spread* was expected before.

    >>> shrunk_mean(np.array([0.1]), np.array([0.03]), 0.04)  # 0.1 × 16 / (16 + 9)
    0.064
    """
    weights = 1 / noise**2
    return float(np.sum(weights * residuals) / (np.sum(weights) + 1 / spread**2))


def _misfit(theta: Array, predicted: Array, measured: Array, noise: Array, prior: Prior) -> float:
    return float(np.sum(((measured - predicted) / noise) ** 2) + np.sum((theta / prior.spread) ** 2))
