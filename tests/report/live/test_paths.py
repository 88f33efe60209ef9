"""Nobody gets out of the directory that is shown, by whatever name and at whatever address."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import APIRoute

from cosmic.base.errors import CosmicError
from cosmic.report.live.request_checks import Refusal
from cosmic.report.live.server import make_application
from cosmic.report.live.study_paths import StudyRoot
from tests.report.live.asking import Answer, Client, spoken, tell
from tests.report.live.conftest import SECRET
from tests.report.live.traversal import STRINGS

DAMAGED = ("linked-inputs", "linked-trials", "piped")
"""Studies with files that are links or pipes: their rows say so, and nothing else answers."""
LISTED = (b'{"id": ', b"retry: ")
USUAL = {"study": "study", "trial": "0", "space": "cosmic-512-full-stack"}


def addresses(client: Client) -> list[tuple[str, str, str]]:
    """Return every method, address and parameter in it that takes a name: new ones are found by themselves."""
    found = []
    for route in make_application(client.site).routes:
        if isinstance(route, APIRoute):
            for parameter in re.findall(r"{(\w+)}", route.path):
                found += [(method, route.path, parameter) for method in route.methods or ()]
    return found


def check(answer: Answer, what: object, *, listed: bool = False) -> None:
    assert 400 <= answer.status < 500 or (listed and answer.body.startswith(LISTED)), (what, answer.status)
    assert SECRET.encode() not in answer.body, what
    assert b"root:" not in answer.body, what
    assert b"Traceback" not in answer.body, what


@pytest.mark.long
def test_no_name_in_an_address_leads_out(client: Client) -> None:
    found = addresses(client)
    assert len(found) >= 12
    assert {parameter for _, _, parameter in found} <= set(USUAL), "say what a usual value of the new parameter is"
    count = 0
    for method, path, parameter in found:
        for name in STRINGS:
            for written in {spoken(name), name}:
                target = filled(path, {**USUAL, parameter: written})
                if "?" in target and "?" in name:
                    target = target.partition("?")[0]
                answer = client.get(target) if method == "GET" else client.post(target, {})
                if parameter == "study" and written != spoken(name) and is_usual(target):
                    continue  # a name such as "study#x" or "" may leave a usual address
                check(answer, (method, target), listed=name in DAMAGED and path.endswith(("/status", "/events")))
                count += 1
    tell(f"{count} names in {len(found)} addresses")
    assert count >= 150 * len(found)


def filled(path: str, values: dict[str, str]) -> str:
    """Return an address with a value for each parameter."""
    return re.sub(r"{(\w+)}", lambda part: values[part[1]], path)


def is_usual(target: str) -> bool:
    """Return whether an address names the study that may be seen."""
    return "/studies/study" in target or target.rstrip("/") == "/api/studies"


def bodies(name: str) -> list[tuple[str, Any]]:
    """Return every place of a body in which something is named."""
    designs = [
        {"study": name},
        {"study": "study", "trial": name},
        {"design": name},
        {"design": f"{name}@cosmic-512"},
        {"design": f"gpt3-175b@{name}"},
        {"design": {"model": name, "system": "cosmic-512"}},
        {"design": {"model": {"base": name}, "system": "cosmic-512"}},
        {"design": {"model": "gpt3-175b", "system": name}},
        {"design": {"model": "gpt3-175b", "system": "cosmic-512", "compute": name}},
        {"design": {"model": "gpt3-175b", "system": "cosmic-512", "compute": {"accelerator": name}}},
        {"design": "gpt3-175b@cosmic-512", "settings": {"model.base": name}},
        {"design": "gpt3-175b@cosmic-512", "settings": {"model": name}},
        {"design": "gpt3-175b@cosmic-512", "settings": {"compute.accelerator": name}},
        {"design": "gpt3-175b@cosmic-512", "settings": {"accelerator": name}},
        {"design": "gpt3-175b@cosmic-512", "settings": {"compute": {"accelerator": name}}},
        {"design": "gpt3-175b@cosmic-512", "settings": {"system": name}},
        {"study": "study", "trial": 0, "settings": {"model.base": name}},
        {"study": "study", "trial": 0, "settings": {"compute.accelerator": name}},
        {"study": "study", "trial": 0, "settings": {"accelerator": name}},
    ]
    searches = [{"space": name}, {"space": "cosmic-512-full-stack", "agent": name}]
    found = [("/api/designs", each) for each in designs] + [("/api/designs/design.yaml", each) for each in designs[:3]]
    return found + [("/api/searches", each) for each in searches] + [("/api/count", {"space": name})]


@pytest.mark.long
def test_no_name_in_a_body_leads_out(client: Client) -> None:
    count = 0
    for name in STRINGS:
        for target, body in bodies(name):
            check(client.post(target, body), (target, body))
            count += 1
    tell(f"{count} bodies")


def test_no_name_in_a_query_leads_out(client: Client) -> None:
    for name in STRINGS:
        check(client.get(f"/api/compare?study={spoken(name)}"), name)
        check(client.get(f"/api/compare?study=study&study={spoken(name)}"), name)
        check(client.get(f"/api/studies/study/block?after={spoken(name or 'x')}"), name)


def test_a_new_study_is_called_as_a_file_may_be(client: Client, runs: Path) -> None:
    client.site.searches.most = 10**6
    before = sorted(path.name for path in runs.parent.iterdir())
    for name in STRINGS:
        if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}", name):
            continue
        with pytest.raises((CosmicError, UnicodeError)):
            client.site.root.make(name)
        answer = client.post("/api/searches", {"space": "cosmic-512-full-stack", "trials": 1, "name": name})
        check(answer, name)
    assert sorted(path.name for path in runs.parent.iterdir()) == before


def test_what_is_linked_is_not_there_and_what_links_is_damaged(client: Client) -> None:
    rows = {row["id"]: row for row in client.get("/api/studies").json["studies"]}
    assert set(rows) == {"study", *DAMAGED}
    assert rows["study"]["problem"] is None
    for name in DAMAGED:
        assert rows[name]["state"] == "damaged"
        assert "no regular file" in rows[name]["problem"]


def test_a_root_is_a_directory_and_no_study(runs: Path) -> None:
    with pytest.raises(CosmicError, match="is a study itself"):
        StudyRoot.resolve(runs / "study")
    with pytest.raises(CosmicError, match="is no directory"):
        StudyRoot.resolve(runs / "plain-file")
    assert StudyRoot.resolve(runs / "not-there-yet").studies() == []


def test_a_root_that_is_a_link_is_followed_once(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(runs, target_is_directory=True)
    root = StudyRoot.resolve(tmp_path / "link")
    assert "study" in root.studies()
    assert root.folder("study") == runs.resolve() / "study"
    with pytest.raises(Refusal):
        root.folder("linked")
