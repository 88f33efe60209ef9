"""What the steps of an engine instance take by the prompts in them: the closed form of continuous batching.

Ranks of attention step together. Of the G prompts of a step, the rank with most, or with the longest, says how long it
is; of routed experts every rank takes an equal share:

    S(G) = d + A + (M - 1) o + (G - 1)/k e        A  what one prompt on one rank adds      k  ranks
    M    = max(1 + c z(h), λ + z(k) √(λ (1 + c²)))                             λ  = G / k
                                                  o  what a further prompt of the same rank adds
                                                  e  what a prompt on every rank adds by the experts
                                                  c  spread of lengths      h  ranks that have any prompt
                                                  z  how far the largest of so many numbers is above their mean

Attention grows with the square of a length. With stages, the next step follows after d + (S - d) / stages, so that
chunks and prompts follow each other, and a step's tokens come out after all of S.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cosmic.serving.price import StepPrice

LEAST = 1e-9
MOST_CUT, TAIL = 16, 4.0
"""Chunks of prompts of different lengths that are counted one by one, and the longest prompt of them over the mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """Requests at one rank of attention, and the limits of a step; numbers, or arrays over a batch."""

    clients: Any = 1.0
    """m: requests in flight, in a closed loop."""
    isl: Any
    """Mean tokens of a prompt."""
    osl: Any
    """Mean tokens of an answer."""
    isl_cv: Any = 0.0
    osl_cv: Any = 0.0
    prefix_hit: Any = 0.0
    """Share of a prompt that the cache has already."""
    tokens_per_step: Any = 1.0
    """v: above 1 with speculative decoding."""
    max_tokens: Any = 8192
    """Most tokens of a step."""
    seats: Any = np.inf
    """Most requests that run at once."""
    ranks: Any = 1.0
    """k: ranks of attention of an instance."""
    devices: Any = 1.0
    """Devices of a rank: what splits a layer, and stages."""
    stages: Any = 1.0
    """Stages of the pipeline that a rank's layers are cut into."""
    mla: Any = 0.0
    """1 where the model has multi-head latent attention."""
    poll_steps: Any = 0.0
    """Steps between two looks for new requests."""
    polled_steps: Any = 0.0
    """Steps for which a request waits on average until it is looked for."""
    hold_steps: Any = 0.0
    """Most steps for which a prompt is held back, for others to be batched with it."""
    rounds: int | None = None
    """Requests that each client sends; None if the loop has lasted for long."""
    in_step: Any = True
    """Whether answers of equal length keep clients in step."""


