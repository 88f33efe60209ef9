"""Public clusters: published power, price and switches beside what the model says of the same machine.

Prices of the catalog are list prices and estimates within 30 %, powers are rated: a ratio says how far a published
figure is from that, not how well a measurement is predicted. What is not published, or not known, is None.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cosmic.base import units
from cosmic.cluster.cluster_cost import ClusterCost, cluster_cost, dimension_parts, owned_cluster_usd_per_s
from cosmic.design import catalog_entries
from cosmic.design.design_batch import Batch, batch_of
from cosmic.design.design_point import DesignPoint
from cosmic.search.mapping.design_completion import load_design

DATA = Path(__file__).parent / "data" / "clusters.yaml"
MODEL = {"family": "decoder", "layers": 1, "hidden": 64, "heads": 1, "ffn": 64, "vocab": 2}
"""A model for designs of which only the hardware is asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRow:
    """A public cluster."""

    name: str
    system: str
    npus: int
    published_power_w: float | None
    power_w: float | None
    """Ours: rated, at the meter or of the system alone, as published."""
    published_usd: float | None
    usd: float | None
    """Ours: of the cluster or of its servers, as published."""
    published_switches: int | None
    switches: int
    source: str
    grade: str
    remark: str

    @property
    def power_ratio(self) -> float | None:
        """Ours over what is published."""
        return _ratio(self.power_w, self.published_power_w)

    @property
    def usd_ratio(self) -> float | None:
        """Ours over what is published."""
        return _ratio(self.usd, self.published_usd)


@dataclass(frozen=True, slots=True, kw_only=True)
class RateRow:
    """A published figure of one accelerator of a system: dollars an hour, or of optics and cables."""

    system: str
    published_usd: float
    usd: float

    @property
    def ratio(self) -> float:
        """Ours over what is published."""
        return self.usd / self.published_usd


def machine_design(system: str, settings: Mapping[str, Any] | None = None) -> DesignPoint:
    """Return a design on a *system*, of which only the hardware matters.

    >>> machine_design("dgx-h100:1016").network.npus
    1016
    """
    mesh = {"tp": 1, "cp": 1, "pp": 1, "micro_batch": 1}
    tree = {"model": MODEL, "system": system, "workload": {"sequence": 1, **mesh, "global_batch": 1}}
    return load_design(tree, settings)


def public_clusters() -> list[ClusterRow]:
    """Return every public cluster, what is published of it, and ours beside.

    >>> row = next(row for row in public_clusters() if row.name == "sheet-2048-h100")
    >>> row.published_switches, row.switches, round(row.usd_ratio, 2)
    (96, 96, 0.97)
    """
    return [_row(entry) for entry in catalog_entries.load_mapping(DATA)["clusters"]]


def _row(entry: Mapping[str, Any]) -> ClusterRow:
    batch = batch_of(machine_design(entry["system"], entry.get("settings")))
    cost = cluster_cost(batch)
    power = cost.power_w if entry.get("power_at", "meter") == "meter" else cost.power_w / cost.pue
    return ClusterRow(
        name=entry["name"],
        system=entry["system"],
        npus=batch.base.network.npus,
        published_power_w=units.read_quantity(entry["power"], units.WATTS) if "power" in entry else None,
        power_w=_number_or_none(power),
        published_usd=units.read_quantity(entry["price"], units.USD) if "price" in entry else None,
        usd=_number_or_none(_price(cost, entry.get("price_of", "cluster"))),
        published_switches=entry.get("switches"),
        switches=int(sum(dimension_parts(batch, index)["switches"] for index in range(len(batch.base.network.dims)))),
        source=entry["source"],
        grade=entry["grade"],
        remark=entry.get("remark", ""),
    )


def _price(cost: ClusterCost, kind: str) -> Any:
    return cost.capital_usd if kind == "cluster" else cost.accelerators_usd + cost.hosts_usd


def owner_costs() -> list[RateRow]:
    """Return the published dollars of owning an accelerator for an hour, and ours: all of it at its rated power."""
    published = catalog_entries.load_mapping(DATA)["owners"]["usd_per_h"]
    return [
        RateRow(system=name, published_usd=usd, usd=_per_hour(batch_of(machine_design(name))))
        for name, usd in published.items()
    ]


def _per_hour(batch: Batch) -> float:
    cost = cluster_cost(batch)
    return float(owned_cluster_usd_per_s(batch, cost, cost.power_w) * 3600 / batch.base.network.npus)


def link_costs() -> list[RateRow]:
    """Return the published dollars of optics and cables for each accelerator, and ours."""
    return list(_link_rows(catalog_entries.load_mapping(DATA)["links"]["usd"]))


def _link_rows(rows: list[Mapping[str, Any]]) -> Iterator[RateRow]:
    for row in rows:
        batch = batch_of(machine_design(row["system"], {"network.dims.1.fabric.build": row["build"]}))
        counts, fabric = dimension_parts(batch, 1), batch.base.network.dims[1].fabric
        total_usd = counts["optics"] * (fabric.optic_price_usd or 0) + counts["cables"] * (fabric.cable_price_usd or 0)
        usd_per_npu = float(total_usd) / batch.base.network.npus
        yield RateRow(system=row["system"], published_usd=units.read_quantity(row["price"], units.USD), usd=usd_per_npu)


def _number_or_none(value: Any) -> float | None:
    return None if np.isnan(value) else float(value)


def _ratio(ours: float | None, published: float | None) -> float | None:
    return ours / published if ours is not None and published else None
