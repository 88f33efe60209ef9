"""Noise that hides numbers: the same for equal numbers, within a stated tolerance, and unknown without the seed.

A number *v* becomes a whole number between ``v / (1 + t)`` and ``v (1 + t)``, where *t* is the tolerance. Numbers too
small for another whole number in that range stay as they are, as does 0.

Most of the noise is one factor for all numbers of a trace, the rest is each number's own: everything gets slower or
faster together. With noise that was all each number's own, simulated times of some designs with sharded weights changed
by ten times the tolerance on single networks (docs/sharing-traces.md).

Sizes also keep their common divisor with a highly composite number. Simulators cut a buffer into chunks, and one that
does not divide gets another chunk: ASTRA-sim sends 25 % more where four chunks become five.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cosmic.traces.trace import Ints

Floats = npt.NDArray[np.float64]

MODES = ("perturb", "bucket", "keep")
TRIES, TRIES_AGAIN = 64, 8
"""How often noise is drawn at most, and how often because it gave a number of the original."""
FACTORS = (2, 2, 2, 2, 3, 2, 2, 2, 2, 5, 7, 2, 2, 2, 2)
"""Divisors that sizes keep, or still lack, in this order, as far as the tolerance leaves `FEWEST` choices."""
FEWEST = 16
LEAST_MODULUS = 16
"""Divisors of this stay, however few choices are left: 52 bytes in four chunks would else be 54 in five."""
COMMON = 0.75
"""Share of the noise that is common to all numbers."""
LEAST_COMMON = 1 / 3
"""The common noise is at least this share of what it may be: so small numbers change, too."""
_MOST = 2.0**63 - 2**11
"""No number becomes larger: columns hold 64 bits."""


@dataclass(frozen=True, slots=True)
class Noise:
    """A source of random numbers that only the seed tells: a cryptographic hash of it."""

    seed: int

    def shares(self, label: str, count: int) -> Floats:
        """Return *count* numbers in [0, 1), others for each *label*.

        >>> Noise(1).shares("a", 2).tolist() == Noise(1).shares("a", 3)[:2].tolist()
        True
        """
        written = hashlib.shake_256(f"{self.seed} {label}".encode()).digest(8 * count)
        shares: Floats = (np.frombuffer(written, "<u8") >> np.uint64(11)).astype(np.float64) * 2.0**-53
        return shares

    def order(self, label: str, count: int) -> Ints:
        """Return the numbers from 0 to *count* - 1, shuffled."""
        return np.argsort(self.shares(label, count), kind="stable")


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Numbers, ascending and distinct, and what becomes of each."""

    old: Ints
    new: Ints

    def of(self, column: Ints) -> Ints:
        """Return *column* with its numbers replaced; those that are not in the table stay.

        >>> Table(np.array([5, 9]), np.array([6, 8])).of(np.array([9, 0, -1, 5])).tolist()
        [8, 0, -1, 6]
        """
        if not len(self.old):
            return column
        place = np.minimum(np.searchsorted(self.old, column), len(self.old) - 1)
        return np.where(self.old[place] == column, self.new[place], column)

    @property
    def kept(self) -> int:
        """How many numbers stay as they are."""
        return int((self.old == self.new).sum())

    @property
    def largest_change(self) -> float:
        """The largest relative change: *t* where a number was multiplied, or divided, by 1 + *t*.

        >>> Table(np.array([100, 200]), np.array([104, 160])).largest_change
        0.25
        """
        if not len(self.old):
            return 0.0
        ratio = self.new / self.old
        return float(np.maximum(ratio, 1 / ratio).max() - 1)


def distinct(values: Ints) -> Ints:
    """Return the distinct *values*, ascending: as `numpy.unique`, which is ten times slower where most are distinct.

    >>> distinct(np.array([3, 1, 3])).tolist()
    [1, 3]
    """
    ordered = np.sort(values)
    return ordered[np.concatenate([[True], ordered[1:] != ordered[:-1]])] if len(ordered) else ordered


def holds(ordered: Ints, values: Ints) -> npt.NDArray[np.bool_]:
    """Return whether each of *values* is among the ascending *ordered*."""
    if not len(ordered):
        return np.zeros(len(values), bool)
    found: npt.NDArray[np.bool_] = ordered[np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)] == values
    return found


def positive(columns: Iterable[Ints]) -> Ints:
    """Return the distinct numbers above 0 in *columns*, ascending."""
    whole = distinct(np.concatenate([np.empty(0, np.int64), *columns]))
    return whole[whole > 0]


