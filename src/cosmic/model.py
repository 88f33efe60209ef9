"""Models, and programs that users bring: their operators, and how to shard them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cosmic.base.lazy_names import offer_names

if TYPE_CHECKING:
    from cosmic.design.model_layer import count_parameters
    from cosmic.search.catalog_listing import list_models as list
    from cosmic.search.sharding.automatic_sharding import shard
    from cosmic.search.sharding.program_parts import design_with, strategy_tables
    from cosmic.search.sharding.sharding_result import Sharded
    from cosmic.step.block_memory import table_use
    from cosmic.workload.block_plans import plan_blocks, read_strategy
    from cosmic.workload.expert_routing import fullest_rank, hit_rate, top_share
    from cosmic.workload.operator_graph import Graph, Operator, Tensor
    from cosmic.workload.sharding.resharding import Collective as WireCollective
    from cosmic.workload.sharding.resharding import wire_share
    from cosmic.workload.user_programs.program_graph import Program
    from cosmic.workload.user_programs.program_models import load_program
    from cosmic.workload.user_programs.program_models import show_model as show
else:
    __getattr__, __dir__ = offer_names(
        __name__,
        {
            "Graph": "cosmic.workload.operator_graph",
            "Operator": "cosmic.workload.operator_graph",
            "Program": "cosmic.workload.user_programs.program_graph",
            "Sharded": "cosmic.search.sharding.sharding_result",
            "Tensor": "cosmic.workload.operator_graph",
            "WireCollective": "cosmic.workload.sharding.resharding:Collective",
            "count_parameters": "cosmic.design.model_layer",
            "design_with": "cosmic.search.sharding.program_parts",
            "fullest_rank": "cosmic.workload.expert_routing",
            "hit_rate": "cosmic.workload.expert_routing",
            "list": "cosmic.search.catalog_listing:list_models",
            "load_program": "cosmic.workload.user_programs.program_models",
            "plan_blocks": "cosmic.workload.block_plans",
            "read_strategy": "cosmic.workload.block_plans",
            "shard": "cosmic.search.sharding.automatic_sharding",
            "show": "cosmic.workload.user_programs.program_models:show_model",
            "strategy_tables": "cosmic.search.sharding.program_parts",
            "table_use": "cosmic.step.block_memory",
            "top_share": "cosmic.workload.expert_routing",
            "wire_share": "cosmic.workload.sharding.resharding",
        },
    )

__all__ = [
    "Graph",
    "Operator",
    "Program",
    "Sharded",
    "Tensor",
    "WireCollective",
    "count_parameters",
    "design_with",
    "fullest_rank",
    "hit_rate",
    "list",
    "load_program",
    "plan_blocks",
    "read_strategy",
    "shard",
    "show",
    "strategy_tables",
    "table_use",
    "top_share",
    "wire_share",
]
