"""A parameter set as skeletons × choices × ranges, and the recorded programs of its skeletons.

    range     a parameter of ordered numbers of the network, such as the bandwidth of a dimension
    choice    the names of one dimension, topology and algorithm, chosen together
    skeleton  everything else, one combination of it

Ranges and choices are parameters that no constraint ties to others and that no derived field follows; the rest is part
of the skeleton. Every valid row is one skeleton with one option of every choice and one place of every range.

Skeletons of one structure share a recorded program. A *term* is a number that the program looks up for every option of
every choice: a function of the names of one dimension, and of sizes that the skeleton decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from cosmic.design.design_batch import Batch, Names, combine_codes, none_to_nan, number_values
from cosmic.network.collective_algorithms.synthesized import SYNTHESIZED
from cosmic.search.space.diagram import Indices
from cosmic.search.space.parameter_set import Component, ParameterSet
from cosmic.simulate.recording.program_interpreters import ProgramPlan, compute_node
from cosmic.simulate.recording.program_tape import GATHER, INDEX, OPERATION_NAMES, OPERATIONS, nodes_read_by
from cosmic.simulate.recording.recorded_program import LookupTable, RecordedProgram, is_structural, structure_of
from cosmic.simulate.step_evaluation import RECORDER

RANGE_PATH = re.compile(r"network\.dims\.\d+\.(bandwidth|latency)")
CHOICE_PATH = re.compile(r"(?:network\.dims\.(\d+)\.topology|collective\.algorithms\.(\d+))")
FASTER_WHEN_LESS = "latency"
MAX_SKELETONS = 4_000_000
"""Skeletons that are listed, at most."""


@dataclass(frozen=True, slots=True)
class NetworkRange:
    """A parameter of ordered numbers."""

    column: int
    paths: tuple[str, ...]
    indices: Indices
    """Of its values, from the slowest to the fastest."""
    values: npt.NDArray[np.float64]
    """In that order: a row for each, a column for each path."""


@dataclass(frozen=True, slots=True)
class NetworkChoice:
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
    ranges: tuple[NetworkRange, ...]
    choices: tuple[NetworkChoice, ...]
    parts: tuple[Component, ...]
    """The components that make up skeletons."""

    @property
    def count(self) -> int:
        """How many skeletons there are."""
        return prod(part.diagram.count for part in self.parts)

    @property
    def spread(self) -> int:
        """How many designs share a skeleton."""
        return prod(len(choice.options) for choice in self.choices) * prod(
            len(network_range.values) for network_range in self.ranges
        )

    @cached_property
    def skeletons(self) -> Indices:
        """A row for each skeleton, with the first option of every choice and the slowest end of every range."""
        rows = np.zeros((self.count, len(self.space.parameters)), dtype=np.intp)
        repeats = self.count
        for part in self.parts:
            count = part.diagram.count
            repeats //= count
            listed = part.diagram.nth(np.arange(count))
            rows[:, part.columns] = listed[(np.arange(self.count) // repeats) % count]
        for choice in self.choices:
            rows[:, choice.columns] = choice.options[0]
        for network_range in self.ranges:
            rows[:, network_range.column] = network_range.indices[0]
        return rows

    def rows(self, skeletons: Indices, options: Indices, positions: Indices) -> Indices:
        """Return the rows of designs: skeletons, an option of every choice, and a place in every range."""
        designs = self.skeletons[skeletons]
        for number, choice in enumerate(self.choices):
            designs[:, choice.columns] = choice.options[options[:, number]]
        for number, network_range in enumerate(self.ranges):
            designs[:, network_range.column] = network_range.indices[positions[:, number]]
        return designs


def divide_space(space: ParameterSet) -> Division:
    """Return *space* as skeletons, choices and ranges."""
    tied = space.following
    ranges: list[NetworkRange] = []
    named: dict[int, list[Component]] = {}
    parts: list[Component] = []
    for component in space.components:
        column = component.columns[0]
        parameter = space.parameters[column]
        alone = len(component.columns) == 1 and column not in tied
        if alone and all(RANGE_PATH.fullmatch(path) for path in parameter.paths) and _is_ordered(component, space):
            ranges.append(_network_range(component, space))
        elif alone and len(parameter.paths) == 1 and (match := CHOICE_PATH.fullmatch(parameter.paths[0])):
            named.setdefault(int(match[1] or match[2]), []).append(component)
        else:
            parts.append(component)
    choices = tuple(_network_choice(dimension, named[dimension], space) for dimension in sorted(named))
    return Division(space, tuple(ranges), choices, tuple(parts))


def _allowed_values(component: Component) -> Indices:
    return component.diagram.nth(np.arange(component.diagram.count))[:, 0]


def _is_ordered(component: Component, space: ParameterSet) -> bool:
    """Return whether all fields of a parameter are numbers that rise or fall together."""
    parameter = space.parameters[component.columns[0]]
    kinds = {path.rpartition(".")[2] for path in parameter.paths}
    values = [parameter.values[index] for index in _allowed_values(component)]
    numbers = all(isinstance(number, int | float) and number >= 0 for value in values for number in value)
    if len(kinds) > 1 or not numbers:
        return False
    steps = np.diff(np.array(sorted(values), dtype=np.float64), axis=0)
    return bool((steps >= 0).all() and (steps > 0).any(axis=1).all())


def _network_range(component: Component, space: ParameterSet) -> NetworkRange:
    column = component.columns[0]
    parameter = space.parameters[column]
    slower_first = not parameter.paths[0].endswith(FASTER_WHEN_LESS)
    indices = sorted(
        _allowed_values(component).tolist(), key=lambda index: parameter.values[index], reverse=not slower_first
    )
    values = np.array([parameter.values[index] for index in indices], dtype=np.float64)
    return NetworkRange(column, parameter.paths, np.array(indices, dtype=np.intp), values)


def _network_choice(dimension: int, components: list[Component], space: ParameterSet) -> NetworkChoice:
    columns = tuple(component.columns[0] for component in components)
    grids = np.meshgrid(*(_allowed_values(component) for component in components), indexing="ij")
    options = np.stack([grid.reshape(-1) for grid in grids], axis=1).astype(np.intp)
    paths = tuple(space.parameters[column].paths[0] for column in columns)
    return NetworkChoice(dimension, columns, paths, options)


# ---- The recorded programs of a set's skeletons, with what they look up for every option of every choice

Floats = npt.NDArray[np.float64]
LINK_LAYERS = ("network", "collective")
"""Layers of the stack that decide what links a network has, and what runs over them."""


class NotProvable(Exception):  # noqa: N818  who asked goes through all designs instead
    """Why boxes of designs cannot be bounded: one sentence."""


@dataclass(frozen=True)
class Term:
    """A number that a program looks up for the names of one dimension."""

    node: int
    function: str
    side: int
    choice: int
    values: Floats
    """By kind of skeleton, and by option."""
    which: Indices
    """The kind of each skeleton."""

    @property
    def least(self) -> Floats:
        """The least of any option, for each skeleton."""
        return np.asarray(self.values.min(axis=1)[self.which])

    @property
    def most(self) -> Floats:
        """The most of any option, for each skeleton."""
        return np.asarray(self.values.max(axis=1)[self.which])


@dataclass(frozen=True, eq=False)
class Group:
    """Skeletons that share a program."""

    division: Division
    program: RecordedProgram
    skeletons: Indices
    """Their numbers."""
    paths: tuple[str, ...]
    """The fields that differ."""
    columns: Floats
    """The numbers of these fields, or the codes of their names, for each skeleton: a row for each path."""
    uniform: Mapping[str, float]
    """The fields that do not differ."""
    codes: Mapping[str, Mapping[int, float]]
    """For each path of a choice: the code of each value."""

    def select(self, rows: Indices) -> Group:
        """Return the group with some of its skeletons."""
        if len(rows) == len(self.skeletons):
            return self
        return replace(self, skeletons=self.skeletons[rows], columns=np.ascontiguousarray(self.columns[:, rows]))

    @cached_property
    def reading(self) -> list[Sequence[int]]:
        """The nodes that each node reads."""
        lists = self.program.lists.tolist()
        return [nodes_read_by(node, lists) for node in self.program.nodes.tolist()]

    def operation(self, node: int) -> str:
        """Return the operation of a node; empty for a constant or an input."""
        code = int(self.program.nodes[node][0])
        return OPERATION_NAMES[code] if code >= 0 else ""

    def depending(self, sources: Iterable[int]) -> npt.NDArray[np.bool_]:
        """Return which nodes depend on some *sources*."""
        depends = np.zeros(len(self.program.nodes), dtype=bool)
        depends[list(sources)] = True
        for index, read in enumerate(self.reading):
            if not depends[index]:
                depends[index] = any(depends[operand] for operand in read)
        return depends

    def needed(self, results: Iterable[int]) -> list[int]:
        """Return the nodes that some results need, in order."""
        nodes: set[int] = set()
        waiting = list(results)
        while waiting:
            node = waiting.pop()
            if node not in nodes:
                nodes.add(node)
                waiting += self.reading[node]
        return sorted(nodes)

    @cached_property
    def range_nodes(self) -> dict[str, int]:
        """The inputs of all ranges that the program reads, by path."""
        paths = [path for network_range in self.division.ranges for path in network_range.paths]
        return {path: self.program.inputs[path] for path in paths if path in self.program.inputs}

    @cached_property
    def choice_nodes(self) -> dict[str, int]:
        """The inputs of all choices that the program reads, by path."""
        paths = [path for choice in self.division.choices for path in choice.paths]
        return {path: self.program.inputs[path] for path in paths if path in self.program.inputs}

    @cached_property
    def depends_on_network(self) -> npt.NDArray[np.bool_]:
        """Which nodes depend on more than the skeleton."""
        return self.depending([*self.range_nodes.values(), *self.choice_nodes.values()])

    @cached_property
    def inputs(self) -> dict[int, Any]:
        """The numbers of all inputs that the skeleton decides, by node."""
        columns = {path: self.columns[index] for index, path in enumerate(self.paths)}
        return {node: columns.get(path, self.uniform.get(path)) for path, node in self.program.inputs.items()}

    def settled(self, results: Iterable[int]) -> dict[int, Any]:
        """Return the values of nodes that the skeleton alone decides, for each skeleton."""
        values: dict[int, Any] = dict(self.program.constants) | self.inputs
        with np.errstate(all="ignore"):
            for index in self.needed(results):
                node = self.program.nodes[index]
                if node[0] < 0:
                    continue
                values[index] = compute_node(
                    self.program, node.tolist(), [values[operand] for operand in self.reading[index]]
                )
        return values

    @cached_property
    def terms(self) -> tuple[Term, ...]:
        """Every number that is looked up for the names of a dimension."""
        return tuple(self._terms())

    def _terms(self) -> Iterator[Term]:
        program, choices = self.program, self.division.choices
        owner = {
            node: (number, path)
            for number, choice in enumerate(choices)
            for path in choice.paths
            if (node := self.choice_nodes.get(path)) is not None
        }
        gathers: dict[int, list[int]] = {}
        for index, node in enumerate(program.nodes.tolist()):
            if node[0] == GATHER:
                gathers.setdefault(node[1], []).append(index)
        for reader, node in enumerate(program.nodes.tolist()):
            name_operands = [operand for operand in self.reading[reader] if operand in owner]
            if not name_operands:
                continue
            if reader in self.compared:
                continue
            if node[0] != INDEX:
                raise NotProvable("a name of the network is used for more than what is looked up for it")
            if len({owner[operand][0] for operand in name_operands}) > 1:
                raise NotProvable("a number is looked up for the names of two dimensions at once")
            yield from self._lookup_terms(reader, gathers.get(reader, []), owner)

    @cached_property
    def compared(self) -> dict[int, float]:
        """Comparisons of the network's names that have one answer for all options, by node."""
        answers_by_node: dict[int, float] = {}
        for choice in self.division.choices:
            for number, path in enumerate(choice.paths):
                source = self.choice_nodes.get(path)
                codes = [self.codes[path][value] for value in choice.options[:, number].tolist()]
                for index, read in enumerate(self.reading):
                    name = OPERATION_NAMES[self.program.nodes[index][0]]
                    if source not in read or name not in ("equal", "not_equal"):
                        continue
                    constants = [self.program.constants.get(operand) for operand in read if operand != source]
                    answers = {
                        float(OPERATIONS[name](code, constant))
                        for code in codes
                        for constant in constants
                        if constant is not None
                    }
                    if len(constants) == 1 and len(answers) == 1:
                        answers_by_node[index] = answers.pop()
        return answers_by_node

    def _lookup_terms(self, index: int, gathers: list[int], owner: Mapping[int, tuple[int, str]]) -> Iterator[Term]:
        """Yield the terms of one combination of columns."""
        program, read = self.program, self.reading[index]
        sizes = [operand for operand in read if operand not in owner]
        if any(self.depends_on_network[size] for size in sizes):
            raise NotProvable("a number is looked up for sizes that the network's names decide")
        settled = self.settled(sizes)
        keys = np.stack(
            np.broadcast_arrays(*(settled[size] for size in sizes), np.zeros(len(self.skeletons)))[:-1], axis=1
        )
        kinds, which = np.unique(keys, axis=0, return_inverse=True)
        number = next(owner[operand][0] for operand in read if operand in owner)
        choice = self.division.choices[number]
        rows: list[list[float]] = []
        for kind in kinds.tolist():
            for option in choice.options.tolist():
                chosen = {path: self.codes[path][value] for path, value in zip(choice.paths, option, strict=True)}
                remaining = iter(kind)
                rows.append([chosen[owner[operand][1]] if operand in owner else next(remaining) for operand in read])
        table = LookupTable(program.tables[program.nodes[index][1]])
        for gather in gathers:
            _, _, lookup, side = program.nodes[gather].tolist()
            operand = program.lookups[lookup]
            values = [operand.function(*operand.leading, *table.arguments(row))[side] for row in rows]
            shaped = np.array(values, dtype=np.float64).reshape(len(kinds), len(choice.options))
            yield Term(gather, operand.function.__name__, side, number, shaped, which.reshape(-1))


