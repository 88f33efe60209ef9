"""Two traces beside each other, each from files or of a design, whose predicted step stands in for a trace.

The nodes of generated traces hold several operators each; the step profile, which they are made of, lists them one by
one. So a design is compared by its profile, on the stage that bounds the step: its operators and collectives with
predicted seconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cosmic.base.errors import SpecError, require
from cosmic.base.files import is_file
from cosmic.design.design_batch import batch_of
from cosmic.design.design_point import DesignPoint
from cosmic.evaluation import evaluate, step_of
from cosmic.search.mapping.design_completion import load_design
from cosmic.simulate.analytic_step import dissect_step, optimizer_s
from cosmic.simulate.metrics import Infeasible
from cosmic.simulate.trace_generation import generate_traces
from cosmic.step.attention import Attention
from cosmic.step.gemm import Gemm
from cosmic.step.scan import Scan
from cosmic.step.step_profile import OperatorCost, StepProfile
from cosmic.traces.chakra.trace_reader import read_metadata, read_traces
from cosmic.traces.profiles.trace_contrast import (
    ATTENTION,
    COMMUNICATION,
    GEMMS,
    MEMORY,
    OPTIMIZER,
    TABLES,
    ComparedOperator,
    ContrastBy,
    DeviceIdle,
    OperatorAmount,
    TraceContrast,
    TraceSide,
    WorkClass,
    contrast_sides,
    gemm_shape,
    identical_traces,
    side_of_traces,
)
from cosmic.traces.trace import TraceSet, read_groups
from cosmic.workload.mapping_rules import invalid_reasons

# ---- A design's step as one side of a comparison of traces: its operators and collectives with predicted seconds

_MEMORY_PARTS = {
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


def predict_side(point: DesignPoint, name: str = "") -> TraceSide:
    """Return what the accelerators of *point* do in a step, as it is predicted."""
    batch = batch_of(point)
    if reasons := invalid_reasons(batch):
        raise SpecError("design", name or point.identity, reasons[0])
    dissected = dissect_step(batch)
    step, profile = dissected.step, dissected.profile
    operators: dict[ComparedOperator, OperatorAmount] = {}
    for compared, amount in (*_list_operators(profile), *_list_communication(profile), *_list_updates(profile)):
        operators[compared] = operators.get(compared, OperatorAmount()) + amount
    parts = {part: float(seconds) for part, seconds in step.parts.items()}
    outcome = evaluate(point)
    limits = outcome.reasons if isinstance(outcome, Infeasible) else ()
    return TraceSide(
        name=name or point.identity,
        kind="design",
        operators=operators,
        span_s=float(step.seconds),
        idle=DeviceIdle(host_s=parts["launch"], bubble_s=parts["bubble"], offload_s=parts["offload"]),
        shapes=_parts_by_shape(profile.operators),
        notes=tuple(f"{name or point.identity}: {reason}" for reason in limits),
    )


def _list_operators(profile: StepProfile) -> Iterator[tuple[ComparedOperator, OperatorAmount]]:
    """Yield all operators; the backward pass of a GEMM is two of them."""
    for operator in profile.operators:
        use, runs = operator.use, float(operator.runs)
        label = f"{use.block}.{use.name}.{use.phase}"
        if not runs:
            continue
        if isinstance(use.kernel.shape, Gemm):
            for shape, seconds, name, share in _list_gemms(profile, operator, use.kernel.shape, label):
                compared = ComparedOperator(WorkClass(GEMMS, _gemm_part(operator)), name, shape, "COMP")
                flop, moved = share * float(use.flop), share * float(use.bytes)
                yield compared, OperatorAmount(count=runs, seconds=runs * seconds, flop=runs * flop, bytes=runs * moved)
            continue
        amount = OperatorAmount(count=1, seconds=float(operator.seconds))
        if isinstance(
            use.kernel.shape, Attention
        ):  # others stream: what their kernels move is not what a roofline counts
            flop = float(use.flop) * _product_ratio(operator, use.kernel.shape)
            amount = replace(amount, flop=flop, bytes=float(use.bytes))
        yield ComparedOperator(_class_of(operator), label, _attention_shape(operator), "COMP"), amount * runs


def _list_gemms(
    profile: StepProfile, cost: OperatorCost, shape: Gemm, label: str
) -> Iterator[tuple[str, float, str, float]]:
    """Yield the GEMMs of an operator: shape, seconds of one run, name, and share of its operations."""
    use, total_s = cost.use, float(cost.seconds)
    if use.phase == "forward":
        yield _shape_text(shape), total_s, label, 1.0
        return
    by_input, by_weight = shape.backward()
    if use.kernel.frozen:
        yield _shape_text(by_input), total_s, f"{label}.input", 1.0
        return
    alone = float(profile.kernels.seconds(replace(use, kernel=replace(use.kernel, frozen=True))))
    if not alone < total_s:  # a roofline knows one operator, of two equal halves
        alone = total_s / 2
    yield _shape_text(by_input), alone, f"{label}.input", 0.5
    yield _shape_text(by_weight), total_s - alone, f"{label}.weight", 0.5


def _shape_text(shape: Gemm) -> str:
    return gemm_shape(*(float(size) for size in (shape.count, shape.m, shape.n, shape.k)))


def _attention_shape(cost: OperatorCost) -> str:
    """Return the shape of attention as `cosmic.traces.profiles.trace_contrast.work_shape` does."""
    shape = cost.use.kernel.shape
    if not isinstance(shape, Attention):
        return ""
    sizes = (shape.batch, shape.heads, shape.kv_heads, shape.queries, shape.keys, shape.width, shape.value_width)
    kind = "attention" if cost.use.phase == "forward" else "attention_backward"
    return " ".join([kind, *(f"{round(float(size))}" for size in sizes)])


def _product_ratio(cost: OperatorCost, shape: Attention) -> float:
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
    return WorkClass(MEMORY, _MEMORY_PARTS.get(use.kind, use.kind))


def _gemm_part(cost: OperatorCost) -> str:
    """Return the part of the model that a GEMM belongs to."""
    use = cost.use
    if use.block == "head":
        return "head"
    if _EXPERTS.search(use.name):
        return "experts"
    return "feed-forward" if _FEED_FORWARD.search(use.name) else "projections"


def _parts_by_shape(costs: Sequence[OperatorCost]) -> dict[str, str]:
    """Return the part of the model by the shape of a GEMM, those that read one activation also as one fused GEMM.

    A shape of two parts belongs to neither.
    """
    parts_by_shape: dict[str, set[str]] = {}
    fused: Gemm | None = None
    for cost in costs:
        shape = cost.use.kernel.shape
        if not isinstance(shape, Gemm) or cost.use.phase != "forward":
            continue
        joined = fused if cost.use.kernel.fuses and fused is not None else None
        fused = shape if joined is None else replace(shape, n=joined.n + shape.n)
        for gemm in (shape, fused):
            for text in map(_shape_text, (gemm, *gemm.backward())):
                parts_by_shape.setdefault(text, set()).add(_gemm_part(cost))
    return {text: next(iter(parts)) for text, parts in parts_by_shape.items() if len(parts) == 1}


def _list_communication(profile: StepProfile) -> Iterator[tuple[ComparedOperator, OperatorAmount]]:
    """Yield all collectives and sends, with bytes as traces count them: of a gather, one rank's shard."""
    for use in profile.collectives:
        group, calls = round(float(use.group)), float(use.calls)
        if group < 2 or not calls:
            continue
        sends = use.kind in ("send", "collective_permute")
        size = float(use.bytes) / (group if use.kind == "all_gather" else 1)
        part = "send" if sends else use.kind
        work = f"{part} {round(size)}" if sends else f"{part} {round(size)} {group}"
        compared = ComparedOperator(
            WorkClass(COMMUNICATION, part),
            f"{use.block or 'stage'}.{use.tensor}",
            work,
            "COMM_SEND" if sends else "COMM_COLL",
        )
        seconds = float(profile.seconds(use)) * (1.0 if profile.longer is None else float(profile.longer(use)))
        yield compared, OperatorAmount(count=calls, seconds=calls * seconds, bytes=calls * size)


