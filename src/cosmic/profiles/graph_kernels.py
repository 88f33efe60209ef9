"""What kernels compute that a CUDA graph replays: as kernels of the same name and launch whose operators are known.

A graph is one launch. A profile names its kernels, but no operators; a recording of the same model without graphs has
both. cuBLAS gives GEMMs of different sizes one name and one grid, of as many blocks as there are SMs: of these, the
order decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from cosmic.profiles.operators import Launch, copied, kernel_of
from cosmic.traces.kernels import KernelWork

GROWING = ("elementwise", "strided", "fused")
"""Kernels whose work is as many times larger as they have blocks."""
Key = tuple[str, tuple[int, ...], tuple[int, ...]]


def works_by_kernel(
    kernels: Sequence[tuple[str, Launch]], known: Sequence[tuple[str, Launch, KernelWork | None]]
) -> list[KernelWork | None]:
    """Return the work of each kernel of a graph: that of a *known* one of the same name, grid and block, or None.

    Both are in the order in which they ran. Where as many are known, or a divisor of as many, the n-th takes the n-th
    work; otherwise that at the same part of the way. An elementwise kernel of which only other grids are known takes a
    work in proportion to its blocks.

    >>> add = KernelWork("stream", "bf16", (400, 200, 100, 100, 1, 128), "elementwise")
    >>> once, twice, other = Launch((1,), (128,)), Launch((2,), (128,)), Launch((2,), (64,))
    >>> kernels = [("add", once), ("add", twice), ("add", other)]
    >>> [each and each.text for each in works_by_kernel(kernels, [("add", once, add)])]
    ['stream bf16 elementwise 400 200 100 100 1 128', 'stream bf16 elementwise 800 400 200 200 2 128', None]
    """
    works: dict[Key, list[KernelWork]] = {}
    grown: dict[tuple[str, tuple[int, ...]], KernelWork] = {}
    for name, launch, work in known:
        if work is not None:
            works.setdefault((name, launch.grid, launch.block), []).append(work)
            if work.walk in GROWING and work["blocks"]:
                grown.setdefault((name, launch.block), work)
    keys = [(name, launch.grid, launch.block) for name, launch in kernels]
    counts, seen = Counter(keys), Counter[Key]()
    found: list[KernelWork | None] = []
    for key, (name, launch) in zip(keys, kernels, strict=True):
        own = works.get(key)
        if own:
            found.append(_in_order(own, seen[key], counts[key]))
        else:
            found.append(_scaled(grown.get((name, launch.block)), name, launch))
        seen[key] += 1
    return found


def _in_order(works: Sequence[KernelWork], place: int, count: int) -> KernelWork:
    """Return the work of the kernel at *place* of *count* of one name and launch."""
    return works[place % len(works)] if count % len(works) == 0 else works[place * len(works) // count]


def _scaled(work: KernelWork | None, name: str, launch: Launch) -> KernelWork | None:
    """Return a work in proportion to the blocks of a launch, or that of a copy."""
    kernel = kernel_of(name, launch)
    if work is None or not kernel.blocks:
        return copied(kernel, None)
    sizes = [round(size * kernel.blocks / work["blocks"]) for size in work.sizes[:4]]
    return replace(work, sizes=(*sizes, kernel.blocks, kernel.threads))
