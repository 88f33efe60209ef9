"""Switches, nodes and systems as they are sold: figures that designs take from the catalog."""

from __future__ import annotations

import pytest

from cosmic.base import units
from cosmic.base.errors import SpecError, UnknownName
from cosmic.design import catalog_entries
from cosmic.design.catalog_parts import (
    FABRIC_KEYS,
    fill_switches,
    node_figures,
    switch_figures,
    switch_name,
    switch_names,
)
from cosmic.design.loading import design_tree
from cosmic.design.network_layer import BY_BANDWIDTH, INCLUDED
from cosmic.network.switch_tiers import ports_at
from cosmic.search.mapping.design_completion import load_design
from cosmic.search.space.space_files import mapping_space
from tests.batches import check_all

MESH = {"tp": 1, "pp": 1, "cp": 1, "micro_batch": 1}
SOLD = [name for name in catalog_entries.entry_names("systems") if not name.startswith("cosmic-")]


@pytest.mark.parametrize(
    ("switch", "gbps", "ports", "optic"),
    [
        ("quantum-2", 400, 64, 500),
        ("quantum-2", 200, 128, 250),
        ("tomahawk-5", 400, 128, 500),
        ("tomahawk-5", 600, 85, 750),  # 51.2 Tb/s for three ports of 200 Gb/s each: 85.3
        ("quantum-x800", 800, 144, 1000),
        ("qm8790", 200, 40, 250),
    ],
)
def test_ports_are_split_to_the_bandwidth_of_a_nic(switch: str, gbps: int, ports: int, optic: int) -> None:
    """Whole ports of the NIC's bandwidth; transceivers cost in proportion to it."""
    found, bandwidth = switch_figures(switch), gbps * 1e9 / 8
    own = units.read_quantity(found["port_bandwidth"], units.BYTES_PER_S)
    assert ports_at(found["radix"], own, bandwidth) == ports
    assert units.read_quantity(found["optic_price"], units.USD) * bandwidth / own == pytest.approx(optic)


def test_a_circuit_switch_has_ports_and_no_price() -> None:
    found = switch_figures("palomar-ocs")
    assert found["circuit_port_power"] == "0.84375 W"  # 108 W of 128 ports
    assert not {"circuit_port_price", "switch_price", "switch_power"} & set(found)


@pytest.mark.parametrize("name", switch_names())
def test_every_switch_has_ports_and_known_optics(name: str) -> None:
    entry = catalog_entries.read_entry("links", name)
    assert entry["ports"] >= 32
    assert set(switch_figures(name)) <= set(FABRIC_KEYS)
    assert catalog_entries.read_entry("links", entry["optic"])["kind"] == "optic"
    assert "cable" not in entry or catalog_entries.read_entry("links", entry["cable"])["kind"] == "cable"


@check_all(
    "name",
    [
        name
        for name in catalog_entries.entry_names("nodes")
        if "accelerator" in catalog_entries.read_entry("nodes", name)
    ],
)
def test_every_node_leaves_something_for_its_host(name: str) -> None:
    node = node_figures(name)
    assert node["accelerator"] in catalog_entries.entry_names("accelerators")
    assert node["npus"] >= 2


def test_a_host_is_what_accelerators_leave_of_a_node() -> None:
    """A rack of 72 GB200: 3.3 MUSD less 72 · 35,000; 120 kW less 72 · 1.2 kW."""
    assert node_figures("gb200-nvl72-rack") == {
        "name": "gb200-nvl72-rack",
        "accelerator": "gb200",
        "npus": 72,
        "host_price": "780000 USD",
        "host_power": "33.6 kW",
    }
    assert "host_price" not in node_figures("hgx-h800")
    assert not {"host_price", "host_power"} & set(node_figures("trn2-48xlarge"))


@check_all("name", SOLD)
def test_a_system_is_sold_with_its_own_accelerator(name: str) -> None:
    entry = catalog_entries.read_entry("systems", name)
    assert "node" not in entry or node_figures(entry["node"])["accelerator"] == entry["accelerator"]
    for dim in entry["network"]["dims"]:
        fabric = dim.get("fabric", {})
        assert "switch" not in fabric or fabric["switch"] == switch_name(fabric["switch"], "switch")


