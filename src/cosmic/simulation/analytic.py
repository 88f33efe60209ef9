"""The analytic engine: a step in closed form, for a whole batch of designs at once.

    step = M (F + B)  +  bubble  +  exposed communication  +  optimizer

    M     microbatches of a replica
    F, B  forward and backward pass of one microbatch on the slowest stage: compute, the communication that it waits
          for, and what it waits for its host. The other stages, through which a microbatch passes before and after
          (the bubble), count with their mean
    exposed communication at the end of a step: gradient reduction and the gathering of updated weights beyond what
          the passes of one microbatch overlap; transfers between stages that nothing hides; offloading beyond the
          whole step

What a stage takes, and how much of its communication compute hides, is `cosmic.step.stage_time`'s. The breakdown
names every term, and sums to the step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

import numpy as np

from cosmic.design.batch import Batch
from cosmic.numeric import Condition, Numeric, sum_of
from cosmic.step.communication import BLOCKING
from cosmic.step.memory import updated_elements
from cosmic.step.profile import StepProfile, profile, stages_of
from cosmic.step.stage_time import FETCHED_AHEAD, PASSES, StageTime, block_times, stage_time
from cosmic.step.tables import table_use
from cosmic.workload.plan import plan_of
from cosmic.workload.schedule import schedules

COMPUTE_PARTS = ("gemm", "attention", "other")
COMMUNICATED = ("tp", "cp", "ep", "weights", "dp", "pp")
BREAKDOWN = (*COMPUTE_PARTS, "recompute", "launch", *COMMUNICATED, "bubble", "optimizer", "offload")
"""Every part of a step, in the order in which tables show them."""
ROUNDING = 1e-9
"""Relative difference below which two steps are equally long."""


@dataclass(frozen=True, slots=True)
class Step:
    """The seconds of one step, by part; numbers, or arrays over a batch."""

    parts: Mapping[str, Numeric]
    busy_s: Numeric
    """Of these, what the stage that bounds it does: both passes of all microbatches."""

    @property
    def seconds(self) -> Numeric:
        """The whole step."""
        return sum_of(self.parts.values())


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
    found = [anatomy_of(profile(batch, stage)) for stage in stages_of(batch)]
    return reduce(lambda one, other: one if _bounds(one.step, other.step) else other, found)


def bounding_profile(batch: Batch) -> StepProfile:
    """Return the profile of the stage that bounds the step of a single design."""
    stages = stages_of(batch)
    return profile(batch, stages[0]) if len(stages) == 1 else anatomy(batch).profile


def _slower(one: Step, other: Step) -> Step:
    """Return the longer of two steps, design by design."""
    longer = _bounds(one, other)
    parts = {name: np.where(longer, value, other.parts[name]) for name, value in one.parts.items()}
    return Step(parts, np.where(longer, one.busy_s, other.busy_s))


def _bounds(one: Step, other: Step) -> Condition:
    """Return whether a step is the longer one; of equally long ones, whether its stage has more to do.

    A single microbatch takes as long whichever stage is said to wait for the others.
    """
    apart = one.seconds - other.seconds
    alike = np.abs(apart) <= ROUNDING * one.seconds
    return np.where(alike, one.busy_s >= other.busy_s, apart > 0)


def anatomy_of(profile: StepProfile) -> Anatomy:
    """Return the step if the stage of *profile* bounds it."""
    batch = profile.batch
    stage = stage_time(batch, profile.counts)
    others = _other_stages(profile)
    compute = stage.compute
    parts: dict[str, Numeric] = {name: getattr(compute, name) for name in (*COMPUTE_PARTS, "recompute")}
    parts["launch"] = stage.delay["forward"] + stage.delay["backward"]
    for role in (*BLOCKING, "weights"):
        parts[role] = sum_of(stage.exposed.get((role, phase), 0.0) for phase in PASSES)
    parts["cp"] = parts["cp"] + sum_of(stage.exposed.get(("ring", phase), 0.0) for phase in PASSES)
    parts["optimizer"] = optimizer_s(profile)
    parts["dp"] = parts["dp"] + sum_of(after_step(profile, stage))
    parts["bubble"], parts["pp"] = _between_stages(profile, stage, others)
    passing_s, updating_s = offloaded_s(profile)
    whole_s = sum_of(parts[name] for name in SUMMED)
    parts["offload"] = np.maximum(0.0, passing_s - whole_s) + np.maximum(0.0, updating_s - parts["optimizer"])
    busy = stage.seconds("forward") + stage.seconds("backward")
    whole = Step({name: parts[name] for name in BREAKDOWN}, busy)
    return Anatomy(whole, profile, stage, others)


def offloaded_s(profile: StepProfile) -> tuple[Numeric, Numeric]:
    """Return the seconds of traffic with outer tiers: beside the passes, and at the update.

    Optimizer states come in when gradients are reduced, and go out again: only the update itself runs beside them.
    """
    seconds, share = profile.network.offload_seconds(profile.memory.tier_traffic), profile.memory.update_share
    return seconds * (1 - share), seconds * share


SUMMED = (*COMPUTE_PARTS, "recompute", *BLOCKING, "launch", "weights", "pp", "bubble")
"""Every part but the end of the step: offloading overlaps all of them, except for the states of the optimizer."""


def after_step(profile: StepProfile, stage: StageTime) -> tuple[Numeric, Numeric]:
    """Return what is exposed at the end of a step: of reducing gradients, and of gathering updated weights.

    Gradients overlap the backward pass of the last microbatch, except those that come last, of the embedding; updated
    weights overlap the first forward pass of the next step. Virtual stages finish one after the other, so that all but
    the last of them have more passes beside them. Where the newest collective goes first, gradients overlap the next
    forward pass too, and the update of what is already reduced.
    """
    batch, count = profile.batch, profile.microbatches
    efficiency = profile.network.efficiency("weights")
    reduced = stage.communication.get(("weights", "step"), 0.0)
    updated = stage.communication.get(("updated", "step"), 0.0)
    passes = {phase: stage.free_s(phase) / count for phase in PASSES}
    virtual = batch["workload.virtual_stages"]
    turns = np.minimum(batch["workload.pp"], count)
    last = _last_gradients(profile, stage)
    in_order = (
        np.maximum(_beyond(reduced, passes["backward"], efficiency, turns, virtual), last),
        _beyond(updated, passes["forward"], efficiency, turns, virtual),
    )
    both = reduced + updated
    together = both - np.minimum(both * efficiency, passes["forward"] + passes["backward"] + optimizer_s(profile))
    together = np.maximum(last, np.minimum(together, in_order[0] + in_order[1]))
    newest_first = batch["collective.scheduling"] == "lifo"
    return np.where(newest_first, together, in_order[0]), np.where(newest_first, 0.0, in_order[1])


def _last_gradients(profile: StepProfile, stage: StageTime) -> Numeric:
    """Return the seconds to reduce the gradients that come last, once, beyond what a backward pass waits for.

    Those of the embedding; of a recommender, which is one block, all of them.
    """
    planned = plan_of(profile.batch)
    first = planned[0].block
    if first.part != "first" and len(planned) > 1:
        return 0.0
    found = block_times(profile.batch)[first.name]
    count, here = profile.microbatches, profile.counts[first.name]
    once = here * found.communication.get(("weights", "step"), 0.0)
    each = here * found.communication.get(("weights", "backward"), 0.0)
    return once + np.maximum(0.0, each - stage.exposed.get(("weights", "backward"), 0.0)) / count


def _beyond(sent_s: Numeric, pass_s: Numeric, efficiency: Numeric, turns: Numeric, virtual: Numeric) -> Numeric:
    """Return what is exposed of collectives at the end of v virtual stages, each of which runs in *turns*.

        max((t - c) / v,   t - min(e t, (1 + (v - 1) n) c / v))        c  pass_s       n  turns

    The last virtual stage has one pass of its own beside its v-th; all together have those of the virtual stages that
    are still to run.
    """
    alone = (sent_s - pass_s) / virtual
    whole = sent_s - np.minimum(sent_s * efficiency, pass_s * (1 + (virtual - 1) * turns) / virtual)
    return np.maximum(alone, whole)


# --------------------------------------------------------------------------------- pipeline and optimizer


def _other_stages(profile: StepProfile) -> tuple[Numeric, Numeric, Numeric]:
    """Return F, B and W of one microbatch on the other stages, on average.

    A stage that waits for its input has fetched the sharded weights of its first blocks meanwhile.
    """
    batch, count = profile.batch, profile.microbatches
    if np.all(batch["workload.pp"] == 1):
        return 0.0, 0.0, 0.0
    rest = np.maximum(batch["workload.pp"] - 1, 1)
    whole = {each.block.name: each.block.repeats for each in plan_of(batch)}
    others = {name: np.maximum(total - profile.counts[name], 0) for name, total in whole.items()}
    stage = stage_time(batch, others)
    ahead = np.minimum(1.0, FETCHED_AHEAD * rest / np.maximum(sum_of(others.values()), 1))
    passes = (stage.seconds(phase) - ahead * stage.exposed.get(("weights", phase), 0.0) for phase in PASSES)
    forward, backward = (each / rest / count for each in passes)
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
        slack = np.maximum(0.0, (stage.seconds("forward") + stage.seconds("backward")) / count - sum_of(others))
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
    return sum_of((each.seconds / np.maximum(each.calls, 1) for each in found), 0.0)


def optimizer_s(profile: StepProfile) -> Numeric:
    """Return the seconds to update the weights of a device."""
    if profile.batch.base.workload.task != "training":
        return 0.0
    return profile.batch.once((optimizer_s, profile.stage), lambda: _optimizer_s(profile))


def _optimizer_s(profile: StepProfile) -> Numeric:
    tables = table_use(profile.batch)
    elements = np.maximum(0.0, updated_elements(profile.batch, profile.place) - tables.elements)
    return profile.kernels.update(elements, tables)[0]
