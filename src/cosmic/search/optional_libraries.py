"""Optional libraries: imported when something that needs one starts; the error for a missing one says how to get it."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from cosmic.base.errors import SpecError

PACKAGES = {"sklearn": "scikit-learn"}
"""The package to install for a module of another name."""


def how_to_install(extra: str, package: str) -> str:
    """Return how to install a *package* of an *extra*: the project is on no index, so in a clone, or the package alone.

    >>> how_to_install("search", "optuna")
    "install it with: pip install '.[search]' in a clone of COSMIC, or pip install optuna"
    """
    return f"install it with: pip install '.[{extra}]' in a clone of COSMIC, or pip install {package}"


def import_optional(module: str, extra: str, who: str, where: str = "agent") -> Any:
    """Return *module*, which *who* needs; where it is missing, the error says how to install it.

    >>> import_optional("no_such", "web", "ui")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    cosmic.base.errors.SpecError: agent = 'ui': needs no_such; install it with: pip install '.[web]' in a clone ...
    """
    try:
        return import_module(module)
    except ImportError:
        top = module.partition(".")[0]
        package = PACKAGES.get(top, top)
        raise SpecError(where, who, f"needs {package}; {how_to_install(extra, package)}") from None
