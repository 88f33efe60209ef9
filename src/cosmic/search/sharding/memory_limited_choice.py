"""The best choice of all variables, under a limit on memory, with a bound.

A step takes C + E + max((1 - e) H, H - C): compute C, exposed collectives E, and what compute does not hide of the
collectives of weights, H, of which it can hide the share e at best. That is the larger of two sums,
f = C + E + (1 - e) H and g = E + H. For every l between 0 and 1, and every price p of a byte of memory,

    min over choices of   l f + (1 - l) g + p (memory - limit)

is a bound (Lagrange), and one elimination finds it. Both numbers are searched: l between the choices that make f and g
smallest, p until memory fits. The best choice on the way is kept; where it meets the bound, it is proven.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cosmic.search.sharding.elimination import MAX_ENTRIES, EliminationResult, minimise_costs, refine_states
from cosmic.search.sharding.sharding_costs import COMPUTE, EXPOSED, HIDDEN, MEMORY, Costs

FEW_AXES = 2
"""Up to so many axes, tables are small; with more of them, axes are chosen two at a time."""
MAX_ENTRIES_MANY_AXES = 1_000_000
"""Entries of the largest table where they are not."""
MAX_PRICE_ROUNDS = 8
"""Prices of memory that are tried, at most."""
MAX_SHARES = 6
"""Weights between the two sums that are tried at each price, at most."""
GAP_TOLERANCE = 1e-4
"""A gap that is not worth another elimination."""
MAX_CHANGES = 500
"""Changes of single variables, at most."""
RELATIVE_TOLERANCE = 1e-9
"""What is this much off, relatively, is equal."""
TIE_WEIGHT = 1e-12
"""The weight of what decides between equals: memory where time counts, and the other way round."""


@dataclass(frozen=True)
class ChosenStates:
    """States of all variables, and what they cost."""

    states: list[int]
    value: float
    """Of the objective."""
    memory_bytes: float
    bound: float
    """No choice within the limit has a smaller value."""
    fits: bool
    """Whether memory is within the limit."""
    exact: bool
    """Whether every elimination was exact: then only the prices of memory and overlap leave a gap."""


@dataclass
class _Search:
    """Tries weights of the parts of costs, and keeps the best choice and the best bound."""

    costs: Costs
    overlap: float
    limit_bytes: float | None
    best: ChosenStates | None = None
    lightest: ChosenStates | None = None
    bound: float = 0.0
    exact: bool = True

    def value(self, parts: Sequence[Any]) -> tuple[Any, Any]:
        """Return the two sums of which the larger one is the time of a step."""
        hidden = parts[HIDDEN]
        return parts[COMPUTE] + parts[EXPOSED] + (1 - self.overlap) * hidden, parts[EXPOSED] + hidden

    def attempt(self, share: float, price: float) -> tuple[tuple[float, float], float]:
        """Minimise for one share of the first sum and one price of memory; return both sums, and the memory."""
        # l f + (1 - l) g by parts: C counts l, E counts 1, H counts l (1 - e) + (1 - l) = 1 - l e.
        weights = (share, 1.0, 1 - share * self.overlap, price or TIE_WEIGHT * self.scale)
        problem = self.costs.weighed(weights)
        many_axes = len(self.costs.labels) > FEW_AXES
        result: EliminationResult = minimise_costs(problem, MAX_ENTRIES_MANY_AXES if many_axes else MAX_ENTRIES)
        states = (
            result.states if result.exact or not many_axes else refine_states(problem, result.states, self.costs.labels)
        )
        self.exact = self.exact and result.exact
        parts = [float(part) for part in self.costs.total(states)]
        memory = parts[MEMORY]
        limit = self.limit_bytes if self.limit_bytes is not None else memory
        slack = price * limit if price else TIE_WEIGHT * self.scale * memory
        self.bound = max(self.bound, result.bound - slack)
        fits = _fits(memory, self.limit_bytes)
        chosen = ChosenStates(states, max(self.value(parts)), memory, 0.0, fits, result.exact)
        if fits and (self.best is None or chosen.value < self.best.value * (1 - RELATIVE_TOLERANCE)):
            self.best = chosen
        if self.lightest is None or memory < self.lightest.memory_bytes:
            self.lightest = chosen
        return self.value(parts), memory

    scale: float = 1.0
    """What a byte of memory is worth, in the unit of the objective, about."""

    def search_share(self, price: float) -> float:
        """Search the share of the first sum at one price of memory; return the memory of the last attempt."""
        (first, second), memory = self.attempt(1.0, price)
        if first >= second * (1 - RELATIVE_TOLERANCE) or self.overlap == 0.0:
            return memory
        (low_first, low_second), memory = self.attempt(0.0, price)
        if low_second >= low_first * (1 - RELATIVE_TOLERANCE):
            return memory
        low, high = 0.0, 1.0
        for _ in range(MAX_SHARES):
            share = (low + high) / 2
            (first, second), memory = self.attempt(share, price)
            low, high = (low, share) if first >= second else (share, high)
            if self.best is not None and self.best.value <= self.bound * (1 + GAP_TOLERANCE):
                break
        return memory


def choose_within_memory(costs: Costs, overlap: float, limit_bytes: float | None) -> ChosenStates:
    """Return the choice of the least time within a limit on memory."""
    search = _Search(costs, overlap, limit_bytes, scale=_byte_worth(costs))
    memory = search.search_share(0.0)
    if limit_bytes is not None and not _fits(memory, limit_bytes):
        _price_memory(search, limit_bytes)
    _polish_choice(search)
    choice = search.best or search.lightest
    assert choice is not None  # noqa: S101  at least one attempt was made
    bound = min(search.bound, choice.value) if choice.fits else search.bound
    return ChosenStates(choice.states, choice.value, choice.memory_bytes, bound, choice.fits, search.exact)


def _byte_worth(costs: Costs) -> float:
    """Return what a byte of memory is worth: all of it as much as the least compute, or 1 where that is nothing."""
    least = sum(float(costs_of_variable[COMPUTE].min()) for costs_of_variable in costs.single)
    most = sum(float(costs_of_variable[MEMORY].max()) for costs_of_variable in costs.single)
    return least / most if least > 0 and most > 0 else 1.0


def _price_memory(search: _Search, limit: float) -> None:
    """Raise the price of memory until it fits, and then halve the interval of prices in between."""
    lightest = minimise_costs(search.costs.weighed((0.0, 0.0, 0.0, 1.0)))
    least = float(search.costs.total(lightest.states)[MEMORY])
    if least > limit:
        parts = [float(part) for part in search.costs.total(lightest.states)]
        search.lightest = ChosenStates(lightest.states, max(search.value(parts)), least, 0.0, False, lightest.exact)
        return
    value = search.lightest.value if search.lightest else 1.0
    low, high = 0.0, max(value, RELATIVE_TOLERANCE) / limit
    for _ in range(MAX_PRICE_ROUNDS):
        if _fits(search.search_share(high), limit):
            break
        low, high = high, high * 8
    for _ in range(MAX_PRICE_ROUNDS):
        price = (low + high) / 2
        if _fits(search.search_share(price), limit):
            high = price
        else:
            low = price
        if search.best and search.best.value <= search.bound * (1 + RELATIVE_TOLERANCE):
            return


def _polish_choice(search: _Search) -> None:
    """Change one variable at a time, the one that saves most time and still fits.

    Prices decide for all variables at once: what lies between two of them is found here.
    """
    if search.best is None:
        return
    costs, states, beside = search.costs, list(search.best.states), search.costs.neighbours
    limit = np.inf if search.limit_bytes is None else search.limit_bytes
    parts = costs.total(states)
    for _ in range(MAX_CHANGES):
        value, change = max(search.value(list(parts))), (0.0, 0, 0)
        for variable, neighbours in enumerate(beside):
            total = costs.single[variable].copy()
            for neighbour, table in neighbours:
                total += table[:, :, states[neighbour]]
            after = parts[:, None] + total - total[:, [states[variable]]]
            saved = value - np.maximum(*search.value(list(after)))
            saved[after[MEMORY] > limit] = 0.0
            state = int(saved.argmax())
            if saved[state] > max(change[0], RELATIVE_TOLERANCE * value):
                change = float(saved[state]), variable, state
        if not change[0]:
            break
        states[change[1]] = change[2]
        parts = costs.total(states)
    polished_value = max(search.value([float(part) for part in parts]))
    if polished_value < search.best.value:
        search.best = ChosenStates(
            states, polished_value, float(parts[MEMORY]), 0.0, fits=True, exact=search.best.exact
        )


def choose_lightest(costs: Costs, limit_bytes: float | None) -> ChosenStates:
    """Return the choice of the least memory; of several, about the fastest."""
    result = minimise_costs(costs.weighed((TIE_WEIGHT, TIE_WEIGHT, TIE_WEIGHT, 1.0)))
    memory = float(costs.total(result.states)[MEMORY])
    return ChosenStates(
        result.states, memory, memory, min(result.bound, memory), _fits(memory, limit_bytes), result.exact
    )


def _fits(memory_bytes: float, limit_bytes: float | None) -> bool:
    return limit_bytes is None or memory_bytes <= limit_bytes * (1 + RELATIVE_TOLERANCE)
