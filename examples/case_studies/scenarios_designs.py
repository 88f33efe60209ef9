"""Shared by the scenarios: spaces of the paper's systems, their best designs, and how to print them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from common import Effort, every, find

from cosmic import catalog, load_space
from cosmic.pages import quantity
from cosmic.space import Indices, ParameterSet, Problem, Results
from cosmic.study import Found, loss

REWARD, DOLLARS, TIME = "perf_per_bandwidth", "perf_per_network_cost", "step_s"
MODELS = {
    "GPT3-175B": "gpt3-175b",
    "GPT3-13B": "gpt3-13b",
    "LLaMA-7B": "llama-7b",
    "ViT-Base": "cosmic-vit-base",
    "ViT-Large": "cosmic-vit-large",
}
"""The catalog's name of each model."""
LARGEST = "GPT3-175B"
SHORT = {"ring": "ring", "fully_connected": "full", "switch": "switch"}
DIMS = range(4)
TIE = 1e-6
"""Designs whose losses differ by less count as equal."""
LEAST_TRIALS = 64
"""Even a quick look must find a feasible design."""
Case = TypeVar("Case")


# ------------------------------------------------------------------------------------------------- spaces


def full_stack(npus: int, base: Mapping[str, Any], name: str, **changes: Any) -> ParameterSet:
    """Return the paper's space for a system around another base design, with added parameters and constraints."""
    known = catalog.show("spaces", f"cosmic-{npus}-full-stack")
    tree = {**known, "name": name, "base": {"system": f"cosmic-{npus}", **base}}
    tree["parameters"] = {**known["parameters"], **changes.pop("parameters", {})}
    tree["constraints"] = [*known["constraints"], *changes.pop("constraints", [])]
    return load_space({**tree, **changes})


def tokens(model: str) -> int:
    """Return the sequence length: images have 256 patches."""
    return 256 if model.startswith("ViT") else 2048


def given_gb_per_s(system: str) -> list[float]:
    """Return the bandwidths of a system of the catalog, innermost first."""
    return [float(dim["bandwidth"].split()[0]) for dim in catalog.show("systems", system)["network"]["dims"]]


def budget(effort: Effort, whole: int) -> int:
    """Return the evaluations of one search."""
    return max(LEAST_TRIALS, effort.trials(whole))


def cases(effort: Effort, all_of_them: Iterable[Case]) -> tuple[Case, ...]:
    """Return all cases, or for a quick look the first and the last."""
    first, *between, last = all_of_them
    return (first, last) if effort.quick else (first, *between, last)


# ------------------------------------------------------------------------------------------------- designs


@dataclass(frozen=True)
class Design:
    """A design and its metrics in one problem."""

    row: Indices
    values: Mapping[str, Any]
    metrics: Mapping[str, float]

    @property
    def step_s(self) -> float:
        """The time of a step, or of one round of all workloads of the system."""
        return self.metrics[TIME]

    @property
    def reward(self) -> float:
        """Performance per bandwidth."""
        return self.metrics[REWARD]

    @property
    def network_usd(self) -> float:
        """The price of the network."""
        return self.metrics["network_usd"]

    @property
    def mapping(self) -> str:
        """The mapping in one line."""
        parts = [f"{name} {self.values[f'workload.{name}']}" for name in ("tp", "cp", "dp", "pp")]
        parts += [f"microbatch {self.values[key]}" for key in ("workload.micro_batch",) if key in self.values]
        sharding = str(self.values["workload.weight_sharding"])
        return ", ".join(parts + ([sharding] if sharding != "none" else []))

    @property
    def network(self) -> str:
        """Topology and size of each dimension, innermost first."""
        dims = [[self.values[f"network.dims.{place}.{key}"] for key in ("topology", "npus")] for place in DIMS]
        return " · ".join(f"{SHORT[topology]} {npus}" for topology, npus in dims)

    @property
    def gb_per_s(self) -> list[int]:
        """The bandwidth that one NPU injects into each dimension."""
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
    """Return a design with its metrics in *problem*."""
    results = problem.evaluate(row[None, :])
    if not results.feasible[0]:
        raise SystemExit(f"{problem.space.name}: a design is unexpectedly infeasible: {results.reasons[0]}")
    metrics = {name: float(column[0]) for name, column in results.columns.items()}
    return Design(row, problem.space.labels(row), metrics)


def best_of(problem: Problem, rows: Indices, results: Results | None = None) -> Design:
    """Return the best design; of equal ones, the one with the cheapest network.

    *results* are the results of *rows*, if they are known.
    """
    known = problem.evaluate(rows) if results is None else results
    if not known.feasible.any():
        raise SystemExit(f"{problem.space.name}: no trial is feasible: {set(known.reasons)}")
    losses = first_losses(problem, known)
    near = np.flatnonzero(losses <= np.nanmin(losses) * (1 + TIE))
    return look_at(problem, rows[near[np.argmin(known.columns["network_usd"][near])]])


def first_losses(problem: Problem, results: Results) -> Any:
    """Return the loss of the first objective: less is better."""
    objective = problem.objectives[0]
    return loss(objective, results.columns[objective])


# ------------------------------------------------------------------------------------------------- searches


@dataclass(frozen=True)
class Answer:
    """The result of a search, and the best known design for its problem."""

    found: Found
    best: Design

    def try_out(self, design: Design) -> Design:
        """Return another design with its metrics in this problem."""
        return look_at(self.found.problem, design.row)


def explore(
    spaces: Mapping[str, ParameterSet], trials: int, objective: str, known: Iterable[Answer] = (), seeds: int = 1
) -> dict[str, Answer]:
    """Return the best design for each of *spaces*, which have the same parameters.

    The best designs of each, and of *known*, are tried on the others: so none is worse than a known design, and a
    difference between two comes from the problems, not from chance.
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
    """Return the best few percent of a search's designs."""
    ranked = np.argsort(first_losses(found.problem, found.trials.results))
    return found.trials.rows[ranked[: 4 + len(found.trials) // 40]]


def improved(problem: Problem, best: Design, rounds: int) -> Design:
    """Return a design that no change of one parameter improves, after at most *rounds* of changes.

    A genetic search does not end in a local optimum; after this, designs do not differ by one lucky value.
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
    """Return an exhaustive search of the mappings on the given network."""
    return every(space.restrict(["workload"]), objectives=[objective])


def best_mapping(space: ParameterSet, objective: str) -> Design:
    """Return the best mapping on the given network."""
    found = mappings(space, objective)
    return best_of(found.problem, found.trials.rows, found.trials.results)


# ------------------------------------------------------------------------------------------------- in words


def seconds(value: float) -> str:
    """Return seconds as text."""
    return quantity(value, "s")


def dollars(value: float) -> str:
    """Return dollars as text."""
    return quantity(value, "USD")
