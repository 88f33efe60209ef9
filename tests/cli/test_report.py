"""`cosmic report`, and reports that other commands leave."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import cosmic
from cosmic.search.study.study import open_study
from tests.commands import output, run

SPACE = "cosmic-512-full-stack"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def study(elsewhere: None) -> Path:
    cosmic.search(SPACE, trials=60, seed=1, out="s")
    return Path("s")


@pytest.mark.long
def test_a_report_lies_in_its_study_and_the_verdict_is_printed(capsys: pytest.CaptureFixture[str], study: Path) -> None:
    first, second = output(capsys, "report", "s", "--isolated", "20").splitlines()
    assert re.match(r"[\d.]+× over the base design(, but| and) .*the best of \w+ alone", first)
    assert second == "report: s/report.html"
    page = (study / "report.html").read_text()
    assert first.replace("'", "&#x27;") in page
    assert (study / "best.yaml").is_file()


def test_a_report_goes_where_it_is_told(capsys: pytest.CaptureFixture[str], study: Path) -> None:
    found = json.loads(output(capsys, "report", "s", "--isolated", "0", "--out", "page.html", "--json"))
    assert found["report"] == "page.html"
    assert found["bytes"] == Path("page.html").stat().st_size
    assert found["trials"] == len(open_study(study).trials)
    assert [each["over"] for each in found["gains"]] == ["the base design"]
    assert any("No layer was searched alone" in each for each in found["caveats"])


def test_search_and_report_say_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    searched = json.loads(output(capsys, "search", SPACE, "-n", "50", "--out", "t", "--json"))
    reported = json.loads(output(capsys, "report", "t", "--isolated", "0", "--json"))
    assert searched["verdict"] == reported["verdict"]
    assert searched["bound"] == reported["bound"]
    assert searched["gain_over_base"] == reported["gains"][0]["times"]


@pytest.mark.long
def test_the_same_study_gives_the_same_file(capsys: pytest.CaptureFixture[str], study: Path) -> None:
    for name in ("a.html", "b.html"):
        output(capsys, "report", "s", "--isolated", "20", "--out", name)
    assert Path("a.html").read_bytes() == Path("b.html").read_bytes()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("report", "nowhere"), "study = 'nowhere': is no study"),
        (("report", "s", "--out", "missing/page.html"), "--out = 'missing/page.html': cannot be written"),
        (("report", "s", "--out", "s"), "--out = 's': cannot be written"),
        (
            ("report", "s", "--isolated", "0", "--out", "/dev/full"),
            "--out = '/dev/full': cannot be written: No space left on device",
        ),
    ],
)
def test_mistakes_are_one_sentence(
    capsys: pytest.CaptureFixture[str], study: Path, words: tuple[str, ...], message: str
) -> None:
    status, _, err = run(capsys, *words)
    assert status == 2
    assert message in err


@pytest.mark.long
def test_a_search_kept_nowhere_has_a_report(study: Path) -> None:
    made = cosmic.report(cosmic.search(SPACE, trials=30), isolated=10)
    assert made.document["study"] == ""
    assert made.html.startswith("<!doctype html>")
    assert made.write("r.html").read_text() == made.html
