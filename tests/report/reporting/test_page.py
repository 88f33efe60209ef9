"""Pages: whole files, in which given text stays text."""

from __future__ import annotations

import os
import re
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path

import pytest

from cosmic.base.errors import SpecError
from cosmic.report.charts.drawing import Axis, Series
from cosmic.report.charts.plots import lines
from cosmic.report.markdown import cell_text, is_numeric_column
from cosmic.report.page import Code, Figure, Heading, Items, Page, Part, Table, Text, to_html, to_markdown, write_html

HOSTILE = "<img src=x onerror=alert(1)> [a](javascript:b) *c* | `d` \\ </style></title><script>e</script> \x00\ud800"
SVG = lines([Series("a", [(1, 2), (2, 1)])], x=Axis("trials"), y=Axis("cost"), title="Cost over trials")


def page(text: str) -> Page:
    """Return a page with *text* in every place."""
    figure = lines([Series(text, [(1, 2)])], x=Axis(text), y=Axis(text), title=text)
    parts: list[Part] = [
        Text(text),
        Heading(text),
        Table([text, "n"], [[text, 1]], text),
        Figure(figure, "f", text),
        Code(text),
    ]
    return Page(text, parts)


class Reader(HTMLParser):
    """Collects the elements of a page, and where one is open at its end."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """An element opens."""
        self.found.append((tag, dict(attrs)))
        if tag not in ("meta", "link"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """An element opens and closes."""
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        """The innermost element closes."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Text."""
        self.words.append(data)


def test_hostile_text_stays_text_in_html() -> None:
    text = to_html(page(HOSTILE))
    read = Reader(text)
    assert read.open == []
    assert not {"img", "script", "a"} & {tag for tag, _ in read.found}
    assert not [key for _, attributes in read.found for key in attributes if key.startswith("on") or key == "style"]
    assert "".join(read.words).count("<img src=x") >= 9
    text.encode()
    assert "\x00" not in text


def test_hostile_text_stays_text_in_markdown(tmp_path: Path) -> None:
    text = to_markdown(page(HOSTILE), tmp_path).read_text()
    body = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)  # what is fenced is literal
    assert len(body) < len(text)
    assert "<" not in body
    assert not re.search(r"(?<!\\)\[a(?<!\\)\]", body)
    assert r"\*c\*" in body
    rows = [line for line in body.splitlines() if line.startswith("|")]
    assert [len(re.findall(r"(?<!\\)\|", row)) for row in rows] == [3, 3, 3]


@pytest.mark.parametrize("text", ["# a", "- a", "+ a", "1. a", "12) a", "=", "---"])
def test_a_paragraph_cannot_open_a_list_or_heading(text: str, tmp_path: Path) -> None:
    line = to_markdown(Page("t", [Text(text)]), tmp_path).read_text().splitlines()[2]
    assert line.replace("\\", "") == text
    assert not re.match(r"#|[-+] |\d+[.)]|=|---", line)


def test_a_fence_is_longer_than_any_in_the_code(tmp_path: Path) -> None:
    text = to_markdown(Page("t", [Code("a\n````\nb", "console")]), tmp_path).read_text()
    assert text.endswith("`````console\na\n````\nb\n`````\n")


def test_a_page_is_written_with_its_figures_beside_it(tmp_path: Path) -> None:
    parts: list[Part] = [
        Figure(SVG, "cost", "What it costs."),
        Table(["agent", "best"], [["random", 1234.5], ["genetic", None]]),
    ]
    path = to_markdown(Page("How agents compare", parts), tmp_path / "new")
    assert path == tmp_path / "new" / "how-agents-compare.md"
    assert path.read_text() == (
        "# How agents compare\n\n![Cost over trials](how-agents-compare-cost.svg)\n\n*What it costs.*\n\n"
        "| agent | best |\n| --- | ---: |\n| random | 1,234 |\n| genetic | – |\n"
    )
    assert (tmp_path / "new" / "how-agents-compare-cost.svg").read_text() == SVG
    assert len(list((tmp_path / "new").iterdir())) == 2


