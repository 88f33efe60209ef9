"""The traffic between an accelerator and the tiers of memory behind it, and the seconds that passes wait for it.

Tiers that copy are a chain: what lives in the second crosses its own link and then that of the first. The transfers of
a layer take

    sum over links of (bytes / bandwidth + latency)

and go through a ring of buffers: with two of them, beside the layer before. With `prefetch: step` transfers start as
early as the step allows: links work at the same time, and all passes hide what the slowest of them takes.

    forward     weights come in, experts that tokens picked, keys and values (decode); activations go out
    backward    weights and experts come in again, also where recomputation reads them, with activations;
                gradients go out, and come in before to be added to
    update      optimizer states come in and go out; or, on the host's processor, gradients go out and weights come in

Load/store tiers (CXL) are not copied. Kernels read a share f of all bytes at their bandwidth
(`kernel_bandwidth_bytes_per_s`):

    1 / B' = (1 - f) / B + f / B_tier  (serial)        1 / B' = max((1 - f) / B, f / B_tier)  (parallel)

State that is placed alike is one pool of pages, and a kernel that moves some of it finds as much of it outside as there
is of all. Optimizer states that are placed apart from weights are another pool, which the update alone reads.

**Memory pools** (`pool_seconds`): ports of accelerators, links of nodes to the pool's switches, memory behind them.

    memory groups ══ switches ══ node link ══ switch of the node ══ port of each accelerator

All N accelerators move as much at the same time, n of them behind each node's link. Chunks are on all three ways at the
same time, so that the slowest bounds a transfer. Of P bytes at each port

    port          P / b
    node link     P n / (r B_node)            r  accelerators of a node that want the same bytes
    groups        M N / (G B_group)           M  bytes that memory reads or writes for each accelerator

With switches that gather, the n accelerators of a node that are replicas of each other get the same bytes (r of them),
and memory reads every shard once: M is the shard as it is stored. With switches that reduce, gradients go the other
way, and memory adds them up: M is the shard written, and read before where there is something to add to. Otherwise
r = 1 and M = P. Words: Won et al., ASTRA-sim2.0, ISPASS 2023, arXiv 2303.14006, which simulates such a pool; the
formulas are ours.

**A ring of buffers** that the blocks of a pass share (`BufferRing`, `pass_s`).
Of the blocks that move anything, each takes the buffer of the one r before it. What that one left is stored, and its
own state fetched, one transfer after the other; blocks that move nothing need no buffer:

    x_i = max(x_i-1, c_i-r) + t_i        x, c  when a block's transfer and its compute end      r  buffers
    c_i = max(c_i-1, x_i)   + T_i        t, T  seconds of both

A pass has runs of equal blocks. What a run of n makes of the times before it is the longest path through these sums,
which only needs the paths that turn at the ends of the run:

    c_n = max(c + n T,  X + n T,  X + (n - 1) t + T,  m + (n - r + 1) t + T,
              c + 2 T + (n - r) t,  c + (n - r + 1) T + t)

with c and x before it, X = max(x, h) + t the end of its first transfer, m and h the ends of the last block that moved
something and of the one r - 1 before that. One buffer is serial: c_n = max(c, X) + T + (n - 1) (t + T).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cosmic.base.numeric import Condition, Numeric, larger, sum_of
from cosmic.design.design_batch import Batch, batch_of, none_to_nan
from cosmic.design.design_point import DesignPoint
from cosmic.design.memory_layer import HBM
from cosmic.design.model_layer import is_moe
from cosmic.design.workload_layer import AXES
from cosmic.network.mesh_spans import axis_spans, axis_strides, folded_spans
from cosmic.step.block_memory import cache_bytes, recomputed_layers_of, table_use
from cosmic.step.device_memory import Footprint, memory_of, stage_footprints
from cosmic.step.stage_memory import ModelMemory, StageMemory, is_training_batch, model_memory
from cosmic.step.state_placement import (
    BlockStates,
    PlacedState,
    active_expert_share,
    block_states,
    cast_from_master,
    expert_cache_hits,
    is_state_placed,
    state_tiers,
)
from cosmic.step.streaming import optimizer_bytes_per_parameter
from cosmic.workload.mapping_rules import IN_SWITCH_STATES, switched_in
from cosmic.workload.mesh_sizes import expert_degrees, folded_order, microbatches
from cosmic.workload.operator_graph import PASSES

OPTIMIZER_STATES = ("optimizer", "expert_optimizer")
UPDATED_STATES = (*OPTIMIZER_STATES, "weights", "experts", "gradients", "expert_gradients")
"""Classes of state that the update reads or writes."""


def kernel_bandwidth_bytes_per_s(batch: Batch, *, update: bool = False) -> Numeric:
    """Return the bandwidth that the kernels of layers, or of the *update*, see: of HBM and of load/store tiers."""
    hbm_rate: Numeric = batch["memory.bandwidth"]
    tiers = batch.base.memory.tiers
    direct = [index for index, tier in enumerate(tiers) if tier.access == "load_store"]
    if not direct or not is_state_placed(batch.base):
        return hbm_rate
    memory = memory_of(batch)
    in_tiers, in_hbm = _readable_bytes(batch, memory, [tiers[tier].name for tier in direct], update)
    total = in_hbm + sum_of(in_tiers)
    return expanded_bytes_per_s(
        hbm_rate,
        [(size / total, batch[f"memory.tiers.{tier}.bandwidth"]) for tier, size in zip(direct, in_tiers, strict=True)],
        parallel=batch.base.memory.expansion == "parallel",
    )


def _readable_bytes(
    batch: Batch, memory: Footprint, names: Sequence[str], update: bool
) -> tuple[list[Numeric], Numeric]:
    """Return the bytes that may be read, in each of the tiers *names* and in HBM."""
    placed, parts = memory.placed, memory.parts
    assert placed is not None  # noqa: S101  state is placed
    in_tiers = [placed.used[name] for name in names]
    in_hbm = memory.peak
    states = OPTIMIZER_STATES if is_moe(batch.base.model) else OPTIMIZER_STATES[:1]
    if all(state_tiers(batch.base, state) == state_tiers(batch.base, "weights") for state in states):
        return in_tiers, in_hbm
    if update:
        updated = [
            sum_of((placed.homes.get((name, updated_state), 0.0) for updated_state in UPDATED_STATES), 0.0)
            for name in names
        ]
        return updated, parts["weights"] + parts["gradients"] + parts["optimizer"]
    optimizer_bytes = [
        sum_of((placed.homes.get((name, optimizer_state), 0.0) for optimizer_state in OPTIMIZER_STATES), 0.0)
        for name in names
    ]
    return [
        size - optimizer_size for size, optimizer_size in zip(in_tiers, optimizer_bytes, strict=True)
    ], in_hbm - parts["optimizer"]


def expanded_bytes_per_s(
    hbm_rate: Numeric, shares: Sequence[tuple[Numeric, Numeric]], *, parallel: bool = False
) -> Numeric:
    """Return the bandwidth of memory with *shares* of its bytes in tiers of other bandwidths.

    COMET's expansion: half of all bytes at a quarter of the bandwidth take 2.5 times as long, or twice as long where
    both memories are read at the same time.

    >>> expanded_bytes_per_s(100.0, [(0.5, 25.0)]), expanded_bytes_per_s(100.0, [(0.5, 25.0)], parallel=True)
    (40.0, 50.0)
    """
    hbm_s = (1 - sum_of((share for share, _ in shares), 0.0)) / hbm_rate
    if not parallel:
        return 1 / sum_of((share / rate for share, rate in shares), hbm_s)
    slowest = hbm_s
    for share, rate in shares:
        slowest = larger(slowest, share / rate)
    return 1 / slowest


def pool_seconds(
    batch: Batch, index: int, port_bytes: Numeric, memory_bytes: Numeric, replicas_in_node: Numeric = 1.0
) -> Numeric:
    """Return the seconds, without latency, of a transfer between each accelerator and the pool that is a tier."""
    tier = f"memory.tiers.{index}"
    in_node = np.minimum(batch[f"{tier}.pool.npus_per_node"], batch.npus)
    port = port_bytes / batch[f"{tier}.bandwidth"]
    node = port_bytes * in_node / (replicas_in_node * batch[f"{tier}.pool.node_bandwidth"])
    rate = batch[f"{tier}.pool.groups"] * batch[f"{tier}.pool.group_bandwidth"]
    return larger(larger(port, node), memory_bytes * batch.npus / rate)


def replicas_in_node(batch: Batch, index: int, *, experts: bool) -> Numeric:
    """Return how many accelerators of a node hold shards of the same weights: ranks of dp and cp, of experts edp."""
    node = (np.minimum(batch[f"memory.tiers.{index}.pool.npus_per_node"], batch.npus),)
    degrees: dict[str, Numeric] = {axis: batch[f"workload.{axis}"] for axis in AXES}
    placed = axis_strides(batch.base.workload.placement, degrees)
    if not experts:
        replicas, contexts = (axis_spans(node, placed[axis], degrees[axis])[0].members for axis in ("dp", "cp"))
        return replicas * contexts
    expert_sizes = expert_degrees(batch)
    order = [(placed[axis], degrees[axis]) for axis in folded_order(batch.base.workload.placement)]
    expert_ranks = expert_sizes["etp"] * expert_sizes["ep"]
    return folded_spans(node, order, expert_ranks, expert_ranks * expert_sizes["edp"])[0].members


ROWS = "rows"
"""Of embedding tables, those that are looked up: they live with weights, and travel also where all layers stay."""
Links = Sequence[Numeric]
"""Bytes that cross the link of each tier that copies."""


@dataclass(frozen=True, slots=True)
class OuterUpdate:
    """What the update of weights takes beyond the accelerator."""

    links: Links
    """Bytes that cross each link."""
    links_s: Numeric
    """On the slowest link."""
    processor_s: Numeric
    """On the processor of the host."""
    in_hbm: Numeric
    """Share of the weights that the accelerator updates from states in HBM, or from states that come to it."""
    gradient_links: Links
    """Bytes of gradients that go to the host's processor in the last backward pass."""


