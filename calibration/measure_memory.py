"""Measure the peak memory of training steps on one GPU, eager and compiled.

python calibration/measure_memory.py memory.csv [SECONDS]

Needs PyTorch and CUDA. Columns are those of cosmic/validation/data/h200_training.csv, and `execution`. Stops after so
many SECONDS, with the rows that it has.
"""

from __future__ import annotations

import csv
import sys
import time
from itertools import pairwise

import torch
from measure_steps import SIZES, Model

ROWS = [
    # layers, hidden, heads, kv_heads, ffn, vocab, seq, micro_batch, style, recompute
    (8, 2048, 16, 8, 5632, 32000, 2048, 4, "llama", 0),
    (8, 2048, 16, 8, 5632, 32000, 2048, 4, "llama", 1),
    (4, 4096, 32, 8, 14336, 128256, 4096, 1, "llama", 0),
    (4, 4096, 32, 8, 14336, 128256, 4096, 2, "llama", 1),
    (8, 4096, 32, 8, 14336, 32000, 2048, 8, "llama", 0),
    (16, 2048, 16, 4, 8192, 128256, 2048, 2, "llama", 0),
    (12, 2560, 32, 8, 9728, 151936, 2048, 2, "llama", 0),
    (8, 2048, 16, 16, 8192, 50304, 1024, 8, "gpt", 0),
    (8, 2048, 16, 16, 8192, 50304, 1024, 8, "gpt", 1),
    (8, 5120, 40, 8, 17408, 32000, 4096, 2, "llama", 0),
    (32, 2048, 16, 8, 5632, 32000, 2048, 8, "llama", 1),
    (32, 2048, 16, 8, 5632, 32000, 2048, 4, "llama", 0),
    (32, 4096, 32, 8, 14336, 32000, 4096, 4, "llama", 1),
]
MODES = ("eager", "compiled")
COLUMNS = (*SIZES, "execution", "step_ms", "peak_bytes", "static_bytes")


def measure(row, execution: str) -> tuple[float, int, int]:
    """Return the milliseconds of a step, the bytes allocated at its peak, and those between steps."""
    torch._dynamo.reset()
    model = Model(row)
    adam = torch.optim.AdamW(model.parameters(), fused=True)
    run = torch.compile(model) if execution == "compiled" else model
    tokens, labels = torch.randint(0, row[5], (2, row[7], row[6]), device="cuda")
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(7)]
    for number in range(-3, len(marks)):
        if number == 0:
            torch.cuda.reset_peak_memory_stats()
        if number >= 0:
            marks[number].record()
        adam.zero_grad(set_to_none=False)
        run(tokens, labels).backward()
        adam.step()
    torch.cuda.synchronize()
    times = sorted(a.elapsed_time(b) for a, b in pairwise(marks))
    return times[len(times) // 2], torch.cuda.max_memory_allocated(), torch.cuda.memory_allocated()


def main() -> None:
    until = time.monotonic() + (float(sys.argv[2]) if len(sys.argv) > 2 else 3600)
    with open(sys.argv[1], "w", newline="") as file:
        out = csv.writer(file)
        out.writerow(COLUMNS)
        for row in ROWS:
            for execution in MODES:
                if time.monotonic() > until:
                    return
                took, peak, static = measure(row, execution)
                out.writerow([*row, execution, f"{took:.4f}", peak, static])
                file.flush()
                print(row, execution, f"{took:.2f} ms {peak / 2**30:.3f} GiB", flush=True)
                torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
