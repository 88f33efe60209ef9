"""`cosmic.model.shard`: the annotations of a program's tensors that make its step shortest, or its memory smallest.

The answer says why each tensor is sharded as it is, in a sentence, and what to look at again.

What the planner of designs makes of annotations: each part of a program partitioned, and priced.

The search adds up tables; this goes through operators one by one, as the evaluation of a design does. Both must agree.

A strategy states how tensors are kept, not how operators are split: the planner splits operators as their tensors are
kept (mode ``as_written``). Where a design would be run in another way than was chosen, pairs of choices that lead there
are forbidden, and the search goes on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from math import prod
from typing import Any, Literal, get_args

import numpy as np

from cosmic.base.errors import SpecError, UnknownName, require
from cosmic.base.units import BYTES, read_quantity
from cosmic.design import catalog_entries
from cosmic.design.plain_data import parse_yaml
from cosmic.search.sharding.program_parts import (
    Choice,
    Part,
    ProgramParts,
    constrain_part,
    count_shared_once,
    is_catalog_model,
    load_sharded_design,
    model_parts,
    program_parts,
    resize_program,
    sharded_design,
    stores_sharded_weights,
)
from cosmic.search.sharding.sharding_costs import (
    EXPOSED,
    RELATIVE_TOLERANCE,
    ChosenStates,
    Costs,
    Fixed,
    choose_lightest,
    choose_within_memory,
    decode_choice,
    held_bytes,
    price_choices,
    split_backward,
    split_name,
    update_cost,
)
from cosmic.search.sharding.sharding_result import (
    MARK,
    Mesh,
    Prices,
    ReshardAtUse,
    Sent,
    Sharded,
    TensorSharding,
    local_part,
    primal_tensor,
    read_mesh,
    step_cost,
    system_prices,
    wire_prices,
)
from cosmic.workload.operator_graph import Graph, Operator, SizeTable, Tensor
from cosmic.workload.sharding.factor_assignment import EINSUMS, LINEAR, OFFSET, Assignment, Factors, factors_of
from cosmic.workload.sharding.graph_partition import Mode, Partitioned, partition, split_into_steps
from cosmic.workload.sharding.propagation import propagate
from cosmic.workload.sharding.resharding import wire_share
from cosmic.workload.sharding.tensor_sharding import Annotation, Sharding, group_size
from cosmic.workload.user_programs.program_graph import Program

# ---- The planner's own account of annotations: `cosmic.workload.sharding.graph_partition`, priced


@dataclass(frozen=True)
class PlannedPart:
    """One part of a program as the planner runs it."""

    part: Part
    partitioned: Partitioned
    compute: float
    update: float
    """What the optimizer costs."""
    collectives: tuple[Sent, ...]

    @property
    def exposed(self) -> float:
        """What the collectives cost that the next operator waits for."""
        return sum(collective.cost for collective in self.collectives if not collective.overlapped)

    @property
    def hidden(self) -> float:
        """What the collectives of weights and their gradients cost."""
        return sum(collective.cost for collective in self.collectives if collective.overlapped)


def plan_part(
    part: Part,
    shardings: Mapping[str, Sharding],
    prices: Prices,
    sizes: SizeTable,
    mode: Mode,
    graph: Graph | None = None,
) -> PlannedPart:
    """Return what the planner makes of the *shardings* of a part's tensors, all of its repetitions together.

    *graph* is that of the part with steps that only change a sharding, if there are any.
    """
    partitioned = split_into_steps(partition(graph or part.graph, shardings, sizes=sizes, mode=mode), part.handed)
    compute, fused = 0.0, set[str]()
    for partitioned_operator in partitioned.operators:
        operator = partitioned_operator.operator
        if operator.phase != "forward" or MARK in operator.name:
            continue
        product = operator.kind == "einsum"
        read = primal_tensor(operator.inputs[0].name) if operator.inputs else ""
        fuses = product and read in fused
        fused |= {read} if product else set()
        compute += part.repeats * prices.kernel(partitioned_operator, sizes, training=part.training, fuses=fuses)
    planned = partitioned.shardings
    update = sum(update_cost(part, weight, planned[weight.name], prices, sizes) for weight in part.forward.weights)
    return PlannedPart(part, partitioned, compute, update, tuple(_list_sent(part, partitioned, prices, sizes)))


def _list_sent(part: Part, partitioned: Partitioned, prices: Prices, sizes: SizeTable) -> list[Sent]:
    tensors = {tensor.name: tensor for operator in partitioned.operators for tensor in operator.operator.tensors}
    sent = []
    for collective in partitioned.collectives:
        tensor = tensors[collective.tensor]
        width = prices.width(tensor, part.weights)
        size = float(collective.elements(sizes, tensor.stored_dims)) * width
        calls = part.repeats * int(collective.steps(sizes))
        sent.append(
            Sent(
                part=part.name,
                kind=collective.kind,
                axes=collective.axes,
                tensor=collective.tensor.partition(MARK)[0],
                phase=collective.phase,
                calls=calls,
                bytes=size,
                wire_bytes=float(wire_share(collective.kind, collective.group(sizes))) * size,
                cost=calls * prices.collective(collective.kind, collective.axes, size),
                overlapped=part.is_of_weight(tensor),
                why=collective.why.replace(MARK, " "),
            )
        )
    return sent


# ---- Choices that a planner of designs makes too: it splits operators as their tensors are kept (mode ``as_written``)


def operators_split_otherwise(planned: PlannedPart, choice: Choice) -> list[Operator]:
    """Return the operators that the planner splits in another way than was chosen."""
    return [
        operator.operator
        for operator in planned.partitioned.operators
        if operator.operator.kind not in (*LINEAR, OFFSET)
        and _axis_sets(operator.dims) != _axis_sets(local_part(choice.splits[id(operator.operator)]).dims)
    ]


def _axis_sets(dims: Mapping[str, tuple[str, ...]]) -> set[tuple[str, frozenset[str]]]:
    return {(dim, frozenset(axes)) for dim, axes in dims.items() if axes}


def forbid_splits(costs: Costs, part: Part, operators: Sequence[Operator], price: float) -> None:
    """Charge *price* for pairs of a sharding and a split that the planner would not run so."""
    for operator in operators:
        owner = part.owner(operator)
        number = costs.numbers[split_name(part, owner)]
        states: list[Assignment] = [
            state if owner is operator else split_backward(operator, state)  # type: ignore[misc, arg-type]
            for state in costs.states[number]
        ]
        for tensor in dict.fromkeys(operator.tensors):
            tensor_variable = costs.numbers[part.variable(tensor.name)]
            is_output = tensor in operator.outputs
            violates = np.array(
                [
                    [_is_split_otherwise(tensor, state, split, is_output) for split in states]  # type: ignore[arg-type]
                    for state in costs.states[tensor_variable]
                ],
                dtype=np.float64,
            )
            costs.charge_pair(EXPOSED, tensor_variable, number, price * violates)


def _is_split_otherwise(tensor: Tensor, sharding: Sharding, split: Assignment, is_output: bool) -> bool:
    """Return whether an operator whose tensor is *sharding* so is not split so."""
    factors = factors_of(split.operator)
    chosen = {axis: factor for factor, axes in split.split.items() for axis in axes}
    factor_by_axis = {
        axis: factor_of_axis
        for dim, axes in sharding.dims
        for axis in axes
        if (factor_of_axis := _factor_of_dim(factors, dim))
    }
    for axis in {*chosen, *factor_by_axis}:
        factor, factor_of_axis = chosen.get(axis), factor_by_axis.get(axis)
        if factor is None:
            gathered = not is_output and factor_of_axis in factors.summed and split.operator.kind in EINSUMS
            if factor_of_axis is not None and not gathered:
                return True
        elif factors.sees(tensor, factor) and factor_of_axis != factor and (is_output or factor in factors.summed):
            return True
    return False


def _factor_of_dim(factors: Factors, dim: str) -> str | None:
    factor = factors.of.get(dim)
    return None if factor is None or factor in factors.whole else factor


# ---- What users fix: `w1: [x, _]` says that the axis x splits the first dimension of w1, and none the second

BARE_QUESTION_MARK = re.compile(r"(?<=[\[,\s])\?(?=\s*[,\]])")
"""A dimension of any axes, which YAML takes for the key of a mapping where it is not quoted."""

CLOSED, OPEN = "_", "?"
AnnotationSource = str | Iterable[str] | Mapping[str, Any]
"""Annotations: texts such as ``w1: [x, _]``, or a table of them."""


def read_annotations(source: AnnotationSource, program: ProgramParts, mesh: Mesh) -> Fixed:
    """Return the shardings that *source* fixes, for every tensor that a name or a pattern (``w_*``) matches.

    An entry is an axis, several axes major to minor (``x+y``, ``x y`` or a list), ``_`` for none, or ``?`` for whatever
    is best; ``x?`` may be split further. The gradient of an activation is annotated with it.
    """
    tables: list[Mapping[str, Any]] = []
    for item in [source] if isinstance(source, str | Mapping) else source:
        table = item if isinstance(item, Mapping) else _parse_annotations(item)
        tables.append(table)
    fixed: dict[str, tuple[Sharding, frozenset[str]]] = {}
    for table in tables:
        for name, entries in table.items():
            for key, tensor in _match_tensors(str(name), program):
                fixed[key] = read_entries(tensor, entries, mesh)
                if tensor.role == "activation" and not tensor.name.startswith("d_"):
                    block = key.rpartition("/")[0]
                    fixed.setdefault(f"{block}/d_{tensor.name}", fixed[key])
    return fixed


def _parse_annotations(text: str) -> Mapping[str, Any]:
    table = parse_yaml(BARE_QUESTION_MARK.sub("'?'", text), "--annotate")
    if not isinstance(table, Mapping):
        raise SpecError("annotate", text, "write TENSOR: [AXIS, _], an entry for each dimension")
    return table


def _match_tensors(pattern: str, program: ProgramParts) -> list[tuple[str, Tensor]]:
    """Return the tensors that a pattern names, by the names of their parts and their own; at least one."""
    tensors = {
        f"{part.name}/{tensor.name}": tensor for part in program.parts for tensor in part.forward.tensors.values()
    }
    matches = [
        (key, tensor)
        for key, tensor in tensors.items()
        if fnmatchcase(tensor.name, pattern) or fnmatchcase(key, pattern)
    ]
    if not matches:
        names = list(dict.fromkeys(tensor.name for tensor in tensors.values()))
        raise UnknownName.among("annotate", pattern, "tensor", names)
    return matches


def read_entries(tensor: Tensor, entries: Any, mesh: Mesh) -> tuple[Sharding, frozenset[str]]:
    """Return the sharding that a list of entries describes, and the dimensions that it leaves open."""
    where = f"annotate.{tensor.name}"
    dims = tensor.dims
    rule = f"must have an entry for each of its dimensions: {', '.join(dims)}"
    if isinstance(entries, Mapping):
        unknown = [str(dim) for dim in entries if dim not in dims]
        if unknown:
            raise UnknownName.among(where, unknown[0], "dimension", dims)
        entries = [entries.get(dim, CLOSED) for dim in dims]
    if not isinstance(entries, list | tuple) or len(entries) != len(dims):
        raise SpecError(where, entries, rule)
    split: dict[str, tuple[str, ...]] = {}
    open_: set[str] = set()
    for dim, entry in zip(dims, entries, strict=True):
        axes = entry if isinstance(entry, list | tuple) else (CLOSED if entry is None else entry,)
        words = [word for axis in axes for word in str(axis).replace("+", " ").split()]
        if any(word.endswith(OPEN) for word in words):
            open_.add(dim)
            words = [word.removesuffix(OPEN) for word in words]
        words = [word for word in words if word not in (CLOSED, "")]
        for word in words:
            if not mesh.axes_named(word):
                raise UnknownName.among(where, word, "mesh axis", mesh.sizes)
        split[dim] = tuple(axis for word in words for axis in mesh.axes_named(word) if mesh.sizes[axis] > 1)
    used = [axis for axes in split.values() for axis in axes]
    require(len(used) == len(set(used)), where, str(entries), "names an axis twice")
    return Sharding.of(split), frozenset(open_)


def part_annotations(fixed: Fixed, part: str) -> dict[str, Annotation]:
    """Return the annotations of one part as propagation takes them."""
    of_part = {key.rpartition("/")[2]: value for key, value in fixed.items() if key.rpartition("/")[0] in ("", part)}
    return {name: Annotation(sharding, tuple(sorted(open_))) for name, (sharding, open_) in of_part.items()}


def check_sizes(fixed: Fixed, program: ProgramParts, mesh: Mesh) -> None:
    """Raise a `SpecError` if an annotation leaves devices without a part of a dimension."""
    for key, (sharding, _) in fixed.items():
        for dim, axes in sharding.dims:
            pieces = prod(mesh.sizes[axis] for axis in axes)
            size = int(program.sizes[dim])
            require(
                pieces <= size,
                f"annotate.{key.rpartition('/')[2]}",
                f"{dim}: {'+'.join(axes)}",
                f"splits {size} into {pieces}: devices would be left without a part",
            )


# ---- Why each tensor is sharded as it is, in a sentence, and what to look at again

COLLECTIVE_WORDS = {
    "all_gather": "all-gather",
    "reduce_scatter": "reduce-scatter",
    "all_reduce": "all-reduce",
    "all_to_all": "all-to-all",
    "collective_permute": "collective-permute",
}
"""Collectives as people write them."""


def explain_shardings(
    parts: ProgramParts,
    shardings: Mapping[str, Mapping[str, Sharding]],
    fixed: Fixed,
    collectives: Sequence[Sent],
) -> tuple[TensorSharding, ...]:
    """Return the shardings of all tensors, each with the collectives that it costs, or what makes it need none."""
    annotations = []
    for part in parts.parts:
        for tensor in part.graph.tensors.values():
            sharding = shardings[part.name][tensor.name]
            is_fixed = f"{part.name}/{tensor.name}" in fixed
            tensor_collectives = [
                collective
                for collective in collectives
                if collective.part == part.name and collective.tensor == tensor.name
            ]
            if tensor.role == "weight":
                tensor_collectives += [
                    collective
                    for collective in collectives
                    if collective.part == part.name and collective.tensor == f"d_{tensor.name}"
                ]
            reason = _explain_tensor(part, tensor, shardings[part.name], tensor_collectives)
            annotations.append(
                TensorSharding(part.name, tensor.name, tensor.role, tensor.dims, sharding, is_fixed, reason)
            )
    return tuple(annotations)


def _explain_tensor(part: Part, tensor: Tensor, shardings: Mapping[str, Sharding], collectives: Sequence[Sent]) -> str:
    if collectives:
        sentences = dict.fromkeys(
            f"{COLLECTIVE_WORDS[collective.kind]} over {' '.join(collective.axes)} in the {collective.phase} pass, {format_bytes(collective.bytes)}"
            for collective in collectives
        )
        return "costs " + "; ".join(sentences)
    followed = _tensor_followed(part, tensor, shardings)
    return f"no collective: as {followed}" if followed else "no collective"


def _tensor_followed(part: Part, tensor: Tensor, shardings: Mapping[str, Sharding]) -> str | None:
    """Return a tensor of an operator beside it that is split over the same axes along a dimension of both."""
    sharding = shardings[tensor.name]
    for operator in part.graph.operators:
        names = {other.name: other for other in operator.tensors}
        if tensor.name not in names or not sharding.dims:
            continue
        for name in names:
            if name != tensor.name and any(shardings[name].axes(dim) == axes for dim, axes in sharding.dims):
                return name
    return None


def format_bytes(value: float) -> str:
    """Return bytes as people write them.

    >>> format_bytes(134217728), format_bytes(512)
    ('134 MB', '512 B')
    """
    for size, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g} B"


def list_compiler_warnings(planned: Sequence[PlannedPart], sizes_of: Callable[[Part], SizeTable]) -> tuple[str, ...]:
    """Return what XLA would warn of: tensors that are made whole on every device only to be split another way.

    Also dimensions that do not divide: devices compute on padding.
    """
    warnings: dict[str, None] = {}
    for planned_part in planned:
        sizes = sizes_of(planned_part.part)
        for operator in planned_part.partitioned.operators:
            for transfer in (*operator.inputs, *operator.outputs):
                gathered = [step for step in transfer.steps if step.kind == "all_gather" and not step.after.dims]
                sliced = [step for step in transfer.steps if step.kind == "slice"]
                if gathered and sliced and transfer.steps.index(gathered[0]) < transfer.steps.index(sliced[-1]):
                    warnings[
                        f"{planned_part.part.name}: involuntary full rematerialisation of {transfer.tensor.name} "
                        f"at {operator.operator.name}, from [{transfer.source}] to [{transfer.target}]"
                    ] = None
        for name, sharding in planned_part.partitioned.shardings.items():
            for dim, axes in sharding.dims:
                devices = float(group_size(axes, sizes))
                if sizes[dim] % devices:
                    waste = -(-sizes[dim] // devices) * devices / sizes[dim] - 1
                    warnings[
                        f"{planned_part.part.name}: {dim} = {sizes[dim]:.10g} of {name} does not divide by {devices:.10g} "
                        f"({'+'.join(axes)}): {100 * waste:.2g} % padding"
                    ] = None
    return tuple(warnings)


Objective = Literal["step", "bytes", "memory"]
SearchMode = Literal["best", "as_compiled"]
GENERIC_MODEL = "gpt2"
"""Whose design stands for the machine of a program that is no model: nothing of the model is priced."""
MAX_ATTEMPTS = 8
"""How often a design may run something else than was chosen."""
PENALTY_STEPS = 100.0
"""What such choices cost from then on, in steps."""
PLANNER_MODES: tuple[Mode, ...] = ("as_written", "best")
"""How the planner may run what was found: operators where their tensors are, or where fewest bytes are sent."""


def shard(  # noqa: PLR0913  one option each
    program: Program | ProgramParts | str,
    mesh: str | Mapping[str, int] | Mesh,
    *,
    annotate: AnnotationSource = (),
    system: str | None = None,
    memory: str | float | None = None,
    objective: Objective = "step",
    mode: SearchMode = "best",
    training: bool = True,
    batch: int | None = None,
    sequence: int | None = None,
    free: bool = False,
    settings: Mapping[str, Any] | None = None,
) -> Sharded:
    """Return the best sharding of every tensor of *program* over *mesh*, with a bound and the planner's account of it.

    *program* is a `Program`, or a model of the catalog; a step has *batch* sequences of *sequence* tokens. *annotate*
    fixes some tensors (``w_q: [_, tp, _]``), beside the program's own annotations unless these are to be *free*; all
    others are chosen. On a *system* of the catalog, costs are seconds of kernels and collectives, otherwise bytes on
    the wire, among shardings in which no two devices do the same matrix product; ``bytes`` allows that too. *memory* is
    a limit for each device.
    ``as_compiled`` searches nothing: annotations are propagated and partitioned by the rules of XLA.

    >>> found = shard("gpt3-125m", {"dp": 4, "tp": 2}, batch=8)
    >>> found.gap < 1e-6, str(found.sharding("w_q"))
    (True, 'replicated')
    """
    for where, value, allowed in (("objective", objective, get_args(Objective)), ("mode", mode, get_args(SearchMode))):
        if value not in allowed:
            raise UnknownName.among(where, value, where, allowed)
    device_mesh = mesh if isinstance(mesh, Mesh) else read_mesh(mesh)
    design, parts, prices = _load_program(
        program, device_mesh, system, objective, training, batch, sequence, dict(settings or {})
    )
    clash = [axis for axis in device_mesh.sizes if axis in parts.sizes and axis not in ("dp", "cp", "tp")]
    require(not clash, "mesh", str(device_mesh), f"{', '.join(clash)} is the name of a dimension too")
    parts = ProgramParts(
        parts.name, count_shared_once(parts.parts), {**parts.sizes, **device_mesh.sizes}, parts.element_bytes
    )
    program_annotations = (
        {} if free or not isinstance(program, Program) else {k: list(v) for k, v in program.annotations.items()}
    )
    fixed = {
        **read_annotations(program_annotations, parts, device_mesh),
        **read_annotations(annotate, parts, device_mesh),
    }
    check_sizes(fixed, parts, device_mesh)
    limit = None if memory is None else _read_memory_limit(memory)
    job = _ShardingProblem(parts, device_mesh, prices, fixed, objective, limit, design)
    if mode == "as_compiled":
        return job.propagate()
    result = job.search()
    if design and training and stores_sharded_weights(result):
        # Kernels do not accumulate gradients that are reduced and dropped: the design that runs this is another one.
        stored_design = {**design, "workload": {**design["workload"], "weight_sharding": "zero3"}}
        stored_result = _ShardingProblem(
            parts,
            device_mesh,
            system_prices(device_mesh, {}, load_sharded_design(stored_design)),
            fixed,
            objective,
            limit,
            stored_design,
        ).search()
        result = stored_result if stores_sharded_weights(stored_result) else result
    return result


def _load_program(
    program: Program | ProgramParts | str,
    mesh: Mesh,
    system: str | None,
    objective: str,
    training: bool,
    batch: int | None,
    sequence: int | None,
    settings: dict[str, Any],
) -> tuple[dict[str, Any], ProgramParts, Prices]:
    """Return the design where *program* is a model, the parts, and the prices."""
    model = program if isinstance(program, str) else None
    if model is not None and not is_catalog_model(model):
        raise UnknownName.among("program", model, "model", catalog_entries.entry_names("models"))
    if isinstance(program, Program):
        program = resize_program(program, batch=batch, sequence=sequence)
    if model is None:
        batch = sequence = None
    design = sharded_design(model or GENERIC_MODEL, system, mesh, batch=batch, sequence=sequence, settings=settings)
    design["workload"]["task"] = "training" if training else "prefill"
    if model is None:
        design["workload"] |= {"global_batch": design["workload"]["dp"], "micro_batch": 1}
    point = load_sharded_design(design) if model is not None or system is not None else None
    if model is not None and point is not None:
        parts = model_parts(model, point, training=training)
    elif isinstance(program, ProgramParts):
        parts = program
    else:
        assert isinstance(program, Program)  # noqa: S101  a text was handled above
        parts = program_parts(program, training=training)
    if system is not None and point is not None:
        return design if model else {}, parts, system_prices(mesh, parts.element_bytes, point)
    prices = wire_prices(mesh, parts.element_bytes, training=training, parallel=objective == "step")
    return {}, parts, prices


class _ShardingProblem:
    """One question, with all that its answer needs."""

    def __init__(
        self,
        parts: ProgramParts,
        mesh: Mesh,
        prices: Prices,
        fixed: Fixed,
        objective: Objective,
        limit: float | None,
        design: dict[str, Any],
    ) -> None:
        self.parts, self.mesh, self.prices, self.fixed = parts, mesh, prices, fixed
        self.objective, self.limit, self.design = objective, limit, design

    def search(self) -> Sharded:
        """Search the shardings, and let the planner price the best."""
        costs = price_choices(self.parts, self.prices, self.fixed)
        chosen = (
            choose_lightest(costs, self.limit)
            if self.objective == "memory"
            else choose_within_memory(costs, self.prices.overlap, self.limit)
        )
        if self.design:
            return self.search_for_design(costs, chosen)
        choices = {part.name: decode_choice(part, costs, chosen.states) for part in self.parts.parts}
        shardings = {name: choice.kept for name, choice in choices.items()}
        best = min((self.plan(shardings, mode) for mode in PLANNER_MODES), key=self.weight)
        uses: list[ReshardAtUse] = []
        if self.weight(best) > self.searched_weight(chosen) * (1 + RELATIVE_TOLERANCE):
            spelled, spelled_uses = self.plan_constrained(choices)
            if self.weight(spelled) < self.weight(best) * (1 - RELATIVE_TOLERANCE):
                best, uses = spelled, spelled_uses
        return self.result(best, shardings, chosen, "best", tuple(uses))

    def search_for_design(self, costs: Costs, first: ChosenStates) -> Sharded:
        """Return the best choice that a design runs as it was chosen: strategies cannot say how operators are split."""
        chosen, price = first, PENALTY_STEPS * max(first.value, RELATIVE_TOLERANCE)
        best_plan: tuple[list[PlannedPart], dict[str, Choice], ChosenStates] | None = None
        forbidden: set[tuple[str, int]] = set()
        for _ in range(MAX_ATTEMPTS):
            choices = {part.name: decode_choice(part, costs, chosen.states) for part in self.parts.parts}
            account = self.plan({name: choice.kept for name, choice in choices.items()}, "as_written")
            if best_plan is None or self.weight(account) < self.weight(best_plan[0]) * (1 - RELATIVE_TOLERANCE):
                best_plan = account, choices, chosen
            different = [
                (planned.part, operators_split_otherwise(planned, choices[planned.part.name])) for planned in account
            ]
            names = {(part.name, id(operator)) for part, operators in different for operator in operators}
            if self.objective == "memory" or names <= forbidden:
                break  # it runs as chosen, or what was forbidden could not be avoided
            forbidden |= names
            for part, operators in different:
                forbid_splits(costs, part, operators, price)
            chosen = choose_within_memory(costs, self.prices.overlap, self.limit)
        assert best_plan is not None  # noqa: S101  there is at least one try
        best, choices, chosen = best_plan
        shardings = {name: choice.kept for name, choice in choices.items()}
        return self.result(best, shardings, replace(chosen, bound=first.bound, exact=first.exact), "best")

    def propagate(self) -> Sharded:
        """Propagate the annotations and partition as XLA does."""
        shardings, planned = {}, []
        for part in self.parts.parts:
            sizes = self.sizes(part)
            annotations = part_annotations(self.fixed, part.name)
            own_annotations = {
                name: annotation for name, annotation in annotations.items() if name in part.graph.tensors
            }
            shardings[part.name] = propagate(part.graph, own_annotations, sizes=sizes)
            planned.append(plan_part(part, shardings[part.name], self.prices, sizes, "as_compiled"))
        memory = sum(
            held_bytes(part, tensor, shardings[part.name][tensor.name], self.prices, self.sizes(part))
            for part in self.parts.parts
            for tensor in part.graph.tensors.values()
        )
        fits = self.limit is None or memory <= self.limit
        chosen = ChosenStates([], self.step(planned), memory, 0.0, fits, exact=False)
        return self.result(planned, shardings, chosen, "as_compiled")

    def sizes(self, part: Part) -> SizeTable:
        """Return all sizes that a part needs."""
        return SizeTable({**self.parts.sizes, **part.extra})

    def plan(self, shardings: Mapping[str, Mapping[str, Sharding]], mode: Mode) -> list[PlannedPart]:
        """Return the planner's account of all parts."""
        return [plan_part(part, shardings[part.name], self.prices, self.sizes(part), mode) for part in self.parts.parts]

    def plan_constrained(self, choices: Mapping[str, Choice]) -> tuple[list[PlannedPart], list[ReshardAtUse]]:
        """Return the planner's account of a program whose every split is spelled out, and what was added for it."""
        planned, uses = [], []
        for part in self.parts.parts:
            graph, shardings, steps = constrain_part(part, choices[part.name])
            planned.append(plan_part(part, shardings, self.prices, self.sizes(part), "as_written", graph))
            uses += [ReshardAtUse(part.name, *step) for step in steps]
        return planned, uses

    def weight(self, planned: Sequence[PlannedPart]) -> float:
        """Return what is made small: the step, and work that devices do alike."""
        return self.step(planned) + self.repeated_work(planned)

    def searched_weight(self, chosen: ChosenStates) -> float:
        """Return the same as the search added it up."""
        return chosen.value if self.objective != "memory" else 0.0

    def repeated_work(self, planned: Sequence[PlannedPart]) -> float:
        """Return what work that devices do alike weighs, where costs are bytes."""
        return sum(part.compute for part in planned) if self.prices.unit == "bytes" else 0.0

    def step(self, planned: Sequence[PlannedPart]) -> float:
        """Return the time of a step, or the bytes that it sends."""
        compute = 0.0 if self.prices.unit == "bytes" else sum(part.compute + part.update for part in planned)
        exposed, hidden = sum(part.exposed for part in planned), sum(part.hidden for part in planned)
        return step_cost(compute, exposed, hidden, self.prices.overlap)

    def result(
        self,
        planned: Sequence[PlannedPart],
        shardings: Mapping[str, Mapping[str, Sharding]],
        chosen: ChosenStates,
        mode: str,
        uses: tuple[ReshardAtUse, ...] = (),
    ) -> Sharded:
        """Return all of it as one value."""
        sent = tuple(collective for account in planned for collective in account.collectives)
        bytes_ = self.prices.unit == "bytes"
        step = self.step(planned)
        memory = chosen.memory_bytes
        value = memory if self.objective == "memory" else step
        repeated = self.repeated_work(planned)  # what the bound counts beside bytes
        bound = chosen.bound if self.objective == "memory" else max(0.0, chosen.bound - repeated)
        bound = min(bound, value)
        searched = chosen.value if self.objective == "memory" else chosen.value - repeated
        return Sharded(
            program=self.parts.name,
            mesh=self.mesh,
            objective=self.objective,
            mode=mode,
            unit=self.prices.unit,
            value=value,
            searched_value=searched if mode == "best" else value,
            bound=bound,
            exact=chosen.exact,
            fits=chosen.fits,
            limit_bytes=self.limit,
            memory_bytes=memory,
            compute=0.0 if bytes_ else sum(part.compute for part in planned),
            update=sum(part.update for part in planned),
            exposed=sum(part.exposed for part in planned),
            hidden=sum(part.hidden for part in planned),
            overlap=self.prices.overlap,
            operators=self.parts.operators,
            annotations=explain_shardings(self.parts, shardings, self.fixed, sent),
            collectives=sent,
            uses=uses,
            warnings=list_compiler_warnings(planned, self.sizes),
            design=self.design,
        )


def _read_memory_limit(memory: str | float) -> float:
    """Return a limit on memory in bytes."""
    try:
        limit_bytes = read_quantity(memory, BYTES) if isinstance(memory, str) else float(memory)
    except SpecError as error:
        raise SpecError("memory", memory, error.rule) from None
    require(limit_bytes > 0, "memory", memory, "must be positive")
    return limit_bytes
