"""A report or a trace as one self-contained HTML file: a document, the script that shows it, and a security policy.

The policy lists the hash of each script and style and allows no requests: even if hostile text became markup, it could
not run or send anything. Document, style and script are base64 of gzip, which no text can break out of; a few lines
unpack them. Before that, and without JavaScript, the page shows the verdict in plain HTML.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from cosmic.base.errors import CosmicError
from cosmic.report import hypertext
from cosmic.report.charts.drawing import escape_line
from cosmic.report.container import Binary, base64_text, container_text
from cosmic.report.document_types import ReportDocument, TraceDocument

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
            f"script-src {hypertext.policy_hash(START_SCRIPT)} {hypertext.policy_hash(script)}",
            f"style-src {hypertext.policy_hash(PLAIN_STYLE)} {hypertext.policy_hash(style)}",
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
    return hypertext.page_shell(title, policy, PLAIN_STYLE, body)


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
