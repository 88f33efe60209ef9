"""The parameter set: counting, sampling and decoding of its points.

A point of the set is a row of value indices, one per parameter; functions on many points take and return
arrays of such rows. The set knows which rows are valid; it knows no physics.

A derived field has the value of an expression, held as its field holds it. Bandwidth that a set does not list is
provisioned: each point gets what is best for it under a budget. Where several workloads share one system, each of them
sees the set around its own base.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from math import prod
from typing import TYPE_CHECKING, Any, Protocol, get_args

import numpy as np
import numpy.typing as npt

from cosmic.base.caching import digest
from cosmic.base.errors import SpecError, UnknownName, require
from cosmic.design import schema
from cosmic.design.design_batch import Batch, Column, column_of
from cosmic.design.design_point import STACK_LAYERS, DesignPoint, EngineFields
from cosmic.search.space import diagram as diagrams
from cosmic.search.space.diagram import Diagram, Flags, Indices
from cosmic.search.space.expressions import (
    FALSE,
    NO_VALUE,
    PROVISIONED,
    UNDEFINED,
    Bound,
    Expression,
    Known,
    Scalar,
    Scope,
    constant_value,
    make_operation,
    order_columns,
    substitute,
    variables,
)
from cosmic.search.space.parameters import SYSTEM, Parameter, value_label

if TYPE_CHECKING:
    from cosmic.search.provision.bandwidth_descent import Provision

# ---- Values of derived fields: what an expression gives, as its field holds it

MAX_DERIVED = 1_000_000
"""How many derived values of a field are cached at most."""
MAX_TABLE_CELLS = 100_000
"""Up to this many combinations of the values that a field depends on, a table says where the derived value is."""


def convert_to_field(base: DesignPoint, path: str, value: Scalar, text: str) -> Any:
    """Return the *value* of the expression *text* as the field at *path* holds it; refuse what it cannot hold."""
    where, slot = f"derived.{path}", schema.slot_at(base, path)
    content = _as_number(value, slot.hint, where, text) if isinstance(value, Fraction) else value
    if isinstance(content, str) and (choices := slot.choices()) is not None and content not in choices:
        raise SpecError(where, content, f"must be one of {', '.join(sorted(choices))} ({text})")
    try:
        schema.assign_fields(base, {path: content})
    except SpecError as error:
        if error.where == path:  # what else the base breaks then, other values of the same point may mend
            raise SpecError(where, content, f"{error.rule} ({text})") from None
    return content


def _as_number(value: Fraction, hint: Any, where: str, text: str) -> int | float:
    is_integer = int in (hint, *get_args(hint))
    if is_integer and value.denominator != 1:
        raise SpecError(where, _as_float(value, where, text), f"must be a whole number ({text})")
    if is_integer and abs(value) >= schema.INT_LIMIT:
        raise SpecError(where, text, "is too large")
    return int(value) if is_integer else _as_float(value, where, text)


def _as_float(value: Fraction, where: str, text: str) -> float:
    try:
        return float(value)
    except OverflowError:
        raise SpecError(where, text, "is too large") from None


class DerivedSource(Protocol):
    """What derived values are computed from: a parameter set."""

    def derived_value(self, path: str, choices: Iterable[tuple[int, int]]) -> Any:
        """Return the field at *path* of points with these choices, of columns and the indices of their values."""
        ...

    def contains(self, rows: Indices) -> Flags:
        """Return for each row whether it is a valid point."""
        ...


class DerivedValues:
    """The values of one derived field: each combination of what it depends on is computed once."""

    def __init__(self, path: str, used: list[int], sizes: Sequence[int]) -> None:
        self.path = path
        self.used = used
        """The columns of the parameters that it depends on."""
        self.sizes = tuple(sizes[column] for column in used)
        self._cache: dict[tuple[int, ...], Any] = {}
        self._positions: dict[Any, int] = {}
        """Every value that is in the table, in the order of the table's column."""
        self._values: Column = column_of([])
        tabled = prod(self.sizes) <= MAX_TABLE_CELLS
        self._table = np.full(prod(self.sizes), -1, dtype=np.intp) if tabled else None

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take the state of another process; what came through shared memory cannot be written, and is copied."""
        self.__dict__ |= state
        self._table = None if self._table is None else np.array(self._table)

    def column(self, rows: Indices, source: DerivedSource) -> Column:
        """Return the field of many points; None stands for one that is not valid and has none."""
        chosen = rows[:, self.used]
        if self._table is None:
            return self._compute(chosen, rows, source)
        codes = chosen @ place_values(self.sizes)
        positions = self._table[codes]
        if len(positions) and positions.min() < 0:
            computed = self._compute(chosen, rows, source)
            self._learn(self._table, codes, computed.tolist())
            return computed
        values: Column = self._values[positions]
        return values

    def _learn(self, table: Indices, codes: npt.NDArray[np.int64], values: list[Any]) -> None:
        """Note the *values* in the table; a point that has none is computed again, and refused where it is valid."""
        for code, value in set(zip(codes.tolist(), values, strict=True)):
            if value is not None:
                table[code] = self._positions.setdefault(value, len(self._positions))
        self._values = column_of(self._positions)

    def _compute(self, chosen: Indices, rows: Indices, source: DerivedSource) -> Column:
        first_rows, inverse = _distinct_rows(chosen, self.sizes)
        if len(self._cache) > MAX_DERIVED:
            self._cache.clear()
        values = []
        for index, choice in enumerate(map(tuple, chosen[first_rows].tolist())):
            if choice not in self._cache:
                try:
                    self._cache[choice] = source.derived_value(self.path, zip(self.used, choice, strict=True))
                except SpecError:
                    if source.contains(rows[inverse == index]).any():
                        raise
            values.append(self._cache.get(choice))
        derived: Column = column_of(values)[inverse]
        return derived


def _distinct_rows(rows: Indices, sizes: tuple[int, ...]) -> tuple[list[int], Indices]:
    """Return the first place of each distinct row, and for every row which of those it equals."""
    if prod(sizes) < 2**62:  # sorting numbers is far quicker than sorting rows
        codes = rows @ place_values(sizes)
        _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    else:
        _, first, inverse = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    return first.tolist(), inverse.reshape(-1)


@lru_cache(maxsize=256)
def place_values(sizes: tuple[int, ...]) -> npt.NDArray[np.int64]:
    """Return the place value of each parameter in a mixed-radix number that encodes a combination.

    >>> place_values((10, 2, 5)).tolist()
    [10, 5, 1]
    """
    return np.array([prod(sizes[index + 1 :]) for index in range(len(sizes))], dtype=np.int64)


# ---- Bandwidth that a parameter set does not list: each of its points gets what is best for it under a budget

MAX_PROVISIONED = 200_000
"""Points whose bandwidth is kept in memory."""
BANDWIDTH_DIGITS = 7
"""Of the bandwidth in a design: so many can be read and written, and more make no difference to a step."""

Rates = npt.NDArray[np.float64]


def bandwidth_paths(dims: int) -> list[str]:
    """Return the paths of what is provisioned in networks of so many dimensions.

    >>> bandwidth_paths(2)
    ['network.dims.0.bandwidth', 'network.dims.1.bandwidth']
    """
    return [f"network.dims.{index}.bandwidth" for index in range(dims)]


class Provisioner:
    """The bandwidth of the points of *space*, which itself has that of its base, for all its workloads together."""

    def __init__(self, space: ParameterSet, provision: Provision) -> None:
        self._space = space
        self.provision = provision
        self._base: Rates = np.array([dim.bandwidth_bytes_per_s for dim in space.base.network.dims])
        self._cache: dict[Hashable, tuple[Rates, bool]] = {}

    @cached_property
    def _workloads(self) -> list[tuple[float, ParameterSet]]:
        """Each workload's weight, and the set around it."""
        if not self._space.workloads:
            return [(1.0, self._space)]
        return [(share.weight, replace_base(self._space, share)) for share in self._space.workloads]

    def column(self, rows: Indices, dim: int) -> Rates:
        """Return the bandwidth of the dimension at *dim* in points, in bytes per second."""
        provisioned = self._provision_rows(rows)
        return np.array([rates[dim] for rates, _ in provisioned])

    def possible(self, rows: Indices) -> Flags:
        """Return for which points some bandwidth meets all limits."""
        return np.array([feasible for _, feasible in self._provision_rows(rows)], dtype=bool)

    def _provision_rows(self, rows: Indices) -> list[tuple[Rates, bool]]:
        keys = self._space.keys(rows)
        new = list({key: index for index, key in enumerate(keys) if key not in self._cache}.values())
        if len(self._cache) + len(new) > MAX_PROVISIONED:
            self._cache.clear()
            return self._provision_rows(rows) if len(set(keys)) <= MAX_PROVISIONED else self._compute(rows)
        for row, result in zip(new, self._compute(rows[new]), strict=True):
            self._cache[keys[row]] = result
        return [self._cache[key] for key in keys]

    def _compute(self, rows: Indices) -> list[tuple[Rates, bool]]:
        """Return the bandwidth of each point; of one that is not valid, that of the base."""
        inside = np.flatnonzero(self._space.contains(rows))
        results = [(self._base, True)] * len(rows)
        workloads = tuple((weight, Batch(space.base, space.columns(rows[inside]))) for weight, space in self._workloads)
        # The solver is needed by few sets, and loading it takes as long as loading a set.
        from cosmic.search.provision.bandwidth_descent import Candidates, provision_candidates  # noqa: PLC0415

        best, feasible = provision_candidates(Candidates(workloads, len(inside)), self.provision)
        for row, rates, is_feasible in zip(inside.tolist(), best.tolist(), feasible.tolist(), strict=True):
            results[row] = (np.array([float(f"{rate:.{BANDWIDTH_DIGITS}g}") for rate in rates]), is_feasible)
        return results


