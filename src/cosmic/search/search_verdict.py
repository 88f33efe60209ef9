"""The verdict on a search in one sentence: how much better than the base its best design is, and what bounds it.

Beside it stand the commands that report, evaluate, launch, export, replay and continue a search, and co-design compared
with tuning one layer: a full-stack search, and a search of each layer alone. Each isolated search opens one layer of
the stack and freezes the others at the base design. The gain of co-design is the best of the full stack over the best of
each isolated search.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from cosmic.design.answer import NextCommand

if TYPE_CHECKING:
    from cosmic.design.design_point import DesignPoint
    from cosmic.search.search_loop import Found


from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cosmic.base.json_types import Ratio
from cosmic.design.answer import Answer, ExpectedRange, MemoryNeed, Provenance
from cosmic.design.design_point import DesignPoint
from cosmic.evaluation import evaluate
from cosmic.search.advice.design_advice import explain_bound
from cosmic.search.design_wording import mapping_in_words, metric_label, metric_text
from cosmic.search.objectives import loss, loss_ratio
from cosmic.search.plateau import Plateau
from cosmic.search.problem import Problem
from cosmic.search.search_loop import Found, Watch, search
from cosmic.search.space.diagram import Indices
from cosmic.search.space.parameter_set import ParameterSet
from cosmic.search.space.space_files import load_space
from cosmic.search.study.measured_runs import summarize_evidence
from cosmic.simulate.metrics import Metrics

# ---- what to run after a search


REPORTED = "why, every trial, its timeline and cluster"
BEST = "best.yaml"


def resume_command(found: Found) -> str:
    """Return the command that continues a study: to its end, or to ten times as many trials if it has ended."""
    wanted = found.inputs.trials * (1 if found.stopped == "interrupted" else 10)
    return f"cosmic search --resume --out {shlex.quote(str(found.path))} -n {wanted}"


def launch_commands(found: Found, best: DesignPoint | None) -> list[NextCommand]:
    """Return the commands that write the launch of the best design of a study, by a framework that can launch it."""
    from cosmic.search.mapping.mapping_space import launchable_frameworks  # noqa: PLC0415  imports this room's searches

    if found.path is None or best is None:
        return []
    path = shlex.quote(str(found.path / BEST))
    return [
        NextCommand(f"cosmic design export {path} --to {name}", "its launch arguments")
        for name in launchable_frameworks(best)[:1]
    ]


def commands_after(found: Found, best: DesignPoint | None) -> list[NextCommand]:
    """Return what to run after a search whose trials are kept, with the launch of its *best* design; else nothing."""
    if found.path is None:
        return []
    folder = shlex.quote(str(found.path))
    brought = f" --engine {shlex.quote(found.problem.engine)}" if found.problem.user_engine is not None else ""
    commands = [NextCommand(f"cosmic report {folder}", "one page: " + ("every trial" if brought else REPORTED))]
    if found.best is not None:
        about = "the best design alone" if brought else "the best design, and what bounds it"
        commands.append(NextCommand(f"cosmic evaluate {shlex.quote(str(found.path / BEST))}{brought}", about))
    commands += launch_commands(found, best)
    commands += [
        NextCommand(f"cosmic study export {folder} --to trials.csv", "every trial, for a spreadsheet or pandas"),
        NextCommand(f"cosmic study importance {folder}", "which parameters matter"),
        NextCommand(f"cosmic study replay {folder} --check", "run it again and compare bit for bit"),
    ]
    if found.stopped != "exhausted":
        purpose = "continue" if found.stopped == "interrupted" else "more trials"
        commands.append(NextCommand(resume_command(found), purpose))
    return commands


# ---- the verdict


BASE_TEXT = "the base design"
CANNOT_RUN = "cannot run"
SHOWN_ABOVE = 5e-4
"""Share by which the design that is shown is worse than the best, from which on that is said."""
SAME_GAIN = 5e-3
"""A gain nearer to 1 than this rounds to 1.00."""


@dataclass(frozen=True, slots=True)
class SearchGain:
    """How many times better the best design is than another, by the first objective."""

    over: str
    """The other design, such as "the base design" or "the best of workload alone"."""
    times: Ratio | None
    """How many times better the best is by the first objective; None where the other cannot run."""


@dataclass(frozen=True, slots=True)
class SearchVerdict:
    """The verdict on a search."""

    sentence: str
    design: str
    """The best design in a few words; empty where nothing can run, or with several workloads."""
    gains: tuple[SearchGain, ...]
    """Gains over the base, then over the best of each isolated search; none where nothing can run."""
    bound: str
    """What bounds the best design, with its share of the step; empty where that is not known."""
    metrics: Metrics | None
    """The metrics of the best design; None where nothing can run, or with several workloads."""
    point: DesignPoint | None
    """The best design; None in the same cases."""
    plateau: Plateau | None
    """The designs that are as good, of which `point` is one; None where nothing can run."""
    proof: str
    """What was proven, in words; empty where better designs may be left."""
    caveats: tuple[str, ...]
    """Sentences that qualify the verdict."""


def judge_search(result: Found, beside: Mapping[str, Found] | None = None) -> SearchVerdict:
    """Return the verdict on a search; *beside* are searches of one layer each, by the layer's name."""
    problem = result.problem
    plateau = result.plateau
    caveats = _caveats(result)
    if plateau is None:
        return SearchVerdict(_no_design_text(result), "", (), "", None, None, None, "", caveats)
    trial = plateau.place
    point = _design_of(problem, result.trials.row(trial))
    outcome = None if point is None else evaluate(point, problem.engine)
    metrics = outcome if isinstance(outcome, Metrics) else None
    bound = "" if point is None or metrics is None else explain_bound(point, metrics)
    gains = _measure_gains(result, trial, beside or {})
    proof = proof_of(result)
    if proof and plateau.above >= SHOWN_ABOVE:
        proof = f"{_above_text(plateau)} from the {proof}"
    gained = _gain_text(gains, base_fault(problem))
    if len(problem.objectives) > 1:  # gains are in the first of them
        gained = gained.replace(
            f"no better than {BASE_TEXT}", f"no better than {BASE_TEXT} in {metric_label(problem.objectives[0])}"
        )
    sentence = "; ".join(filter(None, [proof, gained, bound]))
    if len(problem.objectives) > 1:
        sentence += f"; {_front_text(result, trial)}"
    design = "" if point is None else design_in_few_words(point)
    return SearchVerdict(sentence, design, gains, bound, metrics, point, plateau, proof, caveats)


