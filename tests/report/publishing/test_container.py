"""Containers: what is packed comes out again, as the page unpacks it."""

from __future__ import annotations

import gzip
from base64 import b64decode

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosmic.report.container import TYPES, Binary, container_text, gzip_parts, pack_container
from cosmic.report.document_types import Type
from tests.report.publishing.unpacking import numbers_of, unpack_container

NUMBERS = {"u8": st.integers(0, 255), "u16": st.integers(0, 65535), "u32": st.integers(0, 2**32 - 1)}
FLOATS = {"f32": st.floats(width=32), "f64": st.floats()}


@given(st.data())
def test_numbers_come_out_as_they_went_in(data: st.DataObject) -> None:
    kinds: list[Type] = data.draw(st.lists(st.sampled_from(list(TYPES)), max_size=5))
    arrays = [np.array(data.draw(st.lists({**NUMBERS, **FLOATS}[kind])), dtype=TYPES[kind]) for kind in kinds]
    binary = Binary()
    packed = [binary.add(array, kind) for array, kind in zip(arrays, kinds, strict=True)]
    content, rest = unpack_container(pack_container({"numbers": packed}, binary))
    for array, where in zip(arrays, content["numbers"], strict=True):
        np.testing.assert_array_equal(numbers_of(where, rest), array)


def test_wide_numbers_lie_in_byte_planes() -> None:
    binary = Binary()
    binary.add([0x0102, 0x0304], "u16")
    assert b"".join(binary.planes) == bytes([0x02, 0x04, 0x01, 0x03])


@pytest.mark.parametrize(("count", "kind"), [(2, "u8"), (256, "u8"), (257, "u16"), (65536, "u16"), (65537, "u32")])
def test_codes_take_as_few_bytes_as_they_can(count: int, kind: str) -> None:
    assert Binary().add_codes(np.array([0, count - 1]), count).type == kind


def test_a_page_carries_base64_of_gzip_without_a_time() -> None:
    binary = Binary()
    binary.add(np.arange(5000), "u16")
    text = container_text({"title": "</script>"}, binary)
    assert set(text) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=")
    raw = b64decode(text)
    assert raw[4:8] == bytes(4)  # gzip's time
    assert gzip.decompress(raw) == pack_container({"title": "</script>"}, binary)


def test_gzip_is_one_stream_however_long_its_parts_are() -> None:
    parts = [b"a" * 10, bytes(range(256)) * 20_000, b"", b"b" * 3000]
    assert gzip.decompress(gzip_parts(parts)) == b"".join(parts)


def test_numbers_that_json_cannot_say_are_refused() -> None:
    with pytest.raises(ValueError, match="JSON"):
        pack_container({"value": float("nan")}, Binary())
