"""Gaussian processes interpolate, and are uncertain far from known points."""

from __future__ import annotations

import numpy as np
import pytest

from cosmic.search.learning.surrogate_models import GaussianProcess, expected_improvement

RNG = np.random.default_rng(0)
SEEN = RNG.random((30, 2))


def learnt() -> GaussianProcess:
    """Return a process that knows a slope."""
    process = GaussianProcess("test")
    process.learn(SEEN, SEEN @ [1.0, 2.0], prior_mean=1.5)
    return process


def test_it_interpolates() -> None:
    posterior = learnt().posterior(np.concatenate([SEEN, [[0.5, 0.5]]]))
    assert posterior.mean == pytest.approx([*(SEEN @ [1.0, 2.0]), 1.5], abs=0.05)


def test_it_is_uncertain_far_from_known_points() -> None:
    near, far = learnt().posterior(np.array([[0.5, 0.5], [30.0, 30.0]])).std
    assert far > 5 * near


def test_conditioning_on_a_point_is_learning_its_mean() -> None:
    process, asked = learnt(), np.array([[1.4, 1.2], [1.3, 1.3], [0.2, 1.8]])
    posterior = process.posterior(asked)
    before = posterior.std
    posterior.condition_on(0)
    posterior.condition_on(2)
    taught = GaussianProcess("test")
    taught._kernel, taught._fitted = process._kernel, 1000  # the same hyper-parameters
    shown = np.concatenate([SEEN, asked[[0, 2]]])
    taught.learn(shown, np.concatenate([SEEN @ [1.0, 2.0], posterior.mean[[0, 2]]]), prior_mean=1.5)
    assert (posterior.std < before).all()
    assert taught.posterior(asked).std == pytest.approx(posterior.std, rel=1e-3)
    assert taught.posterior(asked).mean == pytest.approx(posterior.mean, abs=1e-3)


def test_expected_improvement_is_what_drawing_gives() -> None:
    special = pytest.importorskip("scipy.special")
    drawn = np.random.default_rng(1).normal(0.3, 0.5, size=200_000)
    found = expected_improvement(np.array([0.3]), np.array([0.5]), 0.1, special.ndtr)[0]
    assert found == pytest.approx(np.maximum(0.1 - drawn, 0).mean(), rel=0.01)
