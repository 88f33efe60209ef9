"""Parameters: what a file may say of what may vary."""

from __future__ import annotations

from typing import Any

import pytest

from cosmic.base.errors import SpecError
from cosmic.search.space.parameters import Parameter
from tests.search.space.spaces import space


def parameters(given: dict[str, Any]) -> tuple[Parameter, ...]:
    return space(given).parameters


def refusal(given: Any) -> str:
    with pytest.raises(SpecError) as error:
        space(given)
    return str(error.value)


def test_a_list_gives_its_values() -> None:
    (parameter,) = parameters({"workload.pp": [4, 1, 2]})
    assert parameter.labels == (1, 2, 4)  # numbers in order, so that neighbours are neighbours
    assert parameter.ordered
    assert parameter.stack == "workload"


def test_names_keep_their_order() -> None:
    (parameter,) = parameters({"collective.scheduling": ["lifo", "fifo"]})
    assert parameter.labels == ("lifo", "fifo")
    assert not parameter.ordered


def test_powers_of_two_lie_between_their_bounds() -> None:
    (parameter,) = parameters({"workload.dp": {"powers_of_two": [3, 20]}})
    assert parameter.labels == (4, 8, 16)


def test_a_range_has_both_ends_and_units() -> None:
    (parameter,) = parameters({"memory.bandwidth": {"from": "50 GB/s", "to": "0.2 TB/s", "step": "50 GB/s"}})
    assert parameter.labels == ("50 GB/s", "100 GB/s", "150 GB/s", "200 GB/s")
    assert [value for (value,) in parameter.values] == [50e9, 100e9, 150e9, 200e9]


def test_a_range_of_decimals_does_not_drift() -> None:
    (parameter,) = parameters({"network.dims.0.oversubscription": {"from": 1, "to": 2, "step": 0.1}})
    assert parameter.labels == (1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8, 1.9, 2.0)


def test_a_star_stands_for_each_entry_by_itself() -> None:
    found = parameters({"collective.algorithms.*": ["ring", "direct"]})
    assert [each.name for each in found] == [f"collective.algorithms.{place}" for place in range(4)]


def test_a_shared_star_is_one_choice_for_all_entries() -> None:
    (parameter,) = parameters({"network.dims.*.bandwidth": {"values": ["50 GB/s", "100 GB/s"], "shared": True}})
    assert parameter.name == "network.dims.*.bandwidth"
    assert parameter.paths == tuple(f"network.dims.{place}.bandwidth" for place in range(4))
    assert parameter.values == ((50e9,) * 4, (100e9,) * 4)


def test_several_fields_can_be_chosen_together() -> None:
    (parameter,) = parameters({"workload.{dp,tp}": [[1, 8], [2, 4]]})
    assert parameter.paths == ("workload.dp", "workload.tp")
    assert parameter.labels == ([1, 8], [2, 4])


def test_a_split_is_every_way_to_multiply_to_a_number() -> None:
    (binary,) = parameters({"workload.{dp,cp,pp,tp}": {"split": 1024, "powers_of_two": True}})
    assert len(binary.values) == 286  # C(13, 3)
    (other,) = parameters({"workload.{dp,tp}": {"split": 12}})
    assert other.labels == ([1, 12], [2, 6], [3, 4], [4, 3], [6, 2], [12, 1])
    (system,) = parameters({"workload.{dp,tp}": {"split": "npus"}})
    assert len(system.values) == 10  # 512 = 2 ** 9


def test_a_list_may_be_a_value() -> None:
    (parameter,) = parameters({"workload.placement": [["tp", "cp", "dp", "pp"], ["dp", "tp", "cp", "pp"]]})
    assert parameter.values[1] == (("dp", "tp", "cp", "pp"),)


def test_an_accelerator_brings_its_compute_and_memory() -> None:
    chosen = space({"compute.accelerator": ["h100-sxm-80gb", "mi300x"]})
    first, second = (chosen.point(row) for row in chosen.enumerate())
    assert (first.compute.bf16_flop_per_s, second.compute.bf16_flop_per_s) == (989.4e12, 1307.4e12)
    assert (first.memory.capacity_bytes, second.memory.capacity_bytes) == (80 * 2**30, 192 * 2**30)


def test_a_field_with_a_parameter_of_its_own_is_not_the_accelerators() -> None:
    chosen = space({"memory.capacity": ["10 GiB"], "compute.accelerator": ["h100-sxm-80gb"]})
    (row,) = chosen.enumerate()
    assert chosen.point(row).memory.capacity_bytes == 10 * 2**30
    assert chosen.point(row).memory.bandwidth_bytes_per_s == 3.35e12


def test_constraints_may_speak_of_what_an_accelerator_brings() -> None:
    assert space({"compute.accelerator": ["h100-sxm-80gb", "mi300x"]}, ["memory.capacity >= 100 GiB"]).valid == 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"workload.dq": [1]}, "parameters.workload.dq = 'workload.dq': no such field; did you mean 'workload.dp'?"),
        ({"wrkload.dp": [1]}, "parameters.wrkload.dp = [1]: no such layer; did you mean 'workload'?"),
        ({"workload.dp": []}, "parameters.workload.dp = []: has no values"),
        ({"workload.dp": [2, 4, 2]}, "parameters.workload.dp = [2, 4, 2]: has 2 twice"),
        ({"workload.dp": ["2"]}, "parameters.workload.dp.0 = '2': must be a whole number"),
        ({"workload.dp": [0]}, "parameters.workload.dp = 0: must be at least 1"),
        (
            {"workload.dp": 4},
            "parameters.workload.dp = 4: must be a list of values, {from, to, step} or {powers_of_two}",
        ),
        ({"workload.dp": {"form": 1}}, "parameters.workload.dp.form = 1: no such key; did you mean 'from'?"),
        ({"workload.dp": {"from": 1, "to": 4}}, "give values, or powers_of_two, or from, to and step"),
        ({"workload.dp": {"from": 4, "to": 1, "step": 1}}, "must go upwards, by a positive step"),
        ({"workload.dp": {"from": 1, "to": 10**9, "step": 1}}, "has more than 20,000 values"),
        ({"workload.dp": {"powers_of_two": [0, 4]}}, "must go from at least 1 upwards"),
        (
            {"network.dims.*.bandwidth": [50]},
            "parameters.network.dims.*.bandwidth.0 = 50: write a number with its unit",
        ),
        ({"network.dims.*.bandwidth": ["5 GB"]}, "is byte; wanted byte/s"),
        ({"network.dims.*.topology": ["rign"]}, "= 'rign': no such topology; did you mean 'ring'?"),
        ({"workload.*": [1]}, "is no list"),
        ({"workload.dp": [1], "workload.{dp,tp}": [[1, 2]]}, "sets workload.dp, which parameters.workload.dp sets too"),
        ({"workload.{dp,tp}": [[1, 2, 3]]}, "must be a list of 2 values: dp, tp"),
        ({"workload.{dp,dp}": [[1, 2]]}, "must name two or more different fields"),
        ({"compute.accelerator": ["h100"]}, "= 'h100': no such accelerator"),
        ({5: [1]}, "parameters.5 = [1]: is no path"),
        ([1, 2], "parameters = [1, 2]: must map paths to their values"),
    ],
)
def test_a_mistake_is_said_with_its_place(given: Any, message: str) -> None:
    assert message in refusal(given)
