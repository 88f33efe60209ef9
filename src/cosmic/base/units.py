"""Quantities: strings with units in files, SI numbers inside.

`Gbps` is bits, `GB/s` is 1e9 bytes, `GiB` is 2**30 bytes, and a bare number is refused where a unit is
needed. Inside the package a field's name ends in its unit, and the file's key is the name without it:

>>> split_name("bandwidth_bytes_per_s")
('bandwidth', PhysicalDimension(byte=1, flop=0, s=-1, joule=0, usd=0))
>>> read_quantity("400 Gbps", BYTES_PER_S)
50000000000.0
>>> format_quantity(50e9, BYTES_PER_S)
'50 GB/s'

Reading is exact (rational arithmetic, rounded once), and `read(show(x)) == x` for every finite number.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

from cosmic.base.errors import SpecError, suggest_names


class PhysicalDimension(NamedTuple):
    """The exponents of a physical dimension over the base units used here."""

    byte: int = 0
    flop: int = 0
    s: int = 0
    joule: int = 0
    usd: int = 0

    def times(self, other: PhysicalDimension, power: int = 1) -> PhysicalDimension:
        """Return the dimension of a product (of a quotient when *power* is -1)."""
        return PhysicalDimension(*(left + power * right for left, right in zip(self, other, strict=True)))

    def __str__(self) -> str:
        """Return a readable name, such as 'byte/s'; 'a plain number' if there is no unit."""
        if self == NUMBER:
            return "a plain number"
        above = [_format_power(name, n) for name, n in zip(self._fields, self, strict=True) if n > 0]
        below = [_format_power(name, -n) for name, n in zip(self._fields, self, strict=True) if n < 0]
        return "/".join(["·".join(above) or "1", *below])


NUMBER = PhysicalDimension()
BYTES = PhysicalDimension(byte=1)
SECONDS = PhysicalDimension(s=1)
BYTES_PER_S = PhysicalDimension(byte=1, s=-1)
FLOP = PhysicalDimension(flop=1)
FLOP_PER_S = PhysicalDimension(flop=1, s=-1)
JOULES = PhysicalDimension(joule=1)
WATTS = PhysicalDimension(joule=1, s=-1)
USD = PhysicalDimension(usd=1)

SUFFIXES = {  # units at the end of field names; longer suffixes first
    "_bytes_per_s": BYTES_PER_S,
    "_flop_per_s": FLOP_PER_S,
    "_bytes": BYTES,
    "_flop": FLOP,
    "_usd": USD,
    "_s": SECONDS,
    "_j": JOULES,
    "_w": WATTS,
}
EXAMPLES = {
    BYTES: "80 GiB",
    SECONDS: "700 ns",
    BYTES_PER_S: "400 Gbps",
    FLOP: "6 PFLOP",
    FLOP_PER_S: "312 TFLOP/s",
    JOULES: "3 MJ",
    WATTS: "700 W",
    USD: "30000 USD",
}


class Quantity(NamedTuple):
    """An exact number of SI base units."""

    value: Fraction
    dimension: PhysicalDimension


_DECIMAL = {"": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_SMALL = {"m": -3, "u": -6, "µ": -6, "n": -9, "p": -12}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


def _unit_table() -> dict[str, Quantity]:
    """Return every unit, such as 'GiB' or 'ns', as a quantity."""
    table: dict[str, Quantity] = {}

    def add(names: tuple[str, ...], worth: Quantity, prefixes: dict[str, Fraction]) -> None:
        for name in names:
            for prefix, factor in prefixes.items():
                table[prefix + name] = Quantity(worth.value * factor, worth.dimension)

    decimal = {prefix: Fraction(10) ** power for prefix, power in _DECIMAL.items()}
    small = {prefix: Fraction(10) ** power for prefix, power in _SMALL.items()}
    binary = {prefix: Fraction(2) ** power for prefix, power in _BINARY.items()}
    one = Fraction(1)
    add(("B",), Quantity(one, BYTES), decimal | binary)
    add(("b", "bit"), Quantity(one / 8, BYTES), decimal | binary)
    add(("bps",), Quantity(one / 8, BYTES_PER_S), decimal | binary)
    add(("FLOP", "flop"), Quantity(one, FLOP), decimal)
    add(("s",), Quantity(one, SECONDS), {"": one} | small)
    add(("W",), Quantity(one, WATTS), decimal | {"m": small["m"]})
    add(("J",), Quantity(one, JOULES), decimal | {"m": small["m"]})
    add(("Wh",), Quantity(Fraction(3600), JOULES), decimal)
    add(("USD",), Quantity(one, USD), {"": one, "k": decimal["k"], "M": decimal["M"], "G": decimal["G"]})
    table |= {"min": Quantity(Fraction(60), SECONDS)}
    table |= dict.fromkeys(("h", "hour", "hours"), Quantity(Fraction(3600), SECONDS))
    return table | dict.fromkeys(("day", "days"), Quantity(Fraction(86400), SECONDS))


UNITS = _unit_table()
LONGEST_TEXT = 400
"""Most characters of a quantity; any float needs fewer."""
_QUANTITY = re.compile(
    r"\s*([+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?)\s*([A-Za-zµ]+)(?:\s*/\s*([A-Za-zµ]+))?\s*", re.ASCII
)


def parse_quantity(text: str) -> Quantity:
    """Return the exact quantity that *text* states; raise `SpecError` if it states none.

    >>> parse_quantity("80 GiB").value == 80 * 2**30, parse_quantity("1 \u03bcs") == parse_quantity("1 µs"), parse_quantity("2 days") == parse_quantity("48 hours")
    (True, True, True)
    """
    # Two letters look like µ, and people write 200 M USD.
    spelled = re.sub(r"(?<=[\d\s])([kMG])\s+USD", r"\1USD", text[: LONGEST_TEXT + 1].replace("\u03bc", "µ"))
    match = _QUANTITY.fullmatch(spelled) if len(text) <= LONGEST_TEXT else None
    if not match:
        raise SpecError("quantity", text, "write a number and its unit, such as '400 Gbps' or '80 GiB'")
    number, above, below = match.groups()
    unit = unit_of(above, text)
    if below:
        divisor = unit_of(below, text)
        unit = Quantity(unit.value / divisor.value, unit.dimension.times(divisor.dimension, -1))
    return Quantity(Fraction(number) * unit.value, unit.dimension)


def unit_of(name: str, text: str) -> Quantity:
    """Return one *name* as a quantity; an error quotes *text*."""
    if name in UNITS:
        return UNITS[name]
    if name.upper().endswith("FLOPS"):
        raise SpecError("quantity", text, f"a rate is written {name[:-5]}FLOP/s, an amount {name[:-5]}FLOP")
    raise SpecError("quantity", text, f"'{name}' is no unit{suggest_names(name, UNITS)}")


def read_quantity(text: Any, dimension: PhysicalDimension) -> float:
    """Return *text* as a float in SI base units, if it is a quantity of the given *dimension*."""
    if not isinstance(text, str):
        raise SpecError("quantity", text, f"write a number with its unit, such as '{EXAMPLES[dimension]}'")
    quantity = parse_quantity(text)
    if quantity.dimension != dimension:
        rule = f"is {quantity.dimension}; wanted {dimension}, such as '{EXAMPLES[dimension]}'"
        raise SpecError("quantity", text, rule)
    try:
        return float(quantity.value)
    except OverflowError:
        raise SpecError("quantity", text, "is too large") from None


_COUNT = re.compile(r"\s*(\d{1,30}(?:\.\d{1,30})?)(?:[eE](\d{1,2})|\s*([kMGBT]))\s*", re.ASCII)
_THOUSANDS = {"k": 3, "M": 6, "G": 9, "B": 9, "T": 12}


def read_count(text: str) -> float | None:
    """Return a plain number that is written short; None if *text* is none.

    YAML takes ``15e12`` for text, as its exponent has no sign.

    >>> read_count("15T"), read_count("15.6e12"), read_count("800 B"), read_count("fast")
    (15000000000000.0, 15600000000000.0, 800000000000.0, None)
    """
    match = _COUNT.fullmatch(text)
    if match is None:
        return None
    number, exponent, thousands = match.groups()
    return float(Fraction(number) * 10 ** (int(exponent) if exponent else _THOUSANDS[thousands]))


_SHOWN_UNITS = {
    BYTES: ("EB", "PB", "TB", "GB", "MB", "kB", "B"),
    SECONDS: ("s", "ms", "us", "ns", "ps"),
    BYTES_PER_S: ("PB/s", "TB/s", "GB/s", "MB/s", "kB/s", "B/s"),
    FLOP: ("EFLOP", "PFLOP", "TFLOP", "GFLOP", "MFLOP", "kFLOP", "FLOP"),
    FLOP_PER_S: ("EFLOP/s", "PFLOP/s", "TFLOP/s", "GFLOP/s", "MFLOP/s", "kFLOP/s", "FLOP/s"),
    JOULES: ("GJ", "MJ", "kJ", "J"),
    WATTS: ("MW", "kW", "W"),
    USD: ("USD",),
}
_BINARY_BYTES = ("EiB", "PiB", "TiB", "GiB", "MiB", "KiB")


def format_quantity(value: float, dimension: PhysicalDimension) -> str:
    """Return *value* with its unit: the shortest text that reads back as exactly *value*.

    >>> format_quantity(80 * 2.0**30, BYTES), format_quantity(7e-07, SECONDS), format_quantity(0.0, SECONDS)
    ('80 GiB', '700 ns', '0 s')
    """
    if not math.isfinite(value):
        raise SpecError("quantity", value, "only finite numbers can be written")
    return _format_shortest(value, dimension)


@lru_cache(maxsize=65536)
def _format_shortest(value: float, dimension: PhysicalDimension) -> str:
    units = _SHOWN_UNITS[dimension]
    if value == 0:
        return f"0 {units[-1] if dimension != SECONDS else 's'}"
    exact = Fraction(repr(value))
    texts = [f"{_format_decimal(exact / parse_quantity('1' + unit).value)} {unit}" for unit in units]
    if dimension == BYTES:  # binary only where it is a whole number: '80 GiB', never '74.5 GiB'
        texts += [
            f"{exact / parse_quantity('1' + unit).value} {unit}"
            for unit in _BINARY_BYTES
            if (exact / parse_quantity("1" + unit).value).denominator == 1
        ]
    return min(texts, key=_text_preference)


def _text_preference(text: str) -> tuple[bool, int, Fraction]:
    """Return a sort key, best first: numbers from 1 on ('700 ns', not '0.7 us'), short texts, large units."""
    number, unit = text.split(" ")
    return abs(Fraction(number)) < 1, len(text), -parse_quantity(f"1 {unit}").value


def _format_decimal(value: Fraction) -> str:
    """Return a terminating decimal *value* in full, without an exponent where that stays short."""
    # The fewest decimal places with which the fraction is exact: its denominator has only twos and fives.
    places = 0
    while 10**places % value.denominator:
        places += 1
    digits = int(value * 10**places)
    sign, text = ("-" if digits < 0 else ""), str(abs(digits)).rjust(places + 1, "0")
    if len(text) > 24:
        mantissa = str(abs(digits)).rstrip("0")
        exponent = len(str(abs(digits))) - 1 - places
        return f"{sign}{mantissa[0]}.{mantissa[1:] or '0'}e{exponent}"
    return sign + (f"{text[:-places]}.{text[-places:]}" if places else text)


def readable_unit(values: Sequence[float], dimension: PhysicalDimension) -> tuple[str, float]:
    """Return a unit for a column of *values*, and its size: the largest unit in which the largest value is 10 or more.

    >>> readable_unit([312e12, 2.25e15], FLOP_PER_S)
    ('TFLOP/s', 1000000000000.0)
    """
    units = (*_BINARY_BYTES, "B") if dimension == BYTES else _SHOWN_UNITS[dimension]
    largest = max(map(abs, values), default=0.0)
    for unit in units:
        worth = float(parse_quantity(f"1 {unit}").value)
        if largest >= 10 * worth:
            return unit, worth
    return units[-1], float(parse_quantity(f"1 {units[-1]}").value)


def split_name(name: str) -> tuple[str, PhysicalDimension | None]:
    """Return a field's key in files, its name without the unit, and the unit's dimension.

    >>> split_name("latency_s")[0], split_name("npus")
    ('latency', ('npus', None))
    """
    for suffix, dimension in SUFFIXES.items():
        if name.endswith(suffix):
            return name.removesuffix(suffix), dimension
    return name, None


def _format_power(name: str, exponent: int) -> str:
    return name if exponent == 1 else f"{name}^{exponent}"
