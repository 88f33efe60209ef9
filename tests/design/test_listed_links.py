"""Networks as links, and faults, as values of a design: read, checked, scaled and written again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cosmic.base.errors import SpecError
from cosmic.design import schema
from cosmic.design.loading import dump_design
from cosmic.design.network_layer import Dimension, Fault, Link, Network, injection_bytes_per_s
from cosmic.design.plain_data import dump_yaml, parse_yaml
from cosmic.evaluation import evaluate
from cosmic.network.network_graphs import network_graph
from cosmic.search.mapping.design_completion import load_design
from cosmic.simulate.metrics import Infeasible


def ways(*pairs: tuple[int, int], speed: str = "50 GB/s") -> list[dict[str, Any]]:
    """Return links both ways between nodes, as a file has them."""
    ends = [pair for one, other in pairs for pair in ((one, other), (other, one))]
    return [{"source": one, "target": other, "bandwidth": speed, "latency": "1 us"} for one, other in ends]


SPOKES = ways(*((npu, 4) for npu in range(4)))
STAR: dict[str, Any] = {"topology": "graph", "npus": 4, "links": SPOKES}
DESIGN: dict[str, Any] = {
    "model": "llama3-8b",
    "compute": {"accelerator": "h100-sxm-80gb"},
    "network": {"dims": [STAR, {"topology": "ring", "npus": 4, "bandwidth": "25 GB/s", "latency": "2 us"}]},
    "workload": {"tp": 4, "cp": 1, "pp": 1, "dp": 4, "global_batch": 16, "micro_batch": 1, "weight_sharding": "zero1"},
}


def read(**changed: Any) -> Dimension:
    dim: Dimension = schema.read_value(Dimension, {**STAR, **changed}, "network.dims.0")
    return dim


def test_bandwidth_and_latency_follow_from_the_links() -> None:
    dim = read()
    assert (dim.bandwidth_bytes_per_s, dim.latency_s) == (50e9, 1e-6)
    uneven = (Link(source=0, target=1, bandwidth_bytes_per_s=3.0), Link(source=1, target=0, bandwidth_bytes_per_s=5.0))
    assert injection_bytes_per_s(uneven, 2) == 5.0


def test_another_bandwidth_scales_all_links() -> None:
    halved = network_graph([read(bandwidth="25 GB/s", latency="3 us")])
    assert halved.switches == 1
    assert set(halved.bandwidth_bytes_per_s.tolist()) == {25e9}
    assert halved.latency_s.tolist() == pytest.approx([3e-6] * 8)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"links": []}, "network.dims.0.links = (missing): a topology 'graph' lists its links"),
        ({"topology": "ring"}, "network.dims.0.topology = 'ring': a dimension that lists its links is a 'graph'"),
        ({"links": ways((0, 4), (1, 4), (2, 4))}, "no path leads from NPU 0 to NPU 3: the NPUs are not connected"),
        ({"links": ways((0, 4), (1, 4), (2, 4), (3, 99))}, "number them below 12"),
        ({"links": ways((0, 0))}, "network.dims.0.links.0.target = 0: a link joins two different nodes"),
        ({"links": ways((0, -1))}, "network.dims.0.links.0.target = -1: nodes count from 0"),
        ({"links": ways((0, 1), speed="-1 GB/s")}, "links.0.bandwidth"),
        ({"links": [3]}, "network.dims.0.links.0 = 3: must be a mapping of keys to values"),
        ({"links": SPOKES[:-1]}, "no path leads from NPU 0 to NPU 3"),
        ({"links": SPOKES[:-2] + SPOKES[-1:]}, "no path leads from NPU 3 to NPU 0"),
    ],
)
def test_links_that_make_no_network_are_named_in_one_sentence(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=r".*") as caught:
        read(**changed)
    assert said in str(caught.value)


def test_a_named_topology_still_states_its_bandwidth() -> None:
    with pytest.raises(SpecError, match=r"network.bandwidth = \(missing\): is required"):
        schema.read_value(Dimension, {"topology": "ring", "npus": 4, "latency": "1 us"}, "network")


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({"npu": 0, "dim": 2}, "network.faults.0.dim = 2: there are 2 dimensions, from 0"),
        ({"npu": -1, "dim": 0}, "network.faults.0.npu = -1: must not be negative"),
        ({"npu": 0, "dim": 0, "speed": 2.0}, "must be a share of the bandwidth, from 0 to 1"),
        ({"npu": 1, "dim": 0, "peer": 1}, "a link joins two different NPUs"),
    ],
)
def test_malformed_faults_are_errors(fault: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError) as caught:
        load_design(DESIGN, {"network.faults": [fault]})
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({"npu": 16, "dim": 0}, "network.faults.0: there is no NPU 16: the network has 16, from 0"),
        ({"npu": 0, "dim": 1, "peer": 1}, "NPU 1 is no peer of NPU 0 in dimension 1"),
        ({"npu": 0, "dim": 1, "peer": 8}, "NPU 0 of a ring of 4 has no link to NPU 2 that could fail"),
        ({"npu": 5, "dim": 1}, "faults leave no path from NPU 0 to NPU 1"),
        ({"npu": 0, "dim": 0}, "faults leave no path from NPU 0 to NPU 1"),
    ],
)
def test_faults_that_the_network_cannot_have_make_a_design_infeasible(fault: dict[str, Any], said: str) -> None:
    outcome = evaluate(load_design(DESIGN, {"network.faults": [fault]}))
    assert isinstance(outcome, Infeasible)
    assert said in outcome.reasons[0]


def test_designs_of_links_and_faults_are_written_and_read_again() -> None:
    point = load_design(DESIGN, {"network.faults": [{"npu": 3, "dim": 1, "peer": 7, "speed": 0.5}]})
    again = load_design(parse_yaml(dump_design(point), "design"))
    assert again == point
    assert again.identity == point.identity
    assert point.network.faults == (Fault(npu=3, dim=1, peer=7, speed=0.5),)
    faster = load_design(DESIGN, {"network.dims.0.links.0.bandwidth": "100 GB/s"})
    assert faster.network.dims[0].bandwidth_bytes_per_s == 100e9


def test_requests_under_a_load_are_refused_on_such_networks() -> None:
    load = {"serving": {"load": {"rate": 1.0, "isl": 100, "osl": 100}}}
    with pytest.raises(SpecError, match="requests under a load are priced on named topologies without faults"):
        load_design({**DESIGN, **load, "workload": {"tp": 4}})


def test_a_whole_network_has_the_links_of_all_copies() -> None:
    ring = Dimension(topology="ring", npus=4, bandwidth_bytes_per_s=100e9, latency_s=1e-6)
    faults = (Fault(npu=5, dim=0, peer=6), Fault(npu=5, dim=1, speed=0.5))
    graph = network_graph(Network(dims=(ring, ring), faults=faults))
    assert graph.links == 2 * 2 * 16 - 2
    slow = graph.bandwidth_bytes_per_s < 50e9
    ends = sorted(zip(graph.sources[slow].tolist(), graph.targets[slow].tolist(), strict=True))
    assert ends == [(1, 5), (5, 1), (5, 9), (9, 5)]
    between = (graph.sources == 5) & (graph.targets == 6)
    assert not between.any()


def test_links_may_be_in_a_file_of_their_own(tmp_path: Path) -> None:
    pytest.importorskip("cosmic.network.network_files.network_file", reason="readers of networks are not there")
    rows = ["source,target,bandwidth,latency", *(f"{npu},{(npu + 1) % 4},50 GB/s,1 us" for npu in range(4))]
    (tmp_path / "links.csv").write_text("\n".join(rows), encoding="utf-8")
    inner, *others = DESIGN["network"]["dims"]
    design = {**DESIGN, "network": {"dims": [{"links": "links.csv"}, *others]}}
    (tmp_path / "design.yaml").write_text(dump_yaml(design), encoding="utf-8")
    dim = load_design(tmp_path / "design.yaml").network.dims[0]
    assert (dim.topology, dim.npus, len(dim.links), dim.bandwidth_bytes_per_s) == ("graph", inner["npus"], 4, 50e9)
    with pytest.raises(SpecError, match="what a study keeps refers to no file"):
        load_design(design, files=False)
