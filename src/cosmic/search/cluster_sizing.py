"""Sizes clusters: for each system, the number of accelerators that fits, its best mapping, and what the run takes.

    systems ──▶ numbers that fit (price, power) ──▶ best mapping of each ──▶ checkpoints and recovery ──▶ the best row

A question is a model to train on so many tokens, and what may be spent on it. Numbers to try are whole nodes that
parallelism can divide. Mappings are searched, not taken from a rule of thumb. All that is tried is kept, and counted.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache, cached_property
from itertools import islice, product
from math import isfinite, lcm
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from cosmic.base import units
from cosmic.base.errors import SpecError, require
from cosmic.base.json_types import PositiveCount, Share, json_keys, unit
from cosmic.base.optimise import Steps, optimise
from cosmic.cluster.cluster_cost import ClusterCost, cluster_cost
from cosmic.cluster.goodput import checkpoint_bytes
from cosmic.cluster.interruption_terms import run_fields, run_terms
from cosmic.cluster.run_simulation import simulate_runs
from cosmic.design import catalog_entries, schema
from cosmic.design.answer import Answer, Answered, ExpectedRange, MemoryNeed, Provenance
from cosmic.design.catalog_parts import quotes_override
from cosmic.design.design_batch import batch_of, batch_of_changes
from cosmic.design.design_point import DesignPoint, full_path
from cosmic.design.loading import design_tree, load_machine
from cosmic.design.systems import count_instance_npus, system_dimensions
from cosmic.design.systems import read_system as catalog_system
from cosmic.evaluation import evaluate, evaluate_batch
from cosmic.search.design_wording import metric_label, metric_text
from cosmic.search.mapping.design_completion import complete_design
from cosmic.simulate.metrics import Infeasible, Metrics

# ---- How many accelerators to try: whole nodes, in numbers that parallelism can divide

FACTORS = (2, 3, 5)
MOST_ACCELERATORS = 2_000_000
"""Accelerators of the largest cluster that is tried."""
SHARES = (0.75, 0.5, 0.25)
"""Of the largest number that fits, smaller ones to try as well: a cluster too large for its batch waits."""
LARGEST = 3
"""So many of the largest numbers that fit are tried."""
SIXTEENTHS = 16
"""Numbers of nodes below it, times powers of two, are tried near a cluster that is the best so far."""
BATCH_SHARE = 16
"""Global batches differ by at most one part in so many: others would train another model."""


@cache
def smooth_numbers(most: int) -> tuple[int, ...]:
    """Return the numbers up to *most* with no prime factor but 2, 3 and 5 (5 at most once).

    >>> smooth_numbers(12)
    (1, 2, 3, 4, 5, 6, 8, 9, 10, 12)
    """
    smooth = {1}
    for factor in FACTORS:
        multiples = set(smooth)
        times = factor
        while times <= most:
            multiples |= {number * times for number in smooth if number * times <= most}
            times = times * factor if factor != FACTORS[-1] else most + 1
        smooth = multiples
    return tuple(sorted(smooth))


def counts_within(node: int, fits: Callable[[int], bool], most: int | None = None) -> list[int]:
    """Return numbers of accelerators to try, in nodes of *node*, largest first; none if one node is too many.

    *fits* says whether so many are within the limits: if a number is, smaller ones are.

    >>> counts_within(8, lambda npus: npus <= 100)
    [96, 80, 72, 48, 24]
    """
    multiples = smooth_numbers(max(1, min(MOST_ACCELERATORS, most or MOST_ACCELERATORS) // node))
    if most is not None and most < node:
        return []
    fitting = bisect_right(multiples, False, key=lambda nodes: not fits(nodes * node))
    if not fitting:
        return []
    largest = multiples[fitting - 1]
    chosen = {multiples[index] for index in range(max(0, fitting - LARGEST), fitting)}
    chosen |= {multiples[bisect_right(multiples, share * largest) - 1] for share in SHARES if share * largest >= 1}
    return [nodes * node for nodes in sorted(chosen, reverse=True)]


def fewest_accelerators(node: int, most: int) -> Steps[int, bool, int | None]:
    """Ask for numbers of accelerators; return a small one up to *most*, in nodes of *node*, that meets a goal, or None.

    Nodes are doubled until the goal is met, and the range between the last two is halved: the number is the smallest
    if all larger ones meet the goal too.

    >>> asked = []
    >>> optimise(fewest_accelerators(8, 1000), lambda npus: asked.append(npus) or npus >= 300), asked
    (320, [8, 16, 32, 64, 128, 256, 512, 384, 320, 288])
    >>> optimise(fewest_accelerators(8, 200), lambda npus: npus >= 300) is None
    True
    """
    multiples = smooth_numbers(max(1, most // node))
    power = 1
    while not (yield node * min(power, multiples[-1])):
        if power >= multiples[-1]:
            return None
        power *= 2
    low, high = bisect_right(multiples, power // 2), multiples.index(min(power, multiples[-1]))
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if (yield node * multiples[middle]) else (middle + 1, high)
    return node * multiples[high]


def batch_near(batch: int, npus: int) -> int:
    """Return a global batch near the *batch* one that replicas on *npus* accelerators can share.

    Odd factors of the number of accelerators are in some axis; a batch that has them too lets that be dp.

    It has as many factors of two as a batch within a part in `BATCH_SHARE` can have; the *batch* one where none has
    the odd factors.

    >>> batch_near(2048, 16384), batch_near(2048, 12288), batch_near(2048, 15360), batch_near(2048, 8 * 557)
    (2048, 1920, 1920, 2048)
    """
    odd = _odd_factor(npus)
    if batch % odd == 0:
        return batch
    for power in range(10, -1, -1):
        step = odd * 2**power
        near: int = max(1, round(batch / step)) * step
        if BATCH_SHARE * abs(near - batch) <= batch:
            return near
    return batch


def _odd_factor(number: int) -> int:
    """Return the largest odd factor of a number."""
    while number % 2 == 0:
        number //= 2
    return number


def smaller_counts(node: int, most: int) -> Iterator[int]:
    """Yield fewer accelerators than *most*, in nodes of *node*, by halves.

    >>> list(smaller_counts(8, 240))
    [120, 56, 24, 8]
    """
    nodes = most // node // 2
    while nodes:
        yield node * nodes
        nodes //= 2


def ladder_counts(node: int, most: int) -> Iterator[int]:
    """Yield 1, 3, 5 and 15 times powers of two of nodes, up to *most* accelerators, largest first.

    They are the same for every limit, so that a larger one looks at all that a smaller one looks at.

    >>> list(ladder_counts(8, 100))
    [96, 80, 64, 48, 40, 32, 24, 16, 8]
    """
    nodes = most // node
    powers = [1 << index for index in range(nodes.bit_length())]
    for count in sorted({odd * power for odd in (1, 3, 5, 15) for power in powers}, reverse=True):
        if count <= nodes:
            yield node * count


def counts_around(node: int, npus: int, most: int) -> list[int]:
    """Return numbers from half of *npus* to its double, up to *most*, whose nodes divide well, largest first.

    Nodes without prime factors above 5, or of at most four binary digits and zeros.

    >>> counts_around(8, 8 * 20, 8 * 32)
    [256, 240, 224, 216, 208, 192, 176, 160, 144, 128, 120, 112, 104, 96, 88, 80]
    """
    low, high = -(-npus // (2 * node)), min(most, 2 * npus) // node
    smooth = smooth_numbers(max(1, high))
    nodes = set(smooth[bisect_right(smooth, low - 1) :])
    for digits in range(1, SIXTEENTHS):
        power = 1
        while digits * power <= high:
            if digits * power >= low:
                nodes.add(digits * power)
            power *= 2
    return [node * count for count in sorted(nodes, reverse=True)]


def largest_within(node: int, fits: Callable[[int], bool], most: int | None = None) -> int:
    """Return the largest number of accelerators in whole nodes of *node* that *fits*; 0 if one node is too many.

    >>> largest_within(8, lambda npus: npus <= 117)
    112
    """
    nodes = range(1, min(MOST_ACCELERATORS, most or MOST_ACCELERATORS) // node + 1)
    return node * bisect_right(nodes, False, key=lambda count: not fits(count * node))


def finer_counts(node: int, largest: int, batch: int) -> Iterator[int]:
    """Yield every number of whole nodes up to *largest*, downwards, whose replicas can share a batch near *batch*.

    >>> list(finer_counts(8, 112, 512))[:4], next(finer_counts(8, 8 * 557, 2048))
    ([112, 104, 96, 88], 4448)
    """
    for npus in range(largest, 0, -node):
        if batch_near(batch, npus) % _odd_factor(npus) == 0:
            yield npus


# ---- What a buyer asks: a model to train on so many tokens, and what may be spent on it

OBJECTIVES = ("train_days", "train_usd", "train_energy_j", "train_co2_kg", "cost_usd")
"""What may be made small."""
SECONDS_PER_DAY = 86_400.0
EXAMPLES = {units.USD: "200 M USD", units.WATTS: "25 MW", units.SECONDS: "90 day"}
"""An amount of each kind, as people write it."""
ASKED_ELSEWHERE = {
    "model": "is the model of the question: name it there",
    "system": "name systems with --systems",
    "run.tokens": "state them with --tokens",
}
"""Fields that the question itself states, each with where."""
RECENT = 2022
"""Systems of accelerators from this year on are looked at, if nobody says which."""


@json_keys(without=("overrides",))
@dataclass(frozen=True, slots=True)
class Question:
    """A question about clusters: at least one limit is given."""

    model: str
    """The model."""
    tokens: Annotated[float, unit("tokens")]
    """Tokens to train on."""
    budget_usd: float | None = None
    """To buy the cluster with."""
    power_w: float | None = None
    """Most power at the meter."""
    accelerators: int | None = None
    """Most accelerators."""
    deadline_days: float | None = None
    """By when the model must be trained: then the least expensive cluster is looked for that makes it."""
    objective: str = "train_days"
    """What is made small."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Fields of every design, as files write them."""

    def __post_init__(self) -> None:
        limits = (self.budget_usd, self.power_w, self.accelerators, self.deadline_days)
        rule = "say what may be spent: --budget, --power, --accelerators or --deadline"
        require(any(limit is not None for limit in limits), "size", self.model, rule)
        for name, value in (
            ("--tokens", self.tokens),
            ("--budget", self.budget_usd),
            ("--power", self.power_w),
            ("--accelerators", self.accelerators),
            ("--deadline", self.deadline_days),
        ):
            require(value is None or value > 0, name, value, "must be above 0")
            require(value is None or isfinite(value), name, value, "must be above 0 and finite")
        require(self.objective in OBJECTIVES, "--objective", self.objective, f"must be one of {', '.join(OBJECTIVES)}")
        for path, rule in ASKED_ELSEWHERE.items():
            require(path not in self.overrides, f"--set {path}", self.overrides.get(path), rule)
        if self.objective == "cost_usd":
            rule = "one node costs least: say by when with --deadline"
            require(self.deadline_days is not None, "--objective", self.objective, rule)


