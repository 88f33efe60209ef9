"""Several jobs on one cluster: who runs when and where, and what sharing costs each of them.

fleet ── jobs: the file ──▶ demands: what each takes, by the cost model ──▶ requests
    ├── in space ──▶ partitions: events ◀── placing: where      tiers: the shared network, and contention
    └── in time ───▶ gangs: events ◀── sharing: turns, and the share that each gets
result: what came of it      timeline, charts: for people
"""
