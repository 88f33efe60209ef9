"""Studies are listed, opened, watched and compared, and never written to."""

from __future__ import annotations

import shutil
import sqlite3
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from cosmic.report.live.server import LiveSite, watch_study
from cosmic.report.live.study_library import GrowingStorage, StudyTally, is_lock_held
from cosmic.search.search_loop import search
from cosmic.search.study.study import open_study, render_inputs
from tests.report.live.asking import Client
from tests.report.live.conftest import SPACE
from tests.report.publishing.unpacking import numbers_of, unpack_container


def test_a_row_says_what_the_study_holds(client: Client, runs: Path) -> None:
    study = open_study(runs / "study")
    row = client.get("/api/studies/study/status").json
    best = study.trials.best(study.problem)
    assert best is not None
    assert (row["problem"], row["state"], row["ours"]) == (None, "done", False)
    assert (row["space"], row["agent"], row["seed"], row["trials"]) == (SPACE, "random", 3, 60)
    assert row["n"] == len(study.trials)
    assert (row["evaluated"], row["feasible"]) == (study.trials.evaluated, study.trials.feasible)
    assert row["best"] == study.trials.results.columns["perf_per_bandwidth"][best]
    assert row["created"] == study.created


def test_the_document_is_the_reports(client: Client, runs: Path) -> None:
    document, binary = unpack_container(client.get("/api/studies/study").body)
    study = open_study(runs / "study")
    trials = document["trials"]
    assert (document["format"], trials["first"], trials["count"]) == (1, 0, len(study.trials))
    outcomes = numbers_of(trials["outcomes"], binary)
    assert np.array_equal(outcomes == 0, study.trials.results.feasible)


def test_a_block_goes_on_where_the_last_ended(client: Client, runs: Path) -> None:
    whole, binary = unpack_container(client.get("/api/studies/study/block").body)
    total = len(open_study(runs / "study").trials)
    assert (whole["n"], whole["total"], whole["state"]) == (total, total, "done")
    later, more = unpack_container(client.get("/api/studies/study/block?after=25").body)
    assert (later["block"]["first"], later["block"]["count"]) == (25, total - 25)
    names = [column["name"] for column in whole["block"]["columns"]]
    assert [column["name"] for column in later["block"]["columns"]] == names
    at = names.index("workload.dp")
    both = [
        numbers_of(part["block"]["columns"][at]["coding"]["codes"], numbers)
        for part, numbers in ((whole, binary), (later, more))
    ]
    assert np.array_equal(both[0][25:], both[1])
    nothing, _ = unpack_container(client.get(f"/api/studies/study/block?after={total}").body)
    assert nothing["block"]["count"] == 0


def test_nothing_new_is_not_sent_again(client: Client) -> None:
    tag = client.get("/api/studies/study/block?after=3").header("etag")
    assert tag is not None
    answer = client.get("/api/studies/study/block?after=3", [("if-none-match", tag)])
    assert (answer.status, answer.body) == (304, b"")
    assert client.get("/api/studies/study/block?after=4", [("if-none-match", tag)]).status == 200


def test_a_trial_is_opened_as_a_design(client: Client, runs: Path) -> None:
    study = open_study(runs / "study")
    best = study.trials.best(study.problem)
    assert best is not None
    design, _ = unpack_container(client.get("/api/studies/study/trials/best").body)
    assert (design["trial"], design["feasible"]) == (best, True)
    assert design["step_s"] == study.trials.results.columns["step_s"][best]
    assert design["identity"] == study.problem.space.point(study.trials.rows[best]).identity
    yaml = client.get(f"/api/studies/study/trials/{best}/design.yaml")
    assert yaml.body.decode() == design["yaml"]
    assert yaml.header("content-disposition") == f"attachment; filename*=UTF-8''study-{best}.yaml"
    values = client.get(f"/api/studies/study/trials/{best}/values").json
    assert values["values"] | values["derived"] == study.problem.space.labels(study.trials.rows[best])
    assert unpack_container(client.get("/api/studies/study/trials/base").body)[0]["role"] == "base"
    assert client.get(f"/api/studies/study/trials/{len(study.trials)}").status == 404


def test_studies_are_compared(client: Client, runs: Path) -> None:
    shutil.copytree(runs / "study", runs / "other")
    found = client.get("/api/compare?study=study&study=other").json
    assert found["objective"] == "perf_per_bandwidth"
    assert [row["study"] for row in found["studies"]] == ["study", "other"]
    assert found["curves"][0]["points"] == found["curves"][1]["points"]
    assert found["curves"][0]["points"][-1][1] == found["studies"][0]["best"]
    assert found["curves"][0]["points"][-1][0] == found["studies"][0]["trials"]  # to its end, not to its last gain
    assert client.get("/api/compare").status == 422
    assert client.get("/api/compare?" + "&".join(f"study={n}" for n in range(13))).status == 422