@dataclass(frozen=True, slots=True)
class Steps:
    """What steps of an instance take: d, and S as a straight line over prompts.

    Ranks of attention step together. The rank with most prompts says how long a step is; of routed experts all ranks
    take an equal share. Stages of a pipeline work on other prompts meanwhile.
    """

    decode_s: Any
    first_s: Any
    """S(1): one prompt, on one rank."""
    more_s: Any
    """What each further prompt of a rank adds."""
    room: Any
    """K: prompts that a rank has room for; with stages, in all of them."""
    chunks: Any
    """n."""
    apart: Any
    """Whether prefills are steps of their own."""
    beside: Any = 1.0
    """Whether requests decode in steps with prompts."""
    ranks: Any = 1.0
    """k."""
    shared_s: Any = 0.0
    """What a prompt on every rank adds by the experts that ranks share."""
    vary: Any = 0.0
    """How much prompts vary in length: the longest of all ranks counts."""
    most: Any = np.inf
    """Prompts of a mean length that the tokens of a step are, at most."""
    attended_s: Any = 0.0
    """Of S(1), attention among a prompt's own tokens: it grows with the square of a length."""
    stages: Any = 1.0
    of_stage: Any = np.inf
    """Prompts of a rank that a step of one stage has room for; less than one where prompts are cut."""

    @property
    def per_step(self) -> Any:
        """Prompts of a rank that steps have room for, on average: what one leaves of a step, the next one takes."""
        return np.where(self.chunks > 1, np.maximum(self.of_stage * self.stages, 1 / self.chunks), self.room)

    def with_prompts(self, count: Any) -> Any:
        """Return S of *count* prompts of all ranks, of as many as there is room for."""
        return self._base + self._above(np.clip(count, 1.0, self.room * self.ranks))

    def held(self, count: Any) -> Any:
        """Return for how long such a step holds the engine: with stages, the next one follows before it is over."""
        return self._base + self._above(np.clip(count, 1.0, self.room * self.ranks)) / self.stages

    def own_s(self, count: Any) -> Any:
        """Return the seconds of a prompt's own steps, with others in them; chunks follow each other by stages.

        Chunks of which each takes a time c at every one of p stages take Σ c + (p - 1) max c in all.
        """
        count = np.clip(count, 1.0, self.room * self.ranks)
        prompts = self.chunks * self._above(count)
        largest = np.where(self.of_stage < 1, self.of_stage, np.minimum(self.of_stage * self.ranks / count, 1.0))
        return self.chunks * self._base + prompts * (1 + (self.stages - 1) * largest) / self.stages

    def added(self, count: Any) -> Any:
        """Return what *count* prompts add to a decode step."""
        return np.maximum(self.held(count) - np.where(self.apart, 0.0, self.decode_s), 0.0)

    @property
    def _base(self) -> Any:
        """What of a step with prompts is no prompt's."""
        return np.minimum(self.decode_s, self.first_s) * self.beside

    def _above(self, count: Any) -> Any:
        """Return what so many prompts take beyond what is no prompt's."""
        one = self.first_s - self._base
        own = np.maximum(one - self.shared_s / self.ranks, 0.0)
        own = np.where(self.room > 1, np.maximum(self.more_s - self.shared_s, 0.0), own)
        mean = count / self.ranks
        having = np.maximum(self.ranks * -np.expm1(-mean), 1.0)  # ranks that have any
        longest = self.vary * largest_of(having)
        longest = np.minimum(1 + longest + longest**2 / 4, np.maximum(self.most, 1.0))  # lengths are lognormal
        many = mean + largest_of(self.ranks) * np.sqrt(mean * (1 + self.vary**2))
        many = np.minimum(many, np.maximum(np.minimum(self.room, count), 1.0))
        squared = (longest**2 - longest + self.vary**2) * self.attended_s
        shared = (count - 1) / self.ranks * self.shared_s
        return one + (np.maximum(longest, many) - 1) * own + squared + shared


def largest_of(ranks: Any) -> Any:
    """Return how far the largest of some normal numbers is above their mean, in standard deviations.

    >>> [round(float(largest_of(each)), 2) for each in (1, 2, 8, 32)]
    [0.0, 0.56, 1.36, 2.04]
    """
    return 0.564 * np.log2(np.asarray(ranks, dtype=float)) ** 0.8


