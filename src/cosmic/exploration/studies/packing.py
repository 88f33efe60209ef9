"""Trials packed into bytes, column by column, and read back bit for bit.

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

import struct
from collections.abc import Iterator
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt

from cosmic.engines.engine import MOST_METRICS
from cosmic.exploration.agent import Flags, Floats
from cosmic.exploration.columns import index_type
from cosmic.exploration.problem import METRICS, Results
from cosmic.exploration.reasons import Reasons
from cosmic.exploration.studies.cells import MOST_PARAMETERS, NO_BATCH, Row, Shape, beyond, check, is_reason
from cosmic.exploration.trials import Trials
from cosmic.metrics import OF_CLUSTERS, OF_REQUESTS, OF_RUNS, OF_SAMPLES, OF_STEPS

LAYOUT, NAMED = 1, 2
"""The layout of pieces with metrics of COSMIC, and of others, whose names are written too."""
NAMES = struct.Struct("<H")
HEADER = struct.Struct("<BBHIII")
TOKENS_ALONE = tuple(name for name in METRICS if name not in OF_SAMPLES)
OF_PIECES = (
    tuple(OF_STEPS),
    (*OF_STEPS, *OF_REQUESTS),
    (*OF_STEPS, *OF_CLUSTERS, *OF_RUNS),
    TOKENS_ALONE,
    METRICS,
)
WRITTEN = {crc32(",".join(names).encode()): names for names in OF_PIECES}
"""The metrics of a piece, by the checksum of their names: those of a step alone where no trial has another."""
NONE, RUNNING, ALL = range(3)
"""The kinds of a metric's column."""
LONGEST = 2**22
"""The most bytes of one piece."""
AIM = 2**21
"""A piece has about so many bytes at most, apart from its texts."""
MOST = 2**14
"""The most trials of one piece."""
MOST_BATCHES = 2**31 - 1


