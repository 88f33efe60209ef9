"""`cosmic size`: what to buy for a budget, a power limit or a deadline, and when the model is trained."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cosmic.cli import value_completion
from cosmic.cli.console import MORE, Json, Prices, Settings, emit_commands, emit_json, emit_table, print_sentences
from cosmic.cli.exit_codes import FAILED
from cosmic.cli.output_streams import StatusLine, emit

if TYPE_CHECKING:
    from cosmic.cli.answers.cluster_answers import SizeAnswer, SizedSystemRow
    from cosmic.search.cluster_sizing import Effect, Risk, Row, Sizing


SHOWN_EFFECTS = 8
"""Inputs of the table; JSON has all."""


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
    accelerators: Annotated[
        int | None, typer.Option(metavar="N", help="Most accelerators.", rich_help_panel=MORE)
    ] = None,
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
            rich_help_panel=MORE,
        ),
    ] = "train_days",
    settings: Settings = [],  # noqa: B006  typer copies it
    prices: Prices = None,
    sensitivity: Annotated[
        bool, typer.Option(help="What +10 % of each input does to the answer.", rich_help_panel=MORE)
    ] = True,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the answer as one HTML page.", rich_help_panel=MORE)
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the best design as YAML.")] = None,
    json: Json = False,
) -> None:
    """Print for each system how many to buy, the best mapping there, days, money, energy and risk."""
    from cosmic.base.files import write_text  # noqa: PLC0415  heavy imports stay in functions
    from cosmic.design.loading import dump_design, parse_overrides  # noqa: PLC0415
    from cosmic.search.cluster_sizing import measure_sensitivity as effects_of  # noqa: PLC0415
    from cosmic.search.cluster_sizing import simulate_risk  # noqa: PLC0415
    from cosmic.search.cluster_sizing import size as size_for  # noqa: PLC0415

    named = [each.strip() for each in systems.split(",")] if systems is not None else []
    with StatusLine() as line:
        sizing = size_for(
            model,
            tokens=tokens,
            budget=budget,
            power=power,
            deadline=deadline,
            accelerators=accelerators,
            systems=named,
            objective=objective,
            settings=parse_overrides(settings),
            prices=prices,
            progress=line.show,
        )
        risks = [simulate_risk(row.best.point, row.best.metrics) for row in sizing.rows]
        effects = effects_of(sizing) if sensitivity else []
    if out is not None and sizing.best is not None:
        write_text(out, dump_design(sizing.best.best.point), "--out")
    if report is not None:
        from cosmic.report.sizing_report import write_sizing  # noqa: PLC0415

        write_sizing(sizing, risks, effects, report)
    if json:
        emit_json(_data(sizing, risks, effects))
    else:
        _print(sizing, risks, effects, report, out if sizing.best is not None else None)
    if sizing.best is None:
        raise typer.Exit(FAILED)


# ---- data


def _data(sizing: Sizing, risks: list[Risk | None], effects: list[Effect]) -> SizeAnswer:
    asked = sizing.question
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
        "rows": [_row_data(row, risk) for row, risk in zip(sizing.rows, risks, strict=True)],
        "refused": dict(sizing.refused),
        "tried": [
            {
                "system": each.system,
                "accelerators": each.accelerators,
                "train_days": each.metrics.train_days,
                "cost_usd": each.metrics.cost_usd,
                "power_w": each.metrics.power_w,
                "train_usd": each.metrics.train_usd,
            }
            for each in sizing.tried
        ],
        "enumerated": sizing.counted,
        "sensitivity": effects,
    }


def _row_data(row: Row, risk: Risk | None) -> SizedSystemRow:
    from cosmic.design.loading import design_tree  # noqa: PLC0415

    metrics = row.best.metrics
    return {
        "system": row.best.system,
        "accelerators": row.best.accelerators,
        "train_days": metrics.train_days,
        "goodput": metrics.goodput,
        "cost_usd": metrics.cost_usd,
        "power_w": metrics.power_w,
        "train_usd": metrics.train_usd,
        "train_energy_j": metrics.train_energy_j,
        "train_co2_kg": metrics.train_co2_kg,
        "network_usd": metrics.network_usd,
        "mfu": metrics.mfu,
        "tokens_per_s": metrics.tokens_per_s,
        "samples_per_s": metrics.samples_per_s,
        "effective_tokens_per_s": metrics.effective_tokens_per_s,
        "bound_by": row.bound_by,
        "train_days_failures": None if risk is None else risk.failures,
        "train_days_steps": None if risk is None else risk.steps,
        "design": design_tree(row.best.point),
    }


# ---- words


def _print(
    sizing: Sizing, risks: list[Risk | None], effects: list[Effect], report: Path | None, out: Path | None
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

    emit([question_in_words(sizing)])
    if sizing.rows:
        emit_table("", SIZING_COLUMNS, [row_cells(row, risk) for row, risk in zip(sizing.rows, risks, strict=True)])
    print_sentences([f"{name}: {why}" for name, why in sizing.refused.items()])
    if sizing.best is not None:
        emit(["", *sizing_verdict(sizing)])
    if effects:
        rows = [effect_cells(effect) for effect in effects[:SHOWN_EFFECTS]]
        emit([""])
        emit_table(f"if an input is 10 % more, for {sizing.rows[0].best.system}", EFFECT_COLUMNS, rows)
    print_sentences(["", *filter(None, [batch_in_words(sizing)]), counted_in_words(sizing)])
    commands = {}
    if out is not None:
        commands[f"cosmic evaluate {shlex.quote(str(out))}"] = "where the time of a step goes, and what would help"
    if report is not None:
        print_sentences([f"page: {report}"])
    if commands:
        emit_commands(commands)
