"""Serving targets: their names exist, what they write says what the design says, and the rest is said in words."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from cosmic.base.errors import SpecError
from cosmic.design import catalog_entries
from cosmic.design.catalog_entries import load_mapping
from cosmic.design.design_point import DesignPoint
from cosmic.design.loading import dump_design
from cosmic.design.serving_engine import Engine, load_engine
from cosmic.design.serving_layer import Load, PrefillPool, RequestClass
from cosmic.design.workload_layer import Precision
from cosmic.frameworks import served_launch
from cosmic.frameworks.launch import ENGINES, FRAMEWORKS, Launch, render_script, targets, write_launch
from cosmic.frameworks.served_launch import EnginePool, describe_served, place_servers
from cosmic.search.mapping.design_completion import load_design
from tests.batches import check_all
from tests.frameworks.launching.launched_designs import CHECKED, HERE
from tests.frameworks.launching.served_designs import DESIGNS, LOAD, design, serve

GOLDEN = HERE / "golden" / "served"
LIMITS = Engine(memory_fraction=0.9, workspace_bytes=4e9, max_num_seqs=256, max_num_batched_tokens=8192)
SIZES: dict[str, Any] = {"pp": 1, "ranks": 1, "ep": 1, "etp": 1, "batched_tokens": 1, "host": 8}
ENGINE_OF = {"vllm": "vllm", "sglang": "sglang", "trtllm": "trtllm", "dynamo": "vllm"}
STUBS = ("vllm", "vllm-router", "python", "trtllm-serve", "srun", "kubectl")


ASSUMED = ("the KV cache is in fp8", "llama3-70b is taken for")
"""Beginnings of notes about what nobody stated."""


def changed(point: DesignPoint, **workload: Any) -> DesignPoint:
    return replace(point, workload=replace(point.workload, **workload))


def with_limits(point: DesignPoint, **limits: Any) -> DesignPoint:
    assert point.serving is not None
    return replace(point, serving=replace(point.serving, **limits))


def variants() -> Iterator[DesignPoint]:
    """Yield designs that differ in everything a target looks at; not all of them could run."""
    for name in DESIGNS:
        for engine in ("vllm", "sglang", "trtllm"):
            yield design(name, engine)
        for precision in Precision.__args__:  # type: ignore[attr-defined]
            yield changed(design(name), precision=precision)
        yield with_limits(design(name), kv_cache_dtype="fp8", draft_tokens=3, memory_fraction=0.8)
        yield with_limits(design(name), kv_cache_dtype="bf16", load=replace(LOAD, prefix_hit=0.5))
        yield with_limits(design(name), load=replace(LOAD, isl_cv=0.5, osl_cv=1.0), max_num_batched_tokens=512)
        yield with_limits(design(name), prefill=PrefillPool(replicas=3, tp=2, pp=2), draft_tokens=1)
        yield replace(design(name), serving=None)
        yield changed(design(name), lora_rank=16, lora_adapters=8)
    yield changed(design("moe"), tp=2, dp=8, ep=16)
    yield changed(design("moe"), tp=8, dp=2, ep=4, pp=2)
    for model in ("kimi-k2@dgx-h200:16", "gpt-oss-120b@dgx-b200:8", "gpt3-175b@dgx-h100:8", "llama2-70b@mi300x:8"):
        yield serve(model, {"tp": 8, "precision": "fp8"}, draft_tokens=1)


# ---- reading back


def commands(text: str) -> list[list[str]]:
    """Return the commands of a script, word by word: continued lines are joined, documents are left out."""
    plain = re.sub(r"^cat > (\S+) <<'(\w+)'\n.*?\n\2$", "", text, flags=re.DOTALL | re.MULTILINE)
    joined = re.sub(r"\$\(\(.*?\)\)(?=[ \"])", "0", plain.replace("\\\n", " "))
    return [words for line in joined.splitlines() if (words := shlex.split(line, comments=True))]


def options_of(words: list[str]) -> dict[str, list[str]]:
    """Return options with their values, as a parser of arguments reads them."""
    found: dict[str, list[str]] = {}
    name = ""
    for word in words:
        if word.startswith("--"):
            name = word
            found.setdefault(name, [])
        elif name:
            found[name].append(word)
    return found


def servers_of(text: str) -> list[tuple[str, str, list[str]]]:
    """Return the servers that a script starts on the hosts of all: the pool, its GPUs, what follows the port."""
    return [(words[0], words[1], words[3:-1]) for words in commands(text) if words[0] in ("serve", "prefill", "decode")]


def sizes(to: str, given: dict[str, Any]) -> dict[str, int]:
    """Return the mapping of an instance as the arguments of its target have it."""
    names = {
        "vllm": ("--tensor-parallel-size", "--pipeline-parallel-size", "--data-parallel-size"),
        "sglang": ("--tp-size", "--pp-size", "--dp-size"),
    }[to]
    tp, pp, ranks = (int(given.get(name, 1)) for name in names)
    return {"tp": tp if to == "vllm" else tp // ranks, "pp": pp, "ranks": ranks}


def expected(pool: EnginePool) -> dict[str, int]:
    return {"tp": pool.tp, "pp": pool.pp, "ranks": pool.ranks}


# ---- names


@pytest.mark.parametrize("to", ["vllm", "sglang", "trtllm"])
def test_every_name_and_choice_that_is_written_was_read_in_the_target_s_own_documents(to: str) -> None:
    names, choices = set(CHECKED[to]["names"]), CHECKED[to]["choices"]
    seen: set[str] = set()
    for point in variants():
        launch = targets[to](point)
        for given in launch.pools.values():
            seen |= set(given)
            assert set(given) <= names
            for name in set(given) & set(choices):
                assert given[name] in choices[name]
        for _, _, rest in servers_of(render_script(launch)):
            seen |= set(options_of(rest))
    assert seen <= names
    assert seen >= names - {"--port", "--host", "--disaggregation-bootstrap-port"}


def routers_of(launch: Launch, program: str) -> dict[str, list[str]]:
    lines = [words for words in commands(render_script(launch)) if program in " ".join(words[:3])]
    return options_of([word for words in lines for word in words if word != "&"])


@pytest.mark.parametrize(("to", "program"), [("vllm", "vllm-router"), ("sglang", "sglang_router")])
def test_every_option_of_a_router_is_one_of_its_own(to: str, program: str) -> None:
    checked = CHECKED[f"{to}-router"]
    for point in (
        design("replicas"),
        design("disaggregated"),
        with_limits(design("replicas"), load=replace(LOAD, prefix_hit=0.5)),
    ):
        found = routers_of(targets[to](point), program)
        assert set(found) <= set(checked["names"])
        assert set(found["--policy"]) <= set(checked["choices"]["--policy"])
    assert routers_of(targets[to](design("dense")), program) == {}


def test_every_key_of_vllm_s_json_and_every_variable_is_one_that_it_has() -> None:
    for point in variants():
        launch = targets["vllm"](point)
        for given in launch.pools.values():
            for name in ("--speculative-config", "--kv-transfer-config"):
                assert set(json.loads(str(given.get(name, "{}")))) <= set(CHECKED["vllm"]["json_keys"])
        variables = set(re.findall(r"^ +(?:\S+ )*?(\w+)=", render_script(launch), re.MULTILINE))
        assert variables <= set(CHECKED["vllm"]["environment"])


def flat(tree: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the leaves of a tree with their paths; what a list holds has the path of the list."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from flat(value, f"{before}.{key}" if before else key)
    elif isinstance(tree, list) and any(isinstance(each, dict) for each in tree):
        for each in tree:
            yield from flat(each, before)
    else:
        yield before, tree


@pytest.mark.long
def test_every_key_of_tensorrt_llm_s_files_is_one_of_its_keys() -> None:
    keys, choices = set(CHECKED["trtllm"]["keys"]), CHECKED["trtllm"]["choices"]
    seen = set()
    for point in variants():
        texts = [*targets["trtllm"](point).files.values()]
        mapped = [*yaml.safe_load_all(targets["dynamo"](with_engine(point, "trtllm")).files["deployment.yaml"])]
        texts += [text for each in mapped if each["kind"] == "ConfigMap" for text in each["data"].values()]
        for path, value in (leaf for text in texts for leaf in flat(yaml.safe_load(text))):
            seen.add(path)
            assert value in choices.get(path, [value])
    assert seen == keys


def with_engine(point: DesignPoint, engine: str) -> DesignPoint:
    return with_limits(point, engine=engine) if point.serving else point


def test_every_key_of_a_deployment_is_one_of_dynamo_s_and_its_arguments_are_the_engine_s() -> None:
    keys, own = set(CHECKED["dynamo"]["keys"]), set(CHECKED["dynamo"]["names"])
    seen: set[str] = set()
    for point in variants():
        launch = targets["dynamo"](point)
        graph = [*yaml.safe_load_all(launch.files["deployment.yaml"])][-1]
        seen |= {path for path, _ in flat(graph)}
        kinds = {each["type"] for each in graph["spec"]["components"]}
        assert kinds <= set(CHECKED["dynamo"]["choices"]["spec.components.type"])
        engine = graph["spec"]["backendFramework"]
        for given in launch.pools.values():
            assert set(given) <= own | set(CHECKED[engine]["names"])
    assert seen == keys


# ---- meaning


@pytest.mark.parametrize("name", DESIGNS)
@pytest.mark.parametrize("to", ["vllm", "sglang"])
def test_what_a_script_starts_is_what_the_design_has(to: str, name: str) -> None:
    """Arguments are read back from the script as a shell and the program's own parser would."""
    point = design(name, to)
    pools = {pool.role: pool for pool in describe_served(point, to).pools}
    text = render_script(targets[to](point))
    programs = [words for words in commands(text) if {"serve", "sglang.launch_server"} & {*words[1:]}]
    assert [sizes(to, flatten(options_of(words))) for words in programs] == [*map(expected, pools.values())]
    started = servers_of(text)
    for role, pool in pools.items() if started else ():  # without a function, one server on one host
        assert hosts_with(text, role) == pool.replicas * pool.nodes
        assert {len(gpus.split(",")) for each, gpus, _ in started if each == role} == {pool.gpus}
    assert sum(pool.replicas * pool.world for pool in pools.values()) == point.network.npus


