"""A model as blocks: its graphs, and how often each occurs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from cosmic.design.model_layer import Model, Recommender
from cosmic.design.program_model import ProgramModel
from cosmic.workload.operator_graph import Graph, Operator, Tensor

TOKENS = ("batch", "sequence")


@dataclass(frozen=True, slots=True, eq=False)  # made once for each model, and compared by identity
class Block:
    """A part of a model that a pipeline stage holds as a whole: a layer, the embedding, the head."""

    name: str
    graph: Graph
    repeats: int
    part: str
    """Its place in the model: ``first`` (embeddings), ``layers``, or ``last`` (head and loss)."""
    kept_whole: tuple[str, ...] = ()
    """Names of its input tensors: all that full recomputation keeps."""
    handed: tuple[str, ...] = ()
    """Of a part of a program that is repeated, what it hands to its next run."""


def is_decoded(block: Block, operator: Operator) -> bool:
    """Return whether an operator runs when a token is decoded: the encoder has run, its keys and values are cached."""
    return block.name != "encoder_layer" and not any("source" in tensor.dims for tensor in operator.outputs)


class Builder:
    """Collects operators; each method adds one and returns its output."""

    def __init__(self) -> None:
        self.operators: list[Operator] = []

    def apply(
        self, kind: str, name: str, inputs: tuple[Tensor, ...], dims: tuple[str, ...], **details: tuple[object, ...]
    ) -> Tensor:
        """Add an operator of any kind with one output, the activation *name*."""
        output = Tensor(name, dims)
        self.operators.append(Operator(name, kind, inputs, (output,), **details))  # type: ignore[arg-type]
        return output

    def linear(
        self, name: str, read: Tensor, inner: tuple[str, ...], outer: tuple[str, ...], *, bias: bool = False
    ) -> Tensor:
        """Add a GEMM with a weight: the *inner* dimensions are summed over, the *outer* ones are new."""
        weight = Tensor(f"w_{name}", inner + outer, "weight")
        dims = tuple(dim for dim in read.dims if dim not in inner) + outer
        product = self.apply("einsum", name, (read, weight), dims)
        if not bias:
            return product
        offset = Tensor(f"b_{name}", outer, "weight")
        return self.apply("bias", f"{name}_biased", (product, offset), dims)

    def norm(self, name: str, read: Tensor, over: str, *, bias: bool) -> Tensor:
        """Add a normalisation over one dimension, with a scale and, with *bias*, an offset."""
        weights = (Tensor(f"w_{name}", (over,), "weight"),) + (
            (Tensor(f"b_{name}", (over,), "weight"),) if bias else ()
        )
        return self.apply("norm", name, (read, *weights), read.dims, whole=(over,))

    def graph(self) -> Graph:
        """Return the graph of the collected operators."""
        return Graph(tuple(self.operators))


@cache
def blocks(model: Model, dropout: bool = False) -> tuple[Block, ...]:
    """Return the blocks of *model*, in the order in which data passes through them."""
    if isinstance(model, Recommender):
        from cosmic.workload.recommender_blocks import build_recommender_blocks  # noqa: PLC0415  it builds on this module

        return build_recommender_blocks(model)
    if isinstance(model, ProgramModel):
        from cosmic.workload.user_programs.program_blocks import build_program_blocks  # noqa: PLC0415  it builds on this module

        return build_program_blocks(model)
    from cosmic.workload.transformer_blocks import build_transformer_blocks  # noqa: PLC0415  it builds on this module

    return build_transformer_blocks(model, dropout)


@cache
def dimensions(model: Model) -> Mapping[str, float]:
    """Return the sizes of the dimensions that *model* fixes; batch and sequence come from the workload."""
    if isinstance(model, Recommender):
        from cosmic.workload.recommender_blocks import recommender_dimensions  # noqa: PLC0415  it builds on this module

        return recommender_dimensions(model)
    if isinstance(model, ProgramModel):
        return model.sizes
    sizes: dict[str, float] = {
        "hidden": model.hidden,
        "hidden_out": model.hidden,
        "heads": model.heads,
        "kv_heads": model.kv_heads,
        "head_dim": model.head_dim,
        "ffn": model.ffn,
        "vocab": model.vocab,
        "positions": model.positions,
        "segments": model.segments,
        "buckets": model.position_buckets,
        "pair": 2,
        "stacks": 2 if model.family == "encoder_decoder" else 1,
    }
    if model.mla:
        sizes |= {
            "kv_lora_rank": model.mla.kv_lora_rank,
            "q_lora_rank": model.mla.q_lora_rank or 0,
            "qk_rope_head_dim": model.mla.qk_rope_head_dim,
            "qk_dim": model.head_dim + model.mla.qk_rope_head_dim,
            "v_head_dim": model.mla.v_head_dim,
        }
    if model.experts:
        experts = model.experts
        sizes |= {
            "experts": experts.count,
            "routed": experts.count,
            "active": experts.active,
            "share": (experts.capacity_factor or 1.0) * experts.active / experts.count,
            "expert_ffn": experts.ffn,
            "shared_ffn": experts.shared_ffn,
            "latent": experts.latent_width,
            "gate": 1,
        }
    streams = model.residual_streams
    sizes |= {"streams": streams, "mixing": streams * streams + 2 * streams, "streams_read": streams}
    if model.sparse:
        from cosmic.workload.transformer_blocks import sparse_sizes  # noqa: PLC0415  it builds on this module

        sizes |= sparse_sizes(model, model.sparse)
    if model.ssm:
        from cosmic.workload.transformer_blocks import state_sizes  # noqa: PLC0415  it builds on this module

        sizes |= state_sizes(model)
    if model.image:
        sizes |= {"patch": model.image.channels * model.image.patch**2, "class_tokens": int(model.image.class_token)}
    return sizes
