"""The parameter set: what may vary, counted, sampled and decoded. The heart of the product.

A point of the set is a row of value indices, one per parameter; everything that handles many points takes
and gives arrays of such rows. The set knows which rows are valid; it knows no physics.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from hashlib import sha256
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from cosmic.design import schema
from cosmic.design.batch import Column, column_of
from cosmic.design.point import STACKS, DesignPoint
from cosmic.errors import SpecError, UnknownName
from cosmic.psa import diagram as diagrams
from cosmic.psa.binding import Bound, Scope
from cosmic.psa.diagram import Diagram, Indices
from cosmic.psa.expressions import FALSE, Constant, Expression, Scalar, substitute, value_of, variables
from cosmic.psa.parameters import Parameter, label

MOST_KNOWN = 1_000_000
"""So many derived values are remembered at most."""
FORMAT = 1
"""Version of the file format and of the exported schema."""
LISTED_AT_ONCE = 1024
"""How many points are worked out together when all are listed."""


@dataclass(frozen=True, slots=True)
class Component:
    """Parameters tied by constraints, with the diagram of their valid combinations."""

    columns: tuple[int, ...]
    """Where they stand in a row, in the order of the diagram's levels."""
    diagram: Diagram


@dataclass(frozen=True, slots=True)
class Share:
    """One of several workloads that a system is to run."""

    name: str
    weight: float
    """How often it runs for each time that a workload of weight 1 does."""
    base: DesignPoint


