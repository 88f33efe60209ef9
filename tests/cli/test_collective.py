"""`cosmic network`: what it prints and writes, and how each failure ends."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from cosmic.base.errors import SpecError
from cosmic.network import collective_requests
from cosmic.network.collective_requests import groups_of
from cosmic.network.link_graph import LinkGraph
from cosmic.network.network_graphs import load_network
from cosmic.network.schedules.collective_schedule import Kind, Schedule
from cosmic.network.synthesis import schedule_synthesis
from cosmic.network.synthesis.lower_bounds import Bounds
from tests.commands import output, run
from tests.network.schedules.made import gathered

RING = "4\n" + "".join(f"{i} {(i + step) % 4} 1 1\n" for i in range(4) for step in (1, 3))
"""Four NPUs, links of 1 GiB/s and 1 us both ways."""


def bounds(graph: LinkGraph, kind: Kind, size_bytes: float, **more: Any) -> Bounds:
    """Return bounds of a ring."""
    node = size_bytes / 4 * 3 / 2 / 2**30
    return Bounds(node, node, node if more["chunks"] else 0.0, 2e-6, (0,))


def synthesize(graph: LinkGraph, kind: Kind, size_bytes: float, **more: Any) -> Schedule:
    """Return an all-gather that anybody could make."""
    more["progress"](0.5)
    return gathered(graph, more["chunks"] or 2, size_bytes)


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Let bounds and schedules be those above; return a folder with a network, which is the current one."""
    monkeypatch.setattr(collective_requests, "collective_bounds", bounds)
    monkeypatch.setattr(schedule_synthesis, "synthesize", synthesize)
    (tmp_path / "ring.txt").write_text(RING)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    """Return what a command prints as JSON."""
    return json.loads(output(capsys, "network", *words, "--json"))


