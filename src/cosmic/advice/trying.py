"""Tries moves, alone and in pairs, and ranks what came of them.

Designs that differ in numbers alone are evaluated together, at hardly more than the price of one. Each switch is a
structure of its own. So numbers are tried with everything, and switches in pairs only where they are promising.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from math import inf, isfinite
from typing import Any

from cosmic.advice.mending import mended
from cosmic.advice.moves import Kind, Move, changes_of, moves
from cosmic.design import schema
from cosmic.design.batch import batch_of, batch_of_changes
from cosmic.design.model import has_tokens
from cosmic.design.point import DesignPoint
from cosmic.evaluation import Metrics, evaluate_batch

FASTER = 1.005
"""By how much a change must be faster to be worth a line."""
PAIR_FASTER = 1.01
"""By how much a pair must be faster than the best single move."""
MOST, MOST_PAIRS, MOST_PURCHASES = 5, 3, 4
"""Lines of each kind."""
SWITCHES, NUMBERS, SAVERS = 2, 10, 4
"""How many of the best moves of a kind pairs are made of; one more switch that depends on a condition."""


@dataclass(frozen=True, slots=True)
class Change:
    """A changed design that can run, and what comes of it."""

    kind: Kind
    """An action of an engineer, or something to buy."""
    settings: dict[str, Any]
    """The fields that change, as in files."""
    speedup: float | None
    """Throughput over that of the design; None where that cannot run."""
    tokens_per_s: float | None
    """None of a model without tokens."""
    samples_per_s: float | None
    """None of a model with tokens."""
    step_s: float
    memory_bytes: float
    condition: str = ""
    """When it is open, such as ``if accuracy allows``."""
    moves: int = 1
    """How many moves it is made of."""


@dataclass(frozen=True, slots=True)
class _Trial:
    """Moves that were made together, and what came of them."""

    made: tuple[Move, ...]
    changes: dict[str, Any]
    rate: float
    """Throughput, whether or not it fits."""
    excess: float
    """By what share it needs more memory than there is; infinite where its mapping is invalid."""
    step_s: float
    memory_bytes: float

    @property
    def levers(self) -> tuple[str, ...]:
        return tuple(sorted(move.lever for move in self.made))

    @property
    def kind(self) -> Kind:
        return "purchase" if any(move.kind == "purchase" for move in self.made) else "action"

    @property
    def condition(self) -> str:
        return ", ".join(dict.fromkeys(move.condition for move in self.made if move.condition))

    @property
    def is_switch(self) -> bool:
        return any(move.is_switch for move in self.made)


# ----------------------------------------------------------------------------------------------- improving


def improvements(point: DesignPoint, base: Metrics, most: int = 2 * MOST) -> list[Change]:
    """Return the changes that make a design that achieves *base* faster: actions, then purchases, each best first.

    There are at most *most* of either kind.
    """
    rate = base.throughput_per_s
    known = list(moves(point))
    savers = [move for move in known if move.saves]
    singles = _tried(point, [(move,) for move in known if not move.saves])
    least = FASTER * rate
    fast = [each for each in singles if each.excess == 0 and each.rate > least]
    actions = _best(each for each in fast if each.kind == "action")
    pairs = _tried(point, _pairs(singles, savers, rate))
    fast_pairs = [each for each in pairs if each.excess == 0]
    bought = _best(
        [each for each in fast if each.kind == "purchase"]
        + [each for each in fast_pairs if each.kind == "purchase" and each.rate > least]
    )
    chosen = sorted([*_worth_a_line(fast_pairs, actions, rate), *actions[:MOST]], key=lambda each: -each.rate)
    kept = [*chosen[:most], *bought[: min(most, MOST_PURCHASES)]]
    return [_change(point, each, rate) for each in kept]


def _pairs(singles: Sequence[_Trial], savers: Sequence[Move], rate: float) -> list[tuple[Move, ...]]:
    """Return the pairs that are worth trying."""
    actions = [each for each in singles if each.kind == "action"]
    fast = _best(each for each in actions if each.excess == 0 and each.rate > FASTER * rate)
    tight = _best(each for each in actions if 0 < each.excess < inf and each.rate > PAIR_FASTER * rate)
    neutral = _best(each for each in actions if not each.is_switch and 0 <= each.excess < inf)
    numbers = [each.made[0] for each in neutral[:NUMBERS]]
    switches = [each.made[0] for each in fast if each.is_switch]
    switches = [move for condition in (False, True) for move in _some(switches, condition)]
    tight_numbers = [each.made[0] for each in tight if not each.is_switch][:NUMBERS]
    tight_switches = [each.made[0] for each in tight if each.is_switch][:2]
    relieving = [each.made[0] for each in _best(each for each in actions if not each.is_switch and each.excess == 0)]
    capacity = [move for move in savers if move.kind == "purchase"]
    found = [
        *combinations(numbers, 2),
        *product(switches, numbers),
        *combinations(switches, 2),
        *product(_spread_out(savers), tight_numbers),
        *product(tight_switches, relieving[: 2 * NUMBERS]),
        *product(capacity, [*tight_numbers, *tight_switches]),
    ]
    return [pair for pair in found if pair[0].lever != pair[1].lever]


def _some(switches: Sequence[Move], condition: bool) -> Sequence[Move]:
    """Return the first of those switches that depend on a condition, or of those that do not."""
    return [move for move in switches if bool(move.condition) == condition][: 1 if condition else SWITCHES]


def _spread_out(savers: Sequence[Move]) -> list[Move]:
    """Return some moves that save memory, of different levers first."""
    actions = [move for move in savers if move.kind == "action" and not move.condition]
    seen: dict[str, int] = {}
    ranks = []
    for move in actions:
        seen[move.lever] = seen.get(move.lever, 0) + 1
        ranks.append(seen[move.lever])
    order = sorted(range(len(actions)), key=lambda place: ranks[place])
    return [actions[place] for place in order[:SAVERS]]


def _worth_a_line(pairs: Iterable[_Trial], singles: Sequence[_Trial], rate: float) -> list[_Trial]:
    """Return the pairs that are faster than the best single move: without conditions, then one with."""
    actions = [each for each in pairs if each.kind == "action"]
    found: list[_Trial] = []
    for condition, most in ((False, MOST_PAIRS - 1), (True, 1)):
        alone = max((each.rate for each in singles if condition or not each.condition), default=rate)
        best = _best(each for each in actions if bool(each.condition) == condition and each.rate > PAIR_FASTER * alone)
        found += best[:most]
    return found


# ----------------------------------------------------------------------------------------------- repairing


def repairs(point: DesignPoint) -> list[Change]:
    """Return the changes that make a design run that cannot: actions, then purchases, each fastest first."""
    first = mended(point)
    if first is None:
        return []
    start: DesignPoint = schema.assign(point, first)
    if first and evaluate_batch(batch_of(start)).feasible[0]:
        return [_change(point, _outcomes(start, [((), {})])[0], None, first)]
    singles = _tried(start, [(move,) for move in moves(start)])
    running = _best(each for each in singles if each.excess == 0)
    if not any(each.kind == "action" for each in running):
        valid = sorted((each for each in singles if isfinite(each.excess)), key=lambda each: each.excess)
        near = [each.made[0] for each in _first_of_levers(valid) if each.kind == "action"]
        switches = [move for move in near if move.is_switch][: 2 * SWITCHES]
        numbers = [move for move in near if not move.is_switch][: 2 * NUMBERS]
        pairs = [*combinations(numbers, 2), *product(switches, numbers), *combinations(switches, 2)]
        running += _best(each for each in _tried(start, pairs) if each.excess == 0)
    actions = sorted((each for each in running if each.kind == "action"), key=lambda each: bool(each.condition))
    bought = [each for each in running if each.kind == "purchase"]
    return [_change(point, each, None, first) for each in (*actions[:MOST], *bought[:MOST_PURCHASES])]


def _first_of_levers(trials: Iterable[_Trial]) -> list[_Trial]:
    """Return the first trial of each lever."""
    found: dict[tuple[str, ...], _Trial] = {}
    for each in trials:
        found.setdefault(each.levers, each)
    return list(found.values())


# ------------------------------------------------------------------------------------------------- trying


def _tried(point: DesignPoint, combined: Iterable[tuple[Move, ...]]) -> list[_Trial]:
    """Return what comes of moves that are made together, where they combine."""
    found: dict[str, tuple[tuple[Move, ...], dict[str, Any]]] = {}
    for made in combined:
        changes = changes_of(point, made)
        if changes is not None:
            found.setdefault(repr(sorted(changes.items())), (made, changes))
    return _outcomes(point, list(found.values()))


def _outcomes(point: DesignPoint, tried: Sequence[tuple[tuple[Move, ...], dict[str, Any]]]) -> list[_Trial]:
    """Return what comes of moves, each with the fields that they change."""
    if not tried:
        return []
    outcome = evaluate_batch(batch_of_changes(point, [changes for _, changes in tried]))
    columns = [outcome.throughput_per_s, *(outcome.columns[name] for name in ("step_s", "memory_bytes"))]
    rates, steps, sizes = (column.tolist() for column in columns)
    rows = zip(tried, rates, outcome.excess.tolist(), steps, sizes, strict=True)
    return [_Trial(made, changes, rate, excess, step_s, size) for (made, changes), rate, excess, step_s, size in rows]


def _best(trials: Iterable[_Trial]) -> list[_Trial]:
    """Return the best trial of each lever, or pair of levers, best first; of equal ones, that of fewest changes."""
    return _first_of_levers(sorted(trials, key=lambda each: (-each.rate, len(each.changes))))


def _change(point: DesignPoint, trial: _Trial, rate: float | None, before: Mapping[str, Any] | None = None) -> Change:
    """Return a trial as a change of *point*: of *before*, if that was changed before."""
    changes = {**(before or {}), **trial.changes}
    settings = {
        path: written(point, path, value) for path, value in changes.items() if value != schema.get(point, path)
    }
    speedup = None if rate is None else trial.rate / rate
    rates = (trial.rate, None) if has_tokens(point.model) else (None, trial.rate)
    about = (*rates, trial.step_s, trial.memory_bytes, trial.condition, max(1, len(trial.made)))
    return Change(trial.kind, settings, speedup, *about)


def written(point: DesignPoint, path: str, value: Any) -> Any:
    """Return the value of a field as files write it."""
    return schema.write(value, schema.slot_at(point, path).dimension)
