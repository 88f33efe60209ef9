"""Read the events of a Kineto trace into columns."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from cosmic.errors import SpecError
from cosmic.profiles.arrays import Lookup, distinct, sorted_distinct
from cosmic.profiles.json_rows import ABSENT, RAW, TEXT, TIME, WHOLE, Batch, Key, RowReader
from cosmic.profiles.json_stream import Document, decoded, part
from cosmic.profiles.kineto import LAUNCHED, CollectiveCall, Device, Host, Ints, Kineto
from cosmic.profiles.kineto_records import (
    CALL,
    EVENT,
    Args,
    Call,
    CallArgs,
    Event,
    Number,
    collective_call,
    optional,
    time_of,
    whole,
)

MOST_EVENTS = 2 * 10**7
"""The most events of hosts and devices that a trace may have."""
_OLD = {"operator": "cpu_op", "runtime": "cuda_runtime", "memcpy": "gpu_memcpy", "memset": "gpu_memset"}
"""Categories as the first versions of Kineto wrote them."""
_TRIVIAL = re.compile(
    r"(cuda|hip)(Get|Set|Peek|StreamIs|StreamGet|DeviceGet|Func|Occupancy|EventQuery|EventCreate|EventElapsed|Pointer)"
)
"""Calls that neither launch nor wait: their time is part of the operator around them."""


_KEYS = {
    **dict.fromkeys(("cat", "name"), (TEXT, 0)),
    **dict.fromkeys(("pid", "tid"), (WHOLE, 0)),
    **dict.fromkeys(("ts", "dur"), (TIME, 0)),
    **dict.fromkeys(("Record function id", "correlation", "stream", "device", "bytes"), (WHOLE, 1)),
    **dict.fromkeys(("grid", "block", "Input Dims", "Input type", "Concrete Inputs"), (RAW, 1)),
    "ph": (TEXT, 0),
    "Collective name": (TEXT, 1),
}
KEYS = tuple(Key(name, kind, level) for name, (kind, level) in _KEYS.items())
(
    CAT,
    NAME,
    PID,
    TID,
    TS,
    DUR,
    FUNCTION,
    CORRELATION,
    STREAM,
    DEVICE,
    BYTES,
    GRID,
    BLOCK,
    DIMS,
    TYPES,
    SCALARS,
    PH,
    CALLED,
) = range(len(KEYS))
"""Columns; those from `PH` on are not kept."""
_CALL, SYNC, UNUSED = 2, len(LAUNCHED) + 3, -1
"""Codes of categories: those of the host, of the device, waits for events, and others."""
_AS_TEXT = -(2**62)
"""Processes and threads that are no integers are texts: this less their number."""


class EventReader:
    """A trace that is being read."""

    def __init__(self, document: Document) -> None:
        self._rows = RowReader(document, KEYS, "args")
        self.made = Kineto(document.where)
        self._document = document
        self._codes, self._trivial = Lookup(), Lookup()
        """Codes of categories, and whether calls are trivial, by their texts."""
        self._kept: list[Ints] = []
        self._count = 0
        self._calls: list[tuple[int, CollectiveCall]] = []
        """By the place among all rows that are kept."""
        self._waits: list[tuple[int, tuple[int, int, int]]] = []
        self._syncs: list[tuple[int, int, int]] = []
        """By correlation: the streams, and the device."""

    def batches(self) -> Iterator[Batch]:
        """Yield all events, some at a time."""
        return self._rows.batches()

    def take(self, batch: Batch) -> None:
        """Take some events in."""
        table = batch.table
        for row in batch.irregular.tolist():
            self._fill(table[row], batch.element(row))
        code = self._code_of(table)
        for row in np.flatnonzero(code == SYNC).tolist():
            self._take_wait(self._said(batch.element(row)))
        kept = np.flatnonzero((code != UNUSED) & (code != SYNC))
        columns = table.T[:PH].take(kept, axis=1)  # each in one piece
        wrong = np.flatnonzero((columns[TS] == ABSENT) | ((columns[DUR] < 0) & (columns[DUR] != ABSENT)))
        if len(wrong):
            number = int(columns[NAME, wrong[0]])
            name = "" if number == ABSENT else _text(self._rows.texts.text(number))
            rule = "must say when it began (ts) and how long it took (dur)"
            raise SpecError(f"{self.made.where}: event", name, rule)
        for place in np.flatnonzero(table[kept, CALLED] != ABSENT).tolist():
            self._calls.append((self._count + place, collective_call(self._said(batch.element(int(kept[place]))))))
        columns[CAT] = code[kept]
        self._kept.append(columns)
        self._count += len(kept)
        if self._count > MOST_EVENTS:
            raise SpecError(self.made.where, self._count, f"a trace may have up to {MOST_EVENTS:,} events")

    # ------------------------------------------------------------------------------------------ one event

    def _event(self, text: bytes) -> Event:
        found: Event = decoded(EVENT, text, self.made.where)
        return found

    def _said(self, text: bytes) -> CallArgs:
        found: Call = decoded(CALL, text, self.made.where)
        return found.args or CallArgs()

    def _fill(self, row: Ints, text: bytes) -> None:
        """Fill in a row by the text of its event."""
        try:
            event = self._event(text)
        except SpecError:
            if _is_used(text, self.made.where):
                raise
            row[:] = ABSENT
            return
        args, number = event.args or _NONE, self._rows.texts.number
        words = (event.ph, event.cat, event.name)
        row[PH], row[CAT], row[NAME] = (ABSENT if word is None else number(_bytes(word)) for word in words)
        row[PID], row[TID] = (self._number_or_text(each) for each in (event.pid, event.tid))
        row[TS], took = (
            time_of(bytes(event.ts)),
            time_of(b"0" if bytes(event.dur) in (b"", b"null") else bytes(event.dur)),
        )
        row[DUR] = -1 if took == ABSENT else took
        wholes = (args.function, args.correlation, args.stream, args.device, args.bytes)
        row[FUNCTION : BYTES + 1] = [whole(each) for each in wholes]
        raws = (args.grid, args.block, args.dims, args.types, args.scalars)
        row[GRID : SCALARS + 1] = [number(bytes(each)) if bytes(each) else ABSENT for each in raws]
        row[CALLED] = ABSENT if args.collective is None else number(_bytes(args.collective))

    def _number_or_text(self, value: Number) -> int:
        if isinstance(value, int) and -(10**18) < value < 10**18:
            return value
        return _AS_TEXT - int(self._rows.texts.number(_bytes(str(value))))

    def _take_wait(self, args: CallArgs) -> None:
        if args.sync_kind == "Stream Wait Event":
            streams = whole(args.stream), whole(args.waited_stream), whole(args.device)
            self._waits.append((whole(args.correlation), streams))
            if (record := whole(args.record)) >= 0:
                self.made.records[whole(args.correlation)] = record
        elif args.sync_kind in ("Stream Sync", "Stream Synchronize", "Context Sync"):
            stream = -1 if args.sync_kind == "Context Sync" else whole(args.stream)
            self._syncs.append((whole(args.correlation), stream, whole(args.device)))

    # ------------------------------------------------------------------------------------------ many events

    def _code_of(self, table: Ints) -> Ints:
        """Return a code for the category of each row."""
        texts = self._rows.texts
        code = np.full(len(table), UNUSED, np.int64)
        rows = np.flatnonzero((table[:, PH] == texts.number(b"X")) & (table[:, CAT] != ABSENT))
        code[rows] = self._codes.of(table[rows, CAT], lambda number: category_code(_text(texts.text(number))))
        calls = np.flatnonzero((code == _CALL) & (table[:, NAME] != ABSENT))
        is_trivial = self._trivial.of(
            table[calls, NAME], lambda number: _TRIVIAL.match(_text(texts.text(number))) is not None
        )
        code[calls[is_trivial == 1]] = UNUSED
        return code

    # ------------------------------------------------------------------------------------------ the trace

    def finish(self) -> Kineto:
        """Return the trace, with what the file says of the machine and the job."""
        made = self.made
        columns = np.concatenate([np.zeros((PH, 0), np.int64), *self._kept], axis=1)
        self._kept.clear()
        texts = self._rows.texts.listed()
        made.names = self._name(columns[NAME], texts)
        first = int(columns[TS].min(initial=2**62)) if columns.size else 0
        columns[TS] -= first
        columns[DUR] = np.maximum(columns[DUR], 0) + columns[TS]  # its end, from here on
        for column in (FUNCTION, CORRELATION, STREAM, DEVICE, BYTES):
            columns[column, columns[column] == ABSENT] = -1
        hosts, devices = np.flatnonzero(columns[CAT] <= _CALL), np.flatnonzero(columns[CAT] > _CALL)
        self._finish_host(columns, hosts, texts)
        self._finish_device(columns[:, devices].T, texts)
        for place, call in self._calls:
            entries, side = (hosts, "host") if columns[CAT, place] <= _CALL else (devices, "device")
            made.calls[side, int(np.searchsorted(entries, place))] = call
        _describe(made, self._document.rest, first)
        return made

    def _name(self, name: Ints, texts: list[bytes]) -> list[str]:
        """Number the names that are used; return them."""
        name[name == ABSENT] = len(texts)
        used = np.zeros(len(texts) + 1, bool)
        used[name] = True
        name[:] = (np.cumsum(used) - 1)[name]
        return [_text(texts[at]) if at < len(texts) else "" for at in np.flatnonzero(used).tolist()]

    def _finish_host(self, columns: Ints, hosts: Ints, texts: list[bytes]) -> None:
        made = self.made
        pairs, _, thread = distinct(np.stack([columns[PID][hosts], columns[TID][hosts]], axis=1))
        made.threads = [(_shown(pid, texts), _shown(tid, texts)) for pid, tid in pairs.tolist()]
        found = (columns[at][hosts] for at in (NAME, TS, DUR, CAT, FUNCTION, CORRELATION))
        name, start, end, category, function, correlation = found
        made.host = Host(name, start, end, thread, category, function, correlation)
        entries = np.flatnonzero(columns[DIMS][hosts] != ABSENT)
        alike, _, number = distinct(columns[DIMS : SCALARS + 1].take(hosts[entries], axis=1).T)
        inputs = [tuple(b"" if at == ABSENT else texts[at] for at in each) for each in alike.tolist()]
        made.inputs = dict(zip(entries.tolist(), map(inputs.__getitem__, number.tolist()), strict=True))  # type: ignore[arg-type]

    def _finish_device(self, table: Ints, texts: list[bytes]) -> None:
        made = self.made
        table[:, TID] = np.where(np.abs(table[:, TID]) < 2**31, np.maximum(table[:, TID], 0), 0)
        stream = np.where(table[:, STREAM] >= 0, table[:, STREAM], table[:, TID])
        first, step = self._device_streams(table[:, DEVICE], stream)
        stream = stream + step * np.searchsorted(first, table[:, DEVICE])
        for correlation, (waits, waited, device) in self._waits:
            shift = step * int(np.searchsorted(first, device)) if device in first else 0
            made.waits[correlation] = tuple(each + shift if each >= 0 else -1 for each in (waits, waited))  # type: ignore[assignment]
        for correlation, synced, device in self._syncs:
            shift = step * int(np.searchsorted(first, device)) if device in first else 0
            made.syncs[correlation] = synced + shift if synced >= 0 else -1
        alike, _, number = distinct(table[:, [GRID, BLOCK]])
        launches = [b"".join(b"" if at == ABSENT else texts[at] for at in each) for each in alike.tolist()]
        columns = (table[:, at].copy() for at in (NAME, TS, DUR, CORRELATION, BYTES))
        name, start, end, correlation_ids, moved = columns
        listed = [launches[at] for at in number.tolist()]
        made.device = Device(name, start, end, stream, table[:, CAT] - 3, correlation_ids, moved, listed)

    def _device_streams(self, device: Ints, stream: Ints) -> tuple[Ints, int]:
        """Return the devices, and by how much streams of one are numbered higher than those of the one before."""
        found = sorted_distinct(device)
        highest = int(stream.max(initial=0))
        if len(found) > 1 and highest > 2**31:
            raise SpecError(f"{self.made.where}: stream", highest, "must fit into 32 bits")
        return found, highest + 1 if len(found) > 1 else 0


def category_code(category: str) -> int:
    """Return the code of a category: operators, annotations, calls, what a device runs, waits, or none of them.

    >>> [category_code(each) for each in ("cpu_op", "cuda_driver", "Kernel", "python_function")]
    [0, 2, 3, -1]
    """
    lowered = category.lower().replace(" ", "_")
    known = _OLD.get(lowered, lowered) if lowered != category else category
    if known in ("cpu_op", "user_annotation"):
        return int(known == "user_annotation")
    if known.endswith(("_runtime", "_driver")):
        return _CALL
    if known in LAUNCHED:
        return 3 + LAUNCHED.index(known)
    return SYNC if known == "cuda_sync" else UNUSED


def _describe(made: Kineto, rest: dict[str, Any], first: int) -> None:
    """Set what a file says beside its events."""
    base = rest.get("baseTimeNanoseconds")
    made.base_ns = first + (base if isinstance(base, int) and abs(base) < 2**62 else 0)
    listed = rest.get("deviceProperties")
    if isinstance(listed, list) and listed and isinstance(listed[0], dict):
        made.device_name = str(listed[0].get("name", ""))
    job = rest.get("distributedInfo")
    if isinstance(job, dict):
        made.rank, made.world_size = optional(job.get("rank")), optional(job.get("world_size"))
        configured = job.get("pg_config")
        for group in configured if isinstance(configured, list) else ():
            if isinstance(group, dict) and isinstance(group.get("ranks"), list):
                made.groups[str(group.get("pg_name"))] = tuple(each for each in group["ranks"] if type(each) is int)


_NONE = Args()


def _text(content: bytes) -> str:
    return content.decode(errors="replace")


def _bytes(text: str) -> bytes:
    return text.encode(errors="replace")


def _shown(number: int, texts: list[bytes]) -> str:
    """Return the name of a process or thread."""
    if number == ABSENT:
        return "None"
    return str(number) if number > _AS_TEXT else _text(texts[_AS_TEXT - number])


def _is_used(text: bytes, where: str) -> bool:
    """Return whether an event that cannot be read is of a kind that is needed."""
    try:
        found = json.loads(text.decode(errors="replace"), strict=False)
    except (ValueError, RecursionError) as error:
        raise SpecError(where, part(text), f"is no valid JSON: {error}") from None
    if not isinstance(found, dict):
        return True
    category = found.get("cat")
    return found.get("ph") == "X" and isinstance(category, str) and category_code(category) != UNUSED
