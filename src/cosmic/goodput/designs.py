"""Training runs of designs: goodput, days, dollars, energy and carbon. Numbers, or arrays over a batch.

    effective rate  r = goodput * tokens / step        days  T = run.tokens / r / 86400
    dollars         T * (dollars a second of owning the cluster)
    energy          T * (watts at the meter, by use)     carbon  energy * grid factor

A run that is interrupted draws no less, and costs no less: time that does not count is paid for.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cosmic.design.batch import Batch, known
from cosmic.design.model import parameters
from cosmic.design.point import DesignPoint
from cosmic.goodput.closed_form import Goodput, goodput
from cosmic.numeric import Numeric
from cosmic.pricing.clusters import ClusterCost, owned_per_s
from cosmic.pricing.ownership import JOULES_PER_KWH
from cosmic.workload.precision import recipe_for

SECONDS_PER_DAY = 86400.0
OF_RUNS = ("goodput", "effective_tokens_per_s", "train_days", "train_usd", "train_energy_j", "train_co2_kg")
"""Metrics of training runs."""


def checkpoint_bytes(point: DesignPoint) -> float:
    """Return the bytes of one checkpoint: the copy of the weights that GEMMs read, masters and moments.

    >>> from cosmic.mapping.completing import load_design
    >>> round(checkpoint_bytes(load_design("llama3-405b@dgx-h100:16384")) / 1e12, 2)  # 405.85e9 parameters of 14 bytes
    5.68
    """
    recipe = recipe_for(point.workload)
    return parameters(point.model) * (recipe.weight + recipe.optimizer)


def goodput_of_designs(batch: Batch, work_s: Numeric | None) -> Goodput | None:
    """Return where the time of training runs goes; None if no rate of interruptions is known.

    *work_s* is what the run would take without interruptions, if it has a length.
    """
    each = checkpoint_bytes(batch.base) / batch.npus
    return goodput(lambda key: batch[f"run.{key}"], batch.npus, batch["workload.dp"], each, work_s)


def run_metrics(batch: Batch, cost: ClusterCost, drawn_w: Numeric, tokens_per_s: Numeric) -> dict[str, Any]:
    """Return the metrics of training runs; NaN where a figure is not known, or the run has no length."""
    found: dict[str, Any] = dict.fromkeys(OF_RUNS, np.nan)
    if batch.base.workload.task != "training":
        return found
    length = known(batch["run.tokens"])
    lasts = not (isinstance(length, float) and np.isnan(length))
    share = goodput_of_designs(batch, length / tokens_per_s if lasts else None)
    if share is None:
        return found
    found["goodput"] = share.effective_share
    found["effective_tokens_per_s"] = effective = share.effective_share * tokens_per_s
    if not lasts:
        return found
    seconds = length / effective
    energy = drawn_w * seconds
    return found | {
        "train_days": seconds / SECONDS_PER_DAY,
        "train_usd": owned_per_s(batch, cost, drawn_w) * seconds,
        "train_energy_j": energy,
        "train_co2_kg": energy / JOULES_PER_KWH * batch["facility.co2_kg_per_kwh"],
    }


def unknown_of_runs(point: DesignPoint) -> dict[str, str]:
    """Return the metrics of a training run that are unknown for want of a rate of interruptions, with the reason.

    A run without a length asks for none of them.
    """
    if point.workload.task != "training" or point.serving is not None or point.run.tokens is None:
        return {}
    if point.run.npu_mtbf_s is None:
        name = point.compute.accelerator or "the accelerator"
        reason = f"no rate of interruptions is known for {name}: set run.npu_mtbf"
        return dict.fromkeys(OF_RUNS, reason)
    return {}