def answer_search(result: Found, verdict: SearchVerdict) -> Answer:
    """Return what every question is answered with, of a search and its verdict."""
    inputs, metrics, point, plateau = result.inputs, verdict.metrics, verdict.point, verdict.plateau
    quantiles = None if metrics is None else metrics.step_s_range
    stated = {
        "space": inputs.identity,
        "agent": inputs.agent,
        "settings": dict(inputs.settings),
        "trials": inputs.trials,
        "objectives": list(inputs.objectives),
        "constraints": list(inputs.constraints),
        "stacks": list(inputs.stacks),
        "engine": inputs.engine,
    }
    return Answer(
        question="mapping",
        verdict=verdict.sentence,
        reasons=() if plateau is not None else tuple(map(reason_text, result.trials.reasons())),
        proof=verdict.proof,
        gap=plateau.above if plateau is not None and verdict.proof else None,
        expected=None if quantiles is None else ExpectedRange("step_s", quantiles.p05, quantiles.p50, quantiles.p95),
        assumptions=verdict.caveats,
        memory=None
        if metrics is None or point is None
        else MemoryNeed(metrics.memory_used_bytes, point.memory.left_bytes, metrics.fits),
        launch=tuple(launch_commands(result, point)),
        next=tuple(commands_after(result, point)),
        provenance=Provenance(
            inputs={name: value for name, value in stated.items() if value not in ([], {}, "")},
            seed=inputs.seed,
            constants="" if metrics is None else metrics.provenance,
        ),
    )


