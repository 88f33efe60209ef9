"""The model layer: the shapes of a neural network, whatever runs it, and its parameters.

`Transformer` has parts that only some models have: experts, MLA, sparse attention, state spaces, images as tokens.
`Recommender` is a DLRM; a `ProgramModel` is what a user brings. Parameters are counted part by part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise
from math import gcd
from typing import Literal

from cosmic.base.errors import require
from cosmic.design.program_model import ProgramModel
from cosmic.design.schema import DERIVED_FIELD, check_bounds

MOST_EXPERTS = 2**20
"""As many as the largest mixture that was published (PEER, arXiv 2407.04153), whose loads are counted one by one."""


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
    latent_width: int = 0
    """Width to which tokens are projected before they are sent to routed experts, and from which their results are
    projected back (LatentMoE); 0 where experts read the hidden size."""
    capacity_factor: float | None = None
    """Slots per expert relative to an even split; if not given, no token is dropped."""

    def __post_init__(self) -> None:
        check_bounds(self)
        require(self.count >= 1, "count", self.count, "an MoE layer has at least 1 expert")
        require(self.count <= MOST_EXPERTS, "count", self.count, f"an MoE layer has at most {MOST_EXPERTS:,} experts")
        valid = 1 <= self.active <= self.count
        require(valid, "active", self.active, f"must be 1 … {self.count}, the experts there are")
        require(self.ffn >= 1, "ffn", self.ffn, "must be at least 1")
        require(self.shared_ffn >= 0, "shared_ffn", self.shared_ffn, "must not be negative")
        require(self.dense_first >= 0, "dense_first", self.dense_first, "must not be negative")
        require(self.every >= 1, "every", self.every, "must be at least 1")
        require(self.latent_width >= 0, "latent_width", self.latent_width, "must not be negative")
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
        divides = self.size >= self.patch and self.size % self.patch == 0
        require(divides, "size", self.size, f"must be a multiple of the patch, {self.patch}")

    @property
    def tokens(self) -> int:
        """Tokens of one image."""
        return (self.size // self.patch) ** 2 + self.class_token


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSpace:
    """A mixer that carries a state along the sequence instead of attending to all of it.

    For each sequence, whatever its length, that is `heads` matrices of `state` by `head_dim` numbers.

        mamba2   Mamba-2 (Dao and Gu, arXiv 2405.21060): one decay per head, computed in chunks by matrix products
        delta    gated DeltaNet (Yang et al., arXiv 2412.06464): the state forgets what a key held before
        mamba1   Mamba (Gu and Dao, arXiv 2312.00752): one decay per channel and state, scanned element by element
    """

    kind: Literal["mamba2", "delta", "mamba1"] = "mamba2"
    heads: int
    """Heads; of a gated DeltaNet its value heads, of Mamba-1 its channels."""
    head_dim: int = 1
    """Width of one head, of a gated DeltaNet that of its values; 1 in Mamba-1."""
    groups: int = 1
    """Heads of what writes to the state and reads from it (B and C, keys and queries), each shared by a group."""
    state: int
    """Numbers that a channel keeps; of a gated DeltaNet the width of its keys."""
    conv: int = 4
    """Tokens under the causal convolution."""
    conv_bias: bool = True
    """Whether the convolution has a bias."""
    rank: int = 0
    """Rank of the time steps of Mamba-1."""
    norm: bool = True
    """Whether the gated output is normalised before it is projected; of Mamba-1, whether time steps, B and C are."""
    chunk: int = 128
    """Tokens that matrix products compute at once."""

    def __post_init__(self) -> None:
        check_bounds(self)
        for name in ("heads", "head_dim", "groups", "state", "conv", "chunk"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "must be at least 1")
        require(self.heads % self.groups == 0, "groups", self.groups, f"must divide heads, {self.heads}")
        is_mamba1 = self.kind == "mamba1"
        rule = "Mamba-1 needs one" if is_mamba1 else f"{self.kind} has none: leave it out"
        require((self.rank >= 1) == is_mamba1, "rank", self.rank, rule)
        channels = not is_mamba1 or (self.head_dim == 1 and self.groups == 1)
        require(channels, "head_dim", self.head_dim, "Mamba-1 has channels as heads: leave out head_dim and groups")

    @property
    def inner(self) -> int:
        """Width of all heads together."""
        return self.heads * self.head_dim

    @property
    def convolved(self) -> int:
        """Channels under the convolution."""
        return self.inner + (0 if self.kind == "mamba1" else 2 * self.groups * self.state)

    @property
    def projected(self) -> int:
        """Columns of the projection before it: the gate, what is convolved, and one or two numbers per head."""
        scalars = {"mamba2": 1, "delta": 2, "mamba1": 0}[self.kind]
        return self.inner + self.convolved + scalars * self.heads

    @property
    def kept(self) -> int:
        """Numbers of the state of one sequence."""
        return self.inner * self.state

    def parameters(self, hidden: int) -> int:
        """Return its parameters in a model of a *hidden* size: projections, convolution, decays, norms inside."""
        total = hidden * self.projected + self.inner * hidden + self.convolved * (self.conv + self.conv_bias)
        if self.kind == "mamba2":
            return total + 3 * self.heads + self.norm * self.inner  # decay, skip and time step of each head
        if self.kind == "delta":
            return total + 2 * self.heads + self.norm * self.head_dim
        small = self.rank + 2 * self.state
        steps = self.inner * (small + self.rank + 1) + self.norm * small
        return total + steps + self.kept + self.inner


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseAttention:
    """Attention to few keys (DeepSeek-V4): all heads read one vector per token, of a window and of compressed blocks.

    Layers differ in what they compress: nothing (``W``), blocks of which each query picks some by an index (``C``), or
    larger blocks, all of which it reads (``H``).
    """

    q_lora_rank: int
    """Width of the compressed query."""
    o_lora_rank: int
    """Width to which each group of heads is projected, before all are projected to the hidden size."""
    o_groups: int
    """Groups of heads in that projection."""
    window: int
    """Last tokens that every query reads."""
    block: int = 4
    """Tokens of a compressed key in layers C."""
    picked: int
    """Compressed keys that a query reads in layers C."""
    large_block: int = 128
    """Tokens of a compressed key in layers H."""
    index_heads: int
    """Heads of the index of layers C."""
    index_dim: int
    """Width of one of them."""

    def __post_init__(self) -> None:
        check_bounds(self)
        sizes = ("q_lora_rank", "o_lora_rank", "o_groups", "window", "block", "picked", "large_block")
        for name in (*sizes, "index_heads", "index_dim"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "must be at least 1")

    def compressed(self, kind: str) -> int:
        """Return the tokens of a compressed key in layers of a kind; 0 where nothing is compressed."""
        return self.block if kind.startswith("sparse_") else self.large_block if kind.startswith("heavy_") else 0

    def columns(self, kind: str, width: int) -> int:
        """Return the columns that compress tokens to *width*: small blocks overlap, and have twice as many."""
        return 2 * width if kind.startswith("sparse_") else width

    def parameters(self, kind: str, hidden: int, heads: int, kv_heads: int, width: int) -> int:
        """Return its parameters in layers of a *kind*: projections, what compresses keys, and the index."""
        rank = self.q_lora_rank
        query = hidden * rank + rank + rank * heads * width
        out = heads * width * self.o_lora_rank + self.o_groups * self.o_lora_rank * hidden
        total = query + hidden * kv_heads * width + width + out
        if not self.compressed(kind):
            return total
        total += 2 * hidden * self.columns(kind, width) + width
        if not kind.startswith("sparse_"):
            return total
        index = 2 * hidden * self.columns(kind, self.index_dim) + self.index_dim
        return total + rank * self.index_heads * self.index_dim + hidden * self.index_heads + index


def mixing_parameters(model: Transformer) -> int:
    """Return the parameters that mix n residual streams before and after a mixer: into one, back into n, and n by n."""
    n = model.residual_streams
    return (n * n + 2 * n) * n * model.hidden


def attention_parameters(model: Transformer) -> int:
    """Return the parameters of one attention block: projections, their biases, norms inside."""
    if model.mla:
        return _mla_parameters(model, model.mla)
    query, keys = model.heads * model.head_dim, model.kv_heads * model.head_dim
    weights = model.hidden * (query + 2 * keys) + query * model.hidden
    weights += model.attention_gate * model.hidden * query
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


def ffn_parameters(model: Transformer) -> int:
    """Return the parameters of a dense feed-forward layer."""
    weights = (2 + model.gated) * model.hidden * model.ffn
    return weights + ("ffn" in model.biases) * ((1 + model.gated) * model.ffn + model.hidden)


def moe_parameters(model: Transformer, counted: int) -> int:
    """Return the parameters of one MoE layer, counting *counted* routed experts."""
    experts = model.experts
    if experts is None:
        return 0
    d, matrices = model.hidden, 2 + model.gated
    width = experts.latent_width or d
    biases = ("experts" in model.biases) * ((1 + model.gated) * experts.ffn + width)
    routed = counted * (matrices * width * experts.ffn + biases) + 2 * d * experts.latent_width
    shared = matrices * d * experts.shared_ffn + experts.shared_gate * d
    router = experts.count * (d + ("router" in model.biases))
    return routed + shared + router


def norm_parameters(model: Transformer) -> int:
    """Return the parameters of one norm."""
    return model.hidden * (1 + (model.norm == "layernorm" and model.norm_bias))


def embedding_parameters(model: Transformer) -> int:
    """Return the parameters before the first layer and after the last norm."""
    d, norm = model.hidden, norm_parameters(model)
    total = d * (model.positions + model.segments) + model.position_buckets * model.heads
    total += model.embedding_norm * norm + ("head" in model.biases) * model.vocab
    if model.pretraining_heads:
        total += 2 * (d * d + d) + norm + 2 * (d + 1)
    if model.image:
        patch = model.image.channels * model.image.patch**2
        return total + d * (patch + 1 + model.image.class_token) + d * model.vocab
    return total + d * model.vocab * (1 if model.tied_embeddings else 2)


Bias = Literal["qkv", "out", "ffn", "experts", "router", "head"]


MIXERS = {"*": "", "M": "state_", "P": "parallel_", "W": "window_", "C": "sparse_", "H": "heavy_"}
"""Letters of a pattern for layers with a mixer: attention, a state space, both side by side, or attention to few keys
of three kinds; and how the names of their kinds start."""
FEW_KEYS = frozenset("WCH")
ALONE = {"*": "attention_layer", "M": "state_layer", "-": "ffn_layer", "E": "experts_layer"}
"""Letters of a pattern whose layers are a single mixer each, and the names of these kinds."""
MOST_LETTERS = 4096
"""Of a pattern, and layers of a model that has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transformer:
    """A stack of attention and feed-forward layers: language models, encoders, vision transformers.

    With a `pattern`, some layers have a state space in place of attention (Mamba, gated DeltaNet).
    """

    name: str = ""
    checkpoint: str = ""
    """What an engine loads to serve it: a name on the Hugging Face Hub, or a folder. If not given, that of `name`."""
    family: Literal["decoder", "encoder", "encoder_decoder", "vision"] = "decoder"
    layers: int
    """Layers; of an encoder-decoder, the decoder's."""
    encoder_layers: int = 0
    """Layers of the encoder of an encoder-decoder."""
    hidden: int
    """Hidden size."""
    heads: int
    """Attention heads."""
    kv_heads: int = DERIVED_FIELD
    """Key and value heads: all `heads` (the default), fewer (grouped-query) or one (multi-query)."""
    head_dim: int = DERIVED_FIELD
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
    pattern: str = ""
    """The mixer of each layer, one letter each, repeated as often as it takes: ``*`` attention, ``M`` a state space,
    ``P`` both side by side, ``W C H`` attention to few keys (DeepSeek-V4). All layers attend if it is empty."""
    single_mixers: bool = False
    """Whether a layer is a single mixer (Nemotron-H, Mamba-2): then ``-`` is a feed-forward network, ``E`` are experts;
    and `norms_per_layer` is that of such a layer."""
    ssm: StateSpace | None = None
    """The state space of layers ``M`` and ``P``."""
    sparse: SparseAttention | None = None
    """The attention of layers ``W``, ``C`` and ``H``."""
    residual_streams: int = 1
    """Copies of the residual stream that layers mix (hyper-connections of DeepSeek-V4)."""
    rope: bool = True
    """Whether attention has rotary positions, where it has no others."""
    attention_gate: bool = False
    """Whether a gate, projected from the layer's input, scales the output of each attention head (Qwen3-Next)."""
    mtp_layers: int = 0
    """Modules that predict further tokens while training (DeepSeek-V3): each a projection of two hidden vectors to
    one, a last layer again, and the head again."""
    experts: Experts | None = None
    mla: MLA | None = None
    image: Image | None = None
    context: int | None = None
    """Tokens that a request may have at most, prompt and answer together; None: not known."""

    def __post_init__(self) -> None:
        check_bounds(self)
        self._check_pattern()
        for name in ("layers", "hidden", "heads", "ffn", "vocab", "norms_per_layer", "residual_streams"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "must be at least 1")
        for name in ("encoder_layers", "positions", "position_buckets", "segments", "mtp_layers"):
            require(getattr(self, name) >= 0, name, getattr(self, name), "must not be negative")
        for name in ("window", "full_attention_every", "context"):
            value = getattr(self, name)
            require(value is None or value >= 1, name, value, "must be at least 1")
        self._complete_attention()
        split = self.family == "encoder_decoder"
        rule = "an encoder_decoder needs some" if split else f"a {self.family} has no separate encoder"
        require((self.encoder_layers > 0) == split, "encoder_layers", self.encoder_layers, rule)
        vision = self.family == "vision"
        rule = "must say how images become tokens" if vision else f"a {self.family} reads no images"
        require((self.image is not None) == vision, "image", self.image, rule)

    def _check_pattern(self) -> None:
        letters = ALONE if self.single_mixers else MIXERS
        valid = set(self.pattern) <= set(letters) and len(self.pattern) <= MOST_LETTERS
        rule = f"must have the letters {' '.join(letters)} alone, at most {MOST_LETTERS:,}"
        require(valid, "pattern", self.pattern, rule)
        few = not self.pattern or self.layers <= MOST_LETTERS
        require(few, "layers", self.layers, f"must be at most {MOST_LETTERS:,} with a pattern")
        require(bool(self.pattern) or not self.single_mixers, "single_mixers", True, "needs a pattern of layers")
        decodes = self.family == "decoder" or not (self.pattern or self.mtp_layers)
        where = "pattern" if self.pattern else "mtp_layers"
        require(decodes, where, getattr(self, where), f"only decoders have one, not a {self.family}")
        states = bool({"M", "P"} & set(self.pattern))
        rule = "layers M and P of the pattern need one" if states else "the pattern has no layers M or P: leave it out"
        require((self.ssm is not None) == states, "ssm", self.ssm, rule)
        few = bool(FEW_KEYS & set(self.pattern))
        rule = "layers W, C and H need one" if few else "the pattern has no layers W, C or H: leave it out"
        require((self.sparse is not None) == few, "sparse", self.sparse, rule)
        grouped = self.sparse is None or self.heads % self.sparse.o_groups == 0
        require(grouped, "heads", self.heads, "must divide by sparse.o_groups")
        plain = self.residual_streams == 1 or (bool(self.pattern) and not self.single_mixers)
        require(plain, "residual_streams", self.residual_streams, "needs a pattern of layers of two mixers each")
        mixed = self.single_mixers and self.experts is not None
        placed = not mixed or (self.experts.dense_first == 0 and self.experts.every == 1)  # type: ignore[union-attr]
        require(placed, "experts", self.experts, "layers E of the pattern have them: leave out dense_first and every")
        named = not self.single_mixers or (self.experts is not None) == ("E" in self.pattern)
        rule = "layers E of the pattern need them" if self.experts is None else "the pattern has no layers E"
        require(named, "experts", self.experts, rule)

    def _complete_attention(self) -> None:
        if self.kv_heads is DERIVED_FIELD:
            object.__setattr__(self, "kv_heads", self.heads)
        if self.head_dim is DERIVED_FIELD:
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


