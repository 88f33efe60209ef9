"""`cosmic serve`: what it says of a load, of what cannot run, and of the cheapest deployment."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cosmic.search.advice import deployment_plan, serving_answers
from cosmic.search.advice.service_question import Asked, asked_by_trace, read_service
from tests.commands import output, run

LLAMA = "llama3-8b@h100:8"
SMALL = ("serve", "llama3-8b@h100:2", "--input", "500", "--output", "100")


def told(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    return json.loads(output(capsys, *words, "--json"))


def test_a_question_with_nothing_else_is_answered_with_what_was_assumed(capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, "serve", LLAMA)
    assert found["feasible"]
    assert [each.partition(",")[0] for each in found["assumed"]] == [
        "1",  # 1,024 tokens in
        "lengths that differ by 20 %",
        "weights in fp8",
        "KV cache in fp8",
    ]
    assert found["searched"] > 5
    assert found["metrics"]["tpot"]["mean_s"] > 0


def test_without_a_number_there_are_as_many_accelerators_as_the_weights_need() -> None:
    assert read_service("llama3-8b@h100", {}, Asked()).design.network.npus == 8
    assert read_service("deepseek-v3@h100", {}, Asked()).design.network.npus == 16


def test_a_stated_mapping_is_served_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, "serve", LLAMA, "--set", "tp=4")
    assert found["deployment"]["pool"] == {"instances": 2, "npus": 8, "tp": 4, "pp": 1, "attention_dp": 1, "ep": 1}
    assert found["searched"] == 0


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "npus"),
    [
        (("serve", "llama3-70b@h100:1", "--precision", "bf16"), 4),
        (("serve", "llama3-8b@h100:1", "--rate", "500 req/s"), None),
    ],
)
def test_what_cannot_be_served_says_how_many_accelerators_could(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], npus: int | None
) -> None:
    status, out, _ = run(capsys, *words, "--json")
    found = json.loads(out)
    assert (status, found["feasible"]) == (1, False)
    assert found["reasons"]
    assert found["fewest_npus"] > 1
    assert npus is None or found["fewest_npus"] <= npus
    assert found["fewest"]["within_limits"]
    assert "(in closed form, in one pool); --search compares two pools, too" in run(capsys, *words)[1]


@pytest.mark.long
def test_what_would_help_is_a_command_that_does_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    moves = told(capsys, "serve", LLAMA, "--concurrency", "128", "--set", "tp=8")["improvements"]
    assert moves
    for move in moves[:1]:
        found = told(capsys, *shlex.split(move["command"])[1:])
        assert found["metrics"]["output_tokens_per_s"] == pytest.approx(
            move["metrics"]["output_tokens_per_s"], rel=1e-6
        )


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        (("--rate", "fast"), "--rate = 'fast': write requests a second"),
        (("--ttft", "soon"), "--ttft = 'soon': write a limit"),
        (("--rate", "1", "--concurrency", "2"), "give either --concurrency"),
        (("--engine", "foo"), "no such engine"),
        (("--precision", "fp3"), "did you mean"),
        (("--set", "sequence=4"), "is of a single step"),
        (("--max-gpus", "8"), "is for --search"),
        (("--report", "page.html"), "--report = 'page.html': is for --search"),
        (("--search", "--requests", "8"), "is for one deployment"),
        (("--search", "--simulate"), "--search simulates the deployments"),
        (("--trace", "t.csv", "--input", "3"), "is what --trace says"),
    ],
)
def test_bad_input_is_one_sentence(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], rule: str) -> None:
    status, _, err = run(capsys, "serve", LLAMA, *words)
    assert status == 2
    assert rule in err
    assert err.count("\n") == 1


@pytest.mark.long
def test_the_simulation_stands_beside_the_closed_form(capsys: pytest.CaptureFixture[str]) -> None:
    words = (*SMALL, "--concurrency", "1", "--simulate", "--requests", "20", "--set", "tp=2")
    found = told(capsys, *words)
    assert found["simulated"]["tpot"]["mean_s"] == pytest.approx(found["metrics"]["tpot"]["mean_s"], rel=0.1)
    assert "\nclosed form: TTFT" in output(capsys, *words)
    assert "\nsimulation: TTFT" in output(capsys, *SMALL, "--concurrency", "1", "--set", "tp=2")


def test_a_limit_that_only_one_engine_holds_is_said_to_be_disputed(capsys: pytest.CaptureFixture[str]) -> None:
    words = (*SMALL, "--concurrency", "8", "--set", "tp=2")
    found = told(capsys, *words)
    closed, simulated = (found[name]["ttft"]["p99_s"] for name in ("metrics", "simulated"))
    between = f"p99 <= {1e6 * (closed + simulated) / 2:.3f} us"
    said = next(line for line in output(capsys, *words, "--ttft", between).splitlines() if line.startswith("TTFT p99"))
    assert "less than the expected error of 20 %, but " in said
    assert "in the simulation (" in said


@pytest.mark.long
def test_a_trace_is_replayed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    rows = "".join(f"{each / 2},{400 + each},{20 + each}\n" for each in range(40))
    trace.write_text("arrival_s,input_tokens,output_tokens\n" + rows)
    timeline = tmp_path / "timeline.json"
    found = told(capsys, "serve", LLAMA, "--trace", str(trace), "--timeline", str(timeline), "--ttft", "1 s")
    assert found["load"]["rate"] == pytest.approx(2.0)
    assert found["load"]["input"] == pytest.approx(420, abs=1)
    assert found["simulated"]["within_slo"] == 1
    assert json.loads(timeline.read_text())["traceEvents"]
    asked, _ = asked_by_trace(trace, Asked(rate=4.0), 100)
    assert asked.rate == pytest.approx(4.0)


@pytest.mark.long
def test_commands_that_are_advised_for_a_trace_replay_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    rows = "".join(f"{each / 20},{400 + each},{20 + each}\n" for each in range(40))
    trace.write_text("arrival_s,input_tokens,output_tokens\n" + rows)
    words = ("serve", LLAMA, "--set", "tp=1", "--trace", str(trace), "--rate", "30 req/s", "--ttft", "1 s")
    assert "what would help (in closed form, with the trace's means)" in output(capsys, *words)
    move = told(capsys, *words)["improvements"][0]
    assert f"--trace {trace} --rate '30 req/s' --ttft" in move["command"]
    assert "--input" not in move["command"]
    found = told(capsys, *shlex.split(move["command"])[1:])
    assert found["simulated"]["tpot"] == pytest.approx(move["simulated"]["tpot"])


@pytest.mark.long
def test_a_gain_says_what_it_is_of_and_the_first_is_simulated(capsys: pytest.CaptureFixture[str]) -> None:
    words = (*SMALL, "--concurrency", "16", "--set", "pp=2")
    first, *others = told(capsys, *words)["improvements"]
    assert (first["gain_of"], first["simulated"] is None) == ("tokens/s", False)
    assert all(each["simulated"] is None for each in others)
    said = output(capsys, *words)
    assert f"{first['gain']:.2f}× the tokens/s: {first['what']}" in said
    assert f"simulated: {first['simulated_gain']:.2f}×, TTFT P95" in said
    assert "× as fast end to end: " in output(capsys, *SMALL, "--rate", "20 req/s", "--set", "pp=2")


@pytest.mark.long
@pytest.mark.parametrize("system", ["mi300x:8", "tpu-v5e:8"])
def test_no_engine_is_advised_that_does_not_run_there(capsys: pytest.CaptureFixture[str], system: str) -> None:
    words = ("serve", f"llama3-8b@{system}", "--concurrency", "64")
    assert not any("trtllm" in each["command"] for each in told(capsys, *words)["improvements"])
    assert "trtllm runs on these accelerators, although TensorRT-LLM runs on NVIDIA's GPUs, not on" in output(
        capsys, *words, "--engine", "trtllm"
    )


@pytest.mark.long
def test_an_engine_is_advised_where_it_gains_more_than_the_expected_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = (*SMALL, "--rate", "5 req/s", "--set", "tp=1")
    assert not any("not vllm" in each["what"] for each in told(capsys, *words)["improvements"])
    monkeypatch.setattr(serving_answers, "_expected_error", lambda _: 0.0)
    assert any("not vllm" in each["what"] for each in told(capsys, *words)["improvements"])


@pytest.mark.long
def test_accelerators_that_no_instance_has_are_said_to_be_idle(capsys: pytest.CaptureFixture[str]) -> None:
    pools = [word for each in ("tp=1", "dp=2", "prefill.tp=2") for word in ("--set", each)]
    assert "4 of 8 accelerators are idle" in run(capsys, "serve", LLAMA, *pools, "--set", "prefill_replicas=1")[1]
    assert "are idle" not in output(capsys, "serve", LLAMA, *pools, "--set", "prefill.replicas=3")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (("replicas=2",), "2 instances of tp 4"),
        (("tp=4", "replicas=2"), "2 instances of tp 4"),
        (("tp=2", "replicas=2"), "2 instances of tp 2 · pp 2"),
        (
            ("tp=4", "prefill.tp=2", "prefill_replicas=2", "decode_replicas=1"),
            "1 instance of tp 4 to decode, 2 of tp 2",
        ),
    ],
)
def test_replicas_are_whole_instances(settings: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = [word for setting in settings for word in ("--set", setting)]
    assert f": {said}" in output(capsys, "serve", LLAMA, *words).split("\n")[0]


@pytest.mark.long
@pytest.mark.parametrize(
    ("ep", "said"), [(8, "2 instances of tp 4 · attention dp 2 · ep 8"), (2, "2 instances of tp 4 · ep 2")]
)
def test_instances_that_decode_spread_experts_over_their_own_ranks(
    ep: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = (f"ep={ep}", "tp=4", "pp=1", "decode_replicas=2", "prefill_replicas=2", "prefill.tp=8")
    words = [word for setting in settings for word in ("--set", setting)]
    first = run(capsys, "serve", "deepseek-v3@dgx-h200:32", *words)[1].split("\n")[0]
    assert f": {said} to decode, 2 of tp 8 to prefill" in first


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--set", "replicas=3"), "replicas = 3: instances do not share 8 accelerators evenly"),
        (
            ("--set", "tp=8", "--set", "replicas=2"),
            "replicas = 2: instances of tp 8 do not share 8 accelerators evenly",
        ),
        (("--set", "replicas=0"), "replicas = 0: is a number of engine instances, 1 or more"),
        (("--set", "replicas=2", "--set", "prefill.tp=2"), "two pools have prefill_replicas and decode_replicas"),
        (("--set", "decode_replicas=2"), "goes with prefill_replicas; of one pool, say replicas"),
        (("--search", "--set", "replicas=2"), "is what --search finds: leave it out"),
    ],
)
def test_replicas_that_cannot_be_are_refused(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = run(capsys, "serve", LLAMA, *words)
    assert (status, out) == (2, "")
    assert said in err


def test_a_single_token_has_no_time_per_token(capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, "serve", LLAMA, "--input", "1", "--output", "1", "--simulate", "--requests", "50")
    assert found["simulated"]["tpot"]["mean_s"] is None
    assert "nan" not in output(
        capsys, "serve", LLAMA, "--input", "1", "--output", "1", "--simulate", "--requests", "50"
    )


SEARCH = ("serve", "llama3-8b@h100:4", "--search", "--rate", "20 req/s", "--input", "1000", "--output", "100")
LIMITED = (*SEARCH, "--ttft", "p95 <= 2 s", "--tpot", "40 ms")


@pytest.fixture(autouse=True, scope="module")
def _one_search() -> Iterator[None]:
    """Search once for the same question: tests ask for it as text, as data and as a page."""
    found: dict[Any, Any] = {}
    search = deployment_plan.plan_deployments

    def known(service: Any, limits: Any, most: int | None = None, **options: Any) -> Any:
        key = (service.source, str(service.overrides), tuple(limits), most, options["seed"])
        return found.get(key) or found.setdefault(key, search(service, limits, most, **options))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deployment_plan, "plan_deployments", known)
        yield


@pytest.mark.long
def test_a_search_finds_the_cheapest_and_saves_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    saved = tmp_path / "chosen.yaml"
    found = told(capsys, *LIMITED, "--save", str(saved))
    assert found["feasible"]
    assert found["exhaustive"]
    assert found["front"]
    assert found["held"] == {}
    chosen = found["chosen"]
    assert chosen["simulated"]["ttft"]["p95_s"] <= 2
    assert all(each["holds"] for each in chosen["limits"])
    assert found["needed_npus"] == chosen["deployment"]["npus"]
    again = told(capsys, "serve", str(saved))
    assert again["identity"] == chosen["identity"]
    assert again["deployment"]["npus"] == chosen["deployment"]["npus"]
    assert [each["limit_s"] for each in again["limits"]] == [2.0, 0.04]  # the file has them
    price = "usd_per_million_tokens"
    assert again["metrics"][price] == pytest.approx(chosen["deployment"]["metrics"][price], rel=1e-9)


@pytest.mark.long
def test_totals_are_of_the_deployment_that_they_stand_beside(capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, *LIMITED)
    load, chosen = found["load"]["rate"], found["chosen"]
    for each in (found["aggregated"], found["disaggregated"], *(one["deployment"] for one in found["checked"])):
        seen = each["metrics"]
        assert seen["requests_per_s"] == pytest.approx(load)
        assert seen["output_tokens_per_s"] == pytest.approx(seen["tokens_per_s_per_npu"] * each["npus"])
        assert seen["running"] < 10 * load
    for each in found["front"]:
        seen = each["metrics"]
        assert seen["running"] + seen["waiting"] == pytest.approx(each["concurrency"], rel=0.05)
    assert chosen["simulated"]["requests_per_s"] == pytest.approx(load, rel=0.07)
    assert chosen["simulated_share"] == 1
    assert chosen["expected_error"]["runs"] > 100


@pytest.mark.long
def test_a_search_shows_one_pool_beside_two(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    page, saved = tmp_path / "deployments.html", tmp_path / "mine.yaml"
    text = output(capsys, *LIMITED, "--report", str(page), "--save", str(saved))
    written = page.read_text(encoding="utf-8")
    assert "cosmic serve llama3-8b@h100:4 --search" in written
    for said in ("\naggregated ", "\ndisaggregated ", "\ncheapest: 1 accelerator, ", "\nsimulation: all limits hold"):
        assert said in text
    assert "\nexpected error: TTFT" in text
    assert "\nUSD: 28,000 for each h100-sxm-80gb (street/analyst estimate" in text
    assert "1 accelerators" not in text


@pytest.mark.long
def test_what_a_file_states_is_held_and_said(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    saved = tmp_path / "tp2.yaml"
    output(capsys, "serve", "llama3-8b@h100:4", "--rate", "20", "--tpot", "1 ms", "--set", "tp=2", "--save", str(saved))
    status, out, _ = run(capsys, "serve", str(saved), "--search")
    assert status == 1  # the limit of the file counts
    assert f"held: tp 2, pp 1, as {saved} states: only such instances are compared" in out.replace("ep 1, ", "")
    assert "no deployment holds TPOT p95 <= 1 ms" in out


@pytest.mark.long
def test_without_limits_nobody_says_that_limits_hold(capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, *SEARCH, "--set", "tp=4")
    assert "limits hold" not in text
    assert "it bears the load, no limit is given (TTFT p95 " in text


@pytest.mark.long
def test_too_few_accelerators_are_said_to_be_too_few(capsys: pytest.CaptureFixture[str]) -> None:
    words = (*SEARCH[:3], "--rate", "200 req/s", *SEARCH[5:], "--max-gpus", "1", "--set", "tp=1")
    status, out, _ = run(capsys, *words, "--tpot", "40 ms", "--json")
    found = json.loads(out)
    assert (status, found["feasible"], found["chosen"]) == (1, False, None)
    assert found["needed_npus"] > 1
    assert "more than 1" in found["reasons"][0]


def test_limits_that_nothing_holds_say_what_comes_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, *SEARCH, "--tpot", "10 us", "--set", "tp=1")
    assert status == 1
    assert "however many accelerators: the least TPOT (p95) is" in out
    assert " ms\n" in out


@pytest.mark.long
def test_a_file_of_several_classes_is_served(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """And the commands that are advised run, too."""
    path = tmp_path / "classes.yaml"
    path.write_text(
        "{model: llama3-8b, system: 'h100:2', workload: {precision: fp8, tp: 1, pp: 1, dp: 2}, serving: {load: {"
        "rate: 5, classes: [{name: chat, isl: 500, osl: 200, ttft_slo: 1 s}, {name: code, isl: 3000, osl: 50}]}}}"
    )
    told_of = output(capsys, "serve", str(path))
    assert "5 requests/s of 2 classes (chat, code) · 1,750 tokens in, 125 out · on average" in told_of
    advised = [line.strip() for line in told_of.splitlines() if line.strip().startswith("cosmic serve")]
    assert advised
    assert run(capsys, *shlex.split(advised[0])[1:])[0] == 0


@pytest.mark.long
def test_errors_are_said_to_be_of_other_designs_where_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    plain = output(capsys, "serve", "llama3-8b@h100:1", "--set", "tp=1")
    assert "published runs in one pool with vllm\n" in plain
    other = output(capsys, "serve", "llama3-8b@tpu-v6e:1", "--set", "tp=1", "--set", "lora_rank=8")
    assert "none of them had tpu-v6e or adapters: it may be more" in other
