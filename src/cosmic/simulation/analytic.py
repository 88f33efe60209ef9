"""The analytic engine: a step in closed form, for a whole batch of designs at once.

    step = M (F + B)  +  bubble  +  exposed communication  +  optimizer

    M     microbatches of a replica
    F, B  forward and backward pass of one microbatch on the slowest stage: compute, the communication that it waits
          for, and what it waits for its host. The other stages, through which a microbatch passes before and after
          (the bubble), count with their mean
    exposed communication at the end of a step: gradient reduction and the gathering of updated weights beyond what
          the passes of one microbatch overlap; transfers between stages that nothing hides; offloading beyond the
          whole step

Communication overlaps compute as `_overlapped` says: what hides is bounded by the compute beside it, and no second of
compute hides two things. The breakdown names every term, and sums to the step. All seconds are sums over the profile
of one layer of each kind (`cosmic.step.profile`), times how many of them a stage has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import reduce
from typing import TypeVar

import numpy as np

from cosmic.design.batch import Batch
from cosmic.numeric import Numeric
from cosmic.step.communication import BLOCKING, Role
from cosmic.step.memory import state_bytes
from cosmic.step.profile import OperatorCost, StepProfile, launch_delay_s, profile, stages_of
from cosmic.workload.plan import plan_of
from cosmic.workload.schedule import schedules

COMPUTE_PARTS = ("gemm", "attention", "other")
COMMUNICATED = ("tp", "cp", "ep", "weights", "dp", "pp")
BREAKDOWN = (*COMPUTE_PARTS, "recompute", "launch", *COMMUNICATED, "bubble", "optimizer", "offload")
"""Every part of a step, in the order in which tables show them."""
PASSES = ("forward", "backward")
Key = TypeVar("Key")
Counts = Mapping[str, Numeric]
"""How much of each block: layers of each kind, the embedding, the head."""


@dataclass(frozen=True, slots=True)
class Step:
    """The seconds of one step, by part; numbers, or arrays over a batch."""

    parts: Mapping[str, Numeric]
    flop: Numeric
    """Of the slowest stage's device, recomputation included."""

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
    gemm_forward: Numeric = 0.0
    gemm_again: Numeric = 0.0
    attention_forward: Numeric = 0.0
    attention_again: Numeric = 0.0
    """GEMMs and attention of the forward pass, and of its recomputation."""
    launch_forward: Numeric = 0.0
    launch_backward: Numeric = 0.0
    """On the host, recomputation included."""
    flop: Numeric = 0.0

    def beside(self, phase: str) -> tuple[Numeric, Numeric, Numeric]:
        """Return what runs in a pass that communication can overlap: GEMMs, attention, all compute."""
        if phase == "forward":
            return self.gemm_forward, self.attention_forward, self.forward
        gemms = self.gemm - self.gemm_forward + self.gemm_again
        attention = self.attention - self.attention_forward + self.attention_again
        return gemms, attention, self.backward + self.recompute


Communicated = Mapping[tuple[Role, str], Numeric]
"""Seconds of communication of all microbatches together, by role and phase (see `cosmic.step.communication.Role`)."""


@dataclass(frozen=True, slots=True)
class StageTime:
    """What a stage, or several together, do in a step. Seconds are those of all microbatches together."""

    compute: ComputeTime
    communication: Communicated
    """All of it."""
    exposed: Communicated
    """What compute waits for, of all roles but those of the end of the step."""
    delay: Mapping[str, Numeric]
    """What the device waits for its host, by phase."""

    def seconds(self, phase: str) -> Numeric:
        """Return the seconds of a pass: compute, exposed communication and launch delay."""
        compute = self.compute.beside(phase)[2]
        return compute + self.delay[phase] + sum(value for (_, when), value in self.exposed.items() if when == phase)

    @property
    def weight_gradients_s(self) -> Numeric:
        """The part of the backward pass that makes the gradients of weights: half of its compute, half of its delay."""
        return (self.compute.backward + self.delay["backward"]) / 2

    def hidden(self, phase: str) -> Numeric:
        """Return the seconds of communication that the compute of a pass hides."""
        found = (self.communication[key] - value for key, value in self.exposed.items() if key[1] == phase)
        return sum(found, 0.0)


