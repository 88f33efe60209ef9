"""What `cosmic calibrate probe` measures, in which order, and the file that it writes. It needs nothing but Python.

Measuring itself is behind `ProbeDevice`: PyTorch on a GPU or a CPU (`torch_device`), or a fake in tests. Kinds of
measurements take turns, so that a probe that runs out of time has some of each. `main` is the whole command, for a
machine that has PyTorch and none of this package's own dependencies.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from pathlib import Path
from time import monotonic
from typing import Any, Protocol

from cosmic.accuracy.calibrate.torch_device import torch_device
from cosmic.base.errors import one_line, require
from cosmic.base.files import check_writable, csv_text, write_text

COLUMNS = (
    *("kind", "device", "timing", "dtype", "m", "n", "k", "ms", "batch", "heads", "kv_heads", "seq", "head_dim"),
    *("causal", "fwd_ms", "bwd_ms", "op", "rows", "cols", "mode", "host_us", "style", "layers", "hidden", "ffn"),
    *("vocab", "micro_batch", "recompute", "step_ms", "collective", "n_ranks", "n_nodes", "size_bytes", "time_us"),
)
"""Columns of the file; `kind` says which of them a row fills."""
LARGE: dict[str, tuple[tuple[Any, ...], ...]] = {
    "gemm": (
        *((4096, 4096, 4096), (8192, 8192, 8192), (8192, 28672, 8192), (8192, 8192, 28672), (4096, 14336, 4096)),
        *((2048, 12288, 12288), (16384, 4096, 4096), (16384, 8192, 1024), (1024, 8192, 8192), (512, 4096, 4096)),
        *((8192, 1280, 8192), (32768, 5120, 5120)),
    ),
    "attention": (
        *((2, 32, 32, 4096, 128), (1, 32, 8, 8192, 128), (8, 16, 16, 2048, 64), (4, 64, 8, 2048, 128)),
        *((1, 16, 16, 16384, 128), (16, 12, 12, 1024, 64)),
    ),
    "memory": ((8192, 8192), (16384, 16384), (4096, 4096)),
    "step": (
        ("gpt", 12, 768, 12, 12, 3072, 50304, 1024, 16),
        ("llama", 8, 2048, 16, 8, 7168, 32000, 2048, 4),
        ("llama", 4, 4096, 32, 8, 14336, 32000, 4096, 2),
    ),
}
"""Shapes for a GPU: of GEMMs (m, n, k), attention (batch, heads, kv_heads, seq, head_dim), operators (rows, cols), and
training steps (style, layers, hidden, heads, kv_heads, ffn, vocab, seq, micro_batch)."""
SMALL: dict[str, tuple[tuple[Any, ...], ...]] = {
    "gemm": ((128, 128, 128), (256, 256, 256)),
    "attention": ((1, 2, 2, 64, 32),),
    "memory": ((256, 256),),
    "step": (("gpt", 1, 64, 2, 2, 128, 100, 32, 2),),
}
"""Shapes for a CPU, which is measured in seconds."""
FORMATS = ("bf16", "fp8")
OPERATORS = ("copy", "add", "gelu", "layernorm", "rmsnorm", "softmax")
MODES = ("autograd", "no_grad")
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
SIZES = tuple(2**power for power in (12, 16, 18, 20, 22, 24, 26, 28))
"""Bytes of collectives."""
MILLI, MICRO = 1e3, 1e6
MOST_MINUTES = 60
Row = dict[str, Any]
Measure = Callable[[], Row | None]


class ProbeDevice(Protocol):
    """Something that runs kernels and times them; each method returns seconds, or None for what it cannot do."""

    name: str
    large: bool
    """Whether the shapes of a GPU suit it."""
    ranks: int
    nodes: int
    first: bool
    """Whether this is the process that writes the file."""

    def gemm(self, m: int, n: int, k: int, dtype: str) -> float | None:
        """Time a GEMM, as the mean of queued calls."""
        ...

    def attention(self, batch: int, heads: int, kv_heads: int, seq: int, head_dim: int) -> tuple[float, float] | None:
        """Time causal attention, forward and backward."""
        ...

    def memory(self, operator: str, rows: int, cols: int) -> float | None:
        """Time an operator that streams through memory."""
        ...

    def launch(self, mode: str) -> float | None:
        """Time the host's launch of one kernel of an eager layer."""
        ...

    def step(self, shape: Sequence[Any]) -> float | None:
        """Time a training step: pure bf16, eager, fused AdamW."""
        ...

    def collective(self, kind: str, size_bytes: int) -> float | None:
        """Time a collective among all ranks; *size_bytes* is the whole buffer."""
        ...


@dataclass(frozen=True, slots=True)
class Probed:
    """What was measured, and what there was no time for."""

    rows: tuple[Row, ...]
    left: int
    failed: tuple[str, ...]
    """Measurements that the device refused, a sentence each."""


def probe(device: ProbeDevice, minutes: float, report: Callable[[str], None] = lambda _: None) -> Probed:
    """Measure *device* for at most so many *minutes*; collectives, which all ranks measure together, come first."""
    ends = monotonic() + 60 * minutes
    rows, failed, remaining = list[Row](), list[str](), 0
    for name, measure in plan_probes(device):
        collective = name.startswith("collective")
        if not collective and monotonic() > ends:
            remaining += 1
            continue
        report(name)
        try:
            row = measure()
        except RuntimeError as error:  # PyTorch's: a kernel that is not there, or too little memory
            failed.append(one_line(f"{name}: {next(iter(str(error).strip().splitlines()), type(error).__name__)}"))
            continue
        if row is not None:
            rows.append({"device": device.name, **row})
    return Probed(tuple(rows), remaining, tuple(failed))


