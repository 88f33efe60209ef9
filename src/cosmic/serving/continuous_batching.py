"""Continuous batching in closed form: what clients see of an engine instance, by its steps.

In each step an engine decodes a token of every running request, and prefills prompts: together with it (mixed), or in
steps of their own that go first. All numbers are of one rank of attention; k ranks of an instance step together.

    r    = min(m, seats, what the KV cache holds,      requests that run; the others queue
               what steps have room to prefill: o K / n)
    d    a decode step of r requests                   S(g)  a step with g prompts in it, of K that there is room for
    p    = r / (n + (o - 1) / v)                       prompts per step: a request is in so many, v tokens each
    g    prompts of all ranks in a step that has any   (`PromptGroups`, below)
    s    = d + k p n a / g                             the mean step; a = S(g) - d, or S(g) where prefills go first
    TPOT = s' / v                                      s' without the request's own prefill

A prompt longer than the step's limit of tokens takes n steps (`InstanceSteps`, below).

All clients send their first request at once, so a run begins with a burst. Later requests come apart as far as lengths
differ: those of round j arrive within a window of W steps, and find so many prompts per step:

    W    = √(W'² + 12 (j - 1) (c o / v)²), at most o / v        W'  steps of the first burst      c  of output lengths
    p_j  = r / W
    TTFT = h + u s_j + n S(g_j) + B + (m - r)/r T               a mean over rounds; of the last if there are many

    h    the engine's front end                        u     steps until the engine takes a request in
    B    prompts beyond the room of steps: half of them go first; at random, ρ² / (2 (1 - ρ)) of a full step, ρ = p / K
    T    = (o - 1) TPOT + n S(g)                       time that a request runs, of which it waits for (m - r)/r

In an open loop, a request waits for the rest of the step that it finds, in proportion to their lengths, and behind
prompts as in an M/G/1 queue: ρ / (2 (1 - ρ)) of a prompt; in bursts (a² - 1) √ρ / (2 (1 - ρ)) more. Right after its own
prompt it meets those that came in the meantime, which an engine that prefills first serves before any further token,
until none has come. In a closed loop it meets one prompt of each other client, be it as it waits or later.

A single client waits for nobody: u counts as far as others run. Where all output lengths are equal, an engine that
prefills first ends all requests together: each round is a burst (`RankLoad.in_step`).

**Steps by the prompts in them** (`InstanceSteps`).
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

**Prompts of all ranks in a step** (`PromptGroups`).
In a closed loop a prompt comes as an answer ends: so many in each step, however long it takes. In an open loop they
come at random in time. Then a long step has more of them behind it, and long steps follow each other: a chain of two
states, of which a share x of the steps is long:

    x = (1 - exp(-Λ d)) / (exp(-Λ S) / n + 1 - exp(-Λ d))      Λ  prompts a second of all ranks      G = Λ n s / x

S varies by the prompts in it, a Poisson number: at a known rate exp(-Λ S) is a mean over them, mostly of short ones.
A rank that prefills first does not decode in the steps with its own prompts, but does in those with others'.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from cosmic.design.serving_engine import Engine
from cosmic.serving.deployment import Deployment
from cosmic.serving.step_price import StepPrice

# ---- What the steps of an engine instance take by the prompts in them: the closed form of continuous batching

FLOOR_TOLERANCE = 1e-9
MOST_CUT, TAIL = 16, 4.0
"""Chunks of prompts of different lengths that are counted one by one, and the longest prompt of them over the mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankLoad:
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


def load_of_rank(deployment: Deployment) -> RankLoad:
    """Return the load of one rank of attention; in an open loop, one with a single client."""
    batch, pool = deployment.batch, deployment.pool
    rows = np.ones(batch.size)
    clients: Any = 1.0
    if deployment.load.concurrency is not None:
        clients = deployment.number("load.concurrency") / np.asarray(pool.ranks * pool.instances, dtype=float)
    return RankLoad(
        clients=rows * clients,
        isl=rows * np.asarray(deployment.mean("isl"), dtype=float),
        osl=rows * np.asarray(deployment.mean("osl"), dtype=float),
        osl_cv=rows * deployment.spread("osl"),
        isl_cv=rows * deployment.spread("isl"),
        prefix_hit=rows * np.asarray(deployment.mean("prefix_hit"), dtype=float),
        tokens_per_step=deployment.tokens_per_step,
        max_tokens=deployment.limit("max_num_batched_tokens"),
        seats=deployment.limit("max_num_seqs"),
        ranks=rows * np.asarray(pool.ranks, dtype=float),
        devices=rows * np.asarray(pool.batch["workload.tp"] * pool.batch["workload.pp"], dtype=float),
        stages=rows * np.asarray(pool.batch["workload.pp"], dtype=float),
        mla=float(getattr(batch.base.model, "mla", None) is not None),
        rounds=deployment.load.rounds,
    )


