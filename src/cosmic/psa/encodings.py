"""Points as agents like them: one-hot vectors and the unit cube. Decoding always gives valid points."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cosmic.psa.diagram import Indices
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
