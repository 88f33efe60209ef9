"""A browser is opened by a file that only its owner can read, as everybody sees the arguments of programs."""

from __future__ import annotations

import stat
import time
import webbrowser
from pathlib import Path

import pytest

from cosmic.report.live.access_control import AccessKeys, LaunchFile
from cosmic.report.live.request_checks import Refusal

SOON_S = 30.0


def test_the_file_is_private_and_leaves_when_it_was_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    keys = AccessKeys(8123)
    printed = keys.address()
    launch = LaunchFile(keys)
    launch.open()
    ends = time.monotonic() + SOON_S
    while not opened and time.monotonic() < ends:
        time.sleep(0.01)
    assert opened == [launch.file.as_uri()]
    assert stat.S_IMODE(launch.file.stat().st_mode) == 0o600
    assert stat.S_IMODE(launch.file.parent.stat().st_mode) == 0o700
    token = launch.file.read_text().partition("#token=")[2].partition('"')[0]
    assert token not in opened[0]
    assert token not in printed
    keys.enter(token)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(Refusal, match="was used"):
        keys.enter(token)
    keys.enter(printed.partition("#token=")[2])  # the printed one is another


def test_the_file_leaves_when_no_browser_came(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    LaunchFile(AccessKeys(8123), 0.05)
    ends = time.monotonic() + SOON_S
    while list(tmp_path.iterdir()) and time.monotonic() < ends:
        time.sleep(0.01)
    assert list(tmp_path.iterdir()) == []
