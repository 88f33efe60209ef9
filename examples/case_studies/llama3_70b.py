"""LLaMA-3 70B on 512 H100: which mapping to train with, against the one that NVIDIA publishes.

The whole space is gone through, so that what is said of its best is said of all of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

import numpy as np
from common import Effort, find, write_page

import cosmic
from cosmic.design.point import DesignPoint
from cosmic.design.workload import AXES
from cosmic.evaluation import Infeasible, Metrics, Outcome
from cosmic.exploration.problem import Results
from cosmic.exploration.searching import Found
from cosmic.reporting.charts import Axis, Bar, Group, Mark, Series, bars, heat_map, lines, scatter
from cosmic.reporting.page import Figure, Heading, Part, Table, Text

NPUS = 512
TASK = {"workload.sequence": 8192, "workload.global_batch": 2048, "workload.precision": "bf16"}
INTERLEAVED = {"schedule": "interleaved", "virtual_stages": 5}
NVIDIA = {"tp": 4, "pp": 8, "sp": 1, "weight_sharding": "zero1", **INTERLEAVED}
NAMED: dict[str, dict[str, Any]] = {
    "NVIDIA's": NVIDIA,
    "TP 8, PP 4": {"tp": 8, "pp": 4, "sp": 1, "weight_sharding": "zero1"},
    "FSDP alone": {"tp": 1, "pp": 1, "sp": 1, "weight_sharding": "zero3", "recompute": "full"},
    "FSDP and TP 8": {"tp": 8, "pp": 1, "sp": 1, "weight_sharding": "zero3"},
}
SPLIT = "workload.{tp,pp,sp,dp}"
SCHEDULE = "workload.{schedule,virtual_stages}"
PARAMETERS = {
    SPLIT: {"split": "npus", "powers_of_two": True},
    SCHEDULE: [["1f1b", 1], ["zero_bubble", 1], *(["interleaved", parts] for parts in (2, 4, 5, 10, 20))],
    "workload.micro_batch": [1, 2, 4],
    "workload.weight_sharding": ["zero1", "zero2", "zero3"],
    "workload.recompute": ["none", "full"],
    "workload.sequence_parallel": [True, False],
    "workload.context_parallel": ["ring", "all_gather", "ulysses"],
}
CONSTRAINTS = [
    "tp <= 8",  # a node
    "pp <= 16",
    "sp <= 16",
    "model.layers % (pp * virtual_stages) == 0",
    "global_batch % (dp * micro_batch) == 0",
    # One spelling of what is the same: a search should not count it twice.
    'sp > 1 or context_parallel == "ring"',
    "tp > 1 or sequence_parallel",
    'pp > 1 or schedule == "1f1b"',
]
PUBLISHED = (1664.0, 1633.0, 1639.0, 1621.0)
"""Tokens a second and GPU of LLAMA3_70B in FP8 on 64 H100: Megatron-Bridge, docs/performance-summary-archive.md."""
TITAN = (597.3, 652.4)
"""The same of TorchTitan in bf16: pytorch/torchtitan, benchmarks/asyncTP_llama3_h100_2025-06_torchtitan.md."""
ROOM = {"72 GB": 72e9, "64 GB": 64e9, "48 GB": 48e9, "40 GB": 40e9}
SAFE = "72 GB"
WITHIN = (0.01, 0.02, 0.05, 0.10)
CAPACITY = 80 * 2**30
SHOWN = ("matrix", "attention", "other", "recompute", "tp", "sp", "weights", "dp", "pp", "bubble")


@dataclass(frozen=True)
class Candidate:
    """A mapping with a name, and what becomes of it."""

    name: str
    point: DesignPoint
    outcome: Outcome

    @property
    def metrics(self) -> Metrics:
        """What it achieves; only for what runs."""
        if isinstance(self.outcome, Infeasible):
            raise SystemExit(f"{self.name}: {self.outcome.reasons[0]}")
        return self.outcome


def design(mapping: Mapping[str, Any], npus: int = NPUS, **changes: Any) -> DesignPoint:
    """Return the training of LLaMA-3 70B with a mapping."""
    chosen = {f"workload.{key}": value for key, value in mapping.items()}
    return cosmic.load_design(f"llama3-70b@dgx-h100:{npus}", TASK | chosen | changes)


def candidate(name: str, point: DesignPoint) -> Candidate:
    """Return a mapping with what becomes of it."""
    return Candidate(name, point, cosmic.evaluate(point))


def space() -> dict[str, Any]:
    """Return every mapping that is looked at."""
    base: dict[str, Any] = {"model": "llama3-70b", "system": f"dgx-h100:{NPUS}"}
    base["workload"] = {key.removeprefix("workload."): value for key, value in TASK.items()} | NVIDIA
    return {"name": "llama3-70b-512", "base": base, "parameters": PARAMETERS, "constraints": CONSTRAINTS}


def look(effort: Effort) -> Found:
    """Return every mapping evaluated, or for a quick look some of them."""
    parameters = cosmic.load_space(space())
    if effort.share >= 1:
        return find(parameters, parameters.valid, agent="exhaustive")
    return find(parameters, effort.trials(parameters.valid // 4))


# ------------------------------------------------------------------------------------------------- in words


def written(point: DesignPoint) -> str:
    """Return a mapping in one line, without what is usual."""
    w = point.workload
    parts = [f"tp {w.tp}"] + ([f"sp {w.sp} ({w.context_parallel})"] if w.sp > 1 else []) + [f"pp {w.pp}", f"dp {w.dp}"]
    parts += [f"micro-batch {w.micro_batch}", w.weight_sharding]
    if w.pp > 1:
        parts.append(f"{w.schedule} {w.virtual_stages}" if w.virtual_stages > 1 else w.schedule)
    parts += [f"recompute {w.recompute}"] if w.recompute != "none" else []
    parts += ["no sequence parallelism"] if w.tp > 1 and not w.sequence_parallel else []
    return ", ".join(parts)


def per_gpu(metrics: Metrics, npus: int = NPUS) -> float:
    """Return tokens a second and GPU."""
    return metrics.tokens_per_s / npus


def percent(share: float, digits: int = 1) -> str:
    """Return a share for a reader."""
    return f"{100 * share:.{digits}f} %"


def seconds(candidate: Candidate) -> str:
    """Return the step in closed form."""
    return f"{candidate.metrics.step_s:.2f} s"


def gigabytes(candidate: Candidate) -> str:
    """Return the memory that a mapping needs."""
    return f"{candidate.metrics.memory_bytes / 1e9:.1f} GB"


def filled(candidate: Candidate) -> str:
    """Return how much of the memory that is."""
    return percent(candidate.metrics.memory_bytes / CAPACITY, 0)


def more(candidate: Candidate, best: Candidate) -> float:
    """Return how much longer a step takes than the best, as a share."""
    return candidate.metrics.step_s / best.metrics.step_s - 1


# ------------------------------------------------------------------------------------------------- the search


def order(results: Results, most_bytes: float = np.inf, keep: Any = True) -> list[int]:
    """Return where the mappings that fit stand, the fastest first; of those that achieve the same, the first."""
    columns = results.columns
    fits = results.feasible & (columns["memory_bytes"] <= most_bytes) & keep
    places = np.flatnonzero(fits)
    pairs = np.stack([columns[name][places].round(6) for name in ("step_s", "memory_bytes")], axis=1)
    _, first = np.unique(pairs, axis=0, return_index=True)
    found: list[int] = places[first].tolist()
    return found


def at(found: Found, place: int, name: str) -> Candidate:
    """Return the mapping at a place of the search, as one with a name."""
    return candidate(name, found.problem.space.point(found.trials.rows[place]))


def fields(found: Found, path: str) -> Any:
    """Return a field of every mapping that was looked at."""
    return found.problem.space.columns(found.trials.rows)[path]


def close(found: Found) -> list[tuple[float, int, int]]:
    """Return how many mappings are within a share of the best, and how many splits of the GPUs they have."""
    steps = found.trials.results.columns["step_s"]
    least = np.nanmin(steps)
    splits = np.stack([fields(found, f"workload.{axis}") for axis in ("tp", "pp", "sp")], axis=1)
    counts = []
    for share in WITHIN:
        near = steps <= least * (1 + share)
        counts.append((share, int(near.sum()), len(np.unique(splits[near], axis=0))))
    return counts


def grid(found: Found) -> tuple[list[int], list[int], list[list[float | None]]]:
    """Return the best step for each degree of tensor and pipeline parallelism."""
    steps, tp, pp = (
        found.trials.results.columns["step_s"],
        fields(found, "workload.tp"),
        fields(found, "workload.pp"),
    )
    rows, columns = sorted(set(tp.tolist())), sorted(set(pp.tolist()))
    values: list[list[float | None]] = []
    for row in rows:
        here = [steps[(tp == row) & (pp == column) & np.isfinite(steps)] for column in columns]
        values.append([float(each.min()) if len(each) else None for each in here])
    return rows, columns, values


# ------------------------------------------------------------------------------------------------- the page


@dataclass(frozen=True)
class Story:
    """Everything that the page tells."""

    found: Found
    best: Candidate
    plain: Candidate
    """The best of those with ZeRO-1, as NVIDIA's has it."""
    shallow: Candidate
    """The best of those with stages of at most five parts, as NVIDIA's has."""
    chosen: Candidate
    """The best of those that also leave memory free: what to begin with."""
    named: Sequence[Candidate]
    played: Mapping[str, float]
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
    def running(self) -> list[Candidate]:
        """Those of them that can run."""
        return [each for each in self.all if isinstance(each.outcome, Metrics)]


