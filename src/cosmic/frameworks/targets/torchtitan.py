"""TorchTitan: its TOML configuration, written and read.

Keys are those of torchtitan/config/job_config.py at the commit below, of the releases that read TOML; later ones take
the same names on the command line or in Python. Model sizes are no keys: a flavor has a name. Defaults of what is read
are those of the same file: selective recomputation, 8 sequences per device, FSDP. Keys that say one field are declared
beside it (`cosmic.design.workload_layer`); here is what takes several fields, or several keys, together.
"""

from __future__ import annotations

import re
import tomllib
from itertools import product
from math import ceil
from typing import Any

from cosmic.base.errors import SpecError, require
from cosmic.design import catalog_entries
from cosmic.design.design_batch import batch_of
from cosmic.design.design_point import DesignPoint
from cosmic.design.field_facts import fields_told, spellings, unsupported_fields, written_arguments
from cosmic.design.model_layer import Transformer, is_moe
from cosmic.design.workload_layer import Workload
from cosmic.frameworks.launch import (
    Draft,
    Launch,
    common_warnings,
    describe_launch,
    dump_toml,
    outer_device,
    places_otherwise,
    targets,
    torchrun_command,
    trained_decoder,
)
from cosmic.frameworks.launch_arguments import ConfigEntries, read_fields
from cosmic.frameworks.launch_readers import (
    ImportedLayers,
    ImportRequest,
    check_decoder,
    count_replicas,
    find_stage_ends,
    read_written_file,
    stated_etp,
    stated_gradients,
)
from cosmic.step.cuts.balanced import state_end_layers
from cosmic.workload.mesh_sizes import microbatches
from cosmic.workload.pipeline_cut import layers_per_part
from cosmic.workload.precision import recipe_for

COMMIT = "6404b932421f"
"""Of github.com/pytorch/torchtitan."""
CONFIG = "torchtitan.toml"
FLAVORS = {
    "llama3-8b": ("llama3", "8B"),
    "llama3-70b": ("llama3", "70B"),
    "llama3-405b": ("llama3", "405B"),
    "deepseek-v2": ("deepseek_v3", "236B"),
    "deepseek-v3": ("deepseek_v3", "671B"),
}
"""Model and flavor of TorchTitan, by model of the catalog."""
ORDER = ("tp", "cp", "dp", "pp")


# ---- A design as keys


@targets.register("torchtitan")
def launch_torchtitan(point: DesignPoint) -> Launch:
    """Return how TorchTitan trains *point*."""
    point = state_end_layers(point)
    model, w = trained_decoder(point, "torchtitan"), point.workload
    moe = is_moe(model)
    draft = Draft(written_arguments(w, "torchtitan", moe=moe))
    _add_model(draft, model)
    _add_training(draft, point)
    _add_data_parallelism(draft, w)
    draft.take("parallelism.tensor_parallel_degree", "parallelism.enable_async_tensor_parallel")
    draft.take("parallelism.context_parallel_degree", "parallelism.context_parallel_rotate_method")
    draft.take("parallelism.expert_parallel_degree", "parallelism.expert_parallel_comm_backend")
    _warn_of_mesh(draft, point)
    _add_pipeline(draft, model, w)
    _add_recomputation(draft, w)
    _add_precision(draft, w)
    draft.take()
    return Launch(
        about=describe_launch(point, f"TorchTitan's configuration, as of commit {COMMIT}"),
        command=(torchrun_command(point), f"-m torchtitan.train --job.config_file {CONFIG}"),
        arguments=draft.arguments,
        files={CONFIG: dump_toml(draft.arguments)},
        warnings=(*draft.warnings, *unsupported_fields(w, "torchtitan", moe=moe), *common_warnings(point)),
    )


def _add_model(draft: Draft, model: Transformer) -> None:
    name, flavor = FLAVORS.get(model.name, ("", ""))
    if name and _as_published(model):
        draft.add("model.name", name)
        draft.add("model.flavor", flavor)
        return
    sizes = f"{model.layers} layers, hidden {model.hidden}, {model.heads} heads, ffn {model.ffn}, vocab {model.vocab}"
    draft.add("model.name", "llama3")
    draft.add("model.flavor", model.name or "design")
    draft.warn(f"TorchTitan has no flavor of this model: register one with {sizes}")


def _as_published(model: Transformer) -> bool:
    """Return whether the sizes are those of the catalog's model of that name."""
    published = catalog_entries.read_entry("models", model.name)["model"]
    return all(getattr(model, key) == value for key, value in published.items() if isinstance(value, int))


