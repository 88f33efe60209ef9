"""Propagate the shardings of a few tensors to all, along the factors of operators.

As in Shardy (and GSPMD before it), the tensors of an operator should be split alike along each factor. So the longest
sequence of major axes on which they agree is given to every open tensor in which these axes are free. This runs over
the operators in both directions until nothing changes, in rounds: by user priority; within one, operators that pass
shardings on (all but einsums) before einsums; within these, undisputed axes before disputed ones. A dispute is won by
the larger tensor, whose resharding would cost more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from cosmic.errors import UnknownName
from cosmic.workload.graph import Graph, Operator, Sizes, Tensor
from cosmic.workload.sharding.annotation import REPLICATED, Annotation, Axes, Sharding, check_annotation
from cosmic.workload.sharding.factors import EINSUMS, Factors, factors_of


def propagate(
    graph: Graph,
    annotations: Mapping[str, Annotation],
    *,
    sizes: Sizes | None = None,
    crossings: Collection[str] = (),
) -> dict[str, Sharding]:
    """Return shardings for all tensors of *graph*, given annotations of some.

    *sizes* decide disputes between tensors: the larger one wins; without them, the one of more dimensions. Operators of
    the kinds *crossings* lead from one mesh to another, and pass nothing on.
    """
    tensors = graph.tensors
    for name, annotation in annotations.items():
        if name not in tensors:
            raise UnknownName.among("annotations", name, "tensor", tensors)
        check_annotation(name, tensors[name].dims, annotation)
    weights = {name: _weight(tensor, sizes) for name, tensor in tensors.items()}
    state = _State(weights, annotations, _needed_whole(graph))
    inside = [operator for operator in graph.operators if operator.kind not in crossings]
    passing = tuple(operator for operator in inside if operator.kind not in EINSUMS)
    mixing = tuple(operator for operator in inside if operator.kind in EINSUMS)
    for priority in sorted(_priorities(annotations)):
        state.admit(priority)
        for operators, then in ((passing, ()), (mixing, passing)):
            for state.decide in (False, True):
                _settle(operators, state, then)
    return {name: state.shardings.get(name, REPLICATED) for name in tensors}


def _weight(tensor: Tensor, sizes: Sizes | None) -> float:
    total: Any = 1.0
    for dim in tensor.dims:
        total = total * (sizes[dim] if sizes is not None else 1024)
    return float(total)


def _priorities(annotations: Mapping[str, Annotation]) -> set[int]:
    said = annotations.values()
    return {each.priority for each in said} | {rank for each in said for _, rank in each.later}


def _needed_whole(graph: Graph) -> frozenset[tuple[str, str]]:
    """Return the pairs of a tensor and a dimension that some operator needs whole."""
    return frozenset(
        (tensor.name, dim)
        for operator in graph.operators
        for tensor in operator.tensors
        for dim in tensor.dims
        if dim in operator.whole
    )


@dataclass
class _State:
    """The state of `propagate`."""

    weights: Mapping[str, float]
    annotations: Mapping[str, Annotation]
    whole: frozenset[tuple[str, str]]
    """Dimensions that are split only if nothing else claims the axis, because they will be gathered."""
    shardings: dict[str, Sharding] = field(default_factory=dict)
    inactive: frozenset[str] = frozenset()
    """Annotated tensors of a later priority: they neither propagate nor receive shardings."""
    decide: bool = False
    """Whether disputes are decided in this round, or left for the next."""

    def admit(self, priority: int) -> None:
        """Let the annotations of *priority* take effect."""
        for name, annotation in self.annotations.items():
            said = annotation.until(priority)
            grown = {dim: axes for dim, axes in self.shardings.get(name, REPLICATED).dims if dim in annotation.open}
            self.shardings[name] = Sharding.of(dict(said.dims) | grown, said.partial)
        self.inactive = frozenset(name for name, said in self.annotations.items() if said.first > priority)

    def sharding(self, tensor: Tensor) -> Sharding:
        """Return the sharding of *tensor* so far."""
        return self.shardings.get(tensor.name, REPLICATED)

    def is_open(self, tensor: Tensor, dim: str) -> bool:
        """Return whether *dim* of *tensor* may be split further."""
        if annotation := self.annotations.get(tensor.name):
            return tensor.name not in self.inactive and dim in annotation.open
        return self.decide or (tensor.name, dim) not in self.whole

    def is_free(self, tensor: Tensor, axis: str) -> bool:
        """Return whether *axis* is unused in *tensor*, also by annotations of a later priority."""
        annotation = self.annotations.get(tensor.name)
        return axis not in self.sharding(tensor).used and (annotation is None or axis not in annotation.sharding.used)


Operators = tuple[Operator, ...]


def _settle(operators: Operators, state: _State, then: Operators) -> None:
    """Visit *operators* back and forth until no sharding changes; operators of *then* pass each change on."""
    changed = True
    while changed:
        changed = False
        for operator in operators + operators[::-1]:
            if touched := _visit(operator, state):
                changed = True
                _pass_on(touched, then, state)


def _pass_on(touched: set[str], operators: Operators, state: _State) -> None:
    """Visit those of *operators* that have a *touched* tensor, until no sharding changes."""
    while touched:
        near = [operator for operator in operators if any(tensor.name in touched for tensor in operator.tensors)]
        touched = set().union(*(_visit(operator, state) for operator in near))


@dataclass(frozen=True, slots=True)
class _Claim:
    """The axes that an operator claims for one of its factors."""

    factor: str
    axes: Axes
    weight: float
    """The size of the tensor that has them."""


def _visit(operator: Operator, state: _State) -> set[str]:
    """Extend the shardings of one operator's tensors; return the names of those that changed."""
    factors = factors_of(operator)
    split = [factor for factor in factors.names if factor not in factors.whole]
    claims = sorted((_claim(operator, factors, factor, state) for factor in split), key=lambda claim: -claim.weight)
    return {
        tensor.name
        for tensor in dict.fromkeys(operator.tensors)
        if _extend(tensor, [offer for claim in claims if (offer := _offer(tensor, factors, claim, state))], state)
    }


