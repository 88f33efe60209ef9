"""How long a GEMM takes by its shape and number format: tiles in waves against memory, and casts of its operands.

*c* independent GEMMs ``y[m, n] = x[m, k] w[k, n]`` of one shape run as one kernel on an accelerator of *u* SMs
(streaming multiprocessors). The kernel cuts y into tiles of a x b; an SM computes one tile at a time:

    t      = (compute^3 + memory^3)^(1/3) + cast + launch

    compute = W (1 + (1/s - 1) W / (W + burst))
    W       = min over tiles a x b of   waves (ramp + min(loop, loop / split + merge))
    waves   = ceil(c ceil(m/a) ceil(n/b) / u)
    loop    = 2 a b k / (e peak / u)
    split   = how many SMs share the sum over k, where there are more SMs than tiles
    merge   = ramp + 16 bytes a b u / (e_o bandwidth), to add up the parts of split sums
    memory  = c ((m k + k n) operand bytes + m n result bytes) / (e_o bandwidth)

    e      share of the peak that the inner loop of a large GEMM reaches
    ramp   to fill an SM's pipeline and to write its tile out
    s      share of the rate that is left at the power limit
    burst  how long a GEMM runs before the power limit slows it down. The GEMMs of a workload follow one another and
           find the chip warm: little of the burst is left to them (`BurstLeft`)
    e_o    share of the memory's bandwidth at which operands are read
    cast   formats of 8 and 4 bits: x is scaled and written in the new format before the GEMM reads it

Compute and memory overlap, but not completely where they take equally long: the cubes are a maximum with a rounded
corner. On an accelerator that states no SMs (*u* = 0) a GEMM is a plain roofline,

    t = max(work / (e peak), memory) + launch.

The tiles, the cubes and the bytes of a cast are common to all accelerators. The other symbols are fields of
`cosmic.design.compute_layer.Compute`; calibration/fit_gemm.py fits them on 9,200 measured GEMMs and prints how far off
the model is. Waves: NVIDIA, *Matrix Multiplication Background User's Guide*, 2023.

**Casts** of operands to 8 and 4 bits in a training step (`cosmic.step.kernel_costs.CastCosts`). A linear layer multiplies three times, and its
tensors are read along rows and along columns:

    y = x w          x along its rows,       w along its columns
    dx = dy w'       dy along its rows,      w along its rows
    dw = x' dy       x along its columns,    dy along its columns

Matrix units read operands of 8 bits along the sum. So a tensor is cast twice, or cast once and turned: a *row* copy and
a *column* copy. How many bytes that moves is a matter of the recipe, `Workload.fp8_recipe` (fp4 is NVFP4):

    delayed      one scale for a tensor, known before it is read
    tensorwise   one scale for a tensor, whose maximum is found first: read twice
    rowwise      a scale for each row: the copies have different scales, and each reads the tensor
    blockwise    a scale for 1 x 128 numbers (weights: 128 x 128); both copies in one kernel
    mxfp8        a scale for 32 numbers; both copies in one kernel; GEMMs want scales in an order of their own
    nvfp4        a scale for 16 numbers and one for the tensor; a Hadamard transform before the column copy

With one scale for a tensor, the column copy is the row copy turned. Blackwell's matrix units read either, so that it
needs none; they are known by having fp4.

    kernels                          x forward       x backward     dy            w
    of Transformer Engine (fused)    both copies     kept           both copies   both, once a step (`fp8_weight_cache`)
    of PyTorch (compiled, eager)     row             column again   both copies   as gathered

    t = (elements x bytes + kernels x ramp) / (B pace) + kernels x gap        (`cosmic.step.streaming`)

What ranks split is cast before it is gathered, where the recipe lets them know the scale; the column copy of what was
gathered is made after. Constants: `catalog/constants/casts.yaml`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from cosmic.base.numeric import Numeric, cbrt, where
from cosmic.design.catalog_entries import load_constants
from cosmic.design.design_batch import first_known
from cosmic.design.workload_layer import Workload
from cosmic.step.accelerator_rates import RATES, FieldLookup, gemm_efficiency, share_under_power_cap
from cosmic.workload.precision import NARROW, PER_TENSOR, operand_scaling

ChipLoad = Literal["alone", "repeated", "workload"]
"""How warm the chip is: a GEMM timed alone on a cool chip, repeated with the host in between, or part of a workload."""
TINY_S = 1e-30
EMPTY_ROWS = 64
"""Rows of an expert's last tile that no token fills: half of a tile of 128."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BurstLeft:
    """Share that is left of the burst of a GEMM timed alone, in each `ChipLoad`."""

    alone: float
    repeated: float
    workload: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmConstants:
    """Constants that all accelerators have in common."""

    merge_bytes: float
    """Bytes moved to add up split sums, for each element of a tile."""
    cast_share: float
    """Share of the memory's bandwidth that a cast reaches."""
    burst_left: BurstLeft


