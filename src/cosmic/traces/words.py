"""Load eight bytes from many places of a buffer at once, each as one little-endian integer.

Bit operations act on all eight bytes together, so a varint is decoded without a loop over its bytes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cosmic.traces.trace import Ints

WordArray = npt.NDArray[np.uint64]

WORD = 8
TOO_LONG = WORD + 1
"""The size of a varint that does not end within its word."""


def _each(byte: int) -> np.uint64:
    """Return a word of eight equal bytes."""
    return np.uint64(int.from_bytes(bytes([byte] * WORD), "little"))


_TOP_BITS, _LOWEST_BITS, _OTHER_BITS = _each(0x80), _each(0x01), _each(0x7F)
_FIRST = np.array([256**size - 1 for size in range(WORD + 1)], np.uint64)
_COLLECT = np.uint64(sum(1 << 7 * place for place in range(1, WORD + 1)))


class Words:
    """The words of a buffer, by start."""

    def __init__(self, buffer: bytes) -> None:
        self._all: WordArray = np.ndarray((max(len(buffer) - WORD + 1, 0),), "<u8", buffer, strides=(1,))

    def __getitem__(self, places: Ints) -> WordArray:
        return self._all[places].astype(np.uint64, copy=False)


def word(start: bytes) -> np.uint64:
    r"""Return the word that begins with *start*, padded with zeros.

    >>> int(word(b"\x01\x02"))
    513
    """
    return np.uint64(int.from_bytes(start[:WORD], "little"))


def byte(words: WordArray, place: int) -> Ints:
    """Return one byte of each word."""
    return (words >> np.uint64(8 * place) & np.uint64(0xFF)).view(np.int64)


def first_bytes(words: WordArray, sizes: Ints | int) -> WordArray:
    """Return the words with all but their first *sizes* bytes cleared."""
    return words & _FIRST[sizes]


def leading_varints(words: WordArray) -> tuple[Ints, Ints]:
    r"""Return the varints at the start of *words*, and their sizes in bytes (`TOO_LONG` if more than eight).

    >>> values, sizes = leading_varints(np.array([word(b"\x05"), word(b"\xac\x02")]))
    >>> values.tolist(), sizes.tolist()
    ([5, 300], [1, 2])
    """
    ends = ~words
    ends &= _TOP_BITS
    below = np.negative(ends)
    below &= ends  # the top bit of the varint's last byte
    below -= np.uint64(1)
    sizes = below & _LOWEST_BITS
    sizes *= _LOWEST_BITS  # adds the bytes up in the top byte
    sizes >>= np.uint64(56)
    sizes[ends == 0] = TOO_LONG
    below &= words
    below &= _OTHER_BITS
    return _without_gaps(below, int(sizes.max(initial=0))).view(np.int64), sizes.view(np.int64)


def _without_gaps(bits: WordArray, most: int) -> WordArray:
    """Return words whose bytes hold 7 bits each, with the gaps removed; no varint has more than *most* bytes."""
    for size, width, low in ((1, 7, 0x007F007F007F007F), (2, 14, 0x00003FFF00003FFF), (4, 28, 0x0FFFFFFF)):
        if most > size:
            upper = bits >> np.uint64(size)
            upper &= np.uint64(low << width)
            bits &= np.uint64(low)
            bits |= upper
    return bits


def bools(words: WordArray) -> tuple[Ints, npt.NDArray[np.bool_]]:
    r"""Return the bytes of words, each 0 or 1, as bits, the first one lowest, and whether all bytes were 0 or 1.

    >>> bits, right = bools(np.array([word(b"\x01\x00\x01"), word(b"\x01\x02")]))
    >>> int(bits[0]), right.tolist()
    (5, [True, False])
    """
    return (words * _COLLECT >> np.uint64(56)).view(np.int64), words & ~_LOWEST_BITS == 0
