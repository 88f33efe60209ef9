"""Collectives, sends and receives of a profile: NCCL's and RCCL's kernels, gloo's work on the host, and what they move.

What is moved is stated by an event's arguments (`record_param_comms`, kernels of NCCL), by an execution trace, or by
the shapes of a `c10d` operator's inputs, in this order. A kernel that states nothing runs what was issued before it
was launched: PyTorch launches the messages of `batch_isend_irecv` together.

A `DescribedCommunication` is what one of these sources says. `element_bytes` knows the types of elements as PyTorch and
NCCL call them.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from cosmic.traces.profiles.execution_traces import Details, ExecutionTrace, parse_side
from cosmic.traces.profiles.integer_sets import is_in, sorted_distinct
from cosmic.traces.profiles.kineto import CALL, LAUNCHED, CollectiveCall, Ints, Kineto
from cosmic.traces.trace import CollectiveType, NodeType

_BYTES = (
    (16, ("complexdouble", "complex<double>")),
    (8, ("long", "double", "int64", "float64", "uint64", "unsigned long", "complexfloat", "complex<float>")),
    (4, ("int", "float", "int32", "float32", "uint32", "unsigned int", "qint32", "complexhalf", "complex<c10::half>")),
    (2, ("half", "bfloat16", "short", "int16", "float16", "uint16", "unsigned short")),
    (1, ("byte", "char", "bool", "int8", "uint8", "unsigned char", "signed char", "fp8", "f8", "qint8", "quint8")),
)
SIZE_OF = {name: size for size, names in _BYTES for name in names}
BYTE_WIDE = ("float8", "float4_e2m1fn_x2")
"""What names of other types of one byte begin with: of 8 bits, or of two numbers of 4 bits."""


def element_bytes(dtype: str) -> int:
    """Return the bytes of an element; -1 where the type is not known.

    >>> element_bytes("BFloat16"), element_bytes("c10::Half"), element_bytes("long int"), element_bytes("Float8_e4m3fn")
    (2, 2, 8, 1)
    >>> element_bytes("ComplexFloat"), element_bytes("c10::complex<double>"), element_bytes("unsigned long")
    (8, 16, 8)
    """
    lowered = dtype.lower().removeprefix("tensor(").removesuffix(")").removeprefix("c10::")
    if lowered.startswith(BYTE_WIDE):
        return 1
    return SIZE_OF.get(lowered, SIZE_OF.get(lowered.split(" ")[0], -1))


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
class DescribedCommunication:
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
def communication_kind(name: str) -> tuple[NodeType, CollectiveType | None] | None:
    """Return the type of a node, and of a collective, by what PyTorch or NCCL calls it; None for anything else.

    >>> communication_kind("c10d::_reduce_scatter_base_"), communication_kind("recv_any_source")
    ((<NodeType.COMM_COLL: 7>, <CollectiveType.REDUCE_SCATTER: 7>), (<NodeType.COMM_RECV: 6>, None))
    """
    lowered = name.rpartition("::")[2].lower()
    for pattern, kind in _KINDS:
        if re.search(pattern, lowered):
            return NodeType.COMM_COLL, kind
    if "send" in lowered and "sendrecv" not in lowered:
        return NodeType.COMM_SEND, None
    return (NodeType.COMM_RECV, None) if "recv" in lowered and "sendrecv" not in lowered else None


def describe_call(call: CollectiveCall) -> DescribedCommunication:
    """Return the communication that an event's arguments describe; PyTorch states peers by their rank in the job."""
    size = element_bytes(call.dtype)
    peer = call.target if "send" in call.name.lower() else call.source
    return DescribedCommunication(
        name=call.name,
        sent=call.sent * size if call.sent >= 0 and size > 0 else -1,
        received=call.received * size if call.received >= 0 and size > 0 else -1,
        group=call.group,
        ranks=call.ranks,
        group_size=call.group_size,
        peer=peer
        if communication_kind(call.name) in ((NodeType.COMM_SEND, None), (NodeType.COMM_RECV, None))
        else None,
        is_global=True,
        sequence=call.sequence,
    )


