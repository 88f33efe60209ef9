"""A quick search for the best mapping of a design: a dozen evaluations, each of hundreds of mappings.

Mappings that share all switches are evaluated at once, as arrays. So all meshes are tried with the switches that are
usually best: interleaved stages, sharded optimizer states, everything overlapped, nothing recomputed. What that takes
without regard to memory is a bound for the same mesh with recomputation or sharded weights, which only cost time, and,
less its bubble, for the same mesh in another schedule. Every further evaluation takes the meshes whose bound promises
`GAIN`, and none is spent where no mesh does. Nothing is random, and no clock is asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Any

import numpy as np
import numpy.typing as npt

from cosmic.design.batch import Batch
from cosmic.design.point import DesignPoint
from cosmic.mapping.choices import BUDGET
from cosmic.mapping.frameworks import PIPELINE_OUTSIDE
from cosmic.mapping.grid import Grid, Mask, Rows, grid_of, modes_of, values_of
from cosmic.numeric import sum_of
from cosmic.simulation.analytic import BREAKDOWN, ROUNDING, step
from cosmic.step.memory import memory_of
from cosmic.workload.checks import held as rules_met
from cosmic.workload.schedule import schedules

Floats = npt.NDArray[np.float64]
COARSE = 500
"""Mappings of one evaluation, about."""
GAIN = 0.01
"""Share of the step that a further evaluation must promise to save."""
EVALUATIONS = 10
"""Evaluations of one search, at most; one that finds that nothing fits is cheap, and does not count."""
FORWARD_AGAIN = 0.25
"""What recomputing everything adds at least, as a share of the compute of a step: a forward pass is a third of it."""
NEAR = 24
"""Meshes whose other microbatches, virtual stages and experts are tried once the coarse search is done."""
USUALLY_BEST = {
    "schedule": "interleaved",
    "weight_sharding": "zero1",
    "recompute": "none",
    "sequence_parallel": True,
    "tp_overlap": True,
    "ep_overlap": True,
    "cp_comm_type": "ring",
    "placement": PIPELINE_OUTSIDE,
}
"""The switches that all meshes are tried with first; interleaved with one virtual stage is 1F1B."""
SAVED = {
    "bubble": ("bubble", "pp"),
    "cp": ("cp",),
    "outside": ("dp", "pp", "ep", "weights"),
    "compute": ("gemm", "attention"),
}
"""Parts of a step that other switches may save, by a name."""
MOVES = ("schedule", "weight_sharding", "ep_overlap", "placement", "cp_comm_type")
"""Switches that are tried next, in order. Whoever splits tensors gains by overlapping, and by splitting what is between
them: those two are settled."""
BALANCED = 0.2
"""Share of the compute that a bidirectional schedule may save: each device has an early and a late stage."""
KEPT = {"none": 1.0, "selective": 0.3, "full": 0.0}
"""Share of the activations that stays at least, by what is recomputed."""
Mode = tuple[str, tuple[str, ...]]
"""What is recomputed: the mode and the modules."""


@dataclass(frozen=True, slots=True)
class Found:
    """The best mapping of a search: its fields, whether it fits, and how many mappings it is the best of."""

    mapping: dict[str, Any]
    fits: bool
    searched: int


def search(base: DesignPoint, held: Mapping[str, Any]) -> Found | None:
    """Return the best mapping of *base* for training that agrees with what is *held*.

    *base* has the held values and the batch. If no mapping fits, it is the one that needs least memory; if what is
    held goes with none at all, None.
    """
    grid = grid_of(base, held)
    return None if grid is None else _Search(grid, held).run()


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A row of the grid with switches, and what it is compared by: seconds, or the share of the memory."""

    measure: float
    row: int
    switches: Mapping[str, Any]


