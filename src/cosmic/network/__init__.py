"""What collectives cost, on any network, and what no schedule could beat.

A network is dimensions, each with a topology, a bandwidth and a latency. `collective_costs` says how long a collective
among ranks takes, given where they lie (`mesh_spans`), from the terms of algorithms (`collective_algorithms`,
`collective_rounds`) on topologies (`topologies`), the tiers of switches (`switch_tiers`), single links where these are
listed or faulty (`dimension_wiring`, `link_costs`) and what a communication library adds (`transport_protocols`).

A network is also a graph of links (`link_graph`, `network_graphs`, read by `network_files`). On it `synthesis` makes
schedules of collectives and bounds them from below; `schedules` checks, replays, reads and writes schedules.
Read `collective_costs` first for costs, `link_graph` and `schedules.collective_schedule` for schedules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cosmic.base.lazy_names import offer_names

if TYPE_CHECKING:
    from cosmic.network.collective_costs import NetworkDimension, collective_seconds, deduplicated_share, subgroups
    from cosmic.network.collective_requests import bound, check, synthesize
    from cosmic.network.dimension_wiring import disconnection_reason, label_of, wiring_at
    from cosmic.network.link_graph import LinkGraph
    from cosmic.network.mesh_spans import Span, axis_spans, axis_strides
    from cosmic.network.network_graphs import load_network, network_graph
    from cosmic.network.schedules.baseline_algorithms import Baseline, make_baselines
    from cosmic.network.schedules.collective_schedule import Schedule
    from cosmic.network.schedules.schedule_checking import ScheduleVerdict
    from cosmic.network.schedules.schedule_replay import simulate_schedule, to_nanoseconds
    from cosmic.network.switch_tiers import GroupShape, tier_share
    from cosmic.network.synthesis.lower_bounds import Bounds
    from cosmic.report.schedule_files import convert_schedule as convert
    from cosmic.search.provision.bandwidth_problem import Provisioned
    from cosmic.search.provision.provisioning import WeightedDesign, provision, provision_designs
else:
    __getattr__, __dir__ = offer_names(
        __name__,
        {
            "Baseline": "cosmic.network.schedules.baseline_algorithms",
            "Bounds": "cosmic.network.synthesis.lower_bounds",
            "GroupShape": "cosmic.network.switch_tiers",
            "LinkGraph": "cosmic.network.link_graph",
            "NetworkDimension": "cosmic.network.collective_costs",
            "Provisioned": "cosmic.search.provision.bandwidth_problem",
            "Schedule": "cosmic.network.schedules.collective_schedule",
            "ScheduleVerdict": "cosmic.network.schedules.schedule_checking",
            "Span": "cosmic.network.mesh_spans",
            "WeightedDesign": "cosmic.search.provision.provisioning",
            "axis_spans": "cosmic.network.mesh_spans",
            "axis_strides": "cosmic.network.mesh_spans",
            "bound": "cosmic.network.collective_requests",
            "check": "cosmic.network.collective_requests",
            "collective_seconds": "cosmic.network.collective_costs",
            "convert": "cosmic.report.schedule_files:convert_schedule",
            "deduplicated_share": "cosmic.network.collective_costs",
            "disconnection_reason": "cosmic.network.dimension_wiring",
            "label_of": "cosmic.network.dimension_wiring",
            "load_network": "cosmic.network.network_graphs",
            "make_baselines": "cosmic.network.schedules.baseline_algorithms",
            "network_graph": "cosmic.network.network_graphs",
            "provision": "cosmic.search.provision.provisioning",
            "provision_designs": "cosmic.search.provision.provisioning",
            "simulate_schedule": "cosmic.network.schedules.schedule_replay",
            "subgroups": "cosmic.network.collective_costs",
            "synthesize": "cosmic.network.collective_requests",
            "tier_share": "cosmic.network.switch_tiers",
            "to_nanoseconds": "cosmic.network.schedules.schedule_replay",
            "wiring_at": "cosmic.network.dimension_wiring",
        },
    )

__all__ = [
    "Baseline",
    "Bounds",
    "GroupShape",
    "LinkGraph",
    "NetworkDimension",
    "Provisioned",
    "Schedule",
    "ScheduleVerdict",
    "Span",
    "WeightedDesign",
    "axis_spans",
    "axis_strides",
    "bound",
    "check",
    "collective_seconds",
    "convert",
    "deduplicated_share",
    "disconnection_reason",
    "label_of",
    "load_network",
    "make_baselines",
    "network_graph",
    "provision",
    "provision_designs",
    "simulate_schedule",
    "subgroups",
    "synthesize",
    "tier_share",
    "to_nanoseconds",
    "wiring_at",
]
