"""The house, counted: packages, levels, modules, names, users of definitions, and what each command runs.

    python benchmarks/house.py [--json] [--against REVISION] [--check] [--fields]

Counts are thermometers: they say where to look, not what is good. `--against` counts another revision beside this
tree. `--check` compares with the ratchets in `benchmarks/house_ratchets.json` and fails where one has risen; those
that may only fall are recurring names, definitions with one user, two-way pairs of rooms, modules run per command and
modules that name a field (`--fields` lists them). Lines, modules and words are reported, not held.
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
from statistics import median
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
    names, fields = count_names(modules), count_fields(modules)
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
        **summarize_fields(fields),
        "which": names | {"fields": fields},
    }


LAYERS = {"workload": "Workload", "serving": "Serving"}
"""Layers of a design whose fields are counted: the name of the layer in a design point, and its class."""
SHORT_NAMES = {"workload": {"workload", "w"}, "serving": {"serving"}}
"""What the values of these layers are called everywhere."""


class FieldNames:
    """The fields of one layer that a module names.

    A name with an underscore (`weight_sharding`) belongs to the field wherever code has it: as an attribute, a keyword,
    a key, a word of a string or of a rule. A plain word (`tp`, `task`, `loss`) has other meanings, and counts only where
    it is the layer's for certain: an attribute of `.workload`, of a name that was bound to one or annotated as one; the
    path `workload.tp`; a keyword of the class, or of a `replace` of its value; an item or key beside another field
    whose name has an underscore. Docstrings and comments are not code. A name read from the declaration by a loop is
    not seen, which is the point.
    """

    def __init__(self, layer: str, names: set[str], tree: ast.Module) -> None:
        self.layer, self.names, self.found = layer, names, set[str]()
        bodies = [body for node in ast.walk(tree) if isinstance(body := getattr(node, "body", None), list)]
        self.docstrings = {
            id(node.value)
            for body in bodies
            for node in body
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }
        self.values = SHORT_NAMES[layer] | {
            target.id
            for node in ast.walk(tree)
            for target, value in self._bindings(node)
            if isinstance(target, ast.Name) and self._is_layer(value)
        }
        for node in ast.walk(tree):
            self._read(node)

    def _bindings(self, node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST | None]]:
        """Yield what is bound, and to what: by assignment, or by an annotation that names the class."""
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    yield from zip(target.elts, node.value.elts, strict=False)
                else:
                    yield target, node.value
        elif isinstance(node, ast.NamedExpr):
            yield node.target, node.value
        elif isinstance(node, ast.arg) and node.annotation is not None:
            yield ast.Name(node.arg), node.annotation

    def _is_layer(self, node: ast.AST | None) -> bool:
        if isinstance(node, ast.Attribute):
            return node.attr == self.layer
        if isinstance(node, ast.Name):
            return node.id == LAYERS[self.layer] or node.id in getattr(self, "values", SHORT_NAMES[self.layer])
        return isinstance(node, ast.BinOp) and self._is_layer(node.left)

    def _add(self, name: str, *, certain: bool) -> None:
        if name in self.names and (certain or "_" in name):
            self.found.add(name)

    def _read(self, node: ast.AST) -> None:
        match node:
            case ast.Attribute():
                self._add(node.attr, certain=self._is_layer(node.value))
            case ast.AnnAssign(target=ast.Name(id=name)):
                self._add(name, certain=False)
            case ast.Call():
                called = getattr(node.func, "attr", getattr(node.func, "id", ""))
                replaced = called == "replace" and bool(node.args) and self._is_layer(node.args[0])
                for keyword in node.keywords:
                    self._add(keyword.arg or "", certain=replaced or called == LAYERS[self.layer])
            case ast.Constant(value=str(text)) if id(node) not in self.docstrings:
                for word in re.findall(rf"{self.layer}\.(\w+)", text):
                    self._add(word, certain=True)
                for word in re.findall(r"\w+", text):
                    self._add(word, certain=False)
            case ast.Tuple(elts=items) | ast.List(elts=items) | ast.Set(elts=items) | ast.Dict(keys=items):
                words = {item.value for item in items if isinstance(item, ast.Constant) and isinstance(item.value, str)}
                for word in words:
                    self._add(word, certain=any("_" in other for other in words & self.names - {word}))
            case _:
                pass


def count_fields(modules: dict[str, Module]) -> dict[str, dict[str, list[str]]]:
    """Return for each layer its fields, each with the modules that name it; the one that declares it counts."""
    counted = {}
    for layer, name in LAYERS.items():
        home = next(
            (module for module in modules.values() for node in top_definitions(module.tree) if node.name == name), None
        )
        if home is None:
            continue
        declared = next(node for node in top_definitions(home.tree) if node.name == name)
        fields = [
            node.target.id
            for node in declared.body
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
        ]
        users: dict[str, list[str]] = {field: [home.name] for field in fields}
        for module in modules.values():
            if module is not home:
                for field in FieldNames(layer, set(fields), module.tree).found:
                    users[field].append(module.name)
        counted[layer] = users
    return counted


def summarize_fields(counted: dict[str, dict[str, list[str]]]) -> dict[str, float]:
    """Return the median and the most modules that name a field, of each layer, and those of `weight_sharding`."""
    counts: dict[str, float] = {}
    for layer, users in counted.items():
        sizes = [len(those) for those in users.values()]
        counts |= {f"field_modules_median.{layer}": median(sizes), f"field_modules_most.{layer}": max(sizes)}
    if "weight_sharding" in counted.get("workload", {}):
        counts["field_modules.weight_sharding"] = len(counted["workload"]["weight_sharding"])
    return counts


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
    "base/event_clock.py:EventClock.run",  # the actions of events
    "base/numeric.py:elementwise.<locals>.call",  # a function of scalars, over arrays
    "base/optimise.py:explore",  # the loop of every search: what evaluates the candidates of an agent
    "base/optimise.py:_Together._advance",  # an agent by steps
    "base/optimise.py:optimise.<locals>.<lambda>",  # one of them
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
    held |= {name: value for name, value in counts.items() if name.startswith("field_modules")}
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
    parser.add_argument("--fields", action="store_true", help="list the modules that name each field, and no more")
    options = parser.parse_args()
    if options.fields:
        for layer, users in count_fields(read_modules(ROOT / "src" / "cosmic")).items():
            for name, those in sorted(users.items(), key=lambda entry: (-len(entry[1]), entry[0])):
                print(f"{layer}.{name} {len(those)}: {' '.join(module.removeprefix('cosmic.') for module in those)}")
        return 0
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
