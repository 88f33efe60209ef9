"""Precision recipes: bytes per weight, gradient, optimizer state and activation, in training and in serving.

In training, a precision is the format in which GEMMs multiply: weights stay in 16 bits, beside a master copy, and GEMMs
keep their inputs for the backward pass in the format itself. In serving, weights are stored in the format, and the KV
cache in a format of its own.

    format   weight          why
    fp8      1               one scale for a tensor, a row or a block of 128 × 128: too few to count
    fp4      0.5 + 1/16      NVFP4: a scale in 8 bits for each 16 numbers
    int4     0.5 + 2/32      weights alone: a scale in 16 bits for each 32 numbers; products are in bf16
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from cosmic.design.workload_layer import Workload


@dataclass(frozen=True, slots=True)
class Recipe:
    """Bytes per parameter and per activation."""

    weight: float
    """The copy that GEMMs read."""
    gradient: float
    """As accumulated over microbatches and reduced over replicas."""
    master: float
    """The copy that the optimizer updates, where it is not the weight itself."""
    moments: float
    """Adam's two running means."""
    activation: float
    cache: float = 2.0
    """KV cache."""
    wide: float = 2.0
    """Weights that a format leaves in 16 bits: embeddings, head, norms and, in some formats, attention's."""
    saved: float | None = None
    """Of an activation that only GEMMs of the format read backward; None where they read what others do.

    Transformer Engine keeps the copy that the weight gradient reads, which runs along columns, with its scales: of 8
    bits for each 32 numbers in MXFP8, of 32 bits for each 128 in blocks, of 8 bits for each 16 in NVFP4.
    """

    @property
    def optimizer(self) -> float:
        """State that only the optimizer reads."""
        return self.master + self.moments


MIXED = Recipe(weight=2, gradient=4, master=4, moments=8, activation=2)
"""Micikevicius et al., arXiv 1710.03740, as Megatron-LM does it: gradients accumulate in fp32."""
HALF = replace(MIXED, gradient=2)
"""The same with gradients that accumulate in 16 bits, as Megatron-LM has them in fp16, and recipes of fp8 and fp4."""
NARROW = ("fp8", "fp4")
"""Precisions whose GEMMs read a byte or less per element."""
PER_TENSOR = ("delayed", "tensorwise")
"""Recipes with one scale for a tensor."""
RECIPES = {
    "fp32": Recipe(weight=4, gradient=4, master=0, moments=8, activation=4, cache=4, wide=4),
    "fp16": HALF,
    "bf16": MIXED,
    "fp8": replace(HALF, saved=1 + 1 / 32),
    "fp4": replace(HALF, saved=0.5 + 1 / 16),
    "int4": MIXED,
    "bf16_pure": Recipe(weight=2, gradient=2, master=0, moments=4, activation=2),
}
"""Of training."""


def _serving_recipe(weight: float, cache: float) -> Recipe:
    return Recipe(weight=weight, gradient=0, master=0, moments=0, activation=2, cache=cache)


SERVING = {
    "fp32": Recipe(weight=4, gradient=0, master=0, moments=0, activation=4, cache=4, wide=4),
    "fp16": _serving_recipe(2, 2),
    "bf16": _serving_recipe(2, 2),
    "bf16_pure": _serving_recipe(2, 2),
    "fp8": _serving_recipe(1, 1),
    "fp4": _serving_recipe(0.5 + 1 / 16, 1),
    "int4": _serving_recipe(0.5 + 2 / 32, 2),
}
"""Of prefill and decode."""


def recipe_of(precision: str, task: str) -> Recipe:
    """Return the recipe of a precision with the defaults of frameworks.

    >>> recipe_of("fp8", "training").weight, recipe_of("fp8", "decode").weight
    (2, 1)
    """
    return (RECIPES if task == "training" else SERVING)[precision]


def operand_scaling(workload: Workload) -> str:
    """Return how the operands of narrow GEMMs are scaled: `Workload.fp8_recipe`, and nvfp4 for fp4.

    If not given, PyTorch takes tensorwise, torchao's first recipe. Transformer Engine chooses by the accelerator, which
    is left open here (auto): mxfp8 where it is in hardware, delayed scaling before.

    >>> [operand_scaling(Workload(sequence=1, global_batch=1, precision="fp8", execution=each)) for each in ("eager", "fused")]
    ['tensorwise', 'auto']
    """
    if workload.precision == "fp4":
        return "nvfp4"
    if workload.fp8_recipe == "auto" and workload.execution != "fused":
        return "tensorwise"
    return workload.fp8_recipe


