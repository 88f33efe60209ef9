"""The seconds that a run loses to an interruption: the fields of `cosmic.design.run_layer.Run` brought to a machine's size.

Closed form and simulation both start here, and share nothing else. All functions take numbers or arrays.

The number of failure domains that are healthy, and spares: binomial, each domain broken or not by itself.

A domain is what fails together: a node, a rack, a cube of a torus. Domains that share a power feed or a switch do not
fail by themselves, and are better counted as one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import isnan, log, log1p, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from cosmic.base.errors import require
from cosmic.base.numeric import Condition, Numeric, choose, larger, power, smaller
from cosmic.design import schema
from cosmic.design.catalog_entries import load_constants
from cosmic.design.design_batch import first_known, none_to_nan
from cosmic.design.run_layer import Run, npu_mtbf_s
from cosmic.step.accelerator_rates import FieldLookup

NEVER_S = 1e12
"""Time between checkpoints of a run that takes none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsualRun:
    """How runs recover whose design does not say so."""

    failure_domain_npus: int
    detection_s: float
    restart_s: float
    restart_per_npu_s: float
    reconfigure_s: float
    checkpoint_bandwidth_bytes_per_s: float
    local_checkpoint_bandwidth_bytes_per_s: float
    remote_interval_s: float
    shortest_interval_s: float


USUAL_RUN = load_constants("goodput", UsualRun)


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptionTerms:
    """Times of one run on one machine, or of each design of a batch."""

    mtbf_s: Numeric
    """M: mean time between interruptions of the run."""
    replicas: Numeric
    """k: parts of the run that fail by themselves; 1 if an interruption stops all of it."""
    detection_s: Numeric
    """D: all stand still until the interruption is noticed."""
    stall_s: Numeric
    """S: and until the others go on without the replica that failed; 0 if none go on."""
    restart_s: Numeric
    """R: time from the detection until what failed is back, a checkpoint loaded; at least S."""
    block_s: Numeric
    """C: time that training stands still for a checkpoint."""
    hidden_s: Numeric
    """H: time from then until the checkpoint is complete, and of use."""
    interval_s: Numeric
    """Time of training between checkpoints as stated; NaN: the optimum."""
    shortest_s: Numeric
    """Shortest time between checkpoints: a new one begins when the last is complete."""
    remote_share: Numeric
    """Share of the interruptions of training that go back to remote storage."""
    remote_interval_s: Numeric
    remote_write_s: Numeric
    """Time between checkpoints in remote storage, and until one is complete."""
    slow_share: Numeric
    """Share of the time that some domain is slow."""
    slow_factor: Numeric
    """Time of a step then, over the usual."""
    domains: Numeric
    """Failure domains in use."""
    spare_domains: Numeric
    repair_s: Numeric | None
    """Mean time until a domain is back; None: there is always a replacement."""
    repair_load: Numeric
    """Mean time of a repair, over the mean time between failures of a domain."""
    elastic: Condition
    """Whether the run goes on with fewer replicas when spares are used up."""


def run_fields(run: Run, accelerator: str = "") -> FieldLookup:
    """Return a lookup of the fields of a run by key; the rate of interruptions may come from the *accelerator*.

    >>> run_fields(Run(), "h100-sxm-80gb")("npu_mtbf") > 1.8e8, run_fields(Run(npu_mtbf_s=9e7))("npu_mtbf")
    (True, 90000000.0)
    """

    def look_up(key: str) -> Any:
        value = schema.get_field(run, key)
        return npu_mtbf_s(accelerator)[0] if key == "npu_mtbf" and value is None and accelerator else value

    return look_up


