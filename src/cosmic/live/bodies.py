"""Bodies and queries of requests, read strictly: valid JSON only, and values of the right type."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

from cosmic.errors import SpecError, UnknownName, require
from cosmic.live.refusals import BAD_REQUEST, Refusal

DEEPEST = 24
MOST_ITEMS = 10_000
_SURROGATE = re.compile("[\ud800-\udfff]")


def parse(content: bytes) -> dict[str, Any]:
    """Return the JSON object of a request's body.

    >>> parse(b'{"trials": 1e999}')
    Traceback (most recent call last):
    cosmic.live.refusals.Refusal: body = '1e999': is too large
    """
    try:
        found = json.loads(
            content.decode(),
            object_pairs_hook=_once,
            parse_constant=_no_constant,
            parse_float=_finite,
            parse_int=_whole,
        )
    except (ValueError, RecursionError):
        raise Refusal(BAD_REQUEST, "body", content[:40], "is no valid JSON") from None
    if not isinstance(found, dict):
        raise Refusal(BAD_REQUEST, "body", found, "must be a JSON object")
    _check(found, DEEPEST)
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise Refusal(BAD_REQUEST, "body", "", "has a key twice")
    return found


def _no_constant(name: str) -> NoReturn:
    raise Refusal(BAD_REQUEST, "body", name, "is no JSON")


def _finite(digits: str) -> float:
    value = float(digits)
    if value in (float("inf"), float("-inf")):
        raise Refusal(BAD_REQUEST, "body", digits, "is too large")
    return value


def _whole(digits: str) -> int:
    if len(digits) > 20:
        raise Refusal(BAD_REQUEST, "body", digits, "is too large")
    return int(digits)


def _check(value: Any, depth: int) -> None:
    """Refuse deep nesting, and half surrogate pairs, which cannot be encoded."""
    if depth == 0:
        raise Refusal(BAD_REQUEST, "body", "", f"is nested more than {DEEPEST} deep")
    if isinstance(value, str) and _SURROGATE.search(value):
        raise Refusal(BAD_REQUEST, "body", value, "has half of a surrogate pair in it")
    if isinstance(value, dict):
        for key, inner in value.items():
            _check(key, depth)
            _check(inner, depth - 1)
    if isinstance(value, list):
        for inner in value:
            _check(inner, depth - 1)


# ----------------------------------------------------------------------------------------------------- values


def only(body: Mapping[str, Any], known: Sequence[str]) -> None:
    """Refuse unknown keys."""
    for key in body:
        if key not in known:
            raise UnknownName.key(key, body[key], known)


def text(body: Mapping[str, Any], key: str, default: str | None = None) -> str:
    """Return a text; required if there is no default."""
    value = body.get(key, default)
    if not isinstance(value, str) or not 0 < len(value) <= 200 or not value.isprintable():
        raise SpecError(key, value, "must be a short text")
    return value


def integer(body: Mapping[str, Any], key: str, default: int | None, bounds: tuple[int, int]) -> int:
    """Return a whole number within bounds."""
    value, (low, high) = body.get(key, default), bounds
    if type(value) is not int or not low <= value <= high:
        raise SpecError(key, value, f"must be a whole number from {low:,} to {high:,}")
    return value


def texts(body: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """Return a list of texts; empty if the key is missing."""
    found = items(body.get(key, []), key)
    for value in found:
        if not isinstance(value, str) or not 0 < len(value) <= 200:
            raise SpecError(key, value, "must be a short text")
    return tuple(found)


def items(value: Any, where: str) -> list[Any]:
    """Return *value* if it is a list."""
    if not isinstance(value, list) or len(value) > MOST_ITEMS:
        raise SpecError(where, value, f"must be a list of at most {MOST_ITEMS:,}")
    return value


def mapping(body: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return a mapping; empty if the key is missing."""
    value = body.get(key, {})
    if not isinstance(value, dict) or len(value) > MOST_ITEMS:
        raise SpecError(key, value, "must map names to values")
    return value


# ---------------------------------------------------------------------------------------------------- queries


def query(pairs: Iterable[tuple[str, str]], known: Sequence[str], several: str = "") -> dict[str, list[str]]:
    """Return the values of a query by key; each key once, except *several*; unknown ones are refused."""
    found: dict[str, list[str]] = {}
    for key, value in pairs:
        if key not in known:
            raise UnknownName.key(key, value, known)
        require(key == several or key not in found, key, value, "is there twice")
        found.setdefault(key, []).append(value)
    return found


def number(digits: str, where: str) -> int:
    """Return a whole number of an address.

    >>> number("12", "after")
    12
    """
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 12):
        raise SpecError(where, digits, "must be a whole number from 0 on")
    return int(digits)
