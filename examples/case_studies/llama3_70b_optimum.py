"""Results of the search for LLaMA-3 70B on 512 H100: best mappings, flatness of the optimum, the cost of memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations

import numpy as np
from common import front_of, percent
from llama3_70b_mappings import CAPACITY_BYTES, NPUS, ROOM, SAFE, Candidate, Story, at, fields, order

import cosmic
from cosmic.design import AXES, Metrics
from cosmic.pages import Axis, Figure, Heading, Mark, Part, Series, Table, Text, heat_map, lines, scatter
from cosmic.study import Found

SHOWN = ("gemm", "attention", "other", "recompute", "tp", "cp", "weights", "dp", "pp", "bubble")
"""Entries of the breakdown."""
WITHIN = (0.01, 0.02, 0.05, 0.10)
"""Distances from the best to count mappings within."""
ALL = f"{CAPACITY_BYTES / 1e9:.1f} GB (all)"


# ------------------------------------------------------------------------------------------------- the mappings


def mappings(story: Story) -> list[Part]:
    """Return the metrics of each named mapping, and the ten best."""
    return [
        Heading("The mappings"),
        Text(
            """The space: every split of the GPUs over tensor (tp, within a node), pipeline (pp), context (cp) and data
            (dp) parallelism in powers of two; microbatches of 1, 2 and 4; 1F1B, zero-bubble and interleaved schedules
            with 2 to 20 virtual stages; ZeRO 1 to 3; recomputation of nothing, of all but attention and every second
            GEMM (`alternate`), or of everything; Megatron's sequence parallelism or not; context parallelism by ring,
            all-gather or Ulysses. Layers must divide evenly over virtual stages."""
        ),
        Table(
            ["name", "mapping", "step", "tokens/s/GPU", "MFU", "memory", "longer than best"],
            [[*facts(each), each.mfu, each.memory, percent(each.longer(story.best))] for each in story.all],
            f"{NPUS} H100 with {CAPACITY_BYTES / 1e9:.1f} GB each. By the closed form; MFU of 989 TFLOP/s. NVIDIA's"
            " mapping is that of its 64-GPU run with more replicas; the rules of thumb are our own.",
        ),
        Table(
            ["name", *SHOWN, "step"],
            [
                [each.name, *(f"{each.metrics.breakdown[name]:.2f}" for name in SHOWN), f"{each.step_s:.2f}"]
                for each in story.all
            ],
            "Breakdown of a step in seconds. Only exposed communication counts.",
        ),
        Text(difference(story.best, story.nvidia)),
        Table(
            ["", "mapping", "step", "tokens/s/GPU", "memory"],
            [[place, *facts(each)[1:], each.memory] for place, each in enumerate(ten_best(story.found), start=1)],
            "The ten best. Of mappings that are equal in time and memory, one is shown.",
        ),
    ]


def facts(each: Candidate) -> list[str | int]:
    """Return the first cells of a row of mappings."""
    return [each.name, each.mapping, each.step, round(each.tokens_per_s)]


def ten_best(found: Found) -> list[Candidate]:
    """Return the ten fastest."""
    return [at(found, place, "") for place in order(found.trials.results)[:10]]


def difference(best: Candidate, nvidia: Candidate) -> str:
    """Return what explains the difference between the best and the published mapping."""
    gaps = {name: nvidia.metrics.breakdown[name] - best.metrics.breakdown[name] for name in SHOWN}
    first, second, *_ = sorted(gaps, key=lambda name: -gaps[name])
    published, least = (each.step_s - each.metrics.breakdown["tp"] for each in (nvidia, best))
    return f"""The published mapping takes {nvidia.step_s - best.step_s:.1f} s more, {gaps[first]:.1f} s of it in
        `{first}` and {gaps[second]:.1f} s in `{second}`. Here every tensor-parallel collective is exposed; a framework
        that overlaps them with GEMMs saves part of that. If all of it were overlapped in both, the difference would be
        {percent(published / least - 1)}: this part of the answer does not depend on the quality of the overlap."""


# ------------------------------------------------------------------------------------------------- flatness


def flatness(story: Story) -> list[Part]:
    """Return the number of mappings near the optimum."""
    steps = np.sort(story.found.trials.results.columns["step_s"][story.found.trials.results.feasible])
    longer = 100 * (steps / steps[0] - 1)
    curve = [(float(share), float(place + 1)) for place, share in enumerate(longer) if share <= 100]
    return [
        Heading("How flat the optimum is"),
        Table(
            ["within", "mappings", "splits of the GPUs (tp, pp, cp)"],
            [[f"{100 * share:.0f} % of the best", *close(story.found, share)] for share in WITHIN],
            "Mappings that are about as good as the best.",
        ),
        Figure(
            lines(
                [Series("mappings", curve, steps=True)],
                x=Axis("longer than the best step", "%"),
                y=Axis("mappings", "", log=True),
                title="Mappings within a distance of the best",
            ),
            "flatness",
            "The curve starts steeply: few are the best, hundreds are nearly as good.",
        ),
        Figure(
            grid(story.found),
            "grid",
            "Each cell is the best over everything else: context parallelism, schedule, sharding, recomputation.",
        ),
        Text(placement(story.best)),
    ]


def close(found: Found, share: float) -> tuple[int, int]:
    """Return the number of mappings within a share of the best, and their number of splits of the GPUs."""
    steps = found.trials.results.columns["step_s"]
    near = steps <= np.nanmin(steps) * (1 + share)
    splits = np.stack([fields(found, axis) for axis in ("tp", "pp", "cp")], axis=1)
    return int(near.sum()), len(np.unique(splits[near], axis=0))


def grid(found: Found) -> str:
    """Return the best step for each degree of tensor and pipeline parallelism."""
    steps, tp, pp = found.trials.results.columns["step_s"], fields(found, "tp"), fields(found, "pp")
    rows, columns = sorted(set(tp.tolist())), sorted(set(pp.tolist()))
    return heat_map(
        [f"tp {each}" for each in rows],
        [f"pp {each}" for each in columns],
        [[least(steps[(tp == row) & (pp == column)]) for column in columns] for row in rows],
        value=Axis("best step", "s", better="lower"),
        title="Best step for each degree of tensor and pipeline parallelism",
        names=("tensor", "pipeline stages"),
    )


def least(steps: Sequence[float]) -> float | None:
    """Return the shortest step; None if no mapping is feasible."""
    known = [float(each) for each in steps if np.isfinite(each)]
    return min(known, default=None)


def placement(best: Candidate) -> str:
    """Return the effect of the placement on the best mapping."""
    times = {}
    for axes in permutations(AXES):
        outcome = cosmic.evaluate(replace(best.point, workload=replace(best.point.workload, placement=axes)))
        if isinstance(outcome, Metrics):
            times[axes] = outcome.step_s
    usual, shortest, longest = times["tp", "cp", "dp", "pp"], min(times.values()), max(times.values())
    same = sum(each <= shortest * 1.001 for each in times.values())
    return f"""Placement is not searched: of the {len(times)} orders of the axes of the best mapping on the network,
        {same} are within 0.1 % of the fastest, the default (tp, cp, dp, pp) is {percent(usual / shortest - 1)} above
        it, and the worst is {percent(longest / shortest - 1)} above."""


# ------------------------------------------------------------------------------------------------- memory


def memory(story: Story) -> list[Part]:
    """Return the best mapping for each memory limit."""
    best = {name: best_within(story.found, most) for name, most in {ALL: np.inf, **ROOM}.items()}
    again = [each for each in best.values() if each and each.point.workload.recompute != "none"]
    columns, runs = story.found.trials.results.columns, story.found.trials.results.feasible
    pairs = zip((columns["memory_bytes"][runs] / 1e9).tolist(), columns["step_s"][runs].tolist(), strict=True)
    dots = [(gigabytes, step) for gigabytes, step in pairs if step <= 2 * story.best.step_s]
    marked = [story.best, story.chosen, *story.named[:3]]
    return [
        Heading("With less memory"),
        Text(
            f"""The best mapping fills {story.best.filled} of the memory, NVIDIA's by this model {story.nvidia.filled}.
            Frameworks, fragmentation and imbalance need some of it; `constraints: [memory_bytes <= {SAFE}]` leaves that
            free. {len(again)} of the best mappings for these {len(best)} limits recompute; the others save memory by
            more parallelism."""
        ),
        Table(
            ["memory to use", "best mapping", "step", "longer", "needs"],
            [
                [name, each.mapping, each.step, percent(each.longer(story.best)), each.memory]
                if each
                else [name, "nothing fits", None, None, None]
                for name, each in best.items()
            ],
            "The best mapping within each limit.",
        ),
        Figure(
            scatter(
                dots,
                x=Axis("memory", "GB", better="lower"),
                y=Axis("step", "s", better="lower"),
                title="Step and memory of the mappings that fit",
                front=front_of(dots),
                marks=[Mark(each.name, each.metrics.memory_bytes / 1e9, each.step_s) for each in marked],
            ),
            "memory",
            "Mappings up to twice the best step. On the front, less memory costs time.",
        ),
    ]


def best_within(found: Found, most_bytes: float) -> Candidate | None:
    """Return the best mapping within a memory limit."""
    places = order(found.trials.results, most_bytes)
    return at(found, places[0], "") if places else None
