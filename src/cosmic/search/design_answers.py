"""What one asks of a design, or of two: a function for each command of designs, with the words of the command.

A design is ``MODEL@SYSTEM:GPUS``, the path of a YAML file, its content, or a `DesignPoint`. *settings* maps paths to
values as they stand in files; ``tp`` is short for ``workload.tp``. *prices* is a file of quotes, or its content.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cosmic.base.errors import SpecError, require
from cosmic.base.json_types import Count, Ratio, json_keys, unit
from cosmic.design.answer import Answer, Answered, Provenance
from cosmic.design.catalog_parts import quotes_override
from cosmic.design.design_batch import batch_of
from cosmic.design.design_point import DesignPoint, Identity, full_path
from cosmic.design.loading import Source, design_tree
from cosmic.design.systems import is_model_at_system
from cosmic.evaluation import evaluate, step_of
from cosmic.search.compare.design_differences import Contrast, Method, Side, compare_designs, state_verdict
from cosmic.search.compare.remapping import (
    GainSplit,
    Mode,
    Pair,
    SweptDesign,
    compared_mappings_text,
    load_pair,
    split_gain,
    sweep_design,
)
from cosmic.search.evaluated_design import EvaluatedDesign, EvaluationQuestion, RefusedDesign, with_question
from cosmic.search.mapping.design_completion import load_design
from cosmic.simulate.analytic_step import bounding_profile
from cosmic.simulate.metrics import Infeasible
from cosmic.step.communication import CollectiveUse
from cosmic.step.device_memory import Footprint
from cosmic.step.operator_work import OperatorUse
from cosmic.workload.expert_loads import CACHED, CAPACITIES, SKEWS, ExpertLoads, expert_loads
from cosmic.workload.mapping_rules import invalid_reasons

if TYPE_CHECKING:
    from cosmic.frameworks.launch import Launch
    from cosmic.simulate.trace_generation import StepTraces

Prices = str | Path | Mapping[str, Any] | None
MOST_SWEPT = 10_000
"""Combinations of a sweep."""


def evaluate_design(
    design: Source | DesignPoint,
    *,
    settings: Mapping[str, Any] | None = None,
    prices: Prices = None,
    engine: str = "analytic",
) -> EvaluatedDesign | RefusedDesign:
    """Return what a design achieves (`Metrics`), or why it cannot run (`Infeasible`); either has a verdict.

    The engine `analytic` adds up a step in closed form; `event` simulates the design's own traces, node by node. Of a
    design that serves a load, `event` simulates requests one by one.

    >>> import cosmic
    >>> metrics = cosmic.evaluate("gpt3-175b@cosmic-1024", settings={"tp": 8})
    >>> round(metrics.tokens_per_s * metrics.step_s)  # 2,048 sequences of 2,048 tokens
    4194304
    """
    point = load_design(design, settings, prices=prices)
    source = str(design) if isinstance(design, str | Path) else ""
    question = EvaluationQuestion(point=point, source=source, settings=dict(settings or {}), engine=engine)
    return with_question(evaluate(point, engine), question)


def show_design(design: Source | DesignPoint, *, settings: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return a design as a design file has it, with every name resolved and every default filled in.

    >>> import cosmic
    >>> cosmic.design.show("gpt3-175b@cosmic-1024", settings={"tp": 8})["workload"]["tp"]
    8
    """
    return design_tree(load_design(design, settings))


@json_keys("identity", "feasible", "reasons", without=("side",))
@dataclass(frozen=True, slots=True)
class ComparedDesign:
    """One of the two designs."""

    design: str
    """The design as it was named."""
    settings: Mapping[str, Any]
    """Fields that were changed, by path; of B, also those that it takes from A."""
    side: Side

    @property
    def identity(self) -> Identity:
        """Hash of the complete design: equal for equal designs, however they were written."""
        return self.side.point.identity

    @property
    def feasible(self) -> bool:
        """Whether the design can run."""
        return not self.side.reasons

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the design cannot run, a sentence each; empty if it can."""
        return self.side.reasons


@dataclass(frozen=True, slots=True)
class RemappedField:
    """One field."""

    a: Any
    """Its value in A's mapping; None if it has none."""
    b: Any
    """Its value in B's best mapping; None if it has none."""


@dataclass(frozen=True, slots=True)
class ComparedMappings:
    """Which mappings were compared, and how the gain in tokens per second splits."""

    mode: Mode
    """B has its best mapping, A's, its best with some fields of A's, or the one that it states."""
    sentence: str
    """The same in words."""
    fixed: tuple[str, ...]
    """Fields that --fix holds."""
    change_speedup: Ratio | None = None
    """B with A's mapping over A; None where one cannot run, or B states its mapping."""
    remapping_speedup: Ratio | None = None
    """B with its best mapping over B with A's; None likewise."""
    reasons: tuple[str, ...] = ()
    """Why B cannot run with A's mapping, a sentence each."""
    remapped: Mapping[str, RemappedField] = field(default_factory=dict)
    """Fields in which the two mappings of B differ, by path."""


@dataclass(frozen=True, slots=True)
class MetricPair:
    """One metric."""

    a: Annotated[float | None, unit("that of the metric")]
    """A's value; None if it has none."""
    b: Annotated[float | None, unit("that of the metric")]
    """B's value; None if it has none."""
    ratio: Ratio | None
    """B's over A's."""


