"""How long a matrix product takes by its shape and number format: tiles in waves, against memory.

*c* products ``y[m, n] = x[m, k] w[k, n]``, alike and independent, run as one kernel on an accelerator of *u* SMs
(streaming multiprocessors). The kernel cuts y into tiles of a x b, one for each unit at a time:

    t      = (compute^3 + memory^3)^(1/3) + cast + launch

    compute = W (1 + (1/s - 1) W / (W + burst))
    W       = min over tiles a x b of   waves (ramp + min(loop, loop / split + merge))
    waves   = ceil(c ceil(m/a) ceil(n/b) / u)
    loop    = 2 a b k / (e peak / u)
    split   = how many SMs share the sum over k, where there are more SMs than tiles
    merge   = ramp + 16 bytes a b u / (e_o bandwidth), to add up the parts of split sums
    memory  = c ((m k + k n) operand bytes + m n result bytes) / (e_o bandwidth)

    e      share of the peak that the inner loop of a large product reaches
    ramp   to fill a unit's pipeline and to write its tile out
    s      what is left of the rate when the chip is at its power limit
    burst  how long a product runs before that shows. The products of a workload follow one another, and find the
           chip warm: little of the burst is left to them (`BurstLeft`)
    e_o    share of the memory's bandwidth at which operands are read
    cast   formats of 8 and 4 bits: x is scaled and written in the new format before the product reads it

Compute and memory overlap, but not when both are short: hence the cubes, a maximum with its corner rounded. On an
accelerator that states no SMs (*u* = 0) nothing of this is known, and the product is a plain roofline,

    t = max(work / (e peak), memory) + launch.

The tiles, the cubes and what casting moves are common to all accelerators; the other symbols are fields of theirs
(`cosmic.design.compute.Compute`), fitted by calibration/fit_gemm.py on 9,200 measured products, which also says how
far off the model is. Waves: NVIDIA, *Matrix Multiplication Background User's Guide*, 2023.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from cosmic.catalog.fitted import fitted
from cosmic.cost.compute import RATES, FieldLookup, first_known, gemm_efficiency
from cosmic.numeric import Numeric

Load = Literal["alone", "repeated", "workload"]
"""A product timed alone, from a cool chip; over and over, with the host in between; or as one of many of a workload."""
TINY_S = 1e-30


@dataclass(frozen=True, slots=True, kw_only=True)
class BurstLeft:
    """Share of the burst of a GEMM timed alone that is left to one in each `Load`."""

    alone: float
    repeated: float
    workload: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmConstants:
    """What all accelerators have in common."""

    merge_bytes: float
    """Bytes that adding up split sums moves for each element of a tile."""
    cast_share: float
    """Share of the memory's bandwidth that scaling and casting reaches."""
    burst_left: BurstLeft


CONSTANTS = fitted("gemm", GemmConstants)


class Format(NamedTuple):
    """A number format of operands: where an accelerator states its rate, and what its kernels are like."""

    rates: tuple[str, ...]
    """Keys of the peak rate, the best first; 16 bits' where none of them is known."""
    bytes: float
    """Bytes of an operand's element, with its share of the scales."""
    efficiency: str = ""
    """Key of the share of the peak; that of 16 bits where it is not stated."""
    cast: str = ""
    """Key of the time that casting takes beside its bytes."""
    cast_bytes: float = 0.0
    """Bytes that casting an element moves: 16 bits in (twice if the largest is to be found first), the format out."""
    tiles: tuple[tuple[int, int], ...] = ((64, 64), (128, 128))
    ramp: str = "tile_ramp"
    """Key of the time that a tile's pipeline takes to fill and to drain."""
    splits: bool = False
    """Whether kernels split the sum."""


