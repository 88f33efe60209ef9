"""Which pipeline stage is the fullest, and the activations that it keeps in flight.

Stages differ in their layers (61 do not divide by 16, the first three have no experts), in the embedding and the head,
and in the microbatches that wait there for their backward pass. `candidates` names the few stages one of which is the
fullest; `in_flight_bytes` weighs each virtual stage by the microbatches that it has in flight.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from cosmic.design.batch import Batch
from cosmic.design.model import Transformer
from cosmic.numeric import Numeric, elementwise, largest_whole, sum_of, where
from cosmic.workload.blocks import Block
from cosmic.workload.cut import Cut
from cosmic.workload.schedule import schedules
from cosmic.workload.sizes import cut_of, heaviest_place, layers_by_part, microbatches

EARLY = 16
"""Stages among which each kind of layer of a pattern has its turn: Jamba's attend once in eight layers."""


def candidates(batch: Batch, blocks: Sequence[Block]) -> list[Numeric]:
    """Return the numbers of the stages one of which is the fullest.

    Stages with the same layers follow each other, and of them the first has most microbatches in flight. So it is the
    first of such a run, or the last stage, which has the head. Kinds of layers end in the middle of a stage, which is
    a run of its own. A bidirectional schedule adds up a stage and its mirror image, so that either end of a run counts.
    """
    stages: Numeric = batch["workload.pp"]
    if np.all(stages == 1):
        return [0]
    starts = _starts(batch, blocks)
    if bidirectional(batch):
        starts += [each - 1 for each in starts[1:]] + [stages // 2 - 1]
        starts += [stages - 1 - each for each in starts]
    inside = [np.clip(each, 0, stages - 1) for each in starts]
    return _distinct([*inside, stages - 1])


def bidirectional(batch: Batch) -> bool:
    """Return whether microbatches enter at both ends, so that a stage holds two parts of the model."""
    trains = batch.base.workload.task == "training"
    return trains and bool(np.any(schedules[batch.base.workload.schedule].parameter_copies(batch["workload.pp"]) > 1))


def _starts(batch: Batch, blocks: Sequence[Block]) -> list[Numeric]:
    """Return the first stage of each run of stages with the same layers.

    Where all layers are alike, earlier ones of the stages that share them have as many as later ones, or one more: the
    first of them is enough.
    """
    layers = [block for block in blocks if block.part == "layers"]
    cut = cut_of(batch, blocks)
    model = batch.base.model
    if isinstance(model, Transformer) and model.pattern:
        return _starts_of_pattern(cut, model)
    each, more, alone = cut.rest // cut.parts, cut.rest % cut.parts, cut.alone
    starts = [cut.stages * 0]
    if cut.stated:
        starts.append(cut.stage_of(0))
    if np.any(alone):
        starts.append(cut.stage_of(alone))  # the embedding has a virtual stage to itself
    if len(layers) == 1 and not bidirectional(batch):
        return starts
    starts.append(cut.stage_of(more + alone))
    for end in _ends(batch, layers):
        shared = cut.shared_before(end)
        short = more + (shared - more * (each + 1)) // np.maximum(each, 1)
        within = cut.stage_of(alone + np.where(shared < more * (each + 1), shared // (each + 1), short))
        starts += [within, within + 1]
    experts = batch.base.model.experts if isinstance(batch.base.model, Transformer) else None
    apart = experts.every if experts else 1  # where kinds take turns, so do the layers of stages
    return [start + offset for start in starts for offset in range(apart)]


def _starts_of_pattern(cut: Cut, model: Transformer) -> list[Numeric]:
    """Return the stages one of which is the fullest where a pattern says which kind each layer is.

    Early ones have most microbatches in flight, and kinds take turns among them; another one may have more parameters.
    """
    early = [cut.stages * 0 + place for place in range(min(largest_whole(cut.stages), EARLY))]
    return [*early, heaviest_place(cut, model, active=False), heaviest_place(cut, model, active=True)]


def _ends(batch: Batch, layers: Sequence[Block]) -> list[int]:
    """Return the numbers of the layers before which a kind of layers ends."""
    experts = batch.base.model.experts if isinstance(batch.base.model, Transformer) else None
    found = [sum(block.repeats for block in layers[: place + 1]) for place in range(len(layers) - 1)]
    return [*found, experts.dense_first] if experts and experts.every > 1 else found


def _distinct(places: Sequence[Numeric]) -> list[Numeric]:
    found: dict[bytes, Numeric] = {}
    for place in places:
        found.setdefault(np.asanyarray(place).astype(np.int64).tobytes(), place)
    return list(found.values())


def in_flight_bytes(
    batch: Batch,
    place: Numeric,
    blocks: Sequence[Block],
    kept: Callable[[dict[str, Numeric], dict[str, Numeric]], Numeric],
) -> Numeric:
    """Return the activation bytes of a training step that stage number *place* keeps at one time.

    *kept* gives the bytes of one microbatch from the layers of each kind in a virtual stage, and from those of them
    that recompute.
    """
    workload, stages = batch.base.workload, batch["workload.pp"]
    most = workload.recompute_num_layers

    def parts_of(which: Numeric) -> list[Numeric]:
        whole = layers_by_part(batch, which, blocks)
        first = whole if most is None else layers_by_part(batch, which, blocks, most)
        return [kept(layers, again) for layers, again in zip(whole, first, strict=True)]

    parts, count, virtual = parts_of(place), microbatches(batch), batch["workload.virtual_stages"]
    if bidirectional(batch):
        other = parts_of(stages - 1 - place)
        near, far = stages - place, np.where(stages > 1, place + 1, 0)
        both: Numeric = near * sum_of(parts) + far * sum_of(other)
        return both
    if len(parts) == 1:
        in_flight: Numeric = schedules[workload.schedule].in_flight(place, stages, count, virtual)
        return in_flight * sum_of(parts)
    return interleaved_bytes(place, stages, count, virtual, *parts)


@elementwise
def interleaved_bytes(place: Numeric, stages: Numeric, count: Numeric, virtual: Numeric, *parts: Numeric) -> Numeric:
    """Return the most bytes in flight where the virtual stages of a stage have different layers: *parts* of bytes.

    Forwards run K = 2 (p - s - 1) + (v - 1) p + 1 ahead; after j backwards, virtual stage c has

        n_c(j) = F_c(K + j) - F_{v-1-c}(j)        F_c(k) = p floor(k / p v) + clip(k mod p v - c p, 0, p)

    microbatches in flight. That is linear between the j at which a round of p forwards or of p backwards ends, so that
    the most is at one of these. See `cosmic.workload.schedules.interleaved`.
    """
    per_stage = 1 + (virtual > 1)
    ends = count * virtual
    ahead = np.where(stages > 1, per_stage * (stages - place - 1) + (virtual - 1) * stages + 1, virtual)
    ahead = np.minimum(ahead, ends)

    whole = stages * virtual

    def begun(chunk: Numeric, rounds: Numeric, within: Numeric) -> Numeric:
        return rounds * stages + np.clip(within - chunk * stages, 0, stages)

    most: Numeric = 0.0
    for turn in range(2 * largest_whole(virtual) + 2):
        done = (turn // 2) * stages - (turn % 2) * (ahead % stages)
        done = np.clip(done, 0, ends - ahead)
        forward, backward = ((turns // whole, turns % whole) for turns in (ahead + done, done))
        held: Numeric = 0.0
        for chunk, size in enumerate(parts):
            in_flight = begun(chunk, *forward) - begun(virtual - 1 - chunk, *backward)
            held = held + (chunk < virtual) * size * in_flight
        most = where(turn < 2 * virtual + 2, np.maximum(most, held), most)  # others have had all their turns
    return most
