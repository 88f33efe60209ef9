"""COMET's study of a cluster: a trillion-parameter transformer on 1,024 GPUs.

Tensor and data parallelism split the GPUs; less tensor parallelism communicates less and needs more memory. The first
table shows the step for each split, and whether it fits in memory. The second scales memory capacity, memory bandwidth,
compute and network, one by one and all together.

    python examples/transformer_1t.py

After Kadiyala et al., COMET, arXiv 2211.16648, whose study this follows; the numbers are ours.
"""

from __future__ import annotations

from typing import Any

from cosmic import evaluate, load_design
from cosmic.design import Infeasible, Metrics, Outcome

DESIGN = "transformer-1t@dgx-a100:1024"
SPLITS = (4, 8, 16, 32)
FIXED = {"cp": 1, "pp": 1, "weight_sharding": "zero2", "recompute": "full", "global_batch": 2048, "micro_batch": 8}
SCALED = {
    "memory capacity × 2": {"memory.capacity": "160 GiB"},
    "memory capacity × 4": {"memory.capacity": "320 GiB"},
    "memory bandwidth × 2": {"memory.bandwidth": "4.078 TB/s"},
    "compute × 2": {"compute.bf16": "624 TFLOP/s", "compute.achieved_bf16": "554.6 TFLOP/s"},
    "network × 2": {"network.dims.0.bandwidth": "600 GB/s", "network.dims.1.bandwidth": "50 GB/s"},
}


def outcome(tp: int, **more: Any) -> Outcome:
    """Return the metrics for a degree of tensor parallelism."""
    return evaluate(load_design(DESIGN, {**FIXED, "tp": tp, **more}))


def row(tp: int, found: Outcome) -> str:
    """Return a line of the first table."""
    if isinstance(found, Infeasible):
        return f"{tp:>4} {1024 // tp:>5}  {found.reasons[0]}"
    exposed = sum(found.breakdown[axis] for axis in ("tp", "weights", "dp"))
    parts = f"compute {found.step_s - exposed:7.1f} s  exposed {exposed:6.1f} s  {found.memory_bytes / 2**30:5.0f} GiB"
    return f"{tp:>4} {1024 // tp:>5}  {found.step_s:7.1f} s  {100 * found.mfu:4.1f} % MFU  {parts}"


def best(changes: dict[str, Any]) -> tuple[int, Metrics] | None:
    """Return the fastest split that fits, with its metrics."""
    found = [(tp, outcome(tp, **changes)) for tp in SPLITS]
    running = [(tp, each) for tp, each in found if isinstance(each, Metrics)]
    return min(running, key=lambda pair: pair[1].step_s) if running else None


def main() -> None:
    """Print both tables."""
    print("  tp    dp  step")
    for tp in SPLITS:
        print(row(tp, outcome(tp)))
    base = best({})
    print("\nwith more of")
    together: dict[str, Any] = {}
    for name, changes in [*SCALED.items(), ("all together", together)]:
        together |= changes
        found = best(dict(changes))
        if found is None:
            print(f"{name:>22}: no split fits")
        else:
            gain = f", {base[1].step_s / found[1].step_s:.2f}×" if base else ""
            print(f"{name:>22}: tp {found[0]}, {found[1].step_s:.1f} s{gain}")


if __name__ == "__main__":
    main()
