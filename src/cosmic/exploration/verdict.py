"""What a search came to, in one sentence: how much better than the base, and what bounds it.

Terminal and report say the same, from the same value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from cosmic.advice import NAMES
from cosmic.design.point import DesignPoint
from cosmic.evaluation import Metrics, evaluate
from cosmic.exploration.objectives import loss
from cosmic.exploration.problem import Problem
from cosmic.exploration.searching import Found
from cosmic.reporting.words import figure, mapping_in_words, metric_label
from cosmic.simulation.analytic import COMMUNICATED, slowest_stage
from cosmic.step.network_load import Load, loads
from cosmic.step.roofline import peak_of, reached

BASE = "the base design"
CANNOT = "cannot run"
SAME = 5e-3
"""Gains nearer to 1 than this are none, to two digits."""


@dataclass(frozen=True, slots=True)
class Gain:
    """How many times better the best design is than another by the first objective."""

    over: str
    times: float | None
    """None where the other cannot run."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a search came to."""

    sentence: str
    design: str
    """The best design in a few words; empty where there is none, or several workloads."""
    gains: tuple[Gain, ...]
    """Over the base, then over the best of each isolated search, if the best runs."""
    bound: str
    """What bounds the best design, with its share of the step; empty where that is not known."""
    metrics: Metrics | None
    """What the best design achieves; None where nothing runs, or where it serves several workloads."""
    point: DesignPoint | None
    """The best design; None as well then."""
    caveats: tuple[str, ...]
    """What a reader should know first."""


def judge(found: Found, beside: Mapping[str, Found] | None = None) -> Verdict:
    """Return the verdict on a search; *beside* are searches of one layer each, by the layer's name."""
    problem = found.problem
    place = found.trials.best(problem)
    caveats = _caveats(found)
    if place is None:
        return Verdict(_nothing(found), "", (), "", None, None, caveats)
    point = best_point(found)
    outcome = None if point is None else evaluate(point, problem.engine)
    metrics = outcome if isinstance(outcome, Metrics) else None
    bound = "" if point is None or metrics is None else bounded_by(point, metrics)
    gains = _gains(found, place, beside or {})
    said = "; ".join(filter(None, [_gain_text(gains, base_fault(problem)), bound]))
    if len(problem.objectives) > 1:
        said += f"; {_front_text(found)}"
    design = "" if point is None else in_words(point)
    return Verdict(said, design, gains, bound, metrics, point, caveats)


def best_point(found: Found) -> DesignPoint | None:
    """Return the best design, complete; None where nothing can run, or where it is to serve several workloads."""
    place = found.trials.best(found.problem)
    space = found.problem.space
    return None if place is None or space.workloads else space.point(found.trials.rows[place])


def gain(objective: str, value: float | None, other: float | None) -> float | None:
    """Return how many times better one value of an objective is than another.

    >>> gain("step_s", 2.0, 5.0), gain("tokens_per_s", 2.0, 5.0), gain("step_s", 2.0, None)
    (2.5, 0.4, None)
    """
    if value is None or other is None:
        return None
    first, second = (float(loss(objective, np.array([each]))[0]) for each in (value, other))
    return second / first


def _gains(found: Found, place: int, beside: Mapping[str, Found]) -> tuple[Gain, ...]:
    problem = found.problem
    objective = problem.objectives[0]
    best = found.trials.results.figures(place)[objective]
    gains = [Gain(BASE, gain(objective, best, base_value(problem)))]
    for name, each in beside.items():
        reached = each.best["metrics"][objective] if each.best else None
        gains.append(Gain(f"the best of {name} alone", gain(objective, best, reached)))
    return tuple(gains)


def base_value(problem: Problem) -> float | None:
    """Return what the base design has of the first objective; None where it cannot run."""
    base = problem.base()
    return base.figures(0)[problem.objectives[0]] if base.feasible[0] else None