def told(effort: Effort) -> Story:
    """Return what the page tells: the search, the mappings with names, and the plays of some."""
    found = look(effort)
    results = found.trials.results
    best = at(found, order(results)[0], "best found")
    zero1 = fields(found, "workload.weight_sharding") == "zero1"
    plain = at(found, order(results, keep=zero1)[0], "best with ZeRO-1")
    few = fields(found, "workload.virtual_stages") <= NVIDIA["virtual_stages"]
    shallow = at(found, order(results, keep=few)[0], "best of few parts")
    chosen = at(found, (order(results, ROOM[SAFE], few) or order(results))[0], f"best in {SAFE}")
    named = [candidate(name, design(mapping)) for name, mapping in NAMED.items()]
    played = {}
    # A play takes seconds: a quick look has the cheapest only.
    for each in [best, shallow, chosen, *named[:2]] if effort.share >= 1 else named[1:2]:
        outcome = cosmic.evaluate(each.point, "event")
        if isinstance(outcome, Metrics):
            played[each.name] = outcome.step_s
    return Story(found, best, plain, shallow, chosen, named, played)


def make(effort: Effort) -> list[Part]:
    """Return the page."""
    story = told(effort)
    return [*answer(story), *mappings(story), *flatness(story), *memory(story), *trust(story), *learned(story)]


