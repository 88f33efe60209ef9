"""A device that says what it took without doing anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class FakeDevice:
    """An H200 that runs kernels at plain rates."""

    name = "NVIDIA H200"
    large = True
    first = True

    def __init__(self, ranks: int = 1, nodes: int = 1) -> None:
        self.ranks, self.nodes, self.closed = ranks, nodes, False

    def close(self) -> None:
        """Note that it was left."""
        self.closed = True

    def gemm(self, m: int, n: int, k: int, dtype: str) -> float | None:
        """Return the time at 700 TFLOP/s; there is no fp8 for small sizes."""
        if dtype == "fp8" and m < 1024:
            raise RuntimeError("CUDA error: no such kernel\nand more")
        return 2 * m * n * k / (7e14 if dtype == "bf16" else 1.2e15) + 4e-6

    def attention(self, batch: int, heads: int, kv_heads: int, seq: int, head_dim: int) -> tuple[float, float] | None:
        """Return the times at 500 TFLOP/s."""
        forward = 2 * batch * heads * seq**2 * head_dim / 5e14 + 5e-6
        return forward, 2.7 * forward

    def memory(self, operator: str, rows: int, cols: int) -> float | None:
        """Return the time at 4 TB/s; there is no RMS norm."""
        return None if operator == "rmsnorm" else 4 * rows * cols / 4e12 + 3e-6

    def launch(self, mode: str) -> float | None:
        """Return the host's time."""
        return 20e-6 if mode == "autograd" else 9e-6

    def step(self, shape: Sequence[Any]) -> float | None:
        """Return one time for all."""
        return 0.05 * float(shape[1])

    def collective(self, kind: str, size_bytes: int) -> float | None:
        """Return the time at 300 GB/s."""
        return 20e-6 + size_bytes / 3e11
