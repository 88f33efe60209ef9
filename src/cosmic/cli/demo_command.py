"""`cosmic demo`: a full-stack search on a built-in example."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from cosmic.cli.console import Json, emit_commands, emit_json, emit_table, format_seconds, print_sentences
from cosmic.cli.output_streams import emit
from cosmic.cli.search_output import (
    ProgressLine,
    best_rows,
    format_metric,
    free_folder,
    headline_of_metrics,
    write_best,
)
from cosmic.cli.study_commands import PAGE

if TYPE_CHECKING:
    from cosmic.cli.answers.common_keys import TriedDesign
    from cosmic.cli.answers.study_answers import DemoAnswer, DemoFacts, DemoSearchRow
    from cosmic.search.search_loop import Watch
    from cosmic.search.search_verdict import Isolation
    from cosmic.simulate.metrics import DesignMetrics


SPACE, TRIALS = "qwen3-235b-256-h100", 20_000
PAPER, OF_PAPER = "cosmic-1024-full-stack", 50_000
"""COSMIC's own experiment, and the designs that find its best."""
RUNS = Path("runs")


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
    with ProgressLine() as line:
        result = run_demo(paper=paper, trials=trials, seed=seed, out=out, watch=line, progress=line.show)
    isolation = result.searches
    if json:
        answer: DemoAnswer = {
            **demo_facts(isolation),
            "verdict": result.verdict,
            "study": str(isolation.full_stack.path),
            "report": str(result.page),
        }
        emit_json(answer)
    else:
        print_sentences([result.verdict, ""])
        _print_demo(isolation, result.page)


@dataclass(frozen=True, slots=True)
class Demo:
    """A full stack searched, then each of its layers alone."""

    verdict: str
    """What was found, in a sentence."""
    searches: Isolation
    page: Path
    """The report."""


def run_demo(
    *,
    paper: bool = False,
    trials: int | None = None,
    seed: int = 1,
    out: str | Path | None = None,
    watch: Watch | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Demo:
    """Search the full stack of a real machine, then each of its layers alone, and write a report of the best design.

    With *paper*, it is COSMIC's own experiment. *trials* is how many designs are evaluated, and *out* the directory of
    the study, by default a new one in runs/.

        cosmic.demo(trials=1000, out="runs/first").verdict  # '1.9× over the base design; …'
    """
    from cosmic.report.study_report import report  # noqa: PLC0415  heavy
    from cosmic.search.search_verdict import isolate_layers  # noqa: PLC0415  heavy

    folder = free_folder(RUNS, "demo") if out is None else Path(out)
    space, usual = (PAPER, OF_PAPER) if paper else (SPACE, TRIALS)
    searches = isolate_layers(space, trials=trials or usual, seed=seed, out=folder, watch=watch)
    write_best(searches.full_stack)
    document = report(searches.full_stack, beside=searches.layers, say=progress)
    return Demo(document.verdict, searches, document.write(folder / PAGE))


def demo_facts(isolation: Isolation) -> DemoFacts:
    """Return what the demo found, as JSON holds it."""
    full_stack = isolation.full_stack
    return {
        "space": full_stack.problem.space.name,
        "objective": isolation.objective,
        "seed": full_stack.inputs.seed,
        "raw": full_stack.problem.space.raw,
        "valid": full_stack.problem.space.valid,
        "designs": isolation.evaluated,
        "elapsed_s": isolation.elapsed_s,
        "evaluations_per_s": isolation.evaluated / isolation.elapsed_s,
        "base": cast("DesignMetrics | None", isolation.base),
        "best": cast("TriedDesign | None", full_stack.best),
        "searches": cast("list[DemoSearchRow]", isolation.rows()),
    }


def _print_demo(isolation: Isolation, report: Path) -> None:
    from cosmic.search.search_verdict import choice_text  # noqa: PLC0415  heavy

    full_stack, space = isolation.full_stack, isolation.full_stack.problem.space
    point = space.base
    print_sentences(
        [
            f"{point.model.name} on {point.network.npus:,} × {point.compute.accelerator}:"
            f" {space.valid:,} valid designs, searched for {isolation.objective}",
            f"{isolation.evaluated:,} evaluated in {format_seconds(isolation.elapsed_s)} ({isolation.evaluated / isolation.elapsed_s:,.0f}/s)",
            "",
        ]
    )
    rows = [
        [
            row["searched"],
            row["valid"],
            row["evaluated"],
            format_metric("step_s", row["step_s"]),
            format_metric(isolation.objective, row["reward"]),
            "" if row["over_base"] is None else f"{row['over_base']:.2f}×",
            "" if row["full_stack_over_it"] is None else f"{row['full_stack_over_it']:.2f}×",
        ]
        for row in isolation.rows()
    ]
    names = ["searched", "valid designs", "evaluated", "step", "reward", "over base", "full stack over this"]
    emit_table("", names, rows)
    ground = full_stack.plateau
    if ground is None:
        return
    best = full_stack.trials.describe(full_stack.problem, ground.place)  # the design of the verdict and of the report
    print_sentences(
        ["", f"the best full stack: {headline_of_metrics(best['metrics'])}", *filter(None, [choice_text(ground)]), ""]
    )
    emit_table("", ["parameter", "base", "best"], best_rows(full_stack, cast("TriedDesign", best)))
    emit(["", f"report: {report}", f"study:  {full_stack.path}", "", "next:"])
    emit_commands(
        {
            "cosmic search llama3-70b@dgx-h100:64": "the best mapping of your model on your machine",
            "cosmic evaluate llama3-70b@dgx-h100:512": "one design: time, memory, cost, what would help",
            f"cosmic space show {space.name}": "what may vary here",
        }
    )
