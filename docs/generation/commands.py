"""The command line: every command with its options, from the applications themselves."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

from typer.models import ArgumentInfo

from cosmic.cli import dispatch
from cosmic.cli import output_streams as exit_statuses
from generation.text import ROOT, escape, fence, page, table

MOST_EXAMPLES = 6
GUIDES = ("tutorials", "how-to", "explanation")
"""Folders of docs/ whose commands are examples, in the order in which they are looked for."""
INTRODUCTION = """
Every command takes `--help`, which fits a screen; `--help-all` lists the options that are seldom needed, too. Data goes to standard output; progress, warnings and errors go to standard error. An error
is one sentence, *where = value: the rule*, with a suggestion.
"""


def make() -> str:
    """Return the page."""
    parts = []
    for heading, names in dispatch.HEADINGS.items():
        rows = [[f"[`{name}`](#cosmic-{name})", _summary(name)] for name in names]
        parts.append(f"**{heading}**\n\n{table(['command', 'what it does'], rows)}")
    words = (name for names in dispatch.HEADINGS.values() for name in names)
    return page("Command line", INTRODUCTION, *parts, exit_codes(), *map(_sections, words))


def _summary(name: str) -> str:
    return dispatch.NOUNS[name] if name in dispatch.NOUNS else dispatch.COMMANDS[name][1]


def exit_codes() -> str:
    """Return the meaning of each exit status."""
    return "## Exit status\n\n" + table(["status", "meaning"], exit_statuses.as_rows())


def _sections(name: str, level: int = 2) -> str:
    """Return the section of a command; of a noun, with those of its commands."""
    if name in dispatch.COMMANDS:
        return _section(f"cosmic {name}", dispatch.function_of(name), level)
    head = [f"{'#' * level} cosmic {name}", escape(dispatch.NOUNS[name]), fence(f"cosmic {name} COMMAND [OPTIONS]")]
    return "\n\n".join([*head, *(_sections(f"{name} {child}", level + 1) for child in dispatch.names_below(name))])


def _section(name: str, callback: Any, level: int) -> str:
    parameters = list(_parameters(callback))
    arguments = [f"{each.shown}" for each in parameters if each.positional]
    usage = fence(" ".join([name, *arguments, "[OPTIONS]"]))
    rows = [[each.names, each.value, each.default, escape(each.help)] for each in parameters]
    listed = table(["argument or option", "value", "default", "meaning"], rows)
    parts = [f"{'#' * level} {name}", escape(_words(callback.__doc__)), usage, listed, _examples(name)]
    return "\n\n".join(part for part in parts if part)


def _words(text: Any) -> str:
    return " ".join(text.split()) if isinstance(text, str) else ""


class Parameter(NamedTuple):
    """One argument or option: a row of the table."""

    names: str
    value: str
    default: str
    help: str
    shown: str = ""
    """Its text in the usage line."""
    positional: bool = False


def _parameters(callback: Any) -> Iterator[Parameter]:
    """Yield the arguments and options of a command, from its function's annotations: the same for every typer."""
    hints = get_type_hints(callback, include_extras=True)
    for name, parameter in inspect.signature(callback).parameters.items():
        declared, about = get_args(hints[name])[:2]
        kind = next((each for each in get_args(declared) if get_origin(each) is list), declared)  # list[str] | None
        if about.hidden:
            continue
        required = parameter.default is parameter.empty
        default = "required" if required else _default(parameter.default)
        if isinstance(about, ArgumentInfo):
            word = (about.metavar or name.upper().rstrip("_")) + ("..." if get_origin(kind) is list else "")
            shown = word if required else f"[{word}]"
            yield Parameter(f"`{shown}`", _type(kind), default, about.help or "", shown, positional=True)
        else:
            again = " May be given several times." if get_origin(kind) is list else ""
            value = f"`{about.metavar}`" if about.metavar else _type(kind)
            yield Parameter(_names(name, kind, about), value, default, (about.help or "") + again)


def _names(name: str, kind: Any, about: Any) -> str:
    plain = name.strip("_").replace("_", "-")
    first = [about.default] if isinstance(about.default, str) and about.default.startswith("-") else []
    given = [*first, *(about.param_decls or ())] or [f"--{plain}", *([f"--no-{plain}"] if kind is bool else [])]
    return ", ".join(f"`{each}`" for each in given)


def _type(kind: Any) -> str:
    if kind is bool:
        return "switch"
    inner = {each for each in (kind, *get_args(kind)) if each is not type(None)}
    words = {int: "whole number", float: "number", Path: "path"}
    return next((word for each, word in words.items() if each in inner), "text")


def _default(value: Any) -> str:
    return "" if value in (None, "", (), []) or value is False else f"`{value}`"


def _examples(name: str) -> str:
    """Return examples of the command from the README and the guides, which tests run."""
    pages = [ROOT / "README.md", *(path for folder in GUIDES for path in sorted((ROOT / "docs" / folder).glob("*.md")))]
    found: dict[str, None] = {}
    for path in pages:
        found |= dict.fromkeys(_uses(path, name))
    shown = list(found)[:MOST_EXAMPLES]
    return f"Examples:\n\n{fence(chr(10).join(shown), 'sh')}" if shown else ""


def _uses(path: Path, name: str) -> list[str]:
    pattern = rf"^\$ (?:pip install uv && )?(?:uv run )?({re.escape(name)}(?: .*)?)$"
    return [re.sub(r"\s+#", "  #", line) for line in re.findall(pattern, path.read_text(), re.MULTILINE)]
