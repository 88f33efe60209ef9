"""Networks for 512 to 16,384 H100: what each way to build them costs and draws, and what it does to the step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from common import Effort, metrics_of, span

from cosmic import load_design
from cosmic.cluster import dimension_parts, price_cluster
from cosmic.design import assign_fields, batch_of, load_machine
from cosmic.pages import Axis, Bar, BarGroup, Figure, Heading, Part, Table, Text, bars

SIZES = (512, 4096, 16384)
DENSE, EXPERTS = "llama3-405b", "deepseek-v3"
NETWORKS: Mapping[str, tuple[str, int]] = {
    "rail-optimised 1:1": ("rail_optimized", 1),
    "rail-optimised 2:1": ("rail_optimized", 2),
    "rail-optimised 4:1": ("rail_optimized", 4),
    "fat tree 1:1": ("fat_tree", 1),
    "fat tree 4:1": ("fat_tree", 4),
    "rail-only": ("rail_only", 1),
    "dragonfly": ("dragonfly", 1),
}
BASE = "rail-optimised 1:1"
WIDE = {"tp": 1, "cp": 1, "pp": 8, "ep": 256, "micro_batch": 1, "recompute": "full"}
"""A mapping whose experts are on 32 nodes."""


@dataclass(frozen=True)
class Built:
    """A network between nodes, and the step of each model on it."""

    name: str
    npus: int
    switches: int
    optics: int
    cables: int
    usd: float
    watts: float
    dense_s: float
    experts_s: float
    """With the best mapping of a quick search."""
    wide_s: float | None
    """The mixture of experts with a mapping that sends tokens far; None where it does not fit."""


def settings_of(name: str) -> dict[str, Any]:
    """Return the fields of a network."""
    build, oversubscription = NETWORKS[name]
    return {"network.dims.1.fabric.build": build, "network.dims.1.oversubscription": oversubscription}


def built(name: str, npus: int) -> Built:
    """Return a network for so many H100."""
    settings = settings_of(name)
    batch = batch_of(load_machine(f"{DENSE}@dgx-h100:{npus}", settings))
    parts, cost = dimension_parts(batch, 1), price_cluster(batch)
    wide = npus >= 8 * 256
    return Built(
        name,
        npus,
        int(parts["switches"]),
        int(parts["optics"]),
        int(parts["cables"]),
        float(cost.network_usd),
        float(cost.network_w),
        metrics_of(load_design(f"{DENSE}@dgx-h100:{npus}", settings)).step_s,
        metrics_of(load_design(f"{EXPERTS}@dgx-h100:{npus}", settings)).step_s,
        metrics_of(load_design(f"{EXPERTS}@dgx-h100:{npus}", {**settings, **WIDE})).step_s if wide else None,
    )


def all_built(effort: Effort) -> list[Built]:
    """Return every network at every size; the smallest size only for a quick look."""
    sizes = SIZES[:1] if effort.quick else SIZES
    return [built(name, npus) for npus in sizes for name in NETWORKS]


def section(found: Sequence[Built]) -> list[Part]:
    """Return the networks side by side."""
    rows = [
        (
            each.npus,
            each.name,
            each.switches,
            each.optics,
            each.cables,
            f"{each.usd / 1e6:.2f}",
            f"{each.watts / 1e3:,.0f}",
            f"{each.dense_s:.2f}",
            f"{each.experts_s:.2f}",
            "–" if each.wide_s is None else f"{each.wide_s:.2f}",
        )
        for each in found
    ]
    columns = ("H100", "network", "switches", "optics", "cables", "M USD", "kW", "405B, s", "V3, s", "V3 wide, s")
    return [
        Heading("Networks"),
        Text(
            f"""A network joins nodes of eight H100 by 400 Gbit/s a GPU, with switches of 64 ports. Counts are whole
            parts. Steps are of LLaMA-3 405B (2,048 sequences of 8,192 tokens) and of DeepSeek-V3 (15,360 of 4,096),
            each with the best mapping of a quick search on that network; `V3 wide` is DeepSeek-V3 with its experts on
            256 GPUs, which a careless mapping does.

            {summary(found)}"""
        ),
        Table(columns, rows, "The network between nodes: what it takes, and what it does to the step."),
        Figure(chart(found), "networks", "Dollars of the network between nodes, for each GPU."),
    ]


def summary(found: Sequence[Built]) -> str:
    """Return what the table says."""
    most = max(each.npus for each in found)
    largest = {each.name: each for each in found if each.npus == most}
    base, thin, rails = largest[BASE], largest["rail-optimised 4:1"], largest["rail-only"]
    slower = span((100 * (each.dense_s / base.dense_s - 1) for each in largest.values()), ".1f")
    experts = span((100 * (each.experts_s / base.experts_s - 1) for each in largest.values()), ".1f")
    said = f"""At {most:,} GPUs, 4:1 takes {thin.usd / base.usd:.0%} of the dollars of 1:1, and rail-only
        {rails.usd / base.usd:.0%}. With a mapping made for the network the dense model is {slower} % slower than on
        {BASE}, and the mixture of experts {experts} %: both keep what is frequent inside nodes and leaves."""
    wide_s, tree_s = base.wide_s, largest["fat tree 4:1"].wide_s
    if wide_s is None or tree_s is None:
        return said
    return f"""{said} The careless mapping takes {wide_s / base.experts_s:.1f} times as long on the best network, and
        {tree_s / base.experts_s:.1f} times on a fat tree with 4:1."""


def chart(found: Sequence[Built]) -> str:
    """Return dollars of the network for each GPU."""
    sizes = sorted({each.npus for each in found})
    groups = [
        BarGroup(f"{npus:,}", [Bar(each.name, each.usd / npus) for each in found if each.npus == npus])
        for npus in sizes
    ]
    return bars(groups, x=Axis("USD for each GPU"), title="What a network costs")


@dataclass(frozen=True)
class Scaled:
    """One design at some size."""

    npus: int
    global_batch: int
    step_s: float
    mfu: float
    restarted: float
    """Goodput if a failure stops the whole run."""
    replaced: float
    """Goodput if it stops one replica."""


def scaled_up(sizes: Sequence[int]) -> list[Scaled]:
    """Return one mapping with more and more replicas."""
    mesh = {"tp": 8, "cp": 1, "pp": 16, "micro_batch": 1, "schedule": "1f1b", "recompute": "full"}
    base = load_design(f"{DENSE}@dgx-h100:16384", {**mesh, "weight_sharding": "zero1", "run.tokens": "15T"})
    rows = []
    for npus in sizes:
        more = {"network.dims.1.npus": npus // 8, "workload.dp": npus // 128, "workload.global_batch": npus // 8}
        design = assign_fields(base, more)
        metrics = metrics_of(design)
        replaced = metrics_of(assign_fields(design, {"run.recovery": "replica"}))
        shares = metrics.goodput or 0.0, replaced.goodput or 0.0
        rows.append(Scaled(npus, npus // 8, metrics.step_s, metrics.mfu, *shares))
    return rows
