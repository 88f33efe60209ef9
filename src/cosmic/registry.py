"""Named variants: one file each, one line to register, no list to edit.

A registry names the package whose modules register themselves, and the entry-point group through which
other distributions add theirs. Both are imported on the first look-up, so that importing a registry is free.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import TypeVar

from cosmic.errors import SpecError, UnknownName

T = TypeVar("T")
V = TypeVar("V")


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

    def register(self, name: str) -> Callable[[V], V]:
        """Return a decorator that adds a variant under *name*; a name can be taken once."""

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
        """Import every module of the package and every entry point, once."""
        if self._loaded:
            return
        self._loaded = True  # before, as what is imported may look something up
        try:
            if self._package:
                for module in pkgutil.iter_modules(import_module(self._package).__path__):
                    import_module(f"{self._package}.{module.name}")
            if self._group:
                for entry_point in entry_points(group=self._group):
                    entry_point.load()
        except BaseException:
            self._loaded = False  # a half-filled registry would blame whoever names what is missing
            raise
