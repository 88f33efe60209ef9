"""Propagate the shardings of a few tensors to all, along the factors of operators.

As in Shardy (and GSPMD before it), the tensors of an operator should be split alike along each factor. So the longest
sequence of major axes on which they agree is given to every open tensor in which these axes are free. This runs over
the operators in both directions until nothing changes, in rounds: by user priority; within one, operators that pass
shardings on (all but einsums) before einsums; within these, undisputed axes before disputed ones. A dispute is won by
the larger tensor, whose resharding would cost more.

Most visits of an operator would change nothing: it is visited only if the sharding of one of its tensors has changed
since the last visit, or if that visit left a dispute open that is to be decided now.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from cosmic.base.errors import UnknownName
from cosmic.workload.operator_graph import Graph, Operator, Sizes, Tensor
from cosmic.workload.sharding.factor_assignment import EINSUMS, Factors, factors_of
from cosmic.workload.sharding.tensor_sharding import REPLICATED, Annotation, Axes, Sharding, check_annotation


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
    weights = {name: _count_elements(tensor, sizes) for name, tensor in tensors.items()}
    sites = [_Site.of(operator) for operator in graph.operators if operator.kind not in crossings]
    state = _PropagationState(weights, annotations, _needed_whole(graph), _group_by_tensor(sites))
    passing = tuple(site for site in sites if site.kind not in EINSUMS)
    mixing = tuple(site for site in sites if site.kind in EINSUMS)
    for priority in sorted(_list_priorities(annotations)):
        state.admit(priority)
        for visited, then in ((passing, ()), (mixing, passing)):
            for state.decide in (False, True):
                _settle_sites(visited, state, then)
    return {name: state.shardings.get(name, REPLICATED) for name in tensors}


def _count_elements(tensor: Tensor, sizes: Sizes | None) -> float:
    total: Any = 1.0
    for dim in tensor.dims:
        total = total * (sizes[dim] if sizes is not None else 1024)
    return float(total)


def _list_priorities(annotations: Mapping[str, Annotation]) -> set[int]:
    declared = annotations.values()
    return {annotation.priority for annotation in declared} | {
        rank for annotation in declared for _, rank in annotation.later
    }


def _needed_whole(graph: Graph) -> frozenset[tuple[str, str]]:
    """Return the pairs of a tensor and a dimension that some operator needs whole."""
    return frozenset(
        (tensor.name, dim)
        for operator in graph.operators
        for tensor in operator.tensors
        for dim in tensor.dims
        if dim in operator.whole
    )


@dataclass(frozen=True, slots=True, eq=False)  # one for each operator, and compared by identity
class _Site:
    """An operator as `propagate` sees it."""

    kind: str
    tensors: tuple[Tensor, ...]
    """Its distinct inputs and outputs."""
    names: frozenset[str]
    """The names of these."""
    factors: Factors
    split: Mapping[str, tuple[Tensor, ...]]
    """The factors that axes may split, each with the tensors that have it."""

    @classmethod
    def of(cls, operator: Operator) -> _Site:
        """Return the site of *operator*."""
        named = {tensor.name: tensor for tensor in operator.tensors}
        tensors = tuple(named.values())
        factors = factors_of(operator)
        split = {
            factor: tuple(tensor for tensor in tensors if factors.sees(tensor, factor))
            for factor in factors.names
            if factor not in factors.whole
        }
        return cls(operator.kind, tensors, frozenset(named), factors, split)


Sites = tuple[_Site, ...]


def _group_by_tensor(sites: Iterable[_Site]) -> dict[str, list[_Site]]:
    """Return the sites at which each tensor is read or made."""
    sites_of: dict[str, list[_Site]] = {}
    for site in sites:
        for name in site.names:
            sites_of.setdefault(name, []).append(site)
    return sites_of


@dataclass
class _PropagationState:
    """The state of `propagate`."""

    weights: Mapping[str, float]
    annotations: Mapping[str, Annotation]
    whole: frozenset[tuple[str, str]]
    """Dimensions that are split only if nothing else claims the axis, because they will be gathered."""
    sites: Mapping[str, Collection[_Site]]
    """Where each tensor is read or made."""
    shardings: dict[str, Sharding] = field(default_factory=dict)
    inactive: frozenset[str] = frozenset()
    """Annotated tensors of a later priority: they neither propagate nor receive shardings."""
    decide: bool = False
    """Whether disputes are decided in this round, or left for the next."""
    settled: set[_Site] = field(default_factory=set)
    """Sites at which nothing is left to change, except disputes."""
    decided: set[_Site] = field(default_factory=set)
    """Those at which no dispute is left either."""

    def admit(self, priority: int) -> None:
        """Let the annotations of *priority* take effect."""
        for name, annotation in self.annotations.items():
            active = annotation.until(priority)
            grown = {dim: axes for dim, axes in self.shardings.get(name, REPLICATED).dims if dim in annotation.open}
            self.shardings[name] = Sharding.of(dict(active.dims) | grown, active.partial)
            self.unsettle(name)
        self.inactive = frozenset(name for name, annotation in self.annotations.items() if annotation.first > priority)

    def unsettle(self, name: str) -> None:
        """Have the operators of the tensor *name* visited again."""
        self.settled.difference_update(self.sites.get(name, ()))
        self.decided.difference_update(self.sites.get(name, ()))

    def is_settled(self, site: _Site) -> bool:
        """Return whether a visit of *site* would change nothing."""
        return site in (self.decided if self.decide else self.settled)

    def settle(self, site: _Site) -> None:
        """Note that a visit of *site* changed nothing.

        A visit that leaves disputes open extends no tensor that one that decides them would not extend.
        """
        self.settled.add(site)
        if self.decide:
            self.decided.add(site)

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


def _settle_sites(sites: Sites, state: _PropagationState, then: Sites) -> None:
    """Visit *sites* back and forth until no sharding changes; those of *then* pass each change on."""
    changed = True
    while changed:
        changed = False
        for site in sites + sites[::-1]:
            if touched := _visit_site(site, state):
                changed = True
                _visit_neighbours(touched, then, state)


def _visit_neighbours(touched: set[str], sites: Sites, state: _PropagationState) -> None:
    """Visit those of *sites* that have a *touched* tensor, until no sharding changes."""
    while touched:
        near = [site for site in sites if not touched.isdisjoint(site.names)]
        touched = set().union(*(_visit_site(site, state) for site in near))


@dataclass(frozen=True, slots=True)
class _Claim:
    """The axes that an operator claims for one of its factors."""

    factor: str
    axes: Axes
    weight: float
    """The size of the tensor that has them."""


def _visit_site(site: _Site, state: _PropagationState) -> set[str]:
    """Extend the shardings of one operator's tensors; return the names of those that changed."""
    if state.is_settled(site):
        return set()
    unsorted_claims = [claim for factor in site.split if (claim := _make_claim(site, factor, state))]
    claims = sorted(unsorted_claims, key=lambda claim: -claim.weight)
    touched = {
        tensor.name
        for tensor in site.tensors
        if (offers := [offer for claim in claims if (offer := _make_offer(tensor, site.factors, claim, state))])
        and _extend_sharding(tensor, offers, state)
    }
    for name in touched:
        state.unsettle(name)
    if not touched:
        state.settle(site)
    return touched


