"""Goes through every design of a set: what is proven is what was seen.

For sets that cannot be bounded and are small enough. Designs are evaluated in blocks; of each block the certificate
keeps the least losses and a digest of all of them, so that any block can be checked by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

import numpy as np

from cosmic.certifying.branching import Best
from cosmic.certifying.intervals import Floats
from cosmic.digests import digest
from cosmic.exploration.objectives import losses as losses_of
from cosmic.exploration.problem import Problem
from cosmic.exploration.workers import Evaluate
from cosmic.psa.diagram import Indices

BLOCK = 2**17
"""Designs of a block."""
MOST = 200_000_000
"""Designs that are gone through, at most."""


@dataclass(frozen=True)
class Block:
    """Consecutive designs, in the order of the set."""

    least: tuple[float, ...]
    """The least of each loss; infinite where none can run."""
    digest: str


def losses_of_block(problem: Problem, evaluate: Evaluate, number: int) -> tuple[Indices, Floats]:
    """Return the rows of a block, and their losses: infinite for a design that cannot run."""
    start = number * BLOCK
    rows = problem.space.listed(start, min(BLOCK, problem.space.valid - start))
    results = evaluate(rows)
    found = losses_of(problem.objectives, results.columns)
    found[~results.feasible | np.isnan(found).any(axis=1)] = np.inf
    return rows, found


def block_of(losses: Floats) -> Block:
    """Return what is kept of a block's losses."""
    return Block(tuple(losses.min(axis=0).tolist()), digest(losses.astype("<f8").tobytes())[:16])


def enumerate_all(
    problem: Problem,
    evaluate: Evaluate,
    best: Best,
    until: float = np.inf,
    told: Callable[[int, Best], None] = lambda *_: None,
) -> list[Block]:
    """Return the blocks of all designs; fewer where time runs out. *best* learns what is best among them."""
    blocks: list[Block] = []
    for number in range(-(-problem.space.valid // BLOCK)):
        if blocks and monotonic() > until:
            break
        try:
            rows, losses = losses_of_block(problem, evaluate, number)
        except KeyboardInterrupt:
            if not blocks:
                raise
            break
        best.offer(losses, rows.__getitem__)
        blocks.append(block_of(losses))
        told(number * BLOCK + len(rows), best)
    return blocks


def count_blocks(problem: Problem, evaluate: Evaluate, blocks: list[Block], most: float) -> int:
    """Return how many designs have a loss of at most *most*; blocks that have none are not looked at again."""
    near = [number for number, block in enumerate(blocks) if block.least[0] <= most]
    return sum(int(np.count_nonzero(losses_of_block(problem, evaluate, number)[1][:, 0] <= most)) for number in near)
