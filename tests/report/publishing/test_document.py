"""Documents: every number of a report is one that the study, the design or evaluation has."""

from __future__ import annotations

import json
import shlex
from math import prod
from typing import Any

import numpy as np
import pytest
import yaml

from cosmic.design import schema
from cosmic.design.design_batch import batch_of
from cosmic.evaluation import evaluate
from cosmic.frameworks.launch import render_script, targets
from cosmic.report.container import Binary, plain_data
from cosmic.report.design_view import MOST_ROOFLINE_POINTS, pack_timeline, roofline_of
from cosmic.report.launch_commands import launch_of
from cosmic.report.study_report import ReportSubject, document_of, found_in_study, plateau_of, spread_evenly
from cosmic.report.trust import search_command, search_python
from cosmic.search.mapping.design_completion import load_design
from cosmic.search.plateau import Plateau
from cosmic.search.search_inputs import Inputs
from cosmic.search.search_loop import Found, search
from cosmic.search.search_verdict import search_open_layers
from cosmic.search.space.space_files import mapping_space
from cosmic.search.study.study import open_study
from cosmic.search.trials import Trials
from cosmic.simulate.analytic_step import bounding_profile
from cosmic.simulate.metrics import Metrics
from cosmic.simulate.schedule_timeline import draw_design_timeline
from tests.report.publishing.studies import SPACE, found, small, source
from tests.report.publishing.unpacking import numbers_of

pytestmark = pytest.mark.xdist_group("document")  # what its tests share is made once


def document(made: Found, beside: int = 0) -> dict[str, Any]:
    return plain_data(document_of(ReportSubject(made, search_open_layers(made, beside)), Binary()))


@pytest.fixture(scope="module")
def full() -> dict[str, Any]:
    """The report of a search of the full stack, with isolated searches beside it."""
    return document(found(agent="genetic"), 60)


def design(of: dict[str, Any], role: str) -> dict[str, Any]:
    return next(each for each in of["designs"] if each["role"] == role)


def evaluated(of: dict[str, Any]) -> Metrics:
    outcome = evaluate(load_design(yaml.safe_load(of["yaml"])))
    assert isinstance(outcome, Metrics)
    return outcome


def test_designs_are_the_base_the_isolated_bests_and_the_best(full: dict[str, Any]) -> None:
    roles = [each["role"] for each in full["designs"]]
    assert roles == ["base", "isolated", "isolated", "isolated", "best"]
    assert (full["base"], full["best"]) == (0, 4)
    assert full["why"]["compared"] == [0, 1, 2, 3, 4]
    assert [each["label"] for each in full["designs"]][1:4] == ["workload alone", "collective alone", "network alone"]


@pytest.mark.parametrize("role", ["base", "best", "isolated"])
def test_every_number_of_a_design_is_that_of_its_yaml(full: dict[str, Any], role: str) -> None:
    shown = design(full, role)
    metrics = evaluated(shown)
    assert shown["step_s"] == pytest.approx(metrics.step_s)
    facts = {each["label"]: each["value"] for each in shown["facts"]}
    assert facts["step"] == pytest.approx(metrics.step_s)
    assert facts["MFU"] == pytest.approx(metrics.mfu)
    assert facts["cost per million tokens"] is metrics.cost_usd_per_token is None  # COSMIC's NPUs have no price
    notes = {each["label"]: (each["text"], each["note"]) for each in shown["facts"]}
    assert notes["cost"][0] == "unknown"
    assert notes["cost"][1].startswith("no price is known for cosmic-")
    assert sum(part["seconds"] for part in shown["parts"]) == pytest.approx(metrics.step_s)
    assert sum(part["bytes"] for part in shown["memory"]) == pytest.approx(metrics.memory_used_bytes)
    assert shown["identity"] == load_design(yaml.safe_load(shown["yaml"])).identity


def test_gains_are_ratios_of_the_objective(full: dict[str, Any]) -> None:
    best = evaluated(design(full, "best")).perf_per_bandwidth
    for gain, role in zip(full["verdict"]["gains"], full["designs"][:4], strict=True):
        other = evaluated(role).perf_per_bandwidth
        assert best is not None
        assert other is not None
        assert gain["times"] == pytest.approx(best / other)


