"""What the operators of a step cost on an accelerator, kernel by kernel: seconds on the device, and on the host.

An accelerator whose SMs are not known (an idealised one) is a roofline (`cosmic.step.accelerator_rates`). On a measured
one, an operator costs what its kernels cost:

    GEMMs             by their shape and number format (`cosmic.step.gemm`); backward, two more of other shapes
    attention         fused, by its tiles (`cosmic.step.attention`); unfused, two batched GEMMs and passes over scores
    scans             by the passes and the products of their chunks (`cosmic.step.scan`)
    everything else   by the bytes that its kernels stream through memory (`cosmic.step.streaming`), eager or fused

The head, routers and weights that a serving format leaves wide multiply in 16 bits whatever the precision.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property

import numpy as np

from cosmic.base.numeric import Numeric, log, sum_of, where
from cosmic.design.design_batch import Batch
from cosmic.design.model_layer import Transformer, is_moe
from cosmic.design.workload_layer import Workload
from cosmic.step.accelerator_rates import (
    FieldLookup,
    gemm_efficiency,
    operator_seconds,
    peak_flop_per_s,
    share_under_power_cap,
)
from cosmic.step.attention import Attention, AttentionRates, limit_to_generation
from cosmic.step.block_memory import TableUse
from cosmic.step.communication import reduces_once
from cosmic.step.gemm import (
    CAST_CONSTANTS,
    EMPTY_ROWS,
    FORMATS,
    TURNED_BYTES,
    CastTraffic,
    Gemm,
    MatrixUnit,
    cast_kernels,
    has_block_formats,
    matrix_unit,
    scaled_in_blocks,
)
from cosmic.step.gemm import TRAFFIC as CAST_TRAFFIC
from cosmic.step.kernel_launches import CONSTANTS, LaunchCosts
from cosmic.step.kernel_prices import Passes, price_kernel
from cosmic.step.operator_work import BACKWARD_FLOP, OperatorUse, unfused_share
from cosmic.step.scan import Scan, ScanRates
from cosmic.step.streaming import (
    MemoryTraffic,
    PassPhase,
    Stream,
    Style,
    memory_traffic,
    optimizer_bytes_per_parameter,
    optimizer_seconds,
)
from cosmic.step.tier_traffic import kernel_bandwidth_bytes_per_s
from cosmic.workload.expert_routing import pads_experts
from cosmic.workload.mesh_sizes import islands_of, microbatches
from cosmic.workload.precision import (
    NARROW,
    PER_TENSOR,
    Recipe,
    gathers_narrow,
    is_adapter,
    operand_scaling,
    recipe_for,
    weight_bytes,
)

MULTIPLIED = {"fp32": "fp32", "fp8": "fp8", "fp4": "fp4"}
"""The number format in which a precision multiplies; 16 bits where it is not listed."""
WIDENED_EXPERTS = 0.45
"""Share of the rate of 16 bits that experts' grouped GEMMs reach whose weights of 4 bits are widened in the kernel.
Not measured: chosen by prefills of published serving samples. Other GEMMs of such weights come as close to that rate as
those of 16 bits: kernels widen one tile while the matrix unit multiplies another (Frantar et al., MARLIN, 2024; Neural
Magic, Machete, 2024)."""
SCALED = {"blockwise": "fp8_block", "rowwise": "fp8_block", "nvfp4": "fp4_trained"}
"""Formats that recipes of training multiply in, where it is not that of one scale for a tensor. Scales of rows and of
blocks of 128 are applied by the kernel, not by the matrix unit: both are slower."""
SCORES = {"forward": MemoryTraffic(1, 2), "backward": MemoryTraffic(1, 3)}
"""Passes over the scores of unfused attention: scale, mask and softmax in one kernel, and its backward pass."""
DROPPED_SCORES = MemoryTraffic(1, 2.5)
"""Dropout of scores: read, written, and a mask of one byte."""

RESIDUAL_PASSES = 2
"""Passes of a norm over the residual stream that it adds to: read and written."""
FEW_ROWS = ((16, 128), (128, 128))
"""Tiles of experts' GEMMs in a decode step: each expert has few tokens, and the next tile is fetched meanwhile."""

NO_TABLES = TableUse()
EXPERT_PASSES = ("router", "dispatch", "combine")
"""Kinds of operators that bring tokens to experts and back."""


