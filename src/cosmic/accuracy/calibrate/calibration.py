"""Calibration: measurements of a system update its physical parameters, and last, perhaps, a factor of all times.

    files ──▶ measurements ──▶ parameters that they depend on ──▶ MAP estimate ──▶ the factor, if it helps ──▶ verdict

A parameter that no measurement moves keeps its value. The factor stays 1 unless steps that are left out are predicted
better with it: what is not understood should not be carried to other designs.

The calibrated system is written as a file that every command takes: MODEL@my-system.yaml:64.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from math import exp
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from cosmic.accuracy.calibrate.calibration_target import (
    PhysicalParameter,
    Target,
    changed_fields,
    factor_spread,
    list_parameters,
    measurement_noise,
    prior_of,
    target_dimensions,
    target_of,
    value_at,
)
from cosmic.accuracy.calibrate.map_estimate import (
    Array,
    Estimate,
    Prior,
    estimate_parameters,
    leave_one_out_estimates,
    prior_scale,
    shrunk_mean,
    tame_outliers,
)
from cosmic.accuracy.calibrate.measurement_files import read_tables
from cosmic.accuracy.calibrate.predicted_measurements import STEP, PredictedMeasurements
from cosmic.base._version import __version__
from cosmic.base.errors import SpecError, require
from cosmic.base.json_types import Count, Ratio, Share, json_keys, unit
from cosmic.design import schema
from cosmic.design.plain_data import dump_yaml

NUDGE = 0.01
"""By how much a parameter is moved to see what depends on it."""
LEAST_SLOPE = 1e-4
LEAST_MOVE = 0.002
"""A parameter that moves less, in logs, is left alone."""
CERTAIN, FAR = 0.98, 0.1
"""A parameter whose posterior spread is above the first share of its prior's, and which moves by less than the second
share of that spread, has learned nothing from the measurements: it is left alone too."""
ENOUGH = 3
"""Measurements from which they are left out in turn."""
WORTH, LEAST_GAIN = 0.98, 0.003
"""The factor is kept where it brings the error of steps that are left out below this share, and by so much at least."""
TAMING = 3
"""How often the estimate is found again with outliers counting for less."""
FAR_OFF = 1.5
"""A prediction that is off by more than this factor after all was not of what was measured."""
MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class JudgedMeasurement:
    """One measurement and its predictions."""

    name: str
    """What was measured, as its file calls it."""
    kind: str
    """What was measured: steps, GEMMs, attention, memory operators, launches, collectives, kernels of steps."""
    measured_s: float
    """Measured time."""
    before_s: float
    """Predicted for the system as it was."""
    after_s: float
    """Predicted for the calibrated system."""
    left_out_s: float | None
    """Predicted by what all others set; None for few measurements."""
    assumed: tuple[str, ...]
    """What was assumed, a sentence each."""


@dataclass(frozen=True, slots=True)
class Errors:
    """Mean absolute errors of the measurements of one kind."""

    kind: str
    """What was measured, as of a measurement."""
    rows: int
    """Measurements."""
    before: Share
    """Error of the system as it was."""
    after: Share
    """Error of the calibrated system."""
    left_out: Share | None
    """Error where each is predicted by the others; null for fewer than three."""


@dataclass(frozen=True, slots=True)
class FieldCorrection:
    """A field of a design, before and after."""

    before: Annotated[float, unit("SI")]
    """Value before, in SI units."""
    after: Annotated[float, unit("SI")]
    """Value now, in SI units."""


@dataclass(frozen=True, slots=True)
class LearnedParameter:
    """A parameter that the measurements changed."""

    name: str
    """Name of the parameter."""
    title: str
    """What it is."""
    factor: Ratio
    """Its value over the usual one."""
    prior_sd: Ratio
    """Standard deviation of its logarithm before."""
    posterior_sd: Ratio
    """The same with the measurements."""
    by: tuple[str, ...]
    """Measurements that moved it most."""
    fields: Mapping[str, FieldCorrection]
    """Fields of a design that it changes."""


@dataclass(frozen=True, slots=True)
class UnlearnedParameter:
    """A parameter that keeps its value."""

    title: str
    """What the parameter is."""
    why: str
    """Why it was not learned."""


@json_keys(
    "errors",
    "steps",
    without=("moved",),
    system="target.name",
    not_learned="unmoved",
    time_factor="factor",
    time_factor_why="factor_why",
    residual_log_sd="residual_sd",
)
@dataclass(frozen=True, slots=True)
class Calibration:
    """What measurements say about a system."""

    target: Target
    files: tuple[str, ...]
    """Names of the files of measurements."""
    rows: tuple[JudgedMeasurement, ...]
    """Every measurement."""
    learned: tuple[LearnedParameter, ...]
    """Parameters that changed."""
    prior_scale: Ratio
    """How many times wider than usual priors were taken, as the measurements are far off."""
    moved: tuple[tuple[PhysicalParameter, float], ...]
    """The same parameters, each with the log of its factor."""
    unmoved: tuple[UnlearnedParameter, ...]
    """Parameters that keep their value."""
    factor: Ratio
    """A factor of all times of a step; 1 where leaving steps out does not speak for it."""
    factor_why: str
    """Why it is that."""
    residual_sd: Ratio | None
    """Standard deviation of the logarithm of measured over predicted steps, from now on; None without a step."""
    skipped: tuple[str, ...]
    """Rows that were left out, a sentence each."""

    @property
    def far_off(self) -> tuple[JudgedMeasurement, ...]:
        """Measurements that no parameter explains: perhaps they are of another design, or in another unit."""
        return tuple(row for row in self.rows if not 1 / FAR_OFF < row.after_s / row.measured_s < FAR_OFF)

    @property
    def steps(self) -> Count:
        """Measured steps behind it."""
        return sum(row.kind == STEP for row in self.rows)

    def changes(self, hardware: Any) -> dict[str, float]:
        """Return the fields of *hardware* that were learned, with their new values: of this system, or one like it."""
        changed = changed_fields(
            hardware, [parameter for parameter, _ in self.moved], [value for _, value in self.moved]
        )
        if self.factor != 1.0:
            changed["compute.time_factor"] = hardware.compute.time_factor * self.factor
        return changed

    @property
    def errors(self) -> list[Errors]:
        """Mean absolute relative errors by kind of measurement."""
        kinds = dict.fromkeys(row.kind for row in self.rows)
        return [_errors(kind, [row for row in self.rows if row.kind == kind]) for kind in kinds]


def calibrate(files: Sequence[str | Path], system: str = "", on: str = "") -> Calibration:
    """Return what the measurements in *files* say about a system: named, or that of the design *on*."""
    require(bool(files), "data", "", "give at least one file of measurements")
    tables = [table for path in files for table in read_tables(path)]
    target = target_of(system, on, (machine_name for table in tables for machine_name in table.systems))
    measured = [measurement for table in tables for measurement in table.observed(target)]
    require(bool(measured), "data", "", "nothing in these files can be predicted")
    skipped = tuple(row for table in tables for row in table.skipped)
    return calibrate_target(target, measured, tuple(Path(path).name for path in files), skipped)


def calibrate_target(
    target: Target,
    measured: Sequence[PredictedMeasurements],
    files: tuple[str, ...] = (),
    skipped: tuple[str, ...] = (),
) -> Calibration:
    """Return what *measured* says about the *target*."""
    machines = [target.machine, *(measurement.hardware for measurement in measured)]
    every = list_parameters(max(len(machine.network.dims) for machine in machines))
    predicted, slopes = _predict(measured, every, np.zeros(len(every)))
    _check(measured, predicted)
    depends = np.abs(slopes).max(axis=0) > LEAST_SLOPE
    chosen = [parameter for parameter, used in zip(every, depends, strict=True) if used]
    log_measured = np.log(np.concatenate([measurement.measured_s for measurement in measured]))
    spread = _noise(measured, every, slopes)
    usual = np.array([parameter.spread for parameter in chosen])
    scale = prior_scale(log_measured - predicted, slopes[:, depends], spread, usual)
    estimate, chosen, spread = _moving_estimate(_Prior(target, scale), measured, chosen, log_measured, spread)
    prior = prior_of(target.machine, chosen, scale)
    fit = _Fit(estimate, log_measured, spread, prior, _are_steps(measured))
    factor, why, left_out = fit.finished()
    calibrated = estimate.predicted + np.where(fit.steps, factor, 0.0)
    return Calibration(
        target,
        files,
        _judged_measurements(measured, predicted, calibrated, left_out),
        tuple(
            _learned_parameters(target, parameter, index, estimate, fit, measured)
            for index, parameter in enumerate(chosen)
        ),
        scale,
        tuple(zip(chosen, map(float, estimate.theta), strict=True)),
        _unmoved_parameters(every, depends, chosen),
        exp(factor),
        why,
        fit.residual_sd(left_out),
        skipped,
    )


def _check(measured: Sequence[PredictedMeasurements], predicted: Array) -> None:
    names = [name for measurement in measured for name in measurement.names]
    for name, value in zip(names, predicted, strict=True):
        if not np.isfinite(value):
            raise SpecError(name, "", "the prediction is not finite")


def _predict(
    measured: Sequence[PredictedMeasurements], chosen: Sequence[PhysicalParameter], theta: Array
) -> tuple[Array, Array]:
    """Return the logs of all predictions, and their derivatives by each parameter."""
    tried = [theta, *(theta + NUDGE * row for row in np.eye(len(chosen)))]
    logs = []
    with np.errstate(divide="ignore", invalid="ignore"):
        for measurement in measured:
            seconds = measurement.seconds([changed_fields(measurement.hardware, chosen, values) for values in tried])
            logs.append(np.log(seconds))
        all_logs = np.concatenate(logs, axis=1)
        return all_logs[0], (all_logs[1:] - all_logs[0]).T / NUDGE


def _noise(measured: Sequence[PredictedMeasurements], every: Sequence[PhysicalParameter], slopes: Array) -> Array:
    """Return the noise of each measurement: a step that waits for the host scatters as the host does."""
    noise = np.concatenate([measurement.noise for measurement in measured])
    host = next(index for index, parameter in enumerate(every) if parameter.name == "host_launch")
    return np.asarray(np.hypot(noise, np.where(_are_steps(measured), measurement_noise().host * slopes[:, host], 0.0)))


def _are_steps(measured: Sequence[PredictedMeasurements]) -> npt.NDArray[np.bool_]:
    return np.concatenate([np.full(len(measurement.names), measurement.kind == STEP) for measurement in measured])


@dataclass(frozen=True, slots=True)
class _Prior:
    """What priors follow from: the system, and how much wider than usual they are."""

    target: Target
    scale: float

    def of(self, chosen: Sequence[PhysicalParameter]) -> Prior:
        return prior_of(self.target.machine, chosen, self.scale)


def _moving_estimate(
    prior: _Prior,
    measured: Sequence[PredictedMeasurements],
    chosen: list[PhysicalParameter],
    log_measured: Array,
    noise_of_rows: Array,
) -> tuple[Estimate, list[PhysicalParameter], Array]:
    """Return the estimate, the parameters that it moves, and the noise of rows: outliers have more.

    Parameters that hardly move are left alone, and the others found again.
    """
    noises, estimate = noise_of_rows, _estimate(prior, measured, chosen, log_measured, noise_of_rows, None)
    for _ in range(TAMING if len(log_measured) >= ENOUGH else 0):
        noises = tame_outliers(log_measured, estimate.predicted, noise_of_rows)
        estimate = _estimate(prior, measured, chosen, log_measured, noises, estimate.theta)
    spreads = prior.of(chosen).spread
    clear = (estimate.spread < CERTAIN * spreads) | (np.abs(estimate.theta) >= FAR * spreads)
    moving = np.flatnonzero((np.abs(estimate.theta) >= LEAST_MOVE) & clear)
    if len(moving) < len(chosen):
        chosen = [chosen[index] for index in moving]
        estimate = _estimate(prior, measured, chosen, log_measured, noises, estimate.theta[moving])
    return estimate, chosen, noises


def _estimate(
    prior: _Prior,
    measured: Sequence[PredictedMeasurements],
    chosen: Sequence[PhysicalParameter],
    log_measured: Array,
    spread: Array,
    start: Array | None,
) -> Estimate:
    return estimate_parameters(
        lambda theta: _predict(measured, chosen, theta), log_measured, spread, prior.of(chosen), start
    )


# ---- the factor


@dataclass(frozen=True, slots=True)
class _Fit:
    """An estimate with what it rests on."""

    found: Estimate
    measured: Array
    noise: Array
    prior: Prior
    steps: npt.NDArray[np.bool_]

    def finished(self) -> tuple[float, str, Array | None]:
        """Return the log of the factor, why it is that, and the logs of predictions of rows that are left out."""
        count = int(self.steps.sum())
        left_out = self._left_out(factor=False) if len(self.measured) >= ENOUGH else None
        if left_out is None or count < ENOUGH:
            return 0.0, f"not tried: it takes {ENOUGH} steps to see whether it helps, and there are {count}", left_out
        with_factor = self._left_out(factor=True)
        plain, better = self._error(left_out), self._error(with_factor)
        words = f"steps that are left out are off by {100 * better:.1f} % with it, and by {100 * plain:.1f} % without"
        if better > min(WORTH * plain, plain - LEAST_GAIN):
            return 0.0, f"not used: {words}", left_out
        steps = self.steps
        factor = shrunk_mean((self.measured - self.found.predicted)[steps], self.noise[steps], factor_spread())
        return factor, words, with_factor

    def _left_out(self, *, factor: bool) -> Array:
        """Return the log of each row's prediction by what the others set."""
        thetas = leave_one_out_estimates(self.found, self.measured, self.noise, self.prior)
        at_zero, slopes = self.found.at_zero, self.found.slopes
        predicted: Array = at_zero + np.sum(slopes * thetas, axis=1)
        if not factor:
            return predicted
        for row in np.flatnonzero(self.steps):
            other_steps = self.steps & (np.arange(len(predicted)) != row)
            residual = self.measured - at_zero - slopes @ thetas[row]
            predicted[row] += shrunk_mean(residual[other_steps], self.noise[other_steps], factor_spread())
        return predicted

    def _error(self, predicted: Array) -> float:
        return float(np.mean(np.abs(np.expm1(predicted - self.measured)[self.steps])))

    def residual_sd(self, left_out: Array | None) -> float | None:
        """Return how far steps will scatter: as those that were left out, or as few measurements let expect."""
        steps = self.steps
        if not steps.any():
            return None
        if left_out is not None and steps.sum() >= ENOUGH:
            return float(np.sqrt(np.mean((left_out - self.measured)[steps] ** 2)))
        slopes = self.found.slopes[steps]
        unsure = np.einsum("ij,jk,ik->i", slopes, self.found.covariance, slopes)
        still = (self.measured - self.found.predicted)[steps]
        return float(np.sqrt(np.mean(unsure + self.noise[steps] ** 2 + still**2)))

    def influences(self, parameter_index: int) -> Array:
        """Return by how much each measurement moves a parameter."""
        gain = self.found.covariance @ (self.found.slopes.T / self.noise**2)
        return np.asarray(gain[parameter_index] * (self.measured - self.found.at_zero))