CONSTANTS = load_constants("gemm", GemmConstants)


class Format(NamedTuple):
    """A number format of operands: the keys of an accelerator's rates for it, and properties of its kernels."""

    rates: tuple[str, ...]
    """Keys of the peak rate, the best first; that of 16 bits counts where none of them is known."""
    bytes: float
    """Bytes of an operand's element, with its share of the scales."""
    efficiency: str = ""
    """Key of the share of the peak; that of 16 bits counts where it is not stated."""
    cast: str = ""
    """Key of the time of a cast beside that of its bytes."""
    cast_bytes: float = 0.0
    """Bytes that casting an element moves: 16 bits in (twice to find the tensor's maximum first), the format out."""
    tiles: tuple[tuple[int, int], ...] = ((64, 64), (128, 128))
    ramp: str = "tile_ramp"
    """Key of the time that a tile's pipeline takes to fill and to drain."""
    splits: bool = False
    """Whether kernels split the sum over k."""


FORMATS = {
    "fp32": Format(RATES["fp32"], 4.0, splits=True),
    "fp16": Format(RATES["fp16"], 2.0, splits=True),
    "bf16": Format(RATES["bf16"], 2.0, splits=True),
    "fp8": Format(RATES["fp8"], 1.0, "fp8_efficiency", "fp8_cast", 2 + 2 + 1),
    "fp8_block": Format(RATES["fp8"], 1.0, "fp8_block_efficiency", "block_cast", 2 + 1),
    "fp4": Format(RATES["fp4"], 0.5625, "fp4_efficiency", "block_cast", 2 + 0.5625, ((128, 256),), "fp4_ramp"),
    "fp4_served": Format(
        RATES["fp4"], 0.5625, "fp4_efficiency", "block_cast", 2 + 0.5625, ((128, 256), (128, 128)), "fp4_ramp"
    ),
    "widened": Format((), 0.5625, tiles=((16, 64), (64, 64), (128, 128)), splits=True),
    "fp4_trained": Format(RATES["fp4"], 0.5625, "fp8_efficiency", "block_cast", 2 + 0.5625, ((128, 256),), "fp4_ramp"),
}
"""The formats: one scale for a tensor (fp8) or for each block of it (fp8_block; fp4 is NVFP4, a scale for 16).

Weights alone have 4 bits where kernels have *widened* them: integers anywhere, and fp4 where matrix units have none.
Activations stay in 16 bits, and so does the product. Tiles have as few rows as a matrix instruction takes, so that the
weights of few tokens are read at the rate of the memory.

Measured GEMMs of fp4 are those of a serving engine; that the newer kernels of fp4_served have smaller tiles, too, is
inferred from whole serving steps, not from GEMMs. Training frameworks call cuBLAS, which comes as close to the peak
in fp4 as in fp8: "up to 2.3x" as fast (NVIDIA, *Boosting Matrix Multiplication Speed and Flexibility with NVIDIA cuBLAS
12.9*, 2025)."""


