"""How good a model's predictions are on trials that it did not learn from: what counts is the order of designs.

What measurements add to a prediction: log(measured / predicted), learned from few of them.

The predictions are physics already, so their error is small and smooth. Four models of it compete, from none to many
degrees of freedom, and each run is predicted from the others:

    none      predictions as they are
    factor    one factor for all, which leaves the order of designs as it is
    parts     a factor for each part of the step (GEMMs, collectives of tp, bubble …), shrunk toward one for all
    trend     a ridge regression on all features, from as many runs as there are features on

A model with more freedom is taken only if left-out runs are predicted better by more than their spread explains, and
are ranked no worse than by a simpler one. So few runs correct a factor, more of them correct parts, noise
corrects nothing, and no correction turns an order that the runs do not contradict.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any

import numpy as np

from cosmic.base.errors import SpecError
from cosmic.search.agent import Floats

MAX_COMPARED = 2000
"""Most trials that are compared pair by pair; of more, so many are taken at even distances."""
TOP_DESIGNS = 10
"""How many of the best designs a model should recognise."""
MIN_TAU = 0.3
"""Below this Kendall's tau a model is not used: 30 trials in random order have more in one case of a hundred."""
MIN_HELD_OUT = 20
"""Held-out trials from which on a model is judged: tau of fewer says little."""


@dataclass(frozen=True, slots=True)
class Quality:
    """What a model knew of trials that it did not learn from."""

    tau: float
    """Kendall's tau-b of predicted and achieved losses: 1 for the same order, 0 for no relation."""
    recall: float
    """The share of the `top` best trials that are among the `top` best predictions."""
    top: int
    held_out: int
    """How many trials were held out."""

    @property
    def good(self) -> bool:
        """Whether the model should be used; one that cannot be judged yet is."""
        return self.held_out < MIN_HELD_OUT or self.tau >= MIN_TAU

    def in_words(self) -> str:
        """Return the quality as part of a sentence.

        >>> Quality(0.8123, 0.7, 10, 214).in_words()
        'Kendall τ 0.81 and 7 of the best 10 recognised, on 214 held-out trials'
        """
        recognised = round(self.recall * self.top)
        return (
            f"Kendall τ {self.tau:.2f} and {recognised} of the best {self.top} recognised, on {self.held_out:,} held-out"
            f" trial{'' if self.held_out == 1 else 's'}"
        )


