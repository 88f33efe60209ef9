"""Replay: a run's recipe run again from nothing, and what it gives compared with what it gave."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isclose
from typing import Any

TOLERANCE = 1e-9
"""Relative difference of numbers that are the same: sums may be rounded otherwise."""
VOLATILE = (
    *("elapsed_s", "cpu_s", "seconds", "evaluations_per_s", "computed", "resumed"),
    *("out", "path", "folder", "study", "version"),
)
"""What two runs of the same may differ in: how long they took, and where they wrote."""


@dataclass(frozen=True)
class Difference:
    """A value that came out otherwise."""

    where: str
    before: Any
    now: Any


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[Difference]:
    """Return where the rows of two runs of one recipe differ."""
    return list(_differing([_kept(row) for row in before["rows"]], [_kept(row) for row in now["rows"]], "rows"))


def _kept(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of a row must come out again: not the places in a store."""
    steps = {step["id"]: step["output"] for step in row["steps"]}
    return {"variables": row["variables"], "status": row["status"], "results": row["results"], "steps": steps}


def _differing(before: Any, now: Any, where: str) -> Iterator[Difference]:
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in dict.fromkeys((*before, *now)):
            if key not in VOLATILE:
                yield from _differing(before.get(key), now.get(key), f"{where}.{key}")
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for place, (old, new) in enumerate(zip(before, now, strict=True)):
            yield from _differing(old, new, f"{where}.{place}")
    elif not _same(before, now):
        yield Difference(where, before, now)


def _same(before: Any, now: Any) -> bool:
    numbers = all(isinstance(each, int | float) and not isinstance(each, bool) for each in (before, now))
    return isclose(before, now, rel_tol=TOLERANCE, abs_tol=0.0) if numbers else before == now