def test_bounds_come_with_textbook_algorithms(stand_in: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = printed(capsys, "bound", "ring.txt", "--size", "4 GiB")
    assert (found["bound_s"], found["cut"], found["npus"]) == (1.5, ["0"], 4)
    times = {each["algorithm"]: each["over_bound"] for each in found["algorithms"]}
    assert times["ring"] == pytest.approx(2.0, rel=1e-5)
    assert times["two_way_ring"] == pytest.approx(1.0, rel=1e-5)
    text = output(capsys, "network", "bound", "ring.txt", "--size", "4 GiB", "--chunks", "2")
    assert text.startswith("all-gather of 4 GiB among 4 NPUs: no schedule takes less than 1.5 s\n")
    assert "the links between 0 and all others" in text
    assert "ingress" in text


def test_a_schedule_is_made_checked_and_written(stand_in: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["synthesize", "ring.txt", "--collective", "all_gather", "--size", "4GiB", "--chunks", "2"]
    found = printed(capsys, *words, "--schedule", "made.csv", "--to", "msccl", "--out", "made.xml")
    assert (found["valid"], found["chunks_per_npu"], found["transfers"]) == (True, 2, 24)
    assert found["over_bound"] == pytest.approx(found["time_s"] / 1.5)
    assert found["algbw_bytes_per_s"] == pytest.approx(2**32 / found["time_s"])
    with (stand_in / "made.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["source", "target", "chunk", "start_s", "end_s", "operation"]
    assert max(float(row["end_s"]) for row in rows) == found["time_s"]
    assert ElementTree.parse(stand_in / "made.xml").getroot().get("ngpus") == "4"
    text = output(capsys, "network", *words)
    assert "2 chunks for each NPU · 24 transfers (checked)" in text
    checked = printed(capsys, "check", "made.csv", "--network", "ring.txt", "--size", "4 GiB")
    assert (checked["valid"], checked["time_s"]) == (True, found["time_s"])
    again = printed(capsys, "check", "made.xml", "--network", "ring.txt", "--size", "4 GiB")
    assert (again["valid"], again["collective"]) == (True, "all_gather")


@pytest.mark.parametrize(
    ("to", "files"), [("svg", ["x"]), ("perfetto", ["x"]), ("csv", ["x"]), ("chakra", ["x.0.et", "x.3.et"])]
)
def test_a_schedule_is_converted(stand_in: Path, capsys: pytest.CaptureFixture[str], to: str, files: list[str]) -> None:
    output(capsys, "network", "synthesize", "ring.txt", "--schedule", "made.csv")
    output(capsys, "network", "convert", "made.csv", "--network", "ring.txt", "--to", to, "--out", "x")
    assert all((stand_in / name).stat().st_size for name in files)


def test_a_wrong_schedule_ends_with_1_and_is_not_converted(stand_in: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (stand_in / "early.csv").write_text("source,target,chunk,start_s,end_s\n1,2,0,0.0,1.0\n")
    status, text, _ = run(capsys, "network", "check", "early.csv", "--network", "ring.txt")
    assert status == 1
    assert "not valid" in text
    assert "not causal: chunk 0 goes 1→2" in text
    words = ("network", "convert", "early.csv", "--network", "ring.txt", "--to")
    status, _, said = run(capsys, *words, "msccl", "--out", "x.xml")
    assert (status, "nothing is written" in said) == (1, True)
    assert not (stand_in / "x.xml").exists()
    assert run(capsys, *words, "svg", "--out", "x.svg")[0] == 0


def test_a_schedule_that_fails_its_check_is_a_mistake_of_ours(
    stand_in: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(graph: LinkGraph, kind: Kind, size_bytes: float, **_: Any) -> Schedule:
        none = np.zeros(0)
        whole = np.zeros(0, np.int64)
        return Schedule(graph, kind, size_bytes, 1, (tuple(range(4)),), whole, whole, none, none)

    monkeypatch.setattr(schedule_synthesis, "synthesize", wrong)
    status, _, said = run(capsys, "network", "synthesize", "ring.txt")
    assert status == 1
    assert "a mistake of ours" in said


BAD: list[tuple[str, str]] = [
    ("bound nothing", "is no network"),
    ("bound .", "is a directory"),
    ("bound llama3-x@dgx-h100:8", "no such model"),
    ("bound parted.txt", "is not connected: no path leads from 0 to 2"),
    ("bound negative.txt", "must be positive"),
    ("bound huge.txt", "are not listed one by one"),
    ("bound dgx-h100:1000000000", "what follows the colon"),
    ("bound ring.txt --collective gather", "no such collective"),
    ("bound ring.txt --size 0B", "must be positive"),
    ("bound ring.txt --size 7", "write a number and its unit"),
    ("bound ring.txt --chunks 0", "whole number from 1"),
    ("bound ring.txt --chunks many", "whole number from 1"),
    ("bound ring.txt --group 0,0", "is a member twice"),
    ("bound ring.txt --group 0-1 --group 1-2", "is a member twice"),
    ("bound ring.txt --group ,", "name ranks"),
    ("bound ring.txt --group 2-1", "from the lower to the higher"),
    ("bound ring.txt --group 0-99999999999", "there are 4 NPUs"),
    ("bound ring.txt --root 4", "the root is a position"),
    ("bound ring.txt --fail 0-7", "no such node"),
    ("bound ring.txt --fail 0-2", "there is no such link"),
    ("bound ring.txt --fail 0-1 --fail 2-3", "is not connected"),
    ("synthesize ring.txt --to gif --out x", "no such format"),
    ("synthesize ring.txt --to svg", "needs --out"),
    ("synthesize ring.txt --out x", "and --to in which format"),
    ("synthesize ring.txt --schedule no/such/folder.csv", "cannot be written"),
    ("synthesize ring.txt --to svg --out -", "is no file"),
    ("synthesize ring.txt --to chakra --out x/", "give a prefix"),
    ("check ring.csv", "cannot be read"),
    ("check ring.txt --network ring.txt", "is no schedule that is known"),
    ("check cut.xml --network ring.txt", "is no valid XML"),
    ("check early.csv", "say on which network"),
    ("check early.csv --group 0-1", "needs --network"),
    ("check early.csv --network ring.txt --chunks 0", "whole number from 1"),
    ("convert early.csv --network ring.txt --to= --out x", "in which format"),
]


@pytest.mark.parametrize(("words", "said"), BAD)
def test_bad_input_is_one_sentence(stand_in: Path, capsys: pytest.CaptureFixture[str], words: str, said: str) -> None:
    (stand_in / "parted.txt").write_text("4\n0 1 1 1\n1 0 1 1\n2 3 1 1\n3 2 1 1\n")
    (stand_in / "negative.txt").write_text("2\n0 1 -1 1\n1 0 1 1\n")
    (stand_in / "huge.txt").write_text("1000000000\n0 1 1 1\n")
    (stand_in / "cut.xml").write_text("<algo><gpu")
    (stand_in / "early.csv").write_text("source,target,chunk,start_s,end_s\n1,2,0,0.0,1.0\n")
    status, out, err = run(capsys, "network", *words.split(" "))
    assert (status, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1


def test_networks_of_designs_and_systems_are_the_same(tmp_path: Path) -> None:
    graph = load_network("dgx-h100:16")
    (tmp_path / "design.yaml").write_text("model: llama3-8b\nsystem: dgx-h100:16\n")
    assert load_network(str(tmp_path / "design.yaml")).digest == graph.digest
    assert load_network("llama3-8b@dgx-h100:16").digest == graph.digest
    (tmp_path / "slow.yaml").write_text(
        "model: llama3-8b\nsystem: dgx-h100:16\nnetwork: {dims: {0: {bandwidth: 1 GB/s}}}\n"
    )
    slow = load_network(str(tmp_path / "slow.yaml"))
    assert slow.bandwidth_bytes_per_s.min() < graph.bandwidth_bytes_per_s.min()
    (tmp_path / "links.yaml").write_text("npus: 2\nlinks: [{source: 0, target: 1, bandwidth: 1 GB/s, both: true}]\n")
    assert load_network(str(tmp_path / "links.yaml"), ["0>1"]).links == 1
    (tmp_path / "other.yaml").write_text("a: 3\n")
    with pytest.raises(SpecError, match="is no network"):
        load_network(str(tmp_path / "other.yaml"))


def test_groups_keep_the_order_of_their_ranks() -> None:
    assert groups_of(["3,0-1"], 4) == ((3, 0, 1),)
    assert groups_of([], 4) is None