@dataclass(frozen=True, eq=False)
class ParameterSet:
    """What may vary around a base design. Build one with `cosmic.load_space`, or from its parts."""

    name: str
    base: DesignPoint
    parameters: tuple[Parameter, ...]
    derived: Mapping[str, str]
    """The expression of each derived field, by its path."""
    constraints: tuple[str, ...]
    objective: str = "step_s"
    limits: tuple[str, ...] = ()
    """Constraints on what a design achieves, such as ``memory_bytes <= 80 GB``: known once it is evaluated."""
    workloads: tuple[Share, ...] = ()
    """What one system is to run, if it is more than the base's workload; all with the same searched values."""
    source: Mapping[str, Any] | None = field(default=None, repr=False)
    """The content of a file that describes this set without reference to any other."""

    def __post_init__(self) -> None:
        _ = self.components  # malformed expressions and empty sets are found here, not in the middle of a search

    # ------------------------------------------------------------------------------------- expressions

    @cached_property
    def _scope(self) -> Scope:
        searched = frozenset(path for parameter in self.parameters for path in parameter.paths)
        return Scope(self.base, searched, self.derived)

    @cached_property
    def _derivations(self) -> dict[str, Bound]:
        """Each derived field's expression in terms of parameters alone."""
        bound = {}
        for path, text in self.derived.items():
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

    # ---------------------------------------------------------------------------------------- the parts

    @cached_property
    def components(self) -> tuple[Component, ...]:
        """The independent parts: parameters in different parts share no constraint."""
        _ = self._derivations
        column = {path: place for place, parameter in enumerate(self.parameters) for path in parameter.paths}
        part = list(range(len(self.parameters)))  # which part each parameter belongs to, merged as we go
        touched: list[list[int]] = []
        for place, expression in enumerate(self._bound_constraints):
            if expression == FALSE:
                raise SpecError(f"constraints.{place}", self.constraints[place], "can never hold")
            used = _in_order(expression, column)
            touched.append(used)
            for other in used[1:]:
                merged, kept = part[other], part[used[0]]
                part = [kept if each == merged else each for each in part]
        return tuple(self._component(root, part, touched) for root in dict.fromkeys(part))

    def _component(self, root: int, part: list[int], touched: list[list[int]]) -> Component:
        mine = [place for place, used in enumerate(touched) if used and part[used[0]] == root]
        first = [column for place in mine for column in touched[place]]
        members = [column for column, each in enumerate(part) if each == root]
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
            raise SpecError(where, value, f"no values of {names} satisfy this")
        return Component(columns, diagram)

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
        """How many combinations satisfy every constraint; exact, whatever the size."""
        return prod(component.diagram.count for component in self.components)

    @property
    def stacks(self) -> tuple[str, ...]:
        """The layers of the stack in which something may vary."""
        return tuple(stack for stack in STACKS if any(each.stack == stack for each in self.parameters))

    def restrict(self, stacks: Iterable[str]) -> ParameterSet:
        """Return the same set with everything outside *stacks* frozen at the base design."""
        opened = list(stacks)
        for stack in opened:
            if stack not in self.stacks:
                raise UnknownName.among("stacks", stack, "layer with parameters", self.stacks)
        kept = tuple(each for each in self.parameters if each.stack in opened)
        name = f"{self.name}[{','.join(opened)}]"
        source = None if self.source is None else {**self.source, "stacks": opened}
        return replace(self, name=name, parameters=kept, source=source)

    @cached_property
    def identity(self) -> str:
        """A short text that two sets share only if they mean the same designs."""
        values = [(each.name, each.paths, [str(value) for value in each.values]) for each in self.parameters]
        shares = [(each.name, each.weight, each.base.identity) for each in self.workloads]
        content = [self.base.identity, values, sorted(self.derived.items()), self.constraints, self.limits, shares]
        return sha256(json.dumps(content).encode()).hexdigest()[:16]

    # ------------------------------------------------------------------------------------------- points

    @cached_property
    def free(self) -> Indices:
        """The columns that no constraint touches: any value goes with anything."""
        tied = {column for component in self.tied for column in component.columns}
        return np.array([column for column in range(len(self.parameters)) if column not in tied], dtype=np.intp)

    @cached_property
    def tied(self) -> tuple[Component, ...]:
        """The components in which not everything is valid."""
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
        """Return for each row a value that only equal rows share: what to look points up by."""
        if self.raw < 2**62:
            keys: list[Hashable] = (rows @ _worths(self.sizes)).tolist()
            return keys
        return [row.tobytes() for row in rows.astype(np.int64)]

    def contains(self, rows: Indices) -> npt.NDArray[np.bool_]:
        """Return for each row whether it is a valid point."""
        inside = np.asarray(((rows >= 0) & (rows < self._widths)).all(axis=1))
        safe = np.where(inside[:, None], rows, 0)
        for component in self.tied:
            inside &= component.diagram.contains(safe[:, component.columns])
        return inside

    def repair(self, rows: Indices) -> Indices:
        """Return a valid point near each row: itself if valid, and otherwise as many of its values as can be."""
        wanted = np.clip(rows, 0, self._widths - 1)
        for component in self.tied:
            wanted[:, component.columns] = component.diagram.repair(wanted[:, component.columns])
        return wanted

    def enumerate(self) -> Iterator[Indices]:
        """Yield every valid point, one row at a time."""
        for start in range(0, self.valid, LISTED_AT_ONCE):
            yield from self.listed(start, min(LISTED_AT_ONCE, self.valid - start))

    def listed(self, start: int, n: int) -> Indices:
        """Return *n* points from the place *start* on in the order of `enumerate`, found without what precedes them."""
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
        found: dict[str, Column] = {}
        for place, parameter in enumerate(self.parameters):
            for path, values in zip(parameter.paths, zip(*parameter.values, strict=True), strict=True):
                found[path] = column_of(values)[rows[:, place]]
        return found | {path: self.derive(path, rows) for path in self.derived}

    def derive(self, path: str, rows: Indices) -> Column:
        """Return a derived field of many points: worked out once for each combination that ever occurs."""
        used = self._used[path]
        first, which = _distinct(rows[:, used], [self.sizes[place] for place in used])
        known = self._derived.setdefault(path, {})
        if len(known) > MOST_KNOWN:
            known.clear()
        values = []
        for choice in map(tuple, rows[np.ix_(first, used)].tolist()):
            if choice not in known:
                known[choice] = self._derived_value(path, zip(used, choice, strict=True))
            values.append(known[choice])
        derived: Column = column_of(values)[which]
        return derived

    @cached_property
    def _used(self) -> dict[str, list[int]]:
        """For each derived field, the parameters that it follows from."""
        needed = {path: variables(bound.expression) for path, bound in self._derivations.items()}
        numbered = list(enumerate(self.parameters))
        return {
            path: [at for at, each in numbered if not names.isdisjoint(each.paths)] for path, names in needed.items()
        }

    @cached_property
    def _derived(self) -> dict[str, dict[tuple[int, ...], Any]]:
        """What was derived already, by the indices of the values it follows from."""
        return {}

    def _derived_value(self, path: str, choices: Iterable[tuple[int, int]]) -> Any:
        settings: dict[str, Constant] = {}
        for place, index in choices:
            settings |= self.parameters[place].settings[index]
        text = self.derived[path]
        found = value_of(substitute(self._derivations[path].expression, settings), f"derived.{path}", text)
        return self._as_field(path, found)

    def _as_field(self, path: str, value: Scalar) -> Any:
        """Return an expression's *value* as the field at *path* holds it."""
        if not isinstance(value, Fraction):
            return value
        if schema.slot_at(self.base, path).hint is int:
            if value.denominator != 1:
                raise SpecError(f"derived.{path}", float(value), f"must be a whole number ({self.derived[path]})")
            return int(value)
        return float(value)

    def changes(self, row: Indices) -> dict[str, Any]:
        """Return what the point *row* sets: the content of each searched or derived field."""
        chosen = {
            path: part
            for parameter, index in zip(self.parameters, row.tolist(), strict=True)
            for path, part in zip(parameter.paths, parameter.values[index], strict=True)
        }
        return chosen | {path: self.derive(path, row[None, :]).tolist()[0] for path in self.derived}

    def point(self, row: Indices) -> DesignPoint:
        """Return the design that *row* stands for."""
        point: DesignPoint = schema.assign(self.base, self.changes(row))
        return point

    def row_of(self, point: DesignPoint) -> Indices | None:
        """Return the row that stands for *point*; None where it is no point of the set."""
        row = []
        for parameter in self.parameters:
            wanted = tuple(schema.get(point, path) for path in parameter.paths)
            if wanted not in parameter.values:
                return None
            row.append(parameter.values.index(wanted))
        found = np.array(row, dtype=np.intp)
        same = self.contains(found[None, :])[0] and self.point(found) == point
        return found if same else None

    def labels(self, row: Indices) -> dict[str, Any]:
        """Return the point *row* as it is written in files: a value for each parameter and derived field."""
        chosen = {each.name: each.labels[index] for each, index in zip(self.parameters, row.tolist(), strict=True)}
        changed = self.changes(row)
        return chosen | {path: label(self.base, path, changed[path]) for path in self.derived}


