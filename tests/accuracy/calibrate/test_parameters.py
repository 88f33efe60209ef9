"""Parameters: fields that exist, shares that stay shares."""

from __future__ import annotations

import math

import pytest

import cosmic
from cosmic.accuracy.calibrate.calibration_target import (
    changed_fields,
    list_parameters,
    measurement_noise,
    prior_of,
    value_at,
)
from cosmic.design import schema

POINT = cosmic.load_design("llama3-8b@dgx-h100:16", {"tp": 1, "pp": 1, "cp": 1})


def test_every_parameter_changes_fields_that_designs_have() -> None:
    found = list_parameters(2)
    assert len({each.name for each in found}) == len(found)
    for each in found:
        assert each.fields
        assert 0 < each.spread < 1
        for path in each.fields:
            schema.get_field(POINT, path)
    assert measurement_noise().alike >= 1


def test_a_parameter_multiplies_its_fields_and_a_share_stays_one() -> None:
    by_name = {each.name: each for each in list_parameters(2)}
    host, matrix = by_name["host_launch"], by_name["matrix_rate"]
    assert changed_fields(POINT, [host], [math.log(2)]) == {"compute.host_launch": 2 * POINT.compute.host_launch_s}
    assert changed_fields(POINT, [matrix], [9.0]) == {"compute.gemm_efficiency": 1.0}
    prior = prior_of(POINT, [matrix])
    assert POINT.compute.gemm_efficiency is not None
    assert prior.highest[0] == pytest.approx(min(-math.log(POINT.compute.gemm_efficiency), 3 * matrix.spread))
    assert prior_of(POINT, [matrix], 2.0).spread[0] == 2 * matrix.spread


def test_what_a_system_does_not_have_cannot_move() -> None:
    alone = cosmic.load_design("llama3-8b@dgx-h100:1", {"tp": 1, "pp": 1, "cp": 1})
    link = next(each for each in list_parameters(2) if each.name == "link_rate_1")
    assert value_at(alone, "network.dims.1.latency") is None
    assert changed_fields(alone, [link], [0.1]) == {}
    assert (prior_of(alone, [link]).lowest[0], prior_of(alone, [link]).highest[0]) == (0, 0)
