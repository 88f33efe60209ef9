"""Self-contained HTML pages in which all given text is escaped.

The content security policy in the head allows the page's own styles, by hash: no scripts, no requests. Even if hostile
text became markup, it could not run or send anything.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from cosmic.base.errors import one_line
from cosmic.report.charts.drawing import escape_line
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
