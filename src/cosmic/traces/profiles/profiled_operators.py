"""Operators as profiles describe them: a name, and the shapes, types and values of inputs and outputs.

PyTorch's execution traces (ET) and the operators of Kineto traces say the same in different words; an
`ProfiledOperator` holds what either knows. An execution trace also has outputs and the ids of tensors; a Kineto trace has neither, and says
nothing of the tensors in a list.

**Traffic.** What kernels move that compute little, by operator and by the kernel's name. An operator reads its inputs and writes its outputs, each once. Where that is not so, `TRAFFIC` says what is: a copy
does not read where it writes, an index picks a few rows of a table, and of the several kernels of a backward pass
each has a part. Operators that are not listed count all of their tensors.

`walk_of` and `operations_of` say how a kernel walks through memory and what it computes for each element, by its
name. PyTorch's kernels are templates whose names say what they are; a compiler's kernels list the operators that
they fuse.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

from cosmic.step.kernel_prices import ELEMENT_BYTES, KernelWork, profile_constants

DTYPES = {
    "bfloat16": "bf16",
    "half": "fp16",
    "float": "fp32",
    "double": "fp64",
    "long int": "int64",
    "long": "int64",
    "int": "int32",
    "short int": "int16",
    "short": "int16",
    "signed char": "int8",
    "char": "int8",
    "unsigned char": "uint8",
    "byte": "uint8",
    "bool": "bool",
    "complex<float>": "complex64",
    "complex<double>": "complex128",
    "float8_e4m3fn": "fp8",
    "float8_e4m3fnuz": "fp8",
    "float8_e5m2": "fp8",
    "float8_e5m2fnuz": "fp8",
    "float8_e8m0fnu": "fp8",
    "float4_e2m1fn_x2": "fp4",
}
"""Number formats by PyTorch's names of them, in small letters and without the namespace."""
SCALARS = {"": None, "<None>": None, "True": True, "False": False, "true": True, "false": False}
LIST = "GenericList["


@dataclass(frozen=True, slots=True)
class ProfiledTensor:
    """What a profile says of one tensor."""

    shape: tuple[int, ...]
    dtype: str = ""
    """One of `cosmic.step.kernel_prices.ELEMENT_BYTES`; empty where it is not known."""
    strides: tuple[int, ...] = ()
    """In elements; empty where they are not known."""
    id: int = 0
    """Equal for equal tensors of one trace; 0 where it is not known."""
    device: str = ""

    @property
    def elements(self) -> int:
        """Number of elements.

        >>> ProfiledTensor((2, 3), "fp32").elements, ProfiledTensor((), "fp32").elements
        (6, 1)
        """
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        """Bytes in memory; what is expanded, with a stride of 0, is there once.

        >>> ProfiledTensor((2, 3), "fp32", (3, 1)).bytes, ProfiledTensor((2, 3), "fp32", (0, 1)).bytes
        (24, 12)
        """
        held = self.shape
        if len(self.strides) == len(held):
            held = tuple(size for size, stride in zip(held, self.strides, strict=True) if stride)
        width = ELEMENT_BYTES.get(self.dtype, 0)
        return round(prod(held) * width) if self.elements else 0

    @property
    def is_known(self) -> bool:
        """Whether its bytes are known."""
        return self.dtype in ELEMENT_BYTES

    @property
    def on_device(self) -> bool:
        """Whether the tensor is in an accelerator's memory; true where its device is not recorded."""
        return not self.device.startswith("cpu")


Value = Any
"""A `ProfiledTensor`, a tuple of values, a number, a truth value, text, or None where there is none or it is not
known."""


@dataclass(frozen=True, slots=True)
class ProfiledOperator:
    """An operator that launched kernels."""

    name: str
    inputs: tuple[Value, ...] = ()
    outputs: tuple[Value, ...] = ()
    """Empty where the profile does not say."""

    @property
    def base(self) -> str:
        """The name without its namespace, overload and prefix.

        >>> ProfiledOperator("aten::add_").base, ProfiledOperator("aten::mul.out").base
        ('add_', 'mul')
        """
        return self.name.rpartition("::")[2].partition(".")[0]

    @property
    def in_place(self) -> bool:
        """Whether it overwrites its first input."""
        return self.base.endswith("_") and not self.base.endswith("__")

    def tensor(self, index: int) -> ProfiledTensor | None:
        """Return an input that is a tensor, or None."""
        value = self.inputs[index] if index < len(self.inputs) else None
        return value if isinstance(value, ProfiledTensor) else None

    def tensors(self) -> list[ProfiledTensor]:
        """Return all tensors of the inputs, those in lists as well."""
        return list(tensors_in(self.inputs))

    def results(self) -> list[ProfiledTensor]:
        """Return all tensors of the outputs that the profile knows."""
        return list(tensors_in(self.outputs))


