"""A search is made of what the form offers, narrowed, and checked before it runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from cosmic.report.live.search_form import form_choices, narrowed_space, schema_of, search_of, space_of
from cosmic.report.live.search_processes import search_arguments
from cosmic.search.space.space_files import load_space
from tests.report.live.asking import Client
from tests.report.live.conftest import SPACE


def test_the_form_is_built_from_what_there_is(client: Client) -> None:
    found = client.get("/api/catalog").json
    assert SPACE in [each["name"] for each in found["spaces"]]
    genetic = next(each for each in found["agents"] if each["name"] == "genetic")
    assert genetic["summary"]
    assert all(set(each) == {"name", "type", "default"} for each in genetic["settings"])
    assert {"name": "mfu", "better": "more"}.items() <= next(m for m in found["metrics"] if m["name"] == "mfu").items()
    assert found == json.loads(json.dumps(form_choices()))


def test_the_schema_of_a_space_describes_its_points(client: Client) -> None:
    schema = client.get(f"/api/spaces/{SPACE}").json
    space = load_space(SPACE)
    point = space.labels(space.sample(1, np.random.default_rng(0))[0])
    jsonschema.validate(point, schema)
    assert schema["x-cosmic"]["stacks"] == list(space.stacks)
    only = client.get(f"/api/spaces/{SPACE}?stacks=workload").json
    assert {each["x-cosmic"]["stack"] for each in only["properties"].values() if "enum" in each} == {"workload"}
    assert client.get("/api/spaces/cosmic-513").status == 404
    assert client.get("/api/studies/study/schema").json == schema


@pytest.mark.parametrize("name", ["cosmic-512-full-stack", "cosmic-1024-paper", "cosmic-2048-full-stack"])
def test_a_set_that_is_not_narrowed_is_the_same(name: str) -> None:
    space = space_of(name)
    first = space.parameters[0]
    same = narrowed_space({"space": name, "restrict": {first.name: list(first.labels)}})
    assert same.identity == space.identity


def test_a_narrowed_set_has_only_those_values(client: Client) -> None:
    body = {
        "space": SPACE,
        "restrict": {"workload.pp": [2, 1], "network.dims.0.topology": ["ring"]},
        "fixed": {"collective.chunks": 4},
    }
    space = narrowed_space(body)
    labels = {each.name: each.labels for each in space.parameters}
    assert labels["workload.pp"] == (1, 2)
    assert labels["network.dims.0.topology"] == ("ring",)
    assert labels["network.dims.1.topology"] == ("ring", "fully_connected", "switch")
    assert labels["collective.chunks"] == (4,)
    count = client.post("/api/count", body).json
    assert count == {"raw": space.raw, "valid": space.valid}
    assert set(schema_of(space)["properties"]) == set(schema_of(space_of(SPACE))["properties"])


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "space = None: must be a short text"),
        ({"space": "cosmic-513"}, "space = 'cosmic-513': no such space"),
        ({"space": SPACE, "agent": "genetics"}, "agent = 'genetics': no such agent; did you mean 'genetic'?"),
        ({"space": SPACE, "trials": 0}, "trials = 0: must be a whole number from 1"),
        ({"space": SPACE, "trials": 10**7}, "trials = 10000000: must be a whole number"),
        ({"space": SPACE, "trials": 1.5}, "trials = 1.5"),
        ({"space": SPACE, "trials": True}, "trials = True"),
        ({"space": SPACE, "seed": -1}, "seed = -1"),
        ({"space": SPACE, "objectives": ["speed"]}, "objective = 'speed': no such objective"),
        ({"space": SPACE, "constraints": ["mfu"]}, "constraint = 'mfu': write METRIC <= VALUE"),
        ({"space": SPACE, "stacks": ["wrokload"]}, "did you mean 'workload'?"),
        ({"space": SPACE, "settings": {"populaton": 3}}, "no such key"),
        ({"space": SPACE, "restrict": {"workload.pp": []}}, "leave at least one value"),
        ({"space": SPACE, "restrict": {"workload.pp": [3]}}, "workload.pp = 3: no such value of it"),
        ({"space": SPACE, "restrict": {"workload.pq": [1]}}, "parameter = 'workload.pq': no such parameter"),
        (
            {"space": SPACE, "restrict": {"workload.pp": [1]}, "fixed": {"workload.pp": 1}},
            "is fixed: restrict it or",
        ),
        ({"space": SPACE, "fixed": {f"network.dims.{n}.npus": 16 for n in range(4)}}, "satisfy this"),
        ({"space": SPACE, "engine": "ray"}, "engine = 'ray': no such engine"),
        ({"space": SPACE, "name": "../x"}, "name = '../x'"),
        ({"space": SPACE, "out": "/etc/x"}, "out = '/etc/x': no such key"),
    ],
)
def test_a_search_that_is_wrong_is_refused_with_a_sentence(
    client: Client, runs: Path, body: dict[str, Any], said: str
) -> None:
    client.site.searches.most = 3
    before = sorted(runs.iterdir())
    answer = client.post("/api/searches", body)
    assert answer.status == 422
    assert said in answer.error
    assert sorted(runs.iterdir()) == before


MACHINE = "llama3-8b@dgx-h100:16"


def test_the_mappings_of_a_model_on_a_system_are_a_set_to_search(client: Client) -> None:
    offer = client.get("/api/catalog").json
    assert {"llama3-8b"} <= set(offer["models"])
    assert {"dgx-h100"} <= set(offer["systems"])
    assert offer["tasks"] == ["training", "prefill", "decode"]
    schema = client.get(f"/api/spaces/{MACHINE}").json
    assert "workload.tp" in schema["properties"]
    assert schema["x-cosmic"]["valid"] == load_space(MACHINE).valid
    served = client.get(f"/api/spaces/{MACHINE}?task=decode").json
    assert 0 < served["x-cosmic"]["valid"] < schema["x-cosmic"]["valid"]
    assert client.post("/api/count", {"space": MACHINE, "task": "decode"}).json["valid"] == served["x-cosmic"]["valid"]


def test_a_search_of_a_machine_is_named_by_it_and_passed_on_as_it_is() -> None:
    wanted = search_of({"space": MACHINE, "trials": 10})
    assert (wanted.space, wanted.name) == (MACHINE, "llama3-8b-dgx-h100-16-genetic-0")
    assert wanted.inputs.objectives == ("step_s",)
    served = search_of({"space": MACHINE, "task": "decode", "trials": 10})
    assert served.name == "llama3-8b-dgx-h100-16-decode-genetic-0"
    assert isinstance(served.space, dict)  # a task is not part of the name: the whole set is written to a file
    assert load_space(served.space).base.workload.task == "decode"
    few = search_of({"space": MACHINE, "restrict": {"workload.tp": [2]}, "trials": 10})
    assert isinstance(few.space, dict)


@pytest.mark.parametrize(
    ("space", "task", "said"),
    [
        ("llama3-8b@dgx-h101:16", "training", "system = 'dgx-h101': no such system"),
        ("llama-8b@dgx-h100:16", "training", "model = 'llama-8b': no such model"),
        ("../secret.yaml@dgx-h100", "training", "model = '../secret.yaml': no such model"),
        ("llama3-8b@../secret.yaml", "training", "system = '../secret.yaml': no such system"),
        ("a@b@c", "training", "model = 'a@b': no such model"),
        ("@", "training", "model = '': no such model"),
        ("--help@dgx-h100", "training", "model = '--help': no such model"),
        ("llama3-8b@dgx-h100:0", "training", "accelerators = '0': must be a whole number from 1"),
        ("llama3-8b@dgx-h100:-8", "training", "accelerators = '-8'"),
        ("llama3-8b@dgx-h100:", "training", "accelerators = ''"),
        ("llama3-8b@dgx-h100:7", "training", "system = 'dgx-h100:7'"),
        ("llama3-8b@dgx-h100:99999999", "training", "accelerators = '99999999'"),
        (MACHINE, "sleeping", "task = 'sleeping': no such task"),
        (MACHINE, "", "task = '': must be a short text"),
        (SPACE, "decode", "task = 'decode': is that of the parameter set"),
    ],
)
def test_a_machine_that_is_wrong_is_refused_with_a_sentence(client: Client, space: str, task: str, said: str) -> None:
    answer = client.post("/api/searches", {"space": space, "task": task, "trials": 1})
    assert answer.status == 422
    assert said in answer.error


def test_no_value_can_be_an_option_of_the_command() -> None:
    wanted = search_of({"space": SPACE, "constraints": ["mfu >= 0.1"], "settings": {}, "stacks": ["workload"]})
    words = search_arguments(wanted.inputs, Path("runs/x"))
    assert all(word.startswith("--") for word in words)
    assert "--constraint=mfu >= 0.1" in words
    assert "--stacks=workload" in words
