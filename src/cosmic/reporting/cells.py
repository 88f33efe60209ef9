"""What stands in the cells of tables, and which columns are numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from math import isfinite
from typing import Any

NUMBER = re.compile(r"[-+−]?\d[\d,]*(\.\d+)?(e[-+]?\d+|×10[⁻⁰-⁹¹²³]+)?( ?[%×x]|( [pnµmkMGTPE])?( [\w/µ%]{1,8})?)|[-–]?")
"""A number for a reader, perhaps with its unit: '1,024', '12.3 ms', '1.5 M USD', '95 %', a dash for none."""


def cell(value: Any) -> str:
    """Return *value* for a reader: four significant digits, nothing as a dash.

    >>> cell(1234567), cell(0.012345), cell(None), cell(True), cell("tp")
    ('1,234,567', '0.01235', '–', 'yes', 'tp')
    """
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) < 10**15 else f"{Decimal(value):.3e}"  # of any size: a space may be huge
    if isinstance(value, float):
        if not isfinite(value):
            return "–"
        return f"{value:,.0f}" if abs(value) < 1e9 and (abs(value) >= 1000 or value.is_integer()) else f"{value:.4g}"
    return str(value)


def numeric(rows: Sequence[Sequence[Any]], column: int) -> bool:
    """Return whether a column reads as numbers, and is to be set right."""
    texts = [cell(row[column]) for row in rows]
    return any(text not in ("", "–") for text in texts) and all(NUMBER.fullmatch(text) for text in texts)
