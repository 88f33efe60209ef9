"""The verdict on a search in one sentence: how much better than the base its best design is, and what bounds it.

Terminal and report show the same value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cosmic.advice import bound_of
from cosmic.design.point import DesignPoint
from cosmic.evaluation import Metrics, evaluate
from cosmic.exploration.objectives import loss
from cosmic.exploration.objectives import ratio as loss_ratio
from cosmic.exploration.plateau import Plateau
from cosmic.exploration.problem import Problem
from cosmic.exploration.searching import Found
from cosmic.exploration.studies.runs import summary_of
from cosmic.psa.diagram import Indices
from cosmic.reporting.words import figure, mapping_in_words, metric_label

BASE = "the base design"
CANNOT = "cannot run"
SAME = 5e-3
"""A gain nearer to 1 than this rounds to 1.00."""


@dataclass(frozen=True, slots=True)
class Gain:
    """How many times better the best design is than another, by the first objective."""

    over: str
    times: float | None
    """None where the other cannot run."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on a search."""

    sentence: str
    design: str
    """The best design in a few words; empty where nothing can run, or with several workloads."""
    gains: tuple[Gain, ...]
    """Gains over the base, then over the best of each isolated search; none where nothing can run."""
    bound: str
    """What bounds the best design, with its share of the step; empty where that is not known."""
    metrics: Metrics | None
    """The metrics of the best design; None where nothing can run, or with several workloads."""
    point: DesignPoint | None
    """The best design; None in the same cases."""
    plateau: Plateau | None
    """The designs that are as good, of which `point` is one; None where nothing can run."""
    proof: str
    """What was proven, in words; empty where better designs may be left."""
    caveats: tuple[str, ...]
    """Sentences that qualify the verdict."""


def judge(found: Found, beside: Mapping[str, Found] | None = None) -> Verdict:
    """Return the verdict on a search; *beside* are searches of one layer each, by the layer's name."""
    problem = found.problem
    ground = found.plateau
    caveats = _caveats(found)
    if ground is None:
        return Verdict(_nothing(found), "", (), "", None, None, None, "", caveats)
    place = ground.place
    point = _point(problem, found.trials.row(place))
    outcome = None if point is None else evaluate(point, problem.engine)
    metrics = outcome if isinstance(outcome, Metrics) else None
    bound = "" if point is None or metrics is None else bound_of(point, metrics)
    gains = _gains(found, place, beside or {})
    proof = proof_of(found)
    gained = _gain_text(gains, base_fault(problem))
    if len(problem.objectives) > 1:  # gains are in the first of them
        gained = gained.replace(
            f"no better than {BASE}", f"no better than {BASE} in {metric_label(problem.objectives[0])}"
        )
    said = "; ".join(filter(None, [proof, gained, bound]))
    if len(problem.objectives) > 1:
        said += f"; {_front_text(found, place)}"
    design = "" if point is None else in_words(point)
    return Verdict(said, design, gains, bound, metrics, point, ground, proof, caveats)


def _point(problem: Problem, row: Indices) -> DesignPoint | None:
    """Return the design of *row*; None where COSMIC cannot say more of it than its metrics."""
    return None if problem.space.workloads or not problem.of_designs else problem.space.point(row)


def best_point(found: Found) -> DesignPoint | None:
    """Return the design to take, complete; None where nothing can run, or with several workloads."""
    ground = found.plateau
    return None if ground is None else _point(found.problem, found.trials.row(ground.place))


def proof_of(found: Found) -> str:
    """Return that a search went through every design, in words; empty where it did not."""
    problem = found.problem
    if found.stopped != "exhausted":
        return ""
    what = "mappings" if set(problem.space.stacks) <= {"workload"} else "designs"
    said = "best" if len(problem.objectives) == 1 else "front"
    if problem.space.provisioner is not None:
        return f"{said} of all {problem.space.valid:,} {what}, each with the bandwidth found for it"
    said = f"proven {said}"
    said_by = {"analytic": "", "event": ", simulated"}
    simulated = said_by.get(problem.engine, f", by {problem.engine}")
    return f"{said} of {problem.space.valid:,} {what}{simulated}"


def choice_text(ground: Plateau) -> str:
    """Return how many designs are as good as the best, and which of them is shown; empty where there is no other.

    >>> choice_text(Plateau(0.01, 19064, 3, 0.004))
    '19,064 designs lie within 1 % of the best: of these the cheapest, then the simplest, is shown (0.4 % above it)'
    """
    if ground.count == 1:
        return ""
    above = f" ({100 * ground.above:.1f} % above it)" if ground.above >= 5e-4 else ""
    return (
        f"{ground.count:,} designs lie within {100 * ground.within:g} % of the best: of these the cheapest, then the"
        f" simplest, is shown{above}"
    )


