"""How much `cosmic trace anonymize` changes: simulated times of random designs, and the ranking of ten networks.

    python benchmarks/anonymize.py -n 60 --seeds 3 --tolerance 0.05

Designs are random, of every kind of `tests.relations.random_designs`. Each is simulated on ten networks with its own
traces and with anonymized ones, by turns with recorded durations and by the roofline.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.relations.random_designs import random_designs

from cosmic.base.errors import SpecError
from cosmic.design.design_point import DesignPoint
from cosmic.simulate.events.astra_sim_inputs import AstraSimDimension, system_from_keys
from cosmic.simulate.events.message_fabrics import SimulatedNetwork
from cosmic.simulate.events.simulation_job import Job
from cosmic.simulate.events.trace_simulation import simulate_job
from cosmic.simulate.trace_generation import generate_traces
from cosmic.traces.anonymization import Policy, anonymize
from cosmic.traces.trace import TraceSet
from cosmic.traces.trace_checks import list_problems

KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
ALGORITHMS = {"Ring": "ring", "FullyConnected": "direct", "Switch": "halvingDoubling"}
NETWORKS = (
    ("Switch", "Switch", 450.0, 50.0),
    ("Switch", "Switch", 300.0, 25.0),
    ("Switch", "Switch", 200.0, 100.0),
    ("FullyConnected", "Switch", 100.0, 40.0),
    ("FullyConnected", "Ring", 60.0, 80.0),
    ("Ring", "Switch", 350.0, 12.5),
    ("Ring", "Ring", 250.0, 120.0),
    ("Ring", "Ring", 50.0, 60.0),
    ("Switch", "Ring", 900.0, 200.0),
    ("Switch", "FullyConnected", 150.0, 6.25),
)
"""Topologies and GB/s of an inner and an outer dimension."""
MOST_NODES = 40_000


def simulated_ns(traces: TraceSet, groups: dict[str, tuple[int, ...]], roofline: bool) -> list[int]:
    """Return the time of a job on each of the networks."""
    ranks = len(traces.ranks)
    inner = max(size for size in (1, 2, 4, 8) if ranks % size == 0)
    times = []
    for first, second, fast, slow in NETWORKS:
        whole = [(first, inner, fast, 700.0), (second, ranks // inner, slow, 2500.0)]
        dims = [AstraSimDimension(*dim) for dim in whole if dim[1] > 1] or [AstraSimDimension(*whole[0])]
        algorithms = [ALGORITHMS[dim.topology] for dim in dims]
        settings = {f"{kind}-implementation": algorithms for kind in KINDS}
        settings["all-to-all-implementation"] = ["direct"] * len(dims)
        common = {
            "preferred-dataset-splits": 4,
            "active-chunks-per-dimension": 1,
            "peak-perf": 500,
            "local-mem-bw": 2000,
        }
        system = system_from_keys({**common, **settings, "roofline-enabled": int(roofline)})
        times.append(
            simulate_job(Job(traces=traces, groups=groups, system=system, network=SimulatedNetwork(tuple(dims)))).cycles
        )
    return times


def kendall(mine: list[int], theirs: list[int]) -> float:
    """Return Kendall's tau: pairs in the same order less those in the other, over all; pairs tied in both agree.

    >>> kendall([1, 2, 3], [1, 3, 2])
    0.3333333333333333
    """
    pairs = list(combinations(range(len(mine)), 2))
    agree = [np.sign(mine[a] - mine[b]) * np.sign(theirs[a] - theirs[b]) for a, b in pairs]
    tied = sum(mine[a] == mine[b] and theirs[a] == theirs[b] for a, b in pairs)
    return float((sum(agree) + tied) / len(pairs))


def widest_swap(mine: list[int], theirs: list[int]) -> float:
    """Return by how much two networks differed at most that have changed places.

    >>> widest_swap([100, 150, 200], [101, 100, 120])
    0.5
    """
    pairs = [(mine[a], mine[b]) for a, b in combinations(range(len(mine)), 2) if _swapped(mine, theirs, a, b)]
    return max((max(pair) / min(pair) - 1 for pair in pairs), default=0.0)


def _swapped(mine: list[int], theirs: list[int], one: int, other: int) -> bool:
    return (mine[one] - mine[other]) * (theirs[one] - theirs[other]) < 0


def designs(count: int, seed: int) -> Iterator[DesignPoint]:
    """Yield random designs with traces of a moderate size."""
    left = count
    for point in random_designs(100 * count, seed, accelerators=None):
        if not left:
            return
        if 2 <= point.workload.ranks <= 256:
            left -= 1
            yield point


def main() -> None:
    """Print the worst cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tolerance", type=float, nargs="+", default=[0.05])
    parser.add_argument("--sizes", default="perturb")
    options = parser.parse_args()
    found: dict[float, list[tuple[float, float, float, str]]] = {each: [] for each in options.tolerance}
    for place, point in enumerate(designs(options.n, options.seed)):
        try:
            job = generate_traces(point)
            if job.traces.nodes > MOST_NODES:
                continue
            before = simulated_ns(job.traces, job.groups, bool(place % 2))
        except SpecError:
            continue
        for tolerance in options.tolerance:
            policy = Policy(tolerance=tolerance, sizes=options.sizes, times=options.sizes)
            for seed in range(options.seeds):
                made = anonymize(job.traces, job.groups, policy, place * options.seeds + seed)  # no seed twice
                if list_problems(made.traces, made.groups) != list_problems(job.traces, job.groups):
                    print(f"problems differ: {point.model.name} {point.workload}")
                after = simulated_ns(made.traces, made.groups, bool(place % 2))
                error = max(abs(new / old - 1) for old, new in zip(before, after, strict=True))
                text = f"{point.model.name} {point.workload.task} {point.workload.ranks} ranks, seed {seed}, {place}"
                found[tolerance].append((error, kendall(before, after), widest_swap(before, after), text))
        sys.stdout.flush()
    for tolerance, all_found in found.items():
        errors, taus = np.array([each[0] for each in all_found]), np.array([each[1] for each in all_found])
        print(f"tolerance {tolerance:.0%}, {options.sizes}: {len(errors)} traces, ten networks each")
        shown = f"mean {errors.mean():.2%}, 95 % below {np.quantile(errors, 0.95):.2%}, worst {errors.max():.2%}"
        print(f"  time, the worst network: {shown} ({max(all_found)[3]})")
        print(f"  tau: mean {taus.mean():.4f}, least {taus.min():.3f}, {(taus < 0.9).sum()} below 0.9")
        print(f"  networks that changed places differed by at most {max(each[2] for each in all_found):.2%}")
        for each in sorted(all_found, key=lambda each: each[1])[:3]:
            print(f"    {each[1]:.3f}: {each[3]}, they differed by at most {each[2]:.3%}")


if __name__ == "__main__":
    main()
