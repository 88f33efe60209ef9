"""What a command's exit status says: the one list, for help and for the documentation."""

from __future__ import annotations

from typing import NamedTuple


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
