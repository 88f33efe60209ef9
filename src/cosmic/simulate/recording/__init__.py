"""Evaluation, recorded once for each structure of designs and run as a flat program."""
