"""TensorRT-LLM: `trtllm-serve` for each instance with a YAML file of options, and its server for disaggregated pools.

Names: tensorrt_llm/commands/serve.py and docs/source/ (commands/trtllm-serve, features/disagg-serving,
features/speculative-decoding, deployment-guide) of github.com/NVIDIA/TensorRT-LLM; tests/frameworks/launching/checked_names.yaml
has the commits. There, tp counts all GPUs of a stage, also those of attention data parallelism, which has one rank for
each of them; limits are of a rank.
"""

from __future__ import annotations

from typing import Any

from cosmic.design.design_point import DesignPoint
from cosmic.design.field_facts import unsupported_fields
from cosmic.frameworks.launch import (
    ArgumentValue,
    Draft,
    Launch,
    dump_launch_yaml,
    quote_options,
    targets,
    unsupported_reason,
)
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
)

DISAGGREGATED = "disaggregated.yaml"
WITH_HOSTS = "disaggregated_hosts.yaml"
"""The same with the names of hosts."""
LISTENING: dict[str, ArgumentValue] = {"--host": "0.0.0.0"}
FILES = {"serve": "config.yaml", "prefill": "prefill.yaml", "decode": "decode.yaml"}
SERVERS = {"prefill": "context_servers", "decode": "generation_servers"}
DTYPES = {"bf16": "bfloat16", "bf16_pure": "bfloat16", "fp16": "float16", "fp32": "float32"}
WIDE = 8
"""Most GPUs over which the usual backends spread experts."""


@targets.register("trtllm")
def launch_trtllm(point: DesignPoint) -> Launch:
    """Return how TensorRT-LLM serves *point*."""
    design = describe_served(point, "trtllm")
    draft = Draft()
    _unsupported(draft, design)
    servers = place_servers(design.pools)
    pools: dict[str, dict[str, ArgumentValue]] = {pool.role: trtllm_arguments(design, pool) for pool in design.pools}
    main = pools[design.pools[-1].role]
    files = {FILES[pool.role]: dump_launch_yaml(trtllm_config(design, pool)) for pool in design.pools}
    if design.disaggregated:
        files[DISAGGREGATED] = dump_launch_yaml(_disaggregated(servers))
    single_host = len(servers) == 1 and count_server_hosts(servers) == 1
    program = quote_program("trtllm-serve", design.checkpoint.name)
    return Launch(
        about=f"{design.about}: TensorRT-LLM's arguments",
        command=(program, *quote_options(main | LISTENING)),
        body=() if single_host else _body(design, servers, program, pools),
        arguments=main,
        pools=pools,
        files=files,
        warnings=(*draft.warnings, *design.warnings()),
    )


def trtllm_arguments(design: Served, pool: EnginePool) -> dict[str, ArgumentValue]:
    """Return the arguments of a pool's servers, without what depends on where they run."""
    draft = Draft()
    draft.add("--tp_size", pool.tp * pool.ranks)
    draft.add("--pp_size", pool.pp, when=pool.pp > 1)
    draft.add("--ep_size", pool.ep, when=design.moe)
    draft.add("--max_batch_size", design.running(pool))
    draft.add("--max_num_tokens", pool.batched_tokens)
    draft.add("--max_seq_len", design.longest)
    draft.add("--kv_cache_free_gpu_memory_fraction", round(design.memory_fraction, 4))
    draft.add("--extra_llm_api_options", FILES[pool.role])
    draft.add("--trust_remote_code", when=design.checkpoint.remote_code)
    return draft.arguments


def trtllm_config(design: Served, pool: EnginePool, *, with_all: bool = False) -> dict[str, Any]:
    """Return the options of a pool's servers in YAML; *with_all*, with those that are arguments of `trtllm-serve`."""
    config: dict[str, Any] = {}
    if with_all:
        config |= {
            "backend": "pytorch",
            "tensor_parallel_size": pool.tp * pool.ranks,
            "pipeline_parallel_size": pool.pp,
            "max_batch_size": design.running(pool),
            "max_num_tokens": pool.batched_tokens,
            "max_seq_len": design.longest,
            "trust_remote_code": design.checkpoint.remote_code,
        }
        if design.moe:
            config["moe_expert_parallel_size"] = pool.ep
    if design.workload.precision in DTYPES:
        config["dtype"] = DTYPES[design.workload.precision]
    chunked = bool(design.engine.chunked_prefill) or pool.batched_tokens < design.longest_input
    config |= {
        "enable_attention_dp": pool.ranks > 1,
        "enable_chunked_prefill": chunked,
        "kv_cache_config": _cache(design),
        "cuda_graph_config": _graphs(design, pool),
    }
    if design.moe:
        config["moe_config"] = {"backend": _expert_backend(design, pool)}
    if design.draft_tokens:
        config["speculative_config"] = _speculation(design)
    if design.disaggregated:
        config["disable_overlap_scheduler"] = pool.role == "prefill"  # servers that only prefill do not support it
        config["cache_transceiver_config"] = {"backend": "DEFAULT", "max_tokens_in_buffer": design.longest}
    return config


def _graphs(design: Served, pool: EnginePool) -> dict[str, Any] | None:
    """Return which steps are captured as CUDA graphs: those that decode, so none of a pool that only prefills."""
    return None if pool.role == "prefill" else {"enable_padding": True, "max_batch_size": _captured(design, pool)}


