"""Choices of an engine's own fields, as files write them: ``engine: NAME`` and ``fields:``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cosmic import catalog
from cosmic.design import schema
from cosmic.engines import Engine
from cosmic.errors import SpecError, UnknownName, as_key, require


def own_point(engine: Engine, design: str, overrides: Mapping[str, Any]) -> Any:
    """Return a choice of the engine's own fields: of a file, or its defaults where *design* is the engine's name."""
    given: Any = {}
    if design != engine.name:
        rule = f"give {engine.name} for its defaults, or a file with engine: {engine.name} and fields:"
        require(catalog.is_file(Path(design)), "design", design, rule)
        tree = catalog.load_mapping(Path(design))
        for key in tree:
            if key not in ("engine", "fields"):
                raise UnknownName.key(as_key(key), tree[key], ("engine", "fields"))
        require(tree.get("engine") == engine.name, "engine", tree.get("engine"), f"the file is not for {engine.name}")
        given = tree.get("fields", {})
    if not isinstance(given, Mapping):
        raise SpecError("fields", given, "must map fields to values")
    point = schema.read(engine.fields, given, "fields")
    changes = {}
    for path, value in overrides.items():
        slot = schema.slot_at(point, path)
        changes[path] = schema.read(slot.hint, value, path, slot.dimension)
    return schema.assign(point, changes)
