"""The error to expect of a prediction, the range that the measured time is in, and which of two designs is faster.

A prediction p is the median. What would be measured is within p · exp(±q σ): σ is the scale of errors of designs with
the same traits, and q a quantile of measured errors over their scales. Both were learned from runs of sources that the
fitted constants did not see (calibration/conformal.py says how, calibration/expected_errors.py does it), so
that a range holds for a source that nobody has seen. σ is the exponential of a sum over the features of a design:

    mixture              it has experts, or state-space layers
    eight_bits           its GEMMs have 8 bits or fewer
    four_bits            they have 4
    one_accelerator      it has one
    several_nodes        it has several nodes or racks
    waiting              share of the step that accelerators wait for their hosts
    estimated            the kernels of its accelerator were not measured
    unlike_accelerator   how unlike its accelerator and format are to those measured, in levels
    unlike_model         how unlike its task and model are to those measured, in levels
    beyond               doublings of the number of accelerators beyond the most measured

A design that is like no measured one has more levels, and so a wider range. The accuracy of the serving model
(`cosmic.serving`) is stated by itself (the catalog's engines).

The ratio of two predictions is less far off than each of them, as two similar designs share most of their errors. The
error of a ratio is the difference of two errors, d = log(predicted A / predicted B) - log(measured A / measured B).
Its size was found over pairs of runs of one table of a source, by what the two designs differ in:

    mapping       nothing but how the model is spread over accelerators, and settings of the software
    work          the batch, the sequence or the number of accelerators
    format        the number format too
    accelerator   the accelerator, and perhaps the work
    model         the model, and perhaps the work
    several       more than one of format, accelerator and model

Sizes are relative to the scale of errors σ of such designs: the mean of both. A prediction that A is faster than B is
wrong if d exceeds their predicted difference: errors of either sign are equally likely, so that this has half the
probability that the size of d exceeds it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from math import exp, hypot, log, log2
from typing import Annotated, Any

from cosmic.base.json_types import Count, Keywords, Share, json_keys, one_of, unit
from cosmic.design.catalog_entries import CATALOG_FOLDER, load_mapping
from cosmic.design.design_point import DesignPoint
from cosmic.design.model_layer import Recommender, Transformer, is_moe
from cosmic.design.program_model import ProgramModel

ENOUGH_RUNS = 5
"""Runs of a kind whose mean error is quoted."""
TRAIT_KEYS = ("task", "reach", "model", "format")
BITS = {"fp32": 32, "tf32": 32, "fp8": 8, "int8": 8, "fp4": 4, "int4": 4}
"""Bits of the number formats that have other than 16."""
WIDEST = 1.1
"""No range reaches further than a factor e^1.1 = 3, either way."""
SURE_SOURCES = 2
"""Sources that make an accelerator, or a kind of model, well measured."""
FEATURES = (
    *("constant", "mixture", "eight_bits", "four_bits", "one_accelerator", "several_nodes", "waiting", "estimated"),
    *("unlike_accelerator", "unlike_model", "beyond"),
)
ARCHITECTURES = {
    "v100": "Volta",
    "a100": "Ampere",
    "l40s": "Ada",
    "h100": "Hopper",
    "h200": "Hopper",
    "h800": "Hopper",
    "gh200": "Hopper",
    "b200": "Blackwell",
    "b300": "Blackwell",
    "gb200": "Blackwell",
    "gb300": "Blackwell",
    "rubin": "Rubin",
    "mi": "CDNA",
    "tpu": "TPU",
    "gaudi": "Gaudi",
    "trainium": "Trainium",
}
"""Architectures, by how names of the catalog's accelerators begin."""


def architecture(accelerator: str) -> str:
    """Return the architecture of an accelerator of the catalog; "Other" where it is of none that is known.

    >>> architecture("gb200"), architecture("mi355x"), architecture("own")
    ('Blackwell', 'CDNA', 'Other')
    """
    return next((family for start, family in ARCHITECTURES.items() if accelerator.startswith(start)), "Other")