def describe_details(detail: Details, name: str) -> DescribedCommunication | None:
    """Return the communication that an execution trace describes by attributes or by inputs."""
    attributes = detail.attributes
    if "collective_name" in attributes and communication_kind(str(attributes["collective_name"])) is not None:
        size = element_bytes(str(attributes.get("dtype", "")))
        counts = [attributes.get(key, -1) for key in ("in_msg_nelems", "out_msg_nelems")]
        sent, received = (
            count * size if isinstance(count, int) and count >= 0 and size > 0 else -1 for count in counts
        )
        group_size = attributes.get("pg_size", -1)
        return DescribedCommunication(
            name=str(attributes["collective_name"]),
            sent=sent,
            received=received,
            group=str(attributes.get("pg_name", "")),
            group_size=group_size if isinstance(group_size, int) else -1,
        )
    inputs = parse_side(detail.inputs)
    values, shapes, types = inputs["values"], inputs["shapes"], inputs["types"]
    if name == "record_param_comms":
        # `record_param_comms` was called with tensors, sequence, group, rank, name ...
        words = [value for value in values if isinstance(value, str)]
        call_name = next((word for word in words if communication_kind(word) is not None), None)
        if call_name is None:
            return None
        group = next(
            (
                str(value[0])
                for value in values[1:]
                if (isinstance(value, list) and len(value) == 2 and all(isinstance(text, str) for text in value))
            ),
            "",
        )
        sent_bytes = _tensor_bytes(shapes[:1], types[:1])
        return DescribedCommunication(name=call_name, sent=sent_bytes, received=-1, group=group)
    if communication_kind(name) is None:
        return None
    communication = describe_arguments(name, values, shapes, types)
    if name.startswith(FUNCTIONAL) and values and isinstance(values[-1], str):
        communication = replace(communication, sent=_tensor_bytes(shapes[:1], types[:1]), received=-1, group=values[-1])
    return communication


def describe_inputs(trace: Kineto, entry: int, name: str) -> DescribedCommunication:
    """Return the communication that the inputs of an operator in Kineto describe."""
    if entry not in trace.inputs:
        return DescribedCommunication(name=name)
    shapes, types, values = (_parse_list(text) for text in trace.inputs[entry])
    return describe_arguments(name, values, shapes, types)


def describe_arguments(name: str, values: list[Any], shapes: list[Any], types: list[Any]) -> DescribedCommunication:
    """Return the communication that a `c10d` operator was called for; its arguments are tensors, then scalars."""
    typed = communication_kind(name)
    node_type, kind = typed if typed is not None else (NodeType.COMM_COLL, None)
    if node_type != NodeType.COMM_COLL:
        numbers: list[int | None] = [number for value in values[1:] if (number := _number(value)) is not None]
        if "any_source" in name:  # who sends is not known, and no argument
            numbers.insert(0, None)
        peer, tag = (*numbers, *(None, 0)[len(numbers) :])[:2]
        return DescribedCommunication(name=name, sent=_tensor_bytes(shapes[:1], types[:1]), peer=peer, tag=tag or 0)
    first, second = (_tensor_bytes(shapes[index : index + 1], types[index : index + 1]) for index in (0, 1))
    swapped = kind in (CollectiveType.ALL_GATHER, CollectiveType.REDUCE_SCATTER, CollectiveType.ALL_TO_ALL)
    swapped |= kind in (CollectiveType.GATHER, CollectiveType.SCATTER)
    return DescribedCommunication(name=name, sent=second if swapped else first, received=first if swapped else -1)


def _parse_list(text: bytes) -> list[Any]:
    try:
        values = json.loads(text) if text else []
    except (ValueError, RecursionError):
        return []
    return values if isinstance(values, list) else []


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
    size = next((width for word in re.findall(r"[\w:<> ]+", str(types)) if (width := element_bytes(word)) > 0), -1)
    elements = sum(prod(shape) for shape in _shapes(shapes))
    return elements * size if size > 0 and elements > 0 else -1


def _shapes(nested: Any) -> Iterator[list[int]]:
    if isinstance(nested, list) and nested and all(isinstance(item, int) for item in nested):
        yield nested
    elif isinstance(nested, list):
        for item in nested:
            yield from _shapes(item)


KERNEL = re.compile(r"nccl\w*Kernel|rccl|mscclKernel|ncclGeneric", re.IGNORECASE)
"""Kernels of RCCL, and of NCCL: ncclAllReduceRingLLKernel, ncclKernel, ncclDevKernel, ncclSymkDevKernel."""
OPERATOR = re.compile(r"record_param_comms$|_?c10d(_functional)?::(?!wait_tensor|.*monitored)")
GLOO = "gloo:"
MOST_BYTES = 2**62
SENDS, RECEIVES = (NodeType.COMM_SEND, None), (NodeType.COMM_RECV, None)


