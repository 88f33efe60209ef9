"""A plain command line is read as Typer reads it, and every other one is left to Typer."""

from __future__ import annotations

import functools
import random
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer

from cosmic.cli.dispatch import COMMANDS, function_of
from cosmic.cli.plain_arguments import read_arguments, start_command

WORDS = ["llama3-8b@dgx-h100:8", "a.yaml", "tp=8", "3", "-", "--", "", "-1", "é", "a b", "--json=1", "--jso", "--help"]


def by_typer(function: Any, words: list[str]) -> dict[str, Any] | None:
    """Return the arguments with which Typer calls a command; None if it does not."""
    seen: list[dict[str, Any]] = []
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command()(functools.wraps(function)(lambda **values: seen.append(values)))
    try:
        app(words, prog_name="x", standalone_mode=False)
    except typer.BadParameter.__base__:  # type: ignore[misc]  # typer does not export it
        return None
    return seen[0] if seen else None


def commands() -> list[Any]:
    """Return the functions of all commands."""
    return [function_of(name) for name in sorted(COMMANDS)]


@pytest.mark.parametrize("function", commands(), ids=lambda each: each.__name__)
def test_both_ways_read_a_line_alike(function: Any, capsys: pytest.CaptureFixture[str]) -> None:
    options = {word for text in (help_of(function, capsys),) for word in text.replace(",", " ").split()}
    known = sorted(word for word in options if word.startswith("--") and word.replace("-", "").isalpha())
    chance, quickly = random.Random(function.__name__), 0
    for _ in range(40):
        words = chance.choices([*known, *WORDS[:3]], k=chance.randrange(5)) + chance.choices(
            WORDS, k=chance.randrange(2)
        )
        if (values := read_arguments(function, words)) is not None:
            quickly += 1
            assert values == by_typer(function, words), words
    capsys.readouterr()
    assert quickly or function.__name__ not in ("evaluate", "demo", "show")


def help_of(function: Any, capsys: pytest.CaptureFixture[str]) -> str:
    """Return what Typer prints for --help."""
    capsys.readouterr()
    by_typer(function, ["--help"])
    return capsys.readouterr().out


def example(
    name: str,
    other: Annotated[str, typer.Argument()] = "x",
) -> None:
    """A command of which one parameter says nothing about itself."""


def whole(
    design: Annotated[str, typer.Argument()],
    settings: Annotated[list[str], typer.Option("--set")] = [],  # noqa: B006
    page: Annotated[Path | None, typer.Option()] = None,
    count: Annotated[int, typer.Option()] = 3,
    plain: Annotated[bool, typer.Option("--plain")] = False,
    kept: Annotated[bool, typer.Option()] = True,
) -> int:
    """A command with parameters of every kind."""
    if plain:
        raise typer.Exit(7)
    return count


USUAL: dict[str, Any] = {"design": "d", "settings": [], "page": None, "count": 3, "plain": False, "kept": True}


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (["d"], USUAL),
        (["--set", "a=1", "d", "--set", "b=2", "--plain"], USUAL | {"settings": ["a=1", "b=2"], "plain": True}),
        (["d", "--page", "p.md"], USUAL | {"page": Path("p.md")}),
    ],
)
def test_plain_lines_are_read(words: list[str], values: dict[str, Any]) -> None:
    assert read_arguments(whole, words) == values == by_typer(whole, words)


@pytest.mark.parametrize(
    "line",
    [
        *["", "d e", "d --page", "d --page a --page b", "d --count 4", "d --no-kept", "d --plain --plain"],
        *["d --set=a", "d -x", "d --set --plain", "-- d", "d --help", "d --unknown", "dé"],
    ],
)
def test_all_others_are_left_to_typer(line: str) -> None:
    assert read_arguments(whole, line.split()) is None
    assert read_arguments(whole, ["d", "--set", ""]) is None


def test_a_parameter_that_says_nothing_about_itself_is_left_to_typer() -> None:
    assert read_arguments(example, ["a"]) is None


def test_defaults_are_not_shared() -> None:
    first, second = read_arguments(whole, ["d"]), read_arguments(whole, ["d"])
    assert first is not None
    assert second is not None
    assert first["settings"] is not second["settings"]


def test_an_exit_is_a_status() -> None:
    assert start_command(whole, ["d"]) == (True, 3)
    assert start_command(whole, ["d", "--plain"]) == (True, 7)
    assert start_command(whole, ["--nothing"]) == (False, None)
    assert start_command(example, ["d"]) == (False, None)


def test_an_evaluation_loads_no_library_that_it_does_not_need() -> None:
    script = (
        "import sys; from cosmic.cli.dispatch import main\n"
        "try: main(['evaluate', 'llama3-8b@dgx-h100:8', '--json'])\n"
        "except SystemExit as done: assert not done.code\n"
        "unused = {'pydantic', 'rich', 'scipy', 'sklearn', 'pandas', 'fastapi', 'asyncio'} & {*sys.modules}\n"
        "sys.exit(str(unused) if unused else 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
