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
names every term, and sums to the step. The step itself is written so that it never falls when communication takes
longer: of two terms where one hides behind the other it is the larger, and not one and what the other exceeds it by.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

import numpy as np

from cosmic.base.numeric import Condition, Numeric, larger, sum_of
from cosmic.design.design_batch import Batch
from cosmic.step.block_memory import table_use
from cosmic.step.communication import BLOCKING
from cosmic.step.device_memory import updated_elements
from cosmic.step.kernel_launches import controller_wait_s, virtual_stages
from cosmic.step.stage_time import FETCHED_AHEAD, StageTime, block_times, stage_time
from cosmic.step.step_profile import StepProfile, bounding_stages, profile_step
from cosmic.step.tier_traffic import tier_traffic
from cosmic.workload.block_plans import plan_of
from cosmic.workload.operator_graph import PASSES
from cosmic.workload.pipeline_schedule import schedules

COMPUTE_PARTS = ("gemm", "attention", "other")
COMMUNICATED = ("tp", "cp", "ep", "weights", "dp", "pp")
BREAKDOWN = (*COMPUTE_PARTS, "recompute", "launch", *COMMUNICATED, "bubble", "optimizer", "offload")
"""Every part of a step, in the order in which tables show them."""
ROUNDING = 1e-9
"""Relative difference below which two steps are equally long."""


@dataclass(frozen=True, slots=True)
class StepSeconds:
    """The seconds of one step, by part; numbers, or arrays over a batch."""

    parts: Mapping[str, Numeric]
    busy_s: Numeric
    """Of these, what the stage that bounds it does: both passes of all microbatches."""
    seconds: Numeric
    """The whole step: the sum of its parts, but for rounding."""


@dataclass(frozen=True, slots=True)
class Anatomy:
    """A step and what it is made of on the stage that bounds it."""

    step: StepSeconds
    profile: StepProfile
    stage: StageTime
    others: tuple[Numeric, Numeric, Numeric]
    """F, B and W of one microbatch on the other stages, on average (see `cosmic.workload.pipeline_schedule`)."""


def compute_step_seconds(batch: Batch) -> StepSeconds:
    """Return the step of designs that share one plan (see `cosmic.workload.mesh_sizes.structural_paths`).

    Any of the stages that `bounding_stages` names may bound it: the slowest counts.
    """
    return reduce(
        _slower_step, [dissect_step_of_stage(profile_step(batch, stage)).step for stage in bounding_stages(batch)]
    )


def dissect_step(batch: Batch) -> Anatomy:
    """Return the parts of a single design's step, on the stage that bounds it."""
    anatomies = [dissect_step_of_stage(profile_step(batch, stage)) for stage in bounding_stages(batch)]
    return reduce(lambda first, second: first if _bounds_step(first.step, second.step) else second, anatomies)


def bounding_profile(batch: Batch) -> StepProfile:
    """Return the profile of the stage that bounds the step of a single design."""
    stages = bounding_stages(batch)
    return profile_step(batch, stages[0]) if len(stages) == 1 else dissect_step(batch).profile


def _slower_step(first: StepSeconds, second: StepSeconds) -> StepSeconds:
    """Return the longer of two steps, design by design."""
    longer = _bounds_step(first, second)
    parts = {name: np.where(longer, value, second.parts[name]) for name, value in first.parts.items()}
    return StepSeconds(parts, np.where(longer, first.busy_s, second.busy_s), np.maximum(first.seconds, second.seconds))


def _bounds_step(first: StepSeconds, second: StepSeconds) -> Condition:
    """Return whether a step is the longer one; of equally long ones, whether its stage has more to do.

    A single microbatch takes as long whichever stage is said to wait for the others.
    """
    apart = first.seconds - second.seconds
    equal = np.abs(apart) <= ROUNDING * first.seconds
    return np.where(equal, first.busy_s >= second.busy_s, apart > 0)


