"""The machines of measured rows: an accelerator by any of its names, in the system of the catalog that has it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

from cosmic import catalog, units
from cosmic.arithmetic import divisors, even_split
from cosmic.catalog.systems import OF_LINK, REST, dimensions
from cosmic.design import schema
from cosmic.design.collective import Collective
from cosmic.design.compute import Compute
from cosmic.design.memory import Memory, Tier
from cosmic.design.model import Model
from cosmic.design.network import Network, topologies
from cosmic.design.point import DesignPoint
from cosmic.design.workload import Workload
from cosmic.errors import UnknownName, require
from cosmic.validation.accelerators import Derived, accelerator_named

OUTER = 1
"""Place of the dimension between nodes."""
HOST = 8
"""Accelerators of a host, at most; larger domains are racks."""
GIGA = 1e9
LATENCY = "1 us"
"""Between accelerators of a node whose links no system of the catalog describes."""


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
    found = accelerator_named(accelerator)
    compute, memory = found.layers()
    assumed = [f"accel: {found.why}"] if found.why else []
    system = system_with(found.like)
    network, collective = _joined(system, found, count, per_node, gbps, fabric)
    torus = any(dim.topology == "ring" for dim in network.dims)
    if not gbps and len(network.dims) > OUTER and not torus:
        rate = f"{network.dims[OUTER].bandwidth_bytes_per_s * 8 / 1e9:g} Gbps"
        assumed.append(f"inter_node_gbps_per_accel: {rate} assumed, as in {system or 'its data sheet'}")
    return Machine(compute, memory, network, collective, tuple(assumed))


@cache
def system_with(accelerator: str) -> str:
    """Return the system of the catalog with an accelerator, else with one of its family; empty if there is none.

    >>> system_with("h100-sxm-80gb"), system_with("cosmic-10tf")
    ('dgx-h100', 'cosmic-1024')
    """
    owners = {name: str(catalog.entry("systems", name)["accelerator"]) for name in catalog.names("systems")}
    exact = [name for name, owned in owners.items() if owned == accelerator]
    if exact or "pcie" in accelerator:
        return exact[0] if exact else ""
    family = accelerator.partition("-")[0]
    alike = [name for name, owned in owners.items() if owned.partition("-")[0] == family and "pcie" not in owned]
    return alike[0] if alike and family != "tpu" else ""


def system_named(accelerator: str) -> str:
    """Return the system of the accelerator that a name means; empty if it means none of the catalog.

    >>> system_named("NVIDIA A100-SXM4-80GB"), system_named("H100-96GB-HBM2e-500W"), system_named("Tesla T4")
    ('dgx-a100', 'dgx-h100', '')
    """
    try:
        return system_with(accelerator_named(accelerator).like)
    except UnknownName:
        return ""


@cache
def _joined(
    system: str, accelerator: Derived, count: int, per_node: int | None, gbps: float | None, fabric: str
) -> tuple[Network, Collective]:
    """Return the network of a system of the catalog at the size of a row, and its collective layer."""
    entry = catalog.entry("systems", system) if system else {}
    dims = [dict(dim) for dim in dimensions(system)] if system else _of_data_sheet(accelerator.like)
    if accelerator.link_bytes_per_s:
        dims[0]["bandwidth"] = f"{accelerator.link_bytes_per_s / GIGA:g} GB/s"
    sizes = _fitted(count, dims, per_node)
    if len(dims) == OUTER + 1 and dims[0]["npus"] != REST:
        if gbps:
            dims[OUTER]["bandwidth"] = f"{gbps:g} Gbps"
        if fabric:
            dims[OUTER] |= {key: catalog.entry("links", fabric)[key] for key in OF_LINK}
    kept = [place for place, size in enumerate(sizes) if size > 1]
    network: Network = schema.read(Network, {"dims": [{**dims[place], "npus": sizes[place]} for place in kept]}, "")
    given = entry.get("collective", {})
    usual = given.get("algorithms") or [topologies[dim["topology"]].algorithm for dim in dims]
    chosen = {**given, "algorithms": [usual[place] for place in kept]}
    collective: Collective = schema.read(Collective, chosen, "collective")
    return network, collective


def _of_data_sheet(accelerator: str) -> list[dict[str, Any]]:
    """Return the dimensions that an accelerator's own entry describes: a node, or a torus, and links between nodes."""
    links = catalog.entry("accelerators", accelerator).get("fabric", {})
    rate, shape = links.get("scale_up", "64 GB/s"), str(links.get("scale_up_topology", ""))
    if ways := re.search(r"(\d)D torus", shape) if "scale_out" not in links else None:
        each = f"{units.parse(rate).value / int(ways[1]) / GIGA:g} GB/s"
        return [{"topology": "ring", "npus": REST, "bandwidth": each, "latency": LATENCY} for _ in range(int(ways[1]))]
    domain = re.search(r"\d+", str(links.get("scale_up_domain", 8)))
    outer = {**catalog.entry("links", "infiniband-hdr"), "bandwidth": links.get("scale_out", "100 Gbps")}
    return [
        {"topology": "switch", "npus": max(2, int(domain[0]) if domain else 8), "bandwidth": rate, "latency": LATENCY},
        {"topology": "switch", "npus": REST, "bandwidth": outer["bandwidth"], **{key: outer[key] for key in OF_LINK}},
    ]


def _fitted(count: int, dims: list[dict[str, Any]], per_node: int | None) -> tuple[int, ...]:
    """Return the size of each dimension: of a node or rack, of the nodes; of a torus, sides as equal as may be."""
    if dims[0]["npus"] == REST:
        return tuple(even_split(count, len(dims)))
    sizes = _sizes(count, _domain(dims, per_node))
    return (*sizes, *([1] * (len(dims) - len(sizes))))


def _domain(dims: list[dict[str, Any]], per_node: int | None) -> int:
    """Return the accelerators of the innermost dimension: of a node, or of a whole rack."""
    inner = int(dims[0]["npus"])
    return inner if per_node is None or inner > HOST else min(inner, per_node)


def _sizes(count: int, domain: int) -> tuple[int, int]:
    """Return the accelerators per domain, and the number of domains.

    >>> _sizes(256, 72), _sizes(16, 8), _sizes(4, 8)
    ((64, 4), (8, 2), (4, 1))
    """
    inner = max(size for size in divisors(count) if size <= domain)
    require(inner > 1 or count == 1, "n_accel", count, f"does not divide into groups of at most {domain}")
    return inner, count // inner
