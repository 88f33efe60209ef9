"""JSON that every program reads: NaN and infinity are null."""

from __future__ import annotations

import json
from math import isfinite
from typing import Any


def dump_json(data: Any, **options: Any) -> str:
    """Return *data* as JSON, with null for NaN and infinity.

    >>> dump_json({"regret": [1.0, float("nan")]})
    '{"regret": [1.0, null]}'
    """
    try:
        return json.dumps(data, allow_nan=False, **options)
    except ValueError:
        return json.dumps(_replace_nonfinite(data), **options)


def _replace_nonfinite(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _replace_nonfinite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_replace_nonfinite(value) for value in data]
    return None if isinstance(data, float) and not isfinite(data) else data