def _captured(design: Served, pool: EnginePool) -> int:
    """Return the largest batch of a CUDA graph: the limit, or what the load keeps in flight if it states no limit."""
    serving = design.point.serving
    largest = design.running(pool)
    if serving is None or serving.max_num_seqs is not None or serving.load.concurrency is None:
        return largest
    return min(largest, 1 << (serving.load.concurrency - 1).bit_length())


def _cache(design: Served) -> dict[str, Any]:
    cache: dict[str, Any] = {
        "dtype": "fp8" if design.cache_bytes == 1 else "auto",
        "free_gpu_memory_fraction": round(design.memory_fraction, 4),
    }
    return cache | {"enable_block_reuse": True} if design.shares_prefixes else cache


def _expert_backend(design: Served, pool: EnginePool) -> str:
    """Return the kernels of the experts: as the guide for DeepSeek-R1 has them by accelerator and precision."""
    blackwell = design.point.compute.fp4_flop_per_s is not None
    if blackwell and pool.ep > WIDE:
        return "WIDEEP"
    return "DEEPGEMM" if blackwell and design.workload.precision == "fp8" else "CUTLASS"


def _speculation(design: Served) -> dict[str, Any]:
    count = design.draft_tokens
    if design.checkpoint.draft is None:
        return {"decoding_type": "MTP", "max_draft_len": count, "num_nextn_predict_layers": count}
    return {"decoding_type": "Eagle3", "max_draft_len": count, "speculative_model": design.checkpoint.draft}


def _unsupported(draft: Draft, design: Served) -> None:
    why = unsupported_reason("trtllm", design.point)
    draft.warn(why or "", when=why is not None)
    for pool in design.pools:
        spread = pool.tp * pool.ranks
        draft.warn(
            f"TensorRT-LLM has a rank of attention for each GPU: {spread} of tp 1, not {pool.ranks} of tp {pool.tp}",
            when=pool.ranks > 1 and pool.tp > 1,
        )
        draft.warn(
            f"with ep {pool.ep}, TensorRT-LLM splits each expert among {spread // pool.ep} GPUs, not {pool.etp}",
            when=design.moe and spread // pool.ep != pool.etp,
        )
    draft.warnings += unsupported_fields(design.workload, "trtllm", moe=design.moe)
    draft.warn(
        f"TensorRT-LLM does not quantize when it loads: quantize {design.checkpoint.name} with ModelOpt first",
        when=design.checkpoint.quantize,
    )
    several = not design.disaggregated and design.pools[0].replicas > 1
    draft.warn(
        "TensorRT-LLM has no router for equal servers: put a load balancer before them, or export to dynamo",
        when=several,
    )
    spans = any(pool.nodes > 1 for pool in design.pools)
    draft.warn(
        "servers that span hosts are started by Slurm: run the script in an allocation of these hosts", when=spans
    )


# ---- scripts


def _disaggregated(servers: list[Server]) -> dict[str, Any]:
    """Return the file of the server before disaggregated pools; the script puts names of hosts in place of HOST0."""
    single_host = count_server_hosts(servers) == 1
    config: dict[str, Any] = {"hostname": "0.0.0.0", "port": ROUTER_PORT, "backend": "pytorch"}
    for role, key in SERVERS.items():
        role_servers = [server for server in servers if server.pool.role == role]
        urls = [
            f"localhost:{server.port}" if single_host else f"HOST{server.first}:{server.port}"
            for server in role_servers
        ]
        config[key] = {"num_instances": len(role_servers), "urls": urls}
    return config


def _body(
    design: Served, servers: list[Server], program: str, pools: dict[str, dict[str, ArgumentValue]]
) -> tuple[str, ...]:
    single_host = count_server_hosts(servers) == 1
    by_role: dict[str, EnginePool] = {pool.role: pool for pool in design.pools}
    commands = {role: _command(by_role[role], program, arguments | LISTENING) for role, arguments in pools.items()}
    prepared: list[str] = []
    router: list[str] = []
    if design.disaggregated:
        router = [f"trtllm-serve disaggregated -c {DISAGGREGATED if single_host else WITH_HOSTS}"]
        if not single_host:
            prepared = [
                'for place in "${!HOST[@]}"; do names+=(-e "s/HOST$place:/${HOST[place]}:/"); done',
                f'sed "${{names[@]}}" {DISAGGREGATED} > {WITH_HOSTS}',
            ]
    return script_body(servers, commands, _further, router, prepared)


def _command(pool: EnginePool, program: str, arguments: dict[str, ArgumentValue]) -> ServerCommand:
    """Return how a server is started: of one that spans hosts, Slurm starts a process for each GPU."""
    if pool.nodes == 1:
        return ServerCommand(program=program, arguments=arguments)
    size = f"-N {pool.nodes} --ntasks {pool.world} --ntasks-per-node={pool.gpus} --gres=gpu:{pool.gpus}"
    launcher = f'srun -w "$3" {size} --mpi=pmix trtllm-llmapi-launch'
    return ServerCommand(program=program, arguments=arguments, before=launcher, rest="")


def _further(server_place: ServerPlace) -> list[str] | None:
    """Return the hosts that a server spans; the first of them starts it on all."""
    if server_place.rank:
        return None
    names = ",".join(f"${{HOST[{host}]}}" for host in server_place.server.hosts)
    return [f'"{names}"'] if server_place.server.pool.nodes > 1 else []
