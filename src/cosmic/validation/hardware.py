"""The machines of measured rows, composed from the catalog.

Accelerators that the catalog lacks are derived from a related one. One with a lower power limit runs at a lower clock:
power grows with frequency × voltage², and voltage with frequency, so power grows with the second to third power of the
clock,

    rate = rate of the relative × (power / power of the relative) ^ γ        1/3 ≤ γ ≤ 1/2

Memory bandwidth does not change.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from cosmic import catalog
from cosmic.arithmetic import divisors
from cosmic.catalog.systems import OF_LINK, dimensions
from cosmic.design import schema
from cosmic.design.collective import Collective
from cosmic.design.compute import Compute
from cosmic.design.memory import Memory, Tier
from cosmic.design.model import Model
from cosmic.design.network import Network, topologies
from cosmic.design.point import DesignPoint
from cosmic.design.workload import Workload
from cosmic.errors import UnknownName, require
from cosmic.loading.designs import accelerator_layers

POWER_EXPONENT = 0.4
"""γ: between 1/3 (voltage falls with frequency) and 1/2 (voltage is near its floor)."""
RATES = ("bf16", "fp32", "tf32", "fp8", "fp4", "int8", "achieved_bf16")


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived:
    """An accelerator like one of the catalog, with a lower power limit, perhaps with other memory."""

    like: str
    why: str
    power_w: float
    capacity_bytes: float | None = None
    bandwidth_bytes_per_s: float | None = None

    def applied(self, compute: Compute, memory: Memory) -> tuple[Compute, Memory]:
        """Return the layers of the related accelerator, changed."""
        slower = (self.power_w / (compute.power_w or self.power_w)) ** POWER_EXPONENT
        rates = {f"{key}_flop_per_s": getattr(compute, f"{key}_flop_per_s") for key in RATES}
        lower: dict[str, Any] = {name: rate * slower for name, rate in rates.items() if rate is not None}
        own: dict[str, Any] = {
            "capacity_bytes": self.capacity_bytes or memory.capacity_bytes,
            "bandwidth_bytes_per_s": self.bandwidth_bytes_per_s or memory.bandwidth_bytes_per_s,
        }
        return replace(compute, power_w=self.power_w, **lower), replace(memory, **own)


DERIVED = {
    "h100-96gb-hbm2e-500w": Derived(
        like="h100-sxm-80gb",
        why="an H100 with HBM2e, held to 500 W",
        power_w=500,
        capacity_bytes=96 * 2**30,
        bandwidth_bytes_per_s=2.4e12,
    ),
    "mi350x": Derived(like="mi355x", why="an MI355X held to 1,000 W", power_w=1000),
}
SYSTEMS = {
    "v100-sxm2-32gb": "dgx-1v",
    "a100-sxm-80gb": "dgx-a100",
    "a100-sxm-40gb": "dgx-a100",
    "h100-sxm-80gb": "dgx-h100",
    "h800-sxm-80gb": "dgx-h800",
    "h200-sxm-141gb": "dgx-h200",
    "b200-sxm-180gb": "dgx-b200",
    "b300-sxm": "dgx-b300",
    "gb200": "gb200-nvl72",
    "gb300": "gb300-nvl72",
    "mi300x": "mi300x",
    "mi325x": "mi300x",
    "mi355x": "mi355x",
}
"""The usual system of each accelerator."""


SUPERCHIPS = ("gb200", "gb300")
"""Accelerators that share one Grace CPU and its NVLink-C2C by twos: 480 GB and 450 GB/s each way."""


def host_memory(accelerator: str) -> Tier:
    """Return an accelerator's share of its host's memory: of Grace's, else over PCIe 5, of 2 TB for eight.

    >>> host_memory("gb200").bandwidth_bytes_per_s / host_memory("h100-sxm-80gb").bandwidth_bytes_per_s
    3.515625
    """
    if accelerator in SUPERCHIPS:
        return Tier(name="host", capacity_bytes=240e9, bandwidth_bytes_per_s=225e9)
    return Tier(name="host", capacity_bytes=256e9, bandwidth_bytes_per_s=64e9)


ATTENTION_SHARES = {
    ("flash1", "a100"): (0.40, 0.34),
    ("flash1", "h100"): (0.23, 0.20),
    ("flash2", "h100"): (0.37, 0.32),
    ("flash2", "h200"): (0.37, 0.32),
}
"""Share of the peak that earlier attention kernels reach, forward and backward, by generation and accelerator.
FlashAttention reached 125 TFLOP/s on an A100 (Dao et al., NeurIPS 2022); FlashAttention-2 takes 0.62 of its time.
Neither uses Hopper's new instructions: FlashAttention-2 reaches 370 TFLOP/s there (Shah et al., NeurIPS 2024)."""


