"""Attention to few keys as operators (DeepSeek-V4): a window, compressed blocks, and an index that picks some of them.

All heads read one vector per token, as key and as value. What a query reads of the window and of compressed keys is the
share of pairs that `cosmic.workload.attended_keys.attended_share` says. The index is attention of its own, of narrow
heads,
to all compressed keys before a query: `index_context` is how many that are on average.
"""

from __future__ import annotations

from cosmic.design.model_layer import SparseAttention, Transformer
from cosmic.workload.model_blocks import TOKENS, Builder
from cosmic.workload.operator_graph import Tensor


def add_queries(build: Builder, read: Tensor) -> tuple[Tensor, Tensor]:
    """Add the projections of queries through a low rank; return that, and the queries."""
    small = build.linear("q_down", read, ("hidden",), ("q_lora_rank",))
    small = build.norm("q_down_norm", small, "q_lora_rank", bias=False)
    query = build.linear("q_up", small, ("q_lora_rank",), ("heads", "head_dim"))
    return small, build.apply("rope", "q_placed", (query,), query.dims)


def add_shared_keys(build: Builder, read: Tensor) -> Tensor:
    """Add the projection of what all heads read of a token."""
    keys = build.linear("kv", read, ("hidden",), ("kv_heads", "head_dim"))
    keys = build.norm("kv_norm", keys, "head_dim", bias=False)
    return build.apply("rope", "k_placed", (keys,), keys.dims)


def add_compression(build: Builder, model: Transformer, kind: str, read: Tensor, small: Tensor) -> None:
    """Add what compresses tokens into keys and, in layers C, what picks some of these for each query."""
    sparse = model.sparse
    if sparse is None or not sparse.compressed(kind):
        return
    _add_pooled(build, kind, "compressed", read, "head_dim")
    if kind.startswith("sparse_"):
        _add_index(build, kind, read, small)


def _add_pooled(build: Builder, kind: str, name: str, read: Tensor, width: str) -> Tensor:
    """Add values and gates; sum each block of values weighted by its gates, and normalise the sum."""
    columns = f"{width}_pair" if kind.startswith("sparse_") else width
    values, weights = (build.linear(f"{name}_{part}", read, ("hidden",), (columns,)) for part in ("kv", "gate"))
    summed = build.apply("pool_block", f"{name}_sum", (values, weights), (*TOKENS, "per_block", width))
    return build.norm(f"{name}_norm", summed, width, bias=False)


def _add_index(build: Builder, kind: str, read: Tensor, small: Tensor) -> None:
    query = build.linear("index_q", small, ("q_lora_rank",), ("index_heads", "index_dim"))
    scale = build.linear("index_weights", read, ("hidden",), ("index_heads",))
    pooled = _add_pooled(build, kind, "index", read, "index_dim")
    same = (("index_context", "sequence"),)
    key = build.apply("view", "index_key", (pooled,), ("batch", "index_context", "index_one", "index_dim"), same=same)
    value = build.apply(
        "view", "index_value", (pooled,), ("batch", "index_context", "index_one", "index_two"), same=same
    )
    dims = (*TOKENS, "index_heads", "index_two")
    scores = build.apply("attention", "index_scores", (query, key, value), dims, whole=("index_context",))
    build.apply("multiply", "index_weighed", (scores, scale), dims)


def add_grouped_output(build: Builder, leaving: Tensor) -> Tensor:
    """Add the projection of heads to the hidden size: group by group to a low rank, then all together."""
    dims = (*TOKENS, "o_groups", "o_inner")
    grouped = build.apply("view", "grouped", (leaving,), dims, same=(("o_groups", "heads"),))
    weight = Tensor("w_out_down", ("o_groups", "o_inner", "o_rank"), "weight")
    small = build.apply("einsum", "out_down", (grouped, weight), (*TOKENS, "o_groups", "o_rank"))
    return build.linear("out", small, ("o_groups", "o_rank"), ("hidden",))


def sparse_sizes(model: Transformer, sparse: SparseAttention) -> dict[str, float]:
    """Return the sizes of the dimensions of attention to few keys; ``index_context`` comes from the workload."""
    return {
        "q_lora_rank": sparse.q_lora_rank,
        "o_groups": sparse.o_groups,
        "o_inner": model.heads * model.head_dim / sparse.o_groups,
        "o_rank": sparse.o_lora_rank,
        "head_dim_pair": 2 * model.head_dim,
        "per_block": 1 / sparse.block,
        "index_heads": sparse.index_heads,
        "index_dim": sparse.index_dim,
        "index_dim_pair": 2 * sparse.index_dim,
        "index_one": 1,
        "index_two": 1,
    }
