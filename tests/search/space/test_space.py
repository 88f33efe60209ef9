"""The parameter set: sizes, samples, restriction, decoding."""

from __future__ import annotations

import pickle
from itertools import product
from math import comb, prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosmic.base.errors import SpecError
from cosmic.design import schema
from cosmic.search.mapping.design_completion import load_design
from cosmic.search.space.parameter_set import ParameterSet
from cosmic.search.space.space_files import load_space
from tests.search.space.spaces import space

FULL = load_space("cosmic-1024-full-stack")


def test_the_paper_counts_its_space_as_we_do() -> None:
    paper = load_space("cosmic-1024-paper")
    assert paper.raw == comb(13, 3) * 2 * 4**4 * 4 * 2 * 3**4 * 3**4 * 10**4 == 76_859_228_160_000
    assert paper.valid == comb(13, 3) * 2 * 4**4 * 4 * 2 * 10 * (2 * 3**3) * 10**4


@pytest.mark.parametrize(("npus", "networks", "triples"), [(512, 4, 145), (1024, 10, 164), (2048, 16, 183)])
def test_the_full_stack_spaces_have_the_size_that_counting_by_hand_gives(
    npus: int, networks: int, triples: int
) -> None:
    whole = load_space(f"cosmic-{npus}-full-stack")
    powers = [2**exponent for exponent in range(10)]
    fitting = sum(dp * cp * pp <= npus for dp, cp, pp in product(powers, powers, (1, 2, 4)))
    assert networks == sum(prod(sizes) == npus for sizes in product((4, 8, 16), repeat=4))
    assert whole.raw == 600 * 4096 * 3**4 * 3**4 * 10**4
    assert whole.valid == fitting * 2 * 4096 * networks * (2 * 3**3) * 10**4
    if npus == 1024:
        assert fitting == triples


def test_independent_parts_are_found() -> None:
    tied = [len(component.columns) for component in FULL.components if len(component.columns) > 1]
    assert sorted(tied) == [3, 4]  # dp, cp, pp; and the four sizes


def test_every_sample_is_valid_and_the_same_seed_gives_the_same() -> None:
    rows = FULL.sample(5_000, np.random.default_rng(7))
    assert FULL.contains(rows).all()
    assert np.array_equal(rows, FULL.sample(5_000, np.random.default_rng(7)))
    columns = FULL.columns(rows)
    sizes: list[Any] = [columns[f"network.dims.{place}.npus"] for place in range(4)]
    assert np.unique(np.prod(sizes, axis=0)).tolist() == [1024]
    mesh: list[Any] = [columns[f"workload.{axis}"] for axis in ("dp", "tp", "cp", "pp")]
    assert np.unique(np.prod(mesh, axis=0)).tolist() == [1024]
    assert (columns["network.dims.0.topology"] != "switch").all()


def test_blind_sampling_is_valid_as_often_as_counting_says() -> None:
    blind = np.random.default_rng(0).integers(np.array(FULL.sizes), size=(20_000, len(FULL.sizes)))
    share = FULL.valid / FULL.raw
    assert share == pytest.approx(0.045, abs=0.0005)
    assert FULL.contains(blind).mean() == pytest.approx(share, abs=5 * (share / 20_000) ** 0.5)


def test_values_of_a_free_parameter_are_equally_likely() -> None:
    column = [each.name for each in FULL.parameters].index("network.dims.2.bandwidth")
    counts = np.bincount(FULL.sample(50_000, np.random.default_rng(3))[:, column])
    chi_square = ((counts - 5_000) ** 2 / 5_000).sum()
    assert chi_square < 27.9  # exceeded once in a thousand seeds with 9 degrees of freedom


def test_a_restricted_set_is_the_same_set_with_the_rest_frozen() -> None:
    network = FULL.restrict(["network"])
    assert network.stacks == ("network",)
    assert (network.raw, network.valid) == (65_610_000, 10 * 54 * 10**4)
    point = network.point(network.sample(1, np.random.default_rng(1))[0])
    assert (point.workload, point.collective) == (FULL.base.workload, FULL.base.collective)