def _design_of(problem: Problem, row: Indices) -> DesignPoint | None:
    """Return the design of *row*; None where COSMIC cannot say more of it than its metrics."""
    return None if problem.space.workloads or not problem.of_designs else problem.space.point(row)


def best_point(result: Found) -> DesignPoint | None:
    """Return the design to take, complete; None where nothing can run, or with several workloads."""
    plateau = result.plateau
    return None if plateau is None else _design_of(result.problem, result.trials.row(plateau.place))


def proof_of(result: Found) -> str:
    """Return that a search went through every design, in words; empty where it did not."""
    problem = result.problem
    if result.stopped != "exhausted":
        return ""
    noun = "mappings" if set(problem.space.stacks) <= {"workload"} else "designs"
    claim = "best" if len(problem.objectives) == 1 else "front"
    if problem.space.provisioner is not None:
        return f"{claim} of all {problem.space.valid:,} {noun}, each with the bandwidth found for it"
    claim = f"proven {claim}"
    engine_texts = {"analytic": "", "event": ", simulated"}
    simulated = engine_texts.get(problem.engine, f", by {problem.engine}")
    return f"{claim} of {problem.space.valid:,} {noun}{simulated}"


def choice_text(ground: Plateau) -> str:
    """Return how many designs are as good as the best, and which of them is shown; empty where there is no other.

    >>> choice_text(Plateau(0.01, 19064, 3, 0.004))
    '19,064 designs lie within 1 % of the best: of these the cheapest, then the simplest, is shown (0.4 % above it)'
    """
    if ground.count == 1:
        return ""
    above = f" ({_above_text(ground)} above it)" if ground.above >= SHOWN_ABOVE else ""
    return (
        f"{ground.count:,} designs lie within {100 * ground.within:g} % of the best: of these the cheapest, then the"
        f" simplest, is shown{above}"
    )


def _above_text(ground: Plateau) -> str:
    return f"{100 * ground.above:.1f} %"


def gain_over(objective: str, value: float | None, baseline: float | None) -> float | None:
    """Return how many times better one value of an objective is than another.

    >>> gain_over("step_s", 2.0, 5.0), gain_over("tokens_per_s", 2.0, 5.0), gain_over("step_s", 2.0, None)
    (2.5, 0.4, None)
    >>> gain_over("offloaded_bytes", 0.0, 0.0), gain_over("offloaded_bytes", 0.0, 1.0)
    (1.0, inf)
    """
    if value is None or baseline is None:
        return None
    first, second = (float(loss(objective, np.array([metric]))[0]) for metric in (value, baseline))
    return loss_ratio(first, second)


def _measure_gains(result: Found, trial: int, beside: Mapping[str, Found]) -> tuple[SearchGain, ...]:
    problem = result.problem
    objective = problem.objectives[0]
    best = result.trials.results.figures(trial)[objective]
    base = problem.base_figures or {}
    gains = [SearchGain(BASE_TEXT, gain_over(objective, best, base.get(objective)))]
    for name, isolated in beside.items():
        reached = isolated.best["metrics"][objective] if isolated.best else None
        gains.append(SearchGain(f"the best of {name} alone", gain_over(objective, best, reached)))
    return tuple(gains)


def base_fault(problem: Problem) -> str:
    """Return why the base design is infeasible, in words; an empty text where it is feasible."""
    base = problem.base
    if base.feasible[0]:
        return ""
    reasons = base.reasons[0].split(", ")
    limits = [limit.text for limit in problem.limits if limit.text in reasons]
    return f"breaks the limit {limits[0]}" if len(limits) == len(reasons) else CANNOT_RUN


def gain_times_text(ratio: float) -> str:
    """Return a gain with enough digits to tell it from 1.

    >>> gain_times_text(2.314), gain_times_text(1.0012), gain_times_text(123.4), gain_times_text(0.5), gain_times_text(float("inf"))
    ('2.31×', '1.001×', '123×', '0.50×', '∞×')
    """
    if np.isinf(ratio):
        return "∞×"
    if ratio >= 100:
        return f"{ratio:.0f}×"
    return f"{ratio:.3f}×" if SAME_GAIN / 10 < abs(ratio - 1) < SAME_GAIN * 2 else f"{ratio:.2f}×"


