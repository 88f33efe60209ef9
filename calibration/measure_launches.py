"""Measure what the host takes to launch kernels: with and without autograd, compiled, checkpointed, in graphs.

python calibration/measure_launches.py launches.csv prefill.csv

Needs PyTorch and CUDA. Layers are so small that the device waits for the host. One row per way to run them, with the
microseconds of a layer and its kernels. The second file has prefills of small shapes without autograd.
"""

from __future__ import annotations

import csv
import sys
import time

import torch
import torch.nn.functional as F  # noqa: N812  the usual name
from measure_kinds import Kind, Layer, experts, seen
from torch.utils.checkpoint import checkpoint

MADE = {"device": "cuda", "dtype": torch.bfloat16}
LAYERS = 12
PREFILL = [
    # layers, hidden, heads, kv_heads, ffn, batch, context
    (16, 1024, 16, 4, 2816, 1, 128),
    (16, 1024, 16, 4, 2816, 1, 1024),
    (16, 2048, 16, 4, 5632, 1, 128),
    (16, 2048, 16, 4, 5632, 1, 512),
    (16, 2048, 16, 4, 5632, 4, 512),
    (16, 4096, 32, 8, 14336, 1, 128),
    (16, 4096, 32, 8, 14336, 1, 512),
    (16, 4096, 32, 8, 14336, 1, 2048),
    (16, 4096, 32, 8, 14336, 8, 512),
    (8, 8192, 64, 8, 28672, 1, 128),
    (8, 8192, 64, 8, 28672, 1, 1024),
    (24, 768, 12, 12, 2048, 1, 256),
    (24, 768, 12, 12, 2048, 8, 256),
    (8, 3072, 32, 32, 8192, 2, 1024),
]
STYLES = {
    "gpt": Kind("gpt", LAYERS, 512, 8, 8, 64, 2048, 32000, 256, 1),
    "llama": Kind("llama", LAYERS, 512, 8, 8, 64, 1536, 32000, 256, 1),
    "experts_grouped": experts(LAYERS, 512, 8, 8, 64, 256, 256, 1, 8, 2),
    "experts_loop_8": experts(LAYERS, 512, 8, 8, 64, 256, 256, 1, 8, 2, gemm="loop", permute="select"),
    "experts_loop_32": experts(LAYERS, 512, 8, 8, 64, 256, 256, 1, 32, 2, gemm="loop", permute="select"),
}


def wall(run, repeats: int = 30) -> float:
    """Return the median microseconds of a run, from its start on an idle device to its end."""
    for _ in range(5):
        run()
    torch.cuda.synchronize()
    found = []
    for _ in range(repeats):
        started = time.perf_counter()
        run()
        torch.cuda.synchronize()
        found.append((time.perf_counter() - started) * 1e6)
    return sorted(found)[repeats // 2]


def styles():
    """Yield layers of each style, run in each way."""
    for name, kind in STYLES.items():
        cos, sin = torch.rand(2, kind.seq, kind.head_dim, **MADE)
        for mode in ("eager", "compiled"):
            torch._dynamo.reset()
            layers = [Layer(kind) for _ in range(LAYERS)]
            if mode == "compiled" and "loop" in name:
                continue
            if mode == "compiled":
                for layer in layers:
                    layer.compile()
            x = torch.randn(1, kind.seq, kind.hidden, requires_grad=True, **MADE)

            def forward(again=False, layers=layers, x=x, cos=cos, sin=sin):
                y = x
                for layer in layers:
                    y = checkpoint(layer, y, cos, sin, use_reentrant=False) if again else layer(y, cos, sin)
                return y

            def both(again=False, forward=forward):
                forward(again).sum().backward()

            def alone(forward=forward):
                with torch.no_grad():
                    forward()

            made = forward()
            g = torch.randn_like(made)
            for way, run in (
                ("no_grad", alone),
                ("forward", forward),
                ("both", both),
                ("both_again", lambda: both(True)),
            ):
                try:
                    took = wall(run)
                    kernels = sum(count for _, count, _ in seen(run))
                    busy = sum(us for _, _, us in seen(run))
                except Exception as problem:
                    print(name, mode, way, str(problem)[:300], flush=True)
                    continue
                yield name, mode, way, took / LAYERS, kernels / LAYERS, busy / LAYERS
            del g


def single():
    """Yield single launches, and what it takes to read a number back."""
    x = torch.randn(64, 64, **MADE)
    y = torch.randn(64, 64, requires_grad=True, **MADE)
    many = 500

    def adds():
        for _ in range(many):
            x.add(1.0)

    def products():
        for _ in range(many):
            F.linear(x, x)

    def kept():
        z = y
        for _ in range(many):
            z = z * 0.5
        return z

    counts = torch.ones(64, device="cuda", dtype=torch.int64)

    def reads():
        for _ in range(50):
            counts.add(1).tolist()

    for name, run, number in (("add", adds, many), ("linear", products, many), ("multiply_kept", kept, many)):
        yield name, "eager", "one", wall(run) / number, 1, 0
    yield "multiply_kept", "eager", "both", wall(lambda: kept().sum().backward()) / many, 2, 0
    yield "read_back", "eager", "one", wall(reads) / 50, 2, 0
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(many):
            x.add_(1.0)
    yield "graph_add", "graph", "one", wall(graph.replay) / many, 1, sum(us for _, _, us in seen(graph.replay)) / many


def prefills():
    """Yield the milliseconds of prefills without autograd."""
    for layers, hidden, heads, kv_heads, ffn, batch, context in PREFILL:
        kind = Kind("llama", layers, hidden, heads, kv_heads, hidden // heads, ffn, 1, context, batch)
        cos, sin = torch.rand(2, context, kind.head_dim, **MADE)
        stack = [Layer(kind) for _ in range(layers)]
        x = torch.randn(batch, context, hidden, **MADE)

        def run(stack=stack, x=x, cos=cos, sin=sin):
            with torch.no_grad():
                y = x
                for layer in stack:
                    y = layer(y, cos, sin)

        for _ in range(3):
            run()
        marks = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(15)]
        for a, b in marks:
            a.record()
            run()
            b.record()
        torch.cuda.synchronize()
        took = sorted(a.elapsed_time(b) for a, b in marks)[7]
        kernels = seen(run)
        busy = sum(us for _, _, us in kernels) / 1e3
        yield layers, hidden, heads, kv_heads, ffn, "prefill", batch, context, took, busy, sum(k[1] for k in kernels)
        torch.cuda.empty_cache()


def main() -> None:
    with open(sys.argv[1], "w", newline="") as file:
        out = csv.writer(file)
        torch.cuda.init()
        out.writerow(("style", "mode", "way", "us", "kernels", "device_us"))
        for rows in (single(), styles()) if sys.argv[1] != "/dev/null" else ():
            for row in rows:
                out.writerow([f"{each:.2f}" if isinstance(each, float) else each for each in row])
                file.flush()
                print(row, flush=True)
    with open(sys.argv[2], "w", newline="") as file:
        out = csv.writer(file)
        out.writerow(
            ["layers", "hidden", "heads", "kv_heads", "ffn", "phase", "batch", "context", "ms", "device_ms", "kernels"]
        )
        for row in prefills():
            out.writerow([f"{each:.4f}" if isinstance(each, float) else each for each in row])
            file.flush()
            print(row, flush=True)


if __name__ == "__main__":
    main()
