"""Whatever a design is called, a launch script runs the target and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cosmic.base.errors import CosmicError, SpecError, one_line
from cosmic.design import schema
from cosmic.design.design_point import DesignPoint
from cosmic.design.memory_layer import MemoryTier
from cosmic.design.serving_layer import Load, PrefillPool, Serving
from cosmic.frameworks.launch import (
    ENGINES,
    SCRIPT_NAME,
    Launch,
    dump_toml,
    quote_export,
    quote_here_document,
    quote_options,
    quote_word,
    render_script,
    targets,
    write_launch,
)
from cosmic.search.mapping.design_completion import load_design

RAN = "ran"
PAYLOADS = (
    f"x\ntouch {RAN}\r\nEND_OF_FILE\ntouch {RAN}\n",
    f"$(touch {RAN})`touch {RAN}`\u2028touch {RAN}",
    f"'; touch {RAN}; '\"; touch {RAN}; \"",
    f"-x\x00\ud800\x1b[2J\x85touch {RAN} & touch {RAN} #",
)
COMMANDS = ("torchrun", "deepspeed", "AstraSim_Analytical_Congestion_Unaware")
SERVERS = ("vllm", "vllm-router", "python", "trtllm-serve", "kubectl")


def documents(text: str) -> list[Any]:
    return list(yaml.safe_load_all(text))


PARSED: dict[str, Callable[[str], Any]] = {
    ".toml": tomllib.loads,
    ".json": json.loads,
    ".yml": yaml.safe_load,
    ".yaml": documents,
}


@cache
def base() -> DesignPoint:
    small = {"model.layers": 2, "global_batch": 2, "tp": 8, "dp": 2, "pp": 1, "recompute": "none", "micro_batch": 1}
    point = load_design("llama3-8b@dgx-h100:16", {**small, "offload": ["optimizer"]}, plain=True)
    tier = MemoryTier(name="host", capacity_bytes=1e12, bandwidth_bytes_per_s=1e10)
    return replace(point, memory=replace(point.memory, tiers=(tier,)))


@cache
def base_for(to: str) -> DesignPoint:
    """Return a design that a target takes: engines serve, in two pools and on two hosts."""
    if to not in ENGINES:
        return base()
    point = base().changed({"workload.task": "decode", "workload.dp": 1})
    pools = Serving(load=Load(isl=100, osl=10, concurrency=4), draft_tokens=1, prefill=PrefillPool(replicas=2, tp=4))
    return replace(point, serving=pools)


def named(payload: str, to: str) -> Iterator[DesignPoint]:
    """Yield designs built in Python, each with *payload* in one of its texts; some only where types allow any."""
    point, free = base_for(to), to == "astra-sim"  # which simulates each of them
    yield replace(point, workload=replace(point.workload, strategies=(payload,)))
    for path, value in point.fields.items():
        if isinstance(value, str) and (schema.slot_at(point, path).hint is str or not free):
            try:
                yield schema.assign_fields(point, {path: payload})
            except CosmicError:  # fields whose names a registry has
                continue


def launches(to: str, payload: str) -> Iterator[Launch]:
    for point in named(payload, to):
        try:
            yield targets[to](point)
        except (CosmicError, LookupError, AttributeError):  # of a precision or a loss that is none
            continue


@pytest.fixture
def stubs(tmp_path: Path) -> Path:
    """Return a folder with commands that do nothing."""
    folder = tmp_path / "stubs"
    folder.mkdir()
    for name in (*COMMANDS, *SERVERS):
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    return folder


def run(text: str, place: Path, stubs: Path) -> None:
    """Run a script with stubs for what it starts; no payload runs, and nothing fails."""
    environment = {"PATH": f"{stubs}:{os.environ['PATH']}", "MASTER_ADDR": "a", "NODE_RANK": "0", "HOSTFILE": "h"}
    environment["HOSTS"] = "a b"
    place.mkdir(exist_ok=True)
    done = subprocess.run(
        ["bash"],
        input=text.encode(errors="backslashreplace"),
        cwd=place,
        env=environment,
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert not list(place.rglob(RAN))


@pytest.mark.parametrize("to", list(targets))
@pytest.mark.long
def test_no_text_of_a_design_runs_as_a_command(to: str, tmp_path: Path, stubs: Path) -> None:
    seen = set()
    for payload in PAYLOADS[:2] if to == "astra-sim" else PAYLOADS:
        for launch in launches(to, payload):
            whole = render_script(launch)
            if whole in seen:  # the text does not reach this target
                continue
            seen.add(whole)
            run(whole, tmp_path / "inline", stubs)
            assert all(line.isprintable() for line in whole.split("\n"))
            for name, text in launch.files.items():
                assert (tmp_path / "inline" / name).read_text() == text
                assert PARSED[Path(name).suffix](text)
    assert len(seen) > 2


@pytest.mark.parametrize("to", list(targets))
def test_no_text_of_a_design_runs_from_a_folder(to: str, tmp_path: Path, stubs: Path) -> None:
    point = base_for(to)
    for place, payload in enumerate(PAYLOADS[:2]):
        model = replace(point.model, name=payload)
        compute = replace(point.compute, accelerator=payload)
        folder = tmp_path / f"a $(touch {RAN}) '{place}"
        write_launch(targets[to](replace(point, model=model, compute=compute)), folder)
        run(f"bash {quote_word(str(folder / SCRIPT_NAME))}", tmp_path / "cwd", stubs)
        assert not list(tmp_path.rglob(RAN))


def test_no_part_of_a_launch_runs_as_a_command(tmp_path: Path, stubs: Path) -> None:
    """As a target of somebody else may build it."""
    for payload in PAYLOADS[:3]:
        launch = Launch(
            about=payload,
            warnings=(payload,),
            environment={"A": payload},
            files={"a b;c": payload, "END_OF_FILE": "END_OF_FILE\nEND_OF_FILE_"},
            command=("torchrun", *quote_options({payload: True, "--a": payload, "--b": [payload.removeprefix("-")]})),
        )
        run(render_script(launch), tmp_path / "place", stubs)
        assert (tmp_path / "place" / "a b;c").read_bytes() == payload.removesuffix("\n").encode() + b"\n"
        assert (tmp_path / "place" / "END_OF_FILE").read_text() == "END_OF_FILE\nEND_OF_FILE_\n"


@given(st.text())
def test_a_word_is_one_word(text: str) -> None:
    """Python's own parser of shell words agrees; what is unprintable is spelled out."""
    import shlex  # noqa: PLC0415  the opposite of what is tested

    assert shlex.split(quote_word(text)) == [one_line(text)]
    assert quote_word(text).isprintable()


@given(st.text(), st.lists(st.text()))
def test_any_text_is_valid_toml(text: str, several: list[str]) -> None:
    found: dict[str, Any] = tomllib.loads(dump_toml({"a.b": text, "a.c": several, f"x.{text}": 0.5}))
    assert found == {"a": {"b": one_line(text), "c": [*map(one_line, several)]}, "x": {one_line(text): 0.5}}


@given(st.text())
def test_no_text_ends_its_document_early(text: str) -> None:
    first, *lines, end = quote_here_document("name", text)
    assert first.endswith(f"'{end}'")
    assert end not in lines


def test_a_value_that_looks_like_an_option_is_none() -> None:
    assert quote_options({"--a": "-x", "--b": -1, "--c": "y"}) == ["--a=-x", "--b=-1", "--c y"]
    with pytest.raises(SpecError, match=r"--a = '-x': would be taken for an option"):
        quote_options({"--a": ["y", "-x"]})


@pytest.mark.parametrize("name", ["", "A B", "A;B", "1A", "A\n", "Ä"])
def test_a_variable_has_a_name_that_shells_know(name: str) -> None:
    with pytest.raises(SpecError, match=r"environment = .*: must have letters"):
        quote_export(name, "1")
