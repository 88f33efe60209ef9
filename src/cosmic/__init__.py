"""COSMIC: full-stack co-design of machine-learning clusters.

Names are imported when they are first used, so that `import cosmic` costs nothing.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from cosmic.base._version import __version__

if TYPE_CHECKING:
    from cosmic.accuracy.validating import validate
    from cosmic.base.errors import CosmicError, SpecError, UnknownName
    from cosmic.cli.recipes import run_recipe as run
    from cosmic.design.design_batch import Batch
    from cosmic.design.design_point import DesignPoint
    from cosmic.design.loading import dump_design
    from cosmic.evaluation import evaluate, evaluate_batch
    from cosmic.report.study_report import Report, report
    from cosmic.search.advice.serving_answers import plan_serving, serve
    from cosmic.search.certify.certificate_checker import check_certificate
    from cosmic.search.certify.certifying import Certified, certify
    from cosmic.search.fleet import fleet
    from cosmic.search.mapping.design_completion import load_design
    from cosmic.search.mapping.launch_import import import_launch
    from cosmic.search.search_loop import Found, search
    from cosmic.search.sharding.automatic_sharding import shard
    from cosmic.search.space.parameter_set import ParameterSet
    from cosmic.search.space.point_moves import Moves
    from cosmic.search.space.space_files import json_schema, load_space
    from cosmic.search.study.study import Study, open_study
    from cosmic.simulate.events.trace_simulation import simulate
    from cosmic.simulate.metrics import BatchOutcome, Infeasible, Metrics

_HOMES = {
    "Batch": "cosmic.design.design_batch",
    "BatchOutcome": "cosmic.simulate.metrics",
    "Found": "cosmic.search.search_loop",
    "Infeasible": "cosmic.simulate.metrics",
    "Metrics": "cosmic.simulate.metrics",
    "evaluate": "cosmic.evaluation",
    "evaluate_batch": "cosmic.evaluation",
    "Certified": "cosmic.search.certify.certifying",
    "CosmicError": "cosmic.base.errors",
    "DesignPoint": "cosmic.design.design_point",
    "Moves": "cosmic.search.space.point_moves",
    "ParameterSet": "cosmic.search.space.parameter_set",
    "Report": "cosmic.report.study_report",
    "SpecError": "cosmic.base.errors",
    "Study": "cosmic.search.study.study",
    "UnknownName": "cosmic.base.errors",
    "certify": "cosmic.search.certify.certifying",
    "check_certificate": "cosmic.search.certify.certificate_checker",
    "dump_design": "cosmic.design.loading",
    "fleet": "cosmic.search.fleet",
    "import_launch": "cosmic.search.mapping.launch_import",
    "json_schema": "cosmic.search.space.space_files",
    "load_design": "cosmic.search.mapping.design_completion",
    "load_space": "cosmic.search.space.space_files",
    "open_study": "cosmic.search.study.study",
    "plan_serving": "cosmic.search.advice.serving_answers",
    "report": "cosmic.report.study_report",
    "run": "cosmic.cli.recipes:run_recipe",
    "search": "cosmic.search.search_loop",
    "serve": "cosmic.search.advice.serving_answers",
    "shard": "cosmic.search.sharding.automatic_sharding",
    "simulate": "cosmic.simulate.events.trace_simulation",
    "validate": "cosmic.accuracy.validating",
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
    home, _, there = _HOMES[name].partition(":")
    return getattr(import_module(home), there or name)


class _Package(ModuleType):
    """The package itself: `report`, `search` and `simulate` are its functions, although rooms have these names too."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOMES and isinstance(value, ModuleType)):  # importing a room would bind it here
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __dir__() -> list[str]:
    return __all__