# ---- traits of designs


@dataclass(frozen=True, slots=True)
class Traits:
    """What the error of a design's prediction depends on."""

    task: str
    reach: str
    """One accelerator, one node or rack, or several."""
    model: str
    """Dense, MoE, hybrid (with state-space layers), or a recommender."""
    format: str
    accelerator: str
    npus: int
    estimated: bool
    """Whether the kernels of its accelerator were not measured."""

    @property
    def kind(self) -> tuple[str, ...]:
        """Its values of `TRAIT_KEYS`."""
        return self.task, self.reach, self.model, self.format


def traits_of(point: DesignPoint) -> Traits:
    """Return the traits of a design."""
    dims, npus, workload = point.network.dims, point.network.npus, point.workload
    reach = "one accelerator" if npus == 1 else "one node" if npus == dims[0].npus else "several nodes"
    fused = workload.task != "training" and workload.execution != "eager"  # other kernels than those measured
    return Traits(
        task=f"{workload.task} with fused kernels" if fused else workload.task,
        reach=reach,
        model=_model_kind(point.model),
        format=f"{BITS.get(workload.precision, 16)} bits",
        accelerator=point.compute.accelerator,
        npus=npus,
        estimated=point.compute.provenance == "estimate",
    )


def _model_kind(model: Any) -> str:
    if isinstance(model, Recommender):
        return "recommender"
    if isinstance(model, ProgramModel):
        return "program"
    return "hybrid" if getattr(model, "ssm", None) is not None else "MoE" if is_moe(model) else "dense"


@dataclass(frozen=True, slots=True)
class KnownRuns:
    """Measured runs of one source with the same traits."""

    source: str
    task: str
    reach: str
    model: str
    format: str
    accelerator: str
    npus: int
    """The most accelerators of such a run."""
    runs: int
    error: float
    """Their mean error, each predicted by constants that were fitted without its source."""


def features_of(traits: Traits, runs: Collection[KnownRuns], waiting: float = 0.0) -> tuple[float, ...]:
    """Return the features of a design, given the measured *runs*."""
    bits = int(traits.format.partition(" ")[0])
    return (
        1.0,
        float(traits.model != "dense"),
        float(bits <= 8),
        float(bits <= 4),
        float(traits.reach == "one accelerator"),
        float(traits.reach == "several nodes"),
        waiting,
        float(traits.estimated),
        *novelty(traits, runs),
    )


def novelty(traits: Traits, runs: Collection[KnownRuns]) -> tuple[float, float, float]:
    """Return how unlike a design is to the measured *runs*: accelerator, model, and doublings in size.

    Levels of the accelerator and of the model: 0 where two sources have it in the same format, 1 where one has, 2
    where they have its architecture, or the model in another format, 3 where the architecture was measured in other
    formats only, or no such model at all, 4 where no accelerator like it was.
    """
    family = architecture(traits.accelerator)
    same = {run.source for run in runs if (run.accelerator, run.format) == (traits.accelerator, traits.format)}
    related = {run.format for run in runs if architecture(run.accelerator) == family}
    accelerator = _novelty_level(len(same)) if same else 2 if traits.format in related else 3 if related else 4
    similar = [run for run in runs if (run.task, run.model) == (traits.task, traits.model)]
    sources = {run.source for run in similar if run.format == traits.format}
    model = _novelty_level(len(sources)) if sources else 2 if similar else 3
    most = max((run.npus for run in runs if run.task == traits.task), default=traits.npus)
    return float(accelerator), float(model), max(0.0, log2(traits.npus / most))


def _novelty_level(sources: int) -> int:
    return 0 if sources >= SURE_SOURCES else 1


# ---- ranges


