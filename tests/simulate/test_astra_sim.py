"""ASTRA-sim's own results, to the nanosecond."""

from __future__ import annotations

import csv
import json
import lzma
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cosmic.simulate.events.astra_sim_inputs import RemoteMemory
from cosmic.simulate.events.simulation_job import Job
from cosmic.simulate.events.trace_simulation import simulate, simulate_job
from tests.batches import check_all
from tests.simulate.jobs import collective, computation, job, load, network, receive, send

pytestmark = pytest.mark.usefixtures("engine")
ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "astra_collectives.csv"
REFERENCE = ROOT.parent / "shared" / "reference" / "astra_sim"
Row = dict[str, str]


def collectives() -> list[Row]:
    with GOLDEN.open() as file:
        return list(csv.DictReader(file))


def job_of(row: Row) -> Job:
    columns = (row["topology"], row["npus_count"], row["bandwidth_GBps"], row["latency_ns"])
    dims = zip(*(column.split(";") for column in columns), strict=True)
    net = network(*((topology, int(npus), float(rate), float(delay)) for topology, npus, rate, delay in dims))
    groups = json.loads(row["comm_groups"] or "{}")
    of = {rank: name for name, members in groups.items() for rank in members}
    ranks = [[collective(row["collective"], int(row["size_bytes"]), of.get(rank))] for rank in range(net.npus)]
    extra = dict(option.lstrip("-").split("=") for option in row["cli_extra"].split())
    keys = {
        "preferred_dataset_splits": int(row["preferred_dataset_splits"]),
        "active_chunks_per_dimension": int(row["active_chunks_per_dimension"]),
        "scheduling_policy": row["scheduling_policy"],
        "collective_optimization": row["collective_optimization"],
        "local_mem_bw": float(row["local_mem_bw_GBps"]),
        "endpoint_delay": int(row["endpoint_delay_ns"]),
        "intra_dimension_scheduling": row["intra_dim_sched"] or "FIFO",
        "inter_dimension_scheduling": row["inter_dim_sched"] or "ascending",
        "backend": row["backend"],
        "queues_per_dim": int(extra.get("num-queues-per-dim", 1)),
    }
    other = {key.replace("-", "_"): value for key, value in json.loads(row["other_system_opts"] or "{}").items()}
    return job(ranks, net, row["algorithm_per_dim"].split(";"), groups=groups, **keys, **other)


@check_all("row", collectives(), tests=4)
def test_a_collective_takes_as_long(row: Row) -> None:
    assert simulate_job(job_of(row)).cycles == int(row["result_cycles_ns"])


def examples() -> list[Row]:
    with (ROOT / "tests" / "golden" / "astra_examples.csv").open() as file:
        return list(csv.DictReader(file))


@check_all("row", examples(), tests=2)
def test_a_bundled_example_takes_as_long(row: Row) -> None:
    shape = [int(npus) for npus in row["npus"].split(";")]
    links = [(50.0, 500.0), (25.0, 1000.0)]
    dims = zip(row["topology"].split(";"), shape, links, strict=False)
    net = network(*((topology, npus, *link) for topology, npus, link in dims))
    settings = {"local_mem_bw": 50, "active_chunks_per_dimension": 2, "backend": row["backend"]}
    work = job([[collective(row["collective"], MIB)]] * net.npus, net, ["ring"] * len(shape), **settings)
    assert simulate_job(work).cycles == simulate_job(work, folded=False).cycles == int(row["cycles"])


# One question each: what ASTRA-sim did when asked.
RING = ("Ring", 2, 50.0, 500.0)
TERA = computation(10**12, 10**6)
MIB = 2**20


