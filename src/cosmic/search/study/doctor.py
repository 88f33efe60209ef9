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
from cosmic.base.json_types import Count, json_keys
from cosmic.search.problem import Problem
from cosmic.search.space.diagram import Flags, Indices
from cosmic.search.study.measured_runs import MeasuredRun
from cosmic.search.study.study import Study, keep_text, lock_study, parse_study
from cosmic.search.study.trial_storage import (
    INPUTS,
    MAX_INPUT_BYTES,
    TABLE_KEYS,
    TRIALS,
    BatchRecord,
    DamagedTrials,
    Row,
    Storage,
    StudyError,
    TrialShape,
    database_files,
    empty_points,
    find_unsafe_file,
    study_files,
    unpack_piece,
)
from cosmic.search.trials import Columns, Trials

# ---- What is saved from a damaged study: whole batches from the first on, and every other intact result apart

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


def save_intact(tables: Mapping[str, Rows], problem: Problem | None) -> SavedTrials:
    """Return what is saved, from the intact rows of each table."""
    shape = TrialShape.for_problem(problem)
    numbers, of_batch, trials = _join_parts(_read_parts(tables.get("packed", {}), shape))
    _, _, before = _join_parts(_read_parts(tables.get("packed_salvaged", {}), shape))
    order = np.argsort(numbers, kind="stable")
    numbers, of_batch, trials = numbers[order], of_batch[order], trials.select(order)
    batches = _complete_batches(tables.get("batches", {}), numbers, of_batch)
    in_batches = sum(batch.trials for batch in batches)
    after_gap = trials.part(slice(in_batches, None))
    separate = _join_parts(iter([(numbers, of_batch, part) for part in (after_gap, before) if len(part)]))[2]
    return SavedTrials(
        batches,
        trials.part(slice(in_batches)),
        separate.select(np.flatnonzero(_first_occurrences(separate.points))),
    )


def _read_parts(intact: Rows, shape: TrialShape) -> Parts:
    """Yield intact trials with their numbers and batches."""
    for first, batch, count, _, content in intact.values():
        yield first + np.arange(count), np.full(count, batch), unpack_piece(content, count, shape)


def _join_parts(parts: Parts) -> tuple[Indices, Indices, Trials]:
    """Return parts as one; those with another number of parameters than the first are left out."""
    numbers: list[Indices] = []
    of_batch: list[Indices] = []
    columns = Columns(empty_points(TrialShape()))
    for part_numbers, batches, trials in parts:
        if not len(columns):
            columns = Columns(trials.points, metrics=tuple(trials.results.columns))
        if trials.points.shape[1] == columns.points.shape[1]:
            columns.extend(trials.points, trials.results)
            numbers.append(part_numbers)
            of_batch.append(batches)
    none = np.empty(0, dtype=np.int64)
    return (
        np.concatenate([none, *numbers]),
        np.concatenate([none, *of_batch]),
        Trials(columns.points, columns.results),
    )


def _complete_batches(rows: Rows, numbers: Indices, of_batch: Indices) -> list[BatchRecord]:
    """Return the batches before the first that is missing or lacks a trial; *numbers* are those of intact trials."""
    complete: list[BatchRecord] = []
    first = 0
    while (row := rows.get(len(complete))) is not None:
        batch = BatchRecord(*row[:-1])
        part = slice(first, first + batch.trials)
        expected = np.arange(first, first + batch.trials)
        if not np.array_equal(numbers[part], expected) or (of_batch[part] != batch.batch).any():
            break
        complete.append(batch)
        first += batch.trials
    return complete


def _first_occurrences(points: Indices) -> Flags:
    """Return which points do not equal one before them."""
    if not points.shape[1]:
        return np.asarray(np.arange(len(points)) == 0)
    plain = np.ascontiguousarray(points)
    _, first = np.unique(plain.view(f"V{plain.itemsize * plain.shape[1]}").reshape(-1), return_index=True)
    is_first = np.zeros(len(points), dtype=bool)
    is_first[first] = True
    return is_first


