"""Hooks of mkdocs: pages of the repository's root, folders in the navigation, links to code.

Pages are also read on GitHub, where a link to a source file works. The site has no such files, so that the hook keeps
the link's text and drops the link.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

DOCS = Path(__file__).parent
ROOT = DOCS.parent
COPIED = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
"""Pages of the repository's root, and what they are called in the site."""
LINK = re.compile(r"(?<!!)\[([^\]\[]*(?:\[[^\]]*\][^\]\[]*)*)\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Fill in the navigation: ``folder/*`` is every page of a folder, its README first."""
    config.nav = [_filled(entry) for entry in config.nav or []]
    return config


def _filled(entry: dict[str, Any]) -> dict[str, Any]:
    ((title, value),) = entry.items()
    if isinstance(value, list):
        return {title: [_filled(inner) for inner in value]}
    if not value.endswith("/*"):
        return entry
    folder = value.removesuffix("/*")
    pages = sorted((DOCS / folder).glob("*.md"), key=lambda path: (path.stem != "README", path.name))
    return {title: [{_title(path): f"{folder}/{path.name}"} for path in pages]}


def _title(path: Path) -> str:
    """Return the heading of a page."""
    heading = re.search(r"^# (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return heading[1] if heading else path.stem


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the repository's root, where the site has none of that name."""
    for source, target in COPIED.items():
        if files.get_file_from_path(target) is None:
            text = (ROOT / source).read_text(encoding="utf-8")
            files.append(File.generated(config, target, content=_relinked(text, ROOT, Path(target).parent)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links that leave the documentation to copies of their targets, or drop them."""
    if page.file.src_uri in COPIED.values():  # relinked when they were copied
        return markdown
    here = Path(page.file.src_uri).parent
    return _relinked(markdown, DOCS / here, here)


def _relinked(text: str, folder: Path, here: Path) -> str:
    """Return *text*, whose links are relative to *folder*, with links of a page in the folder *here* of the site."""
    parts: list[str] = []
    last = 0
    for fence in FENCE.finditer(text):  # code is left alone
        parts += [_links(text[last : fence.start()], folder, here), fence[0]]
        last = fence.end()
    return "".join([*parts, _links(text[last:], folder, here)])


def _links(text: str, folder: Path, here: Path) -> str:
    def link(match: re.Match[str]) -> str:
        words, target = match[1], match[2]
        if re.match(r"[a-z]+:|#", target):
            return match[0]
        path, _, anchor = target.partition("#")
        found = (folder / path).resolve()
        place = _place(found)
        if place is None:
            return words if "`" in words else f"`{words}`" if "/" in words else words
        to = os.path.relpath(place, here).replace(os.sep, "/")
        return f"[{words}]({to}{'#' + anchor if anchor else ''})"

    return LINK.sub(link, text)


def _place(found: Path) -> str | None:
    """Return the path in the site of a file of the repository; None where the site has none."""
    if found.is_dir() and (found / "README.md").is_file():
        found /= "README.md"
    if found.is_relative_to(DOCS) and found.suffix != ".py":
        return found.relative_to(DOCS).as_posix()
    return COPIED.get(found.name) if found.parent == ROOT else None


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Add the two elements that the theme's dark-mode switch needs even without syntax highlighting."""
    return output.replace("</head>", '<meta id="hljs-light"><meta id="hljs-dark"></head>', 1)


def on_post_build(config: MkDocsConfig) -> None:
    """Let the search work where the site is opened from disk: the index as a script, and no worker."""
    folder = Path(config.site_dir, "search")
    index = (folder / "search_index.json").read_text(encoding="utf-8")
    (folder / "search_index.js").write_text(f"window.searchIndex = {index};\n", encoding="utf-8")
    (folder / "main.js").write_text((DOCS / "javascripts" / "search.js").read_text(encoding="utf-8"), encoding="utf-8")
    for name in ("worker.js", "lunr.js"):  # what the theme would search with
        (folder / name).unlink()
