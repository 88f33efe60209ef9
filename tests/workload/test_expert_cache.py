"""Hits of a cache of experts."""

from __future__ import annotations

import pytest

from cosmic.base.errors import SpecError
from cosmic.workload.expert_routing import LfuRule, cached_hits, hit_rate, top_share, used_probability


def test_a_step_uses_an_expert_that_some_token_picks() -> None:
    assert used_probability(4, 1, 0.0, 2)[0] == pytest.approx(1 - 0.75**2)


def test_the_most_popular_experts_are_hit_by_their_share() -> None:
    assert top_share(4, 1, 1.0, 1, 1) == pytest.approx(12 / 25)


@pytest.mark.parametrize("skew", [0.5, 1.0, 2.0])
def test_counts_find_the_most_popular_experts(skew: float) -> None:
    found = hit_rate(64, 2, skew, 16, 32)
    assert found == pytest.approx(top_share(64, 2, skew, 16, 32), abs=0.03)
    assert found > 16 / 64


def test_played_again_it_is_the_same() -> None:
    assert hit_rate(32, 1, 1.0, 8, 16, seed=3) == hit_rate(32, 1, 1.0, 8, 16, seed=3)


def test_a_cache_of_all_hits_always_and_one_of_none_never() -> None:
    assert (hit_rate(8, 1, 1.0, 8, 4), hit_rate(8, 1, 1.0, 0, 4)) == (1.0, 0.0)


def test_counts_that_never_fade_follow_popularity_late() -> None:
    kept, faded = (hit_rate(64, 1, 1.5, 8, 8, LfuRule(decay=decay), drift=0.5) for decay in (1.0, 0.5))
    assert faded > kept


def test_hits_are_the_share_if_routing_is_balanced_and_never_beat_the_most_popular() -> None:
    assert cached_hits("64 1 0 0", 0.3, 0.0, 100.0) == (0.3, 0.3)
    found, most = cached_hits("64 1 0 0", 0.25, 1.0, 64.0)
    assert 0.25 < found <= most


def test_bad_rules_are_refused() -> None:
    for bad in ({"decay": 0.0}, {"every": 0}, {"threshold": -1.0}):
        with pytest.raises(SpecError):
            LfuRule(**bad)
