"""The MAP estimate, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from cosmic.accuracy.calibrate.map_estimate import (
    Array,
    Prior,
    covariance,
    estimate_parameters,
    leave_one_out_estimates,
    prior_scale,
    shrunk_mean,
    solve_linear,
    tame_outliers,
)


def wide(*spread: float) -> Prior:
    return Prior(np.array(spread), np.full(len(spread), -9.0), np.full(len(spread), 9.0))


def linear(slopes: Array, at_zero: Array) -> object:
    return lambda theta: (at_zero + slopes @ theta, slopes)


def test_one_parameter_and_one_row_have_a_closed_form() -> None:
    # θ = σ² J r / (J² σ² + s²) with σ = 0.06, J = -0.8, s = 0.02, r = 0.1: 0.0036 · -0.08 / (0.002304 + 0.0004)
    found = estimate_parameters(
        linear(np.array([[-0.8]]), np.array([1.0])),  # type: ignore[arg-type]
        np.array([1.1]),
        np.array([0.02]),
        wide(0.06),
    )
    assert found.theta[0] == pytest.approx(-0.000288 / 0.002704)
    assert found.predicted[0] == pytest.approx(1.0 + 0.8 * 0.000288 / 0.002704)
    # 1 / (J² / s² + 1 / σ²)
    assert found.spread[0] ** 2 == pytest.approx(1 / (0.64 / 0.0004 + 1 / 0.0036))


def test_two_parameters_share_a_row_by_their_variances() -> None:
    # Σ Jᵀ r / (J Σ Jᵀ + s²): 0.09 + 0.01 + 0.02 = 0.12; of 0.12, the first takes 0.09 and the second 0.01
    found = solve_linear(np.zeros(1), np.ones((1, 2)), np.array([0.12]), np.array([np.sqrt(0.02)]), wide(0.3, 0.1))
    assert found == pytest.approx([0.09, 0.01])


def test_a_parameter_on_its_bound_leaves_the_rest_to_others() -> None:
    prior = Prior(np.array([0.3, 0.1]), np.array([-1.0, -1.0]), np.array([0.05, 1.0]))
    found = solve_linear(np.zeros(1), np.ones((1, 2)), np.array([0.12]), np.array([np.sqrt(0.02)]), prior)
    assert found[0] == 0.05
    assert found[1] == pytest.approx(0.07 * 0.01 / 0.03)


def test_a_curved_model_is_followed_to_the_minimum() -> None:
    def model(theta: Array) -> tuple[Array, Array]:
        return np.array([np.exp(theta[0])]), np.array([[np.exp(theta[0])]])

    found = estimate_parameters(model, np.array([2.0]), np.array([1e-3]), wide(1.0))
    assert found.theta[0] == pytest.approx(np.log(2), abs=1e-4)


def test_what_is_left_out_is_predicted_by_the_others() -> None:
    slopes, measured, noise, prior = np.ones((3, 1)), np.array([0.1, 0.1, 0.4]), np.full(3, 0.1), wide(10.0)
    found = estimate_parameters(linear(slopes, np.zeros(3)), measured, noise, prior)  # type: ignore[arg-type]
    assert leave_one_out_estimates(found, measured, noise, prior)[:, 0] == pytest.approx([0.25, 0.25, 0.1], abs=1e-4)


def test_nothing_to_learn_is_no_error() -> None:
    found = estimate_parameters(linear(np.zeros((1, 0)), np.zeros(1)), np.ones(1), np.ones(1), wide())  # type: ignore[arg-type]
    assert found.theta.shape == (0,)
    assert covariance(found.slopes, np.ones(1), wide()).shape == (0, 0)


def test_a_common_shift_is_shrunk() -> None:
    # weights 1 / 0.01² twice and 1 / 0.1²: (1e4 · 0.02 + 1e4 · 0.04) / (2e4 + 100)
    assert shrunk_mean(np.array([0.02, 0.04]), np.array([0.01, 0.01]), 0.1) == pytest.approx(600 / 20100)


def test_an_outlier_counts_for_less_and_others_as_they_are() -> None:
    noise = tame_outliers(np.array([0.5, 0.55, 1.5]), np.zeros(3), np.full(3, 0.1))
    assert noise[:2].tolist() == [0.1, 0.1]
    assert noise[2] == pytest.approx(0.1 * np.sqrt((4 + 9.5**2) / 5))  # 0.95 beyond the median


def test_measurements_far_off_widen_the_priors_and_others_do_not() -> None:
    slopes, usual = np.ones((4, 1)), np.array([0.05])
    assert prior_scale(np.full(4, 0.04), slopes, np.full(4, 0.02), usual) == 1
    assert prior_scale(np.full(4, 0.3), slopes, np.full(4, 0.02), usual) > 2
