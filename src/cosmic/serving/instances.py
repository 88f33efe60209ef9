"""Engine instances that step: their ranks of attention go through every step together, so the slowest decides.

Where a step only decodes, nothing changes until a request ends, arrives, or the KV cache is full. An instance then
takes all these steps at once: contexts grow by the same number of tokens each step, and the price is linear in them, so
that step j takes d + s j, and k of them k d + s k (k - 1) / 2.
"""

from __future__ import annotations

from math import ceil, floor, sqrt
from typing import NamedTuple, Protocol

from cosmic.serving.scheduling import Rank

MOST_SPANS = 50_000
"""The most that is noted of one instance."""
SUMMED = ("busy_s", "prefill_s", "running", "waiting", "kv", "steps", "decode_steps", "decoded", "read")
FLAT = 1e-12
"""A growth of steps, as a share of their time, that does not count."""


RECENT = 32
"""Steps that say how long steps are of late."""

Chunks = list[tuple[int, int]]
"""For each prompt of a step, the tokens that its KV cache has, and how many are prefilled."""


class Steps(Protocol):
    """What steps of a rank take. Whatever has these methods can be simulated."""

    def decode(self, requests: int, held: float) -> tuple[float, float, float]:
        """Return seconds of decoding *requests* of *held* tokens in all.

        Also what a further token of mean context adds, and for how many tokens of mean context this is true.
        """

    def mixed(self, tokens: int, chunks: Chunks, requests: int, held: float, mean: int | None = None) -> float:
        """Return seconds of a step that prefills *chunks* of *tokens* in all, and decodes *requests* beside them.

        *mean* is what ranks of the instance have on average, tokens and requests; if not given, all have the same.
        """


class Span(NamedTuple):
    """What an instance did for a while; the numbers are those at its beginning."""

    start_s: float
    end_s: float
    steps: int
    tokens: int
    """Prompt tokens that were prefilled."""
    decodes: int
    """Requests that decoded, in each step."""
    running: int
    waiting: int
    held: float
    """Tokens in the KV cache."""


class Tally:
    """Sums over the steps of a pool."""

    __slots__ = (
        "busy_s",
        "decode_steps",
        "decoded",
        "gaps",
        "kv",
        "most_held",
        "prefill_s",
        "read",
        "running",
        "steps",
        "waiting",
        "weights",
    )

    def __init__(self) -> None:
        self.busy_s = self.prefill_s = self.running = self.waiting = self.kv = 0.0
        """Seconds; and requests and tokens, times seconds."""
        self.steps = self.decode_steps = self.decoded = 0
        """Steps of instances; steps in which a rank decodes, and requests in them."""
        self.most_held = self.read = 0.0
        """Tokens that a rank held at most, and that the attention of decoding requests read."""
        self.gaps: list[float] = []
        """Times between two tokens of a request, and of how many."""
        self.weights: list[int] = []

    def mark(self) -> tuple[float, ...]:
        """Return the sums as they are now."""
        return (*(getattr(self, name) for name in SUMMED), len(self.gaps))

    def between(self, first: tuple[float, ...], last: tuple[float, ...]) -> Tally:
        """Return what was added between two marks."""
        found = Tally()
        for name, before, after in zip(SUMMED, first, last, strict=False):
            setattr(found, name, after - before)
        part = slice(int(first[-1]), int(last[-1]))
        found.gaps, found.weights, found.most_held = self.gaps[part], self.weights[part], self.most_held
        return found


