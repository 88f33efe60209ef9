"""Names that a package offers from their homes in other modules, which are imported when a name is first used.

A package states its names twice, once for type checkers and editors, and once for Python:

    if TYPE_CHECKING:
        from cosmic.search.space.space_files import load_space as load_space
    else:
        __getattr__, __dir__ = offer_names(__name__, {"load_space": "cosmic.search.space.space_files"})
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from typing import Any


def offer_names(
    module: str, homes: Mapping[str, str], modules: Collection[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a *module* that offers names of others.

    *homes* has the module in which each name is defined, or ``module:name`` where it has another name there; *modules*
    are its own modules that need no import of their own.

    >>> offered, listed = offer_names("cosmic", {"ring": "cosmic.base.numeric:divisors"})
    >>> offered("ring")(12)
    (1, 2, 3, 4, 6, 12)
    >>> offered("rink")
    Traceback (most recent call last):
    AttributeError: module 'cosmic' has no attribute 'rink'
    """

    def get_name(name: str) -> Any:
        if name in modules:
            return import_module(f"{module}.{name}")
        if name not in homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        home, _, defined = homes[name].partition(":")
        return getattr(import_module(home), defined or name)

    def list_names() -> list[str]:
        return list(sys.modules[module].__all__)

    return get_name, list_names
