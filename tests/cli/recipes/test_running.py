"""Recipes with commands of our own: what is run, what is looked up, what is told."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from cosmic.base.errors import SpecError
from cosmic.cli.recipes import (
    CommandLine,
    CommandOutcome,
    RecipeRun,
    RecipeStep,
    RecipeStore,
    differences_of_runs,
    read_recipe,
)


@dataclass
class Doubling:
    """Commands that double their first word, and count how often they run."""

    version: str = "1"
    runs: list[str] = field(default_factory=list)

    def line(self, step: RecipeStep, options: Any, folder: Path) -> CommandLine:
        """Return the options as words."""
        return CommandLine(step.command, tuple(map(str, options)))

    def run(self, line: CommandLine) -> CommandOutcome:
        """Double the first word; 13 fails."""
        self.runs.append(line.words[0])
        if line.words[0] == "13":
            return CommandOutcome(2, "", "first\ndouble: 13 = bad luck")
        return CommandOutcome(0, json.dumps({"twice": 2 * int(line.words[0]), "elapsed_s": len(self.runs)}), "")


TREE: dict[str, Any] = {
    "name": "doubles",
    "tags": ["a", "b"],
    "variables": {"more": "${x + 1}"},
    "grid": {"x": [1, 2]},
    "steps": [{"double": ["${x}"]}, {"double": ["${double.twice}"], "id": "again"}],
    "results": {"four": "${again.twice}"},
    "expect": ["${four == 4 * x}"],
}


def run(tmp_path: Path, tree: dict[str, Any], commands: Doubling, **more: Any) -> dict[str, Any]:
    return RecipeRun(read_recipe(tree), commands, RecipeStore(tmp_path), **more).whole()


def test_a_grid_runs_every_step_once_and_equal_ones_are_looked_up(tmp_path: Path) -> None:
    """Rows 1 and 2 double 1, 2, then 2, 4: the second 2 is known already."""
    commands = Doubling()
    found = run(tmp_path, TREE, commands)
    assert [row["results"]["four"] for row in found["rows"]] == [4, 8]
    assert [row["variables"]["more"] for row in found["rows"]] == [2, 3]
    assert (found["status"], found["executed"], found["cached"], commands.runs) == ("ok", 3, 1, ["1", "2", "4"])


def test_a_second_run_evaluates_nothing_until_sources_change(tmp_path: Path) -> None:
    run(tmp_path, TREE, Doubling())
    again = Doubling()
    assert (run(tmp_path, TREE, again)["cached"], again.runs) == (4, [])
    assert run(tmp_path, TREE, Doubling(version="2"))["executed"] == 3
    fresh = Doubling()
    assert (run(tmp_path, TREE, fresh, fresh=True)["executed"], len(fresh.runs)) == (3, 3)


@pytest.mark.parametrize("name", ["input", "store-old/input", "store/../input"])
def test_a_file_that_is_named_and_changes_is_asked_again(tmp_path: Path, name: str) -> None:
    """Also one whose path begins as that of the store does."""
    file = tmp_path / name
    (tmp_path / "store").mkdir()
    file.parent.mkdir(exist_ok=True)
    file.write_text("one")
    tree = {"steps": [{"double": [1, str(file)]}]}
    counts = []
    for text in ("one", "one", "two"):
        file.write_text(text)
        counts.append(run(tmp_path / "store", tree, Doubling())["executed"])
    assert counts == [1, 0, 1]


def test_a_step_that_fails_ends_its_row_and_is_not_kept(tmp_path: Path) -> None:
    tree = TREE | {"grid": {"x": [13, 2]}}
    found = run(tmp_path, tree, Doubling())
    assert [row["status"] for row in found["rows"]] == ["failed", "ok"]
    assert (found["status"], found["rows"][0]["error"]) == ("failed", "double: double: 13 = bad luck")
    again = Doubling()
    run(tmp_path, tree, again)
    assert again.runs == ["13"]


def test_an_expectation_that_does_not_hold_is_told(tmp_path: Path) -> None:
    found = run(tmp_path, TREE | {"expect": ["${four < 8}"]}, Doubling())
    assert [row["status"] for row in found["rows"]] == ["ok", "unexpected"]
    assert found["status"] == "unexpected"


def test_runs_are_found_by_their_tags(tmp_path: Path) -> None:
    first = run(tmp_path, TREE, Doubling())
    run(tmp_path, TREE | {"tags": ["b", "c"]}, Doubling())
    store = RecipeStore(tmp_path)
    assert [len(store.runs(tags)) for tags in ((), ("b",), ("a", "b"), ("b", "-c"), ("d",))] == [2, 2, 1, 1, 0]
    assert store.open_run(first["run"][:12])[1] == first
    with pytest.raises(SpecError, match="is no run"):
        store.open_run("zz")


def test_a_replay_compares_numbers_and_not_how_long_they_took(tmp_path: Path) -> None:
    before = run(tmp_path, TREE, Doubling())
    now = run(tmp_path / "other", TREE, Doubling(runs=["0"] * 5))
    assert not differences_of_runs(before, now)
    now["rows"][1]["steps"][1]["output"]["twice"] *= 1 + 1e-8
    [found] = differences_of_runs(before, now)
    assert (found.where, found.before) == ("rows.1.steps.again.twice", 8)


@pytest.mark.parametrize(
    ("tree", "rule"),
    [
        ({"steps": []}, "must be a list of commands"),
        ({"stepz": []}, "did you mean 'steps'"),
        ({"steps": [{"a": 1, "b": 2}]}, "must name one command"),
        ({"steps": [{"a": 1}], "grid": {"x": 3}}, "must be a list of values"),
        ({"steps": [{"a": 1}], "grid": {"x": [3]}, "variables": {"x": 1}}, "is a variable already"),
        ({"steps": [{"a": 1, "id": "x"}], "variables": {"x": 1}}, "is the name of a variable"),
        ({"steps": [{"a": 1}], "grid": {"x": [1] * 200, "y": [1] * 200}}, "more than 10,000 combinations"),
        ({"steps": [{"a": 1}], "variables": {"x": "${y}", "y": "${x}"}}, "variables.x = 'y': knows no 'y'"),
        ({"steps": [{"a": 1}, {"b": "${x + 1}"}]}, "b = 'x': knows no 'x'"),
        ({"steps": [{"a": "${b.c}"}, {"b": 1}]}, "a = 'b.c': knows no 'b'"),
        ({"steps": [{"a": {"c": "${a.c}"}}]}, "a.c = 'a.c': knows no 'a'"),
        ({"steps": [{"a": "${x"}], "variables": {"x": 1}}, "has a '${' without its '}'"),
        ({"steps": [{"a": 1}], "results": {"r": "${a +}"}}, "results.r = 'a +'"),
        ({"steps": [{"a": 1}], "results": {"r": "${a.b}"}, "expect": ["${rr > 1}"]}, "did you mean 'r'"),
        ({"steps": [{"a": 1}], "expect": ["a.b > 1"]}, "is no condition: write it as '${a < b}'"),
    ],
)
def test_a_recipe_that_means_nothing_is_refused(tree: dict[str, Any], rule: str) -> None:
    with pytest.raises(SpecError) as caught:
        read_recipe(tree)
    assert rule in str(caught.value)


def test_variables_are_changed_from_outside_and_others_are_refused() -> None:
    recipe = read_recipe(TREE, {"x": 5})
    assert list(recipe.rows()) == [{"x": 5, "more": 6}]
    with pytest.raises(SpecError, match="is none of this recipe"):
        read_recipe(TREE, {"y": 5})


def test_what_a_step_read_is_asked_again(tmp_path: Path) -> None:
    """A file that no word names decides, too: a design's model, for example."""
    model = tmp_path / "model.json"

    @dataclass
    class Reading(Doubling):
        def run(self, line: CommandLine) -> CommandOutcome:
            return replace(super().run(line), read=(str(model),))

    tree = {"steps": [{"double": ["1"]}]}
    model.write_text("8")
    assert [run(tmp_path / "store", tree, Reading())["executed"] for _ in range(2)] == [1, 0]
    model.write_text("16")
    assert run(tmp_path / "store", tree, Reading())["executed"] == 1
    model.unlink()
    assert run(tmp_path / "store", tree, Reading())["executed"] == 1


