"""Relations of memory: it falls with sharding and recomputation, adds up, and holds the whole model."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from cosmic.design.design_point import DesignPoint
from cosmic.design.memory_layer import MemoryTier
from cosmic.design.model_layer import Transformer, count_active_parameters, count_parameters, is_moe, served_model
from cosmic.design.program_model import ProgramModel
from cosmic.design.workload_layer import Workload
from cosmic.step import device_memory as step_memory
from cosmic.workload.pipeline_schedule import schedules
from cosmic.workload.precision import recipe_of
from tests.relations.metamorphic import (
    ROUNDING,
    Changes,
    Finding,
    RelatedAnswer,
    Relation,
    Variants,
    Violation,
    answer_in_closed_form,
    at_most,
    comparison,
    make_violation,
    relative_difference,
)

OFFLOADED = ("weights", "optimizer", "activations")
HOST = MemoryTier(name="host", capacity_bytes=1e15, bandwidth_bytes_per_s=64e9)
"""Room for whatever is offloaded."""
REPEATED = 1e-3
"""Small weights that several stages hold: norms, position biases."""
SHARDINGS = ("none", "zero1", "zero2", "zero3")


def no_more_without_buffers(before: RelatedAnswer, after: RelatedAnswer) -> Iterable[Finding]:
    """Yield a finding where a device takes more memory, gathered weights aside.

    ZeRO-3 gathers whole layers to use them: of a model with few of them, the buffers may be more than the shards save.
    """
    bytes_before, bytes_after = (
        before["memory_bytes"],
        after["memory_bytes"] - after["memory.buffers"],
    )
    if bytes_after > bytes_before * (1 + ROUNDING):
        yield Finding(f"{bytes_before:.6g} -> {bytes_after:.6g} bytes, buffers aside", bytes_after / bytes_before - 1)


# ---- variants


def shardings(point: DesignPoint, _: Random) -> list[Changes]:
    """Return every way to shard states over data parallelism, from none on; none where some states are offloaded.

    Under ZeRO-3 the master copy is the weights, and does not leave the device with the optimizer states.
    """
    if point.workload.task != "training" or point.workload.offload:
        return []
    return [{"workload.weight_sharding": sharding} for sharding in SHARDINGS]


def recomputations(point: DesignPoint, _: Random) -> list[Changes]:
    """Return every way to recompute, from none on."""
    if point.workload.task != "training" or point.workload.offload:
        return []  # offloaded activations come back a layer at a time, which recomputation keeps on the device
    return [{"workload.recompute": mode} for mode in ("none", "selective", "alternate", "full")]


def losses(point: DesignPoint, _: Random) -> list[Changes]:
    """Return every way to compute the loss, the least memory first."""
    if point.workload.task != "training":
        return []
    return [{"workload.loss": loss} for loss in ("retained", "eager", "chunked")]


def wider(axis: str) -> Variants:
    """Return the function that doubles an axis of parallelism on twice the accelerators."""

    def variants(point: DesignPoint, _: Random) -> list[Changes]:
        dimensions = len(point.network.dims)
        if not dimensions or not isinstance(point.model, Transformer) or not _halves_on_twice_the_stages(point, axis):
            return []
        outer = f"network.dims.{dimensions - 1}.npus"
        change = {f"workload.{axis}": 2 * getattr(point.workload, axis), outer: 2 * point.fields[outer]}
        if axis == "dp":
            change["workload.global_batch"] = 2 * point.workload.global_batch
        if is_moe(point.model):
            change["workload.etp"] = point.workload.expert_tensor  # by default it may grow with the ranks
        return [change]

    return variants


def states_layers(workload: Workload) -> bool:
    """Return whether a workload states the layers of a stage."""
    return workload.first_stage_layers is not None or workload.last_stage_layers is not None


def _halves_on_twice_the_stages(point: DesignPoint, axis: str) -> bool:
    """Return whether a stage of twice as many has half the layers and no more activations; True for axes but pp.

    Interleaved and zero-bubble schedules keep more of a model's activations in flight on more stages; GPipe on one
    stage accumulates gradients, and keeps one microbatch; where stages do not divide the layers, or state theirs, the
    fullest of more stages may hold more than half.
    """
    if axis != "pp":
        return True
    model, workload = point.model, point.workload
    layers = model.layers + model.encoder_layers if isinstance(model, Transformer) else 1
    plain = (
        workload.task != "training" or workload.schedule == "1f1b" or (workload.schedule == "gpipe" and workload.pp > 1)
    )
    return plain and layers % (2 * workload.pp) == 0 and not states_layers(workload)


def more_expert_parallelism(point: DesignPoint, _: Random) -> list[Changes]:
    """Return the experts over twice the ranks."""
    experts = point.model.experts if isinstance(point.model, Transformer) else None
    return [{"workload.ep": 2 * point.workload.ep}] if experts else []


def offloads(point: DesignPoint, _: Random) -> list[Changes]:
    """Return nothing offloaded, then each kind of state, and all of them.

    On one stage: of several, another may become the fullest.
    """
    if point.workload.pp > 1:
        return []
    kinds = OFFLOADED if point.workload.task == "training" else OFFLOADED[:1]
    chosen: list[tuple[str, ...]] = [(), *((kind,) for kind in kinds), kinds]
    return [{"workload.offload": state, "memory.tiers": (HOST,)} for state in chosen]


def offloading_loses_nothing(before: RelatedAnswer, after: RelatedAnswer) -> Iterable[Finding]:
    """Yield a finding where offloading adds to the device's tensors, or loses bytes on the way."""
    bytes_before, bytes_after = (answer["memory_bytes"] for answer in (before, after))
    offloaded = after["offloaded_bytes"]
    if bytes_after > bytes_before * (1 + ROUNDING):
        yield Finding(
            f"memory_bytes {bytes_before:.6g} -> {bytes_after:.6g}", relative_difference(before, after, "memory_bytes")
        )
    if bytes_after + offloaded < bytes_before * (1 - ROUNDING):
        yield Finding(
            f"{bytes_before:.6g} bytes on the device -> {bytes_after:.6g}, and {offloaded:.6g} elsewhere",
            1 - (bytes_after + offloaded) / bytes_before,
        )


