"""ASTRA-sim's input files: every key is read, warned about, or refused in a sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cosmic.base.errors import SpecError
from cosmic.simulate.events.astra_sim_inputs import (
    IGNORED,
    Algorithm,
    AstraSimDimension,
    RemoteMemory,
    SharedBus,
    System,
    read_astra_sim_network,
    read_remote_memory,
    read_system,
    system_from_keys,
)
from cosmic.simulate.events.trace_simulation import simulate
from cosmic.traces.chakra.trace_writer import write_traces
from cosmic.traces.trace import CollectiveType
from tests.simulate.files import MEMORY, NETWORK, SYSTEM, write_job
from tests.simulate.jobs import Node, collective, computation, receive, send, traces

KEYS: list[tuple[str, Any, str, Any]] = [
    ("scheduling-policy", "EXPLICIT", "scheduling_policy", "EXPLICIT"),
    ("collective-optimization", "baseline", "collective_optimization", "baseline"),
    ("intra-dimension-scheduling", "RG", "intra_dimension_scheduling", "RG"),
    ("inter-dimension-scheduling", "roundRobin", "inter_dimension_scheduling", "roundRobin"),
    ("inter-dimension-scheduling", "themis", "inter_dimension_scheduling", "offlineGreedy"),
    ("inter-dimension-scheduling", "baseline", "inter_dimension_scheduling", "ascending"),
    ("local-reduction-delay", 7, "local_reduction_delay", 7),
    ("active-chunks-per-dimension", 3, "active_chunks", 3),
    ("preferred-dataset-splits", 64, "splits", 64),
    ("endpoint-delay", 25, "endpoint_delay_ns", 25),
    ("peak-perf", 2.5, "peak_flop_per_s", 2.5e12),
    ("local-mem-bw", 1600, "memory_bytes_per_s", 1.6e12),
    ("replay-only", 1, "replay_only", True),
]
WRONG: list[tuple[str, Any, str]] = [
    ("scheduling-policy", "LIFOO", "no such value; did you mean 'LIFO'?"),
    ("scheduling-policy", "baseline", "system: scheduling-policy = 'baseline': no such value; choose from"),
    ("collective-optimization", 3, "system: collective-optimization = 3: no such value; choose from baseline"),
    ("active-chunks-per-dimension", 0, "must be a whole number from 1 to"),
    ("active-chunks-per-dimension", 1.5, "active-chunks-per-dimension = 1.5: must be a whole number"),
    ("preferred-dataset-splits", 2**16 + 1, "must be a whole number from 1 to 65,536"),
    ("endpoint-delay", -1, "endpoint-delay = -1: must be 0, or a number from"),
    ("endpoint-delay", "10", "endpoint-delay = '10': must be 0, or a number from"),
    ("peak-perf", float("nan"), "peak-perf = nan: must be 0, or a number from"),
    ("all-reduce-implementation", "ring", "must be a list, one for each dimension"),
    ("all-reduce-implementation", ["rign"], "no such algorithm; did you mean 'ring'?"),
    ("all-reduce-implementation", ["direct0"], "serves at least one peer at once"),
    ("all-reduce-implementation", [None], "must name an algorithm"),
    ("all-gather-implementation-custom", ["a", "b"], "must be a list with exactly one prefix of traces"),
    ("all-gather-implementation-custom", "a", "must be a list with exactly one prefix of traces"),
    ("per-node-custom-implementation", ["a"], "must be the path of a YAML file"),
]
RING_OF_FOUR = NETWORK | {"npus_count": [4]}


# ---- the system


@pytest.mark.parametrize(("key", "value", "field", "found"), KEYS, ids=[f"{key} {value}" for key, value, *_ in KEYS])
def test_a_key_of_the_system_is_read(key: str, value: Any, field: str, found: Any) -> None:
    assert getattr(System(), field) != found or key == "inter-dimension-scheduling"
    read = system_from_keys({key: value, "model-shared-bus": 1} if key == "local-reduction-delay" else {key: value})
    assert getattr(read, field) == found
    assert read.warnings == ()


def test_what_a_system_does_not_say_has_defaults() -> None:
    assert system_from_keys({}) == System()
    assert (System().endpoint_delay_ns, System().splits, System().active_chunks) == (10, 1, 1)
    assert (System().scheduling_policy, System().collective_optimization) == ("LIFO", "localBWAware")


def test_a_roofline_needs_both_rates() -> None:
    assert system_from_keys({"roofline-enabled": 1, "peak-perf": 1, "local-mem-bw": 1}).roofline
    for lacking in ("peak-perf", "local-mem-bw"):
        given = {"roofline-enabled": 1, "peak-perf": 1, "local-mem-bw": 1} | {lacking: 0}
        with pytest.raises(SpecError, match=f"system: {lacking} = 0: a roofline needs a positive rate"):
            system_from_keys(given)
        assert system_from_keys(given | {"replay-only": 1}).replay_only


def test_a_bus_is_there_if_it_is_modelled() -> None:
    bus = {"L": 1, "o": 2, "g": 3, "G": 0.25}
    assert system_from_keys(bus).bus is None
    assert system_from_keys(bus | {"model-shared-bus": 1}).bus == SharedBus(1, 2, 3, 0.25)


def test_algorithms_are_read_for_every_kind_and_dimension() -> None:
    names = ["ring", "direct", "direct4", "halvingDoubling", "doubleBinaryTree", "inSwitch"]
    plain = [Algorithm("ring"), Algorithm("direct"), Algorithm("direct", 4), *map(Algorithm, names[3:])]
    read = system_from_keys({"all-reduce-implementation": names, "all-gather-implementation": ["oneDirect2"]})
    assert read.implementations[CollectiveType.ALL_REDUCE] == tuple(plain)
    assert read.implementations[CollectiveType.ALL_GATHER] == (Algorithm("direct", 2, flat=True),)
    assert CollectiveType.ALL_TO_ALL not in read.implementations


@pytest.mark.parametrize("key", IGNORED)
def test_a_key_that_changes_nothing_is_warned_about(key: str) -> None:
    assert system_from_keys({key: 1}).warnings == (f"system: {key}: {IGNORED[key]}",)
    assert system_from_keys({key: 0}).warnings == ()  # and asks for nothing


def test_an_unknown_key_is_warned_about() -> None:
    assert system_from_keys({"endpoint-dellay": 1}).warnings == ("system: endpoint-dellay: no such key, ignored",)


def test_a_tree_that_adds_up_in_place_of_another_collective_is_warned_about() -> None:
    assert not system_from_keys({"all-reduce-implementation": ["doubleBinaryTree"]}).warnings
    assert "runs an all-reduce" in system_from_keys({"all-gather-implementation": ["doubleBinaryTree"]}).warnings[0]


@pytest.mark.parametrize(("key", "value", "rule"), WRONG, ids=[f"{key} {value}" for key, value, _ in WRONG])
def test_a_wrong_value_is_refused_in_a_sentence(key: str, value: Any, rule: str) -> None:
    with pytest.raises(SpecError) as caught:
        system_from_keys({key: value})
    assert str(caught.value).startswith(f"system: {key} = ")
    assert rule in str(caught.value)


def test_the_injection_scale_multiplies_a_delay_that_is_given(tmp_path: Path) -> None:
    (tmp_path / "system.json").write_text('{"endpoint-delay": 15}')
    assert read_system(tmp_path / "system.json", 2.5).endpoint_delay_ns == 37
    assert system_from_keys({}, injection_scale=2.5).endpoint_delay_ns == 10
    for scale in (-1.0, float("nan"), float("inf"), 1e300):
        with pytest.raises(SpecError, match="injection_scale = "):
            system_from_keys({}, injection_scale=scale)


def test_an_algorithm_is_needed_for_what_the_trace_has(tmp_path: Path) -> None:
    system = {key: value for key, value in SYSTEM.items() if key != "all-reduce-implementation"}
    with pytest.raises(SpecError, match="all-reduce-implementation = None: the trace has such collectives"):
        simulate(**write_job(tmp_path, [[collective("all_reduce", 64)]] * 2, system=system))
    simulate(**write_job(tmp_path, [[collective("all_gather", 64)]] * 2, system=system))


# ---- network and memory


def test_a_network_is_read_dimension_by_dimension(tmp_path: Path) -> None:
    (tmp_path / "net.yml").write_text(
        "topology: [ Ring, FullyConnected, Switch ]  # three\n"
        "npus_count: [ 2, 4, 8 ]\nbandwidth: [ 50, 1e2, 2.5e-1 ]\nlatency: [ 500, 0.5, 0 ]\n"
    )
    assert read_astra_sim_network(tmp_path / "net.yml") == (
        AstraSimDimension("Ring", 2, 50.0, 500.0),
        AstraSimDimension("FullyConnected", 4, 100.0, 0.5),
        AstraSimDimension("Switch", 8, 0.25, 0.0),
    )


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"topology": ["Rign"]}, "topology.0 = 'Rign': no such topology; did you mean 'Ring'?"),
        ({"topology": "Ring"}, "topology = 'Ring': must be a list"),
        ({"npus_count": [1]}, "npus_count.0 = 1: a dimension joins at least 2 NPUs"),
        ({"npus_count": [2.0]}, "npus_count.0 = 2.0: a dimension joins at least 2 NPUs"),
        ({"npus_count": [2, 2]}, "npus_count = [2, 2]: one for each of 1 dimensions"),
        ({"bandwidth": [0]}, "bandwidth.0 = 0: must be a number from 1e-09 on"),
        ({"bandwidth": ["fast"]}, "bandwidth.0 = 'fast': must be a number"),
        ({"latency": [-1]}, "latency.0 = -1: must be a number from 0 on"),
        ({"latnecy": [1]}, "latnecy = [1]: no such key"),
    ],
    ids=str,
)
def test_a_wrong_network_is_refused_in_a_sentence(tmp_path: Path, change: dict[str, Any], rule: str) -> None:
    (tmp_path / "net.yml").write_text(json.dumps(NETWORK | change))
    with pytest.raises(SpecError) as caught:
        read_astra_sim_network(tmp_path / "net.yml")
    assert rule in str(caught.value)
    assert "net.yml: " in str(caught.value)


def memory_of(tmp_path: Path, tree: Any) -> RemoteMemory:
    (tmp_path / "memory.json").write_text(json.dumps(tree))
    return read_remote_memory(tmp_path / "memory.json")


def test_a_remote_memory_is_read(tmp_path: Path) -> None:
    given = {"memory-type": "PER_NODE_MEMORY_EXPANSION", "num-nodes": 2, "num-npus-per-node": 8}
    given |= {"remote-mem-latency": 100, "remote-mem-bw": 12.5}
    assert memory_of(tmp_path, given) == RemoteMemory(
        type="PER_NODE_MEMORY_EXPANSION", latency_ns=100, bandwidth_gb_per_s=12.5, npus_per_node=8
    )
    assert memory_of(tmp_path, {}) == RemoteMemory()
    assert memory_of(tmp_path, {"memory-type": "NO_MEMORY_EXPANSION"}).bandwidth_gb_per_s == 0


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"memory-type": "POOL"}, "memory-type = 'POOL': no such value; did you mean"),
        ({"remote-mem-bw": 0}, "remote-mem-bw = 0.0: must be positive"),
        ({"remote-mem-latency": 0.5}, "remote-mem-latency = 0.5: must be a whole number"),
        ({"num-npus-per-node": 0}, "num-npus-per-node = 0: must be a whole number from 1"),
    ],
    ids=str,
)
def test_a_wrong_remote_memory_is_refused_in_a_sentence(tmp_path: Path, change: dict[str, Any], rule: str) -> None:
    with pytest.raises(SpecError) as caught:
        memory_of(tmp_path, MEMORY | change)
    assert f"memory.json: {rule}" in str(caught.value)


# ---- scripts


def ring_script(members: int, size: int) -> list[list[Node]]:
    """Return a collective as traces: everyone sends once to the next and receives once, then computes."""
    return [
        [
            send((place + 1) % members, size),
            receive((place - 1) % members, size),
            {"type": 4, "duration_us": 2, "data": [0, 1]},
        ]
        for place in range(members)
    ]


def scripted(folder: Path, script: list[list[Node]], ranks: list[list[Node]], **more: Any) -> dict[str, Any]:
    """Write a job whose all-reduces do what *script* says."""
    write_traces(traces(script), folder / "script")
    system = SYSTEM | {"all-reduce-implementation-custom": [str(folder / "script")]}
    return write_job(folder, ranks, system=system, network=RING_OF_FOUR, **more)


def test_a_collective_does_what_its_traces_say(tmp_path: Path) -> None:
    files = scripted(tmp_path, ring_script(4, 2**20), [[collective("all_reduce", 1)]] * 4)
    assert simulate(**files).cycles == 500 + 2**20 * 10**9 // (50 * 2**30) + 2000
    assert simulate(**files, backend="aware").cycles == simulate(**files).cycles


def test_a_script_has_positions_in_the_group_for_ranks(tmp_path: Path) -> None:
    ranks: list[list[Node]] = [[collective("all_reduce", 1, "1")], [computation(1, 1)]] * 2
    files = scripted(tmp_path, ring_script(2, 2**20), ranks, groups={"1": [0, 2]})
    assert [npu.cycles for npu in simulate(**files).per_npu][::2] == [2 * 500 + 19531 + 2000] * 2


def test_a_script_beside_the_system_is_found(tmp_path: Path) -> None:
    files = scripted(tmp_path, ring_script(4, 2**20), [[collective("all_reduce", 1)]] * 4)
    system = SYSTEM | {"all-reduce-implementation-custom": ["script"]}
    (tmp_path / "system.json").write_text(json.dumps(system))
    assert simulate(**files).cycles == 500 + 19531 + 2000


def test_a_node_has_its_own_script(tmp_path: Path) -> None:
    write_traces(traces(ring_script(4, 2**20)), tmp_path / "script")
    (tmp_path / "nodes.yml").write_text(f"1: {tmp_path / 'script'}\n")
    ranks = [[collective("all_reduce", 64), collective("all_reduce", 64, after=[0])]] * 4
    plain = simulate(**write_job(tmp_path, ranks[0:1] * 4, network=RING_OF_FOUR)).cycles // 2
    system = SYSTEM | {"per-node-custom-implementation": "nodes.yml"}
    found = simulate(**write_job(tmp_path, ranks, system=system, network=RING_OF_FOUR)).cycles
    assert found == plain + 500 + 19531 + 2000


@pytest.mark.parametrize(
    ("content", "rule"),
    [("[1]", "must hold an object"), ("a: b", "must map a node's id to a prefix"), ("1: 2", "must map a node's id")],
)
def test_wrong_scripts_of_nodes_are_refused(tmp_path: Path, content: str, rule: str) -> None:
    (tmp_path / "nodes.yml").write_text(content)
    with pytest.raises(SpecError, match=rule):
        system_from_keys({"per-node-custom-implementation": str(tmp_path / "nodes.yml")})


CIRCLE = [{"type": 4, "data": [1]}, {"type": 4, "data": [0]}]


@pytest.mark.parametrize(
    ("script", "rule"),
    [
        (ring_script(3, 8), r"\.\*\.et = 3: the group has 4 members"),
        (ring_script(5, 8), r"\.\*\.et = 5: the group has 4 members"),
        ([CIRCLE] * 4, "nodes in a cycle = 2: each waits for the next"),
        ([[receive((place + 1) % 4, 8)] for place in range(4)], "has no send of 8 bytes"),
        ([[{"type": 5, "peer": (place + 1) % 4}] for place in range(4)], "a COMM_SEND node needs it"),
        ([[send(place, 8), receive(place, 8)] for place in range(4)], "no such other member"),
    ],
    ids=["too few", "too many", "a circle", "no sender", "no size", "itself"],
)
def test_a_script_that_cannot_run_is_refused(tmp_path: Path, script: list[list[Node]], rule: str) -> None:
    files = scripted(tmp_path, script, [[collective("all_reduce", 1)]] * 4)
    with pytest.raises(SpecError, match=rule):
        simulate(**files)


def test_what_counts_with_a_shared_bus_only_is_warned_about_without_one() -> None:
    latency = {"L": 10, "local-reduction-delay": 2}
    assert [warning.split(": ")[1] for warning in system_from_keys(latency).warnings] == ["L", "local-reduction-delay"]
    assert not system_from_keys(latency | {"model-shared-bus": 1}).warnings


# ---- recorded durations

LONG = computation(100_000_000, 1, duration_us=5)
"""1,000 ns at 100 Tflop/s, 5,000 ns as recorded."""


def warned(folder: Path, node: Node, **system: Any) -> tuple[str, ...]:
    given = SYSTEM | {key.replace("_", "-"): value for key, value in system.items()}
    return simulate(**write_job(folder, [[node], [node]], system=given)).warnings


def test_a_roofline_that_replaces_other_durations_says_so(tmp_path: Path) -> None:
    assert warned(tmp_path, LONG) == (
        "compute takes 1,000 cycles by the roofline of the system file, 5,000 as the traces record it:"
        " roofline-enabled 0 plays the latter",
    )


def test_recorded_durations_are_not_mentioned_where_they_are_played_alike_or_absent(tmp_path: Path) -> None:
    assert warned(tmp_path, LONG, roofline_enabled=0) == ()
    assert warned(tmp_path, LONG, replay_only=1) == ()
    assert warned(tmp_path, computation(495_000_000, 1, duration_us=5)) == ()  # 1 % less
    assert warned(tmp_path, computation(480_000_000, 1, duration_us=5)) != ()
    assert warned(tmp_path, computation(100_000_000, 1)) == ()
