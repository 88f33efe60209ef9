"""Clocks of ranks, laid together by hand."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from cosmic.traces.profiles.event_linking import LinkedEvents
from cosmic.traces.profiles.kineto import Kineto
from cosmic.traces.profiles.profiled_collectives import Communication
from cosmic.traces.profiles.rank_matching import clock_offsets
from cosmic.traces.trace import CollectiveType, NodeType


def collective(start: int, end: int) -> Communication:
    """Return an all-reduce."""
    kind = CollectiveType.ALL_REDUCE
    return Communication(NodeType.COMM_COLL, kind, "allreduce", 8, "", (), -1, -1, 0, (), start, start, end)


SAME = {(0, 0): (0, 0, 0), (1, 0): (0, 0, 0)}
"""The first collective of rank 0 is the first of rank 1."""


@dataclass
class Rank:
    """What is known of a rank whose first node begins at *first*."""

    first: int
    base: int
    communications: list[Communication]
    kineto: Kineto = field(init=False)
    linked: LinkedEvents = field(init=False)

    def __post_init__(self) -> None:
        self.kineto = Kineto("k", base_ns=self.base)
        none = np.zeros(0, np.int64)
        self.linked = LinkedEvents(none, none, np.array([self.first]), none, none, none, none, none)


def test_clocks_of_one_host_are_kept() -> None:
    ranks = [Rank(5, 1000, [collective(10, 30)]), Rank(0, 1008, [collective(4, 22)])]
    assert clock_offsets(ranks, SAME) == [-5, 3]


def test_clocks_that_contradict_a_collective_are_set_by_its_end() -> None:
    ranks = [Rank(0, 1000, [collective(10, 30)]), Rank(0, 9000, [collective(4, 22)])]
    assert clock_offsets(ranks, SAME) == [0, 8]


def test_clocks_of_hours_apart_without_collectives_begin_together() -> None:
    assert clock_offsets([Rank(7, 0, []), Rank(9, 10**16, [])], {}) == [-7, -9]