# ---- the verdict


def _learned_parameters(
    target: Target,
    parameter: PhysicalParameter,
    index: int,
    estimate: Estimate,
    fit: _Fit,
    measured: Sequence[PredictedMeasurements],
) -> LearnedParameter:
    names = [name for measurement in measured for name in measurement.names]
    weight = np.abs(fit.influences(index))
    order = np.argsort(-weight)[:MOST_NAMED]
    by = tuple(dict.fromkeys(names[row] for row in order if weight[row] > 0.1 * weight.max()))
    calibrated = changed_fields(target.machine, [parameter], [estimate.theta[index]])
    fields = {
        path: FieldCorrection(float(value_at(target.machine, path) or 0.0), value) for path, value in calibrated.items()
    }
    factor = exp(float(estimate.theta[index]))
    spreads = float(fit.prior.spread[index]), float(estimate.spread[index])
    return LearnedParameter(parameter.name, parameter.title, factor, *spreads, by, fields)


def _unmoved_parameters(
    every: Sequence[PhysicalParameter], depends: npt.NDArray[np.bool_], chosen: Sequence[PhysicalParameter]
) -> tuple[UnlearnedParameter, ...]:
    chosen_names = {parameter.name for parameter in chosen}
    reasons = ("no measurement depends on it", "the measurements leave it where it was")
    return tuple(
        UnlearnedParameter(parameter.title, reasons[int(used)])
        for parameter, used in zip(every, depends, strict=True)
        if parameter.name not in chosen_names
    )


