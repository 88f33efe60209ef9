"""Systems: each loads with its source, and scales as its network can."""

from __future__ import annotations

from math import prod

import pytest

from cosmic.base.errors import SpecError
from cosmic.design import catalog_entries
from cosmic.design.systems import read_system
from cosmic.search.mapping.design_completion import load_design
from tests.batches import check_all

every_system = check_all("name", catalog_entries.entry_names("systems"), tests=2)


def sizes(name: str) -> list[int]:
    """Return the NPUs in each dimension of a system."""
    return [dim["npus"] for dim in read_system(name)["network"]["dims"]]


@every_system
def test_a_system_says_what_it_is_and_where_its_numbers_come_from(name: str) -> None:
    entry = catalog_entries.read_entry("systems", name)
    assert entry["source"].strip()
    assert entry["title"].strip()
    known = {"source", "title", "notes", "aliases", "accelerator", "node", "npus", "network", "collective", "workload"}
    known |= {"tiers", "tiers_source"}
    assert set(entry) <= known


@pytest.mark.long
@every_system
def test_a_system_makes_a_design_of_its_size(name: str) -> None:
    point = load_design(f"gpt3-13b@{name}")
    assert point.network.npus == read_system(name)["npus"] == catalog_entries.read_entry("systems", name)["npus"]
    assert point.compute.accelerator == catalog_entries.read_entry("systems", name)["accelerator"]


LIKE_NO_ACCELERATOR = ("cosmic-", "trn2-ultra")
"""Systems with links that the entry of their accelerator does not have."""


@pytest.mark.long
@check_all(
    "name", [name for name in catalog_entries.entry_names("systems") if not name.startswith(LIKE_NO_ACCELERATOR)]
)
def test_scale_up_bandwidth_is_that_of_the_accelerator(name: str) -> None:
    fabric = catalog_entries.read_entry("accelerators", read_system(name)["accelerator"])["fabric"]
    dims = load_design(f"gpt3-13b@{name}").network.dims
    links = fabric["scale_up"].removesuffix(" GB/s")
    torus = [dim.bandwidth_bytes_per_s for dim in dims if dim.topology == "ring"]
    assert sum(torus or [dims[0].bandwidth_bytes_per_s]) == float(links) * 1e9


