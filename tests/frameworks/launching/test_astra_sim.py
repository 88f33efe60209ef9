"""ASTRA-sim's inputs, written and simulated."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

import cosmic
from cosmic.base.errors import SpecError
from cosmic.design.design_point import DesignPoint
from cosmic.frameworks.launch import targets, write_launch
from cosmic.search.mapping.design_completion import load_design

SMALL = {"model.layers": 4, "workload.global_batch": 64}


def simulated(point: DesignPoint, folder: Path) -> float:
    """Return the seconds of a step whose inputs were written and read back."""
    write_launch(targets["astra-sim"](point), folder)
    result = cosmic.simulate(
        workload=folder / "trace",
        system=folder / "system.json",
        network=folder / "network.yml",
        comm_groups=folder / "comm_groups.json",
        remote_memory=folder / "memory.json",
    )
    assert len(result.per_npu) == point.network.npus
    assert not result.warnings
    return result.cycles / 1e9


@pytest.mark.parametrize(
    "overrides",
    [
        {"workload.dp": 16, "workload.tp": 1, "workload.pp": 1},
        {"workload.dp": 2, "workload.tp": 4, "workload.pp": 2},
        {"workload.dp": 16, "workload.tp": 1, "workload.pp": 1, "collective.multi_dim": "themis"},
    ],
    ids=["replicas", "three axes", "themis"],
)
def test_what_is_written_is_read_back_and_takes_about_as_long_as_the_closed_form(
    overrides: dict[str, object], tmp_path: Path
) -> None:
    point = load_design("gpt3-13b@dgx-h100:16", SMALL | overrides, plain=True)
    outcome = cosmic.evaluate(point)
    assert isinstance(outcome, cosmic.design.Metrics)
    assert simulated(point, tmp_path / "job") == pytest.approx(outcome.step_s, rel=0.25)


def test_what_astra_sim_lacks_is_said_and_replaced() -> None:
    base = load_design("gpt3-13b@dgx-h100:16", SMALL, plain=True)
    collective = replace(base.collective, algorithms=("in_network", "double_binary_tree"))
    dims = (replace(base.network.dims[0], topology="hypercube"), base.network.dims[1])
    found = targets["astra-sim"](replace(base, collective=collective, network=replace(base.network, dims=dims)))
    system = json.loads(found.files["system.json"])
    assert system["all-reduce-implementation"] == ["ring", "doubleBinaryTree"]
    assert system["all-gather-implementation"] == ["ring", "ring"]
    assert system["all-to-all-implementation"] == ["direct1", "direct1"]
    assert yaml.safe_load(found.files["network.yml"])["topology"] == ["Switch", "Switch"]
    assert any("no in_network" in warning for warning in found.warnings)
    assert any("no hypercube" in warning for warning in found.warnings)


def test_fully_connected_npus_have_a_link_to_each_peer() -> None:
    base = load_design("gpt3-175b@cosmic-1024", {"model.layers": 4}, plain=True)
    found = targets["astra-sim"](base)
    network = yaml.safe_load(found.files["network.yml"])
    assert network["topology"] == ["Ring", "FullyConnected", "Ring", "Switch"]
    rates = [dim.bandwidth_bytes_per_s / 2**30 for dim in base.network.dims]
    assert network["bandwidth"] == pytest.approx([rates[0], rates[1] / 7, rates[2], rates[3]], rel=1e-6)
    system = json.loads(found.files["system.json"])
    assert system["all-to-all-implementation"] == ["direct1", "direct", "direct1", "direct1"]
    assert not found.warnings


def test_traces_of_a_larger_job_are_not_mixed_in(tmp_path: Path) -> None:
    write_launch(targets["astra-sim"](load_design("gpt3-13b@dgx-h100:32", SMALL, plain=True)), tmp_path)
    with pytest.raises(SpecError, match=r"trace\.16\.et is there"):
        write_launch(targets["astra-sim"](load_design("gpt3-13b@dgx-h100:16", SMALL, plain=True)), tmp_path)


# ---- outer memory

HOST = {"name": "host", "capacity": "1 TB", "bandwidth": "20 GB/s", "latency": "10 us"}
SSD = {"name": "ssd", "capacity": "4 TB", "bandwidth": "5 GB/s"}
SERVED = {"task": "prefill", "sequence": 2048, "global_batch": 64, "dp": 16, "tp": 1, "model.layers": 4}


@pytest.mark.parametrize(
    "given",
    [
        {**SERVED, "memory.placement.weights": ["host"]},
        {**SERVED, "memory.placement.weights": ["host"], "memory.prefetch": "step"},
        {**SERVED, "memory.tiers": [HOST, SSD], "memory.placement.weights": ["ssd"]},
        {**SMALL, "dp": 16, "tp": 1, "pp": 1, "memory.placement.optimizer": ["host"]},
    ],
    ids=["a layer ahead", "anywhere in the step", "two tiers", "the update"],
)
def test_what_moves_between_tiers_is_written_and_takes_its_time(given: dict[str, object], tmp_path: Path) -> None:
    point = load_design("gpt3-13b@dgx-h100:16", {"memory.tiers": [HOST], **given}, plain=True)
    outcome = cosmic.evaluate(point)
    assert isinstance(outcome, cosmic.design.Metrics)
    assert outcome.breakdown["offload"] > 0.2 * outcome.step_s
    assert simulated(point, tmp_path / "job") == pytest.approx(outcome.step_s, rel=0.1)


def test_one_tier_has_its_own_rate_and_latency() -> None:
    given = {**SERVED, "memory.tiers": [HOST], "memory.placement.weights": ["host"]}
    found = targets["astra-sim"](load_design("gpt3-13b@dgx-h100:16", given, plain=True))
    memory = json.loads(found.files["memory.json"])
    assert memory == {
        "memory-type": "PER_NPU_MEMORY_EXPANSION",
        "remote-mem-latency": 10_000,
        "remote-mem-bw": pytest.approx(20, rel=1e-6),
    }


def test_what_astra_sim_lacks_of_tiers_is_said() -> None:
    pool = {"groups": 4, "group_bandwidth": "100 GB/s", "node_bandwidth": "100 GB/s"}
    cxl = {"name": "cxl", "capacity": "1 TB", "bandwidth": "50 GB/s", "access": "load_store"}
    tiers = [{**HOST, "name": "pool", "pool": pool}, cxl]
    given = {**SERVED, "memory.tiers": tiers, "memory.placement.weights": ["pool"]}
    found = targets["astra-sim"](load_design("gpt3-13b@dgx-h100:16", given, plain=True))
    assert any("one request at a time" in each for each in found.warnings)
    assert any("read in place" in each for each in found.warnings)
    rate = json.loads(found.files["memory.json"])["remote-mem-bw"]
    assert rate == pytest.approx(12.5, rel=0.01)  # 8 accelerators of a node share 100 GB/s


def test_steps_that_move_nothing_have_no_outer_memory() -> None:
    point = load_design("gpt3-13b@dgx-h100:16", {**SERVED, "memory.tiers": [HOST]}, plain=True)
    assert json.loads(targets["astra-sim"](point).files["memory.json"]) == {"memory-type": "NO_MEMORY_EXPANSION"}
