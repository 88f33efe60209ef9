"""The requests of a load: when each arrives, how long it is, of which class, and what the prefix cache has of it.

A closed loop states no arrivals: so many requests are in flight, and when one completes, the next is sent. In an open
loop the times between arrivals have a Gamma distribution (Poisson at a coefficient of variation of 1, even at 0).
Lengths are lognormal. All numbers follow from the seed, each kind from a stream of its own.

Or they are read from a trace (`read_request_trace`), CSV or JSON lines, told apart by their columns:

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
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from io import StringIO
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cosmic.base.errors import SpecError, require
from cosmic.base.files import Unreadable, read_text
from cosmic.design.serving_layer import Load, RequestClass

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

MOST_REQUESTS = 2_000_000
"""The most requests that are simulated at once."""
MOST_TOKENS = 10_000_000
"""The longest input or output of a request."""
USUAL_REQUESTS = 2_000
"""Requests of a load that states no number, or more: `USUAL_ROUNDS` of each client."""
USUAL_ROUNDS = 12
GOLDEN = 0.6180339887498949
BLOCK_TOKENS = 512
"""Tokens of a block of `Requests.blocks`, as traces of Mooncake have it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """Requests in the order of their arrival; an array element each."""

    arrival_s: Floats
    """Seconds from the first; of a closed loop zeros, as completions decide."""
    input_tokens: Ints
    output_tokens: Ints
    kind: Ints
    """Place of the class among `classes`."""
    cached_tokens: Ints
    """Input tokens that the prefix cache is known to have, wherever the request goes."""
    classes: tuple[RequestClass, ...]
    concurrency: int | None = None
    """Requests in flight, in a closed loop."""
    steady: bool = False
    """Whether they stand for a load that has lasted for long: then the first and the last are not measured."""
    haste: Floats | None = None
    """What the engine's front end takes of each, over its mean; 1 if not given. Equal requests come apart by it."""
    blocks: tuple[tuple[int, ...], ...] | None = None
    """For each request the blocks of its input, equal ones for equal prefixes: they decide what a cache has."""
    skipped: int = 0
    """Rows of a trace without tokens: requests that failed when they were traced."""

    def __post_init__(self) -> None:
        count = len(self.arrival_s)
        require(1 <= count <= MOST_REQUESTS, "requests", count, f"must be from 1 to {MOST_REQUESTS:,}")
        for name in ("input_tokens", "output_tokens"):
            lengths = getattr(self, name)
            fits = len(lengths) == count and lengths.min() >= 1 and lengths.max() <= MOST_TOKENS
            require(bool(fits), name, [int(lengths.min()), int(lengths.max())], f"must be from 1 to {MOST_TOKENS:,}")
        ordered = bool(np.all(np.diff(self.arrival_s) >= 0)) and np.isfinite(self.arrival_s).all()
        require(bool(ordered), "arrival", count, "arrivals must be finite, and in order")

    @property
    def count(self) -> int:
        """Number of requests."""
        return len(self.arrival_s)

    def scaled(self, scale: float) -> Requests:
        """Return the same requests with *scale* times as long between arrivals: 0.5 is twice the rate."""
        require(bool(np.isfinite(scale)) and scale > 0, "scale", scale, "must be positive")
        return replace(self, arrival_s=self.arrival_s * scale)

    def at_rate(self, rate: float) -> Requests:
        """Return the same requests, stretched to *rate* a second on average."""
        require(bool(np.isfinite(rate)) and rate > 0, "rate", rate, "must be positive")
        last = float(self.arrival_s[-1])
        require(last > 0, "rate", rate, "all requests of the trace arrive at once: there is no rate to change")
        return self.scaled((self.count - 1) / rate / last)

    def first(self, count: int) -> Requests:
        """Return the first *count* requests."""
        arrays = ("arrival_s", "input_tokens", "output_tokens", "kind", "cached_tokens")
        kept_arrays: dict[str, Any] = {name: getattr(self, name)[:count] for name in arrays}
        haste = None if self.haste is None else self.haste[:count]
        return replace(self, **kept_arrays, haste=haste, blocks=self.blocks and self.blocks[:count])


