"""Measure transformer layers on one GPU: eager, compiled, and compiled with fp8 GEMMs. Needs PyTorch and CUDA.

python calibration/measure_layers.py layers.csv

Each row is two LLaMA layers, or an output head with its loss, as on a tensor-parallel rank. Single kernels do not show
what fusion saves and what casts to fp8 take.
"""

from __future__ import annotations

import csv
import sys
import time

import torch
import torch.nn.functional as F  # noqa: N812  the usual name
from torch import nn

SHAPES = [
    # hidden, heads, kv_heads, ffn, batch, sequence
    (4096, 32, 8, 14336, 1, 8192),
    (4096, 32, 8, 14336, 2, 8192),
    (8192, 64, 8, 28672, 1, 4096),
    (8192, 8, 1, 3584, 4, 8192),
    (8192, 16, 2, 7168, 1, 8192),
    (16384, 16, 1, 6656, 2, 8192),
    (16384, 128, 8, 53248, 1, 4096),
    (2048, 16, 16, 5632, 4, 4096),
]
HEADS = [(4096, 128256, 1, 8192), (8192, 128256, 1, 4096), (4096, 50304, 4, 2048)]
COLUMNS = ("what", "hidden", "heads", "kv_heads", "ffn", "vocab", "batch", "sequence", "mode", "fwd_ms", "bwd_ms")
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


