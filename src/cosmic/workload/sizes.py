"""The sizes of dimensions and mesh axes for a batch of designs: numbers where they agree, arrays where not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from cosmic.design.batch import Batch
from cosmic.design.model import Transformer
from cosmic.numeric import Numeric
from cosmic.workload.blocks import Block, dimensions
from cosmic.workload.graph import SizeTable

SWITCHES = ("task", "weight_sharding", "sequence_parallel", "schedule", "recompute", "precision", "attention")
STRUCTURE = (
    *SWITCHES,
    "recompute_to_end",
    "cp_comm_type",
    "cp_balanced",
    "loss",
    "dropout",
    "execution",
    "grouped_gemm",
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
    """Return the share of the keys that a query of self-attention sees, on average over positions and layers.

    Where cp ranks take one chunk of the sequence each, it is the last rank's.
    """
    model, workload = batch.base.model, batch.base.workload
    if not isinstance(model, Transformer):
        return 1.0
    s: npt.NDArray[np.float64] = np.asarray(batch["workload.sequence"], dtype=float)
    before = 0.0 if workload.cp_balanced else s - s / batch["workload.cp"]
    return attended_share(model, block.name, s, decoding=workload.task == "decode", before=before)


def attended_share(
    model: Transformer, block: str, sequence: Numeric, *, decoding: bool = False, before: Numeric = 0.0
) -> Numeric:
    """Return the share of the keys that a query of self-attention sees, on average over positions and layers.

    A causal mask shows position i the i keys up to its own, a window w of them at most. Over the positions that follow
    the first *before* of s they see

        ( p(s) - p(before) ) / ( (s - before) s )        p(n) = m (m + 1) / 2 + w (n - m),  m = min(n, w)

    keys on average; w = s without a window. When decoding, the one query sees everything, or its window.
    """
    if model.family in ("encoder", "vision") or block == "encoder_layer":
        return 1.0
    s: npt.NDArray[np.float64] = np.asarray(sequence, dtype=float)

    def seen(window: Numeric) -> Numeric:
        if decoding:
            return np.minimum(window, s) / s
        return (_pairs(s, window) - _pairs(before, window)) / ((s - before) * s)

    if model.window is None:
        return seen(s)
    full = 0.0 if model.full_attention_every is None else 1 / model.full_attention_every
    windowed = (1 - full) * seen(np.minimum(float(model.window), s))
    return windowed + full * seen(s) if full else windowed


def _pairs(queries: Numeric, window: Numeric) -> Numeric:
    """Return the keys that the first *queries* of a sequence see together, at most *window* each.

    >>> float(_pairs(4, 4)), float(_pairs(4, 2))
    (10.0, 7.0)
    """
    alone: Numeric = np.minimum(queries, window)
    return alone * (alone + 1) / 2 + window * (queries - alone)


def microbatches(batch: Batch) -> Numeric:
    """Return how many microbatches each replica passes through the pipeline in one step."""
    return batch.once(microbatches, lambda: _microbatches(batch))


def _microbatches(batch: Batch) -> Numeric:
    per_replica = batch["workload.dp"] * batch["workload.micro_batch"]
    count: Numeric = np.maximum(1, -(-batch["workload.global_batch"] // per_replica))
    return count


Stage = Literal["first", "middle", "last"]
"""Which of a pipeline's stages."""


def block_shares(stage: Stage | None, stages: Numeric, *, head: bool) -> dict[str, Numeric]:
    """Return how much a stage has of the blocks that are not on every one, 1 unless stated.

    None is the fullest stage where all layers are alike: the last, if the model has a *head*.

    >>> block_shares("last", 4, head=True), block_shares("first", 4, head=True), block_shares(None, 1, head=True)
    ({'embedding': 0.0}, {'head': 0.0}, {'embedding': 1.0})
    """
    alone = 1.0 * (stages == 1)
    shares: dict[str, Numeric] = {}
    if stage in ("middle", "last") or (stage is None and head):
        shares["embedding"] = alone
    if stage in ("first", "middle"):
        shares["head"] = alone
    return shares


def layers_on_stage(batch: Batch, stage: Stage, blocks: tuple[Block, ...]) -> dict[str, Numeric]:
    """Return how many layers of each sort lie on a pipeline stage.

    Layers are dealt out in order, ceil(layers / stages) to each stage; the last takes what is left.
    """
    stages = batch["workload.pp"]
    repeated = [block for block in blocks if block.part == "layers"]
    total = sum(block.repeats for block in repeated)
    each = -(-total // stages)
    place = {"first": 0, "middle": stages // 2, "last": stages - 1}[stage]
    start = np.asarray(place * each)
    end = np.minimum(start + each, total)
    found, passed = {}, 0
    for block in repeated:
        overlap = np.minimum(end, passed + block.repeats) - np.maximum(start, passed)
        found[block.name] = np.maximum(overlap, 0)
        passed += block.repeats
    return found