def read_amount(text: str | float | None, option: str, dimension: units.PhysicalDimension) -> float | None:
    """Return a limit as people write it: with its unit, or as a plain number of SI units.

    >>> read_amount("200 M USD", "--budget", units.USD), read_amount("25MW", "--power", units.WATTS)
    (200000000.0, 25000000.0)
    >>> read_amount("200M", "--budget", units.USD)
    200000000.0
    """
    if text is None or isinstance(text, int | float):
        return text
    count = units.read_count(text)
    if count is not None:
        return count
    try:
        return float(text.replace(",", ""))
    except ValueError:
        pass
    try:
        return units.read_quantity(text, dimension)
    except SpecError as error:
        example = EXAMPLES.get(dimension)
        rule = f"write a number and its unit, such as '{example}'" if example else error.rule
        raise SpecError(option, text, rule) from None


def read_days(text: str | float | None, option: str) -> float | None:
    """Return days as people write them: with a unit of time, or as a plain number of days.

    >>> read_days("90 day", "--deadline"), read_days("12 h", "--deadline"), read_days("7.5", "--deadline")
    (90.0, 0.5, 7.5)
    """
    if text is None or isinstance(text, int | float):
        return text
    try:
        return float(text.replace(",", ""))
    except ValueError:
        seconds = read_amount(text, option, units.SECONDS)
    return None if seconds is None else seconds / SECONDS_PER_DAY


