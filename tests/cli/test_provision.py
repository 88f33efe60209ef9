"""`cosmic network provision`: what it prints, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.commands import output, run

NETWORK = """\
Topology: [Ring, FullyConnected, Ring, Switch]
NpusCount: [4, 8, 4, 32]
CostDimension: [InterChiplet, InterPackage, InterNode, InterPod]
"""


@pytest.fixture
def network(tmp_path: Path) -> str:
    (tmp_path / "4d.yml").write_text(NETWORK)
    return str(tmp_path / "4d.yml")


def test_libra_s_example_is_solved(network: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("network", "provision", network, "--workload", "GPT_3", "--budget", "500 GB/s")
    out = output(capsys, *words)
    assert out.startswith("338.4 / 84.61 / 58.16 / 18.78 GB/s: 1.073× as fast as equal bandwidth")
    assert "dimensions 0, 1 bind forward all-reduce\n" in out
    assert "500 GB/s: another GB/s saves 75.9 us\n" in out
    data = json.loads(output(capsys, *words, "--json"))
    assert data["time_s"] == pytest.approx(0.72241178, rel=1e-6)
    assert [round(rate / 1e9, 1) for rate in data["bandwidth_bytes_per_s"]] == [338.4, 84.6, 58.2, 18.8]
    assert data["duality_gap"] < 1e-9
    assert data["shadow_prices"][0]["worth_per_unit"] == pytest.approx(75.9e-15, rel=1e-2)


def test_a_design_is_provisioned_and_a_command_evaluates_it(capsys: pytest.CaptureFixture[str]) -> None:
    out = output(
        capsys, "network", "provision", "llama3-70b@dgx-h100:512", "--budget", "600 GB/s", "--ports", "25 GB/s"
    )
    assert "as fast as the present bandwidth" in out
    assert "in whole ports of 25 GB/s: " in out
    assert "cosmic evaluate llama3-70b@dgx-h100:512 --set 'network.dims.0.bandwidth=" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--budget", "500 GB/s"), "--workload"),
        (("--workload", "GPT_3"), "--budget"),
        (("--workload", "GPT_4", "--budget", "500 GB/s"), "GPT_4"),
        (("--workload", "none.txt", "--budget", "500 GB/s"), "none.txt"),
        (("--workload", "GPT_3", "--budget", "500 GB/s", "--limit", "B0 >= 900 GB/s"), "cannot be met"),
        (("--workload", "GPT_3", "--budget", "500 GB/s", "--loop", "best"), "--loop"),
        (("--workload", "GPT_3", "--budget", "500 GB/s", "--set", "tp=2"), "--set"),
        (
            ("--workload", "GPT_3", "--budget", "500 GB/s", "--communicator", "a", "--communicator", "b"),
            "--communicator",
        ),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    network: str, words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = run(capsys, "network", "provision", network, *words)
    assert (status, out) == (2, "")
    assert err.count("\n") == 1
    assert said in err


def test_of_a_parameter_set_the_base_is_provisioned(capsys: pytest.CaptureFixture[str]) -> None:
    out = output(capsys, "network", "provision", "cosmic-1024-paper", "--budget", "500 GB/s")
    assert "the base design of cosmic-1024-paper" in out
    status, _, err = run(capsys, "network", "provision", "cosmic-1024-paper", "--set", "tp=4")
    assert status == 2
    assert "not with a parameter set" in err
