"""What --json prints is what the published schemas say."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Annotated, Any, NotRequired, TypedDict

import pytest
import typer
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from cosmic.base.files import dump_json
from cosmic.base.json_types import AnyOf, json_keys, one_of, schemas_of
from cosmic.cli.dispatch import COMMANDS, app_of, main
from cosmic.cli.schema_command import published_commands, schema_of, schema_page
from cosmic.search.catalog_listing import listings
from tests.batches import check_all
from tests.commands import output, run

SPACE, DESIGN, SMALL = "cosmic-512-full-stack", "gpt3-13b@dgx-h100:16", "llama3-8b@dgx-h100:2"
NOTHING_FITS = ("--constraint", "memory_bytes <= 1 kB")
SIMULATED = (
    "--workload astra-files/trace --comm-groups astra-files/comm_groups.json --system astra-files/system.json"
    " --network astra-files/network.yml --remote-memory astra-files/memory.json"
)
TRACE = ("--set", "workload.global_batch=2", "--set", "model.layers=2")
RECORDED = Path(__file__).parents[2] / "examples" / "profiles" / "streams"
PROGRAMS = Path(__file__).parents[2] / "examples" / "programs"


def commands() -> list[str]:
    """Return every command that takes --json."""
    found = {name: typer.main.get_command(app_of(name)) for name in COMMANDS}
    return [name for name, leaf in found.items() if any("--json" in each.opts for each in leaf.params)]


SERVED = "llama3-8b@dgx-h100:8 --set isl=200 --set osl=20 --set concurrency=8 --set tp=2 --set pp=1"
SERVES = "ui"  # it goes on after it has printed, and is tested by itself
MEASURES = "calibrate probe"  # needs PyTorch, and is tested with a fake device by itself
CASES: dict[str, list[tuple[int, str]]] = {
    "evaluate": [
        (0, f"evaluate {DESIGN}"),
        (0, f"evaluate {DESIGN} --set workload.task=decode --set workload.global_batch=64"),
        (0, f"evaluate {SMALL} --engine event --set workload.global_batch=2 --set model.layers=2"),
        (0, f"evaluate {DESIGN} --advice --set cp_comm_type=ring"),
        (0, f"evaluate {SERVED} --set ttft_slo=1s"),
        (0, f"evaluate {SERVED} --engine event --set prefill.replicas=2 --set prefill.tp=1"),
        (1, f"evaluate {SERVED} --set dp=3"),
        (1, "evaluate gpt3-175b@dgx-h100:8 --set workload.tp=1"),
        (1, "evaluate gpt3-175b@dgx-h100:8 --set workload.tp=1 --advice"),
    ],
    "serve": [
        (0, f"serve {SMALL} --input 500 --output 50 --concurrency 8 --ttft 1s"),
        (0, f"serve {SMALL} --input 1 --output 1 --simulate --requests 20"),
        (1, "serve llama3-70b@h100:1 --precision bf16"),
        (0, f"serve {SMALL} --search --rate 5 --tpot 50ms"),
        (1, f"serve {SMALL} --search --rate 5 --tpot 1us"),
    ],
    "design show": [
        (0, f"design show {SERVED}"),
        (0, f"design show {DESIGN}"),
        (0, f"design show {DESIGN} --set workload.dp=3 --set workload.tp=1"),
    ],
    "catalog list": [(0, "catalog list"), *((0, f"catalog list {kind}") for kind in listings())],
    "space show": [
        (0, f"space show {SPACE}"),
        (0, f"space show {SPACE} --stacks workload"),
        (0, "space show several.yaml"),
    ],
    "space count": [(0, f"space count {SPACE} --stacks workload"), (0, "space count several.yaml")],
    "space sample": [(0, f"space sample {SPACE} -n 3"), (0, f"space sample {SPACE} -n 0")],
    "space schema": [(0, f"space schema {SPACE} --stacks workload")],
    "design workload": [
        (0, f"design workload {SMALL}"),
        (0, f"design workload {SMALL} --why"),
        (0, "design workload llama3-8b@dgx-h100:1"),
        (0, "design workload gpt3-175b@dgx-h100:8 --set workload.tp=1"),
    ],
    "cluster fleet": [
        (0, "cluster fleet jobs.yaml --system dgx-h100:16"),
        (0, "cluster fleet jobs.yaml --system dgx-h100:16 --search --objective makespan"),
        (0, "cluster fleet jobs.yaml --system dgx-h100:16 --sharing time"),
        (1, "cluster fleet jobs.yaml --system dgx-h100:4"),
    ],
    "network provision": [
        (0, "network provision llama3-70b@dgx-h100:512 --ports 25GB/s"),
        (0, "network provision libra.yml --workload DLRM --budget 300GB/s --objective time_per_dollar"),
    ],
    "model show": [
        (0, "model show llama3-70b"),
        (0, "model show dlrm-73b"),
        (0, f"model show {PROGRAMS / 'gpt.yaml'}"),
        (0, f"model show {PROGRAMS / 'resnet-50.yaml'}"),
    ],
    "model shard": [
        (0, "model shard gpt3-125m --mesh tp=2 --batch 2 --objective bytes"),
        (1, "model shard gpt3-125m --mesh x=2 --batch 2 --memory 1MB"),
    ],
    "size": [
        (0, "size llama3-8b --tokens 1T --accelerators 16 --systems dgx-h100,mi300x"),
        (1, "size llama3-8b --tokens 1T --budget 1kUSD --systems dgx-h100"),
    ],
    "design sweep": [
        (0, f"design sweep {SERVED} --vary concurrency=1,8 --vary serving.engine=vllm,trtllm"),
        (0, f"design sweep {SMALL} --vary workload.tp=1,2 --vary workload.micro_batch=1,2"),
        (0, f"design sweep {SMALL} --vary tp=1,2"),
        (0, "design sweep gpt3-175b@dgx-h100:8 --vary workload.tp=1"),
    ],
    "design diff": [
        (0, f"design diff {DESIGN} {DESIGN} --set-b workload.tp=4"),
        (0, f"design diff {DESIGN} {DESIGN}"),
        (1, f"design diff {DESIGN} gpt3-175b@dgx-h100:8"),
        (1, f"design diff {DESIGN} {DESIGN} --set-b workload.dp=3"),
    ],
    "design export": [
        (0, f"design export {DESIGN} --to megatron"),
        (0, f"design export {SMALL} --to astra-sim --out astra {' '.join(TRACE)}"),
        (1, "design export gpt3-175b@dgx-h100:8 --to nccl --set workload.tp=1"),
    ],
    "study export": [(0, "study export one --to trials.csv")],
    "model list": [(0, "model list")],
    "catalog show": [
        (0, "catalog show models llama3-8b"),
        (0, "catalog show h100-sxm-80gb"),
        (0, "catalog show topologies ring"),
    ],
    "design import": [
        (0, "design import launch.sh --from megatron"),
        (0, "design import launch.sh --from megatron --system dgx-h100:16 --set sequence=1000000 --out imported.yaml"),
    ],
    "search": [
        (0, f"search {SPACE} -n 40 --agent random --out again"),
        (0, f"search {SPACE} -n 40 --agent random --out front --objective step_s --objective network_usd"),
        (0, "search several.yaml -n 20 --agent random --out several"),
        (1, f"search {SPACE} -n 10 --agent random --out none2 --constraint memory_bytes<=1kB"),
        (0, "search --resume --out one"),
    ],
    "space certify": [
        (0, "space certify small.yaml --within 5% --out certificate.json"),
        (0, "space certify --check made.json"),
        (0, "space certify small.yaml --objective step_s --objective network_usd --simulate 0"),
        (1, "space certify small.yaml --constraint memory_bytes<=1kB"),
        (3, f"space certify {SPACE} --limit 1us --simulate 0"),
    ],
    "demo": [(0, "demo -n 20 --out demo")],
    "study compare": [(0, "study compare one"), (0, "study compare one none")],
    "study importance": [(0, "study importance one"), (0, "study importance one --objective offloaded_bytes")],
    "design experts": [(0, "design experts mixtral-8x7b@dgx-h100:8 --set ep=8 --set tp=1")],
    "cluster tasks": [
        (0, "cluster tasks vit-large@dgx-a100 --batch 64 --batch 32 --npus 4 --set micro_batch=8"),
        (1, "cluster tasks llama3-405b@dgx-h100 --batch 8 --npus 1"),
    ],
    "study tournament": [
        (0, f"study tournament {SPACE} --agents random -n 20 --seeds 2 --stacks workload"),
        (0, f"study tournament {SPACE} --agents random,genetic -n 20 --seeds 1"),
        (0, f"study tournament {SPACE} --agents random -n 5 --seeds 1 --constraint memory_bytes<=1kB"),
    ],
    "run": [(0, "run recipe.yaml --store kept"), (0, "run --list --store kept"), (1, "run --store kept wrong.yaml")],
    "study leaderboard new": [(0, "study leaderboard new board-new small.yaml -n 5 --seeds 2")],
    "study leaderboard enter": [(0, "study leaderboard enter board --agent random")],
    "study leaderboard show": [(0, "study leaderboard show board")],
    "study replay": [(0, "study replay one"), (0, "study replay none --check")],
    "study show": [(0, "study show one"), (0, "study show none")],
    "study tell": [(0, "study tell one rows.csv")],
    "study doctor": [(0, "study doctor one"), (0, "study doctor one --check")],
    "report": [(0, "report one --isolated 0"), (0, "report none --isolated 0 --out none.html")],
    "simulate": [
        (0, "simulate --workload recorded"),
        (0, "simulate --workload recorded --on dgx-b200"),
        (0, f"simulate {SIMULATED}"),
        (0, f"simulate {SIMULATED} --backend aware"),
    ],
    "trace show": [(0, "trace show astra-files/trace.0.et")],
    "trace check": [(0, "trace check astra-files/trace --groups astra-files/comm_groups.json")],
    "trace repair": [
        (0, "trace repair astra-files/trace --groups astra-files/comm_groups.json --out mended"),
        (0, "trace repair astra-files/trace.0.et --out mended-rank --ranks 2"),
    ],
    "trace diff": [
        (0, "trace diff astra-files/trace astra-files/trace"),
        (0, f"trace diff astra-files/trace {SMALL} --by class --groups-a astra-files/comm_groups.json"),
        (0, f"trace diff {SMALL} {DESIGN} --by kernel"),
    ],
    "trace stats": [
        (0, "trace stats astra-files/trace --groups astra-files/comm_groups.json"),
        (0, "trace stats astra-files/trace --groups astra-files/comm_groups.json --peak 900TFLOP/s --bandwidth 3TB/s"),
        (0, "trace stats recorded"),
    ],
    "trace convert": [
        (0, "trace convert text.txt --out converted --npus 4"),
        (0, "trace convert text.txt --out converted --network text.yml --system-out converted-system.json"),
        (0, f"trace convert {RECORDED}.et.json.gz {RECORDED}.kineto.json.gz --out converted-profile"),
    ],
    "trace anonymize": [
        (0, "trace anonymize astra-files/trace --groups astra-files/comm_groups.json --out made/a --keep-map map.json"),
        (0, "trace anonymize astra-files/trace --out made/b --tolerance 20% --policy ranks=permute"),
    ],
    "trace project": [
        (0, "trace project recorded --accelerator b200 --dp 8"),
        (0, "trace project recorded --host 0 --batch 2 --from-shapes --out projected"),
    ],
    "trace generate": [(0, f"trace generate {SMALL} --out made/x {' '.join(TRACE)}")],
    "trace synthesize": [
        (0, "trace synthesize astra-files/trace --groups astra-files/comm_groups.json --out made/y --ranks 4"),
        (0, "trace synthesize astra-files/trace --groups astra-files/comm_groups.json --out made/z --scale 2 --report"),
    ],
    "trace suite": [(0, "trace suite --only recommender-8")],
    "network bound": [
        (0, "network bound ring.txt --size 1MB"),
        (0, "network bound dgx-h100:8 --collective broadcast --chunks 4 --group 0-5"),
    ],
    "network synthesize": [
        (0, "network synthesize ring.txt --size 1MB --schedule made.csv --to svg --out made.svg"),
        (0, "network synthesize ring.txt --group 1"),
    ],
    "network check": [
        (0, "network check ring.csv --network ring.txt --size 2GiB"),
        (1, "network check ring.csv --network ring.txt --size 3GiB"),
    ],
    "network convert": [
        (0, "network convert ring.csv --network ring.txt --size 2GiB --to msccl --out ring.xml"),
    ],
    "calibrate validate": [(0, "calibrate validate measured.csv"), (0, "calibrate validate measured.csv --by layers")],
    "calibrate run": [
        (0, "calibrate run measured.csv --system dgx-h200 --out mine.yaml"),
        (0, "calibrate run steps.csv"),
    ],
    "schema": [(0, "schema"), (0, "schema evaluate")],
    "completion": [(0, "completion bash")],
}
LONG = {f"space certify {SPACE} --limit 1us --simulate 0"}
"""Cases that take many seconds."""
ALL = [
    pytest.param(name, status, words, id=words, marks=[pytest.mark.long] if words in LONG else [])
    for name, cases in CASES.items()
    for status, words in cases
]
SEVERAL = """
base:
  model: llama3-8b
  system: dgx-h100:16
  workload: {tp: 2, cp: 1, pp: 1, weight_sharding: zero1, recompute: full}
