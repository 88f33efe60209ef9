"""The mapping of a design that does not state one: the best of a quick search, and the batch that it is searched for.

What is stated is held, and the rest is searched. A system of the catalog may prefer a mapping: it is kept where it
fits, with plain switches. Suggestions are kept on disk for other processes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, fields, replace
from functools import wraps
from math import floor, gcd, lcm, log2, prod
from typing import Any

from cosmic.base.arithmetic import divisors
from cosmic.base.caching import keep_cached, read_cached
from cosmic.base.errors import SpecError
from cosmic.design.design_batch import batch_of
from cosmic.design.design_point import DesignPoint
from cosmic.design.model_layer import Recommender, is_moe
from cosmic.design.workload_layer import AXES, Workload
from cosmic.search.mapping.deployment_mappings import search_deployment, search_serving
from cosmic.search.mapping.mapping_choices import BUDGET, USUAL_MODULES
from cosmic.search.mapping.mapping_search import FoundMapping, runs_and_share, search_mapping

SWITCHES = (
    "schedule",
    "virtual_stages",
    "micro_batch",
    "sequence_parallel",
    "tp_overlap",
    "ep_overlap",
    "cp_comm_type",
    "placement",
)
MAPPING = (*AXES, "ep", "etp", "weight_sharding", "recompute", "recompute_modules", *SWITCHES)
"""The fields of a mapping for training."""
SERVED = (*AXES, "ep", "global_batch", "micro_batch")
"""The fields of a mapping for a step of serving."""
PLAIN: dict[str, Any] = {field.name: field.default for field in fields(Workload) if field.name in SWITCHES}
"""Switches as a workload has them that says nothing of them: what a parameter set varies a mapping around."""
TOKENS_PER_STEP = 2**22
"""In a global batch when neither file nor catalog gives one: about what large language models are trained with."""
REPLICAS_OF_ONE = 8
"""Accelerators for each of which a global batch has a sequence, at least: larger machines train with larger batches."""
EXPERTS_ONLY = ("ep", "etp", "ep_overlap")


KNOWN_MAPPINGS: dict[str, FoundMapping] = {}
"""Suggestions of this process."""
MOST_KNOWN = 1000


def _keep_suggestion(compute: Callable[..., FoundMapping]) -> Callable[..., FoundMapping]:
    """Keep what a suggestion gives, in memory and for other processes: it follows from the design and what is given."""

    @wraps(compute)
    def suggestion(base: DesignPoint, *given: Mapping[str, Any]) -> FoundMapping:
        key = f"{compute.__name__} {base.identity} {[sorted(each.items()) for each in given]}"
        if key not in KNOWN_MAPPINGS:
            if len(KNOWN_MAPPINGS) >= MOST_KNOWN:
                KNOWN_MAPPINGS.clear()
            KNOWN_MAPPINGS[key] = computed(key, base, *given)
        return KNOWN_MAPPINGS[key]

    def computed(key: str, base: DesignPoint, *given: Mapping[str, Any]) -> FoundMapping:
        if content := read_cached("mappings", key):
            with suppress(ValueError, TypeError):
                return FoundMapping(**json.loads(content))
        found = compute(base, *given)
        with suppress(TypeError):  # what is no JSON
            keep_cached("mappings", key, json.dumps(asdict(found)).encode())
        return found

    return suggestion


@_keep_suggestion
def suggest_mapping(base: DesignPoint, usual: Mapping[str, Any], stated: Mapping[str, Any]) -> FoundMapping:
    """Return the mapping for training, with its global batch: what is *stated*, and the best of the rest.

    *usual* is the workload as catalog and user give it, with the mapping that the system prefers. If that does not fit,
    all others are searched; if none of these fits, the one that needs least memory is returned.
    """
    held = {key: stated[key] for key in MAPPING if key in stated}
    if "recompute" in held:  # whoever says so much means the modules that are usual
        held.setdefault("recompute_modules", USUAL_MODULES)
    preferred = {key: usual[key] for key in MAPPING if key in usual}
    if "dp" not in stated and stated.keys() & set(AXES):
        preferred.pop("dp", None)  # takes what the other axes, now changed, leave of the accelerators
    ways = prod(preferred.get(axis, 1) for axis in ("tp", "cp", "pp"))
    if not preferred.keys() <= held.keys() and base.network.npus % ways == 0:
        found = _search_with_batch(base, {**plain_switches(preferred), **preferred}, usual, stated)
        if found.fits:
            return replace(found, searched=0)
    return _search_with_batch(base, held, usual, stated)


def plain_switches(stated: Mapping[str, Any], usual: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return plain switches for what is not *stated*; a schedule and its virtual stages go together.

    With what is *usual*, a mapping that someone varies: contexts are not split, and beside a mesh that is stated in
    full nothing is sharded, recomputed or spread.
    """
    together = {"schedule": "virtual_stages", "virtual_stages": "schedule"}
    plain = {key: value for key, value in PLAIN.items() if key not in stated and together.get(key) not in stated}
    if usual is None:
        return plain
    if {"tp", "cp", "pp"} <= stated.keys():
        return {**plain, "ep": 1, "weight_sharding": "none", "recompute": "none"}
    return plain if "cp" in usual else {**plain, "cp": 1}


