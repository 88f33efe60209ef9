"""What a newcomer types that is no command, option or study: the answer names what works."""

from __future__ import annotations

import pytest

from cosmic.cli import dispatch


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("evaluate llama3-8b@dgx-h100:8 --precision fp8", "it is a field of a design, '--set precision=VALUE'"),
        ("search llama3-8b", "is a model: say on which system"),
        ("optimize x", "did you mean 'cosmic search'?"),
        ("study list", "choose from show, tell"),
        ("study show nowhere", "study = 'nowhere': is no study: it does not exist"),
    ],
)
def test_what_a_newcomer_would_try_is_answered_with_what_works(
    words: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        dispatch.main(words.split())
    assert ended.value.code == 2
    assert hint in " ".join(capsys.readouterr().err.replace("│", " ").split())
