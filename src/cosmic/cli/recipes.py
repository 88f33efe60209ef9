"""Recipes: experiments written down, run again for nothing, and replayed by others.

A recipe has commands with their options, variables, a grid, and what must come out.

name: scaling of llama3-8b
tags: [training, h100]
variables: {trials: 200}
grid: {nodes: [1, 2, 4]}
steps:
  - search: {space: "llama3-8b@dgx-h100:${nodes * 8}", trials: "${trials}"}
    id: tuned
  - evaluate: {design: "${tuned.design}", engine: event}
results: {step_s: "${tuned.best.metrics.step_s}", event_s: "${evaluate.step_s}"}
expect: ["${event_s / step_s < 1.1}"]

Variables are ``${name}``, ``${search.best.metrics.step_s}``, ``${nodes * 8}``; nothing is executed (`fill_references`).

A run fills in variables, looks up what is known, runs the rest, and says what came out. Results are kept by the digest
of what was asked, with a folder for each run:

STORE/cache/KEY/input.json  result.json  study/ …     a step: what was asked, what it printed, what it wrote
STORE/UID/input.json  result.json                     a run: the recipe as written, and what came of it

A replay runs a run's recipe again from nothing, and compares what it gives with what it gave.

Steps are commands, and commands are the topmost layer: they are found by their name, when a recipe is run.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fractions import Fraction
from importlib import import_module
from itertools import product
from math import isclose, prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

from cosmic.base import expression_syntax
from cosmic.base._version import __version__
from cosmic.base.caching import digest
from cosmic.base.errors import SpecError, check_text, require, shorten, suggest_names
from cosmic.base.files import dump_json, is_file, is_folder, make_folder, read_text, write_text
from cosmic.base.json_types import json_keys
from cosmic.design.plain_data import load_yaml, parse_json
from cosmic.search.space.expressions import Constant, Expression, Known, as_exact, make_operation

# ---- Variables in a recipe: ``${name}``, ``${search.best.metrics.step_s}``, ``${nodes * 8}``. Nothing is executed

REFERENCE = re.compile(r"\$\{([^{}]*)\}")
PATH = re.compile(r"[A-Za-z_]\w*(?:\.\w+)*", re.ASCII)
_SIGNS = {"+": "sum", "*": "product", "and": "all", "or": "any"}
_FUNCTIONS = {"sum", "product", "min", "max", "all", "any"}


def fill_references(value: Any, scope: Mapping[str, Any], where: str) -> Any:
    """Return *value* with every ``${…}`` in its texts replaced by what *scope* holds.

    A text that is one reference becomes the value itself; inside a longer text, a value is written out.

    >>> fill_references("llama3-8b@dgx-h100:${nodes * 8}", {"nodes": 2}, "design")
    'llama3-8b@dgx-h100:16'
    >>> fill_references({"trials": "${trials}"}, {"trials": 100}, "search")
    {'trials': 100}
    """
    if isinstance(value, str):
        reference = REFERENCE.fullmatch(value)
        if reference:
            return evaluate_expression(reference[1], scope, where)
        return REFERENCE.sub(lambda found: _written(evaluate_expression(found[1], scope, where), where), value)
    if isinstance(value, Mapping):
        return {str(key): fill_references(each, scope, f"{where}.{key}") for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [fill_references(each, scope, f"{where}.{index}") for index, each in enumerate(value)]
    return value


def evaluate_expression(text: str, scope: Mapping[str, Any], where: str) -> Any:
    """Return the value of an expression over *scope*: any value for a plain name, else a number, text or truth value.

    >>> evaluate_expression("tuned.front.0.step_s * 2 < 4", {"tuned": {"front": [{"step_s": 1.5}]}}, "expect")
    True
    """
    text = text.strip()
    if PATH.fullmatch(text) and text not in ("true", "false"):
        return _look_up(text, scope, where)
    try:
        expression = _bound(expression_syntax.parse_expression(text), scope, where)
    except SpecError as error:
        if error.where != "expression":
            raise
        raise SpecError(where, text, error.rule) from None
    if not isinstance(expression, Constant):
        raise SpecError(where, text, "has no value: it divides by zero, or compares what cannot be compared")
    value = expression.value
    if isinstance(value, Fraction):
        return int(value) if value.denominator == 1 else float(value)
    return value


def check_names(value: Any, known: Collection[str], where: str) -> None:
    """Refuse a ``${…}`` that cannot be read, or that begins with none of the *known* names.

    What a step will print is not known yet: only the first part of a path is looked at.

    >>> check_names("${nodes * 8} ${tuned.best}", {"nodes", "tuned"}, "design")
    """
    if isinstance(value, str):
        require("${" not in REFERENCE.sub("", value), where, value, "has a '${' without its '}'")
        for reference in REFERENCE.finditer(value):
            text = reference[1].strip()
            paths = [text] if PATH.fullmatch(text) else list(_paths_in_expression(_parse_expression(text, where)))
            for path in paths:
                head = path.partition(".")[0]
                rule = f"knows no '{head}'{suggest_names(head, list(known))}"
                require(head in known or path in ("true", "false"), where, path, rule)
    elif isinstance(value, Mapping):
        for key, each in value.items():
            check_names(each, known, f"{where}.{key}")
    elif isinstance(value, list | tuple):
        for index, each in enumerate(value):
            check_names(each, known, f"{where}.{index}")


def _parse_expression(text: str, where: str) -> expression_syntax.Syntax:
    try:
        return expression_syntax.parse_expression(text)
    except SpecError as error:
        raise SpecError(where, text, error.rule) from None


def _paths_in_expression(tree: expression_syntax.Syntax) -> Iterator[str]:
    """Yield the names in an expression."""
    if isinstance(tree, expression_syntax.Path):
        yield tree.text
    elif isinstance(tree, expression_syntax.Call):
        for argument in tree.arguments:
            yield from _paths_in_expression(argument)


def _written(value: Any, where: str) -> str:
    if isinstance(value, Mapping | list):
        raise SpecError(where, shorten(str(value)), "is a table: it can only stand alone, not inside a longer text")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _look_up(path: str, scope: Mapping[str, Any], where: str) -> Any:
    """Return what a dotted path names: a variable, or a part of what a step printed."""
    current: Any = scope
    passed: list[str] = []
    for part in path.split("."):
        inner = (
            current[int(part)]
            if _is_index(current, part)
            else current.get(part, _look_up)
            if _comparison_holds(current)
            else _look_up
        )
        if inner is _look_up:
            before = f"'{'.'.join(passed)}' has no" if passed else "knows no"
            known = list(current) if _comparison_holds(current) else []
            raise SpecError(where, path, f"{before} '{part}'{suggest_names(part, [str(each) for each in known])}")
        current, passed = inner, [*passed, part]
    return current


def _comparison_holds(value: Any) -> bool:
    return isinstance(value, Mapping)


def _is_index(value: Any, part: str) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str) and part.isdecimal() and int(part) < len(value)


def _bound(tree: expression_syntax.Syntax, scope: Mapping[str, Any], where: str) -> Known | Expression:
    if isinstance(tree, expression_syntax.Literal):
        return Constant(tree.value if isinstance(tree.value, str | bool) else tree.value.value)
    if isinstance(tree, expression_syntax.Path):
        value = _look_up(tree.text, scope, where)
        if not isinstance(value, bool | int | float | str):
            raise SpecError(where, tree.text, "is neither a number, nor a text, nor a truth value")
        return Constant(as_exact(value))
    name = _SIGNS.get(tree.name, tree.name)
    if tree.name.isidentifier() and tree.name not in (*_SIGNS, *_FUNCTIONS, "if", "not", "in", "list"):
        raise SpecError(
            "expression", tree.name, f"knows no function '{tree.name}'{suggest_names(tree.name, _FUNCTIONS)}"
        )
    arguments = [_bound(argument, scope, where) for argument in _list_arguments(tree)]
    try:
        return make_operation(name, tuple(arguments))
    except TypeError:
        raise SpecError("expression", tree.name, f"'{tree.name}' does not go with these values") from None


def _list_arguments(tree: expression_syntax.Call) -> tuple[expression_syntax.Syntax, ...]:
    """Return the arguments of a call, with the list that stands after 'in' laid out."""
    last = tree.arguments[-1] if tree.arguments else None
    if tree.name == "in" and isinstance(last, expression_syntax.Call) and last.name == "list":
        return (*tree.arguments[:-1], *last.arguments)
    return tree.arguments


# ---- A recipe: commands with their options, variables, a grid, and what must come out

RECIPE_KEYS = ("name", "tags", "variables", "grid", "steps", "results", "expect")
MOST_ROWS = 10_000
"""Combinations of a grid."""
MOST_STEPS = 1000


@dataclass(frozen=True)
class RecipeStep:
    """One command of a recipe."""

    id: str
    """The name by which later steps refer to what it printed."""
    command: str
    """``search``, ``trace generate``: a command as it is typed."""
    options: Any
    """Its arguments and options by name, or the words as they are typed; with ``${…}``."""


@dataclass(frozen=True)
class ExperimentRecipe:
    """An experiment, as written."""

    name: str
    steps: tuple[RecipeStep, ...]
    tags: tuple[str, ...] = ()
    variables: Mapping[str, Any] = field(default_factory=dict)
    grid: Mapping[str, list[Any]] = field(default_factory=dict)
    results: Mapping[str, Any] = field(default_factory=dict)
    expect: tuple[str, ...] = ()

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the variables of each combination of the grid; variables may refer to those before them."""
        for values in product(*self.grid.values()):
            scope = dict(zip(self.grid, values, strict=True))
            for name, value in self.variables.items():
                scope[name] = fill_references(value, scope, f"variables.{name}")
            yield scope