# ---- grouping


def group_skeletons(division: Division) -> tuple[Group, ...]:
    """Return the skeletons of a set, grouped by their programs."""
    space = division.space
    if len(space.workloads) > 1:
        raise NotProvable("several workloads share the system")
    if space.base.serving is not None or any(share.base.serving is not None for share in space.workloads):
        raise NotProvable("requests under a load have no program of one step")
    if _depends_on_links(space):
        raise NotProvable("times that follow from links one by one are not bounded by the ends of a range")
    if division.count > MAX_SKELETONS:
        raise NotProvable("there are too many skeletons to list")
    fields = space.columns(division.skeletons)
    structural = [path for path, column in fields.items() if is_structural(path, column)]
    structure_codes = combine_codes((number_values(fields[path]) for path in structural), division.count)
    batch = Batch(space.base, fields)
    groups = []
    for code in np.unique(structure_codes):
        rows = np.flatnonzero(structure_codes == code)
        constant = {path: _plain_value(fields[path][int(rows[0])]) for path in structural}
        groups.append(_make_group(division, batch.take(rows, constant), rows))
    return tuple(groups)


def _depends_on_links(space: ParameterSet) -> bool:
    """Return whether some design lists links, has faults, or synthesises collectives."""
    network, searched = (
        space.base.network,
        [parameter for parameter in space.parameters if parameter.stack in LINK_LAYERS],
    )
    if network.faults or any(dim.links for dim in network.dims) or SYNTHESIZED in space.base.collective.algorithms:
        return True
    if any(path.startswith("network.faults") for varied in searched for path in varied.paths):
        return True
    return any(SYNTHESIZED in value for varied in searched for value in varied.values)


