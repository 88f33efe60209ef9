"""Boundary rows of pictures that are split, and tokens that change sides, as XLA partitions them."""

from __future__ import annotations

from typing import Any

import pytest

from cosmic.workload.operator_graph import Graph
from cosmic.workload.sharding.autodiff import differentiate
from cosmic.workload.sharding.graph_partition import MODES, Mode, partition
from cosmic.workload.sharding.propagation import propagate
from cosmic.workload.sharding.tensor_sharding import annotate
from cosmic.workload.user_programs.program_yaml import read_program


def picture(stride: int = 1, window: int = 3) -> dict[str, Any]:
    made = ["batch", "height", "width", "filters"] if stride == 1 else ["batch", "low", "narrow", "filters"]
    return {
        "dims": {
            "batch": 8,
            "height": 64,
            "width": 64,
            "low": 64 // stride,
            "narrow": 64 // stride,
            "channels": 16,
            "filters": 32,
            "rows": window,
            "columns": window,
        },
        "inputs": {"picture": ["batch", "height", "width", "channels"]},
        "weights": {"w": ["rows", "columns", "channels", "filters"]},
        "operators": [
            {"name": "x", "relu": "picture"},
            {"name": "y", "convolution": ["x", "w"], "to": made, "strides": stride, "padding": window // 2},
        ],
    }


def rows(graph: Graph, sizes: dict[str, int], mode: Mode = "as_written") -> list[tuple[str, str, float]]:
    shardings = propagate(graph, {"picture": annotate({"height": "x"})}, sizes=sizes)
    found = partition(graph, shardings, sizes=sizes, mode=mode).collectives
    return [(each.phase, each.kind, float(each.elements(sizes))) for each in found]


@pytest.mark.parametrize("mode", MODES)
def test_a_convolution_split_by_rows_exchanges_one_row_with_each_neighbour(mode: Mode) -> None:
    program = read_program(picture())
    sizes = {**program.sizes, "x": 8}
    row = 8 * 64 * 16
    assert rows(program.graph, sizes, mode) == [("forward", "collective_permute", row)] * 2


def test_a_stride_of_two_leaves_only_the_rows_before() -> None:
    program = read_program(picture(stride=2))
    assert len(rows(program.graph, {**program.sizes, "x": 8})) == 1


def test_a_window_of_one_row_exchanges_nothing() -> None:
    program = read_program(picture(window=1))
    assert rows(program.graph, {**program.sizes, "x": 8}) == []


def test_a_window_larger_than_a_shard_reaches_the_shards_beyond() -> None:
    program = read_program(picture(window=7))
    row = 8 * 64 * 16
    assert (
        rows(program.graph, {**program.sizes, "x": 32})[0][2] == 3 * row
    )  # 2 rows of the next device, 1 of that behind it


def test_gradients_exchange_rows_too_and_those_of_weights_are_summed() -> None:
    program = read_program(picture())
    graph = Graph((*program.graph.operators, *differentiate(program.graph, ["y"]).operators))
    backward = [each[1:] for each in rows(graph, {**program.sizes, "x": 8}) if each[0] == "backward"]
    filtered, read = 8 * 64 * 32, 8 * 64 * 16
    permute = "collective_permute"
    assert sorted(backward) == sorted(
        [(permute, filtered)] * 2 + [(permute, read)] * 2 + [("all_reduce", 3 * 3 * 16 * 32)]
    )


@pytest.mark.parametrize("mode", MODES)
def test_gshards_experts_are_reached_by_exactly_two_all_to_alls(mode: Mode) -> None:
    """64 groups, 128 experts, 16 slots of 2,048 elements on a mesh of 8 by 8: 8.4 MB in bf16 for each device."""
    tree = {
        "dims": {"g": 64, "s": 1024, "e": 128, "c": 16, "m": 2048, "f": 8192},
        "inputs": {"x": ["g", "s", "m"], "mask": ["g", "s", "e", "c"]},
        "weights": {"w1": ["e", "m", "f"], "w2": ["e", "f", "m"]},
        "operators": [
            {"name": "sent", "einsum": ["mask", "x"], "formula": "gsec,gsm->gecm"},
            {"name": "up", "einsum": ["sent", "w1"], "formula": "gecm,emf->gecf"},
            {"name": "down", "einsum": ["up", "w2"], "formula": "gecf,efm->gecm"},
            {"name": "back", "einsum": ["mask", "down"], "formula": "gsec,gecm->gsm"},
        ],
    }
    tree["operators"].insert(1, {"name": "arrived", "reshape": "sent", "to": ["g", "e", "c", "m"]})  # type: ignore[attr-defined]
    tree["operators"].insert(4, {"name": "home", "reshape": "down", "to": ["g", "e", "c", "m"]})  # type: ignore[attr-defined]
    tree["operators"][2]["einsum"] = ["arrived", "w1"]  # type: ignore[index]
    tree["operators"][5]["einsum"] = ["mask", "home"]  # type: ignore[index]
    program = read_program(tree)
    sizes, mesh = {**program.sizes, "x8": 8, "y8": 8}, ("x8", "y8")
    said = {name: annotate({"g": mesh}) for name in ("x", "mask", "sent", "home")}
    said |= {name: annotate({"e": mesh}) for name in ("arrived", "down", "w1", "w2")}
    found = partition(program.graph, propagate(program.graph, said, sizes=sizes), sizes=sizes, mode=mode).collectives
    assert [(each.kind, 2 * float(each.elements(sizes))) for each in found] == [("all_to_all", 8_388_608)] * 2
