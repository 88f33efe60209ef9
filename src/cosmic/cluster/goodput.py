"""The share of a run that is training, in closed form: a renewal process, exact for interruptions that come by chance.

    effective = d s a * x / (e^(x + c) - 1) * e^(-h) * v        (times what repairs leave, and remote storage)

    d = e^(-D/M)          all stand still for D until an interruption is noticed
    s = e^(-S/M)          and for S until the other replicas go on (0 if an interruption stops all)
    a = e^(-(R-S)/(M k))  a replica is back after R; k replicas, 1 if an interruption stops all (more of them restart at
                          once where all wait for spares)
    x = L t, c = L C, h = L H      t  training between checkpoints, C  time that one blocks, H  until it is of use
    L = g (1 - b)^(k-1) / M        rate at which no replica is left that has the state, b = e^(-(D+R)/(M k)) those that
                                   are up, and g = e^((D+S)/M (1-1/k)) as it is by time that is not lost: 1/M if k is 1
    v                              what slow domains leave

An interruption while the run recovers makes it recover anew: hence e^(R/M) and not 1 + R/M, and a share that stays
above 0 however often machines fail. With k = 1 and H = 0 this is Daly's complete form (J. T. Daly, Future Generation
Computer Systems 22, 2006), M e^(R/M) (e^((t+C)/M) - 1) for each t; to first order it is 1 - C/t - (t/2 + D + R)/M.

Assumes that interruptions come at a constant rate, whatever the run is doing, that a checkpoint is never lost, that
replicas fail by themselves, and that a run is long against M. L is exact for k = 1, and takes replicas for
independent otherwise: with two to four of them that are often down, the simulation differs by a few percent. Replicas
that wait for spares most of the time are a crude estimate: see `_crowding`.
All functions take numbers or arrays.

Training runs of designs follow from it (`run_metrics`):

    effective rate  r = goodput * tokens / step        days  T = run.tokens / r / 86400
    dollars         T * (dollars a second of owning the cluster)
    energy          T * (watts at the meter, by use)     carbon  energy * grid factor

A run that is interrupted draws no less, and costs no less: time that does not count is paid for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cosmic.base.numeric import Numeric, choose, expm1, larger, power, smaller, where
from cosmic.cluster.cluster_cost import JOULES_PER_KWH, ClusterCost, owned_cluster_usd_per_s
from cosmic.cluster.interruption_terms import NEVER_S, InterruptionTerms, run_terms, spare_terms
from cosmic.design.design_batch import Batch, Combinations, none_to_nan
from cosmic.design.design_point import DesignPoint
from cosmic.design.model_layer import count_parameters
from cosmic.step.accelerator_rates import FieldLookup
from cosmic.workload.precision import recipe_for

MOST_EXPONENT = 600.0
"""Where e^x is as good as infinite, and is still a float."""
LEAST_RATE = 1e-30
"""A rate as good as none."""
SERIES_BELOW = 1e-8
"""Where two terms of the series are closer than Newton's method, which subtracts nearly equal numbers."""
NEWTON_STEPS = 6
LEAST_READY = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodput:
    """Where the time of a run goes; the shares sum to 1."""

    effective_share: Numeric
    """Training that counts."""
    checkpoint_share: Numeric
    """Training waits for checkpoints."""
    lost_share: Numeric
    """Training that is done again: since the last complete checkpoint."""
    detection_share: Numeric
    """All stand still until interruptions are noticed."""
    restart_share: Numeric
    """What failed restarts: the run, or some of its replicas."""
    stall_share: Numeric
    """All replicas wait until they can go on without one."""
    repair_share: Numeric
    """No spare is left: the run waits, or goes on with fewer replicas."""
    slow_share: Numeric
    """All wait for slow domains."""
    interval_s: Numeric
    """Training from one checkpoint to the next."""
    mtbf_s: Numeric
    """Mean time between interruptions of the run."""


