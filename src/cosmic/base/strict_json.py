"""JSON that every program reads: NaN and infinity are null, dataclasses are objects."""

from __future__ import annotations

import json
from dataclasses import asdict, is_dataclass
from math import isfinite
from typing import Any


def dump_json(data: Any, **options: Any) -> str:
    """Return *data* as JSON, with null for NaN and infinity, and an object for each dataclass.

    >>> dump_json({"regret": [1.0, float("nan")]})
    '{"regret": [1.0, null]}'
    """
    try:
        return json.dumps(data, allow_nan=False, default=_fields_of, **options)
    except ValueError:
        return json.dumps(_replace_nonfinite(data), default=_fields_of, **options)


def _fields_of(data: Any) -> dict[str, Any]:
    if is_dataclass(data) and not isinstance(data, type):
        return asdict(data)
    raise TypeError(f"{type(data).__name__} is no JSON")


def _replace_nonfinite(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _replace_nonfinite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_replace_nonfinite(value) for value in data]
    if is_dataclass(data):
        return _replace_nonfinite(_fields_of(data))
    return None if isinstance(data, float) and not isfinite(data) else data
