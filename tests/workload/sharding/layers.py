"""Transformer layers over named dimensions, unfused, as the reference programs have them."""

from __future__ import annotations

from collections.abc import Mapping

from cosmic.workload.operator_graph import Graph, Operator, Tensor
from cosmic.workload.sharding.autodiff import differentiate, prune
from cosmic.workload.sharding.tensor_sharding import Annotation

STREAM = ("batch", "sequence", "hidden")
HEADS = ("batch", "sequence", "heads", "head_dim")
CONTEXT = ("batch", "context", "heads", "head_dim")
INNER = ("batch", "sequence", "ffn")
SCORES = ("batch", "heads", "sequence", "context")


def weight(name: str, *dims: str) -> Tensor:
    return Tensor(name, dims, "weight")


def op(kind: str, inputs: tuple[Tensor, ...], output: Tensor, **details: tuple[object, ...]) -> Operator:
    return Operator(output.name, kind, inputs, (output,), **details)  # type: ignore[arg-type]


def layer() -> Graph:
    """Attention and feed-forward network with residuals, without norms and biases."""
    x = Tensor("x", STREAM)
    q, k, v = Tensor("q", HEADS), Tensor("k", CONTEXT), Tensor("v", CONTEXT)
    scores, shares, context = Tensor("scores", SCORES), Tensor("shares", SCORES), Tensor("context", HEADS)
    attended, between = Tensor("attended", STREAM), Tensor("between", STREAM)
    up, inner, down, out = Tensor("up", INNER), Tensor("inner", INNER), Tensor("down", STREAM), Tensor("out", STREAM)
    project = ("hidden", "heads", "head_dim")
    there = (("sequence", "context"),)
    return Graph(
        (
            op("einsum", (x, weight("w_q", *project)), q),
            op("einsum", (x, weight("w_k", *project)), k, same=there),
            op("einsum", (x, weight("w_v", *project)), v, same=there),
            op("einsum", (q, k), scores),
            op("softmax", (scores,), shares, whole=("context",)),
            op("einsum", (shares, v), context),
            op("einsum", (context, weight("w_o", "heads", "head_dim", "hidden")), attended),
            op("add", (x, attended), between),
            op("einsum", (between, weight("w_up", "hidden", "ffn")), up),
            op("relu", (up,), inner),
            op("einsum", (inner, weight("w_down", "ffn", "hidden")), down),
            op("add", (between, down), out),
        )
    )


WEIGHTS = ("w_q", "w_k", "w_v", "w_o", "w_up", "w_down")


def with_gradients(forward: Graph, *, only_gradients: bool = False) -> Graph:
    """Return the layer with its backward pass; *only_gradients*, without what nothing but the output needs."""
    backward = differentiate(forward, ("out",))
    both = Graph(forward.operators + backward.operators)
    return prune(both, [f"d_{name}" for name in (*WEIGHTS, "x")]) if only_gradients else both


def mirrored(graph: Graph, annotations: Mapping[str, Annotation]) -> dict[str, Annotation]:
    """Return *annotations*, and for each gradient in *graph* that has none, that of its tensor."""
    tensors = graph.tensors
    gradients = {f"d_{name}": annotation for name, annotation in annotations.items() if f"d_{name}" in tensors}
    return gradients | dict(annotations)


def moe() -> Graph:
    """An MoE: tokens become slots of experts, and slots tokens again."""
    tokens, slots, inner = STREAM, ("experts", "slots", "hidden"), ("experts", "slots", "ffn")
    x, sent, up = Tensor("x", tokens), Tensor("sent", slots), Tensor("up", inner)
    open_, down, out = Tensor("open", inner), Tensor("down", slots), Tensor("out", tokens)
    moved = (("batch", "slots"), ("sequence", "slots"))
    return Graph(
        (
            op("dispatch", (x,), sent, same=moved),
            op("einsum", (sent, weight("w_up", "experts", "hidden", "ffn")), up),
            op("relu", (up,), open_),
            op("einsum", (open_, weight("w_down", "experts", "ffn", "hidden")), down),
            op("combine", (down,), out, same=moved),
        )
    )
