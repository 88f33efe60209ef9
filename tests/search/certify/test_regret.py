"""Tournaments state regret against a proven optimum."""

from __future__ import annotations

from pathlib import Path

import cosmic
from cosmic.search.certify.certifying import proven_loss
from cosmic.search.leaderboard import hold_tournament
from cosmic.search.problem import make_problem
from cosmic.search.search_inputs import Options

SPACE = Path(__file__).parents[3] / "examples" / "proof" / "small.yaml"


def test_regret_is_against_what_was_proven() -> None:
    space = cosmic.load_space(SPACE)
    plain, proven = (
        hold_tournament(space, ["random"], seeds=1, options=Options(trials=30), prove=prove)
        for prove in (None, proven_loss)
    )
    assert (plain.optimum, proven.optimum) == ("found", "proven")
    assert plain.rows()[0]["regret_mean"] == 0
    assert proven.rows()[0]["regret_mean"] > 0


def test_what_cannot_be_proven_gives_no_reference() -> None:
    space = cosmic.load_space(SPACE)
    assert proven_loss(make_problem(space, ["step_s", "network_usd"])) is None
    assert proven_loss(make_problem(space, ["step_s"], ["step_s <= 1 ms"])) is None
