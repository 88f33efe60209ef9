"""What each kernel of a profile computes: from the operator that launched it, its shapes, and the kernel's name.

`operator_works` is the entry for one operator, `works_of_kernels` for a whole profile. An operator that multiplies
has one kernel that does (two in the backward pass of a convolution) and helpers: memory is cleared, split sums are
added up, gradients are rounded. All kernels of others stream. Where nothing is known of a kernel, its work is None,
never a wrong zero.

A CUDA graph is one launch. A profile names the kernels that it replays, but no operators; a recording of the same
model without graphs has both. So these kernels have the work of kernels of the same name and launch whose operators
are known (`works_by_kernel`). cuBLAS gives GEMMs of different sizes one name and one grid, of as many blocks as
there are SMs: of these, the order decides.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any, NamedTuple

import numpy as np

from cosmic.traces.kernel_work import ELEMENT_BYTES, KernelWork, parse_work
from cosmic.traces.profiles.event_linking import DEVICE, LinkedEvents
from cosmic.traces.profiles.execution_traces import ExecutionTrace, parse_side
from cosmic.traces.profiles.kernel_traffic import Kernel, stream_work, walk_of
from cosmic.traces.profiles.kineto import OPERATOR, Kineto
from cosmic.traces.profiles.operator_gemms import (
    ATTENTION,
    ATTENTION_BACKWARD,
    OPERANDS,
    attention_of,
    convolution_of,
    gemm_of,
    grouped_gemm_of,
    template_of,
)
from cosmic.traces.profiles.profiled_collectives import is_collective_kernel
from cosmic.traces.profiles.profiled_operators import (
    ProfiledOperator,
    operator_of_execution_trace,
    operator_of_kineto,
)

# --------------------------------------------------------------------------------------
# What each kernel of an operator computes, from the operator's shapes and the kernels' names
# --------------------------------------------------------------------------------------


MULTIPLIES = re.compile(
    r"gemm|nvjet|cutlass|xmma|gemv|wgmma|sdpa|fmha|flash|attention|Cijk_|dot_kernel|implicit|conv|winograd|mma|_bmm_"
    r"|[dw]grad|cudnn_infer",
    re.IGNORECASE,
)
"""In the name of a kernel that multiplies."""
HELPS = re.compile(
    r"splitKreduce|reduc|dot_do_o|convert_dq|init_device_workspace|AddPadding|nchwTo|nhwcTo|elementwise|memset"
    r"|scalePackedTensor|postprocess|preprocess|combine|winograd\w*(Data|Filter|Delta|Output)",
    re.IGNORECASE,
)
"""In the name of a kernel beside one that multiplies."""
COPIES = {"HtoD": "copy_h2d", "DtoH": "copy_d2h", "DtoD": "copy_d2d", "PtoP": "copy_d2d"}
COMPOSED = re.compile(
    r"^(autograd::|Optimizer|ProfilerStep|CompiledFunction|Torch-Compiled|## |nccl:|record_param_comms|DistributedData)"
)
"""Names of operators that are made of others: their shapes say nothing of one kernel."""
TEMPLATE = re.compile(r"^triton_(tem_|mm|bmm|flex)")
"""Names of kernels that a compiler makes of templates: they multiply."""
CONVOLUTIONS = re.compile(r"convolution|conv[123]d|_conv_")
RECURRENCES = re.compile(r"cudnn_rnn|miopen_rnn|mkldnn_rnn|lstm_mps")
"""Operators that run a sequence step by step, in one kernel or in thousands: their shapes do not say which."""
MASK = ("dgrad", "wgrad", "")
"""What the flags of a convolution's backward pass ask for; the last is the bias."""
SPLITS = 2
"""Parts of a split sum where the launch does not say how many there are."""
TILE = re.compile(r"(\d+)x(\d+)")


class KernelLaunch(NamedTuple):
    """How a kernel was launched; for copies, what it moved."""

    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    bytes: int | None = None


