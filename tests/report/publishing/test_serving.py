"""Reports of studies of serving: every number is one that evaluation or the closed form has."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import yaml

from cosmic.design.design_point import DesignPoint
from cosmic.design.serving_layer import Load, RequestClass
from cosmic.evaluation import evaluate
from cosmic.report.container import Binary, plain_data
from cosmic.report.document_types import ReportDocument
from cosmic.report.html_file import FRONT, render_report
from cosmic.report.serving_report import serving_report
from cosmic.report.serving_view import (
    curves_of,
    describe_missed_slos,
    loads_around,
    request_metrics_of,
    serving_part,
    slos_of,
)
from cosmic.report.study_report import ReportSubject, document_of
from cosmic.search.advice.deployment_plan import Checked, Plan
from cosmic.search.advice.service_question import Asked, Service, read_service
from cosmic.search.mapping.design_completion import load_design
from cosmic.search.objectives import read_limit
from cosmic.search.search_loop import Found, search
from cosmic.serving.deployment_candidates import Candidate, InstanceKind, InstanceShape, as_design, deployment_rows
from cosmic.serving.deployment_search import FoundDeployments as DeploymentsFound
from cosmic.serving.serving_metrics import Slo, read_slo
from cosmic.simulate.metrics import Metrics
from tests.report.publishing.studies import found as trained
from tests.report.publishing.studies import serving
from tests.report.publishing.unpacking import coding_of, numbers_of

OSL = 200


@pytest.fixture(scope="module")
def made() -> Found:
    return search(serving(), trials=100)


@pytest.fixture(scope="module")
def binary() -> Binary:
    return Binary()


@pytest.fixture(scope="module")
def contents(made: Found, binary: Binary) -> ReportDocument:
    return document_of(ReportSubject(made), binary)


@pytest.fixture(scope="module")
def document(contents: ReportDocument) -> dict[str, Any]:
    return plain_data(contents)


def best(document: dict[str, Any]) -> dict[str, Any]:
    assert document["best"] is not None
    design: dict[str, Any] = document["designs"][document["best"]]
    return design


def point_of(design: dict[str, Any]) -> DesignPoint:
    return load_design(yaml.safe_load(design["yaml"]))


def served(**load: Any) -> DesignPoint:
    """Return a deployment of two instances under a load."""
    sizes = {"isl": 1000, "osl": OSL, "ttft_slo": "1 s", "tpot_slo": "20 ms", **load}
    mapping = {"tp": 2, "dp": 2, "pp": 1, "micro_batch": 1}
    tree = {"model": "llama3-8b", "system": "dgx-h100:4", "workload": mapping, "serving": {"load": sizes}}
    return load_design(tree)


def value(facts: list[dict[str, Any]], label: str) -> float:
    found: float | None = next(each["value"] for each in facts if each["label"] == label)
    assert found is not None
    return found


# ---- verdict


def test_the_verdict_is_in_words_of_serving(document: dict[str, Any]) -> None:
    verdict, shown = document["verdict"], best(document)
    point = point_of(shown)
    metrics = evaluate(point)
    assert isinstance(metrics, Metrics)
    assert metrics.tokens_per_s_per_npu is not None
    assert verdict["headline"].startswith("llama3-8b on 8 × h100-sxm-80gb: ")
    assert "tokens/s per GPU" in verdict["headline"]
    assert "requests in flight, 1,000 tokens in and 200 out; vllm, " in verdict["design"]
    facts = verdict["facts"]
    assert facts == shown["facts"]
    assert value(facts, "time to first token") == pytest.approx(metrics.ttft_s)
    assert value(facts, "P95 time per output token") == pytest.approx(metrics.tpot_p95_s)
    assert value(facts, "tokens/s per GPU") == pytest.approx(metrics.throughput_per_s / 8)
    assert value(facts, "requests/s") == pytest.approx(metrics.throughput_per_s / OSL)
    assert metrics.cost_usd_per_token is not None
    assert value(facts, "cost per million tokens") == pytest.approx(1e6 * metrics.cost_usd_per_token)
    # Little's law: requests in flight are those that arrive while one is there
    load = point.serving.load if point.serving else None
    assert load is not None
    assert value(facts, "requests/s") * value(facts, "end to end") == pytest.approx(load.concurrency, rel=0.02)


def test_a_best_design_that_misses_its_limits_says_so() -> None:
    slow = served(concurrency=4, tpot_slo="1 ms")
    (said,) = describe_missed_slos(slow)
    assert said.startswith("The best design misses TPOT p95 ≤ 1 ms (")
    assert "--constraint 'tpot_p95_s <= 1 ms'" in said
    assert describe_missed_slos(served(concurrency=4)) == []


def test_limits_are_those_of_requests_and_of_the_search_and_the_tightest_counts() -> None:
    kinds = (RequestClass(name="a", isl=1, osl=1, ttft_slo_s=2.0), RequestClass(name="b", isl=1, osl=1, ttft_slo_s=1.5))
    limits = [
        read_limit("ttft_p95_s <= 1 s"),
        read_limit("tpot_s <= 30 ms"),
        read_limit("memory_bytes <= 1 GB"),
        read_limit("mfu >= 0.1"),
    ]
    assert [each.text for each in slos_of(Load(classes=kinds, rate=1.0))] == ["TTFT p95 ≤ 1.5 s"]
    assert [each.text for each in slos_of(Load(classes=kinds, rate=1.0), limits)] == [
        "TTFT p95 ≤ 1 s",
        "TPOT mean ≤ 30 ms",
    ]


# ---- trials


def test_trials_say_where_they_prefill(made: Found, document: dict[str, Any], binary: Binary) -> None:
    space, trials = made.problem.space, made.trials
    points = [space.point(row).serving for row in trials.points]
    expected = [int(each is not None and each.disaggregated) for each in points]
    kinds = numbers_of(document["trials"]["pools"], b"".join(binary.planes))
    assert kinds.tolist() == expected
    assert set(expected) == {0, 1}
    assert document["serving"]["user"] == "tokens_per_s_per_user"
    labels = {each["name"]: each["label"] for each in document["trials"]["columns"]}
    assert labels["tokens_per_s_per_npu"] == "tokens/s per GPU"


# ---- design


def test_pools_take_every_accelerator_once(document: dict[str, Any]) -> None:
    base = document["designs"][0]
    assert base["serving"]["kind"] == "disaggregated"
    assert [each["mapping"] for each in base["serving"]["pools"]] == ["tp 2", "tp 2"]
    assert [each["instances"] for each in base["serving"]["pools"]] == [1, 3]
    for design in document["designs"]:
        serving = design["serving"]
        pools = {each["name"]: each for each in serving["pools"]}
        assert sum(each["npus"] for each in pools.values()) == 8
        assert list(pools) == (["all"] if serving["kind"] == "aggregated" else ["prefill", "decode"])
        running = pools.get("all", pools.get("decode"))
        assert running is not None
        assert running["running"] is not None
        assert 0 < (running["kv_use"] or 0) <= 1


def test_parts_add_up_and_the_step_shown_is_one_of_decode(document: dict[str, Any]) -> None:
    shown = best(document)
    spent = {each["name"]: each for each in shown["serving"]["spent"]}
    assert list(spent) == ["ttft", "tpot", "decode"]
    assert spent["decode"]["seconds"] == pytest.approx(shown["step_s"])
    times = {each["name"]: each["mean_s"] for each in shown["serving"]["latencies"]}
    assert spent["ttft"]["seconds"] == pytest.approx(times["ttft"], rel=0.01)
    assert spent["tpot"]["seconds"] == pytest.approx(times["tpot"], rel=0.01)
    for each in spent.values():
        assert sum(part["seconds"] for part in each["parts"]) == pytest.approx(each["seconds"])
    assert shown["timeline"] is not None
    assert shown["cluster"] is not None
    assert "of a decode step" in shown["bound"]


def test_latencies_are_those_of_the_closed_form(document: dict[str, Any]) -> None:
    shown = best(document)
    seen = request_metrics_of(point_of(shown))
    times = {each["name"]: each for each in shown["serving"]["latencies"]}
    assert times["ttft"]["p95_s"] == pytest.approx(seen.ttft.p95_s)
    assert times["e2e"]["mean_s"] == pytest.approx(seen.e2e.mean_s)
    assert times["ttft"]["slo"] is not None
    assert times["e2e"]["slo"] is None


def test_a_deployment_is_launched_by_its_engine(document: dict[str, Any]) -> None:
    launch = best(document)["launch"]
    assert launch is not None
    assert launch["target"] == "vLLM"
    assert launch["export"].endswith("--to vllm")


# ---- curves


def curves(point: DesignPoint) -> dict[str, Any]:
    found: dict[str, Any] | None = plain_data(serving_part(point))["curves"]
    assert found is not None
    return found


@pytest.mark.parametrize(("own", "closed"), [(64.0, True), (3.0, True), (1.0, True), (2.5, False)])
def test_loads_are_from_a_sixteenth_to_twice_the_designs_own(own: float, closed: bool) -> None:
    loads = loads_around(own, closed=closed)
    assert own in loads
    assert loads == sorted(set(loads))
    assert loads[0] == pytest.approx(max(1.0, round(own / 16)) if closed else own / 16)
    assert loads[-1] == pytest.approx(2 * own)


def test_curves_are_what_the_design_does_under_other_loads() -> None:
    point = served(concurrency=32)
    shown = curves(point)
    assert shown["at"] == 32
    for place in (0, shown["loads"].index(32), -1):
        load = int(shown["loads"][place])
        other = evaluate(point.changed({"serving.load.concurrency": load}))
        assert isinstance(other, Metrics)
        assert shown["ttft"]["p95_s"][place] == pytest.approx(other.ttft_p95_s, rel=1e-4)
        assert shown["tpot"]["p95_s"][place] == pytest.approx(other.tpot_p95_s, rel=1e-4)
        assert shown["tokens_per_s_per_npu"][place] == pytest.approx(other.tokens_per_s_per_npu, rel=1e-4)
    tail = [each for each in shown["tpot"]["p95_s"] if each is not None]
    assert tail == sorted(tail)  # more requests in a step take longer


def test_the_largest_load_that_holds_is_the_last_below_the_first_that_does_not() -> None:
    point = served(concurrency=256, tpot_slo="8 ms")
    shown = curves(point)
    assert shown["holds"] is not None
    place = shown["loads"].index(shown["holds"])
    holds = [
        (ttft or np.inf) <= 1.0 and (tpot or np.inf) <= 8e-3
        for ttft, tpot in zip(shown["ttft"]["p95_s"], shown["tpot"]["p95_s"], strict=True)
    ]
    assert holds[: place + 2] == [True] * (place + 1) + [False]
    assert f"up to {shown['holds']:,.0f} requests in flight" in shown["reading"]


def test_arrivals_beyond_what_a_deployment_serves_have_no_latency() -> None:
    light = curves(served(rate=2.0))
    assert light["unit"] == "1/s"
    assert light["saturated"] is None
    heavy = served(rate=400.0)
    shown = plain_data(curves_of(heavy, []))
    assert shown is not None
    assert shown["saturated"] is not None
    assert shown["saturated"] < 400
    place = int(np.searchsorted(shown["loads"], shown["saturated"] * 0.9999))
    assert shown["ttft"]["p95_s"][place:] == [None] * (len(shown["loads"]) - place)
    assert None not in shown["ttft"]["p95_s"][:place]
    assert "is more than it can serve" in shown["reading"]


def test_a_load_that_is_far_too_much_has_curves_of_what_can_be_served() -> None:
    shown = plain_data(curves_of(served(rate=1e6), []))
    assert shown is not None
    assert shown["saturated"] is not None
    assert shown["at"] == 1e6 > shown["loads"][-1]
    assert sum(each is not None for each in shown["ttft"]["p95_s"]) >= 2
    assert shown["reading"].startswith("Its own load, 1,000,000 requests/s, is more than it can serve.")


# ---- whole pages


def test_each_workload_of_a_mix_is_in_its_own_words() -> None:
    chat = {"weight": 3, "serving": {"load": {"isl": 1000, "osl": OSL, "concurrency": 16}}}
    space = serving(
        base={"model": "llama3-8b", "system": "dgx-h100:8", "workload": {"tp": 2, "dp": 4, "pp": 1, "global_batch": 8}},
        workloads={"train": {"weight": 1}, "chat": chat},
        parameters={"workload.{dp,tp}": [[4, 2], [2, 4], [1, 8]]},
        objective="tokens_per_s",
    )
    document = plain_data(document_of(ReportSubject(search(space, trials=3)), Binary()))
    train, talk = document["verdict"]["workloads"]
    assert train["headline"].endswith("tokens/s/GPU")
    assert "tokens/s per user" in talk["headline"]
    assert "step" in [each["label"] for each in train["facts"]]
    assert "time to first token" in [each["label"] for each in talk["facts"]]
    assert [each["label"] for each in document["designs"]] == ["train", "chat"]
    assert ["serving" in each for each in document["designs"]] == [False, True]


@pytest.fixture(scope="module")
def planned() -> Plan:
    """What a search for deployments of a small model finds, without the simulations that would confirm it."""
    limits = [read_slo("p95 <= 1 s", "ttft"), read_slo("p99 <= 30 ms", "tpot")]
    asked = Asked(
        input=1000, output=OSL, rate=4.0, limits_s={each.metric: each.limit_s for each in limits}, largest=True
    )
    service = read_service("llama3-8b@dgx-h100:8", {}, asked)
    kinds = [InstanceKind(InstanceShape(tp=1)), InstanceKind(InstanceShape(tp=2))]
    one, cheapest = fronts(service, kinds, limits)
    two, _ = fronts(service, [InstanceKind(each.shape, InstanceShape(tp=1)) for each in kinds], limits)
    machine = service.sized(cheapest.npus)
    assert machine is not None
    design = as_design(machine, cheapest.kind, cheapest.instances)
    asked_limits = tuple(limits)
    checked = Checked(cheapest, design, cheapest.metrics, True, limits=asked_limits)
    return Plan(one, two, (checked,), (), cheapest.npus, 0.1, service, limits=asked_limits)


def fronts(service: Service, kinds: list[InstanceKind], limits: list[Slo]) -> tuple[DeploymentsFound, Candidate]:
    """Return what a search of some kinds finds, and one of them with two instances."""
    rows = deployment_rows(service.design, kinds, "concurrency", 8)
    front = rows.candidates([0, 1], limits)
    more = deployment_rows(service.design, kinds, "rate", 4.0, 2)
    cheapest = more.candidates([1], limits)
    return DeploymentsFound(tuple(front), tuple(cheapest), 2, 4), cheapest[0]


@pytest.mark.long
def test_a_search_for_deployments_is_a_page_too(planned: Plan) -> None:
    plan = planned
    report = serving_report(plan, "cosmic serve llama3-8b@dgx-h100:8 --search", "mine.yaml")
    document = report.document
    block = document["trials"]
    fronts = (*plan.one.front, *plan.two.front)
    assert block["count"] >= 1 + len(fronts)
    planes = b"".join(report.binary.planes)
    kinds = numbers_of(block["pools"], planes).tolist()
    assert kinds.count(1) >= len(plan.two.front) > 0
    columns = {each["name"]: each["coding"] for each in block["columns"]}
    rates = numbers_of(coding_of(block, "tokens_per_s_per_npu")["numbers"], planes)
    assert rates[-len(fronts) :] == pytest.approx([each.metrics.tokens_per_s_per_npu for each in fronts], rel=1e-6)
    assert [each["text"] for each in document["serving"]["slos"]][:2] == ["TTFT p95 ≤ 1 s", "TPOT p99 ≤ 30 ms"]
    assert "tpot_p99_s" in columns
    assert document["front"]
    shown = best(document)
    assert point_of(shown) == plan.checked[0].design
    assert shown["launch"] is not None
    assert shown["launch"]["export"] == "cosmic design export mine.yaml --to vllm"
    caveats = document["verdict"]["caveats"]
    assert any(each.startswith("TTFT is expected to be off by ") for each in caveats)
    assert any(each.startswith("Cost is 28,000 for each h100-sxm-80gb (street") for each in document["trust"]["limits"])
    assert "accelerators are the fewest that hold the limits" in report.verdict
    assert "latency-over-load" not in report.html  # all is packed
    assert len(report.html) < 250_000


def test_a_search_that_finds_no_deployment_says_why(planned: Plan) -> None:
    none = replace(planned, checked=(), reasons=("no number of accelerators holds them",))
    document = serving_report(none).document
    assert document["best"] is None
    assert document["verdict"]["caveats"][-1] == "no number of accelerators holds them"
    assert document["verdict"]["sentence"].startswith("None of ")


def test_a_report_about_training_carries_nothing_of_serving(contents: ReportDocument, binary: Binary) -> None:
    other = Binary()
    trained_report = document_of(ReportSubject(trained()), other)
    about = plain_data(trained_report)
    assert "serving" not in about
    assert "pools" not in about["trials"]
    assert "workloads" not in about["verdict"]
    assert not any("serving" in each for each in about["designs"])
    script = (FRONT / "report.js").read_text(encoding="utf-8")
    assert "latency-over-load" not in script
    assert len(render_report(contents, binary)) > len(script) / 4  # both pages are whole
    mixed = replace(trained_report, serving=contents.serving)
    assert render_report(trained_report, other) != render_report(mixed, other)
