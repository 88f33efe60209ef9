"""Whatever files the engine is given, it gives a result or one sentence: nothing else ever comes out, and soon."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from cosmic.base.errors import CosmicError, SpecError
from cosmic.cli.dispatch import main
from cosmic.simulate.events.simulation_result import SimulationResult
from cosmic.simulate.events.trace_simulation import simulate
from tests.simulate.files import MEMORY, NETWORK, SYSTEM, words, write_job
from tests.simulate.jobs import Node, collective, computation, load, receive, send, traces
from tests.traces.encoding import encoded

GROUPS: dict[str, Any] = {"1": [0], "2": [1, 0]}
RANKS: list[list[Node]] = [
    [computation(1000, 100), collective("all_reduce", 512, "2", [0]), load(64), send(1, 100), receive(1, 8)],
    [computation(1000, 100), collective("all_reduce", 512, "2", [0]), load(64), receive(0, 100), send(0, 8)],
]
BYTES = [encoded(trace, rank) for rank, trace in enumerate(traces(RANKS).ranks)]
AWKWARD: list[Any] = [None, True, False, 0, -1, 1, 2, 3, 2**31, 2**62, 2**63, 10**30, 10**400, -(10**400), 0.5, 1e-300]
AWKWARD += [
    1e300,
    -0.0,
    float("nan"),
    float("inf"),
    -float("inf"),
    "",
    "x",
    "2",
    "1e3",
    "\0",
    "ring",
    "direct0",
    "oneRing",
]
AWKWARD += [
    "doubleBinaryTree",
    "inSwitch",
    "offlineGreedyFlex",
    "RG",
    "x" * 300,
    "\ud800",
    [],
    {},
    [[]],
    [None],
    [2, 2],
]
NUMBERS = [0, 1, 2, 7, 2**31, 2**40, 2**62, 2**63 - 1]
SCALARS = st.sampled_from(AWKWARD).map(copy.deepcopy) | st.integers() | st.floats() | st.text(max_size=4)
TREES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*SYSTEM, *NETWORK, "1"]), inner),
    max_leaves=8,
)
fuzz = settings(
    max_examples=30,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
)


def check(files: dict[str, Any], **how: Any) -> None:
    """Simulate: there is a result, or its mistake is one printable sentence that names a place."""
    try:
        result = simulate(**files, **how)
    except CosmicError as error:
        assert str(error).isprintable()
        assert " = " in str(error)
        return
    assert isinstance(result, SimulationResult)
    assert result.cycles == max(npu.cycles for npu in result.per_npu)
    assert all(0 <= npu.exposed_cycles <= npu.cycles for npu in result.per_npu)


@st.composite
def damaged(draw: st.DrawFn, tree: Any) -> Any:
    """Draw *tree* with a part or two replaced by something else, or removed."""
    tree = copy.deepcopy(tree)
    for _ in range(draw(st.integers(1, 2))):
        key = draw(st.sampled_from(list(tree)))
        what = draw(st.sampled_from(["replace", "remove", "inside", "add"]))
        if what == "remove" and len(tree) > 1:
            del tree[key]
        elif what == "inside" and isinstance(tree[key], list) and tree[key]:
            tree[key][-1] = draw(SCALARS)
        elif what == "add" and isinstance(tree[key], list):
            tree[key].append(draw(SCALARS))
        else:
            tree[key] = draw(SCALARS | TREES)
    return tree


@st.composite
def broken(draw: st.DrawFn, content: bytes) -> bytes:
    """Draw *content* with some of its bytes changed, removed or repeated."""
    changed = bytearray(content)
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, max(0, len(changed) - 1)))
        changed[place : place + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    return bytes(changed)


@given(st.binary(max_size=60) | broken(BYTES[0]), st.booleans())
@fuzz
@example(b"", False)
@example(b"\x80" * 20, False)
def test_any_trace_is_simulated_or_refused(tmp_path: Path, content: bytes, both: bool) -> None:
    files = write_job(tmp_path, RANKS, groups=GROUPS, memory=MEMORY)
    (tmp_path / "job.0.et").write_bytes(content)
    if both:
        (tmp_path / "job.1.et").write_bytes(content)
    check(files)


@given(damaged(SYSTEM) | TREES.filter(bool), st.sampled_from(["unaware", "aware"]), st.booleans())
@fuzz
@example(SYSTEM | {"endpoint-delay": 10**400}, "unaware", True)
@example(SYSTEM | {"local-mem-bw": 1e-300}, "unaware", True)
@example(SYSTEM | {"all-reduce-implementation-custom": ["x" * 5000]}, "unaware", True)
@example(SYSTEM | {"per-node-custom-implementation": "x" * 5000}, "unaware", True)
@example(SYSTEM | {"model-shared-bus": 1, "L": 2**31, "G": 1e17}, "unaware", True)
def test_any_system_is_simulated_or_refused(tmp_path: Path, system: Any, backend: str, compat: bool) -> None:
    check(write_job(tmp_path, RANKS, system=system, groups=GROUPS, memory=MEMORY), backend=backend, compat=compat)


@given(damaged(NETWORK) | TREES.filter(bool), st.sampled_from(["unaware", "aware"]), st.booleans())
@fuzz
@example(NETWORK | {"bandwidth": [0]}, "unaware", True)
@example(NETWORK | {"latency": [-1]}, "unaware", True)
@example(NETWORK | {"npus_count": [1]}, "unaware", True)
@example(NETWORK | {"npus_count": [2**24], "topology": ["Rign"]}, "unaware", True)
@example(NETWORK | {"npus_count": [2, 2]}, "unaware", True)
@example(NETWORK | {"bandwidth": [1e-9], "latency": [9e14]}, "aware", False)
def test_any_network_is_simulated_or_refused(tmp_path: Path, network: Any, backend: str, compat: bool) -> None:
    check(write_job(tmp_path, RANKS, network=network, groups=GROUPS, memory=MEMORY), backend=backend, compat=compat)


@given(damaged(GROUPS) | TREES)
@fuzz
@example({"1": [0], "2": [0]})
@example({"1": [0], "2": [0, 7]})
@example({"1": [0], "2": []})
@example({"1": [0], "2": [0, 0]})
def test_any_groups_are_simulated_or_refused(tmp_path: Path, groups: Any) -> None:
    check(write_job(tmp_path, RANKS, groups=groups, memory=MEMORY))


@given(damaged(MEMORY) | TREES)
@fuzz
@example(MEMORY | {"remote-mem-bw": 0})
@example(MEMORY | {"remote-mem-bw": 1e-300})
def test_any_remote_memory_is_simulated_or_refused(tmp_path: Path, memory: Any) -> None:
    check(write_job(tmp_path, RANKS, groups=GROUPS, memory=memory))


@given(st.sampled_from(["system", "network", "comm_groups", "remote_memory"]), st.binary(max_size=20))
@fuzz
def test_any_bytes_are_a_description_or_refused(tmp_path: Path, key: str, content: bytes) -> None:
    files = write_job(tmp_path, RANKS, groups=GROUPS, memory=MEMORY)
    Path(files[key]).write_bytes(content)
    check(files)


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    """Draw a node of any kind that says anything."""
    number = st.sampled_from(NUMBERS)
    return {
        "type": draw(st.integers(1, 7)),
        "num_ops": draw(number),
        "tensor_size": draw(number),
        "duration_us": draw(number),
        "comm_size": draw(number),
        "comm_type": draw(st.integers(0, 9)),
        "comm_tag": draw(st.sampled_from([0, 0, 5])),
        "comm_priority": draw(st.sampled_from([0, -5, 2**31 - 1])),
        "involved_dims": draw(st.sampled_from([-1, 0, 1, 2, 2**40])),
        "peer": draw(st.sampled_from([0, 1, 1, 2, -7])),
        "on_cpu": draw(st.booleans()),
        "data": draw(st.lists(st.integers(0, 4), max_size=1)),
    }


@given(st.lists(nodes(), max_size=4), st.lists(nodes(), max_size=4), st.booleans(), st.booleans(), st.booleans())
@fuzz
def test_any_nodes_are_simulated_or_refused(
    tmp_path: Path, one: list[Node], other: list[Node], alike: bool, aware: bool, compat: bool
) -> None:
    files = write_job(tmp_path, [one, one if alike else other], memory=MEMORY)
    check(files, backend="aware" if aware else "unaware", compat=compat, rendezvous=not compat)


@pytest.mark.parametrize("size", NUMBERS)
@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"])
def test_a_size_however_large_costs_no_more_events(tmp_path: Path, kind: str, size: int) -> None:
    files = write_job(tmp_path, [[collective(kind, size)]] * 2)
    for backend in ("unaware", "aware"):
        check(files, backend=backend)
        check(files, backend=backend, compat=False)


def test_the_most_chunks_take_no_more_than_their_number(tmp_path: Path) -> None:
    ranks = [[collective("all_reduce", 4096)]] * 2
    few, many = (
        simulate(**write_job(tmp_path, ranks, system=SYSTEM | {"preferred-dataset-splits": splits})).events
        for splits in (2**10, 2**16)
    )
    assert many <= 65 * few


def test_what_would_take_longer_than_a_century_is_refused(tmp_path: Path) -> None:
    long = {"type": 4, "duration_us": 2**43 - 1}
    ranks = [[long | {"data": [place - 1] if place else []} for place in range(1000)]] * 2
    files = write_job(tmp_path, ranks, system=SYSTEM | {"roofline-enabled": 0})
    with pytest.raises(CosmicError, match="sizes, rates or durations are out of proportion"):
        simulate(**files)


MISTAKES: dict[str, tuple[Callable[[Path], dict[str, Any]], str]] = {
    "a missing trace": (write_job, "the trace of this rank is missing"),
    "a broken trace": (
        lambda folder: write_job(folder, RANKS) | {"workload": str(folder / "system")},
        "the trace of this rank is missing",
    ),
    "no bandwidth": (
        lambda folder: write_job(folder, RANKS, network=NETWORK | {"bandwidth": [0]}),
        "bandwidth.0 = 0: must be a number",
    ),
    "an algorithm that is none": (
        lambda folder: write_job(folder, RANKS, system=SYSTEM | {"all-reduce-implementation": ["rign"]}),
        "all-reduce-implementation = 'rign': no such algorithm; did you mean 'ring'?",
    ),
    "no such file": (
        lambda folder: write_job(folder, RANKS) | {"system": "nope.json"},
        "file = 'nope.json': cannot be read",
    ),
    "an absent group": (lambda folder: write_job(folder, RANKS, memory=MEMORY), "pg_name = '2': no such group"),
    "a rank outside": (
        lambda folder: write_job(folder, [[send(7, 1)], []]),
        "rank 0: node 0: peer = 7: no such other rank",
    ),
    "no memory": (lambda folder: write_job(folder, [[load(1)]] * 2), "rank 0: node 0 = 'MEM_LOAD': needs a remote"),
    "a stranger in a group": (
        lambda folder: write_job(folder, [[collective("all_reduce", 8, "1")]] * 2, groups={"1": [0]}),
        "group 1 = [0]: rank 1 uses it and is no member",
    ),
    "too few algorithms": (
        lambda folder: write_job(
            folder, [[collective("all_reduce", 8)]] * 4, network={key: value * 2 for key, value in NETWORK.items()}
        ),
        "all-reduce-implementation = ['ring']: one for each of 2 dimensions",
    ),
    "a barrier": (
        lambda folder: write_job(folder, [[collective("barrier", 8)]] * 2),
        "rank 0: node 0: comm_type = 'barrier': has no algorithm",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_command_ends_with_2_and_one_sentence(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, mistake: str
) -> None:
    written, sentence = MISTAKES[mistake]
    with pytest.raises(SystemExit) as ended:
        main(["simulate", *words(written(tmp_path))])
    out, err = capsys.readouterr()
    assert (ended.value.code, out) == (2, "")
    assert err.startswith("cosmic simulate: ")
    assert sentence in err
    assert err.count("\n") == 1


def test_a_node_that_is_too_long_for_nanoseconds_is_refused_not_cut(tmp_path: Path) -> None:
    files = write_job(tmp_path, [[{"type": 4, "duration_us": 2**53}]] * 2, system=SYSTEM | {"roofline-enabled": 0})
    with pytest.raises(SpecError, match=r"node 0 .* = '9\.0072e\+09 s': takes more than the 9,007,199 s"):
        simulate(**files)
