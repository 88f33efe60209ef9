"""The recorded programs of a set's skeletons, with what they look up for every option of every choice.

Skeletons of one structure share a program (`cosmic.recording`). A *term* is a number that the program looks up: a
function of the names of one dimension, and of sizes that the skeleton decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from cosmic.certifying.skeletons import MOST_SKELETONS, Division
from cosmic.cost.collectives.synthesized import SYNTHESIZED
from cosmic.design.batch import Batch, Names, combined, known, numbered
from cosmic.evaluation import RECORDER
from cosmic.psa.diagram import Indices
from cosmic.psa.space import ParameterSet
from cosmic.recording.operations import NAMES, OPERATIONS
from cosmic.recording.plan import Plan
from cosmic.recording.program import Program
from cosmic.recording.replay import WHOLE
from cosmic.recording.structure import is_structural, structure_of
from cosmic.recording.tables import Table, table_of
from cosmic.recording.tape import GATHER, INDEX, reads

Floats = npt.NDArray[np.float64]
LINKED = ("network", "collective")
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
    program: Program
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

    def take(self, rows: Indices) -> Group:
        """Return the group with some of its skeletons."""
        if len(rows) == len(self.skeletons):
            return self
        return replace(self, skeletons=self.skeletons[rows], columns=np.ascontiguousarray(self.columns[:, rows]))

    @cached_property
    def reading(self) -> list[Sequence[int]]:
        """The nodes that each node reads."""
        lists = self.program.lists.tolist()
        return [reads(node, lists) for node in self.program.nodes.tolist()]

    def named(self, place: int) -> str:
        """Return the operation of a node; empty for a constant or an input."""
        code = int(self.program.nodes[place][0])
        return NAMES[code] if code >= 0 else ""

    def depending(self, sources: Iterable[int]) -> npt.NDArray[np.bool_]:
        """Return which nodes depend on some *sources*."""
        found = np.zeros(len(self.program.nodes), dtype=bool)
        found[list(sources)] = True
        for place, read in enumerate(self.reading):
            if not found[place]:
                found[place] = any(found[each] for each in read)
        return found

    def needed(self, wanted: Iterable[int]) -> list[int]:
        """Return the nodes that some results need, in order."""
        found: set[int] = set()
        waiting = list(wanted)
        while waiting:
            place = waiting.pop()
            if place not in found:
                found.add(place)
                waiting += self.reading[place]
        return sorted(found)

    @cached_property
    def range_nodes(self) -> dict[str, int]:
        """The inputs of all ranges that the program reads, by path."""
        paths = [path for each in self.division.ranges for path in each.paths]
        return {path: self.program.inputs[path] for path in paths if path in self.program.inputs}

    @cached_property
    def choice_nodes(self) -> dict[str, int]:
        """The inputs of all choices that the program reads, by path."""
        paths = [path for each in self.division.choices for path in each.paths]
        return {path: self.program.inputs[path] for path in paths if path in self.program.inputs}

    @cached_property
    def opened(self) -> npt.NDArray[np.bool_]:
        """Which nodes depend on more than the skeleton."""
        return self.depending([*self.range_nodes.values(), *self.choice_nodes.values()])

    @cached_property
    def inputs(self) -> dict[int, Any]:
        """The numbers of all inputs that the skeleton decides, by node."""
        given = {path: self.columns[place] for place, path in enumerate(self.paths)}
        return {node: given.get(path, self.uniform.get(path)) for path, node in self.program.inputs.items()}

    def settled(self, wanted: Iterable[int]) -> dict[int, Any]:
        """Return the values of nodes that the skeleton alone decides, for each skeleton."""
        values: dict[int, Any] = dict(self.program.constants) | self.inputs
        with np.errstate(all="ignore"):
            for place in self.needed(wanted):
                node = self.program.nodes[place]
                if node[0] < 0:
                    continue
                values[place] = computed(self.program, node.tolist(), [values[each] for each in self.reading[place]])
        return values

    @cached_property
    def terms(self) -> tuple[Term, ...]:
        """Every number that is looked up for the names of a dimension."""
        return tuple(self._terms())

    def _terms(self) -> Iterator[Term]:
        program, choices = self.program, self.division.choices
        owner = {
            node: (number, path)
            for number, each in enumerate(choices)
            for path in each.paths
            if (node := self.choice_nodes.get(path)) is not None
        }
        gathers: dict[int, list[int]] = {}
        for place, node in enumerate(program.nodes.tolist()):
            if node[0] == GATHER:
                gathers.setdefault(node[1], []).append(place)
        for place, node in enumerate(program.nodes.tolist()):
            named = [each for each in self.reading[place] if each in owner]
            if not named:
                continue
            if place in self.compared:
                continue
            if node[0] != INDEX:
                raise NotProvable("a name of the network is used for more than what is looked up for it")
            if len({owner[each][0] for each in named}) > 1:
                raise NotProvable("a number is looked up for the names of two dimensions at once")
            yield from self._looked_up(place, gathers.get(place, []), owner)

    @cached_property
    def compared(self) -> dict[int, float]:
        """Comparisons of the network's names that have one answer for all options, by node."""
        found: dict[int, float] = {}
        for choice in self.division.choices:
            for number, path in enumerate(choice.paths):
                source = self.choice_nodes.get(path)
                codes = [self.codes[path][value] for value in choice.options[:, number].tolist()]
                for place, read in enumerate(self.reading):
                    name = NAMES[self.program.nodes[place][0]]
                    if source not in read or name not in ("equal", "not_equal"):
                        continue
                    others = [self.program.constants.get(each) for each in read if each != source]
                    answers = {
                        float(OPERATIONS[name](code, other)) for code in codes for other in others if other is not None
                    }
                    if len(others) == 1 and len(answers) == 1:
                        found[place] = answers.pop()
        return found

    def _looked_up(self, index: int, gathers: list[int], owner: Mapping[int, tuple[int, str]]) -> Iterator[Term]:
        """Yield the terms of one combination of columns."""
        program, read = self.program, self.reading[index]
        sizes = [each for each in read if each not in owner]
        if any(self.opened[each] for each in sizes):
            raise NotProvable("a number is looked up for sizes that the network's names decide")
        found = self.settled(sizes)
        keys = np.stack(
            np.broadcast_arrays(*(found[each] for each in sizes), np.zeros(len(self.skeletons)))[:-1], axis=1
        )
        kinds, which = np.unique(keys, axis=0, return_inverse=True)
        number = next(owner[each][0] for each in read if each in owner)
        choice = self.division.choices[number]
        rows: list[list[float]] = []
        for kind in kinds.tolist():
            for option in choice.options.tolist():
                chosen = {path: self.codes[path][value] for path, value in zip(choice.paths, option, strict=True)}
                left = iter(kind)
                rows.append([chosen[owner[each][1]] if each in owner else next(left) for each in read])
        table = Table(program.tables[program.nodes[index][1]])
        for gather in gathers:
            _, _, lookup, side = program.nodes[gather].tolist()
            each = program.lookups[lookup]
            values = [each.function(*each.leading, *table.arguments(row))[side] for row in rows]
            shaped = np.array(values, dtype=np.float64).reshape(len(kinds), len(choice.options))
            yield Term(gather, each.function.__name__, side, number, shaped, which.reshape(-1))


