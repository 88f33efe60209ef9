"""A parameter set as skeletons × choices × ranges.

    range     a parameter of ordered numbers of the network, such as the bandwidth of a dimension
    choice    the names of one dimension, topology and algorithm, chosen together
    skeleton  everything else, one combination of it

Ranges and choices are parameters that no constraint ties to others and that no derived field follows; the rest is part
of the skeleton. Every valid row is one skeleton with one option of every choice and one place of every range.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
import numpy.typing as npt

from cosmic.psa.diagram import Indices
from cosmic.psa.space import Component, ParameterSet

RANGE = re.compile(r"network\.dims\.\d+\.(bandwidth|latency)")
CHOICE = re.compile(r"(?:network\.dims\.(\d+)\.topology|collective\.algorithms\.(\d+))")
FASTER_WHEN_LESS = "latency"
MOST_SKELETONS = 4_000_000
"""Skeletons that are listed, at most."""


@dataclass(frozen=True, slots=True)
class Range:
    """A parameter of ordered numbers."""

    column: int
    paths: tuple[str, ...]
    indices: Indices
    """Of its values, from the slowest to the fastest."""
    values: npt.NDArray[np.float64]
    """In that order: a row for each, a column for each path."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The names of one dimension of the network."""

    place: int
    columns: tuple[int, ...]
    paths: tuple[str, ...]
    options: Indices
    """Valid combinations of value indices, a row each."""


@dataclass(frozen=True, eq=False)
class Division:
    """A parameter set, taken apart."""

    space: ParameterSet
    ranges: tuple[Range, ...]
    choices: tuple[Choice, ...]
    parts: tuple[Component, ...]
    """The components that make up skeletons."""

    @property
    def count(self) -> int:
        """How many skeletons there are."""
        return prod(each.diagram.count for each in self.parts)

    @property
    def spread(self) -> int:
        """How many designs share a skeleton."""
        return prod(len(each.options) for each in self.choices) * prod(len(each.values) for each in self.ranges)

    @cached_property
    def skeletons(self) -> Indices:
        """A row for each skeleton, with the first option of every choice and the slowest end of every range."""
        rows = np.zeros((self.count, len(self.space.parameters)), dtype=np.intp)
        repeats = self.count
        for part in self.parts:
            here = part.diagram.count
            repeats //= here
            listed = part.diagram.nth(np.arange(here))
            rows[:, part.columns] = listed[(np.arange(self.count) // repeats) % here]
        for choice in self.choices:
            rows[:, choice.columns] = choice.options[0]
        for each in self.ranges:
            rows[:, each.column] = each.indices[0]
        return rows

    def rows(self, skeletons: Indices, options: Indices, places: Indices) -> Indices:
        """Return the rows of designs: skeletons, an option of every choice, and a place in every range."""
        found = self.skeletons[skeletons]
        for number, choice in enumerate(self.choices):
            found[:, choice.columns] = choice.options[options[:, number]]
        for number, each in enumerate(self.ranges):
            found[:, each.column] = each.indices[places[:, number]]
        return found


def divide(space: ParameterSet) -> Division:
    """Return *space* as skeletons, choices and ranges."""
    tied = space.following
    ranges: list[Range] = []
    named: dict[int, list[Component]] = {}
    parts: list[Component] = []
    for component in space.components:
        column = component.columns[0]
        parameter = space.parameters[column]
        alone = len(component.columns) == 1 and column not in tied
        if alone and all(RANGE.fullmatch(path) for path in parameter.paths) and _is_ordered(component, space):
            ranges.append(_range(component, space))
        elif alone and len(parameter.paths) == 1 and (found := CHOICE.fullmatch(parameter.paths[0])):
            named.setdefault(int(found[1] or found[2]), []).append(component)
        else:
            parts.append(component)
    choices = tuple(_choice(place, named[place], space) for place in sorted(named))
    return Division(space, tuple(ranges), choices, tuple(parts))


def _allowed(component: Component) -> Indices:
    return component.diagram.nth(np.arange(component.diagram.count))[:, 0]


def _is_ordered(component: Component, space: ParameterSet) -> bool:
    """Return whether all fields of a parameter are numbers that rise or fall together."""
    parameter = space.parameters[component.columns[0]]
    kinds = {path.rpartition(".")[2] for path in parameter.paths}
    values = [parameter.values[index] for index in _allowed(component)]
    numbers = all(isinstance(each, int | float) and each >= 0 for value in values for each in value)
    if len(kinds) > 1 or not numbers:
        return False
    steps = np.diff(np.array(sorted(values), dtype=np.float64), axis=0)
    return bool((steps >= 0).all() and (steps > 0).any(axis=1).all())


def _range(component: Component, space: ParameterSet) -> Range:
    column = component.columns[0]
    parameter = space.parameters[column]
    slower_first = not parameter.paths[0].endswith(FASTER_WHEN_LESS)
    indices = sorted(_allowed(component).tolist(), key=lambda index: parameter.values[index], reverse=not slower_first)
    values = np.array([parameter.values[index] for index in indices], dtype=np.float64)
    return Range(column, parameter.paths, np.array(indices, dtype=np.intp), values)


def _choice(place: int, components: list[Component], space: ParameterSet) -> Choice:
    columns = tuple(each.columns[0] for each in components)
    grids = np.meshgrid(*(_allowed(each) for each in components), indexing="ij")
    options = np.stack([each.reshape(-1) for each in grids], axis=1).astype(np.intp)
    paths = tuple(space.parameters[column].paths[0] for column in columns)
    return Choice(place, columns, paths, options)
