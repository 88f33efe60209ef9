"""What all tests share: few examples of a property, none of them timed, as a busy machine makes any of them slow.

With ``CI=true`` a run tries the same examples as the last one; elsewhere others each time, so that many are seen.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import settings

from cosmic.cli.dispatch import GARBAGE_THRESHOLD
from cosmic.design.network_layer import builds
from cosmic.simulate import step_evaluation as evaluation
from tests.leaves import LEAVES, Leaves

os.environ["COSMIC_CACHE"] = ""  # tests compute what they check, and leave nothing behind
os.environ["RAY_ENABLE_UV_RUN_RUNTIME_ENV"] = (
    "0"  # before Ray is imported: its workers run in this environment, as it is
)

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in the background of a shell; commands that tests start
    signal.signal(signal.SIGINT, signal.default_int_handler)  # inherit it, and would not hear Ctrl-C

if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):  # each command that tests start would compile the package anew
    _bytecode = TemporaryDirectory(prefix="cosmic-bytecode-", ignore_cleanup_errors=True)
    atexit.register(_bytecode.cleanup)
    os.environ["PYTHONPYCACHEPREFIX"] = _bytecode.name  # workers inherit it

settings.register_profile("cosmic", deadline=None, max_examples=40)
settings.register_profile("ci", settings.get_profile("cosmic"), derandomize=True, database=None)
settings.load_profile("ci" if os.environ.get("CI") == "true" else "cosmic")


gc.disable()  # what collecting makes stays: a third of its time went into looking through it


def pytest_collection_finish() -> None:
    """Look through what tests make alone, as seldom as a command does."""
    gc.freeze()
    gc.enable()
    gc.set_threshold(GARBAGE_THRESHOLD)


@pytest.fixture
def without_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Evaluate designs by the physics itself, which a test may change, not by programs that were recorded before."""
    monkeypatch.setattr(evaluation, "run_recorded_point", lambda *_: None)
    monkeypatch.setattr(
        evaluation,
        "run_recorded_batch",
        lambda _, batch, count: (np.empty((count, batch.size)), [np.arange(batch.size)]),
    )


@pytest.fixture
def leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a build whose leaves do not depend on how oversubscribed they are."""
    len(builds)  # those of the package first
    monkeypatch.setitem(builds._variants, LEAVES, Leaves)
