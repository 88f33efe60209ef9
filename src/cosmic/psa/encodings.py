"""Points encoded for models: as one-hot vectors, or as coordinates in which similar points are near each other."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from cosmic.psa.diagram import Indices
from cosmic.psa.parameters import Parameter
from cosmic.psa.space import ParameterSet

Floats = npt.NDArray[np.float64]


def to_one_hot(space: ParameterSet, rows: Indices) -> Floats:
    """Return a 0/1 vector for each row, with an entry for each value of each parameter."""
    starts = np.concatenate(([0], np.cumsum(space.sizes)[:-1])).astype(np.intp)
    encoded = np.zeros((len(rows), sum(space.sizes)))
    np.put_along_axis(encoded, rows + starts, 1.0, axis=1)
    return encoded


def coordinates(space: ParameterSet) -> Callable[[Indices], Floats]:
    """Return a function that encodes points as coordinates in which similar points are near each other.

    A number becomes its rank among the values, scaled to 0..1, so that powers of two are evenly spaced. A parameter
    that sets several numbers has a coordinate for each. A name is one-hot, and any two names are a distance of 1 apart.
    """
    tables = [_ranks(each) if each.ordered else _corners(len(each.values)) for each in space.parameters]

    def encode(rows: Indices) -> Floats:
        return np.concatenate([table[rows[:, place]] for place, table in enumerate(tables)], axis=1)

    return encode


def _ranks(parameter: Parameter) -> Floats:
    """Return the scaled rank of each value; a column for each number that the parameter sets."""
    found = []
    for part in zip(*parameter.values, strict=True):
        known = np.unique(np.array(part, dtype=float))
        found.append(np.searchsorted(known, part) / max(len(known) - 1, 1))
    return np.stack(found, axis=1)


def _corners(size: int) -> Floats:
    """Return *size* points that are all a distance of 1 apart; two need one coordinate only."""
    return np.arange(size, dtype=float)[:, None] if size <= 2 else np.eye(size) / np.sqrt(2)
