"""The shared library beside this file, if there is one that was built from these very sources.

What its functions take and give is read from their heads in C, so that Python states no signature again.
"""

from __future__ import annotations

import os
import re
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from ctypes import CDLL

Declared = TypeVar("Declared", bound="CDLL")

FOLDER = Path(__file__).parent
SWITCH = "COSMIC_NATIVE"
"""The environment variable that turns the library off where it is 0."""
FLAGS = ("-O3", "-std=c99", "-fPIC", "-shared", "-fno-math-errno", "-ffp-contract=off", "-fvisibility=hidden")
"""How it is compiled. No -ffast-math and no fused multiply-add: results are NumPy's, bit for bit."""

_EXPORTED = re.compile(r"^COSMIC_EXPORT ([\w ]+?\*?) ?(cosmic_\w+)\(([^)]*)\)", re.MULTILINE)


def native_library() -> CDLL | None:
    """Return the library; None where there is none, where it cannot be loaded, and where `COSMIC_NATIVE` is 0."""
    return None if os.environ.get(SWITCH) == "0" else _cached_library()


@cache
def _cached_library() -> CDLL | None:
    return load_library(FOLDER)


def load_library(folder: Path) -> CDLL | None:
    """Return the library in *folder* that belongs to the sources there; None if there is none that works."""
    try:
        wanted = source_digest(folder)
        path = folder / library_file_name(wanted)
        if not path.is_file():
            return None
        from ctypes import CDLL  # noqa: PLC0415  only where there is something to load

        library = declare_functions(CDLL(str(path)), folder)
        return library if library.cosmic_native_digest() == wanted.encode() else None
    except (ImportError, OSError, AttributeError):  # another C library, half a file, a file of somebody else
        return None


def declare_functions(library: Declared, folder: Path = FOLDER) -> Declared:
    """Return *library* with the types of its functions declared, as the sources in *folder* have them.

    Addresses are taken as numbers, by reference, or as None; numbers need no wrapping.
    """
    import ctypes  # noqa: PLC0415  `import cosmic.base.native` costs nothing

    types: dict[str, Any] = {
        "int64_t": ctypes.c_int64,
        "int32_t": ctypes.c_int32,
        "int": ctypes.c_int,
        "double": ctypes.c_double,
        "void": None,
        "char *": ctypes.c_char_p,
    }

    def type_of(declared: str) -> Any:
        plain = " ".join(declared.replace("const ", "").split())
        return types.get(plain, ctypes.c_void_p if "*" in plain else None)

    for path in source_files(folder):
        for result, name, taken in _EXPORTED.findall(path.read_text()):
            function = getattr(library, name)
            function.restype = type_of(result)
            heads = (re.fullmatch(r"(.*?)\w+", head.strip(), re.DOTALL) for head in taken.split(","))
            function.argtypes = [type_of(head[1]) for head in heads if head and head[1]]
    return library


def source_files(folder: Path = FOLDER) -> list[Path]:
    """Return the files in C, in the order in which they are compiled, and then their headers."""
    return [*sorted(folder.glob("*.c")), *sorted(folder.glob("*.h"))]


def source_digest(folder: Path = FOLDER) -> str:
    """Return twelve digits that change with any source and with how they are compiled."""
    from hashlib import sha256  # noqa: PLC0415  `import cosmic.base.native` costs nothing

    state = sha256("\0".join(FLAGS).encode())
    for path in source_files(folder):
        content = path.read_bytes()
        state.update(f"\0{path.name}\0{len(content)}\0".encode() + content)
    return state.hexdigest()[:12]


def library_file_name(digest: str) -> str:
    """Return the name of the library of a digest on this machine; the point inside keeps it from being a module.

    >>> library_file_name("0123456789ab") == f"_native-0123456789ab.{platform_tag()}.so"
    True
    """
    return f"_native-{digest}.{platform_tag()}.so"


def platform_tag() -> str:
    """Return what a library is made for, such as linux-x86_64."""
    return f"{sys.platform}-{os.uname().machine if hasattr(os, 'uname') else 'unknown'}"
