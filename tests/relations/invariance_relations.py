"""What must not matter: names, the place of an axis of one rank, who else is in a batch, how many replicas run."""

from __future__ import annotations

from random import Random

import numpy as np

from cosmic.base.errors import SpecError
from cosmic.design.design_batch import batch_of_changes
from cosmic.design.design_point import DesignPoint
from cosmic.design.model_layer import Transformer, is_moe
from cosmic.evaluation import evaluate_batch
from cosmic.simulate.analytic_step import COMPUTE_PARTS
from cosmic.simulate.metrics import BETTER
from cosmic.workload.pipeline_cut import layers_per_part
from tests.relations import hardware_relations, memory_relations, work_relations
from tests.relations.metamorphic import (
    Changes,
    Finding,
    Relation,
    Violation,
    comparison,
    make_violation,
    stays_equal,
)

BATCH = 16
LAST_BITS = 1e-13
RENAMED = 0.1
SAME = tuple(BETTER)
SOURCES = (
    hardware_relations.more_network_bandwidth,
    hardware_relations.less_latency,
    hardware_relations.more_flop,
    hardware_relations.more_memory_bandwidth,
    hardware_relations.quicker_launches,
    work_relations.more_sequences,
    work_relations.longer_sequence,
    work_relations.recomputed,
    work_relations.overlapped("dp_overlap", of_training=False),
    memory_relations.shardings,
    memory_relations.losses,
    memory_relations.wider("tp"),
    memory_relations.wider("pp"),
    memory_relations.wider("dp"),
    memory_relations.more_expert_parallelism,
)
"""What designs of one batch differ in."""


def renamed(_: DesignPoint, rng: Random) -> list[Changes]:
    """Return other names of model and accelerator, for some designs: a model by another name is planned anew."""
    return [] if rng.random() > RENAMED else [{"model.name": "another", "compute.accelerator": "another"}]


def replaced(point: DesignPoint, rng: Random) -> list[Changes]:
    """Return an axis of one rank at another place."""
    workload = point.workload
    unit_axes = [axis for axis in workload.placement if getattr(workload, axis) == 1]
    if not unit_axes:
        return []
    axis = rng.choice(unit_axes)
    other_axes = [other for other in workload.placement if other != axis]
    orders = [(*other_axes[:index], axis, *other_axes[index:]) for index in range(len(other_axes) + 1)]
    return [{"workload.placement": order} for order in orders if order != workload.placement]


def stated(point: DesignPoint, _: Random) -> list[Changes]:
    """Return a pipeline that states no layers, and one that states those that first and last stage have anyway.

    Where virtual stages of one stage have different layers, no number states them.
    """
    workload, model = point.workload, point.model
    if workload.pp == 1 or workload.schedule == "dualpipe" or not isinstance(model, Transformer):
        return []
    virtual = workload.virtual_stages
    parts = layers_per_part(model.layers + model.encoder_layers, workload.pp, virtual)
    if virtual > 1 and len(set(parts)) > 1:
        return []
    ends = {"first": parts[0] * virtual, "last": parts[-1] * virtual}
    unset = {f"workload.{end}_stage_layers": None for end in ends}
    single_ends = [{**unset, f"workload.{end}_stage_layers": layers} for end, layers in ends.items()]
    return [unset, *single_ends, {f"workload.{end}_stage_layers": layers for end, layers in ends.items()}]


def padded(point: DesignPoint, _: Random) -> list[Changes]:
    """Return widths of one less, which tp does not divide and which are padded to what they were.

    The width of a model of experts' dense layers is split by tp, that of its experts by etp.
    """
    model, workload = point.model, point.workload
    if not isinstance(model, Transformer):
        return []
    changes: list[Changes] = [{"workload.uneven_tp": "pad"}]
    if workload.tp > 1:
        changes.append({"workload.uneven_tp": "pad", "model.ffn": model.ffn - 1})
    if model.experts and workload.expert_tensor > 1:
        changes.append({"workload.uneven_tp": "pad", "model.experts.ffn": model.experts.ffn - 1})
    return changes


def replicated(point: DesignPoint, _: Random) -> list[Changes]:
    """Return all accelerators without spread, and twice the replicas on twice of them.

    The tables of a recommender are spread over the replicas: twice of them look up in half the tables each. And where
    there are stages, another one may bound the step when gradients travel farther.
    """
    if not point.network.dims or not isinstance(point.model, Transformer) or point.workload.pp > 1:
        return []
    outer = f"network.dims.{len(point.network.dims) - 1}.npus"
    workload = point.workload
    quiet = {"compute.straggler_slack": 0.0}
    twice = {"workload.dp": 2 * workload.dp, "workload.global_batch": 2 * workload.global_batch}
    if is_moe(point.model):
        twice["workload.etp"] = workload.expert_tensor  # by default it may grow with the ranks
    return [quiet, {**quiet, **twice, outer: 2 * point.fields[outer]}]


def batched(point: DesignPoint, rng: Random) -> list[Violation]:
    """Return where a design of a batch has another answer than alone.

    Powers of arrays and of numbers may differ in their last bit, as they are different functions of NumPy.
    """
    changes = [dict(change) for source in SOURCES for change in source(point, rng)]
    chosen = [{}, *rng.sample(changes, min(BATCH - 1, len(changes)))]
    try:
        batch_outcome = evaluate_batch(batch_of_changes(point, chosen))
    except SpecError:  # a layer refuses a change
        return []
    findings = []
    for row, change in enumerate(chosen):
        single_outcome = evaluate_batch(batch_of_changes(point.changed(change) if change else point, [{}]))
        valid = np.isfinite(batch_outcome.excess[row])
        if valid != np.isfinite(single_outcome.excess[0]):
            finding = Finding(
                f"excess {single_outcome.excess[0]:.6g} alone, {batch_outcome.excess[row]:.6g} in a batch", 1.0
            )
            findings.append(make_violation("batch", finding, point, {}, change))
        if not valid:
            continue
        for name in batch_outcome.columns:
            single_value, batch_value = float(single_outcome.columns[name][0]), float(batch_outcome.columns[name][row])
            if not np.isclose(single_value, batch_value, rtol=LAST_BITS, atol=0, equal_nan=True):
                finding = Finding(
                    f"{name} {single_value!r} alone, {batch_value!r} in a batch",
                    abs(single_value - batch_value) / abs(single_value or 1.0),
                )
                findings.append(make_violation("batch", finding, point, {}, change))
                break
    return findings


INVARIANCE_RELATIONS: tuple[Relation, ...] = (
    comparison("names", "What model and accelerator are called does not matter.", renamed, stays_equal(*SAME)),
    comparison("placement", "The place of an axis of one rank does not matter.", replaced, stays_equal(*SAME)),
    comparison(
        "stated layers",
        "Layers that a stage has anyway may be stated.",
        stated,
        stays_equal(*SAME),
        between=((0, 1), (0, 2), (0, 3)),
    ),
    comparison(
        "padding",
        "What is padded takes what it would if it were as large.",
        padded,
        stays_equal("step_s", "memory_bytes", "hfu"),
    ),
    comparison(
        "replicas",
        "Twice the replicas of twice the batch compute for as long.",
        replicated,
        stays_equal(*(f"breakdown.{part}" for part in (*COMPUTE_PARTS, "recompute"))),
        between=((0, 1),),
    ),
    Relation("batch", "A design has the same answer alone and in a batch.", batched),
)
