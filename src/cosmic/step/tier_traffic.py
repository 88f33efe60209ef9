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
from cosmic.design.design_batch import Batch, none_to_nan
from cosmic.design.model_layer import is_moe
from cosmic.design.workload_layer import AXES
from cosmic.network.mesh_spans import axis_spans, axis_strides, folded_spans
from cosmic.step.device_memory import Footprint, memory_of
from cosmic.step.embedding_tables import table_use
from cosmic.step.kv_cache import cache_bytes
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
from cosmic.workload.mapping_rules import SWITCHED, switched_in
from cosmic.workload.mesh_sizes import expert_degrees, folded_order, microbatches
from cosmic.workload.operator_graph import PASSES

# --------------------------------------------------------------------------------------
# Tiers that kernels read in place (CXL): the bandwidth that they see
# --------------------------------------------------------------------------------------

OPTIMIZER_STATES = ("optimizer", "expert_optimizer")
UPDATED_STATES = (*OPTIMIZER_STATES, "weights", "experts", "gradients", "expert_gradients")
"""Classes of state that the update reads or writes."""


def kernel_bandwidth_bytes_per_s(batch: Batch, *, update: bool = False) -> Numeric:
    """Return the bandwidth that the kernels of layers, or of the *update*, see: of HBM and of load/store tiers."""
    own: Numeric = batch["memory.bandwidth"]
    tiers = batch.base.memory.tiers
    direct = [index for index, tier in enumerate(tiers) if tier.access == "load_store"]
    if not direct or not is_state_placed(batch.base):
        return own
    memory = memory_of(batch)
    there, near = _readable_bytes(batch, memory, [tiers[place].name for place in direct], update)
    whole = near + sum_of(there)
    return expanded_bytes_per_s(
        own,
        [(each / whole, batch[f"memory.tiers.{place}.bandwidth"]) for place, each in zip(direct, there, strict=True)],
        parallel=batch.base.memory.expansion == "parallel",
    )


def _readable_bytes(
    batch: Batch, memory: Footprint, names: Sequence[str], update: bool
) -> tuple[list[Numeric], Numeric]:
    """Return the bytes that may be read, in each of the tiers *names* and in HBM."""
    placed, parts = memory.placed, memory.parts
    assert placed is not None  # noqa: S101  state is placed
    there = [placed.used[name] for name in names]
    near = memory.total - parts["allowance"]
    states = OPTIMIZER_STATES if is_moe(batch.base.model) else OPTIMIZER_STATES[:1]
    if all(state_tiers(batch.base, state) == state_tiers(batch.base, "weights") for state in states):
        return there, near
    if update:
        found = [
            sum_of((placed.homes.get((name, updated_state), 0.0) for updated_state in UPDATED_STATES), 0.0)
            for name in names
        ]
        return found, parts["weights"] + parts["gradients"] + parts["optimizer"]
    apart = [
        sum_of((placed.homes.get((name, optimizer_state), 0.0) for optimizer_state in OPTIMIZER_STATES), 0.0)
        for name in names
    ]
    return [size - less for size, less in zip(there, apart, strict=True)], near - parts["optimizer"]


def expanded_bytes_per_s(own: Numeric, shares: Sequence[tuple[Numeric, Numeric]], *, parallel: bool = False) -> Numeric:
    """Return the bandwidth of memory with *shares* of its bytes in tiers of other bandwidths.

    COMET's expansion: half of all bytes at a quarter of the bandwidth take 2.5 times as long, or twice as long where
    both memories are read at the same time.

    >>> expanded_bytes_per_s(100.0, [(0.5, 25.0)]), expanded_bytes_per_s(100.0, [(0.5, 25.0)], parallel=True)
    (40.0, 50.0)
    """
    near = (1 - sum_of((share for share, _ in shares), 0.0)) / own
    if not parallel:
        return 1 / sum_of((share / rate for share, rate in shares), near)
    slowest = near
    for share, rate in shares:
        slowest = larger(slowest, share / rate)
    return 1 / slowest


# --------------------------------------------------------------------------------------
# What a memory pool takes: ports of accelerators, links of nodes to the pool's switches, groups of memory behind them
# --------------------------------------------------------------------------------------


