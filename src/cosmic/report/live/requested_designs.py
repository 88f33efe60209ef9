"""The design of a request: a trial of a study, its base, or one of the catalog, with some fields changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cosmic.base.errors import SpecError, UnknownName, require
from cosmic.design import catalog_entries, schema
from cosmic.design.design_point import DesignPoint, full_path
from cosmic.design.loading import design_tree
from cosmic.design.plain_data import unflatten_paths
from cosmic.report.design_view import NamedDesign
from cosmic.report.live.request_checks import (
    CONFLICT,
    NOT_FOUND,
    Refusal,
    check_keys,
    read_mapping,
    read_number,
    read_text_field,
)
from cosmic.report.live.search_form import MOST_NPUS, design_name, index_of_label
from cosmic.report.live.study_library import Library
from cosmic.search.mapping.design_completion import load_design
from cosmic.search.space.diagram import Indices
from cosmic.search.space.parameter_set import ParameterSet, replace_base
from cosmic.search.space.parameters import value_label
from cosmic.search.study.study import Study

DESIGN_KEYS = ("study", "trial", "design", "settings")
MOST_LAYERS = 10_000
MOST_STAGES = 512
MOST_MICROBATCH_STAGES = 1_000_000
"""Microbatches of a step times pipeline stages: larger steps take too long to draw."""


@dataclass(frozen=True, slots=True)
class StudyDesign:
    """A design of a study."""

    study: Study
    space: ParameterSet
    row: Indices | None
    """Its point of the parameter set; None for a base outside the set."""
    trial: int | None

    @property
    def point(self) -> DesignPoint:
        """The design itself."""
        return self.space.base if self.row is None else self.space.point(self.row)

    @property
    def named(self) -> NamedDesign:
        """The design with its label on the page, if it is small enough: anybody may have written the study."""
        point = check_size(self.point)
        if self.trial is None:
            return NamedDesign("base", "base", point)
        return NamedDesign(f"trial {self.trial}", "other", point, self.trial)


def choose_design(library: Library, study: str, trial: str) -> StudyDesign:
    """Return a design of a study: a trial by its number, the ``best``, or the ``base``."""
    if trial == "base":
        loaded = library.study(study)
        space = _space_of_study(loaded)
        return StudyDesign(loaded, space, space.row_of(space.base), None)
    if trial == "best":
        best = library.best(study)
        if best is None:
            raise Refusal(CONFLICT, "trial", "best", "this study has no feasible design yet")
        return choose_design(library, study, str(best))
    try:
        number = read_number(trial, "trial")
    except SpecError:
        raise Refusal(NOT_FOUND, "trial", trial, "must be a number, 'best' or 'base'") from None
    loaded, trials = library.trial(study, number)
    space = _space_of_study(loaded)
    row = trials.row(0)
    fits = row.shape == (len(space.parameters),) and bool(space.contains(row[None, :])[0])
    require(fits, "trial", number, "is no point of the study's parameter set")
    return StudyDesign(loaded, space, row, number)


def _space_of_study(study: Study) -> ParameterSet:
    """Return the parameter set of a study's workload: of the first where there are several."""
    return replace_base(study.problem.space, study.problem.shares[0])


def parameter_values(design: StudyDesign) -> dict[str, Any]:
    """Return the labels of a design's parameters and derived fields."""
    space, point = design.space, design.point
    if design.row is not None:
        labels = space.labels(design.row)
        texts = {parameter.name: labels[parameter.name] for parameter in space.parameters}
    else:
        held = {
            parameter.name: tuple(schema.get_field(point, path) for path in parameter.paths)
            for parameter in space.parameters
        }
        texts = {
            parameter.name: parameter.labels[parameter.values.index(held[parameter.name])]
            for parameter in space.parameters
            if held[parameter.name] in parameter.values
        }
    derived = {path: value_label(space.base, path, schema.get_field(point, path)) for path in space.derived}
    return {"trial": design.trial, "values": texts, "derived": derived}


# ---- what if