def operator_works(
    operator: ProfiledOperator | None, kernel_names: Sequence[str], launches: Sequence[KernelLaunch | None] = ()
) -> list[KernelWork | None]:
    """Return the work of each kernel that an operator launched, in order; None where it is not known.

    >>> from cosmic.traces.profiles.profiled_operators import ProfiledTensor
    >>> x, w = ProfiledTensor((4096, 1024), "bf16"), ProfiledTensor((1024, 3072), "bf16")
    >>> kernels, launches = ["Memset (Device)", "nvjet_sm90_tst_256x128"], [KernelLaunch(bytes=4), None]
    >>> found = operator_works(ProfiledOperator("aten::mm", (x, w)), kernels, launches)
    >>> [work.text for work in found]
    ['memset uint8 4', 'gemm bf16 1 4096 3072 1024']
    """
    kernels = [
        kernel_of(name, launches[index] if index < len(launches) else None) for index, name in enumerate(kernel_names)
    ]
    works: list[KernelWork | None] = [copy_work(kernel, operator) for kernel in kernels]
    computing = [
        index
        for index, kernel in enumerate(kernels)
        if not _is_copy(kernel.name)
        and not (kernel.name.startswith(("nccl", "rccl", "msccl")) or "nvshmem" in kernel.name)
    ]
    if operator is None or COMPOSED.search(operator.name):
        return works
    for position, work in zip(
        computing, _compute_works(operator, [kernels[position] for position in computing]), strict=True
    ):
        works[position] = work
    return works


def kernel_of(name: str, launch: KernelLaunch | None) -> Kernel:
    """Return a kernel by its name and how it was launched."""
    if launch is None:
        return Kernel(name)
    return Kernel(
        name, prod(launch.grid) if launch.grid else 0, prod(launch.block) if launch.block else 0, launch.bytes
    )


def _is_copy(name: str) -> bool:
    return name.startswith(("Memset", "Memcpy"))


def copy_work(kernel: Kernel, operator: ProfiledOperator | None) -> KernelWork | None:
    """Return a copy or a memset; its bytes are those of the operator's first tensor where the profile has none."""
    if not _is_copy(kernel.name):
        return None
    moved = kernel.bytes
    if moved is None and operator is not None and operator.base == "copy_" and operator.tensor(0) is not None:
        moved = sum(tensor.bytes for tensor in operator.tensors()[:1])
    if moved is None:
        return None
    kind = next((kind for word, kind in COPIES.items() if word in kernel.name), None)
    if kernel.name.startswith("Memset"):
        kind = "memset"
    return KernelWork(kind, "uint8", (moved,)) if kind else None


def _compute_works(operator: ProfiledOperator, kernels: Sequence[Kernel]) -> list[KernelWork | None]:
    """Return the works of kernels that are no copies."""
    base = operator.base
    if RECURRENCES.search(base):
        return [None] * len(kernels)
    if TEMPLATE.search(base):
        return [template_of(operator) for _ in kernels]
    if base in OPERANDS or base in ("_grouped_mm", "_scaled_grouped_mm"):
        # The works of a GEMM's kernels: the first that multiplies, or the only one, and helpers
        own = [own_index for own_index, candidate in enumerate(kernels) if not HELPS.search(candidate.name)]
        mains = [own_index for own_index in own if MULTIPLIES.search(kernels[own_index].name)] or own
        works: list[KernelWork | None] = []
        for position, launched in enumerate(kernels):
            grouped = "grouped" in operator.base
            gemm = grouped_gemm_of(operator, launched.name) if grouped else gemm_of(operator, launched.name)
            if gemm is None or mains[:1] == [position]:
                works.append(gemm)
            else:
                result_elements = gemm["count"] * gemm["m"] * gemm["n"] if not grouped else gemm["m"] * gemm["n"]
                works.append(_gemm_helper(launched, gemm.dtype, result_elements, kernels[mains[0]] if mains else None))
        return works
    if base in ATTENTION or base in ATTENTION_BACKWARD:
        # The works of attention's kernels: the one that multiplies, and what streams before and after it
        work = attention_of(operator)
        if work is None:
            return [None] * len(kernels)
        main = next((index for index, kernel in enumerate(kernels) if not HELPS.search(kernel.name)), -1)
        return [work if index == main else _attention_helper(work, kernel) for index, kernel in enumerate(kernels)]
    if CONVOLUTIONS.search(base):
        return _convolution_works(operator, kernels)
    if any(walk_of(kernel.name) in ("optimizer", "foreach") for kernel in kernels):
        blocks = sum(kernel.blocks for kernel in kernels)
        shares = [kernel.blocks / blocks if blocks else 1 / len(kernels) for kernel in kernels]
        return [stream_work(operator, kernel, share) for kernel, share in zip(kernels, shares, strict=True)]
    # Whether a kernel multiplies, by its name; kernels of compilers say so in other words
    return [
        None
        if (
            bool(MULTIPLIES.search(kernel.name))
            and not HELPS.search(kernel.name)
            and walk_of(kernel.name) in ("elementwise", "strided")
        )
        else stream_work(operator, kernel)
        for kernel in kernels
    ]


