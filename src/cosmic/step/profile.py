"""What a step is made of. Every number of a step that COSMIC prints is a sum over this value.

    profile(batch, stage) ──▶ StepProfile
        operators      flop, bytes, runs in the step, seconds on the device, seconds to launch
        collectives    bytes, group, axes, calls in the step, role; `seconds` of each
        traffic        the same collectives, alike ones as one, with their seconds
        memory         bytes by component on the fullest device

The closed form (`cosmic.simulation.analytic`) sums a profile, `cosmic.traces.generation` lays it out as nodes of a
trace, and `network_load`, `roofline` and `bound` beside this module read it. So both engines have the same work to do.

A profile is of one pipeline *stage*. Where all layers are alike, the fullest stage stands for all (None). Where a model
has several kinds of layers, stages differ, and `profiles` gives one for each stage that may bound the step.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import get_args

import numpy as np

from cosmic.design.batch import Batch
from cosmic.numeric import Numeric
from cosmic.step.communication import BLOCKING, CollectiveUse, CommunicationKind, Role, collectives
from cosmic.step.compute import OperatorUse, operators
from cosmic.step.kernel_costs import KernelCosts
from cosmic.step.memory import Footprint, footprint
from cosmic.step.network_costs import NetworkCosts
from cosmic.workload.plan import plan_of
from cosmic.workload.sizes import Stage, block_shares, microbatches


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
    """Of all calls, as far as they are exposed; of pp, of one call, as compute overlaps the others."""
    block: str
    """``head`` for what the head waits for, ``embedding`` for its gradients, which come last; else empty."""


@dataclass(frozen=True, eq=False)
class StepProfile:
    """What the busiest device of one pipeline stage does in a step, for designs that share one plan."""

    batch: Batch
    stage: Stage | None
    """None where all layers are alike: the fullest stage."""

    @cached_property
    def kernels(self) -> KernelCosts:
        """What kernels cost on the accelerator, the same for all stages."""
        return self.batch.once(KernelCosts, lambda: KernelCosts(self.batch))

    @cached_property
    def network(self) -> NetworkCosts:
        """What collectives cost on the network, the same for all stages."""
        return self.batch.once(NetworkCosts, lambda: NetworkCosts(self.batch))

    @cached_property
    def operators(self) -> tuple[OperatorCost, ...]:
        """Every operator, forward and backward."""
        seconds, launch_s, shares = self.kernels.seconds, self.kernels.launch_s, self.shares
        return tuple(
            OperatorCost(use, use.runs * shares.get(use.block, 1.0), seconds(use), launch_s(use))
            for use in operators(self.batch, self.stage or "first")
        )

    @cached_property
    def collectives(self) -> tuple[CollectiveUse, ...]:
        """Every collective by itself, as traces lay them out; those of groups of one are listed too."""
        return tuple(collectives(self.batch, self.stage or "first"))

    @cached_property
    def grouped(self) -> tuple[CollectiveUse, ...]:
        """The collectives of each block that differ only in their tensor, as one."""
        return tuple(collectives(self.batch, self.stage or "first", together=True))

    @cached_property
    def traffic(self) -> tuple[CollectiveCost, ...]:
        """All collectives of the stage with their seconds, alike ones of all blocks as one."""
        return tuple(self._merged(self.grouped))

    @cached_property
    def shares(self) -> dict[str, Numeric]:
        """How much the stage has of blocks that are not on every stage; 1 for others."""
        head = any(each.block.name == "head" for each in plan_of(self.batch))
        return block_shares(self.stage, self.batch["workload.pp"], head=head)

    @property
    def memory(self) -> Footprint:
        """Bytes by component on the fullest device of all stages."""
        return memory_of(self.batch)

    @property
    def microbatches(self) -> Numeric:
        """Microbatches that each replica passes through the pipeline."""
        return microbatches(self.batch)

    def seconds(self, use: CollectiveUse) -> Numeric:
        """Return the exposed seconds of one call of a collective."""
        return self.network.seconds(use.kind, use.axes, use.bytes, use.copies) * self.network.exposed_share(use.role)

    def launched_calls(self, phase: str) -> Numeric:
        """Return how many blocking collectives the host launches in a phase."""
        blocking = (use for use in self.grouped if use.phase == phase and not use.overlaps)
        return sum(use.calls * (use.group > 1) for use in blocking)

    def _merged(self, uses: Iterable[CollectiveUse]) -> Iterable[CollectiveCost]:
        """Yield collectives of one kind, role and group as one: time is nearly linear in bytes and in calls."""
        alike: dict[tuple[Role, str, CommunicationKind, tuple[str, ...], str, int], list[Numeric]] = {}
        for use in uses:
            if np.ndim(use.group) == 0 and use.group <= 1:
                continue
            key = (use.role, use.phase, use.kind, use.axes, _block_apart(use), use.copies)
            entry = alike.setdefault(key, [0.0, 0.0])
            calls = use.calls * (use.group > 1)  # in a batch, some designs have groups of one
            if use.block in self.shares and use.role in BLOCKING:
                calls = calls * self.shares[use.block]
            entry[0] = entry[0] + calls
            entry[1] = entry[1] + calls * use.bytes
        for (role, phase, kind, axes, block, copies), (calls, total) in alike.items():
            mean = total / np.maximum(calls, 1)
            once = self.network.seconds(kind, axes, mean, copies) * self.network.exposed_share(role)
            if role == "pp":
                once = once / np.maximum(calls, 1)
            yield CollectiveCost(role, phase, kind, axes, calls, mean, calls * once, block)


def _block_apart(use: CollectiveUse) -> str:
    """Return the block whose collectives are summed apart as well: the head's, and the embedding's gradients."""
    if use.block == "head" and use.role in BLOCKING:
        return "head"
    return "embedding" if use.block == "embedding" and use.role == "weights" and use.kind != "all_gather" else ""


def profile(batch: Batch, stage: Stage | None = None) -> StepProfile:
    """Return what a pipeline stage does in a step: the same value each time it is asked of *batch*."""
    return batch.once((profile, stage), lambda: StepProfile(batch, stage))


def profiles(batch: Batch) -> tuple[StepProfile, ...]:
    """Return the profile of each stage that may bound the step: one where all layers are alike."""
    alike = sum(each.block.part == "layers" for each in plan_of(batch)) == 1 or np.all(batch["workload.pp"] == 1)
    return tuple(profile(batch, stage) for stage in ((None,) if alike else get_args(Stage)))


def memory_of(batch: Batch) -> Footprint:
    """Return the footprint of the fullest device, worked out once for a batch."""
    return batch.once(memory_of, lambda: footprint(batch))


def launch_delay_s(launched_s: Numeric, busy_s: Numeric) -> Numeric:
    """Return the seconds that a device waits for its host: positive where a step is launch-bound.

    The device runs what the host has launched. It waits where launching takes longer than running.

    >>> float(launch_delay_s(3.0, 2.0)), float(launch_delay_s(1.0, 2.0))
    (1.0, 0.0)
    """
    return np.maximum(0.0, launched_s - busy_s)
