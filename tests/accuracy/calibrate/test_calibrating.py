"""Calibration: what is learned, what is not, and that every command takes the result."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import cosmic
from cosmic.accuracy.calibrate.calibration import Calibration, calibrate, calibrate_target, system_text
from cosmic.accuracy.calibrate.calibration_target import target_of
from cosmic.accuracy.calibrate.predicted_measurements import PredictedMeasurements, observed_step
from cosmic.design.design_point import DesignPoint
from cosmic.design.plain_data import parse_yaml
from cosmic.evaluation import evaluate
from cosmic.simulate.metrics import Metrics

MESHES = ({"tp": 1}, {"tp": 2}, {"tp": 4}, {"tp": 8})


def design(changes: Mapping[str, object] | None = None, mesh: Mapping[str, object] | None = None) -> DesignPoint:
    settings = {"pp": 1, "cp": 1, "global_batch": 64, "recompute": "full", **(mesh or {"tp": 2})}
    point = cosmic.load_design("llama3-8b@dgx-h100:16", settings)
    return point.changed(changes) if changes else point


def seconds(point: DesignPoint) -> float:
    found = evaluate(point)
    assert isinstance(found, Metrics)
    return found.step_s


def steps(
    truth: Mapping[str, object], meshes: Sequence[Mapping[str, object]] = MESHES, factor: float = 1.0
) -> list[PredictedMeasurements]:
    return [
        observed_step(f"tp {mesh['tp']}", design(mesh=mesh), factor * seconds(design(truth, mesh))) for mesh in meshes
    ]


TARGET = target_of("dgx-h100", "", ())


def test_a_slower_matrix_unit_is_found_from_steps() -> None:
    truth = {"compute.gemm_efficiency": 0.884 * 0.9}
    found = calibrate_target(TARGET, steps(truth))
    factors = {each.name: each.factor for each in found.learned}
    both = factors["matrix_rate"] * factors.get("steady_rate", 1.0)
    assert both == pytest.approx(0.9, abs=0.03)
    assert found.factor == 1
    (errors,) = found.errors
    assert errors.before > 0.06
    assert errors.after < 0.01
    assert errors.left_out is not None
    assert errors.left_out < 0.02
    assert found.residual_sd is not None
    assert found.residual_sd < 0.03
    assert {"hiding of expert parallelism", "rate of expert passes"} <= {each.title for each in found.unmoved}


def test_one_step_brings_the_others_nearer() -> None:
    truth = {"compute.gemm_efficiency": 0.884 * 0.85}
    one, *others = steps(truth)
    found = calibrate_target(TARGET, [one])
    assert "not tried" in found.factor_why
    assert found.steps == 1
    for each in others:
        before = float(each.seconds([{}])[0, 0]) / each.measured_s[0] - 1
        after = float(each.seconds([found.changes(each.hardware)])[0, 0]) / each.measured_s[0] - 1
        assert abs(after) < abs(before) / 2


def test_a_measurement_in_another_unit_is_named_and_widens_what_to_expect() -> None:
    (one,) = steps({}, MESHES[:1])
    found = calibrate_target(TARGET, [replace(one, measured_s=one.measured_s * 1000)])
    assert [row.name for row in found.far_off] == ["tp 1"]
    assert found.residual_sd is not None
    assert found.residual_sd > 1
    assert calibrate_target(TARGET, [one]).far_off == ()


def test_a_measurement_that_agrees_changes_nothing() -> None:
    found = calibrate_target(TARGET, steps({}))
    assert found.learned == ()
    assert found.changes(TARGET.machine) == {}
    assert all(row.after_s == row.before_s for row in found.rows)


def _stubborn(ratio: Sequence[float]) -> list[PredictedMeasurements]:
    """Return steps that depend on no parameter."""
    point = design()
    return [
        replace(
            observed_step(f"step {place}", point, each),
            seconds=lambda changes: np.ones((len(changes), 1)),
        )
        for place, each in enumerate(ratio)
    ]


def test_the_factor_is_used_only_where_leaving_out_speaks_for_it() -> None:
    alike = calibrate_target(TARGET, _stubborn([1.2, 1.2, 1.2]))
    # 0.02² noise and 0.1² prior: ln 1.2 × 3 · 2500 / (3 · 2500 + 100)
    assert alike.factor == pytest.approx(math.exp(math.log(1.2) * 75 / 76))
    assert alike.changes(TARGET.machine) == {"compute.time_factor": alike.factor}
    unlike = calibrate_target(TARGET, _stubborn([0.8, 1.25, 0.79, 1.27]))
    assert unlike.factor == 1
    assert unlike.factor_why.startswith("not used")
    assert calibrate_target(TARGET, _stubborn([1.2, 1.2])).factor == 1


def test_every_command_takes_the_file_that_is_written(tmp_path: Path) -> None:
    found = calibrate_target(TARGET, steps({"compute.gemm_efficiency": 0.7, "compute.tp_hiding": 0.8}), ("runs.csv",))
    (tmp_path / "mine.yaml").write_text(system_text(found))
    tree = parse_yaml(system_text(found), "mine.yaml")
    assert tree["calibration"]["files"] == ["runs.csv"]
    assert tree["compute"]["calibration_rows"] == 4
    assert tree["calibration"]["residual_log_sd"] == tree["compute"]["calibration_sd"]
    settings = {"pp": 1, "cp": 1, "global_batch": 64, "recompute": "full", "tp": 4}
    point = cosmic.load_design(f"llama3-8b@{tmp_path}/mine.yaml:16", settings)
    assert point.compute.calibration_sd == tree["compute"]["calibration_sd"]
    row = next(each for each in found.rows if each.name == "tp 4")
    assert seconds(point) == pytest.approx(row.after_s, rel=2e-3)  # numbers of the file have four digits
    again = calibrate_file(tmp_path, f"llama3-8b@{tmp_path}/mine.yaml:16", row.measured_s)
    assert again.target.name == f"{tmp_path}/mine.yaml"
    assert again.errors[0].before < 0.02


def calibrate_file(folder: Path, source: str, took: float) -> Calibration:
    text = f"design,tp,pp,cp,gbs,recompute,step_ms\n{source},4,1,1,64,full,{1e3 * took}\n"
    (folder / "rows.csv").write_text(text)
    return calibrate([folder / "rows.csv"])


def test_rates_are_times_too(tmp_path: Path) -> None:
    point = design()
    took = seconds(point)
    tokens = 64 * point.workload.sequence / took
    columns = "design,tp,pp,cp,gbs,recompute"
    cells = "llama3-8b@dgx-h100:16,2,1,1,64,full"
    (tmp_path / "a.csv").write_text(f"{columns},tokens_per_s\n{cells},{tokens}\n")
    (tmp_path / "b.csv").write_text(f"{columns},tokens_per_s_per_accel\n{cells},{tokens / 16}\n")
    found = calibrate([tmp_path / "a.csv", tmp_path / "b.csv"])
    assert [row.measured_s for row in found.rows] == pytest.approx([took, took])


def test_a_design_without_a_system_becomes_one(tmp_path: Path) -> None:
    point = design()
    (tmp_path / "design.yaml").write_text(cosmic.design.dump_design(point))
    (tmp_path / "rows.csv").write_text(f"step_s,chunks\n{1.1 * seconds(point)},16\n")
    found = calibrate([tmp_path / "rows.csv"], on=str(tmp_path / "design.yaml"))
    (tmp_path / "mine.yaml").write_text(system_text(found))
    changed = cosmic.load_design(
        f"llama3-8b@{tmp_path}/mine.yaml", {"pp": 1, "cp": 1, "global_batch": 64, "recompute": "full", "tp": 2}
    )
    assert seconds(changed) == pytest.approx(found.rows[0].after_s, rel=2e-3)


def test_both_engines_take_a_factor_of_time() -> None:
    one, two = design(), design({"compute.time_factor": 1.25})
    assert seconds(two) == pytest.approx(1.25 * seconds(one), rel=1e-9)
    simulated = [evaluate(each, "event") for each in (one, two)]
    assert isinstance(simulated[0], Metrics)
    assert isinstance(simulated[1], Metrics)
    assert simulated[1].step_s == pytest.approx(1.25 * simulated[0].step_s, rel=1e-5)