def hosts_with(text: str, role: str) -> int:
    """Return on how many hosts servers of a pool are started: a branch may be that of several hosts."""
    count, alike = 0, 1
    names = re.search(r"names of all (\d+) hosts", text)
    everywhere = int(names[1]) if names and "case $NODE_RANK" not in text else 1
    for line in text.splitlines():
        if found := re.fullmatch(r"  (\d+(?: \| \d+)*)\)", line):
            alike = len(found[1].split("|"))
        elif line.strip().startswith(f"{role} ") and line.endswith("&"):
            count += alike
    return count * everywhere


def flatten(given: dict[str, list[str]]) -> dict[str, Any]:
    return {name: values[0] if values else True for name, values in given.items()}


@pytest.mark.parametrize("to", ENGINES)
def test_limits_and_lengths_are_the_design_s(to: str) -> None:
    point = with_engine(design("moe"), "sglang" if to == "sglang" else "trtllm" if to == "trtllm" else "vllm")
    (given,) = targets[to](point).pools.values()
    if to in ("vllm", "dynamo"):
        limits = {"--max-num-seqs": 64, "--max-num-batched-tokens": 4096, "--gpu-memory-utilization": 0.9}
    elif to == "sglang":  # of all 8 ranks of attention together; activations are outside
        workspace = round(0.9 - load_engine("sglang").workspace_bytes / point.memory.capacity_bytes, 4)
        limits = {"--max-running-requests": 512, "--chunked-prefill-size": 32768, "--mem-fraction-static": workspace}
    else:
        limits = {"--max_batch_size": 64, "--max_num_tokens": 4096, "--kv_cache_free_gpu_memory_fraction": 0.9}
    assert limits.items() <= given.items()
    longest = {"sglang": "--context-length", "trtllm": "--max_seq_len"}.get(to, "--max-model-len")
    assert 4500 < int(str(given[longest])) <= 4500 + 512


