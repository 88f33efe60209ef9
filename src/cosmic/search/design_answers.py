"""What one asks of a design, or of two: a function for each command of designs, with the words of the command.

A design is ``MODEL@SYSTEM:GPUS``, the path of a YAML file, its content, or a `DesignPoint`. *settings* maps paths to
values as they stand in files; ``tp`` is short for ``workload.tp``. *prices* is a file of quotes, or its content.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

from cosmic.base.errors import SpecError, require
from cosmic.design.catalog_parts import quotes_override
from cosmic.design.design_batch import batch_of
from cosmic.design.design_point import DesignPoint, full_path
from cosmic.design.loading import Source, design_tree
from cosmic.design.systems import is_model_at_system
from cosmic.evaluation import evaluate, step_of
from cosmic.frameworks import launch as launches
from cosmic.frameworks.launch import Launch, write_launch
from cosmic.frameworks.served_launch import check_served_kind
from cosmic.search.advice.service_question import Asked, read_service
from cosmic.search.advice.serving_answers import answer_service
from cosmic.search.compare.design_differences import Contrast, compare_designs, state_verdict
from cosmic.search.compare.design_sweep import SweptDesign, sweep_design
from cosmic.search.compare.remapping import GainSplit, Pair, load_pair, split_gain
from cosmic.search.mapping.design_completion import load_design
from cosmic.simulate.analytic_step import bounding_profile
from cosmic.simulate.metrics import Infeasible, Outcome
from cosmic.simulate.trace_generation import StepTraces, generate_traces
from cosmic.step.communication import CollectiveUse
from cosmic.step.device_memory import Footprint
from cosmic.step.operator_work import OperatorUse
from cosmic.traces.trace_jobs import write_job
from cosmic.workload.expert_loads import CACHED, CAPACITIES, SKEWS, ExpertLoads, expert_loads
from cosmic.workload.mapping_rules import invalid_reasons

Prices = str | Path | Mapping[str, Any] | None
MOST_SWEPT = 10_000
"""Combinations of a sweep."""


def evaluate_design(
    design: Source | DesignPoint,
    *,
    settings: Mapping[str, Any] | None = None,
    prices: Prices = None,
    engine: str = "analytic",
) -> Outcome:
    """Return what a design achieves (`Metrics`), or why it cannot run (`Infeasible`).

    The engine `analytic` adds up a step in closed form; `event` simulates the design's own traces, node by node. Of a
    design that serves a load, `event` simulates requests one by one.

    >>> import cosmic
    >>> metrics = cosmic.evaluate("gpt3-175b@cosmic-1024", settings={"tp": 8})
    >>> round(metrics.tokens_per_s * metrics.step_s)  # 2,048 sequences of 2,048 tokens
    4194304
    """
    return evaluate(load_design(design, settings, prices=prices), engine)


def show_design(design: Source | DesignPoint, *, settings: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return a design as a design file has it, with every name resolved and every default filled in.

    >>> import cosmic
    >>> cosmic.design.show("gpt3-175b@cosmic-1024", settings={"tp": 8})["workload"]["tp"]
    8
    """
    return design_tree(load_design(design, settings))


@dataclass(frozen=True, slots=True)
class DesignComparison:
    """Design B compared with design A."""

    verdict: str
    """Which is faster, in a sentence."""
    contrast: Contrast
    """What differs, and what each difference is worth."""
    pair: Pair
    """Both designs, and which mapping B has."""
    split: GainSplit | None
    """What the change itself is worth at the mapping of A, and what re-mapping adds."""


def diff_designs(
    a: Source | DesignPoint,
    b: Source | DesignPoint,
    *,
    settings: Mapping[str, Any] | None = None,
    settings_b: Mapping[str, Any] | None = None,
    prices: Prices = None,
    fix: Iterable[str] = (),
    same_mapping: bool = False,
) -> DesignComparison:
    """Return which of two designs is faster, what differs between them, and what each difference is worth.

    *settings* change both designs and *settings_b* B alone. B takes from A the fields that *fix* names, or, with
    *same_mapping*, its whole mapping.

    >>> import cosmic
    >>> design = "llama3-8b@dgx-h100:8"
    >>> found = cosmic.design.diff(design, design, settings={"tp": 8}, settings_b={"compute.power": "350 W"})
    >>> [difference.group for difference in found.contrast.differences]
    ['accelerator']
    """
    both = {**quotes_override(prices), **(settings or {})}
    pair = load_pair(_stated(a), _stated(b), both, settings_b or {}, fix=fix, same_mapping=same_mapping)
    rule = "one design serves a load, and the other is a single step: save both with 'cosmic serve … --save'"
    require((pair.a.serving is None) == (pair.b.serving is None), "B", str(b), rule)
    contrast = compare_designs(pair.a, pair.b)
    return DesignComparison(state_verdict(contrast), contrast, pair, split_gain(pair))


def sweep_fields(
    design: Source | DesignPoint,
    *,
    vary: Mapping[str, Sequence[Any]],
    settings: Mapping[str, Any] | None = None,
    prices: Prices = None,
    fix: Iterable[str] = (),
) -> list[SweptDesign]:
    """Return a row for every combination of the values of the fields that *vary*: what comes of it, and what moved along.

    Fields that the design does not state are chosen anew for each combination; *fix* names those that are held.

    >>> import cosmic
    >>> rows = cosmic.design.sweep("gpt3-175b@cosmic-1024", vary={"tp": [4, 8]})
    >>> [row.values for row in rows]
    [{'tp': 4}, {'tp': 8}]
    """
    count = prod(map(len, vary.values()))
    require(count <= MOST_SWEPT, "vary", count, f"at most {MOST_SWEPT:,} combinations")
    return sweep_design(_stated(design), {**quotes_override(prices), **(settings or {})}, vary, list(fix))


