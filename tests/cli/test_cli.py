"""The command line: what each command prints, and how each failure ends."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cosmic.base._version import __version__
from cosmic.cli.dispatch import COMMANDS, HEADINGS, NOUNS, main, names_below
from cosmic.design import catalog_entries
from cosmic.search.mapping import design_completion
from cosmic.search.mapping.design_completion import load_design
from tests.commands import output, run

SPACE = "cosmic-1024-paper"
HEAVY = {"numpy", "numba", "pydantic", "yaml", "typer", "rich"}


def data(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    """Return the JSON that a command prints."""
    return json.loads(output(capsys, *words, "--json"))


def cosmic_process(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "cosmic", *words],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


# ---- the program


@pytest.mark.parametrize("words", [(), ("--help",), ("-h",), ("help",)])
def test_help_names_every_command(capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    out = output(capsys, *words)
    assert out.startswith("Usage: cosmic COMMAND [OPTIONS]\n")
    assert all(f"\n{heading}\n" in out for heading in HEADINGS)
    assert all(f"\n  {name} " in out for names in HEADINGS.values() for name in names)
    assert {name.split()[0] for name in (*COMMANDS, *NOUNS)} == {name for names in HEADINGS.values() for name in names}


@pytest.mark.parametrize("noun", NOUNS)
@pytest.mark.parametrize("more", ["", "--help", "help"])
def test_a_noun_lists_its_commands(capsys: pytest.CaptureFixture[str], noun: str, more: str) -> None:
    out = output(capsys, *noun.split(), *more.split())
    assert out.startswith(f"Usage: cosmic {noun} COMMAND [OPTIONS]\n")
    assert all(f"\n  {name} " in out for name in names_below(noun))
    assert len(out.splitlines()) <= 24
    assert out == output(capsys, "help", *noun.split())


@pytest.mark.parametrize("word", ["--version", "-V"])
def test_the_version_is_printed(capsys: pytest.CaptureFixture[str], word: str) -> None:
    assert output(capsys, word) == f"cosmic {__version__}\n"


@pytest.mark.parametrize(
    ("line", "refusal"),
    [
        ("validate", "cosmic: no command 'validate'; did you mean 'cosmic calibrate validate'?"),
        ("psa", "cosmic: no command 'psa'; did you mean 'cosmic space'?"),
        ("psa count x", "cosmic: no command 'psa'; did you mean 'cosmic space count'?"),
        ("collective bound x", "cosmic: no command 'collective'; did you mean 'cosmic network bound'?"),
        ("program x.yaml", "cosmic: no command 'program'; did you mean 'cosmic model show'?"),
        ("list models", "cosmic: no command 'list'; did you mean 'cosmic catalog list'?"),
        ("leaderboard new", "cosmic: no command 'leaderboard'; did you mean 'cosmic study leaderboard new'?"),
        ("export", "cosmic: no command 'export'; did you mean 'cosmic design export' or 'cosmic study export'?"),
        ("evalute", "cosmic: no command 'evalute'; did you mean 'cosmic evaluate'?"),
        ("swep", "cosmic: no command 'swep'; did you mean 'cosmic design sweep'?"),
        ("study compair", "cosmic study: no command 'compair'; did you mean 'cosmic study compare'?"),
        ("design shwo", "cosmic design: no command 'shwo'; did you mean 'cosmic design show'?"),
        ("study validate", "cosmic study: no command 'validate'; did you mean 'cosmic calibrate validate'?"),
        ("model xyz", "cosmic model: no command 'xyz'; choose from show, shard, list"),
        ("xyz", "cosmic: no command 'xyz'; 'cosmic --help' lists them"),
        ("study --jsno", "cosmic study: no option '--jsno'; choose from --help"),
    ],
)
def test_an_unknown_command_is_refused_with_the_nearest_one(
    capsys: pytest.CaptureFixture[str], line: str, refusal: str
) -> None:
    assert run(capsys, *line.split()) == (2, "", f"{refusal}\n")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert output(capsys, *name.split(), "--help").startswith(f"Usage: cosmic {name} ")


@pytest.mark.parametrize(
    "words",
    [
        (
            "design",
            "show",
        ),
        ("design", "show", "gpt3-13b@dgx-h100", "--bogus"),
        ("space", "sample", SPACE, "-n", "-1"),
        ("demo", "--seed", "x"),
        ("catalog", "list", "models", "systems"),
        ("space", "count", SPACE, "--stacks", "workload", "--stacks", "network"),
        ("evaluate", "gpt3-13b@dgx-h100:8", "--engine=event", "--engine", "analytic"),
    ],
    ids=" ".join,
)
def test_wrong_usage_exits_with_2_and_shows_the_right_one(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    status, out, err = run(capsys, *words)
    assert (status, out) == (2, "")
    assert err.startswith("Usage: cosmic ")
    assert "Error: " in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("design", "show", "nope"),
            "cosmic design show: design = 'nope': is neither MODEL@SYSTEM nor the path of a YAML file\n",
        ),
        (
            ("design", "show", "gpt3-13b@dgx-h100:16", "--set", "network.dims.1.npus=1"),
            "cosmic design show: network.dims.1.npus = 1: a dimension joins at least 2 NPUs\n",
        ),
        (
            ("design", "show", "gpt3-13b@dgx-h100:16", "--set", "workload.tpp=1"),
            "cosmic design show: workload.tpp = 1: no such key; did you mean 'tp'?\n",
        ),
        (
            ("design", "show", "gpt3-13b@dgx-h100:16", "--set", "workload.tp"),
            "cosmic design show: --set = 'workload.tp': write PATH=VALUE, such as tp=8\n",
        ),
        (("design", "show", "a\nb\x1b[31m@x"), "cosmic design show: system = 'x': no such system; "),
        (("catalog", "list", "modles"), "cosmic catalog list: kind = 'modles': no such kind; did you mean 'models'?\n"),
        (("space", "count", "nope"), "cosmic space count: space = 'nope': no such space; "),
        (
            ("space", "show", SPACE, "--stacks", "netwrok"),
            "cosmic space show: stacks = 'netwrok': no such layer with parameters; did you mean 'network'?\n",
        ),
    ],
    ids=lambda part: " ".join(part)[:50] if isinstance(part, tuple) else "",
)
def test_bad_input_is_one_line_and_exits_with_2(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str
) -> None:
    status, out, err = run(capsys, *words)
    assert (status, out) == (2, "")
    assert err.startswith(message)
    assert err.count("\n") == 1
    assert err[:-1].isprintable()


def test_an_interruption_ends_with_130(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(design_completion, "load_design", interrupted)
    status, out, err = run(capsys, "design", "show", "gpt3-13b@dgx-h100")
    assert (status, out, err.strip()) == (130, "", "cosmic design show: interrupted")


@pytest.mark.parametrize(
    "command",
    ["space sample cosmic-1024-full-stack -n 200000 --json", "catalog list topologies", "--help"],
)
def test_a_reader_that_goes_away_ends_a_command_quietly(command: str) -> None:
    """Unbuffered and closed at once, so that there is certainly something left to write."""
    with subprocess.Popen(
        [sys.executable, "-u", "-m", "cosmic", *command.split()], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 141


def test_the_head_of_many_points_comes_out_whole() -> None:
    command = f"{sys.executable} -m cosmic space sample cosmic-1024-full-stack -n 200000 --json | head -1"
    ended = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert ended.stderr == ""
    assert len(json.loads(ended.stdout)) == 24


# ---- the commands


def test_show_prints_a_design_that_can_be_saved(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = output(capsys, "design", "show", "gpt3-13b@dgx-h100:16")
    (tmp_path / "design.yaml").write_text(out)
    point = load_design("gpt3-13b@dgx-h100:16")
    assert out.startswith(f"# {point.identity}\n# gpt3-13b on 16 × h100-sxm-80gb: dp {point.workload.dp} · ")
    assert load_design(tmp_path / "design.yaml") == point


def test_show_prints_json_with_identity_and_what_does_not_fit(capsys: pytest.CaptureFixture[str]) -> None:
    shown = data(capsys, "design", "show", "gpt3-13b@dgx-h100:16", "--set", "workload.tp=8", "--set", "workload.dp=1")
    assert shown["invalid"] == []
    assert (shown["design"]["workload"]["tp"], shown["design"]["workload"]["dp"]) == (8, 1)
    assert load_design(shown["design"]).identity == shown["identity"]


def test_show_says_why_a_design_cannot_run(capsys: pytest.CaptureFixture[str]) -> None:
    settings = [f"workload.{axis}={degree}" for axis, degree in (("dp", 2), ("tp", 1), ("cp", 1), ("pp", 1))]
    out = output(
        capsys, "design", "show", "gpt3-13b@dgx-h100:16", *(word for text in settings for word in ("--set", text))
    )
    assert "\n# cannot run: dp 2 × tp 1 × cp 1 × pp 1 = 2 ranks on 16 NPUs: make them equal\n" in out


def test_evaluate_prints_a_verdict_a_breakdown_and_advice(capsys: pytest.CaptureFixture[str]) -> None:
    out = output(capsys, "evaluate", "llama3-8b@dgx-h100:8")
    assert "% MFU" in out
    assert " bound it (" in out
    assert "what would help most" in out


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "mapping"),
    [
        (
            "deepseek-v3@dgx-h100:256 --set tp=8 --set pp=2 --set dp=16 --set ep=64 --set etp=2"
            " --set weight_sharding=zero1 --set recompute=none --set memory.capacity=2TiB --set schedule=1f1b"
            " --set micro_batch=1",
            "dp 16 · tp 8 · pp 2 · ep 64 · etp 2 · microbatch 1 · zero1 · recompute none · tp overlap · ep overlap",
        ),
        (
            "llama3-8b@dgx-h100:1 --set layers=2 --set weight_sharding=none --set micro_batch=1",
            "a single accelerator · microbatch 1 · no weight sharding · recompute none",
        ),
        (
            "llama3-8b@dgx-h100:8 --set pp=2 --set tp=2 --set cp=1 --set virtual_stages=2 --set schedule=interleaved"
            " --set micro_batch=1",
            "dp 2 · tp 2 · pp 2 · vpp 2 · microbatch 1 · zero1 · recompute none · tp overlap",
        ),
        ("llama3-8b@dgx-h100:8 --set task=decode --set tp=8", "tp 8 · microbatch 64"),
    ],
)
def test_evaluate_names_every_axis_that_is_not_1(words: str, mapping: str, capsys: pytest.CaptureFixture[str]) -> None:
    first = run(capsys, "evaluate", *words.split())[1].splitlines()[0]
    assert first.partition(": ")[2] == mapping


@pytest.mark.parametrize(
    ("design", "rate", "batch"),
    [
        ("gpt3-125m@dgx-h100:8", "tokens/s", "global batch 256 × 2,048 tokens"),
        ("dlrm-73b@dgx-h100:64", "samples/s", "global batch 131,072 samples"),
    ],
)
def test_evaluate_says_what_is_trained_in_a_step(
    design: str, rate: str, batch: str, capsys: pytest.CaptureFixture[str]
) -> None:
    step, said = output(capsys, "evaluate", design).splitlines()[1:3]
    assert f" {rate} · " in step
    assert said == batch


def test_evaluate_has_stable_keys(capsys: pytest.CaptureFixture[str]) -> None:
    shown = data(capsys, "evaluate", "llama3-8b@dgx-h100:8")
    wanted = {"feasible", "reasons", "step_s", "tokens_per_s", "mfu", "memory_bytes", "memory", "cost_usd", "energy_j"}
    assert wanted | {"breakdown", "provenance", "expected_error"} <= set(shown)
    assert sum(shown["breakdown"].values()) == pytest.approx(shown["step_s"])


def test_a_design_that_cannot_run_is_a_result_with_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["evaluate", "gpt3-175b@dgx-h100:8", "--set", "workload.tp=1", "--set", "workload.pp=8", "--json"])
    assert ended.value.code == 1
    shown = json.loads(capsys.readouterr().out)
    assert shown["feasible"] is False
    assert shown["reasons"][0].startswith("stage 1 of 8 needs ")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("llama3-8b@dgx-h100:8", "model = 'llama3-8b': has no experts: choose an MoE model"),
        ("mixtral-8x7b@dgx-h100:8 --copies -1", "copies = -1: must be from 0 to 65,536"),
    ],
)
def test_experts_of_nothing_are_refused(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["design", "experts", *words.split()])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_sweep_prints_tables_maps_csv_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "design",
        "sweep",
        "llama3-8b@dgx-h100:8",
        "--vary",
        "workload.tp=1,2,3",
        "--vary",
        "workload.micro_batch=1,2",
    ]
    out = output(capsys, *words)
    assert "does not divide" in out
    assert "workload.tp down, workload.micro_batch across" in out
    rows = data(capsys, *words)
    assert len(rows) == 6
    assert [row["feasible"] for row in rows if row["workload.tp"] == 3] == [False, False]
    assert output(capsys, *words, "--csv").splitlines()[0].startswith("workload.tp,workload.micro_batch,feasible")


def test_workload_prints_what_a_device_computes_sends_and_keeps(capsys: pytest.CaptureFixture[str]) -> None:
    shown = data(capsys, "design", "workload", "llama3-8b@dgx-h100:8", "--set", "workload.tp=2")
    assert shown["invalid"] == []
    assert shown["operators"][0]["kind"] == "einsum"
    assert {row["axes"] for row in shown["collectives"]} == {"tp", "dp", "tp · dp"}
    assert 0 < shown["memory"]["total"] < shown["memory"]["capacity"]
    out = output(capsys, "design", "workload", "llama3-8b@dgx-h100:8")
    assert "peak memory" in out
    reasons = output(capsys, "design", "workload", "llama3-8b@dgx-h100:8", "--set", "workload.tp=2", "--why")
    assert "out makes it [batch: dp, sequence: cp, partial: tp], it is kept [batch: dp, sequence: cp tp]" in reasons


def test_list_without_a_kind_counts_all_kinds(capsys: pytest.CaptureFixture[str]) -> None:
    kinds = {row["kind"]: row["entries"] for row in data(capsys, "catalog", "list")}
    assert set(kinds) >= {"models", "accelerators", "nodes", "links", "systems", "spaces", "topologies", "agents"}
    assert all(count > 0 for count in kinds.values())
    for kind, count in kinds.items():
        assert len(data(capsys, "catalog", "list", kind)) == count


def test_list_shows_numbers_in_readable_units(capsys: pytest.CaptureFixture[str]) -> None:
    lines = output(capsys, "catalog", "list", "accelerators").splitlines()
    assert re.search(r"bf16 TFLOP/s +memory GiB", lines[0])
    (h100,) = (line.split() for line in lines if line.startswith("h100-sxm-80gb "))
    assert h100[:5] == ["h100-sxm-80gb", "NVIDIA", "2022", "989.4", "80"]


def test_list_prints_base_units_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    (h100,) = (row for row in data(capsys, "catalog", "list", "accelerators") if row["name"] == "h100-sxm-80gb")
    assert (h100["bf16_flop_per_s"], h100["memory_bytes"], h100["price_usd"]) == (989.4e12, 80 * 2**30, 28000)
    assert h100["source"]


def test_psa_show_folds_dimensions_into_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    out = output(capsys, "space", "show", "cosmic-1024-full-stack")
    assert re.search(r"network +network\.dims\.\*\.npus +3 each, × 4 +4, 8, 16", out)
    assert "= npus // (dp * cp * pp)" in out
    assert "where dp * cp * pp <= npus" in out


def test_psa_show_prints_every_parameter_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    shown = data(capsys, "space", "show", "cosmic-1024-full-stack")
    (npus,) = (each for each in shown["parameters"] if each["name"] == "network.dims.0.npus")
    assert npus == {
        "name": "network.dims.0.npus",
        "stack": "network",
        "sets": ["network.dims.0.npus"],
        "values": [4, 8, 16],
    }
    assert shown["objective"] == "perf_per_bandwidth"


def test_psa_count_counts_each_layer_and_all(capsys: pytest.CaptureFixture[str]) -> None:
    counted = data(capsys, "space", "count", SPACE)
    assert counted["raw"] == 76859228160000
    assert set(counted["by_stack"]) == {"workload", "collective", "network"}
    assert f"{counted['valid']:,}" in output(capsys, "space", "count", SPACE)
    assert (
        data(capsys, "space", "count", SPACE, "--stacks", "workload")["raw"] == counted["by_stack"]["workload"]["raw"]
    )


def test_psa_sample_draws_valid_points_and_the_same_ones_again(capsys: pytest.CaptureFixture[str]) -> None:
    command = ("space", "sample", "cosmic-1024-full-stack", "-n", "5", "--json")
    first = output(capsys, *command, "--seed", "3")
    points = [json.loads(line) for line in first.splitlines()]
    assert len(points) == 5
    assert all(point["workload.dp"] * point["workload.cp"] * point["workload.pp"] <= 1024 for point in points)
    assert all(point["network.dims.0.topology"] != "switch" for point in points)
    assert output(capsys, *command, "--seed", "3") == first
    assert output(capsys, *command, "--seed", "4") != first


def test_psa_sample_prints_points_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    lines = output(capsys, "space", "sample", SPACE, "-n", "2").splitlines()
    assert lines[1].split() == ["parameter", "0", "1"]
    assert any(line.startswith("collective.chunks ") for line in lines)


def test_psa_schema_prints_json_schema(capsys: pytest.CaptureFixture[str]) -> None:
    schema = data(capsys, "space", "schema", SPACE)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert output(capsys, "space", "schema", SPACE) == output(capsys, "space", "schema", SPACE, "--json")


# ---- processes


@pytest.mark.parametrize("environment", [{"COLUMNS": "40"}, {"NO_COLOR": "1"}])
def test_piped_output_is_as_wide_as_it_needs_to_be_and_has_no_escape_codes(environment: dict[str, str]) -> None:
    ended = cosmic_process("catalog", "list", "systems", **environment)
    assert ended.returncode == 0
    assert "\x1b" not in ended.stdout
    assert len(ended.stdout.splitlines()) == len(catalog_entries.entry_names("systems")) + 1


def test_help_imports_no_library() -> None:
    ended = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "cosmic", "--help"], capture_output=True, text=True, check=True
    )
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in ended.stderr.splitlines()}
    assert "cosmic" in imported
    assert imported.isdisjoint(HEAVY)


def test_costs_that_are_unknown_are_said_to_be_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "evaluate", "llama3-8b@tpu-v5p:16")[1]
    assert "to buy unknown (network unknown)\nper million tokens unknown · per step unknown\n" in out
    cables = "cables of network.dims.0 and 1 and 2, ports of circuit switches of network.dims.2"
    assert f"unknown: cost_usd, as no price is known for tpu-v5p, {cables}\n" in out
    found = json.loads(run(capsys, "evaluate", "llama3-8b@tpu-v5p:16", "--json")[1])
    assert (found["cost_usd"], found["energy_j"], found["network_usd"]) == (None, None, None)
    assert found["unknown"]["energy_j"] == "no power is known for tpu-v5p"


def test_a_sweep_of_a_metric_that_no_design_has_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("design", "sweep", "llama3-8b@tpu-v5p:16", "--vary", "tp=1,2", "--metric", "cost_usd")
    status, _, error = run(capsys, *words)
    assert status == 2
    assert "is unknown for every design: no price is known for tpu-v5p" in error


def test_an_error_that_nobody_measured_is_not_quoted(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("evaluate", "gpt-oss-120b@dgx-h200:1", "--set", "task=prefill", "--set", "precision=fp4")
    said = "not measured: no run like this was predicted by this model"
    lines = run(capsys, *words)[1].splitlines()
    assert " per step (P5–P95 " in lines[1]
    assert lines[2] == f"expected error {said}; the range is that of other kinds, widened"
    found = json.loads(run(capsys, *words, "--json")[1])
    assert (found["expected_error"], found["expected_on"]) == (None, said)
