"""Measure matrix products on one GPU again, as cosmic/validation/data/h200_gemm.csv has them.

python calibration/measure_gemm.py src/cosmic/validation/data/h200_gemm.csv gemm.csv

Needs PyTorch and CUDA. Each product is timed in three ways: from one event to the next around a single call, as the
data has it (``ms``); the mean of calls that follow one another (``queued_ms``); and as replayed
from a graph (``graph_ms``).
"""

from __future__ import annotations

import csv
import sys

import torch


def product(m: int, n: int, k: int) -> tuple[float, float, float]:
    """Return the milliseconds of one product, timed in three ways."""
    x = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
    w = torch.randn(n, k, device="cuda", dtype=torch.bfloat16)
    for _ in range(5):
        torch.nn.functional.linear(x, w)
    marks = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(25)]
    torch.cuda.synchronize()
    for a, b in marks:
        a.record()
        torch.nn.functional.linear(x, w)
        b.record()
        torch.cuda.synchronize()
    single = sorted(a.elapsed_time(b) for a, b in marks)[len(marks) // 2]
    repeats = 20
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(repeats):
            torch.nn.functional.linear(x, w)
    a, b, c = (torch.cuda.Event(enable_timing=True) for _ in range(3))
    graph.replay()
    torch.cuda.synchronize()
    a.record()
    for _ in range(repeats):
        torch.nn.functional.linear(x, w)
    b.record()
    graph.replay()
    c.record()
    torch.cuda.synchronize()
    return single, a.elapsed_time(b) / repeats, b.elapsed_time(c) / repeats


def main() -> None:
    """Measure every product of a file."""
    with open(sys.argv[1]) as read, open(sys.argv[2], "w", newline="") as write:
        out = csv.writer(write)
        out.writerow(("m", "n", "k", "dtype", "ms", "queued_ms", "graph_ms"))
        for row in csv.DictReader(read):
            sizes = [int(row[name]) for name in ("m", "n", "k")]
            out.writerow([*sizes, "bf16", *(f"{value:.6f}" for value in product(*sizes))])


if __name__ == "__main__":
    main()
