"""What is to be provisioned, the limits as people write them, and what came of it.

A problem is traffic on the dimensions of a network, what bandwidth costs, and what limits it. The result is the same
for LIBRA's inputs and for designs: the bandwidth of every dimension, the time of every load, prices of the limits.

Budgets and limits are linear in the bandwidth of dimensions, or in dollars:

    budget  := ["=" | "<=" | ">="] quantity            500 GB/s of each NPU over all dimensions, or 10 M USD
    limit   := sum (comparison sum)+                   network.dims.0.bandwidth >= 100 GB/s, B2 + B3 = 200 GB/s

A dimension is named as in files, or short, `B0`; `network.dims.*.bandwidth` stands for every one, and within `sum(…)`
for all together; `cost` is what the network costs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Literal, get_args

import numpy as np

from cosmic.base.errors import SpecError, require
from cosmic.base.expression_syntax import Call, Path, Syntax, parse_expression
from cosmic.base.expression_syntax import Literal as QuantityLiteral
from cosmic.base.json_types import (
    Count,
    Keywords,
    NonNegative,
    NonNegativeRatio,
    Ratio,
    Share,
    json_keys,
    unit,
)
from cosmic.base.numeric import multiply
from cosmic.base.units import BYTES_PER_S, NUMBER, USD, PhysicalDimension
from cosmic.search.provision.interior_point import Vector

# ---- What is to be provisioned: traffic on the dimensions of a network, what bandwidth costs, and what limits it

Objective = Literal["time", "time_per_dollar"]
Sense = Literal["<=", "==", ">="]
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)
GIGA = 1e9


@dataclass(frozen=True, slots=True)
class Traffic:
    """One collective: all its dimensions are busy at once, so that it takes as long as the slowest of them.

    >>> float(Traffic("all-reduce", (2e9, 1e9)).seconds(np.array([1e9, 1e9])))
    2.0
    """

    name: str
    bytes_of_dims: tuple[float, ...]
    """Bytes that an NPU sends in each dimension."""
    times: float = 1.0
    """How often it runs."""

    def seconds(self, bandwidth_bytes_per_s: Vector) -> Vector:
        """Return how long all its runs take, on one network or on many, a row each."""
        slowest: Vector = np.max(_seconds_of_dims(self.bytes_of_dims, bandwidth_bytes_per_s), axis=-1, initial=0.0)
        return self.times * slowest


@dataclass(frozen=True, slots=True)
class TrafficLoad:
    """One workload.

    time = compute + sum of exposed + max(hiding, sum of hidden)
    """

    name: str
    compute_s: float
    exposed: tuple[Traffic, ...]
    hidden: tuple[Traffic, ...] = ()
    hiding_s: float = 0.0
    """Compute that the hidden traffic runs beside."""
    weight: float = 1.0

    def seconds(self, bandwidth_bytes_per_s: Vector) -> Vector:
        """Return how long the workload takes."""
        exposed = sum(traffic.seconds(bandwidth_bytes_per_s) for traffic in self.exposed)
        hidden = sum(traffic.seconds(bandwidth_bytes_per_s) for traffic in self.hidden)
        total: Vector = self.compute_s + exposed + np.maximum(self.hiding_s, hidden)
        return total


@dataclass(frozen=True, slots=True)
class Limit:
    """A linear constraint on bandwidth, in bytes/s, or on dollars."""

    text: str
    """As it was written."""
    coefficients: tuple[float, ...]
    sense: Sense
    """How it compares."""
    value: Annotated[float, unit("byte/s, or USD")]
    """What it compares with, all bandwidths on the other side."""
    budget: bool = False
    """Whether it says what is to be spent: with whole ports, as much as can be."""

    def excess(self, bandwidth_bytes_per_s: Vector) -> Vector:
        """Return by how much networks break it: positive where they do."""
        over: Vector = multiply(bandwidth_bytes_per_s, np.array(self.coefficients)) - self.value
        return over if self.sense == "<=" else -over if self.sense == ">=" else np.abs(over)


@dataclass(frozen=True, slots=True)
class BandwidthProblem:
    """Bandwidth that is sought: of every dimension, under limits."""

    loads: tuple[TrafficLoad, ...]
    limits: tuple[Limit, ...]
    usd_per_bytes_per_s: tuple[float, ...]
    """Dollars of the whole network for a byte/s of each NPU in a dimension."""
    objective: Objective = "time"

    def __post_init__(self) -> None:
        require(self.objective in OBJECTIVES, "--objective", self.objective, f"must be one of {', '.join(OBJECTIVES)}")
        require(bool(self.usd_per_bytes_per_s), "network", 0, "has no dimensions")
        for load in self.loads:
            require(np.isfinite(load.weight) and load.weight > 0, "weight", load.weight, "must be positive")
        if self.objective == "time_per_dollar":
            priced = min(self.usd_per_bytes_per_s) > 0
            require(priced, "--objective", self.objective, "needs a price of bandwidth in every dimension")

    @property
    def dims(self) -> int:
        """Number of dimensions."""
        return len(self.usd_per_bytes_per_s)

    def seconds(self, bandwidth_bytes_per_s: Vector) -> Vector:
        """Return the weighted sum of the workloads' times, on one network or on many, a row each."""
        total: Vector = np.zeros(np.shape(bandwidth_bytes_per_s)[:-1])
        for load in self.loads:
            total = total + load.weight * load.seconds(bandwidth_bytes_per_s)
        return total

    def usd(self, bandwidth_bytes_per_s: Vector) -> Vector:
        """Return what the network costs."""
        return multiply(bandwidth_bytes_per_s, np.array(self.usd_per_bytes_per_s))

    def value(self, bandwidth_bytes_per_s: Vector) -> Vector:
        """Return the objective: seconds, or seconds times dollars."""
        seconds = self.seconds(bandwidth_bytes_per_s)
        return seconds if self.objective == "time" else seconds * self.usd(bandwidth_bytes_per_s)


