"""Both ways to simulate: compiled, and in Python."""

from __future__ import annotations

import pytest

from cosmic.base.native.library import native_library
from cosmic.simulate.events import trace_simulation


@pytest.fixture(params=["compiled", "python"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Simulate compiled, however small the job, and then in Python."""
    if request.param == "compiled" and native_library() is None:
        pytest.skip("there is no compiled library")
    monkeypatch.setenv("COSMIC_NATIVE", "1" if request.param == "compiled" else "0")
    monkeypatch.setattr(trace_simulation, "FEW", 0)
    return str(request.param)