def systems_asked(systems: list[str] | tuple[str, ...]) -> list[str]:
    """Return the systems to look at, by their names in the catalog: those given, or all recent ones that are sold."""
    if systems:
        names = [catalog_entries.resolve_name("systems", name) or name for name in systems]
        for index, name in enumerate(names):
            catalog_entries.read_entry("systems", name)  # refuses what there is not
            require(name not in names[:index], "--systems", name, "is there twice")
        return names
    return [name for name in catalog_entries.entry_names("systems") if _is_recent_system(name)]


def _is_recent_system(name: str) -> bool:
    entry = catalog_entries.read_entry("systems", name)
    year = catalog_entries.read_entry("accelerators", entry["accelerator"]).get("year", 0)
    return "node" in entry and year >= RECENT


# ---- Designs with some of their numbers multiplied, such as another price or bandwidth

EVERY_DIMENSION = "network.dims.*"
"""In a path of factors: each dimension of the network."""
OUTERMOST = "network.outermost"
"""In a path of factors: the dimension between nodes, if there are several."""


def scale_design(point: DesignPoint, factors: Mapping[str, float]) -> DesignPoint:
    """Return a design with numbers multiplied; what is not known, or is not there at its size, stays so."""
    changes = {}
    for pattern, factor in factors.items():
        for path in _scaled_paths(point, pattern):
            value = schema.get_field(point, path)
            require(value is None or isinstance(value, int | float), path, value, "is no number")
            if value is not None:
                changes[path] = value * factor
    scaled: DesignPoint = schema.assign_fields(point, changes) if changes else point
    return scaled


def _scaled_paths(point: DesignPoint, path: str) -> list[str]:
    """Return the paths that are meant: a machine has as many network dimensions as its size needs."""
    dims = len(point.network.dims)
    if path.startswith(EVERY_DIMENSION):
        return [path.replace("*", str(index)) for index in range(dims)]
    if path.startswith(OUTERMOST):  # within one node there is no network between nodes
        return [path.replace(OUTERMOST, f"network.dims.{dims - 1}")] if dims > 1 else []
    return [path]


CHECKPOINTS = ("asynchronous", "in_memory", "blocking")
"""Ways to keep the state that are tried, if nobody states one."""
LARGER_IS_NO_BETTER = "larger is no better"
FINER = 16
"""Whole-node numbers near the limit that are tried besides, as long as one could be the best."""
IN_VAIN = 8
"""After so many of them in a row that train no sooner, no more are tried."""
FINER_AGAIN = 4
"""The same where an input is changed a little."""
HARDLY_WORSE = 3
"""Where a quarter of a cluster takes less than so many times as long, smaller ones may be better still."""
NO_FACTORS: Mapping[str, float] = {}
OF_MAPPING = ("model", "workload")
"""Layers that the search of mappings reads; all others say what the machine is."""


@json_keys(
    without=("point",),
    train_days="metrics.train_days",
    cost_usd="metrics.cost_usd",
    power_w="metrics.power_w",
    train_usd="metrics.train_usd",
)
@dataclass(frozen=True, slots=True)
class Tried:
    """One cluster that was looked at, with the best mapping and checkpoints found for it."""

    system: str
    """System of the catalog."""
    accelerators: PositiveCount
    """How many."""
    point: DesignPoint
    metrics: Metrics


OF_ROWS = (
    *("train_days", "goodput", "cost_usd", "power_w", "train_usd", "train_energy_j", "train_co2_kg", "network_usd"),
    *("mfu", "tokens_per_s", "samples_per_s", "effective_tokens_per_s"),
)
"""Metrics of the best cluster of a system."""


