"""Where the gain of a search comes from: the changes from the base to the best, each with its factor.

    gain = product of the factors        factor of a change = exp(its Shapley value of -ln loss)

Shapley values add up to the whole difference (see `cosmic.comparing`); of logarithms, they give factors whose product
is the gain.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, isfinite, log, prod

import numpy as np

from cosmic.comparing import (
    Between,
    Fields,
    Group,
    as_text,
    attribute,
    coupled,
    differing_fields,
    finer_group_of,
)
from cosmic.design.point import DesignPoint
from cosmic.exploration.objectives import loss
from cosmic.exploration.verdict import times
from cosmic.publishing.contract import Change, Why

MOST = 5
NOTHING: Why = {"sentence": "", "changes": [], "rest": None, "method": "none", "compared": []}
FACTOR_OF_NONE = 1e-3
"""Changes whose factor is nearer to 1 than this have no effect, to three digits."""


def why(base: DesignPoint, best: DesignPoint, objective: str, compared: list[int], engine: str = "analytic") -> Why:
    """Return the changes that make *best* better than *base* in an objective: in closed form with any *engine*."""
    fields = fields_of(base, best)
    if not fields:
        return {**NOTHING, "sentence": "The best design is the base.", "compared": compared}

    def measure(metrics: Mapping[str, float]) -> float | None:
        value = float(loss(objective, np.array([metrics[objective]]))[0])
        return log(value) if isfinite(value) and value > 0 else None

    between = Between(base, best, fields, measure)
    groups = coupled([(name,) for name in fields], between.fits)
    start, end = between.value(()), between.value(groups)
    if start is None or end is None:
        changes = [_change(group, fields, None, None) for group in groups]
        sentence = "One of the designs has no value of the objective, so no change has a factor."
        return {**NOTHING, "sentence": sentence, "changes": changes[:MOST], "compared": compared}
    method, worth = attribute(groups, between.value)
    found = []
    for group in groups:
        part, alone = worth[group], between.value((group,))
        factors = (None if part is None else exp(-part), None if alone is None else exp(start - alone))
        found.append(_change(group, fields, *factors))
    found.sort(key=lambda each: -abs(log(each["worth"] or 1.0)))
    kept = found[:MOST]
    whole = exp(start - end)
    rest = whole / prod(each["worth"] or 1.0 for each in kept)
    left = rest if len(found) > MOST or abs(rest - 1) > FACTOR_OF_NONE else None
    return {
        "sentence": _sentence(kept, whole)
        + ("" if engine == "analytic" else " These factors are closed forms, not simulated."),
        "changes": kept,
        "rest": left,
        "method": method,
        "compared": compared,
    }


def fields_of(base: DesignPoint, best: DesignPoint) -> Fields:
    """Return the fields that differ, in groups; finer ones for designs with equally many network dimensions."""
    alike = len(base.network.dims) == len(best.network.dims)
    return differing_fields(base, best, finer_group_of if alike else None)


def _change(group: Group, fields: Fields, worth: float | None, alone: float | None) -> Change:
    changed = [(path, pair) for name in group for path, pair in fields[name].items()]
    return {
        "label": " and ".join(name.removeprefix("workload.").replace("_", " ") for name in group),
        "fields": [{"path": path, "from": as_text(old), "to": as_text(new)} for path, (old, new) in changed],
        "worth": worth,
        "alone": alone,
    }


def _sentence(changes: list[Change], whole: float) -> str:
    rated = [each for each in changes if each["worth"] is not None]
    if not rated:
        return "The gain cannot be split over the changes."
    named = [(each["worth"] or 1.0, f"{each['label']} ({times(each['worth'] or 1.0)})") for each in rated]
    helps = [name for factor, name in named if factor > 1 + FACTOR_OF_NONE]
    costs = [name for factor, name in named if factor < 1 - FACTOR_OF_NONE]
    said = f"{times(whole)} in all" + (f": {_and(helps[:3])}" if helps else "")
    return said + (f"; {_and(costs[:2])} cost{'s' if len(costs[:2]) == 1 else ''} some of it" if costs else "") + "."


def _and(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
