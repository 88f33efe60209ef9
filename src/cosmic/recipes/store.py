"""What recipes leave behind: results by the digest of what was asked, and a folder for each run.

STORE/cache/KEY/input.json  result.json  study/ …     a step: what was asked, what it printed, what it wrote
STORE/UID/input.json  result.json                     a run: the recipe as written, and what came of it
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cosmic.catalog.yaml_files import parse_json
from cosmic.digests import digest
from cosmic.errors import SpecError, require
from cosmic.files import is_file, is_folder, make_folder, read_text, write_text
from cosmic.strict_json import json_text

INPUT, RESULT, CACHE = "input.json", "result.json", "cache"
SHA = "sha256"
"""Key of the digest of a step's result."""
UNREAD = ("lock", "best.yaml")
"""Files of a study that say nothing about it."""


@dataclass(frozen=True)
class Entry:
    """The place of one step in the store."""

    folder: Path

    def recall(self) -> dict[str, Any] | None:
        """Return what the step gave; None if it has not run, or if a file that it read or wrote is gone or changed."""
        try:
            found = parse_json(read_text(self.folder / RESULT), RESULT)
        except SpecError:
            return None
        if not isinstance(found, dict) or found.pop(SHA, None) != _digest_of(found):
            return None  # cut short, or changed by hand
        study = found.get("places", {}).get("study")
        if study is not None and not is_folder(Path(study)):
            return None
        files = (*found.get("read", {}).items(), *found.get("wrote", {}).items())
        return found if all(digest_of(path) == known for path, known in files) else None

    def keep(self, asked: dict[str, Any], given: dict[str, Any]) -> None:
        """Keep what the step gave, for those that ask the same."""
        make_folder(self.folder, "store")
        write_text(self.folder / INPUT, json_text(asked, indent=1) + "\n", "store")
        write_text(self.folder / RESULT, json_text(given | {SHA: _digest_of(given)}, indent=1) + "\n", "store")


def _digest_of(given: dict[str, Any]) -> str:
    return digest(json_text(given, sort_keys=True))


@dataclass(frozen=True)
class Store:
    """A folder of runs."""

    folder: Path

    def entry(self, asked: dict[str, Any]) -> Entry:
        """Return the place of a step, by all that it depends on."""
        key = digest(json_text(asked, sort_keys=True))[:32]
        return Entry(self.folder / CACHE / key)

    def keep_run(self, uid: str, recipe: dict[str, Any], result: dict[str, Any]) -> Path:
        """Keep a run, and return its folder."""
        folder = make_folder(self.folder / uid, "store")
        write_text(folder / INPUT, json_text(recipe, indent=1) + "\n", "store")
        write_text(folder / RESULT, json_text(result, indent=1) + "\n", "store")
        return folder

    def open_run(self, uid: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return a run: its recipe and its result; *uid* may be its beginning."""
        names = [folder.name for folder in self._runs() if folder.name.startswith(uid)]
        require(len(names) > 0, "run", uid, f"is no run of {self.folder}")
        require(len(names) == 1, "run", uid, f"could be any of {', '.join(sorted(names)[:4])}")
        folder = self.folder / names[0]
        parts = [parse_json(read_text(folder / name, "run"), str(folder / name)) for name in (INPUT, RESULT)]
        for part in parts:
            require(isinstance(part, dict), "run", str(folder), "is damaged: its files must hold tables")
        return parts[0], parts[1]

    def runs(self, tags: Sequence[str] = ()) -> list[dict[str, Any]]:
        """Return the runs that have all *tags*, and none that begins with a minus, the oldest first."""
        wanted = {tag for tag in tags if not tag.startswith("-")}
        unwanted = {tag[1:] for tag in tags if tag.startswith("-")}
        found = []
        for folder in self._runs():
            _, result = self.open_run(folder.name)
            has = set(result.get("tags", []))
            if wanted <= has and not unwanted & has:
                found.append(result)
        return sorted(found, key=lambda each: str(each.get("began", "")))

    def _runs(self) -> Iterator[Path]:
        if is_folder(self.folder):
            yield from (each for each in sorted(self.folder.iterdir()) if is_file(each / RESULT))


def digests_of(paths: Iterable[str]) -> dict[str, str]:
    """Return the digests of those paths at which there is something."""
    return {path: found for path in sorted(paths) if (found := digest_of(path)) is not None}


def digest_of(path: str | Path) -> str | None:
    """Return the digest of a file, or of all files in a folder; None if there is nothing."""
    path = Path(path)
    if is_file(path):
        return digest(path.read_bytes())
    if not is_folder(path):
        return None
    files = [each for each in sorted(path.rglob("*")) if each.is_file() and each.name not in UNREAD]
    return digest(*(f"{each.relative_to(path)}\0{digest(each.read_bytes())}" for each in files))
