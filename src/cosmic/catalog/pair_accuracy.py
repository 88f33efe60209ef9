"""How far off the ratio of two predictions is: less than each of them, as two designs alike share most of their errors.

The error of a ratio is the difference of two errors, d = log(predicted A / predicted B) - log(measured A / measured B).
Its size was found over pairs of runs of one table of a source, by what the two designs differ in:

    mapping       nothing but how the model is spread over accelerators, and settings of the software
    work          the batch, the sequence or the number of accelerators
    format        the number format too
    accelerator   the accelerator, and perhaps the work
    model         the model, and perhaps the work
    several       more than one of format, accelerator and model

Sizes are relative to the scale of errors of such designs (`cosmic.catalog.accuracy`): the mean of both.

A prediction that A is faster than B is wrong if d exceeds their predicted difference: errors of either sign are
equally likely, so that this has half the probability that the size of d exceeds it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from math import exp, log
from typing import Any

from cosmic.catalog import FOLDER, load_mapping
from cosmic.catalog.accuracy import learned, traits_of
from cosmic.design.model import Transformer
from cosmic.design.point import DesignPoint

LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
"""Shares of the pairs at which sizes of errors are listed."""
RELATIONS = ("mapping", "work", "format", "accelerator", "model", "several")
SURE = 0.9
"""Probability from which on one of two designs is said to be faster."""


@dataclass(frozen=True, slots=True)
class Facets:
    """What of a design the relation to another depends on."""

    format: str
    accelerator: str
    model: Any
    work: tuple[Any, ...]


def facets(point: DesignPoint) -> Facets:
    """Return the facets of a design."""
    workload = point.workload
    work = workload.task, workload.sequence, workload.global_batch, point.network.npus
    model = point.model
    nameless = replace(model, name="", checkpoint="") if isinstance(model, Transformer) else replace(model, name="")
    return Facets(workload.precision, point.compute.accelerator, nameless, work)


def relation(a: Facets, b: Facets) -> str:
    """Return what two designs differ in.

    >>> relation(Facets("bf16", "h200", "llama", (1,)), Facets("fp8", "h200", "llama", (2,)))
    'format'
    """
    differs = [name for name in ("format", "accelerator", "model") if getattr(a, name) != getattr(b, name)]
    if differs:
        return differs[0] if len(differs) == 1 else "several"
    return "work" if a.work != b.work else "mapping"


@dataclass(frozen=True, slots=True)
class PairError:
    """The sizes of errors of ratios of predictions that differ in the same."""

    relation: str
    pairs: int
    sources: int
    sizes: tuple[float, ...]
    """At each of `LEVELS`, as a logarithm."""

    def size(self, level: float) -> float:
        """Return the size that a share *level* of the errors does not exceed, as a share."""
        return exp(self.sizes[LEVELS.index(level)]) - 1

    def beyond(self, difference: float) -> float:
        """Return the share of errors that exceed a *difference*, between the listed ones in proportion.

        >>> PairError("mapping", 10, 2, (0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.08, 0.09, 0.1)).beyond(0.085)
        0.15
        """
        below, least = 0.0, 0.0
        for level, size in zip(LEVELS, self.sizes, strict=True):
            if difference < size:
                part = (difference - least) / (size - least)
                return round(1 - below - part * (level - below), 9)
            below, least = level, size
        return round((1 - LEVELS[-1]) * (least / difference) ** 2, 9)  # few errors are larger

    def sure(self, ratio: float) -> float:
        """Return the probability that the design that is predicted to be faster is, by the *ratio* of two times."""
        return 1 - self.beyond(abs(log(ratio))) / 2


def pair_error(a: DesignPoint, b: DesignPoint) -> PairError:
    """Return how far off the ratio of the predictions of two designs is."""
    found = pair_errors()[relation(facets(a), facets(b))]
    scale = (learned().scale(traits_of(a)) + learned().scale(traits_of(b))) / 2
    return replace(found, sizes=tuple(scale * size for size in found.sizes))


@cache
def pair_errors() -> dict[str, PairError]:
    """Return the errors of ratios over the scale of errors, by relation."""
    table = load_mapping(FOLDER / "accuracy.yaml")["pairs"]
    return {name: PairError(name, each["pairs"], each["sources"], tuple(each["sizes"])) for name, each in table.items()}


@dataclass(frozen=True, slots=True)
class Certainty:
    """How sure it is which of two designs is faster."""

    relation: str
    """What they differ in: one of `RELATIONS`."""
    pairs: int
    """Measured pairs that differ in the same."""
    sources: int
    off_half: float
    """What the ratio of the predictions of half those pairs was off by at most, as a share."""
    off_nine_tenths: float
    """The same of nine in ten."""
    probability: float
    """That the design that is predicted to be faster is: from 0.5 to 1."""

    @property
    def told_apart(self) -> bool:
        """Whether one is said to be faster."""
        return self.probability >= SURE

    @property
    def sentence(self) -> str:
        """The same in words."""
        off = f"ratios of such pairs were off by {_percent(self.off_half)} (half of them) to "
        on = f"{off}{_percent(self.off_nine_tenths)} (nine in ten of {self.pairs:,} pairs, {self.sources} sources)"
        sure = f"{100 * min(self.probability, 0.99):.0f} %"
        if self.told_apart:
            return f"that the faster one is faster has a probability of {sure}: {on}"
        return f"they cannot be told apart (probability {sure}): {on}"


def certainty(a: DesignPoint, b: DesignPoint, ratio: float) -> Certainty:
    """Return how sure it is which of two designs is faster, by the predicted *ratio* of their times."""
    known = pair_error(a, b)
    sizes = known.size(0.5), known.size(0.9)
    return Certainty(known.relation, known.pairs, known.sources, *sizes, known.sure(ratio))


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %"
