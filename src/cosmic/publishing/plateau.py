"""The plateau of a search as the page shows it: how many designs are as good as the best, in numbers and in words."""

from __future__ import annotations

from cosmic.exploration.plateau import Plateau as Ground
from cosmic.exploration.searching import Found
from cosmic.exploration.verdict import choice_text
from cosmic.publishing.contract import Plateau


def plateau_of(found: Found, ground: Ground | None) -> Plateau | None:
    """Return how many designs are as good as the best; None where none can run."""
    if ground is None:
        return None
    return {
        "share": ground.within,
        "count": ground.count,
        "error": ground.error,
        "within_error": None if ground.error is None else ground.within_error,
        "sentence": _sentence(found, ground),
    }


def _sentence(found: Found, ground: Ground) -> str:
    if found.trials.feasible == 1:
        return "It is the only design that can run."
    problem = found.problem
    chosen = len(problem.objectives) == 1 and not problem.space.workloads and problem.engine == "analytic"
    said = f"{ground.count:,} designs lie within {_percent(ground.within)} of the best, this one among them"
    if ground.count == 1:
        said = f"No other design lies within {_percent(ground.within)} of it"
    elif chosen:
        said = choice_text(ground)
    if ground.error is None:
        return f"{said}."
    error = f"within {_percent(ground.error)}, the error to expect of the model"
    if ground.within_error == ground.count:
        return f"{said}, and no more {error}."
    return f"{said}; {ground.within_error:,} lie {error}."


def _percent(share: float) -> str:
    """Return a share with two digits.

    >>> _percent(0.01), _percent(0.0589)
    ('1 %', '5.9 %')
    """
    return f"{100 * share:.2g} %"