class KernelCosts:
    """The seconds of operators and of the optimizer, for a batch of designs that share one plan."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.workload = batch.base.workload
        self.recipe: Recipe = recipe_for(self.workload)
        field: Callable[[str], Numeric] = lambda key: batch[f"compute.{key}"]  # noqa: E731  a short word for a long path
        self._field = field
        self._bandwidth = kernel_bandwidth_bytes_per_s(batch)
        self._bytes_per_s: Numeric = self._bandwidth * field("memory_efficiency")
        self._modelled = np.asanyarray(field("sms")) > 0
        self._units: dict[str, MatrixUnit] = {}
        self._serves = self.workload.task != "training"
        self._moe = is_moe(batch.base.model)
        self._style: Style = "eager" if self.workload.execution == "eager" else "fused"
        self.launches = LaunchCosts(batch, self._cast_kernels)
        self._time_factor: Numeric = field("time_factor")

    # ---------------------------------------------------------------------------------------------- operators

    def seconds(self, use: OperatorUse) -> Numeric:
        """Return the seconds of one run of an operator on the device."""
        if not self._modelled.any():
            return self._roofline(use) * self._time_factor
        seconds = self._kernels(use) * self._straggling
        return (
            seconds if self._modelled.all() else np.where(self._modelled, seconds, self._roofline(use))
        ) * self._time_factor

    def _cast_kernels(self, use: OperatorUse) -> Numeric:
        """Return the kernels that cast an operand; none where they are fused."""
        if not FORMATS[self._format(use)].cast_bytes:
            return 0.0
        return float(self._style == "eager") if self._serves else self.casts.kernels

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
            return self._attention(use, use.kernel.shape)
        if isinstance(use.kernel.shape, Scan):
            return self._scanned(use, use.kernel.shape)
        if self._serves and self._style == "fused":
            return self._served_stream(use)
        seconds = self._streamed(use.kind, use.phase, use.kernel.elements)
        if use.kind == "dispatch" and self._pads:
            return seconds + self._streamed("pad", use.phase, use.kernel.elements)
        return seconds

    @property
    def _pads(self) -> bool:
        """Whether rows of experts are padded to what a grouped GEMM takes, by kernels of their own."""
        by_hand = self.workload.execution == "fused" or self._serves
        return self.workload.grouped_gemm and not by_hand

    def _served_stream(self, use: OperatorUse) -> Numeric:
        """Return the seconds of an operator that a serving engine streams: some are parts of other kernels.

        A norm adds to the residual: two passes more, and no kernel. Queries and keys are rotated at once. Tokens go to
        their experts in the format of these. A decode step routes, and computes between the GEMMs of experts, inside
        their kernels.
        """
        moved, width, stream = memory_traffic(use.kind, use.phase, "fused"), self.recipe.activation, self._stream
        if use.kind == "add":
            moved = replace(moved, kernels=0, passes=RESIDUAL_PASSES)
        if use.kind == "rope" and use.name.startswith("k_"):
            moved = replace(moved, kernels=0)
        if use.kind == "dispatch":
            width = np.minimum(width, self.recipe.weight)
        if self.workload.task == "decode" and (use.kind in EXPERT_PASSES or use.name.startswith("expert_")):
            stream = Stream(self._bytes_per_s, 0.0, CONSTANTS.graph_gap_s)
        return price_kernel(Passes(moved, use.kernel.elements, width), stream)

    def _streamed(self, kind: str, phase: PassPhase, elements: Numeric) -> Numeric:
        moved = memory_traffic(kind, phase, self._style)
        seconds = price_kernel(Passes(moved, elements, self.recipe.activation), self._stream)
        return seconds / self._field("expert_pace") if kind in EXPERT_PASSES else seconds

    # ---------------------------------------------------------------------------------------------------- GEMMs

    def _gemm(self, use: OperatorUse, shape: Gemm) -> Numeric:
        number, exact, shape = self._format(use), shape, self._uneven(use, shape)
        if self._serves:
            return self._served_gemm(use, shape, number)
        unit = _widen_matrix_unit(self._unit(number), use)
        weights = shape.count * shape.n * shape.k
        cast = self._cast_s(use, exact, weights) if FORMATS[number].cast_bytes else 0.0
        if use.phase == "forward":
            return self._gemm_s(shape, unit) + cast
        (by_input, _), (_, by_weight) = shape.backward(), exact.backward()
        added = self._streamed("fan", "backward", exact.count * exact.m * exact.k) if use.kernel.fuses else 0.0
        if use.kernel.frozen:
            return self._gemm_s(by_input, unit) + cast + added
        return self._gemm_s(by_input, unit) + self._gemm_s(by_weight, unit) + cast + added + self._accumulated(weights)

    def _cast_s(self, use: OperatorUse, shape: Gemm, weights: Numeric) -> Numeric:
        """Return the seconds of casts for the GEMMs of a pass; what an earlier GEMM reads too, it has cast."""
        casts, kernel, read = self.casts, use.kernel, shape.count * shape.m * shape.k
        weight = casts.weights_s(weights, use.phase, microbatches(self.batch), self._shards)
        if use.phase == "forward":
            input_s = 0.0 if kernel.fuses else casts.input_s(read, kernel.gathered)
            return input_s + weight + casts.scales_s(1)
        backward_input_s = 0.0 if kernel.fuses or kernel.frozen else casts.backward_input_s(read)
        split = kernel.summed if self.workload.sequence_parallel else 1.0
        gradient_s = casts.gradient_s(shape.count * shape.m * shape.n, split)
        return gradient_s + backward_input_s + weight + casts.scales_s(1 if kernel.frozen else 2)

    def _served_gemm(self, use: OperatorUse, shape: Gemm, number: str) -> Numeric:
        """Return the seconds of a GEMM of a serving engine."""
        unit = _widen_matrix_unit(self._cast_once(self._served(self._unit(number), use, number), number, use), use)
        if self.workload.task == "decode" and use.kernel.weight.startswith("w_expert_"):
            unit = replace(unit, tiles=FEW_ROWS, ramp_s=0.0)
        if self._joins_earlier(use):
            return self._added_s(shape, use.kernel.beside, unit)
        return self._gemm_s(shape, unit)

    def _uneven(self, use: OperatorUse, shape: Gemm) -> Gemm:
        """Return the GEMMs of experts with the rows that tiles compute for them.

        Tokens choose: experts get different numbers of them, and the last tile of each is partly empty, half of one on
        average. Slots of a stated capacity are even.
        """
        model = self.batch.base.model
        experts = model.experts if isinstance(model, Transformer) else None
        even = pads_experts(model, self.workload)
        if self._serves or experts is None or even or not use.kernel.weight.startswith("w_expert_"):
            return shape
        return replace(shape, m=shape.m + EMPTY_ROWS)

    def _gemm_s(self, shape: Gemm, unit: MatrixUnit) -> Numeric:
        """Return the seconds of GEMMs in one kernel, or of as many kernels as there are experts."""
        if self.workload.grouped_gemm:
            return price_kernel(shape, unit)
        return shape.count * price_kernel(replace(shape, count=1), unit)

    def _added_s(self, shape: Gemm, fused_columns: Numeric, unit: MatrixUnit) -> Numeric:
        """Return the seconds that a GEMM adds to one of *fused_columns* columns that a serving engine fuses it with."""
        return self._gemm_s(replace(shape, n=fused_columns + shape.n), unit) - self._gemm_s(
            replace(shape, n=fused_columns), unit
        )

    def _served(self, unit: MatrixUnit, use: OperatorUse, number: str) -> MatrixUnit:
        """Return how a serving engine multiplies: weights in their own format, casts fused into earlier kernels.

        Casts to blocks of 8 bits are kernels of their own.
        """
        weight_width = weight_bytes(self.recipe, use.kernel.weight, moe=self._moe)
        unit = replace(unit, operand_bytes=weight_width)
        if number == "widened" and use.kernel.weight.startswith("w_expert_"):
            unit = replace(unit, flop_per_s=WIDENED_EXPERTS * unit.flop_per_s)
        if self._style == "eager" or number == "fp8_block":
            return unit
        return replace(unit, cast_s=0.0, cast_s_per_element=0.0 if number == "fp8" else unit.cast_s_per_element)

    def _cast_once(self, unit: MatrixUnit, number: str, use: OperatorUse) -> MatrixUnit:
        """Return how a GEMM multiplies whose input an earlier GEMM cast, or ranks cast before they gathered it."""
        if not FORMATS[number].cast_bytes:
            return unit
        if use.kernel.fuses:
            return replace(unit, cast_s=0.0, cast_s_per_element=0.0)
        return replace(unit, cast_s_per_element=unit.cast_s_per_element / use.kernel.gathered)

    @cached_property
    def casts(self) -> CastCosts:
        """What casts take in training."""
        return CastCosts(self.workload, self._field, self._stream)

    @property
    def _shards(self) -> Numeric:
        """Ranks that share a weight where data parallelism shards it: those of an island, if islands have their own."""
        ranks: Numeric = self.batch["workload.dp"] * self.batch["workload.cp"]
        return ranks / islands_of(self.batch) if self.workload.exchanges_apart else ranks

    def _accumulated(self, weights: Numeric) -> Numeric:
        """Return the seconds to add new gradients of *weights* to those of earlier microbatches.

        Eager, they are read and added: three passes. Fused, the GEMM itself adds to the accumulated gradients. Sharded
        gradients are reduced and dropped instead.
        """
        if not reduces_once(self.workload):
            return 0.0
        gradient_bytes, result_bytes = self.recipe.gradient, self.recipe.activation
        moved = 2 * gradient_bytes + (result_bytes if self._style == "eager" else -result_bytes)
        return weights * moved / self._bytes_per_s

    def _format(self, use: OperatorUse) -> str:
        """Return the number format in which an operator multiplies."""
        number = MULTIPLIED.get(self.workload.precision, "bf16")
        if (
            (number == "bf16" and not self._widens)
            or use.block == "head"
            or use.name == "router"
            or is_adapter(use.name)
        ):
            return self._wide
        if not self._serves:
            return SCALED.get(operand_scaling(self.workload), number) if self.casts.narrow else number
        is_wide = weight_bytes(self.recipe, use.kernel.weight, moe=self._moe) == self.recipe.wide
        if is_wide:
            return self._wide
        if number == "fp8":
            return "fp8_block" if self._in_blocks else number
        if self._widens:
            return "widened"
        return "fp4_served" if number == "fp4" else number

    @property
    def _widens(self) -> bool:
        """Whether kernels of a serving engine widen weights of 4 bits to 16, in which the accelerator multiplies."""
        precision = self.workload.precision
        return self._serves and (precision == "int4" or (precision == "fp4" and self._field("fp4") is None))

    @property
    def _in_blocks(self) -> bool:
        """Whether a served checkpoint in 8 bits has a scale for each block; if not said, as those with experts have.

        Others have one scale for a tensor, known beforehand.
        """
        recipe = self.workload.fp8_recipe
        return self._moe if recipe == "auto" else recipe not in PER_TENSOR

    @property
    def _wide(self) -> str:
        """The number format of what no 8- or 4-bit format covers: attention, the head, routers."""
        return "fp32" if self.workload.precision == "fp32" else "bf16"

    def _unit(self, number: str) -> MatrixUnit:
        if number not in self._units:
            unit = matrix_unit(self._field, self._bandwidth, number, result_bytes=self.recipe.activation)
            unit = replace(unit, flop_per_s=unit.flop_per_s * self._steady(number))
            if not self._serves:
                unit = replace(unit, cast_s=0.0, cast_s_per_element=0.0)
            self._units[number] = unit
        return self._units[number]

    def _steady(self, number: str) -> Numeric:
        """Return the share of the rate of one accelerator alone that many keep in long runs.

        Serving, prompts are short beside the decode steps between them, which draw less power.
        """
        narrow = bool(FORMATS[number].cast_bytes)
        sustained = self._field("narrow_steady_efficiency" if narrow else "steady_efficiency")
        return 1.0 if self._serves else np.where(np.asanyarray(self.batch.npus) > 1, sustained, 1.0)

    # ---------------------------------------------------------------------------------------------- attention

    def _attention(self, use: OperatorUse, shape: Attention) -> Numeric:
        """Return the seconds of attention: of the mean layer, where some are fused and some are not."""
        share = unfused_share(self.workload, self.batch.base.model)
        fused = self._fused(use, shape) if share < 1 else 0.0
        return (1 - share) * fused + share * self._unfused(use, shape) if share else fused

    def _fused(self, use: OperatorUse, shape: Attention) -> Numeric:
        rates = self._attention_rates
        if self.workload.task == "decode":
            split = self._style == "fused" or shape.heads == shape.kv_heads
            shape, rates = replace(shape, element_bytes=self.recipe.cache), replace(rates, splits_keys=split)
            seconds = price_kernel(shape, rates, "decode")
            joining = 2 * rates.ramp_s + 2 * CONSTANTS.fused_gap_s  # what parts of the keys gave, in a second kernel
            return seconds + joining if self._style == "fused" else seconds
        shape = replace(shape, element_bytes=self.recipe.activation * use.kernel.wider)
        return price_kernel(shape, rates, use.phase)

    def _unfused(self, use: OperatorUse, shape: Attention) -> Numeric:
        """Return the seconds of unfused attention: two batched GEMMs, with scores written out and read between them."""
        unit = self._unit(self._wide)
        groups = shape.batch * shape.heads
        scores = Gemm(groups, shape.queries, shape.keys, shape.width)
        values = Gemm(groups, shape.queries, shape.value_width, shape.keys)
        gemms = (scores, values) if use.phase == "forward" else (*scores.backward(), *values.backward())
        pairs = groups * shape.queries * shape.keys
        passes = [SCORES[use.phase], *([DROPPED_SCORES] if self.workload.dropout and not self._serves else [])]
        streamed = sum_of(price_kernel(Passes(moved, pairs, self.recipe.activation), self._stream) for moved in passes)
        return sum_of(price_kernel(gemm, unit) for gemm in gemms) + streamed

    def _scanned(self, use: OperatorUse, shape: Scan) -> Numeric:
        if self.workload.task == "decode":
            return price_kernel(shape, self._scan_rates, "decode")
        flop = use.flop if use.phase == "forward" else use.flop / BACKWARD_FLOP
        shape = replace(shape, element_bytes=self.recipe.activation, flop=flop)
        return price_kernel(shape, self._scan_rates, use.phase)

    # ------------------------------------------------------------------------------------------------ rates

    @cached_property
    def _scan_rates(self) -> ScanRates:
        return ScanRates(self._bytes_per_s, np.maximum(self._field("sms"), 1), self._stream.launch_s)

    @cached_property
    def _stream(self) -> Stream:
        if self.workload.task == "decode":
            if self._style == "fused":
                return Stream(self._bytes_per_s, self._field("stream_ramp"), CONSTANTS.fused_gap_s)
            return Stream(self._bytes_per_s, 0.0, CONSTANTS.graph_gap_s)
        gap = CONSTANTS.graph_gap_s if self.launches.replayed else CONSTANTS.queue_gap_s
        return Stream(self._bytes_per_s, self._field("stream_ramp"), gap)

    @cached_property
    def _attention_rates(self) -> AttentionRates:
        rates = AttentionRates(
            peak_flop_per_s=peak_flop_per_s(self._field, self._wide),
            bytes_per_s=self._bytes_per_s,
            efficiency=share_under_power_cap(self._field("attention_efficiency"), self._field),
            backward_efficiency=share_under_power_cap(self._field("attention_backward_efficiency"), self._field),
            ramp_s=self._field("attention_ramp"),
            sms=np.maximum(self._field("sms"), 1),
        )
        return limit_to_generation(rates, self.workload.attention)

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
        return self._peak * share_under_power_cap(gemm_efficiency(self._field), self._field)

    @cached_property
    def _attention_rate(self) -> Numeric:
        return self._peak * share_under_power_cap(self._field("attention_efficiency"), self._field)

    # --------------------------------------------------------------------------------------- beside operators

    def update(self, elements: Numeric, tables: TableUse = NO_TABLES) -> tuple[Numeric, Numeric]:
        """Return the seconds of a fused Adam over *elements* weights and of Adagrad over *tables*, and its bytes."""
        recipe = self.recipe
        bytes_per_parameter = optimizer_bytes_per_parameter(
            recipe.weight, recipe.gradient, recipe.moments / 2, recipe.master
        )
        moved = elements * bytes_per_parameter + tables.update_bytes
        rate: Numeric = kernel_bandwidth_bytes_per_s(self.batch, update=True) * self._field("memory_efficiency")
        fused = optimizer_seconds(moved, 1.0, Stream(rate, 0.0))
        return np.where(self._modelled, fused, moved / rate) * self._time_factor, moved

    def launch_s(self, use: OperatorUse) -> Numeric:
        """Return the seconds of the host to launch one run of an operator."""
        return self.launches.operator_s(use)

    def collective_launch_s(self, phase: str) -> Numeric:
        """Return the seconds of the host to launch one collective."""
        return self.launches.collective_s(phase)


def _widen_matrix_unit(unit: MatrixUnit, use: OperatorUse) -> MatrixUnit:
    """Return how a GEMM multiplies whose tensors state formats of their own: it moves other bytes."""
    if isinstance(use.kernel.wider, int):  # one
        return unit
    operands, result = (width * use.kernel.wider for width in (unit.operand_bytes, unit.result_bytes))
    return replace(unit, operand_bytes=operands, result_bytes=result)


class CastCosts:
    """The seconds of casts of a training step, for a batch of designs that share one plan."""

    def __init__(self, workload: Workload, compute: FieldLookup, stream: Stream) -> None:
        self.narrow = workload.task == "training" and workload.precision in NARROW
        self._workload, self._stream = workload, stream
        self._recipe = operand_scaling(workload)
        self._kernels = cast_kernels(workload)
        self._blocks = has_block_formats(compute)
        self._per_tensor = 1.0 - scaled_in_blocks(workload, compute)

    def _recipe_number(self, number: Callable[[CastTraffic], float]) -> Numeric:
        """Return a number of the recipe; frameworks choose one by the accelerator if none is given."""
        if self._recipe == "auto":
            return where(self._blocks > 0, number(CAST_TRAFFIC["mxfp8"]), number(CAST_TRAFFIC["delayed"]))
        return number(CAST_TRAFFIC[self._recipe])

    @property
    def _turns(self) -> Numeric:
        """1 where the copy along columns is the other one, turned; 0 where it is cast, or not needed."""
        return self._per_tensor * (1.0 - self._blocks)

    @property
    def _row(self) -> Numeric:
        return self._recipe_number(lambda recipe: recipe.row)

    @property
    def _column(self) -> Numeric:
        return self._recipe_number(lambda recipe: recipe.column)

    @property
    def _both(self) -> Numeric:
        """Bytes to make both copies, or the one that serves as both."""
        return where(self._per_tensor * self._blocks > 0, self._row, self._recipe_number(lambda recipe: recipe.both))

    @property
    def kernels(self) -> Numeric:
        """Kernels of a cast that the host launches; none where a framework fuses or launches them by itself."""
        return (
            0.0 if self._kernels == "written" or not self.narrow else self._recipe_number(lambda recipe: recipe.kernels)
        )

    def input_s(self, elements: Numeric, gathered: Numeric) -> Numeric:
        """Return the seconds to cast the input of a GEMM before its forward pass, of which a rank had a part."""
        if not gathers_narrow(self._workload):
            gathered = 1.0
        if self._kernels != "written":
            return self._seconds(self._row * (elements / gathered))
        turned = TURNED_BYTES * self._turns * elements * (1 - 1 / gathered)
        return self._seconds(self._both * (elements / gathered) + turned)

    def backward_input_s(self, elements: Numeric) -> Numeric:
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
        if not self._workload.shards_weights:
            uses = microbatches if self._workload.fp8_weight_cache else 1
            return self._moved_s(self._both * weights) / uses if forward else 0.0
        if self._recipe == "tensorwise":
            shard = self._row * weights / ranks if forward else TURNED_BYTES * self._turns * weights
            return self._moved_s(shard)
        return self._moved_s((self._row if forward else self._column) * weights)

    def scales_s(self, gemms: float) -> Numeric:
        """Return the seconds to bring the scales of both operands of so many GEMMs into their order."""
        kernels = self._recipe_number(lambda recipe: recipe.scale_kernels) * gemms
        return kernels * (self._stream.ramp_bytes / self._stream.bytes_per_s + self._stream.launch_s)

    def _seconds(self, moved: Numeric) -> Numeric:
        kernels = self._recipe_number(lambda recipe: recipe.kernels)
        start = kernels * (self._stream.ramp_bytes / self._stream.bytes_per_s + self._stream.launch_s)
        return self._moved_s(moved) + start

    def _moved_s(self, moved: Numeric) -> Numeric:
        pace: float = getattr(CAST_CONSTANTS.pace, self._kernels)
        return price_kernel(Passes(MemoryTraffic(0, 1, pace), moved, 1.0), Stream(self._stream.bytes_per_s))
