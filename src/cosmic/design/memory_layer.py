"""The memory layer: an accelerator's own memory (HBM), the tiers behind it, and which state lives where.

    memory:
      capacity: 80 GiB                      # HBM
      bandwidth: 3.35 TB/s
      tiers:                                # behind it, nearest first
        - {name: host, capacity: 256 GB, bandwidth: 55 GB/s, latency: 2 us}
        - {name: ssd, capacity: 3.84 TB, bandwidth: 6 GB/s, latency: 80 us}
      placement: {optimizer: [host, ssd], experts: [hbm, host]}

A class of state is placed in a list of tiers, nearest first: what does not fit into one goes on to the next.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Literal

from cosmic.base.errors import UnknownName, require
from cosmic.design.schema import check_bounds

HBM = "hbm"
"""What placements call the accelerator's own memory."""
Access = Literal["copy", "load_store"]
Prefetch = Literal["layer", "step"]
Expansion = Literal["serial", "parallel"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPool:
    """Memory that all accelerators share, behind switches: groups of memory, and a link of each node to them."""

    groups: int = field(metadata={"most": 2**24})
    """Groups of memory, over which all state is spread."""
    group_bandwidth_bytes_per_s: float
    """Of one group, in one direction."""
    npus_per_node: int = field(default=8, metadata={"most": 2**24})
    """Accelerators that share a node's link to the pool."""
    node_bandwidth_bytes_per_s: float
    """Of a node's link to the pool's switches, in one direction."""
    in_switch: bool = False
    """Whether switches gather shards of weights for all accelerators that use them, and reduce gradients on their way,
    so that neither crosses the network between accelerators."""

    def __post_init__(self) -> None:
        check_bounds(self)
        for name in ("groups", "npus_per_node"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "must be at least 1")
        for name in ("group_bandwidth", "node_bandwidth"):
            rate = getattr(self, f"{name}_bytes_per_s")
            require(rate > 0, name, rate, "must be positive")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryTier:
    """Memory behind the accelerator's own (host, CXL, pool, drive): the share of one accelerator."""

    name: str
    capacity_bytes: float
    bandwidth_bytes_per_s: float
    """To or from the tier before it, in one direction; of the nearest, to or from the accelerator."""
    latency_s: float = 0.0
    """Of one transfer, until its first byte arrives."""
    access: Access = "copy"
    """Whether state is copied to the accelerator before it is used, or kernels load and store it in place (CXL)."""
    processor_bandwidth_bytes_per_s: float | None = None
    """At which the processor of this tier reads and writes it: what an optimizer that runs there takes. Unknown if not
    given."""

    pool: MemoryPool | None = None
    """How it is shared, if it is a pool; `bandwidth` is then that of an accelerator's port."""

    def __post_init__(self) -> None:
        check_bounds(self)
        require(bool(self.name), "name", self.name, "must not be empty")
        rule = "accelerators copy from a pool: leave access out"
        require(self.pool is None or self.access == "copy", "access", self.access, rule)
        require(self.name != HBM, "name", self.name, "is the accelerator's own memory: give another name")
        require(self.capacity_bytes > 0, "capacity", self.capacity_bytes, "must be positive")
        require(self.bandwidth_bytes_per_s > 0, "bandwidth", self.bandwidth_bytes_per_s, "must be positive")
        require(self.latency_s >= 0, "latency", self.latency_s, "must not be negative")
        rate = self.processor_bandwidth_bytes_per_s
        require(rate is None or rate > 0, "processor_bandwidth", rate, "must be positive")


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The tiers of each class of state, nearest first; ``hbm`` is the accelerator's own memory."""

    weights: tuple[str, ...] = field(default=(HBM,), metadata={"whole": True})
    """Weights; those of experts too, unless `experts` says otherwise."""
    gradients: tuple[str, ...] = field(default=(HBM,), metadata={"whole": True})
    """Gradients of weights, as they accumulate."""
    optimizer: tuple[str, ...] = field(default=(HBM,), metadata={"whole": True})
    """Master copy and moments."""
    experts: tuple[str, ...] | None = field(default=None, metadata={"whole": True})
    """Weights of experts. As `weights` if not given."""
    expert_gradients: tuple[str, ...] | None = field(default=None, metadata={"whole": True})
    """Gradients of experts. As `gradients` if not given."""
    expert_optimizer: tuple[str, ...] | None = field(default=None, metadata={"whole": True})
    """Optimizer states of experts. As `optimizer` if not given."""
    activations: tuple[str, ...] = field(default=(HBM,), metadata={"whole": True})
    """What layers keep for their backward pass."""
    kv_cache: tuple[str, ...] = field(default=(HBM,), metadata={"whole": True})
    """Keys and values of a served model."""

    def of(self, state: str) -> tuple[str, ...]:
        """Return the tiers of a class of state.

        >>> Placement(weights=("hbm", "host")).of("experts")
        ('hbm', 'host')
        """
        tiers: tuple[str, ...] | None = getattr(self, state)
        return getattr(self, FOLLOWS[state]) if tiers is None else tiers

    @property
    def fills_hbm(self) -> bool:
        """Whether some class takes what is left of HBM before the rest of it goes further out.

        >>> Placement(optimizer=("host",)).fills_hbm, Placement(optimizer=("hbm", "host")).fills_hbm
        (False, True)
        """
        return any(HBM in (tiers := self.of(state)) and len(tiers) > 1 for state in STATES)


FOLLOWS = {"experts": "weights", "expert_gradients": "gradients", "expert_optimizer": "optimizer"}
"""Classes of state of experts, and those of other weights that they are placed as."""
STATES = tuple(each.name for each in fields(Placement))
"""Every class of state that can be placed."""
ALL_IN_HBM = Placement()


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The memory of one accelerator."""

    capacity_bytes: float
    bandwidth_bytes_per_s: float
    usable: float = 1.0
    """Share of the capacity that the driver leaves to processes."""
    context_bytes: float | None = None
    """What a process holds before its first tensor: the context of the driver, the code of kernels, handles of
    libraries. Unknown if not given. 0 where no framework's process is counted, but tensors alone, as papers do."""
    communicator_bytes: float | None = None
    """The buffers of a communicator. As NCCL's if not given."""
    fits: float = 0.95
    """The probability with which a design must fit into the memory to count as one that can run."""
    tiers: tuple[MemoryTier, ...] = ()
    """Memory behind it, nearest first."""
    placement: Placement = ALL_IN_HBM
    """Where each class of state lives. What `workload.offload` names, and this leaves in HBM, lives in all tiers."""
    prefetch: Prefetch | None = None
    """How far ahead of its use outer state is fetched: a layer ahead, so that only the layer before hides it, or as
    early as the step allows, so that all of the step does. If not given, a layer ahead for what is placed, and all of
    the step for what `workload.offload` alone names."""
    resident_layers: int = field(default=2, metadata={"most": 100_000})
    """Layers of outer weights that are on the accelerator at a time, each in a buffer of its own: the one in use, and
    those that are fetched. With 1, nothing hides a fetch."""
    active_experts: float | None = None
    """Share of a layer's experts that a microbatch uses, and so that travels. If not given, as routing has it."""
    expert_cache: float = 0.0
    """Share of the experts of which the tier before their own keeps copies, with all their states."""
    expansion: Expansion = "serial"
    """Whether kernels wait for load/store tiers after HBM, or read both at the same time."""

    def __post_init__(self) -> None:
        check_bounds(self)
        require(self.capacity_bytes > 0, "capacity", self.capacity_bytes, "must be positive")
        require(self.bandwidth_bytes_per_s > 0, "bandwidth", self.bandwidth_bytes_per_s, "must be positive")
        context = self.context_bytes
        require(0 < self.usable <= 1, "usable", self.usable, "must be above 0, and at most 1")
        require(context is None or context >= 0, "context", context, "must not be negative")
        buffers = self.communicator_bytes
        require(buffers is None or buffers >= 0, "communicator", buffers, "must not be negative")
        require(0 < self.fits < 1, "fits", self.fits, "must be between 0 and 1")
        require(self.resident_layers >= 1, "resident_layers", self.resident_layers, "must be at least 1")
        share = self.active_experts
        require(share is None or 0 < share <= 1, "active_experts", share, "must be above 0, and at most 1")
        require(0 <= self.expert_cache <= 1, "expert_cache", self.expert_cache, "must be from 0 to 1")
        names = [tier.name for tier in self.tiers]
        for index, name in enumerate(names):
            require(name not in names[:index], f"tiers.{index}.name", name, "names a tier that is already there")
        if self.placement != ALL_IN_HBM:
            self._check_placement([HBM, *names])

    def _check_placement(self, names: list[str]) -> None:
        for state in STATES:
            listed = getattr(self.placement, state)
            if listed is None:
                continue
            where = f"placement.{state}"
            require(bool(listed), where, list(listed), "must name a tier at least")
            for name in listed:
                if name not in names:
                    raise UnknownName.among(where, name, "tier", names)
            positions = [names.index(name) for name in listed]
            rule = f"must name each tier once, nearest first: {', '.join(names)}"
            require(positions == sorted(set(positions)), where, list(listed), rule)

    @property
    def left_bytes(self) -> float:
        """What the driver leaves of the capacity."""
        return self.usable * self.capacity_bytes

    @property
    def outer(self) -> dict[str, int]:
        """The number of each tier, by its name."""
        return {tier.name: index for index, tier in enumerate(self.tiers)}
