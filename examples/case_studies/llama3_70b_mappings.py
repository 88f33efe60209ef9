"""Mappings of LLaMA-3 70B onto 512 H100: every one that is looked at, those that have a name, and the best of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from common import Effort, every, find, metrics_of, percent

import cosmic
from cosmic.design.point import DesignPoint
from cosmic.evaluation import Infeasible, Metrics
from cosmic.exploration.problem import Results
from cosmic.exploration.searching import Found

NPUS = 512
TASK = {"workload.sequence": 8192, "workload.global_batch": 2048, "workload.precision": "bf16"}
NVIDIA = {
    "tp": 4,
    "pp": 8,
    "cp": 1,
    "weight_sharding": "zero1",
    "schedule": "interleaved",
    "virtual_stages": 5,
}
NAMED: dict[str, dict[str, Any]] = {
    "NVIDIA's": NVIDIA,
    "TP 8, PP 4": {"tp": 8, "pp": 4, "cp": 1, "weight_sharding": "zero1"},
    "FSDP alone": {"tp": 1, "pp": 1, "cp": 1, "weight_sharding": "zero3", "recompute": "full"},
    "FSDP and TP 8": {"tp": 8, "pp": 1, "cp": 1, "weight_sharding": "zero3"},
}
"""The published mapping, and rules of thumb."""
PARAMETERS = {
    "workload.{tp,pp,cp,dp}": {"split": "npus", "powers_of_two": True},
    "workload.{schedule,virtual_stages}": [
        ["1f1b", 1],
        ["zero_bubble", 1],
        *(["interleaved", parts] for parts in (2, 4, 5, 10, 20)),
    ],
    "workload.micro_batch": [1, 2, 4],
    "workload.weight_sharding": ["zero1", "zero2", "zero3"],
    "workload.recompute": ["none", "alternate", "full"],
    "workload.sequence_parallel": [True, False],
    "workload.cp_comm_type": ["ring", "all_gather", "ulysses"],
}
CONSTRAINTS = [
    "tp <= 8",  # a node
    "pp <= 16",
    "cp <= 16",
    "model.layers % (pp * virtual_stages) == 0",
    "global_batch % (dp * micro_batch) == 0",
    # One spelling of what is the same: a search should not count it twice.
    'cp > 1 or cp_comm_type == "ring"',
    "tp > 1 or sequence_parallel",
    'pp > 1 or schedule == "1f1b"',
]
CAPACITY_BYTES = 80 * 2**30
SAFE = "72 GB"
ROOM = {SAFE: 72e9, "64 GB": 64e9, "48 GB": 48e9, "40 GB": 40e9}
"""Memory that one may want to keep to."""


# ------------------------------------------------------------------------------------------------- one mapping


@dataclass(frozen=True)
class Candidate:
    """A mapping with a name, and what it achieves."""

    name: str
    point: DesignPoint
    metrics: Metrics

    @property
    def step_s(self) -> float:
        """The time of a step, in closed form."""
        return self.metrics.step_s

    @property
    def tokens_per_s(self) -> float:
        """Tokens a second for each GPU."""
        return self.metrics.tokens_per_s / self.point.network.npus

    @property
    def step(self) -> str:
        """The time of a step, for a reader."""
        return f"{self.step_s:.2f} s"

    @property
    def mfu(self) -> str:
        """The share of the peak that it makes use of."""
        return percent(self.metrics.mfu)

    @property
    def memory(self) -> str:
        """The memory that it needs."""
        return f"{self.metrics.memory_bytes / 1e9:.1f} GB"

    @property
    def filled(self) -> str:
        """How much of the memory that is."""
        return percent(self.metrics.memory_bytes / CAPACITY_BYTES, 0)

    @property
    def mapping(self) -> str:
        """The mapping in one line, without what is usual."""
        w = self.point.workload
        parts = [f"tp {w.tp}", *([f"cp {w.cp} ({w.cp_comm_type})"] if w.cp > 1 else []), f"pp {w.pp}", f"dp {w.dp}"]
        parts += [f"micro-batch {w.micro_batch}", w.weight_sharding]
        if w.pp > 1:
            parts.append(f"{w.schedule} {w.virtual_stages}" if w.virtual_stages > 1 else w.schedule)
        parts += [f"recompute {w.recompute}"] if w.recompute != "none" else []
        parts += ["no sequence parallelism"] if w.tp > 1 and not w.sequence_parallel else []
        return ", ".join(parts)

    def longer(self, than: Candidate) -> float:
        """Return how much longer its step takes than another's, as a share."""
        return self.step_s / than.step_s - 1


