"""Crafted studies: files that lie elsewhere, and a study.json that was written by hand."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

from tests.search.spoiling import (
    Spoils,
    a_folder,
    change_base,
    change_space,
    keep,
    linked,
    piped,
    rewritten,
    run_sql,
    set_about,
    set_base,
    set_input,
)

SPOILED = Spoils()
spoils = SPOILED.add

# ---- files outside of the study


BASES_ELSEWHERE = {
    "file": "BESIDE/secret.yaml",
    "json": "BESIDE/secret.json",
    "text": "BESIDE/secret.txt",
    "pipe": "BESIDE/pipe.yaml",
    "relative": "../secret.yaml",
    "passwords": "/etc/passwd",
    "device": "/dev/zero",
    "terminal": "/dev/stdin",
    "at_file": "gpt3-175b@BESIDE/secret.yaml",
    "of_file_at": "BESIDE/secret.json@dgx-h100",
    "of_folder_at": "BESIDE/model@dgx-h100",
}
LAYERS_ELSEWHERE: dict[str, tuple[str, Any]] = {
    "model_is_file": ("model", "BESIDE/secret.yaml"),
    "model_is_json": ("model", "BESIDE/secret.json"),
    "model_is_folder": ("model", "BESIDE/model"),
    "model_is_pipe": ("model", {"base": "BESIDE/pipe.yaml"}),
    "system_is_file": ("system", "BESIDE/secret.yaml"),
    "accelerator_is_file": ("compute", "BESIDE/secret.yaml"),
    "accelerator_is_pipe": ("compute", {"accelerator": "BESIDE/pipe.yaml"}),
    "strategy_is_file": ("workload", {"sequence": 8, "strategies": ["BESIDE/secret.yaml"]}),
}
WORKLOADS_ELSEWHERE = {
    "model_is_file": {"model": "BESIDE/secret.yaml"},
    "model_base_is_pipe": {"model.base": "BESIDE/pipe.yaml"},
    "accelerator_is_file": {"compute.accelerator": "BESIDE/secret.yaml"},
    "system_is_file": {"system": "BESIDE/secret.yaml"},
}
for _name, _base in BASES_ELSEWHERE.items():
    SPOILED[f"base_is_{_name}"] = partial(set_base, value=_base)
for _name, (_layer, _value) in LAYERS_ELSEWHERE.items():
    SPOILED[f"base_{_name}"] = partial(change_base, layer=_layer, value=_value)
for _name, _changes in WORKLOADS_ELSEWHERE.items():
    SPOILED[f"workload_{_name}"] = partial(change_space, key="workloads", value={"a": _changes})
SPOILED["space_is_file"] = partial(set_input, name="space", value="BESIDE/secret.yaml")
SPOILED["agent_is_file"] = partial(set_input, name="agent", value="../secret")

FILES = ("study.json", "trials.db", "trials.db-wal", "trials.db-shm", "lock", "best.yaml")
for _name in FILES:
    _called = _name.replace(".", "_").replace("-", "_")
    SPOILED[f"{_called}_is_link"] = partial(linked, name=_name, target="../secret.yaml")
    SPOILED[f"{_called}_is_pipe"] = partial(piped, name=_name)
    SPOILED[f"{_called}_is_folder"] = partial(a_folder, name=_name)
SPOILED.update(
    {
        "best_is_dangling_link": partial(linked, name="best.yaml", target="../written-outside"),
        "report_is_dangling_link": partial(linked, name="report.html", target="../written-outside"),
        "lock_is_dangling_link": partial(linked, name="lock", target="../written-outside"),
        "journal_is_link": partial(linked, name="trials.db-journal", target="../secret.yaml"),
        "study_json_is_device": partial(linked, name="study.json", target="/dev/zero"),
        "trials_db_is_device": partial(linked, name="trials.db", target="/dev/zero"),
    }
)


@spoils
def saved_trials_are_a_link(study: Path) -> None:
    """The doctor keeps damaged trials under a name that is a link already."""
    linked(study, "trials.damaged.db", "../written-outside")
    run_sql(study, ["UPDATE packed SET crc = 0 WHERE first = 0"])


@spoils
def saved_log_is_a_folder(study: Path) -> None:
    """The doctor keeps the log of damaged trials under a name that is a folder already."""
    a_folder(study, "trials.damaged.db-wal")
    (study / "trials.db-wal").write_bytes(b"no log")
    run_sql(study, ["UPDATE packed SET crc = 0 WHERE first = 0"])


@spoils
def new_trials_are_a_link(study: Path) -> None:
    """The doctor writes new trials to a name that is a link already."""
    linked(study, ".trials.db.new", "../written-outside")
    run_sql(study, ["UPDATE packed SET crc = 0 WHERE first = 0"])


@spoils
def journal_names_another_file(study: Path) -> None:
    """A journal that asks SQLite to delete a file elsewhere once it is applied."""
    name = str(study.parent / "secret.txt").encode()
    tail = b"".join(
        [
            (1).to_bytes(4, "big"),
            name,
            len(name).to_bytes(4, "big"),
            sum(name).to_bytes(4, "big"),
            bytes.fromhex("d9d505f920a163d7"),
        ]
    )
    head = bytes.fromhex("d9d505f920a163d7") + bytes(20)
    (study / "trials.db-journal").write_bytes(head.ljust(512, b"\0") + tail)


# ---- study.json

_BIG = 10**30
INPUTS: dict[str, list[Any]] = {
    "trials": ["many", 0, -1, 1.5, True, None, _BIG, 10**300, [1]],
    "pace": ["fast", 0, -5, 1e300, None],
    "batch": [0, -1, 10**15, 2.5, "x", None],
    "seed": [-1, 1.5, "x", None, [1, 2], 10**300],
    "stacks": ["workload", [1], [["workload"]], ["nowhere"], None, {"workload": 1}, ["workload"] * 100_000],
    "objectives": [[], ["nope"], [1], "step_s", None, [["step_s"]], ["step_s", "step_s"], ["offloaded_bytes"]],
    "constraints": [[1], "mfu >= 0.1", ["nope <= 1"], ["mfu >= 0.1" + " " * 1_000_000], None, ["mfu >= 1e-999"]],
    "settings": [[], {"nope": 1}, {"population": {"a": 1}}, "x", None],
    "engine": ["nope", 1, ["event"], None],
    "agent": ["nope", 1, ["random"], None, "random\x1b[2J\n", "\ud800", "x" * 1_000_000],
    "identity": [1, None, "0000", ["x"], "x\x1b[31m"],
    "space": ["cosmic-512-full-stack", [], None, {}, {"base": {}}, {"base": None}, {"nope": 1}],
}
for _input, _values in INPUTS.items():
    for _place, _value in enumerate(_values):
        SPOILED[f"input_{_input}_{_place}"] = partial(set_input, name=_input, value=_value)

ABOUT: dict[str, list[Any]] = {
    "written_by": [[], "x", {"cosmic": 1}, {"cosmic": "\x1b[2J"}, {"x" * 100_000: "y"}, None],
    "created": [1, None, "\x1b]0;x\x07", "y" * 1_000_000, ["now"]],
    "format": [2, "1", [1], None, _BIG, True],
    "nobody": [1],
}
for _about, _values in ABOUT.items():
    for _place, _value in enumerate(_values):
        SPOILED[f"about_{_about}_{_place}"] = partial(set_about, key=_about, value=_value)

SPACES: dict[str, list[Any]] = {
    "name": [1, "\x1b[2J", "\ud800"],
    "parameters": [[], {"workload.dp": []}, {"workload.nope": [1]}, {"workload.dp": [10**40]}, "x", {"": [1]}],
    "derived": [[], {"workload.tp": 1}, {"workload.tp": "(" * 10_000}, {"workload.tp": "9**9**9"}],
    "constraints": [{}, [1], ["dp == " + "(" * 5_000], ["dp == 2**10**10"], ["1 // 0 == 1"]],
    "objective": [1, "nope", None],
    "workloads": [[], {"a": 1}, {"a": {"weight": -1}}, {"a": {"weight": 10**400}}, {"a": {"nope": 1}}],
    "stacks": [1, ["nope"], "workload"],
    "version": [99, "x", None],
}
for _key, _values in SPACES.items():
    for _place, _value in enumerate(_values):
        SPOILED[f"space_{_key}_{_place}"] = partial(change_space, key=_key, value=_value)

BASES: dict[str, list[Any]] = {
    "model": [None, [], {"base": 1}, {"name": "x", "family": "decoder", "layers": 10**40}, {"base": ["x"]}],
    "network": [None, {"dims": 1}, {"dims": []}, {"dims": [{"npus": -1}]}, {"dims": [{}] * 50_000}],
    "compute": [1, {"accelerator": 1}, {"accelerator": "nope"}, {"bf16": "1e999 TFLOP/s"}],
    "workload": [1, {"sequence": -1}, {"dp": "x"}],
    "collective": [[], {"chunks": 10**40}],
    "memory": [1, {"capacity": "-1 GB"}],
    "nothing": [1],
}
for _layer, _values in BASES.items():
    for _place, _value in enumerate(_values):
        SPOILED[f"base_{_layer}_{_place}"] = partial(change_base, layer=_layer, value=_value)


@spoils
def input_missing(study: Path) -> None:
    """An input is not there."""
    with rewritten(study) as content:
        del content["inputs"]["pace"]


@spoils
def input_unknown(study: Path) -> None:
    """There is an input that nobody knows."""
    set_input(study, "problem", {"space": "mine"})


@spoils
def inputs_are_a_list(study: Path) -> None:
    """The inputs are no mapping."""
    set_about(study, "inputs", [1, 2])


@spoils
def json_nested_deeply(study: Path) -> None:
    """Lists in lists, deeper than a parser's stack."""
    keep(study, '{"format": 1, "inputs": ' + "[" * 200_000 + "]" * 200_000 + "}")


