"""What a cluster costs, how much of a long run on it is training, and how several jobs share it.

Dollars and watts: `cluster_cost`, part by part, to buy and to own; `builds` are plugins that say how switches are
arranged (over `switch_trees`). Long runs on machines that fail: `goodput` in closed form, and `run_simulation`, the
same by chance; both start from `interruption_terms` and share nothing else; `spare_domains`.

Several jobs (read `fleet_jobs` first, the file that people write):

    fleet_jobs ──▶ demands: what each takes, by the cost model ──▶ job_requests: requests, and the order of events
        ├── in space ──▶ space_sharing ◀── job_placement: where, the shared network, and contention
        └── in time ───▶ time_sharing: gangs, turns, and the share that each job gets
    fleet_result: what came of it
"""