class TierTraffic:
    """Traffic with the tiers of designs that place state, and that share one plan."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.model: ModelMemory = model_memory(batch)
        memory = batch.base.memory
        self.copied = [index for index, tier in enumerate(memory.tiers) if tier.access == "copy"]
        self.names = [memory.tiers[index].name for index in self.copied]
        self.count = microbatches(batch)
        self.trains = is_training_batch(batch)
        self.ahead = memory.prefetch != "step"
        self._time_factor: Numeric = batch["compute.time_factor"]

    @property
    def passes(self) -> tuple[str, ...]:
        """The passes that a microbatch has."""
        return PASSES if self.trains else PASSES[:1]

    @property
    def placed(self) -> PlacedState:
        """Where state lives on the fullest device: the others place as much."""
        placement = memory_of(self.batch).placed
        assert placement is not None  # noqa: S101  a caller asks only where state is placed
        return placement

    # ----------------------------------------------------------------------------------------------- bytes

    def loads(self, name: str, phase: str) -> Links:
        """Return the bytes of one block that come in over each link before a pass of one microbatch."""
        return self.links(self._loaded(name, phase))

    def _loaded(self, name: str, phase: str) -> dict[str, Numeric]:
        """Return the bytes of each class that come in; weights that switches gather are those of all replicas."""
        dense, experts = (block_states(self.model, name, experts=of_experts, read=True) for of_experts in (False, True))
        rows = table_use(self.batch)
        looked_up = rows.touched * rows.width * (rows.recipe.weight if rows.recipe else 0.0) / self.count
        moved: dict[str, Numeric] = {
            "weights": dense.weights,
            ROWS: looked_up,
            "experts": active_expert_share(self.batch) * self._expert_bytes(experts),
        }
        if phase == "backward":
            on_host = self.batch.base.workload.optimizer_device == "cpu"  # who adds to them where they are
            read_back = 0.0 if on_host else 1 - 1 / self.count  # the first microbatch has nothing to add to
            moved |= self._gradients(dense, experts, read_back) | {"activations": self._activations(name)}
        if self.batch.base.workload.task == "decode":
            moved["kv_cache"] = self._cache(name)
        unsharded = {"weights": dense.used, "experts": active_expert_share(self.batch) * experts.used}
        summed = dict.fromkeys(("gradients", "expert_gradients"), 0.0)  # switches add to what is there
        replaced = {state: size for state, size in (unsharded | summed).items() if state in moved}
        return moved | {state: size for state, size in replaced.items() if state in self._switched}

    def stores(self, name: str, phase: str) -> Links:
        """Return the bytes of one block that go out over each link after a pass of one microbatch."""
        return self.links(self._stored(name, phase))

    def _stored(self, name: str, phase: str) -> dict[str, Numeric]:
        """Return the bytes of each class that go out; gradients that switches reduce are those of all replicas."""
        dense, experts = (block_states(self.model, name, experts=of_experts) for of_experts in (False, True))
        if phase == "backward":
            moved = self._gradients(dense, experts, 1.0)
            return {state: size * self._replicas(state) if state in self._switched else size
                    for state, size in moved.items()}  # fmt: skip
        if self.trains:
            return {"activations": self._activations(name)}
        return {"kv_cache": self._cache(name)} if self.batch.base.workload.task == "prefill" else {}

    @cached_property
    def _switched(self) -> dict[str, int]:
        """The classes that switches of a pool gather or reduce, and the number of its tier."""
        tiers = {state: switched_in(self.batch.base, state) for state in IN_SWITCH_STATES}
        return {state: tier for state, tier in tiers.items() if tier is not None}

    def _replicas(self, state: str) -> Numeric:
        """Return the ranks over which a class of state is sharded."""
        sizes = self.model.sizes
        return sizes["edp"] if state.startswith("expert") else sizes["dp"] * sizes["cp"]

    def _memory_share(self, state: str, name: str) -> Numeric:
        """Return the bytes that a pool's memory moves for each one at a port, where switches gather or reduce."""
        if state.endswith("gradients"):
            # the first of n microbatches writes, the others read and write: (1 + 2 (n - 1)) / n
            return (2 - 1 / self.count) / self._replicas(state)
        states = block_states(self.model, name, experts=state == "experts")
        return states.weights / np.maximum(states.used, 1e-9)

    def link_time_bytes(self, moved: Mapping[str, Numeric], name: str) -> Links:
        """Return the bytes that the bandwidth of each link would move in the time that so many of each class take.

        They are those that cross it, but for a pool, whose other parts may be slower than ports. Of the block *name*,
        switches gather and reduce.
        """
        pools = [tier for tier in self.copied if self.batch.base.memory.tiers[tier].pool is not None]
        if not pools:
            return self.links(moved)
        total: list[Numeric] = [0.0] * len(self.copied)
        for state, size in moved.items():
            for position, (tier, crossing) in enumerate(zip(self.copied, self.links({state: size}), strict=True)):
                total[position] = total[position] + (
                    self._pool_time_bytes(tier, state, crossing, name) if tier in pools else crossing
                )
        return total

    def _pool_time_bytes(self, tier: int, state: str, crossing: Numeric, name: str) -> Numeric:
        rate: Numeric = self.batch[f"memory.tiers.{tier}.bandwidth"]
        if self._switched.get(state) != tier:
            return pool_seconds(self.batch, tier, crossing, crossing) * rate
        replicas = replicas_in_node(self.batch, tier, experts=state.startswith("expert"))
        return pool_seconds(self.batch, tier, crossing, crossing * self._memory_share(state, name), replicas) * rate

    def _gradients(self, dense: BlockStates, experts: BlockStates, times: Numeric) -> dict[str, Numeric]:
        active = active_expert_share(self.batch)
        return {"gradients": times * dense.gradients, "expert_gradients": times * active * experts.gradients}

    def _expert_bytes(self, experts: BlockStates) -> Numeric:
        if not cast_from_master(self.batch.base, self.model.recipe.master):
            return experts.weights
        return experts.used * (self.model.recipe.master / self.model.recipe.weight)

    def _activations(self, name: str) -> Numeric:
        """Return the bytes that a layer keeps of one microbatch; on average where some layers recompute."""
        if name not in self.model.layers:
            return 0.0
        size = self.model.saved_bytes(name)
        share = recomputed_layers_of(self.batch)
        if share is None:
            return size
        stage = StageMemory(self.model, memory_of(self.batch).stage)
        offloaded_share = np.minimum(1.0, share / np.maximum(stage.layer_count, 1.0))
        return offloaded_share * size + (1 - offloaded_share) * self.model.saved_bytes(name, without_recomputation=True)

    def _cache(self, name: str) -> Numeric:
        if name not in self.model.layers:
            return 0.0
        counts = {block: float(block == name) for block in self.model.blocks}
        return cache_bytes(self.batch, counts, self.model.blocks, self.model.recipe) / self.count

    def links(self, moved: Mapping[str, Numeric]) -> Links:
        """Return the bytes that cross each link, if so many of each class travel; only what is out there does."""
        return _bytes_across_links([sum_of((size * self._share(state, name) for state, size in moved.items()), 0.0)
                          for name in self.names])  # fmt: skip

    def _share(self, state: str, tier: str) -> Numeric:
        """Return the share of a class that is fetched from a tier: what lives there, and is not cached nearer."""
        placed = self.placed
        if state == ROWS:
            return placed.share("weights", tier)
        if state not in placed.sizes:
            return 0.0
        stored_state = "expert_optimizer" if state == "experts" and self._cast else state
        share = placed.share(stored_state, tier)
        if state == "experts":
            cached, position = expert_cache_hits(self.batch), self.names.index(tier)
            further = placed.share(stored_state, self.names[position + 1]) if position + 1 < len(self.names) else 0.0
            share = (1 - cached) * share + cached * further
        return share * placed.streams[state]

    @property
    def _cast(self) -> bool:
        return cast_from_master(self.batch.base, self.model.recipe.master)

    # --------------------------------------------------------------------------------------------- seconds

    def seconds(self, links: Links) -> Numeric:
        """Return the seconds of a transfer over links: one after the other if a layer ahead, else the slowest."""
        total_s: Numeric = 0.0
        for tier, size in zip(self.copied, links, strict=True):
            link_s = size / self.batch[f"memory.tiers.{tier}.bandwidth"]
            if self.ahead:
                late = self.batch[f"memory.tiers.{tier}.latency"]
                total_s = total_s + link_s + np.where(np.asanyarray(size) > 0, late, 0.0)
            else:
                total_s = larger(total_s, link_s)
        return total_s * self._time_factor

    def load_s(self, name: str, phase: str) -> Numeric:
        """Return the seconds in which the state of one block comes in for a pass of one microbatch."""
        return self.batch.once(
            (TierTraffic.load_s, name, phase),
            lambda: self.seconds(self.link_time_bytes(self._loaded(name, phase), name)),
        )

    def store_s(self, name: str, phase: str) -> Numeric:
        """Return the seconds in which the state of one block goes out after a pass of one microbatch."""
        return self.batch.once(
            (TierTraffic.store_s, name, phase),
            lambda: self.seconds(self.link_time_bytes(self._stored(name, phase), name)),
        )

    def block_s(self, name: str, phase: str) -> Numeric:
        """Return the seconds of one block's transfers in a pass of one microbatch, both ways together."""
        return self.load_s(name, phase) + self.store_s(name, phase)

    def block(self, name: str, phase: str) -> Links:
        """Return the bytes of one block that cross each link in a pass of one microbatch, both ways together."""
        return [sum_of(pair) for pair in zip(self.loads(name, phase), self.stores(name, phase), strict=True)]

    def passes_s(self, counts: Mapping[str, Numeric]) -> Numeric:
        """Return the seconds of all transfers of a stage's passes, with links that work at the same time."""
        total: list[Numeric] = [0.0] * len(self.names)
        for name, count in counts.items():
            for phase in self.passes:
                directions = (self.link_time_bytes(moved(name, phase), name) for moved in (self._loaded, self._stored))
                total = [
                    sum_ + self.count * count * sum_of(sizes) for sum_, *sizes in zip(total, *directions, strict=True)
                ]
        gradients = self._shared(self.update.gradient_links)
        return self.seconds([sum_of(pair) for pair in zip(total, gradients, strict=True)])

    @property
    def gradients_out_s(self) -> Numeric:
        """The seconds in which gradients go to the host's processor."""
        return self.seconds(self._shared(self.update.gradient_links))

    def updated(self, name: str) -> Numeric:
        """Return the weights of one block that the device updates."""
        return sum_of(block_states(self.model, name, experts=of_experts).updated for of_experts in (False, True))

    def _shared(self, links: Links) -> Links:
        """Return what the bandwidth of each link would move in the time of so many bytes: more, of a busy pool."""
        tiers = self.batch.base.memory.tiers
        return [
            size if tiers[tier].pool is None
            else pool_seconds(self.batch, tier, size, size) * self.batch[f"memory.tiers.{tier}.bandwidth"]
            for tier, size in zip(self.copied, links, strict=True)
        ]  # fmt: skip

    # ---------------------------------------------------------------------------------------------- update

    @property
    def update(self) -> OuterUpdate:
        """What the update takes beyond the accelerator, on the fullest device."""
        return self.batch.once(OuterUpdate, self._update)

    def _update(self) -> OuterUpdate:
        none = [0.0] * len(self.names)
        if not self.trains:
            return OuterUpdate(none, 0.0, 0.0, 1.0, none)
        stage = StageMemory(self.model, memory_of(self.batch).stage)
        states = {
            experts: {name: block_states(self.model, name, experts=experts) for name in self.model.blocks}
            for experts in (False, True)
        }
        active = active_expert_share(self.batch)
        tables = table_use(self.batch)
        moved: dict[str, Numeric] = {}
        for state, experts, kind in (
            ("optimizer", False, "optimizer"),
            ("expert_optimizer", True, "optimizer"),
            ("gradients", False, "gradients"),
            ("expert_gradients", True, "gradients"),
        ):
            size = stage.total(lambda name, kind=kind, experts=experts: getattr(states[experts][name], kind))  # type: ignore[misc]
            times = 2.0 if kind == "optimizer" else 1.0
            moved[state] = times * size * (active if experts else 1.0)
        # row-wise Adagrad keeps one fp32 number for each touched row, read and written
        moved["optimizer"] = moved["optimizer"] + 2.0 * tables.touched * 4.0
        if self.batch.base.workload.optimizer_device == "gpu" or not self.copied:
            links = self.links(moved)
            return OuterUpdate(links, self._slowest(links), 0.0, 1.0, none)
        return self._on_processor(stage, states, moved, active)

    def _on_processor(
        self,
        stage: StageMemory,
        states: Mapping[bool, Mapping[str, BlockStates]],
        moved: Mapping[str, Numeric],
        active: Numeric,
    ) -> OuterUpdate:
        """Return the update by the host's processor: states stay there, and come to it from tiers further out."""
        recipe = self.model.recipe
        bytes_per_parameter = optimizer_bytes_per_parameter(
            recipe.weight, recipe.gradient, recipe.moments / 2, recipe.master
        )
        updated_outside: Numeric = 0.0
        updated_total: Numeric = 0.0
        down: Numeric = 0.0
        for experts, state in ((False, "optimizer"), (True, "expert_optimizer")):
            elements = stage.total(lambda name, experts=experts: states[experts][name].updated)  # type: ignore[misc]
            outer_share = sum_of((self.placed.share(state, name) for name in self.names), 0.0)
            touched = elements * (active if experts else 1.0)
            updated_outside = updated_outside + outer_share * touched
            updated_total = updated_total + touched
            gradient_state = "expert_gradients" if experts else "gradients"
            already = sum_of((self.placed.share(gradient_state, name) for name in self.names), 0.0) \
                if gradient_state in self.placed.sizes else 0.0  # fmt: skip
            down = down + outer_share * (1 - already) * touched * recipe.gradient
        state_links = self.links({name: moved[name] for name in ("optimizer", "expert_optimizer")})
        links = [updated_outside * recipe.weight, *state_links[1:]]
        # NaN where the host states no bandwidth: a rule of the design says so
        rate = none_to_nan(self.batch[f"memory.tiers.{self.copied[0]}.processor_bandwidth"])
        return OuterUpdate(
            links,
            self._slowest(links),
            updated_outside * bytes_per_parameter / rate * self._time_factor,
            1 - updated_outside / np.maximum(updated_total, 1.0),
            [down, *(0.0 for _ in self.names[1:])],
        )

    def _slowest(self, links: Links) -> Numeric:
        """Return the seconds of a long transfer in many pieces, which the links carry at the same time."""
        slowest_s: Numeric = 0.0
        for tier, size in zip(self.copied, self._shared(links), strict=True):
            late = np.where(np.asanyarray(size) > 0, self.batch[f"memory.tiers.{tier}.latency"], 0.0)
            slowest_s = larger(slowest_s, size / self.batch[f"memory.tiers.{tier}.bandwidth"] + late)
        return slowest_s * self._time_factor

    # ----------------------------------------------------------------------------------------------- totals

    def step_bytes(self) -> list[Numeric]:
        """Return the bytes that cross the link of each tier in one step of the fullest device, both ways together."""
        counts = StageMemory(self.model, memory_of(self.batch).stage).counts
        tier_bytes: list[Numeric] = [0.0 for _ in self.batch.base.memory.tiers]
        for name, count in counts.items():
            for phase in self.passes:
                for tier, size in zip(self.copied, self.block(name, phase), strict=True):
                    tier_bytes[tier] = tier_bytes[tier] + self.count * count * size
        for links in (self.update.gradient_links, self.update.links):
            for tier, size in zip(self.copied, links, strict=True):
                tier_bytes[tier] = tier_bytes[tier] + size
        return tier_bytes


