"""Networks in files: every format says the same network, and mistakes are one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosmic.base.errors import SpecError
from cosmic.network.link_graph import LinkGraph, graph_of, reachable_nodes, require_connected
from cosmic.network.network_files.network_file import read_graph
from cosmic.network.network_files.network_formats import links_csv, parse_csv, parse_tacos, tacos_text

GIB = 2.0**30
LINKS = Path(__file__).parents[4] / "shared" / "reference" / "collectives" / "tacos_links"
STAR = """
npus: 2
switches: [leaf]
bandwidth: 400 Gbps
latency: 500 ns
links:
  - {source: 0, target: leaf, both: true}
  - {source: 1, target: leaf, both: true}
"""
FORMATS = {
    "star.csv": (
        "source,target,bandwidth,latency,source_type,target_type\n"
        "0,leaf,400 Gbps,500 ns,npu,switch\nleaf,0,400 Gbps,500 ns,switch,npu\n"
        "1,leaf,50 GB/s,0.5 us,,switch\nleaf,1,50 GB/s,0.5 us,switch,\n"
    ),
    "star.yaml": STAR,
    "star.txt": "3 1 2\n2\n0 2 400Gbps 0.0005ms 0\n1 2 400Gbps 0.0005ms 0\n",
    "star.json": json.dumps(
        {
            "directed": False,
            "nodes": [{"id": 0}, {"id": 1}, {"id": "leaf", "type": "switch"}],
            "links": [
                {"source": each, "target": "leaf", "bandwidth_gbps": 400, "latency_ns": 500.0} for each in (0, 1)
            ],
        }
    ),
    "star.graphml": """<?xml version="1.0" encoding="UTF-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
  <key id="t" for="node" attr.name="type" attr.type="string"/>
  <key id="b" for="edge" attr.name="bandwidth" attr.type="string"/>
  <key id="l" for="edge" attr.name="latency_us" attr.type="double"/>
  <graph edgedefault="undirected">
    <node id="0"/><node id="1"/><node id="leaf"><data key="t">Switch</data></node>
    <edge source="0" target="leaf"><data key="b">400 Gbps</data><data key="l">0.5</data></edge>
    <edge source="1" target="leaf"><data key="b">400 Gbps</data><data key="l">0.5</data></edge>
  </graph>