def test_a_damaged_study_is_listed_with_its_problem_and_breaks_nothing(client: Client, runs: Path) -> None:
    for name in ("no-inputs", "no-trials", "garbage", "torn", "changed"):
        shutil.copytree(runs / "study", runs / name)
    (runs / "no-inputs" / "study.json").unlink()
    (runs / "no-trials" / "trials.db").unlink()
    (runs / "garbage" / "trials.db").write_bytes(b"\x00garbage" * 999)
    (runs / "torn" / "study.json").write_text('{"format": 1, ')
    with sqlite3.connect(runs / "changed" / "trials.db") as connection:
        connection.execute("UPDATE packed SET content = zeroblob(length(content)) WHERE first <= 7")
    connection.close()
    rows = {row["id"]: row for row in client.get("/api/studies").json["studies"]}
    for name in ("no-inputs", "no-trials", "garbage", "torn", "changed"):
        assert rows[name]["state"] == "damaged"
        assert str(runs) not in rows[name]["problem"]
        answer = client.get(f"/api/studies/{name}")
        assert answer.status == 409
        assert str(runs) not in answer.error
    assert rows["study"]["problem"] is None
    assert client.get("/api/studies/changed").status == client.get("/api/studies/changed/trials/7").status == 409
    assert "damaged" in client.get("/api/studies/changed/block").error


def test_a_viewer_takes_no_lock_and_sees_who_holds_one(client: Client, runs: Path) -> None:
    states = []

    def look(_: object) -> None:
        states.append(client.get("/api/studies/growing/status").json)

    search(SPACE, agent="random", trials=30, batch=10, seed=1, out=runs / "growing", watch=look)
    assert [row["state"] for row in states] == ["running"] * len(states)
    counts = [row["n"] for row in states]
    assert counts == sorted(counts)
    assert counts[-1] > counts[0]
    assert client.get("/api/studies/growing/status").json["state"] == "done"
    assert not is_lock_held(runs / "growing" / "lock")
    assert not is_lock_held(runs / "nothing" / "lock")


def test_events_say_what_is_new_once(client: Client, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site: LiveSite = client.site
    site.streams.closing = False
    monkeypatch.setattr(import_module("cosmic.report.live.server"), "INTERVAL_S", 0.01)
    monkeypatch.setattr(import_module("cosmic.report.live.server"), "HEARTBEAT_S", 0.05)
    row = client.get("/api/studies/study/status").json

    async def heard(last: str, count: int) -> list[str]:
        found = []
        stream = watch_study(lambda: site.work(site.library.pulse, "study"), site.streams, last)
        async for said in stream:
            found.append(said)
            if len(found) == count:
                break
        await stream.aclose()  # type: ignore[attr-defined]
        return found

    first = client.loop.run_until_complete(heard("", 3))
    assert first[0] == "retry: 2000\n\n"
    assert first[1].startswith(f'id: {row["seq"]}\ndata: {{"seq": {row["seq"]}, "n": {row["n"]}, "best": ')
    assert first[2] == ": still here\n\n"
    again = client.loop.run_until_complete(heard(str(row["seq"]), 2))
    assert again == ["retry: 2000\n\n", ": still here\n\n"]
    shutil.rmtree(runs / "study")
    assert client.loop.run_until_complete(heard("", 9)) == ["retry: 2000\n\n"]


def test_what_is_remembered_is_bounded(client: Client, runs: Path) -> None:
    for place in range(80):
        shutil.copytree(runs / "study", runs / f"copy-{place}")
    assert len(client.get("/api/studies").json["studies"]) == 84
    for place in range(10):
        assert client.get(f"/api/studies/copy-{place}/schema").status == 200
    library = client.site.library
    assert len(library._known) <= 64
    loaded = [known for known in library._known.values() if "problem" in known.study.inputs.__dict__]
    assert len(loaded) <= 6


def test_only_what_is_new_is_counted(runs: Path) -> None:
    with GrowingStorage.opened(runs / "study" / "trials.db") as storage:
        assert isinstance(storage, GrowingStorage)
        whole = storage.tally("step_s", StudyTally())
        assert storage.tally("step_s", whole) == whole
        assert storage.tally("step_s", StudyTally(n=whole.n - 5)).n == whole.n
        assert storage.tally("step_s", StudyTally(n=whole.n, best=1e-30)).best == 1e-30


@pytest.mark.parametrize("agent", ["exhaustive", "random"])
def test_a_search_that_ran_out_of_designs_is_done(client: Client, runs: Path, agent: str) -> None:
    search(SPACE, agent=agent, stacks=["workload"], trials=10**5, out=runs / "all")
    row = client.get("/api/studies/all/status").json
    assert row["evaluated"] < row["trials"]
    assert row["state"] == "done"


def test_more_trials_than_were_used_make_it_unfinished_again(client: Client, runs: Path) -> None:
    before = open_study(runs / "study")
    (runs / "study" / "study.json").write_text(render_inputs(replace(before.inputs, trials=90), before.created))
    assert client.get("/api/studies/study/status").json["state"] == "stopped"


def test_the_best_trial_is_the_same_on_disk_and_in_memory(runs: Path) -> None:
    goals = ["network_usd", "mfu"]
    found = search(SPACE, trials=300, stacks=["workload"], objectives=goals, out=runs / "two")
    with GrowingStorage.opened(runs / "two" / "trials.db") as storage:
        assert storage.best(goals) == found.trials.best(found.problem)
