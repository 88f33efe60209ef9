"""Steps of recipes as commands: options by name become the words that a user would type."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from functools import cached_property
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import typer

from cosmic.base import caching
from cosmic.base.caching import digest
from cosmic.base.errors import SpecError, UnknownName, require
from cosmic.base.files import dump_json, record_reads, write_text
from cosmic.base.registry import PATH
from cosmic.cli.dispatch import COMMANDS, app_of, call_command, split_command
from cosmic.cli.recipes import CommandLine, CommandOutcome, RecipeStep, digest_of
from cosmic.design.plain_data import dump_yaml

COMMANDS_WITHOUT_STEPS = ("run", "ui", "demo", "completion", "study leaderboard")
"""Commands that are no step: they wait for a person, or are recipes themselves."""
OUTPUT_OPTIONS = (
    "out",
    "timeline",
    "html",
    "report",
    "page",
    "graphml",
    "schedule",
    "save_space",
    "plot",
    "design_out",
    "save",
)
"""Options that name a file to write."""
PACKAGE = Path(__file__).parent.parent


@dataclass(frozen=True)
class CommandLines:
    """The commands of this package, for recipes."""

    texts: dict[str, str] = field(default_factory=dict)
    """Files that are still to be written: designs and spaces that a recipe states inside."""

    @cached_property
    def version(self) -> str:
        """The digest of all sources, of the catalog, and of the folders in COSMIC_PATH."""
        sources = sorted(path for end in ("py", "yaml", "c") for path in PACKAGE.rglob(f"*.{end}"))
        parts = [digest(source.read_bytes()) for source in sources]
        parts += [digest_of(folder) or "" for folder in os.environ.get(PATH, "").split(os.pathsep) if folder]
        return digest(*parts)[:16]

    def line(self, step: RecipeStep, options: Any, folder: Path) -> CommandLine:
        """Return a step as a command line; a search keeps its study in *folder*, unless it says where."""
        name, rest = split_command(step.command.split())
        if name not in COMMANDS or rest or name.startswith(COMMANDS_WITHOUT_STEPS):
            steps = [command for command in COMMANDS if not command.startswith(COMMANDS_WITHOUT_STEPS)]
            raise UnknownName.among(step.id, step.command, "command", steps)
        command: Any = typer.main.get_command(app_of(name))
        parameters = [parameter for parameter in command.params if parameter.name != "help"]
        if isinstance(options, str):
            words = _split_words(options, step.id)
            writes = [after for word, after in pairwise(words) if _is_output(word)]
        elif isinstance(options, Mapping):
            words, writes = self._words(options, parameters, folder, step.id)
        else:
            raise SpecError(step.id, options, "must be options by name, or the words that follow the command")
        study = ""
        if name == "search" and "--out" not in words:
            study = str(folder / "study")
            words += ["--out", study, *([] if "--resume" in words else ["--resume"])]
        words += (
            ["--json"] if any(parameter.name == "json" for parameter in parameters) and "--json" not in words else []
        )
        return CommandLine(name, tuple(words), tuple(writes), study)

    def run(self, line: CommandLine) -> CommandOutcome:
        """Run a command in this process."""
        for word in line.words:
            if word in self.texts:
                write_text(word, self.texts[word], "store")
        words = list(line.words)
        if line.study and not Path(line.study, "study.json").exists():
            words.remove("--resume")
        with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err, record_reads() as read:
            status = call_command(line.command, words)
        own: list[Path | str] = [PACKAGE, *line.writes, *([kept] if (kept := caching.cache_folder()) else [])]
        given = (path for path in read if not any(Path(path).is_relative_to(each) for each in own))
        return CommandOutcome(status, out.getvalue(), err.getvalue(), tuple(given))

    def _words(
        self, options: Mapping[str, Any], parameters: list[Any], folder: Path, where: str
    ) -> tuple[list[str], list[str]]:
        """Return options as words, arguments last, and which of them are files to write."""
        parameter_of = {each.name: each for each in parameters}
        parameter_of |= {_option_name(word): each for each in parameters for word in each.opts if word.startswith("--")}
        words: list[str] = []
        free: list[tuple[int, str]] = []
        writes: list[str] = []
        for key, value in options.items():
            parameter = parameter_of.get(key.replace("-", "_"))
            if parameter is None:
                raise UnknownName.among(f"{where}.{key}", key, "option", sorted({each.name for each in parameters}))
            texts = list(self._texts(value, parameter, folder, f"{where}.{key}"))
            if parameter.param_type_name == "argument":
                free += [(parameters.index(parameter), text) for text in texts]
            elif parameter.is_flag:
                require(isinstance(value, bool), f"{where}.{key}", value, "must be true or false")
                names = parameter.opts if value else parameter.secondary_opts
                words += names[-1:]
            else:
                words += [word for text in texts for word in (parameter.opts[-1], text)]
                writes += texts if parameter.name in OUTPUT_OPTIONS else []
        return [*words, *(text for _, text in sorted(free, key=lambda each: each[0]))], writes

    def _texts(self, value: Any, parameter: Any, folder: Path, where: str) -> Iterator[str]:
        """Yield the words that state a value; a table is a file, or pairs where an option takes those."""
        if value is None:
            return
        pairs = getattr(parameter, "multiple", False)
        if isinstance(value, Mapping) and pairs:
            yield from (f"{key}={_word_of_value(each)}" for key, each in value.items())
        elif isinstance(value, Mapping):
            text = dump_yaml(dict(value))
            path = str(folder / f"{parameter.name}-{digest(text)[:12]}.yaml")
            self.texts[path] = text
            yield path
        elif isinstance(value, list) and (pairs or parameter.nargs != 1):
            yield from (_word_of_value(each) for each in value)
        elif isinstance(value, list):
            require(not any(isinstance(each, Mapping | list) for each in value), where, value, "must be plain values")
            yield ",".join(_word_of_value(each) for each in value)
        else:
            yield _word_of_value(value)


def _split_words(text: str, where: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        raise SpecError(where, text, "has a quotation mark without its other half") from None


def _is_output(word: str) -> bool:
    return word.startswith("--") and _option_name(word) in OUTPUT_OPTIONS


def _option_name(word: str) -> str:
    return word.removeprefix("--").replace("-", "_")


def _word_of_value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return dump_json(value) if isinstance(value, Mapping | list) else "null" if value is None else str(value)