def test_experts_and_attention_are_spread_as_each_engine_counts_them() -> None:
    assert {"--data-parallel-size": 8, "--enable-expert-parallel": True}.items() <= targets["vllm"](
        design("moe")
    ).arguments.items()
    found = targets["sglang"](design("moe")).arguments
    assert {"--tp-size": 8, "--dp-size": 8, "--ep-size": 8, "--enable-dp-attention": True}.items() <= found.items()
    launch = targets["trtllm"](design("moe"))
    assert {"--tp_size": 8, "--ep_size": 8}.items() <= launch.arguments.items()
    config = yaml.safe_load(launch.files["config.yaml"])
    assert config["enable_attention_dp"] is True
    assert config["moe_config"] == {"backend": "CUTLASS"}
    assert config["kv_cache_config"]["dtype"] == "fp8"


@pytest.mark.parametrize(("engine", "most"), [("vllm", "--max-loras"), ("sglang", "--max-loras-per-batch")])
def test_adapters_are_made_room_for(engine: str, most: str) -> None:
    point = design("dense").changed({"workload.lora_rank": 16, "workload.lora_adapters": 8})
    found = targets[engine](point)
    assert (found.arguments[most], found.arguments["--max-lora-rank"]) == (8, 16)
    assert "--enable-lora" in found.arguments
    assert any("8 adapters of rank 16" in each for each in found.warnings)
    assert "--enable-lora" not in targets[engine](design("dense")).arguments


