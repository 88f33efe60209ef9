"""What is said of a collective, send or receive: by an event, an execution trace, or an operator's inputs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Any

from cosmic.profiles.element_types import element_bytes
from cosmic.profiles.execution_traces import Details, sides
from cosmic.profiles.kineto import CollectiveCall, Kineto
from cosmic.traces.trace import CollectiveType, NodeType

FUNCTIONAL = "_c10d_functional::"
"""Operators whose last input names the group."""
_KINDS = (
    ("reduce_?scatter", CollectiveType.REDUCE_SCATTER),
    ("all_?reduce", CollectiveType.ALL_REDUCE),
    ("all_?gather", CollectiveType.ALL_GATHER),
    ("all_?to_?all", CollectiveType.ALL_TO_ALL),
    ("broadcast", CollectiveType.BROADCAST),
    ("gather", CollectiveType.GATHER),
    ("scatter", CollectiveType.SCATTER),
    ("reduce", CollectiveType.REDUCE),
    ("barrier", CollectiveType.BARRIER),
)


@dataclass(frozen=True, slots=True)
class Stated:
    """What one source says of a communication."""

    name: str
    sent: int = -1
    received: int = -1
    """Bytes."""
    group: str = ""
    ranks: tuple[int, ...] = ()
    group_size: int = -1
    peer: int | None = None
    is_global: bool = False
    """Whether the peer is stated by its rank in the job, not by its place in the group."""
    tag: int = 0
    sequence: int = -1


@lru_cache(1024)
def kind_of(name: str) -> tuple[NodeType, CollectiveType | None] | None:
    """Return the type of a node, and of a collective, by what PyTorch or NCCL calls it; None for anything else.

    >>> kind_of("c10d::_reduce_scatter_base_"), kind_of("recv_any_source")
    ((<NodeType.COMM_COLL: 7>, <CollectiveType.REDUCE_SCATTER: 7>), (<NodeType.COMM_RECV: 6>, None))
    """
    lowered = name.rpartition("::")[2].lower()
    for pattern, kind in _KINDS:
        if re.search(pattern, lowered):
            return NodeType.COMM_COLL, kind
    if "send" in lowered and "sendrecv" not in lowered:
        return NodeType.COMM_SEND, None
    return (NodeType.COMM_RECV, None) if "recv" in lowered and "sendrecv" not in lowered else None


def of_call(call: CollectiveCall) -> Stated:
    """Return what the arguments of an event say: PyTorch states the ranks of peers in the job."""
    size = element_bytes(call.dtype)
    peer = call.target if "send" in call.name.lower() else call.source
    return Stated(
        name=call.name,
        sent=call.sent * size if call.sent >= 0 and size > 0 else -1,
        received=call.received * size if call.received >= 0 and size > 0 else -1,
        group=call.group,
        ranks=call.ranks,
        group_size=call.group_size,
        peer=peer if kind_of(call.name) in ((NodeType.COMM_SEND, None), (NodeType.COMM_RECV, None)) else None,
        is_global=True,
        sequence=call.sequence,
    )


def of_details(detail: Details, name: str) -> Stated | None:
    """Return what an execution trace says: attributes of a collective, or the operator's inputs."""
    told = detail.attributes
    if "collective_name" in told and kind_of(str(told["collective_name"])) is not None:
        size = element_bytes(str(told.get("dtype", "")))
        counts = [told.get(key, -1) for key in ("in_msg_nelems", "out_msg_nelems")]
        sent, received = (each * size if isinstance(each, int) and each >= 0 and size > 0 else -1 for each in counts)
        group_size = told.get("pg_size", -1)
        return Stated(
            name=str(told["collective_name"]),
            sent=sent,
            received=received,
            group=str(told.get("pg_name", "")),
            group_size=group_size if isinstance(group_size, int) else -1,
        )
    given = sides(detail.inputs)
    values, shapes, types = given["values"], given["shapes"], given["types"]
    if name == "record_param_comms":
        return _of_record(values, shapes, types)
    if kind_of(name) is None:
        return None
    found = of_arguments(name, values, shapes, types)
    if name.startswith(FUNCTIONAL) and values and isinstance(values[-1], str):
        found = replace(found, sent=_tensor_bytes(shapes[:1], types[:1]), received=-1, group=values[-1])
    return found


def _of_record(values: list[Any], shapes: list[Any], types: list[Any]) -> Stated | None:
    """Return what `record_param_comms` was called with: tensors, sequence, group, rank, name ..."""
    words = [each for each in values if isinstance(each, str)]
    name = next((word for word in words if kind_of(word) is not None), None)
    if name is None:
        return None
    group = next((str(each[0]) for each in values[1:] if _is_group(each)), "")
    size = _tensor_bytes(shapes[:1], types[:1])
    return Stated(name=name, sent=size, received=-1, group=group)


def _is_group(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(isinstance(each, str) for each in value)


def of_inputs(trace: Kineto, entry: int, name: str) -> Stated:
    """Return what the inputs of an operator in Kineto say."""
    if entry not in trace.inputs:
        return Stated(name=name)
    shapes, types, values = (_parsed(each) for each in trace.inputs[entry])
    return of_arguments(name, values, shapes, types)


def of_arguments(name: str, values: list[Any], shapes: list[Any], types: list[Any]) -> Stated:
    """Return what a `c10d` operator was called with: tensors first, then scalars."""
    made = kind_of(name)
    node_type, kind = made if made is not None else (NodeType.COMM_COLL, None)
    if node_type != NodeType.COMM_COLL:
        numbers: list[int | None] = [number for each in values[1:] if (number := _number(each)) is not None]
        if "any_source" in name:  # who sends is not known, and no argument
            numbers.insert(0, None)
        peer, tag = (*numbers, *(None, 0)[len(numbers) :])[:2]
        return Stated(name=name, sent=_tensor_bytes(shapes[:1], types[:1]), peer=peer, tag=tag or 0)
    first, second = (_tensor_bytes(shapes[at : at + 1], types[at : at + 1]) for at in (0, 1))
    swapped = kind in (CollectiveType.ALL_GATHER, CollectiveType.REDUCE_SCATTER, CollectiveType.ALL_TO_ALL)
    swapped |= kind in (CollectiveType.GATHER, CollectiveType.SCATTER)
    return Stated(name=name, sent=second if swapped else first, received=first if swapped else -1)


def _parsed(text: bytes) -> list[Any]:
    try:
        found = json.loads(text) if text else []
    except (ValueError, RecursionError):
        return []
    return found if isinstance(found, list) else []


def _number(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value if abs(value) < 2**31 else None
    return int(value) if isinstance(value, str) and re.fullmatch(r"-?\d{1,9}", value) else None


def _tensor_bytes(shapes: Any, types: Any) -> int:
    """Return the bytes of tensors, nested in lists as they may be; -1 where that is not known.

    >>> _tensor_bytes([[[4, 8], [2]]], ["GenericList[Tensor(float),Tensor(float)]"])
    136
    >>> _tensor_bytes([[5]], ["TensorList"])
    -1
    """
    size = next((found for word in re.findall(r"[\w:<> ]+", str(types)) if (found := element_bytes(word)) > 0), -1)
    elements = sum(prod(shape) for shape in _shapes(shapes))
    return elements * size if size > 0 and elements > 0 else -1


def _shapes(nested: Any) -> Iterator[list[int]]:
    if isinstance(nested, list) and nested and all(isinstance(each, int) for each in nested):
        yield nested
    elif isinstance(nested, list):
        for each in nested:
            yield from _shapes(each)
