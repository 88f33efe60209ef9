"""LIBRA's step times and network prices at equal bandwidth."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from cosmic.cost.libra import Groups, Layer, Phase, Price, messages_bytes, network_usd, step_s
from cosmic.errors import SpecError

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden"
REFERENCE = ROOT.parent / "shared" / "reference" / "network" / "libra.csv"
PHASES = ("forward", "input_gradient", "weight_gradient")
Row = dict[str, str]
# The source's prices in $ per GB/s, with the 1e-5 by which it tells equal dimensions apart.
NETWORKS = {
    "3d_network.yml": [
        ("ring", Price(link=4.00001, switch=13.00001)),
        ("fully_connected", Price(link=4.00002, switch=13.00002)),
        ("switch", Price(link=7.80003, switch=18.00003, nic=31.60003)),
    ],
    "4d_network.yml": [
        ("ring", Price(link=2.00001)),
        ("fully_connected", Price(link=4.00002, switch=13.00002)),
        ("ring", Price(link=4.00003, switch=13.00003)),
        ("switch", Price(link=7.80004, switch=18.00004, nic=31.60004)),
    ],
}


def rows(path: Path) -> list[Row]:
    with path.open() as file:
        return list(csv.DictReader(file))


COLLECTIVES = rows(GOLDEN / "libra_collectives.csv")


def layers(row: Row) -> list[Layer]:
    """Return the workload as one layer per collective, after one layer that does all the computing."""
    idle = dict.fromkeys(PHASES, Phase(0.0))
    computing = Layer(**(idle | {"forward": Phase(float(row["compute_ns"]) * 1e-9)}))
    return [computing] + [
        Layer(**(idle | {each["phase"]: Phase(0.0, each["collective"], float(each["size_bytes"]))}))  # type: ignore[arg-type]
        for each in COLLECTIVES
        if each["workload"] == row["workload"]
        for _ in range(int(each["times"]))
    ]


def groups(row: Row) -> Groups:
    dimensions = len(NETWORKS[row["network"]])
    found = dict.fromkeys(PHASES, (1,) * dimensions)
    for each in COLLECTIVES:
        if each["workload"] == row["workload"]:
            found[each["phase"]] = tuple(int(p) for p in each[f"group_{dimensions}d"].split("|"))
    return Groups(**found)


def check(row: Row) -> None:
    network = NETWORKS[row["network"]]
    equal = [float(row["total_bw_GBps"]) * 1e9 / len(network)] * len(network)
    topologies, prices = zip(*network, strict=True)

    assert step_s(layers(row), groups(row), equal) * 1e9 == pytest.approx(float(row["equal_e2e_ns"]), rel=1e-12)
    assert network_usd(4096, topologies, prices, equal) == pytest.approx(float(row["equal_cost_usd"]), rel=1e-12)


@pytest.mark.parametrize(
    "row", rows(GOLDEN / "libra_equal_bandwidth.csv"), ids=lambda row: "-".join(list(row.values())[:3])
)
def test_step_and_price_are_libra_s(row: Row) -> None:
    check(row)


@pytest.mark.skipif(not REFERENCE.exists(), reason="the shared reference numbers are not here")
def test_every_known_row_is_exact() -> None:
    known = rows(REFERENCE)
    assert len(known) == 48
    for row in known:
        check(row)


def test_communication_is_inversely_proportional_to_bandwidth() -> None:
    communication: dict[tuple[str, str], list[float]] = {}
    for row in rows(GOLDEN / "libra_equal_bandwidth.csv"):
        times_bandwidth = (float(row["equal_e2e_ns"]) - float(row["compute_ns"])) * float(row["total_bw_GBps"])
        communication.setdefault((row["network"], row["workload"]), []).append(times_bandwidth)

    for bytes_per_dimension in communication.values():
        assert bytes_per_dimension == pytest.approx([bytes_per_dimension[0]] * len(bytes_per_dimension), rel=1e-9)


@pytest.mark.parametrize("kind", ["all_reduce", "reduce_scatter", "all_gather", "all_to_all"])
def test_a_dimension_that_is_not_used_carries_nothing(kind: str) -> None:
    skipped = messages_bytes(kind, 64.0, (4, 1, 2))  # type: ignore[arg-type]
    first, second = messages_bytes(kind, 64.0, (4, 2))  # type: ignore[arg-type]
    assert skipped == (first, 0.0, second)


def test_an_all_reduce_sends_a_reduce_scatter_and_an_all_gather() -> None:
    scattered = messages_bytes("reduce_scatter", 64.0, (4, 2))
    gathered = messages_bytes("all_gather", 8.0, (4, 2))
    both = tuple(down + up for down, up in zip(scattered, gathered, strict=True))
    assert messages_bytes("all_reduce", 64.0, (4, 2)) == both


def test_an_all_to_all_does_not_shrink() -> None:
    assert messages_bytes("all_to_all", 64.0, (4, 2)) == (48.0, 32.0)


def test_a_switch_without_a_price_for_nics_is_refused() -> None:
    with pytest.raises(SpecError, match="no price for switches and NICs"):
        network_usd(4, ["switch"], [Price(link=4.0, switch=13.0)], [1e9])
