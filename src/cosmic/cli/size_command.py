"""`cosmic size`: what to buy for a budget, a power limit or a deadline, and when the model is trained."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cosmic.cli import value_completion
from cosmic.cli.console import Json, Prices, Settings, emit_commands, emit_json, emit_table, new_app, print_sentences
from cosmic.cli.output_streams import StatusLine, emit

if TYPE_CHECKING:
    from cosmic.search.cluster_sizing import Effect, Risk, Row, Sizing


app = new_app()
NO_FEASIBLE_DESIGN = 1
SHOWN_EFFECTS = 8
"""Inputs of the table; JSON has all."""


@app.command()
def size(  # noqa: PLR0913, PLR0917  one option each
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", help="A model of the catalog, or a file.", autocompletion=value_completion.complete_models
        ),
    ],
    tokens: Annotated[str, typer.Option(metavar="15T", help="Tokens to train on.")],
    budget: Annotated[str | None, typer.Option(metavar="'200 M USD'", help="To buy the cluster with.")] = None,
    power: Annotated[str | None, typer.Option(metavar="'25 MW'", help="At the meter.")] = None,
    deadline: Annotated[
        str | None, typer.Option(metavar="'90 day'", help="Find the least expensive cluster that is done by then.")
    ] = None,
    accelerators: Annotated[int | None, typer.Option(metavar="N", help="Most accelerators.")] = None,
    systems: Annotated[
        str | None,
        typer.Option(metavar="A,B,…", help="Systems to choose from; default: recent ones that are sold."),
    ] = None,
    objective: Annotated[
        str,
        typer.Option(
            help="What to make small: train_days, train_usd, train_energy_j, train_co2_kg or cost_usd.",
            autocompletion=value_completion.complete_one_of(
                "train_days", "train_usd", "train_energy_j", "train_co2_kg", "cost_usd"
            ),
        ),
    ] = "train_days",
    settings: Settings = [],  # noqa: B006  typer copies it
    prices: Prices = None,
    sensitivity: Annotated[bool, typer.Option(help="What +10 % of each input does to the answer.")] = True,
    report: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the answer as one HTML page.")] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the best design as YAML.")] = None,
    json: Json = False,
) -> None:
    """Print for each system how many to buy, the best mapping there, days, money, energy and risk."""
    from cosmic.base.files import write_text  # noqa: PLC0415  heavy imports stay in functions
    from cosmic.design.loading import dump_design, parse_overrides  # noqa: PLC0415
    from cosmic.design.quoted_prices import quotes_override  # noqa: PLC0415
    from cosmic.search.cluster_sizing import measure_sensitivity as effects_of  # noqa: PLC0415
    from cosmic.search.cluster_sizing import simulate_risk  # noqa: PLC0415
    from cosmic.search.cluster_sizing import size_clusters as run  # noqa: PLC0415

    question = _question(
        model,
        tokens,
        budget,
        power,
        deadline,
        accelerators,
        objective,
        {**quotes_override(prices), **parse_overrides(settings)},
    )
    named = [each.strip() for each in systems.split(",")] if systems is not None else []
    with StatusLine() as line:
        found = run(question, named, line.show)
        risks = [simulate_risk(row.best.point, row.best.metrics) for row in found.rows]
        effects = effects_of(found) if sensitivity else []
    if out is not None and found.best is not None:
        write_text(out, dump_design(found.best.best.point), "--out")
    if report is not None:
        from cosmic.report.sizing_report import write_sizing  # noqa: PLC0415

        write_sizing(found, risks, effects, report)
    if json:
        emit_json(_data(found, risks, effects))
    else:
        _print(found, risks, effects, report, out if found.best is not None else None)
    if found.best is None:
        raise typer.Exit(NO_FEASIBLE_DESIGN)


def _question(  # noqa: PLR0913, PLR0917  the options of the command
    model: str,
    tokens: str,
    budget: str | None,
    power: str | None,
    deadline: str | None,
    accelerators: int | None,
    objective: str,
    overrides: dict[str, Any],
) -> Any:
    from cosmic.base import units  # noqa: PLC0415  heavy
    from cosmic.base.errors import SpecError  # noqa: PLC0415
    from cosmic.search.cluster_sizing import Question, read_amount, read_days  # noqa: PLC0415

    length = units.read_count(tokens)
    if length is None:
        try:
            length = float(tokens.replace(",", ""))
        except ValueError:
            raise SpecError("--tokens", tokens, "write a number of tokens, such as 15T") from None
    return Question(
        model=model,
        tokens=length,
        budget_usd=read_amount(budget, "--budget", units.USD),
        power_w=read_amount(power, "--power", units.WATTS),
        accelerators=accelerators,
        deadline_days=read_days(deadline, "--deadline"),
        objective=objective,
        overrides=overrides,
    )


# ---------------------------------------------------------------------------------------------------- data


def _data(found: Sizing, risks: list[Risk | None], effects: list[Effect]) -> dict[str, Any]:
    from dataclasses import asdict  # noqa: PLC0415

    asked = found.question
    return {
        "question": {
            "model": asked.model,
            "tokens": asked.tokens,
            "budget_usd": asked.budget_usd,
            "power_w": asked.power_w,
            "accelerators": asked.accelerators,
            "deadline_days": asked.deadline_days,
            "objective": asked.objective,
        },
        "rows": [_row_data(row, risk) for row, risk in zip(found.rows, risks, strict=True)],
        "refused": dict(found.refused),
        "tried": [
            {
                "system": each.system,
                "accelerators": each.accelerators,
                "train_days": each.metrics.train_days,
                "cost_usd": each.metrics.cost_usd,
                "power_w": each.metrics.power_w,
                "train_usd": each.metrics.train_usd,
            }
            for each in found.tried
        ],
        "enumerated": asdict(found.counted),
        "sensitivity": [asdict(effect) for effect in effects],
    }


def _row_data(row: Row, risk: Risk | None) -> dict[str, Any]:
    from dataclasses import asdict  # noqa: PLC0415

    from cosmic.design.loading import design_tree  # noqa: PLC0415

    metrics = row.best.metrics
    names = ("train_days", "goodput", "cost_usd", "power_w", "train_usd", "train_energy_j", "train_co2_kg")
    return {
        "system": row.best.system,
        "accelerators": row.best.accelerators,
        **{name: getattr(metrics, name) for name in names},
        "network_usd": metrics.network_usd,
        "mfu": metrics.mfu,
        "tokens_per_s": metrics.tokens_per_s,
        "samples_per_s": metrics.samples_per_s,
        "effective_tokens_per_s": metrics.effective_tokens_per_s,
        "bound_by": row.bound_by,
        "train_days_failures": None if risk is None else asdict(risk.failures),
        "train_days_steps": None if risk is None else asdict(risk.steps),
        "design": design_tree(row.best.point),
    }


# ---------------------------------------------------------------------------------------------------- words


def _print(
    found: Sizing, risks: list[Risk | None], effects: list[Effect], report: Path | None, out: Path | None
) -> None:
    from cosmic.report.sizing_report import (  # noqa: PLC0415  heavy
        EFFECT_COLUMNS,
        SIZING_COLUMNS,
        batch_in_words,
        counted_in_words,
        effect_cells,
        question_in_words,
        row_cells,
        sizing_verdict,
    )

    emit([question_in_words(found)])
    if found.rows:
        emit_table("", SIZING_COLUMNS, [row_cells(row, risk) for row, risk in zip(found.rows, risks, strict=True)])
    print_sentences([f"{name}: {why}" for name, why in found.refused.items()])
    if found.best is not None:
        emit(["", *sizing_verdict(found)])
    if effects:
        rows = [effect_cells(effect) for effect in effects[:SHOWN_EFFECTS]]
        emit([""])
        emit_table(f"if an input is 10 % more, for {found.rows[0].best.system}", EFFECT_COLUMNS, rows)
    print_sentences(["", *filter(None, [batch_in_words(found)]), counted_in_words(found)])
    commands = {}
    if out is not None:
        commands[f"cosmic evaluate {shlex.quote(str(out))}"] = "where the time of a step goes, and what would help"
    if report is not None:
        print_sentences([f"page: {report}"])
    if commands:
        emit_commands(commands)
