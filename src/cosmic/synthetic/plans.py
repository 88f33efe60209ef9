"""Plans: which blocks get more or fewer copies so that a job becomes longer or shorter.

Repeats with equal numbers of copies grow together: the layers of forward and of backward passes. In a pipeline, stages
have different numbers of copies of what they alternate in: the longest repeat of each role grows by as many. Steps, all
of a trace one after the other, are what is always possible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from cosmic.synthetic.grammar import Repeat, walk
from cosmic.synthetic.layout import length_of

Counts = Sequence[Mapping[int, int]]
"""Copies by the index of a repeat, for each role."""
NEAR = 0.1
"""A plan that misses the length by more is tried last."""
MOST_PLANS = 8
BLOCKS, STEPS = "blocks", "steps"


@dataclass(frozen=True, slots=True, eq=False)
class Structure:
    """The repeats of a role; the first is its whole trace, a step."""

    nodes: int
    grammar: tuple[Repeat, ...]
    ranks: int


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Repeats that grow together."""

    name: str
    chosen: tuple[tuple[Repeat, ...], ...]
    """By role."""
    copies: int
    """Of the largest of them, in the source."""
    width: int
    """Nodes of a copy of the largest."""
    covered: int
    """Nodes of the source, of all ranks, in their copies."""

    def counts(self, copies: int) -> Counts:
        """Return the numbers of copies if the largest has *copies*."""
        more = copies - self.copies
        return tuple({each.index: max(1, each.count + more) for each in of_role} for of_role in self.chosen)


def plans_of(structures: Sequence[Structure]) -> list[Plan]:
    """Return the plans: those that cover most of the source first, then steps, then those that cover less than half."""
    numbers = sorted({each.count for one in structures for each, _ in walk(one.grammar) if each.count > 1})
    choices = (partial(choose, number) for number in numbers for choose in (_alike, _inner))
    found = [_plan(structures, BLOCKS, choose) for choose in choices]
    found.append(_plan(structures, BLOCKS, _longest))
    found = sorted((each for each in found if each.covered), key=lambda plan: -plan.covered)[:MOST_PLANS]
    half = sum(one.ranks * one.nodes for one in structures) / 2
    steps = _plan(structures, STEPS, lambda one: one.grammar)
    return [*(each for each in found if each.covered >= half), steps, *(each for each in found if each.covered < half)]


def _plan(structures: Sequence[Structure], name: str, choose: Callable[[Structure], Sequence[Repeat]]) -> Plan:
    chosen = tuple(tuple(choose(one)) for one in structures)
    times = [{each.index: around for each, around in walk(one.grammar)} for one in structures]
    sizes = [
        (around[each.index] * each.count * each.width * one.ranks, each)
        for one, around, of_role in zip(structures, times, chosen, strict=True)
        for each in of_role
    ]
    largest = max(sizes, key=lambda size: size[0], default=(0, Repeat(0, 0, 1)))[1]
    return Plan(name, chosen, largest.count, largest.width, sum(size for size, _ in sizes))


def _alike(number: int, structure: Structure) -> list[Repeat]:
    """Return the outermost repeats with a number of copies."""
    return list(_with_copies(structure.grammar, number))


def _inner(number: int, structure: Structure) -> list[Repeat]:
    """Return the repeats with a number of copies inside others with as many: four layers in four microbatches."""
    return [inner for outer in _with_copies(structure.grammar, number) for inner in _with_copies(outer.inside, number)]


def _with_copies(grammar: Sequence[Repeat], number: int) -> Iterator[Repeat]:
    for each in grammar:
        if each.count == number:
            yield each
        else:
            yield from _with_copies(each.inside, number)


def _longest(structure: Structure) -> list[Repeat]:
    """Return the repeat that covers most of a role."""
    sizes = [(each.count * each.width * around, each) for each, around in walk(structure.grammar) if each.count > 1]
    return [max(sizes, key=lambda size: size[0])[1]] if sizes else []


def nodes_of(structures: Sequence[Structure], counts: Counts) -> int:
    """Return the nodes of all ranks."""
    return sum(
        one.ranks * length_of(one.nodes, one.grammar, each) for one, each in zip(structures, counts, strict=True)
    )


def copies_for(plan: Plan, structures: Sequence[Structure], scale: float) -> int:
    """Return the number of copies with which a plan comes closest to *scale* times the source's nodes."""
    wanted = scale * sum(one.ranks * one.nodes for one in structures)
    low, high = 1, max(2, plan.copies)
    while nodes_of(structures, plan.counts(high)) < wanted:
        low, high = high, 2 * high
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (middle, high) if nodes_of(structures, plan.counts(middle)) <= wanted else (low, middle)
    return min((low, high), key=lambda copies: abs(nodes_of(structures, plan.counts(copies)) - wanted))


def in_order(plans: Sequence[Plan], structures: Sequence[Structure], scale: float) -> list[tuple[Plan, int]]:
    """Return plans and their copies for a length, best first: those that come near it, and cover most."""
    whole = sum(one.ranks * one.nodes for one in structures)

    def misses(found: tuple[Plan, int]) -> bool:
        plan, copies = found
        return abs(nodes_of(structures, plan.counts(copies)) / (scale * whole) - 1) > NEAR

    return sorted(((plan, copies_for(plan, structures, scale)) for plan in plans), key=misses)
