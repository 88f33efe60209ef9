"""Points as agents like them: one-hot vectors, the unit cube, coordinates. Decoding always gives valid points."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from cosmic.psa.diagram import Indices
from cosmic.psa.parameters import Parameter
from cosmic.psa.space import ParameterSet

Floats = npt.NDArray[np.float64]


def to_one_hot(space: ParameterSet, rows: Indices) -> Floats:
    """Return a 0/1 vector for each row: as many places per parameter as it has values."""
    starts = np.concatenate(([0], np.cumsum(space.sizes)[:-1])).astype(np.intp)
    encoded = np.zeros((len(rows), sum(space.sizes)))
    np.put_along_axis(encoded, rows + starts, 1.0, axis=1)
    return encoded


def from_one_hot(space: ParameterSet, encoded: Floats) -> Indices:
    """Return the valid point nearest to each vector's largest entry per parameter."""
    edges = np.cumsum(space.sizes)[:-1]
    chosen = [part.argmax(axis=1) for part in np.split(encoded, edges, axis=1)]
    return space.repair(np.stack(chosen, axis=1).astype(np.intp))


def to_unit_cube(space: ParameterSet, rows: Indices) -> Floats:
    """Return a coordinate between 0 and 1 per parameter: the middle of its value's interval."""
    return np.asarray((rows + 0.5) / np.array(space.sizes))


def from_unit_cube(space: ParameterSet, encoded: Floats) -> Indices:
    """Return the valid point nearest to each point of the cube."""
    inside = np.clip(np.nan_to_num(encoded, nan=0.5), 0.0, 1.0)
    return space.repair(np.floor(inside * np.array(space.sizes)).astype(np.intp))


def coordinates(space: ParameterSet) -> Callable[[Indices], Floats]:
    """Return a function that gives points as models like them: what is alike is near.

    A number is its rank among the values, from 0 to 1: powers of two are even steps. A parameter that sets several
    numbers has a coordinate for each. A name is one-hot, and any two names are a distance of 1 apart.
    """
    tables = [_ranks(each) if each.ordered else _corners(len(each.values)) for each in space.parameters]

    def encode(rows: Indices) -> Floats:
        return np.concatenate([table[rows[:, place]] for place, table in enumerate(tables)], axis=1)

    return encode


def _ranks(parameter: Parameter) -> Floats:
    """Return for each value of a number, or of several, how far up it is among all that occur."""
    found = []
    for part in zip(*parameter.values, strict=True):
        known = np.unique(np.array(part, dtype=float))
        found.append(np.searchsorted(known, part) / max(len(known) - 1, 1))
    return np.stack(found, axis=1)


def _corners(size: int) -> Floats:
    """Return *size* points that are all 1 apart; two fit on a line."""
    return np.arange(size, dtype=float)[:, None] if size <= 2 else np.eye(size) / np.sqrt(2)
