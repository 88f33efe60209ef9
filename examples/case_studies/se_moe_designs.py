"""The designs of the case study of SE-MoE, and what is computed of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from common import metrics_of

from cosmic import cluster, load_design
from cosmic.cluster import SharedAccelerators
from cosmic.design import DesignPoint, Infeasible, NetworkCosts, batch_of, write_value
from cosmic.network import deduplicated_share

NIC_BYTES_PER_S = 12.5e9
"""100 Gbit/s."""
NODE = 8
HIDDEN, LAYERS, VOCAB = 4096, 12, 50304
LARGE = 1e13
"""Memory in bytes that holds any of these designs: what each needs is compared, not what fits."""
PLAIN = {"tp": 1, "cp": 1, "pp": 1, "precision": "fp16", "weight_sharding": "zero2"}
BASELINE = {"execution": "eager", "grouped_gemm": False, "moe_token_dispatcher_type": "alltoall"}


@dataclass(frozen=True)
class Assumed:
    """What SE-MoE does not publish of its runs."""

    nics: int = 2
    """NICs of a node, which its 8 GPUs share."""
    active: int = 1
    """Experts of a token."""
    micro_batch: int = 4
    capacity: float | None = 1.25
    """Slots of an expert to which the baseline pads."""


def trained(npus: int, assumed: Assumed, **changes: Any) -> DesignPoint:
    """Return a model of the family with an expert of each layer for every GPU, as the baseline trains it."""
    batch = {"dp": npus, "ep": npus, "micro_batch": assumed.micro_batch, "global_batch": npus * assumed.micro_batch}
    stated = {**PLAIN, **BASELINE, **batch, "sequence": 2048, **changes}
    point = load_design(f"se-moe-104b@dgx-a100:{npus}", stated, plain=True)
    fabric = "network.dims.1.fabric"
    return point.changed(
        {
            "model.experts.count": npus,
            "model.experts.active": assumed.active,
            "network.dims.1.bandwidth": NIC_BYTES_PER_S * assumed.nics / NODE,
            f"{fabric}.port_bandwidth": NIC_BYTES_PER_S * assumed.nics / NODE,
            f"{fabric}.radix": 2 * npus // NODE,  # the nodes fill the ports of a leaf that lead down, at 1:1
            f"{fabric}.routing": "ecmp",
            "collective.all_to_all": "flat",
            "memory.capacity": LARGE,
        }
    )


# --------------------------------------------------------------------------------------------- all-to-alls


@dataclass(frozen=True)
class Exchanged:
    """Flat and hierarchical all-to-alls of 32 GPUs."""

    assumed: Assumed
    flat_s: float
    staged_s: float
    flat_step_s: float
    staged_step_s: float

    @property
    def communication(self) -> float:
        """By what share communication is faster in stages."""
        return self.flat_s / self.staged_s - 1

    @property
    def step(self) -> float:
        """By what share the step is faster."""
        return self.flat_step_s / self.staged_step_s - 1


def exchanged(nics: Sequence[int], active: Sequence[int], micro_batches: Sequence[int]) -> list[Exchanged]:
    """Return both all-to-alls for everything that may be assumed."""
    found = []
    for each in product(nics, active, micro_batches):
        assumed = Assumed(*each, capacity=None)
        point = trained(32, assumed)
        flat, staged = (metrics_of(point.changed({"collective.all_to_all": how})) for how in ("flat", "hierarchical"))
        parts = (flat.breakdown["ep"], staged.breakdown["ep"], flat.step_s, staged.step_s)
        found.append(Exchanged(assumed, *parts))
    return found


# ------------------------------------------------------------------------------------------ the 104.1B model


@dataclass(frozen=True)
class Change:
    """A run of the 104.1B model on 64 GPUs, after one change more."""

    name: str
    tokens_per_s: float
    memory_bytes: float


NO_CAPACITY = {
    "workload.moe_expert_capacity_factor": None,
    "workload.moe_pad_expert_input_to_capacity": False,
}
CHANGES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("no padded slots", NO_CAPACITY),
    ("hierarchical all-to-all", {"collective.all_to_all": "hierarchical"}),
    ("fused kernels, experts as one GEMM", {"workload.execution": "fused", "workload.grouped_gemm": True}),
)
"""What SE-MoE has, and the baseline has not, one after another."""
SHARDED = ("weights and gradients sharded (ZeRO-3)", {"workload.weight_sharding": "zero3"})


def improved(assumed: Assumed) -> list[Change]:
    """Return what each change does to training, from the baseline to what SE-MoE has."""
    return _changed(trained(64, assumed), assumed, (*CHANGES, SHARDED))


def _changed(point: DesignPoint, assumed: Assumed, changes: Sequence[tuple[str, dict[str, Any]]]) -> list[Change]:
    if assumed.capacity:
        padded = {
            "workload.moe_expert_capacity_factor": assumed.capacity,
            "workload.moe_pad_expert_input_to_capacity": True,
        }
        point = point.changed(padded)
    found = [("baseline", point)]
    for name, change in changes:
        point = point.changed(change)
        found.append((name, point))
    results = [(name, metrics_of(each)) for name, each in found]
    return [Change(name, each.tokens_per_s or 0.0, each.memory_bytes) for name, each in results]


# ---------------------------------------------------------------------------------------------- inference


@dataclass(frozen=True)
class Served:
    """Inference of the 104.1B model on 64 GPUs, after one change and the other."""

    task: str
    batch: int
    """Sequences on a GPU."""
    assumed: Assumed
    changes: Sequence[Change]

    @property
    def gains(self) -> list[float]:
        """By what share it is faster than the baseline after each change."""
        return [each.tokens_per_s / self.changes[0].tokens_per_s - 1 for each in self.changes[1:]]


def served(nics: Sequence[int], active: Sequence[int], batches: Sequence[tuple[str, int]]) -> list[Served]:
    """Return prompts and steps of decoding, 1,024 tokens each, for everything that may be assumed."""
    found = []
    for (task, batch), count, experts, capacity in product(batches, nics, active, (None, 1.25)):
        assumed = Assumed(count, experts, batch, capacity)
        point = trained(64, assumed, task=task, sequence=1024, weight_sharding="none")
        found.append(Served(task, batch, assumed, _changed(point, assumed, CHANGES)))
    return found


# --------------------------------------------------------------------------------------------- embeddings


def embedding_saving(dp: int, wide: bool) -> float:
    """Return the bytes that a GPU saves if an embedding of 400 M parameters is split over *dp* ranks."""
    stated = {**PLAIN, "dp": dp, "global_batch": dp, "micro_batch": 1, "sequence": 512, "grad_reduce_in_fp32": wide}
    kept = []
    for strategies in ([], ["embedding_parallel"]):
        point = load_design(
            f"llama3.2-1b@dgx-a100:{dp}",
            {**stated, "weight_sharding": "none", "ep": 1, "strategies": strategies},
            plain=True,
        )
        point = point.changed({"model.tied_embeddings": False, "model.vocab": 400_000_000 // 2048})
        point = point.changed({"memory.capacity": LARGE})
        found = metrics_of(point)
        kept.append(sum(found.memory[key] for key in ("weights", "gradients", "optimizer")))
    return kept[0] - kept[1]


# -------------------------------------------------------------------------------------------- ring memory


@dataclass(frozen=True)
class Ring:
    """Inference of the 13.9B model with experts in the host's memory."""

    batch: int
    resident: int | None
    """Layers whose experts are on the GPU; None: all, without an outer tier."""
    step_s: float
    memory_bytes: float


