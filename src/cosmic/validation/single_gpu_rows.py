"""Rows of one GPU: whole training steps, and prefill and decode of stacks of layers.

Training steps are pure bf16 (weights, gradients and both Adam moments), eager, without dropout, with an untied head.
Styles:

    gpt    learned positions, layer norm, biases
    llama  rotary positions, RMS norm, a gated feed-forward network
    vit    images in patches, learned positions, 1,000 classes; no class token, but a position for one

Prefill and decode rows have neither embedding nor head: the design has a vocabulary of 1, which takes almost no time,
and no final norm.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cosmic.design.batch import batch_of
from cosmic.design.model import Image, Transformer
from cosmic.design.point import DesignPoint
from cosmic.design.workload import Workload
from cosmic.errors import require
from cosmic.evaluation import evaluate_batch
from cosmic.step.memory import footprint
from cosmic.validation.hardware import machine
from cosmic.validation.rows import Fields, Row, Verdict, judged

ACCELERATOR = "h200-sxm-141gb"
"""Accelerator of rows that name none."""
STYLES: dict[str, dict[str, Any]] = {
    "gpt": {"biases": ("qkv", "out", "ffn")},
    "llama": {"gated": True, "norm": "rmsnorm"},
    "vit": {"family": "vision", "biases": ("qkv", "out", "ffn")},
}
IMAGES = {197: (224, 16), 257: (256, 16), 577: (384, 16)}
"""Pixels per side of an image and of a patch, by the number of tokens."""
CLASSES = 1000
MILLI = 1e-3


def judge(rows: Sequence[Row]) -> list[Verdict]:
    """Return the verdict on each step."""
    return [
        judged(row, *_named(row, place), _training if "style" in row else _inference) for place, row in enumerate(rows)
    ]


def _named(row: Row, place: int) -> tuple[str, str]:
    """Return the id and the set of a row."""
    if "style" in row:
        sizes = "-".join(row.get(name, "") for name in ("style", "layers", "hidden", "seq", "micro_batch"))
        return row.get("id") or f"{sizes}-{place}", row.get("set") or "h200-training"
    sizes = "-".join(row.get(name, "") for name in ("phase", "layers", "hidden", "batch", "context"))
    return row.get("id") or f"{sizes}-{place}", row.get("set") or f"h200-{row.get('phase', '')}"


def _training(fields: Fields) -> Verdict:
    point = training_design(fields)
    batch = batch_of(point)
    peak = fields.number("peak_bytes")
    return Verdict(
        row=fields.row,
        measured_s=fields.seconds("step_ms", MILLI),
        predicted_s=float(evaluate_batch(batch).columns["step_s"][0]),
        assumed=tuple(fields.assumed),
        peak_bytes_measured=peak,
        peak_bytes_predicted=float(footprint(batch).peak) if peak else None,
    )


def training_design(fields: Fields) -> DesignPoint:
    """Return the design of a row of training steps."""
    style, tokens = fields.text("style"), fields.whole("seq")
    require(style in STYLES, "style", style, f"must be one of {', '.join(STYLES)}")
    vision = style == "vit"
    model = _model(
        fields,
        **STYLES[style],
        vocab=CLASSES if vision else fields.whole("vocab"),
        positions=0 if style == "llama" else tokens,
        image=_image(tokens) if vision else None,
    )
    samples = fields.whole("micro_batch")
    again = fields.text("recompute", "0")
    workload = Workload(
        sequence=tokens,
        global_batch=samples,
        micro_batch=samples,
        precision="bf16_pure",
        execution="eager",
        recompute="none" if again in ("0", "none") else "full",
        sequence_parallel=False,
    )
    return _on_one(fields, model, workload)


def _image(tokens: int) -> Image:
    require(tokens in IMAGES, "seq", tokens, f"an image has {' or '.join(map(str, IMAGES))} tokens")
    size, patch = IMAGES[tokens]
    return Image(size=size, patch=patch, class_token=False)


def _inference(fields: Fields) -> Verdict:
    found = evaluate_batch(batch_of(inference_design(fields))).columns
    return Verdict(
        row=fields.row,
        measured_s=fields.seconds("ms", MILLI),
        predicted_s=float(found["step_s"][0]),
        assumed=tuple(fields.assumed),
    )


def inference_design(fields: Fields) -> DesignPoint:
    """Return the design of a row of prefill or decode."""
    phase, samples = fields.text("phase"), fields.whole("batch")
    require(phase in ("prefill", "decode"), "phase", phase, "must be prefill or decode")
    workload = Workload(
        task="prefill" if phase == "prefill" else "decode",
        sequence=fields.whole("context"),
        global_batch=samples,
        micro_batch=samples,
        sequence_parallel=False,
        execution="eager",
    )
    model = _model(fields, gated=True, norm="rmsnorm", vocab=1, final_norm=False)
    return _on_one(fields, model, workload)


def _model(fields: Fields, **details: Any) -> Transformer:
    sizes: dict[str, Any] = {name: fields.whole(name) for name in ("layers", "hidden", "heads", "kv_heads", "ffn")}
    return Transformer(**sizes, **details)


def _on_one(fields: Fields, model: Transformer, workload: Workload) -> DesignPoint:
    return machine(fields.text("accel", ACCELERATOR), 1).design(model, workload)
