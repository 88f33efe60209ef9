"""A quick search for the best mapping of a design: a dozen evaluations, each of hundreds of mappings.

A mapping has numbers (the mesh, virtual stages, the microbatch) and *switches* (the schedule, what is sharded,
overlapped and recomputed). Mappings that share all switches are evaluated at once, as arrays. So all meshes are tried
first with the switches that are usually best: interleaved stages, sharded optimizer states, everything overlapped,
nothing recomputed.

The seconds of that step, whether it fits into memory or not, bound what the same mesh can take with other switches:
recomputation and sharded weights only cost time, and what another schedule, placement or context-parallel algorithm can
save is known from the step's parts (`SAVABLE_PARTS`). Each further evaluation takes the meshes whose bound promises a
gain of `MIN_GAIN`; where none does, it is not made. Nothing is random, and no clock is asked.

A grid holds the numbers of mappings as columns: every mesh, its experts, virtual stages and microbatches that the rules
allow. The rules are those of `cosmic.search.mapping.mapping_choices`, over arrays; a test compares the two. Switches
without effect (a schedule without a pipeline) forbid nothing here: `as_chosen` brings them into the one form that a
parameter set has.

Of a design that serves one step of prefill or decode, all mappings are evaluated, as they share all switches. Latency
counts as well as throughput. So the smallest mapping that fits settles the batch, and of all mappings that serve that
batch the one with the shortest step is taken.

Under a load all meshes are evaluated, and requests are to be done soonest: less time of a request is more requests a
second of the same clients, or the same requests sooner.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, reduce
from itertools import product
from operator import and_
from typing import Any

import numpy as np
import numpy.typing as npt

from cosmic.base.numeric import divisors, sum_of
from cosmic.base.optimise import Optimum, Steps, optimise
from cosmic.design.design_batch import Batch
from cosmic.design.design_point import DesignPoint
from cosmic.design.model_layer import Recommender, Transformer, is_moe
from cosmic.design.serving_layer import PrefillPool
from cosmic.design.workload_layer import AXES
from cosmic.evaluation import evaluate_batch
from cosmic.search.mapping.mapping_choices import (
    DEFAULT_MODULES,
    FRAMEWORKS,
    PASS_TOKENS,
    PIPELINE_OUTSIDE,
    list_choices,
)
from cosmic.simulate.analytic_step import BREAKDOWN, ROUNDING, compute_step_seconds
from cosmic.simulate.metrics import BatchOutcome
from cosmic.step.device_memory import memory_of
from cosmic.step.process_memory import quantile_factor
from cosmic.workload.mapping_rules import evaluate_rules as rules_met
from cosmic.workload.mesh_sizes import pads_dimensions
from cosmic.workload.pipeline_cut import layers_of
from cosmic.workload.pipeline_schedule import schedules

# ---- The numbers of a mapping, as columns: every mesh, its experts, virtual stages and microbatches that the rules allow

Rows = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]
FRAMEWORK = FRAMEWORKS["any"]
MESH = ("tp", "pp", "cp", "ep")
FULL_PASS = 4096
"""Tokens of a microbatch that keep an accelerator busy: such microbatches, and those of one sequence, come first."""
UNEVEN_VIRTUAL_STAGES = (1, 2, 4)
"""Virtual stages that need not share layers out evenly."""


@dataclass(frozen=True, eq=False)
class MappingGrid:
    """Meshes with their virtual stages and microbatches: a column for each field, a row for each mapping."""

    base: DesignPoint
    columns: dict[str, Numbers]
    fixed: frozenset[str]
    strict: bool
    """Whether the rules of practice hold as well, or only what evaluation demands."""

    @property
    def size(self) -> int:
        """Number of rows."""
        return len(self.columns["tp"])

    @cached_property
    def microbatches(self) -> Numbers:
        """Microbatches of a replica in each row."""
        step_samples = self.columns["dp"] * self.columns["micro_batch"]
        count: Numbers = self.base.workload.global_batch // step_samples
        return count

    def allowed(self, switches: Mapping[str, Any], rows: Rows) -> Rows:
        """Return those of *rows* that are valid with *switches*."""
        if not self.strict:
            return rows
        tp, pp, cp, virtual = (self.columns[name][rows] for name in ("tp", "pp", "cp", "virtual_stages"))
        count, workload = self.microbatches[rows], self.base.workload
        schedule = switches["schedule"]
        valid: Mask = (virtual == 1) | (schedule == "interleaved")
        if (
            switches["weight_sharding"] != FRAMEWORK.values("weight_sharding")[0]
            and "weight_sharding" not in self.fixed
        ):
            valid &= self.columns["dp"][rows] * cp > 1  # one rank has none to shard weights with
        if schedule == "dualpipe":
            valid &= (pp == 1) | ((pp % 2 == 0) & (count % 2 == 0) & (count >= 2 * pp))
        if switches["sequence_parallel"]:
            valid &= workload.sequence % (cp * tp) == 0
        if switches["cp_comm_type"] == "ulysses":
            heads = self.base.model.heads if isinstance(self.base.model, Transformer) else 1
            valid &= (cp == 1) | (heads % (tp * cp) == 0)
        if switches.get("ep_overlap"):
            # An all-to-all hides behind another microbatch; of a pipeline, only these schedules have one at hand.
            overlaps = (pp == 1) | (virtual > 1) | (schedule == "dualpipe")
            valid &= (self.columns["ep"][rows] == 1) | (overlaps & (switches["recompute"] != "full"))
        allowed_rows: Rows = rows[valid]
        return allowed_rows

    def as_chosen(self, row: int, switches: Mapping[str, Any]) -> dict[str, Any]:
        """Return the mapping of a row with *switches*; those without effect have their first value, unless fixed."""
        numbers = {name: int(column[row]) for name, column in self.columns.items()}
        mapping: dict[str, Any] = {**numbers, **switches}
        if numbers["virtual_stages"] == 1 and mapping["schedule"] == "interleaved":
            mapping |= self._unless_fixed(schedule="1f1b")
        if numbers["pp"] == 1:
            mapping |= self._unless_fixed(schedule="1f1b", placement=PIPELINE_OUTSIDE)
        if numbers["tp"] == 1:
            mapping |= self._unless_fixed(sequence_parallel=True, tp_overlap=False)
        if numbers["cp"] == 1:
            mapping |= self._unless_fixed(cp_comm_type=FRAMEWORK.values("cp_comm_type")[0])
        if numbers.get("ep", 1) == 1 and "ep_overlap" in mapping:
            mapping |= self._unless_fixed(ep_overlap=False)
        return mapping

    def _unless_fixed(self, **values: Any) -> dict[str, Any]:
        return {name: value for name, value in values.items() if name not in self.fixed}

    def coarse(self, most: int) -> Rows:
        """Return rows to evaluate first, about *most* of them: a few of each mesh."""
        selected = np.ones(self.size, dtype=bool)
        for kept in self._list_thinnings():
            if np.count_nonzero(selected) <= most:
                break
            selected &= kept
        return np.flatnonzero(selected)

    def _list_thinnings(self) -> Iterator[Mask]:
        """Yield which rows to keep at first, one field after the other: first those that matter least to the step."""
        one_pass = -(-FULL_PASS // self.base.workload.sequence)  # samples of a microbatch of FULL_PASS tokens
        sizes = self.columns["micro_batch"]
        if "etp" in self.columns:
            yield self.columns["etp"] == _min_of_groups(self.columns["etp"], self._meshes)
        yield (sizes == sizes.min()) | (sizes == min((1 << (one_pass - 1).bit_length()), int(sizes.max())))
        deepest = -_min_of_groups(-self.columns["virtual_stages"], self._meshes)
        yield (self.columns["virtual_stages"] == 1) | (self.columns["virtual_stages"] == deepest)
        yield sizes == sizes.min()
        for name in ("cp", "ep"):
            if name in self.columns:
                values, codes = np.unique(self.columns[name], return_inverse=True)
                yield codes.reshape(-1) % 2 == (len(values) - 1) % 2

    @cached_property
    def _meshes(self) -> Numbers:
        """A number for the mesh of each row."""
        return self._number_rows(MESH)

    def _number_rows(self, names: tuple[str, ...]) -> Numbers:
        """Return a number for each row, the same where rows agree in the fields *names*."""
        codes = np.zeros(self.size, dtype=np.int64)
        for name in names:
            if name in self.columns:
                values, value_codes = np.unique(self.columns[name], return_inverse=True)
                codes = codes * len(values) + value_codes.reshape(-1)
        return codes

    def around(self, rows: Rows) -> Rows:
        """Return every row with the mesh of one of *rows*."""
        return np.flatnonzero(np.isin(self._meshes, self._meshes[rows]))


def build_grid(base: DesignPoint, fixed: Mapping[str, Any]) -> MappingGrid | None:
    """Return the mappings of *base* that agree with what is *fixed*; None if there are none at all."""
    strict = _grid_columns(base, fixed, strict=True)
    columns = strict or _grid_columns(base, fixed, strict=False)
    return None if columns is None else MappingGrid(base, columns, frozenset(fixed), strict is not None)


def field_values(base: DesignPoint, fixed: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the values that each field of a mapping may have, simplest first; what is *fixed* has its own alone."""
    values_by_field: dict[str, list[Any]] = {}
    for choice in list_choices(base, FRAMEWORK):
        for index, name in enumerate(choice.fields):
            values = dict.fromkeys(row[index] for row in choice.values)
            values_by_field[name] = [fixed[name]] if name in fixed else list(values)
    return values_by_field


