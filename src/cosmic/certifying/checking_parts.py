"""What the parts of the checker share: refusals, and the space taken apart anew."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from cosmic.errors import CosmicError
from cosmic.psa.space import ParameterSet

Whole = npt.NDArray[np.intp]


class Refused(CosmicError):  # noqa: N818  a certificate is refused
    """Why a certificate proves nothing: one sentence."""


def refuse_unless(holds: bool, why: str) -> None:
    """Raise `Refused` unless *holds*."""
    if not holds:
        raise Refused(f"the certificate is refused: {why}")


def is_whole(values: Any) -> bool:
    """Return whether *values* is a list of numbers that can be indices."""
    return isinstance(values, list) and all(type(each) is int and 0 <= each < 2**31 for each in values)


class Parts:
    """The ranges, choices and skeletons that a certificate speaks of, read from the space."""

    def __init__(self, found: Mapping[str, Any], space: ParameterSet) -> None:
        self.space = space
        alone = {each.columns[0]: each for each in space.components if len(each.columns) == 1}
        free = {column: each for column, each in alone.items() if column not in space.following}
        self.range_columns: list[int] = []
        self.range_indices: list[Whole] = []
        for each in found["ranges"]:
            column, indices = self._range(each, free)
            self.range_columns.append(column)
            self.range_indices.append(indices)
        self.choice_columns: list[list[int]] = []
        self.options: list[Whole] = []
        self.dimensions: list[int] = []
        for each in found["choices"]:
            self._choice(each, free)
        taken = [*self.range_columns, *(column for columns in self.choice_columns for column in columns)]
        refuse_unless(len(set(taken)) == len(taken), "a parameter is there twice")
        self.others = [each for each in space.components if each.columns[0] not in taken]
        self.count = prod(each.diagram.count for each in self.others)
        refuse_unless(self.count <= 4_000_000, "it has more skeletons than can be listed")
        self.widths = [len(each) for each in self.range_indices]
        self.skeletons = self._listed()

    @staticmethod
    def _fields(stated: Any, *names: str) -> list[Any]:
        return [stated.get(name) if isinstance(stated, dict) else None for name in names]

    def _values(self, component: Any) -> list[int]:
        found: list[int] = component.diagram.nth(np.arange(component.diagram.count))[:, 0].tolist()
        return found

    def _range(self, stated: Any, free: Mapping[int, Any]) -> tuple[int, Whole]:
        column, indices = self._fields(stated, "column", "indices")
        refuse_unless(type(column) is int and column in free and is_whole(indices), "a range is malformed")
        parameter = self.space.parameters[column]
        ends = {path.rpartition(".")[2] for path in parameter.paths}
        named = all(path.startswith("network.dims.") for path in parameter.paths)
        refuse_unless(named and ends in ({"bandwidth"}, {"latency"}), "a range is of something other than speed")
        refuse_unless(sorted(indices) == sorted(self._values(free[column])), "a range leaves out values, or has others")
        values = np.array([parameter.values[index] for index in indices], dtype=np.float64)
        steps = np.diff(values, axis=0) * (1 if ends == {"bandwidth"} else -1)
        refuse_unless(bool((steps >= 0).all()), "a range does not go from slow to fast")
        return column, np.array(indices, dtype=np.intp)

    def _choice(self, stated: Any, free: Mapping[int, Any]) -> None:
        columns, options = self._fields(stated, "columns", "options")
        shaped = is_whole(columns) and len(columns) > 0 and all(each in free for each in columns)
        refuse_unless(shaped and isinstance(options, list) and all(map(is_whole, options)), "a choice is malformed")
        dimensions = set()
        for column in columns:
            paths = self.space.parameters[column].paths
            words = paths[0].split(".")
            named = words[:2] == ["collective", "algorithms"] or (words[:2], words[3:]) == (
                ["network", "dims"],
                ["topology"],
            )
            refuse_unless(len(paths) == 1 and named, "a choice is of something else than topology and algorithm")
            dimensions.add(int(words[2]))
        refuse_unless(len(dimensions) == 1, "a choice is of several dimensions")
        wanted = sorted(product(*(self._values(free[column]) for column in columns)))
        refuse_unless(wanted == sorted(map(tuple, options)), "a choice leaves out options, or has others")
        self.choice_columns.append(columns)
        self.options.append(np.array(options, dtype=np.intp))
        self.dimensions.append(dimensions.pop())

    def _listed(self) -> Whole:
        """Return all skeletons, components in the order of the space, the last one changing fastest."""
        rows = np.zeros((self.count, len(self.space.parameters)), dtype=np.intp)
        for columns, options in zip(self.choice_columns, self.options, strict=True):
            rows[:, columns] = options[0]
        for column, indices in zip(self.range_columns, self.range_indices, strict=True):
            rows[:, column] = indices[0]
        counts = [each.diagram.count for each in self.others]
        places = np.unravel_index(np.arange(self.count), counts) if counts else ()
        for each, place in zip(self.others, places, strict=True):
            rows[:, each.columns] = each.diagram.nth(np.arange(each.diagram.count))[place]
        return rows

    def rows(self, skeletons: Whole, options: Whole, places: Whole) -> Whole:
        """Return the rows of designs."""
        found = self.skeletons[skeletons]
        for number, columns in enumerate(self.choice_columns):
            found[:, columns] = self.options[number][options[:, number]]
        for number, column in enumerate(self.range_columns):
            found[:, column] = self.range_indices[number][places[:, number]]
        return found

    @property
    def spread(self) -> int:
        """How many designs share a skeleton."""
        return prod(len(each) for each in self.options) * prod(self.widths)