def _gemm_helper(kernel: Kernel, dtype: str, elements: int, main: Kernel | None = None) -> KernelWork:
    """Return the work of a kernel beside a GEMM: it adds up the parts of a split sum, or copies a result."""
    width = ELEMENT_BYTES[dtype]
    parts = _splits(main, elements) * ELEMENT_BYTES["fp32"] if re.search("reduc", kernel.name, re.IGNORECASE) else width
    sizes = (round(elements * parts), round(elements * width), 0, elements, kernel.blocks, kernel.threads)
    return KernelWork("stream", dtype, sizes, walk_of(kernel.name))


def _splits(main: Kernel | None, elements: int) -> int:
    """Return how many parts a split sum has: blocks of the GEMM over its tiles."""
    tile = TILE.search(main.name) if main else None
    if main is None or tile is None or not main.blocks:
        return SPLITS
    return max(SPLITS, min(8, round(main.blocks * int(tile[1]) * int(tile[2]) / max(elements, 1))))


def _attention_helper(work: KernelWork, kernel: Kernel) -> KernelWork:
    """Return the work of a kernel that streams beside attention.

    Before the backward pass, the output times its gradient is summed along each row, and the gradient of queries, in
    single precision, is cleared; after it, that is rounded, and the gradients of keys and values, one for each query
    head, are summed over a group.
    """
    width, single = ELEMENT_BYTES[work.dtype], ELEMENT_BYTES["fp32"]
    rows = work["batch"] * work["heads"] * work["queries"]
    if re.search("reduce_head", kernel.name):
        keys = work["batch"] * work["keys"] * work["width"]
        read, written, elements = width * keys * work["heads"], width * keys * work["kv_heads"], keys * work["heads"]
    elif re.search("convert|postprocess", kernel.name):
        elements = rows * work["width"]
        read, written = single * elements, width * elements
    else:
        elements = rows * work["value_width"]
        read, written = 2 * width * elements, single * rows * (1 + work["width"])
    sizes = (round(read), round(written), 2 * elements, elements, kernel.blocks, kernel.threads)
    return KernelWork("stream", work.dtype, sizes, walk_of(kernel.name))


def _convolution_works(operator: ProfiledOperator, kernels: Sequence[Kernel]) -> list[KernelWork | None]:
    """Return the works of a convolution's kernels; backward, the input's gradient comes before the weight's."""
    backward = "backward" in operator.base
    works: list[KernelWork | None] = []
    phases = _gradients(operator) if backward else ["fprop"]
    before: Kernel | None = None
    for kernel in kernels:
        if HELPS.search(kernel.name) or not MULTIPLIES.search(kernel.name) or not phases:
            works.append(_convolution_helper(operator, kernel, before))
            continue
        phase = _convolution_phase(kernel.name, phases)
        works.append(convolution_of(operator, kernel.name, phase))
        phases = [other for other in phases if other != phase]
        before = kernel
    return works


def _gradients(operator: ProfiledOperator) -> list[str]:
    """Return which gradients the mask of a convolution's backward pass asks for: both where it is not known."""
    mask = next(
        (input_ for input_ in reversed(operator.inputs) if isinstance(input_, tuple) and len(input_) == len(MASK)), ()
    )
    wanted = [phase for phase, flag in zip(MASK, mask, strict=False) if phase and flag is True]
    return wanted or ["dgrad", "wgrad"]


def _convolution_phase(name: str, remaining: Sequence[str]) -> str:
    """Return which gradient a kernel makes, by its name: the weight's multiplies two matrices of as many rows."""
    for phase in ("dgrad", "wgrad"):
        if phase in name and phase in remaining:
            return phase
    layout = re.search(r"_(NT[NT]|nt)(_|$)", name)
    return "wgrad" if layout and "wgrad" in remaining else remaining[0]