def _bytes_across_links(homes: Sequence[Numeric]) -> Links:
    """Return what crosses each link of a chain from what lives in each tier.

    >>> _bytes_across_links([5.0, 2.0])
    [7.0, 2.0]
    """
    return [sum_of(homes[index:], 0.0) for index in range(len(homes))]


def tier_traffic(batch: Batch) -> TierTraffic | None:
    """Return the traffic with tiers, worked out once for a batch; None where no state is placed."""
    if not is_state_placed(batch.base):
        return None
    return batch.once(TierTraffic, lambda: TierTraffic(batch))


Numbers = Mapping[str, Numeric]
"""Of each block: how many there are, or the seconds of one."""
FILLED, TURNS = 2, 2
"""Passes after which what they take repeats itself, and those over which it is measured."""


@dataclass(frozen=True, slots=True)
class BufferRing:
    """How far compute and transfers have come, in seconds."""

    computed: Numeric = 0.0
    linked: Numeric = 0.0
    """When the latest transfer ends."""
    moved: Numeric = 0.0
    """When the last block that moves something has computed."""
    oldest: Numeric = 0.0
    """When the one r - 1 before it had: the next block takes its buffer."""

    def after(self, n: Numeric, compute_s: Numeric, transfer_s: Numeric, buffers: Numeric) -> BufferRing:
        """Return the ring after a run of *n* blocks of *compute_s* seconds whose transfers *transfer_s* so long.

        A part of a block is a block that has so much less to do.
        """
        blocks, share = np.maximum(n, 1.0), np.minimum(n, 1.0)
        compute_s, transfer_s = share * compute_s, share * transfer_s
        moves = np.asanyarray(transfer_s) > 0
        computed = np.where(
            moves, self._computed(blocks, compute_s, transfer_s, buffers), self.computed + blocks * compute_s
        )
        linked = np.where(moves, self._linked(blocks, compute_s, transfer_s, buffers), self.linked)
        moved = np.where(moves, computed, self.moved)
        oldest_end = self._computed(np.maximum(blocks - buffers + 1, 1.0), compute_s, transfer_s, buffers)
        oldest = np.where(blocks >= buffers, oldest_end, self._ended(buffers - 1 - blocks, buffers))
        oldest = np.where(moves, oldest, self.oldest)
        return BufferRing(computed, linked, moved, oldest)

    def _ended(self, distance: Numeric, buffers: Numeric) -> Numeric:
        """Return when the block so many *distance* had computed: evenly between those that are known."""
        share = np.clip(distance, 0.0, None) / np.maximum(buffers - 1, 1.0)
        return self.moved + share * (self.oldest - self.moved)

    def _computed(self, n: Numeric, compute_s: Numeric, transfer_s: Numeric, buffers: Numeric) -> Numeric:
        first = np.maximum(self.linked, self.oldest) + transfer_s
        beyond = np.maximum(n - buffers, 0.0)
        latest = np.maximum(np.maximum(self.computed, first) + n * compute_s, first + (n - 1) * transfer_s + compute_s)
        freed = self._ended(buffers - n, buffers)
        latest = np.maximum(latest, freed + (beyond + 1) * transfer_s + compute_s)
        later = self.computed + np.maximum(2 * compute_s + beyond * transfer_s, (beyond + 1) * compute_s + transfer_s)
        latest = np.where(beyond > 0, np.maximum(latest, later), latest)
        serial = np.maximum(self.computed, first) + compute_s + (n - 1) * (transfer_s + compute_s)
        return np.where(np.asanyarray(buffers) == 1, serial, latest)

    def _linked(self, n: Numeric, compute_s: Numeric, transfer_s: Numeric, buffers: Numeric) -> Numeric:
        beyond = np.maximum(n - buffers, 0.0)
        latest = np.maximum(self.linked, self.oldest) + n * transfer_s
        latest = np.maximum(latest, self._ended(buffers - n, buffers) + (beyond + 1) * transfer_s)
        last = self._computed(np.maximum(beyond, 1.0), compute_s, transfer_s, buffers) + transfer_s
        last = np.maximum(last, self.computed + compute_s + beyond * transfer_s)
        return np.where(beyond > 0, np.maximum(latest, last), latest)


