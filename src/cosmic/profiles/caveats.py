"""What a projection onto another accelerator assumes: number formats that it lacks, and kernels of another vendor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cosmic import catalog
from cosmic.design.compute import Compute
from cosmic.traces.kernels import KernelWork

PRODUCTS = ("gemm", "grouped_gemm", "convolution", "attention", "attention_backward")
"""Kinds of kernels that run on matrix units."""
WITHOUT_BF16 = ("v100-sxm2-32gb",)
"""Accelerators whose matrix units know fp16, but not bf16 (catalog: "no bf16")."""


def caveats(works: Iterable[KernelWork | None], compute: Compute, recorded: str) -> Iterator[str]:
    """Yield what is assumed of kernels recorded on the accelerator *recorded* (of the catalog; may be empty)."""
    name = compute.accelerator
    formats = {work.dtype for work in works if work is not None and work.kind in PRODUCTS}
    if "bf16" in formats and name in WITHOUT_BF16:
        yield f"{name} has no bf16: products in bf16 take its rate in fp16, as if the model ran in that"
    rates = {"fp8": compute.fp8_flop_per_s, "fp4": compute.fp4_flop_per_s, "int8": compute.int8_flop_per_s}
    for narrow, rate in rates.items():
        if narrow in formats and rate is None:
            yield f"{name} has no {narrow} in the catalog: products in {narrow} take the rate of the next wider format"
    made, asked = _vendor(recorded), _vendor(name)
    if made and asked and made != asked:
        rule = "the same operators take what equal work takes there, as its own kernels and compiler are not known"
        yield f"kernels of {made} do not run on {name} of {asked}: {rule}"


def _vendor(accelerator: str) -> str:
    """Return who makes an accelerator of the catalog; empty if that is not known.

    >>> _vendor("tpu-v5e"), _vendor("no such")
    ('Google', '')
    """
    if accelerator not in catalog.names("accelerators"):
        return ""
    return str(catalog.entry("accelerators", accelerator).get("vendor", ""))
