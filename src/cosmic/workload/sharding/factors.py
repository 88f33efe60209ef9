"""The factors of an operator: its loops, which are dimensions of some of its tensors.

An einsum ``x[batch, hidden] w[hidden, ffn] -> u[batch, ffn]`` has three factors. Dimensions that are `same` inside an
operator are one factor. Where a factor is several dimensions of one tensor (tokens are batch and sequence to the model,
slots to an expert), their axes are listed one after the other; which token is in which slot does not matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from cosmic.workload.graph import Operator, Tensor
from cosmic.workload.sharding.annotation import Axes, Sharding

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
        found: Axes = ()
        for dim in self.dims(tensor, factor):
            found += sharding.axes(dim)
        return found

    def sees(self, tensor: Tensor, factor: str) -> bool:
        """Return whether *tensor* has *factor*."""
        return factor in self.inside[tensor.dims]


@lru_cache(maxsize=4096)
def factors_of(operator: Operator) -> Factors:
    """Return the factors of *operator*."""
    of = {dim: dim for dim in operator.dims}
    for first, second in operator.same:
        if first in of and second in of:
            kept, gone = sorted((of[first], of[second]), key=operator.dims.index)
            of = {dim: kept if factor == gone else factor for dim, factor in of.items()}
    read = _seen(operator.inputs, of)
    lacked = {factor for tensor in operator.outputs for factor in read - _seen((tensor,), of)}
    return Factors(
        names=tuple(dict.fromkeys(of.values())),
        of=MappingProxyType(of),
        whole=frozenset(of[dim] for dim in operator.whole if dim in of),
        summed=frozenset(lacked),
        inside=MappingProxyType({tensor.dims: _by_factor(tensor.dims, of) for tensor in operator.tensors}),
    )


def _by_factor(dims: tuple[str, ...], of: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for dim in dims:
        found[of[dim]] = (*found.get(of[dim], ()), dim)
    return found


def _seen(tensors: Iterable[Tensor], of: Mapping[str, str]) -> set[str]:
    return {of[dim] for tensor in tensors for dim in tensor.dims}