class _Search:
    """One search: what is known of each row of the grid, and the best so far."""

    def __init__(self, grid: Grid, held: Mapping[str, Any]) -> None:
        self.grid, self.values = grid, values_of(grid.base, held)
        values = self.values
        self.modes = _in_order(modes_of(grid.base, held))
        self.first = {name: _first(values[name], value) for name, value in USUALLY_BEST.items() if name in values}
        self.bound = np.full(grid.size, np.inf)
        """Seconds of a row with the first switches, whether it fits or not; infinite where that is not known."""
        self.saved = {name: np.zeros(grid.size) for name in SAVED}
        """Of these, what other switches may save."""
        self.states, self.activations = np.zeros(grid.size), np.zeros(grid.size)
        """With the same switches, the share of the memory that states take, and all else."""
        self.seconds = np.full(grid.size, np.inf)
        """The shortest step of a row that fits."""
        self.best = _Candidate(np.inf, -1, {})
        self.least = _Candidate(np.inf, 0, {**self.first, **_recomputing(self.modes[0])})
        """The row that needs least memory."""
        self.evaluations = self.searched = 0

    def run(self) -> Found:
        """Return the best mapping that a dozen evaluations find."""
        light, *heavier = self.modes
        usual, other = heavier[:2], heavier[2:]
        coarse = self.grid.coarse(COARSE)
        self._try_lightly(light, usual, coarse)
        self._try_lightly(light, usual, self._untried_near(coarse))
        known = np.flatnonzero(np.isfinite(self.bound))
        for name, value in self._moves():
            if self.best.row >= 0 or name == "weight_sharding":  # others need more memory
                self._try_modes({**self._switches(), name: value}, [light, *usual], known, self._saved(name, value))
        self._try_modes(self._switches(), other, known)
        chosen = self.best if self.best.row >= 0 else self.least
        return Found(self.grid.as_chosen(chosen.row, chosen.switches), self.best.row >= 0, self.searched)

    def _moves(self) -> Iterator[tuple[str, Any]]:
        """Yield other switches."""
        for name in MOVES:
            for value in reversed(self.values.get(name, [])):
                if value not in (self.first[name], "1f1b"):  # which interleaved stages include
                    yield name, value

    def _saved(self, name: str, value: Any) -> Floats | float:
        """Return what a switch may save of the bound of each row."""
        if name == "schedule":
            copies = schedules[value].parameter_copies(2)
            return self.saved["bubble"] + (BALANCED if copies > 1 else 0.0) * self.saved["compute"]
        parts = {"placement": "outside", "cp_comm_type": "cp"}
        return self.saved[parts[name]] if name in parts else 0.0

    def _switches(self) -> dict[str, Any]:
        """Return the switches that are best so far."""
        return dict(self.best.switches or self.first)

    def _untried_near(self, tried: Rows) -> Rows:
        """Return rows that were not tried, with the meshes that are best so far."""
        seconds = self.seconds if self.best.row >= 0 else self.bound
        best = tried[np.argsort(seconds[tried], kind="stable")][:NEAR]
        return np.setdiff1d(self.grid.around(best), tried)

    def _try_lightly(self, light: Mode, heavier: Sequence[Mode], rows: Rows) -> None:
        """Try rows with the first switches, which gives their bounds; those that do not fit, with recomputation."""
        if len(rows):
            self._try({**self.first, **_recomputing(light)}, rows, bounds=True)
            self._try_modes(self.first, heavier, rows)

    def _try_modes(
        self, switches: Mapping[str, Any], modes: Sequence[Mode], rows: Rows, saved: Floats | float = 0.0
    ) -> None:
        """Try the rows that promise a shorter step with each mode, unless they fit with one before."""
        for mode in modes:
            bound = self.bound - saved + (FORWARD_AGAIN * self.saved["compute"] if mode[0] == "full" else 0.0)
            chosen = {**switches, **_recomputing(mode)}
            promising = rows[(bound[rows] < (1 - GAIN) * self.best.measure) & self._may_fit(chosen, rows)]
            promising = self.grid.allowed(chosen, promising)
            promising = promising[np.argsort(bound[promising], kind="stable")][:COARSE]
            if len(promising) and self.evaluations < EVALUATIONS:
                rows = np.setdiff1d(rows, self._try(chosen, np.sort(promising)))

    def _may_fit(self, switches: Mapping[str, Any], rows: Rows) -> Mask:
        """Return which rows may fit with *switches*; all of them as long as none does."""
        if self.best.row < 0:
            return np.ones(len(rows), dtype=bool)
        states = self.states[rows] if switches["weight_sharding"] == self.first["weight_sharding"] else 0.0
        may: Mask = states + KEPT.get(switches["recompute"], 0.0) * self.activations[rows] <= BUDGET
        return may

    def _try(self, switches: Mapping[str, Any], rows: Rows, *, bounds: bool = False) -> Rows:
        """Evaluate *rows* with *switches*, and return those that fit; with *bounds*, keep what all of them take."""
        self.searched += len(rows)
        point = self.grid.base.changed({f"workload.{name}": value for name, value in switches.items()})
        batch = Batch(point, {f"workload.{name}": column[rows] for name, column in self.grid.columns.items()})
        runs, share = runs_and_share(batch)
        allowed = np.isin(rows, self.grid.allowed(switches, rows)) if bounds else runs
        fits = runs & allowed & (share <= BUDGET)
        self._keep_least(switches, rows, np.where(runs & allowed, share, 1e6 * share))
        if bounds or fits.any():
            self.evaluations += 1
            took = step_of(batch)
            seconds = np.where(runs, took["seconds"], np.inf)
            if bounds:
                self.bound[rows] = seconds
                self.states[rows] = memory_of(batch).static / batch.base.memory.capacity_bytes
                self.activations[rows] = share - self.states[rows]
                for name, parts in SAVED.items():
                    self.saved[name][rows] = np.where(runs, sum_of(took[part] for part in parts), 0.0)
            self._keep_best(switches, rows, np.where(fits, seconds, np.inf))
        batch.known.clear()
        return rows[fits]

    def _keep_best(self, switches: Mapping[str, Any], rows: Rows, seconds: Floats) -> None:
        self.seconds[rows] = np.minimum(self.seconds[rows], seconds)
        place = int(seconds.argmin())
        if seconds[place] < (1 - ROUNDING) * self.best.measure:
            self.best = _Candidate(float(seconds[place]), int(rows[place]), switches)

    def _keep_least(self, switches: Mapping[str, Any], rows: Rows, share: Floats) -> None:
        place = int(share.argmin())
        if share[place] < (1 - ROUNDING) * self.least.measure:
            self.least = _Candidate(float(share[place]), int(rows[place]), switches)