def run_terms(
    fields: FieldLookup, npus: Numeric, dp: Numeric, state_bytes_per_npu: Numeric, work_s: Numeric | None = None
) -> InterruptionTerms | None:
    """Return what interruptions take of a run; None if the rate of interruptions is not known.

    *fields* looks up fields of a `Run` by their key; *state_bytes_per_npu* is what each accelerator writes of a
    checkpoint, and *work_s* the time that the run would take without interruptions, if it has a length.
    """
    mtbf = fields("npu_mtbf")
    if mtbf is None:
        return None
    by_key = {slot.key: slot.name for slot in schema.slots(UsualRun).values()}

    def usual(key: str) -> Any:
        """Return the field of the design, or the usual number where it states none."""
        return first_known(fields(key), getattr(USUAL_RUN, by_key[key]))

    domain, repair = usual("failure_domain_npus"), fields("repair")
    by_replica = fields("recovery") != "restart"
    replicas = choose(by_replica, dp, 1)
    # to remote storage, and to the host's memory
    write_s, copy_s = (
        state_bytes_per_npu / usual("checkpoint_bandwidth"),
        state_bytes_per_npu / usual("local_checkpoint_bandwidth"),
    )
    kind = fields("checkpoint")
    none, in_memory = kind == "none", kind == "in_memory"
    load_s = choose(in_memory | by_replica, copy_s, choose(none, 0.0, write_s))  # a replica loads from its peers
    restart_s = usual("restart") + usual("restart_per_npu") * (npus / replicas) + load_s
    load = 0.0 if repair is None else domain * first_known(repair, 0.0) / none_to_nan(mtbf)
    length_s = NEVER_S if work_s is None else work_s
    return InterruptionTerms(
        mtbf_s=none_to_nan(mtbf) / npus,
        replicas=replicas,
        detection_s=usual("detection"),
        stall_s=choose(by_replica, smaller(usual("reconfigure"), restart_s), 0.0),
        restart_s=restart_s,
        block_s=choose(none, 0.0, choose(kind == "blocking", write_s, copy_s)),
        hidden_s=choose(in_memory, copy_s, choose(kind == "asynchronous", write_s, 0.0)),
        interval_s=choose(none, length_s, none_to_nan(fields("checkpoint_interval"))),
        # one checkpoint is written to remote storage while the next is not yet due
        shortest_s=larger(USUAL_RUN.shortest_interval_s, choose(kind == "asynchronous", write_s - copy_s, 0.0)),
        remote_share=choose(in_memory, fields("remote_share"), 0.0),
        remote_interval_s=larger(usual("remote_interval"), write_s),
        remote_write_s=write_s,
        slow_share=1 - power(1 - fields("slow_node_share"), npus / domain),
        slow_factor=fields("slow_node_factor"),
        domains=-(-npus // domain),
        spare_domains=fields("spare_npus") // domain,
        repair_s=None if repair is None else first_known(repair, 0.0),
        repair_load=load,
        elastic=fields("recovery") == "elastic",
    )


# ---- Healthy failure domains and spares


BISECTION_STEPS = 60
"""Bisections: more than a float has bits."""


@lru_cache(maxsize=64)
def _pmf(domains: int, broken_share: float) -> npt.NDArray[np.float64]:
    """Return the probability of 0, 1, … *domains* broken ones."""
    if not 0 < broken_share < 1:
        probabilities = np.zeros(domains + 1)
        probabilities[0 if broken_share <= 0 else domains] = 1.0
        return probabilities
    broken = np.arange(domains)
    ratios = np.log((domains - broken) / (broken + 1)) + (log(broken_share) - log1p(-broken_share))
    logs = domains * log1p(-broken_share) + np.concatenate([[0.0], np.cumsum(ratios)])
    return np.asarray(np.exp(logs))


@lru_cache(maxsize=65536)
def spare_terms(domains: float, spares: float, load: float, replicas: float) -> tuple[float, float]:
    """Return how often spares replace all that is broken, and the share of replicas that are whole.

        P(K <= s),  E[(1 - 1/k)^max(0, K - s)]    with P(K = j + 1) / P(K = j) = r min(n, n + s - j) / (j + 1)

    n  domains in use      s  domains that stand by, which do not fail until they are used
    k  replicas            r  mean time of a repair, over the mean time between failures of a domain

    Each broken domain beyond the spares is in one of the replicas, any of them as likely. Without spares K is binomial,
    with many Poisson; how long repairs take on average decides, not how they are distributed.

    >>> spare_terms(2, 0, 1.0, 1)  # K is 0, 1, 2 with 1/4, 2/4, 1/4
    (0.25, 0.25)
    >>> [round(31 * each, 9) for each in spare_terms(2, 1, 0.5, 2)]  # with 12, 12, 6, 1 of 31; 24 + 6/2 + 1/4
    [24.0, 27.25]
    """
    if isnan(load):
        return load, load
    domains_needed, spare = int(domains), int(spares)
    if load <= 0 or domains_needed < 1:
        return 1.0, 1.0
    broken = np.arange(_most_broken(domains_needed, spare, load))
    ratios = np.log(load * np.minimum(domains_needed, domains_needed + spare - broken) / (broken + 1))
    logs = np.concatenate([[0.0], np.cumsum(ratios)])
    chances = np.exp(logs - logs.max())
    chances /= chances.sum()
    beyond = np.maximum(np.arange(len(chances)) - spare, 0)
    return min(1.0, float(chances[beyond == 0].sum())), min(1.0, float((chances * (1 - 1 / replicas) ** beyond).sum()))


def _most_broken(domains: int, spares: int, load: float) -> int:
    """Return a number of broken domains that is as good as never exceeded: ten deviations above the mean."""
    mean = domains * load
    return int(min(domains + spares, mean + 10 * sqrt(mean) + spares + 20))


def healthy_domains(domains: int, availability: float, probability: float) -> int:
    """Return how many of *domains* are healthy with some *probability*: the most that are so at least that often.

    >>> healthy_domains(2, 0.5, 0.7), healthy_domains(2, 0.5, 0.8)  # one or more with 3/4
    (1, 0)
    """
    _check_shares(availability=availability, probability=probability)
    cumulative = np.cumsum(_pmf(domains, 1 - availability))
    broken = int(np.searchsorted(cumulative, probability * (1 - 1e-12)))
    return domains - min(broken, domains)


def spares_needed(domains: int, availability: float, probability: float) -> int:
    """Return how many domains beside *domains* make that many healthy with some *probability*.

    The spares fail as often as the others.

    >>> spares_needed(1, 0.5, 0.7), spares_needed(1, 0.5, 0.8)  # 1 - 1/4 are enough, or not; 1 - 1/8 are
    (1, 2)
    """
    _check_shares(availability=availability, probability=probability)
    require(availability > 0, "availability", availability, "must be positive")
    low, high = 0, 1
    while healthy_domains(domains + high, availability, probability) < domains:
        low, high = high, high * 2
    while low < high:
        middle = (low + high) // 2
        enough = healthy_domains(domains + middle, availability, probability) >= domains
        low, high = (low, middle) if enough else (middle + 1, high)
    return low


def availability_range(domains: int, healthy: int, probability: float) -> tuple[float, float]:
    """Return the availabilities of a domain, from and to below, with which exactly *healthy* of *domains* are healthy.

    What a source that states only the result must have assumed.

    >>> [round(each, 4) for each in availability_range(2, 1, 0.75)]  # 1 - (1 - A)^2 >= 3/4 > A^2
    [0.5, 0.866]
    """
    _check_shares(probability=probability)
    require(0 <= healthy <= domains, "healthy", healthy, f"must be from 0 to {domains}")
    return _least_availability(domains, healthy, probability), _least_availability(domains, healthy + 1, probability)


def _least_availability(domains: int, healthy: int, probability: float) -> float:
    """Return the lowest availability with which *healthy* domains or more are healthy; 1 if none is enough."""
    low, high = 0.0, 1.0
    for _ in range(BISECTION_STEPS):
        middle = (low + high) / 2
        enough = healthy_domains(domains, middle, probability) >= healthy
        low, high = (low, middle) if enough else (middle, high)
    return high


def _check_shares(**shares: float) -> None:
    for key, share in shares.items():
        require(0 <= share <= 1, key, share, "must be from 0 to 1")
