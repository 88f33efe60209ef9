"""Errors of measured steps, each predicted by constants that were fitted without its source."""

from __future__ import annotations

from dataclasses import dataclass
from math import log

from cosmic.catalog.accuracy import traits_of
from cosmic.design.batch import batch_of
from cosmic.evaluation import evaluate_batch, waiting_share
from cosmic.validation.baseline import left_out_errors
from cosmic.validation.conformal import Residual
from cosmic.validation.sources import MeasuredStep, measured_steps


@dataclass(frozen=True, slots=True)
class PredictedStep:
    """A measured step, and the error of its prediction."""

    step: MeasuredStep
    residual: Residual


def residuals() -> list[PredictedStep]:
    """Return every measured step of the package with its error.

    What no fit to runs changes, steps of one accelerator, is as predicted now.
    """
    known = left_out_errors()
    found = []
    for step in measured_steps():
        columns = {name: float(column[0]) for name, column in evaluate_batch(batch_of(step.point)).columns.items()}
        error = known.get((step.source, step.id), log(columns["step_s"] / step.measured_s))
        residual = Residual(step.source, error, traits_of(step.point), waiting_share(columns))
        found.append(PredictedStep(step, residual))
    return found