def test_what_changes_are_worth_multiplies_to_the_gain(full: dict[str, Any]) -> None:
    why = full["why"]
    factors = [each["worth"] or 1.0 for each in why["changes"]]
    assert prod(factors) * (why["rest"] or 1.0) == pytest.approx(full["verdict"]["gains"][0]["times"])
    assert 1 <= len(factors) <= 5
    assert sorted(factors, key=lambda each: -abs(np.log(each))) == factors
    labels = {each["label"] for each in why["changes"]}
    assert "network bandwidth" in labels


def test_changes_alone_are_what_the_base_gains_by_them(full: dict[str, Any]) -> None:
    base = load_design(yaml.safe_load(design(full, "base")["yaml"]))
    before = evaluate(base)
    assert isinstance(before, Metrics)
    for change in full["why"]["changes"]:
        if change["alone"] is None or any("algorithms" in field["path"] for field in change["fields"]):
            continue
        settings = {field["path"]: yaml.safe_load(field["to"]) for field in change["fields"]}
        outcome = evaluate(load_design(yaml.safe_load(design(full, "base")["yaml"]), settings))
        if isinstance(outcome, Metrics):
            gain = (outcome.perf_per_bandwidth or 0.0) / (before.perf_per_bandwidth or 1.0)
            assert change["alone"] == pytest.approx(gain)


def test_convergence_ends_with_the_best_of_each_search(full: dict[str, Any]) -> None:
    curves = {each["name"]: each["points"] for each in full["convergence"]["series"]}
    assert list(curves) == ["workload alone", "collective alone", "network alone", "genetic"]
    assert curves["genetic"][-1][1] == pytest.approx(evaluated(design(full, "best")).perf_per_bandwidth)
    assert curves["genetic"][-1][0] == full["trust"]["evaluated"]


def test_trust_counts_what_the_study_counts(full: dict[str, Any]) -> None:
    made = found(agent="genetic")
    trust = full["trust"]
    assert {each["reason"]: each["count"] for each in trust["failures"]} == made.trials.reasons()
    assert (trust["evaluated"], trust["feasible"]) == (made.trials.evaluated, made.trials.feasible)
    assert trust["valid"] == made.problem.space.valid
    assert any("No kernels of cosmic-10tf were measured" in each for each in trust["limits"])


def test_the_command_and_the_lines_of_python_search_the_same_again(full: dict[str, Any]) -> None:
    made = found(agent="genetic")
    words = full["verdict"]["command"].split()
    assert words[:3] == ["cosmic", "search", SPACE]
    assert words[words.index("--seed") + 1] == str(made.inputs.seed)
    lines = full["verdict"]["python"].replace("cosmic.report(found)", "")
    names: dict[str, Any] = {}
    exec(lines, names)
    np.testing.assert_array_equal(names["found"].trials.rows, made.trials.rows)


@pytest.mark.parametrize("settings", [{}, {"workload.task": "decode"}])
def test_a_search_of_mappings_is_searched_again_by_the_name_of_the_design(settings: dict[str, str]) -> None:
    name = "llama3-8b@dgx-h100:8"
    made = search(mapping_space(name, settings), trials=3, agent="random", seed=1)
    words = shlex.split(search_command(made.inputs))
    assert words[:3] == ["cosmic", "search", name]
    assert (words[3:5] == ["--set", "workload.task=decode"]) is bool(settings)
    names: dict[str, Any] = {}
    exec(search_python(made.inputs).replace("cosmic.report(found)", ""), names)
    assert names["found"].inputs.identity == made.inputs.identity


def test_a_set_that_only_has_the_name_of_a_design_is_a_file() -> None:
    for name in ("llama3-8b@dgx-h100:8", "llama3-8b@dgx-h100:99999999", "../x.yaml@dgx-h100"):
        made = search(small(name=name), trials=2, seed=1)
        assert shlex.split(search_command(made.inputs))[2] == f"{name}.yaml"


def test_the_cluster_holds_every_rank(full: dict[str, Any]) -> None:
    for each in full["designs"]:
        cluster = each["cluster"]
        assert cluster is not None
        assert prod(axis["size"] for axis in cluster["axes"]) == cluster["npus"]
        for dim in cluster["dims"]:
            assert prod(axis["ranks"] for axis in dim["axes"]) == pytest.approx(dim["npus"])
            assert 0 <= dim["utilization"] <= 1
            sent = sum(load["bytes"] for load in dim["load"])
            assert dim["utilization"] == pytest.approx(sent / dim["bandwidth_bytes_per_s"] / (each["step_s"] or 1))


