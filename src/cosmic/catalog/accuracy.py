"""The error to expect of a prediction: what validation found for designs of the same kind, predicted by the same code.

A kind is a task, a reach (one accelerator, one node or rack, several), dense or MoE, and a number format. The rows are
steps that the closed form predicted; what `cosmic.serving` predicts is judged by itself (`cosmic.catalog`'s engines).

If fewer than `ENOUGH` measured training runs are of a design's kind, the format is ignored, then the model, then the
reach. Prefill and decode were measured of eager stacks of layers on one accelerator alone, so that nothing is ignored
of their kind: where no run is like a design, its error is not known, and none is quoted. An accelerator whose kernels
were not measured adds `UNMEASURED`.
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
UNMEASURED = 0.2
"""Error of kernels that are estimated from those of a related accelerator."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """The mean error of predictions for designs of one kind."""

    error: float | None
    """None where no run like the design was measured."""
    runs: int
    """Measured runs behind it."""
    like: str
    """What those runs share with the design, or that there are none."""

    @property
    def on(self) -> str:
        """How many runs it rests on, and what they share with the design."""
        return f"on {self.runs} runs: {self.like}" if self.runs else self.like


NOT_MEASURED = Expectation(None, 0, "not measured: no run like this was predicted by this model")


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
    found = _alike(point)
    if found.error is None or point.compute.provenance != "estimate":
        return found
    return Expectation(hypot(found.error, UNMEASURED), found.runs, f"{found.like}; its kernels were not measured")


def _alike(point: DesignPoint) -> Expectation:
    if isinstance(point.model, Recommender) or point.workload.precision == "fp32":
        return NOT_MEASURED
    kind = design_kind(point)
    if point.workload.task == "training":
        return _nearest(tuple(kind.values()))
    fused = point.workload.execution != "eager"  # other kernels than those that were measured
    return NOT_MEASURED if fused else _of(kind) or NOT_MEASURED


@cache
def _nearest(kind: tuple[str, ...]) -> Expectation:
    """Return what is known of a kind of designs; of those with fewer of its traits where that is little."""
    known = (_of(dict(zip(KEYS[:count], kind, strict=False))) for count in range(len(KEYS), 0, -1))
    return next((each for each in known if each is not None), NOT_MEASURED)


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
