"""A user's quotes: which fields they set, and what they do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cosmic.base.errors import SpecError
from cosmic.design.catalog_parts import apply_prices, quotes_override, read_prices
from cosmic.design.loading import design_tree
from cosmic.evaluation import evaluate
from cosmic.search.mapping.design_completion import load_design
from cosmic.simulate.metrics import Metrics

QUOTES: dict[str, Any] = {
    "accelerators": {"h100-sxm-80gb": "25 kUSD"},
    "nodes": {"dgx-h100": "280 kUSD"},
    "switches": {"quantum-2": "30 kUSD"},
    "optics": {"400g-dr4-transceiver": "400 USD"},
    "cables": {"mpo-fibre": "120 USD"},
    "energy": "0.06 USD/kWh",
}
DESIGN = "llama3-8b@dgx-h100:1024"
MESH = {"tp": 1, "pp": 1, "cp": 1, "micro_batch": 1}


def test_quotes_are_put_into_the_fields_of_a_design() -> None:
    point = load_design(DESIGN, MESH, prices=QUOTES)
    assert (point.compute.price_usd, point.facility.usd_per_kwh) == (25_000, 0.06)
    assert point.node.host_price_usd == 280_000 - 8 * 25_000
    fabric = point.network.dims[1].fabric
    assert (fabric.switch_price_usd, fabric.optic_price_usd, fabric.cable_price_usd) == (30_000, 400, 120)
    assert (fabric.switch_power_w, fabric.radix) == (747, 64)
    outcome = evaluate(point)
    assert isinstance(outcome, Metrics)
    # 1,024 GPUs, 128 hosts; 48 switches, 2,048 links of two transceivers and a cable.
    network = 48 * 30_000 + 2_048 * (2 * 400 + 120)
    assert outcome.network_usd == network
    assert outcome.cost_usd == 1_024 * 25_000 + 128 * 80_000 + network


def test_a_priced_design_keeps_its_quotes() -> None:
    point = load_design(DESIGN, MESH, prices=QUOTES)
    assert load_design(design_tree(point)) == point
    assert point.identity != load_design(DESIGN, MESH).identity


def test_what_is_set_stands_before_a_quote_and_a_quote_before_a_file() -> None:
    stated = {"model": "llama3-8b", "system": "dgx-h100:16", "compute": {"price": "1 kUSD"}, "workload": MESH}
    assert load_design(stated, prices=QUOTES).compute.price_usd == 25_000
    assert load_design(stated, {"compute.price": "2 kUSD"}, prices=QUOTES).compute.price_usd == 2_000


def test_a_design_file_may_hold_quotes() -> None:
    tree = {"model": "llama3-8b", "system": "dgx-h100:16", "workload": MESH, "prices": QUOTES}
    assert load_design(tree).compute.price_usd == 25_000


def test_quotes_of_other_parts_change_nothing() -> None:
    other = {"accelerators": {"mi300x": "1 USD"}, "nodes": {"dgx-a100": "9 kUSD"}, "switches": {"tomahawk-5": "1 USD"}}
    assert load_design(DESIGN, MESH, prices=other) == load_design(DESIGN, MESH)


def test_each_accelerator_has_its_own_quote() -> None:
    other = {"compute.accelerator": "h200-sxm-141gb"}
    assert load_design(DESIGN, {**MESH, **other}, prices=QUOTES).compute.price_usd == 32_000


def test_a_transceiver_is_quoted_whole_and_shared_by_split_ports() -> None:
    quoted = {"optics": {"800g-2xdr4-transceiver": "600 USD"}}
    changed = {**MESH, "network.dims.1.fabric.switch": "tomahawk-5"}
    assert load_design(DESIGN, changed, prices=quoted).network.dims[1].fabric.optic_price_usd == 600


def test_ports_of_a_circuit_switch_share_its_price() -> None:
    point = load_design("llama3-8b@tpu-v4:64", MESH, prices={"switches": {"palomar-ocs": "64 kUSD"}})
    assert point.network.dims[0].fabric.circuit_port_price_usd == 500  # of 128 ports


def test_prices_are_applied_to_the_tree_of_a_design() -> None:
    tree = design_tree(load_design(DESIGN, MESH))
    found = apply_prices(tree, QUOTES)
    assert found["network"]["dims"][1]["fabric"]["switch_price"] == "30000 USD"
    assert tree["network"]["dims"][1]["fabric"]["switch_price"] == "40000 USD"


def test_quotes_are_read_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "quotes.yaml").write_text("energy: 0.1 USD/kWh\n")
    assert load_design(DESIGN, MESH, prices=tmp_path / "quotes.yaml").facility.usd_per_kwh == 0.1
    assert quotes_override(None) == {}


@pytest.mark.parametrize(
    ("quotes", "where", "rule"),
    [
        ({"accelerator": {}}, "prices.accelerator", "did you mean 'accelerators'"),
        ({"switches": {"quantum-3": "1 USD"}}, "prices.switches.quantum-3", "no such part"),
        ({"switches": {"mpo-fibre": "1 USD"}}, "prices.switches.mpo-fibre", "no such part"),
        ({"optics": {"400g-dr4-transceiver": 400}}, "prices.optics.400g-dr4-transceiver", "must be a price"),
        ({"cables": {"mpo-fibre": "-1 USD"}}, "prices.cables.mpo-fibre", "must not be negative"),
        ({"nodes": {"dgx-h100": "100 kUSD"}}, "prices.nodes.dgx-h100", "less than its 8 accelerators"),
        ({"nodes": "280 kUSD"}, "prices.nodes", "must map names"),
        ({"energy": 0.06}, "prices.energy", "0.06 USD/kWh"),
        ("quotes.yaml", "prices", "must map kinds"),
    ],
)
def test_a_wrong_quote_is_refused_in_a_sentence(quotes: Any, where: str, rule: str) -> None:
    with pytest.raises(SpecError) as raised:
        load_design(DESIGN, {**MESH, "prices": quotes})
    assert str(raised.value).startswith(f"{where} = ")
    assert rule in str(raised.value)


def test_a_node_of_an_accelerator_without_a_price_needs_both_quotes() -> None:
    with pytest.raises(SpecError, match="quote its price as well"):
        load_design("llama3-8b@dgx-h800:16", MESH, prices={"nodes": {"hgx-h800": "300 kUSD"}})
    both = {"nodes": {"hgx-h800": "300 kUSD"}, "accelerators": {"h800-sxm-80gb": "30 kUSD"}}
    point = load_design("llama3-8b@dgx-h800:16", MESH, prices=both)
    assert (point.compute.price_usd, point.node.host_price_usd) == (30_000, 60_000)


def test_quotes_by_name_are_those_of_the_catalog() -> None:
    assert read_prices({"nodes": {"DGX_H100": "1 MUSD"}}) == {"nodes": {"dgx-h100": 1e6}}