def with_attention(compute: Compute, generation: str) -> Compute:
    """Return an accelerator with the attention kernels of an earlier generation, where they are known to be slower.

    >>> compute, _ = accelerator_layers("h100-sxm-80gb", "accelerator")
    >>> with_attention(compute, "flash2").attention_efficiency
    0.37
    """
    shares = ATTENTION_SHARES.get((generation, compute.accelerator.partition("-")[0]))
    if shares is None:
        return compute
    return replace(compute, attention_efficiency=shares[0], attention_backward_efficiency=shares[1])


AICONFIGURATOR = {
    "a100_sxm": "a100-sxm-80gb",
    "h100_sxm": "h100-sxm-80gb",
    "h200_sxm": "h200-sxm-141gb",
    "b200_sxm": "b200-sxm-180gb",
    "b300_sxm": "b300-sxm",
    "gb200": "gb200",
    "gb300": "gb300",
}
"""Accelerators of the catalog, by their name in aiconfigurator."""


@dataclass(frozen=True, slots=True)
class Machine:
    """The hardware of a design, and the assumptions behind it."""

    compute: Compute
    memory: Memory
    network: Network
    collective: Collective
    assumed: tuple[str, ...] = ()

    def design(self, model: Model, workload: Workload) -> DesignPoint:
        """Return the design of *model* and *workload* on this hardware."""
        return DesignPoint(
            model=model,
            workload=workload,
            collective=self.collective,
            network=self.network,
            compute=self.compute,
            memory=self.memory,
        )


FABRICS = {"roce": "roce", "efa": "efa"}
"""Links between nodes other than the system's own, by a word in the notes of a row."""


def fabric_in(text: str) -> str:
    """Return the link between nodes that *text* names; empty if none.

    >>> fabric_in("1600 Gbps/node RoCE stated"), fabric_in("8x ConnectX-7 IB")
    ('roce', '')
    """
    return next((link for word, link in FABRICS.items() if word in text.lower()), "")


def machine(
    accelerator: str, count: int, per_node: int | None = None, gbps: float | None = None, fabric: str = ""
) -> Machine:
    """Return *count* accelerators in nodes of *per_node*, each with *gbps* between nodes, over links like *fabric*.

    Where the scale-up domain is larger than a node (NVL72), the innermost dimension is the largest group of one domain
    that divides the count. Without *gbps*, the rate between nodes is that of the accelerator's usual system.

    >>> [dim.npus for dim in machine("GB200", 256, per_node=4).network.dims]
    [64, 4]
    """
    name = accelerator.strip().lower()
    derived = DERIVED.get(name)
    like = derived.like if derived else name
    if like not in SYSTEMS:
        raise UnknownName.among("accel", accelerator, "accelerator with a system", [*SYSTEMS, *DERIVED])
    compute, memory = accelerator_layers(like, "accel")
    assumed = []
    if derived:
        compute, memory = derived.applied(compute, memory)
        assumed.append(f"accel: {derived.why}")
    system = SYSTEMS[like]
    network, collective = _joined(system, count, per_node, gbps, fabric)
    if count > (network.dims[0].npus if network.dims else 1) and not gbps:
        rate = dimensions(system)[1]["bandwidth"]
        assumed.append(f"inter_node_gbps_per_accel: {rate} assumed, as in {system}")
    return Machine(compute, memory, network, collective, tuple(assumed))


@cache
def _joined(
    system: str, count: int, per_node: int | None, gbps: float | None, fabric: str
) -> tuple[Network, Collective]:
    """Return the network of a system of the catalog at the size of a row, and its collective layer."""
    entry = catalog.entry("systems", system)
    dims = [dict(dim) for dim in dimensions(system)]
    sizes = _sizes(count, _domain(dims, per_node))
    if gbps:
        dims[1]["bandwidth"] = f"{gbps:g} Gbps"
    if fabric:
        dims[1] |= {key: catalog.entry("links", fabric)[key] for key in OF_LINK}
    kept = [place for place, size in enumerate(sizes) if size > 1]
    network: Network = schema.read(Network, {"dims": [{**dims[place], "npus": sizes[place]} for place in kept]}, "")
    given = entry.get("collective", {})
    usual = given.get("algorithms") or [topologies[dim["topology"]].algorithm for dim in dims]
    chosen = {**given, "algorithms": [usual[place] for place in kept]}
    collective: Collective = schema.read(Collective, chosen, "collective")
    return network, collective


def _domain(dims: list[dict[str, Any]], per_node: int | None) -> int:
    """Return the accelerators of the innermost dimension: of a node, or of a whole rack."""
    most = dims[0]["npus"]
    inner = most if isinstance(most, int) else 8
    return inner if per_node is None or inner > 8 else min(inner, per_node)


def _sizes(count: int, domain: int) -> tuple[int, int]:
    """Return the accelerators per domain, and the number of domains.

    >>> _sizes(256, 72), _sizes(16, 8), _sizes(4, 8)
    ((64, 4), (8, 2), (4, 1))
    """
    inner = max(size for size in divisors(count) if size <= domain)
    require(inner > 1 or count == 1, "n_accel", count, f"does not divide into groups of at most {domain}")
    return inner, count // inner