# ---- the whole model


def holds_the_model(point: DesignPoint, _: Random) -> list[Violation]:
    """Return where all devices together hold less than the states of the model's replicas, or more weights.

    Without a footprint of each stage, each device counts as the fullest: it holds at least the mean.
    """
    answer = answer_in_closed_form(point, [{}])[0]
    if answer is None or point.workload.offload:
        return []
    return [make_violation("whole model", finding, point, {}, {}) for finding in _check_capacity(point, answer)]


def _check_capacity(point: DesignPoint, answer: RelatedAnswer) -> Iterable[Finding]:
    needed_bytes = _needed_bytes(point)
    per_stage = getattr(step_memory, "stage_footprints", None)
    if per_stage is None:
        held_bytes, least = answer["memory_bytes"] * point.network.npus, sum(needed_bytes.values())
        yield from _missing("all states", held_bytes, least)
        return
    stages = per_stage(point)
    ranks = point.network.npus / len(stages)
    for name, least in needed_bytes.items():
        held_bytes = ranks * float(sum(stage.parts[name] for stage in stages))
        yield from _missing(name, held_bytes, least)
        if name == "weights" and _exact(point) and held_bytes > (1 + REPEATED) * (least + _tied_bytes(point)):
            yield Finding(
                f"{name}: {held_bytes:.5g} bytes on all devices, {least:.5g} of the model", held_bytes / least - 1
            )


def _exact(point: DesignPoint) -> bool:
    """Return whether weights are of one format, not repeated over tp, and evenly spread, as whole tables are not."""
    return isinstance(point.model, Transformer) and point.workload.tp == 1 and point.workload.task == "training"


def _missing(name: str, held_bytes: float, least: float) -> Iterable[Finding]:
    if held_bytes < least * (1 - 1e-6):
        text = f"{name}: {held_bytes:.5g} bytes on all devices, where the model and its replicas have {least:.5g}"
        yield Finding(text, 1 - held_bytes / least)


def _tied_bytes(point: DesignPoint) -> float:
    """Return the bytes of the embedding that the first and the last stage both hold."""
    model, workload = point.model, point.workload
    if not isinstance(model, Transformer) or not model.tied_embeddings or workload.pp == 1:
        return 0.0
    return 4.0 * model.hidden * model.vocab * workload.dp * workload.cp


