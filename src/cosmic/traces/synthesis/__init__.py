"""Synthetic traces: a model fitted on given traces makes new ones of other lengths and numbers of ranks.

`trace_model` is the entry.
"""
