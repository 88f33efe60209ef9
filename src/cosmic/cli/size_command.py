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
    from cosmic.search.cluster_sizing import Sizing


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
        sizing = sizing.assess(sensitivity=sensitivity)
    if out is not None and sizing.best is not None:
        write_text(out, dump_design(sizing.best.best.point), "--out")
    if report is not None:
        from cosmic.report.page import to_html  # noqa: PLC0415
        from cosmic.report.sizing_report import sizing_page  # noqa: PLC0415

        write_text(report, to_html(sizing_page(sizing)), "--report")
    if json:
        emit_json(sizing)
    else:
        _print(sizing, report, out if sizing.best is not None else None)
    if sizing.best is None:
        raise typer.Exit(FAILED)


def _print(sizing: Sizing, report: Path | None, out: Path | None) -> None:
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
        emit_table("", SIZING_COLUMNS, [row_cells(row) for row in sizing.rows])
    print_sentences([f"{name}: {why}" for name, why in sizing.refused.items()])
    if sizing.best is not None:
        emit(["", *sizing_verdict(sizing)])
    if sizing.effects:
        rows = [effect_cells(effect) for effect in sizing.effects[:SHOWN_EFFECTS]]
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
