"""One design evaluated, as an answer: its metrics or the reasons why it cannot run, and what every question says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Annotated, Any

from cosmic.base.json_types import AlwaysFalse, AlwaysTrue, Count, Keywords, json_keys
from cosmic.design.answer import Answer, Answered, ExpectedRange, Improvement, MemoryNeed, NextCommand, Provenance
from cosmic.design.design_point import DesignPoint
from cosmic.search.advice.design_advice import Advised, Change, explain_bound
from cosmic.search.design_wording import (
    design_in_words,
    evaluate_command_of,
    metric_text,
    search_command_of,
    setting_option,
)
from cosmic.simulate.metrics import Infeasible, Metrics, Outcome


@dataclass(frozen=True, slots=True)
class CompletedMapping:
    """What of the mapping nobody stated."""

    suggested: Sequence[str] = ()
    """The fields of the workload that a quick search has set."""
    searched: Count = 0
    """Mappings that it evaluated; 0 where none was needed."""


@json_keys(
    "settings",
    "command",
    own=False,
    kind="change.kind",
    changes="change.settings",
    condition="change.condition",
    speedup="change.speedup",
    step_s="change.step_s",
    tokens_per_s="change.tokens_per_s",
    samples_per_s="change.samples_per_s",
    memory_bytes="change.memory_bytes",
)
@dataclass(frozen=True, slots=True)
class AdvisedChange:
    """A change, or a pair of them."""

    change: Change
    settings: Mapping[str, Any]
    """Everything to set, by path: the changes, what was set before, and the mapping that stays."""
    source: str

    @property
    def command(self) -> str:
        """The command that evaluates it, quoted for a shell; empty of a design without a name."""
        return " ".join(evaluate_command_of(self.source, self.settings)) if self.source else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationQuestion:
    """What was asked of a design."""

    point: DesignPoint
    source: str = ""
    """The design as it was named; empty where it has no name."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Fields that were set, by path."""
    engine: str = "analytic"
    assumptions: Sequence[str] = ()
    """What was assumed about its model, a sentence each."""
    notes: Sequence[str] = ()
    """Fields that were stated and have no effect, a sentence each."""
    mapping: CompletedMapping = field(default_factory=CompletedMapping)
    """What of the mapping nobody stated."""
    changes: Sequence[Advised] | None = None
    """What would help; None where that was not asked for."""

    @property
    def assumed(self) -> Sequence[str] | None:
        """What was assumed about a model whose architecture is not known, a sentence each; only where something was."""
        return self.assumptions or None

    @property
    def improvements(self) -> list[AdvisedChange] | None:
        """With --advice: changes that make the design faster, or make it run, actions before purchases, each best first."""
        if self.changes is None:
            return None
        return [AdvisedChange(change, settings, self.source) for change, settings in self.changes]


def answer_evaluation(question: EvaluationQuestion, outcome: Outcome) -> Answer:
    """Return what every question is answered with, of a design."""
    point, source = question.point, question.source
    inputs = {
        "design": source or point.identity,
        "settings": dict(question.settings),
        "engine": question.engine,
        "identity": point.identity,
    }
    stated: dict[str, Any] = {
        "question": "evaluation",
        "assumptions": tuple(question.assumptions),
        "improvements": tuple(map(_improvement, question.improvements or ())),
    }
    if isinstance(outcome, Infeasible):
        return Answer(
            **stated,
            verdict=f"{design_in_words(point)} cannot run: {outcome.reasons[0]}",
            reasons=outcome.reasons,
            provenance=Provenance(inputs=inputs),
        )
    quantiles = outcome.step_s_range
    stated_options = [setting_option(path, value) for path, value in question.settings.items()]
    search = NextCommand(search_command_of(source, stated_options), "goes through all mappings")
    bound = explain_bound(point, outcome)
    step = f"{metric_text('step_s', outcome.step_s)} per step, {100 * outcome.mfu:.1f} % MFU"
    return Answer(
        **stated,
        verdict="; ".join(filter(None, [f"{design_in_words(point)}: {step}", bound])),
        expected=ExpectedRange("step_s", quantiles.p05, quantiles.p50, quantiles.p95),
        memory=MemoryNeed(outcome.memory_used_bytes, point.memory.left_bytes, outcome.fits),
        next=(search,) if source else (),
        provenance=Provenance(inputs=inputs, constants=outcome.provenance),
    )


def _improvement(advised: AdvisedChange) -> Improvement:
    change = advised.change
    what = ", ".join(f"{path} = {value}" for path, value in change.settings.items())
    return Improvement(what=what, gain=change.speedup, condition=change.condition, command=advised.command)


def _same_fields(kind: type, one: Any, other: Any) -> bool:
    """Return whether two outcomes of a *kind* are equal, whatever was asked."""
    return isinstance(other, kind) and all(
        getattr(one, each.name) == getattr(other, each.name) for each in fields(kind)
    )


@json_keys(
    "feasible",
    "reasons",
    "answer",
    without=("question",),
    optional=("improvements", "assumed"),
    identity="question.point.identity",
    notes="question.notes",
    improvements="question.improvements",
    mapping="question.mapping",
    assumed="question.assumed",
)
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EvaluatedDesign(Metrics, Answered):
    """A feasible design."""

    question: EvaluationQuestion = field(repr=False)

    @property
    def feasible(self) -> AlwaysTrue:
        """Whether the design can run."""
        return True

    @property
    def reasons(self) -> Annotated[Sequence[str], Keywords(maxItems=0)]:
        """Why the design cannot run, a sentence each; empty if it can."""
        return ()

    def __eq__(self, other: object) -> bool:
        """Return whether the metrics are the same."""
        return _same_fields(Metrics, self, other)

    __hash__ = None  # type: ignore[assignment]  # as of metrics, which have dictionaries

    @property
    def answer(self) -> Answer:
        """What every question is answered with."""
        return answer_evaluation(self.question, self)


@json_keys(
    "feasible",
    "reasons",
    "answer",
    own=False,
    optional=("improvements",),
    identity="question.point.identity",
    notes="question.notes",
    improvements="question.improvements",
)
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RefusedDesign(Infeasible, Answered):
    """An infeasible design; the command ends with exit code 1."""

    question: EvaluationQuestion = field(repr=False)

    @property
    def feasible(self) -> AlwaysFalse:
        """Whether the design can run."""
        return False

    def __eq__(self, other: object) -> bool:
        """Return whether the reasons are the same."""
        return _same_fields(Infeasible, self, other)

    def __hash__(self) -> int:
        """Return the hash of the reasons."""
        return hash((self.reasons,))

    @property
    def answer(self) -> Answer:
        """What every question is answered with."""
        return answer_evaluation(self.question, self)


def with_question(outcome: Outcome, question: EvaluationQuestion) -> EvaluatedDesign | RefusedDesign:
    """Return an outcome that says what it is of."""
    if isinstance(outcome, Infeasible):
        return RefusedDesign(reasons=outcome.reasons, question=question)
    return EvaluatedDesign(**{each.name: getattr(outcome, each.name) for each in fields(Metrics)}, question=question)
