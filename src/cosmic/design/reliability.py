"""How often accelerators are interrupted, and by what: ``reliability.yaml``, with sources and grades."""

from __future__ import annotations

from functools import cache
from typing import Any

from cosmic.base import units
from cosmic.base.errors import UnknownName
from cosmic.design.catalog_entries import CATALOG_FOLDER, load_mapping, resolve_name


@cache
def _load_reliability() -> dict[str, Any]:
    return load_mapping(CATALOG_FOLDER / "reliability.yaml")


def observations() -> tuple[str, ...]:
    """Return the names of all observed clusters and runs.

    >>> observations()[0]
    'llama3-405b'
    """
    return tuple(_load_reliability()["observations"])


def _find_observation(name: str) -> dict[str, Any]:
    known: dict[str, dict[str, Any]] = _load_reliability()["observations"]
    if name not in known:
        raise UnknownName.among("observation", name, "observation", known)
    return known[name]


def observed_mtbf_s(name: str) -> float:
    """Return the seconds between two interruptions of one accelerator: n T / k.

    n  accelerators that were watched    T  for how long    k  interruptions

    >>> round(observed_mtbf_s("llama3-405b") / 3600)  # hours: 16,384 * 54 * 24 / 419
    50677
    """
    seen = _find_observation(name)
    return float(seen["npus"] * units.read_quantity(seen["span"], units.SECONDS) / seen["interruptions"])


def npu_mtbf_s(accelerator: str) -> tuple[float | None, str]:
    """Return the seconds between two interruptions of an accelerator of the catalog, and the source.

    None where no rate is published, nor one of a near relative. A source that begins with *estimate* is of a relative.

    >>> npu_mtbf_s("h200-sxm-141gb")[1][:38], npu_mtbf_s("mi300x")
    ('estimate: no rate is published; that o', (None, 'no rate is published'))
    """
    stated = _load_reliability()["accelerators"].get(resolve_name("accelerators", accelerator) or accelerator)
    if stated is None:
        return None, "no rate is published"
    source: str = _find_observation(stated["observation"])["source"]
    if "estimate" in stated:
        source = f"estimate: {stated['estimate']}: {source}"
    return observed_mtbf_s(stated["observation"]), source


def failure_causes(name: str) -> dict[str, float]:
    """Return the share of each cause in the interruptions of an observation; empty if they were not counted.

    >>> round(failure_causes("llama3-405b")["HBM3"], 3), failure_causes("rsc-1")  # 72 of 419
    (0.172, {})
    """
    counts: dict[str, int] = _find_observation(name).get("causes", {})
    total = sum(counts.values())
    return {cause: count / total for cause, count in counts.items()}