def base_fault(problem: Problem) -> str:
    """Return what is wrong with the base design in words; nothing if it runs, and keeps to the limits."""
    base = problem.base()
    if base.feasible[0]:
        return ""
    reasons = base.reasons[0].split(", ")
    limits = [each.text for each in problem.limits if each.text in reasons]
    return f"breaks the limit {limits[0]}" if len(limits) == len(reasons) else CANNOT


def times(ratio: float) -> str:
    """Return a gain with as many digits as tell it from 1.

    >>> times(2.314), times(1.0012), times(123.4), times(0.5)
    ('2.31×', '1.001×', '123×', '0.50×')
    """
    if ratio >= 100:
        return f"{ratio:.0f}×"
    return f"{ratio:.3f}×" if SAME / 10 < abs(ratio - 1) < SAME * 2 else f"{ratio:.2f}×"


def _gain_text(gains: tuple[Gain, ...], fault: str) -> str:
    """Return how much better the best is than the base, and than the best of its isolated rivals."""
    base, others = gains[0].times, [each for each in gains[1:] if each.times is not None]
    said = (
        f"{BASE} {fault}, the best of the search {'can' if fault == CANNOT else 'keeps it'}"
        if base is None
        else _over(base, BASE)
    )
    if others:
        nearest = min(others, key=lambda each: each.times or 0.0)
        ratio = nearest.times or 0.0
        ahead = ratio < 1 - SAME / 10
        said += f", but {nearest.over} is {times(1 / ratio)} better" if ahead else f" and {_over(ratio, nearest.over)}"
    return said


def _over(ratio: float, other: str) -> str:
    """Return a gain over something, in words.

    >>> _over(2.314, "the base design"), _over(0.5, "the base design"), _over(1.0, "the base design")
    ('2.31× over the base design', '2.00× worse than the base design', 'no better than the base design')
    """
    if abs(ratio - 1) < SAME / 10:
        return f"no better than {other}"
    return f"{times(ratio)} over {other}" if ratio > 1 else f"{times(1 / ratio)} worse than {other}"


def _front_text(found: Found) -> str:
    """Return what the front offers: how many designs, and from where to where in each objective."""
    names = found.problem.objectives
    front = found.front
    if len(front) == 1:
        return f"that design is the best in all {len(names)} objectives"
    spans = []
    for name in names:
        values = [each["metrics"][name] for each in front if each["metrics"][name] is not None]
        spans.append(f"{metric_label(name)} from {figure(name, min(values))} to {figure(name, max(values))}")
    return f"the front offers {len(front):,} designs: {', '.join(spans)}"


def _nothing(found: Found) -> str:
    if not len(found.trials):
        return "No design was tried: the search has not begun"
    said = f"No design that was tried can run{' within the limits' if found.problem.limits else ''}"
    reasons = found.trials.reasons()
    if not reasons:
        return said
    reason, count = next(iter(reasons.items()))
    many = f"{count:,} design{'' if count == 1 else 's'}"
    return f"{said}: what stood in the way most often is {reason_text(reason)} ({many})"


def reason_text(reason: str) -> str:
    """Return why designs cannot run in words.

    >>> reason_text("memory"), reason_text("chat: heads"), reason_text("mfu >= 0.4")
    ('memory: more than the accelerators have', 'chat: heads: tp does not divide them', 'the limit mfu >= 0.4')
    """
    share, _, rule = reason.rpartition(": ")
    said = REASONS.get(rule)
    if said is None:
        return f"the limit {reason}" if any(sign in reason for sign in "<>") else reason
    return f"{share}: {rule}: {said}" if share else f"{rule}: {said}"


REASONS = {
    "memory": "more than the accelerators have",
    "offloaded": "more is moved out than the outer tiers hold",
    "ranks": "dp × tp × cp × pp is not the number of NPUs",
    "heads": "tp does not divide them",
    "ffn": "tp does not divide the feed-forward width",
    "tokens": "the sequence does not divide by its parallel axes",
    "stages": "more pipeline stages than layers",
    "experts": "ep does not divide the number of experts",
    "expert_ranks": "ep does not divide dp × cp",
    "batch": "the global batch does not divide by dp × micro_batch",
    "schedule": "the pipeline schedule cannot run with these stages and microbatches",
    "precision": "the accelerator does not multiply in this format",
    "tables": "a recommender is spread over dp alone",
    "offload": "there are no outer tiers to offload to",
}
"""Rules that designs break, in words; `cosmic.workload.checks` and memory."""