def test_the_paper_s_systems_are_priced_by_bandwidth() -> None:
    for name in ("cosmic-512", "cosmic-1024", "cosmic-2048"):
        point = load_design(f"llama3-8b@{name}", MESH)
        assert {dim.fabric.build for dim in point.network.dims} == {BY_BANDWIDTH}
        assert not point.node.name


def test_a_design_holds_the_figures_of_its_switch() -> None:
    fabric = load_design("llama3-8b@dgx-h100:1024", MESH).network.dims[1].fabric
    assert (fabric.radix, fabric.switch_price_usd, fabric.switch_power_w) == (64, 40_000, 747)
    assert (fabric.optic_price_usd, fabric.optic_power_w, fabric.cable_price_usd) == (500, 8, 240)
    assert load_design("llama3-8b@dgx-h100:1024", MESH).network.dims[0].fabric.build == INCLUDED


def test_another_switch_brings_its_own_figures() -> None:
    named = {"network.dims.1.fabric.switch": "tomahawk-5"}
    fabric = load_design("llama3-8b@dgx-h100:1024", {**MESH, **named}).network.dims[1].fabric
    assert (fabric.switch, fabric.radix) == ("tomahawk-5-64x800gbe-box", 64)
    assert (fabric.switch_price_usd, fabric.optic_power_w) == (35_000, 15)
    stated = {**named, "network.dims.1.fabric.switch_price": "30 kUSD"}
    assert load_design("llama3-8b@dgx-h100:1024", {**MESH, **stated}).network.dims[1].fabric.switch_price_usd == 30_000


def test_a_saved_design_takes_another_switch_or_node_whole() -> None:
    saved = design_tree(load_design("llama3-8b@dgx-h100:1024", MESH))
    named = {"network.dims.1.fabric.switch": "tomahawk-5", "node.name": "dgx-h200"}
    again, fresh = load_design(saved, named), load_design("llama3-8b@dgx-h100:1024", {**MESH, **named})
    assert again.network == fresh.network
    assert again.node == fresh.node


@pytest.mark.parametrize(
    "name", ["dgx-h100:1024", "gb200-nvl72:576", "tpu-v4:512", "trn2:64", "dgx-h800:64", "dgx-h100:1"]
)
def test_a_design_is_written_with_all_figures_of_its_parts(name: str) -> None:
    point = load_design(f"llama3-8b@{name}", {**MESH, "weight_sharding": "zero3"})
    assert load_design(design_tree(point)) == point
    if point.network.dims and (at := len(point.network.dims) - 1) and point.network.dims[at].fabric.switch:
        changed = point.changed({f"network.dims.{at}.fabric.switch_price": None, f"network.dims.{at}.fabric.radix": 64})
        assert load_design(design_tree(changed)) == changed


def test_a_switch_that_is_none_is_refused() -> None:
    for name in ("tomahawk-6", "mpo-fibre", 5):
        with pytest.raises(UnknownName, match=r"network\.dims\.1\.fabric\.switch = .*no such switch"):
            load_design("llama3-8b@dgx-h100:1024", {**MESH, "network.dims.1.fabric.switch": name})


def test_what_cannot_be_read_is_left_to_the_reader() -> None:
    assert fill_switches({"dims": 3}) == {"dims": 3}
    assert fill_switches({"dims": [None, {"fabric": 1}]}) == {"dims": [None, {"fabric": 1}]}
    with pytest.raises(SpecError, match=r"network\.dims\.1\.bandwidth"):
        load_design("llama3-8b@dgx-h100:1024", {**MESH, "network.dims.1.bandwidth": "fast"})


def test_a_search_does_not_vary_the_name_of_a_part_without_its_figures() -> None:
    for path, names in (("network.dims.1.fabric.switch", ["quantum-2", "tomahawk-5"]), ("node.name", ["dgx-h200"])):
        with pytest.raises(SpecError, match="names a part"):
            mapping_space("llama3-8b@dgx-h100:16", MESH, vary={path: names})
