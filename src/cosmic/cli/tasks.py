"""`cosmic tasks`: accelerators shared out among the tasks of one training run."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from cosmic.cli import candidates
from cosmic.cli.console import Json, Settings, complain, emit, emit_json, emit_table, new_app
from cosmic.cli.exit_codes import FAILED
from cosmic.errors import require

if TYPE_CHECKING:
    from cosmic.fleets.multitask import Shared

app = new_app()


@app.command()
def tasks(
    design: Annotated[
        str,
        typer.Argument(
            metavar="MODEL@SYSTEM", help="The model and the system, without a size.", autocompletion=candidates.designs
        ),
    ],
    batch: Annotated[list[int], typer.Option(metavar="SAMPLES", help="Batch of a task; once for each task.")],
    npus: Annotated[list[int], typer.Option(metavar="N", help="Accelerators in all; several are compared.")],
    unit: Annotated[int, typer.Option(metavar="N", help="Accelerators that are given at a time: 8 for nodes.")] = 1,
    settings: Settings = [],  # noqa: B006  typer copies it
    json: Json = False,
) -> None:
    """Print how many accelerators each task of a multi-task run gets, and how fast the run is."""
    from cosmic.fleets.multitask import share_out, shared  # noqa: PLC0415  heavy
    from cosmic.loading.designs import parse_overrides  # noqa: PLC0415  heavy
    from cosmic.metrics import Infeasible  # noqa: PLC0415  heavy

    require(bool(batch), "batch", batch, "must be given once for each task")
    require(bool(npus), "npus", npus, "must be given")
    overrides = parse_overrides(settings)
    given = {count: share_out(batch, count, unit) for count in npus}
    outcomes = {count: shared(design, batch, parts, overrides) for count, parts in given.items()}
    refused = {count: each.reasons for count, each in outcomes.items() if isinstance(each, Infeasible)}
    found = [each for each in outcomes.values() if not isinstance(each, Infeasible)]
    if json:
        cannot = [{"npus": count, "reasons": list(reasons)} for count, reasons in refused.items()]
        emit_json({"design": design, "shared": [asdict(each) for each in found], "infeasible": cannot})
    else:
        complain(f"cosmic tasks: {count} accelerators: {'; '.join(reasons)}" for count, reasons in refused.items())
    if not found:
        raise typer.Exit(FAILED)
    if not json:
        _show(batch, found)


def _show(batch: list[int], found: list[Shared]) -> None:
    emit_table(
        f"tasks with batches of {', '.join(map(str, batch))}",
        ["NPUs", "for each task", "samples on the fullest", "step s", "samples/s", "samples/s a NPU"],
        [_line(each) for each in found],
    )
    best = max(found, key=lambda each: each.samples_per_s_per_npu)
    emit(["", f"Most for each accelerator: {best.npus}, {_given(best)}."])


def _given(found: Shared) -> str:
    return "/".join(str(each.npus) for each in found.tasks)


def _line(found: Shared) -> list[object]:
    most = max(each.samples for each in found.tasks)
    rates = (f"{found.samples_per_s:.1f}", f"{found.samples_per_s_per_npu:.1f}")
    return [found.npus, _given(found), most, f"{found.step_s:.3f}", *rates]
