"""Gaussian processes: they know what they were shown, and doubt the rest."""

from __future__ import annotations

import numpy as np
import pytest

from cosmic.exploration.learning.gaussian import Process, improvement

RNG = np.random.default_rng(0)
SEEN = RNG.random((30, 2))


def learnt() -> Process:
    """Return a process that knows a slope."""
    process = Process("test")
    process.learn(SEEN, SEEN @ [1.0, 2.0], middle=1.5)
    return process


def test_it_knows_what_it_was_shown_and_what_lies_between() -> None:
    beliefs = learnt().at(np.concatenate([SEEN, [[0.5, 0.5]]]))
    assert beliefs.mean == pytest.approx([*(SEEN @ [1.0, 2.0]), 1.5], abs=0.05)


def test_it_doubts_what_is_far_from_all_it_was_shown() -> None:
    near, far = learnt().at(np.array([[0.5, 0.5], [30.0, 30.0]])).doubt
    assert far > 5 * near


def test_believing_a_point_is_learning_its_mean() -> None:
    process, asked = learnt(), np.array([[1.4, 1.2], [1.3, 1.3], [0.2, 1.8]])
    beliefs = process.at(asked)
    before = beliefs.doubt
    beliefs.believe(0)
    beliefs.believe(2)
    taught = Process("test")
    taught._kernel, taught._fitted = process._kernel, 1000  # the same hyper-parameters
    shown = np.concatenate([SEEN, asked[[0, 2]]])
    taught.learn(shown, np.concatenate([SEEN @ [1.0, 2.0], beliefs.mean[[0, 2]]]), middle=1.5)
    assert (beliefs.doubt < before).all()
    assert taught.at(asked).doubt == pytest.approx(beliefs.doubt, rel=1e-3)
    assert taught.at(asked).mean == pytest.approx(beliefs.mean, abs=1e-3)


def test_expected_improvement_is_what_drawing_gives() -> None:
    special = pytest.importorskip("scipy.special")
    drawn = np.random.default_rng(1).normal(0.3, 0.5, size=200_000)
    found = improvement(np.array([0.3]), np.array([0.5]), 0.1, special.ndtr)[0]
    assert found == pytest.approx(np.maximum(0.1 - drawn, 0).mean(), rel=0.01)