def provision_space(space: ParameterSet, provision: Provision | None) -> ParameterSet:
    """Return *space* with the bandwidth of each point provisioned; without *provision*, as the base has it."""
    derived = {path: text for path, text in space.derived.items() if text != PROVISIONED}
    bare = replace(space, derived=derived, provisioner=None)
    if provision is None:
        return bare
    check_provisioned(bare)
    derived_with_bandwidth = derived | dict.fromkeys(bandwidth_paths(len(space.base.network.dims)), PROVISIONED)
    return replace(bare, derived=derived_with_bandwidth, provisioner=Provisioner(bare, provision))


def check_provisioned(space: ParameterSet) -> None:
    """Refuse a parameter set whose bandwidth cannot be provisioned, or is chosen or derived as well."""
    paths = bandwidth_paths(len(space.base.network.dims))
    for parameter in space.parameters:
        for path in parameter.paths:
            require(
                path not in paths,
                f"parameters.{parameter.name}",
                list(parameter.labels),
                "is provisioned, so not chosen",
            )
    for path in paths:
        require(path not in space.derived, f"derived.{path}", space.derived.get(path), "is provisioned, so not derived")
    for base in (space.base, *(share.base for share in space.workloads)):
        rule = "goes with steps: a design that serves a load is provisioned by one step of it"
        require(base.serving is None, "provision", base.model.name, rule)
    for share in space.workloads:
        network_fields = sorted(path for path in share.own if path.startswith("network."))
        require(
            not network_fields,
            f"workloads.{share.name}",
            ", ".join(network_fields),
            "bandwidth is provisioned for one network of all",
        )


