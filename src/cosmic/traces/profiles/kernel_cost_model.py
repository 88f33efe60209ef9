"""Seconds that kernels of a recorded step take on an accelerator, from what they compute.

GEMMs, convolutions and attention are priced by the calibrated models of `cosmic.step`. A kernel's time on the device
has no launch in it: of the launch time of a GEMM, measured in CUDA graphs, the gap between two kernels is left out.

**Power.** A chip that multiplies all the time is slowed down by its power limit; kernels that stream, and pauses,
leave power to those that multiply. The limit holds on average, so that all GEMMs of a step slow down alike, long or
short: on one H200, GEMMs of one step ran within 3 % of one share of the cool chip's rate, which was 1.0 to 0.8 from
step to step. With products filling a share d of the time, and all else drawing q of the limit,

    rate = min(1, s ((1 - (1 - d) q) / d)^g)

    s  share of the rate that is left where a chip does nothing but multiply (`sustained_efficiency`)
    g  exponent of power (`cosmic.step.accelerator_rates`)

**Streams.** A kernel that streams takes

    t = start + waits + max((memory^3 + arithmetic^3)^(1/3), chain)

    memory      bytes / (pace B min(1, r blocks / M)); one of M SMs reads at most r times its share of the bandwidth B
    arithmetic  (flop + elements x operations of the walk) / fp32 peak: the places of elements are computed, too
    waits       what blocks wait for sums; of a softmax, once for each wave of blocks of 2,048 threads an SM
    chain       elements of a thread, which follows indices one after another

Chunks of many tensors (optimizers) come in waves of a few blocks an SM:

    t = start + sum over waves of max(wait of a chunk, bytes of the wave / (pace B))

`catalog/constants/profiles.yaml` has the constants.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from cosmic.base.errors import require
from cosmic.base.linear_algebra import multiply
from cosmic.design import schema
from cosmic.design.compute_layer import Compute
from cosmic.design.design_batch import first_known
from cosmic.design.memory_layer import Memory
from cosmic.step.accelerator_rates import POWER_CONSTANTS as POWER
from cosmic.step.accelerator_rates import share_under_power_cap
from cosmic.step.attention import CONSTANTS as ATTENTION
from cosmic.step.attention import (
    Attention,
    AttentionRates,
    attention_backward_seconds,
    attention_seconds,
    decode_attention_seconds,
)
from cosmic.step.gemm import MatrixUnit, gemm_seconds, matrix_unit
from cosmic.step.kernel_launches import CONSTANTS as LAUNCHES
from cosmic.traces.kernel_work import ELEMENT_BYTES, KernelWork
from cosmic.traces.profiles.kernel_traffic import CONSTANTS, MemoryWalk

Seconds = npt.NDArray[np.float64]
SM_THREADS = 2048
"""Threads that an SM holds at a time (NVIDIA, CUDA C++ Programming Guide, compute capabilities 7.0 to 10.0)."""
ISSUED_FLOP_PER_S = 4 * 32 * 2 * 1.4e9
"""What an SM issues at least: 4 warps of 32 threads a cycle, two operations each, at 1.4 GHz (NVIDIA, Volta, Ampere and
Hopper architecture white papers)."""
FEWEST_SMS = 16
"""Accelerators of fewer units are no GPUs: how many threads a kernel had on one says nothing of them."""
FRAGMENT = 8
"""Channels that an instruction of a matrix unit multiplies at least (PTX ISA, mma: n is 8 or more)."""
FEW_QUERIES = 16
"""Attention of as many queries or fewer reads a cache, and is priced as a step that decodes."""
NARROW = {"fp8": "fp8", "fp4": "fp4", "int8": "fp8"}
"""Formats of 8 and 4 bits, by whose efficiency each is priced."""
WIDE = ("tf32", "fp32", "fp64")
"""Formats of more than 16 bits."""
ROUNDS = 8
"""Times that the share of time spent on products is found from their rate, and the rate from it."""


WALKS = {walk.walk: walk for walk in CONSTANTS.walks}


def kernel_seconds(
    works: Sequence[KernelWork | None], compute: Compute, memory: Memory, *, idle: float = 0.0
) -> Seconds:
    """Return the seconds of each kernel of a step on an accelerator; NaN where a work is not known.

    *idle* is the share of the step in which none of the known kernels runs: it leaves power to those that do.
    """
    require(0 <= idle < 1, "idle", idle, "must be at least 0 and below 1")
    price = KernelTimes(compute, memory)
    codes: dict[KernelWork, int] = {}
    seen: dict[int, int] = {id(None): -1}  # most works of a trace are one object: found without a comparison
    index = np.empty(len(works), dtype=np.int64)
    for position, work in enumerate(works):
        code = seen.get(id(work))
        if code is None:
            code = seen[id(work)] = codes.setdefault(cast(KernelWork, work), len(codes))
        index[position] = code
    distinct, counts = list(codes), np.bincount(index[index >= 0], minlength=len(codes))
    seconds = price.step(distinct, counts, idle) * compute.time_factor
    return np.append(seconds, np.nan)[index]


class KernelTimes:
    """The seconds of works on one accelerator."""

    def __init__(self, compute: Compute, memory: Memory) -> None:
        self.compute = compute
        self.bandwidth = memory.bandwidth_bytes_per_s
        self.bytes_per_s = self.bandwidth * compute.memory_efficiency
        self.sms = compute.sms if compute.sms >= FEWEST_SMS else 0
        self.units: dict[str, MatrixUnit] = {}

    def step(self, works: Sequence[KernelWork], counts: npt.NDArray[Any], idle: float) -> Seconds:
        """Return the seconds of distinct works of a step, which has *counts* of each, at the rate that power allows."""
        heavy = [index for index, work in enumerate(works) if work.kind in HEAVY]
        light = [index for index, work in enumerate(works) if work.kind not in HEAVY]
        seconds = np.zeros(len(works))
        seconds[light] = self.grouped_by([works[kernel] for kernel in light], self.light)
        ideal = sum(float(counts[kernel]) * works[kernel].flop / self.peak(works[kernel].dtype) for kernel in heavy)
        rate = 1.0
        for _ in range(ROUNDS):
            seconds[heavy] = self.products([works[kernel] for kernel in heavy], rate)
            total_s = float(multiply(seconds, counts)) / (1 - idle)
            before, rate = rate, self.allowed(ideal / rate / total_s if total_s > 0 else 0.0)
            if abs(rate - before) < 1e-4:
                break
            rate = (rate + before) / 2
        return seconds

    def allowed(self, share: float) -> float:
        """Return the rate of GEMMs over that of a cool chip, if they run for a *share* of the time."""
        sustained = float(share_under_power_cap(self.compute.sustained_efficiency, self.field))
        share = min(max(share, 1e-9), 1.0)
        power = (1 - (1 - share) * CONSTANTS.resting_power) / share
        return float(min(1.0, sustained * power**POWER.exponent))

    def field(self, key: str) -> Any:
        """Return a field of the accelerator by its key."""
        return schema.get_field(self.compute, key)

    def peak(self, dtype: str) -> float:
        """Return the rate at which the inner loop of a GEMM multiplies in a number format."""
        return float(self.unit(dtype).flop_per_s)

    def unit(self, dtype: str) -> MatrixUnit:
        """Return how GEMMs run in a number format on a cool chip; operands come in that format."""
        if dtype not in self.units:
            number = NARROW.get(dtype, "bf16" if dtype in ("bf16", "fp16") else "fp32")
            narrow = dtype in NARROW
            width = {"fp64": 8.0, "fp32": 4.0, "tf32": 4.0}.get(dtype, 2.0)
            unit = matrix_unit(self.field, self.bandwidth, number, result_bytes=width)
            unit = replace(
                unit,
                sustained=1.0,
                burst_s=0.0,
                cast_s=0.0,
                cast_s_per_element=0.0,
                launch_s=max(unit.launch_s - LAUNCHES.fused_gap_s, 0.0),
                operand_bytes=unit.operand_bytes if narrow else width,
            )
            self.units[dtype] = replace(unit, flop_per_s=unit.flop_per_s * self._relative(dtype, number))
        return self.units[dtype]

    def _relative(self, dtype: str, number: str) -> float:
        """Return the peak of a number format over that by which it is priced."""
        peak = {
            "fp32": first_known(self.compute.fp32_flop_per_s, self.compute.tf32_flop_per_s),
            "fp64": first_known(self.compute.fp32_flop_per_s, self.compute.tf32_flop_per_s),
            "int8": self.compute.int8_flop_per_s,
        }.get(dtype)
        if peak is None:
            return 1.0
        priced = self.compute.fp8_flop_per_s if number == "fp8" else self.compute.tf32_flop_per_s
        base = first_known(
            priced, self.compute.fp32_flop_per_s if number == "fp32" else None, self.compute.bf16_flop_per_s
        )
        return float(peak / base) * (0.5 if dtype == "fp64" else 1.0)

    # ------------------------------------------------------------------------------------------------- products

    def products(self, works: Sequence[KernelWork], rate: float) -> Seconds:
        """Return the seconds of kernels that multiply at a share of the cool chip's rate."""
        return self.grouped_by(works, lambda kind, dtype, _, sizes: HEAVY[kind](self, sizes, dtype, rate))

    @staticmethod
    def grouped_by(works: Sequence[KernelWork], price: Callable[[str, str, str, Seconds], Any]) -> Seconds:
        """Return the seconds of works, those of one kind, number format and walk at once: *price* takes their sizes."""
        seconds = np.zeros(len(works))
        groups: dict[tuple[str, str, str], list[int]] = {}
        for index, work in enumerate(works):
            groups.setdefault((work.kind, work.dtype, work.walk), []).append(index)
        for key, indices in groups.items():
            sizes = np.array([works[position].sizes for position in indices], dtype=np.float64).T
            seconds[indices] = price(*key, sizes)
        return seconds

    def gemm(self, sizes: Seconds, dtype: str, rate: float) -> Any:
        """Return the seconds of GEMMs."""
        count, m, n, k = sizes
        return gemm_seconds(count, m, n, k, replace(self.unit(dtype), sustained=rate))

    def grouped(self, sizes: Seconds, dtype: str, rate: float) -> Any:
        """Return the seconds of GEMMs of groups of rows; the last tile of each group is half empty."""
        groups, rows, n, k = sizes
        groups = np.maximum(groups, 1)
        return gemm_seconds(groups, rows / groups + HALF_TILE, n, k, replace(self.unit(dtype), sustained=rate))

    def convolution(self, sizes: Seconds, dtype: str, rate: float) -> Any:
        """Return the seconds of implicit GEMMs, which read overlapping windows of their input from memory once."""
        count, m, n, k, moved = sizes
        unit = self.unit(dtype)
        gemm_bytes = count * (unit.operand_bytes * (m + n) * k + unit.result_bytes * m * n)
        again = np.maximum(gemm_bytes / np.maximum(moved, 1), 1.0)
        rates = rate * np.where(again > 1, CONSTANTS.windowed, 1.0)
        implicit = gemm_seconds(count, m, n, k, replace(unit, sustained=rates, bytes_per_s=unit.bytes_per_s * again))
        direct = np.where((count > 1) & (np.minimum(m, n) < FRAGMENT), self._direct(sizes), np.inf)
        return np.minimum(implicit, direct)

    def _direct(self, sizes: Seconds) -> Any:
        """Return the seconds of convolutions of few channels a group (depthwise), which no matrix unit multiplies."""
        count, m, n, k, moved = sizes
        elements = count * np.minimum(m, n) * np.maximum(m, k)
        arithmetic = elements * CONSTANTS.direct_operations / self._vector_flop_per_s
        return CONSTANTS.start_s + np.cbrt((moved / self.bytes_per_s) ** 3 + arithmetic**3)

    def attention_rates(self, dtype: str) -> AttentionRates:
        """Return the rates of attention on a cool chip: the same share of the peak in any number format.

        In formats of 16 bits and fewer, kernels multiply in 16 bits.
        """
        return AttentionRates(
            peak_flop_per_s=self.peak(dtype) if dtype in WIDE else self.compute.bf16_flop_per_s,
            bytes_per_s=self.bytes_per_s,
            efficiency=self.compute.attention_efficiency,
            backward_efficiency=self.compute.attention_backward_efficiency,
            ramp_s=self.compute.attention_ramp_s,
            sms=self.compute.sms,
        )

    def attention(self, sizes: Seconds, dtype: str, rate: float) -> Any:
        """Return the seconds of attention, forward; of few queries, as a step that decodes."""
        shape, rates = _shape(sizes, dtype), self.attention_rates(dtype)
        slowed = replace(rates, efficiency=rates.efficiency * rate)
        few = sizes[3] <= FEW_QUERIES
        return np.where(few, decode_attention_seconds(shape, slowed), attention_seconds(shape, slowed))

    def attention_backward(self, sizes: Seconds, dtype: str, rate: float) -> Any:
        """Return the seconds of the backward kernel alone; what streams before and after it are other kernels."""
        shape, rates = _shape(sizes, dtype), self.attention_rates(dtype)
        slowed = replace(rates, backward_efficiency=rates.backward_efficiency * rate, bytes_per_s=np.inf)
        batch, heads, kv_heads, queries, keys, width, values, _ = sizes
        moved = 2 * ELEMENT_BYTES[dtype] * batch * (heads * queries + kv_heads * keys) * (width + values)
        return np.maximum(attention_backward_seconds(shape, slowed), moved / self.bytes_per_s)

    # -------------------------------------------------------------------------------------------------- streams

    def light(self, kind: str, _: str, walk: str, sizes: Seconds) -> Any:
        """Return the seconds of kernels that do not multiply."""
        if kind == "stream":
            chosen = WALKS[walk]
            return self._chunked(sizes, chosen) if chosen.resident else self._streamed(sizes, chosen)
        (moved,) = sizes
        if kind in ("copy_h2d", "copy_d2h"):
            return 2 * CONSTANTS.start_s + moved / CONSTANTS.host_copy_bytes_per_s
        passes = 2 if kind == "copy_d2d" else 1
        return CONSTANTS.start_s + passes * moved / self.bytes_per_s

    def _streamed(self, sizes: Seconds, walk: MemoryWalk) -> Any:
        """Return the seconds of kernels that stream."""
        read, written, flop, elements, blocks, threads = sizes
        launch_known = (blocks * threads > 0) & (self.sms > 0)
        all_threads, sms = np.where(launch_known, blocks * threads, 1), max(self.sms, 1)
        used = np.where(launch_known, np.minimum(1.0, blocks * ATTENTION.one_reader / sms), 1.0)
        memory = (read + written) / (self.bytes_per_s * walk.pace * used)
        arithmetic = (flop + elements * walk.operations) / self._vector_flop_per_s
        waves = np.maximum(1.0, launch_known * all_threads / (sms * SM_THREADS)) if walk.each_wave else 1.0
        chain = launch_known * walk.element_wait_s * elements / all_threads
        return CONSTANTS.start_s + walk.wait_s * waves + np.maximum(np.cbrt(memory**3 + arithmetic**3), chain)

    def _chunked(self, sizes: Seconds, walk: MemoryWalk) -> Any:
        """Return the seconds of chunks of many tensors, in waves of a few blocks an SM."""
        read, written, _, elements, blocks, threads = sizes
        launch_known = (blocks * threads > 0) & (self.sms > 0)
        stream_s = (read + written) / (self.bytes_per_s * walk.pace)
        wave = walk.resident * max(self.sms, 1)
        waits = walk.element_wait_s * elements / np.where(launch_known, blocks * threads, 1)
        full, rest = np.divmod(blocks, wave)
        block_s = stream_s / np.maximum(blocks, 1)
        waves = full * np.maximum(waits, wave * block_s) + (rest > 0) * np.maximum(waits, rest * block_s)
        return CONSTANTS.start_s + np.where(launch_known, waves, stream_s)

    @cached_property
    def _vector_flop_per_s(self) -> float:
        """The rate outside matrix units: that of single precision, or a sixteenth of that in 16 bits if not stated.

        Half of the lanes of an earlier SM only add integers, as places of elements need: it issues as much.
        """
        datasheet = float(first_known(self.compute.fp32_flop_per_s, self.compute.bf16_flop_per_s / 16))
        return max(datasheet, self.sms * ISSUED_FLOP_PER_S)


def _shape(sizes: Seconds, dtype: str) -> Attention:
    """Return attention of several sizes; the last query of a causal mask sees the last key."""
    batch, heads, kv_heads, queries, keys, width, values, causal = sizes
    seeing = np.minimum(queries, keys)
    pairs = seeing * keys - seeing * (seeing - 1) / 2
    visible = np.where(causal > 0, pairs / np.maximum(queries * keys, 1), 1.0)
    return Attention(batch, heads, kv_heads, queries, keys, width, values, visible, element_bytes=ELEMENT_BYTES[dtype])


HALF_TILE = 64
"""Rows of a group's last tile that are empty, half of a tile of 128."""
HEAVY: dict[str, Callable[[KernelTimes, Seconds, str, float], Any]] = {
    "gemm": KernelTimes.gemm,
    "grouped_gemm": KernelTimes.grouped,
    "convolution": KernelTimes.convolution,
    "attention": KernelTimes.attention,
    "attention_backward": KernelTimes.attention_backward,
}
"""Kinds that multiply, and how each is priced."""
