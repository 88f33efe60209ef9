"""What the performance recipes of Megatron-Bridge set beside the columns of its published tables.

The tables give a run's mapping and batch and refer to its recipe for the rest. All recipes reduce gradients in bf16
(``grad_reduce_in_fp32 = False`` in every ``set_*_common_configs``) and compute the loss with Transformer Engine
(``cross_entropy_fusion_impl = "te"``); those of DeepSeek-V3 and Kimi-K2 keep Adam's moments in bf16
(``use_precision_aware_optimizer``). What else a recipe sets depends on model, accelerator and number format:
``scripts/performance/configs/*/*_workload_base_configs.py`` of github.com/NVIDIA-NeMo/Megatron-Bridge.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

COMMON: dict[str, Any] = {"grad_reduce_in_fp32": False, "loss": "fused"}
NARROW_MOMENTS = ("deepseekv3", "kimi_k2")


@dataclass(frozen=True, slots=True)
class Setting:
    """What recipes of some runs set."""

    model: str
    """How the model's name begins."""
    accelerators: tuple[str, ...]
    formats: tuple[str, ...]
    """How the number format's name may begin."""
    modules: tuple[str, ...] = ()
    """Modules that are recomputed."""
    offloaded_layers: int | None = None
    """Layers whose activations are offloaded."""
    mbs: int | None = None
    """Microbatch of the runs, where recipes of one format differ."""


ANY = ("",)
SETTINGS = (
    Setting("deepseekv3", ("GB300",), ("MXFP8", "FP8-MX"), ("mla_up_proj",), mbs=2),
    Setting("deepseekv3", ("GB300",), ("BF16",), ("moe_act",)),
    Setting("deepseekv3", ("GB200", "B200", "B300"), ANY, ("mla_up_proj",)),
    Setting("deepseekv3", ("H100",), ANY, ("mla_up_proj", "mlp")),
    Setting("kimi_k2", ("GB300",), ANY, ("mla_up_proj",), mbs=2),
    Setting("gpt oss", ("GB200", "B200", "H100"), ("BF16",), ("layernorm", "moe_act")),
    Setting("llama3_70b", ("GB200",), ("FP8-CS",), offloaded_layers=40),
    Setting("llama3.1_405b", ("GB200",), ("FP8-CS",), offloaded_layers=92),
)


def megatron_bridge(model: str, accelerator: str, precision: str, micro_batch: str, stages: int) -> dict[str, Any]:
    """Return the workload keys that the recipe of a published run sets.

    >>> megatron_bridge("Kimi_K2", "GB300", "MXFP8", "2", 4)["recompute_modules"]
    ('mla_up_proj',)
    """
    found = dict(COMMON)
    if model.lower().startswith(NARROW_MOMENTS):
        found["moments"] = "bf16"
    for each in SETTINGS:
        alike = model.lower().startswith(each.model) and precision.upper().startswith(each.formats)
        if not alike or not accelerator.startswith(each.accelerators) or micro_batch != str(each.mbs or micro_batch):
            continue
        if each.modules:
            found |= {"recompute": "selective", "recompute_modules": each.modules}
        if each.offloaded_layers and stages == 1:
            found |= {"offload": ("activations",), "offload_num_layers": each.offloaded_layers}
        break
    return found