def _judged_measurements(
    measured: Sequence[PredictedMeasurements], log_before: Array, log_after: Array, left_out: Array | None
) -> tuple[JudgedMeasurement, ...]:
    judged, row = [], 0
    for measurement in measured:
        for name, measured_s in zip(measurement.names, measurement.measured_s, strict=True):
            without = None if left_out is None else exp(float(left_out[row]))
            seconds = exp(float(log_before[row])), exp(float(log_after[row]))
            judged.append(
                JudgedMeasurement(name, measurement.kind, float(measured_s), *seconds, without, measurement.assumed)
            )
            row += 1
    return tuple(judged)


def _errors(kind: str, rows: Sequence[JudgedMeasurement]) -> Errors:
    def mean(values: Sequence[float]) -> float:
        return float(np.mean([abs(value / row.measured_s - 1) for value, row in zip(values, rows, strict=True)]))

    without = [row.left_out_s for row in rows if row.left_out_s is not None]
    left_out = mean(without) if len(without) == len(rows) else None
    return Errors(kind, len(rows), mean([row.before_s for row in rows]), mean([row.after_s for row in rows]), left_out)


MOST_ROWS = 50
"""Measurements that a file names."""


def system_text(calibration: Calibration) -> str:
    """Return the content of the system's file."""
    return dump_yaml(system_tree(calibration))


