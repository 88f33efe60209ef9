"""A launch as a design: what somebody's script or configuration achieves, and on what.

    found = import_launch("train.sh", "megatron", system="dgx-h100:64")
    found.point                  a design, as `load_design` gives one
    found.assumed                what the file does not say
    found.not_modelled           arguments that the design does not express, each with the reason

Nothing in a file is run. `cosmic.frameworks` reads what the file says; this module makes a complete design of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cosmic.base.errors import UnknownName, require
from cosmic.design import catalog_entries
from cosmic.design.design_point import DesignPoint, full_path
from cosmic.design.loading import design_tree, model_assumptions
from cosmic.design.plain_data import dump_yaml, merge_trees, unflatten_paths
from cosmic.design.schema import slots, write_value
from cosmic.design.workload_layer import Workload
from cosmic.frameworks.launch_arguments import NotModelled
from cosmic.frameworks.launch_readers import (
    DEFAULT_HOST,
    VARIABLE_NAME,
    ImportedLayers,
    ImportRequest,
    Tree,
    readers_by_format,
)
from cosmic.search.mapping.design_completion import MAPPING, load_design


@dataclass(frozen=True, slots=True)
class Imported:
    """A launch as a design."""

    origin: str
    file: str
    tree: Tree
    """The design as in a file: the model and the system by name where they have one."""
    point: DesignPoint
    said: str
    """What the number of accelerators comes from."""
    assumed: tuple[str, ...]
    """What the file does not say."""
    not_modelled: tuple[NotModelled, ...]
    """What the design does not express."""

    @property
    def text(self) -> str:
        """The design as the text of a design file."""
        return dump_yaml(self.tree)


def import_launch(
    source: str | Path,
    origin: str,
    *,
    system: str = "",
    model: str = "",
    overrides: Mapping[str, Any] | None = None,
    defines: Mapping[str, str] | None = None,
) -> Imported:
    """Return the design that a launch runs.

    *source* is the path of a script or configuration of *origin*: megatron, nemo, torchtitan or deepspeed. *system*
    says on what it runs (``dgx-h100``, ``dgx-h100:64``), *model* which model, where the file does not say. *overrides*
    are those of `load_design`; *defines* gives variables of a script their values.
    """
    readers = readers_by_format()
    if origin not in readers:
        raise UnknownName.among("--from", origin, "format", readers)
    changes = {full_path(path): value for path, value in (overrides or {}).items()}
    for name in defines or {}:
        require(VARIABLE_NAME.fullmatch(name) is not None, "--define", name, "must be the name of a variable")
    request = ImportRequest(Path(source), origin, system, model, changes, dict(defines or {}))
    return _complete_launch(request, readers[origin](request))


def _complete_launch(request: ImportRequest, reading: ImportedLayers) -> Imported:
    model = {"base": reading.model} if isinstance(reading.model, str) else reading.model
    changed = any(path.startswith("model.") for path in request.overrides)
    workload = {**_default_fields(reading.workload), **reading.workload}
    ordered = {key: workload[key] for key in slots(Workload) if key in workload}
    tree: Tree = {"model": model, "system": reading.system, "workload": ordered}
    tree = merge_trees(tree, unflatten_paths(request.overrides))
    point = load_design(tree)
    assumed = list(reading.assumed)
    if "sequence" not in tree["workload"]:
        tree["workload"] = {"sequence": point.workload.sequence, **tree["workload"]}
        assumed.append(f"sequences of {point.workload.sequence:,} tokens: or --set sequence=N")
    if point.workload.offload and not point.memory.tiers:
        tree["memory"] = {**tree.get("memory", {}), "tiers": [dict(DEFAULT_HOST)]}
        point = load_design(tree)
        assumed.append(
            f"{DEFAULT_HOST['capacity']} of host memory per accelerator at {DEFAULT_HOST['bandwidth']}, to offload to"
        )
    named = model.get("base") in catalog_entries.entry_names("models")
    if named and len(model) == 1 and not changed:
        tree["model"] = reading.model
    elif not named:
        tree["model"] = design_tree(point)["model"]
    notes = model_assumptions({"model": reading.model}) if isinstance(reading.model, str) else ()
    return Imported(
        origin=request.origin,
        file=str(request.path),
        tree=tree,
        point=point,
        said=reading.said,
        assumed=(*assumed, *notes),
        not_modelled=reading.not_modelled,
    )


def _default_fields(set_fields: Tree) -> Tree:
    """Return what a launch does that says nothing of it: a framework searches for no mapping. dp follows."""
    usual = Workload(sequence=1, global_batch=1)
    plain = {key: getattr(usual, key) for key in MAPPING if key not in ("dp", "etp")}
    depends_on = {"virtual_stages": "schedule", "recompute_modules": "recompute"}
    return {
        key: write_value(value)
        for key, value in plain.items()
        if key not in set_fields
        and not (key in depends_on and set_fields.get(depends_on[key]) in ("interleaved", "selective"))
    }