def most_running(price: StepPrice, load: Requests) -> Any:
    """Return how many requests can run at once on a rank: as many as there are seats, and as the cache holds."""
    share = np.where(price.engine.reserves_kv, 1.0, 0.5)  # admission reserves all of an answer; or caches grow
    held = np.floor(price.held_requests(load.isl + np.minimum(share * longer_answers(load), 1.0) * load.osl))
    tokens = np.where(price.engine.prefill_first, np.inf, load.max_tokens // (1 + price.draft_tokens))
    return np.minimum(np.minimum(load.seats, np.maximum(tokens, 1.0)), np.maximum(held, 1.0))


def longer_answers(load: Requests) -> Any:
    """Return how much longer the answers are that run than those that come: long ones run for longer."""
    return 1 + np.asarray(load.osl_cv, dtype=float) ** 2


def mean_context(load: Requests) -> Any:
    """Return the mean tokens of a request that runs."""
    return load.isl + load.osl / 2 * longer_answers(load)


def turns_of(load: Requests, steps: Steps) -> Any:
    """Return the steps in which a request is: those of its prompt, and one for each further token that it gains."""
    further = np.maximum(load.osl - 1, 0.0) / load.tokens_per_step
    passing = np.where(np.logical_and(steps.apart, load.osl > 1), 0.0, steps.stages - 1)
    return np.where(steps.apart, 1.0, steps.chunks) + passing + further


def fed(load: Requests, steps: Steps) -> Any:
    """Return how many requests run at most, as steps have room for so many prompts; the others wait to be prefilled."""
    return np.where(steps.apart, np.inf, steps.per_step * turns_of(load, steps))


def prompt_s(steps: Steps, together: Any = np.inf) -> Any:
    """Return the seconds between two prompts that leave a rank which does nothing else, and has as many as it can.

    *together*: prompts of all ranks in a step, if the others have fewer.
    """
    alone = np.minimum(steps.decode_s, steps.first_s) * steps.beside
    each = steps.chunks * (steps.held(np.maximum(together, steps.room)) - alone) / steps.room
    return alone / steps.per_step + each


def steps_of(price: StepPrice, load: Requests, running: Any) -> Steps:
    """Return what the steps of a load take."""
    engine, context = price.engine, mean_context(load)
    apart, ranks = np.asarray(engine.prefill_first), np.asarray(load.ranks, dtype=float)
    fresh, cached = np.maximum(load.isl * (1 - load.prefix_hit), 1.0), load.isl * load.prefix_hit
    mixed = np.where(apart, 0.0, load.osl > 1)  # a single token is that of the prompt
    others = np.maximum(running - 1, 0.0)
    decoding = mixed * others * (1 + price.draft_tokens) / 2  # fewer at first, when prompts are many
    budget = np.maximum(load.max_tokens - decoding, 1.0)
    of_stage = np.where(engine.chunked_prefill, budget / fresh, np.maximum(np.floor(budget / fresh + LEAST), 1.0))
    whole = of_stage * load.stages
    chunks = np.where(engine.chunked_prefill, _chunks(whole, load.isl_cv), 1.0)
    room = np.clip(whole, 1.0, np.maximum(np.ceil(running), 1.0))
    several = np.ceil(room - LEAST)
    tokens = np.maximum(fresh / chunks, 1.0)
    before = cached + (fresh - tokens) / 2
    beside = mixed * np.maximum(running - 1 / ranks, 0.0)
    first = price.mixed_s(tokens, beside, context, before, 1.0)
    full = price.mixed_s(tokens, beside, context, before, several)
    more = (full - first) / np.maximum(several - 1, 1.0)
    decode = price.decode_s(np.maximum(running, 1.0), context)
    shared: Any = 0.0
    if np.any(ranks > 1):
        alone = price.mixed_s(tokens, beside, context, before, 1.0, ranks)
        shared = np.where(ranks > 1, (first - alone) * ranks / np.maximum(ranks - 1, 1.0), 0.0)
        first = np.where(ranks > 1, np.maximum(alone, decode), first)
    vary = np.asarray(load.isl_cv, dtype=float)
    attended = price.prefill_factor * price.chunk_attention(tokens, 1.0, before) if np.any(vary > 0) else 0.0
    longest = np.where(engine.chunked_prefill, whole * chunks, np.inf)
    return Steps(
        *(decode, first, more, room, chunks, apart, np.minimum(beside, 1.0), ranks, shared, vary, longest, attended),
        load.stages,
        of_stage,
    )


def _chunks(room: Any, spread: Any) -> Any:
    """Return the steps that a prompt takes on average, if a step has *room* for so much of a mean one.

    >>> [round(float(_chunks(room, cv)), 2) for room, cv in ((2.0, 0.0), (0.9, 0.0), (1.0, 0.5), (0.05, 0.5))]
    [1.0, 2.0, 1.46, 20.5]
    """
    room, spread = np.broadcast_arrays(np.asarray(room, dtype=float), np.asarray(spread, dtype=float))
    equal = np.maximum(np.ceil(1 / room - LEAST), 1.0)
    if not np.any(spread > 0):
        return equal
    sigma = np.sqrt(np.log1p(np.maximum(spread, LEAST) ** 2))
    found = np.ones_like(room)
    for place in range(1, MOST_CUT):
        found = found + _above_normal(np.log(place * room) / sigma + sigma / 2)
    return np.where(spread > 0, np.where(room * MOST_CUT > TAIL, found, 1 / room + 0.5), equal)


def _above_normal(value: Any) -> Any:
    """Return how likely a standard normal number is above a value (a logistic curve, to 0.01)."""
    value = np.clip(value, -8.0, 8.0)
    return 1 / (1 + np.exp(1.5976 * value + 0.07056 * value**3))
