"""Run recipes: fill in variables, look up what is known, run the rest, and say what came out."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from cosmic._version import __version__
from cosmic.catalog.yaml_files import parse_json
from cosmic.digests import digest
from cosmic.errors import SpecError
from cosmic.files import make_folder
from cosmic.recipes.recipe import Recipe, Step
from cosmic.recipes.scope import fill
from cosmic.recipes.store import Store, digests_of
from cosmic.strict_json import json_text

Watch = Callable[[int, int, str, bool], None]
"""Told before each step: its place, how many there are, what it is, whether it is known already."""


@dataclass(frozen=True)
class Line:
    """A command as it is typed."""

    command: str
    words: tuple[str, ...]
    writes: tuple[str, ...] = ()
    """Files that it is told to write."""
    study: str = ""
    """The study that it keeps, if it searches."""


@dataclass(frozen=True)
class Ran:
    """What became of a command."""

    status: int
    text: str
    error: str
    read: tuple[str, ...] = ()
    """Files that it read, named in its words or not: a design's model, for example."""


class Commands(Protocol):
    """What a recipe needs to know of commands."""

    @property
    def version(self) -> str:
        """The digest of what results follow from."""

    def line(self, step: Step, options: Any, folder: Path) -> Line:
        """Return a step as a command line; *folder* is where it may write."""

    def run(self, line: Line) -> Ran:
        """Run a command."""


@dataclass
class Run:
    """A recipe that is being run."""

    recipe: Recipe
    commands: Commands
    store: Store
    fresh: bool = False
    """Whether to run steps whose results are known, too."""
    watch: Watch | None = None
    executed: int = 0
    cached: int = 0
    done: int = 0
    known: dict[str, dict[str, Any]] = field(default_factory=dict)

    def whole(self) -> dict[str, Any]:
        """Run everything, keep the run in the store, and return its result."""
        began, clock = datetime.now(UTC), time.perf_counter()
        variables = list(self.recipe.rows())
        rows = [self._row(each, len(variables)) for each in variables]
        failed = [row for row in rows if row["status"] != "ok"]
        recipe = written(self.recipe)
        uid = digest(json_text(recipe, sort_keys=True), began.isoformat())[:16]
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
                options = fill(step.options, scope, step.id)
            except SpecError as error:  # an earlier step has not given what is asked for
                return row | {"status": "failed", "error": str(error)}
            found = self._step(step, options, rows * len(self.recipe.steps))
            steps.append({"id": step.id, "command": found["line"], "key": found["key"], "output": found["output"]})
            if found["status"] != 0:
                return row | {"status": "failed", "error": f"{step.id}: {found['error']}"}
            scope[step.id] = found["output"] | found["places"]
        try:
            for name, value in self.recipe.results.items():
                row["results"][name] = scope[name] = fill(value, scope, f"results.{name}")
            for condition in self.recipe.expect:
                if fill(condition, scope, "expect") is not True:
                    return row | {"status": "unexpected", "error": f"{condition} does not hold"}
        except SpecError as error:
            return row | {"status": "failed", "error": str(error)}
        return row

    def _step(self, step: Step, options: Any, total: int) -> dict[str, Any]:
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

    def _asked(self, step: Step, options: Any) -> dict[str, Any]:
        """Return all that a step's result depends on: what is asked, the files that it names, the sources."""
        line = self.commands.line(step, options, Path("FOLDER"))
        files = digests_of(word for word in line.words if word not in line.writes and not self._inside(word))
        return {"command": line.command, "words": line.words, "files": files, "sources": self.commands.version}

    def _inside(self, path: str) -> bool:
        """Return whether a path is one of the store's own: what is in it follows from what was asked."""
        return Path(os.path.abspath(path)).is_relative_to(os.path.abspath(self.store.folder))

    def _execute(self, line: Line, folder: Path) -> dict[str, Any]:
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
            "error": _told(ran, output),
            "line": f"cosmic {line.command} {' '.join(line.words)}".strip(),
            "output": output if isinstance(output, dict) else {"rows": output},
            "places": places,
            "read": digests_of(each for each in ran.read if not self._inside(each)),
            "wrote": digests_of(line.writes),
        }


def _told(ran: Ran, output: Any) -> str:
    """Return why a command failed: its sentence, or the reasons why a design cannot run."""
    reasons = output.get("reasons") if isinstance(output, dict) else None
    if isinstance(reasons, list) and reasons:
        return "; ".join(map(str, reasons))
    return ran.error.strip().splitlines()[-1] if ran.error.strip() else f"exit status {ran.status}"


def written(recipe: Recipe) -> dict[str, Any]:
    """Return a recipe as a file writes it: `read_recipe` reads it back.

    >>> from cosmic.recipes.recipe import read_recipe
    >>> tree = {"name": "one", "steps": [{"evaluate": {"design": "llama3-8b@dgx-h100:8"}, "id": "evaluate"}]}
    >>> written(read_recipe(tree))["steps"]
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