def filled_pass_s(
    sequence: Sequence[str], counts: Numbers, compute_s: Numbers, transfer_s: Numbers, buffers: Numeric
) -> Numeric:
    """Return the seconds of a pass of a stage that has waited for its input, with all its buffers filled.

    Of three layers that take 2 s, two are there; the third comes when the first has left its buffer.

    >>> given = ["layer"], {"layer": 3}, {"layer": 2.0}, {"layer": 5.0}, 2
    >>> float(filled_pass_s(*given)), float(pass_s(*given))
    (9.0, 15.0)
    """
    long_ago = -sum_of((counts[name] * (compute_s[name] + transfer_s[name]) for name in sequence), 0.0)
    ring = BufferRing(0.0, long_ago, long_ago, long_ago)
    for name in sequence:
        ring = ring.after(counts[name], compute_s[name], transfer_s[name], buffers)
    return ring.computed


def pass_s(
    sequence: Sequence[str], counts: Numbers, compute_s: Numbers, transfer_s: Numbers, buffers: Numeric
) -> Numeric:
    """Return the seconds of a pass that follows others like it; of each block its *compute_s* seconds, and its transfers'.

    Three layers whose stores take 5 s keep a link busy for 15 s. With two buffers 10 s of compute hide in them.

    >>> own, took = {"layer": 2.0, "head": 4.0}, {"layer": 5.0, "head": 0.0}
    >>> float(pass_s(["layer", "head"], {"layer": 3, "head": 1}, own, took, 2))
    15.0
    >>> float(pass_s(["layer", "head"], {"layer": 3, "head": 1}, own, took, 1))
    21.0
    """
    ring, start = BufferRing(), BufferRing()
    for rounds in range(FILLED + TURNS):
        start = ring if rounds == FILLED else start
        for name in sequence:
            ring = ring.after(counts[name], compute_s[name], transfer_s[name], buffers)
    seconds: Numeric = (ring.computed - start.computed) / TURNS
    return seconds


