"""Run recipes, and replay them: what `cosmic run` and `cosmic.run` call.

Steps are commands, and commands are the topmost layer: they are found by their name, when a recipe is run.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cosmic.recipes.recipe import read_recipe
from cosmic.recipes.replaying import differences
from cosmic.recipes.running import Run, Watch
from cosmic.recipes.store import Store

STORE = "runs/recipes"


def run(
    recipe: str | Path | Mapping[str, Any],
    *,
    variables: Mapping[str, Any] | None = None,
    store: str | Path = STORE,
    fresh: bool = False,
    watch: Watch | None = None,
) -> dict[str, Any]:
    """Return what a recipe gives: a mapping, or a YAML file; *variables* replace its own.

    Steps that were run before, with the same words, files and sources, are looked up in *store*; with *fresh*, they are
    run again. A step that fails is told in ``status`` and ``error`` of its row; the other rows are run.
    """
    commands = import_module("cosmic.cli.recipe_steps").CommandLines()
    return Run(read_recipe(recipe, variables), commands, Store(Path(store)), fresh, watch).whole()


def replay(run_id: str, store: str | Path = STORE) -> dict[str, Any]:
    """Return a comparison of a kept run with the same recipe, run from nothing."""
    recipe, before = Store(Path(store)).open_run(run_id)
    with TemporaryDirectory(prefix="cosmic-") as folder:
        now = run(recipe, store=folder, fresh=True)
    found = differences(before, now)
    return {
        "run": before["run"],
        "same": not found,
        "differences": [{"where": each.where, "before": each.before, "now": each.now} for each in found],
        "sources_before": before["sources"],
        "sources_now": now["sources"],
    }
