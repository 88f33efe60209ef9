"""The factors of an operator (its loops), and assignments of mesh axes to them: all candidates, and XLA's choice.

The factors of an operator: its loops, which are dimensions of some of its tensors.

An einsum ``x[batch, hidden] w[hidden, ffn] -> u[batch, ffn]`` has three factors. Dimensions that are `same` inside an
operator are one factor. Where a factor is several dimensions of one tensor (tokens are batch and sequence to the model,
slots to an expert), their axes are listed one after the other; which token is in which slot does not matter.

Assignments of mesh axes to the factors of an operator: all candidates, and XLA's choice.

For an einsum ``A[i, k] B[k, j] -> C[i, j]`` and one axis: on *i* or *j* each device computes a shard of the result; on
*k* a partial sum of it; on none, all devices along the axis do the same work.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import permutations, product
from types import MappingProxyType

from cosmic.workload.operator_graph import Operator, Sizes, Tensor
from cosmic.workload.sharding.tensor_sharding import Axes, Sharding, local_size

EINSUMS = ("einsum", "embedding", "convolution")
"""Kinds that multiply their inputs and sum over dimensions that the output lacks. An embedding multiplies a table with
one-hot vectors that are not stored."""
LINEAR = ("add",)
"""Kinds that add their inputs: a sum that is pending in all inputs may stay pending in the output."""


@dataclass(frozen=True, slots=True)
class Factors:
    """The factors of one operator."""

    names: tuple[str, ...]
    """Each factor, named after its first dimension."""
    of: Mapping[str, str]
    """The factor of each dimension."""
    whole: frozenset[str]
    """Factors that no axis may split."""
    summed: frozenset[str]
    """Factors that some input has and some output lacks: splitting them leaves that output a partial sum."""
    inside: Mapping[tuple[str, ...], Mapping[str, tuple[str, ...]]]
    """For the dimensions of each tensor, those that belong to each factor that it has."""

    def dims(self, tensor: Tensor, factor: str) -> tuple[str, ...]:
        """Return the dimensions of *tensor* that belong to *factor*."""
        return self.inside[tensor.dims].get(factor, ())

    def axes(self, tensor: Tensor, factor: str, sharding: Sharding) -> Axes:
        """Return the axes over which *sharding* splits *factor* in *tensor*."""
        joined: Axes = ()
        for dim in self.dims(tensor, factor):
            joined += sharding.axes(dim)
        return joined

    def sees(self, tensor: Tensor, factor: str) -> bool:
        """Return whether *tensor* has *factor*."""
        return factor in self.inside[tensor.dims]


@lru_cache(maxsize=4096)
def factors_of(operator: Operator) -> Factors:
    """Return the factors of *operator*."""
    factor_of = {dim: dim for dim in operator.dims}
    for first, second in operator.same:
        if first in factor_of and second in factor_of:
            merged, dropped = sorted((factor_of[first], factor_of[second]), key=operator.dims.index)
            factor_of = {dim: merged if factor == dropped else factor for dim, factor in factor_of.items()}
    read = _factors_in(operator.inputs, factor_of)
    lacked = {factor for tensor in operator.outputs for factor in read - _factors_in((tensor,), factor_of)}
    return Factors(
        names=tuple(dict.fromkeys(factor_of.values())),
        of=MappingProxyType(factor_of),
        whole=frozenset(factor_of[dim] for dim in operator.whole if dim in factor_of),
        summed=frozenset(lacked),
        inside=MappingProxyType({tensor.dims: _group_by_factor(tensor.dims, factor_of) for tensor in operator.tensors}),
    )


def _group_by_factor(dims: tuple[str, ...], factor_of: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    groups: dict[str, tuple[str, ...]] = {}
    for dim in dims:
        groups[factor_of[dim]] = (*groups.get(factor_of[dim], ()), dim)
    return groups


def _factors_in(tensors: Iterable[Tensor], factor_of: Mapping[str, str]) -> set[str]:
    return {factor_of[dim] for tensor in tensors for dim in tensor.dims}


OFFSET = "bias"
"""The kind that adds a weight."""
ORDERED_FREELY = 2
"""Up to this many axes of one factor are tried in every order, where no tensor orders them."""
THROUGH = "…"
"""In place of a factor: the axis stays a pending sum, in inputs and in outputs."""


@dataclass(frozen=True)
class Assignment:
    """The axes that split each factor of an operator while it runs."""

    operator: Operator
    split: Mapping[str, Axes]
    through: Axes = ()
    """Axes along which partial sums are read and made (only in operators that add)."""

    @cached_property
    def factors(self) -> Factors:
        """The factors of the operator."""
        return factors_of(self.operator)

    def reads(self, tensor: Tensor, near: Sharding) -> Sharding:
        """Return the sharding in which the operator reads *tensor*, like *near* where there is a choice."""
        return Sharding(self._dims(tensor, near), tuple(sorted(self.through)))

    def makes(self, tensor: Tensor, near: Sharding) -> Sharding:
        """Return the sharding in which the operator makes *tensor*: splitting a summed factor leaves a partial sum."""
        factors = self.factors
        summed = (
            axis
            for factor, axes in self.split.items()
            if factor in factors.summed and not factors.sees(tensor, factor)
            for axis in axes
        )
        return Sharding(self._dims(tensor, near), tuple(sorted((*summed, *self.through))))

    def _dims(self, tensor: Tensor, near: Sharding) -> tuple[tuple[str, Axes], ...]:
        split_dims: list[tuple[str, Axes]] = []
        for factor, axes in self.split.items():
            dims = self.factors.dims(tensor, factor)
            if dims and axes:
                split_dims += _spread(axes, dims, near)
        return tuple(sorted(split_dims))

    def work(self, sizes: Sizes) -> float:
        """Return the local flop of one device, up to a constant."""
        total = 1.0
        for factor in self.factors.names:
            total *= float(local_size(sizes[factor], (sizes[axis] for axis in self.split.get(factor, ()))))
        return total


def _spread(axes: Axes, dims: tuple[str, ...], near: Sharding) -> list[tuple[str, Axes]]:
    """Distribute the axes of a factor over its dimensions in a tensor, as in *near* where possible."""
    if not any(axis in near.axes(dim) for axis in axes for dim in dims):
        return [(dims[0], axes)]
    spread: list[tuple[str, Axes]] = []
    rest = axes
    for dim in dims[:-1]:
        # As many leading axes as this dimension has in the near sharding; what is left goes to the next dimension.
        count = next((n for n, axis in enumerate(rest) if axis not in near.axes(dim)), len(rest))
        spread.append((dim, rest[:count]))
        rest = rest[count:]
    return [(dim, part) for dim, part in [*spread, (dims[-1], rest)] if part]


@dataclass(frozen=True)
class AssignmentSetting:
    """An operator with the current shardings of its inputs and the wanted ones of its outputs."""

    operator: Operator
    shardings: Mapping[str, Sharding]

    @cached_property
    def factors(self) -> Factors:
        """The factors of the operator."""
        return factors_of(self.operator)

    @cached_property
    def axes(self) -> Axes:
        """Every axis of these shardings."""
        return tuple(dict.fromkeys(axis for tensor in self.operator.tensors for axis in self.of(tensor).used))

    def of(self, tensor: Tensor) -> Sharding:
        """Return the sharding of *tensor*."""
        return self.shardings[tensor.name]

    def factor_split_by(self, tensor: Tensor, axis: str) -> str | None:
        """Return the factor that *axis* splits in *tensor*."""
        dim = self.of(tensor).holds(axis)
        factor = None if dim is None else self.factors.of[dim]
        return None if factor in self.factors.whole else factor

    def factors_split_by(self, tensors: tuple[Tensor, ...], axis: str) -> list[str]:
        """Return the distinct factors that *axis* splits in *tensors*."""
        return list(dict.fromkeys(factor for tensor in tensors if (factor := self.factor_split_by(tensor, axis))))

    def order(self, factor: str, axes: Axes) -> Axes:
        """Return *axes* in the order of the last tensor that has all, or most, of them."""
        orders = [self.factors.axes(tensor, factor, self.of(tensor)) for tensor in reversed(self.operator.tensors)]
        order = max(orders, key=lambda candidate: sum(axis in axes for axis in candidate))
        shared = tuple(axis for axis in order if axis in axes)
        return shared + tuple(axis for axis in axes if axis not in shared)


def may_add_later(operator: Operator, shardings: Mapping[str, Sharding]) -> bool:
    """Return whether sums that are pending in the inputs of *operator* may be pending in its output.

    An offset is added on one device.
    """
    pending = any(shardings[tensor.name].partial for tensor in operator.inputs)
    return operator.kind in LINEAR or (operator.kind == OFFSET and pending)


def list_assignments(setting: AssignmentSetting) -> Iterator[Assignment]:
    """Yield the candidate assignments: each axis on a factor that it splits in some tensor, or on none."""
    axes = setting.axes
    for chosen in product(*(_list_options(setting, axis) for axis in axes)):
        by_factor: dict[str, Axes] = {}
        for axis, factor in zip(axes, chosen, strict=True):
            if factor is not None:
                by_factor[factor] = (*by_factor.get(factor, ()), axis)
        through = by_factor.pop(THROUGH, ())
        for orders in product(*(_list_orders(setting, factor, split) for factor, split in by_factor.items())):
            yield Assignment(setting.operator, dict(zip(by_factor, orders, strict=True)), through)


def _list_options(setting: AssignmentSetting, axis: str) -> list[str | None]:
    """Return the factors that *axis* may split: the one on which tensors agree, else that of any tensor, or none.

    To leave a factor on which tensors agree could sometimes save bytes, but duplicates work or sends weights instead of
    tokens. An annotation can ask for that; by default it would surprise.
    """
    operator = setting.operator
    through = operator.kind in (*LINEAR, OFFSET) and any(
        axis in setting.of(input_).partial for input_ in operator.inputs
    )
    if not through and (agreed := _shared_factor(setting, axis)):
        return [agreed]
    return [*setting.factors_split_by(operator.tensors, axis), None, *([THROUGH] if through else [])]


def _list_orders(setting: AssignmentSetting, factor: str, axes: Axes) -> list[Axes]:
    """Return the orders in which tensors have *axes*; every order, if none has them all."""
    split = (setting.factors.axes(tensor, factor, setting.of(tensor)) for tensor in setting.operator.tensors)
    orders = [tuple(axis for axis in order if axis in axes) for order in split if set(axes) <= set(order)]
    if orders or len(axes) > ORDERED_FREELY:
        return list(dict.fromkeys(orders)) or [setting.order(factor, axes)]
    return list(permutations(axes))


def xla_assignment(setting: AssignmentSetting) -> Assignment:
    """Return the assignment of XLA's partitioner, which follows rules instead of costs."""
    by_factor: dict[str, Axes] = {}
    for axis in setting.axes:
        if (
            factor := _shared_factor(setting, axis)
            or _wanted_factor(setting, axis)
            or _resharded_factor(setting, axis, by_factor)
        ):
            by_factor[factor] = (*by_factor.get(factor, ()), axis)
    return Assignment(setting.operator, {factor: setting.order(factor, axes) for factor, axes in by_factor.items()})


