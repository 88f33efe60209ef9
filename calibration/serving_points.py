"""What `measure_serving.py` measures: models, single steps, and loads of clients."""

from __future__ import annotations

from dataclasses import dataclass

from serving_engine import Sizes

SIZES = {
    "llama3-8b": Sizes("llama3-8b", 32, 4096, 32, 8, 128, 14336, 128256),
    "llama3.2-3b": Sizes("llama3.2-3b", 28, 3072, 24, 8, 128, 8192, 128256),
    "qwen3-30b-a3b": Sizes("qwen3-30b-a3b", 48, 2048, 32, 4, 128, 768, 151936, 128, 8),
    "tiny": Sizes("tiny", 2, 64, 4, 2, 16, 96, 100),
    "tiny-moe": Sizes("tiny-moe", 2, 64, 4, 2, 16, 32, 100, 8, 2),
}
LONGEST = 16640
SEQUENCES = 256
BATCHES = [1, 2, 4, *range(8, 65, 8), *range(80, 257, 16)]
"""Batches whose decode step is recorded; others are padded to the next."""


@dataclass(frozen=True)
class Load:
    """What clients ask of an engine."""

    model: str
    scheduler: str
    step_tokens: int
    """Tokens of a step at most (vLLM's max_num_batched_tokens)."""
    isl: int
    osl: int
    spread: float
    """Lengths are drawn from so much below to so much above these, as shares."""
    concurrency: int
    """Clients of a closed loop; 0 for an open one."""
    rate: float
    """Requests a second of an open loop."""
    requests: int
    sequences: int = SEQUENCES
    """Sequences of a step at most (vLLM's max_num_seqs)."""


def closed(model: str, scheduler: str, tokens: int, isl: int, osl: int, clients: int, rounds: int, spread=0.0) -> Load:
    return Load(model, scheduler, tokens, isl, osl, spread, clients, 0.0, clients * rounds)


def poisson(model: str, scheduler: str, tokens: int, isl: int, osl: int, rate: float, count: int) -> Load:
    return Load(model, scheduler, tokens, isl, osl, 0.0, 0, rate, count)


L8, L3, MOE = "llama3-8b", "llama3.2-3b", "qwen3-30b-a3b"
LOADS = [
    closed(L8, "chunked", 2048, 1024, 128, 1, 5),
    closed(L8, "whole", 8192, 1024, 128, 1, 4),
    closed(L8, "chunked", 2048, 1024, 128, 8, 4),
    closed(L8, "whole", 8192, 1024, 128, 8, 4),
    closed(L8, "chunked", 2048, 1024, 128, 32, 4),
    closed(L8, "whole", 8192, 1024, 128, 32, 4),
    closed(L8, "chunked", 2048, 1024, 128, 128, 3, 0.5),
    closed(L8, "whole", 8192, 1024, 128, 128, 3, 0.5),
    closed(L8, "chunked", 2048, 4096, 128, 4, 4),
    closed(L8, "whole", 8192, 4096, 128, 16, 4),
    closed(L8, "chunked", 2048, 256, 256, 64, 3),
    closed(L8, "chunked", 8192, 4096, 128, 32, 3, 0.3),
    poisson(L8, "chunked", 2048, 1024, 128, 8.0, 96),
    closed(L8, "whole", 8192, 256, 256, 128, 3),
    closed(L8, "chunked", 2048, 512, 128, 256, 3, 0.5),
    closed(L8, "chunked", 8192, 8192, 64, 8, 3),
    poisson(L8, "whole", 8192, 1024, 128, 16.0, 160),
    closed(L3, "chunked", 2048, 1024, 128, 1, 4),
    closed(L3, "chunked", 2048, 1024, 128, 16, 4),
    closed(L3, "whole", 8192, 1024, 128, 64, 4),
    closed(L3, "chunked", 2048, 512, 256, 128, 3, 0.3),
    closed(L3, "whole", 16384, 4096, 256, 32, 3),
    poisson(L3, "chunked", 2048, 1024, 128, 24.0, 240),
    closed(MOE, "chunked", 2048, 1024, 128, 1, 4),
    closed(MOE, "whole", 8192, 1024, 128, 16, 4),
    closed(MOE, "chunked", 2048, 1024, 128, 64, 3),
    closed(MOE, "whole", 8192, 4096, 128, 32, 3),
    closed(MOE, "chunked", 2048, 1024, 128, 8, 4),
    closed(MOE, "whole", 8192, 512, 128, 128, 3, 0.5),
]
TINY = [
    closed("tiny", "chunked", 24, 32, 3, 3, 2),
    closed("tiny", "whole", 64, 20, 4, 2, 2, 0.5),
    poisson("tiny", "chunked", 24, 32, 3, 20.0, 2),
    closed("tiny-moe", "chunked", 24, 32, 3, 2, 1),
]
DECODES = [(b, c) for b in (1, 2, 4, 8, 16, 32, 64, 128, 256) for c in (512, 2048, 8192) if b * c <= 512 * 1024]
DECODES += [(1, 16384), (8, 16384)]
PREFILLS = [(1, n) for n in (64, 128, 256, 512, 1024, 2048, 4096, 8192)] + [(8, 128), (8, 1024), (2, 4096), (32, 256)]
FOLLOWING = [(2048, 2048), (2048, 6144), (512, 4096), (256, 8192), (2048, 14336)]
"""Tokens of a chunk, and those of its prompt before it."""
MIXED = [(8, 1024, 1024), (32, 1024, 512), (32, 1024, 2016), (128, 1024, 1920), (128, 4096, 1920), (64, 2048, 448)]
"""Sequences that decode, their context, and tokens of a prompt beside them."""