def test_operators_of_the_roofline_take_the_time_that_computing_takes() -> None:
    point = load_design("llama3-70b@dgx-h100:64")
    metrics = evaluate(point)
    assert isinstance(metrics, Metrics)
    shown = plain_data(roofline_of(bounding_profile(batch_of(point))))
    computing = sum(metrics.breakdown[name] for name in ("gemm", "attention", "other", "recompute"))
    total = sum(each["seconds"] for each in shown["points"])
    assert 0.85 * computing <= total <= 1.001 * computing  # a lookup computes nothing, and is no point
    assert len(shown["points"]) <= MOST_ROOFLINE_POINTS + 1
    assert all(each["flop_per_s"] <= shown["peak_flop_per_s"] * 1.001 for each in shown["points"])


def test_a_timeline_comes_out_as_it_went_in() -> None:
    timeline = draw_design_timeline(
        load_design("llama3-8b@dgx-h100:16", {"workload.pp": 2, "workload.dp": 1, "workload.tp": 8})
    )
    binary = Binary()
    packed = plain_data(pack_timeline(timeline, binary))
    raw = b"".join(binary.planes)
    seconds = np.array(packed["seconds"])
    track, gap, duration = (numbers_of(packed["spans"][name], raw) for name in ("track", "gap", "duration"))
    np.testing.assert_array_equal(track, timeline.spans.track)
    end, before = 0.0, -1
    for place in range(len(track)):
        start = (end if track[place] == before else 0.0) + seconds[gap[place]]
        assert start == pytest.approx(timeline.spans.start_ns[place] / 1e9, abs=1e-9)
        end, before = start + seconds[duration[place]], track[place]
        assert end == pytest.approx(
            (timeline.spans.start_ns[place] + timeline.spans.duration_ns[place]) / 1e9, abs=1e-9
        )
    for shown, counter in zip(packed["counters"], timeline.counters, strict=True):
        times = np.cumsum(seconds[numbers_of(shown["times"], raw)])
        np.testing.assert_allclose(times, counter.times_ns / 1e9, atol=1e-8)
        np.testing.assert_array_equal(np.array(shown["levels"])[numbers_of(shown["values"], raw)], counter.values)
    np.testing.assert_array_equal(numbers_of(packed["flows"]["from"], raw), timeline.flows.source)
    np.testing.assert_array_equal(numbers_of(packed["flows"]["to"], raw), timeline.flows.target)


def empty(made: Found) -> Found:
    none = Trials(made.trials.rows[:0], made.trials.results.select(np.arange(0)))
    return Found(made.inputs, none, "interrupted", 0.0, 0)


ODD: dict[str, Any] = {
    "no trial": lambda: empty(found()),
    "one trial": lambda: found(trials=1),
    "two trials": lambda: found(trials=2),
    "nothing runs": lambda: search(SPACE, trials=30, constraints=["memory_bytes <= 1 GB"]),
    "one parameter": lambda: search(
        source(parameters={"network.dims.0.bandwidth": ["50 GB/s", "99 GB/s"]}, derived={}, constraints=[]), trials=5
    ),
    "no parameter": lambda: search(source(parameters={}, derived={}, constraints=[]), trials=5),
    "several objectives": lambda: search(SPACE, trials=300, objectives=["step_s", "network_usd", "memory_bytes"]),
    "simulated": lambda: search(small(), trials=3, engine="event"),
    "prefill": lambda: search(small("prefill"), trials=9),
    "decode": lambda: search(small("decode"), trials=9),
    "mix": lambda: search(
        small(workloads={"chat": {"workload.task": "decode"}, "read": {"workload.task": "prefill"}}), trials=9
    ),
    "experts": lambda: search(
        {"name": "moe", "base": "mixtral-8x7b@dgx-h100:64", "parameters": {"workload.ep": [1, 2, 4, 8]}}, trials=9
    ),
    "one accelerator": lambda: search(
        {"name": "one", "base": "llama3-8b@dgx-h100:1", "parameters": {"workload.task": ["prefill", "decode"]}},
        trials=9,
    ),
    "accelerators": lambda: search(
        {
            "name": "chips",
            "base": "llama3-8b@dgx-h100:8",
            "parameters": {"compute.accelerator": ["h100-sxm-80gb", "gb200"], "workload.micro_batch": [1, 2]},
        },
        trials=9,
        objectives=["tokens_per_s"],
    ),
    "interrupted": lambda: Found(found().inputs, found().trials, "interrupted", 0.0, 0),
}


