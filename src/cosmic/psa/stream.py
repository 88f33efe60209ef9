"""Sampled points as JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from cosmic.psa.diagram import Indices
from cosmic.psa.parameters import label
from cosmic.psa.space import ParameterSet

BATCH = 10_000


def json_lines(space: ParameterSet, n: int, rng: np.random.Generator) -> Iterator[str]:
    """Yield *n* points drawn uniformly, one JSON object each, as files write them.

    Each value is formatted once.
    """
    texts = [[_member(each.name, value) for value in each.labels] for each in space.parameters]
    for start in range(0, n, BATCH):
        rows = space.sample(min(BATCH, n - start), rng)
        columns = [[text[index] for index in rows[:, place].tolist()] for place, text in enumerate(texts)]
        columns += [_derived(space, path, rows) for path in space.derived]
        for members in zip(*columns, strict=True):
            yield "{" + ", ".join(members) + "}"


def _derived(space: ParameterSet, path: str, rows: Indices) -> list[str]:
    values = space.derive(path, rows).tolist()
    texts = {value: _member(path, label(space.base, path, value)) for value in set(values)}
    return [texts[value] for value in values]


def _member(name: str, value: Any) -> str:
    return f"{json.dumps(name)}: {json.dumps(value)}"
