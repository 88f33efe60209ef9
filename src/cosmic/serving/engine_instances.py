"""Engine instances that step: their ranks of attention go through every step together, so the slowest decides.

Where a step only decodes, nothing changes until a request ends, arrives, or the KV cache is full. An instance then
takes all these steps at once: contexts grow by the same number of tokens each step, and the price is linear in them, so
that step j takes d + s j, and k of them k d + s k (k - 1) / 2.

`StepPriceTable` has the price of steps as tables, which a simulation of many thousand steps looks up:

    decode  = D[r](c)                                   r requests of c tokens each on average
    mixed   = max(H[n], x L[r] + y (L[n] - L[r]) + C[n] + A + B[r](c)) + E[r](c)
    A       = Σ M + max (S - M)                         over chunks: S of one alone, M of one among others

    n  tokens in all      H  launching      L  linear kernels      C  collectives      x, y  of the engine
    B  attention of decoding requests, and E what they take beside the accelerators

These are the parts of `cosmic.serving.step_price`. A chunk of t tokens after p takes S[p + t] - S[p]. Tables are exact
in r and n, and linear between nodes of c; one call of `StepPrice` fills each.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from math import ceil, floor, inf, sqrt
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from cosmic.serving.engine_scheduling import AttentionRank
from cosmic.serving.step_price import LINEAR, SENT, StepPrice, total_step_s
from cosmic.simulate.analytic_step import COMPUTE_PARTS

MOST_SPANS = 50_000
"""The most that is noted of one instance."""
SUMMED = ("busy_s", "prefill_s", "running", "waiting", "kv", "steps", "decode_steps", "decoded", "read")
FLAT = 1e-12
"""A growth of steps, as a share of their time, that does not count."""


RECENT = 32
"""Steps that say how long steps are of late."""

PromptChunks = list[tuple[int, int]]
"""For each prompt of a step, the tokens that its KV cache has, and how many are prefilled."""


class RankSteps(Protocol):
    """What steps of a rank take. Whatever has these methods can be simulated."""

    def decode(self, requests: int, cached_tokens: float) -> tuple[float, float, float]:
        """Return seconds of decoding *requests* of *cached_tokens* tokens in all.

        Also what a further token of mean context adds, and for how many tokens of mean context this is true.
        """

    def mixed(
        self, tokens: int, chunks: PromptChunks, requests: int, cached_tokens: float, mean: int | None = None
    ) -> float:
        """Return seconds of a step that prefills *chunks* of *tokens* in all, and decodes *requests* beside them.

        *mean* is what ranks of the instance have on average, tokens and requests; if not given, all have the same.
        """


class InstanceSpan(NamedTuple):
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


@dataclass(slots=True, eq=False)
class StepTally:
    """Sums over the steps of a pool."""

    busy_s: float = 0.0
    prefill_s: float = 0.0
    running: float = 0.0
    """Requests, and below tokens, times seconds."""
    waiting: float = 0.0
    kv: float = 0.0
    steps: int = 0
    decode_steps: int = 0
    """Steps in which a rank decodes."""
    decoded: int = 0
    """Requests in them."""
    read: float = 0.0
    """Tokens that the attention of decoding requests read."""
    most_held: float = 0.0
    """Tokens that a rank held at most."""
    gaps: list[float] = field(default_factory=list)
    """Times between two tokens of a request."""
    gap_counts: list[int] = field(default_factory=list)
    """Of how many requests each is."""

    def mark(self) -> tuple[float, ...]:
        """Return the sums as they are now."""
        return (*(getattr(self, name) for name in SUMMED), len(self.gaps))

    def between(self, first: tuple[float, ...], last: tuple[float, ...]) -> StepTally:
        """Return what was added between two marks."""
        added: dict[str, Any] = {
            name: later - earlier for name, earlier, later in zip(SUMMED, first, last, strict=False)
        }
        part = slice(int(first[-1]), int(last[-1]))
        return StepTally(**added, most_held=self.most_held, gaps=self.gaps[part], gap_counts=self.gap_counts[part])


@dataclass(slots=True, eq=False)
class EngineInstance:
    """One engine instance."""

    index: int
    ranks: list[AttentionRank]
    table: RankSteps
    tally: StepTally
    spans: list[InstanceSpan] | None
    """What it did; None where nobody asks."""
    stepping: bool = False
    waits: bool = False
    """Whether it only waits for prompts in later stages."""
    start: float = 0.0
    end: float = 0.0
    steps: int = 1
    """Steps that end at `end`: the first takes `first`, each further one `slope` more than the one before."""
    first: float = 0.0
    slope: float = 0.0
    recent_s: float = 0.0

    def start_step(self, now: float) -> bool:
        """Begin the next steps; return whether there is anything to do."""
        ranks = self.ranks
        prefills = decodes = False
        ready = inf
        for rank in ranks:
            rank.plan(now)
            if rank.tokens:
                prefills = True
            elif rank.decodes:
                decodes = True
            for end, _ in rank.draining:
                ready = min(ready, end)
        self.waits = not (prefills or decodes) and ready < inf
        self.stepping = prefills or decodes or self.waits
        if not self.stepping:
            return False
        self.start = now
        if prefills:
            self.first, self.slope, self.steps = self._mixed(), 0.0, 1
        elif self.waits:
            self.first, self.slope, self.steps = max(ready - now, 0.0), 0.0, 1
        else:
            self.first, self.slope, self.steps = self._ahead()
        self.end = self._after(self.steps)
        if decodes and ready < self.end:
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

    def _held(self, rank: AttentionRank, seconds: float) -> float:
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
            if any(seconds + per_request * (count - 1) > last for seconds, per_request in lines):
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
            for index, value in enumerate(
                (rank.tokens, rank.decodes, rank.running, len(rank.waiting), rank.cached_tokens)
            ):
                sums[index] += value
        self.spans.append(InstanceSpan(self.start, self.end, self.steps, *sums))  # type: ignore[union-attr, arg-type]

    def _measure(self, seconds: float, steps: int) -> None:
        tally, table = self.tally, self.table
        tally.busy_s += seconds
        tally.steps += steps
        prefills = 0.0
        for rank in self.ranks:
            decodes, cached_tokens = rank.decodes, rank.cached_tokens
            tally.running += rank.running * seconds
            tally.waiting += len(rank.waiting) * seconds
            tally.kv += (cached_tokens + rank.growth * decodes * (steps - 1) / 2) * seconds
            tally.most_held = max(tally.most_held, cached_tokens + rank.growth * decodes * (steps - 1))
            if rank.tokens:
                prefills = max(prefills, seconds - (table.decode(decodes, rank.read)[0] if decodes else 0.0))
            if decodes:
                tally.decode_steps += steps
                tally.decoded += decodes * steps
                tally.read += rank.read * steps + rank.growth * decodes * (steps * (steps - 1) / 2)
                tally.gaps.append(rank.lag + self.first)
                tally.gap_counts.append(decodes)
                rank.lag = 0.0
                if steps > 1:
                    tally.gaps.append((seconds - self.first) / (steps - 1))
                    tally.gap_counts.append(decodes * (steps - 1))
            elif rank.decoding:
                rank.lag += seconds
        tally.prefill_s += prefills if steps else seconds


# ---- The price of steps as tables: what a simulation of many thousand steps looks up

NODES_PER_OCTAVE = 4
MOST_ROWS = 16_384
"""Numbers that are priced one by one."""
TILE = 128
"""Tokens of a tile of attention and GEMMs: between their multiples, times are nearly linear."""
OTHERS = 8
"""Prompts of a step from which is told what one among others takes."""

Floats = npt.NDArray[np.float64]


class StepPriceTable:
    """Tables of one pool's steps, for up to *requests* a rank, *tokens* a step and *context* tokens a request."""

    def __init__(self, price: StepPrice, requests: int, tokens: int, context: int, spread: float = 0.0) -> None:
        self.price, self.decode_tokens = price, 1 + price.draft_tokens
        self.spread = spread
        """Share of the linear kernels that work on the tokens of all ranks of the instance: routed experts."""
        last = max(NODES_PER_OCTAVE, int(np.ceil(NODES_PER_OCTAVE * np.log2(max(context, 2)))))
        self.nodes: list[float] = np.unique(np.rint(2 ** (np.arange(last + 1) / NODES_PER_OCTAVE))).tolist()
        counts = _priced_counts(requests)
        decode, attention, engine, linear = _decode_rows(price, counts, np.array(self.nodes))
        self.row: list[int] = (np.searchsorted(counts, np.arange(requests + 1), side="right") - 1).tolist()
        self.rows, self.slopes = _linear_pieces(decode, self.nodes)
        self.beside, self.beside_slopes = _linear_pieces(attention, self.nodes)
        self.engine, self.engine_slopes = _linear_pieces(engine, self.nodes)
        self.alone: list[tuple[float, ...]] = [tuple(row) for row in linear.tolist()]
        self.most = tokens + requests * self.decode_tokens
        counts = _priced_counts(self.most)
        every = np.arange(self.most + 1)
        columns = [np.interp(every, counts, step_row).tolist() for step_row in _step_rows(price, counts)]
        self.whole: list[tuple[float, ...]] = list(zip(*columns, strict=True))
        self.known: dict[int, tuple[float, ...]] = {}
        lengths, every = _priced_counts(context), np.arange(context + 1)
        single, among = (
            np.interp(every, [0, *lengths], [0.0, *attention_row]) for attention_row in _attention_rows(price, lengths)
        )
        self.among: list[float] = among.tolist()
        self.single: list[float] = (single - among).tolist()
        """What one alone takes beyond one among others."""
        self.x, self.y = float(price.engine.decode_factor), float(np.ravel(price.prefill_factor)[0])

    def decode(self, requests: int, cached_tokens: float) -> tuple[float, float, float]:
        """Return seconds, what a further token of mean context adds, and for how many such tokens this is true."""
        nodes = self.nodes
        context = cached_tokens / requests
        node = bisect_right(nodes, context, 1, len(nodes) - 1) - 1
        row = self.row[requests]
        slope = self.slopes[row][node]
        return self.rows[row][node] + slope * (context - nodes[node]), slope, nodes[node + 1] - context

    def mixed(
        self, tokens: int, chunks: PromptChunks, requests: int, cached_tokens: float, mean: int | None = None
    ) -> float:
        """Return seconds of a step that prefills, and decodes *requests* beside it; ranks have *mean* tokens."""
        count = tokens + requests * self.decode_tokens
        host, sent, gemm, linear = self.whole[count] if count <= self.most else self._long(count)
        if mean is not None and self.spread and mean < count:
            gemm += self.spread * ((self.whole[mean] if mean <= self.most else self._long(mean))[2] - gemm)
        busy, longest, among, single = sent, 0.0, self.among, self.single
        for past, chunk in chunks:
            end = past + chunk
            busy += among[end] - among[past]
            further = single[end] - single[past]
            longest = max(longest, further)
        busy += longest
        y = self.y
        if not requests:
            return max(host, busy + y * (gemm + linear)) + self.engine_alone
        nodes = self.nodes
        context = cached_tokens / requests
        node = bisect_right(nodes, context, 1, len(nodes) - 1) - 1
        row = self.row[requests]
        own_gemm, own_other = self.alone[row]
        busy += self.x * (own_gemm + own_other) + y * (max(gemm - own_gemm, 0.0) + max(linear - own_other, 0.0))
        further = context - nodes[node]
        busy += self.beside[row][node] + self.beside_slopes[row][node] * further
        return max(host, busy) + self.engine[row][node] + self.engine_slopes[row][node] * further

    @property
    def engine_alone(self) -> float:
        """What a step without decoding requests takes beside the accelerators."""
        return self.price.engine.step_host_s

    def _long(self, count: int) -> tuple[float, ...]:
        """Return what a step takes that has more tokens than a step may have: a prompt that cannot be cut."""
        if count not in self.known:
            self.known[count] = tuple(float(step_row[0]) for step_row in _step_rows(self.price, np.array([count])))
        return self.known[count]