def _stated(design: Source | DesignPoint) -> Source:
    """Return a design as something that states fields: a design point states them all."""
    return design_tree(design) if isinstance(design, DesignPoint) else design


@dataclass(frozen=True, slots=True)
class StepWork:
    """What one step of a design is made of, on its busiest rank."""

    point: DesignPoint
    invalid: tuple[str, ...]
    """The rules of a valid mapping that it breaks."""
    operators: tuple[OperatorUse, ...]
    """With how often each runs."""
    collectives: tuple[CollectiveUse, ...]
    memory: Footprint


def list_work(design: Source | DesignPoint, *, settings: Mapping[str, Any] | None = None) -> StepWork:
    """Return the operators, collectives and memory of one step of a design, on its busiest rank.

    >>> import cosmic
    >>> work = cosmic.design.workload("gpt3-175b@cosmic-1024", settings={"tp": 8})
    >>> sorted({use.kind for use in work.collectives if use.axes == ("tp",)})
    ['all_gather', 'all_reduce', 'reduce_scatter']
    """
    point = step_of(load_design(design, settings))
    step = bounding_profile(batch_of(point))
    operators = tuple(replace(each.use, runs=each.runs) for each in step.operators if each.runs)
    return StepWork(point, invalid_reasons(point), operators, tuple(step.collectives), step.memory)


def show_experts(
    design: Source | DesignPoint,
    *,
    skew: Sequence[float] = SKEWS,
    copies: Sequence[int] = (),
    capacity: Sequence[float] = CAPACITIES,
    cache: Sequence[float] = CACHED,
    settings: Mapping[str, Any] | None = None,
) -> ExpertLoads:
    """Return what skewed routing does to a design's experts: the fullest rank, dropped tokens, hits of a cache.

    *skew* are Zipf exponents of routing, *copies* numbers of redundant experts of a layer, *capacity* capacity factors,
    and *cache* shares of the experts in a cache.

    >>> import cosmic
    >>> found = cosmic.design.experts("deepseek-v3@dgx-h200:32", settings={"task": "decode", "ep": 32, "tp": 1, "pp": 1})
    >>> found.experts, found.ep
    (256, 32)
    """
    return expert_loads(load_design(design, settings), skew, copies, capacity, cache)


def export_design(
    design: Source | DesignPoint,
    *,
    to: str,
    settings: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
) -> Launch:
    """Return a design as the arguments, environment and files of another program; with *out*, write them to that folder.

    *to* is megatron, torchtitan or deepspeed, which train, vllm, sglang, trtllm or dynamo, which serve, nccl, or
    astra-sim. A design that cannot run is refused.

    >>> import cosmic
    >>> launch = cosmic.design.export("llama3-8b@dgx-h100:8", to="megatron", settings={"tp": 8})
    >>> launch.arguments["--tensor-model-parallel-size"]
    8
    """
    launches.targets.check(to, "to")
    point, assumed = choose_exported(design, to, settings or {})
    check_served_kind(point, to)  # whether or not the design could run
    outcome = evaluate(point)
    if isinstance(outcome, Infeasible):
        raise SpecError("design", point.identity, f"cannot run: {'; '.join(outcome.reasons)}")
    launch = launches.targets[to](point)
    launch = replace(launch, warnings=(*(f"assumed: {each}" for each in assumed), *launch.warnings))
    if out is not None:
        write_launch(launch, out)
    return launch


def choose_exported(
    design: Source | DesignPoint, to: str, settings: Mapping[str, Any]
) -> tuple[DesignPoint, tuple[str, ...]]:
    """Return the design to export, and what was assumed of it.

    Of MODEL@SYSTEM without a load, a serving target gets what `cosmic serve` says: its best deployment for a usual one.
    """
    named = isinstance(design, str) and is_model_at_system(design)
    if to not in launches.ENGINES or not named or _states_load(settings):
        return load_design(design, settings), ()
    engine = "" if {"engine", "serving.engine"} & settings.keys() else "vllm" if to == "dynamo" else to
    service = read_service(str(design), dict(settings), Asked(engine=engine))
    load = f"the load is a usual one: state yours with 'cosmic serve {design} … --save FILE', and export FILE"
    return answer_service(service, []).design, (*service.assumed, load)


def _states_load(settings: Mapping[str, Any]) -> bool:
    """Return whether settings ask for a single step, or have a whole load: then nothing of it is to be assumed."""
    stated = {full_path(path) for path in settings}
    many = {"serving.load.rate", "serving.load.concurrency"} & stated
    return "workload.task" in stated or (bool(many) and {"serving.load.isl", "serving.load.osl"} <= stated)


def generate_step_traces(
    design: Source | DesignPoint, *, settings: Mapping[str, Any] | None = None, out: str | Path | None = None
) -> StepTraces:
    """Return the traces of one training step of a design, with their communicator groups; with *out*, write them.

    Files are ``PREFIX.<rank>.et`` and ``PREFIX.json``, where *out* is the prefix.

    >>> import cosmic
    >>> len(cosmic.trace.generate("llama3-8b@dgx-h100:8").traces.ranks)
    8
    """
    step = generate_traces(step_of(load_design(design, settings)))
    if out is not None:
        write_job(step.traces, step.groups, out)
    return step