def computed(program: Program, node: list[int], operands: list[Any]) -> Any:
    """Return what a node gives for numbers that are known."""
    if node[0] == INDEX:
        keys = np.broadcast_arrays(*(np.atleast_1d(each) for each in operands))
        places = table_of(program.tables[node[1]]).places_of(np.stack(keys, axis=1).astype(np.float64))
        return places if any(np.ndim(each) for each in operands) else places[0]
    if node[0] == GATHER:
        lookup = program.lookups[node[2]]
        table = table_of(lookup.known)
        found = table.value(table.column(lookup) + node[3], np.atleast_1d(operands[0]).astype(np.intp))
        return found if np.ndim(operands[0]) else found[0]
    name = NAMES[node[0]]
    return OPERATIONS[name](*operands) if name in OPERATIONS else WHOLE[name](*operands)


# ----------------------------------------------------------------------------------------------- grouping


def groups(division: Division) -> tuple[Group, ...]:
    """Return the skeletons of a set, grouped by their programs."""
    space = division.space
    if len(space.workloads) > 1:
        raise NotProvable("several workloads share the system")
    if space.base.serving is not None or any(share.base.serving is not None for share in space.workloads):
        raise NotProvable("requests under a load have no program of one step")
    if _looks_at_links(space):
        raise NotProvable("times that follow from links one by one are not bounded by the ends of a range")
    if division.count > MOST_SKELETONS:
        raise NotProvable("there are too many skeletons to list")
    fields = space.columns(division.skeletons)
    structural = [path for path, column in fields.items() if is_structural(path, column)]
    whole = combined((numbered(fields[path]) for path in structural), division.count)
    batch = Batch(space.base, fields)
    found = []
    for code in np.unique(whole):
        rows = np.flatnonzero(whole == code)
        constant = {path: _plain(fields[path][int(rows[0])]) for path in structural}
        found.append(_group(division, batch.take(rows, constant), rows))
    return tuple(found)


def _looks_at_links(space: ParameterSet) -> bool:
    """Return whether some design lists links, has faults, or synthesises collectives."""
    network, searched = space.base.network, [each for each in space.parameters if each.stack in LINKED]
    if network.faults or any(dim.links for dim in network.dims) or SYNTHESIZED in space.base.collective.algorithms:
        return True
    if any(path.startswith("network.faults") for each in searched for path in each.paths):
        return True
    return any(SYNTHESIZED in value for each in searched for value in each.values)


def _group(division: Division, part: Batch, rows: Indices) -> Group:
    columns = {path: column if isinstance(column, Names) else known(column) for path, column in part.columns.items()}
    part = Batch(part.base, columns)
    paths = tuple(columns)
    matrix = np.stack([each.codes if isinstance(each, Names) else each for each in columns.values()]).astype(np.float64)
    matrix = np.ascontiguousarray(matrix)
    program = _program(part, paths, matrix)
    codes = {}
    for choice in division.choices:
        for path, column in zip(choice.paths, choice.columns, strict=True):
            column_values = division.space.parameters[column].values
            names = columns[path].names if isinstance(columns[path], Names) else ()
            codes[path] = {place: float(names.index(value[0])) for place, value in enumerate(column_values)}
    uniform = {path: float(part.base.fields[path]) for path in program.inputs if path not in columns}
    return Group(division, program, rows, paths, matrix, uniform, codes)


def _program(part: Batch, paths: tuple[str, ...], matrix: Floats) -> Program:
    """Return the program that runs all designs of a group."""
    known_programs = list(RECORDER.variants(structure_of(part.base, part.columns)))
    for attempt in (*known_programs, None):
        program = attempt or RECORDER.record(part)
        if program is None:
            raise NotProvable("the designs have no recorded program")
        results = np.empty((len(program.results), matrix.shape[1]))
        plan = Plan(program, paths, {path: part.base.fields[path] for path in program.inputs if path not in paths})
        if plan.run(matrix, np.arange(matrix.shape[1]), results):
            return program
    raise NotProvable("no one program runs all designs")


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