def requested_design(library: Library, body: Mapping[str, Any]) -> NamedDesign:
    """Return the design that a request describes."""
    check_keys(body, DESIGN_KEYS)
    settings = {full_path(name): value for name, value in read_mapping(body, "settings").items()}
    if "study" not in body:
        require("trial" not in body, "trial", body.get("trial"), "needs a study")
        return NamedDesign(
            "what if",
            "other",
            check_size(load_design(_given_design(body.get("design")), _check_catalog_names(settings))),
        )
    require("design" not in body, "design", body.get("design"), "give a study or a design, not both")
    design = choose_design(library, read_text_field(body, "study"), _trial_name(body.get("trial", "best")))
    return changed_design(design, settings) if settings else design.named


def _trial_name(value: Any) -> str:
    if type(value) is int or value in ("best", "base"):
        return str(value)
    raise SpecError("trial", value, "must be a number, 'best' or 'base'")


def changed_design(design: StudyDesign, settings: Mapping[str, Any]) -> NamedDesign:
    """Return a design with some of its parameters, and some other fields, changed."""
    parameters = {each.name: (column, each) for column, each in enumerate(design.space.parameters)}
    point, row = design.point, None if design.row is None else np.array(design.row)
    fields: dict[str, Any] = {}
    for name, value in settings.items():
        if name not in parameters:
            continue
        column, parameter = parameters[name]
        index = index_of_label(parameter, value)
        if index is None:
            raise UnknownName.among(name, value, "value of it", [str(label) for label in parameter.labels])
        if row is not None:
            row[column] = index
        fields |= dict(zip(parameter.paths, parameter.values[index], strict=True))
    if row is not None:
        point = design.space.point(row)
    elif fields:
        point = schema.assign_fields(point, fields)
    rest = {name: value for name, value in settings.items() if name not in parameters}
    if rest:
        point = load_design(design_tree(point), _check_catalog_names(rest))
    return NamedDesign(
        f"{'base' if design.trial is None else f'trial {design.trial}'}, changed", "other", check_size(point)
    )


def _given_design(design: Any) -> dict[str, Any]:
    """Return a design as the content of a file; it may name entries of the catalog, but no files."""
    if isinstance(design, str):
        require("@" in design, "design", design, "give MODEL@SYSTEM, or a design")
        model, _, system = design_name(design).rpartition("@")
        design = {"model": model, "system": system}
    if not isinstance(design, dict):
        raise SpecError("design", design, "give MODEL@SYSTEM, or a design, or the study and the trial of one")
    return _check_catalog_names(design)


def _check_catalog_names(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return *tree* (or settings by path) if its names are in the catalog; they could be paths of files."""
    for path, value in _catalog_names(unflatten_paths(tree)):
        kind = "accelerators" if path.startswith("compute") else "models" if path.startswith("model") else "systems"
        stem = value.partition(":")[0] if kind == "systems" and isinstance(value, str) else value
        entry = catalog_entries.resolve_name(kind, stem) if isinstance(stem, str) and kind != "accelerators" else stem
        if entry not in catalog_entries.entry_names(kind):
            raise UnknownName.among(path, value, kind.removesuffix("s"), catalog_entries.entry_names(kind))
    return dict(tree)


def _catalog_names(tree: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the values of the fields that can name an entry of the catalog, with their paths."""
    names = []
    for layer, key in (("model", "base"), ("compute", "accelerator"), ("system", "")):
        layer_tree = tree.get(layer)
        if isinstance(layer_tree, str) or (layer == "system" and layer in tree):
            names.append((layer, layer_tree))
        elif isinstance(layer_tree, Mapping) and key in layer_tree:
            names.append((f"{layer}.{key}", layer_tree[key]))
    return names


def check_size(point: DesignPoint) -> DesignPoint:
    """Return *point* if it is small enough to evaluate and draw within a request."""
    npus, workload = point.network.npus, point.workload
    turns = workload.pp * max(1, workload.global_batch // max(1, workload.dp * workload.micro_batch))
    layers = getattr(point.model, "layers", 1)
    for where, value, most in (
        ("network.npus", npus, MOST_NPUS),
        ("model.layers", layers, MOST_LAYERS),
        ("workload.pp", workload.pp, MOST_STAGES),
        ("stages × microbatches", turns, MOST_MICROBATCH_STAGES),
    ):
        require(value <= most, where, value, f"the page evaluates at most {most:,}; use 'cosmic evaluate'")
    return point