@dataclass(frozen=True, slots=True)
class Communication:
    """One collective, send or receive."""

    node_type: NodeType
    kind: CollectiveType | None
    """Of a collective."""
    name: str
    size: int
    """Bytes as ASTRA-sim counts them: one rank's shard of an all-gather, the whole buffer of the others; -1 unknown."""
    group: str
    ranks: tuple[int, ...]
    """Of the group; empty where they are not stated."""
    group_size: int
    operator: int
    """The entry of its operator in `Kineto.host`; -1 if there is none."""
    kernel: int | None
    """The entry of its kernel in `Kineto.device`; None if none runs it."""
    annotations: tuple[int, ...]
    """Entries in `Kineto.host` that show it at work: gloo's."""
    issued: int
    start: int
    end: int
    peer: int | None = None
    is_global: bool = False
    """Whether peers are stated by their ranks in the job, not by their places in the group."""
    tag: int = 0
    sequence: int = -1
    """The number of the collective in its group, the same on all ranks; -1 if it is not stated."""
    is_exchange: bool = False
    """Whether it is a kernel that states nothing itself: of sends and receives that were issued together."""
    peers: tuple[int, ...] | None = ()
    """Of a kernel with several messages; None where they are not stated."""


def is_collective_kernel(name: str) -> bool:
    """Return whether a kernel is one of NCCL or RCCL.

    >>> is_collective_kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)")
    True
    >>> is_collective_kernel("ncclAllReduceRingLLKernel_f32(x)"), is_collective_kernel("ncclSymkDevKernel_AllGather")
    (True, True)
    """
    return KERNEL.search(name) is not None


def find_communications(trace: Kineto, details: ExecutionTrace | None = None) -> list[Communication]:
    """Return all collectives, sends and receives, in the order in which they were issued."""
    # The outermost operators that communicate, with those inside each
    host = trace.host
    wanted = [OPERATOR.match(name) is not None and kind_of_operator(name) for name in trace.names]
    found_at = np.flatnonzero(_mark_names(wanted, host.name) & (host.category != CALL))
    order = np.lexsort((-host.end[found_at], host.start[found_at], host.thread[found_at]))
    candidates: list[int] = found_at[order].tolist()
    operators: dict[int, list[int]] = {}
    outer = -1
    for candidate in candidates:
        inside = outer >= 0 and host.thread[candidate] == host.thread[outer] and host.start[candidate] < host.end[outer]
        if inside:
            operators[outer].append(candidate)
        else:
            outer = candidate
            operators[candidate] = []
    described = {entry: _describe_operator(trace, details, entry, inner) for entry, inner in operators.items()}
    kernels = NcclKernels(trace, operators, described)
    communications = list(kernels.communications())
    used = {communication.operator for communication in communications} | kernels.used
    communications += _host_communications(
        trace, {entry: description for entry, description in described.items() if entry not in used}
    )
    return sorted(communications, key=lambda communication: (communication.issued, communication.start))


# ---- who says it


def _mark_names(marks: list[bool], name: Ints) -> npt.NDArray[np.bool_]:
    """Return the marks of entries, by their names."""
    return np.array(marks, bool)[name] if marks else np.zeros(len(name), bool)


def kind_of_operator(name: str) -> bool:
    """Return whether an operator may communicate; `record_param_comms` says in its arguments what it does."""
    return name == "record_param_comms" or communication_kind(name) is not None


def _describe_operator(
    trace: Kineto, details: ExecutionTrace | None, entry: int, inner: list[int]
) -> DescribedCommunication | None:
    """Return the communication of an operator, as far as the profile describes it; None if it does not communicate."""
    for operator in (*inner, entry):
        call = trace.calls.get(("host", operator))
        if call is not None and communication_kind(call.name) is not None:
            return describe_call(call)
    for operator in (entry, *inner) if trace.names[trace.host.name[entry]].startswith(FUNCTIONAL) else (*inner, entry):
        detail = details.details.get(int(trace.host.function[operator])) if details is not None else None
        if (
            detail is not None
            and (communication := describe_details(detail, trace.names[trace.host.name[operator]])) is not None
        ):
            return communication
    name = trace.names[trace.host.name[entry]]
    return describe_inputs(trace, entry, name) if communication_kind(name) is not None else None


# ---- where it runs


