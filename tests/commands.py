"""Commands, run in this process."""

from __future__ import annotations

import pytest

from cosmic.cli.dispatch import main


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Return the exit status of a command, and what it printed on both channels."""
    with pytest.raises(SystemExit) as caught:
        main(words)
    out, err = capsys.readouterr()
    assert isinstance(caught.value.code, int)
    return caught.value.code, out, err


def output(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Return what a command that succeeds prints."""
    status, out, err = run(capsys, *words)
    assert (status, err) == (0, "")
    return out
