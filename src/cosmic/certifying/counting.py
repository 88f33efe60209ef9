"""How many designs are within a share of the best: every design counts, dominated ones too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic

import numpy as np

from cosmic.certifying.bounding import Boxes, Judged
from cosmic.certifying.branching import SLACK, halves
from cosmic.certifying.dominance import Dominance
from cosmic.certifying.intervals import Floats
from cosmic.psa.diagram import Indices

AT_ONCE = 200_000
"""Boxes of a heap that are looked at together: those found last first, so that few wait."""


def count_within(
    roots: Boxes,
    groups: Sequence[tuple[Indices, Sequence[Dominance]]],
    judge: Callable[[Boxes], Judged],
    worst: Callable[[Boxes], Floats],
    most: float,
    until: float = np.inf,
) -> int | None:
    """Return how many designs have a loss of at most *most*; None where time runs out.

    A box whose bound is beyond has none of them, one whose worst is within is made of them; any other is halved. A root
    stands for all combinations of options that its own dominate: where its own are within, they are told apart, one
    choice after the other.
    """
    stands = _stands(groups)
    heap: list[tuple[int, Boxes]] = [(0, roots.take(slice(at, at + AT_ONCE))) for at in range(0, len(roots), AT_ONCE)]
    choices, total = roots.options.shape[1], 0
    while heap:
        if monotonic() > until:
            return None
        choice, boxes = heap.pop()
        found = judge(boxes)
        near = found.bounds[:, 0] <= most * (1 + SLACK)
        boxes, losses = boxes.take(near), found.losses[near, 0]
        if not len(boxes):
            continue
        inside = np.isfinite(losses) & (worst(boxes)[:, 0] <= most * (1 - SLACK))
        if choice < choices:
            ready = inside | boxes.single
            _push(heap, choice, halves(boxes.take(~ready)))
            _push(heap, choice + 1, _told_apart(boxes.take(ready), choice, stands[choice]))
            continue
        total += int(boxes.sizes[inside].sum())
        boxes, losses = boxes.take(~inside), losses[~inside]
        single = boxes.single
        total += int(np.count_nonzero(losses[single] <= most))
        _push(heap, choice, halves(boxes.take(~single)))
    return total


def _push(heap: list[tuple[int, Boxes]], choice: int, boxes: Boxes) -> None:
    heap += [(choice, boxes.take(slice(at, at + AT_ONCE))) for at in range(0, len(boxes), AT_ONCE)]


def _stands(groups: Sequence[tuple[Indices, Sequence[Dominance]]]) -> list[tuple[Indices, Indices]]:
    """Return for each choice the table of each skeleton, and the tables: which option stands for which."""
    largest = max((int(skeletons.max(initial=-1)) for skeletons, _ in groups), default=-1) + 1
    found = []
    for choice in range(max((len(each) for _, each in groups), default=0)):
        which, tables, shift = np.zeros(largest, dtype=np.intp), [], 0
        for skeletons, each in groups:
            if len(skeletons):
                which[skeletons] = each[choice].which + shift
                tables.append(each[choice].stands)
                shift += len(each[choice].stands)
        found.append((which, np.concatenate(tables)))
    return found


def _told_apart(boxes: Boxes, choice: int, stands: tuple[Indices, Indices]) -> Boxes:
    """Return a box for each option that a box's own stands for."""
    which, tables = stands
    members = tables[which[boxes.skeletons]] == boxes.options[:, choice][:, None]
    rows, options = np.nonzero(members)
    found = boxes.take(rows)
    chosen = found.options.copy()
    chosen[:, choice] = options
    return Boxes(found.skeletons, chosen, found.low, found.high)
