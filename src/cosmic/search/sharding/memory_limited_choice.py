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

from cosmic.search.sharding.elimination import MOST_ENTRIES, EliminationResult, minimise_costs, refine_states
from cosmic.search.sharding.sharding_costs import COMPUTE, EXPOSED, HIDDEN, MEMORY, Costs

FEW_AXES = 2
"""Up to so many axes, tables are small; with more of them, axes are chosen two at a time."""
MANY_STATES_ENTRIES = 1_000_000
"""Entries of the largest table where they are not."""
ROUNDS = 8
"""Prices of memory that are tried, at most."""
SHARES = 6
"""Weights between the two sums that are tried at each price, at most."""
CLOSE = 1e-4
"""A gap that is not worth another elimination."""
MOST_CHANGES = 500
"""Changes of single variables, at most."""
LITTLE = 1e-9
"""What is this much off, relatively, is equal."""
TIE = 1e-12
"""The weight of what decides between equals: memory where time counts, and the other way round."""


@dataclass(frozen=True)
class Chosen:
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
    best: Chosen | None = None
    lightest: Chosen | None = None
    bound: float = 0.0
    exact: bool = True

    def value(self, parts: Sequence[Any]) -> tuple[Any, Any]:
        """Return the two sums of which the larger one is the time of a step."""
        hidden = parts[HIDDEN]
        return parts[COMPUTE] + parts[EXPOSED] + (1 - self.overlap) * hidden, parts[EXPOSED] + hidden

    def attempt(self, share: float, price: float) -> tuple[tuple[float, float], float]:
        """Minimise for one share of the first sum and one price of memory; return both sums, and the memory."""
        weights = (share, 1.0, 1 - share * self.overlap, price or TIE * self.scale)
        problem = self.costs.weighed(weights)
        many = len(self.costs.labels) > FEW_AXES
        found: EliminationResult = minimise_costs(problem, MANY_STATES_ENTRIES if many else MOST_ENTRIES)
        states = found.states if found.exact or not many else refine_states(problem, found.states, self.costs.labels)
        self.exact = self.exact and found.exact
        parts = [float(each) for each in self.costs.total(states)]
        memory = parts[MEMORY]
        limit = self.limit_bytes if self.limit_bytes is not None else memory
        slack = price * limit if price else TIE * self.scale * memory
        self.bound = max(self.bound, found.bound - slack)
        fits = _fits(memory, self.limit_bytes)
        chosen = Chosen(states, max(self.value(parts)), memory, 0.0, fits, found.exact)
        if fits and (self.best is None or chosen.value < self.best.value * (1 - LITTLE)):
            self.best = chosen
        if self.lightest is None or memory < self.lightest.memory_bytes:
            self.lightest = chosen
        return self.value(parts), memory

    scale: float = 1.0
    """What a byte of memory is worth, in the unit of the objective, about."""

    def at(self, price: float) -> float:
        """Search the share of the first sum at one price of memory; return the memory of the last attempt."""
        (first, second), memory = self.attempt(1.0, price)
        if first >= second * (1 - LITTLE) or self.overlap == 0.0:
            return memory
        (low_first, low_second), memory = self.attempt(0.0, price)
        if low_second >= low_first * (1 - LITTLE):
            return memory
        low, high = 0.0, 1.0
        for _ in range(SHARES):
            share = (low + high) / 2
            (first, second), memory = self.attempt(share, price)
            low, high = (low, share) if first >= second else (share, high)
            if self.best is not None and self.best.value <= self.bound * (1 + CLOSE):
                break
        return memory


def choose_within_memory(costs: Costs, overlap: float, limit_bytes: float | None) -> Chosen:
    """Return the choice of the least time within a limit on memory."""
    search = _Search(costs, overlap, limit_bytes, scale=_scale(costs))
    memory = search.at(0.0)
    if limit_bytes is not None and not _fits(memory, limit_bytes):
        _price_memory(search, limit_bytes)
    _polish_choice(search)
    found = search.best or search.lightest
    assert found is not None  # noqa: S101  at least one attempt was made
    bound = min(search.bound, found.value) if found.fits else search.bound
    return Chosen(found.states, found.value, found.memory_bytes, bound, found.fits, search.exact)


def _scale(costs: Costs) -> float:
    """Return what a byte of memory is worth: all of it as much as the least compute, or 1 where that is nothing."""
    least = sum(float(each[COMPUTE].min()) for each in costs.single)
    most = sum(float(each[MEMORY].max()) for each in costs.single)
    return least / most if least > 0 and most > 0 else 1.0


def _price_memory(search: _Search, limit: float) -> None:
    """Raise the price of memory until it fits, and then halve the interval of prices in between."""
    light = minimise_costs(search.costs.weighed((0.0, 0.0, 0.0, 1.0)))
    least = float(search.costs.total(light.states)[MEMORY])
    if least > limit:
        parts = [float(each) for each in search.costs.total(light.states)]
        search.lightest = Chosen(light.states, max(search.value(parts)), least, 0.0, False, light.exact)
        return
    value = search.lightest.value if search.lightest else 1.0
    low, high = 0.0, max(value, LITTLE) / limit
    for _ in range(ROUNDS):
        if _fits(search.at(high), limit):
            break
        low, high = high, high * 8
    for _ in range(ROUNDS):
        price = (low + high) / 2
        if _fits(search.at(price), limit):
            high = price
        else:
            low = price
        if search.best and search.best.value <= search.bound * (1 + LITTLE):
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
    for _ in range(MOST_CHANGES):
        now, found = max(search.value(list(parts))), (0.0, 0, 0)
        for variable, near in enumerate(beside):
            total = costs.single[variable].copy()
            for other, table in near:
                total += table[:, :, states[other]]
            after = parts[:, None] + total - total[:, [states[variable]]]
            saved = now - np.maximum(*search.value(list(after)))
            saved[after[MEMORY] > limit] = 0.0
            state = int(saved.argmax())
            if saved[state] > max(found[0], LITTLE * now):
                found = float(saved[state]), variable, state
        if not found[0]:
            break
        states[found[1]] = found[2]
        parts = costs.total(states)
    value = max(search.value([float(part) for part in parts]))
    if value < search.best.value:
        search.best = Chosen(states, value, float(parts[MEMORY]), 0.0, fits=True, exact=search.best.exact)


def choose_lightest(costs: Costs, limit_bytes: float | None) -> Chosen:
    """Return the choice of the least memory; of several, about the fastest."""
    found = minimise_costs(costs.weighed((TIE, TIE, TIE, 1.0)))
    memory = float(costs.total(found.states)[MEMORY])
    return Chosen(found.states, memory, memory, min(found.bound, memory), _fits(memory, limit_bytes), found.exact)


def _fits(memory_bytes: float, limit_bytes: float | None) -> bool:
    return limit_bytes is None or memory_bytes <= limit_bytes * (1 + LITTLE)