def draw_requests(load: Load, count: int | None = None, duration_s: float | None = None, seed: int = 0) -> Requests:
    """Return *count* requests of *load*, or those of *duration_s* of an open loop; the same for the same *seed*.

    A closed loop with rounds has as many as its clients send. If nothing is stated, as many as make means steady.

    >>> load = Load(classes=(RequestClass(isl=100, osl=10),), rate=10, arrival_cv=0)
    >>> draw_requests(load, count=3).arrival_s.tolist()
    [0.0, 0.1, 0.2]
    """
    total = _count_requests(load, count, duration_s)
    chosen = _draw_classes(load, total, _random_stream(seed, 0))
    lengths = [
        _draw_lengths(load.all_classes, chosen, name, _random_stream(seed, stream_index))
        for stream_index, name in ((1, "isl"), (2, "osl"))
    ]
    shares = np.array([request_class.prefix_hit for request_class in load.all_classes])
    arrival = (
        np.zeros(total)
        if load.rate is None
        else _draw_arrivals(load.rate, load.arrival_cv, total, _random_stream(seed, 3))
    )
    requests = Requests(
        arrival_s=arrival,
        input_tokens=lengths[0],
        output_tokens=lengths[1],
        kind=chosen,
        cached_tokens=np.minimum(np.floor(shares[chosen] * lengths[0]).astype(np.int64), lengths[0] - 1),
        classes=load.all_classes,
        concurrency=load.concurrency,
        steady=load.rounds is None,
        haste=draw_haste(total, seed),
    )
    if duration_s is None:
        return requests
    return requests.first(max(1, int(np.searchsorted(arrival, duration_s, side="right"))))


def draw_haste(count: int, seed: int) -> Floats:
    """Return numbers from 0 to 2 that are even over any part of them: multiples of the golden ratio, cut to that."""
    start = _random_stream(seed, 4).random()
    haste: Floats = 2 * np.mod(start + np.arange(count) * GOLDEN, 1.0)
    return haste


def _count_requests(load: Load, count: int | None, duration_s: float | None) -> int:
    """Return how many requests are drawn: for a duration a few more than are expected."""
    if duration_s is not None:
        require(bool(np.isfinite(duration_s)) and duration_s > 0, "duration", duration_s, "must be positive")
        require(load.rate is not None, "duration", duration_s, "a closed loop has a number of requests, no duration")
        assert load.rate is not None  # noqa: S101  as was required
        expected = load.rate * duration_s
        total = expected + 10 * (1 + load.arrival_cv) * np.sqrt(expected + 1) + 10
    elif count is not None:
        total = count
    elif load.concurrency is not None:
        total = load.concurrency * load.rounds if load.rounds else load.concurrency * USUAL_ROUNDS
        total = total if load.rounds else max(total, USUAL_REQUESTS)
    else:
        total = USUAL_REQUESTS
    require(1 <= total <= MOST_REQUESTS, "requests", total, f"must be from 1 to {MOST_REQUESTS:,}")
    return int(total)


def _random_stream(seed: int, index: int) -> np.random.Generator:
    require(isinstance(seed, int) and 0 <= seed < 2**63, "seed", seed, "must be a whole number from 0")
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, index))))


def _draw_classes(load: Load, count: int, stream: np.random.Generator) -> Ints:
    """Return the class of each request, by the shares of the classes."""
    if len(load.all_classes) == 1:
        return np.zeros(count, dtype=np.int64)
    bounds = np.cumsum([request_class.share for request_class in load.all_classes])
    classes: Ints = np.searchsorted(bounds[:-1] / bounds[-1], stream.random(count), side="right").astype(np.int64)
    return classes


