"""Single events of a Kineto trace, as they are decoded one by one."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any

import msgspec

from cosmic.profiles.json_rows import ABSENT
from cosmic.profiles.kineto import CollectiveCall

MICRO = 1000
"""Nanoseconds of Kineto's unit."""
MOST_MICROS = 2 * 10**15
"""Times are below this, so that sums of them fit into 64 bits; today, 56 years after 1970, they are."""
Number = int | float | str | None


class Args(
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


class Event(msgspec.Struct, gc=False):
    """One event."""

    ph: str = ""
    cat: str | None = None
    name: str = ""
    pid: Number = None
    tid: Number = None
    ts: msgspec.Raw = msgspec.Raw()
    dur: msgspec.Raw = msgspec.Raw()
    args: Args | None = None


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


class Call(msgspec.Struct, gc=False):
    """An event that is a collective, or a wait for an event."""

    args: CallArgs | None = None


CALL = msgspec.json.Decoder(Call)
EVENT = msgspec.json.Decoder(Event)


def time_of(text: bytes) -> int:
    """Return nanoseconds, rounded from microseconds; ABSENT for what is no time.

    >>> time_of(b"12.3456"), time_of(b'"7"'), time_of(b"1e3"), time_of(b"null") == ABSENT
    (12346, 7000, 1000000, True)
    """
    try:
        value = Decimal(text.decode().strip('"'))
        if not value.is_finite() or abs(value) >= MOST_MICROS:
            return ABSENT
        return int((value * MICRO).to_integral_value())
    except (InvalidOperation, UnicodeDecodeError):
        return ABSENT


def whole(value: Number) -> int:
    """Return an id or a size; -1 where it is not stated, or is no number of 60 bits."""
    try:
        found = int(value) if value is not None else -1
    except (ValueError, OverflowError):
        return -1
    return found if abs(found) < 10**18 else -1


def optional(value: Any) -> int | None:
    """Return a rank, or how many there are; None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**31 else None


def collective_call(args: CallArgs) -> CollectiveCall:
    """Return the collective, send or receive that an event states."""
    return CollectiveCall(
        name=args.collective or "",
        sent=whole(args.sent),
        received=whole(args.received),
        dtype=args.dtype or "",
        group=args.group or "",
        group_size=whole(args.group_size),
        ranks=_ranks(args.ranks),
        source=optional(args.source),
        target=optional(args.target),
        sequence=whole(args.sequence),
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