def dissect_step_of_stage(profile: StepProfile) -> Anatomy:
    """Return the step if the stage of *profile* bounds it."""
    batch = profile.batch
    stage = stage_time(batch, profile.counts)
    other_stages = _mean_of_other_stages(profile)
    compute = stage.compute
    parts: dict[str, Numeric] = {name: getattr(compute, name) for name in (*COMPUTE_PARTS, "recompute")}
    parts["launch"] = stage.delay["forward"] + stage.delay["backward"]
    for role in (*BLOCKING, "weights"):
        parts[role] = sum_of(stage.exposed.get((role, phase), 0.0) for phase in PASSES)
    parts["cp"] = parts["cp"] + sum_of(stage.exposed.get(("ring", phase), 0.0) for phase in PASSES)
    parts["optimizer"] = optimizer_s(profile)
    exchanged = exchanged_s(profile, stage)
    parts["dp"] = parts["dp"] + sum_of(exposed_after_step_s(profile, stage)) + exchanged
    parts["bubble"], parts["pp"] = _idle_between_stages_s(profile, stage, other_stages)
    passing_s, updating_s = offloaded_s(profile)
    whole_s = _passes_s(profile, stage, other_stages)
    parts["offload"] = np.maximum(0.0, passing_s - whole_s) + np.maximum(0.0, updating_s - parts["optimizer"])
    ends_s = stage.ends_s + np.maximum(0.0, stage.gradients_out_s - _step_end_s(profile, stage)[0])
    parts["offload"] = sum_of(stage.stalled.values(), parts["offload"] + ends_s)
    busy = stage.seconds("forward") + stage.seconds("backward")
    seconds = np.maximum(whole_s, passing_s) + np.maximum(parts["optimizer"], updating_s) + exchanged + ends_s
    late = controller_s(profile, stage, seconds, other_stages)
    parts["launch"], seconds = parts["launch"] + late, seconds + late
    return Anatomy(StepSeconds({name: parts[name] for name in BREAKDOWN}, busy, seconds), profile, stage, other_stages)


def controller_s(
    profile: StepProfile, stage: StageTime, seconds: Numeric, other_stages: tuple[Numeric, Numeric, Numeric]
) -> Numeric:
    """Return the seconds that a step of *seconds* waits for its controller.

    The bubble is made of passes of the *other* stages: it grows by as much as those are late.
    """
    training = profile.batch.base.workload.task == "training"
    passes = tuple(stage.seconds(phase) for phase in (PASSES if training else PASSES[:1]))

    def filling(least: Numeric) -> Numeric:
        forward, backward, weights = other_stages
        virtual = virtual_stages(profile.batch)
        late = np.maximum(0.0, virtual * least - (backward + weights))
        later = np.maximum(forward, virtual * least), backward, weights + late  # what waits may wait as weights do
        longer, before = (_idle_between_stages_s(profile, stage, neighbours)[0] for neighbours in (later, other_stages))
        if profile.batch.base.workload.task != "decode":
            more: Numeric = longer - before
            return more
        count = profile.microbatches
        busy = np.maximum(passes[0], count * least) * (1 - 1 / count)  # a round in which the stage is busy longer
        waited: Numeric = np.maximum(0.0, (profile.batch["workload.pp"] - 1) * later[0] - busy) - before
        return waited

    return controller_wait_s(profile.batch, seconds, passes, profile.microbatches, filling)


def exchanged_s(profile: StepProfile, stage: StageTime) -> Numeric:
    """Return the seconds in which islands exchange parameters, the mean over the steps between two exchanges.

    Nothing overlaps it: the next step begins with what it leaves.
    """
    latency: Numeric = profile.network.mean_exchange_latency_s()
    return stage.communication.get(("sync", "step"), 0.0) + latency


def offloaded_s(profile: StepProfile) -> tuple[Numeric, Numeric]:
    """Return the seconds of traffic with outer tiers: beside the passes, and at the update.

    Optimizer states come in when gradients are reduced, and go out again: only the update itself runs beside them.
    All the rest of the step runs beside the other traffic. Where layers are fetched one ahead, passes have their
    traffic already (`cosmic.step.stage_time`), but for gradients that go to the host's processor: only the last
    backward pass runs beside these.
    """
    traffic = tier_traffic(profile.batch)
    if traffic is not None:
        update = traffic.update
        updating_s = larger(update.links_s, update.processor_s)
        if traffic.ahead:
            return 0.0, updating_s
        return traffic.passes_s(profile.counts), updating_s
    seconds, share = profile.network.offload_seconds(profile.memory.tier_traffic), profile.memory.update_share
    return seconds * (1 - share), seconds * share


