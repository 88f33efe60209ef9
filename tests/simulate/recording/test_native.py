"""The C interpreter computes what NumPy computes, bit for bit, whatever the numbers are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cosmic.base.native.library import native_library
from cosmic.base.numeric import cbrt
from cosmic.simulate.recording.program_interpreters import ProgramPlan, find_interpreter, replay_program
from cosmic.simulate.recording.program_tape import (
    INPUT,
    OPERANDS,
    OPERATION_NAMES,
    OPERATION_NUMBERS,
    OPERATIONS,
    Lookup,
)
from cosmic.simulate.recording.recorded_program import LookupTable, RecordedProgram, hash_key
from cosmic.step.stage_memory import interleaved_bytes
from tests.batches import check_all

pytestmark = pytest.mark.skipif(native_library() is None, reason="no compiler was at hand when this was installed")
RNG = np.random.default_rng(0)
NUMBERS_OF_ALL_KINDS = np.concatenate(
    [RNG.uniform(-5, 5, 120), RNG.integers(-50, 50, 60), 10.0 ** RNG.uniform(-30, 30, 60), [0.0, 1.0, 2.0**53, -3.0]]
)
SIZES = (1, 2, 3, 127, 128, 129, 244)


def one_operation(name: str, count: int) -> RecordedProgram:
    """Return a program of one operation on *count* inputs."""
    paths = [f"input.{place}" for place in range(count)]
    nodes: list[tuple[int, int, int, int]] = [(INPUT, 0, 0, 0)] * count
    if name in OPERATIONS:
        places = (*range(count), 0, 0, 0)[:3]
        nodes.append((OPERATION_NUMBERS[name], *places))
        lists: list[int] = []
    else:
        nodes.append((OPERATION_NUMBERS[name], 0, 0, count))
        lists = list(range(count))
    return RecordedProgram(
        nodes=np.array(nodes, dtype=np.int32),
        lists=np.array(lists, dtype=np.int32),
        constants={},
        inputs={path: place for place, path in enumerate(paths)},
        tables=(),
        lookups=(),
        guards=(),
        results={"found": count},
        measured=1,
    )


def both(program: RecordedProgram, columns: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return what C gives, and what NumPy gives."""
    assert find_interpreter() is not None
    rows = np.arange(columns.shape[1])
    found, wanted = np.empty((1, len(rows))), np.empty((1, len(rows)))
    assert ProgramPlan(program, tuple(program.inputs), {}).run(columns, rows, found)
    assert replay_program(program, {}, columns, tuple(program.inputs), wanted)
    return found[0], wanted[0]


@check_all("name", list(OPERATIONS))
@check_all("size", SIZES)
def test_an_operation_is_the_same_bits(name: str, size: int) -> None:
    count = OPERANDS[OPERATION_NUMBERS[name]]
    columns = np.stack([RNG.permutation(NUMBERS_OF_ALL_KINDS)[:size] for _ in range(count)])
    if name in ("sqrt", "log", "log2", "power"):
        columns = np.abs(columns) + 1e-9
    if name == "power":
        columns[1] = RNG.uniform(-3, 3, size)
    if name in ("logical_not", "logical_and", "logical_or"):
        columns = (columns > 0) * 1.0
    if name == "gcd":
        columns = np.rint(np.clip(np.abs(columns), 0, 2**40))
    found, wanted = both(one_operation(name, count), columns)
    assert np.array_equal(found, wanted, equal_nan=True)


@pytest.mark.parametrize("name", ["maximum", "minimum", "less", "less_equal", "equal", "not_equal", "where", "isnan"])
def test_what_is_no_number_is_compared_as_numpy_does(name: str) -> None:
    odd = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0])
    columns = np.stack([each.reshape(-1) for each in np.meshgrid(*[odd] * OPERANDS[OPERATION_NUMBERS[name]])])
    found, wanted = both(one_operation(name, len(columns)), columns)
    assert np.array_equal(found, wanted, equal_nan=True)


@pytest.mark.parametrize(
    ("name", "columns"),
    [("divide", [[1.0] * 5, [1.0, 0.0, 2.0, 4.0, 0.0]]), ("multiply", [[1e300] * 5, [1, 1e9] * 2 + [2]])],
)
def test_only_the_designs_that_overflow_have_no_number(name: str, columns: list[list[float]]) -> None:
    found, wanted = both(one_operation(name, 2), np.array(columns))
    assert np.isnan(found).tolist() == np.isnan(wanted).tolist()
    assert np.isnan(found).sum() == 2


def test_cube_roots_are_right_to_the_last_bit_or_the_one_beside_it() -> None:
    values = np.concatenate([10.0 ** RNG.uniform(-290, 300, 4000), RNG.uniform(0.1, 10, 4000)])
    exact = np.cbrt(values.astype(np.longdouble))
    assert np.max(np.abs(cbrt(values) - exact) / np.spacing(exact.astype(float))) <= 1.0
    assert np.array_equal(cbrt(np.array([0.0, -8.0, np.inf])), [0.0, -2.0, np.inf])


@pytest.mark.parametrize("parts", [1, 2, 4, 8])
def test_interleaved_activations_are_the_same_bits(parts: int) -> None:
    size = 150
    stages = RNG.choice([1.0, 2.0, 3.0, 8.0], size)
    place = np.floor(RNG.uniform(0, 1, size) * stages)
    virtual = np.minimum(RNG.choice([1.0, 2.0, 3.0, 8.0], size), parts)
    count = stages * RNG.choice([1.0, 2.0, 5.0], size)
    sizes = RNG.uniform(0, 1e10, (parts, size))
    columns = np.stack([place, stages, count, virtual, *sizes])
    found, wanted = both(one_operation("interleaved_bytes", 4 + parts), columns)
    assert np.array_equal(found, wanted)
    assert found[3] == interleaved_bytes(*(column[3] for column in columns))


def test_python_and_c_know_operations_by_the_same_numbers() -> None:
    found = native_library()
    assert found is not None
    assert found.cosmic_operations().decode().split() == list(OPERATION_NAMES)


def sums(kind: str, name: str, size: float) -> tuple[float, float]:
    if size == 13:
        raise ArithmeticError("thirteen")
    return len(kind) + len(name) + size, -size


def test_a_table_grows_and_keeps_its_rows() -> None:
    table = LookupTable((("ring", "switch"), None))
    column = table.column(Lookup(sums, ("all_reduce",), table.known))
    keys = np.array([[code, size] for code in (0.0, 1.0) for size in np.arange(1000.0) + 100])
    rows = table.places_of(keys)
    wanted = [len("all_reduce") + len(("ring", "switch")[int(code)]) + size for code, size in keys.tolist()]
    assert table.value(column, rows).tolist() == wanted
    assert table.value(column + 1, rows).tolist() == (-keys[:, 1]).tolist()
    later = table.column(Lookup(sums, ("send",), table.known))
    assert table.value(later, rows[:2]).tolist() == [len("send") + len("ring") + 100, len("send") + len("ring") + 101]
    assert len({hash_key(key) for key in map(tuple, keys.tolist())}) == len(keys)


def test_what_fails_in_a_table_fails_for_who_asks() -> None:
    table = LookupTable((("ring",), None))
    column = table.column(Lookup(sums, ("all_reduce",), table.known))
    rows = table.places_of(np.array([[0.0, 12.0], [0.0, 13.0]]))
    assert table.value(column, rows[:1]).tolist() == [len("all_reduce") + len("ring") + 12]
    with pytest.raises(ArithmeticError, match="thirteen"):
        table.value(column, rows)
