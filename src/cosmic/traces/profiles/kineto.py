"""Kineto traces (PyTorch's profiler): host operators, calls of the runtime, and what ran on the device, as columns.

Times are nanoseconds from the first event on. Flows, stacks of Python functions and overheads are skipped: who
launched what follows from correlation ids, and time is that of operators. `EventReader` reads the events of a file
into columns; irregular events are decoded one by one (`KinetoEvent`, `CallEvent`). `profiler_steps` finds the steps
that the profiler marks as ``ProfilerStep#N``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from cosmic.base.errors import SpecError, require
from cosmic.traces.profiles.integer_sets import CachedLookup, distinct_rows, sorted_distinct
from cosmic.traces.profiles.json_stream import (
    ABSENT,
    RAW,
    TEXT,
    TIME,
    WHOLE,
    JsonDocument,
    Key,
    RowBatch,
    RowReader,
    decode_json,
    text_beginning,
)

# ---- Kineto traces (PyTorch's profiler): host operators, calls of the runtime, and what ran on the device, as columns

KEY = "traceEvents"
LAUNCHED = ("kernel", "gpu_memcpy", "gpu_memset")
"""Categories of what runs on a device."""
Ints = npt.NDArray[np.int64]
Text = bytes


def _empty_column() -> Ints:
    return np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class CollectiveCall:
    """A collective, send or receive, as an event states it."""

    name: str
    """As PyTorch calls it: allreduce, _allgather_base, send ..."""
    sent: int
    """Elements that this rank puts in."""
    received: int
    dtype: str
    group: str
    group_size: int
    ranks: tuple[int, ...]
    """Of the group; empty where not stated."""
    source: int | None = None
    """Rank in the job, as is the target's."""
    target: int | None = None
    sequence: int = -1
    """The number of a collective in its group; -1 if it is not stated."""


@dataclass(slots=True)
class Host:
    """Operators, annotations and calls of the runtime, one entry each."""

    name: Ints = field(default_factory=_empty_column)
    """Index into `Kineto.names`."""
    start: Ints = field(default_factory=_empty_column)
    end: Ints = field(default_factory=_empty_column)
    thread: Ints = field(default_factory=_empty_column)
    """Index into `Kineto.threads`."""
    category: Ints = field(default_factory=_empty_column)
    """`OPERATOR`, `ANNOTATION` or `CALL`."""
    function: Ints = field(default_factory=_empty_column)
    """Id of PyTorch's record function: the link to an execution trace."""
    correlation: Ints = field(default_factory=_empty_column)


OPERATOR, ANNOTATION, CALL = 0, 1, 2


@dataclass(slots=True)
class Device:
    """Kernels, copies and fills, one entry each."""

    name: Ints = field(default_factory=_empty_column)
    start: Ints = field(default_factory=_empty_column)
    end: Ints = field(default_factory=_empty_column)
    stream: Ints = field(default_factory=_empty_column)
    """As CUDA numbers it; of a second device, other numbers than those of the first."""
    category: Ints = field(default_factory=_empty_column)
    """Index into `LAUNCHED`."""
    correlation: Ints = field(default_factory=_empty_column)
    bytes: Ints = field(default_factory=_empty_column)
    """Of copies and fills; -1 where not stated."""
    launch: list[Text] = field(default_factory=list)
    """Grid and block, as text."""


@dataclass(slots=True)
class Kineto:
    """One rank's trace."""

    where: str
    names: list[str] = field(default_factory=list)
    threads: list[tuple[str, str]] = field(default_factory=list)
    """Process and thread."""
    host: Host = field(default_factory=Host)
    device: Device = field(default_factory=Device)
    inputs: dict[int, tuple[bytes, bytes, bytes]] = field(default_factory=dict)
    """Shapes, types and values of an operator's inputs as texts, by its entry in `host`."""
    calls: dict[tuple[str, int], CollectiveCall] = field(default_factory=dict)
    """Collectives by "host" or "device" and the entry there."""
    waits: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Stream that waits and stream that it waits for (-1 if not stated), by the correlation id of the call."""
    syncs: dict[int, int] = field(default_factory=dict)
    """Stream that the host waited for (-1 for all), by the correlation id of the call; where events say it."""
    records: dict[int, int] = field(default_factory=dict)
    """Correlation id of the call that recorded an event, by that of the call that made a stream wait for it."""
    base_ns: int = 0
    """When the first event began, on the host's clock."""
    device_name: str = ""
    rank: int | None = None
    world_size: int | None = None
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)


