"""SGLang: `python -m sglang.launch_server` for each instance, and SGLang's router before several of them.

Names: docs/advanced_features/server_arguments.md, pd_disaggregation.md and router.md of github.com/sgl-project/sglang
(tests/frameworks/launching/checked_names.yaml has the commits). There, tp counts all GPUs of a stage, also those that attention
data parallelism divides, and limits are of all ranks of attention together: each rank has its share. What the default
of --mem-fraction-static leaves is read from server_args.py.
"""

from __future__ import annotations

from math import ceil

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
    script_body,
    server_url,
)

PROGRAM = "python -m sglang.launch_server"
ROUTER = "python -m sglang_router.launch_router"
DTYPES = {"bf16": "bfloat16", "bf16_pure": "bfloat16", "fp16": "float16", "fp32": "float32"}
MEETING_PORT = 20000
"""Where the hosts of an instance meet."""
BOOTSTRAP = 1000
"""Distance from the port of a server that prefills to that of its bootstrap server."""
MOST_CAPTURED = 512
"""Largest batch that SGLang captures as a CUDA graph if it is told of none, on GPUs with much memory."""
MANY_CAPTURED = 300
"""Above so many, ranks of attention need more memory for each."""
LARGE_BYTES = 60 * 2**30
"""Memory of a GPU above which SGLang leaves 10 GiB at least."""
LISTENING: dict[str, ArgumentValue] = {"--host": "0.0.0.0"}


@targets.register("sglang")
def launch_sglang(point: DesignPoint) -> Launch:
    """Return how SGLang serves *point*."""
    design = describe_served(point, "sglang")
    draft = Draft()
    _unsupported(draft, design)
    pools: dict[str, dict[str, ArgumentValue]] = {pool.role: sglang_arguments(design, pool) for pool in design.pools}
    main = pools[design.pools[-1].role]
    servers = place_servers(design.pools)
    single_host = len(servers) == 1 and count_server_hosts(servers) == 1
    return Launch(
        about=f"{design.about}: SGLang's arguments",
        command=(PROGRAM, *quote_options(main | LISTENING)),
        body=() if single_host else _body(design, servers, pools),
        arguments=main,
        pools=pools,
        warnings=(*draft.warnings, *design.warnings()),
    )


def sglang_arguments(design: Served, pool: EnginePool) -> dict[str, ArgumentValue]:
    """Return the arguments of a pool's servers, without what depends on where they run."""
    draft = Draft(written_arguments(design.workload, "sglang", moe=design.moe))
    draft.add("--model-path", design.checkpoint.name)
    draft.add("--tp-size", pool.tp * pool.ranks)
    draft.add("--pp-size", pool.pp, when=pool.pp > 1)
    draft.add("--dp-size", pool.ranks, when=pool.ranks > 1)
    draft.add("--enable-dp-attention", when=pool.ranks > 1)
    draft.add("--ep-size", pool.ep, when=design.moe and pool.ep > 1)
    draft.take("--enable-eplb", "--ep-num-redundant-experts")
    draft.add("--dtype", DTYPES.get(design.workload.precision, ""), when=design.workload.precision in DTYPES)
    draft.add("--quantization", "fp8", when=design.checkpoint.quantize)
    bf16_cache = design.point.serving is not None and design.point.serving.kv_cache_dtype == "bf16"
    draft.add("--kv-cache-dtype", "bf16" if bf16_cache else "fp8_e4m3", when=bf16_cache or design.cache_bytes == 1)
    draft.add("--context-length", design.longest)
    draft.add("--max-running-requests", design.seats(pool) * pool.ranks)
    draft.add("--cuda-graph-max-bs", captured_batches(design, pool), when=pool.role != "prefill")
    draft.add("--chunked-prefill-size", pool.batched_tokens * pool.ranks)
    draft.add("--mem-fraction-static", static_memory_fraction(design, pool))
    draft.take("--enable-lora", "--max-loras-per-batch", "--max-lora-rank")
    own_draft = design.checkpoint.draft is None
    if design.draft_tokens > 0:
        draft.add("--speculative-algorithm", "EAGLE" if own_draft else "EAGLE3")
        draft.add("--speculative-draft-model-path", design.checkpoint.draft or "", when=not own_draft)
        draft.add("--speculative-num-steps", design.draft_tokens)
        draft.add("--speculative-eagle-topk", 1)
        draft.add("--speculative-num-draft-tokens", design.draft_tokens + 1)
    draft.add("--disaggregation-mode", pool.role, when=pool.role != "serve")
    draft.add("--disaggregation-transfer-backend", "nixl", when=pool.role != "serve")
    draft.add("--trust-remote-code", when=design.checkpoint.remote_code)
    draft.take()
    return draft.arguments


