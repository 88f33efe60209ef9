"""Searches that the page began: none is lost sight of, and what one says names no place on this machine."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cosmic.report.live.request_checks import Refusal
from cosmic.report.live.search_processes import SearchProcesses
from cosmic.report.live.study_library import Library
from cosmic.report.live.study_paths import StudyRoot
from cosmic.search.study.study import open_study

SOON_S = 30.0


WAIT = "import time; time.sleep(60)"


@pytest.fixture
def ours(runs: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stand]:
    """Searches of a directory, in whose place something else runs."""
    stand = Stand(StudyRoot.resolve(runs))
    real = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda words, **rest: real([words[0], "-c", stand.code], **rest))
    yield stand
    stand.close()


class Stand(SearchProcesses):
    """Searches in whose place *code* runs."""

    code = WAIT


def ended(ours: Stand, name: str) -> None:
    ends = time.monotonic() + SOON_S
    while ours.is_running(name) and time.monotonic() < ends:
        time.sleep(0.02)
    assert not ours.is_running(name)


def test_a_study_is_resumed_once_at_a_time(ours: Stand, runs: Path) -> None:
    inputs = open_study(runs / "study").inputs
    ours.resume("study", inputs, None)
    with pytest.raises(Refusal, match="a search is writing to it already"):
        ours.resume("study", inputs, None)
    ours.stop("study")
    ended(ours, "study")
    ours.resume("study", inputs, None)
    assert ours.is_running("study")


@pytest.mark.parametrize("ending", ["sys.stderr.write(said); sys.exit(2)", "raise SystemError(said)"])
def test_what_a_failed_search_said_is_told_and_names_no_place(ours: Stand, runs: Path, ending: str) -> None:
    ours.code = f"import sys; said = 'cosmic search: {runs}/study: is full'; {ending}"
    ours.resume("study", open_study(runs / "study").inputs, None)
    ended(ours, "study")
    failure = Library(StudyRoot.resolve(runs), ours).row("study")["failure"]
    assert failure is not None
    assert failure.endswith("cosmic search: study: is full")


def test_a_search_in_which_nothing_runs_has_not_failed(ours: Stand, runs: Path) -> None:
    ours.code = "import sys; sys.exit(1)"
    ours.resume("study", open_study(runs / "study").inputs, None)
    ended(ours, "study")
    assert ours.failure("study") is None
