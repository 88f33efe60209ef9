"""Which test runs which statements of the targets, and how long it takes."""

from __future__ import annotations

import ast
import builtins
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib.machinery import SourceFileLoader
from types import CodeType
from typing import Any

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import HealthCheck, Phase, settings

from .operators import Probe

SLOWEST_S = 1.5
"""Tests that take longer are not asked."""
EXAMPLES = 15
"""Of a property at most; always the same ones, and none is made smaller once it fails."""
NOTE = "__mutation_note__"
"""The builtin that probes call."""


@dataclass(frozen=True, slots=True)
class Test:
    """A test that passes on the unchanged sources."""

    name: str
    seconds: float
    probes: frozenset[Probe]

    @property
    def file(self) -> str:
        """The file that pytest collects it from."""
        return self.name.partition("::")[0]


@dataclass(slots=True)
class Surveyed:
    """What the tests do on the unchanged sources."""

    tests: list[Test] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    slow: list[str] = field(default_factory=list)
    imported: frozenset[Probe] = frozenset()
    """What runs while the package is imported."""
    collected: frozenset[Probe] = frozenset()
    """What runs while tests are collected."""


class Probes(ast.NodeTransformer):
    """Makes every statement of a function, and every lambda, say that it runs."""

    def __init__(self, module: str) -> None:
        self._module = module

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        """Put probes into the body of a function."""
        self._into(node.body)
        self.generic_visit(node)
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.Lambda:
        """Put a probe before the value of a lambda."""
        self.generic_visit(node)
        node.body = ast.fix_missing_locations(
            ast.copy_location(ast.BoolOp(ast.Or(), [self._call(node), node.body]), node.body)
        )
        return node

    def _into(self, body: list[ast.stmt]) -> None:
        first = 1 if _is_docstring(body) else 0
        probed = body[:first]
        for statement in body[first:]:
            for name in ("body", "orelse", "finalbody"):
                if not isinstance(statement, ast.FunctionDef | ast.ClassDef):
                    self._into(getattr(statement, name, []))
            for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
                self._into(part.body)
            probe = ast.Expr(self._call(statement))
            probed += [ast.fix_missing_locations(ast.copy_location(probe, statement)), statement]
        body[:] = probed

    def _call(self, node: Any) -> ast.Call:
        where: list[ast.expr] = [ast.Constant(each) for each in (self._module, node.lineno, node.col_offset)]
        return ast.Call(ast.Name(NOTE, ast.Load()), [ast.Tuple(where, ast.Load())], [])


def _is_docstring(body: list[ast.stmt]) -> bool:
    return bool(body) and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)


def probed(source: str, module: str, filename: str) -> CodeType:
    """Return the code of a module with probes."""
    return compile(Probes(module).visit(ast.parse(source)), filename, "exec", dont_inherit=True)


def import_as(codes: dict[str, CodeType]) -> None:
    """Make modules be imported as these codes say, by the name of their file."""
    read = SourceFileLoader.get_code

    def get_code(loader: SourceFileLoader, name: str) -> Any:
        return codes.get(loader.get_filename(name)) or read(loader, name)

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign, assignment]


class Notes:
    """What probes have noted."""

    def __init__(self) -> None:
        self._seen: set[Probe] = set()
        setattr(builtins, NOTE, self._seen.add)

    def take(self) -> frozenset[Probe]:
        """Return what ran since the last time."""
        seen = frozenset(self._seen)
        self._seen.clear()
        return seen


def survey(items: Iterable[pytest.Item], notes: Notes, forget: Callable[[], None]) -> Surveyed:
    """Run every test once; *forget* clears what the targets have cached, so that each runs all that it needs."""
    found = Surveyed()
    for item in items:
        forget()
        notes.take()
        passed, seconds = run(item)
        probes = notes.take()
        if not passed:
            found.failed.append(item.nodeid)
        elif seconds > SLOWEST_S:
            found.slow.append(item.nodeid)
        elif probes:
            found.tests.append(Test(item.nodeid, seconds, probes))
    return found


def run(item: pytest.Item) -> tuple[bool, float]:
    """Run a test; return whether it passed, and the seconds of processor time it took."""
    began = time.process_time()
    reports = runtestprotocol(item, log=False, nextitem=None)
    return not any(report.failed for report in reports), time.process_time() - began


def tame(items: Iterable[pytest.Item]) -> None:
    """Make properties be tried on few examples, always the same ones."""
    for item in items:
        function: Any = getattr(getattr(item, "obj", None), "__func__", getattr(item, "obj", None))
        known = getattr(function, "_hypothesis_internal_use_settings", None)
        if known is not None:
            function._hypothesis_internal_use_settings = settings(
                known,
                max_examples=min(known.max_examples, EXAMPLES),
                derandomize=True,
                database=None,
                deadline=None,
                phases=(Phase.explicit, Phase.generate),
                suppress_health_check=list(HealthCheck),
            )
