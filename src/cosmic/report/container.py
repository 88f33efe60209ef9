"""A container: JSON and the binary numbers that it points to. `ui/src/container.ts` reads it.

    "CSMC"   u32 length of the JSON   JSON, UTF-8   the binary part

Numbers wider than a byte are stored in byte planes (all lowest bytes, then all next ones …): neighbours are alike
there, which halves the gzipped size. A page holds a container as base64 of gzip, in which nothing can become markup.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64encode
from typing import Any

import numpy as np
import numpy.typing as npt

from cosmic.base.json_types import json_object
from cosmic.report.document_types import Packed, Type

MAGIC = b"CSMC"
TYPES: dict[Type, str] = {"u8": "<u1", "u16": "<u2", "u32": "<u4", "f32": "<f4", "f64": "<f8"}
GZIP = 31
"""zlib's code for a window of 32 KiB with gzip's header, which holds no time, and trailer."""


LONG = 2048
"""Bytes from which a Huffman table of its own pays."""
HUGE = 2**20
"""Bytes from which gzip's highest level, which saves 2 %, takes seconds."""
SAMPLE = 2**15
"""Bytes of a part that tell how to deflate it."""
WORTH = 0.95
"""The share of its length to which a search for repetitions must shorten a part."""
GZIP_HEAD = bytes.fromhex("1f8b08000000000000ff")
"""The head of a gzip stream without a time or a name."""


class Binary:
    """The binary part of a container, to be written."""

    def __init__(self) -> None:
        self._planes: list[bytes] = []
        self._size = 0

    def add(self, numbers: npt.ArrayLike, kind: Type) -> Packed:
        """Add numbers; return the reference to them for the JSON."""
        array = np.ascontiguousarray(np.asarray(numbers).astype(TYPES[kind], casting="unsafe"))
        packed: Packed = Packed(offset=self._size, count=len(array), type=kind)
        width = array.dtype.itemsize
        table = array.view(np.uint8).reshape(len(array), width)
        self._planes += [table[:, plane].tobytes() for plane in range(width)]
        self._size += array.nbytes
        return packed

    def add_codes(self, codes: npt.NDArray[Any], count: int) -> Packed:
        """Add whole numbers below *count*, in as few bytes each as possible."""
        return self.add(codes, "u8" if count <= 2**8 else "u16" if count <= 2**16 else "u32")

    @property
    def planes(self) -> tuple[bytes, ...]:
        """All byte planes, in order."""
        return tuple(self._planes)


def container_head(content: Any) -> bytes:
    """Return the container before its binary part."""
    plain = json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=json_object)
    text = plain.encode(errors="backslashreplace")  # a path that is no UTF-8 has halves of surrogate pairs
    return MAGIC + len(text).to_bytes(4, "little") + text


def plain_data(content: Any) -> dict[str, Any]:
    """Return a document, or a part of one, as JSON has it."""
    data: dict[str, Any] = json.loads(json.dumps(content, default=json_object))
    return data


def pack_container(content: Any, binary: Binary) -> bytes:
    """Return a container."""
    return container_head(content) + b"".join(binary.planes)


def container_text(content: Any, binary: Binary) -> str:
    """Return a container as a page holds it: base64 of gzip."""
    return base64_text([container_head(content), *binary.planes])


def base64_text(parts: list[bytes]) -> str:
    """Return bytes as base64 of gzip. Each part has its own Huffman table, as its numbers are distributed differently.

    >>> import gzip, base64
    >>> gzip.decompress(base64.b64decode(base64_text([b"one", b"two"])))
    b'onetwo'
    """
    return b64encode(gzip_parts(parts)).decode()


def gzip_parts(parts: list[bytes]) -> bytes:
    """Return the parts as one gzip stream, with a new Huffman table after each part that is long enough."""
    if sum(map(len, parts)) > HUGE:
        return _gzip_parts_fast(parts)
    stream = zlib.compressobj(9, zlib.DEFLATED, GZIP, 9)
    chunks = []
    for part in parts:
        chunks.append(stream.compress(part))
        if len(part) >= LONG:
            chunks.append(stream.flush(zlib.Z_BLOCK))
    return b"".join([*chunks, stream.flush()])


def _gzip_parts_fast(parts: list[bytes]) -> bytes:
    """Return the parts as one gzip stream, each deflated in the way that suits it.

    Columns of trials that were drawn at random have no repetitions worth a search: without it they are deflated ten
    times as fast, and are shorter. The beginning of each part tells.
    """
    chunks, crc, size = [GZIP_HEAD], 0, 0
    for part in parts:
        tried = {
            strategy: len(_deflate_part(part[:SAMPLE], strategy)) for strategy in (zlib.Z_RLE, zlib.Z_DEFAULT_STRATEGY)
        }
        chunks.append(_deflate_part(part, min(tried, key=lambda strategy: tried[strategy])))
        crc, size = zlib.crc32(part, crc), size + len(part)
    end = zlib.compressobj(wbits=-15).flush()  # the empty block that ends a stream
    return b"".join([*chunks, end, crc.to_bytes(4, "little"), (size % 2**32).to_bytes(4, "little")])


def _deflate_part(part: bytes, strategy: int) -> bytes:
    """Return deflated blocks that end with a byte, so that others can follow."""
    stream = zlib.compressobj(6, zlib.DEFLATED, -15, 9, strategy)
    return stream.compress(part) + stream.flush(zlib.Z_SYNC_FLUSH)
