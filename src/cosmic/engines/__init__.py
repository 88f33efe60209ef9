"""Engines that others bring: functions or programs that evaluate designs, or points of fields of their own.

A module that registers one is found by an entry point of the group `cosmic.engines`, or in a folder of `COSMIC_PATH` as
``engines/*.py``. Whatever searches, keeps, replays or reports with COSMIC's engines does so with these.
"""

from cosmic.design.own import Fields
from cosmic.engines.engine import (
    Answer,
    Engine,
    EngineFailure,
    direction,
    engine,
    engine_of,
    engines,
    identity_of,
    metrics_of,
)
from cosmic.engines.external import external
from cosmic.metrics import Infeasible

__all__ = [
    "Answer",
    "Engine",
    "EngineFailure",
    "Fields",
    "Infeasible",
    "direction",
    "engine",
    "engine_of",
    "engines",
    "external",
    "identity_of",
    "metrics_of",
]
