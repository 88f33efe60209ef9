"""Serving under a load of requests: time to first token (TTFT) and time per output token (TPOT).

    design ──▶ deployment ──▶ step_price: an engine's step ──┬──▶ closed_form: means and percentiles, for search
      load ──────────────────────────────────────────────────┴──▶ request_simulation: each request, for truth

`step_price` is the one place that says what a step takes; `closed_form` (over `continuous_batching` and
`disaggregated_serving`) and `request_simulation` (over `event_loop`, `engine_scheduling`, `engine_instances` and
`serving_requests`) know only it and the load. Both give out `serving_metrics`.

`served_evaluation` makes of that the metrics of a design, as `cosmic evaluate` prints them. `deployment_candidates` and
`deployment_search` look for deployments that hold limits; `simulation_check` sets the simulation beside the closed
form, `serving_accuracy` says how far off both may be. Read `deployment` first.
"""
