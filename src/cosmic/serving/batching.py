"""Continuous batching in closed form: what clients see of an engine instance, by its steps.

In each step an engine decodes a token of every running request, and prefills prompts: together with it (mixed), or in
steps of their own that go first. All numbers are of one rank of attention; k ranks of an instance step together.

    r    = min(m, seats, what the KV cache holds,      requests that run; the others queue
               what steps have room to prefill: o K / n)
    d    a decode step of r requests                   S(g)  a step with g prompts in it, of K that there is room for
    p    = r / (n + (o - 1) / v)                       prompts per step: a request is in so many, v tokens each
    g    prompts of all ranks in a step that has any   (`cosmic.serving.batch_prompts`)
    s    = d + k p n a / g                             the mean step; a = S(g) - d, or S(g) where prefills go first
    TPOT = s' / v                                      s' without the request's own prefill

A prompt longer than the step's limit of tokens takes n steps (`cosmic.serving.batch_steps`).

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
prefills first ends all requests together: each round is a burst (`Requests.in_step`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from cosmic.design.engine import Engine
from cosmic.serving.batch_prompts import Found, found_at_once, found_at_random, found_at_rate
from cosmic.serving.batch_steps import LEAST, Requests, Steps, fed, most_running, prompt_s, steps_of, turns_of
from cosmic.serving.price import StepPrice

__all__ = ("Requests", "Seen", "capacity_of", "clients_see", "open_loop")

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
class Seen:
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


# ----------------------------------------------------------------------------------------------- closed loops


def clients_see(price: StepPrice, load: Requests) -> Seen:
    """Return what clients of a closed loop see."""
    running = np.minimum(load.clients, most_running(price, load))
    steps = steps_of(price, load, running)
    if load.rounds is None:
        running, steps = _as_many_as_are_fed(price, load, steps, running)
    others = np.minimum(np.maximum(running * load.ranks - 1, 0.0), 1.0)
    seen = _steady(price.engine, load, steps, running, others)
    queueing = np.maximum(load.clients - running, 0.0) / np.maximum(running, LEAST) * seen.stay_s
    if load.rounds is None:
        waits = seen.waits_s[0]
        least = load.clients * prompt_s(steps) - np.maximum(load.osl - 1, 0.0) * seen.tpot_s  # all prompts in turn
        queueing = np.maximum(queueing, least - seen.own_s) - waits
    seen = replace(seen, queueing_s=np.maximum(queueing, 0.0))
    if load.rounds is None:
        return _with_parts(seen)
    rounds = [_round(place, price.engine, load, steps, running) for place in range(load.rounds)]
    owns = sum(own for own, _ in rounds) / len(rounds)
    return _with_parts(replace(seen, own_s=owns, waits_s=[own + wait - owns for own, wait in rounds]))


def _as_many_as_are_fed(price: StepPrice, load: Requests, steps: Steps, most: Any) -> tuple[Any, Steps]:
    """Return the requests that run, of those that could, and their steps: fewer leave more room for prompts."""
    running = most
    for _ in range(FEEDING):
        wanted = np.minimum(most, fed(load, steps))
        if np.all(wanted == running):
            break
        running = wanted
        steps = steps_of(price, load, running)
    return running, steps


def _with_parts(seen: Seen) -> Seen:
    """Return the same with TTFT by part."""
    waits = sum(seen.waits_s) / len(seen.waits_s)
    parts = {"queueing": seen.queueing_s + waits, "prefill": seen.own_s, "front_end": seen.front_s}
    return replace(seen, ttft_parts=parts)


def _steady(  # noqa: PLR0913  one number each
    engine: Engine,
    load: Requests,
    steps: Steps,
    running: Any,
    busy: Any,
    rate: Any = None,
    *,
    seats: Any = np.inf,
    arrival_cv: Any = 1.0,
    at_random: bool = False,
) -> Seen:
    """Return what clients see if so many requests run all the time; *busy*: how likely others run when one arrives.

    *rate*: requests come at random, so many a second, or as fast as they end; otherwise a client has one at a time.
    """
    per_step, full_s = np.maximum(running, LEAST) / turns_of(load, steps), np.inf
    if rate is None:
        prompts = (found_at_random if at_random else found_at_once)(per_step, load, steps, running)
    else:
        full_s = seats / rate * load.tokens_per_step / np.maximum(load.osl - 1, LEAST)  # as Little says
        prompts, per_step = found_at_rate(rate, steps, full_s)
    together, added = prompts.together, prompts.added(steps)
    vary = 1 + np.asarray(load.isl_cv, dtype=float) ** 2  # long prompts are found more often (Pollaczek and Khinchine)
    left, bursts = np.float64(0.0), np.float64(0.0)
    if rate is not None:
        bursts = _of_bursts_s(load, steps, rate, together, arrival_cv)
        left = np.maximum(_after_its_own(load, steps, rate, prompts, vary, full_s) + bursts, 0.0)
    others: Any = (
        1.0 if rate is not None or at_random else np.maximum(1 - 1 / np.maximum(load.clients * load.ranks, 1.0), 0.0)
    )
    alike = np.logical_and(np.logical_and(steps.apart, load.in_step), np.asarray(load.osl_cv) == 0)
    alike = np.logical_and(alike, load.rounds is not None)
    met = others * np.where(alike, 0.5, 1.0)  # of a burst, only the prompts behind
    met = np.where(load.osl > 1, met, 0.0)  # a single token meets no prompts
    further = np.maximum(load.osl - 1, 1.0)
    tpot = (steps.decode_s + met * added) / load.tokens_per_step + met * left / further
    first = 0.0 if rate is None else np.minimum(engine.taken_steps, 1.0)
    in_flight = np.inf if rate is not None or at_random else load.clients * load.ranks
    own, wait = _taken_s(per_step, engine, load, steps, busy, prompts, first, in_flight)
    step, long_s = steps.decode_s + added, steps.held(together)
    long_share = np.clip(prompts.with_any * long_s / step, 0.0, 1.0)
    if rate is not None:
        wait = wait + np.maximum(first, 0.5) * _found_s(load, steps, busy, rate, together)
        used = np.minimum(rate * prompt_s(steps, together), FULLEST)
        behind = used**2 / (2 * (1 - used)) * vary * prompt_s(steps, together)
        behind = np.maximum(behind + bursts, np.minimum(behind, -wait + busy * np.maximum(first, 0.5) * steps.decode_s))
    else:
        if load.rounds is None:  # a front end lets them come at any time of a step, and they find long ones more often
            met_s = long_share * long_s + (1 - long_share) * steps.decode_s
            rest = np.maximum(0.5 - engine.taken_steps, 0.0) * met_s
            wait = wait + np.where(front_s(engine, load, 1.0) > 0, busy * rest, 0.0)
            # those in the same step are waited for no more
            wait = wait * (1 - (together - 1) / np.maximum(load.clients * load.ranks - 1, together))
        full = per_step / steps.per_step
        full = np.where(steps.apart, np.minimum(full, added / step), full)  # prefills that go first: never too many
        full = np.minimum(others * full, FULLEST)
        behind = full**2 / (2 * (1 - full)) * vary * steps.held(np.maximum(together, steps.room))
        if load.rounds is None:  # at most for the prompts of all other clients, less those that it meets later
            later = own + np.maximum(load.osl - 1, 0.0) * (tpot - steps.decode_s / load.tokens_per_step)
            behind = np.minimum(behind, np.maximum(load.clients * prompt_s(steps) - later, 0.0))
        behind = behind + others * long_share / 2 * _further_chunks_s(steps, long_s)
        # where prefills go first, those of the last step are before one: half of them
        behind = np.where(steps.apart, np.minimum(behind, others * per_step / 2 * prompt_s(steps)), behind)
    wait = wait + behind
    if rate is None and not at_random and load.rounds is None:
        waited = np.minimum(_waited_steps(per_step, engine, load), (in_flight - 1) * turns_of(load, steps))
        decoding = np.minimum(wait, busy * np.maximum(waited, 0.5) * steps.decode_s)
        wait, tpot = _met_once(load, steps, _of_others_s(steps, running, together), wait, decoding, tpot)
    return Seen(
        running=running,
        decode_s=steps.decode_s,
        step_s=step,
        tpot_s=tpot,
        front_s=front_s(engine, load, np.maximum(load.clients * load.ranks, 1.0)),
        own_s=own,
        waits_s=[wait],
        queueing_s=0.0,
        stay_s=np.maximum(load.osl - 1, 0.0) * tpot + own,
        long_s=long_s,
        long_share=long_share,
        met=per_step * met,
        added_s=added / per_step,
        prefill_share=added / step,
    )


def _met_once(load: Requests, steps: Steps, most: Any, wait: Any, decoding: Any, tpot: Any) -> tuple[Any, Any]:
    """Return a wait, of which some is for *decoding*, and TPOT if prompts take *most* seconds of both together."""
    bare = steps.decode_s / load.tokens_per_step
    tpot = np.minimum(tpot, bare + most / np.maximum(load.osl - 1, 1.0))
    return np.minimum(wait, decoding + np.maximum(most - (load.osl - 1) * (tpot - bare), 0.0)), tpot


def _of_others_s(steps: Steps, running: Any, together: Any) -> Any:
    """Return the seconds of all prompts that a request meets: one of each other, waiting or later; some in its own."""
    others = np.maximum(running * steps.ranks / together - 1, 0.0) * steps.chunks * steps.added(together)
    return ONCE * np.maximum(others, running * prompt_s(steps) - steps.own_s(together))


def _found_s(load: Requests, steps: Steps, busy: Any, rate: Any, together: Any) -> Any:
    """Return the step that an arrival at random finds: a long one as often as its share of the time."""
    long_s = steps.held(together)
    found = np.minimum(np.clip(rate * load.ranks * steps.chunks * long_s / together, 0.0, 1.0), busy)
    return found * (long_s + _further_chunks_s(steps, long_s)) + (busy - found) * steps.decode_s


def _of_bursts_s(load: Requests, steps: Steps, rate: Any, together: Any, arrival_cv: Any) -> Any:
    """Return what arrivals in bursts wait longer for prompts than those at random, and even ones less (Kingman).

    Where little else comes, most of a burst still waits for itself. Ranks have a burst dealt out to them.
    """
    each = prompt_s(steps, together)
    used = np.minimum(rate * each, FULLEST)
    uneven = (np.asarray(arrival_cv, dtype=float) ** 2 - 1) / load.ranks
    return uneven / 2 * np.where(uneven > 0, np.sqrt(used), used) / (1 - used) * each


def _after_its_own(load: Requests, steps: Steps, rate: Any, prompts: Found, vary: Any, full_s: Any) -> Any:
    """Return what a request waits for prompts right after its own, beyond what it would at any time.

    A long step is seldom alone: prompts come while it lasts. Steps are a chain of two states, long and short. Where
    prefills go first, a request also waits for all that are behind it on its rank, and behind these.
    """
    long_s = steps.held(prompts.together)
    again, begins = (np.exp(-rate * steps.ranks * each) for each in (long_s, steps.decode_s))
    goes_on = begins - again
    share = (1 - begins) / np.maximum(1 - goes_on, LEAST)
    runs = np.maximum(load.osl - 1, 0.0) / load.tokens_per_step
    excess = (1 - share) * goes_on * (1 - goes_on**runs) / np.maximum(1 - goes_on, LEAST)
    each = prompt_s(steps, prompts.together)
    used = np.minimum(rate * each, FULLEST)
    behind = (used + used**2 / (2 * (1 - used)) * vary) / (1 - used)
    excess = np.maximum(excess, (1 - share) * np.minimum(behind * steps.chunks / steps.room, runs))
    chained = excess * np.maximum(long_s - steps.decode_s, 0.0)
    further = steps.chunks * long_s * (1 - prompts.alone) / np.maximum(prompts.alone, LEAST)
    further = np.maximum(np.minimum(further, full_s) - prompts.added(steps), 0.0)
    return np.where(steps.apart, further + np.where(steps.ranks > 1, chained, 0.0), chained)


def _further_chunks_s(steps: Steps, long_s: Any) -> Any:
    """Return what a prompt still takes beyond the step that it is found in, if it is on the same rank."""
    return (steps.chunks - 1) / steps.ranks * long_s


def _round(place: int, engine: Engine, load: Requests, steps: Steps, running: Any) -> tuple[Any, Any]:
    """Return the seconds of a request's own prompt in a round, and what it waits before."""
    lasts = np.maximum(load.osl / load.tokens_per_step, 1.0)
    in_step = np.logical_and(steps.apart, load.in_step)
    at_once = np.minimum(steps.room, engine.burst_prompts)
    burst = np.where(in_step, 1.0, running * steps.chunks / at_once)
    spread = np.sqrt(burst**2 + WAVES * place * (load.osl_cv * lasts) ** 2)
    window = np.clip(spread, 1.0, lasts) if place else np.ones_like(lasts)
    per_step = np.maximum(running, LEAST) / window
    turns = np.where(steps.apart, 1.0, window)  # prefills that go first are done before the next answers end
    beyond = np.maximum(per_step * turns / steps.room - turns / steps.chunks, 0.0)
    behind = beyond / 2 * steps.chunks * steps.held(steps.room * steps.ranks)
    if not place:
        return steps.own_s(steps.ranks * np.minimum(running, steps.room)), behind
    others = np.minimum(np.maximum(running * load.ranks - 1, 0.0), 1.0)
    own, wait = _taken_s(
        per_step,
        engine,
        load,
        steps,
        others,
        found_at_once(per_step, load, steps, running),
        0.0,
        load.clients * load.ranks,
    )
    return own, wait + behind