def _extend(tensor: Tensor, offers: list[tuple[str, Axes]], state: _State) -> bool:
    """Split *tensor* as offered, where axes are free and, unless disputes are decided, offered only once."""
    claimed = Counter(axis for _, axes in offers for axis in axes)
    before = state.sharding(tensor)
    for dim, axes in offers:
        sharding = state.sharding(tensor)
        fit = takewhile(lambda axis: state.is_free(tensor, axis) and (state.decide or claimed[axis] == 1), axes)
        state.shardings[tensor.name] = sharding.split(dim, sharding.axes(dim) + tuple(fit))
    return state.sharding(tensor) != before


def _claim(operator: Operator, factors: Factors, factor: str, state: _State) -> _Claim:
    """Return the longest sequence of major axes on which the tensors of *operator* agree, or that wins a dispute."""
    split = [
        (axes, state.weights[tensor.name])
        for tensor in operator.tensors
        if tensor.name not in state.inactive and (axes := factors.axes(tensor, factor, state.sharding(tensor)))
    ]
    prefix: Axes = ()
    while following := [(axes[len(prefix)], weight) for axes, weight in split if len(axes) > len(prefix)]:
        if len({axis for axis, _ in following}) > 1 and not state.decide:
            break
        axis = max(following, key=lambda each: each[1])[0]
        prefix = (*prefix, axis)
        split = [(axes, weight) for axes, weight in split if axes[: len(prefix)] == prefix]
    return _Claim(factor, prefix, max((weight for _, weight in split), default=0.0))


def _offer(tensor: Tensor, factors: Factors, claim: _Claim, state: _State) -> tuple[str, Axes] | None:
    """Return the dimension of *tensor* that a claim splits further, and the axes."""
    sharding = state.sharding(tensor)
    dims = factors.dims(tensor, claim.factor)
    has = factors.axes(tensor, claim.factor, sharding)
    if not dims or claim.axes[: len(has)] != has:
        return None
    # A factor that is several dimensions of the tensor grows after the last one that is split.
    dim = next((dim for dim in reversed(dims) if sharding.axes(dim)), dims[0])
    return (dim, claim.axes[len(has) :]) if state.is_open(tensor, dim) else None
