"""Codes of combinations of topology, algorithm and sizes, however many variants plugins register."""

from __future__ import annotations

from typing import Any

import numpy as np

from cosmic.cost.fabric import CODE_LIMIT, _codes
from cosmic.design.batch import Names


def test_many_topologies_and_algorithms_do_not_share_codes() -> None:
    names = tuple(f"plugin-{place}" for place in range(300))
    first, second = (each.reshape(-1) for each in np.meshgrid(np.arange(300), np.arange(300)))
    sizes = np.full(len(first), float(CODE_LIMIT - 1))
    columns: list[Any] = [Names(names, first), Names(names, second), sizes, sizes, sizes]
    assert len(np.unique(_codes(columns, len(first)))) == 300 * 300
