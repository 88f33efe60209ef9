"""Accelerators, nodes and links: each file loads, says where it comes from, and has the collected numbers."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from cosmic.base.units import BYTES, BYTES_PER_S, FLOP_PER_S, USD, WATTS, PhysicalDimension, read_quantity
from cosmic.design import catalog_entries, schema
from cosmic.design.machine_layers import accelerator_layers
from cosmic.design.memory_layer import MemoryTier
from tests.batches import check_all

COLLECTED = Path(__file__).parents[3].parent / "shared" / "reference" / "hardware.csv"
PARTS = [(kind, name) for kind in ("nodes", "links") for name in catalog_entries.entry_names(kind)]
KEYS = {
    "accelerators": {"compute", "memory", "fabric", "calibration", "host"},
    "nodes": {"kind", "npus", "accelerator", "fabric", "scale_out", "power", "price", "tiers", "tiers_source"},
    "links": {
        *("kind", "bandwidth", "power", "price", "latency", "transport", "residuals"),
        *("ports", "port_bandwidth", "optic", "cable"),
    },
}
COMMON = {"source", "confidence", "title", "vendor", "year", "notes", "price_basis", "aliases"}
MENDED = {"GB200": 35_000, "GB300": 42_000, "DGX A100 (8xA100-80GB)": 225_000}
"""Prices that differ from the collected ones: 72 GB200 of 60,000 USD cost more than their rack of 3.3 MUSD, and the
list price of a DGX A100 is that of its 40 GB version."""
UNITS = {
    "scale_out": BYTES_PER_S,
    "bandwidth": BYTES_PER_S,
    "port_bandwidth": BYTES_PER_S,
    "power": WATTS,
    "price": USD,
}


def test_the_catalog_holds_what_clusters_are_built_from() -> None:
    wanted = {"a100-sxm-80gb", "h100-sxm-80gb", "h200-sxm-141gb", "b200-sxm-180gb", "mi300x", "tpu-v4", "tpu-v5p"}
    assert wanted | {"cosmic-10tf", "cosmic-459tf", "cosmic-900tf"} <= set(catalog_entries.entry_names("accelerators"))
    assert {"dgx-h100", "gb200-nvl72-rack"} <= set(catalog_entries.entry_names("nodes"))
    assert {"connectx-7-ndr400", "pcie5-x16"} <= set(catalog_entries.entry_names("links"))


@pytest.mark.parametrize("kind", KEYS)
def test_every_file_says_where_it_comes_from_and_how_sure_that_is(kind: str) -> None:
    for name in catalog_entries.entry_names(kind):
        entry = catalog_entries.read_entry(kind, name)
        assert entry["source"].strip()
        assert entry["confidence"] in ("high", "medium", "low")
        assert set(entry) <= COMMON | KEYS[kind]


@check_all("name", catalog_entries.entry_names("accelerators"))
def test_every_accelerator_loads(name: str) -> None:
    compute, memory = accelerator_layers(name, "accelerator")
    assert compute.accelerator == name
    assert (compute.achieved_bf16_flop_per_s or 0) <= compute.bf16_flop_per_s
    assert memory.capacity_bytes > 1e9
    fabric = catalog_entries.read_entry("accelerators", name).get("fabric", {})
    assert set(fabric) <= {"scale_up", "scale_up_domain", "scale_up_topology", "scale_out"}
    assert all(read_quantity(fabric[key], BYTES_PER_S) > 0 for key in ("scale_up", "scale_out") if key in fabric)


@check_all("kind, name", PARTS)
def test_every_part_has_quantities_of_the_right_unit(kind: str, name: str) -> None:
    entry = catalog_entries.read_entry(kind, name)
    assert all(read_quantity(entry[key], UNITS[key]) > 0 for key in UNITS if key in entry)
    assert isinstance(entry.get("npus", 1), int)


def test_the_numbers_of_an_h100_are_those_of_its_datasheet() -> None:
    compute, memory = accelerator_layers("h100-sxm-80gb", "accelerator")
    assert (compute.bf16_flop_per_s, compute.fp8_flop_per_s) == (989.4e12, 1978.9e12)
    assert (compute.power_w, compute.price_usd) == (700.0, 28000.0)
    assert (memory.capacity_bytes, memory.bandwidth_bytes_per_s) == (80 * 2**30, 3.35e12)


def test_the_numbers_of_cosmic_s_accelerator_are_those_of_its_inputs() -> None:
    compute, memory = accelerator_layers("cosmic-10tf", "accelerator")
    assert compute.bf16_flop_per_s == 10e12
    assert compute.fp8_flop_per_s is None
    assert (memory.capacity_bytes, memory.bandwidth_bytes_per_s) == (24e9, 50e9)


def test_bits_and_bytes_of_links_are_distinct() -> None:
    assert read_quantity(catalog_entries.read_entry("links", "connectx-7-ndr400")["bandwidth"], BYTES_PER_S) == 50e9
    assert read_quantity(catalog_entries.read_entry("links", "pcie5-x16")["bandwidth"], BYTES_PER_S) == 63e9


# ---- the collected numbers

RATES = {
    "bf16": "bf16_tflops_dense",
    "fp32": "fp32_tflops",
    "tf32": "tf32_tflops",
    "fp8": "fp8_tflops_dense",
    "fp4": "fp4_tflops_dense",
    "int8": "int8_tops_dense",
    "achieved_bf16": "achieved_bf16_tflops_max",
}


def number(row: dict[str, str], column: str, unit: str, dimension: PhysicalDimension) -> float | None:
    """Return a collected number in base units; None where there is none."""
    return read_quantity(f"{row[column]} {unit}", dimension) if row[column] else None


def found(entry: dict[str, Any], key: str, dimension: PhysicalDimension) -> float | None:
    """Return a number of the catalog in base units; None where there is none."""
    return read_quantity(entry[key], dimension) if key in entry else None


def price_of(row: dict[str, str]) -> float | None:
    return MENDED.get(row["name"]) or number(row, "approx_price_usd", "USD", USD)


def check_accelerator(entry: dict[str, Any], row: dict[str, str]) -> None:
    compute, memory, fabric = entry["compute"], entry["memory"], entry["fabric"]
    for key, column in RATES.items():
        assert found(compute, key, FLOP_PER_S) == number(row, column, "TFLOP/s", FLOP_PER_S)
    assert found(compute, "power", WATTS) == number(row, "tdp_w", "W", WATTS)
    assert found(compute, "price", USD) == price_of(row)
    assert found(memory, "capacity", BYTES) == number(row, "mem_gb", "GiB", BYTES)  # memory is sold in powers of two
    assert found(memory, "bandwidth", BYTES_PER_S) == number(row, "mem_bw_TBps", "TB/s", BYTES_PER_S)
    one_way = number(row, "scaleup_bw_GBps_unidir_per_accel", "GB/s", BYTES_PER_S)
    assert found(fabric, "scale_up", BYTES_PER_S) == one_way
    assert found(fabric, "scale_out", BYTES_PER_S) == number(row, "scaleout_gbps_per_accel", "Gbps", BYTES_PER_S)
    assert fabric["scale_up_domain"] == row["scaleup_domain"]
    assert fabric["scale_up_topology"] == row["scaleup_topology"]


def check_part(entry: dict[str, Any], row: dict[str, str]) -> None:
    assert entry["kind"] == row["kind"]
    assert found(entry, "power", WATTS) == number(row, "tdp_w", "W", WATTS)
    assert found(entry, "price", USD) == price_of(row)
    outward = number(row, "scaleout_gbps_per_accel", "Gbps", BYTES_PER_S)
    if row["kind"] in ("node", "pod"):
        assert str(entry["npus"]) == row["scaleup_domain"]
        assert entry.get("fabric", "") == row["scaleup_topology"]
        assert found(entry, "scale_out", BYTES_PER_S) == outward
    else:
        one_way = number(row, "scaleup_bw_GBps_unidir_per_accel", "GB/s", BYTES_PER_S)
        assert found(entry, "bandwidth", BYTES_PER_S) == (outward or one_way)


@pytest.mark.skipif(not COLLECTED.is_file(), reason="the collected numbers are not next to this checkout")
def test_every_collected_number_is_in_the_catalog() -> None:
    by_title = {
        catalog_entries.read_entry(kind, name)["title"]: catalog_entries.read_entry(kind, name)
        for kind in KEYS
        for name in catalog_entries.entry_names(kind)
    }
    with COLLECTED.open() as lines:
        rows = list(csv.DictReader(lines))
    assert len(rows) == 54
    for row in rows:
        entry = by_title[row["name"]]
        (check_accelerator if row["kind"] == "accelerator" else check_part)(entry, row)
        for key in ("vendor", "source", "confidence", "notes", "price_basis", "year"):
            assert str(entry.get(key, "")) == row[key] or (key == "price_basis" and row["name"] in MENDED)


@pytest.mark.parametrize("kind", ["nodes", "systems"])
def test_tiers_of_memory_say_where_they_come_from_and_are_read_as_such(kind: str) -> None:
    for name in catalog_entries.entry_names(kind):
        entry = catalog_entries.read_entry(kind, name)
        assert ("tiers" in entry) == ("tiers_source" in entry)
        tiers = [schema.read_value(MemoryTier, each, name) for each in entry.get("tiers", [])]
        assert all(each.latency_s > 0 for each in tiers)
        rates = [each.bandwidth_bytes_per_s for each in tiers]
        assert rates == sorted(rates, reverse=True)