def read_recipe(source: str | Path | Mapping[str, Any], changes: Mapping[str, Any] | None = None) -> ExperimentRecipe:
    """Return the recipe in a YAML file, or in a mapping; *changes* replace variables of it."""
    tree = dict(source) if isinstance(source, Mapping) else load_yaml(Path(source))
    default = "recipe" if isinstance(source, Mapping) else Path(source).stem
    require(isinstance(tree, dict), "recipe", str(source), "must be a table with 'steps'")
    for key in tree:
        require(key in RECIPE_KEYS, "recipe", str(key), f"is no key of a recipe{suggest_names(str(key), RECIPE_KEYS)}")
    variables, grid = _read_table(tree, "variables"), _read_grid(_read_table(tree, "grid"))
    for name, value in (changes or {}).items():
        known = name in variables or name in grid
        require(known, "variable", name, f"is none of this recipe{suggest_names(name, [*variables, *grid])}")
        grid.pop(name, None)
        variables = {name: value, **{each: old for each, old in variables.items() if each != name}}
    if both := variables.keys() & grid.keys():
        raise SpecError("grid", sorted(both)[0], "is a variable already")
    for name in (*variables, *grid):
        require(bool(PATH.fullmatch(name)) and "." not in name, "variables", name, "must be a name: letters and digits")
    tags = tree.get("tags", [])
    require(isinstance(tags, list), "tags", tags, "must be a list of words")
    expect = tree.get("expect", [])
    require(isinstance(expect, list), "expect", expect, "must be a list of conditions")
    recipe = ExperimentRecipe(
        name=check_text(str(tree.get("name", default)), "name"),
        steps=_read_steps(tree.get("steps"), {*variables, *grid}),
        tags=tuple(check_text(str(tag), "tags") for tag in tags),
        variables=variables,
        grid=grid,
        results=_read_table(tree, "results"),
        expect=tuple(str(each).strip() for each in expect),
    )
    _check_references(recipe)
    return recipe


