"""Put a mutant in place of what is in memory, and forget what was cached."""

from __future__ import annotations

import ast
import functools
import gc
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from .operators import Mutant, replaced
from .survey import probed
from .tree import Imports, Mentions, Tree

Key = tuple[str, int, int]
"""A function's qualified name, its first line, and how many of that name and line come before it."""


class NotInPlaceError(Exception):
    """A mutant cannot replace what is in memory, and needs a fresh import."""


class Live:
    """The functions and constants of the targets that are in memory, and the caches that depend on them."""

    def __init__(self, tree: Tree, modules: list[str]) -> None:
        self._tree = tree
        gc.unfreeze()  # what was frozen, by the tests' own set-up for instance, is not among the objects
        gc.collect()
        objects = gc.get_objects()
        functions = [each for each in objects if type(each) is FunctionType]
        self._functions = {module: list(_of_module(functions, tree, module)) for module in modules}
        imports, targets = Imports(tree), frozenset(map(tree.path, modules))
        self._caches = [each for each in objects if _is_cache(each) and _depends(each, imports, targets, tree.root)]
        self._modules = {Path(file): each for each in list(sys.modules.values()) if (file := _file(each, tree.root))}
        self._at_import = Mentions(self._modules, at_import=True)

    def forget(self) -> None:
        """Clear the caches of all functions that may call a target."""
        for cache in self._caches:
            cache.cache_clear()
        if evaluation := sys.modules.get("cosmic.simulate.step_evaluation"):
            evaluation.RECORDER.forget()

    def put(self, mutant: Mutant) -> None:
        """Give the functions or the constant in memory the code of a mutant."""
        if mutant.at_import:
            self._put_constant(mutant)
        elif not self._put_code(mutant.module, dict(_codes(mutant.compile(str(self._tree.path(mutant.module)))))):
            raise NotInPlaceError(mutant.id)

    def restore(self) -> None:
        """Take the probes out of all functions."""
        for module in self._functions:
            path = self._tree.path(module)
            code = compile(path.read_text(), str(path), "exec", dont_inherit=True)
            self._put_code(module, dict(_codes(code)))

    def _put_code(self, module: str, codes: dict[Key, CodeType]) -> bool:
        """Return whether any function of a module has changed."""
        changed = False
        for key, function in self._functions[module]:
            code = codes.get(key)
            if code is None or code.co_freevars != function.__code__.co_freevars:
                raise NotInPlaceError(module, key)
            changed |= code != function.__code__
            function.__code__ = code
        return changed

    def _put_constant(self, mutant: Mutant) -> None:
        """Compute a module's constant anew, and bind it wherever it was imported to.

        This is not enough where something else was made of the constant at import.
        """
        name, path = constant(mutant), self._tree.path(mutant.module)
        module = self._modules[path]
        if not name or len(self._at_import.lines.get(name, ())) > 1 or name in self._at_import.renamed:
            raise NotInPlaceError(mutant.id)
        before, namespace = vars(module)[name], dict(vars(module))
        with replaced(mutant.place, mutant.replacement):
            exec(compile(ast.Module([_statement(mutant)], []), str(path), "exec", dont_inherit=True), namespace)
        for each in self._modules.values():
            if vars(each).get(name) is before:
                setattr(each, name, namespace[name])


def constant(mutant: Mutant) -> str:
    """Return the name that a mutant's statement binds, if it is an assignment of a module to one name."""
    statement = _statement(mutant)
    targets = getattr(statement, "targets", [getattr(statement, "target", None)])
    return targets[0].id if len(targets) == 1 and isinstance(targets[0], ast.Name) else ""


def _statement(mutant: Mutant) -> ast.stmt:
    """Return the statement of the module around a mutant."""
    return next(each for each in mutant.root.body if each.lineno <= mutant.line <= (each.end_lineno or each.lineno))


def _of_module(functions: list[FunctionType], tree: Tree, module: str) -> Iterator[tuple[Key, FunctionType]]:
    """Yield the functions that a module defines."""
    path = tree.path(module)
    keys = {_position(code): key for key, code in _codes(probed(path.read_text(), module, str(path)))}
    for each in functions:
        if each.__code__.co_filename == str(path):
            yield keys[_position(each.__code__)], each


def _position(code: CodeType) -> tuple[Any, ...]:
    """Return what tells the functions of a file apart."""
    return code.co_qualname, *code.co_positions()


def _codes(code: CodeType) -> Iterator[tuple[Key, CodeType]]:
    """Yield the code of every function in a module."""
    seen: dict[tuple[str, int], int] = {}
    waiting = [code]
    while waiting:
        each = waiting.pop(0)
        name = each.co_qualname, each.co_firstlineno
        seen[name] = seen.get(name, -1) + 1
        yield (*name, seen[name]), each
        waiting.extend(constant for constant in each.co_consts if isinstance(constant, CodeType))


def _is_cache(each: object) -> bool:
    return isinstance(each, functools._lru_cache_wrapper)


def _depends(cache: Any, imports: Imports, targets: frozenset[Path], root: Path) -> bool:
    """Return whether a cached function's module reaches a target through what it imports."""
    file = _file(sys.modules.get(cache.__module__), root)
    return bool(file) and imports.reach(Path(file), targets)


def _file(module: ModuleType | None, root: Path) -> str:
    """Return the Python file of a module, if it is in a tree."""
    file = getattr(module, "__file__", None) or ""
    return file if file.endswith(".py") and Path(file).is_relative_to(root) else ""
