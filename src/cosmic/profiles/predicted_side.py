"""A design's step as one side of a comparison of traces: its operators and collectives with predicted seconds.

The nodes of generated traces hold several operators each; the step profile, which they are made of, lists them one by
one. So a design is compared by its profile, on the stage that bounds the step.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from cosmic.cost.attention import Attention
from cosmic.cost.scan import Scan
from cosmic.design.batch import batch_of
from cosmic.design.point import DesignPoint
from cosmic.errors import SpecError
from cosmic.evaluation import Infeasible, evaluate
from cosmic.profiles.accounting import Idle
from cosmic.profiles.kernel_classes import (
    ATTENTION,
    COMMUNICATION,
    GEMMS,
    MEMORY,
    OPTIMIZER,
    TABLES,
    WorkClass,
    gemm_shape,
)
from cosmic.profiles.sides import Amount, Operator, TraceSide
from cosmic.simulation.analytic import anatomy, optimizer_s
from cosmic.step.products import Gemm
from cosmic.step.profile import OperatorCost, StepProfile
from cosmic.workload.checks import invalid_reasons

_PARTS = {
    "norm": "norms",
    "gated_norm": "norms",
    "gelu": "activations",
    "silu": "activations",
    "relu": "activations",
    "tanh": "activations",
    "multiply": "activations",
    "bias": "biases",
    "add": "adds",
    "rope": "rotary positions",
    "router": "experts",
    "dispatch": "experts",
    "combine": "experts",
}
"""Parts of memory operators by the kind of an operator; others are named by their kind."""
_EXPERTS = re.compile(r"expert|shared|router")
_FEED_FORWARD = re.compile(r"ffn|mlp")


def side_of_design(point: DesignPoint, name: str = "") -> TraceSide:
    """Return what the accelerators of *point* do in a step, as it is predicted."""
    batch = batch_of(point)
    if reasons := invalid_reasons(batch):
        raise SpecError("design", name or point.identity, reasons[0])
    found = anatomy(batch)
    step, profile = found.step, found.profile
    operators: dict[Operator, Amount] = {}
    for what, amount in (*_computed(profile), *_communicated(profile), *_updated(profile)):
        operators[what] = operators.get(what, Amount()) + amount
    parts = {part: float(seconds) for part, seconds in step.parts.items()}
    outcome = evaluate(point)
    limits = outcome.reasons if isinstance(outcome, Infeasible) else ()
    return TraceSide(
        name=name or point.identity,
        kind="design",
        operators=operators,
        span_s=float(step.seconds),
        idle=Idle(host_s=parts["launch"], bubble_s=parts["bubble"], offload_s=parts["offload"]),
        shapes=_shapes(profile.operators),
        notes=tuple(f"{name or point.identity}: {reason}" for reason in limits),
    )


def _computed(profile: StepProfile) -> Iterator[tuple[Operator, Amount]]:
    """Yield all operators; the backward pass of a GEMM is two of them."""
    for each in profile.operators:
        use, runs = each.use, float(each.runs)
        label = f"{use.block}.{use.name}.{use.phase}"
        if not runs:
            continue
        if isinstance(use.kernel.shape, Gemm):
            for shape, seconds, name, share in _gemms(profile, each, use.kernel.shape, label):
                what = Operator(WorkClass(GEMMS, _part(each)), name, shape, "COMP")
                flop, moved = share * float(use.flop), share * float(use.bytes)
                yield what, Amount(count=runs, seconds=runs * seconds, flop=runs * flop, bytes=runs * moved)
            continue
        amount = Amount(count=1, seconds=float(each.seconds))
        if isinstance(
            use.kernel.shape, Attention
        ):  # others stream: what their kernels move is not what a roofline counts
            flop = float(use.flop) * _products(each, use.kernel.shape)
            amount = replace(amount, flop=flop, bytes=float(use.bytes))
        yield Operator(_class_of(each), label, _attention(each), "COMP"), amount * runs


def _gemms(
    profile: StepProfile, cost: OperatorCost, shape: Gemm, label: str
) -> Iterator[tuple[str, float, str, float]]:
    """Yield the GEMMs of an operator: shape, seconds of one run, name, and share of its operations."""
    use, whole = cost.use, float(cost.seconds)
    if use.phase == "forward":
        yield _text(shape), whole, label, 1.0
        return
    by_input, by_weight = shape.backward()
    if use.kernel.frozen:
        yield _text(by_input), whole, f"{label}.input", 1.0
        return
    alone = float(profile.kernels.seconds(replace(use, kernel=replace(use.kernel, frozen=True))))
    if not alone < whole:  # a roofline knows one operator, of two equal halves
        alone = whole / 2
    yield _text(by_input), alone, f"{label}.input", 0.5
    yield _text(by_weight), whole - alone, f"{label}.weight", 0.5


def _text(shape: Gemm) -> str:
    return gemm_shape(*(float(each) for each in (shape.count, shape.m, shape.n, shape.k)))


def _attention(cost: OperatorCost) -> str:
    """Return the shape of attention as `cosmic.profiles.kernel_classes.shape_of` does."""
    shape = cost.use.kernel.shape
    if not isinstance(shape, Attention):
        return ""
    sizes = (shape.batch, shape.heads, shape.kv_heads, shape.queries, shape.keys, shape.width, shape.value_width)
    kind = "attention" if cost.use.phase == "forward" else "attention_backward"
    return " ".join([kind, *(f"{round(float(each))}" for each in sizes)])


def _products(cost: OperatorCost, shape: Attention) -> float:
    """Return the operations of a fused kernel over those of a model: backward, it computes the scores once more."""
    if cost.use.phase == "forward":
        return 1.0
    width, values = float(shape.width), float(shape.value_width)
    return (3 * width + 2 * values) / (2 * (width + values))


def _class_of(cost: OperatorCost) -> WorkClass:
    use = cost.use
    if isinstance(use.kernel.shape, Attention):
        return WorkClass(ATTENTION, use.phase)
    if isinstance(use.kernel.shape, Scan):
        return WorkClass("scans", use.phase)
    if use.block == "embedding":
        return WorkClass(TABLES, "embedding")
    if use.kind == "loss":
        return WorkClass(TABLES, "loss")
    return WorkClass(MEMORY, _PARTS.get(use.kind, use.kind))


def _part(cost: OperatorCost) -> str:
    """Return the part of the model that a GEMM belongs to."""
    use = cost.use
    if use.block == "head":
        return "head"
    if _EXPERTS.search(use.name):
        return "experts"
    return "feed-forward" if _FEED_FORWARD.search(use.name) else "projections"


def _shapes(costs: Sequence[OperatorCost]) -> dict[str, str]:
    """Return the part of the model by the shape of a GEMM, those that read one activation also as one fused GEMM.

    A shape of two parts belongs to neither.
    """
    found: dict[str, set[str]] = {}
    fused: Gemm | None = None
    for cost in costs:
        shape = cost.use.kernel.shape
        if not isinstance(shape, Gemm) or cost.use.phase != "forward":
            continue
        joined = fused if cost.use.kernel.fuses and fused is not None else None
        fused = shape if joined is None else replace(shape, n=joined.n + shape.n)
        for each in (shape, fused):
            for text in map(_text, (each, *each.backward())):
                found.setdefault(text, set()).add(_part(cost))
    return {text: next(iter(parts)) for text, parts in found.items() if len(parts) == 1}


def _communicated(profile: StepProfile) -> Iterator[tuple[Operator, Amount]]:
    """Yield all collectives and sends, with bytes as traces count them: of a gather, one rank's shard."""
    for use in profile.collectives:
        group, calls = round(float(use.group)), float(use.calls)
        if group < 2 or not calls:
            continue
        sends = use.kind in ("send", "collective_permute")
        size = float(use.bytes) / (group if use.kind == "all_gather" else 1)
        part = "send" if sends else use.kind
        work = f"{part} {round(size)}" if sends else f"{part} {round(size)} {group}"
        what = Operator(
            WorkClass(COMMUNICATION, part),
            f"{use.block or 'stage'}.{use.tensor}",
            work,
            "COMM_SEND" if sends else "COMM_COLL",
        )
        seconds = float(profile.seconds(use)) * (1.0 if profile.longer is None else float(profile.longer(use)))
        yield what, Amount(count=calls, seconds=calls * seconds, bytes=calls * size)


def _updated(profile: StepProfile) -> Iterator[tuple[Operator, Amount]]:
    seconds = float(optimizer_s(profile))
    if seconds:
        yield Operator(WorkClass(OPTIMIZER), "optimizer", "", "COMP"), Amount(count=1, seconds=seconds)
