"""Designs of COSMIC's systems: where they are sought, which is best, how they are written. The scenarios share this."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from common import Effort, every, find

from cosmic import catalog, load_space
from cosmic.exploration.objectives import loss
from cosmic.exploration.problem import Problem, Results
from cosmic.exploration.searching import Found
from cosmic.psa.diagram import Indices
from cosmic.psa.space import ParameterSet
from cosmic.reporting.scales import quantity

REWARD, DOLLARS, TIME = "perf_per_bandwidth", "perf_per_network_cost", "step_s"
MODELS = {
    "GPT3-175B": "gpt3-175b",
    "GPT3-13B": "gpt3-13b",
    "LLaMA-7B": "llama-7b",
    "ViT-Base": "cosmic-vit-base",
    "ViT-Large": "cosmic-vit-large",
}
"""Where the catalog has each model."""
LARGEST = "GPT3-175B"
SHORT = {"ring": "ring", "fully_connected": "full", "switch": "switch"}
DIMS = range(4)
TIE = 1e-6
"""Designs whose losses differ by less are as good as each other."""
LEAST_TRIALS = 64
"""Even a quick look must find something that runs."""
Case = TypeVar("Case")


# ------------------------------------------------------------------------------------------------- what is sought


def full_stack(npus: int, base: Mapping[str, Any], name: str, **changes: Any) -> ParameterSet:
    """Return COSMIC's space for a system, around another base design; parameters and constraints are added to its."""
    known = catalog.entry("spaces", f"cosmic-{npus}-full-stack")
    tree = {**known, "name": name, "base": {"system": f"cosmic-{npus}", **base}}
    tree["parameters"] = {**known["parameters"], **changes.pop("parameters", {})}
    tree["constraints"] = [*known["constraints"], *changes.pop("constraints", [])]
    return load_space({**tree, **changes})


def tokens(model: str) -> int:
    """Return the length of a sequence: pictures have 256 patches."""
    return 256 if model.startswith("ViT") else 2048


def given_gb_per_s(system: str) -> list[float]:
    """Return the bandwidths of a system of the catalog, innermost first."""
    return [float(dim["bandwidth"].split()[0]) for dim in catalog.entry("systems", system)["network"]["dims"]]


def budget(effort: Effort, whole: int) -> int:
    """Return how many designs to try in one search."""
    return max(LEAST_TRIALS, effort.trials(whole))


def cases(effort: Effort, all_of_them: Iterable[Case]) -> tuple[Case, ...]:
    """Return all of them, or for a quick look the first and the last."""
    first, *between, last = all_of_them
    return (first, last) if effort.quick else (first, *between, last)


# ------------------------------------------------------------------------------------------------- designs


@dataclass(frozen=True)
class Design:
    """A design, and what it achieves in the problem it is looked at in."""

    row: Indices
    values: Mapping[str, Any]
    metrics: Mapping[str, float]

    @property
    def step_s(self) -> float:
        """The time of a step, or of a round of all that the system runs."""
        return self.metrics[TIME]

    @property
    def reward(self) -> float:
        """Performance for each GB/s."""
        return self.metrics[REWARD]

    @property
    def network_usd(self) -> float:
        """The price of the network."""
        return self.metrics["network_usd"]

    @property
    def mapping(self) -> str:
        """How the workload is spread, in one line."""
        parts = [f"{name} {self.values[f'workload.{name}']}" for name in ("tp", "cp", "dp", "pp")]
        parts += [f"micro-batch {self.values[key]}" for key in ("workload.micro_batch",) if key in self.values]
        sharding = str(self.values["workload.weight_sharding"])
        return ", ".join(parts + ([sharding] if sharding != "none" else []))

    @property
    def network(self) -> str:
        """Topology and size of each dimension, innermost first."""
        dims = [[self.values[f"network.dims.{place}.{key}"] for key in ("topology", "npus")] for place in DIMS]
        return " · ".join(f"{SHORT[topology]} {npus}" for topology, npus in dims)

    @property
    def gb_per_s(self) -> list[int]:
        """What one NPU sends into each dimension."""
        return [int(str(self.values[f"network.dims.{place}.bandwidth"]).split()[0]) for place in DIMS]

    @property
    def wires(self) -> str:
        """The bandwidths and their sum."""
        return f"{' + '.join(map(str, self.gb_per_s))} = {sum(self.gb_per_s):,}"

    @property
    def cells(self) -> list[str]:
        """The design as cells of a table: mapping, network, bandwidths."""
        return [self.mapping, self.network, self.wires]