def pieces(trials: Trials, first: int, batch: int) -> Iterator[Row]:
    """Yield rows of a packed table that hold *trials* of one *batch*, numbered from *first* on."""
    size = 4 * trials.points.shape[1] + 8 * (len(METRICS) + 2)
    step = max(1, min(MOST, AIM // size))
    for start in range(0, len(trials), step):
        yield from _halved(trials.part(slice(start, start + step)), first + start, batch)


def _halved(trials: Trials, first: int, batch: int) -> Iterator[Row]:
    """Yield *trials* as one row, or as several if its texts are too long for one."""
    content, middle = pack(trials), len(trials) // 2
    if len(content) > LONGEST and middle:
        yield from _halved(trials.part(slice(middle)), first, batch)
        yield from _halved(trials.part(slice(middle, None)), first + middle, batch)
    else:
        yield (first, batch, len(trials), checksum(first, batch, len(trials), content), content)


def checksum(first: int, batch: int, trials: int, content: bytes) -> int:
    """Return the checksum of a row of a packed table."""
    return crc32(content, crc32(repr((first, batch, trials)).encode()))


def holds(row: Row) -> bool:
    """Return whether a row of a packed table agrees with its checksum and states a possible number of trials."""
    first, batch, trials, crc, content = row
    whole = all(type(each) is int for each in (first, batch, trials)) and isinstance(content, bytes)
    possible = whole and 1 <= trials <= MOST and NO_BATCH <= batch <= MOST_BATCHES
    return possible and bool(crc == checksum(first, batch, trials, content))


# -------------------------------------------------------------------------------------------------- writing


def pack(trials: Trials) -> bytes:
    """Return *trials* as bytes; there is at least one."""
    results, points = trials.results, trials.points
    if points.dtype.itemsize > 1 or points.dtype.kind != "u":
        points = points.astype(index_type(int(points.max(initial=0))))
    texts, codes = _used(results.coded)
    names, metrics = _named(results)
    kinds, numbers = _stored(np.stack([results.columns[name] for name in metrics]), results.excess == 0)
    text = "\n".join(texts).encode()
    named = ",".join(metrics).encode() if names not in WRITTEN else b""
    layout = NAMED if named else LAYOUT
    header = HEADER.pack(layout, points.dtype.itemsize, len(metrics), points.shape[1], len(text), names)
    return b"".join(
        [
            header,
            NAMES.pack(len(named)) + named if named else b"",
            bytes(kinds),
            text,
            _little(points),
            _little(codes),
            np.packbits(results.counted, bitorder="little").tobytes(),
            _little(results.excess),
            *map(_little, numbers),
        ]
    )


def _named(results: Results) -> tuple[int, tuple[str, ...]]:
    """Return the metrics to write, and the checksum of their names: no others than some trial has."""
    if results.columns.keys() != set(METRICS):
        names = tuple(results.columns)
        return crc32(",".join(names).encode()), names
    there = {name for name, column in results.columns.items() if not np.isnan(column).all()}
    return next((code, names) for code, names in WRITTEN.items() if there <= {*names})


def _used(reasons: Reasons) -> tuple[list[str], npt.NDArray[Any]]:
    """Return the texts that are there, and their codes in the smallest type."""
    used = np.flatnonzero(np.bincount(reasons.codes, minlength=len(reasons.texts)))
    code = np.zeros(len(reasons.texts), dtype=index_type(len(used) - 1))
    code[used] = np.arange(len(used))
    return [reasons.texts[place] for place in used.tolist()], code[reasons.codes]


def _stored(metrics: Floats, runs: Flags) -> tuple[list[int], list[Floats]]:
    """Return the kind of each metric's column, and the values that are written of it."""
    known = ~np.isnan(metrics)
    others = (known & ~runs).any(axis=1)
    kinds = np.where(others, ALL, np.where(known.any(axis=1), RUNNING, NONE)).tolist()
    if ALL not in kinds:  # as usual: a design that cannot run has no metrics
        return kinds, [metrics[np.array(kinds) == RUNNING][:, runs]]
    written = {NONE: runs[:0], RUNNING: runs, ALL: slice(None)}
    return kinds, [column[written[kind]] for kind, column in zip(kinds, metrics, strict=True) if kind != NONE]


def _little(array: npt.NDArray[Any]) -> bytes:
    return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()


# -------------------------------------------------------------------------------------------------- reading


class _Reader:
    """Takes arrays from bytes, one after the other."""

    def __init__(self, content: bytes) -> None:
        self._content, self.at = content, 0

    def take(self, count: int, kind: str) -> npt.NDArray[Any]:
        """Return the next *count* numbers; too few are a `ValueError`."""
        found = np.frombuffer(self._content, kind, count, self.at) if count else np.empty(0, kind)
        self.at += found.nbytes
        return found


def width_of(content: bytes) -> int:
    """Return how many parameters the points of a piece have, by its header."""
    check(len(content) >= HEADER.size)
    return int(HEADER.unpack_from(content)[3])


def unpack(content: bytes, trials: int, shape: Shape) -> Trials:
    """Return so many *trials*; raise a `ValueError` where the bytes are not what `pack` writes."""
    check(HEADER.size <= len(content) <= LONGEST)
    layout, itemsize, metrics, width, text_bytes, names = HEADER.unpack_from(content)
    written, start = _written(content, layout, names, shape)
    check(metrics == len(written) and bool(written) and itemsize in (1, 2, 4))
    check(width <= MOST_PARAMETERS and shape.width in (None, width) and text_bytes <= len(content))
    reader = _Reader(content[start:])
    kinds = reader.take(metrics, "u1").tolist()
    texts = reader.take(text_bytes, "u1").tobytes().decode().split("\n")  # what is no UTF-8 is a ValueError too
    check(len(texts) <= trials and len(set(texts)) == len(texts) and all(map(is_reason, texts)))
    points = reader.take(trials * width, f"<u{itemsize}").reshape(trials, width)
    codes = reader.take(trials, index_type(len(texts) - 1).newbyteorder("<").str)
    bits = reader.take(-(-trials // 8), "u1")
    excess = reader.take(trials, "<f8")
    check(bool((codes < len(texts)).all()) and not (np.isnan(excess) | (excess < 0)).any())
    runs = excess == 0
    columns = dict.fromkeys(written if layout == NAMED else METRICS, np.broadcast_to(np.nan, runs.shape))
    columns |= {name: _column(reader, kind, runs) for name, kind in zip(written, kinds, strict=True)}
    check(reader.at == len(content) - start)
    flags = np.unpackbits(bits, bitorder="little")
    check(not flags[trials:].any())
    results = Results(columns, excess, Reasons(tuple(texts), codes.astype(np.uint32)), flags[:trials].astype(bool))
    found = Trials(points, results)
    check(shape.problem is None or found.fits(shape.problem))
    return found


def _written(content: bytes, layout: int, names: int, shape: Shape) -> tuple[tuple[str, ...], int]:
    """Return the metrics of a piece, and where what follows their names begins."""
    check(layout in (LAYOUT, NAMED))
    if layout == LAYOUT:
        return WRITTEN.get(names, ()), HEADER.size
    check(len(content) >= HEADER.size + NAMES.size)
    start = HEADER.size + NAMES.size + NAMES.unpack_from(content, HEADER.size)[0]
    text = content[HEADER.size + NAMES.size : start]
    found = tuple(text.decode().split(","))
    check(crc32(text) == names and len(set(found)) == len(found) <= MOST_METRICS and all(map(str.isidentifier, found)))
    check(shape.problem is None or found == shape.problem.metrics)
    return found, start


def _column(reader: _Reader, kind: int, runs: Flags) -> Floats:
    check(kind in (NONE, RUNNING, ALL))
    if kind == NONE:
        return np.broadcast_to(np.nan, runs.shape)
    values = reader.take(len(runs) if kind == ALL else int(runs.sum()), "<f8")
    check(not beyond(values))
    if kind == ALL:
        return values
    found = np.full(len(runs), np.nan)
    found[runs] = values
    return found
