"""What the operators of a step cost on an accelerator, kernel by kernel: seconds on the device, and on the host.

An accelerator whose SMs are not known (an idealised one) is a roofline (`cosmic.cost.compute`). On a measured one, an
operator costs what its kernels cost:

    GEMMs             by their shape and number format (`cosmic.cost.gemm`); backward, two more of other shapes
    attention         fused, by its tiles (`cosmic.cost.attention`); unfused, two batched GEMMs and passes over scores
    everything else   by the bytes that its kernels stream through memory (`cosmic.cost.streaming`), eager or fused

The head, routers and weights that a serving format leaves wide multiply in 16 bits whatever the precision.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from cosmic.catalog.fitted import fitted
from cosmic.cost.attention import (
    Attention,
    AttentionRates,
    attention_backward_seconds,
    attention_seconds,
    decode_attention_seconds,
)
from cosmic.cost.compute import gemm_efficiency, operator_seconds, peak_flop_per_s
from cosmic.cost.gemm import FORMATS, MatrixUnit, gemm_seconds, matrix_unit
from cosmic.cost.streaming import (
    MemoryTraffic,
    PassPhase,
    Stream,
    Style,
    memory_traffic,
    optimizer_bytes_per_parameter,
    optimizer_seconds,
    streaming_seconds,
)
from cosmic.design.batch import Batch
from cosmic.design.model import is_moe
from cosmic.numeric import Numeric, log, sum_of
from cosmic.step.communication import reduced_once
from cosmic.step.compute import Gemm, OperatorUse
from cosmic.step.tables import TableUse
from cosmic.workload.precision import Recipe, recipe_for, weight_bytes
from cosmic.workload.sizes import microbatches

MULTIPLIED = {"fp32": "fp32", "fp8": "fp8", "fp4": "fp4"}
"""The number format in which a precision multiplies; 16 bits where it is not listed."""
SERVED = {"fp8": "fp8_block"}
"""Formats that serving engines use in place of those of training."""
SCORES = {"forward": MemoryTraffic(1, 2), "backward": MemoryTraffic(1, 3)}
"""Passes over the scores of unfused attention: scale, mask and softmax in one kernel, and its backward pass."""
DROPPED_SCORES = MemoryTraffic(1, 2.5)
"""Dropout of scores: read, written, and a mask of one byte."""

READ_TWICE = 2 + 2
"""Bytes that casting an element moves, at least, where a kernel before the cast finds the tensor's maximum."""

NO_TABLES = TableUse()


@dataclass(frozen=True, slots=True, kw_only=True)
class Passes:
    """A number for each pass."""

    forward: float
    backward: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchConstants:
    """What launching costs, and how many kernels operators run."""

    fused_cast: float
    """Cost of a cast fused into the kernel that makes the tensor, over that of a kernel of its own."""
    backward_launch: float
    """Cost of a backward launch over that of a forward one: autograd calls no Python."""
    queue_gap_s: float
    """Between two kernels of one queue."""
    graph_gap_s: float
    """Between two kernels that are replayed from a CUDA graph."""
    attention_kernels: Passes
    unfused_kernels: Passes
    """Of unfused attention."""
    collective_kernels: float
    """What a collective costs the host, in launches."""


CONSTANTS = fitted("launches", LaunchConstants)


