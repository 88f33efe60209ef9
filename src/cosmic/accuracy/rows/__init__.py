"""Measured rows of each kind, a module each with a function `compare_rows`; `measured_rows` finds it by its name.

Rows state what ran in columns. What published tables say in words or by habits of their own was read into these by the
scripts `read_words.py` and `read_serving.py` of `calibration/`.
"""