Model = Transformer | Recommender | ProgramModel


def count_parameters(model: Model) -> int:
    """Return the parameters that gradients train: a router's load-balancing bias, set by rule, does not count.

    >>> count_parameters(Transformer(layers=1, hidden=4, heads=2, ffn=16, vocab=10, norm="rmsnorm"))
    284
    """
    if isinstance(model, Recommender):
        return sum(model.tables) * model.embedding + _mlp_parameters(model)
    if isinstance(model, ProgramModel):
        return model.parameters
    return _transformer_parameters(model, model.experts.count if model.experts else 0)


def count_active_parameters(model: Model) -> int:
    """Return the parameters that one token uses: of the routed experts, those it is routed to.

    Input embedding and output head count in full, a recommender's tables with the rows that are looked up.
    """
    if isinstance(model, Recommender):
        return len(model.tables) * model.lookups * model.embedding + _mlp_parameters(model)
    if isinstance(model, ProgramModel):
        return model.parameters
    return _transformer_parameters(model, model.experts.active if model.experts else 0)


def has_tokens(model: Model) -> bool:
    """Return whether the samples of *model* are sequences of tokens; pictures and rows of a table are samples alone."""
    return "sequence" in model.sizes if isinstance(model, ProgramModel) else isinstance(model, Transformer)