def _convolution_helper(operator: ProfiledOperator, kernel: Kernel, before: Kernel | None) -> KernelWork | None:
    """Return the work of a kernel beside a convolution: partial sums of the weight's gradient, or padded tensors."""
    tensors = operator.tensors()
    if len(tensors) < 2 or not all(tensor.is_known for tensor in tensors):
        return None
    weight, images = (
        (tensors[2], tensors[1]) if "backward" in operator.base and len(tensors) > 2 else (tensors[1], tensors[0])
    )
    if "workspace" in kernel.name:
        return KernelWork("stream", weight.dtype, (0, 0, 0, 0, kernel.blocks, kernel.threads), "elementwise")
    operand = weight if re.search("splitK|reduc", kernel.name, re.IGNORECASE) else images
    if (
        "Padding" in kernel.name
        and kernel.blocks * kernel.threads
        and kernel.blocks * kernel.threads < images.elements // 64
    ):
        operand = weight
    return _gemm_helper(kernel, operand.dtype, operand.elements, before)


# --------------------------------------------------------------------------------------
# What kernels compute that a CUDA graph replays: as kernels of the same name and launch whose operators are known
# --------------------------------------------------------------------------------------

GROWING = ("elementwise", "strided", "fused")
"""Kernels whose work is as many times larger as they have blocks."""
Key = tuple[str, tuple[int, ...], tuple[int, ...]]


