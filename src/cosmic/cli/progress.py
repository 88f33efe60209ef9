"""One line on a terminal that says how far a command is; nothing at all where standard error is none.

Any command that is silent for a second is spoken for: the line then says what it is doing, and for how long. A command
that knows more draws a `StatusLine`, and the line is gone before anything else is printed.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from types import TracebackType
from typing import Self

INTERVAL_S = 0.2
"""How often a line is drawn anew."""
PATIENCE_S = 1.0
"""How long a command may be silent."""
ERASE = "\r\x1b[K"
USUAL_COLUMNS = 80


def is_shown() -> bool:
    """Return whether there is a terminal on standard error that can redraw a line."""
    return sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def cut(text: str, columns: int) -> str:
    """Return *text* so short that the terminal does not break it: a broken line cannot be drawn anew.

    >>> cut("3 of 10 trials", 8)
    '3 of 10…'
    """
    return text if len(text) <= columns else f"{text[: columns - 1]}…"


def _draw(text: str) -> None:
    try:
        columns = os.get_terminal_size(sys.stderr.fileno()).columns or USUAL_COLUMNS
    except (OSError, ValueError):
        columns = USUAL_COLUMNS
    sys.stderr.write(f"{ERASE}{cut(text, columns - 1)}")
    sys.stderr.flush()


class StatusLine:
    """The line of a command that knows how far it is."""

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
        """Make room for what comes next."""
        if self._shown:
            sys.stderr.write(ERASE)
            sys.stderr.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()


class Patience:
    """Speaks for a command that has been silent for a second, from a thread of its own, until the command speaks."""

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
        """Be silent from now on, and leave the line empty."""
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
        sys.stderr.write(ERASE)
        sys.stderr.flush()


_waiting: list[Patience] = []  # at most one: a terminal has one last line


def doing(text: str) -> None:
    """Say what the command does from here on, should it take long."""
    for each in _waiting:
        each.doing = text


def hush() -> None:
    """End what speaks for the command: it is about to speak for itself."""
    for each in list(_waiting):
        each.end()