def _draw_lengths(classes: tuple[RequestClass, ...], chosen: Ints, name: str, stream: np.random.Generator) -> Ints:
    """Return whole lengths, lognormal with the mean and spread of their class, of one token at least."""
    mean = np.array([getattr(class_, name) for class_ in classes])[chosen]
    spread = np.array([getattr(class_, f"{name}_cv") for class_ in classes])[chosen]
    variance = np.log1p(spread**2)
    drawn = mean * np.exp(np.sqrt(variance) * stream.standard_normal(len(chosen)) - variance / 2)
    drawn = np.where(mean > 1, drawn, 1.0)  # nothing is shorter, so nothing may be longer
    lengths: Ints = np.clip(np.rint(drawn), 1, MOST_TOKENS).astype(np.int64)
    return lengths


def _draw_arrivals(rate: float, cv: float, count: int, stream: np.random.Generator) -> Floats:
    """Return arrivals from 0; the times between them have the mean 1/rate and the stated spread."""
    if cv == 0:
        return np.arange(count) / rate
    shape = 1 / cv**2
    between = stream.standard_gamma(shape, count - 1) / shape / rate
    return np.concatenate([[0.0], np.cumsum(between)])


# ---- Traces of requests as files: CSV or JSON lines, told apart by their columns

MOST_BLOCKS = 100_000
"""The most blocks of one request."""
LATEST_S = 1e11
"""The latest time that is read: three thousand years."""


def _read_milliseconds(value: Any) -> float:
    return float(value) / 1e3


def _read_clock(value: Any) -> float:
    """Return a date and time as seconds; without a zone it is UTC."""
    moment = datetime.fromisoformat(str(value).strip())
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


@dataclass(frozen=True, slots=True)
class RequestTraceStyle:
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


TRACE_STYLES = {
    "Mooncake": RequestTraceStyle("timestamp", "input_length", "output_length", _read_milliseconds, "milliseconds"),
    "BurstGPT": RequestTraceStyle("timestamp", "request tokens", "response tokens", float, "seconds"),
    "Azure": RequestTraceStyle("timestamp", "contexttokens", "generatedtokens", _read_clock, "a date and a time"),
    "plain": RequestTraceStyle("arrival_s", "input_tokens", "output_tokens", float, "seconds"),
}
BLOCKS_COLUMN = "hash_ids"


def read_request_trace(
    path: str | Path,
    *,
    scale: float = 1.0,
    most_requests: int = MOST_REQUESTS,
    kind: RequestClass | None = None,
    context: int | None = None,
) -> Requests:
    """Return the requests of a trace, at most the first *most_requests* of them, *scale* times as far apart.

    *kind* has their limits (SLOs); its lengths and its share do not count. A request of more tokens than the *context*
    of a model is refused.
    """
    require(1 <= most_requests <= MOST_REQUESTS, "requests", most_requests, f"must be from 1 to {MOST_REQUESTS:,}")
    text = read_text(path, "trace").removeprefix("\ufeff")
    rows = _read_json_rows(text, str(path)) if text.lstrip()[:1] == "{" else _read_csv_rows(text, str(path))
    rows_read, skipped = [], 0
    for where, row in rows:
        request = _read_request(where, row)
        tokens = request[1] + request[2]
        rule = f"is longer, in and out, than the model's context of {context:,} tokens" if context else ""
        require(context is None or tokens <= context, where, f"{tokens:,} tokens", rule)
        if min(request[1:3]) == 0:
            skipped += 1
            continue
        rows_read.append(request)
        if len(rows_read) == most_requests:
            break
    require(bool(rows_read), str(path), skipped, "no row has a request with input and output tokens")
    rows_read.sort(key=lambda request: request[0])
    return _as_requests(rows_read, skipped, kind).scaled(scale)


def check_request_lengths(path: str | Path, requests: Requests, context: int | None) -> None:
    """Refuse *requests* of a trace of which one is longer than a model's *context*, and name its row."""
    tokens = requests.input_tokens + requests.output_tokens
    if context is not None and np.any(tokens > context):
        read_request_trace(path, most_requests=requests.count, context=context)


