"""Rows of parts of a model on one device: two LLaMA layers, or a head with its loss, forward and backward.

They are as a tensor-parallel rank would hold them: heads of 128, of which there may be fewer than fill the hidden size.
Nothing communicates, no optimizer runs, and gradients are dropped, not added up. A prediction is the sum

    t = Σ seconds of an operator × its runs         over the operators of the part, forward and backward

without the time that the host takes, as kernels of these sizes hide it. What stands in the column mode:

    eager     one kernel for each operation
    compiled  neighbours fused by PyTorch's compiler
    fp8       compiled, products in 8 bits, each tensor cast by kernels of the compiler's

Eager rows turn positions (rope) and take the loss in single precision, on a copy of 32 bits an element; the eager table
of `cosmic.cost.streaming` has kernels in 16 bits. So eager layers are predicted 2 to 6 % too short, 14 % where products
are small (hidden 2048), and eager heads 7 to 11 %. Compiled, those copies are never written: layers and heads are then
off by 1 to 3 %.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cosmic.design.batch import batch_of
from cosmic.design.model import Transformer
from cosmic.design.point import DesignPoint
from cosmic.design.workload import Workload
from cosmic.errors import require
from cosmic.step.profile import profile
from cosmic.validation.hardware import machine
from cosmic.validation.rows import Fields, Row, Verdict, judged

ACCELERATOR = "h200-sxm-141gb"
"""On which rows were measured that do not say."""
PARTS = {"layers": "layer", "head": "head"}
"""What was measured, and the block of a model that it is."""
MODES: dict[str, dict[str, Any]] = {
    "eager": {"execution": "eager", "precision": "bf16_pure"},
    "compiled": {"execution": "compiled", "precision": "bf16_pure"},
    "fp8": {"execution": "compiled", "precision": "fp8"},
}
LAYERS = 2
HEAD_DIM = 128
MILLI = 1e-3


def judge(rows: Sequence[Row]) -> list[Verdict]:
    """Return a verdict on each row: of both passes together."""
    return [judged(row, *_named(row, place), _judge) for place, row in enumerate(rows)]


def _named(row: Row, place: int) -> tuple[str, str]:
    """Return what a row is called, and its set."""
    what, mode = row.get("what", ""), row.get("mode", "")
    sizes = "-".join(row.get(name, "") for name in ("hidden", "ffn", "vocab", "batch", "sequence") if row.get(name))
    return row.get("id") or f"{what}-{mode}-{sizes}-{place}", row.get("set") or f"h200-{what} {mode}"


def _judge(fields: Fields) -> Verdict:
    what, mode = fields.text("what"), fields.text("mode")
    require(what in PARTS, "what", what, f"must be one of {', '.join(PARTS)}")
    require(mode in MODES, "mode", mode, f"must be one of {', '.join(MODES)}")
    step = profile(batch_of(part_design(fields)))
    costs = [each for each in step.operators if each.use.block == PARTS[what]]
    return Verdict(
        row=fields.row,
        measured_s=fields.seconds("fwd_ms", MILLI) + fields.seconds("bwd_ms", MILLI),
        predicted_s=float(sum(each.seconds * each.use.runs for each in costs)),
        assumed=tuple(fields.assumed),
    )


def part_design(fields: Fields) -> DesignPoint:
    """Return a design that has the part of a row; weights count as sharded, so that no gradients are added up."""
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
    return machine(fields.text("accel", ACCELERATOR), 1).design(model, workload)