def captured_batches(design: Served, pool: EnginePool) -> int:
    """Return the largest batch of a rank that is captured as a CUDA graph: twice its share of a load in flight."""
    largest = min(design.seats(pool), MOST_CAPTURED)
    concurrency = design.point.serving.load.concurrency if design.point.serving else None
    if concurrency is None:
        return largest
    return min(largest, 1 << (2 * ceil(concurrency / (pool.replicas * pool.ranks)) - 1).bit_length())


def static_memory_fraction(design: Served, pool: EnginePool) -> float:
    """Return the share of the memory for weights and KV cache, which here excludes activations and CUDA graphs.

    Where the design states none, it leaves at least what SGLang itself would for these (`_reserved`).
    """
    capacity = design.point.memory.capacity_bytes
    share = design.memory_fraction - design.engine.workspace_bytes / capacity
    is_stated = design.point.serving is not None and design.point.serving.memory_fraction is not None
    if not is_stated:
        share = min(share, 1 - _reserved(design, pool) / capacity)
    return round(max(0.05, share), 4)


def _reserved(design: Served, pool: EnginePool) -> float:
    """Return the bytes that SGLang's own default of the share leaves: for metadata, prefill, graphs, and ranks."""
    graphs = captured_batches(design, pool)
    mebibytes = 512 + 1.5 * max(pool.batched_tokens, 2048) + 2 * graphs + 1024 * pool.world / 8
    if pool.ranks > 1:
        mebibytes += (3.0 if graphs <= MANY_CAPTURED else 4.5) * graphs * pool.ranks
    if design.point.memory.capacity_bytes > LARGE_BYTES:
        mebibytes = max(mebibytes, 10 * 1024)
    return (mebibytes + (2048 if design.draft_tokens else 0)) * 2**20


def _unsupported(draft: Draft, design: Served) -> None:
    for pool in design.pools:
        spread = pool.tp * pool.ranks
        draft.warn(
            f"with ep {pool.ep}, SGLang splits each expert among {spread // pool.ep} GPUs, not {pool.etp}",
            when=design.moe and spread // pool.ep != pool.etp,
        )
    draft.warnings += unsupported_fields(design.workload, "sglang", moe=design.moe)


# ---- scripts


def _body(design: Served, servers: list[Server], pools: dict[str, dict[str, ArgumentValue]]) -> tuple[str, ...]:
    single_host = count_server_hosts(servers) == 1
    port = '--port "$2"'
    bootstrap = f'--disaggregation-bootstrap-port "$(($2 + {BOOTSTRAP}))"'
    commands = {
        role: ServerCommand(
            program=PROGRAM, arguments=arguments | LISTENING, last=(port, bootstrap) if role == "prefill" else (port,)
        )
        for role, arguments in pools.items()
    }
    return script_body(servers, commands, _further, _router(design, servers, single_host=single_host))


def _further(server_place: ServerPlace) -> list[str]:
    """Return what a server is told of the hosts that it spans."""
    pool = server_place.server.pool
    if pool.nodes == 1:
        return []
    meeting = f"{server_place.head}:{MEETING_PORT}"
    return ["--nnodes", str(pool.nodes), "--node-rank", str(server_place.rank), "--dist-init-addr", meeting]


def _router(design: Served, servers: list[Server], *, single_host: bool) -> list[str]:
    if len(servers) == 1:
        return []
    address = ["--host 0.0.0.0", f"--port {ROUTER_PORT}"]
    policy = "--policy cache_aware" if design.shares_prefixes else "--policy round_robin"
    if not design.disaggregated:
        return [
            ROUTER,
            "--worker-urls",
            *(server_url(server, single_host=single_host) for server in servers),
            policy,
            *address,
        ]
    roles = []
    for server in servers:
        bootstrap = f" {server.port + BOOTSTRAP}" if server.pool.role == "prefill" else ""
        roles.append(f"--{server.pool.role} {server_url(server, single_host=single_host)}{bootstrap}")
    return [ROUTER, "--pd-disaggregation", *roles, policy, *address]