def pool_seconds(
    batch: Batch, place: int, port_bytes: Numeric, memory_bytes: Numeric, replicas_in_node: Numeric = 1.0
) -> Numeric:
    """Return the seconds, without latency, of a transfer between each accelerator and the pool that is a tier."""
    tier = f"memory.tiers.{place}"
    in_node = np.minimum(batch[f"{tier}.pool.npus_per_node"], batch.npus)
    port = port_bytes / batch[f"{tier}.bandwidth"]
    node = port_bytes * in_node / (replicas_in_node * batch[f"{tier}.pool.node_bandwidth"])
    rate = batch[f"{tier}.pool.groups"] * batch[f"{tier}.pool.group_bandwidth"]
    return larger(larger(port, node), memory_bytes * batch.npus / rate)


def replicas_in_node(batch: Batch, place: int, *, experts: bool) -> Numeric:
    """Return how many accelerators of a node hold shards of the same weights: ranks of dp and cp, of experts edp."""
    node = (np.minimum(batch[f"memory.tiers.{place}.pool.npus_per_node"], batch.npus),)
    degrees: dict[str, Numeric] = {axis: batch[f"workload.{axis}"] for axis in AXES}
    placed = axis_strides(batch.base.workload.placement, degrees)
    if not experts:
        replicas, contexts = (axis_spans(node, placed[axis], degrees[axis])[0].members for axis in ("dp", "cp"))
        return replicas * contexts
    of = expert_degrees(batch)
    order = [(placed[axis], degrees[axis]) for axis in folded_order(batch.base.workload.placement)]
    inside = of["etp"] * of["ep"]
    return folded_spans(node, order, inside, inside * of["edp"])[0].members


