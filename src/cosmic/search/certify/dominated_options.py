"""Which options of a dimension another one makes needless.

An option is dominated in a skeleton if another has no more of anything that its dimension is looked up for: links that
collectives cross in turn, traffic, and, where an objective or limit has a price, dollars and watts for each bandwidth.
Whatever the rest of the design, the other option is then at least as good in every objective.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from cosmic.search.certify.monotonicity import ORIENTATION
from cosmic.search.certify.skeletons import Floats, Group, NotProvable, Term
from cosmic.search.space.diagram import Indices

ROUNDING = 1e-12
"""Share by which rounding may move what is equal."""


@dataclass(frozen=True)
class Dominance:
    """For one choice and one group: kinds of skeletons, and which option stands for which."""

    which: Indices
    """The kind of each skeleton of the group."""
    stands: Indices
    """By kind and option: the kept option that is at least as good; itself for one that is kept."""

    def undominated(self, kind: int) -> Indices:
        """Return the options that are kept for a kind of skeleton."""
        return np.unique(self.stands[kind])


def find_dominances(group: Group, results: Iterable[int]) -> tuple[Dominance, ...]:
    """Return which options are dominated, for each choice, as far as the nodes *results* are concerned."""
    needed = set(group.needed(results))
    terms = [term for term in group.terms if term.node in needed]
    return tuple(_find_dominance(group, number, terms) for number in range(len(group.division.choices)))


def _find_dominance(group: Group, choice: int, terms: Sequence[Term]) -> Dominance:
    mine = [term for term in terms if term.choice == choice]
    options, count = len(group.division.choices[choice].options), len(group.skeletons)
    columns = list(_compared_numbers(group, mine))
    which = np.zeros(count, dtype=np.int64)
    for kinds, _ in columns:
        _, which = np.unique(which * (int(kinds.max(initial=0)) + 1) + kinds, return_inverse=True)
    _, firsts, which = np.unique(which, return_index=True, return_inverse=True)
    rows = [
        stand_in_options(
            np.stack([values[kinds[first]] for kinds, values in columns]) if columns else np.zeros((1, options))
        )
        for first in firsts.tolist()
    ]
    return Dominance(which.reshape(-1), np.stack(rows) if rows else np.zeros((0, options), dtype=np.intp))


def _compared_numbers(group: Group, terms: Sequence[Term]) -> Iterable[tuple[Indices, Floats]]:
    """Yield what must not be more in an option that dominates: kinds of skeletons, and numbers by kind and option."""
    priced = [price for price in terms if price.function == "block_terms"]
    for term in terms:
        if term in priced:
            continue
        if term.function not in ORIENTATION:
            raise NotProvable(f"which way {term.function} is worse is not known")
        yield term.which, term.values * ORIENTATION[term.function][term.side]
    for block in (price for price in priced if price.side == 0):
        links = next(
            (price for price in priced if price.side == 1 and _is_proportional(group, block.node, price.node)), None
        )
        if links is None:
            raise NotProvable("a price is not in proportion to the parts of a dimension over its links")
        yield block.which, block.values / links.values


def _is_proportional(group: Group, block: int, links: int) -> bool:
    """Return whether all that is made of *block* is a product with it over *links*: in proportion to their quotient."""
    node = block
    while True:
        readers = [reader for reader, read in enumerate(group.reading) if node in read]
        if len(readers) != 1:
            return False
        name, read = group.operation(readers[0]), group.reading[readers[0]]
        if name == "divide":
            only = [reader for reader, operands in enumerate(group.reading) if links in operands] == readers
            return read[0] == node and read[1] == links and only
        if name != "multiply":
            return False
        node = readers[0]


def stand_in_options(worse: Floats) -> Indices:
    """Return for each option the kept one that has no more in any row of *worse*; the first of equal ones is kept.

    >>> stand_in_options(np.array([[1.0, 2.0, 1.0, 3.0], [5.0, 5.0, 5.0, 4.0]])).tolist()
    [0, 0, 0, 3]
    """
    room = ROUNDING * np.abs(worse)
    better = np.asarray(
        (worse[:, :, None] <= (worse + room)[:, None, :]).all(axis=0)
    )  # is the first no worse than the second?
    options = np.arange(worse.shape[1])
    drops = better & (~better.T | (options[:, None] < options[None, :]))
    np.fill_diagonal(drops, val=False)
    undominated = np.asarray(~drops.any(axis=0))
    first = np.argmax(better & undominated[:, None], axis=0)
    return np.where(undominated, options, first)