def _extend_sharding(tensor: Tensor, offers: list[tuple[str, Axes]], state: _PropagationState) -> bool:
    """Split *tensor* as offered, where axes are free and, unless disputes are decided, offered only once."""
    claimed = Counter(axis for _, axes in offers for axis in axes)
    before = state.sharding(tensor)
    for dim, axes in offers:
        sharding = state.sharding(tensor)
        fit = takewhile(lambda axis: state.is_free(tensor, axis) and (state.decide or claimed[axis] == 1), axes)
        state.shardings[tensor.name] = sharding.split(dim, sharding.axes(dim) + tuple(fit))
    return state.sharding(tensor) != before


def _make_claim(site: _Site, factor: str, state: _PropagationState) -> _Claim | None:
    """Return the longest sequence of major axes on which the tensors of *site* agree, or that wins a dispute."""
    split = [
        (axes, state.weights[tensor.name])
        for tensor in site.split[factor]
        if (axes := site.factors.axes(tensor, factor, state.sharding(tensor))) and tensor.name not in state.inactive
    ]
    if not split:
        return None
    first = split[0][0]
    if all(axes == first for axes, _ in split):
        return _Claim(factor, first, max(weight for _, weight in split))
    prefix: Axes = ()
    # Axis by axis from the major one: tensors that have no further axis agree with any; a dispute ends the claim,
    # unless the heavier tensor is to decide it.
    while following := [(axes[len(prefix)], weight) for axes, weight in split if len(axes) > len(prefix)]:
        if len({axis for axis, _ in following}) > 1 and not state.decide:
            break
        axis = max(following, key=lambda pair: pair[1])[0]
        prefix = (*prefix, axis)
        split = [(axes, weight) for axes, weight in split if axes[: len(prefix)] == prefix]
    return _Claim(factor, prefix, max(weight for _, weight in split)) if prefix else None


def _make_offer(tensor: Tensor, factors: Factors, claim: _Claim, state: _PropagationState) -> tuple[str, Axes] | None:
    """Return the dimension of *tensor* that a claim splits further, and the axes."""
    dims = factors.dims(tensor, claim.factor)
    if not dims:
        return None
    sharding = state.sharding(tensor)
    has = factors.axes(tensor, claim.factor, sharding)
    if has == claim.axes or claim.axes[: len(has)] != has:
        return None
    # A factor that is several dimensions of the tensor grows after the last one that is split.
    dim = next((dim for dim in reversed(dims) if sharding.axes(dim)), dims[0])
    return (dim, claim.axes[len(has) :]) if state.is_open(tensor, dim) else None
