"""`cosmic cluster fleet`: what it prints, writes and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.commands import output, run

JOBS = """
system: dgx-h100:16
jobs:
  - {name: a, model: llama3-8b, npus: 8, duration: 10 h}
  - {name: b, model: llama3-8b, npus: 16, duration: 1 h, arrival: 1 min}
  - {name: c, model: llama3-8b, npus: 8, duration: 1 h, arrival: 2 min}
  - {name: d, model: llama3-8b, npus: 32, steps: 1}
"""


@pytest.fixture
def jobs(tmp_path: Path) -> str:
    """Return the path of a file of jobs."""
    path = tmp_path / "jobs.yaml"
    path.write_text(JOBS)
    return str(path)


def test_a_table_says_who_waits_and_a_chart_who_is_where(jobs: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = output(capsys, "cluster", "fleet", jobs)
    assert out.startswith("3 jobs in 12 h · ")
    assert "shared in space: fifo, packed" in out
    assert "d cannot run: it asks for 32 accelerators of 16" in out
    assert "A a, B b, C c" in out


def test_a_search_says_which_rules_are_best(jobs: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = output(capsys, "cluster", "fleet", jobs, "--search", "--sharing", "space")
    assert out.splitlines()[1].split()[:3] == ["space", "backfill", "packed"]
    data = json.loads(output(capsys, "cluster", "fleet", jobs, "--search", "--objective", "makespan", "--json"))
    spans = [each["makespan_s"] for each in data["candidates"]]
    assert spans == sorted(spans)
    assert data["makespan_s"] == spans[0]


def test_files_are_written(jobs: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = [tmp_path / "x.json", tmp_path / "x.html"]
    output(capsys, "cluster", "fleet", jobs, "--timeline", str(names[0]), "--html", str(names[1]))
    assert json.loads(names[0].read_text())["otherData"] == {"system": "dgx-h100:16", "npus": 16}
    assert names[1].read_text().startswith("<!doctype html>")


def test_turns_are_shown_with_what_they_gave(jobs: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = output(capsys, "cluster", "fleet", jobs, "--sharing", "time")
    assert "waited for memory that others hold" in out
    assert "turns on 0-15 at their fullest" in out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--policy", "fiffo"), "policy = 'fiffo': no such choice; did you mean 'fifo'?"),
        (("--leaf", "3"), "leaf = 3: must be a multiple of 8"),
        (("--oversubscription", "0"), "oversubscription = 0.0: must be at least 1"),
        (("--system", "dgx-h10"), "no such system"),
        (("--search", "--objective", "x"), "objective = 'x': no such objective"),
    ],
)
def test_a_mistake_is_one_sentence(
    words: tuple[str, ...], sentence: str, jobs: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = run(capsys, "cluster", "fleet", jobs, *words)
    assert (status, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1
