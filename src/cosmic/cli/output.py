"""Both standard streams, which may be closed or know only ASCII. Everything a command prints goes through here.

Apart from `cosmic.cli.console`: help loads no library.
"""

from __future__ import annotations

import codecs
import json
import os
import sys
from collections.abc import Iterable
from typing import NoReturn

from cosmic.cli.exit_codes import FAILED, PIPE_CLOSED
from cosmic.cli.progress import hush, put
from cosmic.errors import one_line

LAST_STREAM = 2
"""The number of standard error, the last of the three streams."""
PLAIN = {
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
    write(map(printable, lines))


def emit_data(lines: Iterable[str]) -> None:
    """Print lines of a file, such as CSV or a script: as they are to a file or a pipe, escaped on a terminal."""
    write((printable(part) for line in lines for part in line.split("\n")) if is_terminal() else lines)


def emit_json_text(lines: Iterable[str]) -> None:
    """Print lines of JSON, with unprintable characters escaped as JSON does."""
    write(map(printable_json, lines))


def write(lines: Iterable[str]) -> None:
    """Print lines as they are; if the reader closes the pipe (``| head``), exit without a traceback."""
    hush()
    if sys.stdout is None:
        _give_up("it is closed")
    try:
        for line in lines:
            sys.stdout.write(line + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        sys.stdout = None  # or Python would try to flush it at exit
        sys.exit(PIPE_CLOSED)
    except OSError as error:
        _give_up(error.strerror or str(error))


def _give_up(why: str) -> NoReturn:
    sys.stdout = None
    complain([f"cosmic: standard output: cannot be written: {why}"])
    sys.exit(FAILED)


def complain(sentences: Iterable[str]) -> None:
    """Print sentences on standard error, each on a line; without one, they are lost."""
    hush()
    for each in sentences:
        put(f"{printable(each)}\n")


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
    codecs.register_error("cosmic", _plain)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="cosmic")
    if None in (sys.stdin, sys.stdout, sys.stderr):
        _occupy()


def _occupy() -> None:
    """Open what the caller closed: a file of ours would get its number, and what others print would go there."""
    number = os.open(os.devnull, os.O_RDWR)
    while number <= LAST_STREAM:
        number = os.open(os.devnull, os.O_RDWR)
    os.close(number)


def _plain(error: UnicodeError) -> tuple[str, int]:
    r"""Return ASCII for the characters that cannot be encoded, and where to continue.

    >>> codecs.register_error("cosmic", _plain)
    >>> "2.31× … Zoë".encode("ascii", "cosmic")
    b'2.31x ... Zo\\xeb'
    """
    if not isinstance(error, UnicodeEncodeError):
        raise error
    failed = error.object[error.start : error.end]
    plain = (PLAIN.get(each) or each.encode("ascii", "backslashreplace").decode() for each in failed)
    return "".join(plain), error.end
