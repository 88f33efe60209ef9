"""COSMIC: full-stack co-design of machine-learning clusters.

A function is named as its command: `cosmic search` is `cosmic.search`, `cosmic design show` is `cosmic.design.show`.
Ask: `evaluate`, `search`, `serve`, `size`, `simulate`, `demo`, `ui`, `report`; about a `design`, `space`, `study`,
`network`, `cluster`, `model`, `trace`, the `catalog`, or `calibrate`. The other packages are rooms of the house:
ARCHITECTURE.md says what each holds. Names are imported when first used, so that `import cosmic` costs nothing.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from cosmic.base._version import __version__
from cosmic.base.lazy_names import offer_names

_HOMES = {
    "CosmicError": "cosmic.base.errors",
    "SpecError": "cosmic.base.errors",
    "demo": "cosmic.cli.demo_command:run_demo",
    "evaluate": "cosmic.search.design_answers:evaluate_design",
    "evaluate_batch": "cosmic.evaluation",
    "load_design": "cosmic.search.mapping.design_completion",
    "load_space": "cosmic.search.space.space_files",
    "report": "cosmic.report.study_report",
    "run": "cosmic.cli.recipes:run_recipe",
    "schema": "cosmic.cli.schema_command:schema_of",
    "search": "cosmic.search.search_loop",
    "serve": "cosmic.search.advice.serving_answers",
    "simulate": "cosmic.simulate.events.trace_simulation",
    "size": "cosmic.search.cluster_sizing",
    "ui": "cosmic.cli.ui_command:open_page",
}
_NOUNS = ("calibrate", "catalog", "cluster", "design", "model", "network", "space", "study", "trace")

if TYPE_CHECKING:
    from cosmic import calibrate, catalog, cluster, design, model, network, space, study, trace
    from cosmic.base.errors import CosmicError, SpecError
    from cosmic.cli.demo_command import run_demo as demo
    from cosmic.cli.recipes import run_recipe as run
    from cosmic.cli.schema_command import schema_of as schema
    from cosmic.cli.ui_command import open_page as ui
    from cosmic.evaluation import evaluate_batch
    from cosmic.report.study_report import report
    from cosmic.search.advice.serving_answers import serve
    from cosmic.search.cluster_sizing import size
    from cosmic.search.design_answers import evaluate_design as evaluate
    from cosmic.search.mapping.design_completion import load_design
    from cosmic.search.search_loop import search
    from cosmic.search.space.space_files import load_space
    from cosmic.simulate.events.trace_simulation import simulate
else:
    __getattr__, __dir__ = offer_names(__name__, _HOMES, _NOUNS)


class _Package(ModuleType):
    """The package itself: `report`, `search` and `simulate` are its functions, although rooms have these names too."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOMES and isinstance(value, ModuleType)):  # importing a room would bind it here
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package

__all__ = [
    "CosmicError",
    "SpecError",
    "__version__",
    "calibrate",
    "catalog",
    "cluster",
    "demo",
    "design",
    "evaluate",
    "evaluate_batch",
    "load_design",
    "load_space",
    "model",
    "network",
    "report",
    "run",
    "schema",
    "search",
    "serve",
    "simulate",
    "size",
    "space",
    "study",
    "trace",
    "ui",
]
