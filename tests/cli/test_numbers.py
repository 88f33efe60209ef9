"""Options that take numbers and fields: what no command can do is one sentence, and exit code 2."""

from __future__ import annotations

import pytest

from cosmic.cli.dispatch import main

HUGE = "9" * 20
DESIGN = "gpt3-175b@cosmic-512"


@pytest.mark.parametrize(
    "words",
    [
        ["space", "sample", "cosmic-1024-paper", "-n", HUGE],
        ["space", "sample", "cosmic-1024-paper", "--seed", HUGE],
        ["space", "sample", "cosmic-1024-paper", "--seed", "-1"],
        ["search", "cosmic-1024-paper", "-n", HUGE],
        ["search", "cosmic-1024-paper", "--seed", "9" * 40],
        ["search", "cosmic-1024-paper", "--batch", HUGE],
        ["search", "cosmic-1024-paper", "--workers", HUGE],
        ["search", "cosmic-1024-paper", "--agent", "a" * 300],
        ["search", "a" * 300],
        ["study", "tournament", "cosmic-1024-paper", "-n", HUGE],
        ["study", "tournament", "cosmic-1024-paper", "--seeds", HUGE],
        ["report", "study", "--isolated", HUGE],
        ["study", "replay", "study", "--workers", HUGE],
        ["trace", "show", "trace", "--limit", HUGE],
        ["design", "sweep", DESIGN, "--vary", "tp="],
        ["design", "sweep", DESIGN, "--vary", "=1"],
        ["design", "sweep", DESIGN, "--vary", "tp"],
        ["design", "sweep", DESIGN, "--vary", "tp=1,2", "--vary", "workload.tp=4"],
    ],
)
def test_what_no_command_can_do_is_one_sentence(
    words: list[str], capsys: pytest.CaptureFixture[str], tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(str(tmp_path))
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert "Traceback" not in capsys.readouterr().err


def test_spaces_around_the_name_of_a_field_do_not_matter(capsys: pytest.CaptureFixture[str]) -> None:
    for vary in ("tp=1,2", " workload.tp = 1, 2"):
        with pytest.raises(SystemExit) as ended:
            main(["design", "sweep", DESIGN, "--vary", vary])
        assert ended.value.code == 0
    first, second = (part.split()[-12:] for part in capsys.readouterr().out.split("MFU")[1:])
    assert second
    assert first
