"""What travels between an accelerator and the tiers behind it, and the seconds that this takes.

Tiers that copy are a chain: what lives in the second crosses its own link and then that of the first. The transfers of
a layer take

    sum over links of (bytes / bandwidth + latency)

and go through a ring of buffers (`cosmic.step.tier_waits`): with two of them, beside the layer before. With `prefetch:
step` transfers start as early as the step allows: links work at the same time, and all passes hide what the slowest of
them takes.

    forward     weights come in, experts that tokens picked, keys and values (decode); activations go out
    backward    weights and experts come in again, also where recomputation reads them, with activations;
                gradients go out, and come in before to be added to
    update      optimizer states come in and go out; or, on the host's processor, gradients go out and weights come in

Load/store tiers are not copied. Kernels read a share f of all bytes at their bandwidth (`bandwidth_bytes_per_s`):

    1 / B' = (1 - f) / B + f / B_tier  (serial)        1 / B' = max((1 - f) / B, f / B_tier)  (parallel)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cosmic.cost.streaming import optimizer_bytes_per_parameter
from cosmic.design.batch import Batch, known
from cosmic.numeric import Numeric, larger, sum_of
from cosmic.step.block_states import BlockStates, active_share, block_states, cache_hits, is_placed
from cosmic.step.kv_cache import cache_bytes
from cosmic.step.memory import memory_of
from cosmic.step.placement import Placed, cast_from_master
from cosmic.step.pools import pool_seconds, replicas_in_node
from cosmic.step.stage_memory import ModelMemory, StageMemory, model_memory, training_task
from cosmic.step.tables import table_use
from cosmic.workload.graph import PASSES
from cosmic.workload.pooling import SWITCHED, switched_in
from cosmic.workload.sizes import microbatches

ROWS = "rows"
"""Of embedding tables, those that are looked up: they live with weights, and travel also where all layers stay."""
Links = Sequence[Numeric]
"""Bytes that cross the link of each tier that copies."""


@dataclass(frozen=True, slots=True)
class Update:
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
        self.copied = [place for place, each in enumerate(memory.tiers) if each.access == "copy"]
        self.names = [memory.tiers[place].name for place in self.copied]
        self.count = microbatches(batch)
        self.trains = training_task(batch)
        self.ahead = memory.prefetch != "step"
        self._longer: Numeric = batch["compute.time_factor"]

    @property
    def passes(self) -> tuple[str, ...]:
        """The passes that a microbatch has."""
        return PASSES if self.trains else PASSES[:1]

    @property
    def placed(self) -> Placed:
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
            "experts": active_share(self.batch) * self._expert_bytes(experts),
        }
        if phase == "backward":
            there = self.batch.base.workload.optimizer_device == "cpu"  # who adds to them where they are
            again = 0.0 if there else 1 - 1 / self.count  # the first microbatch has nothing to add to
            moved |= self._gradients(own, experts, again) | {"activations": self._activations(name)}
        if self.batch.base.workload.task == "decode":
            moved["kv_cache"] = self._cache(name)
        whole = {"weights": own.used, "experts": active_share(self.batch) * experts.used}
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
        active = active_share(self.batch)
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
        alone = {each: float(each == name) for each in self.model.blocks}
        return cache_bytes(self.batch, alone, self.model.blocks, self.model.recipe) / self.count

    def links(self, moved: Mapping[str, Numeric]) -> Links:
        """Return the bytes that cross each link, if so many of each class travel; only what is out there does."""
        return _crossing([sum_of((size * self._share(state, name) for state, size in moved.items()), 0.0)
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
            cached, place = cache_hits(self.batch), self.names.index(tier)
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
    def update(self) -> Update:
        """What the update takes beyond the accelerator, on the fullest device."""
        return self.batch.once(Update, self._update)

    def _update(self) -> Update:
        none = [0.0] * len(self.names)
        if not self.trains:
            return Update(none, 0.0, 0.0, 1.0, none)
        own = StageMemory(self.model, memory_of(self.batch).stage)
        states = {
            experts: {name: block_states(self.model, name, experts=experts) for name in self.model.blocks}
            for experts in (False, True)
        }
        active = active_share(self.batch)
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
            return Update(links, self._slowest(links), 0.0, 1.0, none)
        return self._on_processor(own, states, moved, active)

    def _on_processor(
        self,
        own: StageMemory,
        states: Mapping[bool, Mapping[str, BlockStates]],
        moved: Mapping[str, Numeric],
        active: Numeric,
    ) -> Update:
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
        rate = known(self.batch[f"memory.tiers.{self.copied[0]}.processor_bandwidth"])  # a rule says so if it is not
        return Update(
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


def _crossing(homes: Sequence[Numeric]) -> Links:
    """Return what crosses each link of a chain from what lives in each tier.

    >>> _crossing([5.0, 2.0])
    [7.0, 2.0]
    """
    return [sum_of(homes[place:], 0.0) for place in range(len(homes))]


def tier_traffic(batch: Batch) -> TierTraffic | None:
    """Return the traffic with tiers, worked out once for a batch; None where no state is placed."""
    if not is_placed(batch.base):
        return None
    return batch.once(TierTraffic, lambda: TierTraffic(batch))
