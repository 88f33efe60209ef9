"""What is noted on a tape, and what cannot be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cosmic
from cosmic.base.numeric import anywhere, choose, floats, larger, largest_whole, smaller, where
from cosmic.design.design_batch import Combinations, Names
from cosmic.simulate.recording.program_interpreters import replay_program
from cosmic.simulate.recording.program_tape import Guard, RecordedArray, Tape, Unrecordable
from cosmic.simulate.recording.recorded_program import program_of_tape

VALUES = {
    "workload.pp": np.array([1, 3]),
    "workload.tp": np.array([2, 4]),
    "compute.sms": np.array([132]),
    "memory.bandwidth": np.array([2.0]),
}


@pytest.fixture
def tape() -> Tape:
    return Tape(VALUES, ("workload.pp", "workload.tp"))


def value_of(tape: Tape, made: Any) -> list[float]:
    """Return what a program computes for the two designs of `VALUES`."""
    program = program_of_tape(tape, {"made": made}, {})
    columns = {path: np.broadcast_to(VALUES[path], 2).astype(float) for path in program.inputs}
    results = np.empty((1, 2))
    replay_program(program, {}, np.array([*columns.values()]).reshape(len(columns), 2), tuple(columns), results)
    found: list[float] = results[0].tolist()
    return found


PP, TP = VALUES["workload.pp"], VALUES["workload.tp"]


@pytest.mark.parametrize(
    "formula",
    [
        lambda p, t: p + t,
        lambda p, t: 7 - p,
        lambda p, t: -p // t,
        lambda p, t: -(-p // 2),
        lambda p, t: p % t,
        lambda p, t: (p + 0.5) % t,
        lambda p, t: (t - 0.25) // p,
        lambda p, t: p / t,
        lambda p, t: p**2,
        lambda p, t: 1 / p,
        lambda p, t: np.maximum(p, 2) - np.minimum(t, 3),
        lambda p, t: np.where(p > 2, p, t) + np.where(p >= 3, 1.0, 0.0),
        lambda p, t: np.clip(p * t, 2, 5),
        lambda p, t: np.clip(p * t, None, 5),
        lambda p, t: ((p > 1) & (t != 2)) | ~(p == 1),
        lambda p, t: np.gcd(p * 6, t),
        lambda p, t: np.ceil(p / t) + np.floor(t / p) + np.rint(p / t) + np.sqrt(t) + np.abs(-p),
        lambda p, t: np.isinf(np.where(p > 1, np.inf, 0.0)) * 1.0,
        lambda p, t: (floats(p) + 0.5).astype(np.int64),
        lambda p, t: (p - 1).astype(bool) * 2.0,
        lambda p, t: larger(p, 2) + smaller(t, 3) + choose(p > 1, p, t) + where(p > 1, 1.0, t),
        lambda p, t: sum([p, t, 0.0]),
    ],
)
def test_a_program_computes_what_numpy_does(tape: Tape, formula: Callable[[Any, Any], Any]) -> None:
    made = formula(tape.column("workload.pp"), tape.column("workload.tp"))
    assert isinstance(made, RecordedArray)
    assert value_of(tape, made) == np.broadcast_to(formula(PP, TP), 2).astype(float).tolist()


def test_equal_operations_are_one_and_needless_ones_are_gone(tape: Tape) -> None:
    pp, tp = tape.column("workload.pp"), tape.column("workload.tp")
    made = (pp * tp) + (pp * tp)
    needless = np.sqrt(pp)
    assert isinstance(needless, RecordedArray)
    program = program_of_tape(tape, {"made": made}, {})
    assert len(program.nodes) == 4  # two inputs, a product, a sum


@pytest.mark.parametrize(
    "formula",
    [lambda p: p * 1.0, lambda p: 1 * p, lambda p: p + 0.0, lambda p: 0 + p, lambda p: p - 0, lambda p: p / 1],
)
def test_what_changes_nothing_is_not_noted(tape: Tape, formula: Callable[[Any], Any]) -> None:
    pp = tape.column("workload.pp")
    assert formula(pp).node == pp.node


def test_constants_are_worked_out_once(tape: Tape) -> None:
    pp = tape.column("workload.pp")
    one = np.where(pp > 0, 2.0, 2.0) * 0 + 3
    known: Any = tape.wrap(tape.constant(2.0), "f") * 3.0
    assert tape.constants[known.node] == 6.0
    assert value_of(tape, one) == [3.0, 3.0]
    assert tape.constant(0.0) != tape.constant(-0.0)
    assert tape.constant(float("nan")) == tape.constant(np.nan)


@pytest.mark.parametrize(
    "use",
    [
        float,
        int,
        bool,
        list,
        lambda p: p[0],
        lambda p: p[:1] + 1,
        lambda p: p.item(),
        lambda p: p.tolist(),
        lambda p: p.sum(),
        np.sum,
        np.unique,
        lambda p: np.stack([p, p]),
        np.add.reduce,
        lambda p: p + np.array([1.0, 2.0]),
        lambda p: np.asarray(p) + p,
        np.sin,
        lambda p: np.add(p, 1, out=np.zeros(2)),
        lambda p: p & 3,
        lambda p: p.reshape(-1) * 2,
        lambda p: max(p, 2),
    ],
)
def test_what_no_program_can_do_is_refused(tape: Tape, use: Callable[[Any], Any]) -> None:
    with pytest.raises(Unrecordable):
        use(tape.column("workload.pp"))


def test_what_depends_on_the_workload_is_computed_in_both_cases(tape: Tape) -> None:
    pp = tape.column("workload.pp")
    assert anywhere(pp > 100)
    assert np.any(pp > 100)
    assert not np.all(pp > 0)
    assert tape.guards == {}


def test_what_depends_on_the_machine_alone_is_guarded(tape: Tape) -> None:
    sms: Any = tape.column("compute.sms")
    asked = sms > 0
    assert np.any(asked)
    assert np.all(asked)
    assert not np.any(sms == 0)
    unequal = (sms == 0).node
    assert list(tape.guards) == [Guard(asked.node, 1.0, 1.0), Guard(unequal, 0.0, 0.0)]


def test_a_machine_that_differs_among_designs_is_computed_in_both_cases() -> None:
    tape = Tape(VALUES, ("compute.sms",))
    sms = tape.column("compute.sms")
    assert np.any(sms == 0)
    assert not np.all(sms > 0)
    assert tape.guards == {}


def test_the_largest_is_a_power_of_two_with_a_guard(tape: Tape) -> None:
    pp = tape.column("workload.pp")
    assert largest_whole(pp) == 4
    assert list(tape.guards) == [Guard(pp.node, -np.inf, 4.0)]
    assert largest_whole(tape.column("workload.tp")) == 4


def test_lookups_take_names_and_numbers(tape: Tape) -> None:
    names = Names(("ring", "switch"), tape.wrap(tape.column("workload.pp").node, "i"))
    first, second = Combinations("fixed", names, tape.column("workload.tp")).look_up(lengths, "leading")
    assert value_of(Tape(VALUES, ()), 1.0) == [1.0, 1.0]
    assert {type(first), type(second)} == {RecordedArray}
    [lookup] = tape.lookups
    assert lookup.known == ("fixed", ("ring", "switch"), None)
    assert lookup.leading == ("leading",)


def lengths(*given: Any) -> tuple[float, float]:
    return float(len(given)), 0.0


def test_the_physics_keeps_arrays_what_they_are() -> None:
    """`np.asarray` would drop the record of an array without a word: `np.asanyarray` and `floats` keep it."""
    package = Path(cosmic.__file__).parent
    places = ("step", "workload", "simulate/analytic_step.py", *COSTS)
    files = [path for place in places for path in _modules(package / place)]
    kept = {"step/bottleneck.py"}  # single designs only
    assert len(files) > 40
    wrong = [path for path in files if "np.asarray(" in path.read_text() and str(path.relative_to(package)) not in kept]
    assert wrong == []


COSTS = (
    "network/collective_costs.py",
    "network/mesh_spans.py",
    "network/transport_protocols.py",
    "cluster/cluster_cost.py",
    "cluster/builds",
)


def _modules(place: Path) -> list[Path]:
    return [place] if place.suffix else list(place.rglob("*.py"))
