"""Standard output, which may go away: apart from `cosmic.cli.console`, as help needs no library."""

from __future__ import annotations

import sys
from collections.abc import Iterable

PIPE_CLOSED = 141


def emit(lines: Iterable[str]) -> None:
    """Print lines; a reader that goes away (``| head``) ends the command, not with a traceback."""
    try:
        for line in lines:
            sys.stdout.write(line + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        sys.stdout = None  # nothing is left to flush to
        sys.exit(PIPE_CLOSED)
