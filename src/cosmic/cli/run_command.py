"""`cosmic run`: recipes, run, listed and replayed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from cosmic.base.errors import SpecError, require
from cosmic.cli.console import Json, emit_commands, emit_json, emit_table
from cosmic.cli.exit_codes import FAILED
from cosmic.cli.output_streams import StatusLine, complain, emit
from cosmic.cli.recipes import STORE
from cosmic.cli.search_output import split_values

if TYPE_CHECKING:
    from cosmic.cli.answers.command_answers import RecipeRunAnswer, StoredRunRow
SHOWN = 8
"""Differences of a replay that are printed; JSON has all."""


def run(  # noqa: PLR0913, PLR0917  one option each
    recipe: Annotated[Path | None, typer.Argument(metavar="[RECIPE.yaml]", help="A recipe.")] = None,
    changes: Annotated[
        list[str], typer.Option("--set", metavar="NAME=VALUE", help="Set a variable of the recipe.")
    ] = [],  # noqa: B006  typer copies it
    store: Annotated[Path, typer.Option(help="Folder of runs and of what they found.")] = Path(STORE),
    fresh: Annotated[bool, typer.Option("--fresh", help="Run every step, also those whose results are known.")] = False,
    listed: Annotated[bool, typer.Option("--list", help="List the runs of the store.")] = False,
    tags: Annotated[str, typer.Option(help="With --list: tags that runs must have, or -tag not have.")] = "",
    again: Annotated[str, typer.Option("--replay", metavar="RUN", help="Run it again, and compare.")] = "",
    json: Json = False,
) -> None:
    """Run a recipe: commands with variables and grids. What was run before is looked up."""
    sources = [name for name, value in {"RECIPE": recipe, "--list": listed, "--replay": again}.items() if value]
    require(len(sources) == 1, "cosmic run", ", ".join(sources), "give one of a recipe, --list and --replay")
    require(not tags or listed, "--tags", tags, "is for --list")
    require(not changes or recipe is not None, "--set", ", ".join(changes), "is for a recipe")
    if listed:
        _list_runs(store, split_values(tags), json)
    elif again:
        _replay_run(again, store, json)
    elif recipe is not None:
        _run_recipe(recipe, _variables_of_options(changes), store, fresh, json)


def _run_recipe(recipe: Path, changes: dict[str, Any], store: Path, fresh: bool, json: bool) -> None:
    from cosmic.cli.recipes import run_recipe  # noqa: PLC0415  heavy

    with StatusLine() as line:

        def announce(place: int, total: int, what: str, known: bool) -> None:
            line.show(f"step {place:,} of {total:,}{' (known)' if known else ''}: {what}")

        answer = cast(
            "RecipeRunAnswer", run_recipe(recipe, variables=changes, store=store, fresh=fresh, watch=announce)
        )
    if json:
        emit_json(answer)
    else:
        _print_run(answer, store)
    if answer["status"] != "ok":
        if not json:
            complain(f"cosmic run: {row['error']}" for row in answer["rows"] if row["error"])
        raise typer.Exit(FAILED)


def _print_run(answer: RecipeRunAnswer, store: Path) -> None:
    rows = answer["rows"]
    counted = f"{answer['executed']:,} steps run, {answer['cached']:,} known"
    emit([f"{answer['name']}: {len(rows):,} row{'s' if len(rows) != 1 else ''}, {counted}; run {answer['run']}", ""])
    names = list(dict.fromkeys(name for row in rows for name in (*row["variables"], *row["results"])))
    cells = [{**row["variables"], **row["results"]} for row in rows]
    if names:
        table = [
            [cell.get(name, "-") for name in names] + [row["status"]] for cell, row in zip(cells, rows, strict=True)
        ]
        emit_table("", [*names, "status"], table)
    else:
        for step in rows[0]["steps"]:
            emit([f"  {step['id']}: {step['command']}"])
    emit([""])
    where = "" if str(store) == STORE else f" --store {store}"
    emit_commands({f"cosmic run --replay {answer['run']}{where}": "run it again from nothing, and compare"})


def _list_runs(store: Path, tags: list[str], json: bool) -> None:
    from cosmic.cli.recipes import RecipeStore  # noqa: PLC0415

    keys = ("run", "name", "tags", "status", "began", "executed", "cached")
    rows = [cast("StoredRunRow", {key: run.get(key) for key in keys}) for run in RecipeStore(store).runs(tags)]
    if json:
        emit_json(rows)
        return
    if not rows:
        emit([f"no runs in {store}"])
        return
    emit_table("", list(keys), [[", ".join(v) if isinstance(v, list) else v for v in row.values()] for row in rows])


def _replay_run(run_id: str, store: Path, json: bool) -> None:
    from cosmic.cli.recipes import replay_recipe_run  # noqa: PLC0415  heavy

    comparison = replay_recipe_run(run_id, store)
    if json:
        emit_json(comparison)
    elif comparison["same"]:
        emit([f"run {comparison['run']}: the same"])
    else:
        rows = [[each["where"], each["before"], each["now"]] for each in comparison["differences"]]
        more = f", the first {SHOWN}" if len(rows) > SHOWN else ""
        emit([f"run {comparison['run']}: {len(rows):,} values differ{more}", ""])
        emit_table("", ["where", "before", "now"], rows[:SHOWN])
    if not comparison["same"]:
        raise typer.Exit(FAILED)


def _variables_of_options(changes: list[str]) -> dict[str, Any]:
    """Return variables as numbers where they look so."""
    from cosmic.design.plain_data import parse_yaml  # noqa: PLC0415

    variables: dict[str, Any] = {}
    for change in changes:
        name, equals, text = change.partition("=")
        if not (name and equals):
            raise SpecError("--set", change, "must be NAME=VALUE")
        variables[name] = parse_yaml(text, f"--set {name}")
    return variables