parameters:
  workload.tp: [1, 2]
  collective.chunks: [1, 4]
workloads:
  short: {weight: 2}
  long: {workload.sequence: 16384}
objective: step_s
"""
LAUNCH = """torchrun --nnodes 2 --nproc-per-node 8 pretrain_gpt.py --num-layers 24 --hidden-size 2048 \\
  --num-attention-heads 16 --seq-length 2048 --vocab-size 50257 --micro-batch-size 1 --bf16 --mtp-num-layers 1
"""


JOBS = """
jobs:
  - {name: a, model: llama3-8b, npus: 8, steps: 10, count: 3}
  - {name: b, model: llama3-70b, npus: 8, steps: 10}
  - {name: c, model: llama3-8b, npus: 32, steps: 10}
"""
PROVABLE = """
base: llama3-8b@dgx-h100:16
parameters:
  workload.tp: [1, 2]
  network.dims.1.bandwidth: [25 GB/s, 50 GB/s, 100 GB/s]
objective: step_s
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a study, one in which nothing can run, traces, measurements and a space of two workloads."""
    here = tmp_path_factory.mktemp("schemas")
    (here / "several.yaml").write_text(SEVERAL)
    (here / "launch.sh").write_text(LAUNCH)
    (here / "jobs.yaml").write_text(JOBS)
    (here / "libra.yml").write_text("Topology: [Ring, Switch]\nNpusCount: [4, 32]\n")
    (here / "text.yml").write_text("Topology: [Ring]\nNpusCount: [4]\n")
    (here / "text.txt").write_text("a -1 10 ALLREDUCE 64 20 NONE 0 30 ALLREDUCE 64 5\n")
    (here / "steps.csv").write_text(f"design,tp,step_s\n{SMALL},2,100\n")
    (here / "rows.csv").write_text("trial,step_s\n0,100\n")
    (here / "small.yaml").write_text(PROVABLE)
    (here / "recipe.yaml").write_text(f"steps:\n  - evaluate: {DESIGN}\n")
    (here / "wrong.yaml").write_text("steps:\n  - evaluate: {design: none@none}\n")
    (here / "ring.txt").write_text("2\n0 1 1 0\n1 0 1 0\n")
    (here / "ring.csv").write_text("source,target,chunk,start_s,end_s\n0,1,0,0.0,1.0\n1,0,1,0.0,1.0\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        for words in (
            ("search", SPACE, "-n", "60", "--agent", "random", "--out", "one"),
            ("search", SPACE, "-n", "10", "--agent", "random", "--out", "none", *NOTHING_FITS),
            ("design", "export", SMALL, "--to", "astra-sim", "--out", "astra-files", *TRACE),
            ("space", "certify", "small.yaml", "--out", "made.json", "--simulate", "0"),
            ("study", "leaderboard", "new", "board", "small.yaml", "-n", "5", "--seeds", "2"),
            ("trace", "convert", f"{RECORDED}.et.json.gz", f"{RECORDED}.kineto.json.gz", "--out", "recorded"),
        ):
            with redirect_stdout(StringIO()), suppress(SystemExit):
                main([*words, "--json"])
    return here


def errors(name: str, data: Any) -> str:
    """Return the most telling way in which *data* is not what the schema says; nothing if it is."""
    error = best_match(Draft202012Validator(schema_of(name)).iter_errors(data))
    return "" if error is None else f"{error.json_path}: {error.message[:300]}"


def strictly(text: str) -> Any:
    """Return what JSON says; NaN and Infinity are none."""

    def refuse(word: str) -> None:
        raise ValueError(word)

    return json.loads(text, parse_constant=refuse)


def test_every_command_that_prints_json_has_a_schema_and_is_tried_here() -> None:
    assert commands() == list(COMMANDS)
    assert sorted(commands()) == published_commands() == sorted([*CASES, MEASURES, SERVES])


@pytest.mark.long
@pytest.mark.parametrize(("name", "status", "words"), ALL)
def test_what_is_printed_is_what_the_schema_says(
    name: str,
    status: int,
    words: str,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(folder)
    if "measured.csv" in words and not Path("measured.csv").exists():
        _some_measurements()
    ended, out, _ = run(capsys, *words.split(), "--json")
    assert ended == status
    documents = out.splitlines() if schema_of(name).get("x-lines") else [out]
    assert [errors(name, strictly(each)) for each in documents] == [""] * len(documents)


def _some_measurements() -> None:
    from cosmic.accuracy.measured_rows import carried_files  # noqa: PLC0415

    carried = {path.name: path for path in map(Path, carried_files())}
    lines = carried[sorted(name for name in carried if "training" in name)[0]].read_text().splitlines()
    Path("measured.csv").write_text("\n".join(lines[:6]) + "\n")


@pytest.mark.long
def test_the_page_says_where_it_is(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "cosmic", "ui", str(tmp_path), "--no-browser", "--json"]
    pytest.importorskip("uvicorn")
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        text = ""
        for line in server.stdout:
            text += line
            if line == "}\n":
                break
        server.send_signal(signal.SIGINT)
        assert server.wait(20) in (0, 130)  # it may not have begun to listen yet
    assert errors("ui", strictly(text)) == ""


# ---- the schemas


def properties(schema: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every property that a schema describes, with its place."""
    if not isinstance(schema, dict):
        return
    for name, each in schema.get("properties", {}).items():
        yield f"{path}.{name}", each
    inside = [
        *schema.get("oneOf", []),
        *schema.get("anyOf", []),
        schema.get("items"),
        schema.get("additionalProperties"),
    ]
    for key in ("properties", "patternProperties", "$defs"):
        inside += [each for _, each in sorted(schema.get(key, {}).items())]
    for each in inside:
        yield from properties(each, f"{path}.{each.get('title', '')}" if isinstance(each, dict) else path)


