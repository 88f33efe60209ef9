"""The requests of a load: when each arrives, how long it is, of which class, and what the prefix cache has of it.

A closed loop states no arrivals: so many requests are in flight, and when one completes, the next is sent. In an open
loop the times between arrivals have a Gamma distribution (Poisson at a coefficient of variation of 1, even at 0).
Lengths are lognormal. All numbers follow from the seed, each kind from a stream of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from cosmic.design.serving import Load, RequestClass
from cosmic.errors import require

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

MOST_REQUESTS = 2_000_000
"""The most requests that are simulated at once."""
MOST_TOKENS = 10_000_000
"""The longest input or output of a request."""
USUAL_REQUESTS = 2_000
"""Requests of a load that states no number, or more: `USUAL_ROUNDS` of each client."""
USUAL_ROUNDS = 12
GOLDEN = 0.6180339887498949
BLOCK_TOKENS = 512
"""Tokens of a block of `Requests.blocks`, as traces of Mooncake have it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """Requests in the order of their arrival; an array element each."""

    arrival_s: Floats
    """Seconds from the first; of a closed loop zeros, as completions decide."""
    input_tokens: Ints
    output_tokens: Ints
    kind: Ints
    """Place of the class among `classes`."""
    cached_tokens: Ints
    """Input tokens that the prefix cache is known to have, wherever the request goes."""
    classes: tuple[RequestClass, ...]
    concurrency: int | None = None
    """Requests in flight, in a closed loop."""
    steady: bool = False
    """Whether they stand for a load that has lasted for long: then the first and the last are not measured."""
    haste: Floats | None = None
    """What the engine's front end takes of each, over its mean; 1 if not given. Equal requests come apart by it."""
    blocks: tuple[tuple[int, ...], ...] | None = None
    """For each request the blocks of its input, equal ones for equal prefixes: they decide what a cache has."""
    skipped: int = 0
    """Rows of a trace without tokens: requests that failed when they were traced."""

    def __post_init__(self) -> None:
        count = len(self.arrival_s)
        require(1 <= count <= MOST_REQUESTS, "requests", count, f"must be from 1 to {MOST_REQUESTS:,}")
        for name in ("input_tokens", "output_tokens"):
            lengths = getattr(self, name)
            fits = len(lengths) == count and lengths.min() >= 1 and lengths.max() <= MOST_TOKENS
            require(bool(fits), name, [int(lengths.min()), int(lengths.max())], f"must be from 1 to {MOST_TOKENS:,}")
        ordered = bool(np.all(np.diff(self.arrival_s) >= 0)) and np.isfinite(self.arrival_s).all()
        require(bool(ordered), "arrival", count, "arrivals must be finite, and in order")

    @property
    def count(self) -> int:
        """Number of requests."""
        return len(self.arrival_s)

    def scaled(self, scale: float) -> Requests:
        """Return the same requests with *scale* times as long between arrivals: 0.5 is twice the rate."""
        require(bool(np.isfinite(scale)) and scale > 0, "scale", scale, "must be positive")
        return replace(self, arrival_s=self.arrival_s * scale)

    def at_rate(self, rate: float) -> Requests:
        """Return the same requests, stretched to *rate* a second on average."""
        require(bool(np.isfinite(rate)) and rate > 0, "rate", rate, "must be positive")
        last = float(self.arrival_s[-1])
        require(last > 0, "rate", rate, "all requests of the trace arrive at once: there is no rate to change")
        return self.scaled((self.count - 1) / rate / last)

    def first(self, count: int) -> Requests:
        """Return the first *count* requests."""
        arrays = ("arrival_s", "input_tokens", "output_tokens", "kind", "cached_tokens")
        kept: dict[str, Any] = {name: getattr(self, name)[:count] for name in arrays}
        haste = None if self.haste is None else self.haste[:count]
        return replace(self, **kept, haste=haste, blocks=self.blocks and self.blocks[:count])


