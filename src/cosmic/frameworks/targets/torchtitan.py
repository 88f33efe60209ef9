"""TorchTitan: its TOML configuration.

Keys are those of torchtitan/config/job_config.py at the commit below, of the releases that read TOML; later ones take
the same names on the command line or in Python. Model sizes are no keys: a flavor has a name.
"""

from __future__ import annotations

from itertools import product

from cosmic.design import catalog_entries
from cosmic.design.design_batch import batch_of
from cosmic.design.design_point import DesignPoint
from cosmic.design.model_layer import Transformer, is_moe
from cosmic.design.workload_layer import Workload
from cosmic.frameworks.launch import (
    Draft,
    Launch,
    common_warnings,
    describe_launch,
    outer_device,
    places_otherwise,
    targets,
    torchrun_command,
    trained_decoder,
)
from cosmic.frameworks.launch_quoting import dump_toml
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
SCHEDULES = {
    "gpipe": "GPipe",
    "1f1b": "1F1B",
    "interleaved": "Interleaved1F1B",
    "zero_bubble": "InterleavedZeroBubble",
    "dualpipe": "DualPipeV",
}
"""Names of torch.distributed.pipelining."""
ORDER = ("tp", "cp", "dp", "pp")


@targets.register("torchtitan")
def launch_torchtitan(point: DesignPoint) -> Launch:
    """Return how TorchTitan trains *point*."""
    point = state_end_layers(point)
    model = trained_decoder(point, "torchtitan")
    draft = Draft()
    _model(draft, model)
    _training(draft, point)
    _data_parallelism(draft, point.workload)
    _parallelism(draft, point)
    _pipeline(draft, model, point.workload)
    _recomputation(draft, point.workload)
    _precision(draft, point.workload)
    _unsupported(draft, point.workload)
    return Launch(
        about=describe_launch(point, f"TorchTitan's configuration, as of commit {COMMIT}"),
        command=(torchrun_command(point), f"-m torchtitan.train --job.config_file {CONFIG}"),
        arguments=draft.arguments,
        files={CONFIG: dump_toml(draft.arguments)},
        warnings=(*draft.warnings, *common_warnings(point)),
    )


def _model(draft: Draft, model: Transformer) -> None:
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


def _training(draft: Draft, point: DesignPoint) -> None:
    w = point.workload
    count = int(microbatches(batch_of(point)))
    piped = w.pp > 1
    draft.add("training.seq_len", w.sequence)
    draft.add("training.local_batch_size", w.micro_batch * (count if piped else 1))
    draft.add("training.global_batch_size", w.global_batch)
    draft.add("training.steps", 50)
    draft.add("training.compile", w.execution != "eager")
    draft.warn("TorchTitan fuses only what torch.compile fuses", when=w.execution == "fused")
    samples_per_pass = w.micro_batch * w.dp
    draft.warn(
        f"TorchTitan needs a global batch that divides by {samples_per_pass}",
        when=w.global_batch % samples_per_pass != 0,
    )
    states = any(outer_device(point, samples_per_pass) != "none" for samples_per_pass in ("weights", "optimizer"))
    draft.add("training.enable_cpu_offload", when=states)
    draft.warn("TorchTitan offloads weights and optimizer states together", when=states)
    draft.warn("TorchTitan does not offload activations", when=outer_device(point, "activations") != "none")


def _data_parallelism(draft: Draft, w: Workload) -> None:
    sharded = w.weight_sharding != "none"
    draft.add("parallelism.data_parallel_replicate_degree", 1 if sharded else w.dp)
    draft.add("parallelism.data_parallel_shard_degree", w.dp if sharded else 1)
    reshard = "always" if w.weight_sharding == "zero3" else "never"
    draft.add("parallelism.fsdp_reshard_after_forward", reshard, when=sharded)
    draft.warn(
        f"TorchTitan shards weights too: {w.weight_sharding} becomes FSDP without resharding after the forward pass",
        when=w.weight_sharding in ("zero1", "zero2"),
    )
    draft.warn(
        "TorchTitan supports DDP only without other parallelism: choose a weight_sharding",
        when=not sharded and w.dp > 1 and w.tp * w.cp * w.pp > 1,
    )
    draft.warn("TorchTitan shards weights over context-parallel ranks", when=not sharded and w.dp == 1 and w.cp > 1)
    draft.warn("TorchTitan always overlaps FSDP's communication", when=not w.dp_overlap and w.dp > 1)


