"""A page as a value: written as Markdown with its figures beside it, or as one self-contained HTML file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Tree

from cosmic.base.errors import SpecError, require
from cosmic.base.files import make_folder, write_all, write_text
from cosmic.report import html_file, markdown

FILE_NAME = re.compile(r"[a-z0-9]([a-z0-9_-]{0,62}[a-z0-9])?")
HARMLESS = frozenset({"svg", "title", "desc", "style", "g", "path", "rect", "circle", "text"})
"""The elements of our charts: a drawing with others could run scripts or fetch files."""


@dataclass(frozen=True, slots=True)
class Text:
    """Paragraphs, separated by blank lines; text between `backticks` is code."""

    text: str


@dataclass(frozen=True, slots=True)
class Heading:
    """The title of a section, or with level 3 or 4 of a subsection."""

    text: str
    level: int = 2

    def __post_init__(self) -> None:
        require(self.level in (2, 3, 4), "level", self.level, "a heading has level 2, 3 or 4; the page's title has 1")


@dataclass(frozen=True, slots=True)
class Items:
    """A numbered list, each item a paragraph."""

    items: Sequence[str]


@dataclass(frozen=True, slots=True)
class Table:
    """Named columns and rows of cells: numbers, texts, or None. Numbers are right-aligned."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    caption: str = ""

    def __post_init__(self) -> None:
        for index, row in enumerate(self.rows):
            require(len(row) == len(self.columns), f"rows.{index}", len(row), f"there are {len(self.columns)} columns")


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart of `cosmic.report.charts.plots`; *name* is part of the name of its file."""

    svg: str
    name: str
    caption: str = ""

    def __post_init__(self) -> None:
        require(FILE_NAME.fullmatch(self.name) is not None, "name", self.name, "use a-z, 0-9, - and _ only")
        try:
            root = Tree.fromstring(self.svg)
        except Tree.ParseError as error:
            raise SpecError("svg", self.svg, f"is no drawing: {error}") from None
        for element in root.iter():
            kind = str(element.tag).rpartition("}")[2]
            require(kind in HARMLESS, "svg", kind, "a chart has no such element")
            bad = [key for key in element.attrib if key.lower().startswith("on") or key.lower().endswith("href")]
            require(not bad, "svg", bad, "a chart has no such attribute")

    @property
    def alt(self) -> str:
        """The alternative text of the drawing."""
        return Tree.fromstring(self.svg).findtext("{http://www.w3.org/2000/svg}title") or self.caption or self.name


@dataclass(frozen=True, slots=True)
class Code:
    """Preformatted text, such as a command to run."""

    text: str
    language: str = ""

    def __post_init__(self) -> None:
        require(bool(re.fullmatch(r"[\w+-]*", self.language)), "language", self.language, "is a word, such as console")


Part = Text | Heading | Items | Table | Figure | Code


@dataclass(frozen=True, slots=True)
class Page:
    """A title and blocks; *name* is that of the file, made from the title unless it is given."""

    title: str
    parts: Sequence[Part]
    name: str = ""

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", slug(self.title))
        require(FILE_NAME.fullmatch(self.name) is not None, "name", self.name, "use a-z, 0-9, - and _ only")
        names = [part.name for part in self.parts if isinstance(part, Figure)]
        twice = sorted({name for name in names if names.count(name) > 1})
        require(not twice, "figures", twice, "each figure of a page has its own name")


def slug(title: str) -> str:
    """Return *title* as the name of a file or an anchor.

    >>> slug("How agents compare: 20 seeds"), slug("../../etc"), slug("<>")
    ('how-agents-compare-20-seeds', 'etc', 'page')
    """
    return re.sub(r"[^a-z0-9]+", "-", title.lower())[:60].strip("-") or "page"


def to_markdown(page: Page, directory: Path | str, where: str = "file") -> Path:
    """Write NAME.md and its figures NAME-FIGURE.svg into *directory*; return the path of NAME.md.

    All are written or none; messages name them by *where*.
    """
    folder = make_folder(directory, where)
    files: list[tuple[Path, str]] = []
    blocks = [f"# {markdown.inline(page.title)}"]
    for part in page.parts:
        match part:
            case Text(text):
                blocks += [markdown.inline(paragraph) for paragraph in paragraphs(text)]
            case Heading(text, level):
                blocks.append(f"{'#' * level} {markdown.inline(text)}")
            case Items(items):
                blocks.append(markdown.numbered(_join_lines(items)))
            case Table(columns, rows, caption):
                blocks.append(markdown.table(columns, rows))
                blocks += [markdown.emphasis(caption)] if caption else []
            case Figure(svg, name, caption):
                file = folder / f"{page.name}-{name}.svg"
                files.append((file, svg))
                blocks.append(f"![{markdown.inline(part.alt)}]({file.name})")
                blocks += [markdown.emphasis(caption)] if caption else []
            case Code(text, language):
                blocks.append(markdown.fenced(text, language))
    path = folder / f"{page.name}.md"
    write_all([*files, (path, "\n\n".join(blocks) + "\n")], where)  # the page last: its links are never broken
    return path


def to_html(page: Page) -> str:
    """Return *page* as one HTML file: light or dark as the reader prefers, no scripts, no requests."""
    blocks = [f"<h1>{html_file.inline(page.title)}</h1>"]
    places: set[str] = set()
    for part in page.parts:
        match part:
            case Text(text):
                blocks += [f"<p>{html_file.inline(paragraph)}</p>" for paragraph in paragraphs(text)]
            case Heading(text, level):
                blocks.append(f'<h{level} id="{_make_unique(slug(text), places)}">{html_file.inline(text)}</h{level}>')
            case Items(items):
                blocks.append(html_file.numbered(_join_lines(items)))
            case Table(columns, rows, caption):
                blocks.append(html_file.table(columns, rows, caption))
            case Figure(svg, name, caption):
                blocks.append(html_file.figure(svg, _make_unique(f"figure-{name}", places), caption))
            case Code(text, _):
                blocks.append(html_file.code(text))
    return html_file.document(page.title, blocks)


def write_html(page: Page, path: Path | str) -> Path:
    """Write *page* to *path*, atomically."""
    write_text(Path(path), to_html(page))
    return Path(path)


def paragraphs(text: str) -> list[str]:
    """Return the paragraphs of *text*, each on one line."""
    return [" ".join(each.split()) for each in re.split(r"\n\s*\n", text) if each.strip()]


def _join_lines(items: Sequence[str]) -> list[str]:
    return [" ".join(item.split()) for item in items]


def _make_unique(wanted: str, taken: set[str]) -> str:
    """Return *wanted*, with a number if it is *taken*, and add it to *taken*."""
    name, count = wanted, 1
    while name in taken:
        count += 1
        name = f"{wanted}-{count}"
    taken.add(name)
    return name