def first_wait_s(
    sequence: Sequence[str], counts: Numbers, compute_s: Numbers, loads: Numbers, transfer_s: Numbers, serial: Condition
) -> Numeric:
    """Return what the first pass of a step waits for longer than those after it: no other came before.

    The first block that moves something is fetched beside those before it. In later passes the last that moves
    something runs beside it too, if it has a buffer of its own, and all after that.
    """
    load: Numeric = 0.0
    earlier_s: Numeric = 0.0
    ahead: Numeric = 0.0
    later_s: Numeric = 0.0
    any_moves: Condition = False
    for name in sequence:
        moves = (np.asanyarray(transfer_s[name]) > 0) & (np.asanyarray(counts[name]) > 0)
        begins = moves & np.logical_not(any_moves)
        load, earlier_s = np.where(begins, loads[name], load), np.where(begins, ahead, earlier_s)
        any_moves = any_moves | moves
        ahead = ahead + counts[name] * compute_s[name]
        later_s = np.where(moves, np.where(serial, 0.0, compute_s[name]), later_s + counts[name] * compute_s[name])
    wait: Numeric = np.minimum(load, earlier_s + later_s) - np.minimum(load, earlier_s)
    return wait


def late_gradients_s(
    traffic: TierTraffic, sequence: Sequence[str], counts: Numbers, compute_s: Numbers, slack: Numeric
) -> Numeric:
    """Return what a last backward pass with *slack* does not hide of gradients that go to the host's processor.

    Those of the first block come when it has run, and nothing hides those of the last.
    """
    first_s: Numeric = 0.0
    last: Numeric = 0.0
    for later_block, block in zip(reversed(sequence), sequence, strict=True):
        first_s = np.where(np.asanyarray(counts[later_block]) > 0, compute_s[later_block], first_s)
        last = np.where(np.asanyarray(counts[block]) > 0, traffic.updated(block), last)
    updated_total = sum_of((count * traffic.updated(name) for name, count in counts.items()), 0.0)
    sent, hidden_s = traffic.gradients_out_s, np.maximum(0.0, slack - first_s)
    late_s: Numeric = np.maximum(sent - hidden_s, sent * np.minimum(1.0, last / np.maximum(updated_total, 1.0)))
    return late_s


