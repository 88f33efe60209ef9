"""The house: rooms, what each offers to others, and the words of ARCHITECTURE.md are what the code has."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "benchmarks"))

from house import FieldNames  # noqa: E402  it is no package that is installed

SOURCE = ROOT / "src" / "cosmic"
ROOMS = sorted(path.name for path in SOURCE.iterdir() if (path / "__init__.py").is_file())
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text()
MOST_NOUNS = 150


def section(page: str, heading: str) -> str:
    """Return the text under a heading of the second level."""
    return page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def modules_of(room: str) -> set[str]:
    """Return the modules and packages at the top of a room."""
    names = {path.stem for path in (SOURCE / room).glob("*.py") if path.stem not in ("__init__", "__main__")}
    return names | {path.parent.name for path in (SOURCE / room).glob("*/__init__.py")}


def crossing_imports() -> dict[str, set[str]]:
    """Return for each room what other rooms import from it: dotted paths below the room.

    The doors of the API (`cosmic.study`, a room's own `__init__`) may offer anything to users, and are left out.
    """
    crossing: dict[str, set[str]] = {room: set() for room in ROOMS}
    for path in SOURCE.rglob("*.py"):
        here = path.relative_to(SOURCE).parts[0]
        if here not in ROOMS or path == SOURCE / here / "__init__.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            targets = []
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("cosmic."):
                targets = [f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Import):
                targets = [alias.name for alias in node.names if alias.name.startswith("cosmic.")]
            for target in targets:
                _, room, *rest = target.split(".")
                if room in ROOMS and room != here and rest:
                    crossing[room].add(module_path(room, rest))
    return crossing


def module_path(room: str, parts: list[str]) -> str:
    """Return the leading *parts* that name a module of a room; the rest are names in it."""
    folder, path = SOURCE / room, []
    for part in parts:
        if not ((folder / part).is_dir() or (folder / f"{part}.py").is_file()):
            break
        path.append(part)
        folder /= part
    return ".".join(path)


def test_architecture_lists_every_room_at_its_level() -> None:
    rows = re.findall(r"^\| (\d) \| \[`(\w+)`\]\(src/cosmic/\2/README\.md\) \|", ARCHITECTURE, re.MULTILINE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    layers = next(
        contract["layers"]
        for contract in project["tool"]["importlinter"]["contracts"]
        if contract["name"] == "Data flows one way"
    )
    levels = {
        room.strip(): str(level)
        for level, names in enumerate(reversed(layers), 1)
        for room in re.split(r"[:|]", names)
        if room.strip() in ROOMS
    }
    assert {room: level for level, room in rows} == levels
    assert sorted(levels) == ROOMS
    assert len(layers) <= 7
    assert len(ROOMS) <= 14


def test_each_room_has_a_readme_that_lists_its_modules() -> None:
    wrong = []
    for room in ROOMS:
        page = (SOURCE / room / "README.md").read_text()
        listed = set(re.findall(r"^\| `([\w.]+)` \|", section(page, "Modules"), re.MULTILINE))
        if not page.startswith(f"# {room}: "):
            wrong.append(f"{room}: its README begins with another heading")
        wrong += [f"{room}/README.md does not list {name}" for name in sorted(modules_of(room) - listed)]
        wrong += [f"{room}/README.md lists {name}, which is not there" for name in sorted(listed - modules_of(room))]
    assert wrong == []


def test_other_rooms_import_only_what_a_room_offers() -> None:
    wrong = []
    for room, imported in crossing_imports().items():
        page = (SOURCE / room / "README.md").read_text()
        offered = set(re.findall(r"`([\w.]+)`", section(page, "Offers")))
        wrong += [f"{room}/README.md does not offer {name}" for name in sorted(imported - offered - {""})]
    assert wrong == []


def test_every_noun_of_the_glossary_is_a_word_of_the_code() -> None:
    rows = re.findall(r"^\| ([a-z][a-z, ]+) \| ", section(ARCHITECTURE, "Glossary"), re.MULTILINE)
    nouns = [noun.strip() for row in rows[1:] for noun in row.split(",")]
    assert 50 < len(nouns) <= MOST_NOUNS
    assert len(set(nouns)) == len(nouns)
    words = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                words.update(re.findall(r"[a-z]+", re.sub(r"([A-Z])", r"_\1", node.name).lower()))
        words.update(re.findall(r"[a-z]+", path.relative_to(SOURCE).as_posix()))
    plural = {word.removesuffix("s") for word in words} | {word.removesuffix("es") for word in words}
    assert [noun for noun in nouns if not set(noun.split()) <= words | plural] == []


def test_what_architecture_says_to_read_exists() -> None:
    text = re.sub(r"^```.*?^```$", "", ARCHITECTURE, flags=re.MULTILINE | re.DOTALL)
    dotted = re.findall(rf"`((?:{'|'.join(ROOMS)})(?:\.\w+)+)", text)
    assert len(dotted) > 10
    missing = [name for name in dotted if not module_path(name.split(".")[0], name.split(".")[1:])]
    assert missing == []


def test_a_field_is_counted_where_a_module_names_it_and_not_where_a_word_means_something_else() -> None:
    source = '''
"""A docstring that speaks of dp_overlap."""
def price(point, w: Workload, other):
    axis = "tp"                      # an axis, not the field
    other.attention, other.loss      # of another value
    return point.workload.tp, w.cp, {"dp_overlap": 1, "dp": 2}, batch["workload.pp"], "ep_overlap or ep == 1"
'''
    names = {"attention", "cp", "dp", "dp_overlap", "ep", "ep_overlap", "loss", "pp", "tp"}
    assert FieldNames("workload", names, ast.parse(source)).found == {
        "cp",
        "dp",
        "dp_overlap",
        "ep_overlap",
        "pp",
        "tp",
    }