@dataclass(frozen=True, slots=True)
class Anatomy:
    """A step and what it is made of on the stage that bounds it."""

    step: Step
    profile: StepProfile
    stage: StageTime
    others: tuple[Numeric, Numeric, Numeric]
    """F, B and W of one microbatch on the other stages, on average (see `cosmic.workload.schedule`)."""


def step(batch: Batch) -> Step:
    """Return the step of designs that share one plan (see `cosmic.workload.sizes.structural_paths`).

    Any of the stages that `stages_of` names may bound it: the slowest counts.
    """
    return reduce(_slower, [anatomy_of(profile(batch, stage)).step for stage in stages_of(batch)])


def anatomy(batch: Batch) -> Anatomy:
    """Return what the step of a single design is made of, on the stage that bounds it."""
    found = (anatomy_of(profile(batch, stage)) for stage in stages_of(batch))
    return max(found, key=lambda each: float(each.step.seconds))


def bounding_profile(batch: Batch) -> StepProfile:
    """Return the profile of the stage that bounds the step of a single design."""
    stages = stages_of(batch)
    return profile(batch, stages[0]) if len(stages) == 1 else anatomy(batch).profile


def _slower(one: Step, other: Step) -> Step:
    """Return the longer of two steps, design by design."""
    longer = one.seconds >= other.seconds
    parts = {name: np.where(longer, value, other.parts[name]) for name, value in one.parts.items()}
    return Step(parts, np.where(longer, one.flop, other.flop))


def anatomy_of(profile: StepProfile) -> Anatomy:
    """Return the step if the stage of *profile* bounds it."""
    batch = profile.batch
    stage = stage_time(batch, profile.counts)
    others = _other_stages(profile)
    compute = stage.compute
    parts: dict[str, Numeric] = {name: getattr(compute, name) for name in (*COMPUTE_PARTS, "recompute")}
    parts["launch"] = stage.delay["forward"] + stage.delay["backward"]
    for role in (*BLOCKING, "weights"):
        parts[role] = sum(stage.exposed.get((role, phase), 0.0) for phase in PASSES)
    parts["cp"] = parts["cp"] + sum(stage.exposed.get(("ring", phase), 0.0) for phase in PASSES)
    parts["dp"] = parts["dp"] + sum(after_step(profile, stage))
    parts["bubble"], parts["pp"] = _between_stages(profile, stage, others)
    parts["optimizer"] = _optimizer(profile)
    offloaded = profile.network.offload_seconds(profile.memory.tier_traffic)
    parts["offload"] = np.maximum(0.0, offloaded - sum(parts[name] for name in SUMMED))
    whole = Step({name: parts[name] for name in BREAKDOWN}, compute.flop)
    return Anatomy(whole, profile, stage, others)


SUMMED = (*COMPUTE_PARTS, "recompute", *BLOCKING, "launch", "weights", "pp", "bubble", "optimizer")
"""Every part but offloading, which all of them overlap."""


# ------------------------------------------------------------------------------------------------ blocks


@dataclass(frozen=True, slots=True)
class BlockTime:
    """What one layer, the embedding or the head takes, for all microbatches together."""

    compute: ComputeTime
    communication: Communicated
    launched: Mapping[str, Numeric]
    """Blocking collectives that the host launches, by phase."""


def block_times(batch: Batch) -> dict[str, BlockTime]:
    """Return what one layer of each kind, the embedding and the head take; what is sent between stages under ``""``."""
    return batch.once(block_times, lambda: _block_times(profile(batch)))


