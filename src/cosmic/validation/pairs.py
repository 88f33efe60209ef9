"""How far off ratios of two predictions are: over pairs of runs of one source (`cosmic.catalog.pair_accuracy`)."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from typing import Any

import numpy as np

from cosmic.catalog.accuracy import Learned
from cosmic.catalog.pair_accuracy import LEVELS, RELATIONS, facets, relation
from cosmic.validation.conformal import LEAST_CORRELATION, quantile
from cosmic.validation.residuals import PredictedStep


def learn_pairs(found: Iterable[PredictedStep], scale: Learned) -> dict[str, dict[str, Any]]:
    """Return the sizes of errors of ratios over their *scale*, by relation, as the catalog has them.

    Each source counts as in `cosmic.validation.conformal`: many pairs of a few runs are worth few. A relation without
    pairs takes those of the nearest that has some.
    """
    groups: dict[tuple[str, ...], list[PredictedStep]] = {}
    for each in found:
        groups.setdefault((each.step.source, *each.step.group), []).append(each)
    table: dict[str, dict[str, list[float]]] = {name: {} for name in RELATIONS}
    for (source, *_), runs in groups.items():
        sides = [(facets(run.step.point), run.residual.error, scale.scale(run.residual.traits)) for run in runs]
        for (one, error, usual), (other, another, common) in combinations(sides, 2):
            size = 2 * abs(error - another) / (usual + common)
            table[relation(one, other)].setdefault(source, []).append(size)
    entries: dict[str, dict[str, Any]] = {}
    for name in RELATIONS:
        sizes = (
            _sizes(table[name])
            if table[name]
            else next((each["sizes"] for each in entries.values()), [1.0] * len(LEVELS))
        )
        pairs = sum(map(len, table[name].values()))
        entries[name] = {"pairs": pairs, "sources": len(table[name]), "sizes": sizes}
    return entries


def _sizes(by_source: dict[str, list[float]]) -> list[float]:
    """Return the sizes of errors at each of `LEVELS`, with sources weighted."""
    weights = [np.full(len(part), 1 / (1 + (len(part) - 1) * LEAST_CORRELATION)) for part in by_source.values()]
    values, weight = np.concatenate([np.array(part) for part in by_source.values()]), np.concatenate(weights)
    return [round(quantile(values, weight, level), 4) for level in LEVELS]
