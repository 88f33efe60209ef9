"""How prompts of all ranks come together in steps.

In a closed loop a prompt comes as an answer ends: so many in each step, however long it takes. In an open loop they
come at random in time. Then a long step has more of them behind it, and long steps follow each other: a chain of two
states, of which a share x of the steps is long:

    x = (1 - exp(-Λ d)) / (exp(-Λ S) / n + 1 - exp(-Λ d))      Λ  prompts a second of all ranks      G = Λ n s / x

S varies by the prompts in it, a Poisson number: at a known rate exp(-Λ S) is a mean over them, mostly of short ones.
A rank that prefills first does not decode in the steps with its own prompts, but does in those with others'.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cosmic.serving.batch_steps import LEAST, Requests, Steps

HALVINGS = 16
"""Of the interval in which the mean step lies that arrivals at random find, or the prompts of one."""
FREE = 0.25
"""Least share of long steps in which a rank of several has no prompt. A prompt goes to the rank with fewest requests:
one that has just had some gets no others before the rest have as many. Simulations are between a fifth and a half."""


@dataclass(frozen=True, slots=True)
class Found:
    """How prompts of all ranks come together in steps."""

    together: Any
    """G: prompts of a step that has any."""
    with_any: Any
    """Such steps, for each step in which a rank decodes."""
    mine: Any
    """Those of them with prompts of this rank."""
    alone: Any = 1.0
    """How likely no prompt of this rank comes in such a step, if they come at a rate."""

    def added(self, steps: Steps) -> Any:
        """Return what prompts add to the mean step of a rank.

        Where prefills go first, a rank decodes in the steps that only others prefill in.
        """
        others = np.where(steps.apart, (self.with_any - self.mine) * steps.decode_s, 0.0)
        return self.with_any * steps.added(self.together) - others


def found_at_once(per_step: Any, load: Requests, steps: Steps, running: Any = np.inf) -> Found:
    """Return how prompts come together if so many come to each rank in a step in which it decodes: as answers end.

    >>> load = Requests(isl=1, osl=1, ranks=1)
    >>> steps = Steps(1.0, 1.0, 0.0, 8.0, 1.0, False)
    >>> [round(float(found_at_once(each, load, steps).together), 2) for each in (1e-6, 1.0, 100.0)]
    [1.0, 1.58, 8.0]
    """
    looked, ranks = np.maximum(np.maximum(load.poll_steps, load.hold_steps), 1.0), np.asarray(load.ranks, dtype=float)
    here = np.maximum(per_step * ranks * looked, LEAST)
    mine = per_step * steps.chunks / _at_once(per_step * looked, steps.room)
    share = np.minimum(mine, 1.0)
    with_any = np.where(steps.apart, (1 + share) * -np.expm1(-ranks * np.log1p(share)), 1 - (1 - share) ** ranks)
    found = np.maximum(here / -np.expm1(-here), ranks * per_step * steps.chunks / np.maximum(with_any, LEAST))
    return _found(found, mine, per_step, steps, running)


def found_at_random(per_step: Any, load: Requests, steps: Steps, running: Any) -> Found:
    """Return the same if prompts come at random: more of them in long steps, which follow each other by that.

    The longer steps are, the fewer prompts come in a second, and the shorter are steps: halving finds where both agree.
    """
    low = np.log(steps.decode_s)
    high = low + np.log1p(steps.ranks * per_step * steps.chunks * steps.held(np.inf) / steps.decode_s) + 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        found = _at_rate(per_step / np.exp(middle), per_step, steps, running, crowded=True)
        longer = steps.decode_s + found.added(steps) > np.exp(middle)
        low, high = np.where(longer, middle, low), np.where(longer, high, middle)
    return found


def found_at_rate(rate: Any, steps: Steps, most_s: Any = np.inf) -> tuple[Found, Any]:
    """Return the same if a rate is known, which leaves the engine idle now and then; and the prompts per step.

    So many prompts are in a long step as come in it, and in the short ones before it: the more there are in it, the
    less is that for each of them, so halving finds where both agree. Steps in which a rank decodes are *most_s* apart
    at most: then all seats are taken, and prompts wait for one.
    """
    ranks, most = steps.ranks, np.maximum(steps.room * steps.ranks, 1.0)
    begins = np.maximum(-np.expm1(-rate * ranks * steps.decode_s), LEAST**2)
    low, high = np.log(LEAST) * np.ones_like(begins * most), np.log(most) * np.ones_like(begins)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        together, ends = _chain(rate, np.exp(middle), steps)
        come = rate * ranks * steps.chunks * (steps.held(together) + steps.decode_s * ends / begins)
        low, high = np.where(come > together, middle, low), np.where(come > together, high, middle)
    together, ends = _chain(rate, np.exp(high), steps)
    long_s, share = steps.held(together), begins / (ends + begins)
    none = _none_come(rate * steps.chunks, np.exp(high), together, steps)
    none = np.where(ranks > 1, np.maximum(none, FREE), none)
    here = np.where(ranks > 1, share * (1 - none) + (1 - share) * -np.expm1(-rate * steps.decode_s), share)
    gone = np.where(steps.apart, np.maximum(1 - here, LEAST), 1.0)
    step = (share * long_s + (1 - share) * steps.decode_s) / gone
    fewer = np.minimum(1.0, np.maximum(most_s - steps.decode_s, 0.0) / np.maximum(step - steps.decode_s, LEAST**2))
    with_any, mine = fewer * share / gone, fewer * here / gone
    found = Found(together, with_any, np.minimum(mine, with_any), none)
    return found, rate * (steps.decode_s + found.added(steps))


def _chain(rate: Any, mean: Any, steps: Steps) -> tuple[Any, Any]:
    """Return the prompts of a long step, Poisson of that *mean* but not 0, and how often it is the last.

    It is if no other has come in it, and it was the last chunk.
    """
    together = np.minimum(mean / -np.expm1(-mean), np.maximum(steps.room * steps.ranks, 1.0))
    return together, _none_come(rate * steps.ranks, mean, together, steps) / steps.chunks


def _none_come(rate: Any, mean: Any, together: Any, steps: Steps) -> Any:
    """Return how likely none comes at a rate in a long step: mostly in those with few prompts, which are short."""
    each = rate * np.maximum(steps.held(together + 0.5) - steps.held(together - 0.5), 0.0)
    fewer = mean * np.exp(-each)
    varied = np.maximum(each * together - mean + fewer + np.log(np.expm1(-fewer) / np.expm1(-mean)), 0.0)
    return np.exp(np.minimum(varied - rate * steps.held(together), 0.0))


def _at_rate(rate: Any, per_step: Any, steps: Steps, running: Any, *, crowded: bool = False) -> Found:
    """Return how prompts come together that come at a rate to each rank, so many in a step."""
    ranks, found = steps.ranks, Found(1.0, 0.0, 0.0)
    for _ in range(2):
        long_s, chunks = steps.held(found.together), rate * steps.chunks
        begins = -np.expm1(-rate * ranks * steps.decode_s)
        ends = np.exp(-rate * ranks * long_s) / steps.chunks  # no other has come, and it was the last chunk
        ends = np.exp(-chunks * ranks * long_s) if crowded else ends  # or of none that are under way
        share = begins / (ends + begins)
        here = share * -np.expm1(-chunks * long_s) + (1 - share) * -np.expm1(-rate * steps.decode_s)
        gone = np.where(steps.apart, np.maximum(1 - here, LEAST), 1.0)
        mine, with_any = here / gone, share / gone
        together = ranks * per_step * steps.chunks / np.maximum(with_any, LEAST)
        found = _found(together, mine, per_step, steps, running)
    return found


def _found(together: Any, mine: Any, per_step: Any, steps: Steps, running: Any) -> Found:
    """Return how prompts come together, of as many as there are and as there is room for."""
    most = np.minimum(steps.room * steps.ranks, np.maximum(running * steps.ranks / steps.stages, 1.0))
    together = np.clip(together, 1.0, most)
    with_any = steps.ranks * per_step * steps.chunks / together
    return Found(together, with_any, np.minimum(mine, with_any))


def _at_once(per_step: Any, room: Any) -> Any:
    """Return the prompts of a step that has any, on one rank."""
    here = np.maximum(per_step, LEAST)
    return np.clip(here / -np.expm1(-here), 1.0, room)
