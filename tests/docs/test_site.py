"""The site: it builds without a warning, every link works, and no page fetches anything from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parents[2]
FETCHED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src", "video": "src"}
"""Tags that make a browser fetch a file."""

pytestmark = pytest.mark.xdist_group("site")


class Document(HTMLParser):
    """The links of a page, the files it fetches, and its anchors."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.places = {""}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Record the links and anchors of a tag."""
        given = {key: value or "" for key, value in attrs}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag in FETCHED and FETCHED[tag] in given:
            self.fetched.append(given[FETCHED[tag]])
        self.places.update(given[key] for key in ("id", "name") if key in given)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the site, built now."""
    if find_spec("mkdocs") is None:
        pytest.skip("mkdocs is not installed (extra docs)")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def documents(site: Path) -> dict[Path, Document]:
    """Return every page of the site."""
    return {path: Document(path.read_text()) for path in sorted(site.rglob("*.html"))}


def is_elsewhere(target: str) -> bool:
    return bool(urlsplit(target).netloc)


@pytest.mark.long
def test_every_page_of_the_documentation_is_in_the_site(site: Path, documents: dict[Path, Document]) -> None:
    pages = {path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")}
    built = {path.relative_to(site).with_suffix(".md") for path in documents}
    renamed = {path.with_name("index.md") if path.name == "README.md" else path for path in pages}
    assert renamed <= built
    assert {Path(f"{name}.md") for name in ("index", "architecture", "contributing", "changelog")} <= built


@pytest.mark.long
def test_every_page_can_be_reached(site: Path, documents: dict[Path, Document]) -> None:
    home = site / "index.html"
    found = {(home.parent / urlsplit(link).path).resolve() for link in documents[home].links if not is_elsewhere(link)}
    missing = {path for path in documents if path.resolve() not in found} - {home, site / "404.html"}
    assert missing == set()


@pytest.mark.long
def test_every_link_leads_to_a_place_that_exists(site: Path, documents: dict[Path, Document]) -> None:
    wrong = []
    for path, document in documents.items():
        if path.name == "404.html":
            continue
        for link in document.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = Path(os.path.normpath(path.parent / unquote(parts.path))) if parts.path else path
            places = documents[target].places if target in documents else {""}
            if not target.exists() or unquote(parts.fragment) not in places:
                wrong.append(f"{path.relative_to(site)} -> {link}")
    assert wrong == []


def test_nothing_is_fetched_from_elsewhere(site: Path, documents: dict[Path, Document]) -> None:
    assert [each for document in documents.values() for each in document.fetched if is_elsewhere(each)] == []
    for path in site.rglob("*.css"):
        assert re.findall(r"url\(\s*['\"]?(?:https?:)?//|@import\s+['\"](?:https?:)?//", path.read_text()) == []


def test_no_page_names_a_file_that_only_the_repository_has(documents: dict[Path, Document]) -> None:
    links = [link for document in documents.values() for link in document.links if not is_elsewhere(link)]
    assert [link for link in links if urlsplit(link).path.endswith((".py", ".yaml", ".json", ".toml"))] == []


def test_code_is_coloured_when_the_site_is_built(site: Path) -> None:
    page = (site / "tutorials" / "notebook.html").read_text()
    assert '<span class="kn">import</span>' in page
    prompts = re.findall(r'<span class="gp">(.*?)</span>', (site / "explanation" / "search.html").read_text())
    assert set(prompts) == {"$ "}
    colours = (site / "stylesheets" / "code.css").read_text()
    used = {
        kind
        for path in site.rglob("*.html")
        for kind in re.findall(r'<span class="(k\w?|s\d|gp|c1|nb)">', path.read_text())
    }
    assert {kind for kind in used if not re.search(rf"\.{kind}[,)\s]", colours)} == set()


def test_every_language_of_a_block_is_known() -> None:
    lexers = pytest.importorskip("pygments.lexers", reason="pygments is not installed (extra docs)")
    named = {
        name
        for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
        for name in re.findall(r"^```(\w+)$", path.read_text(), re.MULTILINE)
    }
    for name in named:
        lexers.get_lexer_by_name({"yml": "yaml"}.get(name, name))  # older releases know it by one name


def test_every_page_has_the_button_that_copies(site: Path, documents: dict[Path, Document]) -> None:
    pages = [path for path in documents if path.name != "404.html"]
    assert all(any(each.endswith("javascripts/copy.js") for each in documents[path].fetched) for path in pages)