def rings(batches: Sequence[int], resident: Sequence[int | None]) -> list[Ring]:
    """Return prefills of 8 GPUs with some layers resident."""
    found = []
    for batch, layers in product(batches, resident):
        mesh = {**PLAIN, "task": "prefill", "dp": 8, "ep": 8, "weight_sharding": "none", "sequence": 1024}
        stated: dict[str, Any] = {**mesh, "global_batch": batch, "micro_batch": batch // 8}
        if layers is not None:
            host = {"name": "host", "capacity": "256 GB", "bandwidth": "25 GB/s", "latency": "10 us"}
            stated |= {
                "memory.tiers": [host],
                "memory.placement": {"experts": ["host"]},
                "memory.resident_layers": layers,
            }
        metrics = metrics_of(load_design("se-moe-14b@dgx-a100:8", stated, plain=True))
        found.append(Ring(batch, layers, metrics.step_s, metrics.memory_bytes))
    return found


# ------------------------------------------------------------------------------------------- storage rules


@dataclass(frozen=True)
class Stored:
    """What SE-MoE's three rules ask of a node's GPUs, host and drives."""

    experts: int
    active: float
    gpu_bytes: float
    host_bytes: float
    drive_bytes: float


def stored(experts: int, active: float, nodes: int) -> Stored:
    """Return the bytes for each of so many *nodes*: 16 D + 4 α S / L on GPUs, 16 α S in hosts, 12 S on drives."""
    dense = LAYERS * 4 * HIDDEN**2 + VOCAB * HIDDEN
    sparse = LAYERS * experts * 8 * HIDDEN**2
    needs = (16 * dense + 4 * active * sparse / LAYERS, 16 * active * sparse, 12 * sparse)
    return Stored(experts, active, *(each / nodes for each in needs))


# ------------------------------------------------------------------------------------------------- tasks


def tasks(model: str, nics: int | None = None) -> tuple[SharedAccelerators, SharedAccelerators]:
    """Return tasks with batches of 512, 256, 128 and 128 on 4 GPUs and on 8.

    All in one node, or in nodes of their own, whose 8 GPUs share so many *nics*: each GPU has its part of them.
    """
    found = []
    for npus in (4, 8):  # 1 for each task, and 4, 2, 1, 1
        stated: dict[str, Any] = {"recompute": "full", "micro_batch": 32}
        if nics is not None:
            stated |= {"network": {"dims": [_between_nodes(npus, nics)]}, "collective.algorithms": ["ring"]}
        one = cluster.tasks(f"{model}@dgx-a100", batch=(512, 256, 128, 128), npus=npus, settings=stated)[npus]
        if isinstance(one, Infeasible):
            raise SystemExit("; ".join(one.reasons))
        found.append(one)
    return found[0], found[1]


def _between_nodes(npus: int, nics: int) -> dict[str, Any]:
    """Return the network between nodes of A100, as a dimension that joins all GPUs, each with its part of the NICs."""
    outer = load_design(f"vit-large@dgx-a100:{2 * NODE}", {"dp": 2 * NODE}, plain=True).network.dims[-1]
    tree = write_value(outer)
    kept = {key: tree[key] for key in ("topology", "latency", "transport") if key in tree}
    return {**kept, "npus": npus, "bandwidth": f"{NIC_BYTES_PER_S * nics / NODE / 1e9:g} GB/s"}


# ------------------------------------------------------------------------------------------------ DeepEP


@dataclass(frozen=True)
class Bandwidth:
    """What the slower of two kinds of links carries in an exchange of tokens with experts."""

    ranks: int
    what: str
    link: str
    published: float
    ours: float
    """GB/s, over the link."""
    logical: float | None
    """GB/s, with the copies for a rank's own node."""


def bandwidths() -> list[Bandwidth]:
    """Return dispatch in 8 bits and combine in 16, of 4096 tokens of 7168 numbers for 8 experts, on H800."""
    published = {8: (153, 158), 16: (43, 43), 32: (44, 47)}
    found = []
    for ranks, rates in published.items():
        mesh = {"tp": 1, "dp": ranks, "ep": ranks, "cp": 1, "pp": 1}
        stated = {**mesh, "task": "prefill", "micro_batch": 1, "global_batch": ranks, "sequence": 4096}
        costs = NetworkCosts(batch_of(load_design(f"deepseek-v3@dgx-h800:{ranks}", stated, plain=True)))
        outer = costs.group(("ep",))[-1]
        members, inside = float(outer.span.members), 1 if ranks == NODE else NODE
        for what, width, rate in zip(("dispatch", "combine"), (1, 2), rates, strict=True):
            payload = 4096 * 8 * 7168 * width
            seconds = float(costs.seconds("all_to_all", ("ep",), payload, 8))
            crossing = payload * float(deduplicated_share(8, members, inside)) / seconds / 1e9
            link, logical = ("NVLink", None) if inside == 1 else ("RDMA", crossing)
            found.append(Bandwidth(ranks, what, link, rate, crossing * (1 - 1 / members), logical))
    return found
