"""`cosmic show`: one design, complete."""

from __future__ import annotations

from cosmic.cli.console import Design, Json, Settings, emit, emit_json, new_app

app = new_app()


@app.command()
def show(
    design: Design,
    settings: Settings = [],  # noqa: B006  typer copies it
    json: Json = False,
) -> None:
    """Print one design as YAML, with every name resolved and every default filled in."""
    from cosmic.loading.designs import design_tree, dump_design, load_design, parse_overrides  # noqa: PLC0415  heavy
    from cosmic.reporting.words import design_in_words  # noqa: PLC0415  heavy
    from cosmic.workload.checks import invalid_reasons  # noqa: PLC0415  heavy

    point = load_design(design, parse_overrides(settings))
    if json:
        emit_json({"identity": point.identity, "invalid": list(invalid_reasons(point)), "design": design_tree(point)})
        return
    reasons = [f"# cannot run: {reason}" for reason in invalid_reasons(point)]
    emit([f"# {point.identity}", f"# {design_in_words(point)}", *reasons, *dump_design(point).rstrip().split("\n")])