def system_tree(calibration: Calibration) -> dict[str, Any]:
    """Return the system's file as plain data: what it was, with what was learned, and where that comes from."""
    target = calibration.target
    tree = {key: value for key, value in target.entry.items() if key != "calibration"}
    tree["title"] = (
        f"{tree.get('title') or target.name or 'a design'}, calibrated on {len(calibration.rows)} measurements"
    )
    tree["network"] = {**tree["network"], "dims": [dict(dimension) for dimension in target_dimensions(target)]}
    compute = dict(tree.get("compute", {}))
    for path, value in calibration.changes(target.machine).items():
        file_value = schema.write_value(_four_digits(value), schema.slot_at(target.machine, path).dimension)
        layer, _, key = path.partition(".")
        if layer == "compute":
            compute[key] = file_value
        elif layer == "network":
            _, dimension_index, *keys = key.split(".")
            _put_field(tree["network"]["dims"][int(dimension_index)], keys, file_value)
        else:
            tree[layer] = {**tree.get(layer, {}), key: file_value}
    compute["provenance"] = "calibrated"
    if calibration.residual_sd is not None:
        compute |= {"calibration_sd": _four_digits(calibration.residual_sd), "calibration_rows": calibration.steps}
    return tree | {"compute": compute, "calibration": _provenance(calibration)}


