"""Checks of the numbers for LLaMA-3 70B: the event engine, and published runs."""

from __future__ import annotations

from common import percent
from llama3_70b_mappings import CAPACITY_BYTES, NPUS, NVIDIA, Story, candidate, design

import cosmic
from cosmic.design import Infeasible
from cosmic.pages import Axis, Bar, BarGroup, Figure, Heading, Part, Table, Text, bars

PUBLISHED = (1664.0, 1633.0, 1639.0, 1621.0)
"""Tokens/s/GPU of LLAMA3_70B in FP8 on 64 H100: Megatron-Bridge, docs/performance-summary-archive.md."""
TITAN = (597.3, 652.4)
"""The same of TorchTitan in bf16: pytorch/torchtitan, benchmarks/asyncTP_llama3_h100_2025-06_torchtitan.md."""
FSDP = {"tp": 8, "pp": 1, "cp": 1, "weight_sharding": "zero3", "recompute": "full", "micro_batch": 16}
"""The mapping of TorchTitan's runs."""


def trust(story: Story) -> list[Part]:
    """Return both comparisons."""
    return [Heading("How far to trust it"), *engines(story), *published()]


def engines(story: Story) -> list[Part]:
    """Return the comparison with the event engine."""
    by_form = sorted(story.simulated, key=lambda each: each.step_s)
    by_simulation = sorted(by_form, key=lambda each: story.simulated_s[each.name])
    ranks = ", ".join(each.name for each in by_simulation)
    verdict = "keep their order" if by_form == by_simulation else f"change their order (now {ranks})"
    off = {each.name: story.simulated_s[each.name] / each.step_s - 1 for each in by_form}
    return [
        Text(
            f"""Simulated node by node (`--engine event`), where collectives contend for links and overlap is not an
            assumption, {len(by_form)} of the mappings {verdict}; the two engines differ by at most
            {percent(max(map(abs, off.values())))}. Mappings with many virtual stages lose most: each virtual stage
            sends its activations to the next, which the closed form counts once for an empty pipeline and the event
            engine every time that a stage waits for them."""
        ),
        Table(
            ["mapping", "closed form", "simulated", "difference"],
            [
                [each.name, each.step, f"{story.simulated_s[each.name]:.2f} s", percent(off[each.name])]
                for each in by_form
            ],
            "The same steps by both engines.",
        ),
        Figure(
            bars(
                [
                    BarGroup(
                        each.name, [Bar("closed form", each.step_s), Bar("simulated", story.simulated_s[each.name])]
                    )
                    for each in by_form
                ],
                x=Axis("step", "s", better="lower"),
                title="A step in closed form and simulated",
            ),
            "engines",
            "Part of the communication that the closed form overlaps is exposed in the simulation.",
        ),
    ]


def published() -> list[Part]:
    """Return the comparison with what others measured."""
    run = {"precision": "fp8", "global_batch": 256}
    fits = cosmic.evaluate(design(NVIDIA, 64, **run))
    note = fits.reasons[0] if isinstance(fits, Infeasible) else "fits"
    roomy = candidate("published run", design(NVIDIA, 64, **run, **{"memory.capacity": "120 GiB"}))
    titan = candidate("TorchTitan", design(FSDP, 256, global_batch=512))
    ours, low, high = roomy.tokens_per_s, min(PUBLISHED), max(PUBLISHED)
    return [
        Text(
            f"""NVIDIA's summary (NVIDIA-NeMo/Megatron-Bridge, `docs/performance-summary-archive.md`) has this mapping
            for LLAMA3_70B on 64 H100 with a global batch of 256, in FP8 only: {low:,.0f} to {high:,.0f} tokens/s/GPU
            over four releases. For that run, this model gives {ours:,.0f} tokens/s/GPU, off by
            {percent(ours / high - 1)} to {percent(ours / low - 1)}.

            In bf16 there are TorchTitan's runs (pytorch/torchtitan, `benchmarks`, asynchronous tensor parallelism) on
            256 H100 of another variant, with 96 GB of slower memory and 500 W: FSDP with tp 8, microbatches of 16 and
            full recomputation, {TITAN[0]:,.0f} tokens/s/GPU, and {TITAN[1]:,.0f} with tensor-parallel collectives
            overlapped. This model, with the H100 of 700 W, gives {titan.tokens_per_s:,.0f}:
            {percent(titan.tokens_per_s / TITAN[1] - 1, 0)} to {percent(titan.tokens_per_s / TITAN[0] - 1, 0)} more.
            Some of that is the hardware; how much is not known.

            There is a caveat: with two replicas the model says of that run, "{note}". It did run, so the memory of this
            mapping is overestimated here, by at least {percent(roomy.metrics.memory_bytes / CAPACITY_BYTES - 1, 0)}.
            The model assumes fp32 gradients, and bf16 activations also where GEMMs run in fp8; the summary says
            neither. On {NPUS} GPUs the optimizer states are sharded further, and the mapping fits."""
        ),
    ]