@check_all("name", published_commands())
def test_a_schema_explains_every_key_and_gives_quantities_units(name: str) -> None:
    schema = schema_of(name)
    Draft202012Validator.check_schema(schema)
    assert schema["title"] == f"cosmic {name} --json"
    shared = schema.get("$defs", {})
    for place, each in properties(schema):
        found = {**shared.get(each.get("$ref", "").removeprefix("#/$defs/"), {}), **each}
        assert found.get("description"), place
        if "number" in str(found.get("type")):
            assert found.get("x-unit"), place
    assert all(part.get("description") for part in shared.values())


@check_all("name", published_commands())
def test_a_schema_refuses_what_is_not_of_its_command(name: str) -> None:
    validator = Draft202012Validator(schema_of(name))
    assert not validator.is_valid("text")
    assert not validator.is_valid([{"nothing": 1}])


def test_a_schema_is_complete_in_itself() -> None:
    for name in published_commands():
        schema = schema_of(name)
        references = {part.split('"')[0] for part in json.dumps(schema).split('"$ref": "#/$defs/')[1:]}
        assert references == set(schema.get("$defs", {})), name


def test_a_schema_is_found_by_the_words_of_its_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert output(capsys, "schema", "space", "count") == output(capsys, "schema", "space-count")
    status, out, err = run(capsys, "schema", "evalute")
    assert (status, out) == (2, "")
    assert err == "cosmic schema: command = 'evalute': no such command with a schema; did you mean 'evaluate'?\n"
    assert "did you mean 'space count'" in run(capsys, "schema", "space coutn")[2]