@dataclass(frozen=True, slots=True)
class InstanceSteps:
    """What steps of an instance take: d, and S as a straight line over prompts.

    Ranks of attention step together. The rank with most prompts says how long a step is; of routed experts all ranks
    take an equal share. Stages of a pipeline work on other prompts meanwhile.
    """

    decode_s: Any
    first_s: Any
    """S(1): one prompt, on one rank."""
    further_s: Any
    """What each further prompt of a rank adds."""
    room: Any
    """K: prompts that a rank has room for; with stages, in all of them."""
    chunks: Any
    """n."""
    prefill_first: Any
    """Whether prefills are steps of their own."""
    decodes_beside: Any = 1.0
    """Whether requests decode in steps with prompts."""
    ranks: Any = 1.0
    """k."""
    shared_s: Any = 0.0
    """What a prompt on every rank adds by the experts that ranks share."""
    length_cv: Any = 0.0
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

    def occupied_s(self, count: Any) -> Any:
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
        return np.maximum(self.occupied_s(count) - np.where(self.prefill_first, 0.0, self.decode_s), 0.0)

    @property
    def _base(self) -> Any:
        """What of a step with prompts is no prompt's."""
        return np.minimum(self.decode_s, self.first_s) * self.decodes_beside

    def _above(self, count: Any) -> Any:
        """Return what so many prompts take beyond what is no prompt's."""
        one_s = self.first_s - self._base
        further_s = np.maximum(one_s - self.shared_s / self.ranks, 0.0)
        further_s = np.where(self.room > 1, np.maximum(self.further_s - self.shared_s, 0.0), further_s)
        mean = count / self.ranks
        having = np.maximum(self.ranks * -np.expm1(-mean), 1.0)  # ranks that have any
        longest = self.length_cv * normal_maximum(having)
        longest = np.minimum(1 + longest + longest**2 / 4, np.maximum(self.most, 1.0))  # lengths are lognormal
        # the fullest rank: a Poisson number of prompts, spread further by their lengths
        crowded = mean + normal_maximum(self.ranks) * np.sqrt(mean * (1 + self.length_cv**2))
        crowded = np.minimum(crowded, np.maximum(np.minimum(self.room, count), 1.0))
        # attention within a prompt grows with the square of its length: E[l²] = 1 + c² for a mean of 1
        squared = (longest**2 - longest + self.length_cv**2) * self.attended_s
        shared = (count - 1) / self.ranks * self.shared_s
        return one_s + (np.maximum(longest, crowded) - 1) * further_s + squared + shared


def normal_maximum(ranks: Any) -> Any:
    """Return how far the largest of some normal numbers is above their mean, in standard deviations.

    >>> [round(float(normal_maximum(each)), 2) for each in (1, 2, 8, 32)]
    [0.0, 0.56, 1.36, 2.04]
    """
    return 0.564 * np.log2(np.asarray(ranks, dtype=float)) ** 0.8


