"""Steps of many microbatches take what their simulation takes, to the nanosecond."""

from __future__ import annotations

from typing import Any

import pytest

from cosmic.search.mapping.design_completion import load_design
from cosmic.simulate.events import design_simulation
from cosmic.simulate.events.design_simulation import EXTRAPOLATED_COUNTS, simulate_design, simulate_step

SMALL = {"model.layers": 4, "tp": 1, "cp": 1, "micro_batch": 1, "recompute": "none", "schedule": "1f1b"}


@pytest.mark.parametrize(
    "settings",
    [
        {"tp": 2, "pp": 1, "weight_sharding": "zero3", "global_batch": 4 * 100},
        {"pp": 2, "global_batch": 4 * 53},
        {"pp": 4, "global_batch": 2 * 121},
        {"pp": 2, "virtual_stages": 2, "schedule": "interleaved", "global_batch": 4 * 128},
    ],
)
def test_a_long_step_is_as_if_it_was_simulated_whole(settings: dict[str, Any]) -> None:
    point = load_design("llama3-8b@dgx-h100:8", SMALL | settings)
    found, whole = simulate_step(point), simulate_design(point)
    assert found.cycles == whole.cycles
    assert found.events < whole.events / 2
    for ours, theirs in zip(found.per_npu, whole.per_npu, strict=True):
        assert {name: getattr(ours, name) for name in EXTRAPOLATED_COUNTS} == {
            name: getattr(theirs, name) for name in EXTRAPOLATED_COUNTS
        }


def test_a_short_step_is_simulated_whole() -> None:
    point = load_design("llama3-8b@dgx-h100:8", SMALL | {"pp": 2, "global_batch": 32})
    assert simulate_step(point).events == simulate_design(point).events


def test_where_rounds_differ_the_whole_step_is_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    point = load_design("llama3-8b@dgx-h100:8", SMALL | {"pp": 2, "global_batch": 4 * 64})
    monkeypatch.setattr(design_simulation, "_extrapolate_counts", lambda *_: None)
    assert simulate_step(point).events == simulate_design(point).events