def test_the_page_is_what_the_schemas_say() -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "json.md"
    assert page.read_text() == schema_page(), "run: cosmic schema --page docs/reference/json.md"


def test_the_page_names_every_key_with_its_unit() -> None:
    text = schema_page()
    assert "| `by_stack.*.valid` | integer |" in text
    assert "| `[].mfu` | number | share |" in text
    assert all(f"\n## cosmic {name}\n" in text for name in published_commands())


# ---- schemas from types


class Weighed(TypedDict):
    """Something with a weight."""

    used_bytes: float | None
    """What it weighs; None where it is not known."""


class Counted(TypedDict):
    """Several things."""

    count: int
    """How many there are."""


class Named(Weighed):
    """Something with a name and a weight."""

    name: str
    """Its name."""
    kind: NotRequired[Annotated[str, one_of("a", "b")]]
    """Its kind."""
    rivals: list[AnyOf[Weighed, Counted]]
    """Others."""


def test_a_type_becomes_a_schema_with_docstrings_units_and_closed_objects() -> None:
    (schema,), definitions = schemas_of([Named])
    assert schema == {"$ref": "#/$defs/Named"}
    named = definitions["Named"]
    assert (named["description"], named["additionalProperties"]) == ("Something with a name and a weight.", False)
    assert (list(named["properties"]), named["required"]) == (
        ["used_bytes", "name", "kind", "rivals"],
        ["used_bytes", "name", "rivals"],
    )
    weight = {"type": ["number", "null"], "x-unit": "B", "description": "What it weighs; null where it is not known."}
    assert named["properties"]["used_bytes"] == weight == definitions["Weighed"]["properties"]["used_bytes"]
    assert named["properties"]["kind"]["enum"] == ["a", "b"]
    assert named["properties"]["rivals"]["items"] == {
        "anyOf": [{"$ref": "#/$defs/Weighed"}, {"$ref": "#/$defs/Counted"}]
    }


