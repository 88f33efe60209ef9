"""Measure training steps of small models on one GPU again: how much they vary with the host.

python calibration/measure_steps.py steps.csv

Needs PyTorch and CUDA. The models are those of cosmic/validation/data/h200_training.csv that are launch-bound, or
nearly so; columns are the same.
"""

from __future__ import annotations

import csv
import sys

import torch
import torch.nn.functional as F  # noqa: N812  the usual name
from torch import nn
from torch.utils.checkpoint import checkpoint

ROWS = [
    # layers, hidden, heads, kv_heads, ffn, vocab, seq, micro_batch, style, recompute
    (12, 3072, 24, 24, 12288, 32000, 512, 3, "gpt", 1),
    (12, 3072, 24, 24, 12288, 32000, 512, 3, "gpt", 0),
    (12, 512, 8, 2, 1792, 128256, 1024, 8, "llama", 1),
    (12, 3072, 24, 6, 8448, 32000, 1024, 1, "llama", 0),
    (6, 1024, 16, 16, 4096, 32000, 8192, 1, "gpt", 1),
    (4, 768, 12, 12, 3072, 128256, 1024, 4, "gpt", 0),
    (12, 768, 12, 12, 3072, 50304, 1024, 8, "gpt", 0),
    (24, 2048, 16, 16, 8192, 50304, 2048, 4, "gpt", 0),
]
SIZES = ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "seq", "micro_batch", "style", "recompute")
COLUMNS = (*SIZES, "fwd_ms", "bwd_ms", "opt_ms")
MADE = {"device": "cuda", "dtype": torch.bfloat16}


class Layer(nn.Module):
    """A layer of either style."""

    def __init__(self, hidden: int, heads: int, kv_heads: int, ffn: int, llama: bool, tokens: int) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.width, self.llama = heads, kv_heads, hidden // heads, llama
        norm = nn.RMSNorm if llama else nn.LayerNorm
        self.first, self.second = norm(hidden, **MADE), norm(hidden, **MADE)
        kv = kv_heads * self.width
        if llama:
            self.q, self.k, self.v = (nn.Linear(hidden, n, bias=False, **MADE) for n in (hidden, kv, kv))
            self.gate = nn.Linear(hidden, ffn, bias=False, **MADE)
            self.cos, self.sin = torch.rand(2, tokens, self.width, **MADE)
        else:
            self.qkv = nn.Linear(hidden, 3 * hidden, **MADE)
        self.out = nn.Linear(hidden, hidden, bias=not llama, **MADE)
        self.up, self.down = (
            nn.Linear(hidden, ffn, bias=not llama, **MADE),
            nn.Linear(ffn, hidden, bias=not llama, **MADE),
        )

    def rotated(self, x):
        a, b = x.chunk(2, -1)
        return x * self.cos + torch.cat((-b, a), -1) * self.sin

    def forward(self, x):
        batch, tokens, hidden = x.shape
        h = self.first(x)
        if self.llama:
            q, k, v = (f(h).view(batch, tokens, -1, self.width).transpose(1, 2) for f in (self.q, self.k, self.v))
            q, k = self.rotated(q), self.rotated(k)
        else:
            q, k, v = self.qkv(h).view(batch, tokens, 3, self.heads, self.width).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.heads != self.kv_heads)
        x = x + self.out(a.transpose(1, 2).reshape(batch, tokens, hidden))
        h = self.second(x)
        inner = F.silu(self.gate(h)) * self.up(h) if self.llama else F.gelu(self.up(h))
        return x + self.down(inner)


class Model(nn.Module):
    """Embedding, layers, head and loss."""

    def __init__(self, row) -> None:
        super().__init__()
        layers, hidden, heads, kv_heads, ffn, vocab, tokens, _, style, again = row
        self.embed = nn.Embedding(vocab, hidden, **MADE)
        self.place = None if style == "llama" else nn.Embedding(tokens, hidden, **MADE)
        made = (Layer(hidden, heads, kv_heads, ffn, style == "llama", tokens) for _ in range(layers))
        self.layers = nn.ModuleList(made)
        self.norm = (nn.RMSNorm if style == "llama" else nn.LayerNorm)(hidden, **MADE)
        self.head = nn.Linear(hidden, vocab, bias=False, **MADE)
        self.again = bool(again)

    def forward(self, tokens, labels):
        x = self.embed(tokens)
        if self.place is not None:
            x = x + self.place.weight
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.again else layer(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), labels.flatten())


def measure(row) -> tuple[float, float, float]:
    """Return the median milliseconds of forward, backward and optimizer. Gradients are zeroed, not dropped."""
    model = Model(row)
    adam = torch.optim.AdamW(model.parameters(), fused=True)
    tokens, labels = torch.randint(0, row[5], (2, row[7], row[6]), device="cuda")
    marks = [[torch.cuda.Event(enable_timing=True) for _ in range(4)] for _ in range(20)]
    for number in range(-6, len(marks)):
        a, b, c, d = marks[max(number, 0)]
        adam.zero_grad(set_to_none=False)
        a.record()
        loss = model(tokens, labels)
        b.record()
        loss.backward()
        c.record()
        adam.step()
        d.record()
    torch.cuda.synchronize()
    mid = len(marks) // 2
    times = [sorted(m[i].elapsed_time(m[i + 1]) for m in marks)[mid] for i in range(3)]
    return times[0], times[1], times[2]


def main() -> None:
    with open(sys.argv[1], "w", newline="") as file:
        out = csv.writer(file)
        out.writerow(COLUMNS)
        for row in ROWS:
            found = [f"{value:.4f}" for value in measure(row)]
            out.writerow([*row, *found])
            print(row, found, flush=True)
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
