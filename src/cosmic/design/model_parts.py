"""The parts that some transformers have: experts, other kinds of attention, state spaces, images as tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cosmic.design.bounds import check_bounds
from cosmic.errors import require

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
        some = 1 <= self.active <= self.count
        require(some, "active", self.active, f"must be 1 … {self.count}, the experts there are")
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
        whole = self.size >= self.patch and self.size % self.patch == 0
        require(whole, "size", self.size, f"must be a multiple of the patch, {self.patch}")

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
        one = self.kind == "mamba1"
        rule = "Mamba-1 needs one" if one else f"{self.kind} has none: leave it out"
        require((self.rank >= 1) == one, "rank", self.rank, rule)
        channels = not one or (self.head_dim == 1 and self.groups == 1)
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
