"""Variables in a recipe: ``${name}``, ``${search.best.metrics.step_s}``, ``${nodes * 8}``. Nothing is executed."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from cosmic import syntax
from cosmic.errors import SpecError, require, shorten, suggestion
from cosmic.psa.expressions import Constant, Expression, Known, exact, operation

REFERENCE = re.compile(r"\$\{([^{}]*)\}")
PATH = re.compile(r"[A-Za-z_]\w*(?:\.\w+)*", re.ASCII)
_SIGNS = {"+": "sum", "*": "product", "and": "all", "or": "any"}
_FUNCTIONS = {"sum", "product", "min", "max", "all", "any"}


def fill(value: Any, scope: Mapping[str, Any], where: str) -> Any:
    """Return *value* with every ``${…}`` in its texts replaced by what *scope* holds.

    A text that is one reference becomes the value itself; inside a longer text, a value is written out.

    >>> fill("llama3-8b@dgx-h100:${nodes * 8}", {"nodes": 2}, "design")
    'llama3-8b@dgx-h100:16'
    >>> fill({"trials": "${trials}"}, {"trials": 100}, "search")
    {'trials': 100}
    """
    if isinstance(value, str):
        whole = REFERENCE.fullmatch(value)
        if whole:
            return evaluate(whole[1], scope, where)
        return REFERENCE.sub(lambda found: _written(evaluate(found[1], scope, where), where), value)
    if isinstance(value, Mapping):
        return {str(key): fill(each, scope, f"{where}.{key}") for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [fill(each, scope, f"{where}.{place}") for place, each in enumerate(value)]
    return value


def evaluate(text: str, scope: Mapping[str, Any], where: str) -> Any:
    """Return the value of an expression over *scope*: any value for a plain name, else a number, text or truth value.

    >>> evaluate("tuned.front.0.step_s * 2 < 4", {"tuned": {"front": [{"step_s": 1.5}]}}, "expect")
    True
    """
    text = text.strip()
    if PATH.fullmatch(text) and text not in ("true", "false"):
        return _look_up(text, scope, where)
    try:
        found = _bound(syntax.parse(text), scope, where)
    except SpecError as error:
        if error.where != "expression":
            raise
        raise SpecError(where, text, error.rule) from None
    if not isinstance(found, Constant):
        raise SpecError(where, text, "has no value: it divides by zero, or compares what cannot be compared")
    value = found.value
    if isinstance(value, Fraction):
        return int(value) if value.denominator == 1 else float(value)
    return value


def check_names(value: Any, known: Collection[str], where: str) -> None:
    """Refuse a ``${…}`` that cannot be read, or that begins with none of the *known* names.

    What a step will print is not known yet: only the first part of a path is looked at.

    >>> check_names("${nodes * 8} ${tuned.best}", {"nodes", "tuned"}, "design")
    """
    if isinstance(value, str):
        require("${" not in REFERENCE.sub("", value), where, value, "has a '${' without its '}'")
        for found in REFERENCE.finditer(value):
            text = found[1].strip()
            paths = [text] if PATH.fullmatch(text) else list(_paths(_parsed(text, where)))
            for path in paths:
                head = path.partition(".")[0]
                rule = f"knows no '{head}'{suggestion(head, list(known))}"
                require(head in known or path in ("true", "false"), where, path, rule)
    elif isinstance(value, Mapping):
        for key, each in value.items():
            check_names(each, known, f"{where}.{key}")
    elif isinstance(value, list | tuple):
        for place, each in enumerate(value):
            check_names(each, known, f"{where}.{place}")


def _parsed(text: str, where: str) -> syntax.Syntax:
    try:
        return syntax.parse(text)
    except SpecError as error:
        raise SpecError(where, text, error.rule) from None


def _paths(tree: syntax.Syntax) -> Iterator[str]:
    """Yield the names in an expression."""
    if isinstance(tree, syntax.Path):
        yield tree.text
    elif isinstance(tree, syntax.Call):
        for each in tree.arguments:
            yield from _paths(each)


def _written(value: Any, where: str) -> str:
    if isinstance(value, Mapping | list):
        raise SpecError(where, shorten(str(value)), "is a table: it can only stand alone, not inside a longer text")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _look_up(path: str, scope: Mapping[str, Any], where: str) -> Any:
    """Return what a dotted path names: a variable, or a part of what a step printed."""
    found: Any = scope
    passed: list[str] = []
    for part in path.split("."):
        inner = found[int(part)] if _is_place(found, part) else found.get(part, _look_up) if _holds(found) else _look_up
        if inner is _look_up:
            before = f"'{'.'.join(passed)}' has no" if passed else "knows no"
            known = list(found) if _holds(found) else []
            raise SpecError(where, path, f"{before} '{part}'{suggestion(part, [str(each) for each in known])}")
        found, passed = inner, [*passed, part]
    return found


def _holds(value: Any) -> bool:
    return isinstance(value, Mapping)


def _is_place(value: Any, part: str) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str) and part.isdecimal() and int(part) < len(value)


def _bound(tree: syntax.Syntax, scope: Mapping[str, Any], where: str) -> Known | Expression:
    if isinstance(tree, syntax.Literal):
        return Constant(tree.value if isinstance(tree.value, str | bool) else tree.value.value)
    if isinstance(tree, syntax.Path):
        value = _look_up(tree.text, scope, where)
        if not isinstance(value, bool | int | float | str):
            raise SpecError(where, tree.text, "is neither a number, nor a text, nor a truth value")
        return Constant(exact(value))
    name = _SIGNS.get(tree.name, tree.name)
    if tree.name.isidentifier() and tree.name not in (*_SIGNS, *_FUNCTIONS, "if", "not", "in", "list"):
        raise SpecError("expression", tree.name, f"knows no function '{tree.name}'{suggestion(tree.name, _FUNCTIONS)}")
    arguments = [_bound(each, scope, where) for each in _listed(tree)]
    try:
        return operation(name, tuple(arguments))
    except TypeError:
        raise SpecError("expression", tree.name, f"'{tree.name}' does not go with these values") from None


def _listed(tree: syntax.Call) -> tuple[syntax.Syntax, ...]:
    """Return the arguments of a call, with the list that stands after 'in' laid out."""
    last = tree.arguments[-1] if tree.arguments else None
    if tree.name == "in" and isinstance(last, syntax.Call) and last.name == "list":
        return (*tree.arguments[:-1], *last.arguments)
    return tree.arguments