def _make_group(division: Division, part: Batch, rows: Indices) -> Group:
    columns = {
        path: column if isinstance(column, Names) else none_to_nan(column) for path, column in part.columns.items()
    }
    part = Batch(part.base, columns)
    paths = tuple(columns)
    matrix = np.stack(
        [field_column.codes if isinstance(field_column, Names) else field_column for field_column in columns.values()]
    ).astype(np.float64)
    matrix = np.ascontiguousarray(matrix)
    program = _find_program(part, paths, matrix)
    codes = {}
    for choice in division.choices:
        for path, column in zip(choice.paths, choice.columns, strict=True):
            column_values = division.space.parameters[column].values
            names = columns[path].names if isinstance(columns[path], Names) else ()
            codes[path] = {index: float(names.index(value[0])) for index, value in enumerate(column_values)}
    uniform = {path: float(part.base.fields[path]) for path in program.inputs if path not in columns}
    return Group(division, program, rows, paths, matrix, uniform, codes)


def _find_program(part: Batch, paths: tuple[str, ...], matrix: Floats) -> RecordedProgram:
    """Return the program that runs all designs of a group."""
    known_programs = list(RECORDER.variants(structure_of(part.base, part.columns)))
    for attempt in (*known_programs, None):
        program = attempt or RECORDER.record(part)
        if program is None:
            raise NotProvable("the designs have no recorded program")
        results = np.empty((len(program.results), matrix.shape[1]))
        plan = ProgramPlan(
            program, paths, {path: part.base.fields[path] for path in program.inputs if path not in paths}
        )
        if plan.run(matrix, np.arange(matrix.shape[1]), results):
            return program
    raise NotProvable("no one program runs all designs")


def _plain_value(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
