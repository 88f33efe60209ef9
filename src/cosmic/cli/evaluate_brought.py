"""`cosmic evaluate --engine NAME`: one design, or a choice of an engine's own fields, by what somebody else brought."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from cosmic.cli.console import doing, emit_json, emit_table
from cosmic.cli.exit_codes import FAILED
from cosmic.cli.output import emit
from cosmic.errors import SpecError, UnknownName, as_key, require

if TYPE_CHECKING:
    from cosmic.engines import Engine


def evaluate_with(engine: Engine, design: str, overrides: dict[str, Any], *, json: bool) -> None:
    """Print what *engine* says of *design*: its metrics, or why it has none."""
    from cosmic.loading.designs import load_design  # noqa: PLC0415  heavy

    point = load_design(design, overrides) if engine.fields is None else own_point(engine, design, overrides)
    doing(f"asking {engine.name}")
    answer = engine.ask(point)
    if json:
        about = {"feasible": not answer.reasons, "reasons": list(answer.reasons), "identity": point.identity}
        said = {"engine": engine.name, "engine_identity": engine.identity, "failed": answer.failed}
        emit_json(about | said | {"metrics": {name: answer.metrics.get(name) for name in engine.metrics}})
    elif answer.reasons:
        emit([f"{'no answer' if answer.failed else 'cannot run'}: {reason}" for reason in answer.reasons])
    else:
        from cosmic.cli.studies import worth  # noqa: PLC0415

        rows = [[name, worth(name, answer.metrics.get(name)), better] for name, better in engine.metrics.items()]
        emit_table(f"{engine.name} {engine.identity}", ["metric", "", "better"], rows)
    if answer.reasons:
        raise typer.Exit(FAILED)


def own_point(engine: Engine, design: str, overrides: Mapping[str, Any]) -> Any:
    """Return a choice of the engine's own fields: of a file, or its defaults where *design* is the engine's name."""
    from cosmic import catalog  # noqa: PLC0415  heavy
    from cosmic.design import schema  # noqa: PLC0415  heavy

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
