"""A page as one self-contained HTML file: of text, tables and figures, or of a document and the script that shows it.

All given text is escaped. The content security policy in the head lists the hash of each style and script and allows no
requests: even if hostile text became markup, it could not run or send anything. Document, style and script of a report
or a trace are base64 of gzip, which no text can break out of; a few lines unpack them. Before that, and without
JavaScript, the page shows the verdict in plain HTML.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from cosmic.base.errors import CosmicError, one_line
from cosmic.report.charts.drawing import escape_line
from cosmic.report.container import Binary, base64_text, container_text
from cosmic.report.document_types import ReportDocument, TraceDocument
from cosmic.report.markdown import CODE, cell_text, is_numeric_column

STYLES = re.compile(r"<style>(.*?)</style>", re.DOTALL)
STYLE = "\n" + (Path(__file__).parent / "page.css").read_text(encoding="utf-8")


def document(title: str, blocks: Iterable[str]) -> str:
    """Return a whole page."""
    body = "\n".join(blocks)
    styles = " ".join(map(policy_hash, dict.fromkeys([STYLE, *STYLES.findall(body)])))
    policy = f"default-src 'none'; style-src {styles}; img-src data:; base-uri 'none'; form-action 'none'"
    return page_shell(title, policy, STYLE, f"<main>\n{body}\n</main>")


def policy_hash(text: str) -> str:
    """Return the hash of a script or a style, as a content security policy writes it."""
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def page_shell(title: str, policy: str, style: str, body: str) -> str:
    """Return a page around its body; *policy* is its content security policy."""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>{escape_line(title)}</title>
<style>{style}</style>
</head>
<body>
{body}
</body>
</html>
"""


def inline(text: str) -> str:
    """Return *text* escaped, with `code` as code.

    >>> inline("<b> is `a<b`")
    '&lt;b&gt; is <code>a&lt;b</code>'
    """
    parts = CODE.split(one_line(text))
    return "".join(
        f"<code>{escape_line(part)}</code>" if index % 2 else escape_line(part) for index, part in enumerate(parts)
    )


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]], caption: str) -> str:
    """Return a table that scrolls sideways where it is too wide; numbers are right-aligned."""
    style = [' class="number"' if is_numeric_column(rows, index) else "" for index in range(len(columns))]
    names = "".join(
        f'<th scope="col"{each}>{inline(str(name))}</th>' for each, name in zip(style, columns, strict=True)
    )
    lines = [
        "<tr>"
        + "".join(f"<td{each}>{inline(cell_text(cell))}</td>" for each, cell in zip(style, row, strict=True))
        + "</tr>"
        for row in rows
    ]
    above = f"<figcaption>{inline(caption)}</figcaption>\n" if caption else ""
    head = f'<figure class="table">\n{above}{_open_scroll_box(caption or "Table")}\n<table>\n<thead><tr>{names}</tr></thead>'
    return "\n".join([head, "<tbody>", *lines, "</tbody>\n</table>\n</div>\n</figure>"])


def figure(svg: str, name: str, caption: str) -> str:
    """Return a drawing with its caption; on a narrow screen it scrolls, so that its text stays readable."""
    below = f"\n<figcaption>{inline(caption)}</figcaption>" if caption else ""
    drawing = svg.strip()
    return f'<figure class="drawing" id="{escape_line(name)}">\n{_open_scroll_box("Chart")}\n{drawing}\n</div>{below}\n</figure>'


def numbered(items: Sequence[str]) -> str:
    """Return a numbered list."""
    return f"<ol>{''.join(f'<li>{inline(item)}</li>' for item in items)}</ol>"


def code(text: str) -> str:
    """Return preformatted text."""
    lines = [escape_line(line.expandtabs()) for line in text.rstrip("\n").split("\n")]
    return f'<pre tabindex="0"><code>{chr(10).join(lines)}</code></pre>'


def _open_scroll_box(name: str) -> str:
    """Return the opening tag of a box that scrolls; it can be focused, so that keys scroll it."""
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{escape_line(name)}">'


# ---- a document and the script that shows it


