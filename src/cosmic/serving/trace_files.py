"""Traces of requests as files: CSV or JSON lines, told apart by their columns.

Mooncake   {"timestamp": ms, "input_length", "output_length", "hash_ids": blocks of 512 tokens}, a line each
BurstGPT   Timestamp [s], Model, Request tokens, Response tokens, Total tokens, Log Type
Azure      TIMESTAMP [a date and a time], ContextTokens, GeneratedTokens
plain      arrival_s, input_tokens, output_tokens

Requests without input or output tokens failed when they were traced; they are left out and counted.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from io import StringIO
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from cosmic.design.serving import RequestClass
from cosmic.errors import SpecError, require
from cosmic.files import Unreadable, read_text
from cosmic.serving.requests import MOST_REQUESTS, MOST_TOKENS, Requests, haste_of

MOST_BLOCKS = 100_000
"""The most blocks of one request."""
LATEST_S = 1e11
"""The latest time that is read: three thousand years."""


def _milliseconds(value: Any) -> float:
    return float(value) / 1e3


def _clock(value: Any) -> float:
    """Return a date and time as seconds; without a zone it is UTC."""
    found = datetime.fromisoformat(str(value).strip())
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


@dataclass(frozen=True, slots=True)
class Style:
    """The columns of a kind of trace, in lower case."""

    arrival: str
    inputs: str
    outputs: str
    seconds: Callable[[Any], float]
    when: str
    """What a time must be."""

    @property
    def columns(self) -> frozenset[str]:
        """What a trace must have."""
        return frozenset((self.arrival, self.inputs, self.outputs))


STYLES = {
    "Mooncake": Style("timestamp", "input_length", "output_length", _milliseconds, "milliseconds"),
    "BurstGPT": Style("timestamp", "request tokens", "response tokens", float, "seconds"),
    "Azure": Style("timestamp", "contexttokens", "generatedtokens", _clock, "a date and a time"),
    "plain": Style("arrival_s", "input_tokens", "output_tokens", float, "seconds"),
}
BLOCKS = "hash_ids"


def read_trace(
    path: str | Path,
    *,
    scale: float = 1.0,
    most: int = MOST_REQUESTS,
    kind: RequestClass | None = None,
    context: int | None = None,
) -> Requests:
    """Return the requests of a trace, at most the first *most* of them, *scale* times as far apart.

    *kind* has their limits (SLOs); its lengths and its share do not count. A request of more tokens than the *context*
    of a model is refused.
    """
    require(1 <= most <= MOST_REQUESTS, "requests", most, f"must be from 1 to {MOST_REQUESTS:,}")
    text = read_text(path, "trace").removeprefix("\ufeff")
    rows = _json_rows(text, str(path)) if text.lstrip()[:1] == "{" else _csv_rows(text, str(path))
    found, skipped = [], 0
    for where, row in rows:
        request = _request(where, row)
        tokens = request[1] + request[2]
        rule = f"is longer, in and out, than the model's context of {context:,} tokens" if context else ""
        require(context is None or tokens <= context, where, f"{tokens:,} tokens", rule)
        if min(request[1:3]) == 0:
            skipped += 1
            continue
        found.append(request)
        if len(found) == most:
            break
    require(bool(found), str(path), skipped, "no row has a request with input and output tokens")
    found.sort(key=lambda each: each[0])
    return _as_requests(found, skipped, kind).scaled(scale)


def check_lengths(path: str | Path, requests: Requests, context: int | None) -> None:
    """Refuse *requests* of a trace of which one is longer than a model's *context*, and name its row."""
    tokens = requests.input_tokens + requests.output_tokens
    if context is not None and np.any(tokens > context):
        read_trace(path, most=requests.count, context=context)


def _as_requests(found: list[tuple[Any, ...]], skipped: int, kind: RequestClass | None) -> Requests:
    arrival = np.array([each[0] for each in found], dtype=float)
    inputs, outputs = (np.array([each[place] for each in found], dtype=np.int64) for place in (1, 2))
    mean = RequestClass(name="trace", isl=float(inputs.mean()), osl=float(outputs.mean()))
    return Requests(
        arrival_s=arrival - arrival[0],
        input_tokens=inputs,
        output_tokens=outputs,
        kind=np.zeros(len(found), dtype=np.int64),
        cached_tokens=np.zeros(len(found), dtype=np.int64),
        classes=(kind or mean,),
        haste=haste_of(len(found), 0),
        blocks=tuple(each[3] for each in found) if any(each[3] for each in found) else None,
        skipped=skipped,
    )


# ------------------------------------------------------------------------------------------------------ rows


def _csv_rows(text: str, path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    reader = csv.reader(StringIO(text, newline=""))
    try:
        header = [each.strip().lower() for each in next(reader, [])]
        twice = [each for place, each in enumerate(header) if each in header[:place]]
        require(not twice, f"{path}:1", ", ".join(twice), "is there twice among the columns")
        _style(f"{path}:1", header)
        for cells in reader:
            if any(each.strip() for each in cells):
                yield f"{path}:{reader.line_num}", dict(zip(header, cells, strict=False))
    except csv.Error:
        raise Unreadable("trace", path, "is not a CSV file") from None


def _json_rows(text: str, path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            raise SpecError(where, line, "must be one JSON object") from None
        require(isinstance(row, dict), where, row, "must be one JSON object")
        yield where, {str(key).strip().lower(): value for key, value in row.items()}


def _style(where: str, columns: Any) -> Style:
    for style in STYLES.values():
        if style.columns <= set(columns):
            return style
    known = "; ".join(f"{name}: {', '.join(sorted(style.columns))}" for name, style in STYLES.items())
    raise SpecError(where, ", ".join(map(str, columns)), f"has not the columns of a trace that is known ({known})")


def _request(where: str, row: Mapping[str, Any]) -> tuple[float, int, int, tuple[int, ...]]:
    """Return arrival, input tokens, output tokens and blocks of a row."""
    style = _style(where, row)
    return (
        _arrival(where, row[style.arrival], style),
        _tokens(where, row, style.inputs),
        _tokens(where, row, style.outputs),
        _blocks(where, row.get(BLOCKS)),
    )


def _arrival(where: str, value: Any, style: Style) -> float:
    rule = f"{style.arrival} must be {style.when}"
    require(not isinstance(value, bool | list | dict), where, value, rule)
    try:
        found = style.seconds(value)
    except (TypeError, ValueError, OverflowError, OSError):
        raise SpecError(where, value, rule) from None
    require(isfinite(found) and abs(found) <= LATEST_S, where, value, rule)
    return found


def _tokens(where: str, row: Mapping[str, Any], name: str) -> int:
    value = row[name]
    rule = f"{name} must be a whole number from 0 to {MOST_TOKENS:,}"
    require(not isinstance(value, bool), where, value, rule)
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise SpecError(where, value, rule) from None
    require(isfinite(number) and 0 <= number <= MOST_TOKENS and number == int(number), where, value, rule)
    return int(number)


def _blocks(where: str, value: Any) -> tuple[int, ...]:
    if isinstance(value, str):
        try:
            value = json.loads(value) if value.strip() else None
        except (ValueError, RecursionError):
            raise SpecError(where, value, f"{BLOCKS} must be a list of whole numbers") from None
    if value is None:
        return ()
    whole = isinstance(value, list) and all(isinstance(each, int) and not isinstance(each, bool) for each in value)
    require(whole, where, value, f"{BLOCKS} must be a list of whole numbers")
    require(len(value) <= MOST_BLOCKS, where, len(value), f"{BLOCKS} may have {MOST_BLOCKS:,} blocks at most")
    return tuple(value)