def test_drafting_is_the_checkpoint_s_own_or_another_model_s() -> None:
    own = json.loads(str(targets["vllm"](design("speculative")).arguments["--speculative-config"]))
    assert own == {"method": "mtp", "num_speculative_tokens": 2}
    other = with_limits(design("dense"), draft_tokens=3)
    drafted = json.loads(str(targets["vllm"](other).arguments["--speculative-config"]))
    assert drafted["model"] == "yuhuili/EAGLE3-LLaMA3.3-Instruct-70B"
    found = targets["sglang"](design("speculative")).arguments
    assert (found["--speculative-num-steps"], found["--speculative-num-draft-tokens"]) == (2, 3)
    config = yaml.safe_load(targets["trtllm"](design("speculative")).files["config.yaml"])
    assert config["speculative_config"] == {"decoding_type": "MTP", "max_draft_len": 2, "num_nextn_predict_layers": 2}
    assert config["moe_config"] == {"backend": "CUTLASS"}


def test_pools_of_a_disaggregated_design_have_their_own_arguments_and_roles() -> None:
    pools = targets["vllm"](design("disaggregated")).pools
    assert [pools[role]["--tensor-parallel-size"] for role in ("prefill", "decode")] == [4, 8]
    assert [pools[role]["--max-num-batched-tokens"] for role in ("prefill", "decode")] == [16384, 4096]
    roles = [json.loads(str(given["--kv-transfer-config"]))["kv_role"] for given in pools.values()]
    assert roles == ["kv_producer", "kv_consumer"]
    found = yaml.safe_load(targets["trtllm"](design("disaggregated")).files["disaggregated.yaml"])
    assert found["context_servers"] == {
        "num_instances": 4,
        "urls": ["HOST0:8001", "HOST0:8002", "HOST1:8001", "HOST1:8002"],
    }
    assert found["generation_servers"] == {"num_instances": 1, "urls": ["HOST2:8001"]}
    graph = yaml.safe_load(targets["dynamo"](design("disaggregated")).files["deployment.yaml"])
    components = {each["name"]: each for each in graph["spec"]["components"]}
    assert {name: each["replicas"] for name, each in components.items()} == {"Frontend": 1, "prefill": 4, "decode": 1}