@dataclass(frozen=True, slots=True)
class ComponentPair:
    """One component."""

    a: Annotated[float, unit("s")]
    """Its time in A."""
    b: Annotated[float, unit("s")]
    """Its time in B."""
    difference_s: float
    """B's minus A's."""


@dataclass(frozen=True, slots=True)
class DifferenceAttribution:
    """How worth was computed."""

    method: Method
    """Average over all orders of the changes, over a sample of them, over first and last; or none."""
    designs: Count
    """Designs evaluated, A and B among them."""
    invalid: Count
    """Designs between A and B that are invalid mappings."""
    over_memory: Count
    """Designs that exceed the memory; their times count all the same."""
    together_s: float
    """Joint effect of several differences."""


@json_keys(
    "verdict",
    "mapping",
    "metrics",
    "attribution",
    "breakdown",
    "answer",
    without=("pair", "split", "contrast"),
    differences="contrast.differences",
    certainty="contrast.certainty",
)
@dataclass(frozen=True, slots=True)
class DesignComparison(Answered):
    """A comparison of two designs: what differs, and what each difference is worth."""

    a: ComparedDesign
    b: ComparedDesign
    contrast: Contrast
    """What differs, and what each difference is worth."""
    pair: Pair
    """Both designs, and which mapping B has."""
    split: GainSplit | None
    """What the change itself is worth at the mapping of A, and what re-mapping adds."""

    @property
    def verdict(self) -> str:
        """Which is faster and mostly why, in one sentence."""
        return state_verdict(self.contrast)

    @property
    def mapping(self) -> ComparedMappings:
        """Which mappings were compared."""
        pair, split, sentence = self.pair, self.split, compared_mappings_text(self.pair, self.split)
        if split is None:
            return ComparedMappings(pair.mode, sentence, pair.fixed)
        remapped = {path: RemappedField(*values) for path, values in split.remapped.items()}
        return ComparedMappings(pair.mode, sentence, pair.fixed, split.change, split.remapping, split.reasons, remapped)

    @property
    def metrics(self) -> dict[str, MetricPair]:
        """Every metric of either design, by name, in the unit of its name (see 'cosmic schema evaluate')."""
        a, b = self.contrast.a.metrics, self.contrast.b.metrics
        values = {name: (a.get(name), b.get(name)) for name in {**a, **b}}
        return {
            name: MetricPair(ours, theirs, theirs / ours if ours and theirs is not None else None)
            for name, (ours, theirs) in values.items()
        }

    @property
    def attribution(self) -> DifferenceAttribution:
        """How worth was computed."""
        contrast = self.contrast
        return DifferenceAttribution(
            contrast.method, contrast.designs, contrast.invalid, contrast.over_memory, contrast.together_s
        )

    @property
    def breakdown(self) -> dict[str, ComponentPair]:
        """Components of the step, by name; empty where a step has no time."""
        a, b = self.contrast.a.breakdown, self.contrast.b.breakdown
        return {name: ComponentPair(a[name], b[name], b[name] - a[name]) for name in a if name in b}

    @property
    def answer(self) -> Answer:
        """What every question is answered with."""
        sure = self.contrast.certainty
        return Answer(
            question="difference",
            verdict=self.verdict,
            reasons=tuple(
                f"{name} cannot run: {reason}"
                for name, each in (("A", self.a), ("B", self.b))
                for reason in each.reasons
            ),
            assumptions=(self.mapping.sentence, *([] if sure is None else [sure.sentence])),
            provenance=Provenance(inputs={"a": self.a.design, "b": self.b.design, "settings": self.b.settings}),
        )


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
    sides = (
        ComparedDesign(_name_of(a), both, contrast.a),
        ComparedDesign(_name_of(b), pair.settings, contrast.b),
    )
    return DesignComparison(*sides, contrast, pair, split_gain(pair))


def _name_of(design: Source | DesignPoint) -> str:
    """Return a design as it was named: by its identity where it has no name."""
    return str(design) if isinstance(design, str | Path) else load_design(design).identity


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
    from cosmic.frameworks.launch import targets, write_launch  # noqa: PLC0415  heavy
    from cosmic.frameworks.served_launch import check_served_kind  # noqa: PLC0415  heavy

    targets.check(to, "to")
    point, assumed = choose_exported(design, to, settings or {})
    check_served_kind(point, to)  # whether or not the design could run
    outcome = evaluate(point)
    if isinstance(outcome, Infeasible):
        raise SpecError("design", point.identity, f"cannot run: {'; '.join(outcome.reasons)}")
    launch = targets[to](point)
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
    from cosmic.frameworks.launch import ENGINES  # noqa: PLC0415  heavy
    from cosmic.search.advice.service_question import Asked, read_service  # noqa: PLC0415  heavy
    from cosmic.search.advice.serving_answers import answer_service  # noqa: PLC0415  heavy

    named = isinstance(design, str) and is_model_at_system(design)
    if to not in ENGINES or not named or _states_load(settings):
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
    from cosmic.simulate.trace_generation import generate_traces  # noqa: PLC0415  heavy
    from cosmic.traces.trace_jobs import write_job  # noqa: PLC0415  heavy

    step = generate_traces(step_of(load_design(design, settings)))
    if out is not None:
        write_job(step.traces, step.groups, out)
    return step