def _taken_s(  # noqa: PLR0913, PLR0917  one number each
    per_step: Any,
    engine: Engine,
    load: Requests,
    steps: Steps,
    busy: Any,
    found: Found,
    first: Any = 0.0,
    most: Any = np.inf,
) -> tuple[Any, Any]:
    """Return the seconds of a request's own prompt, and until it is taken into a step, less so much of the *first*.

    *most*: requests in flight, of all ranks.
    """
    waited = (
        np.minimum(_waited_steps(per_step, engine, load), np.maximum(most - 1, 0.0) * turns_of(load, steps)) - first
    )
    met = waited * np.minimum(found.with_any / steps.chunks, 1.0)
    met = np.minimum(met, np.maximum(most - 1, 0.0) / found.together)  # the others have one prompt each
    return steps.own_s(found.together), busy * (waited * steps.decode_s + met * steps.added(found.together))


def _waited_steps(per_step: Any, engine: Engine, load: Requests) -> Any:
    """Return the steps until a request is taken into one."""
    held = np.asarray(load.hold_steps, dtype=float)
    others = per_step * load.ranks * held  # they come while the first is held, and wait half as long
    return np.maximum(engine.taken_steps, load.polled_steps + held * (1 + others / 2) / (1 + others))


def front_s(engine: Engine, load: Requests, in_flight: Any) -> Any:
    """Return what the front end takes of a request."""
    return engine.front_s(in_flight, load.devices, load.mla)