class NcclKernels:
    """The kernels of NCCL or RCCL, and the operators that issued what they move."""

    def __init__(
        self, trace: Kineto, operators: Iterable[int], described: Mapping[int, DescribedCommunication | None]
    ) -> None:
        self._trace, self._described = trace, described
        self._around = _EnclosingOperators(trace, list(operators))
        self.used: set[int] = set()
        """Operators whose messages a kernel moves that was launched later."""

    def communications(self) -> Iterator[Communication]:
        """Yield the communications of NCCL's kernels, in the order of their launches."""
        trace, host, device = self._trace, self._trace.host, self._trace.device
        launched = self._kernel_launches()
        inside = {operator for _, _, operator in launched}
        last: dict[int, int] = {}
        for kernel, call, operator in launched:
            recorded = trace.calls.get(("device", kernel))
            description = (
                describe_call(recorded)
                if recorded is not None and communication_kind(recorded.name) is not None
                else self._described.get(operator)
            )
            start, end = int(device.start[kernel]), int(device.end[kernel])
            issuer = operator if operator >= 0 else call
            times = int(host.start[issuer]) if issuer >= 0 else start, start, end
            name = trace.names[device.name[kernel]]
            issued = self._issued_before(call, inside, last) if call >= 0 and operator < 0 else []
            if description is None:
                communication = _join_operators([issued_one for _, issued_one in issued], name, kernel, times)
            else:
                communication = _make_communication(description, operator, kernel, (), times) or _join_operators(
                    [], name, kernel, times
                )
                issued = [
                    (entry, issued_one)
                    for entry, issued_one in issued
                    if communication_kind(issued_one.name) == communication_kind(description.name)
                ]
            self.used.update(entry for entry, _ in issued)
            yield communication
            if call >= 0:
                last[int(host.thread[call])] = int(host.start[call])

    def _issued_before(
        self, call: int, inside: set[int], last: Mapping[int, int]
    ) -> list[tuple[int, DescribedCommunication]]:
        """Return the communications that a thread has issued since its last launch of an NCCL kernel."""
        host = self._trace.host
        listed = self._around.between(
            int(host.thread[call]), last.get(int(host.thread[call]), -1), int(host.start[call])
        )
        described = ((entry, self._described.get(entry)) for entry in listed if entry not in inside)
        return [(entry, description) for entry, description in described if description is not None]

    def _kernel_launches(self) -> list[tuple[int, int, int]]:
        """Return kernels with their launches and the operators around them (-1 if none), in the order of launches."""
        trace, host, device = self._trace, self._trace.host, self._trace.device
        wanted = [is_collective_kernel(name) for name in trace.names]
        kernels = np.flatnonzero(_mark_names(wanted, device.name) & (device.category == LAUNCHED.index("kernel")))
        launches = is_in(host.correlation, sorted_distinct(device.correlation[kernels])) & (host.category == CALL)
        entries = np.flatnonzero(launches & (host.correlation >= 0))
        calls = dict(zip(host.correlation[entries].tolist(), entries.tolist(), strict=True))
        kernel_calls = []
        for kernel in kernels.tolist():
            call = calls.get(int(device.correlation[kernel]), -1)
            kernel_calls.append((kernel, call, self._around.operator(call) if call >= 0 else -1))
        return sorted(
            kernel_calls,
            key=lambda launch: int(host.start[launch[1]]) if launch[1] >= 0 else int(device.start[launch[0]]),
        )


def _join_operators(
    issued: Sequence[DescribedCommunication], name: str, kernel: int, times: tuple[int, int, int]
) -> Communication:
    """Return the communication of a kernel that states none: all that was issued before its launch."""
    merged = _merge_stated(issued) if issued else DescribedCommunication(_kernel_kind(name))
    communication = _make_communication(merged, -1, kernel, (), times) if merged is not None else None
    if communication is not None:
        return replace(communication, is_exchange=communication.kind is None)
    moved = [description for description in issued if communication_kind(description.name) == SENDS] or issued
    sizes = [description.sent if description.sent > 0 else description.received for description in moved]
    peers = [description.peer for description in issued if description.peer is not None]
    return Communication(
        node_type=NodeType.COMM_COLL,
        kind=CollectiveType.ALL_TO_ALL,
        name=name,
        size=min(sum(sizes), MOST_BYTES) if sizes and min(sizes) >= 0 else -1,
        group=issued[0].group if issued else "",
        ranks=issued[0].ranks if issued else (),
        group_size=-1,
        operator=-1,
        kernel=kernel,
        annotations=(),
        issued=times[0],
        start=times[1],
        end=times[2],
        is_global=all(description.is_global for description in issued),
        is_exchange=True,
        peers=tuple(sorted(set(peers))) if issued and len(peers) == len(issued) else None,
    )


def _merge_stated(issued: Sequence[DescribedCommunication]) -> DescribedCommunication | None:
    """Return one message, or collectives of one kind and group as one; None for several messages."""
    first = issued[0]
    if len(issued) == 1:
        return first
    kinds = {(communication_kind(description.name), description.group, description.ranks) for description in issued}
    if len(kinds) > 1 or communication_kind(first.name) in (SENDS, RECEIVES):
        return None
    sent, received = (
        sum(sizes) if min(sizes) >= 0 else -1
        for sizes in ([description.sent for description in issued], [description.received for description in issued])
    )
    return replace(first, sent=sent, received=received)