def _parallelism(draft: Draft, point: DesignPoint) -> None:
    w = point.workload
    draft.add("parallelism.tensor_parallel_degree", w.tp)
    draft.add("parallelism.enable_async_tensor_parallel", when=w.tp_overlap and w.tp > 1)
    draft.add("parallelism.context_parallel_degree", w.cp)
    rotate = "allgather" if w.cp_comm_type == "all_gather" else "alltoall"
    draft.add("parallelism.context_parallel_rotate_method", rotate, when=w.cp > 1)
    draft.add("parallelism.expert_parallel_degree", w.ep, when=w.ep > 1)
    once = w.ep > 1 and w.moe_token_dispatcher_type == "flex"
    draft.add("parallelism.expert_parallel_comm_backend", "deepep", when=once)
    if is_moe(point.model):
        draft.warn("TorchTitan spreads experts over dp and cp only", when=(w.dp * w.cp) % w.ep != 0)
        draft.warn("TorchTitan splits each expert over all of tp", when=w.expert_tensor != w.tp)
    draft.warn(
        "TorchTitan always uses sequence_parallel with tensor parallelism", when=w.tp > 1 and not w.sequence_parallel
    )
    draft.warn(
        "TorchTitan exchanges keys and values in a ring, not heads (Ulysses)",
        when=w.cp > 1 and w.cp_comm_type == "ulysses",
    )
    draft.warn(
        "TorchTitan gives each context-parallel rank two chunks of the sequence", when=w.cp > 1 and not w.cp_balanced
    )
    draft.warn("TorchTitan does not overlap expert-parallel communication", when=w.ep_overlap and w.ep > 1)
    draft.warn("TorchTitan needs ep to be at least cp", when=1 < w.ep < w.cp)
    if places_otherwise(point, [ORDER]):
        draft.warn(f"TorchTitan numbers ranks in the order {', '.join(ORDER)}, not {', '.join(w.placement)}")


def _pipeline(draft: Draft, model: Transformer, w: Workload) -> None:
    draft.add("parallelism.pipeline_parallel_degree", w.pp)
    if w.pp == 1:
        return
    virtual = {"interleaved": w.virtual_stages, "zero_bubble": 2, "dualpipe": 2}.get(w.schedule, 1)
    name = SCHEDULES.get(w.schedule, SCHEDULES["1f1b"])
    draft.warn(f"TorchTitan has no schedule like {w.schedule}: it runs {name}", when=w.schedule not in SCHEDULES)
    draft.add("parallelism.pipeline_parallel_schedule", name)
    draft.add("parallelism.pipeline_parallel_microbatch_size", w.micro_batch)
    _stage_layers(draft, model, w, virtual)
    draft.warn(f"{name} has two chunks per stage", when=w.schedule in ("zero_bubble", "dualpipe"))


def _stage_layers(draft: Draft, model: Transformer, w: Workload, virtual: int) -> None:
    """Add the layers of stages: as many for each, fewer for the first and the last, or names of modules."""
    first, last = w.first_stage_layers, w.last_stage_layers
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


def _recomputation(draft: Draft, w: Workload) -> None:
    mode = {"full": "full", "alternate": "selective"}.get(w.recompute, "none")
    draft.add("activation_checkpoint.mode", mode)
    draft.add("activation_checkpoint.selective_ac_option", "op", when=mode == "selective")
    draft.warn("TorchTitan does not recompute modules", when=w.recompute == "selective")
    draft.warn("TorchTitan recomputes all layers", when=mode != "none" and w.recompute_num_layers is not None)
    draft.warn("TorchTitan stops recomputation early", when=mode != "none" and w.recompute_to_end)


def _precision(draft: Draft, w: Workload) -> None:
    draft.add("training.mixed_precision_param", "float32" if w.precision == "fp32" else "bfloat16")
    bf16_gradients = recipe_for(w).gradient == 2
    draft.add("training.mixed_precision_reduce", "bfloat16", when=bf16_gradients and w.precision != "fp32")
    if w.precision == "fp8":
        draft.add("model.converters", ["float8"])
        draft.add("float8.recipe_name", "rowwise" if w.fp8_recipe == "rowwise" else "tensorwise")
        known_recipe = w.fp8_recipe in ("auto", "tensorwise", "rowwise")
        draft.warn(f"torchao's float8 is not {w.fp8_recipe}: this is tensorwise", when=not known_recipe)
        draft.add("float8.filter_fqns", ["output"])
    odd = w.precision in ("fp16", "fp4", "int4")
    draft.warn(f"TorchTitan does not train in {w.precision}: this is bf16", when=odd)
    draft.warn("TorchTitan keeps fp32 weights beside bf16", when=w.precision == "bf16_pure")


def _unsupported(draft: Draft, w: Workload) -> None:
    draft.warn("TorchTitan's models have no dropout", when=w.dropout)
    draft.warn("TorchTitan's attention is fused", when=w.attention.startswith("unfused"))
    draft.warn("TorchTitan computes the loss of all tokens at once", when=w.loss == "chunked")
