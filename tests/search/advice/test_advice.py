"""What would help a design most: every change that is listed can be set, and gives what it promises."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from random import Random
from typing import Any

import pytest

from cosmic.cli.evaluate_command import break_command
from cosmic.design import schema
from cosmic.design.design_point import DesignPoint
from cosmic.design.loading import design_tree, parse_overrides, stated_fields
from cosmic.design.workload_layer import Workload
from cosmic.evaluation import evaluate
from cosmic.search.advice.design_advice import (
    MIN_SPEEDUP,
    Change,
    advise,
    apply_change,
    explain_bound,
    find_improvements,
    find_repairs,
    mend_mapping,
    overrides_of_change,
)
from cosmic.search.advice.ineffective_fields import find_ineffective_fields
from cosmic.search.advice.moves import combine_changes, list_moves
from cosmic.search.design_wording import evaluate_command_of
from cosmic.search.mapping.design_completion import load_design
from cosmic.simulate.metrics import Infeasible, Metrics
from tests.commands import output, run
from tests.relations.random_designs import random_design

LLAMA = "llama3-70b@dgx-h100:64"
MESH = {"tp": 8, "pp": 2, "cp": 1, "weight_sharding": "zero1", "global_batch": 64}
BARE = {"memory.context": "0 B"}
"""Memory of tensors alone, into which `MESH` fits without recomputation: with its process it does so with 90 %."""


def metrics(point: DesignPoint) -> Metrics:
    outcome = evaluate(point)
    assert isinstance(outcome, Metrics), outcome
    return outcome


def helped(design: str, **workload: Any) -> tuple[DesignPoint, list[Change]]:
    point = load_design(design, workload)
    return point, find_improvements(point, metrics(point))


def paths(changes: list[Change]) -> set[str]:
    return {path for change in changes for path in change.settings}


def test_what_bounds_a_design_is_named() -> None:
    point = load_design(LLAMA, MESH)
    assert explain_bound(point, metrics(point)).startswith("GEMMs bound it (")


def test_actions_come_before_purchases_and_each_are_sorted() -> None:
    _, found = helped(LLAMA, **MESH)
    kinds = [change.kind for change in found]
    assert kinds == sorted(kinds)
    assert {"action", "purchase"} == set(kinds)
    for kind in ("action", "purchase"):
        speedups = [change.speedup or 0.0 for change in found if change.kind == kind]
        assert speedups == sorted(speedups, reverse=True)
        assert min(speedups) > MIN_SPEEDUP
    bought = ("network", "compute", "memory")
    assert not any(path.startswith(bought) for change in found if change.kind == "action" for path in change.settings)


def test_a_narrower_format_is_open_only_if_accuracy_allows_and_the_accelerator_multiplies_in_it() -> None:
    _, found = helped(LLAMA, **MESH)
    narrow = [change for change in found if "workload.precision" in change.settings]
    assert narrow
    assert {change.condition for change in narrow} == {"if accuracy allows"}
    _, found = helped("llama3-8b@dgx-a100:8", tp=2, cp=1, pp=1, weight_sharding="zero1", global_batch=64)
    assert "workload.precision" not in paths(found)


def test_a_pair_beats_every_single_move() -> None:
    _, found = helped(LLAMA, **{**MESH, "recompute": "full"})
    singles = [change.speedup or 0.0 for change in found if (change.kind, change.moves) == ("action", 1)]
    pairs = [change for change in found if (change.kind, change.moves, change.condition) == ("action", 2, "")]
    plain = [c.speedup or 0.0 for c in found if (c.kind, c.moves, c.condition) == ("action", 1, "")]
    assert singles
    assert pairs
    assert all((pair.speedup or 0.0) > 1.01 * max(plain) for pair in pairs)


@pytest.mark.parametrize("task", ["prefill", "decode"])
def test_who_serves_is_told_nothing_about_training(task: str) -> None:
    point = load_design("llama3-8b@dgx-h100:8", {"task": task})
    of_training = ("recompute", "schedule", "virtual_stages", "loss", "weight_sharding", "sequence_parallel", "moments")
    tried = {path for move in list_moves(point) for path in move.values}
    assert tried.isdisjoint(f"workload.{name}" for name in of_training)


def test_more_sequences_at_a_time_are_open_if_latency_allows() -> None:
    _, found = helped("gpt-oss-120b@dgx-b200:64", task="decode")
    more = [change for change in found if "workload.global_batch" in change.settings]
    assert more
    assert all("if latency allows" in change.condition for change in more)
    assert all("workload.micro_batch" in change.settings for change in more)


def test_a_recommender_is_told_nothing_about_pipelines_and_tensors() -> None:
    _, found = helped("dlrm-criteo@dgx-h100:16")
    assert paths(found).isdisjoint(f"workload.{name}" for name in ("tp", "cp", "pp", "schedule", "recompute", "ep"))


def test_what_depends_on_a_move_moves_along() -> None:
    point = load_design("mixtral-8x7b@dgx-h200:64", {"tp": 1, "cp": 1, "pp": 1, "ep": 8, "micro_batch": 2})
    for move in list_moves(point):
        changes = combine_changes(point, [move])
        if changes and "workload.pp" in changes:
            workload = schema.assign_fields(point, changes).workload
            assert workload.ranks == 64
            assert (workload.dp * workload.tp * workload.cp) % workload.ep == 0
            assert workload.global_batch % (workload.dp * workload.micro_batch) == 0


# ---- what it promises


@pytest.mark.parametrize("seed", [1, 2, 3, 5])
def test_every_change_gives_exactly_what_it_promises(seed: int) -> None:
    point = random_design(Random(seed), accelerators=16 if seed == 2 else None)
    tree, outcome = design_tree(point), evaluate(point)
    base = outcome if isinstance(outcome, Metrics) else None
    for change, settings in advise(tree, {}, point, base):
        promised(tree, settings, change, base)


@pytest.mark.parametrize(
    ("design", "overrides"),
    [
        ("llama3-70b@dgx-h100:512", {}),
        ("gpt-oss-120b@dgx-b200:64", {"task": "decode"}),
        ("llama3-8b@dgx-a100:8", {"task": "prefill", "collective.algorithms": ["ring"], "network.dims.0.npus": 8}),
    ],
)
@pytest.mark.long
def test_settings_complete_what_loading_would_choose_anew(design: str, overrides: dict[str, Any]) -> None:
    point = load_design(design, overrides)
    base = metrics(point)
    raw, found = find_improvements(point, base), advise(design, overrides, point, base)
    assert [change for change, _ in found] == raw
    for change, settings in found[:2]:
        promised(design, settings, change, base)
        assert load_design(design, settings) == apply_change(point, change.settings)


def promised(
    source: str | Mapping[str, Any], settings: Mapping[str, Any], change: Change, base: Metrics | None
) -> None:
    found = metrics(load_design(source, settings))
    assert (found.tokens_per_s, found.samples_per_s) == (change.tokens_per_s, change.samples_per_s)
    assert found.step_s == change.step_s
    assert found.memory_bytes == change.memory_bytes
    assert change.speedup == (None if base is None else found.throughput_per_s / base.throughput_per_s)


def test_a_list_that_was_given_as_a_whole_is_changed_as_a_whole() -> None:
    design, given = "gpt3-13b@cosmic-512", {"collective.algorithms": ["ring"] * 4, "tp": 4, "cp": 1, "pp": 1}
    point = load_design(design, given)
    settings = overrides_of_change(design, given, point, {"collective.algorithms.1": "direct"})
    assert settings is not None
    assert settings["collective.algorithms"] == ["ring", "direct", "ring", "ring"]


# ---- what cannot run


def test_a_design_that_does_not_fit_is_told_what_makes_it_fit_fastest_first() -> None:
    point = load_design(LLAMA, {"tp": 8, "pp": 2, "cp": 1, "global_batch": 64, "sequence": 4096}, plain=True)
    assert isinstance(evaluate(point), Infeasible)
    found = find_repairs(point)
    free = [change.step_s for change in found if change.kind == "action" and not change.condition]
    assert free == sorted(free)
    assert {"workload.weight_sharding": "zero1"} in [change.settings for change in found]
    assert {"memory.capacity": "160 GiB"} in [change.settings for change in found if change.kind == "purchase"]
    assert all(change.speedup is None for change in found)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"global_batch": 62}, {"workload.global_batch": 64}),
        ({"dp": 2}, {"workload.dp": 4}),
        ({"virtual_stages": 64, "schedule": "interleaved"}, {"workload.virtual_stages": 1}),
        ({"micro_batch": 3, "sequence": 4096}, {"workload.micro_batch": 2}),
        ({"schedule": "dualpipe", "global_batch": 12}, {"workload.schedule": "1f1b"}),
        ({"ep": 4}, {"workload.ep": 1}),
        ({"precision": "int4"}, {"workload.precision": "bf16"}),
    ],
)
def test_an_invalid_mapping_is_mended(given: dict[str, Any], expected: dict[str, Any]) -> None:
    point = load_design(LLAMA, {**MESH, **BARE, "dp": 4, "micro_batch": 1, "recompute": "none", **given})
    assert isinstance(evaluate(point), Infeasible)
    assert mend_mapping(point) == expected
    changes = [change.settings for change in find_repairs(point)]
    assert changes == [{path: schema.write_value(value) for path, value in expected.items()}]


def test_offloading_without_a_host_is_mended_by_leaving_it_out() -> None:
    point = load_design("llama3-8b@tpu-v6e:8", {"offload": ["optimizer"]})
    assert mend_mapping(point) == {"workload.offload": ()}


def test_what_no_mapping_mends_is_not_advised() -> None:
    point = load_design("bert-large@dgx-h100:8", {"task": "decode"})
    assert mend_mapping(point) is None
    assert find_repairs(point) == []


# ---- effects


def test_what_makes_a_design_run_is_no_slower_than_its_own_mapping() -> None:
    """The settings alone, without a mapping, load as fast a design."""
    source, given = "llama3-70b@dgx-h100:8", {"tp": 8, "recompute": "full"}
    found = advise(source, given, load_design(source, given), None)
    change, settings = next(each for each in found if "workload.offload" in each[0].settings)
    said, bare = (evaluate(load_design(source, each)) for each in (settings, given | {"offload": ["optimizer"]}))
    assert isinstance(said, Metrics)
    assert isinstance(bare, Metrics)
    assert said.step_s == pytest.approx(change.step_s)
    assert said.step_s <= bare.step_s * MIN_SPEEDUP
    assert [each.step_s for each, _ in found if each.kind == "action"] == sorted(
        each.step_s for each, _ in found if each.kind == "action"
    )


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("reduce_every", "microbatch", "weight_sharding is zero1"),
        ("recompute_modules", ["mlp"], "recompute is none"),
        ("recompute_num_layers", 2, "recompute is none"),
        ("offload_num_layers", 2, "activations are not offloaded"),
        ("cp_comm_type", "ulysses", "cp is 1"),
        ("ep_overlap", True, "the model has no experts"),
    ],
)
def test_a_key_without_effect_is_said_to_have_none(name: str, value: Any, said: str) -> None:
    given = {**MESH, **BARE, "recompute": "none", name: value}
    point = load_design(LLAMA, given)
    found = find_ineffective_fields(point, stated_fields(LLAMA, given))
    assert found == {f"workload.{name}": said}
    default = schema.slots(Workload)[name].default
    plain = replace(point, workload=replace(point.workload, **{name: default}))
    assert metrics(plain).step_s == metrics(point).step_s


@pytest.mark.parametrize("seed", [0, 1, 3, 4, 5, 7])
def test_a_key_that_is_said_to_have_no_effect_has_none(seed: int) -> None:
    point = random_design(Random(seed))
    slots = schema.slots(Workload)
    for path in find_ineffective_fields(point, [f"workload.{name}" for name in slots]):
        name = path.partition(".")[2]
        others = {slots[name].default} - {getattr(point.workload, name)}
        for other in others:
            plain = replace(point, workload=replace(point.workload, **{name: other}))
            if name != "cp_comm_type":  # tensors that ulysses would exchange are counted twice, also where cp is 1
                assert evaluate(plain) == evaluate(point), (name, other)


# ---- the command


@pytest.mark.long
def test_commands_can_be_pasted(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["evaluate", LLAMA, *(word for key, value in MESH.items() for word in ("--set", f"{key}={value}"))]
    out = output(capsys, *words)
    actions, purchases = out.split("\nwhat to buy\n")
    assert "\nwhat would help most\n" in actions
    lines = [line.strip() for line in (actions + purchases).splitlines() if line.strip().startswith("cosmic evaluate")]
    first = json.loads(output(capsys, *words, "--json", "--advice"))
    assert [each["command"] for each in first["improvements"]] == lines
    for each in (first["improvements"][0], first["improvements"][-1]):
        program, *pasted = shlex.split(each["command"])
        assert program == "cosmic"
        assert parse_overrides(pasted[3::2]).keys()
        again = json.loads(output(capsys, *pasted, "--json"))
        assert again["tokens_per_s"] / first["tokens_per_s"] == each["speedup"]


def test_json_has_no_advice_unless_asked(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("cosmic.search.advice.design_advice"), "advise", None)
    assert "improvements" not in json.loads(output(capsys, "evaluate", "llama3-8b@dgx-h100:8", "--json"))


def test_a_narrow_terminal_breaks_commands_between_options(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cosmic.cli.evaluate_command.is_terminal", lambda: True)
    monkeypatch.setattr("cosmic.cli.evaluate_command.terminal_columns", lambda: 80)
    out = output(capsys, "evaluate", "llama3-8b@dgx-h100:8")
    told = out.partition("what would help most")[2].splitlines()[1:]
    commands = [line for line in told if line.startswith("         ")]
    assert commands
    assert max(map(len, commands)) <= 80
    joined = "\n".join(commands).replace(" \\\n", " ")
    assert all(shlex.split(line)[:2] == ["cosmic", "evaluate"] for line in joined.splitlines())


def test_words_are_quoted_and_read_back() -> None:
    settings = {"workload.recompute_modules": ["mlp", "layernorm"], "model.name": "1e3", "workload.etp": None}
    words = shlex.split(" ".join(evaluate_command_of("my design.yaml", settings)))
    assert words[2] == "my design.yaml"
    assert parse_overrides(words[4::2]) == {"recompute_modules": ["mlp", "layernorm"], "model.name": "1e3", "etp": None}
    assert break_command(words[:3], 10) == ["         cosmic evaluate my design.yaml"]


def test_a_design_that_cannot_run_is_told_what_would_make_it_run(capsys: pytest.CaptureFixture[str]) -> None:
    mesh = ["tp=8", "pp=2", "cp=1", "weight_sharding=none", "recompute=none", "schedule=1f1b", "sequence=4096"]
    status, out, _ = run(capsys, "evaluate", LLAMA, *(word for each in mesh for word in ("--set", each)))
    assert status == 1
    assert out.splitlines()[1].startswith("cannot run: stage 1 of 2 needs ")
    assert "\nwhat would make it run, fastest first\n" in out
    assert "weight_sharding none → zero1" in out


def test_a_key_without_effect_is_a_note(capsys: pytest.CaptureFixture[str]) -> None:
    out = output(
        capsys, "evaluate", "llama3-8b@dgx-h100:8", "--set", "recompute_modules=[mlp]", "--set", "recompute=none"
    )
    assert "\nnote: recompute_modules has no effect: recompute is none\n" in out
