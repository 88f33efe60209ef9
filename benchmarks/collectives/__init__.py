"""Algorithms for collectives beside their bounds, for `collective_table.py`."""
