"""The house, counted: packages, levels, modules, names, users of definitions, and what each command runs.

    python benchmarks/house.py [--json] [--against REVISION] [--check]

Counts are thermometers: they say where to look, not what is good. `--against` counts another revision beside this
tree. `--check` compares with the ratchets in `benchmarks/house_ratchets.json` and fails where one has risen; those
that may only fall are recurring names, definitions with one user, two-way pairs of rooms and modules run per command.
Lines, modules and words are reported, not held.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RATCHETS = Path(__file__).with_name("house_ratchets.json")
WALKS = {
    "evaluate": ["evaluate", "llama3-70b@dgx-h100:512"],
    "search": ["search", "llama3-8b@dgx-h100:8", "--framework", "megatron"],
    "serve": ["serve", "llama3-70b@h100:8", "--input", "4000", "--output", "500", "--concurrency", "64"],
    "trace_convert": [
        "trace",
        "convert",
        "examples/profiles/gpt.et.json.gz",
        "examples/profiles/gpt.kineto.json.gz",
        "--out",
        "{scratch}/gpt",
    ],
}


@dataclass
class Module:
    """One module of the package as a tree, with what its names stand for."""

    name: str
    path: Path
    tree: ast.Module
    imported: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Local name to (module, name in it); the name is empty where the module itself is bound."""

    @property
    def room(self) -> str:
        """Return the package below the root that the module is in, or the module itself."""
        return self.name.split(".")[1] if "." in self.name else self.name


def read_modules(source: Path) -> dict[str, Module]:
    """Return the modules below *source* (the folder `cosmic`) by dotted name."""
    modules = {}
    for path in sorted(source.rglob("*.py")):
        parts = [source.name, *path.relative_to(source).with_suffix("").parts]
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        modules[name] = Module(name, path, ast.parse(path.read_text()))
    for module in modules.values():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for alias in node.names:
                    whole = f"{node.module}.{alias.name}"
                    target = (whole, "") if whole in modules else (node.module, alias.name)
                    module.imported[alias.asname or alias.name] = target
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.asname:
                        module.imported[alias.asname] = (alias.name, "")
    return modules


