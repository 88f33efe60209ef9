"""The serving layer: which engine serves, under which load, within which limits, in one pool or two.

A design with this layer is evaluated under its load (`cosmic.serving`); of its workload only mapping and precision
count. The mapping is of all replicas: tp, pp and, with experts spread over ranks of dp, attention data parallelism make
one engine instance (`cosmic.serving.deployment`), and dp has room for several of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from cosmic.base.errors import require
from cosmic.design.schema import Absent, check_bounds

MOST_CLASSES = 64
MOST_IN_STEP = 2**20
"""Most tokens or requests of a step: more than any engine is given."""
CacheFormat = Literal["auto", "bf16", "fp8"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestClass:
    """Requests of one kind: how long they are, and within which times they are to be served."""

    name: str = "all"
    share: float = 1.0
    """Share of the requests, relative to the other classes."""
    isl: float
    """Mean input sequence length, in tokens."""
    osl: float
    """Mean output sequence length, in tokens."""
    isl_cv: float = 0.0
    """Standard deviation of the input lengths, as a share of their mean; 0 if all are equal."""
    osl_cv: float = 0.0
    """The same of output lengths."""
    prefix_hit: float = 0.0
    """Share of the input tokens that the prefix cache has already."""
    ttft_slo_s: float | None = None
    """Longest time to first token of a request that counts as good."""
    tpot_slo_s: float | None = None
    """Longest mean time per output token of a request that counts as good."""

    def __post_init__(self) -> None:
        check_bounds(self)
        _check_lengths(self)
        require(self.share > 0, "share", self.share, "must be positive")


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Requests of the clients: a closed loop of so many in flight, or so many a second.

    Requests of one kind are described here; where there are several kinds, `classes` has them instead.

    >>> [(each.name, each.isl) for each in Load(isl=4000, osl=500, concurrency=64).all_classes]
    [('all', 4000)]
    """

    isl: float | None = None
    """Mean input sequence length, in tokens."""
    osl: float | None = None
    """Mean output sequence length, in tokens."""
    isl_cv: float = 0.0
    """Standard deviation of the input lengths, as a share of their mean; 0 if all are equal."""
    osl_cv: float = 0.0
    """The same of output lengths."""
    prefix_hit: float = 0.0
    """Share of the input tokens that the prefix cache has already."""
    ttft_slo_s: float | None = None
    """Longest time to first token of a request that counts as good."""
    tpot_slo_s: float | None = None
    """Longest mean time per output token of a request that counts as good."""
    classes: tuple[RequestClass, ...] = ()
    """Requests of several kinds, in place of the lengths above. To be read as `all_classes`."""
    concurrency: int | None = None
    """Requests in flight in all instances together, in a closed loop: when one completes, its client sends the next."""
    rate: float | None = None
    """Requests a second to all instances together, in an open loop."""
    arrival_cv: float = 1.0
    """Standard deviation of the time between two arrivals, as a share of its mean: 1 is Poisson, above it bursts, 0
    even."""
    rounds: int | None = field(default=None, metadata={"most": 1000})
    """Requests that each client of a closed loop sends, all clients their first at once. If not given, the load has
    lasted for long."""

    def __post_init__(self) -> None:
        check_bounds(self)
        if self.classes:
            for name in ("isl", "osl", "ttft_slo_s", "tpot_slo_s"):
                value = getattr(self, name)
                require(value is None, name.removesuffix("_s"), value, "is of each class, as classes are given")
            for name in ("isl_cv", "osl_cv", "prefix_hit"):
                value = getattr(self, name)
                require(value == 0, name, value, "is of each class, as classes are given")
            require(len(self.classes) <= MOST_CLASSES, "classes", len(self.classes), f"at most {MOST_CLASSES} are read")
            names = [class_.name for class_ in self.classes]
            require(len({*names}) == len(names), "classes", names, "must have different names")
        else:
            for name in ("isl", "osl"):
                require(getattr(self, name) is not None, name, Absent(), "is required, or classes of requests")
            _check_lengths(self)
        both = "give either concurrency (requests in flight) or rate (requests a second), not both"
        require(self.rate is None or self.concurrency is None, "rate", self.rate, both)
        neither = "is required, or rate: requests in flight, or requests a second"
        require(self.rate is not None or self.concurrency is not None, "concurrency", Absent(), neither)
        _at_least_one(self, "concurrency", "rounds")
        require(self.rate is None or self.rate > 0, "rate", self.rate, "must be positive")
        require(self.arrival_cv >= 0, "arrival_cv", self.arrival_cv, "must not be negative")
        require(
            self.rounds is None or self.rate is None, "rounds", self.rounds, "is of a closed loop: give concurrency"
        )

    @property
    def all_classes(self) -> tuple[RequestClass, ...]:
        """The kinds of requests, one at least."""
        if self.classes:
            return self.classes
        return (RequestClass(**{name: getattr(self, name) for name in OF_REQUESTS}),)

    def mean(self, name: str) -> float:
        """Return the mean of a figure over all requests, such as ``isl``; of ``prefix_hit``, over their tokens.

        >>> chat = RequestClass(name="chat", isl=100, osl=10)
        >>> code = RequestClass(name="code", isl=400, osl=1, share=2, prefix_hit=0.9)
        >>> Load(classes=(chat, code), rate=1).mean("isl"), Load(classes=(chat, code), rate=1).mean("prefix_hit")
        (300.0, 0.8)
        """
        weights = [
            request_class.share * (request_class.isl if name == "prefix_hit" else 1.0)
            for request_class in self.all_classes
        ]
        figures = [float(getattr(request_class, name)) for request_class in self.all_classes]
        return sum(weight * figure for weight, figure in zip(weights, figures, strict=True)) / sum(weights)