def run_goodput(
    fields: FieldLookup, npus: Numeric, dp: Numeric, state_bytes_per_npu: Numeric, work_s: Numeric | None = None
) -> Goodput | None:
    """Return where the time of a run goes; None if the rate of interruptions is not known.

    *fields* looks up fields of a `Run` by their key (`terms.fields_of`), *state_bytes_per_npu* is what each accelerator
    writes of a checkpoint. Only runs without checkpoints need *work_s*, their time without interruptions.

    >>> from cosmic.design.run_layer import Run
    >>> from cosmic.cluster.interruption_terms import run_fields
    >>> run = Run(npu_mtbf_s=1e8, detection_s=60, restart_s=540, reconfigure_s=120, recovery="replica")
    >>> found = run_goodput(run_fields(run), npus=100_000, dp=100, state_bytes_per_npu=0.0)
    >>> round(found.mtbf_s), round(float(found.effective_share), 4)  # e^(-60/1000) e^(-120/1000) e^(-420/100,000)
    (1000, 0.8318)
    """
    terms = run_terms(fields, npus, dp, state_bytes_per_npu, work_s)
    return None if terms is None else goodput_from_terms(terms)


def goodput_from_terms(terms: InterruptionTerms) -> Goodput:
    """Return where the time goes of a run with these times."""
    rate = 1 / terms.mtbf_s
    noticed, going_on = _survival(rate * terms.detection_s), _survival(rate * terms.stall_s)
    ready = _ready_share(terms)
    replica_back = _survival(rate * _crowding(terms, ready) * (terms.restart_s - terms.stall_s) / terms.replicas)
    up = noticed * going_on * replica_back
    lost_rate = _lost_rate(terms, rate)
    # The interval as stated, or the optimum; no shorter than can be.
    best = smaller(optimal_interval_s(lost_rate, terms.block_s), NEVER_S)
    interval_s = larger(where(np.isnan(terms.interval_s), best, terms.interval_s), terms.shortest_s)
    kept_locally = saved_share(lost_rate, interval_s, terms.block_s, terms.hidden_s)
    remote_rate = larger(lost_rate * terms.remote_share, LEAST_RATE)
    saved = up * kept_locally * saved_share(remote_rate, terms.remote_interval_s, 0.0, terms.remote_write_s)
    checkpoint = saved * (terms.block_s / interval_s)
    slow = saved * (terms.slow_share * (1 - 1 / terms.slow_factor))
    return Goodput(
        effective_share=ready * (saved - slow),
        checkpoint_share=ready * checkpoint,
        lost_share=ready * larger(up - saved - checkpoint, 0.0),
        detection_share=ready * (1 - noticed),
        restart_share=ready * (noticed * going_on * (1 - replica_back)),
        stall_share=ready * (noticed * (1 - going_on)),
        repair_share=1 - ready,
        slow_share=ready * slow,
        interval_s=interval_s,
        mtbf_s=terms.mtbf_s,
    )


def saved_share(rate: Numeric, interval_s: Numeric, block_s: Numeric, hidden_s: Numeric) -> Numeric:
    """Return the share of the time up that is training which a complete checkpoint keeps: x e^(-h) / (e^(x+c) - 1).

    Time up ends after an exponential time of mean 1/L. Of it the n-th interval counts if it lasts n (t + C) + H, with
    probability e^(-L (n (t + C) + H)); the sum over n is a geometric series.

    >>> round(saved_share(0.001, 100.0, 10.0, 0.0), 4)  # 0.1 / (e^0.11 - 1) = 0.1 / 0.11628
    0.86
    """
    lasting = expm1(smaller(rate * (interval_s + block_s), MOST_EXPONENT))
    return smaller(rate * interval_s / lasting, 1.0) * _survival(rate * hidden_s)


def optimal_interval_s(rate: Numeric, block_s: Numeric) -> Numeric:
    """Return the training between checkpoints with which most is kept, for interruptions at a *rate* L.

    Where x / (e^(x+c) - 1) is largest, 1 - x = e^-(x+c); with y = x + c that is y - 1 + e^-y = c, whose left side is
    convex: Newton's method descends to the root from any y above it. To first order t = sqrt(2 C / L) (J. W. Young,
    Communications of the ACM 17, 1974); to second, less 2 C / 3.

    >>> round(float(optimal_interval_s(1 / 10_000, 50.0)))  # sqrt(2 * 50 * 10,000) - 2 * 50 / 3 = 966.7, and more
    967
    """
    cost = rate * block_s
    young = np.sqrt(2 * cost)
    y = young + larger(cost, SERIES_BELOW)
    for _ in range(NEWTON_STEPS):
        decay = expm1(-smaller(y, MOST_EXPONENT))
        y = y - (y + decay - cost) / -decay
    return where(cost < SERIES_BELOW, young - 2 * cost / 3, y - cost) / rate