def _check_references(recipe: ExperimentRecipe) -> None:
    """Refuse names that nothing before them gives: no step is run for a recipe that cannot come to its end."""
    names = [*recipe.grid]
    for name, value in recipe.variables.items():
        check_names(value, names, f"variables.{name}")
        names.append(name)
    for step in recipe.steps:
        check_names(step.options, names, step.id)
        names.append(step.id)
    for name, value in recipe.results.items():
        check_names(value, names, f"results.{name}")
        names.append(name)
    for condition in recipe.expect:
        rule = "is no condition: write it as '${a < b}'"
        require(bool(REFERENCE.fullmatch(condition)), "expect", condition, rule)
        check_names(condition, names, "expect")


def _read_table(tree: Mapping[str, Any], key: str) -> dict[str, Any]:
    table = tree.get(key) or {}
    require(isinstance(table, Mapping), key, table, "must be a table")
    return {str(name): value for name, value in table.items()}


def _read_grid(table: dict[str, Any]) -> dict[str, list[Any]]:
    for name, values in table.items():
        require(isinstance(values, list) and bool(values), f"grid.{name}", values, "must be a list of values")
    rows = prod(len(values) for values in table.values())
    require(rows <= MOST_ROWS, "grid", rows, f"has more than {MOST_ROWS:,} combinations")
    return table


