"""The numbers of a mapping, as columns: every mesh, its experts, virtual stages and microbatches that the rules allow.

The rules are those of `cosmic.mapping.choices`, over arrays; a test holds one to the other. Switches without effect (a
schedule without a pipeline) forbid nothing here: `as_chosen` brings them into the one form that a parameter set has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from cosmic.design.model import Transformer, is_moe
from cosmic.design.point import DesignPoint
from cosmic.mapping.choices import USUAL_MODULES, choices
from cosmic.mapping.frameworks import FRAMEWORKS, PIPELINE_OUTSIDE
from cosmic.workload.cut import layers_of
from cosmic.workload.padding import pads

Rows = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]
FRAMEWORK = FRAMEWORKS["any"]
MESH = ("tp", "pp", "cp", "ep")
FULL_PASS = 4096
"""Tokens of a microbatch that keep an accelerator busy: microbatches of one sequence, and of so many, come first."""
ALWAYS_SHARED = (1, 2, 4)
"""Virtual stages that need not share layers out evenly."""


@dataclass(frozen=True, eq=False)
class Grid:
    """Meshes with their virtual stages and microbatches: a column for each field, a row for each mapping."""

    base: DesignPoint
    columns: dict[str, Numbers]
    held: frozenset[str]
    strict: bool
    """Whether the rules of practice hold as well, or only what evaluation demands."""

    @property
    def size(self) -> int:
        """Number of rows."""
        return len(self.columns["tp"])

    @cached_property
    def microbatches(self) -> Numbers:
        """Microbatches of a replica in each row."""
        each = self.columns["dp"] * self.columns["micro_batch"]
        count: Numbers = self.base.workload.global_batch // each
        return count

    def allowed(self, switches: Mapping[str, Any], rows: Rows) -> Rows:
        """Return those of *rows* that go with *switches*."""
        if not self.strict:
            return rows
        tp, pp, cp, virtual = (self.columns[name][rows] for name in ("tp", "pp", "cp", "virtual_stages"))
        count, workload = self.microbatches[rows], self.base.workload
        schedule = switches["schedule"]
        runs: Mask = (virtual == 1) | (schedule == "interleaved")
        if switches["weight_sharding"] != FRAMEWORK.shardings[0] and "weight_sharding" not in self.held:
            runs &= self.columns["dp"][rows] * cp > 1  # one rank has nobody to share weights with
        if schedule == "dualpipe":
            runs &= (pp == 1) | ((pp % 2 == 0) & (count % 2 == 0) & (count >= 2 * pp))
        if switches["sequence_parallel"]:
            runs &= workload.sequence % (cp * tp) == 0
        if switches["cp_comm_type"] == "ulysses":
            heads = self.base.model.heads if isinstance(self.base.model, Transformer) else 1
            runs &= (cp == 1) | (heads % (tp * cp) == 0)
        if switches.get("ep_overlap"):
            beside = (pp == 1) | (virtual > 1) | (schedule == "dualpipe")
            runs &= (self.columns["ep"][rows] == 1) | (beside & (switches["recompute"] != "full"))
        found: Rows = rows[runs]
        return found

    def as_chosen(self, row: int, switches: Mapping[str, Any]) -> dict[str, Any]:
        """Return the mapping of a row with *switches*: those that have no effect, and are not held, at their first."""
        numbers = {name: int(column[row]) for name, column in self.columns.items()}
        found: dict[str, Any] = {**numbers, **switches}
        if numbers["virtual_stages"] == 1 and found["schedule"] == "interleaved":
            found |= self._free(schedule="1f1b")
        if numbers["pp"] == 1:
            found |= self._free(schedule="1f1b", placement=PIPELINE_OUTSIDE)
        if numbers["tp"] == 1:
            found |= self._free(sequence_parallel=True, tp_overlap=False)
        if numbers["cp"] == 1:
            found |= self._free(cp_comm_type=FRAMEWORK.cp_comm_types[0])
        if numbers.get("ep", 1) == 1 and "ep_overlap" in found:
            found |= self._free(ep_overlap=False)
        return found

    def _free(self, **values: Any) -> dict[str, Any]:
        return {name: value for name, value in values.items() if name not in self.held}

    def coarse(self, most: int) -> Rows:
        """Return rows to look at first, about *most* of them: of each mesh a few."""
        kept = np.ones(self.size, dtype=bool)
        for thinned in self._thinned():
            if np.count_nonzero(kept) <= most:
                break
            kept &= thinned
        return np.flatnonzero(kept)

    def _thinned(self) -> Iterator[Mask]:
        """Yield what may be left out at first, what decides least before the rest."""
        one_pass = -(-FULL_PASS // self.base.workload.sequence)
        sizes = self.columns["micro_batch"]
        if "etp" in self.columns:
            yield self.columns["etp"] == _least(self.columns["etp"], self._meshes)
        yield (sizes == sizes.min()) | (sizes == min(_next_power_of_two(one_pass), int(sizes.max())))
        deepest = -_least(-self.columns["virtual_stages"], self._meshes)
        yield (self.columns["virtual_stages"] == 1) | (self.columns["virtual_stages"] == deepest)
        yield sizes == sizes.min()
        for name in ("cp", "ep"):
            if name in self.columns:
                values, places = np.unique(self.columns[name], return_inverse=True)
                yield places.reshape(-1) % 2 == (len(values) - 1) % 2

    @cached_property
    def _meshes(self) -> Numbers:
        """A number for the mesh of each row."""
        return self._numbered(MESH)

    def _numbered(self, names: tuple[str, ...]) -> Numbers:
        codes = np.zeros(self.size, dtype=np.int64)
        for name in names:
            if name in self.columns:
                values, places = np.unique(self.columns[name], return_inverse=True)
                codes = codes * len(values) + places.reshape(-1)
        return codes

    def around(self, rows: Rows) -> Rows:
        """Return every row with the mesh of one of *rows*."""
        return np.flatnonzero(np.isin(self._meshes, self._meshes[rows]))


def grid_of(base: DesignPoint, held: Mapping[str, Any]) -> Grid | None:
    """Return the mappings of *base* that agree with what is *held*; None if there are none at all."""
    strict = _numbers(base, held, strict=True)
    columns = strict or _numbers(base, held, strict=False)
    return None if columns is None else Grid(base, columns, frozenset(held), strict is not None)


def values_of(base: DesignPoint, held: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the values that each field of a mapping may have, simplest first; what is *held* has its own alone."""
    found: dict[str, list[Any]] = {}
    for choice in choices(base, FRAMEWORK):
        for place, name in enumerate(choice.fields):
            values = dict.fromkeys(row[place] for row in choice.values)
            found[name] = [held[name]] if name in held else list(values)
    return found


