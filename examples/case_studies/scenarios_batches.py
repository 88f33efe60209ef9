"""Larger batches on 2,048 NPUs: what a full-stack search gains over a search of the mapping."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from common import Effort, Section
from scenarios_designs import (
    MODELS,
    REWARD,
    Design,
    best_mapping,
    budget,
    cases,
    explore,
    full_stack,
    given_gb_per_s,
    seconds,
    tokens,
)

from cosmic.pages import Axis, Figure, Part, Series, Table, Text, lines

SCALED = ("GPT3-175B", "LLaMA-7B", "ViT-Large")
BATCHES = (1024, 2048, 4096, 8192, 16384)
LEVEL = 0.03
"""Gains that differ by less count as the same."""


@dataclass(frozen=True)
class Pair:
    """The best mapping on the given network, and the best design of the full stack."""

    alone: Design
    whole: Design

    @property
    def gain(self) -> float:
        """The reward of the full stack over that of the mapping alone."""
        return self.whole.reward / self.alone.reward

    @property
    def speedup(self) -> float:
        """The speed-up of the full stack over the mapping alone."""
        return self.alone.step_s / self.whole.step_s

    @property
    def cells(self) -> list[Any]:
        """Both as cells of a table."""
        alone, whole = self.alone, self.whole
        return [
            *(alone.mapping, seconds(alone.step_s)),
            *(whole.mapping, whole.wires, seconds(whole.step_s)),
            f"{self.gain:.2f}×",
        ]


Pairs = Mapping[str, Mapping[int, Pair]]
"""By model and batch."""


def scale_up(effort: Effort) -> dict[str, dict[int, Pair]]:
    """Return both designs for each model and batch."""
    pairs: dict[str, dict[int, Pair]] = {}
    for model in cases(effort, SCALED):
        spaces = {}
        for batch in cases(effort, BATCHES):
            workload = {"global_batch": batch, "sequence": tokens(model)}
            spaces[str(batch)] = full_stack(2048, {"model": MODELS[model], "workload": workload}, f"{model} {batch}")
        found = explore(spaces, budget(effort, 1200), REWARD, seeds=effort.seeds(3))
        pairs[model] = {
            int(batch): Pair(best_mapping(space, REWARD), found[batch].best) for batch, space in spaces.items()
        }
    return pairs


def larger_batches(effort: Effort) -> Section:
    """Return how the gain scales with the batch, on 2,048 NPUs."""
    pairs = scale_up(effort)
    return Section(
        "Larger batches on 2,048 NPUs",
        "Does the full stack gain more or less as the batch grows?",
        f"The model matters more than the batch: at least {', '.join(map(gains, pairs, pairs.values()))}.",
        body(pairs),
    )


def gains(model: str, pairs: Mapping[int, Pair]) -> str:
    """Return the least and the greatest gain of a model."""
    low, high = (f"{pick(pair.gain for pair in pairs.values()):.1f}" for pick in (min, max))
    return f"{low if low == high else f'{low} to {high}'} times for {model}"


def body(pairs: Pairs) -> list[Part]:
    """Return the designs and the gains."""
    given = sum(given_gb_per_s("cosmic-2048"))
    return [
        Text(
            """GPT3-175B, LLaMA-7B and ViT-Large with batches from 1,024 to 16,384 on the system of 2,048 NPUs of
            900 TFLOP/s. What does a full-stack search gain over a search of the mapping on the given network?"""
        ),
        Table(
            ["model", "batch", "mapping alone", "step", "mapping, full stack", "GB/s", "step, full stack", "gain"],
            [[model, batch, *pair.cells] for model, by_batch in pairs.items() for batch, pair in by_batch.items()],
            f"The gain is the ratio of performance per bandwidth. The given network has {given:,.1f} GB/s per NPU.",
        ),
        Figure(
            lines(
                [
                    Series(model, [(float(batch), pair.gain) for batch, pair in by_batch.items()])
                    for model, by_batch in pairs.items()
                ],
                x=Axis("batch", "sequences", log=True),
                y=Axis("gain of the full stack", "×", better="higher"),
                title="Full stack over mapping alone, by batch",
            ),
            "batches",
            "Performance per bandwidth of the best design of the full stack over that of the best mapping.",
        ),
        Text(said(pairs)),
    ]


def said(pairs: Pairs) -> str:
    """Return how the gains depend on the batch."""
    ends = {model: (by_batch[BATCHES[0]], by_batch[BATCHES[-1]]) for model, by_batch in pairs.items()}
    moves = "; ".join(f"for {model} it {move(first.gain, last.gain)}" for model, (first, last) in ends.items())
    split = "; ".join(
        f"{last.speedup:.2f} and {last.gain / last.speedup:.2f} for {model}" for model, (_, last) in ends.items()
    )
    growth = ", ".join(
        f"{last.whole.step_s / first.whole.step_s:.1f} times for {model}" for model, (first, last) in ends.items()
    )
    times = BATCHES[-1] // BATCHES[0]
    return f"""The gain by batch: {moves}. It has two factors, speed and bandwidth saved: at {BATCHES[-1]:,}, {split}.
        Only where the first is above 1 does the full stack train faster; elsewhere it saves bandwidth and accepts a
        longer step, as the reward demands. The search of the mapping is exhaustive, that of the full stack is not: its
        gains are lower bounds, and differences of some percent between batches are noise. In the given network one
        dimension has {min(given_gb_per_s("cosmic-2048")):g} GB/s; the lowest value in the search is 50.

        With a batch {times} times as large a step takes {growth}. Where that is less than {times}, part of the step
        does not grow with the batch: the reduction of gradients, the pipeline bubble."""


def move(first: float, last: float) -> str:
    """Return how a gain changes, in words."""
    if abs(last / first - 1) <= LEVEL:
        return f"stays at {first:.1f}"
    return f"{'rises' if last > first else 'falls'} from {first:.1f} to {last:.1f}"
