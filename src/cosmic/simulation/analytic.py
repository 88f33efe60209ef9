"""The analytic engine: a step in closed form, for a whole batch of designs at once.

    step = M (F + B)  +  bubble  +  exposed communication  +  optimizer

    M     microbatches of a replica
    F, B  forward and backward pass of one microbatch on the fullest stage: compute and blocking communication, longer
          where the step is launch-bound. The last of several stages is the fullest, with the head; the other stages,
          through which a microbatch passes before and after (the bubble), have layers only
    exposed communication: weight gathering and gradient reduction beyond what compute overlaps (at best the share
          `collective.overlap_efficiency`, and no longer than that compute takes; a gradient reduction has the backward
          pass of one microbatch and, where the newest collective goes first (LIFO), the forward pass of the next step,
          which then finds the weights that it needs first); activations on their way through an empty pipeline;
          offloading beyond the whole step

The breakdown names every term, and sums to the step. All seconds are sums over a `cosmic.step.profile.StepProfile`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import reduce

import numpy as np

from cosmic.design.batch import Batch
from cosmic.numeric import Numeric
from cosmic.step.communication import BLOCKING, Role
from cosmic.step.memory import state_bytes
from cosmic.step.profile import OperatorCost, StepProfile, launch_delay_s, profiles
from cosmic.step.tables import table_use
from cosmic.workload.schedule import schedules

COMPUTE_PARTS = ("gemm", "attention", "other")
COMMUNICATED = ("tp", "cp", "ep", "weights", "dp", "pp")
BREAKDOWN = (*COMPUTE_PARTS, "recompute", "launch", *COMMUNICATED, "bubble", "optimizer", "offload")
"""Every part of a step, in the order in which tables show them."""


@dataclass(frozen=True, slots=True)
class Step:
    """The seconds of one step, by part; numbers, or arrays over a batch."""

    parts: Mapping[str, Numeric]
    flop: Numeric
    """Of the fullest device, recomputation included."""

    @property
    def seconds(self) -> Numeric:
        """The whole step."""
        return sum(self.parts.values())


@dataclass(frozen=True, slots=True)
class ComputeTime:
    """Compute of all microbatches together: seconds on the device by class and by phase, and seconds to launch it."""

    gemm: Numeric = 0.0
    attention: Numeric = 0.0
    other: Numeric = 0.0
    recompute: Numeric = 0.0
    forward: Numeric = 0.0
    backward: Numeric = 0.0
    """Without recomputation."""
    head_forward: Numeric = 0.0
    head_backward: Numeric = 0.0
    """Of these, the head's."""
    launch_forward: Numeric = 0.0
    launch_backward: Numeric = 0.0
    """On the host, recomputation included."""
    launch_head: Numeric = 0.0
    """Of these, the head's."""
    flop: Numeric = 0.0


@dataclass(frozen=True, slots=True)
class CommunicationTime:
    """Communication of all microbatches together: seconds by role and phase (see `cosmic.step.communication.Role`)."""

    by_role: dict[tuple[Role, str], Numeric]
    by_block: dict[tuple[str, str], Numeric]
    """Of these, what the head waits for, and the gradients of the embedding."""
    overlap_efficiency: Numeric
    """The share that compute can overlap at best."""

    def of(self, role: Role, phase: str) -> Numeric:
        """Return the seconds of a role in a phase."""
        return self.by_role.get((role, phase), 0.0)

    def blocking(self, phase: str) -> Numeric:
        """Return the seconds on the critical path in a phase."""
        return sum(self.of(role, phase) for role in BLOCKING)

    def at_head(self, phase: str) -> Numeric:
        """Return the blocking seconds of the head in a phase."""
        return self.by_block.get(("head", phase), 0.0)

    def exposed(self, role: Role, phase: str, compute_s: Numeric) -> Numeric:
        """Return what is exposed of a role beside *compute_s*, which overlaps at best the share that it can."""
        whole = self.of(role, phase)
        return whole - np.minimum(whole * self.overlap_efficiency, compute_s)

    def beyond(self, role: Role, phase: str, compute_s: Numeric) -> Numeric:
        """Return what is exposed of a role that *compute_s* overlaps completely."""
        return np.maximum(0.0, self.of(role, phase) - compute_s)


@dataclass(frozen=True, slots=True)
class StageTime:
    """One pass through the stage that bounds the step. Seconds are those of all microbatches together."""

    forward: Numeric
    backward: Numeric
    """Compute, blocking communication and launch delay."""
    delay_forward: Numeric
    delay_backward: Numeric
    """Of these, the launch delay."""
    head_forward: Numeric
    head_backward: Numeric
    """Of these, what only the stage with the head does."""