@dataclass(frozen=True)
class Origin:
    """Where something is from."""

    country: str
    """Its country."""


@json_keys("half_bytes", without=("secret",), optional=("note",), home="origin.country")
@dataclass(frozen=True)
class Parcel:
    """Something that is sent."""

    used_bytes: float
    """What it weighs."""
    origin: Origin
    secret: object = None
    note: str | None = None
    """What is to be said of it."""

    @property
    def half_bytes(self) -> float | None:
        """Half of that; None where it is not known."""
        return self.used_bytes / 2


def test_the_json_of_a_dataclass_and_its_schema_have_the_same_keys() -> None:
    (_,), definitions = schemas_of([Parcel])
    parcel = definitions["Parcel"]
    assert list(definitions) == ["Parcel"]
    assert list(parcel["properties"]) == ["used_bytes", "note", "half_bytes", "home"]
    assert parcel["required"] == ["used_bytes", "half_bytes", "home"]
    half = {"type": ["number", "null"], "x-unit": "B", "description": "Half of that; null where it is not known."}
    assert parcel["properties"]["half_bytes"] == half
    assert parcel["properties"]["home"] == {"type": "string", "description": "Its country."}
    sent = dump_json(Parcel(3.0, Origin("Norway"), object()))
    assert json.loads(sent) == {"used_bytes": 3.0, "half_bytes": 1.5, "home": "Norway"}
    assert json.loads(dump_json([Parcel(float("nan"), Origin(""), note="fragile")])) == [
        {"used_bytes": None, "note": "fragile", "half_bytes": None, "home": ""}
    ]
