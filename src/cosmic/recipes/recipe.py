"""A recipe: commands with their options, variables, a grid, and what must come out.

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
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from cosmic.catalog.yaml_files import load_yaml
from cosmic.errors import SpecError, check_text, require, suggestion
from cosmic.recipes.scope import PATH, REFERENCE, check_names, fill

KEYS = ("name", "tags", "variables", "grid", "steps", "results", "expect")
MOST_ROWS = 10_000
"""Combinations of a grid."""
MOST_STEPS = 1000


@dataclass(frozen=True)
class Step:
    """One command of a recipe."""

    id: str
    """The name by which later steps refer to what it printed."""
    command: str
    """``search``, ``trace generate``: a command as it is typed."""
    options: Any
    """Its arguments and options by name, or the words as they are typed; with ``${…}``."""


@dataclass(frozen=True)
class Recipe:
    """An experiment, as written."""

    name: str
    steps: tuple[Step, ...]
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
                scope[name] = fill(value, scope, f"variables.{name}")
            yield scope


def read_recipe(source: str | Path | Mapping[str, Any], changes: Mapping[str, Any] | None = None) -> Recipe:
    """Return the recipe in a YAML file, or in a mapping; *changes* replace variables of it."""
    tree = dict(source) if isinstance(source, Mapping) else load_yaml(Path(source))
    default = "recipe" if isinstance(source, Mapping) else Path(source).stem
    require(isinstance(tree, dict), "recipe", str(source), "must be a table with 'steps'")
    for key in tree:
        require(key in KEYS, "recipe", str(key), f"is no key of a recipe{suggestion(str(key), KEYS)}")
    variables, grid = _table(tree, "variables"), _grid(_table(tree, "grid"))
    for name, value in (changes or {}).items():
        known = name in variables or name in grid
        require(known, "variable", name, f"is none of this recipe{suggestion(name, [*variables, *grid])}")
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
    made = Recipe(
        name=check_text(str(tree.get("name", default)), "name"),
        steps=_steps(tree.get("steps"), {*variables, *grid}),
        tags=tuple(check_text(str(each), "tags") for each in tags),
        variables=variables,
        grid=grid,
        results=_table(tree, "results"),
        expect=tuple(str(each).strip() for each in expect),
    )
    _check_references(made)
    return made


def _check_references(recipe: Recipe) -> None:
    """Refuse names that nothing before them gives: no step is run for a recipe that cannot come to its end."""
    known = [*recipe.grid]
    for name, value in recipe.variables.items():
        check_names(value, known, f"variables.{name}")
        known.append(name)
    for step in recipe.steps:
        check_names(step.options, known, step.id)
        known.append(step.id)
    for name, value in recipe.results.items():
        check_names(value, known, f"results.{name}")
        known.append(name)
    for condition in recipe.expect:
        rule = "is no condition: write it as '${a < b}'"
        require(bool(REFERENCE.fullmatch(condition)), "expect", condition, rule)
        check_names(condition, known, "expect")


def _table(tree: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = tree.get(key) or {}
    require(isinstance(found, Mapping), key, found, "must be a table")
    return {str(name): value for name, value in found.items()}


def _grid(table: dict[str, Any]) -> dict[str, list[Any]]:
    for name, values in table.items():
        require(isinstance(values, list) and bool(values), f"grid.{name}", values, "must be a list of values")
    rows = prod(len(values) for values in table.values())
    require(rows <= MOST_ROWS, "grid", rows, f"has more than {MOST_ROWS:,} combinations")
    return table


def _steps(found: Any, taken: set[str]) -> tuple[Step, ...]:
    require(isinstance(found, list) and bool(found), "steps", found, "must be a list of commands")
    require(len(found) <= MOST_STEPS, "steps", len(found), f"at most {MOST_STEPS:,} steps make a recipe")
    made: list[Step] = []
    for place, each in enumerate(found):
        where = f"steps.{place}"
        require(isinstance(each, Mapping), where, each, "must be a command with its options: 'evaluate: {design: …}'")
        commands = [str(key) for key in each if key != "id"]
        require(len(commands) == 1, where, commands, "must name one command")
        [command] = commands
        default = command.replace(" ", "_").replace("-", "_")
        number = sum(step.command == command for step in made) + 1
        name = str(each.get("id", default if number == 1 else f"{default}_{number}"))
        require(bool(PATH.fullmatch(name)) and "." not in name, f"{where}.id", name, "must be letters and digits")
        free = name not in taken and all(step.id != name for step in made)
        require(free, f"{where}.id", name, "is the name of a variable or of another step")
        options = each[command]
        made.append(Step(name, command, {} if options is None else options))
    return tuple(made)
