"""The range of a prediction: wider for what is unlike anything measured, and for what is left open."""

from __future__ import annotations

from dataclasses import replace
from math import exp, hypot

import pytest

from cosmic.design.prediction_accuracy import (
    PAIR_LEVELS,
    RELATIONS,
    WIDEST,
    Expectation,
    KnownRuns,
    LearnedErrors,
    PairError,
    Range,
    Traits,
    assess_certainty,
    classify_pair,
    expected_error,
    facets_of,
    features_of,
    learned_errors,
    novelty,
    pair_errors,
    traits_of,
)
from cosmic.search.mapping.design_completion import load_design

H100 = Traits("training", "several nodes", "dense", "16 bits", "h100-sxm-80gb", 64, estimated=False)
KNOWN = (
    KnownRuns("a", "training", "several nodes", "dense", "16 bits", "h100-sxm-80gb", 512, 9, 0.05),
    KnownRuns("b", "training", "one node", "dense", "16 bits", "h100-sxm-80gb", 8, 9, 0.05),
    KnownRuns("b", "training", "one node", "MoE", "8 bits", "a100-sxm-80gb", 8, 9, 0.05),
)
MESH = {"tp": 4, "pp": 1, "cp": 1, "recompute": "full"}


def test_levels_say_how_unlike_a_design_is_to_those_measured() -> None:
    assert novelty(H100, KNOWN) == (0, 0, 0)
    assert novelty(H100, KNOWN[1:])[0] == 1  # one source has it
    assert novelty(replace(H100, accelerator="h200-sxm-141gb"), KNOWN)[0] == 2  # its architecture was measured
    assert novelty(replace(H100, accelerator="a100-sxm-80gb"), KNOWN)[0] == 3  # in another format
    assert novelty(replace(H100, accelerator="tpu-v4"), KNOWN)[0] == 4
    assert novelty(replace(H100, model="MoE"), KNOWN)[1] == 2
    assert novelty(replace(H100, model="hybrid"), KNOWN)[1] == 3
    assert novelty(replace(H100, task="decode"), KNOWN)[1] == 3
    assert novelty(replace(H100, npus=2048), KNOWN)[2] == 2  # two doublings beyond 512


def test_ranges_widen_with_every_level() -> None:
    found, small = learned_errors(), replace(H100, npus=8)
    widths = [
        LearnedErrors(found.coefficients, found.mean, found.half, found.nine_tenths, KNOWN).widths(traits)[2]
        for traits in (
            small,
            replace(small, accelerator="h200-sxm-141gb"),
            replace(small, accelerator="tpu-v4"),
            replace(small, accelerator="tpu-v4", estimated=True),
            replace(small, accelerator="tpu-v4", estimated=True, model="hybrid", npus=4096),
        )
    ]
    assert widths == sorted(widths)
    known = LearnedErrors(found.coefficients, found.mean, found.half, found.nine_tenths, KNOWN[1:])
    assert known.widths(small)[2] > widths[0]
    assert widths[-1] <= WIDEST


def test_waiting_for_hosts_is_a_feature() -> None:
    assert features_of(H100, KNOWN, waiting=0.5)[6] == 0.5
    assert expected_error(load_design("llama3-8b@dgx-h100:8", MESH), 0.9).nine_tenths >= (
        expected_error(load_design("llama3-8b@dgx-h100:8", MESH)).nine_tenths
    )


def test_the_prediction_is_the_median_of_its_range() -> None:
    found = Expectation(0.1, 9, "x", 3, half=0.05, nine_tenths=0.2).around(10.0)
    assert found == Range(10 * exp(-0.2), 10 * exp(-0.05), 10.0, 10 * exp(0.05), 10 * exp(0.2))


def test_open_choices_widen_a_range_on_their_side() -> None:
    expected = Expectation(0.1, 9, "x", 3, half=0.05, nine_tenths=0.2)
    plain, open_above = expected.around(10.0), expected.around(10.0, 10.0, 13.0)
    assert open_above.p05 == plain.p05
    assert open_above.p95 > max(plain.p95, 13.0)
    assert expected.around(10.0, 8.0, None).p05 < min(plain.p05, 8.0)


