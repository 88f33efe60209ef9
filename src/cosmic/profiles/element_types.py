"""Types of elements, as PyTorch and NCCL call them."""

from __future__ import annotations

_BYTES = (
    (8, ("long", "double", "int64", "float64", "uint64", "complexfloat", "complex<float>")),
    (4, ("int", "float", "int32", "float32", "uint32", "unsigned int")),
    (2, ("half", "bfloat16", "short", "int16", "float16", "uint16")),
    (1, ("byte", "char", "bool", "int8", "uint8", "unsigned char", "signed char", "fp8", "f8")),
)
SIZE_OF = {name: size for size, names in _BYTES for name in names}


def element_bytes(dtype: str) -> int:
    """Return the bytes of an element; -1 where the type is not known.

    >>> element_bytes("BFloat16"), element_bytes("c10::Half"), element_bytes("long int"), element_bytes("Float8_e4m3fn")
    (2, 2, 8, 1)
    """
    lowered = dtype.lower().removeprefix("tensor(").removesuffix(")").removeprefix("c10::").removeprefix("complex")
    if lowered.startswith("float8"):
        return 1
    return SIZE_OF.get(lowered, SIZE_OF.get(lowered.split(" ")[0], -1))
