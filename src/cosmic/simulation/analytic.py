"""The analytic engine: a step in closed form, for a whole batch of designs at once.

    step = M (F + B)  +  bubble  +  what cannot hide  +  optimizer

    M     microbatches of a replica
    F, B  forward and backward of one microbatch on the fullest stage: compute, and communication that compute waits
          for; longer where the host launches kernels more slowly than the device runs them. Of several stages the
          last is the fullest, with the head; the others, through which a microbatch must pass before and after (the
          bubble), have layers only
    what cannot hide: a share of gathering weights and of reducing gradients (`collective.overlap_efficiency` is the
          rest); weight gathering beyond the compute beside it; gradient reduction beyond the backward pass of one
          microbatch and, where the newest collective goes first (LIFO), the forward pass of the next step, which then
          finds the weights that it needs first; activations on their way through an empty pipeline; offloading beyond
          the whole step

Every term is named in the breakdown, which sums to the step.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any, get_args

import numpy as np

from cosmic.design.batch import Batch, batch_of
from cosmic.design.point import DesignPoint
from cosmic.step.communication import CollectiveUse, collectives
from cosmic.step.compute import OperatorUse, operators
from cosmic.step.costs import Prices
from cosmic.step.memory import Footprint, footprint, state_bytes
from cosmic.workload.plan import plan
from cosmic.workload.schedule import schedules
from cosmic.workload.sizes import Stage, block_shares, microbatches
from cosmic.workload.strategies import strategies_of

COMPUTE_PARTS = ("gemm", "attention", "other")
COMMUNICATED = ("tp", "cp", "ep", "weights", "dp", "pp")
BREAKDOWN = (*COMPUTE_PARTS, "recompute", "launch", *COMMUNICATED, "bubble", "optimizer", "offload")
"""Every part of a step, in the order in which it is told."""
WAITED = ("tp", "cp", "ep", "dp")
"""Axes whose collectives lie on the critical path: the next operator needs what they bring."""


@dataclass(frozen=True, slots=True)
class Step:
    """The seconds of one step, by part; numbers, or arrays over a batch."""

    parts: dict[str, Any]
    flop: Any
    """Operations that the fullest device runs, recomputation included."""

    @property
    def seconds(self) -> Any:
        """The whole step."""
        return sum(self.parts.values())


@dataclass(frozen=True, slots=True)
class Anatomy:
    """A step, and what it is made of on the stage that bounds it. Seconds are those of all microbatches together."""

    step: Step
    stage: Stage | None
    """That stage; None where all layers are alike, for the fullest."""
    work: dict[str, Any]
    """Of compute, by class and by phase; see `_computed`."""
    traffic: Traffic
    talks: list[CollectiveUse]
    passes: tuple[Any, Any]
    """Forward and backward: compute, what it waits for, and how late the host is."""
    late: tuple[Any, Any]
    """Of these, how late the host is."""
    head: tuple[Any, Any]
    """Of these, what only the stage with the head does."""
    others: tuple[Any, Any, Any]
    """F, B and W of one microbatch on the other stages, which have layers only (see `cosmic.workload.schedule`)."""
    prices: Prices


def step(batch: Batch, memory: Footprint) -> Step:
    """Return the step of designs that share one plan (see `cosmic.workload.sizes.structural_paths`).

    Where a model has several sorts of layers, stages differ: the slowest of the first, the middle and the last counts.
    """
    return reduce(_slower, [_step_at(batch, memory, stage).step for stage in _stages(batch)])


def anatomy(batch: Batch, memory: Footprint) -> Anatomy:
    """Return what the step of a single design is made of."""
    found = [_step_at(batch, memory, stage) for stage in _stages(batch)]
    return max(found, key=lambda each: float(each.step.seconds))


def slowest_stage(point: DesignPoint) -> Stage | None:
    """Return the stage that bounds the step of a single design; None where all layers are alike."""
    batch = batch_of(point)
    some = _stages(batch)
    return some[0] if len(some) == 1 else anatomy(batch, footprint(batch)).stage


def _stages(batch: Batch) -> tuple[Stage | None, ...]:
    """Return the stages of which one may bound the step; None where all layers are alike."""
    workload = batch.base.workload
    blocks = plan(batch.base.model, strategies_of(workload), workload.task == "training", workload.dropout)
    alike = sum(each.block.part == "layers" for each in blocks) == 1 or np.all(batch["workload.pp"] == 1)
    return (None,) if alike else get_args(Stage)


def _slower(one: Step, other: Step) -> Step:
    """Return the longer of two steps, design by design."""
    longer = one.seconds >= other.seconds
    parts = {name: np.where(longer, value, other.parts[name]) for name, value in one.parts.items()}
    return Step(parts, np.where(longer, one.flop, other.flop))


def _step_at(batch: Batch, memory: Footprint, stage: Stage | None) -> Anatomy:
    """Return the step if it is as fast as one stage; None is the fullest one where all layers are alike."""
    workload = batch.base.workload
    training = workload.task == "training"
    prices = Prices(batch)
    uses, talks = operators(batch, stage or "first"), collectives(batch, stage or "first", together=True)
    count, stages = microbatches(batch), batch["workload.pp"]
    shares = block_shares(stage, stages, head=any(use.block == "head" for use in uses))
    work = _computed(prices, uses, shares)
    for phase in ("forward", "backward"):
        waited = [use for use in talks if use.phase == phase and not use.hides]
        calls = sum(use.times * (use.group > 1) for use in waited)
        work[f"host.{phase}"] = work[f"host.{phase}"] + calls * prices.hosted_call(phase)
    traffic = Traffic(_communicated(prices, talks, shares), prices.hidden)
    parts: dict[str, Any] = {name: work[name] for name in (*COMPUTE_PARTS, "recompute")}
    parts |= {axis: traffic.waited(axis, "forward") + traffic.waited(axis, "backward") for axis in WAITED}
    parts["cp"] = parts["cp"] + traffic.behind("ring", "forward", work["attention"] / 3)
    parts["cp"] = parts["cp"] + traffic.behind("ring", "backward", work["attention"] * 2 / 3)
    head_forward = work["head.forward"] + traffic.at_head("forward")
    head_backward = work["head.backward"] + traffic.at_head("backward")
    forward, backward, (early, late) = _passes(work, traffic, head_forward)
    parts["launch"] = early + late
    parts["weights"] = traffic.beside("weights", "forward", forward)
    parts["weights"] = parts["weights"] + traffic.beside("weights", "backward", backward)
    newest_first = batch["collective.scheduling"] == "lifo"
    parts["dp"] = parts["dp"] + _after(traffic, newest_first, forward / count, backward / count, count)
    crossing = traffic.waited("pp", "forward") + traffic.waited("pp", "backward")
    parts["pp"] = np.maximum(stages - 1, 0) * crossing
    if training:
        weight_s = (work["backward"] - work["head.backward"]) / 2 / count
        others = np.maximum(backward - late - head_backward, work["host.backward"] - work["host.head"])
        times = (forward - head_forward) / count, others / count - weight_s, weight_s
        parts["bubble"] = schedules[workload.schedule].bubble(stages, count, *times, batch["workload.virtual_stages"])
        states = memory.parts["optimizer"] + memory.offloaded.get("optimizer", 0.0)
        parts["optimizer"] = prices.update(states / state_bytes(prices.recipe, workload.weight_sharding))[0]
    else:
        slow = forward if workload.task == "decode" else forward - head_forward
        times = slow / count, 0.0, 0.0
        parts["bubble"] = _serving_bubble(workload.task, stages, count, times[0])
        parts["optimizer"] = 0.0
    parts["offload"] = np.maximum(0.0, prices.offloading(memory.offload_traffic) - sum(parts.values()))
    return Anatomy(
        step=Step({name: parts[name] for name in BREAKDOWN}, work["flop"]),
        stage=stage,
        work=work,
        traffic=traffic,
        talks=talks,
        passes=(forward, backward),
        late=(early, late),
        head=(head_forward, head_backward),
        others=times,
        prices=prices,
    )


def _passes(work: dict[str, Any], traffic: Traffic, head_forward: Any) -> tuple[Any, Any, tuple[Any, Any]]:
    """Return the seconds of the forward and of the backward passes, and those in each that the host is late.

    A device runs what the host has launched. When the host reaches the head, the device has yet to run the head.
    """
    forward = work["forward"] + sum(traffic.waited(axis, "forward") for axis in WAITED)
    backward = work["backward"] + work["recompute"] + sum(traffic.waited(axis, "backward") for axis in WAITED)
    late_forward = np.maximum(0.0, work["host.forward"] - (forward - head_forward))
    late_backward = np.maximum(0.0, work["host.backward"] - backward)
    return forward + late_forward, backward + late_backward, (late_forward, late_backward)


def _after(traffic: Traffic, newest_first: Any, forward: Any, backward: Any, count: Any) -> Any:
    """Return what is left of reducing gradients and of returning updated weights, at the end of a step.

    Gradients hide behind the backward pass of the last microbatch, but for those of the embedding, which come last;
    weights are updated after it. Where the newest collective goes first, all go on behind the next forward pass.
    """
    reduced, returned = traffic.waited("weights", "step"), traffic.waited("returned", "step")
    last = traffic.waited("last", "step") + traffic.waited("last", "backward") / count
    both = reduced + returned
    on_into_next = both - np.minimum(both * traffic.hidden, forward + backward)
    in_order = np.maximum(reduced - np.minimum(reduced * traffic.hidden, backward), last) + returned
    return np.where(newest_first, on_into_next, in_order)


@dataclass(frozen=True, slots=True)
class Traffic:
    """Seconds of communication in a step, by role and phase."""

    seconds: dict[tuple[str, str], Any]
    hidden: Any
    """The share that computation hides at best of what need not be waited for."""

    def waited(self, role: str, phase: str) -> Any:
        """Return what compute waits for."""
        return self.seconds.get((role, phase), 0.0)

    def at_head(self, phase: str) -> Any:
        """Return what the head waits for."""
        return self.seconds.get(("head", phase), 0.0)

    def beside(self, role: str, phase: str, cover: Any) -> Any:
        """Return what is left of what computation hides as well as it can."""
        whole = self.waited(role, phase)
        return whole - np.minimum(whole * self.hidden, cover)

    def behind(self, role: str, phase: str, cover: Any) -> Any:
        """Return what is left when *cover* seconds of compute go on meanwhile."""
        return np.maximum(0.0, self.waited(role, phase) - cover)


def _serving_bubble(task: str, stages: Any, count: Any, forward: Any) -> Any:
    """Return how long stages wait: a prompt passes through them all; decoding comes back to each after a round."""
    waiting = stages - 1 if task == "prefill" else np.maximum(stages - count, 0)
    return waiting * forward


def role_of(use: CollectiveUse) -> str:
    """Return what waits for a collective, or what it hides behind.

    An axis: compute waits. ``pp``: sent on. ``ring``: keys passed round behind attention. ``weights``: fetched
    ahead, or reduced behind. ``returned``: weights that others updated.
    """
    if use.kind == "send":
        return "pp"
    if use.kind == "collective_permute":
        return "ring"
    if use.tensor == "weights":
        return "returned"
    return "weights" if use.hides else use.axes[0]


def _nobody(use: CollectiveUse) -> bool:
    """Return whether there is nobody to talk to."""
    return np.ndim(use.group) == 0 and bool(use.group <= 1)


def _computed(prices: Prices, uses: list[OperatorUse], shares: dict[str, Any]) -> dict[str, Any]:
    """Return the seconds of a step by class and by phase, those of the head apart as well.

    *shares* says how much of some blocks the stage has.
    """
    names = (*COMPUTE_PARTS, "recompute", "forward", "backward", "flop")
    apart = ("head.forward", "head.backward", "host.forward", "host.backward", "host.head")
    total: dict[str, Any] = dict.fromkeys((*names, *apart), 0.0)
    for use in uses:
        part = {"einsum": "gemm", "attention": "attention"}.get(use.kind, "other")
        times = use.times * shares.get(use.block, 1.0)
        once = prices.operator(use) * times
        own = once / 2 if use.again else once
        total[part] = total[part] + own
        total[use.phase] = total[use.phase] + own
        if use.block == "head":
            total[f"head.{use.phase}"] = total[f"head.{use.phase}"] + own
        total["recompute"] = total["recompute"] + (own if use.again else 0.0)
        launching = prices.hosted(use) * use.times
        if use.block == "head":
            launching = launching if use.phase == "backward" else 0.0  # forward, the host is ahead by then
            total["host.head"] = total["host.head"] + launching
        total[f"host.{use.phase}"] = total[f"host.{use.phase}"] + (launching / 2 if use.again else launching)
        total["host.backward"] = total["host.backward"] + (launching / 2 if use.again else 0.0)
        total["flop"] = total["flop"] + use.flop * times
    return total


def _communicated(prices: Prices, uses: list[CollectiveUse], shares: dict[str, Any]) -> dict[tuple[str, str], Any]:
    """Return the seconds of a step by role (see `role_of`) and phase.

    As role "head", what the head waits for; as role "last", the gradients of the embedding. *shares* says how much of
    some blocks the stage has: it counts for what is waited for.

    Collectives of one kind among one group are added up and timed as so many of their mean size: time is nearly linear
    in bytes and in calls.
    """
    alike: dict[tuple[str, str, str, tuple[str, ...], str, int], list[Any]] = {}
    for use in uses:
        if _nobody(use):
            continue
        role = role_of(use)
        apart = ""
        if use.block == "head" and role in WAITED:
            apart = "head"
        elif use.block == "embedding" and role == "weights" and use.kind != "all_gather":
            apart = "last"
        entry = alike.setdefault((role, use.phase, use.kind, use.axes, apart, use.copies), [0.0, 0.0])
        times = use.times * (use.group > 1)  # of a batch, some designs may have nobody to talk to
        if use.block in shares and role in WAITED:
            times = times * shares[use.block]
        entry[0] = entry[0] + times
        entry[1] = entry[1] + times * use.bytes
    seconds: dict[tuple[str, str], Any] = {}
    for (role, phase, kind, axes, apart, copies), (calls, total) in alike.items():
        each = prices.collective(kind, axes, total / np.maximum(calls, 1), copies) * prices.shown(role)
        if role == "pp":
            each = each / np.maximum(calls, 1)  # one crossing, not all: the others hide behind compute
        for counted in (role, apart) if apart else (role,):
            seconds[counted, phase] = seconds.get((counted, phase), 0.0) + calls * each
    return seconds