OF_REQUESTS = ("isl", "osl", "isl_cv", "osl_cv", "prefix_hit", "ttft_slo_s", "tpot_slo_s")
"""What describes a class of requests; a load of one class has these itself."""


def _at_least_one(layer: Load | PrefillPool | Serving, *names: str) -> None:
    """Refuse whole numbers below 1; None is allowed."""
    for name in names:
        value = getattr(layer, name)
        require(value is None or value >= 1, name, value, "must be at least 1")


def _check_lengths(requests: RequestClass | Load) -> None:
    """Refuse lengths, shares and limits that no requests have."""
    for name in ("isl", "osl"):
        require(getattr(requests, name) >= 1, name, getattr(requests, name), "must be at least 1 token")
    for name in ("isl_cv", "osl_cv"):
        require(getattr(requests, name) >= 0, name, getattr(requests, name), "must not be negative")
    require(0 <= requests.prefix_hit < 1, "prefix_hit", requests.prefix_hit, "must be from 0 to below 1")
    for name in ("ttft_slo", "tpot_slo"):
        limit = getattr(requests, f"{name}_s")
        require(limit is None or limit > 0, name, limit, "must be positive")


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillPool:
    """Engine instances that only prefill; the design's own mapping is then that of the decode pool.

    The accelerators of a design's network are those of both pools, unless the pool is on a system of its own.
    """

    replicas: int = 1
    """Engine instances; with 0 there is no such pool, so a search can have it both ways."""
    tp: int = 1
    """Tensor parallelism of an instance."""
    pp: int = 1
    """Pipeline stages of an instance."""
    dp: int = 1
    """Attention data parallelism of an instance."""
    ep: int = 1
    """Expert parallelism of an instance, over the ranks of tp and dp."""
    etp: int | None = None
    """Ranks that split each expert. If not given, as much of tp as ep leaves."""
    max_num_batched_tokens: int | None = field(default=None, metadata={"most": MOST_IN_STEP})
    """Most tokens of one step of this pool. If not given, as the design's other instances."""
    system: str | None = None
    """System of the catalog that the pool runs on. If not given, some of the design's own accelerators."""

    def __post_init__(self) -> None:
        check_bounds(self)
        require(self.replicas >= 0, "replicas", self.replicas, "must not be negative")
        _at_least_one(self, "tp", "pp", "dp", "ep", "etp", "max_num_batched_tokens")

    @property
    def npus(self) -> int:
        """Accelerators of the pool."""
        return self.replicas * self.tp * self.pp * self.dp


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """An engine, its load and its limits."""

    engine: str = "vllm"
    """Engine of the catalog."""
    load: Load
    max_num_seqs: int | None = field(default=None, metadata={"most": MOST_IN_STEP})
    """Most requests that an instance runs at once, for each rank of attention data parallelism. If not given, as many
    as its KV cache holds, up to the engine's default."""
    max_num_batched_tokens: int | None = field(default=None, metadata={"most": MOST_IN_STEP})
    """Most tokens of one step: what of a prompt does not fit goes into the next (chunked prefill). If not given, the
    engine's default."""
    kv_cache_dtype: CacheFormat = "auto"
    """Number format of the KV cache. If not given (auto), that of the precision."""
    memory_fraction: float | None = field(default=None)
    """Share of the memory for weights and KV cache. If not given, the engine's default."""
    draft_tokens: int = field(default=0, metadata={"most": 64})
    """Tokens that speculative decoding drafts a step (MTP, EAGLE); 0 without it."""
    acceptance: float = 0.7
    """Share of drafted tokens that are accepted, one after the other: a step makes 1 + a + a² + … tokens.
    What heads that were trained for their model reach on chats."""
    prefill: PrefillPool | None = None
    """Instances for prefill alone (disaggregated); all instances do both (aggregated) if not given."""

    def __post_init__(self) -> None:
        check_bounds(self)
        _at_least_one(self, "max_num_seqs", "max_num_batched_tokens")
        share = self.memory_fraction
        require(share is None or 0 < share <= 1, "memory_fraction", share, "must be above 0, and at most 1")
        require(self.draft_tokens >= 0, "draft_tokens", self.draft_tokens, "must not be negative")
        require(0 <= self.acceptance <= 1, "acceptance", self.acceptance, "must be from 0 to 1")

    @property
    def disaggregated(self) -> bool:
        """Whether there are instances for prefill alone."""
        return self.prefill is not None and self.prefill.replicas > 0

    @property
    def tokens_per_step(self) -> float:
        """Mean tokens that a request gains a step.

        >>> Serving(load=Load(isl=1, osl=1, concurrency=1), draft_tokens=2, acceptance=0.5).tokens_per_step
        1.75
        """
        return sum(self.acceptance**index for index in range(self.draft_tokens + 1)) if self.draft_tokens else 1.0
