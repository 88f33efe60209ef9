"""The number of failure domains that are healthy, and spares: binomial, each domain broken or not by itself.

A domain is what fails together: a node, a rack, a cube of a torus. Domains that share a power feed or a switch do not
fail by themselves, and are better counted as one.
"""

from __future__ import annotations

from functools import lru_cache
from math import isnan, log, log1p, sqrt

import numpy as np
import numpy.typing as npt

from cosmic.base.errors import require

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
