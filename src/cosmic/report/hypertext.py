"""Self-contained HTML pages in which all given text is escaped.

The content security policy in the head allows the page's own styles, by hash: no scripts, no requests. Even if hostile
text became markup, it could not run or send anything.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any

from cosmic.base.errors import one_line
from cosmic.report.charts.svg import FONT, escape_line
from cosmic.report.markdown import CODE, cell_text, is_numeric_column

STYLES = re.compile(r"<style>(.*?)</style>", re.DOTALL)
STYLE = f"""
:root {{
  color-scheme: light dark;
  --paper: #ffffff; --ink: #1b1f24; --muted: #57606a; --line: #d5dae0; --faint: #f5f7f9;
}}
@media screen and (prefers-color-scheme: dark) {{
  :root {{ --paper: #14161a; --ink: #e6e8eb; --muted: #a3adb8; --line: #343a43; --faint: #1c1f25; }}
}}
* {{ box-sizing: border-box; }}
html {{ background: var(--paper); -webkit-text-size-adjust: 100%; }}
body {{
  max-width: 60rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem;
  color: var(--ink); font: 1rem/1.55 {FONT}; overflow-wrap: break-word;
}}
h1, h2, h3, h4 {{ line-height: 1.25; margin: 0 0 .75rem; text-wrap: balance; }}
h1 {{ font-size: 1.75rem; font-weight: 650; letter-spacing: -.01em; margin-bottom: 1.25rem; }}
h2 {{ font-size: 1.25rem; font-weight: 650; margin-top: 2.75rem; }}
h2 {{ padding-top: 1rem; border-top: 1px solid var(--line); }}
h3 {{ font-size: 1.0625rem; font-weight: 650; margin-top: 2rem; }}
h4 {{ font-size: 1rem; font-weight: 650; margin-top: 1.5rem; color: var(--muted); }}
p {{ margin: 0 0 1rem; max-width: 44rem; }}
ol {{ margin: 0 0 1rem; padding-left: 1.5rem; max-width: 44rem; }}
li {{ margin: 0 0 .5rem; }}
code, pre {{ font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace; }}
code {{ font-size: .875em; background: var(--faint); border-radius: 4px; padding: .1em .3em; }}
pre {{
  font-size: .875rem; line-height: 1.5; margin: 0 0 1.25rem; padding: .875rem 1rem; overflow-x: auto;
  background: var(--faint); border: 1px solid var(--line); border-radius: 6px;
}}
pre code, h1 code, h2 code, h3 code, h4 code {{ font-size: .95em; background: none; padding: 0; }}
pre code {{ font-size: inherit; }}
figure {{ margin: 1.5rem 0 1.75rem; }}
figcaption {{ color: var(--muted); font-size: .875rem; line-height: 1.45; max-width: 44rem; }}
.drawing figcaption {{ margin-top: .5rem; }}
.table figcaption {{ margin-bottom: .5rem; }}
.scroll {{ overflow-x: auto; }}
.drawing .scroll {{ margin-left: -1rem; }}
.scroll:focus-visible, pre:focus-visible {{ outline: 2px solid #0072b2; outline-offset: 2px; }}
.drawing svg {{ display: block; width: 100%; min-width: 35rem; max-width: 45rem; height: auto; }}
table {{ border-collapse: collapse; font-size: .875rem; line-height: 1.4; font-variant-numeric: tabular-nums; }}
th, td {{ padding: .4rem .75rem; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }}
th:first-child, td:first-child {{ padding-left: 0; }}
th {{ font-weight: 600; vertical-align: bottom; border-bottom: 1px solid var(--muted); }}
.number {{ text-align: right; white-space: nowrap; }}
@media screen and (max-width: 40rem) {{
  body {{ padding: 1.5rem 1rem 3rem; }}
  h1 {{ font-size: 1.5rem; }}
  table {{ width: max-content; }}
  td {{ max-width: 16rem; }}
}}
@media print {{
  body {{ max-width: none; padding: 0; font-size: 10.5pt; }}
  h2, h3, h4 {{ break-after: avoid; }}
  figure.drawing, tr, pre {{ break-inside: avoid; }}
  thead {{ display: table-header-group; }}
  .scroll, pre {{ overflow: visible; }}
  .drawing svg {{ min-width: 0; }}
  .drawing .scroll {{ margin-left: 0; }}
  pre {{ white-space: pre-wrap; }}
}}
"""


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