@dataclass(frozen=True, slots=True)
class Anatomy:
    """A step and what it is made of on the stage that bounds it."""

    step: Step
    profile: StepProfile
    compute: ComputeTime
    communication: CommunicationTime
    stage: StageTime
    others: tuple[Numeric, Numeric, Numeric]
    """F, B and W of one microbatch on the other stages, which have layers only (see `cosmic.workload.schedule`)."""


def step(batch: Batch) -> Step:
    """Return the step of designs that share one plan (see `cosmic.workload.sizes.structural_paths`).

    Where a model has several kinds of layers, stages differ: the slowest of the first, the middle and the last counts.
    """
    return reduce(_slower, [anatomy_of(each).step for each in profiles(batch)])


def anatomy(batch: Batch) -> Anatomy:
    """Return what the step of a single design is made of, on the stage that bounds it."""
    return max((anatomy_of(each) for each in profiles(batch)), key=lambda each: float(each.step.seconds))


def bounding_profile(batch: Batch) -> StepProfile:
    """Return the profile of the stage that bounds the step of a single design."""
    found = profiles(batch)
    return found[0] if len(found) == 1 else anatomy(batch).profile


def _slower(one: Step, other: Step) -> Step:
    """Return the longer of two steps, design by design."""
    longer = one.seconds >= other.seconds
    parts = {name: np.where(longer, value, other.parts[name]) for name, value in one.parts.items()}
    return Step(parts, np.where(longer, one.flop, other.flop))


def anatomy_of(profile: StepProfile) -> Anatomy:
    """Return the step if the stage of *profile* bounds it."""
    compute = compute_time(profile)
    communication = communication_time(profile)
    stage = _stage_time(compute, communication)
    others = _other_stages(profile, compute, stage)
    parts: dict[str, Numeric] = {name: getattr(compute, name) for name in (*COMPUTE_PARTS, "recompute")}
    parts["launch"] = stage.delay_forward + stage.delay_backward
    parts |= _communicated(profile, compute, communication, stage)
    parts["bubble"] = _bubble(profile, others)
    parts["optimizer"] = _optimizer(profile)
    offloaded = profile.network.offload_seconds(profile.memory.offload_traffic)
    parts["offload"] = np.maximum(0.0, offloaded - sum(parts[name] for name in SUMMED))
    whole = Step({name: parts[name] for name in BREAKDOWN}, compute.flop)
    return Anatomy(whole, profile, compute, communication, stage, others)


SUMMED = (*COMPUTE_PARTS, "recompute", *BLOCKING, "launch", "weights", "pp", "bubble", "optimizer")
"""Every part but offloading, which all of them overlap."""


# ------------------------------------------------------------------------------------------------ compute


def compute_time(profile: StepProfile) -> ComputeTime:
    """Return the seconds of a stage's operators by class and by phase."""
    total: dict[str, Numeric] = {each.name: each.default for each in fields(ComputeTime)}  # type: ignore[misc]
    for each in profile.operators:
        for name, value in _compute_time(each).items():
            total[name] = total[name] + value
    calls = {phase: profile.launched_calls(phase) for phase in ("forward", "backward")}
    for phase, count in calls.items():
        name = f"launch_{phase}"
        total[name] = total[name] + count * profile.kernels.collective_launch_s(phase)
    return ComputeTime(**total)


def _compute_time(each: OperatorCost) -> dict[str, Numeric]:
    """Return what an operator adds to the sums. Every second run of what is recomputed belongs to the backward pass."""
    use = each.use
    once = each.seconds * each.runs
    own = once / 2 if use.recomputed else once
    found = {{"einsum": "gemm", "attention": "attention"}.get(use.kind, "other"): own, use.phase: own}
    launch = each.launch_s * use.runs
    if use.recomputed:
        found["recompute"] = own
    if use.block == "head":
        found[f"head_{use.phase}"] = own
        launch = launch if use.phase == "backward" else 0.0  # forward, the device still has layers to run
        found["launch_head"] = launch
    if use.recomputed:
        return found | {"launch_forward": launch / 2, "launch_backward": launch / 2, "flop": use.flop * each.runs}
    return found | {f"launch_{use.phase}": launch, "flop": use.flop * each.runs}


def _stage_time(compute: ComputeTime, communication: CommunicationTime) -> StageTime:
    """Return both passes through the stage that bounds the step.

    When the host has launched the layers of a forward pass, the device still has the head to run.
    """
    head_forward = compute.head_forward + communication.at_head("forward")
    head_backward = compute.head_backward + communication.at_head("backward")
    forward = compute.forward + communication.blocking("forward")
    backward = compute.backward + compute.recompute + communication.blocking("backward")
    delay_forward = launch_delay_s(compute.launch_forward, forward - head_forward)
    delay_backward = launch_delay_s(compute.launch_backward, backward)
    return StageTime(
        forward=forward + delay_forward,
        backward=backward + delay_backward,
        delay_forward=delay_forward,
        delay_backward=delay_backward,
        head_forward=head_forward,
        head_backward=head_backward,
    )