def _passes_s(profile: StepProfile, stage: StageTime, other_stages: tuple[Numeric, Numeric, Numeric]) -> Numeric:
    """Return the seconds of a step up to the update: all passes, the bubble, and what is exposed of communication.

    A pass and back of n takes o on this stage and o' on the others. Of n - 1, some wait for a transfer there and back
    (x) as far as the stage has no other work: max(o, x + min(o, o')) in place of o. The last one ends with what is
    exposed after it.
    """
    count, workload = profile.microbatches, profile.batch.base.workload
    if workload.task != "training":
        stages, forward = profile.batch["workload.pp"], stage.seconds("forward")
        passing = (stages - 1) * (other_stages[0] + transfer_s(profile, "forward"))
        compute_bound: Numeric = forward + passing
        if workload.task == "decode":
            compute_bound = np.maximum(forward, forward / count + passing)
        return compute_bound
    bubble, _ = _idle_between_stages_s(profile, stage, other_stages)
    ending = sum_of(_step_end_s(profile, stage))
    own = (stage.seconds("forward") + stage.seconds("backward")) / count
    fill, steady, once = _count_transfers(profile)
    held = np.maximum(own, once + np.minimum(own, sum_of(other_stages)))
    last = (stage.seconds("forward") + stage.passed["backward"]) / count + ending
    return (count - 1 - steady) * own + steady * held + last + fill * once + bubble


def exposed_after_step_s(profile: StepProfile, stage: StageTime) -> tuple[Numeric, Numeric]:
    """Return the exposed seconds at the end of a step, of reducing gradients and of gathering updated weights.

    Gradients overlap the backward pass of the last microbatch, except those that come last, of the embedding; updated
    weights overlap the first forward pass of the next step. Virtual stages finish one after the other, so that all but
    the last of them have more passes beside them. Where the newest collective goes first, gradients overlap the next
    forward pass too, and the update of what is already reduced; so do updated weights, and both share these seconds.
    """
    waited = stage.exposed.get(("weights", "backward"), 0.0) / profile.microbatches
    reducing, returning = _step_end_s(profile, stage)
    return np.maximum(0.0, reducing - waited), returning


def _step_end_s(profile: StepProfile, stage: StageTime) -> tuple[Numeric, Numeric]:
    """Return the same as `exposed_after_step_s`.

    With the former, what the last backward pass waits for its own gradients.

    So gradients of the embedding count once: what a backward pass waits for is not waited for again.

        in order        max(w + beyond(r, b),  g + l)        and        beyond(u, f)
        newest first    max(g + l,  (1 - e) (r + u + l) + e w,  r + u + l - b - f - o,  g + u + l - f - o),
                        or what it is in order, if that is less

        r, u     gradients of the step, and updated weights    g  those of r that come last: the embedding's
        w        what a backward pass waits for its gradients  l  the same, or the embedding's, if they take longer
        b, f, o  what a backward pass, a forward pass and the update have free
    """
    batch, count = profile.batch, profile.microbatches
    efficiency = profile.network.efficiency("weights")
    reduced = stage.communication.get(("weights", "step"), 0.0)
    updated = stage.communication.get(("updated", "step"), 0.0)
    backward, forward = (stage.free_s(phase) / count for phase in ("backward", "forward"))
    virtual = batch["workload.virtual_stages"]
    turns = np.minimum(batch["workload.pp"], count)
    waited = stage.exposed.get(("weights", "backward"), 0.0)
    once, per_pass = _last_gradients_s(profile)
    late = np.maximum(waited, per_pass) / count
    waited = waited / count
    reducing = np.maximum(waited + _exposed_beyond_passes_s(reduced, backward, efficiency, turns, virtual), once + late)
    returning = _exposed_beyond_passes_s(updated, forward, efficiency, turns, virtual)
    both, update = reduced + updated + late, optimizer_s(profile)
    if batch.base.workload.offload or tier_traffic(batch) is not None:
        update = np.where(offloaded_s(profile)[1] > 0, 0.0, update)  # states that travel come when all is reduced
    together = np.maximum((1 - efficiency) * both + efficiency * waited, both - (backward + forward + update))
    together = np.maximum(together, once + updated + late - (forward + update))
    together = np.maximum(once + late, np.minimum(together, reducing + returning))
    newest_first = batch["collective.scheduling"] == "lifo"
    return np.where(newest_first, together, reducing), np.where(newest_first, 0.0, returning)


def _last_gradients_s(profile: StepProfile) -> tuple[Numeric, Numeric]:
    """Return the seconds to reduce the gradients that come last: once a step, and for all microbatches.

    Those of the embedding; of a recommender, which is one block, all of them.
    """
    planned = plan_of(profile.batch)
    first = planned[0].block
    if first.part != "first" and len(planned) > 1:
        return 0.0, 0.0
    communication = block_times(profile.batch)[first.name].communication
    count = profile.counts[first.name]
    return count * communication.get(("weights", "step"), 0.0), count * communication.get(("weights", "backward"), 0.0)


