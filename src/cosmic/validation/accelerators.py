"""The accelerators of measured rows: which one of the catalog a name means, and how it differs.

A name is a family (H100, MI300X, TPU v5p, trn1) and remarks: form (SXM, PCIe, NVL), memory (96GB, HBM2e), power (500W).
Of a family, the entry with the form and memory of the name counts, else the one that most systems have. One with a
lower power limit runs at a lower clock: power grows with frequency × voltage², and voltage with frequency, so power
grows with the second to third power of the clock,

    rate = rate of the relative × (power / power of the relative) ^ γ        1/3 ≤ γ ≤ 1/2

Memory bandwidth does not change with power.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from cosmic import catalog
from cosmic.design.compute import Compute
from cosmic.design.memory import Memory
from cosmic.errors import UnknownName, require
from cosmic.loading.machines import accelerator_layers

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
class Derived:
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
        slower = (self.power_w / (compute.power_w or self.power_w)) ** POWER_EXPONENT
        rates = {f"{key}_flop_per_s": getattr(compute, f"{key}_flop_per_s") for key in RATES}
        lower: dict[str, Any] = {name: rate * slower for name, rate in rates.items() if rate is not None}
        return replace(compute, power_w=self.power_w, **lower), replace(memory, **own)


RELATIVES = {
    "mi350x": Derived(like="mi355x", why="an MI355X held to 1,000 W", power_w=1000),
    "a800": Derived(like="a100-sxm-80gb", why="an A100 with NVLink of 400 GB/s", link_bytes_per_s=200e9),
    "h100-nvl": Derived(
        like="h100-sxm-80gb",
        why="an H100 held to 400 W",
        power_w=400,
        capacity_bytes=94 * 2**30,
        bandwidth_bytes_per_s=3.9e12,
    ),
}
"""Accelerators that the catalog lacks, with their nearest relative."""


def accelerator_named(name: str) -> Derived:
    """Return the accelerator that a name means, as one of the catalog and what differs.

    >>> [accelerator_named(each).like for each in ("A100 40GB", "NVIDIA H100", "TPU v5p-128", "trn1", "B200")]
    ['a100-sxm-40gb', 'h100-sxm-80gb', 'tpu-v5p', 'trainium1', 'b200-sxm-180gb']
    >>> accelerator_named("H100-96GB-HBM2e-500W").power_w
    500.0
    """
    spelled = _spelled(name)
    family, remarks = _family(spelled)
    if not family:
        raise UnknownName.among("accel", name, "accelerator", [*catalog.names("accelerators"), *RELATIVES])
    found = RELATIVES.get(family) or Derived(like=_entry(family, remarks))
    capacity, power = _number(r"(\d{2,3})-?gi?b", remarks), _number(r"(\d{2,4})-?w(?:att)?s?\b", remarks)
    usual = accelerator_layers(found.like, "accel")[1].capacity_bytes
    notes = [found.why] if found.why else []
    if capacity and abs(capacity * 2**30 / (found.capacity_bytes or usual) - 1) > ROUNDED:
        found = replace(found, capacity_bytes=capacity * 2**30)
        notes.append(f"with {capacity:g} GB of memory")
        if "hbm2e" in remarks:
            rate = capacity * 2**30 / STACK_BYTES * STACK_BYTES_PER_S
            found = replace(found, bandwidth_bytes_per_s=rate)
    if power:
        require(LEAST_POWER_W <= power <= MOST_POWER_W, "accel", name, "its power is out of range")
        found = replace(found, power_w=power)
        notes.append(f"held to {power:g} W")
    said = f"{found.like} " + ", ".join(notes) if notes and not found.why else ", ".join(notes)
    return replace(found, why=said)


def _spelled(name: str) -> str:
    """Return a name in small letters, words joined by hyphens, without vendors.

    >>> _spelled("NVIDIA A100 (80 GB)"), _spelled("TPUv4"), _spelled("MI300X OAM"), _spelled("v5p-256")
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
def _families() -> dict[str, tuple[str, ...]]:
    """Return the entries of the catalog by family: the name without form and memory."""
    found: dict[str, list[str]] = {}
    for name in catalog.names("accelerators"):
        found.setdefault(re.sub(r"-(sxm|pcie)\d?|-\d+gb", "", name), []).append(name)
    return {family: tuple(names) for family, names in found.items()}


def _family(spelled: str) -> tuple[str, str]:
    """Return the longest family that a name begins with, and the rest of the name."""
    if sliced := SUFFIX.match(spelled):
        spelled = sliced[1]
    known = {**dict.fromkeys(_families()), **dict.fromkeys(RELATIVES), **SYNONYMS}
    for family in sorted(known, key=len, reverse=True):
        if spelled == family or re.match(rf"{re.escape(family)}(?![a-z0-9])", spelled):
            return SYNONYMS.get(family, family), spelled[len(family) :]
    return "", ""


def _entry(family: str, remarks: str) -> str:
    """Return the entry of a family that has the form and memory of the remarks, else the usual one."""
    names = _families()[family]
    form = next((each for each in FORMS if each in remarks), "sxm")
    capacity = _number(r"(\d{2,3})-?gi?b", remarks)
    return max(
        names,
        key=lambda name: (f"-{form}" in name, bool(capacity and f"-{capacity:g}gb" in name), name),
    )


def _number(pattern: str, text: str) -> float | None:
    found = re.search(pattern, text)
    return float(found[1]) if found else None


def year_of(accelerator: str) -> int:
    """Return the year of an accelerator of the catalog; 2022 where it is not known."""
    year = catalog.entry("accelerators", accelerator).get("year")
    return year if isinstance(year, int) else 2022