# ------------------------------------------------------------------------------------------------ open loops


def open_loop(price: StepPrice, load: Requests, rate: Any, arrival_cv: Any = 1.0) -> Seen:
    """Return what requests see that come at a *rate* to each rank; NaN where they come faster than they are served."""
    most = most_running(price, load)
    counts, rates = _rates(price, load, most)
    rate = np.broadcast_to(np.asarray(rate, dtype=float), rates.shape[1:])
    running = _interpolated(rate, rates, np.stack(np.broadcast_arrays(*counts)))
    few = rate < rates[0]
    running = np.where(few, rate / rates[0] * counts[0], running)
    steps = steps_of(price, load, np.maximum(running, 1 / np.asarray(load.ranks, dtype=float)))
    busy = -np.expm1(-running * load.ranks)
    seen = _steady(price.engine, load, steps, running, busy, rate, seats=most, arrival_cv=arrival_cv)
    used = rate / rates[-1]
    turns = np.sqrt(2 * (most + 1)) - 1
    vary = (np.asarray(arrival_cv, dtype=float) ** 2 + np.asarray(load.osl_cv) ** 2) / 2
    queueing = seen.stay_s / most * used**turns / (1 - used) * vary
    queueing = np.where(used < 1, queueing, np.nan)
    front: Any = 0.0
    for _ in range(FRONTING):  # an arrival finds itself, too, and those that are in the front end
        front = front_s(price.engine, load, 1 + rate * load.ranks * (seen.stay_s + queueing + front))
    return _with_parts(replace(seen, queueing_s=queueing, random_queue=True, front_s=front))


