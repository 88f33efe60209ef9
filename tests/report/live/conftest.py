"""A directory of studies, with others beside it that nobody is to see."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from cosmic.search.search_loop import search
from tests.report.live.asking import Client, site_at

SECRET = "tell-nobody-4711"
SPACE = "cosmic-512-full-stack"


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small study; nobody changes it."""
    folder = tmp_path_factory.mktemp("live") / "original"
    search(SPACE, agent="random", trials=60, batch=20, seed=3, out=folder)
    return folder


@pytest.fixture
def runs(original: Path, tmp_path: Path) -> Path:
    """A directory with one study in it, and a secret one beside it."""
    root = tmp_path / "runs"
    root.mkdir()
    shutil.copytree(original, root / "study")
    for name in ("outside", "runs-evil"):
        outside = tmp_path / name
        shutil.copytree(original, outside)
        (outside / "study.json").write_text((outside / "study.json").read_text().replace(SPACE, SECRET))
        (outside / "secret.yaml").write_text(f"model: {{name: {SECRET}, hidden: 12}}\n")
        (outside / "config.json").write_text(f'{{"architectures": ["{SECRET}"]}}')
    (root / "linked").symlink_to(tmp_path / "outside", target_is_directory=True)
    (root / "dangling").symlink_to(tmp_path / "nowhere")
    (root / "looped").symlink_to(root / "looped")
    (root / "plain-file").write_text(SECRET)
    for name, file in (("linked-inputs", "study.json"), ("linked-trials", "trials.db")):
        shutil.copytree(original, root / name)
        (root / name / file).unlink()
        (root / name / file).symlink_to(tmp_path / "outside" / file)
    shutil.copytree(original, root / "piped")
    (root / "piped" / "study.json").unlink()
    os.mkfifo(root / "piped" / "study.json")
    return root


@pytest.fixture
def client(runs: Path) -> Iterator[Client]:
    """A browser that was let in."""
    with Client(site_at(runs)) as client:
        client.site.streams.closing = True  # events end at once
        client.site.searches.most = 0  # nothing is started by accident
        yield client
