"""Branch and bound over boxes: what is left after pruning holds the optimum.

    roots       every skeleton that can run × the options that are kept, each with its whole ranges
    a round     bounds of all boxes; those that cannot hold anything better are leaves, the others are halved
    halving     at the range with most places left (the first of equal ones), into slow and fast

A round is judged as a whole, so that the same boxes are split whatever the number of workers. The candidates are the
fastest corners, which are designs, and what a few descents from the most promising boxes find.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import monotonic

import numpy as np

from cosmic.certifying.bounding import Boxes, Judged
from cosmic.certifying.dominance import Dominance
from cosmic.certifying.intervals import Flags, Floats
from cosmic.certifying.skeletons import Division
from cosmic.exploration.pareto import front
from cosmic.psa.diagram import Indices

Judge = Callable[[Boxes], Judged]
SLACK = 1e-9
"""Share by which something better than the best may go unnoticed: far above what rounding does."""
STARTS = 24
"""Boxes from which descents begin, for each way to weigh objectives."""
MIXES = 17
"""Ways to weigh two objectives."""
DESCENT = 40
"""Steps of a descent, at most."""
MOST_ROUNDS = 10_000
RETRIED = 1
"""Rounds after which a front is approached again."""
MET = 10
"""Good designs that are remembered."""
MOST_BOXES = 40_000_000
"""Boxes of one round, at most: gigabytes."""


@dataclass
class Tree:
    """What was split: the same rounds of boxes follow from it."""

    splits: list[Flags] = field(default_factory=list)
    """For each round, which of its boxes were split."""


@dataclass(eq=False)
class Best:
    """The best losses so far, with their designs: one, or the front of several objectives."""

    losses: Floats
    rows: Indices
    gap: float = SLACK
    met: tuple[Floats, Indices] | None = None
    """With one objective: the losses and rows of the best designs that were met, not proven to be the next best."""

    @classmethod
    def none(cls, objectives: int, columns: int, gap: float) -> Best:
        """Return that nothing is known yet."""
        return cls(np.empty((0, objectives)), np.empty((0, columns), dtype=np.intp), max(gap, SLACK))

    def offer(self, losses: Floats, rows: Callable[[Indices], Indices]) -> None:
        """Take what is better among designs; *rows* gives the rows of some of them."""
        able = np.flatnonzero(np.isfinite(losses).all(axis=1))
        if losses.shape[1] == 1 and len(able):
            self._meet(losses[:, 0], able, rows)
        able = able[~self.covers(losses[able], 0.0)] if len(self.losses) else able
        if not len(able):
            return
        able = able[front(losses[able])]
        joined = np.vstack([self.losses, losses[able]])
        designs = np.vstack([self.rows, rows(able)])
        order = np.lexsort((*designs.T[::-1], *joined.T[::-1]))  # by loss, then by row: the same whoever finds it
        joined, designs = joined[order], designs[order]
        _, first = np.unique(joined, axis=0, return_index=True)
        first = np.sort(first[front(joined[first])])
        self.losses, self.rows = joined[first], designs[first]

    def _meet(self, losses: Floats, able: Indices, rows: Callable[[Indices], Indices]) -> None:
        most = np.inf if self.met is None or len(self.met[0]) < MET else self.met[0][-1]
        some = able[losses[able] < most]
        some = some[np.argsort(losses[some], kind="stable")[: 2 * MET]]
        if not len(some):
            return
        known, designs = losses[some], rows(some)
        if self.met is not None:
            known, designs = np.concatenate([self.met[0], known]), np.vstack([self.met[1], designs])
        order = np.lexsort((*designs.T[::-1], known))
        known, designs = known[order], designs[order]
        again = np.concatenate([[False], (designs[1:] == designs[:-1]).all(axis=1)])
        self.met = known[~again][:MET], designs[~again][:MET]

    def covers(self, bounds: Floats, gap: float | None = None) -> Flags:
        """Return which bounds no design can beat by more than the gap: something known is as good in all objectives."""
        slack = 1 - (self.gap if gap is None else gap)
        covered = np.zeros(len(bounds), dtype=bool)
        if bounds.shape[1] == 1:
            return np.asarray(bounds[:, 0] >= self.losses[:, 0].min(initial=np.inf) * slack)
        for known in self.losses * slack:
            left = np.flatnonzero(~covered)
            covered[left] = (bounds[left] >= known).all(axis=1)
        return covered


def roots(division: Division, groups: Sequence[tuple[Indices, Sequence[Dominance]]]) -> Boxes:
    """Return a box for every skeleton and every combination of kept options, in their order.

    *groups* are the skeletons of each group, and what dominates what in them.
    """
    parts = [_roots(skeletons, dominance) for skeletons, dominance in groups if len(skeletons)]
    skeletons = np.concatenate([part[0] for part in parts]) if parts else np.empty(0, dtype=np.intp)
    options = np.concatenate([part[1] for part in parts]) if parts else np.empty((0, len(division.choices)), np.intp)
    order = np.lexsort((*options.T[::-1], skeletons))
    low = np.zeros((len(order), len(division.ranges)), dtype=np.intp)
    high = low + np.array([len(each.values) - 1 for each in division.ranges], dtype=np.intp)
    return Boxes(skeletons[order], options[order], low, high)


def _roots(skeletons: Indices, dominance: Sequence[Dominance]) -> tuple[Indices, Indices]:
    kinds = (
        np.stack([each.which for each in dominance], axis=1) if dominance else np.zeros((len(skeletons), 0), np.intp)
    )
    distinct, which = np.unique(kinds, axis=0, return_inverse=True)
    numbers, options = [], []
    for place, kind in enumerate(distinct.tolist()):
        mine = skeletons[which.reshape(-1) == place]
        grids = np.meshgrid(*(each.kept(one) for each, one in zip(dominance, kind, strict=True)), indexing="ij")
        combined = np.stack([grid.reshape(-1) for grid in grids], axis=1) if grids else np.zeros((1, 0), np.intp)
        numbers.append(np.repeat(mine, len(combined)))
        options.append(np.tile(combined, (len(mine), 1)))
    return np.concatenate(numbers), np.concatenate(options).astype(np.intp)


def halves(boxes: Boxes) -> Boxes:
    """Return both halves of each box, side by side: the slow one first."""
    width = boxes.high - boxes.low
    longest = width.argmax(axis=1)
    rows = np.arange(len(boxes))
    middle = boxes.low[rows, longest] + width[rows, longest] // 2
    slow_high, fast_low = boxes.high.copy(), boxes.low.copy()
    slow_high[rows, longest], fast_low[rows, longest] = middle, middle + 1
    low, high = np.stack([boxes.low, fast_low], axis=1), np.stack([slow_high, boxes.high], axis=1)
    twice = np.repeat(rows, 2)
    return Boxes(
        boxes.skeletons[twice], boxes.options[twice], low.reshape(-1, low.shape[2]), high.reshape(-1, low.shape[2])
    )


@dataclass
class Progress:
    """Where a search stands after a round."""

    rounds: int
    judged: int
    open: int
    best: Best
    lower: float
    """No loss is below it; with several objectives, none of the first."""


@dataclass
class Outcome:
    """What branching proved."""

    best: Best
    tree: Tree
    lower: float
    """The least bound of any leaf: no loss is below it."""
    judged: int
    done: bool
    """Whether nothing is left open."""


def branch(
    division: Division,
    start: Boxes,
    judge: Judge,
    best: Best,
    until: float = np.inf,
    told: Callable[[Progress], None] = lambda _: None,
) -> Outcome:
    """Return the best designs of the boxes *start*; stop with a gap at the time *until*."""
    boxes, tree = start, Tree()
    one = best.losses.shape[1] == 1
    lower, left, judged = np.inf, -np.inf, 0
    for rounds in range(MOST_ROUNDS):
        if not len(boxes):
            break
        try:
            found = judge(boxes)
            judged += len(boxes)
            best.offer(found.losses, partial(corners, division, boxes))
        except KeyboardInterrupt:
            if rounds == 0:
                raise
            tree.splits.append(np.zeros(len(boxes), dtype=bool))
            return Outcome(best, tree, min(lower, left) if one else np.nan, judged, done=False)
        try:
            if rounds == 0 or (rounds <= RETRIED and not one):
                judged += _descend(division, boxes, found, judge, best)
        except KeyboardInterrupt:
            until = -np.inf  # this round is the last
        leaf = best.covers(found.bounds) | boxes.single
        lower = min(lower, float(found.bounds[leaf, 0].min(initial=np.inf)))
        left = float(found.bounds[~leaf, 0].min(initial=np.inf))
        if (monotonic() > until or 2 * np.count_nonzero(~leaf) > MOST_BOXES) and not leaf.all():
            tree.splits.append(np.zeros(len(boxes), dtype=bool))
            return Outcome(best, tree, min(lower, left) if one else np.nan, judged, done=False)
        tree.splits.append(~leaf)
        boxes = halves(boxes.take(~leaf))
        told(Progress(rounds, judged, len(boxes), best, min(lower, left)))
    return Outcome(best, tree, lower if one else np.nan, judged, done=True)


def corners(division: Division, boxes: Boxes, places: Indices) -> Indices:
    """Return the rows of the fastest corners of some boxes."""
    return division.rows(boxes.skeletons[places], boxes.options[places], boxes.high[places])


def _descend(division: Division, boxes: Boxes, found: Judged, judge: Judge, best: Best) -> int:
    """Offer what is found by changing one range or option at a time, from the most promising boxes; return the price.

    Several objectives are weighed in many ways, as products of powers, so that all of the front is approached.
    """
    judged = 0
    with np.errstate(all="ignore"):
        logs = np.log(np.clip(found.bounds, 1e-300, 1e300))
    for weights in _weights(found.bounds.shape[1]):
        promise = logs @ weights
        order = np.argsort(promise, kind="stable")[: 20 * STARTS]
        _, first = np.unique(boxes.skeletons[order], return_index=True)  # from different skeletons
        here = boxes.take(order[np.sort(first)[:STARTS]])
        here = Boxes(here.skeletons, here.options, here.high, here.high)
        for _ in range(DESCENT):
            near, owner = _neighbours(division, here)  # each is among its own neighbours
            tried = judge(near)
            judged += len(near)
            best.offer(tried.losses, partial(corners, division, near))
            with np.errstate(all="ignore"):
                weighed = np.log(np.clip(tried.losses, 1e-300, 1e300)) @ weights
            order = np.lexsort((weighed, owner))
            first = order[np.searchsorted(owner[order], np.arange(len(here)))]
            moved = near.take(first)
            if np.array_equal(moved.high, here.high) and np.array_equal(moved.options, here.options):
                break
            here = moved
    return judged


def _weights(objectives: int) -> Floats:
    """Return how several objectives are weighed: one after the other, and mixed."""
    if objectives == 1:
        return np.ones((1, 1))
    if objectives == 2:
        shares = np.linspace(0.0, 1.0, MIXES)
        return np.stack([shares, 1 - shares], axis=1)
    rng = np.random.default_rng(0)
    return np.vstack([np.eye(objectives), rng.dirichlet(np.ones(objectives), MIXES)])


def _neighbours(division: Division, boxes: Boxes) -> tuple[Boxes, Indices]:
    """Return all designs that differ from some in one range or option, and which they differ from."""
    options, places = [], []
    for number, choice in enumerate(division.choices):
        for option in range(len(choice.options)):
            changed = boxes.options.copy()
            changed[:, number] = option
            options.append(changed)
            places.append(boxes.high)
    for number, each in enumerate(division.ranges):
        for place in range(len(each.values)):
            moved = boxes.high.copy()
            moved[:, number] = place
            options.append(boxes.options)
            places.append(moved)
    owner = np.tile(np.arange(len(boxes)), len(options))
    high = np.concatenate(places)
    return Boxes(boxes.skeletons[owner], np.concatenate(options), high, high), owner
