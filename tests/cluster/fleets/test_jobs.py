"""Files of jobs: what they say, and what is refused in one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cosmic.base.errors import SpecError
from cosmic.cluster.fleet_jobs import read_jobs
from cosmic.search.fleet import fleet

JOB = {"name": "a", "model": "llama3-8b", "npus": 8, "steps": 10}


def jobs_with(**changes: Any) -> dict[str, Any]:
    """Return a file's content with one job, changed; what is None is left out."""
    return {"jobs": [{key: value for key, value in {**JOB, **changes}.items() if value is not None}]}


def test_a_job_states_its_terms_with_units() -> None:
    content = jobs_with(npus="16-100", arrival="2 h", steps=None, tokens="1.5 B", share=2, priority=-1, gap="3 ms")
    terms = read_jobs(content, "dgx-h100:64").jobs[0].terms
    assert (terms.npus, terms.arrival_s, terms.tokens) == ((16, 32, 64), 7200.0, 1.5e9)
    assert (terms.share, terms.priority, terms.gap_s) == (2.0, -1, 0.003)


def test_what_is_given_comes_before_what_the_file_says() -> None:
    content = {**jobs_with(), "system": "dgx-h100:64", "policy": "fifo", "quantum": "2 s"}
    found = read_jobs(content, "dgx-a100:16", {"policy": "backfill"})
    assert (found.system, found.rules.policy, found.rules.quantum_s) == ("dgx-a100:16", "backfill", 2.0)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ({"jobs": 3}, "jobs = 3: must be a list of jobs"),
        ({}, "jobs = (missing): must be a list of jobs"),
        ({"jobs": []}, "jobs = []: there is no job"),
        ({"jobs": ["a"]}, "jobs.0 = 'a': must be a mapping of keys to values"),
        ({**jobs_with(), "polcy": "fifo"}, "polcy = 'fifo': no such key; did you mean 'policy'?"),
        ({**jobs_with(), "policy": "fiffo"}, "policy = 'fiffo': no such choice; did you mean 'fifo'?"),
        ({**jobs_with(), "oversubscription": 0.5}, "oversubscription = 0.5: must be at least 1, which is none"),
        ({**jobs_with(), "quantum": 1}, "quantum = 1: write a number with its unit, such as '700 ns'"),
        ({**jobs_with(), "leaf": 12}, "leaf = 12: must be a multiple of 8"),
        (jobs_with(modle="x"), "jobs.0.modle = 'x': no such key; did you mean 'model'?"),
        (jobs_with(model=None), "jobs.0.model = (missing): is required"),
        (jobs_with(model="llama3-8c"), "jobs.0.model = 'llama3-8c': no such model; did you mean 'llama3-8b'?"),
        (jobs_with(steps=None), "jobs.0.steps = (missing): say how long it is by one of steps, tokens and duration"),
        (jobs_with(tokens=5), "jobs.0.tokens = 5.0: say how long it is by one of steps, tokens and duration"),
        (jobs_with(steps=0), "jobs.0.steps = 0: must be positive"),
        (jobs_with(npus=12), "jobs.0.npus = 12: must be a multiple or a divisor of 8 NPUs, its innermost group"),
        (jobs_with(npus=0), "jobs.0.npus = 0: must be at least 1"),
        (jobs_with(npus="9-8"), "jobs.0.npus = '9-8': a range begins at 1 or more, and ends above"),
        (jobs_with(npus="many"), "jobs.0.npus = 'many': write a number, a range such as 32-128, a list, or 'find'"),
        (jobs_with(npus=[]), "jobs.0.npus = []: name at least one number, or 'find'"),
        (jobs_with(arrival="-1 s"), "jobs.0.arrival = -1.0: must not be negative"),
        (jobs_with(share=0), "jobs.0.share = 0.0: must be positive"),
        (jobs_with(name="a\nb"), "jobs.0.name = 'a\\nb': must be printable text on one line, and has U+000A"),
        (jobs_with(count=100_001), "jobs.0.count = 100001: must be at most 100,000"),
        (jobs_with(workload={"tpp": 3}), "jobs.0.workload.tpp = 3: no such key; did you mean 'tp'?"),
        (jobs_with(workload=[3]), "jobs.0.workload = [3]: must be a mapping of a workload's fields, or 'find'"),
        ({"jobs": [JOB, JOB]}, "jobs.1.name = 'a': is the name of another job, too"),
    ],
)
def test_what_is_malformed_is_refused_in_one_sentence(content: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SpecError) as caught:
        fleet(content, "dgx-h100:64")
    assert str(caught.value).startswith(sentence)


def test_a_cluster_must_be_named() -> None:
    with pytest.raises(SpecError, match="say which cluster they share, such as dgx-h100:512"):
        fleet(jobs_with())


@pytest.mark.parametrize(
    "text",
    [
        "jobs: &a [*a]",
        "jobs: [{name: a, model: &m {b: *m}, npus: 8, steps: 3}]",
        "jobs: [{name: a, model: 2020-01-01, npus: 8, steps: 3}]",
        "jobs: [{name: a, model: llama3-8b, npus: 8, steps: 3, workload: {2020-01-01: 3}}]",
        "jobs: [{name: a, model: llama3-8b, npus: .inf, steps: .nan}]",
        "jobs: [{name: a, model: llama3-8b, npus: 8, steps: 3, 1: 2}]",
        "!!python/object:os.system {}",
        "[1, 2]",
        "{",
        "",
    ],
)
def test_hostile_files_are_refused_in_one_sentence(text: str, tmp_path: Path) -> None:
    path = tmp_path / "jobs.yaml"
    path.write_text(text)
    with pytest.raises(SpecError) as caught:
        fleet(path, "dgx-h100:64")
    assert "\n" not in str(caught.value)
