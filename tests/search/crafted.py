"""Studies that somebody crafted: every checksum is right, and something in them is meant to do harm.

`crafted_studies` makes them all, a folder each; `tests.search.spoiling` has the tools.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from tests.search import crafted_databases, crafted_inputs, crafted_packed
from tests.search.spoiling import SECRET, Spoil, copied, good_study

SPOILED: dict[str, Spoil] = {
    **crafted_inputs.SPOILED,
    **crafted_databases.SPOILED,
    **crafted_packed.SPOILED,
}
"""What spoils a study, by the name of the harm."""


def crafted_studies(folder: Path, names: Sequence[str] = ()) -> dict[str, Path]:
    """Return the crafted studies *names*, by default all, made in *folder*, where files lie that none may read."""
    folder.mkdir(parents=True, exist_ok=True)
    good = good_study(folder)
    secrets_beside(folder)
    return {name: crafted_study(good, name) for name in names or SPOILED}


def secrets_beside(folder: Path) -> None:
    """Write the files that crafted studies try to reach: outside of them, each with the secret in it."""
    (folder / "secret.yaml").write_text(f"password: {SECRET}\n")
    (folder / "secret.json").write_text(json.dumps({"password": SECRET}))
    (folder / "secret.txt").write_text(f"{SECRET}: {{\n")
    (folder / "model").mkdir(exist_ok=True)
    (folder / "model" / "config.json").write_text(json.dumps({"password": SECRET}))
    if not (folder / "pipe.yaml").exists():
        os.mkfifo(folder / "pipe.yaml")


def crafted_study(good: Path, name: str) -> Path:
    """Return a copy of the *good* study, beside it, spoiled as *name* says."""
    study = copied(good, name)
    SPOILED[name](study)
    return study
