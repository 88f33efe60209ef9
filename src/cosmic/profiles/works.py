"""What the kernels of a profile compute, from the operators that launched them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from cosmic.profiles.collectives import is_collective_kernel
from cosmic.profiles.execution_traces import ExecutionTrace, sides
from cosmic.profiles.graph_kernels import works_by_kernel
from cosmic.profiles.kineto import OPERATOR, Kineto
from cosmic.profiles.linking import DEVICE, Linked
from cosmic.profiles.operators import (
    Launch,
    Operator,
    operator_of_execution_trace,
    operator_of_kineto,
    works_of,
)
from cosmic.traces.kernels import KernelWork, parse_work

Works = list[str | None]
BLOCK_BYTES_PER_NS = 256
"""The most that a block moves: an SM reads 128 bytes a cycle from its cache (NVIDIA, Volta to Hopper), at 2 GHz."""
MOST_SMS = 320
"""More than any accelerator has: so many blocks move something at a time."""


def works_of_kernels(trace: Kineto, linked: Linked, details: ExecutionTrace | None) -> dict[int, str]:
    """Return the work of each kernel that is known, as text, by its entry in `Kineto.device`."""
    is_collective = np.array([is_collective_kernel(name) for name in trace.names], bool)
    nodes = np.flatnonzero(linked.kind == DEVICE)
    nodes = nodes[~is_collective[trace.device.name[linked.entry[nodes]]]] if len(is_collective) else nodes
    parent = linked.parent[nodes]
    operators = np.where(parent >= 0, linked.entry[parent], -1)
    operators[np.append(trace.host.category, -1)[operators] != OPERATOR] = -1
    by_operator: dict[int, list[int]] = {}
    alone: list[int] = []
    for entry, operator in zip(linked.entry[nodes].tolist(), operators.tolist(), strict=True):
        if operator >= 0:
            by_operator.setdefault(operator, []).append(entry)
        else:
            alone.append(entry)
    describer = _Describer(trace, details)
    found: dict[int, str] = {}
    for operator, entries in by_operator.items():
        for entry, text in zip(entries, describer.works(operator, entries), strict=True):
            if text is not None:
                found[entry] = text
    found = _possible(trace, found)
    found.update(_possible(trace, _replayed(trace, alone, found)))
    return found


def _possible(trace: Kineto, works: dict[int, str]) -> dict[int, str]:
    """Return *works* without those that kernels cannot have done in the time that they took.

    An operator may launch a small kernel beside the one that walks through its tensors, and a recurrence one for each
    step of its sequence: what such a kernel moves is not known.
    """
    device = trace.device
    took = (device.end - device.start).tolist()
    parsed = {text: parse_work(text) for text in set(works.values())}
    least = {text: _least_ns(work) for text, work in parsed.items()}
    return {entry: text for entry, text in works.items() if least[text] <= took[entry]}


def _least_ns(work: KernelWork) -> float:
    """Return the least nanoseconds of a kernel whose blocks are known: all of them at the rate of their caches.

    >>> _least_ns(parse_work("stream fp32 reduce 25000 600 0 6250 1 256"))
    100.0
    """
    if work.kind != "stream" or not work["blocks"]:
        return 0.0
    return (work["read"] + work["written"]) / (BLOCK_BYTES_PER_NS * min(work["blocks"], MOST_SMS))


class _Describer:
    """Finds what kernels compute; operators of the same shapes that launch the same kernels are looked at once."""

    def __init__(self, trace: Kineto, details: ExecutionTrace | None) -> None:
        self._trace = trace
        self._known: dict[Any, Works] = {}
        device = trace.device
        self._launched = list(zip(device.name.tolist(), device.launch, device.bytes.tolist(), strict=True))
        self._functions, self._names = trace.host.function.tolist(), trace.host.name.tolist()
        self._detailed = details.details if details is not None else {}

    def works(self, operator: int, entries: Sequence[int]) -> Works:
        """Return the works of the kernels at *entries*, which *operator* launched."""
        trace, device = self._trace, self._trace.device
        launched = tuple(map(self._launched.__getitem__, entries))
        function = self._functions[operator]
        called = trace.inputs.get(operator) or (function if function in self._detailed else -1 - operator)
        key = self._names[operator], called, launched
        found = self._known.get(key)
        if found is None:
            names = [trace.names[device.name[entry]] for entry in entries]
            launches = [_launch(trace, entry) for entry in entries]
            made = works_of(self._operator(operator), names, launches)
            found = self._known[key] = [None if work is None else work.text for work in made]
        return found

    def _operator(self, entry: int) -> Operator | None:
        trace = self._trace
        name = trace.names[trace.host.name[entry]]
        detail = self._detailed.get(self._functions[entry])
        made = Operator(name)
        if detail is not None:
            made = operator_of_execution_trace(detail.name, sides(detail.inputs), sides(detail.outputs))
        if made.tensors() or entry not in trace.inputs:
            return made
        shapes, types, values = (_listed(text) for text in trace.inputs[entry])
        return operator_of_kineto(name, {"Input Dims": shapes, "Input type": types, "Concrete Inputs": values})


def _listed(text: bytes) -> list[Any]:
    try:
        found = json.loads(text) if text else []
    except ValueError:
        return []
    return found if isinstance(found, list) else []


def _launch(trace: Kineto, entry: int) -> Launch:
    """Return how a kernel was launched."""
    text, size = trace.device.launch[entry], int(trace.device.bytes[entry])
    grid, _, block = text.decode(errors="replace").partition("]")
    return Launch(_numbers(grid), _numbers(block), size if size >= 0 else None)


def _numbers(text: str) -> tuple[int, ...]:
    words = text.replace("[", " ").replace("]", " ").replace(",", " ").split()
    return tuple(int(word) for word in words if word.isdecimal())


def _replayed(trace: Kineto, alone: Sequence[int], known: dict[int, str]) -> dict[int, str]:
    """Return the works of kernels without an operator (of CUDA graphs): those of equal kernels that have one."""
    if not alone:
        return {}
    names, device = trace.names, trace.device
    others: list[tuple[str, Launch, KernelWork | None]] = [
        (names[device.name[entry]], _launch(trace, entry), parse_work(text)) for entry, text in known.items()
    ]
    kernels = [(names[device.name[entry]], _launch(trace, entry)) for entry in alone]
    works = works_by_kernel(kernels, others)
    return {entry: work.text for entry, work in zip(alone, works, strict=True) if work is not None}
