"""Measured rows of each kind, a module each with a function `compare_rows`; `measured_rows` finds it by its name.

Published training runs (`training_rows`) and published serving (`serving_rows`) need their mapping, software and model
read from words: `training_software`, `serving_recipes`.
"""
