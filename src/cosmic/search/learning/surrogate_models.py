"""Models of the loss of points: Gaussian processes, and an ensemble of gradient-boosted trees.

Gaussian processes are kept cheap: hyper-parameters are fitted now and then, on a subset of the points. The kernel is
Matérn 5/2 with a length scale for each coordinate, plus noise. Rasmussen & Williams, *Gaussian Processes for Machine
Learning*, 2006, chapters 2 and 5.

The mean of the ensemble is the prediction, its spread the uncertainty. scikit-learn and SciPy are imported when a model
is made.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from cosmic.search.agent import Flags, Floats
from cosmic.search.learning.prediction_quality import MIN_HELD_OUT, Quality, measure_quality
from cosmic.search.optional_libraries import import_optional
from cosmic.search.space.diagram import Indices

# ---- Gaussian processes, kept cheap: hyper-parameters are fitted now and then, on a subset of the points

REFIT_GROWTH = 1.2
"""Hyper-parameters are fitted again when there are this many times as many points."""
FITTED_POINTS = 120
"""How many points they are fitted on: the time is quadratic in it, and linear in the number of coordinates."""
MAX_FIT_STEPS = 15
"""Iterations of one fit; the next fit starts where it ended."""
LENGTH_PRIOR_STD = 1.0
"""Standard deviation of the log-normal prior on length scales, whose median is half the square root of the number of
coordinates: few points do not determine them (Hvarfner, Hellsten & Nardi, ICML 2024)."""
HELD_OUT_PARTS = 3
"""Into how many parts the points are split to judge it: each is predicted by the others."""
LENGTHS = (0.1, 20.0)
AMPLITUDES = (0.05, 20.0)
NOISES = (1e-6, 0.1)


class GaussianProcess:
    """A Gaussian process: fitted to values at some points, it predicts the values at others."""

    def __init__(self, who: str) -> None:
        self._models = import_optional("sklearn.gaussian_process", "search", who)
        self._kernels = import_optional("sklearn.gaussian_process.kernels", "search", who)
        self._minimize = import_optional("scipy.optimize", "search", who).minimize
        self._limits = import_optional("threadpoolctl", "search", who).threadpool_limits
        self._kernel: Any = None
        self._fitted = 0
        self._model: Any = None
        self._prior_mean = 0.0
        self._coded: Floats = np.empty((0, 0))
        self._values: Floats = np.empty(0)
        self._quality: Quality | None = None
        self._judged_at = 0

    @property
    def is_fitted(self) -> bool:
        """Whether it has been fitted."""
        return self._model is not None

    def learn(self, coded: Floats, values: Floats, prior_mean: float = 0.0) -> None:
        """Fit the *values* at the points *coded*; far from all of them the mean is *prior_mean*."""
        self._coded, self._values, self._prior_mean = coded, values, prior_mean
        if self._kernel is None:
            self._kernel = self._fresh()
        with self._limits(1), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # length scales at their bounds and unfinished fits are intended
            if len(coded) >= REFIT_GROWTH * self._fitted:
                self._fitted = len(coded)
                subset = self._subset(len(coded))
                fitted = self._models.GaussianProcessRegressor(self._kernel, optimizer=self._climb)
                self._kernel = fitted.fit(coded[subset], values[subset] - prior_mean).kernel_
            model = self._models.GaussianProcessRegressor(self._kernel, optimizer=None)
            self._model = model.fit(coded, values - prior_mean)

    @staticmethod
    def _subset(count: int) -> Indices:
        """Return the places of the points that length scales are fitted to, of so many."""
        return np.linspace(0, count - 1, min(count, FITTED_POINTS)).astype(np.intp)

    def _fresh(self) -> Any:
        """Return the kernel before any fit."""
        kernels, width = self._kernels, self._coded.shape[1]
        signal = kernels.ConstantKernel(1.0, AMPLITUDES) * kernels.Matern(
            np.full(width, np.sqrt(width) / 2), LENGTHS, nu=2.5
        )
        return signal + kernels.WhiteKernel(1e-3, NOISES)

    def quality(self) -> Quality | None:
        """Return how good it is on points that it was not fitted to; None while these are too few.

        Each part is predicted by a process whose length scales, too, are fitted to the other parts alone: with one for
        each coordinate they fit noise, so that points left out one by one would seem to be predicted.
        """
        if self._judged_at != self._fitted and len(self._values) >= 2 * MIN_HELD_OUT:
            self._judged_at = self._fitted
            subset = self._subset(len(self._values))
            coded, values = self._coded[subset], self._values[subset]
            part, predicted = np.arange(len(subset)) % HELD_OUT_PARTS, np.empty(len(subset))
            with self._limits(1), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # as in `learn`
                for held_out in range(HELD_OUT_PARTS):
                    seen = part != held_out
                    model = self._models.GaussianProcessRegressor(self._fresh(), optimizer=self._climb)
                    model.fit(coded[seen], values[seen] - self._prior_mean)
                    predicted[~seen] = model.predict(coded[~seen])
            self._quality = measure_quality(predicted, values)
        return self._quality

    def _climb(self, loss: Any, start: Floats, bounds: Floats) -> tuple[Floats, float]:
        """Return the logarithms of amplitude, length scales and noise after a few steps to their posterior mode."""
        usual = np.log(np.sqrt(len(start) - 2) / 2)

        def unlikely(theta: Floats) -> tuple[float, Floats]:
            value, slope = loss(theta)
            off = np.zeros(len(theta))
            off[1:-1] = (theta[1:-1] - usual) / LENGTH_PRIOR_STD**2
            return value + ((LENGTH_PRIOR_STD * off) ** 2).sum() / 2, slope + off

        fit = self._minimize(
            unlikely, start, method="L-BFGS-B", jac=True, bounds=bounds, options={"maxiter": MAX_FIT_STEPS}
        )
        return fit.x, fit.fun

    def posterior(self, coded: Floats) -> Posterior:
        """Return the posterior at the points *coded*."""
        with self._limits(1):
            return Posterior(self._model, coded, self._prior_mean)


class Posterior:
    """Mean and standard deviation at some points, which can be conditioned on the predictions at some of them.

        var(x) = k(x, x) - |v(x)|²      v(x) = L⁻¹ k(X, x)      L Lᵀ = k(X, X) + noise

    Conditioning on the mean at a point p changes no mean, and lowers var(x) by cov(x, p)² / (var(p) + noise).
    """

    def __init__(self, model: Any, coded: Floats, prior_mean: float) -> None:
        self._kernel, self._noise = model.kernel_.k1, model.kernel_.k2.noise_level
        self._coded = coded
        across = self._kernel(model.X_train_, coded)
        self.mean: Floats = prior_mean + across.T @ model.alpha_
        self._half = np.linalg.solve(model.L_, across)
        self._variance: Floats = self._kernel.diag(coded) - (self._half**2).sum(axis=0)

    @property
    def std(self) -> Floats:
        """The standard deviation at each point."""
        return np.sqrt(np.maximum(self._variance, 1e-12))

    def condition_on(self, index: int) -> None:
        """Condition on the mean at the point at *index*."""
        covariance = self._kernel(self._coded, self._coded[[index]])[:, 0] - self._half.T @ self._half[:, index]
        shared = covariance / np.sqrt(max(covariance[index], 0.0) + self._noise)
        self._half = np.vstack([self._half, shared])
        self._variance = self._variance - shared**2


def expected_improvement(mean: Floats, std: Floats, best: float, normal: Any) -> Floats:
    r"""Return the expected improvement of each point below *best*.

        EI = (b - m) Φ(z) + s φ(z)      z = (b - m) / s

    b  best    m  mean    s  std    Φ, φ  the normal distribution and its density; *normal* is Φ

    Jones, Schonlau & Welch, J. Global Optimization 13, 1998, equation 15.

    >>> from scipy.special import ndtr
    >>> expected_improvement(np.array([0.0, -1.0]), np.array([1.0, 1e-6]), 0.0, ndtr).round(4)
    array([0.3989, 1.    ])
    """
    z = (best - mean) / std
    density = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
    return np.asarray((best - mean) * normal(z) + std * density)


# ---- An ensemble of gradient-boosted trees: its mean is the prediction, its spread the uncertainty

RIDGE_PENALTY = 1e-3
"""Ridge penalty of a linear trend, for collinear features."""


class LinearTrend:
    """A ridge regression: it extrapolates, which trees cannot."""

    def __init__(self, features: Floats, values: Floats) -> None:
        self._middle, spread = features.mean(axis=0), features.std(axis=0)
        self._spread = np.where(spread > 0, spread, 1.0)
        scaled = (features - self._middle) / self._spread
        self._level = float(values.mean())
        normal_matrix = scaled.T @ scaled + RIDGE_PENALTY * len(values) * np.eye(features.shape[1])
        # LAPACK rounds differently on each kind of processor, so that studies of learning agents replay on one kind.
        self._slopes = np.linalg.solve(normal_matrix, scaled.T @ (values - self._level))

    def predict_trend(self, features: Floats) -> Floats:
        """Return the predicted values."""
        return np.asarray((features - self._middle) / self._spread @ self._slopes + self._level)


class Ensemble:
    """Boosted regressors, each on its own bootstrap sample, and a classifier of feasibility.

    The last *described* features are closed forms of the target: a linear trend in them is fitted first, and the trees
    learn its residual. So a few points suffice, and the prediction can be better than any known value.

    A member does not see the points that its sample leaves out, about a third: what it predicts for them is what the
    model knows of points that it did not learn from, and costs no further evaluation.
    """

    def __init__(self, who: str, members: int, rng: np.random.Generator, described: int = 0) -> None:
        self._trees = import_optional("sklearn.ensemble", "search", who)
        self._limits = import_optional("threadpoolctl", "search", who).threadpool_limits
        self._rng = rng
        self._count = members
        self._described = described
        self._members: list[tuple[Any, LinearTrend | None]] = []
        self._classifier: Any = None
        self.quality: Quality | None = None
        """How good it is on held-out points; None where that is not known."""

    def learn(self, features: Floats, values: Floats, feasible: Flags) -> None:
        """Fit the *values* of the feasible points, and feasibility."""
        with self._limits(1):  # on little data many threads mostly wait for each other
            self._classifier = None
            if 0 < feasible.sum() < len(feasible):
                classifier = self._trees.HistGradientBoostingClassifier(**self._shape())
                self._classifier = classifier.fit(features, feasible)
            self._members, self.quality = [], None
            runs, run_values = features[feasible], values[feasible]
            if len(runs) > 1:
                self._fit(runs, run_values)

    def _fit(self, runs: Floats, run_values: Floats) -> None:
        """Fit each member to a bootstrap sample, and judge them by what their samples leave out."""
        sums, times = np.zeros(len(runs)), np.zeros(len(runs))
        for _ in range(self._count):
            drawn = self._rng.integers(len(runs), size=len(runs))
            model = self._trees.HistGradientBoostingRegressor(**self._shape())
            trend = LinearTrend(self._described_features(runs[drawn]), run_values[drawn]) if self._described else None
            residuals = (
                run_values if trend is None else run_values - trend.predict_trend(self._described_features(runs))
            )
            member = (model.fit(runs[drawn], residuals[drawn]), trend)
            self._members.append(member)
            held_out = np.setdiff1d(np.arange(len(runs)), drawn)
            if len(held_out):
                sums[held_out] += self._predict_member(member, runs[held_out])
                times[held_out] += 1
        seen = times > 0
        self.quality = measure_quality(sums[seen] / times[seen], run_values[seen])

    def _described_features(self, features: Floats) -> Floats:
        return features[:, -self._described :]

    def _predict_member(self, member: tuple[Any, LinearTrend | None], features: Floats) -> Floats:
        """Return what one member predicts."""
        model, trend = member
        predicted = model.predict(features)
        return np.asarray(
            predicted if trend is None else predicted + trend.predict_trend(self._described_features(features))
        )

    def _shape(self) -> dict[str, Any]:
        """Return hyper-parameters for little data: small trees with few points in a leaf."""
        return {
            "max_iter": 60,
            "learning_rate": 0.15,
            "max_leaf_nodes": 8,
            "min_samples_leaf": 3,
            "max_features": 0.5,
            "early_stopping": False,
            "random_state": int(self._rng.integers(2**31)),
        }

    def predict(self, features: Floats) -> tuple[Floats, Floats]:
        """Return the mean and the standard deviation of the members' predictions; 0 and 1 before any is fitted."""
        if not self._members:
            return np.zeros(len(features)), np.ones(len(features))
        with self._limits(1):
            predictions = np.stack([self._predict_member(member, features) for member in self._members])
        return predictions.mean(axis=0), predictions.std(axis=0)

    def feasibility(self, features: Floats) -> Floats:
        """Return the probability that each point is feasible; 1 where all known points are alike."""
        if self._classifier is None:
            return np.ones(len(features))
        with self._limits(1):
            return np.asarray(self._classifier.predict_proba(features)[:, 1])
