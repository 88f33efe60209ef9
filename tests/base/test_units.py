"""Quantities: read exactly, written readably, refused in one sentence."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosmic.base import units
from cosmic.base.errors import SpecError
from cosmic.base.units import (
    BYTES,
    BYTES_PER_S,
    FLOP,
    FLOP_PER_S,
    JOULES,
    NUMBER,
    SECONDS,
    USD,
    WATTS,
    PhysicalDimension,
    Quantity,
    format_quantity,
    parse_quantity,
    read_quantity,
    readable_unit,
    split_name,
)
from tests.batches import check_all

DIMENSIONS = sorted(units.EXAMPLES)


@pytest.mark.parametrize(
    ("text", "dimension", "value"),
    [
        ("400 Gbps", BYTES_PER_S, 50e9),
        ("400 Gb/s", BYTES_PER_S, 50e9),
        ("400 Gbit/s", BYTES_PER_S, 50e9),
        ("400 GB/s", BYTES_PER_S, 400e9),
        ("400 GiB/s", BYTES_PER_S, 400 * 2.0**30),
        ("80 GB", BYTES, 80e9),
        ("80 GiB", BYTES, 80 * 2.0**30),
        ("80GiB", BYTES, 80 * 2.0**30),
        ("  1.5  kB ", BYTES, 1500.0),
        ("700 ns", SECONDS, 7e-07),
        ("2 us", SECONDS, 2e-06),
        ("2 µs", SECONDS, 2e-06),
        ("1.5 h", SECONDS, 5400.0),
        ("312 TFLOP/s", FLOP_PER_S, 312e12),
        ("6 PFLOP", FLOP, 6e15),
        ("1 kWh", JOULES, 3.6e6),
        ("700 W", WATTS, 700.0),
        ("3 MJ/s", WATTS, 3e6),
        ("30 kUSD", USD, 30e3),
        ("1e3 B", BYTES, 1000.0),
        (".5 B", BYTES, 0.5),
        ("-2 s", SECONDS, -2.0),
    ],
)
def test_a_quantity_is_read_in_base_units(text: str, dimension: PhysicalDimension, value: float) -> None:
    assert read_quantity(text, dimension) == value


def test_reading_is_exact_where_floats_are_not() -> None:
    assert parse_quantity("0.1 s").value * 3 == parse_quantity("0.3 s").value
    assert 0.1 * 3 != 0.3


@pytest.mark.parametrize(
    ("text", "dimension", "message"),
    [
        (
            "312 TFLOPS",
            FLOP_PER_S,
            "quantity = '312 TFLOPS': a rate is written TFLOP/s, an amount TFLOP",
        ),
        ("80", BYTES, "quantity = '80': write a number and its unit, such as '400 Gbps' or '80 GiB'"),
        (80, BYTES, "quantity = 80: write a number with its unit, such as '80 GiB'"),
        (None, SECONDS, "quantity = None: write a number with its unit, such as '700 ns'"),
        ("80 GIB", BYTES, "quantity = '80 GIB': 'GIB' is no unit; did you mean 'GiB'?"),
        ("7 nss", SECONDS, "quantity = '7 nss': 'nss' is no unit; did you mean 'ns'?"),
        ("80 GB", SECONDS, "quantity = '80 GB': is byte; wanted s, such as '700 ns'"),
        ("80 GB", BYTES_PER_S, "quantity = '80 GB': is byte; wanted byte/s, such as '400 Gbps'"),
        ("1 GB/GB", BYTES, "quantity = '1 GB/GB': is a plain number; wanted byte, such as '80 GiB'"),
        ("1e999 EB", BYTES, "quantity = '1e999 EB': is too large"),
        ("GB", BYTES, "quantity = 'GB': write a number and its unit, such as '400 Gbps' or '80 GiB'"),
    ],
)
def test_what_is_no_such_quantity_is_refused_with_a_hint(text: str, dimension: PhysicalDimension, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        read_quantity(text, dimension)
    assert str(caught.value) == message


@pytest.mark.parametrize("text", ["1" * 5000 + " GB", "0." + "1" * 5000 + " GB", "1 " + "B" * 5000, " " * 5000])
def test_a_text_without_end_is_no_quantity(text: str) -> None:
    with pytest.raises(SpecError, match="write a number and its unit"):
        parse_quantity(text)


@given(st.text() | st.from_regex(units._QUANTITY.pattern) | st.from_regex(r"[0-9]+ ?[kMGT]?i?[A-Za-z]{0,4}(/[a-z]+)?"))
def test_any_text_is_a_quantity_or_refused(text: str) -> None:
    try:
        assert isinstance(parse_quantity(text), Quantity)
    except SpecError:
        return


@pytest.mark.parametrize("dimension", DIMENSIONS, ids=str)
@given(value=st.floats(allow_nan=False, allow_infinity=False))
@settings(max_examples=60)
def test_what_is_shown_reads_back_as_the_same_number(dimension: PhysicalDimension, value: float) -> None:
    assert read_quantity(format_quantity(value, dimension), dimension) == value


@check_all("value", [5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, 0.1 + 0.2, -0.0])
@check_all("dimension", DIMENSIONS)
def test_extreme_numbers_read_back_too(dimension: PhysicalDimension, value: float) -> None:
    assert read_quantity(format_quantity(value, dimension), dimension) == value


@pytest.mark.parametrize(
    ("value", "dimension", "text"),
    [
        (7e-07, SECONDS, "700 ns"),
        (2e-06, SECONDS, "2 us"),
        (0.0, SECONDS, "0 s"),
        (90.0, SECONDS, "90 s"),
        (100e9, BYTES_PER_S, "100 GB/s"),
        (12.5e9, BYTES_PER_S, "12.5 GB/s"),
        (3.35e12, BYTES_PER_S, "3.35 TB/s"),
        (80 * 2.0**30, BYTES, "80 GiB"),
        (24e9, BYTES, "24 GB"),
        (1.0, BYTES, "1 B"),
        (0.0, BYTES, "0 B"),
        (-24e9, BYTES, "-24 GB"),
        (989.4e12, FLOP_PER_S, "989.4 TFLOP/s"),
        (10200.0, WATTS, "10.2 kW"),
        (28000.0, USD, "28000 USD"),
    ],
)
def test_a_number_is_shown_in_a_unit_that_suits_it(value: float, dimension: PhysicalDimension, text: str) -> None:
    assert format_quantity(value, dimension) == text


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_only_finite_numbers_are_shown(value: float) -> None:
    with pytest.raises(SpecError, match="only finite numbers can be written"):
        format_quantity(value, BYTES)


@pytest.mark.parametrize(
    ("name", "key", "dimension"),
    [
        ("bandwidth_bytes_per_s", "bandwidth", BYTES_PER_S),
        ("bf16_flop_per_s", "bf16", FLOP_PER_S),
        ("capacity_bytes", "capacity", BYTES),
        ("latency_s", "latency", SECONDS),
        ("price_usd", "price", USD),
        ("power_w", "power", WATTS),
        ("npus", "npus", None),
        ("dims", "dims", None),
    ],
)
def test_a_field_says_its_unit_and_its_key(name: str, key: str, dimension: PhysicalDimension | None) -> None:
    assert split_name(name) == (key, dimension)


def test_a_column_of_numbers_takes_the_unit_of_its_least() -> None:
    assert readable_unit([2.5e12, 4e9], BYTES_PER_S) == ("GB/s", 1e9)
    assert readable_unit([80 * 2.0**30, 141 * 2.0**30], BYTES) == ("GiB", 2.0**30)
    assert readable_unit([], SECONDS) == ("ps", 1e-12)


def test_dimensions_have_readable_names() -> None:
    names = [str(each) for each in (NUMBER, BYTES, BYTES_PER_S, BYTES.times(BYTES), NUMBER.times(SECONDS, -1))]
    assert names == ["a plain number", "byte", "byte/s", "byte^2", "1/s"]
