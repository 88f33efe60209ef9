"""The two pages that the server writes itself; the front end draws all else."""

from __future__ import annotations

from functools import cache
from html import escape
from importlib.resources import files

PAGE_TEMPLATE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="icon" href="data:,">
{links}</head>
<body>
{body}
</body>
</html>
"""
STYLE_LINK = '<link rel="stylesheet" href="/style.css">\n'
SCRIPT_TAG = '<script src="/app.js" defer></script>\n'
FRONT_FILES = {"/app.js": "text/javascript; charset=utf-8", "/style.css": "text/css; charset=utf-8"}
"""The files of the front end, by address: no request names a file."""


def application_page() -> str:
    """Return the page of the application."""
    return PAGE_TEMPLATE.format(
        title="COSMIC",
        links=STYLE_LINK + SCRIPT_TAG,
        body='<div id="app"></div>\n<noscript>This page needs JavaScript. The command line needs none: cosmic --help'
        "</noscript>",
    )


def problem_page(status: int, sentence: str) -> str:
    """Return the page of an error."""
    titles = {403: "Access denied", 404: "Not found", 429: "Too many requests"}
    title = titles.get(status, "Request failed")
    body = f'<main>\n<h1>{title}</h1>\n<p>{escape(sentence)}</p>\n<p><a href="/">All studies</a></p>\n</main>'
    return PAGE_TEMPLATE.format(title=f"{status} · COSMIC", links="" if status == 403 else STYLE_LINK, body=body)


@cache
def front_file(address: str) -> bytes:
    """Return a built file of the front end, one of `FRONT_FILES`."""
    return files("cosmic.report").joinpath("front", address.removeprefix("/")).read_bytes()