class Instance:
    """One engine instance."""

    __slots__ = (
        *("end", "first", "index", "ranks", "recent_s", "slope", "spans", "start", "stepping", "steps", "table"),
        *("tally", "waits"),
    )

    def __init__(self, index: int, ranks: list[Rank], table: Steps, tally: Tally, spans: list[Span] | None) -> None:
        self.index, self.ranks, self.table, self.tally, self.spans = index, ranks, table, tally, spans
        self.stepping = self.waits = False
        """Whether it steps; and whether it only waits for prompts in later stages."""
        self.start = self.end = self.first = self.slope = self.recent_s = 0.0
        self.steps = 1
        """Steps that end at `end`: the first takes `first`, each further one `slope` more than the one before."""

    def begin(self, now: float) -> bool:
        """Begin the next steps; return whether there is anything to do."""
        ranks = self.ranks
        prefills = decodes = False
        for rank in ranks:
            rank.plan(now)
            if rank.tokens:
                prefills = True
            elif rank.decodes:
                decodes = True
        ready = min((each for rank in ranks for each, _ in rank.draining), default=None)
        self.waits = not (prefills or decodes) and ready is not None
        self.stepping = prefills or decodes or self.waits
        if not self.stepping:
            return False
        self.start = now
        if prefills:
            self.first, self.slope, self.steps = self._mixed(), 0.0, 1
        elif self.waits:
            self.first, self.slope, self.steps = max(ready - now, 0.0), 0.0, 1  # type: ignore[operator]  # it is known
        else:
            self.first, self.slope, self.steps = self._ahead()
        self.end = self._after(self.steps)
        if decodes and ready is not None and ready < self.end:
            self.interrupt(ready)
        return True

    def _mixed(self) -> float:
        """Return for how long a step with prompts holds the instance, by the slowest rank."""
        table, ranks = self.table, self.ranks
        if len(ranks) == 1:
            rank = ranks[0]
            return self._held(rank, table.mixed(rank.tokens, rank.chunks, rank.decodes, rank.read))
        mean = -(-sum(rank.tokens + rank.decodes for rank in ranks) // len(ranks))
        longest = 0.0
        for rank in ranks:
            if rank.tokens:
                seconds = self._held(rank, table.mixed(rank.tokens, rank.chunks, rank.decodes, rank.read, mean))
            elif rank.decodes:
                seconds = table.decode(rank.decodes, rank.read)[0]
            else:
                continue
            longest = max(longest, seconds)
        return longest

    def _held(self, rank: Rank, seconds: float) -> float:
        """Return after how long the next step follows one that takes *seconds* through all stages."""
        stages = rank.limits.stages
        if stages == 1:
            return seconds
        decode = self.table.decode(rank.decodes, rank.read)[0] if rank.decodes else 0.0
        prompts = max(seconds - decode, 0.0)
        largest = rank.limits.stage_tokens
        if not rank.limits.chunked:
            largest = max(largest, *(chunk for _, chunk in rank.chunks))
        drain = prompts * min(largest, rank.tokens) / rank.tokens * (1 - 1 / stages)
        rank.drain = max(drain, rank.drain_before)
        return seconds - prompts * (1 - 1 / stages)

    def _ahead(self) -> tuple[float, float, int]:
        """Return the first step's seconds, by how much each is longer than the one before, and how many are alike."""
        lines, steps = [], 2.0**52
        for rank in self.ranks:
            if rank.decodes:
                seconds, slope, room = self.table.decode(rank.decodes, rank.read)
                growth = rank.growth
                lines.append((seconds, slope * growth))
                steps = min(steps, rank.steps_ahead(), room // growth + 1)
        first, slope = max(lines)
        count = max(1, int(steps))
        if len(lines) > 1 and count > 1:
            last = first + slope * (count - 1)
            if any(seconds + more * (count - 1) > last for seconds, more in lines):
                count = 1  # another rank overtakes
        return first, slope, count

    def _after(self, steps: int) -> float:
        return self.start + (steps * self.first + self.slope * (steps * (steps - 1) / 2))

    def pace_s(self) -> float:
        """Return what a step takes of late."""
        return self.recent_s or self.first

    def interrupt(self, now: float) -> bool:
        """End with the step that runs *now*; return whether that is earlier than was planned."""
        if self.waits and now < self.end:
            self.end = now
            return True
        if self.steps == 1:
            return False
        steps = self._steps_until(now - self.start)
        while steps > 1 and self._after(steps - 1) >= now:
            steps -= 1
        while self._after(steps) < now:
            steps += 1
        if steps >= self.steps:
            return False
        self.steps, self.end = steps, self._after(steps)
        return True

    def _steps_until(self, seconds: float) -> int:
        """Return about how many steps begin within *seconds*."""
        first, slope = self.first, self.slope
        if abs(slope) * self.steps <= FLAT * first:
            return max(1, ceil(seconds / first))
        half = first - slope / 2
        return max(1, floor((sqrt(max(half * half + 2 * slope * seconds, 0.0)) - half) / slope))

    def finish(self) -> None:
        """Account for the steps that end."""
        now, steps, first_end = self.end, self.steps, self.start + self.first
        self.stepping = False
        if self.waits:
            self._measure(now - self.start, 0)
            self.waits = False
            for rank in self.ranks:
                rank.finish(now, 0, now)
            return
        self._measure(now - self.start, steps)
        share = min(1.0, steps / RECENT) if self.recent_s else 1.0
        self.recent_s += ((now - self.start) / steps - self.recent_s) * share
        if self.spans is not None and len(self.spans) < MOST_SPANS:
            self._note()
        for rank in self.ranks:
            rank.finish(now, steps, now if steps == 1 else first_end)

    def _note(self) -> None:
        sums = [0, 0, 0, 0, 0.0]
        for rank in self.ranks:
            for place, each in enumerate((rank.tokens, rank.decodes, rank.running, len(rank.waiting), rank.held)):
                sums[place] += each
        self.spans.append(Span(self.start, self.end, self.steps, *sums))  # type: ignore[union-attr, arg-type]

    def _measure(self, seconds: float, steps: int) -> None:
        tally, table = self.tally, self.table
        tally.busy_s += seconds
        tally.steps += steps
        prefills = 0.0
        for rank in self.ranks:
            decodes, held = rank.decodes, rank.held
            tally.running += rank.running * seconds
            tally.waiting += len(rank.waiting) * seconds
            tally.kv += (held + rank.growth * decodes * (steps - 1) / 2) * seconds
            tally.most_held = max(tally.most_held, held + rank.growth * decodes * (steps - 1))
            if rank.tokens:
                prefills = max(prefills, seconds - (table.decode(decodes, rank.read)[0] if decodes else 0.0))
            if decodes:
                tally.decode_steps += steps
                tally.decoded += decodes * steps
                tally.read += rank.read * steps + rank.growth * decodes * (steps * (steps - 1) / 2)
                tally.gaps.append(rank.lag + self.first)
                tally.weights.append(decodes)
                rank.lag = 0.0
                if steps > 1:
                    tally.gaps.append((seconds - self.first) / (steps - 1))
                    tally.weights.append(decodes * (steps - 1))
            elif rank.decoding:
                rank.lag += seconds
        tally.prefill_s += prefills if steps else seconds
