"""`cosmic search`: the best design of a parameter set."""

from __future__ import annotations

import shlex
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from cosmic.cli import candidates
from cosmic.cli.console import Json, Limits, Stacks, emit, emit_commands, emit_json, new_app
from cosmic.cli.exit_codes import FAILED, INTERRUPTED, TERMINATED
from cosmic.cli.studies import ProgressLine, free_folder, separate, show, summary, write_best
from cosmic.errors import require

if TYPE_CHECKING:
    from cosmic.exploration.searching import Found

app = new_app()
NOTHING_RUNS = FAILED
RUNS = Path("runs")
TRIALS = 10_000


class Terminated(KeyboardInterrupt):
    """SIGTERM: the search ends as it does with Ctrl-C."""


@app.command()
def search(  # noqa: PLR0913, PLR0917  one option each
    space: Annotated[
        str,
        typer.Argument(
            help="A space of the catalog or a YAML file; not needed to --resume.", autocompletion=candidates.spaces
        ),
    ] = "",
    agent: Annotated[
        str, typer.Option(help="The search algorithm: see 'cosmic list agents'.", autocompletion=candidates.agents)
    ] = "genetic",
    trials: Annotated[int | None, typer.Option("-n", "--trials", min=1, help="Designs to evaluate [10000].")] = None,
    objective: Annotated[
        list[str],
        typer.Option(help="A metric to optimise; several for a Pareto front.", autocompletion=candidates.metrics),
    ] = [],  # noqa: B006  typer copies it
    constraint: Limits = [],  # noqa: B006
    stacks: Stacks = "",
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same search.")] = 0,
    workers: Annotated[int, typer.Option(min=1, help="Worker processes.")] = 1,
    engine: Annotated[
        str,
        typer.Option(
            help="analytic, event, or ray: closed forms on a Ray cluster.",
            autocompletion=candidates.one_of("analytic", "event", "ray"),
        ),
    ] = "analytic",
    address: Annotated[str, typer.Option(help="Ray cluster to evaluate on; 'local' starts one here.")] = "",
    batch: Annotated[int, typer.Option(min=0, help="Designs per batch; 0: the agent's own batch size.")] = 0,
    setting: Annotated[list[str], typer.Option(metavar="NAME=VALUE", help="A setting of the agent.")] = [],  # noqa: B006
    out: Annotated[Path | None, typer.Option(help="Directory of the study; by default a new one in runs/.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the study in --out.")] = False,
    json: Json = False,
) -> None:
    """Search a parameter set for the best design, and keep every trial in a study."""
    from cosmic.exploration.searching import PoolOptions, found_so_far, resume_study  # noqa: PLC0415  heavy
    from cosmic.exploration.searching import search as run  # noqa: PLC0415  heavy
    from cosmic.loading.designs import parse_overrides  # noqa: PLC0415  heavy

    require(bool(space) or resume, "SPACE", space, "name a space of the catalog or a YAML file")
    require(not resume or out is not None, "--resume", resume, "say which study: --out DIR")
    options: dict[str, Any] = {
        "agent": agent,
        "trials": trials or TRIALS,
        "objectives": objective,
        "constraints": constraint,
        "stacks": separate(stacks),
        "seed": seed,
        "batch": batch or None,
        "settings": parse_overrides(setting, "--setting"),
        "engine": "analytic" if engine == "ray" else engine,
    }
    address = address or ("local" if engine == "ray" else "")
    folder = out or free_folder(RUNS, f"{Path(space).stem}-{agent}-{seed}")
    before = signal.signal(signal.SIGTERM, _terminate)
    line, status = ProgressLine(), 0
    found: Found | None
    try:
        pool = PoolOptions(workers, address or None)
        if space:
            found = run(space, **options, workers=workers, address=pool.address, out=folder, resume=resume, watch=line)
        else:
            found = resume_study(folder, trials, pool, line)
    except KeyboardInterrupt as ended:
        found = found_so_far(folder, line.last) if line.last is not None else None  # else there is nothing new
        status = TERMINATED if isinstance(ended, Terminated) else INTERRUPTED
    finally:
        line.clear()
        signal.signal(signal.SIGTERM, before)
    if found is not None and json:
        emit_json(summary(found))
    elif found is not None and status and found.problem.engine != "analytic":
        emit(_so_far(found))  # a verdict would simulate designs again, and who interrupts does not wait
        _next(found)
    elif found is not None:
        show(found)
        _next(found)
    if not status and found is not None and found.best is None:
        status = NOTHING_RUNS
    if status:
        raise typer.Exit(status)


def _terminate(*_: object) -> NoReturn:
    raise Terminated


def _so_far(found: Found) -> list[str]:
    """Return what an interrupted search has, as far as its trials say."""
    from cosmic.reporting.words import figure  # noqa: PLC0415  heavy

    best, objective = found.best, found.problem.objectives[0]
    reached = f"best design (trial {best['trial']:,}): {figure(objective, best['metrics'][objective])}" if best else ""
    return [f"{found.trials.evaluated:,} of {found.inputs.trials:,} trials", *filter(None, [reached])]


def _next(found: Found) -> None:
    folder = shlex.quote(str(found.path))
    path = write_best(found)
    best = {f"cosmic evaluate {shlex.quote(path)}": "the best design, and what bounds it"} if path else {}
    from cosmic.publishing.trust import resume_command  # noqa: PLC0415  heavy

    on = resume_command(found)
    going = (
        {} if found.stopped == "exhausted" else {on: "continue" if found.stopped == "interrupted" else "more trials"}
    )
    emit(["", f"study: {found.path}"])
    emit_commands(
        {
            f"cosmic report {folder}": "one page: why, every trial, its timeline and cluster",
            **best,
            f"cosmic export {folder} --to trials.csv": "every trial, for a spreadsheet or pandas",
            f"cosmic importance {folder}": "which parameters matter",
            f"cosmic replay {folder} --check": "run it again and compare bit for bit",
            **going,
        }
    )