# --------------------------------------------------------------------------------------
# What travels between an accelerator and the tiers behind it, and the seconds that this takes
# --------------------------------------------------------------------------------------

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
        self.names = [memory.tiers[place].name for place in self.copied]
        self.count = microbatches(batch)
        self.trains = is_training_batch(batch)
        self.ahead = memory.prefetch != "step"
        self._longer: Numeric = batch["compute.time_factor"]

    @property
    def passes(self) -> tuple[str, ...]:
        """The passes that a microbatch has."""
        return PASSES if self.trains else PASSES[:1]

    @property
    def placed(self) -> PlacedState:
        """Where state lives on the fullest device: the others place as much."""
        found = memory_of(self.batch).placed
        assert found is not None  # noqa: S101  a caller asks only where state is placed
        return found

    # ----------------------------------------------------------------------------------------------- bytes

    def loads(self, name: str, phase: str) -> Links:
        """Return the bytes of one block that come in over each link before a pass of one microbatch."""
        return self.links(self._loaded(name, phase))

    def _loaded(self, name: str, phase: str) -> dict[str, Numeric]:
        """Return the bytes of each class that come in; weights that switches gather are those of all replicas."""
        own, experts = (block_states(self.model, name, experts=each, read=True) for each in (False, True))
        rows = table_use(self.batch)
        looked_up = rows.touched * rows.width * (rows.recipe.weight if rows.recipe else 0.0) / self.count
        moved: dict[str, Numeric] = {
            "weights": own.weights,
            ROWS: looked_up,
            "experts": active_expert_share(self.batch) * self._expert_bytes(experts),
        }
        if phase == "backward":
            there = self.batch.base.workload.optimizer_device == "cpu"  # who adds to them where they are
            again = 0.0 if there else 1 - 1 / self.count  # the first microbatch has nothing to add to
            moved |= self._gradients(own, experts, again) | {"activations": self._activations(name)}
        if self.batch.base.workload.task == "decode":
            moved["kv_cache"] = self._cache(name)
        whole = {"weights": own.used, "experts": active_expert_share(self.batch) * experts.used}
        summed = dict.fromkeys(("gradients", "expert_gradients"), 0.0)  # switches add to what is there
        replaced = {state: size for state, size in (whole | summed).items() if state in moved}
        return moved | {state: size for state, size in replaced.items() if state in self._switched}

    def stores(self, name: str, phase: str) -> Links:
        """Return the bytes of one block that go out over each link after a pass of one microbatch."""
        return self.links(self._stored(name, phase))

    def _stored(self, name: str, phase: str) -> dict[str, Numeric]:
        """Return the bytes of each class that go out; gradients that switches reduce are those of all replicas."""
        own, experts = (block_states(self.model, name, experts=each) for each in (False, True))
        if phase == "backward":
            moved = self._gradients(own, experts, 1.0)
            return {state: size * self._replicas(state) if state in self._switched else size
                    for state, size in moved.items()}  # fmt: skip
        if self.trains:
            return {"activations": self._activations(name)}
        return {"kv_cache": self._cache(name)} if self.batch.base.workload.task == "prefill" else {}

    @cached_property
    def _switched(self) -> dict[str, int]:
        """The classes that switches of a pool gather or reduce, and the number of its tier."""
        found = {state: switched_in(self.batch.base, state) for state in SWITCHED}
        return {state: place for state, place in found.items() if place is not None}

    def _replicas(self, state: str) -> Numeric:
        """Return the ranks over which a class of state is sharded."""
        sizes = self.model.sizes
        return sizes["edp"] if state.startswith("expert") else sizes["dp"] * sizes["cp"]

    def _held(self, state: str, name: str) -> Numeric:
        """Return the bytes that a pool's memory moves for each one at a port, where switches gather or reduce."""
        if state.endswith("gradients"):
            return (2 - 1 / self.count) / self._replicas(state)
        states = block_states(self.model, name, experts=state == "experts")
        return states.weights / np.maximum(states.used, 1e-9)

    def timed(self, moved: Mapping[str, Numeric], name: str) -> Links:
        """Return the bytes that the bandwidth of each link would move in the time that so many of each class take.

        They are those that cross it, but for a pool, whose other parts may be slower than ports. Of the block *name*,
        switches gather and reduce.
        """
        pools = [place for place in self.copied if self.batch.base.memory.tiers[place].pool is not None]
        if not pools:
            return self.links(moved)
        total: list[Numeric] = [0.0] * len(self.copied)
        for state, size in moved.items():
            for at, (place, crossing) in enumerate(zip(self.copied, self.links({state: size}), strict=True)):
                total[at] = total[at] + (self._pooled(place, state, crossing, name) if place in pools else crossing)
        return total

    def _pooled(self, place: int, state: str, crossing: Numeric, name: str) -> Numeric:
        rate: Numeric = self.batch[f"memory.tiers.{place}.bandwidth"]
        if self._switched.get(state) != place:
            return pool_seconds(self.batch, place, crossing, crossing) * rate
        inside = replicas_in_node(self.batch, place, experts=state.startswith("expert"))
        return pool_seconds(self.batch, place, crossing, crossing * self._held(state, name), inside) * rate

    def _gradients(self, own: BlockStates, experts: BlockStates, times: Numeric) -> dict[str, Numeric]:
        active = active_expert_share(self.batch)
        return {"gradients": times * own.gradients, "expert_gradients": times * active * experts.gradients}

    def _expert_bytes(self, experts: BlockStates) -> Numeric:
        if not cast_from_master(self.batch.base, self.model.recipe.master):
            return experts.weights
        return experts.used * (self.model.recipe.master / self.model.recipe.weight)

    def _activations(self, name: str) -> Numeric:
        """Return the bytes that a layer keeps of one microbatch; on average where some layers recompute."""
        if name not in self.model.layers:
            return 0.0
        share = self.batch.base.workload.recompute_num_layers
        kept = self.model.kept_bytes(name)
        if share is None:
            return kept
        stage = StageMemory(self.model, memory_of(self.batch).stage)
        again = np.minimum(1.0, share / np.maximum(stage.layer_count, 1.0))
        return again * kept + (1 - again) * self.model.kept_bytes(name, whole=True)

    def _cache(self, name: str) -> Numeric:
        if name not in self.model.layers:
            return 0.0
        alone = {block: float(block == name) for block in self.model.blocks}
        return cache_bytes(self.batch, alone, self.model.blocks, self.model.recipe) / self.count

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
        home = "expert_optimizer" if state == "experts" and self._cast else state
        share = placed.share(home, tier)
        if state == "experts":
            cached, place = expert_cache_hits(self.batch), self.names.index(tier)
            further = placed.share(home, self.names[place + 1]) if place + 1 < len(self.names) else 0.0
            share = (1 - cached) * share + cached * further
        return share * placed.streams[state]

    @property
    def _cast(self) -> bool:
        return cast_from_master(self.batch.base, self.model.recipe.master)

    # --------------------------------------------------------------------------------------------- seconds

    def seconds(self, links: Links) -> Numeric:
        """Return the seconds of a transfer over links: one after the other if a layer ahead, else the slowest."""
        found: Numeric = 0.0
        for place, size in zip(self.copied, links, strict=True):
            took = size / self.batch[f"memory.tiers.{place}.bandwidth"]
            if self.ahead:
                late = self.batch[f"memory.tiers.{place}.latency"]
                found = found + took + np.where(np.asanyarray(size) > 0, late, 0.0)
            else:
                found = larger(found, took)
        return found * self._longer

    def load_s(self, name: str, phase: str) -> Numeric:
        """Return the seconds in which the state of one block comes in for a pass of one microbatch."""
        return self.batch.once(
            (TierTraffic.load_s, name, phase), lambda: self.seconds(self.timed(self._loaded(name, phase), name))
        )

    def store_s(self, name: str, phase: str) -> Numeric:
        """Return the seconds in which the state of one block goes out after a pass of one microbatch."""
        return self.batch.once(
            (TierTraffic.store_s, name, phase), lambda: self.seconds(self.timed(self._stored(name, phase), name))
        )

    def block_s(self, name: str, phase: str) -> Numeric:
        """Return the seconds of one block's transfers in a pass of one microbatch, both ways together."""
        return self.load_s(name, phase) + self.store_s(name, phase)

    def block(self, name: str, phase: str) -> Links:
        """Return the bytes of one block that cross each link in a pass of one microbatch, both ways together."""
        return [sum_of(each) for each in zip(self.loads(name, phase), self.stores(name, phase), strict=True)]

    def passes_s(self, counts: Mapping[str, Numeric]) -> Numeric:
        """Return the seconds of all transfers of a stage's passes, with links that work at the same time."""
        total: list[Numeric] = [0.0] * len(self.names)
        for name, count in counts.items():
            for phase in self.passes:
                both = (self.timed(moved(name, phase), name) for moved in (self._loaded, self._stored))
                total = [sum_ + self.count * count * sum_of(each) for sum_, *each in zip(total, *both, strict=True)]
        gradients = self._shared(self.update.gradient_links)
        return self.seconds([sum_of(pair) for pair in zip(total, gradients, strict=True)])

    @property
    def gradients_out_s(self) -> Numeric:
        """The seconds in which gradients go to the host's processor."""
        return self.seconds(self._shared(self.update.gradient_links))

    def updated(self, name: str) -> Numeric:
        """Return the weights of one block that the device updates."""
        return sum_of(block_states(self.model, name, experts=each).updated for each in (False, True))

    def _shared(self, links: Links) -> Links:
        """Return what the bandwidth of each link would move in the time of so many bytes: more, of a busy pool."""
        tiers = self.batch.base.memory.tiers
        return [
            size if tiers[place].pool is None
            else pool_seconds(self.batch, place, size, size) * self.batch[f"memory.tiers.{place}.bandwidth"]
            for place, size in zip(self.copied, links, strict=True)
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
        own = StageMemory(self.model, memory_of(self.batch).stage)
        states = {
            experts: {name: block_states(self.model, name, experts=experts) for name in self.model.blocks}
            for experts in (False, True)
        }
        active = active_expert_share(self.batch)
        tables = table_use(self.batch)
        moved: dict[str, Numeric] = {}
        for state, experts, of in (
            ("optimizer", False, "optimizer"),
            ("expert_optimizer", True, "optimizer"),
            ("gradients", False, "gradients"),
            ("expert_gradients", True, "gradients"),
        ):
            size = own.total(lambda name, of=of, experts=experts: getattr(states[experts][name], of))  # type: ignore[misc]
            times = 2.0 if of == "optimizer" else 1.0
            moved[state] = times * size * (active if experts else 1.0)
        moved["optimizer"] = moved["optimizer"] + 2.0 * tables.touched * 4.0
        if self.batch.base.workload.optimizer_device == "gpu" or not self.copied:
            links = self.links(moved)
            return OuterUpdate(links, self._slowest(links), 0.0, 1.0, none)
        return self._on_processor(own, states, moved, active)

    def _on_processor(
        self,
        own: StageMemory,
        states: Mapping[bool, Mapping[str, BlockStates]],
        moved: Mapping[str, Numeric],
        active: Numeric,
    ) -> OuterUpdate:
        """Return the update by the host's processor: states stay there, and come to it from tiers further out."""
        recipe = self.model.recipe
        each = optimizer_bytes_per_parameter(recipe.weight, recipe.gradient, recipe.moments / 2, recipe.master)
        outside: Numeric = 0.0
        whole: Numeric = 0.0
        down: Numeric = 0.0
        for experts, state in ((False, "optimizer"), (True, "expert_optimizer")):
            elements = own.total(lambda name, experts=experts: states[experts][name].updated)  # type: ignore[misc]
            away = sum_of((self.placed.share(state, name) for name in self.names), 0.0)
            touched = elements * (active if experts else 1.0)
            outside = outside + away * touched
            whole = whole + touched
            there = "expert_gradients" if experts else "gradients"
            already = sum_of((self.placed.share(there, name) for name in self.names), 0.0) \
                if there in self.placed.sizes else 0.0  # fmt: skip
            down = down + away * (1 - already) * touched * recipe.gradient
        far = self.links({name: moved[name] for name in ("optimizer", "expert_optimizer")})
        links = [outside * recipe.weight, *far[1:]]
        rate = none_to_nan(
            self.batch[f"memory.tiers.{self.copied[0]}.processor_bandwidth"]
        )  # a rule says so if it is not
        return OuterUpdate(
            links,
            self._slowest(links),
            outside * each / rate * self._longer,
            1 - outside / np.maximum(whole, 1.0),
            [down, *(0.0 for _ in self.names[1:])],
        )

    def _slowest(self, links: Links) -> Numeric:
        """Return the seconds of a long transfer in many pieces, which the links carry at the same time."""
        found: Numeric = 0.0
        for place, size in zip(self.copied, self._shared(links), strict=True):
            late = np.where(np.asanyarray(size) > 0, self.batch[f"memory.tiers.{place}.latency"], 0.0)
            found = larger(found, size / self.batch[f"memory.tiers.{place}.bandwidth"] + late)
        return found * self._longer

    # ----------------------------------------------------------------------------------------------- totals

    def step_bytes(self) -> list[Numeric]:
        """Return the bytes that cross the link of each tier in one step of the fullest device, both ways together."""
        counts = StageMemory(self.model, memory_of(self.batch).stage).counts
        found: list[Numeric] = [0.0 for _ in self.batch.base.memory.tiers]
        for name, count in counts.items():
            for phase in self.passes:
                for place, size in zip(self.copied, self.block(name, phase), strict=True):
                    found[place] = found[place] + self.count * count * size
        for links in (self.update.gradient_links, self.update.links):
            for place, size in zip(self.copied, links, strict=True):
                found[place] = found[place] + size
        return found


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


# --------------------------------------------------------------------------------------
# What a pass takes whose blocks share a ring of buffers with outer tiers of memory
# --------------------------------------------------------------------------------------

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

    def after(self, n: Numeric, own: Numeric, took: Numeric, buffers: Numeric) -> BufferRing:
        """Return the ring after a run of *n* blocks of *own* seconds whose transfers *took* so long.

        A part of a block is a block that has so much less to do.
        """
        whole, share = np.maximum(n, 1.0), np.minimum(n, 1.0)
        own, took = share * own, share * took
        moves = np.asanyarray(took) > 0
        computed = np.where(moves, self._computed(whole, own, took, buffers), self.computed + whole * own)
        linked = np.where(moves, self._linked(whole, own, took, buffers), self.linked)
        moved = np.where(moves, computed, self.moved)
        inside = self._computed(np.maximum(whole - buffers + 1, 1.0), own, took, buffers)
        oldest = np.where(whole >= buffers, inside, self._ended(buffers - 1 - whole, buffers))
        oldest = np.where(moves, oldest, self.oldest)
        return BufferRing(computed, linked, moved, oldest)

    def _ended(self, back: Numeric, buffers: Numeric) -> Numeric:
        """Return when the block so many *back* had computed: evenly between those that are known."""
        share = np.clip(back, 0.0, None) / np.maximum(buffers - 1, 1.0)
        return self.moved + share * (self.oldest - self.moved)

    def _computed(self, n: Numeric, own: Numeric, took: Numeric, buffers: Numeric) -> Numeric:
        first = np.maximum(self.linked, self.oldest) + took
        beyond = np.maximum(n - buffers, 0.0)
        found = np.maximum(np.maximum(self.computed, first) + n * own, first + (n - 1) * took + own)
        freed = self._ended(buffers - n, buffers)
        found = np.maximum(found, freed + (beyond + 1) * took + own)
        later = self.computed + np.maximum(2 * own + beyond * took, (beyond + 1) * own + took)
        found = np.where(beyond > 0, np.maximum(found, later), found)
        serial = np.maximum(self.computed, first) + own + (n - 1) * (took + own)
        return np.where(np.asanyarray(buffers) == 1, serial, found)

    def _linked(self, n: Numeric, own: Numeric, took: Numeric, buffers: Numeric) -> Numeric:
        beyond = np.maximum(n - buffers, 0.0)
        found = np.maximum(self.linked, self.oldest) + n * took
        found = np.maximum(found, self._ended(buffers - n, buffers) + (beyond + 1) * took)
        last = self._computed(np.maximum(beyond, 1.0), own, took, buffers) + took
        last = np.maximum(last, self.computed + own + beyond * took)
        return np.where(beyond > 0, np.maximum(found, last), found)


def filled_pass_s(turn: Sequence[str], counts: Numbers, own: Numbers, took: Numbers, buffers: Numeric) -> Numeric:
    """Return the seconds of a pass of a stage that has waited for its input, with all its buffers filled.

    Of three layers that take 2 s, two are there; the third comes when the first has left its buffer.

    >>> given = ["layer"], {"layer": 3}, {"layer": 2.0}, {"layer": 5.0}, 2
    >>> float(filled_pass_s(*given)), float(pass_s(*given))
    (9.0, 15.0)
    """
    long_ago = -sum_of((counts[name] * (own[name] + took[name]) for name in turn), 0.0)
    ring = BufferRing(0.0, long_ago, long_ago, long_ago)
    for name in turn:
        ring = ring.after(counts[name], own[name], took[name], buffers)
    return ring.computed


def pass_s(turn: Sequence[str], counts: Numbers, own: Numbers, took: Numbers, buffers: Numeric) -> Numeric:
    """Return the seconds of a pass that follows others like it; of each block its *own* seconds, and its transfers'.

    Three layers whose stores take 5 s keep a link busy for 15 s. With two buffers 10 s of compute hide in them.

    >>> own, took = {"layer": 2.0, "head": 4.0}, {"layer": 5.0, "head": 0.0}
    >>> float(pass_s(["layer", "head"], {"layer": 3, "head": 1}, own, took, 2))
    15.0
    >>> float(pass_s(["layer", "head"], {"layer": 3, "head": 1}, own, took, 1))
    21.0
    """
    ring, start = BufferRing(), BufferRing()
    for turns in range(FILLED + TURNS):
        start = ring if turns == FILLED else start
        for name in turn:
            ring = ring.after(counts[name], own[name], took[name], buffers)
    seconds: Numeric = (ring.computed - start.computed) / TURNS
    return seconds


def first_wait_s(
    turn: Sequence[str], counts: Numbers, own: Numbers, loads: Numbers, took: Numbers, alone: Condition
) -> Numeric:
    """Return what the first pass of a step waits for longer than those after it: no other came before.

    The first block that moves something is fetched beside those before it. In later passes the last that moves
    something runs beside it too, if it has a buffer of its own, and all after that.
    """
    load: Numeric = 0.0
    before: Numeric = 0.0
    ahead: Numeric = 0.0
    after: Numeric = 0.0
    found: Condition = False
    for name in turn:
        moves = (np.asanyarray(took[name]) > 0) & (np.asanyarray(counts[name]) > 0)
        begins = moves & np.logical_not(found)
        load, before = np.where(begins, loads[name], load), np.where(begins, ahead, before)
        found = found | moves
        ahead = ahead + counts[name] * own[name]
        after = np.where(moves, np.where(alone, 0.0, own[name]), after + counts[name] * own[name])
    wait: Numeric = np.minimum(load, before + after) - np.minimum(load, before)
    return wait


def late_gradients_s(
    traffic: TierTraffic, turn: Sequence[str], counts: Numbers, own: Numbers, slack: Numeric
) -> Numeric:
    """Return what a last backward pass with *slack* does not hide of gradients that go to the host's processor.

    Those of the first block come when it has run, and nothing hides those of the last.
    """
    first_s: Numeric = 0.0
    last: Numeric = 0.0
    for before, after in zip(reversed(turn), turn, strict=True):
        first_s = np.where(np.asanyarray(counts[before]) > 0, own[before], first_s)
        last = np.where(np.asanyarray(counts[after]) > 0, traffic.updated(after), last)
    whole = sum_of((count * traffic.updated(name) for name, count in counts.items()), 0.0)
    sent, beside = traffic.gradients_out_s, np.maximum(0.0, slack - first_s)
    found: Numeric = np.maximum(sent - beside, sent * np.minimum(1.0, last / np.maximum(whole, 1.0)))
    return found
