"""Both standard streams of a command: its data on standard output, its status line and complaints on standard error.

Either may be closed or know only ASCII. Everything a command prints goes through here. What its exit status says stands
here too: the one list, for help and for the documentation.

Apart from `cosmic.cli.console`: help loads no library.

After a second of silence a thread prints what the command is doing and for how long. A command that knows its progress
draws a `StatusLine` instead. The line is erased before anything else is printed.
"""

from __future__ import annotations

import codecs
import json
import os
import sys
import threading
import time
from collections.abc import Iterable
from types import TracebackType
from typing import NamedTuple, NoReturn, Self

from cosmic.base.errors import one_line

REDRAW_INTERVAL_S = 0.2
"""Shortest time between two drawings of a line."""
PATIENCE_S = 1.0
"""How long a command may be silent."""
ERASE = "\r\x1b[K"
USUAL_COLUMNS = 80


def shows_status() -> bool:
    """Return whether there is a terminal on standard error that can redraw a line."""
    return sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def cut_to_terminal(text: str, columns: int) -> str:
    """Return *text* cut to the terminal's width: a line that wraps cannot be redrawn.

    >>> cut_to_terminal("3 of 10 trials", 8)
    '3 of 10…'
    """
    return text if len(text) <= columns else f"{text[: columns - 1]}…"


def write_to_stderr(text: str) -> None:
    """Write *text* as it is to standard error, if there is one that takes it."""
    try:
        if sys.stderr is not None:
            sys.stderr.write(text)
            sys.stderr.flush()
    except (OSError, ValueError):  # the terminal is gone, or nobody reads the pipe
        sys.stderr = None  # or Python would try to flush it at exit


def _draw_status(text: str) -> None:
    try:
        columns = os.get_terminal_size(sys.stderr.fileno()).columns or USUAL_COLUMNS
    except (AttributeError, OSError, ValueError):
        columns = USUAL_COLUMNS
    write_to_stderr(f"{ERASE}{cut_to_terminal(one_line(text), columns - 1)}")


class StatusLine:
    """The status line of a command that knows its progress."""

    def __init__(self, *, shown: bool | None = None) -> None:
        self._shown = shows_status() if shown is None else shown
        self._next = 0.0

    def show(self, text: str) -> None:
        """Draw the line, unless it was drawn just now."""
        now = time.monotonic()
        if self._shown and now >= self._next:
            erase_status()
            self._next = now + REDRAW_INTERVAL_S
            _draw_status(text)

    def clear(self) -> None:
        """Erase the line."""
        if self._shown:
            write_to_stderr(ERASE)

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
        if shows_status():
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
        while not self._ended.wait(REDRAW_INTERVAL_S):
            _draw_status(f"cosmic {self.name}: {self.doing} · {time.monotonic() - started:.0f} s")
        write_to_stderr(ERASE)


_waiting: list[Patience] = []  # at most one: a terminal has one last line


def doing(text: str) -> None:
    """Set what the status line says from here on."""
    for each in _waiting:
        each.doing = text


def erase_status() -> None:
    """Erase the status line: the command is about to print."""
    for each in list(_waiting):
        each.end()


LAST_STREAM = 2
"""The number of standard error, the last of the three streams."""
ASCII_OF = {
    **dict(zip("×·•–−—µ▁░▒▓█│┤├└─┬●○★", "x.*---u_.:+#|||+-+o0*", strict=True)),
    "…": "...",
    "≤": "<=",
    "≥": ">=",
    "→": "->",
    "←": "<-",
    "±": "+-",
    "√": "sqrt",
    "τ": "tau",
}
"""ASCII for characters that cannot be encoded; others are written as escapes."""


def emit(lines: Iterable[str]) -> None:
    """Print lines of text, with unprintable characters escaped: a name moves no cursor and adds no line."""
    write_lines_to_stdout(map(printable, lines))


def emit_data(lines: Iterable[str]) -> None:
    """Print lines of a file, such as CSV or a script: as they are to a file or a pipe, escaped on a terminal."""
    write_lines_to_stdout((printable(part) for line in lines for part in line.split("\n")) if is_terminal() else lines)


def emit_json_text(lines: Iterable[str]) -> None:
    """Print lines of JSON, with unprintable characters escaped as JSON does."""
    write_lines_to_stdout(map(printable_json, lines))


