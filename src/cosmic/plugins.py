"""What extensions register, build on and are tested with: topologies, collectives, agents, schedules, engines, targets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cosmic.base.lazy_names import offer_names

if TYPE_CHECKING:
    from cosmic.accuracy.suites import AgentSuite, CollectiveSuite, EngineSuite, ScheduleSuite, TopologySuite
    from cosmic.design.collective_layer import algorithms
    from cosmic.design.design_point import EngineFields
    from cosmic.design.network_layer import Parts, builds, topologies
    from cosmic.frameworks.launch import targets
    from cosmic.network.collective_rounds import (
        ByRounds,
        Round,
        Rounds,
        all_but_own,
        joined_rounds,
        message_round,
        passes_of,
        reversed_rounds,
        stack_chunks,
        tree_depth,
    )
    from cosmic.network.topologies.grid_product import Product
    from cosmic.search.agent import Floats, agents, start_agent
    from cosmic.search.learning.agent_memory import Novelty, make_targets
    from cosmic.search.learning.design_features import encode_coordinates
    from cosmic.search.learning.surrogate_models import Ensemble
    from cosmic.search.search_loop import CheckedAgent
    from cosmic.simulate.metrics import Infeasible
    from cosmic.simulate.user_engines import engine, external
    from cosmic.workload.pipeline_schedule import (
        PipelineTask,
        Undivided,
        accumulate_tasks,
        alternate_tasks,
        require_valid,
        schedules,
    )
else:
    __getattr__, __dir__ = offer_names(
        __name__,
        {
            "AgentSuite": "cosmic.accuracy.suites",
            "ByRounds": "cosmic.network.collective_rounds",
            "CheckedAgent": "cosmic.search.search_loop",
            "CollectiveSuite": "cosmic.accuracy.suites",
            "EngineFields": "cosmic.design.design_point",
            "EngineSuite": "cosmic.accuracy.suites",
            "Ensemble": "cosmic.search.learning.surrogate_models",
            "Floats": "cosmic.search.agent",
            "Infeasible": "cosmic.simulate.metrics",
            "Novelty": "cosmic.search.learning.agent_memory",
            "Parts": "cosmic.design.network_layer",
            "PipelineTask": "cosmic.workload.pipeline_schedule",
            "Product": "cosmic.network.topologies.grid_product",
            "Round": "cosmic.network.collective_rounds",
            "Rounds": "cosmic.network.collective_rounds",
            "ScheduleSuite": "cosmic.accuracy.suites",
            "TopologySuite": "cosmic.accuracy.suites",
            "Undivided": "cosmic.workload.pipeline_schedule",
            "accumulate_tasks": "cosmic.workload.pipeline_schedule",
            "agents": "cosmic.search.agent",
            "algorithms": "cosmic.design.collective_layer",
            "all_but_own": "cosmic.network.collective_rounds",
            "alternate_tasks": "cosmic.workload.pipeline_schedule",
            "builds": "cosmic.design.network_layer",
            "encode_coordinates": "cosmic.search.learning.design_features",
            "engine": "cosmic.simulate.user_engines",
            "external": "cosmic.simulate.user_engines",
            "joined_rounds": "cosmic.network.collective_rounds",
            "make_targets": "cosmic.search.learning.agent_memory",
            "message_round": "cosmic.network.collective_rounds",
            "passes_of": "cosmic.network.collective_rounds",
            "require_valid": "cosmic.workload.pipeline_schedule",
            "reversed_rounds": "cosmic.network.collective_rounds",
            "schedules": "cosmic.workload.pipeline_schedule",
            "stack_chunks": "cosmic.network.collective_rounds",
            "start_agent": "cosmic.search.agent",
            "targets": "cosmic.frameworks.launch",
            "topologies": "cosmic.design.network_layer",
            "tree_depth": "cosmic.network.collective_rounds",
        },
    )

__all__ = [
    "AgentSuite",
    "ByRounds",
    "CheckedAgent",
    "CollectiveSuite",
    "EngineFields",
    "EngineSuite",
    "Ensemble",
    "Floats",
    "Infeasible",
    "Novelty",
    "Parts",
    "PipelineTask",
    "Product",
    "Round",
    "Rounds",
    "ScheduleSuite",
    "TopologySuite",
    "Undivided",
    "accumulate_tasks",
    "agents",
    "algorithms",
    "all_but_own",
    "alternate_tasks",
    "builds",
    "encode_coordinates",
    "engine",
    "external",
    "joined_rounds",
    "make_targets",
    "message_round",
    "passes_of",
    "require_valid",
    "reversed_rounds",
    "schedules",
    "stack_chunks",
    "start_agent",
    "targets",
    "topologies",
    "tree_depth",
]
