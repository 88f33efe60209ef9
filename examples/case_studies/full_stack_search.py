"""The searches behind `full_stack.py`: one layer, the layers in turn, and the full stack, for a case and a reward."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from common import Effort, best_design, best_value, every, find, metrics_of

from cosmic import catalog, load_design, load_space
from cosmic.design import DesignPoint, design_tree
from cosmic.space import ParameterSet, Problem
from cosmic.study import Found

REWARDS = {"perf_per_bandwidth": "bandwidth", "perf_per_network_cost": "network cost"}
LAYERS = ("workload", "collective", "network")
FOLLOWED = {"ring": "ring", "fully_connected": "direct", "switch": "halving_doubling"}
"""The algorithm for each topology in the original's network-only search."""
FOLLOW = {
    "collective.algorithms.*": '"ring" if network.dims.*.topology == "ring" else '
    '("direct" if network.dims.*.topology == "fully_connected" else "halving_doubling")'
}
"""The same as an expression."""
MATTERS = 0.001
"""A parameter matters where some other value of it changes the reward by more than this share."""
EXPOSED = ("tp", "cp", "ep", "weights", "dp", "pp")
"""Entries of the breakdown that are exposed communication."""


@dataclass(frozen=True)
class Case:
    """A model on a system, perhaps with settings of its own."""

    name: str
    model: str
    npus: int
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def base(self) -> DesignPoint:
        """The base design of every search."""
        return load_design(f"{self.model}@cosmic-{self.npus}", self.settings)

    @property
    def space(self) -> str:
        """The catalog's name of the full space."""
        return f"cosmic-{self.npus}-full-stack"


SYSTEMS = [Case(f"GPT3-175B, {npus:,} NPUs", "gpt3-175b", npus) for npus in (512, 1024, 2048)]
MODELS = [
    Case("GPT3-13B, 1,024 NPUs", "gpt3-13b", 1024),
    Case("ViT-Large, 1,024 NPUs", "cosmic-vit-large", 1024),
    Case("ViT-Base, 1,024 NPUs", "cosmic-vit-base", 1024),
]


@dataclass(frozen=True)
class Budget:
    """Evaluations of the searches that are not exhaustive."""

    network: int
    full: int
    seeds: int
    """Seeds of the full-stack search; the best counts."""


def budget_of(effort: Effort) -> Budget:
    """Return the budgets of the searches."""
    return Budget(network=effort.trials(3000), full=effort.trials(7000), seeds=effort.seeds(3))


# ---------------------------------------------------------------------------------------------------- results


@dataclass(frozen=True)
class Mappings:
    """Every mapping of a case on its base network, timed."""

    tried: int
    """The number of valid mappings, whether they fit in memory or not."""
    steps: tuple[float, ...]
    """The step of each feasible mapping, in seconds, ascending."""
    best: DesignPoint
    worst: DesignPoint

    @property
    def spread(self) -> float:
        """The worst step over the best."""
        return self.steps[-1] / self.steps[0]


@dataclass(frozen=True)
class Compared:
    """The results of all searches for one case and one reward."""

    case: Case
    reward: str
    values: Mapping[str, float]
    """The reward that each search found: of one layer, of the layers in turn, of the full stack."""
    design: DesignPoint
    """The best of all."""
    idle: frozenset[str]
    """Its parameters that do not matter, each by itself."""
    mappings: Mappings

    def gain(self, over: str) -> float:
        """Return the reward of the full stack over that of another search."""
        return self.values["full"] / self.values[over]

    def over_base(self, search: str) -> float:
        """Return the reward of a search over that of the base design."""
        return self.values[search] / float(getattr(metrics_of(self.case.base), self.reward))

    @property
    def step_over_base(self) -> float:
        """The step of the best design over the base's."""
        return metrics_of(self.design).step_s / metrics_of(self.case.base).step_s

    @property
    def bandwidth_over_base(self) -> float:
        """The injection bandwidth of the best design over that of the base."""
        return injected_bytes_per_s(self.design) / injected_bytes_per_s(self.case.base)