def answer(story: Story) -> list[Part]:
    """Return the question and its answer."""
    best, nvidia, chosen = story.best, story.nvidia, story.chosen
    trials, error = story.found.trials, best.metrics.expected_error
    return [
        Text(
            f"""LLaMA-3 70B is to be trained in bf16 on {NPUS} H100 (64 nodes of eight, InfiniBand NDR between them),
            with sequences of 8,192 tokens and {TASK["workload.global_batch"]:,} of them a step. Which mapping should
            one begin with, and what is lost with the one that NVIDIA publishes for this model?"""
        ),
        Text(
            f"""Begin with `{written(chosen.point)}`: {seconds(chosen)} a step, {per_gpu(chosen.metrics):,.0f}
            tokens/s/GPU, {percent(chosen.metrics.mfu)} of the peak, {gigabytes(chosen)}. Of {len(trials):,} mappings,
            {trials.feasible:,} fit. The fastest, `{written(best.point)}`, takes {seconds(best)} and
            {gigabytes(best)}; the one to begin with fills {filled(chosen)} of the memory and
            is {percent(more(chosen, best))} slower."""
        ),
        Text(
            f"""NVIDIA's mapping, `{written(nvidia.point)}`, takes {percent(more(nvidia, chosen))} longer
            {in_play(story)}. That is less than the {percent(error, 0)} by which an uncalibrated estimate is expected
            to be off. Part of such an error is common to all mappings and does not change their order, but how much
            was not measured: the difference says what to try first, not what to believe."""
        ),
    ]


