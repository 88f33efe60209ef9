"""What the event engine says of the designs that the closed form calls best: a proof is about the closed form alone."""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic

from cosmic.certifying.certifying import Certified
from cosmic.errors import CosmicError
from cosmic.evaluation import Metrics, evaluate
from cosmic.psa.diagram import Indices

MOST = 10
"""Designs that are simulated."""


@dataclass(frozen=True, slots=True)
class Simulated:
    """A design's step in closed form, and simulated."""

    row: Indices
    step_s: float
    simulated_s: float


def simulate_best(found: Certified, most: int = MOST, limit_s: float = 20.0) -> tuple[list[Simulated], str]:
    """Return both steps of the best designs that were met, and why there are fewer; at least one is simulated."""
    rows = found.good[:most]
    if len(found.problem.shares) > 1:
        return [], "designs of several workloads are not simulated"
    simulated: list[Simulated] = []
    started = monotonic()
    for row in rows:
        if simulated and monotonic() - started > limit_s:
            return simulated, f"{len(rows) - len(simulated)} more were not simulated: it would take too long"
        point = found.problem.space.point(row)
        try:
            closed, event = evaluate(point), evaluate(point, "event")
        except CosmicError as error:
            return simulated, f"the event engine cannot simulate them: {error}"
        if isinstance(closed, Metrics) and isinstance(event, Metrics):
            simulated.append(Simulated(row, closed.step_s, event.step_s))
    return simulated, ""