def _search_with_batch(
    base: DesignPoint, held: Mapping[str, Any], usual: Mapping[str, Any], stated: Mapping[str, Any]
) -> FoundMapping:
    """Return the best mapping that agrees with what is *held*, and its batch."""
    batch = stated["global_batch"] if "global_batch" in stated else suggest_batch(base, held, usual)
    known = {key: value for key, value in held.items() if value is not None}
    point = replace(base, workload=replace(base.workload, **{**known, "global_batch": batch}))
    if isinstance(base.model, Recommender):
        found = _of_recommender(point, held)
    else:
        searched = search_mapping(point, known) if _is_open(base, held) else None
        found = searched or FoundMapping(_held_mesh(base, held), fits=True, searched=0)
    mapping = found.mapping if "etp" not in found.mapping or "etp" in held else _without_usual(found.mapping)
    return replace(found, mapping={**mapping, **held, "global_batch": batch})


def _of_recommender(point: DesignPoint, held: Mapping[str, Any]) -> FoundMapping:
    """Return the mapping of a recommender, which replicas alone train, each with all its samples at once."""
    mesh = _held_mesh(point, held)
    samples = max(1, point.workload.global_batch // mesh["dp"])
    mapping = {"weight_sharding": "zero1", "micro_batch": samples, **mesh, **held}
    runs, share = runs_and_share(batch_of(replace(point, workload=replace(point.workload, **mapping))))
    return FoundMapping(mapping, fits=bool(runs.all() and share.max() <= BUDGET), searched=0)


def _is_open(base: DesignPoint, held: Mapping[str, Any]) -> bool:
    """Return whether something of the mapping is left to choose: etp follows from ep, dp from the other axes."""
    settled = {*held, "dp", *(() if is_moe(base.model) else EXPERTS_ONLY)}
    if "ep" in held:
        settled.add("etp")
    if "recompute" in held:
        settled.add("recompute_modules")
    if held.get("schedule", "interleaved") != "interleaved":
        settled.add("virtual_stages")
    return not settled >= set(MAPPING)


def _held_mesh(base: DesignPoint, held: Mapping[str, Any]) -> dict[str, Any]:
    """Return the mesh that is held, and dp as what it leaves: nothing was searched, or nothing goes with it."""
    mesh: dict[str, Any] = {axis: held.get(axis, 1) for axis in AXES}
    rest = base.network.npus // (mesh["tp"] * mesh["cp"] * mesh["pp"])
    return {**mesh, "dp": held.get("dp", max(rest, 1))}


def _without_usual(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """Return a mapping without an etp that is the one it has if none is stated."""
    usual = gcd(mapping["tp"], max(1, mapping["tp"] * mapping["cp"] * mapping["dp"] // mapping["ep"]))
    return {key: value for key, value in mapping.items() if key != "etp" or value != usual}


@_keep_suggestion
def suggest_serving(base: DesignPoint, stated: Mapping[str, Any]) -> FoundMapping:
    """Return mesh, global_batch and micro_batch for prefill or decode; what is *stated* is kept."""
    return search_serving(base, stated)


@_keep_suggestion
def suggest_deployment(base: DesignPoint, stated: Mapping[str, Any], free: Mapping[str, Any]) -> FoundMapping:
    """Return the mesh of instances that serve the load of *base*: what is *stated*, and the best of the rest.

    With what is *free* of the prefill pool: ``prefill.tp``, ``prefill.replicas``.
    """
    return search_deployment(base, stated, free)


def check_divides(mesh: Mapping[str, int], npus: int) -> None:
    """Refuse a *mesh* of which no number of replicas takes *npus* accelerators."""
    taken = prod(mesh.values())
    if npus % taken == 0:
        return
    split = {axis: size for axis, size in mesh.items() if size > 1}
    some = f"{npus:,} accelerator{'s' if npus > 1 else ''}"
    rule = f"there {'are' if npus > 1 else 'is'} only {some}" if taken > npus else f"does not divide {some}"
    if len(split) == 1:
        ((axis, size),) = split.items()
        raise SpecError(f"workload.{axis}", size, rule)
    said = " × ".join(f"{axis} {size}" for axis, size in split.items())
    raise SpecError("workload", f"{said} = {taken:,}", rule)


def suggest_virtual_stages(layers: int, stages: int, first: int | None = None, last: int | None = None) -> int:
    """Return the virtual stages of an interleaved schedule that states none: the fewest that share layers out evenly.

    *first* and *last* are layers that these stages state.

    >>> suggest_virtual_stages(80, 8), suggest_virtual_stages(96, 4), suggest_virtual_stages(61, 4)
    (2, 2, 2)
    >>> suggest_virtual_stages(24, 8), suggest_virtual_stages(8, 8)
    (3, 1)
    >>> suggest_virtual_stages(24, 4, last=3), suggest_virtual_stages(24, 4, first=4, last=4)
    (1, 2)
    """
    stated = [each for each in (first, last) if each is not None]
    if stated:
        rest, others = layers - sum(stated), max(1, stages - len(stated))
        whole = (gcd(rest // others, *stated) if rest % others == 0 else 1) or 1
        return next((divisor for divisor in divisors(whole) if divisor > 1), 1)
    each = [virtual for virtual in range(2, layers // stages + 1) if layers % (stages * virtual) == 0]
    return min(each, default=2 if layers >= 2 * stages and layers % stages else 1)


def suggest_batch(base: DesignPoint, held: Mapping[str, Any], usual: Mapping[str, Any]) -> int:
    """Return the global batch of training where none is stated: the usual one, so that it does not follow the mapping.

    It is rounded so that accelerators can share it out. A mesh that is held in full decides how many replicas do.
    """
    npus, size = base.network.npus, held.get("micro_batch", 1)
    wanted = usual.get("global_batch", -(-TOKENS_PER_STEP // base.workload.sequence))
    replicas = _replicas(npus, held)
    if replicas is not None:
        return int(-(-max(wanted, 1) // (replicas * size)) * replicas * size)
    return shared_batch(wanted, npus, size, keep="global_batch" in usual)


def shared_batch(wanted: int, npus: int, micro_batch: int = 1, *, keep: bool = True) -> int:
    """Return a batch near *wanted* that accelerators can share out, and at least one sequence for every eight of them.

    What is odd in their number must divide it. If nothing is, a batch to *keep* is left alone.

    >>> shared_batch(512, 64), shared_batch(1536, 64), shared_batch(512, 16_384)
    (512, 1536, 2048)
    >>> shared_batch(1024, 72), shared_batch(1000, 64, keep=False), shared_batch(512, 64, 24)
    (1152, 1024, 384)
    """
    wanted = max(wanted, npus // REPLICAS_OF_ONE, micro_batch)
    odd = lcm(_odd_part(npus), _odd_part(micro_batch))
    if odd == 1 and keep:
        return wanted
    unit: int = odd * 2 ** max(0, floor(log2(wanted / odd)))
    return max(1, round(wanted / unit)) * unit


def _odd_part(number: int) -> int:
    """Return the odd part of a number.

    >>> _odd_part(72), _odd_part(64)
    (9, 1)
    """
    return number // (number & -number)


def _replicas(npus: int, held: Mapping[str, Any]) -> int | None:
    """Return the replicas of a mesh that is held in full; None where it is not."""
    if "dp" in held:
        return int(held["dp"])
    if not {"tp", "cp", "pp"} <= held.keys():
        return None
    return int(max(1, npus // (held["tp"] * held["cp"] * held["pp"])))