def in_play(story: Story) -> str:
    """Return the same difference by the other engine."""
    if story.nvidia.name not in story.played:
        return "in closed form"
    longer = story.played[story.nvidia.name] / story.played[story.chosen.name] - 1
    return f"in closed form, {percent(longer)} when both are played"


def mappings(story: Story) -> list[Part]:
    """Return what each named mapping achieves, and the ten best."""
    rows: list[list[Any]] = []
    for each in story.all:
        if isinstance(each.outcome, Infeasible):
            rows.append([each.name, written(each.point), *[None] * 5, each.outcome.reasons[0]])
            continue
        figures = [round(per_gpu(each.outcome)), percent(each.outcome.mfu), gigabytes(each)]
        rows.append([each.name, written(each.point), seconds(each), *figures, percent(more(each, story.best)), ""])
    columns = ["name", "mapping", "step", "tokens/s/GPU", "MFU", "memory", "longer than best", "note"]
    if not any(row[-1] for row in rows):
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    parts = [
        [each.name, *(f"{each.metrics.breakdown[name]:.2f}" for name in SHOWN), f"{each.metrics.step_s:.2f}"]
        for each in story.running
    ]
    ten = [at(story.found, place, str(rank + 1)) for rank, place in enumerate(order(story.found.trials.results)[:10])]
    best = [
        [int(each.name), written(each.point), seconds(each), round(per_gpu(each.metrics)), gigabytes(each)]
        for each in ten
    ]
    return [
        Heading("The mappings"),
        Text(
            """The space: every split of the GPUs over tensor (tp, within a node), pipeline (pp), sequence or context
            (sp) and data (dp) parallelism in powers of two; micro-batches of 1, 2 and 4; 1F1B, zero-bubble and
            interleaved schedules of 2 to 20 parts a stage; ZeRO 1 to 3; recomputation of nothing or of everything;
            activations between tensor-parallel regions split or not; keys gathered, passed round, or heads exchanged.
            Layers must divide evenly over stages and parts."""
        ),
        Table(
            columns,
            rows,
            f"{NPUS} H100 with {CAPACITY / 1e9:.1f} GB each. By the closed form; MFU of 989 TFLOP/s. NVIDIA's mapping"
            " is that of its 64-GPU run with more replicas; the rules of thumb are ours to compare with.",
        ),
        Table(
            ["name", *SHOWN, "step"],
            parts,
            "Seconds of a step by part. Communication counts where compute waits for it; what hides does not show.",
        ),
        Text(breakdown_text(story)),
        Table(
            ["", "mapping", "step", "tokens/s/GPU", "memory"],
            best,
            "The ten best. Of mappings that the model cannot tell apart, equal in time and memory, one is shown.",
        ),
    ]