def test_what_a_step_has_not_printed_ends_its_row_and_not_the_others(tmp_path: Path) -> None:
    """13 fails, so that its row ends there; a path that no step prints ends every row, and all are kept."""
    found = run(tmp_path, TREE | {"results": {"four": "${again.thrice}"}}, Doubling())
    assert [row["status"] for row in found["rows"]] == ["failed", "failed"]
    assert "results.four = 'again.thrice': 'again' has no 'thrice'" in found["rows"][1]["error"]
    assert RecipeStore(tmp_path).open_run(found["run"])[1]["status"] == "failed"
    steps = [{"double": ["${x}"]}, {"double": ["${double.thrice}"], "id": "again"}]
    found = run(tmp_path, TREE | {"steps": steps}, Doubling())
    assert "again.0 = 'double.thrice': 'double' has no 'thrice'" in found["rows"][0]["error"]


def test_a_file_beside_the_store_is_not_in_it(tmp_path: Path) -> None:
    """A store `one` does not own a file `one.txt`: it is read again when it changes."""
    path = tmp_path / "one.txt"
    path.write_text("1")
    tree = {"steps": [{"double": ["1", str(path)]}]}
    commands = Doubling()
    for text in ("1", "2"):
        path.write_text(text)
        run(tmp_path / "one", tree, commands)
    assert commands.runs == ["1", "1"]


def test_a_result_that_was_changed_by_hand_is_not_believed(tmp_path: Path) -> None:
    commands = Doubling()
    tree = {"steps": [{"double": ["1"]}], "results": {"two": "${double.twice}"}}
    run(tmp_path, tree, commands)
    [path] = (tmp_path / "cache").glob("*/result.json")
    path.write_text(path.read_text().replace('"twice": 2', '"twice": 1'))
    found = run(tmp_path, tree, commands)
    assert (found["rows"][0]["results"], commands.runs) == ({"two": 2}, ["1", "1"])
