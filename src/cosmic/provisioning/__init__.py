"""Bandwidth that is made to measure: the best split of a budget over the dimensions of a network (LIBRA)."""
