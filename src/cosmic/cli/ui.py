"""`cosmic ui`: the live page."""

from __future__ import annotations

import webbrowser
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from cosmic.cli.console import Json, emit, emit_json, new_app

app = new_app()
RUNS = Path("runs")


@app.command()
def ui(
    directory: Annotated[Path, typer.Argument(metavar="[DIR]", help="The directory that holds studies.")] = RUNS,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Where to listen; 0 takes a port that is free.")] = 0,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the address.")] = False,
    json: Json = False,
) -> None:
    """Show studies as they grow, start searches and change designs, on a page for this machine alone.

    Ends with Ctrl-C, and status 0: searches that were begun on the page are interrupted, and can be resumed.
    """
    from cosmic.exploration.extras import needs  # noqa: PLC0415  heavy

    for module in ("fastapi", "uvicorn"):
        needs(module, "web", "ui", where="command")
    from cosmic.live.paths import Root  # noqa: PLC0415  heavy
    from cosmic.live.server import opened  # noqa: PLC0415  heavy

    server = opened(Root.at(directory), port)
    keys = server.site.keys
    if json:
        emit_json({"url": keys.address, "port": keys.port, "directory": str(directory)})
    else:
        emit([f"studies of {directory}, for this machine alone:", f"  {keys.address}", "", "Ctrl-C ends it."])
    if not no_browser:
        webbrowser.open(keys.address)
    with suppress(KeyboardInterrupt):  # uvicorn has ended cleanly, and raises the signal again
        server.run()