def _gain_text(gains: tuple[SearchGain, ...], fault: str) -> str:
    """Return how much better the best design is than the base, and than the best isolated search."""
    base, isolated = gains[0].times, [gain for gain in gains[1:] if gain.times is not None]
    sentence = (
        f"{BASE_TEXT} {fault}, the best of the search {'can' if fault == CANNOT_RUN else 'meets it'}"
        if base is None
        else _gain_over_text(base, BASE_TEXT)
    )
    if isolated:
        nearest = min(isolated, key=lambda other_gain: other_gain.times or 0.0)
        ratio = nearest.times or 0.0
        is_worse = ratio < 1 - SAME_GAIN / 10
        sentence += (
            f", but {nearest.over} is {gain_times_text(_invert_ratio(ratio))} better"
            if is_worse
            else f" and {_gain_over_text(ratio, nearest.over)}"
        )
    return sentence


def _gain_over_text(ratio: float, baseline: str) -> str:
    """Return a gain over something, in words.

    >>> _gain_over_text(2.314, "the base design"), _gain_over_text(0.5, "the base design"), _gain_over_text(1.0, "the base design")
    ('2.31× over the base design', '2.00× worse than the base design', 'no better than the base design')
    """
    if abs(ratio - 1) < SAME_GAIN / 10:
        return f"no better than {baseline}"
    return (
        f"{gain_times_text(ratio)} over {baseline}"
        if ratio > 1
        else f"{gain_times_text(_invert_ratio(ratio))} worse than {baseline}"
    )


def _invert_ratio(ratio: float) -> float:
    return 1 / ratio if ratio else float("inf")


def _front_text(result: Found, trial: int) -> str:
    """Return how many designs the front has, and the range of each objective on it.

    Of a front of one design, at *trial*, the gain in objectives but the first, which is said already.
    """
    names = result.problem.objectives
    front = result.front
    if len(front) == 1:
        sentence = f"that design is the best in all {len(names)} objectives"
        base, best = result.problem.base_figures, result.trials.results.figures(trial)
        if base is None:
            return sentence
        ratios = ((name, gain_over(name, best[name], base[name])) for name in names[1:])
        gains = [
            f"{metric_label(name)} {_gain_over_text(ratio, BASE_TEXT)}" for name, ratio in ratios if ratio is not None
        ]
        return f"{sentence}: {', '.join(gains)}" if gains else sentence
    spans = []
    for name in names:
        values = [design["metrics"][name] for design in front if design["metrics"][name] is not None]
        spans.append(f"{metric_label(name)} from {metric_text(name, min(values))} to {metric_text(name, max(values))}")
    return f"the front has {len(front):,} designs: {', '.join(spans)}"


def _no_design_text(result: Found) -> str:
    if not len(result.trials):
        return "No design was tried: the search has not begun"
    sentence = f"No design that was tried can run{' within the limits' if result.problem.limits else ''}"
    reasons = result.trials.reasons()
    if not reasons:
        return sentence
    reason, count = next(iter(reasons.items()))
    many = f"{count:,} design{'' if count == 1 else 's'}"
    return f"{sentence}; the most frequent reason is {reason_text(reason)} ({many})"


def reason_text(reason: str) -> str:
    """Return in words why designs cannot run.

    >>> reason_text("memory"), reason_text("mfu >= 0.4")
    ('out of memory: an accelerator has less than the design needs', 'the limit mfu >= 0.4')
    >>> reason_text("chat: heads")
    'chat: invalid mapping: tp does not divide the number of attention heads'
    """
    share, _, rule = reason.rpartition(": ")
    explanation = REASONS.get(rule)
    if explanation is None:
        return f"the limit {reason}" if any(sign in reason for sign in "<>") else reason
    return f"{share}: {explanation}" if share else explanation


