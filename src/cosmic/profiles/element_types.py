"""Types of elements, as PyTorch and NCCL call them."""

from __future__ import annotations

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