def is_moe_layer(model: Transformer, layer: int) -> bool:
    """Return whether layer number *layer* is an MoE layer."""
    experts = model.experts
    if model.single_mixers:
        return model.pattern[layer % len(model.pattern)] == "E"
    if experts is None or layer < experts.dense_first:
        return False
    return (layer - experts.dense_first + 1) % experts.every == 0


def is_moe(model: Model) -> bool:
    """Return whether *model* is an MoE model."""
    return isinstance(model, Transformer) and model.experts is not None


def count_moe_layers(model: Transformer) -> int:
    """Return the number of MoE layers."""
    experts = model.experts
    if model.pattern:
        return sum(is_moe_layer(model, layer) for layer in range(model.layers))
    return max(0, model.layers - experts.dense_first) // experts.every if experts else 0


def layer_kind(model: Transformer, layer: int) -> str:
    """Return the kind of layer number *layer*: what its mixer is, and whether it has experts.

    >>> sizes = {"hidden": 4, "heads": 2, "ffn": 8, "vocab": 10, "ssm": StateSpace(heads=2, state=4)}
    >>> [layer_kind(Transformer(layers=4, pattern="MM*", **sizes), layer) for layer in range(4)]
    ['state_layer', 'state_layer', 'layer', 'state_layer']
    """
    letter = model.pattern[layer % len(model.pattern)] if model.pattern else "*"
    if model.single_mixers:
        return ALONE[letter]
    return f"{MIXERS[letter]}{'moe_' if is_moe_layer(model, layer) else ''}layer"


