"""The steps that a profile recorded: what PyTorch's profiler marks as ``ProfilerStep#N``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cosmic.errors import SpecError
from cosmic.profiles.kineto import ANNOTATION, Kineto

MARK = re.compile(r"ProfilerStep#(\d{1,18})")


@dataclass(frozen=True, slots=True)
class Step:
    """A step, in nanoseconds."""

    number: int
    start: int
    end: int


def steps_of(trace: Kineto) -> list[Step]:
    """Return the steps of *trace*, in their order; a mark that does not say how long it took is none."""
    host = trace.host
    marked = {at: int(found[1]) for at, name in enumerate(trace.names) if (found := MARK.fullmatch(name))}
    entries = np.flatnonzero(np.isin(host.name, list(marked)) & (host.category == ANNOTATION)).tolist()
    steps = [Step(marked[int(host.name[at])], int(host.start[at]), int(host.end[at])) for at in entries]
    return sorted((step for step in steps if step.end > step.start), key=lambda step: step.start)


def step_window(steps: Sequence[Step], wanted: int | None, where: str) -> tuple[int, int] | None:
    """Return from when to when nodes are kept: all steps, or the *wanted* one; None if no step is marked."""
    if wanted is None:
        return (steps[0].start, max(step.end for step in steps)) if steps else None
    for step in steps:
        if step.number == wanted:
            return step.start, step.end
    known = ", ".join(f"ProfilerStep#{step.number}" for step in steps) or "no steps at all"
    raise SpecError(f"{where}: step", wanted, f"is not recorded; marked are {known}")
