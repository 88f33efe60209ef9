"""Fields that calibration sets: relative to what is usual, and of no effect at 1."""

from __future__ import annotations

import pytest

import cosmic
from cosmic.base.errors import SpecError
from cosmic.design.design_batch import batch_of
from cosmic.step.communication import OVERLAP
from cosmic.step.step_profile import profile_step

MIXTURE = cosmic.load_design("mixtral-8x7b@dgx-h100:16", {"tp": 2, "pp": 1, "cp": 1, "ep": 8, "ep_overlap": True})


def test_hiding_is_a_factor_of_the_usual_and_at_most_all() -> None:
    point = MIXTURE.changed({"workload.tp_overlap": True})
    for role, usual in (("tp", OVERLAP.tp), ("ep", OVERLAP.ep)):
        found = [
            float(profile_step(batch_of(point.changed({f"compute.{role}_hiding": factor}))).network.efficiency(role))  # type: ignore[arg-type]
            for factor in (1.0, 0.5, 9.0)
        ]
        assert found == [usual, 0.5 * usual, 1.0]


def test_the_pace_of_experts_divides_their_passes_and_nothing_else() -> None:
    usual, fast = (
        profile_step(batch_of(MIXTURE.changed({"compute.expert_pace": pace}))).operators for pace in (1.0, 2.0)
    )
    for one, two in zip(usual, fast, strict=True):
        passes = one.use.kind in ("router", "dispatch", "combine") and not hasattr(one.use.kernel.shape, "m")
        assert float(one.seconds) == pytest.approx((2 if passes else 1) * float(two.seconds))
    assert any(each.use.kind == "dispatch" for each in usual)


@pytest.mark.parametrize("key", ["tp_hiding", "ep_hiding", "expert_pace", "time_factor", "calibration_sd"])
def test_a_negative_value_is_refused(key: str) -> None:
    with pytest.raises(SpecError, match=r"must be positive|must not be negative"):
        cosmic.load_design("llama3-8b@dgx-h100:8", {"tp": 1, "pp": 1, "cp": 1, f"compute.{key}": -1})