@cache
def layer_kinds(model: Transformer) -> Mapping[str, int]:
    """Return the number of layers of each kind, in the order in which kinds appear.

    Where there is no pattern, dense layers come before MoE layers.
    """
    if not model.pattern:
        moe = count_moe_layers(model)
        return {name: count for name, count in (("layer", model.layers - moe), ("moe_layer", moe)) if count}
    return dict(Counter(layer_kind(model, layer) for layer in range(model.layers)))


def tensor_parts(model: Transformer | ProgramModel, *, pads: bool = False) -> int:
    """Return the largest number of ranks over which tensor parallelism can split a model: others divide it.

    With *pads*, heads and widths are padded; 0 then stands for any number. State spaces are never padded.

    >>> tensor_parts(Transformer(layers=1, hidden=8, heads=8, ffn=12, vocab=10))
    4
    """
    if isinstance(model, ProgramModel):
        return gcd(*model.split_sizes("tp")) or 1
    ssm = (model.ssm.heads, model.ssm.groups if model.ssm.kind != "mamba1" else 0) if model.ssm else ()
    if pads:
        return gcd(*ssm)
    return gcd(model.heads, model.ffn, *ssm, model.sparse.o_groups if model.sparse else 0)


def context_parts(model: Transformer | ProgramModel, tp: int = 1) -> int:
    """Return the largest number of ranks over which context parallelism can split a model; 0 for any number.

    The heads of a state space are split over tp and cp together; the scan of Mamba-1 is not split at all.
    """
    if isinstance(model, ProgramModel) or model.ssm is None:
        return (gcd(*model.split_sizes("cp")) or 1) if isinstance(model, ProgramModel) else 0
    return 1 if model.ssm.kind == "mamba1" else max(1, model.ssm.heads // tp)


def served_model(model: Model) -> Model:
    """Return a model as it is served: without what predicts further tokens while training."""
    return replace(model, mtp_layers=0) if isinstance(model, Transformer) and model.mtp_layers else model


def _transformer_parameters(model: Transformer, routed: int) -> int:
    """Return the parameters, counting *routed* experts in each MoE layer."""
    norm = norm_parameters(model)
    total = embedding_parameters(model) + model.final_norm * norm
    if model.residual_streams > 1:
        total += model.residual_streams**2 * model.hidden + model.layers * 2 * mixing_parameters(model)
    total += sum(count * layer_parameters(model, kind, routed) for kind, count in layer_kinds(model).items())
    if model.family == "encoder_decoder":
        encoder_layer = attention_parameters(model) + model.norms_per_layer * norm + ffn_parameters(model)
        cross_attention = attention_parameters(model) + norm
        total += model.encoder_layers * encoder_layer + model.layers * cross_attention
        total += model.final_norm * norm + model.position_buckets * model.heads
    return total + model.mtp_layers * _mtp_parameters(model, routed)


def layer_parameters(model: Transformer, kind: str, routed: int) -> int:
    """Return the parameters of a layer of one kind, counting *routed* experts."""
    total = model.norms_per_layer * norm_parameters(model)
    if kind in ("attention_layer", "layer", "moe_layer") or kind.startswith("parallel_"):
        total += attention_parameters(model)
    if model.ssm and kind.startswith(("state_", "parallel_")):
        total += model.ssm.parameters(model.hidden)
    if model.sparse and kind.startswith(("window_", "sparse_", "heavy_")):
        heads = (model.heads, model.kv_heads, model.head_dim)
        total += model.sparse.parameters(kind, model.hidden, *heads) + model.sinks * model.heads
    if kind == "experts_layer" or "moe_" in kind:
        return total + moe_parameters(model, routed)
    alone = model.single_mixers and kind != "ffn_layer"
    return total if alone else total + ffn_parameters(model)


def _mtp_parameters(model: Transformer, routed: int) -> int:
    """Return the parameters of a module that predicts a further token: three norms, a projection, a layer."""
    norm = norm_parameters(model)
    layers = sum(layer_parameters(model, kind, routed) for kind in mtp_kinds(model))
    # Two norms before the projection of [embedding, output] (2 h × h), and one after the layer.
    return layers + 3 * norm + 2 * model.hidden**2


def mtp_kinds(model: Transformer) -> tuple[str, ...]:
    """Return the kinds of the layers of a module that predicts a further token: attention, and what follows it last."""
    if model.single_mixers:
        return ("attention_layer", "experts_layer" if model.experts else "ffn_layer")
    first = "window_" if model.sparse else ""
    return (f"{first}{'moe_' if model.experts and count_moe_layers(model) else ''}layer",)


def _mlp_parameters(model: Recommender) -> int:
    vectors = len(model.tables) + 1  # one for each table and one for the dense features
    interactions = vectors * (vectors - 1) // 2 + model.embedding
    widths = [(model.dense_features, *model.bottom), (interactions, *model.top)]
    return sum((inputs + 1) * outputs for stack in widths for inputs, outputs in pairwise(stack))
