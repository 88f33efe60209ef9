"""What bounds a design, and what would help it most: moves of an engineer first, then what could be bought.

`find_improvements` tries single moves, then pairs of the best of them, and of those that would be fast if they fitted
with those that save memory. Of each lever, the best move is listed. `find_repairs` does the same for a design that
cannot run. `advise` adds to each change what must be set for a design to load as the changed one: the change, and what
would otherwise be chosen anew.

Designs that differ in numbers alone are evaluated together, at hardly more than the price of one. Each switch is a
structure of its own. So numbers are tried with everything, and switches in pairs only where they are promising.

`mend_mapping` gives the nearest valid mapping of a design whose mapping is not: every rule of the workload's checks is
met in turn.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import combinations, product
from math import gcd, inf, isfinite
from pathlib import Path
from typing import Any

from cosmic.base.caching import keep_cached, read_cached
from cosmic.base.errors import SpecError
from cosmic.base.json_types import Ratio
from cosmic.base.numeric import divisors
from cosmic.base.optimise import Steps, optimise
from cosmic.design import schema
from cosmic.design.collective_layer import algorithms
from cosmic.design.design_batch import batch_of, batch_of_changes
from cosmic.design.design_point import DesignPoint, full_path
from cosmic.design.loading import stated_fields
from cosmic.design.model_layer import Recommender, Transformer, context_parts, has_tokens, tensor_parts
from cosmic.design.network_layer import Fabric
from cosmic.design.workload_layer import schedules as workload_layer_schedules
from cosmic.evaluation import evaluate, evaluate_batch, step_of
from cosmic.search.advice.moves import Kind, Move, combine_changes, list_moves
from cosmic.search.mapping.design_completion import MAPPING, load_design
from cosmic.simulate.analytic_step import bounding_profile
from cosmic.simulate.metrics import Metrics
from cosmic.step.bottleneck import describe_bound
from cosmic.workload.mapping_rules import invalid_reasons
from cosmic.workload.mesh_sizes import pads_dimensions
from cosmic.workload.pipeline_cut import layers_of
from cosmic.workload.pipeline_schedule import schedules

# ---- The nearest valid mapping of a design whose mapping is not: every rule of `cosmic.workload.mapping_rules`, met in turn

MESH_AXES = ("tp", "cp", "pp", "dp")


def mend_mapping(point: DesignPoint) -> dict[str, Any] | None:
    """Return the fields to change for a mapping that is valid; none where it is, None where this finds no such.

    >>> from cosmic.search.mapping.design_completion import load_design
    >>> mend_mapping(load_design("llama3-70b@dgx-h100:64", {"tp": 8, "pp": 2, "cp": 1, "dp": 4, "global_batch": 62}))
    {'workload.global_batch': 64}
    """
    if point.serving is not None:
        return _mend_deployment(point)
    if not invalid_reasons(point):
        return {}
    workload = point.workload
    fields = {
        name: getattr(workload, name) for name in (*MESH_AXES, "ep", "etp", "global_batch", "micro_batch", "sequence")
    }
    fields |= {name: getattr(workload, name) for name in ("virtual_stages", "schedule", "precision", "offload")}
    _mend_sample(point, fields)
    _mend_mesh(point, fields)
    _mend_experts(point, fields)
    _mend_batch(fields)
    _mend_schedule(point, fields)
    if workload.precision in ("fp8", "fp4", "int4") and workload.task == "training":
        rate = getattr(point.compute, f"{workload.precision}_flop_per_s", None)
        fields["precision"] = "bf16" if rate is None else workload.precision
    fields["offload"] = workload.offload if point.memory.tiers else ()
    changes = {f"workload.{name}": value for name, value in fields.items() if value != getattr(workload, name)}
    return changes if changes and not invalid_reasons(schema.assign_fields(point, changes)) else None


def _mend_deployment(point: DesignPoint) -> dict[str, Any] | None:
    """Return the same of a design that serves: mesh and experts as for a decode step, and dp of all that is left."""
    step = mend_mapping(step_of(point))
    if step is None:
        return None
    fields = {path: value for path, value in step.items() if path.partition(".")[2] in (*MESH_AXES, "ep", "etp")}
    pool = point.serving.prefill if point.serving else None
    if pool is not None and pool.system is None and pool.replicas:
        mesh = {name: fields.get(f"workload.{name}", getattr(point.workload, name)) for name in MESH_AXES}
        dp, remainder = divmod(point.network.npus - pool.npus, mesh["tp"] * mesh["cp"] * mesh["pp"])
        if remainder or dp < 1:
            return None
        fields |= {"workload.dp": dp} if dp != point.workload.dp else {}
    return fields


def _largest_divisor(number: int, most: int) -> int:
    """Return the largest divisor of *number* that is at most *most*."""
    return max((divisor for divisor in divisors(number) if divisor <= most), default=1)


def _mend_sample(point: DesignPoint, fields: dict[str, Any]) -> None:
    """Give a sample the tokens that its model gives it."""
    model = point.model
    if isinstance(model, Recommender):
        fields["sequence"] = 1
    elif isinstance(model, Transformer) and model.image is not None:
        fields["sequence"] = model.image.tokens


def _mend_mesh(point: DesignPoint, fields: dict[str, Any]) -> None:
    """Make a mesh of all accelerators that divides the model: axes as wide as before, or less; dp takes the rest."""
    model, npus = point.model, point.network.npus
    if isinstance(model, Recommender):
        fields |= {"tp": 1, "cp": 1, "pp": 1, "dp": npus}
        return
    splits_tokens = point.workload.sequence_parallel and point.workload.task == "training"
    common = gcd(tensor_parts(model, pads=pads_dimensions(point)), npus, fields["sequence"] if splits_tokens else 0)
    fields["tp"] = _largest_divisor(common, fields["tp"])
    ranks = npus // fields["tp"]
    tokens = 0 if point.workload.task == "decode" else fields["sequence"] // (fields["tp"] if splits_tokens else 1)
    fields["cp"] = _largest_divisor(gcd(ranks, tokens, context_parts(model, fields["tp"])), fields["cp"])
    ranks //= fields["cp"]
    fields["pp"] = _largest_divisor(ranks, min(fields["pp"], layers_of(model)))
    fields["dp"] = ranks // fields["pp"]


def _mend_experts(point: DesignPoint, fields: dict[str, Any]) -> None:
    """Spread experts over the ranks of a stage."""
    experts = point.model.experts if isinstance(point.model, Transformer) else None
    if experts is None:
        fields |= {"ep": 1, "etp": None}
        return
    ranks = fields["tp"] * fields["cp"] * fields["dp"]
    width = 0 if pads_dimensions(point) else experts.ffn
    if fields["etp"] is not None and (fields["tp"] % fields["etp"] or width % fields["etp"]):
        fields["etp"] = _largest_divisor(gcd(fields["tp"], width), fields["etp"])
    fields["ep"] = _largest_divisor(gcd(experts.count, ranks // (fields["etp"] or 1)), fields["ep"])
    etp = fields["etp"] or gcd(fields["tp"], ranks // fields["ep"])
    if (etp * fields["ep"]) % fields["tp"] and point.workload.task != "training":
        fields["etp"] = None


def _mend_batch(fields: dict[str, Any]) -> None:
    """Give every replica as many whole microbatches: smaller ones, or a batch that is rounded up."""
    if fields["global_batch"] % fields["dp"]:
        step_samples = fields["dp"] * fields["micro_batch"]
        fields["global_batch"] = -(-fields["global_batch"] // step_samples) * step_samples
    fields["micro_batch"] = _largest_divisor(fields["global_batch"] // fields["dp"], fields["micro_batch"])


def _mend_schedule(point: DesignPoint, fields: dict[str, Any]) -> None:
    """Leave stages undivided where they cannot be divided, and take a schedule that runs any number of microbatches."""
    model, workload = point.model, point.workload
    layers = layers_of(model)
    count = fields["global_batch"] // (fields["dp"] * fields["micro_batch"])
    sizes = (fields["pp"], count)
    if workload.task != "training" or fields["pp"] * fields["virtual_stages"] > layers + 2:
        fields["virtual_stages"] = 1
    if workload.task == "training" and not schedules[fields["schedule"]].runs(*sizes, fields["virtual_stages"]):
        fields["virtual_stages"] = 1
        if not schedules[fields["schedule"]].runs(*sizes, 1):
            fields["schedule"] = "1f1b"


# ---- Tries moves, alone and in pairs, and ranks what came of them

MIN_SPEEDUP = 1.005
"""By how much a change must be faster to be worth a line."""
MIN_PAIR_SPEEDUP = 1.01
"""By how much a pair must be faster than the best single move."""
MAX_ACTIONS, MAX_PAIRS, MAX_PURCHASES = 5, 3, 4
"""Lines of each kind."""
PAIRED_SWITCHES, PAIRED_NUMBERS, PAIRED_SAVERS = 2, 10, 4
"""How many of the best moves of a kind pairs are made of; one more switch that depends on a condition."""


@dataclass(frozen=True, slots=True)
class Change:
    """A changed design that can run, and what comes of it."""

    kind: Kind
    """Something that an engineer does, or something to buy."""
    settings: dict[str, Any]
    """The fields that change, by path, as in files."""
    speedup: Ratio | None
    """Its throughput over that of the design; None where that cannot run."""
    tokens_per_s: float | None
    """Tokens per second of all accelerators together; None of a model without a sequence."""
    samples_per_s: float | None
    """Samples per second of all accelerators together, of a model without a sequence; None of others."""
    step_s: float
    """Time of one step: a training step, a prefill, or one decoded token for all sequences at once."""
    memory_bytes: float
    """Peak memory of the accelerator that needs most."""
    condition: str = ""
    """When it is open, such as 'if accuracy allows'; empty if always."""
    moves: int = 1
    """How many moves it is made of."""


@dataclass(frozen=True, slots=True)
class _MoveTrial:
    """Moves that were made together, and what came of them."""

    moves: tuple[Move, ...]
    changes: dict[str, Any]
    rate: float
    """Throughput, whether or not it fits."""
    excess: float
    """By what share it needs more memory than there is; infinite where its mapping is invalid."""
    step_s: float
    memory_bytes: float

    @property
    def levers(self) -> tuple[str, ...]:
        return tuple(sorted(move.lever for move in self.moves))

    @property
    def kind(self) -> Kind:
        return "purchase" if any(move.kind == "purchase" for move in self.moves) else "action"

    @property
    def condition(self) -> str:
        return ", ".join(dict.fromkeys(move.condition for move in self.moves if move.condition))

    @property
    def is_switch(self) -> bool:
        return any(move.is_switch for move in self.moves)


# ---- improving


def find_improvements(point: DesignPoint, base: Metrics, most: int = 2 * MAX_ACTIONS) -> list[Change]:
    """Return the changes that make a design that achieves *base* faster: actions, then purchases, each best first.

    There are at most *most* of either kind.
    """
    rate = base.throughput_per_s
    chosen = optimise(_improving_moves(list(list_moves(point)), rate, most), partial(_try_moves, point))
    return [_make_change(point, trial, rate) for trial in chosen]


Trying = Steps[Sequence[tuple[Move, ...]], list["_MoveTrial"], list["_MoveTrial"]]
"""Steps that ask for moves to make together, and return the trials to show."""


def _improving_moves(moves: Sequence[Move], rate: float, most: int) -> Trying:
    """Ask for single moves, then for the pairs that these promise; return those that are faster than *rate*."""
    savers = [move for move in moves if move.saves]
    singles = yield [(move,) for move in moves if not move.saves]
    least = MIN_SPEEDUP * rate
    fast = [single for single in singles if single.excess == 0 and single.rate > least]
    actions = _best_of_levers(trial for trial in fast if trial.kind == "action")
    pairs = yield _promising_pairs(singles, savers, rate)
    fast_pairs = [pair for pair in pairs if pair.excess == 0]
    purchases = _best_of_levers(
        [trial for trial in fast if trial.kind == "purchase"]
        + [fast_pair for fast_pair in fast_pairs if fast_pair.kind == "purchase" and fast_pair.rate > least]
    )
    chosen = sorted([*_select_pairs(fast_pairs, actions, rate), *actions[:MAX_ACTIONS]], key=lambda trial: -trial.rate)
    return [*chosen[:most], *purchases[: min(most, MAX_PURCHASES)]]


def _promising_pairs(singles: Sequence[_MoveTrial], savers: Sequence[Move], rate: float) -> list[tuple[Move, ...]]:
    """Return the pairs that are worth trying."""
    actions = [single for single in singles if single.kind == "action"]
    fast = _best_of_levers(action for action in actions if action.excess == 0 and action.rate > MIN_SPEEDUP * rate)
    tight = _best_of_levers(
        action for action in actions if 0 < action.excess < inf and action.rate > MIN_PAIR_SPEEDUP * rate
    )
    neutral = _best_of_levers(action for action in actions if not action.is_switch and 0 <= action.excess < inf)
    numbers = [trial.moves[0] for trial in neutral[:PAIRED_NUMBERS]]
    switches = [trial.moves[0] for trial in fast if trial.is_switch]
    switches = [
        move
        for condition in (False, True)
        for move in [move for move in switches if bool(move.condition) == condition][
            : 1 if condition else PAIRED_SWITCHES
        ]
    ]
    tight_numbers = [trial.moves[0] for trial in tight if not trial.is_switch][:PAIRED_NUMBERS]
    tight_switches = [trial.moves[0] for trial in tight if trial.is_switch][:2]
    relieving = [
        best_of_lever.moves[0]
        for best_of_lever in _best_of_levers(
            action for action in actions if not action.is_switch and action.excess == 0
        )
    ]
    capacity = [move for move in savers if move.kind == "purchase"]
    pairs = [
        *combinations(numbers, 2),
        *product(switches, numbers),
        *combinations(switches, 2),
        *product(_diversify_savers(savers), tight_numbers),
        *product(tight_switches, relieving[: 2 * PAIRED_NUMBERS]),
        *product(capacity, [*tight_numbers, *tight_switches]),
    ]
    return [pair for pair in pairs if pair[0].lever != pair[1].lever]


def _diversify_savers(savers: Sequence[Move]) -> list[Move]:
    """Return some moves that save memory, of different levers first."""
    actions = [move for move in savers if move.kind == "action" and not move.condition]
    seen: dict[str, int] = {}
    ranks = []
    for move in actions:
        seen[move.lever] = seen.get(move.lever, 0) + 1
        ranks.append(seen[move.lever])
    order = sorted(range(len(actions)), key=lambda index: ranks[index])
    return [actions[index] for index in order[:PAIRED_SAVERS]]


def _select_pairs(pairs: Iterable[_MoveTrial], singles: Sequence[_MoveTrial], rate: float) -> list[_MoveTrial]:
    """Return the pairs that are faster than the best single move: without conditions, then one with."""
    actions = [pair for pair in pairs if pair.kind == "action"]
    selected: list[_MoveTrial] = []
    for condition, most in ((False, MAX_PAIRS - 1), (True, 1)):
        alone = max((single.rate for single in singles if condition or not single.condition), default=rate)
        best = _best_of_levers(
            action
            for action in actions
            if bool(action.condition) == condition and action.rate > MIN_PAIR_SPEEDUP * alone
        )
        selected += best[:most]
    return selected


# ---- repairing


def find_repairs(point: DesignPoint) -> list[Change]:
    """Return the changes that make a design run that cannot: actions, then purchases, each fastest first."""
    first = mend_mapping(point)
    if first is None:
        return []
    start: DesignPoint = schema.assign_fields(point, first)
    if first and evaluate_batch(batch_of(start)).feasible[0]:
        return [_make_change(point, _evaluate_moves(start, [((), {})])[0], None, first)]
    trials = optimise(_repairing_moves(list(list_moves(start))), partial(_try_moves, start))
    return [_make_change(point, trial, None, first) for trial in trials]


def _repairing_moves(moves: Sequence[Move]) -> Trying:
    """Ask for single moves, then for pairs of those that come near; return what makes a design run."""
    singles = yield [(move,) for move in moves]
    running = _best_of_levers(single for single in singles if single.excess == 0)
    if not any(trial.kind == "action" for trial in running):
        valid = sorted((single for single in singles if isfinite(single.excess)), key=lambda trial: trial.excess)
        near = [
            first_of_lever.moves[0] for first_of_lever in _first_of_levers(valid) if first_of_lever.kind == "action"
        ]
        switches = [move for move in near if move.is_switch][: 2 * PAIRED_SWITCHES]
        numbers = [move for move in near if not move.is_switch][: 2 * PAIRED_NUMBERS]
        pairs = [*combinations(numbers, 2), *product(switches, numbers), *combinations(switches, 2)]
        tried = yield pairs
        running += _best_of_levers(trial for trial in tried if trial.excess == 0)
    actions = sorted((trial for trial in running if trial.kind == "action"), key=lambda trial: bool(trial.condition))
    bought = [trial for trial in running if trial.kind == "purchase"]
    return [*actions[:MAX_ACTIONS], *bought[:MAX_PURCHASES]]


def _first_of_levers(trials: Iterable[_MoveTrial]) -> list[_MoveTrial]:
    """Return the first trial of each lever."""
    first_trials: dict[tuple[str, ...], _MoveTrial] = {}
    for trial in trials:
        first_trials.setdefault(trial.levers, trial)
    return list(first_trials.values())


# ---- trying


def _try_moves(point: DesignPoint, combinations_of_moves: Iterable[tuple[Move, ...]]) -> list[_MoveTrial]:
    """Return what comes of moves that are made together, where they combine."""
    trials: dict[str, tuple[tuple[Move, ...], dict[str, Any]]] = {}
    for moves in combinations_of_moves:
        changes = combine_changes(point, moves)
        if changes is not None:
            trials.setdefault(repr(sorted(changes.items())), (moves, changes))
    return _evaluate_moves(point, list(trials.values()))


def _evaluate_moves(point: DesignPoint, tried: Sequence[tuple[tuple[Move, ...], dict[str, Any]]]) -> list[_MoveTrial]:
    """Return what comes of moves, each with the fields that they change."""
    if not tried:
        return []
    outcome = evaluate_batch(batch_of_changes(point, [changes for _, changes in tried]))
    columns = [outcome.throughput_per_s, *(outcome.columns[name] for name in ("step_s", "memory_bytes"))]
    rates, steps, sizes = (column.tolist() for column in columns)
    rows = zip(tried, rates, outcome.excess.tolist(), steps, sizes, strict=True)
    return [
        _MoveTrial(moves, changes, rate, excess, step_s, size) for (moves, changes), rate, excess, step_s, size in rows
    ]


def _best_of_levers(trials: Iterable[_MoveTrial]) -> list[_MoveTrial]:
    """Return the best trial of each lever, or pair of levers, best first; of equal ones, that of fewest changes."""
    return _first_of_levers(sorted(trials, key=lambda trial: (-trial.rate, len(trial.changes))))


def _make_change(
    point: DesignPoint, trial: _MoveTrial, rate: float | None, before: Mapping[str, Any] | None = None
) -> Change:
    """Return a trial as a change of *point*: of *before*, if that was changed before."""
    changes = {**(before or {}), **trial.changes}
    settings = {
        path: write_field(point, path, value)
        for path, value in changes.items()
        if value != schema.get_field(point, path)
    }
    speedup = None if rate is None else trial.rate / rate
    rates = (trial.rate, None) if has_tokens(point.model) else (None, trial.rate)
    about = (*rates, trial.step_s, trial.memory_bytes, trial.condition, max(1, len(trial.moves)))
    return Change(trial.kind, settings, speedup, *about)


def write_field(point: DesignPoint, path: str, value: Any) -> Any:
    """Return the value of a field as files write it."""
    return schema.write_value(value, schema.slot_at(point, path).dimension)


# ---- What must be set so that a design loads as a changed one: the change, and what would otherwise be chosen anew

STATED_MESH = ("workload.tp", "workload.cp", "workload.pp")
"""A mesh that is stated is kept; where it is not, one is looked for."""
MAX_ROUNDS = 4
Source = str | Path | Mapping[str, Any]
"""A design as `load_design` takes it."""
Advised = tuple[Change, dict[str, Any]]
"""A change, and everything to set for it."""


def advise(source: Source, overrides: Mapping[str, Any], point: DesignPoint, base: Metrics | None) -> list[Advised]:
    """Return what helps a design that achieves *base* most, or makes it run if that is None, with what to set for it.

    *point* is what *source* loads as with *overrides*. The answer is kept for other processes.
    """
    set_paths = sorted(stated_fields(source, overrides))
    key = f"{str(source)!r} {dict(overrides)} {set_paths} {point.identity} {base is None} {_added_names()}"
    if content := read_cached("advice", key):
        with suppress(ValueError, TypeError):
            return [(Change(**change), settings) for change, settings in json.loads(content)]
    changes = find_repairs(point) if base is None else find_improvements(point, base)
    if base is None:
        changes = [_remap_change(source, overrides, point, change) for change in changes]
        changes.sort(key=lambda change_of: (change_of.kind == "purchase", bool(change_of.condition), change_of.step_s))
    advised = [(change, overrides_of_change(source, overrides, point, change.settings)) for change in changes]
    loadable = [(change, settings) for change, settings in advised if settings is not None]
    with suppress(TypeError):  # an override that is no JSON
        keep_cached("advice", key, json.dumps([(asdict(change), settings) for change, settings in loadable]).encode())
    return loadable


def _added_names() -> list[str]:
    """Return what this process has added to the names that a design may have, by which its identity names it."""
    return [*algorithms.added, *workload_layer_schedules.added]


def _remap_change(source: Source, overrides: Mapping[str, Any], point: DesignPoint, change: Change) -> Change:
    """Return a change that makes a design run with the mapping that is looked for where none is stated, if faster.

    A design that cannot run has a mapping that nobody chose: what fits is better laid out anew.
    """
    mapping = [f"workload.{name}" for name in MAPPING]
    other_settings = {path: value for path, value in change.settings.items() if path not in mapping}
    if not other_settings:
        return change
    full_overrides = {full_path(path): value for path, value in overrides.items()}
    try:
        remapped = load_design(source, full_overrides | other_settings)
        metrics = evaluate(remapped)
    except SpecError:
        return change
    if not isinstance(metrics, Metrics) or metrics.step_s * MIN_SPEEDUP > change.step_s:
        return change
    moved = {
        path: value for path in mapping if (value := schema.get_field(remapped, path)) != schema.get_field(point, path)
    }
    settings = other_settings | {path: write_field(remapped, path, value) for path, value in moved.items()}
    if _without_build(apply_change(point, settings)) != _without_build(remapped):
        return change
    return replace(
        change,
        settings=settings,
        step_s=metrics.step_s,
        memory_bytes=metrics.memory_bytes,
        tokens_per_s=metrics.tokens_per_s,
        samples_per_s=metrics.samples_per_s,
    )


def _without_tiers(source: Source, settings: dict[str, Any], target: DesignPoint) -> dict[str, Any]:
    """Return *settings* without tiers of memory that a design takes from its node anyway."""
    shorter = {path: value for path, value in settings.items() if path != "memory.tiers"}
    if len(shorter) == len(settings):
        return settings
    try:
        return shorter if load_design(source, shorter) == target else settings
    except SpecError:  # state is placed in tiers that the node does not have
        return settings


def overrides_of_change(
    source: Source, overrides: Mapping[str, Any], point: DesignPoint, change: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Return the overrides with which *source* loads as *point* with a *change*; None if there are none.

    *point* is what it loads as with *overrides*; they stay in force, where the change is not about the same field.

    >>> point = load_design("llama3-8b@dgx-h100:8", {"tp": 8, "pp": 1})
    >>> found = overrides_of_change("llama3-8b@dgx-h100:8", {"tp": 8, "pp": 1}, point, {"workload.tp": 4, "workload.dp": 2})
    >>> load_design("llama3-8b@dgx-h100:8", found) == apply_change(point, {"workload.tp": 4, "workload.dp": 2})
    True
    """
    target = apply_change(point, change)
    full_overrides = {full_path(path): value for path, value in overrides.items()}
    outer_paths = {
        path: next((outer for outer in full_overrides if path.startswith(f"{outer}.")), path) for path in change
    }
    settings = full_overrides | {
        outer: write_field(target, outer, schema.get_field(target, outer)) for outer in outer_paths.values()
    }
    settings |= {path: change[path] for path, outer in outer_paths.items() if outer == path}
    set_paths = stated_fields(source, settings)
    settings |= {path: target.fields[path] for path in STATED_MESH if path not in set_paths}
    for turn in range(MAX_ROUNDS):
        try:
            loaded = load_design(source, settings)
        except SpecError:
            return None
        differing = _differing_settings(loaded, target)
        if not differing:
            return (
                _without_tiers(source, settings, loaded) if _without_build(loaded) == _without_build(target) else None
            )
        if any(path in settings or not path.startswith("workload.") for path in differing):
            return None
        if turn == MAX_ROUNDS - 2:  # each change of the rest moves something else: state all of the mapping
            differing += [f"workload.{name}" for name in MAPPING if f"workload.{name}" not in settings]
        settings |= {path: write_field(target, path, schema.get_field(target, path)) for path in differing}
    return None