@dataclass(frozen=True, slots=True)
class Range:
    """What a quantity is expected to be when measured: quantiles. The prediction is the median."""

    p05: Annotated[float, unit("that of the quantity")]
    """One measurement in twenty is below."""
    p25: Annotated[float, unit("that of the quantity")]
    """One in four is below."""
    p50: Annotated[float, unit("that of the quantity")]
    """The prediction."""
    p75: Annotated[float, unit("that of the quantity")]
    """One in four is above."""
    p95: Annotated[float, unit("that of the quantity")]
    """One in twenty is above."""

    def around(self, value: float, further: float) -> Range:
        """Return a range as wide as this one around another *value*, wider by a *further* error: a logarithm."""
        # Ranges are quantiles of ratios: widths are logarithms, and independent errors add in squares.
        half, nine_tenths = log(self.p75 / self.p50), log(self.p95 / self.p50)
        return Expectation(None, 0, "", 0, hypot(half, further), hypot(nine_tenths, further)).around(value)


@dataclass(frozen=True, slots=True)
class Expectation:
    """How far off the prediction of a design may be."""

    error: float | None
    """The mean error of runs alike; None where no run like the design was measured."""
    runs: int
    """Measured runs behind it."""
    like: str
    """What those runs share with the design, or that there are none."""
    sources: int = 0
    """Sources of those runs."""
    half: float = 0.0
    """Half the width of the range of every second measurement, P25 to P75, as a logarithm."""
    nine_tenths: float = 0.0
    """The same of nine measurements in ten, P5 to P95."""

    @property
    def on(self) -> str:
        """How many runs it rests on, and what they share with the design."""
        return f"on {self.runs} runs of {count_sources(self.sources)}: {self.like}" if self.runs else self.like

    def around(self, value: float, low: float | None = None, high: float | None = None) -> Range:
        """Return the range around a predicted *value*.

        Where what is open of a design would make it *low* or *high*, the range is wider: both errors are independent.

        >>> wide = Expectation(0.1, 9, "x", 3, 0.05, 0.2)
        >>> f"{wide.around(10.0).p95:.2f} {wide.around(10.0, 9.0, 12.0).p95:.2f}"
        '12.21 13.11'
        """
        down = log(value / low) if low and low < value else 0.0
        up = log(high / value) if high and high > value else 0.0
        return Range(
            value * exp(-hypot(self.nine_tenths, down)),
            value * exp(-hypot(self.half, down / 2)),
            value,
            value * exp(hypot(self.half, up / 2)),
            value * exp(hypot(self.nine_tenths, up)),
        )


def count_sources(sources: int) -> str:
    """Return a number of sources in words.

    >>> count_sources(1), count_sources(12)
    ('1 source', '12 sources')
    """
    return f"{sources} source{'' if sources == 1 else 's'}"


WAITS = 0.2
"""A step that waits for so large a share of its time is as long as its host takes."""
HALF, NINE_TENTHS = 0.674, 1.645
"""Deviations of a normal distribution within which every second value lies, and nine in ten."""
NOT_MEASURED = "not measured: no run like this was predicted by this model"


@dataclass(frozen=True, slots=True)
class LearnedErrors:
    """What validation learned: the scale of errors, and quantiles of errors over their scale."""

    coefficients: Mapping[str, float]
    mean: float
    """The mean error over its scale."""
    half: float
    """The error over its scale that half the measured runs have at most."""
    nine_tenths: float
    """The error over its scale that nine in ten have at most."""
    known: tuple[KnownRuns, ...]

    def scale(self, traits: Traits, waiting: float = 0.0) -> float:
        """Return the scale of errors of a design."""
        return error_scale(self.coefficients, features_of(traits, self.known, waiting))

    def widths(self, traits: Traits, waiting: float = 0.0) -> tuple[float, float, float]:
        """Return the mean error, and half the widths of the ranges of half the measurements and of nine in ten.

        All are logarithms of a ratio.
        """
        scale = self.scale(traits, waiting)
        mean, half, nine_tenths = (
            min(WIDEST, quantile * scale) for quantile in (self.mean, self.half, self.nine_tenths)
        )
        return mean, half, nine_tenths


