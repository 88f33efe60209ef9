"""What is saved from a damaged study: whole batches from the first on, and every other intact result apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from cosmic.exploration.columns import Columns
from cosmic.exploration.problem import Problem
from cosmic.exploration.studies import cells, packing
from cosmic.exploration.studies.cells import BatchRecord, Row, Shape
from cosmic.exploration.trials import Trials
from cosmic.psa.diagram import Flags, Indices

Rows = Mapping[int, Row]
"""Rows of a table by their key."""
Parts = Iterator[tuple[Indices, Indices, Trials]]


@dataclass(frozen=True)
class Saved:
    """What is saved."""

    batches: list[BatchRecord]
    """The batches before the first that is missing or lacks a trial."""
    trials: Trials
    """Their trials."""
    apart: Trials
    """Every other result, of each point one."""


def saved_from(found: Mapping[str, Rows], problem: Problem | None) -> Saved:
    """Return what is saved, from the intact rows of each table."""
    shape = Shape.of(problem)
    numbers, of_batch, trials = _gathered(_parts(found, ("trials", "packed"), shape))
    _, _, before = _gathered(_parts(found, ("salvaged", "packed_salvaged"), shape))
    order = np.argsort(numbers, kind="stable")
    numbers, of_batch, trials = numbers[order], of_batch[order], _taken(trials, order)
    batches = _whole_batches(found.get("batches", {}), numbers, of_batch)
    whole = sum(each.trials for each in batches)
    rest = trials.part(slice(whole, None))
    both = _gathered(iter([(numbers, of_batch, each) for each in (rest, before) if len(each)]))[2]
    return Saved(batches, trials.part(slice(whole)), _taken(both, np.flatnonzero(_distinct(both.points))))


def _parts(found: Mapping[str, Rows], tables: tuple[str, str], shape: Shape) -> Parts:
    """Yield intact trials with their numbers and batches."""
    by_row, packed = (found.get(table, {}) for table in tables)
    rows = list(by_row.values())
    for start in range(0, len(rows), cells.AT_ONCE):
        some = rows[start : start + cells.AT_ONCE]
        batches, trials = cells.read(some, shape.given(some))
        yield np.array([row[0] for row in some], dtype=np.int64), batches, trials
    for first, batch, count, _, content in packed.values():
        yield first + np.arange(count), np.full(count, batch), packing.unpack(content, count, shape)


def _gathered(parts: Parts) -> tuple[Indices, Indices, Trials]:
    """Return parts as one; those with another number of parameters than the first are left out."""
    numbers: list[Indices] = []
    of_batch: list[Indices] = []
    columns = Columns(cells.no_points(Shape()))
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


def _taken(trials: Trials, places: Indices) -> Trials:
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