def _differing_settings(loaded: DesignPoint, target: DesignPoint) -> list[str]:
    """Return the fields in which two designs differ; a list of the workload is one field.

    A design that is loaded with another bandwidth gets the ports and optics that its switch has at that.
    """
    loaded_fields, target_fields = _without_build(loaded).fields, _without_build(target).fields
    paths = [path for path in loaded_fields | target_fields if loaded_fields.get(path) != target_fields.get(path)]
    return list(
        dict.fromkeys(".".join(path.split(".")[:2]) if path.startswith("workload.") else path for path in paths)
    )


def _without_build(point: DesignPoint) -> DesignPoint:
    """Return a design that does not say how its network is built."""
    dims = tuple(replace(dim, fabric=Fabric()) for dim in point.network.dims)
    return replace(point, network=replace(point.network, dims=dims))


def apply_change(point: DesignPoint, change: Mapping[str, Any]) -> DesignPoint:
    """Return *point* with some fields changed to values as files write them."""
    slots = {path: schema.slot_at(point, path) for path in change}
    read = {path: schema.read_value(slot.hint, change[path], path, slot.dimension) for path, slot in slots.items()}
    changed: DesignPoint = schema.assign_fields(point, read)
    return changed


def explain_bound(point: DesignPoint, metrics: Metrics) -> str:
    """Return in words what bounds a design that achieves *metrics*; under a load, what bounds its decode steps.

    The answer is kept for other processes: metrics of a design that was evaluated before need none of its operators.
    """
    key = f"{point.identity} {metrics.breakdown} {_added_names()}"
    if content := read_cached("bounds", key):
        return content.decode()
    step = step_of(point)
    text = describe_bound(bounding_profile(batch_of(step)), metrics.breakdown)
    text = text if point.serving is None else text.replace("% of the step", "% of a decode step")
    keep_cached("bounds", key, text.encode())
    return text
