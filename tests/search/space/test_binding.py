"""Names, types and units in expressions: every mistake is found before a search starts."""

from __future__ import annotations

from typing import Any

import pytest

from cosmic.base.errors import SpecError
from tests.search.space.spaces import space

OPEN = {
    "workload.dp": [1, 2, 4],
    "network.dims.*.bandwidth": ["50 GB/s", "100 GB/s"],
    "network.dims.*.topology": ["ring"],
}


def refusal(constraint: Any) -> str:
    with pytest.raises(SpecError) as error:
        space(OPEN, [constraint])
    assert error.value.where == "constraints.0"
    return error.value.rule


def test_a_short_name_stands_for_the_one_field_that_ends_in_it() -> None:
    assert space(OPEN, ["dp <= 2"]).valid == space(OPEN, ["workload.dp <= 2"]).valid == 2 * 2**4


def test_npus_is_the_size_of_the_base_system() -> None:
    assert space(OPEN, ["dp * 128 == npus"]).valid == 1 * 2**4


def test_fields_that_are_not_searched_have_the_value_of_the_base() -> None:
    assert space(OPEN, ["dp * 24 <= model.heads"]).valid == 3 * 2**4  # 96 heads
    assert space(OPEN, ["dp * 48 <= model.heads"]).valid == 2 * 2**4


def test_an_unknown_name_gets_a_suggestion() -> None:
    assert refusal("wrkload.dp <= 2") == "knows no 'wrkload.dp'; did you mean 'workload.dp'?"


def test_a_name_that_fits_several_fields_must_be_written_in_full() -> None:
    assert "write it in full" in refusal("bandwidth <= 2 GB/s")


def test_an_unknown_function_gets_a_suggestion() -> None:
    assert refusal("prodct(network.dims.*.npus) == npus") == "knows no function 'prodct'; did you mean 'product'?"


def test_nothing_of_python_can_be_called() -> None:
    assert "knows no function" in refusal("__import__('os')")


def test_a_bandwidth_is_not_compared_with_a_bare_number() -> None:
    assert refusal("network.dims.0.bandwidth <= 500") == "'<=' combines byte/s with a plain number"


def test_a_bandwidth_is_not_compared_with_a_size() -> None:
    assert refusal("network.dims.0.bandwidth <= memory.capacity") == "'<=' combines byte/s with byte"


def test_zero_needs_no_unit() -> None:
    assert space(OPEN, ["network.dims.0.bandwidth > 0"]).valid == 3 * 2**4


def test_units_multiply_and_divide() -> None:
    assert space(OPEN, ["memory.capacity / network.dims.0.bandwidth <= 300 ms"]).valid == 3 * 2**3  # 24 GB at 100 GB/s
    assert "byte/s with s" in refusal("memory.bandwidth <= 3 ms")


def test_a_text_that_the_field_cannot_hold_is_a_mistake() -> None:
    assert refusal('network.dims.0.topology != "swich"') == "'swich' never occurs there; did you mean 'switch'?"


def test_a_text_that_is_merely_not_searched_is_none() -> None:
    assert space(OPEN, ['network.dims.0.topology != "switch"']).valid == 3 * 2**4


def test_texts_have_no_order() -> None:
    assert refusal('network.dims.0.topology < "ring"') == "'<' needs a number, not a text"


def test_a_number_is_no_truth_value() -> None:
    assert refusal("dp and 1 == 1") == "'and' needs a truth value, not a plain number"
    assert refusal("dp * 2") == "gives a plain number; a constraint is true or false"


def test_several_values_need_an_aggregate() -> None:
    assert "inside product, sum, min, max, all or any" in refusal("network.dims.*.npus == 4")


def test_stars_of_one_aggregate_move_together() -> None:
    both = space(OPEN, ["all(network.dims.*.bandwidth >= 50 GB/s * collective.chunks / collective.chunks)"])
    assert both.valid == 3 * 2**4
    capped = space(OPEN, ["sum(network.dims.*.bandwidth * network.dims.*.npus) <= 1 TB/s"])  # 4, 4, 4 and 8 NPUs
    assert capped.valid == 3  # all at 50 GB/s: exactly 1 TB/s


def test_a_list_stands_only_after_in() -> None:
    assert refusal("[1, 2]") == "a list can only stand after 'in'"
    assert refusal("dp in 4") == "after 'in' stands a list, such as [1, 2, 4]"
    assert space(OPEN, ["dp in [1, 4]"]).valid == 2 * 2**4


def test_something_that_is_no_text_is_refused() -> None:
    assert refusal(17) == "must be text"


def test_derivations_that_go_in_a_circle_are_shown() -> None:
    with pytest.raises(SpecError) as error:
        space(OPEN, derived={"workload.tp": "cp * 2", "workload.cp": "tp // 2"})
    assert error.value.rule == "depends on itself: workload.tp → workload.cp → workload.tp"


def test_a_derived_field_must_get_what_it_holds() -> None:
    with pytest.raises(SpecError) as error:
        space(OPEN, derived={"memory.capacity": "dp * 2"})
    assert error.value.rule == "gives a plain number; the field holds byte"


def test_a_field_is_chosen_or_derived_but_not_both() -> None:
    with pytest.raises(SpecError, match="either chosen or derived"):
        space(OPEN, derived={"workload.dp": "npus // 4"})
