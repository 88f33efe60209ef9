"""Libraries that only some agents need: imported when such an agent starts, and named in the error if missing."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from cosmic.errors import SpecError

PACKAGES = {"sklearn": "scikit-learn"}
"""What to install for a module whose package has another name."""


def needs(module: str, extra: str, who: str, where: str = "agent") -> Any:
    """Return *module*, or say which extra of this package brings what *who* needs.

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