@json_keys(limit="limit.text", sense="limit.sense", value="limit.value", worth_per_unit="per_unit")
@dataclass(frozen=True, slots=True)
class Price:
    """What a limit costs."""

    limit: Limit
    per_unit: Annotated[float, unit("objective per unit of the limit")]
    """What the objective falls by for each byte/s, or dollar, that the limit is moved outwards, or up."""
    binds: bool
    """Whether it is met exactly."""


@json_keys(workload="load", collective="traffic", time_s="seconds")
@dataclass(frozen=True, slots=True)
class Binding:
    """One collective, or one part of a design's step."""

    load: str
    """Whose it is."""
    traffic: str
    """Its name."""
    seconds: NonNegative
    """How long it takes, by weight; of a design how long it keeps the busiest dimension busy."""
    dims: tuple[Count, ...]
    """The slowest dimensions, from 0 on."""  # several at once where bandwidth is in proportion
    shares: tuple[Share, ...]
    """How the dimensions share in it: by the multipliers of the optimum, of a design by the time they are busy."""


@dataclass(frozen=True, slots=True)
class Solution:
    """The best bandwidth, with a proof that none is better."""

    bandwidth_bytes_per_s: tuple[float, ...]
    time_s: float
    cost_usd: float
    objective: float
    bound: float
    """No bandwidth within the limits has a lower objective: from the multipliers alone."""
    prices: tuple[Price, ...]
    worth_s_per_bytes_per_s: tuple[float, ...]
    """Seconds that another byte/s of each dimension is worth, if it were free."""
    bindings: tuple[Binding, ...]

    @property
    def duality_gap(self) -> float:
        """How far the objective may be above the optimum, relative to it."""
        return max(0.0, self.objective - self.bound) / self.objective if self.objective else 0.0


def _seconds_of_dims(amounts: tuple[float, ...], bandwidth_bytes_per_s: Vector) -> Vector:
    """Return the seconds of each dimension; one that carries nothing takes none, even without bandwidth."""
    sent = np.array(amounts)
    nothing = np.zeros(np.shape(bandwidth_bytes_per_s))
    with np.errstate(divide="ignore"):
        seconds: Vector = np.divide(sent, bandwidth_bytes_per_s, out=nothing, where=sent > 0)
    return seconds


# ---- What came of provisioning, the same for LIBRA's inputs and for designs


