"""What a cluster costs, how much of a long run on it is training, and how several jobs share it.

Dollars and watts: `cluster_cost`, part by part, to buy and to own; `builds` are plugins that say how switches are
arranged. Long runs on machines that fail: `goodput` in closed form, and `run_simulation`, the
same by chance; both start from `interruption_terms` and share nothing else.

Several jobs (read `fleet_jobs` first, the file that people write):

    fleet_jobs ──▶ demands: what each takes, by the cost model ──▶ job_requests: requests, where they go, the order of events
        ├── in space ──▶ space_sharing: accelerators of their own
        └── in time ───▶ time_sharing: gangs, turns, and the share that each job gets
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cosmic.base.lazy_names import offer_names

if TYPE_CHECKING:
    from cosmic.accuracy.public_clusters import ClusterRow, owner_costs, public_clusters
    from cosmic.cluster.cluster_cost import ClusterCost, dimension_parts, network_usd, tier_rates
    from cosmic.cluster.cluster_cost import cluster_cost as price_cluster
    from cosmic.cluster.fleet_jobs import Fleet, JobResult
    from cosmic.cluster.goodput import run_goodput
    from cosmic.cluster.interruption_terms import healthy_domains, run_fields, spares_needed
    from cosmic.search.cluster_sizing import Question, Row, Sizing, measure_sensitivity, simulate_risk
    from cosmic.search.fleet import SharedAccelerators, best_of, fleet
    from cosmic.search.fleet import share_among_tasks as tasks
else:
    __getattr__, __dir__ = offer_names(
        __name__,
        {
            "ClusterCost": "cosmic.cluster.cluster_cost",
            "ClusterRow": "cosmic.accuracy.public_clusters",
            "Fleet": "cosmic.cluster.fleet_jobs",
            "JobResult": "cosmic.cluster.fleet_jobs",
            "Question": "cosmic.search.cluster_sizing",
            "Row": "cosmic.search.cluster_sizing",
            "SharedAccelerators": "cosmic.search.fleet",
            "Sizing": "cosmic.search.cluster_sizing",
            "best_of": "cosmic.search.fleet",
            "dimension_parts": "cosmic.cluster.cluster_cost",
            "fleet": "cosmic.search.fleet",
            "healthy_domains": "cosmic.cluster.interruption_terms",
            "measure_sensitivity": "cosmic.search.cluster_sizing",
            "network_usd": "cosmic.cluster.cluster_cost",
            "owner_costs": "cosmic.accuracy.public_clusters",
            "price_cluster": "cosmic.cluster.cluster_cost:cluster_cost",
            "public_clusters": "cosmic.accuracy.public_clusters",
            "run_fields": "cosmic.cluster.interruption_terms",
            "run_goodput": "cosmic.cluster.goodput",
            "simulate_risk": "cosmic.search.cluster_sizing",
            "spares_needed": "cosmic.cluster.interruption_terms",
            "tasks": "cosmic.search.fleet:share_among_tasks",
            "tier_rates": "cosmic.cluster.cluster_cost",
        },
    )

__all__ = [
    "ClusterCost",
    "ClusterRow",
    "Fleet",
    "JobResult",
    "Question",
    "Row",
    "SharedAccelerators",
    "Sizing",
    "best_of",
    "dimension_parts",
    "fleet",
    "healthy_domains",
    "measure_sensitivity",
    "network_usd",
    "owner_costs",
    "price_cluster",
    "public_clusters",
    "run_fields",
    "run_goodput",
    "simulate_risk",
    "spares_needed",
    "tasks",
    "tier_rates",
]