@pytest.mark.long
@pytest.mark.parametrize("name", list(ODD))
def test_any_study_has_a_document_that_is_plain_data(name: str) -> None:
    made = ODD[name]()
    shown = document(made, 20 if name == "several objectives" else 0)
    assert json.loads(json.dumps(shown, allow_nan=False))["trials"]["count"] == len(made.trials)
    assert shown["verdict"]["sentence"]
    assert (shown["best"] is None) == (made.best is None or bool(made.problem.space.workloads))
    for each in shown["designs"]:
        assert each["feasible"] == (not each["reasons"])
        if each["feasible"]:
            assert sum(part["seconds"] for part in each["parts"]) == pytest.approx(each["step_s"])
    if shown["best"] is not None:
        best = shown["designs"][shown["best"]]
        assert best["timeline"] is not None
        assert best["trial"] == made.trials.best(made.problem)


def test_a_simulated_study_is_drawn_as_it_was_simulated() -> None:
    shown = document(ODD["simulated"]())
    best = design(shown, "best")
    assert best["timeline"] is not None
    assert best["timeline"]["engine"] == "event"
    assert best["timeline"]["duration_s"] == pytest.approx(best["step_s"])
    assert "--engine event" in best["command"]


def test_the_front_is_that_of_the_trials() -> None:
    made = ODD["several objectives"]()
    shown = document(made)
    assert shown["front"] == made.trials.front(made.problem).tolist()
    drawn = [each["trial"] for each in shown["designs"] if each["role"] == "front"]
    assert 1 <= len(drawn) <= 8
    assert set(drawn) <= set(shown["front"])


def test_members_of_the_front_are_spread_from_end_to_end() -> None:
    assert spread_evenly(list(range(100)), 8)[0] == 0
    assert spread_evenly(list(range(100)), 8)[-1] == 99
    assert len(set(spread_evenly(list(range(100)), 8))) == 8


def test_a_study_that_has_fewer_trials_than_asked_is_not_complete(tmp_path: Any) -> None:
    search(SPACE, trials=20, seed=1, out=tmp_path / "s")
    whole = open_study(tmp_path / "s")
    assert found_in_study(whole).stopped == "trials"
    more = Inputs(**{**{name: getattr(whole.inputs, name) for name in whole.inputs.__dataclass_fields__}, "trials": 99})
    object.__setattr__(whole, "inputs", more)
    assert found_in_study(whole).stopped == "interrupted"


def test_changes_name_fields_as_files_do(full: dict[str, Any]) -> None:
    base = load_design(yaml.safe_load(design(full, "base")["yaml"]))
    for change in full["why"]["changes"]:
        for field in change["fields"]:
            schema.slot_at(base, field["path"])  # refuses what is no field


# ---- the headline


def launched(settings: dict[str, Any]) -> dict[str, Any]:
    return plain_data(launch_of(load_design("llama3-8b@dgx-h100:16", settings), "my best.yaml"))


def test_the_headline_names_the_machine_and_the_rate_of_an_accelerator() -> None:
    made = search(small(), agent="exhaustive", trials=9)
    shown = document(made)
    best = evaluated(design(shown, "best"))
    each = best.throughput_per_s / 16
    assert shown["verdict"]["headline"] == f"llama3-8b on 16 × h100-sxm-80gb: {each:,.0f} tokens/s/GPU"
    assert shown["title"] == "small-training: llama3-8b on 16 × h100-sxm-80gb"
    assert {"label": "tokens/s/GPU", "value": each}.items() <= dict(design(shown, "best")["facts"][2]).items()
    launch = design(shown, "best")["launch"]
    assert launch is not None
    assert launch["export"] == "cosmic design export best.yaml --to megatron"
    assert "--tensor-model-parallel-size" in launch["script"]
    assert design(shown, "base")["launch"] is None  # only of the best: a report stays small


