"""Named variants: one file each, one line to register, no list to edit.

A registry names the package whose modules register themselves, and the entry-point group through which other
distributions add theirs. A user can also keep modules in folders that ``COSMIC_PATH`` lists, named like the groups:
``topologies/*.py`` for `cosmic.topologies`. The first look-up imports them all, so importing a registry is free.
"""

from __future__ import annotations

import os
import pkgutil
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from importlib.machinery import SourceFileLoader
from importlib.metadata import entry_points
from pathlib import Path
from threading import RLock
from types import ModuleType
from typing import TypeVar

from cosmic.errors import SpecError, UnknownName, check_text, require
from cosmic.files import is_folder, open_regular

T = TypeVar("T")
V = TypeVar("V")

PATH = "COSMIC_PATH"
"""Environment variable that lists folders of a user's own variants and catalog entries, separated as in ``PATH``."""

_LOADING = RLock()
"""Held while a registry is filled. One lock for all: two could deadlock threads whose imports need both registries."""


def user_folders() -> tuple[Path, ...]:
    """Return the folders of a user's own variants and catalog entries, in the order of ``COSMIC_PATH``."""
    folders = tuple(Path(text).absolute() for text in os.environ.get(PATH, "").split(os.pathsep) if text)
    for folder in folders:
        require(is_folder(folder), PATH, str(folder), "is no folder")
    return folders


def user_files(kind: str, pattern: str) -> list[Path]:
    """Return the files of one *kind* in the user's folders, folder by folder, each in alphabetical order."""
    found = [path for folder in user_folders() for path in sorted((folder / kind).glob(pattern))]
    for path in found:
        check_text(path.stem, f"{PATH} {kind}")  # the name of an entry or a variant
    return found


def import_file(path: Path) -> None:
    """Import a user's module; raise a `SpecError` that names its file if it fails."""
    with open_regular(path, PATH):  # a pipe would be read for ever
        pass
    name = f"cosmic_path.{path.parent.name}.{path.stem}"
    module = sys.modules[name] = ModuleType(name)  # before it runs: dataclasses and pickle look it up
    module.__file__ = str(path)
    try:
        SourceFileLoader(name, str(path)).exec_module(module)
    except Exception as error:
        del sys.modules[name]
        where = f"{path.parent.name}/{path.name}"
        raise SpecError(PATH, where, f"cannot be imported: {type(error).__name__}: {error}") from error


class Registry(Mapping[str, T]):
    """The variants of one kind by name, in alphabetical order.

    >>> shapes: Registry[str] = Registry("shape")
    >>> shapes.register("square")("four sides")
    'four sides'
    >>> shapes["sqare"]
    Traceback (most recent call last):
    cosmic.errors.UnknownName: shape = 'sqare': no such shape; did you mean 'square'?
    """

    def __init__(self, kind: str, package: str = "", group: str = "") -> None:
        self.kind = kind
        self._package = package
        self._group = group
        self._variants: dict[str, T] = {}
        self._loaded = not (package or group)
        self._loading = False

    def register(self, name: str) -> Callable[[V], V]:
        """Return a decorator that adds a variant under *name*; a second one is refused."""
        check_text(name, self.kind)

        def add(variant: V) -> V:
            if name in self._variants:
                raise SpecError(self.kind, name, "is registered already")
            self._variants[name] = variant  # type: ignore[assignment]  # V keeps the decorated type visible
            return variant

        return add

    def __getitem__(self, name: str) -> T:
        self._load()
        if name not in self._variants:
            raise UnknownName.among(self.kind, name, self.kind, self._variants)
        return self._variants[name]

    def check(self, name: str, where: str) -> None:
        """Raise `UnknownName` at *where* unless *name* is registered."""
        if name not in self:
            raise UnknownName.among(where, name, self.kind, self)

    def __iter__(self) -> Iterator[str]:
        self._load()
        return iter(sorted(self._variants))

    def __len__(self) -> int:
        self._load()
        return len(self._variants)

    def __contains__(self, name: object) -> bool:
        self._load()
        return isinstance(name, str) and name in self._variants

    def _load(self) -> None:
        """Import every module of the package, of entry points and of the user's folders, once.

        Other threads wait. A look-up by the importing thread sees what is registered so far.
        """
        if self._loaded:
            return
        with _LOADING:
            if self._loaded or self._loading:
                return
            self._loading = True
            try:
                self._import()
                self._loaded = True  # last: a half-filled registry would refuse existing names
            finally:
                self._loading = False

    def _import(self) -> None:
        if self._package:
            for module in pkgutil.iter_modules(import_module(self._package).__path__):
                import_module(f"{self._package}.{module.name}")
        if self._group:
            for entry_point in entry_points(group=self._group):
                entry_point.load()
            self._load_files(self._group.rpartition(".")[2])

    def _load_files(self, kind: str) -> None:
        """Import the modules of one *kind* in the user's folders: all of them, or none."""
        known = dict(self._variants)
        try:
            for path in user_files(kind, "*.py"):
                import_file(path)
        except BaseException:
            self._variants = known  # unlike a package's modules, they run again at the next look-up
            raise
