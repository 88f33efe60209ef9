"""What bounds a design, and what would help it most: moves of an engineer first, then what could be bought.

`improvements` tries single moves, then pairs of the best of them, and of those that would be fast if they fitted with
those that save memory. Of each lever, the best move is listed. `repairs` does the same for a design that cannot run.
`advise` adds to each change what must be set for a design to load as the changed one.
"""

from __future__ import annotations

from cosmic.advice.effects import without_effect
from cosmic.advice.moves import ACCURACY, LATENCY, Kind, Move, moves
from cosmic.advice.setting import Advised, advise, settings_of
from cosmic.advice.trying import FASTER, Change, improvements, repairs, written
from cosmic.design.batch import batch_of
from cosmic.design.point import DesignPoint
from cosmic.evaluation import Metrics
from cosmic.serving.evaluating import decode_step_of
from cosmic.simulation.analytic import bounding_profile
from cosmic.step.bound import bounded_by

__all__ = [
    "ACCURACY",
    "FASTER",
    "LATENCY",
    "Advised",
    "Change",
    "Kind",
    "Move",
    "advise",
    "bound_of",
    "improvements",
    "moves",
    "repairs",
    "settings_of",
    "without_effect",
    "written",
]


def bound_of(point: DesignPoint, metrics: Metrics) -> str:
    """Return in words what bounds a design that achieves *metrics*; under a load, what bounds its decode steps."""
    step = point if point.serving is None else decode_step_of(point)
    said = bounded_by(bounding_profile(batch_of(step)), metrics.breakdown)
    return said if point.serving is None else said.replace("% of the step", "% of a decode step")
