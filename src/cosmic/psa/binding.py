"""From syntax to bound expressions: names are resolved, ``*`` is expanded, types and units are checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from types import UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

from cosmic import syntax
from cosmic.design import schema
from cosmic.design.point import DesignPoint
from cosmic.errors import SpecError, shorten, suggestion
from cosmic.psa.expressions import ZERO, Constant, Expression, Variable, exact, operation
from cosmic.syntax import Call, Path, Syntax
from cosmic.units import NUMBER, PhysicalDimension

PROVISIONED = "provisioned"
"""Stands for the expression of a bandwidth that is provisioned: each point gets what is best for it."""
NPUS = "npus"
"""In expressions: the number of NPUs of the base design."""
ALL_NPUS = Call("product", (Path("network.dims.*.npus"),))
INNER = ("node.", "serving.prefill.", "serving.load.classes.")
"""Short names that other fields have too are not of these."""
AGGREGATES = ("product", "sum", "min", "max", "all", "any")
_INFIX = {"*": "product", "+": "sum", "and": "all", "or": "any"}
_ORDER = ("<", "<=", ">", ">=")
MAX_DEPTH = 250
"""The deepest tree of an expression with all derived fields that it uses: Python walks it by recursion."""
MAX_PARTS = 20_000
"""The most parts of such a tree."""


class Type(NamedTuple):
    """The type of an expression: a number with a dimension, a text, or a truth value."""

    kind: str
    dimension: PhysicalDimension = NUMBER
    choices: frozenset[str] | None = None
    """All texts that the field can hold; None where they are not known."""

    def __str__(self) -> str:
        return str(self.dimension) if self.kind == "number" else f"a {self.kind}"


TRUTH = Type("truth value")


def type_of_hint(hint: Any, choices: frozenset[str] | None = None) -> Type | None:
    """Return the type of fields that are declared as *hint*; None for lists and other nested values."""
    if get_origin(hint) in (Union, UnionType):
        options = [option for option in get_args(hint) if option is not type(None)]
        return type_of_hint(options[0], choices) if len(options) == 1 else None
    if hint is bool:
        return TRUTH
    if hint is str or get_origin(hint) is Literal:
        return Type("text", choices=choices)
    return Type("number") if hint in (int, float) else None


class Bound(NamedTuple):
    """An expression and its type."""

    expression: Expression
    type: Type


@dataclass(frozen=True)
class Scope:
    """The names that expressions of one parameter set may use."""

    base: DesignPoint
    searched: frozenset[str]
    """The paths of the fields that parameters set."""
    derived: Mapping[str, str]
    """The text of each derived field's expression, by its path."""
    sized: bool = False
    """Whether the machine is a parameter, and with it the number of NPUs."""
    _deriving: list[str] = field(default_factory=list)
    _spent: list[int] = field(default_factory=lambda: [0, 0])
    """The depth and the number of parts of the expression that is being bound."""

    @property
    def fields(self) -> dict[str, Any]:
        """Every field of the base design: its value by its path."""
        return self.base.fields

    @cached_property
    def short_names(self) -> dict[str, list[str]]:
        """The full paths by their last component."""
        found: dict[str, list[str]] = {}
        for path in self.fields:
            found.setdefault(path.rpartition(".")[2], []).append(path)
        return found

    def bind(self, text: Any, where: str) -> Bound:
        """Return the bound expression of *text*; every mistake in it is a `SpecError` at *where*."""
        if not self._spent[0]:  # not the expression of a derived field that another one uses
            self._spent[1] = 0
        try:
            return self._bind(syntax.parse(text))
        except SpecError as error:
            if error.where != "expression":
                raise
            raise SpecError(where, text, error.rule) from None

    def resolve(self, name: str) -> str:
        """Return the full path of *name*, which may be short."""
        if name in self.fields:
            return name
        ending = self.short_names.get(name) or [path for path in self.fields if path.endswith(f".{name}")]
        candidates = [path for path in ending if not path.startswith(INNER)] or ending
        if len(candidates) == 1:
            return candidates[0]
        if candidates:
            raise _wrong(f"'{name}' could be {' or '.join(candidates[:3])}: write it in full")
        raise _wrong(f"knows no {shorten(name)}{suggestion(name, [*self.fields, *self.short_names, NPUS])}")

    # ------------------------------------------------------------------------------------------ the tree

    def _bind(self, tree: Syntax) -> Bound:
        self._spent[0] += 1
        self._spent[1] += 1
        if self._spent[0] > MAX_DEPTH or self._spent[1] > MAX_PARTS:
            raise _wrong("is too long, or nested too deeply, with the derived fields that it uses")
        try:
            return self._bind_kind(tree)
        finally:
            self._spent[0] -= 1

    def _bind_kind(self, tree: Syntax) -> Bound:
        if isinstance(tree, syntax.Literal):
            return _literal(tree)
        if isinstance(tree, Path):
            return self._bind_path(tree)
        if tree.name in AGGREGATES:
            arguments = [self._bind(each) for argument in tree.arguments for each in self._expand(argument)]
            if not arguments:
                raise _wrong(f"{tree.name}() needs at least one argument")
            return _aggregate(tree.name, arguments)
        if tree.name == "list":
            raise _wrong("a list can only stand after 'in'")
        if tree.name == "in":
            return self._bind_membership(tree)
        if tree.name not in _INFIX and tree.name not in _OPERATORS:
            raise _wrong(f"knows no function {shorten(tree.name)}{suggestion(tree.name, AGGREGATES)}")
        bound = [self._bind(argument) for argument in tree.arguments]
        if tree.name in _INFIX:
            return _aggregate(_INFIX[tree.name], bound, tree.name)
        kind = _OPERATORS[tree.name](tree.name, bound)  # first: operators compute with what they are made for only
        return Bound(operation(tree.name, tuple(argument.expression for argument in bound)), kind)

    def _bind_path(self, tree: Path) -> Bound:
        if "*" in tree.text:
            raise _wrong(f"'{tree.text}' is several values: put it inside product, sum, min, max, all or any")
        if tree.text == NPUS and self.sized:
            return self._bind(ALL_NPUS)
        if tree.text == NPUS and isinstance(self.base, DesignPoint):
            return Bound(Constant(Fraction(self.base.network.npus)), Type("number"))
        path = self.resolve(tree.text)
        if path in self.derived:
            return self.derivation(path)
        kind = self.type_of(path)
        if path in self.searched:
            return Bound(Variable(path), kind)
        if self.fields[path] is None:
            raise _wrong(f"'{tree.text}' has no value in the base design")
        return Bound(Constant(exact(self.fields[path])), kind)

    def derivation(self, path: str) -> Bound:
        """Return the expression of the derived field at *path*, in terms of parameters only."""
        if path in self._deriving:
            circle = " → ".join([*self._deriving[self._deriving.index(path) :], path])
            raise SpecError(f"derived.{path}", self.derived[path], f"depends on itself: {circle}")
        if self.derived[path] == PROVISIONED:
            raise _wrong(f"'{path}' is provisioned, which needs the whole design: limit it under provision.limits")
        self._deriving.append(path)
        try:
            return self.bind(self.derived[path], f"derived.{path}")
        finally:
            self._deriving.pop()

    def type_of(self, path: str) -> Type:
        """Return the type of the field at *path*."""
        slot = schema.slot_at(self.base, path)
        kind = type_of_hint(slot.hint, slot.choices())
        if kind is None:
            raise _wrong(f"'{path}' is neither a number, nor a text, nor a truth value")
        return kind._replace(dimension=slot.dimension or NUMBER)

    def _expand(self, tree: Syntax) -> Iterable[Syntax]:
        """Return a copy of *tree* for each list entry; all its ``*`` take the same entry."""
        patterns = sorted(_wildcards(tree))
        if not patterns:
            return [tree]
        counts = {pattern: self._entries(pattern) for pattern in patterns}
        if len(set(counts.values())) > 1:
            raise _wrong(f"{' and '.join(patterns)} have different numbers of entries")
        return [_fill(tree, str(place)) for place in range(counts[patterns[0]])]

    def _entries(self, pattern: str) -> int:
        if pattern.count("*") > 1:
            raise _wrong(f"'{pattern}' has more than one *")
        stem, _, rest = pattern.partition(".*")
        places = {path[len(stem) + 1 :].split(".")[0] for path in self.fields if path.startswith(f"{stem}.")}
        count = sum(place.isdecimal() for place in places)
        if not count or f"{stem}.0{rest}" not in self.fields:
            similar = {path.replace(".0", ".*") for path in self.fields if ".0" in path}
            raise _wrong(f"knows no {shorten(pattern)}{suggestion(pattern, similar)}")
        return count

    def _bind_membership(self, tree: Call) -> Bound:
        left, right = tree.arguments
        if not (isinstance(right, Call) and right.name == "list" and right.arguments):
            raise _wrong("after 'in' stands a list, such as [1, 2, 4]")
        value = self._bind(left)
        options = [self._bind(item) for item in right.arguments]
        for option in options:
            _comparable("in", value, option)
        return Bound(operation("in", tuple(bound.expression for bound in (value, *options))), TRUTH)


