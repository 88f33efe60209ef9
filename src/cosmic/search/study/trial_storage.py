"""Trials on disk: one SQLite file in write-ahead mode, in which every row has a checksum.

A batch is written in one transaction, so readers, and a search that is resumed after a crash, see whole batches. No
trial is recorded as running. SQLite detects missing pages, the checksums detect changed bits, and the number of trials
is checked against the batches. The trials of a batch are packed; earlier releases wrote a row for each. The file may
come from anybody (`cosmic.search.study.study_database`).

Trials are packed into bytes, column by column, and read back bit for bit:

    header     layout, bytes of an index, metrics, parameters, bytes of text, checksum of the metrics' names
    names      of an engine of somebody else (layout 2): bytes of text, and the metrics' names
    kinds      a byte for each metric: no trial has it, those that run have it, or it is written for every trial
    texts      the different reasons, UTF-8, a line each
    points     an index for each parameter of each trial
    reasons    for each trial its reason: a code of 1, 2 or 4 bytes, by the number of texts
    counted    a bit for each trial
    excess     a number of 64 bits for each trial
    metrics    such numbers, one metric after the other

Everything is little-endian; nothing is compressed, so that a few bytes cannot become many. The length follows from the
header and the number of trials and must be exactly that. The bytes may come from anybody: each value is checked.
"""

from __future__ import annotations

import json
import os
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt

from cosmic.base.errors import SpecError
from cosmic.search.agent import Flags, Floats
from cosmic.search.learning.prediction_quality import Learned, dump_learned, parse_learned
from cosmic.search.problem import METRICS, Reasons, Results
from cosmic.search.space.diagram import Indices
from cosmic.search.study import study_database
from cosmic.search.study.measured_runs import MeasuredRun, dump_runs, parse_runs
from cosmic.search.study.study_database import (
    MAX_INPUT_BYTES,
    MAX_PARAMETERS,
    MIN_ROW_BYTES,
    NO_BATCH,
    PACKED,
    TABLE_KEYS,
    BatchRecord,
    DamagedTrials,
    Database,
    Row,
    StudyError,
    TrialShape,
    WrongRow,
    checksum_holds,
    has_impossible_metric,
    is_reason,
    require_sound,
    select_query,
    with_checksum,
)
from cosmic.search.trials import Columns, Trials, index_type
from cosmic.simulate.metrics import OF_CLUSTERS, OF_REQUESTS, OF_RUNS, OF_SAMPLES, OF_STEPS
from cosmic.simulate.user_engines import MOST_METRICS

# ---- Trials packed into bytes, column by column, and read back bit for bit

LAYOUT, NAMED = 1, 2
"""The layout of pieces with metrics of COSMIC, and of others, whose names are written too."""
NAMES_STRUCT = struct.Struct("<H")
HEADER_STRUCT = struct.Struct("<BBHIII")
TOKEN_METRICS = tuple(name for name in METRICS if name not in OF_SAMPLES)
PIECE_METRICS = (
    tuple(OF_STEPS),
    (*OF_STEPS, *OF_REQUESTS),
    (*OF_STEPS, *OF_CLUSTERS, *OF_RUNS),
    TOKEN_METRICS,
    METRICS,
)
METRICS_OF_PIECES = {crc32(",".join(names).encode()): names for names in PIECE_METRICS}
"""The metrics of a piece, by the checksum of their names: those of a step alone where no trial has another."""
NO_TRIAL, RUNNING_TRIALS, ALL_TRIALS = range(3)
"""The kinds of a metric's column."""
MAX_PIECE_BYTES = 2**22
"""The most bytes of one piece."""
TARGET_PIECE_BYTES = 2**21
"""A piece has about so many bytes at most, apart from its texts."""
MAX_PIECE_TRIALS = 2**14
"""The most trials of one piece."""
MAX_BATCHES = 2**31 - 1


