"""What all tests share: examples are not timed, as a busy machine makes any of them slow."""

from __future__ import annotations

import os

from hypothesis import settings

os.environ["RAY_ENABLE_UV_RUN_RUNTIME_ENV"] = (
    "0"  # before Ray is imported: its workers run in this environment, as it is
)

settings.register_profile("cosmic", deadline=None)
settings.load_profile("cosmic")
