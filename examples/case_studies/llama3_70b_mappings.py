"""Mappings of LLaMA-3 70B onto 512 H100: all that are evaluated, the named ones, and the best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from common import Effort, every, find, metrics_of, percent

import cosmic
from cosmic.design import DesignPoint, Infeasible, Metrics
from cosmic.space import Results
from cosmic.study import Found

NPUS = 512
TASK = {"sequence": 8192, "global_batch": 2048, "precision": "bf16"}
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
    "{tp,pp,cp,dp}": {"split": "npus", "powers_of_two": True},
    "{schedule,virtual_stages}": [
        ["1f1b", 1],
        ["zero_bubble", 1],
        *(["interleaved", stages] for stages in (2, 4, 5, 10, 20)),
    ],
    "micro_batch": [1, 2, 4],
    "weight_sharding": ["zero1", "zero2", "zero3"],
    "recompute": ["none", "alternate", "full"],
    "sequence_parallel": [True, False],
    "cp_comm_type": ["ring", "all_gather", "ulysses"],
}
CONSTRAINTS = [
    "tp <= 8",  # a node
    "pp <= 16",
    "cp <= 16",
    "model.layers % (pp * virtual_stages) == 0",
    "global_batch % (dp * micro_batch) == 0",
    # Values without effect are fixed, so that a search does not count the same mapping twice.
    'cp > 1 or cp_comm_type == "ring"',
    "tp > 1 or sequence_parallel",
    'pp > 1 or schedule == "1f1b"',
]
CAPACITY_BYTES = 80 * 2**30
SAFE = "72 GB"
ROOM = {SAFE: 72e9, "64 GB": 64e9, "48 GB": 48e9, "40 GB": 40e9}
"""Memory limits to consider."""


# ------------------------------------------------------------------------------------------------- one mapping


@dataclass(frozen=True)
class Candidate:
    """A named mapping and its metrics."""

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
        return self.metrics.throughput_per_s / self.point.network.npus

    @property
    def step(self) -> str:
        """The time of a step, as text."""
        return f"{self.step_s:.2f} s"

    @property
    def mfu(self) -> str:
        """MFU, as text."""
        return percent(self.metrics.mfu)

    @property
    def memory(self) -> str:
        """The memory that it needs, as text."""
        return f"{self.metrics.memory_bytes / 1e9:.1f} GB"

    @property
    def filled(self) -> str:
        """The share of the capacity that it needs, as text."""
        return percent(self.metrics.memory_bytes / CAPACITY_BYTES, 0)

    @property
    def mapping(self) -> str:
        """The mapping in one line, without defaults."""
        w = self.point.workload
        parts = [f"tp {w.tp}", *([f"cp {w.cp} ({w.cp_comm_type})"] if w.cp > 1 else []), f"pp {w.pp}", f"dp {w.dp}"]
        parts += [f"microbatch {w.micro_batch}", w.weight_sharding]
        if w.pp > 1:
            parts.append(f"{w.schedule} {w.virtual_stages}" if w.virtual_stages > 1 else w.schedule)
        parts += [f"recompute {w.recompute}"] if w.recompute != "none" else []
        parts += ["no sequence parallelism"] if w.tp > 1 and not w.sequence_parallel else []
        return ", ".join(parts)

    def longer(self, than: Candidate) -> float:
        """Return the relative excess of its step over another's."""
        return self.step_s / than.step_s - 1


def design(mapping: Mapping[str, Any], npus: int = NPUS, **changes: Any) -> DesignPoint:
    """Return the training of LLaMA-3 70B with a mapping, which counts if it more likely fits than not."""
    stated = {**TASK, **mapping, "memory.fits": 0.5, **changes}
    return cosmic.load_design(f"llama3-70b@dgx-h100:{npus}", stated, plain=True)


def candidate(name: str, point: DesignPoint) -> Candidate:
    """Return a feasible mapping with its metrics."""
    return Candidate(name, point, metrics_of(point))


def simulated_s(each: Candidate) -> float:
    """Return the time of a step by the event engine."""
    outcome = cosmic.evaluate(each.point, engine="event")
    if isinstance(outcome, Infeasible):
        raise SystemExit(f"{each.name}: {outcome.reasons[0]}")
    return outcome.step_s


# ------------------------------------------------------------------------------------------------- all of them


def look(effort: Effort) -> Found:
    """Return an exhaustive search, or for a quick look a small one."""
    base = {"model": "llama3-70b", "system": f"dgx-h100:{NPUS}", "workload": TASK | NVIDIA}
    tree = {"name": f"llama3-70b-{NPUS}", "base": base, "parameters": PARAMETERS, "constraints": CONSTRAINTS}
    space = cosmic.load_space(tree)
    return every(space) if effort.share >= 1 else find(space, effort.trials(space.valid // 4))


def fields(found: Found, name: str) -> Any:
    """Return a field of the workload for every trial."""
    return found.problem.space.columns(found.trials.rows)[f"workload.{name}"]


def order(results: Results, most_bytes: float = np.inf, keep: Any = True) -> list[int]:
    """Return the places of the feasible trials, the fastest first; of equal ones, the first."""
    columns = results.columns
    places = np.flatnonzero(results.feasible & (columns["memory_bytes"] <= most_bytes) & keep)
    pairs = np.stack([columns[name][places].round(6) for name in ("step_s", "memory_bytes")], axis=1)
    _, first = np.unique(pairs, axis=0, return_index=True)
    return [int(place) for place in places[first]]


def at(found: Found, place: int, name: str) -> Candidate:
    """Return a trial of the search as a named mapping."""
    return candidate(name, found.problem.space.point(found.trials.rows[place]))


# ------------------------------------------------------------------------------------------------- the story


@dataclass(frozen=True)
class Story:
    """Everything that the page shows."""

    found: Found
    best: Candidate
    shallow: Candidate
    """The best with at most five virtual stages, as in NVIDIA's mapping."""
    plain: Candidate
    """The best with ZeRO-1, as in NVIDIA's mapping."""
    chosen: Candidate
    """The best with few virtual stages that also leaves memory free: the recommended one."""
    named: Sequence[Candidate]
    simulated_s: Mapping[str, float]
    """Simulated steps, by name."""

    @property
    def nvidia(self) -> Candidate:
        """The published mapping."""
        return self.named[0]

    @property
    def all(self) -> list[Candidate]:
        """All named mappings."""
        return [self.best, self.shallow, self.plain, self.chosen, *self.named]

    @property
    def simulated(self) -> list[Candidate]:
        """The mappings that were simulated."""
        return [each for each in self.all if each.name in self.simulated_s]


def told(effort: Effort) -> Story:
    """Return the contents of the page: the search, the named mappings, and simulations of some."""
    found = look(effort)
    results = found.trials.results
    few = fields(found, "virtual_stages") <= NVIDIA["virtual_stages"]
    zero1 = fields(found, "weight_sharding") == NVIDIA["weight_sharding"]
    best = at(found, order(results)[0], "best found")
    shallow = at(found, order(results, keep=few)[0], "best with few virtual stages")
    plain = at(found, order(results, keep=zero1)[0], "best with ZeRO-1")
    chosen = at(found, (order(results, ROOM[SAFE], few) or order(results))[0], f"few virtual stages in {SAFE}")
    named = [candidate(name, design(mapping)) for name, mapping in NAMED.items()]
    # A simulation takes seconds: a quick look has only the cheapest.
    simulated = [best, shallow, chosen, *named[:2]] if effort.share >= 1 else named[1:2]
    return Story(found, best, shallow, plain, chosen, named, {each.name: simulated_s(each) for each in simulated})
