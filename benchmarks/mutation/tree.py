"""What is mutated, and which tests are asked: files of a source tree, by label."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from .operators import Mutant, mutants

TARGETS: Mapping[str, tuple[str, ...]] = {
    "network": (
        "network/*.py",
        "network/topologies/*.py",
        "network/collective_algorithms/*.py",
    ),
    "cluster": ("cluster/cluster_cost.py", "cluster/builds/*.py"),
    "workload": ("workload/mesh_sizes.py", "workload/attended_keys.py", "workload/precision.py"),
    "step": ("step/*.py", "step/cuts/*.py"),
    "simulate": ("simulate/analytic_step.py", "simulate/step_evaluation.py"),
}
"""What is mutated, by room: globs within the package; those with a ! are left out.

Synthesis and its bounds are not: a worse schedule, or a lower bound that is less tight, is not wrong.
"""
TESTS = (
    "tests/network",
    "tests/cluster/pricing",
    "tests/step",
    "tests/workload",
    "tests/simulate/test_analytic_by_hand.py",
    "tests/simulate/test_analytic_ends_by_hand.py",
    "tests/test_possible_metrics.py",
    "tests/simulate/test_closed_forms.py",
    "tests/test_evaluate.py",
    "tests/test_evaluation_by_hand.py",
)
"""Which tests are asked, beside the doctests of what is mutated; those that are not there are left out."""


@dataclass(frozen=True)
class Tree:
    """A source tree: its root and the package in it."""

    root: Path
    package: Path

    def path(self, module: str) -> Path:
        """Return the file of a module of the package."""
        return self.package / module

    def dotted(self, module: str) -> str:
        """Return the name by which a module is imported."""
        parts = [self.package.name, *Path(module).with_suffix("").parts]
        return ".".join(parts).removesuffix(".__init__")

    def matching(self, globs: Iterable[str]) -> list[str]:
        """Return the modules that the globs match, without those that globs with a ! match."""
        chosen: set[str] = set()
        for glob in globs:
            found = {path.relative_to(self.package).as_posix() for path in self.package.glob(glob.removeprefix("!"))}
            chosen = chosen - found if glob.startswith("!") else chosen | found
        return sorted(chosen)

    def unmatched(self, globs: Iterable[str]) -> list[str]:
        """Return the globs that match nothing."""
        return [glob for glob in globs if not any(self.package.glob(glob.removeprefix("!")))]

    def mutants(self, modules: Iterable[str]) -> list[Mutant]:
        """Return the mutants of some modules."""
        return [mutant for module in modules for mutant in mutants(self.path(module).read_text(), module)]

    def label(self, module: str) -> str:
        """Return the label under which a module is listed in the table, else its folder's name."""
        return next((label for label, modules in self.labels.items() if module in modules), module.partition("/")[0])

    @cached_property
    def labels(self) -> dict[str, list[str]]:
        """The modules of every label of the table."""
        return {label: self.matching(globs) for label, globs in TARGETS.items()}


class Imports:
    """Which files of a tree import which others, directly or not."""

    def __init__(self, tree: Tree) -> None:
        self._folders = (tree.package.parent, tree.root)
        self._direct: dict[Path, frozenset[Path]] = {}

    def reach(self, path: Path, wanted: frozenset[Path]) -> bool:
        """Return whether a file imports one of *wanted*, directly or not, or is one."""
        seen, waiting = {path}, [path]
        while waiting:
            each = waiting.pop()
            if each in wanted:
                return True
            new = self.direct(each) - seen
            seen |= new
            waiting.extend(new)
        return False

    def direct(self, path: Path) -> frozenset[Path]:
        """Return the files that a file imports."""
        if path not in self._direct:
            nodes = ast.walk(ast.parse(path.read_text()))
            self._direct[path] = frozenset(file for node in nodes for file in self._imported(node, path))
        return self._direct[path]

    def _imported(self, node: ast.AST, path: Path) -> Iterator[Path]:
        if isinstance(node, ast.Import):
            yield from self._files(*(alias.name for alias in node.names))
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                within = f"{node.module}.{alias.name}" if node.module else alias.name
                found = list(self._files(within, beside=path.parent if node.level else None))
                yield from found or self._files(node.module or "", beside=path.parent if node.level else None)

    def _files(self, *names: str, beside: Path | None = None) -> Iterator[Path]:
        """Yield the files of modules that the tree has."""
        for name in names:
            for folder in self._folders if beside is None else (beside,):
                place = folder / Path(*name.split("."))
                yield from (file for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file())


class Mentions:
    """Where a name occurs in some files: in functions, or in what runs at import."""

    def __init__(self, paths: Iterable[Path], *, at_import: bool) -> None:
        self.lines: dict[str, set[tuple[Path, int]]] = {}
        self.renamed: set[str] = set()
        """What is imported under another name."""
        for path in paths:
            for node, imported in _with_time(ast.parse(path.read_text()), True):
                if isinstance(node, ast.alias) and node.asname:
                    self.renamed.add(node.name)
                name = getattr(node, "id", None) or getattr(node, "attr", None)
                if name and imported == at_import:
                    self.lines.setdefault(name, set()).add((path, node.lineno))  # type: ignore[attr-defined]


def _with_time(node: ast.AST, at_import: bool) -> Iterator[tuple[ast.AST, bool]]:
    """Yield all nodes of a tree, and whether they run at import; annotations are left out."""
    yield node, at_import
    for field, value in ast.iter_fields(node):
        inside = field == "body" and isinstance(node, ast.FunctionDef | ast.Lambda)
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, ast.AST) and field not in ("annotation", "returns"):
                yield from _with_time(each, at_import and not inside)