def split_pieces(trials: Trials, first: int, batch: int) -> Iterator[Row]:
    """Yield rows of a packed table that hold *trials* of one *batch*, numbered from *first* on."""
    size = 4 * trials.points.shape[1] + 8 * (len(METRICS) + 2)
    step = max(1, min(MAX_PIECE_TRIALS, TARGET_PIECE_BYTES // size))
    for start in range(0, len(trials), step):
        yield from _halve_trials(trials.part(slice(start, start + step)), first + start, batch)


def _halve_trials(trials: Trials, first: int, batch: int) -> Iterator[Row]:
    """Yield *trials* as one row, or as several if its texts are too long for one."""
    content, middle = pack_piece(trials), len(trials) // 2
    if len(content) > MAX_PIECE_BYTES and middle:
        yield from _halve_trials(trials.part(slice(middle)), first, batch)
        yield from _halve_trials(trials.part(slice(middle, None)), first + middle, batch)
    else:
        yield (first, batch, len(trials), piece_checksum(first, batch, len(trials), content), content)


def piece_checksum(first: int, batch: int, trials: int, content: bytes) -> int:
    """Return the checksum of a row of a packed table."""
    return crc32(content, crc32(repr((first, batch, trials)).encode()))


def piece_is_sound(row: Row) -> bool:
    """Return whether a row of a packed table agrees with its checksum and states a possible number of trials."""
    first, batch, trials, crc, content = row
    typed = all(type(number) is int for number in (first, batch, trials)) and isinstance(content, bytes)
    possible = typed and 1 <= trials <= MAX_PIECE_TRIALS and NO_BATCH <= batch <= MAX_BATCHES
    return possible and bool(crc == piece_checksum(first, batch, trials, content))


# ---- writing


def pack_piece(trials: Trials) -> bytes:
    """Return *trials* as bytes; there is at least one."""
    results, points = trials.results, trials.points
    if points.dtype.itemsize > 1 or points.dtype.kind != "u":
        points = points.astype(index_type(int(points.max(initial=0))))
    # The texts that are there, and their codes in the smallest type.
    used = np.flatnonzero(np.bincount(results.coded.codes, minlength=len(results.coded.texts)))
    code = np.zeros(len(results.coded.texts), dtype=index_type(len(used) - 1))
    code[used] = np.arange(len(used))
    texts, codes = [results.coded.texts[index] for index in used.tolist()], code[results.coded.codes]
    names, metrics = _select_metrics(results)
    kinds, numbers = _stored_columns(np.stack([results.columns[name] for name in metrics]), results.excess == 0)
    text = "\n".join(texts).encode()
    named = ",".join(metrics).encode() if names not in METRICS_OF_PIECES else b""
    layout = NAMED if named else LAYOUT
    header = HEADER_STRUCT.pack(layout, points.dtype.itemsize, len(metrics), points.shape[1], len(text), names)
    return b"".join(
        [
            header,
            NAMES_STRUCT.pack(len(named)) + named if named else b"",
            bytes(kinds),
            text,
            _little_endian_bytes(points),
            _little_endian_bytes(codes),
            np.packbits(results.counted, bitorder="little").tobytes(),
            _little_endian_bytes(results.excess),
            *map(_little_endian_bytes, numbers),
        ]
    )


def _select_metrics(results: Results) -> tuple[int, tuple[str, ...]]:
    """Return the metrics to write, and the checksum of their names: no others than some trial has."""
    if results.columns.keys() != set(METRICS):
        names = tuple(results.columns)
        return crc32(",".join(names).encode()), names
    present = {name for name, column in results.columns.items() if not np.isnan(column).all()}
    return next((code, names) for code, names in METRICS_OF_PIECES.items() if present <= {*names})


def _stored_columns(metrics: Floats, runs: Flags) -> tuple[list[int], list[Floats]]:
    """Return the kind of each metric's column, and the values that are written of it."""
    has_value = ~np.isnan(metrics)
    has_infeasible_value = (has_value & ~runs).any(axis=1)
    kinds = np.where(
        has_infeasible_value, ALL_TRIALS, np.where(has_value.any(axis=1), RUNNING_TRIALS, NO_TRIAL)
    ).tolist()
    if ALL_TRIALS not in kinds:  # as usual: a design that cannot run has no metrics
        return kinds, [metrics[np.array(kinds) == RUNNING_TRIALS][:, runs]]
    selections = {NO_TRIAL: runs[:0], RUNNING_TRIALS: runs, ALL_TRIALS: slice(None)}
    return kinds, [column[selections[kind]] for kind, column in zip(kinds, metrics, strict=True) if kind != NO_TRIAL]


def _little_endian_bytes(array: npt.NDArray[Any]) -> bytes:
    return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()


# ---- reading


class _Reader:
    """Takes arrays from bytes, one after the other."""

    def __init__(self, content: bytes) -> None:
        self._content, self.offset = content, 0

    def read(self, count: int, kind: str) -> npt.NDArray[Any]:
        """Return the next *count* numbers; too few are a `ValueError`."""
        numbers = np.frombuffer(self._content, kind, count, self.offset) if count else np.empty(0, kind)
        self.offset += numbers.nbytes
        return numbers


def piece_width(content: bytes) -> int:
    """Return how many parameters the points of a piece have, by its header."""
    require_sound(len(content) >= HEADER_STRUCT.size)
    return int(HEADER_STRUCT.unpack_from(content)[3])


def unpack_piece(content: bytes, trials: int, shape: TrialShape) -> Trials:
    """Return so many *trials*; raise a `ValueError` where the bytes are not what `pack_piece` writes."""
    require_sound(HEADER_STRUCT.size <= len(content) <= MAX_PIECE_BYTES)
    layout, itemsize, metrics, width, text_bytes, names = HEADER_STRUCT.unpack_from(content)
    piece_metrics, start = _read_metrics(content, layout, names, shape)
    require_sound(metrics == len(piece_metrics) and bool(piece_metrics) and itemsize in (1, 2, 4))
    require_sound(width <= MAX_PARAMETERS and shape.width in (None, width) and text_bytes <= len(content))
    reader = _Reader(content[start:])
    kinds = reader.read(metrics, "u1").tolist()
    texts = reader.read(text_bytes, "u1").tobytes().decode().split("\n")  # what is no UTF-8 is a ValueError too
    require_sound(len(texts) <= trials and len(set(texts)) == len(texts) and all(map(is_reason, texts)))
    points = reader.read(trials * width, f"<u{itemsize}").reshape(trials, width)
    codes = reader.read(trials, index_type(len(texts) - 1).newbyteorder("<").str)
    bits = reader.read(-(-trials // 8), "u1")
    excess = reader.read(trials, "<f8")
    require_sound(bool((codes < len(texts)).all()) and not (np.isnan(excess) | (excess < 0)).any())
    runs = excess == 0
    columns = dict.fromkeys(piece_metrics if layout == NAMED else METRICS, np.broadcast_to(np.nan, runs.shape))
    columns |= {name: _read_column(reader, kind, runs) for name, kind in zip(piece_metrics, kinds, strict=True)}
    require_sound(reader.offset == len(content) - start)
    flags = np.unpackbits(bits, bitorder="little")
    require_sound(not flags[trials:].any())
    results = Results(columns, excess, Reasons(tuple(texts), codes.astype(np.uint32)), flags[:trials].astype(bool))
    unpacked = Trials(points, results)
    require_sound(shape.problem is None or unpacked.fits(shape.problem))
    return unpacked


def _read_metrics(content: bytes, layout: int, names: int, shape: TrialShape) -> tuple[tuple[str, ...], int]:
    """Return the metrics of a piece, and where what follows their names begins."""
    require_sound(layout in (LAYOUT, NAMED))
    if layout == LAYOUT:
        return METRICS_OF_PIECES.get(names, ()), HEADER_STRUCT.size
    require_sound(len(content) >= HEADER_STRUCT.size + NAMES_STRUCT.size)
    start = HEADER_STRUCT.size + NAMES_STRUCT.size + NAMES_STRUCT.unpack_from(content, HEADER_STRUCT.size)[0]
    text = content[HEADER_STRUCT.size + NAMES_STRUCT.size : start]
    piece_metrics = tuple(text.decode().split(","))
    require_sound(
        crc32(text) == names
        and len(set(piece_metrics)) == len(piece_metrics) <= MOST_METRICS
        and all(map(str.isidentifier, piece_metrics))
    )
    require_sound(shape.problem is None or piece_metrics == shape.problem.metrics)
    return piece_metrics, start


def _read_column(reader: _Reader, kind: int, runs: Flags) -> Floats:
    require_sound(kind in (NO_TRIAL, RUNNING_TRIALS, ALL_TRIALS))
    if kind == NO_TRIAL:
        return np.broadcast_to(np.nan, runs.shape)
    values = reader.read(len(runs) if kind == ALL_TRIALS else int(runs.sum()), "<f8")
    require_sound(not has_impossible_metric(values))
    if kind == ALL_TRIALS:
        return values
    column = np.full(len(runs), np.nan)
    column[runs] = values
    return column


BatchedTrials = tuple[Indices, Trials]
"""Consecutive trials, each with its batch."""
MAX_EXPANSION = 4
"""Packed trials are at most so many times as long as the file, which the file system may compress."""


class Storage(Database):
    """The batches and the trials of one study."""

    # --------------------------------------------------------------------------------------------- writing

    def append(self, record: BatchRecord, trials: Trials, first: int) -> None:
        """Add a batch whose trials are numbered from *first*, in one transaction."""
        rows = list(split_pieces(trials, first, record.batch))
        with self._allowing_values(MAX_PIECE_BYTES), self._transaction():
            self._insert("packed", rows)
            self._insert("batches", [_batch_row(record)])

    def restore(self, batches: list[BatchRecord], trials: Trials, separate: Trials) -> None:
        """Write what was saved from a damaged file: whole batches with their trials, and trials kept *separate*."""
        first = 0
        with self._allowing_values(MAX_PIECE_BYTES), self._transaction():
            for batch in batches:
                batch_trials = trials.part(slice(first, first + batch.trials))
                self._insert("packed", split_pieces(batch_trials, first, batch.batch))
                self._insert("batches", [_batch_row(batch)])
                first += batch.trials
            self._insert("packed_salvaged", split_pieces(separate, 0, study_database.NO_BATCH))

    def _insert(self, table: str, rows: Iterable[Row]) -> None:
        marks = ", ".join("?" * len(TABLE_KEYS[table][1]))
        self._connection.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)

    def set_inputs(self, content: str) -> None:
        """Keep a copy of the text of study.json, so that either can be restored from the other."""
        self._write_text("study", content)

    def set_ending(self, stopped: str, trials: int) -> None:
        """Keep why a search ended after this number of *trials*."""
        with self._transaction():
            self._connection.execute("INSERT OR REPLACE INTO inputs VALUES ('ended', ?)", (f"{stopped} {trials}",))

    def set_learned(self, learned: Learned | None, trials: int) -> None:
        """Keep what the agent says of its model after this number of *trials*; None: it has none."""
        if learned is not None:
            self._write_text("learned", json.dumps({"trials": trials, **dump_learned(learned)}, ensure_ascii=False))

    def set_runs(self, runs: Sequence[MeasuredRun]) -> None:
        """Keep the measured runs of the study, all of them, in one transaction."""
        self._write_text("measured", dump_runs(runs))

    def _write_text(self, name: str, content: str) -> None:
        with self._allowing_values(MAX_INPUT_BYTES), self._transaction():
            self._connection.execute("INSERT OR REPLACE INTO inputs VALUES (?, ?)", (name, content))

    # --------------------------------------------------------------------------------------------- reading

    def learned(self, trials: int) -> Learned | None:
        """Return what the agent said of its model after this number of *trials*; None where it said nothing."""
        with suppress(
            DamagedTrials, ValueError, KeyError, TypeError, RecursionError, SpecError
        ):  # the trials may be intact
            content = json.loads(self._read_text("learned") or "null")
            return parse_learned(content) if content is not None and content["trials"] == trials else None
        return None

    def runs(self) -> list[MeasuredRun]:
        """Return the measured runs of the study."""
        text = self._read_text("measured")
        try:
            return [] if text is None else parse_runs(text, self.problem)
        except ValueError:
            raise DamagedTrials(self.path, "its measured runs are not what was written") from None

    def _read_text(self, name: str) -> str | None:
        """Return a text that was kept under a *name*; None where there is none."""
        with self._allowing_values(MAX_INPUT_BYTES):
            rows = self.rows(f"SELECT content FROM inputs WHERE name = '{name}'")
        return rows[0][0] if rows and isinstance(rows[0][0], str) else None

    def inputs(self) -> str | None:
        """Return the copy of the text of study.json; None where there is none."""
        return self._read_text("study")

    def ending(self, trials: int) -> str:
        """Return why the search ended after this number of *trials*; an empty text where it has not ended."""
        rows = []
        with suppress(DamagedTrials):  # the trials may be intact all the same
            rows = self.rows("SELECT content FROM inputs WHERE name = 'ended'")
        stopped, _, count = str(rows[0][0]).rpartition(" ") if rows else ("", "", "")
        return stopped if count == str(trials) else ""

    def is_empty(self) -> bool:
        """Return whether no batch was written."""
        tables = self.rows("SELECT name FROM sqlite_master WHERE name = 'batches'")
        return not tables or not self.rows("SELECT 1 FROM batches LIMIT 1")

    def batches(self) -> list[BatchRecord]:
        """Return every batch, in order."""
        records: list[BatchRecord] = []
        query = f"{select_query('batches')} ORDER BY batch"
        try:
            for rows in self._chunks(query):
                records += study_database.read_batches(rows, len(records))
        except WrongRow as error:
            raise DamagedTrials(self.path, f"batch {error.row_index} is not what was written") from None
        return records

    def trials(self, table: str = "trials") -> Trials:
        """Return every trial, or every result that was kept apart (``salvaged``), each checked."""
        if table == "trials":
            return self.history()[1]
        parts = [*self._read_row_tables("salvaged", 0), *self._read_packed("packed_salvaged", 0)]  # each counts from 0
        of_batch, trials = self._join_parts(parts)
        if (of_batch != study_database.NO_BATCH).any():
            raise DamagedTrials(self.path, "results that were kept apart belong to batches")
        return trials

    def history(self) -> tuple[list[BatchRecord], Trials]:
        """Return every batch and every trial, from one snapshot."""
        with self._snapshot():
            batches = self.batches()
            sizes = [batch.trials for batch in batches]
            of_batch, trials = self._join_parts(self.parts(), min(sum(sizes), MAX_EXPANSION * self._bytes()))
        if sum(sizes) != len(trials):
            raise DamagedTrials(self.path, f"{sum(sizes)} trials were written, {len(trials)} are there")
        if not np.array_equal(np.repeat(np.arange(len(sizes)), sizes), of_batch):
            raise DamagedTrials(self.path, "trials are not in the batches that they were written with")
        return batches, trials

    def stream(self) -> Iterator[BatchedTrials]:
        """Yield every trial with its batch, some at a time, from one snapshot: as `history` without keeping them."""
        with self._snapshot():
            ends = np.cumsum([batch.trials for batch in self.batches()], dtype=np.int64)
            first = 0
            for of_batch, trials in self.parts():
                expected = np.searchsorted(ends, np.arange(first, first + len(trials)), side="right")
                if not np.array_equal(expected, of_batch):
                    raise DamagedTrials(self.path, "trials are not in the batches that they were written with")
                first += len(trials)
                yield of_batch, trials
            total = int(ends[-1]) if len(ends) else 0
        if total != first:
            raise DamagedTrials(self.path, f"{total} trials were written, {first} are there")

    def since(self, first: int, most: int) -> Trials:
        """Return at most *most* trials from *first* on, each checked against its checksum."""
        parts: list[BatchedTrials] = []
        with self._snapshot():
            for part in self.parts(first, most):
                parts.append(part)
                if sum(len(trials) for _, trials in parts) >= most:
                    break
        return self._join_parts(parts)[1].part(slice(most))

    def parts(self, first: int = 0, most: int = -1) -> Iterator[BatchedTrials]:
        """Yield all trials from *first* on, some at a time; of those with a row each, at most *most*."""
        position = first
        for part in self._read_row_tables("trials", position, most):
            position += len(part[1])
            yield part
        yield from self._read_packed("packed", position, inside=position == first)

    def _join_parts(self, parts: Iterable[BatchedTrials], expected: int = 0) -> BatchedTrials:
        """Return parts as one; so many trials are *expected*."""
        columns = Columns(
            study_database.empty_points(TrialShape.for_problem(self.problem)),
            metrics=study_database.metrics_in(self.problem),
        )
        of_batch: list[Indices] = []
        for batches, trials in parts:
            if not len(columns):
                columns = Columns(trials.points, room=expected, metrics=tuple(trials.results.columns))
            elif columns.points.shape[1] != trials.points.shape[1]:
                raise DamagedTrials(self.path, "points have different numbers of parameters")
            columns.extend(trials.points, trials.results)
            of_batch.append(batches)
        none = np.empty(0, dtype=np.int32)
        return np.concatenate([none, *of_batch]), Trials(columns.points, columns.results)

    def _read_row_tables(self, table: str, first: int, most: int = -1) -> Iterator[BatchedTrials]:
        """Yield at most *most* trials of a table with a row for each, from *first* on (all if *most* is negative).

        Pages of a crafted file can be part of many rows, and a small file would fill the memory: rows that together are
        longer than the file are damage.
        """
        if not self.has(table):
            return
        shape, position, room = TrialShape.for_problem(self.problem), first, self._bytes()
        with self._wrong_is_damage(table, "trial"):
            for rows in self._chunks(f"{select_query(table)} WHERE trial >= ? ORDER BY trial LIMIT ?", (first, most)):
                shape = shape.with_width(rows)
                part = study_database.read_trials(rows, position, shape)
                position += len(rows)
                room -= study_database.min_bytes(part[1])
                self._check_room(room)
                yield part

    def _read_packed(self, table: str, first: int, *, inside: bool = False) -> Iterator[BatchedTrials]:
        """Yield packed trials from *first* on, a piece at a time; *first* may be *inside* a piece."""
        if not self.has(table):
            return
        shape, position, room = TrialShape.for_problem(self.problem), first, MAX_EXPANSION * self._bytes()
        start = self.rows(f"SELECT MAX(first) FROM {table} WHERE first <= {first}")[0][0] if inside else 0
        query = f"{select_query(table)} WHERE first >= ? ORDER BY first"
        with self._wrong_is_damage(table, "first"), self._allowing_values(MAX_PIECE_BYTES):
            for (row,) in self._chunks(query, (start or 0,), at_once=1):
                number, batch, count, _, content = row
                skipped = position - number
                if not piece_is_sound(row) or skipped < 0 or (skipped and not inside):
                    raise WrongRow(position)
                room -= len(content)
                self._check_room(room)
                trials = _unpack_row(content, count, position, shape)
                shape = TrialShape(trials.points.shape[1], self.problem)
                inside = inside and skipped >= count
                if skipped < count:
                    position = number + count
                    yield np.full(count - skipped, batch, dtype=np.int32), trials.part(slice(skipped, None))

    @contextmanager
    def _wrong_is_damage(self, table: str, key: str) -> Iterator[None]:
        """Name the trial that is wrong; numbers below 0, which no query asks for, are wrong too."""
        try:
            yield
        except WrongRow as error:
            raise DamagedTrials(self.path, f"trial {error.row_index} is not what was written") from None
        if self.rows(f"SELECT 1 FROM {table} WHERE {key} < 0 LIMIT 1"):
            raise DamagedTrials(self.path, "trials have numbers below 0")

    def _check_room(self, room: int) -> None:
        if room < 0:
            raise DamagedTrials(self.path, "its rows are longer than the file")

    # ---------------------------------------------------------------------------------------------- saving

    def readable(self, table: str) -> dict[int, Row]:
        """Return by their key the rows of a damaged table that SQLite can read and whose checksums and cells are right.

        A damaged page ends a scan, so the table is scanned from both ends; rows in between are looked up one by one.
        """
        if not self.has(table):
            return {}
        self._connection.text_factory = lambda text: text.decode(errors="replace")  # a checksum tells what is damaged
        key, most = TABLE_KEYS[table][0], self._bytes() // MIN_ROW_BYTES
        inside = f"WHERE {key} BETWEEN 0 AND {most} ORDER BY {key}"
        with self._allowing_values(MAX_PIECE_BYTES if table in PACKED else 0):
            rows = self._intact(table, inside) | self._intact(table, f"{inside} DESC")
            position = 0
            while position < max(rows, default=0):
                if position not in rows:
                    rows |= self._intact(table, f"WHERE {key} = {position}")
                position += rows[position][2] if position in rows and table in PACKED else 1
        return self._sound(table, dict(sorted(rows.items())))

    def _intact(self, table: str, condition: str) -> dict[int, Row]:
        """Return by their key the rows under a *condition*, up to the first that SQLite cannot read."""
        rows: dict[int, Row] = {}
        packed, room = table in PACKED, MAX_EXPANSION * self._bytes()
        with suppress(DamagedTrials), self._limited_query():
            for row in self._connection.execute(f"{select_query(table)} {condition}"):
                if piece_is_sound(row) if packed else checksum_holds(row):
                    rows[row[0]] = row
                    room -= len(row[-1]) if packed else 0
                    self._check_room(room)  # as in `_by_row`
        return rows

    def _sound(self, table: str, rows: dict[int, Row]) -> dict[int, Row]:
        """Return the rows whose cells are right."""
        if table == "batches":
            return {key: row for key, row in rows.items() if study_database.is_sound_batch(row)}
        cells = list(rows.values())
        shape = _usual_shape(table, cells) if self.problem is None else TrialShape.for_problem(self.problem)
        if table in PACKED:
            return {row[0]: row for row in cells if _is_sound(row, shape)}
        return {row[0]: row for row in study_database.select_sound(cells, shape)}


def holds_trials(path: Path) -> bool:
    """Return whether there is a database with trials, or a damaged one; a search killed early leaves an empty one."""
    if not os.path.lexists(path):
        return False
    try:
        with Storage.opened(path) as storage:
            return not storage.is_empty()
    except StudyError:
        return True


def has_lost_trials(path: Path) -> bool:
    """Return whether there is no database where a study.json says that there was one: it is written after it."""
    if not os.path.lexists(path):
        return True
    with Storage.opened(path) as storage:
        return storage.is_empty() and not storage.rows("SELECT name FROM sqlite_master WHERE name = 'inputs'")


def _batch_row(batch: BatchRecord) -> Row:
    return with_checksum(batch.batch, batch.asked, batch.trials)


def _unpack_row(content: bytes, count: int, position: int, shape: TrialShape) -> Trials:
    try:
        return unpack_piece(content, count, shape)
    except ValueError:
        raise WrongRow(position) from None


def _is_sound(row: Row, shape: TrialShape) -> bool:
    with suppress(ValueError):
        unpack_piece(row[4], row[2], shape)
        return True
    return False


def _usual_shape(table: str, rows: list[Row]) -> TrialShape:
    """Return the shape that most rows have."""
    if table in PACKED:
        widths = [piece_width(row[4]) for row in rows if len(row[4]) >= HEADER_STRUCT.size]
    else:
        widths = [len(row[2]) // 4 for row in rows if isinstance(row[2], bytes)]
    return TrialShape(Counter(widths).most_common(1)[0][0] if widths else 0)
