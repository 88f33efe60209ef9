"""Markdown in which all given text is escaped: none of it becomes a link, a tag, a table or a heading.

Cells of tables are turned into text here too, for Markdown, HTML and the terminal, and which columns hold numbers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from math import isfinite
from typing import Any

from cosmic.base.errors import one_line

NUMBER = re.compile(r"[-+−]?\d[\d,]*(\.\d+)?(e[-+]?\d+|×10[⁻⁰-⁹¹²³]+)?( ?[%×x]|( [pnµmkMGTPE])?( [\w/µ%]{1,8})?)|[-–]?")
"""A number as tables show it, perhaps with its unit: '1,024', '12.3 ms', '1.5 M USD', '95 %', a dash for none."""


def cell_text(value: Any) -> str:
    """Return *value* as text: four significant digits, a dash for None.

    >>> cell_text(1234567), cell_text(0.012345), cell_text(None), cell_text(True), cell_text("tp")
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


def is_numeric_column(rows: Sequence[Sequence[Any]], column: int) -> bool:
    """Return whether a column holds numbers, and is to be right-aligned."""
    texts = [cell_text(row[column]) for row in rows]
    return any(text not in ("", "–") for text in texts) and all(NUMBER.fullmatch(text) for text in texts)


CODE = re.compile(r"`([^`\n]+)`")
SPECIAL = re.compile(r"[\\`*\[\]|~$]|(?<!\w)_|_(?!\w)")
OPENING = re.compile(r"^\s*(?:[#+=-]|\d+[.)](?=\s|$))")
"""Starts of a line that would make it a heading, a list or a rule."""
ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def inline(text: str, *, bars: bool = False) -> str:
    r"""Return *text* as Markdown on one line; `code` stays code. With *bars*, bars are escaped for a table's cell.

    >>> print(inline("a *b* <img> `c*d` snake_case"))
    a \*b\* &lt;img&gt; `c*d` snake_case
    """
    parts = CODE.split(one_line(text))
    codes = [f"`{part.replace('|', chr(92) + '|') if bars else part}`" for part in parts[1::2]]
    texts = [_escaped(part) for part in parts[::2]]
    if not bars:
        texts[0] = OPENING.sub(lambda found: f"{found[0][:-1]}\\{found[0][-1]}", texts[0])
    return "".join(piece for pair in zip(texts, [*codes, ""], strict=True) for piece in pair)


def _escaped(text: str) -> str:
    marked = SPECIAL.sub(lambda found: "\\" + found[0], text)
    return re.sub(r"[&<>]", lambda found: ENTITIES[found[0]], marked)


def emphasis(text: str) -> str:
    """Return a caption."""
    return f"*{inline(text).strip()}*"


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return a table; numbers are right-aligned."""
    lines = [[inline(str(name), bars=True) for name in columns]]
    lines.append(["---:" if is_numeric_column(rows, index) else "---" for index in range(len(columns))])
    lines += [[inline(cell_text(each), bars=True) for each in row] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def numbered(items: Sequence[str]) -> str:
    """Return a numbered list."""
    return "\n".join(f"{index}. {inline(item)}" for index, item in enumerate(items, 1))


def fenced(text: str, language: str) -> str:
    """Return a block of code with a fence longer than any in it."""
    lines = [one_line(line.expandtabs()) for line in text.rstrip("\n").split("\n")]
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([fence + language, *lines, fence])