def _caveats(found: Found) -> tuple[str, ...]:
    said = []
    inputs, trials = found.inputs, found.trials
    if found.stopped == "interrupted":
        said.append(
            f"The search is not complete: {trials.evaluated:,} of {inputs.trials:,} designs were evaluated."
            " Resumed, it ends as one that was never interrupted."
        )
    if found.problem.space.workloads:
        names = ", ".join(f"{each.name} (weight {each.weight:g})" for each in found.problem.space.workloads)
        said.append(
            f"One system is to run several workloads: {names}. Times are of a round of all of them, so that there is no"
            " single design to take apart: see trials, front and convergence."
        )
    fault = base_fault(found.problem) if trials.feasible else ""
    if fault:
        said.append(f"The base design {fault}, so that there is no gain over it.")
    return tuple(said)


# ---------------------------------------------------------------------------------------------- what bounds it


def bounded_by(point: DesignPoint, metrics: Metrics) -> str:
    """Return what bounds a design: what holds back the part of the step that takes longest.

    Of communication that is the dimension of the network that is busy longest with it; of matrix products and
    attention the memory, where most of their time is in operators that wait for it. A step that was played has coarser
    parts: its communication may be waiting for other stages, its computation for the host.
    """
    part = max(metrics.breakdown, key=lambda name: metrics.breakdown[name])
    seconds = metrics.breakdown[part]
    share = f"{100 * seconds / metrics.step_s:.0f} % of the step"
    if part in COMMUNICATED or part == "communication":
        busy = busy_seconds(loads(point, slowest_stage(point)), part)
        place = max(busy, key=lambda each: busy[each], default=None)
        if place is not None and (part in COMMUNICATED or busy[place] > MOSTLY * seconds):
            return f"network dimension {place + 1} bounds it ({NAMES[part]}, {share})"
        if part == "communication":
            return f"waiting for other stages and their messages bounds it ({share})"
    if part in KINDS and _waits_for_memory(point, part, seconds):
        return f"memory bandwidth bounds it ({NAMES[part]}, {share})"
    return f"{NAMES[part]} bound{'' if NAMES[part].endswith('s') else 's'} it ({share})"


KINDS = {"gemm": ("einsum",), "attention": ("attention",), "compute": ("einsum", "attention")}
"""Parts of a step that either the matrix units or the memory may hold back, and the operators that they are made of."""
MOSTLY = 0.5


def _waits_for_memory(point: DesignPoint, part: str, seconds: float) -> bool:
    """Return whether operators below the ridge take most of a part of the step, and of the time of such operators."""
    some = [each for each in reached(point, slowest_stage(point)) if each.kind in KINDS[part]]
    ridge = peak_of(point) / point.memory.bandwidth_bytes_per_s
    below = sum(each.seconds for each in some if each.intensity < ridge)
    return below > MOSTLY * max(seconds, sum(each.seconds for each in some))


def busy_seconds(some: Iterable[Load], part: str) -> dict[int, float]:
    """Return how long each dimension is busy with a part of the step; ``communication`` is all of them."""
    seconds: dict[int, float] = {}
    for load in some:
        if part in (load.part, "communication"):
            seconds[load.dimension] = seconds.get(load.dimension, 0.0) + load.seconds
    return seconds


def in_words(point: DesignPoint) -> str:
    """Return a design in a few words: its mapping and its network."""
    network = " × ".join(f"{dim.topology.replace('_', ' ')} {dim.npus}" for dim in point.network.dims)
    return f"{mapping_in_words(point)}{f', on {network}' if network else ''}"
