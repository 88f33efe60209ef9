"""Processes killed at any moment: nothing that was done is lost, and studies end as if never interrupted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "crash.py"
KILLS = 50


@pytest.mark.long
def test_a_study_that_is_killed_again_and_again_ends_as_if_it_never_was() -> None:
    command = [sys.executable, str(BENCHMARK), "--space", "cosmic-512-full-stack", "--kills", str(KILLS), "--json"]
    # A process of its own: it forks, which no other test's threads survive.
    done = subprocess.run(
        command,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["kills"] == KILLS
    assert min(found["kills_by_place"].values()) >= 5
    assert found["resumes_equal"] == found["studies"] >= 5
    assert (found["trials_lost"], found["not_whole"], found["zombies"]) == (0, 0, 0)
