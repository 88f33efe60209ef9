"""Links as libraries drive them: what was measured, and laws that hold of every link."""

from __future__ import annotations

import csv
import gzip
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from cosmic.base.errors import SpecError
from cosmic.design import catalog_entries, schema
from cosmic.design.collective_layer import CollectiveKind
from cosmic.design.design_batch import Batch
from cosmic.design.network_layer import Dimension, Transport
from cosmic.design.systems import link_dimension
from cosmic.network.collective_costs import (
    NetworkDimension,
    collective_seconds,
    one_dimension_seconds,
    send_seconds,
    subgroups,
)
from cosmic.network.mesh_spans import Span
from cosmic.network.transport_protocols import IDEAL
from cosmic.search.mapping.design_completion import load_design
from cosmic.step.communication import NetworkCosts
from tests.batches import check_all

CALIBRATION = Path(__file__).parents[3] / "calibration"
KINDS: tuple[CollectiveKind, ...] = get_args(CollectiveKind)
DRIVEN = [
    name for name in catalog_entries.entry_names("links") if "transport" in catalog_entries.read_entry("links", name)
]
LINK_OF = {
    "a100_sxm": "nvlink3",
    "h100_sxm": "nvlink4",
    "h200_sxm": "nvlink4",
    "b200_sxm": "nvlink5",
    "b300_sxm": "nvlink5",
    "gb200": "nvlink5",
    "gb300": "nvlink5",
    "l40s": "pcie4",
    "rtx_pro_6000_server": "pcie5",
}
WITHIN = {"l40s": (0.12, 0.16)}
"""Mean errors allowed from 1 MiB and below, where not 10 % and 15 %."""
SIZES = 2.0 ** np.arange(9, 35)

every_link = pytest.mark.parametrize("link", DRIVEN)


@cache
def measured() -> tuple[dict[str, str], ...]:
    with gzip.open(CALIBRATION / "data" / "collectives.csv.gz", "rt") as file:
        return tuple(csv.DictReader(file))


