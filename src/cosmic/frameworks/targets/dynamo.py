"""NVIDIA Dynamo: a DynamoGraphDeployment for Kubernetes, with a frontend and a component for each pool.

The workers run the design's engine, with the same arguments as its own target. Names: those of the examples in
examples/backends/*/deploy/v1beta1 of github.com/ai-dynamo/dynamo; tests/frameworks/launching/checked_names.yaml has the commits.
The operator itself starts the hosts of an instance that spans several.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from cosmic.design.design_point import DesignPoint
from cosmic.frameworks.launch import ArgumentValue, Launch, dump_launch_yaml, quote_word, targets, vendor_of
from cosmic.frameworks.served_launch import TITLES, EnginePool, Served, describe_served
from cosmic.frameworks.targets import sglang, trtllm, vllm

FILE = "deployment.yaml"
DEFAULT_ENGINE = "vllm"
IMAGES = {"vllm": "vllm-runtime", "sglang": "sglang-runtime", "trtllm": "tensorrtllm-runtime"}
TAG = "my-tag"
SECRET = "hf-token-secret"
CONFIG_FOLDER = "/etc/engine"
LONGEST_NAME = 40
CONNECTOR = '{"kv_connector": "NixlConnector", "kv_role": "kv_both"}'
"""Dynamo's frontend says which worker prefills."""
CLASHING = ("--disaggregation-mode", "--model-path")
"""What this module says in its own order."""


@targets.register("dynamo")
def launch_dynamo(point: DesignPoint) -> Launch:
    """Return how Dynamo serves *point*."""
    stated_engine = point.serving.engine if point.serving else DEFAULT_ENGINE
    engine = stated_engine if stated_engine in IMAGES else DEFAULT_ENGINE
    design = describe_served(point, "dynamo", engine)
    pools: dict[str, dict[str, ArgumentValue]] = {pool.role: _arguments(design, pool) for pool in design.pools}
    documents = [*_config_map(design), _deployment(design, pools)]
    return Launch(
        about=f"{design.about}: Dynamo's deployment with {TITLES[engine]}",
        command=(f"kubectl apply -f {quote_word(FILE)}",),
        arguments=pools[design.pools[-1].role],
        pools=pools,
        files={FILE: "---\n".join(map(dump_launch_yaml, documents))},
        warnings=(*_manual_steps(point, engine), *_engine_warnings(point, engine), *design.warnings()),
    )


def _manual_steps(point: DesignPoint, engine: str) -> Iterator[str]:
    yield f"put the tag of your {IMAGES[engine]} image in place of {TAG}, and your token into the secret {SECRET}"
    maker = vendor_of(point)
    if maker not in (None, "NVIDIA") and engine != "trtllm":  # which says the same of itself
        yield f"Dynamo's images and limits are of NVIDIA's GPUs, not of {maker}'s"


def _engine_warnings(point: DesignPoint, engine: str) -> list[str]:
    """Return what the engine's own target warns of, and this module does not say in other words."""
    shared = set(describe_served(point, "dynamo", engine).warnings())
    warnings = targets[engine](point).warnings
    not_for_dynamo = ("has no router", "started by Slurm")
    return [
        warning for warning in warnings if warning not in shared and not any(part in warning for part in not_for_dynamo)
    ]


def _arguments(design: Served, pool: EnginePool) -> dict[str, ArgumentValue]:
    """Return the arguments of a pool's workers: Dynamo's own, and those of the engine."""
    name = design.checkpoint.name
    role: dict[str, ArgumentValue] = {} if pool.role == "serve" else {"--disaggregation-mode": pool.role}
    if design.target == "vllm":
        connector: dict[str, ArgumentValue] = {"--kv-transfer-config": CONNECTOR} if role else {}
        return {"--model": name, **vllm.vllm_arguments(design, pool), **connector, **role}
    if design.target == "sglang":
        arguments = {key: value for key, value in sglang.sglang_arguments(design, pool).items() if key not in CLASHING}
        listening = sglang.LISTENING if role else {}
        return {"--model-path": name, "--served-model-name": name, **arguments, **listening, **role}
    file = f"{CONFIG_FOLDER}/{trtllm.FILES[pool.role]}"
    return {"--model-path": name, "--served-model-name": name, "--extra-engine-args": file, **role}


def _deployment(design: Served, pools: dict[str, dict[str, ArgumentValue]]) -> dict[str, Any]:
    frontend = {
        "name": "Frontend",
        "type": "frontend",
        "replicas": 1,
        "podTemplate": {"spec": {"containers": [{"name": "main", "image": _image(design)}]}},
    }
    workers = [_worker(design, pool, pools[pool.role]) for pool in design.pools]
    return {
        "apiVersion": "nvidia.com/v1beta1",
        "kind": "DynamoGraphDeployment",
        "metadata": {"name": _name(design)},
        "spec": {"backendFramework": design.target, "components": [frontend, *workers]},
    }


def _worker(design: Served, pool: EnginePool, arguments: dict[str, ArgumentValue]) -> dict[str, Any]:
    container: dict[str, Any] = {
        "name": "main",
        "image": _image(design),
        "command": ["python3", "-m", f"dynamo.{design.target}"],
        "args": _container_words(arguments),
        "envFrom": [{"secretRef": {"name": SECRET}}],
        "resources": {"limits": {"nvidia.com/gpu": str(pool.gpus)}},
    }
    spec: dict[str, Any] = {"containers": [container]}
    if design.target == "trtllm":
        container["volumeMounts"] = [{"name": "engine", "mountPath": CONFIG_FOLDER, "readOnly": True}]
        spec["volumes"] = [{"name": "engine", "configMap": {"name": _config_name(design)}}]
    worker: dict[str, Any] = {
        "name": "worker" if pool.role == "serve" else pool.role,
        "type": "worker" if pool.role == "serve" else pool.role,
        "replicas": pool.replicas,
    }
    if pool.nodes > 1:
        worker["multinode"] = {"nodeCount": pool.nodes}
    return {**worker, "podTemplate": {"spec": spec}}


def _container_words(arguments: dict[str, ArgumentValue]) -> list[str]:
    """Return arguments as the list that a container has: names, and values as text.

    >>> _container_words({"--model": "m", "--enable-expert-parallel": True, "--tensor-parallel-size": 8})
    ['--model', 'm', '--enable-expert-parallel', '--tensor-parallel-size', '8']
    """
    return [text for name, value in arguments.items() for text in ([name] if value is True else [name, str(value)])]


def _config_map(design: Served) -> list[dict[str, Any]]:
    """Return the options of TensorRT-LLM as a resource that its workers mount."""
    if design.target != "trtllm":
        return []
    data = {
        trtllm.FILES[pool.role]: dump_launch_yaml(trtllm.trtllm_config(design, pool, with_all=True))
        for pool in design.pools
    }
    return [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": _config_name(design)}, "data": data}]


def _image(design: Served) -> str:
    return f"nvcr.io/nvidia/ai-dynamo/{IMAGES[design.target]}:{TAG}"


def _name(design: Served) -> str:
    """Return a name that Kubernetes takes: small letters, digits and hyphens."""
    text = design.checkpoint.name.rpartition("/")[2].lower()
    return re.sub(r"[^a-z0-9]+", "-", text)[:LONGEST_NAME].strip("-") or "model"


def _config_name(design: Served) -> str:
    return f"{_name(design)}-engine"
