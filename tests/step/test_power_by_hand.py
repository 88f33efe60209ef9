"""What a power cap leaves of a chip, worked out by hand."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from cosmic.base.errors import SpecError
from cosmic.cluster.cluster_cost import drawn_w
from cosmic.design.compute_layer import Compute
from cosmic.design.design_point import DesignPoint
from cosmic.evaluation import evaluate
from cosmic.search.mapping.design_completion import load_design
from cosmic.simulate.metrics import Infeasible, Metrics
from cosmic.simulate.recording.recorded_evaluation import run_recorded_point
from cosmic.simulate.step_evaluation import RECORDER
from cosmic.step.accelerator_rates import POWER_CONSTANTS, capped_share, power_share, share_under_power_cap
from cosmic.step.gemm import MatrixUnit, gemm_seconds, matrix_unit
from tests.relations.random_designs import random_design
from tests.simulate.recording.test_equality import directly, same


def capped(name: str, watts: float | None) -> DesignPoint:
    overrides = {} if watts is None else {"compute.power_cap": f"{watts} W"}
    return load_design(f"{name}@dgx-h100:8", {"dp": 8, "weight_sharding": "zero3", "recompute": "full", **overrides})


def test_the_exponent_is_between_those_of_voltage_that_follows_and_voltage_that_does_not() -> None:
    assert 1 / 3 <= POWER_CONSTANTS.exponent <= 1 / 2


def test_the_share_is_a_power_of_the_cap() -> None:
    """(1/2)^0.4 = 0.757858; at the thermal design power, all of it."""
    assert float(capped_share(350.0, 700.0)) == pytest.approx(0.757858, abs=1e-6)
    assert float(capped_share(700.0, 700.0)) == 1.0
    assert power_share({"power": 700.0}.get) == 1.0


def test_a_cap_above_the_design_power_gives_no_more_than_all() -> None:
    fields = {"power_cap": 2800.0, "power": 700.0}
    assert float(share_under_power_cap(0.8, fields.get)) == 1.0
    assert float(share_under_power_cap(0.5, fields.get)) == pytest.approx(0.5 * 4**POWER_CONSTANTS.exponent)


def test_long_gemms_are_held_back_and_short_ones_and_those_that_wait_for_memory_are_not() -> None:
    point = load_design("llama3-8b@dgx-h100:8", {"compute.power_cap": "350 W"}, plain=True)
    whole = load_design("llama3-8b@dgx-h100:8", plain=True)

    def unit(design: DesignPoint) -> MatrixUnit:
        found = matrix_unit(
            lambda key: design.fields[f"compute.{key}"], design.memory.bandwidth_bytes_per_s, load="alone"
        )
        assert isinstance(found, MatrixUnit)
        return found

    slow, fast = unit(point), unit(whole)
    big, small, thin = (1, 32768, 32768, 32768), (1, 256, 256, 256), (1, 16, 8192, 8192)
    assert float(gemm_seconds(*big, slow)) / float(gemm_seconds(*big, fast)) == pytest.approx(1 / 0.757858, rel=0.05)
    for shape in (small, thin):
        assert float(gemm_seconds(*shape, slow)) / float(gemm_seconds(*shape, fast)) == pytest.approx(1, rel=0.01)


def test_a_capped_cluster_is_slower_and_draws_less() -> None:
    plain, held = (evaluate(capped("llama3-8b", watts)) for watts in (None, 500.0))
    assert isinstance(plain, Metrics)
    assert isinstance(held, Metrics)
    assert 1.05 < held.step_s / plain.step_s < (700 / 500) ** POWER_CONSTANTS.exponent
    assert plain.energy_j is not None
    assert held.energy_j is not None
    assert held.energy_j < plain.energy_j
    assert drawn_w({"power_cap": 500.0, "power": 700.0}.get) == 500.0


def test_a_cap_needs_something_to_be_a_share_of() -> None:
    unknown = capped("llama3-8b", 300.0).changed({"compute.power": None})
    outcome = evaluate(unknown)
    assert isinstance(outcome, Infeasible)
    assert "no power is known for h100-sxm-80gb" in outcome.reasons[0]
    with pytest.raises(SpecError, match="power_cap = 0: must be positive"):
        Compute(bf16_flop_per_s=1e12, power_w=300, power_cap_w=0)


def test_capped_designs_are_the_same_bits_in_every_way() -> None:
    rng = Random(5)
    for _ in range(4):
        point = random_design(rng, family="dense").changed({"compute.power": 500.0, "compute.power_cap": 300.0})
        found = run_recorded_point(RECORDER, point)
        assert found is not None
        assert same(found, directly(point)) == []


def test_some_designs_of_a_batch_have_a_cap_and_some_no_known_power() -> None:
    caps = np.array([None, 350.0, None, 350.0], dtype=object)
    powers = np.array([700.0, 700.0, None, None], dtype=object)
    found = power_share({"power_cap": caps, "power": powers}.get)
    assert np.asarray(found).tolist() == pytest.approx([1.0, 0.757858, 1.0, 1.0], abs=1e-6)