@dataclass(frozen=True, slots=True)
class ProvisionedDimension:
    """One dimension before and after."""

    topology: str
    """Name of its topology."""
    npus: int
    """NPUs that it joins."""
    base_bytes_per_s: float
    """Before: of a design its own, else an equal share of what is spent."""
    bandwidth_bytes_per_s: float
    """Bandwidth of an NPU now."""
    cost_usd: float
    """Price of the dimension."""
    busiest: str
    """The collective that keeps it busy longest; empty if none uses it."""
    worth_s_per_bytes_per_s: Annotated[float, unit("s per byte/s")]
    """Seconds that another byte/s would save, if it were free."""


@dataclass(frozen=True, slots=True)
class ProvisionedLoad:
    """One workload before and after."""

    name: str
    """Its name."""
    weight: Ratio
    """How often it counts."""
    base_time_s: float
    """Its time before."""
    time_s: float
    """Its time now."""


@dataclass(frozen=True, slots=True)
class WholePorts:
    """The best bandwidth in whole ports."""

    port: str
    """Bandwidth of a port."""
    bandwidth_bytes_per_s: tuple[float, ...]
    """Bandwidth of an NPU in each dimension."""
    ports: tuple[int, ...]
    """Ports of an NPU in each dimension."""
    time_s: float
    """Time at that bandwidth."""
    cost_usd: float
    """Price of that network."""
    gap: Share
    """By what share the objective is above that of the continuous optimum."""


@json_keys("headline", "gain", "duality_gap", "bandwidth_bytes_per_s", workloads="loads", shadow_prices="prices")
@dataclass(frozen=True, slots=True)
class Provisioned:
    """The best bandwidth of every network dimension under a budget, and why."""

    objective: Objective
    """What is least: time, or time multiplied by the network's cost."""
    dims: tuple[ProvisionedDimension, ...]
    """The dimensions, innermost first."""
    loads: tuple[ProvisionedLoad, ...]
    """What the network was provisioned for."""
    base_time_s: NonNegative
    """The same before: at the design's own bandwidth, else at equal bandwidth in all dimensions."""
    time_s: NonNegative
    """Time at the best bandwidth: of a design its step, else of the workload; several are added by weight."""
    base_cost_usd: NonNegative
    """Price of the network before."""
    cost_usd: NonNegative
    """Price of the network."""
    value: Annotated[float, unit("s, or s·USD"), Keywords(minimum=0)]
    """The objective: seconds, or seconds times dollars."""
    bound: Annotated[float | None, unit("s, or s·USD")]
    """No bandwidth within the limits has a lower objective; None of a design, whose step is searched."""
    prices: tuple[Price, ...]
    """What the budget and each limit cost."""
    bindings: tuple[Binding, ...]
    """Which dimensions each collective waits for."""
    ports: WholePorts | None = None
    """The best bandwidth in whole ports; None without --ports."""
    source: str = ""
    """The design or network file."""

    @property
    def bandwidth_bytes_per_s(self) -> list[Annotated[float, unit("byte/s"), Keywords(minimum=0)]]:
        """Bandwidth of an NPU in each dimension, innermost first."""
        return [dim.bandwidth_bytes_per_s for dim in self.dims]

    @property
    def duality_gap(self) -> Annotated[float | None, unit("share"), Keywords(minimum=0)]:
        """How far the objective may be above the optimum, relative to it; None of a design."""
        return None if self.bound is None else max(0.0, self.value - self.bound) / self.value if self.value else 0.0

    @property
    def gain(self) -> NonNegativeRatio:
        """The objective before over the objective now."""
        before = self.base_time_s * (1.0 if self.objective == "time" else self.base_cost_usd)
        return before / self.value if self.value else 1.0

    @property
    def headline(self) -> str:
        """The result in one sentence."""
        rates = " / ".join(f"{dim.bandwidth_bytes_per_s / GIGA:.4g}" for dim in self.dims)
        quality = "fast" if self.objective == "time" else "good in time for its cost"
        before = "the present bandwidth" if self.bound is None else "equal bandwidth in all dimensions"
        return f"{rates} GB/s: {self.gain:.4g}× as {quality} as {before}"


# ---- Budgets and limits as people write them


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
    quantity = tree.value if isinstance(tree, QuantityLiteral) and isinstance(tree.value, tuple) else None
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
    if isinstance(tree, QuantityLiteral):
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


def _read_constant(tree: QuantityLiteral, text: str, dims: int) -> _Linear:
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