def _provenance(calibration: Calibration) -> dict[str, Any]:
    """Return what the file says about its calibration."""
    return {
        "made_by": f"cosmic calibrate run, {__version__}",
        "date": date.today().isoformat(),
        "base": calibration.target.name or "a design file",
        "files": list(calibration.files),
        "residual_log_sd": None if calibration.residual_sd is None else _four_digits(calibration.residual_sd),
        "steps": calibration.steps,
        "time_factor": _four_digits(calibration.factor),
        "errors": {
            error.kind: {
                "rows": error.rows,
                "before": _four_digits(error.before),
                "after": _four_digits(error.after),
                "left_out": None if error.left_out is None else _four_digits(error.left_out),
            }
            for error in calibration.errors
        },
        "prior_scale": calibration.prior_scale,
        "learned": {
            parameter.name: {
                "factor": _four_digits(parameter.factor),
                "prior_sd": _four_digits(parameter.prior_sd),
                "posterior_sd": _four_digits(parameter.posterior_sd),
                "by": list(parameter.by),
            }
            for parameter in calibration.learned
        },
        "rows": [row.name for row in calibration.rows[:MOST_ROWS]],
    }


def _four_digits(value: float) -> float:
    """Return a number with four digits: measurements give no more."""
    return float(f"{value:.4g}")


def _put_field(tree: dict[str, Any], keys: list[str], value: Any) -> None:
    *outer, last = keys
    for key in outer:
        tree[key] = dict(tree.get(key, {}))
        tree = tree[key]
    tree[last] = value