@dataclass(frozen=True, slots=True)
class Gemm:
    """GEMMs of one shape."""

    count: Numeric
    m: Numeric
    n: Numeric
    k: Numeric

    def backward(self) -> tuple[Gemm, Gemm]:
        """Return the GEMMs for the gradients of the activation and of the weight.

        >>> Gemm(1, 4096, 8192, 2048).backward()
        (Gemm(count=1, m=4096, n=2048, k=8192), Gemm(count=1, m=2048, n=8192, k=4096))
        """
        return Gemm(self.count, self.m, self.k, self.n), Gemm(self.count, self.k, self.n, self.m)


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixUnit:
    """How fast an accelerator runs GEMMs in one format; numbers, or arrays over a batch.

    The defaults are neutral: no quantisation, no ramp, no launch, the full rate for ever.
    """

    flop_per_s: Numeric
    """Rate that the inner loop reaches."""
    bytes_per_s: Numeric
    """Rate at which operands are read and results written."""
    operand_bytes: Numeric = 2.0
    result_bytes: Numeric = 2.0
    sms: Numeric = 0
    """SMs, each of which runs one tile at a time; 0: not known, no quantisation."""
    split_k: Numeric = 1
    """SMs that share the sum of a tile, at most."""
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
    load: ChipLoad = "workload",
    result_bytes: Numeric = 2.0,
) -> MatrixUnit:
    """Return how fast an accelerator runs GEMMs in the format *number*; *compute* looks up its fields by their key.

    *load* says how warm the chip is.
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
        sustained=share_under_power_cap(compute("sustained_efficiency"), compute),
        burst_s=compute("burst") * getattr(CONSTANTS.burst_left, load),
        launch_s=compute("launch"),
        cast_s=compute(chosen.cast) if chosen.cast else 0.0,
        cast_s_per_element=cast,
    )


def gemm_seconds(count: Numeric, m: Numeric, n: Numeric, k: Numeric, unit: MatrixUnit) -> Numeric:
    """Return the seconds of *count* independent GEMMs ``y[m, n] = x[m, k] w[k, n]`` in one kernel.

    On 4 SMs of 1 flop/s together, a tile of 64 x 64 x 1 takes 2 * 64 * 64 / (1/4) s; the fifth begins a new wave:

    >>> four = MatrixUnit(flop_per_s=1.0, bytes_per_s=1e30, sms=4, tiles=((64, 64),))
    >>> [float(gemm_seconds(1, 64 * tiles, 64, 1, four)) for tiles in (1, 4, 5)]
    [32768.0, 32768.0, 65536.0]

    Without SMs, the time is that of the work:

    >>> float(gemm_seconds(1, 64, 64, 1, MatrixUnit(flop_per_s=1.0, bytes_per_s=1e30)))
    8192.0
    """
    moved = count * (unit.operand_bytes * (m + n) * k + unit.result_bytes * m * n)
    memory = moved / unit.bytes_per_s
    # two operations (multiply, add) for each of m n k products
    roofline = np.maximum(2.0 * count * m * n * k / unit.flop_per_s, memory)
    if np.ndim(unit.sms) == 0 and unit.sms == 0:
        busy = roofline
    else:
        # The longer a GEMM runs, the more the power limit throttles it.
        cool_s = _waves_seconds(count, m, n, k, unit)
        compute = cool_s * (1 + (1 / unit.sustained - 1) * cool_s / (cool_s + unit.burst_s + TINY_S))
        tiled = cbrt(compute * compute * compute + memory * memory * memory)
        busy = np.where(unit.sms == 0, roofline, tiled) if np.ndim(unit.sms) else tiled
    return busy + count * m * k * unit.cast_s_per_element + (unit.cast_s + unit.launch_s)


def _waves_seconds(count: Numeric, m: Numeric, n: Numeric, k: Numeric, unit: MatrixUnit) -> Numeric:
    """Return the seconds with the fastest tile size on a cool chip."""
    sms = np.maximum(unit.sms, 1)
    best: Numeric = np.inf
    for rows, columns in unit.tiles:
        tiles = np.maximum(count * np.ceil(m / rows) * np.ceil(n / columns), 1)
        loop = (2.0 * rows * columns) * k * sms / unit.flop_per_s
        shared = np.clip(np.floor(sms / tiles), 1, unit.split_k)
        merge = unit.ramp_s + (CONSTANTS.merge_bytes * rows * columns) * sms / unit.bytes_per_s
        wave_s = unit.ramp_s + np.minimum(loop, loop / shared + merge)
        best = np.minimum(best, np.ceil(tiles / sms) * wave_s)
    return best


TORCHAO = ("tensorwise", "rowwise")
"""Recipes of torchao, whose layers PyTorch runs eagerly, or compiles."""
TURNED_BYTES = 1 + 1
"""Bytes to turn an element of 8 bits: read, and written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CastTraffic:
    """What a recipe moves for each element that it casts."""

    recipe: str
    kernels: float
    """Kernels of a cast."""
    row: float
    """Bytes to make the copy along rows."""
    column: float
    """Bytes to make the copy along columns alone."""
    both: float
    """Bytes to make both."""
    scale_kernels: float = 0.0
    """Kernels before each GEMM that bring scales into its order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CastPace:
    """Rate of casts relative to a plain copy: in kernels written for it, in those of a compiler, and eager."""

    written: float
    compiled: float
    eager: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CastConstants:
    """Constants that all accelerators have in common."""

    pace: CastPace
    recipes: tuple[CastTraffic, ...]


CAST_CONSTANTS = load_constants("casts", CastConstants)
TRAFFIC = {recipe.recipe: recipe for recipe in CAST_CONSTANTS.recipes}


def has_block_formats(compute: FieldLookup) -> Numeric:
    """Return 1 if matrix units scale blocks themselves, and read operands in either order, else 0: if they have fp4.

    >>> float(has_block_formats({"fp4": 1e16}.get)), float(has_block_formats({"fp4": None}.get))
    (1.0, 0.0)
    """
    return where(first_known(compute("fp4"), 0.0) > 0, 1.0, 0.0)


COPY_BYTES = {
    **dict.fromkeys(("delayed", "tensorwise", "rowwise"), 1.0),
    "blockwise": 1.0 + 4 / 128**2,
    "mxfp8": 1.0 + 1 / 32,
    "nvfp4": 0.5 + 1 / 16,
}
"""Bytes per weight of a copy with its scales, by recipe."""


def scaled_in_blocks(workload: Workload, compute: FieldLookup) -> Numeric:
    """Return 1 if the copies along rows and columns have scales of their own, so that neither makes the other."""
    recipe = operand_scaling(workload)
    return has_block_formats(compute) if recipe == "auto" else float(recipe not in PER_TENSOR)


def kept_copies(workload: Workload, compute: FieldLookup) -> Numeric:
    """Return the bytes per weight of the copies in 8 or 4 bits that Transformer Engine keeps from step to step.

    The row copy is for the forward pass, the column copy for the gradient of the input; Blackwell reads the row copy both
    ways where a tensor has one scale. Other kernels cast a weight at every use.

    >>> from cosmic.design.workload_layer import Workload
    >>> fp8 = Workload(sequence=1, global_batch=1, precision="fp8", fp8_recipe="tensorwise")
    >>> float(kept_copies(fp8, {"fp4": None}.get)), float(kept_copies(fp8, {"fp4": 9e15}.get))
    (2.0, 1.0)
    """
    if workload.precision not in NARROW or cast_kernels(workload) != "written":
        return 0.0
    blocks = scaled_in_blocks(workload, compute)
    both = 1.0 - has_block_formats(compute) * (1.0 - blocks)
    recipe = operand_scaling(workload)
    copy_bytes = 1.0 + (COPY_BYTES["mxfp8"] - 1.0) * blocks if recipe == "auto" else COPY_BYTES[recipe]
    return copy_bytes * (1.0 + both)


def cast_kernels(workload: Workload) -> Literal["written", "compiled", "eager"]:
    """Return whose kernels cast: Transformer Engine's in training frameworks, and eager where torchao has no recipe."""
    if workload.execution == "compiled":
        return "compiled"
    return "eager" if workload.execution == "eager" and operand_scaling(workload) in TORCHAO else "written"
