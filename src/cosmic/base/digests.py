"""Digests: equal texts stand for equal content."""

from __future__ import annotations

from hashlib import sha256


def digest(*parts: str | bytes) -> str:
    """Return the SHA-256 of *parts*, one after the other, as hexadecimal digits.

    >>> digest("abc")[:8], digest("a", b"bc") == digest("abc")
    ('ba7816bf', True)
    """
    state = sha256()
    for part in parts:
        state.update(part.encode() if isinstance(part, str) else part)
    return state.hexdigest()