def measure_quality(predicted: Floats, achieved: Floats, top: int = TOP_DESIGNS) -> Quality | None:
    """Return how good *predicted* losses are; None for fewer than two trials.

    Of few trials the best fifth counts as the top, but at least one.
    """
    if len(achieved) < 2:
        return None
    top = max(1, min(top, len(achieved) // 5))
    return Quality(kendall_tau(predicted, achieved), top_recall(predicted, achieved, top), top, len(achieved))


def kendall_tau(ours: Floats, theirs: Floats) -> float:
    r"""Return Kendall's tau-b of two rankings: 1 where all pairs are in the same order, -1 where all are reversed.

        tau_b = (C - D) / sqrt((P - T_1) (P - T_2))

    C, D  pairs in the same and in reverse order    P  all pairs    T  pairs that one of the rankings ties

    0 where one of them ties everything. Kendall, *The treatment of ties in ranking problems*, Biometrika 33(3), 1945.

    >>> round(kendall_tau(np.arange(4.0), np.array([1.0, 3.0, 2.0, 4.0])), 4)  # 5 of 6 pairs agree: (5 - 1) / 6
    0.6667
    """
    if len(ours) > MAX_COMPARED:
        sample = np.linspace(0, len(ours) - 1, MAX_COMPARED).astype(np.intp)
        ours, theirs = ours[sample], theirs[sample]
    first, second = (np.sign(ranking[:, None] - ranking[None, :]).astype(np.int8) for ranking in (ours, theirs))
    untied = [int(np.count_nonzero(ranking)) for ranking in (first, second)]
    if not all(untied):
        return 0.0
    agreeing = int((first * second).sum(dtype=np.int64))
    return agreeing / float(np.sqrt(float(untied[0]) * untied[1]))


def top_recall(predicted: Floats, achieved: Floats, top: int) -> float:
    """Return the share of the *top* least achieved losses that are among the *top* least predicted ones.

    >>> top_recall(np.array([1.0, 2.0, 3.0, 4.0]), np.array([2.0, 9.0, 1.0, 8.0]), 2)  # 0 and 1 predicted, 2 and 0 best
    0.5
    """
    best, chosen = (np.argsort(values, kind="stable")[:top] for values in (achieved, predicted))
    return len(np.intersect1d(best, chosen)) / top


@dataclass(frozen=True, slots=True)
class Learned:
    """What a search with a model says of it at its end."""

    quality: Quality | None
    """None where too few trials could be held out."""
    proposals: int = 0
    """Batches that the model was asked for."""
    fallbacks: int = 0
    """Of these, batches that were proposed without it, as it was bad."""
    notes: tuple[str, ...] = ()
    """What was learned beforehand, matched and left, a sentence each."""

    def sentences(self) -> list[str]:
        """Return what to say of the model."""
        texts = list(self.notes)
        if self.quality is None and not self.proposals:
            return texts
        if self.quality is None:
            return [*texts, "The surrogate could not be judged: too few trials can run to hold some out."]
        texts.append(f"The surrogate, at the end: {self.quality.in_words()}.")
        if self.fallbacks:
            texts.append(
                f"{self.fallbacks:,} of its {self.proposals:,} batches were proposed without it (mutations of good"
                f" designs, and random ones), as its Kendall τ was below {MIN_TAU:g}."
            )
        return texts


def dump_learned(learned: Learned) -> dict[str, Any]:
    """Return what was learned as JSON holds it."""
    return asdict(learned)


def parse_learned(tree: Any) -> Learned:
    """Return what plain data states; anything else is a `SpecError`."""
    try:
        quality_tree = tree["quality"]
        quality = None if quality_tree is None else _parse_quality(quality_tree)
        notes = tuple(tree["notes"])
        counts = [tree[name] for name in ("proposals", "fallbacks")]
        counts_valid = all(type(count) is int and count >= 0 for count in counts)
        texts = all(isinstance(note, str) and note.isprintable() for note in notes)
    except (KeyError, TypeError, ValueError) as error:
        raise SpecError("learned", str(tree)[:80], f"is not what a search writes ({error})") from None
    if not counts_valid or not texts:
        raise SpecError("learned", str(tree)[:80], "is not what a search writes")
    return Learned(quality, counts[0], counts[1], notes)


def _parse_quality(tree: Mapping[str, Any]) -> Quality:
    tau, recall = float(tree["tau"]), float(tree["recall"])
    top, held_out = tree["top"], tree["held_out"]
    if not (isfinite(tau) and isfinite(recall)) or type(top) is not int or type(held_out) is not int:
        raise ValueError("its numbers")
    return Quality(tau, recall, top, held_out)


# ---- What measurements add to a prediction: log(measured / predicted), learned from few of them

PART_PENALTIES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
"""Ridge penalties that are tried on parts, which are shares of a step."""
TREND_PENALTIES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
"""The same on features of a standard deviation of one, for each run."""
MIN_PART_RUNS, MIN_TREND_RUNS = 4, 5
"""Runs from which on parts are told apart, and a trend is tried."""
ERROR_MARGIN = 0.9
"""A model with more freedom must have at most this share of the error of a simpler one."""


@dataclass(frozen=True)
class Residuals:
    """A learned correction: the logarithm of the factor between prediction and measurement."""

    kind: str
    """Which model won: ``none``, ``factor``, ``parts`` or ``trend``."""
    error: float
    """Root mean square of log(measured / corrected), each run predicted by the others."""
    before: float
    """The same of the predictions as they are."""
    level: float
    least: float
    """The correction stays between the least and the largest that was measured: it ends where the runs do."""
    most: float
    middle: Floats
    spread: Floats
    slopes: Floats

    def predict(self, coded: Floats) -> Floats:
        """Return the logarithm of the factor of each design."""
        if not self.slopes.any():
            return np.full(len(coded), self.level)
        correction = (coded - self.middle) / self.spread @ self.slopes + self.level
        return np.asarray(np.clip(correction, self.least, self.most))


def fit_residuals(coded: Floats, logs: Floats, predicted: Floats | None = None, parts: Sequence[int] = ()) -> Residuals:
    r"""Return the correction for designs with the features *coded*, of which *logs* are log(measured / predicted).

    *predicted* is the logarithm of each prediction, by which runs are ranked; *parts* are the columns of *coded* that
    are shares of the step.

        error of run i if it is left out  =  (y_i - ŷ_i) / (1 - h_ii)      ŷ = H y      (Allen's PRESS)

    of one factor, h = 1/n:

    >>> found = fit_residuals(np.zeros((4, 1)), np.log([1.1, 1.1, 1.2, 1.2]))
    >>> found.kind, round(float(np.exp(found.level)), 4), round(found.error, 4)  # (ln 1.2/1.1) / 2 · 4/3
    ('factor', 1.1489, 0.058)
    """
    count, width = coded.shape
    before, flat, unit = _rms(logs), np.zeros(width), np.ones(width)
    ends = (float(logs.min(initial=0.0)), float(logs.max(initial=0.0)))
    best, best_errors = Residuals("none", before, before, 0.0, *ends, flat, unit, flat), logs
    if count < 2:
        return best
    level = float(logs.mean())
    held_out_errors = (logs - level) * count / (count - 1)
    if _rms(held_out_errors) < ERROR_MARGIN * best.error:
        best, best_errors = (
            Residuals("factor", _rms(held_out_errors), before, level, *ends, flat, unit, flat),
            held_out_errors,
        )
    log_predictions = np.zeros(count) if predicted is None else predicted
    middle, spread = coded.mean(axis=0), coded.std(axis=0)
    shares = np.isin(np.arange(width), list(parts))
    tried = (
        ("parts", np.where(shares, 1.0, np.inf), PART_PENALTIES, MIN_PART_RUNS),
        (
            "trend",
            np.where(spread > 1e-12, spread, np.inf),
            [count * penalty for penalty in TREND_PENALTIES],
            max(MIN_TREND_RUNS, width),
        ),
    )
    for kind, scale, penalties, least in tried:
        scaled = (coded - middle) / scale
        if count < least or not scaled.any():
            continue
        held_out_errors, slopes = _fit_ridge(scaled, logs - level, penalties)
        if _is_better(held_out_errors, best_errors) and _rank_of(log_predictions + logs, held_out_errors) >= _rank_of(
            log_predictions + logs, best_errors
        ):
            best, best_errors = (
                Residuals(kind, _rms(held_out_errors), before, level, *ends, middle, scale, slopes),
                held_out_errors,
            )
    return best


def _fit_ridge(scaled: Floats, targets: Floats, penalties: Iterable[float]) -> tuple[Floats, Floats]:
    """Return the errors of runs that are left out, and the slopes, with the penalty that makes these errors least.

    The mean counts as fitted.
    """
    count, width = scaled.shape
    fits: list[tuple[Floats, Floats]] = []
    for penalty in penalties:
        # LAPACK rounds differently on each kind of processor; a correction is learned from noise far above that.
        solved = np.linalg.solve(scaled.T @ scaled + penalty * np.eye(width), scaled.T)
        slopes = solved @ targets
        leverage = np.einsum("ij,ji->i", scaled, solved) + 1 / count
        fits.append(((targets - scaled @ slopes) / np.maximum(1 - leverage, 1e-9), slopes))
    return min(fits, key=lambda fit: _rms(fit[0]))


def _is_better(errors: Floats, before_errors: Floats) -> bool:
    """Return whether the errors *errors* are less than those before, by a margin and by more than one standard error."""
    gain = before_errors**2 - errors**2
    doubt = float(gain.std(ddof=1)) / np.sqrt(len(gain))
    return _rms(errors) < ERROR_MARGIN * _rms(before_errors) and float(gain.mean()) > doubt


def _rank_of(measured: Floats, errors: Floats) -> float:
    """Return how well left-out runs are ranked by predictions that have the errors *errors*."""
    return kendall_tau(measured - errors, measured)


def _rms(values: Floats) -> float:
    return float(np.sqrt(np.mean(np.square(values)))) if len(values) else 0.0
