"""Whole machines as a parameter: which sizes there are, and that a point of a batch is the design of its row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cosmic.base.errors import SpecError
from cosmic.design.design_batch import Batch
from cosmic.evaluation import evaluate, evaluate_batch
from cosmic.search.mapping.design_completion import load_design
from cosmic.search.space.parameter_set import ParameterSet
from cosmic.search.space.space_files import load_space, mapping_space
from cosmic.simulate.metrics import BETTER, Infeasible


def space(**parameters: Any) -> ParameterSet:
    return load_space(
        {
            "base": "llama3-8b@dgx-h100:64",
            "parameters": {"tp": [1, 2, 4], "pp": [1, 2], **parameters},
            "derived": {"dp": "npus // (tp * pp)"},
            "constraints": ["npus % (tp * pp) == 0"],
        }
    )


def test_a_system_has_the_sizes_that_can_be_built_of_its_nodes() -> None:
    """12 is no multiple of a node of 8; of a rack of 72, twelve may be used."""
    found = space(system=["dgx-h100", "gb200-nvl72"], accelerators=[12, 16])
    assert found.parameters[0].labels == ("dgx-h100:16", "gb200-nvl72:12", "gb200-nvl72:16")
    # Six meshes of tp 1, 2, 4 and pp 1, 2; eight ranks do not divide 12.
    assert found.valid == 6 + 5 + 6


def test_sizes_may_be_a_range_of_powers_of_two() -> None:
    found = space(accelerators="16..64")
    assert found.parameters[0].labels == ("dgx-h100:16", "dgx-h100:32", "dgx-h100:64")


def test_a_machine_brings_its_whole_node_along() -> None:
    found = space(system=["dgx-h100:16", "gb200-nvl72:16"])
    points = [found.point(row) for row in found.enumerate()]
    for point in points:
        machine = "dgx-h100:16" if point.compute.accelerator == "h100-sxm-80gb" else "gb200-nvl72:16"
        alone = load_design(f"llama3-8b@{machine}", {"tp": point.workload.tp, "pp": point.workload.pp})
        assert (point.network, point.compute, point.memory, point.node) == (
            alone.network,
            alone.compute,
            alone.memory,
            alone.node,
        )
        assert point.workload.dp * point.workload.tp * point.workload.pp == 16


SYSTEMS = ["dgx-h100", "dgx-b200", "gb200-nvl72", "mi300x", "tpu-v5p", "tpu-v5e"]


def test_machines_of_any_number_of_dimensions_are_evaluated_together_as_alone() -> None:
    found = space(system=SYSTEMS, accelerators=[16, 64])
    rows = np.array(list(found.enumerate()))
    together = evaluate_batch(Batch(found.base, found.columns(rows)))
    for place in np.random.default_rng(3).choice(len(rows), 24, replace=False):
        point = found.point(rows[place])
        alone = evaluate(point)
        if isinstance(alone, Infeasible):
            assert together.excess[place] > 0
            continue
        assert together.excess[place] == 0
        for name in BETTER:
            expected = getattr(alone, name)
            if name == "perf_per_bandwidth" or expected is None:
                continue
            assert together.columns[name][place] == pytest.approx(expected, rel=1e-12), (
                name,
                found.labels(rows[place]),
            )


def test_a_row_is_found_again_by_its_design() -> None:
    found = space(system=SYSTEMS, accelerators=[16])
    for row in found.sample(12, np.random.default_rng(1)):
        again = found.row_of(found.point(row))
        assert again is not None
        assert again.tolist() == row.tolist()


def test_mappings_are_searched_on_several_machines_at_once() -> None:
    found = mapping_space("llama3-8b@dgx-h100:16", vary={"system": ["dgx-h100", "dgx-b200"], "accelerators": [8, 16]})
    sizes = {
        (point.compute.accelerator, point.network.npus)
        for point in map(found.point, found.sample(200, np.random.default_rng(0)))
    }
    assert len(sizes) == 4
    assert all(
        point.workload.dp * point.workload.tp * point.workload.pp * point.workload.cp == point.network.npus
        for point in map(found.point, found.sample(50, np.random.default_rng(1)))
    )


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"system": []}, "parameters.system = []: must be a list of systems, such as [dgx-h200, dgx-b200]"),
        ({"system": ["dgx-h100", "dgx-h100"]}, "has a system twice"),
        ({"system": ["dgx-h10"]}, "did you mean"),
        ({"system": ["dgx-h100"], "accelerators": [12]}, "has none of the sizes: must be a multiple or a divisor of 8"),
        ({"accelerators": "few..many"}, "write it as 1024..16384"),
        ({"accelerators": [1]}, "must be different numbers, from 2 on"),
        ({"accelerators": 512}, "must be a list of values"),
    ],
)
def test_what_cannot_be_built_is_refused(parameters: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SpecError) as error:
        space(**parameters)
    assert sentence in str(error.value)


def test_a_split_of_npus_has_the_factorisations_of_every_size() -> None:
    """4 = 1·4, 2·2, 4·1 and 8 = 1·8, 2·4, 4·2, 8·1: three meshes of the one machine, four of the other."""
    found = load_space(
        {
            "base": "llama3-8b@dgx-h100:64",
            "parameters": {"system": ["dgx-h100:4", "gb200-nvl72:8"], "{dp,tp}": {"split": "npus"}},
        }
    )
    assert found.valid == 3 + 4
    for row in found.enumerate():
        point = found.point(row)
        assert point.workload.dp * point.workload.tp == point.network.npus
    assert found.source is not None
    assert load_space(found.source).valid == 7
