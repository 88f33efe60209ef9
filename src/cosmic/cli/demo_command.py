"""`cosmic demo`: a full-stack search on a built-in example."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cosmic.cli.console import Json, emit_commands, emit_json, emit_table, new_app, print_sentences
from cosmic.cli.evaluate_command import format_seconds
from cosmic.cli.output_streams import emit
from cosmic.cli.report_command import PAGE
from cosmic.cli.search_output import (
    ProgressLine,
    best_rows,
    format_metric,
    free_folder,
    headline_of_metrics,
    write_best,
)

if TYPE_CHECKING:
    from cosmic.search.search_verdict import Isolation


app = new_app()
SPACE, TRIALS = "qwen3-235b-256-h100", 20_000
PAPER, OF_PAPER = "cosmic-1024-full-stack", 50_000
"""COSMIC's own experiment, and the designs that find its best."""
RUNS = Path("runs")


@app.command()
def demo(
    paper: Annotated[bool, typer.Option("--paper", help="COSMIC's own experiment: GPT-3 on 1,024 NPUs.")] = False,
    trials: Annotated[
        int | None, typer.Option("-n", "--trials", min=10, help="Designs to evaluate [20000; of the paper 50000].")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same search.")] = 1,
    out: Annotated[Path | None, typer.Option(help="Directory of the study; by default a new one in runs/.")] = None,
    json: Json = False,
) -> None:
    """Search the full stack of a real machine, then each of its layers alone, and write a report of the best design."""
    from cosmic.report.study_report import report as publish  # noqa: PLC0415  heavy
    from cosmic.search.search_verdict import isolate_layers  # noqa: PLC0415  heavy

    folder = out or free_folder(RUNS, "demo")
    with ProgressLine() as line:
        space, usual = (PAPER, OF_PAPER) if paper else (SPACE, TRIALS)
        found = isolate_layers(space, trials=trials or usual, seed=seed, out=folder, watch=line)
        write_best(found.full_stack)
        made = publish(found.full_stack, beside=found.layers, say=line.show)
        page = made.write(folder / PAGE)
    if json:
        emit_json(
            demo_facts(found) | {"verdict": made.verdict, "study": str(found.full_stack.path), "report": str(page)}
        )
    else:
        print_sentences([made.verdict, ""])
        _print_demo(found, page)


def demo_facts(found: Isolation) -> dict[str, Any]:
    """Return what the demo found, as JSON holds it."""
    whole = found.full_stack
    return {
        "space": whole.problem.space.name,
        "objective": found.objective,
        "seed": whole.inputs.seed,
        "raw": whole.problem.space.raw,
        "valid": whole.problem.space.valid,
        "designs": found.evaluated,
        "elapsed_s": found.elapsed_s,
        "evaluations_per_s": found.evaluated / found.elapsed_s,
        "base": found.base,
        "best": whole.best,
        "searches": found.rows(),
    }


def _print_demo(found: Isolation, report: Path) -> None:
    from cosmic.search.search_verdict import choice_text  # noqa: PLC0415  heavy

    whole, space = found.full_stack, found.full_stack.problem.space
    point = space.base
    print_sentences(
        [
            f"{point.model.name} on {point.network.npus:,} × {point.compute.accelerator}:"
            f" {space.valid:,} valid designs, searched for {found.objective}",
            f"{found.evaluated:,} evaluated in {format_seconds(found.elapsed_s)} ({found.evaluated / found.elapsed_s:,.0f}/s)",
            "",
        ]
    )
    rows = [
        [
            row["searched"],
            row["valid"],
            row["evaluated"],
            format_metric("step_s", row["step_s"]),
            format_metric(found.objective, row["reward"]),
            "" if row["over_base"] is None else f"{row['over_base']:.2f}×",
            "" if row["full_stack_over_it"] is None else f"{row['full_stack_over_it']:.2f}×",
        ]
        for row in found.rows()
    ]
    names = ["searched", "valid designs", "evaluated", "step", "reward", "over base", "full stack over this"]
    emit_table("", names, rows)
    ground = whole.plateau
    if ground is None:
        return
    best = whole.trials.describe(whole.problem, ground.place)  # the design of the verdict and of the report
    print_sentences(
        ["", f"the best full stack: {headline_of_metrics(best['metrics'])}", *filter(None, [choice_text(ground)]), ""]
    )
    emit_table("", ["parameter", "base", "best"], best_rows(whole, best))
    emit(["", f"report: {report}", f"study:  {whole.path}", "", "next:"])
    emit_commands(
        {
            "cosmic search llama3-70b@dgx-h100:64": "the best mapping of your model on your machine",
            "cosmic evaluate llama3-70b@dgx-h100:512": "one design: time, memory, cost, what would help",
            f"cosmic psa show {space.name}": "what may vary here",
        }
    )
