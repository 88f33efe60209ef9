"""Mistakes in traces: their number, and a sentence for each, made on demand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cosmic.base.errors import SpecError, shorten
from cosmic.traces.trace import ABSENT, Ints, Template


@dataclass(frozen=True, slots=True)
class TraceFinding:
    """One kind of mistake: a trace of a million nodes may hold a million."""

    count: int
    at: Callable[[int], SpecError]
    """Returns one of them, by index."""


def make_finding(mistakes: Sequence[Any] | Ints, error: Callable[[Any], SpecError]) -> TraceFinding:
    """Return a finding; *error* makes the sentence of each of *mistakes*."""
    return TraceFinding(len(mistakes), lambda index: error(mistakes[index]))


def node_text(template: Template, row: int) -> str:
    """Return a node's id and name, for sentences.

    >>> from cosmic.traces.trace import template_of
    >>> node_text(template_of([{"id": 4, "name": "matmul"}]), 0)
    "node 4 'matmul'"
    """
    name = template.names[row]
    return f"node {template.id[row]}" + (f" {shorten(name)}" if name else "")


def rank_text(where: str, ranks: Sequence[int]) -> str:
    """Return the ranks of a sentence: the first, and the number of others.

    >>> rank_text("gpt", [4, 5, 6])
    'gpt: rank 4 and 2 more'
    """
    return f"{where}: rank {ranks[0]}" + (f" and {len(ranks) - 1:,} more" if len(ranks) > 1 else "")


def size_text(size: int) -> str:
    """Return a size, for sentences.

    >>> size_text(4096), size_text(ABSENT)
    ('4,096 bytes', 'unknown size')
    """
    return "unknown size" if size == ABSENT else f"{size:,} bytes"