def table(old: Ints, mode: str, tolerance: float, source: tuple[Noise, str], *, divided: bool = False) -> Table:
    """Return what becomes of the numbers *old*, ascending, distinct and above 0, by one of `MODES`.

    *source* is where noise comes from, and its label there; with *divided*, divisors stay.
    """
    if mode == "keep" or not len(old):
        return Table(old, old)
    low, high = limits(old, tolerance)
    modulus = moduli(high - low + 1) if divided else np.ones_like(old)
    range_ = _Range(old, low, high, modulus, np.gcd(old, modulus))
    return Table(old, (_perturbed if mode == "perturb" else _bucketed)(range_, tolerance, *source))


def limits(old: Ints, tolerance: float) -> tuple[Ints, Ints]:
    """Return the least and the largest whole number within *tolerance* of each of *old*.

    >>> [each.tolist() for each in limits(np.array([1, 19, 20, 100]), 0.05)]
    [[1, 19, 20, 96], [1, 19, 21, 105]]
    """
    low, high = np.ceil(old / (1 + tolerance)), np.floor(np.minimum(old * (1 + tolerance), _MOST))
    # Rounding of floats must not move a bound past the number itself.
    return np.minimum(low.astype(np.int64), old), np.maximum(high.astype(np.int64), old)


def moduli(choices: Ints) -> Ints:
    """Return the product of the first `FACTORS` that leaves at least `FEWEST` of as many *choices*; 16 at least.

    >>> moduli(np.array([1, 33 * 16, 48 * 16, 10**9])).tolist()
    [16, 16, 48, 430080]
    """
    products = np.cumprod([1, *FACTORS])
    found = products[np.searchsorted(products * FEWEST, np.maximum(choices, FEWEST), "right") - 1]
    return np.maximum(found, LEAST_MODULUS)


@dataclass(frozen=True, slots=True, eq=False)
class _Range:
    """What each of *old* may become: numbers from *low* to *high* whose common divisor with *modulus* is *divisor*."""

    old: Ints
    low: Ints
    high: Ints
    modulus: Ints
    divisor: Ints

    def nearest(self, wanted: Floats, at: Ints) -> Ints:
        """Return the multiple of the divisor that is nearest to each of *wanted*, for the numbers at *at*."""
        divisor = self.divisor[at]
        return divisor * np.rint(np.minimum(wanted, _MOST) / divisor).astype(np.int64)

    def allows(self, new: Ints, at: Ints) -> npt.NDArray[np.bool_]:
        """Return whether the numbers at *at* may become *new*."""
        within = (new >= self.low[at]) & (new <= self.high[at])
        same: npt.NDArray[np.bool_] = np.gcd(new, self.modulus[at]) == self.divisor[at]
        return within & same


def _perturbed(range_: _Range, tolerance: float, noise: Noise, label: str) -> Ints:
    """Return each number times a log-uniform factor; no old number comes out again where that can be avoided."""
    old, common = range_.old, _common(noise)
    new = old.copy()
    left = np.flatnonzero(range_.high > range_.low)
    for attempt in range(TRIES):
        if not len(left):
            break
        own = 2 * noise.shares(f"{label} {attempt}", len(left)) - 1
        factor = np.exp((COMMON * common + (1 - COMMON) * own) * np.log1p(tolerance))
        drawn = range_.nearest(old[left] * factor, left)
        good = range_.allows(drawn, left) & (drawn != old[left])
        new[left[good]] = drawn[good]
        settled = ~holds(old, drawn) if attempt < TRIES_AGAIN else good
        left = left[~(good & settled)]
    return new


def _common(noise: Noise) -> float:
    """Return the common noise, between -1 and 1, and not near 0.

    >>> 1 / 3 <= abs(_common(Noise(7))) < 1
    True
    """
    sign, share = noise.shares("common", 2).tolist()
    return float((LEAST_COMMON + (1 - LEAST_COMMON) * share) * (1 if sign < 1 / 2 else -1))


def _bucketed(range_: _Range, tolerance: float, noise: Noise, label: str) -> Ints:
    """Return each number rounded to a geometric grid that starts at a random place: neighbours become equal."""
    step = 2 * np.log1p(tolerance)
    phase = noise.shares(label, 1)[0]
    grid = np.exp((np.rint(np.log(range_.old) / step - phase) + phase) * step)
    new = range_.old.copy()
    left = np.arange(len(new))
    for place in range(2 * FEWEST):  # 0, 1, -1, 2, -2 ... divisors from the point of the grid
        offset = (place + 1) // 2 * (1 if place % 2 else -1)
        tried = range_.nearest(np.clip(grid[left], range_.low[left], range_.high[left]), left)
        tried += offset * range_.divisor[left]
        good = range_.allows(tried, left)
        new[left[good]] = tried[good]
        left = left[~good]
    return new
