"""Parameter sets in files, as JSON Schema, and as a stream of points."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import yaml

from cosmic.base.errors import SpecError
from cosmic.design import catalog_entries
from cosmic.search.space.space_files import json_schema, load_space, sample_json_lines

FULL = load_space("cosmic-1024-full-stack")
SMALL: dict[str, Any] = {"base": "gpt3-175b@cosmic-512", "parameters": {"workload.dp": [1, 2]}}


@pytest.mark.parametrize("name", catalog_entries.entry_names("spaces"))
def test_every_space_of_the_catalog_loads(name: str) -> None:
    loaded = load_space(name)
    assert loaded.name == name
    assert 0 < loaded.valid <= loaded.raw


def test_a_file_is_loaded_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(SMALL))
    assert (load_space(path).name, load_space(str(path)).valid) == ("mine", 2)


def test_the_base_may_be_a_design_file_beside_it(tmp_path: Path) -> None:
    (tmp_path / "design.yaml").write_text("model: gpt3-13b\nsystem: dgx-h100:16\n")
    (tmp_path / "space.yaml").write_text(yaml.safe_dump({**SMALL, "base": "design.yaml"}))
    assert load_space(tmp_path / "space.yaml").base.network.npus == 16


def test_the_base_may_be_given_inline() -> None:
    inline = {**SMALL, "base": {"model": "gpt3-13b", "system": "dgx-h100:16"}}
    assert load_space(inline).base.model.name == "gpt3-13b"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"parameter": {}}, "parameter = {}: no such key; did you mean 'parameters'?"),
        ({"version": 2}, "version = 2: this release reads version 1"),
        ({"base": "gpt3-175b@cosmic-51"}, "base.system = 'cosmic-51': no such system; did you mean 'cosmic-512'?"),
        ({"base": None}, "base = None: give MODEL@SYSTEM, a design file, or a design"),
        ({"constraints": "dp == 1"}, "constraints = 'dp == 1': must be a list of expressions"),
        ({"derived": ["tp"]}, "derived = ['tp']: must map paths to expressions"),
        ({"derived": {"workload.tq": "1"}}, "derived.workload.tq = 'workload.tq': no such field; did you mean"),
        ({"derived": {"workload.tp": 3}}, "derived.workload.tp = 3: must be text"),
        ({"objective": 3}, "objective = 3: must be text"),
        ({"name": "a\x1b[2J"}, r"name = 'a\x1b[2J': must be printable text on one line"),
        ({"workloads": {"a\nb": {"weight": 2}}}, r"workloads = 'a\nb': must be printable text on one line"),
        ({"name": "x" * 201}, "has 201 characters, more than the 200 that it may have"),
    ],
)
def test_a_mistake_in_a_file_is_said_with_its_place(change: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as error:
        load_space({**SMALL, **change})
    assert message in str(error.value)


def test_an_unknown_space_gets_a_suggestion() -> None:
    with pytest.raises(SpecError, match="did you mean 'cosmic-1024-paper'"):
        load_space("cosmic-1024-papr")


def test_the_schema_is_valid_and_accepts_exactly_what_is_sampled() -> None:
    schema = json_schema(FULL)
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    points = [json.loads(line) for line in sample_json_lines(FULL, 20, np.random.default_rng(0))]
    for point in points:
        validator.validate(point)
    assert not validator.is_valid({**points[0], "workload.dp": 3})
    assert not validator.is_valid({**points[0], "workload.dq": 1})
    assert not validator.is_valid({key: value for key, value in points[0].items() if key != "workload.dp"})


def test_the_schema_carries_what_json_schema_cannot_say() -> None:
    extra = json_schema(FULL)["x-cosmic"]
    assert (extra["format"], extra["raw"], extra["valid"]) == (1, FULL.raw, FULL.valid)
    assert extra["constraints"] == list(FULL.constraints)


def test_streamed_points_are_the_sampled_points() -> None:
    lines = list(sample_json_lines(FULL, 50, np.random.default_rng(4)))
    rows = FULL.sample(50, np.random.default_rng(4))
    assert [json.loads(line) for line in lines] == [FULL.labels(row) for row in rows]


def test_a_stream_goes_on_across_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("cosmic.search.space.space_files"), "SAMPLED_AT_ONCE", 7)
    lines = list(sample_json_lines(FULL, 20, np.random.default_rng(4)))
    assert len(lines) == 20
    assert len(set(lines)) == 20


def test_a_set_is_found_again_in_what_it_says_of_itself() -> None:
    space = load_space("cosmic-512-full-stack")
    for each in (space, space.restrict(["workload", "network"])):
        assert each.source is not None
        again = load_space(each.source)
        assert (again.identity, again.name, again.valid) == (each.identity, each.name, each.valid)
    assert space.identity != space.restrict(["workload"]).identity


def test_a_file_may_open_some_layers_only() -> None:
    whole = load_space("cosmic-512-full-stack")
    assert whole.source is not None
    assert load_space({**whole.source, "stacks": ["workload"]}).stacks == ("workload",)
    with pytest.raises(SpecError, match="must be a list of layers"):
        load_space({**whole.source, "stacks": "workload"})


def test_limits_on_metrics_are_told_from_constraints_on_parameters() -> None:
    whole = load_space("cosmic-512-full-stack")
    assert whole.source is not None
    both = load_space({**whole.source, "constraints": [*whole.constraints, "memory_bytes <= 20 GB"]})
    assert both.limits == ("memory_bytes <= 20 GB",)
    assert both.valid == whole.valid
    assert both.identity != whole.identity


SERVED: dict[str, Any] = {
    "base": {"model": "llama3-8b", "system": "dgx-h100:8", "workload": {"task": "decode", "global_batch": 64}},
    "parameters": {"{dp,tp,pp}": {"split": "npus", "powers_of_two": True}},
}


def served_micro_batches(tree: dict[str, Any]) -> dict[tuple[int, int], int]:
    """Return the microbatch of each point of a set, by dp and pp."""
    space = load_space(tree)
    points = [space.point(row).workload for row in space.sample(200, np.random.default_rng(1))]
    return {(each.dp, each.pp): each.micro_batch for each in points}


def test_a_microbatch_follows_the_mapping_that_is_searched_for_decoding() -> None:
    """64 sequences on 8 replicas are 8 each; on one replica of 4 stages, 4 microbatches of 16."""
    found = served_micro_batches(SERVED)
    assert (found[8, 1], found[1, 1], found[1, 4], found[2, 4]) == (8, 64, 16, 8)
    again = load_space(SERVED).source
    assert again is not None
    assert served_micro_batches(dict(again)) == found


def test_a_microbatch_follows_the_prompts_of_a_replica() -> None:
    """8,192 tokens are 4 prompts of 2,048; each of 8 replicas has 2 of the 16, each of 4 has 4."""
    workload = {"task": "prefill", "global_batch": 16, "sequence": 2048}
    found = served_micro_batches({**SERVED, "base": {**SERVED["base"], "workload": workload}})
    assert (found[8, 1], found[4, 1], found[1, 1]) == (2, 4, 4)


def test_a_microbatch_that_is_stated_or_searched_stays() -> None:
    stated = {**SERVED["base"], "workload": {**SERVED["base"]["workload"], "micro_batch": 2}}
    assert set(served_micro_batches({**SERVED, "base": stated}).values()) == {2}
    assert load_space({**SERVED, "parameters": {**SERVED["parameters"], "micro_batch": [1, 2]}}).derived == {}
    assert load_space({**SERVED, "parameters": {"tp": [1, 2]}}).derived == {}


def test_a_workload_of_another_task_has_the_microbatch_of_that_task() -> None:
    workload = {"task": "prefill", "global_batch": 64, "tp": 8, "cp": 1, "pp": 1, "sequence": 8192}
    mix = {"prefill": {"task": "prefill"}, "decode": {"task": "decode", "weight": 200}}
    tree = {"base": {**SERVED["base"], "workload": workload}, "parameters": {"sequence_parallel": [True, False]}}
    sizes = {share.name: share.base.workload.micro_batch for share in load_space({**tree, "workloads": mix}).workloads}
    assert sizes == {"prefill": 1, "decode": 64}