def top_definitions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """Yield the functions and classes at the top of a module."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node


def users_of_definitions(modules: dict[str, Module]) -> dict[tuple[str, str], set[tuple[str, str]]]:
    """Return for each top-level function or class who names it: other definitions, or the body of a module.

    An import alone is no use, and a definition that names itself is not its own user. Tables of names in strings
    (lazy imports) are not seen.
    """
    users: dict[tuple[str, str], set[tuple[str, str]]] = {
        (module.name, node.name): set() for module in modules.values() for node in top_definitions(module.tree)
    }

    def resolve(module: Module, node: ast.AST) -> tuple[str, str] | None:
        if isinstance(node, ast.Name):
            return module.imported.get(node.id, (module.name, node.id))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            target = module.imported.get(node.value.id)
            return (target[0], node.attr) if target and not target[1] else None
        return None

    for module in modules.values():
        for statement in module.tree.body:
            own = getattr(statement, "name", "")
            for node in ast.walk(statement):
                target = resolve(module, node)
                if target in users and target != (module.name, own):
                    users[target].add((module.name, own))
    return users


def count_names(modules: dict[str, Module]) -> dict[str, Any]:
    """Return the names of modules and classes that stand for more than one thing."""
    stems: defaultdict[str, set[str]] = defaultdict(set)
    classes: Counter[str] = Counter()
    for module in modules.values():
        if module.path.name != "__init__.py":
            stems[module.path.stem].add(str(module.path.parent))
        classes.update(node.name for node in ast.walk(module.tree) if isinstance(node, ast.ClassDef))
    return {
        "recurring_module_names": sorted(name for name, homes in stems.items() if len(homes) > 1),
        "recurring_class_names": sorted(name for name, count in classes.items() if count > 1),
    }


def count_comments(modules: dict[str, Module]) -> float:
    """Return the lines that are only a comment, per thousand lines."""
    lines = [line for module in modules.values() for line in module.path.read_text().splitlines()]
    comments = sum(
        line.lstrip().startswith("#") and not re.match(r"\s*# (noqa|type:|ruff|mypy)", line) for line in lines
    )
    return round(1000 * comments / len(lines), 1)


def count_words(root: Path) -> dict[str, int]:
    """Return the words of the documentation without its generated reference: of prose, and of all there is.

    Prose is what stands outside blocks of code and their outputs, and outside tables, which programs write.
    """
    pages = [path.read_text() for path in (root / "docs").rglob("*.md") if "reference" not in path.parts]
    outside_blocks = [re.sub(r"```.*?```", "", page, flags=re.DOTALL) for page in pages]
    prose = [re.sub(r"^\s*\|.*$", "", page, flags=re.MULTILINE) for page in outside_blocks]
    return {
        "words_of_prose": sum(len(page.split()) for page in prose),
        "words_of_docs": sum(len(page.split()) for page in pages),
    }


def static_counts(root: Path) -> dict[str, Any]:
    """Return what can be counted without running anything."""
    source = root / "src" / "cosmic"
    modules = read_modules(source)
    users = users_of_definitions(modules)
    names = count_names(modules)
    project = tomllib.loads((root / "pyproject.toml").read_text())
    contracts = project.get("tool", {}).get("importlinter", {}).get("contracts", [])
    one = sum(len(those) == 1 for those in users.values())
    return {
        "packages": sum((path / "__init__.py").is_file() for path in source.iterdir() if path.is_dir()),
        "levels": next((len(contract["layers"]) for contract in contracts if "layers" in contract), 0),
        "modules": len(modules),
        "lines": sum(module.path.read_text().count("\n") for module in modules.values()),
        "definitions": len(users),
        "one_user_share": round(one / len(users), 4),
        "recurring_module_names": len(names["recurring_module_names"]),
        "recurring_class_names": len(names["recurring_class_names"]),
        "comment_lines_per_1000": count_comments(modules),
        "test_lines": sum(path.read_text().count("\n") for path in (root / "tests").rglob("*.py")),
        **count_words(root),
        "which": names,
    }


WALK = """
import json, sys
root, arguments = sys.argv[1], sys.argv[2:]
callbacks = set(sys.stdin.read().split())
seen, edges, values, calls = set(), set(), set(), 0
prefix = root + "/src/cosmic/"
def room(path):
    return path[len(prefix):].split("/")[0].removesuffix(".py")
def note(frame, event, _):
    global calls
    if event != "call": return
    code = frame.f_code
    path = code.co_filename
    if not path.startswith(prefix) or code.co_name == "<module>": return
    calls += 1
    seen.add(path)
    caller = frame.f_back
    while caller is not None and not caller.f_code.co_filename.startswith(prefix):
        caller = caller.f_back
    if caller is not None and caller.f_code.co_name != "<module>":
        here, there = room(caller.f_code.co_filename), room(path)
        # A lambda, a local function and a generator are values that the caller was handed; 0x20 marks a generator.
        value = "<locals>" in code.co_qualname or code.co_flags & 0x20
        name = caller.f_code.co_qualname.removesuffix(".<locals>.<listcomp>")
        handed = value or caller.f_code.co_filename[len(prefix):] + ":" + name in callbacks
        if here != there: (values if handed else edges).add((here, there))
def both_ways(pairs):
    return sorted("{} {}".format(*pair) for pair in pairs if pair[0] < pair[1] and pair[::-1] in pairs)
from importlib import import_module
try:
    main = import_module("cosmic.cli.dispatch").main
except ImportError:
    main = import_module("cosmic.cli").main
import contextlib, io
sys.setprofile(note)
status = 0
try:
    with contextlib.redirect_stdout(io.StringIO()):
        main(arguments)
except SystemExit as end:
    status = end.code
sys.setprofile(None)
imported = [name for name in sys.modules if name == "cosmic" or name.startswith("cosmic.")]
print(json.dumps({"status": status, "run": len(seen), "imported": len(imported), "calls": calls,
    "two_way": both_ways(edges), "two_way_through_values": both_ways(edges | values)}))