def requests_of(load: Load, count: int | None = None, duration_s: float | None = None, seed: int = 0) -> Requests:
    """Return *count* requests of *load*, or those of *duration_s* of an open loop; the same for the same *seed*.

    A closed loop with rounds has as many as its clients send. If nothing is stated, as many as make means steady.

    >>> load = Load(classes=(RequestClass(isl=100, osl=10),), rate=10, arrival_cv=0)
    >>> requests_of(load, count=3).arrival_s.tolist()
    [0.0, 0.1, 0.2]
    """
    wanted = _count(load, count, duration_s)
    chosen = _classes(load, wanted, _stream(seed, 0))
    lengths = [
        _lengths(load.all_classes, chosen, name, _stream(seed, place)) for place, name in ((1, "isl"), (2, "osl"))
    ]
    shares = np.array([each.prefix_hit for each in load.all_classes])
    arrival = np.zeros(wanted) if load.rate is None else _arrivals(load.rate, load.arrival_cv, wanted, _stream(seed, 3))
    found = Requests(
        arrival_s=arrival,
        input_tokens=lengths[0],
        output_tokens=lengths[1],
        kind=chosen,
        cached_tokens=np.minimum(np.floor(shares[chosen] * lengths[0]).astype(np.int64), lengths[0] - 1),
        classes=load.all_classes,
        concurrency=load.concurrency,
        steady=load.rounds is None,
        haste=haste_of(wanted, seed),
    )
    if duration_s is None:
        return found
    return found.first(max(1, int(np.searchsorted(arrival, duration_s, side="right"))))


def haste_of(count: int, seed: int) -> Floats:
    """Return numbers from 0 to 2 that are even over any part of them: multiples of the golden ratio, cut to that."""
    start = _stream(seed, 4).random()
    found: Floats = 2 * np.mod(start + np.arange(count) * GOLDEN, 1.0)
    return found


def _count(load: Load, count: int | None, duration_s: float | None) -> int:
    """Return how many requests are drawn: for a duration a few more than are expected."""
    if duration_s is not None:
        require(bool(np.isfinite(duration_s)) and duration_s > 0, "duration", duration_s, "must be positive")
        require(load.rate is not None, "duration", duration_s, "a closed loop has a number of requests, no duration")
        assert load.rate is not None  # noqa: S101  as was required
        expected = load.rate * duration_s
        wanted = expected + 10 * (1 + load.arrival_cv) * np.sqrt(expected + 1) + 10
    elif count is not None:
        wanted = count
    elif load.concurrency is not None:
        wanted = load.concurrency * load.rounds if load.rounds else load.concurrency * USUAL_ROUNDS
        wanted = wanted if load.rounds else max(wanted, USUAL_REQUESTS)
    else:
        wanted = USUAL_REQUESTS
    require(1 <= wanted <= MOST_REQUESTS, "requests", wanted, f"must be from 1 to {MOST_REQUESTS:,}")
    return int(wanted)


def _stream(seed: int, place: int) -> np.random.Generator:
    require(isinstance(seed, int) and 0 <= seed < 2**63, "seed", seed, "must be a whole number from 0")
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, place))))


def _classes(load: Load, count: int, stream: np.random.Generator) -> Ints:
    """Return the class of each request, by the shares of the classes."""
    if len(load.all_classes) == 1:
        return np.zeros(count, dtype=np.int64)
    bounds = np.cumsum([each.share for each in load.all_classes])
    found: Ints = np.searchsorted(bounds[:-1] / bounds[-1], stream.random(count), side="right").astype(np.int64)
    return found


def _lengths(classes: tuple[RequestClass, ...], chosen: Ints, name: str, stream: np.random.Generator) -> Ints:
    """Return whole lengths, lognormal with the mean and spread of their class, of one token at least."""
    mean = np.array([getattr(each, name) for each in classes])[chosen]
    spread = np.array([getattr(each, f"{name}_cv") for each in classes])[chosen]
    variance = np.log1p(spread**2)
    drawn = mean * np.exp(np.sqrt(variance) * stream.standard_normal(len(chosen)) - variance / 2)
    drawn = np.where(mean > 1, drawn, 1.0)  # nothing is shorter, so nothing may be longer
    found: Ints = np.clip(np.rint(drawn), 1, MOST_TOKENS).astype(np.int64)
    return found


def _arrivals(rate: float, cv: float, count: int, stream: np.random.Generator) -> Floats:
    """Return arrivals from 0; the times between them have the mean 1/rate and the stated spread."""
    if cv == 0:
        return np.arange(count) / rate
    shape = 1 / cv**2
    between = stream.standard_gamma(shape, count - 1) / shape / rate
    return np.concatenate([[0.0], np.cumsum(between)])