def test_a_page_in_html_fetches_nothing_and_allows_only_its_own_styles() -> None:
    text = to_html(Page("t", [Figure(SVG, "a"), Figure(SVG, "b")]))
    assert re.findall(r"(?:src|href)=\"([^\"]*)", text) == ["data:,"]
    assert not re.search(r"url\(|@import", text)
    policy = re.findall(r'Content-Security-Policy" content="([^"]+)"', text)[0]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    styles = set(re.findall(r"<style>(.*?)</style>", text, re.DOTALL))
    assert len(styles) == 2
    for style in styles:
        assert f"'sha256-{b64encode(sha256(style.encode()).digest()).decode()}'" in policy


def test_the_same_page_has_the_same_bytes() -> None:
    assert to_html(page("a")) == to_html(page("a"))


def test_paragraphs_code_and_places_in_html() -> None:
    text = to_html(Page("t", [Text("one\ntwo\n\nthree `a<b`"), Heading("Cost"), Heading("Cost", 3)]))
    assert "<p>one two</p>\n<p>three <code>a&lt;b</code></p>" in text
    assert '<h2 id="cost">Cost</h2>\n<h3 id="cost-2">Cost</h3>' in text


def test_columns_of_numbers_are_set_right() -> None:
    text = to_html(Page("t", [Table(["agent", "time"], [["a", "1.2 ms"], ["b", None]])]))
    assert '<th scope="col">agent</th><th scope="col" class="number">time</th>' in text
    assert '<td>b</td><td class="number">–</td>' in text
    column: list[list[object]] = [
        ["12.3 ms"],
        ["1,024"],
        [3.5],
        [None],
        ["1.5 M USD"],
        ["95 %"],
        ["3×10⁻⁷ s"],
        ["2.3x"],
    ]
    assert is_numeric_column(column, 0)
    assert not is_numeric_column([["1"], ["ring"]], 0)
    assert not is_numeric_column([[None]], 0)


def test_cells_are_short() -> None:
    shown = [cell_text(value) for value in (0.1 + 0.2, 1e12, 1e6 + 0.5, float("nan"), False, 2.0, 10**5000)]
    assert shown == ["0.3", "1e+12", "1,000,000", "–", "no", "2", "1.000e+5000"]


@pytest.mark.parametrize(
    "svg",
    [
        "<svg",
        "<svg><script>a</script></svg>",
        '<svg onload="a"/>',
        '<svg><g href="http://a"/></svg>',
        '<svg xmlns:x="http://www.w3.org/1999/xlink"><g x:href="a"/></svg>',
        "<svg><foreignObject/></svg>",
    ],
)
def test_a_figure_is_a_chart_and_nothing_else(svg: str) -> None:
    with pytest.raises(SpecError, match="svg = "):
        Figure(svg, "a")


def test_names_cannot_leave_the_folder() -> None:
    for name in ("../a", "a/b", "", "A", ".a"):
        with pytest.raises(SpecError, match="name = "):
            Figure(SVG, name)
    with pytest.raises(SpecError, match="each figure of a page has its own name"):
        Page("t", [Figure(SVG, "a"), Figure(SVG, "a")])
    assert Page("../../etc/passwd", []).name == "etc-passwd"
    with pytest.raises(SpecError, match=r"rows\.0 = 1: there are 2 columns"):
        Table(["a", "b"], [[1]])


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report.html"
    assert write_html(Page("old", []), path) == path
    before = path.read_text()

    def fail(_: int) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", fail)
        with pytest.raises(SpecError, match="cannot be written: no space left"):
            write_html(Page("new", []), path)
    assert path.read_text() == before
    assert list(tmp_path.iterdir()) == [path]
    write_html(Page("new", []), path)
    assert "<h1>new</h1>" in path.read_text()
    assert list(tmp_path.iterdir()) == [path]


def test_a_list_is_numbered_and_escaped_both_ways(tmp_path: Path) -> None:
    page = Page("List", [Items(["first,\non two lines", "<b>second</b> with `code`"])])
    text = to_markdown(page, tmp_path).read_text()
    assert "1. first, on two lines\n2. " in text
    assert "<b>" not in text
    html = to_html(page)
    assert "<ol><li>first, on two lines</li><li>&lt;b&gt;second&lt;/b&gt; with <code>code</code></li></ol>" in html
