"""Optional libraries: imported when an agent that needs one starts; the error for a missing one says how to get it."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from cosmic.errors import SpecError

PACKAGES = {"sklearn": "scikit-learn"}
"""The package to install for a module of another name."""


def needs(module: str, extra: str, who: str, where: str = "agent") -> Any:
    """Return *module*, which *who* needs; where it is missing, the error names the *extra* that installs it.

    >>> needs("no_such_module", "search", "tpe")
    Traceback (most recent call last):
    cosmic.errors.SpecError: agent = 'tpe': needs no_such_module; install it with: pip install 'cosmic-codesign[search]'
    """
    try:
        return import_module(module)
    except ImportError:
        top = module.partition(".")[0]
        install = f"install it with: pip install 'cosmic-codesign[{extra}]'"
        raise SpecError(where, who, f"needs {PACKAGES.get(top, top)}; {install}") from None