def _priced_counts(largest: int) -> npt.NDArray[np.int64]:
    """Return the numbers up to *largest* that are priced: each of the first, then where kernels have a further tile."""
    first = np.arange(1, min(largest, MOST_ROWS) + 1)
    tiles = np.arange(MOST_ROWS, largest, TILE)
    return np.unique(np.concatenate([first, tiles, np.minimum(tiles + 1, largest), [largest]])).astype(np.int64)


def _linear_pieces(values: Floats, nodes: list[float]) -> tuple[list[list[float]], list[list[float]]]:
    """Return the values of each row at its nodes, and the slopes between them."""
    return values.tolist(), (np.diff(values, axis=1) / np.diff(nodes)).tolist()


def _decode_rows(price: StepPrice, counts: Any, nodes: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Return D, B, E and L: a row for each count of requests, and a column for each context or linear kernel."""
    requests, contexts = (column.ravel() for column in np.meshgrid(counts, nodes, indexing="ij"))
    parts = price.decode_parts(requests, contexts)
    gaps = price._gaps_s
    shape = (len(counts), len(nodes))
    rows = (total_step_s(parts), parts["attention"] + gaps, parts["engine"] - gaps, *(parts[name] for name in LINEAR))
    decode, attention, engine, *linear = (np.broadcast_to(column, requests.shape).reshape(shape) for column in rows)
    return decode, attention, engine, np.stack(linear, axis=1)[:, :, 0] / price.engine.decode_factor


def _step_rows(price: StepPrice, counts: Any) -> list[Floats]:
    """Return H, C and L of so many tokens."""
    step = price.steps("prefill", 1.0, counts)
    no_parts = dict.fromkeys((*COMPUTE_PARTS, *SENT), 0.0)
    hosts = price._late(step, no_parts)  # what launching takes beyond nothing is all of it
    sent = sum(step[f"breakdown.{name}"] for name in SENT)
    linear = (step[f"breakdown.{name}"] for name in LINEAR)
    return [np.broadcast_to(column, counts.shape) for column in (hosts, sent, *linear)]


def _attention_rows(price: StepPrice, lengths: Any) -> tuple[Floats, Floats]:
    """Return S and M of prompts of so many tokens."""
    single, several = (
        np.broadcast_to(price.prefill_parts(lengths, count)["attention"], lengths.shape) for count in (1, OTHERS)
    )
    return single, (several - single) / (OTHERS - 1)
