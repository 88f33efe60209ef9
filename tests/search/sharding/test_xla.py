"""Against XLA: the recorded programs of one matrix product and of one transformer layer (`tests.workload.sharding`)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cosmic.search.sharding.automatic_sharding import shard
from cosmic.search.sharding.sharding_result import Sharded
from cosmic.workload.sharding.resharding import wire_share
from cosmic.workload.user_programs.program_graph import Program
from tests.search.sharding.programs import product
from tests.workload.sharding.layers import layer
from tests.workload.sharding.test_xla import (
    CONSTRAINED,
    EXPLAINED,
    LAYER,
    LITERALS,
    REFERENCE,
    WEIGHTS,
    group_size,
    xla_wire_bytes,
)

recorded = pytest.mark.skipif(not REFERENCE.exists(), reason="the recorded XLA programs are not beside this checkout")


def found_for(a: Any, b: Any, c: Any) -> Sharded:
    held = {name: [axis or "_" for axis in axes] for name, axes in zip("ABC", (a, b, c), strict=True)}
    return shard(product(), "x=2,y=8", annotate=held, objective="bytes", training=False)


@pytest.mark.parametrize(("a", "b", "c", "xla", "ours"), LITERALS[:8])
def test_a_matrix_product_sends_no_more_than_in_xla_nor_than_operator_by_operator(
    a: str, b: str, c: str, xla: float, ours: float
) -> None:
    found = found_for(*([None if axis == "-" else axis for axis in axes] for axes in (a, b, c)))
    assert found.value <= min(xla, ours)
    assert found.gap <= 1e-9


@pytest.mark.long
@recorded
def test_no_recorded_matrix_product_sends_less_in_xla_but_for_the_one_explained() -> None:
    for case in json.loads((REFERENCE / "einsum_16_devices.json").read_text())["cases"]:
        table = tuple(tuple(case[key]) for key in ("A_ik", "B_kj", "C_ij"))
        found = found_for(*table)
        assert found.gap <= 1e-9
        assert found.value <= xla_wire_bytes(case["colls"]) + 1 or table in EXPLAINED


def of_layer(case: Any, mode: str) -> Sharded:
    spec = case["spec"]
    tables = {weight: spec[key] for weight, key in WEIGHTS.items()} | {"x": spec["x_bsm"]}
    for key, table in (spec["constraints"] or {}).items():
        tables |= dict.fromkeys(CONSTRAINED[key], table)
    entries = {name: [axis or "_" for axis in table] for name, table in tables.items()}
    program = Program("layer", layer(), {dim: size for dim, size in LAYER.items() if dim not in "xy"})
    training = "grad" in case["case"]
    return shard(program, "x=8,y=8", annotate=entries, mode=mode, training=training)  # type: ignore[arg-type]


def wire(case: Any) -> float:
    return float(
        sum(
            each["count"]
            * each["out_bytes_per_device"]
            * wire_share(each["op"].replace("-", "_"), group_size(each["groups"]))
            for each in case["colls"]
        )
    )


@recorded
@pytest.mark.parametrize("number", [0, *(pytest.param(place, marks=pytest.mark.long) for place in range(1, 8))])
def test_a_recorded_layer_sends_no_more_than_in_xla(number: int) -> None:
    case = json.loads((REFERENCE / "layer_64_devices.json").read_text())["cases"][number]
    found = of_layer(case, "best")
    assert found.value <= wire(case)
    assert found.gap <= 1e-6
    if "fwd" in case["case"]:
        assert of_layer(case, "as_compiled").value == wire(case)
