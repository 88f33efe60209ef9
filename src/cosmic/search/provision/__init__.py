"""Bandwidth that is made to measure: the best split of a budget over the dimensions of a network (LIBRA).

provisioning ── LIBRA's files ──▶ libra: loads ──▶ bandwidth_optimum: one convex program, its bound and prices
    └────────── designs ────────▶ the step itself ◀── bandwidth_descent, from the convex optimum
bandwidth_problem: the problem, its limits as people write them, and the result
"""
