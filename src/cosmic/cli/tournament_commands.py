"""`cosmic study tournament`: agents compared on one space; `cosmic study leaderboard`: a kept board of agents and designs.

Every entry of a board is evaluated again before it counts.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from cosmic.base.errors import require
from cosmic.cli import value_completion
from cosmic.cli.console import MORE, Json, Limits, Stacks, emit_json, emit_table, format_seconds, print_sentences
from cosmic.cli.output_streams import StatusLine, emit
from cosmic.cli.search_output import format_metric, split_values

if TYPE_CHECKING:
    from cosmic.cli.answers.study_answers import (
        LeaderboardAnswer,
        LeaderboardRules,
        TournamentAgentRow,
        TournamentAnswer,
        TournamentSearchRow,
    )
    from cosmic.search.leaderboard import BoardRules, TournamentEntry

# --------------------------------------------------------------------------------------
# `cosmic study leaderboard`: a kept board of agents and designs, whose entries are evaluated again before they count
# --------------------------------------------------------------------------------------

Board = Annotated[Path, typer.Argument(help="Folder of the board.")]


def new(  # noqa: PLR0913, PLR0917  one option each
    board: Board,
    space: Annotated[
        str,
        typer.Argument(help="A space of the catalog or a YAML file.", autocompletion=value_completion.complete_spaces),
    ],
    objective: Annotated[
        str, typer.Option(help="The metric that counts.", autocompletion=value_completion.complete_metrics)
    ] = "",
    constraint: Limits = [],  # noqa: B006  typer copies it
    trials: Annotated[int, typer.Option("-n", "--trials", min=1, help="Designs that each search may evaluate.")] = 1000,
    seeds: Annotated[int, typer.Option(min=1, help="Searches of each agent.")] = 5,
    json: Json = False,
) -> None:
    """Make a board for one space, objective and budget."""
    from cosmic.search.leaderboard import make_board  # noqa: PLC0415  heavy

    rules = make_board(board, space, objective=objective, constraints=tuple(constraint), trials=trials, seeds=seeds)
    if json:
        emit_json(_rules_data(board, rules))
    else:
        emit([f"{board}: {rules.objective} of {space}, {trials:,} trials for each of {seeds} seeds"])


def enter(
    board: Board,
    design: Annotated[Path | None, typer.Option(help="A design to enter, as YAML: a best.yaml of a study.")] = None,
    agent: Annotated[
        str,
        typer.Option(
            help="An agent to run and enter, with settings if it has some.",
            autocompletion=value_completion.complete_agents,
        ),
    ] = "",
    name: Annotated[str, typer.Option(help="What the entry is called on the board.")] = "",
    json: Json = False,
) -> None:
    """Evaluate a design, or run an agent, and enter it."""
    from cosmic.search.leaderboard import enter_agent, enter_design  # noqa: PLC0415  heavy

    both = f"--design {design} --agent {agent}" if design and agent else "neither"
    require(bool(design) != bool(agent), "cosmic study leaderboard enter", both, "give a --design or an --agent")
    if design is not None:
        enter_design(board, name or design.stem, design)
    else:
        with StatusLine() as line:
            enter_agent(board, agent, name, lambda who, seed: line.show(f"{who}, seed {seed}"))
    _print_board(board, json)


def show(
    board: Board,
    rerun: Annotated[bool, typer.Option("--rerun", help="Run agents again, too: what they find now counts.")] = False,
    json: Json = False,
) -> None:
    """Evaluate every entry again, and rank them."""
    _print_board(board, json, rerun)


def _rules_data(board: Path, rules: BoardRules) -> LeaderboardRules:
    return {
        "board": str(board),
        "space": rules.space,
        "identity": rules.identity,
        "objective": rules.objective,
        "constraints": rules.constraints,
        "trials": rules.trials,
        "seeds": rules.seeds,
    }


def _print_board(board: Path, json: bool, rerun: bool = False) -> None:
    from cosmic.search.leaderboard import open_board, show_board  # noqa: PLC0415  heavy

    with StatusLine() as status:
        lines = show_board(board, rerun=rerun, watch=lambda who, seed: status.show(f"{who}, seed {seed}"))
    rules, _ = open_board(board)
    if json:
        answer: LeaderboardAnswer = {**_rules_data(board, rules), "lines": lines}
        emit_json(answer)
        return
    emit([f"{rules.space}: {rules.objective}, {rules.trials:,} trials for each of {rules.seeds} seeds", ""])
    rows = [
        [
            index,
            line.name,
            line.kind,
            "-" if line.value is None else format_metric(rules.objective, line.value),
            "-" if line.best is None else format_metric(rules.objective, line.best),
            "-" if line.value is None else f"{100 * line.regret:.2f} %",
            line.confirmed,
        ]
        for index, line in enumerate(lines, 1)
    ]
    emit_table("", ["place", "name", "kind", "median", "best", "regret", "confirmed"], rows)


# --------------------------------------------------------------------------------------
# `cosmic study tournament`: agents compared on one space
# --------------------------------------------------------------------------------------

AGAINST = {
    "exhaustive": "the exhaustive optimum",
    "proven": "the proven optimum",
    "found": "the best that any agent found",
}
NATIVE = "random,genetic,ant_colony,annealing,policy"


def tournament(  # noqa: PLR0913, PLR0917  one option each
    space: Annotated[
        str,
        typer.Argument(help="A space of the catalog or a YAML file.", autocompletion=value_completion.complete_spaces),
    ],
    agents: Annotated[
        str,
        typer.Option(
            help="The agents, separated by commas; with settings as in genetic(population=64).",
            autocompletion=value_completion.complete_several(value_completion.complete_agents),
        ),
    ] = NATIVE,
    trials: Annotated[int, typer.Option("-n", "--trials", min=1, help="Designs that each search may evaluate.")] = 1000,
    seeds: Annotated[int, typer.Option(min=1, help="Searches of each agent: seeds 0, 1, …")] = 5,
    objective: Annotated[
        list[str],
        typer.Option(
            help="A metric to optimise.", autocompletion=value_completion.complete_metrics, rich_help_panel=MORE
        ),
    ] = [],  # noqa: B006  typer copies it
    constraint: Limits = [],  # noqa: B006
    stacks: Stacks = "",
    engine: Annotated[
        str,
        typer.Option(
            help="analytic or event.",
            autocompletion=value_completion.complete_one_of("analytic", "event"),
            rich_help_panel=MORE,
        ),
    ] = "analytic",
    prove: Annotated[
        bool,
        typer.Option(
            "--prove", help="Prove the optimum of a large space, and state regret against it.", rich_help_panel=MORE
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Let agents search the same space with the same budget, and rank them by regret."""
    from cosmic.search.agent import separate_agents  # noqa: PLC0415  heavy
    from cosmic.search.leaderboard import hold_tournament  # noqa: PLC0415  heavy
    from cosmic.search.search_inputs import Options  # noqa: PLC0415  heavy
    from cosmic.search.space.space_files import load_space  # noqa: PLC0415  heavy

    options = Options(
        trials=trials, objectives=objective, constraints=constraint, stacks=split_values(stacks), engine=engine
    )
    rivals = separate_agents(agents)
    with StatusLine() as line:

        def announce(agent: str, seed: int) -> None:
            done = seed * len(rivals) + rivals.index(agent)
            line.show(f"search {done + 1:,} of {seeds * len(rivals):,}: {agent}, seed {seed}")

        board = hold_tournament(
            load_space(space),
            rivals,
            seeds=seeds,
            options=options,
            watch=announce,
            prove=_proven_best if prove else None,
        )
    rows = cast("list[TournamentAgentRow]", board.rows())
    if json:
        answer: TournamentAnswer = {
            "space": space,
            "objective": board.objective,
            "trials": trials,
            "optimum": board.optimum,
            "leaderboard": rows,
            "entries": [
                _agent_data(standing.agent, entry) for standing in board.standings for entry in standing.entries
            ],
        }
        emit_json(answer)
        return
    against = AGAINST[board.optimum]
    print_sentences(
        [f"{space}: {trials:,} trials for each of {seeds} seeds, {board.objective}; regret is against {against}", ""]
    )
    names = ["agent", "median", "regret", "worst", "within 2 %", "trials to 5 %", "time", "winners checked"]
    emit_table("", names, [_agent_line(board.objective, row) for row in rows])


def _proven_best(problem: Any) -> float | None:
    from cosmic.search.certify.certifying import proven_loss  # noqa: PLC0415  heavy

    return proven_loss(problem)


def _agent_line(objective: str, row: TournamentAgentRow) -> list[Any]:
    near = row["trials_to_5_percent"]
    return [
        row["agent"],
        format_metric(objective, row["median"]),
        f"{100 * row['regret_mean']:.2f} %",
        f"{100 * row['regret_worst']:.2f} %",
        f"{row['within_2_percent']} of {row['seeds']}",
        "-" if near is None else f"{near:,.0f}",
        format_seconds(row["elapsed_s"]),
        row["checked"],
    ]


def _agent_data(agent: str, entry: TournamentEntry) -> TournamentSearchRow:
    course = entry.course
    return {
        "agent": agent,
        "seed": course.seed,
        "loss": course.best,
        "point": entry.point,
        "checked": entry.checked,
        "elapsed_s": entry.elapsed_s,
    }