def _read_steps(found: Any, taken: set[str]) -> tuple[RecipeStep, ...]:
    require(isinstance(found, list) and bool(found), "steps", found, "must be a list of commands")
    require(len(found) <= MOST_STEPS, "steps", len(found), f"at most {MOST_STEPS:,} steps make a recipe")
    steps: list[RecipeStep] = []
    for index, each in enumerate(found):
        where = f"steps.{index}"
        require(isinstance(each, Mapping), where, each, "must be a command with its options: 'evaluate: {design: …}'")
        commands = [str(key) for key in each if key != "id"]
        require(len(commands) == 1, where, commands, "must name one command")
        [command] = commands
        default = command.replace(" ", "_").replace("-", "_")
        number = sum(step.command == command for step in steps) + 1
        name = str(each.get("id", default if number == 1 else f"{default}_{number}"))
        require(bool(PATH.fullmatch(name)) and "." not in name, f"{where}.id", name, "must be letters and digits")
        free = name not in taken and all(step.id != name for step in steps)
        require(free, f"{where}.id", name, "is the name of a variable or of another step")
        options = each[command]
        steps.append(RecipeStep(name, command, {} if options is None else options))
    return tuple(steps)


# ---- Replay: a run's recipe run again from nothing, and what it gives compared with what it gave

TOLERANCE = 1e-9
"""Relative difference of numbers that are the same: sums may be rounded otherwise."""
VOLATILE = (
    *("elapsed_s", "cpu_s", "seconds", "evaluations_per_s", "computed", "resumed"),
    *("out", "path", "folder", "study", "version"),
)
"""What two runs of the same may differ in: how long they took, and where they wrote."""
IN_STORE = re.compile(r"\S*/cache/(?=[0-9a-f]{32})")
"""The folder of a result, before its digest."""


@dataclass(frozen=True)
class ReplayDifference:
    """A value that came out otherwise."""

    where: str
    """Place of the value."""
    before: Any
    """What it was."""
    now: Any
    """What it is."""


@json_keys("same")
@dataclass(frozen=True)
class ReplayedRecipe:
    """With --replay: what came out otherwise."""

    run: str
    """The run that was repeated."""
    differences: list[ReplayDifference]
    """Values that differ by more than 1e-9."""
    sources_before: str
    """Digest of the sources then."""
    sources_now: str
    """Digest of the sources now."""

    @property
    def same(self) -> bool:
        """Whether everything came out again."""
        return not self.differences


