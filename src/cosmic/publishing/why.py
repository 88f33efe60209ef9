"""What the gain of a search is due to: the changes from the base to the best, and the factor that each answers for.

    gain = product of the factors        factor of a change = exp(its Shapley value of -ln loss)

Shapley values add up to the whole difference (see `cosmic.comparing`); in logarithms, that makes factors which multiply
to the gain.
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
"""Changes whose factor is nearer to 1 than this are worth nothing, to three digits."""


def why(base: DesignPoint, best: DesignPoint, objective: str, compared: list[int], engine: str = "analytic") -> Why:
    """Return what makes *best* better than *base* by the first objective: in closed form, whatever the *engine*."""
    fields = fields_of(base, best)
    if not fields:
        return {**NOTHING, "sentence": "The best design is the base itself.", "compared": compared}

    def measure(metrics: Mapping[str, float]) -> float | None:
        value = float(loss(objective, np.array([metrics[objective]]))[0])
        return log(value) if isfinite(value) and value > 0 else None

    between = Between(base, best, fields, measure)
    groups = coupled([(name,) for name in fields], between.fits)
    start, end = between.value(()), between.value(groups)
    if start is None or end is None:
        changes = [_change(group, fields, None, None) for group in groups]
        sentence = "One of the designs has no value to compare, so that no change has a worth."
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
        "sentence": _sentence(kept, whole) + ("" if engine == "analytic" else " These are closed forms, not played."),
        "changes": kept,
        "rest": left,
        "method": method,
        "compared": compared,
    }


def fields_of(base: DesignPoint, best: DesignPoint) -> Fields:
    """Return the fields that differ, in groups as fine as designs of one shape allow."""
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
        return "What the changes are worth apart cannot be told."
    named = [(each["worth"] or 1.0, f"{each['label']} ({times(each['worth'] or 1.0)})") for each in rated]
    helps = [name for factor, name in named if factor > 1 + FACTOR_OF_NONE]
    costs = [name for factor, name in named if factor < 1 - FACTOR_OF_NONE]
    said = f"{times(whole)} in all" + (f": {_and(helps[:3])}" if helps else "")
    return said + (f"; {_and(costs[:2])} cost{'s' if len(costs[:2]) == 1 else ''} some of it" if costs else "") + "."


def _and(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