"""


CALLBACKS = (
    "base/numeric.py:elementwise.<locals>.call",  # a function of scalars, over arrays
    "design/design_batch.py:Batch.once",  # what a batch computes once and keeps
    "design/design_batch.py:Combinations.look_up",  # terms of few distinct rows, spread over all
    "search/search_loop.py:run_search",  # tells its caller of each trial
    "workload/operator_graph.py:cached_size",  # sizes that a step derives, kept with the graph
)
"""Functions that call what an upper room hands them, documented there: no call back into that room."""
FIRST_USE = WALK.replace("sys.setprofile(note)", "")
"""The same without counting: what processes keep on disk for later ones is there when the walk is taken."""


def walk_counts(root: Path) -> dict[str, Any]:
    """Return for each command, in a process of its own, the modules that run and that are imported."""
    counts = {}
    for name, words in WALKS.items():
        with tempfile.TemporaryDirectory() as scratch:
            arguments = [word.format(scratch=scratch) for word in words]
            environment = {
                "PATH": "/usr/bin:/bin",
                "HOME": scratch,
                "XDG_CACHE_HOME": scratch,
                "PYTHONPATH": str(root / "src"),
                "PYTHONDONTWRITEBYTECODE": "1",
            }
            for program in (FIRST_USE, WALK):
                done = subprocess.run(
                    [sys.executable, "-c", program, str(root), *arguments],
                    cwd=root,
                    env=environment,
                    input="\n".join(CALLBACKS),
                    capture_output=True,
                    text=True,
                    check=False,
                )
            if done.returncode:
                raise SystemExit(f"{name}: the walk failed\n{done.stderr}")
            counts[name] = json.loads(done.stdout.splitlines()[-1])
            if counts[name]["status"]:
                # A command that fails runs few modules: its count would be a limit that no working one can hold.
                raise SystemExit(f"{name}: exit status {counts[name]['status']} of `cosmic {' '.join(arguments)}`")
    return counts


def count(root: Path) -> dict[str, Any]:
    """Return all counts of a tree."""
    counts = static_counts(root)
    counts["walks"] = walk_counts(root)
    for kind in ("two_way", "two_way_through_values"):
        counts[f"{kind}_pairs"] = len({pair for walk in counts["walks"].values() for pair in walk[kind]})
    return counts


def ratchets_of(counts: dict[str, Any]) -> dict[str, float]:
    """Return the counts that may only fall."""
    held = {
        name: counts[name]
        for name in ("recurring_module_names", "recurring_class_names", "one_user_share", "two_way_pairs")
    }
    held |= {f"modules_run.{name}": walk["run"] for name, walk in counts["walks"].items()}
    held["modules_imported.trace_convert"] = counts["walks"]["trace_convert"]["imported"]
    return held


def tree_at(revision: str, folder: Path) -> Path:
    """Extract a revision into *folder*."""
    packed = subprocess.run(
        ["git", "archive", revision, "src", "tests", "docs", "examples/profiles", "pyproject.toml"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout
    with tarfile.open(fileobj=BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def main() -> int:
    """Print the counts; with --check, say which ratchet has risen."""
    parser = argparse.ArgumentParser(description="Count the house.")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--against", metavar="REVISION")
    options = parser.parse_args()
    counts = count(ROOT)
    if options.check:
        held, limits = ratchets_of(counts), json.loads(RATCHETS.read_text())
        risen = {name: (limits[name], value) for name, value in held.items() if value > limits[name]}
        for name, (limit, value) in risen.items():
            print(f"{name} = {value}: at most {limit}; see benchmarks/house_ratchets.json")
        print(f"{len(held) - len(risen)} of {len(held)} ratchets hold")
        return bool(risen)
    before = None
    if options.against:
        with tempfile.TemporaryDirectory() as folder:
            before = count(tree_at(options.against, Path(folder)))
    if options.json:
        print(json.dumps({"now": counts, "before": before} if before else counts, indent=1))
        return 0
    for name, value in flat(counts):
        was = f"{dict(flat(before)).get(name)!s:>12}" if before else ""
        print(f"{name:<32}{was}{value!s:>12}")
    return 0


def flat(counts: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the counts as rows of a table."""
    for name, value in counts.items():
        if name == "walks":
            for command, walk in value.items():
                yield f"{command}: modules run", walk["run"]
                yield f"{command}: modules imported", walk["imported"]
        elif name != "which":
            yield name, value


if __name__ == "__main__":
    sys.exit(main())
