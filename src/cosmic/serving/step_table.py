"""The price of steps as tables: what a simulation of many thousand steps looks up.

    decode  = D[r](c)                                   r requests of c tokens each on average
    mixed   = max(H[n], x L[r] + y (L[n] - L[r]) + C[n] + A + B[r](c)) + E[r](c)
    A       = Σ M + max (S - M)                         over chunks: S of one alone, M of one among others

    n  tokens in all      H  launching      L  linear kernels      C  collectives      x, y  of the engine
    B  attention of decoding requests, and E what they take beside the accelerators

These are the parts of `cosmic.serving.price`. A chunk of t tokens after p takes S[p + t] - S[p]. Tables are exact in r
and n, and linear between nodes of c; one call of `StepPrice` fills each.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

import numpy as np
import numpy.typing as npt

from cosmic.serving.instances import Chunks
from cosmic.serving.price import LINEAR, SENT, StepPrice, total
from cosmic.simulation.analytic import COMPUTE_PARTS

NODES_PER_OCTAVE = 4
MOST_ROWS = 16_384
"""Numbers that are priced one by one."""
TILE = 128
"""Tokens of a tile of attention and GEMMs: between their multiples, times are nearly linear."""
OTHERS = 8
"""Prompts of a step from which is told what one among others takes."""

Floats = npt.NDArray[np.float64]


class StepTable:
    """Tables of one pool's steps, for up to *requests* a rank, *tokens* a step and *context* tokens a request."""

    def __init__(self, price: StepPrice, requests: int, tokens: int, context: int, spread: float = 0.0) -> None:
        self.price, self.decode_tokens = price, 1 + price.draft_tokens
        self.spread = spread
        """Share of the linear kernels that work on the tokens of all ranks of the instance: routed experts."""
        self.nodes = _nodes(context)
        counts = _counts(requests)
        decode, beside, engine, alone = _decode_rows(price, counts, np.array(self.nodes))
        self.row: list[int] = (np.searchsorted(counts, np.arange(requests + 1), side="right") - 1).tolist()
        self.rows, self.slopes = _lines(decode, self.nodes)
        self.beside, self.beside_slopes = _lines(beside, self.nodes)
        self.engine, self.engine_slopes = _lines(engine, self.nodes)
        self.alone: list[tuple[float, ...]] = [tuple(each) for each in alone.tolist()]
        self.most = tokens + requests * self.decode_tokens
        counts = _counts(self.most)
        every = np.arange(self.most + 1)
        columns = [np.interp(every, counts, each).tolist() for each in _step_rows(price, counts)]
        self.whole: list[tuple[float, ...]] = list(zip(*columns, strict=True))
        self.known: dict[int, tuple[float, ...]] = {}
        lengths, every = _counts(context), np.arange(context + 1)
        single, among = (np.interp(every, [0, *lengths], [0.0, *each]) for each in _attention_rows(price, lengths))
        self.among: list[float] = among.tolist()
        self.single: list[float] = (single - among).tolist()
        """What one alone takes beyond one among others."""
        self.x, self.y = float(price.engine.decode_factor), float(np.ravel(price.prefill_factor)[0])

    def decode(self, requests: int, held: float) -> tuple[float, float, float]:
        """Return seconds, what a further token of mean context adds, and for how many such tokens this is true."""
        nodes = self.nodes
        context = held / requests
        place = bisect_right(nodes, context, 1, len(nodes) - 1) - 1
        row = self.row[requests]
        slope = self.slopes[row][place]
        return self.rows[row][place] + slope * (context - nodes[place]), slope, nodes[place + 1] - context

    def mixed(self, tokens: int, chunks: Chunks, requests: int, held: float, mean: int | None = None) -> float:
        """Return seconds of a step that prefills, and decodes *requests* beside it; ranks have *mean* tokens."""
        count = tokens + requests * self.decode_tokens
        host, sent, gemm, other = self.whole[count] if count <= self.most else self._long(count)
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
            return max(host, busy + y * (gemm + other)) + self.engine_alone
        nodes = self.nodes
        context = held / requests
        place = bisect_right(nodes, context, 1, len(nodes) - 1) - 1
        row = self.row[requests]
        own_gemm, own_other = self.alone[row]
        busy += self.x * (own_gemm + own_other) + y * (max(gemm - own_gemm, 0.0) + max(other - own_other, 0.0))
        further = context - nodes[place]
        busy += self.beside[row][place] + self.beside_slopes[row][place] * further
        return max(host, busy) + self.engine[row][place] + self.engine_slopes[row][place] * further

    @property
    def engine_alone(self) -> float:
        """What a step without decoding requests takes beside the accelerators."""
        return self.price.engine.step_host_s

    def _long(self, count: int) -> tuple[float, ...]:
        """Return what a step takes that has more tokens than a step may have: a prompt that cannot be cut."""
        if count not in self.known:
            self.known[count] = tuple(float(each[0]) for each in _step_rows(self.price, np.array([count])))
        return self.known[count]


def _nodes(context: int) -> list[float]:
    last = max(NODES_PER_OCTAVE, int(np.ceil(NODES_PER_OCTAVE * np.log2(max(context, 2)))))
    found: list[float] = np.unique(np.rint(2 ** (np.arange(last + 1) / NODES_PER_OCTAVE))).tolist()
    return found


def _counts(most: int) -> npt.NDArray[np.int64]:
    """Return the numbers up to *most* that are priced: each of the first, then where kernels have a further tile."""
    first = np.arange(1, min(most, MOST_ROWS) + 1)
    tiles = np.arange(MOST_ROWS, most, TILE)
    return np.unique(np.concatenate([first, tiles, np.minimum(tiles + 1, most), [most]])).astype(np.int64)


def _lines(values: Floats, nodes: list[float]) -> tuple[list[list[float]], list[list[float]]]:
    """Return the values of each row at its nodes, and the slopes between them."""
    return values.tolist(), (np.diff(values, axis=1) / np.diff(nodes)).tolist()


def _decode_rows(price: StepPrice, counts: Any, nodes: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Return D, B, E and L: a row for each count of requests, and a column for each context or linear kernel."""
    requests, contexts = (each.ravel() for each in np.meshgrid(counts, nodes, indexing="ij"))
    parts = price.decode_parts(requests, contexts)
    gaps = price._gaps_s
    shape = (len(counts), len(nodes))
    found = (total(parts), parts["attention"] + gaps, parts["engine"] - gaps, *(parts[name] for name in LINEAR))
    decode, beside, engine, *linear = (np.broadcast_to(each, requests.shape).reshape(shape) for each in found)
    return decode, beside, engine, np.stack(linear, axis=1)[:, :, 0] / price.engine.decode_factor


def _step_rows(price: StepPrice, counts: Any) -> list[Floats]:
    """Return H, C and L of so many tokens."""
    found = price.steps("prefill", 1.0, counts)
    nothing = dict.fromkeys((*COMPUTE_PARTS, *SENT), 0.0)
    hosts = price._late(found, nothing)  # what launching takes beyond nothing is all of it
    sent = sum(found[f"breakdown.{name}"] for name in SENT)
    linear = (found[f"breakdown.{name}"] for name in LINEAR)
    return [np.broadcast_to(each, counts.shape) for each in (hosts, sent, *linear)]


def _attention_rows(price: StepPrice, lengths: Any) -> tuple[Floats, Floats]:
    """Return S and M of prompts of so many tokens."""
    single, several = (
        np.broadcast_to(price.prefill_parts(lengths, count)["attention"], lengths.shape) for count in (1, OTHERS)
    )
    return single, (several - single) / (OTHERS - 1)
