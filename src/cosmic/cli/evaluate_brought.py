"""`cosmic evaluate --engine NAME`: one design, or a choice of an engine's own fields, by what somebody else brought."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from cosmic.cli.console import doing, emit_json, emit_table
from cosmic.cli.exit_codes import FAILED
from cosmic.cli.output import emit

if TYPE_CHECKING:
    from cosmic.engines import Engine


def evaluate_with(engine: Engine, design: str, overrides: dict[str, Any], *, json: bool) -> None:
    """Print what *engine* says of *design*: its metrics, or why it has none."""
    from cosmic.loading.own_fields import own_point  # noqa: PLC0415  heavy
    from cosmic.mapping.completing import load_design  # noqa: PLC0415  heavy

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