def _add_training(draft: Draft, point: DesignPoint) -> None:
    w = point.workload
    count = int(microbatches(batch_of(point)))
    piped = w.pp > 1
    draft.add("training.seq_len", w.sequence)
    draft.add("training.local_batch_size", w.micro_batch * (count if piped else 1))
    draft.add("training.global_batch_size", w.global_batch)
    draft.add("training.steps", 50)
    draft.add("training.compile", w.execution != "eager")
    samples_per_pass = w.micro_batch * w.dp
    draft.warn(
        f"TorchTitan needs a global batch that divides by {samples_per_pass}",
        when=w.global_batch % samples_per_pass != 0,
    )
    states = any(outer_device(point, state) != "none" for state in ("weights", "optimizer"))
    draft.add("training.enable_cpu_offload", when=states)
    draft.warn("TorchTitan offloads weights and optimizer states together", when=states)
    draft.warn("TorchTitan does not offload activations", when=outer_device(point, "activations") != "none")


def _add_data_parallelism(draft: Draft, w: Workload) -> None:
    sharded = w.shards_states
    draft.add("parallelism.data_parallel_replicate_degree", 1 if sharded else w.dp)
    draft.add("parallelism.data_parallel_shard_degree", w.dp if sharded else 1)
    draft.take("parallelism.fsdp_reshard_after_forward")


def _warn_of_mesh(draft: Draft, point: DesignPoint) -> None:
    w = point.workload
    if is_moe(point.model):
        draft.warn("TorchTitan spreads experts over dp and cp only", when=(w.dp * w.cp) % w.ep != 0)
        draft.warn("TorchTitan splits each expert over all of tp", when=w.expert_tensor != w.tp)
    draft.warn("TorchTitan needs ep to be at least cp", when=1 < w.ep < w.cp)
    if places_otherwise(point, [ORDER]):
        draft.warn(f"TorchTitan numbers ranks in the order {', '.join(ORDER)}, not {', '.join(w.placement)}")


def _add_pipeline(draft: Draft, model: Transformer, w: Workload) -> None:
    draft.take("parallelism.pipeline_parallel_degree")
    if w.pp == 1:
        return
    virtual = {"interleaved": w.virtual_stages, "zero_bubble": 2, "dualpipe": 2}.get(w.schedule, 1)
    draft.add("parallelism.pipeline_parallel_schedule", "1F1B")  # what one that it has not becomes
    draft.take("parallelism.pipeline_parallel_schedule")
    name = draft.arguments["parallelism.pipeline_parallel_schedule"]
    draft.add("parallelism.pipeline_parallel_microbatch_size", w.micro_batch)
    _add_stage_layers(draft, model, w, virtual)
    draft.warn(f"{name} has two chunks per stage", when=w.schedule in ("zero_bubble", "dualpipe"))


