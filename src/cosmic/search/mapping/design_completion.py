"""From what a user writes to a complete design: an open design, with the best mapping of a quick search.

    load_design("llama3-70b@dgx-h100:512")            what nobody states of the mapping is searched for
    load_design("my-design.yaml", {"tp": 8})          overrides by path, as they stand in files

`cosmic.design.loading` reads what is stated; this module fills in what is not, and the batch that it is searched for.
What is stated is held. A system of the catalog may prefer a mapping: it is kept where it fits, with plain switches.
Suggestions are kept on disk for other processes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from functools import wraps
from math import floor, gcd, lcm, log2, prod
from pathlib import Path
from typing import Any

from cosmic.base.caching import keep_cached, read_cached
from cosmic.base.errors import SpecError, require
from cosmic.base.numeric import divisors
from cosmic.base.optimise import Optimum
from cosmic.design import schema
from cosmic.design.catalog_parts import quotes_override
from cosmic.design.design_batch import batch_of
from cosmic.design.design_point import ANY_STEP, DesignPoint, full_path
from cosmic.design.field_facts import fields_used
from cosmic.design.loading import Source, design_tree, draft_design, read_partial_workload, stated_tree
from cosmic.design.machine_layers import spell_out_layers
from cosmic.design.model_layer import Recommender, Transformer, is_moe
from cosmic.design.plain_data import merge_trees, unflatten_paths
from cosmic.design.program_model import ProgramModel
from cosmic.design.workload_layer import AXES, Workload
from cosmic.search.mapping.mapping_choices import DEFAULT_MODULES
from cosmic.search.mapping.mapping_search import (
    DEPLOYMENT_FIELDS,
    Mapped,
    runs_and_share,
    search_deployment,
    search_mapping,
    search_serving,
)

# ---- the mapping of a design that does not state one


MAPPING = fields_used(Workload, "searched")
"""The fields of a mapping for training."""
SERVED_FIELDS = (*AXES, "ep", "global_batch", "micro_batch")
"""The fields of a mapping for a step of serving."""
PLAIN_SWITCHES: dict[str, Any] = {
    field.name: field.default for field in fields(Workload) if field.name in fields_used(Workload, "switch")
}
"""Switches as a workload has them that says nothing of them: what a parameter set varies a mapping around."""
TOKENS_PER_STEP = 2**22
"""In a global batch when neither file nor catalog gives one: about what large language models are trained with."""
NPUS_PER_SEQUENCE = 8
"""Accelerators for each of which a global batch has a sequence, at least: larger machines train with larger batches."""
EXPERTS_ONLY = ("ep", "etp", "ep_overlap")


KNOWN_MAPPINGS: dict[str, Mapped] = {}
"""Suggestions of this process."""
MAX_KNOWN = 1000


def _keep_suggestion(compute: Callable[..., Mapped]) -> Callable[..., Mapped]:
    """Keep what a suggestion gives, in memory and for other processes: it follows from the design and what is given."""

    @wraps(compute)
    def suggestion(base: DesignPoint, *mappings: Mapping[str, Any]) -> Mapped:
        key = f"{compute.__name__} {base.identity} {[sorted(mapping.items()) for mapping in mappings]}"
        if key not in KNOWN_MAPPINGS:
            if len(KNOWN_MAPPINGS) >= MAX_KNOWN:
                KNOWN_MAPPINGS.clear()
            KNOWN_MAPPINGS[key] = computed(key, base, *mappings)
        return KNOWN_MAPPINGS[key]

    def computed(key: str, base: DesignPoint, *mappings: Mapping[str, Any]) -> Mapped:
        if content := read_cached("mappings", key):
            with suppress(ValueError, TypeError):
                return Optimum(**json.loads(content))
        suggested = compute(base, *mappings)
        with suppress(TypeError):  # what is no JSON
            keep_cached("mappings", key, json.dumps(asdict(suggested)).encode())
        return suggested

    return suggestion


@_keep_suggestion
def suggest_mapping(base: DesignPoint, usual: Mapping[str, Any], set_fields: Mapping[str, Any]) -> Mapped:
    """Return the mapping for training, with its global batch: what is *set_fields*, and the best of the rest.

    *usual* is the workload as catalog and user give it, with the mapping that the system prefers. If that does not fit,
    all others are searched; if none of these fits, the one that needs least memory is returned.
    """
    fixed = {key: set_fields[key] for key in MAPPING if key in set_fields}
    if "recompute" in fixed:  # whoever says so much means the modules that are usual
        fixed.setdefault("recompute_modules", DEFAULT_MODULES)
    preferred = {key: usual[key] for key in MAPPING if key in usual}
    if "dp" not in set_fields and set_fields.keys() & set(AXES):
        preferred.pop("dp", None)  # takes what the other axes, now changed, leave of the accelerators
    preferred_ranks = prod(preferred.get(axis, 1) for axis in ("tp", "cp", "pp"))
    if not preferred.keys() <= fixed.keys() and base.network.npus % preferred_ranks == 0:
        suggested = _search_with_batch(base, {**plain_switches(preferred), **preferred}, usual, set_fields)
        if suggested.fits:
            return replace(suggested, tried=0)
    return _search_with_batch(base, fixed, usual, set_fields)


def plain_switches(set_fields: Mapping[str, Any], usual: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return plain switches for what is not *set_fields*; a schedule and its virtual stages go together.

    With what is *usual*, a mapping that someone varies: contexts are not split, and beside a mesh that is stated in
    full nothing is sharded, recomputed or spread.
    """
    paired = {"schedule": "virtual_stages", "virtual_stages": "schedule"}
    plain = {
        key: value
        for key, value in PLAIN_SWITCHES.items()
        if key not in set_fields and paired.get(key) not in set_fields
    }
    if usual is None:
        return plain
    if {"tp", "cp", "pp"} <= set_fields.keys():
        return {**plain, "ep": 1, "weight_sharding": "none", "recompute": "none"}
    return plain if "cp" in usual else {**plain, "cp": 1}


