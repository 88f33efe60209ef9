"""Expressions of a parameter set: bound to fields, exact, hashable, and simplified as parameters take values.

Binding leads from syntax to expressions: names are resolved, ``*`` is expanded, types and units are checked.

Numbers are fractions, so that ``0.1 + 0.2 == 0.3`` holds and the order of a sum does not matter. An
expression with values substituted for some parameters is again an expression. Equal expressions have equal
results from then on, so combinations can be counted without enumerating the space (`cosmic.search.space.diagram`).

A division by zero has no value (`UNDEFINED`), nor has anything computed from it. Only a part that decides alone does
away with it: ``tp == 1 or x / (tp - 1) > 2`` holds at tp = 1, in whichever order its parts are written.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache, cached_property
from types import UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

from cosmic.base import expression_syntax
from cosmic.base.errors import SpecError, shorten, suggest_names
from cosmic.base.expression_syntax import Call, Path, Syntax
from cosmic.base.units import NUMBER, PhysicalDimension
from cosmic.design import schema
from cosmic.design.design_point import DesignPoint

# ---- Bound expressions: exact, hashable, and simplified step by step as parameters take values

Scalar = Fraction | str | bool
MAX_BITS = 4096
"""The largest size in bits of a power that is computed."""
MOST_BITS = 2**18
"""The largest size in bits of any number that is computed."""
NO_VALUE = "it divides by zero, takes an impossible power or uses a figure that is not known"


@dataclass(frozen=True, slots=True)
class Constant:
    """A known value."""

    value: Scalar


@dataclass(frozen=True, slots=True)
class Undefined:
    """No value: of a division by zero, of an impossible power, of a figure that is not known."""


@dataclass(frozen=True, slots=True)
class Variable:
    """A field whose value is not known yet."""

    path: str


@dataclass(frozen=True, slots=True)
class Operation:
    """An operator applied to expressions."""

    name: str
    arguments: tuple[Expression, ...]


Expression = Constant | Undefined | Variable | Operation
Known = Constant | Undefined

TRUE, FALSE, UNDEFINED = Constant(True), Constant(False), Undefined()

_FOLD_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "sum": operator.add,
    "product": operator.mul,
    "min": min,
    "max": max,
    "all": lambda left, right: left and right,
    "any": lambda left, right: left or right,
}
_DECIDED = {"all": FALSE, "any": TRUE}  # one such argument decides the result
_NEUTRAL = {"sum": Fraction(0), "product": Fraction(1), "all": True, "any": False}
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


_DIVISIONS: dict[str, Callable[[Any, Any], Any]] = {
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
}
ZERO = Constant(Fraction(0))


def as_exact(value: Any) -> Scalar:
    """Return *value* as expressions hold it: a number as the fraction of its decimal digits.

    >>> as_exact(0.1) + as_exact(0.2) == as_exact(0.3)
    True
    """
    if isinstance(value, bool | str | Fraction):
        return value
    return Fraction(repr(value)) if isinstance(value, float) else Fraction(value)


@cache
def variables(expression: Expression) -> frozenset[str]:
    """Return the paths of the fields that *expression* still depends on."""
    if isinstance(expression, Variable):
        return frozenset((expression.path,))
    if isinstance(expression, Operation):
        return frozenset().union(*(variables(argument) for argument in expression.arguments))
    return frozenset()


def substitute(expression: Expression, values: Mapping[str, Known]) -> Expression:
    """Return *expression* with *values* substituted, simplified."""
    if isinstance(expression, Variable):
        return values.get(expression.path, expression)
    if not isinstance(expression, Operation) or variables(expression).isdisjoint(values):
        return expression
    return make_operation(expression.name, tuple(substitute(argument, values) for argument in expression.arguments))


def make_operation(name: str, arguments: tuple[Expression, ...]) -> Expression:
    """Return the simplest expression equal to the operator *name* applied to *arguments*."""
    if name in _FOLD_OPERATORS:
        return _combine_arguments(name, arguments)
    if name == "if":
        condition, then, otherwise = arguments
        if isinstance(condition, Constant):
            return then if condition.value else otherwise
        return UNDEFINED if condition == UNDEFINED else Operation(name, arguments)
    if any(isinstance(operand, Undefined) for operand in arguments) or (name in _DIVISIONS and arguments[1] == ZERO):
        return UNDEFINED
    values = [argument.value for argument in arguments if isinstance(argument, Constant)]
    if len(values) < len(arguments):
        return Operation(name, arguments)
    if name in _COMPARISONS:
        return Constant(_COMPARISONS[name](*values))
    if name == "not":
        return Constant(not values[0])
    if name == "in":
        return Constant(values[0] in values[1:])
    result = _apply_arithmetic(name, values[0], values[1])
    return UNDEFINED if result is None else Constant(result)


def _combine_arguments(name: str, arguments: tuple[Expression, ...]) -> Expression:
    """Combine the known arguments of a sum, product, … into one, placed first, and flatten nested ones."""
    combine = _FOLD_OPERATORS[name]
    constant: Any = _NEUTRAL.get(name)
    unknown: list[Expression] = []
    undefined = False
    pending = list(reversed(arguments))
    while pending:
        argument = pending.pop()
        if isinstance(argument, Constant):
            if argument == _DECIDED.get(name):
                return argument
            constant = argument.value if constant is None else combine(constant, argument.value)
            undefined = undefined or _is_huge(constant)
        elif isinstance(argument, Undefined):
            undefined = True
        elif isinstance(argument, Operation) and argument.name == name:
            pending.extend(reversed(argument.arguments))
        else:
            unknown.append(argument)
    if undefined:  # an unknown part may still decide without it; nothing else can
        return Operation(name, (UNDEFINED, *unknown)) if unknown and name in _DECIDED else UNDEFINED
    if not unknown:
        return Constant(constant)
    if constant is not None and constant != _NEUTRAL.get(name):
        unknown.insert(0, Constant(constant))
    return unknown[0] if len(unknown) == 1 else Operation(name, tuple(unknown))


def _is_huge(value: Any) -> bool:
    return isinstance(value, Fraction) and max(value.numerator.bit_length(), value.denominator.bit_length()) > MOST_BITS


def _apply_arithmetic(name: str, base: Any, operand: Any) -> Fraction | None:
    """Return the result of an operator on two numbers; None where it is undefined (a division by zero)."""
    if name == "**":
        bits = max(base.numerator.bit_length(), base.denominator.bit_length())
        if operand.denominator != 1 or abs(operand) * bits > MAX_BITS or (base == 0 and operand < 0):
            return None
        return Fraction(base ** int(operand))
    if operand == 0:
        return None
    result = Fraction(_DIVISIONS[name](base, operand))
    return None if _is_huge(result) else result


def constant_value(expression: Expression, where: str, text: str) -> Scalar:
    """Return the value of an expression without variables; an error quotes *where* and *text*."""
    if isinstance(expression, Constant):
        return expression.value
    raise SpecError(where, text, f"has no value: {NO_VALUE}")


def order_columns(expression: Expression, column: Mapping[str, int]) -> list[int]:
    """Return the columns that *expression* depends on, in the order in which it mentions them.

    Parameters mentioned side by side become neighbouring levels of the diagram, which keeps it narrow.
    """
    columns: list[int] = []
    pending = [expression]
    while pending:
        node = pending.pop()
        columns += [column[path] for path in variables(node) if not hasattr(node, "arguments")]
        pending.extend(reversed(getattr(node, "arguments", ())))
    return list(dict.fromkeys(columns))


# ---- From syntax to bound expressions: names are resolved, ``*`` is expanded, types and units are checked

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
        paths: dict[str, list[str]] = {}
        for path in self.fields:
            paths.setdefault(path.rpartition(".")[2], []).append(path)
        return paths

    def bind(self, text: Any, where: str) -> Bound:
        """Return the bound expression of *text*; every mistake in it is a `SpecError` at *where*."""
        if not self._spent[0]:  # not the expression of a derived field that another one uses
            self._spent[1] = 0
        try:
            return self._bind(expression_syntax.parse_expression(text))
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
            raise _refuse(f"'{name}' could be {' or '.join(candidates[:3])}: write it in full")
        raise _refuse(f"knows no {shorten(name)}{suggest_names(name, [*self.fields, *self.short_names, NPUS])}")

    # ------------------------------------------------------------------------------------------ the tree

    def _bind(self, tree: Syntax) -> Bound:
        self._spent[0] += 1
        self._spent[1] += 1
        if self._spent[0] > MAX_DEPTH or self._spent[1] > MAX_PARTS:
            raise _refuse("is too long, or nested too deeply, with the derived fields that it uses")
        try:
            return self._bind_kind(tree)
        finally:
            self._spent[0] -= 1

    def _bind_kind(self, tree: Syntax) -> Bound:
        if isinstance(tree, expression_syntax.Literal):
            return _bind_literal(tree)
        if isinstance(tree, Path):
            return self._bind_path(tree)
        if tree.name in AGGREGATES:
            arguments = [self._bind(expanded) for argument in tree.arguments for expanded in self._expand(argument)]
            if not arguments:
                raise _refuse(f"{tree.name}() needs at least one argument")
            return _bind_aggregate(tree.name, arguments)
        if tree.name == "list":
            raise _refuse("a list can only stand after 'in'")
        if tree.name == "in":
            return self._bind_membership(tree)
        if tree.name not in _INFIX and tree.name not in _OPERATORS:
            raise _refuse(f"knows no function {shorten(tree.name)}{suggest_names(tree.name, AGGREGATES)}")
        bound = [self._bind(argument) for argument in tree.arguments]
        if tree.name in _INFIX:
            return _bind_aggregate(_INFIX[tree.name], bound, tree.name)
        kind = _OPERATORS[tree.name](tree.name, bound)  # first: operators compute with what they are made for only
        return Bound(make_operation(tree.name, tuple(argument.expression for argument in bound)), kind)

    def _bind_path(self, tree: Path) -> Bound:
        if "*" in tree.text:
            raise _refuse(f"'{tree.text}' is several values: put it inside product, sum, min, max, all or any")
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
            raise _refuse(f"'{tree.text}' has no value in the base design")
        return Bound(Constant(as_exact(self.fields[path])), kind)

    def derivation(self, path: str) -> Bound:
        """Return the expression of the derived field at *path*, in terms of parameters only."""
        if path in self._deriving:
            circle = " → ".join([*self._deriving[self._deriving.index(path) :], path])
            raise SpecError(f"derived.{path}", self.derived[path], f"depends on itself: {circle}")
        if self.derived[path] == PROVISIONED:
            raise _refuse(f"'{path}' is provisioned, which needs the whole design: limit it under provision.limits")
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
            raise _refuse(f"'{path}' is neither a number, nor a text, nor a truth value")
        return kind._replace(dimension=slot.dimension or NUMBER)

    def _expand(self, tree: Syntax) -> Iterable[Syntax]:
        """Return a copy of *tree* for each list entry; all its ``*`` take the same entry."""
        patterns = sorted(_wildcards(tree))
        if not patterns:
            return [tree]
        counts = {pattern: self._count_entries(pattern) for pattern in patterns}
        if len(set(counts.values())) > 1:
            raise _refuse(f"{' and '.join(patterns)} have different numbers of entries")
        return [_fill_wildcards(tree, str(index)) for index in range(counts[patterns[0]])]

    def _count_entries(self, pattern: str) -> int:
        if pattern.count("*") > 1:
            raise _refuse(f"'{pattern}' has more than one *")
        stem, _, suffix = pattern.partition(".*")
        indices = {path[len(stem) + 1 :].split(".")[0] for path in self.fields if path.startswith(f"{stem}.")}
        count = sum(index.isdecimal() for index in indices)
        if not count or f"{stem}.0{suffix}" not in self.fields:
            similar = {path.replace(".0", ".*") for path in self.fields if ".0" in path}
            raise _refuse(f"knows no {shorten(pattern)}{suggest_names(pattern, similar)}")
        return count

    def _bind_membership(self, tree: Call) -> Bound:
        left, right = tree.arguments
        if not (isinstance(right, Call) and right.name == "list" and right.arguments):
            raise _refuse("after 'in' stands a list, such as [1, 2, 4]")
        value = self._bind(left)
        options = [self._bind(item) for item in right.arguments]
        for option in options:
            _require_comparable("in", value, option)
        return Bound(make_operation("in", tuple(bound.expression for bound in (value, *options))), TRUTH)


def _bind_literal(tree: expression_syntax.Literal) -> Bound:
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


def _fill_wildcards(tree: Syntax, index: str) -> Syntax:
    """Return *tree* with every ``*`` replaced by *index*, except in nested aggregates."""
    if isinstance(tree, Path):
        return Path(tree.text.replace("*", index))
    if isinstance(tree, Call) and tree.name not in AGGREGATES:
        return Call(tree.name, tuple(_fill_wildcards(argument, index) for argument in tree.arguments))
    return tree


# ---- types


def _bind_aggregate(name: str, arguments: list[Bound], sign: str = "") -> Bound:
    """Return the aggregate of *arguments*; *sign* is the sign that stands for its *name*, if there is one."""
    kind = _type_of_aggregate(name, arguments, sign or name)
    return Bound(make_operation(name, tuple(bound.expression for bound in arguments)), kind)


def _type_of_aggregate(name: str, arguments: list[Bound], sign: str) -> Type:
    kind = "truth value" if name in ("all", "any") else "number"
    for bound in arguments:
        _require_type(bound, kind, sign)
    if kind == "truth value":
        return TRUTH
    if name == "product":
        dimension = NUMBER
        for bound in arguments:
            dimension = dimension.times(bound.type.dimension)
        return Type("number", dimension)
    return _common_type(sign, arguments)


def _common_type(name: str, bound: list[Bound]) -> Type:
    """Return the one type of all of *bound*; a plain zero is of any dimension."""
    first = next((operand for operand in bound if not _is_zero(operand)), bound[0])
    for operand in bound:
        _require_comparable(name, first, operand)
    return first.type


def _is_zero(bound: Bound) -> bool:
    return bound.expression == ZERO and bound.type == Type("number")


def _type_of_comparison(name: str, bound: list[Bound]) -> Type:
    left, right = bound
    _require_comparable(name, left, right)
    if name in _ORDER:
        _require_type(left, "number", name)
    return TRUTH


def _type_of_not(name: str, bound: list[Bound]) -> Type:
    _require_type(bound[0], "truth value", name)
    return TRUTH


def _type_of_choice(name: str, bound: list[Bound]) -> Type:
    condition, then, otherwise = bound
    _require_type(condition, "truth value", name)
    if then.type.kind == otherwise.type.kind == "text":
        then_choices, otherwise_choices = then.type.choices, otherwise.type.choices
        return Type(
            "text",
            choices=None if then_choices is None or otherwise_choices is None else then_choices | otherwise_choices,
        )
    return _common_type(name, [then, otherwise])


def _type_of_quotient(name: str, bound: list[Bound]) -> Type:
    left, right = bound
    _require_type(left, "number", name)
    _require_type(right, "number", name)
    return Type("number", left.type.dimension.times(right.type.dimension, -1))


def _type_of_remainder(name: str, bound: list[Bound]) -> Type:
    for operand in bound:
        _require_type(operand, "number", name)
    return _common_type(name, bound)


def _type_of_power(name: str, bound: list[Bound]) -> Type:
    base, exponent = bound
    _require_type(base, "number", name)
    _require_type(exponent, "number", name)
    if base.type.dimension != NUMBER or exponent.type.dimension != NUMBER:
        raise _refuse("a power is taken of plain numbers only")
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


def _require_type(bound: Bound, kind: str, name: str) -> None:
    if bound.type.kind != kind:
        raise _refuse(f"'{name}' needs a {kind}, not {bound.type}")


def _require_comparable(name: str, left: Bound, right: Bound) -> None:
    """Refuse operands that can never be equal: of different types, units or texts."""
    if left.type.kind != right.type.kind:
        raise _refuse(f"'{name}' combines {left.type} with {right.type}")
    same = left.type.dimension == right.type.dimension
    if not (same or _is_zero(left) or _is_zero(right)):
        raise _refuse(f"'{name}' combines {left.type.dimension} with {right.type.dimension}")
    left_choices, right_choices = left.type.choices, right.type.choices
    if left_choices is not None and right_choices is not None and left_choices.isdisjoint(right_choices):
        smaller, larger = sorted((left_choices, right_choices), key=len)
        raise _refuse(f"'{min(smaller)}' never occurs there{suggest_names(min(smaller), larger)}")


def _refuse(rule: str) -> SpecError:
    return SpecError("expression", "", rule)
