"""Tests of many items at once: one test says what is wrong with each of hundreds of models, pages or recorded cases."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest

Test = Callable[..., None]
SHOWN = 400
"""Letters of a message at most."""


def check_all(names: str, items: Iterable[Any], *, tests: int = 1) -> Callable[[Test], Test]:
    """Make *tests* tests of a check of every item, where `pytest.mark.parametrize` makes one of each.

    The items are dealt out in turn, so that workers which share the tests have about as much to do. A check may ask
    for fixtures beside the item, but all items of a test get the same ones.
    """
    parameters = [name.strip() for name in names.split(",")]
    cases = list(items)

    def decorate(check: Test) -> Test:
        @functools.wraps(check)
        def test(batch: int = 0, **fixtures: Any) -> None:
            failures = []
            for case in cases[batch::tests]:
                values = case if len(parameters) > 1 else (case,)
                try:
                    check(**dict(zip(parameters, values, strict=True)), **fixtures)
                except (Exception, pytest.fail.Exception) as error:
                    failures.append(f"{str(case)[:SHOWN]}: {type(error).__name__}: {str(error)[:SHOWN]}")
            assert not failures, "\n".join([f"{len(failures)} of {len(cases[batch::tests])} fail", *failures])

        assert cases, f"{check.__name__} has no items"
        fixtures = [each for each in inspect.signature(check).parameters.values() if each.name not in parameters]
        dealt = inspect.Parameter("batch", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        test.__signature__ = inspect.Signature([*fixtures, dealt] if tests > 1 else fixtures)  # type: ignore[attr-defined]
        return pytest.mark.parametrize("batch", range(tests))(test) if tests > 1 else test

    return decorate