def test_an_instance_larger_than_a_host_spans_several() -> None:
    graph = yaml.safe_load(targets["dynamo"](design("multi-node")).files["deployment.yaml"])
    worker = graph["spec"]["components"][1]
    assert worker["multinode"] == {"nodeCount": 2}
    assert worker["podTemplate"]["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "8"}
    wide = serve("deepseek-v3@dgx-h200:16", {"dp": 16, "ep": 16, "precision": "fp8"})
    starts = [
        options_of(rest).get("--data-parallel-start-rank")
        for _, _, rest in servers_of(render_script(targets["vllm"](wide)))
    ]
    assert starts == [None, ["8"]]


def test_pools_share_hosts_unless_they_are_of_different_systems() -> None:
    prefill, decode = (
        EnginePool(role="prefill", replicas=2, tp=2, **SIZES),
        EnginePool(role="decode", replicas=1, tp=4, **SIZES),
    )
    assert [(each.first, each.gpus, each.port) for each in place_servers([prefill, decode])] == [
        (0, (0, 1), 8001),
        (0, (2, 3), 8002),
        (0, (4, 5, 6, 7), 8003),
    ]
    assert [each.first for each in place_servers([replace(prefill, apart=True), decode])] == [0, 0, 1]
    odd = EnginePool(role="serve", replicas=2, tp=12, **SIZES)
    assert [(each.first, len(each.gpus)) for each in place_servers([odd])] == [(0, 6), (2, 6)]


# ---- sentences


@pytest.mark.parametrize(
    ("to", "point", "sentence"),
    [
        ("vllm", design("dense", "sglang"), "the design's numbers are those of sglang: set serving.engine=vllm"),
        ("vllm", replace(design("dense"), serving=None), "only a step of decode: limits are vLLM's defaults"),
        ("vllm", serve("gpt3-175b@dgx-h100:8", {"tp": 8}), "no checkpoint of gpt3-175b is known: replace MODEL"),
        (
            "vllm",
            changed(design("moe"), precision="bf16"),
            "is stored in fp8: set precision=fp8, or serve a checkpoint in bf16",
        ),
        ("vllm", serve("llama2-70b@dgx-h100:8", {"tp": 8, "precision": "fp8"}), "it is quantized when loaded"),
        (
            "trtllm",
            serve("llama2-70b@dgx-h100:8", {"tp": 8, "precision": "fp8"}),
            "quantize meta-llama/Llama-2-70b-chat-hf",
        ),
        ("sglang", serve("llama2-70b@dgx-b200:8", {"tp": 8, "precision": "fp4"}), "a checkpoint in NVFP4"),
        (
            "vllm",
            serve("deepseek-v3@dgx-h200:16", {"tp": 8, "dp": 2, "ep": 4, "etp": 4}),
            "over all 16 GPUs of a stage",
        ),
        ("trtllm", serve("deepseek-v3@dgx-h200:16", {"tp": 4, "dp": 4, "ep": 16}), "16 of tp 1, not 4 of tp 4"),
        ("trtllm", design("replicas", "trtllm"), "no router for equal servers"),
        ("trtllm", serve("llama3-8b@mi300x:8", {"tp": 8}), "runs on NVIDIA's GPUs, not on AMD's"),
        ("vllm", serve("llama3-8b@tpu-v5p:8", {"tp": 8}), "tpu-v5p is Google's"),
        ("vllm", design("speculative"), "70% of drafted tokens are accepted: measure it"),
        ("vllm", with_limits(serve("llama3-405b@dgx-h100:16", {"tp": 16}), draft_tokens=1), "replace DRAFT_MODEL"),
        ("vllm", with_limits(design("dense"), load=replace(LOAD, isl_cv=0.3)), "requests of up to 8,448 tokens"),
        ("vllm", changed(design("multi-node"), tp=8, pp=2, precision="bf16"), ""),
        ("vllm", changed(design("dense"), cp=2), "cp 2: context parallelism is not written"),
        ("sglang", serve("kimi-k2@dgx-h200:16", {"tp": 16, "precision": "fp8"}), "asks for --trust-remote-code"),
        ("dynamo", serve("llama3-8b@mi300x:8", {"tp": 8}), "of NVIDIA's GPUs, not of AMD's"),
        ("dynamo", design("dense"), "put the tag of your vllm-runtime image in place of my-tag"),
        ("dynamo", serve("deepseek-v3@dgx-h200:16", {"tp": 8, "dp": 2, "ep": 4, "etp": 4}), "over all 16 GPUs"),
        ("vllm", serve("llama3-8b@tpu-v6e:256", {"tp": 8, "dp": 32}), "more than a host"),
    ],
)
def test_what_a_target_does_otherwise_is_said(to: str, point: DesignPoint, sentence: str) -> None:
    launch = targets[to](point)
    assert any(sentence in warning for warning in launch.warnings) or not sentence
    assert all(f"# note: {warning}" in render_script(launch) for warning in launch.warnings)


@pytest.mark.parametrize(("npus", "tp", "nodes", "gpus"), [(72, 8, 2, 4), (14, 2, 1, 2), (36, 4, 1, 4), (16, 16, 4, 4)])
def test_a_tray_of_a_rack_has_four_gpus(npus: int, tp: int, nodes: int, gpus: int) -> None:
    (pool,) = describe_served(serve(f"llama3-70b@gb200-nvl72:{npus}", {"tp": tp, "dp": npus // tp}), "vllm").pools
    assert (pool.host, pool.nodes, pool.gpus) == (4, nodes, gpus)


def test_a_step_has_no_more_requests_than_tokens() -> None:
    """Engines refuse to start otherwise."""
    many = replace(LOAD, concurrency=1024)
    small = with_limits(design("dense"), max_num_seqs=None, max_num_batched_tokens=512, load=many)
    assert targets["vllm"](small).arguments["--max-num-seqs"] == 512
    assert not any("steps of" in each for each in targets["vllm"](small).warnings)
    drafted = with_limits(small, draft_tokens=3, engine="trtllm")
    assert targets["trtllm"](drafted).arguments["--max_batch_size"] == 128
    stated = targets["vllm"](with_limits(small, max_num_seqs=600))
    assert "steps of 512 tokens run 512 requests, not 600" in stated.warnings


def test_graphs_are_captured_for_what_the_load_keeps_in_flight() -> None:
    """A graph of a batch that never runs takes memory from the KV cache."""
    for limits, captured in (({}, 128), ({"max_num_seqs": None}, 64), ({"max_num_seqs": 300}, 300)):
        launch = targets["trtllm"](with_limits(design("dense", "trtllm"), **limits))
        found = yaml.safe_load(launch.files["config.yaml"])["cuda_graph_config"]
        assert found["max_batch_size"] == captured


def test_no_more_tokens_are_admitted_than_the_model_takes() -> None:
    """Llama 2 has 4,096 positions: no room for a chat template beside 4,000 tokens."""
    point = serve("llama2-70b@dgx-h100:8", {"tp": 8}, load=Load(isl=3500, osl=500, concurrency=1))
    assert targets["vllm"](point).arguments["--max-model-len"] == 4096
    longer = targets["vllm"](with_limits(point, load=LOAD))
    assert "meta-llama/Llama-2-70b-chat-hf takes 4,096 tokens, fewer than the 4,500 of a request" in longer.warnings


def test_a_stated_format_of_the_cache_is_written_or_spoken_of() -> None:
    point = with_limits(design("dense"), kv_cache_dtype="bf16")
    assert "--kv-cache-dtype" not in targets["vllm"](point).arguments
    assert any("keeps the KV cache in bf16" in each for each in targets["vllm"](point).warnings)
    assert targets["sglang"](point).arguments["--kv-cache-dtype"] == "bf16"


@check_all("system", catalog_entries.entry_names("systems"))
def test_a_pool_of_another_system_has_hosts_of_its_own(system: str) -> None:
    pool = PrefillPool(replicas=2, tp=4, system=system)
    prefill, decode = describe_served(with_limits(design("dense"), prefill=pool), "vllm").pools
    assert 1 <= prefill.host <= 8
    assert prefill.gpus <= prefill.host
    hosts = {host for each in place_servers([prefill]) for host in each.hosts}
    assert hosts.isdisjoint({host for each in place_servers([prefill, decode])[2:] for host in each.hosts})


def test_thousands_of_servers_are_written_in_no_time() -> None:
    point = serve("llama3-8b@dgx-h100:16384", {"tp": 2, "dp": 8192, "global_batch": 8192})
    text = render_script(targets["sglang"](point))
    assert text.count("http://") == 8192
    assert text.count("&\n") == 4 + 1  # every host starts the same


def test_every_checkpoint_is_of_a_model_that_the_catalog_has() -> None:
    """And is named as the Hub names one: its owner, and its name."""
    listed = load_mapping(Path(served_launch.__file__).with_suffix(".yaml"))
    assert all(catalog_entries.resolve_name("models", name) for name in listed)
    for entry in listed.values():
        assert set(entry) <= {*served_launch.WIDTHS, "draft", "mtp", "remote_code", "context"}
        names = [entry[form] for form in (*served_launch.WIDTHS, "draft") if form in entry]
        assert all(re.fullmatch(r"[\w.-]+/[\w.-]+", name) for name in names)


@pytest.mark.parametrize(
    ("asked", "precision", "launched", "note"),
    [
        ("deepseek-r1", "fp8", "deepseek-ai/DeepSeek-R1", ""),
        ("deepseek-r1", "fp4", "nvidia/DeepSeek-R1-NVFP4", ""),
        ("deepseek-v3", "fp4", "deepseek-ai/DeepSeek-V3", "a checkpoint in NVFP4"),
        ("deepseek-ai/DeepSeek-R1-0528", "fp8", "deepseek-ai/DeepSeek-R1-0528", ""),
        ("DeepSeek-R1-0528", "fp4", "nvidia/DeepSeek-R1-0528-NVFP4", ""),
        ("mistralai/Mistral-Large-Instruct-2411", "bf16", "mistralai/Mistral-Large-Instruct-2411", ""),
        ("Mistral-Large-Instruct-2411", "fp8", "mistralai/Mistral-Large-Instruct-2411", "check that"),
        ("meta-llama/Meta-Llama-3-70B", "fp8", "meta-llama/Meta-Llama-3-70B", "is in 16 bits"),
        ("llama3.1-70b", "fp8", "nvidia/Llama-3.1-70B-Instruct-FP8", ""),
        ("meta-llama/Llama-3.3-70B-Instruct", "fp8", "nvidia/Llama-3.3-70B-Instruct-FP8", ""),
        ("llama3-70b", "bf16", "meta-llama/Llama-3.3-70B-Instruct", "llama3-70b is taken for"),
        ("qwen2-72b", "bf16", "Qwen/Qwen2-72B-Instruct", ""),
        ("mistral", "bf16", "mistralai/Mistral-7B-Instruct-v0.3", ""),
        ("me/Llama-3.3-70B-Instruct-FP8-dynamic", "fp8", "me/Llama-3.3-70B-Instruct-FP8-dynamic", ""),
        ("Qwen/Qwen2.5-72B-Instruct-AWQ", "fp8", "Qwen/Qwen2.5-72B-Instruct-AWQ", "is stored in int4"),
        ("llama2-34b", "bf16", "MODEL", "no checkpoint of llama2-34b is known"),
    ],
)
def test_the_model_that_was_asked_for_is_launched(asked: str, precision: str, launched: str, note: str) -> None:
    """Also where others have its shapes, and from a file."""
    fields = {"tp": 8, "precision": precision, "kv_cache_dtype": "bf16", "isl": 100, "osl": 10, "concurrency": 1}
    point = load_design(yaml.safe_load(dump_design(load_design(f"{asked}@dgx-b200:8", fields))))
    found = served_launch.choose_checkpoint(point)
    assert found.name == launched
    assert found.quantize == (note in {"is in 16 bits", "check that"})
    assert any(note in each for each in found.warnings) if note else not found.warnings


def test_a_folder_of_weights_is_launched_by_its_path(tmp_path: Path) -> None:
    """In the format that its config.json says, or quantized."""
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 1024,
        "num_hidden_layers": 2,
        "num_attention_heads": 8,
        "intermediate_size": 2048,
        "vocab_size": 1000,
    }
    for name, stored in (("plain", {}), ("small", {"quantization_config": {"quant_method": "fp8"}})):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(config | stored))
        for source in (folder, folder / "config.json"):
            point = load_design({"model": str(source), "system": "dgx-h100:1"}, {"task": "decode", "precision": "fp8"})
            found = targets["vllm"](point).arguments
            assert served_launch.choose_checkpoint(point).name == str(folder)
            assert ("--quantization" in found) == (name == "plain")


def test_pools_that_prefill_capture_no_graphs_of_steps_that_decode() -> None:
    point = with_limits(design("disaggregated", "trtllm"), max_num_seqs=None)
    files = targets["trtllm"](point).files
    assert yaml.safe_load(files["prefill.yaml"])["cuda_graph_config"] is None
    assert yaml.safe_load(files["decode.yaml"])["cuda_graph_config"]["max_batch_size"] <= 64
    prefill = targets["trtllm"](point).pools["prefill"]
    assert 4 <= int(str(prefill["--max_batch_size"])) <= 64


def test_an_engine_that_does_not_quantize_is_not_said_to() -> None:
    point = serve("llama2-70b@dgx-h100:8", {"tp": 8, "precision": "fp8"})
    said = {to: " ".join(targets[to](point).warnings) for to in ("vllm", "trtllm")}
    assert "it is quantized when loaded" in said["vllm"]
    assert "it is quantized when loaded" not in said["trtllm"]
    assert "quantize meta-llama/Llama-2-70b-chat-hf with ModelOpt first" in said["trtllm"]


def test_requests_at_once_follow_from_the_kv_cache() -> None:
    """And the share of the memory from what graphs and prompts of many ranks need beside it."""
    wide = serve("deepseek-v3@dgx-h200:8", {"dp": 8, "ep": 8, "precision": "fp8"}, "sglang")
    found = targets["sglang"](wide).arguments
    assert found["--max-running-requests"] == 8 * 256  # 64 are in flight
    many = targets["sglang"](with_limits(wide, load=replace(LOAD, concurrency=None, rate=1.0))).arguments
    assert 8 * 256 < int(str(many["--max-running-requests"])) < 8 * 4096
    assert 0.7 < float(str(found["--mem-fraction-static"])) < 0.92
    many = targets["sglang"](with_limits(wide, load=replace(LOAD, concurrency=4096))).arguments
    assert float(str(many["--mem-fraction-static"])) < float(str(found["--mem-fraction-static"]))
    stated = targets["sglang"](with_limits(wide, memory_fraction=0.95, max_num_seqs=4096)).arguments
    assert stated["--max-running-requests"] == 8 * 4096
    assert float(str(stated["--mem-fraction-static"])) > 0.9


def test_a_model_with_other_shapes_is_not_the_catalog_s() -> None:
    point = load_design("llama3-8b@dgx-h100:8", {"task": "decode", "layers": 16})
    assert any("is not llama3-8b as the catalog has it" in each for each in targets["vllm"](point).warnings)


def test_a_served_design_of_the_target_s_own_engine_needs_no_notes() -> None:
    for name in ("dense", "multi-node", "replicas", "disaggregated", "moe"):
        for engine in ("vllm", "sglang"):
            found = targets[engine](design(name, engine)).warnings
            assert [each for each in found if not each.startswith(ASSUMED)] == []


@pytest.mark.parametrize("to", ENGINES)
def test_training_designs_are_not_served(to: str) -> None:
    point = load_design("llama3-8b@dgx-h100:8")
    with pytest.raises(SpecError, match=rf"workload\.task = 'training': {to} serves models: give the design a serving"):
        targets[to](point)
    with pytest.raises(SpecError, match=r"model\.family = 'encoder': only decoders can be exported"):
        targets[to](load_design("bert-large@dgx-h100:8", {"task": "prefill"}))


@pytest.mark.parametrize("to", FRAMEWORKS)
def test_served_designs_are_not_trained(to: str) -> None:
    with pytest.raises(SpecError, match=r"workload\.task = 'decode': .* runs training designs only"):
        targets[to](replace(design("dense"), serving=None))
    with pytest.raises(SpecError, match=r"serving\.engine = 'vllm': .* runs training designs only"):
        targets[to](changed(design("dense"), task="training"))


def test_a_simulator_of_steps_says_that_it_leaves_the_load_out() -> None:
    found = targets["astra-sim"](serve("gpt3-125m@dgx-h100:2", {"tp": 2, "global_batch": 2}))
    assert "the load is left out: this is one step of decode, of all instances" in found.warnings
    fields = {"tp": 1, "dp": 2, "pp": 1, "prefill.replicas": 2, "prefill.tp": 1, "isl": 100, "osl": 10, "rate": 1.0}
    two = targets["astra-sim"](load_design("gpt3-125m@dgx-h100:4", fields))
    assert "instances that only prefill are left out" in two.warnings


def test_the_longest_of_several_classes_counts() -> None:
    classes = (
        RequestClass(name="chat", isl=500, osl=200),
        RequestClass(name="code", isl=9000, osl=100, prefix_hit=0.5),
    )
    point = with_limits(design("dense"), load=Load(classes=classes, rate=10.0))
    found = targets["vllm"](point).arguments
    assert 9100 < int(str(found["--max-model-len"])) < 9700
    assert found["--enable-prefix-caching"] is True


# ---- writing


def golden() -> list[tuple[str, str]]:
    return [(name, to) for name in DESIGNS for to in ENGINES]


@pytest.mark.parametrize(("name", "to"), golden())
def test_the_script_is_the_one_that_was_looked_at(name: str, to: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With limits that later fits of engines do not change."""
    monkeypatch.setattr("cosmic.frameworks.served_launch.load_engine", lambda _: LIMITS)
    assert render_script(targets[to](design(name, ENGINE_OF[to]))) == (GOLDEN / f"{name}.{to}.sh").read_text()


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize("to", ENGINES)
def test_a_shell_runs_every_script_and_its_files_parse(to: str, tmp_path: Path) -> None:
    stubs = tmp_path / "stubs"
    stubs.mkdir()
    for name in STUBS:
        (stubs / name).write_text('#!/bin/sh\nprintf "%s\\n" "$0 $*" >> "$LOG"\n')
        (stubs / name).chmod(0o755)
    for name in DESIGNS:
        launch = targets[to](design(name))
        folder = tmp_path / name
        assert {path.name for path in write_launch(launch, folder)} == {"launch.sh", *launch.files}
        for file in launch.files:
            assert [*yaml.safe_load_all((folder / file).read_text())]
        log = tmp_path / f"{name}.log"
        log.touch()
        environment = {"PATH": f"{stubs}:/usr/bin:/bin", "HOSTS": "node-a node-b node-c", "LOG": str(log)}
        for rank in range(3):
            subprocess.run(
                ["bash", str(folder / "launch.sh")], env={**environment, "NODE_RANK": str(rank)}, check=True, timeout=20
            )
        assert log.read_text()
        if name == "disaggregated" and to == "trtllm":
            assert "node-c:8001" in (folder / "disaggregated_hosts.yaml").read_text()