DAMAGED = "trials.damaged"
SHOWN = 3
"""How many of SQLite's findings are shown; there may be hundreds."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The state of a study."""

    findings: tuple[str, ...]
    """What was wrong with it, a sentence each."""
    trials: Count = 0
    """Trials that can be read."""
    batches: Count = 0
    """Batches that can be read."""
    salvaged: Count = 0
    """Results that a resumed search will reuse."""
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
        """Whether it is intact now."""
        return not self.findings


@json_keys(
    whole="after.whole",
    findings="before.findings",
    trials="after.trials",
    batches="after.batches",
    salvaged="after.salvaged",
    damaged="kept",
)
@dataclass(frozen=True, slots=True)
class StudyRepair:
    """What was done to a study."""

    before: Diagnosis
    after: Diagnosis
    done: tuple[str, ...] = ()
    """What was repaired, a sentence each."""
    kept: Path | None = None
    """The file with the damaged trials; None if there are none."""


# ---- examining


def examine_study(path: str | Path) -> Diagnosis:
    """Return the state of the study in the directory *path*; nothing is changed."""
    folder = _study_folder(path)
    if wrong := find_unsafe_file(study_files(folder)):
        return Diagnosis((wrong,), usable=False)
    text, missing = _read_inputs(folder)
    database = _examine_database(folder, _parse_study_text(folder, text))
    findings = [f"{INPUTS} {missing}"] if missing else []
    copy = database.inputs
    intact = [text is not None, copy is not None]
    if text is not None and copy is not None and _parse_study_text(folder, text) != _parse_study_text(folder, copy):
        findings.append(f"{INPUTS} and its copy in {TRIALS} differ; the copy counts, as it was written with the trials")
        intact[0] = False
    valid_text = copy if copy is not None else text
    unusable = _load_problem(_parse_study_text(folder, valid_text))[1]
    return replace(
        database,
        findings=(*findings, *database.findings, *([unusable] if unusable else [])),
        inputs=valid_text,
        copies_whole=(intact[0], intact[1]),
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
        text = read_text(folder / INPUTS, most=MAX_INPUT_BYTES)
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


def _examine_database(folder: Path, study: Study | None) -> Diagnosis:
    """Return the state of the trials; *study* is the study by its study.json, None where that is damaged."""
    if not (folder / TRIALS).exists():
        return Diagnosis((f"{TRIALS} is missing",))
    findings: list[str] = []
    copied: list[str] = []
    diagnosis, text = Diagnosis(()), None
    try:
        with Storage.opened(folder / TRIALS, strict=False) as storage:
            with _note_damage(findings):
                findings += [_damage_text(object_text) for object_text in storage.foreign()[:SHOWN]]
            findings += [_damage_text(problem) for problem in storage.problems()[:SHOWN]]
            sound = not findings
            with _note_damage(copied):
                text = storage.inputs() if storage.has("inputs") else None
            copy = _parse_study_text(folder, text)
            storage.problem = _load_problem(copy or study)[0]
            with _note_damage(findings):
                if sound:
                    batches, trials = storage.history()
                    saved = storage.salvaged()
                    storage.runs()
                    diagnosis = replace(diagnosis, trials=len(trials), batches=len(batches), salvaged=len(saved))
            sound = not findings
            findings += copied
            if copy is None and not copied:
                findings.append(f"the copy of {INPUTS} in {TRIALS} is not what was written")
    except StudyError as error:
        return Diagnosis((f"{TRIALS} cannot be opened ({error})",))
    inputs = text if copy else None
    return replace(diagnosis, inputs=inputs, findings=tuple(dict.fromkeys(findings)), trials_whole=sound)


def _damage_text(detail: str) -> str:
    return f"{TRIALS} is damaged: {one_line(detail)}"


@contextmanager
def _note_damage(findings: list[str]) -> Iterator[None]:
    try:
        yield
    except DamagedTrials as error:
        findings.append(_damage_text(error.damage))


# ---- saving


def repair_study(path: str | Path) -> StudyRepair:
    """Save what is intact in the study at *path*; an intact study, or one that has lost its inputs, is not changed."""
    folder = _study_folder(path)
    if find_unsafe_file(study_files(folder)):  # nothing is opened, not even to lock it
        diagnosis = examine_study(folder)
        return StudyRepair(diagnosis, diagnosis)
    if not os.access(folder, os.W_OK):
        diagnosis = examine_study(folder)
        return StudyRepair(
            diagnosis, diagnosis, () if diagnosis.whole else ("nothing could be saved: the study is read-only",)
        )
    with lock_study(folder):
        before = examine_study(folder)
        text = before.inputs
        if text is None:
            lost = f"nothing could be saved: neither {INPUTS} nor its copy in {TRIALS} is whole"
            return StudyRepair(before, before, (lost,))
        if before.whole or not before.repairable:
            return StudyRepair(before, before)
        done, damaged_file = [], None
        if not before.trials_whole:
            damaged_file, sentence = _rebuild(folder, text)
            done.append(sentence)
        elif not before.copies_whole[1]:
            with Storage.opened(folder / TRIALS, write=True) as storage:
                storage.set_inputs(text)
            done.append(f"the copy of {INPUTS} in {TRIALS} was written again")
        if not before.copies_whole[0]:
            keep_text(folder / INPUTS, text)
            done.append(f"{INPUTS} was restored from its copy in {TRIALS}")
        return StudyRepair(before, examine_study(folder), tuple(done), damaged_file)


def _rebuild(folder: Path, text: str) -> tuple[Path | None, str]:
    """Replace the damaged database by one with all rows that SQLite can read; return the damaged file and a sentence.

    Batches before the first gap are kept as they are; the results of later trials are kept apart.
    """
    problem = _load_problem(_parse_study_text(folder, text))[0]
    saved = _read_intact(folder / TRIALS, problem)
    runs = _read_measured_runs(folder / TRIALS, problem)
    beside = folder / f".{TRIALS}.new"
    _remove_database(beside)
    try:
        with Storage.opened(beside, write=True) as storage:
            storage.set_inputs(text)
            storage.restore(saved.batches, saved.trials, saved.apart)
            if runs:
                storage.set_runs(runs)
        with Storage.opened(beside, problem=problem) as storage:
            storage.history()
            storage.salvaged()
        damaged_file = _move_aside(folder)
        beside.replace(folder / TRIALS)
    finally:
        _remove_database(beside)
    sentence = f"{len(saved.trials):,} trials in {len(saved.batches):,} whole batches were saved"
    if len(saved.apart):
        sentence += (
            f", and the results of {len(saved.apart):,} more, which a resumed search looks up when it comes to them"
        )
    return damaged_file, sentence


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


def _move_aside(folder: Path) -> Path | None:
    """Keep the damaged database under another name, with its log, which must not be applied to the new one."""
    source, count = folder / TRIALS, 1
    target = folder / f"{DAMAGED}.db"
    while any(map(os.path.lexists, database_files(target))):
        count += 1
        target = folder / f"{DAMAGED}-{count}.db"
    if source.exists():
        try:
            os.link(source, target)
        except OSError:  # some file systems have no hard links
            shutil.copy2(source, target)
    log = _path_beside(source, "-wal")
    if log.exists():
        log.replace(_path_beside(target, "-wal"))
    _path_beside(source, "-shm").unlink(missing_ok=True)
    return target if target.exists() else None


def _remove_database(database: Path) -> None:
    for database_file in database_files(database):
        with suppress(OSError):
            database_file.unlink(missing_ok=True)


def _path_beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)
