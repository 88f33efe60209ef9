"""Markdown from docstrings and values, for all generated pages."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parents[2]
NOTE = "<!-- Generated from the code by `python docs/generate_reference.py`: change the code, not this page. -->"


def page(title: str, *parts: str) -> str:
    """Return a whole page: its parts with a blank line between them."""
    return "\n\n".join(part.strip("\n") for part in (NOTE, f"# {title}", *parts) if part) + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    r"""Return a table.

    >>> print(table(["key", "type"], [["tp", "whole | number"]]))
    | key | type |
    |---|---|
    | tp | whole \| number |
    """
    lines = [list(head), ["---"] * len(head), *map(list, rows)]
    cells = (["---" if cell == "---" else cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in lines)
    return "\n".join("|---" * len(row) + "|" if row[0] == "---" else f"| {' | '.join(row)} |" for row in cells)


def code(text: str) -> str:
    """Return *text* as code; nothing for empty text."""
    return f"`{text}`" if text else ""


def fence(text: str, language: str = "text") -> str:
    """Return *text* as a block of code."""
    return f"```{language}\n{text.rstrip()}\n```"


def source_link(thing: Any) -> str:
    """Return a link from a reference page to the file that defines *thing*."""
    path = Path(inspect.getsourcefile(thing) or "").resolve().relative_to(ROOT).as_posix()
    return f"[{path}](../../{path})"


def prose(text: str | None) -> str:
    r"""Return a docstring as Markdown: indented lines are formulas, prompts are examples.

    >>> print(prose("Sum.\n\n    a + b\n\nOf two."))
    Sum.
    <BLANKLINE>
    ```text
    a + b
    ```
    <BLANKLINE>
    Of two.
    """
    return "\n\n".join(_shown(block) for block in _blocks(inspect.cleandoc(text or "")))


def _blocks(text: str) -> list[str]:
    """Return the paragraphs of *text*; consecutive indented ones are joined."""
    found: list[str] = []
    for block in re.split(r"\n\s*\n", text):
        if found and _indented(block) and _indented(found[-1]):
            found[-1] += f"\n\n{block}"
        elif block.strip():
            found.append(block)
    return found


def _indented(block: str) -> bool:
    return all(line.startswith("    ") for line in block.splitlines() if line.strip())


def _shown(block: str) -> str:
    if block.startswith(">>>"):
        return fence(block, "pycon")
    if _indented(block) or _is_table(block):
        return fence(textwrap.dedent(block))
    lines = block.splitlines()
    tail = next((place for place, line in enumerate(lines) if place and line.startswith("    ")), len(lines))
    whole = escape("\n".join(lines[:tail]))
    return whole if tail == len(lines) else f"{whole}\n\n{fence(textwrap.dedent(chr(10).join(lines[tail:])))}"


def _is_table(block: str) -> bool:
    """Return whether the block is a table of symbols or a drawing, which need a fixed width."""
    lines = block.splitlines()
    symbols = [re.match(r"[\w.]{1,12}  +\S", line) for line in lines]
    return all(symbols) or any(letter in block for letter in "──▶├└")


def escape(text: str) -> str:
    """Return *text* with ``<`` escaped, except in code.

    >>> escape("a <b> and `<c>`")
    'a &lt;b> and `<c>`'
    """
    parts = re.split(r"(``.+?``|`[^`]*`)", text)
    return "".join(part if place % 2 else part.replace("<", "&lt;") for place, part in enumerate(parts))


def attribute_docs(cls: type) -> dict[str, str]:
    """Return the docstrings below the fields of a class and of its bases."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if base.__module__.startswith("cosmic"):
            tree = ast.parse(textwrap.dedent(inspect.getsource(base)))
            found |= _documented(tree.body[0].body)  # type: ignore[attr-defined]  # it is a class
    return found


def constant_docs(module: ModuleType) -> dict[str, str]:
    """Return the docstrings below the constants of a module."""
    return _documented(ast.parse(inspect.getsource(module)).body)


def _documented(body: Sequence[ast.stmt]) -> dict[str, str]:
    found = {}
    for statement, following in pairwise(body):
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        text = following.value if isinstance(following, ast.Expr) else None
        if isinstance(targets[0], ast.Name) and isinstance(text, ast.Constant) and isinstance(text.value, str):
            found[targets[0].id] = " ".join(text.value.split())
    return found
