"""Rows of single blocks on one GPU: two LLaMA layers, or an output head with its loss, forward and backward.

Blocks are those of a tensor-parallel rank: heads of width 128, which may not fill the hidden size. There is no
communication and no optimizer, and gradients are dropped, not accumulated. A prediction is the sum

    t = Σ seconds of an operator × its runs         over the operators of the block, forward and backward

without host time: kernels of these sizes are not launch-bound. The column mode says:

    eager     one kernel per operation
    compiled  fused by torch.compile
    fp8       compiled, GEMMs in fp8, each tensor cast by kernels of the compiler

Eager rows compute rope and loss in fp32, on a copy; the eager table of `cosmic.step.streaming` has 16-bit kernels. So
predictions of eager layers are 2 to 6 % too short, 14 % with small GEMMs (hidden 2048), and those of eager heads 7 to
11 %. Compiled code never writes those copies: layers and heads are then off by 1 to 3 %.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cosmic.accuracy.measured_rows import Fields, Row, Verdict, compare_row
from cosmic.base.errors import require
from cosmic.design.design_batch import batch_of
from cosmic.design.design_point import DesignPoint
from cosmic.design.measured_hardware import build_machine
from cosmic.design.model_layer import Transformer
from cosmic.design.workload_layer import Workload
from cosmic.step.step_profile import profile_step

ACCELERATOR = "h200-sxm-141gb"
"""Accelerator of rows that name none."""
BLOCKS = {"layers": "layer", "head": "head"}
"""Blocks of the model, by the column what."""
MODES: dict[str, dict[str, Any]] = {
    "eager": {"execution": "eager", "precision": "bf16_pure"},
    "compiled": {"execution": "compiled", "precision": "bf16_pure"},
    "fp8": {"execution": "compiled", "precision": "fp8"},
}
LAYERS = 2
HEAD_DIM = 128
MILLI = 1e-3


def compare_rows(rows: Sequence[Row]) -> list[Verdict]:
    """Return the verdict on each row, for both passes together."""
    return [compare_row(row, *_named(row, index), _compare_fields) for index, row in enumerate(rows)]


def _named(row: Row, index: int) -> tuple[str, str]:
    """Return the id and the set of a row."""
    part, mode = row.get("what", ""), row.get("mode", "")
    sizes = "-".join(row.get(name, "") for name in ("hidden", "ffn", "vocab", "batch", "sequence") if row.get(name))
    return row.get("id") or f"{part}-{mode}-{sizes}-{index}", row.get("set") or f"h200-{part} {mode}"


def _compare_fields(fields: Fields) -> Verdict:
    part, mode = fields.text("what"), fields.text("mode")
    require(part in BLOCKS, "what", part, f"must be one of {', '.join(BLOCKS)}")
    require(mode in MODES, "mode", mode, f"must be one of {', '.join(MODES)}")
    step = profile_step(batch_of(block_design(fields)), "first")
    costs = [operator for operator in step.operators if operator.use.block == BLOCKS[part]]
    return Verdict(
        row=fields.row,
        measured_s=fields.seconds("fwd_ms", MILLI) + fields.seconds("bwd_ms", MILLI),
        predicted_s=float(sum(cost.seconds * cost.runs for cost in costs)),
        assumed=tuple(fields.assumed),
    )


def block_design(fields: Fields) -> DesignPoint:
    """Return a design with the block of a row. Its weights are sharded, so that no gradients are accumulated."""
    layers = fields.text("what") == "layers"
    samples, tokens, hidden = (fields.whole(name) for name in ("batch", "sequence", "hidden"))
    heads = fields.whole("heads") if layers else 1
    model = Transformer(
        layers=LAYERS,
        hidden=hidden,
        heads=heads,
        kv_heads=fields.whole("kv_heads") if layers else heads,
        head_dim=HEAD_DIM,
        ffn=fields.whole("ffn") if layers else hidden,
        vocab=1 if layers else fields.whole("vocab"),
        gated=True,
        norm="rmsnorm",
    )
    workload = Workload(
        sequence=tokens,
        global_batch=samples,
        micro_batch=samples,
        sequence_parallel=False,
        weight_sharding="zero3",
        **MODES[fields.text("mode")],
    )
    return build_machine(fields.text("accel", ACCELERATOR), 1).design(model, workload)