def _list_updates(profile: StepProfile) -> Iterator[tuple[ComparedOperator, OperatorAmount]]:
    seconds = float(optimizer_s(profile))
    if seconds:
        yield ComparedOperator(WorkClass(OPTIMIZER), "optimizer", "", "COMP"), OperatorAmount(count=1, seconds=seconds)


# ---- Two traces beside each other, each from files or of a design: from what a user names to what differs

TRACE_ENDINGS = (".et", ".et.gz")
STEP_NS = "step_ns"
"""Of a recorded trace, what each of its steps took."""


@dataclass(frozen=True, slots=True, eq=False)
class _Source:
    """What a side is made of."""

    name: str
    traces: TraceSet | None = None
    groups: Mapping[str, Sequence[int]] | None = None
    steps: int = 1
    point: DesignPoint | None = None

    @property
    def is_recorded(self) -> bool:
        return self.traces is not None and any(template.is_recorded for template in self.traces.templates())

    def side(self, opposite: _Source) -> TraceSide:
        """Return the side to compare with *opposite*: a design node by node beside traces that were generated."""
        if self.traces is not None:
            return side_of_traces(self.traces, self.groups, self.steps)
        if self.point is None:
            raise SpecError("side", self.name, "has neither traces nor a design")
        if opposite.traces is None or opposite.is_recorded:
            return predict_side(self.point, self.name)
        job = generate_traces(self.point)
        return side_of_traces(replace(job.traces, where=self.name), job.groups, seconds=job.seconds)


