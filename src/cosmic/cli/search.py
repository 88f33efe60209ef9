"""`cosmic search`: the best design of a parameter set."""

from __future__ import annotations

import re
import shlex
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from cosmic.cli import candidates
from cosmic.cli.console import Json, Limits, Prices, Settings, emit, emit_commands, emit_json, new_app
from cosmic.cli.exit_codes import FAILED, INTERRUPTED, TERMINATED
from cosmic.cli.spaces import Asked, launch_changes, searched_space, write_space
from cosmic.cli.studies import ProgressLine, free_folder, separate, show, summary, write_best
from cosmic.errors import require

if TYPE_CHECKING:
    from cosmic.exploration.searching import Found
    from cosmic.psa.space import ParameterSet

app = new_app()
NOTHING_RUNS = FAILED
RUNS = Path("runs")
AUTO = "auto"


class Terminated(KeyboardInterrupt):
    """SIGTERM: the search ends as it does with Ctrl-C."""


@app.command()
def search(  # noqa: PLR0913, PLR0917  one option each
    space: Annotated[
        str,
        typer.Argument(
            metavar="[DESIGN|SPACE]",
            help="MODEL@SYSTEM:N or a design file, whose mapping is searched; a space of the catalog or a YAML file; "
            "not needed to --resume.",
            autocompletion=candidates.designs_and_spaces,
        ),
    ] = "",
    agent: Annotated[
        str,
        typer.Option(
            help="The search algorithm: see 'cosmic list agents'. auto: every design, where there are few enough.",
            autocompletion=candidates.agents,
        ),
    ] = AUTO,
    trials: Annotated[
        int | None, typer.Option("-n", "--trials", min=1, help="Designs to evaluate [all, or 10000 of many].")
    ] = None,
    objective: Annotated[
        list[str],
        typer.Option(help="A metric to optimise; several for a Pareto front.", autocompletion=candidates.metrics),
    ] = [],  # noqa: B006  typer copies it
    constraint: Limits = [],  # noqa: B006
    stacks: Annotated[
        str,
        typer.Option(
            help="Of a space, the layers to search, all others frozen: workload,network. Of a design, what to open "
            "besides its mapping: collective,network,compute.",
            autocompletion=candidates.stacks,
        ),
    ] = "",
    settings: Settings = [],  # noqa: B006
    prices: Prices = None,
    fix: Annotated[
        list[str], typer.Option("--fix", metavar="PATH[=VALUE]", help="Of a design: hold a field of its mapping.")
    ] = [],  # noqa: B006
    vary: Annotated[
        list[str],
        typer.Option(
            "--vary", metavar="PATH=A,B,…", help="Of a design: search a field too, such as precision=bf16,fp8."
        ),
    ] = [],  # noqa: B006
    framework: Annotated[
        str,
        typer.Option(
            help="Of a design: only what megatron, torchtitan or deepspeed can launch.",
            autocompletion=candidates.one_of("megatron", "torchtitan", "deepspeed", "any"),
        ),
    ] = "",
    origin: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="FORMAT",
            help="The argument is a launch script or configuration: megatron, nemo, torchtitan or deepspeed.",
            autocompletion=candidates.one_of("deepspeed", "megatron", "nemo", "torchtitan"),
        ),
    ] = "",
    system: Annotated[
        str, typer.Option(metavar="SYSTEM", help="Of a launch: what it runs on, as in dgx-h100:64.")
    ] = "",
    model: Annotated[str, typer.Option(metavar="MODEL", help="Of a launch: the model, where its file has none.")] = "",
    define: Annotated[
        list[str], typer.Option("--define", metavar="NAME=VALUE", help="Of a launch: a variable of its script.")
    ] = [],  # noqa: B006
    save_space: Annotated[
        Path | None, typer.Option("--save-space", metavar="FILE", help="Write what is searched as a YAML space.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same search.")] = 0,
    workers: Annotated[int, typer.Option(min=1, help="Worker processes.")] = 1,
    engine: Annotated[
        str,
        typer.Option(
            help="analytic, event, ray (closed forms on a Ray cluster), or an engine that you bring.",
            autocompletion=candidates.evaluating("ray"),
        ),
    ] = "analytic",
    address: Annotated[str, typer.Option(help="Ray cluster to evaluate on; 'local' starts one here.")] = "",
    batch: Annotated[int, typer.Option(min=0, help="Designs per batch; 0: the agent's own batch size.")] = 0,
    setting: Annotated[list[str], typer.Option(metavar="NAME=VALUE", help="A setting of the agent.")] = [],  # noqa: B006
    learn: Annotated[
        list[str],
        typer.Option(
            "--learn",
            metavar="STUDY|CSV",
            help="Start from what an earlier study or a CSV file of measured runs teaches; may be repeated.",
        ),
    ] = [],  # noqa: B006
    out: Annotated[Path | None, typer.Option(help="Directory of the study; by default a new one in runs/.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the study in --out.")] = False,
    json: Json = False,
) -> None:
    """Search for the best mapping of a design, or the best design of a space, and keep every trial in a study."""
    from cosmic.exploration.searching import PoolOptions, found_so_far, resume_study  # noqa: PLC0415  heavy
    from cosmic.exploration.searching import search as run  # noqa: PLC0415  heavy
    from cosmic.exploration.verdict import best_point  # noqa: PLC0415  heavy
    from cosmic.loading.designs import parse_overrides  # noqa: PLC0415  heavy

    require(bool(space) or resume, "SPACE", space, "name MODEL@SYSTEM:N, a space of the catalog or a YAML file")
    require(not resume or out is not None, "--resume", resume, "say which study: --out DIR")
    options: dict[str, Any] = {
        "agent": agent,
        "trials": trials,
        "objectives": objective,
        "seed": seed,
        "batch": batch or None,
        "settings": parse_overrides(setting, "--setting"),
        "engine": "analytic" if engine == "ray" else engine,
        "learn": learn,
    }
    require(bool(space) or not learn, "--learn", learn, "is kept in the study that is resumed: leave it out")
    asked = Asked(
        settings,
        fix,
        vary,
        framework,
        separate(stacks),
        constraint,
        origin,
        system,
        model,
        tuple(define),
        prices,
        engine if engine not in ("analytic", "event", "ray") else "",
    )
    searched = searched_space(space, asked) if space else None
    options |= {"constraints": searched.limits, "stacks": searched.stacks} if searched else {}
    if save_space is not None:
        write_space(searched.space if searched else None, save_space)
    address = address or ("local" if engine == "ray" else "")
    folder = out or free_folder(RUNS, f"{_stem(space)}-{_agent(searched.space if searched else None, options)}-{seed}")
    before = signal.signal(signal.SIGTERM, _terminate)
    line, status = ProgressLine(), 0
    found: Found | None
    try:
        pool = PoolOptions(workers, address or None)
        if searched is not None:
            options |= {"out": folder, "resume": resume, "workers": workers, "address": pool.address}
            found = run(searched.space, **options, watch=line)
        else:
            found = resume_study(folder, trials, pool, line)
    except KeyboardInterrupt as ended:
        found = found_so_far(folder, line.last) if line.last is not None else None  # else there is nothing new
        status = TERMINATED if isinstance(ended, Terminated) else INTERRUPTED
    finally:
        line.clear()
        signal.signal(signal.SIGTERM, before)
    changes = launch_changes(searched, best_point(found)) if found is not None and origin else []
    if found is not None and json:
        write_best(found)
        emit_json(summary(found) | ({"changes": changes} if origin else {}))
    elif found is not None and status and found.problem.engine != "analytic":
        emit(_so_far(found))  # a verdict would simulate designs again, and who interrupts does not wait
        _next(found)
    elif found is not None:
        show(found)
        if origin:
            emit(["", f"what to change in {space}:" if changes else f"nothing to change in {space}", *changes])
        _next(found)
    if not status and found is not None and found.best is None:
        status = NOTHING_RUNS
    if status:
        raise typer.Exit(status)


