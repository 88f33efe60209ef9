"""How far predictions are off, and what measurements change: validation, calibration, and suites that must hold.

    measured_rows   rows that others measured, told apart by their columns; `rows` predicts each kind, a module each
    validating      files ──▶ rows ──▶ designs or kernels ──▶ predicted beside measured ──▶ errors by source
    calibrate       a user's own measurements become a system file; what `cosmic calibrate probe` measures
    suites          classes of tests for whoever adds a topology, collective, schedule, agent or engine

Read `measured_rows` and `validating` first. `data`, `baselines` and the YAML files hold what is published.
"""