def works_by_kernel(
    kernels: Sequence[tuple[str, KernelLaunch]], described: Sequence[tuple[str, KernelLaunch, KernelWork | None]]
) -> list[KernelWork | None]:
    """Return the work of each kernel of a graph: that of a *described* one of the same name, grid and block, or None.

    Both are in the order in which they ran. Where as many are known, or a divisor of as many, the n-th takes the n-th
    work; otherwise that at the same part of the way. An elementwise kernel of which only other grids are known takes a
    work in proportion to its blocks.

    >>> add = KernelWork("stream", "bf16", (400, 200, 100, 100, 1, 128), "elementwise")
    >>> once, twice, other = KernelLaunch((1,), (128,)), KernelLaunch((2,), (128,)), KernelLaunch((2,), (64,))
    >>> kernels = [("add", once), ("add", twice), ("add", other)]
    >>> [each and each.text for each in works_by_kernel(kernels, [("add", once, add)])]
    ['stream bf16 elementwise 400 200 100 100 1 128', 'stream bf16 elementwise 800 400 200 200 2 128', None]
    """
    works: dict[Key, list[KernelWork]] = {}
    grown: dict[tuple[str, tuple[int, ...]], KernelWork] = {}
    for name, launch, work in described:
        if work is not None:
            works.setdefault((name, launch.grid, launch.block), []).append(work)
            if work.walk in GROWING and work["blocks"]:
                grown.setdefault((name, launch.block), work)
    keys = [(name, launch.grid, launch.block) for name, launch in kernels]
    counts, seen = Counter(keys), Counter[Key]()
    assigned: list[KernelWork | None] = []
    for key, (name, launch) in zip(keys, kernels, strict=True):
        own = works.get(key)
        if own:
            # Works repeat in order; where counts do not divide, neighbours share one.
            assigned.append(
                own[seen[key] % len(own)] if counts[key] % len(own) == 0 else own[seen[key] * len(own) // counts[key]]
            )
        else:
            assigned.append(_scale_to_blocks(grown.get((name, launch.block)), name, launch))
        seen[key] += 1
    return assigned


def _scale_to_blocks(work: KernelWork | None, name: str, launch: KernelLaunch) -> KernelWork | None:
    """Return a work in proportion to the blocks of a launch, or that of a copy."""
    kernel = kernel_of(name, launch)
    if work is None or not kernel.blocks:
        return copy_work(kernel, None)
    sizes = [round(size * kernel.blocks / work["blocks"]) for size in work.sizes[:4]]
    return replace(work, sizes=(*sizes, kernel.blocks, kernel.threads))


# --------------------------------------------------------------------------------------
# What the kernels of a profile compute, from the operators that launched them
# --------------------------------------------------------------------------------------

Works = list[str | None]
BLOCK_BYTES_PER_NS = 256
"""The most that a block moves: an SM reads 128 bytes a cycle from its cache (NVIDIA, Volta to Hopper), at 2 GHz."""
MOST_SMS = 320
"""More than any accelerator has: so many blocks move something at a time."""


def works_of_kernels(trace: Kineto, linked: LinkedEvents, details: ExecutionTrace | None) -> dict[int, str]:
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
    describer = _WorkDescriber(trace, details)
    works: dict[int, str] = {}
    for operator, entries in by_operator.items():
        for entry, text in zip(entries, describer.works(operator, entries), strict=True):
            if text is not None:
                works[entry] = text
    works = _drop_impossible(trace, works)
    works.update(_drop_impossible(trace, _graph_works(trace, alone, works)))
    return works


def _drop_impossible(trace: Kineto, works: dict[int, str]) -> dict[int, str]:
    """Return *works* without those that kernels cannot have done in the time that they took.

    An operator may launch a small kernel beside the one that walks through its tensors, and a recurrence one for each
    step of its sequence: what such a kernel moves is not known.
    """
    device = trace.device
    durations = (device.end - device.start).tolist()
    parsed = {text: parse_work(text) for text in set(works.values())}
    least = {text: _least_ns(work) for text, work in parsed.items()}
    return {entry: text for entry, text in works.items() if least[text] <= durations[entry]}


def _least_ns(work: KernelWork) -> float:
    """Return the least nanoseconds of a kernel whose blocks are known: all of them at the rate of their caches.

    >>> _least_ns(parse_work("stream fp32 reduce 25000 600 0 6250 1 256"))
    100.0
    """
    if work.kind != "stream" or not work["blocks"]:
        return 0.0
    return (work["read"] + work["written"]) / (BLOCK_BYTES_PER_NS * min(work["blocks"], MOST_SMS))


class _WorkDescriber:
    """Finds what kernels compute; operators of the same shapes that launch the same kernels are looked at once."""

    def __init__(self, trace: Kineto, details: ExecutionTrace | None) -> None:
        self._trace = trace
        self._known: dict[Any, Works] = {}
        device = trace.device
        self._kernel_launches = list(zip(device.name.tolist(), device.launch, device.bytes.tolist(), strict=True))
        self._functions, self._names = trace.host.function.tolist(), trace.host.name.tolist()
        self._detailed = details.details if details is not None else {}

    def works(self, operator: int, entries: Sequence[int]) -> Works:
        """Return the works of the kernels at *entries*, which *operator* launched."""
        trace, device = self._trace, self._trace.device
        launched = tuple(map(self._kernel_launches.__getitem__, entries))
        function = self._functions[operator]
        called = trace.inputs.get(operator) or (function if function in self._detailed else -1 - operator)
        key = self._names[operator], called, launched
        texts = self._known.get(key)
        if texts is None:
            names = [trace.names[device.name[entry]] for entry in entries]
            launches = [_launch(trace, entry) for entry in entries]
            works = operator_works(self._operator(operator), names, launches)
            texts = self._known[key] = [None if work is None else work.text for work in works]
        return texts

    def _operator(self, entry: int) -> ProfiledOperator | None:
        trace = self._trace
        name = trace.names[trace.host.name[entry]]
        detail = self._detailed.get(self._functions[entry])
        described = ProfiledOperator(name)
        if detail is not None:
            described = operator_of_execution_trace(detail.name, parse_side(detail.inputs), parse_side(detail.outputs))
        if described.tensors() or entry not in trace.inputs:
            return described
        shapes, types, values = (_listed(text) for text in trace.inputs[entry])
        return operator_of_kineto(name, {"Input Dims": shapes, "Input type": types, "Concrete Inputs": values})


def _listed(text: bytes) -> list[Any]:
    try:
        values = json.loads(text) if text else []
    except ValueError:
        return []
    return values if isinstance(values, list) else []


def _launch(trace: Kineto, entry: int) -> KernelLaunch:
    """Return how a kernel was launched."""
    text, size = trace.device.launch[entry], int(trace.device.bytes[entry])
    grid, _, block = text.decode(errors="replace").partition("]")
    return KernelLaunch(_numbers(grid), _numbers(block), size if size >= 0 else None)


def _numbers(text: str) -> tuple[int, ...]:
    words = text.replace("[", " ").replace("]", " ").replace(",", " ").split()
    return tuple(int(word) for word in words if word.isdecimal())


def _graph_works(trace: Kineto, alone: Sequence[int], described: dict[int, str]) -> dict[int, str]:
    """Return the works of kernels without an operator (of CUDA graphs): those of equal kernels that have one."""
    if not alone:
        return {}
    names, device = trace.names, trace.device
    others: list[tuple[str, KernelLaunch, KernelWork | None]] = [
        (names[device.name[entry]], _launch(trace, entry), parse_work(text)) for entry, text in described.items()
    ]
    kernels = [(names[device.name[entry]], _launch(trace, entry)) for entry in alone]
    works = works_by_kernel(kernels, others)
    return {entry: work.text for entry, work in zip(alone, works, strict=True) if work is not None}
