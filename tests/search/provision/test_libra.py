"""LIBRA's inputs and limits as people write them; malformed ones get one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from cosmic.accuracy.measured_rows import read_rows
from cosmic.base.errors import SpecError
from cosmic.search.provision import libra
from cosmic.search.provision.bandwidth_problem import read_budget, read_limit
from cosmic.search.provision.libra import bytes_of_dims
from cosmic.search.provision.provisioning import provision

PRICES = (1e-6, 2e-6, 3e-6)
NETWORK = "Topology: [Ring, Switch]\nNpusCount: [4, 32]\nCostDimension: [InterChiplet, InterPod]\n"
LAYER = "conv -1 1000 ALLREDUCE 4000000 2000 NONE 0 3000 ALLREDUCE 8000000 10\n"
SHARED = Path(__file__).parents[3].parent / "shared" / "reference" / "network" / "libra.csv"


@pytest.fixture
def network(tmp_path: Path) -> str:
    (tmp_path / "network.yml").write_text(NETWORK)
    return str(tmp_path / "network.yml")


def test_traffic_by_hand() -> None:
    assert bytes_of_dims("REDUCESCATTER", 64.0, (4, 2)) == (48.0, 8.0)
    assert bytes_of_dims("ALLREDUCE", 64.0, (4, 2)) == (96.0, 16.0)
    assert bytes_of_dims("ALLGATHER", 8.0, (4, 2)) == (48.0, 8.0)  # the mirror image: 8 grows to 16, and to 64
    assert bytes_of_dims("ALLTOALL", 64.0, (4, -1, 2)) == (48.0, 0.0, 32.0)
    assert bytes_of_dims("ALLREDUCE", 64.0, (4, 2), (False, True)) == (96.0, 16.0)  # two members gain nothing
    assert bytes_of_dims("ALLREDUCE", 64.0, (1, 4), (False, True)) == (0.0, 64.0)


@pytest.mark.parametrize("header", ["", "HYBRID_TRANSFORMER model_parallel_NPU_group: 4\n2\n"])
def test_workloads_are_read_with_and_without_a_header(tmp_path: Path, header: str) -> None:
    path = tmp_path / "work.txt"
    path.write_text(header + LAYER + LAYER)
    found = libra.read_workload(path)
    assert found.compute_s == pytest.approx({"Forward": 2e-6, "InputGrad": 4e-6, "WeightGrad": 6e-6})
    assert [(each.phase, each.kind, each.size_bytes, each.times) for each in found.collectives] == [
        ("Forward", "ALLREDUCE", 4e6, 2.0),
        ("WeightGrad", "ALLREDUCE", 8e6, 2.0),
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no layers"),
        ("conv -1 1000\n", "12 words"),
        (LAYER.replace("ALLREDUCE", "ALLREDUC"), "did you mean|no collective|known"),
        (LAYER.replace("4000000", "many"), "must be a number"),
        (LAYER.replace("4000000", "-4"), "must be from 0"),
        (LAYER.replace("4000000", "nan"), "must be from 0"),
        ("DATA\n3\n" + LAYER, "1 layers follow"),
    ],
)
def test_malformed_workloads_get_one_sentence(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "work.txt"
    path.write_text(text)
    with pytest.raises(SpecError) as caught:
        libra.read_workload(path)
    assert "\n" not in str(caught.value)
    assert any(each in str(caught.value) for each in words.split("|"))


@pytest.mark.parametrize(
    "text",
    [
        "Topology: [Ring]\nNpusCount: [4, 8]\n",
        "Topology: [Torus]\nNpusCount: [4]\n",
        "Topology: [Ring]\nNpusCount: [1]\n",
        "Topology: Ring\nNpusCount: [4]\n",
        "Topology: [Ring]\nNpusCount: [4]\nBandwidth: [1]\n",
        "Topology: []\nNpusCount: []\n",
    ],
)
def test_malformed_networks_get_one_sentence(tmp_path: Path, text: str) -> None:
    path = tmp_path / "network.yml"
    path.write_text(text)
    with pytest.raises(SpecError):
        provision(str(path), workloads=["GPT_3"], budget="500 GB/s")


def test_communicators_and_prices_are_read(network: str, tmp_path: Path) -> None:
    (tmp_path / "work.txt").write_text(LAYER)
    (tmp_path / "groups.yml").write_text("Forward: [4, -1]\nInputGrad: [4, -1]\nWeightGrad: [-1, 32]\n")
    (tmp_path / "cost.yml").write_text("InterChiplet: {Link: 2}\nInterPod: {Link: 8, Switch: 18, Nic: 24}\n")
    found = provision(
        network,
        workloads=[str(tmp_path / "work.txt")],
        communicators=[str(tmp_path / "groups.yml")],
        cost=str(tmp_path / "cost.yml"),
        budget="100 GB/s",
    )
    # 6 MB in the first dimension, 15.5 MB in the second: the roots of their bytes share the budget.
    first, second = (dim.bandwidth_bytes_per_s for dim in found.dims)
    assert first / second == pytest.approx((6 / 15.5) ** 0.5, rel=1e-6)
    assert found.cost_usd == pytest.approx(128 * (2 * first + 50 * second) / 1e9)
    assert found.dims[1].busiest == "weight-gradient all-reduce"
    for text in ("Forward: [5, -1]\nInputGrad: [4, -1]\nWeightGrad: [-1, 32]\n", "Forward: [4]\n"):
        (tmp_path / "groups.yml").write_text(text)
        with pytest.raises(SpecError):
            provision(
                network,
                workloads=["GPT_3"],
                communicators=[str(tmp_path / "groups.yml")],
                budget="100 GB/s",
            )


def test_overlap_reduction_and_weights(network: str) -> None:
    def time_s(**options: object) -> float:
        return provision(network, workloads=["ResNet_50"], budget="300 GB/s", **options).time_s  # type: ignore[arg-type]

    plain = time_s()
    assert time_s(loop="tp_dp_overlap") < plain
    assert time_s(in_network_reduction=True) < plain
    compute = sum(libra.shipped_workloads()["ResNet_50"].compute_s.values())
    assert time_s(loop="tp_dp_overlap") == pytest.approx(compute, rel=1e-6)  # all of it hides
    both = provision(network, workloads=["ResNet_50=2", "DLRM"], budget="300 GB/s")
    assert both.time_s == pytest.approx(2 * both.loads[0].time_s + both.loads[1].time_s)


def test_whole_ports_are_near_the_optimum_and_never_better(network: str) -> None:
    found = provision(network, workloads=["DLRM"], budget="1000 GB/s", ports="25 GB/s", radix=32)
    assert found.ports is not None
    assert 0 <= found.ports.gap < 0.05
    assert found.ports.bandwidth_bytes_per_s[0] % 50e9 == 0  # a ring has two links
    assert found.ports.bandwidth_bytes_per_s[1] % 25e9 == 0
    assert 1000e9 - 25e9 < sum(found.ports.bandwidth_bytes_per_s) <= 1000e9
    with pytest.raises(SpecError, match="more than a switch has ports"):
        provision(network, workloads=["DLRM"], budget="1000 GB/s", ports="25 GB/s", radix=16)
    with pytest.raises(SpecError, match="no whole numbers"):
        provision(network, workloads=["DLRM"], budget="1000 GB/s", ports="600 GB/s")


def test_budgets_and_limits_are_read() -> None:
    assert read_budget("10 M USD", PRICES).value == 1e7
    assert read_budget("<= 4 Tbps", PRICES).sense == "<="
    (sum_,) = read_limit("sum(network.dims.*.bandwidth) <= 400 GB/s", PRICES)
    assert (sum_.coefficients, sum_.sense, sum_.value) == ((1.0, 1.0, 1.0), "<=", 4e11)
    each = read_limit("network.dims.*.bandwidth >= 1 GB/s", PRICES)
    assert [limit.coefficients for limit in each] == [(1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)]
    (order,) = read_limit("B0 - B1 / 2 = 2 * B2 - 3 GB/s", PRICES)
    assert (order.coefficients, order.sense, order.value) == ((1.0, -0.5, -2.0), "==", -3e9)
    (dollars,) = read_limit("cost <= 5 M USD", PRICES)
    assert (dollars.coefficients, dollars.value) == (PRICES, 5e6)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "B0",
        "B0 >= 3",
        "B9 >= 1 GB/s",
        "B0 * B1 >= 1 GB/s",
        "tp >= 1 GB/s",
        "B0 != 1 GB/s",
        "1 GB/s > 2 GB/s",
        "B0 >= 1 GB",
        "B0 / 0 >= 1 GB/s",
        "B0 >=",
        "min(B0) >= 1 GB/s",
        "B0 >= 'x'",
        "B0 ** 2 <= 1 GB/s",
        "B0 - B0 <= 1 GB/s",
    ],
)
def test_what_is_no_linear_limit_gets_one_sentence(text: str) -> None:
    with pytest.raises(SpecError) as caught:
        read_limit(text, PRICES)
    assert str(caught.value).startswith("--limit = ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "500", "500 GB", "-5 GB/s", "0 GB/s", "B0", "5 s", "1e400 GB/s", "five"])
def test_what_is_no_budget_gets_one_sentence(text: str) -> None:
    with pytest.raises(SpecError) as caught:
        read_budget(text, PRICES)
    assert str(caught.value).startswith("--budget = ")


def test_every_recorded_case_of_libra_is_met() -> None:
    if not SHARED.is_file():
        pytest.skip("there is no shared reference beside this checkout")
    kind, rows = read_rows(SHARED)
    verdicts = kind.compare_rows(rows)
    assert not [verdict.skipped for verdict in verdicts if verdict.skipped]
    assert max(abs(verdict.error or 0.0) for verdict in verdicts) < 1e-5


def test_rows_that_cannot_be_solved_say_why(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(
        "network,topology,workload,total_bw_GBps,objective,gurobi_e2e_ns,gurobi_cost_usd\n"
        "a,Ring(16)_FullyConnected(8)_Switch(32),ResNet_50,500,PerfOpt,1299287.4856399505,\n"
        "b,Torus(16),ResNet_50,500,PerfOpt,1299287,\n"
        "c,Ring(16)_Switch(32),BERT,500,PerfOpt,1299287,\n"
        "d,Ring(16)_Switch(32),ResNet_50,500,PerfPerCostOpt,1299287,\n"
        "e,Ring(16)_Switch(32),ResNet_50,500,Best,1299287,\n"
        "f,Ring(16)_Switch(32),GPT_3,,PerfOpt,1299287,\n"
    )
    kind, rows = read_rows(path)
    first, *others = kind.compare_rows(rows)
    assert abs(first.error or 1.0) < 1e-6
    assert all(each.skipped for each in others)
