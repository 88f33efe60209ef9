"""Backward operators."""

from __future__ import annotations

import pytest

from cosmic.base.errors import UnknownName
from cosmic.workload.operator_graph import Graph, Operator, Tensor
from cosmic.workload.sharding.autodiff import differentiate, prune
from tests.workload.sharding.layers import WEIGHTS, layer, with_gradients

BACKWARD = differentiate(layer(), ("out",))
X, Y, W = Tensor("x", ("b", "m")), Tensor("y", ("b", "h")), Tensor("w", ("m", "h"), "weight")


def operator(name: str) -> Operator:
    return next(each for each in BACKWARD.operators if each.name == name)


def test_every_weight_and_what_entered_get_a_gradient_of_their_shape() -> None:
    tensors, forward = BACKWARD.tensors, layer().tensors
    for name in (*WEIGHTS, "x"):
        assert tensors[f"d_{name}"].dims == forward[name].dims
        assert tensors[f"d_{name}"].role == "gradient"
    assert {each.phase for each in BACKWARD.operators} == {"backward"}


def test_an_einsum_has_one_einsum_per_gradient() -> None:
    data, weight = operator("d_up.0"), operator("d_up.1")
    assert [tensor.name for tensor in data.inputs] == ["d_up", "w_up"]
    assert [tensor.name for tensor in weight.inputs] == ["d_up", "between"]
    assert (data.kind, weight.kind) == ("einsum", "einsum")
    assert weight.summed == ("batch", "sequence")


def test_gradients_of_a_tensor_that_many_read_are_added_up() -> None:
    total = operator("d_x")
    assert total.kind == "add"
    assert [tensor.name for tensor in total.inputs] == ["d_between", "d_x.v.0", "d_x.k.0", "d_x.q.0"]


def test_other_kinds_have_a_gradient_operator_of_the_same_dimensions() -> None:
    softmax = operator("d_shares")
    assert softmax.kind == "softmax_grad"
    assert softmax.whole == ("context",)
    assert [tensor.name for tensor in softmax.inputs] == ["d_shares", "scores"]


def test_inputs_have_no_gradient() -> None:
    tokens = Tensor("tokens", ("b",), "input")
    graph = Graph((Operator("embed", "embedding", (tokens, W), (Y,)),))
    assert [tensor.name for tensor in differentiate(graph, ("y",)).operators[0].outputs] == ["d_w"]


def test_a_tensor_that_is_only_passed_on_still_has_a_gradient_of_its_name() -> None:
    graph = Graph((Operator("sum", "add", (X, Tensor("z", X.dims)), (Tensor("out", X.dims),)),))
    assert {tensor.name for each in differentiate(graph, ("out",)).operators for tensor in each.outputs} == {
        "d_x",
        "d_z",
    }


def test_a_square_has_two_gradients() -> None:
    graph = Graph((Operator("square", "einsum", (X, X), (Tensor("n", ("b",)),)),))
    assert [each.kind for each in differentiate(graph, ("n",)).operators] == ["einsum", "einsum", "add"]


def test_what_no_result_needs_is_pruned() -> None:
    names = {each.name for each in with_gradients(layer(), only_gradients=True).operators}
    assert not {"down", "out"} & names
    assert {"inner", "d_x"} <= names
    assert prune(layer(), ("q",)).operators == layer().operators[:1]


def test_a_misspelt_seed_is_refused() -> None:
    with pytest.raises(UnknownName, match="seeds = 'otu'"):
        differentiate(layer(), ("otu",))
