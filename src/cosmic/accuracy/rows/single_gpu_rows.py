"""Rows of one GPU: whole training steps, prefill and decode of stacks of layers, and single blocks.

Training steps are pure bf16 (weights, gradients and both Adam moments), without dropout, with an untied head. Columns
that a file may leave out say the rest: `execution` (eager, compiled, or graph: an eager step that a CUDA graph
replays), `precision` (bf16, or 8-bit GEMMs with a scale for each tensor or each row), `head_dim`, and for experts
`experts`, `top_k` and `expert_gemm` (grouped, or a loop over them). Styles:

    gpt    learned positions, layer norm, biases
    llama  rotary positions, RMS norm, a gated feed-forward network
    vit    images in patches, learned positions, 1,000 classes; no class token, but a position for one

Prefill and decode rows have neither embedding nor head: the design has a vocabulary of 1, which takes almost no time,
and no final norm.

Single blocks are two LLaMA layers, or an output head with its loss, forward and backward. They are those of a
tensor-parallel rank: heads of width 128, which may not fill the hidden size. There is no communication and no optimizer,
and gradients are dropped, not accumulated. A prediction is the sum

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

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from cosmic.accuracy.measured_rows import OWN_ACCELERATOR, Fields, MemoryFigure, Row, Verdict, compare_row
from cosmic.base.errors import require
from cosmic.design.design_batch import batch_of
from cosmic.design.design_point import DesignPoint
from cosmic.design.measured_hardware import build_machine
from cosmic.design.model_layer import Experts, Image, Transformer, count_parameters
from cosmic.design.workload_layer import Workload
from cosmic.evaluation import evaluate_batch
from cosmic.simulate.step_evaluation import expected_step_error
from cosmic.step.device_memory import TENSORS, footprint
from cosmic.step.process_memory import used_range
from cosmic.step.step_profile import profile_step

STYLES: dict[str, dict[str, Any]] = {
    "gpt": {"biases": ("qkv", "out", "ffn")},
    "llama": {"gated": True, "norm": "rmsnorm"},
    "vit": {"family": "vision", "biases": ("qkv", "out", "ffn")},
}
IMAGES = {197: (224, 16), 257: (256, 16), 577: (384, 16)}
"""Pixels per side of an image and of a patch, by the number of tokens."""
CLASSES = 1000
MASTER_BYTES = 4
"""Of a master copy, per weight."""
EXECUTIONS: dict[str, dict[str, Any]] = {
    "eager": {"execution": "eager"},
    "compiled": {"execution": "compiled"},
    "graph": {"execution": "eager", "cuda_graph": ("full_iteration",)},
}
LOSSES: dict[str, dict[str, Any]] = {name: {"loss": name} for name in ("auto", "half", "fused")}
PRECISIONS: dict[str, dict[str, Any]] = {
    "bf16": {"precision": "bf16_pure"},
    "fp8_tensor": {"precision": "fp8", "moments": "bf16"},
    "fp8_row": {"precision": "fp8", "moments": "bf16"},
}
MILLI = 1e-3
HOST_BOUND = 1.1
"""A step that takes so many times longer than its kernels waits for the host."""


def compare_rows(rows: Sequence[Row]) -> list[Verdict]:
    """Return the verdict on each step, or on each block of a layer, for both passes together."""
    if "what" in rows[0]:
        return [compare_row(row, *_named_block(row, index), _block) for index, row in enumerate(rows)]
    return [
        compare_row(row, *_named(row, index), _training if "style" in row else _inference)
        for index, row in enumerate(rows)
    ]


def _named(row: Row, index: int) -> tuple[str, str]:
    """Return the id and the set of a row."""
    if "style" in row:
        sizes = "-".join(row.get(name, "") for name in ("style", "layers", "hidden", "seq", "micro_batch"))
        return row.get("id") or f"{sizes}-{index}", row.get("set") or _step_set(row)
    sizes = "-".join(row.get(name, "") for name in ("phase", "layers", "hidden", "batch", "context"))
    small = " small" if "device_ms" in row else ""
    return row.get("id") or f"{sizes}-{index}", row.get("set") or f"h200-{row.get('phase', '')}{small}"


def _step_set(row: Row) -> str:
    """Return the set of a step: of those whose device time was measured too, the ones that wait for the host apart."""
    if "device_ms" not in row:
        return "h200-training"
    try:
        waits = float(row["step_ms"]) > HOST_BOUND * float(row["device_ms"])
    except ValueError:
        waits = False
    kind = "experts" if row.get("experts") else "dense"
    return "h200-steps host-bound" if waits else f"h200-steps {kind} {row.get('execution') or 'eager'}"


def _training(fields: Fields) -> Verdict:
    point = training_design(fields)
    batch = batch_of(point)
    peak = fields.number("peak_bytes")
    seconds, master_bytes = _master_copy(point)
    columns = evaluate_batch(batch).columns
    held = footprint(batch).parts
    tensors = {name: float(held[name]) for name in TENSORS}
    tensors["optimizer"] -= master_bytes
    return Verdict(
        row=fields.row,
        measured_s=fields.seconds("step_ms", MILLI),
        predicted_s=float(columns["step_s"][0]) - seconds,
        expected=expected_step_error(point, columns),
        assumed=tuple(fields.assumed),
        memory=None if peak is None else MemoryFigure("allocated", peak, used_range(point, tensors)),
    )


def _master_copy(point: DesignPoint) -> tuple[float, float]:
    """Return the seconds and bytes of a master copy of the weights, which designs in 8 bits have and these rows do not.

    Both are those of the optimizer of *point* beyond one in pure bf16.
    """
    if point.workload.precision != "fp8":
        return 0.0, 0.0
    weights = count_parameters(point.model)
    pure = replace(point, workload=replace(point.workload, precision="bf16_pure"))
    update_s = [float(profile_step(batch_of(design)).kernels.update(weights)[0]) for design in (point, pure)]
    return update_s[0] - update_s[1], MASTER_BYTES * weights


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
    recompute = fields.text("recompute", "0")
    workload = Workload(
        sequence=tokens,
        global_batch=samples,
        micro_batch=samples,
        set_to_none=False,
        recompute="none" if recompute in ("0", "none") else "full",
        grouped_gemm=fields.text("expert_gemm", "grouped") == "grouped",
        sequence_parallel=False,
        **_keys_of_word(fields, "loss", LOSSES, "auto"),
        **_keys_of_word(fields, "execution", EXECUTIONS, "eager"),
        **_keys_of_word(fields, "precision", PRECISIONS, "bf16"),
    )
    return _on_one_gpu(fields, model, workload)


def _keys_of_word(fields: Fields, name: str, choices: Mapping[str, dict[str, Any]], default: str) -> dict[str, Any]:
    """Return the keys of a workload that a word of a row stands for."""
    word = fields.text(name, default)
    require(word in choices, name, word, f"must be one of {', '.join(choices)}")
    return choices[word]


def _image(tokens: int) -> Image:
    require(tokens in IMAGES, "seq", tokens, f"an image has {' or '.join(map(str, IMAGES))} tokens")
    size, patch = IMAGES[tokens]
    return Image(size=size, patch=patch, class_token=False)


def _inference(fields: Fields) -> Verdict:
    point = inference_design(fields)
    columns = evaluate_batch(batch_of(point)).columns
    return Verdict(
        row=fields.row,
        measured_s=fields.seconds("ms", MILLI),
        predicted_s=float(columns["step_s"][0]),
        expected=expected_step_error(point, columns),
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
    return _on_one_gpu(fields, model, workload)


def _model(fields: Fields, **details: Any) -> Transformer:
    sizes: dict[str, Any] = {name: fields.whole(name) for name in ("layers", "hidden", "heads", "kv_heads", "ffn")}
    if fields.text("head_dim"):
        sizes["head_dim"] = fields.whole("head_dim")
    if fields.text("experts"):
        sizes["experts"] = Experts(count=fields.whole("experts"), active=fields.whole("top_k"), ffn=sizes["ffn"])
    return Transformer(**sizes, **details)


def _on_one_gpu(fields: Fields, model: Transformer, workload: Workload) -> DesignPoint:
    return build_machine(fields.text("accel", OWN_ACCELERATOR), 1).design(model, workload)


# ---- single blocks

BLOCKS = {"layers": "layer", "head": "head"}
"""Blocks of the model, by the column what."""
MODES: dict[str, dict[str, Any]] = {
    "eager": {"execution": "eager", "precision": "bf16_pure"},
    "compiled": {"execution": "compiled", "precision": "bf16_pure"},
    "fp8": {"execution": "compiled", "precision": "fp8"},
}
LAYERS = 2
HEAD_DIM = 128


def _named_block(row: Row, index: int) -> tuple[str, str]:
    """Return the id and the set of a row."""
    part, mode = row.get("what", ""), row.get("mode", "")
    sizes = "-".join(row.get(name, "") for name in ("hidden", "ffn", "vocab", "batch", "sequence") if row.get(name))
    return row.get("id") or f"{part}-{mode}-{sizes}-{index}", row.get("set") or f"h200-{part} {mode}"


def _block(fields: Fields) -> Verdict:
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
    return build_machine(fields.text("accel", OWN_ACCELERATOR), 1).design(model, workload)
