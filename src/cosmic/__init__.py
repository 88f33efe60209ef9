"""COSMIC: full-stack co-design of machine-learning clusters.

Names are imported when they are first used, so that `import cosmic` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cosmic._version import __version__

if TYPE_CHECKING:
    from cosmic.advice.asking import plan_serving, serve
    from cosmic.autosharding.sharding import shard
    from cosmic.certifying.certifying import Certified, certify
    from cosmic.certifying.checking import check_certificate
    from cosmic.design.batch import Batch
    from cosmic.design.point import DesignPoint
    from cosmic.errors import CosmicError, SpecError, UnknownName
    from cosmic.evaluation import BatchOutcome, Infeasible, Metrics, evaluate, evaluate_batch
    from cosmic.exploration.searching import Found, search
    from cosmic.exploration.studies.study import Study, open_study
    from cosmic.fleets.fleet import fleet
    from cosmic.loading.designs import dump_design
    from cosmic.mapping.completing import load_design
    from cosmic.mapping.launched import import_launch
    from cosmic.psa.files import json_schema, load_space
    from cosmic.psa.moves import Moves
    from cosmic.psa.space import ParameterSet
    from cosmic.publishing.report import Report, report
    from cosmic.recipes.asking import run
    from cosmic.simulation.event.engine import simulate
    from cosmic.validation.validating import validate

_HOMES = {
    "Batch": "cosmic.design.batch",
    "BatchOutcome": "cosmic.evaluation",
    "Found": "cosmic.exploration.searching",
    "Infeasible": "cosmic.evaluation",
    "Metrics": "cosmic.evaluation",
    "evaluate": "cosmic.evaluation",
    "evaluate_batch": "cosmic.evaluation",
    "Certified": "cosmic.certifying.certifying",
    "CosmicError": "cosmic.errors",
    "DesignPoint": "cosmic.design.point",
    "Moves": "cosmic.psa.moves",
    "ParameterSet": "cosmic.psa.space",
    "Report": "cosmic.publishing.report",
    "SpecError": "cosmic.errors",
    "Study": "cosmic.exploration.studies.study",
    "UnknownName": "cosmic.errors",
    "certify": "cosmic.certifying.certifying",
    "check_certificate": "cosmic.certifying.checking",
    "dump_design": "cosmic.loading.designs",
    "fleet": "cosmic.fleets.fleet",
    "import_launch": "cosmic.mapping.launched",
    "json_schema": "cosmic.psa.files",
    "load_design": "cosmic.mapping.completing",
    "load_space": "cosmic.psa.files",
    "open_study": "cosmic.exploration.studies.study",
    "plan_serving": "cosmic.advice.asking",
    "report": "cosmic.publishing.report",
    "run": "cosmic.recipes.asking",
    "search": "cosmic.exploration.searching",
    "serve": "cosmic.advice.asking",
    "shard": "cosmic.autosharding.sharding",
    "simulate": "cosmic.simulation.event.engine",
    "validate": "cosmic.validation.validating",
}

__all__ = [
    "Batch",
    "BatchOutcome",
    "Certified",
    "CosmicError",
    "DesignPoint",
    "Found",
    "Infeasible",
    "Metrics",
    "Moves",
    "ParameterSet",
    "Report",
    "SpecError",
    "Study",
    "UnknownName",
    "__version__",
    "certify",
    "check_certificate",
    "dump_design",
    "evaluate",
    "evaluate_batch",
    "fleet",
    "import_launch",
    "json_schema",
    "load_design",
    "load_space",
    "open_study",
    "plan_serving",
    "report",
    "run",
    "search",
    "serve",
    "shard",
    "simulate",
    "validate",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'cosmic' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
