"""The page: one file that needs nothing else, in which given text stays text."""

from __future__ import annotations

import gzip
import json
import re
from base64 import b64decode, b64encode
from dataclasses import replace
from hashlib import sha256
from html.parser import HTMLParser
from typing import Any

import pytest

from cosmic.report.html_file import FRONT
from cosmic.report.study_report import report
from cosmic.search.search_loop import Found, search
from tests.payloads import PAYLOADS
from tests.report.publishing.studies import found
from tests.report.publishing.unpacking import unpack_container

ELEMENTS = {"html", "head", "meta", "link", "title", "style", "body", "main", "noscript", "script"}
ELEMENTS |= {"h1", "p", "table", "tbody", "tr", "th", "td", "pre", "code"}
ATTRIBUTES = {"lang", "charset", "http-equiv", "content", "name", "rel", "href", "id", "class", "scope", "type"}
SHELL = 120_000
TINY = {"base": "llama3-8b@dgx-h100:1", "parameters": {"workload.task": ["decode"]}}


class Reader(HTMLParser):
    """What a browser makes of a page: its elements, attributes and text."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text: list[str] = []
        self.inside: list[str] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.styles: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """An element begins."""
        self.elements.append(tag)
        self.attributes += attrs
        self.inside = [tag]
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_endtag(self, tag: str) -> None:
        """An element ends."""
        self.inside = []

    def handle_data(self, data: str) -> None:
        """There is text."""
        if self.inside == ["script"]:
            attributes, before = self.scripts[-1]
            self.scripts[-1] = (attributes, before + data)
        elif self.inside == ["style"]:
            self.styles.append(data)
        else:
            self.text.append(data)

    def handle_comment(self, data: str) -> None:
        """There is a comment."""
        self.elements.append(f"comment {data}")


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    return reader


@pytest.fixture(scope="module")
def page() -> str:
    """A report of four hundred trials."""
    return report(found(agent="genetic"), isolated=20).html


def hash_of(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def carried(page: str, name: str) -> bytes:
    text = next(text for attributes, text in read(page).scripts if attributes.get("id") == name)
    return gzip.decompress(b64decode(text))


def test_the_policy_allows_what_the_page_is_made_of_and_no_more(page: str) -> None:
    reader = read(page)
    policy = next(
        value or "" for name, value in reader.attributes if name == "content" and "default-src" in (value or "")
    )
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    assert "http:" not in policy
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    running = [text for attributes, text in reader.scripts if not attributes.get("type")]
    running.append((FRONT / "report.js").read_text())
    assert rules["script-src"].split() == [hash_of(text) for text in running]
    styles = [reader.styles[0], (FRONT / "style.css").read_text()]
    assert rules["style-src"].split() == [hash_of(text) for text in styles]


def test_the_page_names_nothing_outside_itself(page: str) -> None:
    addresses = [value for name, value in read(page).attributes if name in ("href", "src", "action", "srcset")]
    assert addresses == ["data:,"]


def test_the_script_that_is_unpacked_is_the_one_that_the_policy_names(page: str) -> None:
    assert carried(page, "cosmic-script").decode() == (FRONT / "report.js").read_text()
    assert carried(page, "cosmic-style").decode() == (FRONT / "style.css").read_text()


def test_the_page_says_the_verdict_before_any_script_runs(page: str) -> None:
    content, _ = unpack_container(carried(page, "cosmic-document"))
    said = "".join(read(page).text)
    assert content["verdict"]["sentence"] in said
    assert content["verdict"]["command"] in said
    assert "need JavaScript" in said


def test_the_same_study_gives_the_same_bytes() -> None:
    once, again = (report(found(agent="genetic"), isolated=20).html for _ in range(2))
    assert once == again


@pytest.mark.long
def test_a_page_without_its_trials_stays_small() -> None:
    """Budget: 120 KB and 25 bytes a trial, the script of the page and all designs included."""
    made = found(10_000, "random", 0)
    assert len(report(made, isolated=1000).html.encode()) <= SHELL + 25 * len(made.trials)


@pytest.fixture(scope="module")
def tiny() -> Found:
    """A search of one design."""
    return search(TINY, trials=1)


@pytest.mark.parametrize("payload", PAYLOADS)
def test_hostile_text_stays_text(payload: str, tiny: Found) -> None:
    name = payload if payload.isprintable() else "refused otherwise"
    names = {"name": name, "title": payload, "source": payload}
    html = report(replace(tiny, inputs=replace(tiny.inputs, space={**tiny.inputs.space, **names})), isolated=0).html
    reader = read(html)
    assert set(reader.elements) <= ELEMENTS
    assert {name for name, _ in reader.attributes} <= ATTRIBUTES
    assert len(reader.scripts) == 4
    content, _ = unpack_container(carried(html, "cosmic-document"))
    assert ["title", payload] in content["trust"]["inputs"]
    assert content["title"].startswith(name)


def test_all_hostile_names_at_once_stay_text() -> None:
    """Names of workloads stand in reasons, caveats and parameters' labels."""
    printable = filter(str.isprintable, PAYLOADS)  # other names are refused
    names: dict[str, Any] = {f"{payload} {place}": {} for place, payload in enumerate(printable)}
    made = search({**TINY, "name": "many", "workloads": names}, trials=1, constraints=["memory_bytes <= 1 GB"])
    reader = read(report(made, isolated=0).html)
    assert set(reader.elements) <= ELEMENTS
    assert {name for name, _ in reader.attributes} <= ATTRIBUTES


def test_a_notebook_shows_the_page_in_a_frame_that_reaches_nothing() -> None:
    made = report(found(trials=2), isolated=0)
    frame = read(made._repr_html_())
    assert frame.elements == ["iframe"]
    attributes = dict(frame.attributes)
    assert attributes["sandbox"] == "allow-scripts"
    assert attributes["srcdoc"] == made.html


def test_the_document_is_json_that_anybody_can_read(page: str) -> None:
    content, binary = unpack_container(carried(page, "cosmic-document"))
    assert json.loads(json.dumps(content)) == content
    last = content["trials"]["outcomes"]
    assert last["offset"] + last["count"] == len(binary)


def test_no_time_but_the_study_s_own_is_in_it(page: str) -> None:
    content, _ = unpack_container(carried(page, "cosmic-document"))
    assert not re.search(r"\d{4}-\d\d-\d\dT", json.dumps({**content, "trust": {**content["trust"], "inputs": []}}))