def _agent(space: ParameterSet | None, options: dict[str, Any]) -> str:
    """Return the agent of a search by its name, also where it is chosen by the size of the set."""
    from cosmic.exploration.inputs import Options, make_inputs  # noqa: PLC0415  heavy

    return str(options["agent"]) if space is None else make_inputs(space, Options(**options)).agent


def _stem(space: str) -> str:
    """Return the name of a study's folder, from what is searched."""
    return re.sub(r"[^\w.@-]", "-", space if "@" in space else Path(space).stem)


def _terminate(*_: object) -> NoReturn:
    raise Terminated


def _so_far(found: Found) -> list[str]:
    """Return what an interrupted search has, as far as its trials say."""
    from cosmic.reporting.words import figure  # noqa: PLC0415  heavy

    best, objective = found.best, found.problem.objectives[0]
    reached = f"best design (trial {best['trial']:,}): {figure(objective, best['metrics'][objective])}" if best else ""
    return [f"{found.trials.evaluated:,} of {found.inputs.trials:,} trials", *filter(None, [reached])]


REPORTED = "why, every trial, its timeline and cluster"


def _next(found: Found) -> None:
    folder = shlex.quote(str(found.path))
    path = write_best(found)
    brought = f" --engine {shlex.quote(found.problem.engine)}" if found.problem.brought is not None else ""
    about = "the best design alone" if brought else "the best design, and what bounds it"
    best = {f"cosmic evaluate {shlex.quote(path)}{brought}": about} if path else {}
    from cosmic.exploration.verdict import best_point  # noqa: PLC0415  heavy
    from cosmic.psa.mapping_tree import launched_by  # noqa: PLC0415
    from cosmic.publishing.trust import resume_command  # noqa: PLC0415

    if (point := best_point(found)) is not None and (names := launched_by(point)):
        best |= {f"cosmic export {shlex.quote(path)} --to {name}": "its launch arguments" for name in names[:1]}
    on = resume_command(found)
    going = (
        {} if found.stopped == "exhausted" else {on: "continue" if found.stopped == "interrupted" else "more trials"}
    )
    emit(["", f"study: {found.path}"])
    emit_commands(
        {
            f"cosmic report {folder}": "one page: " + ("every trial" if brought else REPORTED),
            **best,
            f"cosmic export {folder} --to trials.csv": "every trial, for a spreadsheet or pandas",
            f"cosmic importance {folder}": "which parameters matter",
            f"cosmic replay {folder} --check": "run it again and compare bit for bit",
            **going,
        }
    )
