"""The run layer: files, defaults, and what is refused."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from cosmic.base.errors import SpecError
from cosmic.design import schema
from cosmic.design.run_layer import Run


def test_a_run_is_read_with_units_and_written_back() -> None:
    tree = {"tokens": 15e12, "npu_mtbf": "50000 h", "restart": "10 min", "checkpoint": "in_memory", "spare_npus": 64}
    run = schema.read_value(Run, tree, "run")
    assert (run.npu_mtbf_s, run.restart_s, run.checkpoint, run.spare_npus) == (1.8e8, 600, "in_memory", 64)
    assert schema.read_value(Run, schema.write_value(run, brief=True), "run") == run


def test_every_field_is_a_number_or_a_name() -> None:
    assert all(value is None or isinstance(value, int | float | str) for _, value in schema.leaf_fields(Run()))
    assert len(list(schema.leaf_fields(Run()))) == len(fields(Run))


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("tokens", 0.0, "tokens = 0.0: must be positive"),
        ("npu_mtbf_s", -1.0, "npu_mtbf = -1.0: must be positive"),
        ("checkpoint_bandwidth_bytes_per_s", -1.0, "checkpoint_bandwidth = -1.0: must be positive"),
        ("failure_domain_npus", 0, "failure_domain_npus = 0: must be positive"),
        ("restart_s", -1.0, "restart = -1.0: must not be negative"),
        ("spare_npus", -8, "spare_npus = -8: must not be negative"),
        ("remote_share", 1.5, "remote_share = 1.5: must be from 0 to 1"),
        ("slow_node_share", -0.1, "slow_node_share = -0.1: must be from 0 to 1"),
        ("slow_node_factor", 0.9, "slow_node_factor = 0.9: must be at least 1"),
        ("repair_s", 1e12, "repair = 1000000000000.0: must be from"),
    ],
)
def test_what_no_run_has_is_refused(field: str, value: Any, message: str) -> None:
    with pytest.raises(SpecError) as error:
        Run(**{field: value})
    assert str(error.value).startswith(message)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(SpecError, match=r"run\.recovery"):
        schema.read_value(Run, {"recovery": "elastick"}, "run")
