"""What commands print with: data on standard output, everything else on standard error."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from cosmic.base.errors import one_line, require
from cosmic.base.files import dump_json
from cosmic.base.units import readable_unit, split_name
from cosmic.cli.output_streams import (
    emit,
    emit_json_text,
    is_terminal,
    printable,
    speaks_unicode,
    write_lines_to_stdout,
)
from cosmic.cli.value_completion import (
    complete_designs,
    complete_fields,
    complete_metrics,
    complete_settings,
    complete_stacks,
)
from cosmic.report.markdown import NUMBER

PIPED_COLUMNS = 20_000
"""Wider than any table: piped output is neither wrapped nor cut."""
_WORD = re.compile(r"""(?:[^\s'"\\]|'[^']*'|"[^"]*"|\\.|['"\\])+""")
"""A word of a command, with its quotes."""
TIME_UNITS = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6))
BAR = 30
"""Characters of a full bar."""
PLOT_COLUMNS = 78
MORE = "More"
"""The panel of options that only --help-all lists: `typer.Option(…, rich_help_panel=MORE)`."""
GAP = 2
LEAST_CELL = 3
"""Characters that a cell of a table has at least."""

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Design = Annotated[
    str,
    typer.Argument(
        help="MODEL@SYSTEM or MODEL@SYSTEM:GPUS of the catalog, or a YAML file.", autocompletion=complete_designs
    ),
]
Fix = Annotated[
    list[str],
    typer.Option(
        "--fix",
        metavar="PATH,…",
        help="Hold fields that would be chosen anew, such as recompute,micro_batch.",
        autocompletion=complete_fields,
    ),
]
"""Option of commands that change a design: fields that stay as they are in the first one."""
Limits = Annotated[
    list[str],
    typer.Option(
        metavar="'METRIC <= VALUE'",
        help="A limit, such as 'memory_bytes <= 80 GB'.",
        autocompletion=complete_metrics,
    ),
]
"""Option of commands that search: limits on metrics."""
Stacks = Annotated[
    str, typer.Option(help="Layers to search, all others frozen: workload,network.", autocompletion=complete_stacks)
]
"""Option of commands that search: which layers of the stack."""
Settings = Annotated[
    list[str],
    typer.Option(
        "--set", metavar="PATH=VALUE", help="Change one field, such as tp=8.", autocompletion=complete_settings
    ),
]
Prices = Annotated[
    Path | None,
    typer.Option(
        "--prices",
        metavar="FILE",
        help="Your quotes for accelerators, nodes, switches, … and energy, as YAML.",
        rich_help_panel=MORE,
    ),
]
"""Option of commands that price a design: quotes in place of the catalog's prices."""


def fixed_paths(fix: Iterable[str]) -> list[str]:
    """Return the paths that options ``--fix`` name, several to an option.

    >>> fixed_paths(["tp, recompute", "dp"])
    ['tp', 'recompute', 'dp']
    """
    paths = [path.strip() for each in fix for path in each.split(",")]
    require(all(paths), "--fix", ",".join(fix), "name fields to hold, such as recompute,micro_batch")
    return paths


