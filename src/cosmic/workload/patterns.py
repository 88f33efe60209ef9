"""Which layers of a model with a pattern are of which kind: counted once for each cut that occurs.

A pattern is a text with one letter for each layer, the letter of its kind. What depends on it and on few whole numbers
alone is looked up (`cosmic.design.combinations`).
"""

from __future__ import annotations

from functools import cache

from cosmic.design.model import Transformer, layer_kind, layer_kinds, layer_parameters
from cosmic.workload.cut import layers_per_part

MOST_PARTS = 2**16
"""Beyond so many virtual stages no stage is sought: more than there are layers."""


@cache
def pattern_of(model: Transformer) -> str:
    """Return the kinds of all layers, ``kind=letter`` for each and then the letters.

    >>> from cosmic.design.model import StateSpace
    >>> ssm = StateSpace(heads=2, state=4)
    >>> pattern_of(Transformer(layers=3, hidden=4, heads=2, ffn=8, vocab=10, pattern="M*", ssm=ssm))
    'state_layer=a layer=b aba'
    """
    letters = {kind: chr(ord("a") + place) for place, kind in enumerate(layer_kinds(model))}
    names = (f"{kind}={letter}" for kind, letter in letters.items())
    return " ".join((*names, "".join(letters[layer_kind(model, layer)] for layer in range(model.layers))))


def layers_in_pattern(pattern: str, kind: str, count: float) -> tuple[float, float]:
    """Return how many of the first *count* layers of a pattern are of one kind.

    >>> layers_in_pattern("state_layer=a layer=b aba", "state_layer", 3)
    (2.0, 0.0)
    """
    *names, letters = pattern.split(" ")
    letter = dict(each.split("=") for each in names)[kind]
    return float(letters.count(letter, 0, max(0, int(count)))), 0.0


@cache
def weighed_pattern(model: Transformer, active: bool) -> str:
    """Return the parameters of a layer of each kind, in the order of kinds: all, or those that a token uses."""
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
    each = [int(weight) for weight in weights.split(" ")]
    ends = [None if layers < 0 else int(layers * virtual) for layers in (first, last)]
    found, start = [0] * int(stages), 0
    for part, taken in enumerate(layers_per_part(len(letters), int(stages), int(virtual), *ends)):
        found[part % len(found)] += sum(each[ord(letter) - ord("a")] for letter in letters[start : start + taken])
        start += taken
    return float(found.index(max(found))), 0.0
