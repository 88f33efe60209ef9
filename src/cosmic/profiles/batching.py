"""Works of kernels with more or fewer tokens in a step.

Weights stay, activations scale. A GEMM's dimension that counts tokens is found by how much work has it: every layer
multiplies as many rows as there are tokens (forward and to the input's gradient, as m; to the weight's gradient, as k).
Attention scales with its batch; kernels that stream with the bytes they move, unless they are an optimizer's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from cosmic.traces.kernels import SIZES, KernelWork

PRODUCTS = ("gemm", "grouped_gemm", "convolution")


def tokens_of(works: Sequence[KernelWork | None]) -> int:
    """Return how many tokens a step has: the size that most of the products' work has as m or k; 0 if none has."""
    votes: Counter[int] = Counter()
    for work in works:
        if work is not None and work.kind in PRODUCTS:
            for size in {work["m"], work["k"]}:
                votes[size] += int(work.flop)
    return votes.most_common(1)[0][0] if votes else 0


def scaled_works(works: Sequence[KernelWork | None], factor: float) -> list[KernelWork | None]:
    """Return the works of a step with *factor* times as many tokens.

    >>> from cosmic.traces.kernels import parse_work
    >>> forward, weight = parse_work("gemm bf16 1 4096 3072 1024"), parse_work("gemm bf16 1 3072 1024 4096")
    >>> [work.text for work in scaled_works([forward, weight], 2)]
    ['gemm bf16 1 8192 3072 1024', 'gemm bf16 1 3072 1024 8192']
    """
    tokens = tokens_of(works)
    known: dict[KernelWork, KernelWork] = {}
    found: list[KernelWork | None] = []
    for work in works:
        if work is None:
            found.append(None)
            continue
        if work not in known:
            known[work] = _scaled(work, factor, tokens)
        found.append(known[work])
    return found


def _scaled(work: KernelWork, factor: float, tokens: int) -> KernelWork:
    names = SIZES[work.kind]
    sizes = dict(zip(names, work.sizes, strict=True))
    if work.kind in PRODUCTS:
        which = "m" if sizes["m"] == tokens or sizes["k"] != tokens else "k"
        scaled = (which, *(("moved",) if "moved" in sizes else ()))
    elif work.kind.startswith("attention"):
        scaled = ("batch",)
    elif work.kind == "stream" and work.walk != "optimizer":
        scaled = ("read", "written", "flop", "elements", "blocks")
    else:
        scaled = ()
    for name in scaled:
        sizes[name] = max(1, round(sizes[name] * factor)) if sizes[name] else 0
    return replace(work, sizes=tuple(sizes[name] for name in names))