def _search_with_batch(
    base: DesignPoint, fixed: Mapping[str, Any], usual: Mapping[str, Any], set_fields: Mapping[str, Any]
) -> Mapped:
    """Return the best mapping that agrees with what is *fixed*, and its batch."""
    batch = set_fields["global_batch"] if "global_batch" in set_fields else suggest_batch(base, fixed, usual)
    set_values = {key: value for key, value in fixed.items() if value is not None}
    point = replace(base, workload=replace(base.workload, **{**set_values, "global_batch": batch}))
    if isinstance(base.model, Recommender):
        suggested = _recommender_mapping(point, fixed)
    else:
        searched = search_mapping(point, set_values) if _has_choice(base, fixed) else None
        suggested = searched or Optimum(_fixed_mesh(base, fixed), fits=True, tried=0)
    mapping = suggested.best if "etp" not in suggested.best or "etp" in fixed else _drop_default_etp(suggested.best)
    return replace(suggested, best={**mapping, **fixed, "global_batch": batch})


def _recommender_mapping(point: DesignPoint, fixed: Mapping[str, Any]) -> Mapped:
    """Return the mapping of a recommender, which replicas alone train, each with all its samples at once."""
    mesh = _fixed_mesh(point, fixed)
    samples = max(1, point.workload.global_batch // mesh["dp"])
    mapping = {"weight_sharding": "zero1", "micro_batch": samples, **mesh, **fixed}
    runs, share = runs_and_share(batch_of(replace(point, workload=replace(point.workload, **mapping))))
    return Optimum(mapping, fits=bool(runs.all() and share.max() <= 1), tried=0)


def _has_choice(base: DesignPoint, fixed: Mapping[str, Any]) -> bool:
    """Return whether something of the mapping is left to choose: etp follows from ep, dp from the other axes."""
    settled = {*fixed, "dp", *(() if is_moe(base.model) else EXPERTS_ONLY)}
    if "ep" in fixed:
        settled.add("etp")
    if "recompute" in fixed:
        settled.add("recompute_modules")
    if fixed.get("schedule", "interleaved") != "interleaved":
        settled.add("virtual_stages")
    return not settled >= set(MAPPING)


def _fixed_mesh(base: DesignPoint, fixed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the mesh that is held, and dp as what it leaves: nothing was searched, or nothing goes with it."""
    mesh: dict[str, Any] = {axis: fixed.get(axis, 1) for axis in AXES}
    replicas = base.network.npus // (mesh["tp"] * mesh["cp"] * mesh["pp"])
    return {**mesh, "dp": fixed.get("dp", max(replicas, 1))}


def _drop_default_etp(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """Return a mapping without an etp that is the one it has if none is stated."""
    usual = gcd(mapping["tp"], max(1, mapping["tp"] * mapping["cp"] * mapping["dp"] // mapping["ep"]))
    return {key: value for key, value in mapping.items() if key != "etp" or value != usual}


@_keep_suggestion
def suggest_serving(base: DesignPoint, set_fields: Mapping[str, Any]) -> Mapped:
    """Return mesh, global_batch and micro_batch for prefill or decode; what is *set_fields* is kept."""
    return search_serving(base, set_fields)


@_keep_suggestion
def suggest_deployment(base: DesignPoint, set_fields: Mapping[str, Any], free: Mapping[str, Any]) -> Mapped:
    """Return the mesh of instances that serve the load of *base*: what is *set_fields*, and the best of the rest.

    With what is *free* of the prefill pool: ``prefill.tp``, ``prefill.replicas``.
    """
    return search_deployment(base, set_fields, free)


def check_divides(mesh: Mapping[str, int], npus: int) -> None:
    """Refuse a *mesh* of which no number of replicas takes *npus* accelerators."""
    ranks = prod(mesh.values())
    if npus % ranks == 0:
        return
    split = {axis: size for axis, size in mesh.items() if size > 1}
    accelerators_text = f"{npus:,} accelerator{'s' if npus > 1 else ''}"
    rule = (
        f"there {'are' if npus > 1 else 'is'} only {accelerators_text}"
        if ranks > npus
        else f"does not divide {accelerators_text}"
    )
    if len(split) == 1:
        ((axis, size),) = split.items()
        raise SpecError(f"workload.{axis}", size, rule)
    mesh_text = " × ".join(f"{axis} {size}" for axis, size in split.items())
    raise SpecError("workload", f"{mesh_text} = {ranks:,}", rule)


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
    set_layers = [option for option in (first, last) if option is not None]
    if set_layers:
        inner_layers, inner_stages = layers - sum(set_layers), max(1, stages - len(set_layers))
        common = (gcd(inner_layers // inner_stages, *set_layers) if inner_layers % inner_stages == 0 else 1) or 1
        return next((divisor for divisor in divisors(common) if divisor > 1), 1)
    option = [virtual for virtual in range(2, layers // stages + 1) if layers % (stages * virtual) == 0]
    return min(option, default=2 if layers >= 2 * stages and layers % stages else 1)


def suggest_batch(base: DesignPoint, fixed: Mapping[str, Any], usual: Mapping[str, Any]) -> int:
    """Return the global batch of training where none is stated: the usual one, so that it does not follow the mapping.

    It is rounded so that accelerators can share it out. A mesh that is held in full decides how many replicas do.
    """
    npus, size = base.network.npus, fixed.get("micro_batch", 1)
    target = usual.get("global_batch", -(-TOKENS_PER_STEP // base.workload.sequence))
    replicas = _replicas(npus, fixed)
    if replicas is not None:
        return int(-(-max(target, 1) // (replicas * size)) * replicas * size)
    return shared_batch(target, npus, size, keep="global_batch" in usual)


def shared_batch(target: int, npus: int, micro_batch: int = 1, *, keep: bool = True) -> int:
    """Return a batch near *target* that accelerators can share out, and at least one sequence for every eight of them.

    What is odd in their number must divide it. If nothing is, a batch to *keep* is left alone.

    >>> shared_batch(512, 64), shared_batch(1536, 64), shared_batch(512, 16_384)
    (512, 1536, 2048)
    >>> shared_batch(1024, 72), shared_batch(1000, 64, keep=False), shared_batch(512, 64, 24)
    (1152, 1024, 384)
    """
    target = max(target, npus // NPUS_PER_SEQUENCE, micro_batch)
    odd = lcm(_odd_part(npus), _odd_part(micro_batch))
    if odd == 1 and keep:
        return target
    unit: int = odd * 2 ** max(0, floor(log2(target / odd)))
    return max(1, round(target / unit)) * unit


def _odd_part(number: int) -> int:
    """Return the odd part of a number.

    >>> _odd_part(72), _odd_part(64)
    (9, 1)
    """
    return number // (number & -number)


def _replicas(npus: int, fixed: Mapping[str, Any]) -> int | None:
    """Return the replicas of a mesh that is held in full; None where it is not."""
    if "dp" in fixed:
        return int(fixed["dp"])
    if not {"tp", "cp", "pp"} <= fixed.keys():
        return None
    return int(max(1, npus // (fixed["tp"] * fixed["cp"] * fixed["pp"])))


# ---- from what a user writes to a complete design


TASK = ANY_STEP["task"]
"""The task of a workload that is served: prompts are part of the load."""


@dataclass(frozen=True, slots=True)
class CompletedDesign:
    """A complete design, and what of it nobody stated."""

    point: DesignPoint
    suggested: tuple[str, ...] = ()
    """The fields of the mapping that a search has set."""
    searched: int = 0
    """Of how many mappings it is the best; none where they follow from what is stated."""

    def mapping_in_words(self, command: str) -> list[str]:
        """Return a line about the mapping, if some of it was suggested; *command* searches all of them."""
        if not self.suggested:
            return []
        return [f"mapping: best of a quick search ({self.searched:,} mappings); '{command}' goes through all"]


def load_design(
    source: Source | DesignPoint,
    overrides: Mapping[str, Any] | None = None,
    *,
    fix: Sequence[str] = (),
    files: bool = True,
    plain: bool = False,
    prices: str | Path | Mapping[str, Any] | None = None,
) -> DesignPoint:
    """Return the complete design that *source* and *overrides* describe.

    *source* is ``MODEL@SYSTEM`` of the catalog, the path of a YAML file, such a file's content, or a design point.
    *overrides* maps paths to values as they stand in files; ``tp`` is short for ``workload.tp``.
    Paths that *fix* names are held at what they are without the overrides, as otherwise the best mapping is found anew.
    Without *files*, nothing in either is taken for the path of a file: all names are of the catalog.
    With *plain*, what nobody states of a training step's mapping is off, as whoever varies one expects: only a mesh
    that is not stated in full is searched, with what must be sharded and recomputed for it to fit.
    *prices* is a file of quotes, or its content (`cosmic.design.catalog_parts`): the key ``prices`` of a design file.

    >>> load_design("gpt3-175b@cosmic-1024", {"tp": 8}).workload.dp
    4
    >>> [load_design("llama3-70b@dgx-h100:512", {"tp": 8}, fix=fix).workload.pp for fix in ([], ["workload"])]
    [2, 4]
    """
    if isinstance(source, DesignPoint):
        if not overrides and prices is None:
            return source
        source = design_tree(source)
    return complete_design(
        source, {**quotes_override(prices), **(overrides or {})}, fix=fix, files=files, plain=plain
    ).point


def complete_design(
    source: Source,
    overrides: Mapping[str, Any] | None = None,
    *,
    fix: Sequence[str] = (),
    files: bool = True,
    plain: bool = False,
) -> CompletedDesign:
    """Return the design that `load_design` returns, with what of it was suggested."""
    tree, settings, folder = stated_tree(source, overrides, files=files)
    if fix:
        tree = merge_trees(
            tree, unflatten_paths(_fixed_fields(_complete_tree(tree, folder, plain=plain).point, fix, settings))
        )
    return _complete_tree(merge_trees(tree, unflatten_paths(settings)), folder, plain=plain)


def complete_tree(tree: Mapping[str, Any], folder: Path | None = Path()) -> DesignPoint:
    """Return the design point of a partial *tree*: what it leaves out comes from the catalog and from rules.

    Paths in it are relative to *folder*; where that is None, nothing is taken for a path.
    """
    return _complete_tree(tree, folder, plain=False).point


def _complete_tree(tree: Mapping[str, Any], folder: Path | None, *, plain: bool) -> CompletedDesign:
    draft, usual = draft_design(spell_out_layers(tree), folder)
    workload_tree = tree.get("workload", {})
    if draft.serving is not None:
        point, suggested, searched = complete_served_design(
            draft, read_partial_workload(workload_tree, "workload"), usual, tree["serving"]
        )
        return CompletedDesign(point, suggested, searched)
    workload, suggested, searched = _complete_workload(workload_tree, usual, draft, plain=plain)
    return CompletedDesign(replace(draft, workload=workload), suggested, searched)


def _fixed_fields(point: DesignPoint, fix: Sequence[str], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return what *fix* names at its value in *point*; a mesh that is *settings* in part has the replicas it leaves."""
    fields: dict[str, Any] = {}
    for path in fix:
        full = full_path(path)
        value = schema.write_value(
            schema.get_field(point, full), schema.slot_at(point, full).dimension if "." in full else None
        )
        fields |= {f"{full}.{key}": entry for key, entry in value.items()} if isinstance(value, dict) else {full: value}
    if settings.keys() & {f"workload.{axis}" for axis in ("tp", "cp", "pp")}:
        fields.pop("workload.dp", None)
    return {
        path: value for path, value in fields.items() if not any(entry.startswith(f"{path}.") for entry in settings)
    }


def _complete_workload(
    workload_tree: Any, usual: Mapping[str, Any], draft: DesignPoint, *, plain: bool
) -> tuple[Workload, tuple[str, ...], int]:
    """Return the workload: what is given, then what is *usual* for system and model, then the best mapping of a search.

    With it come the fields that were suggested, and how many mappings were searched.
    """
    set_fields = read_partial_workload(workload_tree, "workload")
    if isinstance(draft.model, ProgramModel):  # an axis that it cuts has as many ranks as its parts
        set_fields = {**{cut.axis: prod(cut.parts) for cut in draft.model.cuts}, **set_fields}
    if plain and {**usual, **set_fields}.get("task", "training") == "training" and isinstance(draft.model, Transformer):
        set_fields = {**plain_switches(set_fields, usual), **set_fields}
    chosen = {**usual, **set_fields}
    require("sequence" in chosen, "workload.sequence", schema.Absent(), "is required, as the model gives none")
    trained = chosen.get("task", "training") == "training"
    searched_fields = MAPPING if trained else SERVED_FIELDS
    if not trained:  # mapping and batch that catalogs give are of training
        chosen = {key: usual[key] for key in usual if key not in (*MAPPING, *SERVED_FIELDS)} | set_fields
    task = {key: value for key, value in chosen.items() if key not in searched_fields}
    base = replace(draft, workload=Workload(**{"global_batch": 1, **task}))
    suggestion = suggest_mapping(base, chosen, set_fields) if trained else suggest_serving(base, set_fields)
    suggested = (
        tuple(key for key in searched_fields if key in suggestion.best and key not in set_fields)
        if suggestion.tried
        else ()
    )
    chosen |= suggestion.best
    if "dp" not in set_fields:
        check_divides({axis: chosen[axis] for axis in ("tp", "cp", "pp")}, draft.network.npus)
    if chosen.get("schedule") == "interleaved" and isinstance(draft.model, Transformer):
        layers = draft.model.layers + draft.model.encoder_layers
        ends = [chosen.get(f"{end}_stage_layers") for end in ("first", "last")]
        virtual = suggest_virtual_stages(layers, chosen["pp"], *ends) if trained else 1
        chosen.setdefault("virtual_stages", virtual)
    if isinstance(draft.model, Recommender):  # nothing to gain from passing samples through in turns
        chosen.setdefault("micro_batch", max(1, chosen["global_batch"] // chosen["dp"]))
    if isinstance(draft.model, ProgramModel):  # what is split is for annotations to say
        chosen.setdefault("sequence_parallel", False)
    workload: Workload = schema.read_value(Workload, schema.write_value(chosen), "workload")
    return workload, suggested, suggestion.tried


def complete_served_design(
    draft: DesignPoint, set_fields: Mapping[str, Any], usual: Mapping[str, Any], serving_tree: Mapping[str, Any]
) -> tuple[DesignPoint, tuple[str, ...], int]:
    """Return the design that serves the load of *draft*, which fields were suggested, and of how many mappings.

    Of the workload, *set_fields* is kept. Its sequence and batch have no meaning, as the load decides what a step has. A
    mesh that is not stated in full is the best of a search; so is tp of the prefill pool, unless
    *serving_tree* has it. With a stated dp, the pool has as many instances as take all that dp leaves, unless that is given.
    """
    layer = draft.serving
    assert layer is not None  # noqa: S101  only such designs come here
    if set_fields.get("task", TASK) != TASK:
        raise SpecError(
            "workload.task", set_fields["task"], "a design with a serving section serves requests: leave it out"
        )
    of_step = (*MAPPING, *SERVED_FIELDS, "sequence", "task")
    task = {key: value for key, value in usual.items() if key not in of_step} | dict(set_fields)
    task = {**ANY_STEP, **task}
    base = replace(draft, workload=Workload(**{key: task[key] for key in task if key != "dp"}))
    pool = serving_tree.get("prefill") if isinstance(serving_tree, Mapping) else None
    free: tuple[str, ...] = ()
    if isinstance(pool, Mapping) and layer.prefill is not None and layer.disaggregated:
        fills = "dp" in set_fields and layer.prefill.system is None
        free = tuple(name for name in ("tp", *(["replicas"] if fills else [])) if name not in pool)
    fixed_mesh = {key: set_fields[key] for key in DEPLOYMENT_FIELDS if key in set_fields}
    suggestion = suggest_deployment(base, fixed_mesh, dict.fromkeys(free, True))
    mesh = {key: suggestion.best[key] for key in DEPLOYMENT_FIELDS}
    workload: Workload = schema.read_value(Workload, schema.write_value({**task, **mesh}), "workload")
    point = replace(base, workload=workload)
    suggested = [key for key in DEPLOYMENT_FIELDS if key not in set_fields]
    if free:
        names = [f"prefill.{name}" for name in free]
        point = point.changed({f"serving.{name}": suggestion.best[name] for name in names})
        suggested += names
    return point, tuple(suggested) if suggestion.tried else (), suggestion.tried
