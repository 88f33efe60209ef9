"""Standard output, which may be closed or know only ASCII. Apart from `cosmic.cli.console`: help loads no library."""

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
"""ASCII for characters that cannot be encoded; others are written as escapes."""


def emit(lines: Iterable[str]) -> None:
    """Print lines; if the reader closes the pipe (``| head``), exit without a traceback."""
    hush()
    try:
        for line in lines:
            sys.stdout.write(line + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        sys.stdout = None  # or Python would try to flush it at exit
        sys.exit(PIPE_CLOSED)
    except OSError as error:
        sys.stdout = None
        sys.stderr.write(f"cosmic: standard output: cannot be written: {error.strerror}\n")
        sys.exit(UNWRITTEN)


def speaks_unicode() -> bool:
    """Return whether standard output can encode bars and dots."""
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    try:
        "█⣿×·".encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def spell_out() -> None:
    """Make streams that are not UTF-8 print ASCII for what they cannot encode, instead of raising."""
    codecs.register_error("cosmic", _plain)
    for stream in (sys.stdout, sys.stderr):
        encoding = (getattr(stream, "encoding", None) or "").lower().replace("-", "").replace("_", "")
        if encoding and not encoding.startswith("utf") and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="cosmic")


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