GIB = 2**30
TOTAL_KEYS = ("capacity_bytes", "used_bytes", "traffic_bytes")
"""Keys of a tier's row of `tier_metrics`; the others are what it holds."""


def full_tiers(point: DesignPoint) -> tuple[str, ...]:
    """Return for each tier that some stage overfills a sentence: how much it would hold, and of what."""
    sentences: dict[str, str] = {}
    for stage in stage_footprints(point):
        for tier in point.memory.tiers:
            contents = {} if stage.placed is None else bytes_in_tier(stage, tier.name)
            needed = sum(contents.values())
            if needed > tier.capacity_bytes and tier.name not in sentences:
                largest = sorted(contents.items(), key=lambda item: -item[1])[:3]
                parts = ", ".join(f"{size / GIB:.3g} {name}" for name, size in largest if size)
                room = f"{tier.capacity_bytes / GIB:.4g} GiB per NPU"
                sentences[tier.name] = f"{tier.name} is full: needs {needed / GIB:.4g} GiB of {room}: {parts}"
        total = float(stage.must_fit)
        if total > point.memory.left_bytes and HBM not in sentences:
            room = f"{point.memory.left_bytes / GIB:.4g} GiB per NPU"
            sentences[HBM] = f"stage {int(stage.stage) + 1} needs {total / GIB:.4g} GiB of {room} of HBM"
    return tuple(sentences.values())