def _exposed_beyond_passes_s(
    sent_s: Numeric, pass_s: Numeric, efficiency: Numeric, turns: Numeric, virtual: Numeric
) -> Numeric:
    """Return the exposed seconds of collectives at the end of v virtual stages, each of which runs in *turns*.

        max((t - c) / v,   (1 - e) t,   t - (1 + (v - 1) n) c / v)        c  pass_s       n  turns

    The last virtual stage has one pass of its own beside its v-th; all together have those of the virtual stages that
    are still to run.
    """
    alone = (sent_s - pass_s) / virtual
    among_passes = np.maximum((1 - efficiency) * sent_s, sent_s - pass_s * (1 + (virtual - 1) * turns) / virtual)
    return np.maximum(alone, among_passes)


# ---- pipeline and optimizer


def _mean_of_other_stages(profile: StepProfile) -> tuple[Numeric, Numeric, Numeric]:
    """Return F, B and W of one microbatch on the other stages, on average.

    A stage that waits for its input has fetched the sharded weights of its first blocks meanwhile, and outer state of
    as many as it has buffers for.
    """
    batch, count = profile.batch, profile.microbatches
    if np.all(batch["workload.pp"] == 1):
        return 0.0, 0.0, 0.0
    rest = np.maximum(batch["workload.pp"] - 1, 1)
    repeats = {planned.block.name: planned.block.repeats for planned in plan_of(batch)}
    other_counts = {name: np.maximum(total - profile.counts[name], 0) for name, total in repeats.items()}
    stage = stage_time(batch, other_counts, waiting=rest)
    ahead = np.minimum(1.0, FETCHED_AHEAD * rest / np.maximum(sum_of(other_counts.values()), 1))
    forward = (ahead * stage.passed["forward"] + (1 - ahead) * stage.seconds("forward")) / rest / count
    if batch.base.workload.task != "training":
        return forward, 0.0, 0.0
    waited = (1 - ahead) * stage.exposed.get(("weights", "backward"), 0.0)
    return forward, (stage.input_gradients_s + waited) / rest / count, stage.weight_gradients_s / rest / count


def _idle_between_stages_s(
    profile: StepProfile, stage: StageTime, other_stages: tuple[Numeric, Numeric, Numeric]
) -> tuple[Numeric, Numeric]:
    """Return how long the stage idles while others run, and while activations are on their way to it.

    Serving, a prompt passes all stages. A decoded token returns to the first stage after a round, in which the slowest
    stage has all microbatches to run.
    """
    batch, count = profile.batch, profile.microbatches
    stages, workload = batch["workload.pp"], batch.base.workload
    if workload.task == "training":
        slack = np.maximum(0.0, (stage.seconds("forward") + stage.seconds("backward")) / count - sum_of(other_stages))
        fill, steady, once = _count_transfers(profile)
        bubble = schedules[workload.schedule].bubble(stages, count, *other_stages, batch["workload.virtual_stages"])
        return bubble, fill * once + steady * np.maximum(0.0, once - slack)
    idle, sent = (stages - 1) * other_stages[0], (stages - 1) * transfer_s(profile, "forward")
    if workload.task == "prefill":
        return idle, sent
    busy = stage.seconds("forward") * (1 - 1 / count)
    bubble = np.maximum(0.0, idle - busy)
    return bubble, np.maximum(0.0, idle + sent - busy) - bubble


def _count_transfers(profile: StepProfile) -> tuple[Numeric, Numeric, Numeric]:
    """Return how many transfers there and back a step waits for, and for how many if nothing else is to do; and one."""
    batch = profile.batch
    schedule = schedules[batch.base.workload.schedule]
    counts = schedule.transfers(batch["workload.pp"], profile.microbatches, batch["workload.virtual_stages"])
    return *counts, transfer_s(profile, "forward") + transfer_s(profile, "backward")


def transfer_s(profile: StepProfile, phase: str) -> Numeric:
    """Return the seconds of one transfer from stage to stage."""
    transfers = (transfer for transfer in profile.traffic if transfer.role == "pp" and transfer.phase == phase)
    return sum_of((transfer.seconds / np.maximum(transfer.calls, 1) for transfer in transfers), 0.0)


def optimizer_s(profile: StepProfile) -> Numeric:
    """Return the seconds to update the weights of a device."""
    if profile.batch.base.workload.task != "training":
        return 0.0
    return profile.batch.once((optimizer_s, profile.stage), lambda: _optimizer_s(profile))


def _optimizer_s(profile: StepProfile) -> Numeric:
    tables = table_use(profile.batch)
    elements = np.maximum(0.0, updated_elements(profile.batch, profile.stage_index) - tables.elements)
    if (traffic := tier_traffic(profile.batch)) is not None:
        elements = elements * traffic.update.in_hbm
    return profile.kernels.update(elements, tables)[0]