def _lost_rate(terms: InterruptionTerms, rate: Numeric) -> Numeric:
    """Return the rate, in time that replicas train, at which none of them is left that has the state."""
    other_replicas = terms.replicas - 1
    down = -expm1(-smaller(rate * (terms.detection_s + terms.restart_s) / terms.replicas, MOST_EXPONENT))
    standing = rate * (terms.detection_s + terms.stall_s) * (other_replicas / terms.replicas)
    return larger(rate * power(down, other_replicas) * (1 + expm1(smaller(standing, MOST_EXPONENT))), LEAST_RATE)


def _ready_share(terms: InterruptionTerms) -> Numeric:
    """Return what repairs leave: the share of the time with spares enough, or replicas that are there without.

    A run that needs all its replicas waits while more domains are in repair than there are spares; an elastic one goes
    on with the replicas that are whole.
    """
    if terms.repair_s is None:
        return 1.0
    columns = Combinations(terms.domains, terms.spare_domains, terms.repair_load, terms.replicas)
    enough, replicas_up = columns.look_up(spare_terms)
    return choose(terms.elastic, replicas_up, enough)


def _crowding(terms: InterruptionTerms, ready: Numeric) -> Numeric:
    """Return how many times more replicas restart, as some fail while all wait for a spare: approximate for several."""
    return choose(terms.elastic, 1.0, 1 + (1 / larger(ready, LEAST_READY) - 1) * (1 - 1 / terms.replicas))


def _survival(exponent: Numeric) -> Numeric:
    """Return e^-x."""
    return 1 + expm1(-smaller(exponent, MOST_EXPONENT))


SECONDS_PER_DAY = 86400.0
RUN_METRICS = ("goodput", "effective_tokens_per_s", "train_days", "train_usd", "train_energy_j", "train_co2_kg")
"""Metrics of training runs."""


def checkpoint_bytes(point: DesignPoint) -> float:
    """Return the bytes of one checkpoint: the copy of the weights that GEMMs read, masters and moments.

    >>> from cosmic.search.mapping.design_completion import load_design
    >>> round(checkpoint_bytes(load_design("llama3-405b@dgx-h100:16384")) / 1e12, 2)  # 405.85e9 parameters of 14 bytes
    5.68
    """
    recipe = recipe_for(point.workload)
    return count_parameters(point.model) * (recipe.weight + recipe.optimizer)


def goodput_of_designs(batch: Batch, work_s: Numeric | None) -> Goodput | None:
    """Return where the time of training runs goes; None if no rate of interruptions is known.

    *work_s* is what the run would take without interruptions, if it has a length.
    """
    bytes_per_npu = checkpoint_bytes(batch.base) / batch.npus
    return run_goodput(lambda key: batch[f"run.{key}"], batch.npus, batch["workload.dp"], bytes_per_npu, work_s)


def run_metrics(batch: Batch, cost: ClusterCost, drawn_w: Numeric, tokens_per_s: Numeric) -> dict[str, Any]:
    """Return the metrics of training runs; NaN where a figure is not known, or the run has no length."""
    metrics: dict[str, Any] = dict.fromkeys(RUN_METRICS, np.nan)
    if batch.base.workload.task != "training":
        return metrics
    length = none_to_nan(batch["run.tokens"])
    lasts = not (isinstance(length, float) and np.isnan(length))
    share = goodput_of_designs(batch, length / tokens_per_s if lasts else None)
    if share is None:
        return metrics
    metrics["goodput"] = share.effective_share
    metrics["effective_tokens_per_s"] = effective = share.effective_share * tokens_per_s
    if not lasts:
        return metrics
    seconds = length / effective
    energy = drawn_w * seconds
    return metrics | {
        "train_days": seconds / SECONDS_PER_DAY,
        "train_usd": owned_cluster_usd_per_s(batch, cost, drawn_w) * seconds,
        "train_energy_j": energy,
        "train_co2_kg": energy / JOULES_PER_KWH * batch["facility.co2_kg_per_kwh"],
    }


def unknown_run_metrics(point: DesignPoint) -> dict[str, str]:
    """Return the metrics of a training run that are unknown for want of a rate of interruptions, with the reason.

    A run without a length asks for none of them.
    """
    if point.workload.task != "training" or point.serving is not None or point.run.tokens is None:
        return {}
    if point.run.npu_mtbf_s is None:
        name = point.compute.accelerator or "the accelerator"
        reason = f"no rate of interruptions is known for {name}: set run.npu_mtbf"
        return dict.fromkeys(RUN_METRICS, reason)
    return {}
