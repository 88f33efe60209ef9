"""`cosmic show`: one design, complete."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cosmic.cli.console import Design, Json, Settings, emit, emit_json, new_app

if TYPE_CHECKING:
    from cosmic.design.point import DesignPoint

app = new_app()


@app.command()
def show(
    design: Design,
    settings: Settings = [],  # noqa: B006  typer copies it
    json: Json = False,
) -> None:
    """Print one design as YAML, with every name resolved and every default filled in."""
    from cosmic.cli.evaluate import assumed_in_words  # noqa: PLC0415  heavy
    from cosmic.loading.designs import (  # noqa: PLC0415  heavy
        assumptions,
        design_tree,
        dump_design,
        parse_overrides,
    )
    from cosmic.mapping.completing import load_design  # noqa: PLC0415  heavy
    from cosmic.reporting.networks import network_in_words  # noqa: PLC0415  heavy
    from cosmic.reporting.words import design_in_words  # noqa: PLC0415  heavy

    overrides = parse_overrides(settings)
    point = load_design(design, overrides)
    assumed = assumptions(design, overrides)
    if json:
        found = {"identity": point.identity, "invalid": why_invalid(point), "design": design_tree(point)}
        emit_json(found | ({"assumed": list(assumed)} if assumed else {}))
        return
    reasons = [f"# cannot run: {reason}" for reason in why_invalid(point)]
    reasons += [f"# {line}" for line in (*assumed_in_words(assumed), *network_in_words(point.network))]
    emit([f"# {point.identity}", f"# {design_in_words(point)}", *reasons, *dump_design(point).rstrip().split("\n")])


def why_invalid(point: DesignPoint) -> list[str]:
    """Return which rules a design breaks: those of its step or, where it serves a load, those of deployments."""
    from cosmic.evaluation import Infeasible, evaluate  # noqa: PLC0415  heavy
    from cosmic.workload.checks import invalid_reasons  # noqa: PLC0415  heavy

    if point.serving is None:
        return list(invalid_reasons(point))
    outcome = evaluate(point)
    return list(outcome.reasons) if isinstance(outcome, Infeasible) else []
