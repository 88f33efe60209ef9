"""The file that says what was proven, and all that is needed to check it without trusting who proved it.

Everything is plain JSON. Long lists of truth values and small numbers are packed: bits or bytes, deflated, in base 64.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from cosmic.base import caching
from cosmic.base.errors import SpecError, require
from cosmic.base.files import read_text, write_text
from cosmic.search.space.diagram import Indices
from cosmic.search.space.parameter_set import ParameterSet

FORMAT = 1
KIND = "cosmic certificate"
MAX_BYTES = 64 * 2**20
"""Bytes of a certificate, and of what is packed in it, at most."""
COMMON_KEYS: dict[str, Any] = {
    "kind": str,
    "format": int,
    "method": str,
    "space": dict,
    "model": str,
    "objectives": list,
    "limits": list,
    "front": list,
    "lower": (float, int, type(None)),
    "gap": (float, int, type(None)),
    "slack": float,
    "proven": bool,
    "within": (dict, type(None)),
}
PROOF_KEYS: dict[str, dict[str, Any]] = {
    "bounded": {"ranges": list, "choices": list, "able": dict, "dominance": list, "tree": dict},
    "enumerated": {"blocks": list},
}


def model_digest() -> str:
    """Return the digest of the sources that evaluation follows from, and of the catalog's constants."""
    return caching.source_version()


def content_of(space: ParameterSet) -> dict[str, Any]:
    """Return what a certificate says of a space: enough to see that another is not the same."""
    return {
        "name": space.name,
        "identity": space.identity,
        "designs": space.valid,
        "source": None if space.source is None else dict(space.source),
        "parameters": [{"name": parameter.name, "values": list(parameter.labels)} for parameter in space.parameters],
        "derived": dict(space.derived),
        "constraints": list(space.constraints),
    }


# ---- packing


def pack_bits(flags: Any) -> dict[str, Any]:
    """Return truth values, packed.

    >>> unpack_bits(pack_bits([True, False, True]), "x").tolist()
    [True, False, True]
    """
    bits = np.asarray(flags, dtype=bool)
    return {"count": len(bits), "bits": _compress(np.packbits(bits).tobytes())}


def unpack_bits(packed: Any, where: str) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return packed truth values."""
    count, raw = _decompress(packed, "bits", where)
    require(len(raw) == -(-count // 8), where, count, "has not as many bits as it says")
    return np.unpackbits(np.frombuffer(raw, dtype=np.uint8), count=count).astype(bool)


def pack_bytes(numbers: Indices) -> dict[str, Any]:
    """Return numbers from 0 to 65,535, packed."""
    return {"count": len(numbers), "numbers": _compress(np.asarray(numbers, dtype="<u2").tobytes())}


def unpack_bytes(packed: Any, where: str) -> Indices:
    """Return packed numbers."""
    count, raw = _decompress(packed, "numbers", where)
    require(len(raw) == 2 * count, where, count, "has not as many numbers as it says")
    return np.frombuffer(raw, dtype="<u2").astype(np.intp)


def _compress(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data, 9)).decode()


def _decompress(packed: Any, name: str, where: str) -> tuple[int, bytes]:
    well_formed = isinstance(packed, dict) and isinstance(packed.get(name), str) and type(packed.get("count")) is int
    require(well_formed and 0 <= packed["count"] <= MAX_BYTES, where, packed, "is not packed as certificates are")
    try:
        inflate = zlib.decompressobj()
        raw = inflate.decompress(base64.b64decode(packed[name], validate=True), MAX_BYTES)
    except (ValueError, zlib.error):
        raise SpecError(where, packed[name], "is damaged") from None
    require(inflate.eof, where, packed["count"], "is cut off, or larger than certificates are")
    return packed["count"], raw


# ---- files


def write_certificate(path: str | Path, certificate: Mapping[str, Any]) -> None:
    """Write a certificate to a file."""
    write_text(path, json.dumps(certificate, allow_nan=False) + "\n", "--out")


def read_certificate(path: str | Path) -> dict[str, Any]:
    """Return the certificate of a file, checked in form only."""
    try:
        certificate = json.loads(read_text(path, "certificate", MAX_BYTES))
    except (ValueError, RecursionError) as error:
        if isinstance(error, SpecError):
            raise
        raise SpecError("certificate", str(path), "is no JSON") from None
    return check_form(certificate)


def check_form(certificate: Any) -> dict[str, Any]:
    """Return a certificate if it has the keys that one has."""
    require(
        isinstance(certificate, dict) and certificate.get("kind") == KIND,
        "certificate",
        certificate,
        "is no certificate of cosmic",
    )
    require(
        certificate.get("format") == FORMAT,
        "certificate.format",
        certificate.get("format"),
        f"only format {FORMAT} is known",
    )
    method = certificate.get("method")
    require(
        isinstance(method, str) and method in PROOF_KEYS, "certificate.method", method, "must be bounded or enumerated"
    )
    for key, kind in {**COMMON_KEYS, **PROOF_KEYS[str(method)]}.items():
        require(
            key in certificate and isinstance(certificate[key], kind),
            f"certificate.{key}",
            certificate.get(key),
            "is missing or malformed",
        )
    return dict(certificate)
