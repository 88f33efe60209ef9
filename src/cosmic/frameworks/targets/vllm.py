"""vLLM: `vllm serve` for each instance, and vLLM's router before several of them.

Names: vllm/engine/arg_utils.py and the pages on data parallelism, several hosts and the NixlConnector in docs/ of
github.com/vllm-project/vllm, and the README of github.com/vllm-project/router; tests/frameworks/launching/checked_names.yaml has
the commits. Limits are of each rank of attention data parallelism, as in the design.
"""

from __future__ import annotations

import json

from cosmic.design.design_point import DesignPoint
from cosmic.design.field_facts import unsupported_fields, written_arguments
from cosmic.frameworks.launch import ArgumentValue, Draft, Launch, quote_options, targets
from cosmic.frameworks.served_launch import (
    ROUTER_PORT,
    EnginePool,
    Served,
    Server,
    ServerCommand,
    ServerPlace,
    count_server_hosts,
    describe_served,
    place_servers,
    quote_program,
    script_body,
    server_url,
)

DTYPES = {"bf16": "bfloat16", "bf16_pure": "bfloat16", "fp16": "float16", "fp32": "float32"}
ROLES = {"prefill": "kv_producer", "decode": "kv_consumer"}
"""Roles of the connector, by pool."""
RPC_PORT = 13345
"""Where ranks of attention data parallelism on several hosts meet."""
SIDE_CHANNEL = (
    "VLLM_NIXL_SIDE_CHANNEL_HOST={host} VLLM_NIXL_SIDE_CHANNEL_PORT=$((5600 + 64 * ($2 - 8000))) "
    "CUDA_VISIBLE_DEVICES=$1"
)
"""Each rank of attention has a port above the server's first."""


@targets.register("vllm")
def launch_vllm(point: DesignPoint) -> Launch:
    """Return how vLLM serves *point*."""
    design = describe_served(point, "vllm")
    draft = Draft()
    _unsupported(draft, design)
    pools: dict[str, dict[str, ArgumentValue]] = {pool.role: vllm_arguments(design, pool) for pool in design.pools}
    main = pools[design.pools[-1].role]
    program = quote_program("vllm serve", design.checkpoint.name)
    servers = place_servers(design.pools)
    single_host = len(servers) == 1 and count_server_hosts(servers) == 1
    return Launch(
        about=f"{design.about}: vLLM's arguments",
        command=(program, *quote_options(main)),
        body=() if single_host else _body(design, servers, program, pools),
        arguments=main,
        pools=pools,
        warnings=(*draft.warnings, *design.warnings()),
    )


def vllm_arguments(design: Served, pool: EnginePool) -> dict[str, ArgumentValue]:
    """Return the arguments of a pool's servers, without what depends on where they run."""
    draft = Draft(written_arguments(design.workload, "vllm", moe=design.moe))
    draft.add("--tensor-parallel-size", pool.tp)
    draft.add("--pipeline-parallel-size", pool.pp, when=pool.pp > 1)
    draft.add("--data-parallel-size", pool.ranks, when=pool.ranks > 1)
    draft.add("--enable-expert-parallel", when=design.moe and pool.ep > 1)
    draft.take("--enable-eplb", "--eplb-config")
    draft.add("--dtype", DTYPES.get(design.workload.precision, ""), when=design.workload.precision in DTYPES)
    draft.add("--quantization", "fp8", when=design.checkpoint.quantize)
    draft.add("--kv-cache-dtype", "fp8", when=design.cache_bytes == 1)
    draft.add("--max-model-len", design.longest)
    draft.add("--max-num-seqs", design.running(pool))
    draft.add("--max-num-batched-tokens", pool.batched_tokens)
    draft.add("--gpu-memory-utilization", round(design.memory_fraction, 4))
    draft.add("--enable-prefix-caching", when=design.shares_prefixes)
    draft.take("--enable-lora", "--max-loras", "--max-lora-rank")
    draft.add("--speculative-config", _speculation(design), when=design.draft_tokens > 0)
    connector = {"kv_connector": "NixlConnector", "kv_role": ROLES.get(pool.role, "")}
    draft.add("--kv-transfer-config", json.dumps(connector), when=pool.role in ROLES)
    draft.add("--trust-remote-code", when=design.checkpoint.remote_code)
    draft.take()
    return draft.arguments


