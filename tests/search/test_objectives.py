"""Objectives and limits: what is better, and what is too much."""

from __future__ import annotations

import numpy as np
import pytest

from cosmic.base.errors import SpecError, UnknownName
from cosmic.search.objectives import check_objectives, loss, losses, read_limit
from cosmic.simulate.metrics import BETTER


@pytest.mark.parametrize("name", BETTER)
def test_less_loss_is_better_whichever_way_a_metric_is(name: str) -> None:
    worse, better = (2.0, 1.0) if BETTER[name] == "less" else (1.0, 2.0)
    assert loss(name, np.array([better]))[0] < loss(name, np.array([worse]))[0]


def test_the_loss_of_a_loss_is_the_metric() -> None:
    values = np.array([0.5, 3.0])
    for name in BETTER:
        assert np.allclose(loss(name, loss(name, values)), values)


def test_losses_have_a_column_for_each_objective() -> None:
    found = losses(("step_s", "mfu"), {"step_s": np.array([2.0, 4.0]), "mfu": np.array([0.5, np.nan])})
    assert found[0].tolist() == [2.0, 2.0]
    assert np.isnan(found[1, 1])


@pytest.mark.parametrize(
    ("text", "metric", "most", "bound"),
    [
        ("memory_bytes <= 80 GB", "memory_bytes", True, 80e9),
        ("memory_bytes<=80 GiB", "memory_bytes", True, 80 * 2**30),
        ("cost_usd <= 5e6", "cost_usd", True, 5e6),
        ("ttft_s <= 0.5", "ttft_s", True, 0.5),
        ("ttft_s < 500 ms", "ttft_s", True, 0.5),
        ("mfu >= 0.4", "mfu", False, 0.4),
        ("tokens_per_s > 1_000_000", "tokens_per_s", False, 1e6),
        ("energy_j <= 3 MJ", "energy_j", True, 3e6),
        ("cost_usd_per_token <= 1e-6", "cost_usd_per_token", True, 1e-6),
    ],
)
def test_a_limit_is_read_with_its_unit(text: str, metric: str, most: bool, bound: float) -> None:
    found = read_limit(text)
    assert (found.metric, found.most) == (metric, most)
    assert found.bound == pytest.approx(bound)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("memory <= 80 GB", "constraint = 'memory': no such metric; did you mean 'memory_bytes'?"),
        ("memory_bytes <= 80 s", "constraint on memory_bytes = '80 s': is s; wanted byte"),
        ("memory_bytes = 80 GB", "write METRIC <= VALUE"),
        ("mfu >= 40 GB", "mfu is compared with a plain number"),
        ("step_s <= -1", "the bound must be a number above 0"),
        ("step_s <= nan", "the bound must be a number above 0"),
        ("step_s <=", "write METRIC <= VALUE"),
    ],
)
def test_a_limit_that_says_nothing_is_refused(text: str, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        read_limit(text)
    assert message in str(caught.value)


def test_excess_is_the_share_beyond_the_bound() -> None:
    assert read_limit("step_s <= 2").excess(np.array([1.0, 2.0, 3.0])).tolist() == [0.0, 0.0, 0.5]
    assert read_limit("mfu >= 0.5").excess(np.array([0.25, 0.5])).tolist() == [1.0, 0.0]


def test_a_metric_that_there_is_not_keeps_to_no_limit() -> None:
    assert read_limit("ttft_s <= 1").excess(np.array([np.nan])).tolist() == [np.inf]


def test_objectives_are_metrics_and_each_counts_once() -> None:
    assert check_objectives(["step_s", "mfu"]) == ("step_s", "mfu")
    with pytest.raises(UnknownName, match="did you mean 'step_s'"):
        check_objectives(["steps"])
    with pytest.raises(SpecError, match="is there twice"):
        check_objectives(["mfu", "mfu"])
    with pytest.raises(SpecError, match="at least one"):
        check_objectives([])