def differences_of_runs(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[ReplayDifference]:
    """Return where the rows of two runs of one recipe differ."""
    return list(
        _differing_values(
            [_reproducible_values(row) for row in before["rows"]],
            [_reproducible_values(row) for row in now["rows"]],
            "rows",
        )
    )


def _reproducible_values(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of a row must come out again: not the places in a store."""
    steps = {step["id"]: step["output"] for step in row["steps"]}
    return {"variables": row["variables"], "status": row["status"], "results": row["results"], "steps": steps}


def _differing_values(before: Any, now: Any, where: str) -> Iterator[ReplayDifference]:
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in dict.fromkeys((*before, *now)):
            if key not in VOLATILE:
                yield from _differing_values(before.get(key), now.get(key), f"{where}.{key}")
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for index, (old, new) in enumerate(zip(before, now, strict=True)):
            yield from _differing_values(old, new, f"{where}.{index}")
    elif not _is_same_value(before, now):
        yield ReplayDifference(where, before, now)


def _is_same_value(before: Any, now: Any) -> bool:
    numbers = all(isinstance(each, int | float) and not isinstance(each, bool) for each in (before, now))
    if isinstance(before, str) and isinstance(now, str):
        # Commands to run next name files in the store of results, which stands elsewhere.
        before, now = (IN_STORE.sub("", text) for text in (before, now))
    return isclose(before, now, rel_tol=TOLERANCE, abs_tol=0.0) if numbers else before == now


# ---- What recipes leave behind: results by the digest of what was asked, and a folder for each run

INPUT, RESULT, CACHE = "input.json", "result.json", "cache"
SHA = "sha256"
"""Key of the digest of a step's result."""
UNREAD_DIGEST = ("lock", "best.yaml")
"""Files of a study that say nothing about it."""


@dataclass(frozen=True)
class StoreEntry:
    """The place of one step in the store."""

    folder: Path

    def recall(self) -> dict[str, Any] | None:
        """Return what the step gave; None if it has not run, or if a file that it read or wrote is gone or changed."""
        try:
            result = parse_json(read_text(self.folder / RESULT), RESULT)
        except SpecError:
            return None
        if not isinstance(result, dict) or result.pop(SHA, None) != _digest_of(result):
            return None  # cut short, or changed by hand
        study = result.get("places", {}).get("study")
        if study is not None and not is_folder(Path(study)):
            return None
        files = (*result.get("read", {}).items(), *result.get("wrote", {}).items())
        return result if all(digest_of(path) == digest_before for path, digest_before in files) else None

    def keep(self, asked: dict[str, Any], given: dict[str, Any]) -> None:
        """Keep what the step gave, for those that ask the same."""
        make_folder(self.folder, "store")
        write_text(self.folder / INPUT, dump_json(asked, indent=1) + "\n", "store")
        write_text(self.folder / RESULT, dump_json(given | {SHA: _digest_of(given)}, indent=1) + "\n", "store")


def _digest_of(given: dict[str, Any]) -> str:
    return digest(dump_json(given, sort_keys=True))


@dataclass(frozen=True)
class RecipeStore:
    """A folder of runs."""

    folder: Path

    def entry(self, asked: dict[str, Any]) -> StoreEntry:
        """Return the place of a step, by all that it depends on."""
        key = digest(dump_json(asked, sort_keys=True))[:32]
        return StoreEntry(self.folder / CACHE / key)

    def keep_run(self, uid: str, recipe: dict[str, Any], result: dict[str, Any]) -> Path:
        """Keep a run, and return its folder."""
        folder = make_folder(self.folder / uid, "store")
        write_text(folder / INPUT, dump_json(recipe, indent=1) + "\n", "store")
        write_text(folder / RESULT, dump_json(result, indent=1) + "\n", "store")
        return folder

    def open_run(self, uid: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return a run: its recipe and its result; *uid* may be its beginning."""
        names = [folder.name for folder in self._runs() if folder.name.startswith(uid)]
        require(len(names) > 0, "run", uid, f"is no run of {self.folder}")
        require(len(names) == 1, "run", uid, f"could be any of {', '.join(sorted(names)[:4])}")
        folder = self.folder / names[0]
        parts = [parse_json(read_text(folder / name, "run"), str(folder / name)) for name in (INPUT, RESULT)]
        for part in parts:
            require(isinstance(part, dict), "run", str(folder), "is damaged: its files must hold tables")
        return parts[0], parts[1]

    def runs(self, tags: Sequence[str] = ()) -> list[dict[str, Any]]:
        """Return the runs that have all *tags*, and none that begins with a minus, the oldest first."""
        wanted = {tag for tag in tags if not tag.startswith("-")}
        unwanted = {tag[1:] for tag in tags if tag.startswith("-")}
        entries = []
        for folder in self._runs():
            _, result = self.open_run(folder.name)
            has = set(result.get("tags", []))
            if wanted <= has and not unwanted & has:
                entries.append(result)
        return sorted(entries, key=lambda each: str(each.get("began", "")))

    def _runs(self) -> Iterator[Path]:
        if is_folder(self.folder):
            yield from (path for path in sorted(self.folder.iterdir()) if is_file(path / RESULT))


def digests_of(paths: Iterable[str]) -> dict[str, str]:
    """Return the digests of those paths at which there is something."""
    return {path: found for path in sorted(paths) if (found := digest_of(path)) is not None}


def digest_of(path: str | Path) -> str | None:
    """Return the digest of a file, or of all files in a folder; None if there is nothing."""
    path = Path(path)
    if is_file(path):
        return digest(path.read_bytes())
    if not is_folder(path):
        return None
    files = [each for each in sorted(path.rglob("*")) if each.is_file() and each.name not in UNREAD_DIGEST]
    return digest(*(f"{file.relative_to(path)}\0{digest(file.read_bytes())}" for file in files))


# ---- Run recipes: fill in variables, look up what is known, run the rest, and say what came out

WatchRun = Callable[[int, int, str, bool], None]
"""Told before each step: its place, how many there are, what it is, whether it is known already."""


@dataclass(frozen=True)
class CommandLine:
    """A command as it is typed."""

    command: str
    words: tuple[str, ...]
    writes: tuple[str, ...] = ()
    """Files that it is told to write."""
    study: str = ""
    """The study that it keeps, if it searches."""


@dataclass(frozen=True)
class CommandOutcome:
    """What became of a command."""

    status: int
    text: str
    error: str
    read: tuple[str, ...] = ()
    """Files that it read, named in its words or not: a design's model, for example."""


class CommandRunner(Protocol):
    """What a recipe needs to know of commands."""

    @property
    def version(self) -> str:
        """The digest of what results follow from."""

    def line(self, step: RecipeStep, options: Any, folder: Path) -> CommandLine:
        """Return a step as a command line; *folder* is where it may write."""

    def run(self, line: CommandLine) -> CommandOutcome:
        """Run a command."""


@dataclass
class RecipeRun:
    """A recipe that is being run."""

    recipe: ExperimentRecipe
    commands: CommandRunner
    store: RecipeStore
    fresh: bool = False
    """Whether to run steps whose results are known, too."""
    watch: WatchRun | None = None
    executed: int = 0
    cached: int = 0
    done: int = 0
    known: dict[str, dict[str, Any]] = field(default_factory=dict)

    def whole(self) -> dict[str, Any]:
        """Run everything, keep the run in the store, and return its result."""
        began, clock = datetime.now(UTC), time.perf_counter()
        variables = list(self.recipe.rows())
        rows = [self._row(variable, len(variables)) for variable in variables]
        failed = [row for row in rows if row["status"] != "ok"]
        recipe = recipe_tree(self.recipe)
        uid = digest(dump_json(recipe, sort_keys=True), began.isoformat())[:16]
        result = {
            "run": uid,
            "name": self.recipe.name,
            "tags": list(self.recipe.tags),
            "status": failed[0]["status"] if failed else "ok",
            "version": __version__,
            "sources": self.commands.version,
            "began": began.isoformat(timespec="microseconds"),
            "elapsed_s": time.perf_counter() - clock,
            "executed": self.executed,
            "cached": self.cached,
            "rows": rows,
        }
        self.store.keep_run(uid, recipe, result)
        return result

    def _row(self, variables: dict[str, Any], rows: int) -> dict[str, Any]:
        """Return what a row of the grid gives; what fails ends this row, not the others."""
        scope: dict[str, Any] = dict(variables)
        steps: list[dict[str, Any]] = []
        row: dict[str, Any] = {"variables": variables, "status": "ok", "error": "", "steps": steps, "results": {}}
        for step in self.recipe.steps:
            try:
                options = fill_references(step.options, scope, step.id)
            except SpecError as error:  # an earlier step has not given what is asked for
                return row | {"status": "failed", "error": str(error)}
            found = self._step(step, options, rows * len(self.recipe.steps))
            steps.append({"id": step.id, "command": found["line"], "key": found["key"], "output": found["output"]})
            if found["status"] != 0:
                return row | {"status": "failed", "error": f"{step.id}: {found['error']}"}
            scope[step.id] = found["output"] | found["places"]
        try:
            for name, value in self.recipe.results.items():
                row["results"][name] = scope[name] = fill_references(value, scope, f"results.{name}")
            for condition in self.recipe.expect:
                if fill_references(condition, scope, "expect") is not True:
                    return row | {"status": "unexpected", "error": f"{condition} does not hold"}
        except SpecError as error:
            return row | {"status": "failed", "error": str(error)}
        return row

    def _step(self, step: RecipeStep, options: Any, total: int) -> dict[str, Any]:
        """Return what a step gives: known from an earlier run, or run now."""
        asked = self._asked(step, options)
        entry = self.store.entry(asked)
        key = entry.folder.name
        known = self.known.get(key) or (None if self.fresh else entry.recall())
        self.done += 1
        line = self.commands.line(step, options, entry.folder)
        if self.watch is not None:
            self.watch(self.done, total, f"{step.id}: cosmic {line.command}", known is not None)
        if known is None:
            known = self._execute(line, entry.folder)
            self.executed += 1
            if known["status"] == 0:
                entry.keep(asked, known)
        else:
            self.cached += 1
        self.known[key] = known
        return known | {"key": key}

    def _asked(self, step: RecipeStep, options: Any) -> dict[str, Any]:
        """Return all that a step's result depends on: what is asked, the files that it names, the sources."""
        line = self.commands.line(step, options, Path("FOLDER"))
        files = digests_of(word for word in line.words if word not in line.writes and not self._inside(word))
        return {"command": line.command, "words": line.words, "files": files, "sources": self.commands.version}

    def _inside(self, path: str) -> bool:
        """Return whether a path is one of the store's own: what is in it follows from what was asked."""
        return Path(os.path.abspath(path)).is_relative_to(os.path.abspath(self.store.folder))

    def _execute(self, line: CommandLine, folder: Path) -> dict[str, Any]:
        make_folder(folder, "store")
        ran = self.commands.run(line)
        output: Any = {}
        if ran.text.strip():
            try:
                output = parse_json(ran.text, line.command)
            except SpecError:
                output = {"text": ran.text}
        places = {"folder": str(folder)} | (
            {"study": line.study, "design": f"{line.study}/best.yaml"} if line.study else {}
        )
        return {
            "status": ran.status,
            "error": _failure_reason(ran, output),
            "line": f"cosmic {line.command} {' '.join(line.words)}".strip(),
            "output": output if isinstance(output, dict) else {"rows": output},
            "places": places,
            "read": digests_of(each for each in ran.read if not self._inside(each)),
            "wrote": digests_of(line.writes),
        }


def _failure_reason(ran: CommandOutcome, output: Any) -> str:
    """Return why a command failed: its sentence, or the reasons why a design cannot run."""
    reasons = output.get("reasons") if isinstance(output, dict) else None
    if isinstance(reasons, list) and reasons:
        return "; ".join(map(str, reasons))
    return ran.error.strip().splitlines()[-1] if ran.error.strip() else f"exit status {ran.status}"


def recipe_tree(recipe: ExperimentRecipe) -> dict[str, Any]:
    """Return a recipe as a file writes it: `read_recipe` reads it back.

    >>> from cosmic.cli.recipes import read_recipe
    >>> tree = {"name": "one", "steps": [{"evaluate": {"design": "llama3-8b@dgx-h100:8"}, "id": "evaluate"}]}
    >>> recipe_tree(read_recipe(tree))["steps"]
    [{'evaluate': {'design': 'llama3-8b@dgx-h100:8'}, 'id': 'evaluate'}]
    """
    return {
        "name": recipe.name,
        "tags": list(recipe.tags),
        "variables": dict(recipe.variables),
        "grid": dict(recipe.grid),
        "steps": [{step.command: step.options, "id": step.id} for step in recipe.steps],
        "results": dict(recipe.results),
        "expect": list(recipe.expect),
    }


# ---- Run recipes, and replay them: what `cosmic run` and `cosmic.run` call

STORE = "runs/recipes"


def run_recipe(
    recipe: str | Path | Mapping[str, Any],
    *,
    variables: Mapping[str, Any] | None = None,
    store: str | Path = STORE,
    fresh: bool = False,
    watch: WatchRun | None = None,
) -> dict[str, Any]:
    """Return what a recipe gives: a mapping, or a YAML file; *variables* replace its own.

    Steps that were run before, with the same words, files and sources, are looked up in *store*; with *fresh*, they are
    run again. A step that fails is told in ``status`` and ``error`` of its row; the other rows are run.
    """
    commands = import_module("cosmic.cli.run_command").CommandLines()
    return RecipeRun(read_recipe(recipe, variables), commands, RecipeStore(Path(store)), fresh, watch).whole()


def replay_recipe_run(run_id: str, store: str | Path = STORE) -> ReplayedRecipe:
    """Return a comparison of a kept run with the same recipe, run from nothing."""
    recipe, before = RecipeStore(Path(store)).open_run(run_id)
    with TemporaryDirectory(prefix="cosmic-") as folder:
        now = run_recipe(recipe, store=folder, fresh=True)
    return ReplayedRecipe(before["run"], differences_of_runs(before, now), before["sources"], now["sources"])
