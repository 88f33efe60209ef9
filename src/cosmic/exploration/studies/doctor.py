"""Studies examined, and damaged ones repaired.

    study.json ◀──▶ its copy in trials.db     either restores the other
    trials.db  ──▶  whole batches from the first on; every other intact result is kept apart

A resumed search asks its agent again, looks up the saved results, and evaluates the lost ones: it ends as if nothing
had happened. The damaged file is kept under another name.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from cosmic.errors import CosmicError, SpecError, one_line
from cosmic.exploration.measuring import Run
from cosmic.exploration.problem import Problem
from cosmic.exploration.studies.database import Damaged, StudyError
from cosmic.exploration.studies.folder import (
    INPUTS,
    MOST_INPUT_BYTES,
    TRIALS,
    complaint,
    database_files,
    study_files,
)
from cosmic.exploration.studies.saving import Saved, saved_from
from cosmic.exploration.studies.storage import Storage
from cosmic.exploration.studies.study import Study, keep_text, locked, parse_study
from cosmic.exploration.studies.tables import KEYS
from cosmic.files import Unreadable, read_text

DAMAGED = "trials.damaged"
SHOWN = 3
"""How many of SQLite's findings are shown; there may be hundreds."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The state of a study."""

    findings: tuple[str, ...]
    """What is wrong with it, a sentence each."""
    trials: int = 0
    """How many trials can be read."""
    batches: int = 0
    salvaged: int = 0
    """How many results are kept apart until a resumed search looks them up."""
    inputs: str | None = None
    """The text of study.json, from the file or from its copy."""
    copies_whole: tuple[bool, bool] = (False, False)
    """Whether study.json is intact and agrees with its copy in the database; whether that copy is intact."""
    trials_whole: bool = False
    usable: bool = True
    """Whether its inputs state a problem that this release and this catalog have."""

    @property
    def repairable(self) -> bool:
        """Whether there is something that can be put right."""
        return self.inputs is not None and not (self.trials_whole and all(self.copies_whole))

    @property
    def whole(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings


@dataclass(frozen=True, slots=True)
class Repair:
    """What was done to a study."""

    before: Diagnosis
    after: Diagnosis
    done: tuple[str, ...] = ()
    kept: Path | None = None
    """The file that holds the damaged trials now."""


# ------------------------------------------------------------------------------------------------ examining


def examine(path: str | Path) -> Diagnosis:
    """Return the state of the study in the directory *path*; nothing is changed."""
    folder = _study_folder(path)
    if wrong := complaint(study_files(folder)):
        return Diagnosis((wrong,), usable=False)
    text, missing = _read_inputs(folder)
    database = _examine_database(folder, _study(folder, text))
    findings = [f"{INPUTS} {missing}"] if missing else []
    copy = database.inputs
    whole = [text is not None, copy is not None]
    if text is not None and copy is not None and _study(folder, text) != _study(folder, copy):
        findings.append(f"{INPUTS} and its copy in {TRIALS} differ; the copy counts, as it was written with the trials")
        whole[0] = False
    counts = copy if copy is not None else text
    unusable = _problem(_study(folder, counts))[1]
    return replace(
        database,
        findings=(*findings, *database.findings, *([unusable] if unusable else [])),
        inputs=counts,
        copies_whole=(whole[0], whole[1]),
        usable=not unusable,
    )


def _study_folder(path: str | Path) -> Path:
    folder = Path(path)
    if not any(os.path.lexists(folder / name) for name in (INPUTS, TRIALS)):
        raise SpecError("study", str(path), f"is no study: it has neither {INPUTS} nor {TRIALS}")
    return folder


def _read_inputs(folder: Path) -> tuple[str | None, str]:
    """Return the text of study.json, or what is wrong with it."""
    try:
        text = read_text(folder / INPUTS, most=MOST_INPUT_BYTES)
    except Unreadable as error:
        return None, "is missing" if error.missing else error.rule
    return (text, "") if _study(folder, text) else (None, "is not what was written")


def _study(folder: Path, text: str | None) -> Study | None:
    """Return the study that *text* describes; None where the text is damaged."""
    try:
        return None if text is None else parse_study(folder, text)
    except (SpecError, StudyError):
        return None


def _problem(study: Study | None) -> tuple[Problem | None, str]:
    """Return the problem of a study, or why this release cannot load it."""
    if study is None:
        return None, ""
    try:
        return study.inputs.problem, ""
    except CosmicError as error:
        return None, f"its inputs cannot be used here: {error}"


def _examine_database(folder: Path, stated: Study | None) -> Diagnosis:
    """Return the state of the trials; *stated* is the study by its study.json, None where that is damaged."""
    if not (folder / TRIALS).exists():
        return Diagnosis((f"{TRIALS} is missing",))
    findings: list[str] = []
    copied: list[str] = []
    found, text = Diagnosis(()), None
    try:
        with Storage.opened(folder / TRIALS, strict=False) as storage:
            with _noted(findings):
                findings += [_damage(each) for each in storage.foreign()[:SHOWN]]
            findings += [_damage(each) for each in storage.problems()[:SHOWN]]
            sound = not findings
            with _noted(copied):
                text = storage.inputs() if storage.has("inputs") else None
            copy = _study(folder, text)
            storage.problem = _problem(copy or stated)[0]
            with _noted(findings):
                if sound:
                    batches, trials = storage.history()
                    saved = storage.trials("salvaged")
                    storage.runs()
                    found = replace(found, trials=len(trials), batches=len(batches), salvaged=len(saved))
            sound = not findings
            findings += copied
            if copy is None and not copied:
                findings.append(f"the copy of {INPUTS} in {TRIALS} is not what was written")
    except StudyError as error:
        return Diagnosis((f"{TRIALS} cannot be opened ({error})",))
    inputs = text if copy else None
    return replace(found, inputs=inputs, findings=tuple(dict.fromkeys(findings)), trials_whole=sound)


def _damage(what: str) -> str:
    return f"{TRIALS} is damaged: {one_line(what)}"


@contextmanager
def _noted(findings: list[str]) -> Iterator[None]:
    try:
        yield
    except Damaged as error:
        findings.append(_damage(error.what))


# --------------------------------------------------------------------------------------------------- saving


def repair(path: str | Path) -> Repair:
    """Save what is intact in the study at *path*; an intact study, or one that has lost its inputs, is not changed."""
    folder = _study_folder(path)
    if complaint(study_files(folder)):  # nothing is opened, not even to lock it
        found = examine(folder)
        return Repair(found, found)
    if not os.access(folder, os.W_OK):
        found = examine(folder)
        return Repair(found, found, () if found.whole else ("nothing could be saved: the study is read-only",))
    with locked(folder):
        before = examine(folder)
        text = before.inputs
        if text is None:
            lost = f"nothing could be saved: neither {INPUTS} nor its copy in {TRIALS} is whole"
            return Repair(before, before, (lost,))
        if before.whole or not before.repairable:
            return Repair(before, before)
        done, kept = [], None
        if not before.trials_whole:
            kept, said = _rebuild(folder, text)
            done.append(said)
        elif not before.copies_whole[1]:
            with Storage.opened(folder / TRIALS, write=True) as storage:
                storage.set_inputs(text)
            done.append(f"the copy of {INPUTS} in {TRIALS} was written again")
        if not before.copies_whole[0]:
            keep_text(folder / INPUTS, text)
            done.append(f"{INPUTS} was restored from its copy in {TRIALS}")
        return Repair(before, examine(folder), tuple(done), kept)


def _rebuild(folder: Path, text: str) -> tuple[Path | None, str]:
    """Replace the damaged database by one with all rows that SQLite can read; return the damaged file and a sentence.

    Batches before the first gap are kept as they are; the results of later trials are kept apart.
    """
    problem = _problem(_study(folder, text))[0]
    saved = _readable(folder / TRIALS, problem)
    runs = _runs(folder / TRIALS, problem)
    beside = folder / f".{TRIALS}.new"
    _remove(beside)
    try:
        with Storage.opened(beside, write=True) as storage:
            storage.set_inputs(text)
            storage.restore(saved.batches, saved.trials, saved.apart)
            if runs:
                storage.set_runs(runs)
        with Storage.opened(beside, problem=problem) as storage:
            storage.history()
            storage.trials("salvaged")
        kept = _set_aside(folder)
        beside.replace(folder / TRIALS)
    finally:
        _remove(beside)
    said = f"{len(saved.trials):,} trials in {len(saved.batches):,} whole batches were saved"
    if len(saved.apart):
        said += f", and the results of {len(saved.apart):,} more, which a resumed search looks up when it comes to them"
    return kept, said


def _readable(database: Path, problem: Problem | None) -> Saved:
    """Return what is intact in a damaged database; nothing where there is no database."""
    if not database.exists():
        return saved_from({}, problem)
    with Storage.opened(database, problem=problem, strict=False) as storage:
        return saved_from({table: storage.readable(table) for table in KEYS}, problem)


def _runs(database: Path, problem: Problem | None) -> list[Run]:
    """Return the measured runs of a damaged database; none where they are damaged too."""
    with suppress(StudyError), Storage.opened(database, problem=problem, strict=False) as storage:
        return storage.runs() if storage.has("inputs") else []
    return []


def _set_aside(folder: Path) -> Path | None:
    """Keep the damaged database under another name, with its log, which must not be applied to the new one."""
    source, count = folder / TRIALS, 1
    kept = folder / f"{DAMAGED}.db"
    while any(map(os.path.lexists, database_files(kept))):
        count += 1
        kept = folder / f"{DAMAGED}-{count}.db"
    if source.exists():
        try:
            os.link(source, kept)
        except OSError:  # some file systems have no hard links
            shutil.copy2(source, kept)
    log = _beside(source, "-wal")
    if log.exists():
        log.replace(_beside(kept, "-wal"))
    _beside(source, "-shm").unlink(missing_ok=True)
    return kept if kept.exists() else None


def _remove(database: Path) -> None:
    for each in database_files(database):
        with suppress(OSError):
            each.unlink(missing_ok=True)


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)
