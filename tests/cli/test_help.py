"""Help fits a screen, and --help-all has every option."""

from __future__ import annotations

import pytest
import typer

from cosmic.cli.console import MORE
from cosmic.cli.dispatch import COMMANDS, app_of
from tests.commands import output

ROWS, COLUMNS = 30, 80


def test_the_front_page_fits_a_screen(capsys: pytest.CaptureFixture[str]) -> None:
    lines = output(capsys).splitlines()
    assert len(lines) <= ROWS
    assert max(map(len, lines)) <= COLUMNS


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_a_screen_and_help_all_has_every_option(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    short, full = (output(capsys, *command.split(), word).splitlines() for word in ("--help", "--help-all"))
    assert len(short) <= ROWS
    assert max(map(len, short)) <= COLUMNS
    parameters = [each for each in typer.main.get_command(app_of(command)).params if each.param_type_name == "option"]
    more = [each for each in parameters if getattr(each, "rich_help_panel", None) == MORE]
    words = set("\n".join(full).replace(",", " ").split())
    assert {name for each in parameters for name in each.opts} <= words
    assert not {name for each in more for name in each.opts} & {line.split()[0] for line in short if "  --" in line}
    assert (short[-1] == f"More options: cosmic {command} --help-all") == bool(more)
    assert more or short == full
