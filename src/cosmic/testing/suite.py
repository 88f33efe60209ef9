"""What the suites share: one test run for each name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar


class Suite:
    """A class of tests that is run once for each of `names`."""

    names: ClassVar[Iterable[str]] = ()


def run_for_each_name(metafunc: Any) -> None:
    """Parametrize a suite's tests over its names; call it from ``pytest_generate_tests``.

    Importing `cosmic.testing` does not import pytest, so this is the one line a test module adds:

        from cosmic.testing.suite import run_for_each_name as pytest_generate_tests
    """
    if metafunc.cls is not None and issubclass(metafunc.cls, Suite) and "name" in metafunc.fixturenames:
        metafunc.parametrize("name", list(metafunc.cls.names))
