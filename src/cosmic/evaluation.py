"""Evaluate a design: what it achieves, or why it cannot run. Read this first.

    without a serving section    one step of training, of prefill or of decode     cosmic.simulate.step_evaluation
    with one                     requests under a load, many such steps            cosmic.serving

A design that cannot run is a result, `Infeasible`, with reasons that a person can act on.
"""

from __future__ import annotations

from cosmic.base.errors import UnknownName
from cosmic.design.design_batch import Batch
from cosmic.design.design_point import DesignPoint
from cosmic.simulate.metrics import BatchOutcome, Infeasible, Outcome
from cosmic.simulate.step_evaluation import (
    ENGINES,
    evaluate_step,
    evaluate_steps,
)


def step_of(point: DesignPoint) -> DesignPoint:
    """Return one step of a design as a design of its own: itself, or of one that serves a load a decode step."""
    if point.serving is None:
        return point
    from cosmic.serving.served_evaluation import decode_step_of  # noqa: PLC0415  a training step needs no serving

    return decode_step_of(point)


def evaluate(point: DesignPoint, engine: str = "analytic") -> Outcome:
    """Return what *point* achieves, or why it cannot run.

    The engine `analytic` adds up a step in closed form; `event` simulates the design's own traces, node by node. Of a
    design that serves a load, `event` simulates requests one by one.
    """
    point = point.compact
    if point.serving is None:
        return evaluate_step(point, engine)
    if engine not in ENGINES:
        raise UnknownName.among("engine", engine, "engine", ENGINES)
    from cosmic.serving.served_evaluation import evaluate_served  # noqa: PLC0415

    closed = evaluate_served(point)
    if engine == "analytic" or isinstance(closed, Infeasible):
        return closed
    from cosmic.serving.simulation_check import simulate_served  # noqa: PLC0415  only this engine needs it

    return simulate_served(point, closed)


def evaluate_batch(batch: Batch) -> BatchOutcome:
    """Return the metrics of every design of *batch*: the same functions, over arrays."""
    if batch.base.serving is None:
        return evaluate_steps(batch)
    from cosmic.serving.served_evaluation import evaluate_served_batch  # noqa: PLC0415

    return evaluate_served_batch(batch)