def write_lines_to_stdout(lines: Iterable[str]) -> None:
    """Print lines as they are; if the reader closes the pipe (``| head``), exit without a traceback."""
    erase_status()
    if sys.stdout is None:
        _exit_on_closed_pipe("it is closed")
    try:
        for line in lines:
            sys.stdout.write(line + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        sys.stdout = None  # or Python would try to flush it at exit
        sys.exit(PIPE_CLOSED)
    except OSError as error:
        _exit_on_closed_pipe(error.strerror or str(error))


def _exit_on_closed_pipe(why: str) -> NoReturn:
    sys.stdout = None
    complain([f"cosmic: standard output: cannot be written: {why}"])
    sys.exit(FAILED)


def complain(sentences: Iterable[str]) -> None:
    """Print sentences on standard error, each on a line; without one, they are lost."""
    erase_status()
    for sentence in sentences:
        write_to_stderr(f"{printable(sentence)}\n")


def printable(text: str) -> str:
    r"""Return *text* on one line, with unprintable characters escaped; a tab stays, as it harms no terminal.

    >>> print(printable("llama\x1b[2J"))
    llama\x1b[2J
    """
    return text if text.isprintable() else "\t".join(map(one_line, text.split("\t")))


def printable_json(text: str) -> str:
    r"""Return JSON with the unprintable characters of its strings escaped; line ends stay.

    >>> print(printable_json('{"name": "\u202e\x7f"}'))
    {"name": "\u202e\u007f"}
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each == "\n" else json.dumps(each)[1:-1] for each in text)


def is_terminal() -> bool:
    """Return whether standard output is a terminal."""
    return sys.stdout is not None and sys.stdout.isatty()


def speaks_unicode() -> bool:
    """Return whether standard output can encode bars and dots."""
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    try:
        "█⣿×·".encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def prepare_streams() -> None:
    """Make streams print ASCII for what they cannot encode, instead of raising; occupy those that are closed."""
    codecs.register_error("cosmic", _replace_by_ascii)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="cosmic")
    if None in (sys.stdin, sys.stdout, sys.stderr):
        _open_closed_streams()


def _open_closed_streams() -> None:
    """Open what the caller closed: a file of ours would get its number, and what others print would go there."""
    number = os.open(os.devnull, os.O_RDWR)
    while number <= LAST_STREAM:
        number = os.open(os.devnull, os.O_RDWR)
    os.close(number)


def _replace_by_ascii(error: UnicodeError) -> tuple[str, int]:
    r"""Return ASCII for the characters that cannot be encoded, and where to continue.

    >>> codecs.register_error("cosmic", _replace_by_ascii)
    >>> "2.31× … Zoë".encode("ascii", "cosmic")
    b'2.31x ... Zo\\xeb'
    """
    if not isinstance(error, UnicodeEncodeError):
        raise error
    failed = error.object[error.start : error.end]
    plain = (ASCII_OF.get(each) or each.encode("ascii", "backslashreplace").decode() for each in failed)
    return "".join(plain), error.end


# ---- exit status


class Meaning(NamedTuple):
    """What an exit status means."""

    short: str
    whole: str


OK, FAILED, BAD_INPUT, INTERRUPTED, PIPE_CLOSED, TERMINATED = 0, 1, 2, 130, 141, 143
MEANINGS = {
    OK: Meaning("done", "done"),
    FAILED: Meaning(
        "no feasible design or a failed check",
        "no feasible design; also a replay that differs, a damaged study, or something outside COSMIC that failed",
    ),
    BAD_INPUT: Meaning("bad input", "bad input: one sentence on standard error, *where = value: the rule*"),
    INTERRUPTED: Meaning(
        "interrupted", "interrupted with Ctrl-C; a search keeps its trials, and `--resume` continues it"
    ),
    PIPE_CLOSED: Meaning("nobody reads", "the reader of the output closed the pipe, as `head` does"),
    TERMINATED: Meaning("terminated", "a search was ended with SIGTERM; it keeps its trials, as with Ctrl-C"),
}


def in_help() -> list[str]:
    """Return the list as lines of help."""
    texts = [f"{code} {meaning.short}" for code, meaning in MEANINGS.items()]
    middle = len(texts) // 2
    return [f"Exit codes: {', '.join(texts[:middle])},", f"{', '.join(texts[middle:])}."]


def as_rows() -> list[list[str]]:
    """Return the list as rows of a table."""
    return [[str(code), meaning.whole] for code, meaning in MEANINGS.items()]