_MAPPING = {
    "ranks": "dp × tp × cp × pp is not the number of accelerators",
    "heads": "tp does not divide the number of attention heads",
    "ffn": "tp does not divide the FFN width",
    "head_groups": "tp does not divide the groups of heads of sparse attention",
    "state_heads": "tp or cp does not divide the heads and groups of the state space",
    "tokens": "cp, and tp under sequence parallelism, do not divide the sequence",
    "stages": "pp × virtual_stages is more than the number of layers",
    "stage_layers": "layers of stages do not go with pp, virtual_stages, schedule and layers",
    "experts": "ep does not divide the number of experts",
    "expert_shards": "etp does not divide tp, or the width of experts",
    "expert_ranks": "etp × ep does not divide tp × cp × dp",
    "expert_tokens": "etp × ep does not divide by tp without sequence parallelism",
    "batch": "dp × micro_batch does not divide the global batch",
    "schedule": "the pipeline schedule does not support these stages and microbatches",
    "islands": "dp alone must span the outermost network dimension for sync_period, and sync_compression needs it",
    "tables": "a recommender takes dp only",
    "task": "only models that write text decode",
    "sequence": "the model does not take so many tokens",
    "adapters": "the model has none of the modules that lora_targets names",
    "program": "the program's annotations do not name an axis that is split, or it cannot run so",
    "routing": "what is said of routing does not go with the model or the task",
    "fabric": "the build of a network does not go with its topology, or its switches have too few ports",
    "processor": "the rate at which a host updates optimizer states is not known",
    "pool": "switches of a memory pool gather and reduce sharded state in the pool alone",
}
REASONS = {
    **{rule: f"invalid mapping: {said}" for rule, said in _MAPPING.items()},
    "memory": "out of memory: an accelerator has less than the design needs",
    "offloaded": "out of memory: the outer tiers have less than is offloaded",
    "offload": "offloading without outer memory tiers",
    "network": "faults leave accelerators without a path, or name links that do not exist",
    "power": "a power cap without a known power",
    "precision": "unsupported precision: the accelerator has no rate for this format",
    "context": "requests are longer than the context of the model",
    "pools": "invalid deployment: the accelerators of the pools are not those of the network",
    "instances": "invalid deployment: dp does not divide by the ranks that share experts",
    "rate": "too much load: requests come faster than they are served",
    "cache": "out of memory: the weights leave no room for the KV cache of a request",
}
"""The rules that infeasible designs break, in words: those of `cosmic.workload.mapping_rules` and
`cosmic.serving.deployment`, and
memory."""


def _caveats(result: Found) -> tuple[str, ...]:
    sentences = []
    inputs, trials = result.inputs, result.trials
    if result.stopped == "interrupted":
        sentences.append(
            f"The search is not complete: {trials.evaluated:,} of {inputs.trials:,} designs were evaluated."
            " Resume it, and it ends as if it had never been interrupted."
        )
    if result.problem.space.workloads:
        names = ", ".join(
            f"{workload.name} (weight {workload.weight:g})" for workload in result.problem.space.workloads
        )
        sentences.append(
            f"The system runs several workloads: {names}. Times are of a round of all of them, so there is no single"
            " design to analyse: see trials, front and convergence."
        )
    sentences += [] if result.learned is None else result.learned.sentences()
    sentences += [] if result.evidence is None else summarize_evidence(result.evidence)
    fault = base_fault(result.problem) if trials.feasible else ""
    if fault:
        sentences.append(f"The base design {fault}, so there is no gain over it.")
    return tuple(sentences)


def design_in_few_words(point: DesignPoint) -> str:
    """Return a design in a few words: its mapping and its network."""
    network = " × ".join(f"{dim.topology.replace('_', ' ')} {dim.npus}" for dim in point.network.dims)
    return f"{mapping_in_words(point)}{f', on {network}' if network else ''}"


# ---- Co-design compared with tuning one layer: a full-stack search, and a search of each layer alone