def gain(objective: str, value: float | None, other: float | None) -> float | None:
    """Return how many times better one value of an objective is than another.

    >>> gain("step_s", 2.0, 5.0), gain("tokens_per_s", 2.0, 5.0), gain("step_s", 2.0, None)
    (2.5, 0.4, None)
    >>> gain("offloaded_bytes", 0.0, 0.0), gain("offloaded_bytes", 0.0, 1.0)
    (1.0, inf)
    """
    if value is None or other is None:
        return None
    first, second = (float(loss(objective, np.array([each]))[0]) for each in (value, other))
    return loss_ratio(first, second)


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
    """Return the first objective of the base design; None where it cannot run."""
    base = problem.base()
    return base.figures(0)[problem.objectives[0]] if base.feasible[0] else None


def base_fault(problem: Problem) -> str:
    """Return why the base design is infeasible, in words; an empty text where it is feasible."""
    base = problem.base()
    if base.feasible[0]:
        return ""
    reasons = base.reasons[0].split(", ")
    limits = [each.text for each in problem.limits if each.text in reasons]
    return f"breaks the limit {limits[0]}" if len(limits) == len(reasons) else CANNOT


def times(ratio: float) -> str:
    """Return a gain with enough digits to tell it from 1.

    >>> times(2.314), times(1.0012), times(123.4), times(0.5), times(float("inf"))
    ('2.31×', '1.001×', '123×', '0.50×', '∞×')
    """
    if np.isinf(ratio):
        return "∞×"
    if ratio >= 100:
        return f"{ratio:.0f}×"
    return f"{ratio:.3f}×" if SAME / 10 < abs(ratio - 1) < SAME * 2 else f"{ratio:.2f}×"


def _gain_text(gains: tuple[Gain, ...], fault: str) -> str:
    """Return how much better the best design is than the base, and than the best isolated search."""
    base, others = gains[0].times, [each for each in gains[1:] if each.times is not None]
    said = (
        f"{BASE} {fault}, the best of the search {'can' if fault == CANNOT else 'meets it'}"
        if base is None
        else _over(base, BASE)
    )
    if others:
        nearest = min(others, key=lambda each: each.times or 0.0)
        ratio = nearest.times or 0.0
        ahead = ratio < 1 - SAME / 10
        said += (
            f", but {nearest.over} is {times(_turned(ratio))} better" if ahead else f" and {_over(ratio, nearest.over)}"
        )
    return said


def _over(ratio: float, other: str) -> str:
    """Return a gain over something, in words.

    >>> _over(2.314, "the base design"), _over(0.5, "the base design"), _over(1.0, "the base design")
    ('2.31× over the base design', '2.00× worse than the base design', 'no better than the base design')
    """
    if abs(ratio - 1) < SAME / 10:
        return f"no better than {other}"
    return f"{times(ratio)} over {other}" if ratio > 1 else f"{times(_turned(ratio))} worse than {other}"


def _turned(ratio: float) -> float:
    return 1 / ratio if ratio else float("inf")


def _front_text(found: Found, place: int) -> str:
    """Return how many designs the front has, and the range of each objective on it.

    Of a front of one design, at *place*, the gain in objectives but the first, which is said already.
    """
    names = found.problem.objectives
    front = found.front
    if len(front) == 1:
        said = f"that design is the best in all {len(names)} objectives"
        base, best = found.problem.base(), found.trials.results.figures(place)
        if not base.feasible[0]:
            return said
        known = ((name, gain(name, best[name], base.figures(0)[name])) for name in names[1:])
        gains = [f"{metric_label(name)} {_over(ratio, BASE)}" for name, ratio in known if ratio is not None]
        return f"{said}: {', '.join(gains)}" if gains else said
    spans = []
    for name in names:
        values = [each["metrics"][name] for each in front if each["metrics"][name] is not None]
        spans.append(f"{metric_label(name)} from {figure(name, min(values))} to {figure(name, max(values))}")
    return f"the front has {len(front):,} designs: {', '.join(spans)}"


def _nothing(found: Found) -> str:
    if not len(found.trials):
        return "No design was tried: the search has not begun"
    said = f"No design that was tried can run{' within the limits' if found.problem.limits else ''}"
    reasons = found.trials.reasons()
    if not reasons:
        return said
    reason, count = next(iter(reasons.items()))
    many = f"{count:,} design{'' if count == 1 else 's'}"
    return f"{said}; the most frequent reason is {reason_text(reason)} ({many})"