</graphml>
""",
}
INFRA = {
    "devices": [
        {
            "name": "server",
            "components": [
                {"name": "npu", "count": 2, "choice": "npu"},
                {"name": "nic", "count": 2, "choice": "nic"},
                {"name": "cpu", "count": 1, "choice": "cpu"},
                {"name": "nvsw", "count": 1, "choice": "custom"},
            ],
            "links": [
                {"name": "pcie", "physical": {"bandwidth": {"gigabytes_per_second": 64}, "latency": {"ns": 100}}},
                {"name": "nvlink", "physical": {"bandwidth": {"gigabytes_per_second": 450}}},
            ],
            "edges": [
                {"ep1": {"component": "npu[0:2]"}, "ep2": {"component": "nic"}, "scheme": "one2one", "link": "pcie"},
                {"ep1": {"component": "cpu[0]"}, "ep2": {"component": "nic"}, "scheme": "many2many", "link": "pcie"},
                {"ep1": {"component": "npu"}, "ep2": {"component": "nvsw[0]"}, "many2many": True, "link": "nvlink"},
            ],
        },
        {
            "name": "switch",
            "components": [
                {"name": "asic", "count": 1, "choice": "custom"},
                {"name": "port", "count": 4, "choice": "port"},
            ],
            "links": [{"name": "ic", "physical": {"bandwidth": {"gigabits_per_second": 800}}}],
            "edges": [
                {"ep1": {"component": "asic"}, "ep2": {"component": "port"}, "scheme": "many2many", "link": "ic"}
            ],
        },
    ],
    "instances": [
        {"name": "host", "device": "server", "count": 2},
        {"name": "rail", "device": "switch", "count": 1},
    ],
    "links": [
        {"name": "eth", "physical": {"bandwidth": {"gigabits_per_second": 400}, "latency": {"us": 1}}},
    ],
    "edges": [
        {
            "ep1": {"instance": "host[0:2]", "component": "nic[0:2]"},
            "ep2": {"instance": "rail[0]", "component": "port[0:4]"},
            "scheme": "one2one",
            "link": "eth",
        }
    ],
}


def read(folder: Path, name: str, text: str) -> LinkGraph:
    """Return the network of a file of this name and content."""
    (folder / name).write_text(text, encoding="utf-8")
    return read_graph(folder / name)


def edges(graph: LinkGraph) -> list[tuple[str, str, float, float]]:
    """Return the links by the names of their ends, in order."""
    names = [graph.name(node) for node in range(graph.nodes)]
    return sorted(
        (names[a], names[b], float(rate), float(late))
        for a, b, rate, late in zip(
            graph.sources, graph.targets, graph.bandwidth_bytes_per_s, graph.latency_s, strict=True
        )
    )


@pytest.mark.parametrize("name", FORMATS)
def test_all_formats_say_the_same_network(tmp_path: Path, name: str) -> None:
    graph, wanted = read(tmp_path, name, FORMATS[name]), read(tmp_path, "wanted.yaml", STAR)
    assert (graph.npus, graph.switches) == (2, 1)
    assert graph.digest == wanted.digest
    if name != "star.txt":
        assert graph.names == ("0", "1", "leaf")


def test_tacos_list_is_in_gib_per_s_and_microseconds() -> None:
    graph = parse_tacos("3\n0 1 50 0.5\n\n1 2 25 0.7 # slow\n", "x")
    assert graph.npus == 3
    assert graph.bandwidth_bytes_per_s.tolist() == [50 * GIB, 25 * GIB]
    assert graph.latency_s.tolist() == [5e-7, 7e-7]


def test_a_physical_topology_may_have_its_switches_first(tmp_path: Path) -> None:
    graph = read(tmp_path, "t.txt", "3 1 2\n0\n0 1 100Gbps 1us 0\n0 2 100Gbps 1us 0\n")
    assert graph.names == ("1", "2", "0")
    assert {link[:2] for link in edges(graph)} == {("0", "1"), ("1", "0"), ("0", "2"), ("2", "0")}


def test_an_edge_of_a_directed_graph_is_one_link(tmp_path: Path) -> None:
    tree = {"directed": True, "nodes": [{"id": "a"}, {"id": "b"}]}
    tree |= {"edges": [{"source": "a", "target": "b", "bandwidth": "1 GB/s"}]}
    graph = read(tmp_path, "d.json", json.dumps(tree))
    assert edges(graph) == [("a", "b", 1e9, 0.0)]


def test_a_network_file_may_name_broken_and_reducing_parts(tmp_path: Path) -> None:
    graph = read(tmp_path, "d.yaml", STAR + "fail: [0>leaf, 1-leaf*0.5]\nreducing: [leaf]\n")
    assert edges(graph) == [("1", "leaf", 25e9, 5e-7), ("leaf", "0", 50e9, 5e-7), ("leaf", "1", 25e9, 5e-7)]
    assert graph.reducing == {2}


def test_infragraph_is_simplified_to_what_forwards(tmp_path: Path) -> None:
    """NIC and port are part of the cable: 50 GB/s of 64, 50 and 100, and 100 ns, 1 us and nothing of latency."""
    graph = read(tmp_path, "i.json", json.dumps(_without_cpu(INFRA)))
    assert graph.names[:4] == ("host.0.npu.0", "host.0.npu.1", "host.1.npu.0", "host.1.npu.1")
    found = {link[:2]: link[2:] for link in edges(graph)}
    assert found["host.0.npu.1", "rail.0.asic.0"] == pytest.approx((50e9, 1.1e-6), rel=1e-12)
    assert graph.links == 8 + 4  # two NPUs of a server are joined through its switch, which is but a cable then
    assert found["host.0.npu.0", "host.0.npu.1"] == (450e9, 0.0)


def _without_cpu(tree: dict[str, object]) -> dict[str, object]:
    text = json.dumps(tree).replace(
        '{"ep1": {"component": "cpu[0]"}, "ep2": {"component": "nic"}, "scheme": "many2many", "link": "pcie"}, ', ""
    )
    found: dict[str, object] = json.loads(text)
    return found


def test_what_forwards_in_infragraph_is_a_switch(tmp_path: Path) -> None:
    graph = read(tmp_path, "i.yaml", json.dumps({"infrastructure": INFRA}))
    assert graph.npus == 4
    assert {"host.0.nic.0", "host.1.nic.1", "rail.0.asic.0"} <= set(graph.names)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (('"scheme": "one2one"', '"scheme": "ring"'), "is not read: one2one and many2many are"),
        (('"choice": "cpu"', '"choice": "device"'), "devices composed of devices are not read"),
        (('"gigabits_per_second": 800', '"gigatransfers_per_second": 8'), "states no bandwidth"),
        (("nic[0:2]", "nic[0:3]"), "there are 2 of them"),
        (("port[0:4]", "port[0:3]"), "here 4 to 3"),
        (('"device": "switch"', '"device": "swich"'), "did you mean 'switch'"),
        (('"link": "eth"', '"link": "ether"'), "no such link"),
    ],
)
def test_what_of_infragraph_is_not_read_is_said(tmp_path: Path, change: tuple[str, str], said: str) -> None:
    with pytest.raises(SpecError, match=said.replace("[", r"\[")):
        read(tmp_path, "i.json", json.dumps(INFRA).replace(*change))


BAD = {
    "a.txt": ("", "is empty"),
    "b.txt": ("0\n", "must be a whole number from 1 on"),
    "c.txt": ("1000000000\n0 1 1 1\n", "are not listed one by one"),
    "d.txt": ("2\n0 1 50\n", "a link is four numbers"),
    "e.txt": ("2\n0 2 50 1\n", "is no node: there are 2"),
    "f.txt": ("2\n0 1 -50 1\n", "must be positive"),
    "g.txt": ("2\n0 1 50 -1\n", "must not be negative"),
    "h.txt": ("2\n0 0 50 1\n", "joins two different nodes"),
    "i.txt": ("2\n0 1 nan 1\n", "must be a number"),
    "j.txt": ("2 0 1\n0 1 400Gbps 1\n", "a link is both ends"),
    "k.txt": ("2 2 1\n0 1\n0 1 400Gbps 1us 0\n", "at least 1 NPU"),
    "l.txt": ("3 1 2\n2\n0 2 400Gbps 1us 0\n", "says that there are 2 links"),
    "a.csv": ("source,target,bandwidth\n", "the header must be"),
    "b.csv": ("source,target,bandwidth,latency\n0,1,400,1 us\n", "write a number and its unit"),
    "c.csv": ("source,target,bandwidth,latency\n0,1,-4 Gbps,1 us\n", "must be positive"),
    "d.csv": ("source,target,bandwidth,latency\n", "has no links"),
    "e.csv": ("source,target,bandwidth,latency\n0,1,4 Gbps\n", "other than the 4 cells"),
    "f.csv": ("source,target,bandwidth,latency\nswitch0,switch1,4 Gbps,1 us\n", "at least 1 NPU"),
    "a.yaml": ("npus: 2\nlinks: []\nlink: 3\n", "no such key; did you mean 'links'"),
    "b.yaml": ("npus: 2\nlinks: [{source: 0, target: 5, bandwidth: 1 GB/s}]\n", "no such node"),
    "c.yaml": ("npus: 2\nlinks: [{source: 0, target: 1}]\n", "states no bandwidth"),
    "d.yaml": ("npus: [a, a]\nlinks: []\n", "names a node twice"),
    "e.yaml": ("npus: 1000000000\nlinks: []\n", "are not listed one by one"),
    "f.yaml": ("npus: 2\nlinks: 3\n", "must be a list"),
    "g.yaml": ("npus: 2\nlinks: [3]\n", "must be a mapping"),
    "h.yaml": ("[1, 2]\n", "is no network"),
    "a.graphml": ("<graphml><graph>", "is no valid XML"),
    "b.graphml": ("<!DOCTYPE a [<!ENTITY b 'c'>]><graphml/>", "a document type and entities are not read"),
    "c.graphml": ("<svg/>", "is not GraphML"),
    "d.graphml": ("<graphml/>", "must hold one graph"),
    "a.json": ('{"nodes": [{"id": 1}], "links": [{"source": 1}]}', "has two ends"),
    "b.json": ("{", "is no valid JSON"),
    "c.json": ('{"nodes": [3], "links": []}', "must be a list of mappings"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_malformed_file_is_one_sentence(tmp_path: Path, name: str) -> None:
    text, said = BAD[name]
    with pytest.raises(SpecError) as caught:
        read(tmp_path, name, text)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@settings(max_examples=40, deadline=None)
@given(st.text(alphabet="0123456789 \n,-.#<>abGpsu/", max_size=80), st.sampled_from([".txt", ".csv", ".yaml", ".xml"]))
def test_any_text_is_a_network_or_a_sentence(tmp_path_factory: pytest.TempPathFactory, text: str, end: str) -> None:
    try:
        read(tmp_path_factory.getbasetemp(), f"any{end}", text)
    except SpecError as error:
        assert "\n" not in str(error)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_what_is_written_reads_back(data: st.DataObject) -> None:
    npus, switches = data.draw(st.integers(1, 5)), data.draw(st.integers(0, 2))
    nodes = npus + switches
    rate, late = st.floats(1e3, 1e13), st.floats(0, 1.0)
    ends = st.tuples(st.integers(0, nodes - 1), st.integers(0, nodes - 1), rate, late)
    links = data.draw(st.lists(ends.filter(lambda each: each[0] != each[1]), min_size=1, max_size=9))
    graph = graph_of(npus, links, switches)
    used = {node for link in links for node in link[:2]}
    if used >= set(range(nodes)):
        back = parse_csv(links_csv(graph), "x")
        assert back.digest == graph.digest
    if not switches:
        back = parse_tacos(tacos_text(graph), "x")
        assert np.allclose(back.bandwidth_bytes_per_s, graph.bandwidth_bytes_per_s, rtol=1e-14)
        assert np.allclose(back.latency_s, graph.latency_s, rtol=1e-14, atol=0)
        assert (back.npus, back.sources.tolist()) == (npus, graph.sources.tolist())


def test_a_list_without_switches_is_refused_where_there_are_some() -> None:
    with pytest.raises(SpecError, match="write CSV"):
        tacos_text(graph_of(1, [(0, 1, 1e9, 0.0)], 1))


def test_what_is_reached_is_what_paths_lead_to() -> None:
    line = graph_of(4, [(0, 1, 1e9, 0.0), (1, 2, 1e9, 0.0), (2, 1, 1e9, 0.0)])
    assert reachable_nodes(line, 0).tolist() == [True, True, True, False]
    assert reachable_nodes(line, 2).tolist() == [False, True, True, False]
    require_connected(line, [(1, 2)])
    with pytest.raises(SpecError, match="no path leads from 0 to 3"):
        require_connected(line)
    with pytest.raises(SpecError, match="no path leads from 1 to 0"):
        require_connected(line, [(0, 1)])


@pytest.mark.skipif(not LINKS.is_dir(), reason="the reference data is not here")
def test_every_reference_network_is_read_and_its_reverse_is_its_transpose() -> None:
    for path in sorted(LINKS.glob("*.rev.txt")):
        graph = read_graph(str(path).replace(".rev", ""))
        assert read_graph(path).digest == graph.transposed().digest, path.name
        require_connected(graph)