def tensors_in(values: Sequence[Value]) -> Iterator[ProfiledTensor]:
    """Return the tensors among *values* and in lists among them."""
    for value in values:
        if isinstance(value, ProfiledTensor):
            yield value
        elif isinstance(value, tuple):
            yield from tensors_in(value)


def dtype_of(text: str) -> str:
    """Return the number format that a profile calls *text*, or nothing.

    >>> dtype_of("c10::BFloat16"), dtype_of("Tensor(long int)"), dtype_of("Device")
    ('bf16', 'int64', '')
    """
    inner = text.removeprefix("Tensor(").removesuffix(")") if text.startswith("Tensor(") else text
    return DTYPES.get(inner.removeprefix("c10::").removeprefix("at::").lower(), "")


def operator_of_execution_trace(name: str, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> ProfiledOperator:
    """Return the operator of a node of an execution trace; both mappings have values, shapes, types and maybe strides.

    >>> text = {"values": [[5, 6, 0, 6, 4, "cuda:0"], 2], "shapes": [[2, 3], []], "types": ["Tensor(float)", "Int"]}
    >>> operator_of_execution_trace("aten::mul", text, {}).inputs
    (ProfiledTensor(shape=(2, 3), dtype='fp32', strides=(), id=5, device='cuda:0'), 2)
    """
    return ProfiledOperator(name, _recorded_values(inputs), _recorded_values(outputs))


def _recorded_values(side: Mapping[str, Any]) -> tuple[Value, ...]:
    """Return the values of one side of a node."""
    values, shapes, types = (_as_list(side.get(key)) for key in ("values", "shapes", "types"))
    strides = _as_list(side.get("strides"))
    recorded_list = []
    for index, value in enumerate(values):
        shape, kind, stride = (column[index] if index < len(column) else None for column in (shapes, types, strides))
        recorded_list.append(_operator_value(value, shape, str(kind), stride))
    return tuple(recorded_list)


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _operator_value(value: Any, shape: Any, kind: str, stride: Any) -> Value:
    """Return one value; a list keeps its members."""
    if kind.startswith("Tensor("):
        # The tensor of [id, storage, offset, elements, element's bytes, device]; None if it holds nothing
        parts = _as_list(value)
        if "nullptr" in kind or not _is_shape(shape):
            return None
        number = parts[0] if parts and isinstance(parts[0], int) else 0
        device = parts[5] if len(parts) > 5 and isinstance(parts[5], str) else ""
        steps = tuple(stride) if _is_shape(stride) and len(stride) == len(shape) else ()
        return ProfiledTensor(tuple(shape), dtype_of(kind), steps, number, device)
    if kind.startswith(LIST):
        kinds = kind.removeprefix(LIST).removesuffix("]").split(",")
        members, shapes, strides = _as_list(value), _as_list(shape), _as_list(stride)
        if len(kinds) < len(members):
            kinds += [kinds[-1]] * (len(members) - len(kinds))
        return tuple(
            _operator_value(member, _value_at(shapes, index), kinds[index], _value_at(strides, index))
            for index, member in enumerate(members)
        )
    return SCALARS.get(value, value) if isinstance(value, str) else value


def _value_at(values: list[Any], index: int) -> Any:
    return values[index] if index < len(values) else None


def _is_shape(value: Any) -> bool:
    """Return whether *value* is a list of whole numbers that are not negative."""
    return isinstance(value, list) and all(isinstance(size, int) and size >= 0 for size in value)


def operator_of_kineto(name: str, arguments: Mapping[str, Any]) -> ProfiledOperator:
    """Return the operator of a `cpu_op` event of a Kineto trace, from its arguments.

    >>> event = {"Input Dims": [[2, 3], []], "Input type": ["float", "Scalar"], "Concrete Inputs": ["", "2"]}
    >>> operator_of_kineto("aten::mul", event).inputs
    (ProfiledTensor(shape=(2, 3), dtype='fp32', strides=(), id=0, device=''), 2)
    """
    shapes, types = _as_list(arguments.get("Input Dims")), _as_list(arguments.get("Input type"))
    scalars, strides = _as_list(arguments.get("Concrete Inputs")), _as_list(arguments.get("Input Strides"))
    values: list[Value] = []
    for index, kind in enumerate(types):
        shape, stride, text = _value_at(shapes, index), _value_at(strides, index), _value_at(scalars, index)
        if isinstance(kind, str) and dtype_of(kind) and _is_shape(shape):
            steps = tuple(stride) if _is_shape(stride) and len(stride) == len(shape) else ()
            values.append(ProfiledTensor(tuple(shape), dtype_of(kind), steps))
        elif kind == "TensorList" and isinstance(shape, list) and all(map(_is_shape, shape)):
            values.append(tuple(ProfiledTensor(tuple(sizes)) for sizes in shape))
        else:
            values.append(_scalar(text))
    return ProfiledOperator(name, tuple(values))


def _scalar(text: Any) -> Value:
    """Return the value that a Kineto trace writes as text."""
    if not isinstance(text, str):
        return None
    if text.startswith("[") and text.endswith("]"):
        return tuple(_scalar(part.strip()) for part in text[1:-1].split(",") if part.strip())
    if text in SCALARS:
        return SCALARS[text]
    try:
        number = float(text)
    except ValueError:
        return text
    return int(number) if number.is_integer() and "." not in text and "e" not in text else number


# ---- What kernels of operators move through memory


class Kernel(NamedTuple):
    """A kernel as a profile knows it."""

    name: str
    blocks: int = 0
    threads: int = 0
    """Of a block."""
    bytes: int | None = None
    """Moved by a copy, where the profile says so."""


COUNTS = r"InitKernel|ExclusiveSum|init_device_workspace|compute_num_of"
"""In the names of kernels that set a few counters, whatever their operator moves."""
WALK_OF = (
    ("elementwise", rf"{COUNTS}|splitKreduce|ReduceSplitK"),
    ("fused_sum", r"^triton_(red|per|mix|split)"),
    ("fused", r"^triton_"),
    ("optimizer", r"[Ff]used_?(Adam|Optimizer|SGD|adam|sgd)"),
    ("foreach", r"multi_tensor_apply"),
    ("sort", r"[Rr]adix|[Ss]ort|topk|TopK|Device(Scan|Unique|Compact|Reduce)|[Hh]istogram|segment(?!_k_)"),
    ("strided", r"_scatter_gather_elementwise"),
    ("gather", r"indexing_backward"),
    ("scatter", r"scatter|embedding_backward|grad_weight|index_?[Aa]dd|indexFunc|index_put|atomic"),
    ("gather", r"gather|EmbeddingBag|index_kernel|index_?[Ss]elect|embedding|nll_loss"),
    ("reduce", r"GammaBeta|batch_norm.*(reduce|collect)|[Rr]educe(?!_head)|ComputeInternalGradients"),
    ("norm", r"softmax_warp|SoftMax\w*Smem"),
    ("softmax", r"[Ss]oft_?[Mm]ax"),
    ("norm", r"layer_norm|LayerNorm|rms_norm|RMSNorm|RowwiseMoments|GroupNorm"),
    (
        "strided",
        r"(^|[: ])(unrolled_)?elementwise_kernel<|index_elementwise|CatArrayBatchedCopy<|transpose|nchwTo|nhwcTo",
    ),
)
"""How a kernel walks through memory, by its name; the first that fits counts, and elementwise where none does."""
_WALKS = tuple((walk, re.compile(pattern)) for walk, pattern in WALK_OF)
OPERATIONS = {operation.name: operation.count for operation in profile_constants().operations}
"""Operations of the vector units for an element, by operator, or by a part of a kernel's name."""
FEW = 2
"""Operations of operators that are not listed."""
PARTS = ("collect_statistics", "backward_reduce", "backward_elemt", "transform_input")
"""Kernels of a batch norm, by a part of their names."""


def walk_of(kernel: str) -> str:
    """Return how a kernel walks through memory, by its name.

    >>> walk_of("void at::native::vectorized_elementwise_kernel<8, FillFunctor"), walk_of("triton_poi_fused_add_0")
    ('elementwise', 'fused')
    """
    return next((walk for walk, pattern in _WALKS if pattern.search(kernel)), "elementwise")


def operations_of(operator: ProfiledOperator, kernel: str = "") -> int:
    """Return the operations for an element: of all operators that a fused kernel's name lists.

    A fused kernel that sums does so after another has computed; only a softmax is both.

    >>> operations_of(ProfiledOperator("aten::gelu")), operations_of(ProfiledOperator("aten::add"))
    (55, 2)
    >>> operations_of(ProfiledOperator("triton_poi_fused_add_gelu_3")), operations_of(ProfiledOperator("triton_red_fused_gelu_sum_3"))
    (57, 2)
    """
    base = operator.base.strip("_")
    if operator.name.startswith("triton_"):
        words = [
            fused_word
            for fused_word in fused_words(operator.name)
            if walk_of(operator.name) == "fused" or fused_word == "softmax"
        ]
        return sum(OPERATIONS.get(word, 0) for word in words) + FEW
    if "adam" in base:
        return OPERATIONS["adam"]
    if "batch_norm" in base:
        return next((OPERATIONS[part] for part in PARTS if part in kernel), FEW)
    if base == "cat" and walk_of(kernel) != "strided":
        return FEW
    return OPERATIONS.get(base.removeprefix("foreach_"), FEW)


def fused_words(name: str) -> list[str]:
    """Return the operators in the name of a kernel that a compiler fused.

    >>> fused_words("triton_poi_fused__unsafe_view_gelu_gelu_backward_7")
    ['gelu', 'gelu_backward']
    """
    words = name.split("_fused_", 1)[-1].split("_")
    operations = []
    for index, word in enumerate(words):
        if (word in OPERATIONS and word != "cat") or word in ("add", "mul", "sub"):  # a fused kernel joins for free
            after = words[index + 1] if index + 1 < len(words) else ""
            operations.append(f"{word}_backward" if after == "backward" and f"{word}_backward" in OPERATIONS else word)
    return operations


SECTOR_BYTES = 32
"""What a read of one element moves: GPUs read memory in sectors of 32 bytes."""


class KernelTraffic(NamedTuple):
    """Bytes read and written, and the elements that a kernel computes."""

    read: int
    written: int
    elements: int


WRITES_ONLY = (
    "copy_",
    "fill_",
    "zero_",
    "zeros",
    "zeros_like",
    "ones",
    "full",
    "arange",
    "normal_",
    "uniform_",
    "random_",
)
"""Operators that do not read their first input."""
REDUCTIONS = (
    "sum",
    "mean",
    "amax",
    "amin",
    "argmax",
    "argmin",
    "max",
    "min",
    "norm",
    "linalg_vector_norm",
    "var",
    "std",
    "prod",
    "all",
    "any",
)


def stream_work(operator: ProfiledOperator, kernel: Kernel, share: float = 1.0) -> KernelWork | None:
    """Return the work of a kernel, *share* of its operator's traffic; None if the tensors are unknown.

    >>> x = ProfiledTensor((1024, 512), "bf16")
    >>> stream_work(ProfiledOperator("aten::add", (x, x, 1), (x,)), Kernel("vectorized_elementwise_kernel<4>", 256, 128)).text
    'stream bf16 elementwise 2097152 1048576 1048576 524288 256 128'
    """
    tensors = [*operator.tensors(), *operator.results()]
    if not tensors or not any(tensor.is_known for tensor in tensors):
        return None
    if not all(tensor.is_known for tensor in tensors if tensor.elements):
        return None
    traffic = _traffic(operator, kernel)
    main = max((tensor for tensor in tensors if tensor.is_known), key=lambda tensor: tensor.elements)
    flop = traffic.elements * operations_of(operator, kernel.name)
    sizes = [round(share * amount) for amount in (traffic.read, traffic.written, flop, traffic.elements)]
    return KernelWork("stream", main.dtype, (*sizes, kernel.blocks, kernel.threads), walk_of(kernel.name))


def total_device_bytes(tensors: Sequence[ProfiledTensor | None]) -> int:
    """Return the bytes of those tensors that are on a device."""
    return sum(tensor.bytes for tensor in tensors if tensor is not None and tensor.on_device)


def _traffic(operator: ProfiledOperator, kernel: Kernel) -> KernelTraffic:
    if re.search(COUNTS, kernel.name):
        return KernelTraffic(0, 0, 0)
    if "::" not in operator.name and not operator.outputs:  # a kernel of Triton, which names all that it touches
        return _fused_traffic(operator)
    rule = _foreach_traffic if operator.base.startswith(("_foreach_", "_amp_foreach")) else TRAFFIC.get(operator.base)
    return rule(operator, kernel) if rule else usual_traffic(operator)


def usual_traffic(operator: ProfiledOperator) -> KernelTraffic:
    """Return the traffic of an operator that reads its inputs and writes its outputs.

    An input that is also an output is where the result goes, and is read only by operators that change it in place.

    >>> x, y = ProfiledTensor((4, 4), "fp32", id=1), ProfiledTensor((4, 4), "fp32", id=2)
    >>> usual_traffic(ProfiledOperator("aten::add_", (x, y), (x,))), usual_traffic(ProfiledOperator("aten::neg", (x, y), (y,))).read
    (KernelTraffic(read=128, written=64, elements=16), 64)
    """
    inputs, results = operator.tensors(), operator.results()
    outputs = {result.id for result in results if result.id}
    if operator.base in WRITES_ONLY:
        inputs = inputs[1:]
    elif not operator.in_place:
        inputs = [input_ for input_ in inputs if input_.id not in outputs]
    if not results:
        results = _guess_outputs(operator)
    elements = max((tensor.elements for tensor in (*inputs, *results)), default=0)
    return KernelTraffic(total_device_bytes(inputs), total_device_bytes(results), elements)


def _guess_outputs(operator: ProfiledOperator) -> list[ProfiledTensor]:
    """Return the outputs of an operator where the profile says nothing of them: as large as its largest input."""
    tensors = operator.tensors()
    if not tensors or operator.base.strip("_") in REDUCTIONS:
        return []
    if operator.in_place:
        return tensors[:1]
    shape = max(tensors, key=lambda tensor: tensor.elements)
    return [ProfiledTensor(shape.shape, shape.dtype)]


def _fused_traffic(operator: ProfiledOperator) -> KernelTraffic:
    """Return the traffic of a fused kernel: each of its tensors once.

    One that is changed in place is both read and written, and a profile does not say which is. Where an operator that
    takes two tensors has two in all, one of them must be. Rows picked out of a table are as many as the largest other
    tensor has.
    """
    tensors = operator.tensors()
    if "nll_loss_forward" in operator.name and "backward" not in operator.name:
        return _masked_select_traffic(operator, Kernel(operator.name))
    operands = [tensor for tensor in tensors if not _is_table(operator, tensor, tensors)]
    largest = max((operand.elements for operand in operands), default=0)
    moved = sum(min(tensor.bytes, round(largest * ELEMENT_BYTES[tensor.dtype])) for tensor in tensors)
    full = [operand for operand in operands if operand.elements == largest]
    joins = any(word in ("add", "mul", "sub") or word.endswith("backward") for word in fused_words(operator.name))
    if joins and len(full) == 2 and "_poi_" in operator.name:
        return KernelTraffic(moved, full[0].bytes, largest)
    written = min(tensors[-1].bytes, moved)  # outputs come last
    return KernelTraffic(moved - written, written, largest)


def _is_table(operator: ProfiledOperator, tensor: ProfiledTensor, tensors: Sequence[ProfiledTensor]) -> bool:
    """Return whether a tensor is a table of embeddings, of which a fused kernel reads the rows of an index."""
    picks = "embedding" in operator.name and "_poi_" not in operator.name
    return (
        picks
        and len(tensor.shape) == 2
        and any(candidate.dtype == "int64" for candidate in tensors)
        and all(tensor is candidate or tensor.elements > candidate.elements for candidate in tensors)
    )


def _index_select_traffic(operator: ProfiledOperator, _: Kernel) -> KernelTraffic:
    """Return the traffic of an index select: the selected rows of the table, and the index."""
    results = operator.results()
    index = [tensor for tensor in operator.tensors()[1:] if tensor.dtype in ("int64", "int32", "bool")]
    if not results:
        return usual_traffic(operator)
    result = results[0]
    return KernelTraffic(result.bytes + total_device_bytes(index), result.bytes, result.elements)


def _index_add_traffic(operator: ProfiledOperator, kernel: Kernel) -> KernelTraffic:
    """Return the traffic of an index add: the rows, and as many rows of the table, read and written."""
    if walk_of(kernel.name) in ("elementwise", "strided") and "index" not in kernel.name:
        results = operator.results() or operator.tensors()[:1]  # the copy of the table that rows are added to
        return KernelTraffic(
            total_device_bytes(results), total_device_bytes(results), sum(part.elements for part in results[:1])
        )
    tensors = operator.tensors()
    index = [tensor for tensor in tensors[1:] if tensor.dtype in ("int64", "int32")]
    if walk_of(kernel.name) == "sort":
        return KernelTraffic(
            2 * total_device_bytes(index), 2 * total_device_bytes(index), sum(part.elements for part in index[:1])
        )
    rows = [tensor for tensor in tensors[1:] if tensor.dtype not in ("int64", "int32")]
    source = max(rows, key=lambda part: part.elements, default=None)
    moved = source.bytes if source else 0
    return KernelTraffic(2 * moved + total_device_bytes(index), moved, source.elements if source else 0)


def _embedding_bag_traffic(operator: ProfiledOperator, _: Kernel) -> KernelTraffic:
    """Return the traffic of an embedding bag: the row of each index is read, a sum for each bag written."""
    table, index = operator.tensor(0), operator.tensor(1)
    if table is None or index is None or len(table.shape) != 2:
        return usual_traffic(operator)
    rows = ProfiledTensor((index.elements, table.shape[1]), table.dtype)
    return KernelTraffic(rows.bytes + index.bytes, total_device_bytes(operator.results()[:1]), rows.elements)


def _embedding_gradient_traffic(operator: ProfiledOperator, kernel: Kernel) -> KernelTraffic:
    """Return the traffic of a kernel of an embedding's gradient: keys are sorted, rows summed in parts, parts added."""
    gradient, index = operator.tensor(0), operator.tensor(1)
    if gradient is None or index is None or not gradient.shape:
        return usual_traffic(operator)
    count, width = index.elements, gradient.shape[-1]
    if walk_of(kernel.name) != "scatter":
        keys = count * ELEMENT_BYTES["int64"]
        return KernelTraffic(round(2 * keys), round(2 * keys), count)
    rows = round(count * width * ELEMENT_BYTES[gradient.dtype])
    parts = round(count * width * ELEMENT_BYTES["fp32"])
    if "sum_and_scatter" in kernel.name:
        return KernelTraffic(parts, rows, count * width)
    return KernelTraffic(rows, parts, count * width)


def _norm_gradient_traffic(operator: ProfiledOperator, kernel: Kernel) -> KernelTraffic:
    """Return the traffic of a kernel of a norm's backward pass: gradient, input, and its own result."""
    gradient, inputs = operator.tensor(0), operator.tensor(1)
    if gradient is None or inputs is None:
        return usual_traffic(operator)
    small = re.search(r"GammaBeta|backward_reduce|grad_weight|gamma_beta", kernel.name)
    return KernelTraffic(gradient.bytes + inputs.bytes, 0 if small else inputs.bytes, inputs.elements)


def _batch_norm_traffic(operator: ProfiledOperator, kernel: Kernel) -> KernelTraffic:
    """Return the traffic of a kernel of a batch norm: one sums, one scales, others are small."""
    inputs = operator.tensor(0)
    if inputs is None:
        return usual_traffic(operator)
    if re.search(r"multi_outputs|update_stats|invstd", kernel.name):
        small = total_device_bytes([tensor for tensor in operator.tensors()[1:] if tensor.elements < inputs.elements])
        return KernelTraffic(small, small, inputs.shape[1] if len(inputs.shape) > 1 else 1)
    written = 0 if re.search(r"collect_statistics|reduce", kernel.name) else inputs.bytes
    return KernelTraffic(inputs.bytes, written, inputs.elements)


def _masked_select_traffic(operator: ProfiledOperator, _: Kernel) -> KernelTraffic:
    """Return the traffic of a loss that picks one score of each row: a sector of memory for each."""
    target = next((tensor for tensor in operator.tensors() if tensor.dtype == "int64"), None)
    rows = target.elements if target else 0
    picked = rows * SECTOR_BYTES
    backward = "backward" in operator.base
    return KernelTraffic(rows * 8 + (0 if backward else picked), picked if backward else 0, rows)


def _fill_traffic(operator: ProfiledOperator, _: Kernel) -> KernelTraffic:
    """Return the traffic of an operator that only writes."""
    results = operator.results() or operator.tensors()[:1]
    return KernelTraffic(0, total_device_bytes(results), sum(tensor.elements for tensor in results))


def _slice_traffic(operator: ProfiledOperator, _: Kernel) -> KernelTraffic:
    """Return the traffic of a copy into slices: its first input is read and written."""
    source = operator.tensor(0)
    return KernelTraffic(source.bytes, source.bytes, source.elements) if source else usual_traffic(operator)


def _foreach_traffic(operator: ProfiledOperator, _: Kernel) -> KernelTraffic:
    """Return the traffic of a foreach operator: all tensors are read, and the first list is written in place."""
    lists = [list(tensors_in([input_])) for input_ in operator.inputs if isinstance(input_, tuple)]
    if not lists:
        return usual_traffic(operator)
    copies = operator.base in ("_foreach_copy_", "_foreach_zero_")
    read = sum(map(total_device_bytes, lists[1:] if copies else lists))
    written = total_device_bytes(lists[0]) if operator.in_place else total_device_bytes(operator.results())
    return KernelTraffic(read, written, sum(tensor.elements for tensor in lists[0]))


def _adam_traffic(operator: ProfiledOperator, _: Kernel) -> KernelTraffic:
    """Return the traffic of a fused Adam: weights, gradients and moments are read; all but gradients are written.

    >>> w = (ProfiledTensor((10, 10), "bf16"),)
    >>> _adam_traffic(ProfiledOperator("aten::_fused_adamw_", (w, w, w, w, (), ())), Kernel(""))
    KernelTraffic(read=800, written=600, elements=100)
    """
    lists = [list(tensors_in([input_])) for input_ in operator.inputs if isinstance(input_, tuple)]
    state = [tensors for tensors in lists if tensors and any(len(tensor.shape) for tensor in tensors)]
    written = sum(total_device_bytes(tensors) for index, tensors in enumerate(state) if index != 1)
    return KernelTraffic(
        sum(map(total_device_bytes, state)), written, sum(parameter.elements for parameter in state[0]) if state else 0
    )


LISTS = ("_fused_adam_", "_fused_adamw_", "_fused_sgd_", "_fused_adagrad_")
TRAFFIC: dict[str, Callable[[ProfiledOperator, Kernel], KernelTraffic]] = {
    **dict.fromkeys(("embedding", "index_select", "index", "gather", "take", "take_along_dim"), _index_select_traffic),
    **dict.fromkeys(
        ("index_add", "index_add_", "scatter_add", "scatter_add_", "index_put_", "_index_put_impl_"), _index_add_traffic
    ),
    **dict.fromkeys(("_embedding_bag", "_embedding_bag_forward_only"), _embedding_bag_traffic),
    **dict.fromkeys(("embedding_dense_backward", "_embedding_bag_dense_backward"), _embedding_gradient_traffic),
    **dict.fromkeys(
        ("native_layer_norm_backward", "_fused_rms_norm_backward", "native_batch_norm_backward"), _norm_gradient_traffic
    ),
    **dict.fromkeys(("native_batch_norm", "_batch_norm_with_update", "cudnn_batch_norm"), _batch_norm_traffic),
    **dict.fromkeys(("nll_loss_forward", "nll_loss_backward", "nll_loss2d_forward"), _masked_select_traffic),
    **dict.fromkeys(("fill_", "zero_", "arange", "normal_", "uniform_", "random_"), _fill_traffic),
    "split_with_sizes_copy": _slice_traffic,
    **dict.fromkeys(LISTS, _adam_traffic),
}
"""Operators that do not move each tensor once."""
