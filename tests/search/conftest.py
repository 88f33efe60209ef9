"""A small study, made once: tests that change it get a copy."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cosmic.search.search_loop import search


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study that is whole; nobody changes it."""
    folder = tmp_path_factory.mktemp("studies") / "original"
    search("cosmic-512-full-stack", agent="random", trials=300, batch=30, seed=11, out=folder)
    return folder


@pytest.fixture
def study(original: Path, tmp_path: Path) -> Path:
    """A copy of that study."""
    folder = tmp_path / "study"
    shutil.copytree(original, folder)
    return folder