def injected_bytes_per_s(design: DesignPoint) -> float:
    """Return the bandwidth that one NPU injects into all dimensions."""
    return sum(dim.bandwidth_bytes_per_s for dim in design.network.dims)


def exposed(design: DesignPoint) -> float:
    """Return the share of exposed communication in a design's step."""
    parts = metrics_of(design).breakdown
    return sum(parts[name] for name in EXPOSED) / sum(parts.values())


# --------------------------------------------------------------------------------------------------- searches


def compare(case: Case, reward: str, budget: Budget) -> Compared:
    """Return the results of all searches.

    The winners of the network-only search and of the layers in turn are points of the full stack too, so that the full
    stack has the best of these and of its own searches.
    """
    everything = opened(case, LAYERS)
    workload = every(opened(case, ["workload"]), objectives=[reward])
    collective = every(opened(case, ["collective"]), objectives=[reward])
    network = find(opened(case, ["network"]), budget.network, objectives=[reward])
    turns = in_turn(case, reward, workload, budget)
    seeds = [find(everything, budget.full, objectives=[reward], seed=seed) for seed in range(1, budget.seeds + 1)]
    full = max([*seeds, turns, network], key=lambda found: best_value(found, reward))
    found = {"workload": workload, "collective": collective, "network": network, "in turn": turns, "full": full}
    design = best_design(full)
    return Compared(
        case=case,
        reward=reward,
        values={name: best_value(each, reward) for name, each in found.items()},
        design=design,
        idle=idle_parameters(Problem(everything, (reward,)), design),
        mappings=timed(workload),
    )


def opened(case: Case, layers: Sequence[str], base: DesignPoint | None = None) -> ParameterSet:
    """Return the catalog's space around *base*, restricted to *layers*.

    In a network-only search each dimension has the algorithm of its topology, as in the original: with the base's
    algorithms that search would be at a disadvantage.
    """
    tree = catalog.show("spaces", case.space)
    parameters = {path: values for path, values in tree["parameters"].items() if path.startswith(tuple(layers))}
    derived = tree["derived"] | (FOLLOW if list(layers) == ["network"] else {})
    return load_space({**tree, "base": design_tree(base or case.base), "parameters": parameters, "derived": derived})


def in_turn(case: Case, reward: str, workload: Found, budget: Budget) -> Found:
    """Return the result of searching each layer around the best of the one before it."""
    network = find(opened(case, ["network"], best_design(workload)), budget.network, objectives=[reward])
    return every(opened(case, ["collective"], best_design(network)), objectives=[reward])


def timed(workload: Found) -> Mappings:
    """Return the mappings of a workload-only search, by their step."""
    trials, space = workload.trials, workload.problem.space
    step = trials.results.columns["step_s"]
    order = np.argsort(step)[: trials.feasible]  # infeasible designs have no step, and come last
    best, worst = (space.point(trials.rows[place]) for place in (order[0], order[-1]))
    return Mappings(trials.evaluated, tuple(step[order].tolist()), best, worst)


def idle_parameters(problem: Problem, design: DesignPoint) -> frozenset[str]:
    """Return the parameters whose other values, one at a time, do not change the reward of *design*."""
    space, row = problem.space, problem.space.row_of(design)
    if row is None:
        return frozenset()
    reward = problem.objectives[0]
    own = problem.evaluate(row[None, :]).columns[reward][0]
    found = []
    for place, parameter in enumerate(space.parameters):
        others = np.repeat(row[None, :], len(parameter.values), axis=0)
        others[:, place] = np.arange(len(parameter.values))
        valid = others[space.contains(others)]
        values = problem.evaluate(valid).columns[reward]
        if len(valid) > 1 and bool((np.abs(values / own - 1) < MATTERS).all()):
            found.append(parameter.name)
    return frozenset(found)