def _kernel_kind(name: str) -> str:
    """Return the collective in the name of a kernel.

    >>> _kernel_kind("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)")
    'ReduceScatter'
    """
    match = re.search(r"AllReduce|ReduceScatter|AllGather|AllToAll|Broadcast|Reduce|SendRecv|Send|Recv", name)
    return match[0] if match else ""


class _EnclosingOperators:
    """The operators that communicate, to look up by time."""

    def __init__(self, trace: Kineto, operators: list[int]) -> None:
        self._host = trace.host
        self._by_thread: dict[int, list[tuple[int, int]]] = {}
        for entry in operators:
            began = int(trace.host.start[entry])
            self._by_thread.setdefault(int(trace.host.thread[entry]), []).append((began, entry))
        for listed in self._by_thread.values():
            listed.sort()

    def operator(self, call: int) -> int:
        """Return the operator around a call; -1 if there is none."""
        host = self._host
        listed = self._by_thread.get(int(host.thread[call]), [])
        index = bisect_right(listed, (int(host.start[call]), len(host.name))) - 1
        return listed[index][1] if index >= 0 and host.end[listed[index][1]] >= host.start[call] else -1

    def between(self, thread: int, since: int, until: int) -> list[int]:
        """Return the operators of a thread that began between two moments."""
        listed = self._by_thread.get(thread, [])
        first, last = (bisect_right(listed, (moment, len(self._host.name))) for moment in (since, until))
        return [entry for _, entry in listed[first:last]]


def _host_communications(
    trace: Kineto, described: Mapping[int, DescribedCommunication | None]
) -> Iterator[Communication]:
    """Yield the communications without a kernel: gloo's, and those of a single process."""
    host = trace.host
    is_gloo = [name.startswith(GLOO) for name in trace.names]
    gloo = np.flatnonzero(_mark_names(is_gloo, host.name)).tolist()
    work = sorted((int(host.function[entry]), entry) for entry in gloo)
    operators = sorted(
        (int(host.function[entry]), entry) for entry, description in described.items() if description is not None
    )
    working: dict[int, list[int]] = {}
    for function, entry in work:  # numbered right after the operator that began it
        index = bisect_right(operators, (function, len(host.name))) - 1
        if index >= 0:
            working.setdefault(operators[index][1], []).append(entry)
    for _, entry in operators:
        description, shown = described[entry], working.get(entry, [])
        issued, end = int(host.start[entry]), int(host.end[entry])
        start = min((int(host.start[operator]) for operator in shown), default=end)
        end = max((int(host.end[operator]) for operator in shown), default=end)
        communication = (
            _make_communication(description, entry, None, tuple(shown), (issued, start, end))
            if description is not None
            else None
        )
        if communication is not None:
            yield communication


def _make_communication(
    description: DescribedCommunication,
    operator: int,
    kernel: int | None,
    annotations: tuple[int, ...],
    times: tuple[int, int, int],
) -> Communication | None:
    typed = communication_kind(description.name)
    if typed is None:
        return None
    node_type, kind = typed
    issued, start, end = times
    return Communication(
        node_type=node_type,
        kind=kind,
        name=description.name,
        size=min(_size(description, kind, node_type), MOST_BYTES),
        group=description.group,
        ranks=description.ranks,
        group_size=description.group_size,
        operator=operator,
        kernel=kernel,
        annotations=annotations,
        issued=issued,
        start=start,
        end=end,
        peer=description.peer,
        is_global=description.is_global,
        tag=description.tag,
        sequence=description.sequence,
    )


def _size(description: DescribedCommunication, kind: CollectiveType | None, node_type: NodeType) -> int:
    """Return the bytes of a communication: the whole buffer, also where a rank has a part of it."""
    ranks = len(description.ranks) or description.group_size
    if kind == CollectiveType.BARRIER:
        return 0
    # The whole buffer is what a gather receives, and what a scatter sends.
    if kind == CollectiveType.GATHER:
        if description.received > 0:
            return description.received
        return description.sent * ranks if description.sent >= 0 and ranks > 0 else -1
    if kind in (CollectiveType.REDUCE_SCATTER, CollectiveType.SCATTER) and description.sent <= 0:
        return description.received * ranks if description.received > 0 and ranks > 0 else description.sent
    return description.received if node_type == NodeType.COMM_RECV and description.sent <= 0 else description.sent
