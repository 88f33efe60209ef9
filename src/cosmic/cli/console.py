"""How commands speak: data on standard output, everything else on standard error."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import typer

from cosmic.cli.output import emit
from cosmic.units import readable_unit, split_name

__all__ = ["Json", "Settings", "StatusLine", "brief", "emit", "emit_json", "emit_table", "new_app", "render"]

INTERVAL_S = 0.2
"""How often a status line is drawn anew."""

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Settings = Annotated[
    list[str], typer.Option("--set", metavar="PATH=VALUE", help="Change one field, such as workload.tp=8.")
]


class StatusLine:
    """One line on a terminal that says how far a command is; nothing where standard error is none."""

    def __init__(self, *, shown: bool | None = None) -> None:
        self._shown = sys.stderr.isatty() if shown is None else shown
        self._next = 0.0

    def show(self, text: str) -> None:
        """Draw the line, unless it was drawn just now."""
        now = time.monotonic()
        if self._shown and now >= self._next:
            self._next = now + INTERVAL_S
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()

    def clear(self) -> None:
        """Make room for what comes next."""
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def new_app(help_text: str | None = None) -> typer.Typer:
    """Return an application for one command: plain help, errors left to `cosmic.cli`."""
    return typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False, help=help_text)


def emit_json(data: Any) -> None:
    """Print *data* as indented JSON."""
    emit([json.dumps(data, indent=2, ensure_ascii=False)])


def emit_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print a table. A column whose name ends in a unit has a readable unit in its head; numbers are set right."""
    from rich.table import Table  # noqa: PLC0415  JSON output does not need it
    from rich.text import Text  # noqa: PLC0415

    emit([title] if title else [])
    table = Table(box=None, header_style="bold", pad_edge=False)
    body = [list(row) for row in rows]
    for place, column in enumerate(columns):
        name, dimension = split_name(column)
        cells = [row[place] for row in body]
        numeric = all(isinstance(cell, int | float | None) for cell in cells)
        if dimension is not None:
            unit, worth = readable_unit([cell for cell in cells if cell], dimension)
            name = f"{name} {unit}"
            cells = [cell if cell is None else cell / worth for cell in cells]
        for row, cell in zip(body, cells, strict=True):
            row[place] = brief(cell)
        table.add_column(name.replace("_", " "), justify="right" if numeric else "left", no_wrap=numeric or place == 0)
    for row in body:
        table.add_row(*map(Text, row))  # text as it is: brackets in it are no markup
    render(table)


def render(renderable: Any) -> None:
    """Print something that rich can draw: as wide as the terminal, or as wide as it is when piped."""
    from rich.console import Console  # noqa: PLC0415  JSON output does not need it

    console = Console(highlight=False, width=None if sys.stdout.isatty() else 1000)
    with console.capture() as captured:
        console.print(renderable)
    emit([captured.get().removesuffix("\n")])


def brief(value: Any) -> str:
    """Return *value* for a person to read: numbers grouped and short, nothing as a dash.

    >>> brief(1234567), brief(None), brief(989.4), brief(28000.0), brief(7.25e12)
    ('1,234,567', '-', '989.4', '28,000', '7.25e+12')
    """
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer() and abs(value) < 1e9):
        return f"{int(value):,}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
