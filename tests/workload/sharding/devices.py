"""A toy machine: one array per device, moved by the steps of a plan and nothing else.

Each step is done as a collective does it: a device sees its own array and those of its group, which are the
devices that differ from it along the step's axes only. If a plan were wrong, the numbers would be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cosmic.workload.operator_graph import Operator, Tensor
from cosmic.workload.sharding.factor_assignment import factors_of
from cosmic.workload.sharding.graph_partition import Partitioned
from cosmic.workload.sharding.resharding import Step
from cosmic.workload.sharding.tensor_sharding import Axes, Sharding

Array = NDArray[Any]
Device = tuple[tuple[str, int], ...]
Shards = dict[Device, Array]
Mesh = Mapping[str, int]


def devices(mesh: Mesh) -> list[Device]:
    return [tuple(zip(mesh, at, strict=True)) for at in product(*(range(size) for size in mesh.values()))]


def index(device: Device, axes: Axes, mesh: Mesh) -> int:
    """Where *device* stands among those that differ along *axes*, the first axis being the major one."""
    at, place = dict(device), 0
    for axis in axes:
        place = place * mesh[axis] + at[axis]
    return place


def group(device: Device, axes: Axes, mesh: Mesh) -> list[Device]:
    """The devices that differ from *device* along *axes* only, in their order."""
    found = [
        other for other in devices(mesh) if all(a == b for a, b in zip(device, other, strict=True) if a[0] not in axes)
    ]
    return sorted(found, key=lambda other: index(other, axes, mesh))


def part(array: Array, axis: int, of: int, which: int) -> Array:
    return np.split(array, of, axis=axis)[which]


def ways(axes: Axes, mesh: Mesh) -> int:
    return int(np.prod([mesh[axis] for axis in axes], dtype=int))


def sliced(full: Array, dims: tuple[str, ...], sharding: Sharding, device: Device, mesh: Mesh) -> Array:
    """What *device* holds of *full*, cut out directly."""
    for position, dim in enumerate(dims):
        axes = sharding.axes(dim)
        full = part(full, position, ways(axes, mesh), index(device, axes, mesh))
    return full


def spread(full: Array, dims: tuple[str, ...], sharding: Sharding, mesh: Mesh, rng: np.random.Generator) -> Shards:
    """Give each device its part of *full*; of what is partial, random addends."""
    shards: Shards = {}
    for device in devices(mesh):
        whole = sliced(full, dims, sharding, device, mesh)
        peers = group(device, sharding.partial, mesh)
        if device == peers[-1]:
            shards[device] = whole - sum(shards[peer] for peer in peers[:-1])
        else:
            shards[device] = rng.integers(-9, 9, size=whole.shape)
    return shards


def agrees(shards: Shards, full: Array, dims: tuple[str, ...], sharding: Sharding, mesh: Mesh) -> bool:
    """Whether *shards* are *full* in the given sharding, pending sums done."""
    for device in devices(mesh):
        held = sum(shards[peer] for peer in group(device, sharding.partial, mesh))
        expected = sliced(full, dims, sharding, device, mesh)
        if np.shape(held) != expected.shape or not np.allclose(held, expected):
            return False
    return True


# ---- steps


def apply(step: Step, dims: tuple[str, ...], shards: Shards, mesh: Mesh) -> Shards:
    return {device: STEPS[step.kind](step, dims, device, shards, mesh) for device in devices(mesh)}


def _shrunk(step: Step, dims: tuple[str, ...]) -> int | None:
    """The dimension of which a device holds less afterwards."""
    return next((n for n, dim in enumerate(dims) if len(step.after.axes(dim)) > len(step.before.axes(dim))), None)


def _grown(step: Step, dims: tuple[str, ...]) -> int | None:
    """The dimension of which a device holds more afterwards."""
    return next((n for n, dim in enumerate(dims) if len(step.after.axes(dim)) < len(step.before.axes(dim))), None)


def _slice(step: Step, dims: tuple[str, ...], device: Device, shards: Shards, mesh: Mesh) -> Array:
    dim = _shrunk(step, dims)
    assert dim is not None
    return part(shards[device], dim, ways(step.axes, mesh), index(device, step.axes, mesh))


def _mask(step: Step, dims: tuple[str, ...], device: Device, shards: Shards, mesh: Mesh) -> Array:
    dim, place, own = _grown(step, dims), index(device, step.axes, mesh), shards[device]
    if dim is None:
        return own if place == 0 else np.zeros_like(own)
    return np.concatenate([own if n == place else np.zeros_like(own) for n in range(ways(step.axes, mesh))], axis=dim)


def _all_gather(step: Step, dims: tuple[str, ...], device: Device, shards: Shards, mesh: Mesh) -> Array:
    dim = _grown(step, dims)
    assert dim is not None
    return np.concatenate([shards[peer] for peer in group(device, step.axes, mesh)], axis=dim)


def _all_reduce(step: Step, dims: tuple[str, ...], device: Device, shards: Shards, mesh: Mesh) -> Array:
    return np.asarray(np.sum([shards[peer] for peer in group(device, step.axes, mesh)], axis=0))


def _reduce_scatter(step: Step, dims: tuple[str, ...], device: Device, shards: Shards, mesh: Mesh) -> Array:
    dim = _shrunk(step, dims)
    assert dim is not None
    total = _all_reduce(step, dims, device, shards, mesh)
    return part(total, dim, ways(step.axes, mesh), index(device, step.axes, mesh))


def _all_to_all(step: Step, dims: tuple[str, ...], device: Device, shards: Shards, mesh: Mesh) -> Array:
    shrunk, grown = _shrunk(step, dims), _grown(step, dims)
    assert shrunk is not None
    assert grown is not None
    place, count = index(device, step.axes, mesh), ways(step.axes, mesh)
    received = [part(shards[peer], shrunk, count, place) for peer in group(device, step.axes, mesh)]
    return np.concatenate(received, axis=grown)


def _permute(step: Step, dims: tuple[str, ...], device: Device, shards: Shards, mesh: Mesh) -> Array:
    wanted = [index(device, step.after.axes(dim), mesh) for dim in dims]
    (sender,) = [
        peer
        for peer in group(device, step.axes, mesh)
        if [index(peer, step.before.axes(dim), mesh) for dim in dims] == wanted
    ]
    return shards[sender]


STEPS: dict[str, Callable[[Step, tuple[str, ...], Device, Shards, Mesh], Array]] = {
    "slice": _slice,
    "mask": _mask,
    "all_gather": _all_gather,
    "all_reduce": _all_reduce,
    "reduce_scatter": _reduce_scatter,
    "all_to_all": _all_to_all,
    "collective_permute": _permute,
}


# ---- graphs


def compute(operator: Operator, read: list[Array]) -> Array:
    """Run an operator on arrays, whole or local."""
    if operator.kind == "einsum":
        factors = factors_of(operator)
        letters = {factor: chr(ord("a") + n) for n, factor in enumerate(factors.names)}

        def spell(tensor: Tensor) -> str:
            return "".join(letters[factors.of[dim]] for dim in tensor.dims)

        rule = ",".join(map(spell, operator.inputs)) + "->" + spell(operator.outputs[0])
        return np.asarray(np.einsum(rule, *read))
    if operator.kind == "add":
        return np.asarray(sum(read))
    if operator.kind == "softmax":
        return np.asarray(np.exp(read[0]) / np.exp(read[0]).sum(axis=-1, keepdims=True))
    if operator.kind == "softmax_grad":
        shares = np.exp(read[1]) / np.exp(read[1]).sum(axis=-1, keepdims=True)
        return np.asarray(shares * (read[0] - (read[0] * shares).sum(axis=-1, keepdims=True)))
    if operator.kind == "relu":
        return np.maximum(read[0], 0)
    assert operator.kind == "relu_grad"
    return np.asarray(read[0] * (read[1] > 0))


def run_whole(operators: tuple[Operator, ...], given: Mapping[str, Array]) -> dict[str, Array]:
    """Run a graph on one device."""
    values = dict(given)
    for operator in operators:
        values[operator.outputs[0].name] = compute(operator, [values[tensor.name] for tensor in operator.inputs])
    return values


def run_partitioned(
    partitioned: Partitioned, given: Mapping[str, Array], mesh: Mesh
) -> dict[tuple[str, Sharding], Shards]:
    """Run a partitioned graph on all devices; return each tensor in every sharding in which it existed."""
    rng = np.random.default_rng(0)
    store: dict[tuple[str, Sharding], Shards] = {}
    for name, full in given.items():
        sharding = partitioned.shardings[name]
        dims = next(t.dims for each in partitioned.operators for t in each.operator.inputs if t.name == name)
        store[name, sharding] = spread(full, dims, sharding, mesh, rng)
    for each in partitioned.operators:
        for transfer in each.inputs:
            shards = store[transfer.tensor.name, transfer.source]
            for step in transfer.steps:
                shards = apply(step, transfer.tensor.dims, shards, mesh)
            store[transfer.tensor.name, transfer.target] = shards
        read = [store[transfer.tensor.name, transfer.target] for transfer in each.inputs]
        (made,) = each.outputs
        shards = {device: compute(each.operator, [array[device] for array in read]) for device in devices(mesh)}
        store[made.tensor.name, made.source] = shards
        for step in made.steps:
            shards = apply(step, made.tensor.dims, shards, mesh)
        store[made.tensor.name, made.target] = shards
    return store