def _shared_factor(setting: AssignmentSetting, axis: str) -> str | None:
    """Return the factor that *axis* splits in an input and an output (local work), or in all inputs (partial sums)."""
    operator, factors = setting.operator, setting.factors
    read = setting.factors_split_by(operator.inputs, axis)
    for factor in setting.factors_split_by(operator.outputs, axis):
        if factor in read:
            return factor
    for factor in read:
        seen = [tensor for tensor in operator.inputs if factors.sees(tensor, factor)]
        agreed = len(seen) > 1 and all(setting.factor_split_by(tensor, axis) == factor for tensor in seen)
        if factor in factors.summed and agreed:
            return factor
    return None


def _wanted_factor(setting: AssignmentSetting, axis: str) -> str | None:
    """Return the factor that *axis* splits in an output, if inputs have it: they are sliced or resharded."""
    operator, factors = setting.operator, setting.factors
    for factor in setting.factors_split_by(operator.outputs, axis):
        if any(factors.sees(tensor, factor) for tensor in operator.inputs):
            return factor
    return None


def _resharded_factor(setting: AssignmentSetting, axis: str, by_factor: Mapping[str, Axes]) -> str | None:
    """Return the factor that *axis* splits in an input, if the result can be resharded; else the input is gathered.

    XLA reshards the results of einsums, of reductions, and of operators that make the dimension that the axis splits. A
    tensor cannot be gathered along a major axis only, so the major axes of its dimension must split the factor too.
    """
    operator, factors = setting.operator, setting.factors
    new = setting.factors_split_by(operator.outputs, axis)
    for tensor in operator.inputs:
        factor = setting.factor_split_by(tensor, axis)
        if factor and (factor in factors.summed) != (operator.kind in EINSUMS or bool(new)):
            axes = factors.axes(tensor, factor, setting.of(tensor))
            if all(major in by_factor.get(factor, ()) for major in axes[: axes.index(axis)]):
                return factor
    return next(iter(new), None)