def cast(x: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Return *x* in 8 bits and its scale."""
    most = torch.finfo(dtype).max
    scale = most / x.abs().amax().float().clamp(min=1e-12)
    return (x.float() * scale).clamp(-most, most).to(dtype), scale.reciprocal()


class Gemm8(torch.autograd.Function):
    """A linear layer whose three GEMMs run in 8 bits, each tensor scaled by its largest number."""

    @staticmethod
    def forward(ctx, x, w):
        x8, sx = cast(x, E4M3)
        w8, sw = cast(w, E4M3)
        ctx.save_for_backward(x, w)
        return torch._scaled_mm(x8, w8.t(), scale_a=sx, scale_b=sw, out_dtype=torch.bfloat16, use_fast_accum=True)

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        g8, sg = cast(g, E5M2)
        x8, sx = cast(x, E4M3)
        w8, sw = cast(w, E4M3)
        dx = torch._scaled_mm(g8, w8.t().contiguous().t(), scale_a=sg, scale_b=sw, out_dtype=torch.bfloat16)
        gt, xt = g8.t().contiguous(), x8.t().contiguous().t()
        return dx, torch._scaled_mm(gt, xt, scale_a=sg, scale_b=sx, out_dtype=torch.bfloat16)


class Linear(nn.Module):
    """A linear layer in 16 or 8 bits."""

    def __init__(self, inner: int, outer: int, eight: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outer, inner, device="cuda", dtype=torch.bfloat16) * 0.02)
        self.eight = eight

    def forward(self, x):
        if not self.eight:
            return F.linear(x, self.weight)
        return Gemm8.apply(x.reshape(-1, x.shape[-1]), self.weight).reshape(*x.shape[:-1], -1)


class Layer(nn.Module):
    """A LLaMA layer."""

    def __init__(self, hidden: int, heads: int, kv_heads: int, ffn: int, eight: bool) -> None:
        super().__init__()
        self.heads, self.kv_heads, width = heads, kv_heads, 128
        self.norms = nn.ParameterList(
            nn.Parameter(torch.ones(hidden, device="cuda", dtype=torch.bfloat16)) for _ in "ab"
        )
        self.q, self.k, self.v = (Linear(hidden, n * width, eight) for n in (heads, kv_heads, kv_heads))
        self.o = Linear(heads * width, hidden, eight)
        self.gate, self.up = (Linear(hidden, ffn, eight) for _ in "ab")
        self.down = Linear(ffn, hidden, eight)

    def rotated(self, x, cos, sin):
        half = x.float().reshape(*x.shape[:-1], -1, 2)
        a, b = half[..., 0], half[..., 1]
        return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2).to(x.dtype)

    def forward(self, x, cos, sin):
        batch, tokens, hidden = x.shape
        h = F.rms_norm(x, (hidden,), self.norms[0])
        q, k, v = (f(h).reshape(batch, tokens, -1, 128) for f in (self.q, self.k, self.v))
        q, k = self.rotated(q, cos, sin), self.rotated(k, cos, sin)
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.heads != self.kv_heads)
        x = x + self.o(a.transpose(1, 2).reshape(batch, tokens, -1))
        h = F.rms_norm(x, (hidden,), self.norms[1])
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Head(nn.Module):
    """The final norm, the output projection and the loss."""

    def __init__(self, hidden: int, vocab: int) -> None:
        super().__init__()
        self.norm = nn.Parameter(torch.ones(hidden, device="cuda", dtype=torch.bfloat16))
        self.out = Linear(hidden, vocab, False)

    def forward(self, x, labels):
        logits = self.out(F.rms_norm(x, (x.shape[-1],), self.norm))
        return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


def timed(forward, backward, repeats: int = 12) -> tuple[float, float]:
    """Return the median milliseconds of both passes, in a loop that keeps the GPU as warm as training does."""
    marks = [[torch.cuda.Event(enable_timing=True) for _ in range(3)] for _ in range(repeats)]
    for _ in range(4):
        backward(forward())
    torch.cuda.synchronize()
    for a, b, c in marks:
        a.record()
        y = forward()
        b.record()
        backward(y)
        c.record()
    torch.cuda.synchronize()
    fwd = sorted(a.elapsed_time(b) for a, b, _ in marks)[repeats // 2]
    bwd = sorted(b.elapsed_time(c) for _, b, c in marks)[repeats // 2]
    return fwd, bwd


def layers(shape, mode: str) -> tuple[float, float]:
    hidden, heads, kv_heads, ffn, batch, sequence = shape
    stack = [Layer(hidden, heads, kv_heads, ffn, mode == "fp8") for _ in range(2)]
    calls = stack if mode == "eager" else [torch.compile(layer) for layer in stack]
    x = torch.randn(batch, sequence, hidden, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    cos, sin = torch.rand(2, sequence, 1, 64, device="cuda")
    g = torch.randn_like(x)

    def forward():
        y = x
        for call in calls:
            y = call(y, cos, sin)
        return y

    def backward(y):
        y.backward(g)
        for layer in stack:
            layer.zero_grad(set_to_none=True)
        x.grad = None

    return timed(forward, backward)


def head(shape, mode: str) -> tuple[float, float]:
    hidden, vocab, batch, sequence = shape
    module = Head(hidden, vocab)
    call = module if mode == "eager" else torch.compile(module)
    x = torch.randn(batch, sequence, hidden, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    labels = torch.randint(0, vocab, (batch, sequence), device="cuda")

    def backward(y):
        y.backward()
        module.zero_grad(set_to_none=True)
        x.grad = None

    return timed(lambda: call(x, labels), backward)


def main() -> None:
    started = time.time()
    with open(sys.argv[1], "w", newline="") as file:
        out = csv.writer(file)
        out.writerow(COLUMNS)
        for what, shapes, run in (("layers", SHAPES, layers), ("head", HEADS, head)):
            for shape in shapes:
                for mode in ("eager", "compiled", "fp8")[: 3 if what == "layers" else 2]:
                    try:
                        fwd, bwd = run(shape, mode)
                    except Exception as problem:  # go on with the others
                        print(what, shape, mode, str(problem)[:300], flush=True)
                        continue
                    row = shape if what == "layers" else (shape[0], "", "", "", *shape[1:])
                    row = (*row[:4], "", *row[4:]) if what == "layers" else row
                    out.writerow([what, *row, mode, f"{fwd:.4f}", f"{bwd:.4f}"])
                    file.flush()
                    print(what, shape, mode, f"{fwd:.3f} {bwd:.3f}  {time.time() - started:.0f} s", flush=True)
                    torch._dynamo.reset()
                    torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
