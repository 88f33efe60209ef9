"""`cosmic tournament`: agents compared on one space."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from cosmic.cli import candidates
from cosmic.cli.console import Json, Limits, Stacks, StatusLine, emit_json, emit_table, new_app, say
from cosmic.cli.evaluate import seconds
from cosmic.cli.studies import separate, worth

app = new_app()
AGAINST = {
    "exhaustive": "the exhaustive optimum",
    "proven": "the proven optimum",
    "found": "the best that any agent found",
}
NATIVE = "random,genetic,ant_colony,annealing,policy"


@app.command()
def tournament(  # noqa: PLR0913, PLR0917  one option each
    space: Annotated[
        str, typer.Argument(help="A space of the catalog or a YAML file.", autocompletion=candidates.spaces)
    ],
    agents: Annotated[
        str,
        typer.Option(
            help="The agents, separated by commas; with settings as in genetic(population=64).",
            autocompletion=candidates.several(candidates.agents),
        ),
    ] = NATIVE,
    trials: Annotated[int, typer.Option("-n", "--trials", min=1, help="Designs that each search may evaluate.")] = 1000,
    seeds: Annotated[int, typer.Option(min=1, help="Searches of each agent: seeds 0, 1, …")] = 5,
    objective: Annotated[list[str], typer.Option(help="A metric to optimise.", autocompletion=candidates.metrics)] = [],  # noqa: B006  typer copies it
    constraint: Limits = [],  # noqa: B006
    stacks: Stacks = "",
    engine: Annotated[
        str, typer.Option(help="analytic or event.", autocompletion=candidates.one_of("analytic", "event"))
    ] = "analytic",
    prove: Annotated[
        bool, typer.Option("--prove", help="Prove the optimum of a large space, and state regret against it.")
    ] = False,
    json: Json = False,
) -> None:
    """Let agents search the same space with the same budget, and rank them by regret."""
    from cosmic.exploration.agent import separate_agents  # noqa: PLC0415  heavy
    from cosmic.exploration.inputs import Options  # noqa: PLC0415  heavy
    from cosmic.exploration.tournament import hold_tournament  # noqa: PLC0415  heavy
    from cosmic.psa.files import load_space  # noqa: PLC0415  heavy

    options = Options(
        trials=trials, objectives=objective, constraints=constraint, stacks=separate(stacks), engine=engine
    )
    rivals = separate_agents(agents)
    with StatusLine() as line:

        def announce(agent: str, seed: int) -> None:
            done = seed * len(rivals) + rivals.index(agent)
            line.show(f"search {done + 1:,} of {seeds * len(rivals):,}: {agent}, seed {seed}")

        board = hold_tournament(
            load_space(space), rivals, seeds=seeds, options=options, watch=announce, prove=_proven if prove else None
        )
    rows = board.rows()
    if json:
        emit_json(
            {
                "space": space,
                "objective": board.objective,
                "trials": trials,
                "optimum": board.optimum,
                "leaderboard": rows,
                "entries": [_entry(standing.agent, each) for standing in board.standings for each in standing.entries],
            }
        )
        return
    against = AGAINST[board.optimum]
    say([f"{space}: {trials:,} trials for each of {seeds} seeds, {board.objective}; regret is against {against}", ""])
    names = ["agent", "median", "regret", "worst", "within 2 %", "trials to 5 %", "time", "winners checked"]
    emit_table("", names, [_line(board.objective, row) for row in rows])


def _proven(problem: Any) -> float | None:
    from cosmic.certifying.certifying import proven_loss  # noqa: PLC0415  heavy

    return proven_loss(problem)


def _line(objective: str, row: dict[str, Any]) -> list[Any]:
    near = row["trials_to_5_percent"]
    return [
        row["agent"],
        worth(objective, row["median"]),
        f"{100 * row['regret_mean']:.2f} %",
        f"{100 * row['regret_worst']:.2f} %",
        f"{row['within_2_percent']} of {row['seeds']}",
        "-" if near is None else f"{near:,.0f}",
        seconds(row["elapsed_s"]),
        row["checked"],
    ]


def _entry(agent: str, entry: Any) -> dict[str, Any]:
    course = entry.course
    return {
        "agent": agent,
        "seed": course.seed,
        "loss": course.best,
        "point": entry.point,
        "checked": entry.checked,
        "elapsed_s": entry.elapsed_s,
    }