@json_keys(
    "bound_by",
    "train_days_failures",
    "train_days_steps",
    "design",
    own=False,
    system="best.system",
    accelerators="best.accelerators",
    **{name: f"best.metrics.{name}" for name in OF_ROWS},
)
@dataclass(frozen=True, slots=True)
class Row:
    """The best of one system."""

    best: Tried
    bound_by: str
    """The limit that allows no more: budget, power or accelerators; or why no more are wanted: deadline, or larger is
    no better."""
    risk: Risk | None = None
    """Spread of the days to train; None where they are not known, or it was not asked for."""

    @property
    def train_days_failures(self) -> DaysToTrain | None:
        """Spread by chance of failures, simulated; None where the days are not known."""
        return self.risk.failures if self.risk else None

    @property
    def train_days_steps(self) -> DaysToTrain | None:
        """Spread by the error of predicted steps; None where the days are not known."""
        return self.risk.steps if self.risk else None

    @property
    def design(self) -> dict[str, Any]:
        """The design, as a design file has it."""
        return design_tree(self.best.point)


@dataclass(frozen=True, slots=True)
class Counted:
    """What was gone through."""

    systems: int = 0
    """Systems with an answer."""
    sizes: int = 0
    """Clusters whose mapping was searched."""
    mappings: int = 0
    """Mappings that were evaluated."""
    designs: int = 0
    """Ways to checkpoint that were evaluated."""


@json_keys("answer", without=("seconds",), enumerated="counted", sensitivity="effects")
@dataclass(frozen=True)
class Sizing(Answered):
    """What to buy of each system, best first."""

    question: Question
    """What was asked; None where nothing is said."""
    rows: tuple[Row, ...]
    """The best of each system."""
    refused: Mapping[str, str]
    """Systems without an answer, each with the reason."""
    tried: tuple[Tried, ...]
    """Every size that was tried, with its best mapping."""
    counted: Counted
    """What was gone through."""
    seconds: float = 0.0
    effects: tuple[Effect, ...] = ()
    """What a tenth more of each input does to the best row, as shares."""

    def __repr__(self) -> str:
        """Say what to buy in a line: a notebook shows it."""
        if self.best is None:
            return f"<Sizing of {self.question.model}: no system can be sized>"
        tried = self.best.best
        name = self.question.objective
        reached = metric_text(name, getattr(tried.metrics, name))
        return f"<Sizing of {self.question.model}: {tried.accelerators:,} accelerators of {tried.system}, {name} {reached}>"

    @property
    def best(self) -> Row | None:
        """The best of all systems."""
        return self.rows[0] if self.rows else None

    @property
    def answer(self) -> Answer:
        """What every question is answered with."""
        asked = self.question
        stated = {each.name: getattr(asked, each.name) for each in fields(asked)}
        inputs = {name: value for name, value in stated.items() if value not in (None, {})}
        if self.best is None:
            return Answer(
                question="purchase",
                verdict=f"{asked.model}: no system can be sized",
                reasons=tuple(f"{name}: {why}" for name, why in self.refused.items()),
                provenance=Provenance(inputs=inputs),
            )
        best = self.best.best
        days, risk = best.metrics.train_days, self.best.risk
        verdict = f"{best.accelerators:,} {best.point.compute.accelerator} in {best.system}"
        reached = metric_text(asked.objective, getattr(best.metrics, asked.objective))
        verdict += f": {metric_label(asked.objective)} {reached}"
        late = asked.deadline_days is not None and days is not None and days > asked.deadline_days
        return Answer(
            question="purchase",
            verdict=verdict,
            assumptions=(f"no cluster that was tried makes it in {asked.deadline_days:,.4g} days",) if late else (),
            expected=None
            if risk is None
            else ExpectedRange("train_days", risk.steps.p05, risk.steps.p50, risk.steps.p95),
            memory=MemoryNeed(best.metrics.memory_used_bytes, best.point.memory.left_bytes, best.metrics.fits),
            provenance=Provenance(inputs=inputs, constants=best.metrics.provenance),
        )

    def assess(self, *, sensitivity: bool = True) -> Sizing:
        """Return the same with the risk of each row and, if asked for, what a tenth more of each input does."""
        rows = tuple(replace(row, risk=simulate_risk(row.best.point, row.best.metrics)) for row in self.rows)
        return replace(self, rows=rows, effects=tuple(measure_sensitivity(self)) if sensitivity else ())


def size_clusters(
    question: Question, systems: Sequence[str] = (), progress: Callable[[str], None] = lambda _: None
) -> Sizing:
    """Return what to buy of each of *systems*; of all recent ones that are sold, if none is named."""
    sizer = Sizer(question)
    sizer.check()
    rows, refused = [], {}
    for name in systems_asked(tuple(systems)):
        progress(name)
        try:
            sized = sizer.row(name)
        except UnsizedError as error:
            refused[name] = str(error)
            continue
        rows.append(sized)
    rows.sort(key=lambda row: sizer.loss(row.best.metrics))
    return Sizing(question, tuple(rows), refused, tuple(sizer.tried), replace(sizer.counted, systems=len(rows)))