def read_kineto(path: str | Path) -> Kineto:
    """Return the trace in the file at *path*, which may be compressed with gzip."""
    document = JsonDocument(Path(path), KEY)
    reader = EventReader(document)
    for batch in reader.batches():
        reader.read_batch(batch)
    require(document.found, document.where, KEY, "is not there: this is no trace of Kineto")
    return reader.finish()


# ---- Single events of a Kineto trace, as they are decoded one by one

MICRO = 1000
"""Nanoseconds of Kineto's unit."""
MOST_MICROS = 2 * 10**15
"""Times are below this, so that sums of them fit into 64 bits; today, 56 years after 1970, they are."""
Number = int | float | str | None


class EventArgs(
    msgspec.Struct,
    gc=False,
    rename={
        "function": "Record function id",
        "dims": "Input Dims",
        "types": "Input type",
        "scalars": "Concrete Inputs",
        "collective": "Collective name",
    },
):
    """The arguments of an event that become columns."""

    function: Number = None
    correlation: Number = None
    stream: Number = None
    device: Number = None
    bytes: Number = None
    grid: msgspec.Raw = msgspec.Raw()
    block: msgspec.Raw = msgspec.Raw()
    dims: msgspec.Raw = msgspec.Raw()
    types: msgspec.Raw = msgspec.Raw()
    scalars: msgspec.Raw = msgspec.Raw()
    collective: str | None = None


class KinetoEvent(msgspec.Struct, gc=False):
    """One event."""

    ph: str = ""
    cat: str | None = None
    name: str = ""
    pid: Number = None
    tid: Number = None
    ts: msgspec.Raw = msgspec.Raw()
    dur: msgspec.Raw = msgspec.Raw()
    args: EventArgs | None = None


class CallArgs(
    msgspec.Struct,
    gc=False,
    rename={
        "collective": "Collective name",
        "sent": "In msg nelems",
        "received": "Out msg nelems",
        "group_size": "Group size",
        "group": "Process Group Name",
        "ranks": "Process Group Ranks",
        "source": "Src Rank",
        "target": "Dst Rank",
        "sequence": "Seq",
        "sync_kind": "cuda_sync_kind",
        "waited_stream": "wait_on_stream",
        "record": "wait_on_cuda_event_record_corr_id",
    },
):
    """The arguments of a collective, or of a wait for an event."""

    correlation: Number = None
    stream: Number = None
    device: Number = None
    collective: str | None = None
    sent: Number = None
    received: Number = None
    dtype: str | None = None
    group: str | None = None
    group_size: Number = None
    ranks: str | list[int] | None = None
    source: Number = None
    target: Number = None
    sequence: Number = None
    sync_kind: str | None = None
    waited_stream: Number = None
    record: Number = None


class CallEvent(msgspec.Struct, gc=False):
    """An event that is a collective, or a wait for an event."""

    args: CallArgs | None = None


CALL_DECODER = msgspec.json.Decoder(CallEvent)
EVENT_DECODER = msgspec.json.Decoder(KinetoEvent)


def parse_time_ns(text: bytes) -> int:
    """Return nanoseconds, rounded from microseconds; ABSENT for what is no time.

    >>> parse_time_ns(b"12.3456"), parse_time_ns(b'"7"'), parse_time_ns(b"1e3"), parse_time_ns(b"null") == ABSENT
    (12346, 7000, 1000000, True)
    """
    try:
        value = Decimal(text.decode().strip('"'))
        if not value.is_finite() or abs(value) >= MOST_MICROS:
            return ABSENT
        return int((value * MICRO).to_integral_value())
    except (InvalidOperation, UnicodeDecodeError):
        return ABSENT


