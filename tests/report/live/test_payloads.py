"""Script in the names of studies and spaces stays text."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from cosmic.report.live.study_paths import is_study_name
from cosmic.search.study.study import open_study, render_inputs
from tests.payloads import PAYLOADS
from tests.report.live.asking import Client, spoken, tell
from tests.report.publishing.unpacking import unpack_container


@pytest.mark.long
def test_names_are_text_in_every_answer(client: Client, runs: Path) -> None:
    assert len(PAYLOADS) >= 100
    inputs = open_study(runs / "study").inputs
    named = {}
    for place, payload in enumerate(PAYLOADS):
        name = payload.replace("/", "∕") if is_study_name(payload.replace("/", "∕")) else f"payload-{place}"
        if len(name.encode()) > 200 or (runs / name).exists():
            name = f"payload-{place}"
        shutil.copytree(runs / "study", runs / name)
        (runs / name / "study.json").write_text(render_inputs(replace(inputs, space={**inputs.space, "name": payload})))
        named[name] = payload
    listed = client.get("/api/studies")
    assert listed.header("content-type") == "application/json"
    rows = {row["id"]: row for row in listed.json["studies"]}
    assert {name: rows[name]["space"] for name in named} == named
    for name in named:
        answer = client.get(f"/api/studies/{spoken(name)}/status")
        assert (answer.status, answer.json["id"]) == (200, name)
    for name in list(named)[::40]:
        document = client.get(f"/api/studies/{spoken(name)}")
        assert document.header("content-type") == "application/vnd.cosmic.container"
        assert named[name] in unpack_container(document.body)[0]["title"]
        yaml = client.get(f"/api/studies/{spoken(name)}/trials/0/design.yaml")
        assert str(yaml.header("content-disposition")).isascii()
    tell(f"{len(named)} payloads, {sum(not name.startswith('payload-') for name in named)} of them directories")


def test_a_page_that_says_what_is_wrong_shows_text(client: Client) -> None:
    for payload in PAYLOADS:
        for answer in (client.get(f"/{spoken(payload)}"), client.get(f"/x?{spoken(payload)}")):
            assert answer.status == 404
            text = answer.body.decode()
            assert "<script" not in text.lower()
            assert "alert(1)>" not in text
            assert text.count("<") == text.count(">")
        api = client.get(f"/api/studies/{spoken(payload)}/status")
        assert api.header("content-type") == "application/json"
        assert api.status in (200, 404)
