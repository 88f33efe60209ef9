"""Models, and programs that users bring: their operators, and how to shard them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cosmic.base.lazy_names import offer_names

if TYPE_CHECKING:
    from cosmic.search.catalog_listing import list_models as list
    from cosmic.search.sharding.automatic_sharding import shard
    from cosmic.search.sharding.sharding_result import Sharded
    from cosmic.workload.user_programs.program_graph import Program
    from cosmic.workload.user_programs.program_models import load_program
    from cosmic.workload.user_programs.program_models import show_program as show
else:
    __getattr__, __dir__ = offer_names(
        __name__,
        {
            "Program": "cosmic.workload.user_programs.program_graph",
            "Sharded": "cosmic.search.sharding.sharding_result",
            "list": "cosmic.search.catalog_listing:list_models",
            "load_program": "cosmic.workload.user_programs.program_models",
            "shard": "cosmic.search.sharding.automatic_sharding",
            "show": "cosmic.workload.user_programs.program_models:show_program",
        },
    )

__all__ = [
    "Program",
    "Sharded",
    "list",
    "load_program",
    "shard",
    "show",
]