def test_restriction_multiplies_back_to_the_whole_where_layers_are_independent() -> None:
    assert prod(FULL.restrict([stack]).valid for stack in FULL.stacks) == FULL.valid


def test_an_unknown_layer_is_refused() -> None:
    with pytest.raises(SpecError) as error:
        FULL.restrict(["netwrk"])
    assert error.value.rule == "no such layer with parameters; did you mean 'network'?"


def test_a_point_is_the_base_with_the_choices_put_in() -> None:
    row = FULL.sample(1, np.random.default_rng(5))[0]
    point, changes = FULL.point(row), FULL.changes(row)
    for path, value in changes.items():
        assert schema.get_field(point, path) == value
    assert schema.assign_fields(point, {path: schema.get_field(FULL.base, path) for path in changes}) == FULL.base


def test_columns_and_points_agree() -> None:
    rows = FULL.sample(20, np.random.default_rng(6))
    columns = FULL.columns(rows)
    for place, row in enumerate(rows):
        assert {path: column[place] for path, column in columns.items()} == FULL.changes(row)


def test_a_point_can_be_written_down_and_loaded_again() -> None:
    row = FULL.sample(1, np.random.default_rng(8))[0]
    assert load_design("gpt3-175b@cosmic-1024", FULL.labels(row), fix=["workload"]) == FULL.point(row)


def test_enumeration_yields_every_valid_point_once() -> None:
    small = space({"workload.dp": [1, 2, 4], "workload.pp": [1, 2, 4], "collective.chunks": [2, 4]}, ["dp * pp == 4"])
    rows = np.array(list(small.enumerate()))
    assert len(rows) == small.valid == 3 * 2
    assert len(np.unique(rows, axis=0)) == len(rows)
    assert small.contains(rows).all()


def test_rows_outside_the_set_are_not_in_it() -> None:
    small = space({"workload.dp": [1, 2]})
    assert small.contains(np.array([[0], [1], [2], [-1]])).tolist() == [True, True, False, False]
    assert small.repair(np.array([[7], [-3]])).tolist() == [[1], [0]]


def test_an_empty_set_names_the_constraint_and_the_parameters() -> None:
    with pytest.raises(SpecError) as error:
        space({"workload.dp": [2, 4], "workload.pp": [2, 4]}, ["dp * pp == 7"])
    assert str(error.value) == "constraints.0 = 'dp * pp == 7': no values of workload.dp, workload.pp satisfy this"


def test_a_constraint_that_can_never_hold_is_named() -> None:
    with pytest.raises(SpecError) as error:
        space({"workload.dp": [2, 4]}, ["npus == 7"])
    assert str(error.value) == "constraints.0 = 'npus == 7': can never hold"


def test_a_derived_field_that_is_no_whole_number_says_so() -> None:
    with pytest.raises(SpecError) as error:
        space({"workload.dp": [1, 2]}, derived={"workload.tp": "dp / 4"})
    assert error.value.rule == "must be a whole number (dp / 4), where workload.dp = 1"


def test_a_derived_field_may_follow_each_entry_of_a_list() -> None:
    fitting = space(
        {"network.dims.*.topology": ["ring", "fully_connected"]},
        derived={"collective.algorithms.*": '"ring" if network.dims.*.topology == "ring" else "direct"'},
    )
    for row in fitting.enumerate():
        point = fitting.point(row)
        expected = ["ring" if dim.topology == "ring" else "direct" for dim in point.network.dims]
        assert list(point.collective.algorithms) == expected


def test_a_set_without_parameters_is_its_base() -> None:
    nothing = space({})
    assert (nothing.raw, nothing.valid) == (1, 1)
    assert nothing.point(nothing.sample(1, np.random.default_rng(0))[0]) == nothing.base


sizes = st.lists(st.sampled_from([1, 2, 3, 4, 6, 8]), min_size=1, max_size=4, unique=True)
texts = st.sampled_from(
    ["dp * cp == 8", "dp <= pp", "cp + pp != chunks", "dp * pp <= npus", "chunks in [2, 4] or dp == 1"]
)


