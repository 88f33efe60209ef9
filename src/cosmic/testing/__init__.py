"""Conformance suites: what must hold of every topology, collective algorithm and agent.

Each suite is a class of tests. Subclass it in a test module and give it the names to check, or a whole
registry: a variant that registers itself is covered from that day on, in this package or in any other:

    from cosmic.testing import TopologySuite

    class TestMyTopology(TopologySuite):
        names = ["my_topology"]
"""

from cosmic.testing.agents import AgentSuite
from cosmic.testing.collectives import CollectiveSuite
from cosmic.testing.schedules import ScheduleSuite
from cosmic.testing.topologies import TopologySuite

__all__ = ["AgentSuite", "CollectiveSuite", "ScheduleSuite", "TopologySuite"]
