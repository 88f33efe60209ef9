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
from itertools import combinations, product
from math import gcd, inf, isfinite
from pathlib import Path
from typing import Any

from cosmic.base.arithmetic import divisors
from cosmic.base.caching import keep_cached, read_cached
from cosmic.base.errors import SpecError
from cosmic.design import schema
from cosmic.design.collective_layer import algorithms
from cosmic.design.design_batch import batch_of, batch_of_changes
from cosmic.design.design_point import DesignPoint, full_path
from cosmic.design.fabric import Fabric
from cosmic.design.loading import stated_fields
from cosmic.design.model_layer import Recommender, Transformer, context_parts, has_tokens, tensor_parts
from cosmic.design.workload_layer import schedules as workload_layer_schedules
from cosmic.evaluation import evaluate, evaluate_batch, step_of
from cosmic.search.advice.moves import Kind, Move, combine_changes, list_moves
from cosmic.search.mapping.design_completion import load_design
from cosmic.search.mapping.suggested_mapping import MAPPING
from cosmic.simulate.analytic_step import bounding_profile
from cosmic.simulate.metrics import Metrics
from cosmic.step.bottleneck import describe_bound
from cosmic.workload.mapping_rules import invalid_reasons
from cosmic.workload.mesh_sizes import pads_dimensions
from cosmic.workload.pipeline_cut import layers_of
from cosmic.workload.pipeline_schedule import schedules

# --------------------------------------------------------------------------------------
# The nearest valid mapping of a design whose mapping is not: every rule of `cosmic.workload.mapping_rules`, met in turn
# --------------------------------------------------------------------------------------

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
    found = {
        name: getattr(workload, name) for name in (*MESH_AXES, "ep", "etp", "global_batch", "micro_batch", "sequence")
    }
    found |= {name: getattr(workload, name) for name in ("virtual_stages", "schedule", "precision", "offload")}
    _mend_sample(point, found)
    _mend_mesh(point, found)
    _mend_experts(point, found)
    _mend_batch(found)
    _mend_schedule(point, found)
    if workload.precision in ("fp8", "fp4", "int4") and workload.task == "training":
        rate = getattr(point.compute, f"{workload.precision}_flop_per_s", None)
        found["precision"] = "bf16" if rate is None else workload.precision
    found["offload"] = workload.offload if point.memory.tiers else ()
    changes = {f"workload.{name}": value for name, value in found.items() if value != getattr(workload, name)}
    return changes if changes and not invalid_reasons(schema.assign_fields(point, changes)) else None


def _mend_deployment(point: DesignPoint) -> dict[str, Any] | None:
    """Return the same of a design that serves: mesh and experts as for a decode step, and dp of all that is left."""
    step = mend_mapping(step_of(point))
    if step is None:
        return None
    found = {path: value for path, value in step.items() if path.partition(".")[2] in (*MESH_AXES, "ep", "etp")}
    pool = point.serving.prefill if point.serving else None
    if pool is not None and pool.system is None and pool.replicas:
        mesh = {name: found.get(f"workload.{name}", getattr(point.workload, name)) for name in MESH_AXES}
        dp, rest = divmod(point.network.npus - pool.npus, mesh["tp"] * mesh["cp"] * mesh["pp"])
        if rest or dp < 1:
            return None
        found |= {"workload.dp": dp} if dp != point.workload.dp else {}
    return found


def _largest_divisor(number: int, most: int) -> int:
    """Return the largest divisor of *number* that is at most *most*."""
    return max((divisor for divisor in divisors(number) if divisor <= most), default=1)


def _mend_sample(point: DesignPoint, found: dict[str, Any]) -> None:
    """Give a sample the tokens that its model gives it."""
    model = point.model
    if isinstance(model, Recommender):
        found["sequence"] = 1
    elif isinstance(model, Transformer) and model.image is not None:
        found["sequence"] = model.image.tokens


