"""From the shardings of a few tensors to those of all: propagation along the factors of operators.

As in Shardy (and GSPMD before it): along each factor of an operator its tensors should be split alike, so the
longest sequence of major axes on which they agree is given to every tensor that is open and in which the axes
are still free. This runs over the operators in both directions until nothing changes, and in rounds: user
priorities first; within them operators that pass shardings on (everything but einsums) before those that mix
them; within these what nobody contests before what has to be decided. A contest is won by the larger tensor,
whose resharding would cost more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from cosmic.errors import UnknownName
from cosmic.workload.graph import Graph, Operator, Sizes, Tensor
from cosmic.workload.sharding.annotation import REPLICATED, Annotation, Axes, Sharding, check_annotation
from cosmic.workload.sharding.factors import PRODUCTS, Factors, factors_of


@dataclass(frozen=True, slots=True)
class Conflict:
    """A tensor that is not split as the other tensors of an operator are: some collective will have to mend it."""

    operator: str
    tensor: str
    dim: str
    has: Axes
    wanted: Axes
    by: str
    """The tensor that is split as *wanted*."""
    why: str

    def __str__(self) -> str:
        wanted, has = " ".join(self.wanted) or "no axis", " ".join(self.has) or "no axis"
        return f"{self.dim} of {self.tensor}: {has}, not {wanted} as in {self.by} ({self.operator}): {self.why}"


@dataclass(frozen=True, slots=True)
class Propagation:
    """The sharding of every tensor of a graph."""

    shardings: Mapping[str, Sharding]
    conflicts: tuple[Conflict, ...]

    def __getitem__(self, tensor: str) -> Sharding:
        return self.shardings[tensor]


def propagate(graph: Graph, annotations: Mapping[str, Annotation], *, sizes: Sizes | None = None) -> Propagation:
    """Return shardings for all tensors of *graph*, given those of some.

    *sizes* decide contests between tensors: the larger one wins; without them, that of more dimensions.
    """
    tensors = graph.tensors
    for name, annotation in annotations.items():
        if name not in tensors:
            raise UnknownName.among("annotations", name, "tensor", tensors)
        check_annotation(name, tensors[name].dims, annotation)
    weights = {name: _weight(tensor, sizes) for name, tensor in tensors.items()}
    state = _State(weights, annotations, _needed_whole(graph))
    passing = tuple(operator for operator in graph.operators if operator.kind not in PRODUCTS)
    mixing = tuple(operator for operator in graph.operators if operator.kind in PRODUCTS)
    for priority in sorted(_priorities(annotations)):
        state.admit(priority)
        for operators, then in ((passing, ()), (mixing, passing)):
            for state.decide in (False, True):
                _settle(operators, state, then)
    shardings = {name: state.shardings.get(name, REPLICATED) for name in tensors}
    return Propagation(shardings, tuple(_conflicts(graph, shardings, annotations)))


def _weight(tensor: Tensor, sizes: Sizes | None) -> float:
    total: Any = 1.0
    for dim in tensor.dims:
        total = total * (sizes[dim] if sizes is not None else 1024)
    return float(total)


def _priorities(annotations: Mapping[str, Annotation]) -> set[int]:
    said = annotations.values()
    return {each.priority for each in said} | {rank for each in said for _, rank in each.later}


def _needed_whole(graph: Graph) -> frozenset[tuple[str, str]]:
    """Return tensors with those of their dimensions that an operator needs whole."""
    return frozenset(
        (tensor.name, dim)
        for operator in graph.operators
        for tensor in operator.tensors
        for dim in tensor.dims
        if dim in operator.whole
    )


@dataclass
class _State:
    """What is known so far; lives only while `propagate` runs."""

    weights: Mapping[str, float]
    annotations: Mapping[str, Annotation]
    whole: frozenset[tuple[str, str]]
    """Dimensions that are split only if nothing else claims the axis, as they will be gathered."""
    shardings: dict[str, Sharding] = field(default_factory=dict)
    hidden: frozenset[str] = frozenset()
    """Annotated tensors of which nothing is known yet: they neither give nor take."""
    decide: bool = False
    """Whether contests are decided in this round, or left for the next."""

    def admit(self, priority: int) -> None:
        """Let what is said at *priority* take effect."""
        for name, annotation in self.annotations.items():
            said = annotation.until(priority)
            grown = {dim: axes for dim, axes in self.shardings.get(name, REPLICATED).dims if dim in annotation.open}
            self.shardings[name] = Sharding.of(dict(said.dims) | grown, said.partial)
        self.hidden = frozenset(name for name, said in self.annotations.items() if said.first > priority)

    def sharding(self, tensor: Tensor) -> Sharding:
        """Return how *tensor* is split so far."""
        return self.shardings.get(tensor.name, REPLICATED)

    def is_open(self, tensor: Tensor, dim: str) -> bool:
        """Return whether *dim* of *tensor* may be split further."""
        if annotation := self.annotations.get(tensor.name):
            return tensor.name not in self.hidden and dim in annotation.open
        return self.decide or (tensor.name, dim) not in self.whole

    def is_free(self, tensor: Tensor, axis: str) -> bool:
        """Return whether *axis* is used for nothing in *tensor*, neither now nor by what will be said later."""
        annotation = self.annotations.get(tensor.name)
        return axis not in self.sharding(tensor).used and (annotation is None or axis not in annotation.sharding.used)


Operators = tuple[Operator, ...]


def _settle(operators: Operators, state: _State, then: Operators) -> None:
    """Visit *operators* back and forth until no sharding changes any more; what one changes, *then* passes on."""
    changed = True
    while changed:
        changed = False
        for operator in operators + operators[::-1]:
            if touched := _visit(operator, state):
                changed = True
                _pass_on(touched, then, state)


def _pass_on(touched: set[str], operators: Operators, state: _State) -> None:
    """Visit those of *operators* that have a tensor whose sharding changed, until none changes any more."""
    while touched:
        near = [operator for operator in operators if any(tensor.name in touched for tensor in operator.tensors)]
        touched = set().union(*(_visit(operator, state) for operator in near))


@dataclass(frozen=True, slots=True)
class _Claim:
    """The axes that an operator would have one of its factors split over."""

    factor: str
    axes: Axes
    weight: float
    """How large the tensor is that brings them."""


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
    """Split *tensor* as offered, as far as axes are free and, unless contests are decided, offered once only."""
    claimed = Counter(axis for _, axes in offers for axis in axes)
    before = state.sharding(tensor)
    for dim, axes in offers:
        sharding = state.sharding(tensor)
        fit = takewhile(lambda axis: state.is_free(tensor, axis) and (state.decide or claimed[axis] == 1), axes)
        state.shardings[tensor.name] = sharding.split(dim, sharding.axes(dim) + tuple(fit))
    return state.sharding(tensor) != before


def _claim(operator: Operator, factors: Factors, factor: str, state: _State) -> _Claim:
    """Return the longest sequence of major axes that the tensors of *operator* agree on, or that is decided on."""
    split = [
        (axes, state.weights[tensor.name])
        for tensor in operator.tensors
        if tensor.name not in state.hidden and (axes := factors.axes(tensor, factor, state.sharding(tensor)))
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
    """Return the dimension of *tensor* that a claim would split further, and over which axes."""
    sharding = state.sharding(tensor)
    dims = factors.dims(tensor, claim.factor)
    has = factors.axes(tensor, claim.factor, sharding)
    if not dims or claim.axes[: len(has)] != has:
        return None
    # A factor that the tensor sees as several dimensions grows at the end of what is split already.
    dim = next((dim for dim in reversed(dims) if sharding.axes(dim)), dims[0])
    return (dim, claim.axes[len(has) :]) if state.is_open(tensor, dim) else None


# --------------------------------------------------------------------------------------------- conflicts


def _conflicts(
    graph: Graph, shardings: Mapping[str, Sharding], annotations: Mapping[str, Annotation]
) -> Iterator[Conflict]:
    """Yield where the tensors of an operator do not agree on a factor, seen from the tensor that is split less."""
    for operator in graph.operators:
        factors = factors_of(operator)
        for factor in factors.names:
            seen = [
                (tensor, factors.axes(tensor, factor, shardings[tensor.name]))
                for tensor in dict.fromkeys(operator.tensors)
                if factors.sees(tensor, factor)
            ]
            by, wanted = max(seen, key=lambda each: len(each[1]))
            for tensor, has in seen:
                if has != wanted:
                    dim = factors.dims(tensor, factor)[0]
                    why = _reason(tensor.name, dim, wanted[len(has) :], shardings, annotations)
                    yield Conflict(operator.name, tensor.name, dim, has, wanted, by.name, why)


def _reason(
    tensor: str,
    dim: str,
    missing: Axes,
    shardings: Mapping[str, Sharding],
    annotations: Mapping[str, Annotation],
) -> str:
    sharding = shardings[tensor]
    for axis in missing:
        if other := sharding.holds(axis):
            return f"{axis} splits {other} there already"
        if axis in sharding.partial:
            return f"{axis} is a pending sum there"
    if tensor in annotations and dim not in annotations[tensor].open:
        return "the annotation fixes it"
    return "it is split by other axes, or needed whole"
