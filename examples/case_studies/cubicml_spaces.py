"""The spaces of `cubicml.py`: a recommender and language models, each on several machines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cosmic import load_space
from cosmic.space import ParameterSet, Problem, make_problem
from cosmic.study import Ledger, Trials

AT_ONCE = 50_000
"""Designs that are evaluated at once when all are."""


def recommender(model: str, system: str, samples: int) -> ParameterSet:
    """Return mappings, collectives and bandwidth for a recommender that has so many *samples* in its global batch."""
    npus = int(system.rpartition(":")[2])
    most = samples // npus
    content: dict[str, Any] = {
        "version": 1,
        "name": f"{model} on {system}",
        "base": {
            "model": model,
            "system": system,
            "workload": {"sequence": 1, "global_batch": samples, "micro_batch": most, "tp": 1, "cp": 1, "pp": 1},
        },
        "parameters": {
            "micro_batch": [most // 8, most // 4, most // 2, most],
            "weight_sharding": ["none", "zero1", "zero2", "zero3"],
            "grad_reduce_in_fp32": [True, False],
            "dp_overlap": [True, False],
            "collective.algorithms.*": ["auto", "ring", "direct", "double_binary_tree", "halving_doubling"],
            "collective.chunks": [1, 4, 16, 64],
            "collective.scheduling": ["fifo", "lifo"],
            "network.dims.0.bandwidth": ["225 GB/s", "450 GB/s", "900 GB/s"],
            "network.dims.1.bandwidth": ["100 Gbps", "200 Gbps", "400 Gbps", "800 Gbps"],
        },
        "derived": {"dp": "npus"},
        "constraints": ["global_batch % (dp * micro_batch) == 0"],
        "objective": "cost_usd_per_sample",
    }
    return load_space(content)


def language(model: str, system: str, layers: int, stages: int, sequences: int, tokens: int = 8192) -> ParameterSet:
    """Return mappings and collectives of a language model of so many *layers*; the base has so many *stages*.

    A step has so many *sequences* of so many *tokens*.
    """
    content: dict[str, Any] = {
        "version": 1,
        "name": f"{model} on {system}",
        "base": {
            "model": model,
            "system": system,
            "workload": {
                "sequence": tokens,
                "global_batch": sequences,
                "tp": 8,
                "cp": 1,
                "pp": stages,
                "micro_batch": 1,
                "weight_sharding": "zero1",
                "recompute": "full",
                "schedule": "1f1b",
                "virtual_stages": 1,
            },
            "memory": {"context": "0 B"},  # tensors alone: the study is of agents
        },
        "parameters": {
            "tp": [1, 2, 4, 8],
            "pp": {"powers_of_two": [1, 32]},
            "cp": [1, 2, 4],
            "virtual_stages": [1, 2, 3, 4, 7],
            "micro_batch": [1, 2, 4],
            "weight_sharding": ["zero1", "zero2", "zero3"],
            "{recompute,recompute_modules}": [
                ["none", ["core_attn"]],
                ["selective", ["core_attn"]],
                ["selective", ["layernorm", "mlp"]],
                ["full", ["core_attn"]],
            ],
            "sequence_parallel": [True, False],
            "tp_overlap": [False, True],
            "collective.algorithms.1": ["auto", "ring", "double_binary_tree"],
        },
        "derived": {
            "dp": "npus // (tp * cp * pp)",
            "schedule": '"interleaved" if virtual_stages > 1 else "1f1b"',
        },
        "constraints": [
            "dp * tp * cp * pp == npus",
            "global_batch % (dp * micro_batch) == 0",
            "virtual_stages == 1 or (pp > 1 and (global_batch // (dp * micro_batch)) % pp == 0)",
            f"pp * virtual_stages <= {layers}",
            "global_batch // (dp * micro_batch) >= pp",
        ],
        "objective": "step_s",
    }
    return load_space(content)


@dataclass(frozen=True)
class Whole:
    """A space with every design evaluated."""

    problem: Problem
    ledger: Ledger

    @property
    def trials(self) -> Trials:
        """All designs and their results."""
        return self.ledger.trials


def whole(space: ParameterSet) -> Whole:
    """Return every design of a set, evaluated by the closed form."""
    problem = make_problem(space)
    ledger = Ledger(problem)
    for first in range(0, space.valid, AT_ONCE):
        rows = space.listed(first, min(AT_ONCE, space.valid - first))
        ledger.add(rows, problem.evaluate(rows))
    return Whole(problem, ledger)
