"""Measure the kernels of experts on one GPU: grouped GEMMs, routing, permutation, activation, casts, attention.

python calibration/measure_experts.py grouped|passes|casts|attention out.csv [SECONDS]

Needs PyTorch and CUDA. Kernels are queued in a CUDA graph and replayed, so that launches do not count.
"""

# ruff: noqa: B023  what a loop defines is timed before its next turn
from __future__ import annotations

import csv
import sys
import time

import torch
import torch.nn.functional as F  # noqa: N812  the usual name

MADE = {"device": "cuda", "dtype": torch.bfloat16}
E4M3 = torch.float8_e4m3fn
WIDTHS = [(2048, 768), (2048, 1408), (4096, 1536), (7168, 2048), (4096, 14336), (5120, 8192), (2880, 2880)]
EXPERTS = [1, 4, 8, 16, 32, 64, 128]
ROWS = [32, 128, 512, 2048, 8192]
MOST_ROWS, MOST_FLOP = 65536, 4e13
TOKENS = [(2048, 2048), (8192, 2048), (8192, 4096), (16384, 2880), (8192, 7168), (32768, 2048)]
CASTS = [(4096, 4096), (8192, 4096), (16384, 4096), (8192, 8192), (16384, 14336), (8192, 1408)]
ATTENTION = [
    (batch, heads, kv_heads, seq, width)
    for width in (64, 80, 96, 112, 128, 160, 192, 256)
    for batch, heads, kv_heads, seq in ((8, 16, 16, 2048), (2, 16, 16, 8192), (2, 32, 8, 4096), (1, 16, 4, 32768))
] + [(1, 8, 8, 65536, 64), (1, 8, 8, 65536, 128), (1, 16, 16, 16384, 128), (64, 16, 16, 512, 128)]


