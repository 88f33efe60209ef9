"""Both ways to simulate: compiled, and in Python."""

from __future__ import annotations

import pytest

from cosmic.native import library
from cosmic.simulation.event import simulating


@pytest.fixture(params=["compiled", "python"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Simulate compiled, however small the job, and then in Python."""
    if request.param == "compiled" and library() is None:
        pytest.skip("there is no compiled library")
    monkeypatch.setenv("COSMIC_NATIVE", "1" if request.param == "compiled" else "0")
    monkeypatch.setattr(simulating, "FEW", 0)
    return str(request.param)