def _block_times(unit: StepProfile) -> dict[str, BlockTime]:
    compute: dict[str, dict[str, Numeric]] = {each.block.name: {} for each in plan_of(unit.batch)}
    communication: dict[str, dict[tuple[Role, str], Numeric]] = {name: {} for name in (*compute, "")}
    launched: dict[str, dict[str, Numeric]] = {name: {} for name in (*compute, "")}
    for each in unit.operators:
        _add(compute[each.use.block], _compute_time(each))
    for call in unit.traffic:
        for phase in PASSES if call.recomputed else (call.phase,):
            share = 0.5 if call.recomputed else 1.0
            _add(communication[call.block], {(call.role, phase): call.seconds * share})
            if call.role in BLOCKING:
                _add(launched[call.block], {phase: call.calls * share})
    return {
        name: BlockTime(ComputeTime(**compute.get(name, {})), communication[name], launched[name])
        for name in communication
    }


def _add(total: dict[Key, Numeric], more: Mapping[Key, Numeric]) -> None:
    for key, value in more.items():
        total[key] = total[key] + value if key in total else value


def _compute_time(each: OperatorCost) -> dict[str, Numeric]:
    """Return what an operator adds to the sums. Every second run of what is recomputed belongs to the backward pass."""
    use = each.use
    once = each.seconds * each.runs
    own = once / 2 if use.recomputed else once
    kind = {"einsum": "gemm", "attention": "attention"}.get(use.kind, "other")
    found = {kind: own, use.phase: own, "flop": use.flop * each.runs}
    if use.phase == "forward" and kind != "other":
        found[f"{kind}_forward"] = own
    launch = each.launch_s * each.runs
    if use.block == "head" and use.phase == "forward":
        launch = 0.0  # the device still has layers to run
    if use.recomputed:
        again = {"recompute": own} | ({f"{kind}_again": own} if kind != "other" else {})
        return found | again | {"launch_forward": launch / 2, "launch_backward": launch / 2}
    return found | {f"launch_{use.phase}": launch}


def stage_time(batch: Batch, counts: Counts) -> StageTime:
    """Return what a stage does that has so much of each block."""
    blocks, kernels = block_times(batch), profile(batch).kernels
    compute = {
        each.name: sum((counts[name] * getattr(blocks[name].compute, each.name) for name in counts), 0.0)
        for each in fields(ComputeTime)
    }
    communication: dict[tuple[Role, str], Numeric] = {}
    for name, count in counts.items():
        _add(communication, {key: count * value for key, value in blocks[name].communication.items()})
        for phase, calls in blocks[name].launched.items():
            key = f"launch_{phase}"
            compute[key] = compute[key] + count * calls * kernels.collective_launch_s(phase)
    return _overlapped(profile(batch), ComputeTime(**compute), communication)


# ----------------------------------------------------------------------------------------------- overlap


def _overlapped(unit: StepProfile, compute: ComputeTime, communication: Communicated) -> StageTime:
    """Return a stage with what each kind of communication exposes.

    A role of t seconds beside c seconds of compute hides min(e t, c) of them. The rest of its efficiency e is what it
    takes from the compute that runs meanwhile, its SMs and its memory bandwidth. Compute is given out once, in the
    order of what each may overlap:

        ring      keys and values: attention
        tp        (`tp_overlap`) the GEMMs before and after, in chunks
        ep        (`ep_overlap`) the passes of other microbatches, forward and backward
        weights   (`dp_overlap`) sharded weights fetched ahead, gradients reduced behind: whatever the pass does
    """
    network = unit.network
    exposed: dict[tuple[Role, str], Numeric] = {}
    left: dict[str, Numeric] = {}
    for phase in PASSES:
        gemms, attention, whole = compute.beside(phase)
        ring = _expose(communication, exposed, ("ring", phase), 1.0, attention)
        left[phase] = whole - ring - _expose(communication, exposed, ("tp", phase), network.efficiency("tp"), gemms)
    _expose_experts(unit, communication, exposed, left)
    for role, phase in communication:
        if role in ("cp", "dp") and phase in PASSES:
            exposed[role, phase] = communication[role, phase]
    found = StageTime(compute, communication, exposed, {})
    delay = {}
    for phase in PASSES:
        busy = compute.beside(phase)[2] + _waited(exposed, phase)
        delay[phase] = launch_delay_s(getattr(compute, f"launch_{phase}"), busy)
        cover = np.maximum(0.0, busy + delay[phase] - found.hidden(phase))
        _expose(communication, exposed, ("weights", phase), network.efficiency("weights"), cover)
    return StageTime(compute, communication, exposed, delay)


