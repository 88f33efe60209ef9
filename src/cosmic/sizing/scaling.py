"""Designs with some of their numbers multiplied, such as another price or bandwidth."""

from __future__ import annotations

from collections.abc import Mapping

from cosmic.design import schema
from cosmic.design.point import DesignPoint
from cosmic.errors import require

EVERY_DIMENSION = "network.dims.*"
"""In a path of factors: each dimension of the network."""
OUTERMOST = "network.outermost"
"""In a path of factors: the dimension between nodes, if there are several."""


def scaled(point: DesignPoint, factors: Mapping[str, float]) -> DesignPoint:
    """Return a design with numbers multiplied; what is not known, or is not there at its size, stays so."""
    changes = {}
    for stated, factor in factors.items():
        for path in _places(point, stated):
            value = schema.get(point, path)
            require(value is None or isinstance(value, int | float), path, value, "is no number")
            if value is not None:
                changes[path] = value * factor
    scaled: DesignPoint = schema.assign(point, changes) if changes else point
    return scaled


def _places(point: DesignPoint, path: str) -> list[str]:
    """Return the paths that are meant: a machine has as many network dimensions as its size needs."""
    dims = len(point.network.dims)
    if path.startswith(EVERY_DIMENSION):
        return [path.replace("*", str(place)) for place in range(dims)]
    if path.startswith(OUTERMOST):  # within one node there is no network between nodes
        return [path.replace(OUTERMOST, f"network.dims.{dims - 1}")] if dims > 1 else []
    return [path]
