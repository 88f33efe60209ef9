"""Base of the suites: each test runs once per name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from cosmic.registry import Registry


class Suite:
    """A class of tests that pytest runs once for each of `names`."""

    registry: ClassVar[Registry[Any]]
    """Registry of the variants under test."""
    names: ClassVar[Iterable[str]] = ()
    """Variants to test."""

    def pytest_generate_tests(self, metafunc: Any) -> None:
        """Parametrize each test by name; pytest calls this."""
        metafunc.parametrize("name", list(self.names))

    def test_it_says_what_it_is(self, name: str) -> None:
        """A variant has a docstring of its own, not the one that a dataclass generates."""
        variant = self.registry[name]
        text = (variant.__doc__ or "").strip()
        assert text
        assert not text.startswith(f"{getattr(variant, '__name__', '')}(")
