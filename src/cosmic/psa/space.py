"""The parameter set: counting, sampling and decoding of its points.

A point of the set is a row of value indices, one per parameter; functions on many points take and return
arrays of such rows. The set knows which rows are valid; it knows no physics.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, field, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from cosmic.design import schema
from cosmic.design.batch import Column, column_of
from cosmic.design.own import Fields
from cosmic.design.point import STACKS, DesignPoint
from cosmic.digests import digest
from cosmic.errors import SpecError, UnknownName
from cosmic.psa import diagram as diagrams
from cosmic.psa.binding import Bound, Scope
from cosmic.psa.derived import DerivedValues, as_field, place_values
from cosmic.psa.diagram import Diagram, Indices
from cosmic.psa.expressions import (
    FALSE,
    NO_VALUE,
    UNDEFINED,
    Expression,
    Known,
    Scalar,
    in_order,
    operation,
    substitute,
    value_of,
    variables,
)
from cosmic.psa.parameters import SYSTEM, Parameter, label
from cosmic.psa.provisioned import Provisioner, bandwidth_paths, provisioned

FORMAT = 1
"""Version of the file format and of the exported schema."""
CHECKED = 64
"""Of how many points the derived fields are computed when a set is built."""
LISTED_AT_ONCE = 1024
"""How many points are decoded at a time when all are enumerated."""


@dataclass(frozen=True, slots=True)
class Component:
    """Parameters tied by constraints, with the diagram of their valid combinations."""

    columns: tuple[int, ...]
    """Their columns in a row, in the order of the diagram's levels."""
    diagram: Diagram


@dataclass(frozen=True, slots=True)
class Share:
    """One of several workloads that a system runs."""

    name: str
    weight: float
    """How often it runs, relative to a workload of weight 1."""
    base: DesignPoint
    derived: Mapping[str, str] = field(default_factory=dict)
    """Fields of this workload alone that follow the searched ones: expressions by path."""
    own: frozenset[str] = frozenset()
    """Fields that this workload states itself: searched values do not apply to them."""