def _first(values: list[Any], wanted: Any) -> Any:
    return wanted if wanted in values else values[0]


def _in_order(modes: Sequence[Mode]) -> list[Mode]:
    """Return what may be recomputed: nothing, what costs least to recompute, everything, then other modules."""
    cheap = next((each for each in modes if each[0] == "selective" and "layernorm" in each[1]), None)
    first = [each for each in modes if each[0] != "selective" or each == cheap] or list(modes[:1])
    return first + [each for each in modes if each not in first]


def _recomputing(mode: Mode) -> dict[str, Any]:
    return {"recompute": mode[0], "recompute_modules": mode[1]}


def runs_and_share(batch: Batch) -> tuple[Mask, Floats]:
    """Return which designs of one structure meet every rule, and what share of their memory each needs."""
    met = reduce(and_, (np.broadcast_to(each, batch.size) for each in rules_met(batch).values()))
    try:
        with np.errstate(all="ignore"):
            memory = memory_of(batch)
            share = memory.total / batch.base.memory.capacity_bytes
            if memory.placed is not None:
                needed = share - memory.placed.movable / batch.base.memory.capacity_bytes
                share = np.where(np.asanyarray(memory.excess) > 0, np.maximum(share, 1 + memory.excess), needed)
            elif memory.offloaded:
                outer = sum(tier.capacity_bytes for tier in batch.base.memory.tiers)
                share = np.maximum(share, sum_of(memory.offloaded.values()) / max(outer, 1.0))
    except ArithmeticError:
        return np.zeros(batch.size, dtype=bool), np.full(batch.size, np.inf)
    whole = np.nan_to_num(np.broadcast_to(share, batch.size), nan=np.inf)
    return met & np.isfinite(whole), whole


def step_of(batch: Batch) -> dict[str, Floats]:
    """Return the seconds of a step of designs of one structure, and its parts; infinite where they overflow."""
    try:
        with np.errstate(all="ignore"):
            took = step(batch)
    except ArithmeticError:
        return dict.fromkeys(("seconds", *BREAKDOWN), np.full(batch.size, np.inf))
    found = {"seconds": took.seconds, **took.parts}
    return {name: np.nan_to_num(np.broadcast_to(value, batch.size), nan=np.inf) for name, value in found.items()}