def compare_traces(
    a: str, b: str, groups_a: str = "", groups_b: str = "", by: ContrastBy | None = None
) -> TraceContrast:
    """Return what differs between *a* and *b*, each a prefix of traces or a design, by what `contrast_sides` says."""
    first = _read_source(a, groups_a, "a")
    second = first if (a, groups_a) == (b, groups_b) else _read_source(b, groups_b, "b")
    if first.traces is not None and second.traces is not None:
        same = identical_traces(first.traces, second.traces) and (first.groups or {}) == (second.groups or {})
    else:
        same = first.point is not None and first.point == second.point
    contrast = contrast_sides(first.side(second), second.side(first), by, identical=same)
    rule = "recorded traces and generated nodes of several operators have no names in common: use class or type"
    mixed = {contrast.a.kind, contrast.b.kind} == {"recorded", "generated"}
    require(not mixed or contrast.by in ("class", "type"), "--by", contrast.by, rule)
    return contrast


def _read_source(name: str, groups: str, side: str) -> _Source:
    """Return what *name* stands for: traces where files of that prefix are, else a design."""
    known_groups = read_groups(groups) if groups else None
    if any(is_file(Path(f"{name}.0{ending}")) for ending in TRACE_ENDINGS):
        traces = read_traces(name)
        steps = (
            read_metadata(name).get(STEP_NS, "") if any(template.is_recorded for template in traces.templates()) else ""
        )
        return _Source(name, traces, known_groups, max(1, len([step for step in steps.split(",") if step])))
    option = f"--groups-{side}"
    if name.endswith(TRACE_ENDINGS) and is_file(Path(name)):
        prefix = Path(name).name.split(".et")[0].rpartition(".")[0]
        raise SpecError(side.upper(), name, f"is the trace of one rank: give the prefix of all, such as {prefix}")
    if not ("@" in name or Path(name).suffix in (".yaml", ".yml") or is_file(Path(name))):
        rule = f"is neither a prefix of traces (there is no {name}.0.et) nor a design, as MODEL@SYSTEM or a YAML file"
        raise SpecError(side.upper(), name, rule)
    require(not groups, option, groups, f"is for traces, and {name} is a design, whose groups are known")
    return _Source(name, point=step_of(load_design(name)))
