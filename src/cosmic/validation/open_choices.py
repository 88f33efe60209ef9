"""What a published run leaves open: the fastest choice that fits in memory, and how far the near-best spread.

Where a row leaves axes, microbatch or virtual stages open, they are searched with the switches of its framework. Where
a mapping does not fit as it is read, by more than the error of the memory model, the run cannot have been that. It is
read as the fastest of these that fits, and skipped if none does:

    fully sharded weights, if there is no pipeline: some sources do not tell them from sharded optimizer states
    activations offloaded, where a CPU shares the accelerator's package or the framework does it, without a pipeline
    recomputation, selective or full, if the row says nothing of it; of other modules, if it says selective
    other microbatches and virtual stages, in a pipeline
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from cosmic.design.batch import Batch, batch_of
from cosmic.design.point import DesignPoint
from cosmic.design.workload import Recompute, RecomputeModule
from cosmic.errors import SpecError, require
from cosmic.mapping.grid import grid_of
from cosmic.mapping.searching import Found, runs_and_share, search, step_of
from cosmic.validation.hardware import SUPERCHIPS, host_memory
from cosmic.validation.row_mappings import Stated
from cosmic.validation.rows import GIB, Fields
from cosmic.workload.checks import invalid_reasons

TOLERANCE = 0.10
"""By how much more than its memory a run may seem to need: twice the mean error of the memory model."""
NEAR_BEST = 1.10
"""Choices that take up to this much longer than the fastest are as likely as that."""
MOST_ROWS = 60
"""Choices of the range that are looked at."""
SWITCHES = ("tp_overlap", "ep_overlap", "cp_comm_type", "placement", "etp")
MODES: tuple[tuple[Recompute, tuple[RecomputeModule, ...]], ...] = (
    ("selective", ("core_attn",)),
    ("selective", ("layernorm", "moe_act")),
    ("selective", ("core_attn", "layernorm", "mlp", "moe")),
    ("alternate", ("core_attn",)),
    ("full", ("core_attn",)),
)
"""What may be recomputed where a row does not say, or says no more than that it is selective."""
OFFLOADED_STEPS = 8
"""Parts of its layers in which a model's activations are offloaded."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A design with all choices made, and the spread of its step over what is as likely, relative to its own."""

    point: DesignPoint
    most: float = 1.0
    batch: Batch | None = field(default=None, compare=False, repr=False)
    """The design as a batch, with what was found of its memory."""


def settle(
    fields: Fields, point: DesignPoint, stated: Stated, *, recompute_stated: bool, offloads: bool = False
) -> Choice:
    """Return the design that a row most likely describes; *point* has every choice that is stated.

    *offloads* says whether its framework may keep activations in the memory of the host.
    """
    held = dict(stated.held)
    if recompute_stated or point.workload.recompute != "none":
        held |= {"recompute": point.workload.recompute, "recompute_modules": point.workload.recompute_modules}
    freed = {key: value for key, value in held.items() if not key.startswith("recompute")}
    if stated.open:
        for known in (held, freed):  # who states no recomputation may still free what is cheap to make again
            found = _searched(fields, point, known, sorted(stated.open))
            if found is not None:
                return found
        require("tp" not in stated.open, "tp", fields.text("tp"), "the mapping is not published, and none fits")
        point = _plain(point)
    if invalid_reasons(point):
        return Choice(point)
    batch = batch_of(point)
    share = _share(batch)
    if share <= 1 + TOLERANCE:
        if share > 1:
            fields.assumed.append(f"memory: needs {_needs(point)}, within the error of the memory model")
        return Choice(point, batch=batch)
    fitting = [each for each in _readings(point, held, recompute_stated, offloads) if _runs(each[0])]
    if not fitting and recompute_stated:
        fitting = [each for each in _readings(point, freed, False, offloads) if _runs(each[0])]
    if not fitting:
        raise SpecError("memory", _needs(point), "does not fit, however it is read")
    seconds = [float(step_of(batch_of(relieved))["seconds"][0]) for relieved, _ in fitting]
    relieved, note = fitting[seconds.index(min(seconds))]
    fields.assumed.append(f"{note} assumed, as it needs {_needs(point)} otherwise")
    return Choice(relieved)


def _runs(point: DesignPoint) -> bool:
    return not invalid_reasons(point) and needed_share(point) <= 1


def needed_share(point: DesignPoint) -> float:
    """Return the share of an accelerator's memory that a design needs."""
    return _share(batch_of(point))


def _share(batch: Batch) -> float:
    return float(np.max(runs_and_share(batch)[1]))


def _needs(point: DesignPoint) -> str:
    there = point.memory.capacity_bytes / GIB
    return f"{needed_share(point) * there:.4g} of {there:.4g} GiB"


