"""The model layer: the shapes of a neural network, whatever runs it."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from cosmic.design.bounds import check_bounds
from cosmic.design.schema import DERIVED
from cosmic.errors import require

Bias = Literal["qkv", "out", "ffn", "experts", "router", "head"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """MoE: experts in place of the feed-forward network of some layers."""

    count: int
    """Routed experts per layer."""
    active: int
    """Routed experts per token (top-k)."""
    ffn: int
    """Inner width of one routed expert."""
    shared_ffn: int = 0
    """Inner width of all shared experts together."""
    shared_gate: bool = False
    """Whether a learned gate scales the shared experts' output."""
    dense_first: int = 0
    """Dense layers before the first MoE layer."""
    every: int = 1
    """Interval of MoE layers after those: 2 is every second layer."""
    capacity_factor: float | None = None
    """Slots per expert relative to an even split; if not given, no token is dropped."""

    def __post_init__(self) -> None:
        check_bounds(self)
        require(self.count >= 1, "count", self.count, "an MoE layer has at least 1 expert")
        some = 1 <= self.active <= self.count
        require(some, "active", self.active, f"must be 1 … {self.count}, the experts there are")
        require(self.ffn >= 1, "ffn", self.ffn, "must be at least 1")
        require(self.shared_ffn >= 0, "shared_ffn", self.shared_ffn, "must not be negative")
        require(self.dense_first >= 0, "dense_first", self.dense_first, "must not be negative")
        require(self.every >= 1, "every", self.every, "must be at least 1")
        factor = self.capacity_factor
        require(factor is None or factor > 0, "capacity_factor", factor, "must be positive")