FORMATS = {
    "fp32": Format(RATES["fp32"], 4.0, splits=True),
    "fp16": Format(RATES["fp16"], 2.0, splits=True),
    "bf16": Format(RATES["bf16"], 2.0, splits=True),
    "fp8": Format(RATES["fp8"], 1.0, "fp8_efficiency", "fp8_cast", 2 + 2 + 1),
    "fp8_block": Format(RATES["fp8"], 1.0, "fp8_block_efficiency", "block_cast", 2 + 1),
    "fp4": Format(RATES["fp4"], 0.5625, "fp4_efficiency", "block_cast", 2 + 0.5625, ((128, 256),), "fp4_ramp"),
}
"""The formats: one scale for a tensor (fp8), or for a block of it (fp8_block; fp4 is NVIDIA's, a scale for 16)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixUnit:
    """What an accelerator does of matrix products in one format; numbers, or arrays over a batch.

    The defaults are neutral: no quantisation, no ramp, no launch, the full rate for ever.
    """

    flop_per_s: Numeric
    """Rate that the inner loop reaches."""
    bytes_per_s: Numeric
    """Rate at which operands are read and results written."""
    operand_bytes: Numeric = 2.0
    result_bytes: Numeric = 2.0
    sms: Numeric = 0
    """Units that run a tile each at a time; 0: not known, no quantisation."""
    split_k: Numeric = 1
    """Units at most that share the sum of a tile."""
    tiles: tuple[tuple[int, int], ...] = FORMATS["bf16"].tiles
    ramp_s: Numeric = 0.0
    sustained: Numeric = 1.0
    """Share of the rate that is left at the power limit."""
    burst_s: Numeric = 0.0
    launch_s: Numeric = 0.0
    cast_s: Numeric = 0.0
    cast_s_per_element: Numeric = 0.0


def matrix_unit(
    compute: FieldLookup,
    memory_bytes_per_s: Numeric,
    number: str = "bf16",
    *,
    load: Load = "workload",
    result_bytes: Numeric = 2.0,
) -> MatrixUnit:
    """Return how an accelerator multiplies in the format *number*; *compute* looks up its fields by their key.

    *load* is what else the chip does: see `Load`.
    """
    chosen = FORMATS[number]
    usual = gemm_efficiency(compute)
    share = first_known(compute(chosen.efficiency), usual) if chosen.efficiency else usual
    operands = first_known(compute("operand_efficiency"), compute("memory_efficiency"))
    cast = chosen.cast_bytes / (CONSTANTS.cast_share * memory_bytes_per_s) if chosen.cast_bytes else 0.0
    return MatrixUnit(
        flop_per_s=first_known(*(compute(key) for key in (*chosen.rates, "bf16"))) * share,
        bytes_per_s=memory_bytes_per_s * operands,
        operand_bytes=chosen.bytes,
        result_bytes=result_bytes,
        sms=compute("sms"),
        split_k=compute("split_k") if chosen.splits else 1,
        tiles=chosen.tiles,
        ramp_s=first_known(compute(chosen.ramp), compute("tile_ramp")),
        sustained=compute("sustained_efficiency"),
        burst_s=compute("burst") * getattr(CONSTANTS.burst_left, load),
        launch_s=compute("launch"),
        cast_s=compute(chosen.cast) if chosen.cast else 0.0,
        cast_s_per_element=cast,
    )


def gemm_seconds(count: Numeric, m: Numeric, n: Numeric, k: Numeric, unit: MatrixUnit) -> Numeric:
    """Return the seconds of *count* independent products ``y[m, n] = x[m, k] w[k, n]`` in one kernel.

    On 4 SMs of 1 flop/s in all, 64 x 64 x 1 takes each 2 * 64 * 64 / (1/4) s; the fifth tile begins a new wave:

    >>> four = MatrixUnit(flop_per_s=1.0, bytes_per_s=1e30, sms=4, tiles=((64, 64),))
    >>> [float(gemm_seconds(1, 64 * tiles, 64, 1, four)) for tiles in (1, 4, 5)]
    [32768.0, 32768.0, 65536.0]

    and without SMs, as much as the work asks for:

    >>> float(gemm_seconds(1, 64, 64, 1, MatrixUnit(flop_per_s=1.0, bytes_per_s=1e30)))
    8192.0
    """
    moved = count * (unit.operand_bytes * (m + n) * k + unit.result_bytes * m * n)
    memory = moved / unit.bytes_per_s
    roofline = np.maximum(2.0 * count * m * n * k / unit.flop_per_s, memory)
    if np.ndim(unit.sms) == 0 and unit.sms == 0:
        busy = roofline
    else:
        compute = _throttled(_waves_seconds(count, m, n, k, unit), unit)
        tiled = np.cbrt(compute * compute * compute + memory * memory * memory)
        busy = np.where(unit.sms == 0, roofline, tiled) if np.ndim(unit.sms) else tiled
    return busy + count * m * k * unit.cast_s_per_element + (unit.cast_s + unit.launch_s)


def _waves_seconds(count: Numeric, m: Numeric, n: Numeric, k: Numeric, unit: MatrixUnit) -> Numeric:
    """Return the seconds that the best of the tiles takes while the chip is cool."""
    sms = np.maximum(unit.sms, 1)
    best: Numeric = np.inf
    for rows, columns in unit.tiles:
        tiles = np.maximum(count * np.ceil(m / rows) * np.ceil(n / columns), 1)
        loop = (2.0 * rows * columns) * k * sms / unit.flop_per_s
        shared = np.clip(np.floor(sms / tiles), 1, unit.split_k)
        merge = unit.ramp_s + (CONSTANTS.merge_bytes * rows * columns) * sms / unit.bytes_per_s
        each = unit.ramp_s + np.minimum(loop, loop / shared + merge)
        best = np.minimum(best, np.ceil(tiles / sms) * each)
    return best


def _throttled(cool_s: Numeric, unit: MatrixUnit) -> Numeric:
    """Return the seconds that are taken where the cool chip takes *cool_s*: more, the longer it lasts."""
    return cool_s * (1 + (1 / unit.sustained - 1) * cool_s / (cool_s + unit.burst_s + TINY_S))