def _waited(exposed: Communicated, phase: str) -> Numeric:
    return sum((value for (_, when), value in exposed.items() if when == phase), 0.0)


def _expose(
    communication: Communicated,
    exposed: dict[tuple[Role, str], Numeric],
    key: tuple[Role, str],
    efficiency: Numeric,
    beside_s: Numeric,
) -> Numeric:
    """Note what a role exposes beside so much compute; return what hides."""
    if key not in communication:
        return 0.0
    hidden: Numeric = np.minimum(communication[key] * efficiency, beside_s)
    exposed[key] = communication[key] - hidden
    return hidden


def _expose_experts(
    unit: StepProfile,
    communication: Communicated,
    exposed: dict[tuple[Role, str], Numeric],
    left: Mapping[str, Numeric],
) -> None:
    """Note what expert parallelism exposes: both passes overlap those of other microbatches.

    The first microbatch of a step meets no other. Serving engines cut a batch in two instead.
    """
    mine = {phase: communication["ep", phase] for phase in PASSES if ("ep", phase) in communication}
    if not mine:
        return
    others = unit.microbatches if unit.batch.base.workload.task == "training" else np.maximum(unit.microbatches, 2)
    beside = (left["forward"] + left["backward"]) * (1 - 1 / others)
    whole = sum(mine.values(), 0.0)
    hidden = np.minimum(unit.network.efficiency("ep") * whole, beside)
    share = 1 - hidden / np.where(whole > 0, whole, 1.0)
    for phase, seconds in mine.items():
        exposed["ep", phase] = seconds * share


def after_step(profile: StepProfile, stage: StageTime) -> tuple[Numeric, Numeric]:
    """Return what is exposed at the end of a step: of reducing gradients, and of gathering updated weights.

    Gradients overlap the backward pass of the last microbatch, except those of the embedding, which come last; updated
    weights overlap the first forward pass of the next step. Virtual stages finish one after the other, so that all but
    the last of them have more passes beside them. Where the newest collective goes first, gradients overlap the next
    forward pass too.
    """
    batch, count = profile.batch, profile.microbatches
    efficiency = profile.network.efficiency("weights")
    reduced = stage.communication.get(("weights", "step"), 0.0)
    updated = stage.communication.get(("updated", "step"), 0.0)
    passes = {phase: np.maximum(0.0, stage.seconds(phase) - stage.hidden(phase)) / count for phase in PASSES}
    virtual = batch["workload.virtual_stages"] if batch.base.workload.task == "training" else 1
    virtual = np.where(batch["workload.pp"] > 1, virtual, 1)
    turns = np.minimum(batch["workload.pp"], count)
    last = profile.counts.get("embedding", 0.0) * _embedding_gradients(profile)
    in_order = (
        np.maximum(_beyond(reduced, passes["backward"], efficiency, turns, virtual), last),
        _beyond(updated, passes["forward"], efficiency, turns, virtual),
    )
    both = reduced + updated
    together = both - np.minimum(both * efficiency, passes["forward"] + passes["backward"])
    together = np.minimum(together, in_order[0] + in_order[1])
    newest_first = batch["collective.scheduling"] == "lifo"
    return np.where(newest_first, together, in_order[0]), np.where(newest_first, 0.0, in_order[1])


