"""The sizes of dimensions and mesh axes for a batch of designs: numbers where they agree, arrays where not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from cosmic.design.batch import Batch
from cosmic.design.model import Model, Transformer
from cosmic.numeric import Numeric
from cosmic.workload.blocks import Block, dimensions
from cosmic.workload.graph import SizeTable
from cosmic.workload.schedule import schedules

SWITCHES = ("task", "weight_sharding", "sequence_parallel", "schedule", "recompute", "precision", "attention")
STRUCTURE = (
    *SWITCHES,
    "recompute_to_end",
    "cp_comm_type",
    "cp_balanced",
    "loss",
    "dropout",
    "execution",
    "reduce_every",
    "dp_overlap",
    "tp_overlap",
    "ep_overlap",
    "offload",
    "placement",
    "strategies",
)
"""The fields of a workload that are switches, not numbers: designs that differ in them have different graphs."""


def structural_paths(batch: Batch) -> list[str]:
    """Return the fields in which designs must agree to share one graph."""
    return [f"workload.{name}" for name in STRUCTURE] + [path for path in batch.columns if path.startswith("model.")]


def sizes_of(batch: Batch) -> SizeTable:
    """Return the size of every dimension of one microbatch and of every mesh axis.

    The batch dimension is that of all data-parallel replicas together, so that splitting it over dp gives each
    its microbatch. dp is two axes, edp and ep, whose product it is: see `cosmic.workload.strategies`.
    """
    return batch.once(sizes_of, lambda: _sizes_of(batch))


def _sizes_of(batch: Batch) -> SizeTable:
    field: Callable[[str], Any] = lambda name: batch[f"workload.{name}"]  # noqa: E731  a short word for a long path
    model = batch.base.model
    sizes: dict[str, Numeric] = dict(dimensions(model))
    dp, ep = field("dp"), field("ep")
    decoding = batch.base.workload.task == "decode"
    sequence = field("sequence")
    sizes |= {"edp": dp / ep, "ep": ep, "cp": field("cp"), "tp": field("tp"), "pp": field("pp"), "dp": dp}
    sizes |= {"batch": field("micro_batch") * dp, "sequence": sequence * 0 + 1 if decoding else sequence}
    sizes |= {"context": sequence, "source": sequence, "samples": field("micro_batch") * dp}
    return SizeTable(sizes)


def visible_share(batch: Batch, block: Block) -> Numeric:
    """Return the share of the keys that a query attends to, on average over positions and layers.

    A causal mask shows position i the i keys up to its own: (s + 1) / 2s of all; a window shows at most w of
    them. When decoding, the one query sees everything, or its window.
    """
    model = batch.base.model
    if not isinstance(model, Transformer) or model.family in ("encoder", "vision") or block.name == "encoder_layer":
        return 1.0
    s: npt.NDArray[np.float64] = np.asarray(batch["workload.sequence"], dtype=float)
    decoding = batch.base.workload.task == "decode"
    everything = np.ones_like(s) if decoding else (s + 1) / (2 * s)
    if not (decoding or batch.base.workload.cp_balanced):
        everything = np.minimum(1.0, everything * (2 - 1 / batch["workload.cp"]))  # the last rank's
    if model.window is None:
        return everything
    w = np.minimum(float(model.window), s)
    windowed = w / s if decoding else (w - w * (w - 1) / (2 * s)) / s
    full = 0.0 if model.full_attention_every is None else 1 / model.full_attention_every
    return full * everything + (1 - full) * windowed


def microbatches(batch: Batch) -> Numeric:
    """Return how many microbatches each replica passes through the pipeline in one step."""
    return batch.once(microbatches, lambda: _microbatches(batch))


def _microbatches(batch: Batch) -> Numeric:
    per_replica = batch["workload.dp"] * batch["workload.micro_batch"]
    count: Numeric = np.maximum(1, -(-batch["workload.global_batch"] // per_replica))
    return count


Stage = Literal["first", "middle", "last"]
"""The stages of a pipeline one of which bounds a step: the others are like one of them, or have less to do."""


def place_of(batch: Batch, stage: Stage, blocks: Sequence[Block]) -> Numeric:
    """Return the number of a stage, from 0 on.

    The middle is the last of the stages that have a layer more than others, if there are several: it has more layers
    of the kind that comes later.
    """
    stages: Numeric = batch["workload.pp"]
    if stage != "middle":
        return stages * 0 if stage == "first" else stages - 1
    more = _layers(blocks) % stages
    place: Numeric = np.where(more > 1, more - 1, stages // 2)
    return place


def blocks_on_stage(batch: Batch, place: Numeric, blocks: Sequence[Block]) -> dict[str, Numeric]:
    """Return how much of each block of a model lies on stage number *place*: layers, the embedding, the head.

    Layers are dealt out in order, to stages or to their virtual stages, evenly; where they do not divide, the first
    ones take one more. A bidirectional schedule has each stage twice, once in each direction: the mean of both.
    """
    stages = batch["workload.pp"]
    found = _one_way(batch, place, blocks)
    if not np.any(schedules[batch.base.workload.schedule].parameter_copies(stages) > 1) or not _trains(batch):
        return found
    mirrored = _one_way(batch, stages - 1 - place, blocks)
    return {name: (count + mirrored[name]) / 2 for name, count in found.items()}


def _one_way(batch: Batch, place: Numeric, blocks: Sequence[Block]) -> dict[str, Numeric]:
    stages = batch["workload.pp"]
    virtual: Numeric = batch["workload.virtual_stages"] if _trains(batch) else 1
    parts = stages * virtual
    found: dict[str, Numeric] = {}
    for block in blocks:
        if block.part != "layers":
            here = place == (0 if block.part == "first" else stages - 1)
            found[block.name] = 1.0 * here
    for chunk in range(int(np.max(virtual))):
        for name, count in layers_of_part(batch.base.model, blocks, place + chunk * stages, parts).items():
            found[name] = found.get(name, 0) + count * (chunk < virtual)
    return {block.name: found[block.name] for block in blocks}


def layers_of_part(model: Model, blocks: Sequence[Block], part: Numeric, parts: Numeric) -> dict[str, Numeric]:
    """Return the layers of each kind in number *part* of the *parts* into which a pipeline cuts a model."""
    total = _layers(blocks)
    start = part * (total // parts) + np.minimum(part, total % parts)
    end = start + total // parts + (part < total % parts)
    before = _first_layers(model, blocks, start)
    return {name: count - before[name] for name, count in _first_layers(model, blocks, end).items()}


def layers_per_part(layers: int, parts: int) -> list[int]:
    """Return the layers of each stage, or of each virtual stage, as `blocks_on_stage` deals them out.

    >>> layers_per_part(61, 4)
    [16, 15, 15, 15]
    """
    return [layers // parts + (part < layers % parts) for part in range(parts)]


def _layers(blocks: Sequence[Block]) -> int:
    return sum(block.repeats for block in blocks if block.part == "layers")


def _first_layers(model: Model, blocks: Sequence[Block], count: Numeric) -> dict[str, Numeric]:
    """Return how many of the first *count* layers of a model are of each kind.

    Kinds follow one another, except where every second, third … layer is an MoE layer.
    """
    found: dict[str, Numeric] = {}
    left = np.asarray(count)
    repeated = [block for block in blocks if block.part == "layers"]
    experts = model.experts if isinstance(model, Transformer) else None
    for place, block in enumerate(repeated):
        mixed = experts is not None and experts.every > 1 and block.name == "layer" and place + 1 < len(repeated)
        if mixed and experts is not None:
            moe = np.minimum(np.maximum(left - experts.dense_first, 0) // experts.every, repeated[place + 1].repeats)
            found[block.name] = np.minimum(left - moe, block.repeats)
        else:
            found[block.name] = np.minimum(left, block.repeats)
        left = left - found[block.name]
    return found


def _trains(batch: Batch) -> bool:
    return batch.base.workload.task == "training"