def _in_order(expression: Expression, column: Mapping[str, int]) -> list[int]:
    """Return the columns that *expression* depends on, in the order in which it mentions them.

    Parameters mentioned side by side become neighbouring levels of the diagram, which keeps it narrow.
    """
    found: list[int] = []
    pending = [expression]
    while pending:
        each = pending.pop()
        found += [column[path] for path in variables(each) if not hasattr(each, "arguments")]
        pending.extend(reversed(getattr(each, "arguments", ())))
    return list(dict.fromkeys(found))


def _distinct(rows: Indices, sizes: list[int]) -> tuple[list[int], Indices]:
    """Return where each distinct row first stands, and for every row which of those it equals."""
    if prod(sizes) < 2**62:  # sorting numbers is far quicker than sorting rows
        codes = rows @ _worths(tuple(sizes))
        _, first, which = np.unique(codes, return_index=True, return_inverse=True)
    else:
        _, first, which = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    return first.tolist(), which.reshape(-1)


@lru_cache(maxsize=256)
def _worths(sizes: tuple[int, ...]) -> npt.NDArray[np.int64]:
    """Return what an index of each parameter is worth in a number that stands for a combination: its digits.

    >>> _worths((10, 2, 5)).tolist()
    [10, 5, 1]
    """
    return np.array([prod(sizes[place + 1 :]) for place in range(len(sizes))], dtype=np.int64)