def recompute_modes(base: DesignPoint, fixed: Mapping[str, Any]) -> list[tuple[str, tuple[str, ...]]]:
    """Return what may be recomputed: each mode with the modules that a selective one recomputes."""
    rows = next(choice.values for choice in list_choices(base, FRAMEWORK) if "recompute" in choice.fields)
    if "recompute_modules" in fixed:
        rows = tuple((mode, fixed["recompute_modules"]) for mode, _ in rows)
    if "recompute" in fixed:
        modules = fixed.get("recompute_modules", DEFAULT_MODULES)
        rows = tuple(row for row in rows if row[0] == fixed["recompute"]) or ((fixed["recompute"], modules),)
    return list(dict.fromkeys((str(mode), tuple(modules)) for mode, modules in rows))


def _grid_columns(base: DesignPoint, fixed: Mapping[str, Any], *, strict: bool) -> dict[str, Numbers] | None:
    """Return the columns of a grid; None if it has no row."""
    values = field_values(base, fixed)
    columns = _mesh_columns(base, values, fixed)
    if is_moe(base.model):
        columns = _cross_values(_cross_values(columns, "ep", values["ep"]), "etp", values.get("etp", [1]))
        if "etp" not in values:
            columns.pop("etp")
    virtual, sizes = values["virtual_stages"], values["micro_batch"]
    columns = _cross_values(columns, "virtual_stages", virtual if strict else virtual[:1])
    columns = _cross_values(columns, "micro_batch", sizes if strict else sizes[:1])
    if strict:
        valid = _meets_rules(base, columns)
        columns = {name: column[valid] for name, column in columns.items()}
    return columns if len(columns["tp"]) else None


