"""Recommendation models as operators: embedding tables, two perceptrons, pairwise interaction (DLRM)."""

from __future__ import annotations

import numpy as np

from cosmic.base.numeric import Numeric, expm1
from cosmic.design.model_layer import Recommender
from cosmic.workload.model_blocks import Block, Builder
from cosmic.workload.operator_graph import Operator, Tensor


def build_recommender_blocks(model: Recommender) -> tuple[Block, ...]:
    """Return the one block of a recommender.

    All tables have the average size. An accelerator holds some tables for all samples and computes some samples with
    all tables: the all-to-alls follow from that change of sharding. The rows that a sample looks up in a table are
    summed where they lie.
    """
    build = Builder()
    features = Tensor("features", ("batch", "dense_features"), "input")
    dense = _add_perceptron(build, "bottom", features, "dense_features", len(model.bottom))
    keys = Tensor("keys", ("batch", "tables", "lookups", "rows"), "index")
    rows = Tensor("w_tables", ("tables", "rows", "embedding"), "weight")
    table_keys = Tensor("keys_there", ("samples", "tables", "lookups", "rows"), "index")
    # Keys travel to the accelerators of their tables: from here on the batch is split another way.
    build.operators.append(Operator("keys_there", "view", (keys,), (table_keys,), same=(("samples", "batch"),)))
    looked_up = build.apply("embedding", "looked_up", (table_keys, rows), ("samples", "tables", "embedding"))
    dims = ("batch", "tables", "embedding")
    gathered = build.apply("view", "gathered", (looked_up,), dims, same=(("samples", "batch"),))
    inputs = (gathered, dense)
    crossed = build.apply("interaction", "crossed", inputs, ("batch", "interactions"), whole=("tables", "embedding"))
    score = _add_perceptron(build, "top", crossed, "interactions", len(model.top))
    build.apply("loss", "loss", (score,), ("batch",))
    return (Block("model", build.graph(), 1, "layers", ("features",)),)


def _add_perceptron(build: Builder, name: str, read: Tensor, width: str, depth: int) -> Tensor:
    for layer in range(depth):
        output = f"{name}_{layer}" if not (name == "bottom" and layer == depth - 1) else "embedding"
        read = build.linear(f"{name}_{layer}", read, (width,), (output,), bias=True)
        read = build.apply("relu", f"{name}_{layer}_open", (read,), read.dims)
        width = output
    return read


def touched_rows(model: Recommender, samples: Numeric) -> Numeric:
    """Return the distinct rows of all tables that *samples* look up, each row of a table equally likely.

    A table of R rows under L lookups has R (1 - (1 - 1/R)^L) of them on average.

    >>> two = Recommender(dense_features=1, tables=(2, 1), embedding=1, bottom=(1,), top=(1,))
    >>> float(touched_rows(two, 2))
    2.5
    """
    total: Numeric = 0.0
    for rows in model.tables:
        # (1 - 1/R)^(samples L) in logarithms: R is large, and 1 - 1/R would lose digits.
        missed = np.log1p(-1 / rows) if rows > 1 else -np.inf
        total = total - rows * expm1(samples * model.lookups * missed)
    return total


def recommender_dimensions(model: Recommender) -> dict[str, float]:
    """Return the sizes of a recommender's dimensions."""
    vectors = len(model.tables) + 1
    sizes: dict[str, float] = {
        "dense_features": model.dense_features,
        "tables": len(model.tables),
        "lookups": model.lookups,
        "rows": sum(model.tables) / len(model.tables),
        "embedding": model.embedding,
        "interactions": vectors * (vectors - 1) // 2 + model.embedding,
    }
    sizes |= {f"bottom_{index}": width for index, width in enumerate(model.bottom)}
    return sizes | {f"top_{index}": width for index, width in enumerate(model.top)}
