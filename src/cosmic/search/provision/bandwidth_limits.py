"""Budgets and limits as people write them: linear in the bandwidth of dimensions, or in dollars.

    budget  := ["=" | "<=" | ">="] quantity            500 GB/s of each NPU over all dimensions, or 10 M USD
    limit   := sum (comparison sum)+                   network.dims.0.bandwidth >= 100 GB/s, B2 + B3 = 200 GB/s

A dimension is named as in files, or short, `B0`; `network.dims.*.bandwidth` stands for every one, and within `sum(…)`
for all together; `cost` is what the network costs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from cosmic.base.errors import SpecError, require
from cosmic.base.expression_syntax import Call, Literal, Path, Syntax, parse_expression
from cosmic.base.units import BYTES_PER_S, NUMBER, USD, PhysicalDimension
from cosmic.search.provision.bandwidth_problem import Limit, Sense
from cosmic.search.provision.interior_point import Vector

_PATH = re.compile(r"(?:network\.)?dims\.(\d{1,3}|\*)\.bandwidth|[bB](\d{1,3}|\*)")
_EQUALS = re.compile(r"(?<![<>=!])=(?!=)")
_DOLLARS = re.compile(r"\b([kM]) USD\b")
_BUDGET = re.compile(r"\s*(<=|>=|==?|)\s*(.*)", re.DOTALL)
_SENSES: dict[str, Sense] = {"<=": "<=", "<": "<=", "==": "==", ">=": ">=", ">": ">="}
_LIMIT = "compare bandwidths, such as 'network.dims.0.bandwidth >= 100 GB/s' or 'B2 + B3 = 200 GB/s'"
COST = "cost"


@dataclass(frozen=True, slots=True)
class _Linear:
    """A sum of bandwidths, each so many times, and a constant; of bytes/s, dollars or plain numbers."""

    coefficients: Vector
    constant: float
    dimension: PhysicalDimension

    def plus(self, other: _Linear, sign: float = 1.0) -> _Linear:
        return _Linear(
            self.coefficients + sign * other.coefficients, self.constant + sign * other.constant, self.dimension
        )

    def times(self, factor: float) -> _Linear:
        return _Linear(factor * self.coefficients, factor * self.constant, self.dimension)


def read_budget(text: str, usd_per_bytes_per_s: tuple[float, ...]) -> Limit:
    """Return the limit that a budget states: exactly so much, unless it begins with <= or >=.

    >>> read_budget("500 GB/s", (1.0, 2.0)).coefficients, read_budget("<= 10 M USD", (1.0, 2.0)).coefficients
    ((1.0, 1.0), (1.0, 2.0))
    """
    match = _BUDGET.fullmatch(text)
    sign, amount = (match[1], match[2]) if match else ("", text)
    tree = _parse_text(amount, "--budget", text)
    quantity = tree.value if isinstance(tree, Literal) and isinstance(tree.value, tuple) else None
    has_unit = quantity is not None and quantity.dimension in (BYTES_PER_S, USD)
    if quantity is None or not has_unit:
        raise SpecError("--budget", text, "must be a bandwidth or dollars, such as '500 GB/s' or '10 M USD'")
    value = _read_number(quantity.value, "--budget", text)
    require(value > 0, "--budget", text, "must be positive")
    ones = tuple(1.0 for _ in usd_per_bytes_per_s)
    if quantity.dimension == USD:
        _check_priced(usd_per_bytes_per_s, "--budget", text)
    spent = ones if quantity.dimension == BYTES_PER_S else tuple(usd_per_bytes_per_s)
    return Limit(text.strip(), spent, _SENSES["==" if sign in ("", "=") else sign], value, budget=True)


def read_limit(text: str, usd_per_bytes_per_s: tuple[float, ...]) -> list[Limit]:
    """Return the limits that a text states: one, or several where it is a chain, or is of every dimension.

    >>> [(each.coefficients, each.sense, each.value) for each in read_limit("B0 >= 2 * B1 >= 1 GB/s", (1.0, 1.0))]
    [((1.0, -2.0), '>=', 0.0), ((0.0, 2.0), '>=', 1000000000.0)]
    """
    tree = _parse_text(text, "--limit", text)
    dims = len(usd_per_bytes_per_s)
    limits = []
    for part in tree.arguments if isinstance(tree, Call) and tree.name == "and" else (tree,):
        if not isinstance(part, Call) or part.name not in _SENSES:
            raise SpecError("--limit", text, _LIMIT)
        for dim in range(dims) if _is_per_dimension(part) else (0,):
            limits.append(_read_comparison(part, text, dim, usd_per_bytes_per_s))
    return limits


def _read_comparison(part: Call, text: str, dim: int, prices: tuple[float, ...]) -> Limit:
    lower, upper = (_read_linear(argument, text, dim, prices) for argument in part.arguments)
    require(lower.dimension == upper.dimension, "--limit", text, f"compares {lower.dimension} with {upper.dimension}")
    difference = lower.plus(upper, -1.0)
    require(bool(np.any(difference.coefficients)), "--limit", text, "says nothing of any bandwidth")
    return Limit(text.strip(), tuple(difference.coefficients.tolist()), _SENSES[part.name], 0.0 - difference.constant)


def _parse_text(text: str, where: str, shown: str) -> Syntax:
    try:
        return parse_expression(_EQUALS.sub("==", _DOLLARS.sub(r"\1USD", text)))
    except SpecError as error:
        raise SpecError(where, shown, error.rule) from None


def _is_per_dimension(tree: Syntax) -> bool:
    """Return whether an expression is of every dimension by itself: it has a * outside sum(…)."""
    if isinstance(tree, Path):
        return "*" in tree.text
    return isinstance(tree, Call) and tree.name != "sum" and any(map(_is_per_dimension, tree.arguments))


def _read_linear(tree: Syntax, text: str, dim: int, prices: tuple[float, ...]) -> _Linear:
    dims = len(prices)
    if isinstance(tree, Literal):
        return _read_constant(tree, text, dims)
    if isinstance(tree, Path):
        return _read_variable(tree.text, text, dim, prices)
    parts = [_read_linear(argument, text, dim, prices) for argument in tree.arguments if tree.name != "sum"]
    if tree.name == "sum":
        return _read_sum(tree, text, prices)
    if tree.name == "+":
        for a, b in pairwise(parts):
            require(a.dimension == b.dimension, "--limit", text, f"adds {a.dimension} to {b.dimension}")
        return parts[0].plus(parts[1])
    if tree.name == "*":
        plain = [part for part in parts if part.dimension == NUMBER]
        require(bool(plain), "--limit", text, "multiplies bandwidths: limits are linear")
        variable_part = parts[1] if plain[0] is parts[0] else parts[0]
        return variable_part.times(plain[0].constant)
    if tree.name == "/" and parts[1].dimension == NUMBER:
        require(parts[1].constant != 0, "--limit", text, "divides by zero")
        return parts[0].times(1.0 / parts[1].constant)
    raise SpecError("--limit", text, f"'{tree.name}' is not linear: {_LIMIT}")


def _read_sum(tree: Call, text: str, prices: tuple[float, ...]) -> _Linear:
    """Return the sum of what is listed; a path with * is of all dimensions."""
    total = _Linear(np.zeros(len(prices)), 0.0, BYTES_PER_S)
    for argument in tree.arguments:
        for dim in range(len(prices)) if _is_per_dimension(argument) else (0,):
            part = _read_linear(argument, text, dim, prices)
            require(part.dimension == BYTES_PER_S, "--limit", text, f"adds {part.dimension} to bandwidth")
            total = total.plus(part)
    return total


def _read_constant(tree: Literal, text: str, dims: int) -> _Linear:
    value = tree.value
    if isinstance(value, str | bool):
        raise SpecError("--limit", text, _LIMIT)
    return _Linear(np.zeros(dims), _read_number(value.value, "--limit", text), value.dimension)


def _read_number(value: object, where: str, text: str) -> float:
    try:
        return float(value)  # type: ignore[arg-type]  # a fraction
    except OverflowError:
        raise SpecError(where, text, "is too large") from None


def _read_variable(path: str, text: str, dim: int, prices: tuple[float, ...]) -> _Linear:
    if path == COST:
        _check_priced(prices, "--limit", text)
        return _Linear(np.array(prices), 0.0, USD)
    match = _PATH.fullmatch(path)
    if not match:
        raise SpecError("--limit", text, f"'{path}' is no bandwidth: {_LIMIT}")
    name = match[1] or match[2]
    index = dim if name == "*" else int(name)
    require(index < len(prices), "--limit", text, f"there are {len(prices)} dimensions, from 0 on")
    return _Linear(np.eye(len(prices))[index], 0.0, BYTES_PER_S)


def _check_priced(prices: tuple[float, ...], where: str, text: str) -> None:
    require(
        min(prices) > 0, where, text, "needs a price of bandwidth in every dimension: state a cost file with --cost"
    )
