"""What the suites share: one test run for each name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from cosmic.registry import Registry


class Suite:
    """A class of tests that pytest runs once for each of `names`."""

    registry: ClassVar[Registry[Any]]
    """Where the variants under test are registered."""
    names: ClassVar[Iterable[str]] = ()
    """Which of them to test."""

    def pytest_generate_tests(self, metafunc: Any) -> None:
        """Run each test for each name: pytest calls this, so that a test module needs nothing but the suite."""
        metafunc.parametrize("name", list(self.names))

    def test_it_says_what_it_is(self, name: str) -> None:
        """A variant is described in a sentence; that which dataclasses make up does not count."""
        variant = self.registry[name]
        text = (variant.__doc__ or "").strip()
        assert text
        assert not text.startswith(f"{getattr(variant, '__name__', '')}(")
