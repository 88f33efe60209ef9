"""What a step is made of. Every number of a step that COSMIC prints is a sum over this value.

    profile_step(batch, stage) ──▶ StepProfile
        counts         how much of each block the stage has
        operators      flop, bytes, runs in the step, seconds on the device, seconds to launch
        collectives    bytes, group, axes, calls in the step, role; `seconds` of each
        traffic        the same collectives, alike ones of a block as one, with their seconds
        memory         bytes by component on the fullest device

The closed form (`cosmic.simulate.analytic_step`) sums a profile, `cosmic.simulate.trace_generation` lays it out as nodes of a
trace, and `bottleneck` beside this module reads it. So both engines have the same work to do.

A profile is of one pipeline *stage*, or of one layer of each kind (None). Stages differ in how much they have of each
block; `bounding_stages` names those one of which bounds the step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from cosmic.base.numeric import Numeric
from cosmic.design.design_batch import Batch
from cosmic.step.communication import CollectiveUse, CommunicationKind, NetworkCosts, Role, list_collectives
from cosmic.step.device_memory import Footprint, memory_of
from cosmic.step.kernel_costs import KernelCosts
from cosmic.step.operator_work import OperatorUse, list_operators
from cosmic.workload.block_plans import plan_of
from cosmic.workload.mesh_sizes import Stage, blocks_on_stage, cut_of, microbatches, stage_number
from cosmic.workload.pipeline_cut import UNSTATED


@dataclass(frozen=True, slots=True)
class OperatorCost:
    """One operator of a step with its seconds."""

    use: OperatorUse
    runs: Numeric
    """Runs in one step on this stage, recomputation included."""
    seconds: Numeric
    """One run, on the device."""
    launch_s: Numeric
    """One run, on the host that launches its kernels."""


@dataclass(frozen=True, slots=True)
class CollectiveCost:
    """Collectives of one kind, role and group in one phase of a step: *calls* of their mean size."""

    role: Role
    phase: str
    kind: CommunicationKind
    axes: tuple[str, ...]
    calls: Numeric
    bytes: Numeric
    """Mean payload of a call."""
    seconds: Numeric
    """Of all calls."""
    block: str
    """Empty for what is sent between stages."""
    recomputed: Numeric
    """Calls in a backward pass for each one of a forward pass: the share of layers that recompute it."""


@dataclass(frozen=True, eq=False)
class StepProfile:
    """What a device of one pipeline stage does in a step, for designs that share one plan."""

    batch: Batch
    stage: Stage | None
    """None for one layer of each kind, the embedding and the head."""
    longer: Callable[[CollectiveUse], Numeric] | None = None
    """How many times longer each collective takes than it would (`prolong_collectives`)."""

    @cached_property
    def kernels(self) -> KernelCosts:
        """What kernels cost on the accelerator, the same for all stages."""
        return self.batch.once(KernelCosts, lambda: KernelCosts(self.batch))

    @cached_property
    def network(self) -> NetworkCosts:
        """What collectives cost on the network, the same for all stages."""
        return self.batch.once(NetworkCosts, lambda: NetworkCosts(self.batch))

    @cached_property
    def counts(self) -> dict[str, Numeric]:
        """How much of each block there is: layers of each kind, the embedding, the head."""
        blocks = tuple(plan.block for plan in plan_of(self.batch))
        return (
            {block.name: 1 for block in blocks}
            if self.stage is None
            else blocks_on_stage(self.batch, self.stage_index, blocks)
        )

    @cached_property
    def stage_index(self) -> Numeric:
        """The number of the stage, from 0 on."""
        return stage_number(self.batch, self.stage or "first", [plan.block for plan in plan_of(self.batch)])

    @cached_property
    def operators(self) -> tuple[OperatorCost, ...]:
        """Every operator, forward and backward."""
        if self.stage is not None:
            of_one_block = profile_step(self.batch).operators
            return tuple(
                replace(operator, runs=operator.runs * self.counts[operator.use.block]) for operator in of_one_block
            )
        seconds, launch_s = self.kernels.seconds, self.kernels.launch_s
        costs = (OperatorCost(use, use.runs, seconds(use), launch_s(use)) for use in list_operators(self.batch))
        return tuple(_cost_of_all_steps(cost) for cost in costs)

    @cached_property
    def collectives(self) -> tuple[CollectiveUse, ...]:
        """Every collective by itself, as traces lay them out; those of groups of one are listed too."""
        if self.stage is not None:
            return tuple(self._counted(use) for use in profile_step(self.batch).collectives)
        return tuple(list_collectives(self.batch))

    @cached_property
    def traffic(self) -> tuple[CollectiveCost, ...]:
        """All collectives with their seconds, alike ones of a block as one: time is nearly linear in bytes and calls.

        Collectives of groups of one are left out.
        """
        if self.stage is not None:
            of_one_block = profile_step(self.batch).traffic
            counts = [self.counts.get(use.block, 1) for use in of_one_block]
            return tuple(
                replace(use, calls=use.calls * count, seconds=use.seconds * count)
                for use, count in zip(of_one_block, counts, strict=True)
            )
        uses = (use for use in list_collectives(self.batch, together=True) if np.any(use.group > 1))
        return tuple(self._cost(use) for use in uses)

    @property
    def memory(self) -> Footprint:
        """Bytes by component on the fullest device of all stages."""
        return memory_of(self.batch)

    @property
    def microbatches(self) -> Numeric:
        """Microbatches that each replica passes through the pipeline."""
        return microbatches(self.batch)

    def seconds(self, use: CollectiveUse) -> Numeric:
        """Return the seconds of one call of a collective."""
        if use.role == "sync" and use.kind == "all_reduce":
            return self.network.exchange_s(use.axes, use.bytes)
        return self.network.seconds(use.kind, use.axes, use.bytes, use.copies)

    def _cost(self, use: CollectiveUse) -> CollectiveCost:
        calls = use.calls * (use.group > 1)  # in a batch, some designs have groups of one
        seconds = calls * self.seconds(use) * (1.0 if self.longer is None else self.longer(use))
        return CollectiveCost(
            use.role, use.phase, use.kind, use.axes, calls, use.bytes, seconds, use.block, use.recomputed
        )

    def _counted(self, use: CollectiveUse) -> CollectiveUse:
        return replace(use, calls=use.calls * self.counts.get(use.block, 1))


def _cost_of_all_steps(operator: OperatorCost) -> OperatorCost:
    """Return the cost of a whole run of an operator that runs through a dimension step by step."""
    steps, use = operator.use.steps, operator.use
    if isinstance(steps, int):  # one
        return operator
    all_steps = replace(use, flop=use.flop * steps, bytes=use.bytes * steps)
    return OperatorCost(all_steps, operator.runs, operator.seconds * steps, operator.launch_s * steps)


def profile_step(batch: Batch, stage: Stage | None = None) -> StepProfile:
    """Return what a pipeline stage does in a step: the same value each time it is asked of *batch*."""
    return batch.once((profile_step, stage), lambda: StepProfile(batch, stage))


def prolong_collectives(batch: Batch, longer: Callable[[CollectiveUse], Numeric]) -> Batch:
    """Return the same designs with collectives that take so many times longer: numbers, or arrays to try several.

    >>> from cosmic.search.mapping.design_completion import load_design
    >>> from cosmic.design.design_batch import batch_of
    >>> plain = batch_of(load_design("llama3-8b@dgx-h100:8", {"tp": 8}))
    >>> slow = prolong_collectives(plain, lambda use: 2.0 if use.role == "tp" else 1.0)
    >>> (profile_step(slow).traffic[0].seconds / profile_step(plain).traffic[0].seconds).tolist()
    2.0
    """
    prolonged = Batch(batch.base, batch.columns)
    prolonged.once((profile_step, None), lambda: StepProfile(prolonged, None, longer))
    return prolonged


def bounding_stages(batch: Batch) -> tuple[Stage, ...]:
    """Return the stages one of which bounds the step: the embedding is on the first, the head on the last.

    Others may have more to do if layers are of several kinds, or if those of a stage are stated.
    """
    if np.all(batch["workload.pp"] == 1):
        return ("first",)
    blocks = [plan.block for plan in plan_of(batch)]
    cut = cut_of(batch, blocks)
    if sum(block.part == "layers" for block in blocks) == 1:
        return ("first", "middle", "last") if cut.stated else ("first", "last")
    second: tuple[Stage, ...] = ("second",) if cut.first is not UNSTATED else ()
    penultimate: tuple[Stage, ...] = ("penultimate",) if cut.last is not UNSTATED else ()
    return ("first", *second, "middle", *penultimate, "last")