def breakdown_text(story: Story) -> str:
    """Return what makes the difference between the best and the published mapping."""
    best, nvidia = story.best.metrics, story.nvidia.metrics
    gaps = {name: nvidia.breakdown[name] - best.breakdown[name] for name in SHOWN}
    first, second, *_ = sorted(gaps, key=lambda name: -gaps[name])
    hidden = (nvidia.step_s - nvidia.breakdown["tp"]) / (best.step_s - best.breakdown["tp"]) - 1
    return f"""The published mapping spends {nvidia.step_s - best.step_s:.1f} s more, {gaps[first]:.1f} s of it in
        `{first}` and {gaps[second]:.1f} s in `{second}`. Here every tensor-parallel collective is waited for; a
        framework that runs them beside the matrix products gets part of that back. If all of it were hidden in both,
        the difference would be {percent(hidden)}: that is the part of the answer that depends least on how good the
        overlap is."""


def flatness(story: Story) -> list[Part]:
    """Return how flat the optimum is."""
    counts = close(story.found)
    steps = np.sort(story.found.trials.results.columns["step_s"][story.found.trials.results.feasible])
    longer = 100 * (steps / steps[0] - 1)
    curve = [(float(share), float(place + 1)) for place, share in enumerate(longer) if share <= 100]
    tp, pp, values = grid(story.found)
    return [
        Heading("How flat the optimum is"),
        Table(
            ["within", "mappings", "splits of the GPUs (tp, pp, sp)"],
            [[f"{100 * share:.0f} % of the best", count, splits] for share, count, splits in counts],
            "How many mappings are about as good as the best.",
        ),
        Figure(
            lines(
                [Series("mappings", curve, steps=True)],
                x=Axis("longer than the best step", "%"),
                y=Axis("mappings", "", log=True),
                title="Mappings within a distance of the best",
            ),
            "flatness",
            "The curve begins steeply: few are the best, hundreds are nearly as good.",
        ),
        Figure(
            heat_map(
                [f"tp {each}" for each in tp],
                [f"pp {each}" for each in pp],
                values,
                value=Axis("best step", "s", better="lower"),
                title="Best step for each degree of tensor and pipeline parallelism",
                names=("tensor", "pipeline stages"),
            ),
            "grid",
            "Each cell is the best over everything else: sequence parallelism, schedule, sharding, recomputation.",
        ),
        Text(placement_text(story)),
    ]


def placement_text(story: Story) -> str:
    """Return what the order of the axes over the network makes of the best mapping."""
    times = {}
    for axes in permutations(AXES):
        workload = replace(story.best.point.workload, placement=axes)
        outcome = cosmic.evaluate(replace(story.best.point, workload=workload))
        if isinstance(outcome, Metrics):
            times[axes] = outcome.step_s
    usual, least, most = times["tp", "sp", "dp", "pp"], min(times.values()), max(times.values())
    same = sum(each <= least * 1.001 for each in times.values())
    return f"""Placement is not searched: of the {len(times)} orders in which the axes of the best mapping can lie on
        the network, {same} are within 0.1 % of the fastest, the usual one (tensor, sequence, data, pipeline) is
        {percent(usual / least - 1)} above it, and the worst is {percent(most / least - 1)} above."""


def memory(story: Story) -> list[Part]:
    """Return how the choice changes with the memory that may be used."""
    results = story.found.trials.results
    rows = []
    for name, most in {"85.9 GB (all)": np.inf, **ROOM}.items():
        places = order(results, most)
        if not places:
            rows.append([name, "nothing fits", None, None, None])
            continue
        best = at(story.found, places[0], name)
        rows.append([name, written(best.point), seconds(best), percent(more(best, story.best)), gigabytes(best)])
    runs = results.feasible
    dots = [
        (float(a) / 1e9, float(b))
        for a, b in zip(results.columns["memory_bytes"][runs], results.columns["step_s"][runs], strict=True)
        if b <= 2 * story.best.metrics.step_s
    ]
    front = pareto(dots)
    marked = [story.best, story.chosen, *(each for each in story.named[:3] if each in story.running)]
    marks = [Mark(each.name, each.metrics.memory_bytes / 1e9, each.metrics.step_s) for each in marked]
    return [
        Heading("With less memory"),
        Text(
            f"""The best mapping fills {filled(story.best)} of the memory, NVIDIA's by this model
            {filled(story.nvidia)}. Frameworks, fragmentation and uneven loads want some of it;
            `constraints: [memory_bytes <= 72 GB]` leaves it to them."""
        ),
        Table(["memory to use", "best mapping", "step", "longer", "needs"], rows, "The best that keeps to a limit."),
        Figure(
            scatter(
                dots,
                x=Axis("memory", "GB", better="lower"),
                y=Axis("step", "s", better="lower"),
                title="Step and memory of the mappings that fit",
                front=front,
                marks=marks,
            ),
            "memory",
            "Mappings up to twice the best step. On the front, less memory costs time.",
        ),
    ]