def gathers_narrow(workload: Workload) -> bool:
    """Return whether tensor-parallel ranks cast activations before they gather them.

    A row's scale is known only where the row is whole, and then torchao's rowwise recipe gathers 16 bits; eager
    frameworks leave the gather as it was.
    """
    return workload.precision in NARROW and workload.execution != "eager" and operand_scaling(workload) != "rowwise"


def shards_narrow(workload: Workload) -> bool:
    """Return whether ranks cast their shards of weights before they are gathered, so that a byte travels.

    With one scale for a tensor: torchao's ``enable_fsdp_float8_all_gather``, Megatron-LM's --fp8-param-gather.
    """
    return workload.precision == "fp8" and operand_scaling(workload) == "tensorwise"


def keeps_narrow_weights_alone(workload: Workload) -> bool:
    """Return whether weights of GEMMs exist in 8 bits, without a copy in 16: Transformer Engine's --fp8-param-gather."""
    gathers = workload.fp8_param_gather and workload.shards_states
    return workload.precision == "fp8" and workload.execution == "fused" and gathers


SAVED = {"delayed": 1.0, "tensorwise": 1.0, "rowwise": 1.0, "blockwise": 1 + 4 / 128}
"""Bytes of an activation that is kept for the backward pass, with its scales, by recipe; others as in `RECIPES`."""


CACHED = {"bf16": 2.0, "fp8": 1.0}
"""Bytes of a number of the KV cache, by its format."""


def recipe_for(workload: Workload) -> Recipe:
    """Return the recipe of a workload: that of its precision, with the formats that it asks for.

    Only recipes with a master copy have a choice: there, gradients and moments may have 16 or 32 bits. Serving, the KV
    cache has one.

    >>> recipe_for(Workload(sequence=1, global_batch=1, grad_reduce_in_fp32=False, moments="bf16")).moments
    4
    """
    recipe = recipe_of(workload.precision, workload.task)
    if workload.precision == "fp8" and workload.task == "training":
        recipe = replace(recipe, saved=SAVED.get(workload.fp8_recipe, recipe.saved))
    if workload.task != "training" and workload.cache_dtype != "auto":
        return replace(recipe, cache=CACHED[workload.cache_dtype])
    if workload.task != "training" or not recipe.master:
        return recipe
    if workload.grad_reduce_in_fp32 is not None:
        recipe = replace(recipe, gradient=4 if workload.grad_reduce_in_fp32 else 2)
    return replace(recipe, moments=4) if workload.moments == "bf16" else recipe


WIDE_WEIGHTS = ("w_embedding", "w_vocabulary", "w_head", "w_positions", "w_segments", "w_distances", "w_class")
"""Tables, the head, and what is added to the embedding."""


def is_wide(name: str) -> bool:
    """Return whether a weight keeps its 16 bits in every format: embeddings, head, routers, gates, norms and offsets.

    >>> [is_wide(name) for name in ("w_ffn_norm", "b_ffn_up", "w_router", "w_k_position", "w_ffn_gate")]
    [True, True, True, False, False]
    """
    alone = (*WIDE_WEIGHTS, "w_router", "w_shared_gate", "w_sinks", "w_conv", "w_decay", "w_skip")
    return name in alone or name.startswith("b_") or "norm" in name


ADAPTERS = ("_lora_a", "_lora_b")
"""How the names of adapters' weights end."""


def is_adapter(name: str) -> bool:
    """Return whether a weight, or the GEMM with it, belongs to an adapter of LoRA.

    >>> is_adapter("w_q_lora_a"), is_adapter("q_lora_b"), is_adapter("w_q")
    (True, True, False)
    """
    return name.endswith(ADAPTERS)


def weight_bytes(recipe: Recipe, name: str, *, moe: bool) -> float:
    """Return the bytes per element of the weight called *name*.

    Embeddings, head, routers, norms, offsets and adapters keep their 16 bits in every format. Formats of less than 8
    bits cover only the feed-forward networks of an MoE model (*moe*): so do the checkpoints of DeepSeek-R1-FP4,
    gpt-oss and Kimi-K2.

    >>> [weight_bytes(SERVING["fp4"], name, moe=True) for name in ("w_expert_ffn_up", "w_q", "w_head")]
    [0.5625, 2.0, 2.0]
    >>> weight_bytes(SERVING["fp4"], "w_q", moe=False)
    0.5625
    """
    if is_wide(name) or is_adapter(name):
        return recipe.wide
    if recipe.weight < 1 and moe and not ("ffn" in name or "expert" in name):
        return recipe.wide
    return recipe.weight
