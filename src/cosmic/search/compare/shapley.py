"""The worth of each of several changes: how much of a difference it explains, whatever their order.

Changes interact, so the effect of one depends on which were made before it. Its Shapley value is the mean over all
orders: the only attribution that adds up to the whole and treats symmetric changes equally (L. S. Shapley, A value for
n-person games, 1953).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import combinations, pairwise
from math import comb
from random import Random
from statistics import fmean
from typing import Literal

MAX_EXACT_GROUPS = 8
"""Up to this many groups all subsets are evaluated; with more, orders are sampled."""
SAMPLED_ORDERS = 32
"""Orders that are sampled then: half of them random, the others the same in reverse."""
MAX_PARTNERS = 3
"""How many groups at most a group is joined with, where it cannot change alone."""

Method = Literal["exact", "sampled", "one_at_a_time", "none"]
Group = tuple[str, ...]
"""The names of groups that change together: one name, unless the designs between would be infeasible."""
Value = Callable[[Iterable[Group]], float | None]
"""Returns the attributed value, such as seconds of a step, with some groups taken from B; None where it has none."""


def couple_groups(groups: list[Group], fits: Callable[[Iterable[Group]], bool]) -> list[Group]:
    """Return *groups*, joined where one cannot change alone: neither as the first change of A nor as the last to B.

    >>> couple_groups([("model",), ("mapping",), ("network",)], lambda some: (("mapping",) in some) == (("network",) in some))
    [('model',), ('mapping', 'network')]
    """

    def apart(subset: tuple[Group, ...]) -> bool:
        return fits(subset) and fits(tuple(group for group in groups if group not in subset))

    for group in groups:
        if apart((group,)):
            continue
        other_groups = [member for member in groups if member != group]
        for size in range(1, MAX_PARTNERS + 1):
            for partners in combinations(other_groups, size):
                if apart((group, *partners)):
                    joined = tuple(name for member in groups if member in (group, *partners) for name in member)
                    remaining = [member for member in groups if member not in (group, *partners)]
                    return couple_groups([*remaining, joined], fits)
    return groups


def attribute_worth(groups: list[Group], value: Value) -> tuple[Method, dict[Group, float | None]]:
    """Return the method, and the worth of each group: its part of value(all) - value(none).

    Two groups that only help together get half each:

    >>> attribute_worth([("tp",), ("link",)], lambda some: 6.0 if len(list(some)) == 2 else 10.0)
    ('exact', {('tp',): -2.0, ('link',): -2.0})
    """
    exact = len(groups) <= MAX_EXACT_GROUPS
    worth = compute_shapley(groups, value) if exact else sample_shapley(groups, value)
    if worth is not None:
        return "exact" if exact else "sampled", dict(worth)
    return "one_at_a_time", {group: _first_and_last(group, groups, value) for group in groups}


def compute_shapley(groups: list[Group], value: Value) -> dict[Group, float] | None:
    """Return the Shapley value of each group, from all 2^n subsets; None if one has no value."""
    subsets = [subset for size in range(len(groups) + 1) for subset in combinations(groups, size)]
    values = {frozenset(subset): value(subset) for subset in subsets}
    known_values = {subset: subset_value for subset, subset_value in values.items() if subset_value is not None}
    if len(known_values) < len(values):
        return None
    worth = dict.fromkeys(groups, 0.0)
    for subset, before in known_values.items():
        # The share of orders in which exactly the subset S of n groups comes before the group: |S|! (n - |S| - 1)! / n!
        weight = 1 / (len(groups) * comb(len(groups) - 1, len(subset))) if len(subset) < len(groups) else 0.0
        for group in groups:
            if group not in subset:
                worth[group] += weight * (known_values[subset | {group}] - before)
    return worth


def sample_shapley(groups: list[Group], value: Value) -> dict[Group, float] | None:
    """Return the Shapley values estimated from `SAMPLED_ORDERS` orders, with a fixed seed; None if a subset has no value."""
    random = Random(0)
    worth = dict.fromkeys(groups, 0.0)
    for _ in range(SAMPLED_ORDERS // 2):
        drawn = random.sample(groups, len(groups))
        for order in (drawn, drawn[::-1]):
            values = [value(order[:count]) for count in range(len(order) + 1)]
            for group, (before, after) in zip(order, pairwise(values), strict=True):
                if before is None or after is None:
                    return None
                worth[group] += (after - before) / SAMPLED_ORDERS
    return worth


def _first_and_last(group: Group, groups: list[Group], value: Value) -> float | None:
    """Return the mean effect of *group* as the first and as the last change; None where neither has a value."""
    other_groups = [member for member in groups if member != group]
    pairs = [(value([]), value([group])), (value(other_groups), value(groups))]
    added = [after - before for before, after in pairs if before is not None and after is not None]
    return fmean(added) if added else None
