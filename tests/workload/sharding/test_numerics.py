"""The proof: on a toy machine plans lead where they should, and partitioned graphs give the numbers of whole ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosmic.workload.operator_graph import Graph, Operator, Tensor
from cosmic.workload.sharding.graph_partition import MODES, Mode, partition
from cosmic.workload.sharding.propagation import propagate
from cosmic.workload.sharding.resharding import reshard
from cosmic.workload.sharding.tensor_sharding import Annotation, Sharding
from tests.workload.sharding.devices import Array, agrees, apply, run_partitioned, run_whole, spread
from tests.workload.sharding.layers import layer, with_gradients

MESH = {"x": 2, "y": 3, "z": 2}
SIZE = 12  # of every dimension: divisible by any product of axes


@st.composite
def shardings(draw: st.DrawFn, dims: tuple[str, ...], axes: tuple[str, ...], partial: bool = False) -> Sharding:
    """Draw any sharding: each axis on some dimension, or nowhere, or partial; in any order."""
    places = [*dims, "", *(["partial"] if partial else [])]
    split: dict[str, list[str]] = {}
    for axis in draw(st.permutations(axes)):
        split.setdefault(draw(st.sampled_from(places)), []).append(axis)
    pending = split.pop("partial", [])
    return Sharding.of({dim: split[dim] for dim in split if dim}, pending)


DIMS = ("a", "b", "c")


@given(data=st.data(), seed=st.integers(0, 99))
@settings(max_examples=80, deadline=None)
def test_a_plan_leads_from_its_source_to_its_target(data: st.DataObject, seed: int) -> None:
    source = data.draw(shardings(DIMS, tuple(MESH), partial=True))
    target = data.draw(shardings(DIMS, tuple(MESH), partial=True))
    rng = np.random.default_rng(seed)
    full: Array = rng.integers(-99, 99, size=(SIZE,) * len(DIMS))
    shards = spread(full, DIMS, source, MESH, rng)
    state = source
    for step in reshard(DIMS, source, target, dict.fromkeys(DIMS, SIZE) | MESH)[0]:
        assert step.before == state
        shards, state = apply(step, DIMS, shards, MESH), step.after
        assert agrees(shards, full, DIMS, state, MESH)
    assert state == target


A, B, C = Tensor("A", ("i", "k")), Tensor("B", ("k", "j")), Tensor("C", ("i", "j"))
BATCHED = (Tensor("P", ("n", "i", "k", "l")), Tensor("Q", ("n", "k", "l", "j"))), Tensor("R", ("i", "n", "j"))
SUMMED = (Tensor("S", ("i", "k")), Tensor("T", ("i",))), Tensor("U", ("k",))
EINSUMS = [
    Operator("dot", "einsum", (A, B), (C,)),
    Operator("batched", "einsum", BATCHED[0], (BATCHED[1],)),
    Operator("summed", "einsum", SUMMED[0], (SUMMED[1],)),
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("operator", EINSUMS, ids=lambda operator: operator.name)
@given(data=st.data(), seed=st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_a_partitioned_einsum_gives_the_numbers_of_the_whole_one(
    mode: Mode, operator: Operator, data: st.DataObject, seed: int
) -> None:
    mesh = {"x": 2, "y": 3}
    sizes = dict.fromkeys(operator.dims, 6) | mesh
    graph = Graph((operator,))
    annotations = {
        tensor.name: Annotation(data.draw(shardings(tensor.dims, ("x", "y"), partial=tensor in operator.outputs)))
        for tensor in operator.tensors
    }
    partitioned = partition(graph, propagate(graph, annotations, sizes=sizes), sizes=sizes, mode=mode)
    rng = np.random.default_rng(seed)
    values = {tensor.name: rng.integers(-9, 9, size=(6,) * len(tensor.dims)) for tensor in operator.inputs}
    (output,) = operator.outputs
    sharding = partitioned.shardings[output.name]
    assert sharding == annotations[output.name].sharding
    made = run_partitioned(partitioned, values, mesh)[output.name, sharding]
    assert agrees(made, run_whole(graph.operators, values)[output.name], output.dims, sharding, mesh)


TRAINED = with_gradients(layer())
LEAVES = {
    tensor.name: tensor
    for operator in TRAINED.operators
    for tensor in operator.inputs
    if tensor.name not in {made.name for each in TRAINED.operators for made in each.outputs}
}


@pytest.mark.long
@pytest.mark.parametrize("mode", MODES)
@given(data=st.data(), share=st.booleans())
@settings(max_examples=20, deadline=None)
def test_a_partitioned_layer_gives_the_numbers_of_the_whole_one(mode: Mode, data: st.DataObject, share: bool) -> None:
    """Forward and backward, whatever tensors are annotated and however."""
    mesh = {"x": 2, "y": 3}
    dims = {dim: 6 for operator in TRAINED.operators for dim in operator.dims}
    tensors = TRAINED.tensors
    named = data.draw(st.lists(st.sampled_from(sorted(tensors)), max_size=8, unique=True))
    annotations = {
        name: Annotation(
            data.draw(shardings(tensors[name].dims, ("x", "y"))),
            open=tuple(data.draw(st.lists(st.sampled_from(tensors[name].dims), unique=True))),
            priority=data.draw(st.integers(0, 2)),
        )
        for name in named
    }
    sizes = dims | mesh
    propagation = propagate(TRAINED, annotations, sizes=sizes)
    partitioned = partition(TRAINED, propagation, sizes=sizes, mode=mode, share_phases=share)
    rng = np.random.default_rng(1)
    values: dict[str, Array] = {
        name: rng.normal(size=[dims[dim] for dim in tensor.dims]) / 4 for name, tensor in LEAVES.items()
    }
    expected = run_whole(TRAINED.operators, values)
    found = run_partitioned(partitioned, values, mesh)
    for (name, sharding), shards in found.items():
        assert agrees(shards, expected[name], tensors[name].dims, sharding, mesh), name
    assert {(name, partitioned.shardings[name]) for name in tensors} <= set(found)


def test_gradients_are_those_of_finite_differences() -> None:
    rng = np.random.default_rng(3)
    values: dict[str, Array] = {name: rng.normal(size=(3,) * len(tensor.dims)) / 2 for name, tensor in LEAVES.items()}
    values["d_out"] = np.ones((3, 3, 3))
    whole = run_whole(TRAINED.operators, values)
    for name in LEAVES:
        if name == "d_out":
            continue
        direction = rng.normal(size=values[name].shape)
        ends = [
            run_whole(layer().operators, values | {name: values[name] + side * direction})["out"].sum()
            for side in (1e-6, -1e-6)
        ]
        assert np.isclose((ends[0] - ends[1]) / 2e-6, (whole[f"d_{name}"] * direction).sum(), rtol=1e-5)
