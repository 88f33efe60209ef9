"""Ctrl-C ends a proof with what is proven by then."""

from __future__ import annotations

from typing import Any

import pytest

from cosmic.search.certify import branch_and_bound
from cosmic.search.certify.certificate_checker import check_certificate
from cosmic.search.certify.certifying import certify
from tests.search.certify.spaces import small


def interrupted_after(calls: int, function: Any) -> Any:
    """Return *function*, interrupted once it was called so often."""
    left = [calls]

    def call(*given: Any, **more: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt
        return function(*given, **more)

    return call


def test_an_interrupted_descent_leaves_the_bounds_of_the_roots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(branch_and_bound, "_descend", interrupted_after(1, branch_and_bound._descend))
    found = certify(small())
    assert (found.proven, found.feasible) == (False, True)
    assert found.gap is not None
    assert 0 < found.gap < 1
    assert check_certificate(found.certificate)


def test_an_interrupted_round_leaves_the_bounds_of_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = certify(small(), ["perf_per_network_cost"])
    monkeypatch.setattr(branch_and_bound, "_descend", lambda *_: 0)
    monkeypatch.setattr(
        branch_and_bound.BoxEvaluator, "bound_boxes", interrupted_after(3, branch_and_bound.BoxEvaluator.bound_boxes)
    )
    found = certify(small(), ["perf_per_network_cost"])
    assert not found.proven
    assert found.gap is not None
    assert found.losses[0, 0] * (1 - found.gap) <= whole.losses[0, 0] <= found.losses[0, 0]
    monkeypatch.undo()
    assert check_certificate(found.certificate)


def test_who_interrupts_before_anything_is_known_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        branch_and_bound.BoxEvaluator, "bound_boxes", interrupted_after(1, branch_and_bound.BoxEvaluator.bound_boxes)
    )
    with pytest.raises(KeyboardInterrupt):
        certify(small())