@dataclass(frozen=True, slots=True, kw_only=True)
class MLA:
    """Multi-head latent attention (DeepSeek-V2): one small vector per token gives the keys and values of all heads."""

    q_lora_rank: int | None = None
    """Width of the compressed query; if not given, queries are projected directly."""
    kv_lora_rank: int
    """Width of the compressed keys and values, which the KV cache keeps."""
    qk_rope_head_dim: int
    """Width per head of the rotary part; all heads share that of the keys."""
    v_head_dim: int
    """Width per head of the values."""

    def __post_init__(self) -> None:
        check_bounds(self)
        rank = self.q_lora_rank
        require(rank is None or rank >= 1, "q_lora_rank", rank, "must be at least 1")
        require(self.kv_lora_rank >= 1, "kv_lora_rank", self.kv_lora_rank, "must be at least 1")
        require(self.qk_rope_head_dim >= 0, "qk_rope_head_dim", self.qk_rope_head_dim, "must not be negative")
        require(self.v_head_dim >= 1, "v_head_dim", self.v_head_dim, "must be at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """Images as tokens: square patches, each projected to the hidden size."""

    size: int
    """Pixels of an image, per side."""
    patch: int
    """Pixels of a patch, per side."""
    channels: int = 3
    class_token: bool = True

    def __post_init__(self) -> None:
        check_bounds(self)
        require(self.patch >= 1, "patch", self.patch, "must be at least 1")
        require(self.channels >= 1, "channels", self.channels, "must be at least 1")
        whole = self.size >= self.patch and self.size % self.patch == 0
        require(whole, "size", self.size, f"must be a multiple of the patch, {self.patch}")

    @property
    def tokens(self) -> int:
        """Tokens of one image."""
        return (self.size // self.patch) ** 2 + self.class_token


@dataclass(frozen=True, slots=True, kw_only=True)
class Transformer:
    """A stack of attention and feed-forward layers: language models, encoders, vision transformers."""

    name: str = ""
    family: Literal["decoder", "encoder", "encoder_decoder", "vision"] = "decoder"
    layers: int
    """Layers; of an encoder-decoder, the decoder's."""
    encoder_layers: int = 0
    """Layers of the encoder of an encoder-decoder."""
    hidden: int
    """Hidden size."""
    heads: int
    """Attention heads."""
    kv_heads: int = DERIVED
    """Key and value heads: all `heads` (the default), fewer (grouped-query) or one (multi-query)."""
    head_dim: int = DERIVED
    """Width of one head, with MLA that of queries and keys without the rotary part; ``hidden / heads`` if not given."""
    ffn: int
    """Inner width of the feed-forward network."""
    gated: bool = False
    """Whether the feed-forward network is gated (SwiGLU, GeGLU): three matrices, not two."""
    vocab: int
    """Vocabulary size; of a vision transformer, the number of classes."""
    tied_embeddings: bool = False
    """Whether the output head reuses the input embedding."""
    positions: int = 0
    """Learned position embeddings; 0 where positions are rotary, relative or fixed."""
    position_buckets: int = 0
    """Buckets of learned relative position biases per head (T5), once per stack."""
    segments: int = 0
    """Learned segment embeddings (BERT)."""
    norm: Literal["layernorm", "rmsnorm"] = "layernorm"
    norm_bias: bool = True
    """Whether layer norms have a bias."""
    norms_per_layer: int = 2
    embedding_norm: bool = False
    """Whether embeddings are normalised before the first layer."""
    final_norm: bool = True
    qk_norm: bool = False
    """Whether queries and keys are normalised per head."""
    biases: tuple[Bias, ...] = ()
    """Projections that have a bias."""
    sinks: bool = False
    """Whether each head has a learned attention sink, an extra logit in its softmax (GPT-OSS)."""
    parallel_block: bool = False
    """Whether attention and feed-forward network run in parallel on the same input."""
    window: int | None = None
    """Tokens that each token attends to, in layers with sliding-window attention."""
    full_attention_every: int | None = None
    """With a window, interval of the layers with full attention: 6 is every sixth; none if not given."""
    pretraining_heads: bool = False
    """Whether the model has BERT's pretraining heads: a dense layer and a two-way classifier on the first token, and a
    dense layer with a norm before the vocabulary."""
    experts: Experts | None = None
    mla: MLA | None = None
    image: Image | None = None

    def __post_init__(self) -> None:
        check_bounds(self)
        for name in ("layers", "hidden", "heads", "ffn", "vocab", "norms_per_layer"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "must be at least 1")
        for name in ("encoder_layers", "positions", "position_buckets", "segments"):
            require(getattr(self, name) >= 0, name, getattr(self, name), "must not be negative")
        for name in ("window", "full_attention_every"):
            value = getattr(self, name)
            require(value is None or value >= 1, name, value, "must be at least 1")
        self._complete_attention()
        split = self.family == "encoder_decoder"
        rule = "an encoder_decoder needs some" if split else f"a {self.family} has no separate encoder"
        require((self.encoder_layers > 0) == split, "encoder_layers", self.encoder_layers, rule)
        vision = self.family == "vision"
        rule = "must say how images become tokens" if vision else f"a {self.family} reads no images"
        require((self.image is not None) == vision, "image", self.image, rule)

    def _complete_attention(self) -> None:
        if self.kv_heads is DERIVED:
            object.__setattr__(self, "kv_heads", self.heads)
        if self.head_dim is DERIVED:
            rule = f"does not divide by heads, {self.heads}; give head_dim"
            require(self.hidden % self.heads == 0, "hidden", self.hidden, rule)
            object.__setattr__(self, "head_dim", self.hidden // self.heads)
        divides = self.kv_heads >= 1 and self.heads % self.kv_heads == 0
        require(divides, "kv_heads", self.kv_heads, f"must divide heads, {self.heads}")
        require(self.head_dim >= 1, "head_dim", self.head_dim, "must be at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommender:
    """A recommendation model (DLRM): embedding tables, two MLPs, pairwise interaction."""

    name: str = ""
    family: Literal["recommender"] = "recommender"
    dense_features: int
    """Dense input features."""
    tables: tuple[int, ...] = field(metadata={"most": 2**40})
    """Rows of each embedding table."""
    embedding: int
    """Embedding width."""
    lookups: int = 1
    """Rows looked up and summed per table and sample."""
    bottom: tuple[int, ...]
    """Layer widths of the MLP over dense features; the last is `embedding`."""
    top: tuple[int, ...]
    """Layer widths of the MLP over interactions; the last is 1."""

    def __post_init__(self) -> None:
        check_bounds(self)
        for name in ("dense_features", "embedding", "lookups"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "must be at least 1")
        for name in ("tables", "bottom", "top"):
            sizes = getattr(self, name)
            require(bool(sizes) and min(sizes) >= 1, name, sizes, "must list sizes of at least 1")
        rule = f"must end in the width of an embedding, {self.embedding}, to interact with it"
        require(self.bottom[-1] == self.embedding, "bottom", self.bottom, rule)


Model = Transformer | Recommender


# ------------------------------------------------------------------------------------------- parameters


def parameters(model: Model) -> int:
    """Return the parameters that gradients train: a router's load-balancing bias, set by rule, does not count.

    >>> parameters(Transformer(layers=1, hidden=4, heads=2, ffn=16, vocab=10, norm="rmsnorm"))
    284
    """
    if isinstance(model, Recommender):
        return sum(model.tables) * model.embedding + _mlp_parameters(model)
    return _transformer_parameters(model, model.experts.count if model.experts else 0)


def active_parameters(model: Model) -> int:
    """Return the parameters that one token uses: of the routed experts, those it is routed to.

    Input embedding and output head count in full, a recommender's tables with the rows that are looked up.
    """
    if isinstance(model, Recommender):
        return len(model.tables) * model.lookups * model.embedding + _mlp_parameters(model)
    return _transformer_parameters(model, model.experts.active if model.experts else 0)


def is_moe_layer(model: Transformer, layer: int) -> bool:
    """Return whether layer number *layer* is an MoE layer."""
    experts = model.experts
    if experts is None or layer < experts.dense_first:
        return False
    return (layer - experts.dense_first + 1) % experts.every == 0


def is_moe(model: Model) -> bool:
    """Return whether *model* is an MoE model."""
    return isinstance(model, Transformer) and model.experts is not None


def moe_layers(model: Transformer) -> int:
    """Return the number of MoE layers."""
    experts = model.experts
    return max(0, model.layers - experts.dense_first) // experts.every if experts else 0


def _transformer_parameters(model: Transformer, routed: int) -> int:
    """Return the parameters, counting *routed* experts in each MoE layer."""
    moe = moe_layers(model)
    dense = (model.layers - moe) * _ffn_parameters(model)
    return _shared_parameters(model) + dense + moe * _moe_parameters(model, routed)


def _shared_parameters(model: Transformer) -> int:
    """Return the parameters outside the feed-forward networks of the decoder (or only) stack."""
    norm = _norm_parameters(model)
    per_layer = attention_parameters(model) + model.norms_per_layer * norm
    total = _embedding_parameters(model) + model.layers * per_layer + model.final_norm * norm
    if model.family == "encoder_decoder":
        encoder_layer = per_layer + _ffn_parameters(model)
        cross_attention = attention_parameters(model) + norm
        total += model.encoder_layers * encoder_layer + model.layers * cross_attention
        total += model.final_norm * norm + model.position_buckets * model.heads
    return total


def attention_parameters(model: Transformer) -> int:
    """Return the parameters of one attention block: projections, their biases, norms inside."""
    if model.mla:
        return _mla_parameters(model, model.mla)
    query, keys = model.heads * model.head_dim, model.kv_heads * model.head_dim
    weights = model.hidden * (query + 2 * keys) + query * model.hidden
    biases = ("qkv" in model.biases) * (query + 2 * keys) + ("out" in model.biases) * model.hidden
    return weights + biases + model.qk_norm * 2 * model.head_dim + model.sinks * model.heads


def _mla_parameters(model: Transformer, mla: MLA) -> int:
    d, h = model.hidden, model.heads
    query_width = h * (model.head_dim + mla.qk_rope_head_dim)
    if mla.q_lora_rank is None:
        query = d * query_width
    else:
        query = d * mla.q_lora_rank + mla.q_lora_rank + mla.q_lora_rank * query_width
    compress = d * (mla.kv_lora_rank + mla.qk_rope_head_dim) + mla.kv_lora_rank
    expand = mla.kv_lora_rank * h * (model.head_dim + mla.v_head_dim)
    return query + compress + expand + h * mla.v_head_dim * d


def _ffn_parameters(model: Transformer) -> int:
    weights = (2 + model.gated) * model.hidden * model.ffn
    return weights + ("ffn" in model.biases) * ((1 + model.gated) * model.ffn + model.hidden)


def _moe_parameters(model: Transformer, counted: int) -> int:
    """Return the parameters of one MoE layer, counting *counted* routed experts."""
    experts = model.experts
    if experts is None:
        return 0
    d, matrices = model.hidden, 2 + model.gated
    biases = ("experts" in model.biases) * ((1 + model.gated) * experts.ffn + d)
    routed = counted * (matrices * d * experts.ffn + biases)
    shared = matrices * d * experts.shared_ffn + experts.shared_gate * d
    router = experts.count * (d + ("router" in model.biases))
    return routed + shared + router


def _norm_parameters(model: Transformer) -> int:
    return model.hidden * (1 + (model.norm == "layernorm" and model.norm_bias))


def _embedding_parameters(model: Transformer) -> int:
    """Return the parameters before the first layer and after the last norm."""
    d, norm = model.hidden, _norm_parameters(model)
    total = d * (model.positions + model.segments) + model.position_buckets * model.heads
    total += model.embedding_norm * norm + ("head" in model.biases) * model.vocab
    if model.pretraining_heads:
        total += 2 * (d * d + d) + norm + 2 * (d + 1)
    if model.image:
        patch = model.image.channels * model.image.patch**2
        return total + d * (patch + 1 + model.image.class_token) + d * model.vocab
    return total + d * model.vocab * (1 if model.tied_embeddings else 2)


def _mlp_parameters(model: Recommender) -> int:
    vectors = len(model.tables) + 1  # one for each table and one for the dense features
    interactions = vectors * (vectors - 1) // 2 + model.embedding
    widths = [(model.dense_features, *model.bottom), (interactions, *model.top)]
    layers = [pair for stack in widths for pair in pairwise(stack)]
    return sum((inputs + 1) * outputs for inputs, outputs in layers)