def size(  # noqa: PLR0913  the options of the command
    model: str,
    *,
    tokens: str | float,
    budget: str | float | None = None,
    power: str | float | None = None,
    deadline: str | float | None = None,
    accelerators: int | None = None,
    systems: Sequence[str] = (),
    objective: str = "train_days",
    settings: Mapping[str, Any] | None = None,
    prices: str | Path | Mapping[str, Any] | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Sizing:
    """Return what to buy to train *model* on so many *tokens*: the best cluster of each system, best first.

    *budget*, *power* and *deadline* are limits with their units, such as "200 M USD", or numbers in dollars, watts and
    days. Without *systems*, all recent ones that are sold are looked at. With a deadline, the least expensive cluster
    that makes it is best.

    >>> import cosmic
    >>> found = cosmic.size("llama3-8b", tokens="1T", accelerators=64, systems=["dgx-h100"])
    >>> found.best.best.accelerators <= 64
    True
    """
    question = Question(
        model=model,
        tokens=_read_tokens(tokens),
        budget_usd=read_amount(budget, "--budget", units.USD),
        power_w=read_amount(power, "--power", units.WATTS),
        accelerators=accelerators,
        deadline_days=read_days(deadline, "--deadline"),
        objective=objective,
        overrides={**quotes_override(prices), **(settings or {})},
    )
    return size_clusters(question, systems, progress)


def _read_tokens(text: str | float) -> float:
    if isinstance(text, int | float):
        return float(text)
    count = units.read_count(text)
    if count is not None:
        return count
    try:
        return float(text.replace(",", ""))
    except ValueError:
        raise SpecError("--tokens", text, "write a number of tokens, such as 15T") from None


class UnsizedError(Exception):
    """Why a system has no answer, in words."""


@dataclass
class Sizer:
    """Answers a question for one system after the other; mappings that were searched are kept."""

    question: Question
    tried: list[Tried] = field(default_factory=list)
    counted: Counted = Counted()
    _mapped: dict[tuple[str, int], DesignPoint | str] = field(default_factory=dict)

    def row(self, system: str, factors: Mapping[str, float] = NO_FACTORS, question: Question | None = None) -> Row:
        """Return the answer for a system; numbers of the design at paths of *factors* are multiplied by them."""
        goal = question or self.question
        machine = self._machine(system, factors)
        if machine.run.npu_mtbf_s is None:
            raise UnsizedError(f"no rate of interruptions is known for {machine.compute.accelerator}: set run.npu_mtbf")
        node = lcm(max(1, machine.node.npus), count_instance_npus(system))
        fits, bound = self._fits(system, factors, goal)
        counts = counts_within(node, fits, goal.accelerators)
        if not counts:
            raise UnsizedError(self._too_large(system, node, factors, goal))
        most, changed = largest_within(node, fits, goal.accelerators), bool(factors) or question is not None
        tries = _SizeSearch(goal, node, counts, most, self._usual_batch, changed)
        optimise(tries.steps(), lambda npus: self._evaluate_size(system, npus, factors, goal))
        candidates = [tried for tried in tries.clusters if getattr(tried.metrics, goal.objective) is not None]
        if not candidates:
            raise UnsizedError(tries.reason or self._why_unknown(system))
        if not factors and question is None:
            self.tried += candidates
        best = min(candidates, key=lambda tried: self.loss(tried.metrics, goal))
        if _is_in_time(best, goal):
            return Row(best, "deadline")
        larger_tried = (
            max(tries.results) > best.accelerators
        )  # where none was, no batch is near for what is left of the limit
        return Row(best, LARGER_IS_NO_BETTER if larger_tried else bound(most + node) or LARGER_IS_NO_BETTER)

    def _evaluate_size(self, system: str, npus: int, factors: Mapping[str, float], goal: Question) -> Tried | str:
        """Return a cluster with its best mapping and checkpoints, or why there is none."""
        point = self._best_mapping(system, npus)
        return point if isinstance(point, str) else self._run(system, point, factors, goal)

    def loss(self, metrics: Metrics, question: Question | None = None) -> tuple[float, ...]:
        """Return what is to be small: the objective; with a deadline, days too late, then dollars or the objective."""
        goal = question or self.question
        value = getattr(metrics, goal.objective)
        days = metrics.train_days
        if goal.deadline_days is None or days is None or value is None:
            return (float("inf") if value is None else value,)
        late = max(0.0, days - goal.deadline_days)
        if goal.objective != "train_days":
            return (late, value, days)
        spent = metrics.cost_usd if metrics.cost_usd is not None else metrics.train_usd
        return (late, float("inf") if spent is None else spent, days)

    # ------------------------------------------------------------------------------------------------ machines

    def _tree(self, system: str, npus: int) -> dict[str, Any]:
        return {"model": self.question.model, "system": f"{system}:{npus}", "run": {"tokens": self.question.tokens}}

    def _machine(self, system: str, factors: Mapping[str, float], npus: int | None = None) -> DesignPoint:
        entry = catalog_entries.read_entry("systems", system)
        source = self._tree(system, npus if npus is not None else entry["npus"])
        overrides = self._overrides_at(system, npus)
        of_machine = {path: value for path, value in overrides.items() if not path.startswith(OF_MAPPING)}
        return scale_design(load_machine(source, of_machine), factors)

    def _overrides_at(self, system: str, npus: int | None) -> dict[str, Any]:
        """Return the overrides at their full paths, less those of dimensions that so few accelerators do not have."""
        overrides = {full_path(path): value for path, value in self.question.overrides.items()}
        if npus is None:
            return overrides
        dims = len(catalog_system(f"{system}:{npus}")["network"]["dims"])
        absent = tuple(f"network.dims.{index}." for index in range(dims, len(system_dimensions(system))))
        return {path: value for path, value in overrides.items() if not path.startswith(absent)}

    def _fits(
        self, system: str, factors: Mapping[str, float], goal: Question
    ) -> tuple[Callable[[int], bool], Callable[[int], str]]:
        """Return whether so many accelerators are within the limits, and which limit they break."""
        broken_limits: dict[int, str] = {}

        def broken(npus: int) -> str:
            if npus not in broken_limits:
                broken_limits[npus] = self._find_broken_limit(system, npus, factors, goal)
            return broken_limits[npus]

        return lambda npus: not broken(npus), broken

    def _find_broken_limit(self, system: str, npus: int, factors: Mapping[str, float], goal: Question) -> str:
        """Return the limit that so many accelerators break; empty where they break none."""
        try:
            cost = self._cost(system, npus, factors)
        except SpecError as error:
            if error.where != "system":
                raise
            return error.rule
        for limit, spent, most in (
            ("budget", float(cost.capital_usd), goal.budget_usd),
            ("power", float(cost.power_w), goal.power_w),
        ):
            if most is None:
                continue
            if np.isnan(spent):
                raise UnsizedError(f"no {'price' if limit == 'budget' else 'power'} is known")
            if spent > most:
                return limit
        if goal.accelerators is None:
            return ""
        machine = self._machine(system, factors, npus)
        node = max(1, machine.node.npus)
        spare = -(-machine.run.spare_npus // node) * node  # as they are bought: in whole nodes
        return "accelerators" if npus + spare > goal.accelerators else ""

    def _too_large(self, system: str, node: int, factors: Mapping[str, float], goal: Question) -> str:
        """Return in words why one node is too much, with what it takes."""
        cost, limit = self._cost(system, node, factors), self._find_broken_limit(system, node, factors, goal)
        limit_texts = {
            "budget": f"budget of {goal.budget_usd or 0:,.0f} USD, and it costs {float(cost.capital_usd):,.0f} USD",
            "power": f"power of {goal.power_w or 0:,.0f} W, and it draws {float(cost.power_w):,.0f} W",
            "accelerators": f"at most {goal.accelerators} accelerators",
        }
        return f"one node of {node} does not fit: {limit_texts.get(limit, limit)}"

    def _cost(self, system: str, npus: int, factors: Mapping[str, float]) -> ClusterCost:
        return cluster_cost(batch_of(self._machine(system, factors, npus)))

    # ------------------------------------------------------------------------------------------------ mappings

    def check(self) -> None:
        """Raise a `SpecError` where a field of model or workload that the question states has no value of its kind."""
        usual = self._usual
        for path, value in self.question.overrides.items():
            full = full_path(path)
            if not full.startswith(OF_MAPPING) or "." not in full:
                continue
            slot = schema.slot_at(usual, full)
            read = schema.read_value(slot.hint, value, full, slot.dimension)
            require(full != "workload.task" or read == "training", full, value, "only training is sized")
            try:
                schema.assign_fields(usual, {full: read})
            except SpecError as error:
                if error.where == full:  # the value itself, not how it fits the others of this design
                    raise

    def _best_mapping(self, system: str, npus: int) -> DesignPoint | str:
        """Return the design with the best mapping on so many accelerators, or why there is none."""
        if (system, npus) not in self._mapped:
            self._mapped[system, npus] = self._search(system, npus)
        return self._mapped[system, npus]

    def _search(self, system: str, npus: int) -> DesignPoint | str:
        tree = self._tree(system, npus)
        overrides = self._overrides_at(system, npus)
        try:
            if "workload.global_batch" not in overrides:
                overrides["workload.global_batch"] = batch_near(self._usual_batch, npus)
            loaded = complete_design(tree, overrides)
        except SpecError as error:
            return error.rule
        self.counted = replace(
            self.counted, sizes=self.counted.sizes + 1, mappings=self.counted.mappings + loaded.searched
        )
        outcome = evaluate(loaded.point)
        return outcome.reasons[0] if isinstance(outcome, Infeasible) else loaded.point

    @cached_property
    def _usual_batch(self) -> int:
        """The global batch of the model where nobody states one."""
        return self._usual.workload.global_batch

    @cached_property
    def _usual(self) -> DesignPoint:
        """The model with a usual workload."""
        return complete_design(f"{self.question.model}@dgx-h100:1024", {"recompute": "full"}).point

    def _run(self, system: str, point: DesignPoint, factors: Mapping[str, float], goal: Question) -> Tried:
        """Return a cluster with the best checkpoints for its run."""
        point = scale_design(schema.assign_fields(point, {"run.tokens": goal.tokens}), factors)
        set_paths = {full_path(path) for path in self.question.overrides}
        kinds = (point.run.checkpoint,) if "run.checkpoint" in set_paths else CHECKPOINTS
        changes = [{"run.checkpoint": kind} for (kind,) in product(kinds)]
        outcome = evaluate_batch(batch_of_changes(point, changes))
        self.counted = replace(self.counted, designs=self.counted.designs + len(changes))
        shares = outcome.columns["goodput"]
        best = 0 if np.isnan(shares).all() else int(np.nanargmax(shares))
        chosen = point.changed(changes[best])
        metrics = evaluate(chosen)
        assert isinstance(metrics, Metrics)  # noqa: S101  its mapping was evaluated, and checkpoints take no memory
        return Tried(system, point.network.npus, chosen, metrics)

    def _why_unknown(self, system: str) -> str:
        unknown = evaluate(self._best_mapping_of(system)).unknown  # type: ignore[union-attr]
        return unknown.get(self.question.objective, f"{self.question.objective} is unknown")

    def _best_mapping_of(self, system: str) -> DesignPoint:
        points = [candidate for (name, _), candidate in self._mapped.items() if name == system]
        return next(candidate for candidate in points if isinstance(candidate, DesignPoint))


Sized = Steps[int, Tried | str, None]
"""Part of a search for sizes, which asks for numbers of accelerators and notes what comes of them."""


@dataclass
class _SizeSearch:
    """Which numbers of accelerators of one system to try, each once."""

    goal: Question
    node: int
    counts: Sequence[int]
    """The largest numbers within the limits, and parts of them."""
    most: int
    """The largest number of whole nodes within the limits."""
    batch: int
    """The usual global batch of the model."""
    changed: bool
    """Whether an input is changed a little: then fewer numbers are tried."""
    results: dict[int, Tried | str] = field(default_factory=dict)
    """What came of each number: a cluster, or why there is none."""

    def steps(self) -> Sized:
        """Ask for numbers: with a deadline few that make it, else the largest that fit, and smaller ones."""
        until = self.goal.deadline_days
        enough = None if until is None else (yield from self._find_fewest(until))
        if until is not None and enough is not None:
            yield from self._try_below(enough, until)
            return
        any_ran = yield from self._try_within()
        if any_ran and until is None and self.goal.objective == "train_days":
            yield from self._try_finer()
        yield from self._try_smaller()
        if until is not None and (timely := [tried for tried in self.clusters if _is_in_time(tried, self.goal)]):
            yield from self._try_below(min(tried.accelerators for tried in timely), until)

    def _try(self, npus: int) -> Steps[int, Tried | str, Tried | str]:
        """Ask for a number that was not tried yet; return what came of it."""
        if npus not in self.results:
            self.results[npus] = yield npus
        return self.results[npus]

    def _days(self, npus: int) -> float:
        """Return the days of a number that was tried to train; infinite where there is no answer."""
        tried = self.results[npus]
        days = None if isinstance(tried, str) else tried.metrics.train_days
        return float("inf") if days is None else days

    def _find_fewest(self, until: float) -> Steps[int, Tried | str, int | None]:
        """Return a small number of accelerators that makes a deadline; None if none is found."""
        fewest = fewest_accelerators(self.node, self.counts[0])
        npus = next(fewest)
        while True:
            yield from self._try(npus)
            try:
                npus = fewest.send(self._days(npus) <= until)
            except StopIteration as found:
                return None if found.value is None else int(found.value)

    def _try_within(self) -> Steps[int, Tried | str, bool]:
        """Try the largest numbers, and return whether some can run; ever fewer where batch or model are too small."""
        for npus in self.counts:
            yield from self._try(npus)
        if self.clusters:
            return True
        for npus in smaller_counts(self.node, self.counts[-1]):
            power = self.node * 2 ** ((npus // self.node).bit_length() - 1)
            if isinstance((yield from self._try(power)), Tried):
                for share in (5, 6, 7):  # between this power of two of nodes and the next
                    yield from self._try(power * share // 4 // self.node * self.node)
                break
        return False

    def _try_below(self, enough: int, until: float) -> Sized:
        """Try fewer whole nodes than are *enough*, down to a number that was tried and is late."""
        for npus in islice(finer_counts(self.node, enough - self.node, self.batch), FINER):
            if npus in self.results and self._days(npus) > until:
                return
            yield from self._try(npus)

    def _try_finer(self) -> Sized:
        """Try more numbers of whole nodes, from the largest that fits downwards, while one could train sooner.

        It could if each of its accelerators were as quick as those of the cluster that uses them best: smaller numbers
        than that train later, however well they are used.
        """
        attempts, soonest = FINER_AGAIN if self.changed else FINER, float("inf")
        in_vain = 0
        for npus in finer_counts(self.node, self.most, self.batch):
            if npus in self.results:
                continue
            days = [
                (cluster.metrics.train_days, cluster.accelerators)
                for cluster in self.clusters
                if cluster.metrics.train_days
            ]
            quickest = min((cluster * accelerators for cluster, accelerators in days), default=0.0)  # accelerator-days
            before, soonest = soonest, min((cluster for cluster, _ in days), default=float("inf"))
            in_vain = 0 if soonest < before else in_vain + 1
            if not attempts or in_vain > IN_VAIN or (days and quickest >= npus * soonest):
                return
            yield from self._try(npus)
            attempts -= 1

    def _try_smaller(self) -> Sized:
        """Try ever fewer accelerators unless a part of the most is far worse, then numbers around the best of all.

        Where the batch gives each accelerator little to do, a far smaller cluster can be the better one.
        """
        if not self.clusters:
            return
        best = min(self.clusters, key=self._loss)
        parts = [part for part in self.clusters if self.most <= 8 * part.accelerators <= 8 * best.accelerators]
        if any(self._loss(part) >= HARDLY_WORSE * self._loss(best) for part in parts):
            return
        much_worse = 0
        for npus in ladder_counts(self.node, self.most):
            tried = yield from self._try(npus)
            if isinstance(tried, str):
                continue
            best = min(best, tried, key=self._loss)
            is_much_worse = npus < best.accelerators and self._loss(tried) >= 2 * self._loss(best)
            much_worse = much_worse + 1 if is_much_worse else 0
            if much_worse > 1:
                break
        previous = None
        while previous != best:
            previous = best
            for npus in counts_around(self.node, best.accelerators, self.most):
                yield from self._try(npus)
            best = min(self.clusters, key=self._loss)

    def _loss(self, cluster: Tried) -> float:
        value = getattr(cluster.metrics, self.goal.objective)
        return float("inf") if value is None else float(value)

    @property
    def clusters(self) -> list[Tried]:
        """The clusters that there are."""
        return [result for result in self.results.values() if isinstance(result, Tried)]

    @property
    def reason(self) -> str:
        """Why the largest number has no answer; empty if all have one."""
        reasons = {npus: result for npus, result in self.results.items() if isinstance(result, str)}
        return f"{max(reasons):,}: {reasons[max(reasons)]}" if reasons else ""


def _is_in_time(tried: Tried, goal: Question) -> bool:
    days = tried.metrics.train_days
    return goal.deadline_days is not None and days is not None and days <= goal.deadline_days


# ---- How sure the days of a run are: by chance of failures (simulated), and by the error of predicted steps (measured)

SIMULATED_RUNS = 100


@dataclass(frozen=True, slots=True)
class DaysToTrain:
    """Days of a run at quantiles."""

    p05: Annotated[float, unit("day")]
    """One run in twenty takes less."""
    p50: Annotated[float, unit("day")]
    """Every second takes less."""
    p95: Annotated[float, unit("day")]
    """One in twenty takes more."""


@dataclass(frozen=True, slots=True)
class Risk:
    """Spread of the days to train."""

    failures: DaysToTrain
    """If the step takes what is predicted: simulated runs, which differ by when machines fail."""
    steps: DaysToTrain
    """If failures take what is expected: the step is off by as much as others were."""


def simulate_risk(point: DesignPoint, metrics: Metrics, runs: int = SIMULATED_RUNS) -> Risk | None:
    """Return the spread of the days to train; None where they are not known."""
    if metrics.train_days is None or point.run.tokens is None:
        return None
    work_s = point.run.tokens / metrics.throughput_per_s
    share_bytes = checkpoint_bytes(point) / point.network.npus
    terms = run_terms(run_fields(point.run), point.network.npus, point.workload.dp, share_bytes, work_s)
    assert terms is not None  # noqa: S101  the days are known, and so is the rate of interruptions
    runs_result = simulate_runs(terms, work_s, runs=runs)
    slower = metrics.step_s_range
    return Risk(
        DaysToTrain(runs_result.days_at(0.05), runs_result.days_at(0.5), runs_result.days_at(0.95)),
        DaysToTrain(*(metrics.train_days * step_s / metrics.step_s for step_s in (slower.p05, slower.p50, slower.p95))),
    )


# ---- What +10 % of each input does to the answer: which of them are worth a second look before money is spent

CHANGE_FACTOR = 1.1
"""By how much an input is changed."""


@dataclass(frozen=True, slots=True)
class Effect:
    """What one input does, if it is a tenth more: shares by which answers change, None where that is not known."""

    input: str
    """The input."""
    accelerators: int
    """The best number then."""
    train_days: Share | None
    """Change of the days to train."""
    train_usd: Share | None
    """Change of the cost of the run."""
    cost_usd: Share | None
    """Change of the price."""
    power_w: Share | None
    """Change of the power."""


def measure_sensitivity(sizing: Sizing) -> list[Effect]:
    """Return the effect of every input on the best row, the one that moves the days most in front.

    Prices move the number that fits, and with it days. Mappings are searched anew for numbers that were not tried.
    """
    if sizing.best is None:
        return []
    sizer = Sizer(sizing.question)
    before = sizer.row(sizing.best.best.system)
    effects = []
    for name, factors, question in _vary_inputs(before.best.point, sizing.question):
        try:
            after = sizer.row(before.best.system, factors, question)
        except UnsizedError:
            continue
        effects.append(_measure_effect(name, before, after))
    return sorted(effects, key=_effect_size, reverse=True)


def _effect_size(effect: Effect) -> tuple[float, ...]:
    """Return how much an input matters: by days, then dollars; to a tenth of a per mille, as two may do the same."""
    return tuple(round(abs(change or 0.0), 4) for change in (effect.train_days, effect.train_usd, effect.cost_usd))


def _measure_effect(name: str, before: Row, after: Row) -> Effect:
    changes = {}
    for metric in ("train_days", "train_usd", "cost_usd", "power_w"):
        old, new = getattr(before.best.metrics, metric), getattr(after.best.metrics, metric)
        changes[metric] = None if old is None or new is None else new / old - 1
    return Effect(name, after.best.accelerators, **changes)


def _vary_inputs(point: DesignPoint, question: Question) -> Iterator[tuple[str, Mapping[str, float], Question]]:
    """Yield every input: its name, the fields of designs that are multiplied, and the question then."""
    for name, limit in (("budget", "budget_usd"), ("power limit", "power_w"), ("deadline", "deadline_days")):
        value = getattr(question, limit)
        if value is not None:
            yield name, {}, replace(question, **{limit: value * CHANGE_FACTOR})
    yield "tokens", {}, replace(question, tokens=question.tokens * CHANGE_FACTOR)
    fabric = f"{EVERY_DIMENSION}.fabric"
    fields = {
        "price of an accelerator": ("compute.price",),
        "price of a host": ("node.host_price",),
        "prices of the network": (f"{fabric}.switch_price", f"{fabric}.optic_price", f"{fabric}.cable_price"),
        "price of energy": ("facility.usd_per_kwh",),
        "power usage effectiveness": ("facility.pue",),
        "years of depreciation": ("facility.years",),
        "time between failures": ("run.npu_mtbf",),
        "time of every step": ("compute.time_factor",),
        "bandwidth between nodes": (f"{OUTERMOST}.bandwidth",),
        "bandwidth of memory": ("memory.bandwidth",),
    }
    for name, paths in fields.items():
        yield name, dict.fromkeys(paths, CHANGE_FACTOR), question
