"""Several models on one system: what a design for all of them costs each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from common import Effort, Section, percent
from scenarios_designs import LARGEST, MODELS, REWARD, Design, budget, cases, explore, full_stack, seconds, tokens

from cosmic.pages import Axis, Bar, BarGroup, Figure, Part, Table, Text, bars
from cosmic.space import ParameterSet

TRAINED = ("GPT3-175B", "GPT3-13B", "ViT-Base", "ViT-Large")
STEPS, TIMES = "equal steps", "equal times"


@dataclass(frozen=True)
class Shared:
    """The best design for each model alone, those for all of them, and what each model loses with the latter."""

    alone: Mapping[str, Design]
    mixes: Mapping[str, Design]
    lost: Mapping[str, Mapping[str, float]]
    """The share of its performance by model and mix."""

    def loser(self, mix: str) -> tuple[str, float]:
        """Return the model that loses most with a mix, and how much."""
        worst = max(self.lost, key=lambda model: self.lost[model][mix])
        return worst, self.lost[worst][mix]


def mixed(weights: Mapping[str, float], name: str) -> ParameterSet:
    """Return the full-stack space of models that a system trains in turn, with weights."""
    shares = {
        model: {"weight": weight, "model": MODELS[model], "workload.sequence": tokens(model)}
        for model, weight in weights.items()
    }
    return full_stack(1024, {"model": MODELS[LARGEST]}, name, workloads=shares)


def share_out(effort: Effort) -> Shared:
    """Return one design for four models, and one for each."""
    trials, models = budget(effort, 2000), cases(effort, TRAINED)
    spaces = {model: mixed({model: 1.0}, model) for model in models}
    spaces[STEPS] = mixed(dict.fromkeys(models, 1.0), STEPS)
    found = explore(spaces, trials, REWARD)
    alone = {model: found[model].best for model in models}
    # Weights in inverse proportion to the best step: each model then counts the same.
    often = {model: alone[LARGEST].step_s / each.step_s for model, each in alone.items()}
    found |= explore({TIMES: mixed(often, TIMES)}, trials, REWARD, found.values())
    mixes = {name: found[name].best for name in (STEPS, TIMES)}
    lost = {
        model: {
            name: max(0.0, 1 - found[model].try_out(each).reward / alone[model].reward) for name, each in mixes.items()
        }
        for model in models
    }
    return Shared(alone, mixes, lost)


def several_models(effort: Effort) -> Section:
    """Return one design for four models, against one for each."""
    shared = share_out(effort)
    worst, lost = shared.loser(STEPS)
    return Section(
        "Several models on one system",
        "Can one design train four models, and what does each lose?",
        f"It becomes the design of the largest, and {worst} loses {percent(lost, 0)} of its performance.",
        body(shared),
    )


def body(shared: Shared) -> list[Part]:
    """Return the designs, the losses, and what they say."""
    rows: list[list[Any]] = [[model, *each.cells, seconds(each.step_s)] for model, each in shared.alone.items()]
    rows += [[name, *each.cells, None] for name, each in shared.mixes.items()]
    groups = [
        BarGroup(model, [Bar(name, round(100 * share, 1)) for name, share in both.items()])
        for model, both in shared.lost.items()
    ]
    return [
        Text(
            """Four models are trained in turn on 1,024 NPUs with one design: the same network, collectives and mapping
            for all. In one mix each runs the same number of steps (the mean of their times, as in the paper); in the
            other each runs for the same time, so that each counts the same."""
        ),
        Table(
            ["for", "mapping", "network", "GB/s", "step"],
            rows,
            "The best design for each model alone and for the mixes, by performance per bandwidth; of equal ones, the"
            " cheapest network.",
        ),
        Figure(
            bars(
                groups,
                x=Axis("performance lost", "%", better="lower"),
                title="What each model loses on a design for all",
            ),
            "models",
            "Performance per bandwidth, against the best design for the model alone.",
        ),
        Text(said(shared)),
    ]


def said(shared: Shared) -> str:
    """Return the losses of the models, and why."""
    share = shared.alone[LARGEST].step_s / sum(each.step_s for each in shared.alone.values())
    (first, most), (second, least) = shared.loser(STEPS), shared.loser(TIMES)
    return f"""With equal steps {LARGEST} takes {percent(share, 0)} of the time and determines the design (it loses
        {percent(shared.lost[LARGEST][STEPS])}); {first} loses most, {percent(most, 0)}. With equal times the best
        design is `{shared.mixes[TIMES].mapping}`; the worst loss is that of {second}, {percent(least, 0)}. For all of
        them the lowest bandwidth of the space is best, so that only the mapping is in conflict: it must divide the 12
        heads of ViT-Base and the 40 of GPT3-13B, and the {tokens("ViT-Base")} tokens of an image, which leaves little
        choice. But a mapping belongs to a job and costs nothing to change; only hardware must be shared. One mapping
        for all is a rule of the study, not of the cluster."""
