"""Standard output, which may go away or know only ASCII: apart from `cosmic.cli.console`, as help needs no library."""

from __future__ import annotations

import codecs
import sys
from collections.abc import Iterable

from cosmic.cli.progress import hush

PIPE_CLOSED, UNWRITTEN = 141, 1
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
"""What stands for a letter where it cannot be shown; others are written as escapes."""


def emit(lines: Iterable[str]) -> None:
    """Print lines; a reader that goes away (``| head``) ends the command, not with a traceback."""
    hush()
    try:
        for line in lines:
            sys.stdout.write(line + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        sys.stdout = None  # nothing is left to flush to
        sys.exit(PIPE_CLOSED)
    except OSError as error:
        sys.stdout = None
        sys.stderr.write(f"cosmic: standard output: cannot be written: {error.strerror}\n")
        sys.exit(UNWRITTEN)


def speaks_unicode() -> bool:
    """Return whether standard output can show bars and dots."""
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    try:
        "█⣿×·".encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def spell_out() -> None:
    """Let streams that cannot show a letter print something that stands for it: no text may end a command."""
    codecs.register_error("cosmic", _plain)
    for stream in (sys.stdout, sys.stderr):
        encoding = (getattr(stream, "encoding", None) or "").lower().replace("-", "").replace("_", "")
        if encoding and not encoding.startswith("utf") and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="cosmic")


def _plain(error: UnicodeError) -> tuple[str, int]:
    r"""Return what stands for letters that cannot be shown, and where to go on.

    >>> codecs.register_error("cosmic", _plain)
    >>> "2.31× … Zoë".encode("ascii", "cosmic")
    b'2.31x ... Zo\\xeb'
    """
    if not isinstance(error, UnicodeEncodeError):
        raise error
    letters = error.object[error.start : error.end]
    spelled = (PLAIN.get(letter) or letter.encode("ascii", "backslashreplace").decode() for letter in letters)
    return "".join(spelled), error.end