def probe_machine(
    *, device: str = "cuda", minutes: float = 5.0, progress: Callable[[str], None] = lambda _: None
) -> Probed:
    """Measure this machine with PyTorch: GEMMs, attention, memory, launches, steps; under torchrun, collectives.

    *device* is cuda, or cpu to try it out; it stops after about so many *minutes*.

        cosmic.calibrate.probe(device="cpu", minutes=1).rows[0]["kind"]  # 'gemm'
    """
    require(0 < minutes <= MOST_MINUTES, "minutes", minutes, f"must be above 0, and at most {MOST_MINUTES}")
    require(device in ("cuda", "cpu"), "device", device, "must be cuda or cpu")
    measured = torch_device(device)
    try:
        return probe(measured, minutes, progress)
    finally:
        measured.close()


def plan_probes(device: ProbeDevice) -> Iterator[tuple[str, Measure]]:
    """Yield what to measure, by name: collectives first, then kinds of kernels in turns."""
    if device.ranks > 1:
        for kind in COLLECTIVES:
            sizes = SIZES if device.large else SIZES[:3]
            yield from ((f"collective {kind} {size:,} B", partial(_collective, device, kind, size)) for size in sizes)
    shapes = LARGE if device.large else SMALL
    gemms = [
        (f"GEMM {'x'.join(map(str, shape))} {dtype}", partial(_gemm, device, shape, dtype))
        for shape in shapes["gemm"]
        for dtype in FORMATS
    ]
    attention = [(f"attention {shape}", partial(_attention, device, shape)) for shape in shapes["attention"]]
    memory = [
        (f"{operator} {shape}", partial(_memory, device, operator, shape))
        for shape in shapes["memory"]
        for operator in OPERATORS
    ]
    steps = [(f"step {shape}", partial(_step, device, shape)) for shape in shapes["step"]]
    launches = [(f"launch {mode}", partial(_launch, device, mode)) for mode in MODES]
    for round_of_probes in zip_longest(gemms, attention, memory, steps, launches):
        yield from (planned for planned in round_of_probes if planned is not None)


def as_csv(rows: Sequence[Row]) -> str:
    """Return measurements as the file that `cosmic calibrate run` reads."""
    return csv_text(COLUMNS, ([row.get(column, "") for column in COLUMNS] for row in rows))


def _gemm(device: ProbeDevice, shape: Sequence[int], dtype: str) -> Row | None:
    m, n, k = shape
    seconds = device.gemm(m, n, k, dtype)
    if seconds is None:
        return None
    mode = {"mode": "precast"} if dtype == "fp8" else {}
    return {"kind": "gemm", "timing": "queued", "dtype": dtype, **mode, "m": m, "n": n, "k": k, "ms": _ms(seconds)}


def _attention(device: ProbeDevice, shape: Sequence[int]) -> Row | None:
    seconds = device.attention(*shape)
    sizes = dict(zip(("batch", "heads", "kv_heads", "seq", "head_dim"), shape, strict=True))
    if seconds is None:
        return None
    times = {"fwd_ms": _ms(seconds[0]), "bwd_ms": _ms(seconds[1])}
    return {"kind": "attention", "timing": "queued", **sizes, "causal": 1, **times}


def _memory(device: ProbeDevice, operator: str, shape: Sequence[int]) -> Row | None:
    seconds = device.memory(operator, *shape)
    rows, cols = shape
    if seconds is None:
        return None
    return {"kind": "memory", "timing": "queued", "op": operator, "rows": rows, "cols": cols, "ms": _ms(seconds)}


def _launch(device: ProbeDevice, mode: str) -> Row | None:
    seconds = device.launch(mode)
    return None if seconds is None else {"kind": "launch", "mode": mode, "host_us": round(seconds * MICRO, 3)}


def _step(device: ProbeDevice, shape: Sequence[Any]) -> Row | None:
    seconds = device.step(shape)
    names = ("style", "layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "seq", "micro_batch")
    sizes = dict(zip(names, shape, strict=True))
    return None if seconds is None else {"kind": "step", **sizes, "recompute": 0, "step_ms": _ms(seconds)}


def _collective(device: ProbeDevice, kind: str, size: int) -> Row | None:
    seconds = device.collective(kind, size)
    location = {"n_ranks": device.ranks, "n_nodes": device.nodes}
    if seconds is None:
        return None
    return {
        "kind": "collective",
        "collective": kind,
        **location,
        "size_bytes": size,
        "time_us": round(seconds * MICRO, 3),
    }


def _ms(seconds: float) -> float:
    return round(seconds * MILLI, 6)


def main(words: Sequence[str]) -> int:
    """Measure this machine as the command line says, and return the exit status."""
    parser = argparse.ArgumentParser(
        "cosmic calibrate probe", description="Measure this machine, for 'cosmic calibrate run'."
    )
    parser.add_argument("--out", type=Path, default=Path("measured.csv"), help="The file to write.")
    parser.add_argument("--minutes", type=float, default=5.0, help="Stop after about so many minutes.")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    options = parser.parse_args(list(words))
    check_writable(options.out, "--out")
    device = torch_device(options.device)
    result = probe(device, options.minutes)
    device.close()
    if device.first:
        write_text(options.out, as_csv(result.rows), "--out")
    return 0
