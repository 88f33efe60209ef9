"""From what a user writes to a complete design: an open design, with the best mapping of a quick search.

    load_design("llama3-70b@dgx-h100:512")            what nobody states of the mapping is searched for
    load_design("my-design.yaml", {"tp": 8})          overrides by path, as they stand in files

`cosmic.design.loading` reads what is stated; this module fills in what is not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

from cosmic.base.errors import SpecError, require
from cosmic.design import schema
from cosmic.design.catalog_parts import quotes_override
from cosmic.design.design_point import ANY_STEP, DesignPoint, full_path
from cosmic.design.loading import Source, design_tree, draft_design, read_partial_workload, stated_tree
from cosmic.design.machine_layers import spell_out_layers
from cosmic.design.model_layer import Recommender, Transformer
from cosmic.design.plain_data import merge_trees, unflatten_paths
from cosmic.design.program_model import ProgramModel
from cosmic.design.workload_layer import Workload
from cosmic.search.mapping import suggested_mapping as mappings
from cosmic.search.mapping.mapping_search import DEPLOYMENT_FIELDS

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
        set_fields = {**mappings.plain_switches(set_fields, usual), **set_fields}
    chosen = {**usual, **set_fields}
    require("sequence" in chosen, "workload.sequence", schema.Absent(), "is required, as the model gives none")
    trained = chosen.get("task", "training") == "training"
    searched_fields = mappings.MAPPING if trained else mappings.SERVED_FIELDS
    if not trained:  # mapping and batch that catalogs give are of training
        chosen = {
            key: usual[key] for key in usual if key not in (*mappings.MAPPING, *mappings.SERVED_FIELDS)
        } | set_fields
    task = {key: value for key, value in chosen.items() if key not in searched_fields}
    base = replace(draft, workload=Workload(**{"global_batch": 1, **task}))
    suggestion = (
        mappings.suggest_mapping(base, chosen, set_fields) if trained else mappings.suggest_serving(base, set_fields)
    )
    suggested = (
        tuple(key for key in searched_fields if key in suggestion.best and key not in set_fields)
        if suggestion.tried
        else ()
    )
    chosen |= suggestion.best
    if "dp" not in set_fields:
        mappings.check_divides({axis: chosen[axis] for axis in ("tp", "cp", "pp")}, draft.network.npus)
    if chosen.get("schedule") == "interleaved" and isinstance(draft.model, Transformer):
        layers = draft.model.layers + draft.model.encoder_layers
        ends = [chosen.get(f"{end}_stage_layers") for end in ("first", "last")]
        virtual = mappings.suggest_virtual_stages(layers, chosen["pp"], *ends) if trained else 1
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
    of_step = (*mappings.MAPPING, *mappings.SERVED_FIELDS, "sequence", "task")
    task = {key: value for key, value in usual.items() if key not in of_step} | dict(set_fields)
    task = {**ANY_STEP, **task}
    base = replace(draft, workload=Workload(**{key: task[key] for key in task if key != "dp"}))
    pool = serving_tree.get("prefill") if isinstance(serving_tree, Mapping) else None
    free: tuple[str, ...] = ()
    if isinstance(pool, Mapping) and layer.prefill is not None and layer.disaggregated:
        fills = "dp" in set_fields and layer.prefill.system is None
        free = tuple(name for name in ("tp", *(["replicas"] if fills else [])) if name not in pool)
    fixed_mesh = {key: set_fields[key] for key in DEPLOYMENT_FIELDS if key in set_fields}
    suggestion = mappings.suggest_deployment(base, fixed_mesh, dict.fromkeys(free, True))
    mesh = {key: suggestion.best[key] for key in DEPLOYMENT_FIELDS}
    workload: Workload = schema.read_value(Workload, schema.write_value({**task, **mesh}), "workload")
    point = replace(base, workload=workload)
    suggested = [key for key in DEPLOYMENT_FIELDS if key not in set_fields]
    if free:
        names = [f"prefill.{name}" for name in free]
        point = point.changed({f"serving.{name}": suggestion.best[name] for name in names})
        suggested += names
    return point, tuple(suggested) if suggestion.tried else (), suggestion.tried