def capacity_of(price: StepPrice, load: Requests) -> Any:
    """Return the requests a second that a rank can serve."""
    return _rates(price, load, most_running(price, load))[1][-1]


def _rates(price: StepPrice, load: Requests, most: Any) -> tuple[list[Any], Any]:
    """Return numbers of running requests, and the requests a second that end if so many run; the most so far."""
    few = 1 / np.asarray(load.ranks, dtype=float)  # one on all ranks together
    counts = [few * (most / few) ** (place / (LOADS - 1)) for place in range(LOADS)]
    through = []
    for count in counts:
        steps = steps_of(price, load, count)
        running = np.minimum(count, fed(load, steps))
        found = _steady(price.engine, load, steps, running, 1.0, at_random=True)
        through.append(np.minimum(running / found.stay_s, 1 / prompt_s(steps)))
    return counts, np.maximum.accumulate(np.stack(np.broadcast_arrays(*through)), axis=0)


def _interpolated(rate: Any, rates: Any, counts: Any) -> Any:
    """Return the running requests at a rate, between the points at which rates are known."""
    above = np.clip(np.sum(rates < rate, axis=0), 1, len(rates) - 1)
    low, high = (np.take_along_axis(rates, (above - back)[None], axis=0)[0] for back in (1, 0))
    first, last = (np.take_along_axis(counts, (above - back)[None], axis=0)[0] for back in (1, 0))
    share = np.clip((rate - low) / np.maximum(high - low, 1e-300), 0.0, 1.0)
    return first * (last / first) ** share
