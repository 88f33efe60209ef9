"""What a pipeline stage takes: compute, the communication that compute waits for, and the host.

    block_times(batch)          seconds of one layer of each kind, of the embedding and of the head
    stage_time(batch, counts)   their sum over what a stage has, with what communication exposes

Communication of t seconds beside c seconds of compute hides min(e t, c) of them, and exposes max((1 - e) t, t - c). The
rest of its efficiency e is what it takes from the compute that runs meanwhile: SMs and memory bandwidth. No second of
compute hides two things; it is given out in the order of what each may overlap:

    ring      keys and values: the attention of their layer
    tp        (`tp_overlap`) the GEMMs of their layer, chunk by chunk
    ep        (`ep_overlap`) the passes of other microbatches, forward and backward
    weights   (`dp_overlap`) sharded weights fetched ahead, gradients reduced behind: what is left of the pass, and of
              what it waits for the host

All seconds are sums over the profile of one layer of each kind (`cosmic.step.step_profile`), of all microbatches
together.

No pass is shorter if any communication takes longer. Formulas say so by their form: they add, and take the larger of,
what rises with communication; what falls with it (the seconds that are left) is only ever taken away. So bounds on
communication give bounds on a step.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TypeVar

import numpy as np

from cosmic.base.numeric import Numeric, sum_of
from cosmic.design.design_batch import Batch
from cosmic.step.communication import BLOCKING, Role
from cosmic.step.step_profile import OperatorCost, StepProfile, profile_step
from cosmic.step.tier_traffic import TierTraffic, filled_pass_s, first_wait_s, late_gradients_s, pass_s, tier_traffic
from cosmic.workload.block_plans import plan_of
from cosmic.workload.lora_adapters import weight_gradient_share
from cosmic.workload.mesh_sizes import layers_of_parts
from cosmic.workload.operator_graph import PASSES

FETCHED_AHEAD = 4
"""Blocks whose sharded weights a stage fetches before it needs them."""
Key = TypeVar("Key")
Counts = Mapping[str, Numeric]
"""How much of each block: layers of each kind, the embedding, the head."""


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
    passed: Mapping[str, Numeric]
    """Seconds of a pass but for its weights and gradients: compute and what it waits for, or its host if that takes
    longer."""
    sent: Mapping[str, Numeric]
    """Those of them in which this communication runs, hidden or not."""
    free: Mapping[str, Numeric]
    """The others: they hide no communication yet."""
    input_gradients_s: Numeric
    """Seconds of a backward pass, weights and gradients aside, that do not make the gradients of weights."""
    efficiency: Numeric
    """Of hiding weights and gradients."""
    weight_share: float = 0.5
    """Of a backward pass, what makes the gradients of weights."""
    stalled: Mapping[str, Numeric] = field(default_factory=dict)
    """What a pass waits for outer tiers of memory, by phase; part of `passed` and of `sent`."""
    ends_s: Numeric = 0.0
    """What a step waits for them at its beginning: its first block, before which nothing runs."""
    gradients_out_s: Numeric = 0.0
    """What the last backward pass does not hide of gradients that go to the host's processor, each when it is
    reduced."""

    def seconds(self, phase: str) -> Numeric:
        """Return the seconds of a pass: compute, exposed communication and launch delay.

        max(P + (1 - e) t, s + t) for t seconds of weights and gradients: beside what the pass has free, or the network
        is busy throughout.
        """
        weights = self.communication.get(("weights", phase))
        if weights is None:
            return self.passed[phase]
        seconds: Numeric = np.maximum(self.passed[phase] + (1 - self.efficiency) * weights, self.sent[phase] + weights)
        return seconds

    @property
    def weight_gradients_s(self) -> Numeric:
        """The part of the backward pass that makes the gradients of weights: of its compute, and of its delay."""
        return self.weight_share * (self.compute.backward + self.delay["backward"])

    def free_s(self, phase: str) -> Numeric:
        """Return the seconds of a pass, all microbatches together, that hide no communication, nor weights."""
        weights = self.communication.get(("weights", phase), 0.0)
        free: Numeric = np.maximum(0.0, self.free[phase] - self.efficiency * weights)
        return free


# ---- blocks


@dataclass(frozen=True, slots=True)
class BlockTime:
    """What one layer, the embedding or the head takes, for all microbatches together."""

    compute: ComputeTime
    communication: Communicated
    exposed: Communicated
    """Of keys and values in a ring, and of tensor parallelism: what compute waits for."""
    hidden: Mapping[str, Numeric]
    """Of these, what compute hides, by phase."""
    launched: Mapping[str, Numeric]
    """Blocking collectives that the host launches, by phase."""


def block_times(batch: Batch) -> dict[str, BlockTime]:
    """Return what one layer of each kind, the embedding and the head take."""
    return batch.once(block_times, lambda: _block_times(profile_step(batch)))


def _block_times(unit: StepProfile) -> dict[str, BlockTime]:
    compute: dict[str, dict[str, Numeric]] = {plan.block.name: {} for plan in plan_of(unit.batch)}
    communication: dict[str, dict[tuple[Role, str], Numeric]] = {name: {} for name in compute}
    launched: dict[str, dict[str, Numeric]] = {name: {} for name in compute}
    for operator in unit.operators:
        _add_seconds(compute[operator.use.block], _compute_time(operator))
    for call in (
        collective for collective in unit.traffic if collective.block
    ):  # what is sent between stages belongs to none
        recomputed = call.recomputed / (1 + call.recomputed)
        for phase, share in (call.phase, 1 - recomputed), ("backward", recomputed):
            if not np.any(share):
                continue
            _add_seconds(communication[call.block], {(call.role, phase): call.seconds * share})
            if call.role in BLOCKING:
                _add_seconds(launched[call.block], {phase: call.calls * share})
    return {
        name: _overlap_inside_block(
            BlockTime(ComputeTime(**seconds_by_class), communication[name], {}, {}, launched[name]), unit
        )
        for name, seconds_by_class in compute.items()
    }


def _overlap_inside_block(block: BlockTime, unit: StepProfile) -> BlockTime:
    """Return a block with what it exposes of the communication that its own attention and its own GEMMs overlap."""
    exposed: dict[tuple[Role, str], Numeric] = {}
    hidden: dict[str, Numeric] = {}
    for phase in PASSES:
        gemms, attention, _ = block.compute.beside(phase)
        rings = _note_exposed(block.communication, exposed, ("ring", phase), 1.0, attention)
        hidden[phase] = rings + _note_exposed(
            block.communication, exposed, ("tp", phase), unit.network.efficiency("tp"), gemms
        )
    return replace(block, exposed=exposed, hidden=hidden)


def _add_seconds(total: dict[Key, Numeric], added: Mapping[Key, Numeric]) -> None:
    for key, value in added.items():
        total[key] = total[key] + value if key in total else value


def _compute_time(operator: OperatorCost) -> dict[str, Numeric]:
    """Return what an operator adds to the sums. Runs of what is recomputed again belong to the backward pass."""
    use = operator.use
    recomputed = use.recomputed
    # `runs` counts recomputation, which belongs to the backward pass and is added apart
    once_s = operator.seconds * operator.runs / (1 + recomputed)
    kind = {"einsum": "gemm", "convolution": "gemm", "attention": "attention"}.get(use.kind, "other")
    sums = {kind: once_s, use.phase: once_s}
    if use.phase == "forward" and kind != "other":
        sums[f"{kind}_forward"] = once_s
    launch = operator.launch_s * operator.runs
    if use.block == "head" and use.phase == "forward":
        launch = 0.0  # the device still has layers to run
    if np.any(recomputed):
        rerun = {"recompute": once_s * recomputed} | ({f"{kind}_again": once_s * recomputed} if kind != "other" else {})
        return (
            sums
            | rerun
            | {"launch_forward": launch / (1 + recomputed), "launch_backward": launch * recomputed / (1 + recomputed)}
        )
    return sums | {f"launch_{use.phase}": launch}


def stage_time(batch: Batch, counts: Counts, waiting: Numeric | None = None) -> StageTime:
    """Return what a stage does that has so much of each block.

    Or so many stages together which are *waiting* for their input, and have filled their buffers meanwhile.
    """
    in_hbm, traffic = _in_hbm_time(batch, counts), tier_traffic(batch)
    return in_hbm if traffic is None or not traffic.ahead else _stall_for_tiers(batch, traffic, counts, in_hbm, waiting)


def _in_hbm_time(batch: Batch, counts: Counts) -> StageTime:
    """Return what a stage does whose state is all in HBM."""
    blocks, kernels = block_times(batch), profile_step(batch).kernels
    compute = {
        class_field.name: sum_of(
            (counts[name] * getattr(blocks[name].compute, class_field.name) for name in counts), 0.0
        )
        for class_field in fields(ComputeTime)
    }
    communication: dict[tuple[Role, str], Numeric] = {}
    exposed: dict[tuple[Role, str], Numeric] = {}
    for name, count in counts.items():
        _add_seconds(communication, {key: count * value for key, value in blocks[name].communication.items()})
        _add_seconds(exposed, {key: count * value for key, value in blocks[name].exposed.items()})
        for phase, calls in blocks[name].launched.items():
            key = f"launch_{phase}"
            compute[key] = compute[key] + count * calls * kernels.collective_launch_s(phase)
    hidden = {phase: sum_of((n * blocks[name].hidden[phase] for name, n in counts.items()), 0.0) for phase in PASSES}
    heads = [(count, blocks[name]) for name, count in counts.items() if name == "head"]
    head = HeadTime(
        sum_of((count * head.compute.forward for count, head in heads), 0.0),
        sum_of((count * _exposed_wait_s(head.exposed, "forward") for count, head in heads), 0.0),
        sum_of(
            (n * _exposed_wait_s(blocks[name].exposed, "forward") for name, n in counts.items() if name != "head"), 0.0
        ),
    )
    return _overlap_stage(profile_step(batch), ComputeTime(**compute), communication, exposed, hidden, head)


def part_times(batch: Batch) -> list[StageTime]:
    """Return what each part of the model takes: a stage, or a virtual stage."""
    blocks = [plan.block for plan in plan_of(batch)]
    parts = layers_of_parts(batch, blocks)
    times = []
    for part, layers in enumerate(parts):
        ends = {"first": part == 0, "last": part == len(parts) - 1}
        counts = {block.name: float(ends[block.part]) * block.repeats for block in blocks if block.part in ends}
        times.append(stage_time(batch, counts | layers))
    return times


# ---- tiers


def _stall_for_tiers(
    batch: Batch, traffic: TierTraffic, counts: Counts, in_hbm: StageTime, waiting: Numeric | None = None
) -> StageTime:
    """Return a stage with what its layers wait for outer tiers of memory.

    A pass takes what its ring of buffers does (`cosmic.step.tier_traffic`), or what it takes without transfers if that
    is more. Links to outer tiers are none of the network's: compute hides transfers beside communication. Microbatches
    follow each other; the first block of a step waits for all of its transfers, but where a decoded token follows
    another. With one buffer all of it is serial: shards come in, are gathered and used, and gradients are reduced and
    leave.
    """
    count, buffers = traffic.count, batch["memory.resident_layers"]
    single_buffer = buffers == 1
    order = [plan.block.name for plan in plan_of(batch)]
    stalled: dict[str, Numeric] = {}
    first_s: Numeric = 0.0
    late: Numeric = 0.0
    for phase in traffic.passes:
        sequence = order if phase == "forward" else order[::-1]
        compute_s = {name: _least_s(batch, name, phase) / count for name in sequence}
        transfer_s = {name: traffic.block_s(name, phase) for name in sequence}
        sent = sum_of((n * transfer_s[name] for name, n in counts.items()), 0.0)
        pass_seconds = in_hbm.seconds(phase)
        if waiting is None:
            stalled_pass_s = count * pass_s(sequence, counts, compute_s, transfer_s, buffers)
        else:
            counts_per_stage = {name: n / waiting for name, n in counts.items()}
            stalled_pass_s = count * waiting * filled_pass_s(sequence, counts_per_stage, compute_s, transfer_s, buffers)
        bare = count * sum_of((n * compute_s[name] for name, n in counts.items()), 0.0)
        serial = stalled_pass_s - bare + _hidden_s(in_hbm, phase, traffic.placed.sizes)
        waits = np.where(single_buffer, serial, np.maximum(0.0, stalled_pass_s - pass_seconds))
        stalled[phase] = np.where(np.asanyarray(sent) > 0, waits, 0.0)
        if phase == "backward":
            late = late_gradients_s(traffic, sequence, counts, compute_s, np.maximum(0.0, pass_seconds / count - sent))
        if phase == "forward" and batch.base.workload.task != "decode":
            loads = {name: traffic.load_s(name, phase) for name in sequence}
            first_s = first_wait_s(sequence, counts, compute_s, loads, transfer_s, single_buffer)
    return replace(
        in_hbm,
        passed={phase: pass_s + stalled.get(phase, 0.0) for phase, pass_s in in_hbm.passed.items()},
        sent={phase: pass_s + stalled.get(phase, 0.0) for phase, pass_s in in_hbm.sent.items()},
        input_gradients_s=in_hbm.input_gradients_s + stalled.get("backward", 0.0),
        stalled=stalled,
        ends_s=first_s,
        gradients_out_s=late,
    )


def _least_s(batch: Batch, name: str, phase: str) -> Numeric:
    """Return the seconds of a block in a pass of all microbatches, all but what other blocks may hide of it."""
    block, network = block_times(batch)[name], profile_step(batch).network
    seconds = block.compute.beside(phase)[2] + _exposed_wait_s(block.exposed, phase)
    shown: dict[Role, Numeric] = {"cp": 1.0, "dp": 1.0, "ep": 1 - network.efficiency("ep")}
    for role, share in shown.items():
        seconds = seconds + share * block.communication.get((role, phase), 0.0)
    return seconds


def _hidden_s(in_hbm: StageTime, phase: str, placed: Collection[str]) -> Numeric:
    """Return what compute would hide of the all-gathers and reductions of a pass of what is in outer tiers.

    A backward pass gathers what the forward pass does; the rest are gradients, which leave the buffer once they are
    reduced.
    """
    gathered, sent = (
        in_hbm.communication.get(("weights", phase_of_weights), 0.0) for phase_of_weights in ("forward", phase)
    )
    hidden = np.maximum(0.0, sent - in_hbm.exposed.get(("weights", phase), 0.0))
    gathers = np.minimum(gathered, hidden)
    fetched = gathers if not {"weights", "experts"}.isdisjoint(placed) else 0.0
    gradient_hidden = hidden - gathers if not {"gradients", "expert_gradients"}.isdisjoint(placed) else 0.0
    return fetched + gradient_hidden


# ---- overlap


@dataclass(frozen=True, slots=True)
class HeadTime:
    """What the head of a stage, if it has one, takes in a forward pass."""

    compute_s: Numeric
    waited_s: Numeric
    """What it waits for, of the communication that its own compute overlaps."""
    before_s: Numeric
    """The same of all other blocks, which come before it."""


def _overlap_stage(
    unit: StepProfile,
    compute: ComputeTime,
    communication: Communicated,
    exposed: dict[tuple[Role, str], Numeric],
    hidden: Mapping[str, Numeric],
    head: HeadTime,
) -> StageTime:
    """Return a stage with what all kinds of communication expose, given what those inside its blocks do.

    The host is late with the layers of a forward pass; when they are launched, the device still has the *head* to run.
    In a backward pass the head comes first, and the host launches layers meanwhile.

        P = max(c + w, l + h)        s = w + c_h        f = P - s = max(c, l + h - w) - c_h

        P  seconds of a pass, weights and gradients aside    c, l  its compute, and what its host takes to launch it
        w  what it waits for                                 h     the head, with what that waits for
        s, f  seconds in which communication runs, and the others        c_h  compute that hides communication
    """
    remaining = {phase: compute.beside(phase)[2] - hidden[phase] for phase in PASSES}
    exposed_s = dict(exposed)
    share = _note_exposed_experts(unit, communication, exposed, remaining)
    for role, phase in communication:
        if role in ("cp", "dp"):
            exposed[role, phase] = communication[role, phase]
    delay, passed, sent, free = {}, {}, {}, {}
    inputs_s: Numeric = 0.0
    of_weights = weight_gradient_share(unit.batch.base.workload)
    for phase in PASSES:
        forward = phase == "forward"
        all_compute, launched = compute.beside(phase)[2], getattr(compute, f"launch_{phase}")
        waited = _exposed_wait_s(exposed, phase)
        host = launched + head.compute_s + head.waited_s if forward else launched
        beyond = _exposed_wait_s({key: value for key, value in exposed.items() if key not in exposed_s}, phase)
        ahead = launched + head.compute_s - (head.before_s + beyond) if forward else launched - waited
        covered = hidden[phase] + share * remaining[phase]
        delay[phase] = launch_delay_s(host, all_compute + waited)
        passed[phase] = np.maximum(all_compute + waited, host)
        sent[phase] = waited + covered
        free[phase] = np.maximum((1 - share) * remaining[phase], ahead - covered)
        late = np.maximum(waited, host - all_compute)
        inputs_s = all_compute - of_weights * compute.backward + (of_weights * waited + (1 - of_weights) * late)
    efficiency = unit.network.efficiency("weights")
    for phase in PASSES:
        _note_exposed(communication, exposed, ("weights", phase), efficiency, free[phase])
    return StageTime(compute, communication, exposed, delay, passed, sent, free, inputs_s, efficiency, of_weights)


def launch_delay_s(launched_s: Numeric, busy_s: Numeric) -> Numeric:
    """Return the seconds that a device waits for its host: positive where a step is launch-bound.

    The device runs what the host has launched. It waits where launching takes longer than running.

    >>> float(launch_delay_s(3.0, 2.0)), float(launch_delay_s(1.0, 2.0))
    (1.0, 0.0)
    """
    return np.maximum(0.0, launched_s - busy_s)


def _exposed_wait_s(exposed: Communicated, phase: str) -> Numeric:
    return sum_of((value for (_, pass_name), value in exposed.items() if pass_name == phase), 0.0)


def _note_exposed(
    communication: Communicated,
    exposed: dict[tuple[Role, str], Numeric],
    key: tuple[Role, str],
    efficiency: Numeric,
    beside_s: Numeric,
) -> Numeric:
    """Note what a role exposes beside so much compute, and return what that hides."""
    if key not in communication:
        return 0.0
    seconds = communication[key]
    exposed[key] = np.maximum((1 - efficiency) * seconds, seconds - beside_s)
    hidden: Numeric = np.minimum(efficiency * seconds, beside_s)
    return hidden


def _note_exposed_experts(
    unit: StepProfile,
    communication: Communicated,
    exposed: dict[tuple[Role, str], Numeric],
    free_s: Mapping[str, Numeric],
) -> Numeric:
    """Note what expert parallelism exposes, and return the share of what is *free_s* of both passes that hides the rest.

    Both passes overlap those of other microbatches. The first microbatch of a step meets no other. Serving engines cut
    a batch in two instead.
    """
    expert_s = {phase: communication["ep", phase] for phase in PASSES if ("ep", phase) in communication}
    if not expert_s:
        return 0.0
    parallel_passes = (
        unit.microbatches if unit.batch.base.workload.task == "training" else np.maximum(unit.microbatches, 2)
    )
    efficiency, free_in_both = unit.network.efficiency("ep"), free_s["forward"] + free_s["backward"]
    expert_total = sum_of(expert_s.values(), 0.0)
    shown = np.maximum(
        1 - efficiency, 1 - free_in_both * (1 - 1 / parallel_passes) / np.where(expert_total > 0, expert_total, 1.0)
    )
    for phase, seconds in expert_s.items():
        exposed["ep", phase] = seconds * shown
    share: Numeric = np.minimum(
        efficiency * expert_total / np.where(free_in_both > 0, free_in_both, 1.0), 1 - 1 / parallel_passes
    )
    return share
