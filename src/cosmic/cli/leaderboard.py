"""`cosmic leaderboard`: a kept board of agents and designs, whose entries are evaluated again before they count."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from cosmic.cli import candidates
from cosmic.cli.console import Json, Limits, StatusLine, emit, emit_json, emit_table, new_app
from cosmic.cli.studies import worth
from cosmic.errors import require

app = new_app("A kept board of agents and designs: every entry is evaluated again before it counts.")
Board = Annotated[Path, typer.Argument(help="Folder of the board.")]


@app.command()
def new(  # noqa: PLR0913, PLR0917  one option each
    board: Board,
    space: Annotated[
        str, typer.Argument(help="A space of the catalog or a YAML file.", autocompletion=candidates.spaces)
    ],
    objective: Annotated[str, typer.Option(help="The metric that counts.", autocompletion=candidates.metrics)] = "",
    constraint: Limits = [],  # noqa: B006  typer copies it
    trials: Annotated[int, typer.Option("-n", "--trials", min=1, help="Designs that each search may evaluate.")] = 1000,
    seeds: Annotated[int, typer.Option(min=1, help="Searches of each agent.")] = 5,
    json: Json = False,
) -> None:
    """Make a board for one space, objective and budget."""
    from cosmic.exploration.leaderboard import make_board  # noqa: PLC0415  heavy

    rules = make_board(board, space, objective=objective, constraints=tuple(constraint), trials=trials, seeds=seeds)
    if json:
        emit_json({"board": str(board), **asdict(rules)})
    else:
        emit([f"{board}: {rules.objective} of {space}, {trials:,} trials for each of {seeds} seeds"])


@app.command()
def enter(
    board: Board,
    design: Annotated[Path | None, typer.Option(help="A design to enter, as YAML: a best.yaml of a study.")] = None,
    agent: Annotated[
        str,
        typer.Option(help="An agent to run and enter, with settings if it has some.", autocompletion=candidates.agents),
    ] = "",
    name: Annotated[str, typer.Option(help="What the entry is called on the board.")] = "",
    json: Json = False,
) -> None:
    """Evaluate a design, or run an agent, and enter it."""
    from cosmic.exploration.leaderboard import enter_agent, enter_design  # noqa: PLC0415  heavy

    both = f"--design {design} --agent {agent}" if design and agent else "neither"
    require(bool(design) != bool(agent), "cosmic leaderboard enter", both, "give a --design or an --agent")
    if design is not None:
        enter_design(board, name or design.stem, design)
    else:
        with StatusLine() as line:
            enter_agent(board, agent, name, lambda who, seed: line.show(f"{who}, seed {seed}"))
    _show(board, json)


@app.command()
def show(
    board: Board,
    rerun: Annotated[bool, typer.Option("--rerun", help="Run agents again, too: what they find now counts.")] = False,
    json: Json = False,
) -> None:
    """Evaluate every entry again, and rank them."""
    _show(board, json, rerun)


def _show(board: Path, json: bool, rerun: bool = False) -> None:
    from cosmic.exploration.leaderboard import open_board, show_board  # noqa: PLC0415  heavy

    with StatusLine() as status:
        lines = show_board(board, rerun=rerun, watch=lambda who, seed: status.show(f"{who}, seed {seed}"))
    rules, _ = open_board(board)
    if json:
        emit_json({"board": str(board), **asdict(rules), "lines": [asdict(line) for line in lines]})
        return
    emit([f"{rules.space}: {rules.objective}, {rules.trials:,} trials for each of {rules.seeds} seeds", ""])
    rows = [
        [
            place,
            line.name,
            line.kind,
            "-" if line.value is None else worth(rules.objective, line.value),
            "-" if line.best is None else worth(rules.objective, line.best),
            "-" if line.value is None else f"{100 * line.regret:.2f} %",
            line.confirmed,
        ]
        for place, line in enumerate(lines, 1)
    ]
    emit_table("", ["place", "name", "kind", "median", "best", "regret", "confirmed"], rows)
