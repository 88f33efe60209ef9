"""The status line of a command, on standard error, if that is a terminal.

After a second of silence a thread prints what the command is doing and for how long. A command that knows its progress
draws a `StatusLine` instead. The line is erased before anything else is printed.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from types import TracebackType
from typing import Self

from cosmic.errors import one_line

INTERVAL_S = 0.2
"""Shortest time between two drawings of a line."""
PATIENCE_S = 1.0
"""How long a command may be silent."""
ERASE = "\r\x1b[K"
USUAL_COLUMNS = 80


def is_shown() -> bool:
    """Return whether there is a terminal on standard error that can redraw a line."""
    return sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def cut(text: str, columns: int) -> str:
    """Return *text* cut to the terminal's width: a line that wraps cannot be redrawn.

    >>> cut("3 of 10 trials", 8)
    '3 of 10…'
    """
    return text if len(text) <= columns else f"{text[: columns - 1]}…"


def put(text: str) -> None:
    """Write *text* as it is to standard error, if there is one that takes it."""
    try:
        if sys.stderr is not None:
            sys.stderr.write(text)
            sys.stderr.flush()
    except (OSError, ValueError):  # the terminal is gone, or nobody reads the pipe
        sys.stderr = None  # or Python would try to flush it at exit


def _draw(text: str) -> None:
    try:
        columns = os.get_terminal_size(sys.stderr.fileno()).columns or USUAL_COLUMNS
    except (AttributeError, OSError, ValueError):
        columns = USUAL_COLUMNS
    put(f"{ERASE}{cut(one_line(text), columns - 1)}")


class StatusLine:
    """The status line of a command that knows its progress."""

    def __init__(self, *, shown: bool | None = None) -> None:
        self._shown = is_shown() if shown is None else shown
        self._next = 0.0

    def show(self, text: str) -> None:
        """Draw the line, unless it was drawn just now."""
        now = time.monotonic()
        if self._shown and now >= self._next:
            hush()
            self._next = now + INTERVAL_S
            _draw(text)

    def clear(self) -> None:
        """Erase the line."""
        if self._shown:
            put(ERASE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()


class Patience:
    """Print, from a thread, what a command is doing once it has been silent for a second, until it prints itself."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.doing = "working"
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._speak, daemon=True)

    def __enter__(self) -> Self:
        if is_shown():
            _waiting.append(self)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """Stop the thread and erase the line."""
        if self in _waiting:
            _waiting.remove(self)
            self._ended.set()
            self._thread.join()

    def _speak(self) -> None:
        started = time.monotonic()
        if self._ended.wait(PATIENCE_S):
            return
        while not self._ended.wait(INTERVAL_S):
            _draw(f"cosmic {self.name}: {self.doing} · {time.monotonic() - started:.0f} s")
        put(ERASE)


_waiting: list[Patience] = []  # at most one: a terminal has one last line


def doing(text: str) -> None:
    """Set what the status line says from here on."""
    for each in _waiting:
        each.doing = text


def hush() -> None:
    """Erase the status line: the command is about to print."""
    for each in list(_waiting):
        each.end()
