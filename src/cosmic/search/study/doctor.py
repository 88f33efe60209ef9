"""Studies examined, and damaged ones repaired.

    study.json ◀──▶ its copy in trials.db     either restores the other
    trials.db  ──▶  whole batches from the first on; every other intact result is kept apart

A resumed search asks its agent again, looks up the saved results, and evaluates the lost ones: it ends as if nothing
had happened. The damaged file is kept under another name.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from cosmic.base.errors import CosmicError, SpecError, one_line
from cosmic.base.files import Unreadable, read_text
from cosmic.search.problem import Problem
from cosmic.search.space.diagram import Flags, Indices
from cosmic.search.study import study_database, trial_storage
from cosmic.search.study.measured_runs import MeasuredRun
from cosmic.search.study.study import Study, keep_text, lock_study, parse_study
from cosmic.search.study.study_database import (
    INPUTS,
    MOST_INPUT_BYTES,
    TABLE_KEYS,
    TRIALS,
    BatchRecord,
    DamagedTrials,
    Row,
    StudyError,
    TrialShape,
    database_files,
    find_complaint,
    study_files,
)
from cosmic.search.study.trial_storage import Storage
from cosmic.search.trials import Columns, Trials

# --------------------------------------------------------------------------------------
# What is saved from a damaged study: whole batches from the first on, and every other intact result apart
# --------------------------------------------------------------------------------------

Rows = Mapping[int, Row]
"""Rows of a table by their key."""
Parts = Iterator[tuple[Indices, Indices, Trials]]


@dataclass(frozen=True)
class SavedTrials:
    """What is saved."""

    batches: list[BatchRecord]
    """The batches before the first that is missing or lacks a trial."""
    trials: Trials
    """Their trials."""
    apart: Trials
    """Every other result, of each point one."""


def save_intact(found: Mapping[str, Rows], problem: Problem | None) -> SavedTrials:
    """Return what is saved, from the intact rows of each table."""
    shape = TrialShape.of(problem)
    numbers, of_batch, trials = _join_parts(_parts(found, ("trials", "packed"), shape))
    _, _, before = _join_parts(_parts(found, ("salvaged", "packed_salvaged"), shape))
    order = np.argsort(numbers, kind="stable")
    numbers, of_batch, trials = numbers[order], of_batch[order], _take_trials(trials, order)
    batches = _whole_batches(found.get("batches", {}), numbers, of_batch)
    whole = sum(batch.trials for batch in batches)
    rest = trials.part(slice(whole, None))
    both = _join_parts(iter([(numbers, of_batch, each) for each in (rest, before) if len(each)]))[2]
    return SavedTrials(batches, trials.part(slice(whole)), _take_trials(both, np.flatnonzero(_distinct(both.points))))


def _parts(found: Mapping[str, Rows], tables: tuple[str, str], shape: TrialShape) -> Parts:
    """Yield intact trials with their numbers and batches."""
    by_row, packed = (found.get(table, {}) for table in tables)
    rows = list(by_row.values())
    for start in range(0, len(rows), study_database.ROWS_AT_ONCE):
        some = rows[start : start + study_database.ROWS_AT_ONCE]
        batches, trials = study_database.decode_rows(some, shape.given(some))
        yield np.array([row[0] for row in some], dtype=np.int64), batches, trials
    for first, batch, count, _, content in packed.values():
        yield first + np.arange(count), np.full(count, batch), trial_storage.unpack_piece(content, count, shape)


def _join_parts(parts: Parts) -> tuple[Indices, Indices, Trials]:
    """Return parts as one; those with another number of parameters than the first are left out."""
    numbers: list[Indices] = []
    of_batch: list[Indices] = []
    columns = Columns(study_database.empty_points(TrialShape()))
    for places, batches, trials in parts:
        if not len(columns):
            columns = Columns(trials.points, metrics=tuple(trials.results.columns))
        if trials.points.shape[1] == columns.points.shape[1]:
            columns.extend(trials.points, trials.results)
            numbers.append(places)
            of_batch.append(batches)
    none = np.empty(0, dtype=np.int64)
    return (
        np.concatenate([none, *numbers]),
        np.concatenate([none, *of_batch]),
        Trials(columns.points, columns.results),
    )


def _take_trials(trials: Trials, places: Indices) -> Trials:
    return Trials(trials.points[places], trials.results.take(places))


def _whole_batches(rows: Rows, numbers: Indices, of_batch: Indices) -> list[BatchRecord]:
    """Return the batches before the first that is missing or lacks a trial; *numbers* are those of intact trials."""
    whole: list[BatchRecord] = []
    first = 0
    while (row := rows.get(len(whole))) is not None:
        batch = BatchRecord(*row[:-1])
        part = slice(first, first + batch.trials)
        wanted = np.arange(first, first + batch.trials)
        if not np.array_equal(numbers[part], wanted) or (of_batch[part] != batch.batch).any():
            break
        whole.append(batch)
        first += batch.trials
    return whole


def _distinct(points: Indices) -> Flags:
    """Return which points do not equal one before them."""
    if not points.shape[1]:
        return np.asarray(np.arange(len(points)) == 0)
    plain = np.ascontiguousarray(points)
    _, first = np.unique(plain.view(f"V{plain.itemsize * plain.shape[1]}").reshape(-1), return_index=True)
    found = np.zeros(len(points), dtype=bool)
    found[first] = True
    return found


# --------------------------------------------------------------------------------------
# Studies examined, and damaged ones repaired
# --------------------------------------------------------------------------------------

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
class StudyRepair:
    """What was done to a study."""

    before: Diagnosis
    after: Diagnosis
    done: tuple[str, ...] = ()
    kept: Path | None = None
    """The file that holds the damaged trials now."""


# ------------------------------------------------------------------------------------------------ examining


def examine_study(path: str | Path) -> Diagnosis:
    """Return the state of the study in the directory *path*; nothing is changed."""
    folder = _study_folder(path)
    if wrong := find_complaint(study_files(folder)):
        return Diagnosis((wrong,), usable=False)
    text, missing = _read_inputs(folder)
    database = _examine_database(folder, _parse_study_text(folder, text))
    findings = [f"{INPUTS} {missing}"] if missing else []
    copy = database.inputs
    whole = [text is not None, copy is not None]
    if text is not None and copy is not None and _parse_study_text(folder, text) != _parse_study_text(folder, copy):
        findings.append(f"{INPUTS} and its copy in {TRIALS} differ; the copy counts, as it was written with the trials")
        whole[0] = False
    counts = copy if copy is not None else text
    unusable = _load_problem(_parse_study_text(folder, counts))[1]
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
    return (text, "") if _parse_study_text(folder, text) else (None, "is not what was written")


def _parse_study_text(folder: Path, text: str | None) -> Study | None:
    """Return the study that *text* describes; None where the text is damaged."""
    try:
        return None if text is None else parse_study(folder, text)
    except (SpecError, StudyError):
        return None


def _load_problem(study: Study | None) -> tuple[Problem | None, str]:
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
            with _note_damage(findings):
                findings += [_damage(each) for each in storage.foreign()[:SHOWN]]
            findings += [_damage(problem) for problem in storage.problems()[:SHOWN]]
            sound = not findings
            with _note_damage(copied):
                text = storage.inputs() if storage.has("inputs") else None
            copy = _parse_study_text(folder, text)
            storage.problem = _load_problem(copy or stated)[0]
            with _note_damage(findings):
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
def _note_damage(findings: list[str]) -> Iterator[None]:
    try:
        yield
    except DamagedTrials as error:
        findings.append(_damage(error.what))


# --------------------------------------------------------------------------------------------------- saving


def repair_study(path: str | Path) -> StudyRepair:
    """Save what is intact in the study at *path*; an intact study, or one that has lost its inputs, is not changed."""
    folder = _study_folder(path)
    if find_complaint(study_files(folder)):  # nothing is opened, not even to lock it
        found = examine_study(folder)
        return StudyRepair(found, found)
    if not os.access(folder, os.W_OK):
        found = examine_study(folder)
        return StudyRepair(found, found, () if found.whole else ("nothing could be saved: the study is read-only",))
    with lock_study(folder):
        before = examine_study(folder)
        text = before.inputs
        if text is None:
            lost = f"nothing could be saved: neither {INPUTS} nor its copy in {TRIALS} is whole"
            return StudyRepair(before, before, (lost,))
        if before.whole or not before.repairable:
            return StudyRepair(before, before)
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
        return StudyRepair(before, examine_study(folder), tuple(done), kept)


def _rebuild(folder: Path, text: str) -> tuple[Path | None, str]:
    """Replace the damaged database by one with all rows that SQLite can read; return the damaged file and a sentence.

    Batches before the first gap are kept as they are; the results of later trials are kept apart.
    """
    problem = _load_problem(_parse_study_text(folder, text))[0]
    saved = _read_intact(folder / TRIALS, problem)
    runs = _read_measured_runs(folder / TRIALS, problem)
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


def _read_intact(database: Path, problem: Problem | None) -> SavedTrials:
    """Return what is intact in a damaged database; nothing where there is no database."""
    if not database.exists():
        return save_intact({}, problem)
    with Storage.opened(database, problem=problem, strict=False) as storage:
        return save_intact({table: storage.readable(table) for table in TABLE_KEYS}, problem)


def _read_measured_runs(database: Path, problem: Problem | None) -> list[MeasuredRun]:
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
    log = _path_beside(source, "-wal")
    if log.exists():
        log.replace(_path_beside(kept, "-wal"))
    _path_beside(source, "-shm").unlink(missing_ok=True)
    return kept if kept.exists() else None


def _remove(database: Path) -> None:
    for database_file in database_files(database):
        with suppress(OSError):
            database_file.unlink(missing_ok=True)


def _path_beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)