def pareto(dots: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points that none is better than in both."""
    kept: list[tuple[float, float]] = []
    for dot in sorted(dots):
        if not kept or dot[1] < kept[-1][1]:
            kept.append(dot)
    return kept


def trust(story: Story) -> list[Part]:
    """Return what speaks for and against the numbers: the other engine, and what was published."""
    return [Heading("How far to trust it"), *played(story), *published()]


def played(story: Story) -> list[Part]:
    """Return the comparison with the event engine."""
    chosen = [each for each in story.running if each.name in story.played]
    by_form = sorted(chosen, key=lambda each: each.metrics.step_s)
    by_play = sorted(chosen, key=lambda each: story.played[each.name])
    same = [each.name for each in by_form] == [each.name for each in by_play]
    off = max(abs(story.played[each.name] / each.metrics.step_s - 1) for each in chosen)
    rows = [
        [
            each.name,
            seconds(each),
            f"{story.played[each.name]:.2f} s",
            percent(story.played[each.name] / each.metrics.step_s - 1),
        ]
        for each in by_form
    ]
    groups = [
        Group(each.name, [Bar("closed form", each.metrics.step_s), Bar("played", story.played[each.name])])
        for each in by_form
    ]
    ranks = ", ".join(each.name for each in by_play)
    verdict = "keep their order" if same else f"change their order (now {ranks})"
    return [
        Text(
            f"""Played node by node (`--engine event`), where collectives contend for the wire and nothing hides by
            assumption, {len(chosen)} of the mappings {verdict}; the two engines differ by at most {percent(off)}.
            Those with many parts a stage lose most: each part sends its activations on, which the closed form counts
            once for an empty pipeline and the event engine every time that somebody waits for them."""
        ),
        Table(["mapping", "closed form", "played", "difference"], rows, "The same steps by both engines."),
        Figure(
            bars(groups, x=Axis("step", "s", better="lower"), title="A step in closed form and played"),
            "engines",
            "What the closed form takes as hidden is partly seen when it is played.",
        ),
    ]


def published() -> list[Part]:
    """Return the comparison with what NVIDIA measured."""
    told = {"workload.precision": "fp8", "workload.global_batch": 256}
    fits = cosmic.evaluate(design(NVIDIA, 64, **told))
    roomy = candidate("published run", design(NVIDIA, 64, **told, **{"memory.capacity": "120 GiB"})).metrics
    ours, low, high = per_gpu(roomy, 64), min(PUBLISHED), max(PUBLISHED)
    fsdp = {"tp": 8, "pp": 1, "sp": 1, "weight_sharding": "zero3", "recompute": "full", "micro_batch": 16}
    titan = per_gpu(candidate("TorchTitan", design(fsdp, 256, **{"workload.global_batch": 512})).metrics, 256)
    over = percent(roomy.memory_bytes / CAPACITY - 1, 0)
    note = fits.reasons[0] if isinstance(fits, Infeasible) else "fits"
    return [
        Text(
            f"""NVIDIA's summary (NVIDIA-NeMo/Megatron-Bridge, `docs/performance-summary-archive.md`) has this mapping
            for LLAMA3_70B on 64 H100 with 256 sequences a step, in FP8 only: {low:,.0f} to {high:,.0f} tokens/s/GPU
            over four releases. For that run, this model gives {ours:,.0f} tokens/s/GPU,
            {percent(ours / high - 1)} to {percent(ours / low - 1)} too many.

            In bf16 there are TorchTitan's runs (pytorch/torchtitan, `benchmarks`, asynchronous tensor parallelism) on
            256 H100 of another make, with 96 GB of slower memory and 500 W: FSDP with tp 8, micro-batches of 16 and
            full recomputation, {TITAN[0]:,.0f} tokens/s/GPU, and {TITAN[1]:,.0f} with tensor-parallel collectives
            overlapped. This model, with the H100 of 700 W, gives {titan:,.0f}: {percent(titan / TITAN[1] - 1, 0)} to
            {percent(titan / TITAN[0] - 1, 0)} more. Some of that is the hardware; how much is not known."""
        ),
        Text(
            f"""It also gives a warning: with two replicas it says of that run, "{note}". It did run, so the memory
            of this mapping is overestimated here, by {over} at least. Gradients are taken as fp32, and what is kept
            for the backward pass as bf16 also where matrices multiply in fp8; the summary says neither.
            On {NPUS} GPUs the optimizer's states are spread further, and the mapping fits."""
        ),
    ]