def reason_text(reason: str) -> str:
    """Return in words why designs cannot run.

    >>> reason_text("memory"), reason_text("mfu >= 0.4")
    ('out of memory: an accelerator has less than the design needs', 'the limit mfu >= 0.4')
    >>> reason_text("chat: heads")
    'chat: invalid mapping: tp does not divide the number of attention heads'
    """
    share, _, rule = reason.rpartition(": ")
    said = REASONS.get(rule)
    if said is None:
        return f"the limit {reason}" if any(sign in reason for sign in "<>") else reason
    return f"{share}: {said}" if share else said


_MAPPING = {
    "ranks": "dp × tp × cp × pp is not the number of accelerators",
    "heads": "tp does not divide the number of attention heads",
    "ffn": "tp does not divide the FFN width",
    "head_groups": "tp does not divide the groups of heads of sparse attention",
    "state_heads": "tp or cp does not divide the heads and groups of the state space",
    "tokens": "cp, and tp under sequence parallelism, do not divide the sequence",
    "stages": "pp × virtual_stages is more than the number of layers",
    "stage_layers": "layers of stages do not go with pp, virtual_stages, schedule and layers",
    "experts": "ep does not divide the number of experts",
    "expert_shards": "etp does not divide tp, or the width of experts",
    "expert_ranks": "etp × ep does not divide tp × cp × dp",
    "expert_tokens": "etp × ep does not divide by tp without sequence parallelism",
    "batch": "dp × micro_batch does not divide the global batch",
    "schedule": "the pipeline schedule does not support these stages and microbatches",
    "islands": "dp alone must span the outermost network dimension for sync_period, and sync_compression needs it",
    "tables": "a recommender takes dp only",
    "task": "only models that write text decode",
    "sequence": "the model does not take so many tokens",
    "adapters": "the model has none of the modules that lora_targets names",
    "program": "the program's annotations do not name an axis that is split, or it cannot run so",
    "routing": "what is said of routing does not go with the model or the task",
    "fabric": "the build of a network does not go with its topology, or its switches have too few ports",
    "processor": "the rate at which a host updates optimizer states is not known",
    "pool": "switches of a memory pool gather and reduce sharded state in the pool alone",
}
REASONS = {
    **{rule: f"invalid mapping: {said}" for rule, said in _MAPPING.items()},
    "memory": "out of memory: an accelerator has less than the design needs",
    "offloaded": "out of memory: the outer tiers have less than is offloaded",
    "offload": "offloading without outer memory tiers",
    "network": "faults leave accelerators without a path, or name links that do not exist",
    "power": "a power cap without a known power",
    "precision": "unsupported precision: the accelerator has no rate for this format",
    "context": "requests are longer than the context of the model",
    "pools": "invalid deployment: the accelerators of the pools are not those of the network",
    "instances": "invalid deployment: dp does not divide by the ranks that share experts",
    "rate": "too much load: requests come faster than they are served",
    "cache": "out of memory: the weights leave no room for the KV cache of a request",
}
"""The rules that infeasible designs break, in words: those of `cosmic.workload.checks` and `cosmic.serving.rules`, and
memory."""


def _caveats(found: Found) -> tuple[str, ...]:
    said = []
    inputs, trials = found.inputs, found.trials
    if found.stopped == "interrupted":
        said.append(
            f"The search is not complete: {trials.evaluated:,} of {inputs.trials:,} designs were evaluated."
            " Resume it, and it ends as if it had never been interrupted."
        )
    if found.problem.space.workloads:
        names = ", ".join(f"{each.name} (weight {each.weight:g})" for each in found.problem.space.workloads)
        said.append(
            f"The system runs several workloads: {names}. Times are of a round of all of them, so there is no single"
            " design to analyse: see trials, front and convergence."
        )
    said += [] if found.learned is None else found.learned.sentences()
    said += [] if found.evidence is None else summary_of(found.evidence)
    fault = base_fault(found.problem) if trials.feasible else ""
    if fault:
        said.append(f"The base design {fault}, so there is no gain over it.")
    return tuple(said)


def in_words(point: DesignPoint) -> str:
    """Return a design in a few words: its mapping and its network."""
    network = " × ".join(f"{dim.topology.replace('_', ' ')} {dim.npus}" for dim in point.network.dims)
    return f"{mapping_in_words(point)}{f', on {network}' if network else ''}"