def bytes_in_tier(memory: Footprint, tier: str) -> dict[str, float]:
    """Return the bytes that an outer tier holds of each class of state, and of cached experts."""
    if memory.placed is None:
        return {}
    homes = {state: float(size) for (home_tier, state), size in memory.placed.homes.items() if home_tier == tier}
    return homes | {"cached experts": float(memory.placed.copies[tier])}


def tier_metrics(point: DesignPoint) -> dict[str, dict[str, float]]:
    """Return by tier its capacity, what it holds of each class of state, and what crosses its link in a step.

    All tiers of a design that has some; HBM has the components of its footprint. Empty where nothing is out there.
    """
    if not point.memory.tiers or not (is_state_placed(point) or point.workload.offload):
        return {}
    batch = batch_of(point)
    memory, traffic = memory_of(batch), tier_traffic(batch)
    rows = {
        HBM: _tier_row(point.memory.capacity_bytes, {name: float(size) for name, size in memory.parts.items()}, 0.0)
    }
    if traffic is None:
        return rows | _offloaded_tiers(point, memory)
    sent = traffic.step_bytes()
    for index, tier in enumerate(point.memory.tiers):
        rows[tier.name] = _tier_row(tier.capacity_bytes, bytes_in_tier(memory, tier.name), float(sent[index]))
    return rows


def _tier_row(capacity: float, contents: dict[str, float], traffic: float) -> dict[str, float]:
    used = {name: size for name, size in contents.items() if size}
    return {"capacity_bytes": capacity, "used_bytes": sum(used.values()), "traffic_bytes": traffic, **used}


def _offloaded_tiers(point: DesignPoint, memory: Footprint) -> dict[str, dict[str, float]]:
    """Return the same of what a workload offloads: tiers are filled one after the other."""
    remaining = {name: float(memory.offloaded.get(name, 0.0)) for name in ("weights", "activations", "optimizer")}
    rows: dict[str, dict[str, float]] = {}
    beyond = [float(sum(memory.tier_traffic[index:])) for index in range(len(memory.tier_traffic))]
    for index, tier in enumerate(point.memory.tiers):
        room, contents = tier.capacity_bytes, {}
        for name, size in remaining.items():
            contents[name] = min(size, room)
            room, remaining[name] = room - contents[name], size - contents[name]
        rows[tier.name] = _tier_row(tier.capacity_bytes, contents, beyond[index] if beyond else 0.0)
    return rows
