"""The error to expect of a prediction: what validation found for designs of the same kind.

A kind is a task, a reach (one accelerator, one node or rack, several), dense or MoE, and a number format. If fewer than
`ENOUGH` measured runs are of a design's kind, the format is ignored, then the model, then the reach. An accelerator
whose kernels were not measured adds `UNMEASURED`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import hypot
from typing import Any

from cosmic.catalog import FOLDER, load_mapping
from cosmic.design.model import Recommender, is_moe
from cosmic.design.point import DesignPoint

ENOUGH = 5
KEYS = ("task", "reach", "model", "format")
UNKNOWN = 0.3
"""Error where no similar run was measured."""
UNMEASURED = 0.2
"""Error of kernels that are estimated from those of a related accelerator."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """The mean error of predictions for designs of one kind."""

    error: float
    runs: int
    """Measured runs behind it."""
    like: str
    """What those runs share with the design."""


UNKNOWN_KIND = Expectation(UNKNOWN, 0, "nothing measured")


def design_kind(point: DesignPoint) -> dict[str, str]:
    """Return the kind of a design."""
    dims = point.network.dims
    npus = point.network.npus
    reach = "one accelerator" if npus == 1 else "one node" if npus == dims[0].npus else "several nodes"
    narrow = point.workload.precision in ("fp8", "fp4", "int4")
    return {
        "task": point.workload.task,
        "reach": reach,
        "model": "MoE" if is_moe(point.model) else "dense",
        "format": "8 bits or fewer" if narrow else "16 bits",
    }


def expected_error(point: DesignPoint) -> Expectation:
    """Return how far off the step of *point* is expected to be."""
    unknown = isinstance(point.model, Recommender)  # none was measured
    found = UNKNOWN_KIND if unknown else _nearest(tuple(design_kind(point).values()))
    if point.compute.provenance != "estimate":
        return found
    return Expectation(hypot(found.error, UNMEASURED), found.runs, f"{found.like}; its kernels were not measured")


@cache
def _nearest(kind: tuple[str, ...]) -> Expectation:
    """Return what is known of a kind of designs; of those with fewer of its traits where that is little."""
    known = (_of(dict(zip(KEYS[:count], kind, strict=False))) for count in range(len(KEYS), 0, -1))
    return next((each for each in known if each is not None), UNKNOWN_KIND)


def _of(traits: dict[str, str]) -> Expectation | None:
    rows = [row for row in _table() if all(row[key] == value for key, value in traits.items())]
    runs = sum(row["runs"] for row in rows)
    if runs < ENOUGH:
        return None
    error = sum(row["runs"] * row["error"] for row in rows) / runs
    return Expectation(error, runs, ", ".join(traits.values()))


@cache
def _table() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = load_mapping(FOLDER / "accuracy.yaml")["kinds"]
    return found
