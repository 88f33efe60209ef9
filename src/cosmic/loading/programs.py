"""Programs as models of designs: ``model: {program: my.yaml}``, or such a file in the place of a model's name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cosmic.catalog.systems import NO_FILES
from cosmic.catalog.yaml_files import load_yaml
from cosmic.design import schema
from cosmic.design.program import ProgramModel
from cosmic.errors import UnknownName, require
from cosmic.loading.readers import PROGRAM, is_program
from cosmic.programs.annotating import read_annotations
from cosmic.programs.models import model_of, program_of
from cosmic.programs.reading import read_program

KEYS = (PROGRAM, "annotations", "name")


def model_tree(given: Mapping[str, Any], folder: Path | None) -> dict[str, Any]:
    """Return the model that ``{program: FILE, annotations: {…}}`` describes, as the content of a design file."""
    for key in given:
        if key not in KEYS:
            raise UnknownName.key(f"model.{key}", given[key], KEYS)
    name = schema.read_source(given[PROGRAM], "model.program")
    require(folder is not None, "model.program", name, NO_FILES)
    return program_tree(load_yaml((folder or Path()) / name), Path(name).stem, given)


def program_tree(tree: Any, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a program's file as that of a model, with annotations beside its own."""
    require(is_program(tree), name, tree, "is no program: it lists no dims and operators")
    program = read_program(tree, name)
    if "annotations" in given:
        program = read_annotations(program, given["annotations"])
    found: dict[str, Any] = schema.write(model_of(program))
    return {**found, **({"name": given["name"]} if "name" in given else {})}


def annotated(model: ProgramModel, tree: Any) -> ProgramModel:
    """Return *model* with further annotations."""
    return model_of(read_annotations(program_of(model), tree))


def usual_of(model: ProgramModel) -> dict[str, Any]:
    """Return the workload that a program's own sizes say: its sequence, and its batch as the global one."""
    found: dict[str, Any] = {"sequence": model.sizes.get("sequence", 1)}
    return found | ({"global_batch": model.sizes["batch"]} if "batch" in model.sizes else {})