def test_what_nobody_measured_has_a_range_and_no_error() -> None:
    odd = expected_error(load_design("dlrm-criteo@dgx-h100:8"))
    assert odd.error is None
    assert odd.nine_tenths > expected_error(load_design("llama3-8b@dgx-h100:8", MESH)).nine_tenths


def test_traits_are_those_of_the_design() -> None:
    found = traits_of(load_design("gpt-oss-20b@dgx-h100:16", {"precision": "fp8"}))
    assert found.kind == ("training", "several nodes", "MoE", "8 bits")
    assert found.accelerator == "h100-sxm-80gb"
    served = traits_of(load_design("llama3-8b@dgx-h200:1", {"task": "decode", "sequence": 512, "global_batch": 1}))
    assert served.task == "decode with fused kernels"


# ---- ratios of predictions


def test_designs_are_related_by_what_they_differ_in() -> None:
    base = load_design("llama3-8b@dgx-h100:8", MESH)
    one = facets_of(base)
    assert classify_pair(one, facets_of(base.changed({"workload.tp": 2, "workload.dp": 4}))) == "mapping"
    assert (
        classify_pair(one, facets_of(base.changed({"workload.global_batch": 2 * base.workload.global_batch}))) == "work"
    )
    assert classify_pair(one, facets_of(base.changed({"workload.precision": "fp8"}))) == "format"
    assert classify_pair(one, facets_of(load_design("llama3-8b@dgx-h200:8", MESH))) == "accelerator"
    assert classify_pair(one, facets_of(load_design("llama3-70b@dgx-h200:8", MESH))) == "several"


def test_the_catalog_has_every_relation() -> None:
    assert set(pair_errors()) == set(RELATIONS)
    for each in pair_errors().values():
        assert len(each.sizes) == len(PAIR_LEVELS)
        assert list(each.sizes) == sorted(each.sizes)


def test_the_larger_the_difference_the_surer() -> None:
    known = PairError("mapping", 10, 2, tuple(level / 10 for level in PAIR_LEVELS))
    assert known.sure(1.0) == 0.5
    assert known.sure(exp(0.05)) == pytest.approx(0.75)
    assert known.sure(exp(0.09)) == pytest.approx(0.95)
    assert 0.99 < known.sure(2.0) < 1
    assert known.size(0.5) == pytest.approx(exp(0.05) - 1)


def test_designs_that_differ_by_less_than_the_error_cannot_be_told_apart() -> None:
    a = load_design("llama3-8b@dgx-h100:8", MESH)
    b = a.changed({"workload.tp": 2, "workload.dp": 4})
    near, far = assess_certainty(a, b, 1.001), assess_certainty(a, b, 3.0)
    assert not near.told_apart
    assert near.sentence.startswith("they cannot be told apart (probability 5")
    assert far.told_apart
    assert far.sentence.startswith("that the faster one is faster has a probability of 9")
    assert assess_certainty(b, a, 1 / 3.0) == far


def test_a_step_that_waits_for_its_host_has_the_range_of_hosts() -> None:
    """Hosts that differ by 0.3: P95 is wider by 1.645 x 0.3, as independent errors add; half of it at half."""
    point = load_design("gpt3-125m@dgx-h100:8", plain=True)
    point = replace(point, compute=replace(point.compute, host_spread=0.3))
    same = replace(point, compute=replace(point.compute, host_spread=0.0))
    for waiting, share in ((0.0, 0.0), (0.1, 0.5), (0.2, 1.0), (0.6, 1.0)):
        wide, narrow = expected_error(point, waiting), expected_error(same, waiting)
        assert wide.nine_tenths == pytest.approx(hypot(narrow.nine_tenths, 1.645 * 0.3 * share))
        assert wide.half == pytest.approx(hypot(narrow.half, 0.674 * 0.3 * share))
