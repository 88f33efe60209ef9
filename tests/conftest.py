"""What all tests share: examples are not timed, as a busy machine makes any of them slow."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("cosmic", deadline=None)
settings.load_profile("cosmic")
