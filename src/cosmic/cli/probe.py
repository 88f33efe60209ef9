"""`cosmic probe`: the machine that it runs on, measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cosmic.cli.candidates import one_of
from cosmic.cli.console import Json, StatusLine, emit, emit_data, emit_json, new_app, say

if TYPE_CHECKING:
    from cosmic.calibrating.probing import Probed

app = new_app()
MOST_MINUTES = 60


@app.command()
def probe(
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE.csv", help="Write the measurements here, not to the screen.")
    ] = None,
    minutes: Annotated[float, typer.Option(help="Stop after about so many minutes.")] = 5.0,
    device: Annotated[
        str, typer.Option(help="cuda, or cpu to try it out.", autocompletion=one_of("cuda", "cpu"))
    ] = "cuda",
    json: Json = False,
) -> None:
    """Measure this machine with PyTorch: GEMMs, attention, memory, launches, steps; under torchrun, collectives."""
    from cosmic.calibrating.probing import as_csv  # noqa: PLC0415  imported where they are used
    from cosmic.calibrating.probing import probe as run  # noqa: PLC0415
    from cosmic.calibrating.torch_device import torch_device  # noqa: PLC0415
    from cosmic.errors import require  # noqa: PLC0415
    from cosmic.files import check_writable, write_text  # noqa: PLC0415

    require(0 < minutes <= MOST_MINUTES, "--minutes", minutes, f"must be above 0, and at most {MOST_MINUTES}")
    require(device in ("cuda", "cpu"), "--device", device, "must be cuda or cpu")
    if out is not None:
        require(out.suffix == ".csv", "--out", str(out), "must name a CSV file, ending in .csv")
        check_writable(out, "--out")
    measured = torch_device(device)
    with StatusLine() as line:
        found = run(measured, minutes, line.show)
    measured.close()
    if not measured.first:
        return
    text = as_csv(found.rows)
    if out is not None:
        write_text(out, text, "--out")
    if json:
        emit_json({"device": measured.name, "rows": list(found.rows), "left": found.left, "failed": list(found.failed)})
    elif out is None:
        emit_data(text.removesuffix("\n").split("\n"))
    else:
        _show(found, measured.name, out)


def _show(found: Probed, name: str, out: Path) -> None:
    kinds: dict[str, int] = {}
    for row in found.rows:
        kinds[row["kind"]] = kinds.get(row["kind"], 0) + 1
    emit([f"{name}: {len(found.rows)} measurements ({', '.join(f'{count} {kind}' for kind, count in kinds.items())})"])
    say(f"refused: {each}" for each in found.failed)
    if found.left:
        say([f"there was no time for {found.left} more: see --minutes"])
    emit([f"wrote {out}: cosmic calibrate {out} --out my-system.yaml"])
