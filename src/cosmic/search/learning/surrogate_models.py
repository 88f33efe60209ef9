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
from cosmic.search.learning.prediction_quality import LEAST_TRIALS, Quality, measure_quality
from cosmic.search.optional_libraries import import_optional
from cosmic.search.space.diagram import Indices

# --------------------------------------------------------------------------------------
# Gaussian processes, kept cheap: hyper-parameters are fitted now and then, on a subset of the points
# --------------------------------------------------------------------------------------

GROWTH = 1.2
"""Hyper-parameters are fitted again when there are this many times as many points."""
FITTED_POINTS = 120
"""How many points they are fitted on: the time is quadratic in it, and linear in the number of coordinates."""
STEPS = 15
"""Iterations of one fit; the next fit starts where it ended."""
SPREAD = 1.0
"""Standard deviation of the log-normal prior on length scales, whose median is half the square root of the number of
coordinates: few points do not determine them (Hvarfner, Hellsten & Nardi, ICML 2024)."""
PARTS = 3
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
    def known(self) -> bool:
        """Whether it has been fitted."""
        return self._model is not None

    def learn(self, coded: Floats, values: Floats, prior_mean: float = 0.0) -> None:
        """Fit the *values* at the points *coded*; far from all of them the mean is *prior_mean*."""
        self._coded, self._values, self._prior_mean = coded, values, prior_mean
        if self._kernel is None:
            self._kernel = self._fresh()
        with self._limits(1), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # length scales at their bounds and unfinished fits are intended
            if len(coded) >= GROWTH * self._fitted:
                self._fitted = len(coded)
                some = self._some(len(coded))
                fitted = self._models.GaussianProcessRegressor(self._kernel, optimizer=self._climb)
                self._kernel = fitted.fit(coded[some], values[some] - prior_mean).kernel_
            model = self._models.GaussianProcessRegressor(self._kernel, optimizer=None)
            self._model = model.fit(coded, values - prior_mean)

    @staticmethod
    def _some(count: int) -> Indices:
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
        if self._judged_at != self._fitted and len(self._values) >= 2 * LEAST_TRIALS:
            self._judged_at = self._fitted
            some = self._some(len(self._values))
            coded, values = self._coded[some], self._values[some]
            part, predicted = np.arange(len(some)) % PARTS, np.empty(len(some))
            with self._limits(1), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # as in `learn`
                for left in range(PARTS):
                    seen = part != left
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
            off[1:-1] = (theta[1:-1] - usual) / SPREAD**2
            return value + ((SPREAD * off) ** 2).sum() / 2, slope + off

        found = self._minimize(unlikely, start, method="L-BFGS-B", jac=True, bounds=bounds, options={"maxiter": STEPS})
        return found.x, found.fun

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

    def condition_on(self, place: int) -> None:
        """Condition on the mean at the point at *place*."""
        covariance = self._kernel(self._coded, self._coded[[place]])[:, 0] - self._half.T @ self._half[:, place]
        shared = covariance / np.sqrt(max(covariance[place], 0.0) + self._noise)
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


# --------------------------------------------------------------------------------------
# An ensemble of gradient-boosted trees: its mean is the prediction, its spread the uncertainty
# --------------------------------------------------------------------------------------

RIDGE = 1e-3
"""Ridge penalty of a linear trend, for collinear features."""


class LinearTrend:
    """A ridge regression: it extrapolates, which trees cannot."""

    def __init__(self, features: Floats, values: Floats) -> None:
        self._middle, spread = features.mean(axis=0), features.std(axis=0)
        self._spread = np.where(spread > 0, spread, 1.0)
        scaled = (features - self._middle) / self._spread
        self._level = float(values.mean())
        held = scaled.T @ scaled + RIDGE * len(values) * np.eye(features.shape[1])
        # LAPACK rounds differently on each kind of processor, so that studies of learning agents replay on one kind.
        self._slopes = np.linalg.solve(held, scaled.T @ (values - self._level))

    def at(self, features: Floats) -> Floats:
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
            known, wanted = features[feasible], values[feasible]
            if len(known) > 1:
                self._fit(known, wanted)

    def _fit(self, known: Floats, wanted: Floats) -> None:
        """Fit each member to a bootstrap sample, and judge them by what their samples leave out."""
        sums, times = np.zeros(len(known)), np.zeros(len(known))
        for _ in range(self._count):
            drawn = self._rng.integers(len(known), size=len(known))
            model = self._trees.HistGradientBoostingRegressor(**self._shape())
            trend = LinearTrend(self._last(known[drawn]), wanted[drawn]) if self._described else None
            rest = wanted if trend is None else wanted - trend.at(self._last(known))
            member = (model.fit(known[drawn], rest[drawn]), trend)
            self._members.append(member)
            left = np.setdiff1d(np.arange(len(known)), drawn)
            if len(left):
                sums[left] += self._by(member, known[left])
                times[left] += 1
        seen = times > 0
        self.quality = measure_quality(sums[seen] / times[seen], wanted[seen])

    def _last(self, features: Floats) -> Floats:
        return features[:, -self._described :]

    def _by(self, member: tuple[Any, LinearTrend | None], features: Floats) -> Floats:
        """Return what one member predicts."""
        model, trend = member
        found = model.predict(features)
        return np.asarray(found if trend is None else found + trend.at(self._last(features)))

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
            found = np.stack([self._by(member, features) for member in self._members])
        return found.mean(axis=0), found.std(axis=0)

    def feasibility(self, features: Floats) -> Floats:
        """Return the probability that each point is feasible; 1 where all known points are alike."""
        if self._classifier is None:
            return np.ones(len(features))
        with self._limits(1):
            return np.asarray(self._classifier.predict_proba(features)[:, 1])