def timed(run, repeats: int = 8, graphed: bool = True) -> float:
    """Return the median milliseconds of one run of queued kernels."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        run(), run()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    if graphed:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(repeats):
                run()
        call = graph.replay
    else:
        call = lambda: [run() for _ in range(repeats)]  # noqa: E731
    call()
    torch.cuda.synchronize()
    marks = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(5)]
    for a, b in marks:
        a.record()
        call()
        b.record()
    torch.cuda.synchronize()
    return sorted(a.elapsed_time(b) for a, b in marks)[2] / repeats


def counts_of(experts: int, rows: int, spread: int) -> torch.Tensor:
    """Return the rows of each expert: the same for all, or as tokens that choose at random leave them."""
    if not spread:
        return torch.full((experts,), rows, device="cuda")
    chosen = torch.randint(0, experts, (experts * rows // 8,), device="cuda")
    return torch.bincount(chosen, minlength=experts) * 8


def grouped():
    """Yield grouped GEMMs of both passes."""
    yield "experts", "rows", "k", "n", "spread", "forward_ms", "input_ms", "weight_ms"
    for k, n in WIDTHS:
        for experts in EXPERTS:
            w = torch.randn(experts, n, k, **MADE) * 0.02
            for rows in ROWS:
                total = experts * rows
                if total > MOST_ROWS or total < 256 or 2 * total * n * k > MOST_FLOP:
                    continue
                for spread in (0, 1) if experts in (8, 64) and rows >= 128 else (0,):
                    ends = torch.cumsum(counts_of(experts, rows, spread), 0).to(torch.int32)
                    x, g = torch.randn(total, k, **MADE), torch.randn(total, n, **MADE)
                    times = [
                        timed(lambda: torch._grouped_mm(x, w.transpose(1, 2), offs=ends), 4),
                        timed(lambda: torch._grouped_mm(g, w, offs=ends), 4),
                        timed(lambda: torch._grouped_mm(g.t(), x, offs=ends), 4),
                    ]
                    yield experts, rows, k, n, spread, *times


def passes():
    """Yield what routing, permuting, weighing and activating take."""
    yield "what", "tokens", "hidden", "experts", "top_k", "ms"
    for tokens, hidden in TOKENS:
        x = torch.randn(tokens, hidden, **MADE)
        for experts, top_k in ((8, 2), (64, 6), (128, 8), (16, 1)):
            logits = torch.randn(tokens, experts, **MADE)
            wide = logits.float()
            scores = F.softmax(wide, -1)
            best, chosen = torch.topk(scores, top_k, dim=-1)
            flat = chosen.flatten()
            order = torch.argsort(flat, stable=True)
            place = order // top_k
            spread = place.unsqueeze(1).expand(-1, hidden)
            rows = torch.randn(tokens * top_k, hidden, **MADE)
            weight = torch.rand(tokens * top_k, 1, device="cuda")
            back = torch.argsort(order)
            zeros = torch.zeros_like(x)
            runs = {
                "softmax": lambda: F.softmax(logits.float(), -1),
                "topk": lambda: torch.topk(scores, top_k, dim=-1),
                "normalise": lambda: best / best.sum(-1, keepdim=True),
                "sort": lambda: torch.argsort(flat, stable=True),
                "count": lambda: torch.histc(flat.float(), bins=experts, min=0, max=experts - 1),
                "gather": lambda: torch.gather(x, 0, spread),
                "select": lambda: x.index_select(0, place),
                "index": lambda: x[place],
                "scatter_add": lambda: torch.zeros_like(x).scatter_add(0, spread, rows),
                "index_add": lambda: torch.zeros_like(x).index_add(0, place, rows),
                "weigh_fp32": lambda: (rows.float() * weight).to(torch.bfloat16),
                "weigh": lambda: rows * weight.to(torch.bfloat16),
                "weight_grad": lambda: (rows * rows).sum(-1, keepdim=True),
                "unsort_sum": lambda: rows.index_select(0, back).view(tokens, top_k, hidden).sum(1),
                "zeros": lambda: torch.zeros_like(x),
            }
            for what, run in runs.items():
                yield what, tokens, hidden, experts, top_k, timed(run)
        for ffn in (768, 1408, 8192):
            gate, up = torch.randn(2, tokens, ffn, **MADE)
            yield "silu", tokens, ffn, 0, 0, timed(lambda: F.silu(gate))
            yield "multiply", tokens, ffn, 0, 0, timed(lambda: gate * up)
        del zeros


def whole(x):
    scale = 448.0 / x.abs().amax().float().clamp(min=1e-12)
    return (x.float() * scale).clamp(-448.0, 448.0).to(E4M3), scale.reciprocal()


def by_row(x):
    scale = 448.0 / x.abs().amax(-1, keepdim=True).float().clamp(min=1e-12)
    return (x.float() * scale).clamp(-448.0, 448.0).to(E4M3), scale.reciprocal()


def by_column(x):
    scale = 448.0 / x.abs().amax(0, keepdim=True).float().clamp(min=1e-12)
    return (x.float() * scale).clamp(-448.0, 448.0).to(E4M3).t().contiguous(), scale.reciprocal()


def by_block(x):
    parts = x.view(x.shape[0], -1, 128)
    scale = 448.0 / parts.abs().amax(-1, keepdim=True).float().clamp(min=1e-12)
    return (parts.float() * scale).clamp(-448.0, 448.0).to(E4M3).view_as(x), scale.reciprocal()


def by_square(x):
    parts = x.view(x.shape[0] // 128, 128, -1, 128)
    scale = 448.0 / parts.abs().amax((1, 3), keepdim=True).float().clamp(min=1e-12)
    return (parts.float() * scale).clamp(-448.0, 448.0).to(E4M3).view_as(x), scale.reciprocal()


def known(x, scale):
    return (x.float() * scale).clamp(-448.0, 448.0).to(E4M3)


def casts():
    """Yield casts to 8 bits: eager, and compiled."""
    yield "what", "mode", "rows", "cols", "ms"
    for mode in ("compiled", "eager"):
        for what, function in (
            ("tensor", whole),
            ("row", by_row),
            ("block_1x128", by_block),
            ("block_128x128", by_square),
            ("column_transposed", by_column),
            ("known_scale", known),
        ):
            torch._dynamo.reset()
            call = torch.compile(function, dynamic=True) if mode == "compiled" else function
            for rows, cols in CASTS:
                x = torch.randn(rows, cols, **MADE)
                more = (torch.ones((), device="cuda"),) if what == "known_scale" else ()
                yield what, mode, rows, cols, timed(lambda: call(x, *more))
    for rows, cols in CASTS:
        x = torch.randn(rows, cols, **MADE)
        x8 = x.to(E4M3)
        yield "plain", "eager", rows, cols, timed(lambda: x.to(E4M3))
        yield "transpose_fp8", "eager", rows, cols, timed(lambda: x8.t().contiguous())
        yield "transpose_bf16", "eager", rows, cols, timed(lambda: x.t().contiguous())
        yield "amax", "eager", rows, cols, timed(lambda: x.abs().amax())


def attention():
    """Yield causal attention of many head sizes."""
    yield "batch", "heads", "kv_heads", "seq", "head_dim", "causal", "fwd_ms", "bwd_ms"
    for batch, heads, kv_heads, seq, width in ATTENTION:
        q = torch.randn(batch, heads, seq, width, requires_grad=True, **MADE)
        k, v = (torch.randn(batch, kv_heads, seq, width, requires_grad=True, **MADE) for _ in "kv")
        call = lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=heads != kv_heads)  # noqa: E731
        with torch.no_grad():
            forward = timed(call, 4, graphed=False)
        y = call()
        g = torch.randn_like(y)
        backward = timed(lambda: torch.autograd.grad(y, (q, k, v), g, retain_graph=True), 4, graphed=False)
        yield batch, heads, kv_heads, seq, width, 1, forward, backward


PARTS = {"grouped": grouped, "passes": passes, "casts": casts, "attention": attention}


def main() -> None:
    until = time.monotonic() + (float(sys.argv[3]) if len(sys.argv) > 3 else 3600)
    with open(sys.argv[2], "w", newline="") as file:
        out = csv.writer(file)
        for row in PARTS[sys.argv[1]]():
            out.writerow([f"{each:.6f}" if isinstance(each, float) else each for each in row])
            file.flush()
            if time.monotonic() > until:
                print("out of time", row, flush=True)
                return


if __name__ == "__main__":
    main()