def modes_of(base: DesignPoint, held: Mapping[str, Any]) -> list[tuple[str, tuple[str, ...]]]:
    """Return what may be recomputed: modes with their modules, which only a selective one has."""
    rows = next(each.values for each in choices(base, FRAMEWORK) if "recompute" in each.fields)
    if "recompute_modules" in held:
        rows = tuple((mode, held["recompute_modules"]) for mode, _ in rows)
    if "recompute" in held:
        modules = held.get("recompute_modules", USUAL_MODULES)
        rows = tuple(row for row in rows if row[0] == held["recompute"]) or ((held["recompute"], modules),)
    return list(dict.fromkeys((str(mode), tuple(modules)) for mode, modules in rows))


def _numbers(base: DesignPoint, held: Mapping[str, Any], *, strict: bool) -> dict[str, Numbers] | None:
    """Return the columns of a grid; None if it has no row."""
    values = values_of(base, held)
    found = _meshes(base, values, held)
    if is_moe(base.model):
        found = _times(_times(found, "ep", values["ep"]), "etp", values.get("etp", [1]))
        if "etp" not in values:
            found.pop("etp")
    virtual, sizes = values["virtual_stages"], values["micro_batch"]
    found = _times(found, "virtual_stages", virtual if strict else virtual[:1])
    found = _times(found, "micro_batch", sizes if strict else sizes[:1])
    if strict:
        kept = _kept(base, found)
        found = {name: column[kept] for name, column in found.items()}
    return found if len(found["tp"]) else None


def _meshes(base: DesignPoint, values: Mapping[str, list[Any]], held: Mapping[str, Any]) -> dict[str, Numbers]:
    npus = base.network.npus
    found = {"pp": np.array(values["pp"], dtype=np.int64)}
    for name in ("tp", "cp"):
        found = _times(found, name, values[name])
    split = found["tp"] * found["pp"] * found["cp"]
    whole = npus % split == 0
    if "dp" in held:
        whole &= npus == split * held["dp"]
    return {name: column[whole] for name, column in found.items()} | {"dp": npus // split[whole]}


def _kept(base: DesignPoint, found: Mapping[str, Numbers]) -> Mask:
    """Return which rows meet the rules that do not depend on switches."""
    model, batch, sequence = base.model, base.workload.global_batch, base.workload.sequence
    layers = layers_of(model)
    tp, pp, cp, dp, virtual = (found[name] for name in ("tp", "pp", "cp", "dp", "virtual_stages"))
    each = dp * found["micro_batch"]
    kept: Mask = (batch % each == 0) & (batch // each >= pp) & ((cp == 1) | (sequence % (2 * cp * tp) == 0))
    kept &= (virtual == 1) | ((pp > 1) & (batch // each % pp == 0))
    kept &= (pp * virtual <= layers) & ((layers % (pp * virtual) == 0) | np.isin(virtual, ALWAYS_SHARED))
    if isinstance(model, Transformer) and model.experts is not None:
        ep, etp = found["ep"], found.get("etp", np.array(1))
        kept &= (tp % etp == 0) & ((etp == 1) | (etp == tp)) & ((model.experts.ffn % etp == 0) | pads(base))
        kept &= (tp * cp * dp) % (etp * ep) == 0
    return kept


def _times(columns: Mapping[str, Numbers], name: str, values: list[Any]) -> dict[str, Numbers]:
    """Return each row with each of *values* of a further field."""
    size = len(next(iter(columns.values())))
    found = {each: np.repeat(column, len(values)) for each, column in columns.items()}
    return found | {name: np.tile(np.array(values, dtype=np.int64), size)}


def _least(column: Numbers, groups: Numbers) -> Numbers:
    """Return for each row the least value of its group."""
    _, places = np.unique(groups, return_inverse=True)
    places = places.reshape(-1)
    least = np.full(places.max(initial=0) + 1, np.iinfo(np.int64).max)
    np.minimum.at(least, places, column)
    found: Numbers = least[places]
    return found


def _next_power_of_two(number: int) -> int:
    return 1 << (number - 1).bit_length()