@pytest.mark.parametrize(
    ("name", "dims"),
    [
        ("dgx-h100", [8, 128]),
        ("dgx-h100:512", [8, 64]),
        ("dgx-h100:16", [8, 2]),
        ("dgx-h100:8", [8]),
        ("dgx-h100:4", [4]),
        ("dgx-h100:1", []),
        ("gb200-nvl72:72", [72]),
        ("gb200-nvl72:144", [72, 2]),
        ("gb200-nvl72:36", [36]),
        ("gb200-nvl72:256", [64, 4]),
        ("gb200-nvl72:108", [54, 2]),
        ("gb200-nvl72:64", [64]),
        ("gb300-nvl72:8", [8]),
        ("gb300-nvl72:512", [64, 8]),
        ("tpu-v4", [8, 8, 8]),
        ("tpu-v4:64", [4, 4, 4]),
        ("tpu-v4:128", [4, 4, 8]),
        ("tpu-v4:4096", [16, 16, 16]),
        ("tpu-v4:8", [2, 2, 2]),
        ("tpu-v4:7", [7]),
        ("tpu-v5p:8960", [16, 20, 28]),
        ("tpu-v5p:2x64", [4, 4, 4, 2]),
        ("tpu-v5e:256", [16, 16]),
        ("tpu-v6e:4x256", [16, 16, 4]),
        ("trillium:64", [8, 8]),
        ("trn1", [4, 4, 64]),
        ("trn1:8", [2, 4]),
        ("trn1:4", [2, 2]),
        ("trn2-ultra:64", [4, 4, 4]),
        ("gaudi2:64", [8, 8]),
        ("cosmic-1024:1024", [4, 8, 4, 8]),
        ("cosmic-512", [4, 4, 4, 8]),
        ("cosmic-2048", [8, 16, 4, 4]),
    ],
)
def test_dimensions_grow_and_shrink_with_the_number_of_npus(name: str, dims: list[int]) -> None:
    assert sizes(name) == dims
    assert read_system(name)["npus"] == prod(dims)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("dgx-h100:12", "system = 'dgx-h100:12': must be a multiple or a divisor of 8 NPUs, its innermost group"),
        ("dgx-h100:3", "system = 'dgx-h100:3': must be a multiple or a divisor of 8 NPUs, its innermost group"),
        ("cosmic-1024:512", "system = 'cosmic-1024:512': has a fixed size of 1024 NPUs"),
        ("dgx-h100:0", "system = 'dgx-h100:0': what follows the colon must be a number of NPUs"),
        ("dgx-h100:-8", "system = 'dgx-h100:-8': what follows the colon must be a number of NPUs"),
        ("dgx-h100:8.0", "system = 'dgx-h100:8.0': what follows the colon must be a number of NPUs"),
        ("dgx-h100:٨", "system = 'dgx-h100:٨': what follows the colon must be a number of NPUs"),
        ("dgx-h100:9999999999", "system = 'dgx-h100:9999999999': what follows the colon must be a number of NPUs"),
        ("dgx-h10", "system = 'dgx-h10': no such system; did you mean 'dgx-h100'?"),
        ("", "system = '': no such system; there are "),
    ],
)
def test_a_size_that_a_system_cannot_have_is_refused(name: str, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        read_system(name)
    assert str(caught.value).startswith(message)


def test_one_npu_has_no_network() -> None:
    point = load_design("gpt3-125m@dgx-h100:1")
    assert (point.network.dims, point.network.npus, point.collective.algorithms) == ((), 1, ())


def test_scaling_leaves_the_catalog_as_it_is() -> None:
    read_system("dgx-h100:16")
    assert [dim["npus"] for dim in catalog_entries.read_entry("systems", "dgx-h100")["network"]["dims"]] == [8, "rest"]


def test_published_systems_keep_the_published_mapping() -> None:
    workload = load_design("gpt3-175b@cosmic-1024").workload
    assert (workload.dp, workload.tp, workload.cp, workload.pp) == (8, 4, 8, 4)
    assert (workload.weight_sharding, workload.global_batch, workload.sequence) == ("zero3", 2048, 2048)


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("h100", "dgx-h100"),
        ("H200", "dgx-h200"),
        ("b200", "dgx-b200"),
        ("b300", "dgx-b300"),
        ("a100", "dgx-a100"),
        ("gb200", "gb200-nvl72"),
        ("GB300", "gb300-nvl72"),
        ("MI300X", "mi300x"),
        ("DGX H100", "dgx-h100"),
        ("hgx-h100", "dgx-h100"),
    ],
)
def test_a_system_is_known_by_its_accelerator(said: str, name: str) -> None:
    assert catalog_entries.resolve_name("systems", said) == name
    assert load_design(f"llama3-8b@{said}:8") == load_design(f"llama3-8b@{name}:8")


def test_no_two_systems_are_called_alike() -> None:
    called = [
        catalog_entries._normalize_name("systems", each)
        for name in catalog_entries.entry_names("systems")
        for each in {name, *catalog_entries.read_entry("systems", name).get("aliases", [])}
    ]
    assert len(called) == len(set(called))


@pytest.mark.parametrize(
    ("npus", "used", "below", "above"),
    [(100_000, 50, 99_936, 100_008), (100, 50, 72, 144), (73, 1, 72, 144), (106, 53, 72, 144)],
)
def test_a_size_that_leaves_much_of_each_rack_idle_is_refused(npus: int, used: int, below: int, above: int) -> None:
    # racks of 72: 99,936 are 1,388 of them
    rule = f"would use {used} of the 72 NPUs of each rack: take whole ones, {below} or {above} NPUs"
    with pytest.raises(SpecError, match=rule):
        read_system(f"gb200-nvl72:{npus}")