def parse_whole(value: Number) -> int:
    """Return an id or a size; -1 where it is not stated, or is no number of 60 bits."""
    try:
        number = int(value) if value is not None else -1
    except (ValueError, OverflowError):
        return -1
    return number if abs(number) < 10**18 else -1


def parse_optional(value: Any) -> int | None:
    """Return a rank, or how many there are; None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**31 else None


def collective_call(args: CallArgs) -> CollectiveCall:
    """Return the collective, send or receive that an event states."""
    return CollectiveCall(
        name=args.collective or "",
        sent=parse_whole(args.sent),
        received=parse_whole(args.received),
        dtype=args.dtype or "",
        group=args.group or "",
        group_size=parse_whole(args.group_size),
        ranks=_ranks(args.ranks),
        source=parse_optional(args.source),
        target=parse_optional(args.target),
        sequence=parse_whole(args.sequence),
    )


def _ranks(listed: str | list[int] | None) -> tuple[int, ...]:
    """Return the ranks of a group; empty where the list was cut or is not stated.

    >>> _ranks("[0, 1, 5]"), _ranks("[0, 1, ..., 7]"), _ranks(None)
    ((0, 1, 5), (), ())
    """
    return _listed_ranks(listed) if isinstance(listed, str) else tuple(listed or ())


@lru_cache(256)
def _listed_ranks(listed: str) -> tuple[int, ...]:
    words = [word.strip() for word in listed.strip("[] ").split(",") if word.strip()]
    return tuple(map(int, words)) if all(word.isdecimal() and len(word) < 10 for word in words) else ()


# ---- Read the events of a Kineto trace into columns

MOST_EVENTS = 2 * 10**7
"""The most events of hosts and devices that a trace may have."""
_OLD_CATEGORIES = {"operator": "cpu_op", "runtime": "cuda_runtime", "memcpy": "gpu_memcpy", "memset": "gpu_memset"}
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
_FIRST_LAUNCHED = CALL + 1
SYNC, UNUSED = _FIRST_LAUNCHED + len(LAUNCHED), -1
"""Codes of categories: after those of the host come those of `LAUNCHED`, then waits for events; others are unused."""
_AS_TEXT = -(2**62)
"""Processes and threads that are no integers are texts: this less their number."""


class EventReader:
    """A trace that is being read."""

    def __init__(self, document: JsonDocument) -> None:
        self._rows = RowReader(document, KEYS, "args")
        self.made = Kineto(document.where)
        self._document = document
        self._codes, self._trivial = CachedLookup(), CachedLookup()
        """Codes of categories, and whether calls are trivial, by their texts."""
        self._kept: list[Ints] = []
        """Columns of the events that become entries, a block for each batch."""
        self._count = 0
        self._calls: list[tuple[int, CollectiveCall]] = []
        """By the place among all rows that are kept."""
        self._waits: list[tuple[int, tuple[int, int, int]]] = []
        self._syncs: list[tuple[int, int, int]] = []
        """By correlation: the streams, and the device."""

    def batches(self) -> Iterator[RowBatch]:
        """Yield all events, some at a time."""
        return self._rows.batches()

    def read_batch(self, batch: RowBatch) -> None:
        """Take some events in."""
        table = batch.table
        for row in batch.irregular.tolist():
            self._fill_row(table[row], batch.element(row))
        code = self._code_of(table)
        for row in np.flatnonzero(code == SYNC).tolist():
            self._add_wait(self._decode_call(batch.element(row)))
        used = np.flatnonzero((code != UNUSED) & (code != SYNC))
        columns = table.T[:PH].take(used, axis=1)  # each in one piece
        wrong = np.flatnonzero((columns[TS] == ABSENT) | ((columns[DUR] < 0) & (columns[DUR] != ABSENT)))
        if len(wrong):
            number = int(columns[NAME, wrong[0]])
            name = "" if number == ABSENT else _text(self._rows.texts.text(number))
            rule = "must say when it began (ts) and how long it took (dur)"
            raise SpecError(f"{self.made.where}: event", name, rule)
        for index in np.flatnonzero(table[used, CALLED] != ABSENT).tolist():
            self._calls.append(
                (self._count + index, collective_call(self._decode_call(batch.element(int(used[index])))))
            )
        columns[CAT] = code[used]
        self._kept.append(columns)
        self._count += len(used)
        if self._count > MOST_EVENTS:
            raise SpecError(self.made.where, self._count, f"a trace may have up to {MOST_EVENTS:,} events")

    # ------------------------------------------------------------------------------------------ one event

    def _decode_event(self, text: bytes) -> KinetoEvent:
        event: KinetoEvent = decode_json(EVENT_DECODER, text, self.made.where)
        return event

    def _decode_call(self, text: bytes) -> CallArgs:
        event: CallEvent = decode_json(CALL_DECODER, text, self.made.where)
        return event.args or CallArgs()

    def _fill_row(self, row: Ints, text: bytes) -> None:
        """Fill in a row by the text of its event."""
        try:
            event = self._decode_event(text)
        except SpecError:
            if _is_used(text, self.made.where):
                raise
            row[:] = ABSENT
            return
        args, number = event.args or _NO_ARGS, self._rows.texts.number
        words = (event.ph, event.cat, event.name)
        row[PH], row[CAT], row[NAME] = (ABSENT if word is None else number(_bytes(word)) for word in words)
        row[PID], row[TID] = (self._number_or_text(identifier) for identifier in (event.pid, event.tid))
        row[TS], duration = (
            parse_time_ns(bytes(event.ts)),
            parse_time_ns(b"0" if bytes(event.dur) in (b"", b"null") else bytes(event.dur)),
        )
        row[DUR] = -1 if duration == ABSENT else duration
        wholes = (args.function, args.correlation, args.stream, args.device, args.bytes)
        row[FUNCTION : BYTES + 1] = [parse_whole(value) for value in wholes]
        raws = (args.grid, args.block, args.dims, args.types, args.scalars)
        row[GRID : SCALARS + 1] = [number(bytes(raw)) if bytes(raw) else ABSENT for raw in raws]
        row[CALLED] = ABSENT if args.collective is None else number(_bytes(args.collective))

    def _number_or_text(self, value: Number) -> int:
        if isinstance(value, int) and -(10**18) < value < 10**18:
            return value
        return _AS_TEXT - int(self._rows.texts.number(_bytes(str(value))))

    def _add_wait(self, args: CallArgs) -> None:
        if args.sync_kind == "Stream Wait Event":
            streams = parse_whole(args.stream), parse_whole(args.waited_stream), parse_whole(args.device)
            self._waits.append((parse_whole(args.correlation), streams))
            if (record := parse_whole(args.record)) >= 0:
                self.made.records[parse_whole(args.correlation)] = record
        elif args.sync_kind in ("Stream Sync", "Stream Synchronize", "Context Sync"):
            stream = -1 if args.sync_kind == "Context Sync" else parse_whole(args.stream)
            self._syncs.append((parse_whole(args.correlation), stream, parse_whole(args.device)))

    # ------------------------------------------------------------------------------------------ many events

    def _code_of(self, table: Ints) -> Ints:
        """Return a code for the category of each row."""
        texts = self._rows.texts
        code = np.full(len(table), UNUSED, np.int64)
        rows = np.flatnonzero((table[:, PH] == texts.number(b"X")) & (table[:, CAT] != ABSENT))
        code[rows] = self._codes.look_up(table[rows, CAT], lambda number: category_code(_text(texts.text(number))))
        calls = np.flatnonzero((code == CALL) & (table[:, NAME] != ABSENT))
        is_trivial = self._trivial.look_up(
            table[calls, NAME], lambda number: _TRIVIAL.match(_text(texts.text(number))) is not None
        )
        code[calls[is_trivial == 1]] = UNUSED
        return code

    # ------------------------------------------------------------------------------------------ the trace

    def finish(self) -> Kineto:
        """Return the trace, with what the file says of the machine and the job."""
        trace = self.made
        columns = np.concatenate([np.zeros((PH, 0), np.int64), *self._kept], axis=1)
        self._kept.clear()
        texts = self._rows.texts.listed()
        trace.names = self._name(columns[NAME], texts)
        first = int(columns[TS].min(initial=2**62)) if columns.size else 0
        columns[TS] -= first
        columns[DUR] = np.maximum(columns[DUR], 0) + columns[TS]  # its end, from here on
        for column in (FUNCTION, CORRELATION, STREAM, DEVICE, BYTES):
            columns[column, columns[column] == ABSENT] = -1
        hosts, devices = np.flatnonzero(columns[CAT] <= CALL), np.flatnonzero(columns[CAT] > CALL)
        self._finish_host(columns, hosts, texts)
        self._finish_device(columns[:, devices].T, texts)
        for row, call in self._calls:
            entries, side = (hosts, "host") if columns[CAT, row] <= CALL else (devices, "device")
            trace.calls[side, int(np.searchsorted(entries, row))] = call
        # What a file says beside its events
        base = self._document.rest.get("baseTimeNanoseconds")
        trace.base_ns = first + (base if isinstance(base, int) and abs(base) < 2**62 else 0)
        listed = self._document.rest.get("deviceProperties")
        if isinstance(listed, list) and listed and isinstance(listed[0], dict):
            trace.device_name = str(listed[0].get("name", ""))
        job = self._document.rest.get("distributedInfo")
        if isinstance(job, dict):
            trace.rank, trace.world_size = parse_optional(job.get("rank")), parse_optional(job.get("world_size"))
            configured = job.get("pg_config")
            for group in configured if isinstance(configured, list) else ():
                if isinstance(group, dict) and isinstance(group.get("ranks"), list):
                    trace.groups[str(group.get("pg_name"))] = tuple(
                        member for member in group["ranks"] if type(member) is int
                    )
        return trace

    def _name(self, name: Ints, texts: list[bytes]) -> list[str]:
        """Number the names that are used; return them."""
        name[name == ABSENT] = len(texts)
        used = np.zeros(len(texts) + 1, bool)
        used[name] = True
        name[:] = (np.cumsum(used) - 1)[name]
        return [_text(texts[number]) if number < len(texts) else "" for number in np.flatnonzero(used).tolist()]

    def _finish_host(self, columns: Ints, hosts: Ints, texts: list[bytes]) -> None:
        trace = self.made
        pairs, _, thread = distinct_rows(np.stack([columns[PID][hosts], columns[TID][hosts]], axis=1))
        trace.threads = [(_identifier_text(pid, texts), _identifier_text(tid, texts)) for pid, tid in pairs.tolist()]
        selected = (columns[column][hosts] for column in (NAME, TS, DUR, CAT, FUNCTION, CORRELATION))
        name, start, end, category, function, correlation = selected
        trace.host = Host(name, start, end, thread, category, function, correlation)
        entries = np.flatnonzero(columns[DIMS][hosts] != ABSENT)
        distinct, _, number = distinct_rows(columns[DIMS : SCALARS + 1].take(hosts[entries], axis=1).T)
        inputs = [tuple(b"" if number == ABSENT else texts[number] for number in row) for row in distinct.tolist()]
        trace.inputs = dict(zip(entries.tolist(), map(inputs.__getitem__, number.tolist()), strict=True))  # type: ignore[arg-type]

    def _finish_device(self, table: Ints, texts: list[bytes]) -> None:
        trace = self.made
        table[:, TID] = np.where(np.abs(table[:, TID]) < 2**31, np.maximum(table[:, TID], 0), 0)
        stream = np.where(table[:, STREAM] >= 0, table[:, STREAM], table[:, TID])
        first, step = self._device_streams(table[:, DEVICE], stream)
        stream = stream + step * np.searchsorted(first, table[:, DEVICE])
        for correlation, (waits, waited, device) in self._waits:
            shift = step * int(np.searchsorted(first, device)) if device in first else 0
            trace.waits[correlation] = tuple(number + shift if number >= 0 else -1 for number in (waits, waited))  # type: ignore[assignment]
        for correlation, synced, device in self._syncs:
            shift = step * int(np.searchsorted(first, device)) if device in first else 0
            trace.syncs[correlation] = synced + shift if synced >= 0 else -1
        distinct, _, number = distinct_rows(table[:, [GRID, BLOCK]])
        launches = [b"".join(b"" if text == ABSENT else texts[text] for text in row) for row in distinct.tolist()]
        columns = (table[:, column].copy() for column in (NAME, TS, DUR, CORRELATION, BYTES))
        name, start, end, correlation_ids, moved = columns
        listed = [launches[code] for code in number.tolist()]
        trace.device = Device(name, start, end, stream, table[:, CAT] - _FIRST_LAUNCHED, correlation_ids, moved, listed)

    def _device_streams(self, device: Ints, stream: Ints) -> tuple[Ints, int]:
        """Return the devices, and by how much streams of one are numbered higher than those of the one before."""
        devices = sorted_distinct(device)
        highest = int(stream.max(initial=0))
        if len(devices) > 1 and highest > 2**31:
            raise SpecError(f"{self.made.where}: stream", highest, "must fit into 32 bits")
        return devices, highest + 1 if len(devices) > 1 else 0


def category_code(category: str) -> int:
    """Return the code of a category: operators, annotations, calls, what a device runs, waits, or none of them.

    >>> [category_code(each) for each in ("cpu_op", "cuda_driver", "Kernel", "python_function")]
    [0, 2, 3, -1]
    """
    lowered = category.lower().replace(" ", "_")
    current = _OLD_CATEGORIES.get(lowered, lowered) if lowered != category else category
    if current in ("cpu_op", "user_annotation"):
        return int(current == "user_annotation")
    if current.endswith(("_runtime", "_driver")):
        return CALL
    if current in LAUNCHED:
        return _FIRST_LAUNCHED + LAUNCHED.index(current)
    return SYNC if current == "cuda_sync" else UNUSED


_NO_ARGS = EventArgs()


def _text(content: bytes) -> str:
    return content.decode(errors="replace")


def _bytes(text: str) -> bytes:
    return text.encode(errors="replace")


def _identifier_text(number: int, texts: list[bytes]) -> str:
    """Return the name of a process or thread."""
    if number == ABSENT:
        return "None"
    return str(number) if number > _AS_TEXT else _text(texts[_AS_TEXT - number])


def _is_used(text: bytes, where: str) -> bool:
    """Return whether an event that cannot be read is of a kind that is needed."""
    try:
        event = json.loads(text.decode(errors="replace"), strict=False)
    except (ValueError, RecursionError) as error:
        raise SpecError(where, text_beginning(text), f"is no valid JSON: {error}") from None
    if not isinstance(event, dict):
        return True
    category = event.get("cat")
    return event.get("ph") == "X" and isinstance(category, str) and category_code(category) != UNUSED


# ---- The steps that a profile recorded: what PyTorch's profiler marks as ``ProfilerStep#N``

MARK = re.compile(r"ProfilerStep#(\d{1,18})")


@dataclass(frozen=True, slots=True)
class ProfilerStep:
    """A step, in nanoseconds."""

    number: int
    start: int
    end: int


def profiler_steps(trace: Kineto) -> list[ProfilerStep]:
    """Return the steps of *trace*, in their order; a mark that does not say how long it took is none."""
    host = trace.host
    marked = {index: int(match[1]) for index, name in enumerate(trace.names) if (match := MARK.fullmatch(name))}
    entries = np.flatnonzero(np.isin(host.name, list(marked)) & (host.category == ANNOTATION)).tolist()
    steps = [
        ProfilerStep(marked[int(host.name[index])], int(host.start[index]), int(host.end[index])) for index in entries
    ]
    return sorted((step for step in steps if step.end > step.start), key=lambda step: step.start)


def step_window(steps: Sequence[ProfilerStep], wanted: int | None, where: str) -> tuple[int, int] | None:
    """Return from when to when nodes are kept: all steps, or the *wanted* one; None if no step is marked."""
    if wanted is None:
        return (steps[0].start, max(step.end for step in steps)) if steps else None
    for step in steps:
        if step.number == wanted:
            return step.start, step.end
    marked = ", ".join(f"ProfilerStep#{step.number}" for step in steps) or "no steps at all"
    raise SpecError(f"{where}: step", wanted, f"is not recorded; marked are {marked}")