# ------------------------------------------------------------------------------------------ communication


def communication_time(profile: StepProfile) -> CommunicationTime:
    """Return the seconds of a stage's collectives by role and phase."""
    by_role: dict[tuple[Role, str], Numeric] = {}
    by_block: dict[tuple[str, str], Numeric] = {}
    for each in profile.traffic:
        by_role[each.role, each.phase] = by_role.get((each.role, each.phase), 0.0) + each.seconds
        if each.block:
            key = each.block, each.phase
            by_block[key] = by_block.get(key, 0.0) + each.seconds
    return CommunicationTime(by_role, by_block, profile.network.overlap_efficiency)


def _communicated(
    profile: StepProfile, compute: ComputeTime, communication: CommunicationTime, stage: StageTime
) -> dict[str, Numeric]:
    """Return the exposed seconds of communication by part of the breakdown."""
    count, stages = profile.microbatches, profile.batch["workload.pp"]
    both = ("forward", "backward")
    parts: dict[str, Numeric] = {
        role: communication.of(role, "forward") + communication.of(role, "backward") for role in BLOCKING
    }
    parts["cp"] = parts["cp"] + communication.beyond("ring", "forward", compute.attention / 3)
    parts["cp"] = parts["cp"] + communication.beyond("ring", "backward", compute.attention * 2 / 3)
    parts["weights"] = communication.exposed("weights", "forward", stage.forward)
    parts["weights"] = parts["weights"] + communication.exposed("weights", "backward", stage.backward)
    newest_first = profile.batch["collective.scheduling"] == "lifo"
    last = stage.forward / count, stage.backward / count
    parts["dp"] = parts["dp"] + _after_step(communication, newest_first, *last, count)
    parts["pp"] = np.maximum(stages - 1, 0) * sum(communication.of("pp", phase) for phase in both)
    return parts


def _after_step(
    communication: CommunicationTime, newest_first: Numeric, forward_s: Numeric, backward_s: Numeric, count: Numeric
) -> Numeric:
    """Return what is exposed of reducing gradients and of gathering updated weights, at the end of a step.

    Gradients overlap the backward pass of the last microbatch, except those of the embedding, which come last; weights
    are updated after it. Where the newest collective goes first, all overlap the next forward pass as well.
    """
    reduced, updated = communication.of("weights", "step"), communication.of("updated", "step")
    embedding = communication.by_block
    last = embedding.get(("embedding", "step"), 0.0) + embedding.get(("embedding", "backward"), 0.0) / count
    both = reduced + updated
    into_next = both - np.minimum(both * communication.overlap_efficiency, forward_s + backward_s)
    in_order = np.maximum(reduced - np.minimum(reduced * communication.overlap_efficiency, backward_s), last) + updated
    return np.where(newest_first, into_next, in_order)


# --------------------------------------------------------------------------------- pipeline and optimizer


def _other_stages(profile: StepProfile, compute: ComputeTime, stage: StageTime) -> tuple[Numeric, Numeric, Numeric]:
    """Return F, B and W of one microbatch on the stages without the head."""
    count, task = profile.microbatches, profile.batch.base.workload.task
    if task != "training":
        slow = stage.forward if task == "decode" else stage.forward - stage.head_forward
        return slow / count, 0.0, 0.0
    weight_s = (compute.backward - compute.head_backward) / 2 / count
    device = stage.backward - stage.delay_backward - stage.head_backward
    backward = np.maximum(device, compute.launch_backward - compute.launch_head)
    return (stage.forward - stage.head_forward) / count, backward / count - weight_s, weight_s


def _bubble(profile: StepProfile, others: tuple[Numeric, Numeric, Numeric]) -> Numeric:
    """Return how long the stage idles. Serving, a prompt passes all stages; a decoded token returns after a round."""
    batch, count = profile.batch, profile.microbatches
    stages, workload = batch["workload.pp"], batch.base.workload
    if workload.task == "training":
        virtual = batch["workload.virtual_stages"]
        bubble: Numeric = schedules[workload.schedule].bubble(stages, count, *others, virtual)
        return bubble
    idle: Numeric = stages - 1 if workload.task == "prefill" else np.maximum(stages - count, 0)
    return idle * others[0]


def _optimizer(profile: StepProfile) -> Numeric:
    """Return the seconds to update the weights of a device."""
    workload, memory = profile.batch.base.workload, profile.memory
    if workload.task != "training":
        return 0.0
    tables = table_use(profile.batch)
    states = memory.parts["optimizer"] + memory.offloaded.get("optimizer", 0.0) - tables.state_bytes
    elements = states / state_bytes(profile.kernels.recipe, workload.weight_sharding)
    return profile.kernels.update(elements, tables)[0]