def learned(story: Story) -> list[Part]:
    """Return what was learned."""
    best, nvidia, plain, chosen = story.best, story.nvidia, story.plain, story.chosen
    shallow = story.shallow
    counts = {share: count for share, count, _ in close(story.found)}
    runs = [each for each in story.named[1:] if isinstance(each.outcome, Metrics)]
    thumb = "; ".join(f"{each.name}, {percent(more(each, best), 0)}" for each in runs)
    feasible = story.found.trials.feasible
    saved = 1 - chosen.metrics.step_s / nvidia.metrics.step_s
    return [
        Heading("What was learned"),
        Text(
            f"""The published mapping is a good one: {percent(more(nvidia, best))} from the best of the whole space,
            less than the error to be expected. The rules of thumb are further away: {thumb}.

            The optimum is flat and small. {counts[0.05]:,} mappings are within 5 % and {counts[0.1]:,} within 10 % of
            the best, of {feasible:,} that fit: {percent(counts[0.1] / feasible)} of them. Among those, choose by what
            the framework does well; a search pays by keeping one out of the rest.

            What the better mappings share is less tensor parallelism, with the memory that takes paid for by sequence
            parallelism across GPUs and by spreading gradients (ZeRO-2). Where the framework has ZeRO-1 only, there is
            `{written(plain.point)}` at {seconds(plain)}. The fastest fill the memory ({filled(shallow)} for the best
            of few parts), which is closer than a model of memory should be trusted.

            Headroom is affordable: in {SAFE}, with at most five parts a stage, a step takes
            {percent(more(chosen, best))} longer than the shortest of all, and still {percent(saved)} less than with
            NVIDIA's mapping, which needs {gigabytes(nvidia)}.

            Two engines are better than one: stages of {best.point.workload.virtual_stages} parts look best in closed
            form, and lose to those of {shallow.point.workload.virtual_stages} when they are played."""
        ),
        Heading("What this does not say"),
        Text(
            f"""The efficiencies of the H100 in the catalog are estimates, not calibrated for this model; networks have
            not been checked against measured runs of this size. A mapping that is {percent(0.02, 0)} better here may be
            worse there. Overlap of tensor-parallel collectives, uneven nodes, stragglers and the time to restart are
            not modelled. The paper has no such study: it is here to ask of the tool what one would ask of it first."""
        ),
    ]


if __name__ == "__main__":
    write_page("LLaMA-3 70B on 512 H100", "llama3-70b", make)