@dataclass(frozen=True, eq=False)
class ParameterSet:
    """What may vary around a base design. Load one with `cosmic.load_space`, or build it from its fields."""

    name: str
    base: DesignPoint
    parameters: tuple[Parameter, ...]
    derived: Mapping[str, str]
    """The expression of each derived field, by its path."""
    constraints: tuple[str, ...]
    objective: str = "step_s"
    limits: tuple[str, ...] = ()
    """Constraints on metrics, such as ``memory_bytes <= 80 GB``, which only evaluation can check."""
    workloads: tuple[Share, ...] = ()
    """The workloads that one system runs, where there are several; all have the same searched values."""
    engine: str = ""
    """The engine that evaluates it, where the set says so; the base may then be fields of that engine (`Fields`)."""
    provisioner: Provisioner | None = field(default=None, repr=False)
    """Gives each point the bandwidth that is best for it: derived fields whose expression is `PROVISIONED`."""
    source: Mapping[str, Any] | None = field(default=None, init=False, repr=False)
    """The content of a file that describes this set without reference to any other; `replace` does not keep it."""

    def __post_init__(self) -> None:
        _ = self.components  # malformed expressions and empty sets are found here, not during a search
        if self.derived:
            self._check_derived()

    def _check_derived(self) -> None:
        """Refuse derived fields that have no value, or one that their field cannot hold.

        All points of a small set are tried, and some of a large one: `derive` refuses the others when it meets them.
        """
        few = self.valid <= CHECKED
        rows = self.listed(0, self.valid) if few else self.sample(CHECKED, np.random.default_rng(0))
        for path in self._derivations:
            self.derive(path, rows)

    # ------------------------------------------------------------------------------------- expressions

    @cached_property
    def _scope(self) -> Scope:
        searched = frozenset(path for parameter in self.parameters for path in parameter.paths)
        return Scope(self.base, searched, self.derived, sized=any(each.name == SYSTEM for each in self.parameters))

    @cached_property
    def _provisioned(self) -> dict[str, int]:
        """The dimension of each bandwidth that is provisioned, by its path."""
        dims = len(self.base.network.dims) if self.provisioner is not None else 0
        return {path: place for place, path in enumerate(bandwidth_paths(dims)) if path in self.derived}

    @cached_property
    def _derivations(self) -> dict[str, Bound]:
        """The expression of each derived field, in terms of parameters only."""
        bound = {}
        for path, text in self.derived.items():
            if path in self._provisioned:
                continue
            where = f"derived.{path}"
            if path in self._scope.searched:
                raise SpecError(where, text, "is a parameter too: a field is either chosen or derived")
            if path not in self._scope.fields:
                raise SpecError(where, text, "holds several fields: derive them one by one")
            bound[path] = self._scope.derivation(path)
            wanted, found = self._scope.type_of(path), bound[path].type
            if (wanted.kind, wanted.dimension) != (found.kind, found.dimension):
                raise SpecError(where, text, f"gives {found}; the field holds {wanted}")
        return bound

    @cached_property
    def _bound_constraints(self) -> list[Expression]:
        bound = []
        for place, text in enumerate(self.constraints):
            expression, kind = self._scope.bind(text, f"constraints.{place}")
            if kind.kind != "truth value":
                raise SpecError(f"constraints.{place}", text, f"gives {kind}; a constraint is true or false")
            bound.append(expression)
        return bound

    # --------------------------------------------------------------------------------------- components

    @cached_property
    def components(self) -> tuple[Component, ...]:
        """The independent components: parameters in different components share no constraint."""
        _ = self._derivations
        column = {path: place for place, parameter in enumerate(self.parameters) for path in parameter.paths}
        owner = list(range(len(self.parameters)))  # the component of each parameter, merged by constraints
        touched: list[list[int]] = []
        for place, expression in enumerate(self._bound_constraints):
            if expression == FALSE:
                raise SpecError(f"constraints.{place}", self.constraints[place], "can never hold")
            if expression == UNDEFINED:
                raise SpecError(f"constraints.{place}", self.constraints[place], f"has no value: {NO_VALUE}")
            used = in_order(expression, column)
            touched.append(used)
            for other in used[1:]:
                merged, kept = owner[other], owner[used[0]]
                owner = [kept if each == merged else each for each in owner]
        return tuple(self._component(root, owner, touched) for root in dict.fromkeys(owner))

    def _component(self, root: int, owner: list[int], touched: list[list[int]]) -> Component:
        mine = [place for place, used in enumerate(touched) if used and owner[used[0]] == root]
        first = [column for place in mine for column in touched[place]]
        members = [column for column, each in enumerate(owner) if each == root]
        columns = tuple(dict.fromkeys([*first, *members]))
        levels = [self.parameters[column].settings for column in columns]
        texts = [self.constraints[place] for place in mine]
        where, value = (f"constraints.{mine[0]}", texts[0]) if len(mine) == 1 else ("constraints", texts)
        try:
            diagram = diagrams.build(levels, [self._bound_constraints[place] for place in mine])
        except SpecError as error:
            raise SpecError(where, value, error.rule) from None
        if not diagram.count:
            names = ", ".join(self.parameters[column].name for column in columns)
            if len(mine) == 1 and not self._is_ever_false(mine[0], columns):
                raise SpecError(where, value, f"has no value for any values of {names}: {NO_VALUE}")
            raise SpecError(where, value, f"no values of {names} satisfy this")
        return Component(columns, diagram)

    def _is_ever_false(self, place: int, columns: tuple[int, ...]) -> bool:
        """Return whether the constraint at *place* is false for some values, rather than without a value for all."""
        levels = [self.parameters[column].settings for column in columns]
        return diagrams.build(levels, [operation("not", (self._bound_constraints[place],))]).count > 0

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """How many values each parameter has."""
        return tuple(len(parameter.values) for parameter in self.parameters)

    # ------------------------------------------------------------------------------------------- counting

    @property
    def raw(self) -> int:
        """How many combinations of values there are, valid or not."""
        return prod(self.sizes)

    @property
    def valid(self) -> int:
        """How many combinations satisfy every constraint; an exact integer of any size."""
        return prod(component.diagram.count for component in self.components)

    @property
    def of_designs(self) -> bool:
        """Whether its points are designs, not choices of an engine's own fields."""
        return not isinstance(self.base, Fields)

    @property
    def stacks(self) -> tuple[str, ...]:
        """The layers of the stack that have parameters."""
        found = {"network"} if self.provisioner is not None else set()
        found |= {each.stack for each in self.parameters}
        if not self.of_designs:
            return tuple(dict.fromkeys(each.stack for each in self.parameters))
        return tuple(stack for stack in (SYSTEM, *STACKS) if stack in found)

    def restrict(self, stacks: Iterable[str]) -> ParameterSet:
        """Return the same set with everything outside *stacks* frozen at the base design."""
        opened = list(stacks)
        for stack in opened:
            if stack not in self.stacks:
                raise UnknownName.among("stacks", stack, "layer with parameters", self.stacks)
        kept = tuple(each for each in self.parameters if each.stack in opened)
        name = f"{self.name}[{','.join(opened)}]"
        restricted = replace(self, name=name, parameters=kept)
        if self.provisioner is not None:
            restricted = provisioned(restricted, self.provisioner.provision if "network" in opened else None)
        return restricted if self.source is None else with_source(restricted, {**self.source, "stacks": opened})

    @cached_property
    def identity(self) -> str:
        """A short text that two sets share only if they describe the same designs."""
        values = [(each.name, each.paths, [str(value) for value in each.values]) for each in self.parameters]
        shares = [(each.name, each.weight, each.base.identity) for each in self.workloads]
        content = [self.base.identity, values, sorted(self.derived.items()), self.constraints, self.limits, shares]
        content += [astuple(self.provisioner.provision)] if self.provisioner is not None else []
        content += [self.engine] if self.engine else []
        return digest(json.dumps(content))[:16]

    # ------------------------------------------------------------------------------------------- points

    @cached_property
    def free(self) -> Indices:
        """The columns that no constraint restricts."""
        tied = {column for component in self.tied for column in component.columns}
        return np.array([column for column in range(len(self.parameters)) if column not in tied], dtype=np.intp)

    @cached_property
    def tied(self) -> tuple[Component, ...]:
        """The components with invalid combinations."""
        return tuple(
            each for each in self.components if each.diagram.count < prod(self.sizes[column] for column in each.columns)
        )

    def sample(self, n: int, rng: np.random.Generator) -> Indices:
        """Return *n* valid points drawn uniformly: rows of value indices."""
        rows = np.empty((n, len(self.parameters)), dtype=np.intp)
        rows[:, self.free] = rng.random((n, len(self.free))) * self._widths[self.free]
        for component in self.tied:
            rows[:, component.columns] = component.diagram.sample(n, rng)
        return rows

    @cached_property
    def _widths(self) -> Indices:
        return np.array(self.sizes, dtype=np.intp)

    def keys(self, rows: Indices) -> list[Hashable]:
        """Return for each row a hashable key that only equal rows share."""
        if self.raw < 2**62:
            keys: list[Hashable] = (rows @ place_values(self.sizes)).tolist()
            return keys
        return [row.tobytes() for row in rows.astype(np.int64)]

    def contains(self, rows: Indices) -> npt.NDArray[np.bool_]:
        """Return for each row whether it is a valid point."""
        inside = np.asarray(((rows >= 0) & (rows < self._widths)).all(axis=1))
        safe = np.where(inside[:, None], rows, 0)
        for component in self.tied:
            inside &= component.diagram.contains(safe[:, component.columns])
        return inside

    def broken(self, row: Indices) -> dict[str, str]:
        """Return the constraints that the point *row* breaks, each with a sentence; none for a valid one."""
        settings: dict[str, Known] = {}
        for parameter, index in zip(self.parameters, row.tolist(), strict=True):
            settings |= parameter.settings[index]
        found = {}
        for place, expression in enumerate(self._bound_constraints):
            value, text = substitute(expression, settings), self.constraints[place]
            if value == FALSE:
                found[f"constraints.{place}"] = f"breaks the constraint {text}"
            elif value == UNDEFINED:
                found[f"constraints.{place}"] = f"the constraint {text} has no value: {NO_VALUE}"
        return found

    def repair(self, rows: Indices) -> Indices:
        """Return a valid point near each row: the row itself if it is valid."""
        wanted = np.clip(rows, 0, self._widths - 1)
        for component in self.tied:
            wanted[:, component.columns] = component.diagram.repair(wanted[:, component.columns])
        return wanted

    def enumerate(self) -> Iterator[Indices]:
        """Yield every valid point, one row at a time."""
        for start in range(0, self.valid, LISTED_AT_ONCE):
            yield from self.listed(start, min(LISTED_AT_ONCE, self.valid - start))

    def listed(self, start: int, n: int) -> Indices:
        """Return *n* points from the place *start* on in the order of `enumerate`, without enumerating earlier ones."""
        places: npt.NDArray[Any] = np.arange(n).astype(np.int64 if self.valid < 2**62 else object) + start
        rows = np.empty((n, len(self.parameters)), dtype=np.intp)
        for component in reversed(self.components):
            count = component.diagram.count
            rows[:, component.columns] = component.diagram.nth(places % count)
            places = places // count
        return rows

    # ------------------------------------------------------------------------------------------ decoding

    def columns(self, rows: Indices) -> dict[str, Column]:
        """Return the searched and derived fields of many points, an array for each path."""
        chosen = np.ascontiguousarray(rows.T)
        found: dict[str, Column] = {path: values[chosen[place]] for path, place, values in self._values}
        return found | {path: self.derive(path, rows) for path in self.derived}

    @cached_property
    def _values(self) -> list[tuple[str, int, Column]]:
        """For each searched field: its path, the column of its parameter in a row, and its content by value."""
        return [
            (path, place, column_of(values))
            for place, parameter in enumerate(self.parameters)
            for path, values in zip(parameter.paths, zip(*parameter.values, strict=True), strict=True)
        ]

    def values_of(self, path: str) -> tuple[Any, ...]:
        """Return the values that the field at *path* may have, or its expression if it is derived."""
        for parameter in self.parameters:
            if path in parameter.paths:
                return tuple(values[parameter.paths.index(path)] for values in parameter.values)
        return (self.derived[path] if path in self.derived else schema.get(self.base, path),)

    def derive(self, path: str, rows: Indices) -> Column:
        """Return a derived field of many points; each combination of values is computed once and cached.

        A point that is not valid may have none: None stands for it.
        """
        if self.provisioner is not None and path in self._provisioned:
            return self.provisioner.column(rows, self._provisioned[path])
        return self._derived[path].column(rows, self)

    @cached_property
    def _used(self) -> dict[str, list[int]]:
        """For each derived field, the columns of the parameters that it depends on."""
        needed = {path: variables(bound.expression) for path, bound in self._derivations.items()}
        numbered = list(enumerate(self.parameters))
        return {
            path: [at for at, each in numbered if not names.isdisjoint(each.paths)] for path, names in needed.items()
        }

    @property
    def following(self) -> frozenset[int]:
        """The columns of the parameters that some derived field depends on."""
        return frozenset(column for used in self._used.values() for column in used)

    @cached_property
    def _derived(self) -> dict[str, DerivedValues]:
        """The known values of each derived field."""
        return {path: DerivedValues(path, used, self.sizes) for path, used in self._used.items()}

    def derived_value(self, path: str, choices: Iterable[tuple[int, int]]) -> Any:
        """Return a derived field of points with these *choices*: columns, each with the index of its value."""
        settings: dict[str, Known] = {}
        chosen = list(choices)
        for place, index in chosen:
            settings |= self.parameters[place].settings[index]
        text = self.derived[path]
        try:
            found = value_of(substitute(self._derivations[path].expression, settings), f"derived.{path}", text)
            if found not in (checked := self._checked.setdefault(path, {})):
                checked[found] = as_field(self.base, path, found, text)
            return checked[found]
        except SpecError as error:
            at = ", ".join(
                f"{self.parameters[place].name} = {self.parameters[place].labels[at]}" for place, at in chosen
            )
            raise SpecError(error.where, error.value, f"{error.rule}, where {at}" if at else error.rule) from None

    @cached_property
    def _checked(self) -> dict[str, dict[Scalar, Any]]:
        """The values of each derived field that it was found to hold, by what its expression gives."""
        return {}

    def changes(self, row: Indices) -> dict[str, Any]:
        """Return the fields that the point *row* sets, searched and derived, by their paths."""
        chosen = {
            path: part
            for parameter, index in zip(self.parameters, row.tolist(), strict=True)
            for path, part in zip(parameter.paths, parameter.values[index], strict=True)
        }
        return chosen | {path: self.derive(path, row[None, :]).tolist()[0] for path in self.derived}

    def point(self, row: Indices) -> DesignPoint:
        """Return the design of *row*."""
        point: DesignPoint = schema.assign(self.base, self.changes(row))
        return point.compact

    def row_of(self, point: DesignPoint) -> Indices | None:
        """Return the row of the design *point*; None where it is not in the set."""
        point = point.padded(len(self.base.network.dims)) if self.of_designs else point
        row = []
        for parameter in self.parameters:
            wanted = tuple(schema.get(point, path) for path in parameter.paths)
            if wanted not in parameter.values:
                return None
            row.append(parameter.values.index(wanted))
        found = np.array(row, dtype=np.intp)
        same = self.contains(found[None, :])[0] and self.point(found) == point.compact
        return found if same else None

    def labels(self, row: Indices) -> dict[str, Any]:
        """Return the point *row* as files write it: a value for each parameter and derived field."""
        chosen = {each.name: each.labels[index] for each, index in zip(self.parameters, row.tolist(), strict=True)}
        changed = self.changes(row)
        return chosen | {path: label(self.base, path, changed[path]) for path in self.derived}


def with_source(space: ParameterSet, source: Mapping[str, Any]) -> ParameterSet:
    """Return *space* with the content of the file that describes it."""
    object.__setattr__(space, "source", source)  # no argument of its own: a set that was changed has no such file
    return space