FORMAT = 1
"""Version of the file format and of the exported schema."""
CHECKED_POINTS = 64
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
    """The engine that evaluates it, where the set says so; the base may then be fields of that engine
    (`EngineFields`)."""
    provisioner: Provisioner | None = field(default=None, repr=False)
    """Gives each point the bandwidth that is best for it: derived fields whose expression is `PROVISIONED`."""
    source: Mapping[str, Any] | None = field(default=None, init=False, repr=False)
    """The content of a file that describes this set without reference to any other; `replace` does not keep it."""

    def __repr__(self) -> str:
        """Say what the set is in a line: a notebook shows it."""
        count = f"{len(self.parameters):,} parameter{'' if len(self.parameters) == 1 else 's'}"
        return f"<ParameterSet {self.name}: {count}, {self.valid:,} valid points>"

    def __post_init__(self) -> None:
        _ = self.components  # malformed expressions and empty sets are found here, not during a search
        if self.derived:
            self._check_derived()

    def _check_derived(self) -> None:
        """Refuse derived fields that have no value, or one that their field cannot hold.

        All points of a small set are tried, and some of a large one: `derive` refuses the others when it meets them.
        """
        few = self.valid <= CHECKED_POINTS
        rows = self.listed(0, self.valid) if few else self.sample(CHECKED_POINTS, np.random.default_rng(0))
        for path in self._derivations:
            self.derive(path, rows)

    # ------------------------------------------------------------------------------------- expressions

    @cached_property
    def _scope(self) -> Scope:
        searched = frozenset(path for parameter in self.parameters for path in parameter.paths)
        return Scope(self.base, searched, self.derived, sized=any(member.name == SYSTEM for member in self.parameters))

    @cached_property
    def _provisioned(self) -> dict[str, int]:
        """The dimension of each bandwidth that is provisioned, by its path."""
        dims = len(self.base.network.dims) if self.provisioner is not None else 0
        return {path: index for index, path in enumerate(bandwidth_paths(dims)) if path in self.derived}

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
            field_type, expression_type = self._scope.type_of(path), bound[path].type
            if (field_type.kind, field_type.dimension) != (expression_type.kind, expression_type.dimension):
                raise SpecError(where, text, f"gives {expression_type}; the field holds {field_type}")
        return bound

    @cached_property
    def _bound_constraints(self) -> list[Expression]:
        bound = []
        for index, text in enumerate(self.constraints):
            expression, kind = self._scope.bind(text, f"constraints.{index}")
            if kind.kind != "truth value":
                raise SpecError(f"constraints.{index}", text, f"gives {kind}; a constraint is true or false")
            bound.append(expression)
        return bound

    # --------------------------------------------------------------------------------------- components

    @cached_property
    def components(self) -> tuple[Component, ...]:
        """The independent components: parameters in different components share no constraint."""
        _ = self._derivations
        column = {path: position for position, parameter in enumerate(self.parameters) for path in parameter.paths}
        owner = list(range(len(self.parameters)))  # the component of each parameter, merged by constraints
        touched: list[list[int]] = []
        for index, expression in enumerate(self._bound_constraints):
            if expression == FALSE:
                raise SpecError(f"constraints.{index}", self.constraints[index], "can never hold")
            if expression == UNDEFINED:
                raise SpecError(f"constraints.{index}", self.constraints[index], f"has no value: {NO_VALUE}")
            used = order_columns(expression, column)
            touched.append(used)
            for tied_column in used[1:]:
                merged, survivor = owner[tied_column], owner[used[0]]
                owner = [survivor if component == merged else component for component in owner]
        return tuple(self._component(root, owner, touched) for root in dict.fromkeys(owner))

    def _component(self, root: int, owner: list[int], touched: list[list[int]]) -> Component:
        own_constraints = [index for index, used in enumerate(touched) if used and owner[used[0]] == root]
        first = [column for position in own_constraints for column in touched[position]]
        members = [column for column, component in enumerate(owner) if component == root]
        columns = tuple(dict.fromkeys([*first, *members]))
        levels = [self.parameters[column].settings for column in columns]
        texts = [self.constraints[position] for position in own_constraints]
        where, value = (
            (f"constraints.{own_constraints[0]}", texts[0]) if len(own_constraints) == 1 else ("constraints", texts)
        )
        try:
            diagram = diagrams.build_diagram(
                levels, [self._bound_constraints[position] for position in own_constraints]
            )
        except SpecError as error:
            raise SpecError(where, value, error.rule) from None
        if not diagram.count:
            names = ", ".join(self.parameters[column].name for column in columns)
            if len(own_constraints) == 1 and not self._is_ever_false(own_constraints[0], columns):
                raise SpecError(where, value, f"has no value for any values of {names}: {NO_VALUE}")
            raise SpecError(where, value, f"no values of {names} satisfy this")
        return Component(columns, diagram)

    def _is_ever_false(self, index: int, columns: tuple[int, ...]) -> bool:
        """Return whether the constraint at *index* is false for some values, rather than without a value for all."""
        levels = [self.parameters[column].settings for column in columns]
        return diagrams.build_diagram(levels, [make_operation("not", (self._bound_constraints[index],))]).count > 0

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
        return not isinstance(self.base, EngineFields)

    @property
    def stacks(self) -> tuple[str, ...]:
        """The layers of the stack that have parameters."""
        searched = {"network"} if self.provisioner is not None else set()
        searched |= {parameter.stack for parameter in self.parameters}
        if not self.of_designs:
            return tuple(dict.fromkeys(parameter.stack for parameter in self.parameters))
        return tuple(stack for stack in (SYSTEM, *STACK_LAYERS) if stack in searched)

    def restrict(self, stacks: Iterable[str]) -> ParameterSet:
        """Return the same set with everything outside *stacks* frozen at the base design."""
        opened = list(stacks)
        for stack in opened:
            if stack not in self.stacks:
                raise UnknownName.among("stacks", stack, "layer with parameters", self.stacks)
        parameters = tuple(parameter for parameter in self.parameters if parameter.stack in opened)
        name = f"{self.name}[{','.join(opened)}]"
        restricted = replace(self, name=name, parameters=parameters)
        if self.provisioner is not None:
            restricted = provision_space(restricted, self.provisioner.provision if "network" in opened else None)
        return restricted if self.source is None else with_source(restricted, {**self.source, "stacks": opened})

    @cached_property
    def identity(self) -> str:
        """A short text that two sets share only if they describe the same designs."""
        values = [
            (parameter.name, parameter.paths, [str(value) for value in parameter.values])
            for parameter in self.parameters
        ]
        shares = [(workload.name, workload.weight, workload.base.identity) for workload in self.workloads]
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
            component
            for component in self.components
            if component.diagram.count < prod(self.sizes[column] for column in component.columns)
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
        violations = {}
        for position, expression in enumerate(self._bound_constraints):
            value, text = substitute(expression, settings), self.constraints[position]
            if value == FALSE:
                violations[f"constraints.{position}"] = f"breaks the constraint {text}"
            elif value == UNDEFINED:
                violations[f"constraints.{position}"] = f"the constraint {text} has no value: {NO_VALUE}"
        return violations

    def repair(self, rows: Indices) -> Indices:
        """Return a valid point near each row: the row itself if it is valid."""
        repaired = np.clip(rows, 0, self._widths - 1)
        for component in self.tied:
            repaired[:, component.columns] = component.diagram.repair(repaired[:, component.columns])
        return repaired

    def enumerate(self) -> Iterator[Indices]:
        """Yield every valid point, one row at a time."""
        for start in range(0, self.valid, LISTED_AT_ONCE):
            yield from self.listed(start, min(LISTED_AT_ONCE, self.valid - start))

    def listed(self, start: int, n: int) -> Indices:
        """Return *n* points from the place *start* on in the order of `enumerate`, without enumerating earlier ones."""
        positions: npt.NDArray[Any] = np.arange(n).astype(np.int64 if self.valid < 2**62 else object) + start
        rows = np.empty((n, len(self.parameters)), dtype=np.intp)
        for component in reversed(self.components):
            count = component.diagram.count
            rows[:, component.columns] = component.diagram.nth(positions % count)
            positions = positions // count
        return rows

    # ------------------------------------------------------------------------------------------ decoding

    def columns(self, rows: Indices) -> dict[str, Column]:
        """Return the searched and derived fields of many points, an array for each path."""
        chosen = np.ascontiguousarray(rows.T)
        searched: dict[str, Column] = {path: values[chosen[column]] for path, column, values in self._values}
        return searched | {path: self.derive(path, rows) for path in self.derived}

    @cached_property
    def _values(self) -> list[tuple[str, int, Column]]:
        """For each searched field: its path, the column of its parameter in a row, and its content by value."""
        return [
            (path, index, column_of(values))
            for index, parameter in enumerate(self.parameters)
            for path, values in zip(parameter.paths, zip(*parameter.values, strict=True), strict=True)
        ]

    def values_of(self, path: str) -> tuple[Any, ...]:
        """Return the values that the field at *path* may have, or its expression if it is derived."""
        for parameter in self.parameters:
            if path in parameter.paths:
                return tuple(values[parameter.paths.index(path)] for values in parameter.values)
        return (self.derived[path] if path in self.derived else schema.get_field(self.base, path),)

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
            path: [column for column, parameter in numbered if not names.isdisjoint(parameter.paths)]
            for path, names in needed.items()
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
        for column, index in chosen:
            settings |= self.parameters[column].settings[index]
        text = self.derived[path]
        try:
            value = constant_value(substitute(self._derivations[path].expression, settings), f"derived.{path}", text)
            if value not in (checked := self._checked.setdefault(path, {})):
                checked[value] = convert_to_field(self.base, path, value, text)
            return checked[value]
        except SpecError as error:
            settings_text = ", ".join(
                f"{self.parameters[column].name} = {self.parameters[column].labels[settings_text]}"
                for column, settings_text in chosen
            )
            raise SpecError(
                error.where, error.value, f"{error.rule}, where {settings_text}" if settings_text else error.rule
            ) from None

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
        point: DesignPoint = schema.assign_fields(self.base, self.changes(row))
        return point.compact

    def row_of(self, point: DesignPoint) -> Indices | None:
        """Return the row of the design *point*; None where it is not in the set."""
        point = point.padded(len(self.base.network.dims)) if self.of_designs else point
        row = []
        for parameter in self.parameters:
            values = tuple(schema.get_field(point, path) for path in parameter.paths)
            if values not in parameter.values:
                return None
            row.append(parameter.values.index(values))
        candidate = np.array(row, dtype=np.intp)
        same = self.contains(candidate[None, :])[0] and self.point(candidate) == point.compact
        return candidate if same else None

    def labels(self, row: Indices) -> dict[str, Any]:
        """Return the point *row* as files write it: a value for each parameter and derived field."""
        chosen = {
            parameter.name: parameter.labels[index]
            for parameter, index in zip(self.parameters, row.tolist(), strict=True)
        }
        changed = self.changes(row)
        return chosen | {path: value_label(self.base, path, changed[path]) for path in self.derived}


def with_source(space: ParameterSet, source: Mapping[str, Any]) -> ParameterSet:
    """Return *space* with the content of the file that describes it."""
    object.__setattr__(space, "source", source)  # no argument of its own: a set that was changed has no such file
    return space


# ---- Several workloads on one system: the parameter set as each of them sees it


def share_applies(share: Share, path: str) -> bool:
    """Return whether a searched field is one of a workload: not of a load that it lacks, nor what it states itself."""
    return path not in share.own and (share.base.serving is not None or not path.startswith("serving."))


def replace_base(space: ParameterSet, share: Share) -> ParameterSet:
    """Return *space* around the base of one of its workloads."""
    if share.base is space.base:
        return space
    if all(share_applies(share, path) for parameter in space.parameters for path in parameter.paths):
        return replace(space, base=share.base, workloads=(), derived={**space.derived, **share.derived})
    parameters = tuple(parameter.only(lambda path: share_applies(share, path)) for parameter in space.parameters)
    derived = {path: text for path, text in space.derived.items() if share_applies(share, path)} | dict(share.derived)
    return replace(space, base=share.base, workloads=(), parameters=parameters, derived=derived, constraints=())
