"""Ranges by conformal prediction: quantiles by hand, coverage of made-up sources, sources that are left out."""

from __future__ import annotations

import numpy as np
import pytest
from conformal import (
    PRIORS,
    Residual,
    SourceResiduals,
    correlation_within,
    fit_coefficients,
    known_runs,
    learn_scale,
    measure_coverage,
    quantile,
)

from cosmic.accuracy.measured_rows import source_of
from cosmic.design.prediction_accuracy import FEATURES, Traits

DENSE = Traits("training", "several nodes", "dense", "16 bits", "h100-sxm-80gb", 64, estimated=False)


def made(sources: int, runs: int, bias: float, scatter: float, seed: int = 1) -> list[Residual]:
    """Return residuals of sources that each have a bias of their own."""
    draw = np.random.default_rng(seed)
    biases = draw.normal(0, bias, sources)
    return [
        Residual(f"source{chr(97 + place // 26)}{chr(97 + place % 26)}", float(own + draw.normal(0, scatter)), DENSE)
        for place, own in enumerate(biases)
        for _ in range(runs)
    ]


def test_a_quantile_counts_the_next_run_among_the_known() -> None:
    """Nine runs: the next is as likely to be in any of ten places, so that nine tenths are the largest of them."""
    scores = np.arange(1.0, 10.0)
    assert quantile(scores, np.ones(9), 0.9) == 9
    assert quantile(scores, np.ones(9), 0.5) == 5
    assert quantile(scores, np.ones(9), 0.51) == 6
    assert quantile(scores, np.ones(9), 0.99) == 9  # nobody knows more


def test_weights_move_a_quantile() -> None:
    assert quantile(np.array([1.0, 2.0, 3.0]), np.array([5.0, 1.0, 1.0]), 0.5) == 1
    assert quantile(np.array([1.0, 2.0, 3.0]), np.array([1.0, 1.0, 5.0]), 0.5) == 3


def test_correlation_is_the_part_of_the_variance_between_sources() -> None:
    source = np.array(["a"] * 50 + ["b"] * 50)
    noise = np.random.default_rng(3).normal(0, 1, 100)
    assert correlation_within(noise, source) < 0.1
    assert correlation_within(noise + np.where(source == "a", 10, -10), source) > 0.9


@pytest.mark.long
def test_ranges_hold_for_sources_left_out_that_err_each_in_their_own_way() -> None:
    found = measure_coverage(SourceResiduals(made(30, 12, bias=0.08, scatter=0.04)))
    assert len(found) == 30
    assert 0.86 < np.mean([each.nine_tenths for each in found]) < 0.96
    assert 0.35 < np.mean([each.half for each in found]) < 0.65
    few = measure_coverage(SourceResiduals(made(6, 12, bias=0.08, scatter=0.04)))
    assert np.mean([each.width for each in few]) > 0.9 * np.mean([each.width for each in found])


def test_one_source_with_many_runs_does_not_set_the_range() -> None:
    usual = made(12, 10, bias=0.05, scatter=0.03)
    many = [Residual("large", 0.005, DENSE) for _ in range(2000)]
    alone, both = learn_scale(SourceResiduals(usual)), learn_scale(SourceResiduals(usual + many))
    assert both.widths(DENSE)[2] > 0.7 * alone.widths(DENSE)[2]


def test_the_scale_is_larger_where_errors_are() -> None:
    mixture = Traits("training", "several nodes", "MoE", "16 bits", "h100-sxm-80gb", 64, estimated=False)
    residuals = made(8, 10, 0.03, 0.02)
    residuals += [Residual(each.source, 5 * each.error, mixture) for each in residuals]
    found = learn_scale(SourceResiduals(residuals))
    assert found.coefficients["mixture"] > PRIORS["mixture"][0]
    assert found.widths(mixture)[2] > 2 * found.widths(DENSE)[2]


def test_what_is_unlike_the_known_never_has_a_narrower_range() -> None:
    """Even where the only unlike runs were predicted well."""
    old = Traits("training", "several nodes", "dense", "16 bits", "a100-sxm-80gb", 64, estimated=True)
    residuals = made(8, 10, 0.05, 0.03) + [Residual("other", 1e-4, old) for _ in range(50)]
    gathered = SourceResiduals(residuals)
    found = dict(
        zip(FEATURES, fit_coefficients(gathered.features(), gathered.error, gathered.weights(0.2)), strict=True)
    )
    assert all(found[name] >= 0 for name in ("estimated", "unlike_accelerator", "unlike_model", "beyond"))


def test_features_are_counted_without_the_source_itself() -> None:
    gathered = SourceResiduals([Residual("a", 0.1, DENSE), Residual("b", 0.1, DENSE), Residual("c", 0.1, DENSE)])
    place = FEATURES.index("unlike_accelerator")
    assert gathered.features()[:, place].tolist() == [0, 0, 0]  # two others have it
    assert gathered.features(["c"])[:2, place].tolist() == [1, 1]
    assert gathered.features(["b", "c"])[0, place] == 4  # nothing is known then


def test_runs_are_listed_by_source_and_traits() -> None:
    (found,) = known_runs([Residual("a", 0.1, DENSE), Residual("a", -0.1, DENSE)])
    assert (found.source, found.runs, found.npus, found.model) == ("a", 2, 64, "dense")
    assert found.error == pytest.approx((np.expm1(0.1) - np.expm1(-0.1)) / 2)


def test_parts_of_a_collection_are_one_source() -> None:
    assert {source_of(name) for name in ("mlperf-llama31_8b", "mlperf-llama31_405b", "mlperf")} == {"mlperf"}
    assert source_of("") == ""