def _mend_mesh(point: DesignPoint, found: dict[str, Any]) -> None:
    """Make a mesh of all accelerators that divides the model: axes as wide as before, or less; dp takes the rest."""
    model, npus = point.model, point.network.npus
    if isinstance(model, Recommender):
        found |= {"tp": 1, "cp": 1, "pp": 1, "dp": npus}
        return
    splits_tokens = point.workload.sequence_parallel and point.workload.task == "training"
    whole = gcd(tensor_parts(model, pads=pads_dimensions(point)), npus, found["sequence"] if splits_tokens else 0)
    found["tp"] = _largest_divisor(whole, found["tp"])
    left = npus // found["tp"]
    tokens = 0 if point.workload.task == "decode" else found["sequence"] // (found["tp"] if splits_tokens else 1)
    found["cp"] = _largest_divisor(gcd(left, tokens, context_parts(model, found["tp"])), found["cp"])
    left //= found["cp"]
    found["pp"] = _largest_divisor(left, min(found["pp"], layers_of(model)))
    found["dp"] = left // found["pp"]


def _mend_experts(point: DesignPoint, found: dict[str, Any]) -> None:
    """Spread experts over the ranks of a stage."""
    experts = point.model.experts if isinstance(point.model, Transformer) else None
    if experts is None:
        found |= {"ep": 1, "etp": None}
        return
    ranks = found["tp"] * found["cp"] * found["dp"]
    width = 0 if pads_dimensions(point) else experts.ffn
    if found["etp"] is not None and (found["tp"] % found["etp"] or width % found["etp"]):
        found["etp"] = _largest_divisor(gcd(found["tp"], width), found["etp"])
    found["ep"] = _largest_divisor(gcd(experts.count, ranks // (found["etp"] or 1)), found["ep"])
    etp = found["etp"] or gcd(found["tp"], ranks // found["ep"])
    if (etp * found["ep"]) % found["tp"] and point.workload.task != "training":
        found["etp"] = None


def _mend_batch(found: dict[str, Any]) -> None:
    """Give every replica as many whole microbatches: smaller ones, or a batch that is rounded up."""
    if found["global_batch"] % found["dp"]:
        whole = found["dp"] * found["micro_batch"]
        found["global_batch"] = -(-found["global_batch"] // whole) * whole
    found["micro_batch"] = _largest_divisor(found["global_batch"] // found["dp"], found["micro_batch"])


def _mend_schedule(point: DesignPoint, found: dict[str, Any]) -> None:
    """Leave stages undivided where they cannot be divided, and take a schedule that runs any number of microbatches."""
    model, workload = point.model, point.workload
    layers = layers_of(model)
    count = found["global_batch"] // (found["dp"] * found["micro_batch"])
    sizes = (found["pp"], count)
    if workload.task != "training" or found["pp"] * found["virtual_stages"] > layers + 2:
        found["virtual_stages"] = 1
    if workload.task == "training" and not schedules[found["schedule"]].runs(*sizes, found["virtual_stages"]):
        found["virtual_stages"] = 1
        if not schedules[found["schedule"]].runs(*sizes, 1):
            found["schedule"] = "1f1b"


# --------------------------------------------------------------------------------------
# Tries moves, alone and in pairs, and ranks what came of them
# --------------------------------------------------------------------------------------

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


def find_improvements(point: DesignPoint, base: Metrics, most: int = 2 * MOST) -> list[Change]:
    """Return the changes that make a design that achieves *base* faster: actions, then purchases, each best first.

    There are at most *most* of either kind.
    """
    rate = base.throughput_per_s
    known = list(list_moves(point))
    savers = [move for move in known if move.saves]
    singles = _try_together(point, [(move,) for move in known if not move.saves])
    least = FASTER * rate
    fast = [single for single in singles if single.excess == 0 and single.rate > least]
    actions = _best_of_levers(each for each in fast if each.kind == "action")
    pairs = _try_together(point, _promising_pairs(singles, savers, rate))
    fast_pairs = [pair for pair in pairs if pair.excess == 0]
    bought = _best_of_levers(
        [each for each in fast if each.kind == "purchase"]
        + [fast_pair for fast_pair in fast_pairs if fast_pair.kind == "purchase" and fast_pair.rate > least]
    )
    chosen = sorted([*_worth_a_line(fast_pairs, actions, rate), *actions[:MOST]], key=lambda each: -each.rate)
    kept = [*chosen[:most], *bought[: min(most, MOST_PURCHASES)]]
    return [_make_change(point, each, rate) for each in kept]


def _promising_pairs(singles: Sequence[_Trial], savers: Sequence[Move], rate: float) -> list[tuple[Move, ...]]:
    """Return the pairs that are worth trying."""
    actions = [single for single in singles if single.kind == "action"]
    fast = _best_of_levers(action for action in actions if action.excess == 0 and action.rate > FASTER * rate)
    tight = _best_of_levers(
        action for action in actions if 0 < action.excess < inf and action.rate > PAIR_FASTER * rate
    )
    neutral = _best_of_levers(action for action in actions if not action.is_switch and 0 <= action.excess < inf)
    numbers = [each.made[0] for each in neutral[:NUMBERS]]
    switches = [each.made[0] for each in fast if each.is_switch]
    switches = [move for condition in (False, True) for move in _filter_switches(switches, condition)]
    tight_numbers = [each.made[0] for each in tight if not each.is_switch][:NUMBERS]
    tight_switches = [each.made[0] for each in tight if each.is_switch][:2]
    relieving = [
        best_of_lever.made[0]
        for best_of_lever in _best_of_levers(
            action for action in actions if not action.is_switch and action.excess == 0
        )
    ]
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


def _filter_switches(switches: Sequence[Move], condition: bool) -> Sequence[Move]:
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
    actions = [pair for pair in pairs if pair.kind == "action"]
    found: list[_Trial] = []
    for condition, most in ((False, MOST_PAIRS - 1), (True, 1)):
        alone = max((single.rate for single in singles if condition or not single.condition), default=rate)
        best = _best_of_levers(
            action for action in actions if bool(action.condition) == condition and action.rate > PAIR_FASTER * alone
        )
        found += best[:most]
    return found


# ----------------------------------------------------------------------------------------------- repairing


def find_repairs(point: DesignPoint) -> list[Change]:
    """Return the changes that make a design run that cannot: actions, then purchases, each fastest first."""
    first = mend_mapping(point)
    if first is None:
        return []
    start: DesignPoint = schema.assign_fields(point, first)
    if first and evaluate_batch(batch_of(start)).feasible[0]:
        return [_make_change(point, _evaluate_moves(start, [((), {})])[0], None, first)]
    singles = _try_together(start, [(move,) for move in list_moves(start)])
    running = _best_of_levers(single for single in singles if single.excess == 0)
    if not any(each.kind == "action" for each in running):
        valid = sorted((single for single in singles if isfinite(single.excess)), key=lambda each: each.excess)
        near = [first_of_lever.made[0] for first_of_lever in _first_of_levers(valid) if first_of_lever.kind == "action"]
        switches = [move for move in near if move.is_switch][: 2 * SWITCHES]
        numbers = [move for move in near if not move.is_switch][: 2 * NUMBERS]
        pairs = [*combinations(numbers, 2), *product(switches, numbers), *combinations(switches, 2)]
        running += _best_of_levers(each for each in _try_together(start, pairs) if each.excess == 0)
    actions = sorted((each for each in running if each.kind == "action"), key=lambda each: bool(each.condition))
    bought = [each for each in running if each.kind == "purchase"]
    return [_make_change(point, each, None, first) for each in (*actions[:MOST], *bought[:MOST_PURCHASES])]


def _first_of_levers(trials: Iterable[_Trial]) -> list[_Trial]:
    """Return the first trial of each lever."""
    found: dict[tuple[str, ...], _Trial] = {}
    for trial in trials:
        found.setdefault(trial.levers, trial)
    return list(found.values())


# ------------------------------------------------------------------------------------------------- trying


def _try_together(point: DesignPoint, combined: Iterable[tuple[Move, ...]]) -> list[_Trial]:
    """Return what comes of moves that are made together, where they combine."""
    found: dict[str, tuple[tuple[Move, ...], dict[str, Any]]] = {}
    for made in combined:
        changes = combine_changes(point, made)
        if changes is not None:
            found.setdefault(repr(sorted(changes.items())), (made, changes))
    return _evaluate_moves(point, list(found.values()))


def _evaluate_moves(point: DesignPoint, tried: Sequence[tuple[tuple[Move, ...], dict[str, Any]]]) -> list[_Trial]:
    """Return what comes of moves, each with the fields that they change."""
    if not tried:
        return []
    outcome = evaluate_batch(batch_of_changes(point, [changes for _, changes in tried]))
    columns = [outcome.throughput_per_s, *(outcome.columns[name] for name in ("step_s", "memory_bytes"))]
    rates, steps, sizes = (column.tolist() for column in columns)
    rows = zip(tried, rates, outcome.excess.tolist(), steps, sizes, strict=True)
    return [_Trial(made, changes, rate, excess, step_s, size) for (made, changes), rate, excess, step_s, size in rows]


def _best_of_levers(trials: Iterable[_Trial]) -> list[_Trial]:
    """Return the best trial of each lever, or pair of levers, best first; of equal ones, that of fewest changes."""
    return _first_of_levers(sorted(trials, key=lambda each: (-each.rate, len(each.changes))))


def _make_change(
    point: DesignPoint, trial: _Trial, rate: float | None, before: Mapping[str, Any] | None = None
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
    about = (*rates, trial.step_s, trial.memory_bytes, trial.condition, max(1, len(trial.made)))
    return Change(trial.kind, settings, speedup, *about)


def write_field(point: DesignPoint, path: str, value: Any) -> Any:
    """Return the value of a field as files write it."""
    return schema.write_value(value, schema.slot_at(point, path).dimension)


# --------------------------------------------------------------------------------------
# What must be set so that a design loads as a changed one: the change, and what would otherwise be chosen anew
# --------------------------------------------------------------------------------------

STATED_MESH = ("workload.tp", "workload.cp", "workload.pp")
"""A mesh that is stated is kept; where it is not, one is looked for."""
ROUNDS = 4
Source = str | Path | Mapping[str, Any]
"""A design as `load_design` takes it."""
Advised = tuple[Change, dict[str, Any]]
"""A change, and everything to set for it."""


def advise(source: Source, overrides: Mapping[str, Any], point: DesignPoint, base: Metrics | None) -> list[Advised]:
    """Return what helps a design that achieves *base* most, or makes it run if that is None, with what to set for it.

    *point* is what *source* loads as with *overrides*. The answer is kept for other processes.
    """
    stated = sorted(stated_fields(source, overrides))
    key = f"{str(source)!r} {dict(overrides)} {stated} {point.identity} {base is None} {[*algorithms.added, *workload_layer_schedules.added]}"
    if content := read_cached("advice", key):
        with suppress(ValueError, TypeError):
            return [(Change(**change), settings) for change, settings in json.loads(content)]
    changes = find_repairs(point) if base is None else find_improvements(point, base)
    if base is None:
        changes = [_remap_change(source, overrides, point, change) for change in changes]
        changes.sort(key=lambda each: (each.kind == "purchase", bool(each.condition), each.step_s))
    found = [(change, overrides_of_change(source, overrides, point, change.settings)) for change in changes]
    known = [(change, settings) for change, settings in found if settings is not None]
    with suppress(TypeError):  # an override that is no JSON
        keep_cached("advice", key, json.dumps([(asdict(change), settings) for change, settings in known]).encode())
    return known


def _remap_change(source: Source, overrides: Mapping[str, Any], point: DesignPoint, change: Change) -> Change:
    """Return a change that makes a design run with the mapping that is looked for where none is stated, if faster.

    A design that cannot run has a mapping that nobody chose: what fits is better laid out anew.
    """
    mapping = [f"workload.{name}" for name in MAPPING]
    own = {path: value for path, value in change.settings.items() if path not in mapping}
    if not own:
        return change
    given = {full_path(path): value for path, value in overrides.items()}
    try:
        found = load_design(source, given | own)
        metrics = evaluate(found)
    except SpecError:
        return change
    if not isinstance(metrics, Metrics) or metrics.step_s * FASTER > change.step_s:
        return change
    moved = {
        path: value for path in mapping if (value := schema.get_field(found, path)) != schema.get_field(point, path)
    }
    settings = own | {path: write_field(found, path, value) for path, value in moved.items()}
    if _without_build(apply_change(point, settings)) != _without_build(found):
        return change
    return replace(
        change,
        settings=settings,
        step_s=metrics.step_s,
        memory_bytes=metrics.memory_bytes,
        tokens_per_s=metrics.tokens_per_s,
        samples_per_s=metrics.samples_per_s,
    )


def _without_tiers(source: Source, settings: dict[str, Any], found: DesignPoint) -> dict[str, Any]:
    """Return *settings* without tiers of memory that a design takes from its node anyway."""
    shorter = {path: value for path, value in settings.items() if path != "memory.tiers"}
    if len(shorter) == len(settings):
        return settings
    try:
        return shorter if load_design(source, shorter) == found else settings
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
    given = {full_path(path): value for path, value in overrides.items()}
    wholes = {path: _whole_path(path, given) for path in change}
    settings = given | {whole: write_field(target, whole, schema.get_field(target, whole)) for whole in wholes.values()}
    settings |= {path: change[path] for path, whole in wholes.items() if whole == path}
    stated = stated_fields(source, settings)
    settings |= {path: target.fields[path] for path in STATED_MESH if path not in stated}
    for turn in range(ROUNDS):
        try:
            found = load_design(source, settings)
        except SpecError:
            return None
        apart = _differing_settings(found, target)
        if not apart:
            return _without_tiers(source, settings, found) if _without_build(found) == _without_build(target) else None
        if any(path in settings or not path.startswith("workload.") for path in apart):
            return None
        if turn == ROUNDS - 2:  # each change of the rest moves something else: state all of the mapping
            apart += [f"workload.{name}" for name in MAPPING if f"workload.{name}" not in settings]
        settings |= {path: write_field(target, path, schema.get_field(target, path)) for path in apart}
    return None


def _differing_settings(found: DesignPoint, target: DesignPoint) -> list[str]:
    """Return the fields in which two designs differ; a list of the workload is one field.

    A design that is loaded with another bandwidth gets the ports and optics that its switch has at that.
    """
    one, other = _without_build(found).fields, _without_build(target).fields
    paths = [path for path in one | other if one.get(path) != other.get(path)]
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
    found: DesignPoint = schema.assign_fields(point, read)
    return found


def _whole_path(path: str, given: Mapping[str, Any]) -> str:
    """Return the path to set: a list or a layer around *path*, where that was given as a whole."""
    return next((each for each in given if path.startswith(f"{each}.")), path)


# --------------------------------------------------------------------------------------
# What bounds a design, and what would help it most: moves of an engineer first, then what could be bought
# --------------------------------------------------------------------------------------


def explain_bound(point: DesignPoint, metrics: Metrics) -> str:
    """Return in words what bounds a design that achieves *metrics*; under a load, what bounds its decode steps."""
    step = step_of(point)
    said = describe_bound(bounding_profile(batch_of(step)), metrics.breakdown)
    return said if point.serving is None else said.replace("% of the step", "% of a decode step")