def _literal(tree: syntax.Literal) -> Bound:
    value = tree.value
    if isinstance(value, bool):
        return Bound(Constant(value), TRUTH)
    if isinstance(value, str):
        return Bound(Constant(value), Type("text", choices=frozenset((value,))))
    return Bound(Constant(value.value), Type("number", value.dimension))


def _wildcards(tree: Syntax) -> set[str]:
    if isinstance(tree, Path):
        return {tree.text} if "*" in tree.text else set()
    if isinstance(tree, Call) and tree.name not in AGGREGATES:
        return set().union(*(_wildcards(argument) for argument in tree.arguments))
    return set()  # a literal, or an aggregate, which expands its own


def _fill(tree: Syntax, place: str) -> Syntax:
    """Return *tree* with every ``*`` replaced by *place*, except in nested aggregates."""
    if isinstance(tree, Path):
        return Path(tree.text.replace("*", place))
    if isinstance(tree, Call) and tree.name not in AGGREGATES:
        return Call(tree.name, tuple(_fill(argument, place) for argument in tree.arguments))
    return tree


# ------------------------------------------------------------------------------------------------- types


def _aggregate(name: str, arguments: list[Bound], written: str = "") -> Bound:
    """Return the aggregate of *arguments*; *written* is the sign that stands for its *name*, if there is one."""
    kind = _type_of_aggregate(name, arguments, written or name)
    return Bound(operation(name, tuple(bound.expression for bound in arguments)), kind)