def errors(hardware: str, link: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the sizes and the relative errors of what was measured in a node, but where reductions were forced."""
    rows = [row for row in measured() if row["hardware"] == hardware and row["n_nodes"] == "1"]
    rows = [row for row in rows if not row["algo"].startswith("Ring")]
    dim = link_dimension(link, 8)
    sizes = np.array([float(row["size_bytes"]) for row in rows])
    found = [
        one_dimension_seconds(row["collective"], "auto", float(row["n_ranks"]), size, dim)  # type: ignore[arg-type]
        for row, size in zip(rows, sizes, strict=True)
    ]
    return sizes, np.array(found) / (1e-6 * np.array([float(row["time_us"]) for row in rows])) - 1


def seconds(
    kind: CollectiveKind, dims: list[Dimension], members: list[float], size: Any, algorithm: str = "auto"
) -> Any:
    lanes = [
        NetworkDimension(dim.topology, dim.npus, dim.bandwidth_bytes_per_s, dim.latency_s, algorithm, dim.transport)
        for dim in dims
    ]
    return collective_seconds(subgroups(lanes, [Span(each, 1.0) for each in members]), kind, size, 16, "blueconnect")


# ---- measured


@pytest.mark.parametrize("hardware", LINK_OF)
def test_collectives_inside_a_node_take_what_was_measured(hardware: str) -> None:
    sizes, found = errors(hardware, LINK_OF[hardware])
    large = sizes >= 2**20
    allowed = WITHIN.get(hardware, (0.10, 0.15))
    assert np.abs(found[large]).mean() <= allowed[0]
    assert np.abs(found[~large]).mean() <= allowed[1]


@pytest.mark.parametrize(
    ("link", "members", "rings", "bus_gb_per_s"),
    [
        ("nvlink4", 8, False, 473.1),
        ("nvlink4", 8, True, 365.6),
        ("nvlink4", 5, True, 364.4),
        ("nvlink5", 4, True, 673.8),
        ("nvlink5", 8, True, 682.2),
        ("nvlink5", 7, False, 811.2),
    ],
)
def test_rates_of_the_largest_all_reduces_are_those_of_rings_and_of_switches(
    link: str, members: int, rings: bool, bus_gb_per_s: float
) -> None:
    """All-reduces of 8 GiB with and without reduction in the switch (stas00/ml-engineering, network)."""
    dim, size = link_dimension(link, 8), 2.0**33
    if rings:
        dim = replace(dim, transport=replace(dim.transport, reduction_efficiency=0.0))
    found = float(one_dimension_seconds("all_reduce", "auto", members, size, dim))
    assert 2 * (members - 1) / members * size / found / 1e9 == pytest.approx(bus_gb_per_s, rel=0.12)


def test_large_all_reduces_of_four_nodes_take_what_was_measured() -> None:
    """4 x 8 H200 and B200 with 400 Gb/s each on EFA, rings (stas00/ml-engineering, network)."""
    rows = [row for row in measured() if row["n_nodes"] == "4" and float(row["size_bytes"]) >= 2**30]
    for row in rows:
        if row["algo"] == "NVLSTree":
            continue
        dims = [link_dimension(LINK_OF[row["hardware"]], 8), link_dimension("efa", 4)]
        found = float(seconds("all_reduce", dims, [8.0, 4.0], float(row["size_bytes"])))
        assert found == pytest.approx(1e-6 * float(row["time_us"]), rel=0.08)


def test_the_catalog_has_what_the_calibration_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("scipy")
    monkeypatch.syspath_prepend(str(CALIBRATION))
    script = import_module("fit_collectives")
    link = script.FITTED["nvlink3"]
    found = script.dimension(link, script.fit(link, script.measured(link)))
    kept = link_dimension("nvlink3", 8)
    assert found.latency_s == pytest.approx(kept.latency_s, rel=0.02)
    assert schema.write_value(found.transport).keys() == schema.write_value(kept.transport).keys()
    assert found.transport.efficiency == pytest.approx(kept.transport.efficiency, rel=0.02)
    assert found.transport.overhead_s == pytest.approx(kept.transport.overhead_s, rel=0.02)


# ---- laws


@every_link
@check_all("kind", KINDS)
def test_time_grows_with_size_and_less_than_in_proportion(link: str, kind: CollectiveKind) -> None:
    """Concave, too: sizes of a given mean never take longer than if all were of that mean."""
    found = np.asarray(one_dimension_seconds(kind, "auto", 8, SIZES, link_dimension(link, 8)))
    assert (np.diff(found) > 0).all()
    assert (np.diff(found) / np.diff(SIZES) <= found[:-1] / SIZES[:-1]).all()
    halfway = one_dimension_seconds(kind, "auto", 8, (SIZES[1:] + SIZES[:-1]) / 2, link_dimension(link, 8))
    assert (np.asarray(halfway) >= (found[1:] + found[:-1]) / 2 * (1 - 1e-12)).all()


@every_link
def test_nothing_beats_the_links(link: str) -> None:
    dim = link_dimension(link, 8)
    for kind in KINDS:
        for members in (2.0, 4.0, 8.0):
            found = one_dimension_seconds(kind, "auto", members, SIZES, dim)
            assert (found > SIZES * (members - 1) / members / dim.bandwidth_bytes_per_s).all()


@every_link
def test_many_take_longer_than_few(link: str) -> None:
    found = one_dimension_seconds("all_gather", "auto", np.array([2.0, 4.0, 8.0]), 1e4, link_dimension(link, 8))
    assert (np.diff(found) > 0).all()


def test_links_without_losses_take_what_the_formula_says() -> None:
    dim = Dimension(topology="switch", npus=8, bandwidth_bytes_per_s=100e9, latency_s=1e-6)
    assert dim.transport == IDEAL
    assert one_dimension_seconds("all_reduce", "ring", 8, 1e9, dim) == pytest.approx(14 * 2e-6 + 1.75e-2)
    assert one_dimension_seconds("all_reduce", "auto", 8, 1e9, dim) == pytest.approx(14 * 2e-6 + 1.75e-2)


def test_a_library_s_chunks_do_not_wait_for_each_other() -> None:
    dim = Dimension(topology="switch", npus=8, bandwidth_bytes_per_s=100e9, latency_s=1e-6)
    assert seconds("all_gather", [dim], [8.0], 0.0, "ring") == pytest.approx(16 * 14e-6)
    assert seconds("all_gather", [dim], [8.0], 0.0, "auto") == pytest.approx(14e-6)


def test_switches_add_for_groups_within_one_dimension_only() -> None:
    inner, outer = link_dimension("nvlink4", 8), link_dimension("infiniband-ndr", 4)
    plain = replace(inner, transport=replace(inner.transport, reduction_efficiency=0.0))
    size = 1e9
    assert seconds("all_reduce", [inner], [8.0], size) < seconds("all_reduce", [plain], [8.0], size)
    both = seconds("all_reduce", [inner, outer], [8.0, 4.0], size)
    assert both == seconds("all_reduce", [plain, outer], [8.0, 4.0], size)
    assert seconds("all_reduce", [inner, outer], [8.0, 1.0], size) == seconds("all_reduce", [inner], [8.0], size)


def test_rings_go_round_all_members_of_several_nodes() -> None:
    """Collectives send (m p - 1) / (m p) of their share over each NIC and pass: nothing is reduced inside before."""
    inner = Dimension(topology="switch", npus=8, bandwidth_bytes_per_s=1e15, latency_s=0.0)
    outer = Dimension(topology="switch", npus=2, bandwidth_bytes_per_s=50e9, latency_s=0.0)
    assert seconds("all_gather", [inner, outer], [8.0, 2.0], 8e9) == pytest.approx(15 / 16 * 1e9 / 50e9, rel=1e-4)
    assert seconds("all_reduce", [inner, outer], [8.0, 2.0], 8e9) == pytest.approx(15 / 8 * 1e9 / 50e9, rel=1e-4)


def test_many_hosts_reduce_small_messages_over_trees() -> None:
    dim = link_dimension("infiniband-ndr", 128)
    small = float(one_dimension_seconds("all_reduce", "auto", 128, 1e3, dim))
    assert small == pytest.approx(dim.transport.overhead_s + 2 * 7 * 2 * dim.latency_s, rel=0.01)
    ring = 2 * 127 / 128 * 1e10 / (dim.bandwidth_bytes_per_s * dim.transport.efficiency)
    assert float(one_dimension_seconds("all_reduce", "auto", 128, 1e10, dim)) == pytest.approx(ring, rel=0.02)


def test_a_message_costs_its_call() -> None:
    dim = link_dimension("nvlink4", 8)
    one = NetworkDimension("switch", 8, dim.bandwidth_bytes_per_s, dim.latency_s, "auto", dim.transport)
    found = send_seconds(subgroups([one], [Span(8.0, 1.0)]), 0.0)
    assert found == pytest.approx(dim.transport.overhead_s + 2 * dim.latency_s)


def test_designs_can_differ_in_how_links_are_driven() -> None:
    point = load_design("gpt3-13b@dgx-h100:16")
    path, shares = "network.dims.0.transport.efficiency", np.array([0.4, 0.8])
    together = NetworkCosts(Batch(point, {path: shares})).seconds("all_gather", ("tp",), 1e9)
    for share, found in zip(shares, np.broadcast_to(together, 2), strict=True):
        alone = NetworkCosts(Batch(schema.assign_fields(point, {path: float(share)}), {}))
        assert found == pytest.approx(alone.seconds("all_gather", ("tp",), 1e9))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("efficiency", 0.0),
        ("efficiency", 1.5),
        ("overhead_s", -1.0),
        ("small_efficiency", 2.0),
        ("direct_share", 0.0),
        ("contention", -1.0),
        ("copy_share", float("nan")),
        ("reduction_s", float("inf")),
    ],
)
def test_what_no_link_can_do_is_refused(field: str, value: float) -> None:
    with pytest.raises(SpecError):
        Transport(**{field: value})


@every_link
def test_a_fitted_link_says_how_far_off_it_is_or_that_it_is_an_estimate(link: str) -> None:
    entry = catalog_entries.read_entry("links", link)
    assert "residuals" in entry or "estimate" in entry["source"] or "stas00" in entry["source"]