def error_scale(coefficients: Mapping[str, float], features: Iterable[float]) -> float:
    """Return the scale σ of a design's errors."""
    return exp(sum(coefficients[name] * value for name, value in zip(FEATURES, features, strict=True)))


def expected_error(point: DesignPoint, waiting: float = 0.0) -> Expectation:
    """Return how far off the step of *point* is expected to be; *waiting* is its share of waiting for hosts.

    A step that waits takes as long as its host, and hosts differ: its range is wider by their spread.
    """
    expectation = _expect_error(traits_of(point), round(min(1.0, max(0.0, waiting)), 2))
    # Hosts differ between machines: a step that waits for them is as uncertain as they are.
    spread = point.compute.host_spread * min(1.0, waiting / WAITS)
    if spread <= 0:
        return expectation
    widths = hypot(expectation.half, HALF * spread), hypot(expectation.nine_tenths, NINE_TENTHS * spread)
    return replace(expectation, half=min(widths[0], WIDEST), nine_tenths=min(widths[1], WIDEST))


@cache
def _expect_error(traits: Traits, waiting: float) -> Expectation:
    learned = learned_errors()
    error, *widths = learned.widths(traits, waiting)
    similar = _find_similar_runs(traits)
    if not similar:
        return Expectation(None, 0, NOT_MEASURED, 0, *widths)
    keys, rows = similar
    like = ", ".join(getattr(traits, key) for key in keys)
    if traits.estimated:
        like += "; its kernels were not measured"
    return Expectation(error, sum(row.runs for row in rows), like, len({row.source for row in rows}), *widths)


def _find_similar_runs(traits: Traits) -> tuple[tuple[str, ...], list[KnownRuns]] | None:
    """Return enough measured runs that share traits with a design, and which traits; None where there are not.

    For training, the format is ignored where that is needed, then the model, then the reach. Prefill and decode were
    measured of eager stacks of layers on one accelerator alone, so that nothing is ignored of their kind.
    """
    if traits.model == "recommender" or traits.format == "32 bits":
        return None
    fewest = 1 if traits.task == "training" else len(TRAIT_KEYS)
    for count in range(len(TRAIT_KEYS), fewest - 1, -1):
        keys = TRAIT_KEYS[:count]
        rows = [run for run in learned_errors().known if all(getattr(run, key) == getattr(traits, key) for key in keys)]
        if sum(row.runs for row in rows) >= ENOUGH_RUNS:
            return keys, rows
    return None


@cache
def learned_errors() -> LearnedErrors:
    """Return what validation learned."""
    tree = load_mapping(CATALOG_FOLDER / "accuracy.yaml")
    runs = tuple(KnownRuns(**row) for row in tree["measured"])
    quantiles = tree["quantiles"]
    return LearnedErrors(tree["scale"], quantiles["mean"], quantiles["half"], quantiles["nine_tenths"], runs)


PAIR_LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
"""Shares of the pairs at which sizes of errors are listed."""
RELATIONS = ("mapping", "work", "format", "accelerator", "model", "several")
SURE_PROBABILITY = 0.9
"""Probability from which on one of two designs is said to be faster."""


@dataclass(frozen=True, slots=True)
class Facets:
    """What of a design the relation to another depends on."""

    format: str
    accelerator: str
    model: Any
    work: tuple[Any, ...]


def facets_of(point: DesignPoint) -> Facets:
    """Return the facets of a design."""
    workload = point.workload
    work = workload.task, workload.sequence, workload.global_batch, point.network.npus
    model = point.model
    nameless = replace(model, name="", checkpoint="") if isinstance(model, Transformer) else replace(model, name="")
    return Facets(workload.precision, point.compute.accelerator, nameless, work)