def _type_of_aggregate(name: str, arguments: list[Bound], written: str) -> Type:
    wanted = "truth value" if name in ("all", "any") else "number"
    for bound in arguments:
        _want(bound, wanted, written)
    if wanted == "truth value":
        return TRUTH
    if name == "product":
        dimension = NUMBER
        for bound in arguments:
            dimension = dimension.times(bound.type.dimension)
        return Type("number", dimension)
    return _common_type(written, arguments)


def _common_type(name: str, bound: list[Bound]) -> Type:
    """Return the one type of all of *bound*; a plain zero is of any dimension."""
    first = next((each for each in bound if not _is_zero(each)), bound[0])
    for each in bound:
        _comparable(name, first, each)
    return first.type


def _is_zero(bound: Bound) -> bool:
    return bound.expression == ZERO and bound.type == Type("number")


def _type_of_comparison(name: str, bound: list[Bound]) -> Type:
    left, right = bound
    _comparable(name, left, right)
    if name in _ORDER:
        _want(left, "number", name)
    return TRUTH


def _type_of_not(name: str, bound: list[Bound]) -> Type:
    _want(bound[0], "truth value", name)
    return TRUTH


def _type_of_choice(name: str, bound: list[Bound]) -> Type:
    condition, then, otherwise = bound
    _want(condition, "truth value", name)
    if then.type.kind == otherwise.type.kind == "text":
        some, others = then.type.choices, otherwise.type.choices
        return Type("text", choices=None if some is None or others is None else some | others)
    return _common_type(name, [then, otherwise])


def _type_of_quotient(name: str, bound: list[Bound]) -> Type:
    left, right = bound
    _want(left, "number", name)
    _want(right, "number", name)
    return Type("number", left.type.dimension.times(right.type.dimension, -1))


def _type_of_remainder(name: str, bound: list[Bound]) -> Type:
    for each in bound:
        _want(each, "number", name)
    return _common_type(name, bound)


def _type_of_power(name: str, bound: list[Bound]) -> Type:
    base, exponent = bound
    _want(base, "number", name)
    _want(exponent, "number", name)
    if base.type.dimension != NUMBER or exponent.type.dimension != NUMBER:
        raise _wrong("a power is taken of plain numbers only")
    return base.type


_OPERATORS = {
    **dict.fromkeys(("==", "!=", *_ORDER), _type_of_comparison),
    "not": _type_of_not,
    "if": _type_of_choice,
    "/": _type_of_quotient,
    "//": _type_of_quotient,
    "%": _type_of_remainder,
    "**": _type_of_power,
}


def _want(bound: Bound, kind: str, name: str) -> None:
    if bound.type.kind != kind:
        raise _wrong(f"'{name}' needs a {kind}, not {bound.type}")


def _comparable(name: str, left: Bound, right: Bound) -> None:
    """Refuse operands that can never be equal: of different types, units or texts."""
    if left.type.kind != right.type.kind:
        raise _wrong(f"'{name}' combines {left.type} with {right.type}")
    same = left.type.dimension == right.type.dimension
    if not (same or _is_zero(left) or _is_zero(right)):
        raise _wrong(f"'{name}' combines {left.type.dimension} with {right.type.dimension}")
    choices, others = left.type.choices, right.type.choices
    if choices is not None and others is not None and choices.isdisjoint(others):
        fewer, more = sorted((choices, others), key=len)
        raise _wrong(f"'{min(fewer)}' never occurs there{suggestion(min(fewer), more)}")


def _wrong(rule: str) -> SpecError:
    return SpecError("expression", "", rule)
