"""Requests read strictly, and refused in one sentence.

Bodies and queries are valid JSON only, with values of the right type. Errors are answered with an HTTP status and one
sentence, without paths or stack traces.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from cosmic.base.errors import BackendError, CosmicError, SpecError, UnknownName, one_line, require

BAD_REQUEST, FORBIDDEN, NOT_FOUND, BAD_METHOD, CONFLICT = 400, 403, 404, 405, 409
TOO_LARGE, LONG_ADDRESS, BAD_TYPE, BAD_VALUE, TOO_MANY, LONG_HEADERS, BUSY = 413, 414, 415, 422, 429, 431, 503
PACKAGE = Path(__file__).parents[2]
LONGEST_SENTENCE = 400
"""Characters of a sentence, which quotes the request."""


class Refusal(CosmicError):  # noqa: N818  its base says that it is an error
    """A request that is refused.

    >>> print(Refusal(404, "study", "../x", "no such study"))
    study = '../x': no such study
    """

    def __init__(self, status: int, where: str, value: Any, rule: str) -> None:
        super().__init__(str(SpecError(where, value, rule)))
        self.status = status


def status_of(error: CosmicError) -> int:
    """Return the HTTP status of an error: whether the request or the state of a study is at fault."""
    if isinstance(error, Refusal):
        return error.status
    return CONFLICT if isinstance(error, BackendError) else BAD_VALUE


def error_sentence(error: CosmicError, root: Path) -> str:
    """Return the sentence of an error without paths of this machine: a study is known by its name.

    >>> error_sentence(CosmicError("/somewhere/runs/demo: its trials are damaged"), Path("/somewhere/runs"))
    'demo: its trials are damaged'
    """
    text = str(error)
    for folder in (root, PACKAGE, Path.cwd(), Path.home()):
        if len(folder.parts) > 1:  # a root of "/" would take every slash
            text = text.replace(f"{folder}/", "").replace(str(folder), "the directory")
    text = one_line(text)
    return text if len(text) <= LONGEST_SENTENCE else f"{text[: LONGEST_SENTENCE - 1]}…"


DEEPEST = 24
MOST_ITEMS = 10_000
_SURROGATE = re.compile("[\ud800-\udfff]")


def parse_body(content: bytes) -> dict[str, Any]:
    """Return the JSON object of a request's body.

    >>> parse_body(b'{"trials": 1e999}')
    Traceback (most recent call last):
    cosmic.report.live.request_checks.Refusal: body = '1e999': is too large
    """
    try:
        body = json.loads(
            content.decode(),
            object_pairs_hook=_refuse_repeated_keys,
            parse_constant=_refuse_constant,
            parse_float=_read_finite,
            parse_int=_read_whole,
        )
    except (ValueError, RecursionError):
        raise Refusal(BAD_REQUEST, "body", content[:40], "is no valid JSON") from None
    if not isinstance(body, dict):
        raise Refusal(BAD_REQUEST, "body", body, "must be a JSON object")
    _check_nesting(body, DEEPEST)
    return body


def _refuse_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise Refusal(BAD_REQUEST, "body", "", "has a key twice")
    return members


def _refuse_constant(name: str) -> NoReturn:
    raise Refusal(BAD_REQUEST, "body", name, "is no JSON")


def _read_finite(digits: str) -> float:
    value = float(digits)
    if value in (float("inf"), float("-inf")):
        raise Refusal(BAD_REQUEST, "body", digits, "is too large")
    return value


def _read_whole(digits: str) -> int:
    if len(digits) > 20:
        raise Refusal(BAD_REQUEST, "body", digits, "is too large")
    return int(digits)


def _check_nesting(value: Any, depth: int) -> None:
    """Refuse deep nesting, and half surrogate pairs, which cannot be encoded."""
    if depth == 0:
        raise Refusal(BAD_REQUEST, "body", "", f"is nested more than {DEEPEST} deep")
    if isinstance(value, str) and _SURROGATE.search(value):
        raise Refusal(BAD_REQUEST, "body", value, "has half of a surrogate pair in it")
    if isinstance(value, dict):
        for key, inner in value.items():
            _check_nesting(key, depth)
            _check_nesting(inner, depth - 1)
    if isinstance(value, list):
        for inner in value:
            _check_nesting(inner, depth - 1)


# ---- values


def check_keys(body: Mapping[str, Any], allowed: Sequence[str]) -> None:
    """Refuse unknown keys."""
    for key in body:
        if key not in allowed:
            raise UnknownName.key(key, body[key], allowed)


def read_text_field(body: Mapping[str, Any], key: str, default: str | None = None) -> str:
    """Return a text; required if there is no default."""
    value = body.get(key, default)
    if not isinstance(value, str) or not 0 < len(value) <= 200 or not value.isprintable():
        raise SpecError(key, value, "must be a short text")
    return value


def read_integer(body: Mapping[str, Any], key: str, default: int | None, bounds: tuple[int, int]) -> int:
    """Return a whole number within bounds."""
    value, (low, high) = body.get(key, default), bounds
    if type(value) is not int or not low <= value <= high:
        raise SpecError(key, value, f"must be a whole number from {low:,} to {high:,}")
    return value


def read_texts(body: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """Return a list of texts; empty if the key is missing."""
    texts = read_items(body.get(key, []), key)
    for value in texts:
        if not isinstance(value, str) or not 0 < len(value) <= 200:
            raise SpecError(key, value, "must be a short text")
    return tuple(texts)


def read_items(value: Any, where: str) -> list[Any]:
    """Return *value* if it is a list."""
    if not isinstance(value, list) or len(value) > MOST_ITEMS:
        raise SpecError(where, value, f"must be a list of at most {MOST_ITEMS:,}")
    return value


def read_mapping(body: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return a mapping; empty if the key is missing."""
    value = body.get(key, {})
    if not isinstance(value, dict) or len(value) > MOST_ITEMS:
        raise SpecError(key, value, "must map names to values")
    return value


# ---- queries


def read_query(pairs: Iterable[tuple[str, str]], allowed: Sequence[str], several: str = "") -> dict[str, list[str]]:
    """Return the values of a query by key; each key once, except *several*; unknown ones are refused."""
    values: dict[str, list[str]] = {}
    for key, value in pairs:
        if key not in allowed:
            raise UnknownName.key(key, value, allowed)
        require(key == several or key not in values, key, value, "is there twice")
        values.setdefault(key, []).append(value)
    return values


def read_number(digits: str, where: str) -> int:
    """Return a whole number of an address.

    >>> read_number("12", "after")
    12
    """
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 12):
        raise SpecError(where, digits, "must be a whole number from 0 on")
    return int(digits)
