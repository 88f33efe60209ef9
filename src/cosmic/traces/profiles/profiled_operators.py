"""Operators as profiles describe them: a name, and the shapes, types and values of inputs and outputs.

PyTorch's execution traces (ET) and the operators of Kineto traces say the same in different words; an
`ProfiledOperator` holds
what either knows. An execution trace also has outputs and the ids of tensors; a Kineto trace has neither, and says
nothing of the tensors in a list.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from cosmic.traces.kernel_work import ELEMENT_BYTES

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
    """One of `cosmic.traces.kernel_work.ELEMENT_BYTES`; empty where it is not known."""
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
