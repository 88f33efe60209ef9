"""Cells of tables, and which columns hold numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from math import isfinite
from typing import Any

NUMBER = re.compile(r"[-+−]?\d[\d,]*(\.\d+)?(e[-+]?\d+|×10[⁻⁰-⁹¹²³]+)?( ?[%×x]|( [pnµmkMGTPE])?( [\w/µ%]{1,8})?)|[-–]?")
"""A number as tables show it, perhaps with its unit: '1,024', '12.3 ms', '1.5 M USD', '95 %', a dash for none."""


def cell(value: Any) -> str:
    """Return *value* as text: four significant digits, a dash for None.

    >>> cell(1234567), cell(0.012345), cell(None), cell(True), cell("tp")
    ('1,234,567', '0.01235', '–', 'yes', 'tp')
    """
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) < 10**15 else f"{Decimal(value):.3e}"  # sizes of spaces exceed a float
    if isinstance(value, float):
        if not isfinite(value):
            return "–"
        return f"{value:,.0f}" if abs(value) < 1e9 and (abs(value) >= 1000 or value.is_integer()) else f"{value:.4g}"
    return str(value)


def numeric(rows: Sequence[Sequence[Any]], column: int) -> bool:
    """Return whether a column holds numbers, and is to be right-aligned."""
    texts = [cell(row[column]) for row in rows]
    return any(text not in ("", "–") for text in texts) and all(NUMBER.fullmatch(text) for text in texts)