class KernelCosts:
    """The seconds of operators and of the optimizer, for a batch of designs that share one plan."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.workload = batch.base.workload
        self.recipe: Recipe = recipe_for(self.workload)
        field: Callable[[str], Numeric] = lambda key: batch[f"compute.{key}"]  # noqa: E731  a short word for a long path
        self._field = field
        self._bandwidth = batch["memory.bandwidth"]
        self._bytes_per_s: Numeric = self._bandwidth * field("memory_efficiency")
        self._modelled = np.asanyarray(field("sms")) > 0
        self._units: dict[str, MatrixUnit] = {}
        self._serves = self.workload.task != "training"
        self._moe = is_moe(batch.base.model)
        self._style: Style = "eager" if self.workload.execution == "eager" else "fused"

    # ---------------------------------------------------------------------------------------------- operators

    def seconds(self, use: OperatorUse) -> Numeric:
        """Return the seconds of one run of an operator on the device."""
        if not self._modelled.any():
            return self._roofline(use)
        seconds = self._kernels(use) * self._straggling
        return seconds if self._modelled.all() else np.where(self._modelled, seconds, self._roofline(use))

    def _launches(self, use: OperatorUse) -> Numeric:
        """Return how many kernels the host launches for one run of an operator."""
        if isinstance(use.kernel.shape, Gemm):
            return self._gemm_launches(use, use.kernel.shape)
        if isinstance(use.kernel.shape, Attention):
            fused = self.workload.attention == "fused"
            passes = CONSTANTS.attention_kernels if fused else CONSTANTS.unfused_kernels
            return passes.forward if use.phase == "forward" else passes.backward
        return memory_traffic(use.kind, use.phase, self._style).kernels

    def _gemm_launches(self, use: OperatorUse, shape: Gemm) -> Numeric:
        """Return the kernels of a GEMM: of experts one grouped GEMM or one for each, and casts that nothing fuses.

        Backward there are two GEMMs, of which the first casts the gradient; the sum of gradients of an activation that
        several GEMMs read is a kernel, too.
        """
        if self._joins_earlier(use):
            return 0.0
        each = 1.0 if self.workload.grouped_gemm else np.maximum(shape.count, 1.0)
        casts = self._cast_kernels(use)
        read = 0.0 if use.kernel.fuses else casts  # an earlier GEMM has cast the same activation
        if use.phase == "forward":
            return each * (1.0 + read)
        return each * (2.0 + casts + read) + use.kernel.fuses

    def _cast_kernels(self, use: OperatorUse) -> float:
        """Return the kernels that cast an operand: two where a tensor's maximum is found first, none where fused."""
        moved = FORMATS[self._format(use)].cast_bytes
        fused = self._style == "fused" if self._serves else self.workload.execution == "fused"
        return 0.0 if fused or not moved else 2.0 if moved > READ_TWICE else 1.0

    def _joins_earlier(self, use: OperatorUse) -> bool:
        """Return whether a serving engine runs a GEMM as columns of an earlier one, such as K and V beside Q."""
        return self._serves and self._style == "fused" and use.kernel.fuses

    def _roofline(self, use: OperatorUse) -> Numeric:
        rate = self._attention_rate if use.kind == "attention" else self._matrix_rate
        return operator_seconds(use.flop, use.bytes, rate, self._bytes_per_s, self._field("launch"))

    def _kernels(self, use: OperatorUse) -> Numeric:
        if isinstance(use.kernel.shape, Gemm):
            return self._gemm(use, use.kernel.shape)
        if isinstance(use.kernel.shape, Attention):
            fused = self.workload.attention == "fused"
            return self._fused(use, use.kernel.shape) if fused else self._unfused(use, use.kernel.shape)
        return self._streamed(use.kind, use.phase, use.kernel.elements)

    def _streamed(self, kind: str, phase: PassPhase, elements: Numeric) -> Numeric:
        moved = memory_traffic(kind, phase, self._style)
        return streaming_seconds(moved, elements, self.recipe.activation, self._stream)

    # ---------------------------------------------------------------------------------------------------- GEMMs

    def _gemm(self, use: OperatorUse, shape: Gemm) -> Numeric:
        number = self._format(use)
        unit = self._served(self._unit(number), use) if self._serves else self._unit(number)
        known = self._cast_once(unit, number, use)
        weights = shape.count * shape.n * shape.k
        if self._joins_earlier(use):
            return self._added_s(shape, use.kernel.beside, known)
        if use.phase == "forward":
            return self._gemm_s(shape, known) + self._weights_cast(number, weights)
        by_input, by_weight = shape.backward()
        added = self._streamed("fan", "backward", shape.count * shape.m * shape.k) if use.kernel.fuses else 0.0
        gemms = self._gemm_s(by_input, unit) + self._gemm_s(by_weight, known)
        return gemms + self._weights_cast(number, weights) + added + self._accumulated(weights)

    def _gemm_s(self, shape: Gemm, unit: MatrixUnit) -> Numeric:
        """Return the seconds of GEMMs in one kernel, or of as many kernels as there are experts."""
        if self.workload.grouped_gemm:
            return gemm_seconds(shape.count, shape.m, shape.n, shape.k, unit)
        return shape.count * gemm_seconds(1, shape.m, shape.n, shape.k, unit)

    def _added_s(self, shape: Gemm, beside: Numeric, unit: MatrixUnit) -> Numeric:
        """Return the seconds that a GEMM adds to one of *beside* columns that it is fused with, in serving engines."""
        return self._gemm_s(replace(shape, n=beside + shape.n), unit) - self._gemm_s(replace(shape, n=beside), unit)

    def _served(self, unit: MatrixUnit, use: OperatorUse) -> MatrixUnit:
        """Return how a serving engine multiplies: weights in their own format, casts fused into earlier kernels."""
        kept = weight_bytes(self.recipe, use.kernel.weight, moe=self._moe)
        if self._style == "eager":
            return replace(unit, operand_bytes=kept)
        return replace(unit, operand_bytes=kept, cast_s=0.0)

    def _cast_once(self, unit: MatrixUnit, number: str, use: OperatorUse) -> MatrixUnit:
        """Return how a GEMM multiplies whose input an earlier GEMM cast, or ranks cast before they gathered it."""
        if not FORMATS[number].cast_bytes:
            return unit
        if use.kernel.fuses:
            return replace(unit, cast_s=0.0, cast_s_per_element=0.0)
        return replace(unit, cast_s_per_element=unit.cast_s_per_element / use.kernel.gathered)

    def _weights_cast(self, number: str, weights: Numeric) -> Numeric:
        """Return the seconds to cast *weights* to the format in which a training step multiplies.

        Once a step, as only the optimizer changes them; at every use where they are gathered for it.
        """
        if self._serves or not FORMATS[number].cast_bytes:
            return 0.0
        every_use = self.workload.weight_sharding == "zero3"
        times = 1.0 if every_use else 1.0 / microbatches(self.batch)
        return times * weights * FORMATS[number].cast_bytes / self._bytes_per_s

    def _accumulated(self, weights: Numeric) -> Numeric:
        """Return the seconds to add new gradients of *weights* to those of earlier microbatches.

        Eager, they are read and added: three passes. Fused, the GEMM itself adds to the accumulated gradients. Sharded
        gradients are reduced and dropped instead.
        """
        if not reduced_once(self.workload):
            return 0.0
        kept, made = self.recipe.gradient, self.recipe.activation
        moved = 2 * kept + (made if self._style == "eager" else -made)
        return weights * moved / self._bytes_per_s

    def _format(self, use: OperatorUse) -> str:
        """Return the number format in which an operator multiplies."""
        number = MULTIPLIED.get(self.workload.precision, "bf16")
        if number == "bf16" or use.block == "head" or use.name == "router":
            return self._wide
        if not self._serves:
            return number
        wide = weight_bytes(self.recipe, use.kernel.weight, moe=self._moe) == self.recipe.wide
        return self._wide if wide else SERVED.get(number, number)

    @property
    def _wide(self) -> str:
        """The number format of what no 8- or 4-bit format covers: attention, the head, routers."""
        return "fp32" if self.workload.precision == "fp32" else "bf16"

    def _unit(self, number: str) -> MatrixUnit:
        if number not in self._units:
            unit = matrix_unit(self._field, self._bandwidth, number, result_bytes=self.recipe.activation)
            unit = replace(unit, flop_per_s=unit.flop_per_s * self._steady(number))
            if self.workload.execution == "fused" and not self._serves:
                cast = unit.cast_s_per_element * CONSTANTS.fused_cast
                unit = replace(unit, cast_s=0.0, cast_s_per_element=cast)
            self._units[number] = unit
        return self._units[number]

    def _steady(self, number: str) -> Numeric:
        """Return the share of the rate of one accelerator alone that many keep in long runs."""
        narrow = bool(FORMATS[number].cast_bytes)
        kept = self._field("narrow_steady_efficiency" if narrow else "steady_efficiency")
        return np.where(np.asanyarray(self.batch.npus) > 1, kept, 1.0)

    # ---------------------------------------------------------------------------------------------- attention

    def _fused(self, use: OperatorUse, shape: Attention) -> Numeric:
        rates = self._attention_rates
        if self.workload.task == "decode":
            split = self._style == "fused" or shape.heads == shape.kv_heads
            return decode_attention_seconds(replace(shape, element_bytes=self.recipe.cache), rates, split)
        shape = replace(shape, element_bytes=self.recipe.activation)
        return attention_seconds(shape, rates) if use.phase == "forward" else attention_backward_seconds(shape, rates)

    def _unfused(self, use: OperatorUse, shape: Attention) -> Numeric:
        """Return the seconds of unfused attention: two batched GEMMs, with scores written out and read between them."""
        unit = self._unit(self._wide)
        groups = shape.batch * shape.heads
        scores = Gemm(groups, shape.queries, shape.keys, shape.width)
        values = Gemm(groups, shape.queries, shape.value_width, shape.keys)
        gemms = (scores, values) if use.phase == "forward" else (*scores.backward(), *values.backward())
        pairs = groups * shape.queries * shape.keys
        passes = [SCORES[use.phase], *([DROPPED_SCORES] if self.workload.dropout and not self._serves else [])]
        streamed = sum_of(streaming_seconds(each, pairs, self.recipe.activation, self._stream) for each in passes)
        return sum_of(gemm_seconds(gemm.count, gemm.m, gemm.n, gemm.k, unit) for gemm in gemms) + streamed

    # ------------------------------------------------------------------------------------------------ rates

    @cached_property
    def _stream(self) -> Stream:
        if self.workload.task == "decode":
            return Stream(self._bytes_per_s, 0.0, CONSTANTS.graph_gap_s)
        return Stream(self._bytes_per_s, self._field("stream_ramp"), CONSTANTS.queue_gap_s)

    @cached_property
    def _attention_rates(self) -> AttentionRates:
        return AttentionRates(
            peak_flop_per_s=peak_flop_per_s(self._field, self._wide),
            bytes_per_s=self._bytes_per_s,
            efficiency=self._field("attention_efficiency"),
            backward_efficiency=self._field("attention_backward_efficiency"),
            ramp_s=self._field("attention_ramp"),
            sms=np.maximum(self._field("sms"), 1),
        )

    @cached_property
    def _straggling(self) -> Numeric:
        """How many times longer the slowest of n accelerators takes: the largest of n normal deviates is √(2 ln n)."""
        slack: Numeric = self._field("straggler_slack")
        spread: Numeric = np.sqrt(2 * log(np.maximum(self.batch.npus, 1)))
        return 1 + slack * spread

    @cached_property
    def _peak(self) -> Numeric:
        return peak_flop_per_s(self._field, self.workload.precision)

    @cached_property
    def _matrix_rate(self) -> Numeric:
        return self._peak * gemm_efficiency(self._field)

    @cached_property
    def _attention_rate(self) -> Numeric:
        return self._peak * self._field("attention_efficiency")

    # --------------------------------------------------------------------------------------- beside operators

    def update(self, elements: Numeric, tables: TableUse = NO_TABLES) -> tuple[Numeric, Numeric]:
        """Return the seconds of a fused Adam over *elements* weights and of Adagrad over *tables*, and its bytes."""
        recipe = self.recipe
        each = optimizer_bytes_per_parameter(recipe.weight, recipe.gradient, recipe.moments / 2, recipe.master)
        moved = elements * each + tables.update_bytes
        fused = optimizer_seconds(moved, 1.0, Stream(self._bytes_per_s, 0.0))
        return np.where(self._modelled, fused, moved / self._bytes_per_s), moved

    def launch_s(self, use: OperatorUse) -> Numeric:
        """Return the seconds of the host to launch one run of an operator."""
        each = self._one_launch_s(use.phase)
        return 0.0 if np.ndim(each) == 0 and each == 0 else self._launches(use) * each

    def collective_launch_s(self, phase: str) -> Numeric:
        """Return the seconds of the host to launch one collective."""
        return CONSTANTS.collective_kernels * self._one_launch_s(phase)

    def _one_launch_s(self, phase: str) -> Numeric:
        """Return the seconds of one launch; a replayed CUDA graph needs none."""
        if self.workload.task == "decode":
            return 0.0
        return self._field("host_launch") * (CONSTANTS.backward_launch if phase == "backward" else 1.0)
