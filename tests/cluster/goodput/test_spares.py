"""How many domains are healthy: by hand, by brute force, and as others stated."""

from __future__ import annotations

from itertools import product
from math import comb

import numpy as np
import pytest

from cosmic.base.errors import SpecError
from cosmic.cluster.interruption_terms import availability_range, healthy_domains, spare_terms, spares_needed
from tests.batches import check_all


def at_least(domains: int, healthy: int, availability: float) -> float:
    """Return the probability that so many or more are healthy, summed term by term."""
    return sum(
        comb(domains, each) * availability**each * (1 - availability) ** (domains - each)
        for each in range(healthy, domains + 1)
    )


def test_130_of_144_cubes_are_healthy_with_95_percent() -> None:
    low, high = availability_range(144, 130, 0.95)
    assert (round(low, 4), round(high, 4)) == (0.9347, 0.9403)
    assert healthy_domains(144, 0.9375, 0.95) == 130
    assert at_least(144, 130, 0.9375) >= 0.95 > at_least(144, 131, 0.9375)


@check_all("domains", [1, 5, 40, 300])
@check_all("availability", [0.0, 0.3, 0.9, 0.999, 1.0])
@check_all("probability", [0.5, 0.95, 0.999])
def test_healthy_domains_are_the_most_with_that_probability(
    domains: int, availability: float, probability: float
) -> None:
    found = healthy_domains(domains, availability, probability)
    assert at_least(domains, found, availability) >= probability - 1e-9
    assert found == domains or at_least(domains, found + 1, availability) < probability


def test_a_million_domains_are_counted() -> None:
    found = healthy_domains(1_000_000, 0.99, 0.95)
    assert found == pytest.approx(990_000 - 1.645 * np.sqrt(9900), abs=2)  # the normal limit


def test_spares_make_up_for_what_is_broken() -> None:
    found = spares_needed(132, 0.987, 0.999)
    assert at_least(132 + found, 132, 0.987) >= 0.999 > at_least(132 + found - 1, 132, 0.987)
    assert found / 132 == pytest.approx(0.05, abs=0.005)  # Delta's 5 %
    assert spares_needed(10, 1.0, 0.999) == 0


def test_spares_that_stand_by_by_hand() -> None:
    # One domain in use, one spare, repairs as long as the time between failures: weights 1, 1, 1/2 for 0, 1, 2 broken.
    enough, whole = spare_terms(1, 1, 1.0, 4)
    assert enough == pytest.approx(2 / 2.5)
    assert whole == pytest.approx((2 + 0.5 * 0.75) / 2.5)


def test_without_spares_every_domain_is_up_by_itself() -> None:
    load, broken = 0.25, 0.2
    enough, whole = spare_terms(3, 0, load, 2)
    chances = [np.prod([broken if each else 1 - broken for each in state]) for state in product((0, 1), repeat=3)]
    numbers = [sum(state) for state in product((0, 1), repeat=3)]
    assert enough == pytest.approx(0.8**3)
    assert whole == pytest.approx(sum(c * 0.5**n for c, n in zip(chances, numbers, strict=True)))


def test_no_failures_no_waiting_and_more_spares_less() -> None:
    assert spare_terms(1000, 0, 0.0, 8) == (1.0, 1.0)
    shares = [spare_terms(125_000, spares, 0.004, 64) for spares in (0, 100, 450, 500, 600, 200_000)]
    assert shares == sorted(shares)
    assert shares[0][0] < 1e-9
    assert shares[-1] == (1.0, 1.0)
    assert 0.4 < shares[3][0] < 0.6  # the mean of the Poisson limit: 500


def test_shares_beyond_one_are_refused() -> None:
    with pytest.raises(SpecError, match=r"availability = 1.1: must be from 0 to 1"):
        healthy_domains(3, 1.1, 0.9)
    with pytest.raises(SpecError, match=r"healthy = 4: must be from 0 to 3"):
        availability_range(3, 4, 0.9)