def _embedding_gradients(profile: StepProfile) -> Numeric:
    """Return the seconds to reduce the gradients of the embedding once."""
    found = block_times(profile.batch).get("embedding")
    if found is None:
        return 0.0
    once = found.communication.get(("weights", "step"), 0.0)
    return once + found.communication.get(("weights", "backward"), 0.0) / profile.microbatches


def _beyond(sent_s: Numeric, pass_s: Numeric, efficiency: Numeric, turns: Numeric, virtual: Numeric) -> Numeric:
    """Return what is exposed of collectives at the end of v virtual stages, each of which runs in *turns*.

        max(t / v - min(e t / v, c / v),   t - min(e t, (1 + (v - 1) n) c / v))        c  pass_s       n  turns

    The last virtual stage has one pass of its own beside its v-th; all together have those of the virtual stages that
    are still to run.
    """
    alone = (sent_s - np.minimum(sent_s * efficiency, pass_s)) / virtual
    whole = sent_s - np.minimum(sent_s * efficiency, pass_s * (1 + (virtual - 1) * turns) / virtual)
    return np.maximum(alone, whole)


# --------------------------------------------------------------------------------- pipeline and optimizer


def _other_stages(profile: StepProfile) -> tuple[Numeric, Numeric, Numeric]:
    """Return F, B and W of one microbatch on the other stages, on average."""
    batch, count = profile.batch, profile.microbatches
    rest = np.maximum(batch["workload.pp"] - 1, 1)
    whole = {each.block.name: each.block.repeats for each in plan_of(batch)}
    stage = stage_time(batch, {name: np.maximum(total - profile.counts[name], 0) for name, total in whole.items()})
    forward, backward = stage.seconds("forward") / rest / count, stage.seconds("backward") / rest / count
    if batch.base.workload.task != "training":
        return forward, 0.0, 0.0
    weight_s = stage.weight_gradients_s / rest / count
    return forward, backward - weight_s, weight_s


def _between_stages(
    profile: StepProfile, stage: StageTime, others: tuple[Numeric, Numeric, Numeric]
) -> tuple[Numeric, Numeric]:
    """Return how long the stage idles while others run, and while activations are on their way to it.

    Serving, a prompt passes all stages. A decoded token returns to the first stage after a round, in which the slowest
    stage has all microbatches to run.
    """
    batch, count = profile.batch, profile.microbatches
    stages, workload = batch["workload.pp"], batch.base.workload
    sent_s = {phase: transfer_s(profile, phase) for phase in PASSES}
    if workload.task == "training":
        virtual = batch["workload.virtual_stages"]
        schedule = schedules[workload.schedule]
        slack = np.maximum(0.0, (stage.seconds("forward") + stage.seconds("backward")) / count - sum(others))
        fill, steady = schedule.transfers(stages, count, virtual)
        once = sent_s["forward"] + sent_s["backward"]
        return schedule.bubble(stages, count, *others, virtual), fill * once + steady * np.maximum(0.0, once - slack)
    idle, sent = (stages - 1) * others[0], (stages - 1) * sent_s["forward"]
    if workload.task == "prefill":
        return idle, sent
    busy = stage.seconds("forward") * (1 - 1 / count)
    bubble = np.maximum(0.0, idle - busy)
    return bubble, np.maximum(0.0, idle + sent - busy) - bubble


def transfer_s(profile: StepProfile, phase: str) -> Numeric:
    """Return the seconds of one transfer from stage to stage."""
    found = (each for each in profile.traffic if each.role == "pp" and each.phase == phase)
    return sum((each.seconds / np.maximum(each.calls, 1) for each in found), 0.0)


def _optimizer(profile: StepProfile) -> Numeric:
    """Return the seconds to update the weights of a device."""
    workload, memory = profile.batch.base.workload, profile.memory
    if workload.task != "training":
        return 0.0
    states = memory.parts["optimizer"] + memory.offloaded.get("optimizer", 0.0)
    elements = states / state_bytes(profile.kernels.recipe, workload.weight_sharding)
    return profile.kernels.update(elements)[0]
