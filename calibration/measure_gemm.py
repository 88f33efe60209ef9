"""Measure the GEMMs of cosmic/validation/data/h200_gemm.csv again on one GPU.

python calibration/measure_gemm.py src/cosmic/accuracy/data/h200_gemm.csv gemm.csv

Needs PyTorch and CUDA. Each GEMM is timed in three ways: between events around a single call, as in that file
(``ms``); as the mean of queued calls (``queued_ms``); and replayed from a CUDA graph (``graph_ms``).
"""

from __future__ import annotations

import csv
import sys

import torch


def gemm(m: int, n: int, k: int) -> tuple[float, float, float]:
    """Return the milliseconds of one GEMM, timed in three ways."""
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
    """Measure every GEMM of a file."""
    with open(sys.argv[1]) as read, open(sys.argv[2], "w", newline="") as write:
        out = csv.writer(write)
        out.writerow(("m", "n", "k", "dtype", "ms", "queued_ms", "graph_ms"))
        for row in csv.DictReader(read):
            sizes = [int(row[name]) for name in ("m", "n", "k")]
            out.writerow([*sizes, "bf16", *(f"{value:.6f}" for value in gemm(*sizes))])


if __name__ == "__main__":
    main()
