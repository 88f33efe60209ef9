"""`cosmic fleet`: several jobs on one cluster."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cosmic.cli.candidates import one_of, systems
from cosmic.cli.console import Json, doing, emit, emit_json, emit_table, new_app, plot_columns, say
from cosmic.cli.exit_codes import FAILED
from cosmic.files import check_writable, write_text

if TYPE_CHECKING:
    from cosmic.fleets.result import Fleet, JobResult

app = new_app()
MOST_JOBS = 40
"""Jobs that are listed in a terminal; JSON and pages have all."""


@app.command()
def fleet(  # noqa: PLR0913, PLR0917  one option each
    jobs: Annotated[str, typer.Argument(metavar="JOBS.yaml", help="A file of jobs.")],
    system: Annotated[
        str | None,
        typer.Option(metavar="SYSTEM:GPUS", help="The cluster, such as dgx-h100:512.", autocompletion=systems),
    ] = None,
    sharing: Annotated[
        str | None,
        typer.Option(
            help="space: each job has its own accelerators; time: they take turns.",
            autocompletion=one_of("space", "time"),
        ),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            help="Who is next, in space: fifo, priority or backfill.",
            autocompletion=one_of("fifo", "priority", "backfill"),
        ),
    ] = None,
    placement: Annotated[
        str | None,
        typer.Option(
            help="Where a job goes: packed, first_fit or scattered.",
            autocompletion=one_of("packed", "first_fit", "scattered"),
        ),
    ] = None,
    leaf: Annotated[int | None, typer.Option(help="Accelerators below one leaf switch.")] = None,
    oversubscription: Annotated[
        float | None, typer.Option(help="What a leaf can send up, over what its uplinks carry: 4 for 4:1.")
    ] = None,
    search: Annotated[
        bool, typer.Option("--search", help="Try every policy and placement that is not stated here.")
    ] = False,
    objective: Annotated[
        str,
        typer.Option(
            help="With --search: mean_slowdown, makespan or utilization.",
            autocompletion=one_of("mean_slowdown", "makespan", "utilization"),
        ),
    ] = "mean_slowdown",
    timeline: Annotated[
        Path | None, typer.Option(help="Write who has what when to this file, for Perfetto or Chrome.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page with chart and tables to this file.")] = None,
    json: Json = False,
) -> None:
    """Print when and where each of several jobs runs on one cluster, and what sharing costs it."""
    from cosmic.fleets.fleet import best_of  # noqa: PLC0415  heavy
    from cosmic.fleets.fleet import fleet as simulate  # noqa: PLC0415  heavy

    for option, path in (("--timeline", timeline), ("--html", html)):
        if path is not None:
            check_writable(path, option)
    given = {
        "sharing": sharing,
        "policy": policy,
        "placement": placement,
        "leaf": leaf,
        "oversubscription": oversubscription,
    }
    rules = {key: value for key, value in given.items() if value is not None}
    doing("evaluating the jobs")
    all_found = best_of(jobs, system, objective, **rules) if search else (simulate(jobs, system, **rules),)
    found = all_found[0]
    if timeline is not None:
        from cosmic.fleets.timeline import write_fleet_timeline  # noqa: PLC0415  heavy

        write_fleet_timeline(found, timeline, "--timeline")
    if html is not None:
        from cosmic.fleets.charts import page  # noqa: PLC0415  heavy
        from cosmic.reporting.page import to_html  # noqa: PLC0415  heavy

        write_text(html, to_html(page(found, all_found if search else ())), "--html")
    if json:
        emit_json(_data(found, all_found if search else (), objective if search else None))
    else:
        _print(found, all_found if search else (), objective)
    if not found.jobs:
        raise typer.Exit(FAILED)


def _data(found: Fleet, candidates: tuple[Fleet, ...], objective: str | None) -> dict[str, Any]:
    return {
        "system": found.system,
        "npus": found.npus,
        "leaf": found.leaf,
        **_choice(found),
        "jobs": [_job(job) for job in found.jobs],
        "refused": [{"name": each.name, "reasons": list(each.reasons)} for each in found.refused],
        "gangs": [asdict(gang) for gang in found.gangs],
        "timeline": [asdict(each) for each in found.intervals],
        "objective": objective,
        "candidates": [_choice(each) for each in candidates],
    }


def _choice(found: Fleet) -> dict[str, Any]:
    """Return rules and what came of them in sum."""
    return {
        "rules": asdict(found.rules) | {"oversubscription": found.oversubscription},
        "makespan_s": found.makespan_s,
        "utilization": found.utilization,
        "mean_slowdown": found.mean_slowdown,
        "max_slowdown": found.max_slowdown,
        "fairness": found.fairness,
    }


def _job(job: JobResult) -> dict[str, Any]:
    return asdict(job) | {"wait_s": job.wait_s, "run_s": job.run_s, "slowdown": job.slowdown}


def _print(found: Fleet, candidates: tuple[Fleet, ...], objective: str) -> None:
    from cosmic.fleets.charts import CHOICES, COLUMNS, choice_of, row_of, rules_in_words, summary, text_chart  # noqa: PLC0415

    if candidates:
        emit_table("", CHOICES, [choice_of(each) for each in candidates])
        words = objective.replace("_", " ")
        emit(["", f"the best {words}, first above:"])
    if found.jobs:
        say([summary(found), rules_in_words(found), ""])
        emit_table("", COLUMNS, [row_of(job) for job in found.jobs[:MOST_JOBS]])
        more = len(found.jobs) - MOST_JOBS
        emit([f"and {more:,} more: --json and --html have all"] if more > 0 else [])
        emit(["", *text_chart(found, plot_columns())])
    waits = [job for job in found.jobs if job.waited_for == "memory"]
    if waits:
        emit(["", f"{len(waits):,} waited for memory that others hold; with 'swap' they would take turns, too"])
    for gang in found.gangs:
        rows = [[each.name, f"{100 * each.share:.2f} %", f"{100 * each.measured:.2f} %"] for each in gang.tenants]
        busy = f"{100 * gang.utilization:.1f} % of the time in use"
        emit(["", f"turns on {gang.first}-{gang.end - 1} at their fullest, played one by one: {busy}"])
        emit_table("", ["job", "share asked", "of the device time"], rows)
    if found.refused:
        emit([""])
        say([f"{each.name} cannot run: {'; '.join(each.reasons)}" for each in found.refused[:MOST_JOBS]])
