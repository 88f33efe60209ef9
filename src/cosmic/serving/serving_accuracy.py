"""The error to expect of the times of a served design: what the fits of engines and of pools found."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from math import inf, isnan, log
from typing import Annotated, Any

from cosmic.base.json_types import Keywords, Share, json_keys
from cosmic.design import catalog_entries
from cosmic.design.design_point import DesignPoint
from cosmic.design.prediction_accuracy import Expectation, learned_errors
from cosmic.serving.serving_metrics import ServingMetrics, Slo

_RESIDUALS = re.compile(r"n (\d+), mean ([\d.]+) %, median ([\d.]+) %")
_HELD_OUT = re.compile(r"held out (?:n \d+, )?mean ([\d.]+) %")
NOT_FITTED = "not measured: the engine was fitted to no run"
HANDOVERS_FILE = "handovers.yaml"
"""Fitted to deployments in two pools."""


@dataclass(frozen=True, slots=True)
class ServingErrors:
    """Mean errors of mean times against published runs of a kind, each with constants that had not seen its source."""

    ttft: Share
    """Of the mean time to first token."""
    tpot: Share
    """Of the mean time per output token."""
    runs: int
    """Published runs."""
    kind: str
    """What the runs were."""

    def of(self, metric: str) -> float | None:
        """Return the error of a time by its name; None where it is not known, as of a whole request.

        >>> ServingErrors(0.2, 0.1, 10, "").of("tpot"), ServingErrors(0.2, 0.1, 10, "").of("e2e")
        (0.1, None)
        """
        return {"ttft": self.ttft, "tpot": self.tpot}.get(metric)


def tpot_expectation(design: DesignPoint) -> Expectation:
    """Return how far off the time per output token of a design may be, by the residuals of its engine."""
    return _engine_expectation(design.serving.engine if design.serving else "")


@cache
def _engine_expectation(engine: str) -> Expectation:
    text = catalog_entries.read_entry("engines", engine).get("residuals", {}).get("tpot", "")
    residuals = _RESIDUALS.match(str(text))
    errors = learned_errors()
    wider = errors.nine_tenths / errors.half
    if residuals is None:
        half = log(1 + errors.half)
        return Expectation(None, 0, NOT_FITTED, 0, half, half * wider)
    runs, mean, median = int(residuals[1]), float(residuals[2]) / 100, float(residuals[3]) / 100
    half = log(1 + median)
    return Expectation(mean, runs, f"time per output token with {engine}", 1, half, half * wider)


def published_errors(engine: str, *, disaggregated: bool = False) -> ServingErrors | None:
    """Return the errors of published runs with an engine, or in two pools with any; None where there were none.

    >>> published_errors("vllm").kind
    'in one pool with vllm'
    """
    if disaggregated and "residuals" in catalog_entries.read_entry("engines", engine):
        return _read_errors(
            catalog_entries.load_mapping(catalog_entries.CATALOG_FOLDER / HANDOVERS_FILE), "in two pools"
        )
    return _read_errors(catalog_entries.read_entry("engines", engine), f"in one pool with {engine}")


def errors_of_design(design: DesignPoint) -> ServingErrors | None:
    """Return the errors of published runs of a served design's kind; None where there were none."""
    if design.serving is None:
        return None
    return published_errors(design.serving.engine, disaggregated=design.serving.disaggregated)


@json_keys("within_error", without=("error",), optional=("simulated_s",), beside=("limit",))
@dataclass(frozen=True, slots=True)
class JudgedLimit:
    """A limit, and what a deployment achieves."""

    limit: Slo
    value_s: float | None
    """What it is; None where there is no such time."""
    holds: bool
    """Whether it holds."""
    error: float | None
    """The expected error of such times, as a share; None where it was not measured."""
    simulated_s: Annotated[float, Keywords(type=["number", "null"])] | None = None
    """What it is in the simulation; None where there was none."""  # NaN where one was asked for

    @property
    def apart(self) -> float:
        """How far the value is from the limit, as a share of it; infinite where there is none."""
        return inf if self.value_s is None else abs(1 - self.value_s / self.limit.limit_s)

    @property
    def within_error(self) -> bool:
        """Whether the value is nearer to the limit than the expected error."""
        return self.error is not None and self.apart < self.error


def judge_limits(limits: Iterable[Slo], metrics: ServingMetrics, design: DesignPoint) -> tuple[JudgedLimit, ...]:
    """Return what a design with such metrics achieves of some limits."""
    errors = errors_of_design(design)
    judged = []
    for limit in limits:
        value = float(limit.value(metrics))
        error = None if errors is None else errors.of(limit.metric)
        judged.append(JudgedLimit(limit, None if isnan(value) else value, bool(limit.holds(metrics)), error))
    return tuple(judged)


def unlike_published(design: DesignPoint) -> tuple[str, ...]:
    """Return what of a design no published run had, so that its errors may be larger than theirs.

    >>> from cosmic.search.mapping.design_completion import load_design
    >>> unlike_published(load_design("llama3-8b@tpu-v6e:4", {"task": "decode", "lora_rank": 8}, plain=True))
    ('tpu-v6e', 'adapters')
    """
    prefill = design.serving.prefill if design.serving else None
    differences = {
        design.compute.accelerator or "its accelerator": design.compute.provenance == "estimate",
        "pipeline stages": design.workload.pp > 1 or (prefill is not None and prefill.pp > 1),
        "adapters": design.workload.lora_rank is not None,
    }
    return tuple(name for name, is_so in differences.items() if is_so)


def _read_errors(entry: Any, kind: str) -> ServingErrors | None:
    texts = {name: str(entry.get("residuals", {}).get(name, "")) for name in ("ttft", "tpot")}
    runs = [_RESIDUALS.match(text) for text in texts.values()]
    means = [_HELD_OUT.search(text) for text in texts.values()]
    if runs[0] is None or means[0] is None or means[1] is None:
        return None
    return ServingErrors(float(means[0][1]) / 100, float(means[1][1]) / 100, int(runs[0][1]), kind)
