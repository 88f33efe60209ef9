"""Trials on disk: one SQLite file in write-ahead mode, in which every row has a checksum.

A batch is written in one transaction, so readers, and a search that is resumed after a crash, see whole batches. No
trial is recorded as running. SQLite detects missing pages, the checksums detect changed bits, and the number of trials
is checked against the batches. The trials of a batch are packed (`packing`); earlier releases wrote a row for each
(`cells`). The file may come from anybody (`database`).
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from cosmic.errors import SpecError
from cosmic.exploration.columns import Columns
from cosmic.exploration.learning.quality import Learned, as_plain, from_plain
from cosmic.exploration.measuring import Run
from cosmic.exploration.studies import cells, packing
from cosmic.exploration.studies.cells import BatchRecord, Row, Shape, Wrong, checksum_holds, with_checksum
from cosmic.exploration.studies.database import SMALLEST_ROW, Damaged, Database, StudyError
from cosmic.exploration.studies.folder import MOST_INPUT_BYTES
from cosmic.exploration.studies.runs import read_text_of_runs, runs_text
from cosmic.exploration.studies.tables import KEYS, PACKED, select
from cosmic.exploration.trials import Trials
from cosmic.psa.diagram import Indices

__all__ = ["Damaged", "Storage", "StudyError", "holds_trials"]
Part = tuple[Indices, Trials]
"""Consecutive trials, each with its batch."""
LARGER = 4
"""Packed trials are at most so many times as long as the file, which the file system may compress."""


class Storage(Database):
    """The batches and the trials of one study."""

    # --------------------------------------------------------------------------------------------- writing

    def append(self, written: BatchRecord, trials: Trials, first: int) -> None:
        """Add a batch whose trials are numbered from *first*, in one transaction."""
        rows = list(packing.pieces(trials, first, written.batch))
        with self._allowing(packing.LONGEST), self._transaction():
            self._insert("packed", rows)
            self._insert("batches", [_batch_row(written)])

    def restore(self, batches: list[BatchRecord], trials: Trials, apart: Trials) -> None:
        """Write what was saved from a damaged file: whole batches with their trials, and trials kept *apart*."""
        first = 0
        with self._allowing(packing.LONGEST), self._transaction():
            for batch in batches:
                some = trials.part(slice(first, first + batch.trials))
                self._insert("packed", packing.pieces(some, first, batch.batch))
                self._insert("batches", [_batch_row(batch)])
                first += batch.trials
            self._insert("packed_salvaged", packing.pieces(apart, 0, cells.NO_BATCH))

    def _insert(self, table: str, rows: Iterable[Row]) -> None:
        marks = ", ".join("?" * len(KEYS[table][1]))
        self._connection.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)

    def set_inputs(self, content: str) -> None:
        """Keep a copy of the text of study.json, so that either can be restored from the other."""
        self._keep("study", content)

    def set_ending(self, stopped: str, trials: int) -> None:
        """Keep why a search ended after this number of *trials*."""
        with self._transaction():
            self._connection.execute("INSERT OR REPLACE INTO inputs VALUES ('ended', ?)", (f"{stopped} {trials}",))

    def set_learned(self, learned: Learned | None, trials: int) -> None:
        """Keep what the agent says of its model after this number of *trials*; None: it has none."""
        if learned is not None:
            self._keep("learned", json.dumps({"trials": trials, **as_plain(learned)}, ensure_ascii=False))

    def set_runs(self, runs: Sequence[Run]) -> None:
        """Keep the measured runs of the study, all of them, in one transaction."""
        self._keep("measured", runs_text(runs))

    def _keep(self, name: str, content: str) -> None:
        with self._allowing(MOST_INPUT_BYTES), self._transaction():
            self._connection.execute("INSERT OR REPLACE INTO inputs VALUES (?, ?)", (name, content))

    # --------------------------------------------------------------------------------------------- reading

    def learned(self, trials: int) -> Learned | None:
        """Return what the agent said of its model after this number of *trials*; None where it said nothing."""
        with suppress(Damaged, ValueError, KeyError, TypeError, RecursionError, SpecError):  # the trials may be intact
            content = json.loads(self._kept("learned") or "null")
            return from_plain(content) if content is not None and content["trials"] == trials else None
        return None

    def runs(self) -> list[Run]:
        """Return the measured runs of the study."""
        text = self._kept("measured")
        try:
            return [] if text is None else read_text_of_runs(text, self.problem)
        except ValueError:
            raise Damaged(self.path, "its measured runs are not what was written") from None

    def _kept(self, name: str) -> str | None:
        """Return a text that was kept under a *name*; None where there is none."""
        with self._allowing(MOST_INPUT_BYTES):
            found = self.rows(f"SELECT content FROM inputs WHERE name = '{name}'")
        return found[0][0] if found and isinstance(found[0][0], str) else None

    def inputs(self) -> str | None:
        """Return the copy of the text of study.json; None where there is none."""
        return self._kept("study")

    def ending(self, trials: int) -> str:
        """Return why the search ended after this number of *trials*; an empty text where it has not ended."""
        found = []
        with suppress(Damaged):  # the trials may be intact all the same
            found = self.rows("SELECT content FROM inputs WHERE name = 'ended'")
        stopped, _, count = str(found[0][0]).rpartition(" ") if found else ("", "", "")
        return stopped if count == str(trials) else ""

    def is_empty(self) -> bool:
        """Return whether no batch was written."""
        tables = self.rows("SELECT name FROM sqlite_master WHERE name = 'batches'")
        return not tables or not self.rows("SELECT 1 FROM batches LIMIT 1")

    def batches(self) -> list[BatchRecord]:
        """Return every batch, in order."""
        found: list[BatchRecord] = []
        query = f"{select('batches')} ORDER BY batch"
        try:
            for rows in self._chunks(query):
                found += cells.read_batches(rows, len(found))
        except Wrong as error:
            raise Damaged(self.path, f"batch {error.place} is not what was written") from None
        return found

    def trials(self, table: str = "trials") -> Trials:
        """Return every trial, or every result that was kept apart (``salvaged``), each checked."""
        if table == "trials":
            return self.history()[1]
        parts = [*self._by_row("salvaged", 0), *self._packed("packed_salvaged", 0)]  # each counts from 0
        of_batch, trials = self._joined(parts)
        if (of_batch != cells.NO_BATCH).any():
            raise Damaged(self.path, "results that were kept apart belong to batches")
        return trials

    def history(self) -> tuple[list[BatchRecord], Trials]:
        """Return every batch and every trial, from one snapshot."""
        with self._snapshot():
            batches = self.batches()
            sizes = [batch.trials for batch in batches]
            of_batch, trials = self._joined(self.parts(), min(sum(sizes), LARGER * self._bytes()))
        if sum(sizes) != len(trials):
            raise Damaged(self.path, f"{sum(sizes)} trials were written, {len(trials)} are there")
        if not np.array_equal(np.repeat(np.arange(len(sizes)), sizes), of_batch):
            raise Damaged(self.path, "trials are not in the batches that they were written with")
        return batches, trials

    def stream(self) -> Iterator[Part]:
        """Yield every trial with its batch, some at a time, from one snapshot: as `history` without keeping them."""
        with self._snapshot():
            ends = np.cumsum([batch.trials for batch in self.batches()], dtype=np.int64)
            place = 0
            for of_batch, trials in self.parts():
                wanted = np.searchsorted(ends, np.arange(place, place + len(trials)), side="right")
                if not np.array_equal(wanted, of_batch):
                    raise Damaged(self.path, "trials are not in the batches that they were written with")
                place += len(trials)
                yield of_batch, trials
            written = int(ends[-1]) if len(ends) else 0
        if written != place:
            raise Damaged(self.path, f"{written} trials were written, {place} are there")

    def since(self, first: int, most: int) -> Trials:
        """Return at most *most* trials from *first* on, each checked against its checksum."""
        found: list[Part] = []
        with self._snapshot():
            for part in self.parts(first, most):
                found.append(part)
                if sum(len(trials) for _, trials in found) >= most:
                    break
        return self._joined(found)[1].part(slice(most))

    def parts(self, first: int = 0, most: int = -1) -> Iterator[Part]:
        """Yield all trials from *first* on, some at a time; of those with a row each, at most *most*."""
        place = first
        for part in self._by_row("trials", place, most):
            place += len(part[1])
            yield part
        yield from self._packed("packed", place, inside=place == first)

    def _joined(self, parts: Iterable[Part], expected: int = 0) -> Part:
        """Return parts as one; so many trials are *expected*."""
        columns = Columns(cells.no_points(Shape.of(self.problem)), metrics=cells.metrics_in(self.problem))
        of_batch: list[Indices] = []
        for batches, trials in parts:
            if not len(columns):
                columns = Columns(trials.points, room=expected, metrics=tuple(trials.results.columns))
            elif columns.points.shape[1] != trials.points.shape[1]:
                raise Damaged(self.path, "points have different numbers of parameters")
            columns.extend(trials.points, trials.results)
            of_batch.append(batches)
        none = np.empty(0, dtype=np.int32)
        return np.concatenate([none, *of_batch]), Trials(columns.points, columns.results)

    def _by_row(self, table: str, first: int, most: int = -1) -> Iterator[Part]:
        """Yield at most *most* trials of a table with a row for each, from *first* on (all if *most* is negative).

        Pages of a crafted file can be part of many rows, and a small file would fill the memory: rows that together are
        longer than the file are damage.
        """
        if not self.has(table):
            return
        shape, place, left = Shape.of(self.problem), first, self._bytes()
        with self._wrong_is_damage(table, "trial"):
            for rows in self._chunks(f"{select(table)} WHERE trial >= ? ORDER BY trial LIMIT ?", (first, most)):
                shape = shape.given(rows)
                part = cells.read_trials(rows, place, shape)
                place += len(rows)
                left -= cells.bytes_of(part[1])
                self._check_room(left)
                yield part

    def _packed(self, table: str, first: int, *, inside: bool = False) -> Iterator[Part]:
        """Yield packed trials from *first* on, a piece at a time; *first* may be *inside* a piece."""
        if not self.has(table):
            return
        shape, place, left = Shape.of(self.problem), first, LARGER * self._bytes()
        start = self.rows(f"SELECT MAX(first) FROM {table} WHERE first <= {first}")[0][0] if inside else 0
        query = f"{select(table)} WHERE first >= ? ORDER BY first"
        with self._wrong_is_damage(table, "first"), self._allowing(packing.LONGEST):
            for (row,) in self._chunks(query, (start or 0,), at_once=1):
                number, batch, count, _, content = row
                skipped = place - number
                if not packing.holds(row) or skipped < 0 or (skipped and not inside):
                    raise Wrong(place)
                left -= len(content)
                self._check_room(left)
                trials = _unpacked(content, count, place, shape)
                shape = Shape(trials.points.shape[1], self.problem)
                inside = inside and skipped >= count
                if skipped < count:
                    place = number + count
                    yield np.full(count - skipped, batch, dtype=np.int32), trials.part(slice(skipped, None))

    @contextmanager
    def _wrong_is_damage(self, table: str, key: str) -> Iterator[None]:
        """Name the trial that is wrong; numbers below 0, which no query asks for, are wrong too."""
        try:
            yield
        except Wrong as error:
            raise Damaged(self.path, f"trial {error.place} is not what was written") from None
        if self.rows(f"SELECT 1 FROM {table} WHERE {key} < 0 LIMIT 1"):
            raise Damaged(self.path, "trials have numbers below 0")

    def _check_room(self, left: int) -> None:
        if left < 0:
            raise Damaged(self.path, "its rows are longer than the file")

    # ---------------------------------------------------------------------------------------------- saving

    def readable(self, table: str) -> dict[int, Row]:
        """Return by their key the rows of a damaged table that SQLite can read and whose checksums and cells are right.

        A damaged page ends a scan, so the table is scanned from both ends; rows in between are looked up one by one.
        """
        if not self.has(table):
            return {}
        self._connection.text_factory = lambda text: text.decode(errors="replace")  # a checksum tells what is damaged
        key, most = KEYS[table][0], self._bytes() // SMALLEST_ROW
        inside = f"WHERE {key} BETWEEN 0 AND {most} ORDER BY {key}"
        with self._allowing(packing.LONGEST if table in PACKED else 0):
            found = self._intact(table, inside) | self._intact(table, f"{inside} DESC")
            place = 0
            while place < max(found, default=0):
                if place not in found:
                    found |= self._intact(table, f"WHERE {key} = {place}")
                place += found[place][2] if place in found and table in PACKED else 1
        return self._sound(table, dict(sorted(found.items())))

    def _intact(self, table: str, condition: str) -> dict[int, Row]:
        """Return by their key the rows under a *condition*, up to the first that SQLite cannot read."""
        found: dict[int, Row] = {}
        packed, left = table in PACKED, LARGER * self._bytes()
        with suppress(Damaged), self._reading():
            for row in self._connection.execute(f"{select(table)} {condition}"):
                if packing.holds(row) if packed else checksum_holds(row):
                    found[row[0]] = row
                    left -= len(row[-1]) if packed else 0
                    self._check_room(left)  # as in `_by_row`
        return found

    def _sound(self, table: str, found: dict[int, Row]) -> dict[int, Row]:
        """Return the rows whose cells are right."""
        if table == "batches":
            return {key: row for key, row in found.items() if cells.is_batch(row)}
        rows = list(found.values())
        shape = _usual(table, rows) if self.problem is None else Shape.of(self.problem)
        if table in PACKED:
            return {row[0]: row for row in rows if _is_sound(row, shape)}
        return {row[0]: row for row in cells.sound(rows, shape)}


def holds_trials(path: Path) -> bool:
    """Return whether there is a database with trials, or a damaged one; a search killed early leaves an empty one."""
    if not os.path.lexists(path):
        return False
    try:
        with Storage.opened(path) as storage:
            return not storage.is_empty()
    except StudyError:
        return True


def _batch_row(batch: BatchRecord) -> Row:
    return with_checksum(batch.batch, batch.asked, batch.trials)


def _unpacked(content: bytes, count: int, place: int, shape: Shape) -> Trials:
    try:
        return packing.unpack(content, count, shape)
    except ValueError:
        raise Wrong(place) from None


def _is_sound(row: Row, shape: Shape) -> bool:
    with suppress(ValueError):
        packing.unpack(row[4], row[2], shape)
        return True
    return False


def _usual(table: str, rows: list[Row]) -> Shape:
    """Return the shape that most rows have."""
    if table in PACKED:
        widths = [packing.width_of(row[4]) for row in rows if len(row[4]) >= packing.HEADER.size]
    else:
        widths = [len(row[2]) // 4 for row in rows if isinstance(row[2], bytes)]
    return Shape(Counter(widths).most_common(1)[0][0] if widths else 0)
