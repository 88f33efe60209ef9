"""Accelerators by many names, and the systems that they are in."""

from __future__ import annotations

import pytest

from cosmic.accuracy.rows.training_software import accelerator_year
from cosmic.base.errors import SpecError
from cosmic.design.measured_hardware import POWER_EXPONENT, build_machine, find_accelerator, find_system_with


@pytest.mark.parametrize(
    ("name", "like"),
    [
        ("A100", "a100-sxm-80gb"),
        ("A100 40GB", "a100-sxm-40gb"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm-80gb"),
        ("A100 PCIe", "a100-pcie-80gb"),
        ("A800", "a100-sxm-80gb"),
        ("H100-SXM", "h100-sxm-80gb"),
        ("DGX H100", "h100-sxm-80gb"),
        ("H100 PCIe 80GB", "h100-pcie-80gb"),
        ("H100-NVL", "h100-sxm-80gb"),
        ("H800", "h800-sxm-80gb"),
        ("V100", "v100-sxm2-32gb"),
        ("B200", "b200-sxm-180gb"),
        ("GB200 NVL72", "gb200"),
        ("MI300X", "mi300x"),
        ("AMD Instinct MI350X", "mi355x"),
        ("TPU v4", "tpu-v4"),
        ("TPUv5p", "tpu-v5p"),
        ("v5p-128", "tpu-v5p"),
        ("v6e", "tpu-v6e"),
        ("Trillium", "tpu-v6e"),
        ("Gaudi 2", "gaudi2"),
        ("Intel Gaudi3", "gaudi3"),
        ("trn1", "trainium1"),
        ("AWS Trainium2", "trainium2"),
    ],
)
def test_a_name_means_one_of_the_catalog(name: str, like: str) -> None:
    assert find_accelerator(name).like == like


@pytest.mark.parametrize("name", ["", "abacus", "H20", "A10", "TPU", "1000"])
def test_other_names_are_unknown(name: str) -> None:
    with pytest.raises(SpecError, match="no such accelerator"):
        find_accelerator(name)


@pytest.mark.parametrize(("name", "watts"), [("H100 500W", 500), ("MI300X-600W", 600), ("MI350X", 1000)])
def test_a_power_limit_slows_by_its_root_whatever_the_accelerator(name: str, watts: float) -> None:
    usual, held = build_machine(find_accelerator(name).like, 1).compute, build_machine(name, 1).compute
    assert usual.power_w is not None
    assert held.power_w == watts
    slower = (watts / usual.power_w) ** POWER_EXPONENT
    assert held.bf16_flop_per_s == pytest.approx(usual.bf16_flop_per_s * slower)
    assert build_machine(name, 1).memory == build_machine(find_accelerator(name).like, 1).memory


def test_power_out_of_range_is_refused() -> None:
    with pytest.raises(SpecError, match="power is out of range"):
        find_accelerator("H100 9999W")


def test_memory_in_a_name_counts_where_it_is_other_than_the_entry_s() -> None:
    assert build_machine("A100 (64 GB)", 1).memory.capacity_bytes == 64 * 2**30
    assert build_machine("H200-144GB", 1).memory.capacity_bytes == 141 * 2**30  # rounded
    stacks = build_machine("H100-96GB-HBM2e", 1).memory
    assert stacks.bandwidth_bytes_per_s == pytest.approx(6 * 400e9)
    assert find_accelerator("H100-80GB").why == ""


def test_every_accelerator_has_a_network() -> None:
    assert find_system_with("a100-sxm-80gb") == "dgx-a100"
    assert [dim.npus for dim in build_machine("TPU v5p", 64).network.dims] == [4, 4, 4]
    assert [dim.topology for dim in build_machine("TPU v5e", 64).network.dims] == ["ring", "ring"]
    pcie = build_machine("A100 PCIe", 16).network.dims
    assert [dim.npus for dim in pcie] == [8, 2]
    assert pcie[0].bandwidth_bytes_per_s == 32e9


def test_an_export_version_has_slower_links_in_its_node() -> None:
    assert build_machine("A800", 8).network.dims[0].bandwidth_bytes_per_s == 200e9
    assert build_machine("A100", 8).network.dims[0].bandwidth_bytes_per_s == 300e9


def test_the_rate_between_nodes_is_said_where_it_is_assumed() -> None:
    assert any("400 Gbps assumed, as in dgx-h100" in note for note in build_machine("H100", 16).assumed)
    assert build_machine("H100", 16, gbps=100).assumed == ()
    assert build_machine("H100", 8).assumed == build_machine("TPU v5p", 64).assumed == ()


def test_years_are_the_entry_s() -> None:
    assert (accelerator_year("a100-sxm-80gb"), accelerator_year("cosmic-10tf")) == (2020, 2022)
