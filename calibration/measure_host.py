"""Measure the host time to launch the kernels of eager layers, on models so small that they are launch-bound.

python calibration/measure_host.py host.csv

Needs PyTorch and CUDA. One row per style of layer, with and without recomputation. The profiler, which slows the host
down, counts kernels in a separate run.
"""

from __future__ import annotations

import csv
import sys

import torch
import torch.nn.functional as F  # noqa: N812  the usual name
from torch import nn
from torch.utils.checkpoint import checkpoint

LAYERS, TOKENS, HEADS, WIDTH = 12, 256, 8, 64
HIDDEN = HEADS * WIDTH
COLUMNS = ("style", "recompute", "fwd_us", "bwd_us", "opt_us", "fwd_kernels", "bwd_kernels", "opt_kernels")
MADE = {"device": "cuda", "dtype": torch.bfloat16}


class Gpt(nn.Module):
    """Layer norm, a fused QKV GEMM, an ungated feed-forward network, biases."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(HIDDEN, **MADE), nn.LayerNorm(HIDDEN, **MADE)
        self.qkv, self.out = nn.Linear(HIDDEN, 3 * HIDDEN, **MADE), nn.Linear(HIDDEN, HIDDEN, **MADE)
        self.up, self.down = nn.Linear(HIDDEN, 4 * HIDDEN, **MADE), nn.Linear(4 * HIDDEN, HIDDEN, **MADE)

    def forward(self, x):
        batch, tokens, _ = x.shape
        q, k, v = self.qkv(self.first(x)).view(batch, tokens, 3, HEADS, WIDTH).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(batch, tokens, HIDDEN))
        return x + self.down(F.gelu(self.up(self.second(x))))


class Llama(nn.Module):
    """RMS norm, rotary positions, a gated feed-forward network, no biases."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.RMSNorm(HIDDEN, **MADE), nn.RMSNorm(HIDDEN, **MADE)
        self.q, self.k, self.v, self.out = (nn.Linear(HIDDEN, HIDDEN, bias=False, **MADE) for _ in range(4))
        self.gate, self.up = (nn.Linear(HIDDEN, 3 * HIDDEN, bias=False, **MADE) for _ in range(2))
        self.down = nn.Linear(3 * HIDDEN, HIDDEN, bias=False, **MADE)
        self.cos, self.sin = torch.rand(2, TOKENS, WIDTH, **MADE)

    def rotated(self, x):
        a, b = x.chunk(2, -1)
        return x * self.cos + torch.cat((-b, a), -1) * self.sin

    def forward(self, x):
        batch, tokens, _ = x.shape
        h = self.first(x)
        q, k, v = (f(h).view(batch, tokens, HEADS, WIDTH).transpose(1, 2) for f in (self.q, self.k, self.v))
        a = F.scaled_dot_product_attention(self.rotated(q), self.rotated(k), v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(batch, tokens, HIDDEN))
        h = self.second(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


def measure(kind: type[nn.Module], again: bool) -> list[float]:
    """Return microseconds and kernels: per layer forward and backward, and of the whole optimizer."""
    layers = nn.ModuleList(kind() for _ in range(LAYERS))
    adam = torch.optim.AdamW(layers.parameters(), fused=True)
    x = torch.randn(1, TOKENS, HIDDEN, requires_grad=True, **MADE)

    def forward():
        y = x
        for layer in layers:
            y = checkpoint(layer, y, use_reentrant=False) if again else layer(y)
        return y.float().sum()

    marks = [[torch.cuda.Event(enable_timing=True) for _ in range(4)] for _ in range(40)]
    for _ in range(10):
        forward().backward()
        adam.step()
        adam.zero_grad(set_to_none=True)
    torch.cuda.synchronize()
    for a, b, c, d in marks:
        a.record()
        y = forward()
        b.record()
        y.backward()
        c.record()
        adam.step()
        adam.zero_grad(set_to_none=True)
        d.record()
    torch.cuda.synchronize()
    mid = len(marks) // 2
    times = [sorted(m[i].elapsed_time(m[i + 1]) for m in marks)[mid] * 1e3 for i in range(3)]
    counts = []
    for place in range(3):
        y = forward()
        if place == 2:
            y.backward()
        torch.cuda.synchronize()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
            (forward, y.backward, adam.step)[place]()
            torch.cuda.synchronize()
        counts.append(sum(event.count for event in seen.key_averages()))
    return [times[0] / LAYERS, times[1] / LAYERS, times[2], counts[0] / LAYERS, counts[1] / LAYERS, counts[2]]


if __name__ == "__main__":
    with open(sys.argv[1], "w", newline="") as file:
        out = csv.writer(file)
        out.writerow(COLUMNS)
        for kind in (Gpt, Llama):
            for again in (False, True):
                row = [kind.__name__.lower(), int(again), *(f"{value:.1f}" for value in measure(kind, again))]
                out.writerow(row)
                print(row, flush=True)