def _speculation(design: Served) -> str:
    own_draft = design.checkpoint.draft is None
    method = {"method": "mtp"} if own_draft else {"method": "eagle3", "model": design.checkpoint.draft}
    return json.dumps({**method, "num_speculative_tokens": design.draft_tokens})


def _unsupported(draft: Draft, design: Served) -> None:
    draft.warn(
        "vLLM does not combine speculative decoding with pipeline stages",
        when=design.draft_tokens > 0 and any(pool.pp > 1 for pool in design.pools),
    )
    draft.warn(
        "vLLM's NixlConnector moves no caches of instances with pipeline stages: choose pp 1, or another connector",
        when=design.disaggregated and any(pool.pp > 1 for pool in design.pools),
    )
    for pool in design.pools:
        spread = pool.tp * pool.ranks
        draft.warn(
            f"vLLM spreads experts over all {spread} GPUs of a stage, not over {pool.ep} groups of {pool.etp}",
            when=design.moe and pool.ep > 1 and pool.ep != spread,
        )
        draft.warn(
            "vLLM runs an instance that spans hosts with data parallelism or with a larger mesh, not with both",
            when=pool.nodes > 1 and pool.ranks > 1 and pool.tp * pool.pp > pool.gpus,
        )
    draft.warnings += unsupported_fields(design.workload, "vllm", moe=design.moe)


# ---- scripts


def _body(
    design: Served, servers: list[Server], program: str, pools: dict[str, dict[str, ArgumentValue]]
) -> tuple[str, ...]:
    single_host = count_server_hosts(servers) == 1
    side_channel = SIDE_CHANNEL.format(host="127.0.0.1" if single_host else '"${HOST[NODE_RANK]}"')
    plain = ServerCommand(program=program, arguments={})
    commands = {
        role: ServerCommand(
            program=program, arguments=arguments, before=side_channel if design.disaggregated else plain.before
        )
        for role, arguments in pools.items()
    }
    return script_body(servers, commands, _further, _router(design, servers, single_host=single_host))


def _further(server_place: ServerPlace) -> list[str]:
    """Return what a server is told of the hosts that it spans."""
    pool = server_place.server.pool
    if pool.nodes == 1:
        return []
    headless = ["--headless"] if server_place.rank else []
    if pool.ranks > 1:
        local = pool.ranks // pool.nodes or 1
        options = ["--data-parallel-size-local", str(local)]
        if server_place.rank:
            options += ["--data-parallel-start-rank", str(server_place.rank * pool.ranks // pool.nodes)]
        return [
            *options,
            "--data-parallel-address",
            server_place.head,
            "--data-parallel-rpc-port",
            str(RPC_PORT),
            *headless,
        ]
    return [
        "--nnodes",
        str(pool.nodes),
        "--node-rank",
        str(server_place.rank),
        "--master-addr",
        server_place.head,
        *headless,
    ]


def _router(design: Served, servers: list[Server], *, single_host: bool) -> list[str]:
    if len(servers) == 1:
        return []
    address = ["--host 0.0.0.0", f"--port {ROUTER_PORT}"]
    policy = "--policy cache_aware" if design.shares_prefixes else "--policy round_robin"
    if not design.disaggregated:
        return [
            "vllm-router",
            "--worker-urls",
            *(server_url(server, single_host=single_host) for server in servers),
            policy,
            *address,
        ]
    roles = [f"--{server.pool.role} {server_url(server, single_host=single_host)}" for server in servers]
    return ["vllm-router", "--vllm-pd-disaggregation", *roles, policy, *address]
