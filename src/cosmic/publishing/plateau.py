"""The plateau of a search: how many designs are as good as the best, by a small share and by the model's own error."""

from __future__ import annotations

import numpy as np

from cosmic.exploration.objectives import losses
from cosmic.exploration.searching import Found
from cosmic.publishing.contract import Plateau

SHARE = 0.01
"""Designs whose first objective is within this share of the best are as good as the best."""


def plateau_of(found: Found, expected_error: float | None) -> Plateau | None:
    """Return how many designs are as good as the best; None where none can run.

    *expected_error* is the mean relative error of the model: designs that differ by less cannot be told apart by it.
    """
    problem, trials = found.problem, found.trials
    if not trials.feasible:
        return None
    values = losses(problem.objectives[:1], trials.results.columns)[:, 0][trials.results.feasible]
    best = float(np.nanmin(values))

    def near(share: float) -> int:
        return int((values <= best * (1 + share)).sum())

    count = near(SHARE)
    unsure = None if expected_error is None else near(expected_error)
    return {
        "share": SHARE,
        "count": count,
        "error": expected_error,
        "within_error": unsure,
        "sentence": _sentence(count, unsure, expected_error, trials.feasible),
    }


def _sentence(count: int, unsure: int | None, error: float | None, feasible: int) -> str:
    if feasible == 1:
        return "It is the only design that can run."
    others = count - 1
    said = (
        f"No other design lies within {_percent(SHARE)} of it"
        if not others
        else f"{count:,} designs lie within {_percent(SHARE)} of the best, this one among them"
    )
    if unsure is None or error is None:
        return f"{said}."
    if unsure == count:
        return f"{said}, and no more within {_percent(error)}, the error to expect of the model."
    return f"{said}; {unsure:,} lie within {_percent(error)}, the error to expect of the model."


def _percent(share: float) -> str:
    """Return a share with two digits.

    >>> _percent(0.01), _percent(0.0589)
    ('1 %', '5.9 %')
    """
    return f"{100 * share:.2g} %"
