"""The machines of measured rows: an accelerator by any of its names, in the system of the catalog that has it.

A name is a family (H100, MI300X, TPU v5p, trn1) and remarks: form (SXM, PCIe, NVL), memory (96GB, HBM2e), power (500W).
Of a family, the entry with the form and memory of the name counts, else the one that most systems have. One with a
lower power limit runs at a lower clock: power grows with frequency × voltage², and voltage with frequency, so power
grows with the second to third power of the clock,

    rate = rate of the relative × (power / power of the relative) ^ γ        1/3 ≤ γ ≤ 1/2

Memory bandwidth does not change with power. The accelerator is then placed in a system of the catalog that has it, at
the size of the row; without such a system, in one of its data sheet.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from cosmic.base import units
from cosmic.base.errors import UnknownName, require
from cosmic.base.numeric import divisors, even_factors
from cosmic.design import catalog_entries, schema
from cosmic.design.collective_layer import Collective
from cosmic.design.compute_layer import Compute
from cosmic.design.design_point import DesignPoint
from cosmic.design.machine_layers import accelerator_layers
from cosmic.design.memory_layer import Memory
from cosmic.design.model_layer import Model
from cosmic.design.network_layer import Network, topologies
from cosmic.design.systems import LINK_KEYS, REST_OF_NPUS, system_dimensions
from cosmic.design.workload_layer import Workload

# ---- The accelerators of measured rows: which one of the catalog a name means, and how it differs

POWER_EXPONENT = 0.4
"""γ: between 1/3 (voltage falls with frequency) and 1/2 (voltage is near its floor)."""
LEAST_POWER_W, MOST_POWER_W = 50, 3000
ROUNDED = 0.1
"""How far the memory in a name may be from an entry's: it counts by 1,000 or by 1,024, whole or usable."""
RATES = ("bf16", "fp32", "tf32", "fp8", "fp4", "int8", "achieved_bf16")
STACK_BYTES, STACK_BYTES_PER_S = 16 * 2**30, 400e9
"""Memory and bandwidth of one stack of HBM2e."""
SYNONYMS = {
    "trillium": "tpu-v6e",
    "ironwood": "tpu-v7",
    "trn1": "trainium1",
    "trn1n": "trainium1",
    "trn2": "trainium2",
    "trainium": "trainium1",
    "gaudi": "gaudi2",
    "hl-225": "gaudi2",
    "hl-325": "gaudi3",
    "mi250": "mi250x",
    "mi300": "mi300x",
    "mi325": "mi325x",
    "vr200": "rubin-vr200",
}
"""Families by other names."""
FORMS = ("pcie", "sxm", "nvl")
VENDORS = re.compile(
    r"\b(nvidia|google|cloud|intel|habana|aws|amazon|amd|instinct|tesla|dgx|hgx|gpu|gpus|chip|chips)\b"
)
SUFFIX = re.compile(r"^(tpu-v\d\w?)-?(\d+)$")
"""A slice of TPUs, with its size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DerivedAccelerator:
    """An accelerator like one of the catalog, with another power limit, memory, or links."""

    like: str
    why: str = ""
    power_w: float | None = None
    capacity_bytes: float | None = None
    bandwidth_bytes_per_s: float | None = None
    link_bytes_per_s: float | None = None
    """To the other accelerators of its node."""

    def layers(self) -> tuple[Compute, Memory]:
        """Return the layers of the related accelerator, changed."""
        compute, memory = accelerator_layers(self.like, "accel")
        own: dict[str, Any] = {
            "capacity_bytes": self.capacity_bytes or memory.capacity_bytes,
            "bandwidth_bytes_per_s": self.bandwidth_bytes_per_s or memory.bandwidth_bytes_per_s,
        }
        if self.power_w is None:
            return compute, replace(memory, **own)
        # Rates under a lower power limit: a power law of the limit.
        slower = (self.power_w / (compute.power_w or self.power_w)) ** POWER_EXPONENT
        rates = {f"{key}_flop_per_s": getattr(compute, f"{key}_flop_per_s") for key in RATES}
        lower: dict[str, Any] = {name: rate * slower for name, rate in rates.items() if rate is not None}
        return replace(compute, power_w=self.power_w, **lower), replace(memory, **own)


RELATIVES = {
    "mi350x": DerivedAccelerator(like="mi355x", why="an MI355X held to 1,000 W", power_w=1000),
    "a800": DerivedAccelerator(like="a100-sxm-80gb", why="an A100 with NVLink of 400 GB/s", link_bytes_per_s=200e9),
    "h100-nvl": DerivedAccelerator(
        like="h100-sxm-80gb",
        why="an H100 held to 400 W",
        power_w=400,
        capacity_bytes=94 * 2**30,
        bandwidth_bytes_per_s=3.9e12,
    ),
}
"""Accelerators that the catalog lacks, with their nearest relative."""


def find_accelerator(name: str) -> DerivedAccelerator:
    """Return the accelerator that a name means, as one of the catalog and what differs.

    >>> [find_accelerator(each).like for each in ("A100 40GB", "NVIDIA H100", "TPU v5p-128", "trn1", "B200")]
    ['a100-sxm-40gb', 'h100-sxm-80gb', 'tpu-v5p', 'trainium1', 'b200-sxm-180gb']
    >>> find_accelerator("H100-96GB-HBM2e-500W").power_w
    500.0
    """
    spelled = _normalize_accelerator(name)
    family, remarks = _split_family(spelled)
    if not family:
        raise UnknownName.among(
            "accel", name, "accelerator", [*catalog_entries.entry_names("accelerators"), *RELATIVES]
        )
    derived = RELATIVES.get(family) or DerivedAccelerator(like=_family_entry(family, remarks))
    capacity, power = _find_number(r"(\d{2,3})-?gi?b", remarks), _find_number(r"(\d{2,4})-?w(?:att)?s?\b", remarks)
    usual = accelerator_layers(derived.like, "accel")[1].capacity_bytes
    notes = [derived.why] if derived.why else []
    if capacity and abs(capacity * 2**30 / (derived.capacity_bytes or usual) - 1) > ROUNDED:
        derived = replace(derived, capacity_bytes=capacity * 2**30)
        notes.append(f"with {capacity:g} GB of memory")
        if "hbm2e" in remarks:
            # Memory comes in stacks, each with its own bandwidth.
            rate = capacity * 2**30 / STACK_BYTES * STACK_BYTES_PER_S
            derived = replace(derived, bandwidth_bytes_per_s=rate)
    if power:
        require(LEAST_POWER_W <= power <= MOST_POWER_W, "accel", name, "its power is out of range")
        derived = replace(derived, power_w=power)
        notes.append(f"held to {power:g} W")
    words = f"{derived.like} " + ", ".join(notes) if notes and not derived.why else ", ".join(notes)
    return replace(derived, why=words)


def _normalize_accelerator(name: str) -> str:
    """Return a name in small letters, words joined by hyphens, without vendors.

    >>> _normalize_accelerator("NVIDIA A100 (80 GB)"), _normalize_accelerator("TPUv4"), _normalize_accelerator("MI300X OAM"), _normalize_accelerator("v5p-256")
    ('a100-80gb', 'tpu-v4', 'mi300x-oam', 'tpu-v5p-256')
    """
    plain = VENDORS.sub(" ", re.sub(r"[_(),/]", " ", name.lower()))
    plain = re.sub(r"(\d)\s+(gi?b|w)\b", r"\1\2", plain)
    plain = re.sub(r"[\s-]+", "-", plain).strip("-")
    plain = re.sub(r"^tpu-?(?=v?\d)", "tpu-", plain)
    plain = re.sub(r"^tpu-(?=\d)", "tpu-v", plain)
    plain = re.sub(r"^(?=v\d[pe]?(-|$))", "tpu-", plain)
    return re.sub(r"^gaudi-(?=\d)", "gaudi", plain)


@cache
def _accelerator_families() -> dict[str, tuple[str, ...]]:
    """Return the entries of the catalog by family: the name without form and memory."""
    families: dict[str, list[str]] = {}
    for name in catalog_entries.entry_names("accelerators"):
        families.setdefault(re.sub(r"-(sxm|pcie)\d?|-\d+gb", "", name), []).append(name)
    return {family: tuple(names) for family, names in families.items()}


def _split_family(spelled: str) -> tuple[str, str]:
    """Return the longest family that a name begins with, and the rest of the name."""
    if sliced := SUFFIX.match(spelled):
        spelled = sliced[1]
    families = {**dict.fromkeys(_accelerator_families()), **dict.fromkeys(RELATIVES), **SYNONYMS}
    for family in sorted(families, key=len, reverse=True):
        if spelled == family or re.match(rf"{re.escape(family)}(?![a-z0-9])", spelled):
            return SYNONYMS.get(family, family), spelled[len(family) :]
    return "", ""


def _family_entry(family: str, remarks: str) -> str:
    """Return the entry of a family that has the form and memory of the remarks, else the usual one."""
    names = _accelerator_families()[family]
    form = next((word for word in FORMS if word in remarks), "sxm")
    capacity = _find_number(r"(\d{2,3})-?gi?b", remarks)
    return max(
        names,
        key=lambda name: (f"-{form}" in name, bool(capacity and f"-{capacity:g}gb" in name), name),
    )


def _find_number(pattern: str, text: str) -> float | None:
    match = re.search(pattern, text)
    return float(match[1]) if match else None


# ---- The machines of measured rows: an accelerator by any of its names, in the system of the catalog that has it

OUTER_DIMENSION = 1
"""Place of the dimension between nodes."""
HOST_NPUS = 8
"""Accelerators of a host, at most; larger domains are racks."""
GIGA = 1e9
LATENCY = "1 us"
"""Between accelerators of a node whose links no system of the catalog describes."""
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
class MeasuredMachine:
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


def find_fabric(text: str) -> str:
    """Return the link between nodes that *text* names; empty if none.

    >>> find_fabric("1600 Gbps/node RoCE stated"), find_fabric("8x ConnectX-7 IB")
    ('roce', '')
    """
    return next((link for word, link in FABRICS.items() if word in text.lower()), "")


def build_machine(
    accelerator: str, count: int, per_node: int | None = None, gbps: float | None = None, fabric: str = ""
) -> MeasuredMachine:
    """Return *count* accelerators in nodes of *per_node*, each with *gbps* between nodes, over links like *fabric*.

    Where the scale-up domain is larger than a node (NVL72), the innermost dimension is the largest group of one domain
    that divides the count. Without *gbps*, the rate between nodes is that of the accelerator's usual system.

    >>> [dim.npus for dim in build_machine("GB200", 256, per_node=4).network.dims]
    [64, 4]
    """
    derived = find_accelerator(accelerator)
    compute, memory = derived.layers()
    assumed = [f"accel: {derived.why}"] if derived.why else []
    system = find_system_with(derived.like)
    network, collective = _join_dimensions(system, derived, count, per_node, gbps, fabric)
    torus = any(dim.topology == "ring" for dim in network.dims)
    if not gbps and len(network.dims) > OUTER_DIMENSION and not torus:
        rate = f"{network.dims[OUTER_DIMENSION].bandwidth_bytes_per_s * 8 / 1e9:g} Gbps"
        assumed.append(f"inter_node_gbps_per_accel: {rate} assumed, as in {system or 'its data sheet'}")
    return MeasuredMachine(compute, memory, network, collective, tuple(assumed))


@cache
def find_system_with(accelerator: str) -> str:
    """Return the system of the catalog with an accelerator, else with one of its family; empty if there is none.

    >>> find_system_with("h100-sxm-80gb"), find_system_with("cosmic-10tf")
    ('dgx-h100', 'cosmic-1024')
    """
    owners = {
        name: str(catalog_entries.read_entry("systems", name)["accelerator"])
        for name in catalog_entries.entry_names("systems")
    }
    exact = [name for name, owned in owners.items() if owned == accelerator]
    if exact or "pcie" in accelerator:
        return exact[0] if exact else ""
    family = accelerator.partition("-")[0]
    relatives = [name for name, owned in owners.items() if owned.partition("-")[0] == family and "pcie" not in owned]
    return relatives[0] if relatives and family != "tpu" else ""


def find_system(accelerator: str) -> str:
    """Return the system of the accelerator that a name means; empty if it means none of the catalog.

    >>> find_system("NVIDIA A100-SXM4-80GB"), find_system("H100-96GB-HBM2e-500W"), find_system("Tesla T4")
    ('dgx-a100', 'dgx-h100', '')
    """
    try:
        return find_system_with(find_accelerator(accelerator).like)
    except UnknownName:
        return ""


@cache
def _join_dimensions(
    system: str, accelerator: DerivedAccelerator, count: int, per_node: int | None, gbps: float | None, fabric: str
) -> tuple[Network, Collective]:
    """Return the network of a system of the catalog at the size of a row, and its collective layer."""
    entry = catalog_entries.read_entry("systems", system) if system else {}
    dims = [dict(dim) for dim in system_dimensions(system)] if system else _data_sheet_dims(accelerator.like)
    if accelerator.link_bytes_per_s:
        dims[0]["bandwidth"] = f"{accelerator.link_bytes_per_s / GIGA:g} GB/s"
    sizes = _fit_sizes(count, dims, per_node)
    if len(dims) == OUTER_DIMENSION + 1 and dims[0]["npus"] != REST_OF_NPUS:
        if gbps:
            dims[OUTER_DIMENSION]["bandwidth"] = f"{gbps:g} Gbps"
        if fabric:
            dims[OUTER_DIMENSION] |= {key: catalog_entries.read_entry("links", fabric)[key] for key in LINK_KEYS}
    used = [index for index, size in enumerate(sizes) if size > 1]
    network: Network = schema.read_value(
        Network, {"dims": [{**dims[index], "npus": sizes[index]} for index in used]}, ""
    )
    collective_tree = entry.get("collective", {})
    defaults = collective_tree.get("algorithms") or [topologies[dim["topology"]].algorithm for dim in dims]
    chosen = {**collective_tree, "algorithms": [defaults[index] for index in used]}
    collective: Collective = schema.read_value(Collective, chosen, "collective")
    return network, collective


def _data_sheet_dims(accelerator: str) -> list[dict[str, Any]]:
    """Return the dimensions that an accelerator's own entry describes: a node, or a torus, and links between nodes."""
    links = catalog_entries.read_entry("accelerators", accelerator).get("fabric", {})
    rate, shape = links.get("scale_up", "64 GB/s"), str(links.get("scale_up_topology", ""))
    if ways := re.search(r"(\d)D torus", shape) if "scale_out" not in links else None:
        bandwidth = f"{units.parse_quantity(rate).value / int(ways[1]) / GIGA:g} GB/s"
        return [
            {"topology": "ring", "npus": REST_OF_NPUS, "bandwidth": bandwidth, "latency": LATENCY}
            for _ in range(int(ways[1]))
        ]
    domain = re.search(r"\d+", str(links.get("scale_up_domain", 8)))
    outer = {**catalog_entries.read_entry("links", "infiniband-hdr"), "bandwidth": links.get("scale_out", "100 Gbps")}
    return [
        {"topology": "switch", "npus": max(2, int(domain[0]) if domain else 8), "bandwidth": rate, "latency": LATENCY},
        {
            "topology": "switch",
            "npus": REST_OF_NPUS,
            "bandwidth": outer["bandwidth"],
            **{key: outer[key] for key in LINK_KEYS},
        },
    ]


def _fit_sizes(count: int, dims: list[dict[str, Any]], per_node: int | None) -> tuple[int, ...]:
    """Return the size of each dimension: of a node or rack, of the nodes; of a torus, sides as equal as may be."""
    if dims[0]["npus"] == REST_OF_NPUS:
        return tuple(even_factors(count, len(dims)))
    sizes = _split_domains(count, _innermost_size(dims, per_node))
    return (*sizes, *([1] * (len(dims) - len(sizes))))


def _innermost_size(dims: list[dict[str, Any]], per_node: int | None) -> int:
    """Return the accelerators of the innermost dimension: of a node, or of a whole rack."""
    inner = int(dims[0]["npus"])
    return inner if per_node is None or inner > HOST_NPUS else min(inner, per_node)


def _split_domains(count: int, domain: int) -> tuple[int, int]:
    """Return the accelerators per domain, and the number of domains.

    >>> _split_domains(256, 72), _split_domains(16, 8), _split_domains(4, 8)
    ((64, 4), (8, 2), (4, 1))
    """
    inner = max(size for size in divisors(count) if size <= domain)
    require(inner > 1 or count == 1, "n_accel", count, f"does not divide into groups of at most {domain}")
    return inner, count // inner
