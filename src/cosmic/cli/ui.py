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
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port to listen on; 0 takes a free one.")] = 0,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the address.")] = False,
    json: Json = False,
) -> None:
    """Serve a page, to this machine only, that shows studies as they grow, starts searches and changes designs.

    Ctrl-C ends it with status 0; searches that were started on the page are interrupted and can be resumed.
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
        emit([f"studies of {directory}, served to this machine only:", f"  {keys.address}", "", "Ctrl-C ends it."])
    if not no_browser:
        webbrowser.open(keys.address)
    with suppress(KeyboardInterrupt):  # uvicorn ends cleanly, then raises the signal again
        server.run()
