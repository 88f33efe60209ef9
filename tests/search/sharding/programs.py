"""Small programs to shard."""

from __future__ import annotations

import random

from cosmic.workload.operator_graph import Graph, Operator, Tensor
from cosmic.workload.user_programs.program_graph import Program
from tests.workload.sharding.layers import layer

TRANSFORMER = {"hidden": 1024, "ffn": 4096, "heads": 16, "head_dim": 64}


def transformer(batch: int, sequence: int) -> Program:
    """A layer of attention and a feed-forward network."""
    sizes = {**TRANSFORMER, "batch": batch, "sequence": sequence, "context": sequence}
    return Program("layer", layer(), sizes)


def product() -> Program:
    """The matrix product of the recorded XLA programs."""
    a, b, c = Tensor("A", ("i", "k")), Tensor("B", ("k", "j")), Tensor("C", ("i", "j"))
    return Program("dot", Graph((Operator("dot", "einsum", (a, b), (c,)),)), {"i": 1024, "k": 2048, "j": 4096})


def chain(layers: int) -> Program:
    """Feed-forward networks one after the other, each with a residual: five operators a layer."""
    sizes = {"batch": 64, "hidden": 512, "ffn": 2048}
    operators, x = [], Tensor("x0", ("batch", "hidden"))
    for place in range(layers):
        up, inner = Tensor(f"up{place}", ("batch", "ffn")), Tensor(f"inner{place}", ("batch", "ffn"))
        down, out = Tensor(f"down{place}", ("batch", "hidden")), Tensor(f"x{place + 1}", ("batch", "hidden"))
        above = Tensor(f"w_up{place}", ("hidden", "ffn"), "weight")
        below = Tensor(f"w_down{place}", ("ffn", "hidden"), "weight")
        normed = Tensor(f"normed{place}", ("batch", "hidden"))
        operators += [
            Operator(normed.name, "norm", (x,), (normed,), whole=("hidden",)),
            Operator(up.name, "einsum", (normed, above), (up,)),
            Operator(inner.name, "relu", (up,), (inner,)),
            Operator(down.name, "einsum", (inner, below), (down,)),
            Operator(out.name, "add", (x, down), (out,)),
        ]
        x = out
    return Program("chain", Graph(tuple(operators)), sizes)


def drawn(seed: int) -> Program:
    """Two random products, one after the other, sometimes with a sum."""
    random.seed(seed)
    sizes = {dim: random.choice((2, 4, 8, 16)) for dim in "abcde"}
    x, w = Tensor("x", ("a", "b")), Tensor("w", ("b", "c"), "weight")
    u, v = Tensor("u", ("a", "c")), Tensor("v", ("c", random.choice(("b", "d"))), "weight")
    y = Tensor("y", ("a", v.dims[1]))
    operators = [Operator("u", "einsum", (x, w), (u,))]
    if random.random() < 0.3:
        operators.append(Operator("y", "einsum", (u, v), (y,)))
        if y.dims == x.dims:
            operators.append(Operator("z", "add", (x, y), (Tensor("z", x.dims),)))
    else:
        norm = Tensor("n", u.dims)
        operators += [
            Operator("n", "norm", (u,), (norm,), whole=(random.choice(u.dims),)),
            Operator("y", "einsum", (norm, v), (y,)),
        ]
    return Program(f"drawn{seed}", Graph(tuple(operators)), {dim: sizes[dim] for dim in "abcd"})
