"""What may stand where the cursor is: called by a shell at every press of the key, so it loads next to nothing.

`words.json` holds the commands, their options and the closed sets of values (`cosmic.cli.completion` writes it); the
names of the catalog are those of its files.

The answer is a line with the kind of files that fit besides (``files``, ``folders`` or ``none``), then a candidate a
line, with a tab and what it means where that is known. A candidate that is to be continued ends in '@', '=' or '/'.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
WORDS = HERE / "words.json"
CATALOG = HERE.parent / "catalog"
BESIDES = {"designs": "files", "spaces": "files", "files": "files", "folders": "folders", "exports": "files"}
"""Kinds of values beside which files or folders fit."""
Candidates = Iterable[tuple[str, str]]


def answer(words: Sequence[str]) -> Iterator[str]:
    """Yield the answer to a shell: its name, then the words until the cursor, the last of which is being written.

    Bash gives the whole line and the letters at which it breaks words, as it would break MODEL@SYSTEM in two.
    """
    shell, *given = words or ["bash"]
    done = 0
    if shell == "bash":
        line, breaks = (*given, "", "")[:2]
        given = split_line(line)
        # What bash has set aside as finished; it begins a new word before an '@', and after every other letter.
        done = max((given[-1].rfind(letter) + (letter != "@") for letter in breaks if letter in given[-1]), default=0)
    besides, candidates = complete(given[1:] or [""])
    yield besides
    for word, meaning in candidates:
        yield word[done:] if shell == "bash" else f"{word}\t{meaning}".rstrip("\t")


def split_line(line: str) -> list[str]:
    """Return the words of a command line that is still being written.

    >>> split_line("cosmic search 'my sp"), split_line("cosmic list ")
    (['cosmic', 'search', 'my sp'], ['cosmic', 'list', ''])
    """
    for end in ("", "'", '"'):
        try:
            words = shlex.split(line + end)
        except ValueError:
            continue
        return words if line and not end and not line[-1].isspace() else [*words, ""] if not end else words
    return line.split(" ")


def complete(words: Sequence[str]) -> tuple[str, list[tuple[str, str]]]:
    """Return which files fit besides, and what the last of *words*, those after 'cosmic', may become."""
    table = json.loads(WORDS.read_text(encoding="utf-8"))
    node: dict[str, Any] = {"commands": table["commands"], "options": {"--help": {}, "--version": {}}, "arguments": []}
    before, current = list(words[:-1]), words[-1]
    while before and "commands" in node and before[0] in node["commands"]:
        node = node["commands"][before.pop(0)]
    option, _, begun = current.partition("=")
    if current.startswith("--") and "=" in current:
        besides, found = _values(node["options"].get(option, {}).get("values", ""), begun, table)
        found = [(f"{option}={word}", meaning) for word, meaning in found]
    elif before and "values" in node["options"].get(before[-1], {}):
        besides, found = _values(node["options"][before[-1]]["values"], current, table)
    elif current.startswith("-"):
        besides, found = "none", [(name, each.get("help", "")) for name, each in node["options"].items()]
    elif "commands" in node:
        inside = {} if before else node["commands"]  # what was written before is none of them
        besides, found = "none", [(name, each["help"]) for name, each in inside.items()]
    else:
        besides, found = _argument(node, before, current, table)
    return besides, [(word, meaning) for word, meaning in found if word.startswith(current)]


def _argument(node: dict[str, Any], before: list[str], current: str, table: dict[str, Any]) -> Any:
    """Return what fits as the next argument: the last kind repeats, where a command takes several."""
    place, skip = 0, False
    for word in before:
        taken = word in node["options"] and "values" in node["options"][word]
        place += not (skip or word.startswith("-"))
        skip = taken
    kinds = node["arguments"]
    if place >= len(kinds) and not node.get("several"):
        return "none", []
    return _values(kinds[min(place, len(kinds) - 1)], current, table)


def _values(kind: str, begun: str, table: dict[str, Any]) -> tuple[str, list[tuple[str, str]]]:
    """Return which files fit besides values of a *kind*, and the values that continue what was *begun*."""
    besides = BESIDES.get(kind, "none")
    if kind.startswith(","):  # several, separated by commas
        first, comma, _ = begun.rpartition(",")
        taken = first.split(",")
        return besides, [(f"{first}{comma}{word}", "") for word in table["sets"][kind[1:]] if word not in taken]
    if kind == "fields":
        return besides, list(_fields(begun, table["fields"]))
    if kind == "designs":
        return besides, list(_designs(begun))
    if kind == "spaces":
        return besides, [(name, "") for name in names("spaces")]
    return besides, [(word, "") for word in table["sets"].get(kind, ())]


def _fields(begun: str, fields: dict[str, list[str]]) -> Candidates:
    """Yield paths that end in '=', and behind it the values of a field that takes only some."""
    path, equals, _ = begun.partition("=")
    if equals:
        return ((f"{path}={value}", "") for value in fields.get(path, ()))
    return ((f"{name}=", "") for name in fields)


def _designs(begun: str) -> Candidates:
    model, at, _ = begun.partition("@")
    if at:
        return ((f"{model}@{name}", "") for name in names("systems"))
    return ((f"{name}@", "") for name in names("models"))


def names(kind: str) -> list[str]:
    """Return the names of one *kind* in the catalog, and in the folders that COSMIC_PATH lists."""
    own = [Path(each) for each in os.environ.get("COSMIC_PATH", "").split(os.pathsep) if each]
    return sorted({path.stem for folder in (CATALOG, *own) for path in (folder / kind).glob("*.yaml")})