FRONT = Path(__file__).parent / "front"
START_SCRIPT = (Path(__file__).parent / "start.js").read_text(encoding="utf-8").rstrip("\n")
"""Unpacks the style and the script of the page, which starts it, and meanwhile its document, which the script awaits.

The policy lists the hashes of all scripts."""
PLAIN_STYLE = (
    "html{color-scheme:light dark;font:14px/1.45 system-ui,sans-serif}"
    "main{margin:0 auto;max-width:1360px;padding:16px 24px}th{padding-right:16px;text-align:left}"
    "pre{overflow-x:auto}"
)
"""The style of the page until then."""


def render_report(document: ReportDocument, binary: Binary) -> str:
    """Return the whole file of a report."""
    served = document.serving is not None or any(design.serving is not None for design in document.designs)
    front = _read_front_file("report-serving.js" if served else "report.js"), _read_front_file("style.css")
    return _render_file(document, binary, document.title, render_plain_report(document), front)


def render_trace(document: TraceDocument, binary: Binary) -> str:
    """Return the whole file of the page of traces."""
    front = _read_front_file("trace.js"), _read_front_file("trace-style.css")
    return _render_file(document, binary, document.title, render_plain_trace(document), front)


def _render_file(
    document: ReportDocument | TraceDocument, binary: Binary, title: str, first: str, front: tuple[str, str]
) -> str:
    """Return the whole file: *first* is shown until the script of *front* has started, which has a style, too."""
    script, style = front
    policy = "; ".join(
        [
            "default-src 'none'",
            f"script-src {policy_hash(START_SCRIPT)} {policy_hash(script)}",
            f"style-src {policy_hash(PLAIN_STYLE)} {policy_hash(style)}",
            "img-src data: blob:",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
    body = f"""<main id="cosmic" class="page">
{first}
</main>
<script type="application/octet-stream" id="cosmic-document">{container_text(document, binary)}</script>
<script type="application/octet-stream" id="cosmic-style">{_pack_text(style)}</script>
<script type="application/octet-stream" id="cosmic-script">{_pack_text(script)}</script>
<script>{START_SCRIPT}</script>"""
    return page_shell(title, policy, PLAIN_STYLE, body)


def render_plain_trace(document: TraceDocument) -> str:
    """Return the facts of traces in plain HTML: what the page shows until its script has started."""
    first = document.views[:1]
    facts = [*document.facts, *(fact for view in first for fact in view.facts)]
    cells = [(fact.label, fact.text, fact.note) for fact in facts]
    lost = "The timeline and the graph need JavaScript; nothing is loaded."
    return _render_plain(document.title, [each for view in first for each in view.problems], cells, [], lost)


def render_plain_report(document: ReportDocument) -> str:
    """Return the verdict in plain HTML: what the page shows until its script has started."""
    verdict = document.verdict
    paragraphs = [verdict.sentence, *([verdict.design] if verdict.design else []), *verdict.caveats]
    paragraphs += [f"{each.name}: {each.headline}" for each in verdict.workloads or ()]
    cells = [(fact.label, fact.text) for fact in verdict.facts]
    command = [f"<pre><code>{escape_line(verdict.command)}</code></pre>"]
    lost = "Charts, trials and timelines need JavaScript; nothing is loaded from elsewhere."
    return _render_plain(document.title, paragraphs, cells, command, lost)


def _render_plain(
    title: str, paragraphs: Sequence[str], facts: Sequence[tuple[str, ...]], after: Sequence[str], lost: str
) -> str:
    """Return a title, paragraphs and a table of *facts* as HTML; *lost* is what a reader without JavaScript misses."""
    lines = [f"<h1>{escape_line(title)}</h1>", *(f"<p>{escape_line(each)}</p>" for each in paragraphs)]
    rows = "".join(
        f'<tr><th scope="row">{escape_line(label)}</th>{"".join(f"<td>{escape_line(cell)}</td>" for cell in cells)}</tr>'
        for label, *cells in facts
    )
    lines += [f"<table><tbody>{rows}</tbody></table>"] if rows else []
    return "\n".join([*lines, *after, '<p id="cosmic-start"></p>', f"<noscript><p>{lost}</p></noscript>"])


def _read_front_file(name: str) -> str:
    try:
        return (FRONT / name).read_text(encoding="utf-8")
    except OSError as error:
        raise CosmicError(
            f"{FRONT / name}: the front end is not built ({error.strerror}): run 'npm run build' in ui/"
        ) from None


@lru_cache(maxsize=4)
def _pack_text(text: str) -> str:
    """Return a script or a style, packed; cached, as it is the same in every page."""
    return base64_text([text.encode()])
