"""Files of links in place of ASTRA-sim's network YAML: all formats, broken links, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cosmic.base.errors import SpecError
from cosmic.cli.dispatch import main
from cosmic.simulate.events.trace_simulation import simulate
from tests.simulate.files import SYSTEM, words, write_job
from tests.simulate.jobs import Node, collective

CABLES = [(0, 1), (1, 2), (2, 0)]
GRAPHML = """<graphml><key id="b" for="edge" attr.name="bandwidth"/><key id="l" for="edge" attr.name="latency"/>
<graph edgedefault="undirected">{}{}</graph></graphml>"""
EDGE = '<edge source="{}" target="{}"><data key="b">8 Gbps</data><data key="l">100 ns</data></edge>'
TREE = {
    "npus": 3,
    "bandwidth": "8 Gbps",
    "latency": "100 ns",
    "links": [{"source": a, "target": b, "both": True} for a, b in CABLES],
}
FILES = {
    "net.yaml": json.dumps(TREE),
    "net.json": json.dumps(TREE),
    "net.csv": "source,target,bandwidth,latency\n"
    + "".join(f"{a},{b},8 Gbps,100 ns\n{b},{a},8 Gbps,100 ns\n" for a, b in CABLES),
    "net.txt": "3\n" + "".join(f"{a} {b} {1e9 / 2**30!r} 0.1\n{b} {a} {1e9 / 2**30!r} 0.1\n" for a, b in CABLES),
    "physical": "3 0 3\n\n" + "".join(f"{a} {b} 8Gbps 0.0001ms 0\n" for a, b in CABLES),
    "net.graphml": GRAPHML.format(
        "".join(f'<node id="{i}"/>' for i in range(3)), "".join(EDGE.format(a, b) for a, b in CABLES)
    ),
}
"""A ring of three, in which a byte takes a nanosecond and a link 100 more."""
QUIET = SYSTEM | {"endpoint-delay": 0, "local-mem-bw": 1e9, "preferred-dataset-splits": 1, "roofline-enabled": 0}
RANKS: list[list[Node]] = [[collective("all_reduce", 3000)]] * 3


def files(folder: Path, name: str = "net.csv", text: str | None = None, system: Any = QUIET) -> dict[str, Any]:
    (folder / name).write_text(FILES[name] if text is None else text)
    return write_job(folder, RANKS, system=system) | {"network": str(folder / name)}


@pytest.mark.parametrize("name", FILES)
def test_every_format_of_links_is_simulated(name: str, tmp_path: Path) -> None:
    found = simulate(**files(tmp_path, name))
    assert found.cycles == 4 * 1100
    assert {each.link: each.busy_cycles for each in found.links} == {"0→1": 4400, "1→2": 4400, "2→0": 4400}
    assert found.dimensions[0].topology == "Links"
    assert found.dimensions[0].sent_bytes == 3 * 4 * 1000
    assert found.dimensions[0].mean_utilization == pytest.approx(4000 / (2 * 4400))  # of two links each
    assert simulate(**files(tmp_path, name), backend="aware").cycles == found.cycles


def test_astra_sims_network_is_known_by_its_keys_whatever_its_ending(tmp_path: Path) -> None:
    text = "topology: [Ring]\nnpus_count: [3]\nbandwidth: [50]\nlatency: [500]\n"
    cycles = [simulate(**files(tmp_path, name, text)).cycles for name in ("a.yml", "b.txt", "c")]
    assert len(set(cycles)) == 1


def test_a_broken_link_is_gone_round_and_a_slow_one_waited_for(tmp_path: Path) -> None:
    given = files(tmp_path)
    around = simulate(**given, fail=["0>1"])
    assert {each.link for each in around.links} == {"0→2", "2→1", "1→2", "2→0"}
    assert around.cycles == 2200 + 1100 + 1100 + 2200  # of four steps the first and the last, if rank 0 begins
    slow = simulate(**given, fail=["0-1*0.6"])
    assert slow.cycles > 4400
    assert slow.links[0].link == "0→1"


def refused(network: dict[str, Any], **more: Any) -> str:
    with pytest.raises(SpecError) as caught:
        simulate(**network, **more)
    return str(caught.value)


def test_what_cannot_be_simulated_gets_one_sentence(tmp_path: Path) -> None:
    given = files(tmp_path)
    assert "is not connected" in refused(given, fail=["0-1", "1-2"])
    assert "no such link" in refused(given, fail=["0-1", "0-0"])
    assert refused(given, backend="unaware").startswith("backend = 'unaware': messages queue on the links")
    four = "4\n" + "".join(f"{i} {(i + 1) % 4} 50 0.5\n" for i in range(4))
    assert refused(files(tmp_path, "four.txt", four)).endswith("= 3: the network has 4 NPUs: one trace for each")
    assert "is no network" in refused(files(tmp_path, "no.yaml", "links: []"))
    assert "topology" in refused(files(tmp_path, "dims.yaml", "npus_count: [3]"))
    assert "is empty" in refused(files(tmp_path, "empty.txt", ""))
    dims = files(tmp_path, "d.yml", "topology: [Ring]\nnpus_count: [3]\nbandwidth: [50]\nlatency: [500]\n")
    assert refused(dims, fail=["0-1"]).startswith("--fail = '0-1': leaves out links of a network that is a graph")
    assert "no switch of a network of links reduces" in refused(
        files(tmp_path, system=QUIET | {"all-reduce-implementation": ["inSwitch"]})
    )


def status(command: list[str]) -> object:
    with pytest.raises(SystemExit) as caught:
        main(command)
    return caught.value.code


def test_the_command_prints_the_busiest_links(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = words(files(tmp_path))
    assert status(["simulate", *given, "--timeline", str(tmp_path / "line.json")]) == 0
    shown = capsys.readouterr().out
    assert "all 3 ranks simulated" in shown
    assert "busiest links" in shown
    assert "0→1" in shown
    assert json.loads((tmp_path / "line.json").read_text())["traceEvents"]
    assert status(["simulate", *given, "--fail", "0>1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["cycles"] == 6600
    assert status(["simulate", *given, "--backend", "unaware"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