def _needed_bytes(point: DesignPoint) -> dict[str, float]:
    """Return the fewest bytes of each kind of state over all devices.

    Weights that expert parallelism divides have fewer replicas; ZeRO-3 has one, the master copy, in each island that
    exchanges parameters now and then. Tables are spread over dp. Serving formats are mixed: the narrowest counts.
    """
    workload = point.workload
    model = point.model if workload.task == "training" else served_model(point.model)
    recipe = recipe_of(workload.precision, workload.task)
    total = float(count_parameters(model))
    replicas = workload.dp * workload.cp
    if isinstance(model, Transformer):
        experts = routed_parameters(model)
        everywhere = (total - experts) * replicas + experts * getattr(
            workload, "expert_replicas", replicas / workload.ep
        )
    elif isinstance(model, ProgramModel):
        everywhere = total * replicas
    else:
        tables = float(sum(model.tables) * model.embedding)
        everywhere = tables + (total - tables) * replicas
    copies = float(schedules[workload.schedule].parameter_copies(workload.pp)) if workload.task == "training" else 1.0
    total, everywhere = copies * total, copies * everywhere
    if workload.exchanges_apart:
        total *= point.network.dims[-1].npus
    if workload.task != "training":
        return {
            "weights": served_bytes(workload.precision) * (total if workload.weight_sharding == "zero3" else everywhere)
        }
    sharding = workload.weight_sharding
    weights = (recipe.master or recipe.weight) * total if sharding == "zero3" else recipe.weight * everywhere
    if not isinstance(model, Transformer):
        return {"weights": weights}  # gradients of a table are those of the rows that were looked up
    return {
        "weights": weights,
        "gradients": min(recipe.gradient, 2.0) * (total if sharding in ("zero2", "zero3") else everywhere),
        "optimizer": min(recipe.moments, 4.0) * (everywhere if sharding == "none" else total),
    }


def served_bytes(precision: str) -> float:
    """Return the bytes of the narrowest weight that a serving precision stores.

    >>> served_bytes("bf16"), served_bytes("int4")
    (2.0, 0.5)
    """
    return {"fp8": 1.0, "fp4": 0.5, "int4": 0.5, "fp32": 4.0}.get(precision, 2.0)


def routed_parameters(model: Transformer) -> float:
    """Return the parameters of all routed experts."""
    if not model.experts or model.experts.count == model.experts.active:
        return 0.0
    idle = count_parameters(model) - count_active_parameters(model)
    return idle * model.experts.count / (model.experts.count - model.experts.active)


EACH_WITH_NEXT = ((0, 1), (1, 2), (2, 3))
"""Which of four variants are compared: each with the one after it."""

MEMORY_RELATIONS: tuple[Relation, ...] = (
    comparison(
        "sharded states",
        "Sharding more states takes less memory.",
        shardings,
        no_more_without_buffers,
        between=EACH_WITH_NEXT,
    ),
    comparison(
        "recompute memory",
        "Recomputing more keeps less: alternate between none and full.",
        recomputations,
        at_most("memory_bytes"),
        between=((0, 1), (0, 2), (1, 3), (2, 3)),
    ),
    comparison(
        "loss memory",
        "A loss in chunks takes no more than an eager one, and that no more than a retained one.",
        losses,
        at_most("memory_bytes"),
        between=((0, 1), (1, 2)),
    ),
    *(
        comparison(
            f"wider {axis}",
            f"Twice the {axis} on twice the accelerators takes no more memory on each.",
            wider(axis),
            at_most("memory_bytes"),
        )
        for axis in ("tp", "cp", "pp", "dp")
    ),
    comparison(
        "wider ep",
        "Experts over twice the ranks take no more memory on each.",
        more_expert_parallelism,
        at_most("memory_bytes"),
    ),
    comparison(
        "offloading",
        "What leaves the device is in the outer tiers.",
        offloads,
        offloading_loses_nothing,
        between=((0, 1), (0, 2), (0, 3), (0, 4)),
    ),
    Relation("whole model", "All devices together hold the model, times its replicas.", holds_the_model),
)