# ------------------------------------------------------------------------------------------------- readings


def _readings(
    point: DesignPoint, held: dict[str, object], recompute_stated: bool, offloads: bool
) -> Iterator[tuple[DesignPoint, str]]:
    """Yield other ways in which a design that does not fit may be read, with what each assumes."""
    workload = point.workload
    starts = [(point, "")]
    if workload.pp == 1 and workload.dp * workload.cp > 1 and workload.weight_sharding != "zero3":
        sharded = replace(point, workload=replace(workload, weight_sharding="zero3"))
        starts.append((sharded, "zero_stage: 3, "))
        yield sharded, "zero_stage: 3"
    for start, note in starts:
        if (offloads or point.compute.accelerator in SUPERCHIPS) and workload.pp == 1 and not workload.offload:
            yield from ((each, f"{note}offload: {layers} layers") for each, layers in _offloaded(start))
        if workload.recompute in (("selective",) if recompute_stated else ("none", "selective")):
            for mode, modules in MODES:
                again = replace(start.workload, recompute=mode, recompute_modules=modules)
                kinds = f" {' '.join(modules)}" if mode == "selective" else ""
                yield replace(start, workload=again), f"{note}recompute: {mode}{kinds}"
    if workload.pp > 1 and (regrouped := _regrouped(point, held)):
        changed = regrouped.workload
        yield regrouped, f"mbs: {changed.micro_batch}, vpp: {changed.virtual_stages}, recompute: {changed.recompute}"


def _offloaded(point: DesignPoint) -> Iterator[tuple[DesignPoint, int]]:
    """Yield a design with the activations of as many layers in the memory of its host as it takes to fit."""
    layers = int(getattr(point.model, "layers", 1))
    memory = replace(point.memory, tiers=(host_memory(point.compute.accelerator),))
    for share in range(1, OFFLOADED_STEPS + 1):
        moved = -(-layers * share // OFFLOADED_STEPS)
        workload = replace(point.workload, offload=("activations",), offload_num_layers=moved)
        relieved = replace(point, workload=workload, memory=memory)
        if _runs(relieved):
            yield relieved, moved
            return


def _regrouped(point: DesignPoint, held: dict[str, object]) -> DesignPoint | None:
    """Return a pipeline with the fastest microbatches and virtual stages that fit, in place of those stated."""
    freed = {key: value for key, value in held.items() if key not in ("micro_batch", "virtual_stages")}
    found = search(point, _with_switches(point, {**freed, "schedule": "interleaved"}))
    return _applied(point, found) if found is not None and found.fits else None


def _plain(point: DesignPoint) -> DesignPoint:
    """Return a design with single sequences, where no search found any that fits."""
    return replace(point, workload=replace(point.workload, micro_batch=1))


# ------------------------------------------------------------------------------------------------ searching


def _searched(fields: Fields, point: DesignPoint, held: dict[str, object], free: list[str]) -> Choice | None:
    """Return the fastest choice that fits of what is *free*; None if there is none."""
    known = _with_switches(point, held)
    found = search(point, known)
    if found is None or not found.fits:
        return None
    best = _applied(point, found)
    names = [name for name in (*free, "recompute") if name != "recompute" or best.workload.recompute != "none"]
    values = ", ".join(f"{name} {getattr(best.workload, name)}" for name in names)
    fields.assumed.append(f"{values} assumed: the fastest that fits of {found.searched} choices")
    return Choice(best, _spread(best, known))


def _with_switches(point: DesignPoint, held: dict[str, object]) -> dict[str, object]:
    """Return what a search must keep: what is held, and the switches of the framework."""
    switches = {name: getattr(point.workload, name) for name in SWITCHES}
    return {name: value for name, value in switches.items() if value is not None} | held


def _applied(point: DesignPoint, found: Found) -> DesignPoint:
    chosen = {key: value for key, value in found.mapping.items() if hasattr(point.workload, key)}
    return replace(point, workload=replace(point.workload, **chosen))


def _spread(best: DesignPoint, known: dict[str, object]) -> float:
    """Return the longest step of the near-best choices, relative to the best one."""
    grid = grid_of(best, known)
    if grid is None:
        return 1.0
    rows = grid.coarse(MOST_ROWS)
    batch = Batch(best, {f"workload.{name}": column[rows] for name, column in grid.columns.items()})
    runs, share = runs_and_share(batch)
    seconds = step_of(batch)["seconds"]
    own = float(step_of(batch_of(best))["seconds"][0])
    near = seconds[runs & (share <= 1) & (seconds <= NEAR_BEST * own)]
    return float(near.max() / own) if len(near) else 1.0