FULL_STACK = "full stack"
MAX_LAYER_DESIGNS = 12_000
"""Layers with at most this many designs are searched exhaustively."""


@dataclass(frozen=True)
class Isolation:
    """A full-stack search, and a search of each of its layers alone."""

    full_stack: Found
    layers: Mapping[str, Found]

    @property
    def objective(self) -> str:
        """The first objective of all of the searches."""
        return self.full_stack.problem.objectives[0]

    @property
    def evaluated(self) -> int:
        """How many designs all searches evaluated together."""
        return sum(result.trials.evaluated for result in (*self.layers.values(), self.full_stack))

    @property
    def elapsed_s(self) -> float:
        """The seconds that all searches took together."""
        return sum(result.elapsed_s for result in (*self.layers.values(), self.full_stack))

    @property
    def base(self) -> dict[str, float | None] | None:
        """The metrics of the base design; None where it cannot run."""
        return self.full_stack.problem.base_figures

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for the base, each layer and the full stack: its best, and the full stack over that."""
        before = self.base[self.objective] if self.base else None
        rows = [self._row("nothing: the base", 1, 1, self.base or {}, before)]
        for name, result in {**self.layers, FULL_STACK: self.full_stack}.items():
            metrics = result.best["metrics"] if result.best else {}
            rows.append(self._row(name, result.problem.space.valid, result.trials.evaluated, metrics, before))
        return rows

    def _row(
        self, name: str, valid: int, evaluated: int, metrics: Mapping[str, float | None], before: float | None
    ) -> dict[str, Any]:
        reward = metrics.get(self.objective)
        best = self.full_stack.best["metrics"][self.objective] if self.full_stack.best else None
        return {
            "searched": name,
            "valid": valid,
            "evaluated": evaluated,
            "step_s": metrics.get("step_s"),
            "reward": reward,
            "over_base": gain_over(self.objective, reward, before),
            "full_stack_over_it": gain_over(self.objective, best, reward),
        }


def isolate_layers(
    source: str, *, trials: int, seed: int = 0, out: Path | None = None, watch: Watch | None = None
) -> Isolation:
    """Return a full-stack search with a budget of *trials*, kept in *out*, and a search of each layer alone."""
    space = load_space(source)
    layers = {
        stack: search_layer(space, stack, most=MAX_LAYER_DESIGNS, trials=max(1, trials // 5), seed=seed, watch=watch)
        for stack in space.stacks
    }
    full_stack = search(space, trials=trials, seed=seed, out=out, watch=watch)
    return Isolation(full_stack, layers)


def search_open_layers(
    result: Found, trials: int, watch: Callable[[str], Watch | None] | None = None
) -> dict[str, Found]:
    """Return a search of each layer that a study opened, alone, with at most *trials* designs each.

    Objectives, limits and seed are the study's. There are none where the study opened one layer only, where it has no
    trials, or where the event engine simulates its designs, which takes too long.
    """
    inputs, space = result.inputs, result.problem.space
    if trials < 1 or len(space.stacks) < 2 or result.problem.engine != "analytic" or not len(result.trials):
        return {}
    full_space = load_space(inputs.space, files=False) if inputs.stacks else space
    goals = {"objectives": inputs.objectives, "constraints": inputs.constraints}
    return {
        stack: search_layer(
            full_space,
            stack,
            most=trials,
            trials=trials,
            seed=inputs.seed,
            watch=watch(stack) if watch else None,
            **goals,
        )
        for stack in space.stacks
    }


def search_layer(
    space: ParameterSet,
    stack: str,
    *,
    most: int,
    trials: int,
    seed: int,
    watch: Watch | None = None,
    **goals: Any,
) -> Found:
    """Return a search of one layer: exhaustive where it has at most *most* designs, else with a budget of *trials*."""
    valid = space.restrict([stack]).valid
    agent, budget = ("exhaustive", valid) if valid <= most else ("genetic", trials)
    return search(space, agent=agent, stacks=[stack], trials=budget, seed=seed, watch=watch, **goals)
