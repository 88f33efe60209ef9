"""`cosmic model shard`, as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cosmic.cli.dispatch import main


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        main(["model", "shard", *words])
    return int(ended.value.code or 0), "".join(capsys.readouterr())


def test_the_table_says_why_and_the_bound(capsys: pytest.CaptureFixture[str]) -> None:
    status, text = run(capsys, "gpt3-125m", "--mesh", "tp=2", "--batch", "2", "--annotate", "w_q: [_, tp, _]")
    assert status == 0
    assert "[_, tp, _] *" in text
    assert "proven: no annotations are better" in text or "% above the best" in text


def test_json_has_every_tensor_and_files_are_written(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ("--mesh", "dp=8", "--system", "dgx-h100", "--batch", "8", "--sequence", "256")
    status, text = run(capsys, "gpt3-125m", *words, "--out", "found.yaml", "--json")
    data = json.loads(text)
    assert status == 0
    assert data["unit"] == "seconds"
    assert data["gap"] >= 0
    assert {"w_q", "x", "d_x"} <= {each["tensor"] for each in data["annotations"]}
    assert data["written"][-1] == "found.design.yaml"
    assert all((tmp_path / name).exists() for name in data["written"])


def test_what_does_not_fit_ends_with_status_one(capsys: pytest.CaptureFixture[str]) -> None:
    status, text = run(capsys, "gpt3-125m", "--mesh", "x=2", "--batch", "2", "--memory", "1 MB")
    assert status == 1
    assert "no sharding fits" in text


def test_bad_input_ends_with_status_two(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "gpt3-125m", "--mesh", "x")[0] == 2
    assert run(capsys, "nothing", "--mesh", "x=2")[0] == 2