def running_limit(price: StepPrice, load: RankLoad) -> Any:
    """Return how many requests can run at once on a rank: as many as there are seats, and as the cache holds."""
    share = np.where(price.engine.reserves_kv, 1.0, 0.5)  # admission reserves all of an answer; or caches grow
    cached_requests = np.floor(price.held_requests(load.isl + np.minimum(share * longer_answers(load), 1.0) * load.osl))
    tokens = np.where(price.engine.prefill_first, np.inf, load.max_tokens // (1 + price.draft_tokens))
    return np.minimum(np.minimum(load.seats, np.maximum(tokens, 1.0)), np.maximum(cached_requests, 1.0))


def longer_answers(load: RankLoad) -> Any:
    """Return how much longer the answers are that run than those that come: long ones run for longer."""
    return 1 + np.asarray(load.osl_cv, dtype=float) ** 2


def mean_context(load: RankLoad) -> Any:
    """Return the mean tokens of a request that runs."""
    return load.isl + load.osl / 2 * longer_answers(load)


def steps_of_request(load: RankLoad, steps: InstanceSteps) -> Any:
    """Return the steps in which a request is: those of its prompt, and one for each further token that it gains."""
    further = np.maximum(load.osl - 1, 0.0) / load.tokens_per_step
    passing = np.where(np.logical_and(steps.prefill_first, load.osl > 1), 0.0, steps.stages - 1)
    return np.where(steps.prefill_first, 1.0, steps.chunks) + passing + further


def prefill_limit(load: RankLoad, steps: InstanceSteps) -> Any:
    """Return how many requests run at most, as steps have room for so many prompts; the others wait to be prefilled."""
    return np.where(steps.prefill_first, np.inf, steps.per_step * steps_of_request(load, steps))


def prompt_s(steps: InstanceSteps, group_size: Any = np.inf) -> Any:
    """Return the seconds between two prompts that leave a rank which does nothing else, and has as many as it can.

    *group_size*: prompts of all ranks in a step, if the others have fewer.
    """
    base_s = np.minimum(steps.decode_s, steps.first_s) * steps.decodes_beside
    prompt_seconds = steps.chunks * (steps.occupied_s(np.maximum(group_size, steps.room)) - base_s) / steps.room
    return base_s / steps.per_step + prompt_seconds


def price_load_steps(price: StepPrice, load: RankLoad, running: Any) -> InstanceSteps:
    """Return what the steps of a load take."""
    engine, context = price.engine, mean_context(load)
    prefill_first, ranks = np.asarray(engine.prefill_first), np.asarray(load.ranks, dtype=float)
    fresh, cached = np.maximum(load.isl * (1 - load.prefix_hit), 1.0), load.isl * load.prefix_hit
    mixed = np.where(prefill_first, 0.0, load.osl > 1)  # a single token is that of the prompt
    other_requests = np.maximum(running - 1, 0.0)
    decoding = mixed * other_requests * (1 + price.draft_tokens) / 2  # fewer at first, when prompts are many
    budget = np.maximum(load.max_tokens - decoding, 1.0)
    of_stage = np.where(
        engine.chunked_prefill, budget / fresh, np.maximum(np.floor(budget / fresh + FLOOR_TOLERANCE), 1.0)
    )
    prompts_of_room = of_stage * load.stages
    chunks = np.where(engine.chunked_prefill, _chunks(prompts_of_room, load.isl_cv), 1.0)
    room = np.clip(prompts_of_room, 1.0, np.maximum(np.ceil(running), 1.0))
    several = np.ceil(room - FLOOR_TOLERANCE)
    tokens = np.maximum(fresh / chunks, 1.0)
    context_before = cached + (fresh - tokens) / 2
    decoding_beside = mixed * np.maximum(running - 1 / ranks, 0.0)
    first = price.mixed_s(tokens, decoding_beside, context, context_before, 1.0)
    full = price.mixed_s(tokens, decoding_beside, context, context_before, several)
    further_s = (full - first) / np.maximum(several - 1, 1.0)
    decode = price.decode_s(np.maximum(running, 1.0), context)
    shared: Any = 0.0
    if np.any(ranks > 1):
        first_of_all_ranks = price.mixed_s(tokens, decoding_beside, context, context_before, 1.0, ranks)
        shared = np.where(ranks > 1, (first - first_of_all_ranks) * ranks / np.maximum(ranks - 1, 1.0), 0.0)
        first = np.where(ranks > 1, np.maximum(first_of_all_ranks, decode), first)
    vary = np.asarray(load.isl_cv, dtype=float)
    attended = price.prefill_factor * price.chunk_attention(tokens, 1.0, context_before) if np.any(vary > 0) else 0.0
    longest = np.where(engine.chunked_prefill, prompts_of_room * chunks, np.inf)
    return InstanceSteps(
        *(
            decode,
            first,
            further_s,
            room,
            chunks,
            prefill_first,
            np.minimum(decoding_beside, 1.0),
            ranks,
            shared,
            vary,
            longest,
            attended,
        ),
        load.stages,
        of_stage,
    )


def _chunks(room: Any, spread: Any) -> Any:
    """Return the steps that a prompt takes on average, if a step has *room* for so much of a mean one.

    >>> [round(float(_chunks(room, cv)), 2) for room, cv in ((2.0, 0.0), (0.9, 0.0), (1.0, 0.5), (0.05, 0.5))]
    [1.0, 2.0, 1.46, 20.5]
    """
    room, spread = np.broadcast_arrays(np.asarray(room, dtype=float), np.asarray(spread, dtype=float))
    equal = np.maximum(np.ceil(1 / room - FLOOR_TOLERANCE), 1.0)
    if not np.any(spread > 0):
        return equal
    sigma = np.sqrt(np.log1p(np.maximum(spread, FLOOR_TOLERANCE) ** 2))
    steps = np.ones_like(room)
    for index in range(1, MOST_CUT):
        steps = steps + _above_normal(np.log(index * room) / sigma + sigma / 2)
    return np.where(spread > 0, np.where(room * MOST_CUT > TAIL, steps, 1 / room + 0.5), equal)


def _above_normal(value: Any) -> Any:
    """Return how likely a standard normal number is above a value (a logistic curve, to 0.01)."""
    value = np.clip(value, -8.0, 8.0)
    return 1 / (1 + np.exp(1.5976 * value + 0.07056 * value**3))


# ---- How prompts of all ranks come together in steps

HALVINGS = 16
"""Of the interval in which the mean step lies that arrivals at random find, or the prompts of one."""
FREE = 0.25
"""Least share of long steps in which a rank of several has no prompt. A prompt goes to the rank with fewest requests:
one that has just had some gets no others before the rest have as many. Simulations are between a fifth and a half."""


@dataclass(frozen=True, slots=True)
class PromptGroups:
    """How prompts of all ranks come together in steps."""

    group_size: Any
    """G: prompts of a step that has any."""
    with_any: Any
    """Such steps, for each step in which a rank decodes."""
    with_own: Any
    """Those of them with prompts of this rank."""
    none_own: Any = 1.0
    """How likely no prompt of this rank comes in such a step, if they come at a rate."""

    def added(self, steps: InstanceSteps) -> Any:
        """Return what prompts add to the mean step of a rank.

        Where prefills go first, a rank decodes in the steps that only others prefill in.
        """
        others_s = np.where(steps.prefill_first, (self.with_any - self.with_own) * steps.decode_s, 0.0)
        return self.with_any * steps.added(self.group_size) - others_s


def group_prompts_at_once(per_step: Any, load: RankLoad, steps: InstanceSteps, running: Any = np.inf) -> PromptGroups:
    """Return how prompts come together if so many come to each rank in a step in which it decodes: as answers end.

    >>> load = RankLoad(isl=1, osl=1, ranks=1)
    >>> steps = InstanceSteps(1.0, 1.0, 0.0, 8.0, 1.0, False)
    >>> [round(float(group_prompts_at_once(each, load, steps).group_size), 2) for each in (1e-6, 1.0, 100.0)]
    [1.0, 1.58, 8.0]
    """
    looked, ranks = np.maximum(np.maximum(load.poll_steps, load.hold_steps), 1.0), np.asarray(load.ranks, dtype=float)
    arriving = np.maximum(per_step * ranks * looked, FLOOR_TOLERANCE)
    with_own = per_step * steps.chunks / _prompts_at_once(per_step * looked, steps.room)
    share = np.minimum(with_own, 1.0)
    with_any = np.where(
        steps.prefill_first, (1 + share) * -np.expm1(-ranks * np.log1p(share)), 1 - (1 - share) ** ranks
    )
    group_size = np.maximum(
        arriving / -np.expm1(-arriving), ranks * per_step * steps.chunks / np.maximum(with_any, FLOOR_TOLERANCE)
    )
    return _prompt_groups(group_size, with_own, per_step, steps, running)


def group_random_prompts(per_step: Any, load: RankLoad, steps: InstanceSteps, running: Any) -> PromptGroups:
    """Return the same if prompts come at random: more of them in long steps, which follow each other by that.

    The longer steps are, the fewer prompts come in a second, and the shorter are steps: halving finds where both agree.
    """
    low = np.log(steps.decode_s)
    high = low + np.log1p(steps.ranks * per_step * steps.chunks * steps.occupied_s(np.inf) / steps.decode_s) + 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        groups = _groups_at_rate(per_step / np.exp(middle), per_step, steps, running, crowded=True)
        longer = steps.decode_s + groups.added(steps) > np.exp(middle)
        low, high = np.where(longer, middle, low), np.where(longer, high, middle)
    return groups


def group_prompts_at_rate(rate: Any, steps: InstanceSteps, most_s: Any = np.inf) -> tuple[PromptGroups, Any]:
    """Return the same if a rate is known, which leaves the engine idle now and then; and the prompts per step.

    So many prompts are in a long step as come in it, and in the short ones before it: the more there are in it, the
    less is that for each of them, so halving finds where both agree. Steps in which a rank decodes are *most_s* apart
    at most: then all seats are taken, and prompts wait for one.
    """
    ranks, most_prompts = steps.ranks, np.maximum(steps.room * steps.ranks, 1.0)
    begins = np.maximum(-np.expm1(-rate * ranks * steps.decode_s), FLOOR_TOLERANCE**2)
    low, high = (
        np.log(FLOOR_TOLERANCE) * np.ones_like(begins * most_prompts),
        np.log(most_prompts) * np.ones_like(begins),
    )
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        group_size, ends = _long_step_chain(rate, np.exp(middle), steps)
        come = rate * ranks * steps.chunks * (steps.occupied_s(group_size) + steps.decode_s * ends / begins)
        low, high = np.where(come > group_size, middle, low), np.where(come > group_size, high, middle)
    group_size, ends = _long_step_chain(rate, np.exp(high), steps)
    long_s, share = steps.occupied_s(group_size), begins / (ends + begins)
    none = _none_come(rate * steps.chunks, np.exp(high), group_size, steps)
    none = np.where(ranks > 1, np.maximum(none, FREE), none)
    prefilling = np.where(ranks > 1, share * (1 - none) + (1 - share) * -np.expm1(-rate * steps.decode_s), share)
    decoding_share = np.where(steps.prefill_first, np.maximum(1 - prefilling, FLOOR_TOLERANCE), 1.0)
    step = (share * long_s + (1 - share) * steps.decode_s) / decoding_share
    fewer = np.minimum(
        1.0, np.maximum(most_s - steps.decode_s, 0.0) / np.maximum(step - steps.decode_s, FLOOR_TOLERANCE**2)
    )
    with_any, with_own = fewer * share / decoding_share, fewer * prefilling / decoding_share
    groups = PromptGroups(group_size, with_any, np.minimum(with_own, with_any), none)
    return groups, rate * (steps.decode_s + groups.added(steps))


def _long_step_chain(rate: Any, mean: Any, steps: InstanceSteps) -> tuple[Any, Any]:
    """Return the prompts of a long step, Poisson of that *mean* but not 0, and how often it is the last.

    It is if no other has come in it, and it was the last chunk.
    """
    group_size = np.minimum(mean / -np.expm1(-mean), np.maximum(steps.room * steps.ranks, 1.0))
    return group_size, _none_come(rate * steps.ranks, mean, group_size, steps) / steps.chunks


def _none_come(rate: Any, mean: Any, group_size: Any, steps: InstanceSteps) -> Any:
    """Return how likely none comes at a rate in a long step: mostly in those with few prompts, which are short."""
    added_per_prompt = rate * np.maximum(steps.occupied_s(group_size + 0.5) - steps.occupied_s(group_size - 0.5), 0.0)
    fewer = mean * np.exp(-added_per_prompt)
    varied = np.maximum(added_per_prompt * group_size - mean + fewer + np.log(np.expm1(-fewer) / np.expm1(-mean)), 0.0)
    return np.exp(np.minimum(varied - rate * steps.occupied_s(group_size), 0.0))


def _groups_at_rate(
    rate: Any, per_step: Any, steps: InstanceSteps, running: Any, *, crowded: bool = False
) -> PromptGroups:
    """Return how prompts come together that come at a rate to each rank, so many in a step."""
    ranks, groups = steps.ranks, PromptGroups(1.0, 0.0, 0.0)
    for _ in range(2):
        long_s, chunks = steps.occupied_s(groups.group_size), rate * steps.chunks
        begins = -np.expm1(-rate * ranks * steps.decode_s)
        ends = np.exp(-rate * ranks * long_s) / steps.chunks  # no other has come, and it was the last chunk
        ends = np.exp(-chunks * ranks * long_s) if crowded else ends  # or of none that are under way
        share = begins / (ends + begins)
        prefilling = share * -np.expm1(-chunks * long_s) + (1 - share) * -np.expm1(-rate * steps.decode_s)
        decoding_share = np.where(steps.prefill_first, np.maximum(1 - prefilling, FLOOR_TOLERANCE), 1.0)
        with_own, with_any = prefilling / decoding_share, share / decoding_share
        group_size = ranks * per_step * steps.chunks / np.maximum(with_any, FLOOR_TOLERANCE)
        groups = _prompt_groups(group_size, with_own, per_step, steps, running)
    return groups


def _prompt_groups(group_size: Any, with_own: Any, per_step: Any, steps: InstanceSteps, running: Any) -> PromptGroups:
    """Return how prompts come together, of as many as there are and as there is room for."""
    most_prompts = np.minimum(steps.room * steps.ranks, np.maximum(running * steps.ranks / steps.stages, 1.0))
    group_size = np.clip(group_size, 1.0, most_prompts)
    with_any = steps.ranks * per_step * steps.chunks / group_size
    return PromptGroups(group_size, with_any, np.minimum(with_own, with_any))


def _prompts_at_once(per_step: Any, room: Any) -> Any:
    """Return the prompts of a step that has any, on one rank."""
    arriving = np.maximum(per_step, FLOOR_TOLERANCE)
    return np.clip(arriving / -np.expm1(-arriving), 1.0, room)


WAVES = 12.0
"""Of a uniform distribution, the square of its width over its variance."""
FULLEST = 0.95
"""Share of the room of steps above which a queue is taken to be as long as at this share."""
FEEDING = 3
"""Times that the requests which steps have room to prefill are asked for: they depend on those that run."""
FRONTING = 4
"""Times that the front end of an open loop is asked for: it depends on those that are in it."""
ONCE = 1.03
"""How often a request meets the prompt of another client at most: once, but the parts of its time are found apart."""
LOADS = 21
"""Numbers of running requests at which an open loop is priced; between them it is interpolated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTimes:
    """What clients see; numbers, or arrays over a batch."""

    running: Any
    """r, of a rank."""
    decode_s: Any
    step_s: Any
    """s."""
    tpot_s: Any
    front_s: Any
    """h."""
    own_s: Any
    """n S(g): the steps of a request's own prompt."""
    waits_s: list[Any]
    """Mean wait before them, in each round."""
    queueing_s: Any
    """Wait for a seat: (m - r)/r T in a closed loop."""
    random_queue: bool = False
    """Whether waits for a seat are exponential, as in an open loop; else clients take turns."""
    stay_s: Any
    """T."""
    long_s: Any
    """S(g): a step with prompts in it."""
    long_share: Any
    """How likely a request finds such a step."""
    met: Any
    """Prompts of others per step."""
    added_s: Any
    """What a prompt adds to the steps of the others."""
    prefill_share: Any
    """Share of the time of steps that prompts add."""
    ttft_parts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def mean_ttft_s(self) -> Any:
        """Mean over rounds."""
        return self.front_s + self.queueing_s + self.own_s + sum(self.waits_s) / len(self.waits_s)


# ---- closed loops


def estimate_closed_loop(price: StepPrice, load: RankLoad) -> ClientTimes:
    """Return what clients of a closed loop see."""
    running = np.minimum(load.clients, running_limit(price, load))
    steps = price_load_steps(price, load, running)
    if load.rounds is None:
        running, steps = _limit_to_fed(price, load, steps, running)
    others_running = np.minimum(np.maximum(running * load.ranks - 1, 0.0), 1.0)
    times = _steady_times(price.engine, load, steps, running, others_running)
    queueing = np.maximum(load.clients - running, 0.0) / np.maximum(running, FLOOR_TOLERANCE) * times.stay_s
    if load.rounds is None:
        waits = times.waits_s[0]
        least = load.clients * prompt_s(steps) - np.maximum(load.osl - 1, 0.0) * times.tpot_s  # all prompts in turn
        queueing = np.maximum(queueing, least - times.own_s) - waits
    times = replace(times, queueing_s=np.maximum(queueing, 0.0))
    if load.rounds is None:
        return _with_ttft_parts(times)
    rounds = [_round_times(index, price.engine, load, steps, running) for index in range(load.rounds)]
    owns = sum(own_s for own_s, _ in rounds) / len(rounds)
    return _with_ttft_parts(replace(times, own_s=owns, waits_s=[own_s + wait - owns for own_s, wait in rounds]))


def _limit_to_fed(
    price: StepPrice, load: RankLoad, steps: InstanceSteps, most_requests: Any
) -> tuple[Any, InstanceSteps]:
    """Return the requests that run, of those that could, and their steps: fewer leave more room for prompts."""
    running = most_requests
    for _ in range(FEEDING):
        fed = np.minimum(most_requests, prefill_limit(load, steps))
        if np.all(fed == running):
            break
        running = fed
        steps = price_load_steps(price, load, running)
    return running, steps


def _with_ttft_parts(times: ClientTimes) -> ClientTimes:
    """Return the same with TTFT by part."""
    waits = sum(times.waits_s) / len(times.waits_s)
    parts = {"queueing": times.queueing_s + waits, "prefill": times.own_s, "front_end": times.front_s}
    return replace(times, ttft_parts=parts)


def _steady_times(  # noqa: PLR0913  one number each
    engine: Engine,
    load: RankLoad,
    steps: InstanceSteps,
    running: Any,
    busy: Any,
    rate: Any = None,
    *,
    seats: Any = np.inf,
    arrival_cv: Any = 1.0,
    at_random: bool = False,
) -> ClientTimes:
    """Return what clients see if so many requests run all the time; *busy*: how likely others run when one arrives.

    *rate*: requests come at random, so many a second, or as fast as they end; otherwise a client has one at a time.
    """
    per_step, full_s = np.maximum(running, FLOOR_TOLERANCE) / steps_of_request(load, steps), np.inf
    if rate is None:
        prompts = (group_random_prompts if at_random else group_prompts_at_once)(per_step, load, steps, running)
    else:
        full_s = seats / rate * load.tokens_per_step / np.maximum(load.osl - 1, FLOOR_TOLERANCE)  # as Little says
        prompts, per_step = group_prompts_at_rate(rate, steps, full_s)
    group_size, added = prompts.group_size, prompts.added(steps)
    vary = 1 + np.asarray(load.isl_cv, dtype=float) ** 2  # long prompts are found more often (Pollaczek and Khinchine)
    after_own_s, bursts = np.float64(0.0), np.float64(0.0)
    if rate is not None:
        bursts = _burst_wait_s(load, steps, rate, group_size, arrival_cv)
        after_own_s = np.maximum(_wait_after_own_prompt(load, steps, rate, prompts, vary, full_s) + bursts, 0.0)
    other_clients: Any = (
        1.0 if rate is not None or at_random else np.maximum(1 - 1 / np.maximum(load.clients * load.ranks, 1.0), 0.0)
    )
    in_burst = np.logical_and(np.logical_and(steps.prefill_first, load.in_step), np.asarray(load.osl_cv) == 0)
    in_burst = np.logical_and(in_burst, load.rounds is not None)
    met = other_clients * np.where(in_burst, 0.5, 1.0)  # of a burst, only the prompts behind
    met = np.where(load.osl > 1, met, 0.0)  # a single token meets no prompts
    further = np.maximum(load.osl - 1, 1.0)
    tpot = (steps.decode_s + met * added) / load.tokens_per_step + met * after_own_s / further
    first = 0.0 if rate is None else np.minimum(engine.taken_steps, 1.0)
    in_flight = np.inf if rate is not None or at_random else load.clients * load.ranks
    own_s, wait = _own_prompt_s(per_step, engine, load, steps, busy, prompts, first, in_flight)
    step, long_s = steps.decode_s + added, steps.occupied_s(group_size)
    long_share = np.clip(prompts.with_any * long_s / step, 0.0, 1.0)
    if rate is not None:
        wait = wait + np.maximum(first, 0.5) * _met_step_s(load, steps, busy, rate, group_size)
        used = np.minimum(rate * prompt_s(steps, group_size), FULLEST)
        # Pollaczek and Khinchine: ρ² / (2 (1 - ρ)) (1 + c²) prompts are in the queue
        queue_s = used**2 / (2 * (1 - used)) * vary * prompt_s(steps, group_size)
        queue_s = np.maximum(
            queue_s + bursts, np.minimum(queue_s, -wait + busy * np.maximum(first, 0.5) * steps.decode_s)
        )
    else:
        if load.rounds is None:  # a front end lets them come at any time of a step, and they find long ones more often
            met_s = long_share * long_s + (1 - long_share) * steps.decode_s
            rest_of_step_s = np.maximum(0.5 - engine.taken_steps, 0.0) * met_s
            wait = wait + np.where(front_s(engine, load, 1.0) > 0, busy * rest_of_step_s, 0.0)
            # those in the same step are waited for no more
            wait = wait * (1 - (group_size - 1) / np.maximum(load.clients * load.ranks - 1, group_size))
        full = per_step / steps.per_step
        full = np.where(
            steps.prefill_first, np.minimum(full, added / step), full
        )  # prefills that go first: never too many
        full = np.minimum(other_clients * full, FULLEST)
        queue_s = full**2 / (2 * (1 - full)) * vary * steps.occupied_s(np.maximum(group_size, steps.room))
        if load.rounds is None:  # at most for the prompts of all other clients, less those that it meets later
            later = own_s + np.maximum(load.osl - 1, 0.0) * (tpot - steps.decode_s / load.tokens_per_step)
            queue_s = np.minimum(queue_s, np.maximum(load.clients * prompt_s(steps) - later, 0.0))
        queue_s = queue_s + other_clients * long_share / 2 * _further_chunks_s(steps, long_s)
        # where prefills go first, those of the last step are before one: half of them
        queue_s = np.where(
            steps.prefill_first, np.minimum(queue_s, other_clients * per_step / 2 * prompt_s(steps)), queue_s
        )
    wait = wait + queue_s
    if rate is None and not at_random and load.rounds is None:
        waited = np.minimum(_waited_steps(per_step, engine, load), (in_flight - 1) * steps_of_request(load, steps))
        decoding = np.minimum(wait, busy * np.maximum(waited, 0.5) * steps.decode_s)
        wait, tpot = _wait_of_one_meeting(
            load, steps, _others_prompts_s(steps, running, group_size), wait, decoding, tpot
        )
    return ClientTimes(
        running=running,
        decode_s=steps.decode_s,
        step_s=step,
        tpot_s=tpot,
        front_s=front_s(engine, load, np.maximum(load.clients * load.ranks, 1.0)),
        own_s=own_s,
        waits_s=[wait],
        queueing_s=0.0,
        stay_s=np.maximum(load.osl - 1, 0.0) * tpot + own_s,
        long_s=long_s,
        long_share=long_share,
        met=per_step * met,
        added_s=added / per_step,
        prefill_share=added / step,
    )


def _wait_of_one_meeting(
    load: RankLoad, steps: InstanceSteps, prompts_s: Any, wait: Any, decoding: Any, tpot: Any
) -> tuple[Any, Any]:
    """Return a wait, of which some is for *decoding*, and TPOT if prompts take *prompts_s* seconds of both together."""
    bare = steps.decode_s / load.tokens_per_step
    tpot = np.minimum(tpot, bare + prompts_s / np.maximum(load.osl - 1, 1.0))
    return np.minimum(wait, decoding + np.maximum(prompts_s - (load.osl - 1) * (tpot - bare), 0.0)), tpot


def _others_prompts_s(steps: InstanceSteps, running: Any, group_size: Any) -> Any:
    """Return the seconds of all prompts that a request meets: one of each other, waiting or later; some in its own."""
    others_s = np.maximum(running * steps.ranks / group_size - 1, 0.0) * steps.chunks * steps.added(group_size)
    return ONCE * np.maximum(others_s, running * prompt_s(steps) - steps.own_s(group_size))


def _met_step_s(load: RankLoad, steps: InstanceSteps, busy: Any, rate: Any, group_size: Any) -> Any:
    """Return the step that an arrival at random finds: a long one as often as its share of the time."""
    long_s = steps.occupied_s(group_size)
    long_step_share = np.minimum(np.clip(rate * load.ranks * steps.chunks * long_s / group_size, 0.0, 1.0), busy)
    return long_step_share * (long_s + _further_chunks_s(steps, long_s)) + (busy - long_step_share) * steps.decode_s


def _burst_wait_s(load: RankLoad, steps: InstanceSteps, rate: Any, group_size: Any, arrival_cv: Any) -> Any:
    """Return what arrivals in bursts wait longer for prompts than those at random, and even ones less (Kingman).

    Where little else comes, most of a burst still waits for itself. Ranks have a burst dealt out to them.
    """
    prompt_seconds = prompt_s(steps, group_size)
    used = np.minimum(rate * prompt_seconds, FULLEST)
    uneven = (np.asarray(arrival_cv, dtype=float) ** 2 - 1) / load.ranks
    return uneven / 2 * np.where(uneven > 0, np.sqrt(used), used) / (1 - used) * prompt_seconds


def _wait_after_own_prompt(
    load: RankLoad, steps: InstanceSteps, rate: Any, prompts: PromptGroups, vary: Any, full_s: Any
) -> Any:
    """Return what a request waits for prompts right after its own, beyond what it would at any time.

    A long step is seldom alone: prompts come while it lasts. Steps are a chain of two states, long and short. Where
    prefills go first, a request also waits for all that are behind it on its rank, and behind these.
    """
    long_s = steps.occupied_s(prompts.group_size)
    stays_long, begins = (np.exp(-rate * steps.ranks * prompt_seconds) for prompt_seconds in (long_s, steps.decode_s))
    goes_on = begins - stays_long
    share = (1 - begins) / np.maximum(1 - goes_on, FLOOR_TOLERANCE)
    runs = np.maximum(load.osl - 1, 0.0) / load.tokens_per_step
    excess = (1 - share) * goes_on * (1 - goes_on**runs) / np.maximum(1 - goes_on, FLOOR_TOLERANCE)
    step_s = prompt_s(steps, prompts.group_size)
    used = np.minimum(rate * step_s, FULLEST)
    queued = (used + used**2 / (2 * (1 - used)) * vary) / (1 - used)
    excess = np.maximum(excess, (1 - share) * np.minimum(queued * steps.chunks / steps.room, runs))
    chained = excess * np.maximum(long_s - steps.decode_s, 0.0)
    further = steps.chunks * long_s * (1 - prompts.none_own) / np.maximum(prompts.none_own, FLOOR_TOLERANCE)
    further = np.maximum(np.minimum(further, full_s) - prompts.added(steps), 0.0)
    return np.where(steps.prefill_first, further + np.where(steps.ranks > 1, chained, 0.0), chained)


def _further_chunks_s(steps: InstanceSteps, long_s: Any) -> Any:
    """Return what a prompt still takes beyond the step that it is found in, if it is on the same rank."""
    return (steps.chunks - 1) / steps.ranks * long_s


def _round_times(
    round_index: int, engine: Engine, load: RankLoad, steps: InstanceSteps, running: Any
) -> tuple[Any, Any]:
    """Return the seconds of a request's own prompt in a round, and what it waits before."""
    lasts = np.maximum(load.osl / load.tokens_per_step, 1.0)
    in_step = np.logical_and(steps.prefill_first, load.in_step)
    at_once = np.minimum(steps.room, engine.burst_prompts)
    burst = np.where(in_step, 1.0, running * steps.chunks / at_once)
    # lengths add their variance once a round; a uniform window of W steps has the variance W² / 12
    spread = np.sqrt(burst**2 + WAVES * round_index * (load.osl_cv * lasts) ** 2)
    window = np.clip(spread, 1.0, lasts) if round_index else np.ones_like(lasts)
    per_step = np.maximum(running, FLOOR_TOLERANCE) / window
    steps_in_turn = np.where(
        steps.prefill_first, 1.0, window
    )  # prefills that go first are done before the next answers end
    beyond = np.maximum(per_step * steps_in_turn / steps.room - steps_in_turn / steps.chunks, 0.0)
    queue_s = beyond / 2 * steps.chunks * steps.occupied_s(steps.room * steps.ranks)
    if not round_index:
        return steps.own_s(steps.ranks * np.minimum(running, steps.room)), queue_s
    others_running = np.minimum(np.maximum(running * load.ranks - 1, 0.0), 1.0)
    own_s, wait = _own_prompt_s(
        per_step,
        engine,
        load,
        steps,
        others_running,
        group_prompts_at_once(per_step, load, steps, running),
        0.0,
        load.clients * load.ranks,
    )
    return own_s, wait + queue_s


def _own_prompt_s(
    per_step: Any,
    engine: Engine,
    load: RankLoad,
    steps: InstanceSteps,
    busy: Any,
    groups: PromptGroups,
    first: Any = 0.0,
    in_flight: Any = np.inf,
) -> tuple[Any, Any]:
    """Return the seconds of a request's own prompt, and until it is taken into a step, less so much of the *first*.

    *in_flight*: requests in flight, of all ranks.
    """
    waited = (
        np.minimum(
            _waited_steps(per_step, engine, load), np.maximum(in_flight - 1, 0.0) * steps_of_request(load, steps)
        )
        - first
    )
    met = waited * np.minimum(groups.with_any / steps.chunks, 1.0)
    met = np.minimum(met, np.maximum(in_flight - 1, 0.0) / groups.group_size)  # the others have one prompt each
    return steps.own_s(groups.group_size), busy * (waited * steps.decode_s + met * steps.added(groups.group_size))


def _waited_steps(per_step: Any, engine: Engine, load: RankLoad) -> Any:
    """Return the steps until a request is taken into one."""
    hold_steps = np.asarray(load.hold_steps, dtype=float)
    other_prompts = per_step * load.ranks * hold_steps  # they come while the first is held, and wait half as long
    return np.maximum(
        engine.taken_steps, load.polled_steps + hold_steps * (1 + other_prompts / 2) / (1 + other_prompts)
    )


def front_s(engine: Engine, load: RankLoad, in_flight: Any) -> Any:
    """Return what the front end takes of a request."""
    return engine.front_s(in_flight, load.devices, load.mla)


# ---- open loops


def estimate_open_loop(price: StepPrice, load: RankLoad, rate: Any, arrival_cv: Any = 1.0) -> ClientTimes:
    """Return what requests see that come at a *rate* to each rank; NaN where they come faster than they are served."""
    most_requests = running_limit(price, load)
    counts, rates = _rates_by_running(price, load, most_requests)
    rate = np.broadcast_to(np.asarray(rate, dtype=float), rates.shape[1:])
    running = _interpolate_running(rate, rates, np.stack(np.broadcast_arrays(*counts)))
    below_lowest = rate < rates[0]
    running = np.where(below_lowest, rate / rates[0] * counts[0], running)
    steps = price_load_steps(price, load, np.maximum(running, 1 / np.asarray(load.ranks, dtype=float)))
    busy = -np.expm1(-running * load.ranks)
    times = _steady_times(price.engine, load, steps, running, busy, rate, seats=most_requests, arrival_cv=arrival_cv)
    used = rate / rates[-1]
    # Sakasegawa's approximation of a queue with m servers: ρ to the power of √(2 (m + 1)) - 1, over m (1 - ρ)
    queue_power = np.sqrt(2 * (most_requests + 1)) - 1
    vary = (np.asarray(arrival_cv, dtype=float) ** 2 + np.asarray(load.osl_cv) ** 2) / 2
    queueing = times.stay_s / most_requests * used**queue_power / (1 - used) * vary
    queueing = np.where(used < 1, queueing, np.nan)
    front: Any = 0.0
    for _ in range(FRONTING):  # an arrival finds itself, too, and those that are in the front end
        front = front_s(price.engine, load, 1 + rate * load.ranks * (times.stay_s + queueing + front))
    return _with_ttft_parts(replace(times, queueing_s=queueing, random_queue=True, front_s=front))


def rank_capacity(price: StepPrice, load: RankLoad) -> Any:
    """Return the requests a second that a rank can serve."""
    return _rates_by_running(price, load, running_limit(price, load))[1][-1]


def _rates_by_running(price: StepPrice, load: RankLoad, most_requests: Any) -> tuple[list[Any], Any]:
    """Return numbers of running requests, and the requests a second that end if so many run; the most so far."""
    fewest = 1 / np.asarray(load.ranks, dtype=float)  # one on all ranks together
    # evenly spaced by ratio, from the fewest to the most
    counts = [fewest * (most_requests / fewest) ** (index / (LOADS - 1)) for index in range(LOADS)]
    through = []
    for count in counts:
        steps = price_load_steps(price, load, count)
        running = np.minimum(count, prefill_limit(load, steps))
        times = _steady_times(price.engine, load, steps, running, 1.0, at_random=True)
        through.append(np.minimum(running / times.stay_s, 1 / prompt_s(steps)))
    return counts, np.maximum.accumulate(np.stack(np.broadcast_arrays(*through)), axis=0)


def _interpolate_running(rate: Any, rates: Any, counts: Any) -> Any:
    """Return the running requests at a rate, between the points at which rates are known."""
    upper = np.clip(np.sum(rates < rate, axis=0), 1, len(rates) - 1)
    low, high = (np.take_along_axis(rates, (upper - offset)[None], axis=0)[0] for offset in (1, 0))
    first, last = (np.take_along_axis(counts, (upper - offset)[None], axis=0)[0] for offset in (1, 0))
    share = np.clip((rate - low) / np.maximum(high - low, 1e-300), 0.0, 1.0)
    return first * (last / first) ** share
