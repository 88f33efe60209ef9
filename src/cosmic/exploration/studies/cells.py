"""The cells of a study's tables of rows: of the right type, length and range, or the study is damaged.

A checksum tells what a disk changed. It does not tell who wrote a row, so that every cell is checked as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np

from cosmic.exploration.agent import Floats
from cosmic.exploration.columns import index_type
from cosmic.exploration.inputs import LARGEST_BATCH
from cosmic.exploration.problem import METRICS, Problem, Results
from cosmic.exploration.trials import Trials
from cosmic.metrics import OF_STEPS
from cosmic.psa.diagram import Indices

Row = tuple[Any, ...]
INDEX = "<u4"
"""How a point is kept: an index of 4 bytes for each parameter."""
MOST_PARAMETERS = 10_000
LONGEST_REASONS = 2**16
LEAST, MOST = 1e-150, 1e150
"""Between these are the metrics of all designs that are not 0: ratios and squares of them are numbers."""
AT_ONCE = 2048
"""How many rows are read before they are checked."""
NO_BATCH = -1
"""The batch of a salvaged trial."""


class Wrong(ValueError):  # noqa: N818  its base says that it is an error
    """A row that no search writes."""

    def __init__(self, place: int) -> None:
        super().__init__(place)
        self.place = place
        """The row's place in its table."""


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """A batch on disk."""

    batch: int
    asked: int
    """How many points the agent was asked for; only new ones are trials."""
    trials: int


def _crc(*values: Any) -> int:
    """Return a checksum of the exact text of *values*, which is different for different floats."""
    return crc32(repr(values).encode())


def with_checksum(*values: Any) -> Row:
    """Return a row of the database: *values* and their checksum."""
    return (*values, _crc(*values))


def checksum_holds(row: Row) -> bool:
    """Return whether a row of the database agrees with its checksum."""
    return bool(row[-1] == _crc(*row[:-1]))


# --------------------------------------------------------------------------------------------------- batches


def read_batches(rows: Sequence[Row], first: int) -> list[BatchRecord]:
    """Return rows of the table of batches, which are numbered from *first* on."""
    found = []
    for place, row in enumerate(rows, first):
        if not checksum_holds(row) or row[0] != place or not is_batch(row):
            raise Wrong(place)
        found.append(BatchRecord(*row[:-1]))
    return found


def is_batch(row: Row) -> bool:
    """Return whether the cells of a row of the table of batches are right."""
    return all(type(value) is int and 0 <= value <= LARGEST_BATCH for value in row[1:-1])


# ---------------------------------------------------------------------------------------------------- trials


@dataclass(frozen=True, slots=True)
class Shape:
    """What the trials of one study have in common."""

    width: int | None = None
    """How many parameters a point has; None while that is unknown."""
    problem: Problem | None = None
    """The problem that was searched; without it, indices cannot be checked against the values there are."""

    @classmethod
    def of(cls, problem: Problem | None) -> Shape:
        """Return the shape of the trials of *problem*."""
        return cls() if problem is None else cls(len(problem.space.parameters), problem)

    def given(self, rows: Sequence[Row]) -> Shape:
        """Return the shape with the width of the first of *rows*, if it is still unknown."""
        if self.width is not None or not rows:
            return self
        point = rows[0][2]
        known = isinstance(point, bytes) and len(point) % 4 == 0 and len(point) <= 4 * MOST_PARAMETERS
        return Shape(len(point) // 4 if known else 0, self.problem)


def metrics_in(problem: Problem | None) -> tuple[str, ...]:
    """Return the metrics of a study's trials."""
    return METRICS if problem is None else problem.metrics


def no_points(shape: Shape) -> Indices:
    """Return no points."""
    return np.empty((0, shape.width or 0), dtype=np.uint8)


def read_trials(rows: Sequence[Row], first: int, shape: Shape) -> tuple[Indices, Trials]:
    """Return the batches and the trials of *rows*, which are numbered from *first* on; a wrong one raises `Wrong`."""
    for place, row in enumerate(rows, first):
        if not checksum_holds(row) or row[0] != place:
            raise Wrong(place)
    try:
        return read(rows, shape)
    except ValueError:
        raise Wrong(first + _first_wrong(rows, shape)) from None


def sound(rows: Sequence[Row], shape: Shape) -> list[Row]:
    """Return those of *rows* that a search may have written."""
    try:
        read(rows, shape)
    except ValueError:
        middle = len(rows) // 2
        return [*sound(rows[:middle], shape), *sound(rows[middle:], shape)] if middle else []
    return list(rows)


def _first_wrong(rows: Sequence[Row], shape: Shape) -> int:
    """Return the place of the first wrong one of *rows*; some row is wrong."""
    below, above = 0, len(rows)  # all rows before `below` are sound, some before `above` are not
    while above - below > 1:
        middle = (below + above) // 2
        try:
            read(rows[below:middle], shape)
        except ValueError:
            above = middle
        else:
            below = middle
    return below


def read(rows: Sequence[Row], shape: Shape) -> tuple[Indices, Trials]:
    """Return the batches and the trials of *rows*; raise a `ValueError` where a cell is wrong."""
    if not rows:
        return np.empty(0, dtype=np.int64), Trials(no_points(shape), Results.failed(0, "", metrics_in(shape.problem)))
    _, batches, points, counted, reasons, *numbers, _ = zip(*rows, strict=True)
    check(_only(batches, int) and _only(counted, int) and set(counted) <= {0, 1})
    check(_only(reasons, str) and all(map(is_reason, set(reasons))))
    check(_only(numbers[0], float) and all(_only(column, float, type(None)) for column in numbers[1:]))
    width = 4 * (shape.width or 0)
    check(_only(points, bytes) and set(map(len, points)) == {width})
    excess, *metrics = (np.array(column, dtype=np.float64) for column in numbers)
    check(not (excess < 0).any() and not any(beyond(column) for column in metrics))
    found = np.frombuffer(b"".join(points), dtype=INDEX).reshape(len(rows), -1 if width else 0)
    found = found.astype(index_type(int(found.max(initial=0))))
    columns = dict.fromkeys(METRICS, np.broadcast_to(np.nan, excess.shape)) | dict(zip(OF_STEPS, metrics, strict=True))
    results = Results(columns, excess, list(reasons), np.array(counted, dtype=bool))
    trials = Trials(found, results)
    check(shape.problem is None or trials.fits(shape.problem))
    return np.array(batches, dtype=np.int64), trials


def is_reason(text: str) -> bool:
    """Return whether a search may have written *text* as the reason of a trial."""
    return len(text) <= LONGEST_REASONS and text.isprintable()


def bytes_of(trials: Trials) -> int:
    """Return how many bytes the points and reasons of *trials* take on disk at least."""
    return trials.points.size * np.dtype(INDEX).itemsize + sum(map(len, trials.results.reasons))


def beyond(metric: Floats) -> bool:
    """Return whether some value of a metric is beyond those that designs have; NaN, for none, is not."""
    return bool(((metric < 0) | (metric > MOST) | ((metric > 0) & (metric < LEAST))).any())


def check(holds: bool) -> None:
    """Raise a `ValueError` where something does not hold."""
    if not holds:
        raise ValueError


def _only(column: Sequence[Any], *kinds: type) -> bool:
    """Return whether every value of *column* is of one of these types, none of a subtype."""
    return set(map(type, column)) <= set(kinds)
