"""The mapping of a published run: what its row states, and what it leaves open.

Of the axes, a row that states some means the rest to be 1, or what the accelerators leave; one that states none leaves
them open, unless its framework shards data parallelism alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from math import gcd, prod
from typing import Any

from cosmic.design.model import Transformer
from cosmic.errors import require
from cosmic.validation.row_settings import NO, YES
from cosmic.validation.rows import Fields
from cosmic.validation.software import Software

SHARDING = {"0": "none", "1": "zero1", "2": "zero2", "3": "zero3"}
SCHEDULES = (
    ("dual", "dualpipe"),
    ("zero", "zero_bubble"),
    ("zb", "zero_bubble"),
    ("gpipe", "gpipe"),
    ("afab", "gpipe"),
    ("all-forward", "gpipe"),
)
"""Schedules by the start of their names in rows."""
SPLIT = ("tp", "pp", "cp")
ACCUMULATED = re.compile(r"(?:grad\w*[ _-]*)?accum\w*(?:[ _-]steps)?\s*[=:]?\s*(\d+(?:\.\d+)?)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Stated:
    """The mapping of a row."""

    held: dict[str, Any] = field(default_factory=dict)
    """Fields of the workload that the row states, or that follow."""
    open: frozenset[str] = frozenset()
    """Fields that it leaves open."""


def mesh_of(fields: Fields, software: Software, count: int) -> dict[str, int]:
    """Return the degrees of parallelism that a row states; empty if it leaves them open."""
    given = {axis: int(value) for axis in (*SPLIT, "dp") if (value := _whole(fields, axis))}
    if not given and count > 1 and not _replicates(fields, software, count):
        return {}
    if "dp" in given:
        given = _completed(given, count)
    split = {axis: given.get(axis) or fields.whole(axis, 1) for axis in SPLIT}
    ways = prod(split.values())
    require(count % ways == 0, "n_accel", count, f"does not divide by tp × pp × cp = {ways}")
    dp = count // ways
    if given.get("dp", dp) != dp:
        fields.assumed.append(f"dp: {dp} for {given['dp']}, what the other axes leave of {count}")
    elif "dp" not in given:
        fields.assume("dp", dp, "what the other axes leave")
    return {**split, "dp": dp}


def _whole(fields: Fields, name: str) -> int | None:
    return fields.whole(name) if fields.text(name) else None


def _completed(given: dict[str, int], count: int) -> dict[str, int]:
    """Return axes with the one of tp and pp that is not given, where the others leave it something."""
    missing = [axis for axis in ("tp", "pp") if axis not in given]
    rest, others = count, prod(given.values())
    if len(missing) == 1 and others and rest % others == 0:
        return {**given, missing[0]: rest // others}
    return given


def _replicates(fields: Fields, software: Software, count: int) -> bool:
    """Return whether a run of no stated mapping is data parallel: its framework shards, and its batch is enough."""
    batch = fields.number("gbs")
    sharded = software.sharding == "zero3" or fields.text("zero_stage").startswith("3")
    return (sharded or "fsdp" in fields.text("schedule").lower()) and (batch is None or batch >= count)


def accumulations(fields: Fields) -> int | None:
    """Return the microbatches that each replica accumulates, if the notes say.

    >>> accumulations(Fields({"notes": "grad-accum 24.0; runs 3"})), accumulations(Fields({}))
    (24, None)
    """
    found = ACCUMULATED.search(fields.text("notes"))
    return max(1, int(float(found[1]))) if found else None


def stated_of(fields: Fields, software: Software, model: Transformer, mesh: dict[str, int], batch: int) -> Stated:
    """Return the mapping that a row states; *mesh* is empty where it leaves that open."""
    held: dict[str, Any] = {**mesh, **_experts(fields, model, mesh)}
    free = set() if mesh else {"tp", "pp", "cp"}
    if model.experts is not None and "ep" not in held:
        free.add("ep")
    trips = accumulations(fields)
    if micro := _whole(fields, "mbs"):
        held["micro_batch"] = micro
    elif mesh and trips and batch % (mesh["dp"] * trips) == 0:
        held["micro_batch"] = fields.assume("mbs", batch // (mesh["dp"] * trips), f"as {trips} are accumulated")
    elif mesh and batch == mesh["dp"]:
        held["micro_batch"] = fields.assume("mbs", 1, "one sequence for each replica")
    else:
        free.add("micro_batch")
    if not mesh and trips and batch % trips == 0 and fields.whole("n_accel") % (batch // trips) == 0:
        held |= {"dp": batch // trips, "micro_batch": 1}  # one sequence a pass, as is usual where tensors are split
        fields.assumed.append(f"dp: {batch // trips}, mbs: 1 assumed, as {trips} are accumulated")
        free.discard("micro_batch")
    stages = _stages(fields, software, model.layers, mesh.get("pp", 0))
    held |= stages
    if "micro_batch" in free and mesh.get("pp", 1) > 1 and software.microbatches:
        parts = mesh["pp"] * stages.get("virtual_stages", 1) if software.microbatches == "stages" else batch
        usual = max(1, batch // mesh["dp"] // parts)
        held["micro_batch"] = fields.assume("mbs", usual, f"as usual with {software.framework}")
        free.discard("micro_batch")
    if "virtual_stages" not in stages:
        free.add("virtual_stages")
    held["weight_sharding"] = _sharding(fields, software, mesh)
    held["sequence_parallel"] = _sequence_parallel(fields, software, mesh.get("tp", 0))
    return Stated(held, frozenset(free))


def _experts(fields: Fields, model: Transformer, mesh: dict[str, int]) -> dict[str, int]:
    """Return the mapping of experts; a row that states more than there are ranks of a stage is mistaken."""
    if model.experts is None:
        return {}
    found = {"etp": fields.whole("etp")} if fields.text("etp") else {}
    given = _whole(fields, "ep")
    if given is None or not mesh:
        return found
    ranks = mesh["tp"] * mesh["cp"] * mesh["dp"]
    nearest = gcd(given, ranks)
    if nearest != given:
        fields.assumed.append(f"ep: {nearest} for {given}, as tp × cp × dp = {ranks}")
    return {**found, "ep": nearest}


def _stages(fields: Fields, software: Software, layers: int, pp: int) -> dict[str, Any]:
    """Return schedule and virtual stages; only the former if a row leaves the latter open."""
    name = fields.text("schedule").lower()
    special = next((schedule for start, schedule in SCHEDULES if name.startswith(start)), "")
    if pp == 1:
        return {"schedule": special or "1f1b", "virtual_stages": 1}
    if special:
        return {"schedule": special, "virtual_stages": 1}
    given = _whole(fields, "vpp")
    if given is None:
        plain = not re.search("interleav", name) and ("1f1b" in name or not software.interleaves)
        return {"schedule": "1f1b", "virtual_stages": 1} if plain else {"schedule": "interleaved"}
    most = max(1, (layers + 2) // pp) if pp else given
    if given > most:
        fields.assumed.append(f"vpp: {most} for {given}, as there are no more layers")
    virtual = min(given, most)
    return {"schedule": "interleaved" if virtual > 1 else "1f1b", "virtual_stages": virtual}


def _sharding(fields: Fields, software: Software, mesh: dict[str, int]) -> str:
    """Return the sharding; with pipeline stages, some frameworks keep gathered weights until the step ends."""
    text = fields.text("zero_stage").lower().removesuffix(".0")
    stage = re.sub(r"^(zero|stage|z)[ -]?", "", text)
    name = SHARDING.get(stage, "zero3" if "fsdp" in stage or "hsdp" in stage else "")
    if not stage:
        replicas = mesh["dp"] * mesh["cp"] if mesh else 2
        name = software.sharding if replicas > 1 else "none"
        if mesh.get("pp", 1) > 1 and name == "zero3":
            name = "zero1"  # whole gradients accumulate over the microbatches of a pipeline
        if "fsdp" in fields.text("schedule").lower():
            name = "zero3"
        fields.assume("zero_stage", name, f"as usual with {software.framework}")
    require(bool(name), "zero_stage", stage, "must be 0, 1, 2 or 3")
    return software.staged_zero3 if name == "zero3" and mesh.get("pp", 1) > 1 else name


def _sequence_parallel(fields: Fields, software: Software, tp: int) -> bool:
    text = fields.text("seq_par").lower()
    if text:
        require(text in YES or text in NO, "seq_par", text, "must be 0 or 1")
        return text in YES
    length = fields.number("seq_len") or 0
    usual = bool(software.settings.get("sequence_parallel", True)) and (tp < 1 or length % tp == 0)
    if tp == 1:
        return False
    return bool(fields.assume("seq_par", int(usual), f"as usual with {software.framework}"))
