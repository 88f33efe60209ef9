"""Serving under a load of requests: time to first token (TTFT) and time per output token (TPOT).

    design ──▶ deployment ──▶ price of an engine's step ──┬──▶ closed form: means and percentiles, for search
      load ───────────────────────────────────────────────┴──▶ simulation: request by request, for truth

`price` is the one place that says what a step takes; `closed_form` and `simulation` know only it and the load.
"""