def test_the_headline_of_the_paper_s_accelerator_says_that_nothing_launches_it(full: dict[str, Any]) -> None:
    launch = design(full, "best")["launch"]
    assert launch is not None
    assert (launch["export"], launch["script"], launch["target"]) == ("", "", "")
    assert launch["note"] == (
        "Megatron-LM, TorchTitan and DeepSpeed cannot launch it: "
        "they run on GPUs of NVIDIA and AMD, and cosmic-10tf is not one of them."
    )
    assert full["verdict"]["headline"].endswith("tokens/s/NPU")


def test_what_launches_a_design_is_what_export_writes() -> None:
    launch = launched({"tp": 2})
    point = load_design("llama3-8b@dgx-h100:16", {"tp": 2})
    assert launch["export"] == "cosmic design export 'my best.yaml' --to megatron"
    assert f"#!/usr/bin/env bash\n{launch['script']}" == render_script(targets["megatron"](point))
    assert [len(targets[name](point).warnings) for name in ("megatron", "torchtitan", "deepspeed")] == [0, 2, 2]
    assert launch["note"] == "Megatron-LM, TorchTitan (2 notes) and DeepSpeed (2 notes) can launch it."


def test_what_is_served_is_launched_by_engines_and_by_no_framework_for_training() -> None:
    alone = launched({"workload.task": "decode"})
    assert alone["note"] == (
        "vLLM (1 note), SGLang (1 note), TensorRT-LLM (2 notes) and Dynamo (2 notes) can launch it."
    )
    served = launched({"isl": 1000, "osl": 100, "concurrency": 8, "engine": "sglang"})
    assert (served["target"], served["export"]) == ("SGLang", "cosmic design export 'my best.yaml' --to sglang")
    assert "python -m sglang.launch_server" in served["script"]


def test_a_model_that_no_engine_serves_is_said() -> None:
    point = load_design("bert-large@dgx-h100:8", {"task": "prefill"})
    launch = plain_data(launch_of(point, "best.yaml"))
    assert launch["script"] == ""
    assert launch["note"] == (
        "vLLM, SGLang, TensorRT-LLM and Dynamo cannot launch it: "
        "model.family = 'encoder': only decoders can be exported."
    )


def test_nothing_feasible_has_no_headline() -> None:
    nothing = document(search(small(base={**small()["base"], "memory": {"capacity": "1 GB"}}), trials=4))
    assert (nothing["verdict"]["headline"], nothing["verdict"]["plateau"]) == ("", None)


# ---- the plateau


def test_designs_as_good_as_the_best_are_counted(full: dict[str, Any]) -> None:
    made = found(agent="genetic")
    plateau = full["verdict"]["plateau"]
    assert plateau is not None
    values = np.asarray(made.trials.results.columns["perf_per_bandwidth"])[made.trials.results.feasible]
    assert plateau["count"] == (values >= values.max() / 1.01).sum() >= 1
    error = full["verdict"]["expected_error"]
    assert error is not None
    assert plateau["within_error"] == (values >= values.max() / (1 + error)).sum() > plateau["count"]
    assert f"{plateau['within_error']:,} lie within {100 * error:.2g} %" in plateau["sentence"]


def test_the_plateau_is_said_in_a_sentence() -> None:
    made = search(small(), agent="exhaustive", trials=9)
    assert plateau_of(made, None) is None
    said = {
        Plateau(0.01, 1, 0, 0.0): "No other design lies within 1 % of it.",
        Plateau(0.01, 1, 0, 0.0, 0.059, 1): (
            "No other design lies within 1 % of it, and no more within 5.9 %, the error to expect of the model."
        ),
        Plateau(0.01, 12, 0, 0.004, 0.059, 1234): (
            "12 designs lie within 1 % of the best: of these the cheapest, then the simplest, is shown (0.4 % above it)"
            "; 1,234 lie within 5.9 %, the error to expect of the model."
        ),
    }
    for ground, sentence in said.items():
        shown = plain_data(plateau_of(made, ground))
        assert shown is not None
        assert shown["sentence"] == sentence
    two = search(small(), agent="exhaustive", trials=9, objectives=["step_s", "memory_bytes"])
    shown = plain_data(plateau_of(two, Plateau(0.01, 12, 0, 0.0)))
    assert shown is not None
    assert shown["sentence"] == "12 designs lie within 1 % of the best, this one among them."