def questions() -> Iterator[tuple[str, Job, int]]:
    def pair(*nodes: Any, **more: Any) -> Job:
        return job([nodes, nodes], network(RING), **more)

    yield "compute and communication overlap", pair(TERA, collective("all_reduce", MIB)), 10_000_000
    yield "a collective", pair(collective("all_reduce", MIB)), 25_220
    two = (collective("all_reduce", MIB), collective("all_reduce", MIB))
    yield "collectives follow each other", pair(*two), 50_440
    odd = [[collective("all_gather", 7)]] * 4
    yield "a remainder is more chunks", job(odd, network(("Ring", 4, 50.0, 500.0)), local_mem_bw=50), 10_780
    whole = [[collective("all_reduce", MIB)]] * 4
    slow = job(whole, network(("Ring", 4, 50.0, 500.0)), endpoint_delay=1000)
    yield "all ranks pay the endpoint delay", slow, 71_620
    four = (collective("all_reduce", 4 * MIB), collective("all_reduce", MIB))
    yield "the policy orders chunks, not collectives", pair(*four, local_mem_bw=50), 263_160
    yield "a roofline is cut to nanoseconds", pair(computation(123_456_789, 777)), 1_234
    replayed = (
        computation(1, 1, duration_us=7),
        computation(1, 1, [0], duration_us=3),
    )
    yield "recorded durations are microseconds", pair(*replayed, roofline_enabled=0), 10_000
    empty = (computation(10**6, 0), computation(10**12, 10**6, [0]), collective("all_reduce", MIB))
    yield "what an empty node frees is seen at the next event", pair(*empty), 10_025_220
    short = [computation(10**9, 10**6)]
    message = [[send(2, MIB, 5)], short, [receive(0, MIB, 5)], short]
    for backend, cycles in (("unaware", 20_531), ("aware", 40_062)):
        yield f"a message, {backend}", job(message, network(("Ring", 4, 50.0, 500.0)), backend=backend), cycles
    ranks = [[send(5, MIB, 5)], *[short] * 4, [receive(0, MIB, 5)], *[short] * 10]
    net = network(("Ring", 4, 50.0, 500.0), ("Switch", 4, 25.0, 1000.0))
    yield "the first dimension that differs counts", job(ranks, net, ["ring", "ring"]), 20_031
    for kind, cycles in (
        ("PER_NPU_MEMORY_EXPANSION", 12_098_152),
        ("PER_NODE_MEMORY_EXPANSION", 14_196_304),
        ("MEMORY_POOL", 14_196_304),
    ):
        memory = RemoteMemory(type=kind, latency_ns=1000, bandwidth_gb_per_s=50.0, npus_per_node=2)
        yield f"remote memory, {kind}", pair(load(100 * MIB), computation(10**12, 10**6, [0]), memory=memory), cycles


@pytest.mark.parametrize(
    ("work", "cycles"), [pytest.param(work, cycles, id=name) for name, work, cycles in questions()]
)
def test_a_question_has_the_same_answer(work: Job, cycles: int) -> None:
    assert simulate_job(work).cycles == cycles


def test_where_astra_sim_hangs_or_crashes_there_is_an_answer() -> None:
    six = [[collective("all_reduce", MIB)]] * 6
    for algorithm in ("halvingDoubling", "doubleBinaryTree"):
        assert simulate_job(job(six, network(("Switch", 6, 50.0, 500.0)), [algorithm])).cycles > 0
    pair = [[collective("all_reduce", MIB)]] * 2
    unaware, aware = (
        simulate_job(job(pair, network(RING), backend=backend)).cycles for backend in ("unaware", "aware")
    )
    assert aware == unaware
    stalled = [[computation(10**6, 0), computation(10**12, 10**6, [0])]] * 2
    assert simulate_job(job(stalled, network(RING))).cycles == 10_000_000


WORKLOADS = ("n8", "n8fsdp", "n16", "n64", "n256")


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.skipif(not REFERENCE.exists(), reason="the shared reference numbers are not here")
def test_a_training_step_takes_as_long_on_every_rank(name: str, tmp_path: Path) -> None:
    with lzma.open(REFERENCE / "workloads" / f"{name}.tar.xz") as stream, tarfile.open(fileobj=stream) as archive:
        archive.extractall(tmp_path, filter="data")
    for case in json.loads((REFERENCE / "workloads" / f"{name}.result.json").read_text()):
        (tmp_path / "system.json").write_text(json.dumps(case["system"]))
        (tmp_path / "network.yml").write_text("".join(f"{key}: {value}\n" for key, value in case["network"].items()))
        result = simulate(
            workload=tmp_path / name / "gpt",
            system=tmp_path / "system.json",
            network=tmp_path / "network.yml",
            comm_groups=tmp_path / name / "gpt.json",
            backend=case["backend"],
        )
        assert result.cycles == case["cycles_max"]
        for rank, expected in case["per_npu"].items():
            npu = result.per_npu[int(rank)]
            assert [getattr(npu, ours) for ours in TIMES] == [expected[theirs] for theirs in TIMES.values()]
            shares = [100 * getattr(npu, ours) for ours in SHARES]
            assert shares == pytest.approx([expected[theirs] for theirs in SHARES.values()], abs=6e-4)
            assert npu.operational_intensity == pytest.approx(expected["Average operation intensity"], rel=1e-5)


TIMES = {
    "cycles": "cycles",
    "exposed_cycles": "exposed",
    "compute_cycles": "GPU time",
    "communication_cycles": "Comm time",
    "hidden_cycles": "Total compute-communication overlap",
}
SHARES = {
    "compute_bound": "Compute bound percentage",
    "compute_utilization": "Average compute utilization",
    "memory_utilization": "Average memory utilization",
}
"""What ASTRA-sim prints of a rank, by our names; shares to three digits of a percent."""