def _add_stage_layers(draft: Draft, model: Transformer, w: Workload, virtual: int) -> None:
    """Add the layers of stages: as many for each, fewer for the first and the last, or names of modules."""
    first, last = w.stage_ends
    if odd := [count for count in (first, last) if count is not None and count % virtual]:
        draft.warn(f"TorchTitan's stages have {virtual} chunks, into which {odd[0]} layers do not divide")
        first = last = None
    parts = layers_per_part(model.layers, w.pp, virtual, first, last)
    less_layers = fewer_layers(parts)
    if less_layers is None:
        draft.add("parallelism.module_fqns_per_model_part", stage_modules(parts))
        return
    draft.add("parallelism.pipeline_parallel_layers_per_stage", -(-(model.layers + sum(less_layers)) // len(parts)))
    draft.add("parallelism.pipeline_parallel_first_stage_less_layers", less_layers[0])
    draft.add("parallelism.pipeline_parallel_last_stage_less_layers", less_layers[1])


def fewer_layers(parts: list[int]) -> tuple[int, int] | None:
    """Return by how many layers TorchTitan makes first and last part smaller to have *parts*; None if it cannot.

    It counts these as layers, shares all out evenly, the first parts one more where they do not divide, and leaves
    them out again: at most those of the smallest share. How many parts there are it finds from the largest share.

    >>> fewer_layers([8, 8, 8, 8]), fewer_layers([7, 8, 8, 8]), fewer_layers([8, 8, 8, 6]), fewer_layers([1, 2, 1, 2])
    ((0, 0), (1, 0), (0, 1), None)
    """
    for first, last in product(range(max(parts) + 1), repeat=2):
        total = sum(parts) + first + last
        per_stage, longer_stages = divmod(total, len(parts))
        shared = [per_stage + (part < longer_stages) for part in range(len(parts))]
        counted = -(-total // max(shared)) == len(parts)
        shared[0], shared[-1] = shared[0] - first, shared[-1] - last
        if shared == parts and max(first, last) <= per_stage and counted:
            return first, last
    return None


def stage_modules(parts: list[int]) -> list[list[str]]:
    """Return the modules of each part, given its layers, by TorchTitan's names.

    >>> stage_modules([1, 0])
    [['tok_embeddings', 'layers.0'], ['norm', 'output']]
    """
    starts = [sum(parts[:part]) for part in range(len(parts))]
    modules = [
        [f"layers.{start + layer}" for layer in range(count)] for start, count in zip(starts, parts, strict=True)
    ]
    modules[0] = ["tok_embeddings", *modules[0]]
    modules[-1] = [*modules[-1], "norm", "output"]
    return modules


def _add_recomputation(draft: Draft, w: Workload) -> None:
    mode = {"full": "full", "alternate": "selective"}.get(w.recompute, "none")
    draft.add("activation_checkpoint.mode", mode)
    draft.add("activation_checkpoint.selective_ac_option", "op", when=mode == "selective")


def _add_precision(draft: Draft, w: Workload) -> None:
    draft.add("training.mixed_precision_param", "float32" if w.precision == "fp32" else "bfloat16")
    bf16_gradients = recipe_for(w).gradient == 2
    draft.add("training.mixed_precision_reduce", "bfloat16", when=bf16_gradients and w.precision != "fp32")
    if w.precision == "fp8":
        draft.add("model.converters", ["float8"])
        draft.take("float8.recipe_name")
        draft.add("float8.filter_fqns", ["output"])


# ---- A design from keys

Tree = dict[str, Any]
QWEN = ("0.6B", "1.7B", "4B", "8B", "14B", "32B", "30B-A3B", "235B-A22B")
SCHEDULE = "parallelism.pipeline_parallel_schedule"
SCHEDULES = spellings(Workload, "torchtitan", SCHEDULE)
MODELS = {torchtitan_name: ours for ours, torchtitan_name in FLAVORS.items()} | {
    ("qwen3", size): f"qwen3-{size.lower()}" for size in QWEN
}
"""Models of the catalog by TorchTitan's name and flavor."""
OTHER_NAMES = {"zbvzerobubble": "InterleavedZeroBubble", "loopedbfs": "Interleaved1F1B"}
"""Schedules of TorchTitan that a design has under another of its names."""
WITHOUT_COST = re.compile(
    r"""(job|profiling|metrics|checkpoint|optimizer|lr_scheduler|comm|validation|fault_tolerance|experimental|debug
    |memory_estimation|tokenizer|dataset|ft|training\.(dataset.*|steps|max_norm|seed|deterministic|gc_.*|warmup.*))(\..*)?
    |model\.(hf_assets_path|tokenizer_path|print_after_conversion|norm_type|tokenizer_flavor)
    |float8\.(filter_fqns|emulate|precompute_.*|enable_fsdp_.*|force_.*|moe_fqns.*)
    |quantize\..*|mx\..*|compile\..*|activation_checkpoint\.(per_op_.*|early_stop|preserve_.*|determinism.*|debug)
    |parallelism\.(disable_loss_parallel|pipeline_parallel_split_points)""",
    re.VERBOSE,
)
EFFECTS = {
    "parallelism.enable_compiled_autograd": "the backward pass is compiled with the forward pass",
    "optimizer.early_step_in_backward": "the optimizer steps after the backward pass",
}


def read_torchtitan(request: ImportRequest) -> ImportedLayers:
    """Return the design of a TOML file, or of a script that writes one."""
    text, scale = read_written_file(request, ".toml")
    try:
        tree = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise SpecError(request.where, text[:40], f"is no valid TOML: {error}") from None
    require(bool(tree), request.where, "nothing", "has no key of TorchTitan, such as training.seq_len")
    keys = ConfigEntries(tree, request.where)
    system, npus = request.placed(scale, keys.assumed)
    name = _read_model(request, keys)
    model = check_decoder(request.resolved(name), "--model")
    workload = _read_workload(keys, npus, model)
    keys.finish(WITHOUT_COST, EFFECTS)
    return ImportedLayers.of(name, system, workload, scale, keys)


def _read_model(request: ImportRequest, keys: ConfigEntries) -> str:
    name, flavor = keys.text("model.name"), keys.text("model.flavor")
    if request.model:
        return request.model
    model = MODELS.get((name, flavor))
    if model is None:
        raise SpecError(
            f"{keys.where} model.flavor", flavor or "nothing", "is no model of the catalog: name one by --model"
        )
    return model


def _read_workload(keys: ConfigEntries, npus: int, model: Transformer) -> Tree:
    moe = is_moe(model)
    tree = read_fields(keys, "torchtitan", _read_precision(keys), moe=moe)
    tp, cp, pp = tree["tp"], tree["cp"], tree["pp"]
    dp = count_replicas(keys.where, npus, tp, cp, pp)
    tree["sequence"] = keys.whole("training.seq_len", 2048)
    tree |= _read_batch(keys, dp, pp) | _read_sharding(keys, dp, cp, pp) | _read_pipeline(keys, pp, model.layers)
    tree |= _read_experts(keys, model, tp, npus // pp)
    if tp > 1:
        tree["sequence_parallel"] = True
    compiled = keys.flag("training.compile") or keys.flag("compile.enable")
    tree["execution"] = "compiled" if compiled else "eager"
    if keys.flag("training.enable_cpu_offload"):
        tree["offload"] = ["weights", "optimizer"]
    return tree | _read_recomputation(keys, model.layers, pp)


def _read_batch(keys: ConfigEntries, dp: int, pp: int) -> Tree:
    local = keys.whole("training.local_batch_size") or keys.whole("training.batch_size", 8) or 8
    micro = (keys.whole("parallelism.pipeline_parallel_microbatch_size", 1) or 1) if pp > 1 else local
    keys.asked |= {"parallelism.pipeline_parallel_microbatch_size", "training.batch_size"}
    if local % micro:
        raise keys.error("parallelism.pipeline_parallel_microbatch_size", f"must divide the local batch, {local}")
    batch = keys.whole("training.global_batch_size", -1, least=-1) or -1
    if batch > 0 and batch % (local * dp):
        raise keys.error("training.global_batch_size", f"does not divide by local batch × dp = {local} × {dp}")
    return {"global_batch": local * dp if batch < 0 else batch, "micro_batch": micro}


def _read_sharding(keys: ConfigEntries, dp: int, cp: int, pp: int) -> Tree:
    """Return what FSDP shards: weights too, unless they stay gathered after the forward pass."""
    copies = keys.whole("parallelism.data_parallel_replicate_degree", 1) or 1
    shards = keys.whole("parallelism.data_parallel_shard_degree", -1, least=-1) or -1
    path = "parallelism.fsdp_reshard_after_forward"
    policy = keys.text(path, "default", ("default", "always", "never"))
    if dp % copies:
        raise keys.error("parallelism.data_parallel_replicate_degree", f"must divide dp, {dp}")
    if shards > 0 and shards * copies != dp:
        rule = f"data parallelism is {dp} on these accelerators, not {copies} × {shards}"
        raise keys.error("parallelism.data_parallel_shard_degree", rule)
    shards = dp // copies if shards < 0 else shards
    sharded = shards > 1 or (copies == 1 and (cp > 1 or path in keys))
    if shards > 1 and copies > 1:
        keys.leave_out("parallelism.data_parallel_replicate_degree", "weights are sharded over all replicas")
    if not sharded:
        return {}
    reshards = policy == "always" or (policy == "default" and pp == 1)
    return fields_told(Workload, "torchtitan", path, "always" if reshards else "never")


def _read_pipeline(keys: ConfigEntries, pp: int, layers: int) -> Tree:
    name = keys.text(SCHEDULE, "1F1B")
    layers_per_stage = keys.whole("parallelism.pipeline_parallel_layers_per_stage", 0, least=0) or 0
    less_layers = [
        keys.whole(f"parallelism.pipeline_parallel_{end}_stage_less_layers", 0, least=0) or 0 for end in ENDS
    ]
    named = keys.get("parallelism.module_fqns_per_model_part")
    if pp == 1:
        return {}
    named_schedule = {known.lower(): known for known in SCHEDULES} | OTHER_NAMES
    if name.lower() not in named_schedule:
        raise keys.error(SCHEDULE, f"must be one of {', '.join(SCHEDULES)}")
    pipeline = fields_told(Workload, "torchtitan", SCHEDULE, named_schedule[name.lower()])
    interleaved = named_schedule[name.lower()] == "Interleaved1F1B"
    if name.lower() == "loopedbfs":
        keys.leave_out(SCHEDULE, "the schedule is Interleaved1F1B")
    count = (
        len(named)
        if isinstance(named, list)
        else ceil((layers + sum(less_layers)) / layers_per_stage)
        if layers_per_stage
        else 2 * pp
    )
    virtual = ceil(count / pp) if interleaved else 1
    pipeline |= {"virtual_stages": virtual} if interleaved else {}
    if named is None and not any(less_layers):
        return pipeline
    parts = _stage_parts(named, layers, less_layers, pp * virtual)
    ends = find_stage_ends(parts, pp, virtual) if parts else None
    if ends is None:
        key = "module_fqns_per_model_part" if named else "pipeline_parallel_last_stage_less_layers"
        keys.leave_out(f"parallelism.{key}", "layers lie on stages as evenly as they can")
    return pipeline | (ends or {})


ENDS = ("first", "last")
BACKEND = "parallelism.expert_parallel_comm_backend"
BACKENDS = {"standard": None, "deepep": "deepep", "hybridep": "deepep"}
"""Back ends of the exchange of tokens, and the one that a design has in place of each."""


def _stage_parts(named: Any, layers: int, less_layers: list[int], count: int) -> list[int]:
    """Return the layers of each of *count* parts: those that are named, or an even share with fewer at the ends."""
    if isinstance(named, list):
        parts = [sum("layers." in str(module) for module in part) if isinstance(part, list) else 0 for part in named]
        return parts if len(parts) == count and sum(parts) == layers else []
    share, longer_parts = divmod(layers + sum(less_layers), count)
    parts = [share + (part < longer_parts) for part in range(count)]
    parts[0], parts[-1] = parts[0] - less_layers[0], parts[-1] - less_layers[1]
    return parts


def _read_experts(keys: ConfigEntries, model: Transformer, tp: int, ranks: int) -> Tree:
    ep = keys.whole("parallelism.expert_parallel_degree", 1) or 1
    etp = keys.whole("parallelism.expert_tensor_parallel_degree", tp) or tp
    backend = keys.text(BACKEND, "standard", tuple(BACKENDS))
    if not is_moe(model):
        if ep > 1:
            raise keys.error("parallelism.expert_parallel_degree", "the model has no experts")
        return {}
    if ranks % (ep * etp):
        rule = f"the {ranks:,} accelerators of a pipeline stage do not divide by ep × etp = {ep} × {etp}"
        raise keys.error("parallelism.expert_parallel_degree", rule)
    sent = fields_told(Workload, "torchtitan", BACKEND, BACKENDS[backend]) if ep > 1 else {}
    return {"ep": ep, **sent, **stated_etp(model, tp, ranks, ep, etp)}


def _read_recomputation(keys: ConfigEntries, layers: int, pp: int) -> Tree:
    mode = keys.text("activation_checkpoint.mode", "selective", ("selective", "full", "none", "memory_budget"))
    option = str(keys.get("activation_checkpoint.selective_ac_option", "2"))
    if mode == "memory_budget":
        keys.leave_out("activation_checkpoint.mode", "every other GEMM is recomputed")
    if mode in ("none", "full"):
        return {"recompute": mode}
    if mode == "memory_budget" or option == "op":
        return {"recompute": "alternate"}
    if re.fullmatch(r"[1-9]\d{0,3}", option) is None:
        raise keys.error("activation_checkpoint.selective_ac_option", "must be op, or a number of layers")
    recomputed_layers = -(-layers // (pp * int(option)))
    if option != "1":
        keys.assume(f"the first {recomputed_layers} layers of each stage recompute, instead of every {option}th")
    return {"recompute": "full"} if option == "1" else {"recompute": "full", "recompute_num_layers": recomputed_layers}


def _read_precision(keys: ConfigEntries) -> Tree:
    weights = keys.text("training.mixed_precision_param", "bfloat16", ("bfloat16", "float32"))
    reduced = keys.text("training.mixed_precision_reduce", "float32", ("bfloat16", "float32"))
    dtype = keys.text("training.dtype", "float32", ("bfloat16", "float32"))
    converters = keys.get("model.converters", [])
    if not isinstance(converters, (list, str)):
        raise keys.error("model.converters", "must be a list of names")
    quantized = (
        any("float8" in str(converter) or "mx" in str(converter) for converter in converters) if converters else False
    )
    precision = "fp8" if quantized else "fp32" if weights == "float32" else "bf16"
    if dtype == "bfloat16" and precision == "bf16":
        return {"precision": "bf16_pure"}
    recipe = keys.text("float8.recipe_name", "tensorwise", ("tensorwise", "rowwise", "rowwise_with_gw_hp"))
    tree: Tree = {"precision": precision}
    if precision == "fp8":
        blocks = any("mx" in str(converter) for converter in converters)
        fp8_recipe = "mxfp8" if blocks else "tensorwise" if recipe == "tensorwise" else "rowwise"
        tree |= {} if fp8_recipe == "tensorwise" else {"fp8_recipe": fp8_recipe}
    return tree | stated_gradients(precision, reduced == "float32")