def design(mapping: Mapping[str, Any], npus: int = NPUS, **changes: Any) -> DesignPoint:
    """Return the training of LLaMA-3 70B with a mapping."""
    chosen = {f"workload.{key}": value for key, value in mapping.items()}
    return cosmic.load_design(f"llama3-70b@dgx-h100:{npus}", TASK | chosen | changes)


def candidate(name: str, point: DesignPoint) -> Candidate:
    """Return a mapping that is known to run, with what it achieves."""
    return Candidate(name, point, metrics_of(point))


def played_s(each: Candidate) -> float:
    """Return the time of a step when it is played, node by node."""
    outcome = cosmic.evaluate(each.point, "event")
    if isinstance(outcome, Infeasible):
        raise SystemExit(f"{each.name}: {outcome.reasons[0]}")
    return outcome.step_s


# ------------------------------------------------------------------------------------------------- all of them


def look(effort: Effort) -> Found:
    """Return every mapping evaluated, or for a quick look some of them."""
    workload = {key.removeprefix("workload."): value for key, value in TASK.items()} | NVIDIA
    base = {"model": "llama3-70b", "system": f"dgx-h100:{NPUS}", "workload": workload}
    tree = {"name": f"llama3-70b-{NPUS}", "base": base, "parameters": PARAMETERS, "constraints": CONSTRAINTS}
    space = cosmic.load_space(tree)
    return every(space) if effort.share >= 1 else find(space, effort.trials(space.valid // 4))


def fields(found: Found, name: str) -> Any:
    """Return a field of the workload of every mapping that was looked at."""
    return found.problem.space.columns(found.trials.rows)[f"workload.{name}"]


def order(results: Results, most_bytes: float = np.inf, keep: Any = True) -> list[int]:
    """Return where the mappings that fit stand, the fastest first; of those that achieve the same, the first."""
    columns = results.columns
    places = np.flatnonzero(results.feasible & (columns["memory_bytes"] <= most_bytes) & keep)
    pairs = np.stack([columns[name][places].round(6) for name in ("step_s", "memory_bytes")], axis=1)
    _, first = np.unique(pairs, axis=0, return_index=True)
    return [int(place) for place in places[first]]


def at(found: Found, place: int, name: str) -> Candidate:
    """Return the mapping at a place of the search, as one with a name."""
    return candidate(name, found.problem.space.point(found.trials.rows[place]))


# ------------------------------------------------------------------------------------------------- the story


@dataclass(frozen=True)
class Story:
    """Everything that the page tells."""

    found: Found
    best: Candidate
    shallow: Candidate
    """The best of those with stages of at most five parts, as NVIDIA's has."""
    plain: Candidate
    """The best of those with ZeRO-1, as NVIDIA's has it."""
    chosen: Candidate
    """The best of few parts that also leaves memory free: what to begin with."""
    named: Sequence[Candidate]
    played_s: Mapping[str, float]
    """Steps of those that were played, by name."""

    @property
    def nvidia(self) -> Candidate:
        """The published mapping."""
        return self.named[0]

    @property
    def all(self) -> list[Candidate]:
        """All that have a name."""
        return [self.best, self.shallow, self.plain, self.chosen, *self.named]

    @property
    def played(self) -> list[Candidate]:
        """Those that were played."""
        return [each for each in self.all if each.name in self.played_s]


def told(effort: Effort) -> Story:
    """Return what the page tells: the search, the mappings with names, and the plays of some."""
    found = look(effort)
    results = found.trials.results
    few = fields(found, "virtual_stages") <= NVIDIA["virtual_stages"]
    zero1 = fields(found, "weight_sharding") == NVIDIA["weight_sharding"]
    best = at(found, order(results)[0], "best found")
    shallow = at(found, order(results, keep=few)[0], "best of few parts")
    plain = at(found, order(results, keep=zero1)[0], "best with ZeRO-1")
    chosen = at(found, (order(results, ROOM[SAFE], few) or order(results))[0], f"few parts in {SAFE}")
    named = [candidate(name, design(mapping)) for name, mapping in NAMED.items()]
    # A play takes seconds: a quick look has the cheapest only.
    played = [best, shallow, chosen, *named[:2]] if effort.share >= 1 else named[1:2]
    return Story(found, best, shallow, plain, chosen, named, {each.name: played_s(each) for each in played})
