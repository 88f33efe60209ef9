"""How a pipeline cuts the layers of a model into stages, and which kinds of layers each stage gets.

Which layers of a model with a pattern are of which kind: counted once for each cut that occurs.

A pattern is a text with one letter for each layer, the letter of its kind. What depends on it and on few whole numbers
alone is looked up (`cosmic.design.design_batch`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from cosmic.base.numeric import Numeric, choose, largest_whole
from cosmic.base.registry import Registry
from cosmic.design.design_batch import has_gaps, none_to_nan
from cosmic.design.model_layer import Model, Recommender, Transformer, layer_kind, layer_kinds, layer_parameters
from cosmic.design.program_model import ProgramModel

cuts: Registry[Any] = Registry("stage_layers", "cosmic.step.cuts")
"""Rules that cut layers into stages by what they take, which is not known here: given a batch, its blocks and the even
cut, each returns another one."""


@dataclass(frozen=True, slots=True)
class StatedLayers:
    """The layers of a stage that a workload states, in some designs of a batch or in all."""

    given: Any = 0
    """1 where they are stated, else 0."""
    layers: Numeric = 0
    """Of each virtual stage of it; 0 where they are not stated."""


UNSTATED = StatedLayers()


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
    first: StatedLayers = UNSTATED
    last: StatedLayers = UNSTATED

    @property
    def stated(self) -> bool:
        """Whether designs state the layers of a stage."""
        return self.first is not UNSTATED or self.last is not UNSTATED

    @property
    def sharing(self) -> Numeric:
        """Stages that share the layers not stated; at least 1, to divide by."""
        return np.maximum(self.stages - self.first.given - self.last.given, 1) if self.stated else self.stages

    @property
    def rest(self) -> Numeric:
        """Layers that they share."""
        if not self.stated:
            return self.layers
        return np.maximum(self.layers - self.virtual * (self.first.layers + self.last.layers), 0)

    @property
    def parts(self) -> Numeric:
        """Virtual stages that share the layers not stated."""
        return self.sharing * self.virtual

    @property
    def alone(self) -> Numeric:
        """Parts that share before the first one that has a layer.

        Where there are more parts than layers, the first has the embedding alone, and the last the head.
        """
        # Parts without a layer: half of them before the first layer, beside the embedding, the others beside the head;
        # stated first or last layers leave them all on the other end.
        missing = np.maximum(0, self.parts - self.rest)
        if not self.stated:
            return missing // 2
        before = choose(self.last.given > 0, missing, missing // 2)
        return choose(self.first.given > 0, 0, before)

    def span(self, stage: Numeric, chunk: int = 0) -> tuple[Numeric, Numeric]:
        """Return how many layers come before virtual stage *chunk* of a stage, and how many it has."""
        if not self.stated:
            return _spread_evenly(stage + chunk * self.stages - self.alone, self.parts, self.rest)
        first, last = self.first, self.last
        before = np.clip(stage - first.given, 0, self.sharing)
        start, taken = _spread_evenly(before + chunk * self.sharing - self.alone, self.parts, self.rest)
        start = start + chunk * (first.layers + last.layers) + first.layers * (stage > 0)
        taken = choose((stage == self.stages - 1) & (last.given > 0), last.layers, taken)
        return start, choose((stage == 0) & (first.given > 0), first.layers, taken)

    def stage_of(self, part: Numeric) -> Numeric:
        """Return the stage that holds number *part* of the parts that share the layers not stated."""
        return self.first.given + part % self.sharing if self.stated else part % self.sharing

    def shared_before(self, layer: int) -> Numeric:
        """Return how many of the first *layer* layers are on stages that share the layers not stated."""
        if not self.stated:
            return layer
        elsewhere: Numeric = 0
        for chunk in range(largest_whole(self.virtual)):
            for stage, end in (self.stages * 0, self.first), (self.stages - 1, self.last):
                start, _ = self.span(stage, chunk)
                elsewhere = elsewhere + (chunk < self.virtual) * np.clip(layer - start, 0, end.layers)
        return layer - elsewhere


def stated_layers(layers: Any, virtual: Numeric) -> StatedLayers:
    """Return the layers of a stage as a workload states them: None, a number, or a column of either."""
    if layers is None:
        return UNSTATED
    if not has_gaps(layers):
        return StatedLayers(1, layers // virtual)
    missing = np.isnan(none_to_nan(layers))
    return StatedLayers(np.where(missing, 0, 1), np.where(missing, 0, none_to_nan(layers)).astype(np.int64) // virtual)


def _spread_evenly(part: Numeric, parts: Numeric, layers: Numeric) -> tuple[Numeric, Numeric]:
    """Return the layers before number *part* of *parts* parts that share *layers* evenly, and the layers in it."""
    # The first (layers mod parts) parts have one layer more; parts before number 0 have none.
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


MOST_PARTS = 2**16
"""Beyond so many virtual stages no stage is sought: more than there are layers."""


@cache
def pattern_of(model: Transformer) -> str:
    """Return the kinds of all layers, ``kind=letter`` for each and then the letters.

    >>> from cosmic.design.model_layer import StateSpace
    >>> ssm = StateSpace(heads=2, state=4)
    >>> pattern_of(Transformer(layers=3, hidden=4, heads=2, ffn=8, vocab=10, pattern="M*", ssm=ssm))
    'state_layer=a layer=b aba'
    """
    letters = {kind: chr(ord("a") + index) for index, kind in enumerate(layer_kinds(model))}
    names = (f"{kind}={letter}" for kind, letter in letters.items())
    return " ".join((*names, "".join(letters[layer_kind(model, layer)] for layer in range(model.layers))))


def layers_in_pattern(pattern: str, kind: str, count: float) -> tuple[float, float]:
    """Return how many of the first *count* layers of a pattern are of one kind.

    >>> layers_in_pattern("state_layer=a layer=b aba", "state_layer", 3)
    (2.0, 0.0)
    """
    *names, letters = pattern.split(" ")
    letter = dict(name.split("=") for name in names)[kind]
    return float(letters.count(letter, 0, max(0, int(count)))), 0.0


@cache
def weighed_pattern(model: Transformer, active: bool) -> str:
    """Return the parameters of a layer of each kind as text: all, or with *active* those that a token uses."""
    experts = model.experts
    routed = 0 if experts is None else experts.active if active else experts.count
    return " ".join(str(layer_parameters(model, kind, routed)) for kind in layer_kinds(model))


def heaviest_stage(
    pattern: str, weights: str, stages: float, virtual: float, first: float, last: float
) -> tuple[float, float]:
    """Return the first of the stages whose layers weigh most; *first* and *last* are layers stated, -1 if they are not.

    >>> heaviest_stage("layer=a moe_layer=b aabbba", "1 5", 3, 1, -1, -1)
    (1.0, 0.0)
    """
    *_, letters = pattern.split(" ")
    if not 1 <= stages * virtual <= MOST_PARTS:
        return 0.0, 0.0
    kind_weights = [int(weight) for weight in weights.split(" ")]
    ends = [None if layers < 0 else int(layers * virtual) for layers in (first, last)]
    totals, start = [0] * int(stages), 0
    for part, taken in enumerate(layers_per_part(len(letters), int(stages), int(virtual), *ends)):
        totals[part % len(totals)] += sum(
            kind_weights[ord(letter) - ord("a")] for letter in letters[start : start + taken]
        )
        start += taken
    return float(totals.index(max(totals))), 0.0