def _mesh_columns(base: DesignPoint, values: Mapping[str, list[Any]], fixed: Mapping[str, Any]) -> dict[str, Numbers]:
    """Return all meshes of pp, tp and cp that divide the accelerators; dp is what is left."""
    npus = base.network.npus
    columns = {"pp": np.array(values["pp"], dtype=np.int64)}
    for name in ("tp", "cp"):
        columns = _cross_values(columns, name, values[name])
    split = columns["tp"] * columns["pp"] * columns["cp"]
    divides = npus % split == 0
    if "dp" in fixed:
        divides &= npus == split * fixed["dp"]
    return {name: column[divides] for name, column in columns.items()} | {"dp": npus // split[divides]}


def _meets_rules(base: DesignPoint, columns: Mapping[str, Numbers]) -> Mask:
    """Return which rows meet the rules that do not depend on switches."""
    model, batch, sequence = base.model, base.workload.global_batch, base.workload.sequence
    layers = layers_of(model)
    tp, pp, cp, dp, virtual = (columns[name] for name in ("tp", "pp", "cp", "dp", "virtual_stages"))
    step_samples = dp * columns["micro_batch"]
    valid: Mask = (
        (batch % step_samples == 0) & (batch // step_samples >= pp) & ((cp == 1) | (sequence % (2 * cp * tp) == 0))
    )
    valid &= (virtual == 1) | ((pp > 1) & (batch // step_samples % pp == 0))
    valid &= (pp * virtual <= layers) & ((layers % (pp * virtual) == 0) | np.isin(virtual, UNEVEN_VIRTUAL_STAGES))
    if isinstance(model, Transformer) and model.experts is not None:
        ep, etp = columns["ep"], columns.get("etp", np.array(1))
        valid &= (tp % etp == 0) & ((etp == 1) | (etp == tp)) & ((model.experts.ffn % etp == 0) | pads_dimensions(base))
        valid &= (tp * cp * dp) % (etp * ep) == 0
    return valid


def _cross_values(columns: Mapping[str, Numbers], name: str, values: list[Any]) -> dict[str, Numbers]:
    """Return each row with each of *values* of a further field."""
    size = len(next(iter(columns.values())))
    crossed = {field: np.repeat(column, len(values)) for field, column in columns.items()}
    return crossed | {name: np.tile(np.array(values, dtype=np.int64), size)}


def _min_of_groups(column: Numbers, groups: Numbers) -> Numbers:
    """Return for each row the least value of its group."""
    _, group_codes = np.unique(groups, return_inverse=True)
    group_codes = group_codes.reshape(-1)
    least = np.full(group_codes.max(initial=0) + 1, np.iinfo(np.int64).max)
    np.minimum.at(least, group_codes, column)
    least_by_row: Numbers = least[group_codes]
    return least_by_row


Floats = npt.NDArray[np.float64]
COARSE_ROWS = 500
"""Mappings of one evaluation, about."""
MIN_GAIN = 0.01
"""Share of the step that a further evaluation must promise to save."""
MAX_EVALUATIONS = 10
"""Evaluations of one search, at most. One that finds that nothing fits does not count: it computes memory alone."""
FORWARD_AGAIN = 0.25
"""What recomputing everything adds at least, as a share of the compute of a step: a forward pass is a third of it."""
REFINED_MESHES = 24
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
SAVABLE_PARTS = {
    "bubble": ("bubble", "pp"),
    "cp": ("cp",),
    "outside": ("dp", "pp", "ep", "weights"),
    "compute": ("gemm", "attention"),
}
"""Parts of a step that another value of a switch may save at most, under the names of `_MappingSearch.saved`."""
TRIED_SWITCHES = ("schedule", "weight_sharding", "ep_overlap", "placement", "cp_comm_type")
"""Switches whose other values are tried next, in this order. Not among them are tp_overlap and sequence_parallel: with
tensor parallelism, both gain whatever the rest of the mapping is."""
BALANCED_SHARE = 0.2
"""Share of the compute that a bidirectional schedule may save: each device has an early and a late stage."""
KEPT_ACTIVATIONS = {"none": 1.0, "selective": 0.3, "full": 0.0}
"""Share of the activations that is kept at least, by what is recomputed."""
Mode = tuple[str, tuple[str, ...]]
"""What is recomputed: the mode and the modules."""


Mapped = Optimum[dict[str, Any]]
"""The best mapping of a search, by its fields; where none fits into memory, the one that needs least."""


def search_mapping(base: DesignPoint, fixed: Mapping[str, Any]) -> Mapped | None:
    """Return the best mapping of *base* for training that agrees with what is *fixed*.

    *base* has the fixed values and the batch. If no mapping fits into memory, it is the one that needs least; if no
    mapping at all has the fixed values, it is None.
    """
    grid = build_grid(base, fixed)
    return None if grid is None else optimise(_MappingSearch(grid, fixed).steps(), partial(evaluate_mappings, grid))


@dataclass(frozen=True, slots=True)
class MappingTrial:
    """Mappings to evaluate: rows of a grid that share all switches."""

    switches: Mapping[str, Any]
    rows: Rows
    bounds: bool = False
    """Whether the seconds of those that do not fit are asked for, too: they bound what other switches can take."""


@dataclass(frozen=True, slots=True)
class MappingOutcome:
    """What comes of a trial, by row."""

    fits: Mask
    needed: Floats
    """The share of the memory that it needs; far more than of any other where it breaks a rule."""
    seconds: Floats | None
    """Of a step, infinite where it cannot run; None where nothing fits and no bounds were asked for."""
    states: Floats | float = 0.0
    """Where bounds were asked for: the share of the memory that states take, and what is beside them."""
    activations: Floats | float = 0.0
    saved: Mapping[str, Floats] = field(default_factory=dict)
    """Where bounds were asked for: how many of the seconds other switches may save."""


Asking = Steps[MappingTrial, MappingOutcome, None]
"""Part of a search, which asks for trials and notes what comes of them."""


def evaluate_mappings(grid: MappingGrid, trial: MappingTrial) -> MappingOutcome:
    """Return what comes of some mappings of a grid."""
    switches, rows = trial.switches, trial.rows
    point = grid.base.changed({f"workload.{name}": value for name, value in switches.items()})
    batch = Batch(point, {f"workload.{name}": column[rows] for name, column in grid.columns.items()})
    runs, share = runs_and_share(batch)
    allowed = np.isin(rows, grid.allowed(switches, rows)) if trial.bounds else runs
    fits = runs & allowed & (share <= 1)
    # What breaks a rule comes after all that merely need too much memory.
    outcome = MappingOutcome(fits, np.where(runs & allowed, share, 1e6 * share), None)
    if trial.bounds or fits.any():
        took = step_seconds(batch)
        outcome = replace(outcome, seconds=np.where(runs, took["seconds"], np.inf))
        if trial.bounds:
            surely = quantile_factor(batch.base, "weights", batch.base.memory.fits)
            states = np.asarray(surely * memory_of(batch).static / batch.base.memory.left_bytes)
            saved = {
                name: np.where(runs, sum_of(took[part] for part in parts), 0.0) for name, parts in SAVABLE_PARTS.items()
            }
            outcome = replace(outcome, states=states, activations=share - states, saved=saved)
    batch.known.clear()
    return outcome


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A mapping, as a row of the grid and switches, and what it is compared by: seconds, or its share of the memory."""

    measure: float
    row: int
    switches: Mapping[str, Any]


class _MappingSearch:
    """One search: what is known of each row of the grid, and the best so far."""

    def __init__(self, grid: MappingGrid, fixed: Mapping[str, Any]) -> None:
        self.grid, self.values = grid, field_values(grid.base, fixed)
        values = self.values
        self.modes = _order_modes(recompute_modes(grid.base, fixed))
        """What may be recomputed, in the order in which it is tried."""
        self.first = {name: _first_value(values[name], value) for name, value in USUALLY_BEST.items() if name in values}
        """The switches that all rows are tried with first."""
        self.bound = np.full(grid.size, np.inf)
        """By row: seconds with the first switches, whether it fits or not; infinite where that is not known."""
        self.saved = {name: np.zeros(grid.size) for name in SAVABLE_PARTS}
        """By row: how many of these seconds other switches may save."""
        self.states, self.activations = np.zeros(grid.size), np.zeros(grid.size)
        """By row, with the first switches: the shares of the memory that states take, and all else."""
        self.seconds = np.full(grid.size, np.inf)
        """By row: its shortest step that fits; infinite where none did."""
        self.best = _Candidate(np.inf, -1, {})
        self.least = _Candidate(np.inf, 0, {**self.first, **_mode_switches(self.modes[0])})
        """The row that needs least memory."""
        self.evaluations = self.searched = 0

    def steps(self) -> Steps[MappingTrial, MappingOutcome, Mapped]:
        """Ask for a dozen trials; return the best mapping among them."""
        light, *heavier = self.modes
        usual_modes, other_modes = heavier[:2], heavier[2:]
        coarse = self.grid.coarse(COARSE_ROWS)
        yield from self._try_lightly(light, usual_modes, coarse)
        yield from self._try_lightly(light, usual_modes, self._untried_near(coarse))
        bounded_rows = np.flatnonzero(np.isfinite(self.bound))
        for name, value in self._list_other_switches():
            if self.best.row >= 0 or name == "weight_sharding":  # others need more memory
                yield from self._try_modes(
                    {**self._switches(), name: value}, [light, *usual_modes], bounded_rows, self._savable(name, value)
                )
        yield from self._try_modes(self._switches(), other_modes, bounded_rows)
        chosen = self.best if self.best.row >= 0 else self.least
        return Optimum(self.grid.as_chosen(chosen.row, chosen.switches), self.best.row >= 0, self.searched)

    def _list_other_switches(self) -> Iterator[tuple[str, Any]]:
        """Yield other values of switches, one at a time."""
        for name in TRIED_SWITCHES:
            for value in reversed(self.values.get(name, [])):
                if value not in (self.first[name], "1f1b"):  # 1F1B is interleaved stages, one to a device
                    yield name, value

    def _savable(self, name: str, value: Any) -> Floats | float:
        """Return how many seconds of each row's bound a value of a switch may save."""
        if name == "schedule":
            copies = schedules[value].parameter_copies(2)
            return self.saved["bubble"] + (BALANCED_SHARE if copies > 1 else 0.0) * self.saved["compute"]
        parts = {"placement": "outside", "cp_comm_type": "cp"}
        return self.saved[parts[name]] if name in parts else 0.0

    def _switches(self) -> dict[str, Any]:
        """Return the switches that are best so far."""
        return dict(self.best.switches or self.first)

    def _untried_near(self, tried: Rows) -> Rows:
        """Return the rows beside *tried* that have one of the meshes that are best so far."""
        seconds = self.seconds if self.best.row >= 0 else self.bound
        best = tried[np.argsort(seconds[tried], kind="stable")][:REFINED_MESHES]
        return np.setdiff1d(self.grid.around(best), tried)

    def _try_lightly(self, light: Mode, heavier: Sequence[Mode], rows: Rows) -> Asking:
        """Try rows with the first switches and mode *light*, for their bounds; what does not fit, with *heavier*."""
        if len(rows):
            trial = MappingTrial({**self.first, **_mode_switches(light)}, rows, bounds=True)
            outcome = yield trial
            self._note(trial, outcome)
            yield from self._try_modes(self.first, heavier, rows)

    def _try_modes(
        self, switches: Mapping[str, Any], modes: Sequence[Mode], rows: Rows, saved: Floats | float = 0.0
    ) -> Asking:
        """Try with each of *modes* the rows that promise a shorter step, except those that fitted with one before.

        *saved* are the seconds of each row's bound that *switches* may save.
        """
        for mode in modes:
            bound = self.bound - saved + (FORWARD_AGAIN * self.saved["compute"] if mode[0] == "full" else 0.0)
            chosen = {**switches, **_mode_switches(mode)}
            promising = rows[(bound[rows] < (1 - MIN_GAIN) * self.best.measure) & self._may_fit(chosen, rows)]
            promising = self.grid.allowed(chosen, promising)
            promising = promising[np.argsort(bound[promising], kind="stable")][:COARSE_ROWS]
            if len(promising) and self.evaluations < MAX_EVALUATIONS:
                trial = MappingTrial(chosen, np.sort(promising))
                outcome = yield trial
                self._note(trial, outcome)
                rows = np.setdiff1d(rows, trial.rows[outcome.fits])

    def _may_fit(self, switches: Mapping[str, Any], rows: Rows) -> Mask:
        """Return which rows may fit with *switches*; all of them as long as none does."""
        if self.best.row < 0:
            return np.ones(len(rows), dtype=bool)
        states = self.states[rows] if switches["weight_sharding"] == self.first["weight_sharding"] else 0.0
        may: Mask = states + KEPT_ACTIVATIONS.get(switches["recompute"], 0.0) * self.activations[rows] <= 1
        return may

    def _note(self, trial: MappingTrial, outcome: MappingOutcome) -> None:
        """Note what came of a trial: the best so far, and the bounds of all of its rows if it asked for them."""
        rows = trial.rows
        self.searched += len(rows)
        self._keep_least(trial.switches, rows, outcome.needed)
        if outcome.seconds is None:
            return
        self.evaluations += 1
        if trial.bounds:
            self.bound[rows], self.states[rows] = outcome.seconds, outcome.states
            self.activations[rows] = outcome.activations
            for name, seconds in outcome.saved.items():
                self.saved[name][rows] = seconds
        self._keep_best(trial.switches, rows, np.where(outcome.fits, outcome.seconds, np.inf))

    def _keep_best(self, switches: Mapping[str, Any], rows: Rows, seconds: Floats) -> None:
        self.seconds[rows] = np.minimum(self.seconds[rows], seconds)
        position = int(seconds.argmin())
        if seconds[position] < (1 - ROUNDING) * self.best.measure:
            self.best = _Candidate(float(seconds[position]), int(rows[position]), switches)

    def _keep_least(self, switches: Mapping[str, Any], rows: Rows, share: Floats) -> None:
        position = int(share.argmin())
        if share[position] < (1 - ROUNDING) * self.least.measure:
            self.least = _Candidate(float(share[position]), int(rows[position]), switches)


def _first_value(values: list[Any], preferred: Any) -> Any:
    """Return the value of a switch to try first: the *preferred* one if it is allowed."""
    return preferred if preferred in values else values[0]


def _order_modes(modes: Sequence[Mode]) -> list[Mode]:
    """Return *modes* in the order to try them: nothing, what costs least to recompute, everything, then the others."""
    cheap = next((mode for mode in modes if mode[0] == "selective" and "layernorm" in mode[1]), None)
    first = [mode for mode in modes if mode[0] != "selective" or mode == cheap] or list(modes[:1])
    return first + [mode for mode in modes if mode not in first]


def _mode_switches(mode: Mode) -> dict[str, Any]:
    return {"recompute": mode[0], "recompute_modules": mode[1]}


def runs_and_share(batch: Batch) -> tuple[Mask, Floats]:
    """Return which designs of one structure meet every rule, and what share of their memory each needs."""
    met = reduce(and_, (np.broadcast_to(met_rule, batch.size) for met_rule in rules_met(batch).values()))
    try:
        with np.errstate(all="ignore"):
            memory = memory_of(batch)
            left = batch.base.memory.left_bytes
            share = memory.must_fit / left
            if memory.placed is not None:
                needed = share - memory.placed.movable / left
                share = np.where(np.asanyarray(memory.excess) > 0, np.maximum(share, 1 + memory.excess), needed)
            elif memory.offloaded:
                outer = sum(tier.capacity_bytes for tier in batch.base.memory.tiers)
                share = np.maximum(share, sum_of(memory.offloaded.values()) / max(outer, 1.0))
    except ArithmeticError:
        return np.zeros(batch.size, dtype=bool), np.full(batch.size, np.inf)
    shares = np.nan_to_num(np.broadcast_to(share, batch.size), nan=np.inf)
    return met & np.isfinite(shares), shares


def step_seconds(batch: Batch) -> dict[str, Floats]:
    """Return the seconds of a step of designs of one structure, and its parts; infinite where they overflow."""
    try:
        with np.errstate(all="ignore"):
            took = compute_step_seconds(batch)
    except ArithmeticError:
        return dict.fromkeys(("seconds", *BREAKDOWN), np.full(batch.size, np.inf))
    parts = {"seconds": took.seconds, **took.parts}
    return {name: np.nan_to_num(np.broadcast_to(value, batch.size), nan=np.inf) for name, value in parts.items()}


# ---- The best mapping of a design that serves: all of them are evaluated, as they share all switches

DECODE_SEQUENCES = 64
"""Sequences that a replica decodes at a time where no batch is given, if their KV cache fits: else half as many, …"""
INVALID_PENALTY = 1e6
"""By how much a mapping that breaks a rule is behind those that need too much memory."""


def search_serving(base: DesignPoint, fixed: Mapping[str, Any]) -> Mapped:
    """Return mesh, global_batch and micro_batch for prefill or decode; what is *fixed* is kept."""
    meshes = list_meshes(base, fixed, base.network.npus)
    if len(meshes) == 1 and "global_batch" in fixed:
        return Optimum(_add_batch(base, meshes[0], fixed["global_batch"], fixed), fits=True, tried=1)
    sized, needed = _size_batch(base, meshes, fixed)
    if needed.min() > 1:
        index = int(needed.argmin())
        return Optimum(sized[index], fits=bool(needed[index] <= 1), tried=len(sized))
    smallest = sized[int(np.flatnonzero(needed <= 1)[0])]
    resized, needed = _size_batch(base, meshes, {**fixed, "global_batch": smallest["global_batch"]})
    fitting = [mesh for mesh, share in zip(resized, needed, strict=True) if share <= 1]
    seconds = step_seconds(_batch(base, fitting))["seconds"]
    return Optimum(fitting[int(seconds.argmin())], fits=True, tried=len(resized))


def list_meshes(base: DesignPoint, fixed: Mapping[str, Any], npus: int) -> list[dict[str, int]]:
    """Return the meshes of *npus* to try, the smallest tp × pp first; one where it is stated in full."""
    values = {"tp": [1], "pp": [1], "ep": [1]} | field_values(base, fixed)
    values |= {name: [fixed[name]] for name in values if name in fixed}
    cp = fixed.get("cp", 1)
    meshes = []
    for tp, pp in sorted(product(values["tp"], values["pp"]), key=lambda split: (split[0] * split[1], split[1])):
        dp = npus // (tp * pp * cp)
        if npus != dp * tp * pp * cp or fixed.get("dp", dp) != dp:
            continue
        expert_splits = [ep for ep in values["ep"] if (dp * cp) % ep == 0 or "ep" in fixed]
        meshes += [{"dp": dp, "tp": tp, "cp": cp, "pp": pp, "ep": ep} for ep in expert_splits]
    return meshes or [stated_mesh(npus, fixed)]


def stated_mesh(npus: int, fixed: Mapping[str, Any]) -> dict[str, int]:
    """Return the one mesh that is stated, though it does not go with the accelerators."""
    mesh = {axis: fixed.get(axis, 1) for axis in (*AXES, "ep")}
    replicas = npus // (mesh["tp"] * mesh["cp"] * mesh["pp"])
    return {**mesh, "dp": fixed.get("dp", max(replicas, 1))}


def _size_batch(
    base: DesignPoint, meshes: list[dict[str, int]], fixed: Mapping[str, Any]
) -> tuple[list[dict[str, int]], Floats]:
    """Return the meshes *meshes* with the largest batch that one of them has memory for, and what share they need."""
    sequences = _replica_sequences(base, fixed)
    while True:
        sized = [_add_batch(base, mesh, fixed.get("global_batch", sequences * mesh["dp"]), fixed) for mesh in meshes]
        runs, share = runs_and_share(_batch(base, sized))
        needed = np.where(runs, share, INVALID_PENALTY * np.maximum(share, 1.0))
        if needed.min() <= 1 or "global_batch" in fixed or sequences <= fixed.get("micro_batch", 1):
            return sized, needed
        sequences //= 2


def _batch(base: DesignPoint, candidates: list[dict[str, int]]) -> Batch:
    return Batch(
        base, {f"workload.{key}": np.array([candidate[key] for candidate in candidates]) for key in candidates[0]}
    )


def _replica_sequences(base: DesignPoint, fixed: Mapping[str, Any]) -> int:
    """Return the sequences of a replica where no batch is given; decoding, the most of them."""
    if isinstance(base.model, Recommender):
        return int(fixed.get("micro_batch", PASS_TOKENS))
    micro_batch = fixed.get("micro_batch", 1)
    return (
        int(micro_batch * max(1, DECODE_SEQUENCES // micro_batch))
        if base.workload.task == "decode"
        else int(micro_batch)
    )


def _add_batch(base: DesignPoint, mesh: dict[str, int], batch: int, fixed: Mapping[str, Any]) -> dict[str, int]:
    """Return *mesh* with the batch and the microbatch that suits it."""
    of_replica, remainder = divmod(batch, mesh["dp"])
    most = of_replica // mesh["pp"] if base.workload.task == "decode" else PASS_TOKENS // base.workload.sequence
    usual = 1 if remainder else max((divisor for divisor in divisors(of_replica) if divisor <= most), default=1)
    return {**mesh, "global_batch": batch, "micro_batch": fixed.get("micro_batch", usual)}


# ---- The best mapping of a design that serves a load: all meshes are evaluated, and requests are to be done soonest

BUSY_REQUESTS_PER_NPU = 256
"""Requests in flight for each accelerator that keep any deployment busy."""
DEPLOYMENT_FIELDS = (*AXES, "ep")
"""The fields of a mapping that serves a load."""


def search_deployment(base: DesignPoint, fixed: Mapping[str, Any], free: Mapping[str, Any]) -> Mapped:
    """Return dp, tp, cp, pp and ep, and what is *free* of the prefill pool; what is *fixed* is kept.

    That may be ``prefill.tp``, and with a stated dp ``prefill.replicas``: as many as take what dp leaves.
    """
    candidates = _list_candidates(base, fixed, free)
    if len(candidates) == 1:
        return Optimum(candidates[0], fits=True, tried=0)
    columns = {
        (f"serving.{key}" if key.startswith("prefill.") else f"workload.{key}"): np.array(
            [candidate[key] for candidate in candidates]
        )
        for key in candidates[0]
    }
    outcome = evaluate_batch(Batch(base, columns))
    layer = base.serving
    assert layer is not None  # noqa: S101  only such designs come here
    took = outcome.columns["ttft_s"] + layer.load.mean("osl") * outcome.columns["tpot_s"]
    if outcome.feasible.any():
        best = int(np.nanargmin(np.where(outcome.feasible, took, np.nan)))
        return Optimum(candidates[best], fits=True, tried=len(candidates))
    return Optimum(candidates[_nearest_mapping(base, columns, outcome)], fits=False, tried=len(candidates))


def _nearest_mapping(base: DesignPoint, columns: Mapping[str, Any], outcome: BatchOutcome) -> int:
    """Return which of the mappings that cannot serve the load would serve most; of those without room, the nearest."""
    if base.serving is not None and base.serving.load.rate is not None:
        crowd = {"serving.load.rate": None, "serving.load.concurrency": BUSY_REQUESTS_PER_NPU * base.network.npus}
        most = evaluate_batch(Batch(base.changed(crowd), columns))
        if most.feasible.any():
            return int(np.nanargmax(np.where(most.feasible, most.columns["tokens_per_s"], np.nan)))
    return int(outcome.excess.argmin())


def _list_candidates(base: DesignPoint, fixed: Mapping[str, Any], free: Mapping[str, Any]) -> list[dict[str, int]]:
    """Return the meshes to try, each with the prefill pool's tp where that is free; smallest instances first."""
    layer = base.serving
    pool = layer.prefill if layer is not None and layer.disaggregated else None
    if pool is None:
        return list_meshes(base, fixed, base.network.npus)
    meshes: list[dict[str, int]] = []
    for tp in field_values(base, {}).get("tp", [1]) if "tp" in free else [pool.tp]:
        if "replicas" in free:
            meshes += _filled_meshes(base, fixed, pool, tp)
            continue
        decode_npus = base.network.npus - (0 if pool.system is not None else pool.npus // pool.tp * tp)
        if decode_npus < 1:
            continue
        meshes += [{**mesh, "prefill.tp": tp} for mesh in list_meshes(base, fixed, decode_npus)]
    usual = {"prefill.tp": pool.tp, "prefill.replicas": pool.replicas}
    wanted_keys = {**dict.fromkeys(DEPLOYMENT_FIELDS), **{f"prefill.{name}": None for name in free}}
    meshes = meshes or [stated_mesh(base.network.npus, fixed)]
    return [{key: value for key, value in {**usual, **entry}.items() if key in wanted_keys} for entry in meshes]


def _filled_meshes(base: DesignPoint, fixed: Mapping[str, Any], pool: PrefillPool, tp: int) -> Iterator[dict[str, int]]:
    """Yield meshes of the stated dp, each with as many prefill instances as take all accelerators that it leaves."""
    npus, instance_npus = base.network.npus, pool.pp * pool.dp * tp
    for decode_npus in range(fixed["dp"], npus, fixed["dp"]):
        replicas, remainder = divmod(npus - decode_npus, instance_npus)
        for mesh in list_meshes(base, fixed, decode_npus) if remainder == 0 else ():
            if mesh["dp"] * mesh["tp"] * mesh["cp"] * mesh["pp"] == decode_npus:
                yield {**mesh, "prefill.tp": tp, "prefill.replicas": replicas}
