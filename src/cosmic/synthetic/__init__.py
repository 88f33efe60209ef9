"""Synthetic traces: a model fitted on given ones, how close it comes, and a suite of benchmarks."""
