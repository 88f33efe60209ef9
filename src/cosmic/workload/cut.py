"""How a pipeline cuts the layers of a model into stages: numbers, or arrays over a batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cosmic.design.batch import has_gaps, known
from cosmic.design.model import Model, Recommender
from cosmic.design.program import ProgramModel
from cosmic.numeric import Numeric, choose, largest_whole
from cosmic.registry import Registry

cuts: Registry[Any] = Registry("stage_layers", "cosmic.step.cuts")
"""Rules that cut layers into stages by what they take, which is not known here: given a batch, its blocks and the even
cut, each returns another one."""


@dataclass(frozen=True, slots=True)
class Stated:
    """The layers of a stage that a workload states, in some designs of a batch or in all."""

    given: Any = 0
    """1 where they are stated, else 0."""
    layers: Numeric = 0
    """Of each virtual stage of it; 0 where they are not stated."""


UNSTATED = Stated()


@dataclass(frozen=True, slots=True)
class Cut:
    """How a pipeline cuts the layers of a model: into stages, and each of these into virtual stages.

    Virtual stage c of stage s is number s + c p of the model's parts, which take layers in this order. First and last
    stage have the layers that are stated for them, an equal share in each of their virtual stages. The others share the
    rest as evenly as possible: where it does not divide, the first ones take one more.
    """

    layers: int
    stages: Numeric
    virtual: Numeric = 1
    first: Stated = UNSTATED
    last: Stated = UNSTATED

    @property
    def stated(self) -> bool:
        """Whether designs state the layers of a stage."""
        return self.first is not UNSTATED or self.last is not UNSTATED

    @property
    def sharing(self) -> Numeric:
        """Stages that share what others leave; at least 1, to divide by."""
        return np.maximum(self.stages - self.first.given - self.last.given, 1) if self.stated else self.stages

    @property
    def rest(self) -> Numeric:
        """Layers that they share."""
        if not self.stated:
            return self.layers
        return np.maximum(self.layers - self.virtual * (self.first.layers + self.last.layers), 0)

    @property
    def parts(self) -> Numeric:
        """Virtual stages that share what others leave."""
        return self.sharing * self.virtual

    @property
    def alone(self) -> Numeric:
        """Parts that share before the first one that has a layer.

        Where there are more parts than layers, the first has the embedding alone, and the last the head.
        """
        missing = np.maximum(0, self.parts - self.rest)
        if not self.stated:
            return missing // 2
        before = choose(self.last.given > 0, missing, missing // 2)
        return choose(self.first.given > 0, 0, before)

    def span(self, stage: Numeric, chunk: int = 0) -> tuple[Numeric, Numeric]:
        """Return how many layers come before virtual stage *chunk* of a stage, and how many it has."""
        if not self.stated:
            return _evenly(stage + chunk * self.stages - self.alone, self.parts, self.rest)
        first, last = self.first, self.last
        before = np.clip(stage - first.given, 0, self.sharing)
        start, taken = _evenly(before + chunk * self.sharing - self.alone, self.parts, self.rest)
        start = start + chunk * (first.layers + last.layers) + first.layers * (stage > 0)
        taken = choose((stage == self.stages - 1) & (last.given > 0), last.layers, taken)
        return start, choose((stage == 0) & (first.given > 0), first.layers, taken)

    def stage_of(self, part: Numeric) -> Numeric:
        """Return the stage of number *part* of the parts that share what others leave."""
        return self.first.given + part % self.sharing if self.stated else part % self.sharing

    def shared_before(self, layer: int) -> Numeric:
        """Return how many of the first layers, up to number *layer*, are on stages that share what others leave."""
        if not self.stated:
            return layer
        elsewhere: Numeric = 0
        for chunk in range(largest_whole(self.virtual)):
            for stage, here in (self.stages * 0, self.first), (self.stages - 1, self.last):
                start, _ = self.span(stage, chunk)
                elsewhere = elsewhere + (chunk < self.virtual) * np.clip(layer - start, 0, here.layers)
        return layer - elsewhere


def stated_layers(layers: Any, virtual: Numeric) -> Stated:
    """Return the layers of a stage as a workload states them: None, a number, or a column of either."""
    if layers is None:
        return UNSTATED
    if not has_gaps(layers):
        return Stated(1, layers // virtual)
    missing = np.isnan(known(layers))
    return Stated(np.where(missing, 0, 1), np.where(missing, 0, known(layers)).astype(np.int64) // virtual)


def _evenly(part: Numeric, parts: Numeric, layers: Numeric) -> tuple[Numeric, Numeric]:
    """Return how many of some *layers* come before number *part* of so many *parts*, and how many it has."""
    start = np.maximum(0, part * (layers // parts) + np.minimum(part, layers % parts))
    taken = layers // parts + ((part >= 0) & (part < layers % parts))
    return start, taken


def layers_per_part(
    layers: int, stages: int, virtual: int = 1, first: int | None = None, last: int | None = None
) -> list[int]:
    """Return the layers of each stage, or of each virtual stage; *first* and *last* are those of whole stages.

    >>> layers_per_part(61, 4), layers_per_part(2, 4)
    ([16, 15, 15, 15], [0, 1, 1, 0])
    >>> layers_per_part(61, 4, first=16, last=13), layers_per_part(14, 3, 2, last=2)
    ([16, 16, 16, 13], [3, 3, 1, 3, 3, 1])
    """
    cut = Cut(layers, stages, virtual, stated_layers(first, virtual), stated_layers(last, virtual))
    return [int(cut.span(stage, chunk)[1]) for chunk in range(virtual) for stage in range(stages)]


def layers_of(model: Model) -> int:
    """Return the layers that a pipeline deals out; a recommender is one."""
    if isinstance(model, Recommender):
        return 1
    return model.layers if isinstance(model, ProgramModel) else model.layers + model.encoder_layers
