"""Public clusters beside ours: how many accelerators a power holds, what networks cost, and where the model misses."""

from __future__ import annotations

import pytest

from cosmic.accuracy.public_clusters import link_costs, machine_design, owner_costs, public_clusters
from cosmic.cluster.cluster_cost import cluster_cost
from cosmic.design.design_batch import batch_of

ROWS = {row.name: row for row in public_clusters()}


def test_ten_public_clusters_have_a_source_and_a_grade() -> None:
    assert len(ROWS) >= 10
    assert all(row.source and row.grade in ("read", "secondary", "recalled") for row in ROWS.values())


@pytest.mark.parametrize("name", [row.name for row in ROWS.values() if row.published_switches is not None])
def test_switches_are_counted_as_published(name: str) -> None:
    assert ROWS[name].switches == ROWS[name].published_switches


def test_prices_of_clusters_are_near_what_is_published() -> None:
    ratios = {row.name: row.usd_ratio for row in ROWS.values() if row.usd_ratio is not None}
    assert len(ratios) >= 5
    assert all(0.85 < ratio < 1.15 for ratio in ratios.values()), ratios


def test_the_power_of_a_hundred_thousand_is_near_what_is_published() -> None:
    """100,000 · 1,275 W of nodes, and 10,948 switches and their optics, by a PUE of 1.25; 1.59 TWh a year."""
    row = ROWS["100k-h100"]
    assert row.power_ratio == pytest.approx(1, abs=0.05)
    assert row.published_power_w == pytest.approx(1.59e12 / 8760, rel=1e-3)


def test_rated_power_is_above_what_linpack_draws() -> None:
    """A miss by intent: a rated power is a bound, and machines are run below it."""
    assert 1.4 < (ROWS["selene-a100"].power_ratio or 0) < 1.6
    assert 1.5 < (ROWS["alps-gh200"].power_ratio or 0) < 1.8


def test_what_is_not_published_has_no_ratio() -> None:
    row = ROWS["llama3-24k-h100"]
    assert (row.published_power_w, row.power_ratio, row.usd_ratio) == (None, None, None)
    assert row.power_w is not None


def test_25_megawatts_hold_about_fifteen_thousand_h100() -> None:
    """1,275 W of a node each; switches and optics, three tiers: 107 W; a PUE of 1.25: 1,728 W, so 14,470."""
    point = machine_design("dgx-h100:14400")
    cost = cluster_cost(batch_of(point))
    each = float(cost.power_w) / 14_400
    assert float(cost.accelerators_w + cost.hosts_w) / 14_400 == 1_275
    assert 25e6 / each == pytest.approx(15_000, rel=0.05)


def test_optics_and_cables_of_a_gpu_are_near_what_is_published() -> None:
    """A link is two transceivers of 500 USD and a cable of 240: one, two and three of them."""
    rows = link_costs()
    assert [row.usd for row in rows] == [1_240, 2_480, 3_720]
    assert [row.published_usd for row in rows] == [1_320, 2_560, 3_800]


def test_owning_an_accelerator_for_an_hour_costs_about_what_is_published() -> None:
    """Within 30 %, as prices of the catalog are; an H100: 41,855 USD · 0.3 / 8,766 h + 1.678 kW · 0.08."""
    rows = {row.system: row for row in owner_costs()}
    assert len(rows) == 9
    assert all(0.8 < row.ratio < 1.3 for row in rows.values())
    assert rows["dgx-h100:1024"].usd == pytest.approx(41_855 * 0.3 / 8_766 + 1.6775 * 0.08, rel=1e-3)