def look_at(problem: Problem, row: Indices) -> Design:
    """Return a design as it does in *problem*."""
    results = problem.evaluate(row[None, :])
    if not results.feasible[0]:
        raise SystemExit(f"{problem.space.name}: a design that should run does not: {results.reasons[0]}")
    metrics = {name: float(column[0]) for name, column in results.columns.items()}
    return Design(row, problem.space.labels(row), metrics)


def best_of(problem: Problem, rows: Indices, results: Results | None = None) -> Design:
    """Return the best of designs; of those that are as good, the one with the cheapest network.

    *results* are what becomes of *rows*, where that is known.
    """
    known = problem.evaluate(rows) if results is None else results
    if not known.feasible.any():
        raise SystemExit(f"{problem.space.name}: nothing that was tried can run: {set(known.reasons)}")
    losses = first_losses(problem, known)
    near = np.flatnonzero(losses <= np.nanmin(losses) * (1 + TIE))
    return look_at(problem, rows[near[np.argmin(known.columns["network_usd"][near])]])


def first_losses(problem: Problem, results: Results) -> Any:
    """Return by what designs are compared: less is better."""
    objective = problem.objectives[0]
    return loss(objective, results.columns[objective])


# ------------------------------------------------------------------------------------------------- searches


@dataclass(frozen=True)
class Answer:
    """What a search found, and the best design for its problem that is known."""

    found: Found
    best: Design

    def try_out(self, design: Design) -> Design:
        """Return what another design does in this problem."""
        return look_at(self.found.problem, design.row)


def explore(
    spaces: Mapping[str, ParameterSet], trials: int, objective: str, known: Iterable[Answer] = (), seeds: int = 1
) -> dict[str, Answer]:
    """Return the best design for each of *spaces*, which have the same parameters.

    What is found for one, or *known*, is tried on the others: so none is worse than what is known already, and a
    difference between two is one of the problems, not of the luck of the search.
    """
    found = {
        name: [find(space, trials, objectives=[objective], seed=seed) for seed in range(1, seeds + 1)]
        for name, space in spaces.items()
    }
    searches = [*(each for same in found.values() for each in same), *(each.found for each in known)]
    pool = np.unique(np.concatenate([leaders(each) for each in searches]), axis=0)
    problems = [same[0].problem for same in found.values()]
    rows = np.stack([improved(each, best_of(each, pool), trials // 100).row for each in problems])
    return {name: Answer(first, best_of(first.problem, rows)) for name, (first, *_) in found.items()}


def leaders(found: Found) -> Indices:
    """Return the best designs of a search, some percent of it."""
    ranked = np.argsort(first_losses(found.problem, found.trials.results))
    return found.trials.rows[ranked[: 4 + len(found.trials) // 40]]


def improved(problem: Problem, best: Design, rounds: int) -> Design:
    """Return a design that no change of one parameter betters, or as far as so many *rounds* of changes come.

    A genetic search leaves loose ends; after this, two designs differ by more than one lucky value.
    """
    space = problem.space
    changes = [(place, index) for place, size in enumerate(space.sizes) for index in range(size)]
    for _ in range(rounds):
        rows = np.repeat(best.row[None, :], 1 + len(changes), axis=0)
        for number, (place, index) in enumerate(changes, start=1):
            rows[number, place] = index
        better = best_of(problem, space.repair(rows))
        if (better.row == best.row).all():
            break
        best = better
    return best


def mappings(space: ParameterSet, objective: str) -> Found:
    """Return every mapping on the given network, evaluated: there are few enough."""
    return every(space.restrict(["workload"]), objectives=[objective])


def best_mapping(space: ParameterSet, objective: str) -> Design:
    """Return the best mapping on the given network."""
    found = mappings(space, objective)
    return best_of(found.problem, found.trials.rows, found.trials.results)


# ------------------------------------------------------------------------------------------------- in words


def seconds(value: float) -> str:
    """Return seconds for a reader."""
    return quantity(value, "s")


def dollars(value: float) -> str:
    """Return dollars for a reader."""
    return quantity(value, "USD")