@given(sizes, sizes, sizes, sizes, st.lists(texts, max_size=3, unique=True))
@settings(max_examples=40, deadline=None)
def test_counting_agrees_with_trying_every_combination(
    dp: list[int], cp: list[int], pp: list[int], chunks: list[int], constraints: list[str]
) -> None:
    domains = {"workload.dp": dp, "workload.cp": cp, "workload.pp": pp, "collective.chunks": chunks}

    def holds(text: str, values: tuple[int, ...]) -> bool:
        names = dict(zip(("dp", "cp", "pp", "chunks"), values, strict=True))
        return bool(eval(text, {"__builtins__": {}}, {"npus": 512, **names}))

    combinations = list(product(*(sorted(values) for values in domains.values())))
    valid = [values for values in combinations if all(holds(text, values) for text in constraints)]
    if not valid:
        with pytest.raises(SpecError, match="satisfy this"):
            space(domains, constraints)
        return
    found = space(domains, constraints)
    assert (found.raw, found.valid) == (len(combinations), len(valid))
    drawn = found.columns(found.sample(30, np.random.default_rng(0)))
    assert set(zip(*(drawn[path].tolist() for path in domains), strict=True)) <= set(valid)


def test_a_design_is_found_among_the_points() -> None:
    space = load_space("cosmic-512-full-stack")
    rows = space.sample(20, np.random.default_rng(4))
    for row in rows:
        found = space.row_of(space.point(row))
        assert found is not None
        assert np.array_equal(found, row)
    assert load_space("cosmic-1024-full-stack").row_of(load_space("cosmic-1024-full-stack").base) is None  # 375 GB/s
    assert space.row_of(load_space("cosmic-1024-full-stack").base) is None


@pytest.mark.long
def test_keys_tell_points_apart_however_many_there_are() -> None:
    space = load_space("cosmic-512-full-stack")
    rows = space.sample(200, np.random.default_rng(5))
    distinct = len(np.unique(rows, axis=0))
    assert len(set(space.keys(rows))) == distinct
    huge = load_space(
        {
            "base": "gpt3-175b@cosmic-1024",
            "parameters": {
                "network.dims.*.bandwidth": {"from": "1 GB/s", "to": "4096 GB/s", "step": "1 GB/s"},
                "network.dims.*.latency": {"from": "1 ns", "to": "16 ns", "step": "1 ns"},
            },
        }
    )
    assert huge.raw >= 2**62
    some = huge.sample(50, np.random.default_rng(6))
    assert len(set(huge.keys(some))) == 50
    assert huge.keys(some) == huge.keys(some.copy())


def test_a_set_that_came_through_shared_memory_learns_its_derived_fields() -> None:
    """Arrays that another process shares cannot be written: tables are copied."""
    space = load_space("cosmic-512-full-stack")
    rows = space.sample(50, np.random.default_rng(0))
    space.columns(rows[:1])
    shared: list[pickle.PickleBuffer] = []
    content = pickle.dumps(space, protocol=5, buffer_callback=shared.append)
    again: ParameterSet = pickle.loads(content, buffers=[bytes(each) for each in shared])
    found, wanted = again.columns(rows), space.columns(rows)
    assert all(found[path].tolist() == wanted[path].tolist() for path in wanted)


def test_compute_and_memory_open_multiply_the_designs_by_their_values() -> None:
    stack, whole = load_space("cosmic-1024-full-stack"), load_space("cosmic-1024-compute-memory")
    mappings, collectives = 164 * 2, 2 * 4 * 2 * 4**4
    networks = 10 * 2 * 3**3 * 10**4  # sizes with the product 1,024; no switch inside; bandwidths
    assert stack.valid == mappings * collectives * networks
    assert whole.valid == stack.valid * 4 * 3 * 4 == 348_232_089_600_000
    assert whole.stacks == ("workload", "collective", "network", "compute", "memory")