def _as_requests(rows: list[tuple[Any, ...]], skipped: int, kind: RequestClass | None) -> Requests:
    arrival = np.array([row[0] for row in rows], dtype=float)
    inputs, outputs = (np.array([row[column] for row in rows], dtype=np.int64) for column in (1, 2))
    mean = RequestClass(name="trace", isl=float(inputs.mean()), osl=float(outputs.mean()))
    return Requests(
        arrival_s=arrival - arrival[0],
        input_tokens=inputs,
        output_tokens=outputs,
        kind=np.zeros(len(rows), dtype=np.int64),
        cached_tokens=np.zeros(len(rows), dtype=np.int64),
        classes=(kind or mean,),
        haste=draw_haste(len(rows), 0),
        blocks=tuple(row[3] for row in rows) if any(row[3] for row in rows) else None,
        skipped=skipped,
    )


# ---- rows


def _read_csv_rows(text: str, path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    reader = csv.reader(StringIO(text, newline=""))
    try:
        header = [name.strip().lower() for name in next(reader, [])]
        repeated = [name for index, name in enumerate(header) if name in header[:index]]
        require(not repeated, f"{path}:1", ", ".join(repeated), "is there twice among the columns")
        _match_style(f"{path}:1", header)
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield f"{path}:{reader.line_num}", dict(zip(header, cells, strict=False))
    except csv.Error:
        raise Unreadable("trace", path, "is not a CSV file") from None


def _read_json_rows(text: str, path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
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


def _match_style(where: str, columns: Any) -> RequestTraceStyle:
    for style in TRACE_STYLES.values():
        if style.columns <= set(columns):
            return style
    styles = "; ".join(f"{name}: {', '.join(sorted(style.columns))}" for name, style in TRACE_STYLES.items())
    raise SpecError(where, ", ".join(map(str, columns)), f"has not the columns of a trace that is known ({styles})")


def _read_request(where: str, row: Mapping[str, Any]) -> tuple[float, int, int, tuple[int, ...]]:
    """Return arrival, input tokens, output tokens and blocks of a row."""
    style = _match_style(where, row)
    return (
        _read_arrival(where, row[style.arrival], style),
        _read_tokens(where, row, style.inputs),
        _read_tokens(where, row, style.outputs),
        _read_blocks(where, row.get(BLOCKS_COLUMN)),
    )


def _read_arrival(where: str, value: Any, style: RequestTraceStyle) -> float:
    rule = f"{style.arrival} must be {style.when}"
    require(not isinstance(value, bool | list | dict), where, value, rule)
    try:
        seconds = style.seconds(value)
    except (TypeError, ValueError, OverflowError, OSError):
        raise SpecError(where, value, rule) from None
    require(isfinite(seconds) and abs(seconds) <= LATEST_S, where, value, rule)
    return seconds


def _read_tokens(where: str, row: Mapping[str, Any], name: str) -> int:
    value = row[name]
    rule = f"{name} must be a whole number from 0 to {MOST_TOKENS:,}"
    require(not isinstance(value, bool), where, value, rule)
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise SpecError(where, value, rule) from None
    require(isfinite(number) and 0 <= number <= MOST_TOKENS and number == int(number), where, value, rule)
    return int(number)


def _read_blocks(where: str, value: Any) -> tuple[int, ...]:
    if isinstance(value, str):
        try:
            value = json.loads(value) if value.strip() else None
        except (ValueError, RecursionError):
            raise SpecError(where, value, f"{BLOCKS_COLUMN} must be a list of whole numbers") from None
    if value is None:
        return ()
    are_integers = isinstance(value, list) and all(
        isinstance(block, int) and not isinstance(block, bool) for block in value
    )
    require(are_integers, where, value, f"{BLOCKS_COLUMN} must be a list of whole numbers")
    require(len(value) <= MOST_BLOCKS, where, len(value), f"{BLOCKS_COLUMN} may have {MOST_BLOCKS:,} blocks at most")
    return tuple(value)
