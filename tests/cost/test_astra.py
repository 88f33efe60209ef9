"""ASTRA-sim's own results, to the nanosecond."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from pathlib import Path

import pytest

from cosmic.cost.astra import Dimension, System, chunks_of, collective_ns, pipeline_ns
from cosmic.errors import SpecError

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "astra_collectives.csv"
REFERENCE = ROOT.parent / "shared" / "reference" / "astra_sim" / "collectives.csv"
TOPOLOGIES = {"Ring": "ring", "FullyConnected": "fully_connected", "Switch": "switch"}
ALGORITHMS = {"halvingDoubling": "halving_doubling", "doubleBinaryTree": "double_binary_tree"}
Row = dict[str, str]


def rows(path: Path) -> list[Row]:
    with path.open() as file:
        return list(csv.DictReader(file))


def dimensions(row: Row) -> list[Dimension]:
    """Return the dimensions of a row; a group takes its own size, and in one dimension `oneRing` is `ring`."""
    columns = ("topology", "npus_count", "bandwidth_GBps", "latency_ns", "algorithm_per_dim")
    return [dimension(row, *values) for values in zip(*(row[column].split(";") for column in columns), strict=True)]


def dimension(row: Row, topology: str, npus: str, bandwidth: str, latency: str, algorithm: str) -> Dimension:
    if algorithm.startswith("one"):
        algorithm = algorithm[3].lower() + algorithm[4:]
    name, window = re.fullmatch(r"(\D+)(\d*)", algorithm).groups()  # type: ignore[union-attr]
    return Dimension(
        topology=TOPOLOGIES[topology],
        npus=len(json.loads(row["comm_groups"])["1"]) if row["comm_groups"] else int(npus),
        algorithm=ALGORITHMS.get(name, name),
        window=int(window) if window else None,
        bandwidth_gib_per_s=float(bandwidth),
        latency_ns=float(latency),
    )


def predicted(row: Row) -> int:
    system = System(
        memory_bandwidth_gb_per_s=float(row["local_mem_bw_GBps"]),
        splits=int(row["preferred_dataset_splits"]),
        active_chunks=int(row["active_chunks_per_dimension"]),
        endpoint_delay_ns=int(row["endpoint_delay_ns"]),
        all_reduce_in_every_dimension=row["collective_optimization"] == "baseline",
        group_of=int(row["npus_count"]) if row["comm_groups"] else None,
    )
    return collective_ns(row["collective"], int(row["size_bytes"]), dimensions(row), system)  # type: ignore[arg-type]


def exception(row: Row) -> str | None:
    """Return why a row has no closed form here, or None."""
    several = ";" in row["topology"]
    orders = row["inter_dim_sched"] not in ("", "ascending") or row["intra_dim_sched"] not in ("", "FIFO")
    tree = row["algorithm_per_dim"] == "doubleBinaryTree" and row["preferred_dataset_splits"] != "1"
    near = row["algorithm_per_dim"] in ("direct", "oneDirect") and row["topology"] == "Ring"
    reasons = {
        "shared bus": bool(row["other_system_opts"]),
        "several queues per dimension": bool(row["cli_extra"]),
        "Themis or another order": orders,
        "one logical ring over several dimensions": several and row["algorithm_per_dim"].startswith("one"),
        "group across several dimensions": several and bool(row["comm_groups"]),
        "several chunks of a double binary tree": tree,
        "direct all-reduce on a physical ring": near and row["collective"] == "all_reduce",
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


@pytest.mark.parametrize("row", rows(GOLDEN), ids=lambda row: row["case"])
def test_it_is_what_astra_sim_says(row: Row) -> None:
    assert predicted(row) == int(row["result_cycles_ns"])


@pytest.mark.skipif(not REFERENCE.exists(), reason="the shared reference numbers are not here")
def test_every_row_with_a_closed_form_is_exact() -> None:
    ran = [row for row in rows(REFERENCE) if row["backend"].startswith("unaware") and row["rc"] == "0"]
    exact: Counter[str] = Counter()
    exceptions: Counter[tuple[str, str]] = Counter()
    for row in ran:
        size = "several" if ";" in row["topology"] else "one"
        if reason := exception(row):
            exceptions[size, reason] += 1
            continue
        assert predicted(row) == int(row["result_cycles_ns"]), row
        exact[size] += 1

    assert exact == {"one": 136, "several": 94}
    assert exceptions == {
        ("one", "shared bus"): 1,
        ("one", "several chunks of a double binary tree"): 1,
        ("several", "several queues per dimension"): 2,
        ("several", "Themis or another order"): 48,
        ("several", "one logical ring over several dimensions"): 16,
        ("several", "group across several dimensions"): 6,
    }


@pytest.mark.skipif(not REFERENCE.exists(), reason="the shared reference numbers are not here")
def test_several_chunks_of_a_double_binary_tree_take_a_little_less() -> None:
    (row,) = (
        row
        for row in rows(REFERENCE)
        if row["backend"] == "unaware" and exception(row) == "several chunks of a double binary tree"
    )
    assert 0.97 < int(row["result_cycles_ns"]) / predicted(row) < 1


def test_a_remainder_is_one_more_whole_chunk() -> None:
    assert chunks_of("reduce_scatter", 103, 4, 8) == (25, 5)


def test_chunks_follow_each_other_through_dimensions() -> None:
    assert pipeline_ns([(0, 4), (1, 2), (0, 1)], 1, 1) == 7
    assert pipeline_ns([(0, 4), (1, 2), (0, 1)], 2, 1) == 11  # 0 to 4, 4 to 8; 8 to 10; 10 to 11


def test_active_chunks_run_side_by_side() -> None:
    assert [pipeline_ns([(0, 10)], 4, active) for active in (1, 2, 3, 4, 8)] == [40, 20, 20, 10, 10]


def ring(**changes: object) -> Dimension:
    given = {"topology": "ring", "npus": 4, "algorithm": "ring", "bandwidth_gib_per_s": 50.0, "latency_ns": 500.0}
    return Dimension(**(given | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"topology": "rign"}, "did you mean 'ring'"),
        ({"algorithm": "rings"}, "did you mean 'ring'"),
        ({"npus": 1}, "at least 2 NPUs"),
        ({"npus": 6, "algorithm": "halving_doubling"}, "needs a power of two"),
        ({"window": 0}, "must be at least 1"),
    ],
)
def test_a_wrong_dimension_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        ring(**changes)


def test_what_astra_sim_cannot_do_or_no_closed_form_can_is_refused() -> None:
    system = System(memory_bandwidth_gb_per_s=50)
    with pytest.raises(SpecError, match="has no all-to-all"):
        collective_ns("all_to_all", 4096, [ring(algorithm="halving_doubling")], system)
    with pytest.raises(SpecError, match="knows only all-reduce"):
        collective_ns("all_gather", 4096, [ring(algorithm="double_binary_tree")], system)
    with pytest.raises(SpecError, match="a group has a closed form"):
        collective_ns("all_gather", 4096, [ring()], System(memory_bandwidth_gb_per_s=50, group_of=16))
    with pytest.raises(SpecError, match="at least one byte per split"):
        collective_ns("all_gather", 1, [ring()], System(memory_bandwidth_gb_per_s=50, splits=2))
    with pytest.raises(SpecError, match="must be positive"):
        System(memory_bandwidth_gb_per_s=0)
