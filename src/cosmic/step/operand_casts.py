"""The bytes and seconds that a training step takes to cast the operands of GEMMs to 8 and 4 bits.

A linear layer multiplies three times, and its tensors are read along rows and along columns:

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

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from cosmic.base.numeric import Numeric, where
from cosmic.design.catalog_entries import load_constants
from cosmic.design.design_batch import first_known
from cosmic.design.workload_layer import Workload
from cosmic.step.accelerator_rates import FieldLookup
from cosmic.step.streaming import MemoryTraffic, Stream, streaming_seconds
from cosmic.workload.precision import NARROW, PER_TENSOR, gathers_narrow, operand_scaling

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


CONSTANTS = load_constants("casts", CastConstants)
TRAFFIC = {recipe.recipe: recipe for recipe in CONSTANTS.recipes}


def has_block_formats(compute: FieldLookup) -> Numeric:
    """Return 1 if matrix units scale blocks themselves, and read operands in either order, else 0: if they have fp4.

    >>> float(has_block_formats({"fp4": 1e16}.get)), float(has_block_formats({"fp4": None}.get))
    (1.0, 0.0)
    """
    return where(first_known(compute("fp4"), 0.0) > 0, 1.0, 0.0)


def scaled_in_blocks(workload: Workload, compute: FieldLookup) -> Numeric:
    """Return 1 if the copies along rows and columns have scales of their own, so that neither makes the other."""
    recipe = operand_scaling(workload)
    return has_block_formats(compute) if recipe == "auto" else float(recipe not in PER_TENSOR)


def cast_kernels(workload: Workload) -> Literal["written", "compiled", "eager"]:
    """Return whose kernels cast: Transformer Engine's in training frameworks, and eager where torchao has no recipe."""
    if workload.execution == "compiled":
        return "compiled"
    return "eager" if workload.execution == "eager" and operand_scaling(workload) in TORCHAO else "written"


class CastCosts:
    """The seconds of casts of a training step, for a batch of designs that share one plan."""

    def __init__(self, workload: Workload, compute: FieldLookup, stream: Stream) -> None:
        self.narrow = workload.task == "training" and workload.precision in NARROW
        self._workload, self._stream = workload, stream
        self._recipe = operand_scaling(workload)
        self._kernels = cast_kernels(workload)
        self._blocks = has_block_formats(compute)
        self._per_tensor = 1.0 - scaled_in_blocks(workload, compute)

    def _of(self, number: Callable[[CastTraffic], float]) -> Numeric:
        """Return a number of the recipe; frameworks choose one by the accelerator if none is given."""
        if self._recipe == "auto":
            return where(self._blocks > 0, number(TRAFFIC["mxfp8"]), number(TRAFFIC["delayed"]))
        return number(TRAFFIC[self._recipe])

    @property
    def _turns(self) -> Numeric:
        """1 where the copy along columns is the other one, turned; 0 where it is cast, or not needed."""
        return self._per_tensor * (1.0 - self._blocks)

    @property
    def _row(self) -> Numeric:
        return self._of(lambda each: each.row)

    @property
    def _column(self) -> Numeric:
        return self._of(lambda each: each.column)

    @property
    def _both(self) -> Numeric:
        """Bytes to make both copies, or the one that serves as both."""
        return where(self._per_tensor * self._blocks > 0, self._row, self._of(lambda each: each.both))

    @property
    def kernels(self) -> Numeric:
        """Kernels of a cast that the host launches; none where a framework fuses or launches them by itself."""
        return 0.0 if self._kernels == "written" or not self.narrow else self._of(lambda each: each.kernels)

    def input_s(self, elements: Numeric, gathered: Numeric) -> Numeric:
        """Return the seconds to cast the input of a GEMM before its forward pass, of which a rank had a part."""
        if not gathers_narrow(self._workload):
            gathered = 1.0
        if self._kernels != "written":
            return self._seconds(self._row * (elements / gathered))
        turned = TURNED_BYTES * self._turns * elements * (1 - 1 / gathered)
        return self._seconds(self._both * (elements / gathered) + turned)

    def input_again_s(self, elements: Numeric) -> Numeric:
        """Return the seconds to make the copy of an input that its backward pass reads; fused, it has been kept."""
        return 0.0 if self._kernels == "written" else self._seconds(self._column * elements)

    def gradient_s(self, elements: Numeric, gathered: Numeric) -> Numeric:
        """Return the seconds to cast the gradient of a GEMM's result, of which a rank had a part."""
        if not gathers_narrow(self._workload):
            gathered = 1.0
        turned = TURNED_BYTES * self._turns * elements * (1 - 1 / gathered)
        return self._seconds(self._both * (elements / gathered) + turned)

    def weights_s(self, weights: Numeric, phase: str, microbatches: Numeric, ranks: Numeric) -> Numeric:
        """Return the seconds to cast *weights* in a pass, of which each of so many *ranks* has a shard where sharded.

        Only the optimizer changes them: once a step, of which a pass of a microbatch has its share. Sharded ones are
        cast at every use, unless shards are cast before they are gathered; so are those that nothing caches, in the
        forward pass.
        """
        forward = phase == "forward"
        if self._workload.weight_sharding != "zero3":
            uses = microbatches if self._workload.fp8_weight_cache else 1
            return self._moved_s(self._both * weights) / uses if forward else 0.0
        if self._recipe == "tensorwise":
            shard = self._row * weights / ranks if forward else TURNED_BYTES * self._turns * weights
            return self._moved_s(shard)
        return self._moved_s((self._row if forward else self._column) * weights)

    def scales_s(self, gemms: float) -> Numeric:
        """Return the seconds to bring the scales of both operands of so many GEMMs into their order."""
        kernels = self._of(lambda each: each.scale_kernels) * gemms
        return kernels * (self._stream.ramp_bytes / self._stream.bytes_per_s + self._stream.launch_s)

    def _seconds(self, moved: Numeric) -> Numeric:
        kernels = self._of(lambda each: each.kernels)
        start = kernels * (self._stream.ramp_bytes / self._stream.bytes_per_s + self._stream.launch_s)
        return self._moved_s(moved) + start

    def _moved_s(self, moved: Numeric) -> Numeric:
        pace: float = getattr(CONSTANTS.pace, self._kernels)
        return streaming_seconds(MemoryTraffic(0, 1, pace), moved, 1.0, Stream(self._stream.bytes_per_s))
