"""Conformance suites: what must hold for every topology, collective algorithm, pipeline schedule, agent and engine.

Each suite is a class of tests. Subclass it in a test module and give it the names to check, or a whole registry, which
covers every variant that registers itself:

    from cosmic.testing import TopologySuite

    class TestMyTopology(TopologySuite):
        names = ["my_topology"]
"""

from cosmic.testing.agents import AgentSuite
from cosmic.testing.collectives import CollectiveSuite
from cosmic.testing.engines import EngineSuite
from cosmic.testing.schedules import ScheduleSuite
from cosmic.testing.topologies import TopologySuite

__all__ = ["AgentSuite", "CollectiveSuite", "EngineSuite", "ScheduleSuite", "TopologySuite"]
