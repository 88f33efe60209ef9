"""`cosmic ui`: the live page."""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cosmic.base.errors import CosmicError
from cosmic.cli.console import Json, emit_json
from cosmic.cli.output_streams import emit

if TYPE_CHECKING:
    from cosmic.cli.answers.study_answers import UiAnswer
RUNS = Path("runs")
STDIN = 0


def ui(
    directory: Annotated[Path, typer.Argument(metavar="[DIR]", help="The directory that holds studies.")] = RUNS,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port to listen on; 0 takes a free one.")] = 0,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the address.")] = False,
    json: Json = False,
) -> None:
    """Serve a page, to this machine only, that shows studies as they grow, starts searches and changes designs.

    The address lets one browser in, once; Enter prints another. Ctrl-C ends it with status 0; searches that were
    started on the page are interrupted and can be resumed.
    """
    open_page(directory, port=port, browser=not no_browser, json=json)


def open_page(directory: str | Path = RUNS, *, port: int = 0, browser: bool = True, json: bool = False) -> None:
    """Serve the live page of the studies in a directory, to this machine only, until it is interrupted.

    The address is printed, as JSON if asked for; with *browser*, one is opened. Port 0 takes a free one.

        cosmic.ui("runs", browser=False)
    """
    from cosmic.search.optional_libraries import import_optional  # noqa: PLC0415  heavy

    for module in ("fastapi", "uvicorn"):
        import_optional(module, "web", "ui", where="command")
    from cosmic.report.live.access_control import LaunchFile  # noqa: PLC0415  heavy
    from cosmic.report.live.server import open_server  # noqa: PLC0415  heavy
    from cosmic.report.live.study_paths import StudyRoot  # noqa: PLC0415  heavy

    server = open_server(StudyRoot.resolve(Path(directory)), port)
    keys = server.site.keys

    def tell() -> None:
        if json:
            answer: UiAnswer = {"url": keys.address(), "port": keys.port, "directory": str(directory)}
            emit_json(answer)
        else:
            emit([f"  {keys.address()}"])

    if not json:
        emit([f"studies of {directory}, served to this machine only:"])
    tell()
    if not json:
        emit(["", "The address works once; Enter prints another, for another browser. Ctrl-C ends it."])
    if browser:
        try:
            launch = LaunchFile(keys)
        except (OSError, CosmicError) as error:
            typer.echo(f"no browser was opened: {error}", err=True)
        else:
            server.endings.append(launch.remove)
            launch.open()
    if signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:  # the terminal is closed: end as after Ctrl-C
        signal.signal(signal.SIGHUP, lambda *_: signal.raise_signal(signal.SIGTERM))
    signal.signal(signal.SIGTTIN, signal.SIG_IGN)  # in the background, to read the terminal would stop the process
    threading.Thread(target=on_enter, args=(tell,), daemon=True).start()
    with suppress(KeyboardInterrupt):  # uvicorn ends cleanly, then raises the signal again
        server.run()


def on_enter(call: Callable[[], None], source: int = STDIN) -> None:
    """Call a function for each line of input, until it ends."""
    if sys.stdin is None:
        return
    while True:
        try:
            select.select([source], [], [])
            if not (line := os.read(source, 4096)):
                return
        except BlockingIOError:
            continue
        except OSError:
            if not os.isatty(source):
                return
            time.sleep(1.0)  # in the background: the terminal is another's
            continue
        if b"\n" in line:
            call()