def print_sentences(sentences: Iterable[str], indent: str = "", next_indent: str | None = None) -> None:
    """Print sentences: wrapped on a terminal, one line each when piped.

    Each begins with an *indent*; the lines that it is wrapped to begin with *next_indent*, if that is another.
    """
    if not is_terminal():
        emit(f"{indent}{each}" for each in sentences)
        return
    from textwrap import TextWrapper  # noqa: PLC0415  rarely needed

    wrapper = TextWrapper(
        width=max(terminal_columns(), len(indent) + 1, len(next_indent or indent) + 1),
        initial_indent=indent,
        subsequent_indent=indent if next_indent is None else next_indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    for sentence in sentences:
        emit(wrapper.wrap(printable(sentence)) or [""])


def emit_commands(commands: Mapping[str, str]) -> None:
    """Print commands, each below its purpose and alone on its lines, so that it can be copied and pasted as it is."""
    room = terminal_columns() if is_terminal() else None
    for command, purpose in commands.items():
        print_sentences([f"# {purpose}"], "  ", "  # ")
        emit(command_lines(printable(command), room))


def command_lines(command: str, room: int | None, indent: str = "  ") -> list[str]:
    r"""Return a command on lines of *room* characters, each but the last ending in a backslash; on one without *room*.

    It is broken before options, and between words only where an option with its values is too long. No word is broken.

    >>> command_lines("cosmic evaluate a@b --set 'x=1 2' --set y=3 --json", 36)
    ['  cosmic evaluate a@b \\', "    --set 'x=1 2' --set y=3 --json"]
    """
    if room is None or len(indent) + len(command) <= room:
        return [indent + command]
    lines = [indent]
    for option in _options(command):
        for words in [option] if len(indent) + 2 + len(" ".join(option)) + 2 <= room else [[word] for word in option]:
            text = " ".join(words)
            started = lines[-1].strip()
            if not started or len(lines[-1]) + 1 + len(text) + len(" \\") <= room:
                lines[-1] += f"{' ' if started else ''}{text}"
            else:
                lines[-1] += " \\"
                lines.append(f"{indent}  {text}")
    return lines


def _options(command: str) -> list[list[str]]:
    """Return the words of *command*, quotes and all, each option with the words that follow it."""
    options: list[list[str]] = [[]]
    for word in _WORD.findall(command):
        if word.startswith("-") and options[-1]:
            options.append([])
        options[-1].append(word)
    return options


def emit_json(data: Any) -> None:
    """Print *data* as indented JSON; characters that cannot be encoded or printed are escaped."""
    emit_json_text([dump_json(data, indent=2, ensure_ascii=not speaks_unicode())])


def emit_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print a table. A column whose name ends in a unit has a readable unit in its head; numbers are right-aligned.

    Where the terminal is too narrow, heads are wrapped first, then texts, and numbers and names last.
    """
    from rich.table import Table  # noqa: PLC0415  JSON output does not need it
    from rich.text import Text  # noqa: PLC0415

    emit([title] if title else [])
    body = [list(row) for row in rows]
    heads = [_fill_column(column, column_index, body) for column_index, column in enumerate(columns)]
    columns_ = [[row[column_index] for row in body] for column_index in range(len(heads))]
    numbers = [all(map(NUMBER.fullmatch, cells)) for cells in columns_]
    sizes = [max(map(len, cells), default=0) for cells in columns_]
    if is_terminal():
        heads, sizes = _fit_table(heads, sizes, numbers, terminal_columns())
    table = Table(box=None, header_style="bold", pad_edge=False)
    for index, (head, width) in enumerate(zip(heads, map(max, sizes, _head_widths(heads)), strict=True)):
        justify: Literal["right", "left"] = "right" if numbers[index] and index else "left"
        table.add_column(Text(head), justify=justify, overflow="fold", width=width)
    for row in body:
        table.add_row(*map(Text, row))  # plain text: brackets are not markup
    render_rich(
        table, least=sum(min(LEAST_CELL, size) for size in map(max, sizes, _head_widths(heads))) + GAP * len(heads)
    )


def _head_widths(heads: Sequence[str]) -> list[int]:
    """Return how wide each head is, which may have several lines."""
    return [max(map(len, head.split("\n"))) for head in heads]


def _fit_table(heads: list[str], sizes: list[int], numbers: list[bool], room: int) -> tuple[list[str], list[int]]:
    """Return heads and widths of columns that fit into *room*, wrapping the least important first."""

    def excess() -> int:
        widths = list(map(max, sizes, _head_widths(heads)))
        return sum(widths) + GAP * (len(widths) - 1) - room

    if excess() > 0:
        heads = [head if len(head) <= size else _break_head(head) for head, size in zip(heads, sizes, strict=True)]
    texts = [index for index, number in enumerate(numbers) if index and not number]
    for places, least in ((texts, 16), ([0], 24), (texts, 8), (range(len(sizes)), 6)):
        while (over := excess()) > 0 and any(sizes[place] > least for place in places):
            widest = max(places, key=lambda place: sizes[place])
            second = max((sizes[place] for place in places if place != widest), default=least)
            cut = max(1, min(over, sizes[widest] - max(second, least)))
            sizes = [size - cut if index == widest else size for index, size in enumerate(sizes)]
    return heads, sizes


def _fill_column(column: str, index: int, body: list[list[Any]]) -> str:
    """Turn the cells of one column into texts, all in the same readable unit, and return its head."""
    name, dimension = split_name(column)
    cells = [row[index] for row in body if row[index] is not None]
    if not all(isinstance(cell, int | float) for cell in cells):  # a recipe names its results as it likes
        name = column
    elif dimension is not None:
        unit, worth = readable_unit(cells, dimension)
        name = f"{name} {unit}"
        for row in body:
            row[index] = row[index] if row[index] is None else row[index] / worth
    for row in body:
        row[index] = one_line(format_brief(row[index]))
    name = one_line(name)
    return name if "." in name else name.replace("_", " ")  # a path is shown as it is written


def _break_head(head: str) -> str:
    r"""Return the head of a narrow column on several lines.

    >>> _break_head("memory GiB"), _break_head("workload.micro_batch")
    ('memory\nGiB', 'workload.\nmicro_batch')
    """
    return head.replace(" ", "\n").replace(".", ".\n")


def render_rich(renderable: Any, least: int = 1) -> None:
    """Print something that rich can draw, of printable text: as wide as the terminal, or in full width when piped.

    It has *least* columns, however narrow the terminal is: rich leaves out what has no room.
    """
    from rich.console import Console  # noqa: PLC0415  JSON output does not need it

    text = StringIO()
    console = Console(
        file=text,
        highlight=False,
        width=max(least, terminal_columns()) if is_terminal() else PIPED_COLUMNS,
        color_system="standard" if has_style() else None,
        force_terminal=has_style(),
    )
    console.print(renderable)
    write_lines_to_stdout([line.rstrip() for line in text.getvalue().removesuffix("\n").split("\n")])


def has_style() -> bool:
    """Return whether text may be bold: on a capable terminal, unless the environment says otherwise."""
    environment = os.environ
    if environment.get("NO_COLOR") or environment.get("CLICOLOR") == "0":
        return False
    forced = environment.get("FORCE_COLOR") or environment.get("CLICOLOR_FORCE", "0") != "0"
    return bool(forced) or (is_terminal() and environment.get("TERM") != "dumb")


def terminal_columns() -> int:
    """Return how wide the terminal is."""
    from shutil import get_terminal_size  # noqa: PLC0415  rarely needed

    return get_terminal_size((PLOT_COLUMNS + 2, 24)).columns


def plot_columns() -> int:
    """Return how wide a plot may be: what the terminal has, up to what a plot needs."""
    return min(PLOT_COLUMNS, terminal_columns()) if is_terminal() else PLOT_COLUMNS


def format_brief(value: Any) -> str:
    """Return *value* for a person to read: numbers grouped and short, nothing as a dash.

    >>> format_brief(1234567), format_brief(None), format_brief(989.4), format_brief(28000.0), format_brief(7.25e12)
    ('1,234,567', '-', '989.4', '28,000', '7.25e+12')
    """
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer() and abs(value) < 1e9):
        return f"{int(value):,}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def format_seconds(value: float) -> str:
    """Return a time with a readable unit.

    >>> format_seconds(12.345), format_seconds(0.0123), format_seconds(4.5e-5)
    ('12.35 s', '12.3 ms', '45 us')
    """
    for unit, worth in TIME_UNITS:
        if value >= worth:
            return f"{value / worth:.4g} {unit}" if unit == "s" else f"{value / worth:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns"


def draw_bar(share: Any) -> str:
    """Return *share* of a full bar."""
    return "█" * round(BAR * min(1.0, float(share)))