@spoils
def json_nested_somewhat(study: Path) -> None:
    """Lists in lists, deep enough for what walks over them later."""
    nested: list[Any] = []
    for _ in range(600):
        nested = [nested]
    change_base(study, "model", {"name": nested})


@spoils
def json_number_of_thousands_of_digits(study: Path) -> None:
    """A number that Python can read, but that no float can hold."""
    with rewritten(study) as content:
        content["inputs"]["space"]["base"]["workload"]["sequence"] = 10**4000


@spoils
def json_number_of_too_many_digits(study: Path) -> None:
    """A number that Python refuses to read."""
    text = (study / "study.json").read_text().replace('"seed": 1,', f'"seed": {"9" * 100_000},')
    keep(study, text)


@spoils
def json_not_a_number(study: Path) -> None:
    """Numbers that JSON does not have."""
    change_base(study, "workload", {"sequence": float("nan"), "global_batch": float("inf")})


@spoils
def json_is_a_list(study: Path) -> None:
    """No mapping at all."""
    keep(study, "[1]")


@spoils
def json_key_twice(study: Path) -> None:
    """A key that is there twice."""
    keep(study, (study / "study.json").read_text().replace("{", '{"format": 3,', 1))


@spoils
def json_too_large(study: Path) -> None:
    """A file of many megabytes, most of it empty."""
    os.truncate(study / "study.json", 2**36)


@spoils
def json_not_utf8(study: Path) -> None:
    """No text."""
    (study / "study.json").write_bytes(b"\xff\xfe{}")


@spoils
def json_empty(study: Path) -> None:
    """Nothing."""
    (study / "study.json").write_bytes(b"")
