"""Rates of interruptions: arithmetic, sources, and what is not known."""

from __future__ import annotations

import pytest

from cosmic.base.errors import SpecError
from cosmic.design import catalog_entries
from cosmic.design.run_layer import _load_reliability, failure_causes, npu_mtbf_s, observations, observed_mtbf_s


def test_rates_are_accelerator_hours_over_interruptions() -> None:
    hours = {name: observed_mtbf_s(name) / 3600 for name in observations()}
    assert hours["llama3-405b"] == pytest.approx(16_384 * 54 * 24 / 419)  # 50.7k
    assert hours["llama3-405b-all"] == pytest.approx(45_566, abs=1)
    assert hours["rsc-1"] == pytest.approx(8 * 24_000 / 6.5)  # 29.5k
    assert hours["rsc-2"] == pytest.approx(82_051, abs=1)
    assert hours["opt-175b"] == pytest.approx(7440)


def test_the_rate_of_an_accelerator_names_its_source() -> None:
    seconds, source = npu_mtbf_s("h100-sxm-80gb")
    assert seconds == observed_mtbf_s("llama3-405b")
    assert "2407.21783" in source
    assert not source.startswith("estimate")
    assert "recalled" in npu_mtbf_s("a100-sxm-80gb")[1]
    assert npu_mtbf_s("gb200")[1].startswith("estimate")


def test_a_rate_that_nobody_published_is_unknown() -> None:
    for name in ("tpu-v5p", "mi355x", "trainium2", "no-such-thing"):
        assert npu_mtbf_s(name) == (None, "no rate is published")


def test_every_accelerator_with_a_rate_is_in_the_catalog() -> None:
    assert set(_load_reliability()["accelerators"]) <= set(catalog_entries.entry_names("accelerators"))


def test_causes_are_shares_of_all_interruptions() -> None:
    causes = failure_causes("llama3-405b")
    assert sum(_load_reliability()["observations"]["llama3-405b"]["causes"].values()) == 419
    assert sum(causes.values()) == pytest.approx(1)
    assert causes["faulty GPU"] == pytest.approx(148 / 419)
    with pytest.raises(SpecError, match="observation"):
        failure_causes("llama4")
