"""The commands and their parameters, as Typer knows them: a new option is tried without a change here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import typer.main

from cosmic.cli.dispatch import COMMANDS, app_of


@dataclass(frozen=True)
class Parameter:
    """An argument or an option."""

    name: str
    spellings: tuple[str, ...]
    """How an option is written; empty for an argument."""
    kind: str
    """``flag``, or the name of its Python type: ``int``, ``float``, ``str``, ``Path``."""
    required: bool
    several: bool
    metavar: str
    candidates: Callable[[str], list[str]] | None
    """What a shell offers."""


@dataclass(frozen=True)
class Command:
    """A command."""

    path: tuple[str, ...]
    parameters: tuple[Parameter, ...]


@cache
def commands() -> tuple[Command, ...]:
    """Return every command."""
    return tuple(
        Command(tuple(name.split()), tuple(map(_parameter, typer.main.get_command(app_of(name)).params)))
        for name in COMMANDS
    )


def _parameter(given: Any) -> Parameter:
    options = tuple(each for each in (*given.opts, *given.secondary_opts) if each.startswith("-"))
    return Parameter(
        name=given.name,
        spellings=options,
        kind="flag" if getattr(given, "is_flag", False) else _type_name(given),
        required=bool(given.required),
        several=bool(getattr(given, "multiple", False)) or given.nargs != 1,
        metavar=str(given.metavar or ""),
        candidates=_candidates(given),
    )


def _type_name(given: Any) -> str:
    """Return the type of a parameter; releases of Typer differ in how they tell it."""
    described = getattr(given, "type_descriptor", None)
    text = str(described.annotation if described is not None else getattr(given.type, "name", ""))
    for name, words in {"Path": ("path", "Path", "file"), "float": ("float",), "int": ("int",)}.items():
        if any(word in text for word in words):
            return name
    return "str"


def _candidates(given: Any) -> Callable[[str], list[str]] | None:
    described = getattr(given, "type_descriptor", None)
    found = getattr(getattr(described, "parameter_info", None), "autocompletion", None)
    return found if callable(found) else None