def classify_pair(a: Facets, b: Facets) -> str:
    """Return what two designs differ in.

    >>> classify_pair(Facets("bf16", "h200", "llama", (1,)), Facets("fp8", "h200", "llama", (2,)))
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
    """At each of `PAIR_LEVELS`, as a logarithm."""

    def size(self, level: float) -> float:
        """Return the size that a share *level* of the errors does not exceed, as a share."""
        return exp(self.sizes[PAIR_LEVELS.index(level)]) - 1

    def beyond(self, difference: float) -> float:
        """Return the share of errors that exceed a *difference*, between the listed ones in proportion.

        >>> PairError("mapping", 10, 2, (0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.08, 0.09, 0.1)).beyond(0.085)
        0.15
        """
        below, least = 0.0, 0.0
        for level, size in zip(PAIR_LEVELS, self.sizes, strict=True):
            if difference < size:
                part = (difference - least) / (size - least)
                return round(1 - below - part * (level - below), 9)
            below, least = level, size
        # Beyond the largest listed error, as in Chebyshev's bound: the share falls with the square of the size.
        return round((1 - PAIR_LEVELS[-1]) * (least / difference) ** 2, 9)  # few errors are larger

    def sure(self, ratio: float) -> float:
        """Return the probability that the design that is predicted to be faster is, by the *ratio* of two times."""
        return 1 - self.beyond(abs(log(ratio))) / 2


def pair_error(a: DesignPoint, b: DesignPoint) -> PairError:
    """Return how far off the ratio of the predictions of two designs is."""
    error = pair_errors()[classify_pair(facets_of(a), facets_of(b))]
    scale = (learned_errors().scale(traits_of(a)) + learned_errors().scale(traits_of(b))) / 2
    return replace(error, sizes=tuple(scale * size for size in error.sizes))


@cache
def pair_errors() -> dict[str, PairError]:
    """Return the errors of ratios over the scale of errors, by relation."""
    table = load_mapping(CATALOG_FOLDER / "accuracy.yaml")["pairs"]
    return {name: PairError(name, row["pairs"], row["sources"], tuple(row["sizes"])) for name, row in table.items()}


@json_keys("told_apart", "sentence")
@dataclass(frozen=True, slots=True)
class Certainty:
    """How sure it is which of two designs is faster."""

    relation: Annotated[str, one_of("mapping", "work", "format", "accelerator", "model", "several")]
    """What they differ in: the mapping alone, the work, the number format, the accelerator, the model, or several of
    these."""
    pairs: Count
    """Measured pairs that differ in the same."""
    sources: Count
    """Sources of those pairs."""
    off_half: Share
    """What the ratio of the two predictions was off by at most, of half those pairs."""
    off_nine_tenths: Share
    """The same of nine in ten."""
    probability: Annotated[Share, Keywords(minimum=0.5, maximum=1)]
    """That the one predicted to be faster is."""

    @property
    def told_apart(self) -> bool:
        """Whether that is at least 0.9: then one design is called faster."""
        return self.probability >= SURE_PROBABILITY

    @property
    def sentence(self) -> str:
        """The same in words."""
        off = f"ratios of such pairs were off by {_format_percent(self.off_half)} (half of them) to "
        on = f"{off}{_format_percent(self.off_nine_tenths)} (nine in ten of {self.pairs:,} pairs, {self.sources} sources)"
        sure = f"{100 * min(self.probability, 0.99):.0f} %"
        if self.told_apart:
            return f"that the faster one is faster has a probability of {sure}: {on}"
        return f"they cannot be told apart (probability {sure}): {on}"


def assess_certainty(a: DesignPoint, b: DesignPoint, ratio: float) -> Certainty:
    """Return how sure it is which of two designs is faster, by the predicted *ratio* of their times."""
    error = pair_error(a, b)
    sizes = error.size(0.5), error.size(0.9)
    return Certainty(error.relation, error.pairs, error.sources, *sizes, error.sure(ratio))


def _format_percent(share: float) -> str:
    return f"{100 * share:.2g} %"
