"""A small engine that serves LLaMA-like models with random weights on one GPU; `measure_serving.py` runs it.

It has a paged KV cache, decode steps as CUDA graphs, and prefill in chunks or whole. Needs PyTorch and Triton
(`serving_kernels.py`). A layer of a decode step is ten kernels: norm with residual, QKV, rotation with the write to the
cache, attention (split over the context, then joined), output, norm with residual, gate with up, SiLU, down. Steps with
prompts run the same kernels, and attention of prompts, over all tokens together; up to GRAPHED tokens they are graphs
too, padded to the next size. Steps are synchronous: the host schedules the next one when it has the tokens of the last.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import triton
from serving_kernels import (
    decode_kernel,
    expert_kernel,
    join_kernel,
    norm_kernel,
    offsets_kernel,
    prefill_kernel,
    rotate_kernel,
    route_kernel,
    silu_kernel,
    sorted_kernel,
)

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
DTYPE = torch.bfloat16 if CUDA else torch.float32
PAGE = 16
LOG2E = 1.4426950408889634
GRAPHED = [*range(32, 513, 32), *range(576, 2049, 64)]
"""Tokens of steps with prompts that are recorded; others up to the last are padded, larger ones run eagerly."""
TILE = 128
"""Tokens of a prompt that a program of the prefill kernel computes."""
SPARE_TILES = 48
"""Tiles of a recorded step beyond those of one prompt."""
MOST_TOKENS = 20480
"""Of a step."""
MIXED_SPLITS = 4
"""Parts into which a step with prompts splits the context of the sequences that decode."""
WAVES = 8
"""Programs of the decode kernel for each of the GPU's 132 SMs, at most."""
TUNED = {"block": 64, "warps": 4, "stages": 3}
"""Tokens that a program of the decode kernel reads at a time, its warps and its pipeline."""
TUNED_EXPERTS = [64, 128, 4, 4]
"""Columns, depth, warps and stages of a tile of experts in a decode step."""
TUNED_PREFILL = {"block": 64, "warps": 8, "stages": 3}
"""The same of the prefill kernel."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of a model."""

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    experts: int = 0
    top_k: int = 0


def _power(count: int) -> int:
    return 1 << (count - 1).bit_length()


def expert_tile(rows: int) -> tuple[int, int, int, int, int]:
    """Return rows, columns, depth, warps and stages of a tile of experts that have so many rows each."""
    if rows <= 16:
        return (16, *TUNED_EXPERTS)
    return (64, 128, 64, 4, 4) if rows <= 128 else (128, 128, 64, 8, 3)


@dataclass
class Mixture:
    """What a step with prompts computes beside its tokens: how many decode, on the device, and the prompts' tiles.

    A tile is four numbers: its first row, how many rows it has, the position of the first, and the slot.
    """

    decodes: torch.Tensor
    most: int
    """Of them."""
    tiles: torch.Tensor


