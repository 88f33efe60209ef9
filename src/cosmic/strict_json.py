"""JSON that every program reads: NaN and infinity are null."""

from __future__ import annotations

import json
from math import isfinite
from typing import Any


def json_text(data: Any, **options: Any) -> str:
    """Return *data* as JSON, with null for NaN and infinity.

    >>> json_text({"regret": [1.0, float("nan")]})
    '{"regret": [1.0, null]}'
    """
    try:
        return json.dumps(data, allow_nan=False, **options)
    except ValueError:
        return json.dumps(_finite(data), **options)


def _finite(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(value) for value in data]
    return None if isinstance(data, float) and not isfinite(data) else data
