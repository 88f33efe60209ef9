"""`cosmic run`: recipes, run, listed and replayed.

Steps are run as commands (`CommandLines`): options by name become the words that a user would type.
"""

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
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from cosmic.base import caching
from cosmic.base.caching import digest
from cosmic.base.errors import SpecError, UnknownName, require
from cosmic.base.files import dump_json, record_reads, write_text
from cosmic.base.registry import PATH
from cosmic.cli.console import Json, emit_commands, emit_json, emit_table
from cosmic.cli.dispatch import COMMANDS, app_of, call_command, split_command
from cosmic.cli.output_streams import FAILED, StatusLine, complain, emit
from cosmic.cli.recipes import STORE, CommandLine, CommandOutcome, RecipeStep, digest_of
from cosmic.cli.search_output import split_values
from cosmic.design.plain_data import dump_yaml

if TYPE_CHECKING:
    from cosmic.cli.answers.study_answers import RecipeRunAnswer, StoredRunRow


SHOWN = 8
"""Differences of a replay that are printed; JSON has all."""


def run(
    recipe: Annotated[Path | None, typer.Argument(metavar="[RECIPE.yaml]", help="A recipe.")] = None,
    changes: Annotated[
        list[str], typer.Option("--set", metavar="NAME=VALUE", help="Set a variable of the recipe.")
    ] = [],  # noqa: B006  typer copies it
    store: Annotated[Path, typer.Option(help="Folder of runs and of what they found.")] = Path(STORE),
    fresh: Annotated[bool, typer.Option("--fresh", help="Run every step, also those whose results are known.")] = False,
    listed: Annotated[bool, typer.Option("--list", help="List the runs of the store.")] = False,
    tags: Annotated[str, typer.Option(help="With --list: tags that runs must have, or -tag not have.")] = "",
    again: Annotated[str, typer.Option("--replay", metavar="RUN", help="Run it again, and compare.")] = "",
    json: Json = False,
) -> None:
    """Run a recipe: commands with variables and grids. What was run before is looked up."""
    sources = [name for name, value in {"RECIPE": recipe, "--list": listed, "--replay": again}.items() if value]
    require(len(sources) == 1, "cosmic run", ", ".join(sources), "give one of a recipe, --list and --replay")
    require(not tags or listed, "--tags", tags, "is for --list")
    require(not changes or recipe is not None, "--set", ", ".join(changes), "is for a recipe")
    if listed:
        _list_runs(store, split_values(tags), json)
    elif again:
        _replay_run(again, store, json)
    elif recipe is not None:
        _run_recipe(recipe, _variables_of_options(changes), store, fresh, json)


def _run_recipe(recipe: Path, changes: dict[str, Any], store: Path, fresh: bool, json: bool) -> None:
    from cosmic.cli.recipes import run_recipe  # noqa: PLC0415  heavy

    with StatusLine() as line:

        def announce(place: int, total: int, what: str, known: bool) -> None:
            line.show(f"step {place:,} of {total:,}{' (known)' if known else ''}: {what}")

        answer = cast(
            "RecipeRunAnswer", run_recipe(recipe, variables=changes, store=store, fresh=fresh, watch=announce)
        )
    if json:
        emit_json(answer)
    else:
        _print_run(answer, store)
    if answer["status"] != "ok":
        if not json:
            complain(f"cosmic run: {row['error']}" for row in answer["rows"] if row["error"])
        raise typer.Exit(FAILED)


def _print_run(answer: RecipeRunAnswer, store: Path) -> None:
    rows = answer["rows"]
    counted = f"{answer['executed']:,} steps run, {answer['cached']:,} known"
    emit([f"{answer['name']}: {len(rows):,} row{'s' if len(rows) != 1 else ''}, {counted}; run {answer['run']}", ""])
    names = list(dict.fromkeys(name for row in rows for name in (*row["variables"], *row["results"])))
    cells = [{**row["variables"], **row["results"]} for row in rows]
    if names:
        table = [[cell.get(name) for name in names] + [row["status"]] for cell, row in zip(cells, rows, strict=True)]
        emit_table("", [*names, "status"], table)
    else:
        for step in rows[0]["steps"]:
            emit([f"  {step['id']}: {step['command']}"])
    emit([""])
    where = "" if str(store) == STORE else f" --store {store}"
    emit_commands({f"cosmic run --replay {answer['run']}{where}": "run it again from nothing, and compare"})


def _list_runs(store: Path, tags: list[str], json: bool) -> None:
    from cosmic.cli.recipes import RecipeStore  # noqa: PLC0415

    keys = ("run", "name", "tags", "status", "began", "executed", "cached")
    rows = [cast("StoredRunRow", {key: run.get(key) for key in keys}) for run in RecipeStore(store).runs(tags)]
    if json:
        emit_json(rows)
        return
    if not rows:
        emit([f"no runs in {store}"])
        return
    emit_table("", list(keys), [[", ".join(v) if isinstance(v, list) else v for v in row.values()] for row in rows])


def _replay_run(run_id: str, store: Path, json: bool) -> None:
    from cosmic.cli.recipes import replay_recipe_run  # noqa: PLC0415  heavy

    comparison = replay_recipe_run(run_id, store)
    if json:
        emit_json(comparison)
    elif comparison.same:
        emit([f"run {comparison.run}: the same"])
    else:
        rows = [[each.where, each.before, each.now] for each in comparison.differences]
        more = f", the first {SHOWN}" if len(rows) > SHOWN else ""
        emit([f"run {comparison.run}: {len(rows):,} values differ{more}", ""])
        emit_table("", ["where", "before", "now"], rows[:SHOWN])
    if not comparison.same:
        raise typer.Exit(FAILED)


def _variables_of_options(changes: list[str]) -> dict[str, Any]:
    """Return variables as numbers where they look so."""
    from cosmic.design.plain_data import parse_yaml  # noqa: PLC0415

    variables: dict[str, Any] = {}
    for change in changes:
        name, equals, text = change.partition("=")
        if not (name and equals):
            raise SpecError("--set", change, "must be NAME=VALUE")
        variables[name] = parse_yaml(text, f"--set {name}")
    return variables


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
