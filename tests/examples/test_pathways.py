"""What Pathways states of TPU v3, beside what we compute."""

from __future__ import annotations

from functools import cache

import pytest
from pathways import PathwaysRow, published_rows

from cosmic.design.systems import read_system
from cosmic.search.mapping.design_completion import load_design


@cache
def rows() -> dict[str, PathwaysRow]:
    return {row.name: row for row in published_rows()}


def test_a_core_is_an_npu() -> None:
    """128 cores are 64 chips, 8 × 8 of them."""
    entry = read_system("tpu-v3:128")
    assert [dim["npus"] for dim in entry["network"]["dims"]] == [2, 8, 8]
    point = load_design("t5-base@tpu-v3:128", {"pp": 1, "cp": 1})
    assert (point.compute.bf16_flop_per_s, point.workload.npus_per_host) == (61.5e12, 8)


def test_islands_are_joined_at_the_rate_of_their_hosts() -> None:
    """100 Gb/s for 8 cores: 12.5 / 8 GB/s."""
    between = read_system("tpu-v3:4x32")["network"]["dims"][-1]
    assert (between["npus"], between["bandwidth"]) == (4, "1.5625 GB/s")


@pytest.mark.long
@pytest.mark.parametrize("hosts", [16, 512])
def test_controllers_are_on_a_par_where_pathways_is(hosts: int) -> None:
    row = rows()[f"parity of controllers at {hosts} hosts"]
    assert row.holds
    assert row.fitted


@pytest.mark.parametrize("model", ["Base on 32", "Large on 32", "3B on 512", "11B on 512"])
def test_one_reading_explains_all_rates_of_t5(model: str) -> None:
    row = rows()[f"T5-{model} cores"]
    assert row.ratio == pytest.approx(1, abs=0.2)
    assert not row.fitted


@pytest.mark.parametrize("stages", [4, 8])
def test_pipelines_lose_as_much_by_more_stages_as_published(stages: int) -> None:
    """4 stages are 1.7 % faster than 16, 8 are 1.0 %; M / (M + S - 1) alone would say 3.9 % and 1.3 %."""
    row = rows()[f"3B in {stages} stages beside 16"]
    assert row.ratio == pytest.approx(1, abs=0.03)
    assert row.ours > 1


def test_islands_keep_nearly_all_of_the_rate_of_one() -> None:
    found = [row for name, row in rows().items() if "islands of" in name]
    assert len(found) == 3
    for row in found:
        assert 0.96 <= row.ours <= 1.0
        assert row.holds


def test_what_islands_exchange_is_what_was_measured_within_a_tenth() -> None:
    """Gradients of 4 bytes one way, weights of 2 back, half of each in both directions: 6 bytes a parameter.

    68.7e9 + 32,000 × 8,192 parameters and more: 418 GB, of 457 published.
    """
    row = rows()["64B between two islands in a step"]
    assert row.ours == pytest.approx(6 * (32 * (2 * 8192 * 65536 + 4 * 8192 * 32768) + 8192 * 32000), rel=0.02)
    assert row.ratio == pytest.approx(1, abs=0.1)


def test_a_row_that_misses_says_why() -> None:
    for row in rows().values():
        assert bool(row.missed) != row.holds
        assert row.assumed
        assert row.source
    assert {row.name for row in rows().values() if not row.holds} == {
        "3B in 16 stages on 128 cores",
    }