class Model:
    """Weights and cache of a model, and what a step computes."""

    def __init__(self, sizes: Sizes, pages: int, sequences: int, longest: int) -> None:
        s = self.sizes = sizes
        wide = (s.heads + 2 * s.kv_heads) * s.head_dim

        def random(*shape: int) -> torch.Tensor:
            return torch.empty(shape, device=DEVICE, dtype=DTYPE).normal_(0, shape[-2] ** -0.5)

        self.embed = torch.empty(s.vocab, s.hidden, device=DEVICE, dtype=DTYPE).normal_()
        self.head = random(s.hidden, s.vocab)
        self.norms = torch.ones(2 * s.layers + 1, s.hidden, device=DEVICE, dtype=DTYPE)
        self.layers = []
        for _ in range(s.layers):
            layer = {"qkv": random(s.hidden, wide), "out": random(s.heads * s.head_dim, s.hidden)}
            if s.experts:
                layer["router"] = random(s.hidden, s.experts)
                layer["up"] = random(s.experts, s.hidden, 2 * s.ffn)
                layer["down"] = random(s.experts, s.ffn, s.hidden)
            else:
                layer["up"], layer["down"] = random(s.hidden, 2 * s.ffn), random(s.ffn, s.hidden)
            self.layers.append(layer)
        # cuBLAS reads weights as checkpoints store them, outputs first.
        for layer in self.layers:
            for name in ("qkv", "out", "up", "down"):
                if layer[name].dim() == 2:
                    layer[name] = layer[name].t().contiguous().t()
                else:
                    layer[name] = layer[name].transpose(1, 2).contiguous().transpose(1, 2)
        self.head = self.head.t().contiguous().t()
        angle = torch.arange(longest, device=DEVICE)[:, None] * (
            500000.0 ** (-torch.arange(0, s.head_dim, 2, device=DEVICE) / s.head_dim)
        )
        self.cos, self.sin = angle.cos().contiguous(), angle.sin().contiguous()
        shape = (s.layers, pages * PAGE, s.kv_heads, s.head_dim)
        self.keys = torch.empty(shape, device=DEVICE, dtype=DTYPE).normal_()
        self.values = torch.empty(shape, device=DEVICE, dtype=DTYPE).normal_()
        self.table = torch.zeros(sequences + 1, -(-longest // PAGE), device=DEVICE, dtype=torch.int32)
        self.counts = torch.zeros(s.layers, max(s.experts, 1), device=DEVICE, dtype=torch.int32)

    def hidden(self, tokens, positions, slots, mixture: Mixture | None):
        """Return the final hidden state of every token: first one of each sequence that decodes, then prompts."""
        s, count = self.sizes, len(tokens)
        residual = self.embed[tokens]
        x = torch.empty_like(residual)
        normed = torch.empty_like(residual)
        attended = torch.empty(count, s.heads * s.head_dim, device=DEVICE, dtype=DTYPE)
        block = _power(s.hidden)
        if s.experts:
            self.counts.zero_()
        for number, layer in enumerate(self.layers):
            norm_kernel[(count,)](
                x, residual, self.norms[2 * number], normed, s.hidden, 1e-5, number > 0, block, num_warps=8
            )
            qkv = normed @ layer["qkv"]
            self._rotate(qkv, positions, slots, number)
            self.decode_attention(qkv, positions, slots, number, attended, mixture)
            if mixture is not None:
                self.prefill_attention(qkv, mixture.tiles, number, attended)
            x = attended @ layer["out"]
            norm_kernel[(count,)](
                x, residual, self.norms[2 * number + 1], normed, s.hidden, 1e-5, True, block, num_warps=8
            )
            x = self._experts(normed, layer, number) if s.experts else self._silu(normed @ layer["up"]) @ layer["down"]
        norm_kernel[(count,)](x, residual, self.norms[-1], normed, s.hidden, 1e-5, True, block, num_warps=8)
        return normed

    def _rotate(self, qkv, positions, slots, number: int) -> None:
        s = self.sizes
        rows, kv_rows = _power(s.heads + s.kv_heads), _power(s.kv_heads)
        keys, values = self.keys[number], self.values[number]
        rotate_kernel[(len(qkv),)](
            qkv, positions, slots, self.table, self.cos, self.sin, keys, values, qkv.stride(0), self.table.stride(0),
            s.heads, s.kv_heads, s.head_dim, rows, kv_rows, PAGE, num_warps=8,
        )  # fmt: skip

    def splits(self, decodes: int) -> int:
        """Return into how many parts a decode step of so many sequences splits their contexts."""
        most = min(max(WAVES * 132 // (decodes * self.sizes.kv_heads), 1), 64)
        return 1 << (most.bit_length() - 1)  # few kernels to compile

    def decode_attention(self, qkv, positions, slots, number: int, attended, mixture: Mixture | None = None) -> None:
        s, limited = self.sizes, mixture is not None
        decodes = mixture.most if limited else len(slots)
        if not decodes:
            return
        limit = mixture.decodes if limited else slots
        splits = MIXED_SPLITS if limited else self.splits(decodes)
        part = torch.empty(decodes * s.heads * splits, s.head_dim, device=DEVICE, dtype=torch.float32)
        lse = torch.empty(decodes * s.heads * splits, device=DEVICE, dtype=torch.float32)
        group = s.heads // s.kv_heads
        decode_kernel[(decodes, s.kv_heads, splits)](
            qkv, positions, slots, self.table, self.keys[number], self.values[number], attended, part, lse, limit,
            s.head_dim**-0.5 * LOG2E, qkv.stride(0), self.table.stride(0), splits, s.kv_heads, s.head_dim, group,
            max(16, _power(group)), TUNED["block"], PAGE, limited,
            num_warps=TUNED["warps"], num_stages=TUNED["stages"],
        )  # fmt: skip
        if splits > 1:
            join_kernel[(decodes * s.heads,)](
                part, lse, attended, limit, s.heads, splits, _power(splits), s.head_dim, limited, num_warps=4
            )

    def prefill_attention(self, qkv, tiles, number: int, attended) -> None:
        s = self.sizes
        prefill_kernel[(s.heads, len(tiles) // 4)](
            qkv, tiles, self.table, self.keys[number], self.values[number], attended, s.head_dim**-0.5 * LOG2E,
            qkv.stride(0), self.table.stride(0), s.heads, s.kv_heads, s.head_dim, TILE, TUNED_PREFILL["block"], PAGE,
            num_warps=TUNED_PREFILL["warps"], num_stages=TUNED_PREFILL["stages"],
        )  # fmt: skip

    def _silu(self, x):
        rows, width = x.shape[0], x.shape[1] // 2
        out = torch.empty(rows, width, device=DEVICE, dtype=DTYPE)
        silu_kernel[(rows, triton.cdiv(width, 1024))](x, out, width, 1024, num_warps=4)
        return out

    def _experts(self, x, layer, number: int):
        """Return the sum of each token's experts: rows sorted by expert, tile by tile."""
        s, tokens = self.sizes, len(x)
        rows = tokens * s.top_k
        logits = x @ layer["router"]
        chosen, ranks, order = torch.empty(3, rows, device=DEVICE, dtype=torch.int32)
        weights = torch.empty(rows, device=DEVICE, dtype=torch.float32)
        starts, tiles = torch.empty(2, s.experts, device=DEVICE, dtype=torch.int32)
        counts = self.counts[number]
        route_kernel[(tokens,)](logits, chosen, weights, counts, ranks, s.experts, s.top_k, num_warps=1)
        tall, *tile = expert_tile(rows // s.experts)
        offsets_kernel[(1,)](counts, starts, tiles, s.experts, tall, num_warps=4)
        sorted_kernel[(triton.cdiv(rows, 1024),)](chosen, ranks, starts, order, rows, 1024, num_warps=4)
        most = min(rows, s.experts) + rows // tall

        def multiplied(given, weight, out, gather: bool):
            wide, block, warps, stages = tile
            width, columns = given.shape[1], out.shape[1]
            expert_kernel[(most, columns // min(wide, columns))](
                given, weight, out, order, starts, counts, tiles, weights, width, columns, s.experts, s.top_k, gather,
                tall, min(wide, columns), min(block, width), num_warps=warps, num_stages=stages,
            )  # fmt: skip
            return out

        inner = multiplied(x, layer["up"], torch.empty(rows, 2 * s.ffn, device=DEVICE, dtype=DTYPE), True)
        found = torch.empty(rows, s.hidden, device=DEVICE, dtype=DTYPE)
        multiplied(self._silu(inner), layer["down"], found, False)
        return found.view(tokens, s.top_k, s.hidden).sum(1)


@dataclass
class Request:
    """A request of a client."""

    number: int
    arrival: float
    inputs: int
    outputs: int
    slot: int = 0
    pages: list[int] | None = None
    done: int = 0
    """Tokens of its prompt that are in the cache."""
    made: int = 0
    first: float = 0.0
    finish: float = 0.0


class Engine:
    """Steps of a model over slots: a slot is a sequence's row in the table of pages."""

    def __init__(self, model: Model, sequences: int, pages: int, batches: list[int]) -> None:
        self.model, self.sequences = model, sequences
        self.free_pages, self.free_slots = list(range(pages - 1, 0, -1)), list(range(sequences, 0, -1))
        self.slots = torch.zeros(sequences, device=DEVICE, dtype=torch.int64)
        self.lengths = torch.zeros(sequences + 1, device=DEVICE, dtype=torch.int64)
        self.last = torch.zeros(sequences + 1, device=DEVICE, dtype=torch.int64)
        self.pool = torch.randint(0, model.sizes.vocab, (1 << 16,), device=DEVICE)
        self.sent = torch.empty(1 << 17, dtype=torch.int64, pin_memory=CUDA)
        self.meta = torch.zeros(1 << 17, device=DEVICE, dtype=torch.int64)
        self.states = torch.zeros(MOST_TOKENS, model.sizes.hidden, device=DEVICE, dtype=DTYPE)
        self.received = torch.empty(2 * sequences, dtype=torch.int64, pin_memory=CUDA)
        self.batches, self.graphs, self.mixed_graphs, self.current = sorted(batches), {}, {}, ()
        self.sampled = torch.zeros(sequences, device=DEVICE, dtype=torch.int64)

    def admit(self, request: Request) -> bool:
        """Give a request a slot and the pages of all its tokens, if there are enough."""
        need = -(-(request.inputs + request.outputs) // PAGE)
        if not self.free_slots or len(self.free_pages) < need:
            return False
        request.slot = self.free_slots.pop()
        request.pages = [self.free_pages.pop() for _ in range(need)]
        self.model.table[request.slot, :need] = torch.tensor(request.pages, dtype=torch.int32)
        return True

    def release(self, request: Request) -> None:
        self.free_pages += request.pages
        self.free_slots.append(request.slot)

    def _decode(self, batch: int) -> None:
        slots = self.slots[:batch]
        positions = self.lengths[slots]
        found = self.model.hidden(self.last[slots], positions, slots, None) @ self.model.head
        sampled = found.argmax(-1)
        self.sampled[:batch] = sampled
        self.last.index_copy_(0, slots, self._next(sampled, slots, positions + 1))
        self.lengths.index_copy_(0, slots, positions + 1)
        self.lengths[:1].zero_()

    def _next(self, sampled, slots, positions):
        """Return the tokens that requests go on with: random ones with experts.

        Greedy tokens of random weights are soon the same in all requests, and so would be the experts they choose.
        """
        return self.pool[(positions + 7919 * slots) % (1 << 16)] if self.model.sizes.experts else sampled

    def capture(self) -> None:
        """Record a graph of the steps of each size, the largest first: the others share its memory."""
        if not CUDA:
            return
        self.slots.zero_()
        self.pool_handle = torch.cuda.graph_pool_handle()
        for tokens in reversed(GRAPHED):
            self.meta.zero_()
            self.mixed_graphs[tokens] = self._captured(lambda n=tokens: self._mixed(n, n // TILE + SPARE_TILES))
        for batch in reversed(self.batches):
            self.graphs[batch] = self._captured(lambda n=batch: self._decode(n))
        torch.cuda.synchronize()

    def _captured(self, run):
        run()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool_handle):
            run()
        return graph

    def decode(self, slots: tuple[int, ...]) -> None:
        """Decode a token of each slot."""
        batch = next(each for each in self.batches if each >= len(slots))
        padded = (*slots, *([0] * (batch - len(slots))))
        if padded != self.current:
            self.sent[:batch] = torch.tensor(padded)
            self.slots[:batch].copy_(self.sent[:batch], non_blocking=True)
            self.current = padded
        if batch in self.graphs:
            self.graphs[batch].replay()
        else:
            self._decode(batch)
        self.received[: len(slots)].copy_(self.sampled[: len(slots)], non_blocking=True)

    def _mixed(self, tokens: int, tiles: int, decodes: int | None = None) -> None:
        """Compute the states of a step's tokens from what `meta` says of them; -1 is what the device knows itself."""
        count, owner, position, prompt, tile = self.meta[: 16 + 3 * tokens + 4 * tiles].split(
            [16, tokens, tokens, tokens, 4 * tiles]
        )
        ids = torch.where(prompt < 0, self.last[owner], self.pool[prompt.clamp(min=0)])
        positions = torch.where(position < 0, self.lengths[owner], position)
        most = min(tokens, self.sequences) if decodes is None else decodes
        self.states[:tokens] = self.model.hidden(ids, positions, owner.clone(), Mixture(count, most, tile.clone()))

    def mixed(self, slots: tuple[int, ...], chunks: list[tuple[int, int, int, bool]]) -> None:
        """Decode a token of each slot; compute chunks: a slot, the first token, how many, whether it is the last."""
        decodes = len(slots)
        firsts = decodes + np.cumsum([0, *(count for _, _, count, _ in chunks)])
        tokens = int(firsts[-1])
        tiles = [
            (first + at, min(TILE, count - at), start + at, slot)
            for first, (slot, start, count, _) in zip(firsts, chunks, strict=False)
            for at in range(0, count, TILE)
        ]
        tiles.sort(key=lambda tile: -tile[2])  # the longest first
        size = next((each for each in GRAPHED if each >= tokens), tokens) if self.mixed_graphs else tokens
        room = size // TILE + SPARE_TILES
        graphed = size in self.mixed_graphs and len(tiles) <= room
        if not graphed:
            size, room = tokens, len(tiles)
        ended = [(last - 1, c[0], c[1] + c[2]) for last, c in zip(firsts[1:], chunks, strict=True) if c[3]]
        total = 16 + 3 * size + 4 * room
        flat = np.zeros(total + 3 * (decodes + len(ended)), np.int64)
        flat[0] = decodes
        owner, position, prompt = flat[16 : 16 + 3 * size].reshape(3, size)
        owner[:decodes], position[:decodes], prompt[:decodes] = slots, -1, -1
        for first, (slot, start, count, _) in zip(firsts, chunks, strict=False):
            here = slice(first, first + count)
            owner[here], position[here] = slot, np.arange(start, start + count)
            prompt[here] = (position[here] + 7919 * slot) % (1 << 16)
        flat[16 + 3 * size : 16 + 3 * size + 4 * len(tiles)] = np.ravel(tiles)
        rows, ends, lengths = flat[total:].reshape(3, -1)
        rows[:decodes], ends[:decodes], lengths[:decodes] = range(decodes), slots, -1
        if ended:
            rows[decodes:], ends[decodes:], lengths[decodes:] = np.transpose(ended)
        self.sent.numpy()[: len(flat)] = flat
        self.meta[: len(flat)].copy_(self.sent[: len(flat)], non_blocking=True)
        if graphed:
            self.mixed_graphs[size].replay()
        else:
            self._mixed(size, room, decodes)
        self.current = ()
        rows, ends, lengths = self.meta[total : len(flat)].view(3, -1)
        if len(rows):
            self.found = self.states[rows]
            sampled = (self.found @ self.model.head).argmax(-1)
            lengths = torch.where(lengths < 0, self.lengths[ends] + 1, lengths)
            self.last.index_copy_(0, ends, self._next(sampled, ends, lengths))
            self.lengths.index_copy_(0, ends, lengths)
            self.received[: len(rows)].copy_(sampled, non_blocking=True)
