"""What is read from execution traces of several schemas, and how operators are paired without numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cosmic.base.errors import SpecError
from cosmic.traces.profiles.execution_traces import check_pair, operators_of_run, parse_side, read_execution_trace
from tests.traces.profiles.making import et_node, kineto_of, operator, write_execution_trace

FLAT = {"id": 9, "name": "aten::mm", "rf_id": 4, "parent": 2, "tid": 1, "inputs": [1], "input_shapes": [[2, 3]]}
FLAT |= {"input_types": ["Tensor(float)"], "outputs": [], "output_shapes": [], "output_types": []}


def test_only_wanted_functions_and_collectives_have_details(tmp_path: Path) -> None:
    nodes = [et_node(4, "aten::mm", 3), et_node(5, "aten::add", 4), et_node(6, "record_param_comms", 5)]
    path = write_execution_trace(tmp_path / "et.json", nodes)
    assert {at: each.name for at, each in read_execution_trace(path, np.array([3])).details.items()} == {
        3: "aten::mm",
        5: "record_param_comms",
    }


def test_flat_nodes_of_the_first_schema_are_read_alike(tmp_path: Path) -> None:
    path = write_execution_trace(tmp_path / "et.json", [FLAT], "1.0.1")
    for wanted in (None, np.array([4])):
        found = read_execution_trace(path, wanted)
        assert parse_side(found.details[4].inputs)["shapes"] == [[2, 3]]
    assert (read_execution_trace(path).parent, read_execution_trace(path).thread) == ([2], [1])


def test_operators_without_numbers_are_paired_by_their_sequence(tmp_path: Path) -> None:
    nodes = [FLAT, FLAT | {"id": 11, "rf_id": 5, "name": "aten::add"}]
    trace = read_execution_trace(write_execution_trace(tmp_path / "et.json", nodes, "1.0.1"))
    kineto = kineto_of(
        tmp_path, [operator(name, 10 * at, 5) for at, name in enumerate(["aten::t", "aten::mm", "aten::add"])]
    )
    paired, notes = operators_of_run(kineto, trace)
    assert paired is trace
    assert not notes
    assert kineto.host.function.tolist() == [-1, 4, 5]
    other = kineto_of(tmp_path, [operator("aten::add", 0, 5), operator("aten::mm", 6, 5)])
    assert operators_of_run(other, trace)[0] is None
    with pytest.raises(SpecError, match=r"another program .* it has 1 of the 2 names"):
        operators_of_run(kineto_of(tmp_path, [operator("aten::mm", 0, 5)]), trace)


def test_traces_of_two_recordings_are_refused(tmp_path: Path) -> None:
    trace = read_execution_trace(
        write_execution_trace(tmp_path / "et.json", [et_node(5, "aten::add", 3)]), np.array([3])
    )
    with pytest.raises(SpecError, match="another recording"):
        check_pair(kineto_of(tmp_path, [operator("aten::mm", 0, 1, **{"Record function id": 3})]), trace, 1)


def test_the_execution_trace_of_another_rank_is_refused_by_its_process(tmp_path: Path) -> None:
    nodes = [et_node(5, "aten::mm", 3)]
    kineto = kineto_of(tmp_path, [operator("aten::mm", 0, 1, **{"Record function id": 3})])
    for process in (100, 101):
        trace = read_execution_trace(write_execution_trace(tmp_path / "et.json", nodes, process=process), np.array([3]))
        if process == 100:
            check_pair(kineto, trace, 1)
        else:
            with pytest.raises(SpecError, match=r"another process \(100\) than et\.json \(101\)"):
                check_pair(kineto, trace, 1)


@pytest.mark.parametrize("parent", [9, 10**30, None])
def test_parents_may_be_anything(tmp_path: Path, parent: int | None) -> None:
    path = write_execution_trace(tmp_path / "et.json", [FLAT | {"parent": parent}], "1.0.1")
    assert len(read_execution_trace(path).id) == 1


def test_other_schemas_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"schema = '9\.0'"):
        read_execution_trace(write_execution_trace(tmp_path / "et.json", [], "9.0"))
