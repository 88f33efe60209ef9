"""The commands of clusters: what to buy, several jobs on one cluster, the tasks of one training run.

`cosmic size` answers for a budget, a power limit or a deadline; `cosmic cluster fleet` and `cosmic cluster tasks` share
one cluster.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cosmic.base.files import check_writable, write_text
from cosmic.cli import value_completion
from cosmic.cli.console import (
    MORE,
    Json,
    Prices,
    Settings,
    emit_commands,
    emit_json,
    emit_table,
    plot_columns,
    print_sentences,
)
from cosmic.cli.output_streams import FAILED, StatusLine, complain, doing, emit
from cosmic.cli.value_completion import complete_one_of, complete_systems

if TYPE_CHECKING:
    from cosmic.cli.answers.cluster_answers import ClusterTasksAnswer
    from cosmic.cluster.fleet_jobs import Fleet
    from cosmic.search.cluster_sizing import Sizing
    from cosmic.search.fleet import SharedAccelerators


# ---- `cosmic size`: what to buy


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
        _print_sizing(sizing, report, out if sizing.best is not None else None)
    if sizing.best is None:
        raise typer.Exit(FAILED)


def _print_sizing(sizing: Sizing, report: Path | None, out: Path | None) -> None:
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


# ---- `cosmic cluster`: several jobs or tasks on one


MOST_JOBS = 40
"""Jobs that are listed in a terminal; JSON and pages have all."""


def fleet(  # noqa: PLR0913, PLR0917  one option each
    jobs: Annotated[str, typer.Argument(metavar="JOBS.yaml", help="A file of jobs.")],
    system: Annotated[
        str | None,
        typer.Option(metavar="SYSTEM:GPUS", help="The cluster, such as dgx-h100:512.", autocompletion=complete_systems),
    ] = None,
    sharing: Annotated[
        str | None,
        typer.Option(
            help="space: each job has its own accelerators; time: they take turns.",
            autocompletion=complete_one_of("space", "time"),
        ),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            help="Who is next, in space: fifo, priority or backfill.",
            autocompletion=complete_one_of("fifo", "priority", "backfill"),
        ),
    ] = None,
    placement: Annotated[
        str | None,
        typer.Option(
            help="Where a job goes: packed, first_fit or scattered.",
            autocompletion=complete_one_of("packed", "first_fit", "scattered"),
        ),
    ] = None,
    leaf: Annotated[int | None, typer.Option(help="Accelerators below one leaf switch.", rich_help_panel=MORE)] = None,
    oversubscription: Annotated[
        float | None,
        typer.Option(help="What a leaf can send up, over what its uplinks carry: 4 for 4:1.", rich_help_panel=MORE),
    ] = None,
    search: Annotated[
        bool, typer.Option("--search", help="Try every policy and placement that is not stated here.")
    ] = False,
    objective: Annotated[
        str,
        typer.Option(
            help="With --search: mean_slowdown, makespan or utilization.",
            autocompletion=complete_one_of("mean_slowdown", "makespan", "utilization"),
        ),
    ] = "mean_slowdown",
    timeline: Annotated[
        Path | None,
        typer.Option(help="Write who has what when to this file, for Perfetto or Chrome.", rich_help_panel=MORE),
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="Write a page with chart and tables to this file.", rich_help_panel=MORE)
    ] = None,
    json: Json = False,
) -> None:
    """Print when and where each of several jobs runs on one cluster, and what sharing costs it."""
    from cosmic.cluster.fleet_jobs import ComparedFleets  # noqa: PLC0415  heavy
    from cosmic.search.fleet import best_of  # noqa: PLC0415  heavy
    from cosmic.search.fleet import fleet as simulate  # noqa: PLC0415  heavy

    for option, path in (("--timeline", timeline), ("--html", html)):
        if path is not None:
            check_writable(path, option)
    stated_rules = {
        "sharing": sharing,
        "policy": policy,
        "placement": placement,
        "leaf": leaf,
        "oversubscription": oversubscription,
    }
    rules = {key: value for key, value in stated_rules.items() if value is not None}
    doing("evaluating the jobs")
    all_found = best_of(jobs, system, objective, **rules) if search else (simulate(jobs, system, **rules),)
    schedule = all_found[0]
    if timeline is not None:
        from cosmic.report.fleet_charts import write_fleet_timeline  # noqa: PLC0415  heavy

        write_fleet_timeline(schedule, timeline, "--timeline")
    if html is not None:
        from cosmic.report.fleet_charts import fleet_page  # noqa: PLC0415  heavy
        from cosmic.report.page import to_html  # noqa: PLC0415  heavy

        write_text(html, to_html(fleet_page(schedule, all_found if search else ())), "--html")
    if json:
        emit_json(ComparedFleets(schedule, objective, all_found) if search else ComparedFleets(schedule))
    else:
        _print_fleet(schedule, all_found if search else (), objective)
    if not schedule.jobs:
        raise typer.Exit(FAILED)


def _print_fleet(schedule: Fleet, candidates: tuple[Fleet, ...], objective: str) -> None:
    from cosmic.report.fleet_charts import (  # noqa: PLC0415
        JOB_COLUMNS,
        RULES_COLUMNS,
        fleet_text_chart,
        job_cells,
        rules_cells,
        rules_in_words,
        summarise_fleet,
    )

    if candidates:
        emit_table("", RULES_COLUMNS, [rules_cells(candidate) for candidate in candidates])
        words = objective.replace("_", " ")
        emit(["", f"the best {words}, first above:"])
    if schedule.jobs:
        print_sentences([summarise_fleet(schedule), rules_in_words(schedule), ""])
        emit_table("", JOB_COLUMNS, [job_cells(job) for job in schedule.jobs[:MOST_JOBS]])
        more = len(schedule.jobs) - MOST_JOBS
        emit([f"and {more:,} more: --json and --html have all"] if more > 0 else [])
        emit(["", *fleet_text_chart(schedule, plot_columns())])
    waits = [job for job in schedule.jobs if job.waited_for == "memory"]
    if waits:
        emit(["", f"{len(waits):,} waited for memory that others hold; with 'swap' they would take turns, too"])
    for gang in schedule.gangs:
        rows = [
            [tenant.name, f"{100 * tenant.share:.2f} %", f"{100 * tenant.measured:.2f} %"] for tenant in gang.tenants
        ]
        busy = f"{100 * gang.utilization:.1f} % of the time in use"
        emit(["", f"turns on {gang.first}-{gang.end - 1} at their fullest, played one by one: {busy}"])
        emit_table("", ["job", "share asked", "of the device time"], rows)
    if schedule.refused:
        emit([""])
        print_sentences([f"{each.name} cannot run: {'; '.join(each.reasons)}" for each in schedule.refused[:MOST_JOBS]])


def tasks(
    design: Annotated[
        str,
        typer.Argument(
            metavar="MODEL@SYSTEM",
            help="The model and the system, without a size.",
            autocompletion=value_completion.complete_designs,
        ),
    ],
    batch: Annotated[list[int], typer.Option(metavar="SAMPLES", help="Batch of a task; once for each task.")],
    npus: Annotated[list[int], typer.Option(metavar="N", help="Accelerators in all; several are compared.")],
    unit: Annotated[int, typer.Option(metavar="N", help="Accelerators that are given at a time: 8 for nodes.")] = 1,
    settings: Settings = [],  # noqa: B006  typer copies it
    json: Json = False,
) -> None:
    """Print how many accelerators each task of a multi-task run gets, and how fast the run is."""
    from cosmic.design.loading import parse_overrides  # noqa: PLC0415  heavy
    from cosmic.search.fleet import share_among_tasks  # noqa: PLC0415  heavy
    from cosmic.simulate.metrics import Infeasible  # noqa: PLC0415  heavy

    outcomes = share_among_tasks(design, batch=batch, npus=npus, unit=unit, settings=parse_overrides(settings))
    refused = {count: outcome.reasons for count, outcome in outcomes.items() if isinstance(outcome, Infeasible)}
    divisions = [outcome for outcome in outcomes.values() if not isinstance(outcome, Infeasible)]
    if json:
        answer: ClusterTasksAnswer = {
            "design": design,
            "shared": divisions,
            "infeasible": [{"npus": count, "reasons": reasons} for count, reasons in refused.items()],
        }
        emit_json(answer)
    else:
        complain(
            f"cosmic cluster tasks: {count} accelerators: {'; '.join(reasons)}" for count, reasons in refused.items()
        )
    if not divisions:
        raise typer.Exit(FAILED)
    if not json:
        _print_tasks(batch, divisions)


def _print_tasks(batch: list[int], divisions: list[SharedAccelerators]) -> None:
    emit_table(
        f"tasks with batches of {', '.join(map(str, batch))}",
        ["NPUs", "for each task", "samples on the fullest", "step s", "samples/s", "samples/s a NPU"],
        [_task_line(each) for each in divisions],
    )
    best = max(divisions, key=lambda each: each.samples_per_s_per_npu)
    emit(["", f"Most for each accelerator: {best.npus}, {_given(best)}."])


def _given(shares: SharedAccelerators) -> str:
    return "/".join(str(task.npus) for task in shares.tasks)


def _task_line(shares: SharedAccelerators) -> list[object]:
    most = max(task.samples for task in shares.tasks)
    rates = (f"{shares.samples_per_s:.1f}", f"{shares.samples_per_s_per_npu:.1f}")
    return [shares.npus, _given(shares), most, f"{shares.step_s:.3f}", *rates]
